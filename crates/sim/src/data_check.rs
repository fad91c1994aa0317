//! Checks what reads return: every byte is what the last acknowledged write or a concurrent one left there, seen with
//! close-to-open consistency, and what fsync acknowledged survives everything.
//!
//! For each stretch of a file it keeps the writes that may be there. A write goes out of account once another one,
//! which the reader must see, came after it. A reader must see the acknowledged writes of its own mount, and of others
//! what was published (closed or synced) before it opened the file. After a crash, writes that were not synced may be
//! missing: until the survivors have sent them again, or for good when who wrote them died as well.
//!
//! It knows nothing of how the services work; the contract is DESIGN's durability table.

mod bytes;
mod seek;

pub use bytes::fill;
pub use seek::Sought;

use crate::limits::PAUSE_MS_MAX;
use crate::queue::Picos;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use wire::{FileId, NodeId};

/// Names one write, truncation or the emptiness that a file begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(u32);

const HOLE: WriteId = WriteId(0);
/// How long an operation whose caller gave it up may still take effect.
const LINGER: Picos = Picos::seconds(30);
/// How long after all machines run again survivors take to send again what a crash lost.
const SETTLE: Picos = Picos::seconds(30);
/// How long after a removal a power cut may undo it.
const UNDO: Picos = Picos::seconds(10);
/// Time before a kill whose writes a decaying disk may lose from its end: DESIGN says 1 s, and writes take time.
pub const RECENT: Picos = Picos::seconds(2);
/// Time by which that may be longer ago where the server was paused, and has run for less than a second since.
pub const PAUSE_MAX: Picos = Picos::millis(PAUSE_MS_MAX + 1_000);
/// Until a sync says that it is there after all.
const UNTIL_SYNCED: Picos = Picos(u64::MAX - 2);
/// Until the servers are back, and [`SETTLE`] longer.
const UNTIL_BACK: Picos = Picos(u64::MAX - 1);
/// Writes of one stretch before those that count no more are looked for.
const CROWD: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hole,
    Data,
    /// Zeros, which make the file longer as data does.
    Zeros,
    /// Zeros as far as the file goes.
    Punch,
    Truncation,
}

#[derive(Clone, Debug)]
struct Write {
    kind: Kind,
    mount: NodeId,
    file: FileId,
    /// The open file that it went through; 0 is none.
    handle: u64,
    /// Its first byte; of a truncation, the new size.
    start: u64,
    begin: Picos,
    /// It takes effect on what other mounts published until then.
    sees: Picos,
    /// When it was acknowledged.
    ack: Option<Picos>,
    /// From when on nothing of it can newly appear: its acknowledgement, or long after its failure.
    end: Picos,
    /// From when on a new open of another mount sees it.
    published: Picos,
    /// Fsync has acknowledged it.
    durable: bool,
    /// A crash may have taken it, and until this time it may not have been retransmitted.
    weak_until: Picos,
    /// Its mount has run on since, and so can retransmit it and have it committed.
    held: bool,
}

impl Write {
    fn new(kind: Kind, mount: NodeId, file: FileId, start: u64, begin: Picos) -> Write {
        let never = Picos::NEVER;
        let (ack, durable, weak_until) = (None, false, Picos::ZERO);
        let (end, published) = (never, never);
        Write {
            kind,
            mount,
            file,
            handle: 0,
            start,
            begin,
            sees: begin,
            ack,
            end,
            published,
            durable,
            weak_until,
            held: true,
        }
    }

    /// Whether `reader` must see it (or something later). A reader that opened the file before it was retransmitted
    /// goes on with the length and the bytes that it found then.
    fn is_visible(&self, reader: &Reader) -> bool {
        let own = self.mount == reader.mount && self.ack.is_some_and(|ack| ack <= reader.begin);
        let there = if own { reader.begin } else { reader.opened };
        (own || self.published <= reader.opened) && self.weak_until <= there
    }

