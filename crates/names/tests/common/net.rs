//! Nodes, links between them that lose and double messages, and the files behind the manager's store.

use endpoint::{Frames, HeapRegion, Place};
use node::{Node, NodeConfig};
use std::collections::VecDeque;
use std::time::Duration;
use wire::{Control, ControlView, NodeId, Time};

pub struct Packet {
    pub control: Control,
    pub data: Vec<u8>,
    pub trailer: Vec<u8>,
}

/// What the link does with the n-th packet: how many copies arrive, and how many turns late.
pub type Fate = Box<dyn FnMut(u64) -> (usize, usize)>;

pub struct Net {
    pub nodes: Vec<Node>,
    pub now: Time,
    pub fate: Fate,
    sent: u64,
    flying: VecDeque<(usize, NodeId, Packet)>,
}

pub fn node(id: u16, incarnation: u64) -> Node {
    let frames = Frames::new(HeapRegion::new(2048));
    Node::new(NodeConfig::new(NodeId(id), incarnation, incarnation * 1000 + u64::from(id)), frames)
}

impl Net {
    /// Nodes 1 to `count`.
    pub fn new(count: u16) -> Net {
        Net {
            nodes: (1..=count).map(|id| node(id, 1)).collect(),
            now: Time(1),
            fate: Box::new(|_| (1, 0)),
            sent: 0,
            flying: VecDeque::new(),
        }
    }

    fn collect(&mut self) {
        for node in &self.nodes {
            while let Some(packet) = take_packet(node) {
                let (copies, late) = (self.fate)(self.sent);
                self.sent += 1;
                for _ in 0..copies {
                    let to = ControlView::new(&packet.control).unwrap().header().destination;
                    let copy = Packet {
                        data: packet.data.clone(),
                        trailer: packet.trailer.clone(),
                        ..packet
                    };
                    self.flying.push_back((late, to, copy));
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

    pub fn run(&mut self, turns: usize) {
        (0..turns).for_each(|_| self.turn());
    }
}

pub fn take_packet(node: &Node) -> Option<Packet> {
    node.with_endpoint(|endpoint| {
        let message = endpoint.next_send()?;
        let entry = endpoint.outgoing(&message);
        let header = ControlView::new(&entry.control).expect("sealed").header();
        let packet = Packet {
            control: entry.control,
            data: entry.payload.iter().flat_map(|frame| frame.to_vec()).collect(),
            trailer: entry.trailer[..header.trailer_bytes()].to_vec(),
        };
        endpoint.transmitted(message);
        Some(packet)
    })
}

pub fn put_packet(node: &Node, packet: &Packet) {
    let header = ControlView::new(&packet.control).unwrap().header();
    node.with_endpoint(|endpoint| {
        let message = match endpoint.place(&packet.control, &header) {
            Place::Wait => return,
            Place::Skip(message) => message,
            Place::Fill(message) => {
                let entry = endpoint.arrived(&message);
                let mut rest = &packet.data[..];
                for frame in &mut entry.landed {
                    let n = rest.len().min(frame.len());
                    frame[..n].copy_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                entry.trailer[..packet.trailer.len()].copy_from_slice(&packet.trailer);
                message
            }
        };
        endpoint.deliver(message, &header);
    });
}
