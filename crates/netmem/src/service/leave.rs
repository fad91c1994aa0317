//! Pages leave: room is made, and what is worth it goes to another node.

use super::events::Event;
use super::store::Removed;
use super::{Load, Service};
use crate::ages::Age;
use crate::directory::Role as HolderRole;
use crate::epochs::Mode;
use crate::limits::{ATTEMPT, LEAVING_BYTES, LEAVING_MAX};
use crate::memory::{Durability, Eviction, FrameNo, Page, Role};
use crate::page::{PageId, PageStamp, Version, Wanted};
use crate::placement::Leaving as Candidate;
use crate::protocol::{Get, GetReply, Message, No, Put, PutReply, op};
use crate::slots::Homes;
use endpoint::{Frame, FrameMut};
use node::{CallError, Reply};
use std::collections::VecDeque;
use std::time::Duration;
use wire::field::Field;
use wire::{Encoder, NodeId};

/// A clean page on its way to another node.
#[derive(Clone, Debug)]
pub struct Leaves {
    pub id: PageId,
    pub version: Version,
    pub data: Frame,
    pub checksum: u32,
    pub to: NodeId,
    pub candidate: Candidate,
    /// A task carries it.
    under_way: bool,
    /// It came back meanwhile.
    back: bool,
}

impl Leaves {
    pub fn stamp(&self) -> PageStamp {
        let Leaves { id, version, checksum, .. } = *self;
        PageStamp { id, version, bytes: self.data.len() as u32, checksum }
    }

    pub fn put(&self, incarnation: u64) -> Put {
        let chances = self.candidate.chances.saturating_sub(1);
        let Candidate { age, reused, .. } = self.candidate;
        Put { stamp: self.stamp(), incarnation, age, chances, copies: 0, reused, view: 0 }
    }
}

/// The fate of a page here while it was carried away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    Nothing,
    /// A program asked for it.
    CameBack,
    /// There is a newer version, or it is worth nothing any more.
    Forgotten,
}

/// Pages that have left the node's frames and not arrived elsewhere.
#[derive(Debug, Default)]
pub struct Leaving {
    pages: VecDeque<Leaves>,
    bytes: usize,
}

impl Leaving {
    /// Adds a page. Says whether there was room.
    pub fn push(&mut self, leaves: Leaves) -> bool {
        let bytes = self.bytes + leaves.data.len();
        let room = self.pages.len() < LEAVING_MAX && bytes <= LEAVING_BYTES;
        if room {
            self.pages.push_back(leaves);
            self.bytes = bytes;
        }
        room
    }

    /// Whether more than half of the room is taken.
    pub fn is_busy(&self) -> bool {
        self.pages.len() > LEAVING_MAX / 2 || self.bytes > LEAVING_BYTES / 2
    }

    /// The next page to carry away; it stays here until [`done`](Leaving::done).
    pub fn next(&mut self) -> Option<Leaves> {
        let next = self.pages.iter_mut().find(|leaves| !leaves.under_way)?;
        next.under_way = true;
        Some(next.clone())
    }

    /// The page has arrived, or will not.
    pub fn done(&mut self, id: PageId, version: Version) -> Meanwhile {
        let is_it = |l: &Leaves| l.under_way && l.id == id && l.version == version;
        let at = self.pages.iter().position(is_it);
        let Some(leaves) = at.and_then(|at| self.pages.remove(at)) else {
            return Meanwhile::Forgotten;
        };
        self.bytes -= leaves.data.len();
        if leaves.back { Meanwhile::CameBack } else { Meanwhile::Nothing }
    }

    /// A program asks for a page that is leaving.
    pub fn take_back(&mut self, wanted: &Wanted) -> Option<Leaves> {
        let fits = |l: &&mut Leaves| {
            let same = l.id == wanted.id && l.data.len() == wanted.bytes as usize;
            same && l.version >= wanted.at_least && !l.back
        };
        let found = self.pages.iter_mut().find(fits)?;
        found.back = true;
        let back = found.clone();
        self.retain(|leaves| leaves.under_way || !leaves.back);
        Some(back)
    }

