//! Chunks that leave the cache for network memory, and those worth reading back.
//!
//! A clean chunk that the cache has no room for becomes a page of the node's service, with the frame that it has: not a
//! byte is copied, and the node keeps it in one place only. From there it goes to idle nodes as any page does. The
//! cache remembers the version in which it left. A chunk that changes afterwards is forgotten here, and a forgotten one
//! is never requested; versions are not used again. So copies that are still in other nodes' memory, and arrive at any
//! time, are seen by no read.
//!
//! A page is named by the object's number in the upper half of its index, given when its first chunk leaves and never
//! again in this incarnation of the node, and the chunk in the lower half. The space is one of this incarnation.

use super::{Cache, Key};
use crate::cache::{WindowPart, bit_runs, mask, window_of};
use crate::limits::*;
use crate::object::group_of;
use endpoint::Frame;
use netmem::service::{Hint, Use};
use netmem::{Directory, PageId, Service, SpaceId, Version, Wanted};
use node::{Bug, Cx};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use wire::Time;
use wire::limits::BLOCK_BYTES;

/// The node's network memory, as a cache of one of its servers sees it.
#[derive(Clone)]
pub struct Network {
    cx: Cx,
    service: Service,
    space: SpaceId,
    /// Off with a planted bug.
    forgets: bool,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("space", &self.space).finish_non_exhaustive()
    }
}

/// The record of a chunk that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    version: Version,
    /// From the start of the chunk on.
    blocks: u8,
    /// Number of the last [read in place](Cache::in_place) of it; 0 when there was none.
    read: u64,
}

/// The cache's state of network memory, beside the objects' own.
#[derive(Debug, Default)]
pub(super) struct Away {
    network: Option<Network>,
    version: u64,
    serial: u32,
    chunks_max: usize,
    /// A window that comes back before so many others have left was used again.
    recent: u64,
    /// Chunks in the order in which they left; some have been forgotten since.
    order: VecDeque<(Key, u64, Version)>,
    sent: u64,
    /// Reads in place so far.
    reads: u64,
    /// Of the chunks that these were of, the cache would have so many.
    reads_kept: u64,
}

/// A chunk to be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// Its first block within the window.
    pub first: usize,
    /// The page, and the only version that will do.
    pub wanted: Wanted,
}

/// Blocks of a chunk that left, to be read where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    key: Key,
    chunk: u64,
    /// The page, and the only version that will do.
    pub wanted: Wanted,
}

impl Network {
    /// The bytes that a node's directory needs for pages that leave a cache of `cache_bytes`: who has the pages of a
    /// private space its owner alone knows, and what has no place there any more is dropped wherever it is.
    pub fn directory_bytes(cache_bytes: usize) -> usize {
        cache_bytes / NAMED_SHARE
    }

    /// Of a node in its present incarnation.
    pub fn new(cx: &Cx, service: Service) -> Network {
        let space = SpaceId::cache(cx.id(), cx.incarnation());
        Network { cx: cx.clone(), service, space, forgets: !cx.has_bug(Bug::AwayPageTaken) }
    }
}

impl Sent {
    fn wanted(&self, id: PageId) -> Wanted {
        Wanted { id, at_least: self.version, bytes: u32::from(self.blocks) * BLOCK_BYTES as u32 }
    }
}

impl Away {
    /// The time of the node's clock.
    pub fn now(&self) -> Time {
        self.network.as_ref().map_or(Time::ZERO, |network| network.cx.now())
    }
}

impl Cache {
    /// Sends what it has no room for to network memory from now on, which shares the pool with it.
    pub fn with_network(mut self, network: Network) -> Cache {
        let lent_bytes = network.service.config().bytes;
        let others = self.frames.bytes().saturating_sub(self.limit_bytes + lent_bytes);
        self.reserve_bytes = others / RESERVE_SHARE;
        let named = network.service.config().directory_bytes / Directory::ENTRY_BYTES;
        self.away.chunks_max = (self.limit_bytes / AWAY_SHARE / AWAY_COST_BYTES).min(named);
        self.away.recent = ((self.limit_bytes + lent_bytes) / CHUNK_BYTES * RECENT_TIMES) as u64;
        self.away.reads_kept = (self.limit_bytes / CHUNK_BYTES) as u64;
        self.away.network = Some(network);
        self
    }

