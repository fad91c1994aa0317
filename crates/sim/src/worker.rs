//! One simulated application: it sends its mount one file operation after the other and has every answer checked.
//!
//! It owns a directory, where it alone changes names, and shares some files with all other workers of all mounts. Its
//! next request is drawn from its own random stream and from what the checks know.

mod audit;
mod choice;
mod failure;
mod holes;

use crate::data_check::{DataCheck, Reader, Sought, WriteId, fill};
use crate::experiment::Shape;
use crate::name_check::{Change, NameCheck, Value};
use crate::queue::Picos;
use crate::random::Random;
use audit::Audit;
use endpoint::Frames;
use node::rings::{DirectoryEntry, FileOp, FileReply, Handle, Name};
use std::collections::BTreeSet;
use wire::limits::PAYLOAD_BYTES_MAX;
use wire::{Attr, Errno, FileId, FileKind, NodeId, SetAttr};

/// Longest pause between two operations.
const THINK_US_MAX: u64 = 40_000;
/// Between two operations of an audit.
const AUDIT_PAUSE: Picos = Picos::micros(100);
/// Time that a worker waits after an unknown outcome, until the operation can no more take effect.
pub const LINGER: Picos = Picos::seconds(30);

/// State that all workers share: the checks and the shared files.
#[derive(Debug, Default)]
pub struct Model {
    /// Of data.
    pub data: DataCheck,
    /// Of names.
    pub names: NameCheck,
    /// Violations so far.
    pub violations: Vec<String>,
    /// The names are those of a backup: what came to the root directory later is not there.
    pub restored: bool,
    /// The names are lost: an audit reads these files, which are back and whole.
    pub salvaged: Option<Vec<FileId>>,
    /// Files all of whose objects are there, though names are those of a backup: none of them may be refused as lost.
    pub whole: BTreeSet<FileId>,
    /// Whether something is or was lately wrong with the world, so that operations may fail.
    pub troubled: bool,
    /// Operations that succeeded.
    pub succeeded: u64,
    /// Operations that failed as they may in trouble.
    pub failed: u64,
    /// When a disk was full last: what it did not take may be told late, when the file is synced or closed next, or
    /// by the next write through the same handle.
    full_until: Option<Picos>,
}

impl Model {
    /// A disk is full, or was until now.
    pub fn disk_full(&mut self, now: Picos) {
        self.full_until = Some(now);
        self.data.disk_full();
    }
}

#[derive(Debug)]
struct Open {
    file: FileId,
    handle: Handle,
    opened: Picos,
    /// Operations until it is closed.
    left: u32,
}

/// The operation under way.
#[derive(Debug)]
enum InFlight {
    Home,
    Find { directory: FileId, name: Name },
    Create { name: Name },
    Names { change: Change, may_fail: Errno },
    Open { file: FileId },
    Write { id: WriteId, bytes: u64 },
    Read { offset: u64, asked: u64 },
    Size { file: FileId },
    Truncate { id: WriteId },
    Zero { id: WriteId },
    Seek((Sought, u64)),
    Hint,
    Fsync,
    Flush,
    Release,
    OpenListing,
    Listing { handle: Handle, cookie: u64, names: Vec<(Name, FileId)> },
    CloseListing { handle: Handle },
    SyncHome,
}

/// Most bytes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Before the last write of a file.
    file: u64,
    write: u64,
    read: u64,
    /// Of an audit's reads.
    audit: u64,
}

impl Sizes {
    fn of(shape: &Shape) -> Sizes {
        let file = u64::from(shape.file_kib) << 10;
        let most = PAYLOAD_BYTES_MAX as u64;
        Sizes { file, write: file * 3 / 16, read: (file / 4).min(most), audit: file.min(most) }
    }
}

