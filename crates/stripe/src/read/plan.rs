//! The plan of a READ: the bytes that it returns, and which blocks are to be loaded next. Plain: nothing here waits or
//! asks.
//!
//! A READ is resolved once, into a [`ReadPlan`]. Every way to answer it executes that plan, or leaves the request
//! pending: from memory at once, from the chunk in network memory where it is, part by part while the disk reads, or as
//! a whole when all is loaded. Only when an object changed while a plan was executed is there another one.
//!
//! Missing blocks come window by window. [`WindowState::next`] decides the next load, or wait.

use crate::cache::{WindowPart, window_parts};
use crate::limits::*;
use crate::objects::Object;
use crate::protocol::ObjectRequest;
use std::ops::Range;
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The part of an object that a READ returns, as the object was when it was planned.
pub(crate) struct ReadPlan<'a> {
    pub object: Rc<Object>,
    pub ask: &'a ObjectRequest,
    /// Bytes of what is asked for that exist.
    pub bytes: usize,
    truncations: u32,
}

impl<'a> ReadPlan<'a> {
    pub fn new(object: Rc<Object>, ask: &'a ObjectRequest) -> ReadPlan<'a> {
        let (bytes, truncations) =
            (available(&object, ask), object.state.borrow().head.truncations);
        ReadPlan { object, ask, bytes, truncations }
    }

    /// End of the bytes in the object.
    pub fn end(&self) -> u64 {
        self.ask.offset + self.bytes as u64
    }

    pub fn blocks(&self) -> Range<u64> {
        self.ask.offset / BLOCK..self.end().div_ceil(BLOCK)
    }

    pub fn block_count(&self) -> usize {
        self.bytes.div_ceil(BLOCK_BYTES)
    }

    /// The blocks by window.
    pub fn parts(&self) -> impl Iterator<Item = WindowPart> + use<> {
        window_parts(self.blocks())
    }

    /// Number of the bytes in one of the parts.
    pub fn bytes_in(&self, part: &WindowPart) -> usize {
        part.bytes_of(self.ask.offset / BLOCK, self.bytes)
    }

    /// Whether it takes more than one disk read, and its transfer more time than a disk's answer varies.
    pub fn is_long(&self) -> bool {
        self.bytes >= THROUGH_BYTES_MIN && self.parts().nth(1).is_some()
    }

    /// Whether the READ follows the one before it, or is as long as what is read ahead.
    pub fn is_sequential(&self) -> bool {
        let next_block = self.object.state.borrow().next_block;
        next_block == self.blocks().start || self.block_count() >= WINDOW_BLOCKS
    }

    /// Whether as many of the bytes exist as when it was planned.
    pub fn has_same_bytes(&self) -> bool {
        available(&self.object, self.ask) == self.bytes
    }

    /// Whether nothing of it was truncated since it was planned.
    pub fn is_untruncated(&self) -> bool {
        self.object.state.borrow().head.truncations == self.truncations
    }
}

fn available(object: &Object, ask: &ObjectRequest) -> usize {
    let length = object.state.borrow().head.length;
    length.saturating_sub(ask.offset).min(ask.bytes.into()) as usize
}

/// State of a window's blocks, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowState {
    /// In memory.
    pub valid: u64,
    /// On their way there.
    pub loading: u64,
    /// So many of them the object has.
    pub end: usize,
}

/// The next step that brings wanted blocks of a window into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: they are there, or were truncated.
    Nothing,
    /// A load that is under way.
    Wait,
    /// A load of these blocks, of which `needed` is wanted.
    Load { blocks: Range<usize>, needed: usize },
}

