//! COMMIT: what is dirty of an object becomes durable.
//!
//! Up to 256 KiB are one record of the log, data included, and reach their place later. More goes to its place at once:
//! an intent in the log, the data, a synchronisation, a record with the checksums. A commit that fails leaves its
//! blocks dirty, and its intent open for as long as the blocks are not committed.

use crate::cache::Stretch;
use crate::disk::{Disk, errno};
use crate::limits::*;
use crate::log::{Kind, Record, Run};
use crate::object::{Head, data_offset, group_of};
use crate::objects::{Object, Phase, State};
use crate::order::History;
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::Inner;
use endpoint::Frame;
use node::Bug;
use node::rings::{DiskError, DiskOp, DiskReply};
use std::rc::Rc;
use std::time::Duration;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

/// Age at which the server commits dirty blocks itself: their client does after 1 s, unless it died.
const DIRTY_AGE: Duration = Duration::from_secs(2);
/// Pause after a flush that failed.
const FLUSH_PAUSE: Duration = Duration::from_millis(500);

impl Inner {
    /// COMMIT.
    pub async fn commit_request(
        self: &Rc<Self>,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await?;
        self.commit_as(&object, ask).await?;
        Ok(self.describe(&object))
    }

    /// Commits for a client that goes by the object's layout.
    pub async fn commit_as(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
    ) -> Result<(), Errno> {
        if self.is_old_layout(&object.state.borrow(), ask) {
            return Err(Errno::ESTALE);
        }
        self.commit(object).await
    }

    /// Makes everything that was written to the object before durable. Must not be called by a holder of its gates.
    pub async fn commit(self: &Rc<Self>, object: &Rc<Object>) -> Result<(), Errno> {
        match self.commit_once(object).await {
            Err(Errno::ENOSPC) if self.disk(object).checkpointing.try_acquire(1).is_none() => {
                // Data in the log takes its bytes twice until the checkpoint that is under way is done.
                drop(self.disk(object).checkpointing.acquire(1).await);
                self.commit_once(object).await
            }
            result => result,
        }
    }

    async fn commit_once(self: &Rc<Self>, object: &Rc<Object>) -> Result<(), Errno> {
        let wanted = object.state.borrow().writes;
        self.wait_for_log(self.disk(object)).await?;
        let _committing = match object.commits.try_acquire(1) {
            Some(permit) => permit,
            None => {
                let permit = object.commits.acquire(1).await;
                // A round that began since has done it; one more would wait for what came after as well.
                if object.state.borrow().covers(wanted) {
                    return Ok(());
                }
                permit
            }
        };
        // One round takes what is dirty now; when it needs more, no writer may come in between.
        let many = self.cache.borrow().dirty_count(object.key) > INTENT_BLOCKS_MAX;
        let _changing = if many { Some(object.changes.acquire(1).await) } else { None };
        if many { self.commit_all(object).await } else { self.commit_round(object).await }
    }

    /// Makes everything that was written to the object durable. The caller holds both gates.
    pub async fn commit_all(self: &Rc<Self>, object: &Rc<Object>) -> Result<(), Errno> {
        loop {
            self.commit_round(object).await?;
            if self.cache.borrow().dirty_count(object.key) == 0 {
                return Ok(());
            }
        }
    }

    /// The object's history once everything that was written to it until now is stable.
    pub fn history_now(&self, state: &State) -> History {
        let before = state.stable.map_or_else(History::default, |head| head.history);
        let verifier = self.verifier_of(state);
        let through = self.last_order(state).max(before.through_in(verifier));
        if verifier == 0 { before } else { before.after(verifier, through, state.writer) }
    }

    async fn commit_round(self: &Rc<Self>, object: &Rc<Object>) -> Result<(), Errno> {
        let (exists, mut head, stable, history, mut writes) = {
            let state = object.state.borrow();
            if state.phase != Phase::Open {
                return Err(Errno::ESTALE);
            }
            (state.exists, state.head, state.stable, self.history_now(&state), state.writes)
        };
        let stretches = self.cache.borrow_mut().begin_commit(object.key, INTENT_BLOCKS_MAX);
        if stretches.is_empty() && (!exists || stable == Some(head)) {
            return Ok(());
        }
        match self.cache.borrow().dirty_count(object.key) {
            0 => head.history = history,
            _ => writes = 0, // more is dirty than one round takes
        }
        let taken = Taken { inner: self, object };
        self.disk(object).unapplied.borrow_mut().insert(object.id, object.clone());
        let blocks: usize = stretches.iter().map(|stretch| stretch.sums.len()).sum();
        self.reserve(self.disk(object), (blocks * BLOCK_BYTES) as u64).await?;
        match blocks <= LOGGED_BLOCKS_MAX {
            true => self.commit_logged(object, head, &stretches).await?,
            false => self.commit_placed(object, head, &stretches).await?,
        }
        self.count(|c| c.commits += 1);
        taken.done(head, writes);
        Ok(())
    }

