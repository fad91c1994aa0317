//! Scrub: everything on a disk is read once in a period, so that damage is found which nothing else reads.
//!
//! It goes over the index, object by object, then over the files of objects that the index does not know. An object is
//! read a window of 256 KiB at a time, past the cache. A window is read with the object's `commits` gate held and
//! compared, block by block, with the checksums beside it, and these with the ones in memory. Blocks that the log has
//! newer are counted and left out: what is in place of them is not read any more. A mismatch is damage as if a reader
//! had met it. Groups of blocks that a file has neither checksums nor data of are passed over. Rounds begin at a
//! random place, so that also a server that is started often comes everywhere.
//!
//! Invariant: a round that counts has compared every object that was recorded when it began and is still there: each
//! block of it that was in place alone.

use crate::disk::{Disk, Scrubbed};
use crate::limits::{
    LIST_COUNT_MAX, SCRUB_AGAIN_MAX, SCRUB_PAUSE, SCRUB_WAIT, SEEK_GROUPS_MAX, UNREADABLE_SPAN,
    WINDOW_BLOCKS,
};
use crate::log::Run;
use crate::object::{
    GROUP_BLOCKS, GROUP_BYTES, HEADER_BYTES, Header, data_offset, decode_sums, group_of,
    sums_offset, zero_sum,
};
use crate::objects::{Object, Phase, Spot, State};
use crate::protocol::ObjectRequest;
use crate::server::{Inner, Server};
use node::Bug;
use node::limits::scrub_first;
use node::rings::{DiskOp, DiskReply};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId, Time};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// When the next read of a round is due: as much of the period has passed as was read of what there is.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// When the round began.
    pub began: Time,
    /// In which it is to end.
    pub period: Duration,
    /// Bytes to be read in it, about.
    pub total: u64,
}

