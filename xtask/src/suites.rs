//! The suites of tests, short and long.

use crate::compiler;
use crate::planted::planted;
use crate::pool::{self, Job, Pool};
use crate::programs;
use crate::report::{self, Clocks};
use crate::run::{Outcome, SUITE, Tally, command, root, run, run_tests};
use crate::skips::Skips;
use crate::tidy;
use std::process::Command;
use std::time::Duration;

/// `SUITE` with the long counts.
const LONG_SUITE: Duration = Duration::from_secs(4 * 3600);

/// Everything that must hold before a change lands, or only jobs with one of the words in their names.
pub fn test(words: &[String]) -> Result<(), String> {
    let mut suites = Suites::default();
    if words.is_empty() {
        suites.note("tidy", tidy::sources());
    }
    let clocks = Clocks::now();
    println!("\n== building all tests, and running them");
    let (built, done) = pool::run_all(words, |pool| build(pool, &clocks));
    match built {
        Err(problem) => suites.note("tests of all crates", Err(problem)),
        Ok(0) => suites.note("lints", Ok(())),
        Ok(warnings) => suites.note("lints", Err(format!("{warnings} warnings, printed above"))),
    }
    println!();
    report::lines(&done).iter().for_each(|line| println!("{line}"));
    println!("build and tests: {}", clocks.told());
    done.into_iter().for_each(|done| suites.take(done.outcome));
    suites.finish()
}

/// Builds all tests, beside those that are built already; the number of warnings. Then the lane runs what needs Cargo's
/// lock on the target folder, as the build did, and the others what computes: loom, fresh seeds and the tests of plain
/// structs.
fn build(pool: &Pool, clocks: &Clocks) -> Result<usize, String> {
    let warnings = programs::build(pool)?;
    println!("   all tests are built: {}", clocks.told());
    pool.add(Job { is_suite: true, ..Job::of_one(LOOM, loom()) });
    for (experiment, count) in FRESH_SEEDS {
        let which = format!("--count {count} --seconds {}", SUITE.as_secs());
        pool.add(Job::of_one(seeds_of(experiment), seeds("debug", experiment, &which)?));
    }
    pool.complete();
    let mut documented = command("cargo test --workspace --locked --doc --quiet --no-fail-fast");
    compiler::wrap(&mut documented);
    pool.run_now(Job { is_suite: true, ..Job::of_one("documentation", documented) });
    Ok(warnings)
}

/// The long counts.
pub fn soak() -> Result<(), String> {
    let mut suites = Suites::default();
    let mut long = command("cargo test --release --workspace --locked --no-fail-fast");
    link_quickly(&mut long);
    long.env("TRAPEZE_SOAK", "1").args(["--", "--include-ignored", "--nocapture"]);
    suites.tests("long counts", LONG_SUITE, long);
    suites.note("tests that notice planted bugs", planted());
    suites.tests(LOOM, LONG_SUITE, loom());
    for experiment in EXPERIMENTS {
        suites.note("fresh seeds", run_seeds(experiment, "--seconds 400"));
    }
    suites.note("a fresh seed of many nodes", run_seeds(MANY_NODES, "--count 1"));
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
    let toolchain = Toolchain::found();
    for name in names {
        let arguments = format!("run {} -- -max_total_time={seconds}", name.to_string_lossy());
        run(&format!("fuzzing {}", name.to_string_lossy()), toolchain.fuzz(&arguments))?;
    }
    Ok(())
}

/// Which compiler builds the fuzz targets: coverage and the sanitizer are options that only nightly ones take, unless a
/// stable one is told that it builds itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Toolchain {
    Nightly,
    Installed,
}

impl Toolchain {
    fn found() -> Toolchain {
        let nightly = command("cargo +nightly --version").output();
        match nightly.is_ok_and(|output| output.status.success()) {
            true => Toolchain::Nightly,
            false => Toolchain::Installed,
        }
    }

    /// `cargo fuzz ARGUMENTS`.
    fn fuzz(self, arguments: &str) -> Command {
        match self {
            Toolchain::Nightly => command(&format!("cargo +nightly fuzz {arguments}")),
            Toolchain::Installed => {
                let mut fuzz = command(&format!("cargo fuzz {arguments}"));
                fuzz.env("RUSTC_BOOTSTRAP", "1");
                fuzz
            }
        }
    }
}

