//! Pages that a program says it will use, in order (PGMS: Voelker and others, SIGMETRICS'98).
//!
//! Two positions run ahead of the program's own. The far one asks early: what is on disk comes to the memory of an idle
//! node. The near one asks just in time: from there to local memory.
//!
//! ```text
//!   used ──► near ──────────► far ─────────────────────► end
//!     done    local memory      an idle node's memory      only said
//! ```

use crate::ages::Age;
use crate::limits::{HINT_RUNS_MAX, HINT_RUNS_SEARCHED, JUST_IN_TIME_SLACK};
use crate::page::PageId;
use std::collections::VecDeque;
use std::time::Duration;

/// Pages of one space at equal distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: PageId,
    /// Number of pages.
    pub pages: u32,
    /// Distance from the index of each to the next one's: 1 for adjacent pages, below 0 backwards.
    pub stride: i64,
}

impl Run {
    /// Adjacent pages.
    pub fn new(first: PageId, pages: u32) -> Run {
        Run { first, pages, stride: 1 }
    }

    /// One page.
    pub fn one(page: PageId) -> Run {
        Run::new(page, 1)
    }

    /// From one page to another one of the same space, both included, in steps of `stride`; none when it leads away.
    pub fn between(first: PageId, last: u64, stride: i64) -> Run {
        let way = i128::from(last) - i128::from(first.index);
        let steps = way.checked_div(i128::from(stride)).filter(|steps| *steps >= 0);
        let pages = steps.map_or(0, |steps| u32::try_from(steps + 1).unwrap_or(u32::MAX));
        Run { first, pages, stride }
    }

    /// The pages in order.
    pub fn iter(&self) -> impl Iterator<Item = PageId> + '_ {
        (0..u64::from(self.pages)).map(|at| self.page(at))
    }

    /// Whether a page is one of them.
    pub fn has(&self, id: PageId) -> bool {
        self.position(id).is_some()
    }

    /// The page at a position, counted from 0.
    fn page(&self, at: u64) -> PageId {
        let step = (at as i64).wrapping_mul(self.stride);
        PageId { index: self.first.index.wrapping_add_signed(step), ..self.first }
    }

    /// Position of a page in the run.
    fn position(&self, id: PageId) -> Option<u64> {
        let way = i128::from(id.index) - i128::from(self.first.index);
        // a single page has no stride to speak of
        let stride = i128::from(if self.stride == 0 { 1 } else { self.stride });
        let at = way.checked_div(stride).filter(|at| at * stride == way)?;
        let at = u64::try_from(at).ok().filter(|at| *at < u64::from(self.pages))?;
        (id.space == self.first.space).then_some(at)
    }

    /// Whether there are pages, and an index for each.
    fn is_sound(&self) -> bool {
        let last = i64::from(self.pages).checked_sub(1).filter(|last| *last >= 0);
        let way = last.and_then(|last| last.checked_mul(self.stride));
        let end = way.and_then(|way| self.first.index.checked_add_signed(way));
        end.is_some() && (self.stride != 0 || self.pages == 1)
    }
}

/// The queue is full: say it again when some pages were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("so much was said that is not used yet: say the rest when some pages were used")]
pub struct Full;

#[derive(Clone, Copy, Debug)]
struct Placed {
    /// Pages hinted at before this run.
    start: u64,
    run: Run,
}

impl Placed {
    fn end(&self) -> u64 {
        self.start + u64::from(self.run.pages)
    }

    fn page(&self, position: u64) -> PageId {
        self.run.page(position - self.start)
    }

    fn position(&self, id: PageId) -> Option<u64> {
        self.run.position(id).map(|at| self.start + at)
    }
}

/// The hints of one thread. Positions count pages from the first hint on.
#[derive(Debug)]
pub struct Hints {
    runs: VecDeque<Placed>,
    used: u64,
    near: u64,
    far: u64,
    end: u64,
}

impl Default for Hints {
    fn default() -> Hints {
        let runs = VecDeque::with_capacity(HINT_RUNS_MAX);
        Hints { runs, used: 0, near: 0, far: 0, end: 0 }
    }
}

