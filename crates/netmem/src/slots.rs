//! The nodes that keep a page's directory entry: a function of the view, the same bits on every node.
//!
//! Weighted rendezvous hashing: each node draws an exponential time with its weight as rate for each slot, and the
//! first one has it (Schindelhauer and Schomaker 2005, the logarithmic method). The logarithm is computed in integers,
//! since those of mathematical libraries differ in their last bits, and two nodes that disagree about a slot lose its
//! pages.

use crate::directory::Role;
use crate::limits::{EXTENT_PAGES, SLOTS};
use crate::page::PageId;
use wire::{NodeId, mix};

/// A node that may keep entries, and its share of them: any unit, say MiB of memory. With 0 it keeps none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Its share, relative to the others'.
    pub weight: u32,
}

/// The nodes that keep an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes {
    /// The node that is asked.
    pub primary: NodeId,
    /// The node that has what must not be lost as well; `None` when there is one node only. Never the primary.
    pub backup: Option<NodeId>,
}

impl Homes {
    /// The primary, and then the backup if there is one.
    pub fn both(self) -> impl Iterator<Item = NodeId> {
        std::iter::once(self.primary).chain(self.backup)
    }

    /// The homes that know a holder: of clean copies the primary only.
    pub fn told_of(self, role: Role) -> impl Iterator<Item = NodeId> {
        self.both().take(if role.is_hard() { 2 } else { 1 })
    }

    /// Whether a node is one of them.
    pub fn has(self, node: NodeId) -> bool {
        self.primary == node || self.backup == Some(node)
    }
}

/// The homes of all slots in one view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    homes: Box<[Homes]>,
}

/// A draw of one node for one slot. The least `time / weight` wins.
#[derive(Clone, Copy)]
struct Bid {
    node: NodeId,
    weight: u32,
    time: u64,
}

impl Bid {
    fn new(slot: usize, member: Member) -> Bid {
        let bits = mix(mix(slot as u64) ^ u64::from(member.node.0));
        Bid { node: member.node, weight: member.weight, time: minus_log2(bits) }
    }

    fn beats(&self, other: &Bid) -> bool {
        let mine = u128::from(self.time) * u128::from(other.weight);
        let others = u128::from(other.time) * u128::from(self.weight);
        (mine, self.node) < (others, other.node)
    }
}

impl Slots {
    /// The homes among `members`, each node named once; their order does not matter. `None` when all weights are 0.
    /// Takes a logarithm of 32 squarings for each member and slot.
    pub fn new(members: &[Member]) -> Option<Slots> {
        let homes: Option<Box<[Homes]>> = (0..SLOTS).map(|slot| homes(slot, members)).collect();
        Some(Slots { homes: homes? })
    }

    /// The slot of a page of a shared space: adjacent pages share it.
    pub fn of(id: PageId) -> usize {
        let extent = PageId { index: id.index / EXTENT_PAGES, ..id };
        (extent.bits() % SLOTS as u64) as usize
    }

    /// The homes of a slot.
    pub fn slot(&self, slot: usize) -> Homes {
        self.homes[slot]
    }

    /// The homes of a page's entry. A private space's pages are at its owner's (SOSP'95, non-shared pages: no hop), and
    /// their backup is the slot's first other node.
    pub fn homes(&self, id: PageId) -> Homes {
        let Homes { primary, backup } = self.homes[Slots::of(id)];
        match id.space.owner() {
            Some(owner) if owner != primary => Homes { primary: owner, backup: Some(primary) },
            _ => Homes { primary, backup },
        }
    }

    /// The slots whose homes are others in `next`, in order.
    pub fn moved<'a>(&'a self, next: &'a Slots) -> impl Iterator<Item = usize> + 'a {
        (0..SLOTS).filter(|slot| self.homes[*slot] != next.homes[*slot])
    }
}

fn homes(slot: usize, members: &[Member]) -> Option<Homes> {
    let (mut first, mut second) = (None, None);
    for member in members.iter().filter(|member| member.weight > 0) {
        let bid = Bid::new(slot, *member);
        if first.is_none_or(|best| bid.beats(&best)) {
            (first, second) = (Some(bid), first);
        } else if second.is_none_or(|best| bid.beats(&best)) {
            second = Some(bid);
        }
    }
    let homes = Homes { primary: first?.node, backup: second.map(|bid| bid.node) };
    assert_ne!(homes.backup, Some(homes.primary), "a member is named once");
    Some(homes)
}

