//! Bytes in whole blocks of memory, aligned as transfers past the host's cache need them.

use wire::limits::BLOCK_BYTES;

/// Blocks that stay allocated for the next write.
const SPARE_BLOCKS: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == BLOCK_BYTES);

/// Some bytes, and zeros behind them up to the end of their last block.
#[derive(Default)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    bytes: usize,
}

impl Blocks {
    /// So many zeros.
    pub fn zeros(bytes: usize) -> Blocks {
        Blocks { blocks: vec![Block([0; BLOCK_BYTES]); bytes.div_ceil(BLOCK_BYTES)], bytes }
    }

    /// Bytes without the zeros behind.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Bytes with them.
    pub fn whole(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// All of it, with the zeros.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the blocks are one after the other without gaps, and every byte of them is initialised.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.whole()) }
    }

    /// Where it begins. It stays there until something is appended or dropped.
    pub fn memory(&mut self) -> *mut u8 {
        self.blocks.as_mut_ptr().cast()
    }

    /// Appends.
    pub fn extend(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let within = self.bytes % BLOCK_BYTES;
            if within == 0 {
                self.blocks.push(Block([0; BLOCK_BYTES]));
            }
            let taken = bytes.len().min(BLOCK_BYTES - within);
            let (now, rest) = bytes.split_at(taken);
            let last = self.blocks.last_mut().expect("there is a block to append to");
            last.0[within..within + taken].copy_from_slice(now);
            (self.bytes, bytes) = (self.bytes + taken, rest);
        }
    }

    /// Drops the blocks that are full.
    pub fn drop_full(&mut self) {
        let full = self.bytes / BLOCK_BYTES;
        self.blocks.drain(..full);
        self.blocks.shrink_to(SPARE_BLOCKS);
        self.bytes -= full * BLOCK_BYTES;
    }
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Blocks({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_order_with_zeros_behind() {
        let (mut blocks, mut all) = (Blocks::default(), Vec::new());
        for number in 0..200usize {
            let some = vec![number as u8 | 1; number * 37 % 9000];
            blocks.extend(&some);
            all.extend(some);
            assert_eq!(blocks.len(), all.len());
            assert_eq!(blocks.whole(), all.len().next_multiple_of(BLOCK_BYTES));
            assert!(blocks.memory().addr().is_multiple_of(BLOCK_BYTES) || all.is_empty());
            let (bytes, zeros) = blocks.as_slice().split_at(all.len());
            assert!(bytes == all && zeros.iter().all(|byte| *byte == 0));
            if number % 5 == 0 {
                blocks.drop_full();
                all.drain(..all.len() / BLOCK_BYTES * BLOCK_BYTES);
            }
        }
    }
}