impl Hints {
    /// Pages hinted at and not used yet.
    pub fn len(&self) -> u64 {
        self.end - self.used
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages that were used, or passed over.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Pages ahead of the program that were asked for to be in local memory.
    pub fn near(&self) -> u64 {
        self.near - self.used
    }

    /// Adds pages behind all that were hinted at. A run that has no pages, or more than there are indices for, is none.
    pub fn push(&mut self, run: Run) -> Result<(), Full> {
        if self.runs.len() == HINT_RUNS_MAX {
            return Err(Full);
        }
        if run.is_sound() {
            let last = self.runs.back().map_or(self.end, Placed::end);
            assert_eq!(last, self.end, "runs have no gap");
            self.runs.push_back(Placed { start: self.end, run });
            self.end += u64::from(run.pages);
        }
        Ok(())
    }

    /// The program has used a page. If it was hinted at, what was said before it is done with. Says whether it was.
    pub fn handle_use(&mut self, id: PageId) -> bool {
        let searched = self.runs.iter().take(HINT_RUNS_SEARCHED);
        let positions = searched.filter_map(|placed| placed.position(id));
        let Some(position) = positions.filter(|at| *at >= self.used).min() else { return false };
        self.advance(position + 1);
        true
    }

    /// The result of the next [`poll_near`](Hints::poll_near).
    pub fn peek_near(&self, distance: u64) -> Option<PageId> {
        let end = self.end.min(self.used.saturating_add(distance));
        (self.near < end).then(|| self.page(self.near))
    }

    /// The next page for local memory, at most `distance` pages ahead of the program.
    pub fn poll_near(&mut self, distance: u64) -> Option<PageId> {
        let page = self.peek_near(distance)?;
        self.near += 1;
        self.far = self.far.max(self.near);
        Some(page)
    }

    /// The result of the next [`poll_far`](Hints::poll_far).
    pub fn peek_far(&self, distance: u64) -> Option<(PageId, u64)> {
        let end = self.end.min(self.used.saturating_add(distance));
        (self.far < end).then(|| (self.page(self.far), self.far - self.used))
    }

    /// The next page for an idle node's memory, and how many pages the program uses before it. At most `distance`
    /// ahead.
    pub fn poll_far(&mut self, distance: u64) -> Option<(PageId, u64)> {
        let page = self.peek_far(distance)?;
        self.far += 1;
        Some(page)
    }

    /// The program takes back all that it said.
    pub fn clear(&mut self) {
        self.advance(self.end);
    }

    fn advance(&mut self, used: u64) {
        assert!(self.used <= used && used <= self.end, "a program goes on in what it said");
        self.used = used;
        self.near = self.near.max(used);
        self.far = self.far.max(self.near);
        while self.runs.front().is_some_and(|placed| placed.end() <= used) {
            self.runs.pop_front();
        }
        assert!(self.far <= self.end, "only what was said is asked for");
    }

    fn page(&self, position: u64) -> PageId {
        let at = self.runs.partition_point(|placed| placed.end() <= position);
        self.runs[at].page(position)
    }
}

/// Distance ahead of the program, in pages, at which a page must be requested to be there in time: a fetch takes
/// `fetch`, and the program `compute` for each page.
pub fn just_in_time(fetch: Duration, compute: Duration) -> u64 {
    let pages = fetch.as_nanos().div_ceil(compute.as_nanos().max(1));
    u64::try_from(pages).unwrap_or(u64::MAX).saturating_add(JUST_IN_TIME_SLACK)
}

/// Whether a page that will be used in `time_to_use` may take the place of one with this effective age: its next use is
/// expected as far ahead as its last one lies behind, so that no page goes that is used sooner.
pub fn is_worth(time_to_use: Age, victim: Age) -> bool {
    victim > time_to_use
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Push(Run),
        Near(u64),
        Far(u64),
        /// Of the pages that are hinted at.
        Use(usize),
        Other,
        Clear,
    }

