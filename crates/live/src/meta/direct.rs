//! Writes of logs past the host's cache that are on stable storage when they end: one request to the disk and a flush,
//! where a write and fdatasync(2) wait for the journal too.
//!
//! Helpers make them. io_uring would have a kernel thread flush the disk once the write has ended: it is one more that
//! waits for a processor, and where others compute on it each costs a slice of theirs.

use super::Key;
use super::blocks::Blocks;
use super::job::Job;
use crate::disk::{Direction, Transfer};
use crate::limits::META_WRITES_MAX;
use node::rings::Ticket;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A write of whole blocks of a log, with those who wait for it.
#[derive(Debug)]
pub(super) struct Flight {
    pub key: Key,
    /// Tells the log from an earlier one of the same generation.
    pub serial: u64,
    pub blocks: Blocks,
    pub descriptor: Arc<OwnedFd>,
    /// Offset of the first block in the log.
    pub offset: u64,
    pub appended: Vec<Ticket>,
    pub synced: Vec<Ticket>,
}

/// The writes under way. It owns their memory, so it outlives the helpers.
#[derive(Debug, Default)]
pub(super) struct Direct([Option<Flight>; META_WRITES_MAX]);

impl Direct {
    /// Whether another write can begin.
    pub fn has_room(&self) -> bool {
        self.0.iter().any(Option::is_none)
    }

    /// Begins a write; there must be room. The work for a helper.
    pub fn start(&mut self, flight: Flight) -> Job {
        let slot = self.0.iter().position(Option::is_none).expect("there is room");
        let flight = self.0[slot].insert(flight);
        let transfer = Transfer {
            descriptor: flight.descriptor.clone(),
            direction: Direction::Write { durable: true },
            memory: flight.blocks.memory(),
            bytes: flight.blocks.whole(),
            offset: flight.offset,
        };
        Job::Write { slot, transfer }
    }

    /// Takes out a write that has ended.
    pub fn end(&mut self, slot: usize) -> Flight {
        self.0[slot].take().expect("a write ends once")
    }
}
