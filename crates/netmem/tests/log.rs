//! A node's log on a disk that does what the test says.

use endpoint::Frame;
use netmem::service::Log;
use netmem::*;
use node::rings::{DiskDone, DiskError, DiskFile, DiskId, DiskOp, DiskReply, Ticket};
use node::{Cx, Node};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use wire::{Errno, Time};

const PAGE: usize = 4096;
const FILE: DiskFile = DiskFile::Log(0);

/// A node, and a disk whose operations end in the order in which they came.
struct Bench {
    node: Node,
    now: u64,
    files: BTreeMap<DiskFile, Vec<u8>>,
    waiting: VecDeque<(Ticket, DiskOp)>,
    /// Bytes that the disk has room for.
    room: usize,
    fails_syncs: bool,
    syncs: usize,
    writes: usize,
}

impl Bench {
    fn new() -> Bench {
        let node = rig::node(1, 1);
        let (files, waiting) = (BTreeMap::new(), VecDeque::new());
        let mut bench = Bench {
            node,
            now: 1,
            files,
            waiting,
            room: 1 << 20,
            fails_syncs: false,
            syncs: 0,
            writes: 0,
        };
        bench.step();
        bench
    }

    fn cx(&self) -> Cx {
        self.node.cx().clone()
    }

    /// The node runs until it waits, and what it asked for waits.
    fn step(&mut self) {
        self.now += 1_000_000;
        self.node.step(Time(self.now));
        while let Some(request) = self.node.take_disk() {
            assert_eq!(request.disk, DiskId(0));
            self.waiting.push_back((request.ticket, request.op));
        }
    }

    /// All that waits is done.
    fn serve(&mut self) {
        for (ticket, op) in std::mem::take(&mut self.waiting) {
            let result = self.execute(op);
            self.node.disk_done(DiskDone { ticket, result });
        }
        self.step();
    }

    fn settle(&mut self) {
        self.step();
        while !self.waiting.is_empty() {
            self.serve();
        }
    }

    fn execute(&mut self, op: DiskOp) -> Result<DiskReply, DiskError> {
        match op {
            DiskOp::Stat { file, .. } => {
                let bytes = self.files.get(&file).ok_or(DiskError::NotFound)?.len() as u64;
                Ok(DiskReply::Stat { bytes, used: bytes, changed: 0 })
            }
            DiskOp::Remove { file } => {
                self.files.remove(&file);
                Ok(DiskReply::Done)
            }
            DiskOp::Write { file, offset, data, durable } => {
                (self.writes, self.syncs) = (self.writes + 1, self.syncs + usize::from(durable));
                self.write(file, offset as usize, &data)
            }
            DiskOp::Sync { .. } => {
                self.syncs += 1;
                let failed = Err(DiskError::Failed(Errno::EIO));
                if self.fails_syncs { failed } else { Ok(DiskReply::Done) }
            }
            DiskOp::Read { file, offset, mut into } => {
                let bytes = &self.files.get(&file).ok_or(DiskError::NotFound)?[offset as usize..];
                let count = bytes.len().min(into.len());
                into[..count].copy_from_slice(&bytes[..count]);
                Ok(DiskReply::Read { into, bytes: count })
            }
            other => panic!("{other:?}"),
        }
    }

    fn write(&mut self, file: DiskFile, at: usize, data: &[u8]) -> Result<DiskReply, DiskError> {
        if at + data.len() > self.room {
            return Err(DiskError::NoSpace);
        }
        let bytes = self.files.entry(file).or_default();
        bytes.resize(bytes.len().max(at + data.len()), 0);
        bytes[at..at + data.len()].copy_from_slice(data);
        Ok(DiskReply::Done)
    }

    fn page(&self, index: u64, version: u64) -> (PageStamp, Frame) {
        let id = PageId { space: SpaceId::shared(7), index };
        let data = vec![(index * 31 + version) as u8; PAGE];
        let frame = self.cx().frames().copy_of(&data).unwrap();
        (PageStamp::of(id, Version(version), [&data[..]]), frame)
    }

    fn append(&self, log: &PageLog, index: u64, version: u64) -> Slot<Result<(), Errno>> {
        let (stamp, data) = self.page(index, version);
        rig::start(&self.cx(), log.append(stamp, data))
    }

    /// Appends, to the end.
    fn appended(&mut self, log: &PageLog, index: u64, version: u64) -> Result<(), Errno> {
        let slot = self.append(log, index, version);
        self.settle();
        slot.take().expect("it ended")
    }

    /// Whether what is read is the page.
    fn reads(&mut self, log: &PageLog, index: u64, version: u64) -> Result<bool, Errno> {
        let (stamp, data) = self.page(index, version);
        let slot = rig::start(&self.cx(), log.read(stamp));
        self.settle();
        slot.take().expect("it ended").map(|read| read[..] == data[..])
    }
}

type Slot<T> = Rc<RefCell<Option<T>>>;

#[test]
fn pages_are_read_as_they_were_appended_last() {
    let mut bench = Bench::new();
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    for (index, version) in [(1, 1), (2, 1), (1, 2)] {
        assert_eq!(bench.appended(&log, index, version), Ok(()));
    }
    assert_eq!(bench.reads(&log, 1, 2), Ok(true));
    assert_eq!(bench.reads(&log, 2, 1), Ok(true));
    assert_eq!(bench.reads(&log, 3, 1), Err(Errno::ENOENT));
    assert_eq!(log.free_bytes(), (1 << 20) - 2 * PAGE as u64);
    log.forget(bench.page(1, 2).0.id);
    assert_eq!(bench.reads(&log, 1, 2), Err(Errno::ENOENT));
}

