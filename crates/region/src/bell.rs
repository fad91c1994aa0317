//! The bell of a region's keeper.

use super::table::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const QUIET: u32 = 0;
const ASLEEP: u32 = 1;
const RUNG: u32 = 2;

/// Wakes a region's keeper, from anywhere: a signal handler too.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// The keeper is to look soon.
    pub fn ring(&self) {
        if self.0.load(Ordering::Relaxed) == RUNG {
            return;
        }
        if self.0.swap(RUNG, Ordering::Release) == ASLEEP {
            futex(&self.0, libc::FUTEX_WAKE, 1, None);
        }
    }

    /// Waits until it is rung, or was since the last time, for `span` at most.
    pub(super) fn wait(&self, span: Duration) {
        let (rests, order) = (Ordering::Acquire, Ordering::Acquire);
        if self.0.compare_exchange(QUIET, ASLEEP, rests, order).is_ok() {
            futex(&self.0, libc::FUTEX_WAIT, ASLEEP, Some(span));
        }
        self.0.store(QUIET, Ordering::Release);
    }
}