    /// Refuses a commit that could not come into place any more, together with the log's content: a disk must never be
    /// too full to be replayed. A commit takes its bytes twice, and a small object as much again.
    pub async fn reserve(&self, disk: &Disk, bytes: u64) -> Result<(), Errno> {
        let needed = 2 * (disk.journal.size().0 + bytes);
        let known = disk.free_bytes.get();
        let fresh = self.cx.now() < disk.free_at.get() + ROOM_KNOWN_SPAN;
        if fresh && known > needed + ROOM_KNOWN_BYTES {
            disk.free_bytes.set(known - 2 * bytes);
            return Ok(());
        }
        match disk.ask(|| DiskOp::Space).await.map_err(errno)? {
            DiskReply::Space { total, free, .. } if free >= needed + reserve_of(total) => {
                disk.free_bytes.set((free - 2 * bytes).saturating_sub(reserve_of(total)));
                disk.free_at.set(self.cx.now());
                Ok(())
            }
            _ => Err(Errno::ENOSPC),
        }
    }

    async fn need_groups(&self, object: &Object, stretches: &[Stretch]) -> Result<(), Errno> {
        for stretch in stretches {
            // A stretch lies in one window, and a window in one group.
            self.need_group(object, group_of(stretch.first)).await?;
        }
        Ok(())
    }

    /// Data and checksums in one record of the log.
    async fn commit_logged(
        &self,
        object: &Object,
        head: Head,
        stretches: &[Stretch],
    ) -> Result<(), Errno> {
        self.need_groups(object, stretches).await?;
        let record = record(Kind::Commit, object, head, stretches);
        let data = stretches.iter().map(|stretch| stretch.frame.clone()).collect();
        let written = self.disk(object).journal.append(record, data).await.map_err(errno)?;
        let Some(frame) = written else { return Ok(()) };
        let mut state = object.state.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        let mut at = 0;
        for (block, sum) in blocks(stretches) {
            cache.set_committed_sum(object.key, block, sum);
            state.pending.insert(block, (frame.slice(at..at + BLOCK_BYTES), sum));
            at += BLOCK_BYTES;
        }
        Ok(())
    }

    /// Data in place, under an intent.
    async fn commit_placed(
        self: &Rc<Self>,
        object: &Object,
        head: Head,
        stretches: &[Stretch],
    ) -> Result<(), Errno> {
        self.count(|c| c.large_commits += 1);
        self.need_groups(object, stretches).await?;
        let disk = self.disk(object);
        let placed = record(Kind::Placed, object, head, stretches);
        let intent = Record { kind: Kind::Intent, sums: Vec::new(), ..placed.clone() };
        note_torn(&mut object.state.borrow_mut().torn, &intent.runs);
        if !self.cx.has_bug(Bug::IntentSkipped) {
            disk.journal.append(intent, Vec::new()).await.map_err(errno)?;
        }
        object.state.borrow_mut().in_place = true;
        for some in stretches.chunks(PLACE_PARALLEL) {
            let writes = some.iter().map(|stretch| place(disk, object, stretch));
            let results: Result<Vec<()>, DiskError> = node::all(writes).await.into_iter().collect();
            results.map_err(errno)?;
        }
        let file = object.file();
        if !self.cx.has_bug(Bug::PlacedNotSynced) {
            disk.simple(|| DiskOp::Sync { file }).await.map_err(errno)?;
        }
        disk.journal.append(placed, Vec::new()).await.map_err(errno)?;
        let mut state = object.state.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        for (block, sum) in blocks(stretches) {
            cache.set_committed_sum(object.key, block, sum);
            state.pending.remove(&block);
            state.file_blocks = state.file_blocks.max(block + 1);
        }
        Ok(())
    }

    // The flusher.

    /// Commits every object of the disk that is dirty now, also behind one that cannot be. The first error.
    pub async fn flush_disk(self: &Rc<Self>, disk: &Disk) -> Result<(), Errno> {
        let objects: Vec<Rc<Object>> = disk.dirty.borrow().iter().cloned().collect();
        let mut result = Ok(());
        for object in objects {
            result = result.and(self.flush_object(disk, &object).await);
        }
        result
    }

    /// Commits one object and takes it off the list, or puts it at the end when it is dirty again or still.
    async fn flush_object(self: &Rc<Self>, disk: &Disk, object: &Rc<Object>) -> Result<(), Errno> {
        let result = self.commit(object).await;
        disk.dirty.borrow_mut().retain(|other| !Rc::ptr_eq(other, object));
        let mut state = object.state.borrow_mut();
        state.listed_dirty = false;
        let open = state.phase == Phase::Open;
        if open && (result.is_err() || self.cache.borrow().is_dirty(object.key)) {
            self.list_dirty(object, &mut state);
        }
        if open { result } else { Ok(()) }
    }

