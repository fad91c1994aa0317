//! One process is killed while files are written, and started again: what was acknowledged is there, by its content.
//!
//! fsync acknowledges against any crash; close against the crash of a server or the manager, whose client goes on.

use crate::common::{Cluster, cannot_mount, detach, pattern, pause, soaks};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SERVERS: u16 = 3;

fn rounds() -> u64 {
    if soaks() { 50 } else { 3 }
}

/// Bytes of file `number`: from nothing to a few stripes.
fn bytes_of(number: u64) -> usize {
    [1, 4096, 70_000, 300_001, 0, 1_200_000][number as usize % 6]
}

/// Acknowledgements that a writer got.
#[derive(Default)]
struct Told {
    closed: Vec<u64>,
    synced: Vec<u64>,
    refused: Option<String>,
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file{number}"))
}

/// Writes one file and closes it; every other one is synced, and so is its name.
fn write(dir: &Path, number: u64) -> std::io::Result<bool> {
    let mut file = File::create(path_of(dir, number))?;
    file.write_all(&pattern(number, bytes_of(number)))?;
    let syncs = number.is_multiple_of(2);
    if syncs {
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    drop(file);
    // Dropping keeps quiet about what close(2) says: of a mount that is gone, this says it.
    fs::metadata(path_of(dir, number))?;
    Ok(syncs)
}

/// Not a test of its own: the process that writes, started by the others. Were they to write themselves, a server that
/// they start would inherit an open file of the mount and wait, in its exec, for a flush that needs that server.
#[test]
#[ignore = "a part of the other tests, which start it"]
fn writing_process() {
    let Some(dir) = std::env::var_os("TRAPEZE_WRITES_TO") else { return };
    let first: u64 = std::env::var("TRAPEZE_WRITES_FROM").unwrap().parse().unwrap();
    for number in first.. {
        match write(Path::new(&dir), number) {
            Ok(synced) => println!("\n{} {number}", if synced { "synced" } else { "closed" }),
            Err(error) => return println!("\nrefused {error}"),
        }
    }
}

/// Collects what the writing process says into `told`, counting, until it ends.
fn listen(output: ChildStdout, count: &AtomicU64, over: &AtomicBool) -> Told {
    let mut told = Told::default();
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        match line.split_once(' ') {
            Some(("synced", number)) => told.synced.push(number.parse().unwrap()),
            Some(("closed", number)) => told.closed.push(number.parse().unwrap()),
            Some(("refused", error)) => told.refused = Some(error.to_string()),
            _ => continue,
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    over.store(true, Ordering::Relaxed);
    told
}

fn check(dir: &Path, numbers: &[u64], what: &str) {
    for number in numbers {
        let seen = fs::read(path_of(dir, *number));
        let seen = seen.unwrap_or_else(|error| panic!("{what} file {number}: {error}"));
        let expected = pattern(*number, bytes_of(*number));
        let differing = seen.iter().zip(&expected).position(|(seen, expected)| seen != expected);
        let (have, want) = (seen.len(), expected.len());
        assert!(
            have == want && differing.is_none(),
            "{what} file {number}: {have} bytes of {want}, first other byte {differing:?}"
        );
    }
}

/// Runs `crash` between two stretches of writing; what the writer was told.
fn writing_while(
    cluster: &mut Cluster,
    dir: &Path,
    round: u64,
    crash: impl FnOnce(&mut Cluster),
) -> Told {
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crashes::writing_process", "--ignored", "--nocapture"])
        .env("TRAPEZE_WRITES_TO", dir)
        .env("TRAPEZE_WRITES_FROM", (round * 1000).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = process.stdout.take().unwrap();
    let wait_for = |more: u64| {
        let end = count.load(Ordering::Relaxed) + more;
        while count.load(Ordering::Relaxed) < end && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let told = scope.spawn(|| listen(output, &count, &over));
        wait_for(1 + round % 7);
        // Somewhere within the writing of a file.
        std::thread::sleep(Duration::from_micros(round * 389 % 7000));
        crash(cluster);
        wait_for(3); // it goes on, or is refused where the mount is gone
        let _ = process.kill();
        process.wait().unwrap();
        told.join().unwrap()
    })
}

/// A mounted cluster and a directory of the mount for the rounds of a test; `None` where nothing can be mounted.
struct Rounds {
    cluster: Cluster,
    dir: PathBuf,
}

impl Rounds {
    fn begin(name: &str) -> Option<Rounds> {
        if cannot_mount() {
            return None;
        }
        let cluster = Cluster::mounted(SERVERS);
        let dir = cluster.at(name);
        fs::create_dir_all(&dir).unwrap();
        Some(Rounds { cluster, dir })
    }

    /// Runs `crash` in the middle of a process's writing.
    fn writing_while(&mut self, round: u64, crash: impl FnOnce(&mut Cluster)) -> Told {
        writing_while(&mut self.cluster, &self.dir, round, crash)
    }

    /// All machines are started again, then the mount.
    fn start_all(&mut self) {
        for number in 0..=usize::from(SERVERS) {
            self.cluster.processes.start_server(number).unwrap();
        }
        self.cluster.processes.mount().unwrap();
    }

    /// Checks that bytes acknowledged by close are there, and those by fsync.
    fn check_closed(&self, told: &Told, when: &str) {
        check(&self.dir, &told.closed, &format!("closed{when}"));
        self.check_synced(told, when);
    }

    fn check_synced(&self, told: &Told, when: &str) {
        check(&self.dir, &told.synced, &format!("synced{when}"));
    }
}

#[test]
fn a_server_or_the_manager_is_killed() {
    let Some(mut test) = Rounds::begin("") else { return };
    for round in 0..rounds() {
        for victim in 0..=usize::from(SERVERS) {
            let down = Duration::from_millis(round * 97 % 400);
            let name = round * 4 + victim as u64;
            let told = test.writing_while(name, |cluster| cluster.crash(victim, down));
            assert_eq!(
                told.refused, None,
                "round {round}, machine {victim}: a crash is waited for"
            );
            test.check_closed(&told, "");
            test.cluster.remount();
            test.check_closed(&told, ", mounted again,");
        }
    }
    test.cluster.stop();
}

#[test]
fn the_mount_is_killed() {
    let Some(mut test) = Rounds::begin("") else { return };
    for round in 0..rounds() {
        let told = test.writing_while(round, |cluster| {
            cluster.processes.take_mount().unwrap().kill().unwrap();
        });
        if round % 2 == 0 {
            detach(test.cluster.processes.mount_point()); // else: mounting over a dead mount
        }
        test.cluster.processes.mount().unwrap();
        test.check_synced(&told, "");
        fs::write(test.dir.join("after"), "goes on").unwrap();
    }
    test.cluster.stop();
}

#[test]
fn everything_is_killed_at_once() {
    let Some(mut test) = Rounds::begin("") else { return };
    for round in 0..rounds() {
        let told = test.writing_while(round, |cluster| {
            for number in 0..=usize::from(SERVERS) {
                cluster.processes.kill_server(number).unwrap();
            }
            cluster.processes.take_mount().unwrap().kill().unwrap();
        });
        detach(test.cluster.processes.mount_point());
        test.start_all();
        test.check_synced(&told, "");
    }
    test.cluster.stop();
}

#[test]
fn processes_that_pause_are_waited_for() {
    let Some(mut test) = Rounds::begin("") else { return };
    let span = Duration::from_secs(if soaks() { 15 } else { 5 });
    for victim in 0..=1 {
        let told = test.writing_while(victim, |cluster| {
            pause(cluster.processes.server(victim as usize).unwrap(), span);
        });
        assert!(!told.closed.is_empty() || !told.synced.is_empty());
        test.check_closed(&told, "");
    }
    test.cluster.stop();
}

#[test]
fn asked_to_stop_in_the_middle() {
    // Below the mount's root: without the mount there is no such directory, and the writer is refused.
    let Some(mut test) = Rounds::begin("asked") else { return };
    for round in 0..rounds().min(10) {
        let told = test.writing_while(round, |cluster| {
            cluster.processes.take_mount().unwrap().stop().unwrap();
            for number in (0..=usize::from(SERVERS)).rev() {
                cluster.processes.take_server(number).unwrap().stop().unwrap();
            }
        });
        assert!(!crate::common::is_mounted(test.cluster.processes.mount_point()), "left behind");
        test.start_all();
        test.check_closed(&told, "");
    }
    test.cluster.stop();
}
