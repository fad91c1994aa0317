//! Load on a cluster's memory while its processes suffer: each part writes, reads, and counts errors.
//!
//! Every piece of data names its place and its version, and is at least the last version that was acknowledged and at
//! most the last one that was tried.
#![allow(dead_code)] // every test file uses a part of it

mod array;
pub mod files;
mod keys;
pub mod lending;

use array::change_an_array;
use files::Files;
use keys::Keys;

use super::common::pattern;
use std::collections::HashMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which versions of a place may be found.
#[derive(Default)]
pub struct Versions(HashMap<u64, Version>);

#[derive(Clone, Copy, Default)]
struct Version {
    acknowledged: u64,
    tried: u64,
}

impl Versions {
    /// The version to write next.
    pub fn try_next(&mut self, place: u64) -> u64 {
        let version = self.0.entry(place).or_default();
        version.tried += 1;
        version.tried
    }

    /// Version `seen` is there, or a later one.
    pub fn acknowledge(&mut self, place: u64, seen: u64) {
        self.0.entry(place).or_default().acknowledged = seen;
    }

    /// Places where something must be found.
    pub fn acknowledged(&self) -> Vec<u64> {
        let all = self.0.iter().filter(|(_, version)| version.acknowledged > 0);
        all.map(|(place, _)| *place).collect()
    }

    /// The error in a read, if any.
    pub fn check(&mut self, place: u64, bytes: &[u8]) -> Option<String> {
        let Version { acknowledged, tried } = self.0.get(&place).copied().unwrap_or_default();
        let seen = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if seen < acknowledged || seen > tried {
            return Some(format!("{place}: version {seen}, not {acknowledged} to {tried}"));
        }
        self.acknowledge(place, seen);
        let is_whole = seen == 0 || bytes == contents(place, seen, bytes.len());
        (!is_whole).then(|| format!("{place}: version {seen} with other bytes"))
    }
}

/// A version of a place: its number, and bytes that both decide.
pub fn contents(place: u64, version: u64, bytes: usize) -> Vec<u8> {
    let rest = pattern(place << 32 | version, bytes - 8);
    [&version.to_le_bytes()[..], &rest].concat()
}

/// Numbers without a pattern, the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 += 1;
        wire::mix(self.0) % bound
    }
}

/// Set when standard input ends: the parent wants no more.
fn stopped() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        told.store(true, Ordering::Relaxed);
    });
    stop
}

/// Counts of one part of the load.
#[derive(Default)]
pub struct Done {
    pub operations: u64,
    pub errors: u64,
    pub wrong: Vec<String>,
    /// The longest operation, where that is of interest.
    pub longest: Duration,
}

impl Done {
    /// Runs an operation, and counts it.
    pub fn count<T, E>(&mut self, operation: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let start = Instant::now();
        let outcome = operation();
        self.longest = self.longest.max(start.elapsed());
        match &outcome {
            Ok(_) => self.operations += 1,
            Err(_) => self.errors += 1,
        }
        outcome
    }

    /// The last line of a part. A panic when something was wrong.
    pub fn report(&self, what: &str) -> String {
        let Done { operations, errors, wrong, longest } = self;
        let count = wrong.len();
        let line = format!(
            "{what}: {operations} done, {errors} errors, {count} wrong, the longest took {longest:.1?}"
        );
        println!("\n{line}");
        assert!(wrong.is_empty(), "{what}: {wrong:?}");
        line
    }
}

/// A process of this program that runs one of its ignored tests, and ends with its input.
fn part(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Ends such a process, which has found nothing wrong; the line that says how much it has done.
fn end(mut process: Child) -> Option<String> {
    drop(process.stdin.take());
    let done = process.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    let skipped = errors.contains("userfaultfd is not allowed");
    assert!(done.status.success() || skipped, "{told}\n{errors}");
    let last = told.lines().find(|line| line.contains(" done, "));
    match last {
        Some(last) => println!("{last}"),
        None => rig::skip(&errors),
    }
    assert!(skipped || !last.unwrap().contains(": 0 done"), "{told}");
    last.map(str::to_string)
}
