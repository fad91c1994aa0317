//! The checkpoint: committed blocks move from the log into place, then the log starts anew.
//!
//! A new log takes what is committed from now on; every object with records in the old one is brought up to date and
//! synchronised; then the old log is removed. When that fails, the old log stays, nothing is lost, commits go on into
//! the new log until it is full too, and the checkpoint is tried again.

use crate::disk::{Disk, errno};
use crate::limits::*;
use crate::log::{Kind, Record};
use crate::object::{Header, data_offset, encode_sums, header_offset, sums_offset};
use crate::objects::{Object, Phase};
use crate::server::Inner;
use endpoint::Frame;
use node::Bug;
use node::rings::{DiskError, DiskFile, DiskOp};
use std::rc::Rc;
use std::time::Duration;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

/// Pause after a checkpoint that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A write in place: offset in the file, bytes.
type Placement = (u64, Frame);

impl Inner {
    /// The checkpoint task of a disk.
    pub async fn checkpoints(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        loop {
            let work = disk.work.wait();
            let (bytes, records) = disk.journal.size();
            if bytes < self.config.checkpoint_bytes && records < CHECKPOINT_RECORDS {
                work.await;
                continue;
            }
            if let Err(error) = self.checkpoint(disk).await {
                self.report(format!(
                    "disk {}: committed data stays in the log, it cannot be put in place: {error}",
                    disk.id.0
                ));
                self.cx.sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Brings everything that is in the log now into place, and removes it from the log.
    pub async fn checkpoint(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        let _one = disk.checkpointing.acquire(1).await;
        let (old, bytes, records) = disk.journal.switch().await;
        let result = self.apply_all(disk).await;
        let result = match result {
            Ok(()) => self.drop_logs(disk, old).await.map_err(errno),
            error => error,
        };
        disk.checkpoint_error.set(result.err());
        disk.free_bytes.set(0);
        if result.is_ok() {
            disk.journal.applied(bytes, records);
            self.count(|c| c.checkpoints += 1);
        }
        disk.room.notify_all();
        result
    }

    async fn apply_all(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        let objects = std::mem::take(&mut *disk.unapplied.borrow_mut());
        let objects: Vec<Rc<Object>> = objects.into_values().collect();
        let mut result = Ok(());
        for some in objects.chunks(CHECKPOINT_PARALLEL) {
            let applied = node::all(some.iter().map(|object| self.apply(disk, object))).await;
            for (object, applied) in some.iter().zip(applied) {
                if let Err(error) = applied {
                    disk.unapplied.borrow_mut().insert(object.id, object.clone());
                    result = Err(error);
                }
            }
        }
        result
    }

    /// Removes the logs up to this generation. That must be durable before a younger one may go: a log that came back
    /// alone would bring old blocks back.
    async fn drop_logs(&self, disk: &Disk, last: u32) -> Result<(), DiskError> {
        // First of all, what was removed while these logs said so.
        disk.simple(|| DiskOp::Sync { file: DiskFile::Label }).await?;
        while disk.oldest_log.get() <= last {
            let file = DiskFile::Log(disk.oldest_log.get());
            disk.simple(|| DiskOp::Remove { file }).await?;
            disk.simple(|| DiskOp::Sync { file: DiskFile::Label }).await?;
            disk.oldest_log.set(disk.oldest_log.get() + 1);
        }
        Ok(())
    }

    /// Brings one object up to date in place.
    async fn apply(self: &Rc<Self>, disk: &Disk, object: &Rc<Object>) -> Result<(), Errno> {
        let _committing = object.commits.acquire(1).await;
        if object.state.borrow().phase == Phase::Removed {
            return Ok(());
        }
        self.carry_intents(disk, object).await?;
        let Some(head) = object.state.borrow().stable else { return Ok(()) };
        let sequence = object.state.borrow().header_sequence + 1;
        let header = Header { object: object.id, sequence, head };
        let groups = self.cache.borrow().dirty_groups(object.key);
        let placements = self.placements(disk, object, &groups, header).await;
        object.state.borrow_mut().in_place = true;
        for some in placements.chunks(PLACE_PARALLEL) {
            let writes = some
                .iter()
                .map(|(offset, frame)| disk.write(object.file(), *offset, frame.clone(), false));
            let written: Result<Vec<()>, DiskError> = node::all(writes).await.into_iter().collect();
            written.map_err(errno)?;
        }
        let file = object.file();
        if !self.cx.has_bug(Bug::LogDroppedEarly) {
            disk.simple(|| DiskOp::Sync { file }).await.map_err(errno)?;
        }
        let mut state = object.state.borrow_mut();
        state.header_sequence = sequence;
        state.pending.clear();
        state.version += 1;
        let mut cache = self.cache.borrow_mut();
        groups.iter().for_each(|group| cache.group_is_clean(object.key, *group));
        Ok(())
    }

    /// An intent that a failed commit left open must outlive the log it is in.
    async fn carry_intents(&self, disk: &Disk, object: &Object) -> Result<(), Errno> {
        let (torn, head) = {
            let state = object.state.borrow();
            (state.torn.clone(), state.head)
        };
        for runs in torn.chunks(INTENT_BLOCKS_MAX) {
            let bare = Record::bare(Kind::Intent, object.id, head);
            let record = Record { runs: runs.to_vec(), ..bare };
            disk.journal.append(record, Vec::new()).await.map_err(errno)?;
        }
        Ok(())
    }

    /// What is to be written: blocks from the log, their groups' checksums, the header.
    async fn placements(
        &self,
        disk: &Disk,
        object: &Object,
        groups: &[u64],
        header: Header,
    ) -> Vec<Placement> {
        let mut out = pending_blocks(object);
        for group in groups {
            let mut frame = disk.frame(BLOCK_BYTES).await;
            encode_sums(self.cache.borrow().group_sums(object.key, *group), &mut frame);
            out.push((sums_offset(*group), frame.freeze()));
        }
        let mut frame = disk.frame(BLOCK_BYTES).await;
        header.encode(&mut frame);
        out.push((header_offset(header.sequence), frame.freeze()));
        out
    }
}

/// The blocks that are only in the log, in as long pieces as they lie in memory.
fn pending_blocks(object: &Object) -> Vec<Placement> {
    let state = object.state.borrow();
    let mut out: Vec<Placement> = Vec::new();
    for (block, (frame, _)) in &state.pending {
        let offset = data_offset(*block);
        let rest = match out.last_mut() {
            Some((start, last)) if *start + last.len() as u64 == offset => {
                last.join(frame.clone()).err()
            }
            _ => Some(frame.clone()),
        };
        out.extend(rest.map(|frame| (offset, frame)));
    }
    out
}
