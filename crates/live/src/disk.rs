//! The disks of a node: executes the entries of its disk ring on directories.
//!
//! A flight owns its operation, frames included, from the ring's entry to its completion. Transfers go to io_uring,
//! or to helper threads where io_uring is forbidden; all else goes to helper threads, so that the node's thread never
//! waits for a disk. Offsets, lengths and memory that are multiples of 4 KiB move past the host's cache where the
//! file system can, everything else through it; the kernel keeps both views coherent.
//!
//! It is not a cache and not a scheduler: it starts operations in the order of the ring and completes them in any.
//!
//! ```text
//! admitted -> open? -> transfer, again while short -> sync of the name? -> held back by a throttle? -> done
//! ```

mod config;
mod descriptors;
mod device;
mod directory;
mod flight;
mod layout;
mod listing;
mod task;
mod throttle;
mod uring;

pub use config::{DiskConfig, DisksError, Engine};
pub use directory::{OpenError, is_unused};
pub(crate) use task::{Direction, Transfer};
pub use throttle::{BadThrottle, Throttle};

use crate::helpers::Helpers;
use crate::limits::{DISK_DESCRIPTORS_MAX, DISK_HELPERS, DISK_OPS_MAX};
use descriptors::{Descriptors, Key};
use directory::Directory;
use endpoint::limits::PAGE_BYTES;
use flight::{Flight, bytes_of};
use node::rings::{DiskDone, DiskError, DiskFile, DiskId, DiskOp, DiskReply, DiskRequest};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use task::{Brought, Job, Task};
use throttle::Meter;
use uring::Uring;
use wire::Time;

/// A helper's result for a flight.
type Finished = (u32, Result<Brought, DiskError>);

/// The disks of one node, by [`DiskId`]. Belongs to the node's thread.
pub struct Disks {
    /// `None`: it could not be opened, the others serve.
    disks: Vec<Option<Disk>>,
    lost: Vec<(DiskId, OpenError)>,
    // The engines come before the flights, so that they are done with every frame when the flights are dropped.
    uring: Option<Uring>,
    helpers: Helpers<Job>,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    descriptors: Descriptors,
    held: BinaryHeap<Reverse<(Time, u32)>>,
    done: VecDeque<DiskDone>,
    moved: Vec<(u32, i32)>,
    brought: Vec<Finished>,
    now: Time,
}

struct Disk {
    directory: Arc<Directory>,
    meter: Option<Meter>,
    /// Removals and renamings begun and ended: a descriptor opened across one may be another file's.
    renamings: u64,
}

impl Disk {
    fn open(config: &DiskConfig) -> Result<Disk, OpenError> {
        let directory = Arc::new(Directory::open(&config.path, config.direct)?);
        Ok(Disk { directory, meter: config.throttle.map(Meter::new), renamings: 0 })
    }
}

impl Disks {
    /// Opens every disk; their ids are their positions. One that is not there, or cannot be written, is *lost*: its
    /// operations fail, the others serve. An error when none is left, or when one is in use or full.
    pub fn open(disks: &[DiskConfig], engine: Engine) -> Result<Disks, DisksError> {
        let engine = match engine {
            Engine::Auto => Engine::from_environment()?,
            named => named,
        };
        let (mut opened, mut lost) = (Vec::new(), Vec::new());
        for (number, disk) in (0..).zip(disks) {
            let (one, error) = match Disk::open(disk) {
                Ok(disk) => (Some(disk), None),
                Err(error) => (None, Some((DiskId(number), error))),
            };
            opened.push(one);
            lost.extend(error);
        }
        let hopeless = lost.len() == opened.len();
        if let Some(first) = lost.iter().position(|(_, error)| hopeless || !error.is_loss()) {
            return Err(lost.swap_remove(first).1.into());
        }
        let uring = match engine {
            Engine::Threads => None,
            Engine::Auto => Uring::new(DISK_OPS_MAX).ok(),
            Engine::Uring => Some(Uring::new(DISK_OPS_MAX).map_err(DisksError::NoUring)?),
        };
        Ok(Disks {
            disks: opened,
            lost,
            uring,
            helpers: Helpers::start("disk", DISK_HELPERS).map_err(DisksError::NoHelpers)?,
            flights: (0..DISK_OPS_MAX).map(|_| None).collect(),
            free: (0..DISK_OPS_MAX as u32).rev().collect(),
            descriptors: Descriptors::new(descriptors_max()),
            held: BinaryHeap::with_capacity(DISK_OPS_MAX),
            done: VecDeque::with_capacity(DISK_OPS_MAX),
            moved: Vec::with_capacity(DISK_OPS_MAX),
            brought: Vec::with_capacity(DISK_OPS_MAX),
            now: Time::ZERO,
        })
    }

