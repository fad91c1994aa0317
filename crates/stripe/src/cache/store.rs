//! How blocks come into the cache: from the disk, and from writers.

use super::*;
use crate::protocol::{pieces, sum_at};
use wire::checksum::block_crc;

/// Copies `out.len()` bytes from `at` of the bytes in `data`.
fn copy_from(data: &[Frame], mut at: usize, mut out: &mut [u8]) {
    for frame in data {
        if at >= frame.len() {
            at -= frame.len();
            continue;
        }
        let count = out.len().min(frame.len() - at);
        out[..count].copy_from_slice(&frame[at..at + count]);
        out = &mut out[count..];
        at = 0;
        if out.is_empty() {
            return;
        }
    }
    assert!(out.is_empty(), "as many bytes as were announced");
}

/// The bytes as one slice of one frame that starts on a page, if they lie so.
fn page_slice(data: &[Frame], mut at: usize, bytes: usize) -> Option<Frame> {
    for frame in data {
        if at >= frame.len() {
            at -= frame.len();
            continue;
        }
        let fits = at + bytes <= frame.len() && (frame.offset() + at).is_multiple_of(BLOCK_BYTES);
        return fits.then(|| frame.slice(at..at + bytes));
    }
    None
}

/// A write into one chunk.
struct Part<'a> {
    /// Bytes within the chunk.
    bytes: Range<usize>,
    data: &'a [Frame],
    /// Its start in the data.
    at: usize,
    trailer: &'a [u8],
    /// Its first checksum in the trailer.
    piece: usize,
}

impl Part<'_> {
    /// Blocks touched, within the chunk.
    fn blocks(&self) -> Range<usize> {
        self.bytes.start / BLOCK_BYTES..self.bytes.end.div_ceil(BLOCK_BYTES)
    }

    fn whole_blocks(&self) -> bool {
        self.bytes.start.is_multiple_of(BLOCK_BYTES) && self.bytes.end.is_multiple_of(BLOCK_BYTES)
    }
}

impl Cache {
    /// Puts blocks from the disk where nothing newer is: `frame` holds whole blocks from block `first` of the window.
    pub fn insert(
        &mut self,
        key: Key,
        index: u64,
        first: usize,
        frame: &Frame,
        sums: &[u32],
    ) -> Result<(), Full> {
        assert!(frame.len().is_multiple_of(BLOCK_BYTES), "whole blocks from the disk");
        assert!(sums.len() == frame.len() / BLOCK_BYTES, "a checksum for each block");
        let slot = self.window(key, index);
        let end = first + frame.len() / BLOCK_BYTES;
        assert!(end <= WINDOW_BLOCKS, "blocks of one window");
        let mut at = first;
        while at < end {
            let chunk = at / CHUNK_BLOCKS;
            let until = end.min((chunk + 1) * CHUNK_BLOCKS);
            let bytes = (at - first) * BLOCK_BYTES..(until - first) * BLOCK_BYTES;
            let part = frame.slice(bytes);
            self.insert_chunk(slot, at..until, part, &sums[at - first..until - first])?;
            at = until;
        }
        self.shrink();
        Ok(())
    }

    fn insert_chunk(
        &mut self,
        slot: u32,
        blocks: Range<usize>,
        part: Frame,
        sums: &[u32],
    ) -> Result<(), Full> {
        let window = &self.windows[slot as usize];
        let chunk = blocks.start / CHUNK_BLOCKS;
        let chunk_mask = mask(chunk * CHUNK_BLOCKS..(chunk + 1) * CHUNK_BLOCKS);
        let missing = mask(blocks.clone()) & !window.valid;
        if window.valid & chunk_mask == 0 && blocks.start.is_multiple_of(CHUNK_BLOCKS) {
            self.replace(slot, chunk, part);
        } else if missing != 0 {
            let count = blocks.end - chunk * CHUNK_BLOCKS;
            let mut frame = self.writable(slot, chunk, count)?;
            for block in bit_runs(missing).flatten() {
                let (to, from) = (block % CHUNK_BLOCKS * BLOCK_BYTES, block - blocks.start);
                let bytes = &part[from * BLOCK_BYTES..(from + 1) * BLOCK_BYTES];
                frame[to..to + BLOCK_BYTES].copy_from_slice(bytes);
            }
            self.put_back(slot, chunk, frame);
        }
        let window = &mut self.windows[slot as usize];
        for block in bit_runs(missing).flatten() {
            window.sums[block] = sums[block - blocks.start];
        }
        window.valid |= missing;
        Ok(())
    }

