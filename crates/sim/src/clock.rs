//! How fast a machine's clock runs: not as the world's, where an experiment says so.

use crate::queue::Picos;
use crate::random::Random;
use wire::Time;

/// A clock that was right when it began; since then it is a part too fast or too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    since: Picos,
    /// Ticks of this clock per thousand of the world's.
    rate: u64,
}

const RIGHT: u64 = 1_000;

impl Clock {
    /// One whose rate is drawn: up to so many percent too fast or too slow. Nothing is drawn for a right one.
    pub fn drawn(since: Picos, percent: u32, random: &mut Random) -> Clock {
        let most = u64::from(percent) * RIGHT / 100;
        let rate = if most == 0 { RIGHT } else { random.within(RIGHT - most, RIGHT + most) };
        Clock { since, rate }
    }

    /// Its reading.
    pub fn time(self, now: Picos) -> Time {
        let counted = u128::from(now.since(self.since).0) * u128::from(self.rate);
        (self.since + Picos((counted / u128::from(RIGHT)) as u64)).node_time()
    }

    /// When it begins to say so, or began.
    pub fn when(self, time: Time) -> Picos {
        let counted = Picos::of_node_time(time).since(self.since);
        self.since + self.span(counted)
    }

    /// How long the world takes until this clock has counted so much.
    pub fn span(self, counted: Picos) -> Picos {
        let span = u128::from(counted.0) * u128::from(RIGHT);
        Picos(u64::try_from(span.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A clock never goes back, says a time from when it begins to say it on, and is no more wrong than it may be.
        #[test]
        fn a_clock_counts_a_part_more_or_less(seed: u64, since in 0u64..1 << 50, span in 1u64..1 << 55) {
            let mut random = Random::new(seed, "clock");
            let clock = Clock::drawn(Picos(since), 10, &mut random);
            prop_assert!((900..=1_100).contains(&clock.rate));
            let now = Picos(since + span);
            let time = clock.time(now);
            prop_assert!(time >= clock.time(Picos(now.0 - 1)));
            let begins = clock.when(time);
            prop_assert!(begins <= now && clock.time(begins) == time);
            prop_assert!(clock.time(Picos(begins.0 - 1)) < time || begins.0 == since);
            let (counted, most) = (time.0 - Picos(since).node_time().0, span / 1_000);
            prop_assert!(counted + 2 >= most / 10 * 9 && counted <= most / 10 * 11 + 13);
        }

        #[test]
        fn a_right_clock_is_the_worlds(since: u32, now: u64) {
            let clock = Clock::drawn(Picos(since.into()), 0, &mut Random::new(1, "clock"));
            let now = Picos(now.max(since.into()));
            prop_assert_eq!(clock.time(now), now.node_time());
            prop_assert_eq!(clock.when(now.node_time()).0.max(since.into()), (now.0 / 1_000 * 1_000).max(since.into()));
        }
    }
}