    /// The disks that could not be opened, and why.
    pub fn lost(&self) -> &[(DiskId, OpenError)] {
        &self.lost
    }

    /// The engine in use: never [`Engine::Auto`].
    pub fn engine(&self) -> Engine {
        if self.uring.is_some() { Engine::Uring } else { Engine::Threads }
    }

    /// Whether another operation can be started.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Operations started and not yet given back.
    pub fn under_way(&self) -> usize {
        DISK_OPS_MAX - self.free.len() + self.done.len()
    }

    /// Starts an operation; there must be room.
    pub fn start(&mut self, request: DiskRequest, now: Time) {
        self.now = now;
        let Some(Some(disk)) = self.disks.get_mut(usize::from(request.disk.0)) else {
            let result = Err(DiskError::Missing);
            return self.done.push_back(DiskDone { ticket: request.ticket, result });
        };
        let bytes = bytes_of(&request.op);
        let not_before = disk.meter.as_mut().map_or(now, |meter| meter.admit(now, bytes));
        let slot = self.free.pop().expect("the caller has seen that there is room");
        self.flights[slot as usize] = Some(Flight::new(request, not_before));
        self.begin(slot);
    }

    /// Hands on what was started and takes what is finished; whether anything moved.
    pub fn turn(&mut self, now: Time) -> io::Result<bool> {
        self.now = now;
        if let Some(uring) = &mut self.uring {
            uring.submit()?;
        }
        Ok(self.take_results() | self.release_held())
    }

    /// The next finished operation.
    pub fn next_done(&mut self) -> Option<DiskDone> {
        self.done.pop_front()
    }

    fn take_results(&mut self) -> bool {
        let mut moved = std::mem::take(&mut self.moved);
        if let Some(uring) = &mut self.uring {
            uring.take(&mut moved);
        }
        let mut brought = std::mem::take(&mut self.brought);
        self.helpers.take(|finished| brought.push(finished));
        let any = !moved.is_empty() || !brought.is_empty();
        for (slot, result) in moved.drain(..) {
            self.handle_moved(slot, bytes_moved(result));
        }
        for (slot, result) in brought.drain(..) {
            self.handle_brought(slot, result);
        }
        (self.moved, self.brought) = (moved, brought);
        any
    }

    fn release_held(&mut self) -> bool {
        let mut moved = false;
        while let Some(Reverse((time, slot))) = self.held.peek().copied() {
            if time > self.now {
                break;
            }
            self.held.pop();
            let result = self.flight(slot).result.take();
            self.give_back(slot, result.expect("held back with its outcome"));
            moved = true;
        }
        moved
    }

    /// The first step of an operation.
    fn begin(&mut self, slot: u32) {
        let flight = self.flight(slot);
        let disk = flight.disk;
        let task = match &flight.op {
            DiskOp::Read { .. } | DiskOp::Write { .. } => return self.transfer(slot),
            DiskOp::Sync { file } => {
                let file = *file;
                Task::Sync { file, open: self.any_descriptor(disk, file) }
            }
            DiskOp::SyncAll => Task::SyncAll,
            DiskOp::Truncate { file, bytes } => Task::Truncate { file: *file, bytes: *bytes },
            DiskOp::Punch { file, offset, bytes } => {
                Task::Punch { file: *file, offset: *offset, bytes: *bytes }
            }
            DiskOp::FindData { file, offset, bytes } => {
                Task::FindData { file: *file, offset: *offset, bytes: *bytes }
            }
            DiskOp::Remove { file } => {
                let file = *file;
                Task::Remove { file, open: self.forget(disk, file) }
            }
            DiskOp::Rename { from, to } => {
                let (from, to) = (*from, *to);
                self.forget(disk, from);
                Task::Rename { from, to, replaced: self.forget(disk, to) }
            }
            DiskOp::Stat { file, without } => Task::Stat { file: *file, without: without.clone() },
            DiskOp::List(which) => Task::List(*which),
            DiskOp::Space => Task::Space,
        };
        self.help(slot, task);
    }

