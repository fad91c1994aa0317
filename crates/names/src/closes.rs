//! Closes of a client that have taken place, by the numbers that the client gives them.
//!
//! A close that was not answered comes again by another call, while the first may still be on its way: it takes place
//! once. When the client reclaims its opens, which is absolute, no earlier close may take place any more: one that has
//! not is refused, and the client closes anew.
//!
//! Numbers are kept as runs. Between two runs are numbers of closes that have not taken place: they are under way, or
//! their client gave them up. However many others end meanwhile, none that took place is forgotten.

use crate::limits::CLOSES_MAX;
use std::collections::BTreeMap;

/// The closes of one client that take place no more.
#[derive(Debug, Default)]
pub(crate) struct Closes {
    /// First and last number of each run of closes that took place; no two touch.
    runs: BTreeMap<u64, u64>,
    /// Those up to here that did not never will.
    ended: u64,
}

impl Closes {
    /// None up to this number takes place from now on.
    pub fn end(&mut self, last: u64) {
        self.ended = self.ended.max(last);
    }

    /// Whether it can take place no more, and did not.
    pub fn has_ended(&self, number: u64) -> bool {
        number <= self.ended && !self.has(number)
    }

    /// Whether it took place.
    pub fn has(&self, number: u64) -> bool {
        let run = self.runs.range(..=number).next_back();
        run.is_some_and(|(_, last)| number <= *last)
    }

    /// These took place.
    pub fn insert(&mut self, mut first: u64, mut last: u64) {
        while let Some((start, end)) = self.run_before(last.saturating_add(1))
            && end.saturating_add(1) >= first
        {
            self.runs.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.runs.insert(first, last);
        if self.runs.len() > CLOSES_MAX {
            self.join_oldest();
        }
    }

    /// The last run that begins at this number or before.
    fn run_before(&self, number: u64) -> Option<(u64, u64)> {
        self.runs.range(..=number).next_back().map(|(start, end)| (*start, *end))
    }

    /// The closes between the two oldest runs take place no more either.
    fn join_oldest(&mut self) {
        let Some((first, _)) = self.runs.pop_first() else { return };
        if let Some((_, last)) = self.runs.pop_first() {
            self.runs.insert(first, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_are_sets_of_numbers(runs in prop::collection::vec((1u64..60, 0u64..4), 0..40)) {
            let (mut closes, mut model) = (Closes::default(), BTreeSet::new());
            for (first, more) in runs {
                closes.insert(first, first + more);
                model.extend(first..=first + more);
            }
            prop_assert!((0..70).all(|number| closes.has(number) == model.contains(&number)));
            let ends: Vec<_> = closes.runs.into_iter().collect();
            prop_assert!(ends.windows(2).all(|two| two[0].1 + 1 < two[1].0), "{ends:?}");
        }
    }

    #[test]
    fn one_that_hangs_is_known_however_many_end_meanwhile() {
        let mut closes = Closes::default();
        (1..100_000).filter(|number| *number != 7).for_each(|number| closes.insert(number, number));
        assert!(closes.has(1) && !closes.has(7) && closes.has(8));
        assert_eq!(closes.runs.len(), 2);
    }

    #[test]
    fn of_more_gaps_than_a_client_has_calls_the_oldest_is_closed() {
        let mut closes = Closes::default();
        (1..=CLOSES_MAX as u64 + 1).for_each(|at| closes.insert(2 * at, 2 * at));
        assert!(closes.has(3) && !closes.has(5));
        assert_eq!(closes.runs.len(), CLOSES_MAX);
    }
}
