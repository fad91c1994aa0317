//! What links know of each peer.

use super::limits::BACKOFF_MIN;
use super::stream::{Outgoing, Tally};
use endpoint::Endpoint;
use endpoint::tuning::Pulses;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{NodeId, Time};

/// One peer.
#[derive(Debug)]
pub struct Peer {
    /// Its connection.
    pub main: Option<usize>,
    /// Its second connection, for large payloads.
    pub bulk: Option<usize>,
    /// The number of its connection over Ethernet.
    pub frames: Option<u16>,
    /// Whether that has been told to be up.
    pub frames_pass: bool,
    /// Messages that wait for a connection.
    pub waiting: Outgoing,
    /// The traffic of connections that are gone.
    pub tally: Tally,
    /// A connection to it is being made.
    pub dialing: bool,
    /// Attempts so far.
    pub attempt: usize,
    /// When the next attempt may be made.
    pub retry_at: Time,
    /// The pause after the next failure.
    pub backoff: Duration,
    /// Of its connection, the node that called.
    pub caller: NodeId,
    /// Of its connection, the peer's incarnation.
    pub incarnation: u64,
    /// Of its connection: pairs the second one with it.
    pub session: u64,
}

impl Default for Peer {
    fn default() -> Self {
        Peer {
            main: None,
            bulk: None,
            frames: None,
            frames_pass: false,
            waiting: Outgoing::new(Pulses::Tuned, 0),
            tally: Tally::default(),
            dialing: false,
            attempt: 0,
            retry_at: Time::ZERO,
            backoff: BACKOFF_MIN,
            caller: NodeId(0),
            incarnation: 0,
            session: 0,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Peers(pub BTreeMap<NodeId, Peer>);

impl Peers {
    /// The peer, made when it was not known.
    pub fn get(&mut self, id: NodeId) -> &mut Peer {
        self.0.entry(id).or_default()
    }

    /// All peers that there ever were.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&NodeId, &mut Peer)> {
        self.0.iter_mut()
    }

    /// When the next attempt to connect is due.
    pub fn next_attempt(&self) -> Option<Time> {
        let waits =
            |peer: &&Peer| peer.main.is_none() && !peer.dialing && !peer.waiting.queue.is_empty();
        self.0.values().filter(waits).map(|peer| peer.retry_at).min()
    }

    /// A peer to which an attempt is due.
    pub fn to_call(&self, now: Time) -> Option<NodeId> {
        let waits = |peer: &Peer| {
            peer.main.is_none()
                && !peer.dialing
                && !peer.waiting.queue.is_empty()
                && peer.retry_at <= now
        };
        self.0.iter().find(|(_, peer)| waits(peer)).map(|(id, _)| *id)
    }

    /// Drops all that waits for a connection.
    pub fn drop_waiting(&mut self, endpoint: &mut Endpoint) {
        for peer in self.0.values_mut() {
            peer.waiting.close(endpoint, &mut peer.tally);
        }
    }
}
