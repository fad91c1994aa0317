//! The server's memory of objects: blocks with their checksums, clean and dirty, in frames of the node's pool.
//!
//! It is a plain structure: it reads no disk, waits for nothing, and knows objects only by [`Key`]. Memory is taken in
//! chunks of up to 32 KiB; eight chunks are a window, with a bit per block for what is valid and what is dirty. The
//! window is the unit of eviction (clock), because a sequential disk read fills one window from one run of the pool,
//! and a run returns only when all of it is free.
//!
//! A hit hands out slices of the chunks' frames with the stored checksums: nothing is copied, summed or allocated. A
//! chunk that is being sent is shared; a write into it replaces it by a copy, so what is sent never changes under its
//! checksum.
//!
//! Invariants: a block that is dirty or being committed is valid; a window with such blocks, or that is being loaded,
//! or that holds the edges of a write under way, is not evicted; a valid block's checksum is that of its bytes; bytes
//! of a block behind the object's end are zero.

mod away;
mod commit;
mod hinted;
mod room;
mod store;
#[cfg(test)]
mod tests;

use crate::limits::*;
use crate::object::{GROUP_BLOCKS, group_of, zero_sum};
use crate::protocol::set_sum;
use crate::sources::Source;
use endpoint::{Frame, FrameMut, Frames};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use wire::Time;
use wire::limits::BLOCK_BYTES;

pub use away::{InPlace, Network, Recalled};
pub use commit::Stretch;

use away::{Away, Sent};
use hinted::Hinted;

/// Names an object in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(u32);

/// No memory: everything cached is dirty, under way, or the pool is in use elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory is left for cached blocks")]
pub struct Full;

/// One block of an object.
#[derive(Debug)]
pub struct Block {
    number: u64,
    /// Its content.
    pub bytes: Frame,
    /// Its checksum.
    pub sum: u32,
}

/// 64 blocks of one object.
#[derive(Debug)]
struct Window {
    owner: Key,
    index: u64,
    chunks: [Option<Frame>; WINDOW_CHUNKS],
    valid: u64,
    dirty: u64,
    committing: u64,
    loading: u64,
    /// Origin of the blocks that the last load brought.
    came: Source,
    sums: [u32; WINDOW_BLOCKS],
    referenced: bool,
    /// Blocks that were read since it was made.
    seen: u64,
    /// Some of them more than once.
    reused: bool,
    /// When last, with network memory.
    used: Time,
    /// The bytes that it took when a hint brought it, until it is read.
    hinted_bytes: usize,
    /// Holds what a change under way builds on.
    pinned: bool,
    live: bool,
}

impl Window {
    fn unused() -> Window {
        Window {
            owner: Key(0),
            index: 0,
            chunks: Default::default(),
            valid: 0,
            dirty: 0,
            committing: 0,
            loading: 0,
            came: Source::Cache,
            sums: [0; WINDOW_BLOCKS],
            referenced: false,
            seen: 0,
            reused: false,
            used: Time::ZERO,
            hinted_bytes: 0,
            pinned: false,
            live: false,
        }
    }

    /// Blocks that are not committed are here.
    fn check(&self) {
        assert_eq!((self.dirty | self.committing) & !self.valid, 0, "a dirty block is valid");
    }

    fn busy(&self) -> bool {
        self.pinned || self.dirty | self.committing | self.loading != 0
    }

    fn bytes(&self) -> usize {
        self.chunks.iter().flatten().map(|frame| frame.len()).sum::<usize>() + WINDOW_COST_BYTES
    }
}

/// Committed checksums of a group of 1024 blocks; blocks behind the end of the list are zeros.
#[derive(Debug, Default)]
struct Group {
    sums: Vec<u32>,
    /// The disk's copy is older.
    dirty: bool,
}

/// The cached state of one object.
#[derive(Debug, Default)]
struct Entry {
    disk: usize,
    windows: BTreeMap<u64, u32>,
    groups: BTreeMap<u64, Group>,
    /// Windows with dirty or committing blocks.
    dirty: BTreeSet<u64>,
    /// Chunks that left for network memory and were not changed since.
    away: BTreeMap<u64, Sent>,
    /// Its number there; 0 until something left.
    serial: u32,
}

