//! Links: what carries a node's messages to other nodes.
//!
//! ```text
//!   node's send ring -> route by destination -> connection of that peer -> socket or shared memory
//!   socket or shared memory -> place -> straight into the token's frames -> deliver -> node's receive ring
//! ```
//!
//! A connection is made when a message for its peer is there, and made again when it broke. Delivery is best effort:
//! what a broken connection held is dropped and counted, calls above send it again.
//!
//! A TCP peer that dies is noticed by its connection: a reset, or the kernel's keepalive and user timeout
//! (`dial::tune`). `close` then counts what is lost, and a `LinkEvent::Down` tells NetRPC of the disconnect, which
//! retransmits requests.
//!
//! To add a link: a form of [`Address`], a handshake, and a `channels::Kind` for its connections; one between processes
//! of a machine is a `neighbour::Neighbour`.
//!
//! It is not a router: a message for another node than this is refused. Invariants: every message taken off the send
//! ring is reported transmitted exactly once; a message is delivered only in the name of the peer that the connection
//! belongs to; after warm-up no message allocates.

pub mod adapter;
pub mod address;
mod bell;
mod channels;
mod device;
mod dial;
mod directory;
pub mod ether;
mod frame_keys;
mod frames;
pub mod greeting;
pub mod hello;
mod landing;
pub mod limits;
mod neighbour;
mod noise;
mod peer_table;
mod peers;
mod plain;
mod refusals;
mod sealed;
mod shared_greeting;
mod shared_words;
mod shm;
mod stream;

pub use adapter::{AdapterShape, ShapeError};
pub use address::Address;
pub use dial::SocketAccess;
pub use directory::{Directory, PeerStatus};
pub use frames::EthernetStatus;
pub use noise::Keys;
pub use shared_greeting::SharedPool;
pub use stream::{Closed, Tally};

use crate::clock;
use crate::device::Poller;
use channels::{Channel, Channels, Kind};
use endpoint::tuning::Pulses;
use endpoint::{Endpoint, SendMessage};
use ether::Ethernet;
use greeting::{Greeting, GreetingError};
use hello::{Hello, Refusal};
use limits::*;
use peer_table::Peers;
use refusals::Refusals;
use shared_greeting::SharedGreeting;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire::{NodeId, Time};

/// Whether TCP connections are encrypted. Both sides must say the same.
#[derive(Clone, Debug)]
pub enum Security {
    /// Both prove that they know the cluster key; everything is encrypted.
    Encrypted(Keys),
    /// Any process may connect and listen. Only for networks without other users.
    Insecure,
}

/// This node, as others know it.
#[derive(Debug)]
pub struct LinkConfig {
    /// Its id; 0 when it is to be given one by the first node it connects to.
    pub node: NodeId,
    /// Different in each incarnation of the node.
    pub incarnation: u64,
    /// The cluster; nodes of others are refused.
    pub cluster: u64,
    /// Of TCP connections.
    pub security: Security,
}

/// A change that a node must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// A connection to the peer is there (again).
    Up(NodeId),
    /// The connection broke, or could not be made.
    Down(NodeId),
}

/// Receives one line for the operator.
pub type Log = Box<dyn FnMut(&str)>;

/// All links of a node.
pub struct Links {
    config: LinkConfig,
    pool: Option<Rc<SharedPool>>,
    adapter: Rc<AdapterShape>,
    pulses: Pulses,
    directory: Directory,
    channels: Channels,
    ethernet: Option<Ethernet>,
    peers: Peers,
    events: VecDeque<LinkEvent>,
    log: Log,
    /// Lines about those who called, and about calls.
    refusals: Refusals,
    failures: Refusals,
    scanned_at: Time,
    published_at: Time,
    must_scan: bool,
    /// The wait that has just ended told that there is nothing.
    told: bool,
    /// Whether the last step put the scan off.
    put_off: bool,
    /// Whether a socket is read in each step, because something may have come.
    must_ask: bool,
    next_provisional: u16,
    next_session: u64,
    processor: u32,
}

