//! A connected stream socket between two links that have introduced themselves.

use super::limits::*;
use super::plain::{self, PlainReceiver};
use super::sealed::Sealed;
use crate::clock;
use endpoint::pulse::{Backlog, Pulse};
use endpoint::shared::Broken;
use endpoint::tuning::{Cost, Estimate, Pulses};
use endpoint::{Endpoint, SendMessage};
use snow::TransportState;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::limits::CONTROL_BYTES;
use wire::{Header, Malformed, NodeId, Time};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The peer closed it between two messages.
    #[error("the peer closed the connection")]
    Ended,
    /// The peer closed it in the middle of a message.
    #[error("the peer closed the connection in the middle of a message")]
    Truncated,
    /// The system says.
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
    /// The bytes received are no message.
    #[error("{0}")]
    Malformed(Malformed),
    /// A sealed message was changed on its way.
    #[error("an encrypted message fails its check: it was changed on its way")]
    Tampered,
    /// The message names another sender than the one the connection belongs to.
    #[error("the peer sends in the name of {0}")]
    Forged(NodeId),
    /// The shared memory holds what no honest peer writes.
    #[error("{0}")]
    Broken(#[from] Broken),
    /// The peer's process stands still.
    #[error("the peer has taken nothing for {} s: its process stands still", SILENCE_SPAN.as_secs())]
    Silent,
    /// What was sent as Ethernet frames is not acknowledged.
    #[error(
        "the peer has acknowledged no frame for {} s: its interface, a switch or its process stands still; TCP is next",
        nic::ether::limits::SILENCE_SPAN.as_secs()
    )]
    Unreached,
    /// A frame carries what belongs to no message.
    #[error("the peer sends frames that are no messages")]
    Fragment,
    /// A newer connection to the same peer takes its place.
    #[error("another connection to the same peer takes its place")]
    Replaced,
    /// This node closes it.
    #[error("this node closed the connection")]
    Local,
}

/// The traffic of a connection. Bytes are of data and trailers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages sent.
    pub sent: u64,
    /// Bytes sent behind control messages.
    pub sent_bytes: u64,
    /// Messages received.
    pub received: u64,
    /// Bytes received behind control messages.
    pub received_bytes: u64,
    /// System calls that sent something.
    pub send_calls: u64,
    /// System calls that received something.
    pub receive_calls: u64,
    /// Times a sleeping peer was woken.
    pub wakes: u64,
    /// Messages given up: the queue was full, or the connection broke.
    pub drops: u64,
}

impl Tally {
    /// One message came in.
    pub fn count_received(&mut self, header: &Header) {
        self.received += 1;
        self.received_bytes += header.following_bytes() as u64;
    }

    /// Adds what went over another connection.
    pub fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.send_calls += other.send_calls;
        self.receive_calls += other.receive_calls;
        self.wakes += other.wakes;
        self.drops += other.drops;
    }
}

/// Messages that wait for the link, and how much of the first has been taken.
#[derive(Debug)]
pub struct Outgoing {
    /// How much of a message goes out that is still filling.
    pulses: Pulses,
    cost: Estimate,
    /// Fewest bytes that can go out.
    least: usize,
    /// Bytes that are gone.
    gone: u64,
    /// The messages, oldest first.
    pub queue: VecDeque<SendMessage>,
    /// Bytes of the first, with its control message, that are gone.
    pub sent: usize,
}

impl Outgoing {
    /// Nothing waits. Of a message that is still filling at least `least` bytes go out at once.
    pub fn new(pulses: Pulses, least: usize) -> Outgoing {
        let queue = VecDeque::with_capacity(QUEUE_MESSAGES_MAX);
        Outgoing { pulses, cost: Estimate::default(), least, gone: 0, queue, sent: 0 }
    }

    /// How much of a message goes out that is still filling: what is worth a transfer, as far as that is known.
    pub fn pulse(&self) -> Pulse {
        let worthwhile = || self.cost.cost().map_or(0, Cost::worthwhile).min(PULSE_BYTES_MAX);
        match self.pulses {
            Pulses::Tuned => Pulse::Adaptive { minimum: worthwhile().max(self.least) },
            Pulses::Given(Pulse::Whole) => Pulse::Whole,
            Pulses::Given(Pulse::Fixed(size)) => Pulse::Fixed(size.max(self.least)),
            Pulses::Given(Pulse::Adaptive { minimum }) => {
                Pulse::Adaptive { minimum: minimum.max(self.least) }
            }
        }
    }

    /// When a transfer begins that is to be timed: some of them are, as `count` of them have been made. To read the
    /// clock takes as long as to copy a page.
    pub fn start_timing(&self, count: u64) -> Option<Time> {
        let timed = count < TIMED_FIRST || count.is_multiple_of(TIMED_EVERY);
        (timed && self.pulses == Pulses::Tuned).then(clock::now)
    }

    /// A transfer of `bytes` that began then has ended.
    pub fn end_timing(&mut self, since: Option<Time>, bytes: usize) {
        if let Some(since) = since {
            self.cost.add(bytes, clock::now().since(since).as_nanos() as u64);
        }
    }

