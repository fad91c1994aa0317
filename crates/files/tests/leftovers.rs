//! A move of a column that ends anywhere, and a disk and the names that are lost after it: what it leaves behind never
//! passes for the column.

use crate::common::{Copied, MANAGER, World};
use files::conformance::client::{READ_ONLY, READ_WRITE, pattern};
use names::Who;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, NodeId};

const BYTES: usize = 20_000;

/// Which disk is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Neither,
    Old,
    New,
}

/// How the names are back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Salvaged,
    /// From a copy of before the move.
    Restored,
}

/// The event that ends the move after some turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It goes to its end, and the file is written then.
    Written,
    /// The manager dies.
    Manager,
    /// The server that has the column dies, and the file is written when it is back.
    Old,
    /// The one that gets it.
    New,
}

struct Case {
    world: World,
    file: FileId,
    old: u16,
    new: u16,
    content: Vec<u8>,
    copy: Copied,
}

impl Case {
    /// A file in one column.
    fn new() -> Case {
        let mut world = World::new(3, 1);
        let client = world.client(0);
        let content = pattern(1, 0, BYTES);
        let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
        world.run(Duration::from_secs(1));
        let (_, names) = world.names(0);
        let found = Rc::new(RefCell::new(None));
        let told = found.clone();
        world.block_on_node(100, async move {
            let layout = names.get_attr(file).await.expect("attributes").layout;
            told.replace(layout);
        });
        let old = found.take().expect("a layout").server(0).0;
        let copy = world.copy_names();
        Case { world, file, old, new: 10 + (old - 9) % 3, content, copy }
    }

    /// Moves the column, until something ends that after some turns.
    fn run(&mut self, end: End, turns: usize) {
        let (file, to) = (self.file, NodeId(self.new));
        let (cx, names) = self.world.names(0);
        cx.spawn("mover", async move {
            let _ = names.move_column(&Who::ROOT, file, 0, to, 0).await;
        });
        (0..turns).for_each(|_| self.world.turn());
        match end {
            End::Written => self.world.run(Duration::from_millis(300)),
            End::Manager => self.world.restart(MANAGER),
            End::Old | End::New => {
                let id = if end == End::Old { self.old } else { self.new };
                self.world.kill(id);
                self.world.run(Duration::from_millis(300));
                self.world.start(id);
            }
        }
        if end != End::Manager || turns.is_multiple_of(2) {
            self.write();
        }
        self.world.run(Duration::from_millis(200));
    }

    /// Other bytes come in their place, fsynced.
    fn write(&mut self) {
        self.content = pattern(2, 0, BYTES);
        let (client, file) = (self.world.client(0), self.file);
        let content = self.content.clone();
        self.world
            .block_on(async move {
                let open = client.open(file, READ_WRITE).await?;
                client.write(open, 0, &content).await?;
                client.fsync(open).await?;
                client.close(open).await
            })
            .expect("written");
    }

    /// One of the disks is lost, and the names are; what is read when they are back.
    fn read_after(mut self, lost: Lost, names: Names) -> Result<Vec<u8>, Errno> {
        let gone = match lost {
            Lost::Neither => None,
            Lost::Old => Some(self.old),
            Lost::New => Some(self.new),
        };
        self.world.kill(MANAGER);
        self.world.restart(100);
        for id in 10..13 {
            self.world.kill(id);
            if gone == Some(id) {
                self.world.empty_disk(id);
            }
            self.world.start(id);
        }
        let lacks = match names {
            Names::Restored => {
                self.world.restore_names(&self.copy);
                None
            }
            Names::Salvaged => Some(self.salvage()),
        };
        let (client, file) = (self.world.client(0), self.file);
        let read = self.world.block_on(async move {
            let open = client.open(file, READ_ONLY).await?;
            let bytes = client.read(open, 0, BYTES + 1).await;
            client.close(open).await?;
            bytes
        });
        // A file that cannot be read must be reported.
        let is_told = lacks.is_none_or(|lacks| lacks == read.is_err());
        if is_told { read } else { Ok(Vec::new()) }
    }

    /// Salvages the names; whether it says that something is missing, or there was not one object.
    fn salvage(&mut self) -> bool {
        self.world.lose_names();
        let ((cx, names), stripe) = (self.world.names(0), self.world.stripe(0));
        let lacks = Rc::new(Cell::new(false));
        let told = lacks.clone();
        self.world.block_on_node(100, async move {
            let report = files::salvage::salvage(&cx, &names, &stripe, &|_| ()).await;
            let report = report.expect("salvaged");
            let found = report.made.len() + report.left.len();
            told.set(report.problems() > 0 || found as u64 + report.empty == 0);
        });
        lacks.get()
    }
}

/// Errors in the result, if any.
fn wrong(end: End, turns: usize, lost: Lost, names: Names) -> Option<String> {
    let mut case = Case::new();
    case.run(end, turns);
    let content = case.content.clone();
    let read = case.read_after(lost, names);
    let is_right = match &read {
        Ok(bytes) => *bytes == content,
        Err(_) => lost != Lost::Neither,
    };
    let read = read.map(|bytes| (bytes.len(), bytes.iter().all(|byte| *byte == 0)));
    let said = || format!("{end:?} after {turns}, {lost:?} lost, {names:?}: {read:?}");
    (!is_right).then(said)
}

const ENDS: [End; 4] = [End::Written, End::Manager, End::Old, End::New];
const LOST: [Lost; 3] = [Lost::Neither, Lost::Old, Lost::New];
/// A move takes fewer turns.
const TURNS: usize = 60;

fn check(cases: impl Iterator<Item = (End, usize, Lost, Names)>) {
    let wrong = cases.filter_map(|(end, turns, lost, names)| wrong(end, turns, lost, names));
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{} of them: {wrong:#?}", wrong.len());
}

#[test]
fn what_a_move_leaves_never_passes_for_the_column() {
    let cases = ENDS.into_iter().flat_map(|end| {
        (0..TURNS).step_by(4).map(move |turns| {
            let names = if turns % 8 == 0 { Names::Salvaged } else { Names::Restored };
            (end, turns, LOST[turns / 8 % 3], names)
        })
    });
    check(cases);
}

#[test]
#[ignore = "a minute; part of cargo xtask soak"]
fn what_a_move_leaves_never_passes_for_the_column_wherever_it_ends() {
    let cases = ENDS.into_iter().flat_map(|end| (0..TURNS).map(move |turns| (end, turns)));
    let with_lost = cases.flat_map(|(end, turns)| LOST.map(|lost| (end, turns, lost)));
    let names = [Names::Salvaged, Names::Restored];
    check(with_lost.flat_map(|(end, turns, lost)| names.map(|names| (end, turns, lost, names))));
}