/// The cache. See the module's text.
#[derive(Debug)]
pub struct Cache {
    frames: Frames,
    limit_bytes: usize,
    /// Bytes of the pool that it leaves free while it has clean blocks.
    reserve_bytes: usize,
    /// Bytes in use when there was last no more room to be made.
    unmet_at: Option<usize>,
    used_bytes: usize,
    windows: Vec<Window>,
    free_windows: Vec<u32>,
    hand: usize,
    entries: Vec<Entry>,
    free_entries: Vec<u32>,
    dirty_blocks: Vec<usize>,
    away: Away,
    hinted: Hinted,
}

/// The bits of `blocks`, numbered within a window.
fn mask(blocks: Range<usize>) -> u64 {
    let ones = |count: usize| if count >= 64 { u64::MAX } else { (1 << count) - 1 };
    ones(blocks.end) & !ones(blocks.start)
}

/// The window that a block is in, and its number there.
pub fn window_of(block: u64) -> (u64, usize) {
    (block / WINDOW_BLOCKS as u64, (block % WINDOW_BLOCKS as u64) as usize)
}

/// The block with number `at` in a window.
pub fn block_at(index: u64, at: usize) -> u64 {
    index * WINDOW_BLOCKS as u64 + at as u64
}

/// Blocks in a row in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowPart {
    /// The window.
    pub index: u64,
    /// The blocks within it.
    pub blocks: Range<usize>,
}

impl WindowPart {
    /// The first block's number in the object.
    pub fn first(&self) -> u64 {
        block_at(self.index, self.blocks.start)
    }

    /// Of the `bytes` bytes from block `first` on, those in this part.
    pub fn bytes_of(&self, first: u64, bytes: usize) -> usize {
        let skipped = (self.first() - first) as usize * BLOCK_BYTES;
        (self.blocks.len() * BLOCK_BYTES).min(bytes - skipped)
    }
}

/// The parts of `blocks` by window.
pub fn window_parts(blocks: Range<u64>) -> impl Iterator<Item = WindowPart> {
    let mut at = blocks.start;
    std::iter::from_fn(move || {
        (at < blocks.end).then(|| {
            let (index, first) = window_of(at);
            let count = (blocks.end - at).min((WINDOW_BLOCKS - first) as u64) as usize;
            at += count as u64;
            WindowPart { index, blocks: first..first + count }
        })
    })
}

/// The longest stretches of set bits.
pub fn bit_runs(mut bits: u64) -> impl Iterator<Item = Range<usize>> {
    let mut base = 0;
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let start = bits.trailing_zeros() as usize;
        bits >>= start;
        let count = bits.trailing_ones() as usize;
        bits = if count == 64 { 0 } else { bits >> count };
        let run = base + start..base + start + count;
        base = run.end;
        Some(run)
    })
}

impl Cache {
    /// A cache of at most `limit_bytes` of clean blocks in frames of `frames`, for objects on `disks` disks.
    pub fn new(frames: Frames, limit_bytes: usize, disks: usize) -> Cache {
        Cache {
            reserve_bytes: frames.bytes().saturating_sub(limit_bytes) / RESERVE_SHARE,
            unmet_at: None,
            frames,
            limit_bytes,
            used_bytes: 0,
            windows: Vec::new(),
            free_windows: Vec::new(),
            hand: 0,
            entries: Vec::new(),
            free_entries: Vec::new(),
            dirty_blocks: vec![0; disks],
            away: Away::default(),
            hinted: Hinted::default(),
        }
    }

    /// Bytes in chunks, and what their bookkeeping costs.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes of a disk's objects that are not committed.
    pub fn dirty_bytes(&self, disk: usize) -> usize {
        self.dirty_blocks[disk] * BLOCK_BYTES
    }

    /// Makes room for an object of a disk.
    pub fn open(&mut self, disk: usize) -> Key {
        let entry = Entry { disk, ..Entry::default() };
        match self.free_entries.pop() {
            Some(slot) => {
                self.entries[slot as usize] = entry;
                Key(slot)
            }
            None => {
                self.entries.push(entry);
                Key(self.entries.len() as u32 - 1)
            }
        }
    }