    /// Commits objects whose clients do not: the one that became dirty first, when too much is dirty or after a while.
    pub async fn flusher(self: Rc<Self>, disk: usize) {
        let disk = &self.disks[disk];
        while !disk.is_refused() {
            let work = disk.work.wait();
            let first = disk.dirty.borrow().front().cloned();
            let Some(object) = first else {
                work.await;
                continue;
            };
            let since = object.state.borrow().dirty_since;
            let aged = self.cx.sleep_until(since + DIRTY_AGE);
            node::race(self.crowded(disk), aged).await;
            let result = self.flush_object(disk, &object).await;
            disk.flush_error.set(result.err());
            disk.room.notify_all();
            if result.is_err() {
                self.cx.sleep(FLUSH_PAUSE).await;
            }
        }
    }

    /// Waits while the log has no room; must not be called by a holder of an object's gate, which the checkpoint needs.
    pub async fn wait_for_log(&self, disk: &Disk) -> Result<(), Errno> {
        loop {
            let room = disk.room.wait();
            if disk.journal.size().0 <= self.config.checkpoint_bytes * 2 {
                return Ok(());
            }
            disk.check()?;
            if let Some(errno) = disk.checkpoint_error.get() {
                return Err(errno);
            }
            disk.work.notify_all();
            room.await;
        }
    }

    fn is_crowded(&self, disk: &Disk) -> bool {
        let dirty = self.cache.borrow().dirty_bytes(disk.id.0 as usize);
        let most = FLUSH_BYTES.min(self.config.dirty_bytes_max / 2);
        dirty > if disk.pressed.get() { 0 } else { most }
    }

    async fn crowded(&self, disk: &Disk) {
        loop {
            let work = disk.work.wait();
            if self.is_crowded(disk) {
                return;
            }
            work.await;
        }
    }
}

/// Blocks that are being committed; they are dirty again unless it was done.
struct Taken<'a> {
    inner: &'a Rc<Inner>,
    object: &'a Rc<Object>,
}

impl Taken<'_> {
    /// The first `writes` writes are stable now.
    fn done(self, head: Head, writes: u64) {
        let disk = self.inner.disk(self.object);
        {
            let mut state = self.object.state.borrow_mut();
            // A layout or truncation set meanwhile would have waited for the commit.
            let before = state.stable.map_or(0, |stable| stable.truncations);
            assert!(before <= head.truncations, "a commit takes back no truncation");
            state.stable = Some(head);
            state.stable_writes = state.stable_writes.max(writes);
            state.head.history = head.history;
            state.version += 1;
            if self.inner.cache.borrow().dirty_count(self.object.key) == 0 {
                state.torn.clear();
            }
        }
        self.inner.cache.borrow_mut().end_commit(self.object.key, true);
        disk.room.notify_all();
        std::mem::forget(self); // there is nothing left to end
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.inner.cache.borrow_mut().end_commit(self.object.key, false);
    }
}

/// Bytes that commits leave free on a disk of this size.
fn reserve_of(total: u64) -> u64 {
    (total / RESERVE_SHARE_OF_DISK).clamp(RESERVE_BYTES, RESERVE_BYTES_MAX)
}

fn blocks(stretches: &[Stretch]) -> impl Iterator<Item = (u64, u32)> + '_ {
    stretches.iter().flat_map(|stretch| (stretch.first..).zip(stretch.sums.iter().copied()))
}

fn record(kind: Kind, object: &Object, head: Head, stretches: &[Stretch]) -> Record {
    let mut runs: Vec<Run> = Vec::new();
    for stretch in stretches {
        Run::add(&mut runs, stretch.first, stretch.sums.len() as u32);
    }
    let sums = stretches.iter().flat_map(|stretch| stretch.sums.iter().copied()).collect();
    Record { runs, sums, ..Record::bare(kind, object.id, head) }
}

/// Adds runs to those that may be torn. Repeated ones are there once.
fn note_torn(torn: &mut Vec<Run>, more: &[Run]) {
    torn.extend_from_slice(more);
    torn.sort_unstable_by_key(|run| run.first);
    torn.dedup_by(|next, last| {
        let joins = next.first <= last.blocks().end;
        let end = last.blocks().end.max(next.blocks().end);
        if joins {
            last.count = (end - last.first) as u32;
        }
        joins
    });
}

async fn place(disk: &Disk, object: &Object, stretch: &Stretch) -> Result<(), DiskError> {
    let frame: Frame = stretch.frame.clone();
    disk.write(object.file(), data_offset(stretch.first), frame, false).await
}