impl Links {
    /// Links without listeners and peers. `pool` is the memfd under the node's frames; without it there is no shared
    /// memory. `log` gets a line when a connection is made, refused or lost.
    pub fn new(config: LinkConfig, pool: Option<SharedPool>, log: Log) -> io::Result<Links> {
        Ok(Links {
            // Sessions pair connections of one process; the incarnation makes those of its successors differ.
            next_session: config.incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            config,
            pool: pool.map(Rc::new),
            adapter: Rc::default(),
            pulses: Pulses::default(),
            directory: Directory::default(),
            channels: Channels::new()?,
            ethernet: None,
            peers: Peers::default(),
            events: VecDeque::new(),
            log,
            refusals: Refusals::default(),
            failures: Refusals::default(),
            scanned_at: Time::ZERO,
            published_at: Time::ZERO,
            must_scan: true,
            told: false,
            put_off: false,
            must_ask: false,
            next_provisional: PROVISIONAL_FIRST,
            processor: u32::MAX,
        })
    }

    /// Where peers are, and how it goes with them.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// How this node's adapters are made from now on, one for each connection over adapters.
    pub fn set_adapter(&mut self, shape: AdapterShape) -> Result<(), ShapeError> {
        shape.check()?;
        self.adapter = Rc::new(shape);
        Ok(())
    }

    /// How payloads move that are not all there yet, over connections that are made from now on; over adapters, all.
    pub fn set_pulses(&mut self, pulses: Pulses) -> Result<(), ShapeError> {
        self.pulses = pulses;
        self.set_adapter(AdapterShape {
            policy: adapter::policy(pulses),
            ..(*self.adapter).clone()
        })
    }

    /// This node's id: the configured or the given one.
    pub fn node(&self) -> NodeId {
        self.config.node
    }

    /// Accepts connections at `address`, over a UNIX socket of this process's user and root only; the address it really
    /// got (port 0 becomes a free one).
    pub fn listen(&mut self, address: &Address) -> io::Result<Address> {
        self.listen_for(address, SocketAccess::default())
    }

    /// As [`listen`](Links::listen), over a UNIX socket of these users.
    pub fn listen_for(&mut self, address: &Address, access: SocketAccess) -> io::Result<Address> {
        let unix = address.is_local().then_some(access);
        if unix.is_some() && self.pool.is_none() {
            return Err(io::Error::other("shared memory needs a pool in a memfd"));
        }
        let (socket, address) = dial::listen(address, access)?;
        self.channels.add(Channel::new(Kind::Listener(socket, unix), NodeId(0)))?;
        Ok(address)
    }

    /// The set that is readable when there is something to do.
    pub fn poller(&self) -> &Poller {
        self.channels.poller()
    }

    /// The next event not yet told.
    pub fn take_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Moves what can be moved without waiting, a bounded number of messages; whether anything moved.
    pub fn step(&mut self, endpoint: &mut Endpoint, now: Time) -> io::Result<bool> {
        let span = if self.is_alone() { SCAN_SPAN_ALONE } else { SCAN_SPAN };
        let due = self.must_scan || now >= self.scanned_at + span;
        // Messages that came through shared memory go first, but not twice in a row.
        let put_off = due && !self.put_off && self.has_arrived();
        self.put_off = put_off;
        if due && !put_off {
            self.must_scan = false;
            self.scanned_at = now;
            self.channels.scan()?;
            if now >= self.published_at + PUBLISH_SPAN {
                self.published_at = now;
                self.publish_tallies();
            }
            self.look_at_frames();
            self.say_processor();
            self.end_silent(endpoint, now);
            self.make_connections(endpoint, now)?;
        }
        let mut moved = self.route(endpoint, now);
        moved |= self.step_frames(endpoint, now);
        for at in 0..self.channels.len() {
            moved |= self.step_channel(at, endpoint, now)?;
        }
        self.must_ask = self.channels.iter().any(|channel| channel.is_asked(now));
        Ok(moved)
    }