    /// Forgets an object, dirty blocks included.
    pub fn close(&mut self, key: Key) {
        self.clear(key);
        self.entries[key.0 as usize] = Entry::default();
        self.free_entries.push(key.0);
        assert!(self.free_entries.len() <= self.entries.len(), "an object is closed once");
    }

    /// Forgets all blocks and checksums of an object that stays open.
    pub fn clear(&mut self, key: Key) {
        self.forget_away(key, 0..u64::MAX);
        let entry = &mut self.entries[key.0 as usize];
        entry.dirty.clear();
        let (windows, groups) =
            (std::mem::take(&mut entry.windows), std::mem::take(&mut entry.groups));
        let group_bytes: usize = groups.values().map(|group| group.sums.len() * 4).sum();
        self.uncount(group_bytes);
        for slot in windows.into_values() {
            self.release_window(slot);
        }
    }

    /// Whether nothing of the object is cached.
    pub fn is_empty(&self, key: Key) -> bool {
        let entry = &self.entries[key.0 as usize];
        entry.windows.is_empty() && entry.groups.values().all(|group| !group.dirty)
    }

    /// Whether the object has blocks that are not committed.
    pub fn is_dirty(&self, key: Key) -> bool {
        !self.entries[key.0 as usize].dirty.is_empty()
    }

    fn entry(&mut self, key: Key) -> &mut Entry {
        &mut self.entries[key.0 as usize]
    }

    fn slot(&self, key: Key, index: u64) -> Option<u32> {
        self.entries[key.0 as usize].windows.get(&index).copied()
    }

    /// The valid blocks of a window and those being loaded, as bits.
    pub fn blocks(&self, key: Key, index: u64) -> (u64, u64) {
        let slot = self.slot(key, index);
        slot.map_or((0, 0), |slot| {
            let window = &self.windows[slot as usize];
            (window.valid, window.loading)
        })
    }

    /// A block that is here.
    pub fn block(&self, key: Key, block: u64) -> Option<Block> {
        let sum = self.sum(key, block)?;
        let (index, at) = window_of(block);
        let window = &self.windows[self.slot(key, index)? as usize];
        let start = at % CHUNK_BLOCKS * BLOCK_BYTES;
        let chunk = window.chunks[at / CHUNK_BLOCKS].as_ref().expect("a valid block has a frame");
        Some(Block { number: block, bytes: chunk.slice(start..start + BLOCK_BYTES), sum })
    }

    /// The checksum of a block that is here.
    pub fn sum(&self, key: Key, block: u64) -> Option<u32> {
        let (index, at) = window_of(block);
        let window = &self.windows[self.slot(key, index)? as usize];
        (window.valid >> at & 1 == 1).then(|| window.sums[at])
    }

    /// Appends slices that hold the `bytes` bytes from the start of block `first`, and writes the checksums of their
    /// blocks. Whether all was here; if not, nothing is appended.
    pub fn hit(
        &mut self,
        key: Key,
        first: u64,
        bytes: usize,
        out: &mut Vec<Frame>,
        trailer: &mut [u8],
    ) -> bool {
        let (before, mut at, mut left) = (out.len(), 0, bytes);
        for part in window_parts(first..first + bytes.div_ceil(BLOCK_BYTES) as u64) {
            let WindowPart { index, blocks } = part;
            let wanted = mask(blocks.clone());
            let slot = self.slot(key, index).filter(|slot| {
                let window = &self.windows[*slot as usize];
                window.valid & wanted == wanted
            });
            let Some(slot) = slot else {
                out.truncate(before);
                return false;
            };
            let now = self.away.now();
            self.forget_hinted(slot);
            let window = &mut self.windows[slot as usize];
            window.note_read(wanted, now);
            for block in blocks.clone() {
                set_sum(trailer, at, window.sums[block]);
                at += 1;
            }
            left -= window.slices(blocks, left, out, before);
        }
        true
    }

