//! The pages of one node: its frame table, and the bytes beside it.
//!
//! Invariant: a frame of the table that is not free has bytes here, which fit the stamp that is made of the table's id
//! and version and of the length and checksum here.

use crate::ages::{Age, Histogram};
use crate::epoch::Digest;
use crate::limits::PAGE_BYTES_MAX;
use crate::memory::{
    Arrival, Class, Counts, Durability, FrameNo, Kept, Memory, MemoryConfig, Offer, Page, Reason,
    Refused, Role,
};
use crate::page::{PageId, PageStamp, SpaceId, Version};
use arrayvec::ArrayVec;
use endpoint::Frame;
use wire::limits::BLOCK_BYTES;
use wire::{NodeId, Time};

/// Mirrors of a page that its writer knows of.
pub const MIRRORS_MAX: usize = 2;
/// Pages that one may displace: the smallest ones by the largest, and the one whose frame it gets.
pub const DISPLACED_MAX: usize = PAGE_BYTES_MAX / BLOCK_BYTES + 1;

/// The bytes of a page, and what is known of them.
#[derive(Debug)]
pub struct Stored {
    /// The bytes.
    pub data: Frame,
    /// Their CRC-32C.
    pub checksum: u32,
    /// Of a dirty page of the node's own, who has mirrors of this version, in which incarnations.
    pub mirrors: ArrayVec<(NodeId, u64), MIRRORS_MAX>,
    /// Of a mirror, and of a clean copy that was one, the number of them that there are to be.
    pub copies: u8,
    /// It is of an earlier incarnation of this node, and worth nothing any more.
    pub former: bool,
    /// This node wrote it, in this version.
    pub written: bool,
}

impl Stored {
    /// Bytes of a clean page, or of one that was just written.
    pub fn new(data: Frame, checksum: u32) -> Stored {
        let mirrors = ArrayVec::new();
        Stored { data, checksum, mirrors, copies: 0, former: false, written: false }
    }

    /// The stamp of these bytes as this page's.
    pub fn stamp(&self, id: PageId, version: Version) -> PageStamp {
        PageStamp { id, version, bytes: self.data.len() as u32, checksum: self.checksum }
    }
}

/// A page with its bytes.
#[derive(Debug)]
pub struct Removed {
    /// The table's record of it.
    pub page: Page,
    /// Its bytes.
    pub stored: Stored,
}

/// Why room could not be made for a page of the node's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// There is none now.
    NoRoom,
    /// The page is here in this version or a newer one.
    Newer,
}

/// The table and the bytes.
#[derive(Debug)]
pub struct Store {
    memory: Memory,
    places: Box<[Option<Stored>]>,
    used: usize,
    /// Bytes that pages may take now.
    limit: usize,
    /// And at most.
    most: usize,
}

fn cost(bytes: usize) -> usize {
    bytes.next_multiple_of(BLOCK_BYTES)
}

/// Blocks that a page of so many bytes takes.
pub fn blocks(bytes: usize) -> u8 {
    (cost(bytes) / BLOCK_BYTES) as u8
}

impl Store {
    /// With room for `limit` bytes of pages, of which each takes whole blocks, at most as many as the table has frames.
    pub fn new(config: MemoryConfig, limit: usize) -> Store {
        let places = (0..config.frames).map(|_| None).collect();
        Store { memory: Memory::new(config), places, used: 0, limit, most: limit }
    }

    /// Limits pages to so many bytes from now on, at most as many as at the beginning. Pages that are here stay until
    /// they are taken; no new one comes in before.
    pub fn resize(&mut self, limit: usize) {
        self.limit = limit.clamp(BLOCK_BYTES.min(self.most), self.most);
        self.memory.resize((self.limit / BLOCK_BYTES) as u32);
    }

    /// Bytes that pages may take.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that they take beyond that.
    pub fn over(&self) -> usize {
        self.used.saturating_sub(self.limit)
    }

    /// Whether they take more than they may.
    pub fn is_over(&self) -> bool {
        self.over() > 0
    }

    /// The table.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The table, for what changes no frame's page.
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Bytes that pages take.
    pub fn used_bytes(&self) -> usize {
        self.used
    }

    /// A page, wherever it is.
    pub fn find(&self, id: PageId) -> Option<(FrameNo, &Page, &Stored)> {
        let frame = self.memory.find(id)?;
        Some((frame, self.memory.page(frame)?, self.stored(frame)))
    }

    /// The bytes in a frame that is not free.
    pub fn stored(&self, frame: FrameNo) -> &Stored {
        self.places[frame.0 as usize].as_ref().expect("a page has bytes")
    }

