//! One disk of the server: how its files are read and written, and what state it is in.
//!
//! A lost disk is noticed by the first operation that finds its directory missing: from then on requests for it are
//! errors, until the server's next start.

mod index;
mod journal;
mod label;

use crate::cache::Cache;
use crate::limits::{
    LOG_KEPT_BYTES, LOG_KEPT_SHARE, SPARE_ROOM_BYTES, UNREADABLE_PAUSE, UNREADABLE_READS_MIN,
    UNREADABLE_SPAN,
};
use crate::objects::Object;
use crate::order::Incarnations;
use endpoint::{Frame, FrameMut};
use index::Index;
use journal::Journal;
use node::rings::{DiskError, DiskFile, DiskId, DiskListing, DiskOp, DiskReply};
use node::{Bug, Cx, Notify, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, ObjectId, Time};

pub(crate) use index::{Entry, LABEL_BLOCKS, Mark as IndexMark};

const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Whether a disk serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// Its label and log are being read.
    #[default]
    Starting,
    /// All is well.
    Serving,
    /// It is not used: why, in a sentence that names it.
    Refused(Errno, String),
}

/// The disk's identity, and the age of its content: numbers that only grow, of its label and of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskAge {
    /// In its label.
    pub id: u128,
    /// When this start began.
    pub found: [u64; 2],
    /// Now, durably.
    pub now: [u64; 2],
}

/// Why a disk cannot serve.
pub(crate) type Refusal = (Errno, String);

/// Progress of the scrub of a disk.
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
    /// Blocks that it left out: they were newer in the log.
    pub logged_blocks: u64,
    /// Objects that it could not read, for another reason than damage. A round that ends with some does not count.
    pub unread: u64,
    /// Objects in which a round found damage since the start; one that stays damaged counts in each.
    pub damaged: u64,
    /// Bytes read in all rounds.
    pub all_bytes: u64,
}

impl Scrubbed {
    pub(crate) fn note_read(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.all_bytes += bytes;
    }
}

/// A disk.
pub(crate) struct Disk {
    pub id: DiskId,
    pub cx: Cx,
    pub cache: Rc<RefCell<Cache>>,
    pub health: RefCell<Health>,
    /// It went missing while it served.
    went_missing: Cell<bool>,
    pub journal: Journal,
    /// The objects that are in place.
    pub index: Index,
    /// Objects found damaged since the start, at most [`DAMAGED_MAX`].
    pub damaged: RefCell<BTreeSet<ObjectId>>,
    /// Objects with records in the log that are not in place yet.
    pub unapplied: RefCell<BTreeMap<ObjectId, Rc<Object>>>,
    /// Those that a checkpoint has taken from there and not brought into place yet.
    pub placing: RefCell<BTreeMap<ObjectId, Rc<Object>>>,
    /// Objects that were described since the last checkpoint began.
    pub described: RefCell<BTreeMap<ObjectId, Rc<Object>>>,
    /// Some of it for so long that a checkpoint is due for that alone.
    pub is_described_long: Cell<bool>,
    /// Checkpoints that were begun.
    pub checkpoints: Cell<u64>,
    /// Objects with dirty blocks, in the order in which they became dirty.
    pub dirty: RefCell<VecDeque<Rc<Object>>>,
    /// Dirty blocks became fewer, or the log shorter.
    pub room: Notify,
    /// Work for the flusher or the checkpoint.
    pub work: Notify,
    /// Why the last implicit commit failed.
    pub flush_error: Cell<Option<Errno>>,
    /// Why the last checkpoint failed.
    pub checkpoint_error: Cell<Option<Errno>>,
    /// Memory is short: what is dirty is to be committed, and what is in the log to be put in place.
    pub pressed: Cell<bool>,
    /// Bytes free, at least, when it was last asked, less what was promised since; 0 when it must be asked.
    pub free_bytes: Cell<u64>,
    /// When it was asked.
    pub free_at: Cell<Time>,
    /// Progress of the scrub.
    pub scrubbed: Cell<Scrubbed>,
    /// One checkpoint at a time.
    pub checkpointing: Semaphore,
    /// No log of an older generation is left.
    pub oldest_log: Cell<u32>,
    /// Starts and log as they were found.
    pub found: Cell<[u64; 2]>,
    /// The server's incarnations on this disk, and how far its log is, as its label has them.
    pub incarnations: RefCell<Incarnations>,
    /// One write of them at a time.
    pub noting: Semaphore,
}

