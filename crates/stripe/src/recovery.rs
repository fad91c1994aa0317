//! What happens before a disk serves: its label is checked, its logs are replayed.
//!
//! Replay brings every complete record into place: of each block the latest record counts. A block that an intent
//! names, and no later record, may be *torn*: when it does not fit its checksum it is summed anew, old or new as it
//! is, and counted. Any other block that does not fit is corruption, found and told when it is read.

use crate::disk::Disk;
use crate::limits::{RECORD_META_BLOCKS_MAX, WINDOW_BYTES};
use crate::log::{End, Generation, Kind, Record, Start};
use crate::object::{
    FORMAT_VERSION, GROUP_BLOCKS, HEADER_BYTES, Head, Header, Unreadable, data_offset, decode_sums,
    encode_sums, file_bytes, group_of, header_offset, sums_offset, zero_sum,
};
use crate::order::Lives;
use crate::server::Inner;
use endpoint::FrameMut;
use node::Bug;
use node::rings::{DiskError, DiskFile, DiskListing, DiskOp, DiskReply};
use std::collections::{BTreeMap, BTreeSet};
use wire::checksum::{block_crc, crc32c};
use wire::codec::{Decoder, Encoder};
use wire::limits::BLOCK_BYTES;
use wire::{Errno, NodeId, ObjectId, VolumeId};

const LABEL_MAGIC: u32 = u32::from_le_bytes(*b"TZLB");
const LABEL_BYTES: usize = 24;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// What a disk is: the contents of its label file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Whose objects it keeps.
    pub volume: VolumeId,
    /// The server it belongs to.
    pub server: NodeId,
    /// Its number on that server.
    pub disk: u16,
    /// Disks that the server had when this one was made; it may have more now.
    pub disks: u16,
}