/// The worker.
#[derive(Debug)]
pub struct Worker {
    /// The mount it works on.
    pub mount: NodeId,
    number: usize,
    sizes: Sizes,
    hints: bool,
    random: Random,
    home: Option<FileId>,
    /// The same when a power cut has taken it: its names are known by the mount that made them.
    last_home: Option<FileId>,
    /// When it was made or found.
    home_since: Picos,
    shared: Vec<Option<FileId>>,
    open: Option<Open>,
    asked: Option<(Picos, InFlight)>,
    /// The next request, if it is part of the one before.
    follow: Option<InFlight>,
    /// Power cuts of managers when the listing under way began.
    listed_since: u64,
    closing: bool,
    last: Last,
    audit: Option<Audit>,
}

/// The last phase: everything is read once more.
#[derive(Debug, Default)]
struct Last {
    begun: bool,
    /// Files to read, once they are known.
    left: Option<Vec<FileId>>,
    /// Offset of the next read in the file that is open.
    offset: u64,
}

fn name(text: String) -> Name {
    text.into_bytes().into()
}

fn shared_name(index: usize) -> Name {
    name(format!("shared{index}"))
}

/// Whether an error leaves the outcome of the operation unknown.
fn is_unknown(errno: Errno) -> bool {
    let answers = [
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::ENOTEMPTY,
        Errno::ENOTDIR,
        Errno::EISDIR,
        Errno::EINVAL,
        Errno::EBADF,
        Errno::ENAMETOOLONG,
        Errno::EACCES,
        Errno::EPERM,
    ];
    !answers.contains(&errno)
}

impl Worker {
    /// The `number`th worker of the run, on this mount.
    pub fn new(seed: u64, number: usize, mount: NodeId, shape: &Shape) -> Worker {
        Worker {
            mount,
            number,
            sizes: Sizes::of(shape),
            hints: shape.hints,
            random: Random::new(seed, &format!("worker {number}")),
            home: None,
            last_home: None,
            home_since: Picos::ZERO,
            shared: vec![None; shape.shared_files.into()],
            open: None,
            asked: None,
            follow: None,
            listed_since: 0,
            closing: false,
            last: Last::default(),
            audit: None,
        }
    }

    /// When the operation under way began.
    pub fn waits_since(&self) -> Option<Picos> {
        self.asked.as_ref().map(|(begun, _)| *begun)
    }

    /// The change of names under way.
    pub fn changes(&self) -> Option<Change> {
        match &self.asked.as_ref()?.1 {
            InFlight::Create { name } => {
                let home = self.parent_of(name);
                Some(Change(vec![(home, name.clone(), Value::Something)]))
            }
            InFlight::Names { change, .. } => Some(change.clone()),
            _ => None,
        }
    }

    /// The oldest time that anything of this worker can look back to.
    pub fn looks_back_to(&self, now: Picos) -> Picos {
        let opened = self.open.as_ref().map_or(now, |open| open.opened);
        opened.min(self.waits_since().unwrap_or(now))
    }

    /// The operation under way, for people.
    pub fn describe(&self) -> String {
        let asked = self.asked.as_ref().map(|(begun, asked)| format!("{asked:?} since {begun}"));
        format!("worker {} on {}: {}", self.number, self.mount, asked.unwrap_or("idle".into()))
    }

    /// How long to think before the next operation.
    pub fn think(&mut self) -> Picos {
        Picos::micros(self.random.below(THINK_US_MAX))
    }

    /// From now on only read everything once more and end.
    pub fn finish(&mut self) {
        self.last.begun = true;
    }

    /// Whether the last phase is over. Others may wait for a shared file that a power cut took and that this one
    /// notices only now.
    pub fn is_finished(&self) -> bool {
        if let Some(has_audited) = self.has_audited() {
            return has_audited;
        }
        let read_all = self.last.left.as_ref().is_some_and(|left| left.is_empty());
        let knows_all = self.shared.iter().all(Option::is_some);
        read_all
            && knows_all
            && self.open.is_none()
            && self.asked.is_none()
            && self.follow.is_none()
    }

    /// The mount died: what was under way has an unknown outcome, what was open is gone.
    pub fn mount_died(&mut self, model: &mut Model, now: Picos) {
        if let Some((_, asked)) = self.asked.take() {
            self.outcome_unknown(asked, model, now);
        }
        self.last_home.into_iter().for_each(|home| model.names.mount_died(home));
        self.open = None;
        self.follow = None;
        self.closing = false;
    }

