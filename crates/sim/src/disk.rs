//! A simulated disk: executes what a node asks of its disk ring, in modelled time, with faults.
//!
//! An operation takes effect when it completes; a sync covers the writes that had completed when it was posted. A
//! crash in between leaves a write wholly, partly or not at all applied.

use crate::limits::DISK_PAGE_BYTES;
use crate::queue::Picos;
use crate::random::Random;
use crate::storage::Crash;
use crate::volume::Volume;
use node::rings::{
    DiskDone, DiskError, DiskFile, DiskListing, DiskOp, DiskReply, DiskRequest, Ticket,
};
use std::collections::BTreeMap;
use wire::Errno;

/// Properties of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskModel {
    /// Of every operation.
    pub latency: Picos,
    /// Of a sync and of a durable write, in addition.
    pub sync_latency: Picos,
    /// Of transfers, which the disk does one after the other.
    pub bytes_per_second: u64,
    /// Room.
    pub capacity_bytes: u64,
}

impl Default for DiskModel {
    /// A solid-state disk of the middle class (assumed).
    fn default() -> DiskModel {
        DiskModel {
            latency: Picos::micros(60),
            sync_latency: Picos::micros(400),
            bytes_per_second: 1_000_000_000,
            capacity_bytes: 1 << 30,
        }
    }
}

/// Present faults of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// An operation fails with EIO so often in a million.
    pub error_chance: u32,
    /// Everything takes this many times as long.
    pub slowness: u64,
    /// Changes are refused.
    pub read_only: bool,
    /// The directory is gone.
    pub missing: bool,
    /// Nothing new fits, whatever the capacity says.
    pub full: bool,
}

impl Default for DiskFaults {
    fn default() -> DiskFaults {
        DiskFaults { error_chance: 0, slowness: 1, read_only: false, missing: false, full: false }
    }
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    op: DiskOp,
    /// The newest change when it was posted: what a sync covers.
    covers: u64,
}

/// One disk with what is stored on it; outlives its node.
#[derive(Debug)]
pub struct Disk {
    model: DiskModel,
    faults: DiskFaults,
    random: Random,
    volume: Volume,
    pending: BTreeMap<u64, Pending>,
    posted: u64,
    busy_until: Picos,
}

fn transfer_bytes(op: &DiskOp) -> usize {
    match op {
        DiskOp::Read { into, .. } => into.len(),
        DiskOp::Write { data, .. } => data.len(),
        _ => 0,
    }
}

fn changes(op: &DiskOp) -> bool {
    use DiskOp::*;
    matches!(op, Write { .. } | Truncate { .. } | Punch { .. } | Remove { .. } | Rename { .. })
}

impl Disk {
    /// An empty disk. `name` names its random stream.
    pub fn new(seed: u64, name: &str, model: DiskModel) -> Disk {
        Disk {
            model,
            faults: DiskFaults::default(),
            random: Random::new(seed, name),
            volume: Volume::default(),
            pending: BTreeMap::new(),
            posted: 0,
            busy_until: Picos::ZERO,
        }
    }

    /// Its faults, to be changed.
    pub fn faults_mut(&mut self) -> &mut DiskFaults {
        &mut self.faults
    }

    /// Its properties, to be changed.
    pub fn model_mut(&mut self) -> &mut DiskModel {
        &mut self.model
    }

    /// Its content.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// As [`volume`](Disk::volume), to damage it or to put another one in its place. While its node runs this is what
    /// no disk does.
    pub fn volume_mut(&mut self) -> &mut Volume {
        &mut self.volume
    }

    /// Flips a bit of an object. Which, if there was any.
    pub fn rot(&mut self) -> Option<DiskFile> {
        self.volume.rot(&mut self.random)
    }

    /// Takes an operation. When it will be complete, and the number to ask for it by.
    pub fn submit(&mut self, now: Picos, request: DiskRequest) -> (Picos, u64) {
        let done = self.time(now, &request.op);
        (done, self.accept(request))
    }

    /// Takes an operation that the caller times. Returns its number.
    pub fn accept(&mut self, request: DiskRequest) -> u64 {
        self.posted += 1;
        let covers = self.volume.changes();
        let pending = Pending { ticket: request.ticket, op: request.op, covers };
        self.pending.insert(self.posted, pending);
        self.posted
    }

    /// An operation that is under way.
    pub fn pending(&self, number: u64) -> Option<&DiskOp> {
        self.pending.get(&number).map(|pending| &pending.op)
    }

    fn time(&mut self, now: Picos, op: &DiskOp) -> Picos {
        let bytes = transfer_bytes(op) as u128;
        let transfer = bytes * 1_000_000_000_000 / u128::from(self.model.bytes_per_second.max(1));
        let slow = |span: Picos| Picos(span.0.saturating_mul(self.faults.slowness));
        let syncs = matches!(
            op,
            DiskOp::Sync { .. } | DiskOp::SyncAll | DiskOp::Write { durable: true, .. }
        );
        let sync = if syncs { self.model.sync_latency } else { Picos::ZERO };
        let spread = Picos(self.random.below(self.model.latency.0.max(1)));
        let begun = now.max(self.busy_until);
        self.busy_until = begun + slow(Picos(u64::try_from(transfer).unwrap_or(u64::MAX)));
        self.busy_until + slow(self.model.latency + sync) + spread
    }

