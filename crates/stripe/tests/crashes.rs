//! Random operations with crashes at any moment, against a model: what a commit or truncation acknowledged is there;
//! of everything else each byte is one that was written there since.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use stripe::{FileRef, Seek, Verifiers};
use wire::Errno;

const UNIT: usize = 32 * 1024;
const SIZE_MAX: usize = 1_300_000;
const BLOCKS: usize = SIZE_MAX / 4096;

#[derive(Clone, Debug)]
enum Op {
    Write {
        offset: usize,
        bytes: usize,
    },
    /// Stable when it returns.
    WriteStably {
        offset: usize,
        bytes: usize,
    },
    Commit,
    Truncate {
        size: usize,
    },
    Read {
        offset: usize,
        bytes: usize,
    },
    /// Blocks become a hole.
    Punch {
        blocks: Range<usize>,
    },
    /// The file is at least so long, whether power goes meanwhile or not: (server, turns).
    Grow {
        size: usize,
        crash: Option<(usize, usize)>,
    },
    /// The next data and the next hole.
    Seek {
        offset: usize,
    },
    /// Power loss while a hole is made.
    CrashInPunch {
        server: usize,
        turns: usize,
        blocks: Range<usize>,
    },
    /// Power loss of one server, or a kill.
    Crash {
        server: usize,
        power: bool,
    },
    /// Likewise while a commit is under way.
    CrashInCommit {
        server: usize,
        turns: usize,
    },
    /// While a stable write is.
    CrashInStableWrite {
        server: usize,
        turns: usize,
        offset: usize,
        bytes: usize,
    },
    /// While a truncation is.
    CrashInTruncate {
        server: usize,
        turns: usize,
        size: usize,
    },
    /// While a checkpoint is.
    CrashInCheckpoint {
        server: usize,
        turns: usize,
    },
    /// Another process fills the disk before the server is back, once or twice. When there is room again, power goes
    /// while what was in the log comes into place, or after that.
    RestartWhenFull {
        server: usize,
        power: bool,
        again: bool,
        offset: usize,
        turns: usize,
    },
    Flush,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![Just(0usize), 1usize..5000, 1usize..SIZE_MAX];
    let bytes = prop_oneof![1usize..9000, 1usize..300_000, Just(800_000usize)];
    let offset = prop_oneof![
        0usize..20_000,
        0..SIZE_MAX - 800_000,
        (0usize..300).prop_map(|block| block * 4096)
    ];
    let blocks = prop_oneof![
        (0usize..BLOCKS, 1usize..20).prop_map(|(first, count)| first..first + count),
        (0usize..BLOCKS, 1usize..BLOCKS).prop_map(|(first, count)| first..first + count),
    ];
    prop_oneof![
        8 => (offset.clone(), bytes.clone()).prop_map(|(offset, bytes)| Op::Write { offset, bytes }),
        3 => (offset.clone(), bytes.clone())
            .prop_map(|(offset, bytes)| Op::WriteStably { offset, bytes }),
        4 => Just(Op::Commit),
        1 => size.clone().prop_map(|size| Op::Truncate { size }),
        4 => (offset.clone(), bytes.clone())
            .prop_map(|(offset, bytes)| Op::Read { offset, bytes }),
        3 => blocks.clone().prop_map(|blocks| Op::Punch { blocks }),
        2 => (1..SIZE_MAX, proptest::option::of((0usize..2, 0usize..40)))
            .prop_map(|(size, crash)| Op::Grow { size, crash }),
        2 => (0..SIZE_MAX).prop_map(|offset| Op::Seek { offset }),
        2 => (0usize..2, 0usize..40, blocks)
            .prop_map(|(server, turns, blocks)| Op::CrashInPunch { server, turns, blocks }),
        2 => (0usize..2, any::<bool>()).prop_map(|(server, power)| Op::Crash { server, power }),
        2 => (0usize..2, 0usize..40).prop_map(|(server, turns)| Op::CrashInCommit { server, turns }),
        2 => (0usize..2, 0usize..40, offset, bytes).prop_map(
            |(server, turns, offset, bytes)| Op::CrashInStableWrite { server, turns, offset, bytes }
        ),
        1 => (0usize..2, 0usize..40, size)
            .prop_map(|(server, turns, size)| Op::CrashInTruncate { server, turns, size }),
        1 => (0usize..2, 0usize..60).prop_map(|(server, turns)| Op::CrashInCheckpoint { server, turns }),
        1 => (0usize..2, any::<bool>(), any::<bool>(), 0..SIZE_MAX - 9000, 0usize..100).prop_map(
            |(server, power, again, offset, turns)| {
                Op::RestartWhenFull { server, power, again, offset, turns }
            }
        ),
        1 => Just(Op::Flush),
    ]
}

