//! Where the pieces of a gathered write are taken from.
//!
//! The kernel puts them one behind the other into memory of its own, from the beginning of a page on when nothing else
//! is under way. `rep movsb` of AMD's processors goes at a third of its speed to a place that is 1 to 15 bytes behind
//! its source within the page, which is where a value in pages of its own comes behind `$8192\r\n`: 64 KiB took 41 us
//! that way and 25 us by a detour, so a detour is what such a piece takes.

use super::limits::{DETOUR_BYTES, PIECES_MAX};
use arrayvec::ArrayVec;
use endpoint::limits::PAGE_BYTES;
use std::io::IoSlice;

/// Distances within a page, from source to destination, that are slow.
const SLOW: std::ops::Range<usize> = 1..16;
/// Shorter pieces are not worth it.
const LONG_BYTES: usize = PAGE_BYTES / 2;
/// How far behind its place within a page a copy is.
const SHIFT: usize = 64;

/// Memory for pieces that take the detour.
#[derive(Debug)]
pub struct Detour {
    room: Box<[u8]>,
}

impl Detour {
    pub fn new() -> Detour {
        Detour { room: vec![0; DETOUR_BYTES].into() }
    }

    /// The first pieces, to be written at once.
    pub fn slices<'a>(
        &'a mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> ArrayVec<IoSlice<'a>, PIECES_MAX> {
        let (mut room, mut offset) = (&mut self.room[..], 0);
        let placed = pieces.take(PIECES_MAX).map(|piece| {
            let slow = is_slow(offset, piece);
            offset += piece.len();
            let copy = if slow { copied(&mut room, piece) } else { None };
            IoSlice::new(copy.unwrap_or(piece))
        });
        placed.collect()
    }
}

/// Whether this piece is slow to copy to that offset in a page's beginning.
fn is_slow(offset: usize, piece: &[u8]) -> bool {
    let distance = offset.wrapping_sub(piece.as_ptr().addr()) % PAGE_BYTES;
    piece.len() >= LONG_BYTES && SLOW.contains(&distance)
}

/// A copy of a piece that is quick to make and quick to copy. `None` when there is no room for it.
fn copied<'a>(room: &mut &'a mut [u8], piece: &[u8]) -> Option<&'a [u8]> {
    let place = piece.as_ptr().addr() + SHIFT;
    let skipped = place.wrapping_sub(room.as_ptr().addr()) % PAGE_BYTES;
    let (taken, rest) = std::mem::take(room).split_at_mut_checked(skipped + piece.len())?;
    *room = rest;
    let copy = &mut taken[skipped..];
    copy.copy_from_slice(piece);
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that begin so far behind a page's beginning.
    fn at(memory: &[u8], shift: usize, len: usize) -> &[u8] {
        let page = memory.as_ptr().align_offset(PAGE_BYTES);
        &memory[page + shift..][..len]
    }

    fn memory() -> Vec<u8> {
        (0..64 * PAGE_BYTES).map(|byte| (byte * 31 / 7) as u8).collect()
    }

    #[test]
    fn a_value_behind_a_short_head_is_taken_from_where_it_is_quick() {
        let (memory, mut detour) = (memory(), Detour::new());
        for (head, slow) in [(0, false), (1, true), (7, true), (15, true), (16, false), (22, false)]
        {
            let pieces = [at(&memory, 100, head), at(&memory, 0, 2 * PAGE_BYTES)];
            let slices = detour.slices(pieces.into_iter());
            assert_eq!(slices[1].as_ptr() != pieces[1].as_ptr(), slow, "a head of {head}");
            assert!(!is_slow(head, &slices[1]), "a head of {head}");
        }
    }

    proptest! {
        #[test]
        fn the_bytes_are_the_same(
            pieces in prop::collection::vec((0..PAGE_BYTES, 0..20 * PAGE_BYTES, any::<bool>()), 0..100)
        ) {
            let (memory, mut detour) = (memory(), Detour::new());
            let pieces = pieces.into_iter().map(|(shift, len, short)| {
                let (shift, len) = if short { (shift, len % 16) } else { (0, len) };
                at(&memory, shift, len)
            });
            let pieces: Vec<&[u8]> = pieces.collect();
            let slices = detour.slices(pieces.iter().copied());
            prop_assert_eq!(slices.len(), pieces.len().min(PIECES_MAX));
            for (slice, piece) in slices.iter().zip(&pieces) {
                prop_assert!(slice[..] == **piece);
            }
        }
    }
}
