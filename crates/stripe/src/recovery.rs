//! What happens before a disk serves: its label is checked, its logs are replayed.
//!
//! Replay brings every complete record into place: of each block the latest record counts. A block that an intent
//! names, and no later record, may be *torn*: when it does not fit its checksum it is summed anew, old or new as it
//! is, and counted. Any other block that does not fit is corruption, found and told when it is read.
//!
//! What a power cut left of the write to the log that was under way may be such that the disk cannot read it. It is
//! torn like any other, unless later records are behind it: a log that is damaged in its middle is not replayed.
//!
//! A disk that is too full for that serves all the same, and keeps its logs: what they hold is in memory, as before the
//! restart, until the checkpoint finds room for it.

use crate::disk::Disk;
use crate::index::{LABEL_BLOCKS, Mark};
use crate::log::{End, Generation};
use crate::object::FORMAT_VERSION;
use crate::order::Lives;
use crate::replay::Replay;
use crate::scan::Reader;
use crate::server::Inner;
use node::Bug;
use node::rings::{DiskError, DiskFile, DiskListing, DiskOp, DiskReply};
use std::collections::BTreeMap;
use wire::checksum::crc32c;
use wire::codec::{Decoder, Encoder};
use wire::limits::BLOCK_BYTES;
use wire::{Errno, NodeId, ObjectId, VolumeId};

const LABEL_MAGIC: u32 = u32::from_le_bytes(*b"TZLB");
const LABEL_BYTES: usize = 40;
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
    /// Drawn at random when the disk was made.
    pub id: u128,
}

impl Label {
    /// Writes the label into a block.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let mut out = Encoder::new(block);
        out.u32(LABEL_MAGIC).u16(FORMAT_VERSION).u32(self.volume.0);
        out.u16(self.server.0).u16(self.disk).u16(self.disks);
        out.u64(self.id as u64).u64((self.id >> 64) as u64);
        let sum = crc32c(&block[..LABEL_BYTES]);
        block[LABEL_BYTES..LABEL_BYTES + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The id in a label of this disk, or why the block is not one, as a sentence that names both.
    pub fn check(&self, block: &[u8]) -> Result<u128, String> {
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
            None => Ok(found.id),
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
            id: u128::from(input.u64().map_err(damaged)?)
                | u128::from(input.u64().map_err(damaged)?) << 64,
        })
    }
}

/// What a disk's logs say together.
#[derive(Default)]
struct Logs {
    objects: BTreeMap<ObjectId, Replay>,
    generations: Vec<u32>,
    sequence: u64,
    bytes: u64,
    records: u64,
    /// The last generation that says something.
    last: u32,
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
pub(crate) type Refusal = (Errno, String);

pub(crate) fn refusal(disk: &Disk, what: &str, error: DiskError) -> Refusal {
    (crate::disk::errno(error), format!("disk {}: {what}: {error}", disk.id.0))
}

/// The later one of the two slots of incarnations.
fn latest(slots: &[u8]) -> Lives {
    let found = slots.chunks_exact(BLOCK_BYTES).take(2).filter_map(Lives::decode);
    found.max_by_key(Lives::sequence).unwrap_or_default()
}

fn unreplayed(disk: &Disk, id: ObjectId, error: DiskError) -> Refusal {
    refusal(disk, &format!("object {id} cannot be replayed"), error)
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
        self.read_index(disk).await?;
        self.begin_life(disk, disks).await?;
        let logs = self.read_logs(disk).await?;
        if !self.replay_all(disk, &logs).await? || !self.is_index_saved(disk).await? {
            return self.keep_all(disk, &logs).await;
        }
        let dropped = self.drop_replayed(disk, &logs).await;
        dropped.map_err(|error| refusal(disk, "the replayed log cannot be removed", error))?;
        let number = logs.next_generation();
        disk.journal.start(Generation { number, salt: self.cx.random() }, logs.sequence + 1);
        let oldest = logs.generations.first().filter(|_| !logs.say_something());
        disk.oldest_log.set(oldest.copied().unwrap_or(number));
        Ok(())
    }

    /// Records what was brought into place; whether the disk had room for it.
    async fn is_index_saved(&self, disk: &Disk) -> Result<bool, Refusal> {
        match self.save_index(disk).await {
            Err(DiskError::NoSpace) => Ok(false),
            saved => saved
                .map(|()| true)
                .map_err(|error| refusal(disk, "its index of objects cannot be written", error)),
        }
    }

    /// Brings what the logs say into place; whether the disk had room for it.
    async fn replay_all(&self, disk: &Disk, logs: &Logs) -> Result<bool, Refusal> {
        for (id, replay) in &logs.objects {
            match self.replay(disk, *id, replay).await {
                Err(DiskError::NoSpace) => return Ok(false),
                result => result.map_err(|error| unreplayed(disk, *id, error))?,
            }
        }
        Ok(true)
    }

    /// Has what the logs say in memory, and the logs as if they were of this life: the next checkpoint drops them.
    async fn keep_all(&self, disk: &Disk, logs: &Logs) -> Result<(), Refusal> {
        for (id, replay) in &logs.objects {
            let kept = self.keep_logged(disk, *id, replay).await;
            kept.map_err(|error| unreplayed(disk, *id, error))?;
        }
        // What is removed must stay so when it is made again.
        let synced = disk.sync_names().await;
        synced.map_err(|error| refusal(disk, "removals cannot be made stable", error))?;
        // The file of the next generation may be there to be written over: then cuts and removals find room in it.
        let generation = Generation { number: logs.last + 1, salt: self.cx.random() };
        disk.journal.start(generation, logs.sequence + 1);
        disk.journal.found(logs.bytes, logs.records);
        disk.oldest_log.set(*logs.generations.first().expect("a log said it"));
        disk.checkpoint_error.set(Some(Errno::ENOSPC));
        self.report(format!(
            "disk {}: it is full: what its log holds can be read, and is put in place when there is room",
            disk.id.0
        ));
        Ok(())
    }

