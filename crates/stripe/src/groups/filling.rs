//! A fill: how far a replica that lacks something has been brought up to date.

use members::groups::Replica;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use wire::ObjectId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whoever is late may be left behind.
    Filling,
    /// It may be admitted at any time: all is waited for.
    Joining,
    GivenUp,
}

/// A replica that is being filled.
pub(crate) struct Filling {
    pub target: Replica,
    pub number: u64,
    /// Blocks and objects that cannot be read here are lost there, too.
    pub passes_damage: bool,
    stage: Cell<Stage>,
    /// Objects up to this one are equal, or about to be.
    at: Cell<Option<ObjectId>>,
    /// The object that is made equal, and the number of the first step of that, once it has one.
    in_hand: Cell<(ObjectId, u64)>,
    /// Objects with a change that was not executed there, which are to be made equal again.
    missed: RefCell<BTreeSet<ObjectId>>,
}

const LAST: ObjectId =
    ObjectId { volume: wire::VolumeId(u32::MAX), file: wire::FileId(u64::MAX), column: u16::MAX };

impl Filling {
    pub fn new(target: Replica, number: u64, passes_damage: bool) -> Filling {
        let (stage, at, in_hand) = (Cell::new(Stage::Filling), Cell::new(None), Cell::default());
        let missed = RefCell::default();
        Filling { target, number, passes_damage, stage, at, in_hand, missed }
    }

    pub fn is_on(&self) -> bool {
        self.stage.get() != Stage::GivenUp
    }

    /// It is not filled any further, unless it may have been admitted.
    pub fn give_up(&self) {
        if self.stage.get() == Stage::Filling {
            self.stage.set(Stage::GivenUp);
        }
    }

    /// From now on all is waited for, unless it was given up; whether it was not.
    pub fn join(&self) -> bool {
        if self.is_on() {
            self.stage.set(Stage::Joining);
        }
        self.is_on()
    }

    /// It has come to its end, whatever that is.
    pub fn end(&self) {
        self.stage.set(Stage::GivenUp);
    }

    /// A change of an object failed there: whether that object is yet to be made equal.
    pub fn misses(&self, object: ObjectId, number: u64) -> bool {
        let (in_hand, first) = self.in_hand.get();
        if object == in_hand && number < first {
            return true; // what it changed is among what is made equal
        }
        let is_behind = self.at.get().is_some_and(|at| object <= at);
        let mut missed = self.missed.borrow_mut();
        missed.contains(&object) || (!is_behind && missed.insert(object))
    }

    pub fn take_in_hand(&self, object: ObjectId) {
        self.missed.borrow_mut().remove(&object);
        self.in_hand.set((object, u64::MAX));
    }

    pub fn note_step(&self, number: u64) {
        let (object, first) = self.in_hand.get();
        self.in_hand.set((object, first.min(number)));
    }

    /// All objects up to this one are equal, but for it.
    pub fn advance(&self, to: ObjectId) {
        self.at.set(Some(to));
    }

    /// All objects were looked at.
    pub fn advance_to_end(&self) {
        self.at.set(Some(LAST));
    }

    /// One that is to be made equal again.
    pub fn next_missed(&self) -> Option<ObjectId> {
        self.missed.borrow_mut().pop_first()
    }
}
