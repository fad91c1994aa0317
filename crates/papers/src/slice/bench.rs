//! The client's calls, as `dd` makes them: one after the other.

use super::Setup;
use endpoint::Frame;
use node::rings::{Caller, FileOp, FileReply, FileRequest, Handle};
use sim::queue::Picos;
use sim::random::Random;
use sim::storage::Crash;
use sim::trace::Trace;
use sim::underlay::Busy;
use sim::world::{Happening, World};
use wire::{FileId, NodeId};

/// Bytes of a call (HotI'99 section 4).
const CALL_BYTES: u64 = 64 << 10;
/// Bytes after which a stream is looked at; two such stretches that are alike are steady, and are what is measured.
const STRETCH_BYTES: u64 = 32 << 20;
/// How much they may differ.
const ALIKE: f64 = 0.03;
/// Stretches before them: read-ahead grows, the client's memory for what is not stable fills.
const SKIPPED: usize = 1;
/// Stretches after which a stream is taken as it is.
const STRETCHES_MAX: usize = 4;
/// Time for members to join, and for a killed server's links.
const SETTLE: Picos = Picos::seconds(3);
/// Time for a restarted server to replay its logs: before that a disk does not serve.
const REPLAYED: Picos = Picos::seconds(60);
/// No call takes longer.
const CALL_MAX: Picos = Picos::seconds(60);
const NEW_FILE: u32 = 0o100 | 0o200 | 2;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the disks.
    Read,
    /// To them.
    Write,
}

/// How much is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the rate stays; the rate is that of the last 64 MiB.
    Steady,
    /// So many bytes; the rate is that of all of them.
    Bytes(u64),
}

impl Until {
    /// Bytes of file that a reader may need.
    pub fn bytes_needed(self) -> u64 {
        match self {
            Until::Steady => STRETCHES_MAX as u64 * STRETCH_BYTES,
            Until::Bytes(bytes) => bytes.next_multiple_of(CALL_BYTES),
        }
    }
}

/// Result of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Bytes a second.
    pub rate: f64,
    /// Share of the client's processor that was at work.
    pub processor: f64,
    /// Share of the time that the client's I/O bus was in use.
    pub client_bus: f64,
    /// The same of the server whose bus was in use most.
    pub server_bus: f64,
    /// Share of the time that the servers' disks moved their arms, turned or transferred.
    pub disks: f64,
    /// Bytes that were measured.
    pub bytes: u64,
}

/// A client's open file.
pub struct Bench {
    setup: Setup,
    world: World,
    file: FileId,
    handle: Handle,
    /// Bytes that each call writes, and that every read must give.
    data: Frame,
    calls: u64,
    written: u64,
}

#[derive(Clone, Debug)]
struct Mark {
    at: Picos,
    bytes: u64,
    client: Busy,
    servers: Vec<Busy>,
}

impl Bench {
    /// A cluster with an empty file.
    ///
    /// The error says what cannot be built.
    pub fn new(setup: Setup) -> Result<Bench, String> {
        Bench::traced(setup, Trace::default())
    }

    /// The same, whose messages can be looked at.
    pub fn traced(setup: Setup, trace: Trace) -> Result<Bench, String> {
        let mut world = setup.world(trace)?;
        pause(&mut world, SETTLE);
        let data = pattern(&world, setup.client(), setup.seed);
        let (file, handle) = (FileId::ROOT, Handle::default());
        let mut bench = Bench { setup, world, file, handle, data, calls: 0, written: 0 };
        let name = (*b"large").into();
        let create = FileOp::Create { parent: FileId::ROOT, name, mode: 0o644, flags: NEW_FILE };
        match bench.call(create) {
            FileReply::Created { attr, handle } => (bench.file, bench.handle) = (attr.file, handle),
            reply => panic!("a file is made, and not {reply:?}"),
        }
        Ok(bench)
    }

    /// The cluster, for what it counted.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// A file operation from beginning to end. Panics when it fails: nothing here does.
    pub fn call(&mut self, op: FileOp) -> FileReply {
        self.calls += 1;
        let (front, client) = (self.calls, self.setup.client());
        let request = FileRequest { front, caller: Caller { pid: 1, ..Caller::default() }, op };
        self.world.ask(client, request).expect("a client that runs and has one call at a time");
        let until = self.world.now() + CALL_MAX;
        loop {
            match self.world.advance(until) {
                Happening::Done(_, done) => {
                    let (seed, now) = (self.setup.seed, self.world.now());
                    return match done.result {
                        Ok(reply) => reply,
                        Err(errno) => panic!("seed {seed}, {now} s: call {front} fails: {errno:?}"),
                    };
                }
                Happening::Timer(_) => {}
                Happening::Pause => panic!("call {front} does not end"),
            }
        }
    }

    /// Writes the file up to `bytes` and waits until it is on the disks.
    pub fn prepare(&mut self, bytes: u64) {
        while self.written < bytes {
            self.write();
        }
        let (file, handle) = (self.file, self.handle);
        self.call(FileOp::Fsync { file, handle, data_only: false });
    }

    /// The servers start anew: nothing is in their memory, and their disks serve.
    pub fn flush_caches(&mut self) {
        let servers = self.setup.servers();
        servers.for_each(|server| self.world.crash(server, Crash::Kill));
        pause(&mut self.world, SETTLE);
        let servers = self.setup.servers();
        servers.for_each(|server| self.world.start(server));
        pause(&mut self.world, REPLAYED);
    }

