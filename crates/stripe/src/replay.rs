//! The replay of one object: what the logs say of it becomes so.
//!
//! First comes what needs no room on the disk: what was cut off goes, and what is to be written is found out. Then it
//! is written. On a full disk it is not: the object is kept in memory as it was before the restart, with the blocks
//! that only the log has, and the checkpoint brings it into place when there is room.
//!
//! Invariant: it may be repeated, from any point, for as long as the logs are there and whatever they say besides.

use crate::description::Description;
use crate::disk::{Disk, Entry};
use crate::hole::{edge_blocks, hole_ranges, whole_groups};
use crate::log::{Kind, Record, Run};
use crate::object::{
    GROUP_BLOCKS, HEADER_BYTES, Head, Header, Unreadable, data_offset, decode_sums, encode_sums,
    file_bytes, group_of, header_offset, lost_sum, sums_offset, zero_sum,
};
use crate::objects::Logged;
use crate::server::Inner;
use endpoint::{Frame, FrameMut};
use node::Bug;
use node::rings::{DiskError, DiskFile, DiskOp};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Location of the latest committed bytes of a block.
#[derive(Clone, Copy, Debug)]
enum Source {
    Log { generation: u32, offset: u64 },
    Place,
}

/// The logs' contents about one object.
#[derive(Default)]
pub(crate) struct Replay {
    head: Option<Head>,
    description: Option<Rc<Description>>,
    blocks: BTreeMap<u64, (Source, u32)>,
    /// Blocks that may be torn.
    torn: BTreeSet<u64>,
    /// Fewest blocks it was cut to.
    cut: Option<u64>,
    /// Likewise, since its file was last known to be synchronised.
    file_cut: Option<u64>,
    /// Blocks that became holes.
    punched: Vec<Run>,
    /// Likewise, since its file was last known to be synchronised.
    file_punched: Vec<Run>,
    removed: bool,
    /// It was removed and made again: what is recorded of it may be of the object before.
    remade: bool,
    /// Something of it was put in place since.
    placed: bool,
}

impl Replay {
    /// The object's description, by the log and by its header: a checkpoint that was cut off may have put a later one
    /// there.
    fn described(&self, placed: Option<Description>) -> Option<Rc<Description>> {
        match (&self.description, placed) {
            (None, placed) => placed.map(Rc::new),
            (Some(logged), None) => Some(logged.clone()),
            (Some(logged), Some(placed)) => {
                let mut both = Description::clone(logged);
                both.keep(&placed);
                Some(Rc::new(both))
            }
        }
    }

    /// The next record of the object.
    pub fn take(&mut self, record: &Record, generation: u32, data_at: u64) {
        let blocks = record.runs.iter().flat_map(|run| run.blocks());
        match record.kind {
            Kind::Intent => return self.torn.extend(blocks),
            Kind::Remove => {
                return *self = Replay { removed: true, remade: true, ..Replay::default() };
            }
            // Cuts and holes came into place, and were synchronised, before data was placed.
            Kind::Placed => {
                (self.file_cut, self.placed) = (None, true);
                self.file_punched.clear();
            }
            Kind::Punch => self.take_holes(&record.runs),
            Kind::Cut => {
                let kept = record.head.length.div_ceil(BLOCK);
                self.blocks.split_off(&kept);
                self.torn.split_off(&kept);
                self.cut = Some(self.cut.map_or(kept, |cut| cut.min(kept)));
                self.file_cut = Some(self.file_cut.map_or(kept, |cut| cut.min(kept)));
            }
            Kind::Describe => self.description.clone_from(&record.description),
            Kind::Commit => {}
        }
        for (index, (block, sum)) in blocks.zip(&record.sums).enumerate() {
            let source = match record.kind {
                Kind::Placed => Source::Place,
                _ => Source::Log { generation, offset: data_at + index as u64 * BLOCK },
            };
            self.blocks.insert(block, (source, *sum));
            self.torn.remove(&block);
        }
        (self.head, self.removed) = (Some(record.head), false);
    }

