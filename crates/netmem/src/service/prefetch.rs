//! Prefetch (PGMS: Voelker and others, SIGMETRICS'98; trends: Leap, Al Maruf and Chowdhury, USENIX ATC'20).
//!
//! Three rules keep a hint from doing harm. **Target**: a prefetched page takes a free frame, or that of a page that
//! was last used longer ago than it is expected to be used ahead, here and in other nodes; at most one frame in
//! [`AHEAD_SHARE`] is taken so, and a page whose time passes without a use is the first to leave. **Order**: a demand
//! fetch never waits for a prefetch, but for that of the very page. **Amount**: a plan has at most [`NEAR_MAX`] pages
//! on their way here and [`FAR_MAX`] elsewhere that were not used, a trend its window.

use super::ahead::{Batch, Seen, Target, Work};
use super::events::Event;
use super::store::{Store, Stored};
use super::waiting::First;
use super::{Backing, Got, Load, Service, Source};
use crate::ages::Age;
use crate::directory::Role as HolderRole;
use crate::hints::{Full, Run};
use crate::limits::*;
use crate::memory::{Arrival, Durability};
use crate::page::{PageId, PageStamp, Version, Wanted};
use crate::placement::Leaving as Candidate;
use crate::protocol::{Early, Holding, Message, MultiReply, Put, Record, op};
use crate::trend::Prefetch;
use arrayvec::ArrayVec;
use endpoint::Frame;
use node::{Answer, Bug, Request, all};
use std::rc::Rc;
use wire::field::Field;
use wire::{Decoder, Encoder, Errno, NodeId};

/// Pages of an extent.
pub(super) const PAGES: usize = EXTENT_PAGES as usize;

/// A program's hint about pages before it uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// They will be used soon: what is not in this node's memory is fetched, from other nodes or stable storage.
    WillNeed {
        /// Bytes of each page.
        bytes: u32,
    },
    /// They will not be used soon: clean copies leave first.
    DontNeed,
}

/// [`PLANS_MAX`] programs of this node have plans already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{PLANS_MAX} plans are open on this node: close one first")]
pub struct TooManyPlans;

/// The pages that a program will use, in their order. Dropping it withdraws the hints.
pub struct Plan {
    service: Service,
    number: usize,
}

impl Plan {
    /// Appends pages that the program will use. `Full` when too many runs wait for their use: try again later. One run
    /// of adjacent pages is better than one call for each.
    pub fn add(&self, run: Run) -> Result<(), Full> {
        self.service.0.ahead.borrow_mut().add(self.number, run)?;
        self.service.count(|counters| counters.hinted += u64::from(run.pages));
        self.service.raise(Event::PrefetchDue);
        Ok(())
    }

    /// As [`add`](Plan::add), of a list: adjacent pages in it become runs. Returns the number of pages added.
    pub fn add_list(&self, pages: &[PageId]) -> usize {
        let follows = |one: &PageId, next: &PageId| {
            one.space == next.space && one.index.checked_add(1) == Some(next.index)
        };
        let mut added = 0;
        for run in pages.chunk_by(follows) {
            if self.add(Run::new(run[0], run.len() as u32)).is_err() {
                break;
            }
            added += run.len();
        }
        added
    }

    /// Takes back what was said.
    pub fn clear(&self) {
        self.service.0.ahead.borrow_mut().clear(self.number);
    }

    /// Pages that were said and neither used nor passed over.
    pub fn left(&self) -> u64 {
        self.service.0.ahead.borrow().left(self.number)
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.service.0.ahead.borrow_mut().close(self.number);
    }
}

impl Service {
    /// A program will say in which order it uses pages of `bytes` bytes, in version `at_least` or a newer one. While it
    /// uses them by [`get`](Service::get), those ahead of it are read from stable storage into the memory of idle
    /// nodes, and come to this one just in time.
    pub fn plan_use(&self, at_least: Version, bytes: u32) -> Result<Plan, TooManyPlans> {
        let number = self.0.ahead.borrow_mut().open(at_least, bytes).ok_or(TooManyPlans)?;
        Ok(Plan { service: self.clone(), number })
    }

    /// Takes a program's hint about a page. Does nothing that could delay a request.
    pub fn hint(&self, id: PageId, hint: Hint) {
        match hint {
            Hint::DontNeed => self.give_up(id),
            _ => self.hint_run(Run::one(id), hint),
        }
    }

