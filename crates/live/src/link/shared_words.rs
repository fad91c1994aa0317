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

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!((word + 1) * WORD_BYTES <= self.0.bytes(), "a word of the ring");
        // SAFETY: inside the mapping, asserted above; aligned, because the mapping is to a page; the mapping lives as
        // long as `self`; and here and in the peer the words are only ever reached as atomics.
        unsafe { AtomicU64::from_ptr(self.0.base().as_ptr().add(word * WORD_BYTES).cast()) }
    }
}

impl PeerWords {
    /// Over the peer's memory.
    pub fn new(memory: PeerRegion) -> PeerWords {
        PeerWords(memory)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        let at = self.0.stretch(word * WORD_BYTES, WORD_BYTES).expect("a word of the ring");
        // SAFETY: inside the mapping, checked by `stretch`; aligned, because the mapping is to a page; it lives as
        // long as `self`. The mapping is read-only and the word is only ever loaded from, as `Memory` offers no more.
        unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) }
    }
}

impl Memory for OwnWords {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn copy_out(&self, word: usize, into: &mut [u64]) {
        into.iter_mut()
            .enumerate()
            .for_each(|(n, to)| *to = self.load(word + n, Ordering::Relaxed));
    }
}

impl OwnMemory for OwnWords {
    fn store(&self, word: usize, value: u64, order: Ordering) {
        self.word(word).store(value, order);
    }

    fn copy_in(&self, word: usize, from: &[u64]) {
        from.iter()
            .enumerate()
            .for_each(|(n, from)| self.store(word + n, *from, Ordering::Relaxed));
    }
}

impl Memory for PeerWords {
    fn load(&self, word: usize, order: Ordering) -> u64 {
        self.word(word).load(order)
    }

    fn copy_out(&self, word: usize, into: &mut [u64]) {
        into.iter_mut()
            .enumerate()
            .for_each(|(n, to)| *to = self.load(word + n, Ordering::Relaxed));
    }
}