    /// The next operation. `None`: nothing to do now, ask again after a while.
    pub fn next(&mut self, model: &mut Model, frames: &Frames, now: Picos) -> Option<FileOp> {
        assert!(self.asked.is_none(), "one operation at a time");
        let (op, asked) = self.choose(model, frames, now)?;
        self.asked = Some((now, asked));
        Some(op)
    }

    /// The operation under way ended. How long to wait before the next.
    pub fn done(
        &mut self,
        result: Result<FileReply, Errno>,
        model: &mut Model,
        now: Picos,
    ) -> Picos {
        let Some((begun, asked)) = self.asked.take() else {
            model.violations.push(format!("{now} worker {}: an answer to nothing", self.number));
            return Picos::ZERO;
        };
        let result = holes::found_nothing(&asked, result);
        if self.audit.is_some() {
            if let Err(wrong) = self.audited(asked, result, begun, model, now) {
                model.violations.push(format!("{now} worker {}: {wrong}", self.number));
            }
            return AUDIT_PAUSE;
        }
        match result {
            Ok(reply) => {
                model.succeeded += 1;
                if let Err(wrong) = self.succeeded(asked, reply, begun, model, now) {
                    model.violations.push(format!("{now} worker {}: {wrong}", self.number));
                }
                self.think()
            }
            Err(errno) if is_unknown(errno) => self.failed(asked, errno, model, now),
            Err(errno) => {
                if let Err(wrong) = self.refused(asked, errno, model, now) {
                    model.violations.push(format!("{now} worker {}: {wrong}", self.number));
                }
                self.think()
            }
        }
    }

    fn at_home(&mut self, home: FileId, since: Picos) {
        (self.home, self.home_since) = (Some(home), since);
        self.last_home = Some(home);
    }

    fn parent_of(&self, name: &Name) -> FileId {
        let shared = name.starts_with(b"shared");
        if shared { FileId::ROOT } else { self.home.unwrap_or(FileId::ROOT) }
    }

    fn reader(&self, begin: Picos) -> Reader {
        let opened = self.open.as_ref().map_or(begin, |open| open.opened);
        Reader { mount: self.mount, opened, begin }
    }

    fn opened(&mut self, file: FileId, handle: Handle, opened: Picos) {
        let left = self.random.within(1, 24) as u32;
        self.open = Some(Open { file, handle, opened, left });
        self.closing = false;
        self.last.offset = 0;
    }

