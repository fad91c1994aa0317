//! `trapeze bench blocks`: 8 KiB of a file that is in another node's memory and not in its I/O server's, read through a
//! mount, beside reads of the server's disk past all memory, and beside a page of 8 KiB that a program faults in from a
//! peer.
//!
//! The I/O server has next to no cache and lends little; the manager's node lends enough for the whole file. The file
//! is read through until the server's disk is left alone, then another one, which takes the cache; then blocks are read
//! one at a time at places that nothing guesses. Where they did not come from network memory, as the server counts,
//! there is no result.

use super::direct::{Aligned, BLOCK_BYTES, open_direct};
use super::pass::{Meter, Pass};
use super::protocols::{only, place};
use super::regions::{RegionsError, faults_from_peer};
use super::row::Row;
use crate::arguments::{BlocksBench, RegionBench};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::config::Memory;
use trapeze::local::{LocalCluster, LocalError, Shape};
use trapeze::scratch::{Processes, Scratch};
use trapeze::size::Size;

/// Bytes that an I/O server keeps and sends away in one piece.
const CHUNK_BYTES: u64 = stripe::limits::CHUNK_BYTES as u64;
/// Measured in turns with the baseline.
const ROUNDS: u64 = 8;
/// The I/O server's cache, and what it lends: the least.
const LITTLE: Size = Size(16 << 20);
const POOL: Size = Size(128 << 20);
/// Bytes in the cache in the end.
const OTHERS: Size = Size(24 << 20);
/// Times at most that the file is read to bring it into memory, with a pause between: a new member has its full part of
/// what leaves after 30 s.
const PASSES: usize = 8;
const PASS_PAUSE: Duration = Duration::from_secs(5);
/// Pause after each MiB: what leaves the server is carried away at less than a disk's rate while others build here.
const PART_PAUSE: Duration = Duration::from_millis(4);
/// Of the blocks read, the percentage that must have come from network memory.
const HITS_PERCENT_MIN: u64 = 95;

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
    /// The reads did not go where they were to be measured.
    #[error(
        "of {reads} blocks read {from_memory} came from network memory, and the server's disk was read {disk_reads} \
         times: that is no measurement of network memory; take a smaller --size, or let the machine come to rest"
    )]
    Evidence {
        /// Blocks.
        reads: u64,
        /// Chunks that the server had from its peer.
        from_memory: u64,
        /// Reads of its disk.
        disk_reads: u64,
    },
}

/// Measures and prints.
pub fn measure(arguments: &BlocksBench) -> Result<(), BlocksError> {
    let scratch = Scratch::new(arguments.dir.as_deref(), false)?.removed_at_interrupt()?;
    let mut cluster = start(scratch.path(), arguments.size)?;
    cluster.mount()?;
    let [file, other] = ["blocks", "others"].map(|name| cluster.mount_point().join(name));
    write(&file, arguments.size)?;
    write(&other, OTHERS)?;
    bring_in(&mut cluster, &file)?;
    read_through(&other)?;
    let mut places = Places::of(&cluster);
    places.pin(&arguments.cpus)?;
    let before = Counts::of(&cluster)?;
    let (through_mount, disk) = read_in_turns(&cluster, &file, arguments, &mut places)?;
    let counts = Counts::of(&cluster)?.since(&before);
    counts.check(through_mount.ops)?;
    cluster.stop()?;
    let page = RegionBench { page: BLOCK_BYTES, ..arguments.region() };
    let library = faults_from_peer(&page, scratch.path())?;
    report(arguments, &through_mount, &disk, library, &counts, &places);
    Ok(())
}

