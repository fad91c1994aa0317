//! A rename between two of four managers beside one within a manager, in one cluster: through `trapeze nfs`, which
//! answers when it is on stable storage, and through a mount, with an fsync of the directory.

use super::run::{Cell, DEPTHS, Figures, Run};
use super::sides::{Side, processor_time, start_node};
use crate::arguments::{Nfs, NfsCalls, Placement};
use crate::pass::histogram;
use crate::protocols::place;
use live::clock;
use rustix::thread::CpuSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::children::Process;
use trapeze::client::Reach;
use trapeze::local::Shape;
use trapeze::scratch::{Processes, Scratch};
use trapeze::volume::Volume;
use wire::{NodeId, SITES, Sites};

const MANAGERS: u16 = 4;
/// Directories that are made: enough that one manager has two of them, and another one any.
const DIRECTORIES: usize = 24;
/// The managers have shared the sites by then.
const SHARED_WITHIN: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// The cluster with what calls it.
struct Renames {
    cluster: Processes,
    _node: Process,
    /// Between two managers, then within one.
    sides: [Side; 2],
    /// The directories of both, in the mount.
    mounted: [[PathBuf; 2]; 2],
}

impl Renames {
    fn start(dir: &Path) -> io::Result<Renames> {
        let shape = Shape { managers: MANAGERS, ..Shape::prefaulted(1) };
        let mut cluster = Processes::start(dir, &shape, None).map_err(io::Error::other)?;
        let reach = Reach { cluster: cluster.target(), key: None, insecure: false };
        let mut volume = reach.volume("bench").map_err(io::Error::other)?;
        let sites = shared(&mut volume)?;
        let (node, port) = start_node("nfs", &cluster, dir)?;
        let names = directories(&mut volume, &sites)?;
        volume.close()?;
        cluster.mount()?;
        let ids = || cluster.ids().into_iter().chain([node.id()]).collect();
        let side = |what, [from, to]: [&str; 2]| {
            Side::renaming(what, (port, port), "/", ids(), [from, to])
        };
        let [one, other, third] = &names;
        let pairs = [[one, third], [one, other]].map(|pair| pair.map(String::as_str));
        let sides = [side("between", pairs[0])?, side("within", pairs[1])?];
        let mounted = pairs.map(|pair| pair.map(|name| cluster.mount_point().join(name)));
        Ok(Renames { cluster, _node: node, sides, mounted })
    }
}

/// Where sites are, when each manager has its share.
fn shared(volume: &mut Volume) -> io::Result<Sites> {
    let end = clock::now() + SHARED_WITHIN;
    loop {
        let sites = volume.sites().map_err(io::Error::other)?;
        let share = |manager: NodeId| sites.of(manager).count() == SITES / usize::from(MANAGERS);
        if sites.managers().into_iter().all(share) {
            return Ok(sites);
        }
        if clock::now() > end {
            return Err(io::Error::other("the managers do not share the names"));
        }
        volume.pause(PAUSE).map_err(io::Error::other)?;
    }
}

/// Makes directories; two of one manager, and one of another, none of them the first manager's.
fn directories(volume: &mut Volume, sites: &Sites) -> io::Result<[String; 3]> {
    let mut made = Vec::new();
    for number in 0..DIRECTORIES {
        let name = format!("directory-{number}");
        let path = Path::new("/").join(&name);
        volume.make_directory(&path, 0o777).map_err(io::Error::other)?;
        let file = volume.stat(&path).map_err(io::Error::other)?.file;
        made.push((sites.manager_of(file), name));
    }
    let first = sites.get(0).manager;
    let mut elsewhere = made.into_iter().filter(|(manager, _)| *manager != first);
    let (one, name) = elsewhere.next().ok_or_else(few)?;
    let (same, other): (Vec<_>, Vec<_>) = elsewhere.partition(|(manager, _)| *manager == one);
    let name_of = |of: Vec<(NodeId, String)>| of.into_iter().next().map(|(_, name)| name);
    Ok([name, name_of(same).ok_or_else(few)?, name_of(other).ok_or_else(few)?])
}