    /// Takes a good answer into the model; an error says what is wrong with it.
    fn succeeded(
        &mut self,
        asked: InFlight,
        reply: FileReply,
        begun: Picos,
        model: &mut Model,
        now: Picos,
    ) -> Result<(), String> {
        match (asked, reply) {
            (InFlight::Home, FileReply::Entry(attr)) => self.at_home(attr.file, begun),
            (InFlight::Find { directory, name }, FileReply::Entry(attr)) => {
                return self.found(directory, &name, attr.file, model, now);
            }
            (InFlight::Create { name }, FileReply::Created { attr, handle }) => {
                self.created(name, &attr, model, now)?;
                self.opened(attr.file, handle, begun);
            }
            (InFlight::Names { change, may_fail: Errno(0) }, reply) => {
                self.changed(change, &reply, model, now);
            }
            (InFlight::Open { file }, FileReply::Opened { handle, .. }) => {
                self.opened(file, handle, begun);
            }
            (InFlight::Write { id, bytes }, FileReply::Written(written)) => {
                model.data.ends(id, u64::from(written) == bytes, now);
            }
            (InFlight::Read { offset, asked }, FileReply::Data { frames, bytes }) => {
                let mut data = Vec::with_capacity(bytes);
                frames.iter().for_each(|frame| data.extend_from_slice(frame));
                data.truncate(bytes);
                let Some(open) = &self.open else { return Ok(()) };
                model.data.check_read(&self.reader(begun), open.file, offset, asked, &data)?;
            }
            (InFlight::Size { file }, FileReply::Attr(attr)) => {
                model.data.check_size(&self.reader(begun), file, attr.size)?;
            }
            (InFlight::Truncate { id }, FileReply::Attr(_))
            | (InFlight::Zero { id }, FileReply::Done) => model.data.ends(id, true, now),
            (InFlight::Seek(what), FileReply::Offset(at)) => self.sought(what, at, begun, model)?,
            (InFlight::Fsync, FileReply::Done) => {
                self.published(true, begun, model, now);
                if let (Some(home), Some(open)) = (self.home, &self.open) {
                    model.names.file_synced(home, open.file);
                }
            }
            (InFlight::Flush, FileReply::Done) => {
                self.published(false, begun, model, now);
                self.closing = true;
            }
            (InFlight::Release, FileReply::Done) => self.open = None,
            (InFlight::OpenListing, FileReply::Opened { handle, .. }) => {
                self.listed_since = model.names.cuts();
                self.follow = Some(InFlight::Listing { handle, cookie: 0, names: Vec::new() });
            }
            (InFlight::Listing { handle, names, .. }, FileReply::Entries { entries, end }) => {
                return self.listed(handle, names, entries, end, model);
            }
            (InFlight::Hint, FileReply::Offset(_))
            | (InFlight::CloseListing { .. }, FileReply::Done) => {}
            (InFlight::SyncHome, FileReply::Done) => {
                self.home.into_iter().for_each(|home| model.names.synced(home));
            }
            (asked, reply) => return Err(format!("{asked:?} is answered by {reply:?}")),
        }
        Ok(())
    }

    fn listed(
        &mut self,
        handle: Handle,
        mut names: Vec<(Name, FileId)>,
        entries: Vec<DirectoryEntry>,
        end: bool,
        model: &mut Model,
    ) -> Result<(), String> {
        let last = entries.last().map(|entry| entry.cookie);
        let others = entries.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
        names.extend(others.map(|entry| (entry.name, entry.file)));
        match (end, last) {
            (false, Some(cookie)) => {
                self.follow = Some(InFlight::Listing { handle, cookie, names });
                Ok(())
            }
            (false, None) => Err("an empty page of a directory that goes on".into()),
            (true, _) => {
                self.follow = Some(InFlight::CloseListing { handle });
                let home = self.home.expect("the directory that is listed");
                model.names.listed_since(self.listed_since, home, &names)
            }
        }
    }

    fn found(
        &mut self,
        directory: FileId,
        name: &Name,
        file: FileId,
        model: &mut Model,
        now: Picos,
    ) -> Result<(), String> {
        if let Some(index) = (0..self.shared.len()).find(|index| shared_name(*index) == *name) {
            self.shared[index] = Some(file);
            // Found again in the last phase: read with the others.
            self.last.left.iter_mut().for_each(|left| left.push(file));
            model.names.learn(FileId::ROOT, name, Value::File(file));
            return Ok(());
        }
        if directory == FileId::ROOT {
            self.at_home(file, now);
            return Ok(());
        }
        model.names.saw(directory, name, Some(file))
    }

    fn created(
        &mut self,
        name: Name,
        attr: &Attr,
        model: &mut Model,
        now: Picos,
    ) -> Result<(), String> {
        let file = attr.file;
        // A shared file's creation may be answered late, after others wrote to it.
        if attr.kind != FileKind::Regular || (attr.size != 0 && !name.starts_with(b"shared")) {
            return Err(format!("a new file is {attr:?}"));
        }
        if let Some(index) = (0..self.shared.len()).find(|index| shared_name(*index) == name) {
            self.shared[index] = Some(file);
            model.names.learn(FileId::ROOT, &name, Value::File(file));
            return Ok(());
        }
        let home = self.home.expect("the home comes first");
        let free = model.names.may(home, &name).contains(&Value::Nothing);
        model.names.succeeded(&Change(vec![(home, name.clone(), Value::File(file))]), now);
        let name = String::from_utf8_lossy(&name);
        if free { Ok(()) } else { Err(format!("{name} was made, but it was there")) }
    }