    /// As [`hint`](Service::hint), for several pages. Of more than [`NEAR_MAX`] that will be needed the first ones are
    /// fetched: a [`plan`](Service::plan_use) goes on with the others while they are used.
    pub fn hint_run(&self, run: Run, hint: Hint) {
        match hint {
            Hint::DontNeed => {
                // of a long run, only what is here matters
                let here = |store: &Store| {
                    let pages = store.memory().pages().map(|(_, _, page)| page.id);
                    pages.filter(|id| run.has(*id)).collect::<Vec<PageId>>()
                };
                let ids = here(&self.store());
                ids.into_iter().for_each(|id| self.give_up(id));
            }
            Hint::WillNeed { bytes } => {
                let Run { first, pages, stride } = run;
                let prefetch = Prefetch { first: first.index, stride, pages };
                let soon = Age(u64::try_from(PACE.as_micros()).unwrap_or(u64::MAX));
                self.0.ahead.borrow_mut().order(first.space, prefetch, bytes, soon);
                self.count(|counters| counters.hinted += u64::from(pages));
                self.raise(Event::PrefetchDue);
            }
        }
    }

    /// A clean copy of the node's own leaves now.
    fn give_up(&self, id: PageId) {
        let mut store = self.store_mut();
        let Some(frame) = store.memory().find(id) else { return };
        let own = store.memory().role(frame).is_own();
        let held = if own { store.take(frame).ok() } else { None };
        drop(store);
        held.into_iter().for_each(|held| self.withdraw(&held));
    }

    /// A program has come to a page.
    pub(super) fn note_use(&self, wanted: Wanted, seen: Seen) {
        let now = self.cx().now();
        let due = self.0.ahead.borrow_mut().handle_use(now, wanted.id, wanted.bytes, seen);
        if due {
            self.raise(Event::PrefetchDue);
        }
    }

    /// These pages are not any more what is being fetched unasked.
    pub(super) fn note_change(&self, changed: impl Fn(PageId) -> bool) {
        self.fetches().cancel(&changed);
        self.0.ahead.borrow_mut().cancel(&changed);
    }

    /// One of the tasks that prefetch.
    pub(super) async fn prefetch(self) {
        loop {
            let due = self.0.events.wait(Event::PrefetchDue);
            match self.next_ahead() {
                Some(Work::Near(batch)) => self.bring(batch).await,
                Some(Work::Far(node, plan, batch)) => {
                    let took = self.bring_elsewhere(node, &batch).await;
                    if !took {
                        self.0.ahead.borrow_mut().handle_refused(plan);
                    }
                }
                None => due.await,
            }
        }
    }

    /// A fetch has ended: there may be room for a prefetch.
    pub(super) fn ease_ahead(&self) {
        if self.0.ahead.borrow().held_up {
            self.raise(Event::PrefetchDue);
        }
    }

    /// Whether those who wait for pages need what prefetch would take.
    pub(super) fn yields(&self) -> bool {
        let busy = self.fetches().demand() >= DEMAND_BUSY;
        busy || self.cx().frames().free_pages() < FRAMES_LEFT
    }

    fn next_ahead(&self) -> Option<Work> {
        let yields = self.yields();
        self.0.ahead.borrow_mut().held_up = yields;
        if yields {
            return None;
        }
        let (room, free) = {
            let store = self.store();
            (self.ahead_room(&store), store.free_pages())
        };
        let spare = free > 2 * WINDOW_MAX && room > WINDOW_MAX;
        let place = |space, age| match self.backing(space) {
            None => None,
            Some(_) if spare => Some(Target::Here),
            Some(_) => self.idle_node(age).map(Target::Node),
        };
        self.0.ahead.borrow_mut().next(room, place)
    }

    /// The node for a page that will be used in so long: as if it had been used so long ago.
    fn idle_node(&self, age: Age) -> Option<NodeId> {
        let chances = CHANCES;
        self.target(None, Candidate { age, reused: true, duplicate: false, chances })
    }

    /// Begins to fetch the pages of a batch that are not here and not being fetched.
    pub(super) fn open_slots(&self, batch: &Batch) -> [Option<First<'_>>; PAGES] {
        std::array::from_fn(|at| {
            let wanted = batch.page(at)?;
            let absent = self.0.pages.borrow().is_absent(wanted.id);
            let number = absent.then(|| self.fetches().enter_ahead(wanted))??;
            Some(First::new(self, number))
        })
    }

