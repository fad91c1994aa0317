//! The checkpoint: committed blocks move from the log into place, then the log starts anew.
//!
//! A new log takes what is committed from now on; every object with records in the old one is brought up to date and
//! synchronised; then the old log goes: its file becomes the one after the new log, to be written over, which is twice
//! as fast as a file that grows. When that fails, the old log stays, nothing is lost, commits go on into
//! the new log until it is full too, and the checkpoint is tried again.

use crate::disk::{Disk, Entry, errno};
use crate::limits::*;
use crate::log::{Kind, Record};
use crate::object::{Header, data_offset, encode_sums, file_bytes, header_offset, sums_offset};
use crate::objects::{Object, Phase};
use crate::server::Inner;
use endpoint::Frame;
use node::rings::{DiskError, DiskOp};
use node::{Bug, Permit};
use std::rc::Rc;
use std::time::Duration;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

/// Pause after a checkpoint that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// A write in place: offset in the file, bytes.
type Placement = (u64, Frame);

/// An object whose file has all that the log had of it, but not yet synchronised. Commits wait meanwhile.
struct Placed<'a> {
    object: &'a Rc<Object>,
    groups: Vec<u64>,
    header: Header,
    _gate: Permit<'a>,
}

impl Inner {
    /// The checkpoint task of a disk.
    pub async fn checkpoints(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        while !disk.is_refused() {
            let work = disk.work.wait();
            let (bytes, records) = disk.journal.size();
            let failed = disk.checkpoint_error.get().is_some();
            let pressed = disk.pressed.get() && bytes > 0;
            let large = bytes >= self.config.checkpoint_bytes || records >= CHECKPOINT_RECORDS;
            let due = large || disk.journal.is_cramped() || disk.is_much_described();
            if !due && !failed && !pressed {
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

    /// Brings everything that there is now into place: memory and log have nothing that is not there.
    pub async fn put_in_place(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        self.flush_disk(disk).await?;
        self.checkpoint(disk).await
    }

    /// Brings everything that is in the log now into place, and removes it from the log.
    pub async fn checkpoint(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        let _one = disk.checkpointing.acquire(1).await;
        disk.pressed.set(false);
        let result = self.start_anew(disk).await;
        disk.checkpoint_error.set(result.err());
        disk.free_bytes.set(0);
        if result.is_ok() {
            self.count(|c| c.checkpoints += 1);
        }
        disk.room.notify_all();
        result
    }

    async fn start_anew(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        let salt = disk.next_salt().await.map_err(errno)?;
        let old = disk.journal.switch(salt).await;
        self.log_described(disk).await;
        self.apply_all(disk).await?;
        self.carry_intents(disk).await?;
        // First of all, what was removed while these logs said so, and what they say of objects that are there, or
        // gone; then that a restart need not look for them.
        disk.sync_names().await.map_err(errno)?;
        disk.save_index().await.map_err(errno)?;
        disk.note_applied(old.last).await.map_err(errno)?;
        disk.journal.applied(old.bytes, old.records);
        self.drop_logs(disk, old.generation).await.map_err(errno)
    }

    async fn apply_all(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        let objects: Vec<Rc<Object>> = {
            let mut placing = disk.placing.borrow_mut();
            *placing = std::mem::take(&mut *disk.unapplied.borrow_mut());
            placing.values().cloned().collect()
        };
        let mut result = Ok(());
        for some in objects.chunks(CHECKPOINT_PARALLEL) {
            if let Err(error) = self.apply_some(disk, some).await {
                let again = some.iter().map(|object| (object.id, object.clone()));
                disk.unapplied.borrow_mut().extend(again);
                result = Err(error);
            }
            // From here on the index has them.
            let mut placing = disk.placing.borrow_mut();
            some.iter().for_each(|object| drop(placing.remove(&object.id)));
        }
        result
    }

    /// Brings some objects up to date in place. Few are synchronised one by one, many with all of the disk.
    async fn apply_some(self: &Rc<Self>, disk: &Disk, some: &[Rc<Object>]) -> Result<(), Errno> {
        let placed = node::all(some.iter().map(|object| self.place(disk, object))).await;
        let placed: Vec<Placed<'_>> =
            placed.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?;
        if !self.cx.has_bug(Bug::LogDroppedEarly) {
            let synced = match placed.len() {
                0 => Ok(()),
                1..SYNC_ALL_OBJECTS => {
                    let syncs = placed.iter().map(|placed| {
                        let file = placed.object.file();
                        disk.simple(move || DiskOp::Sync { file })
                    });
                    node::all(syncs).await.into_iter().collect()
                }
                _ => disk.simple(|| DiskOp::SyncAll).await,
            };
            synced.map_err(errno)?;
        }
        placed.into_iter().for_each(|placed| self.note_placed(placed));
        let torn = some.iter().filter(|object| !object.state.borrow().torn.is_empty());
        disk.unapplied.borrow_mut().extend(torn.map(|object| (object.id, object.clone())));
        Ok(())
    }

    /// Drops the logs that are in place. That must be durable before a younger one may go: a log that came back alone
    /// would bring old blocks back.
    async fn drop_logs(&self, disk: &Disk, last: u32) -> Result<(), DiskError> {
        while disk.oldest_log.get() <= last {
            let generation = disk.oldest_log.get();
            if generation < last {
                disk.drop_log(generation).await?;
            } else if let Some(most) = disk.keep_log(last, last + 2).await? {
                disk.journal.reused(most);
            }
            disk.sync_names().await?;
            disk.oldest_log.set(disk.oldest_log.get() + 1);
        }
        Ok(())
    }

    /// Writes what the log has of one object into place, without synchronising it. `None` when there is nothing to do.
    async fn place<'a>(
        self: &Rc<Self>,
        disk: &Disk,
        object: &'a Rc<Object>,
    ) -> Result<Option<Placed<'a>>, Errno> {
        let gate = object.commits.acquire(1).await;
        if object.state.borrow().phase == Phase::Removed {
            return Ok(None);
        }
        self.cut_file(object).await?;
        let Some(head) = object.state.borrow().stable else { return Ok(None) };
        let sequence = object.state.borrow().header_sequence;
        let groups = self.cache.borrow().dirty_groups(object.key);
        let is_same = disk.index.get(object.id)
            == Some(Entry::of(&Header { object: object.id, sequence, head }));
        let announced = std::mem::take(&mut object.state.borrow_mut().announced);
        // Of commits that all failed the log has nothing: after a crash a later header could not be explained.
        if is_same && !announced && groups.is_empty() && object.state.borrow().pending.is_empty() {
            return Ok(None);
        }
        let header = Header { object: object.id, sequence: sequence + 1, head };
        let placements = self.placements(disk, object, &groups, header).await;
        self.make_long(disk, object, head.length).await?;
        object.state.borrow_mut().in_place = true;
        for some in placements.chunks(PLACE_PARALLEL) {
            let writes = some
                .iter()
                .map(|(offset, frame)| disk.write(object.file(), *offset, frame.clone(), false));
            let written: Result<Vec<()>, DiskError> = node::all(writes).await.into_iter().collect();
            written.map_err(errno)?;
        }
        Ok(Some(Placed { object, groups, header, _gate: gate }))
    }

    /// Sees to it that an object's file reaches as far as its header will say, also where nothing is written: a file
    /// that is shorter is one that was cut short.
    async fn make_long(&self, disk: &Disk, object: &Object, length: u64) -> Result<(), Errno> {
        let blocks = length.div_ceil(BLOCK_BYTES as u64);
        let (reached, in_place) = {
            let state = object.state.borrow();
            let written = state.pending.last_key_value().map_or(0, |(block, _)| block + 1);
            (state.file_blocks.max(written), state.in_place)
        };
        if reached < blocks {
            let (file, bytes) = (object.file(), file_bytes(length));
            if !in_place {
                let nothing = disk.zeros(BLOCK_BYTES).await.freeze();
                disk.write(file, 0, nothing, false).await.map_err(errno)?;
            }
            disk.simple(|| DiskOp::Truncate { file, bytes }).await.map_err(errno)?;
        }
        Ok(())
    }

    /// Notes that the blocks that were placed are synchronised.
    fn note_placed(&self, placed: Placed<'_>) {
        let mut state = placed.object.state.borrow_mut();
        state.header_sequence = placed.header.sequence;
        state.file_blocks = placed.header.head.length.div_ceil(BLOCK_BYTES as u64);
        self.disk(placed.object).index.note(&placed.header);
        state.pending.clear();
        state.note_changed();
        let mut cache = self.cache.borrow_mut();
        placed.groups.iter().for_each(|group| cache.group_is_clean(placed.object.key, *group));
    }

    /// Intents that failed commits left open must outlive the logs that they are in. Only when these are to go: what is
    /// tried again and again must not make the log longer.
    async fn carry_intents(&self, disk: &Disk) -> Result<(), Errno> {
        let torn = |object: &&Rc<Object>| !object.state.borrow().torn.is_empty();
        let objects: Vec<Rc<Object>> =
            disk.unapplied.borrow().values().filter(torn).cloned().collect();
        for object in objects {
            let _gate = object.commits.acquire(1).await;
            self.carry(disk, &object).await?;
        }
        Ok(())
    }

    async fn carry(&self, disk: &Disk, object: &Object) -> Result<(), Errno> {
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

    /// The writes of a checkpoint: blocks from the log, their groups' checksums, the header.
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
        let description = object.state.borrow().description.clone();
        header.encode(description.as_deref(), &mut frame);
        out.push((header_offset(header.sequence), frame.freeze()));
        join_rows(disk, out).await
    }
}

/// Joins what lies in a row in the file and is short, by copying: all of a small new object is one write.
async fn join_rows(disk: &Disk, mut placements: Vec<Placement>) -> Vec<Placement> {
    placements.sort_unstable_by_key(|(offset, _)| *offset);
    let mut joined = Vec::with_capacity(placements.len());
    let mut rest = &placements[..];
    while let Some((offset, first)) = rest.first() {
        let (mut bytes, mut count) = (first.len(), 1);
        while let Some((next, frame)) = rest.get(count) {
            if *next != offset + bytes as u64 || bytes + frame.len() > JOINED_BYTES_MAX {
                break;
            }
            (bytes, count) = (bytes + frame.len(), count + 1);
        }
        let (row, others) = rest.split_at(count);
        joined.push((*offset, join_row(disk, row, bytes).await));
        rest = others;
    }
    joined
}

async fn join_row(disk: &Disk, row: &[Placement], bytes: usize) -> Frame {
    if let [(_, alone)] = row {
        return alone.clone();
    }
    let mut frame = disk.frame(bytes).await;
    let mut at = 0;
    for (_, piece) in row {
        frame[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    frame.freeze()
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
