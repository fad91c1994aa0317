//! Reading a log at a restart: its records, one by one, and why there is no other.
//!
//! A power cut may leave the blocks of the log that were being written torn, or such that the disk cannot read them.
//! That is as good as not written, unless a record behind them says that they were durable: [`synced_behind`] tells.
//!
//! [`synced_behind`]: Reader::synced_behind

use crate::disk::Disk;
use crate::limits::{LOG_BAD_BLOCKS_MAX, RECORD_META_BLOCKS_MAX, WINDOW_BYTES};
use crate::log::{End, Generation, Record, Start};
use endpoint::FrameMut;
use node::Bug;
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
    /// That of the log's records, as far as it is known.
    pub salt: Option<u64>,
    /// Bytes of the file.
    bytes: u64,
    /// Blocks that cannot be read.
    bad: BTreeSet<u64>,
}

impl Reader<'_> {
    pub async fn new(
        disk: &Disk,
        generation: u32,
        salt: Option<u64>,
    ) -> Result<Reader<'_>, DiskError> {
        let (bytes, _) = disk.stat(DiskFile::Log(generation)).await?;
        Ok(Reader { disk, generation, salt, bytes, bad: BTreeSet::new() })
    }

    /// The log's number.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The record at an offset, its data verified.
    pub async fn record(&mut self, at: u64) -> Result<Result<(Start, Record), End>, DiskError> {
        let meta = self.read(at, RECORD_META_BLOCKS_MAX * BLOCK_BYTES).await?;
        let start = match Start::read(&meta) {
            Err(End::Here) => return Ok(Err(self.end(at, 1))),
            Err(end) => return Ok(Err(end)),
            Ok(start) => start,
        };
        let record = match self.disk.cx.has_bug(Bug::RecordSumIgnored) {
            true => start.unverified(&meta),
            false => start.record(&meta),
        };
        let Ok(record) = record else {
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

    /// The last record that any from `at` on says was durable when it was written; 0 when none is there.
    pub async fn synced_behind(&mut self, at: u64) -> Result<u64, DiskError> {
        let Some(salt) = self.salt else { return Ok(0) };
        let mut synced = 0;
        for offset in (at..self.bytes).step_by(WINDOW_BYTES) {
            let bytes = self.read(offset, WINDOW_BYTES).await?;
            for (block, place) in
                bytes.chunks_exact(BLOCK_BYTES).zip((offset..).step_by(BLOCK_BYTES))
            {
                let Ok(start) = Start::read(block) else { continue };
                let own = start.generation == Generation { number: self.generation, salt };
                if own && start.chain.synced > synced && self.is_whole(&start, place).await? {
                    synced = start.chain.synced;
                }
            }
        }
        Ok(synced)
    }

    async fn is_whole(&mut self, start: &Start, at: u64) -> Result<bool, DiskError> {
        let meta = self.read(at, start.meta_blocks * BLOCK_BYTES).await?;
        Ok(start.record(&meta).is_ok())
    }

    /// Bytes of the log; zeros for blocks that cannot be read. An error when they are too many for a power cut.
    async fn read(&mut self, at: u64, bytes: usize) -> Result<FrameMut, DiskError> {
        let file = DiskFile::Log(self.generation);
        if !self.is_bad(at, bytes / BLOCK_BYTES) {
            match self.disk.read(file, at, bytes).await {
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