fn few() -> io::Error {
    io::Error::other("the directories are at too few managers")
}

/// Measures and prints a row for each placement and depth through NFS, and one through a mount.
pub fn measure(arguments: &Nfs, all: CpuSet, placements: &[Placement]) -> io::Result<()> {
    place(None, &all)?;
    let scratch = Scratch::new(None, false)?.removed_at_interrupt()?;
    let mut renames = Renames::start(scratch.path())?;
    let mut cells = Vec::new();
    for placement in placements {
        for depth in DEPTHS {
            let sides = renames.sides.iter_mut().collect();
            let what = "nfs rename";
            let mut run = Run { what, arguments, all, sides, made: 0 };
            cells.push(("NFS", run.cell(NfsCalls::Rename, *placement, depth)?));
        }
        cells.push(("mount", through_a_mount(arguments, &renames, *placement, &all)?));
    }
    renames.cluster.unmount()?;
    show(arguments, &cells);
    Ok(())
}

/// Renames one file to and fro, each followed by an fsync of the directory that it came to.
fn through_a_mount(
    arguments: &Nfs,
    renames: &Renames,
    placement: Placement,
    all: &CpuSet,
) -> io::Result<Cell> {
    let kind = NfsCalls::Rename;
    let count = kind.count(arguments);
    let (what, names) = ("mount rename", renames.sides.iter().map(|side| side.name).collect());
    let rounds = vec![Vec::new(); renames.mounted.len()];
    let mut cell = Cell { what, kind, placement, depth: 1, names, rounds };
    let ids = renames.cluster.ids();
    let (client, server) = placement.sets(all);
    ids.iter().try_for_each(|id| place(Some(*id), &server))?;
    place(None, &client)?;
    for _ in 0..arguments.rounds {
        for (directories, figures) in renames.mounted.iter().zip(&mut cell.rounds) {
            figures.push(moved(directories, count, &ids)?);
        }
    }
    Ok(cell)
}

fn moved(directories: &[PathBuf; 2], count: usize, ids: &[u32]) -> io::Result<Figures> {
    let paths = directories.each_ref().map(|directory| directory.join("moved"));
    let opened = [File::open(&directories[0])?, File::open(&directories[1])?];
    File::create(&paths[0])?;
    let rename = |number: usize| {
        let from = number % 2;
        std::fs::rename(&paths[from], &paths[1 - from])?;
        opened[1 - from].sync_all()
    };
    (0..count.div_ceil(10) * 2).try_for_each(rename)?;
    let mut times = histogram();
    let (cpu, start) = (processor_time(ids), clock::now());
    for number in 0..count {
        let begun = clock::now();
        rename(number)?;
        times.saturating_record(clock::now().since(begun).as_nanos() as u64);
    }
    let (elapsed, cpu) = (clock::now().since(start), processor_time(ids).saturating_sub(cpu));
    std::fs::remove_file(&paths[count % 2])?;
    Ok(Figures::of(count, elapsed, cpu, &times))
}

fn show(arguments: &Nfs, cells: &[(&'static str, Cell)]) {
    if arguments.json {
        return cells.iter().for_each(|(_, cell)| print_json(&cell.json()));
    }
    let mut table = Table::new(&[
        "renames: through, placement, depth",
        "between/s",
        "within/s",
        "time, between to within",
        "CPU us",
        "within",
        "p99 us",
        "within",
    ]);
    for (through, cell) in cells {
        let number =
            |side, figure, digits: usize| format!("{:.digits$}", cell.median(side, figure));
        let ratio = cell.ratio(|f| 1.0 / f.per_s).expect("there are two sides");
        table.row(&[
            format!("{through}, {}, {}", cell.place(), cell.depth),
            number(0, |f: &Figures| f.per_s, 0),
            number(1, |f| f.per_s, 0),
            format!("{ratio:.2}"),
            number(0, |f| f.cpu_us, 1),
            number(1, |f| f.cpu_us, 1),
            number(0, |f| f.p99_us, 0),
            number(1, |f| f.p99_us, 0),
        ]);
    }
    print!("\n{}", table.render());
}
