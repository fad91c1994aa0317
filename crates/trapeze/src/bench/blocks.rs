//! `trapeze bench blocks`: 8 KiB of a file that is in another node's memory and not in its I/O server's, read through a
//! mount, beside reads of the server's disk past all memory, and beside a page of 8 KiB that a program faults in from a
//! peer.
//!
//! The I/O server has next to no cache and lends little; the manager's node lends enough for the whole file. The file
//! is read through until the server's disk is left alone; then blocks are read one at a time at places that nothing
//! guesses.

use super::pass::{Meter, Pass};
use super::regions::{RegionsError, faults_from_peer};
use super::row::Row;
use crate::cli::{BlocksBench, RegionBench};
use crate::config::Memory;
use crate::local::{LocalCluster, LocalError, Shape};
use crate::scratch::{Processes, Scratch};
use crate::size::Size;
use crate::table::{Table, print_json};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BLOCK_BYTES: usize = 8192;
/// Measured in turns with the baseline.
const ROUNDS: u64 = 8;
/// The I/O server's cache, and what it lends: the least.
const LITTLE: Size = Size(16 << 20);
const POOL: Size = Size(128 << 20);
/// Times that the file is read to bring it into memory, with a pause between: a new member has its full part of what
/// leaves after 30 s.
const PASSES: usize = 6;
const PASS_PAUSE: Duration = Duration::from_secs(10);
/// Pause after each MiB: at the disk's rate more would leave the server than a busy machine carries to its neighbour.
const PART_PAUSE: Duration = Duration::from_millis(10);

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    /// The cluster.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// Pages from a peer.
    #[error(transparent)]
    Regions(#[from] RegionsError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The program printed something else.
    #[error("trapeze status: {0}")]
    Status(#[from] serde_json::Error),
}

/// Measures and prints.
pub fn measure(arguments: &BlocksBench) -> Result<(), BlocksError> {
    let scratch = Scratch::new(arguments.dir.as_deref(), false)?.removed_at_interrupt()?;
    let mut cluster = start(scratch.path(), arguments.size)?;
    cluster.mount()?;
    let file = cluster.mount_point().join("blocks");
    write(&file, arguments.size)?;
    bring_in(&mut cluster, &file)?;
    let before = Counts::of(&cluster)?;
    let (through_mount, disk) = read_in_turns(&cluster, &file, arguments)?;
    let counts = Counts::of(&cluster)?.since(&before);
    cluster.stop()?;
    let page = RegionBench { page: BLOCK_BYTES, ..arguments.region() };
    let library = faults_from_peer(&page, scratch.path())?;
    report(arguments, &through_mount, &disk, library, &counts);
    Ok(())
}

/// A manager that lends enough for `size` bytes, and an I/O server that keeps little.
fn start(dir: &Path, size: Size) -> Result<Processes, LocalError> {
    let little = Memory { pool: POOL, cache: LITTLE, lend: Some(LITTLE), ..Memory::default() };
    let shape = Shape { memory: little, ..Shape::of(1) };
    let mut local = LocalCluster::open_or_create(&dir.join("cluster"), &shape)?;
    local.machines[0].memory.lend = Some(Size(size.0 * 5 / 4));
    local.machines[0].save(&local.config_of(&local.machines[0]))?;
    drop(local);
    Processes::start(dir, &shape, None)
}

fn write(path: &Path, size: Size) -> io::Result<()> {
    let mut file = File::create(path)?;
    for part in 0..size.0 >> 20 {
        let words = (0..1 << 17).map(|at| wire::mix(part << 20 | at).to_le_bytes());
        file.write_all(&words.flatten().collect::<Vec<u8>>())?;
    }
    file.sync_all()
}

/// Reads the file until its server finds it in memory, each time by a mount that knows nothing of it.
fn bring_in(cluster: &mut Processes, path: &Path) -> io::Result<()> {
    let bar = crate::progress::steps("reading", PASSES as u64);
    for _ in 0..PASSES {
        remount(cluster)?;
        let (mut file, mut part) = (File::open(path)?, vec![0; 1 << 20]);
        while file.read(&mut part)? > 0 {
            std::thread::sleep(PART_PAUSE);
        }
        bar.inc(1);
        std::thread::sleep(PASS_PAUSE);
    }
    bar.finish_and_clear();
    remount(cluster)
}

fn remount(cluster: &mut Processes) -> io::Result<()> {
    cluster.unmount()?;
    cluster.mount()
}

/// Blocks of the mount's file and of the server's, in turns: each at most once.
fn read_in_turns(
    cluster: &Processes,
    path: &Path,
    arguments: &BlocksBench,
) -> io::Result<(Pass, Pass)> {
    let (file, disk) = (File::open(path)?, open_direct(&largest(cluster.cluster().dir())?)?);
    let blocks = (arguments.size.0 / BLOCK_BYTES as u64).next_power_of_two() / 2;
    let each = (arguments.count / ROUNDS).min(blocks / ROUNDS).max(1);
    let (mut of_file, mut of_disk) = (Meter::start(), Meter::start());
    let mut buffer = Aligned::new();
    for number in 0..each * ROUNDS {
        // an odd factor visits every block of a power of two once
        let offset = number.wrapping_mul(0x9e37_79b1) % blocks * BLOCK_BYTES as u64;
        of_file.time(|| file.read_exact_at(buffer.bytes(), offset).map(|()| BLOCK_BYTES as u64))?;
        if number % each != each - 1 {
            continue;
        }
        for number in number + 1 - each..=number {
            let offset = number.wrapping_mul(0x85eb_ca6b) % blocks * BLOCK_BYTES as u64;
            of_disk
                .time(|| disk.read_exact_at(buffer.bytes(), offset).map(|()| BLOCK_BYTES as u64))?;
        }
    }
    Ok((of_file.end(), of_disk.end()))
}

fn open_direct(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// The largest file below a directory: the object.
fn largest(dir: &Path) -> io::Result<PathBuf> {
    let mut best = (0, PathBuf::new());
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let (path, found) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
            if found.is_dir() {
                folders.push(path);
            } else if found.len() > best.0 {
                best = (found.len(), path);
            }
        }
    }
    Ok(best.1)
}

