//! The storage that an object says it takes, against a set of blocks: each counts once, wherever it is.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use stripe::FileRef;
use stripe::object::{GROUP_BYTES, HEADER_BYTES};

/// More than a group of 1,024.
const BLOCKS: u64 = 1100;

#[derive(Clone, Debug)]
enum Op {
    Write {
        first: u64,
        bytes: usize,
    },
    Commit,
    Punch {
        blocks: Range<u64>,
    },
    Truncate {
        size: u64,
    },
    Checkpoint,
    /// A kill, after a commit: what is in the log is there again.
    Restart,
}

/// An operation, and for some of them after how many turns the storage is asked for, in the middle.
type Step = (Op, Option<usize>);

fn op() -> impl Strategy<Value = Op> {
    let first = prop_oneof![0..40u64, 1000..1060u64, 0..BLOCKS - 100];
    let bytes = prop_oneof![1usize..20_000, 1usize..400_000];
    let size = prop_oneof![0..200_000u64, 0..BLOCKS * 4096];
    prop_oneof![
        6 => (first.clone(), bytes).prop_map(|(first, bytes)| Op::Write { first, bytes }),
        3 => Just(Op::Commit),
        2 => (first, 1..1100u64)
            .prop_map(|(first, count)| Op::Punch { blocks: first..(first + count).min(BLOCKS) }),
        1 => size.prop_map(|size| Op::Truncate { size }),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Restart),
    ]
}

struct Run {
    world: World,
    file: FileRef,
    blocks: BTreeSet<u64>,
    seed: u64,
}

impl Run {
    fn new() -> Run {
        let mut world = World::with(1, 1, 1, small);
        world.disk_turns = 4;
        let file = world.file(5);
        Run { world, file, blocks: BTreeSet::new(), seed: 0 }
    }

    /// Headers and checksums that the file has.
    fn overhead(&self) -> u64 {
        let bytes = self.world.servers[0].disks[0].bytes(World::object(5, 0)).unwrap_or(&[]);
        let is_data =
            |at: u64| at >= HEADER_BYTES && !(at - HEADER_BYTES).is_multiple_of(GROUP_BYTES);
        let blocks = bytes.chunks(4096).zip((0u64..).step_by(4096));
        let others = blocks.filter(|(block, at)| !is_data(*at) && block.iter().any(|b| *b != 0));
        others.count() as u64 * 4096
    }

    fn used(&mut self) -> u64 {
        let (client, file) = (self.world.client.clone(), self.file);
        self.world.run(async move { client.attributes(&file).await }).unwrap().used
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let before = self.overhead();
        let used = self.used();
        let data = self.blocks.len() as u64 * 4096;
        // A checkpoint may be under way.
        let overhead = before.min(self.overhead())..=before.max(self.overhead());
        prop_assert!(
            overhead.contains(&used.wrapping_sub(data)),
            "{used} bytes: {data} of data and {overhead:?}"
        );
        Ok(())
    }

    fn start(&mut self, op: &Op) -> Rc<std::cell::RefCell<Option<()>>> {
        let (client, file) = (self.world.client.clone(), self.file);
        match op.clone() {
            Op::Commit => self.world.start(async move {
                client.commit(&file, &all_columns(&file)).await.unwrap();
            }),
            Op::Punch { blocks } => self.world.start(async move {
                client.punch(&file, blocks.start * 4096..blocks.end * 4096).await.unwrap();
            }),
            Op::Truncate { size } => self.world.start(async move {
                client.truncate(&file, size).await.unwrap();
            }),
            Op::Checkpoint => {
                let service = self.world.servers[0].server.clone().unwrap();
                let done = Rc::new(std::cell::RefCell::new(None));
                let result = done.clone();
                self.world.servers[0].node.cx().spawn("test", async move {
                    service.flush().await.unwrap();
                    result.replace(Some(()));
                });
                done
            }
            Op::Write { .. } | Op::Restart => unreachable!("not in the middle"),
        }
    }

    /// A cut through a hole makes a block of zeros there: it is between two blocks.
    fn beside_holes(&self, op: Op) -> Op {
        match op {
            Op::Truncate { size } if !self.blocks.contains(&(size / 4096)) => {
                Op::Truncate { size: size.next_multiple_of(4096) }
            }
            op => op,
        }
    }

    fn step(&mut self, (op, turns): Step) -> Result<(), TestCaseError> {
        match self.beside_holes(op) {
            Op::Write { first, bytes } => {
                self.seed += 1;
                let bytes = bytes.min(((BLOCKS - first) * 4096) as usize);
                let mut data = pattern(self.seed, bytes);
                data.iter_mut().for_each(|byte| *byte |= 1);
                self.world.write(&self.file, first * 4096, &data).unwrap();
                self.blocks.extend(first..first + (bytes as u64).div_ceil(4096));
            }
            Op::Restart => {
                self.world.commit(&self.file).unwrap();
                self.world.servers[0].kill();
            }
            op => {
                self.file.truncations += u32::from(matches!(op, Op::Truncate { .. }));
                let done = self.start(&op);
                let changes = matches!(op, Op::Punch { .. } | Op::Truncate { .. });
                if let Some(turns) = turns.filter(|_| !changes) {
                    self.world.turns(turns);
                    self.check()?;
                }
                self.world.until(|| done.borrow().is_some());
                match op {
                    Op::Punch { blocks } => self.blocks.retain(|block| !blocks.contains(block)),
                    Op::Truncate { size } => self.blocks.retain(|block| block * 4096 < size),
                    _ => {}
                }
            }
        }
        self.check()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_block_counts_once_wherever_it_is(
        steps in prop::collection::vec((op(), prop::option::of(0usize..40)), 1..30),
    ) {
        let mut run = Run::new();
        run.step((Op::Write { first: 3, bytes: 9000 }, None))?;
        for step in steps {
            run.step(step)?;
        }
        run.step((Op::Checkpoint, None))?;
    }
}
