//! Replay: puts the changes of the logs that the checkpoint does not cover over it, in order.

use crate::checkpoint::{Base, Mark};
use crate::error::StoreError;
use crate::log::{Record, kind_sum, scattered};
use crate::overlay::Overlay;
use std::sync::Arc;

/// Findings of recovery in a store's logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Changes (batches) replayed.
    pub records: u64,
    /// Bytes of logs that were cut off: what a crash left of changes that never were on stable storage.
    pub torn_bytes: u64,
}

/// Position of the first missing change.
#[derive(Clone, Copy, Debug)]
struct Hole {
    log: u64,
    offset: u64,
}

pub(crate) struct Replay<'a> {
    base: &'a Base,
    overlay_bytes_max: usize,
    overlay: Overlay,
    /// The last change applied.
    sequence: u64,
    /// The sum of its record.
    chain: u32,
    /// The last log seen.
    generation: Option<u64>,
    hole: Option<Hole>,
    replayed: Replayed,
}

/// The result of a replay, and the logs that it found.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    pub recovery: Recovery,
    /// Logs with something in them.
    pub kept: Vec<u64>,
    /// Logs with nothing in them.
    pub empty: Vec<u64>,
}

impl<'a> Replay<'a> {
    pub fn new(base: &'a Base, overlay_bytes_max: usize) -> Replay<'a> {
        let mark = base.mark();
        Replay {
            base,
            overlay_bytes_max,
            overlay: Overlay::default(),
            sequence: mark.sequence,
            chain: mark.chain,
            generation: None,
            hole: None,
            replayed: Replayed::default(),
        }
    }

    /// Replays the next log.
    pub fn log(&mut self, generation: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(after) = self.generation.filter(|&last| last >= generation) {
            return Err(StoreError::Order { log: generation, after });
        }
        self.generation = Some(generation);
        let replayed = &mut self.replayed;
        let is_empty = without_zeros(bytes).is_empty();
        if is_empty { &mut replayed.empty } else { &mut replayed.kept }.push(generation);
        if generation <= self.base.mark().generation {
            // All of it is in the checkpoint; still it must not be another store's.
            return Record::parse(bytes)
                .map_or(Ok(()), |record| self.check_own(generation, &record));
        }
        let end = self.in_order(generation, bytes)?;
        if end < bytes.len() {
            let rest = without_zeros(&bytes[end..]);
            self.replayed.recovery.torn_bytes += rest.len() as u64;
            self.hole.get_or_insert(Hole { log: generation, offset: end as u64 });
            self.check_hole(generation, &bytes[end..])?;
        }
        Ok(())
    }

    /// Makes all that was replayed part of the checkpoint: every log seen can be dropped then.
    pub fn finish(mut self) -> Result<Replayed, StoreError> {
        let (newest, mark) = (self.generation.unwrap_or(0), self.base.mark());
        let last = self.replayed.kept.last().copied().unwrap_or(0);
        if mark.witness > last {
            return Err(StoreError::NoLog { log: mark.witness });
        }
        if newest > mark.generation {
            self.commit(newest)?;
        }
        Ok(self.replayed)
    }

    /// Applies the records that follow the last change applied; returns where they end.
    fn in_order(&mut self, generation: u64, bytes: &[u8]) -> Result<usize, StoreError> {
        let mut at = 0;
        while let Some(record) = Record::parse(&bytes[at..]) {
            self.check_own(generation, &record)?;
            // A record that the checkpoint covers was replayed before a crash of this very recovery.
            let known = record.header.sequence <= self.sequence;
            if !known && record.header.sequence != self.sequence + 1 {
                break;
            }
            if !known && record.header.chain != self.chain {
                let why = "its changes do not follow on those of the store";
                return Err(StoreError::Foreign { log: generation, why });
            }
            at += record.bytes;
            if !known {
                self.apply(generation, &record)?;
            }
        }
        Ok(at)
    }

    fn check_own(&self, log: u64, record: &Record<'_>) -> Result<(), StoreError> {
        let why = match record.header {
            header if header.kind != kind_sum(self.base.config().format.kind) => {
                "it is of a store of another kind"
            }
            header if header.generation != log => "it is of another generation than its name says",
            _ => return Ok(()),
        };
        Err(StoreError::Foreign { log, why })
    }

    fn apply(&mut self, generation: u64, record: &Record<'_>) -> Result<(), StoreError> {
        record.changes().for_each(|change| self.overlay.apply(change));
        self.sequence = record.header.sequence;
        self.chain = record.sum;
        self.hole = None;
        self.replayed.recovery.records += 1;
        if self.overlay.bytes() > self.overlay_bytes_max {
            self.commit(generation - 1)?;
        }
        Ok(())
    }

    /// Nothing after the hole was ever synced, or the hole is damage.
    fn check_hole(&self, generation: u64, rest: &[u8]) -> Result<(), StoreError> {
        let sequence = self.sequence + 1;
        let hole = self.hole.expect("only called for a hole");
        for record in scattered(rest, 0) {
            self.check_own(generation, &record)?;
            if record.header.synced < sequence {
                continue;
            }
            // Whole from its first byte on: what is missing was in front of it.
            if hole.log == generation && hole.offset == 0 && Record::parse(rest).is_some() {
                let begins = Record::parse(rest).map_or(sequence, |first| first.header.sequence);
                return Err(StoreError::Behind {
                    sequence: self.sequence,
                    log: generation,
                    begins,
                });
            }
            return Err(StoreError::Damaged { log: hole.log, offset: hole.offset, sequence });
        }
        Ok(())
    }

    fn commit(&mut self, generation: u64) -> Result<(), StoreError> {
        let overlay = Arc::new(std::mem::take(&mut self.overlay));
        let witness = self.base.mark().witness;
        let mark = Mark { generation, sequence: self.sequence, chain: self.chain, witness };
        self.base.checkpoint(overlay, mark)?.write()?;
        self.base.refresh()
    }
}

/// The bytes up to the last that is not zero: a world may lay a log out before it is written, as zeros. Not to be asked
/// of a record that is whole, which may end in some.
fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}
