//! The wish of another thread.

use live::host::Host;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// The wish of another thread that tpz_poll returns.
pub struct Wake {
    asked: AtomicBool,
    event: OwnedFd,
}

impl Wake {
    /// Nobody has asked yet.
    pub fn new() -> io::Result<Wake> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Wake { asked: AtomicBool::new(false), event })
    }

    /// Watched by the host, to be woken.
    pub fn watch(&self, host: &Host) -> io::Result<()> {
        host.poller().add(&self.event, true, false)
    }

    /// Asks, from any thread.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        // The counter is far from full, so the write takes place; an endpoint that is awake needs none.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Whether somebody has asked since the last time.
    pub fn take(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed) && self.asked.swap(false, Ordering::SeqCst);
        if asked {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        asked
    }
}
