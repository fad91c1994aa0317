//! Wakes a sleeping host when a throttled operation may complete.

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A timer that makes a descriptor readable.
#[derive(Debug)]
pub(super) struct Alarm {
    descriptor: OwnedFd,
    set: bool,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let descriptor = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Alarm { descriptor, set: false })
    }

    /// Rings once, this long from now.
    pub(super) fn set(&mut self, span: Duration) {
        self.arm(span.max(Duration::from_nanos(1)));
        self.set = true;
    }

    /// Does not ring any more.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.set) {
            self.arm(Duration::ZERO);
        }
    }

    fn arm(&self, span: Duration) {
        let at = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() };
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let when = Itimerspec { it_interval: never, it_value: at };
        let armed =
            rustix::time::timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &when);
        assert!(armed.is_ok(), "a span is a legal time for a timer of ours");
    }

    /// Readable when it rings.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
