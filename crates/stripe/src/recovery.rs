//! The recovery of a disk before it serves: its label is checked, its logs are replayed.
//!
//! Replay brings every complete record into place: of each block the latest record counts. A block that an intent
//! names, and no later record, may be *torn*: when it does not fit its checksum it is summed anew, old or new as it
//! is, and counted. Any other block that does not fit is corruption, found and told when it is read.
//!
//! A log ends where no record follows the one before. The rest of a write that a power cut interrupted is such an end,
//! torn or unreadable. It is damage when anything shows that more was durable: a record behind it, one of the next log,
//! or the [`Mark`] in the label. Then the disk is refused: replayed up to there it would bring older bytes back.
//!
//! A disk that is too full for that serves all the same, and keeps its logs: their content is in memory, as before the
//! restart, until the checkpoint finds room for it.

use crate::disk::{Disk, IndexMark, LABEL_BLOCKS, Refusal};
use crate::format::FORMAT_VERSION;
use crate::log::{End, Generation, Kind, Record, Start};
use crate::mark::Mark;
use crate::order::Incarnations;
use crate::replay::Replay;
use crate::scan::Reader;
use crate::server::Inner;
use node::Bug;
use node::rings::{DiskError, DiskFile, DiskListing};
use std::collections::BTreeMap;
use wire::checksum::crc32c;
use wire::codec::{Decoder, Encoder};
use wire::limits::BLOCK_BYTES;
use wire::{Errno, NodeId, ObjectId, VolumeId};

const LABEL_MAGIC: u32 = u32::from_le_bytes(*b"TZLB");
const LABEL_BYTES: usize = 40;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A disk's identity: the contents of its label file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The server whose objects it keeps.
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

/// The combined contents of a disk's logs.
#[derive(Default)]
struct Logs {
    objects: BTreeMap<ObjectId, Replay>,
    generations: Vec<u32>,
    sequence: u64,
    bytes: u64,
    records: u64,
    /// The last generation that says something.
    last: u32,
    /// The last generation with a record, also one that is in place.
    used: u32,
    /// End of the last log with the last record so far.
    end: Option<(u32, u64)>,
}

/// The kind of a log's next record.
enum Next {
    /// One to be replayed, or one that is in place already.
    Record { is_new: bool },
    /// None: the log ends in front of it.
    End,
    /// One that the label should know of.
    Unknown,
}

impl Logs {
    /// The log to go on with: after all with a record, and known to the label where that is possible. Logs without need
    /// not go, so that a disk that cannot be written to serves its readers.
    fn next(&self, mark: &Mark, salt: u64) -> Generation {
        let number = match self.generations.last() {
            Some(last) if self.say_something() || *last == self.used => last + 1,
            Some(last) => *last,
            None => mark.generation + 1,
        };
        let known = mark.salt_of(number).filter(|_| mark.generation > 0);
        Generation { number, salt: known.unwrap_or(salt) }
    }

