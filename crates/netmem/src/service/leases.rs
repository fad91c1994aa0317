//! Writers' leases: which node may write to a page of a shared space. The page's directory grants them, one at a time.
//!
//! Invariants: a page has one writer; another one is granted the lease only after the first has given it back, or is
//! known to be down. No two leases of a page have a version in common, whatever a writer that died or fell silent has
//! written: each view begins with versions of its own, and so does a lease after one whose end is not known. A lease
//! that was forgotten to make room leaves its version behind, for all pages that hash to the same number as its own.

use crate::limits::{FORGOTTEN_LEASES, LEASE_SHIFT, LEASES_MAX, VIEW_SHIFT};
use crate::page::{PageId, SpaceId, Version};
use std::collections::BTreeMap;
use wire::NodeId;

/// A writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    /// `None` while no node writes and a writer is being chosen.
    writer: Option<Writer>,
    /// It is being taken away.
    changing: bool,
    /// The newest version that is known of: when the lease was granted, or given back.
    version: Version,
    /// The writer may have given it back without a word of what it wrote.
    doubtful: bool,
    /// When it was granted, or could not be taken away last: before those with greater numbers.
    turn: u64,
}

/// The answer to a node that asks for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// It has the lease already, and this version was the newest when it was granted.
    Has(Version),
    /// The lease is changing hands: all copies must go, and then [`Leases::end`] grants it. First this one gives it
    /// back, if there is one.
    Take(Option<Writer>),
    /// Another node is just being granted it.
    Busy,
    /// Too many leases are held.
    Full,
}

/// The leases that one directory has granted.
#[derive(Debug, Default)]
pub struct Leases {
    held: BTreeMap<PageId, Grant>,
    /// The newest versions of pages whose leases were forgotten in this view, by what the pages hash to.
    forgotten: BTreeMap<u64, Version>,
    view: u64,
    turns: u64,
}

/// The version that a view's first lease of a page begins with.
fn first(view: u64) -> Version {
    Version(view.saturating_mul(1 << VIEW_SHIFT))
}

/// Later than any version of a lease that began with this one.
fn after(version: Version) -> Version {
    Version(((version.0 >> LEASE_SHIFT) + 1) << LEASE_SHIFT)
}

/// The hash of a page.
fn number(id: PageId) -> u64 {
    wire::mix(wire::mix(id.space.0) ^ id.index) % FORGOTTEN_LEASES
}

impl Grant {
    fn new(writer: Option<Writer>, version: Version, turn: u64) -> Grant {
        Grant { writer, changing: false, version, doubtful: false, turn }
    }

    /// The version that a lease granted now begins with.
    fn settle(&mut self) -> Version {
        if std::mem::take(&mut self.doubtful) {
            self.version = after(self.version);
        }
        self.version
    }
}

impl Leases {
    /// Another view: its writers say who they are, and nothing is granted until all have.
    pub fn begin_view(&mut self, view: u64) {
        self.held.clear();
        self.forgotten.clear();
        self.view = view;
    }

    /// The page's writer.
    pub fn writer(&self, id: PageId) -> Option<Writer> {
        self.held.get(&id)?.writer
    }

    /// A node asks for the lease of a page.
    pub fn begin(&mut self, id: PageId, writer: Writer) -> Begun {
        if self.held.len() >= LEASES_MAX && !self.held.contains_key(&id) {
            return Begun::Full;
        }
        let new = Grant::new(None, self.first_of(id), self.next_turn());
        let held = self.held.entry(id).or_insert(new);
        if held.changing {
            return Begun::Busy;
        }
        if held.writer == Some(writer) {
            return Begun::Has(held.settle());
        }
        held.changing = true;
        Begun::Take(held.writer)
    }

    /// It has been taken from its holder, which had written `version`, and goes to `writer`; `None` when it could not
    /// be taken, or the outcome is not known. Returns the version that the new lease begins with.
    pub fn end(&mut self, id: PageId, writer: Option<Writer>, version: Version) -> Version {
        let turn = self.next_turn();
        let Some(held) = self.held.get_mut(&id) else { return version };
        (held.changing, held.turn) = (false, turn);
        held.version = held.version.max(version);
        if writer.is_some() {
            held.writer = writer;
            return held.settle();
        }
        held.doubtful = true;
        let newest = held.version;
        if held.writer.is_none() {
            self.held.remove(&id);
        }
        newest
    }

