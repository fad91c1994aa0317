//! Running programs and reading what test runners say.

use crate::skips::{self, Skips};
use crate::usage;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::spawn;
use std::time::{Duration, Instant};

/// The longest that a test, or a program of tests, may take: the longest takes two minutes on two quiet processors.
pub const SUITE: Duration = Duration::from_secs(8 * 60);

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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub passed: u64,
    pub failed: u64,
    /// Left out, or unable to run here.
    pub skipped: u64,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
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
            skipped: count("ignored")?,
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

/// What a command of tests came to.
pub struct Outcome {
    pub tally: Tally,
    /// Those that could not run here; `tally` has them among the skipped ones.
    pub skips: Skips,
    pub result: Result<(), String>,
    /// What it used of the processors, with all that it started and waited for.
    pub cpu: Duration,
}

impl Default for Outcome {
    fn default() -> Outcome {
        let (tally, skips) = (Tally::default(), Skips::default());
        Outcome { tally, skips, result: Ok(()), cpu: Duration::ZERO }
    }
}

impl Outcome {
    fn failure(problem: String) -> Outcome {
        Outcome { result: Err(problem), ..Outcome::default() }
    }

    /// Of a command that counts no tests: it is one.
    pub fn of_one(self) -> Outcome {
        let (passed, failed) = if self.result.is_ok() { (1, 0) } else { (0, 1) };
        Outcome { tally: Tally { passed, failed, skipped: 0 }, ..self }
    }
}

/// Runs a test command, passing its output on, and counts its tests. A suite, one program of tests, that takes longer
/// than `limit` is killed and named with the tests it was at: the others still run.
pub fn run_tests(what: &str, limit: Duration, command: Command) -> Outcome {
    println!("\n== {what}");
    let start = Instant::now();
    let outcome = watch_tests(what, command, Watch::of_runner(limit), |line| println!("{line}"));
    println!("   {what}: {:.0} s", start.elapsed().as_secs_f64());
    outcome
}

/// Runs a test command to its end and gives each line of its output to `see`.
pub fn watch_tests(
    what: &str,
    mut command: Command,
    mut watch: Watch,
    mut see: impl FnMut(&str),
) -> Outcome {
    let path = skips::path();
    if let Err(problem) = Skips::ask(&mut command, &path) {
        return Outcome::failure(problem);
    }
    let (mut child, lines) = match start(command, watch.is_suite) {
        Ok(started) => started,
        Err(error) => return Outcome::failure(format!("{what}: cannot start: {error}")),
    };
    let (mut tally, mut has_ended) = (Tally::default(), false);
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                see(&line);
                tally.add(Tally::read(&line).unwrap_or_default());
                watch.line(&line);
            }
            // A process that a test left behind may keep the output open.
            Err(RecvTimeoutError::Timeout) if has_ended => break,
            Err(RecvTimeoutError::Timeout) => {
                has_ended = usage::has_ended(child.id());
                watch.look(&mut child, &mut see);
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let cpu = usage::at_end(child.id());
    let success = child.wait().is_ok_and(|status| status.success()) && watch.hung.is_empty();
    let hung: String = watch.hung.iter().map(|suite| format!("; {suite}")).collect();
    let skips = Skips::take(&path);
    let tally = skips.taken_from(tally, &watch.passed);
    let result = if success { Ok(()) } else { Err(format!("{what} failed{hung}")) };
    Outcome { tally, skips, result, cpu }
}

