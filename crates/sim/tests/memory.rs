//! Clusters with network memory under faults.

mod seeds;

use node::Bug;
use seeds::{outcome, setting};
use sim::command::search;
use sim::experiment::{Experiment, Faults, MemoryShape};
use sim::run::Outcome;

const USUAL: &str = include_str!("../../../experiments/network-memory.toml");

fn usual() -> Experiment {
    seeds::experiment(Experiment::parse(USUAL).expect("an experiment"))
}

fn calm(nodes: u16) -> Experiment {
    let memory = Some(MemoryShape { nodes, ..MemoryShape::default() });
    Experiment { seconds: 5, faults: Faults::NONE, memory, ..Experiment::default() }
}

fn passes(seed: u64, experiment: &Experiment) -> Outcome {
    let outcome = outcome(seed, experiment);
    assert!(outcome.violations.is_empty(), "seed {seed}: {}", outcome.violations.join("\n"));
    outcome
}

#[test]
fn without_faults_nothing_fails_and_a_seed_is_a_run() {
    let first = passes(1, &calm(5));
    assert!(first.succeeded > 5_000, "{first}");
    assert_eq!(first, passes(1, &calm(5)));
    assert_ne!(first.fingerprint, passes(2, &calm(5)).fingerprint);
}

#[test]
fn fresh_seeds_lose_nothing() {
    seeds::lose_nothing(usual(), Some("experiments/network-memory.toml"));
}

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 60;
/// What fresh seeds find.
const FOUND: [Bug; 6] = [
    Bug::MirrorNotRegistered,
    Bug::MirrorsNotMadeAgain,
    Bug::OneMirrorForTwo,
    Bug::FreedNotTold,
    Bug::StampIgnored,
    Bug::LeaseNotRevoked,
];
/// Bugs among the tests; all are a soak's.
const FEW: usize = 2;

#[test]
fn planted_bugs_are_found() {
    let all = setting("TRAPEZE_SOAK").is_some();
    let mut missed = Vec::new();
    for bug in FOUND.into_iter().take(if all { FOUND.len() } else { FEW }) {
        let experiment = Experiment { seconds: 15, bugs: vec![format!("{bug:?}")], ..usual() };
        let found = search(1..=SEEDS_MAX, &experiment, |_, _| ()).expect("a known bug");
        match found {
            Some((seed, outcome)) => println!("{bug:?}: seed {seed}: {}", outcome.violations[0]),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}