    fn take_holes(&mut self, runs: &[Run]) {
        for run in runs {
            self.blocks.retain(|block, _| !run.blocks().contains(block));
            self.torn.retain(|block| !run.blocks().contains(block));
        }
        self.punched.extend_from_slice(runs);
        self.file_punched.extend_from_slice(runs);
    }
}

impl Inner {
    /// Brings an object up to date in place. A file that cannot be understood stays as it is.
    pub async fn replay(
        &self,
        disk: &Disk,
        id: ObjectId,
        replay: &Replay,
    ) -> Result<(), DiskError> {
        if let Some(mut work) = self.begin_replay(disk, id, replay).await? {
            disk.index.note(&work.place().await?);
            self.count(|c| c.torn_blocks += work.torn);
        }
        Ok(())
    }

    /// Has an object open as the logs say it is. The logs must stay until the checkpoint has brought it into place.
    pub async fn keep_logged(
        &self,
        disk: &Disk,
        id: ObjectId,
        replay: &Replay,
    ) -> Result<(), DiskError> {
        if let Some(work) = self.begin_replay(disk, id, replay).await? {
            self.count(|c| c.torn_blocks += work.torn);
            self.adopt(disk, id, work.logged().await?);
        }
        Ok(())
    }

    /// Does what needs no room on the disk; nothing more is to be done when there is to be no object.
    async fn begin_replay<'a>(
        &self,
        disk: &'a Disk,
        id: ObjectId,
        replay: &'a Replay,
    ) -> Result<Option<Work<'a>>, DiskError> {
        let file = DiskFile::Object(id);
        // The file of the object before may have come back; nothing of the present one is in a file yet.
        if replay.remade && !replay.placed {
            disk.simple(|| DiskOp::Remove { file }).await?;
        }
        if replay.removed {
            disk.index.note_removed(id);
            return Ok(None);
        }
        let Some((bytes, found, readable)) = self.read_slots(disk, file, replay).await? else {
            self.report(format!(
                "disk {}, object {id}: its header cannot be read, and the log does not know it",
                disk.id.0
            ));
            return Ok(None);
        };
        if !readable {
            // The log knows what was to be there, and it need not fit what is recorded.
            disk.index.note_removed(id);
        }
        let header = self.replayed_header(disk, id, replay, &bytes).await?;
        let header = match header {
            Ok(header) => header,
            Err(why) => {
                self.damage(disk, id, &why);
                // The log goes, so what it has of the object is lost: no file may pass for the object any more.
                if let Some(head) = replay.head {
                    disk.index.note_lost(id, head.group);
                }
                return Ok(None);
            }
        };
        let Some(head) = replay.head.or(header.map(|header| header.head)) else {
            disk.simple(|| DiskOp::Remove { file }).await?;
            return Ok(None);
        };
        let sequence = header.map_or(0, |header| header.sequence);
        let placed = header.and_then(|header| header.description(&bytes));
        let mut work = Work {
            disk,
            id,
            replay,
            head,
            sequence,
            found,
            description: replay.described(placed),
            sums: BTreeMap::new(),
            mended: BTreeMap::new(),
            torn: 0,
            lost: Vec::new(),
        };
        work.prepare().await?;
        for group in &work.lost {
            let blocks = group * GROUP_BLOCKS..(group + 1) * GROUP_BLOCKS;
            self.report(format!(
                "disk {}, object {id}: the checksums of its blocks {} to {} cannot be read: these are lost",
                disk.id.0,
                blocks.start,
                blocks.end - 1
            ));
        }
        Ok(Some(work))
    }

    /// The header of the file that is there, or why it is not the object's.
    async fn replayed_header(
        &self,
        disk: &Disk,
        id: ObjectId,
        replay: &Replay,
        bytes: &[u8],
    ) -> Result<Result<Option<Header>, String>, DiskError> {
        let recorded = disk.index.get(id).filter(|_| !replay.remade);
        Ok(match Header::read(id, bytes) {
            // Torn while it was made; the log knows what it was to say.
            Err(Unreadable::Damaged) if replay.head.is_some() && recorded.is_none() => Ok(None),
            Err(unreadable) => Err(unreadable.to_string()),
            Ok(header) => match recorded {
                Some(entry) => self.check_replayed(disk, id, replay, entry, header).await?,
                None => Ok(()),
            }
            .map(|()| header),
        })
    }

    /// Whether the file is that of the object that is recorded, as it was when the logs began or some way on, or else
    /// what it is. A crash while it was brought into place leaves a later header than the one that is recorded.
    async fn check_replayed(
        &self,
        disk: &Disk,
        id: ObjectId,
        replay: &Replay,
        entry: Entry,
        header: Option<Header>,
    ) -> Result<Result<(), String>, DiskError> {
        let Some(header) = header else {
            return Ok(match self.is_quarantined(disk, id).await? {
                true => Ok(()),
                false => Err("its file is missing or has no header, but the index knows it".into()),
            });
        };
        if let Err(why) = self.compare(entry, &header) {
            return Ok(if entry.is_before(&header) { Ok(()) } else { Err(why.to_string()) });
        }
        let blocks = header.head.length.div_ceil(BLOCK).min(replay.cut.unwrap_or(u64::MAX));
        let (bytes, _) = disk.stat(DiskFile::Object(id)).await?;
        match bytes < file_bytes(blocks * BLOCK) {
            true => Ok(Err("its file is cut short".into())),
            false => Ok(Ok(())),
        }
    }

    /// Both header slots, whether there is a file, and whether all of them could be read. One that could not, as a
    /// power cut may leave it, counts as never written when the log knows what it was to say; `None` when it does not.
    async fn read_slots(
        &self,
        disk: &Disk,
        file: DiskFile,
        replay: &Replay,
    ) -> Result<Option<(FrameMut, bool, bool)>, DiskError> {
        match disk.read(file, 0, HEADER_BYTES as usize).await {
            Err(DiskError::Failed(Errno::EIO)) => {}
            read => return read.map(|(bytes, found)| Some((bytes, found, true))),
        }
        let mut readable = true;
        let mut slots = disk.zeros(HEADER_BYTES as usize).await;
        for (slot, offset) in slots.chunks_exact_mut(BLOCK_BYTES).zip([0, BLOCK]) {
            match disk.read_patiently(file, offset, BLOCK_BYTES).await? {
                Some((bytes, _)) => slot.copy_from_slice(&bytes),
                None if replay.head.is_none() => return Ok(None),
                None => {
                    // When the log is gone it must be readable, and must not be what it was.
                    let zeros = disk.zeros(BLOCK_BYTES).await;
                    disk.write(file, offset, zeros.freeze(), false).await?;
                    readable = false;
                }
            }
        }
        Ok(Some((slots, true, readable)))
    }
}