    /// Whether it certainly took effect after `earlier`.
    fn follows(&self, earlier: &Write) -> bool {
        match self.mount == earlier.mount {
            true => earlier.end < self.begin,
            false => earlier.settled() < self.sees,
        }
    }

    /// From when on it is where other mounts' writes go.
    fn settled(&self) -> Picos {
        if self.ack.is_some() { self.published } else { self.end }
    }

    fn is_zero(&self) -> bool {
        self.kind != Kind::Data
    }

    /// Whether the file may end before it.
    fn may_lack(&self) -> bool {
        !matches!(self.kind, Kind::Data | Kind::Zeros)
    }
}

/// A reader, with its right to see others' writes.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// The mount.
    pub mount: NodeId,
    /// When the open began through which it reads.
    pub opened: Picos,
    /// When the read began.
    pub begin: Picos,
}

/// A stretch of a file, to the next one's start.
type Stretches = BTreeMap<u64, Vec<WriteId>>;

/// The history of all files.
#[derive(Debug)]
pub struct DataCheck {
    writes: Vec<Write>,
    files: BTreeMap<FileId, Stretches>,
    /// Writes that a crash can still take.
    volatile: Vec<WriteId>,
    oldest: Picos,
    /// Files that are gone, and when that is certain.
    going: Vec<(Picos, FileId)>,
    /// Writes that became durable lately, and when.
    recent: VecDeque<(Picos, WriteId)>,
    /// Files whose names may be there again without their bytes.
    unchecked: BTreeSet<FileId>,
    /// Nothing is forgotten: files that are gone may be there again.
    pub keeps_all: bool,
}

impl Default for DataCheck {
    fn default() -> DataCheck {
        let mut hole = Write::new(Kind::Hole, NodeId(0), FileId(0), 0, Picos::ZERO);
        (hole.ack, hole.end, hole.published) = (Some(Picos::ZERO), Picos::ZERO, Picos::ZERO);
        DataCheck {
            writes: vec![hole],
            files: BTreeMap::new(),
            volatile: Vec::new(),
            oldest: Picos::ZERO,
            going: Vec::new(),
            recent: VecDeque::new(),
            unchecked: BTreeSet::new(),
            keeps_all: false,
        }
    }
}

impl DataCheck {
    fn write(&mut self, id: WriteId) -> &mut Write {
        &mut self.writes[id.0 as usize]
    }

    fn stretches(&mut self, file: FileId) -> &mut Stretches {
        self.files.entry(file).or_insert_with(|| BTreeMap::from([(0, vec![HOLE])]))
    }

    /// A write of `bytes` bytes at `offset` begins; its bytes are those that [`fill`] gives.
    pub fn write_begins(
        &mut self,
        mount: NodeId,
        file: FileId,
        offset: u64,
        bytes: u64,
        now: Picos,
    ) -> WriteId {
        self.begin(Write::new(Kind::Data, mount, file, offset, now), Some(offset + bytes))
    }

    /// The write goes through this open file.
    pub fn goes_through(&mut self, id: WriteId, handle: u64) {
        self.write(id).handle = handle;
    }

    /// A range of bytes begins to become zeros; with `extends` also where the file ends before. How far the file goes
    /// is what a reader that opened it then knows.
    pub fn zeros_begin(
        &mut self,
        (mount, opened): (NodeId, Picos),
        file: FileId,
        range: Range<u64>,
        extends: bool,
        now: Picos,
    ) -> WriteId {
        let kind = if extends { Kind::Zeros } else { Kind::Punch };
        let sees = if extends { now } else { opened };
        let write = Write { sees, ..Write::new(kind, mount, file, range.start, now) };
        self.begin(write, Some(range.end))
    }

    /// A truncation to `size` begins.
    pub fn truncation_begins(
        &mut self,
        mount: NodeId,
        file: FileId,
        size: u64,
        now: Picos,
    ) -> WriteId {
        self.begin(Write::new(Kind::Truncation, mount, file, size, now), None)
    }