/// -log2(bits / 2^64) in units of 2^-32, rounded up: 1 to 64 * 2^32.
fn minus_log2(bits: u64) -> u64 {
    let bits = bits | 1;
    let zeros = bits.leading_zeros();
    let mut mantissa = bits << zeros;
    let mut log = u64::from(63 - zeros);
    for _ in 0..32 {
        let square = u128::from(mantissa) * u128::from(mantissa);
        let carry = (square >> 127) as u64;
        mantissa = (square >> (63 + carry)) as u64;
        log = log << 1 | carry;
    }
    (64 << 32) - log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;
    use proptest::prelude::*;

    fn members() -> impl Strategy<Value = Vec<Member>> {
        prop::collection::btree_map(1u16..500, 1u32..=8, 2..12).prop_map(|map| {
            map.into_iter().map(|(node, weight)| Member { node: NodeId(node), weight }).collect()
        })
    }

    fn count(slots: &Slots, node: NodeId) -> usize {
        slots.homes.iter().filter(|homes| homes.primary == node).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// Each node's part of the slots is its part of the weights, within five standard deviations.
        #[test]
        fn slots_follow_weights(members in members()) {
            let slots = Slots::new(&members).unwrap();
            let all: u32 = members.iter().map(|member| member.weight).sum();
            for member in &members {
                let part = f64::from(member.weight) / f64::from(all);
                let expected = part * SLOTS as f64;
                let deviation = (expected * (1.0 - part)).sqrt();
                let got = count(&slots, member.node) as f64;
                prop_assert!((got - expected).abs() <= 5.0 * deviation, "{member:?}: {got} of {expected}");
            }
        }

        /// A new node takes its part, and only it gets anything; in any order of the members.
        #[test]
        fn a_new_node_takes_its_part_and_no_more(members in members(), weight in 1u32..=8) {
            let before = Slots::new(&members).unwrap();
            let new = Member { node: NodeId(1000), weight };
            let mut more = members.clone();
            more.insert(members.len() / 2, new);
            let after = Slots::new(&more).unwrap();
            let moved: Vec<usize> = before.moved(&after).collect();
            for slot in 0..SLOTS {
                let (old, now) = (before.slot(slot), after.slot(slot));
                prop_assert!(now.primary == old.primary || now.primary == new.node);
                let kept = now.backup == old.backup || now.backup == Some(new.node);
                prop_assert!(kept || (now.primary == new.node && now.backup == Some(old.primary)));
                prop_assert_eq!(moved.binary_search(&slot).is_ok(), now != old);
            }
            let all: u32 = more.iter().map(|member| member.weight).sum();
            let part = f64::from(weight) / f64::from(all);
            let deviation = (SLOTS as f64 * part * (1.0 - part)).sqrt();
            let got = count(&after, new.node) as f64;
            prop_assert!((got - part * SLOTS as f64).abs() <= 5.0 * deviation);
            more.reverse();
            prop_assert_eq!(Slots::new(&more).unwrap(), after);
        }

        #[test]
        fn primary_and_backup_are_two_nodes(members in members(), space: u64, index: u64) {
            let slots = Slots::new(&members).unwrap();
            let homes = slots.homes(PageId { space: SpaceId(space), index });
            prop_assert!(homes.backup.is_some() && homes.backup != Some(homes.primary));
            let owner = members[0].node;
            let private = PageId { space: SpaceId::private(owner, space), index };
            let homes = slots.homes(private);
            prop_assert_eq!(homes.primary, owner);
            prop_assert!(homes.backup.is_some() && homes.backup != Some(owner));
        }

        #[test]
        fn the_logarithm_is_one(bits: u64) {
            let exact = 64.0 - ((bits | 1) as f64).log2();
            let ours = minus_log2(bits) as f64 / 2f64.powi(32);
            prop_assert!((exact - ours).abs() < 1e-6, "{exact} {ours}");
        }
    }

    /// The very bits, as an independent program with long integers and fractions computes them: a node that has others
    /// looks for pages where they are not.
    #[test]
    fn the_arithmetic_is_the_same_everywhere() {
        assert_eq!(
            [u64::MAX, 1 << 63, 3 << 61, 0].map(minus_log2),
            [1, 1 << 32, 6_077_539_783, 64 << 32]
        );
        let members: Vec<Member> =
            (1..=5).map(|n| Member { node: NodeId(n), weight: u32::from(n) }).collect();
        let slots = Slots::new(&members).unwrap();
        let sum = slots.homes.iter().fold(0, |sum, homes| {
            mix(sum
                ^ u64::from(homes.primary.0) << 16
                ^ homes.backup.map_or(0, |node| node.0.into()))
        });
        assert_eq!(sum, 17_419_424_282_266_844_359);
    }

    #[test]
    fn one_node_has_all_and_no_backup() {
        let alone = [Member { node: NodeId(4), weight: 3 }, Member { node: NodeId(5), weight: 0 }];
        let slots = Slots::new(&alone).unwrap();
        assert_eq!(slots.slot(17), Homes { primary: NodeId(4), backup: None });
        assert!(Slots::new(&alone[1..]).is_none());
    }

    #[test]
    fn neighbours_share_a_slot() {
        let page = |index| PageId { space: SpaceId(9), index };
        assert!((0..EXTENT_PAGES).all(|index| Slots::of(page(index)) == Slots::of(page(0))));
        assert_ne!(Slots::of(page(0)), Slots::of(page(EXTENT_PAGES)));
    }
}
