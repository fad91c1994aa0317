//! Groups of disks keep the same objects: this server's part in them (PacificA, MSR-TR-2008-25; DESIGN 12).
//!
//! A group's primary orders the changes of its objects and forwards each to the others ([`forward`]), which execute
//! them in that order ([`take`]); a request is answered when all have done so. Leases say who the primary is
//! ([`lease`]); a replica that lacks something is brought up to date by comparing checksums while changes go on
//! ([`fill`], [`filled`]); what is damaged in one replica comes from another one ([`repair`]).
//!
//! Invariants: an object of a group is changed by its primary's order alone; what was answered is at every replica in
//! sync; a replica that is not in sync answers nobody but its primary.

mod digest;
mod fill;
mod filled;
mod forward;
mod hand_over;
mod lease;
mod repair;
mod take;

pub use digest::Digest;

use crate::groups::Local;
use crate::objects::{Object, Spot, State};
use crate::protocol::ObjectRequest;
use crate::server::Inner;
use members::groups::{Change, Refused};
use node::Bug;
use std::rc::Rc;
use wire::{Errno, GroupId, ObjectId};

impl Inner {
    /// A request to a group that may be executed here as its primary: the replica, and the request at its disk.
    /// EREMOTE: another server is the primary, or the caller goes by another epoch. EAGAIN: it is not certain yet.
    pub fn admit(&self, ask: ObjectRequest) -> Result<(Rc<Local>, ObjectRequest), Errno> {
        let local = self.groups.get(ask.group).ok_or(Errno::EREMOTE)?;
        let ordered = local.seat.borrow().orders(self.cx.now(), ask.group_epoch);
        match ordered {
            Ok(_) => Ok((local.clone(), ObjectRequest { disk: local.own.disk, ..ask })),
            Err(Refused::NoLease) if self.cx.has_bug(Bug::LeaseNotNeeded) => {
                Ok((local.clone(), ObjectRequest { disk: local.own.disk, ..ask }))
            }
            Err(Refused::Epoch(known)) => {
                self.expect_epoch(ask.group_epoch, known);
                Err(Errno::EREMOTE)
            }
            Err(Refused::NotYours) => Err(Errno::EREMOTE),
            Err(Refused::NoLease | Refused::Starting) => Err(Errno::EAGAIN),
        }
    }

    /// Somebody knows this epoch of a group, of which another one is known here.
    fn expect_epoch(&self, theirs: u32, known: u32) {
        if theirs > known {
            self.refresh_groups();
        }
    }

    fn refresh_groups(&self) {
        if let Some(table) = &self.groups.table {
            table.refresh_soon();
        }
    }

    /// The group of an object of a disk, as far as that is known without reading it.
    pub fn group_of_object(&self, disk: usize, id: ObjectId) -> GroupId {
        let spot = Spot { id, disk: disk as u8 };
        let objects = self.objects.borrow();
        let open = objects.get(spot).map(|object| object.state.borrow());
        match open.filter(|state| state.exists) {
            Some(state) => state.head.group,
            None => self.disks[disk].index.get(id).map(|entry| entry.group).unwrap_or_default(),
        }
    }

    /// The write verifier of an object: its group's, or the server's.
    pub fn verifier_of(&self, state: &State) -> u64 {
        match state.head.group.is_listed() {
            true => self.groups.get(state.head.group).map_or(0, |local| local.verifier.get()),
            false => self.verifier,
        }
    }

    /// The number of a write that is executed now: the next one, or the one that the primary gave it.
    pub fn next_order(&self, object: &Object, group: GroupId) -> u64 {
        let Some(local) = group.is_listed().then(|| self.groups.get(group)).flatten() else {
            self.orders.set(self.orders.get() + 1);
            return self.orders.get();
        };
        let mut state = object.state.borrow_mut();
        let order = state.given.take().unwrap_or_else(|| local.next_order());
        state.order = order;
        order
    }

    /// The latest write of an object, as far as it is known.
    pub fn last_order(&self, state: &State) -> u64 {
        if state.head.group.is_listed() { state.order } else { self.orders.get() }
    }

    /// Whether a write with this verifier is one of now, and from which on all are remembered.
    pub fn memory_of(&self, group: GroupId) -> (u64, bool) {
        self.groups
            .get(group)
            .map_or((0, false), |local| (local.verifier.get(), local.remembers.get()))
    }

    /// Proposes a change of a group that this server has a replica of, and learns how the group is then. An error also
    /// where the outcome is not known.
    pub(super) async fn propose(&self, local: &Local, change: Change) -> Result<(), Errno> {
        let table = self.groups.table.clone().ok_or(Errno::ENOENT)?;
        let epoch = local.seat.borrow().group().epoch();
        let proposed = table.propose(local.id, local.own, epoch, change).await;
        if let Some(group) = table.get(local.id) {
            local.learn(&self.cx, group);
        }
        proposed.map(drop)
    }
}
