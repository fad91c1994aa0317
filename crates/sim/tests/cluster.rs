//! The whole cluster under fresh seeds.

use crate::seeds::outcome;
use sim::command::simulate;
use sim::experiment::{Experiment, Faults};
use sim::trace::Trace;
use std::cell::RefCell;
use std::rc::Rc;

fn calm() -> Experiment {
    Experiment { seconds: 5, faults: Faults::NONE, ..Experiment::default() }
}

#[test]
fn a_seed_is_a_run() {
    let first = outcome(1, &calm());
    assert!(first.succeeded > 500, "{first}");
    assert_eq!(first, outcome(1, &calm()));
    assert_ne!(first.fingerprint, outcome(2, &calm()).fingerprint);
}

/// Requests of the only application of the first mount in 29 seconds: operations, names, places and lengths, without
/// the ids that the manager gives to all in turn.
fn asked(experiment: &Experiment) -> Vec<String> {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let copy = lines.clone();
    let keep = move |line: &str| {
        let word = |number| line.split_whitespace().nth(number).unwrap_or_default();
        let is_early = word(0).parse::<f64>().is_ok_and(|seconds| seconds < 29.0);
        if is_early && (word(1), word(2)) == ("5", "ask") {
            copy.borrow_mut()
                .extend(line.split_once(" worker 0 ").map(|(_, what)| what.to_string()));
        }
    };
    simulate(1, experiment, Trace::to(Box::new(keep))).expect("a good experiment");
    lines.take().iter().map(|line| without_ids(line)).collect()
}

fn without_ids(line: &str) -> String {
    let ids = ["FileId(", "Handle(", "Frame("];
    let cut = |line: String, id: &str| {
        let pieces = line.split(id).enumerate().map(|(number, piece)| match number {
            0 => piece,
            _ => piece.split_once(')').map_or(piece, |(_, rest)| rest),
        });
        pieces.collect()
    };
    ids.into_iter().fold(line.to_string(), cut)
}

/// A mount that is added changes when the others get their answers, and none of their choices.
#[test]
fn a_mount_that_is_added_changes_nobody_elses_choices() {
    let mut experiment = Experiment { seconds: 30, ..calm() };
    (experiment.shape.mounts, experiment.shape.workers) = (1, 1);
    let alone = asked(&experiment);
    experiment.shape.mounts = 2;
    let beside = asked(&experiment);
    let both = alone.len().min(beside.len());
    assert!(both > 1_000, "{both} operations");
    let differs = (0..both).find(|number| alone[*number] != beside[*number]);
    assert_eq!(differs.map(|number| (&alone[number], &beside[number])), None);
}

fn passes(seed: u64, experiment: &Experiment) {
    let outcome = outcome(seed, experiment);
    assert!(outcome.violations.is_empty(), "{}", outcome.violations.join("\n"));
}

/// The same in one of the experiments that are kept: its text.
fn passes_in(seed: u64, text: &str) {
    passes(seed, &Experiment::parse(text).unwrap());
}

const DECAYING_DISKS: &str = include_str!("../../../experiments/decaying-disks.toml");
const FULL_DISKS: &str = include_str!("../../../experiments/full-disks.toml");
const FAILING_DISKS: &str = include_str!("../../../experiments/failing-disks.toml");
const SEVERAL_MANAGERS: &str = include_str!("../../../experiments/several-managers.toml");
const MANAGERS_TAKEN_OUT: &str = include_str!("../../../experiments/managers-taken-out.toml");
const SIXTEEN_MANAGERS: &str = include_str!("../../../experiments/sixteen-managers.toml");
const HINTED_FILES: &str = include_str!("../../../experiments/hinted-files.toml");
const POWER_CUTS: &str = include_str!("../../../experiments/power-cuts.toml");

fn columns_move(mounts: u16) {
    for seed in 1..=3 {
        let mut experiment = Experiment::default();
        (experiment.shape.mounts, experiment.shape.moves_per_minute) = (mounts, 60);
        passes(seed, &experiment);
    }
}

/// Columns move from disk to disk and from server to server under readers and writers, kills and power cuts.
#[test]
fn columns_move_under_load() {
    columns_move(1);
}

/// After a move a mount sent its copy again over what another mount had written since.
#[test]
fn columns_move_while_two_mounts_write() {
    columns_move(2);
}

/// Sites move among four managers all the time, under every fault.
#[test]
fn several_managers_are_one_name_space() {
    (1..=3).for_each(|seed| passes_in(seed, SEVERAL_MANAGERS));
}

/// Sixteen managers; a soak runs many more seeds.
#[test]
fn sixteen_managers_are_one_name_space() {
    let usual = Experiment::parse(SIXTEEN_MANAGERS).unwrap();
    (1..=2).for_each(|seed| passes(seed, &Experiment { seconds: 8, ..usual.clone() }));
}

/// A manager gives all that it has to the others, is out, and in again, while the volume is used.
#[test]
fn managers_are_taken_out_and_in_under_faults() {
    let usual = Experiment::parse(MANAGERS_TAKEN_OUT).unwrap();
    let mut taken_out = 0;
    for seed in 1..=2 {
        let outcome = outcome(seed, &Experiment { seconds: 40, ..usual.clone() });
        assert!(outcome.violations.is_empty(), "{seed}: {}", outcome.violations.join("\n"));
        taken_out += outcome.taken_out;
    }
    assert!(taken_out > 2, "{taken_out} times a manager was out");
}

