//! Proof that the checkers see: planted bugs (`node::Bug`), each found by fresh seeds of the usual experiment, two
//! mounts under every fault, or of one that does more of what the bug is about. Settings from the environment:
//! SIM_SEED, the first seed; TRAPEZE_SOAK, set to search for all rather than for the first few of [`FOUND`].

use node::Bug;
use sim::command::search;
use sim::experiment::Experiment;

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 100;
/// Bugs among the tests; all are a soak's.
const FEW: usize = 6;
/// The same of [`SKIPPED`].
const FEW_SKIPPED: usize = 4;

/// Bugs that a change of a service could introduce, found by a few seeds.
const FOUND: [Bug; 24] = [
    Bug::HoleNotZeroed,
    Bug::IgnoredVerifier,
    Bug::CutBlockKept,
    Bug::ConstantVerifier,
    Bug::WriteOrderIgnored,
    Bug::OverlayIgnored,
    Bug::SkippedFsync,
    Bug::LostSizeUpdate,
    Bug::UnstableCookies,
    Bug::CloseNotWaitedFor,
    Bug::OneColumnCommitted,
    Bug::CopyDroppedEarly,
    Bug::ChecksumIgnored,
    Bug::PartialBlockReplaced,
    Bug::LastRecordSkipped,
    Bug::SourceNameKept,
    Bug::FsyncNotWaitedFor,
    Bug::RetransmittedAsNew,
    Bug::LogDroppedEarly,
    Bug::SessionNotLogged,
    Bug::LostPeerIgnored,
    Bug::StableNotCommitted,
    Bug::PunchForgotten,
    Bug::SoughtInPlace,
];

/// Bugs that need another experiment, found by a few of its seeds.
const FOUND_BY: [(Bug, &str); 12] = [
    (Bug::AwayPageTaken, LENDING),
    (Bug::PlacedNotSynced, LARGE_COMMITS),
    (Bug::StaleEpochAccepted, MOVES),
    (Bug::TokenKeyIgnored, BAD_LINKS),
    (Bug::OldSessionAccepted, BAD_LINKS),
    (Bug::WriteErrorSwallowed, FULL_DISKS),
    (Bug::RestoredNumbersRepeat, RESTORED_NAMES),
    (Bug::BackupNotQuiesced, RESTORED_MANAGERS),
    (Bug::SalvagedNotCompared, SALVAGED_NAMES),
    (Bug::PresentForgotten, SALVAGED_NAMES),
    (Bug::DecisionNotSynced, SEVERAL_MANAGERS),
    (Bug::SyncNotWaitedFor, CUTS_OF_MANAGERS),
];

/// Columns move from disk to disk while two mounts write.
const MOVES: &str = "
    [shape]
    shared_files = 1
    moves_per_minute = 120
    [faults]
    drop_per_million = 10_000
    reorder_per_million = 20_000
    duplicate_per_million = 20_000
    delay_per_million = 10_000";
/// Every machine lends memory, where most of what leaves the I/O servers' small caches is.
const LENDING: &str = "[shape]\n lend_mib = 2";
/// Messages come late, twice or not at all, nodes pause; one server, small files.
const BAD_LINKS: &str = "
    [shape]
    servers = 1
    disks = 1
    workers = 2
    shared_files = 1
    file_kib = 64
    [faults]
    drop_per_million = 20_000
    reorder_per_million = 50_000
    duplicate_per_million = 50_000
    delay_per_million = 20_000
    power_cuts_per_minute = 0
    pauses_per_minute = 30
    partitions_per_minute = 6
    slow_disks_per_minute = 20";
/// Files of 4 MiB, of which more than a record of the log takes is committed at once, and power cuts.
const LARGE_COMMITS: &str = "
    [shape]
    mounts = 1
    shared_files = 1
    file_kib = 4096
    [faults]
    kills_per_minute = 0
    power_cuts_per_minute = 20";
/// Two managers, and a power cut every second. Without clients of NFS, each of whose changes syncs the names.
const CUTS_OF_MANAGERS: &str = "
    [shape]
    servers = 1
    disks = 1
    more_managers = 1
    shared_files = 1
    file_kib = 16
    [faults]
    kills_per_minute = 0
    power_cuts_per_minute = 60
    slow_disks_per_minute = 10";
const FULL_DISKS: &str = include_str!("../../../experiments/full-disks.toml");

const RESTORED_NAMES: &str = include_str!("../../../experiments/restored-names.toml");
const RESTORED_MANAGERS: &str = include_str!("../../../experiments/restored-managers.toml");
const SALVAGED_NAMES: &str = include_str!("../../../experiments/salvaged-names.toml");
const SEVERAL_MANAGERS: &str = include_str!("../../../experiments/several-managers.toml");
const DECAYING_DISKS: &str = include_str!("../../../experiments/decaying-disks.toml");

