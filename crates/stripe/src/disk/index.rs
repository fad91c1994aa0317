//! The index of a disk: a second record of the objects that it has in place.
//!
//! A missing file, an empty one and an old one look like objects that were never made, or not yet written. So a
//! checkpoint also notes here, before the log that said it goes, what it brings into place: of every object the
//! sequence of its header and the checksum of its head. Opening an object compares. An object that is recorded and not
//! there, or there as it was earlier, is damage (EIO); one that is recorded neither here nor in the log is a hole.
//!
//! ```text
//! index/4     batches, each with the checksum of the one before; later entries replace earlier ones
//! label       behind the label, twice: which file counts, and the last batch that is known to be durable
//! ```
//!
//! A file that has grown to twice of what counts in it gives way to the next one. In memory the index is an ordered
//! table of 40 bytes an object.
//!
//! Invariants: a log is dropped only when the index has its changes; the mark never names a batch that is not durable;
//! a batch that is missing or damaged up to the mark refuses the disk, one behind it was never relied on.

mod format;

pub(crate) use format::Mark;

use super::{Disk, Refusal};
use crate::limits::{INDEX_BATCH_BYTES, INDEX_DEAD_BYTES, INDEX_STEP_BYTES};
use crate::object::{Head, Header};
use format::{
    BatchHead, ENTRY_BYTES, batch_bytes, decode_batch, encode_batch, entries_in, is_batch,
};
use node::rings::{DiskError, DiskFile, DiskOp};
use node::{Cx, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use wire::checksum::crc32c;
use wire::codec::Encoder;
use wire::field::Field;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, GroupId, ObjectId};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Offset of the marks in the label's file: behind the label and the slots of incarnations.
const MARKS_AT: u64 = 3 * BLOCK;
/// Blocks of the label's file, marks included.
pub(crate) const LABEL_BLOCKS: usize = 5;

/// The index's record of an object that is in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Of its header.
    pub sequence: u32,
    /// Checksum of its head.
    pub sum: u32,
    /// The group that keeps it; 0 is the disk alone.
    pub group: GroupId,
}

impl Entry {
    /// How a batch says that there is no such object. No header has the sequence 0.
    const ABSENT: Entry = Entry { sequence: 0, sum: 0, group: GroupId(0) };
    /// Recorded of an object of which something acknowledged is lost for good: no file fits it.
    fn lost(group: GroupId) -> Entry {
        Entry { sequence: u32::MAX, sum: 0, group }
    }

    fn is_lost(&self) -> bool {
        *self == Entry::lost(self.group)
    }

    /// Of an object with this header.
    pub fn of(header: &Header) -> Entry {
        let (sequence, group) = (header.sequence as u32, header.head.group);
        Entry { sequence, sum: sum_of(&header.head), group }
    }

    /// Whether the file with this header is the one that was recorded, or else what it is.
    pub fn check(self, header: &Header) -> Result<(), &'static str> {
        match (self, Entry::of(header)) {
            (recorded, _) if recorded.is_lost() => {
                Err("a part of what was acknowledged is lost since an earlier start")
            }
            (recorded, found) if recorded == found => Ok(()),
            (recorded, found) if found.sequence < recorded.sequence => {
                Err("its file is an older version of itself")
            }
            _ => Err("its header is not the one that the index has"),
        }
    }

    /// Whether this was recorded before the header was written.
    pub fn is_before(self, header: &Header) -> bool {
        !self.is_lost() && self.sequence < header.sequence as u32
    }
}

fn sum_of(head: &Head) -> u32 {
    let mut bytes = [0; Head::BYTES];
    head.put(&mut Encoder::new(&mut bytes));
    // Releases that knew no groups summed up what there was of a head then.
    crc32c(if head.group.is_listed() { &bytes } else { &bytes[..Head::ALONE_BYTES] })
}

/// Position of the next batch, and the chain before it.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    generation: u32,
    at: u64,
    /// Bytes that the file has at least.
    made: u64,
    /// Of the batch before.
    chain: u32,
    /// Of the last batch.
    sequence: u64,
}

