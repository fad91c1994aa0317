//! The objects that the server has open.

use crate::cache::{Cache, Key};
use crate::damage::Opened;
use crate::description::Description;
use crate::disk::{Disk, errno};
use crate::limits::*;
use crate::log::Run;
use crate::object::{GROUP_BYTES, HEADER_BYTES, Head, Header, decode_sums, file_bytes};
use crate::order::{Writer, joined};
use crate::protocol::ObjectRequest;
use crate::server::Inner;
use endpoint::Frame;
use node::rings::{DiskError, DiskFile};
use node::{Bug, Cx, Notify, Permit, Semaphore};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, ObjectId, Time};

/// Bytes read to open an object: header, first checksums, and a chunk of data, so that a small file is one read.
const OPEN_BYTES: usize = HEADER_BYTES as usize + BLOCK_BYTES + CHUNK_BYTES;
const _: () = assert!((OPEN_BYTES as u64) < GROUP_BYTES);

/// How far an object is open.
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

/// What a restart found of an object that is in the log and not in place.
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

/// What changes of an object.
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
    /// Since when.
    pub dirty_since: Time,
    /// Where the next read starts if the reader is sequential.
    pub next_block: u64,
    /// The first window that was not read ahead.
    pub ahead: u64,
    /// Until then who reads is answered only when all is there.
    pub whole_until: Time,
    /// Who wrote in this life, as far as it is not in the durable head.
    pub writer: Writer,
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
    fn new(cx: &Cx, id: ObjectId, disk: usize, key: Key) -> Object {
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

    /// Waits until nobody else commits or changes it.
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

    fn insert(&mut self, object: &Rc<Object>) {
        self.open.insert(object.spot(), object.clone());
        self.order.push_back(object.clone());
    }

    /// Takes an object out of the table; its memory follows when nobody uses it any more.
    fn forget(&mut self, object: &Rc<Object>) {
        if self.open.get(&object.spot()).is_some_and(|open| Rc::ptr_eq(open, object)) {
            self.open.remove(&object.spot());
        }
    }

    /// Closes some objects that nobody uses, when there are too many.
    fn sweep(&mut self, cache: &mut Cache) {
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

    /// Whether the object was removed not long ago.
    pub fn is_buried(&self, spot: Spot, now: Time) -> bool {
        self.tombstones.get(&spot).is_some_and(|until| *until > now)
    }
}

impl Inner {
    pub fn disk(&self, object: &Object) -> &Disk {
        &self.disks[object.disk]
    }

    /// The disk with this number; ENXIO when the server has none.
    pub fn disk_at(&self, disk: u8) -> Result<&Disk, Errno> {
        self.disks.get(usize::from(disk)).ok_or_else(|| {
            let count = self.disks.len();
            self.report(format!("disk {disk} was asked for, the configuration has {count}"));
            Errno::ENXIO
        })
    }

    /// The object that a request is about, opened. It may not exist: its state says so.
    pub async fn object(self: &Rc<Self>, ask: &ObjectRequest) -> Result<Rc<Object>, Errno> {
        let Spot { id, disk } = Spot::of(ask);
        self.disk_at(disk)?.check()?;
        let disk = usize::from(disk);
        let open = self.objects.borrow().get(Spot::of(ask)).cloned();
        if let Some(object) = open {
            return self.opened(object).await;
        }
        let key = self.cache.borrow_mut().open(disk);
        let object = Rc::new(Object::new(&self.cx, id, disk, key));
        self.objects.borrow_mut().insert(&object);
        self.objects.borrow_mut().sweep(&mut self.cache.borrow_mut());
        let opening = Opening { inner: self.clone(), object: object.clone() };
        let result = self.open(&object).await;
        let phase = result.map_or_else(Phase::Failed, |()| Phase::Open);
        object.state.borrow_mut().phase = phase;
        drop(opening);
        result.map(|()| object)
    }

    /// Opens an object as the log says it is.
    pub fn adopt(&self, disk: &Disk, id: ObjectId, logged: Logged) {
        let place = usize::from(disk.id.0);
        let mut cache = self.cache.borrow_mut();
        let object = Rc::new(Object::new(&self.cx, id, place, cache.open(place)));
        let mut state = object.state.borrow_mut();
        (state.phase, state.exists, state.in_place) = (Phase::Open, true, logged.found);
        (state.head, state.stable) = (logged.head, Some(logged.head));
        (state.header_sequence, state.pending) = (logged.sequence, logged.pending);
        state.description = logged.description;
        for (group, sums) in logged.sums {
            cache.set_newer_group(object.key, group, sums);
        }
        drop(state);
        self.objects.borrow_mut().insert(&object);
        disk.unapplied.borrow_mut().insert(id, object);
    }

    /// Whether neither memory, nor the log, nor the disk has anything of an object. ENXIO and the disk's own error when
    /// it is not served.
    pub fn is_nowhere(&self, Spot { id, disk }: Spot) -> Result<bool, Errno> {
        let open = self.objects.borrow().get(Spot { id, disk }).is_some();
        let disk = self.disk_at(disk)?;
        disk.check()?;
        let logged = disk.unapplied.borrow().contains_key(&id);
        Ok(!open && !logged && disk.index.get(id).is_none())
    }

    /// The object in the caller's hands alone, with room in the log for what it will do.
    pub async fn hold<'a>(&self, object: &'a Object) -> Result<Gates<'a>, Errno> {
        self.wait_for_log(self.disk(object)).await?;
        Ok(object.gates().await)
    }

    async fn opened(&self, object: Rc<Object>) -> Result<Rc<Object>, Errno> {
        loop {
            let moved = object.moved.wait();
            let phase = object.state.borrow().phase;
            match phase {
                Phase::Opening => moved.await,
                Phase::Open => break,
                Phase::Failed(errno) => return Err(errno),
                Phase::Removed => return Err(Errno::ESTALE),
            }
        }
        Ok(object)
    }

    /// Reads header, first checksums and first blocks; the header alone when the disk cannot read one of the others.
    async fn open(&self, object: &Object) -> Result<(), Errno> {
        let disk = self.disk(object);
        let into = disk.frame(OPEN_BYTES).await;
        let (mut bytes, count) = match disk.read_some(object.file(), 0, into).await {
            Err(DiskError::Failed(Errno::EIO)) => {
                let into = disk.frame(HEADER_BYTES as usize).await;
                disk.read_some(object.file(), 0, into).await
            }
            read => read,
        }
        .map_err(errno)?;
        if self.cx.has_bug(Bug::HeaderSumIgnored) {
            Header::sum_anew(&mut bytes);
        }
        let header = Header::read(object.id, &bytes);
        let header = match self.recognise(disk, object.id, header, count.is_some()).await? {
            Opened::Object(header) => header,
            Opened::Nothing => {
                // What is in a file without a header was never committed: the first write cuts it off.
                object.state.borrow_mut().uncut = count.map(|_| 0);
                return Ok(());
            }
        };
        let there = count.unwrap_or(0) as u64;
        let is_short = there < file_bytes(header.head.length).min(bytes.len() as u64);
        if is_short && !self.cx.has_bug(Bug::ShortFileIgnored) {
            return Err(self.damage(disk, object.id, &"its file is cut short"));
        }
        {
            let mut state = object.state.borrow_mut();
            (state.exists, state.in_place) = (true, true);
            (state.head, state.stable) = (header.head, Some(header.head));
            state.header_sequence = header.sequence;
            state.description = header.description(&bytes).map(Rc::new);
            state.file_blocks = state.blocks();
        }
        if bytes.len() == OPEN_BYTES {
            self.keep_first_chunk(object, header.head.length, &bytes[HEADER_BYTES as usize..]);
        }
        Ok(())
    }

    /// Caches what came with the header, as far as it is right; what is not is found when it is asked for.
    fn keep_first_chunk(&self, object: &Object, length: u64, bytes: &[u8]) {
        let (sums, data) = bytes.split_at(BLOCK_BYTES);
        let mut cache = self.cache.borrow_mut();
        cache.set_group(object.key, 0, decode_sums(sums));
        let blocks = length.div_ceil(BLOCK_BYTES as u64).min(CHUNK_BLOCKS as u64) as usize;
        let data = &data[..blocks * BLOCK_BYTES];
        let found: Vec<u32> = data.chunks_exact(BLOCK_BYTES).map(block_crc).collect();
        let right = found
            .iter()
            .enumerate()
            .all(|(block, sum)| cache.committed_sum(object.key, block as u64) == Some(*sum));
        if !right || blocks == 0 {
            return;
        }
        let Some(mut frame) = cache.alloc(data.len()) else { return };
        frame.copy_from_slice(data);
        // Without memory the blocks are read again when they are asked for.
        let _ = cache.insert(object.key, 0, 0, &frame.freeze(), &found);
    }

    /// The object is gone: nothing of it is kept in memory, and it is refused for a while.
    pub fn let_go(&self, object: &Rc<Object>) {
        {
            let mut state = object.state.borrow_mut();
            state.phase = Phase::Removed;
            state.note_changed();
            state.pending.clear();
            state.torn.clear();
            self.cache.borrow_mut().clear(object.key);
        }
        self.bury(object);
        object.moved.notify_all();
        self.disk(object).room.notify_all();
    }

    /// Takes a removed object out of the table and refuses it for a while.
    fn bury(&self, object: &Rc<Object>) {
        let mut objects = self.objects.borrow_mut();
        objects.forget(object);
        objects.bury(object.spot(), self.cx.now());
    }
}

/// An object that is being opened: whoever waits for it is told, however it ends.
struct Opening {
    inner: Rc<Inner>,
    object: Rc<Object>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        let phase = self.object.state.borrow().phase;
        if phase != Phase::Open {
            if phase == Phase::Opening {
                self.object.state.borrow_mut().phase = Phase::Failed(Errno::EIO);
            }
            self.inner.objects.borrow_mut().forget(&self.object);
        }
        self.object.moved.notify_all();
    }
}