    /// Makes room for another lease: revokes the one that was granted longest ago, without a successor. `None` when all
    /// are changing hands already. Then [`end`](Leases::end) says that it could not be taken, or
    /// [`forget`](Leases::forget) that it was.
    pub fn begin_oldest(&mut self) -> Option<(PageId, Writer)> {
        let granted = self.held.iter_mut().filter(|(_, held)| !held.changing);
        let oldest = granted.filter_map(|(id, held)| Some((*id, held.writer?, held)));
        let (id, writer, held) = oldest.min_by_key(|(.., held)| held.turn)?;
        held.changing = true;
        Some((id, writer))
    }

    /// A lease was given back without a request for it; `version` is the newest that was written.
    pub fn forget(&mut self, id: PageId, version: Version) {
        let Some(held) = self.held.remove(&id) else { return };
        let newest = held.version.max(version);
        let newest = if held.doubtful { after(newest) } else { newest };
        let forgotten = self.forgotten.entry(number(id)).or_default();
        *forgotten = newest.max(*forgotten);
    }

    /// The version that the first lease of a page known here begins with.
    fn first_of(&self, id: PageId) -> Version {
        let forgotten = self.forgotten.get(&number(id)).copied();
        first(self.view).max(forgotten.unwrap_or_default())
    }

    fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Whether a node may not have a copy: another one writes, or is about to.
    pub fn excludes(&self, id: PageId, node: NodeId) -> bool {
        let excluded = |held: &Grant| held.changing || held.writer.is_some_and(|w| w.node != node);
        self.held.get(&id).is_some_and(excluded)
    }

    /// A node says that another directory has granted it the lease, and what it has written since.
    pub fn claim(&mut self, id: PageId, writer: Writer, version: Version) {
        let new = Grant::new(Some(writer), version, self.next_turn());
        self.held.entry(id).or_insert(new);
    }

    /// A space was freed.
    pub fn free_space(&mut self, space: SpaceId) {
        self.held.retain(|id, _| id.space != space);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: PageId = PageId { space: SpaceId(4), index: 9 };

    fn writer(node: u16, incarnation: u64) -> Writer {
        Writer { node: NodeId(node), incarnation }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Begin(u16),
        End(bool),
        Down(u16),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (1u16..4).prop_map(Op::Begin),
            4 => any::<bool>().prop_map(Op::End),
            1 => (1u16..4).prop_map(Op::Down),
        ]
    }

