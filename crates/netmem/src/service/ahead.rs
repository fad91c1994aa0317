//! Prefetches that are due: by plans of programs, by trends of faults, and how soon each is needed. A table without
//! I/O; [`prefetch`](super::prefetch) does what it says.
//!
//! ```text
//!   Plan ──► Hints ──┬─ near: to this node's memory, just in time ──┐
//!                    └─ far: to an idle node's, as early as it may  ├──► batches of an extent's pages
//!   faults ─► Trend ──► window of 2 to 16 ─────────────────────────┘
//! ```

use crate::ages::Age;
use crate::hints::{Full, Hints, Run, just_in_time};
use crate::limits::*;
use crate::page::{PageId, SpaceId, Version};
use crate::trend::{Prefetch, Trend};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use std::time::Duration;
use wire::{NodeId, Time};

/// How a program came to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was in the node's memory, and not for the first time.
    Here,
    /// It had been prefetched, and this is its first use; or it was on its way.
    Early,
    /// It had to be fetched.
    Fault,
}

/// Pages of one extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The extent's first page.
    pub first: PageId,
    /// Bit n is the n-th page from there on.
    pub wanted: u16,
    /// The oldest content of each that will do.
    pub at_least: Version,
    /// Bytes of each.
    pub bytes: u32,
    /// When the last of them is expected to be used, from now.
    pub time_to_use: Age,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Bring these pages here.
    Near(Batch),
    /// Have this node read them, for the plan of this number.
    Far(NodeId, usize, Batch),
}

/// Destination of pages that are needed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Into this node's own memory, which has frames to spare.
    Here,
    /// Into this one's.
    Node(NodeId),
}

/// How long something takes, a new measurement counting an eighth (the smoothing of RFC 6298's SRTT).
#[derive(Clone, Copy, Debug)]
struct Smooth(Option<Duration>);

impl Smooth {
    fn get(self) -> Duration {
        self.0.unwrap_or(PACE)
    }

    fn add(&mut self, took: Duration) {
        self.0 = Some(self.0.map_or(took, |before| (before * 7 + took) / 8));
    }
}

/// How fast a program goes through its pages.
#[derive(Clone, Copy, Debug)]
struct Pace {
    last: Option<Time>,
    per_page: Smooth,
}

impl Pace {
    fn new() -> Pace {
        Pace { last: None, per_page: Smooth(None) }
    }

    fn advance(&mut self, now: Time, pages: u64) {
        let since = self.last.replace(now).map(|last| now.since(last));
        if let Some(span) = since {
            self.per_page.add(span / u32::try_from(pages.max(1)).unwrap_or(u32::MAX));
        }
    }

    fn time_to(self, pages: u64) -> Age {
        let nanos = self.per_page.get().as_nanos().saturating_mul(pages.into());
        Age(u64::try_from(nanos.div_ceil(1000)).unwrap_or(u64::MAX))
    }
}

/// A program's plan.
#[derive(Debug)]
struct Planned {
    hints: Hints,
    at_least: Version,
    bytes: u32,
    pace: Pace,
    /// Position from which on idle nodes are asked again.
    far_from: u64,
}

/// The faults of one space.
#[derive(Debug)]
struct Watched {
    space: SpaceId,
    trend: Trend,
    pace: Pace,
}

/// The table.
#[derive(Debug)]
pub struct Ahead {
    trends: bool,
    plans: Vec<Option<Planned>>,
    /// The plan whose turn it is.
    turn: usize,
    watched: Vec<Watched>,
    orders: VecDeque<Batch>,
    /// How long a batch takes to arrive.
    fetch: Smooth,
    /// Extents that other nodes are just reading for this one.
    early: ArrayVec<(PageId, u16), AHEAD_TASKS>,
    /// Something waits until those who wait for pages need less.
    pub held_up: bool,
}

