//! Parts of the region in use: whole pages, the first place that is large enough.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a page of the region.
pub const PAGE_BYTES: usize = 4096;

/// Free parts, and those that malloc gave out, each by its first address.
struct Parts {
    free: BTreeMap<usize, usize>,
    given: BTreeMap<usize, usize>,
}

/// The parts of the region.
pub struct Arena(Mutex<Parts>);

impl Arena {
    /// All of it free.
    pub fn new(start: usize, bytes: usize) -> Arena {
        let free = BTreeMap::from([(start, bytes)]);
        Arena(Mutex::new(Parts { free, given: BTreeMap::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part of at least `bytes` bytes at a multiple of `alignment`. `given`: by malloc, to be found again.
    pub fn take(&self, bytes: usize, alignment: usize, given: bool) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES)?.max(PAGE_BYTES);
        let alignment = alignment.max(PAGE_BYTES);
        let mut parts = self.lock();
        let fits = |(start, len): (&usize, &usize)| {
            let at = start.checked_next_multiple_of(alignment)?;
            (at.checked_add(bytes)? <= start + len).then_some((*start, *len, at))
        };
        let (start, len, at) = parts.free.iter().find_map(fits)?;
        parts.free.remove(&start);
        if at > start {
            parts.free.insert(start, at - start);
        }
        if at + bytes < start + len {
            parts.free.insert(at + bytes, start + len - at - bytes);
        }
        if given {
            parts.given.insert(at, bytes);
        }
        Some(at)
    }

    /// Bytes of a part that malloc gave out.
    pub fn given(&self, at: usize) -> Option<usize> {
        self.lock().given.get(&at).copied()
    }

    /// Malloc's part at `at` is no longer given out; how long it was. It is to be emptied and put back.
    pub fn forget(&self, at: usize) -> Option<usize> {
        self.lock().given.remove(&at)
    }

    /// Whole pages are free again. They have been emptied.
    pub fn put(&self, at: usize, bytes: usize) {
        let mut parts = self.lock();
        let (mut start, mut end) = (at, at + bytes.next_multiple_of(PAGE_BYTES));
        if let Some((before, len)) = parts.free.range(..at).next_back().map(|(a, b)| (*a, *b))
            && before + len >= start
        {
            parts.free.remove(&before);
            (start, end) = (before, end.max(before + len));
        }
        while let Some((next, len)) = parts.free.range(start..=end).next().map(|(a, b)| (*a, *b)) {
            parts.free.remove(&next);
            end = end.max(next + len);
        }
        parts.free.insert(start, end - start);
    }
}
