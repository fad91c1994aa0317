//! Seeds of simulated clusters, as the environment asks for them. SIM_SECONDS: how long to go on in wall time,
//! instead of the usual number of seeds; SIM_SEED: the first seed; SIM_EXPERIMENT: the text of an experiment;
//! SIM_TRACE: set to see the trace.

use sim::command::{replay, search, simulate};
use sim::experiment::Experiment;
use sim::run::Outcome;
use sim::trace::Trace;
use std::time::{Duration, Instant};

pub fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, usual: u64) -> u64 {
    setting(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// The experiment that the environment names, or the usual one.
pub fn experiment(usual: Experiment) -> Experiment {
    let text = setting("SIM_EXPERIMENT");
    text.map_or(usual, |text| Experiment::parse(text.as_str()).expect("an experiment"))
}

pub fn outcome(seed: u64, experiment: &Experiment) -> Outcome {
    let on = setting("SIM_TRACE").is_some();
    let trace = if on { Trace::to(Box::new(|line| eprintln!("{line}"))) } else { Trace::default() };
    simulate(seed, experiment, trace).expect("a good experiment")
}

/// Runs `count` seeds, so that a busy machine runs as many as a quiet one, or the first one with its trace. `kept` is
/// the experiment's file.
pub fn lose_nothing(usual: Experiment, kept: Option<&str>, count: usize) {
    let (experiment, first) = (experiment(usual), number("SIM_SEED", 1));
    if setting("SIM_TRACE").is_some() {
        println!("{}", outcome(first, &experiment));
        return;
    }
    let span = setting("SIM_SECONDS").map(|_| Duration::from_secs(number("SIM_SECONDS", 0)));
    let end = span.map(|span| Instant::now() + span);
    let count = if end.is_some() { usize::MAX } else { count };
    let each = |seed, outcome: &Outcome| println!("seed {seed}: {outcome}");
    let is_going = |_: &u64| end.is_none_or(|end| Instant::now() < end);
    let seeds = (first..).take(count).take_while(is_going);
    let failed = search(seeds, &experiment, each).expect("no unknown bug");
    if let Some((seed, outcome)) = failed {
        panic!("{}\nreplay: {}", outcome.violations.join("\n"), replay(seed, kept));
    }
}