impl Ahead {
    /// Nothing is to be done. Takes its memory now. `trends`: whether faults lead to anything.
    pub fn new(trends: bool) -> Ahead {
        Ahead {
            trends,
            plans: Vec::with_capacity(PLANS_MAX),
            turn: 0,
            watched: Vec::with_capacity(TRENDS_MAX),
            orders: VecDeque::with_capacity(ORDERS_MAX),
            fetch: Smooth(None),
            early: ArrayVec::new(),
            held_up: false,
        }
    }

    /// A program will say what it uses. None when too many do.
    pub fn open(&mut self, at_least: Version, bytes: u32) -> Option<usize> {
        let (hints, pace) = (Hints::default(), Pace::new());
        let plan = Some(Planned { hints, at_least, bytes, pace, far_from: 0 });
        if let Some(number) = self.plans.iter().position(Option::is_none) {
            self.plans[number] = plan;
            return Some(number);
        }
        let number = self.plans.len();
        (number < PLANS_MAX).then(|| self.plans.push(plan))?;
        Some(number)
    }

    /// It says no more, and takes back what it said.
    pub fn close(&mut self, number: usize) {
        let open = self.plans[number].take();
        assert!(open.is_some(), "a plan is closed once");
    }

    /// It takes back what it said.
    pub fn clear(&mut self, number: usize) {
        let plan = self.plans[number].as_mut().expect("a plan that is open");
        plan.hints.clear();
    }

    /// Appends the pages that it will use after all that it said before.
    pub fn add(&mut self, number: usize, run: Run) -> Result<(), Full> {
        self.plans[number].as_mut().expect("a plan that is open").hints.push(run)
    }

    /// Pages of a plan that are not used yet.
    pub fn left(&self, number: usize) -> u64 {
        self.plans[number].as_ref().map_or(0, |plan| plan.hints.len())
    }

    /// These pages are to be fetched soon.
    pub fn order(&mut self, space: SpaceId, prefetch: Prefetch, bytes: u32, time_to_use: Age) {
        let mut batch: Option<Batch> = None;
        for index in prefetch.indices().take(NEAR_MAX as usize) {
            let page = PageId { space, index };
            let grown = batch.as_mut().is_some_and(|batch| batch.add(page));
            if !grown {
                batch.into_iter().for_each(|batch| self.push(batch));
                batch = Some(Batch::of(page, Version(0), bytes, time_to_use));
            }
        }
        batch.into_iter().for_each(|batch| self.push(batch));
    }

    fn push(&mut self, batch: Batch) {
        batch.check();
        if self.orders.len() == ORDERS_MAX {
            self.orders.pop_front();
        }
        self.orders.push_back(batch);
        assert!(self.orders.len() <= ORDERS_MAX);
    }

    /// A program has come to a page of `bytes` bytes. Says whether something may be due for that.
    pub fn handle_use(&mut self, now: Time, id: PageId, bytes: u32, seen: Seen) -> bool {
        let mut hinted = false;
        for plan in self.plans.iter_mut().flatten() {
            hinted |= plan.handle_use(now, id);
        }
        if hinted || seen == Seen::Here || !self.trends {
            return hinted;
        }
        let watched = self.watch(id.space);
        watched.pace.advance(now, 1);
        let due = match seen {
            Seen::Early => watched.trend.handle_used(id.index),
            _ => watched.trend.handle_fault(id.index),
        };
        let Some(prefetch) = due else { return false };
        let time_to_use = watched.pace.time_to(prefetch.pages.into());
        self.order(id.space, prefetch, bytes, time_to_use);
        true
    }

    /// The trend of a space; the one that is longest without a fault makes way for a new one.
    fn watch(&mut self, space: SpaceId) -> &mut Watched {
        let known = self.watched.iter().position(|watched| watched.space == space);
        let new = || Watched { space, trend: Trend::default(), pace: Pace::new() };
        let at = known.unwrap_or_else(|| {
            if self.watched.len() < TRENDS_MAX {
                self.watched.push(new());
                return self.watched.len() - 1;
            }
            let oldest = (0..TRENDS_MAX).min_by_key(|at| self.watched[*at].pace.last);
            let at = oldest.expect("there are some");
            self.watched[at] = new();
            at
        });
        &mut self.watched[at]
    }

