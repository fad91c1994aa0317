//! Proof that the checkers see: planted bugs (`node::Bug`), each found by fresh seeds of the usual experiment, two
//! mounts under every fault. Settings from the environment: SIM_SEED, the first seed; TRAPEZE_SOAK, set to search for
//! all of [`FOUND`] rather than for the first few.

use node::Bug;
use sim::command::search;
use sim::experiment::Experiment;

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 100;
/// Bugs among the tests; all are a soak's.
const FEW: usize = 6;

/// What a change of a service could break, found by a few seeds.
const FOUND: [Bug; 23] = [
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
    Bug::SentAgainAsNew,
    Bug::LogDroppedEarly,
    Bug::PlacedNotSynced,
    Bug::SessionNotLogged,
    Bug::LostPeerIgnored,
    Bug::StableNotCommitted,
];

/// Seeds until the bug is found; `None` when it is not.
fn seeds_until_found(bug: Bug, first: u64) -> Option<u64> {
    let experiment = Experiment { bugs: vec![format!("{bug:?}")], ..Experiment::default() };
    let mut seeds = 0;
    let count = |_: u64, _: &_| ();
    let go_on = || {
        seeds += 1;
        seeds <= SEEDS_MAX
    };
    search(first, &experiment, go_on, count).expect("a known bug")?;
    Some(seeds)
}

#[test]
fn planted_bugs_are_found() {
    let first = std::env::var("SIM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let all = std::env::var_os("TRAPEZE_SOAK").is_some();
    let bugs = if all { &FOUND[..] } else { &FOUND[..FEW] };
    let mut missed = Vec::new();
    for bug in bugs {
        match seeds_until_found(*bug, first) {
            Some(seeds) => println!("{bug:?}: found after {seeds} seeds"),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS_MAX} seeds each: {missed:?}");
}
