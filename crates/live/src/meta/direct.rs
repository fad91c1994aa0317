//! Writes of logs past the host's cache that are on stable storage when they end: one request to the disk and a flush,
//! where a write and fdatasync(2) take two requests and two more for the file's length.
//!
//! They go through io_uring, so that no thread is woken for them, or through helpers where it is forbidden.

use super::Key;
use super::blocks::Blocks;
use super::job::Job;
use crate::device::Poller;
use crate::disk::{Direction, Engine, Transfer, Uring, bytes_moved};
use crate::helpers::Helpers;
use crate::limits::META_WRITES_MAX;
use node::rings::Ticket;
use rustix::io::Errno;
use std::io;
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

/// The writes under way. Dropped after the helpers that some may be with.
pub(super) struct Direct {
    engine: Engine,
    /// Made with the first write, by the thread that polls.
    uring: Option<Option<Uring>>,
    poller: Option<Poller>,
    flights: [Option<Flight>; META_WRITES_MAX],
    moved: Vec<(u32, i32)>,
}

impl Direct {
    pub fn new(engine: Engine) -> Direct {
        let flights = std::array::from_fn(|_| None);
        let moved = Vec::with_capacity(META_WRITES_MAX);
        Direct { engine, uring: None, poller: None, flights, moved }
    }

    /// From now on the end of a write ends a wait of this poller.
    pub fn attach(&mut self, poller: &Poller) {
        self.poller = Some(poller.clone());
    }

    /// Whether another write can begin.
    pub fn has_room(&self) -> bool {
        self.flights.iter().any(Option::is_none)
    }

    /// Begins a write; there must be room.
    pub fn start(&mut self, flight: Flight, helpers: &Helpers<Job>) -> io::Result<()> {
        let slot = self.flights.iter().position(Option::is_none).expect("there is room");
        let flight = self.flights[slot].insert(flight);
        let transfer = Transfer {
            descriptor: flight.descriptor.clone(),
            direction: Direction::Write { durable: true },
            memory: flight.blocks.memory(),
            bytes: flight.blocks.whole(),
            offset: flight.offset,
        };
        let (engine, poller) = (self.engine, self.poller.as_ref());
        match self.uring.get_or_insert_with(|| ring(engine, poller)) {
            Some(uring) => {
                uring.push(slot as u32, &transfer);
                uring.submit()
            }
            None => {
                helpers.submit(Job::Write { slot, transfer });
                Ok(())
            }
        }
    }

    /// Takes out a write that has ended.
    pub fn end(&mut self, slot: usize) -> Flight {
        self.flights[slot].take().expect("a write ends once")
    }

    /// Gives the writes of io_uring that have ended to `each`: the slot and the bytes.
    pub fn take(&mut self, mut each: impl FnMut(usize, Result<usize, Errno>)) -> io::Result<()> {
        let Some(Some(uring)) =
            self.uring.as_mut().filter(|_| self.flights.iter().any(Option::is_some))
        else {
            return Ok(());
        };
        uring.submit()?;
        uring.take(&mut self.moved);
        for (slot, result) in self.moved.drain(..) {
            each(slot as usize, bytes_moved(result));
        }
        Ok(())
    }

    /// About to sleep: whether a write has ended.
    pub fn before_sleep(&mut self) -> bool {
        self.uring.as_mut().and_then(Option::as_mut).is_some_and(Uring::before_sleep)
    }
}

fn ring(engine: Engine, poller: Option<&Poller>) -> Option<Uring> {
    let engine = match engine {
        // A wrong word in the environment is told by the disks.
        Engine::Auto => Engine::from_environment().unwrap_or(Engine::Threads),
        named => named,
    };
    if engine == Engine::Threads {
        return None;
    }
    let ring = Uring::new(META_WRITES_MAX).ok()?;
    poller.map_or(Ok(()), |poller| ring.watch(poller)).ok()?;
    Some(ring)
}

impl Drop for Direct {
    /// The kernel must be done with the memory before it is freed.
    fn drop(&mut self) {
        let Some(Some(uring)) = &mut self.uring else { return };
        while uring.under_way() > 0 {
            if uring.wait().is_err() {
                self.flights.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
                return;
            }
            uring.take(&mut self.moved);
        }
    }
}