    /// Adds a message. A full queue drops it: delivery is best effort.
    pub fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint, tally: &mut Tally) {
        if self.queue.len() < QUEUE_MESSAGES_MAX {
            return self.queue.push_back(message);
        }
        tally.drops += 1;
        endpoint.transmitted(message);
    }

    /// Whether something of the first message can go out now. One that is still filling lets whole ones pass until it
    /// has begun. `idle`: the link could take a part of a message.
    pub fn choose(&mut self, endpoint: &Endpoint, idle: bool) -> bool {
        let Some(first) = self.queue.front() else { return false };
        let entry = endpoint.taken(first);
        if entry.missing == 0 {
            return true; // most are
        }
        let buffered = CONTROL_BYTES + entry.data_bytes() - self.sent;
        let queued = self.queue.len() - 1;
        let backlog = Backlog { buffered, complete: false, idle, queued };
        if self.pulse().decide(backlog) > 0 {
            return true;
        }
        let whole = |message: &SendMessage| endpoint.taken(message).missing == 0;
        match self.queue.iter().position(whole) {
            Some(at) if self.sent == 0 => {
                let message = self.queue.remove(at).expect("it was found");
                self.queue.push_front(message);
                true
            }
            _ => false,
        }
    }

    /// `bytes` more are gone; messages that are gone entirely are reported to the endpoint.
    pub fn advance(&mut self, bytes: usize, endpoint: &mut Endpoint, tally: &mut Tally) {
        self.sent += bytes;
        self.gone += bytes as u64;
        while let Some(message) = self.queue.front() {
            let total = message_bytes(endpoint, message);
            if self.sent < total {
                break;
            }
            self.sent -= total;
            tally.sent += 1;
            tally.sent_bytes += (total - CONTROL_BYTES) as u64;
            let message = self.queue.pop_front().expect("it is there");
            endpoint.transmitted(message);
        }
    }

    /// Drops all that waits.
    pub fn close(&mut self, endpoint: &mut Endpoint, tally: &mut Tally) {
        tally.drops += self.queue.len() as u64;
        self.queue.drain(..).for_each(|message| endpoint.transmitted(message));
        self.sent = 0;
    }
}

/// Bytes of a message on a stream, control message included.
pub fn message_bytes(endpoint: &Endpoint, message: &SendMessage) -> usize {
    let entry = endpoint.taken(message);
    CONTROL_BYTES + entry.whole_bytes() + entry.control.trailer_bytes()
}

#[derive(Debug)]
enum Codec {
    Plain(PlainReceiver),
    Sealed(Box<Sealed>),
}

/// One connection.
#[derive(Debug)]
pub struct Stream {
    socket: OwnedFd,
    codec: Codec,
    outgoing: Outgoing,
    full: bool,
    /// Its traffic.
    pub tally: Tally,
}

impl Stream {
    /// Over a socket whose handshake is done.
    pub fn new(socket: OwnedFd, cipher: Option<TransportState>, pulses: Pulses) -> Stream {
        let (codec, least) = match cipher {
            None => (Codec::Plain(PlainReceiver::new()), PULSE_BYTES_MIN),
            Some(cipher) => (Codec::Sealed(Box::new(Sealed::new(cipher))), RECORD_BYTES),
        };
        Stream {
            socket,
            codec,
            outgoing: Outgoing::new(pulses, least),
            full: false,
            tally: Tally::default(),
        }
    }

    /// Whether the connection is encrypted.
    pub fn is_sealed(&self) -> bool {
        matches!(self.codec, Codec::Sealed(_))
    }

    /// Queues a message.
    pub fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint) {
        self.outgoing.push(message, endpoint, &mut self.tally);
    }

    /// Whether bytes wait for room in the socket.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether a message that has come waits for an entry of the receive ring.
    pub fn is_stalled(&self) -> bool {
        match &self.codec {
            Codec::Plain(plain) => plain.is_stalled(),
            Codec::Sealed(sealed) => sealed.is_stalled(),
        }
    }

    /// Whether something is still to be sent.
    pub fn is_pending(&self) -> bool {
        let sealed = matches!(&self.codec, Codec::Sealed(sealed) if sealed.is_pending());
        sealed || !self.outgoing.queue.is_empty()
    }

    /// Sends what is queued; whether something moved.
    pub fn send(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        if !self.is_pending() {
            return Ok(false);
        }
        let (calls, gone) = (self.tally.send_calls, self.outgoing.gone);
        let since = self.outgoing.start_timing(calls);
        let (socket, tally) = (self.socket.as_fd(), &mut self.tally);
        self.full = match &mut self.codec {
            Codec::Plain(_) => plain::send(socket, &mut self.outgoing, endpoint, tally)?,
            Codec::Sealed(sealed) => sealed.send(socket, &mut self.outgoing, endpoint, tally)?,
        };
        if self.tally.send_calls == calls + 1 && !self.full {
            let bytes = (self.outgoing.gone - gone) as usize;
            self.outgoing.end_timing(since, bytes);
        }
        Ok(self.tally.send_calls > calls)
    }

    /// Receives what has come, a bounded number of messages; whether something moved.
    pub fn receive(&mut self, endpoint: &mut Endpoint, peer: NodeId) -> Result<bool, Closed> {
        let (socket, tally) = (self.socket.as_fd(), &mut self.tally);
        match &mut self.codec {
            Codec::Plain(plain) => plain.receive(socket, endpoint, peer, tally),
            Codec::Sealed(sealed) => sealed.receive(socket, endpoint, peer, tally),
        }
    }

    /// Gives up what is under way in both directions.
    pub fn close(&mut self, endpoint: &mut Endpoint) {
        self.outgoing.close(endpoint, &mut self.tally);
        match &mut self.codec {
            Codec::Plain(plain) => plain.close(endpoint),
            Codec::Sealed(sealed) => sealed.close(endpoint),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