    /// The bytes of a page for another node.
    pub fn find(&self, id: PageId, at_least: Version) -> Option<&Leaves> {
        self.pages.iter().find(|l| l.id == id && l.version >= at_least && !l.back)
    }

    /// Forgets all pages that `goes` selects. A task that carries one finds it forgotten.
    pub fn forget(&mut self, goes: impl Fn(PageId) -> bool) {
        self.retain(|leaves| !goes(leaves.id));
    }

    fn retain(&mut self, keeps: impl Fn(&Leaves) -> bool) {
        self.pages.retain(|leaves| keeps(leaves));
        self.bytes = self.pages.iter().map(|leaves| leaves.data.len()).sum();
    }
}

/// A page that travels along with a request. When the request is given up or not answered, it is not known whether its
/// page was taken in.
struct Along<'a> {
    service: &'a Service,
    to: NodeId,
    victim: Option<Leaves>,
}

impl Along<'_> {
    /// The request was answered.
    fn arrive(mut self) -> Option<Leaves> {
        self.victim.take()
    }
}

impl Drop for Along<'_> {
    fn drop(&mut self) {
        if let Some(victim) = self.victim.take() {
            self.service.disown(self.to, victim.id, victim.version);
            self.service.leave_for_another(self.to, victim);
        }
    }
}

impl Service {
    /// Makes room for a page of so many bytes without waiting. Where only dirty pages could leave there is none, and
    /// the cleaners are told.
    pub(super) fn make_room(&self, bytes: usize) -> bool {
        let now = self.cx().now();
        loop {
            let mut store = self.store_mut();
            if store.has_room(bytes) {
                return true;
            }
            let frame = match store.memory_mut().poll_eviction(now) {
                Some(Eviction::Staged(_)) => continue,
                Some(Eviction::Durable(frame)) => Some(frame),
                Some(Eviction::Dirty(_)) => {
                    self.raise(Event::Pressure);
                    store.memory().poll_durable(now)
                }
                None => None,
            };
            let Some(held) = frame.and_then(|frame| evict(&mut store, frame)) else { return false };
            drop(store);
            self.leave(held);
        }
    }

    /// A page has left its frame, and lost nothing by it: it goes to another node, or nowhere.
    pub(super) fn leave(&self, held: Evicted) {
        let Evicted { held, copy, unused } = held;
        self.withdraw(&held);
        let Removed { page, stored } = held;
        let candidate = self.candidate(&page, copy);
        // a prefetched page without a request is missed nowhere; a page that this node writes must not be elsewhere
        let stays = unused || self.writing().has(page.id);
        let target = if stays { None } else { self.target(None, candidate) };
        let leaves = target.map(|to| Leaves {
            id: page.id,
            version: page.version,
            data: stored.data,
            checksum: stored.checksum,
            to,
            candidate,
            under_way: false,
            back: false,
        });
        let goes = leaves.is_some_and(|leaves| self.leaving().push(leaves));
        if goes {
            self.raise(Event::PageLeaves);
        } else {
            self.count(|counters| counters.dropped += 1);
        }
    }

    fn candidate(&self, page: &Page, copy: bool) -> Candidate {
        let (age, chances) = (page.age(self.cx().now()), page.chances);
        Candidate { age, reused: page.reused, duplicate: page.duplicate || copy, chances }
    }

    /// The directory is told that this node has a clean page no more; what was a mirror both may take for one still.
    pub(super) fn withdraw(&self, held: &Removed) {
        let (Page { id, version, durability, .. }, copies) = (held.page, held.stored.copies);
        if durability != Durability::Clean || id.space.owner() == Some(self.me()) {
            return;
        }
        let homes = self.0.home.borrow().homes(id);
        let concerned = if copies > 0 { 2 } else { 1 };
        for home in homes.into_iter().flat_map(Homes::both).take(concerned) {
            self.notice(home, op::UNREGISTER, self.record(id, version, HolderRole::Clean, copies));
        }
    }

    /// The node that is offered a page.
    pub(super) fn target(&self, refused: Option<NodeId>, page: Candidate) -> Option<NodeId> {
        let epochs = self.0.epochs.borrow();
        if epochs.mode(self.cx().now()) == Mode::Local {
            return None;
        }
        let draws = [self.cx().random(), self.cx().random()];
        let target =
            self.0.config.policy.target(epochs.current(), self.me(), refused, page, draws)?;
        self.0.home.borrow().view().incarnation(target).map(|_| target)
    }