    /// Marks blocks as being loaded; the window stays until [`loaded`](Cache::loaded).
    pub fn loading(&mut self, key: Key, index: u64, blocks: Range<usize>) {
        let slot = self.window(key, index);
        let window = &mut self.windows[slot as usize];
        let blocks = mask(blocks);
        assert!(window.loading & blocks == 0, "no block is loaded twice at a time");
        window.loading |= blocks;
    }

    /// Ends [`loading`](Cache::loading).
    pub fn loaded(&mut self, key: Key, index: u64, blocks: Range<usize>, came: Source) {
        if let Some(slot) = self.slot(key, index) {
            let window = &mut self.windows[slot as usize];
            window.loading &= !mask(blocks);
            window.came = came;
        }
    }

    /// Origin of the blocks that the last load of a window brought.
    pub fn came(&self, key: Key, index: u64) -> Source {
        self.slot(key, index).map_or(Source::Cache, |slot| self.windows[slot as usize].came)
    }

    /// Drops a window and, with the last one of its group, the group's checksums if the disk has them too.
    fn drop_window(&mut self, key: Key, index: u64) {
        let entry = self.entry(key);
        let Some(slot) = entry.windows.remove(&index) else { return };
        let was_dirty = entry.dirty.remove(&index);
        assert!(!was_dirty, "only clean windows are dropped");
        assert!(!self.windows[slot as usize].busy(), "a window that is used stays");
        self.drop_unused_group(key, group_of(block_at(index, 0)));
        self.release_window(slot);
    }

    /// Drops a group's checksums when the disk has them too, and nothing of it is here or in network memory.
    fn drop_unused_group(&mut self, key: Key, group: u64) {
        let entry = self.entry(key);
        let per_group = GROUP_BLOCKS / WINDOW_BLOCKS as u64;
        let windows = group * per_group..(group + 1) * per_group;
        let chunks_per_group = GROUP_BLOCKS / CHUNK_BLOCKS as u64;
        let chunks = group * chunks_per_group..(group + 1) * chunks_per_group;
        let unused = entry.windows.range(windows).next().is_none()
            && entry.away.range(chunks).next().is_none();
        if unused && entry.groups.get(&group).is_some_and(|group| !group.dirty) {
            let sums = entry.groups.remove(&group).expect("just found").sums;
            self.uncount(sums.len() * 4);
        }
    }

    /// Bytes that were counted are here no more.
    fn uncount(&mut self, bytes: usize) {
        assert!(bytes <= self.used_bytes, "what leaves the cache was counted");
        self.used_bytes -= bytes;
    }

    /// So many blocks of a disk are not dirty any more.
    fn uncount_dirty(&mut self, disk: usize, blocks: usize) {
        assert!(blocks <= self.dirty_blocks[disk], "what becomes clean was counted as dirty");
        self.dirty_blocks[disk] -= blocks;
    }

    fn release_window(&mut self, slot: u32) {
        self.forget_hinted(slot);
        let window = std::mem::replace(&mut self.windows[slot as usize], Window::unused());
        assert!(window.live, "a window is released once");
        assert!(!window.pinned, "a change builds on what stays");
        self.uncount(window.bytes());
        let unstable = (window.dirty | window.committing).count_ones() as usize;
        self.uncount_dirty(self.entries[window.owner.0 as usize].disk, unstable);
        self.free_windows.push(slot);
        assert!(self.free_windows.len() <= self.windows.len(), "a slot is free once");
    }

    /// The slot of a window, made if need be.
    fn window(&mut self, key: Key, index: u64) -> u32 {
        if let Some(slot) = self.slot(key, index) {
            return slot;
        }
        let slot = self.free_windows.pop().unwrap_or_else(|| {
            self.windows.push(Window::unused());
            self.windows.len() as u32 - 1
        });
        let used = self.away.now();
        let window = &mut self.windows[slot as usize];
        assert!(!window.live, "a window that is made was not in use");
        (window.owner, window.index, window.used) = (key, index, used);
        (window.live, window.referenced) = (true, true);
        self.used_bytes += WINDOW_COST_BYTES;
        let before = self.entry(key).windows.insert(index, slot);
        assert!(before.is_none(), "an object has each window once");
        slot
    }

    // Committed checksums.

    /// Whether a group's checksums are known.
    pub fn has_group(&self, key: Key, group: u64) -> bool {
        self.entries[key.0 as usize].groups.contains_key(&group)
    }