impl Label {
    /// Writes the label into a block.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let mut out = Encoder::new(block);
        out.u32(LABEL_MAGIC).u16(FORMAT_VERSION).u32(self.volume.0);
        out.u16(self.server.0).u16(self.disk).u16(self.disks);
        let sum = crc32c(&block[..LABEL_BYTES]);
        block[LABEL_BYTES..LABEL_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Why the block is not this label, as a sentence that names both.
    pub fn check(&self, block: &[u8]) -> Result<(), String> {
        let found = Label::decode(block)?;
        let pairs = [
            ("volume", found.volume.0, self.volume.0),
            ("server", found.server.0.into(), self.server.0.into()),
            ("disk number", found.disk.into(), self.disk.into()),
        ];
        match pairs.iter().find(|(_, found, wanted)| found != wanted) {
            None if found.disks > self.disks => Err(format!(
                "its label says that the server had {} disks, the configuration names {}: name them all, also one that is lost",
                found.disks, self.disks
            )),
            Some((what, found, wanted)) => Err(format!(
                "its label says {what} {found}, the configuration says {wanted}: give the server the directories it had"
            )),
            None => Ok(()),
        }
    }

    fn decode(block: &[u8]) -> Result<Label, String> {
        let damaged = |_| "its label is damaged".to_string();
        let mut input = Decoder::new(block);
        if input.u32().map_err(damaged)? != LABEL_MAGIC {
            return Err("its label is not one of ours".into());
        }
        let version = input.u16().map_err(damaged)?;
        if version != FORMAT_VERSION {
            return Err(format!(
                "its format version is {version}, this program reads {FORMAT_VERSION}: use the release that wrote it"
            ));
        }
        let sum = crc32c(&block[..LABEL_BYTES]).to_le_bytes();
        if block[LABEL_BYTES..LABEL_BYTES + 4] != sum {
            return Err("its label is damaged".into());
        }
        Ok(Label {
            volume: VolumeId(input.u32().map_err(damaged)?),
            server: NodeId(input.u16().map_err(damaged)?),
            disk: input.u16().map_err(damaged)?,
            disks: input.u16().map_err(damaged)?,
        })
    }
}

/// Where the latest committed bytes of a block are.
#[derive(Clone, Copy, Debug)]
enum Source {
    Log { generation: u32, offset: u64 },
    Place,
}

/// What the logs say of one object.
#[derive(Default)]
struct Replay {
    head: Option<Head>,
    blocks: BTreeMap<u64, (Source, u32)>,
    /// Blocks that may be torn.
    torn: BTreeSet<u64>,
    /// Fewest blocks it was cut to.
    cut: Option<u64>,
    /// Likewise, since its file was last known to be synchronised.
    file_cut: Option<u64>,
    removed: bool,
}

impl Replay {
    fn take(&mut self, record: &Record, generation: u32, data_at: u64) {
        let blocks = record.runs.iter().flat_map(|run| run.blocks());
        match record.kind {
            Kind::Intent => return self.torn.extend(blocks),
            Kind::Remove => return *self = Replay { removed: true, ..Replay::default() },
            // Cuts came into place, and were synchronised, before data was placed.
            Kind::Placed => self.file_cut = None,
            Kind::Cut => {
                let kept = record.head.length.div_ceil(BLOCK);
                self.blocks.split_off(&kept);
                self.torn.split_off(&kept);
                self.cut = Some(self.cut.map_or(kept, |cut| cut.min(kept)));
                self.file_cut = Some(self.file_cut.map_or(kept, |cut| cut.min(kept)));
            }
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
}

/// What a disk's logs say together.
#[derive(Default)]
struct Logs {
    objects: BTreeMap<ObjectId, Replay>,
    generations: Vec<u32>,
    sequence: u64,
}

impl Logs {
    /// The generation to go on with: after all that say something. Logs that say nothing need not go, so that a disk
    /// that cannot be written to serves its readers.
    fn next_generation(&self) -> u32 {
        self.generations.last().map_or(1, |last| last + u32::from(self.say_something()))
    }

    fn say_something(&self) -> bool {
        !self.objects.is_empty()
    }
}

/// Why a disk cannot serve.
type Refusal = (Errno, String);

fn refusal(disk: &Disk, what: &str, error: DiskError) -> Refusal {
    (crate::disk::errno(error), format!("disk {}: {what}: {error}", disk.id.0))
}

impl Inner {
    /// How many disks the server has had, as far as any of its disks knows. One that cannot be read says nothing here.
    pub async fn known_disks(&self) -> u16 {
        let mut known = 0;
        for disk in &self.disks {
            let found = self.find_lives(disk).await;
            known = known.max(found.map_or(0, |lives| lives.disks()));
        }
        known
    }

    /// Makes sure that a disk is the one with its number, of the `known` disks or a new one.
    pub async fn identify(&self, disk: usize, known: u16) -> Result<(), Refusal> {
        let (disk, configured) = (&self.disks[disk], self.disks.len());
        if configured < usize::from(known) {
            let text = format!(
                "the server has had {known} disks, the configuration names {configured}: name them all, also one that is lost"
            );
            return Err((Errno::ENODEV, text));
        }
        self.check_label(disk, known).await
    }

    /// Makes an identified disk ready to serve, one of `disks` that the server has.
    pub async fn prepare(&self, disk: usize, disks: u16) -> Result<(), Refusal> {
        let disk = &self.disks[disk];
        self.begin_life(disk, disks).await?;
        let logs = self.read_logs(disk).await?;
        for (id, replay) in &logs.objects {
            self.replay(disk, *id, replay).await?;
        }
        let dropped = self.drop_replayed(disk, &logs).await;
        dropped.map_err(|error| refusal(disk, "the replayed log cannot be removed", error))?;
        let number = logs.next_generation();
        disk.journal.start(Generation { number, salt: self.cx.random() }, logs.sequence + 1);
        let oldest = logs.generations.first().filter(|_| !logs.say_something());
        disk.oldest_log.set(oldest.copied().unwrap_or(number));
        Ok(())
    }

    async fn check_label(&self, disk: &Disk, known: u16) -> Result<(), Refusal> {
        let label = Label {
            volume: self.config.volume,
            server: self.config.server,
            disk: disk.id.0,
            disks: self.disks.len() as u16,
        };
        let into = disk.frame(BLOCK_BYTES).await;
        let read = disk.read(DiskFile::Label, 0, into).await;
        let (block, found) =
            read.map_err(|error| refusal(disk, "its label cannot be read", error))?;
        if found {
            let refuse = |text| (Errno::ENODEV, format!("disk {}: {text}", disk.id.0));
            return label.check(&block).map_err(refuse);
        }
        self.check_empty(disk).await?;
        if disk.id.0 < known {
            let text = format!(
                "disk {}: its directory is empty, but the server has had {known} disks, this one too: mount the disk there; \
                 if it is lost, remove the directory, and the server starts without it",
                disk.id.0
            );
            return Err((Errno::ENODEV, text));
        }
        let mut block = block;
        label.encode(&mut block);
        let written = disk.write(DiskFile::Label, 0, block.freeze(), true).await;
        written.map_err(|error| refusal(disk, "its label cannot be written", error))?;
        let synced = disk.sync_names().await;
        synced.map_err(|error| refusal(disk, "its label cannot be written", error))
    }

    /// Notes this life of the server behind the label, in two slots in turns, before anything is written in it. Who
    /// cannot note it because the disk is read-only will not commit anything either.
    async fn begin_life(&self, disk: &Disk, disks: u16) -> Result<(), Refusal> {
        let lives = self.find_lives(disk).await;
        let mut lives = lives.map_err(|error| refusal(disk, "its lives cannot be read", error))?;
        lives.begin(self.verifier);
        lives.note_disks(disks);
        let mut block = disk.frame(BLOCK_BYTES).await;
        lives.encode(&mut block);
        let offset = BLOCK + lives.sequence() % 2 * BLOCK;
        let noted = match disk.write(DiskFile::Label, offset, block.freeze(), true).await {
            Ok(()) => disk.sync_names().await,
            Err(error) => Err(error),
        };
        *disk.lives.borrow_mut() = lives;
        match noted {
            Ok(()) | Err(DiskError::ReadOnly) => Ok(()),
            Err(error) => Err(refusal(disk, "this start cannot be noted on it", error)),
        }
    }

    /// What the disk says of the server's lives before this one.
    async fn find_lives(&self, disk: &Disk) -> Result<Lives, DiskError> {
        let into = disk.frame(2 * BLOCK_BYTES).await;
        let (slots, _) = disk.read(DiskFile::Label, BLOCK, into).await?;
        let found = slots.chunks_exact(BLOCK_BYTES).filter_map(Lives::decode);
        Ok(found.max_by_key(Lives::sequence).unwrap_or_default())
    }

    /// A disk without a label is new only when there is nothing on it.
    async fn check_empty(&self, disk: &Disk) -> Result<(), Refusal> {
        let listings = [DiskListing::Logs, DiskListing::Objects { after: None, count: 1 }];
        for listing in listings {
            let listed = disk.ask(|| DiskOp::List(listing)).await;
            match listed.map_err(|error| refusal(disk, "it cannot be listed", error))? {
                DiskReply::Files(files) if files.is_empty() => {}
                _ => {
                    let text = "it holds data but no label: its label was removed, restore it";
                    return Err((Errno::ENODEV, format!("disk {}: {text}", disk.id.0)));
                }
            }
        }
        Ok(())
    }

    // The logs.

    async fn read_logs(&self, disk: &Disk) -> Result<Logs, Refusal> {
        let listed = disk.ask(|| DiskOp::List(DiskListing::Logs)).await;
        let listed = listed.map_err(|error| refusal(disk, "its logs cannot be listed", error))?;
        let mut logs = Logs::default();
        if let DiskReply::Files(files) = listed {
            logs.generations = files
                .into_iter()
                .filter_map(|file| match file {
                    DiskFile::Log(generation) => Some(generation),
                    _ => None,
                })
                .collect();
        }
        logs.generations.sort_unstable();
        for generation in logs.generations.clone() {
            self.read_log(disk, generation, &mut logs).await?;
        }
        Ok(logs)
    }

    async fn read_log(&self, disk: &Disk, generation: u32, logs: &mut Logs) -> Result<(), Refusal> {
        let (mut at, mut salt) = (0, None);
        loop {
            let record = read_record(disk, generation, at).await;
            let record = record.map_err(|error| refusal(disk, "its log cannot be read", error))?;
            let (start, record) = match record {
                Ok(found) => found,
                Err(End::Here) => return Ok(()),
                Err(version) => {
                    return Err((Errno::ENODEV, format!("disk {}: {version}", disk.id.0)));
                }
            };
            let first = *salt.get_or_insert(start.generation.salt);
            let own = start.generation == Generation { number: generation, salt: first };
            if !own || start.sequence <= logs.sequence {
                return Ok(());
            }
            logs.sequence = start.sequence;
            if self.cx.has_bug(Bug::LastRecordSkipped) {
                let next = read_record(disk, generation, at + record.bytes() as u64).await;
                if !matches!(next, Ok(Ok((next, _))) if next.sequence > start.sequence) {
                    return Ok(());
                }
            }
            let data_at = at + start.meta_blocks as u64 * BLOCK;
            let replay = logs.objects.entry(record.object).or_default();
            replay.take(&record, generation, data_at);
            at += record.bytes() as u64;
        }
    }

    async fn drop_replayed(&self, disk: &Disk, logs: &Logs) -> Result<(), DiskError> {
        if !logs.say_something() {
            return Ok(());
        }
        disk.sync_names().await?;
        let (last, others) = logs.generations.split_last().expect("a log said it");
        for generation in others {
            disk.drop_log(*generation).await?;
            disk.sync_names().await?;
        }
        match disk.has_spare_room().await {
            true => disk.reuse_log(*last, logs.next_generation()).await?,
            false => disk.drop_log(*last).await?,
        }
        disk.sync_names().await?;
        Ok(())
    }

    // One object.

    async fn replay(&self, disk: &Disk, id: ObjectId, replay: &Replay) -> Result<(), Refusal> {
        let mut work = Work { disk, id, replay, sums: BTreeMap::new(), torn: 0 };
        let result = work.run().await;
        self.count(|c| c.torn_blocks += work.torn);
        match result {
            Ok(None) => Ok(()),
            Ok(Some(unreadable)) => {
                self.report(format!("disk {}, object {id}: {unreadable}", disk.id.0));
                Ok(())
            }
            Err(error) => Err(refusal(disk, &format!("object {id} cannot be replayed"), error)),
        }
    }
}

/// The record at an offset of a log, its data verified.
async fn read_record(
    disk: &Disk,
    generation: u32,
    at: u64,
) -> Result<Result<(Start, Record), End>, DiskError> {
    let file = DiskFile::Log(generation);
    let into = disk.frame(RECORD_META_BLOCKS_MAX * BLOCK_BYTES).await;
    let (meta, _) = disk.read(file, at, into).await?;
    let found = Start::read(&meta).and_then(|start| Ok((start, start.record(&meta)?)));
    let Ok((start, record)) = found else { return Ok(found) };
    let mut checked = 0;
    while checked < start.data_blocks {
        let count = (start.data_blocks - checked).min(WINDOW_BYTES / BLOCK_BYTES);
        let into = disk.frame(count * BLOCK_BYTES).await;
        let offset = at + (start.meta_blocks + checked) as u64 * BLOCK;
        let (data, _) = disk.read(file, offset, into).await?;
        let sums = data.chunks_exact(BLOCK_BYTES).map(block_crc);
        if !sums.eq(record.sums[checked..checked + count].iter().copied()) {
            return Ok(Err(End::Here));
        }
        checked += count;
    }
    Ok(Ok((start, record)))
}

/// The replay of one object.
struct Work<'a> {
    disk: &'a Disk,
    id: ObjectId,
    replay: &'a Replay,
    sums: BTreeMap<u64, Vec<u32>>,
    torn: u64,
}

impl Work<'_> {
    fn file(&self) -> DiskFile {
        DiskFile::Object(self.id)
    }