    /// The next thing to do: windows of trends, then what is needed just in time, then what is needed later. `room` is
    /// the number of pages that may wait in this node's memory, and `place` says where a page goes that is used in so
    /// long.
    pub fn next(
        &mut self,
        room: u32,
        mut place: impl FnMut(SpaceId, Age) -> Option<Target>,
    ) -> Option<Work> {
        if let Some(batch) = self.orders.pop_front() {
            return Some(Work::Near(batch));
        }
        let (plans, turn, fetch) = (self.plans.len(), self.turn, self.fetch.get());
        let order = (0..plans).map(|at| (turn + at) % plans.max(1));
        for number in order.clone() {
            let plan = self.plans[number].as_mut();
            if let Some(batch) = plan.and_then(|plan| plan.next_near(fetch, room)) {
                self.turn = number + 1;
                return Some(Work::Near(batch));
            }
        }
        for number in order {
            let plan = self.plans[number].as_mut();
            let Some((place, batch)) = plan.and_then(|plan| plan.next_far(&mut place)) else {
                continue;
            };
            self.turn = number + 1;
            return Some(match place {
                Target::Here => Work::Near(batch),
                Target::Node(node) => Work::Far(node, number, batch),
            });
        }
        None
    }

    /// A batch took so long to arrive.
    pub fn handle_fetched(&mut self, took: Duration) {
        self.fetch.add(took);
    }

    /// An idle node that was asked for a plan took nothing: not again at once.
    pub fn handle_refused(&mut self, number: usize) {
        let plan = self.plans.get_mut(number).and_then(Option::as_mut);
        plan.into_iter().for_each(Planned::pause);
    }

    /// Another node begins to read pages for this one.
    pub fn begin_early(&mut self, batch: &Batch) {
        batch.check();
        self.early.push((batch.first, batch.wanted));
    }

    /// It has read some. Answers with those that have not been changed meanwhile.
    pub fn end_early(&mut self, batch: &Batch) -> u16 {
        let at = self.early.iter().position(|(first, _)| *first == batch.first);
        at.map_or(0, |at| self.early.swap_remove(at).1)
    }

    /// A page is not any more what is being read elsewhere.
    pub fn cancel(&mut self, changed: impl Fn(PageId) -> bool) {
        for (first, wanted) in &mut self.early {
            let same = |at: &u64| changed(PageId { index: first.index + at, ..*first });
            let gone = (0..EXTENT_PAGES).filter(same).fold(0, |bits, at| bits | 1 << at);
            *wanted &= !gone;
        }
    }
}

impl Planned {
    fn handle_use(&mut self, now: Time, id: PageId) -> bool {
        let before = self.hints.used();
        let hinted = self.hints.handle_use(id);
        if hinted {
            self.pace.advance(now, self.hints.used() - before);
        }
        hinted
    }

    fn pause(&mut self) {
        self.far_from = self.hints.used() + FAR_PAUSE;
    }

    /// The pages that must be fetched now to be there in time, and some more, so that batches are long.
    fn next_near(&mut self, fetch: Duration, room: u32) -> Option<Batch> {
        let in_time = just_in_time(fetch, self.pace.per_page.get());
        let distance = in_time.saturating_add(WINDOW_MAX.into()).min(NEAR_MAX);
        let low = in_time.min(NEAR_MAX - u64::from(WINDOW_MAX));
        if self.hints.near() > low || room == 0 {
            return None;
        }
        let first = self.hints.poll_near(distance)?;
        let mut batch = self.begin(first);
        for _ in 1..room.min(WINDOW_MAX) {
            let next = self.hints.peek_near(distance);
            if !next.is_some_and(|page| batch.add(page)) {
                break;
            }
            self.hints.poll_near(distance);
        }
        batch.time_to_use = self.pace.time_to(self.hints.near());
        Some(batch)
    }

