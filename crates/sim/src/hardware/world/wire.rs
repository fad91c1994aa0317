//! A packet on its way from one adapter to another: its head travels, claims its path, then its bytes move in
//! bursts.
//!
//! The head's way through cables and crossbars takes time and holds nothing: bytes of the packet before are still
//! on it. A channel is held for as long as bytes pass it, or wait.
//!
//! A burst lasts while the sender has a pulse under way and the receiver has told its engine where to put it.
//! Between bursts the packet holds its path: back-pressure, or a sender that waits for its own bus.

use super::engines::Phase;
use super::{Event, World};
use crate::hardware::fabric::Path;
use crate::hardware::flow::Flow;
use crate::hardware::world::program::Program;
use nic::Engine;

/// Progress of the packet on its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transit {
    /// No packet.
    #[default]
    None,
    /// The head is on its way.
    Travelling,
    /// It has so many channels and waits for the next.
    Claiming(u8),
    /// It has all of them, and the receiver is to know of it.
    Through,
    /// The receiver knows of it.
    Open,
}

/// The packet that leaves an adapter.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outgoing {
    pub to: u16,
    pub path: Path,
    pub way: Transit,
}

impl<P: Program> World<P> {
    /// The net-send engine has begun a transfer: the first of a packet opens its way.
    pub(crate) fn leave(&mut self, adapter: u16) {
        let index = usize::from(adapter);
        if self.adapters[index].outgoing.way == Transit::None {
            let transfer = self.adapters[index].engines.state(Engine::NetSend).transfer;
            let to = transfer.expect("a transfer leaves").packet.destination.0;
            let path = self.fabric.path(index, usize::from(to));
            self.adapters[index].outgoing = Outgoing { to, path, way: Transit::Travelling };
            let link = self.fabric.link();
            let time = self.fabric.head_time(&path) + link.rate.time(link.framing);
            self.at(self.now() + time, Event::Head { adapter });
        }
        self.burst(adapter);
    }

    /// Takes the next channels of the packet's path, until one is another's; whether it has all.
    fn claim(&mut self, adapter: u16) -> bool {
        let outgoing = self.adapters[usize::from(adapter)].outgoing;
        let mut held = if let Transit::Claiming(held) = outgoing.way { held } else { 0 };
        let channels = outgoing.path.channels();
        while let Some(&channel) = channels.get(usize::from(held)) {
            if !self.fabric.claim(channel, u32::from(adapter)) {
                break;
            }
            held += 1;
        }
        let all = usize::from(held) == channels.len();
        let way = if all { Transit::Through } else { Transit::Claiming(held) };
        self.adapters[usize::from(adapter)].outgoing.way = way;
        all
    }

    /// The head of the packet from `adapter` has travelled as far as its receiver, or has the last channel that it
    /// waited for.
    pub(crate) fn head_comes(&mut self, adapter: u16) -> Option<u64> {
        let is_through = self.adapters[usize::from(adapter)].outgoing.way == Transit::Through;
        if is_through || self.claim(adapter) {
            self.open(adapter);
        }
        Some(1)
    }

    /// The receiver knows of the packet from `adapter`.
    fn open(&mut self, adapter: u16) {
        let sender = &mut self.adapters[usize::from(adapter)];
        sender.outgoing.way = Transit::Open;
        let packet =
            sender.engines.state(Engine::NetSend).transfer.expect("a transfer leaves").packet;
        let to = sender.outgoing.to;
        let receiver = &mut self.adapters[usize::from(to)];
        assert_eq!(receiver.incoming, None, "one packet comes at a time");
        receiver.incoming = Some(adapter);
        receiver.in_progress += 1;
        receiver.nic.arriving(packet);
        self.wake(to);
    }

    /// Starts a burst from `adapter` if both sides are ready for one.
    pub(crate) fn burst(&mut self, adapter: u16) {
        let sender = &self.adapters[usize::from(adapter)];
        let out = sender.engines.state(Engine::NetSend);
        if sender.outgoing.way != Transit::Open || sender.engines.bursting || !out.is_moving() {
            return;
        }
        let receiver = &self.adapters[usize::from(sender.outgoing.to)];
        let into = receiver.engines.state(Engine::NetReceive);
        if receiver.incoming != Some(adapter) || !into.is_moving() {
            return;
        }
        let bytes = out.left().min(into.left());
        let now = self.now();
        let engines = &mut self.adapters[usize::from(adapter)].engines;
        (engines.burst, engines.bursting) = (Flow::new(now, bytes as u64), true);
        self.refresh(adapter);
    }

    /// A burst is through: one side or both are done with their transfer.
    pub(crate) fn burst_ends(&mut self, adapter: u16, stamp: u32) -> Option<u64> {
        let now = self.now();
        let sender = &mut self.adapters[usize::from(adapter)];
        if sender.engines.burst_stamp != stamp || !sender.engines.bursting {
            return None;
        }
        assert!(sender.engines.burst.is_done(now), "a burst ends when its bytes are through");
        let (bytes, to) = (sender.engines.burst.total() as usize, sender.outgoing.to);
        sender.engines.bursting = false;
        sender.engines.of(Engine::NetSend).moved += bytes;
        self.adapters[usize::from(to)].engines.of(Engine::NetReceive).moved += bytes;
        self.refresh(adapter);
        self.refresh(to);
        self.net_ended(to, Engine::NetReceive, adapter);
        self.net_ended(adapter, Engine::NetSend, to);
        // the sender first: when its message has left, what the receiver starts is not in company any more
        self.wake(adapter);
        self.wake(to);
        Some(2)
    }

    /// Tells the firmware of `adapter` if its transfer is through.
    fn net_ended(&mut self, adapter: u16, engine: Engine, peer: u16) {
        let state = self.adapters[usize::from(adapter)].engines.state(engine);
        if state.left() > 0 {
            return;
        }
        let transfer = state.transfer.expect("a transfer ends");
        if engine == Engine::NetReceive {
            self.check_received(adapter, peer, &transfer);
        }
        self.finish(adapter, engine);
        let packet_over = transfer.last && engine == Engine::NetSend;
        if packet_over {
            self.close(adapter);
        }
    }

    /// The packet's tail has passed: who waited for its channels goes on.
    fn close(&mut self, adapter: u16) {
        let Outgoing { to, path, .. } = self.adapters[usize::from(adapter)].outgoing;
        self.adapters[usize::from(adapter)].outgoing.way = Transit::None;
        let receiver = &mut self.adapters[usize::from(to)];
        assert_eq!(
            receiver.incoming.take(),
            Some(adapter),
            "the packet that came is the one that ends"
        );
        let phase = receiver.engines.state(Engine::NetReceive).phase;
        if phase == Phase::Moving && receiver.engines.state(Engine::NetReceive).left() > 0 {
            self.wrong(to, "underrun: the packet ended before the transfer from the link");
        }
        for &channel in path.channels() {
            if let Some(next) = self.fabric.release(channel, u32::from(adapter)) {
                self.go_on(next as u16);
            }
        }
    }

    /// A packet that waited for a channel has it.
    fn go_on(&mut self, adapter: u16) {
        if self.claim(adapter) {
            self.at(self.now(), Event::Head { adapter });
        }
    }
}