    /// Sends what was posted since the last [`step`](Links::step), as far as that goes now.
    pub fn send_posted(&mut self, endpoint: &mut Endpoint, now: Time) -> io::Result<()> {
        if !self.route(endpoint, now) {
            return Ok(());
        }
        self.send_frames(endpoint, now);
        for at in 0..self.channels.len() {
            let Some(channel) = self.channels.get(at).filter(|c| c.is_connection()) else {
                continue;
            };
            match channel.send(endpoint) {
                Ok(sent) if sent => self.channels.watch(at)?,
                Ok(_) => {}
                Err(reason) => self.close(at, &reason, endpoint),
            }
        }
        Ok(())
    }

    /// Whether it has no connection, and none is being made.
    fn is_alone(&self) -> bool {
        self.channels.iter().all(|channel| matches!(channel.kind, Kind::Listener(..)))
    }

    fn has_arrived(&self) -> bool {
        self.channels.iter().any(|channel| !channel.is_quiet()) || self.has_frames()
    }

    fn has_frames(&self) -> bool {
        self.ethernet.as_ref().is_some_and(|ethernet| ethernet.port().has_arrived())
    }

    /// Whether shared memory shows that nothing has come, and no socket is to be read without asking first.
    pub fn is_quiet(&self) -> bool {
        !self.must_scan && !self.must_ask && !self.has_arrived()
    }

    /// Sends what waits on the channel and takes what has come.
    fn step_channel(&mut self, at: usize, endpoint: &mut Endpoint, now: Time) -> io::Result<bool> {
        let Some(channel) = self.channels.get(at).filter(|c| c.is_connection()) else {
            return Ok(false);
        };
        let sent = channel.send(endpoint);
        let moved = sent.and_then(|sent| Ok(channel.receive(endpoint, now)? | sent));
        match moved {
            Ok(moved) => {
                if moved {
                    channel.hot_until = now + HOT_SPAN;
                }
                self.channels.watch(at)?;
                Ok(moved)
            }
            Err(reason) => {
                self.close(at, &reason, endpoint);
                Ok(true)
            }
        }
    }

    /// Takes posted messages off the send ring and queues each on its peer's connection.
    fn route(&mut self, endpoint: &mut Endpoint, now: Time) -> bool {
        let mut moved = endpoint.take_filled();
        for _ in 0..2 * TURN_MESSAGES_MAX {
            let Some(message) = endpoint.next_send() else { break };
            moved = true;
            let entry = endpoint.taken(&message);
            let bytes = entry.whole_bytes();
            let peer = self.peers.get(entry.control.destination());
            let pushed = Self::push_frames(&mut self.ethernet, peer.frames, message, endpoint);
            let Some(message) = pushed else { continue };
            let bulk = peer.bulk.filter(|_| bytes > BULK_BYTES_MIN);
            match bulk.or(peer.main).and_then(|at| self.channels.get(at)) {
                Some(channel) => {
                    channel.push(message, endpoint);
                    channel.hot_until = now + HOT_SPAN;
                }
                None => {
                    self.must_scan = true; // makes the connection in the next turn
                    peer.waiting.push(message, endpoint, &mut peer.tally);
                }
            }
        }
        moved
    }

    /// Gives shared-memory peers up that stand still; of TCP peers the kernel tells.
    fn end_silent(&mut self, endpoint: &mut Endpoint, now: Time) {
        for at in 0..self.channels.len() {
            if let Some(Channel { kind: Kind::Shared(link), .. }) = self.channels.get(at)
                && link.is_silent(endpoint, now)
            {
                self.close(at, &Closed::Silent, endpoint);
            }
        }
    }

    /// Hints to shared-memory peers where this node runs, when that has changed.
    fn say_processor(&mut self) {
        let processor = rustix::thread::sched_getcpu() as u32;
        if processor != self.processor {
            self.processor = processor;
            for at in 0..self.channels.len() {
                if let Some(Channel { kind: Kind::Shared(link), .. }) = self.channels.get(at) {
                    link.set_processor(processor);
                }
            }
        }
    }

    /// Whether an awake peer runs on this node's processor: then spinning only keeps it from answering.
    pub fn shares_processor(&self) -> bool {
        self.channels.iter().any(
            |channel| matches!(&channel.kind, Kind::Shared(link) if link.peer_processor() == Some(self.processor)),
        )
    }

