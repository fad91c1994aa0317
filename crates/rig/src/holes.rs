//! Holes of a file that is bytes in memory: zeros are holes.

use std::ops::Range;

/// The part of a range that such a file has.
fn part(bytes: &[u8], offset: u64, count: u64) -> Range<usize> {
    let end = bytes.len().min(offset.saturating_add(count) as usize);
    (offset as usize).min(end)..end
}

/// Zeroes a range, as far as the file goes.
pub fn punch(bytes: &mut [u8], offset: u64, count: u64) {
    let range = part(bytes, offset, count);
    bytes[range].fill(0);
}

/// Position of the first byte of a range that is not in a hole; its end when there is none.
pub fn find_data(bytes: &[u8], offset: u64, count: u64) -> u64 {
    let data = bytes[part(bytes, offset, count)].iter().position(|byte| *byte != 0);
    offset + data.map_or(count, |at| at as u64)
}

/// Storage of a range of whole blocks of 4 KiB: of those that are not zeros.
pub fn stored(bytes: &[u8], offset: u64, count: u64) -> u64 {
    let blocks = bytes[part(bytes, offset, count)].chunks(4096);
    4096 * blocks.filter(|block| block.iter().any(|byte| *byte != 0)).count() as u64
}
