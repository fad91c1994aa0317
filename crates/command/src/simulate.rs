//! `trapeze sim`: the cluster in the deterministic simulator; experiments with models, as `trapeze papers` runs them.

use crate::built_in;
use crate::cli;
use crate::papers::{self, PapersError};
use ::papers::{Fault, Source};
use serde_json::json;
use sim::command::{Kind, kind, replay, search, simulate};
use sim::experiment::Experiment;
use sim::run::Outcome;
use sim::trace::Trace;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terminal::progress;
use terminal::table::print_json;

/// Why a simulation did not run, or what it found.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A file.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// The experiment.
    #[error("{0}: {1}")]
    Experiment(PathBuf, String),
    /// A line of it.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// An experiment with a model.
    #[error(transparent)]
    Model(#[from] PapersError),
    /// A flag for the other kind of experiments.
    #[error("--{0} is for experiments with {1}; this one is with {2}")]
    Flag(&'static str, &'static str, &'static str),
    /// A name.
    #[error("nothing built in is called {0:?}; `trapeze sim --list` shows what is")]
    Unknown(String),
    /// A checker saw something that must not be.
    #[error("seed {seed} broke a promise: {first}\nreplay it with: {command}")]
    Broken {
        /// The seed.
        seed: u64,
        /// The checker's first complaint.
        first: String,
        /// The same run again, with a trace.
        command: String,
    },
}

/// Runs an experiment; or shows what one may be made of.
pub fn sim(arguments: &cli::Sim) -> Result<(), SimError> {
    if arguments.list {
        built_in::list(arguments.output.json);
        return Ok(());
    }
    if let Some(name) = &arguments.print {
        print!("{}", built_in::find(name).ok_or_else(|| SimError::Unknown(name.clone()))?);
        return Ok(());
    }
    let Some(path) = &arguments.experiment else { return faults(Experiment::default(), arguments) };
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| SimError::File(path.clone(), error))?;
    let source = Source { file: &path.display().to_string(), text: &text };
    match kind(source)? {
        Kind::Faults => faults(Experiment::parse(source)?, arguments),
        Kind::Model => {
            let seeds = &arguments.seeds;
            let given = [
                ("seed", seeds.seed.is_some()),
                ("seconds", seeds.seconds.is_some()),
                ("first", seeds.first.is_some()),
                ("count", seeds.count.is_some()),
                ("trace", seeds.trace.is_some()),
            ];
            refuse(&given, "faults", "a model")?;
            let experiments = vec![papers::parse(path, source)?];
            Ok(papers::evaluate(experiments, &arguments.results, &arguments.output)?)
        }
    }
}

/// An error for the first flag that is given.
fn refuse(
    flags: &[(&'static str, bool)],
    meant: &'static str,
    is: &'static str,
) -> Result<(), SimError> {
    let given = flags.iter().find(|(_, given)| *given);
    given.map_or(Ok(()), |(flag, _)| Err(SimError::Flag(flag, meant, is)))
}

/// Runs one seed, or fresh seeds for a while.
fn faults(experiment: Experiment, arguments: &cli::Sim) -> Result<(), SimError> {
    let cli::Results { out, check, markdown } = &arguments.results;
    let given = [("out", out.is_some()), ("check", *check), ("markdown", *markdown)];
    refuse(&given, "a model", "faults")?;
    let file = arguments.experiment.as_ref().map(|path| path.display().to_string());
    let failed = match arguments.seeds.seed {
        Some(seed) => one(seed, &experiment, arguments)?,
        None => many(&experiment, arguments)?,
    };
    let Some((seed, outcome)) = failed else { return Ok(()) };
    let first = outcome.violations.first().cloned().unwrap_or_default();
    Err(SimError::Broken { seed, first, command: replay(seed, file.as_deref()) })
}

type Failed = Option<(u64, Outcome)>;

fn one(seed: u64, experiment: &Experiment, arguments: &cli::Sim) -> Result<Failed, SimError> {
    let trace = open_trace(arguments.seeds.trace.as_deref())?;
    let outcome = simulate(seed, experiment, trace).map_err(|error| {
        SimError::Experiment(arguments.experiment.clone().unwrap_or_default(), error)
    })?;
    report(seed, &outcome, arguments.output.json);
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

/// Counts of the runs so far.
#[derive(Default)]
struct Ran {
    seeds: u64,
    events: u64,
}

/// How long seeds are run, if nothing is said.
const SECONDS: u64 = 60;

fn many(experiment: &Experiment, arguments: &cli::Sim) -> Result<Failed, SimError> {
    let fresh = || u64::from(u32::from_le_bytes(trapeze::random::bytes()));
    let first = arguments.seeds.first.unwrap_or_else(fresh);
    let seconds = arguments.seeds.seconds.unwrap_or(SECONDS);
    let (start, span) = (Instant::now(), Duration::from_secs(seconds));
    let seeds = Seeds {
        next: AtomicU64::new(first),
        end: arguments.seeds.count.map_or(u64::MAX, |count| first.saturating_add(count)),
        until: start + span,
        failed: AtomicBool::new(false),
    };
    let bar = progress::steps("simulating", seconds);
    let ran = Mutex::new(Ran::default());
    let each = |seed: u64, outcome: &Outcome| {
        let mut ran = ran.lock().expect("nothing panics with it");
        *ran = Ran { seeds: ran.seeds + 1, events: ran.events + outcome.events };
        bar.set_position(start.elapsed().as_secs());
        if arguments.output.json {
            report(seed, outcome, true);
        }
    };
    let failed =
        on_all_processors(&seeds, experiment, each, arguments.output.jobs()).map_err(|error| {
            SimError::Experiment(arguments.experiment.clone().unwrap_or_default(), error)
        })?;
    bar.finish_and_clear();
    let Ran { seeds, events } = ran.into_inner().expect("nothing panics with it");
    if !arguments.output.json {
        let seconds = start.elapsed().as_secs_f64();
        println!("{seeds} seeds from {first}, {events} events in {seconds:.0} s");
    }
    Ok(failed)
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
