//! Configuration of a node.

use crate::bugs::Bugs;
use wire::NodeId;

/// Configuration of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfig {
    /// Its number.
    pub id: NodeId,
    /// Greater than in every earlier one.
    pub incarnation: u64,
    /// Of its random stream.
    pub seed: u64,
    /// Disks on its disk ring.
    pub disks: u16,
    /// Calls that each client may have under way here.
    pub slots: u16,
    /// Pages of request payload that all clients share.
    pub budget_pages: usize,
    /// Planted bugs, one bit each; 0 outside of tests of the checkers.
    pub bugs: u128,
}

impl NodeConfig {
    /// The usual limits, no disks.
    pub fn new(id: NodeId, incarnation: u64, seed: u64) -> NodeConfig {
        NodeConfig {
            id,
            incarnation,
            seed,
            disks: 0,
            slots: netrpc::limits::SLOTS,
            budget_pages: netrpc::limits::BUDGET_PAGES,
            bugs: Bugs::everywhere().0,
        }
    }
}
