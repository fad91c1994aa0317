//! Changes on their way from a group's primary to its other replicas: which of them are answered.

use super::{Filling, Local, Order, Track};
use members::groups::Replica;
use std::rc::Rc;
use wire::{Errno, ObjectId};

/// A replica that changes are forwarded to.
#[derive(Clone)]
pub(crate) struct Target {
    pub replica: Replica,
    /// The fill, of one that is not in sync.
    pub filling: Option<Rc<Filling>>,
}

/// The replicas that a change goes to, as they were when it was ordered.
pub(crate) type Targets = Vec<Target>;

impl Local {
    /// Gives a change its place in the order of its object; 0 is one that none waits for. The caller holds the object's
    /// turn.
    pub fn order(&self, track: &Track, number: u64, client: u64) -> (Order, Targets) {
        let previous = if number == 0 { track.last() } else { track.note(number) };
        let (verifier, order) = (self.verifier.get(), Order::default());
        let targets = self.targets();
        let mut sent = self.sent.borrow_mut();
        for target in targets.iter().filter(|_| number != 0) {
            sent.entry(target.replica.server).or_default().insert(number);
        }
        (Order { verifier, number, previous, client, ..order }, targets)
    }

    pub fn targets(&self) -> Targets {
        let seat = self.seat.borrow();
        let in_sync = seat.others().map(|replica| Target { replica, filling: None });
        let filling = self.filling.borrow().clone().filter(|filling| filling.is_on());
        let filled = filling.map(|it| Target { replica: it.target, filling: Some(it) });
        in_sync.chain(filled).collect()
    }

    /// All changes up to this one are executed at a replica, or it does not need them.
    pub fn settled_at(&self, target: Replica) -> u64 {
        let sent = self.sent.borrow();
        let first = sent.get(&target.server).and_then(|sent| sent.first());
        first.map_or(self.orders.get(), |first| first - 1)
    }

    pub fn note_answer(&self, target: Replica, number: u64) {
        if let Some(sent) = self.sent.borrow_mut().get_mut(&target.server) {
            sent.remove(&number);
        }
        let all = self.sent.borrow().values().filter_map(|sent| sent.first().copied()).min();
        self.tracks.note_settled(all.map_or(self.orders.get(), |first| first - 1));
        self.moved.notify_all();
    }

    /// Whether a change must be executed at a replica before it is answered. EREMOTE: this one is not the primary any
    /// more, so nobody must be told of it.
    pub fn waits_for(&self, target: &Target) -> Result<bool, Errno> {
        let seat = self.seat.borrow();
        let group = seat.group();
        if group.primary() != self.own {
            return Err(Errno::EREMOTE);
        }
        let is_filled = target.filling.as_ref().is_some_and(|filling| filling.is_on());
        Ok(group.is_in_sync(target.replica) || is_filled)
    }

    /// The place of a step that one replica alone is sent. The caller holds the object's turn.
    pub fn order_for(&self, track: &Track, target: Replica) -> Order {
        let number = self.next_order();
        let previous = track.note(number);
        self.sent.borrow_mut().entry(target.server).or_default().insert(number);
        Order { verifier: self.verifier.get(), number, previous, ..Order::default() }
    }
}

impl Target {
    /// Whether it has yet to be brought up to date with an object: it may be that it cannot execute a change of it.
    pub fn is_ahead(&self, object: ObjectId, number: u64) -> bool {
        self.filling.as_ref().is_some_and(|filling| filling.misses(object, number))
    }

    /// A fill that is not about to end is given up: it begins anew some time.
    pub fn give_up(&self) {
        if let Some(filling) = &self.filling {
            filling.give_up();
        }
    }
}
