//! Disks that decay in the simulated cluster: nothing is silent.

use sim::command::{replay, search};
use sim::experiment::Experiment;

const RESTORED_NAMES: &str = include_str!("../../../experiments/restored-names.toml");
const RESTORED_MANAGERS: &str = include_str!("../../../experiments/restored-managers.toml");
const SALVAGED_NAMES: &str = include_str!("../../../experiments/salvaged-names.toml");
const DECAYING_DISKS: &str = include_str!("../../../experiments/decaying-disks.toml");
/// Seeds, each with the 40 decays of the experiment. A soak has as many as fit its time.
const SEEDS: u64 = 8;
/// The same with its 12 restores.
const RESTORED_SEEDS: u64 = 8;
/// The same of several managers with its 8 restores.
const ARRAY_SEEDS: u64 = 3;
/// The same with its 4 losses of all names.
const SALVAGED_SEEDS: u64 = 6;
/// Seeds that lose an object together with the names.
const SALVAGED_LOSS: u64 = 3_584_712_811;
const SALVAGED_END: u64 = 2_739_672_038;
/// Seeds until a planted bug is found, at most.
const BUG_SEEDS: u64 = 40;

#[test]
fn no_decay_of_what_a_cluster_stores_is_silent() {
    find_nothing("experiments/decaying-disks.toml", DECAYING_DISKS, SEEDS);
}

#[test]
fn names_that_are_restored_from_a_backup_lead_to_the_bytes_of_their_files_or_to_an_error() {
    find_nothing("experiments/restored-names.toml", RESTORED_NAMES, RESTORED_SEEDS);
}

#[test]
fn backups_of_several_managers_are_of_one_moment_and_all_or_one_go_on_from_them() {
    find_nothing("experiments/restored-managers.toml", RESTORED_MANAGERS, ARRAY_SEEDS);
}

#[test]
fn a_backup_of_several_managers_that_is_of_no_one_moment_is_found() {
    let usual = Experiment::parse(RESTORED_MANAGERS).unwrap();
    let experiment = Experiment { bugs: vec!["BackupNotQuiesced".into()], ..usual };
    let found = search(1..=BUG_SEEDS, &experiment, |_, _| ()).expect("a known bug");
    let (seed, outcome) = found.expect("it is found");
    println!("found after {seed} seeds: {:?}", outcome.violations);
    let told = &outcome.violations[0];
    assert!(told.contains("is not of one moment") || told.contains("names in a backup"), "{told}");
}

#[test]
fn names_that_are_lost_for_good_come_back_from_the_disks_with_the_bytes_of_their_files() {
    find_nothing("experiments/salvaged-names.toml", SALVAGED_NAMES, SALVAGED_SEEDS);
}

/// Seed 3584712811: the column of which it was missed had no bytes by what the others were told, so it was to be made
/// anew, and its server refused that as it remembered the object for two minutes.
#[test]
fn an_object_that_is_lost_with_the_names_leaves_no_trace_that_a_salvage_waits_for() {
    salvage(SALVAGED_LOSS);
}

/// Seed 2739672038: the file had been truncated, and its objects were told that length. It was written behind that,
/// and the object with these bytes was lost: the file was back with its earlier length.
#[test]
fn a_file_that_was_written_since_its_length_was_told_does_not_end_there_when_that_object_is_lost() {
    salvage(SALVAGED_END);
}

fn salvage(seed: u64) {
    let experiment = Experiment::parse(SALVAGED_NAMES).unwrap();
    let each = |seed, outcome: &_| println!("seed {seed}: {outcome}");
    let failed = search(seed..=seed, &experiment, each).expect("no unknown bug");
    assert!(failed.is_none(), "{failed:?}");
}

#[test]
fn a_restore_after_which_numbers_of_files_repeat_is_found() {
    let usual = Experiment::parse(RESTORED_NAMES).unwrap();
    let experiment = Experiment { bugs: vec!["RestoredNumbersRepeat".into()], ..usual };
    let found = search(1..=BUG_SEEDS, &experiment, |_, _| ()).expect("a known bug");
    let (seed, outcome) = found.expect("it is found");
    println!("found after {seed} seeds: {:?}", outcome.violations);
    assert!(outcome.violations[0].contains("is the number of a file that was there before"));
}

fn find_nothing(kept: &str, usual: &str, seeds: u64) {
    let experiment = crate::seeds::experiment(Experiment::parse(usual).unwrap());
    if ["SIM_SECONDS", "SIM_TRACE"].iter().any(|name| crate::seeds::setting(name).is_some()) {
        return crate::seeds::lose_nothing(experiment, Some(kept), usize::MAX);
    }
    let each = |seed, outcome: &_| println!("seed {seed}: {outcome}");
    let failed = search(1..=seeds, &experiment, each).expect("no unknown bug");
    if let Some((seed, outcome)) = failed {
        panic!("{}\nreplay: {}", outcome.violations.join("\n"), replay(seed, Some(kept)));
    }
}
