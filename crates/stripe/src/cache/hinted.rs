//! Hinted windows that were not read yet: a bounded part of the cache, the oldest of which goes first.

use super::{Cache, Key};
use crate::limits::{HINTED_SHARE, HINTED_WINDOWS_MAX};
use std::collections::VecDeque;

/// The windows, and the memory that they take.
#[derive(Debug, Default)]
pub(super) struct Hinted {
    bytes: usize,
    /// Oldest first; some may have been read or dropped since.
    order: VecDeque<(Key, u64)>,
}

impl Cache {
    /// A hint is going to bring so many bytes: what older ones brought makes room beyond their part of the cache.
    pub fn make_room_for_hint(&mut self, bytes: usize) {
        while self.hinted.bytes + bytes > self.limit_bytes / HINTED_SHARE && self.drop_hinted() {}
    }

    /// Marks this window as hinted, unless it was read or is being written. Returns the bytes that it takes beyond
    /// those counted before.
    pub fn note_hinted(&mut self, key: Key, index: u64) -> usize {
        let Some(slot) = self.slot(key, index) else { return 0 };
        let window = &mut self.windows[slot as usize];
        if window.seen != 0 || window.busy() {
            return 0;
        }
        let (before, bytes) = (window.hinted_bytes, window.bytes());
        window.hinted_bytes = bytes;
        self.hinted.bytes = self.hinted.bytes + bytes - before;
        let more = bytes.saturating_sub(before);
        if before == 0 {
            self.hinted.order.push_back((key, index));
        }
        self.make_room_for_hint(0);
        while self.hinted.order.len() > HINTED_WINDOWS_MAX {
            self.drop_hinted();
        }
        more
    }

    /// A window is not a hint's any more.
    pub(super) fn forget_hinted(&mut self, slot: u32) {
        let bytes = std::mem::take(&mut self.windows[slot as usize].hinted_bytes);
        assert!(bytes <= self.hinted.bytes, "{bytes} of {}", self.hinted.bytes);
        self.hinted.bytes -= bytes;
    }

    /// Drops what the oldest hint brought, unless it was read or changed since. Whether there was one.
    fn drop_hinted(&mut self) -> bool {
        let Some((key, index)) = self.hinted.order.pop_front() else { return false };
        let Some(slot) = self.slot(key, index) else { return true };
        let window = &self.windows[slot as usize];
        match window.hinted_bytes > 0 && window.live && !window.busy() {
            true => self.drop_window(key, index),
            false => self.forget_hinted(slot),
        }
        true
    }
}