/// The values that every byte may have: the last one first.
struct Model {
    bytes: Vec<Vec<u8>>,
    sizes: BTreeSet<u64>,
    size: u64,
    crashed: [bool; 2],
}

impl Model {
    fn write(&mut self, offset: usize, data: &[u8]) {
        for (at, byte) in (offset..).zip(data) {
            self.bytes[at].insert(0, *byte);
        }
        self.size = self.size.max((offset + data.len()) as u64);
        self.sizes.insert(self.size);
    }

    /// Bytes of a range are what they are, and so is all else on the servers that have some of it, unless it crashed.
    fn keep(&mut self, range: Range<usize>) {
        let touched = [0, 1].map(|server| range.clone().any(|at| at / UNIT % 2 == server));
        for (at, values) in self.bytes.iter_mut().enumerate() {
            let server = at / UNIT % 2;
            if range.contains(&at) || (touched[server] && !self.crashed[server]) {
                values.truncate(1);
            }
        }
    }

    /// The present contents are the only ones.
    fn settle(&mut self) {
        self.bytes.iter_mut().for_each(|values| values.truncate(1));
        self.sizes = BTreeSet::from([self.size]);
    }

    fn cut(&mut self, size: usize) {
        self.bytes[size.min(SIZE_MAX)..].iter_mut().for_each(|values| values.insert(0, 0));
        self.size = size as u64;
        self.sizes.insert(self.size);
    }

    /// A hole is stable when it is made, with all that was written before.
    fn punch(&mut self, range: Range<usize>) {
        self.bytes[range.clone()].iter_mut().for_each(|values| values.insert(0, 0));
        self.keep(range);
    }

    /// Earlier writes to the server of the last byte are stable with it, unless it crashed in between.
    fn grow(&mut self, size: usize) {
        self.size = self.size.max(size as u64);
        self.sizes = self.sizes.iter().map(|before| (*before).max(size as u64)).collect();
        self.sizes.insert(self.size);
        if !self.crashed[(size - 1) / UNIT % 2] {
            self.keep(size - 1..size);
        }
    }

    /// The first block from `offset` on that has another byte than 0, or has none.
    fn seek(&self, offset: usize, what: Seek) -> Option<u64> {
        let blocks = self.bytes.chunks(4096).enumerate().skip(offset / 4096);
        let is_data = |block: &[Vec<u8>]| block.iter().any(|values| values[0] != 0);
        let found = blocks.clone().find(|(_, block)| is_data(block) == (what == Seek::Data));
        let end = (what == Seek::Hole).then_some(self.bytes.len().div_ceil(4096));
        let block = found.map(|(index, _)| index).or(end)?;
        Some((block * 4096).max(offset) as u64)
    }

    /// After a crash, what is found of the servers that crashed becomes what is there.
    fn find(&mut self, found: &[u8], size: u64) -> Result<(), TestCaseError> {
        for (at, (values, byte)) in self.bytes.iter_mut().zip(found).enumerate() {
            prop_assert!(values.contains(byte), "byte {at} is {byte}, may be {values:?}");
            if self.crashed[at / UNIT % 2] {
                *values = vec![*byte];
            }
            prop_assert_eq!(values[0], *byte, "byte {} of a server that did not crash", at);
        }
        let (least, most) = (self.sizes.first().unwrap(), self.sizes.last().unwrap());
        prop_assert!((*least..=*most).contains(&size), "size {size} of {:?}", self.sizes);
        self.size = size;
        self.sizes.insert(size);
        self.crashed = [false; 2];
        Ok(())
    }
}

