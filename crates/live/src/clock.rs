//! The two clocks of the machine. Nothing else in the project reads one.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use wire::Time;

/// Readings of the wall clock of which the best counts.
const WALL_READINGS: usize = 4;

/// Nanoseconds of CLOCK_MONOTONIC, which starts near the machine's boot and is never set.
pub fn now() -> Time {
    Time(nanoseconds(ClockId::Monotonic) as u64)
}

/// How far the wall clock is ahead of [`now`], in nanoseconds: the middle of what one reading of it allows.
#[derive(Clone, Copy, Debug)]
pub struct WallOffset {
    middle: i128,
    /// The true one is at most so far away: the wall clock was read between two readings of the other.
    error: i128,
}

impl WallOffset {
    /// The best of a few readings: a thread may lose its processor within one.
    pub fn read() -> WallOffset {
        let one = || WallOffset::between(now(), nanoseconds(ClockId::Realtime), now());
        (0..WALL_READINGS).map(|_| one()).min_by_key(|read| read.error).unwrap_or_else(one)
    }

    fn between(before: Time, wall: i128, after: Time) -> WallOffset {
        let (before, after) = (i128::from(before.0), i128::from(after.0));
        let error = (after - before + 1) / 2;
        WallOffset { middle: wall - before - error, error }
    }

    /// The difference between [`now`] and nanoseconds since 1970.
    pub fn ns(self) -> i128 {
        self.middle
    }

    /// The one to go on with after another reading: this one, unless the clock has been set. Both clocks have the same
    /// rate, so that all else is the error of a reading, which would make a date go back, or be told as another than
    /// was given.
    #[must_use]
    pub fn after(self, read: WallOffset) -> WallOffset {
        let apart = (self.middle - read.middle).abs();
        if apart > self.error + read.error { read } else { self }
    }
}

/// Processor time of this thread. A system call.
pub(crate) fn thread_time() -> Duration {
    Duration::from_nanos(nanoseconds(ClockId::ThreadCPUTime) as u64)
}

fn nanoseconds(clock: ClockId) -> i128 {
    let at = clock_gettime(clock);
    i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i128 = 1_000_000;

    #[test]
    fn time_does_not_run_backwards_and_the_offset_leads_to_this_century() {
        let first = now();
        assert!(now() >= first);
        let seconds = (i128::from(first.0) + WallOffset::read().ns()) / 1_000_000_000;
        assert!(seconds > 1_700_000_000);
    }

    /// The clock is ahead by `ahead` ms; the reading had to wait so long before and after it.
    fn reading(ahead: i128, waits_ms: [u64; 2]) -> WallOffset {
        let before = Time(5_000_000_000);
        let at = before.0 + waits_ms[0] * MS as u64;
        WallOffset::between(before, i128::from(at) + ahead * MS, Time(at + waits_ms[1] * MS as u64))
    }

    #[test]
    fn a_reading_that_had_to_wait_does_not_set_the_clock() {
        let first = reading(700, [0, 0]);
        for waits in [[0, 0], [4, 0], [0, 4], [3, 9]] {
            assert_eq!(first.after(reading(700, waits)).ns(), 700 * MS, "{waits:?}");
        }
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        for ahead in [0, 690, 710, 1_000_000] {
            let told = reading(700, [0, 0]).after(reading(ahead, [1, 1])).ns();
            assert!((told - ahead * MS).abs() <= MS, "{ahead}: {told}");
        }
    }
}
