//! `trapeze bench nfs`: calls of NFSv3 to a machine of ours and to nfs-ganesha (VFS), with one client, in turns.
//!
//! The client is this thread: it keeps `depth` calls in progress on one connection and blocks in read(2). Processor
//! time is that of all threads of all processes of a server. Last rows have `trapeze filter` beside a bare relay of
//! sockets, and renames between two of four managers beside renames within one.

mod client;
mod load;
mod moves;
mod relayed;
mod renames;
mod run;
mod sides;

use crate::arguments::{Nfs, NfsCalls, Placement};
use crate::protocols::place;
use clap::ValueEnum;
use nfs::limits::OPEN_SPAN;
use relayed::Relayed;
use run::{DEPTHS, Figures, Run};
use rustix::thread::{CpuSet, sched_getaffinity};
use sides::{Ganesha, Ours, PROGRAMS, enter_network};
use std::io;
use std::process::Command;
use terminal::table::{Table, print_json};
use trapeze::scratch::Scratch;

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
    let placements = placements(arguments, &all)?;
    if kinds(arguments).contains(&NfsCalls::Getattr) && placements.contains(&Placement::Same) {
        measure_filter(arguments, all)?;
    }
    if kinds(arguments).contains(&NfsCalls::Rename) {
        renames::measure(arguments, all, &placements)?;
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
