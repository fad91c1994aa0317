//! The suites of tests, short and long.

use crate::planted::planted;
use crate::run::{SUITE, Tally, command, root, run, run_tests};
use crate::skips::Skips;
use crate::tidy::tidy;
use std::process::Command;
use std::time::Duration;

/// `SUITE` with the long counts.
const LONG_SUITE: Duration = Duration::from_secs(2 * 3600);

/// Everything that must hold before a change lands.
pub fn test() -> Result<(), String> {
    let mut suites = Suites::default();
    suites.note("tidy", tidy());
    let all = command("cargo test --workspace --locked --no-fail-fast");
    suites.tests("tests of all crates", SUITE, all);
    suites.tests("ring order, model-checked", SUITE, loom());
    for experiment in &EXPERIMENTS[..5] {
        suites.note("fresh seeds", seeds("", experiment, "--seconds 36"));
    }
    suites.finish()
}

/// The long counts.
pub fn soak() -> Result<(), String> {
    let mut suites = Suites::default();
    let mut long = command("cargo test --release --workspace --locked --no-fail-fast");
    link_quickly(&mut long);
    long.env("TRAPEZE_SOAK", "1").args(["--", "--include-ignored", "--nocapture"]);
    suites.tests("long counts", LONG_SUITE, long);
    suites.note("tests that notice planted bugs", planted());
    suites.tests("ring order, model-checked", LONG_SUITE, loom());
    for experiment in EXPERIMENTS {
        suites.note("fresh seeds", seeds("--release", experiment, "--seconds 400"));
    }
    suites.finish()
}

/// The micro-benchmarks that are tests, with large inputs and their figures shown.
pub fn bench() -> Result<(), String> {
    let mut command = command("cargo test --release --workspace --locked bench_");
    command.env("TRAPEZE_BENCH", "1").args(["--", "--include-ignored", "--nocapture"]);
    run("micro-benchmarks", command)
}

/// Coverage-guided fuzzing of every target in turn.
pub fn fuzz(seconds: Option<&str>) -> Result<(), String> {
    let seconds: u64 = match seconds.unwrap_or("60").parse() {
        Ok(seconds) => seconds,
        Err(_) => return Err("fuzz takes a number of seconds for each target".to_string()),
    };
    let targets = root().join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&targets).map_err(|error| format!("{targets:?}: {error}"))?;
    let mut names: Vec<_> =
        entries.filter_map(|e| Some(e.ok()?.path().file_stem()?.to_owned())).collect();
    names.sort();
    for name in names {
        let name = name.to_string_lossy();
        let line = format!("cargo +nightly fuzz run {name} -- -max_total_time={seconds}");
        run(&format!("fuzzing {name}"), command(&line))?;
    }
    Ok(())
}

/// Run with fresh seeds: the first five 36 seconds each among the tests, all of them 400 seconds each in a soak.
const EXPERIMENTS: [&str; 11] = [
    "one-mount",
    "two-mounts",
    "long-files",
    "power-cuts",
    "network-memory",
    "full-disks",
    "failing-disks",
    "moving-columns",
    "lending",
    "network-memory-keys",
    "network-memory-guests",
];

/// Runs seeds of an experiment in the simulator; a failing one is printed as the command that replays it.
fn seeds(profile: &str, experiment: &str, which: &str) -> Result<(), String> {
    let line = format!(
        "cargo run {profile} --locked --quiet -p trapeze -- sim experiments/{experiment}.toml {which}"
    );
    let mut command = command(&line);
    link_quickly(&mut command);
    run(&format!("seeds of experiments/{experiment}.toml"), command)
}

/// For release builds of dozens of test programs.
fn link_quickly(command: &mut Command) {
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
}

/// Loom needs its own build of `endpoint`, with every atomic replaced.
fn loom() -> Command {
    let mut loom = command("cargo test -p endpoint --release --locked --lib loom");
    loom.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
    loom.env("CARGO_TARGET_DIR", root().join("target/loom"));
    loom
}

/// Runs suites one after the other, also after one has failed.
#[derive(Default)]
struct Suites {
    tally: Tally,
    skips: Skips,
    problems: Vec<String>,
}

impl Suites {
    fn note(&mut self, what: &str, result: Result<(), String>) {
        let counted = match result {
            Ok(()) => Tally { passed: 1, ..Tally::default() },
            Err(problem) => {
                self.problems.push(format!("{what}: {problem}"));
                Tally { failed: 1, ..Tally::default() }
            }
        };
        self.tally.add(counted);
    }

    fn tests(&mut self, what: &str, limit: Duration, command: Command) {
        let outcome = run_tests(what, limit, command);
        self.tally.add(outcome.tally);
        self.skips.add(outcome.skips);
        if let Err(problem) = outcome.result {
            self.problems.push(problem);
            self.tally.failed = self.tally.failed.max(1);
        }
    }

    /// The closing line that runners print.
    fn finish(self) -> Result<(), String> {
        println!();
        self.skips.lines().iter().for_each(|line| println!("{line}"));
        self.problems.iter().for_each(|problem| println!("FAILED: {problem}"));
        println!(
            "{} passed, {} failed, {} skipped",
            self.tally.passed, self.tally.failed, self.tally.skipped
        );
        match self.problems.len() {
            0 => Ok(()),
            count => Err(format!("{count} suites failed")),
        }
    }
}
