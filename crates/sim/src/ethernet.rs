//! Messages as frames over a modelled Ethernet: the nodes' [`Connection`]s, the same as live, and a wire that loses,
//! repeats, delays and changes frames.
//!
//! A connection is there as soon as one of two running nodes has a message for the other, on both sides at once: live
//! a TCP connection sees to that. It ends on both sides when one is silent, or when a node learns that the other is
//! gone.
//!
//! Invariant: each frame is on the wire once, or twice when a fault repeats it, and arrives in one event.

use crate::queue::Picos;
use crate::random::Random;
use endpoint::{Endpoint, SendMessage};
use nic::ether::limits::FRAME_BYTES_MAX;
use nic::ether::{Address, Checked, Config, Connection, Counters, connection_of};
use std::collections::BTreeMap;
use wire::{ControlView, NodeId, Time};

/// The wire. Faults are parts of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetModel {
    /// From the first bit sent to the first bit received.
    pub latency: Picos,
    /// Of each node's port, outwards.
    pub bytes_per_second: u64,
    /// Bytes of the longest frame.
    pub frame_bytes: usize,
    /// Frames lost.
    pub lost: u32,
    /// Frames that arrive twice.
    pub repeated: u32,
    /// Frames that come up to [`late_by`](EthernetModel::late_by) later, so that others overtake them.
    pub late: u32,
    /// How much.
    pub late_by: Picos,
    /// Frames of which a bit changes.
    pub changed: u32,
}

impl Default for EthernetModel {
    /// 10 Gbit/s through one switch (assumed), without faults.
    fn default() -> EthernetModel {
        EthernetModel {
            latency: Picos::micros(5),
            bytes_per_second: 1_250_000_000,
            frame_bytes: FRAME_BYTES_MAX,
            lost: 0,
            repeated: 0,
            late: 0,
            late_by: Picos::micros(100),
            changed: 0,
        }
    }
}

#[derive(Debug)]
struct Frame {
    to: NodeId,
    bytes: Vec<u8>,
    under_way: bool,
}

/// One side of a connection: whose, and with whom.
type Side = (NodeId, NodeId);

/// The wire and all connections.
#[derive(Debug)]
pub struct Ethernet {
    model: EthernetModel,
    random: Random,
    connections: BTreeMap<Side, Connection>,
    /// Given to the next connection.
    next: u16,
    busy_until: BTreeMap<NodeId, Picos>,
    /// When each node's frames are looked at next.
    due: BTreeMap<NodeId, Picos>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    /// Of connections that are gone.
    past: Counters,
    strays: u64,
}

fn address(node: NodeId) -> Address {
    let [high, low] = node.0.to_be_bytes();
    [2, 0, 0, 0, high, low]
}

impl Ethernet {
    /// Without connections.
    pub fn new(seed: u64, model: EthernetModel) -> Ethernet {
        Ethernet {
            model,
            random: Random::new(seed, "ethernet"),
            connections: BTreeMap::new(),
            next: 0,
            busy_until: BTreeMap::new(),
            due: BTreeMap::new(),
            frames: Vec::new(),
            free: Vec::new(),
            past: Counters::default(),
            strays: 0,
        }
    }

    /// Frames of all connections so far.
    pub fn counters(&self) -> Counters {
        let mut sum = self.past;
        self.connections.values().for_each(|connection| sum.add(&connection.counters()));
        sum
    }

