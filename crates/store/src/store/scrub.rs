//! Scrub: reads the whole checkpoint now and then, a few keys at a time, so that damage is found which nothing else
//! reads. It begins by opening the database anew: what redb's cache has would not be read from the disk.

use super::Store;
use crate::error::StoreError;
use crate::limits::{SCRUB_KEYS, SCRUB_PAUSE};
use std::ops::{Bound, ControlFlow};
use std::time::Duration;

/// The outcome of a step of the scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrub {
    /// There is more to read.
    Going,
    /// All was read, and is what was written.
    Clean,
    /// Something is not what was written; [`Store::health`] says what.
    Damaged,
}

/// Counters of the scrub since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounters {
    /// Keys read, in all rounds.
    pub keys: u64,
    /// Keys read in the present round, or in the last one while none is under way.
    pub round_keys: u64,
    /// Keys that it is about to read in all: those of the checkpoint when it began.
    pub total_keys: u64,
    /// Whether a round is under way.
    pub running: bool,
    /// Rounds over all keys that ended without damage.
    pub clean: u64,
    /// Rounds that ended at damage.
    pub damaged: u64,
}

/// Whether a store holds what was written, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Counters of the scrub.
    pub scrub: ScrubCounters,
    /// Reads of pages that are not what was written.
    pub damaged_reads: u64,
    /// The last damage that was found, as a sentence.
    pub damage: Option<String>,
}

/// Progress of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    after: Option<Vec<u8>>,
    pub counters: ScrubCounters,
}

impl Store {
    /// Does the next step of the scrub; when the next one is due, where a round begins this long after the one before
    /// has ended.
    pub fn scrub_on(&mut self, period: Duration) -> Duration {
        if !self.scrub.counters.running && !self.scrub_begin() {
            return SCRUB_PAUSE;
        }
        // Also a short period leaves the node to others between two rounds.
        if self.scrub_step(SCRUB_KEYS) == Scrub::Going {
            SCRUB_PAUSE
        } else {
            period.max(SCRUB_PAUSE)
        }
    }

    /// Begins a round from the first key; `false` while a checkpoint is under way: try again when it is done.
    pub fn scrub_begin(&mut self) -> bool {
        if self.is_checkpointing() {
            return false;
        }
        self.scrub.after = None;
        // The first step finds a failure of this.
        self.reopen();
        let total_keys = self.base.keys().unwrap_or(0);
        let before = self.scrub.counters;
        self.scrub.counters = ScrubCounters { round_keys: 0, total_keys, running: true, ..before };
        true
    }

    /// Reads the next `count` keys.
    pub fn scrub_step(&mut self, count: usize) -> Scrub {
        let result = self.scrub_keys(count);
        let counters = &mut self.scrub.counters;
        counters.running = matches!(result, Ok((read, _)) if read == count);
        match result {
            Ok((read, last)) => {
                counters.keys += read as u64;
                counters.round_keys += read as u64;
                self.scrub.after = last;
                if read == count {
                    return Scrub::Going;
                }
                counters.clean += 1;
                Scrub::Clean
            }
            Err(_) => {
                counters.damaged += 1;
                Scrub::Damaged
            }
        }
    }

    /// Whether it holds what was written, as far as it was read since it was opened.
    pub fn health(&self) -> Health {
        Health {
            scrub: self.scrub.counters,
            damaged_reads: self.damaged_reads.get(),
            damage: self.last_damage.borrow().clone(),
        }
    }

    fn scrub_keys(&self, count: usize) -> Result<(usize, Option<Vec<u8>>), StoreError> {
        let (mut read, mut last) = (0, None);
        let from = self.scrub.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.scan((from, Bound::Unbounded), |key, _| {
            read += 1;
            if read < count {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        Ok((read, last))
    }
}