    /// The pages that are needed later, where a node has room for them.
    fn next_far(
        &mut self,
        mut place: impl FnMut(SpaceId, Age) -> Option<Target>,
    ) -> Option<(Target, Batch)> {
        if self.hints.used() < self.far_from {
            return None;
        }
        let (first, steps) = self.hints.peek_far(FAR_MAX)?;
        let Some(place) = place(first.space, self.pace.time_to(steps)) else {
            self.pause();
            return None;
        };
        let (mut batch, mut last) = (self.begin(first), steps);
        while let Some((page, steps)) = self.hints.peek_far(FAR_MAX) {
            if page != first && !batch.add(page) {
                break;
            }
            (_, last) = (self.hints.poll_far(FAR_MAX), steps);
        }
        batch.time_to_use = self.pace.time_to(last + 1);
        Some((place, batch))
    }

    fn begin(&self, page: PageId) -> Batch {
        Batch::of(page, self.at_least, self.bytes, Age::default())
    }
}

impl Batch {
    fn of(page: PageId, at_least: Version, bytes: u32, time_to_use: Age) -> Batch {
        let within = page.index % EXTENT_PAGES;
        let first = PageId { index: page.index - within, ..page };
        Batch { first, wanted: 1 << within, at_least, bytes, time_to_use }
    }

    /// It begins where an extent does, and wants something.
    fn check(&self) {
        assert_eq!(self.first.index % EXTENT_PAGES, 0, "a batch is of one extent");
        assert_ne!(self.wanted, 0, "a batch wants a page");
    }

    /// Adds a page of the same extent. Says whether it is one.
    fn add(&mut self, page: PageId) -> bool {
        let at = page.index.wrapping_sub(self.first.index);
        let is_here = page.space == self.first.space && at < EXTENT_PAGES;
        self.wanted |= if is_here { 1 << at } else { 0 };
        is_here
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const MS: Duration = Duration::from_millis(1);

    fn page(index: u64) -> PageId {
        PageId { space: SpaceId(1), index }
    }

    fn pages(batch: &Batch) -> impl Iterator<Item = u64> + '_ {
        let bits = (0..EXTENT_PAGES).filter(|at| batch.wanted & 1 << at != 0);
        bits.map(|at| batch.first.index + at)
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + MS * ms as u32
    }

    /// All work that is due.
    fn drain(ahead: &mut Ahead, room: u32, place: Option<Target>) -> (Vec<u64>, Vec<u64>) {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        while let Some(work) = ahead.next(room, |_, _| place) {
            match work {
                Work::Near(batch) => near.extend(pages(&batch)),
                Work::Far(_, _, batch) => far.extend(pages(&batch)),
            }
        }
        (near, far)
    }

    #[test]
    fn what_is_soon_comes_here_and_what_is_later_elsewhere() {
        let mut ahead = Ahead::new(true);
        let plan = ahead.open(Version(0), 4096).unwrap();
        ahead.add(plan, Run::new(page(100), 1000)).unwrap();
        let (near, far) = drain(&mut ahead, 64, Some(Target::Node(NodeId(2))));
        assert_eq!(
            near,
            (100..112).collect::<Vec<_>>(),
            "one extent: a fetch is as long as a page"
        );
        assert_eq!(far, (112..100 + FAR_MAX).collect::<Vec<_>>());
        assert!(ahead.handle_use(at(1), page(110), 4096, Seen::Here));
        let (near, far) = drain(&mut ahead, 64, Some(Target::Node(NodeId(2))));
        assert_eq!(near, (112..128).collect::<Vec<_>>(), "one page is left of the first");
        assert_eq!(far, (100 + FAR_MAX..111 + FAR_MAX).collect::<Vec<_>>());
    }

