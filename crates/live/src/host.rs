//! What a node's host polls.

use crate::device::Poller;
use node::Node;
use std::io;
use wire::Time;

/// A part of the real world that serves some of a node's rings.
pub trait Device {
    /// Keeps the poller to add and remove its descriptors.
    fn attach(&mut self, poller: &Poller) -> io::Result<()>;

    /// Moves what can be moved without waiting, a bounded number of entries; whether anything moved.
    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool>;

    /// About to sleep: arm wake-ups; true when something arrived meanwhile, then do not sleep.
    fn before_sleep(&mut self) -> bool {
        false
    }

    /// Awake again: disarm.
    fn after_sleep(&mut self) {}

    /// Drains; true when nothing is under way any more.
    fn stop(&mut self, _node: &mut Node) -> io::Result<bool> {
        Ok(true)
    }
}