impl WindowState {
    /// The step that brings the first missing block of `wanted`: as few loads as what is there and under way allows. A
    /// sequential reader gets the whole window, others whole chunks. No block is loaded twice at a time.
    pub fn next(&self, wanted: &Range<usize>, sequential: bool) -> Next {
        let is_loading = |block: &usize| self.loading >> block & 1 == 1;
        let mut missing = wanted.clone().filter(|block| self.valid >> block & 1 == 0);
        let Some(needed) = missing.next() else { return Next::Nothing };
        if is_loading(&needed) {
            return Next::Wait;
        }
        if needed >= self.end {
            return Next::Nothing; // its bytes may still be on disk, its checksum is gone
        }
        let (start, end) = match sequential && self.valid | self.loading == 0 {
            true => (0, WINDOW_BLOCKS),
            false => {
                let last = missing.next_back().unwrap_or(needed);
                (needed / CHUNK_BLOCKS * CHUNK_BLOCKS, (last + 1).next_multiple_of(CHUNK_BLOCKS))
            }
        };
        let start = (start..needed).rfind(is_loading).map_or(start, |block| block + 1);
        let end = end.min(self.end);
        let end = (needed..end).find(is_loading).unwrap_or(end);
        Next::Load { blocks: start..end, needed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bits(blocks: Range<usize>) -> u64 {
        blocks.fold(0, |bits, block| bits | 1 << block)
    }

    fn next(valid: u64, loading: u64, end: usize, wanted: Range<usize>, sequential: bool) -> Next {
        WindowState { valid, loading, end }.next(&wanted, sequential)
    }

    fn load(blocks: Range<usize>, needed: usize) -> Next {
        Next::Load { blocks, needed }
    }

    #[test]
    fn a_reader_of_a_few_blocks_loads_their_chunks_and_a_sequential_one_the_window() {
        assert_eq!(next(0, 0, 64, 9..11, false), load(8..16, 9));
        assert_eq!(next(0, 0, 64, 15..17, false), load(8..24, 15));
        assert_eq!(next(0, 0, 64, 9..11, true), load(0..64, 9));
        assert_eq!(next(0, 0, 13, 9..11, true), load(0..13, 9));
        // Not again what is there.
        assert_eq!(next(1, 0, 64, 9..11, true), load(8..16, 9));
        assert_eq!(next(bits(8..16), 0, 64, 9..30, true), load(16..32, 16));
        assert_eq!(next(bits(8..16), 0, 64, 9..11, true), Next::Nothing);
    }

    #[test]
    fn what_is_on_its_way_is_waited_for_and_not_loaded_again() {
        assert_eq!(next(0, bits(8..16), 64, 9..11, false), Next::Wait);
        assert_eq!(next(0, bits(16..24), 64, 9..20, false), load(8..16, 9));
        assert_eq!(next(0, bits(8..10), 64, 11..12, false), load(10..16, 11));
    }

    #[test]
    fn what_was_truncated_is_not_loaded() {
        assert_eq!(next(0, 0, 9, 9..11, false), Next::Nothing);
        assert_eq!(next(0, 0, 10, 9..11, false), load(8..10, 9));
    }

    proptest! {
        /// Loads end one at a time, and others come in between: at the end every block that exists was loaded, none
        /// of them twice at a time.
        #[test]
        fn all_that_is_wanted_comes(
            valid in any::<u64>(), loading in any::<u64>(), end in 0usize..=64,
            (first, count) in (0usize..64, 1usize..64), sequential in any::<bool>(),
        ) {
            let wanted = first..(first + count).min(64);
            let mut state = WindowState { valid, loading: loading & !valid, end };
            for _ in 0..64 {
                match state.next(&wanted, sequential) {
                    Next::Nothing => break,
                    Next::Wait => {
                        prop_assert_ne!(state.loading, 0);
                        state.valid |= state.loading;
                        state.loading = 0;
                    }
                    Next::Load { blocks, needed } => {
                        prop_assert!(blocks.contains(&needed) && wanted.contains(&needed));
                        prop_assert!(blocks.end <= end);
                        prop_assert_eq!((state.valid >> needed & 1, bits(blocks.clone()) & state.loading), (0, 0));
                        let sooner = wanted.start..needed;
                        prop_assert_eq!(bits(sooner.clone()) & state.valid, bits(sooner));
                        state.valid |= bits(blocks);
                    }
                }
            }
            let existing = wanted.start..wanted.end.min(end).max(wanted.start);
            prop_assert_eq!(bits(existing.clone()) & state.valid, bits(existing));
        }
    }
}
