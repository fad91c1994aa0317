//! The whole cluster under fresh seeds: SIM_SECONDS is how long to go on in wall time (default: a few seconds),
//! SIM_SEED the first seed.

use sim::cluster::roles;
use sim::experiment::{Experiment, Faults};
use sim::run::{Outcome, run};
use sim::trace::Trace;

fn outcome(seed: u64, experiment: &Experiment) -> Outcome {
    run(seed, experiment, &roles(experiment, 0), Trace::default())
}

fn calm(seconds: u64) -> Experiment {
    Experiment { seconds, faults: Faults::NONE, ..Experiment::default() }
}

#[test]
fn a_calm_cluster_serves_and_a_seed_is_a_run() {
    let first = outcome(1, &calm(5));
    println!("{first}");
    assert_eq!(first.violations, Vec::<String>::new());
    assert!(first.succeeded > 500);
    assert_eq!(first.fingerprint, outcome(1, &calm(5)).fingerprint);
    assert_ne!(first.fingerprint, outcome(2, &calm(5)).fingerprint);
}

#[test]
fn a_troubled_cluster_loses_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, seconds) = (number("SIM_SEED").unwrap_or(1), number("SIM_SECONDS").unwrap_or(5));
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let experiment =
        Experiment { seconds: number("SIM_SPAN").unwrap_or(20), ..Experiment::default() };
    for seed in first.. {
        let outcome = outcome(seed, &experiment);
        println!("seed {seed}: {outcome}");
        assert_eq!(outcome.violations, Vec::<String>::new(), "replay: SIM_SEED={seed}");
        if std::time::Instant::now() > end {
            return;
        }
    }
}
