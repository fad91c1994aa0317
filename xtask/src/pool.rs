//! The programs of tests, several at a time: those of real clusters wait for timeouts more than they compute.

use crate::run::{Outcome, SUITE, Watch, command, root, watch_tests};
use serde_json::Value;
use std::collections::VecDeque;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Suites that take longest, longest first: begun last they would be waited for alone.
const LONG: [&str; 13] = [
    "trapeze/random_damage",
    "trapeze/growth",
    "trapeze/watching",
    "trapeze/disks",
    "trapeze/forget",
    "trapeze/crashes",
    "sim/papers",
    "trapeze/papers",
    "trapeze/cluster",
    "sim/lending",
    "trapeze/bench",
    "trapeze/memory",
    "live/pressure",
];
/// Suites that are named at the end.
const NAMED: usize = 10;

/// Something to be run: a program of tests, or another command that succeeds or fails.
pub struct Job {
    pub what: String,
    pub command: Command,
    /// Whether it counts its own tests.
    pub is_suite: bool,
}

/// The programs of tests of the whole workspace, built.
pub fn suites() -> Result<Vec<Job>, String> {
    println!("\n== building all tests");
    let start = Instant::now();
    let mut build = command(
        "cargo test --workspace --locked --no-run --message-format=json-render-diagnostics",
    );
    let output = build.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo cannot start: {error}"))?;
    println!("   building all tests: {:.0} s", start.elapsed().as_secs_f64());
    if !output.status.success() {
        return Err("the tests do not build".to_string());
    }
    let mut suites: Vec<Job> =
        String::from_utf8_lossy(&output.stdout).lines().filter_map(suite).collect();
    let documented = command("cargo test --workspace --locked --doc --quiet --no-fail-fast");
    suites.push(Job { what: "documentation".into(), command: documented, is_suite: true });
    suites.sort_by_key(|suite| {
        LONG.iter().position(|long| *long == suite.what).unwrap_or(LONG.len())
    });
    Ok(suites)
}

/// The program of tests that a line of Cargo's output tells of.
fn suite(line: &str) -> Option<Job> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let program = message["executable"].as_str()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let package = package(message["package_id"].as_str()?)?;
    let name = message["target"]["name"].as_str()?;
    let mut command = Command::new(program);
    command.current_dir(manifest.parent()?).stdin(Stdio::null()).env("CARGO_PKG_NAME", package);
    Some(Job { what: format!("{package}/{name}"), command, is_suite: true })
}

/// The name in an id like `path+file:///w/crates/wire#0.1.0` or `path+file:///w/fuzz/bodies#fuzz-bodies@0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (path, version) = id.split_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

/// Runs all, each with its output in one piece; what each came to, in the order in which they ended.
pub fn run_all(jobs: Vec<Job>) -> Vec<(String, Outcome)> {
    let (count, jobs) = (jobs.len(), Mutex::new(VecDeque::from(jobs)));
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_a_time() {
            scope.spawn(|| {
                loop {
                    let Some(job) = jobs.lock().expect("no lane panics").pop_front() else {
                        return;
                    };
                    let (what, (outcome, text), took) = timed(job);
                    let mut done = done.lock().expect("no lane panics");
                    print!("\n== {what}\n{text}");
                    println!(
                        "   {what}: {:.0} s ({} of {count})",
                        took.as_secs_f64(),
                        done.len() + 1
                    );
                    done.push((what, outcome, took));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no lane panics");
    name_longest(&mut done);
    done.into_iter().map(|(what, outcome, _)| (what, outcome)).collect()
}

/// Suites at a time, each with as many threads as there are processors.
fn at_a_time() -> usize {
    1 + std::thread::available_parallelism().map_or(1, NonZero::get)
}

fn timed(job: Job) -> (String, (Outcome, String), Duration) {
    let start = Instant::now();
    let mut text = String::new();
    let outcome = watch_tests(&job.what, job.command, Watch::of_suite(SUITE), |line| {
        text.push_str(line);
        text.push('\n');
    });
    let outcome = if job.is_suite { outcome } else { outcome.of_one() };
    (job.what, (outcome, text), start.elapsed())
}

fn name_longest(done: &mut [(String, Outcome, Duration)]) {
    done.sort_by_key(|(_, _, took)| std::cmp::Reverse(*took));
    let longest = done.iter().take(NAMED);
    let longest: Vec<String> =
        longest.map(|(what, _, took)| format!("{what} {:.0} s", took.as_secs_f64())).collect();
    println!("\nlongest: {}", longest.join(", "));
}

/// The path of a program in the target folder that this one was built in.
pub fn built(profile: &str, name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| format!("the path of xtask: {error}"))?;
    let target = own.ancestors().nth(2).ok_or("xtask lies in no target folder")?;
    Ok(target.join(profile).join(name))
}

/// A command of a program in the workspace's root.
pub fn program(path: PathBuf) -> Command {
    let mut command = Command::new(path);
    command.current_dir(root()).stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_in_what_cargo_says() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/live#0.1.0",
            "manifest_path":"/w/crates/live/Cargo.toml","target":{"name":"links"},
            "profile":{"test":true},"executable":"/w/target/debug/deps/links-5a"}"#;
        let job = suite(&line.replace('\n', "")).unwrap();
        assert_eq!(
            (job.what.as_str(), job.command.get_program()),
            ("live/links", "/w/target/debug/deps/links-5a".as_ref())
        );
        assert_eq!(job.command.get_current_dir(), Some(Path::new("/w/crates/live")));
        assert!(suite(&line.replace("true", "false")).is_none(), "a program, or an example");
        assert_eq!(package("path+file:///w/fuzz/bodies#fuzz-bodies@0.1.0"), Some("fuzz-bodies"));
    }

    #[test]
    fn every_job_is_run_and_a_failure_is_its_own() {
        let job = |what: &str, script: &str, is_suite: bool| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            Job { what: what.into(), command, is_suite }
        };
        let told = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'";
        let jobs = vec![job("a", told, true), job("b", "exit 3", false), job("c", "echo x", false)];
        let mut done = run_all(jobs);
        done.sort_by(|one, other| one.0.cmp(&other.0));
        let counts: Vec<_> = done
            .iter()
            .map(|(what, o)| (what.as_str(), o.tally.passed, o.tally.failed, o.result.is_ok()))
            .collect();
        assert_eq!(counts, [("a", 2, 0, true), ("b", 0, 1, false), ("c", 1, 0, true)]);
    }
}