    /// Chunks that were put into network memory.
    pub fn sent_away(&self) -> u64 {
        self.away.sent
    }

    pub(super) fn network(&self) -> Option<&Service> {
        self.away.network.as_ref().map(|network| &network.service)
    }

    /// The chunks of a part that left for network memory, to be asked for now. They are remembered no more: what comes
    /// is in the cache, what does not is nowhere. Either way their window is being used again, unless that is long ago
    /// (Johnson and Shasha, 2Q, VLDB'94: A1out remembers pages that are gone).
    pub fn recall(&mut self, key: Key, part: &WindowPart) -> Vec<Recalled> {
        let Some(space) = self.away.network.as_ref().map(|network| network.space) else {
            return Vec::new();
        };
        let (valid, _) = self.blocks(key, part.index);
        let base = part.index * WINDOW_CHUNKS as u64;
        let entry = self.entry(key);
        let chunks = part.blocks.start / CHUNK_BLOCKS..part.blocks.end.div_ceil(CHUNK_BLOCKS);
        let missing = chunks.filter(|chunk| mask(blocks_of(*chunk)) & valid == 0);
        let recalled = missing.filter_map(|chunk| {
            let sent = entry.away.remove(&(base + chunk as u64))?;
            let id = page_id(space, entry.serial, base + chunk as u64);
            Some(Recalled { first: chunk * CHUNK_BLOCKS, wanted: sent.wanted(id) })
        });
        let recalled: Vec<Recalled> = recalled.collect();
        let recent = recalled
            .iter()
            .any(|page| page.wanted.at_least.0 + self.away.recent > self.away.version);
        let slot = self.slot(key, part.index).filter(|_| recent);
        slot.into_iter().for_each(|slot| self.windows[slot as usize].reused = true);
        recalled
    }

    /// The page from which to read blocks of a chunk that left, without bringing it back: a reader of a few blocks here
    /// and there would bring whole chunks, and displace others. `None` when some of them are here or come, or when the
    /// chunk was read of so lately that the cache would still have it, had it come then: now it is to come.
    pub fn in_place(&mut self, key: Key, blocks: &Range<u64>) -> Option<InPlace> {
        let space = self.away.network.as_ref()?.space;
        let chunk = blocks.start / CHUNK_BLOCKS as u64;
        let first = chunk * CHUNK_BLOCKS as u64;
        let (index, at) = window_of(blocks.start);
        let (valid, loading) = self.blocks(key, index);
        let asked = mask(at..at + (blocks.end - blocks.start) as usize);
        let (reads, kept) = (self.away.reads + 1, self.away.reads_kept);
        let entry = self.entry(key);
        let (serial, sent) = (entry.serial, entry.away.get_mut(&chunk)?);
        let lately = sent.read > 0 && sent.read + kept > reads;
        if lately || blocks.end > first + u64::from(sent.blocks) || (valid | loading) & asked != 0 {
            return None;
        }
        sent.read = reads;
        let wanted = sent.wanted(page_id(space, serial, chunk));
        self.away.reads = reads;
        Some(InPlace { key, chunk, wanted })
    }

    /// Whether what was to be read in place is still what it was, and nothing newer is here.
    pub fn is_in_place(&self, read: &InPlace) -> bool {
        let sent = self.entries[read.key.0 as usize].away.get(&read.chunk);
        sent.is_some_and(|sent| sent.version == read.wanted.at_least)
    }

    /// A chunk did not come from where it should be: it is nowhere.
    pub fn forget_in_place(&mut self, read: &InPlace) {
        if self.is_in_place(read) {
            self.forget_away(read.key, read.chunk..read.chunk + 1);
        }
    }

