//! Who may write to a page of a shared space: one node at a time.
//!
//! Invariant: a page has one writer; another one is granted the lease only after the first has given it back, or is
//! known to be down.

use crate::limits::LEASES_MAX;
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
    /// The newest version that a writer had when it gave the lease back.
    version: Version,
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
pub struct Leases(BTreeMap<PageId, Held>);

impl Leases {
    /// Who may write to a page.
    pub fn writer(&self, id: PageId) -> Option<Writer> {
        self.0.get(&id)?.writer
    }

    /// A node asks for the lease of a page.
    pub fn begin(&mut self, id: PageId, writer: Writer) -> Begun {
        if self.0.len() >= LEASES_MAX && !self.0.contains_key(&id) {
            return Begun::Full;
        }
        let held =
            self.0.entry(id).or_insert(Held { writer: None, changing: false, version: Version(0) });
        if held.changing {
            return Begun::Busy;
        }
        if held.writer == Some(writer) {
            return Begun::Has(held.version);
        }
        held.changing = true;
        Begun::Take(held.writer)
    }

    /// It has been taken from whoever had it and had written `version`, and goes to `writer`; `None` when it could
    /// not be taken: all is as it was. Answers with the newest version that a writer is known to have had.
    pub fn end(&mut self, id: PageId, writer: Option<Writer>, version: Version) -> Version {
        let Some(held) = self.0.get_mut(&id) else { return version };
        held.changing = false;
        held.writer = writer.or(held.writer);
        held.version = held.version.max(version);
        let newest = held.version;
        if held.writer.is_none() {
            self.0.remove(&id);
        }
        newest
    }

    /// Whether a node may not have a copy: another one writes, or is about to.
    pub fn excludes(&self, id: PageId, node: NodeId) -> bool {
        let excluded = |held: &Held| held.changing || held.writer.is_some_and(|w| w.node != node);
        self.0.get(&id).is_some_and(excluded)
    }

    /// A node says that another directory has granted it the lease, `version` being the newest then.
    pub fn claim(&mut self, id: PageId, writer: Writer, version: Version) {
        self.0.entry(id).or_insert(Held { writer: Some(writer), changing: false, version });
    }

    /// A node is down, or back in a later life.
    pub fn drop_node(&mut self, node: NodeId, last: u64) {
        for held in self.0.values_mut() {
            let gone = |writer: &Writer| writer.node == node && writer.incarnation <= last;
            held.writer = held.writer.filter(|writer| !gone(writer));
        }
        self.0.retain(|_, held| held.writer.is_some() || held.changing);
    }

    /// Forgets every page that is not to be kept: its slot has moved.
    pub fn retain(&mut self, keeps: impl Fn(PageId) -> bool) {
        self.0.retain(|id, _| keeps(*id));
    }

    /// A space was freed.
    pub fn free_space(&mut self, space: SpaceId) {
        self.retain(|id| id.space != space);
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
            for op in ops {
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
                        leases.drop_node(NodeId(node), 1);
                        holds = holds.filter(|held| *held != node);
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
        leases.drop_node(NodeId(1), 1);
        assert_eq!(leases.writer(PAGE), None);
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
