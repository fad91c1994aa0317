//! `trapeze bench nfs`: calls of NFSv3 to a machine of ours and to nfs-ganesha (VFS), with one client, in turns.
//!
//! The client is this thread: it keeps `depth` calls in progress on one connection and blocks in read(2). Processor
//! time is that of all threads of all processes of a server. A last row has `trapeze filter` beside a bare relay of
//! sockets.

mod client;
mod load;
mod relayed;
mod sides;

use crate::arguments::{Nfs, NfsCalls, Placement};
use crate::pass::median;
use crate::protocols::place;
use clap::ValueEnum;
use live::clock;
use nfs::limits::OPEN_SPAN;
use relayed::Relayed;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde_json::json;
use sides::{Ganesha, Ours, PROGRAMS, Side, enter_network};
use std::io;
use std::process::Command;
use terminal::table::{Table, print_json};
use trapeze::scratch::Scratch;

const DEPTHS: [usize; 2] = [1, 16];

/// Results of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    per_s: f64,
    p99_us: f64,
    /// Of the server, for each call.
    cpu_us: f64,
}

/// A row of the table: the rounds of each side.
struct Cell {
    what: &'static str,
    kind: NfsCalls,
    placement: Placement,
    depth: usize,
    names: Vec<&'static str>,
    rounds: Vec<Vec<Figures>>,
}

impl Cell {
    fn median(&self, side: usize, figure: fn(&Figures) -> f64) -> f64 {
        median(self.rounds[side].iter().map(figure).collect())
    }

    /// The median over the rounds of ours to the first of theirs.
    fn ratio(&self, figure: fn(&Figures) -> f64) -> Option<f64> {
        let theirs = self.rounds.get(1)?;
        let pairs = self.rounds[0].iter().zip(theirs);
        Some(median(pairs.map(|(ours, theirs)| figure(ours) / figure(theirs)).collect()))
    }

    fn cells(&self) -> Vec<String> {
        let text = |side: usize, figure, digits: usize| match side < self.rounds.len() {
            true => format!("{:.digits$}", self.median(side, figure)),
            false => "-".to_string(),
        };
        let ratio =
            |figure| self.ratio(figure).map_or("-".to_string(), |ratio| format!("{ratio:.2}"));
        let placement = self.placement.to_possible_value().expect("none is hidden");
        let what = format!("{}, {}, {}", self.kind.name(), placement.get_name(), self.depth);
        let rates = (0..3).map(|side| text(side, |f| f.per_s, 0));
        let cpu = (0..2).map(|side| text(side, |f| f.cpu_us, 1));
        let late = (0..2).map(|side| text(side, |f| f.p99_us, 0));
        let mut cells: Vec<String> = [what].into_iter().chain(rates).collect();
        cells.push(ratio(|f| f.per_s));
        cells.extend(cpu);
        cells.push(ratio(|f| 1.0 / f.cpu_us));
        cells.extend(late);
        cells
    }

    fn json(&self) -> serde_json::Value {
        let placement = self.placement.to_possible_value().expect("none is hidden");
        let sides = self.names.iter().enumerate().map(|(side, name)| {
            json!({ "server": name, "calls_per_s": self.median(side, |f| f.per_s),
                "p99_us": self.median(side, |f| f.p99_us), "server_cpu_us": self.median(side, |f| f.cpu_us) })
        });
        json!({ "name": self.what, "kind": self.kind.name(), "placement": placement.get_name(), "depth": self.depth,
            "servers": sides.collect::<Vec<_>>(), "rate_ratio": self.ratio(|f| f.per_s),
            "calls_per_cpu_second_ratio": self.ratio(|f| 1.0 / f.cpu_us) })
    }
}

/// All that is measured, and how far it has come.
struct Run<'a> {
    what: &'static str,
    arguments: &'a Nfs,
    all: CpuSet,
    sides: Vec<&'a mut Side>,
    /// Names of CREATE so far.
    made: usize,
}

impl Run<'_> {
    /// CREATE's names go by REMOVE, which follows it with the same numbers.
    fn cell(&mut self, kind: NfsCalls, placement: Placement, depth: usize) -> io::Result<Cell> {
        let rounds = self.arguments.rounds as usize;
        let count = kind.count((self.arguments.count / self.arguments.rounds).max(1) as usize);
        let names = self.sides.iter().map(|side| side.name).collect();
        let (what, none) = (self.what, vec![Vec::new(); self.sides.len()]);
        let mut cell = Cell { what, kind, placement, depth, names, rounds: none };
        let (client, server) = placement.sets(&self.all);
        for round in 0..rounds {
            for (side, figures) in self.sides.iter_mut().zip(&mut cell.rounds) {
                side.place(&server)?;
                place(None, &client)?;
                figures.push(measured(side, kind, depth, (self.made + round * count, count))?);
            }
        }
        self.made += if kind == NfsCalls::Remove { rounds * count } else { 0 };
        Ok(cell)
    }
}

