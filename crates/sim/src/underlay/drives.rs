//! A node's disks: where on them each file lies, and how long they take.
//!
//! Files lie in extents that are given out in order and used again: what is written in sequence lies in sequence, as in
//! a file system that is not full.

use super::DiskSetup;
use crate::hardware::disk::{Channel, Disk, Drive, Request};
use crate::hardware::flow::Rate;
use crate::queue::Picos;
use node::rings::{DiskFile, DiskOp};
use std::collections::BTreeMap;

/// Bytes of an extent: a few of a disk's cylinders.
const EXTENT_BYTES: u64 = 8 << 20;

/// Disk accesses of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing.
    None,
    /// That all before it is on the media.
    Settle,
    /// To read its media; at least one piece.
    Read(Vec<Request>),
    /// To write it; likewise.
    Write(Vec<Request>),
}

#[derive(Debug, Default)]
struct Places {
    files: BTreeMap<DiskFile, Vec<u64>>,
    free: Vec<u64>,
    used: u64,
}

impl Places {
    /// The places of a range of a file; it gets extents as it needs them.
    fn pieces(&mut self, file: DiskFile, offset: u64, bytes: u64, is_write: bool) -> Vec<Request> {
        let (mut at, end, mut pieces) = (offset, offset + bytes, Vec::with_capacity(1));
        while at < end {
            let next = end.min((at / EXTENT_BYTES + 1) * EXTENT_BYTES);
            let place = self.extent(file, (at / EXTENT_BYTES) as usize) + at % EXTENT_BYTES;
            pieces.push(Request { offset: place, bytes: next - at, is_write });
            at = next;
        }
        pieces
    }

    /// Start of a file's extent.
    fn extent(&mut self, file: DiskFile, index: usize) -> u64 {
        let extents = self.files.entry(file).or_default();
        while extents.len() <= index {
            let new = self.free.pop().unwrap_or_else(|| {
                self.used += EXTENT_BYTES;
                self.used - EXTENT_BYTES
            });
            extents.push(new);
        }
        extents[index]
    }

    fn remove(&mut self, file: DiskFile) -> Access {
        self.free.extend(self.files.remove(&file).unwrap_or_default());
        Access::None
    }

    fn rename(&mut self, from: DiskFile, to: DiskFile) -> Access {
        self.remove(to);
        if let Some(extents) = self.files.remove(&from) {
            self.files.insert(to, extents);
        }
        Access::None
    }
}

/// The disks of one node.
#[derive(Debug)]
pub(super) struct Drives {
    disk: Disk,
    drives: Vec<Drive>,
    places: Vec<Places>,
    channels: Vec<Channel>,
    /// Writes whose data is on its way to the drive.
    coming: BTreeMap<(u16, u64), Vec<Request>>,
}

impl Drives {
    pub fn new(setup: DiskSetup) -> Drives {
        let count = usize::from(setup.count);
        Drives {
            disk: setup.disk,
            drives: vec![Drive::new(setup.disk); count],
            places: (0..count).map(|_| Places::default()).collect(),
            channels: vec![Channel::default(); usize::from(setup.channels)],
            coming: BTreeMap::new(),
        }
    }

    /// The rate at which their controllers move data over an idle I/O bus.
    pub fn bus(&self) -> Rate {
        self.disk.bus()
    }

    /// Time that the media of all of them were in use.
    pub fn busy(&self) -> Picos {
        self.drives.iter().fold(Picos::ZERO, |all, drive| all + drive.busy)
    }

    /// Disk accesses of an operation. Changes of names happen at once.
    pub fn access(&mut self, disk: u16, op: &DiskOp) -> Access {
        let places = &mut self.places[usize::from(disk)];
        match op {
            DiskOp::Read { file, offset, into } if !into.is_empty() => {
                Access::Read(places.pieces(*file, *offset, into.len() as u64, false))
            }
            DiskOp::Write { file, offset, data, .. } if !data.is_empty() => {
                Access::Write(places.pieces(*file, *offset, data.len() as u64, true))
            }
            DiskOp::Sync { .. } | DiskOp::SyncAll => Access::Settle,
            DiskOp::Remove { file } => places.remove(*file),
            DiskOp::Rename { from, to } => places.rename(*from, *to),
            _ => Access::None,
        }
    }

    /// When all that a disk was asked for is on its media.
    pub fn settled(&self, disk: u16) -> Picos {
        self.drives[usize::from(disk)].settled()
    }

    /// When a disk is through with these pieces.
    pub fn serve(&mut self, now: Picos, disk: u16, pieces: &[Request]) -> Picos {
        let disk = usize::from(disk);
        let channel = disk % self.channels.len();
        let (drive, channel) = (&mut self.drives[disk], &mut self.channels[channel]);
        pieces.iter().fold(now, |_, piece| drive.serve(now, *piece, channel))
    }

    /// A write's data begins to come.
    pub fn hold(&mut self, disk: u16, number: u64, pieces: Vec<Request>) {
        self.coming.insert((disk, number), pieces);
    }

    /// It has come: when it is on the media.
    pub fn write_out(&mut self, now: Picos, disk: u16, number: u64) -> Picos {
        let pieces = self.coming.remove(&(disk, number)).expect("a write whose data came");
        self.serve(now, disk, &pieces)
    }
}
