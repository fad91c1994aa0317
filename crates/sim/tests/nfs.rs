//! Clients of NFS in a simulated cluster.

use crate::seeds::lose_nothing;
use node::Bug;
use sim::command::search;
use sim::experiment::Experiment;

const NFS_CLIENTS: &str = include_str!("../../../experiments/nfs-clients.toml");
const NFS_FILTER: &str = include_str!("../../../experiments/nfs-filter.toml");
const NFS_MANAGERS: &str = include_str!("../../../experiments/nfs-managers.toml");
const NFS_POWER_CUTS: &str = include_str!("../../../experiments/nfs-power-cuts.toml");

/// Little but locks, some of which are held while the manager loses power and starts again.
const LOCKS: &str = "
    [shape]
    servers = 1
    disks = 1
    mounts = 1
    workers = 1
    shared_files = 1
    file_kib = 16
    [nfs]
    machines = 1
    applications = 1
    lockers = 8
    [faults]
    kills_per_minute = 0
    power_cuts_per_minute = 8
    pauses_per_minute = 0
    partitions_per_minute = 0";

/// Many clients that list what changes, and nothing fails.
const LISTINGS: &str = "
    [shape]
    servers = 1
    disks = 1
    mounts = 1
    workers = 1
    shared_files = 1
    file_kib = 16
    [nfs]
    machines = 4
    applications = 4
    lockers = 0
    losses_per_minute = 0
    [faults]
    kills_per_minute = 0
    power_cuts_per_minute = 0
    pauses_per_minute = 0
    partitions_per_minute = 0";

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 10;

/// Bugs that they notice, where, and the first seed to look at: those before it were clean.
const FOUND: [(Bug, &str, u64); 20] = [
    (Bug::ChangeDuplicated, NFS_CLIENTS, 1),
    (Bug::CallsMistaken, NFS_CLIENTS, 1),
    (Bug::EntrySkipped, NFS_CLIENTS, 1),
    (Bug::UnstableCookies, NFS_CLIENTS, 1),
    (Bug::FrontVerifierKept, NFS_CLIENTS, 4),
    (Bug::NfsCommitIgnored, NFS_CLIENTS, 1),
    (Bug::NfsStableIgnored, NFS_CLIENTS, 1),
    (Bug::GuardIgnored, NFS_CLIENTS, 1),
    (Bug::ExclusiveTwice, NFS_CLIENTS, 1),
    (Bug::SourceNameKept, NFS_CLIENTS, 1),
    (Bug::ListingKept, LISTINGS, 2),
    (Bug::SyncNotWaitedFor, NFS_POWER_CUTS, 3),
    (Bug::PartNotFinished, NFS_MANAGERS, 1),
    (Bug::StaleTableAccepted, NFS_MANAGERS, 1),
    (Bug::PreparedShown, NFS_MANAGERS, 1),
    (Bug::ConflictGranted, NFS_MANAGERS, 1),
    (Bug::GraceSkipped, LOCKS, 2),
    (Bug::ForwardedTwice, NFS_FILTER, 1),
    (Bug::ForwardsMistaken, NFS_FILTER, 1),
    (Bug::OwnBytesForgotten, NFS_FILTER, 1),
];

fn experiment(text: &str, seconds: u64) -> Experiment {
    Experiment { seconds, ..Experiment::parse(text).expect("a good experiment") }
}

#[test]
fn clients_of_nfs_have_what_they_were_promised() {
    lose_nothing(experiment(NFS_CLIENTS, 40), Some("experiments/nfs-clients.toml"), 2);
}

#[test]
fn several_managers_are_one_name_space_to_clients_of_nfs() {
    lose_nothing(experiment(NFS_MANAGERS, 30), Some("experiments/nfs-managers.toml"), 1);
}

#[test]
fn what_managers_answer_to_clients_of_nfs_outlives_power_cuts() {
    lose_nothing(experiment(NFS_POWER_CUTS, 40), Some("experiments/nfs-power-cuts.toml"), 2);
}

#[test]
fn locks_that_are_held_over_power_cuts_exclude_each_other() {
    lose_nothing(experiment(LOCKS, 60), None, 2);
}

#[test]
fn a_filter_that_forgets_everything_changes_nothing_for_clients_of_nfs() {
    lose_nothing(experiment(NFS_FILTER, 40), Some("experiments/nfs-filter.toml"), 1);
}

#[test]
fn clients_of_nfs_notice_planted_bugs() {
    let mut missed = Vec::new();
    for (bug, text, first) in FOUND {
        let with_bug = Experiment { bugs: vec![format!("{bug:?}")], ..experiment(text, 90) };
        let found = search(first..first + SEEDS_MAX, &with_bug, |_, _| ()).expect("a known bug");
        match found {
            Some((seed, outcome)) => println!("{bug:?}: seed {seed}, {}", outcome.violations[0]),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}