fn measured(
    side: &mut Side,
    kind: NfsCalls,
    depth: usize,
    range: (usize, usize),
) -> io::Result<Figures> {
    let Side { client, tree, .. } = side;
    if !matches!(kind, NfsCalls::Create | NfsCalls::Remove) {
        // The first ones wake it, and bring its memory into the caches.
        tree.calls(client, kind, depth, (0, range.1 / 10 + 1))?;
    }
    let (cpu, start) = (side.cpu(), clock::now());
    let times = side.tree.calls(&mut side.client, kind, depth, range)?;
    let (elapsed, cpu) = (clock::now().since(start), side.cpu().saturating_sub(cpu));
    Ok(Figures {
        per_s: range.1 as f64 / elapsed.as_secs_f64(),
        p99_us: times.value_at_quantile(0.99) as f64 / 1e3,
        cpu_us: cpu.as_secs_f64() * 1e6 / range.1 as f64,
    })
}

/// Measures and prints a row for each kind, placement and depth.
pub fn measure(arguments: &Nfs) -> io::Result<()> {
    let ganesha = PROGRAMS.iter().all(|program| is_installed(program))
        && rustix::process::geteuid().is_root();
    if ganesha && !arguments.inside {
        return in_a_namespace();
    }
    if !ganesha {
        println!(
            "without nfs-ganesha: as root, with nfs-ganesha-vfs and rpcbind installed (Debian), it is compared with"
        );
    }
    if arguments.inside {
        enter_network()?;
    }
    let scratch = Scratch::new(None, false)?.removed_at_interrupt()?;
    let mut ours = match arguments.node {
        true => Ours::node(scratch.path())?,
        false => Ours::machine(scratch.path())?,
    };
    let mut theirs = if ganesha { Some(Ganesha::start(scratch.path())?) } else { None };
    let mut sides = vec![&mut ours.side];
    sides.extend(theirs.iter_mut().flat_map(|theirs| &mut theirs.sides));
    let all = sched_getaffinity(None)?;
    let mut run = Run { what: "nfs", arguments, all, sides, made: 0 };
    let mut table = Table::new(&[
        "calls: kind, placement, depth",
        "calls/s",
        "synced",
        "not synced",
        "ratio",
        "CPU us",
        "synced",
        "ratio",
        "p99 us",
        "synced",
    ]);
    for placement in placements(arguments, &run.all)? {
        for depth in DEPTHS {
            for kind in kinds(arguments) {
                let cell = run.cell(kind, placement, depth)?;
                if arguments.json {
                    print_json(&cell.json());
                }
                table.row(&cell.cells());
            }
        }
    }
    if !arguments.json {
        print!("{}", table.render());
    }
    drop(run);
    drop((ours, theirs));
    let is_asked = kinds(arguments).contains(&NfsCalls::Getattr);
    if is_asked && placements(arguments, &all)?.contains(&Placement::Same) {
        measure_filter(arguments, all)?;
    }
    Ok(())
}

/// A GETATTR that a manager executes, through `trapeze filter` and through a bare relay, all on one processor.
fn measure_filter(arguments: &Nfs, all: CpuSet) -> io::Result<()> {
    let (placement, depth) = (Placement::Same, 1);
    place(None, &placement.sets(&all).0)?;
    let scratch = Scratch::new(None, false)?.removed_at_interrupt()?;
    let mut relayed = Relayed::start(scratch.path())?;
    // the filter executes what concerns its open files itself: the tree was just written through it
    std::thread::sleep(OPEN_SPAN * 2);
    let sides = relayed.sides.iter_mut().collect();
    let mut run = Run { what: "nfs filter", arguments, all, sides, made: 0 };
    let cell = run.cell(NfsCalls::Getattr, placement, depth)?;
    if arguments.json {
        print_json(&cell.json());
        return Ok(());
    }
    let mut table = Table::new(&[
        "calls",
        "filter/s",
        "relay/s",
        "filter's time to relay's",
        "p99 us",
        "relay",
    ]);
    let number = |side, figure, digits: usize| format!("{:.digits$}", cell.median(side, figure));
    let ratio = cell.ratio(|f| 1.0 / f.per_s).expect("there are two sides");
    table.row(&[
        "GETATTR, same, 1".to_string(),
        number(0, |f: &Figures| f.per_s, 0),
        number(1, |f| f.per_s, 0),
        format!("{ratio:.2}"),
        number(0, |f| f.p99_us, 0),
        number(1, |f| f.p99_us, 0),
    ]);
    print!("\n{}", table.render());
    Ok(())
}

/// In their order: REMOVE takes what CREATE made.
fn kinds(arguments: &Nfs) -> Vec<NfsCalls> {
    let asked = |kind: &NfsCalls| arguments.kinds.is_empty() || arguments.kinds.contains(kind);
    NfsCalls::value_variants().iter().copied().filter(asked).collect()
}

fn placements(arguments: &Nfs, all: &CpuSet) -> io::Result<Vec<Placement>> {
    let placements = match arguments.placements.is_empty() {
        true => vec![Placement::Same, Placement::Apart],
        false => arguments.placements.clone(),
    };
    if !all.is_set(0) || (placements.contains(&Placement::Apart) && !all.is_set(1)) {
        return Err(io::Error::other("processors 0 and 1 are needed, or --placement free"));
    }
    Ok(placements)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Runs the same command with a network and mounts of its own: nfs-ganesha wants rpcbind, which is one for a network.
fn in_a_namespace() -> io::Result<()> {
    let mut arguments = std::env::args_os();
    arguments.next();
    let program = std::env::current_exe()?;
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--"])
        .arg(program)
        .args(arguments)
        .arg("--inside")
        .status()?;
    match status.success() {
        true => Ok(()),
        false => Err(io::Error::other("nothing was measured")),
    }
}
