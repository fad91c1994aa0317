//! A program on a mount of the striping client that reads files which applications on NFS write: an open sees what was
//! committed over NFS before it began.

use super::bytes::{CELL_BYTES, CELLS, check};
use super::shared::Shared;
use crate::queue::Picos;
use crate::random::Random;
use crate::world::World;
use node::rings::{Caller, FileDone, FileOp, FileReply, FileRequest, Handle};
use wire::{Errno, FileId, NodeId};

/// Operations of visitors have this bit in their numbers.
const VISIT: u64 = 1 << 61;
/// Longest pause between two visits.
const PAUSE_US_MAX: u64 = 100_000;

/// A cell of an application's file, and when the open began that it is read through.
#[derive(Clone, Copy, Debug)]
struct Visit {
    of: usize,
    file: u64,
    cell: usize,
    begun: Picos,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(Visit),
    Read(Visit, Handle),
    Release,
}

/// The program.
#[derive(Debug)]
pub struct Visitor {
    mount: NodeId,
    /// The incarnation of the mount that was asked last.
    boot: u32,
    random: Random,
    asked: Option<(u64, Step)>,
    next: u64,
}

impl Visitor {
    /// On this mount.
    pub fn new(seed: u64, mount: NodeId) -> Visitor {
        let random = Random::new(seed, &format!("visitor {}", mount.0));
        Visitor { mount, boot: 0, random, asked: None, next: VISIT }
    }

    /// Whether an operation with this number is a visitor's.
    pub fn is_visit(front: u64) -> bool {
        front & VISIT != 0
    }

    /// The mount.
    pub fn mount(&self) -> NodeId {
        self.mount
    }

    /// How long to wait before the next visit.
    pub fn pause(&mut self) -> Picos {
        Picos::micros(self.random.below(PAUSE_US_MAX))
    }

    /// Begins a visit, unless one is under way in this incarnation of the mount.
    pub fn begin(&mut self, shared: &Shared, world: &mut World) {
        let boot = world.machine(self.mount).boot;
        if self.asked.is_some() && self.boot == boot || !world.is_up(self.mount) {
            return;
        }
        let written = shared.others(usize::MAX);
        if written.is_empty() {
            return;
        }
        let of = *self.random.pick(&written);
        let files: Vec<u64> = shared.files(of).keys().copied().collect();
        let file = *self.random.pick(&files);
        let visit = Visit { of, file, cell: self.random.index(CELLS), begun: world.now() };
        self.boot = boot;
        self.ask(Step::Open(visit), FileOp::Open { file: FileId(file), flags: 0 }, world);
    }

    fn ask(&mut self, step: Step, op: FileOp, world: &mut World) {
        let front = self.next;
        self.next += 1;
        let request = FileRequest { front, caller: Caller::default(), op };
        self.asked = world.ask(self.mount, request).is_ok().then_some((front, step));
    }

    /// An operation has ended. The error names the violation.
    pub fn done(
        &mut self,
        done: FileDone,
        shared: &mut Shared,
        is_troubled: bool,
        world: &mut World,
    ) -> Result<(), String> {
        // Others are of the incarnation before.
        let Some((_, step)) = self.asked.take_if(|(front, _)| *front == done.front) else {
            return Ok(());
        };
        match (step, done.result) {
            (Step::Open(visit), Ok(FileReply::Opened { handle, .. })) => {
                let offset = (visit.cell * CELL_BYTES) as u64;
                let (file, bytes) = (FileId(visit.file), CELL_BYTES as u32);
                let op = FileOp::Read { file, handle, offset, bytes };
                self.ask(Step::Read(visit, handle), op, world);
                Ok(())
            }
            (Step::Read(visit, handle), result) => {
                let read = read(visit, result, shared, is_troubled);
                let op = FileOp::Release { file: FileId(visit.file), handle, owner: None };
                self.ask(Step::Release, op, world);
                read.map_err(|what| format!("a program on mount {}: {what}", self.mount.0))
            }
            (Step::Release, _) | (_, Err(Errno::ESTALE)) => Ok(()),
            (_, Err(_)) if is_troubled => Ok(()),
            (step, result) => Err(format!("{step:?} on mount {}: {result:?}", self.mount.0)),
        }
    }
}

fn read(
    visit: Visit,
    result: Result<FileReply, Errno>,
    shared: &mut Shared,
    is_troubled: bool,
) -> Result<(), String> {
    let Visit { of, file, cell, begun } = visit;
    match result {
        Ok(FileReply::Data { frames, bytes }) => {
            let mut data: Vec<u8> = frames.iter().flat_map(|frame| frame.to_vec()).collect();
            data.truncate(bytes);
            shared.succeeded += 1;
            // It may be removed meanwhile.
            let Some(known) = shared.files(of).get(&file) else { return Ok(()) };
            check(file, cell, &known.others(cell, begun), &data)
        }
        Err(Errno::ESTALE) => Ok(()),
        Err(_) if is_troubled => Ok(()),
        result => Err(format!("{visit:?}: {result:?}")),
    }
}