    fn write(&mut self) {
        let (file, handle, offset) = (self.file, self.handle, self.written);
        let (data, flags) = (vec![self.data.clone()], Default::default());
        self.call(FileOp::Write { file, handle, offset, data, flags });
        self.written += CALL_BYTES;
    }

    /// Reads `bytes` at `offset`, which lie in one call's data; they must be what was written.
    pub fn read(&mut self, offset: u64, bytes: u64) {
        let (file, handle) = (self.file, self.handle);
        let reply = self.call(FileOp::Read { file, handle, offset, bytes: bytes as u32 });
        let FileReply::Data { frames, bytes: came } = reply else { panic!("data, not {reply:?}") };
        assert_eq!(came as u64, bytes, "at {offset} there is as much as was written");
        let mut at = (offset % CALL_BYTES) as usize;
        for frame in &frames {
            assert!(self.data[at..at + frame.len()] == frame[..], "other bytes at {offset}");
            at += frame.len();
        }
    }

    /// Moves data from the beginning of the file on. For reading there must be as much as is asked for.
    pub fn stream(&mut self, way: Direction, until: Until) -> Measured {
        let mut marks = vec![self.mark(0)];
        let (mut moved, mut next) = (0, STRETCH_BYTES);
        loop {
            match way {
                Direction::Write => self.write(),
                Direction::Read => self.read(moved, CALL_BYTES),
            }
            moved += CALL_BYTES;
            if moved == next {
                next += STRETCH_BYTES;
                marks.push(self.mark(moved));
            }
            let stays = moved + STRETCH_BYTES == next && is_steady(&marks);
            match until {
                Until::Steady if stays => return self.measured(&marks[marks.len() - 3..]),
                Until::Bytes(bytes) if moved >= bytes => {
                    return self.measured(&[marks[0].clone(), self.mark(moved)]);
                }
                _ => {}
            }
        }
    }

    /// Median time of reads of 8 KiB at places that no reader would be expected at, from the servers' memory.
    pub fn fault(&mut self, count: usize) -> Picos {
        const PAGE: u64 = 8 << 10;
        pause(&mut self.world, SETTLE);
        let mut random = Random::new(self.setup.seed, "faults");
        let mut one = || {
            let page = random.below(self.written / PAGE);
            let begun = self.world.now();
            self.read(page * PAGE, PAGE);
            let span = self.world.now().since(begun);
            pause(&mut self.world, Picos::millis(1));
            span
        };
        let mut spans: Vec<Picos> = (0..count).map(|_| one()).collect();
        spans.sort();
        spans[count / 2]
    }

    fn mark(&self, bytes: u64) -> Mark {
        let underlay = self.world.underlay().expect("a world on hardware");
        let client = underlay.busy(self.setup.client());
        let servers = self.setup.servers().map(|server| underlay.busy(server)).collect();
        Mark { at: self.world.now(), bytes, client, servers }
    }

    /// Rates between the first and the last mark.
    fn measured(&self, marks: &[Mark]) -> Measured {
        let (from, to) = (&marks[0], &marks[marks.len() - 1]);
        let span = seconds(to.at.since(from.at));
        let share = |from: Picos, to: Picos| seconds(to.since(from)) / span;
        let servers = || from.servers.iter().zip(&to.servers);
        let buses = servers().map(|(from, to)| share(from.bus, to.bus));
        let disks: f64 = servers().map(|(from, to)| share(from.disks, to.disks)).sum();
        Measured {
            rate: rate(from, to),
            processor: share(from.client.processor, to.client.processor),
            client_bus: share(from.client.bus, to.client.bus),
            server_bus: buses.fold(0.0, f64::max),
            disks: disks / f64::from(self.setup.servers * self.setup.disks),
            bytes: to.bytes - from.bytes,
        }
    }
}

/// The client does nothing for a while.
fn pause(world: &mut World, span: Picos) {
    let until = world.now() + span;
    world.set_timer(until, 0);
    while !matches!(world.advance(until), Happening::Timer(_)) {}
}

/// As much as one call writes, the same in all of them: `dd` does not touch its data.
fn pattern(world: &World, client: NodeId, seed: u64) -> Frame {
    let mut random = Random::new(seed, "data");
    let words = (0..CALL_BYTES / 8).flat_map(|_| random.next().to_le_bytes());
    let bytes: Vec<u8> = words.collect();
    let frames = world.frames(client).expect("the client runs");
    frames.copy_of(&bytes).expect("an empty pool has room")
}

fn rate(from: &Mark, to: &Mark) -> f64 {
    (to.bytes - from.bytes) as f64 / seconds(to.at.since(from.at))
}

fn seconds(span: Picos) -> f64 {
    span.0 as f64 / 1e12
}

/// Whether the last two stretches are alike, or there were enough.
fn is_steady(marks: &[Mark]) -> bool {
    let [.., first, middle, last] = marks else { return false };
    let (before, after) = (rate(first, middle), rate(middle, last));
    let stretches = marks.len() - 1;
    let alike = (after - before).abs() <= ALIKE * after;
    stretches >= SKIPPED + 2 && (alike || stretches >= STRETCHES_MAX)
}