/// The index of one disk.
pub(crate) struct Index {
    table: RefCell<BTreeMap<ObjectId, Entry>>,
    /// Records that the file does not have yet.
    changed: RefCell<BTreeSet<ObjectId>>,
    tail: Cell<Tail>,
    /// `None` when the label has none that can be read.
    mark: Cell<Option<Mark>>,
    disk: Cell<u128>,
    /// One writes at a time.
    writing: Semaphore,
}

impl Index {
    pub fn new(cx: &Cx) -> Index {
        Index {
            table: RefCell::default(),
            changed: RefCell::default(),
            tail: Cell::default(),
            mark: Cell::default(),
            disk: Cell::new(0),
            writing: Semaphore::new(cx, 1),
        }
    }

    /// The index of the disk with this id and these slots of marks.
    pub fn open(&self, disk: u128, slots: &[u8]) {
        self.disk.set(disk);
        let marks = slots.chunks_exact(BLOCK_BYTES).filter_map(Mark::decode);
        self.mark.set(marks.max_by_key(|mark| mark.number));
    }

    /// The first object that is recorded at `from` or behind it, or strictly behind it.
    pub fn next(&self, from: Option<ObjectId>, behind: bool) -> Option<ObjectId> {
        let start = match from {
            None => Bound::Unbounded,
            Some(object) if behind => Bound::Excluded(object),
            Some(object) => Bound::Included(object),
        };
        self.table.borrow().range((start, Bound::Unbounded)).next().map(|(object, _)| *object)
    }

    /// An object that is recorded, by chance.
    pub fn somewhere(&self, random: u64) -> Option<ObjectId> {
        let table = self.table.borrow();
        let (first, last) = (table.first_key_value()?.0, table.last_key_value()?.0);
        let span = last.file.0.saturating_sub(first.file.0).saturating_add(1);
        let file = wire::FileId(first.file.0 + random % span);
        let from = ObjectId { file, column: 0, ..*first };
        table.range(from..).next().map(|(object, _)| *object)
    }

    /// The record of an object.
    pub fn get(&self, object: ObjectId) -> Option<Entry> {
        self.table.borrow().get(&object).copied()
    }

    /// An object is in place, durably, with this header.
    pub fn note(&self, header: &Header) {
        self.set(header.object, Some(Entry::of(header)));
    }

    /// An object is gone, durably.
    pub fn note_removed(&self, object: ObjectId) {
        self.set(object, None);
    }

    /// Of an object something is lost that was acknowledged, and nothing will bring it back.
    pub fn note_lost(&self, object: ObjectId, group: GroupId) {
        self.set(object, Some(Entry::lost(group)));
    }

    fn set(&self, object: ObjectId, entry: Option<Entry>) {
        let mut table = self.table.borrow_mut();
        let before = match entry {
            Some(entry) => table.insert(object, entry),
            None => table.remove(&object),
        };
        if before != entry {
            self.changed.borrow_mut().insert(object);
        }
    }

    /// Objects recorded, in order, behind `after`.
    fn page(&self, after: Option<ObjectId>, count: usize) -> Vec<(ObjectId, Option<Entry>)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = self.table.borrow();
        let entries = table.range((from, Bound::Unbounded)).take(count);
        entries.map(|(object, entry)| (*object, Some(*entry))).collect()
    }

    /// The first `count` objects recorded behind `after`.
    pub fn behind(&self, after: Option<ObjectId>, count: usize) -> Vec<ObjectId> {
        self.page(after, count).into_iter().map(|(object, _)| object).collect()
    }

    /// The disk's id.
    pub fn disk(&self) -> u128 {
        self.disk.get()
    }

    /// Number of recorded objects.
    pub fn len(&self) -> usize {
        self.table.borrow().len()
    }

    /// Whether most of the file says nothing any more.
    fn is_bloated(&self) -> bool {
        let live = (self.len() * ENTRY_BYTES) as u64;
        let tail = self.tail.get();
        tail.at > 2 * live + INDEX_DEAD_BYTES
    }

    /// Takes what a file says, up to its end.
    fn take(&self, entries: Vec<(ObjectId, Option<Entry>)>) {
        let mut table = self.table.borrow_mut();
        for (object, entry) in entries {
            match entry {
                Some(entry) => drop(table.insert(object, entry)),
                None => drop(table.remove(&object)),
            }
        }
    }
}

