//! Messages between a node and a guest: a process that stores pages in the node's memory and is no node.

use wire::NodeId;
use wire::field::fields;

/// The answer to [`op::STAY`](super::op::STAY): the node that was asked. Pages of its other incarnations are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// The guest.
    pub node: NodeId,
    /// In which incarnation of its process.
    pub incarnation: u64,
    /// The machine that it runs on; 0 when it does not know.
    pub machine: u64,
}

fields!(Stayed { node, incarnation, machine });
