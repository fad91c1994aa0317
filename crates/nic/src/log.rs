//! The instrumented firmware's log of transfers (HotI'99 Figure 3).

use crate::command::{Ticks, Transfer};

/// One transfer, when it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The transfer: direction, engine, packet.
    pub transfer: Transfer,
    /// When the firmware started it.
    pub start: Ticks,
    /// When it ended.
    pub end: Ticks,
}

/// The first transfers of a run, as many as were asked for, in the order in which they ended.
#[derive(Clone, Debug, Default)]
pub struct Log {
    records: Vec<Record>,
    room: usize,
    lost: u64,
}

impl Log {
    /// A log that keeps `room` transfers.
    pub fn new(room: usize) -> Log {
        Log { records: Vec::with_capacity(room), room, lost: 0 }
    }

    pub(crate) fn add(&mut self, record: impl FnOnce() -> Record) {
        if self.records.len() < self.room {
            self.records.push(record());
        } else {
            self.lost += 1;
        }
    }

    /// The recorded transfers.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Transfers that found no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