impl Disk {
    /// Makes the index of a new disk. Its label is there, with marks that name this.
    pub(crate) async fn begin_index(&self) -> Result<(), DiskError> {
        let tail = Tail { generation: Mark::FIRST.generation, ..Tail::default() };
        let file = DiskFile::Index(tail.generation);
        // A start that was broken off may have left one.
        self.simple(|| DiskOp::Remove { file }).await?;
        let mut tail = self.write_batch(tail, &[], false).await?;
        self.make_index_room(&mut tail).await;
        self.simple(|| DiskOp::Sync { file }).await
    }

    /// Reads the index of a disk.
    pub(crate) async fn read_index(&self) -> Result<(), Refusal> {
        let Some(mark) = self.index.mark.get() else {
            return Err(
                self.damaged_index("its label is damaged: it does not say which index counts")
            );
        };
        let tail = self.read_batches(mark.generation).await?;
        if tail.sequence < mark.sequence {
            let text = format!(
                "its index of objects, index/{}, is damaged, older or missing: it ends with batch {}, the label knows {}",
                mark.generation, tail.sequence, mark.sequence
            );
            return Err(self.damaged_index(&text));
        }
        self.index.tail.set(tail);
        Ok(())
    }

    /// Takes every batch of the file that follows the one before; where they end.
    async fn read_batches(&self, generation: u32) -> Result<Tail, Refusal> {
        let mut tail = Tail { generation, ..Tail::default() };
        loop {
            let read = self.read(DiskFile::Index(generation), tail.at, INDEX_BATCH_BYTES).await;
            let (bytes, _) =
                read.map_err(|error| self.refused_for("its index cannot be read", error))?;
            let start = tail.at;
            while let Some((head, entries, length, sum)) =
                decode_batch(&bytes[(tail.at - start) as usize..])
            {
                let (first, next) = (tail.at == 0, tail.sequence + 1);
                let follows = head.chain == tail.chain && (first || head.sequence == next);
                let own = head.generation == generation && head.disk == self.index.disk.get();
                if !own || !follows {
                    return Ok(tail);
                }
                self.index.take(entries);
                let at = tail.at + length as u64;
                tail = Tail { generation, at, made: at, chain: sum, sequence: head.sequence };
            }
            let rest = &bytes[(tail.at - start) as usize..];
            if tail.at == start || !is_batch(rest) && !rest.is_empty() {
                return Ok(tail);
            }
        }
    }

    /// Makes durable what was noted.
    pub(crate) async fn save_index(&self) -> Result<(), DiskError> {
        let _one = self.index.writing.acquire(1).await;
        let changed = std::mem::take(&mut *self.index.changed.borrow_mut());
        if changed.is_empty() {
            return Ok(());
        }
        let saved = match self.index.is_bloated() {
            true => self.rewrite_index().await,
            false => self.append_changes(&changed).await,
        };
        if saved.is_err() {
            self.index.changed.borrow_mut().extend(changed);
        }
        saved
    }

    async fn append_changes(&self, changed: &BTreeSet<ObjectId>) -> Result<(), DiskError> {
        let changes = changed.iter().map(|object| (*object, self.index.get(*object)));
        let changes: Vec<_> = changes.collect();
        let mut tail = self.index.tail.get();
        let file = DiskFile::Index(tail.generation);
        let is_one = changes.len() <= entries_in(INDEX_BATCH_BYTES);
        let fits = tail.at + batch_bytes(&changes) as u64 <= tail.made;
        if is_one && fits {
            tail = self.write_batch(tail, &changes, true).await?;
        } else {
            for some in changes.chunks(entries_in(INDEX_BATCH_BYTES)) {
                tail = self.write_batch(tail, some, false).await?;
            }
            self.make_index_room(&mut tail).await;
            self.simple(|| DiskOp::Sync { file }).await?;
        }
        self.index.tail.set(tail);
        self.write_mark(tail).await
    }

