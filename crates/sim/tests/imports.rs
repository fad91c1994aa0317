//! Caches of foreign NFS servers in a simulated cluster.

use crate::seeds::{lose_nothing, outcome};
use node::Bug;
use sim::command::search;
use sim::experiment::{Experiment, Faults};

const IMPORTS: &str = include_str!("../../../experiments/imports.toml");
/// Most seeds to look for a bug.
const SEEDS_MAX: u64 = 10;

fn experiment(seconds: u64) -> Experiment {
    Experiment { seconds, ..Experiment::parse(IMPORTS).expect("a good experiment") }
}

#[test]
fn an_import_shows_what_its_origin_had_within_the_attribute_time() {
    lose_nothing(experiment(30), Some("experiments/imports.toml"), 3);
}

/// The parts of a read go to two servers. The request to one of them was lost, and retransmitted when the file had
/// changed and both had its next version.
#[test]
fn seed_1004_mixes_no_bytes_of_two_versions() {
    let outcome = outcome(1_004, &experiment(3));
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
}

/// Only the origin changes: no operation fails but by that.
#[test]
fn an_import_in_a_cluster_without_faults_fails_no_operation() {
    let calm = Experiment { faults: Faults::NONE, ..experiment(20) };
    let calm = Experiment {
        imports: calm.imports.map(|imports| sim::experiment::ImportShape {
            aways_per_minute: 0,
            restarts_per_minute: 0,
            ..imports
        }),
        ..calm
    };
    lose_nothing(calm, None, 1);
}

#[test]
fn bytes_of_another_version_than_the_one_that_is_known_are_noticed() {
    let bugs = vec![format!("{:?}", Bug::OtherVersionFetched)];
    let with_bug = Experiment { bugs, ..experiment(60) };
    let found = search(1..=SEEDS_MAX, &with_bug, |_, _| ()).expect("a known bug");
    let (seed, outcome) = found.expect("it is found");
    println!("seed {seed}, {}", outcome.violations[0]);
    assert!(outcome.violations[0].contains("are of no version"), "{:?}", outcome.violations);
}
