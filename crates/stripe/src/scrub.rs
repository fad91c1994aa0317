//! Scrub: everything on a disk is read once in a period, so that damage is found which nothing else reads.
//!
//! It goes over the index, object by object, a window of 256 KiB at a time, past the cache. A window is read with the
//! object's `commits` gate held and compared with the checksums beside it, and these with the ones in memory; what the
//! log has newer is left to the next round. What does not fit is damage as if a reader had met it. Rounds begin at a
//! random place, so that also a server that is started often comes everywhere.

use crate::disk::Disk;
use crate::limits::{SCRUB_FIRST, SCRUB_PAUSE, SCRUB_WAIT, WINDOW_BLOCKS};
use crate::object::{
    GROUP_BLOCKS, HEADER_BYTES, Header, data_offset, decode_sums, group_of, sums_offset, zero_sum,
};
use crate::objects::{Object, Phase, Spot};
use crate::protocol::ObjectRequest;
use crate::server::{Inner, Server};
use node::rings::{DiskOp, DiskReply};
use std::rc::Rc;
use std::time::Duration;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId, Time};

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

/// How far the scrub of a disk has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Rounds that went over the whole disk since the start.
    pub rounds: u64,
    /// When the present round began, or the last one while none is under way; `None` before the first.
    pub began: Option<Time>,
    /// Whether a round is under way.
    pub running: bool,
    /// Bytes read in it.
    pub bytes: u64,
    /// Bytes that it is about to read in all, as the disk says.
    pub total: u64,
    /// Objects in which a round found damage since the start; one that stays damaged counts in each.
    pub damaged: u64,
    /// Bytes read in all rounds.
    pub all_bytes: u64,
}

impl Server {
    /// How far the scrub has come, by disk.
    pub fn scrubbed(&self) -> Vec<Scrubbed> {
        self.0.disks.iter().map(|disk| disk.scrubbed.get()).collect()
    }
}

impl Inner {
    /// The task of one disk.
    pub async fn scrubs(self: Rc<Self>, disk: usize) {
        let Some(period) = self.config.scrub else { return };
        let disk = &self.disks[disk];
        let pause = SCRUB_FIRST.min(period / 16);
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
        let before = disk.scrubbed.get();
        let began = Some(pace.began);
        disk.scrubbed.set(Scrubbed { began, running: true, bytes: 0, total, ..before });
        let start = disk.index.somewhere(self.cx.random());
        let up = self.scrub_from(disk, &pace, start, None).await;
        let all = up && self.scrub_from(disk, &pace, None, start).await;
        note(disk, |scrubbed| {
            scrubbed.running = false;
            scrubbed.rounds += u64::from(all);
        });
    }

    /// The objects from `from` on, up to `end`. Whether the disk serves still.
    async fn scrub_from(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        from: Option<ObjectId>,
        end: Option<ObjectId>,
    ) -> bool {
        let mut next = disk.index.next(from, false);
        while let Some(object) = next.filter(|object| end.is_none_or(|end| *object < end)) {
            let result = self.scrub_object(disk, pace, object).await;
            if disk.check().is_err() {
                return false;
            }
            if result == Err(Errno::EIO) {
                if !disk.damaged.borrow().contains(&object) {
                    self.damage(disk, object, &"its file cannot be read");
                }
                note(disk, |scrubbed| scrubbed.damaged += 1);
            }
            next = disk.index.next(Some(object), true);
        }
        true
    }

    /// All of one object. EIO when it is damaged; other errors say that there is nothing to compare any more.
    async fn scrub_object(
        self: &Rc<Self>,
        disk: &Disk,
        pace: &Pace,
        id: ObjectId,
    ) -> Result<(), Errno> {
        self.wait_to_scrub(disk, pace).await;
        let ask = ObjectRequest { object: id, disk: disk.id.0 as u8, ..ObjectRequest::default() };
        let was_open = self.objects.borrow().get(Spot::of(&ask)).is_some();
        let object = self.object(&ask).await?;
        let result = self.scrub_parts(disk, pace, &object).await;
        if !was_open {
            self.objects.borrow_mut().close_unused(&object, &mut self.cache.borrow_mut());
        }
        result
    }

    async fn scrub_parts(
        &self,
        disk: &Disk,
        pace: &Pace,
        object: &Rc<Object>,
    ) -> Result<(), Errno> {
        self.scrub_header(disk, object).await?;
        let mut first = 0;
        while first < object.state.borrow().blocks() {
            self.wait_to_scrub(disk, pace).await;
            self.scrub_window(disk, object, first).await?;
            first += WINDOW_BLOCKS as u64;
        }
        Ok(())
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

    /// What the header says is what the index has, or later.
    async fn scrub_header(&self, disk: &Disk, object: &Object) -> Result<(), Errno> {
        let _gate = object.commits.acquire(1).await;
        if !is_placed(object) {
            return Ok(());
        }
        let into = disk.frame(HEADER_BYTES as usize).await;
        let bytes = self.read_file(object, 0, into).await?;
        note_read(disk, HEADER_BYTES);
        if !is_placed(object) {
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

    async fn scrub_window(&self, disk: &Disk, object: &Object, first: u64) -> Result<(), Errno> {
        let _gate = object.commits.acquire(1).await;
        let group = group_of(first);
        let dirty = self.cache.borrow().dirty_groups(object.key).contains(&group);
        let count = object.state.borrow().blocks().saturating_sub(first);
        let count = count.min(WINDOW_BLOCKS as u64) as usize;
        if !is_placed(object) || dirty || count == 0 {
            return Ok(());
        }
        let into = disk.frame(BLOCK_BYTES).await;
        let sums = decode_sums(&self.read_file(object, sums_offset(group), into).await?);
        let into = disk.frame(count * BLOCK_BYTES).await;
        let data = self.read_file(object, data_offset(first), into).await?;
        note_read(disk, ((count + 1) * BLOCK_BYTES) as u64);
        for (block, bytes) in (first..).zip(data.chunks_exact(BLOCK_BYTES)) {
            if !is_placed(object) {
                return Ok(());
            }
            let sum = sums.get((block % GROUP_BLOCKS) as usize).copied().unwrap_or(zero_sum());
            let known = self.cache.borrow().committed_sum(object.key, block).unwrap_or(sum);
            if known != sum || block_crc(bytes) != sum {
                return Err(self.report_damage(object, block));
            }
        }
        Ok(())
    }
}

/// Whether what is committed of the object is in its file, and its file is as it is to be.
fn is_placed(object: &Object) -> bool {
    let state = object.state.borrow();
    let settled = state.pending.is_empty() && state.torn.is_empty() && state.uncut.is_none();
    let settled = settled && state.unpunched.is_empty();
    state.phase == Phase::Open && state.in_place && settled && state.header_sequence > 0
}

fn note(disk: &Disk, change: impl FnOnce(&mut Scrubbed)) {
    let mut scrubbed = disk.scrubbed.get();
    change(&mut scrubbed);
    disk.scrubbed.set(scrubbed);
}

fn note_read(disk: &Disk, bytes: u64) {
    note(disk, |scrubbed| {
        scrubbed.bytes += bytes;
        scrubbed.all_bytes += bytes;
    });
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