/// The replay of an object that there is to be.
struct Work<'a> {
    disk: &'a Disk,
    id: ObjectId,
    replay: &'a Replay,
    head: Head,
    /// Of the header in place; 0 when there is none.
    sequence: u64,
    /// Whether there is a file.
    found: bool,
    /// The description in the header in place.
    description: Option<Rc<Description>>,
    /// Checksums of groups in which some change.
    sums: BTreeMap<u64, Vec<u32>>,
    /// Torn blocks, with zeros behind the object's end.
    mended: BTreeMap<u64, Frame>,
    torn: u64,
    /// Groups whose checksums cannot be read.
    lost: Vec<u64>,
}

impl Work<'_> {
    fn file(&self) -> DiskFile {
        DiskFile::Object(self.id)
    }

    /// Finds out what is to be written.
    async fn prepare(&mut self) -> Result<(), DiskError> {
        self.cut_off().await?;
        self.punch_out().await?;
        for (block, (_, sum)) in &self.replay.blocks {
            self.set_sum(*block, *sum).await?;
        }
        self.sum_torn().await
    }

    /// Writes it; the header that it has now.
    async fn place(&mut self) -> Result<Header, DiskError> {
        self.write_blocks().await?;
        self.write_sums().await?;
        let sequence = self.sequence + 1;
        let header = Header { object: self.id, sequence, head: self.head };
        self.write_header(header).await?;
        self.make_long().await?;
        let file = self.file();
        self.disk.simple(|| DiskOp::Sync { file }).await?;
        Ok(header)
    }

    /// The file reaches as far as its header says.
    async fn make_long(&self) -> Result<(), DiskError> {
        let (file, wanted) = (self.file(), file_bytes(self.head.length));
        match self.disk.stat(file).await?.0 < wanted {
            true => self.disk.simple(|| DiskOp::Truncate { file, bytes: wanted }).await,
            false => Ok(()),
        }
    }

    /// The object with what would be written in memory.
    async fn logged(self) -> Result<Logged, DiskError> {
        let mut pending = BTreeMap::new();
        for (block, (source, sum)) in &self.replay.blocks {
            if let Source::Log { generation, offset } = *source {
                // Nothing is given back before the disk serves: who waits for memory here waits for ever.
                let into = self.disk.frame_now(BLOCK_BYTES);
                let into = into.ok_or(DiskError::Failed(Errno::ENOMEM))?;
                let file = DiskFile::Log(generation);
                let (frame, _) = self.disk.read_some(file, offset, into).await?;
                pending.insert(*block, (frame.freeze(), *sum));
            }
        }
        let mended = self.mended.into_iter();
        pending.extend(mended.map(|(block, frame)| {
            let sum = block_crc(&frame);
            (block, (frame, sum))
        }));
        let Work { head, sequence, found, description, sums, .. } = self;
        Ok(Logged { head, sequence, found, description, sums, pending })
    }

    /// Bytes behind a cut, and those that an unfinished commit put behind the end, must read as zeros.
    async fn cut_off(&mut self) -> Result<(), DiskError> {
        let kept = self.head.length.div_ceil(BLOCK);
        let unfinished = self.replay.torn.last().is_some_and(|last| *last >= kept);
        let unfinished = unfinished.then_some(kept);
        if let Some(blocks) = self.replay.file_cut.into_iter().chain(unfinished).min() {
            let (file, bytes) = (self.file(), file_bytes(blocks * BLOCK));
            match self.disk.simple(|| DiskOp::Truncate { file, bytes }).await {
                // It was never put in place.
                Err(DiskError::NotFound) => {}
                result => result?,
            }
        }
        if let Some(blocks) = self.replay.cut.into_iter().chain(unfinished).min() {
            let at = (blocks % GROUP_BLOCKS) as usize;
            self.group(group_of(blocks)).await?.truncate(at);
        }
        Ok(())
    }

    /// A hole must read as zeros.
    async fn punch_out(&mut self) -> Result<(), DiskError> {
        for (offset, bytes) in self.replay.file_punched.iter().flat_map(hole_ranges) {
            let file = self.file();
            match self.disk.simple(|| DiskOp::Punch { file, offset, bytes }).await {
                // It was never put in place.
                Err(DiskError::NotFound) => {}
                result => result?,
            }
        }
        let end = self.head.length.div_ceil(BLOCK);
        for run in &self.replay.punched {
            // The checksums of whole groups went with their blocks; these were read when the object was cut.
            for group in whole_groups(run) {
                self.sums.get_mut(&group).into_iter().for_each(Vec::clear);
            }
            for block in edge_blocks(run).filter(|block| *block < end) {
                self.set_sum(block, zero_sum()).await?;
            }
        }
        Ok(())
    }

    /// The checksums of a group, as in place and changed so far. When they cannot be read, as a power cut may leave
    /// them, nothing is known of the blocks that only they vouch for: these are lost, the rest of the disk is not.
    async fn group(&mut self, group: u64) -> Result<&mut Vec<u32>, DiskError> {
        if !self.sums.contains_key(&group) {
            let offset = sums_offset(group);
            let read = self.disk.read_patiently(self.file(), offset, BLOCK_BYTES).await?;
            let sums = match read {
                Some((bytes, _)) => decode_sums(&bytes),
                None => {
                    self.lost.push(group);
                    let blocks = self.head.length.div_ceil(BLOCK);
                    let count = blocks.saturating_sub(group * GROUP_BLOCKS).min(GROUP_BLOCKS);
                    vec![lost_sum(); count as usize]
                }
            };
            self.sums.insert(group, sums);
        }
        Ok(self.sums.get_mut(&group).expect("just put there"))
    }

    async fn set_sum(&mut self, block: u64, sum: u32) -> Result<(), DiskError> {
        let at = (block % GROUP_BLOCKS) as usize;
        let sums = self.group(group_of(block)).await?;
        if sums.len() <= at {
            sums.resize(at + 1, zero_sum());
        }
        sums[at] = sum;
        Ok(())
    }

    async fn write_blocks(&self) -> Result<(), DiskError> {
        for (block, (source, _)) in &self.replay.blocks {
            if let Source::Log { generation, offset } = *source {
                let log = DiskFile::Log(generation);
                let (frame, _) = self.disk.read(log, offset, BLOCK_BYTES).await?;
                self.disk.write(self.file(), data_offset(*block), frame.freeze(), false).await?;
            }
        }
        for (block, frame) in &self.mended {
            self.disk.write(self.file(), data_offset(*block), frame.clone(), false).await?;
        }
        Ok(())
    }

    async fn sum_torn(&mut self) -> Result<(), DiskError> {
        let length = self.head.length;
        for block in self.replay.torn.range(..length.div_ceil(BLOCK)) {
            if let Some((Source::Log { .. }, _)) = self.replay.blocks.get(block) {
                continue;
            }
            let read = self.disk.read(self.file(), data_offset(*block), BLOCK_BYTES).await;
            let (mut bytes, _) = match read {
                // A power cut may leave an unreadable block. It is not read until it is written over.
                Err(DiskError::Failed(Errno::EIO)) => continue,
                read => read?,
            };
            let sums = self.group(group_of(*block)).await?;
            let before = sums.get((block % GROUP_BLOCKS) as usize).copied().unwrap_or(zero_sum());
            let end = (length - block * BLOCK).min(BLOCK) as usize;
            if before == lost_sum() && bytes[..end].iter().all(|byte| *byte == 0) {
                continue; // given up, and nothing came into its place since
            }
            if block_crc(&bytes) == before || self.disk.cx.has_bug(Bug::TornNotSummed) {
                continue;
            }
            self.torn += 1;
            let sum = block_crc(&bytes[..end]);
            if block_crc(&bytes) != sum {
                bytes[end..].fill(0);
                self.mended.insert(*block, bytes.freeze());
            }
            self.set_sum(*block, sum).await?;
        }
        Ok(())
    }

    async fn write_sums(&mut self) -> Result<(), DiskError> {
        for (group, sums) in &self.sums {
            let mut frame: FrameMut = self.disk.frame(BLOCK_BYTES).await;
            encode_sums(sums, &mut frame);
            self.disk.write(self.file(), sums_offset(*group), frame.freeze(), false).await?;
        }
        Ok(())
    }

    async fn write_header(&self, header: Header) -> Result<(), DiskError> {
        let mut frame = self.disk.frame(BLOCK_BYTES).await;
        header.encode(self.description.as_deref(), &mut frame);
        let offset = header_offset(header.sequence);
        self.disk.write(self.file(), offset, frame.freeze(), false).await
    }
}
