//! Wakes a host from other threads.

use crate::device::Poller;
use crate::host::Device;
use node::Node;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::Time;

/// An eventfd (Linux eventfd(2)) of which only the edge counts: each ring ends one wait, and nobody reads the counter.
/// Whoever watched for a counter to read would be kept awake between a ring and its reason, or for good by a ring that
/// comes when its reason was already seen.
///
/// The reason comes first, and whoever is about to sleep looks for it: another may have taken the edge.
#[derive(Debug)]
pub(crate) struct Edge(OwnedFd);

impl Edge {
    /// Nobody has rung.
    pub(crate) fn new() -> io::Result<Edge> {
        Ok(Edge(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// From now on a ring ends a wait of this poller. A ring of before ends one too.
    pub(crate) fn watch(&self, poller: &Poller) -> io::Result<()> {
        poller.add_edge(&self.0, Poller::NAMELESS)
    }

    /// Ends the present wait or the next.
    pub(crate) fn ring(&self) {
        // It fails only when the counter is full, after 2^64 rings.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// A wish of another thread, for whoever runs a host: a flag to look at, and a wake for one that sleeps. In the host it
/// is a device that moves nothing. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Wakeup(Arc<Wish>);

#[derive(Debug)]
struct Wish {
    rung: AtomicBool,
    edge: Edge,
}

impl Wakeup {
    /// One that nobody has rung.
    pub fn new() -> io::Result<Wakeup> {
        Ok(Wakeup(Arc::new(Wish { rung: AtomicBool::new(false), edge: Edge::new()? })))
    }

    /// Sets the flag and wakes the host. From any thread.
    pub fn ring(&self) {
        self.0.rung.store(true, Ordering::SeqCst);
        self.0.edge.ring();
    }

    /// Whether it was rung since it was last taken. As long as it was, the host does not sleep.
    pub fn is_rung(&self) -> bool {
        self.0.rung.load(Ordering::SeqCst)
    }

    /// As [`is_rung`](Wakeup::is_rung), and takes the flag down.
    pub fn take(&self) -> bool {
        self.is_rung() && self.0.rung.swap(false, Ordering::SeqCst)
    }
}

impl Device for Wakeup {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.0.edge.watch(poller)
    }

    fn poll(&mut self, _node: &mut Node, _now: Time) -> io::Result<bool> {
        Ok(false)
    }

    fn is_quiet(&self) -> bool {
        !self.is_rung()
    }

    fn before_sleep(&mut self) -> bool {
        self.is_rung()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_ring_ends_one_wait_and_no_more() {
        let (poller, edge, mut ready) = (Poller::new().unwrap(), Edge::new().unwrap(), Vec::new());
        edge.ring();
        edge.watch(&poller).unwrap();
        for _ in 0..3 {
            poller.wait(None, &mut ready).unwrap();
            assert_eq!(ready.len(), 1);
            poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
            assert!(ready.is_empty(), "nothing was rung since");
            edge.ring();
        }
    }

    #[test]
    fn a_ring_that_comes_after_its_flag_was_taken_keeps_nobody_awake() {
        let (poller, mut ready) = (Poller::new().unwrap(), Vec::new());
        let mut wakeup = Wakeup::new().unwrap();
        wakeup.attach(&poller).unwrap();
        wakeup.0.rung.store(true, Ordering::SeqCst);
        assert!(wakeup.before_sleep() && wakeup.take() && !wakeup.take());
        wakeup.0.edge.ring();
        poller.wait(None, &mut ready).unwrap();
        assert!(!wakeup.before_sleep());
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(ready.is_empty());
    }

    #[test]
    fn who_is_about_to_sleep_sees_a_ring_whose_edge_another_took() {
        let (poller, mut ready) = (Poller::new().unwrap(), Vec::new());
        let mut wakeup = Wakeup::new().unwrap();
        wakeup.attach(&poller).unwrap();
        wakeup.ring();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(wakeup.before_sleep() && !wakeup.is_quiet());
    }
}
