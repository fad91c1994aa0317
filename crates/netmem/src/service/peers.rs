//! Knowledge of other nodes, from their answers: which of them may have a shared page, and how long they take to
//! answer.

use super::guesses::Guesses;
use super::latency::Latency;
use crate::limits::{HEDGE_MAX, HEDGE_MIN, HEDGE_TIMES};
use crate::page::{PageId, SpaceId};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::NodeId;

/// The other nodes.
#[derive(Debug)]
pub struct Peers {
    guesses: Guesses,
    latencies: BTreeMap<NodeId, Latency>,
}

impl Peers {
    /// Of none is anything known. Room for so many guesses.
    pub fn new(guesses: usize) -> Peers {
        Peers { guesses: Guesses::new(guesses), latencies: BTreeMap::new() }
    }

    /// The node that may have a page.
    pub fn hint(&self, id: PageId) -> Option<NodeId> {
        self.guesses.get(id)
    }

    /// How long a node takes to answer a request for a page.
    pub fn latency(&self, node: NodeId) -> Option<Latency> {
        self.latencies.get(&node).copied()
    }

    /// How long a request for a page is waited for before stable storage is asked as well.
    pub fn hedge_after(&self, id: PageId) -> Duration {
        let known = self.hint(id).and_then(|node| self.latencies.get(&node));
        let p99 = known.and_then(|latency| latency.quantile(990));
        p99.map_or(HEDGE_MAX, |p99| (p99 * HEDGE_TIMES).clamp(HEDGE_MIN, HEDGE_MAX))
    }

    /// A node has answered a request for a page.
    pub fn handle_answer(&mut self, node: NodeId, took: Duration) {
        self.latencies.entry(node).or_default().add(took);
    }

    /// A node has a page of a shared space.
    pub fn handle_holder(&mut self, id: PageId, node: NodeId) {
        debug_assert!(id.space.owner().is_none(), "a private space has its owner for a directory");
        self.guesses.put(id, node);
    }

    /// A guess proved wrong.
    pub fn forget(&mut self, id: PageId) {
        self.guesses.forget(id);
    }

    /// A space was freed.
    pub fn forget_space(&mut self, space: SpaceId) {
        self.guesses.forget_if(|id, _| id.space == space);
    }

    /// These nodes are down, or in later incarnations.
    pub fn forget_nodes(&mut self, gone: &[(NodeId, u64)]) {
        let is_gone = |node| gone.iter().any(|(other, _)| *other == node);
        self.guesses.forget_if(|_, node| is_gone(node));
        self.latencies.retain(|node, _| !is_gone(*node));
    }

    /// Nothing heard of holders is to be believed.
    pub fn forget_holders(&mut self) {
        self.guesses.forget_if(|_, _| true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(index: u64) -> PageId {
        PageId { space: SpaceId::shared(7), index }
    }

    #[test]
    fn stable_storage_is_asked_beside_a_node_that_takes_four_times_as_long_as_usual() {
        let mut peers = Peers::new(8);
        assert_eq!(peers.hedge_after(page(1)), HEDGE_MAX, "nothing is known of the holder");
        peers.handle_holder(page(1), NodeId(2));
        assert_eq!(peers.hedge_after(page(1)), HEDGE_MAX, "nor of how long it takes");
        let usual = Duration::from_micros(500);
        (0..100).for_each(|_| peers.handle_answer(NodeId(2), usual));
        let after = peers.hedge_after(page(1));
        assert!(after >= usual * HEDGE_TIMES && after < HEDGE_MAX, "{after:?}");
        (0..9999).for_each(|_| peers.handle_answer(NodeId(2), Duration::from_nanos(300)));
        assert_eq!(peers.hedge_after(page(1)), HEDGE_MIN);
    }

    #[test]
    fn a_node_that_is_gone_leaves_nothing() {
        let mut peers = Peers::new(8);
        for node in [2, 3] {
            peers.handle_holder(page(node.into()), NodeId(node));
            peers.handle_answer(NodeId(node), HEDGE_MIN);
        }
        peers.forget_nodes(&[(NodeId(2), 5)]);
        assert_eq!((peers.hint(page(2)), peers.hint(page(3))), (None, Some(NodeId(3))));
        assert!(peers.latency(NodeId(2)).is_none() && peers.latency(NodeId(3)).is_some());
        peers.forget_holders();
        assert_eq!(peers.hint(page(3)), None);
        assert!(peers.latency(NodeId(3)).is_some());
    }
}