    /// Writes `bytes` bytes at `offset` of the object and marks their blocks dirty. The trailer's checksums are
    /// verified already. A block that is written in part is among `edges`, or is here, or does not exist: then the rest
    /// of it becomes zero.
    pub fn write(
        &mut self,
        key: Key,
        offset: u64,
        bytes: usize,
        data: &[Frame],
        trailer: &[u8],
        edges: Vec<Block>,
    ) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        // Memory for one block of the write must not be made by throwing out another that it is to be merged with.
        let ends = [offset, offset + bytes as u64 - 1];
        let ends = ends.map(|at| self.window(key, at / WINDOW_BYTES as u64));
        self.pin(ends, true);
        let back: Result<(), Full> =
            edges.into_iter().try_for_each(|block| self.put_again(key, block));
        let written = back.and_then(|()| self.write_chunks(key, offset, bytes, data, trailer));
        self.pin(ends, false);
        self.shrink();
        written
    }

    fn pin(&mut self, slots: [u32; 2], pinned: bool) {
        for slot in slots {
            self.windows[slot as usize].pinned = pinned;
        }
    }

    /// Puts a block back that may have been thrown out since it was here.
    fn put_again(&mut self, key: Key, block: Block) -> Result<(), Full> {
        let (index, at) = window_of(block.number);
        let slot = self.window(key, index);
        self.insert_chunk(slot, at..at + 1, block.bytes, &[block.sum])
    }

    fn write_chunks(
        &mut self,
        key: Key,
        offset: u64,
        bytes: usize,
        data: &[Frame],
        trailer: &[u8],
    ) -> Result<(), Full> {
        let (mut at, mut piece) = (0, 0);
        while at < bytes {
            let position = offset + at as u64;
            let start = (position % CHUNK_BYTES as u64) as usize;
            let count = (bytes - at).min(CHUNK_BYTES - start);
            let part = Part { bytes: start..start + count, data, at, trailer, piece };
            let (index, chunk) = (
                position / WINDOW_BYTES as u64,
                (position % WINDOW_BYTES as u64) as usize / CHUNK_BYTES,
            );
            piece += part.blocks().len();
            self.write_chunk(key, index, chunk, &part)?;
            at += count;
        }
        Ok(())
    }

    fn write_chunk(
        &mut self,
        key: Key,
        index: u64,
        chunk: usize,
        part: &Part<'_>,
    ) -> Result<(), Full> {
        let slot = self.window(key, index);
        let base = chunk * CHUNK_BLOCKS;
        let blocks = part.blocks();
        let touched = mask(base + blocks.start..base + blocks.end);
        let others = mask(base..base + CHUNK_BLOCKS) & !touched & self.windows[slot as usize].valid;
        let adopted = (others == 0 && part.bytes.start == 0 && part.whole_blocks())
            .then(|| page_slice(part.data, part.at, part.bytes.len()))
            .flatten();
        match adopted {
            Some(frame) => {
                self.replace(slot, chunk, frame);
                let window = &mut self.windows[slot as usize];
                for (piece, block) in blocks.enumerate() {
                    window.sums[base + block] =
                        sum_at(part.trailer, part.piece + piece).expect("a verified trailer");
                }
            }
            None => self.write_copy(slot, chunk, part)?,
        }
        self.mark_dirty(key, slot, touched);
        Ok(())
    }

    /// Copies a part into its chunk; blocks written in part are summed anew.
    fn write_copy(&mut self, slot: u32, chunk: usize, part: &Part<'_>) -> Result<(), Full> {
        let base = chunk * CHUNK_BLOCKS;
        let mut frame = self.writable(slot, chunk, part.blocks().end)?;
        let start = part.bytes.start as u64;
        for (piece, (at, count)) in pieces(start, part.bytes.len()).enumerate() {
            let position = part.bytes.start + at;
            let (block, within) = (position / BLOCK_BYTES, position % BLOCK_BYTES);
            let bytes = &mut frame[block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES];
            let fresh = self.windows[slot as usize].valid >> (base + block) & 1 == 0;
            if fresh && count < BLOCK_BYTES {
                bytes.fill(0);
            }
            copy_from(part.data, part.at + at, &mut bytes[within..within + count]);
            let whole = within == 0 && (fresh || count == BLOCK_BYTES);
            let sum = if whole {
                sum_at(part.trailer, part.piece + piece).expect("a verified trailer")
            } else {
                block_crc(bytes)
            };
            self.windows[slot as usize].sums[base + block] = sum;
        }
        self.put_back(slot, chunk, frame);
        Ok(())
    }

    pub(super) fn mark_dirty(&mut self, key: Key, slot: u32, blocks: u64) {
        let now = self.away.now();
        let window = &mut self.windows[slot as usize];
        assert!(window.live && window.owner == key, "the window is the object's");
        let before = (window.dirty | window.committing).count_ones();
        window.valid |= blocks;
        window.dirty |= blocks;
        (window.referenced, window.used) = (true, now);
        let added = (window.dirty | window.committing).count_ones() - before;
        let index = window.index;
        self.forget_blocks(key, index, blocks);
        let entry = self.entry(key);
        entry.dirty.insert(index);
        let disk = entry.disk;
        self.dirty_blocks[disk] += added as usize;
    }

    /// Takes a chunk's frame out, writable and at least `blocks` long: itself when it is not shared, else a copy.
    pub(super) fn writable(
        &mut self,
        slot: u32,
        chunk: usize,
        blocks: usize,
    ) -> Result<FrameMut, Full> {
        let old = self.windows[slot as usize].chunks[chunk].take();
        let old_bytes = old.as_ref().map_or(0, |frame| frame.len());
        self.uncount(old_bytes);
        let bytes = blocks * BLOCK_BYTES;
        let shared = match old.map(Frame::try_mut) {
            Some(Ok(frame)) if frame.len() >= bytes => return Ok(frame),
            Some(Ok(frame)) => Some(frame.freeze()),
            Some(Err(frame)) => Some(frame),
            None => None,
        };
        // The window must not make room for its own chunk.
        let pinned = std::mem::replace(&mut self.windows[slot as usize].pinned, true);
        let fresh = self.alloc(bytes.max(old_bytes));
        self.windows[slot as usize].pinned = pinned;
        match (fresh, shared) {
            (Some(mut fresh), Some(shared)) => {
                fresh[..shared.len()].copy_from_slice(&shared);
                Ok(fresh)
            }
            (Some(fresh), None) => Ok(fresh),
            (None, shared) => {
                self.used_bytes += old_bytes;
                self.windows[slot as usize].chunks[chunk] = shared;
                Err(Full)
            }
        }
    }

    pub(super) fn put_back(&mut self, slot: u32, chunk: usize, frame: FrameMut) {
        self.replace(slot, chunk, frame.freeze());
    }

    fn replace(&mut self, slot: u32, chunk: usize, frame: Frame) {
        assert!(frame.len() <= CHUNK_BYTES, "a chunk's frame holds one chunk");
        self.used_bytes += frame.len();
        let old = self.windows[slot as usize].chunks[chunk].replace(frame);
        self.uncount(old.map_or(0, |frame| frame.len()));
    }
}
