//! Checksums of data that lies in lists of frames, piece by piece: a piece is what of it lies in one block.

use crate::protocol::{pieces, sum_at};
use endpoint::Frame;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

/// Whether the bytes fit the checksums of their pieces. The frames hold the data in order.
pub fn is_intact(data: &[Frame], offset: u64, bytes: usize, trailer: &[u8]) -> bool {
    let (mut frames, mut left) = (data.iter(), &[][..]);
    pieces(offset, bytes).enumerate().all(|(index, (_, count))| {
        let mut digest = None;
        let mut missing = count;
        while missing > 0 {
            if left.is_empty() {
                let Some(frame) = frames.next() else { return false };
                left = frame;
                continue;
            }
            let (head, rest) = left.split_at(missing.min(left.len()));
            left = rest;
            missing -= head.len();
            if digest.is_none() && missing == 0 {
                return sum_at(trailer, index) == Some(block_crc(head));
            }
            digest.get_or_insert_with(Vec::new).extend_from_slice(head);
        }
        sum_at(trailer, index) == digest.map(|bytes| block_crc(&bytes))
    })
}

/// Appends the checksums of the pieces of `slices`, which lie at `offset`, cut at block borders.
pub fn sum_pieces(offset: u64, slices: &[Frame], sums: &mut Vec<u32>) {
    let bytes = slices.iter().map(|slice| slice.len()).sum();
    let (mut slice, mut at) = (0, 0);
    let mut straddling = [0; BLOCK_BYTES];
    for (_, count) in pieces(offset, bytes) {
        if let Some(piece) = slices[slice].get(at..at + count) {
            sums.push(block_crc(piece));
            at += count;
        } else {
            let mut filled = 0;
            while filled < count {
                let some = (count - filled).min(slices[slice].len() - at);
                straddling[filled..filled + some].copy_from_slice(&slices[slice][at..at + some]);
                filled += some;
                at += some;
                if at == slices[slice].len() {
                    (slice, at) = (slice + 1, 0);
                }
            }
            sums.push(block_crc(&straddling[..count]));
        }
        if slices.get(slice).is_some_and(|slice| slice.len() == at) {
            (slice, at) = (slice + 1, 0);
        }
    }
}