    /// Moves what is left of a read or write, after opening the file if need be.
    fn transfer(&mut self, slot: u32) {
        let Disk { directory, renamings, .. } = self.disk(slot);
        let (may_direct, renamings) = (directory.is_direct(), *renamings);
        let flight = self.flight(slot);
        flight.renamings = renamings;
        flight.direct = may_direct && flight.is_aligned();
        let key = flight.key();
        let create = flight.creates();
        match self.descriptors.get(key) {
            Some(descriptor) => self.transfer_on(slot, descriptor),
            None => self.help(slot, Task::Open { file: key.file, direct: key.direct, create }),
        }
    }

    fn transfer_on(&mut self, slot: u32, descriptor: Arc<OwnedFd>) {
        let flight = self.flight(slot);
        flight.open = Some(descriptor.clone());
        let transfer = flight.rest(descriptor);
        if transfer.bytes == 0 {
            return self.handle_moved(slot, Ok(0));
        }
        match &mut self.uring {
            Some(uring) => uring.push(slot, &transfer),
            None => self.help(slot, Task::Transfer(transfer)),
        }
    }

    fn help(&mut self, slot: u32, task: Task) {
        let disk = self.disk(slot).directory.clone();
        self.helpers.submit(Job { slot, disk, task });
    }

    fn handle_brought(&mut self, slot: u32, result: Result<Brought, DiskError>) {
        if self.flight(slot).is_renaming() {
            self.forget_names(slot);
        }
        let reply = match result {
            Err(error) if self.may_retry(slot, error) => return self.transfer(slot),
            Err(error) => Err(error),
            Ok(Brought::Opened(descriptor)) => return self.handle_opened(slot, descriptor),
            Ok(Brought::Moved(result)) => return self.handle_moved(slot, result),
            Ok(Brought::Done) => Ok(DiskReply::Done),
            Ok(Brought::Data(at)) => Ok(DiskReply::Data(at)),
            Ok(Brought::Files(files)) => Ok(DiskReply::Files(files)),
            Ok(Brought::Space { total, free, device }) => {
                Ok(DiskReply::Space { total, free, device })
            }
            Ok(Brought::Stat(stat)) => {
                let (bytes, used, changed) = (stat.bytes, stat.used, stat.changed);
                Ok(DiskReply::Stat { bytes, used, changed })
            }
        };
        self.finish(slot, reply);
    }

    /// Too many open files: the cache gives some up, and the operation is worth another try.
    fn may_retry(&mut self, slot: u32, error: DiskError) -> bool {
        let full = [Errno::MFILE, Errno::NFILE].map(directory::failed);
        let flight = self.flight(slot);
        if !flight.is_transfer() || !full.contains(&error) || !flight.try_again() {
            return false;
        }
        self.descriptors.shrink();
        true
    }

    fn handle_opened(&mut self, slot: u32, descriptor: OwnedFd) {
        let descriptor = Arc::new(descriptor);
        let renamings = self.disk(slot).renamings;
        let flight = self.flight(slot);
        let (key, fresh) = (flight.key(), flight.renamings == renamings);
        if fresh {
            self.descriptors.insert(key, descriptor.clone());
        }
        self.transfer_on(slot, descriptor);
    }

    fn handle_moved(&mut self, slot: u32, result: Result<usize, Errno>) {
        let flight = self.flight(slot);
        flight.open = None;
        let direct = flight.direct;
        match result {
            Ok(bytes) => self.handle_bytes(slot, bytes),
            // The file system takes the flag and not the transfer: from now on through the host's cache.
            Err(Errno::INVAL) if direct => {
                self.disk(slot).directory.give_up_direct();
                self.transfer(slot);
            }
            Err(Errno::INTR | Errno::AGAIN) if flight.try_again() => self.transfer(slot),
            Err(errno) => {
                let error = self.disk(slot).directory.error(errno);
                self.finish(slot, Err(error));
            }
        }
    }