    /// Brings the object up to date. A file that cannot be understood stays as it is.
    async fn run(&mut self) -> Result<Option<Unreadable>, DiskError> {
        let file = self.file();
        if self.replay.removed {
            self.disk.simple(|| DiskOp::Remove { file }).await?;
            return Ok(None);
        }
        let into = self.disk.frame(HEADER_BYTES as usize).await;
        let (bytes, _) = self.disk.read(file, 0, into).await?;
        let header = match Header::read(self.id, &bytes) {
            // Torn while it was made; the log knows what it was to say.
            Err(Unreadable::Damaged) if self.replay.head.is_some() => None,
            Err(unreadable) => return Ok(Some(unreadable)),
            Ok(header) => header,
        };
        let Some(head) = self.replay.head.or(header.map(|header| header.head)) else {
            self.disk.simple(|| DiskOp::Remove { file }).await?;
            return Ok(None);
        };
        self.cut_off(head).await?;
        self.write_blocks().await?;
        self.sum_torn(head).await?;
        self.write_sums().await?;
        let sequence = header.map_or(1, |header| header.sequence + 1);
        self.write_header(Header { object: self.id, sequence, head }).await?;
        self.disk.simple(|| DiskOp::Sync { file }).await?;
        Ok(None)
    }

    /// What is behind a cut, and what an unfinished commit put behind the end, must read as zeros.
    async fn cut_off(&mut self, head: Head) -> Result<(), DiskError> {
        let kept = head.length.div_ceil(BLOCK);
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

    /// The checksums of a group, as in place and changed so far.
    async fn group(&mut self, group: u64) -> Result<&mut Vec<u32>, DiskError> {
        if !self.sums.contains_key(&group) {
            let into = self.disk.frame(BLOCK_BYTES).await;
            let (bytes, _) = self.disk.read(self.file(), sums_offset(group), into).await?;
            self.sums.insert(group, decode_sums(&bytes));
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

    async fn write_blocks(&mut self) -> Result<(), DiskError> {
        for (block, (source, sum)) in &self.replay.blocks {
            if let Source::Log { generation, offset } = *source {
                let into = self.disk.frame(BLOCK_BYTES).await;
                let (frame, _) = self.disk.read(DiskFile::Log(generation), offset, into).await?;
                let frame = frame.freeze();
                self.disk.write(self.file(), data_offset(*block), frame, false).await?;
            }
            self.set_sum(*block, *sum).await?;
        }
        Ok(())
    }

    async fn sum_torn(&mut self, head: Head) -> Result<(), DiskError> {
        for block in self.replay.torn.range(..head.length.div_ceil(BLOCK)) {
            if let Some((Source::Log { .. }, _)) = self.replay.blocks.get(block) {
                continue;
            }
            let into = self.disk.frame(BLOCK_BYTES).await;
            let (mut bytes, _) = self.disk.read(self.file(), data_offset(*block), into).await?;
            let sums = self.group(group_of(*block)).await?;
            let before = sums.get((block % GROUP_BLOCKS) as usize).copied().unwrap_or(zero_sum());
            if block_crc(&bytes) == before || self.disk.cx.has_bug(Bug::TornNotSummed) {
                continue;
            }
            self.torn += 1;
            let end = (head.length - block * BLOCK).min(BLOCK) as usize;
            let sum = block_crc(&bytes[..end]);
            if block_crc(&bytes) != sum {
                bytes[end..].fill(0);
                self.disk.write(self.file(), data_offset(*block), bytes.freeze(), false).await?;
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
        header.encode(&mut frame);
        let offset = header_offset(header.sequence);
        self.disk.write(self.file(), offset, frame.freeze(), false).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(disk: u16, disks: u16) -> Label {
        Label { volume: VolumeId(7), server: NodeId(2), disk, disks }
    }

    #[test]
    fn labels_tell_what_is_wrong_and_let_a_server_have_more_disks() {
        let mut block = [0; BLOCK_BYTES];
        label(1, 3).encode(&mut block);
        assert_eq!(label(1, 3).check(&block), Ok(()));
        assert_eq!(label(1, 4).check(&block), Ok(()));
        let said = |wanted: Label| wanted.check(&block).unwrap_err();
        assert!(said(label(0, 3)).contains("disk number 1"));
        let fewer = said(label(1, 2));
        assert!(fewer.contains("had 3 disks") && fewer.contains("names 2"), "{fewer}");
        block[4..6].copy_from_slice(&(FORMAT_VERSION - 1).to_le_bytes());
        let older = label(1, 3).check(&block).unwrap_err();
        let versions = [FORMAT_VERSION - 1, FORMAT_VERSION];
        assert!(versions.iter().all(|version| older.contains(&version.to_string())), "{older}");
    }
}