    #[test]
    fn where_nobody_is_idle_it_is_asked_again_later() {
        let mut ahead = Ahead::new(true);
        let plan = ahead.open(Version(0), 4096).unwrap();
        ahead.add(plan, Run::new(page(0), 1000)).unwrap();
        assert!(drain(&mut ahead, 64, None).1.is_empty());
        ahead.handle_use(at(1), page(0), 4096, Seen::Early);
        assert!(drain(&mut ahead, 64, Some(Target::Node(NodeId(2)))).1.is_empty());
        ahead.handle_use(at(2), page(FAR_PAUSE), 4096, Seen::Early);
        assert!(!drain(&mut ahead, 64, Some(Target::Node(NodeId(2)))).1.is_empty());
    }

    #[test]
    fn a_fast_program_is_further_ahead() {
        let far = |fetch: Duration| {
            let mut ahead = Ahead::new(true);
            let plan = ahead.open(Version(0), 4096).unwrap();
            ahead.add(plan, Run::new(page(0), 1000)).unwrap();
            ahead.handle_fetched(fetch);
            drain(&mut ahead, 64, None).0.len() as u64
        };
        assert_eq!([far(MS), far(MS * 20), far(MS * 1000)], [16, 32, NEAR_MAX]);
    }

    #[test]
    fn pages_that_change_are_not_what_was_read_elsewhere() {
        let mut ahead = Ahead::new(true);
        let batch = Batch { wanted: 0b1011, ..Batch::of(page(32), Version(0), 4096, Age(0)) };
        ahead.begin_early(&batch);
        ahead.cancel(|id| id == page(33));
        assert_eq!((ahead.end_early(&batch), ahead.end_early(&batch)), (0b1001, 0));
    }

    #[test]
    fn there_are_limits() {
        let mut ahead = Ahead::new(true);
        let plans: Vec<_> = (0..PLANS_MAX).map(|_| ahead.open(Version(0), 1).unwrap()).collect();
        assert_eq!(ahead.open(Version(0), 1), None);
        ahead.close(plans[3]);
        assert_eq!(ahead.open(Version(0), 1), Some(plans[3]));
        for space in 0..1000 {
            ahead.handle_use(at(space), PageId { space: SpaceId(space), index: 1 }, 1, Seen::Fault);
        }
        let prefetch = Prefetch { first: 0, stride: 100, pages: u32::MAX };
        ahead.order(SpaceId(1), prefetch, 4096, Age(0));
        ahead.order(SpaceId(1), prefetch, 4096, Age(0));
        assert_eq!((ahead.watched.len(), ahead.orders.len()), (TRENDS_MAX, ORDERS_MAX));
    }

    proptest! {
        /// Any hints and uses: only hinted pages are brought here, none twice while nothing is used, and no more than
        /// the limits.
        #[test]
        fn only_what_was_said_is_brought(
            runs in prop::collection::vec((1u64 << 20..1 << 21, 1u32..80, 1i64..40), 1..6),
            uses in prop::collection::vec(0usize..400, 0..40),
            room in 1u32..70,
        ) {
            let mut ahead = Ahead::new(true);
            let plan = ahead.open(Version(3), 4096).unwrap();
            let mut said = Vec::new();
            for (first, pages, stride) in runs {
                ahead.add(plan, Run { first: page(first), pages, stride }).unwrap();
                said.extend((0..u64::from(pages)).map(|at| first + at * stride as u64));
            }
            let all: BTreeSet<u64> = said.iter().copied().collect();
            let mut brought = 0;
            for (step, used) in uses.iter().enumerate() {
                if let Some(index) = said.get(*used) {
                    ahead.handle_use(at(step as u64), page(*index), 4096, Seen::Here);
                }
                let (near, far) = drain(&mut ahead, room, Some(Target::Node(NodeId(9))));
                prop_assert!(near.iter().chain(&far).all(|index| all.contains(index)));
                brought += near.len() as u64;
                let passed = said.len() as u64 - ahead.left(plan);
                prop_assert!(brought <= NEAR_MAX + passed, "{brought}, {passed} used");
            }
        }
    }
}