impl Disk {
    pub fn new(cx: &Cx, cache: &Rc<RefCell<Cache>>, id: DiskId) -> Disk {
        Disk {
            id,
            cx: cx.clone(),
            cache: cache.clone(),
            health: RefCell::default(),
            went_missing: Cell::default(),
            journal: Journal::new(cx),
            index: Index::new(cx),
            damaged: RefCell::default(),
            unapplied: RefCell::default(),
            placing: RefCell::default(),
            described: RefCell::default(),
            is_described_long: Cell::new(false),
            checkpoints: Cell::new(0),
            dirty: RefCell::default(),
            room: Notify::new(cx),
            work: Notify::new(cx),
            flush_error: Cell::new(None),
            checkpoint_error: Cell::new(None),
            pressed: Cell::new(false),
            free_bytes: Cell::new(0),
            free_at: Cell::default(),
            scrubbed: Cell::default(),
            checkpointing: Semaphore::new(cx, 1),
            oldest_log: Cell::new(1),
            found: Cell::default(),
            incarnations: RefCell::default(),
            noting: Semaphore::new(cx, 1),
        }
    }

    /// The error that requests for this disk get, if it does not serve. ENXIO: it was refused when the server started,
    /// and what is on it is an error. ENODEV: it went missing since, and clients may have what was written to it last.
    pub fn check(&self) -> Result<(), Errno> {
        match &*self.health.borrow() {
            Health::Serving => Ok(()),
            Health::Starting => Err(Errno::EAGAIN),
            Health::Refused(..) if self.went_missing.get() => Err(Errno::ENODEV),
            Health::Refused(..) => Err(Errno::ENXIO),
        }
    }

    /// Asks the device. A disk that is missing is not used any more until the server's next start: what it says if it
    /// comes back meanwhile may be another disk's.
    async fn run(&self, op: DiskOp) -> Result<DiskReply, DiskError> {
        let result = self.cx.disk(self.id, op).await;
        let serves = *self.health.borrow() == Health::Serving;
        if serves && matches!(result, Err(DiskError::Missing)) {
            *self.health.borrow_mut() = Health::Refused(Errno::ENODEV, self.loss());
            self.went_missing.set(true);
            self.room.notify_all();
            self.work.notify_all();
        }
        result
    }

    fn loss(&self) -> String {
        format!(
            "disk {}: its directory went missing while the server runs; bring it back and start the server again",
            self.id.0
        )
    }

