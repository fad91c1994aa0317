//! A directory that is a cache of a foreign NFS server's, in a simulated cluster: programs on the mounts read it, under
//! every fault, while its files change at the origin, and that is away or started anew.
//!
//! ```text
//!   reader ─► mount ─► importer ─ link.rs: delay, loss ─► origin.rs
//!                │        ▼
//!                └──► I/O servers
//! ```
//!
//! Checked: what is looked up, listed, read and told of a file is of a version that the origin had since the attribute
//! time before the open began, no read is of two versions, and in the end, when all is well again, everything is read,
//! and is what the origin has.

mod importer;
mod link;
mod origin;

pub use importer::import;
pub use origin::{Origin, SharedOrigin};

use crate::experiment::ImportShape;
use crate::queue::Picos;
use crate::random::Random;
use crate::trouble::{TICK, strikes};
use crate::world::World;
use node::rings::{Caller, FileDone, FileOp, FileReply, FileRequest, Handle};
use origin::name_of;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, NodeId};

/// The directory in the volume's root.
pub const DIRECTORY: &[u8] = b"imported";
/// How long attributes of the origin's are believed, by all between it and a program.
pub const ATTRIBUTES: Duration = Duration::from_secs(3);
/// Timers and operations of this module have this bit.
const MARK: u64 = 1 << 59;
/// Programs on each mount.
const READERS: usize = 2;
/// Longest pause between two visits.
const PAUSE_US_MAX: u64 = 60_000;
/// Longest time that the origin is away.
const AWAY_MS_MAX: u64 = 15_000;
/// Operations may fail for so long after it was: a session waits before it connects again, and an importer before it
/// asks.
const RECOVERY: Picos = Picos::seconds(40);
/// Bytes of a read.
const READ_BYTES: u64 = 96 << 10;
const LISTING_BYTES: u32 = 4 << 10;

/// The file that a program looks at, since when, and where it is in the volume.
#[derive(Clone, Copy, Debug)]
struct Visit {
    name: usize,
    begun: Picos,
    directory: FileId,
    file: FileId,
    /// Where it reads next, and how often.
    offset: u64,
    left: u32,
}

#[derive(Clone, Debug)]
enum Step {
    Directory(Visit),
    Name(Visit),
    Open(Visit),
    Read(Visit, Handle),
    Close,
    OpenListing(Visit),
    List(Visit, Handle, Vec<Vec<u8>>),
}

/// A program on a mount.
struct Reader {
    mount: NodeId,
    boot: u32,
    random: Random,
    asked: Option<(u64, Step)>,
    /// The files that are still to be read in the end.
    last: Option<Vec<usize>>,
}

/// All programs, and their origin.
pub struct Importing {
    shape: ImportShape,
    origin: SharedOrigin,
    readers: Vec<Reader>,
    random: Random,
    back_at: Option<Picos>,
    troubled_until: Picos,
    /// The directory was found.
    is_there: bool,
    is_finishing: bool,
    next: u64,
    calls: (u64, u64),
    violations: Vec<String>,
}

impl Importing {
    /// Programs on these mounts.
    pub fn new(
        seed: u64,
        shape: ImportShape,
        mounts: &[NodeId],
        origin: SharedOrigin,
    ) -> Importing {
        let all = mounts.iter().flat_map(|mount| std::iter::repeat_n(*mount, READERS));
        origin.borrow_mut().begin(seed);
        let reader = |(number, mount): (usize, NodeId)| Reader {
            mount,
            boot: 0,
            random: Random::new(seed, &format!("reader {number}")),
            asked: None,
            last: None,
        };
        Importing {
            shape,
            origin,
            readers: all.enumerate().map(reader).collect(),
            random: Random::new(seed, "importing"),
            back_at: None,
            troubled_until: Picos::ZERO,
            is_there: false,
            is_finishing: false,
            next: MARK,
            calls: (0, 0),
            violations: Vec::new(),
        }
    }

    /// Whether a timer, or an operation, of this number is of this module.
    pub fn is_own(number: u64) -> bool {
        number & !(MARK - 1) == MARK
    }

    /// Operations that succeeded, and that failed.
    pub fn calls(&self) -> (u64, u64) {
        self.calls
    }