    /// One of the tasks that carry pages away.
    pub(super) async fn carry_away(self) {
        loop {
            let more = self.0.events.wait(Event::PageLeaves);
            let next = self.leaving().next();
            match next {
                Some(leaves) => self.carry(leaves).await,
                None => more.await,
            }
        }
    }

    /// Whether what leaves now may find no room among what is on its way to other nodes, and is dropped.
    pub fn is_busy(&self) -> bool {
        self.leaving().is_busy()
    }

    /// Waits until that is over, or for so long.
    pub async fn wait_for_carriers(&self, most: Duration) {
        let ease = async {
            loop {
                let carried = self.0.events.wait(Event::PageArrived);
                if !self.is_busy() {
                    return;
                }
                carried.await;
            }
        };
        let _ = self.cx().with_deadline(most, ease).await;
    }

    /// Offers a page to its target, and to one more when that refuses; then it is dropped.
    async fn carry(&self, leaves: Leaves) {
        let mut taken = self.offer(leaves.to, &leaves).await;
        if taken.is_none() {
            let other = self.target(Some(leaves.to), leaves.candidate);
            if let Some(other) = other {
                taken = self.offer(other, &leaves).await;
            }
        }
        let meanwhile = self.leaving().done(leaves.id, leaves.version);
        self.raise(Event::PageArrived);
        match (taken, meanwhile) {
            (Some(node), Meanwhile::Forgotten) => self.disown(node, leaves.id, leaves.version),
            (Some(node), _) => self.handle_taken(node, leaves.id, leaves.version),
            (None, Meanwhile::Nothing) => self.count(|counters| counters.dropped += 1),
            (None, _) => (),
        }
    }

    async fn offer(&self, to: NodeId, leaves: &Leaves) -> Option<NodeId> {
        self.count(|counters| counters.puts_sent += 1);
        let put = Put { view: self.view_number(), ..leaves.put(self.incarnation()) };
        let reply = self.put_to(to, &put, leaves.data.clone()).await;
        if reply.is_err() {
            self.disown(to, leaves.id, leaves.version);
        }
        let node = reply.ok()?.stored.ok()?;
        self.count(|counters| counters.puts_stored += 1);
        Some(node)
    }

    /// A node has a page of this node's own, or may have, and the directory here does not know it or knows better: it
    /// is told to drop it. A directory elsewhere hears of copies from who has them.
    pub(super) fn disown(&self, node: NodeId, id: PageId, version: Version) {
        let own = id.space.owner() == Some(self.me());
        if let Some(record) = self.record_at(node, id, version).filter(|_| own) {
            self.notice(node, op::DROP, record);
        }
    }

    /// Another node has a clean page that left this one. Where the page is this node's own, its directory learns that
    /// from here.
    pub(super) fn handle_taken(&self, node: NodeId, id: PageId, version: Version) {
        if id.space.owner().is_none() {
            self.0.peers.borrow_mut().handle_holder(id, node);
        }
        if id.space.owner() != Some(self.me()) {
            return;
        }
        let record = self.record_at(node, id, version);
        record.into_iter().for_each(|record| _ = self.register_here(&record));
    }

    /// Asks the holder of a clean page of this node's own to give it up; a page that must leave travels along
    /// (SOSP'95 section 3.1, cases 1 and 2), unless the page that comes takes no frame of the service.
    pub(super) async fn take_over(
        &self,
        to: NodeId,
        get: &Get,
        into: FrameMut,
        wait: Duration,
        keeps: bool,
    ) -> Result<Reply, CallError> {
        let victim = if keeps { self.victim(get) } else { None };
        let mut load = Load { once: true, into: self.cx().piece(into), wait, ..self.load() };
        let mut trailer = [0; SWAP_BYTES];
        if let Some(victim) = &victim {
            victim.put(self.incarnation()).put(&mut Encoder::new(&mut trailer));
            load.data.push(victim.data.clone());
            load.trailer = &trailer;
        }
        let along = Along { service: self, to, victim };
        let reply = self.send(to, op::TAKE, &get.encode(), load).await;
        if let Ok(reply) = &reply {
            self.handle_took(to, get, reply, along.arrive());
        }
        reply
    }

