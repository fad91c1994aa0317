//! Running programs and reading what test runners say.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The workspace's root.
pub fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_path_buf()
}

/// A command in the workspace's root.
pub fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words).current_dir(root()).stdin(Stdio::null());
    command
}

/// Tests that passed, failed and were left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// Reads a `test result:` line of the test runner.
    fn read(line: &str) -> Option<Tally> {
        let counts = line.strip_prefix("test result:")?;
        let count = |word: &str| {
            let before = counts.split(';').find(|part| part.trim_end().ends_with(word))?;
            before.split_whitespace().rev().nth(1)?.parse().ok()
        };
        Some(Tally {
            passed: count("passed")?,
            failed: count("failed")?,
            ignored: count("ignored")?,
        })
    }
}

/// Runs a command to its end; an error when it fails.
pub fn run(what: &str, mut command: Command) -> Result<(), String> {
    println!("\n== {what}");
    let start = Instant::now();
    let status = command.status().map_err(|error| format!("{what}: cannot start: {error}"))?;
    println!("   {what}: {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{what} failed ({status})")) }
}

/// Runs a test command, passing its output on, and counts its tests.
pub fn run_tests(what: &str, mut command: Command) -> (Tally, Result<(), String>) {
    println!("\n== {what}");
    let start = Instant::now();
    let mut tally = Tally::default();
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return (tally, Err(format!("{what}: cannot start: {error}"))),
    };
    let output = BufReader::new(child.stdout.take().expect("piped"));
    for line in output.lines().map_while(Result::ok) {
        println!("{line}");
        tally.add(Tally::read(&line).unwrap_or_default());
    }
    let success = child.wait().is_ok_and(|status| status.success());
    println!("   {what}: {:.0} s", start.elapsed().as_secs_f64());
    (tally, if success { Ok(()) } else { Err(format!("{what} failed")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line =
            "test result: FAILED. 11 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out";
        let tally = Tally::read(line).unwrap();
        assert_eq!((tally.passed, tally.failed, tally.ignored), (11, 2, 3));
        assert!(Tally::read("running 3 tests").is_none());
    }
}