    /// Keeps the checksums of a group as the disk has them, unless they are known.
    pub fn set_group(&mut self, key: Key, group: u64, sums: Vec<u32>) {
        assert!(sums.len() as u64 <= GROUP_BLOCKS, "checksums of one group");
        let groups = &mut self.entry(key).groups;
        if let std::collections::btree_map::Entry::Vacant(e) = groups.entry(group) {
            let bytes = sums.len() * 4;
            e.insert(Group { sums, dirty: false });
            self.used_bytes += bytes;
        }
    }

    /// Keeps the checksums of a group that is not known, which the disk does not have yet.
    pub fn set_newer_group(&mut self, key: Key, group: u64, sums: Vec<u32>) {
        assert!(sums.len() as u64 <= GROUP_BLOCKS, "checksums of one group");
        self.used_bytes += sums.len() * 4;
        let known = self.entry(key).groups.insert(group, Group { sums, dirty: true });
        assert!(known.is_none(), "a group of an object that was just opened");
    }

    /// The committed checksum of a block; `None` when its group is not known.
    pub fn committed_sum(&self, key: Key, block: u64) -> Option<u32> {
        let group = self.entries[key.0 as usize].groups.get(&group_of(block))?;
        Some(group.sums.get((block % GROUP_BLOCKS) as usize).copied().unwrap_or(zero_sum()))
    }

    /// Changes the committed checksum of a block of a known group.
    pub fn set_committed_sum(&mut self, key: Key, block: u64, sum: u32) {
        if self.committed_sum(key, block) != Some(sum) {
            self.forget_block(key, block);
        }
        let group = self.entry(key).groups.get_mut(&group_of(block)).expect("a known group");
        let (at, before) = ((block % GROUP_BLOCKS) as usize, group.sums.len());
        if group.sums.len() <= at {
            group.sums.resize(at + 1, zero_sum());
        }
        group.sums[at] = sum;
        group.dirty = true;
        self.used_bytes +=
            (self.entries[key.0 as usize].groups[&group_of(block)].sums.len() - before) * 4;
    }

    /// Groups whose checksums the disk does not have yet.
    pub fn dirty_groups(&self, key: Key) -> Vec<u64> {
        let groups = &self.entries[key.0 as usize].groups;
        groups.iter().filter(|(_, group)| group.dirty).map(|(index, _)| *index).collect()
    }

    /// The checksums of a known group.
    pub fn group_sums(&self, key: Key, group: u64) -> &[u32] {
        &self.entries[key.0 as usize].groups[&group].sums
    }

    /// The disk has the checksums of a group, as they are now.
    pub fn group_is_clean(&mut self, key: Key, group: u64) {
        if let Some(group) = self.entry(key).groups.get_mut(&group) {
            group.dirty = false;
        }
    }
}

impl Window {
    fn note_read(&mut self, blocks: u64, now: Time) {
        self.reused |= self.seen & blocks != 0 && now.since(self.used) > ONE_USE_SPAN;
        (self.referenced, self.used) = (true, now);
        self.seen |= blocks;
    }

    /// Appends the blocks, at most `bytes` of them; joins what lies in a row with what is behind `before`. How many
    /// bytes it were.
    fn slices(
        &self,
        blocks: Range<usize>,
        bytes: usize,
        out: &mut Vec<Frame>,
        before: usize,
    ) -> usize {
        let (mut at, mut taken) = (blocks.start, 0);
        while at < blocks.end {
            let (chunk, within) = (at / CHUNK_BLOCKS, at % CHUNK_BLOCKS);
            let count = (blocks.end - at).min(CHUNK_BLOCKS - within);
            let start = within * BLOCK_BYTES;
            let end = (start + count * BLOCK_BYTES).min(start + bytes - taken);
            let frame = self.chunks[chunk].as_ref().expect("a valid block has a frame");
            let slice = frame.slice(start..end);
            taken += end - start;
            at += count;
            let slice = match out[before..].last_mut() {
                Some(last) => last.join(slice).err(),
                None => Some(slice),
            };
            out.extend(slice);
        }
        taken
    }
}
