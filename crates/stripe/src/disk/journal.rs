//! The writer of a disk's commit log. Commits that wait at the same time share one durable write.
//!
//! Only one write is under way, so what a reader of the log finds is always a prefix of what was acknowledged, and at
//! most one write more.
//!
//! A durable write that makes its file longer costs a second, of what the file system notes of that. So the log's file
//! grows in steps, by zeros behind the record that needs the room: nearly all records are written over something.

use super::Disk;
use crate::limits::{LOG_BATCH_BYTES_MAX, LOG_SEQUENCE_STEP, LOG_STEP_BYTES, SPARE_ROOM_BYTES};
use crate::log::{Chain, Generation, Record};
use endpoint::Frame;
use node::rings::{DiskError, DiskFile, DiskOp};
use node::{Batches, Bug, Cx, Semaphore};
use std::cell::Cell;
use wire::limits::BLOCK_BYTES;

/// The record's data in the log's frame, when it is durable.
type Written = Result<Option<Frame>, DiskError>;

struct Entry {
    record: Record,
    data: Vec<Frame>,
}

/// The log's writer: pending records and its position.
pub(crate) struct Journal {
    commits: Batches<Entry, Written>,
    /// Held while a write is under way.
    writing: Semaphore,
    generation: Cell<Generation>,
    sequence: Cell<u64>,
    /// The last record that is durable.
    durable: Cell<u64>,
    tail: Cell<u64>,
    /// A write to the log found no room on the disk.
    cramped: Cell<bool>,
    /// Bytes that the log's file has at least.
    made: Cell<u64>,
    /// The same of the log before, and of the file that waits to be the next log's.
    made_before: Cell<u64>,
    made_next: Cell<u64>,
    /// Of all generations that are not applied.
    bytes: Cell<u64>,
    records: Cell<u64>,
}

/// The size of one log write, for the counters.
pub(crate) struct Batch {
    pub records: usize,
    pub bytes: usize,
}

/// The logs that nothing is added to any more.
pub(crate) struct Ended {
    /// The last of them.
    pub generation: u32,
    pub bytes: u64,
    pub records: u64,
    /// The last record in them.
    pub last: u64,
}

impl Journal {
    pub fn new(cx: &Cx) -> Journal {
        Journal {
            commits: Batches::new(cx),
            writing: Semaphore::new(cx, 1),
            generation: Cell::default(),
            sequence: Cell::new(1),
            durable: Cell::default(),
            tail: Cell::new(0),
            cramped: Cell::new(false),
            made: Cell::new(0),
            made_before: Cell::new(0),
            made_next: Cell::new(0),
            bytes: Cell::new(0),
            records: Cell::new(0),
        }
    }

    /// Starts with an empty log of this generation, after the last record that a restart found.
    pub fn start(&self, generation: Generation, last: u64) {
        assert!(self.tail.get() == 0, "a log starts empty");
        self.generation.set(generation);
        self.durable.set(last);
        self.sequence.set(last + LOG_SEQUENCE_STEP);
    }

    /// The log that records go to now.
    pub fn generation(&self) -> Generation {
        self.generation.get()
    }

    /// The last record that is durable.
    pub fn durable(&self) -> u64 {
        self.durable.get()
    }

