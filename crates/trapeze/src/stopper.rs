//! The wish that a host's thread ends, from another thread.

use live::host::Host;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks one host to stop. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Wish>);

#[derive(Debug)]
struct Wish {
    asked: AtomicBool,
    wake: OwnedFd,
}

impl Stopper {
    /// Nobody has asked yet.
    pub fn new() -> io::Result<Stopper> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Stopper(Arc::new(Wish { asked: AtomicBool::new(false), wake })))
    }

    /// From now on asking wakes this host.
    pub fn watch(&self, host: &Host) -> io::Result<()> {
        host.poller().add(&self.0.wake, true, false)
    }

    /// Asks.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::SeqCst);
        // The counter is far from full, so the write takes place; a host that is awake needs none.
        let _ = rustix::io::write(&self.0.wake, &1u64.to_ne_bytes());
    }

    /// Whether somebody has asked.
    pub fn asked(&self) -> bool {
        self.0.asked.load(Ordering::SeqCst)
    }
}