    /// Announces to shared-memory peers that this node goes to sleep; true when something is there: do not sleep.
    pub fn before_sleep(&mut self) -> bool {
        let mut busy = self.must_scan || self.has_frames();
        for at in 0..self.channels.len() {
            if let Some(Channel { kind: Kind::Shared(link), .. }) = self.channels.get(at) {
                busy |= link.before_sleep();
            }
        }
        busy
    }

    /// Waits until something has come, for `span` at most (`None`: for ever), between
    /// [`before_sleep`](Links::before_sleep) and [`after_sleep`](Links::after_sleep), for who has nothing else to wait
    /// for; whether something has.
    pub fn wait(&mut self, span: Option<Duration>) -> io::Result<bool> {
        self.channels.wait(span)
    }

    /// The node is awake again, by something else: the set has nothing.
    pub fn note_nothing(&mut self) {
        self.told = true;
    }

    /// The node is awake again.
    pub fn after_sleep(&mut self) {
        self.must_scan |= !std::mem::take(&mut self.told);
        for at in 0..self.channels.len() {
            if let Some(Channel { kind: Kind::Shared(link), .. }) = self.channels.get(at) {
                link.after_sleep();
            }
        }
    }

    /// When to be called again at the latest.
    pub fn deadline(&self) -> Option<Time> {
        let reclaim = |channel: &Channel| match &channel.kind {
            Kind::Shared(link) if link.is_under_way() => Some(self.scanned_at + RECLAIM_SPAN),
            Kind::Lookup(..) => Some(self.scanned_at + BACKOFF_MIN),
            _ => channel.deadline(),
        };
        let channels = self.channels.iter().filter_map(reclaim).min();
        let frames = self.ethernet.as_ref().and_then(Ethernet::deadline);
        let (refusals, failures) = (self.refusals.deadline(), self.failures.deadline());
        let others = [self.peers.next_attempt(), refusals, failures, frames];
        channels.into_iter().chain(others.into_iter().flatten()).min()
    }

    /// Whether all that was posted is with the kernel or the peers.
    pub fn is_drained(&self) -> bool {
        let pending = |channel: &Channel| match &channel.kind {
            Kind::Stream(stream) => stream.is_pending(),
            Kind::Shared(link) => link.is_under_way(),
            _ => false,
        };
        let frames = self.ethernet.as_ref().is_some_and(Ethernet::is_pending);
        !frames && !self.channels.iter().any(pending)
    }

    /// Closes every connection and gives up what was under way.
    pub fn close_all(&mut self, endpoint: &mut Endpoint) {
        for at in 0..self.channels.len() {
            if self.channels.get(at).is_some_and(|channel| channel.is_connection()) {
                self.close(at, &Closed::Local, endpoint);
            }
        }
        self.peers.drop_waiting(endpoint);
    }

    /// Connects to the node that listens at `address` and waits until that is done: before there is a node. A node
    /// without an id gets one. Returns this node's id and the other's.
    pub fn bootstrap(
        &mut self,
        endpoint: &mut Endpoint,
        address: &Address,
        span: Duration,
    ) -> io::Result<(NodeId, NodeId)> {
        let late = clock::now() + span;
        self.call(NodeId(0), address, false, clock::now())
            .map_err(|e| io::Error::other(e.to_string()))?;
        let mut ready = Vec::new();
        loop {
            self.must_scan = true;
            self.step(endpoint, clock::now())?;
            if let Some(LinkEvent::Up(peer)) = self.events.front() {
                self.directory.set(*peer, vec![address.clone()]);
                return Ok((self.config.node, *peer));
            }
            let failed = self.directory.status().remove(&NodeId(0)).map(|s| s.last_error);
            if let Some(error) = failed.filter(|e| !e.is_empty()) {
                return Err(io::Error::other(format!("{address}: {error}")));
            }
            if clock::now() >= late {
                return Err(io::Error::other(format!("{address}: {}", GreetingError::Late)));
            }
            self.channels.poller().wait(Some(BACKOFF_MIN), &mut ready)?;
        }
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Links")
            .field("config", &self.config)
            .field("peers", &self.peers)
            .finish_non_exhaustive()
    }
}