    /// A prefetched page has arrived. It is dropped when it was changed meanwhile, or when a request that waited for it
    /// was served otherwise.
    pub(super) fn arrive(
        &self,
        slot: First<'_>,
        stamp: PageStamp,
        data: Frame,
        source: Source,
        time_to_use: Age,
    ) {
        let (late, disowned) = {
            let mut faults = self.fetches();
            (faults.is_waited_for(slot.number()), faults.is_disowned(slot.number()))
        };
        if !disowned {
            let stored = Stored::new(data.clone(), stamp.checksum);
            let kept = self.keep_ahead(&stamp, stored, source, time_to_use, late);
            self.count(|counters| counters.prefetched += u64::from(kept && !late));
        }
        slot.end(Ok(Got { version: stamp.version, data, source }));
    }

    /// Keeps a page: as any other when a request waits for it by now, else as a prefetched one.
    fn keep_ahead(
        &self,
        stamp: &PageStamp,
        mut stored: Stored,
        source: Source,
        time_to_use: Age,
        late: bool,
    ) -> bool {
        let PageStamp { id, version, bytes, .. } = *stamp;
        let reused = source == Source::Peer;
        let arrival = Arrival { id, version, duplicate: reused, reused, ..Arrival::default() };
        let Some(mut arrival) = self.as_own(arrival, &mut stored, source) else { return false };
        if !late {
            let span = time_to_use.as_duration().saturating_mul(4).min(PATIENCE);
            arrival.ahead_until = Some(self.cx().now() + span + AHEAD_GRACE);
            if !self.make_room_ahead(bytes as usize, time_to_use) {
                return false;
            }
        }
        let kept = self.keep(arrival, stored);
        if kept {
            self.announce(id, version);
        }
        kept
    }

    /// Of the node's own page that others have mirrors of, the directory here says which. One that it does not know in
    /// this version has been written since, or its mirrors are too few to let it go again.
    fn as_own(&self, arrival: Arrival, stored: &mut Stored, source: Source) -> Option<Arrival> {
        let Arrival { id, version, .. } = arrival;
        if id.space.owner() != Some(self.me()) || source == Source::Backing {
            return Some(arrival);
        }
        let known = self.0.home.borrow().directory().entry(id).map(|entry| entry.version);
        known.filter(|known| *known == version)?;
        if !self.depends(id, version) {
            return Some(arrival);
        }
        let own = self.with_mirrors(arrival, stored);
        let needed = own.class.copies().unwrap_or(u8::MAX);
        matches!(own.durability, Durability::Dirty { copies } if copies >= needed).then_some(own)
    }

    /// Pages that may still be added to those that wait for their first use.
    fn ahead_room(&self, store: &Store) -> u32 {
        match self.cx().has_bug(Bug::AheadUnbounded) {
            true => u32::MAX,
            false => store.memory().ahead_room(),
        }
    }

    /// Makes room for a prefetched page, by evicting pages that are used later.
    fn make_room_ahead(&self, bytes: usize, time_to_use: Age) -> bool {
        loop {
            let mut store = self.store_mut();
            if self.ahead_room(&store) == 0 {
                let late = store.memory().poll_overdue(self.cx().now());
                let Some(held) = late.and_then(|frame| super::leave::evict(&mut store, frame))
                else {
                    return false;
                };
                drop(store);
                self.leave(held);
                continue;
            }
            if store.has_room(bytes) {
                return true;
            }
            let victim = store.memory().poll_ahead(self.cx().now(), time_to_use);
            let held = victim.and_then(|frame| super::leave::evict(&mut store, frame));
            drop(store);
            let Some(held) = held else { return false };
            self.leave(held);
        }
    }

    /// Has an idle node read what only stable storage has. Says whether it took anything.
    async fn bring_elsewhere(&self, node: NodeId, batch: &Batch) -> bool {
        let holdings = self.look_up(batch.first, PAGES as u8).await;
        let mut wanted = 0;
        for (at, _) in holdings.iter().enumerate().filter(|(_, h)| **h == Holding::Nowhere) {
            let absent =
                batch.page(at).is_some_and(|wanted| self.0.pages.borrow().is_absent(wanted.id));
            wanted |= u16::from(absent) << at;
        }
        if wanted == 0 {
            return true;
        }
        let batch = Batch { wanted, ..*batch };
        self.0.ahead.borrow_mut().begin_early(&batch);
        let reply = self.ask_early(node, &batch).await;
        let unchanged = self.0.ahead.borrow_mut().end_early(&batch);
        let Some(stamps) = reply else { return false };
        for stamp in &stamps {
            let at = stamp.id.index.wrapping_sub(batch.first.index);
            let known = stamp.id.space == batch.first.space && at < EXTENT_PAGES;
            if known && unchanged & 1 << at != 0 {
                self.handle_taken(node, stamp.id, stamp.version);
            }
        }
        self.count(|counters| counters.read_early += stamps.len() as u64);
        !stamps.is_empty()
    }

