//! The objects that the server has open.

use crate::cache::{Cache, Key};
use crate::description::Description;
use crate::limits::*;
use crate::log::Run;
use crate::object::Head;
use crate::order::{Writer, joined};
use crate::protocol::ObjectRequest;
use endpoint::Frame;
use node::rings::DiskFile;
use node::{Cx, Notify, Permit, Semaphore};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId, Time};

/// State of an object's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Its file is being read.
    Opening,
    /// Usable.
    Open,
    /// Its file could not be read.
    Failed(Errno),
    /// Gone.
    Removed,
}

/// Names an object of this server: two disks may have one of the same name while a column moves from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spot {
    pub id: ObjectId,
    pub disk: u8,
}

impl Spot {
    /// Of the object that a request is about.
    pub fn of(ask: &ObjectRequest) -> Spot {
        Spot { id: ask.object, disk: ask.disk }
    }
}

/// An open object. Gates are taken in the order commits, changes.
pub(crate) struct Object {
    pub id: ObjectId,
    pub disk: usize,
    pub key: Key,
    /// One commit, checkpoint, truncation or removal at a time.
    pub commits: Semaphore,
    /// One write, truncation or removal at a time.
    pub changes: Semaphore,
    /// Blocks came in, or the object was opened.
    pub moved: Notify,
    pub state: RefCell<State>,
}

/// A restart's findings of an object that is in the log and not in place.
pub(crate) struct Logged {
    pub head: Head,
    /// Of the header in place; 0 when there is none.
    pub sequence: u64,
    /// Whether there is a file.
    pub found: bool,
    pub description: Option<Rc<Description>>,
    /// Checksums of groups that are older on the disk.
    pub sums: BTreeMap<u64, Vec<u32>>,
    pub pending: BTreeMap<u64, (Frame, u32)>,
}

/// Both gates of an object, held.
pub(crate) type Gates<'a> = (Permit<'a>, Permit<'a>);

/// The state of an object that changes.
pub(crate) struct State {
    pub phase: Phase,
    /// Whether it was ever written or made.
    pub exists: bool,
    /// As readers and writers see it.
    pub head: Head,
    /// As a restart would find it; `None` when it would not find the object.
    pub stable: Option<Head>,
    /// The description of its file.
    pub description: Option<Rc<Description>>,
    /// The log explains a header that is written for that alone.
    pub announced: bool,
    /// Sequence of the header in place; 0 when there is none.
    pub header_sequence: u64,
    /// Whether there is a file.
    pub in_place: bool,
    /// So many blocks its file reaches behind, at least: a read within them that is short is damage.
    pub file_blocks: u64,
    /// Committed blocks that are in the log, not in place: bytes and checksum.
    pub pending: BTreeMap<u64, (Frame, u32)>,
    /// Blocks that a failed commit may have left torn in place; an intent in the log names them.
    pub torn: Vec<Run>,
    /// Blocks that its file is to be cut to and is not yet: what is behind them there is cut off.
    pub uncut: Option<u64>,
    /// Blocks that are holes and may not be in its file yet.
    pub unpunched: Vec<Run>,
    /// Writes since it was opened, and how many of them are known to be stable.
    pub writes: u64,
    pub stable_writes: u64,
    /// Grows when committed blocks change: who read others from the disk meanwhile reads again.
    pub version: u64,
    /// Grows when checksums on the disk change, or may: a commit alone changes those in memory only.
    pub sums_version: u64,
    /// Whether it is in its disk's list of dirty objects.
    pub listed_dirty: bool,
    /// The time when it was listed.
    pub dirty_since: Time,
    /// The next block of a sequential reader.
    pub next_block: u64,
    /// The first window that was not read ahead.
    pub ahead: u64,
    /// Until then who reads is answered only when all is there.
    pub whole_until: Time,
    /// Writers of this incarnation, as far as they are not in the durable head.
    pub writer: Writer,
    /// Of an object of a group, the latest write.
    pub order: u64,
    /// Likewise, the number that the primary gave the one that is being executed.
    pub given: Option<u64>,
}

impl State {
    /// Blocks and checksums on the disk have changed, or the object is gone.
    pub fn note_changed(&mut self) {
        self.version += 1;
        self.sums_version += 1;
    }

    /// Whether the object is there and its first `writes` writes are stable.
    pub fn covers(&self, writes: u64) -> bool {
        self.phase == Phase::Open && self.stable_writes >= writes
    }

    pub fn note_writer(&mut self, client: u64) {
        self.writer = joined(self.writer, client);
    }

    pub fn blocks(&self) -> u64 {
        self.head.length.div_ceil(BLOCK_BYTES as u64)
    }
}