/// A check that is skipped.
struct Skipped {
    bug: Bug,
    /// Checks that would notice as well, and are skipped too; alone they are silent in the seed that finds the bug.
    besides: &'static [Bug],
    /// How disks decay.
    decays_of: &'static [&'static str],
}

const fn skipped(bug: Bug, besides: &'static [Bug], decays_of: &'static [&str]) -> Skipped {
    Skipped { bug, besides, decays_of }
}

/// Found by decaying disks.
const SKIPPED: [Skipped; 13] = [
    skipped(Bug::MissingIsHole, &[], &["FileRemoved"]),
    skipped(Bug::DiskNotVerified, &[], &["BitFlipped", "BlockZeroed", "WriteLost"]),
    skipped(Bug::DiskIdIgnored, &[], &["Emptied"]),
    skipped(Bug::DiskAgeIgnored, &[], &["AllOlder"]),
    skipped(Bug::OlderStoreServed, &[], &["AllOlder"]),
    skipped(Bug::PageSumIgnored, &[], &["BlockZeroed", "WriteLost"]),
    skipped(Bug::IndexNotCompared, &[], &["FileOlder"]),
    skipped(Bug::MarkIgnored, &[Bug::DiskAgeIgnored], &["FileTruncated", "FileRemoved"]),
    skipped(Bug::LogChainIgnored, &[Bug::DiskAgeIgnored, Bug::MarkIgnored], &["BitFlipped"]),
    skipped(Bug::RecordSumIgnored, &[], &["BitFlipped"]),
    skipped(Bug::HeaderSumIgnored, &[Bug::IndexNotCompared], &["BitFlipped"]),
    skipped(Bug::ShortFileIgnored, &[], &["FileTruncated"]),
    skipped(Bug::ScrubBlind, &[], &["BitFlipped", "BlockZeroed", "WriteLost"]),
];

impl Skipped {
    fn experiment(&self, with_bug: bool) -> Experiment {
        let usual = Experiment::parse(DECAYING_DISKS).expect("a good experiment");
        let bugs = self.besides.iter().chain(with_bug.then_some(&self.bug));
        let bugs = bugs.map(|bug| format!("{bug:?}")).collect();
        let decays_of = self.decays_of.iter().map(|decay| decay.to_string()).collect();
        Experiment { bugs, decays_of, ..usual }
    }

    fn seeds_until_found(&self, first: u64) -> Option<u64> {
        let fails = |seed: u64, with_bug| {
            let found = search(seed..=seed, &self.experiment(with_bug), |_, _| ());
            found.expect("a known bug").is_some()
        };
        let found =
            |seed: &u64| fails(*seed, true) && (self.besides.is_empty() || !fails(*seed, false));
        (first..first + SEEDS_MAX).find(found).map(|seed| seed - first + 1)
    }
}

/// Seeds until the bug is found; `None` when it is not.
fn seeds_until_found(bug: Bug, experiment: &str, first: u64) -> Option<u64> {
    let usual = Experiment::parse(experiment).expect("a good experiment");
    let experiment = Experiment { bugs: vec![format!("{bug:?}")], ..usual };
    let found = search(first..first + SEEDS_MAX, &experiment, |_, _| ()).expect("a known bug");
    found.map(|(seed, _)| seed - first + 1)
}

fn first_seed() -> u64 {
    std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn searches_for_all() -> bool {
    std::env::var_os("TRAPEZE_SOAK").is_some()
}

#[test]
fn planted_bugs_are_found() {
    let (first, all) = (first_seed(), searches_for_all());
    let usual = FOUND.map(|bug| (bug, ""));
    let bugs = if all { [&usual[..], &FOUND_BY[..]].concat() } else { usual[..FEW].to_vec() };
    let mut missed = Vec::new();
    for (bug, experiment) in bugs {
        match seeds_until_found(bug, experiment, first) {
            Some(seeds) => println!("{bug:?}: found after {seeds} seeds"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}

/// A check is worth what is found without it. All of them together are found within five minutes.
#[test]
fn checks_that_are_skipped_are_found_by_decaying_disks() {
    let count = if searches_for_all() { SKIPPED.len() } else { FEW_SKIPPED };
    let mut missed = Vec::new();
    for skipped in &SKIPPED[..count] {
        match skipped.seeds_until_found(first_seed()) {
            Some(seeds) => println!("{:?}: found after {seeds} seeds", skipped.bug),
            None => missed.push(skipped.bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}