/// Applications say what they will read, rightly or wrongly: every read returns what it returns without hints.
#[test]
fn hints_change_no_byte_under_faults() {
    (1..=4).for_each(|seed| passes_in(seed, HINTED_FILES));
}

/// Reads so long that a server answers them while its disk still reads.
#[test]
fn long_reads_are_cut_through_under_faults() {
    let mut experiment = Experiment { seconds: 30, ..Experiment::default() };
    let shape = &mut experiment.shape;
    (shape.servers, shape.disks, shape.mounts, shape.workers) = (1, 1, 1, 2);
    shape.file_kib = 4096;
    let mut begun = 0;
    for seed in 1..=3 {
        let outcome = outcome(seed, &experiment);
        assert!(outcome.violations.is_empty(), "{seed}: {}", outcome.violations.join("\n"));
        begun += outcome.traffic.cut_through;
    }
    assert!(begun > 10, "{begun} answers left before all of them was there");
}

/// A mount sent its copy again over what another mount had closed or synced since.
#[test]
fn seed_7_with_two_mounts_reads_the_newer_bytes() {
    passes(7, &Experiment::default());
}

/// After a power cut a file ended before bytes that must be there.
#[test]
fn seed_6_with_power_cuts_keeps_lengths() {
    let mut experiment = Experiment::default();
    experiment.shape.mounts = 1;
    passes(6, &experiment);
}

/// The length of a file whose session was shared went back to the manager's hint.
#[test]
fn seed_17_with_two_mounts_keeps_lengths() {
    let mut experiment = Experiment::default();
    (experiment.faults.kills_per_minute, experiment.faults.power_cuts_per_minute) = (0, 0);
    passes(17, &experiment);
}

/// Objects' lengths from before another mount wrote were taken for the length after it: one answer came late.
#[test]
fn seed_1738426299_with_two_mounts_keeps_lengths() {
    passes(1_738_426_299, &Experiment { seconds: 22, ..Experiment::default() });
}

/// After a power cut of everything the manager asked the objects for the length before a mount sent its copy again.
#[test]
fn seed_2345178280_with_failing_disks_keeps_lengths() {
    passes_in(2_345_178_280, FAILING_DISKS);
}

/// The checker forgot that a power cut of the manager may take a name, because a server's came shortly before.
#[test]
fn seed_1816535758_with_power_cuts_may_lose_a_name() {
    passes_in(1_816_535_758, POWER_CUTS);
}

/// The checker believed that a sync of a new mount tells what its directory lost before, because the worker had just
/// lost sight of the directory when the mount before died.
#[test]
fn seed_1555386392_with_failing_disks_may_lose_a_name() {
    passes_in(1_555_386_392, FAILING_DISKS);
}

/// The checker took a name for free of which a power cut brought back what was there, while it was being created.
#[test]
fn seed_113480252_with_power_cuts_may_bring_a_name_back() {
    passes_in(113_480_252, POWER_CUTS);
}

/// A mount did not report a name that a power cut took, since it had made another one there before it heard of that.
#[test]
fn seed_337358352_with_power_cuts_has_a_lost_name_told_of() {
    passes_in(337_358_352, POWER_CUTS);
}

/// A server whose disk was full when it was killed took an object for lost when it had started again.
#[test]
fn seed_3873862481_with_full_disks_has_no_object_for_lost() {
    passes_in(3_873_862_481, FULL_DISKS);
}

/// A manager's store took a log for synced whose only record had found no room, and missed it at the next start.
#[test]
fn seed_3871648841_with_full_disks_misses_no_log() {
    passes_in(3_871_648_841, FULL_DISKS);
}

/// A worker took a shared file that a power cut had taken for its home, and ended without making it again. The others
/// looked for it for ever.
#[test]
fn seed_3381771620_with_full_disks_has_an_end() {
    passes_in(3_381_771_620, FULL_DISKS);
}

/// The checker forgot that what tells the servers how far the store is does not run while the manager is paused.
#[test]
fn seed_295361006_with_decaying_disks_may_lose_what_came_before_a_pause() {
    passes_in(295_361_006, DECAYING_DISKS);
}

/// As many as take five seconds of a quiet processor.
const SEEDS: usize = 5;

#[test]
fn fresh_seeds_lose_nothing() {
    crate::seeds::lose_nothing(Experiment { seconds: 20, ..Experiment::default() }, None, SEEDS);
}

/// Changes to the world for the papers' hardware changed nothing for clusters on the plain models.
#[test]
fn seeds_on_the_plain_models_are_the_runs_they_were() {
    let fingerprint = |seed, experiment: &Experiment| outcome(seed, experiment).fingerprint;
    let troubled = Experiment { seconds: 20, ..Experiment::default() };
    let now = [fingerprint(1, &calm()), fingerprint(2, &calm()), fingerprint(3, &troubled)];
    let before = [0xd7e8_ccd5_8345_f153, 0x8580_476c_57b9_c5ec, 0x5913_2030_f4e0_affa];
    assert_eq!(now, before, "{now:#018x?}");
}