impl Object {
    pub fn new(cx: &Cx, id: ObjectId, disk: usize, key: Key) -> Object {
        let state = State {
            phase: Phase::Opening,
            exists: false,
            head: Head::default(),
            stable: None,
            description: None,
            announced: false,
            header_sequence: 0,
            in_place: false,
            file_blocks: 0,
            pending: BTreeMap::new(),
            torn: Vec::new(),
            uncut: None,
            unpunched: Vec::new(),
            version: 0,
            sums_version: 0,
            writes: 0,
            stable_writes: 0,
            listed_dirty: false,
            dirty_since: Time::ZERO,
            next_block: 0,
            ahead: 0,
            whole_until: Time::ZERO,
            writer: 0,
            order: 0,
            given: None,
        };
        Object {
            id,
            disk,
            key,
            commits: Semaphore::new(cx, 1),
            changes: Semaphore::new(cx, 1),
            moved: Notify::new(cx),
            state: RefCell::new(state),
        }
    }

    pub fn spot(&self) -> Spot {
        Spot { id: self.id, disk: self.disk as u8 }
    }

    pub fn file(&self) -> DiskFile {
        DiskFile::Object(self.id)
    }

    /// Waits until no other task commits or changes it.
    pub async fn gates(&self) -> Gates<'_> {
        let committing = self.commits.acquire(1).await;
        (self.changes.acquire(1).await, committing)
    }

    /// Whether nothing of it is only in memory.
    fn is_idle(&self, cache: &Cache) -> bool {
        self.is_settled() && cache.is_empty(self.key)
    }

    /// Whether all that was written of it is in place.
    fn is_settled(&self) -> bool {
        let state = self.state.borrow();
        let quiet = state.pending.is_empty() && state.torn.is_empty() && !state.listed_dirty;
        quiet && state.phase != Phase::Opening
    }
}

/// Hashes object ids, which are small numbers without malice: one multiplication a word. The table is never iterated.
#[derive(Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }
}

/// The table of open objects, and of the objects removed not long ago.
#[derive(Default)]
pub(crate) struct Objects {
    open: HashMap<Spot, Rc<Object>, BuildHasherDefault<Mix>>,
    /// In the order in which they are looked at to be closed.
    order: VecDeque<Rc<Object>>,
    tombstones: BTreeMap<Spot, Time>,
    buried: VecDeque<(Time, Spot)>,
}

impl Objects {
    pub fn get(&self, spot: Spot) -> Option<&Rc<Object>> {
        self.open.get(&spot)
    }

    pub fn insert(&mut self, object: &Rc<Object>) {
        self.open.insert(object.spot(), object.clone());
        self.order.push_back(object.clone());
    }

    /// Removes an object from the table; its memory is freed with its last user.
    pub fn forget(&mut self, object: &Rc<Object>) {
        if self.open.get(&object.spot()).is_some_and(|open| Rc::ptr_eq(open, object)) {
            self.open.remove(&object.spot());
        }
    }

    /// Closes some objects without users, when there are too many.
    pub fn sweep(&mut self, cache: &mut Cache) {
        let mut steps = if self.order.len() > IDLE_OBJECTS_MAX { 32 } else { 2 };
        while steps > 0 && self.order.len() > 1 {
            steps -= 1;
            let object = self.order.pop_front().expect("more than one");
            let listed =
                self.open.get(&object.spot()).is_some_and(|open| Rc::ptr_eq(open, &object));
            let holders = if listed { 2 } else { 1 };
            let crowded = !listed || self.order.len() >= IDLE_OBJECTS_MAX;
            if crowded && Rc::strong_count(&object) == holders && object.is_idle(cache) {
                self.forget(&object);
                cache.close(object.key);
            } else {
                self.order.push_back(object);
            }
        }
    }

    /// Closes an object that its caller alone uses, with what is cached of it.
    pub fn close_unused(&mut self, object: &Rc<Object>, cache: &mut Cache) {
        let is_dirty = cache.is_dirty(object.key) || !cache.dirty_groups(object.key).is_empty();
        // By the table, by the order, and by the caller.
        if Rc::strong_count(object) == 3 && object.is_settled() && !is_dirty {
            self.forget(object);
            cache.clear(object.key);
        }
    }

    /// Refuses the object for a while.
    pub fn bury(&mut self, spot: Spot, now: Time) {
        self.tombstones.insert(spot, now + TOMBSTONE);
        self.buried.push_back((now + TOMBSTONE, spot));
        while self.buried.front().is_some_and(|(until, _)| *until <= now)
            || self.buried.len() > TOMBSTONES_MAX
        {
            let (until, spot) = self.buried.pop_front().expect("not empty");
            if self.tombstones.get(&spot) == Some(&until) {
                self.tombstones.remove(&spot);
            }
        }
    }

    /// The object is not refused any more, and is opened anew when it is asked for.
    pub fn dig_out(&mut self, object: &Rc<Object>) {
        self.forget(object);
        self.tombstones.remove(&object.spot());
    }

    /// An object of this name is refused no more.
    pub fn forget_removal(&mut self, spot: Spot) {
        self.tombstones.remove(&spot);
    }

    /// Whether the object was removed not long ago.
    pub fn is_buried(&self, spot: Spot, now: Time) -> bool {
        self.tombstones.get(&spot).is_some_and(|until| *until > now)
    }
}
