//! The two clocks of the machine. Nothing else in the project reads one.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use wire::Time;

/// Nanoseconds of CLOCK_MONOTONIC, which starts near the machine's boot and is never set.
pub fn now() -> Time {
    Time(nanoseconds(ClockId::Monotonic) as u64)
}

/// What to add to [`now`] to get nanoseconds since 1970. Changes when somebody sets the wall clock.
pub fn wall_minus_monotonic_ns() -> i128 {
    nanoseconds(ClockId::Realtime) - nanoseconds(ClockId::Monotonic)
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

    #[test]
    fn time_does_not_run_backwards_and_the_offset_leads_to_this_century() {
        let first = now();
        assert!(now() >= first);
        let seconds = (i128::from(first.0) + wall_minus_monotonic_ns()) / 1_000_000_000;
        assert!(seconds > 1_700_000_000);
    }
}
