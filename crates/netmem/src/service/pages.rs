//! The pages of one node: those in its frames, those on their way to other nodes and those that are being fetched, the
//! right to write to shared ones, and what is in the middle of something when its space or its incarnation ends.
//!
//! A plain struct: a request asks it once where a page is, and whether what is here may be believed. `doubtful` says
//! that other nodes may take this one for dead: then what is here of a shared page may be older than what another node
//! has written meanwhile.
//!
//! Invariants: a page is in a frame or leaving, and what is fetched is neither, or is not kept; what a busy page's
//! space or incarnation leaves behind is forgotten as soon as it is busy no more.

use super::Service;
use super::ahead::Seen;
use super::answer::Given;
use super::counters::Source;
use super::faults::{Entered, FaultNo, Faults};
use super::get::{GetError, Got};
use super::incarnation::Remains;
use super::leave::{Leaves, Leaving};
use super::store::Store;
use super::writing::Writing;
use crate::directory::Role as HolderRole;
use crate::memory::{Durability, FrameNo, Memory, Page, Role};
use crate::page::{PageId, SpaceId, Version, Wanted};
use crate::protocol::{Get, Record};
use members::View;
use std::cell::{Ref, RefMut};
use std::collections::BTreeSet;
use wire::{NodeId, Time};

/// A page that is here.
#[derive(Debug)]
pub enum Here {
    /// In a frame, and what its use says of the next ones.
    Kept(Got, Seen),
    /// On its way to another node, which may keep its copy.
    Leaving(Leaves),
}

/// The next step of a request for a page.
#[derive(Debug)]
pub enum Begun {
    /// Nothing more: the page is here.
    Here(Here),
    /// Fetch it.
    First(FaultNo),
    /// Wait for another request's fetch.
    Behind(FaultNo),
    /// Nothing: too many fetches are in flight.
    Full,
}

/// One node's.
#[derive(Debug)]
pub struct Pages {
    store: Store,
    leaving: Leaving,
    fetches: Faults<Result<Got, GetError>>,
    /// Pages of shared spaces that this node may write to.
    writing: Writing,
    /// Remains of an incarnation that is over.
    remains: Remains,
    /// Mirrors that are being migrated: no new version may take their places meanwhile.
    handed_on: BTreeSet<PageId>,
    /// Spaces that were freed while pages of them were in the middle of something.
    unfinished: Vec<SpaceId>,
}

impl Pages {
    /// With these frames, all of them free.
    pub fn new(store: Store) -> Pages {
        Pages {
            store,
            leaving: Leaving::default(),
            fetches: Faults::new(),
            writing: Writing::default(),
            remains: Remains::default(),
            handed_on: BTreeSet::new(),
            unfinished: Vec::new(),
        }
    }

    /// The version of a page in the frames.
    pub fn version(&self, id: PageId) -> Option<Version> {
        self.store.find(id).map(|(_, page, _)| page.version)
    }

    /// Whether a page is neither here nor just leaving.
    pub fn is_absent(&self, id: PageId) -> bool {
        let here = self.store.memory().find(id).is_some();
        !here && self.leaving.find(id, Version(0)).is_none()
    }

    /// Whether what is here of a page may be older than what another node has written meanwhile.
    pub fn doubts(&self, id: PageId, doubtful: bool) -> bool {
        id.space.owner().is_none() && (doubtful || self.remains.is_busy(id))
    }

    /// Whether this node may write to a page without asking anybody.
    pub fn may_write(&self, id: PageId) -> bool {
        self.writing.may_write(id) && !self.remains.is_busy(id)
    }

    /// A page in the frames that is new enough, of the right length and to be believed. A mirror of a shared page may
    /// be older than what its writer has: it counts only when the directory `trusts` it.
    fn fitting(&self, wanted: Wanted, trusts: bool, doubtful: bool) -> Option<FrameNo> {
        let (frame, page, stored) = self.store.find(wanted.id)?;
        let old = page.version < wanted.at_least;
        let untrusted = !trusts && self.store.is_shared_mirror(frame);
        let fits = stored.data.len() == wanted.bytes as usize;
        (fits && !old && !untrusted && !self.doubts(wanted.id, doubtful)).then_some(frame)
    }