    async fn check_label(&self, disk: &Disk, known: u16) -> Result<(), Refusal> {
        let label = Label {
            volume: self.config.volume,
            server: self.config.server,
            disk: disk.id.0,
            disks: self.disks.len() as u16,
            id: u128::from(self.cx.random()) << 64 | u128::from(self.cx.random()),
        };
        let into = disk.frame(LABEL_BLOCKS * BLOCK_BYTES).await;
        let read = disk.read(DiskFile::Label, 0, into).await;
        let (blocks, found) =
            read.map_err(|error| refusal(disk, "its label cannot be read", error))?;
        let (block, slots) = blocks.split_at(BLOCK_BYTES);
        let has_begun = latest(slots).sequence() > 0;
        // No incarnation has begun on a disk whose label's writing was broken off, by a full disk or a crash, and nothing
        // of it was written that its writer relied on.
        if found && (has_begun || block.iter().any(|byte| *byte != 0)) {
            let refuse = |text| (Errno::ENODEV, format!("disk {}: {text}", disk.id.0));
            disk.index.open(label.check(block).map_err(refuse)?, &slots[2 * BLOCK_BYTES..]);
            if has_begun {
                return Ok(());
            }
        }
        self.check_empty(disk).await?;
        if disk.id.0 < known {
            let text = format!(
                "disk {}: its directory is empty, but the server has had {known} disks, this one too: mount the disk there; \
                 if it is lost, remove the directory, and the server starts without it; \
                 if the server never held a file, empty all its disk directories",
                disk.id.0
            );
            return Err((Errno::ENODEV, text));
        }
        // With both slots of lives and of marks, which later have room also when the disk is full.
        let mut blocks = disk.frame(LABEL_BLOCKS * BLOCK_BYTES).await;
        label.encode(&mut blocks[..BLOCK_BYTES]);
        let (lives, marks) = blocks[BLOCK_BYTES..].split_at_mut(2 * BLOCK_BYTES);
        lives.chunks_exact_mut(BLOCK_BYTES).for_each(|slot| Lives::default().encode(slot));
        marks.chunks_exact_mut(BLOCK_BYTES).for_each(|slot| Mark::FIRST.encode(slot));
        disk.index.open(label.id, marks);
        let written = disk.write(DiskFile::Label, 0, blocks.freeze(), true).await;
        written.map_err(|error| refusal(disk, "its label cannot be written", error))?;
        let begun = self.begin_index(disk).await;
        begun.map_err(|error| refusal(disk, "its index cannot be written", error))?;
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
        Ok(latest(&slots))
    }

    /// A disk without a label is new only when there is nothing on it.
    async fn check_empty(&self, disk: &Disk) -> Result<(), Refusal> {
        let listings = [DiskListing::Logs, DiskListing::Objects { after: None, count: 1 }];
        for listing in listings {
            let listed = disk.ask(|| DiskOp::List(listing)).await;
            match listed.map_err(|error| refusal(disk, "it cannot be listed", error))? {
                DiskReply::Files(files) if files.is_empty() => {}
                _ => {
                    let text = "it holds data but no label, or a damaged one: bring its label back as it was";
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
        let mut reader = Reader::new(disk, generation);
        let unread = |error| refusal(disk, "its log cannot be read", error);
        loop {
            let (start, record) = match reader.record(at).await.map_err(unread)? {
                Ok(found) => found,
                Err(End::Here) => return Ok(()),
                Err(End::Unreadable) => {
                    let goes_on = reader.goes_on(at, salt, logs.sequence).await;
                    return self.end_torn(disk, generation, goes_on.map_err(unread)?);
                }
                Err(version) => {
                    return Err((Errno::ENODEV, format!("disk {}: {version}", disk.id.0)));
                }
            };
            let first = *salt.get_or_insert(start.generation.salt);
            let own = start.generation == Generation { number: generation, salt: first };
            if !own || start.sequence <= logs.sequence {
                return Ok(());
            }
            (logs.sequence, logs.last) = (start.sequence, generation);
            logs.bytes += record.bytes() as u64;
            logs.records += 1;
            if self.cx.has_bug(Bug::LastRecordSkipped) {
                let next = reader.record(at + record.bytes() as u64).await;
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

    /// The log ends where it cannot be read, unless it goes on behind that.
    fn end_torn(&self, disk: &Disk, generation: u32, goes_on: bool) -> Result<(), Refusal> {
        if goes_on {
            let what = format!("its log {generation} cannot be read in the middle");
            return Err(refusal(disk, &what, DiskError::Failed(Errno::EIO)));
        }
        self.report(format!(
            "disk {}: its log {generation} cannot be read behind its last whole record: taken for what a power cut left",
            disk.id.0
        ));
        Ok(())
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(disk: u16, disks: u16) -> Label {
        Label { volume: VolumeId(7), server: NodeId(2), disk, disks, id: 1 << 70 | 5 }
    }

    #[test]
    fn labels_tell_what_is_wrong_and_let_a_server_have_more_disks() {
        let mut block = [0; BLOCK_BYTES];
        label(1, 3).encode(&mut block);
        assert_eq!(label(1, 3).check(&block), Ok(1 << 70 | 5));
        assert_eq!(label(1, 4).check(&block), Ok(1 << 70 | 5));
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