    fn begin(&mut self, write: Write, end: Option<u64>) -> WriteId {
        let id = WriteId(self.writes.len() as u32);
        let (file, start) = (write.file, write.start);
        self.writes.push(write);
        self.volatile.push(id);
        let stretches = self.stretches(file);
        [Some(start), end].into_iter().flatten().for_each(|at| split(stretches, at));
        for (_, ids) in stretches.range_mut(start..end.unwrap_or(u64::MAX)) {
            ids.push(id);
        }
        self.thin_out(file, start, end.unwrap_or(u64::MAX));
        id
    }

    /// No open, read or write that is under way began before this: older writes need be kept only as far as such can
    /// see them.
    pub fn set_oldest(&mut self, oldest: Picos) {
        self.oldest = oldest;
    }

    /// Drops writes that no reader, however old its open, can see: one that is published and durable came after.
    /// Adjacent stretches that are alike become one.
    fn thin_out(&mut self, file: FileId, start: u64, end: u64) {
        let (writes, oldest) = (&self.writes, self.oldest);
        let Some(stretches) = self.files.get_mut(&file) else { return };
        let mut alike: Option<Vec<WriteId>> = None;
        let mut merged = Vec::new();
        for (at, ids) in stretches.range_mut(start..end) {
            if ids.len() >= CROWD {
                retain_visible(writes, oldest, ids);
            }
            if alike.as_ref() == Some(ids) {
                merged.push(*at);
            } else {
                alike = Some(ids.clone());
            }
        }
        merged.iter().for_each(|at| {
            stretches.remove(at);
        });
    }

    /// The write (or truncation) ended. One that failed may still take effect for a while, or in part.
    pub fn ends(&mut self, id: WriteId, succeeded: bool, now: Picos) {
        let write = self.write(id);
        if succeeded {
            (write.ack, write.end) = (Some(now), now);
        } else {
            write.end = now + LINGER;
        }
        if succeeded && write.kind == Kind::Truncation {
            write.published = now;
        }
    }

    /// A close of `handle` that began at `begun` was acknowledged: the writes through it that were acknowledged before
    /// are where others see them. With `durable`, an fsync was: of all that the mount wrote to the file.
    pub fn published(
        &mut self,
        mount: NodeId,
        file: FileId,
        handle: u64,
        begun: Picos,
        durable: bool,
        now: Picos,
    ) {
        let (writes, recent) = (&mut self.writes, &mut self.recent);
        recent.retain(|(at, _)| *at + RECENT + PAUSE_MAX > now);
        self.volatile.retain(|id| {
            let write = &mut writes[id.0 as usize];
            let covered = write.file == file
                && write.mount == mount
                && write.held
                && (durable || write.handle == handle)
                && write.ack.is_some_and(|ack| ack <= begun);
            if covered {
                write.published = write.published.min(now);
                write.durable |= durable;
            }
            if covered && durable && write.weak_until <= UNTIL_BACK {
                write.weak_until = write.weak_until.min(now);
            }
            if covered && durable {
                recent.push_back((now, *id));
            }
            !(covered && durable)
        });
    }

    /// All machines were killed after they had run until `now`, and disks may decay: what became durable in the last
    /// second may be lost. So may be a removal in the names, where the objects are gone.
    pub fn last_second_lost(&mut self, now: Picos) {
        let lately = self.going.iter().filter(|(at, _)| *at + RECENT > now + UNDO);
        self.unchecked.extend(lately.map(|(_, file)| *file));
        for (at, id) in std::mem::take(&mut self.recent) {
            if at + RECENT > now {
                let write = self.write(id);
                (write.durable, write.weak_until, write.held) = (false, Picos::NEVER, false);
                self.volatile.push(id);
            }
        }
    }