    /// A request for a page begins.
    pub fn handle_request(&mut self, now: Time, wanted: Wanted, doubtful: bool) -> Begun {
        if let Some(here) = self.handle_use(now, wanted, false, doubtful) {
            return Begun::Here(here);
        }
        match self.fetches.enter(wanted) {
            Entered::First(number) => Begun::First(number),
            Entered::Behind(number) => Begun::Behind(number),
            Entered::Full => Begun::Full,
        }
    }

    /// The node's own program uses a page, if it is here.
    pub fn handle_use(
        &mut self,
        now: Time,
        wanted: Wanted,
        trusts: bool,
        doubtful: bool,
    ) -> Option<Here> {
        let here = self.version(wanted.id).is_some_and(|version| version >= wanted.at_least);
        if !here {
            return self.leaving.take_back(&wanted).map(Here::Leaving);
        }
        let frame = self.fitting(wanted, trusts, doubtful)?;
        let version = self.store.memory().page(frame)?.version;
        let data = self.store.stored(frame).data.clone();
        let first = self.store.memory().role(frame) == Role::Ahead;
        self.store.memory_mut().handle_use(now, frame);
        let seen = if first { Seen::Early } else { Seen::Here };
        Some(Here::Kept(Got { version, data, source: Source::Local }, seen))
    }

    /// Another node asks for a page that is in the frames or leaving them; `note` says what kind of use that is.
    pub fn handle_get(
        &mut self,
        now: Time,
        get: &Get,
        trusts: bool,
        doubtful: bool,
        note: impl FnOnce(&mut Memory, Time, FrameNo),
    ) -> Option<Given> {
        let here = self.version(get.id).is_some_and(|version| version >= get.at_least);
        if !here {
            let leaves = self.leaving.find(get.id, get.at_least)?;
            let fits = leaves.data.len() == get.bytes as usize;
            return fits.then(|| Given::leaving(leaves.stamp(), leaves.data.clone()));
        }
        let wanted = Wanted { id: get.id, at_least: get.at_least, bytes: get.bytes };
        let frame = self.fitting(wanted, trusts, doubtful)?;
        let (page, stored) = (*self.store.memory().page(frame)?, self.store.stored(frame));
        let clean = page.durability == Durability::Clean;
        let given = Given::here(stored.stamp(page.id, page.version), stored.data.clone(), clean);
        note(self.store.memory_mut(), now, frame);
        Some(given)
    }

    /// The directory says that a copy is worth nothing. A page that this node itself is to write stays, and a mirror
    /// when that was said of the clean copy of the same version that was here before. Not while another task is at the
    /// page: says whether what was meant is gone.
    pub fn handle_drop(&mut self, record: &Record) -> bool {
        self.leaving.forget(|id| id == record.id);
        let Some(frame) = self.store.memory().find(record.id) else { return true };
        let mirror = self.store.memory().role(frame) == Role::Mirror;
        if !mirror && self.writing.has(record.id) {
            return true;
        }
        let older_only = mirror && record.holder.role == HolderRole::Clean;
        let Version(version) = record.version;
        let newer = Version(version.saturating_add(u64::from(!older_only)));
        self.store.drop_older(frame, newer)
            || self.store.memory().page(frame).is_none_or(|page| page.version >= newer)
    }

    /// Drops this node's own copy of a page. Not while another task is at it: it would be read here after the next
    /// writer's first word.
    pub fn gives_up(&mut self, id: PageId) -> bool {
        self.leaving.forget(|leaves| leaves == id);
        let found = self.store.memory().find(id);
        let own = found.filter(|frame| self.store.memory().role(*frame) != Role::Mirror);
        own.is_none_or(|frame| self.store.take(frame).is_ok())
    }

