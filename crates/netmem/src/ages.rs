//! How long pages have not been used, and how many frames are how old.

use crate::limits::{HOSTED_BOOST, ONCE_BOOST};
use std::time::Duration;
use wire::Time;
use wire::field::fields;

/// Time since the last known use, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub u64);

fields!(Age);

impl Age {
    /// Just used.
    pub const NEWEST: Age = Age(0);
    /// Older than every page: of a free frame.
    pub const OLDEST: Age = Age(u64::MAX);

    /// The age at `now` of what was last used at `used`.
    pub fn since(used: Time, now: Time) -> Age {
        Age(now.0.saturating_sub(used.0) / 1000)
    }

    /// As a span of time.
    pub fn as_duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// When what is so old at `now` was last used.
    pub fn used_at(self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.0.saturating_mul(1000)))
    }

    /// The age that counts: divided by one more than the uses that are remembered.
    pub fn effective(self, uses: Uses) -> Age {
        Age(self.0 / (1 + u64::from(uses.0)))
    }

    /// The age that another page must have to go for a page of this one.
    pub fn of_use(self, reused: bool) -> Age {
        Age(self.0.saturating_mul(if reused { 1 } else { ONCE_BOOST }))
    }

    /// The age of a page of another node beside the node's own.
    pub fn boosted(self) -> Age {
        Age(self.0.saturating_mul(HOSTED_BOOST))
    }
}

/// A page's uses since it was last given another chance: a counter of two bits (S3-FIFO, SOSP'23, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses(u8);

impl Uses {
    const MOST: u8 = 3;

    /// One more, up to 3.
    pub fn hit(&mut self) {
        self.0 = (self.0 + 1).min(Self::MOST);
    }

    /// Whether the page has another chance; that costs one use.
    pub fn spend(&mut self) -> bool {
        let has = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        has
    }

    /// Number of uses left.
    pub fn count(self) -> u8 {
        self.0
    }
}

const BUCKETS: usize = 32;

/// Frames by age, a bucket for each power of two of microseconds: bucket 0 is age 0, bucket b from 2^(b-1) to 2^b, and
/// the last one, from 18 minutes on, everything older. Histograms of several nodes add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram([u32; BUCKETS]);

fields!(Histogram);

/// Position of a histogram's M-th oldest frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// Its bucket.
    pub bucket: usize,
    /// Frames in older buckets.
    pub older: u64,
    /// Frames in its bucket.
    pub within: u64,
}

impl Histogram {
    /// Bytes of one.
    pub const BYTES: usize = 4 * BUCKETS;

    /// Counts `frames` of this age.
    pub fn add(&mut self, age: Age, frames: u32) {
        self.0[bucket(age)] += frames;
    }

    /// Counts the frames of another histogram as well.
    pub fn merge(&mut self, other: &Histogram) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, others)| *mine += others);
    }

    /// All frames.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// The same frames, half as old: each in the bucket below. Those of the last bucket may be older than that.
    pub fn halved(&self) -> Histogram {
        let mut halved = Histogram::default();
        for (bucket, count) in self.0.iter().enumerate() {
            halved.0[bucket.saturating_sub(1)] += count;
        }
        assert_eq!(halved.total(), self.total(), "every frame is in one bucket");
        halved
    }

    /// The `frames` oldest only.
    pub fn oldest(&self, frames: u64) -> Histogram {
        let mut left = frames;
        let mut oldest = Histogram::default();
        for (kept, count) in oldest.0.iter_mut().zip(self.0).rev() {
            *kept = left.min(count.into()) as u32;
            left -= u64::from(*kept);
        }
        assert!(left == 0 || oldest == *self, "fewer only where there are fewer");
        oldest
    }

    /// Position of the `m`-th oldest frame; `None` when there are fewer, or `m` is 0.
    pub(crate) fn boundary(&self, m: u64) -> Option<Boundary> {
        let mut older = 0;
        for (bucket, count) in self.0.iter().enumerate().rev() {
            let within = u64::from(*count);
            if m > 0 && older + within >= m {
                return Some(Boundary { bucket, older, within });
            }
            older += within;
        }
        None
    }

    /// Frames in buckets older than this one.
    pub(crate) fn older(&self, bucket: usize) -> u64 {
        self.0[bucket + 1..].iter().map(|count| u64::from(*count)).sum()
    }

    /// Frames in this bucket.
    pub(crate) fn within(&self, bucket: usize) -> u64 {
        self.0[bucket].into()
    }
}

