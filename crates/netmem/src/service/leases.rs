//! Who may write to a page of a shared space: one node at a time.
//!
//! Invariants: a page has one writer; another one is granted the lease only after the first has given it back, or is
//! known to be down. No two leases of a page have a version in common, whatever a writer that died or fell silent has
//! written: each view begins with versions of its own, and so does a lease after one whose end is not known.

use crate::limits::{LEASE_SHIFT, LEASES_MAX, VIEW_SHIFT};
use crate::page::{PageId, SpaceId, Version};
use std::collections::BTreeMap;
use wire::NodeId;

/// A writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// `None` while nobody writes and one is being chosen.
    writer: Option<Writer>,
    /// Somebody is taking it away.
    changing: bool,
    /// The newest version that is known of: when the lease was granted, or given back.
    version: Version,
    /// The writer may have given it back without a word of what it wrote.
    doubtful: bool,
}

/// What is to be done for a node that asks.
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
    held: BTreeMap<PageId, Held>,
    view: u64,
}

/// The version that a view's first lease of a page begins with.
fn first(view: u64) -> Version {
    Version(view.saturating_mul(1 << VIEW_SHIFT))
}

/// Later than any version of a lease that began with this one.
fn after(version: Version) -> Version {
    Version(((version.0 >> LEASE_SHIFT) + 1) << LEASE_SHIFT)
}

impl Held {
    fn new(writer: Option<Writer>, version: Version) -> Held {
        Held { writer, changing: false, version, doubtful: false }
    }

    /// What a lease that is granted now begins with.
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
        self.view = view;
    }

    /// Who may write to a page.
    pub fn writer(&self, id: PageId) -> Option<Writer> {
        self.held.get(&id)?.writer
    }

    /// A node asks for the lease of a page.
    pub fn begin(&mut self, id: PageId, writer: Writer) -> Begun {
        let (full, first) = (self.held.len() >= LEASES_MAX, first(self.view));
        if full && !self.held.contains_key(&id) {
            return Begun::Full;
        }
        let held = self.held.entry(id).or_insert(Held::new(None, first));
        if held.changing {
            return Begun::Busy;
        }
        if held.writer == Some(writer) {
            return Begun::Has(held.settle());
        }
        held.changing = true;
        Begun::Take(held.writer)
    }

    /// It has been taken from whoever had it and had written `version`, and goes to `writer`; `None` when it could
    /// not be taken, or nobody knows. Answers with the version that the new lease begins with.
    pub fn end(&mut self, id: PageId, writer: Option<Writer>, version: Version) -> Version {
        let Some(held) = self.held.get_mut(&id) else { return version };
        held.changing = false;
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

    /// Whether a node may not have a copy: another one writes, or is about to.
    pub fn excludes(&self, id: PageId, node: NodeId) -> bool {
        let excluded = |held: &Held| held.changing || held.writer.is_some_and(|w| w.node != node);
        self.held.get(&id).is_some_and(excluded)
    }

    /// A node says that another directory has granted it the lease, and what it has written since.
    pub fn claim(&mut self, id: PageId, writer: Writer, version: Version) {
        self.held.entry(id).or_insert(Held::new(Some(writer), version));
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
        /// Whatever happens in whatever order, who has the lease got it after the one before gave it back or went down.
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
    fn a_later_life_is_another_writer() {
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

    /// Whatever is not known of the lease before: what it may have written, the next one does not write.
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
        // given back, and nobody heard of it: to the same one, and to another one
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
}