    /// As [`stored`](Store::stored), to change what is known beside the bytes.
    pub fn stored_mut(&mut self, frame: FrameNo) -> &mut Stored {
        self.places[frame.0 as usize].as_mut().expect("a page has bytes")
    }

    /// A node has a mirror of a version of this node's own page, in this incarnation. Counts where that is the present
    /// version and the node can be named: what is not is not missed when the node goes down.
    pub fn handle_mirror(&mut self, frame: FrameNo, version: Version, mirror: (NodeId, u64)) {
        let named = &self.stored(frame).mirrors;
        let counts = !named.is_full() && named.iter().all(|(node, _)| *node != mirror.0);
        if counts && self.memory.handle_stored(frame, version) {
            self.stored_mut(frame).mirrors.push(mirror);
        }
    }

    /// All mirrors of a page but those to `keep` are gone.
    pub fn retain_mirrors(&mut self, frame: FrameNo, keep: impl Fn(&(NodeId, u64)) -> bool) {
        let version = self.memory.page(frame).expect("a page").version;
        let named = &mut self.stored_mut(frame).mirrors;
        let before = named.len();
        named.retain(|mirror| keep(mirror));
        for _ in named.len()..before {
            self.memory.handle_mirror_lost(frame, version);
        }
    }

    /// Whether a page of so many bytes finds room as it is.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.memory.counts().free > 0 && self.used + cost(bytes) <= self.limit
    }

    /// Whether a page of so many bytes would find room without the one in this frame.
    pub fn would_fit(&self, frame: FrameNo, bytes: usize) -> bool {
        self.used - cost(self.stored(frame).data.len()) + cost(bytes) <= self.limit
    }

    /// Pages that would find room as it is, each as long as those that are here are on average.
    pub fn free_pages(&self) -> u32 {
        let Counts { free, .. } = self.memory.counts();
        let pages = (self.places.len() - free as usize).max(1);
        let each = self.used.div_ceil(pages).max(BLOCK_BYTES);
        free.min((self.limit.saturating_sub(self.used) / each) as u32)
    }

    /// The oldest page that [`accept`](Store::accept) would take in now.
    pub fn oldest_taken(&self, now: Time) -> Age {
        if self.is_over() {
            return Age::NEWEST;
        }
        if self.free_pages() > 0 { Age::OLDEST } else { self.memory.oldest_replaced(now) }
    }

    /// This node's digest for the initiator: as the table has it, but frames that no page of the usual length has room
    /// in are none, and where pages are to leave nothing is replaced.
    pub fn digest(&self, now: Time) -> Digest {
        let mut digest = self.memory.digest(now);
        if self.is_over() {
            (digest.local, digest.hosted) = (Histogram::default(), Histogram::default());
        }
        let free = self.free_pages();
        let capacity = digest.capacity - (digest.free - free);
        let local_min = u64::from(digest.local_min) * u64::from(capacity);
        let local_min = (local_min / u64::from(digest.capacity)) as u32;
        Digest { capacity, local_min, free, oldest: self.oldest_taken(now), ..digest }
    }

    /// A page of the node's own has arrived. A version that is as new is left as it is.
    pub fn install(
        &mut self,
        now: Time,
        arrival: Arrival,
        stored: Stored,
    ) -> Result<FrameNo, NotKept> {
        if let Some(frame) = self.memory.find(arrival.id) {
            if !self.drop_older(frame, arrival.version) {
                return Err(NotKept::Newer);
            }
        }
        if !self.has_room(stored.data.len()) {
            return Err(NotKept::NoRoom);
        }
        let frame = self.memory.install(now, arrival).map_err(|_| NotKept::NoRoom)?;
        self.place(frame, stored);
        Ok(frame)
    }

    /// The node's own program has written a page that is here. Says whether that is the newest version now.
    pub fn overwrite(
        &mut self,
        now: Time,
        frame: FrameNo,
        version: Version,
        class: Class,
        stored: Stored,
    ) -> bool {
        let newer = self.memory.overwrite(now, frame, version, class);
        if newer {
            self.unplace(frame);
            self.place(frame, stored);
        }
        newer
    }

    /// Takes another node's page in, and says what had to go for it.
    pub fn accept(
        &mut self,
        now: Time,
        offer: Offer,
        stored: Stored,
    ) -> Result<(FrameNo, ArrayVec<Removed, DISPLACED_MAX>), Refused> {
        let refused = |store: &Store, reason| Refused { reason, oldest: store.oldest_taken(now) };
        if let Some(reason) = self.memory.refuses(&offer) {
            return Err(refused(self, reason));
        }
        let mut gone = ArrayVec::new();
        // while pages are to leave, one takes the place of its older version only
        let limit = self.limit.max(self.used);
        if self.is_over() && self.memory.find(offer.id).is_none() {
            return Err(refused(self, Reason::NoRoom));
        }
        // what is here of the page makes way, and may be shorter
        while self.used - self.cost_of(offer.id) + cost(stored.data.len()) > limit {
            let displaced = self.memory.displace(now, &offer);
            let (frame, page) = displaced.ok_or_else(|| refused(self, Reason::NoRoom))?;
            let stored = self.unplace(frame).expect("a page has bytes");
            gone.extend(Some(Removed { page, stored }).filter(|held| held.page.id != offer.id));
        }
        let accepted = self.memory.accept(now, offer)?;
        let before = self.unplace(accepted.frame);
        let displaced = accepted.displaced.zip(before);
        gone.extend(displaced.map(|(page, stored)| Removed { page, stored }));
        self.place(accepted.frame, stored);
        Ok((accepted.frame, gone))
    }

    /// Gives a page up, if nothing is lost by that.
    pub fn take(&mut self, frame: FrameNo) -> Result<Removed, Kept> {
        let page = self.memory.release(frame)?;
        let stored = self.unplace(frame).expect("a page has bytes");
        Ok(Removed { page, stored })
    }

    /// Puts a page's bytes into another frame of the pool; they are the same.
    pub fn relocate(&mut self, frame: FrameNo, data: Frame) {
        let stored = self.stored_mut(frame);
        assert_eq!(stored.data.len(), data.len(), "a page keeps its length");
        debug_assert_eq!(stored.data[..], data[..]);
        stored.data = data;
    }

    /// Gives a page up if there is a newer version than it, however it is needed.
    pub fn drop_older(&mut self, frame: FrameNo, newer: Version) -> bool {
        let gone = self.memory.handle_superseded(frame, newer);
        if gone {
            self.unplace(frame);
        }
        gone
    }

    /// Forgets every page of a space. Answers with the number of those that are in the middle of something.
    pub fn free_space(&mut self, space: SpaceId) -> u32 {
        let busy = self.memory.free_space(space);
        self.sweep();
        busy
    }

    /// Forgets the pages of the private spaces of a node that is gone for good. Answers with the spaces of those that
    /// are in the middle of something.
    pub fn free_owner(&mut self, owner: NodeId) -> Vec<SpaceId> {
        let owned = |space: SpaceId| space.owner() == Some(owner);
        self.memory.free_pages(|id| owned(id.space));
        self.sweep();
        let left = self.memory.pages().map(|(_, _, page)| page.id.space);
        left.filter(|space| owned(*space)).collect()
    }

    /// Whether the page in a frame is a copy of what others answer for: mirrors elsewhere, or another node's program.
    pub fn is_copy(&self, frame: FrameNo) -> bool {
        let page = self.memory.page(frame).expect("a page");
        matches!(page.durability, Durability::Dirty { .. }) && page.is_durable()
    }

    /// Whether a frame has a mirror that a writer elsewhere may be ahead of.
    pub fn is_shared_mirror(&self, frame: FrameNo) -> bool {
        let shared = self.memory.page(frame).is_some_and(|page| page.id.space.owner().is_none());
        shared && self.memory.role(frame) == Role::Mirror
    }

    /// Whether every page has its bytes and no free frame has any, and each mirror that counts is named. For tests.
    pub fn is_consistent(&self) -> bool {
        let used =
            self.places.iter().flatten().map(|stored| cost(stored.data.len())).sum::<usize>();
        let with_page = |at: usize| self.memory.page(FrameNo(at as u32)).is_some();
        let fits = (0..self.places.len()).all(|at| self.places[at].is_some() == with_page(at));
        let counted = self.memory.blocks().total() as usize * BLOCK_BYTES;
        let named = self.memory.pages().all(|(frame, role, page)| match page.durability {
            Durability::Dirty { copies } if role != Role::Mirror => {
                usize::from(copies) <= self.stored(frame).mirrors.len()
            }
            _ => true,
        });
        fits && used == self.used && used <= self.most && counted == used && named
    }

    /// The bytes that a page takes; 0 when it is not here.
    fn cost_of(&self, id: PageId) -> usize {
        self.find(id).map_or(0, |(_, _, stored)| cost(stored.data.len()))
    }

    fn place(&mut self, frame: FrameNo, stored: Stored) {
        assert!(self.memory.page(frame).is_some(), "bytes are of a page");
        self.used += cost(stored.data.len());
        self.memory.set_blocks(frame, blocks(stored.data.len()));
        let before = self.places[frame.0 as usize].replace(stored);
        assert!(before.is_none(), "a frame has the bytes of one page");
    }

    fn unplace(&mut self, frame: FrameNo) -> Option<Stored> {
        let stored = self.places[frame.0 as usize].take()?;
        self.memory.set_blocks(frame, 0);
        self.used -= cost(stored.data.len());
        Some(stored)
    }

    fn sweep(&mut self) {
        for at in 0..self.places.len() as u32 {
            if self.memory.role(FrameNo(at)).is_empty() {
                self.unplace(FrameNo(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::{Frames, HeapRegion};

    const VERSION: Version = Version(3);

    /// A store with a page of this class that was written here, and its frame.
    fn written(class: Class) -> (Store, FrameNo) {
        let config = MemoryConfig { frames: 4, local_min: 0, counts_uses: false };
        let mut store = Store::new(config, 4 * PAGE_BYTES_MAX);
        let data = Frames::new(HeapRegion::new(1)).copy_of(&[7; 100]).unwrap();
        let id = PageId { space: SpaceId(1), index: 0 };
        let durability = Durability::Dirty { copies: 0 };
        let arrival = Arrival { id, version: VERSION, class, durability, ..Arrival::default() };
        let frame = store.install(Time(1), arrival, Stored::new(data, 0)).unwrap();
        (store, frame)
    }

    fn is_durable(store: &Store, frame: FrameNo) -> bool {
        store.memory().page(frame).unwrap().is_durable()
    }

    /// A mirror is made by the writer and another one by the directory at the same time, so that there are three, or
    /// one is heard of twice.
    #[test]
    fn mirrors_that_are_not_named_or_named_already_do_not_count() {
        let (mut store, frame) = written(Class::Mirrored);
        for node in [5, 5, 1, 3] {
            assert_eq!(is_durable(&store, frame), node == 3);
            store.handle_mirror(frame, VERSION, (NodeId(node), 7));
        }
        store.handle_mirror(frame, Version(2), (NodeId(4), 7));
        store.retain_mirrors(frame, |(node, _)| *node != NodeId(1));
        assert!(!is_durable(&store, frame), "one of the two that were named is gone");
        store.handle_mirror(frame, VERSION, (NodeId(4), 7));
        assert!(is_durable(&store, frame));
        store.retain_mirrors(frame, |_| false);
        let page = store.memory().page(frame).unwrap();
        assert_eq!(page.durability, Durability::Dirty { copies: 0 }, "all are gone");
    }

    /// Room for 64 blocks, of which 16 are the node's own pages' whatever comes, full of pages of 8 blocks of its own.
    fn full_of_its_own() -> (Store, Frames) {
        let config = MemoryConfig { frames: 64, local_min: 16, counts_uses: false };
        let mut store = Store::new(config, 64 * BLOCK_BYTES);
        let frames = Frames::new(HeapRegion::new(256));
        for index in 0..8 {
            let id = PageId { space: SpaceId(1), index };
            let arrival = Arrival { id, version: VERSION, ..Arrival::default() };
            let data = frames.copy_of(&[7; 8 * BLOCK_BYTES]).unwrap();
            store.install(Time(1), arrival, Stored::new(data, 0)).unwrap();
        }
        (store, frames)
    }

    fn mirror(index: u64, blocks: u8) -> Offer {
        let id = PageId { space: SpaceId(2), index };
        let (age, chances) = (Age::NEWEST, 0);
        Offer { id, version: VERSION, blocks, age, chances, reused: false, mirror: true }
    }

    /// Mirrors of so many blocks that are taken in, until one is not.
    fn mirrors_taken(blocks: u8) -> (usize, Counts) {
        let (mut store, frames) = full_of_its_own();
        let data = vec![5; usize::from(blocks) * BLOCK_BYTES];
        let takes = |index: &u64| {
            let stored = Stored::new(frames.copy_of(&data).unwrap(), 0);
            store.accept(Time(1 << 40), mirror(*index, blocks), stored).is_ok()
        };
        let taken = (0..100).take_while(takes).count();
        assert!(store.is_consistent());
        (taken, store.memory().blocks())
    }

    #[test]
    fn long_pages_of_a_nodes_own_make_way_for_mirrors_as_short_ones_do() {
        let (taken, blocks) = mirrors_taken(1);
        assert_eq!((taken, blocks.own(), blocks.mirror), (48, 16, 48));
        let (taken, blocks) = mirrors_taken(16);
        assert_eq!((taken, blocks.own(), blocks.mirror), (3, 16, 48));
        let (taken, blocks) = mirrors_taken(5);
        assert_eq!((taken, blocks.own(), blocks.mirror), (9, 16, 45));
    }
}