    /// The page whose frame the one that is asked for will have, if it is the node's own, clean, and worth a place.
    fn victim(&self, get: &Get) -> Option<Leaves> {
        let now = self.cx().now();
        if !self.0.config.swaps || self.0.epochs.borrow().mode(now) == Mode::Local {
            return None;
        }
        let mut store = self.store_mut();
        while !store.has_room(get.bytes as usize) {
            let frame = match store.memory_mut().poll_eviction(now)? {
                Eviction::Staged(_) => continue,
                Eviction::Durable(frame) => frame,
                Eviction::Dirty(_) => return None,
            };
            let page = *store.memory().page(frame)?;
            let own = page.id.space.owner() == Some(self.me());
            let age = page.age(now);
            let worth = age < self.0.epochs.borrow().current().min_age && !page.duplicate;
            if !own || !worth || store.is_copy(frame) {
                return None;
            }
            let Page { chances, reused, .. } = page;
            let candidate = Candidate { age, reused, duplicate: false, chances };
            let Removed { page, stored } = store.take(frame).ok()?;
            return Some(Leaves {
                id: page.id,
                version: page.version,
                data: stored.data,
                checksum: stored.checksum,
                to: NodeId(0),
                candidate,
                under_way: false,
                back: false,
            });
        }
        None
    }

    /// This node's directory knows the holder's word from now on.
    fn handle_took(&self, to: NodeId, get: &Get, reply: &Reply, victim: Option<Leaves>) {
        let answer = if reply.status == 0 { GetReply::decode(&reply.body).ok() } else { None };
        let data = match answer {
            Some(GetReply::Data(data)) => Some(data),
            _ => None,
        };
        if let Some(data) = data.filter(|data| !data.kept) {
            let record = self.record_at(to, get.id, data.stamp.version);
            record.into_iter().for_each(|record| _ = self.unregister_here(&record));
        }
        let Some(victim) = victim else { return };
        if data.is_some_and(|data| data.swapped) {
            self.count(|counters| counters.swapped += 1);
            return self.handle_taken(to, victim.id, victim.version);
        }
        self.leave_for_another(to, victim);
    }

    /// A node that was offered a page has not taken it: it goes elsewhere, as if it had left by itself.
    fn leave_for_another(&self, refused: NodeId, leaves: Leaves) {
        let to = self.target(Some(refused), leaves.candidate);
        let goes = to.is_some_and(|to| self.leaving().push(Leaves { to, ..leaves }));
        match goes {
            true => self.raise(Event::PageLeaves),
            false => self.count(|counters| counters.dropped += 1),
        }
    }

    /// Sends a page to a node that is to keep it.
    pub(super) async fn put_to(
        &self,
        to: NodeId,
        put: &Put,
        data: Frame,
    ) -> Result<PutReply, CallError> {
        let mut trailer = [0; PageStamp::BYTES];
        put.stamp.put(&mut Encoder::new(&mut trailer));
        let load = Load {
            once: true,
            data: self.cx().piece(data),
            trailer: &trailer,
            wait: ATTEMPT,
            ..self.load()
        };
        let reply = self.send(to, op::PUT, &put.encode(), load).await?;
        if reply.status != 0 {
            return Err(CallError::Overloaded);
        }
        let answer = PutReply::decode(&reply.body).map_err(|_| CallError::Fatal)?;
        self.note_answer(to, &answer);
        Ok(answer)
    }

    /// The epoch learns how a node's pages are received.
    fn note_answer(&self, to: NodeId, answer: &PutReply) {
        let taken = answer.stored.is_ok();
        if taken || answer.stored == Err(No::Room) {
            self.0.epochs.borrow_mut().handle_answer(to, taken, answer.oldest);
        }
        if let Err(no) = answer.stored {
            self.count(|counters| counters.refused.count(no));
        }
    }

    /// The frame of the oldest page that this node would take in now.
    pub(super) fn oldest(&self) -> Age {
        self.store().oldest_taken(self.cx().now())
    }
}

