//! A group of replicas under every fault: messages that are late, lost or reordered, servers that are killed, paused or
//! cut off, power cuts, clocks at rates of their own. The servers are models of what uses a [`Seat`]; values in objects
//! only grow, so that the newer one of two is known.

mod world;

use world::{Bug, MS, Random, World};

/// Most seeds to look for one bug.
const SEEDS_MAX: u64 = 4_000;
/// Bugs, and the first seed to look at: those before it were clean.
const BUGS: [(Bug, u64); 9] = [
    (Bug::ReadsWithoutLease, 800),
    (Bug::AcknowledgesAlone, 1),
    (Bug::VerifierKept, 1),
    (Bug::CommitsHereOnly, 1),
    (Bug::AdmitsUnfilled, 1),
    (Bug::ServesUnsettled, 1),
    (Bug::FilledByAnEarlier, 30),
    (Bug::FillsTheNext, 6_000),
    (Bug::GivesAdmittingUp, 240),
];

fn outcome(seed: u64, bugs: Option<Bug>) -> (Vec<String>, u64, u32) {
    played(World::new(seed, bugs))
}

fn played(mut world: World) -> (Vec<String>, u64, u32) {
    world.run(120_000 * MS);
    if world.violations.is_empty() {
        world.calm();
    }
    (world.violations, world.acknowledged, world.group.epoch())
}

#[test]
fn nothing_acknowledged_is_lost_and_all_is_whole_in_the_end() {
    let seeds = if std::env::var_os("TRAPEZE_SOAK").is_some() { 20_000 } else { 300 };
    let (mut acknowledged, mut changes) = (0, 0);
    for seed in 1..=seeds {
        let (violations, answers, epoch) = outcome(seed, None);
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        (acknowledged, changes) = (acknowledged + answers, changes + u64::from(epoch));
    }
    assert!(acknowledged > seeds * 500 && changes > seeds * 10, "{acknowledged} {changes}");
}

/// A replica that finds damage offers to leave, in the middle of everything.
#[test]
fn damage_loses_nothing_either() {
    let seeds = if std::env::var_os("TRAPEZE_SOAK").is_some() { 6_000 } else { 100 };
    for seed in 1..=seeds {
        let mut world = World::new(seed, None);
        world.damage = Some(Random(seed));
        let (violations, acknowledged, _) = played(world);
        assert!(violations.is_empty(), "seed {seed}: {violations:?}");
        assert!(acknowledged > 100, "seed {seed}: {acknowledged}");
    }
}

#[test]
fn planted_bugs_are_noticed() {
    let notices = |bug, seed| !outcome(seed, Some(bug)).0.is_empty();
    for (bug, first) in BUGS {
        let seeds = first..first + SEEDS_MAX;
        assert!(seeds.into_iter().any(|seed| notices(bug, seed)), "{bug:?} is missed");
    }
}