    proptest! {
        /// Any operations in any order: a lease is granted after the one before was given back or its holder went down.
        #[test]
        fn a_page_has_one_writer(ops in prop::collection::vec(op(), 1..200)) {
            let (mut leases, mut holds, mut asking) = (Leases::default(), None, None);
            for (view, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Begin(node) => match leases.begin(PAGE, writer(node, 1)) {
                        Begun::Has(_) => prop_assert_eq!(holds, Some(node)),
                        Begun::Take(from) => {
                            prop_assert_eq!(from.map(|writer| writer.node.0), holds);
                            prop_assert_eq!(asking.replace(node), None);
                        }
                        Begun::Busy => prop_assert!(asking.is_some()),
                        Begun::Full => prop_assert!(false),
                    },
                    Op::End(taken) => {
                        if let Some(node) = asking.take() {
                            leases.end(PAGE, taken.then_some(writer(node, 1)), Version(0));
                            holds = if taken { Some(node) } else { holds };
                        }
                    }
                    Op::Down(node) => {
                        leases.begin_view(view as u64);
                        (holds, asking) = (holds.filter(|held| *held != node), None);
                        if let Some(held) = holds {
                            leases.claim(PAGE, writer(held, 1), Version(1));
                        }
                    }
                }
                prop_assert_eq!(leases.writer(PAGE).map(|writer| writer.node.0), holds);
            }
        }
    }

    #[test]
    fn a_later_incarnation_is_another_writer() {
        let mut leases = Leases::default();
        assert_eq!(leases.begin(PAGE, writer(1, 1)), Begun::Take(None));
        assert_eq!(leases.end(PAGE, Some(writer(1, 1)), Version(4)), Version(4));
        assert_eq!(leases.begin(PAGE, writer(1, 1)), Begun::Has(Version(4)));
        assert_eq!(leases.begin(PAGE, writer(1, 2)), Begun::Take(Some(writer(1, 1))));
        assert!(leases.excludes(PAGE, NodeId(1)));
        assert_eq!(leases.end(PAGE, None, Version(3)), Version(4));
        assert!(leases.excludes(PAGE, NodeId(2)) && !leases.excludes(PAGE, NodeId(1)));
        assert_eq!(leases.writer(PAGE), Some(writer(1, 1)));
        leases.begin_view(2);
        assert_eq!(leases.writer(PAGE), None);
    }

    /// Versions that an earlier lease may have written are not written by the next one.
    #[test]
    fn every_lease_has_versions_of_its_own() {
        let (one, other) = (writer(1, 1), writer(2, 1));
        let mut leases = Leases::default();
        leases.begin_view(5);
        leases.begin(PAGE, one);
        let first = leases.end(PAGE, Some(one), Version(0));
        assert!(first > Version(4 << VIEW_SHIFT | 1 << LEASE_SHIFT));
        // known to the last word
        leases.begin(PAGE, other);
        assert_eq!(leases.end(PAGE, Some(other), Version(first.0 + 7)), Version(first.0 + 7));
        // given back, but the return was lost: to the same one, and to another one
        for to in [other, one] {
            leases.begin(PAGE, one);
            leases.end(PAGE, None, Version(0));
            let before = leases.held[&PAGE].version;
            let next = match leases.begin(PAGE, to) {
                Begun::Has(next) => next,
                _ => leases.end(PAGE, Some(to), Version(0)),
            };
            assert!(next.0 - before.0 > 1 << (LEASE_SHIFT - 1), "{next:?} after {before:?}");
        }
        leases.begin_view(6);
        leases.begin(PAGE, other);
        assert_eq!(leases.end(PAGE, Some(other), Version(0)), Version(6 << VIEW_SHIFT));
    }

    #[test]
    fn there_is_a_limit() {
        let mut leases = Leases::default();
        for index in 0..LEASES_MAX as u64 {
            leases.begin(PageId { index, ..PAGE }, writer(1, 1));
        }
        assert_eq!(leases.begin(PageId { index: 1 << 40, ..PAGE }, writer(1, 1)), Begun::Full);
    }

    #[test]
    fn the_lease_that_was_granted_longest_ago_makes_room() {
        let mut leases = Leases::default();
        let page = |index| PageId { index, ..PAGE };
        for index in [3, 1, 2] {
            leases.begin(page(index), writer(index as u16, 1));
            leases.end(page(index), Some(writer(index as u16, 1)), Version(0));
        }
        assert_eq!(leases.begin_oldest(), Some((page(3), writer(3, 1))));
        assert_eq!(leases.begin(page(3), writer(1, 1)), Begun::Busy);
        // it could not be taken away, and has its turn after all others
        leases.end(page(3), None, Version(0));
        for index in [1, 2, 3] {
            assert_eq!(leases.begin_oldest(), Some((page(index), writer(index as u16, 1))));
        }
        assert_eq!(leases.begin_oldest(), None);
    }

    #[test]
    fn a_lease_that_was_forgotten_leaves_its_version() {
        let mut leases = Leases::default();
        leases.begin_view(3);
        for doubtful in [false, true] {
            leases.begin(PAGE, writer(1, 1));
            let granted = leases.end(PAGE, Some(writer(1, 1)), Version(0));
            leases.begin_oldest().unwrap();
            if doubtful {
                leases.end(PAGE, None, Version(0));
            }
            let written = Version(granted.0 + 9);
            leases.forget(PAGE, written);
            assert_eq!(leases.writer(PAGE), None);
            leases.begin(PAGE, writer(2, 1));
            let next = leases.end(PAGE, Some(writer(2, 1)), Version(0));
            assert!(if doubtful { next > written } else { next == written });
            leases.forget(PAGE, next);
        }
    }
}
