//! Crashes while names are salvaged: of the new manager and of I/O servers, again and again.

use crate::queue::Picos;
use crate::random::{MILLION, Random};

/// Most strikes in one salvage: each may break off an attempt, and the next begins seconds later.
const STRIKES_MAX: u64 = 6;
/// Within so many microseconds of an attempt's begin, or of the strike before: while objects are listed, while files
/// are made and compared, while a machine starts again, or later.
const SPANS_US: [u64; 4] = [400, 3_000, 30_000, 800_000];

/// The strikes of one salvage.
#[derive(Debug, Default)]
pub struct Strikes {
    left: u64,
    /// The attempt that they meet.
    attempt: u32,
    due: Option<Picos>,
}

impl Strikes {
    /// Draws the strikes; every third salvage has none.
    pub fn new(random: &mut Random) -> Strikes {
        let any = random.chance(MILLION / 3 * 2);
        let left = if any { 1 + random.below(STRIKES_MAX) } else { 0 };
        Strikes { left, ..Strikes::default() }
    }

    /// Whether there are more to come.
    pub fn are_left(&self) -> bool {
        self.left > 0
    }

    /// Whether one is due, in this attempt.
    pub fn is_due(&mut self, now: Picos, attempt: u32, random: &mut Random) -> bool {
        let struck = self.due.is_some_and(|due| due <= now);
        if struck {
            (self.left, self.due) = (self.left - 1, None);
        }
        let again = struck && random.chance(MILLION / 2);
        if self.left > 0 && (again || attempt > self.attempt) {
            let span = *random.pick(&SPANS_US);
            self.due = Some(now + Picos::micros(random.below(span)));
        }
        self.attempt = self.attempt.max(attempt);
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_salvage_has_its_strikes_and_then_no_more() {
        let mut counts = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let mut random = Random::new(seed, "strikes");
            let mut strikes = Strikes::new(&mut random);
            let ticks = (0..30_000).map(Picos::millis);
            let struck = ticks.filter(|now| {
                let attempt = 1 + (now.0 / Picos::seconds(4).0) as u32;
                strikes.is_due(*now, attempt, &mut random)
            });
            counts.insert(struck.count() as u64);
        }
        assert!((0..=STRIKES_MAX).all(|count| counts.contains(&count)) && counts.len() == 7);
    }
}
