//! The groups of disks that this server has a replica in, and the state of each: plain structs.
//!
//! A group's primary orders the changes of its objects and has the others execute them ([`replicate`]); who that is,
//! and who is waited for, is [`Seat`]'s to say.
//!
//! [`replicate`]: crate::replicate

mod filling;
mod order;
mod sending;

pub(crate) use filling::Filling;
use members::Groups as Table;
use members::groups::{Group, Replica, Seat};
use node::{Cx, Notify};
use order::Tracks;
pub(crate) use order::{Order, Track};
pub(crate) use sending::{Target, Targets};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::{GroupId, NodeId, ObjectId, Time};

/// This server's replicas of groups.
#[derive(Default)]
pub(crate) struct Groups {
    /// All groups, where there may be some.
    pub table: Option<Table>,
    pub local: RefCell<BTreeMap<GroupId, Rc<Local>>>,
    /// Servers that are being asked for leases.
    pub asked: RefCell<BTreeSet<NodeId>>,
    /// What servers said of themselves last: in which incarnation, and when.
    pub heard: RefCell<BTreeMap<NodeId, (u64, Time)>>,
    /// Replicas being filled by this server.
    pub fills: Cell<u64>,
}

/// A replica on one of this server's disks.
pub(crate) struct Local {
    pub id: GroupId,
    pub own: Replica,
    pub seat: RefCell<Seat>,
    /// The latest change ordered, or executed.
    pub orders: Cell<u64>,
    /// The write verifier, also after what goes by it was lost.
    pub verifier: Cell<u64>,
    /// Every write of this verifier was seen here.
    pub remembers: Cell<bool>,
    pub tracks: Tracks,
    /// Changes that others have not answered yet.
    pub sent: RefCell<BTreeMap<NodeId, BTreeSet<u64>>>,
    /// The replica that is being filled from here.
    pub filling: RefCell<Option<Rc<Filling>>>,
    /// Fills that this replica began as the primary.
    fills: Cell<u32>,
    /// The fill that brings this replica up to date.
    pub filled_by: Cell<u64>,
    /// Damaged objects that fills have made anew since the start.
    pub remade: RefCell<BTreeSet<ObjectId>>,
    /// When a fill that failed is begun anew, and how many did since the last that ended well.
    pub fill_again: Cell<(Time, u32)>,
    /// Changes that clients wait for.
    pub changing: Cell<u64>,
    /// A proposal is under way.
    pub proposing: Cell<bool>,
    /// A change was executed, or the group has changed.
    pub moved: Notify,
}

impl Local {
    pub fn new(cx: &Cx, id: GroupId, own: Replica, group: Group) -> Local {
        Local {
            id,
            own,
            seat: RefCell::new(Seat::new(cx.now(), own, cx.incarnation(), group)),
            orders: Cell::new(0),
            verifier: Cell::new(0),
            remembers: Cell::new(false),
            tracks: Tracks::new(cx),
            sent: RefCell::default(),
            filling: RefCell::default(),
            fills: Cell::new(0),
            filled_by: Cell::new(0),
            remade: RefCell::default(),
            fill_again: Cell::default(),
            changing: Cell::new(0),
            proposing: Cell::new(false),
            moved: Notify::new(cx),
        }
    }

    /// The group as it is known here.
    pub fn group(&self) -> Group {
        self.seat.borrow().group().clone()
    }

    /// The number of the next change.
    pub fn next_order(&self) -> u64 {
        self.orders.set(self.orders.get() + 1);
        self.orders.get()
    }

    /// The number of the next fill. It is above those of all fills before, since a replica takes none that is below one
    /// that it has begun: an epoch has one incarnation of one primary that fills.
    pub fn next_fill(&self) -> u64 {
        self.fills.set(self.fills.get() + 1);
        u64::from(self.group().epoch()) << 32 | u64::from(self.fills.get())
    }

    /// A change with this number was ordered by the primary.
    pub fn note_order(&self, order: u64) {
        self.orders.set(self.orders.get().max(order));
    }

    pub fn learn(&self, cx: &Cx, group: Group) {
        self.seat.borrow_mut().handle_group(cx.now(), group);
        self.moved.notify_all();
    }

    /// Waits until something has come true that [`moved`](Local::moved) tells of; false when it has not in this time.
    pub async fn wait_for(&self, cx: &Cx, patience: Duration, done: impl Fn() -> bool) -> bool {
        let until = cx.now() + patience;
        loop {
            let moved = self.moved.wait();
            if done() {
                return true;
            }
            if cx.now() >= until {
                return false;
            }
            node::race(moved, cx.sleep_until(until)).await;
        }
    }

    /// This replica has all, and goes by this verifier.
    pub fn settle(&self, cx: &Cx, epoch: u32, verifier: u64) -> bool {
        let is_settled = self.seat.borrow_mut().handle_settled(cx.now(), epoch, verifier);
        if is_settled {
            self.verifier.set(verifier);
        }
        is_settled
    }
}

impl Groups {
    pub fn new(table: Option<Table>) -> Groups {
        Groups { table, ..Groups::default() }
    }

    /// The replica of a group here.
    pub fn get(&self, id: GroupId) -> Option<Rc<Local>> {
        self.local.borrow().get(&id).cloned()
    }

    pub fn all(&self) -> Vec<Rc<Local>> {
        self.local.borrow().values().cloned().collect()
    }

    /// Replicas that have all that their groups count on them for.
    pub fn whole(&self) -> usize {
        self.local.borrow().values().filter(|local| local.seat.borrow().is_whole()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint::{Frames, HeapRegion};
    use node::{Node, NodeConfig};

    #[test]
    fn fills_are_numbered_upwards_within_an_epoch_and_with_the_epochs() {
        let disk = |id| Replica { server: NodeId(id), disk: 0, id: id.into() };
        let group = Group::new(2, &[disk(1), disk(2)]).unwrap();
        let node = Node::new(NodeConfig::new(NodeId(1), 1, 1), Frames::new(HeapRegion::new(16)));
        let local = Local::new(node.cx(), GroupId::FIRST, disk(1), group.clone());
        let mut fills: Vec<u64> = (0..20).map(|_| local.next_fill()).collect();
        let next = group.after(Some(disk(1)), 1, members::groups::Change::Fence).unwrap();
        local.learn(node.cx(), next);
        fills.extend((0..20).map(|_| local.next_fill()));
        assert!(fills.is_sorted_by(|one, next| one < next), "{fills:?}");
    }
}
