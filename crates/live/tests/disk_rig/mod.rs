//! A set of disks with a thread that waits for them as a host does, for all tests of disks.
#![allow(dead_code)] // every test file uses a part

use endpoint::{Frames, HeapRegion};
use live::clock;
use live::device::{Poller, Ready};
use live::disk::{DiskConfig, Disks, Engine};
use live::host::Device;
use node::rings::{
    DiskDone, DiskError, DiskFile, DiskId, DiskListing, DiskOp, DiskReply, DiskRequest, Ticket,
};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use wire::{FileId, ObjectId, VolumeId};

/// A set of disks with a thread that waits for them as a host does.
pub struct Rig {
    pub disks: Disks,
    poller: Poller,
    pub frames: Frames,
    next: u64,
    ready: Vec<Ready>,
}

impl Rig {
    pub fn open(config: &DiskConfig, engine: Engine) -> Rig {
        let mut disks = Disks::open(std::slice::from_ref(config), engine).unwrap();
        assert_eq!(disks.engine(), engine);
        let poller = Poller::new().unwrap();
        disks.attach(&poller).unwrap();
        Rig {
            disks,
            poller,
            frames: Frames::new(HeapRegion::new(4096)),
            next: 0,
            ready: Vec::new(),
        }
    }

    pub fn start(&mut self, op: DiskOp) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.disks.start(DiskRequest { ticket, disk: DiskId(0), op }, clock::now());
        ticket
    }

    pub fn wait(&mut self) -> DiskDone {
        loop {
            if let Some(done) = self.disks.next_done() {
                return done;
            }
            if !self.disks.turn(clock::now()).unwrap() {
                self.sleep();
            }
        }
    }

    pub fn sleep(&mut self) {
        if !self.disks.before_sleep() {
            // The kernel may end a sleep for work of its own; only one that lasts found no waker.
            let (start, most) = (clock::now(), Duration::from_secs(20));
            let span = self.disks.deadline().map_or(most, |at| at.since(start));
            self.poller.wait(Some(span), &mut self.ready).unwrap();
            assert!(clock::now().since(start) < most, "nothing woke the sleeper");
        }
        self.disks.after_sleep();
    }

    pub fn run(&mut self, op: DiskOp) -> Result<DiskReply, DiskError> {
        let ticket = self.start(op);
        let done = self.wait();
        assert_eq!(done.ticket, ticket);
        done.result
    }

    pub fn done(&mut self, op: DiskOp) {
        let reply = self.run(op);
        assert!(matches!(reply, Ok(DiskReply::Done)), "{reply:?}");
    }

    pub fn write(&mut self, file: DiskFile, offset: u64, bytes: &[u8], durable: bool) {
        let data = self.frames.copy_of(bytes).unwrap();
        self.done(DiskOp::Write { file, offset, data, durable });
    }

    pub fn read(
        &mut self,
        file: DiskFile,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, DiskError> {
        let into = self.frames.alloc_exact(count).unwrap();
        match self.run(DiskOp::Read { file, offset, into })? {
            DiskReply::Read { into, bytes } => Ok(into[..bytes].to_vec()),
            other => panic!("{other:?}"),
        }
    }

    pub fn stat(&mut self, file: DiskFile) -> Result<u64, DiskError> {
        match self.run(DiskOp::stat(file))? {
            DiskReply::Stat { bytes, .. } => Ok(bytes),
            other => panic!("{other:?}"),
        }
    }

    pub fn list(&mut self, which: DiskListing) -> Vec<DiskFile> {
        match self.run(DiskOp::List(which)).unwrap() {
            DiskReply::Files(files) => files,
            other => panic!("{other:?}"),
        }
    }
}

/// Runs `body` with each engine. Where io_uring is forbidden only the threads are left, said aloud.
pub fn each_engine(body: impl Fn(Engine)) {
    let nothing = Disks::open(&[], Engine::Uring);
    match nothing {
        Ok(_) => body(Engine::Uring),
        Err(error) => rig::skip(format!("with io_uring: {error}")),
    }
    body(Engine::Threads);
}

/// Runs `body` on a fresh disk with each engine, and checks that nothing was left behind.
pub fn on_both(body: impl Fn(&mut Rig, &Path)) {
    each_engine(|engine| {
        let temporary = TempDir::new().unwrap();
        let mut rig = Rig::open(&DiskConfig::new(temporary.path()), engine);
        body(&mut rig, temporary.path());
        assert_eq!(rig.disks.under_way(), 0);
        assert_eq!(rig.frames.free_pages(), rig.frames.pages(), "every frame came back");
    });
}

pub fn object(file: u64) -> ObjectId {
    ObjectId { volume: VolumeId(1), file: FileId(file), column: 0 }
}

pub fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    (0..bytes as u64).map(|n| (n.wrapping_mul(31).wrapping_add(seed * 57) >> 3) as u8).collect()
}
