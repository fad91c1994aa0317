//! Clusters with network memory under faults.

use crate::seeds::{outcome, setting};
use node::Bug;
use sim::command::{search, simulate};
use sim::experiment::{Experiment, Faults, MemoryShape};
use sim::run::Outcome;
use sim::trace::Trace;
use std::cell::Cell;
use std::rc::Rc;

const USUAL: &str = include_str!("../../../experiments/network-memory.toml");

fn usual() -> Experiment {
    crate::seeds::experiment(Experiment::parse(USUAL).expect("an experiment"))
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

/// The backup of a page's directory had no place for the primary's own mirror, which was dropped and counted on.
#[test]
fn seed_3800222538_has_no_mirror_that_is_not_there() {
    passes(3_800_222_538, &usual());
}

/// As many as take five seconds of a quiet processor, of each experiment.
const SEEDS: usize = 4;
const HINTS_SEEDS: usize = 10;
const KEYS_SEEDS: usize = 4;
const GUESTS_SEEDS: usize = 6;

#[test]
fn fresh_seeds_lose_nothing() {
    crate::seeds::lose_nothing(usual(), Some("experiments/network-memory.toml"), SEEDS);
}

const HINTS: &str = include_str!("../../../experiments/network-memory-hints.toml");

/// Programs of which each reads and writes spaces of its own only, larger than memory, with right and wrong hints:
/// under every fault no byte is wrong, nothing is lost, every request ends, and prefetched pages stay in their part.
#[test]
fn hints_do_no_harm_under_faults() {
    let hints = crate::seeds::experiment(Experiment::parse(HINTS).expect("an experiment"));
    crate::seeds::lose_nothing(hints, Some("experiments/network-memory-hints.toml"), HINTS_SEEDS);
}

const KEYS: &str = include_str!("../../../experiments/network-memory-keys.toml");

fn keys() -> Experiment {
    crate::seeds::experiment(Experiment::parse(KEYS).expect("an experiment"))
}

/// Front ends on all nodes, clients on each: under every fault a key has its last value or none, and while its owner's
/// incarnation lasts the last one.
#[test]
fn keys_are_right_under_faults() {
    crate::seeds::lose_nothing(keys(), Some("experiments/network-memory-keys.toml"), KEYS_SEEDS);
}

const GUESTS: &str = include_str!("../../../experiments/network-memory-guests.toml");

fn guests() -> Experiment {
    crate::seeds::experiment(Experiment::parse(GUESTS).expect("an experiment"))
}

/// Processes that are no nodes and keep pages with the nodes, as regions do: under every fault each page is what was
/// written last, and lost only when both nodes that had it have ended.
#[test]
fn guests_pages_are_right_under_faults() {
    crate::seeds::lose_nothing(
        guests(),
        Some("experiments/network-memory-guests.toml"),
        GUESTS_SEEDS,
    );
}

#[test]
fn guests_pages_that_a_node_forgets_are_found() {
    let bugs = vec![format!("{:?}", Bug::GuestsForgotten)];
    let found = search(1..=SEEDS_MAX, &Experiment { bugs, ..guests() }, |_, _| ());
    let (seed, outcome) = found.expect("a known bug").expect("a few seeds show it");
    println!("GuestsForgotten: seed {seed}: {}", outcome.violations[0]);
    assert!(outcome.violations[0].contains("guest"), "{:?}", outcome.violations);
}

#[test]
fn copies_of_guests_pages_that_are_none_are_found() {
    for bug in [Bug::GuestsIncarnationIgnored, Bug::SilentHolderCounted] {
        let bugs = vec![format!("{bug:?}")];
        let found = search(1..=SEEDS_MAX, &Experiment { bugs, ..guests() }, |_, _| ());
        let (seed, outcome) = found.expect("a known bug").expect("a few seeds show it");
        println!("{bug:?}: seed {seed}: {}", outcome.violations[0]);
        assert!(outcome.violations[0].contains("guest"), "{:?}", outcome.violations);
    }
}

#[test]
fn answers_of_former_owners_are_found() {
    let bugs = vec![format!("{:?}", Bug::FormerKeysServed)];
    let found = search(1..=SEEDS_MAX, &Experiment { bugs, ..keys() }, |_, _| ());
    let (seed, outcome) = found.expect("a known bug").expect("a few seeds show it");
    println!("FormerKeysServed: seed {seed}: {}", outcome.violations[0]);
    assert!(outcome.violations[0].contains("key") || outcome.violations[0].contains("counter"));
}

#[test]
fn what_nobody_asked_for_stays_in_its_part_of_memory() {
    let bugs = vec![format!("{:?}", Bug::AheadUnbounded)];
    let hints = Experiment::parse(HINTS).expect("an experiment");
    let calm = Experiment { seconds: 5, faults: Faults::NONE, bugs, ..hints };
    let found = search(1..=5, &calm, |_, _| ()).expect("a known bug");
    let (_, outcome) = found.expect("a few seeds show it");
    assert!(outcome.violations[0].contains("nobody asked for"), "{:?}", outcome.violations);
}

const OFTEN_SILENT: &str = "
    [memory]
    [faults]
    kills_per_minute = 2
    power_cuts_per_minute = 0
    pauses_per_minute = 30
    partitions_per_minute = 6";

/// Most silences are longer than the registry waits; hardly a node ends by them.
#[test]
fn nodes_that_are_given_up_go_on_in_other_lives() {
    let experiment = Experiment::parse(OFTEN_SILENT).expect("an experiment");
    let experiment = Experiment { seconds: 20, ..experiment };
    for seed in 1..4 {
        let (incarnations, seen) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (count, starts) = (incarnations.clone(), seen.clone());
        let trace = Trace::to(Box::new(move |line: &str| {
            count.set(
                count.get()
                    + u32::from(line.contains("is in incarnation") && !line.ends_with(" 0")),
            );
            starts.set(starts.get() + u32::from(line.contains("starts, incarnation")));
        }));
        let outcome = simulate(seed, &experiment, trace).expect("a good experiment");
        assert!(outcome.violations.is_empty(), "seed {seed}: {}", outcome.violations.join("\n"));
        let on = incarnations.get() - seen.get();
        assert!(on >= 4, "seed {seed}: {on} incarnations that no process began with");
    }
}

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 60;
/// Bugs that fresh seeds find.
const FOUND: [Bug; 7] = [
    Bug::FormerIncarnationKept,
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