    /// Frames on the wire.
    pub fn in_flight(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    /// Whether the two have a connection.
    pub fn has(&self, one: NodeId, other: NodeId) -> bool {
        self.connections.contains_key(&(one, other))
    }

    /// Connects two nodes that are not.
    pub fn connect(&mut self, one: NodeId, other: NodeId, now: Picos) {
        let numbers = [self.next, self.next.wrapping_add(1)];
        self.next = self.next.wrapping_add(2);
        let seal = Checked(wire::mix(u64::from(self.next) << 32 ^ now.0));
        for ((from, to), [number, peer_number]) in
            [((one, other), numbers), ((other, one), [numbers[1], numbers[0]])]
        {
            let config = Config {
                peer: to,
                from: address(from),
                to: address(to),
                number,
                peer_number,
                frame_bytes: self.model.frame_bytes,
                seal: Box::new(seal),
            };
            let old = self.connections.insert((from, to), Connection::new(config, now.node_time()));
            assert!(old.is_none(), "two that are connected are not connected");
        }
    }

    /// Ends a side of a connection. `endpoint` is its node's, if that runs.
    pub fn close(&mut self, side: Side, endpoint: Option<&mut Endpoint>) {
        let Some(mut connection) = self.connections.remove(&side) else { return };
        self.past.add(&connection.counters());
        if let Some(endpoint) = endpoint {
            connection.close(endpoint);
        }
    }

    /// The peers of a node with which it has a connection.
    pub fn peers(&self, node: NodeId) -> Vec<NodeId> {
        let own = self.connections.range((node, NodeId(0))..=(node, NodeId(u16::MAX)));
        own.map(|((_, peer), _)| *peer).collect()
    }

    /// Those of them that acknowledge nothing any more.
    pub fn silent(&self, node: NodeId, now: Picos) -> Vec<NodeId> {
        let is_silent = |peer: &NodeId| self.connections[&(node, *peer)].is_silent(now.node_time());
        self.peers(node).into_iter().filter(is_silent).collect()
    }

    /// The node for which a message is.
    pub fn destination(endpoint: &Endpoint, message: &SendMessage) -> NodeId {
        ControlView::checked_before(&endpoint.taken(message).control).header().destination
    }

    /// Queues a message on its connection. Lost without one.
    pub fn push(&mut self, from: NodeId, message: SendMessage, endpoint: &mut Endpoint) {
        let to = Ethernet::destination(endpoint, &message);
        match self.connections.get_mut(&(from, to)) {
            Some(connection) => connection.push(message, endpoint),
            None => endpoint.transmitted(message),
        }
    }

    /// Sends what is due of a node's frames. `schedule` is told when which of them arrives.
    pub fn send(
        &mut self,
        now: Picos,
        node: NodeId,
        endpoint: &mut Endpoint,
        mut schedule: impl FnMut(Picos, u32),
    ) {
        let mut frame = [0; FRAME_BYTES_MAX];
        for peer in self.peers(node) {
            let time = now.node_time();
            loop {
                let connection = self.connections.get_mut(&(node, peer)).expect("just listed");
                let Some(bytes) = connection.poll_frame(&mut frame, endpoint, time) else { break };
                self.transmit(now, (node, peer), &frame[..bytes], &mut schedule);
            }
        }
    }

    fn transmit(
        &mut self,
        now: Picos,
        (from, to): Side,
        bytes: &[u8],
        schedule: &mut impl FnMut(Picos, u32),
    ) {
        let picos = bytes.len() as u128 * 1_000_000_000_000;
        let transfer = Picos((picos / u128::from(self.model.bytes_per_second)) as u64);
        let busy_until = self.busy_until.entry(from).or_default();
        let gone = now.max(*busy_until) + transfer;
        *busy_until = gone;
        if self.random.chance(self.model.lost) {
            return;
        }
        let copies = 1 + u32::from(self.random.chance(self.model.repeated));
        for _ in 0..copies {
            let mut at = gone + self.model.latency;
            if self.random.chance(self.model.late) {
                at = at + Picos(self.random.below(self.model.late_by.0));
            }
            let id = self.copy(to, bytes);
            schedule(at, id);
        }
    }

    fn copy(&mut self, to: NodeId, bytes: &[u8]) -> u32 {
        let id = self.free.pop().unwrap_or(self.frames.len() as u32);
        if id as usize == self.frames.len() {
            self.frames.push(Frame { to, bytes: Vec::new(), under_way: false });
        }
        let changed =
            self.random.chance(self.model.changed).then(|| self.random.index(bytes.len()));
        let frame = &mut self.frames[id as usize];
        assert!(!frame.under_way, "a free frame");
        (frame.to, frame.under_way) = (to, true);
        frame.bytes.clear();
        frame.bytes.extend_from_slice(bytes);
        if let Some(at) = changed {
            frame.bytes[at] ^= 1 << (at % 8);
        }
        id
    }

    /// The node that a frame is for.
    pub fn receiver(&self, frame: u32) -> NodeId {
        self.frames[frame as usize].to
    }

    /// A frame is there. The peer whose connection must end, if it breaks the protocol.
    pub fn arrive(
        &mut self,
        frame: u32,
        endpoint: Option<&mut Endpoint>,
        now: Time,
    ) -> Option<NodeId> {
        let Frame { to, bytes, under_way } = &mut self.frames[frame as usize];
        assert!(std::mem::take(under_way), "a frame arrives once");
        self.free.push(frame);
        let number = connection_of(bytes);
        let own = self.connections.range_mut((*to, NodeId(0))..=(*to, NodeId(u16::MAX)));
        let connection =
            own.map(|(_, connection)| connection).find(|it| Some(it.number()) == number);
        match (connection, endpoint) {
            (Some(connection), Some(endpoint)) => {
                connection.handle_frame(bytes, endpoint, now).err().map(|_| connection.peer())
            }
            _ => {
                self.strays += 1;
                None
            }
        }
    }

    /// Frames that arrived for no connection.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// When a node's frames are due at the latest.
    pub fn deadline(&self, node: NodeId) -> Option<Time> {
        let own = self.connections.range((node, NodeId(0))..=(node, NodeId(u16::MAX)));
        own.filter_map(|(_, connection)| connection.deadline()).min()
    }

    /// A node's frames are to be looked at then; false: they are sooner anyway.
    pub fn set_due(&mut self, node: NodeId, at: Picos) -> bool {
        let due = self.due.entry(node).or_insert(Picos::NEVER);
        let sooner = at < *due;
        *due = (*due).min(at);
        sooner
    }

    /// Whether it is time for that; another time was set since, if not.
    pub fn take_due(&mut self, node: NodeId, now: Picos) -> bool {
        let is_due = self.due.get(&node) == Some(&now);
        is_due && self.due.remove(&node).is_some()
    }
}
