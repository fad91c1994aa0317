//! The words of ring memory: ours by atomics in our memfd, the peer's by atomics in its.

use crate::memory::{PeerRegion, SharedMemory};
use endpoint::limits::PAGE_BYTES;
use endpoint::shared::{Memory, OwnMemory, memory_words};
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BYTES: usize = 8;

/// Bytes of the memfd for rings of `slots` slots: whole pages.
pub fn ring_bytes(slots: usize) -> usize {
    (memory_words(slots) * WORD_BYTES).next_multiple_of(PAGE_BYTES)
}

/// This side's ring memory.
#[derive(Debug)]
pub struct OwnWords(SharedMemory);

/// The peer's ring memory.
#[derive(Debug)]
pub struct PeerWords(PeerRegion);

impl OwnWords {
    /// Over memory that only these rings use.
    pub fn new(memory: SharedMemory) -> OwnWords {
        OwnWords(memory)
    }

    fn words(&self) -> &[AtomicU64] {
        let first = self.0.base().as_ptr().cast::<AtomicU64>();
        // SAFETY: all of the mapping; aligned, because the mapping is to a page; the mapping lives as long as `self`;
        // and here and in the peer the words are only ever reached as atomics.
        unsafe { std::slice::from_raw_parts(first, self.0.bytes() / WORD_BYTES) }
    }
}

impl PeerWords {
    /// Over the peer's memory.
    pub fn new(memory: PeerRegion) -> PeerWords {
        PeerWords(memory)
    }

    fn words(&self) -> &[AtomicU64] {
        let first = self.0.base().cast::<AtomicU64>();
        // SAFETY: all of the mapping; aligned, because the mapping is to a page; it lives as long as `self`. The
        // mapping is read-only and the words are only ever loaded from, as `Memory` offers no more.
        unsafe { std::slice::from_raw_parts(first, self.0.bytes() / WORD_BYTES) }
    }
}

impl Memory for OwnWords {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.words()[word].load(order)
    }

    fn copy_out(&self, word: usize, into: &mut [u64]) {
        let words = &self.words()[word..][..into.len()];
        into.iter_mut().zip(words).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    }
}

impl OwnMemory for OwnWords {
    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.words()[word].store(value, order);
    }

    fn copy_in(&self, word: usize, from: &[u64]) {
        let words = &self.words()[word..][..from.len()];
        words.iter().zip(from).for_each(|(to, from)| to.store(*from, Ordering::Relaxed));
    }
}

impl Memory for PeerWords {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.words()[word].load(order)
    }

    fn copy_out(&self, word: usize, into: &mut [u64]) {
        let words = &self.words()[word..][..into.len()];
        into.iter_mut().zip(words).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
    }

    fn prefetch(&self, word: usize, count: usize) {
        self.0.prefetch(word * WORD_BYTES, count * WORD_BYTES);
    }
}
