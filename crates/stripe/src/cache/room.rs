//! Room: the cache keeps to its limit, and leaves memory of the pool to requests, which find their own.
//!
//! The pool gives a run back when all of it is free, and a payload of any length wants one run. So free pages alone are
//! not room: blocks of 4 KiB that were written here and there lie in all stretches of the pool. Then the stretch that
//! holds least is cleared of what is cached there; windows lose chunks of theirs and stay. Where something else is in
//! use in every stretch, the cache is not thrown out for nothing.

use super::{Cache, Key, Window, mask};
use crate::limits::*;
use endpoint::limits::STRETCH_BYTES;
use endpoint::{Frame, FrameMut};
use wire::limits::BLOCK_BYTES;

const STRETCH_PAGES: usize = STRETCH_BYTES / BLOCK_BYTES;
const _: () = assert!(STRETCH_BYTES == TRANSFER_BYTES_MAX, "a longest WRITE takes one stretch");

impl Cache {
    /// Memory for `bytes` bytes; clean windows make room. `None` when nothing more can.
    pub fn alloc(&mut self, bytes: usize) -> Option<FrameMut> {
        while self.used_bytes + bytes > self.limit_bytes && self.retire() {}
        loop {
            if let Some(frame) = self.frames.alloc(bytes) {
                return Some(frame);
            }
            if !self.evict() {
                return None;
            }
        }
    }

    /// Keeps to the limit after frames came in that were not allocated here, and leaves some of the pool free. When
    /// nothing more could be dropped it is not tried again for every block that comes.
    pub fn shrink(&mut self) {
        let slack = self.limit_bytes / UNMET_SHARE;
        if self.unmet_at.is_some_and(|bytes| self.used_bytes.abs_diff(bytes) < slack) {
            return;
        }
        while self.is_too_large() && self.make_smaller() {}
        self.unmet_at = self.is_too_large().then_some(self.used_bytes);
    }

    /// As [`shrink`](Cache::shrink), when blocks have become clean.
    pub(super) fn shrink_anew(&mut self) {
        self.unmet_at = None;
        self.shrink();
    }

    /// Evicts something. When the pool is short it must leave the node's memory; else it may stay there as the
    /// service's.
    fn make_smaller(&mut self) -> bool {
        if self.used_bytes > self.limit_bytes { self.retire() } else { self.evict() }
    }

    fn is_too_large(&self) -> bool {
        let free_bytes = self.frames.free_pages() * BLOCK_BYTES;
        self.used_bytes > self.limit_bytes || free_bytes < self.reserve_bytes
    }

    /// Whether longest requests find runs.
    pub fn has_free_stretches(&self) -> bool {
        let wanted = (self.reserve_bytes / STRETCH_BYTES).min(FREE_STRETCHES);
        self.frames.free_largest_bytes() >= wanted * STRETCH_BYTES
    }

    /// Drops what is cached in one stretch, and leaves it free. Whether there was one.
    pub fn clear_stretch(&mut self) -> bool {
        let Some(stretch) = self.cheapest_stretch() else { return false };
        for slot in 0..self.windows.len() {
            let window = &mut self.windows[slot];
            let bytes = if window.is_clean() { window.drop_chunks_in(stretch) } else { 0 };
            self.uncount(bytes);
            let window = &self.windows[slot];
            if bytes > 0 && window.chunks.iter().all(Option::is_none) {
                self.drop_window(window.owner, window.index);
            }
        }
        true
    }

    /// The stretch with the fewest pages cached, of those in which nothing else is in use.
    fn cheapest_stretch(&self) -> Option<usize> {
        let mut clean_pages = vec![0; self.frames.stretches()];
        for window in self.windows.iter().filter(|window| window.is_clean()) {
            for chunk in window.chunks.iter().flatten() {
                clean_pages[stretch_of(chunk)] += chunk.len() / BLOCK_BYTES;
            }
        }
        let clearable = clean_pages.into_iter().enumerate().filter(|(stretch, pages)| {
            *pages > 0 && pages + self.frames.free_pages_in(*stretch) == STRETCH_PAGES
        });
        clearable.min_by_key(|(_, pages)| *pages).map(|(stretch, _)| stretch)
    }

    /// Clears a stretch of what network memory has there. Whether there was one.
    pub fn clear_lent_stretch(&self) -> bool {
        self.network().is_some_and(|network| network.clear_stretch())
    }

    /// As [`evict`](Cache::evict); the window leaves for network memory.
    pub(super) fn retire(&mut self) -> bool {
        let Some((owner, index)) = self.oldest() else { return false };
        self.send_away(owner, index);
        self.drop_window(owner, index);
        true
    }

    /// Drops the clean window that was longest unused, roughly. Whether there was one.
    pub(super) fn evict(&mut self) -> bool {
        self.oldest().map(|(owner, index)| self.drop_window(owner, index)).is_some()
    }

    /// The clean window that was longest unused, roughly.
    fn oldest(&mut self) -> Option<(Key, u64)> {
        for _ in 0..self.windows.len() * 2 {
            self.hand = (self.hand + 1) % self.windows.len();
            let window = &mut self.windows[self.hand];
            if window.is_clean() && !std::mem::take(&mut window.referenced) {
                return Some((window.owner, window.index));
            }
        }
        None
    }
}

impl Window {
    fn is_clean(&self) -> bool {
        self.live && !self.busy()
    }

    /// Drops its chunks that lie in a stretch; how many bytes they were.
    fn drop_chunks_in(&mut self, stretch: usize) -> usize {
        let mut bytes = 0;
        for (at, chunk) in self.chunks.iter_mut().enumerate() {
            if let Some(frame) = chunk.take_if(|frame| stretch_of(frame) == stretch) {
                bytes += frame.len();
                self.valid &= !mask(at * CHUNK_BLOCKS..(at + 1) * CHUNK_BLOCKS);
            }
        }
        bytes
    }
}

/// The stretch of the pool that a chunk lies in.
fn stretch_of(chunk: &Frame) -> usize {
    chunk.offset() / STRETCH_BYTES
}