    /// Violations since they were taken last.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// Sets every program going.
    pub fn start(&self, world: &mut World) {
        (0..self.readers.len()).for_each(|reader| world.set_timer(TICK, MARK | reader as u64));
    }

    /// A tick of the run, during which operations of a cluster may fail until then.
    pub fn tick(&mut self, world: &mut World, troubled_until: Picos) {
        let now = world.now();
        self.troubled_until = self.troubled_until.max(troubled_until);
        if self.back_at.is_some_and(|at| at <= now) {
            self.come_back(world);
        }
        if self.readers.iter().any(|reader| reader.last.is_some()) {
            return;
        }
        if strikes(&mut self.random, self.shape.changes_per_minute) {
            let what = self.origin.borrow_mut().change(now);
            world.trace_mut().line(now, NodeId(0), "origin", format_args!("{what}"));
        }
        if strikes(&mut self.random, self.shape.restarts_per_minute) {
            self.origin.borrow_mut().boot += 1;
            self.trouble(now, world, "starts anew");
        }
        if self.back_at.is_none() && strikes(&mut self.random, self.shape.aways_per_minute) {
            let until = now + Picos::millis(self.random.within(1, AWAY_MS_MAX));
            self.origin.borrow_mut().is_away = true;
            self.back_at = Some(until);
            self.trouble(until, world, "is away");
        }
        let oldest = self.readers.iter().filter_map(Reader::begun).min();
        let oldest = before(oldest.unwrap_or(now).min(now));
        self.origin.borrow_mut().forget(oldest);
    }

    fn trouble(&mut self, until: Picos, world: &mut World, what: &str) {
        self.troubled_until = self.troubled_until.max(until + RECOVERY);
        let now = world.now();
        world.trace_mut().line(now, NodeId(0), "origin", format_args!("{what}"));
    }

    fn come_back(&mut self, world: &mut World) {
        self.back_at = None;
        self.origin.borrow_mut().is_away = false;
        self.trouble(world.now(), world, "is back");
    }

    /// The work is over: nothing changes, and the origin is there.
    pub fn rest(&mut self, world: &mut World) {
        self.come_back(world);
        self.readers.iter_mut().for_each(|reader| reader.last = Some(Vec::new()));
    }