/// Who waits at the same time waits for the same sync.
#[test]
fn appends_that_wait_share_a_sync() {
    let mut bench = Bench::new();
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    bench.appended(&log, 0, 1).unwrap();
    let before = bench.syncs;
    let first = bench.append(&log, 1, 1);
    bench.step();
    let others: Vec<_> = (2..12).map(|index| bench.append(&log, index, 1)).collect();
    bench.step();
    assert!(first.borrow().is_none() && bench.waiting.len() == 1, "one is under way, ten wait");
    bench.settle();
    assert!(others.iter().chain([&first]).all(|slot| slot.take() == Some(Ok(()))));
    assert_eq!((bench.syncs - before, bench.writes), (2, 12));
}

/// What was superseded is room again, so that the file does not grow.
#[test]
fn a_log_has_its_limit_and_its_room_is_used_again() {
    let mut bench = Bench::new();
    let log = PageLog::start(&bench.cx(), DiskId(0), 4 * PAGE as u64);
    for version in 1..50 {
        (0..3).for_each(|index| assert_eq!(bench.appended(&log, index, version), Ok(())));
    }
    assert!((0..3).all(|index| bench.reads(&log, index, 49) == Ok(true)));
    assert_eq!((bench.files[&FILE].len(), log.free_bytes()), (4 * PAGE, PAGE as u64));
    bench.appended(&log, 3, 1).unwrap();
    assert_eq!(bench.appended(&log, 4, 1), Err(Errno::ENOSPC));
    assert_eq!(bench.appended(&log, 0, 50), Err(Errno::ENOSPC), "both versions need room at once");
    assert_eq!(bench.reads(&log, 0, 49), Ok(true));
    log.forget(bench.page(3, 1).0.id);
    assert_eq!(bench.appended(&log, 4, 1), Ok(()));
}

/// A full disk, and one that fails at the end: the page is refused, and what was there before still is.
#[test]
fn an_append_that_fails_changes_nothing() {
    let mut bench = Bench::new();
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    bench.appended(&log, 0, 1).unwrap();
    bench.room = PAGE;
    assert_eq!(bench.appended(&log, 0, 2), Err(Errno::ENOSPC));
    assert_eq!(bench.reads(&log, 0, 1), Ok(true));
    (bench.room, bench.fails_syncs) = (1 << 20, true);
    let slots = [bench.append(&log, 0, 3), bench.append(&log, 1, 1)];
    bench.settle();
    assert!(slots.iter().all(|slot| slot.take() == Some(Err(Errno::EIO))));
    assert_eq!(bench.reads(&log, 0, 1), Ok(true));
    assert_eq!(log.free_bytes(), (1 << 20) - PAGE as u64);
    bench.fails_syncs = false;
    bench.appended(&log, 0, 3).unwrap();
    assert_eq!(bench.reads(&log, 0, 3), Ok(true));
}

/// The blocks of a page that is just read are nobody else's, though a newer version has come.
#[test]
fn a_read_under_way_gets_no_other_pages_bytes() {
    let mut bench = Bench::new();
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    bench.appended(&log, 0, 1).unwrap();
    let (stamp, data) = bench.page(0, 1);
    let read = rig::start(&bench.cx(), log.read(stamp));
    bench.step();
    let held = bench.waiting.pop_front().unwrap();
    for index in 0..3 {
        let slot = bench.append(&log, index, 2);
        bench.settle();
        assert_eq!(slot.take(), Some(Ok(())));
    }
    bench.waiting.push_back(held);
    bench.settle();
    assert_eq!(read.take().unwrap().unwrap()[..], data[..]);
}

/// An earlier process's file goes, an I/O server's disk is left alone.
#[test]
fn a_log_begins_empty_and_on_no_other_disk() {
    let mut bench = Bench::new();
    bench.files.insert(FILE, vec![1; 10 * PAGE]);
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    bench.appended(&log, 0, 1).unwrap();
    assert_eq!(bench.files[&FILE].len(), PAGE);

    let mut bench = Bench::new();
    bench.files.extend([(FILE, vec![1; PAGE]), (DiskFile::Label, vec![2; 10])]);
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    assert_eq!(bench.appended(&log, 0, 1), Err(Errno::EEXIST));
    assert_eq!(bench.files[&FILE], vec![1; PAGE]);
}

/// Who asks does not wait any more: it is written all the same, and then there is room again.
#[test]
fn an_append_that_is_given_up_takes_no_room() {
    let mut bench = Bench::new();
    let log = PageLog::start(&bench.cx(), DiskId(0), 1 << 20);
    let (stamp, data) = bench.page(0, 1);
    let (cx, append) = (bench.cx(), log.append(stamp, data));
    let slot = rig::start(&bench.cx(), async move {
        cx.with_deadline(std::time::Duration::from_micros(1), append).await.is_err()
    });
    bench.step();
    bench.step();
    assert_eq!(slot.take(), Some(true), "given up while the disk is at it");
    assert_eq!(log.free_bytes(), (1 << 20) - PAGE as u64);
    bench.settle();
    assert_eq!(log.free_bytes(), 1 << 20);
}