    /// Why it is not used, in a sentence for people.
    pub fn refusal(&self) -> Option<String> {
        match &*self.health.borrow() {
            Health::Refused(_, why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Why it cannot serve: what of it could not be done, and the device's error.
    pub fn refused_for(&self, what: &str, error: DiskError) -> Refusal {
        (errno(error), format!("disk {}: {what}: {error}", self.id.0))
    }

    /// Whether it is not used until the server's next start.
    pub fn is_refused(&self) -> bool {
        matches!(*self.health.borrow(), Health::Refused(..))
    }

    /// Bytes of the file; what is behind its end is zero. A file that does not exist is all zeros: `false`.
    pub async fn read(
        &self,
        file: DiskFile,
        offset: u64,
        bytes: usize,
    ) -> Result<(FrameMut, bool), DiskError> {
        let into = self.frame(bytes).await;
        let (into, bytes) = self.read_some(file, offset, into).await?;
        Ok((into, bytes.is_some()))
    }

    /// As [`read`](Disk::read), into this frame, with the bytes that the file had; `None` of one that does not exist.
    pub async fn read_some(
        &self,
        file: DiskFile,
        offset: u64,
        mut into: FrameMut,
    ) -> Result<(FrameMut, Option<usize>), DiskError> {
        let wanted = into.len();
        loop {
            match self.run(DiskOp::Read { file, offset, into }).await {
                Ok(DiskReply::Read { mut into, bytes }) => {
                    assert!(bytes <= into.len(), "a disk reads no more than fits");
                    into[bytes..].fill(0);
                    return Ok((into, Some(bytes)));
                }
                Ok(_) => return Err(DiskError::Failed(Errno::EPROTO)),
                Err(DiskError::NotFound) => return Ok((self.zeros(wanted).await, None)),
                Err(DiskError::Busy) => {
                    self.cx.sleep(BUSY_PAUSE).await;
                    into = self.frame(wanted).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`read`](Disk::read), where it costs something for good that bytes cannot be read: a disk that fails for a
    /// moment is asked again. `None` when it fails for longer.
    pub async fn read_patiently(
        &self,
        file: DiskFile,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<(FrameMut, bool)>, DiskError> {
        let until = self.cx.now() + UNREADABLE_SPAN;
        let mut reads = 0;
        loop {
            reads += 1;
            let last = reads >= UNREADABLE_READS_MIN && self.cx.now() >= until;
            match self.read(file, offset, bytes).await {
                Err(DiskError::Failed(Errno::EIO)) if last => return Ok(None),
                Err(DiskError::Failed(Errno::EIO)) => self.cx.sleep(UNREADABLE_PAUSE).await,
                read => return read.map(Some),
            }
        }
    }

    /// Memory that the cache does not count; clean blocks make room for it. Waits while everything is under way.
    pub async fn frame(&self, bytes: usize) -> FrameMut {
        loop {
            if let Some(frame) = self.frame_now(bytes) {
                return frame;
            }
            self.cx.sleep(BUSY_PAUSE).await;
        }
    }

    /// As [`frame`](Disk::frame), with nothing in it but zeros.
    pub async fn zeros(&self, bytes: usize) -> FrameMut {
        let mut frame = self.frame(bytes).await;
        frame.fill(0);
        frame
    }

    /// As [`frame`](Disk::frame), without waiting.
    pub fn frame_now(&self, bytes: usize) -> Option<FrameMut> {
        let mut frame = self.cache.borrow_mut().alloc(bytes)?;
        frame.truncate(bytes);
        Some(frame)
    }

    /// Writes all of `data`.
    pub async fn write(
        &self,
        file: DiskFile,
        offset: u64,
        data: Frame,
        durable: bool,
    ) -> Result<(), DiskError> {
        self.simple(|| DiskOp::Write { file, offset, data: data.clone(), durable }).await
    }

    /// An operation that brings nothing; asked again while the disk is busy.
    pub async fn simple(&self, op: impl Fn() -> DiskOp) -> Result<(), DiskError> {
        self.ask(op).await.map(drop)
    }

    /// Makes stable which files there are, by which names.
    pub async fn sync_names(&self) -> Result<(), DiskError> {
        self.simple(|| DiskOp::Sync { file: DiskFile::Label }).await
    }

    /// Removes a log.
    pub async fn drop_log(&self, generation: u32) -> Result<(), DiskError> {
        let file = DiskFile::Log(generation);
        self.simple(|| DiskOp::Remove { file }).await
    }

    /// Makes the file of a log that is in place the file of a later one, or removes it where no part of it can be
    /// spared; how many of its bytes are kept at most, or none. On a full disk this file is the room that removals
    /// find. The records in it say nothing any more: they are of another generation than their file.
    pub async fn keep_log(&self, from: u32, to: u32) -> Result<Option<u64>, DiskError> {
        let mut most = u64::MAX;
        let Ok(DiskReply::Space { total, free, .. }) = self.ask(|| DiskOp::Space).await else {
            return self.drop_log(from).await.map(|()| None);
        };
        if free < SPARE_ROOM_BYTES {
            if total < LOG_KEPT_BYTES * LOG_KEPT_SHARE {
                return self.drop_log(from).await.map(|()| None);
            }
            self.shorten_log(from).await?;
            most = LOG_KEPT_BYTES;
        }
        self.reuse_log(from, to).await.map(|()| Some(most))
    }

    async fn shorten_log(&self, generation: u32) -> Result<(), DiskError> {
        let file = DiskFile::Log(generation);
        match self.stat(file).await {
            Ok((bytes, _)) if bytes > LOG_KEPT_BYTES => {
                self.simple(|| DiskOp::Truncate { file, bytes: LOG_KEPT_BYTES }).await
            }
            Err(DiskError::NotFound) => Ok(()),
            result => result.map(drop),
        }
    }

    async fn reuse_log(&self, from: u32, to: u32) -> Result<(), DiskError> {
        let (from, to) = (DiskFile::Log(from), DiskFile::Log(to));
        match self.simple(|| DiskOp::Rename { from, to }).await {
            // Nothing was ever written to it.
            Err(DiskError::NotFound) => Ok(()),
            result => result,
        }
    }

    /// Length of a file, and bytes of storage that it takes.
    pub async fn stat(&self, file: DiskFile) -> Result<(u64, u64), DiskError> {
        match self.ask(|| DiskOp::stat(file)).await? {
            DiskReply::Stat { bytes, used, .. } => Ok((bytes, used)),
            _ => Err(DiskError::Failed(Errno::EPROTO)),
        }
    }

    /// At most `count` files of objects behind `after`, in order.
    pub async fn list_objects(
        &self,
        after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<ObjectId>, DiskError> {
        let listed = self.list(DiskListing::Objects { after, count }).await?.into_iter();
        let objects = listed.filter_map(|file| match file {
            DiskFile::Object(object) => Some(object),
            _ => None,
        });
        Ok(objects.collect())
    }

    /// Whether the log may have something of an object that is not in place.
    pub fn is_logged(&self, object: ObjectId) -> bool {
        self.unapplied.borrow().contains_key(&object) || self.placing.borrow().contains_key(&object)
    }

    /// The first `count` objects behind `after` that are recorded in place, in the log, or on their way from there:
    /// each is in one of these at any time. Those that were removed a moment ago may be among them.
    pub fn known_objects(&self, after: Option<ObjectId>, count: usize) -> Vec<ObjectId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let first = |table: &RefCell<BTreeMap<ObjectId, Rc<Object>>>| -> Vec<ObjectId> {
            let table = table.borrow();
            table.range((from, Bound::Unbounded)).take(count).map(|(id, _)| *id).collect()
        };
        let placing =
            if self.cx.has_bug(Bug::PlacingNotListed) { Vec::new() } else { first(&self.placing) };
        let logged = first(&self.unapplied).into_iter().chain(placing);
        let all: BTreeSet<ObjectId> =
            self.index.behind(after, count).into_iter().chain(logged).collect();
        all.into_iter().take(count).collect()
    }

    pub async fn list(&self, listing: DiskListing) -> Result<Vec<DiskFile>, DiskError> {
        match self.ask(|| DiskOp::List(listing)).await? {
            DiskReply::Files(files) => Ok(files),
            _ => Err(DiskError::Failed(Errno::EPROTO)),
        }
    }

    /// As [`simple`](Disk::simple), for operations with a reply.
    pub async fn ask(&self, op: impl Fn() -> DiskOp) -> Result<DiskReply, DiskError> {
        loop {
            match self.run(op()).await {
                Err(DiskError::Busy) => self.cx.sleep(BUSY_PAUSE).await,
                Err(DiskError::NoSpace) => {
                    // Others took what was known to be free.
                    self.free_bytes.set(0);
                    return Err(DiskError::NoSpace);
                }
                result => return result,
            }
        }
    }
}

/// The client's error: a file that is missing under an open object is damage, not absence.
pub(crate) fn errno(error: DiskError) -> Errno {
    match error {
        DiskError::NotFound => Errno::EIO,
        other => other.into(),
    }
}