fn bucket(age: Age) -> usize {
    ((64 - age.0.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// The least age in a bucket.
pub(crate) fn floor(bucket: usize) -> Age {
    Age(if bucket == 0 { 0 } else { 1 << (bucket - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(ages: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        ages.iter().for_each(|age| histogram.add(Age(*age), 1));
        histogram
    }

    fn ages() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(
            (0u32..40, any::<u64>()).prop_map(|(bits, age)| age % (1 << bits)),
            0..200,
        )
    }

    proptest! {
        /// The M-th oldest age of a sorted list lies in the boundary's bucket.
        #[test]
        fn the_boundary_holds_the_mth_oldest(mut ages in ages(), m in 0usize..220) {
            let boundary = histogram(&ages).boundary(m as u64);
            ages.sort_unstable_by_key(|age| std::cmp::Reverse(*age));
            let expected = m.checked_sub(1).and_then(|at| ages.get(at)).map(|age| bucket(Age(*age)));
            prop_assert_eq!(boundary.map(|b| b.bucket), expected);
            if let Some(found) = boundary {
                let older = ages.iter().filter(|age| bucket(Age(**age)) > found.bucket).count();
                prop_assert_eq!(found.older, older as u64);
                prop_assert!(found.older < m as u64 && found.older + found.within >= m as u64);
            }
        }

        #[test]
        fn histograms_add_up(one in ages(), other in ages()) {
            let mut merged = histogram(&one);
            merged.merge(&histogram(&other));
            prop_assert_eq!(merged, histogram(&[one, other].concat()));
        }

        #[test]
        fn the_oldest_are_the_oldest(mut ages in ages(), frames in 0usize..220) {
            let oldest = histogram(&ages).oldest(frames as u64);
            ages.sort_unstable_by_key(|age| std::cmp::Reverse(*age));
            prop_assert_eq!(oldest, histogram(&ages[..frames.min(ages.len())]));
        }

        #[test]
        fn halving_a_histogram_halves_its_ages(ages in prop::collection::vec(0u64..1 << 31, 0..200)) {
            let halved: Vec<u64> = ages.iter().map(|age| age / 2).collect();
            prop_assert_eq!(histogram(&ages).halved(), histogram(&halved));
        }
    }

    #[test]
    fn buckets_are_powers_of_two_of_microseconds() {
        assert_eq!(
            [0, 1, 2, 3, 4, 1 << 29, 1 << 30, u64::MAX].map(|age| bucket(Age(age))),
            [0, 1, 2, 2, 3, 30, 31, 31]
        );
        assert!((0..BUCKETS).all(|b| bucket(floor(b)) == b));
    }

    #[test]
    fn uses_make_a_page_younger_and_are_spent() {
        let mut uses = Uses::default();
        (0..9).for_each(|_| uses.hit());
        assert_eq!(Age(400).effective(uses), Age(100));
        assert_eq!(
            [uses.spend(), uses.spend(), uses.spend(), uses.spend()],
            [true, true, true, false]
        );
        assert_eq!(Age(400).effective(uses), Age(400));
    }

    #[test]
    fn ages_and_times_tell_each_other() {
        let now = Time(5_000_000);
        assert_eq!(Age::since(Age(700).used_at(now), now), Age(700));
        assert_eq!(Age::OLDEST.used_at(now), Time(0));
        assert_eq!(Age::since(Time(9_000_000), now), Age::NEWEST);
    }
}