    /// From now on everything is read once more.
    pub fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finishing, true) {
            return;
        }
        for reader in &mut self.readers {
            reader.last = Some((0..self.shape.files.into()).collect());
        }
        self.troubled_until = Picos::ZERO;
    }

    /// Whether it was.
    pub fn is_finished(&self) -> bool {
        let is_finished = |reader: &Reader| {
            reader.asked.is_none() && reader.last.as_ref().is_some_and(Vec::is_empty)
        };
        self.readers.iter().all(is_finished)
    }

    /// Operations under way, for people.
    pub fn unfinished(&self) -> Vec<String> {
        let describe = |reader: &Reader| format!("reader on {}: {:?}", reader.mount, reader.asked);
        self.readers.iter().map(describe).collect()
    }

    /// A timer of this module is due.
    pub fn handle_timer(&mut self, number: u64, world: &mut World) {
        let reader = (number & !MARK) as usize;
        self.visit(reader, world);
        let pause = Picos::micros(self.readers[reader].random.below(PAUSE_US_MAX));
        world.set_timer(world.now() + pause, number);
    }

    /// A program begins to look at a file, or at the listing, unless it does in this incarnation of its mount.
    fn visit(&mut self, reader: usize, world: &mut World) {
        let it = &mut self.readers[reader];
        let boot = world.machine(it.mount).boot;
        if it.asked.is_some() && it.boot == boot || !world.is_up(it.mount) {
            return;
        }
        it.boot = boot;
        let name = match &it.last {
            Some(left) => left.last().copied(),
            None => Some(it.random.index(self.shape.files.into())),
        };
        let Some(name) = name else {
            it.asked = None;
            return;
        };
        let (directory, file) = (FileId::ROOT, FileId::ROOT);
        let left = it.random.within(1, 4) as u32;
        let visit = Visit { name, begun: world.now(), directory, file, offset: 0, left };
        let op = FileOp::Lookup { parent: FileId::ROOT, name: DIRECTORY.into() };
        self.ask(reader, Step::Directory(visit), op, world);
    }

    fn ask(&mut self, reader: usize, step: Step, op: FileOp, world: &mut World) {
        self.next += 1;
        let (front, it) = (self.next, &mut self.readers[reader]);
        let now = world.now();
        world.trace_mut().line(now, it.mount, "ask", format_args!("reader {reader} {op:?}"));
        let request = FileRequest { front, caller: Caller::default(), op };
        it.asked = world.ask(it.mount, request).is_ok().then_some((front, step));
    }

    /// An operation of a program has ended.
    pub fn handle_done(&mut self, done: FileDone, world: &mut World) {
        let is_asked = |reader: &Reader| reader.asked.as_ref().map(|it| it.0) == Some(done.front);
        // Others are of an incarnation of a mount that is no more.
        let Some(reader) = self.readers.iter().position(is_asked) else { return };
        let (_, step) = self.readers[reader].asked.take().expect("as was just seen");
        let (now, told) = (world.now(), format!("{:?}", done.result.as_ref().err()));
        let mount = self.readers[reader].mount;
        world.trace_mut().line(now, mount, "ask", format_args!("reader {reader}: {told}"));
        let judged = match done.result {
            Ok(reply) => self.succeeded(reader, step.clone(), reply, world),
            Err(errno) => self.failed(reader, &step, errno, now),
        };
        if let Err(what) = judged {
            self.violations.push(format!("{now} a program on {mount}: {step:?}: {what}"));
        }
    }

    fn succeeded(
        &mut self,
        reader: usize,
        step: Step,
        reply: FileReply,
        world: &mut World,
    ) -> Result<(), String> {
        self.calls.0 += 1;
        match (step, reply) {
            (Step::Directory(visit), FileReply::Entry(attr)) => {
                self.is_there = true;
                let visit = Visit { directory: attr.file, begun: world.now(), ..visit };
                let it = &mut self.readers[reader];
                if it.last.is_none() && it.random.below(8) == 0 {
                    let op = FileOp::OpenDirectory { file: visit.directory };
                    self.ask(reader, Step::OpenListing(visit), op, world);
                } else {
                    let name = name_of(visit.name).into_bytes().into();
                    let op = FileOp::Lookup { parent: visit.directory, name };
                    self.ask(reader, Step::Name(visit), op, world);
                }
            }
            (Step::Name(visit), FileReply::Entry(attr)) => {
                let may = self.origin.borrow().since(visit.name, visit.since());
                if !may.iter().flatten().any(|version| version.size == attr.size) {
                    return Err(format!("its size is {}, of {may:?}", attr.size));
                }
                let visit = Visit { file: attr.file, ..visit };
                let op = FileOp::Open { file: visit.file, flags: 0 };
                self.ask(reader, Step::Open(visit), op, world);
            }
            (Step::Open(visit), FileReply::Opened { handle, .. }) => {
                self.read(reader, visit, handle, world);
            }
            (Step::Read(visit, handle), FileReply::Data { frames, bytes }) => {
                let mut data: Vec<u8> = frames.iter().flat_map(|frame| frame.to_vec()).collect();
                data.truncate(bytes);
                return self.was_read(reader, visit, handle, &data, world);
            }
            (Step::OpenListing(visit), FileReply::Opened { handle, .. }) => {
                self.list(reader, visit, (handle, 0), Vec::new(), world);
            }
            (Step::List(visit, handle, mut names), FileReply::Entries { entries, end }) => {
                let cookie = entries.last().map_or(0, |entry| entry.cookie);
                let own = entries.into_iter().filter(|it| !matches!(&*it.name, b"." | b".."));
                names.extend(own.map(|entry| entry.name.to_vec()));
                if end {
                    let op = FileOp::ReleaseDirectory { file: visit.directory, handle };
                    self.ask(reader, Step::Close, op, world);
                    return self.origin.borrow().check_listing(visit.since(), &names);
                }
                self.list(reader, visit, (handle, cookie), names, world);
            }
            (Step::Close, FileReply::Done) => {}
            (_, reply) => return Err(format!("answered by {reply:?}")),
        }
        Ok(())
    }

    fn was_read(
        &mut self,
        reader: usize,
        visit: Visit,
        handle: Handle,
        data: &[u8],
        world: &mut World,
    ) -> Result<(), String> {
        let file = (visit.name, visit.since());
        self.origin.borrow().check_bytes(file, (visit.offset, READ_BYTES), data)?;
        let is_end = (data.len() as u64) < READ_BYTES;
        let goes_on = match &mut self.readers[reader].last {
            Some(left) => {
                if is_end {
                    left.pop();
                }
                !is_end
            }
            None => visit.left > 1,
        };
        if goes_on {
            let offset = visit.offset + data.len() as u64;
            let visit = Visit { offset, left: visit.left.saturating_sub(1), ..visit };
            self.read(reader, visit, handle, world);
        } else {
            let op = FileOp::Release { file: visit.file, handle, owner: None };
            self.ask(reader, Step::Close, op, world);
        }
        Ok(())
    }

    /// Reads in order in the end, before that anywhere.
    fn read(&mut self, reader: usize, mut visit: Visit, handle: Handle, world: &mut World) {
        let it = &mut self.readers[reader];
        if it.last.is_none() {
            visit.offset = it.random.below(u64::from(self.shape.file_kib) << 10);
        }
        let (file, offset, bytes) = (visit.file, visit.offset, READ_BYTES as u32);
        let op = FileOp::Read { file, handle, offset, bytes };
        self.ask(reader, Step::Read(visit, handle), op, world);
    }

    fn list(
        &mut self,
        reader: usize,
        visit: Visit,
        (handle, cookie): (Handle, u64),
        names: Vec<Vec<u8>>,
        world: &mut World,
    ) {
        let (file, bytes, with_attributes) = (visit.directory, LISTING_BYTES, true);
        let op = FileOp::ReadDirectory { file, handle, cookie, bytes, with_attributes };
        self.ask(reader, Step::List(visit, handle, names), op, world);
    }

    /// The error names the violation: without trouble only what has changed since may be gone.
    fn failed(
        &mut self,
        reader: usize,
        step: &Step,
        errno: Errno,
        now: Picos,
    ) -> Result<(), String> {
        self.calls.1 += 1;
        let is_end = self.readers[reader].last.as_ref().is_some_and(|left| !left.is_empty());
        let is_troubled = now < self.troubled_until;
        let origin = self.origin.borrow();
        let (Step::Directory(visit)
        | Step::Name(visit)
        | Step::Open(visit)
        | Step::Read(visit, _)
        | Step::OpenListing(visit)
        | Step::List(visit, ..)) = step
        else {
            return if is_troubled { Ok(()) } else { Err(format!("{errno:?}")) };
        };
        let may = origin.since(visit.name, visit.since());
        match (step, errno) {
            (Step::Directory(_), Errno::ENOENT) if !self.is_there && !is_end => Ok(()),
            (Step::Name(_), Errno::ENOENT) if may.contains(&None) => {
                // there is no such file in the end
                self.readers[reader].last.as_mut().and_then(Vec::pop);
                Ok(())
            }
            (Step::Name(_), Errno::ENOENT) => Err(format!("there is none, of {may:?}")),
            (Step::Name(_) | Step::Open(_) | Step::Read(..), _) if may.len() > 1 => Ok(()),
            _ if is_troubled => Ok(()),
            _ => Err(format!("{errno:?}, though nothing is wrong")),
        }
    }
}

impl Visit {
    /// Every version that the origin has had since then is right.
    fn since(&self) -> Picos {
        before(self.begun)
    }
}

impl Reader {
    /// When its open began.
    fn begun(&self) -> Option<Picos> {
        match self.asked.as_ref().map(|(_, step)| step)? {
            Step::Directory(visit)
            | Step::Name(visit)
            | Step::Open(visit)
            | Step::Read(visit, _)
            | Step::OpenListing(visit)
            | Step::List(visit, ..) => Some(visit.begun),
            Step::Close => None,
        }
    }
}

/// The attribute time before.
fn before(begun: Picos) -> Picos {
    begun - Picos::from(ATTRIBUTES)
}

/// The origin of this experiment.
pub fn origin_of(shape: &ImportShape) -> SharedOrigin {
    let bytes_max = u64::from(shape.file_kib) << 10;
    Rc::new(RefCell::new(Origin::new(shape.files.into(), bytes_max)))
}