    /// The operation of this number is due. `None` when a crash has voided it. `wall` is in seconds since 1970.
    pub fn complete(&mut self, number: u64, wall: i64) -> Option<DiskDone> {
        let Pending { ticket, op, covers } = self.pending.remove(&number)?;
        let result = match self.refuse(&op) {
            Some(error) => Err(error),
            None => self.execute(op, covers, wall),
        };
        Some(DiskDone { ticket, result })
    }

    fn refuse(&mut self, op: &DiskOp) -> Option<DiskError> {
        if self.faults.missing {
            return Some(DiskError::Missing);
        }
        if self.faults.read_only && changes(op) {
            return Some(DiskError::ReadOnly);
        }
        self.random.chance(self.faults.error_chance).then_some(DiskError::Failed(Errno::EIO))
    }

    fn execute(&mut self, op: DiskOp, covers: u64, wall: i64) -> Result<DiskReply, DiskError> {
        let found = |found| if found { Ok(DiskReply::Done) } else { Err(DiskError::NotFound) };
        match op {
            DiskOp::Read { file, offset, mut into } => {
                let inode = self.volume.get(file).ok_or(DiskError::NotFound)?;
                let bytes = inode.bytes.read(offset, &mut into);
                Ok(DiskReply::Read { into, bytes })
            }
            DiskOp::Write { file, offset, data, durable } => {
                self.check_room(file, offset, data.len())?;
                self.volume.write(file, offset, &data, durable, wall);
                Ok(DiskReply::Done)
            }
            DiskOp::Sync { file } => found(self.volume.sync(file, covers)),
            DiskOp::SyncAll => {
                self.volume.sync_all(covers);
                Ok(DiskReply::Done)
            }
            DiskOp::Truncate { file, bytes } => found(self.volume.truncate(file, bytes, wall)),
            DiskOp::FindData { file, offset, bytes } => {
                let inode = self.volume.get(file).ok_or(DiskError::NotFound)?;
                Ok(DiskReply::Data(inode.bytes.find_data(offset..offset.saturating_add(bytes))))
            }
            DiskOp::Punch { file, offset, bytes } => {
                found(self.volume.punch(file, offset..offset.saturating_add(bytes), wall))
            }
            DiskOp::Remove { file } => {
                self.volume.remove(file);
                Ok(DiskReply::Done)
            }
            DiskOp::Rename { from, to } => found(self.volume.rename(from, to)),
            DiskOp::Stat { file, without } => {
                let inode = self.volume.get(file).ok_or(DiskError::NotFound)?;
                let (bytes, changed) = (&inode.bytes, inode.changed);
                let within =
                    |(at, count): &(u64, u64)| bytes.pages_in(*at..at.saturating_add(*count));
                let pages = bytes.pages() - without.iter().map(within).sum::<u64>();
                let used = pages * DISK_PAGE_BYTES as u64;
                Ok(DiskReply::Stat { bytes: bytes.len(), used, changed })
            }
            DiskOp::List(listing) => Ok(DiskReply::Files(self.list(listing))),
            DiskOp::Space => Ok(self.space()),
        }
    }

    fn used_bytes(&self) -> u64 {
        self.volume.pages() * DISK_PAGE_BYTES as u64
    }

    fn space(&self) -> DiskReply {
        let total = self.model.capacity_bytes;
        let free = if self.faults.full { 0 } else { total.saturating_sub(self.used_bytes()) };
        DiskReply::Space { total, free, device: 0 }
    }

    fn check_room(&self, file: DiskFile, offset: u64, len: usize) -> Result<(), DiskError> {
        let inode = self.volume.get(file);
        let none = crate::storage::LossyFile::default();
        let new = inode.map_or(&none, |inode| &inode.bytes).new_pages(offset, len);
        let bytes = self.used_bytes() + new * DISK_PAGE_BYTES as u64;
        let full = self.faults.full || bytes > self.model.capacity_bytes;
        if new > 0 && full { Err(DiskError::NoSpace) } else { Ok(()) }
    }

    fn list(&self, listing: DiskListing) -> Vec<DiskFile> {
        let all = self.volume.names_from(DiskFile::Label);
        match listing {
            DiskListing::Logs => all.filter(|name| matches!(name, DiskFile::Log(_))).collect(),
            DiskListing::Quarantined => {
                all.filter(|name| matches!(name, DiskFile::Quarantined(_))).collect()
            }
            DiskListing::Objects { after, count } => {
                let object = |name: &DiskFile| matches!(name, DiskFile::Object(_));
                let later = |name: &DiskFile| after.is_none_or(|a| *name > DiskFile::Object(a));
                all.filter(object).filter(later).take(count).collect()
            }
        }
    }

    /// The node of this disk ends: what was under way happened wholly, partly or not at all, and a power cut takes
    /// what was not stable.
    pub fn crash(&mut self, crash: Crash) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            if self.random.chance(500_000) && self.refuse(&pending.op).is_none() {
                let op = self.tear(pending.op);
                // No task is left that could be told of an error.
                let _ = self.execute(op, pending.covers, 0);
            }
        }
        self.volume.crash(crash, &mut self.random);
        self.busy_until = Picos::ZERO;
    }

    /// A write that a crash met may have written its first pages only, and none of them surely.
    fn tear(&mut self, op: DiskOp) -> DiskOp {
        match op {
            DiskOp::Write { file, offset, data, .. } => {
                let pages = data.len() / DISK_PAGE_BYTES;
                let kept = (self.random.index(pages + 2) * DISK_PAGE_BYTES).min(data.len());
                DiskOp::Write { file, offset, data: data.slice(0..kept), durable: false }
            }
            other => other,
        }
    }
}