/// A manager that lends enough for `size` bytes, and an I/O server that keeps little.
fn start(dir: &Path, size: Size) -> Result<Processes, LocalError> {
    let little = Memory { pool: POOL, cache: LITTLE, lend: Some(LITTLE), ..Memory::default() };
    let shape = Shape { memory: little, ..Shape::of(1) };
    let mut local = LocalCluster::open_or_create(&dir.join("cluster"), &shape)?;
    local.machines[0].memory.lend = Some(Size((size.0 + OTHERS.0) * 5 / 4));
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
fn bring_in(cluster: &mut Processes, path: &Path) -> Result<(), BlocksError> {
    let bar = terminal::progress::steps("reading", PASSES as u64);
    for _ in 0..PASSES {
        remount(cluster)?;
        let before = Counts::of(cluster)?;
        read_through(path)?;
        bar.inc(1);
        let counts = Counts::of(cluster)?.since(&before);
        if counts.disk_reads * 100 <= counts.from_memory {
            break;
        }
        std::thread::sleep(PASS_PAUSE);
    }
    bar.finish_and_clear();
    Ok(remount(cluster)?)
}

fn read_through(path: &Path) -> io::Result<()> {
    let (mut file, mut part) = (File::open(path)?, vec![0; 1 << 20]);
    while file.read(&mut part)? > 0 {
        std::thread::sleep(PART_PAUSE);
    }
    Ok(())
}

fn remount(cluster: &mut Processes) -> io::Result<()> {
    cluster.unmount()?;
    cluster.mount()
}

/// Blocks of the mount's file and of the server's, in turns: of each chunk at most one, since the whole of it comes.
fn read_in_turns(
    cluster: &Processes,
    path: &Path,
    arguments: &BlocksBench,
    places: &mut Places,
) -> io::Result<(Pass, Pass)> {
    let (file, disk) = (File::open(path)?, open_direct(&largest(cluster.cluster().dir())?)?);
    let chunks = 1 << (arguments.size.0 / CHUNK_BYTES).max(1).ilog2();
    let each = (arguments.count / ROUNDS).min(chunks / ROUNDS).max(1);
    let (mut of_file, mut of_disk) = (Meter::start(), Meter::start());
    let mut buffer = Aligned::new();
    for number in 0..each * ROUNDS {
        // an odd factor visits every chunk of a power of two once
        let offset = number.wrapping_mul(0x9e37_79b1) % chunks * CHUNK_BYTES;
        of_file.time(|| file.read_exact_at(buffer.bytes(), offset).map(|()| BLOCK_BYTES as u64))?;
        if number % each != each - 1 {
            continue;
        }
        places.look();
        for number in number + 1 - each..=number {
            let offset = number.wrapping_mul(0x85eb_ca6b) % chunks * CHUNK_BYTES;
            of_disk
                .time(|| disk.read_exact_at(buffer.bytes(), offset).map(|()| BLOCK_BYTES as u64))?;
        }
    }
    Ok((of_file.end(), of_disk.end()))
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

/// Where this program, the machines and the mount run.
struct Places {
    /// Names, process ids, and on which processors each was seen.
    processes: Vec<(String, u32, Vec<usize>)>,
}

impl Places {
    fn of(cluster: &Processes) -> Places {
        let named = ["program", "manager", "io1", "mount"].map(String::from);
        let ids = [std::process::id()].into_iter().chain(cluster.ids());
        Places {
            processes: named
                .into_iter()
                .zip(ids)
                .map(|(name, id)| (name, id, Vec::new()))
                .collect(),
        }
    }

    /// The program and the mount to the first processor, the servers to the last; where they like without any.
    fn pin(&self, cpus: &[usize]) -> io::Result<()> {
        let (Some(near), Some(far)) = (cpus.first(), cpus.last()) else { return Ok(()) };
        for (name, id, _) in &self.processes {
            let server = name == "manager" || name == "io1";
            place(Some(*id), &only(if server { *far } else { *near }))?;
        }
        Ok(())
    }

    fn look(&mut self) {
        for (_, id, seen) in &mut self.processes {
            seen.extend(processor_of(*id));
        }
    }

    fn show(&self) -> String {
        let seen = |(name, _, seen): &(String, u32, Vec<usize>)| {
            let seen: Vec<String> = seen.iter().map(usize::to_string).collect();
            format!("{name} {}", seen.concat())
        };
        self.processes.iter().map(seen).collect::<Vec<String>>().join(", ")
    }
}

/// Where its main thread ran last: field 39 of proc_pid_stat(5).
fn processor_of(id: u32) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(36)?.parse().ok()
}

/// Counters of the I/O server.
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

    /// Whether `reads` blocks came from where they should have.
    fn check(&self, reads: u64) -> Result<(), BlocksError> {
        let Counts { from_memory, disk_reads } = *self;
        let enough = from_memory * 100 >= reads * HITS_PERCENT_MIN;
        let few = disk_reads * 100 <= reads * (100 - HITS_PERCENT_MIN);
        let evidence = enough && few;
        evidence.then_some(()).ok_or(BlocksError::Evidence { reads, from_memory, disk_reads })
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
    places: &Places,
) {
    let measured = [
        ("library", "page fault, peer over shared memory, both spin", library),
        ("mount", "file behind a mount, peer of its server", (mount.p50_us, mount.p99_us)),
    ];
    if arguments.json {
        measured.iter().for_each(|(name, _, times)| print_json(&row(name, *times, disk, places)));
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
    println!("on the processors, by round: {}", places.show());
}

fn row(op: &'static str, (p50_us, p99_us): (f64, f64), disk: &Pass, places: &Places) -> Row {
    let rates = [p50_us, disk.p50_us].map(|us| 1e6 / us);
    let mb = |rate: f64| rate * BLOCK_BYTES as f64 / 1e6;
    Row {
        name: "block in a peer's memory",
        op,
        link: "shm",
        wait: if op == "library" { "spin" } else { "adaptive" }.into(),
        depth: 1,
        cpus: if op == "library" { "0,1".into() } else { places.show() },
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