    /// These files are back by names of a backup that was begun then, and were removed since: what was written
    /// meanwhile may be gone with their objects.
    pub fn came_back(&mut self, files: impl Fn(FileId) -> bool, begun: Picos) {
        let since = |write: &&mut Write| write.ack.is_none_or(|ack| ack >= begun);
        for write in self.writes.iter_mut().skip(1).filter(|write| files(write.file)).filter(since)
        {
            (write.durable, write.weak_until, write.held) = (false, Picos::NEVER, false);
        }
    }

    /// A close or fsync failed: the mount's unsynced writes of the file may be lost.
    pub fn publishing_failed(&mut self, mount: NodeId, file: FileId, now: Picos) {
        self.weaken(|write| write.mount == mount && write.file == file, now + LINGER);
    }

    fn weaken(&mut self, which: impl Fn(&Write) -> bool, end: Picos) {
        for id in &self.volatile {
            let write = &mut self.writes[id.0 as usize];
            if which(write) {
                write.weak_until = Picos::NEVER;
                write.end = write.end.min(end);
                write.published = write.published.min(end);
            }
        }
    }

    /// A mount died: what it had not published may be lost, and what it had may be lost by a crash from now on.
    pub fn mount_died(&mut self, mount: NodeId, now: Picos) {
        let lost = |write: &Write| {
            let at_risk = write.published > now || write.weak_until > now;
            write.mount == mount && at_risk
        };
        self.weaken(lost, now + LINGER);
        for id in &self.volatile {
            let write = &mut self.writes[id.0 as usize];
            write.held &= write.mount != mount;
        }
    }

    /// An I/O server (or the manager) died. `alive` says whether a mount still runs, and so retransmits lost writes.
    pub fn server_died(&mut self, alive: impl Fn(NodeId) -> bool) {
        for id in &self.volatile {
            let write = &mut self.writes[id.0 as usize];
            let again = write.held && alive(write.mount);
            write.weak_until = match write.weak_until {
                _ if !again => Picos::NEVER,
                Picos::NEVER => Picos::NEVER,
                UNTIL_SYNCED => UNTIL_SYNCED,
                _ => UNTIL_BACK,
            };
        }
    }

    /// A disk is full, or was until now: what is not synced may be given up. A sync says so, or says that all is there.
    pub fn disk_full(&mut self) {
        for id in &self.volatile {
            let write = &mut self.writes[id.0 as usize];
            if write.weak_until != Picos::NEVER {
                write.weak_until = UNTIL_SYNCED;
            }
        }
    }

    /// All servers run again: soon survivors will have retransmitted what was lost.
    pub fn servers_back(&mut self, now: Picos) {
        for id in &self.volatile {
            let write = &mut self.writes[id.0 as usize];
            if write.weak_until == UNTIL_BACK {
                write.weak_until = now + SETTLE;
            }
        }
    }

    /// Files with writes that no sync has acknowledged: crashes may have taken those.
    pub fn unsynced(&self) -> BTreeSet<FileId> {
        self.volatile.iter().map(|id| self.writes[id.0 as usize].file).collect()
    }

    /// A file that is gone needs no account, once no power cut can bring it back.
    pub fn forget(&mut self, file: FileId, now: Picos) {
        if self.keeps_all {
            return;
        }
        self.going.push((now + UNDO, file));
        let gone = self.going.iter().take_while(|(at, _)| *at <= now).count();
        for (_, file) in self.going.drain(..gone) {
            self.files.remove(&file);
            let writes = &self.writes;
            self.volatile.retain(|id| writes[id.0 as usize].file != file);
        }
    }

    /// The manager's machine lost power: what was removed lately may be there again.
    pub fn power_cut(&mut self) {
        self.going.clear();
    }

