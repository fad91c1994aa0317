//! The order of the changes of each object of a group, as its primary gives it and another replica keeps it.
//!
//! Changes have numbers that grow within a group. Each names the one before it of the same object, and what was
//! answered by then: a replica that was sent several at once executes those of one object one after the other, whatever
//! comes first, and those of different objects side by side.

use node::{Cx, Semaphore};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::ObjectId;
use wire::field::fields;

/// Objects of a group whose order is remembered before those that nobody needs are forgotten.
const TRACKS_KEPT: usize = 256;

/// Where a change stands, behind the trailer of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Of the group, as its primary has it.
    pub verifier: u64,
    /// The change's number; 0 of one that none waits for.
    pub number: u64,
    /// That of the change of the same object before it.
    pub previous: u64,
    /// All up to this one are executed, or not needed.
    pub settled: u64,
    /// The client that asked.
    pub client: u64,
    /// The fill that it belongs to; 0 of a replica in sync.
    pub fill: u64,
}
fields!(Order { verifier, number, previous, settled, client, fill });

impl Order {
    /// Bytes that its encoding takes: whole words of a trailer.
    pub const BYTES: usize = 48;
}

/// One object of a group.
pub(crate) struct Track {
    /// One change at a time is ordered, or executed by the order.
    pub turn: Semaphore,
    last: Cell<u64>,
}

impl Track {
    /// The last change that was ordered, or executed.
    pub fn last(&self) -> u64 {
        self.last.get()
    }

    /// The change with this number is ordered, or was executed; the one before it.
    pub fn note(&self, number: u64) -> u64 {
        let before = self.last.get();
        self.last.set(before.max(number));
        before
    }
}

/// The objects of a group that changes are under way to.
pub(crate) struct Tracks {
    cx: Cx,
    open: RefCell<BTreeMap<ObjectId, Rc<Track>>>,
    settled: Cell<u64>,
}

impl Tracks {
    pub fn new(cx: &Cx) -> Tracks {
        Tracks { cx: cx.clone(), open: RefCell::default(), settled: Cell::new(0) }
    }

    /// The track of an object.
    pub fn get(&self, object: ObjectId) -> Rc<Track> {
        let mut open = self.open.borrow_mut();
        if open.len() >= TRACKS_KEPT && !open.contains_key(&object) {
            let settled = self.settled.get();
            open.retain(|_, track| Rc::strong_count(track) > 1 || track.last() > settled);
        }
        let new = || Rc::new(Track { turn: Semaphore::new(&self.cx, 1), last: Cell::new(0) });
        open.entry(object).or_insert_with(new).clone()
    }

    /// Another fill begins: its primary may count from below what was executed for another one. Turns that are held
    /// stay so, since what is still executed for the fill before must not pass what follows.
    pub fn begin_anew(&self) {
        self.settled.set(0);
        self.open.borrow().values().for_each(|track| track.last.set(0));
    }

    /// All changes up to this one are executed everywhere, or not needed.
    pub fn note_settled(&self, settled: u64) {
        self.settled.set(self.settled.get().max(settled));
    }

    /// Whether a change was executed here.
    pub fn is_done(&self, track: &Track, order: &Order) -> bool {
        order.number != 0 && order.number <= track.last().max(self.settled.get())
    }

    /// Whether the change before one was executed here, or is not needed.
    pub fn is_due(&self, track: &Track, order: &Order) -> bool {
        order.previous <= track.last().max(self.settled.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::field::encoded;

    #[test]
    fn an_order_takes_whole_words() {
        assert_eq!(encoded(&Order::default()).len(), Order::BYTES);
    }
}
