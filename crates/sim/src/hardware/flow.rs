//! Work at a rate that changes: a transfer, a run of instructions, programmed I/O on a bus.
//!
//! Nothing happens per cycle or per byte. A flow knows how much was done when its rate last changed; between two
//! changes its progress is a straight line, so it is exact at any moment.

use crate::queue::Picos;
use std::fmt;

/// Picoseconds in a second: the fine units in one unit of work.
const FINE: u64 = 1_000_000_000_000;
/// Most units in one flow: its fine units fit 64 bits. A payload has 1 MiB at most.
pub const UNITS_MAX: u64 = 16 << 20;

/// Units a second: bytes, memory accesses or instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    /// Nothing moves.
    pub const ZERO: Rate = Rate(0);
    /// As fast as whatever else limits.
    pub const UNLIMITED: Rate = Rate(u64::MAX);

    /// So many million a second.
    pub const fn mega(mega: u64) -> Rate {
        Rate(mega * 1_000_000)
    }

    /// How long `units` take, rounded up; never at rate zero.
    pub fn time(self, units: u64) -> Picos {
        match self.0 {
            0 if units > 0 => Picos::NEVER,
            0 => Picos::ZERO,
            rate => Picos((u128::from(units) * u128::from(FINE)).div_ceil(u128::from(rate)) as u64),
        }
    }

    /// Number of whole units in `span`.
    pub fn units(self, span: Picos) -> u64 {
        (u128::from(self.0) * u128::from(span.0) / u128::from(FINE)) as u64
    }

    /// This rate shared evenly among `users`.
    pub const fn shared(self, users: u64) -> Rate {
        Rate(if users > 1 { self.0 / users } else { self.0 })
    }

    /// The rest of it beside `other`.
    pub const fn less(self, other: Rate) -> Rate {
        Rate(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} M/s", self.0 / 1_000_000, self.0 / 1_000 % 1_000)
    }
}

/// One piece of work in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    total: u64,
    /// Fine units done at `since`.
    done: u64,
    rate: Rate,
    since: Picos,
}

impl Flow {
    /// `units` of work that begin at `now` and wait for a rate.
    pub fn new(now: Picos, units: u64) -> Flow {
        assert!(units <= UNITS_MAX, "{units} units at once, {UNITS_MAX} are the most");
        Flow { total: units, done: 0, rate: Rate::ZERO, since: now }
    }

    /// All of its work.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// At what rate it goes on.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Whole units done at `now`.
    pub fn units(&self, now: Picos) -> u64 {
        self.fine(now) / FINE
    }

    /// Whether all is done at `now`.
    pub fn is_done(&self, now: Picos) -> bool {
        self.fine(now) == self.total * FINE
    }

    /// When it ends if its rate stays.
    pub fn end(&self) -> Picos {
        self.time_of(self.total)
    }

    /// When `units` will be done if its rate stays; the past if they are.
    pub fn time_of(&self, units: u64) -> Picos {
        let left = (units.min(self.total) * FINE).saturating_sub(self.done);
        match self.rate.0 {
            _ if left == 0 => self.since,
            0 => Picos::NEVER,
            rate => self.since + Picos(left.div_ceil(rate)),
        }
    }

    /// Goes on at `rate` from `now`. Whether that is a change.
    pub fn set_rate(&mut self, now: Picos, rate: Rate) -> bool {
        if self.rate == rate {
            return false;
        }
        self.done = self.fine(now);
        (self.rate, self.since) = (rate, now);
        true
    }

    fn fine(&self, now: Picos) -> u64 {
        let most = self.total * FINE;
        let passed = u128::from(self.rate.0) * u128::from(now.since(self.since).0);
        (u128::from(self.done) + passed).min(u128::from(most)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_on_pci_takes_what_the_paper_says() {
        // 4 KB on 32 bit, 33 MHz: 31.03 us (forwarding paper, section 2.2)
        assert_eq!(Rate::mega(132).time(4_096), Picos(31_030_304));
        assert_eq!(Rate::mega(160).time(4_096), Picos(25_600_000));
        assert_eq!(Rate::mega(160).units(Picos(25_600_000)), 4_096);
    }

    #[test]
    fn a_flow_without_a_rate_stands_still() {
        let mut flow = Flow::new(Picos(5), 10);
        assert_eq!(flow.end(), Picos::NEVER);
        assert!(flow.set_rate(Picos(7), Rate::mega(1)));
        assert!(!flow.set_rate(Picos(9), Rate::mega(1)));
        assert_eq!(flow.end(), Picos(7) + Picos::micros(10));
        assert_eq!(flow.units(Picos(7) + Picos::micros(3)), 3);
        assert_eq!(flow.time_of(3), Picos(7) + Picos::micros(3));
    }

    proptest! {
        /// However often its rate changes, no unit is lost: what is done is the sum over the pieces, and a flow that
        /// runs to its promised end is done exactly then.
        #[test]
        fn changes_of_rate_lose_nothing(
            total in 1u64..100_000, pieces in prop::collection::vec((1u64..300_000_000, 0u64..50_000_000), 1..20)
        ) {
            let mut flow = Flow::new(Picos::ZERO, total);
            let (mut now, mut fine) = (Picos::ZERO, 0u128);
            for (rate, span) in pieces {
                flow.set_rate(now, Rate(rate));
                fine += u128::from(rate) * u128::from(span);
                now = now + Picos(span);
                let expected = (fine / u128::from(FINE)).min(u128::from(total)) as u64;
                prop_assert_eq!(flow.units(now), expected);
            }
            flow.set_rate(now, Rate::mega(7));
            let end = flow.end().max(now);
            prop_assert!(flow.is_done(end));
            prop_assert!(end == now || !flow.is_done(end - Picos(1)));
        }
    }
}