    /// A change of names succeeded: directories that were made get their ids, files without a name are forgotten.
    fn changed(&mut self, mut change: Change, reply: &FileReply, model: &mut Model, now: Picos) {
        let mut gone = Vec::new();
        for (directory, name, value) in &mut change.0 {
            if let FileReply::Entry(attr) = reply {
                *value = Value::File(attr.file);
            }
            // A file that is only one of several possible values may also be elsewhere by now.
            if let [one] = model.names.may(*directory, name) {
                gone.push(*one);
            }
        }
        gone.retain(|old| change.0.iter().all(|(_, _, value)| value != old));
        for value in gone {
            if let Value::File(file) = value {
                model.data.forget(file, now);
            }
        }
        model.names.succeeded(&change, now);
    }

    fn published(&mut self, durable: bool, begun: Picos, model: &mut Model, now: Picos) {
        if let Some(open) = &self.open {
            let (file, handle) = (open.file, open.handle.0);
            model.data.published(self.mount, file, handle, begun, durable, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::HeapRegion;

    /// A worker in the last phase that has just asked for what it read last, a shared file. A power cut came later
    /// than its home was made, so either may be what is gone.
    fn opens_a_shared_file_after_a_power_cut(number: usize) -> (Worker, Model) {
        let shape = Shape { shared_files: 2, ..Shape::default() };
        let mut worker = Worker::new(1, number, NodeId(5), &shape);
        let mut model = Model::default();
        worker.at_home(FileId(3), Picos::seconds(1));
        worker.shared = vec![Some(FileId(5)), Some(FileId(6))];
        model.names.note_power_cut(Picos::seconds(2));
        worker.finish();
        worker.last.left = Some(Vec::new());
        worker.asked = Some((Picos::seconds(60), InFlight::Open { file: FileId(6) }));
        let pause = worker.done(Err(Errno::ESTALE), &mut model, Picos::seconds(60));
        assert_eq!((pause, &model.violations), (LINGER, &Vec::new()));
        (worker, model)
    }

    fn ask(worker: &mut Worker, model: &mut Model) -> FileOp {
        let frames = Frames::new(HeapRegion::new(1));
        worker.next(model, &frames, Picos::seconds(90)).expect("there is something to ask")
    }

    #[test]
    fn a_shared_file_that_a_power_cut_took_is_made_again_in_the_last_phase() {
        let (mut worker, mut model) = opens_a_shared_file_after_a_power_cut(0);
        assert!(!worker.is_finished(), "the others wait for the file");
        let op = ask(&mut worker, &mut model);
        assert!(matches!(&op, FileOp::Create { name, .. } if *name == shared_name(1)), "{op:?}");
    }

    #[test]
    fn a_shared_file_that_is_found_again_in_the_last_phase_is_read() {
        let (mut worker, mut model) = opens_a_shared_file_after_a_power_cut(1);
        let op = ask(&mut worker, &mut model);
        assert!(matches!(&op, FileOp::Lookup { name, .. } if *name == shared_name(1)), "{op:?}");
        let attr = wire::Attr { file: FileId(7), ..wire::Attr::default() };
        worker.done(Ok(FileReply::Entry(attr)), &mut model, Picos::seconds(90));
        assert!(!worker.is_finished(), "the file is not read yet");
        let op = ask(&mut worker, &mut model);
        assert!(matches!(op, FileOp::Open { file: FileId(7), .. }), "{op:?}");
    }

    #[test]
    fn a_home_that_a_power_cut_took_is_looked_for_when_a_file_in_it_is_gone() {
        let (mut worker, mut model) = opens_a_shared_file_after_a_power_cut(1);
        worker.shared[1] = Some(FileId(7));
        worker.asked = Some((Picos::seconds(90), InFlight::Open { file: FileId(8) }));
        worker.done(Err(Errno::ESTALE), &mut model, Picos::seconds(90));
        assert_eq!((worker.home, &model.violations), (None, &Vec::new()));
    }
}
