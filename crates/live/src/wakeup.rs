//! Wakes a host from other threads.

use crate::device::Poller;
use crate::host::Device;
use node::Node;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::Time;

/// An eventfd (Linux eventfd(2)) of which only the edge counts: a ring ends one wait, and the counter is never read. A
/// ring may come late, when its news was seen already; a counter that is watched until it is read then keeps its host
/// awake for good.
///
/// The news is set before the ring, and a thread about to sleep looks for it: another may have taken the edge.
#[derive(Debug)]
pub(crate) struct Edge(OwnedFd);

impl Edge {
    /// It has not rung.
    pub(crate) fn new() -> io::Result<Edge> {
        Ok(Edge(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// From now on a ring ends a wait of this poller. A ring of before ends one too.
    pub(crate) fn watch(&self, poller: &Poller) -> io::Result<()> {
        poller.add_edge(&self.0, Poller::NAMELESS)
    }

    /// Ends the present wait or the next.
    pub(crate) fn ring(&self) {
        // It fails only when the counter is full, after 2^64 - 2 rings.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Edge {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A wish of another thread, for the thread that runs a host: a flag, and a device of the host that ends one sleep for
/// each ring. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Wakeup(Arc<Wish>);

#[derive(Debug)]
struct Wish {
    rung: AtomicBool,
    /// Not yet noticed by the host.
    news: AtomicBool,
    edge: Edge,
}

impl Wakeup {
    /// A new one, not rung.
    pub fn new() -> io::Result<Wakeup> {
        let (rung, news) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Wakeup(Arc::new(Wish { rung, news, edge: Edge::new()? })))
    }

    /// Sets the flag and wakes the host. From any thread.
    pub fn ring(&self) {
        self.0.rung.store(true, Ordering::SeqCst);
        self.0.news.store(true, Ordering::SeqCst);
        self.0.edge.ring();
    }

    /// Whether it was rung since it was last taken. To be asked after each turn of the host, and before the first.
    pub fn is_rung(&self) -> bool {
        self.0.rung.load(Ordering::SeqCst)
    }

    /// As [`is_rung`](Wakeup::is_rung), and takes the flag down.
    pub fn take(&self) -> bool {
        take(&self.0.rung)
    }
}

/// Takes a flag down; whether it was up. A look costs no more than reading it.
fn take(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst) && flag.swap(false, Ordering::SeqCst)
}

impl Device for Wakeup {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.0.edge.watch(poller)
    }

    fn poll(&mut self, _node: &mut Node, _now: Time) -> io::Result<bool> {
        Ok(take(&self.0.news))
    }

    fn is_quiet(&self) -> bool {
        !self.0.news.load(Ordering::SeqCst)
    }

    fn before_sleep(&mut self) -> bool {
        !self.is_quiet()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::memory::MemfdRegion;
    use crate::wait::WaitPolicy;
    use endpoint::Frames;
    use node::NodeConfig;
    use std::time::Duration;
    use wire::NodeId;

    #[test]
    fn a_ring_ends_one_wait_and_no_more() {
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
    fn who_is_about_to_sleep_sees_a_ring_whose_edge_another_took() {
        let (poller, mut ready) = (Poller::new().unwrap(), Vec::new());
        let mut wakeup = Wakeup::new().unwrap();
        wakeup.attach(&poller).unwrap();
        wakeup.ring();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert!(wakeup.before_sleep() && !wakeup.is_quiet());
    }

    /// A host that sleeps at once, with a wakeup.
    fn host() -> (Host, Wakeup) {
        let frames = Frames::new(MemfdRegion::create("wakeup", 4).unwrap());
        let node = Node::new(NodeConfig::new(NodeId(1), 1, 1), frames);
        let mut host = Host::new(node, WaitPolicy::Block).unwrap();
        let wakeup = Wakeup::new().unwrap();
        host.add(wakeup.clone()).unwrap();
        (host, wakeup)
    }

    /// How often the host slept while it ran for a moment.
    fn sleeps_in_a_moment(host: &mut Host) -> u64 {
        let before = host.wait_counters().sleeps;
        let late = crate::clock::now() + Duration::from_millis(20);
        while crate::clock::now() < late {
            host.turn_until(Some(late)).unwrap();
        }
        host.wait_counters().sleeps - before
    }

    #[test]
    fn a_ring_of_another_thread_ends_a_sleep() {
        let (mut host, wakeup) = host();
        std::thread::scope(|scope| {
            scope.spawn(|| wakeup.ring());
            host.run(|| wakeup.is_rung()).unwrap();
        });
        assert!(wakeup.take() && !wakeup.is_rung());
    }

    #[test]
    fn a_ring_keeps_its_host_awake_once_whether_it_is_taken_or_not_and_however_late_its_edge_comes()
    {
        let (mut host, wakeup) = host();
        wakeup.ring();
        assert!(sleeps_in_a_moment(&mut host) < 5 && wakeup.is_rung(), "nobody took it");
        wakeup.0.news.store(true, Ordering::SeqCst);
        assert!(sleeps_in_a_moment(&mut host) < 5 && wakeup.take());
        wakeup.0.edge.ring();
        assert!(sleeps_in_a_moment(&mut host) < 5);
    }
}