    /// Puts the chunks of a clean window into network memory, as far as there is room.
    pub(super) fn send_away(&mut self, key: Key, index: u64) {
        let Some(network) = self.away.network.clone() else { return };
        let Some(serial) = self.serial(key) else { return };
        let slot = self.slot(key, index).expect("a window that is here") as usize;
        for chunk in 0..WINDOW_CHUNKS {
            let window = &self.windows[slot];
            let Some((data, blocks)) = window.leaving(chunk) else { continue };
            let used = Use { last: window.used, again: window.reused };
            let number = index * WINDOW_CHUNKS as u64 + chunk as u64;
            if number > u64::from(u32::MAX) {
                return; // 128 TiB into one object
            }
            let version = Version(self.away.version + 1);
            self.away.version = version.0;
            let id = page_id(network.space, serial, number);
            if network.service.insert_used(id, version, data, used) {
                self.remember(key, number, Sent { version, blocks, read: 0 });
            }
        }
    }

    fn remember(&mut self, key: Key, chunk: u64, sent: Sent) {
        assert!((1..=CHUNK_BLOCKS).contains(&sent.blocks.into()), "blocks of one chunk");
        assert!(sent.version.0 <= self.away.version, "versions are given in order");
        self.away.sent += 1;
        self.entry(key).away.insert(chunk, sent);
        self.away.order.push_back((key, chunk, sent.version));
        if self.away.order.len() > self.away.chunks_max {
            let (key, chunk, version) = self.away.order.pop_front().expect("one was added");
            let away = &mut self.entry(key).away;
            if away.get(&chunk).is_some_and(|sent| sent.version == version) {
                away.remove(&chunk);
                self.drop_unused_group(key, group_of(chunk * CHUNK_BLOCKS as u64));
            }
        }
        assert!(self.away.order.len() <= self.away.chunks_max, "no more is remembered");
    }

    /// The number of an object in network memory; `None` when all have been given.
    fn serial(&mut self, key: Key) -> Option<u32> {
        let known = self.entry(key).serial;
        if known != 0 {
            return Some(known);
        }
        let serial = self.away.serial.checked_add(1)?;
        (self.away.serial, self.entry(key).serial) = (serial, serial);
        Some(serial)
    }

    /// Blocks of a window have changed.
    pub(super) fn forget_blocks(&mut self, key: Key, index: u64, blocks: u64) {
        if self.entry(key).away.is_empty() {
            return; // mostly
        }
        let base = index * WINDOW_CHUNKS as u64;
        for run in bit_runs(blocks) {
            let first = base + (run.start / CHUNK_BLOCKS) as u64;
            self.forget_away(key, first..base + run.end.div_ceil(CHUNK_BLOCKS) as u64);
        }
    }

    /// A block of the object has changed.
    pub(super) fn forget_block(&mut self, key: Key, block: u64) {
        let chunk = block / CHUNK_BLOCKS as u64;
        self.forget_away(key, chunk..chunk + 1);
    }

    /// Chunks of an object have changed, or are gone.
    pub(super) fn forget_away(&mut self, key: Key, chunks: Range<u64>) {
        let Some(network) = self.away.network.as_ref().filter(|network| network.forgets) else {
            return;
        };
        let entry = &mut self.entries[key.0 as usize];
        while let Some((chunk, _)) = entry.away.range(chunks.clone()).next() {
            let chunk = *chunk;
            entry.away.remove(&chunk);
            let id = page_id(network.space, entry.serial, chunk);
            network.service.hint(id, Hint::DontNeed);
        }
    }
}

impl super::Window {
    /// The part of a chunk that can leave: the blocks from its start on that are here.
    fn leaving(&self, chunk: usize) -> Option<(Frame, u8)> {
        let valid = (self.valid & mask(blocks_of(chunk))) >> (chunk * CHUNK_BLOCKS);
        let blocks = valid.trailing_ones() as usize;
        let frame = self.chunks[chunk].as_ref().filter(|_| blocks > 0)?;
        Some((frame.slice(0..blocks * BLOCK_BYTES), blocks as u8))
    }
}

fn blocks_of(chunk: usize) -> Range<usize> {
    chunk * CHUNK_BLOCKS..(chunk + 1) * CHUNK_BLOCKS
}

fn page_id(space: SpaceId, serial: u32, chunk: u64) -> PageId {
    assert_eq!(chunk >> 32, 0, "a chunk's number is the lower half");
    assert_ne!(serial, 0, "an object with a number");
    PageId { space, index: u64::from(serial) << 32 | chunk }
}