    /// Checks `data` that a read through `reader` of `asked` bytes at `offset` returned. The error names the violation.
    pub fn check_read(
        &mut self,
        reader: &Reader,
        file: FileId,
        offset: u64,
        asked: u64,
        data: &[u8],
    ) -> Result<(), String> {
        if self.unchecked.contains(&file) {
            return Ok(());
        }
        self.stretches(file);
        let short = (data.len() as u64) < asked;
        let end = if short { u64::MAX } else { offset + asked };
        for (start, stop, ids) in stretches_in(&self.files[&file], offset, end) {
            let may = self.possible(ids, reader);
            let read = |at: u64| (at.saturating_sub(offset) as usize).min(data.len());
            if let Some(at) = self.wrong_place(&may, start, &data[read(start)..read(stop)]) {
                return Err(self.wrong_byte(file, at, data[read(at)], &may, ids, reader));
            }
            let absent = start.max(offset + data.len() as u64);
            let must_be = !may.iter().any(|id| self.writes[id.0 as usize].may_lack());
            if short && absent < stop && must_be {
                let (bytes, text) = (data.len(), self.describe(&may));
                return Err(format!(
                    "{file:?}: read of {asked} at {offset} ended after {bytes} bytes, but byte {absent} is {text}"
                ));
            }
        }
        let (bytes, least) = (data.len() as u64, self.least_size(file, reader));
        if short && offset + bytes < least {
            return Err(format!(
                "{file:?}: read of {asked} at {offset} ended after {bytes} bytes, but a truncation made it {least} long"
            ));
        }
        Ok(())
    }

    /// Whether the file may have this size for `reader`.
    pub fn check_size(&mut self, reader: &Reader, file: FileId, size: u64) -> Result<(), String> {
        if self.unchecked.contains(&file) {
            return Ok(());
        }
        self.stretches(file);
        let mut longest = 0;
        for (start, stop, ids) in stretches_in(&self.files[&file], 0, u64::MAX) {
            let may = self.possible(ids, reader);
            let lacks = |id: &WriteId| self.writes[id.0 as usize].may_lack();
            if stop > size && !may.iter().any(lacks) {
                let (at, text) = (start.max(size), self.describe(&may));
                return Err(format!("{file:?} has size {size}, but byte {at} is {text}"));
            }
            for write in may.iter().map(|id| &self.writes[id.0 as usize]) {
                longest = match write.kind {
                    Kind::Hole => longest,
                    // How long the file was before a hole was made, that does not say.
                    Kind::Data | Kind::Zeros | Kind::Punch => longest.max(stop),
                    Kind::Truncation => longest.max(write.start),
                };
            }
        }
        if size > longest {
            return Err(format!("{file:?} has size {size}, but nothing lies beyond {longest}"));
        }
        let least = self.least_size(file, reader);
        if size < least {
            return Err(format!("{file:?} has size {size}, but a truncation made it {least} long"));
        }
        Ok(())
    }

    /// Least size that truncations gave the file for `reader`: behind the last byte that was ever written they alone
    /// are known.
    fn least_size(&self, file: FileId, reader: &Reader) -> u64 {
        let (_, ids) = self.files[&file].last_key_value().expect("a stretch begins at 0");
        let possible = self.possible(ids, reader).into_iter();
        possible.map(|id| self.writes[id.0 as usize].start).min().unwrap_or(0)
    }

    /// The writes of a stretch that the reader may see: none that it must see came after them.
    fn possible(&self, ids: &[WriteId], reader: &Reader) -> Vec<WriteId> {
        let write = |id: &WriteId| &self.writes[id.0 as usize];
        let visible: Vec<&Write> =
            ids.iter().map(write).filter(|write| write.is_visible(reader)).collect();
        let possible = ids.iter().filter(|id| !visible.iter().any(|v| v.follows(write(id))));
        possible.copied().collect()
    }

    fn wrong_byte(
        &self,
        file: FileId,
        at: u64,
        byte: u8,
        may: &[WriteId],
        all: &[WriteId],
        reader: &Reader,
    ) -> String {
        let from =
            all.iter().filter(|id| self.value(**id, at) == byte).copied().collect::<Vec<_>>();
        format!(
            "{file:?}: byte {at} reads {byte:#04x} (like {}), but may be {} ({reader:?})",
            self.describe(&from),
            self.describe(may)
        )
    }