    /// Begins the next file, with everything in it, and removes the one before.
    async fn rewrite_index(&self) -> Result<(), DiskError> {
        let before = self.index.tail.get();
        let generation = before.generation + 1;
        let file = DiskFile::Index(generation);
        // A crash may have left one that was begun.
        self.simple(|| DiskOp::Remove { file }).await?;
        let mut tail = Tail { generation, sequence: before.sequence, ..Tail::default() };
        let mut after = None;
        loop {
            let page = self.index.page(after, entries_in(INDEX_BATCH_BYTES));
            after = page.last().map(|(object, _)| *object);
            // An index of nothing is one batch of nothing.
            if after.is_some() || tail.at == 0 {
                tail = self.write_batch(tail, &page, false).await?;
            }
            if after.is_none() {
                break;
            }
        }
        self.make_index_room(&mut tail).await;
        self.simple(|| DiskOp::Sync { file }).await?;
        self.write_mark(tail).await?;
        self.index.tail.set(tail);
        // In both slots: neither may name the file that goes.
        self.write_mark(tail).await?;
        for older in generation.saturating_sub(2)..generation {
            let file = DiskFile::Index(older);
            self.simple(|| DiskOp::Remove { file }).await?;
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        tail: Tail,
        entries: &[(ObjectId, Option<Entry>)],
        durable: bool,
    ) -> Result<Tail, DiskError> {
        let head = BatchHead {
            disk: self.index.disk.get(),
            generation: tail.generation,
            chain: tail.chain,
            sequence: tail.sequence + 1,
        };
        let mut frame = self.frame(batch_bytes(entries)).await;
        let chain = encode_batch(&head, entries, &mut frame);
        let (file, at) = (DiskFile::Index(tail.generation), tail.at + frame.len() as u64);
        assert!(tail.at.is_multiple_of(BLOCK), "batches are whole blocks");
        self.write(file, tail.at, frame.freeze(), durable).await?;
        Ok(Tail { at, made: tail.made.max(at), chain, sequence: head.sequence, ..tail })
    }

    /// Makes the file longer in steps, by zeros, so that batches find room in it also when the disk is full, and the
    /// disk has a length less to note.
    async fn make_index_room(&self, tail: &mut Tail) {
        let end = tail.at;
        let zeros = self.zeros(INDEX_STEP_BYTES).await;
        let file = DiskFile::Index(tail.generation);
        // It saves time and nothing else: where it fails the write itself will tell.
        if self.write(file, end, zeros.freeze(), false).await.is_ok() {
            tail.made = end + INDEX_STEP_BYTES as u64;
        }
    }

    async fn write_mark(&self, tail: Tail) -> Result<(), DiskError> {
        let before = self.index.mark.get();
        let forwards = before.is_none_or(|mark| {
            (mark.generation, mark.sequence) <= (tail.generation, tail.sequence)
        });
        assert!(forwards, "a mark never goes back");
        let number = before.map_or(0, |mark| mark.number) + 1;
        let mark = Mark { number, generation: tail.generation, sequence: tail.sequence };
        let mut block = self.frame(BLOCK_BYTES).await;
        mark.encode(&mut block);
        let offset = MARKS_AT + number % 2 * BLOCK;
        self.write(DiskFile::Label, offset, block.freeze(), true).await?;
        self.index.mark.set(Some(mark));
        Ok(())
    }

    fn damaged_index(&self, text: &str) -> Refusal {
        let advice =
            "nothing on it was changed; bring the directory back as it was when the server stopped";
        (Errno::EIO, format!("disk {}: {text}: {advice}", self.id.0))
    }
}
