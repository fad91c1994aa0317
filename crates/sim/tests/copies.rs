//! Volumes with two copies: one machine fails at a time, or power goes everywhere.

use crate::seeds::lose_nothing;
use node::Bug;
use sim::command::search;
use sim::experiment::Experiment;

const TWO_COPIES: &str = include_str!("../../../experiments/two-copies.toml");
const POWER_CUTS: &str = include_str!("../../../experiments/two-copies-power-cuts.toml");

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 10;
/// Bugs among the tests; all are a soak's.
const FEW: usize = 2;

/// Bugs that they notice, where, and the first seed to look at: those before it were clean.
const FOUND: [(Bug, &str, u64); 10] = [
    (Bug::CopyNotForwarded, TWO_COPIES, 1),
    (Bug::LeaseNotNeeded, TWO_COPIES, 1),
    (Bug::RemovalNotForwarded, TWO_COPIES, 1),
    (Bug::TruncationNotForwarded, TWO_COPIES, 1),
    (Bug::FillLacksBlocks, TWO_COPIES, 1),
    (Bug::PrimaryNotAwaited, TWO_COPIES, 1),
    (Bug::ReplacementNotTold, TWO_COPIES, 1),
    (Bug::SilentNotRemoved, TWO_COPIES, 2),
    (Bug::SettledVerifierKept, POWER_CUTS, 1),
    (Bug::CommitNotForwarded, POWER_CUTS, 4),
];

fn experiment(text: &str, seconds: u64) -> Experiment {
    Experiment { seconds, ..Experiment::parse(text).expect("a good experiment") }
}

#[test]
fn no_failure_of_one_machine_is_noticed_where_files_have_two_copies() {
    lose_nothing(experiment(TWO_COPIES, 15), Some("experiments/two-copies.toml"), 1);
}

#[test]
fn what_was_synced_outlives_power_cuts_of_all_where_files_have_two_copies() {
    lose_nothing(experiment(POWER_CUTS, 15), Some("experiments/two-copies-power-cuts.toml"), 1);
}

#[test]
fn planted_bugs_of_two_copies_are_noticed() {
    let all = std::env::var_os("TRAPEZE_SOAK").is_some();
    let mut missed = Vec::new();
    for (bug, text, first) in &FOUND[..if all { FOUND.len() } else { FEW }] {
        let usual = Experiment::parse(*text).expect("a good experiment");
        let with_bug = Experiment { bugs: vec![format!("{bug:?}")], ..usual };
        let found = search(*first..first + SEEDS_MAX, &with_bug, |_, _| ()).expect("a known bug");
        match found {
            Some((seed, outcome)) => println!("{bug:?}: seed {seed}, {}", outcome.violations[0]),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}