    fn describe(&self, ids: &[WriteId]) -> String {
        let texts = ids.iter().map(|id| {
            let Write { kind, mount, begin, ack, durable, .. } = &self.writes[id.0 as usize];
            let ack = ack.map_or("never".into(), |ack| ack.to_string());
            format!("{kind:?} {} of {mount} at {begin} acknowledged {ack} durable {durable}", id.0)
        });
        let texts: Vec<String> = texts.collect();
        if texts.is_empty() { "of no known write".into() } else { texts.join(" or ") }
    }
}

fn retain_visible(writes: &[Write], oldest: Picos, ids: &mut Vec<WriteId>) {
    let write = |id: &WriteId| &writes[id.0 as usize];
    let is_final =
        |write: &&Write| write.durable && write.published < oldest && write.weak_until < oldest;
    let last: Vec<&Write> = ids.iter().map(write).filter(is_final).collect();
    ids.retain(|id| !last.iter().any(|last| last.follows(write(id))));
}

fn split(stretches: &mut Stretches, at: u64) {
    let (start, ids) = stretches.range(..=at).next_back().expect("a stretch begins at 0");
    if *start != at {
        let ids = ids.clone();
        stretches.insert(at, ids);
    }
}

/// The stretches that touch `start..end`, cut to it at its beginning.
fn stretches_in(
    stretches: &Stretches,
    start: u64,
    end: u64,
) -> impl Iterator<Item = (u64, u64, &Vec<WriteId>)> {
    let first = *stretches.range(..=start).next_back().expect("a stretch begins at 0").0;
    stretches.range(first..end).map(move |(from, ids)| {
        let next = stretches.range(from + 1..).next().map_or(u64::MAX, |(next, _)| *next);
        ((*from).max(start), next, ids)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    pub(super) const FILE: FileId = FileId(5);

    pub(super) fn at(seconds: u64) -> Picos {
        Picos::seconds(seconds)
    }

    fn bytes(id: WriteId, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fill(id, offset, &mut bytes);
        bytes
    }

    pub(super) fn reader(mount: NodeId, opened: u64, begin: u64) -> Reader {
        Reader { mount, opened: at(opened), begin: at(begin) }
    }

    /// A check with a write of 100 bytes at 0 by A, begun at `begin`, acknowledged a second later.
    pub(super) fn written(check: &mut DataCheck, begin: u64) -> WriteId {
        let id = check.write_begins(A, FILE, 0, 100, at(begin));
        check.ends(id, true, at(begin + 1));
        id
    }

    #[test]
    fn a_mount_sees_its_own_last_write() {
        let mut check = DataCheck::default();
        let (old, new) = (written(&mut check, 1), written(&mut check, 3));
        let mut read = |data: &[u8]| check.check_read(&reader(A, 1, 5), FILE, 0, 100, data);
        assert_eq!(read(&bytes(new, 0, 100)), Ok(()));
        assert!(read(&bytes(old, 0, 100)).is_err());
        assert!(read(&[]).is_err(), "lost");
        assert!(read(&bytes(new, 0, 99)).is_err(), "short");
    }

    #[test]
    fn others_see_it_when_they_open_after_the_close() {
        let mut check = DataCheck::default();
        let id = written(&mut check, 1);
        let stale = |check: &mut DataCheck, opened| {
            check.check_read(&reader(B, opened, 9), FILE, 0, 100, &[]).is_ok()
        };
        assert!(stale(&mut check, 8), "not closed yet");
        check.published(A, FILE, 0, at(3), false, at(4));
        assert!(stale(&mut check, 3), "opened before the close");
        assert!(!stale(&mut check, 5));
        assert!(check.check_read(&reader(B, 5, 9), FILE, 0, 100, &bytes(id, 0, 100)).is_ok());
        assert!(check.check_size(&reader(B, 5, 9), FILE, 100).is_ok());
        assert!(check.check_size(&reader(B, 5, 9), FILE, 0).is_err(), "lost size update");
        assert!(check.check_size(&reader(B, 5, 9), FILE, 101).is_err());
    }

    #[test]
    fn concurrent_writes_leave_either() {
        let mut check = DataCheck::default();
        let one = check.write_begins(A, FILE, 0, 100, at(1));
        let two = check.write_begins(A, FILE, 50, 100, at(2));
        check.ends(one, true, at(3));
        check.ends(two, true, at(3));
        for id in [one, two] {
            let data = [bytes(one, 0, 50), bytes(id, 50, 50), bytes(two, 100, 50)].concat();
            assert_eq!(check.check_read(&reader(A, 4, 4), FILE, 0, 200, &data), Ok(()));
        }
        let data = [bytes(two, 0, 50), bytes(two, 50, 100)].concat();
        assert!(check.check_read(&reader(A, 4, 4), FILE, 0, 200, &data).is_err());
    }

    #[test]
    fn only_what_was_synced_must_survive_the_death_of_client_and_server() {
        for durable in [false, true] {
            let mut check = DataCheck::default();
            written(&mut check, 1);
            check.published(A, FILE, 0, at(3), durable, at(4));
            check.mount_died(A, at(5));
            check.server_died(|mount| mount != A);
            check.servers_back(at(6));
            let lost = check.check_read(&reader(B, 100, 100), FILE, 0, 100, &[]);
            assert_eq!(lost.is_err(), durable);
        }
    }

    #[test]
    fn what_a_living_client_closed_comes_back_after_a_while() {
        let mut check = DataCheck::default();
        written(&mut check, 1);
        check.published(A, FILE, 0, at(3), false, at(4));
        check.server_died(|_| true);
        check.servers_back(at(6));
        let mut lost = |time| check.check_read(&reader(B, time, time), FILE, 0, 100, &[]).is_ok();
        assert!(lost(7));
        assert!(!lost(60));
    }

    #[test]
    fn a_truncation_takes_what_was_there() {
        let mut check = DataCheck::default();
        let id = written(&mut check, 1);
        let cut = check.truncation_begins(A, FILE, 10, at(3));
        check.ends(cut, true, at(4));
        let mut read = |data: &[u8]| check.check_read(&reader(A, 5, 5), FILE, 0, 100, data);
        assert_eq!(read(&bytes(id, 0, 10)), Ok(()));
        assert!(read(&bytes(id, 0, 11)).is_err());
        assert_eq!(check.check_size(&reader(A, 5, 5), FILE, 10), Ok(()));
        assert!(check.check_size(&reader(A, 5, 5), FILE, 100).is_err());
    }

    #[test]
    fn a_truncation_makes_a_file_longer() {
        let mut check = DataCheck::default();
        let id = written(&mut check, 1);
        let longer = check.truncation_begins(A, FILE, 150, at(3));
        assert_eq!(check.check_size(&reader(A, 4, 4), FILE, 100), Ok(()), "not acknowledged");
        check.ends(longer, true, at(5));
        assert!(check.check_size(&reader(A, 6, 6), FILE, 100).is_err());
        assert_eq!(check.check_size(&reader(A, 6, 6), FILE, 150), Ok(()));
        let whole = [bytes(id, 0, 100), vec![0; 50]].concat();
        let mut read = |data: &[u8]| check.check_read(&reader(A, 6, 6), FILE, 0, 200, data);
        assert!(read(&whole[..120]).is_err());
        assert_eq!(read(&whole), Ok(()));
    }

    #[test]
    fn old_writes_are_dropped_once_a_synced_one_followed() {
        let mut check = DataCheck::default();
        for n in 0..200 {
            written(&mut check, 10 * n + 1);
            check.published(A, FILE, 0, at(10 * n + 3), true, at(10 * n + 4));
            check.set_oldest(at(10 * n + 5));
        }
        let most = check.files[&FILE].values().map(Vec::len).max().unwrap();
        assert!(most < 40, "{most} writes are kept for one stretch");
        assert!(check.volatile.is_empty());
    }
}
