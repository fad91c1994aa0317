//! Who is there, as the members' registry says it: its word, not this crate's.

use wire::NodeId;

/// A node that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Up {
    /// The node.
    pub node: NodeId,
    /// Its life: greater than in every earlier one. A node that was left out of a view comes back in a later life.
    pub incarnation: u64,
    /// Its part of the directory, relative to the others': any unit, say MiB of its memory. 0 is none.
    pub weight: u32,
    /// The machine that it runs on; 0 when that is not known, and then it is taken for one of its own.
    pub machine: u64,
}

/// The nodes that are up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Grows with every change.
    pub number: u64,
    /// In the order of their numbers, each once.
    pub members: Vec<Up>,
}

impl View {
    /// A view; the order of the members does not matter. Panics when a node is there twice.
    pub fn new(number: u64, mut members: Vec<Up>) -> View {
        members.sort_unstable_by_key(|up| up.node);
        assert!(members.windows(2).all(|pair| pair[0].node < pair[1].node), "a node has one life");
        View { number, members }
    }

    /// The life that a node is in; `None` when it is down.
    pub fn incarnation(&self, node: NodeId) -> Option<u64> {
        let at = self.members.binary_search_by_key(&node, |up| up.node).ok()?;
        Some(self.members[at].incarnation)
    }

    /// Whether a node is up in just this life.
    pub fn has(&self, node: NodeId, incarnation: u64) -> bool {
        self.incarnation(node) == Some(incarnation)
    }

    /// The machine that a node runs on; 0 when it is down or that is not known.
    pub fn machine(&self, node: NodeId) -> u64 {
        let at = self.members.binary_search_by_key(&node, |up| up.node);
        at.map_or(0, |at| self.members[at].machine)
    }

    /// Whether both are known to run on one machine.
    pub fn are_on_one_machine(&self, one: NodeId, other: NodeId) -> bool {
        let machine = self.machine(one);
        machine != 0 && machine == self.machine(other)
    }

    /// The nodes, but for one.
    pub fn others(&self, me: NodeId) -> impl Iterator<Item = &Up> {
        self.members.iter().filter(move |up| up.node != me)
    }
}