    async fn ask_early(&self, node: NodeId, batch: &Batch) -> Option<ArrayVec<PageStamp, PAGES>> {
        let Batch { first, wanted, at_least, bytes, time_to_use } = *batch;
        let incarnation = self.incarnation();
        let early = Early { first, wanted, at_least, bytes, time_to_use, incarnation };
        let load = Load { wait: ATTEMPT, ..self.load() };
        let reply = self.send(node, op::FETCH_AHEAD, &early.encode(), load).await.ok()?;
        let here = MultiReply::decode(&reply.body).ok().filter(|_| reply.status == 0)?.here;
        let mut stamps = Decoder::new(reply.trailer());
        (0..here.count_ones()).map(|_| PageStamp::take(&mut stamps).ok()).collect()
    }

    /// Reads pages from stable storage into frames that other nodes may have, so that their user finds them here.
    pub(super) async fn handle_fetch_ahead(&self, request: Request) {
        let Ok(early) = Early::decode(&request.body) else {
            return self.cx().reply(request, Answer::error(Errno::EPROTO));
        };
        let permit = self.0.permits.early_served.try_acquire(1).filter(|_| !self.yields());
        let (Some(_permit), Some(backing)) = (permit, self.backing(early.first.space)) else {
            return self.cx().reply(request, Answer::error(Errno::EAGAIN));
        };
        let source = request.source;
        let bits = (0..PAGES).filter(|at| early.wanted & 1 << at != 0);
        let hosted = all(bits.map(|at| self.host(&backing, source, &early, at))).await;
        let mut trailer = [0; PAGES * PageStamp::BYTES];
        let mut out = Encoder::new(&mut trailer);
        let mut here = 0;
        for (at, stamp) in hosted.into_iter().flatten() {
            here |= 1 << at;
            stamp.put(&mut out);
        }
        let len = out.len();
        let body = MultiReply { here }.encode();
        self.cx().reply(request, Answer { body: &body, trailer: &trailer[..len], ..Answer::DONE });
    }

    /// Keeps a page for another node: where there is a place for one that was used as long ago as this one will be used
    /// ahead. Among pages that are awaited the first one said stays.
    async fn host(
        &self,
        backing: &Rc<dyn Backing>,
        source: NodeId,
        early: &Early,
        at: usize,
    ) -> Option<(usize, PageStamp)> {
        let id = PageId { index: early.first.index.checked_add(at as u64)?, ..early.first };
        if self.oldest() <= early.time_to_use {
            return None;
        }
        let view = self.view_number();
        let read = backing.read(id, early.at_least, early.bytes).await.ok().flatten();
        let (version, data) = read.filter(|(version, data)| {
            *version >= early.at_least && data.len() == early.bytes as usize
        })?;
        let stamp = PageStamp::of(id, version, [&data[..]]);
        // older than this, not as old: of two that are used at the same time the one that is there stays
        let age = Age(early.time_to_use.0.saturating_add(1));
        let (incarnation, chances) = (early.incarnation, CHANCES);
        let put = Put { stamp, incarnation, age, chances, copies: 0, reused: true, view };
        let frame = self.accept(source, &put, data).ok()?;
        self.store_mut().memory_mut().handle_awaited(self.cx().now(), frame);
        if id.space.owner().is_none() {
            let record = self.record(id, version, HolderRole::Clean, 0);
            self.register_taken(&record, None).await.ok()?;
        }
        Some((at, stamp))
    }

    /// Copies of the node's own page elsewhere are worth nothing when it writes a new version: what only they have is
    /// on stable storage, so that they can go.
    pub(super) fn outdate_copies(&self, id: PageId) {
        if id.space.owner() != Some(self.me()) {
            return;
        }
        let holders = {
            let home = self.0.home.borrow();
            let entry = home.directory().entry(id).filter(|entry| !entry.is_hard());
            entry.map(|entry| (entry.version, entry.holders.clone()))
        };
        let Some((version, holders)) = holders else { return };
        for holder in holders {
            let record = Record::new(id, version, holder);
            self.unregister_here(&record);
            self.notice(holder.node, op::DROP, record);
        }
    }
}

impl Batch {
    /// The page at this place, if it is one of the batch.
    pub(super) fn page(&self, at: usize) -> Option<Wanted> {
        let Batch { first, wanted, at_least, bytes, .. } = *self;
        let index = first.index.checked_add(at as u64)?;
        (wanted & 1 << at != 0).then_some(Wanted { id: PageId { index, ..first }, at_least, bytes })
    }
}
