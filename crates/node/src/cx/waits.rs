//! Reasons for which operations of this node wait between two tries, and which disks of servers refuse them: for
//! people, who are told while it lasts. Calls that are under way are in [`Cx::oldest_calls`].

use super::Cx;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use wire::{Errno, Home, NodeId, Time};

/// An operation that was not answered, and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The server that it needs.
    pub node: NodeId,
    /// The server's disk, where it needs one.
    pub disk: Option<u8>,
    /// Time of the first try.
    pub since: Time,
    /// How the last try ended.
    pub why: Errno,
}

#[derive(Default)]
pub(crate) struct Waits {
    next: Cell<u64>,
    all: RefCell<BTreeMap<u64, Wait>>,
    refusals: RefCell<BTreeMap<Home, String>>,
}

/// One of [`Cx::waits`], for as long as it is not dropped.
pub struct Waiting {
    cx: Cx,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.cx.0.waits.all.borrow_mut().remove(&self.number);
    }
}

impl Cx {
    /// Notes that an operation waits, until the result is dropped.
    pub fn note_wait(&self, wait: Wait) -> Waiting {
        let waits = &self.0.waits;
        let number = waits.next.replace(waits.next.get() + 1);
        waits.all.borrow_mut().insert(number, wait);
        Waiting { cx: self.clone(), number }
    }

    /// The operations that wait between two tries, with their reasons.
    pub fn waits(&self) -> Vec<Wait> {
        self.0.waits.all.borrow().values().copied().collect()
    }

    /// Notes that a server refuses one of its disks, and why.
    pub fn note_refusal(&self, home: Home, why: &str) {
        self.0.waits.refusals.borrow_mut().insert(home, why.to_string());
    }

    /// Notes that a disk has answered.
    pub fn note_service(&self, home: Home) {
        let refusals = &self.0.waits.refusals;
        // With every answer: there are hardly ever any.
        if !refusals.borrow().is_empty() {
            refusals.borrow_mut().remove(&home);
        }
    }

    /// Disks that their servers refused when they were asked last, and why.
    pub fn refusals(&self) -> BTreeMap<Home, String> {
        self.0.waits.refusals.borrow().clone()
    }
}
