//! A forwarding agent's policy: to which backend a packet goes (forwarding paper sections 1 and 4.1).
//!
//! The agent polls its endpoint, asks here, rewrites the header in the control message and sends the payload on
//! ([`crate::Landed::unmodified`]). Packets of one flow go to one backend while that is up. It is no I/O and knows no
//! time: the table of flows forgets the flow that was quiet longest when a new one needs its place.
//!
//! Invariant: a backend's connections are the flows of the table that are its.

use crate::limits::FLOWS_MAX;
use wire::{NodeId, mix};

/// How a new flow's backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// By the flow alone, so that agents agree without a word and a backend that goes takes only its own flows along
    /// (rendezvous hashing). Keeps no flows.
    Hash,
    /// One after the other.
    RoundRobin,
    /// The one with the fewest flows; of several the next in turn.
    LeastConnections,
}

/// Flows that share a place in the table; the one that was quiet longest gives way.
const WAYS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Backend {
    node: NodeId,
    up: bool,
    connections: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    key: u64,
    /// The backend's position and one more; 0 is no flow.
    backend: u16,
    used: u64,
}

/// Counters of an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentCounters {
    /// Packets that got a backend.
    pub forwarded: u64,
    /// Packets that found none up.
    pub refused: u64,
    /// Times that a flow got a backend.
    pub opened: u64,
    /// Flows whose backend went down under them.
    pub moved: u64,
    /// Flows that were forgotten to make room.
    pub forgotten: u64,
}

/// The backends of one service and the flows to them.
#[derive(Clone, Debug)]
pub struct Agent {
    balance: Balance,
    backends: Vec<Backend>,
    sets: Box<[[Flow; WAYS]]>,
    /// The position after the one that was chosen last.
    turn: usize,
    packets: u64,
    counters: AgentCounters,
}

impl Agent {
    /// An agent for these backends, all up, that remembers about `flows` flows.
    pub fn new(balance: Balance, backends: &[NodeId], flows: usize) -> Agent {
        assert!(backends.len() < usize::from(u16::MAX), "a backend's position takes 16 bits");
        let backend = |&node| Backend { node, up: true, connections: 0 };
        let sets =
            if balance == Balance::Hash { 0 } else { flows.clamp(1, FLOWS_MAX).div_ceil(WAYS) };
        Agent {
            balance,
            backends: backends.iter().map(backend).collect(),
            sets: vec![[Flow::default(); WAYS]; sets].into(),
            turn: 0,
            packets: 0,
            counters: AgentCounters::default(),
        }
    }

    /// Counters since the start.
    pub fn counters(&self) -> AgentCounters {
        self.counters
    }

    /// Flows to a backend that the table knows; 0 of those that it has no place for.
    pub fn connections(&self, node: NodeId) -> usize {
        let found = self.backends.iter().find(|backend| backend.node == node);
        found.map_or(0, |backend| backend.connections)
    }

    /// Says whether a backend answers. Flows of one that does not are moved when their next packet comes.
    pub fn set_up(&mut self, node: NodeId, up: bool) {
        for backend in self.backends.iter_mut().filter(|backend| backend.node == node) {
            backend.up = up;
        }
    }

    /// The backend for a packet of this flow; `None` when none is up.
    pub fn forward(&mut self, flow: u64) -> Option<NodeId> {
        self.packets += 1;
        let found = match self.balance {
            Balance::Hash => self.by_hash(flow),
            Balance::RoundRobin | Balance::LeastConnections => self.by_table(flow),
        };
        match found {
            Some(_) => self.counters.forwarded += 1,
            None => self.counters.refused += 1,
        }
        found.map(|at| self.backends[at].node)
    }

    /// The flow has ended.
    pub fn close(&mut self, flow: u64) {
        if let Some((set, way)) = self.find(flow) {
            self.forget(set, way);
        }
    }

    fn by_hash(&self, flow: u64) -> Option<usize> {
        let up = self.backends.iter().enumerate().filter(|(_, backend)| backend.up);
        let best = up.max_by_key(|(_, backend)| mix(mix(flow) ^ u64::from(backend.node.0)));
        best.map(|(at, _)| at)
    }

    fn by_table(&mut self, flow: u64) -> Option<usize> {
        if let Some((set, way)) = self.find(flow) {
            let entry = &mut self.sets[set][way];
            entry.used = self.packets;
            let at = usize::from(entry.backend) - 1;
            assert!(self.backends[at].connections > 0, "a flow is counted at its backend");
            if self.backends[at].up {
                return Some(at);
            }
            self.forget(set, way);
            self.counters.moved += 1;
        }
        let at = self.choose()?;
        self.remember(flow, at);
        Some(at)
    }

    fn choose(&mut self) -> Option<usize> {
        let count = self.backends.len();
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let mut up = in_turn.filter(|at| self.backends[*at].up);
        let at = match self.balance {
            Balance::LeastConnections => up.min_by_key(|at| self.backends[*at].connections),
            _ => up.next(),
        }?;
        self.turn = (at + 1) % count;
        Some(at)
    }