/// The bytes of blocks, as the model and as the client takes them.
fn hole(blocks: &Range<usize>) -> (Range<usize>, Range<u64>) {
    let (start, end) = (blocks.start * 4096, blocks.end * 4096);
    (start..end.min(SIZE_MAX), start as u64..end as u64)
}

struct Run {
    world: World,
    file: FileRef,
    model: Model,
    seed: u64,
    written: Verifiers,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut world = World::with(2, 1, seed, small);
        world.disk_turns = 4;
        let model = Model {
            bytes: vec![vec![0]; SIZE_MAX],
            sizes: BTreeSet::from([0]),
            size: 0,
            crashed: [false; 2],
        };
        let file = world.file(3);
        Run { world, file, model, seed, written: Verifiers::default() }
    }

    fn look(&mut self) -> Result<(), TestCaseError> {
        if self.model.crashed != [false; 2] {
            let found = self.world.read(&self.file, 0, SIZE_MAX).unwrap();
            let size = self.world.size(&self.file);
            self.model.find(&found, size)?;
            self.written = Verifiers::default();
        }
        Ok(())
    }

    fn crash(&mut self, server: usize, power: bool) {
        match power {
            true => self.world.servers[server].crash(),
            false => self.world.servers[server].kill(),
        }
        self.model.crashed[server] = true;
    }

    fn step(&mut self, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Write { offset, bytes } => {
                self.look()?;
                self.seed += 1;
                let data = pattern(self.seed, bytes.min(SIZE_MAX - offset));
                let written = self.world.write(&self.file, offset as u64, &data).unwrap();
                self.written.merge(&written);
                self.model.write(offset, &data);
            }
            Op::WriteStably { offset, bytes } => {
                self.look()?;
                self.seed += 1;
                let data = pattern(self.seed, bytes.min(SIZE_MAX - offset));
                let written = self.world.write_stably(&self.file, offset as u64, &data).unwrap();
                prop_assert!(written.are_stable());
                self.model.write(offset, &data);
                self.model.keep(offset..offset + data.len());
            }
            Op::Commit => {
                self.look()?;
                let stable = self.world.commit(&self.file).unwrap();
                let mut columns = self.written.columns();
                prop_assert!(columns.all(|column| self.written.same(column, &stable)));
                self.model.settle();
            }
            Op::Truncate { size } => {
                self.look()?;
                self.file.truncations += 1;
                self.world.truncate(&self.file, size as u64).unwrap();
                self.model.cut(size);
                // The cut itself is stable, writes below it are not.
                self.model.bytes[size..].iter_mut().for_each(|values| values.truncate(1));
                self.model.sizes = BTreeSet::from([size as u64]);
            }
            Op::Read { offset, bytes } => {
                self.look()?;
                let bytes = bytes.min(SIZE_MAX - offset);
                let found = self.world.read(&self.file, offset as u64, bytes).unwrap();
                let wanted = self.model.bytes[offset..offset + bytes].iter().map(|v| v[0]);
                prop_assert!(found.iter().copied().eq(wanted), "read {offset}+{bytes}");
                prop_assert_eq!(self.world.size(&self.file), self.model.size);
            }
            Op::Punch { blocks } => {
                self.look()?;
                let (range, asked) = hole(&blocks);
                let (client, file) = (self.world.client.clone(), self.file);
                let punch = self.world.start(async move { client.punch(&file, asked).await });
                self.world.until(|| punch.borrow().is_some());
                prop_assert_eq!(punch.borrow_mut().take(), Some(Ok::<(), Errno>(())));
                self.model.punch(range);
            }
            Op::Grow { size, crash } => {
                self.look()?;
                let (client, file) = (self.world.client.clone(), self.file);
                let grow = self.world.start(async move { client.grow(&file, size as u64).await });
                if let Some((server, turns)) = crash {
                    self.world.turns(turns);
                    self.crash(server, true);
                }
                self.world.until(|| grow.borrow().is_some());
                prop_assert_eq!(grow.borrow_mut().take(), Some(Ok::<(), Errno>(())));
                self.model.grow(size);
            }
            Op::Seek { offset } => {
                self.look()?;
                for what in [Seek::Data, Seek::Hole] {
                    let (client, file) = (self.world.client.clone(), self.file);
                    let at = offset as u64;
                    let seek = self.world.start(async move { client.seek(&file, at, what).await });
                    self.world.until(|| seek.borrow().is_some());
                    let found = seek.borrow_mut().take().unwrap().unwrap();
                    prop_assert_eq!(found, self.model.seek(offset, what), "{:?} {}", what, offset);
                }
            }
            Op::CrashInPunch { server, turns, blocks } => {
                self.look()?;
                let (range, asked) = hole(&blocks);
                let (client, file) = (self.world.client.clone(), self.file);
                let punch = self.world.start(async move { client.punch(&file, asked).await });
                self.world.turns(turns);
                self.crash(server, true);
                self.world.until(|| punch.borrow().is_some());
                prop_assert_eq!(punch.borrow_mut().take(), Some(Ok::<(), Errno>(())));
                self.model.punch(range);
            }
            Op::Crash { server, power } => self.crash(server, power),
            Op::CrashInCommit { server, turns } => {
                self.look()?;
                let commit = self.world.start_commit(&self.file);
                self.world.turns(turns);
                let done = commit.borrow().is_some();
                if done {
                    self.model.settle();
                }
                self.crash(server, true);
                self.world.until(|| commit.borrow().is_some());
            }
            Op::CrashInStableWrite { server, turns, offset, bytes } => {
                self.look()?;
                self.seed += 1;
                let image = pattern(self.seed, bytes.min(SIZE_MAX - offset));
                let (client, file) = (self.world.client.clone(), self.file);
                let data = data(&self.world.cx(), &image);
                let write = self.world.start(async move {
                    client.write(&file, offset as u64, data, stripe::Write::Stable).await
                });
                self.world.turns(turns);
                self.crash(server, true);
                self.world.until(|| write.borrow().is_some());
                prop_assert!(write.borrow_mut().take().unwrap().unwrap().are_stable());
                self.model.write(offset, &image);
                self.model.keep(offset..offset + image.len());
            }
            Op::CrashInTruncate { server, turns, size } => {
                self.look()?;
                self.file.truncations += 1;
                let (client, file) = (self.world.client.clone(), self.file);
                let cut =
                    self.world.start(async move { client.truncate(&file, size as u64).await });
                self.world.turns(turns);
                self.crash(server, true);
                self.world.until(|| cut.borrow().is_some());
                prop_assert_eq!(cut.borrow_mut().take(), Some(Ok::<(), Errno>(())));
                self.model.cut(size);
                self.model.bytes[size..].iter_mut().for_each(|values| values.truncate(1));
                self.model.sizes = BTreeSet::from([size as u64]);
            }
            Op::CrashInCheckpoint { server, turns } => {
                let service = self.world.servers[server].server.clone().unwrap();
                self.world.servers[server].node.cx().spawn("flush", async move {
                    let _ = service.flush().await;
                });
                self.world.turns(turns);
                self.crash(server, true);
            }
            Op::RestartWhenFull { server, power, again, offset, turns } => {
                for _ in 0..=usize::from(again) {
                    self.crash(server, power);
                    self.world.servers[server].disks[0].fill();
                    self.look()?;
                    self.step(Op::Write { offset, bytes: 9000 })?;
                    match self.world.commit(&self.file) {
                        Ok(_) => self.model.settle(),
                        Err(errno) => prop_assert_eq!(errno, Errno::ENOSPC),
                    }
                }
                self.world.servers[server].disks[0].capacity = None;
                self.step(Op::CrashInCheckpoint { server, turns })?;
            }
            Op::Flush => {
                self.look()?;
                (0..2).for_each(|server| self.world.flush(server));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), TestCaseError> {
        (0..2).for_each(|server| self.crash(server, true));
        self.look()?;
        for server in &self.world.servers {
            let counters = server.server.as_ref().unwrap().counters();
            prop_assert_eq!(counters.corrupt_blocks, 0);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost(seed in 0u64..1 << 30, ops in prop::collection::vec(op(), 1..40)) {
        let mut run = Run::new(seed);
        for op in ops {
            run.step(op)?;
        }
        run.end()?;
    }
}

/// Short by default; `STRIPE_CASES=500` for a long run.
fn cases() -> u32 {
    std::env::var("STRIPE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12)
}
