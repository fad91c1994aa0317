//! The pages that a thread will want next, from its last ones (Leap: Al Maruf and Chowdhury, USENIX ATC'20).
//!
//! The trend is the step that more than half of the last accesses made: of the last 8, else of 16, else of 32. So a few
//! stray accesses do not hide a scan, and without a majority nothing is prefetched.

use crate::limits::{TREND_FAULTS, USED_PERCENT_MIN, WINDOW_MAX, WINDOW_MIN};

/// Fewest steps of which there is a majority.
const STEPS_MIN: usize = 3;

/// Pages to be prefetched, of the space that the accesses were in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// The first one's index.
    pub first: u64,
    /// From each to the next; never 0.
    pub stride: i64,
    /// Number of pages; at least 1.
    pub pages: u32,
}

impl Prefetch {
    /// The indices of the pages, in the order of their use.
    pub fn indices(self) -> impl Iterator<Item = u64> {
        (0..i64::from(self.pages))
            .map(move |page| self.first.wrapping_add_signed(page * self.stride))
    }

    /// As many of the pages as there are indices for.
    fn within_u64(self) -> Option<Prefetch> {
        let reaches = |pages: &u32| {
            let last = i64::from(*pages - 1).checked_mul(self.stride);
            last.is_some_and(|last| self.first.checked_add_signed(last).is_some())
        };
        let pages = (1..=self.pages).rev().find(reaches)?;
        Some(Prefetch { pages, ..self })
    }
}

/// The last accesses of one thread to one space.
#[derive(Clone, Debug)]
pub struct Trend {
    steps: [i64; TREND_FAULTS],
    /// Steps seen so far.
    seen: usize,
    last: Option<u64>,
    window: u32,
    issued: u32,
    used: u32,
    /// The index behind all that was issued, and the stride that it was issued with.
    frontier: Option<(u64, i64)>,
}

impl Default for Trend {
    fn default() -> Trend {
        Trend {
            steps: [0; TREND_FAULTS],
            seen: 0,
            last: None,
            window: WINDOW_MIN,
            issued: 0,
            used: 0,
            frontier: None,
        }
    }
}

impl Trend {
    /// Pages that would be prefetched at once.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// The page with this index was wanted and was not there. One beside the trend leads nowhere.
    pub fn handle_fault(&mut self, index: u64) -> Option<Prefetch> {
        let step = self.record(index);
        let stride = self.majority().filter(|stride| step == Some(*stride))?;
        self.issue(index.checked_add_signed(stride)?, stride)
    }

    /// A prefetched page was used for the first time. More are due when half a window is left.
    pub fn handle_used(&mut self, index: u64) -> Option<Prefetch> {
        self.used += 1;
        self.record(index);
        let stride = self.majority()?;
        let (next, issued_with) = self.frontier?;
        let left = i128::from(next) - i128::from(index);
        let half = i128::from(stride) * i128::from(self.window / 2);
        let is_due = stride == issued_with && left.abs() <= half.abs();
        if is_due { self.issue(next, stride) } else { None }
    }

    fn record(&mut self, index: u64) -> Option<i64> {
        let step = index.wrapping_sub(self.last.replace(index)?) as i64;
        self.steps[self.seen % TREND_FAULTS] = step;
        self.seen += 1;
        Some(step)
    }

    fn majority(&self) -> Option<i64> {
        let sizes = [TREND_FAULTS / 4, TREND_FAULTS / 2, TREND_FAULTS];
        sizes.into_iter().find_map(|size| self.majority_of(size.min(self.seen)))
    }

    /// The step that more than half of the last `size` made (Boyer and Moore 1981: one pass finds the only candidate, a
    /// second one counts it).
    fn majority_of(&self, size: usize) -> Option<i64> {
        let last = || (0..size).map(|back| self.steps[(self.seen - 1 - back) % TREND_FAULTS]);
        let (candidate, _) = last().fold((0, 0), |(candidate, lead), step| match lead {
            0 => (step, 1),
            lead if step == candidate => (candidate, lead + 1),
            lead => (candidate, lead - 1),
        });
        let count = last().filter(|step| *step == candidate).count();
        (size >= STEPS_MIN && count * 2 > size && candidate != 0).then_some(candidate)
    }

    fn issue(&mut self, first: u64, stride: i64) -> Option<Prefetch> {
        self.adapt();
        let prefetch = Prefetch { first, stride, pages: self.window }.within_u64()?;
        self.issued = prefetch.pages;
        let length = stride.checked_mul(i64::from(prefetch.pages));
        let behind = length.and_then(|length| first.checked_add_signed(length));
        self.frontier = behind.map(|next| (next, stride));
        Some(prefetch)
    }

