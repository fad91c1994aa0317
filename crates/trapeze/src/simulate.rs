//! `trapeze sim`: the cluster in the deterministic simulator.

use crate::cli;
use crate::progress;
use crate::table::print_json;
use serde_json::json;
use sim::command::{replay, search, simulate};
use sim::experiment::Experiment;
use sim::run::Outcome;
use sim::trace::Trace;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Why a simulation did not run, or what it found.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// The experiment.
    #[error("{0}: {1}")]
    Experiment(PathBuf, String),
    /// A checker saw something that must not be.
    #[error("seed {seed} broke a promise: {first}\nreplay it with: {command}")]
    Broken {
        /// The seed.
        seed: u64,
        /// What the checker said first.
        first: String,
        /// The same run again, with a trace.
        command: String,
    },
}

/// Runs one seed, or fresh seeds for a while.
pub fn sim(arguments: &cli::Sim) -> Result<(), SimError> {
    let experiment = load(arguments.experiment.as_deref())?;
    let file = arguments.experiment.as_ref().map(|path| path.display().to_string());
    let failed = match arguments.seed {
        Some(seed) => one(seed, &experiment, arguments)?,
        None => many(&experiment, arguments)?,
    };
    let Some((seed, outcome)) = failed else { return Ok(()) };
    let first = outcome.violations.first().cloned().unwrap_or_default();
    Err(SimError::Broken { seed, first, command: replay(seed, file.as_deref()) })
}

fn load(path: Option<&Path>) -> Result<Experiment, SimError> {
    let Some(path) = path else { return Ok(Experiment::default()) };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| SimError::File(path.into(), error))?;
    Experiment::parse(&text).map_err(|error| SimError::Experiment(path.into(), error.to_string()))
}

type Failed = Option<(u64, Outcome)>;

fn one(seed: u64, experiment: &Experiment, arguments: &cli::Sim) -> Result<Failed, SimError> {
    let trace = open_trace(arguments.trace.as_deref())?;
    let outcome = simulate(seed, experiment, trace).map_err(|error| {
        SimError::Experiment(arguments.experiment.clone().unwrap_or_default(), error)
    })?;
    report(seed, &outcome, arguments.json);
    Ok((!outcome.violations.is_empty()).then_some((seed, outcome)))
}

fn open_trace(path: Option<&Path>) -> Result<Trace, SimError> {
    let Some(path) = path else { return Ok(Trace::default()) };
    let out: Box<dyn Write> = match path.to_str() {
        Some("-") => Box::new(std::io::stdout()),
        _ => Box::new(File::create(path).map_err(|error| SimError::File(path.into(), error))?),
    };
    let mut out = BufWriter::new(out);
    Ok(Trace::to(Box::new(move |line| {
        let _ = writeln!(out, "{line}"); // a trace that cannot be written does not stop the run
    })))
}

/// Seeds that several threads take one after the other.
struct Seeds {
    next: AtomicU64,
    end: u64,
    until: Instant,
    /// A seed has failed: no later one is begun.
    failed: AtomicBool,
}

impl Seeds {
    fn next(&self) -> Option<u64> {
        if self.failed.load(Relaxed) || Instant::now() >= self.until {
            return None;
        }
        Some(self.next.fetch_add(1, Relaxed)).filter(|seed| *seed < self.end)
    }
}

/// What the runs came to so far.
#[derive(Default)]
struct Ran {
    seeds: u64,
    events: u64,
}

fn many(experiment: &Experiment, arguments: &cli::Sim) -> Result<Failed, SimError> {
    let fresh = || u64::from(u32::from_le_bytes(crate::local::random()));
    let first = arguments.first.unwrap_or_else(fresh);
    let (start, span) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let seeds = Seeds {
        next: AtomicU64::new(first),
        end: arguments.count.map_or(u64::MAX, |count| first.saturating_add(count)),
        until: start + span,
        failed: AtomicBool::new(false),
    };
    let bar = progress::steps("simulating", arguments.seconds);
    let ran = Mutex::new(Ran::default());
    let each = |seed: u64, outcome: &Outcome| {
        let mut ran = ran.lock().expect("nothing panics with it");
        *ran = Ran { seeds: ran.seeds + 1, events: ran.events + outcome.events };
        bar.set_position(start.elapsed().as_secs());
        if arguments.json {
            report(seed, outcome, true);
        }
    };
    let failed = on_all_processors(&seeds, experiment, each, jobs(arguments)).map_err(|error| {
        SimError::Experiment(arguments.experiment.clone().unwrap_or_default(), error)
    })?;
    bar.finish_and_clear();
    let Ran { seeds, events } = ran.into_inner().expect("nothing panics with it");
    if !arguments.json {
        let seconds = start.elapsed().as_secs_f64();
        println!("{seeds} seeds from {first}, {events} events in {seconds:.0} s");
    }
    Ok(failed)
}

fn jobs(arguments: &cli::Sim) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    arguments.jobs.map_or_else(processors, NonZeroUsize::get)
}

/// A simulation is one thread's; several run beside each other. Of the seeds that fail the first is returned, the same
/// whatever the number of threads: those before it are ended, those after it are not begun.
fn on_all_processors(
    seeds: &Seeds,
    experiment: &Experiment,
    each: impl Fn(u64, &Outcome) + Sync,
    jobs: usize,
) -> Result<Failed, String> {
    let work = || {
        let found = search(std::iter::from_fn(|| seeds.next()), experiment, &each);
        seeds.failed.fetch_or(!matches!(found, Ok(None)), Relaxed);
        found
    };
    let all: Result<Vec<Failed>, String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a panic is an outcome")).collect()
    });
    Ok(all?.into_iter().flatten().min_by_key(|(seed, _)| *seed))
}

fn report(seed: u64, outcome: &Outcome, json: bool) {
    if json {
        return print_json(&json!({
            "seed": seed, "fingerprint": format!("{:016x}", outcome.fingerprint), "events": outcome.events,
            "violations": outcome.violations,
        }));
    }
    println!("seed {seed}: {} events, fingerprint {:016x}", outcome.events, outcome.fingerprint);
    outcome.violations.iter().for_each(|violation| println!("  VIOLATION {violation}"));
}
