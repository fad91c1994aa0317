//! Owners of keys, when several front ends are one key space.
//!
//! Keys fall into slots, and a slot's owner is the first node of netmem's weighted rendezvous hashing among the members
//! that serve keys. A view is *settled* here when every other member has acknowledged it: from then on no member serves
//! by an earlier one. Items of a slot that a node owned, lost and owns again are not the slot's content any more: an
//! item counts only if it was stored since the node owns its slot.

use crate::carry::Target;
use crate::moment::Moment;
use members::{Membership, View};
use netmem::limits::SLOTS;
use netmem::{Member, Slots};
use wire::{NodeId, Time, mix};

/// The slot of a key, the same on every node: of netmem's slots, see [`netmem::Slots::slot`].
pub fn slot_of(key: &[u8]) -> usize {
    let words = key.chunks(8).map(|part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(word)
    });
    (words.fold(mix(key.len() as u64), |hash, word| mix(hash ^ word)) % SLOTS as u64) as usize
}

/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;

/// Owners of keys.
#[derive(Debug)]
pub struct Owners {
    /// Its reports are of members that have said that they serve keys in this view.
    membership: Membership,
    slots: Option<Slots>,
    members: Vec<NodeId>,
    settled: bool,
    /// Grows with every view.
    generation: u32,
    /// Since which generation this node owns each slot.
    since: Box<[u32]>,
}

impl Owners {
    /// Of a node that knows of no view.
    pub fn new(me: NodeId) -> Owners {
        let mut membership = Membership::new(me, 0);
        membership.handle_lease(0, Time::ZERO);
        Owners {
            membership,
            slots: None,
            members: Vec::new(),
            settled: false,
            generation: 1,
            since: vec![1; SLOTS].into(),
        }
    }

    /// This node.
    pub fn me(&self) -> NodeId {
        self.membership.me()
    }

    /// The nodes that are up, and this node's incarnation.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The member behind this node in the order of their numbers.
    pub(crate) fn next_member(&self) -> Option<NodeId> {
        self.members.iter().copied().filter(|node| *node > self.me()).min()
    }

    /// The number of the view that it goes by.
    pub fn view(&self) -> u64 {
        self.membership.view().number
    }

    /// The members that serve keys, when the view is settled.
    pub fn members(&self) -> Option<&[NodeId]> {
        self.settled.then_some(&self.members)
    }

    /// Another view: nothing is served until it is settled. Items of this node count for nothing where it was away
    /// meanwhile, unless it `keeps` that all the same. Says whether the view is new.
    pub fn handle_view(&mut self, now: Time, view: View, keeps: bool) -> bool {
        if view.number <= self.view() {
            return false;
        }
        let stays = self.membership.is_member() && self.membership.is_in(&view);
        self.membership.adopt(&view);
        self.membership.handle_view(now, view);
        self.generation += 1;
        if !(stays || keeps) || !self.settled {
            // another node may have owned anything in a view that never settled here
            self.slots = None;
        }
        self.settled = false;
        true
    }

    /// A member that serves keys has come as far as this view itself.
    pub fn handle_claim(&mut self, node: NodeId) {
        self.membership.handle_report(node, self.view());
    }

    /// All members of the view know it: these serve keys, with their weights.
    pub fn settle(&mut self, view: u64, members: &[Member]) {
        if view != self.view() {
            return;
        }
        let me = self.me();
        let slots = Slots::new(members);
        for slot in 0..SLOTS {
            let owner = |slots: &Option<Slots>| slots.as_ref().map(|s| s.slot(slot).primary);
            if owner(&slots) == Some(me) && owner(&self.slots) != Some(me) {
                self.since[slot] = self.generation;
            }
        }
        self.members = members.iter().map(|member| member.node).collect();
        (self.slots, self.settled) = (slots, true);
    }

    /// Extends the period in which no other node takes this one, in this incarnation, for dead, so that its answers
    /// hold.
    pub fn handle_lease(&mut self, incarnation: u64, until: Time) {
        // a moment is truncated to milliseconds, and so is what it is compared with
        self.membership.handle_lease(incarnation, Time(until.0 / MS * MS));
    }

    /// The owner of a slot; `None` while the view is not settled.
    pub fn owner(&self, slot: usize) -> Option<NodeId> {
        self.slots.as_ref().filter(|_| self.settled).map(|slots| slots.slot(slot).primary)
    }