    fn say_something(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Judges what is at an offset of a log whose record before it has sequence `before`.
    fn judge(
        &mut self,
        start: &Start,
        reader: &mut Reader<'_>,
        (at, before): (u64, u64),
        mark: &Mark,
    ) -> Next {
        let Generation { number, salt } = start.generation;
        if number != reader.generation() {
            return Next::End;
        }
        // No client's data comes to a log's beginning: what is there was written as a record of this log.
        let known = reader.salt.is_none_or(|known| known == salt) && !mark.is_ahead(number);
        if !known {
            return if at == 0 { Next::Unknown } else { Next::End };
        }
        reader.salt = Some(salt);
        let chain = start.chain;
        if chain.sequence <= before || chain.previous > self.sequence {
            return Next::End;
        }
        self.used = number;
        let is_new = chain.sequence > self.sequence;
        if is_new {
            (self.sequence, self.last, self.end) = (chain.sequence, number, None);
        }
        Next::Record { is_new }
    }

    fn take(&mut self, record: &Record, generation: u32, data_at: u64) {
        self.bytes += record.bytes() as u64;
        self.records += 1;
        self.objects.entry(record.object).or_default().take(record, generation, data_at);
    }
}

/// The advice about a disk that is refused for its losses.
const LOSS_ADVICE: &str = "nothing of this disk is served, so that no older bytes are read: bring its directory back as it was last; \
     where that cannot be, move the directory away, keep it, and start the server again: what was on this disk is an error then";

/// The logs end before a record that was durable.
fn damage(disk: &Disk, logs: &Logs, durable: u64) -> Refusal {
    let place = match logs.end {
        Some((generation, at)) => {
            format!("log {generation} is damaged, cut short or older at offset {at}")
        }
        None => "its log is missing".to_string(),
    };
    let text = format!(
        "disk {}: its {place}: records {} to {durable} of it were acknowledged and are not there; {LOSS_ADVICE}",
        disk.id.0,
        logs.sequence + 1
    );
    (Errno::EIO, text)
}

/// A log was written after the label: the label is an older one.
fn older_label(disk: &Disk, generation: u32) -> Refusal {
    let text =
        format!("disk {}: its label is older than its log {generation}; {LOSS_ADVICE}", disk.id.0);
    (Errno::EIO, text)
}

fn unreplayed(disk: &Disk, id: ObjectId, error: DiskError) -> Refusal {
    disk.refused_for(&format!("object {id} cannot be replayed"), error)
}

impl Inner {
    /// Number of disks that the server has had, as far as any of its disks knows. A disk that cannot be read
    /// contributes nothing.
    pub async fn known_disks(&self) -> u16 {
        let mut known = 0;
        for disk in &self.disks {
            let found = disk.find_incarnations().await.ok().flatten();
            known = known.max(found.map_or(0, |incarnations| incarnations.disks()));
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
        disk.read_index().await?;
        self.begin_incarnation(disk, disks).await?;
        let logs = self.read_logs(disk).await?;
        disk.found.set([disk.found.get()[0], logs.sequence]);
        if !self.replay_all(disk, &logs).await? || !self.is_index_saved(disk).await? {
            return self.keep_all(disk, &logs).await;
        }
        let log = logs.next(&disk.mark(), self.cx.random());
        disk.journal.start(log, logs.sequence);
        let dropped = self.drop_replayed(disk, &logs).await;
        dropped.map_err(|error| disk.refused_for("the replayed log cannot be removed", error))?;
        let oldest = logs.generations.first().filter(|_| !logs.say_something());
        disk.oldest_log.set(oldest.copied().unwrap_or(log.number));
        Ok(())
    }

    /// Records what was brought into place; whether the disk had room for it.
    async fn is_index_saved(&self, disk: &Disk) -> Result<bool, Refusal> {
        match disk.save_index().await {
            Err(DiskError::NoSpace) => Ok(false),
            saved => saved
                .map(|()| true)
                .map_err(|error| disk.refused_for("its index of objects cannot be written", error)),
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

    /// The logs' records are in memory, and the logs as if of this incarnation: the next checkpoint drops them.
    async fn keep_all(&self, disk: &Disk, logs: &Logs) -> Result<(), Refusal> {
        for (id, replay) in &logs.objects {
            let kept = self.keep_logged(disk, *id, replay).await;
            kept.map_err(|error| unreplayed(disk, *id, error))?;
        }
        // A removed object must stay removed when its number is used again.
        let synced = disk.sync_names().await;
        synced.map_err(|error| disk.refused_for("removals cannot be made stable", error))?;
        // The file of the next generation may be there to be written over: then cuts and removals find room in it.
        let generation = Generation { number: logs.last + 1, salt: self.cx.random() };
        disk.journal.start(generation, logs.sequence);
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
        let read = disk.read_label().await;
        let (blocks, found) =
            read.map_err(|error| disk.refused_for("its label cannot be read", error))?;
        let (block, slots) = blocks.split_at(BLOCK_BYTES);
        let has_begun =
            Incarnations::later_of(slots).is_some_and(|incarnations| incarnations.sequence() > 0);
        // No incarnation has begun on a disk whose label's writing was broken off, by a full disk or a crash, and
        // nothing of it was written that its writer relied on.
        if found && (has_begun || block.iter().any(|byte| *byte != 0)) {
            let refuse = |text| (Errno::ENODEV, format!("disk {}: {text}", disk.id.0));
            disk.index.open(label.check(block).map_err(refuse)?, &slots[2 * BLOCK_BYTES..]);
            if has_begun {
                return Ok(());
            }
        }
        self.check_empty(
            disk,
            "it holds data but no label, or a damaged one: bring the file `label` back as it was last; where that cannot be, \
             move the directory away, keep it, and start the server again: what was on this disk is an error then",
        )
        .await?;
        if disk.id.0 < known && self.config.replacing >> disk.id.0 & 1 == 0 {
            let text = format!(
                "disk {}: its directory is empty, but the server has had {known} disks, this one too: mount the disk there; \
                 if it is lost, remove the empty directory, and the server's other disks serve without it; \
                 a new disk gets a directory of its own: `trapeze disk add`",
                disk.id.0
            );
            return Err((Errno::ENODEV, text));
        }
        // With both slots of incarnations and of marks, which later have room also when the disk is full.
        let mut blocks = disk.frame(LABEL_BLOCKS * BLOCK_BYTES).await;
        label.encode(&mut blocks[..BLOCK_BYTES]);
        let (incarnations, marks) = blocks[BLOCK_BYTES..].split_at_mut(2 * BLOCK_BYTES);
        incarnations
            .chunks_exact_mut(BLOCK_BYTES)
            .for_each(|slot| Incarnations::default().encode(slot));
        marks.chunks_exact_mut(BLOCK_BYTES).for_each(|slot| IndexMark::FIRST.encode(slot));
        disk.index.open(label.id, marks);
        let written = disk.write(DiskFile::Label, 0, blocks.freeze(), true).await;
        written.map_err(|error| disk.refused_for("its label cannot be written", error))?;
        let begun = disk.begin_index().await;
        begun.map_err(|error| disk.refused_for("its index cannot be written", error))?;
        let synced = disk.sync_names().await;
        synced.map_err(|error| disk.refused_for("its label cannot be written", error))
    }

    /// Notes this incarnation of the server behind the label, before anything is written in it. On a disk that is
    /// read-only it cannot be noted, and nothing is committed either.
    async fn begin_incarnation(&self, disk: &Disk, disks: u16) -> Result<(), Refusal> {
        let incarnations = disk.find_incarnations().await;
        let incarnations =
            incarnations.map_err(|error| disk.refused_for("its label cannot be read", error))?;
        if incarnations.is_none() {
            let text = "both places of its label that say how far its log is are damaged: bring the file `label` back as it was last";
            self.check_empty(disk, text).await?;
        }
        *disk.incarnations.borrow_mut() = incarnations.unwrap_or_default();
        disk.found.set([disk.incarnations.borrow().sequence(), 0]);
        let begin = |incarnations: &mut Incarnations| {
            incarnations.begin(self.verifier);
            incarnations.note_disks(disks);
        };
        let noted = match disk.note(begin).await {
            Ok(()) => disk.sync_names().await,
            Err(error) => Err(error),
        };
        match noted {
            Ok(()) => Ok(()),
            Err(DiskError::ReadOnly) => {
                begin(&mut disk.incarnations.borrow_mut());
                Ok(())
            }
            Err(error) => Err(disk.refused_for("this start cannot be noted on it", error)),
        }
    }

    /// A disk without a label is new only when there is nothing on it; `text` says what is wrong otherwise.
    async fn check_empty(&self, disk: &Disk, text: &str) -> Result<(), Refusal> {
        let listings = [DiskListing::Logs, DiskListing::Objects { after: None, count: 1 }];
        for listing in listings {
            let listed = disk.list(listing).await;
            if !listed.map_err(|error| disk.refused_for("it cannot be listed", error))?.is_empty() {
                return Err((Errno::ENODEV, format!("disk {}: {text}", disk.id.0)));
            }
        }
        Ok(())
    }

    // The logs.

    async fn read_logs(&self, disk: &Disk) -> Result<Logs, Refusal> {
        let listed = disk.list(DiskListing::Logs).await;
        let listed =
            listed.map_err(|error| disk.refused_for("its logs cannot be listed", error))?;
        let mark = disk.mark();
        let generations = listed.into_iter().filter_map(|file| match file {
            DiskFile::Log(generation) => Some(generation),
            _ => None,
        });
        let generations = generations.collect();
        let mut logs = Logs { sequence: mark.applied, generations, ..Logs::default() };
        logs.generations.sort_unstable();
        for generation in logs.generations.clone() {
            self.read_log(disk, generation, &mut logs).await?;
        }
        if mark.durable > logs.sequence && !self.cx.has_bug(Bug::MarkIgnored) {
            return Err(damage(disk, &logs, mark.durable));
        }
        Ok(logs)
    }

    async fn read_log(&self, disk: &Disk, generation: u32, logs: &mut Logs) -> Result<(), Refusal> {
        let unread = |error| disk.refused_for("its log cannot be read", error);
        let mark = disk.mark();
        let reader = Reader::new(disk, generation, mark.salt_of(generation)).await;
        let mut reader = reader.map_err(unread)?;
        let (mut at, mut before) = (0, 0);
        let end = loop {
            let (start, record) = match reader.record(at).await.map_err(unread)? {
                Ok(found) => found,
                Err(End::Version(version)) if at == 0 => {
                    let text = End::Version(version);
                    return Err((Errno::ENODEV, format!("disk {}: {text}", disk.id.0)));
                }
                Err(end) => break end,
            };
            let is_new = match logs.judge(&start, &mut reader, (at, before), &mark) {
                Next::Record { is_new } => is_new,
                Next::End => break End::Here,
                Next::Unknown => return Err(older_label(disk, generation)),
            };
            before = start.chain.sequence;
            let next = at + record.bytes() as u64;
            if self.cx.has_bug(Bug::LastRecordSkipped) {
                let next = reader.record(next).await;
                if !matches!(next, Ok(Ok((next, _))) if next.chain.sequence > before) {
                    return Ok(());
                }
            }
            let forgets = record.kind == Kind::Punch && self.cx.has_bug(Bug::PunchForgotten);
            if is_new && !forgets {
                logs.take(&record, generation, at + start.meta_blocks as u64 * BLOCK);
            }
            at = next;
        };
        logs.end.get_or_insert((generation, at));
        let synced = reader.synced_behind(at).await.map_err(unread)?;
        if synced > logs.sequence && !self.cx.has_bug(Bug::LogChainIgnored) {
            return Err(damage(disk, logs, synced));
        }
        if end == End::Unreadable {
            self.report(format!(
                "disk {}: its log {generation} cannot be read behind its last whole record: taken for what a power cut left",
                disk.id.0
            ));
        }
        Ok(())
    }

    async fn drop_replayed(&self, disk: &Disk, logs: &Logs) -> Result<(), DiskError> {
        if !logs.say_something() {
            return Ok(());
        }
        disk.sync_names().await?;
        disk.note_applied(logs.sequence).await?;
        let (last, others) = logs.generations.split_last().expect("a log said it");
        for generation in others {
            disk.drop_log(*generation).await?;
            disk.sync_names().await?;
        }
        disk.keep_log(*last, disk.journal.generation().number).await?;
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
