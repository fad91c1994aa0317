//! Load on a cluster's memory while its processes suffer: each part writes, reads, and counts errors.
//!
//! Every piece of data names its place and its version, and is at least the last version that was acknowledged and at
//! most the last one that was tried.
#![allow(dead_code)] // every test file uses a part of it

mod array;
mod files;
mod keys;
pub mod lending;

use array::change_an_array;
use files::write_and_read_files;
use keys::Keys;

use super::common::pattern;
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which versions of a place may be found.
#[derive(Default)]
struct Versions(HashMap<u64, Version>);

#[derive(Clone, Copy, Default)]
struct Version {
    acknowledged: u64,
    tried: u64,
}

impl Versions {
    /// The version to write next.
    fn try_next(&mut self, place: u64) -> u64 {
        let version = self.0.entry(place).or_default();
        version.tried += 1;
        version.tried
    }

    /// Version `seen` is there, or a later one.
    fn acknowledge(&mut self, place: u64, seen: u64) {
        self.0.entry(place).or_default().acknowledged = seen;
    }

    /// Places where something must be found.
    fn acknowledged(&self) -> Vec<u64> {
        let all = self.0.iter().filter(|(_, version)| version.acknowledged > 0);
        all.map(|(place, _)| *place).collect()
    }

    /// The error in a read, if any.
    fn check(&mut self, place: u64, bytes: &[u8]) -> Option<String> {
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
fn contents(place: u64, version: u64, bytes: usize) -> Vec<u8> {
    let rest = pattern(place << 32 | version, bytes - 8);
    [&version.to_le_bytes()[..], &rest].concat()
}

/// Numbers without a pattern, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
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

/// The last line of a part: how much it has done. A panic when something was wrong.
fn report(what: &str, done: u64, errors: u64, wrong: &[String]) -> String {
    let line = format!("{what}: {done} done, {errors} errors, {} wrong", wrong.len());
    println!("\n{line}");
    assert!(wrong.is_empty(), "{what}: {wrong:?}");
    line
}
