//! Replay: puts the changes of the logs that the checkpoint does not cover over it, in order.

use crate::checkpoint::{Base, Mark};
use crate::error::StoreError;
use crate::log::{Record, scattered};
use crate::overlay::Overlay;
use std::sync::Arc;

/// What opening a store found in its logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Changes (batches) replayed.
    pub records: u64,
    /// Bytes of logs that were cut off: what a crash left of changes that never were on stable storage.
    pub torn_bytes: u64,
}

/// Where the first missing change should have been.
#[derive(Clone, Copy, Debug)]
struct Hole {
    log: u64,
    offset: u64,
}

pub(crate) struct Replay<'a> {
    base: &'a mut Base,
    overlay_bytes_max: usize,
    overlay: Overlay,
    /// The last change applied.
    sequence: u64,
    /// The last log seen.
    generation: Option<u64>,
    hole: Option<Hole>,
    recovery: Recovery,
    covered: Vec<u64>,
}

impl<'a> Replay<'a> {
    pub fn new(base: &'a mut Base, overlay_bytes_max: usize) -> Replay<'a> {
        let sequence = base.mark().sequence;
        Replay {
            base,
            overlay_bytes_max,
            overlay: Overlay::default(),
            sequence,
            generation: None,
            hole: None,
            recovery: Recovery::default(),
            covered: Vec::new(),
        }
    }

    /// Replays the next log.
    pub fn log(&mut self, generation: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(after) = self.generation.filter(|&last| last >= generation) {
            return Err(StoreError::Order { log: generation, after });
        }
        self.generation = Some(generation);
        self.covered.push(generation);
        if generation <= self.base.mark().generation {
            return Ok(());
        }
        let end = self.in_order(generation, bytes)?;
        if end < bytes.len() {
            self.recovery.torn_bytes += (bytes.len() - end) as u64;
            self.hole.get_or_insert(Hole { log: generation, offset: end as u64 });
            self.check_hole(generation, &bytes[end..])?;
        }
        Ok(())
    }

    /// Makes all that was replayed part of the checkpoint: every log seen can be dropped then. Returns them.
    pub fn finish(mut self) -> Result<(Recovery, Vec<u64>), StoreError> {
        let newest = self.generation.unwrap_or(0);
        if newest > self.base.mark().generation {
            self.commit(newest)?;
        }
        Ok((self.recovery, self.covered))
    }

    /// Applies the records that follow the last change applied; returns where they end.
    fn in_order(&mut self, generation: u64, bytes: &[u8]) -> Result<usize, StoreError> {
        let mut at = 0;
        while let Some(record) = Record::parse(&bytes[at..], generation) {
            // A record that the checkpoint covers was replayed before a crash of this very recovery.
            let known = record.header.sequence <= self.sequence;
            if !known && record.header.sequence != self.sequence + 1 {
                break;
            }
            at += record.bytes;
            if !known {
                self.apply(generation, &record)?;
            }
        }
        Ok(at)
    }

    fn apply(&mut self, generation: u64, record: &Record<'_>) -> Result<(), StoreError> {
        record.changes().for_each(|change| self.overlay.apply(change));
        self.sequence = record.header.sequence;
        self.hole = None;
        self.recovery.records += 1;
        if self.overlay.bytes() > self.overlay_bytes_max {
            self.commit(generation - 1)?;
        }
        Ok(())
    }

    /// Nothing after the hole was ever synced, or the hole is damage.
    fn check_hole(&self, generation: u64, rest: &[u8]) -> Result<(), StoreError> {
        let sequence = self.sequence + 1;
        let hole = self.hole.expect("only called for a hole");
        if scattered(rest, 0, generation).any(|record| record.header.synced >= sequence) {
            return Err(StoreError::Damaged { log: hole.log, offset: hole.offset, sequence });
        }
        Ok(())
    }

    fn commit(&mut self, generation: u64) -> Result<(), StoreError> {
        let overlay = Arc::new(std::mem::take(&mut self.overlay));
        let mark = Mark { generation, sequence: self.sequence };
        self.base.checkpoint(overlay, mark)?.write()?;
        self.base.refresh()
    }
}