    /// Nothing of a space exists any more.
    pub fn free_space(&mut self, space: SpaceId) {
        self.leaving.forget(|id| id.space == space);
        self.writing.retain(|id| id.space != space);
        if self.store.free_space(space) > 0 {
            self.unfinished.push(space);
        }
    }

    /// Nothing of the private spaces of a node's earlier incarnation exists any more.
    pub fn free_owner(&mut self, owner: NodeId) {
        let unfinished = self.store.free_owner(owner);
        self.unfinished.extend(unfinished);
    }

    /// Forgets what was in the middle of something when its space was freed, and is not any more.
    pub fn finish_freeing(&mut self) {
        let Pages { store, unfinished, .. } = self;
        unfinished.retain(|space| store.free_space(*space) > 0);
    }

    /// Copies of shared pages that are on their way here or elsewhere were to be had in the view before.
    pub fn handle_view(&mut self) {
        let common = |id: PageId| id.space.owner().is_none() && !id.space.is_guest();
        self.fetches.cancel(common);
        self.leaving.forget(common);
    }

    /// This node's incarnation is over. It keeps what only it can have written and has still: the pages of its private
    /// spaces in its own frames, and guests' pages if `guests`. `next` is the view that said so.
    pub fn handle_end(&mut self, me: NodeId, next: &View, guests: bool) {
        self.leaving.forget(|_| true);
        self.writing.retain(|_| false);
        let pages = self.store.memory().pages().map(|(frame, role, page)| (frame, role, *page));
        let pages: Vec<(FrameNo, Role, Page)> = pages.collect();
        for (frame, role, page) in pages {
            let (own, space) = (role.is_own(), page.id.space);
            if own && space.owner() == Some(me) || guests && space.is_guest() {
                continue;
            }
            if own && !self.outlives(frame, &page, next) {
                self.remains.fail(page.id);
            }
            if !self.store.drop_older(frame, Version(page.version.0 + 1)) {
                self.store.stored_mut(frame).former = true;
                self.remains.handle_busy(page.id);
            }
        }
    }

    /// Whether a page is there without this node: it is on stable storage, or the next view has one of its mirrors.
    fn outlives(&self, frame: FrameNo, page: &Page, next: &View) -> bool {
        let mut mirrors = self.store.stored(frame).mirrors.iter();
        let stored = page.durability == Durability::Clean;
        page.is_durable()
            && (stored || mirrors.any(|(node, incarnation)| next.has(*node, *incarnation)))
    }

    /// Forgets pages of an earlier incarnation that were in the middle of something. Pages that have come in their
    /// place since are of this one, whichever version it is.
    pub fn forget_remains(&mut self) {
        let Pages { store, remains, .. } = self;
        remains.retain_busy(|id| {
            let found = store.find(*id).filter(|(.., stored)| stored.former);
            let found = found.map(|(frame, page, _)| (frame, page.version.0));
            found.is_some_and(|(frame, version)| !store.drop_older(frame, Version(version + 1)))
        });
    }

    /// Whether what this node wrote of a page last went with an earlier incarnation.
    pub fn has_failed(&self, id: PageId) -> bool {
        let written = self.store.find(id).is_some_and(|(.., stored)| stored.written);
        self.remains.has_failed(id, written)
    }

    /// The same of any page of a space.
    pub fn has_failed_in(&self, space: SpaceId) -> bool {
        self.remains.has_failed_in(space)
    }

    /// A newer version of a page is about to be written.
    pub fn handle_write(&mut self, id: PageId) {
        self.remains.handle_written(id);
    }

    /// Whether a mirror of this page is just leaving for good.
    pub fn is_handed_on(&self, id: PageId) -> bool {
        self.handed_on.contains(&id)
    }

    /// Marks a mirror as being migrated, or not any more.
    pub fn set_handed_on(&mut self, id: PageId, is: bool) {
        match is {
            true => drop(self.handed_on.insert(id)),
            false => drop(self.handed_on.remove(&id)),
        }
    }
}