/// A block's memory as O_DIRECT wants it (open(2)).
struct Aligned(Vec<u8>);

impl Aligned {
    fn new() -> Aligned {
        Aligned(vec![0; BLOCK_BYTES + 4096])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(4096);
        &mut self.0[start..start + BLOCK_BYTES]
    }
}

/// What the I/O server did.
struct Counts {
    from_memory: u64,
    disk_reads: u64,
}

impl Counts {
    fn of(cluster: &Processes) -> Result<Counts, BlocksError> {
        let mut status = Command::new(std::env::current_exe()?);
        let output = status.args(["status", "--cluster", &cluster.target(), "--json"]).output()?;
        let mut counts = Counts { from_memory: 0, disk_reads: 0 };
        for value in serde_json::Deserializer::from_slice(&output.stdout).into_iter() {
            counts.add(&value?);
        }
        Ok(counts)
    }

    fn add(&mut self, value: &serde_json::Value) {
        let number = |name| value.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
        self.from_memory += number("network_hits");
        self.disk_reads += number("disk_reads");
        match value {
            serde_json::Value::Array(values) => values.iter().for_each(|value| self.add(value)),
            serde_json::Value::Object(fields) => fields.values().for_each(|value| self.add(value)),
            _ => (),
        }
    }

    fn since(&self, before: &Counts) -> Counts {
        Counts {
            from_memory: self.from_memory - before.from_memory,
            disk_reads: self.disk_reads - before.disk_reads,
        }
    }
}

fn report(
    arguments: &BlocksBench,
    mount: &Pass,
    disk: &Pass,
    library: (f64, f64),
    counts: &Counts,
) {
    let measured = [
        ("library", "page fault, peer over shared memory, both spin", library),
        ("mount", "file behind a mount, peer of its server", (mount.p50_us, mount.p99_us)),
    ];
    if arguments.json {
        measured.iter().for_each(|(name, _, times)| print_json(&row(name, *times, disk)));
        return;
    }
    let mut table = Table::new(&["8 KiB, depth 1", "p50 us", "p99 us", "to the disk"]);
    let mut line = |name: &str, (p50, p99): (f64, f64)| {
        let ratio = format!("{:.2}", p50 / disk.p50_us);
        table.row(&[name.to_string(), format!("{p50:.1}"), format!("{p99:.1}"), ratio]);
    };
    line("disk, O_DIRECT", (disk.p50_us, disk.p99_us));
    measured.iter().for_each(|(_, name, times)| line(name, *times));
    print!("{}", table.render());
    println!(
        "of {} reads through the mount {} chunks came from network memory, {} from the disk",
        mount.ops, counts.from_memory, counts.disk_reads
    );
}

fn row(op: &'static str, (p50_us, p99_us): (f64, f64), disk: &Pass) -> Row {
    let rates = [p50_us, disk.p50_us].map(|us| 1e6 / us);
    let mb = |rate: f64| rate * BLOCK_BYTES as f64 / 1e6;
    Row {
        name: "block in a peer's memory",
        op,
        link: "shm",
        wait: if op == "library" { "spin" } else { "adaptive" }.into(),
        depth: 1,
        cpus: String::new(),
        processes: if op == "library" { 2 } else { 4 },
        bytes: BLOCK_BYTES as u64,
        p50_us,
        p99_us,
        ops_per_s: rates[0],
        mb_per_s: mb(rates[0]),
        baseline_p50_us: disk.p50_us,
        baseline_ops_per_s: rates[1],
        baseline_mb_per_s: mb(rates[1]),
        ratio: p50_us / disk.p50_us,
    }
}
