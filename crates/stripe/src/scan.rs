//! Reading a log at a restart: its records, one by one, and why there is no other.
//!
//! A power cut may leave the blocks of the log that were being written such that the disk cannot read them. They count
//! as torn, which is as good as not written, while nothing that was written later is behind them: [`goes_on`] tells.
//!
//! [`goes_on`]: Reader::goes_on

use crate::disk::Disk;
use crate::limits::{
    LOG_BAD_BLOCKS_MAX, LOG_BATCH_BYTES_MAX, RECORD_META_BLOCKS_MAX, WINDOW_BYTES,
};
use crate::log::{End, Record, Start};
use endpoint::FrameMut;
use node::rings::{DiskError, DiskFile};
use std::collections::BTreeSet;
use wire::Errno;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A log that is being read.
pub(crate) struct Reader<'a> {
    disk: &'a Disk,
    generation: u32,
    /// Where the blocks are that cannot be read.
    bad: BTreeSet<u64>,
}

impl Reader<'_> {
    pub fn new(disk: &Disk, generation: u32) -> Reader<'_> {
        Reader { disk, generation, bad: BTreeSet::new() }
    }

    /// The record at an offset, its data verified.
    pub async fn record(&mut self, at: u64) -> Result<Result<(Start, Record), End>, DiskError> {
        let meta = self.read(at, RECORD_META_BLOCKS_MAX * BLOCK_BYTES).await?;
        let start = match Start::read(&meta) {
            Err(End::Here) => return Ok(Err(self.end(at, 1))),
            Err(end) => return Ok(Err(end)),
            Ok(start) => start,
        };
        let Ok(record) = start.record(&meta) else {
            return Ok(Err(self.end(at, start.meta_blocks)));
        };
        let mut checked = 0;
        while checked < start.data_blocks {
            let count = (start.data_blocks - checked).min(WINDOW_BYTES / BLOCK_BYTES);
            let offset = at + (start.meta_blocks + checked) as u64 * BLOCK;
            let data = self.read(offset, count * BLOCK_BYTES).await?;
            let sums = data.chunks_exact(BLOCK_BYTES).map(block_crc);
            let wanted = &record.sums[checked..checked + count];
            if self.is_bad(offset, count) || !sums.eq(wanted.iter().copied()) {
                return Ok(Err(self.end(offset, count)));
            }
            checked += count;
        }
        Ok(Ok((start, record)))
    }

    /// Whether behind the block at `at` a record begins that is later than the one with this sequence, the last whole
    /// one. `salt` is the log's, if it is known.
    pub async fn goes_on(
        &mut self,
        at: u64,
        salt: Option<u64>,
        sequence: u64,
    ) -> Result<bool, DiskError> {
        let behind = at + BLOCK..at + BLOCK + LOG_BATCH_BYTES_MAX as u64;
        for offset in behind.step_by(WINDOW_BYTES) {
            let bytes = self.read(offset, WINDOW_BYTES).await?;
            let mut starts = bytes.chunks_exact(BLOCK_BYTES).filter_map(|b| Start::read(b).ok());
            if starts.any(|start| {
                let own = start.generation.number == self.generation;
                own && salt.is_none_or(|salt| start.generation.salt == salt)
                    && start.sequence > sequence
            }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Bytes of the log; zeros for blocks that cannot be read. An error when they are too many for a power cut.
    async fn read(&mut self, at: u64, bytes: usize) -> Result<FrameMut, DiskError> {
        let file = DiskFile::Log(self.generation);
        if !self.is_bad(at, bytes / BLOCK_BYTES) {
            let into = self.disk.frame(bytes).await;
            match self.disk.read(file, at, into).await {
                Err(DiskError::Failed(Errno::EIO)) => {}
                read => return Ok(read?.0),
            }
        }
        let mut out = self.disk.zeros(bytes).await;
        for (block, offset) in out.chunks_exact_mut(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
            if self.bad.contains(&offset) {
                continue;
            }
            match self.disk.read_patiently(file, offset, BLOCK_BYTES).await? {
                Some((bytes, _)) => block.copy_from_slice(&bytes),
                None if self.bad.len() == LOG_BAD_BLOCKS_MAX => {
                    return Err(DiskError::Failed(Errno::EIO));
                }
                None => drop(self.bad.insert(offset)),
            }
        }
        Ok(out)
    }

    fn is_bad(&self, at: u64, blocks: usize) -> bool {
        self.bad.range(at..at + blocks as u64 * BLOCK).next().is_some()
    }

    /// Why these blocks are not what they should be.
    fn end(&self, at: u64, blocks: usize) -> End {
        if self.is_bad(at, blocks) { End::Unreadable } else { End::Here }
    }
}
