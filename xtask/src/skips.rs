//! Tests that passed because they did nothing: what they lack is not here. They write a line each to a file
//! (`rig::skip`), and are counted as skipped.

use crate::run::Tally;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that names the file; `rig` has it too, which the tool does not depend on.
const SKIPS: &str = "TRAPEZE_SKIPS";

/// What tests wrote: the test with its suite, and what it lacked.
#[derive(Debug, Default, PartialEq)]
pub struct Skips(BTreeMap<String, BTreeSet<String>>);

impl Skips {
    /// Lets a test command write to this file, which is gone before.
    pub fn ask(command: &mut Command, path: &Path) -> Result<(), String> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", path.display()))
            }
            _ => {
                command.env(SKIPS, path);
                Ok(())
            }
        }
    }

    /// What they wrote.
    pub fn take(path: &Path) -> Skips {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        Skips::read(&text)
    }

    fn read(text: &str) -> Skips {
        let mut skips = Skips::default();
        for (test, why) in text.lines().filter_map(|line| line.split_once('\t')) {
            skips.0.entry(test.to_string()).or_default().insert(why.to_string());
        }
        skips
    }

    pub fn add(&mut self, other: Skips) {
        self.0.extend(other.0);
    }

    /// The counts with tests that did not run taken from those that passed. `passed` has the names of these: what a
    /// test that failed, or a process that a test starts, did not do is not among them.
    pub fn taken_from(&self, tally: Tally, passed: &BTreeSet<String>) -> Tally {
        let name = |test: &str| test.split_once(": ").map(|(_suite, name)| name.to_string());
        let did_nothing =
            self.0.keys().filter(|test| name(test).is_some_and(|name| passed.contains(&name)));
        let count = (did_nothing.count() as u64).min(tally.passed);
        Tally { passed: tally.passed - count, skipped: tally.skipped + count, ..tally }
    }

    /// A line for each test.
    pub fn lines(&self) -> Vec<String> {
        let line = |(test, why): (&String, &BTreeSet<String>)| {
            let why: Vec<&str> = why.iter().map(String::as_str).collect();
            format!("skipped: {test}: {}", why.join("; "))
        };
        self.0.iter().map(line).collect()
    }
}

/// A file that no other command of tests writes.
pub fn path() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(format!("trapeze-skips-{process}-{count}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "live/fuse: mounts\tthere is no /dev/fuse\n\
        trapeze/memory: slaps\tmemcslap is not installed\n\
        trapeze/memory: slaps\tso is the other\n\
        capi/abi: mounts\tthere is no cc\n\
        region/fatal: the_child\tno userfaultfd\n\
        half a line";

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_test_is_listed_once_with_all_that_it_lacks() {
        let lines = Skips::read(TEXT).lines();
        assert_eq!(lines.len(), 4);
        let slaps = "skipped: trapeze/memory: slaps: memcslap is not installed; so is the other";
        assert_eq!(lines[3], slaps);
    }

    #[test]
    fn what_did_nothing_has_not_passed() {
        let skips = Skips::read(TEXT);
        let tally = Tally { passed: 10, failed: 1, skipped: 2 };
        // `mounts` is in two suites; `the_child` is no test of its own.
        let counted = skips.taken_from(tally, &names(&["mounts", "slaps", "works"]));
        assert_eq!(counted, Tally { passed: 7, failed: 1, skipped: 5 });
        let failed = skips.taken_from(tally, &names(&["mounts", "works"]));
        assert_eq!(failed, Tally { passed: 8, failed: 1, skipped: 4 });
        assert_eq!(Skips::read("").taken_from(tally, &names(&["slaps"])), tally);
    }
}
