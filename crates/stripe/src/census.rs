//! A census of a server: its objects counted and their storage summed, on demand, for people.
//!
//! It is not kept up to date: counting asks the disk about every object, and ends when the time for it is over.

use crate::disk::Disk;
use crate::limits::{CENSUS_PARALLEL, LIST_COUNT_MAX};
use crate::server::Server;
use node::rings::{DiskFile, DiskOp, DiskReply};
use wire::Time;
use wire::limits::BLOCK_BYTES;

/// The census of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Objects.
    pub objects: u64,
    /// Storage that they take in place, and what of them is only in the log.
    pub bytes: u64,
    /// Whether all were counted; else there was no time for more.
    pub complete: bool,
    /// Bytes of the disk, and how many of them are free; 0 when it does not say.
    pub total_bytes: u64,
    /// See `total_bytes`.
    pub free_bytes: u64,
}

impl Server {
    /// Counts what is on every disk, until `until` at the latest.
    pub async fn held(&self, until: Time) -> Vec<DiskUsage> {
        let mut all = Vec::new();
        for disk in 0..self.0.disks.len() {
            all.push(self.held_on(disk, until).await);
        }
        all
    }

    async fn held_on(&self, disk: usize, until: Time) -> DiskUsage {
        let disk = &self.0.disks[disk];
        let (mut held, mut after) = (logged(disk), None);
        // Also of a disk that was idle this tells whether it is still there.
        if let Ok(DiskReply::Space { total, free, .. }) = disk.ask(|| DiskOp::Space).await {
            (held.total_bytes, held.free_bytes) = (total, free);
        }
        while disk.check().is_ok() && self.0.cx.now() < until {
            let Ok(ids) = disk.list_objects(after, LIST_COUNT_MAX).await else { return held };
            for some in ids.chunks(CENSUS_PARALLEL) {
                let stats = some.iter().map(|id| disk.stat(DiskFile::Object(*id)));
                // One that is gone meanwhile is not held.
                for (_, used) in node::all(stats).await.into_iter().flatten() {
                    held.objects += 1;
                    held.bytes += used;
                }
            }
            held.complete = ids.len() < LIST_COUNT_MAX;
            after = ids.last().copied();
            if held.complete {
                break;
            }
        }
        held
    }
}

/// Objects in the log that are not in place yet.
fn logged(disk: &Disk) -> DiskUsage {
    let mut held = DiskUsage::default();
    for object in disk.unapplied.borrow().values() {
        let state = object.state.borrow();
        held.objects += u64::from(state.exists && !state.in_place);
        held.bytes += (state.pending.len() * BLOCK_BYTES) as u64;
    }
    held
}