/// Starts a command whose output comes as lines; with what it says of errors among them where `merged`.
fn start(mut command: Command, merged: bool) -> std::io::Result<(Child, Receiver<String>)> {
    let (reader, writer) = std::io::pipe()?;
    if merged {
        command.stderr(writer.try_clone()?);
    }
    let child = command.stdout(writer).spawn()?;
    // It has the ends for writing, and would keep them open.
    drop(command);
    let (sender, lines) = channel();
    let mut output = BufReader::new(reader);
    spawn(move || {
        let mut line = Vec::new();
        // Tests may write bytes that are no text.
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&line).trim_end_matches('\n').to_string();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    Ok((child, lines))
}

/// Ends suites that hang, and knows which tests passed.
#[derive(Default)]
pub struct Watch {
    limit: Duration,
    /// Whether the command is a suite itself, and not a runner of several.
    is_suite: bool,
    /// When the one that runs has begun.
    suite: Option<Instant>,
    /// Its tests that the runner called long.
    long: BTreeSet<String>,
    hung: Vec<String>,
    passed: BTreeSet<String>,
}

impl Watch {
    /// Of a command that runs one suite after the other.
    pub fn of_runner(limit: Duration) -> Watch {
        Watch { limit, ..Watch::default() }
    }

    /// Of a command that is one suite.
    pub fn of_suite(limit: Duration) -> Watch {
        Watch { limit, is_suite: true, suite: Some(Instant::now()), ..Watch::default() }
    }

    fn line(&mut self, line: &str) {
        if line.starts_with("running ") {
            (self.suite, self.long) = (Some(Instant::now()), BTreeSet::new());
        } else if line.starts_with("test result:") {
            self.suite = None;
        } else if let Some(test) = line.strip_prefix("test ") {
            let name = test.split(' ').next().unwrap_or_default().to_string();
            if test.ends_with(" ... ok") {
                self.passed.insert(name.clone());
            }
            match test.contains("has been running for over") {
                true => self.long.insert(name),
                false => self.long.remove(&name),
            };
        }
    }

    fn look(&mut self, command: &mut Child, see: &mut impl FnMut(&str)) {
        if self.suite.is_none_or(|start| start.elapsed() < self.limit) {
            return;
        }
        self.suite = None;
        let long = self.long.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let told = format!("killed after {} s in: {long}", self.limit.as_secs());
        see(&told);
        self.hung.push(told);
        for child in children(command.id()) {
            let killed = Command::new("sh").args(["-c", &format!("kill -KILL {child}")]).status();
            killed.map_or_else(|error| see(&format!("cannot kill {child}: {error}")), drop);
        }
        if self.is_suite {
            let _ = command.kill(); // it may have ended just now
        }
    }
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let line = format!("PPid:\t{parent}");
    let is_child = |process: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"));
        status.is_ok_and(|status| status.lines().any(|field| field == line))
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(is_child).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_counted() {
        let line =
            "test result: FAILED. 11 passed; 2 failed; 3 ignored; 0 measured; 0 filtered out";
        let tally = Tally::read(line).unwrap();
        assert_eq!((tally.passed, tally.failed, tally.skipped), (11, 2, 3));
        assert!(Tally::read("running 3 tests").is_none());
    }

    #[test]
    fn a_suite_that_hangs_is_ended_and_named() {
        let script = "echo 'running 2 tests'; echo 'test a ... ok'
            echo 'test b has been running for over 60 seconds'; sleep 1000; echo 'running 0 tests'";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let outcome = run_tests("suites", Duration::from_secs(1), command);
        assert_eq!(outcome.result.unwrap_err(), "suites failed; killed after 1 s in: b");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_started() {
        let script = "echo 'test b has been running for over 60 seconds' >&2; sleep 1000";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let mut seen = Vec::new();
        let watch = Watch::of_suite(Duration::from_secs(1));
        let outcome = watch_tests("one", command, watch, |line| seen.push(line.to_string()));
        assert_eq!(outcome.result.unwrap_err(), "one failed; killed after 1 s in: b");
        assert!(seen[0].contains("running for over"), "{seen:?}");
    }

    #[test]
    fn a_process_that_outlives_its_suite_is_not_waited_for() {
        let mut command = Command::new("sh");
        let script = "sleep 60 & echo $!; echo 'test result: ok. 1 passed; 0 failed; 0 ignored; '";
        command.args(["-c", script]);
        let mut seen = Vec::new();
        let watch = Watch::of_suite(SUITE);
        let outcome = watch_tests("one", command, watch, |line| seen.push(line.to_string()));
        assert!(outcome.result.is_ok() && outcome.tally.passed == 1);
        let ended = Command::new("kill").arg(&seen[0]).status().unwrap();
        assert!(ended.success(), "it was waited for");
    }

    #[test]
    fn tests_that_say_that_they_did_nothing_are_skipped() {
        let script = "echo 'running 3 tests'; echo 'test a ... ok'; echo 'test b ... ok'
            printf 'x/y: b\\tno z\\n' >> $TRAPEZE_SKIPS; echo 'test c ... ignored'
            echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out'";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let outcome = run_tests("suites", SUITE, command);
        assert_eq!(outcome.tally, Tally { passed: 1, failed: 0, skipped: 2 });
        assert_eq!(outcome.skips.lines(), ["skipped: x/y: b: no z"]);
        assert!(outcome.result.is_ok());
    }
}