    /// Half the window when too little of what was issued last was used, else twice.
    fn adapt(&mut self) {
        let (issued, used) = (self.issued, std::mem::take(&mut self.used));
        self.window = match used * 100 < issued * USED_PERCENT_MIN {
            _ if issued == 0 => self.window,
            true => (self.window / 2).max(WINDOW_MIN),
            false => (self.window * 2).min(WINDOW_MAX),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A thread that reads these pages in order. Returns faults, pages prefetched, and those of them used.
    fn read(trend: &mut Trend, pages: impl IntoIterator<Item = u64>) -> (usize, usize, usize) {
        let mut there = BTreeSet::new();
        let (mut faults, mut fetched, mut used) = (0, 0, 0);
        for page in pages {
            let hit = there.remove(&page);
            let more = if hit { trend.handle_used(page) } else { trend.handle_fault(page) };
            (faults, used) = (faults + usize::from(!hit), used + usize::from(hit));
            let more: Vec<u64> = more.into_iter().flat_map(Prefetch::indices).collect();
            fetched += more.len();
            there.extend(more);
        }
        (faults, fetched, used)
    }

    proptest! {
        /// A scan in steps of any length, either way, faults a few times and then never.
        #[test]
        fn a_scan_is_found(stride in prop_oneof![1i64..100, -100i64..-1], start in 1u64 << 40..1 << 41) {
            let mut trend = Trend::default();
            let pages = (0..1000).map(|page| start.wrapping_add_signed(page * stride));
            let (faults, fetched, used) = read(&mut trend, pages);
            prop_assert!(faults <= 4, "{faults} faults");
            prop_assert!(fetched - used <= 2 * WINDOW_MAX as usize);
            prop_assert_eq!(trend.window(), WINDOW_MAX);
        }

        /// With one stray access in five the scan is still found.
        #[test]
        fn strays_do_not_hide_a_scan(strays in prop::collection::vec(1u64 << 50..1 << 60, 100)) {
            let mut trend = Trend::default();
            // a stray access makes two strange steps
            let pages = strays.iter().enumerate().flat_map(|(at, stray)| {
                let scan = at as u64 * 8;
                (scan..scan + 8).chain([*stray])
            });
            let (faults, _, used) = read(&mut trend, pages);
            prop_assert!(faults < 100 + 40 && used > 700, "{faults} faults, {used} used");
        }

        /// Random accesses are left alone.
        #[test]
        fn without_a_majority_nothing_is_prefetched(pages in prop::collection::vec(0u64..1 << 50, 300)) {
            let (faults, fetched, _) = read(&mut Trend::default(), pages);
            prop_assert_eq!((faults, fetched), (300, 0));
        }

        /// The only majority there is is the one that counting finds; indices stay in range at both ends.
        #[test]
        fn the_majority_is_more_than_half(
            steps in prop::collection::vec(-2i64..3, 1..80),
            start in prop_oneof![Just(0u64), Just(1 << 30), Just(u64::MAX)],
        ) {
            let (mut trend, mut at) = (Trend::default(), start);
            for step in &steps {
                let issued = trend.handle_fault(at);
                prop_assert!(issued.is_none_or(|p| p.stride != 0 && p.pages >= 1 && p.pages <= WINDOW_MAX));
                let ends = issued.map(|p| i128::from(p.first) + i128::from(p.stride) * i128::from(p.pages - 1));
                prop_assert!(ends.is_none_or(|end| (0..=i128::from(u64::MAX)).contains(&end)));
                at = at.wrapping_add_signed(*step);
            }
            let count = |steps: &[i64]| (-2..3).find(|step| 2 * steps.iter().filter(|s| *s == step).count() > steps.len());
            let done = &steps[..steps.len() - 1];
            let sizes = [8, 16, 32].map(|size| done.len().saturating_sub(size));
            let expected = sizes.into_iter().filter(|from| done.len() - from >= STEPS_MIN).find_map(|from| count(&done[from..]).filter(|s| *s != 0));
            prop_assert_eq!(trend.majority(), expected);
        }
    }

    /// Faults that go on in steps of one, while nothing that was prefetched is ever used.
    #[test]
    fn what_is_not_used_narrows_the_window() {
        let mut trend = Trend::default();
        read(&mut trend, 0..200);
        assert_eq!(trend.window(), WINDOW_MAX);
        (0..8u64).for_each(|page| {
            trend.handle_fault(1 << 30 | page);
        });
        assert_eq!(trend.window(), WINDOW_MIN);
    }
}
