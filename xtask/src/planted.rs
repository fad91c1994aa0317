//! Planted bugs that are not for the simulator to find: with each switched on, a test of its own fails.

use crate::run::{SUITE, command, root, run_tests};

/// A switch (`node::Bug`), the package and the name of a test that notices it. Those that fresh seeds find are in
/// `crates/sim/tests/bugs.rs`.
const NOTICED: [(&str, &str, &str); 26] = [
    ("AnswerBeforeAppend", "names", "nothing_is_acknowledged_when_the_log_fails"),
    ("AnswersForgotten", "names", "a_call_is_executed_once_even_over_a_restart"),
    ("AwayPageTaken", "stripe", "what_was_cut_off_does_not_come_back"),
    ("BackupNotQuiesced", "names", "a_backup_of_an_array_is_of_one_moment_and_is_restored_to_that"),
    ("DiskNotVerified", "stripe", "a_flipped_byte_is_an_error_and_not_data"),
    ("ExecutedTwice", "node", "at_most_once_under_loss_duplication_and_reordering"),
    ("FullDirectoryRemoved", "names", "nodes_and_links"),
    ("IntentSkipped", "stripe", "torn_blocks_are_told_from_corruption"),
    ("LengthBeforeCutAdopted", "names", "a_length_of_before_a_truncation_is_not_taken_over"),
    ("LossNotNoticed", "names", "a_sync_tells_once_that_a_power_cut_took_a_change"),
    ("NamesNotSynced", "files", "an_fsync_of_a_new_file_keeps_its_name"),
    ("OrphanRemovedEarly", "names", "files_without_names_live_while_they_are_open"),
    ("PartNotFinished", "names", "a_rename_between_managers_is_made_or_not_whenever_power_fails"),
    ("PartNotSynced", "names", "a_rename_between_managers_is_made_or_not_whenever_power_fails"),
    ("PlacingNotListed", "stripe", "objects_on_their_way_from_the_log_into_place_are_filled"),
    ("QuarantineHasty", "names", "objects_that_no_file_claims_are_set_aside"),
    ("RenameKeepsTarget", "names", "renames"),
    ("StaleLoadKept", "stripe", "what_is_read_while_it_is_cut_off_is_no_damage"),
    ("StaleMapUsed", "stripe", "a_block_map_of_another_epoch_is_not_used"),
    ("StaleReadAhead", "files", "random_operations_as_a_kernel_asks_for_them"),
    ("StaleTruncationAccepted", "stripe", "a_stale_layout_or_generation_is_refused"),
    ("SyncNotWaitedFor", "names", "a_sync_tells_once_that_a_power_cut_took_a_change"),
    ("TokenNotCancelled", "netrpc", "a_call_may_be_given_up_at_every_point"),
    ("TombstoneIgnored", "stripe", "removed_objects_stay_removed"),
    ("TornNotSummed", "stripe", "torn_blocks_are_told_from_corruption"),
    ("TruncationNotAwaited", "stripe", "a_write_that_knows_of_a_truncation_waits_for_it"),
];

/// Every test of the table passes as it is and fails with its bug.
pub fn planted() -> Result<(), String> {
    let wrong: Vec<String> = NOTICED.iter().filter_map(|entry| problem(*entry)).collect();
    println!();
    println!("{} passed, {} failed", NOTICED.len() - wrong.len(), wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

fn problem((bug, package, test): (&str, &str, &str)) -> Option<String> {
    let (without, with) = (failures(package, test, ""), failures(package, test, bug));
    match (without, with) {
        ((0, _), _) => Some(format!("{package}: there is no test {test}")),
        ((_, 1..), _) => Some(format!("{package}: {test} fails without any bug")),
        (_, (_, 0)) => Some(format!("{package}: {test} passes with {bug}")),
        _ => None,
    }
}

/// How many such tests ran and how many of them failed, in a build that takes bugs from the environment.
fn failures(package: &str, test: &str, bug: &str) -> (u64, u64) {
    let mut tests = command(&format!("cargo test --quiet --locked -p {package} {test}"));
    tests.env("RUSTFLAGS", "--cfg planted");
    tests.env("CARGO_TARGET_DIR", root().join("target/planted"));
    // a failing property is not made small, nor kept
    tests.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
    if !bug.is_empty() {
        tests.env("TRAPEZE_PLANTED", bug);
    }
    let what = format!("{test} with {}", if bug.is_empty() { "no bug" } else { bug });
    let tally = run_tests(&what, SUITE, tests).tally;
    (tally.passed + tally.failed, tally.failed)
}