impl Pace {
    /// When a read is due that follows so many bytes.
    pub fn due(&self, read: u64) -> Time {
        let (read, total) = (read.min(self.total), self.total.max(1));
        let nanos = self.period.as_nanos() * u128::from(read) / u128::from(total);
        self.began + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Server {
    /// Progress of the scrub, by disk.
    pub fn scrubbed(&self) -> Vec<Scrubbed> {
        self.0.disks.iter().map(|disk| disk.scrubbed.get()).collect()
    }
}

impl Inner {
    /// The task of one disk.
    pub async fn scrubs(self: Rc<Self>, disk: usize) {
        let Some(period) = self.config.scrub else { return };
        let disk = &self.disks[disk];
        let pause = scrub_first(period);
        self.cx.sleep(pause).await;
        loop {
            let began = self.cx.now();
            if disk.check().is_ok() {
                // An eighth is left for what waits for readers.
                self.scrub(disk, period - period / 8).await;
            }
            self.cx.sleep_until((began + period).max(self.cx.now() + pause)).await;
        }
    }

    /// One round.
    async fn scrub(self: &Rc<Self>, disk: &Disk, period: Duration) {
        let total = match disk.ask(|| DiskOp::Space).await {
            Ok(DiskReply::Space { total, free, .. }) => total.saturating_sub(free),
            _ => return,
        };
        let pace = Pace { began: self.cx.now(), period, total };
        note(disk, |scrubbed| {
            let Scrubbed { rounds, damaged, all_bytes, .. } = *scrubbed;
            let began = Some(pace.began);
            let before = Scrubbed { rounds, damaged, all_bytes, ..Scrubbed::default() };
            *scrubbed = Scrubbed { began, running: true, total, ..before };
        });
        let start = disk.index.somewhere(self.cx.random());
        let mut unread = Vec::new();
        let up = self.scrub_from(disk, &pace, (start, None), &mut unread).await;
        let down = up && self.scrub_from(disk, &pace, (None, start), &mut unread).await;
        let strays = down && self.scrub_strays(disk, &pace, &mut unread).await;
        let all = strays && self.scrub_again(disk, &pace, unread).await;
        note(disk, |scrubbed| {
            scrubbed.running = false;
            scrubbed.rounds += u64::from(all && scrubbed.unread == 0);
        });
    }

    /// The objects from one on, up to another; `unread` takes those that could not be read. Whether the disk serves
    /// still.
    async fn scrub_from(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        (from, end): (Option<ObjectId>, Option<ObjectId>),
        unread: &mut Vec<ObjectId>,
    ) -> bool {
        let mut next = disk.index.next(from, false);
        while let Some(object) = next.filter(|object| end.is_none_or(|end| *object < end)) {
            if !self.scrub_one(disk, pace, object, unread).await {
                return false;
            }
            next = disk.index.next(Some(object), true);
        }
        true
    }

    /// Files of objects that the index does not know: it lost them, or they came back. Whether the disk serves still.
    async fn scrub_strays(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        unread: &mut Vec<ObjectId>,
    ) -> bool {
        let mut after = None;
        loop {
            let Ok(ids) = disk.list_objects(after, LIST_COUNT_MAX).await else {
                note(disk, |scrubbed| scrubbed.unread += 1);
                return disk.check().is_ok();
            };
            for object in ids.iter().filter(|object| disk.index.get(**object).is_none()) {
                if !self.scrub_one(disk, pace, *object, unread).await {
                    return false;
                }
            }
            if ids.len() < LIST_COUNT_MAX {
                return true;
            }
            after = ids.last().copied();
            self.wait_to_scrub(disk, pace).await;
        }
    }

    /// One object, or `unread` takes it. Whether the disk serves still.
    async fn scrub_one(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        object: ObjectId,
        unread: &mut Vec<ObjectId>,
    ) -> bool {
        if self.scrub_object(disk, pace, object).await.is_err() {
            note(disk, |scrubbed| scrubbed.unread += 1);
            unread.extend((unread.len() < SCRUB_AGAIN_MAX).then_some(object));
        }
        disk.check().is_ok()
    }

    /// Once more what could not be read, after a while: a disk that fails for a moment is no damage. Whether the disk
    /// serves still.
    async fn scrub_again(self: &Rc<Self>, disk: &Disk, pace: &Pace, unread: Vec<ObjectId>) -> bool {
        if !unread.is_empty() {
            self.cx.sleep(UNREADABLE_SPAN).await;
        }
        for object in unread {
            let result = self.scrub_object(disk, pace, object).await;
            if disk.check().is_err() {
                return false;
            }
            match result {
                Ok(()) => {}
                Err(Errno::EIO) => {
                    self.damage(disk, object, &"its file cannot be read");
                    note(disk, |scrubbed| scrubbed.damaged += 1);
                }
                Err(error) => {
                    self.report(format!(
                        "disk {}, object {object}: the scrub cannot read it, and tries again in its next round: {error}",
                        disk.id.0
                    ));
                    continue;
                }
            }
            note(disk, |scrubbed| scrubbed.unread -= 1);
        }
        true
    }

    /// All of one object; damage is noted. Other errors say that it could not be read.
    async fn scrub_object(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        id: ObjectId,
    ) -> Result<(), Errno> {
        self.wait_to_scrub(disk, pace).await;
        let number = disk.id.0 as u8;
        let group = self.group_of_object(number.into(), id);
        let ask = ObjectRequest { object: id, disk: number, group, ..ObjectRequest::default() };
        let was_open = self.objects.borrow().get(Spot::of(&ask)).is_some();
        let result = match self.object(&ask).await {
            Ok(object) => {
                let result = self.scrub_parts(disk, pace, &object).await;
                if !was_open {
                    self.objects.borrow_mut().close_unused(&object, &mut self.cache.borrow_mut());
                }
                result
            }
            Err(error) => Err(error),
        };
        match result {
            Err(Errno::EIO) if disk.damaged.borrow().contains(&id) => {
                note(disk, |scrubbed| scrubbed.damaged += 1);
                Ok(())
            }
            // Removed meanwhile.
            Err(Errno::ESTALE) => Ok(()),
            result => result,
        }
    }

    async fn scrub_parts(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        object: &Rc<Object>,
    ) -> Result<(), Errno> {
        self.scrub_header(disk, object).await?;
        let mut room = self.file_room(disk, object).await;
        let mut first = 0;
        while first < placed_blocks(&object.state.borrow()) {
            self.wait_to_scrub(disk, pace).await;
            let (next, read) = self.scrub_some(disk, object, first).await?;
            // Blocks behind the file's room were no reads of the disk, and the pace is by the room that is taken.
            let read = read.min(room);
            room -= read;
            note(disk, |scrubbed| scrubbed.note_read(read));
            first = next;
        }
        Ok(())
    }

    /// Bytes that the object's file takes on its disk. Of what is one window it does not matter.
    async fn file_room(&self, disk: &Disk, object: &Object) -> u64 {
        if placed_blocks(&object.state.borrow()) <= WINDOW_BLOCKS as u64 {
            return u64::MAX;
        }
        // If this fails, the read that follows reports the error.
        disk.stat(object.file()).await.map_or(u64::MAX, |(_, used)| used)
    }

    /// The window that begins with a block, or the groups there that the file has nothing of: which block follows, and
    /// bytes that were read.
    async fn scrub_some(
        self: &Rc<Self>,
        disk: &Disk,
        object: &Rc<Object>,
        first: u64,
    ) -> Result<(u64, u64), Errno> {
        // Nothing is committed, placed or cut off meanwhile.
        let gate = object.commits.acquire(1).await;
        let behind = self.hole_end(disk, object, first).await?;
        if behind > first {
            return Ok((behind, 0));
        }
        let (read, bad) = self.scrub_window(disk, object, first).await?;
        drop(gate);
        for block in bad {
            if !self.repair_block(object, block).await {
                return Err(self.report_damage(object, block));
            }
        }
        Ok((first + WINDOW_BLOCKS as u64, read))
    }

    /// Behind the groups from a block on of which the file has neither checksums nor data, so many at most, and memory
    /// knows of none: there is nothing to compare.
    async fn hole_end(&self, disk: &Disk, object: &Object, first: u64) -> Result<u64, Errno> {
        let group = group_of(first);
        let end = placed_blocks(&object.state.borrow()).div_ceil(GROUP_BLOCKS);
        let end = end.min(group + SEEK_GROUPS_MAX as u64);
        if !first.is_multiple_of(GROUP_BLOCKS) || group >= end {
            return Ok(first);
        }
        let (file, offset) = (object.file(), sums_offset(group));
        let bytes = sums_offset(end) - offset;
        let found = disk.ask(|| DiskOp::FindData { file, offset, bytes }).await;
        let Ok(DiskReply::Data(found)) = found else { return Ok(first) };
        let there = (found.saturating_sub(HEADER_BYTES) / GROUP_BYTES).clamp(group, end);
        let known = {
            let cache = self.cache.borrow();
            let has_sums = |group: &u64| {
                cache.has_group(object.key, *group)
                    && cache.group_sums(object.key, *group).iter().any(|sum| *sum != zero_sum())
            };
            (group..there).find(has_sums).unwrap_or(there)
        };
        if known > group {
            // A file that is cut short looks like one that goes on with a hole: this read tells them apart.
            let last = (known * GROUP_BLOCKS).min(placed_blocks(&object.state.borrow()));
            let into = disk.frame(BLOCK_BYTES).await;
            self.read_file(object, data_offset(last.saturating_sub(1)), into).await?;
        }
        Ok(known * GROUP_BLOCKS)
    }

    /// Waits until the next read is due and no reader waits for this server's disks, for a while at most.
    async fn wait_to_scrub(&self, disk: &Disk, pace: &Pace) {
        let now = self.cx.now();
        self.cx.sleep_until(pace.due(disk.scrubbed.get().bytes).max(now + SCRUB_PAUSE)).await;
        let until = self.cx.now() + SCRUB_WAIT;
        while self.missing.get() > 0 && self.cx.now() < until {
            self.cx.sleep(SCRUB_PAUSE).await;
        }
    }

    /// The header is the one that the index has, or a later one.
    async fn scrub_header(&self, disk: &Disk, object: &Object) -> Result<(), Errno> {
        let _gate = object.commits.acquire(1).await;
        if !is_placed(&object.state.borrow()) {
            return Ok(());
        }
        let into = disk.frame(HEADER_BYTES as usize).await;
        let bytes = self.read_file(object, 0, into).await?;
        note(disk, |scrubbed| scrubbed.note_read(HEADER_BYTES));
        if !is_placed(&object.state.borrow()) {
            return Ok(());
        }
        let header = Header::read(object.id, &bytes);
        let header = header.map_err(|error| self.damage(disk, object.id, &error))?;
        let Some(recorded) = disk.index.get(object.id) else { return Ok(()) };
        let checked = match header {
            None => Err("its file has no header, but the index knows the object"),
            // A checkpoint that failed may have left a later one.
            Some(header) if recorded.is_before(&header) => Ok(()),
            Some(header) => recorded.check(&header),
        };
        checked.map_err(|why| self.damage(disk, object.id, &why))
    }

    /// A window of an object whose gate is held: bytes that were read, and blocks that are damaged.
    async fn scrub_window(
        &self,
        disk: &Disk,
        object: &Object,
        first: u64,
    ) -> Result<(u64, Vec<u64>), Errno> {
        let group = group_of(first);
        let count = placed_blocks(&object.state.borrow()).saturating_sub(first);
        let blocks = first..first + count.min(WINDOW_BLOCKS as u64);
        let in_place = blocks.clone().filter(|block| is_in_place(&object.state.borrow(), *block));
        let in_place = in_place.count() as u64;
        let count = blocks.end - blocks.start;
        note(disk, |scrubbed| scrubbed.logged_blocks += count - in_place);
        if in_place == 0 {
            return Ok((0, Vec::new()));
        }
        let into = disk.frame(BLOCK_BYTES).await;
        let sums = decode_sums(&self.read_file(object, sums_offset(group), into).await?);
        let into = disk.frame(count as usize * BLOCK_BYTES).await;
        let data = self.read_file(object, data_offset(first), into).await?;
        Ok(((count + 1) * BLOCK, self.find_bad(object, blocks, &sums, &data)))
    }

    /// Those of these blocks that are in place and do not fit their checksums, or whose checksums are not those that
    /// were committed.
    fn find_bad(&self, object: &Object, blocks: Range<u64>, sums: &[u32], data: &[u8]) -> Vec<u64> {
        let (state, cache) = (object.state.borrow(), self.cache.borrow());
        // Those on the disk are older where some changed since.
        let dirty = cache.dirty_groups(object.key).contains(&group_of(blocks.start));
        let is_bad = |block: u64, bytes: &[u8]| {
            let placed = sums.get((block % GROUP_BLOCKS) as usize).copied().unwrap_or(zero_sum());
            let known = cache.committed_sum(object.key, block).unwrap_or(placed);
            block_crc(bytes) != known || placed != known && !dirty
        };
        if self.cx.has_bug(Bug::ScrubBlind) {
            return Vec::new();
        }
        let all = blocks.zip(data.chunks_exact(BLOCK_BYTES));
        all.filter(|(block, bytes)| is_in_place(&state, *block) && is_bad(*block, bytes))
            .map(|(block, _)| block)
            .collect()
    }
}

/// Whether the object's file has a header, and what is not in the log.
fn is_placed(state: &State) -> bool {
    state.phase == Phase::Open && state.in_place && state.header_sequence > 0
}

/// Blocks of the object that are committed, as far as its file has them or is to have them.
fn placed_blocks(state: &State) -> u64 {
    let length = state.stable.filter(|_| is_placed(state)).map_or(0, |head| head.length);
    length.min(state.head.length).div_ceil(BLOCK)
}

/// Whether what is committed of the block is in the file, and is not about to be changed there.
fn is_in_place(state: &State, block: u64) -> bool {
    let is_in = |runs: &[Run]| runs.iter().any(|run| run.blocks().contains(&block));
    let moves = state.pending.contains_key(&block) || is_in(&state.torn) || is_in(&state.unpunched);
    is_placed(state) && !moves && state.uncut.is_none_or(|kept| block < kept)
}

fn note(disk: &Disk, change: impl FnOnce(&mut Scrubbed)) {
    let mut scrubbed = disk.scrubbed.get();
    change(&mut scrubbed);
    disk.scrubbed.set(scrubbed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_spread_evenly_over_the_period() {
        let week = Duration::from_secs(7 * 24 * 3600);
        let pace = Pace { began: Time(1000), period: week, total: 1 << 40 };
        assert_eq!(pace.due(0), pace.began);
        assert_eq!(pace.due(1 << 39), pace.began + week / 2);
        assert_eq!(pace.due(1 << 40), pace.began + week);
        assert_eq!(pace.due(1 << 41), pace.began + week, "what the disk did not tell of");
        assert_eq!(Pace { total: 0, ..pace }.due(5), pace.began);
        assert_eq!(Pace { total: u64::MAX, ..pace }.due(u64::MAX), pace.began + week);
    }
}