impl Service {
    /// The frames.
    pub(super) fn store(&self) -> Ref<'_, Store> {
        Ref::map(self.0.pages.borrow(), |pages| &pages.store)
    }

    /// The frames, to change them.
    pub(super) fn store_mut(&self) -> RefMut<'_, Store> {
        RefMut::map(self.0.pages.borrow_mut(), |pages| &mut pages.store)
    }

    /// Pages that have left the frames and not arrived elsewhere.
    pub(super) fn leaving(&self) -> RefMut<'_, Leaving> {
        RefMut::map(self.0.pages.borrow_mut(), |pages| &mut pages.leaving)
    }

    /// Fetches in flight.
    pub(super) fn fetches(&self) -> RefMut<'_, Faults<Result<Got, GetError>>> {
        RefMut::map(self.0.pages.borrow_mut(), |pages| &mut pages.fetches)
    }

    /// Pages that this node may write to.
    pub(super) fn writing(&self) -> Ref<'_, Writing> {
        Ref::map(self.0.pages.borrow(), |pages| &pages.writing)
    }

    /// The same, to change it.
    pub(super) fn writing_mut(&self) -> RefMut<'_, Writing> {
        RefMut::map(self.0.pages.borrow_mut(), |pages| &mut pages.writing)
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::Stored;
    use super::*;
    use crate::memory::{Arrival, Class, MemoryConfig, Offer};
    use crate::page::PageStamp;
    use endpoint::{Frames, HeapRegion};
    use members::Up;

    const ME: NodeId = NodeId(1);
    const NOW: Time = Time(1_000_000);
    const VERSION: Version = Version(5);

    fn pages() -> Pages {
        let config = MemoryConfig { frames: 8, local_min: 0, counts_uses: false };
        Pages::new(Store::new(config, 1 << 20))
    }

    fn shared(index: u64) -> PageId {
        PageId { space: SpaceId::shared(7), index }
    }

    fn private(index: u64) -> PageId {
        PageId { space: SpaceId::private(ME, 3), index }
    }

    fn wanted(id: PageId) -> Wanted {
        Wanted { id, at_least: VERSION, bytes: 100 }
    }

    fn stored() -> Stored {
        let data = Frames::new(HeapRegion::new(1)).copy_of(&[7; 100]).unwrap();
        let checksum = PageStamp::of(shared(0), VERSION, [&data[..]]).checksum;
        Stored { written: true, ..Stored::new(data, checksum) }
    }

    /// Writes to a page that has no other copy.
    fn write(pages: &mut Pages, id: PageId) -> FrameNo {
        let durability = Durability::Dirty { copies: 0 };
        let class = Class::Volatile;
        let arrival = Arrival { id, version: VERSION, class, durability, ..Arrival::default() };
        pages.store.install(NOW, arrival, stored()).unwrap()
    }

    fn mirror(pages: &mut Pages, id: PageId) {
        let (age, chances) = (crate::Age::NEWEST, 0);
        let offer =
            Offer { id, version: VERSION, blocks: 1, age, chances, reused: false, mirror: true };
        pages.store.accept(NOW, offer, stored()).unwrap();
    }

    fn is_here(pages: &mut Pages, id: PageId, trusts: bool, doubtful: bool) -> bool {
        pages.handle_use(NOW, wanted(id), trusts, doubtful).is_some()
    }

    #[test]
    fn a_mirror_of_a_shared_page_is_read_only_where_the_directory_trusts_it() {
        let mut pages = pages();
        mirror(&mut pages, shared(1));
        assert!(!is_here(&mut pages, shared(1), false, false));
        assert!(is_here(&mut pages, shared(1), true, false));
        assert!(!is_here(&mut pages, shared(1), true, true), "others take this node for dead");
        let get = Get::new(shared(1), VERSION, 100, NodeId(2));
        let mut give = |trusts, bytes| {
            let get = Get { bytes, ..get };
            pages.handle_get(NOW, &get, trusts, false, Memory::handle_copied).is_some()
        };
        assert!(!give(false, 100) && give(true, 100) && !give(true, 99));
    }

    #[test]
    fn private_pages_are_believed_whatever_others_take_this_node_for() {
        let mut pages = pages();
        write(&mut pages, private(1));
        write(&mut pages, shared(1));
        assert!(is_here(&mut pages, private(1), false, true));
        assert!(is_here(&mut pages, shared(1), false, false));
        assert!(!is_here(&mut pages, shared(1), false, true));
    }

    #[test]
    fn one_request_fetches_and_another_one_waits_for_it() {
        let mut pages = pages();
        let begun = pages.handle_request(NOW, wanted(shared(1)), false);
        let Begun::First(first) = begun else { panic!("{begun:?}") };
        let begun = pages.handle_request(NOW, wanted(shared(1)), false);
        assert!(matches!(begun, Begun::Behind(number) if number == first));
        write(&mut pages, shared(1));
        let begun = pages.handle_request(NOW, wanted(shared(1)), false);
        assert!(matches!(begun, Begun::Here(Here::Kept(..))), "{begun:?}");
    }

    #[test]
    fn a_busy_page_of_a_freed_space_goes_when_it_is_busy_no_more() {
        let mut pages = pages();
        let frame = write(&mut pages, shared(1));
        write(&mut pages, shared(2));
        pages.store.memory_mut().handle_sending(frame);
        pages.free_space(shared(1).space);
        assert_eq!((pages.version(shared(1)), pages.version(shared(2))), (Some(VERSION), None));
        pages.finish_freeing();
        assert_eq!(pages.version(shared(1)), Some(VERSION));
        pages.store.memory_mut().handle_sent(frame);
        pages.finish_freeing();
        assert!(pages.is_absent(shared(1)) && pages.unfinished.is_empty());
    }

    #[test]
    fn of_an_incarnation_that_is_over_private_pages_stay_and_losses_are_remembered() {
        let mut pages = pages();
        for id in [private(1), shared(1), shared(2)] {
            write(&mut pages, id);
        }
        mirror(&mut pages, shared(3));
        let busy = pages.store.memory().find(shared(2)).unwrap();
        let safe = pages.store.memory().find(shared(1)).unwrap();
        pages.store.handle_mirror(safe, VERSION, (NodeId(2), 1));
        pages.store.memory_mut().handle_sending(busy);
        let up = |node| Up { node: NodeId(node), incarnation: 1, weight: 1, machine: 0 };
        pages.handle_end(ME, &View::new(2, vec![up(2)]), true);
        let here = [private(1), shared(1), shared(2), shared(3)].map(|id| pages.version(id));
        assert_eq!(here, [Some(VERSION), None, Some(VERSION), None]);
        assert!(!pages.has_failed(shared(1)), "node 2 has a mirror");
        assert!(pages.has_failed(shared(2)) && !pages.has_failed(private(1)));
        assert!(!is_here(&mut pages, shared(2), true, false), "it is being sent");
        pages.forget_remains();
        assert!(pages.doubts(shared(2), false));
        pages.store.memory_mut().handle_sent(busy);
        pages.forget_remains();
        assert!(pages.is_absent(shared(2)) && !pages.doubts(shared(2), false));
        pages.handle_write(shared(2));
        assert!(!pages.has_failed(shared(2)));
    }

    #[test]
    fn a_clean_copy_is_dropped_and_what_this_node_writes_is_not() {
        let mut pages = pages();
        let holder = crate::directory::Holder { node: ME, incarnation: 1, role: HolderRole::Clean };
        let drop = |id| Record::new(id, VERSION, holder);
        write(&mut pages, shared(1));
        let begun = pages.writing.begin_ask(shared(1));
        pages.writing.handle_granted(shared(1), begun, VERSION);
        mirror(&mut pages, shared(2));
        assert!(pages.handle_drop(&drop(shared(1))) && pages.version(shared(1)).is_some());
        assert!(pages.handle_drop(&drop(shared(2))), "a mirror of the same version stays");
        assert!(pages.version(shared(2)).is_some());
        pages.writing.end_giving_back(shared(1), true);
        assert!(pages.handle_drop(&drop(shared(1))) && pages.version(shared(1)).is_none());
    }
}
