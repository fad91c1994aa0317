//! Clients of NFS in a simulated cluster.

use crate::seeds::lose_nothing;
use node::Bug;
use sim::command::search;
use sim::experiment::Experiment;

const NFS_CLIENTS: &str = include_str!("../../../experiments/nfs-clients.toml");
const NFS_FILTER: &str = include_str!("../../../experiments/nfs-filter.toml");
const NFS_MANAGERS: &str = include_str!("../../../experiments/nfs-managers.toml");

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 10;

/// Bugs that they notice, and where.
const FOUND: [(Bug, &str); 16] = [
    (Bug::ChangeDuplicated, NFS_CLIENTS),
    (Bug::CallsMistaken, NFS_CLIENTS),
    (Bug::EntrySkipped, NFS_CLIENTS),
    (Bug::UnstableCookies, NFS_CLIENTS),
    (Bug::FrontVerifierKept, NFS_CLIENTS),
    (Bug::NfsCommitIgnored, NFS_CLIENTS),
    (Bug::NfsStableIgnored, NFS_CLIENTS),
    (Bug::GuardIgnored, NFS_CLIENTS),
    (Bug::ExclusiveTwice, NFS_CLIENTS),
    (Bug::SourceNameKept, NFS_CLIENTS),
    (Bug::ListingKept, NFS_CLIENTS),
    (Bug::PartNotFinished, NFS_MANAGERS),
    (Bug::StaleTableAccepted, NFS_MANAGERS),
    (Bug::ForwardedTwice, NFS_FILTER),
    (Bug::ForwardsMistaken, NFS_FILTER),
    (Bug::OwnBytesForgotten, NFS_FILTER),
];

fn experiment(text: &str, seconds: u64) -> Experiment {
    Experiment { seconds, ..Experiment::parse(text).expect("a good experiment") }
}

#[test]
fn clients_of_nfs_have_what_they_were_promised() {
    lose_nothing(experiment(NFS_CLIENTS, 40), Some("experiments/nfs-clients.toml"), 3);
}

#[test]
fn several_managers_are_one_name_space_to_clients_of_nfs() {
    lose_nothing(experiment(NFS_MANAGERS, 30), Some("experiments/nfs-managers.toml"), 2);
}

#[test]
fn a_filter_that_forgets_everything_changes_nothing_for_clients_of_nfs() {
    lose_nothing(experiment(NFS_FILTER, 40), Some("experiments/nfs-filter.toml"), 2);
}

#[test]
fn clients_of_nfs_notice_planted_bugs() {
    let mut missed = Vec::new();
    for (bug, text) in FOUND {
        let with_bug = Experiment { bugs: vec![format!("{bug:?}")], ..experiment(text, 90) };
        let found = search(1..=SEEDS_MAX, &with_bug, |_, _| ()).expect("a known bug");
        match found {
            Some((seed, outcome)) => println!("{bug:?}: seed {seed}, {}", outcome.violations[0]),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}
