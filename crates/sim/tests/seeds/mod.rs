//! Seeds of simulated clusters, as the environment asks for them. SIM_SECONDS: how long to go on in wall time;
//! SIM_SEED: the first seed; SIM_EXPERIMENT: the text of an experiment; SIM_TRACE: set to see the trace.

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

/// What the environment asks for, or the usual one.
pub fn experiment(usual: Experiment) -> Experiment {
    let text = setting("SIM_EXPERIMENT");
    text.map_or(usual, |text| Experiment::parse(text.as_str()).expect("an experiment"))
}

pub fn outcome(seed: u64, experiment: &Experiment) -> Outcome {
    let on = setting("SIM_TRACE").is_some();
    let trace = if on { Trace::to(Box::new(|line| eprintln!("{line}"))) } else { Trace::default() };
    simulate(seed, experiment, trace).expect("a good experiment")
}

/// Runs fresh seeds until the time is up, or the first one with its trace. `kept` is the experiment's file.
pub fn lose_nothing(usual: Experiment, kept: Option<&str>) {
    let (experiment, first) = (experiment(usual), number("SIM_SEED", 1));
    if setting("SIM_TRACE").is_some() {
        println!("{}", outcome(first, &experiment));
        return;
    }
    let end = Instant::now() + Duration::from_secs(number("SIM_SECONDS", 5));
    let each = |seed, outcome: &Outcome| println!("seed {seed}: {outcome}");
    let seeds = (first..).take_while(|_| Instant::now() < end);
    let failed = search(seeds, &experiment, each).expect("no unknown bug");
    if let Some((seed, outcome)) = failed {
        panic!("{}\nreplay: {}", outcome.violations.join("\n"), replay(seed, kept));
    }
}