const LOOM: &str = "ring order, model-checked";
/// Fresh seeds among the tests: a number and no time, so that a busy machine runs as many as a quiet one.
const FRESH_SEEDS: [(&str, u64); 6] = [
    ("several-managers", 3),
    ("long-files", 4),
    ("network-memory", 6),
    ("two-mounts", 4),
    ("one-mount", 8),
    ("power-cuts", 12),
];
/// Run with fresh seeds for 400 seconds each in a soak.
const EXPERIMENTS: [&str; 27] = [
    "one-mount",
    "two-mounts",
    "two-copies",
    "two-copies-power-cuts",
    "several-managers",
    "nfs-clients",
    "nfs-filter",
    "nfs-managers",
    "nfs-power-cuts",
    "imports",
    "managers-taken-out",
    "sixteen-managers",
    "hinted-files",
    "long-files",
    "power-cuts",
    "network-memory",
    "full-disks",
    "failing-disks",
    "decaying-disks",
    "restored-names",
    "restored-managers",
    "salvaged-names",
    "moving-columns",
    "lending",
    "network-memory-keys",
    "network-memory-guests",
    "network-memory-hints",
];
/// A hundred nodes for a simulated minute, four of a processor: a single seed in a soak.
const MANY_NODES: &str = "network-memory-100";

/// The command that runs seeds of an experiment in the simulator; a failing one is printed as the command that replays
/// it. The program is the one that the tests of the whole workspace have just built: `cargo run -p command` selects
/// other features of the dependencies and would build most of them once more.
fn seeds(profile: &str, experiment: &str, which: &str) -> Result<Command, String> {
    let mut command = programs::program(programs::built(profile, "trapeze")?);
    command.args(["sim", &format!("experiments/{experiment}.toml")]).args(which.split(' '));
    Ok(command)
}

fn seeds_of(experiment: &str) -> String {
    format!("seeds of experiments/{experiment}.toml")
}

fn run_seeds(experiment: &str, which: &str) -> Result<(), String> {
    run(&seeds_of(experiment), seeds("release", experiment, which)?)
}

/// For release builds of dozens of test programs.
fn link_quickly(command: &mut Command) {
    command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
}

/// Loom needs its own build of `endpoint`, with every atomic replaced. It is not optimised: the models take a second
/// either way, and what loom depends on takes three times as long to build optimised.
fn loom() -> Command {
    let mut loom = command("cargo test -p endpoint --locked --lib loom");
    loom.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3");
    loom.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
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
        self.take(run_tests(what, limit, command));
    }

    fn take(&mut self, outcome: Outcome) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let arguments = command.get_args().map(|word| word.to_string_lossy());
        let environment = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let set =
            environment.map(|(name, value)| format!("{}={}", name.display(), value.display()));
        let program = command.get_program().to_string_lossy();
        set.chain([program.into()]).chain(arguments.map(String::from)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn fuzzing_does_without_a_nightly_toolchain() {
        let run = |toolchain: Toolchain| words(&toolchain.fuzz("run rpc"));
        assert_eq!(run(Toolchain::Nightly), "cargo +nightly fuzz run rpc");
        assert_eq!(run(Toolchain::Installed), "RUSTC_BOOTSTRAP=1 cargo fuzz run rpc");
    }

    #[test]
    fn every_experiment_with_faults_is_in_the_soak() {
        for name in EXPERIMENTS.iter().chain([&MANY_NODES]) {
            let path = root().join(format!("experiments/{name}.toml"));
            assert!(path.is_file(), "{}", path.display());
        }
        assert!(FRESH_SEEDS.iter().all(|(name, _)| EXPERIMENTS.contains(name)));
        let files = std::fs::read_dir(root().join("experiments")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        for name in names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_string())) {
            let path = root().join(format!("experiments/{name}.toml"));
            let text = std::fs::read_to_string(path).unwrap();
            let seeds = !text.contains("\nmodel = ");
            let soaked = EXPERIMENTS.contains(&name.as_str()) || name == MANY_NODES;
            assert_eq!(seeds, soaked, "experiments/{name}.toml");
        }
    }
}
