//! Common parts of connections through memory that both processes map: plain shared memory and adapters.

use super::bell::Bell;
use super::limits::{LOOK_SPAN_MAX, SILENCE_SPAN};
use super::stream::{Closed, Tally};
use endpoint::{Endpoint, SendMessage};
use std::fmt::Debug;
use std::os::fd::AsFd;
use wire::{NodeId, Time};

/// A connection to a process of this host.
pub trait Neighbour: AsFd + Debug {
    /// The name of the transport.
    fn transport(&self) -> &'static str;
    /// Queues a message.
    fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint);
    /// Whether the peer has not yet released everything that was sent.
    fn is_under_way(&self) -> bool;
    /// Whether the peer stands still: what keeps memory here has waited for it for [`SILENCE_SPAN`].
    fn is_silent(&mut self, endpoint: &Endpoint, now: Time) -> bool;
    /// Whether no message has arrived and none waits for room. The words of an arriving one that are read first are on
    /// their way to this processor already.
    fn is_quiet(&self) -> bool;
    /// The processor that the peer runs on, if it is awake.
    fn peer_processor(&self) -> Option<u32>;
    /// Tells the peer where this node runs.
    fn set_processor(&mut self, processor: u32);
    /// Takes back what the peer has released and posts what there is room for; whether something moved.
    fn send(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed>;
    /// Receives what has come, a bounded number of messages; whether something moved.
    fn receive(&mut self, endpoint: &mut Endpoint, peer: NodeId) -> Result<bool, Closed>;
    /// Announces sleep; true: something is there, do not sleep.
    fn before_sleep(&mut self) -> bool;
    /// Ends what [`before_sleep`](Neighbour::before_sleep) announced.
    fn after_sleep(&mut self);
    /// Its socket.
    fn bell(&mut self) -> &mut Bell;
    /// Its traffic.
    fn tally(&self) -> Tally;
    /// Gives up what is under way in both directions.
    fn close(&mut self, endpoint: &mut Endpoint);
}

/// Since when the peer has released nothing, and memory waited for it.
#[derive(Debug, Default)]
pub struct Silence {
    /// The oldest entry under way when that began.
    oldest: u64,
    since: Time,
    looked_at: Time,
}

impl Silence {
    /// Whether it is too long. `excused`: nothing waits for the peer, or it is not the peer's turn. Time without a look
    /// does not count: this node stood still itself then, and perhaps the whole host.
    pub fn look(&mut self, oldest: u64, excused: bool, now: Time) -> bool {
        let unasked = now.since(self.looked_at) > LOOK_SPAN_MAX;
        self.looked_at = now;
        if oldest != self.oldest || excused || unasked {
            (self.oldest, self.since) = (oldest, now);
        }
        now >= self.since + SILENCE_SPAN
    }
}
