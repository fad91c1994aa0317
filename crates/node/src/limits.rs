//! Limits of a node, with the arithmetic that chose them.

use std::time::Duration;

/// Disks and stores are scrubbed once in this time, unless a configuration says otherwise.
pub const SCRUB_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);
/// The first round begins this long after a start, when replay and recovery are over, unless the period is short.
const SCRUB_FIRST: Duration = Duration::from_secs(10 * 60);

/// How long after a start the first round of a scrub with this period begins.
pub fn scrub_first(period: Duration) -> Duration {
    SCRUB_FIRST.min(period / 16)
}

/// Requests that may wait for a task of their service; more are refused as overload. Twice what one client may have
/// in slots, so that two busy clients meet no refusal.
pub const REQUESTS_WAITING: usize = 1024;
/// File operations that may wait for a task: FUSE's background limit with a margin.
pub const FRONT_WAITING: usize = 256;
/// Interrupts that wait for the task that looks after them: one for each request that FUSE may have under way.
pub const INTERRUPTS_WAITING: usize = 1024;
/// Messages taken from the receive ring in one step, so that disks and fronts get their turn.
pub const MESSAGES_PER_STEP: usize = 64;
/// Polls of tasks in one step, likewise.
pub const POLLS_PER_STEP: usize = 1024;
/// Cancelled timers that are not worth a clean-up: 2 KiB of them.
pub const TIMERS_STALE_MIN: usize = 128;
/// Lists kept for reuse; more are freed.
pub const SPARE_LISTS: usize = 2048;
/// Entries of the receive ring that messages which are no calls may hold: half, so that calls always find one.
pub const MESSAGES_MAX: usize = endpoint::limits::RING_ENTRIES / 2;

const _: () = assert!(SCRUB_FIRST.as_secs() < SCRUB_PERIOD.as_secs());
const _: () = assert!(MESSAGES_PER_STEP <= endpoint::limits::RING_ENTRIES);
const _: () = assert!(MESSAGES_MAX > 0);
const _: () = assert!(POLLS_PER_STEP > 0);
