//! A world whose nodes' messages go as frames over an Ethernet.

use super::{Event, STEP, World};
use crate::ethernet::Ethernet;
use crate::queue::Picos;
use endpoint::Endpoint;
use wire::NodeId;

impl World {
    fn endpoint_of<T>(&self, node: NodeId, act: impl FnOnce(&mut Endpoint) -> T) -> Option<T> {
        let running = self.machines.get(&node)?.node.as_ref()?;
        Some(running.with_endpoint(act))
    }

    /// The same with the Ethernet.
    fn with_ethernet<T>(
        &mut self,
        node: NodeId,
        act: impl FnOnce(&mut Ethernet, &mut Endpoint) -> T,
    ) -> Option<T> {
        let ethernet = self.ethernet.as_mut()?;
        let running = self.machines.get(&node)?.node.as_ref()?;
        Some(running.with_endpoint(|endpoint| act(ethernet, endpoint)))
    }

    /// A frame is at the node that it is for.
    pub(super) fn frame_arrives(&mut self, now: Picos, frame: u32) {
        let time = now.node_time();
        let ethernet = self.ethernet.as_mut().expect("it has carried the frame");
        let node = ethernet.receiver(frame);
        let running = self.machines.get(&node).and_then(|machine| machine.node.as_ref());
        let broken = match running {
            Some(running) => {
                running.with_endpoint(|endpoint| ethernet.arrive(frame, Some(endpoint), time))
            }
            None => ethernet.arrive(frame, None, time),
        };
        if let Some(peer) = broken {
            self.violations.push(format!("{now} {peer} sends {node} what is no message"));
        }
        self.fingerprint.mix(u64::from(node.0) << 1);
        self.carry(now, node);
        self.wake(node);
    }

    /// It is time for a node's frames, unless that has been seen to.
    pub(super) fn frames_due(&mut self, now: Picos, node: NodeId) {
        let ethernet = self.ethernet.as_mut().expect("it has asked for it");
        if ethernet.take_due(node, now) {
            self.carry(now, node);
        }
    }

    /// Moves a node's messages to its connections, and their frames to the wire.
    pub(super) fn carry(&mut self, now: Picos, node: NodeId) {
        let silent = self.ethernet.as_ref().map(|ethernet| ethernet.silent(node, now));
        for peer in silent.unwrap_or_default() {
            self.disconnect(now, node, peer);
        }
        while let Some(Some(message)) = self.endpoint_of(node, Endpoint::next_send) {
            let to = |endpoint: &mut Endpoint| Ethernet::destination(endpoint, &message);
            let peer = self.endpoint_of(node, to).expect("it runs");
            self.connect(now, node, peer);
            self.with_ethernet(node, |ethernet, endpoint| ethernet.push(node, message, endpoint));
        }
        let mut sent = Vec::new();
        self.with_ethernet(node, |ethernet, endpoint| {
            ethernet.send(now, node, endpoint, |at, frame| sent.push((at, frame)));
        });
        for (at, frame) in sent {
            self.queue.push(at, 0, Event::Frame(frame));
        }
        let Some(ethernet) = &mut self.ethernet else { return };
        if let Some(at) = ethernet.deadline(node) {
            // A node's clock is rounded down: a little more, and the time has surely come.
            let at = Picos::of_node_time(at).max(now) + STEP;
            if ethernet.set_due(node, at) {
                self.queue.push(at, 1, Event::Frames(node));
            }
        }
    }

    /// Connects two nodes that both run and are not connected.
    fn connect(&mut self, now: Picos, node: NodeId, peer: NodeId) {
        let connected = |it: &Ethernet| it.has(node, peer) && it.has(peer, node);
        if self.ethernet.as_ref().is_none_or(connected)
            || self.machines.get(&peer).is_none_or(|machine| machine.node.is_none())
        {
            return;
        }
        // A side that is left is of an incarnation before.
        self.close_side((node, peer));
        self.close_side((peer, node));
        let ethernet = self.ethernet.as_mut().expect("just looked into");
        ethernet.connect(node, peer, now);
        if ethernet.set_due(peer, now) {
            self.queue.push(now, 1, Event::Frames(peer));
        }
    }

    /// Ends a connection on both sides, whose nodes learn of it.
    fn disconnect(&mut self, now: Picos, node: NodeId, peer: NodeId) {
        let both = [node, peer].iter().all(|id| self.endpoint_of(*id, |_| ()).is_some());
        for side in [(node, peer), (peer, node)] {
            self.close_side(side);
            if let Some(running) = self.machines.get(&side.0).and_then(|it| it.node.as_ref()) {
                running.link_down(side.1);
                if both {
                    running.link_up(side.1); // the next message connects them again
                }
            }
        }
        self.trace.line(now, node, "link", format_args!("to {} is silent", peer.0));
        self.wake(peer);
    }

    /// Ends one side of a connection.
    pub(super) fn close_side(&mut self, side: (NodeId, NodeId)) {
        let Some(ethernet) = &mut self.ethernet else { return };
        match self.machines.get(&side.0).and_then(|machine| machine.node.as_ref()) {
            Some(running) => running.with_endpoint(|it| ethernet.close(side, Some(it))),
            None => ethernet.close(side, None),
        }
    }
}