    fn handle_bytes(&mut self, slot: u32, bytes: usize) {
        let flight = self.flight(slot);
        flight.moved += bytes;
        let end_of_file = bytes == 0 || (flight.direct && !bytes.is_multiple_of(PAGE_BYTES));
        let complete = flight.left() == 0;
        match &flight.op {
            DiskOp::Read { .. } if complete || end_of_file => self.finish_read(slot),
            DiskOp::Write { .. } if complete => self.finish_write(slot),
            DiskOp::Write { .. } if bytes == 0 => {
                // A write that takes nothing and names no error is out of room.
                self.finish(slot, Err(DiskError::NoSpace));
            }
            _ => self.transfer(slot),
        }
    }

    fn finish_read(&mut self, slot: u32) {
        let flight = self.flight(slot);
        let bytes = flight.moved;
        match std::mem::replace(&mut flight.op, DiskOp::Space) {
            DiskOp::Read { into, .. } => self.finish(slot, Ok(DiskReply::Read { into, bytes })),
            other => unreachable!("{other:?} is no read"),
        }
    }

    /// A durable write of a new file is worth nothing before its name is durable too, and nothing at all in a directory
    /// that was removed.
    fn finish_write(&mut self, slot: u32) {
        let flight = self.flight(slot);
        let (file, durable) = (flight.file(), flight.is_durable());
        if !durable {
            return self.finish(slot, Ok(DiskReply::Done));
        }
        let directory = &self.disk(slot).directory;
        match directory.check_held() {
            Ok(()) if !directory.is_name_synced(file) => {
                self.help(slot, Task::SyncNames { file });
            }
            result => self.finish(slot, result.map(|()| DiskReply::Done)),
        }
    }

    fn finish(&mut self, slot: u32, result: Result<DiskReply, DiskError>) {
        let now = self.now;
        let flight = self.flight(slot);
        if flight.not_before > now {
            flight.result = Some(result);
            let entry = Reverse((flight.not_before, slot));
            self.held.push(entry);
        } else {
            self.give_back(slot, result);
        }
    }

    fn give_back(&mut self, slot: u32, result: Result<DiskReply, DiskError>) {
        let flight = self.flights[slot as usize].take().expect("a flight to give back");
        self.free.push(slot);
        self.done.push_back(DiskDone { ticket: flight.ticket, result });
    }

    fn any_descriptor(&mut self, disk: DiskId, file: DiskFile) -> Option<Arc<OwnedFd>> {
        let key = |direct| Key { disk, file, direct };
        self.descriptors.get(key(true)).or_else(|| self.descriptors.get(key(false)))
    }

    /// From now on no operation begins with a descriptor of this name.
    fn forget(&mut self, disk: DiskId, file: DiskFile) -> [Option<Arc<OwnedFd>>; 2] {
        self.opened(disk).renamings += 1;
        [true, false].map(|direct| self.descriptors.remove(Key { disk, file, direct }))
    }

    /// The names may have been opened again while the operation was under way.
    fn forget_names(&mut self, slot: u32) {
        let flight = self.flight(slot);
        let disk = flight.disk;
        match flight.op {
            DiskOp::Remove { file } => drop(self.forget(disk, file)),
            DiskOp::Rename { from, to } => drop([self.forget(disk, from), self.forget(disk, to)]),
            _ => {}
        }
    }

    fn flight(&mut self, slot: u32) -> &mut Flight {
        self.flights[slot as usize].as_mut().expect("a flight under way")
    }

    fn disk(&mut self, slot: u32) -> &mut Disk {
        let disk = self.flight(slot).disk;
        self.opened(disk)
    }

    fn opened(&mut self, disk: DiskId) -> &mut Disk {
        self.disks[usize::from(disk.0)].as_mut().expect("only open disks have flights")
    }
}

impl Drop for Disks {
    /// The kernel and the helpers must be done with the frames before these return to their pool.
    fn drop(&mut self) {
        let Some(uring) = &mut self.uring else { return };
        let mut results = Vec::new();
        while uring.under_way() > 0 {
            if uring.wait().is_err() {
                // The end of the kernel's transfers is unknown then: better lose the frames.
                self.flights.drain(..).for_each(std::mem::forget);
                return;
            }
            uring.take(&mut results);
        }
    }
}

/// io_uring's way to tell bytes from error numbers.
fn bytes_moved(result: i32) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
}

/// As many as the process may have open leave room for: half of them.
fn descriptors_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    DISK_DESCRIPTORS_MAX.min(usize::try_from(limit / 2).unwrap_or(usize::MAX)).max(1)
}
