//! Two or more nodes and a link between them that does what the test says.

use crate::packet::{Packet, put_packet, take_packet};
use endpoint::{Frames, HeapRegion};
use node::{Cx, Node, NodeConfig};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use wire::{NodeId, Time};

/// The link's treatment of the n-th packet: the number of copies that arrive, and their delay in turns.
pub type Fate = Box<dyn FnMut(u64) -> (usize, usize)>;

/// Nodes and the packets between them.
pub struct Net {
    /// Node n is the one with index n - 1.
    pub nodes: Vec<Node>,
    /// Time on the clocks of all nodes.
    pub now: Time,
    /// Fate of packets.
    pub fate: Fate,
    /// No packet reaches this node, and none of its packets reaches another.
    pub cut: Option<NodeId>,
    sent: u64,
    flying: VecDeque<(usize, NodeId, Packet)>,
}

/// Starts a task on a node; its output when it has ended.
pub fn start<T: 'static>(
    cx: &Cx,
    task: impl Future<Output = T> + 'static,
) -> Rc<RefCell<Option<T>>> {
    let output = Rc::new(RefCell::new(None));
    let slot = output.clone();
    cx.spawn("test", async move {
        let value = task.await;
        *slot.borrow_mut() = Some(value);
    });
    output
}

/// A node with 8 MiB of frames.
pub fn node(id: u16, incarnation: u64) -> Node {
    let frames = Frames::new(HeapRegion::new(2048));
    let seed = incarnation.wrapping_mul(1000).wrapping_add(u64::from(id));
    Node::new(NodeConfig::new(NodeId(id), incarnation, seed), frames)
}

impl Net {
    /// Nodes 1 to `count`.
    pub fn new(count: u16) -> Net {
        Net {
            nodes: (1..=count).map(|id| node(id, 1)).collect(),
            now: Time(1),
            fate: Box::new(|_| (1, 0)),
            cut: None,
            sent: 0,
            flying: VecDeque::new(),
        }
    }

    fn collect(&mut self) {
        for node in &self.nodes {
            while let Some(packet) = take_packet(node) {
                let (copies, late) = (self.fate)(self.sent);
                self.sent += 1;
                let to = packet.header().destination;
                let is_cut = [to, node.cx().id()].map(Some).contains(&self.cut);
                for _ in 0..if is_cut { 0 } else { copies } {
                    self.flying.push_back((late, to, packet.clone()));
                }
            }
        }
    }

    fn land(&mut self) {
        for _ in 0..self.flying.len() {
            let (late, to, packet) = self.flying.pop_front().unwrap();
            if late > 0 {
                self.flying.push_back((late - 1, to, packet));
            } else if let Some(node) = self.nodes.iter().find(|node| node.cx().id() == to) {
                put_packet(node, &packet);
            }
        }
    }

    /// One turn: every node steps, every packet moves, a millisecond passes.
    pub fn turn(&mut self) {
        self.land();
        for node in &mut self.nodes {
            node.step(self.now);
        }
        self.collect();
        self.now = self.now + Duration::from_millis(1);
    }

    /// So many turns.
    pub fn run(&mut self, turns: usize) {
        (0..turns).for_each(|_| self.turn());
    }

    /// Runs until `done`, for at most a simulated minute.
    pub fn until(&mut self, mut done: impl FnMut() -> bool) {
        for _ in 0..60_000 {
            if done() {
                return;
            }
            self.turn();
        }
        panic!("not done after a minute");
    }

    /// Replaces a node by its next incarnation: everything it knew is gone.
    pub fn restart(&mut self, id: u16, incarnation: u64) {
        self.nodes[usize::from(id) - 1] = node(id, incarnation);
    }
}
