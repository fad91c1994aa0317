//! The rate of exchanges.

use live::clock;
use std::time::Duration;
use wire::Time;

/// When exchanges are due.
#[derive(Clone, Copy)]
pub struct Pace {
    next: Time,
    interval: Option<Duration>,
}

impl Pace {
    /// So many a second; else as fast as they go.
    pub fn new(per_second: Option<u64>) -> Pace {
        let interval = per_second.map(|rate| Duration::from_nanos(1_000_000_000 / rate.max(1)));
        Pace { next: clock::now(), interval }
    }

    /// When the next one is due, if that is not now.
    pub fn due(&mut self) -> Option<Time> {
        let interval = self.interval?;
        self.next = self.next + interval;
        // A late request does not catch up: what is measured is the wait, not a burst.
        self.next = self.next.max(clock::now());
        Some(self.next)
    }

    /// Waits for the next one's time.
    pub fn wait(&mut self, spin: bool) {
        let Some(due) = self.due() else { return };
        while clock::now() < due {
            if !spin {
                std::thread::sleep(due.since(clock::now()));
            }
        }
    }
}