    fn set_of(&self, flow: u64) -> usize {
        (mix(flow) % self.sets.len() as u64) as usize
    }

    fn find(&self, flow: u64) -> Option<(usize, usize)> {
        if self.sets.is_empty() {
            return None;
        }
        let set = self.set_of(flow);
        let is_it = |entry: &Flow| entry.backend > 0 && entry.key == flow;
        self.sets[set].iter().position(is_it).map(|way| (set, way))
    }

    /// Takes a free place of the flow's set, or that of the flow that was quiet longest.
    fn remember(&mut self, flow: u64, at: usize) {
        let set = self.set_of(flow);
        let ways = self.sets[set].iter().enumerate();
        let quietest =
            ways.min_by_key(|(_, entry)| if entry.backend == 0 { 0 } else { entry.used });
        let (way, entry) = quietest.expect("a set has ways");
        if entry.backend > 0 {
            self.counters.forgotten += 1;
            self.forget(set, way);
        }
        assert_eq!(self.sets[set][way].backend, 0, "a way has one flow");
        self.sets[set][way] = Flow { key: flow, backend: at as u16 + 1, used: self.packets };
        self.backends[at].connections += 1;
        self.counters.opened += 1;
    }

    fn forget(&mut self, set: usize, way: usize) {
        let entry = std::mem::take(&mut self.sets[set][way]);
        assert!(entry.backend > 0, "a flow is forgotten once");
        self.backends[usize::from(entry.backend) - 1].connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODES: [NodeId; 4] = [NodeId(11), NodeId(12), NodeId(13), NodeId(14)];

    fn agent(balance: Balance) -> Agent {
        Agent::new(balance, &NODES, 64)
    }

    #[test]
    fn round_robin_goes_round_and_flows_stay() {
        let mut agent = agent(Balance::RoundRobin);
        let first: Vec<_> = (0..6).map(|flow| agent.forward(flow).unwrap().0).collect();
        assert_eq!(first, [11, 12, 13, 14, 11, 12]);
        let again: Vec<_> = (0..6).map(|flow| agent.forward(flow).unwrap().0).collect();
        assert_eq!(again, first);
        assert_eq!(agent.counters().opened, 6);
    }

    #[test]
    fn least_connections_fills_the_emptiest() {
        let mut agent = agent(Balance::LeastConnections);
        (0..8).for_each(|flow| {
            agent.forward(flow);
        });
        assert_eq!(NODES.map(|node| agent.connections(node)), [2; 4]);
        agent.close(2);
        agent.close(6); // both of node 13
        assert_eq!(agent.connections(NodeId(13)), 0);
        assert_eq!(agent.forward(20), Some(NodeId(13)));
        assert_eq!(agent.forward(21), Some(NodeId(13)));
        assert_eq!(agent.forward(22), Some(NodeId(14)), "the next in turn of equals");
    }

    #[test]
    fn a_backend_that_goes_takes_only_its_flows_along() {
        for balance in [Balance::Hash, Balance::RoundRobin, Balance::LeastConnections] {
            let mut agent = agent(balance);
            let before: Vec<_> = (0..40).map(|flow| agent.forward(flow).unwrap()).collect();
            assert!(before.contains(&NodeId(12)));
            agent.set_up(NodeId(12), false);
            for (flow, was) in (0..).zip(before) {
                let now = agent.forward(flow).unwrap();
                assert_ne!(now, NodeId(12));
                assert!(
                    now == was || was == NodeId(12),
                    "{balance:?}: flow {flow} was {was}, is {now}"
                );
            }
            NODES.iter().for_each(|node| agent.set_up(*node, false));
            assert_eq!(agent.forward(1), None);
            assert_eq!(agent.counters().refused, 1);
        }
    }

    #[test]
    fn hashes_spread_evenly() {
        let mut agent = agent(Balance::Hash);
        let mut counts = [0u32; 4];
        (0..40_000).for_each(|flow| counts[usize::from(agent.forward(flow).unwrap().0) - 11] += 1);
        // 10,000 each, standard deviation 87: five of them
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 435), "{counts:?}");
    }

    proptest! {
        /// The table never loses count, however many flows come and whichever backends go.
        #[test]
        fn connections_are_the_tables(
            least: bool, ops in prop::collection::vec((0u64..200, 0u8..10, 0usize..4), 1..400),
        ) {
            let balance = if least { Balance::LeastConnections } else { Balance::RoundRobin };
            let mut agent = agent(balance);
            for (flow, what, node) in ops {
                match what {
                    0 => agent.close(flow),
                    1 => agent.set_up(NODES[node], false),
                    2 => agent.set_up(NODES[node], true),
                    _ => {
                        let to = agent.forward(flow);
                        prop_assert_eq!(to, agent.forward(flow), "a flow stays");
                    }
                }
                let mut counted = [0; 4];
                for entry in agent.sets.iter().flatten().filter(|entry| entry.backend > 0) {
                    counted[usize::from(entry.backend) - 1] += 1;
                }
                prop_assert_eq!(NODES.map(|node| agent.connections(node)), counted);
            }
        }
    }
}