    /// Until more records are durable, or could not be written.
    pub fn written(&self) -> impl Future<Output = ()> + '_ {
        self.commits.ended()
    }

    /// Logs before this one hold so much that is not in place.
    pub fn found(&self, bytes: u64, records: u64) {
        self.bytes.set(bytes);
        self.records.set(records);
    }

    /// Whether the log must go on in another file, which may have room.
    pub fn is_cramped(&self) -> bool {
        self.cramped.get()
    }

    /// Bytes and records in the log that are not in place.
    pub fn size(&self) -> (u64, u64) {
        (self.bytes.get(), self.records.get())
    }

    /// Puts a record with its data into the log; durable when this returns.
    pub async fn append(&self, record: Record, data: Vec<Frame>) -> Written {
        self.commits.submit(Entry { record, data }).await
    }

    /// Waits for a record, then writes what has come together.
    pub async fn write_next(&self, disk: &Disk) -> Batch {
        self.commits.ready().await;
        let permit = self.writing.acquire(1).await;
        let batch = self.commits.take(LOG_BATCH_BYTES_MAX, |entry| entry.record.bytes());
        let records = batch.items().len();
        let bytes: usize = batch.items().map(|entry| entry.record.bytes()).sum();
        let mut frame = disk.frame(bytes).await;
        let (mut at, synced) = (0, self.durable.get());
        let mut last = synced;
        for entry in batch.items() {
            let sequence = self.sequence.replace(self.sequence.get() + 1);
            assert!(sequence > last, "sequences only grow");
            let chain = Chain { sequence, previous: last, synced };
            at += self.encode(entry, chain, &mut frame[at..]);
            last = sequence;
        }
        assert_eq!(at, bytes, "the records fill their write");
        let frame = frame.freeze();
        let result = self.write(disk, frame.clone()).await;
        if result.is_ok() {
            self.durable.set(last);
            self.tail.set(self.tail.get() + bytes as u64);
            self.bytes.set(self.bytes.get() + bytes as u64);
            self.records.set(self.records.get() + records as u64);
        }
        assert!(self.durable.get() < self.sequence.get(), "the next record has a new number");
        drop(permit);
        let mut at = 0;
        batch.end(|entry| {
            let data_at = at + entry.record.meta_blocks() * BLOCK_BYTES;
            at += entry.record.bytes();
            let data = (at > data_at).then(|| frame.slice(data_at..at));
            result.map(|()| data)
        });
        Batch { records, bytes }
    }

    fn encode(&self, entry: &Entry, chain: Chain, out: &mut [u8]) -> usize {
        entry.record.encode(self.generation.get(), chain, out);
        let mut at = entry.record.meta_blocks() * BLOCK_BYTES;
        for frame in &entry.data {
            out[at..at + frame.len()].copy_from_slice(frame);
            at += frame.len();
        }
        assert_eq!(at, entry.record.bytes(), "the data that the record announces");
        at
    }

    async fn write(&self, disk: &Disk, frame: Frame) -> Result<(), DiskError> {
        let file = DiskFile::Log(self.generation.get().number);
        let durable = !disk.cx.has_bug(Bug::SkippedFsync);
        disk.admit_log(self.generation.get()).await?;
        self.make_room(disk, self.tail.get() + frame.len() as u64).await;
        let written = disk.write(file, self.tail.get(), frame, durable).await;
        if written == Err(DiskError::NoSpace) {
            // The checkpoint goes on in the file of the log before, which has room for what makes room.
            self.cramped.set(true);
            disk.work.notify_all();
        }
        written?;
        match self.tail.get() {
            0 if durable => disk.simple(|| DiskOp::Sync { file }).await,
            _ => Ok(()),
        }
    }

    /// Makes the file longer when the next write ends at `end`, behind what it has, and the disk has room to spare.
    async fn make_room(&self, disk: &Disk, end: u64) {
        if end <= self.made.get() || disk.free_bytes.get() < SPARE_ROOM_BYTES {
            return;
        }
        // A wait for memory may be one for commits, and they wait for the log.
        let Some(mut zeros) = disk.cache.borrow_mut().alloc(LOG_STEP_BYTES) else { return };
        zeros.fill(0);
        let file = DiskFile::Log(self.generation.get().number);
        // It saves time and nothing else: where it fails the write itself will tell.
        if disk.write(file, end, zeros.freeze(), false).await.is_ok() {
            self.made.set(end + LOG_STEP_BYTES as u64);
            let free = disk.free_bytes.get();
            disk.free_bytes.set(free.saturating_sub(LOG_STEP_BYTES as u64));
        }
    }

    /// Goes on in a new log with this salt, unless nothing is in the present one; the generation that nothing is added
    /// to any more, and the size and the last record of all up to it.
    pub async fn switch(&self, salt: u64) -> Ended {
        let _permit = self.writing.acquire(1).await;
        let number = self.generation.get().number;
        // Nothing may be in the present one because its file found no room; the next one's may be there.
        if self.cramped.take() || self.tail.get() > 0 {
            self.generation.set(Generation { number: number + 1, salt });
            self.tail.set(0);
            self.made_before.set(self.made.replace(self.made_next.take()));
        }
        Ended {
            generation: self.generation.get().number - 1,
            bytes: self.bytes.get(),
            records: self.records.get(),
            last: self.durable.get(),
        }
    }

    /// The file of the log before is the next log's, with so many of its bytes at most.
    pub fn reused(&self, most: u64) {
        self.made_next.set(self.made_before.get().min(most));
    }

    /// So much of the log is in place and its file removed.
    pub fn applied(&self, bytes: u64, records: u64) {
        assert!(bytes <= self.bytes.get(), "what is in place was in the log");
        assert!(records <= self.records.get(), "what is in place was in the log");
        self.bytes.set(self.bytes.get() - bytes);
        self.records.set(self.records.get() - records);
    }
}