    fn page(index: u64) -> PageId {
        PageId { space: SpaceId(1), index }
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (1u64 << 30..1 << 40, 0u32..9, prop_oneof![Just(1i64), -40i64..40])
                .prop_map(|(first, pages, stride)| Op::Push(Run { first: page(first), pages, stride })),
            3 => (0u64..30).prop_map(Op::Near),
            3 => (0u64..60).prop_map(Op::Far),
            4 => (0usize..40).prop_map(Op::Use),
            1 => Just(Op::Other),
            1 => Just(Op::Clear),
        ]
    }

    proptest! {
        /// Against a plain list of pages and three positions in it.
        #[test]
        fn hints_are_a_list(ops in prop::collection::vec(op(), 1..200)) {
            let mut hints = Hints::default();
            let (mut list, mut used, mut near, mut far) = (Vec::new(), 0usize, 0usize, 0usize);
            for op in ops {
                match op {
                    Op::Push(run) => {
                        // one that leads nowhere is one page at most
                        let pages = if run.stride == 0 { run.pages % 2 } else { run.pages };
                        if hints.push(Run { pages, ..run }).is_ok() {
                            let index = |at| run.first.index.wrapping_add_signed(i64::from(at) * run.stride);
                            list.extend((0..pages).map(|at| page(index(at))));
                        }
                    }
                    Op::Near(distance) => {
                        let expected = list.get(near).copied().filter(|_| near < used + distance as usize);
                        prop_assert_eq!(hints.poll_near(distance), expected);
                        near += usize::from(expected.is_some());
                    }
                    Op::Far(distance) => {
                        let expected = list.get(far).filter(|_| far < used + distance as usize);
                        let expected = expected.map(|page| (*page, (far - used) as u64));
                        prop_assert_eq!(hints.poll_far(distance), expected);
                        far += usize::from(expected.is_some());
                    }
                    Op::Use(ahead) => {
                        let Some(id) = list.get(used + ahead).copied() else { continue };
                        let first = used + list[used..].iter().position(|page| *page == id).unwrap();
                        if hints.handle_use(id) {
                            used = first + 1;
                        } else {
                            prop_assert!(ahead >= HINT_RUNS_SEARCHED - 1, "only what is far ahead is not found");
                        }
                    }
                    Op::Other => prop_assert!(!hints.handle_use(page(u64::MAX))),
                    Op::Clear => {
                        hints.clear();
                        used = list.len();
                    }
                }
                near = near.max(used);
                far = far.max(near);
                prop_assert_eq!(hints.len() as usize, list.len() - used);
                prop_assert!(hints.runs.len() <= HINT_RUNS_MAX);
            }
        }

        /// As long as the program computes, a page asked for just in time is there when it is used.
        #[test]
        fn just_in_time_is_in_time(fetch in 0u64..100_000, compute in 1u64..10_000) {
            let distance = just_in_time(Duration::from_nanos(fetch), Duration::from_nanos(compute));
            prop_assert!(distance * compute >= fetch);
            prop_assert!((distance - JUST_IN_TIME_SLACK) * compute < fetch + compute);
        }
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut hints = Hints::default();
        let run = |at| Run::new(page(at * 10), 2);
        (0..HINT_RUNS_MAX as u64).for_each(|at| hints.push(run(at)).unwrap());
        assert_eq!(hints.push(run(9999)), Err(Full));
        assert!(hints.handle_use(page(1)));
        assert_eq!(hints.push(run(9999)), Ok(()));
    }

    #[test]
    fn a_hint_displaces_only_what_is_used_later() {
        assert!(is_worth(Age(10), Age(11)));
        assert!(!is_worth(Age(10), Age(10)));
        assert!(is_worth(Age(1 << 40), Age::OLDEST));
    }

    #[test]
    fn pages_beyond_the_last_index_are_not_hinted_at() {
        let mut hints = Hints::default();
        hints.push(Run::new(page(u64::MAX), 2)).unwrap();
        hints.push(Run { stride: 0, ..Run::new(page(5), 2) }).unwrap();
        assert!(hints.is_empty());
        hints.push(Run::one(page(u64::MAX))).unwrap();
        assert_eq!(hints.poll_near(5), Some(page(u64::MAX)));
    }

    #[test]
    fn a_run_goes_from_one_page_to_another() {
        let indices =
            |run: Run| (0..u64::from(run.pages)).map(|at| run.page(at).index).collect::<Vec<_>>();
        assert_eq!(indices(Run::between(page(3), 11, 4)), [3, 7, 11]);
        assert_eq!(indices(Run::between(page(3), 12, 4)), [3, 7, 11]);
        assert_eq!(indices(Run::between(page(9), 4, -3)), [9, 6]);
        assert_eq!(indices(Run::between(page(9), 9, 5)), [9]);
        assert_eq!((Run::between(page(9), 4, 3).pages, Run::between(page(9), 4, 0).pages), (0, 0));
        let run = Run::between(page(9), 0, -3);
        assert_eq!(
            [9, 6, 3, 0, 4, 12].map(|index| run.position(page(index))),
            [Some(0), Some(1), Some(2), Some(3), None, None]
        );
    }
}
