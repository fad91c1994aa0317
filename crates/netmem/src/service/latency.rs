//! How long things took, in buckets of a quarter of an octave.

use crate::limits::LATENCY_SAMPLES;
use std::time::Duration;

/// Below 128 ns all is one bucket.
const FIRST_BITS: u32 = 7;
const PER_OCTAVE: usize = 4;
/// Up to 8.6 s.
const BUCKETS: usize = 26 * PER_OCTAVE;

/// Latencies; those of later than [`LATENCY_SAMPLES`] count more than earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    counts: [u32; BUCKETS],
    recent: u32,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { counts: [0; BUCKETS], recent: 0 }
    }
}

impl Latency {
    /// One more.
    pub fn add(&mut self, took: Duration) {
        if self.recent == LATENCY_SAMPLES {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.recent = 0;
        }
        self.counts[bucket(took)] += 1;
        self.recent += 1;
    }

    /// Number of samples counted now.
    pub fn samples(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// The quantile of `per_mille`, at most a quarter more than the exact value; `None` without samples.
    pub fn quantile(&self, per_mille: u32) -> Option<Duration> {
        let rank = (self.samples() * u64::from(per_mille)).div_ceil(1000).max(1);
        let mut below = 0;
        let at = self.counts.iter().position(|count| {
            below += u64::from(*count);
            below >= rank
        })?;
        Some(ceiling(at))
    }
}

fn bucket(took: Duration) -> usize {
    let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1 << FIRST_BITS);
    let octave = nanos.ilog2();
    let quarter = (nanos >> (octave - 2)) as usize & (PER_OCTAVE - 1);
    (((octave - FIRST_BITS) as usize) * PER_OCTAVE + quarter).min(BUCKETS - 1)
}

/// The least duration of the next bucket.
fn ceiling(bucket: usize) -> Duration {
    let (octave, quarter) = ((bucket + 1) / PER_OCTAVE, (bucket + 1) % PER_OCTAVE);
    Duration::from_nanos(((PER_OCTAVE + quarter) as u64) << (FIRST_BITS as usize + octave - 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_at_most_a_quarter_too_long(
            mut nanos in prop::collection::vec(200u64..4_000_000_000, 1..900),
            per_mille in 1u32..=1000,
        ) {
            let mut latency = Latency::default();
            nanos.iter().for_each(|nanos| latency.add(Duration::from_nanos(*nanos)));
            nanos.sort_unstable();
            let rank = (nanos.len() * per_mille as usize).div_ceil(1000);
            let (exact, got) = (nanos[rank - 1], latency.quantile(per_mille).unwrap().as_nanos() as u64);
            prop_assert!(exact <= got && got <= exact + exact.div_ceil(4), "{exact} {got}");
        }
    }

    #[test]
    fn what_is_long_ago_counts_less() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(990), None);
        (0..LATENCY_SAMPLES).for_each(|_| latency.add(Duration::from_millis(10)));
        (0..6 * LATENCY_SAMPLES).for_each(|_| latency.add(Duration::from_micros(10)));
        assert!(latency.quantile(900).unwrap() < Duration::from_micros(13));
        assert!(latency.samples() <= 2 * u64::from(LATENCY_SAMPLES));
    }
}