    /// The node for a command with one owner; `None` while the view is not settled.
    pub(crate) fn whose(&self, target: Target) -> Option<NodeId> {
        match target {
            Target::Slot(slot) => self.owner(slot),
            Target::From(first) => {
                let members = self.members()?.iter().copied();
                let next = members.clone().filter(|node| *node >= first).min();
                next.or_else(|| members.max())
            }
            Target::All => None,
        }
    }

    /// Whether this node may answer for a slot.
    pub fn is_here(&self, slot: usize, moment: Moment) -> bool {
        self.owner(slot) == Some(self.me()) && self.has_lease(moment)
    }

    /// Whether this node may answer for its keys in that view.
    pub fn serves(&self, view: u64, moment: Moment) -> bool {
        self.settled && self.view() == view && self.has_lease(moment)
    }

    fn has_lease(&self, moment: Moment) -> bool {
        !self.membership.is_doubtful(Time(moment.now_ms * MS))
    }

    /// Mark of items that are stored now.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// Whether an item of a key was stored before this node owned the key, or belongs to another node now.
    pub(crate) fn is_stale(&self, key: &[u8], generation: u32) -> bool {
        let slot = slot_of(key);
        let moved = self.owner(slot).is_some_and(|owner| owner != self.me());
        moved || generation < self.since[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use members::Up;

    const NOW: Moment = Moment { now_ms: 10, wall_ms: 0 };

    fn members(nodes: &[u16]) -> Vec<Member> {
        nodes.iter().map(|node| Member { node: NodeId(*node), weight: 1 }).collect()
    }

    fn view(number: u64, nodes: &[u16]) -> View {
        let up = |node: &u16| Up { node: NodeId(*node), incarnation: 1, weight: 1, machine: 0 };
        View::new(number, nodes.iter().map(up).collect())
    }

    fn settled(owners: &mut Owners, number: u64, nodes: &[u16]) {
        assert!(owners.handle_view(Time::ZERO, view(number, nodes), false));
        owners.settle(number, &members(nodes));
    }

    #[test]
    fn a_slot_that_was_anothers_meanwhile_begins_empty() {
        let mut owners = Owners::new(NodeId(1));
        settled(&mut owners, 1, &[1, 2]);
        owners.handle_lease(1, Time(20 * MS));
        let key = (0u32..).map(|n| n.to_le_bytes()).find(|key| owners.is_here(slot_of(key), NOW));
        let key = key.unwrap();
        let stored = owners.generation();
        settled(&mut owners, 2, &[1]);
        assert!(!owners.is_stale(&key, stored), "it was its own all the time");
        let mut nodes = vec![1, 2];
        while owners.is_here(slot_of(&key), NOW) {
            nodes.push(nodes.len() as u16 + 1);
            let view = owners.view() + 1;
            settled(&mut owners, view, &nodes);
        }
        let view = owners.view() + 1;
        settled(&mut owners, view, &[1]);
        assert!(owners.is_here(slot_of(&key), NOW) && owners.is_stale(&key, stored));
        assert!(!owners.is_stale(&key, owners.generation()));
    }

    #[test]
    fn a_view_that_never_settled_may_have_had_any_owner() {
        let mut owners = Owners::new(NodeId(1));
        settled(&mut owners, 1, &[1]);
        let stored = owners.generation();
        assert!(owners.handle_view(Time::ZERO, view(2, &[1]), false));
        assert!(!owners.handle_view(Time::ZERO, view(2, &[1]), false), "it is known");
        assert_eq!(owners.owner(7), None);
        settled(&mut owners, 3, &[1]);
        assert!(owners.is_stale(b"key", stored));
    }

    #[test]
    fn without_a_lease_nobody_answers() {
        let mut owners = Owners::new(NodeId(1));
        settled(&mut owners, 1, &[1]);
        assert!(!owners.is_here(3, NOW) && !owners.serves(1, NOW));
        owners.handle_lease(1, Time(11 * MS));
        assert!(owners.is_here(3, NOW) && owners.serves(1, NOW) && !owners.serves(2, NOW));
        assert!(!owners.is_here(3, Moment { now_ms: 11, ..NOW }));
    }
}
