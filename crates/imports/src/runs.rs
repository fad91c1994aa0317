//! Sets of pieces as runs: a file that is read from its beginning on is one, however long it is.
//!
//! Invariant: runs are not empty, and do not touch each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// First of each run, and the one behind its last.
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl Runs {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn contains(&self, number: u64) -> bool {
        self.before(number + 1).is_some_and(|run| run.contains(&number))
    }

    /// The last run that begins before `number`.
    fn before(&self, number: u64) -> Option<Range<u64>> {
        self.runs.range(..number).next_back().map(|(first, end)| *first..*end)
    }

    pub fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        let end = self.runs.remove(&(number + 1)).unwrap_or(number + 1);
        let joined = self.before(number).filter(|run| run.end == number);
        self.runs.insert(joined.map_or(number, |run| run.start), end);
        self.count += 1;
    }

    /// The first so many runs.
    pub fn first(&self, count: usize) -> Vec<(u64, u64)> {
        self.runs.iter().take(count).map(|(first, end)| (*first, *end)).collect()
    }

    /// The union of these runs, as far as they are runs.
    pub fn of(runs: &[(u64, u64)]) -> Runs {
        let mut all = Runs::default();
        for (first, end) in runs {
            let is_behind = all.runs.last_key_value().is_none_or(|(_, last)| first > last);
            if first < end && is_behind {
                all.runs.insert(*first, *end);
                all.count += end - first;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn runs_are_the_set_of_what_was_inserted() {
        let (mut runs, mut set, mut number) = (Runs::default(), BTreeSet::new(), 7);
        for _ in 0..300 {
            number = (number + 73) % 211;
            runs.insert(number);
            set.insert(number);
            assert_eq!(runs.count(), set.len() as u64);
            assert!((0..212).all(|at| runs.contains(at) == set.contains(&at)));
            let all = runs.first(usize::MAX);
            assert!(all.windows(2).all(|pair| pair[0].1 < pair[1].0), "{all:?}");
            assert_eq!(Runs::of(&all), runs);
        }
        assert_eq!(runs.first(usize::MAX), [(0, 211)]);
    }

    #[test]
    fn what_is_no_run_is_left_out() {
        let runs = Runs::of(&[(3, 5), (9, 9), (4, 8), (7, 6), (6, 8)]);
        assert_eq!((runs.first(9), runs.count()), (vec![(3, 5), (6, 8)], 4));
    }
}