/// Bytes of the trailer of a [`op::TAKE`] with a page: a [`Put`], in words.
pub(super) const SWAP_BYTES: usize = 64;

/// A page that was taken out, and whether others answer for it.
pub(super) struct Evicted {
    held: Removed,
    copy: bool,
    /// It was prefetched and not used.
    unused: bool,
}

pub(super) fn evict(store: &mut super::store::Store, frame: FrameNo) -> Option<Evicted> {
    let (copy, unused) = (store.is_copy(frame), store.memory().role(frame) == Role::Ahead);
    Some(Evicted { held: store.take(frame).ok()?, copy, unused })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;
    use endpoint::{Frames, HeapRegion};

    fn leaves(index: u64, version: u64) -> Leaves {
        let data = Frames::new(HeapRegion::new(1)).copy_of(&[7; 100]).unwrap();
        Leaves {
            id: PageId { space: SpaceId(1), index },
            version: Version(version),
            data,
            checksum: 0,
            to: NodeId(2),
            candidate: Candidate { age: Age(1), reused: true, duplicate: false, chances: 2 },
            under_way: false,
            back: false,
        }
    }

    fn wanted(index: u64, at_least: u64) -> Wanted {
        let id = PageId { space: SpaceId(1), index };
        Wanted { id, at_least: Version(at_least), bytes: 100 }
    }

    #[test]
    fn a_page_that_waits_comes_back_and_is_not_sent() {
        let mut leaving = Leaving::default();
        assert!(leaving.push(leaves(1, 5)) && leaving.push(leaves(2, 5)));
        assert!(leaving.take_back(&wanted(1, 6)).is_none(), "it is too old");
        assert!(leaving.take_back(&wanted(1, 5)).is_some());
        assert!(leaving.take_back(&wanted(1, 5)).is_none(), "it came back once");
        assert_eq!(leaving.next().unwrap().id.index, 2);
        assert!(leaving.next().is_none());
    }

    #[test]
    fn a_page_under_way_comes_back_and_may_arrive_as_well() {
        let mut leaving = Leaving::default();
        leaving.push(leaves(1, 5));
        assert!(leaving.next().is_some());
        assert!(leaving.find(wanted(1, 5).id, Version(5)).is_some());
        assert!(leaving.take_back(&wanted(1, 5)).is_some());
        assert!(leaving.find(wanted(1, 5).id, Version(5)).is_none());
        let done = |leaving: &mut Leaving| leaving.done(wanted(1, 5).id, Version(5));
        assert_eq!(done(&mut leaving), Meanwhile::CameBack);
        assert!(leaving.push(leaves(1, 5)) && leaving.next().is_some());
        assert_eq!(done(&mut leaving), Meanwhile::Nothing);
        assert!(leaving.push(leaves(1, 5)) && leaving.next().is_some());
        leaving.forget(|_| true);
        assert_eq!(done(&mut leaving), Meanwhile::Forgotten);
    }

    #[test]
    fn there_is_a_limit() {
        let mut leaving = Leaving::default();
        assert!((0..LEAVING_MAX as u64).all(|index| leaving.push(leaves(index, 1))));
        assert!(!leaving.push(leaves(9999, 1)));
        leaving.forget(|id| id.index < 3);
        assert!(leaving.push(leaves(9999, 1)));
    }

    #[test]
    fn there_is_a_limit_in_bytes() {
        let mut leaving = Leaving::default();
        let data = Frames::new(HeapRegion::new(8)).copy_of(&[7; 1 << 15]).unwrap();
        let long = |index| Leaves { data: data.clone(), ..leaves(index, 1) };
        let most = (LEAVING_BYTES >> 15) as u64;
        assert!((0..most / 2).all(|index| leaving.push(long(index))) && !leaving.is_busy());
        assert!((most / 2..most).all(|index| leaving.push(long(index))) && leaving.is_busy());
        assert!(!leaving.push(long(9999)));
        assert!(leaving.next().is_some());
        leaving.done(long(0).id, Version(1));
        assert!(leaving.push(long(9999)) && !leaving.push(leaves(9998, 1)));
        leaving.forget(|_| true);
        assert!(!leaving.is_busy() && leaving.push(long(1)));
    }
}
