//! One process is killed while files are written, and started again: what was acknowledged is there, by its content.
//!
//! fsync acknowledges against any crash; close against the crash of a server or the manager, whose client goes on.

mod common;

use common::{Cluster, cannot_mount, detach, pattern, pause, soaks};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
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

/// What a writer was told.
#[derive(Default)]
struct Told {
    closed: Vec<u64>,
    synced: Vec<u64>,
    refused: Option<std::io::Error>,
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("file{number}"))
}

/// Writes one file and closes it; every other one is synced, and so is its name.
fn write(dir: &Path, number: u64) -> std::io::Result<bool> {
    let mut file = File::create(path_of(dir, number))?;
    file.write_all(&pattern(number, bytes_of(number)))?;
    let syncs = number % 2 == 0;
    if syncs {
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    drop(file);
    // Dropping keeps quiet about what close(2) says: of a mount that is gone, this says it.
    fs::metadata(path_of(dir, number))?;
    Ok(syncs)
}

/// Writes files until told to stop or refused, counting them.
fn writer(dir: &Path, first: u64, stop: [&AtomicBool; 2], count: &AtomicU64) -> Told {
    let [stop, over] = stop;
    let mut told = Told::default();
    for number in first.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match write(dir, number) {
            Ok(true) => told.synced.push(number),
            Ok(false) => told.closed.push(number),
            Err(error) => {
                told.refused = Some(error);
                over.store(true, Ordering::Relaxed);
                break;
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
    }
    told
}

fn check(dir: &Path, numbers: &[u64], what: &str) {
    for number in numbers {
        let seen = fs::read(path_of(dir, *number));
        let seen = seen.unwrap_or_else(|error| panic!("{what} file {number}: {error}"));
        assert!(seen == pattern(*number, bytes_of(*number)), "{what} file {number}: other bytes");
    }
}

/// Runs `crash` between two stretches of writing; what the writer was told.
fn writing_while(
    cluster: &mut Cluster,
    dir: &Path,
    round: u64,
    crash: impl FnOnce(&mut Cluster),
) -> Told {
    let (stop, over, count) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let wait_for = |more: u64| {
        let end = count.load(Ordering::Relaxed) + more;
        while count.load(Ordering::Relaxed) < end && !over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| writer(dir, round * 1000, [&stop, &over], &count));
        wait_for(1 + round % 7);
        // Somewhere within the writing of a file.
        std::thread::sleep(Duration::from_micros(round * 389 % 7000));
        crash(cluster);
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    })
}

#[test]
fn a_server_or_the_manager_is_killed() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(SERVERS);
    let dir = cluster.at("");
    for round in 0..rounds() {
        for victim in 0..=usize::from(SERVERS) {
            let down = Duration::from_millis(round * 97 % 400);
            let name = round * 4 + victim as u64;
            let told = writing_while(&mut cluster, &dir, name, |cluster| {
                cluster.crash(victim, down);
            });
            let refused = told.refused.map(|error| error.to_string());
            assert_eq!(refused, None, "round {round}, machine {victim}: a crash is waited for");
            check(&dir, &told.closed, "closed");
            check(&dir, &told.synced, "synced");
            cluster.remount();
            check(&dir, &told.closed, "closed, mounted again,");
            check(&dir, &told.synced, "synced, mounted again,");
        }
    }
    cluster.stop();
}

#[test]
fn the_mount_is_killed() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(SERVERS);
    let dir = cluster.at("");
    for round in 0..rounds() {
        let told = writing_while(&mut cluster, &dir, round, |cluster| {
            cluster.processes.take_mount().unwrap().kill().unwrap();
        });
        if round % 2 == 0 {
            detach(cluster.processes.mount_point()); // else: mounting over a dead mount
        }
        cluster.processes.mount().unwrap();
        check(&dir, &told.synced, "synced");
        fs::write(dir.join("after"), "goes on").unwrap();
    }
    cluster.stop();
}

#[test]
fn everything_is_killed_at_once() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(SERVERS);
    let dir = cluster.at("");
    for round in 0..rounds() {
        let told = writing_while(&mut cluster, &dir, round, |cluster| {
            for number in 0..=usize::from(SERVERS) {
                cluster.processes.kill_server(number).unwrap();
            }
            cluster.processes.take_mount().unwrap().kill().unwrap();
        });
        detach(cluster.processes.mount_point());
        for number in 0..=usize::from(SERVERS) {
            cluster.processes.start_server(number).unwrap();
        }
        cluster.processes.mount().unwrap();
        check(&dir, &told.synced, "synced");
    }
    cluster.stop();
}

#[test]
fn processes_that_pause_are_waited_for() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(SERVERS);
    let dir = cluster.at("");
    let span = Duration::from_secs(if soaks() { 15 } else { 5 });
    for victim in 0..=1 {
        let told = writing_while(&mut cluster, &dir, victim, |cluster| {
            pause(cluster.processes.server(victim as usize).unwrap(), span);
        });
        assert!(!told.closed.is_empty() || !told.synced.is_empty());
        check(&dir, &told.closed, "closed");
        check(&dir, &told.synced, "synced");
    }
    cluster.stop();
}

#[test]
fn asked_to_stop_in_the_middle() {
    if cannot_mount() {
        return;
    }
    let mut cluster = Cluster::mounted(SERVERS);
    let dir = cluster.at("");
    for round in 0..rounds().min(10) {
        let told = writing_while(&mut cluster, &dir, round, |cluster| {
            cluster.processes.take_mount().unwrap().stop().unwrap();
            for number in (0..=usize::from(SERVERS)).rev() {
                cluster.processes.take_server(number).unwrap().stop().unwrap();
            }
        });
        assert!(!common::is_mounted(cluster.processes.mount_point()), "left behind");
        for number in 0..=usize::from(SERVERS) {
            cluster.processes.start_server(number).unwrap();
        }
        cluster.processes.mount().unwrap();
        check(&dir, &told.closed, "closed");
        check(&dir, &told.synced, "synced");
    }
    cluster.stop();
}
