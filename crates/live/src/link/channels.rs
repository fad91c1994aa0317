//! The table of everything that has a descriptor: listeners, handshakes, connections.

use super::address::Address;
use super::dial::{Lookup, SocketAccess};
use super::greeting::Greeting;
use super::neighbour::Neighbour;
use super::shared_greeting::SharedGreeting;
use super::stream::{Closed, Stream, Tally};
use crate::device::{Poller, Ready};
use endpoint::{Endpoint, SendMessage};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use wire::{NodeId, Time};

/// Kinds of channels, with their state.
#[derive(Debug)]
pub enum Kind {
    /// Accepts connections; of a UNIX socket, from whom.
    Listener(OwnedFd, Option<SocketAccess>),
    /// A host name is being looked up; it has no descriptor.
    Lookup(Lookup, Time),
    /// A TCP connection is being made.
    Greeting(Box<Greeting>),
    /// A shared-memory connection is being made.
    SharedGreeting(Box<SharedGreeting>),
    /// A TCP connection.
    Stream(Box<Stream>),
    /// A connection within this host.
    Shared(Box<dyn Neighbour>),
}

/// One entry.
#[derive(Debug)]
pub struct Channel {
    /// Its kind and state.
    pub kind: Kind,
    /// Of a connection, the peer; of a call that is being made, the node called (0: any that answers); else 0.
    pub peer: NodeId,
    /// Whether this side called.
    pub called: bool,
    /// Of a call, whether it is for large payloads.
    pub bulk: bool,
    /// Of a call, and of a connection that was called: where.
    pub address: Option<Address>,
    /// Of one that was accepted, where it came from.
    pub from: Option<IpAddr>,
    /// The kernel said that there is something to read.
    pub readable: bool,
    /// Until when it is read without asking the kernel first.
    pub hot_until: Time,
    /// The table's: what the poller was told.
    pub(super) watches_write: bool,
    /// The table's: tells it from an earlier one at its place.
    pub(super) generation: u32,
}

/// The table.
#[derive(Debug)]
pub struct Channels {
    entries: Vec<Option<Channel>>,
    poller: Poller,
    generation: u32,
    ready: Vec<Ready>,
}

impl Channel {
    /// Not yet in the table.
    pub fn new(kind: Kind, peer: NodeId) -> Channel {
        Channel {
            kind,
            peer,
            called: false,
            bulk: false,
            address: None,
            from: None,
            readable: false,
            hot_until: Time::ZERO,
            watches_write: false,
            generation: 0,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Listener(fd, _) => Some(fd.as_fd()),
            Kind::Lookup(..) => None,
            Kind::Greeting(greeting) => Some(greeting.as_fd()),
            Kind::SharedGreeting(greeting) => Some(greeting.as_fd()),
            Kind::Stream(stream) => Some(stream.as_fd()),
            Kind::Shared(link) => Some(link.as_fd()),
        }
    }

    fn wants_write(&self) -> bool {
        match &self.kind {
            Kind::Greeting(greeting) => greeting.wants_write(),
            Kind::Stream(stream) => stream.is_full(),
            _ => false,
        }
    }

    /// Whether it is a connection.
    pub fn is_connection(&self) -> bool {
        matches!(self.kind, Kind::Stream(_) | Kind::Shared(_))
    }

    /// When a handshake that the other side began is given up.
    pub fn stranger_deadline(&self) -> Option<Time> {
        self.deadline().filter(|_| !self.called)
    }

    /// When a handshake is given up.
    pub fn deadline(&self) -> Option<Time> {
        match &self.kind {
            Kind::Lookup(_, deadline) => Some(*deadline),
            Kind::Greeting(greeting) => Some(greeting.deadline),
            Kind::SharedGreeting(greeting) => Some(greeting.deadline),
            _ => None,
        }
    }

    /// Queues a message on a connection.
    pub fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint) {
        match &mut self.kind {
            Kind::Stream(stream) => stream.push(message, endpoint),
            Kind::Shared(link) => link.push(message, endpoint),
            _ => endpoint.transmitted(message),
        }
    }

    /// Moves what can be sent.
    pub fn send(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        match &mut self.kind {
            Kind::Stream(stream) => stream.send(endpoint),
            Kind::Shared(link) => link.send(endpoint),
            _ => Ok(false),
        }
    }

    /// Moves what has come.
    pub fn receive(&mut self, endpoint: &mut Endpoint, now: Time) -> Result<bool, Closed> {
        let readable = std::mem::take(&mut self.readable);
        match &mut self.kind {
            Kind::Stream(stream) if readable || now < self.hot_until || stream.is_stalled() => {
                stream.receive(endpoint, self.peer)
            }
            Kind::Shared(link) => {
                let moved = link.receive(endpoint, self.peer)?;
                match readable {
                    // After what the peer sent before it died.
                    true if moved => self.readable = true,
                    true => link.bell().drain()?,
                    false => {}
                }
                Ok(moved)
            }
            _ => Ok(false),
        }
    }

    /// Whether the socket is read at `now` without asking the kernel first.
    pub fn is_asked(&self, now: Time) -> bool {
        matches!(&self.kind, Kind::Stream(stream) if now < self.hot_until || stream.is_stalled())
    }

    /// Whether shared memory shows nothing new. Of a socket only the kernel knows.
    pub fn is_quiet(&self) -> bool {
        !matches!(&self.kind, Kind::Shared(link) if !link.is_quiet())
    }

    /// Gives up what is under way; what went over the connection.
    pub fn close(&mut self, endpoint: &mut Endpoint) -> Tally {
        match &mut self.kind {
            Kind::Stream(stream) => {
                stream.close(endpoint);
                stream.tally
            }
            Kind::Shared(link) => {
                link.close(endpoint);
                link.tally()
            }
            _ => Tally::default(),
        }
    }

    /// The traffic of the connection so far.
    pub fn tally(&self) -> Tally {
        match &self.kind {
            Kind::Stream(stream) => stream.tally,
            Kind::Shared(link) => link.tally(),
            _ => Tally::default(),
        }
    }

    /// The name of the transport.
    pub fn transport(&self) -> &'static str {
        match &self.kind {
            Kind::Stream(stream) if stream.is_sealed() => "tcp+noise",
            Kind::Stream(_) => "tcp",
            Kind::Shared(link) => link.transport(),
            _ => "",
        }
    }
}

impl Channels {
    /// An empty table with an epoll set of its own.
    pub fn new() -> io::Result<Channels> {
        Ok(Channels {
            entries: Vec::new(),
            poller: Poller::new()?,
            generation: 0,
            ready: Vec::new(),
        })
    }

    /// The set in which all descriptors are.
    pub fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Adds a channel and watches it; its place.
    pub fn add(&mut self, mut channel: Channel) -> io::Result<usize> {
        let free = self.entries.iter().position(Option::is_none);
        let at = free.unwrap_or(self.entries.len());
        if free.is_none() {
            self.entries.push(None);
        }
        self.generation = self.generation.wrapping_add(1);
        channel.generation = self.generation;
        channel.watches_write = channel.wants_write();
        // Input that came before it was watched shows at once, and the channel that it became may hold bytes already.
        channel.readable = true;
        let name = name(at, channel.generation);
        match (channel.fd(), &channel.kind) {
            (Some(fd), Kind::Shared(_)) => self.poller.add_edge(fd, name)?,
            (Some(fd), _) => self.poller.add_named(fd, true, channel.watches_write, name)?,
            (None, _) => {}
        }
        self.entries[at] = Some(channel);
        Ok(at)
    }

    /// Takes a channel out. Its descriptor leaves the set.
    pub fn take(&mut self, at: usize) -> Option<Channel> {
        let channel = self.entries.get_mut(at)?.take()?;
        if let Some(fd) = channel.fd() {
            // It cannot fail for a descriptor that was added, and closing removes it as well.
            let _ = self.poller.remove(fd);
        }
        Some(channel)
    }

    /// Takes a channel out for a moment: it stays in the set and must be put back, forgotten or dropped before another
    /// is added.
    pub fn lift(&mut self, at: usize) -> Option<Channel> {
        self.entries.get_mut(at)?.take()
    }

    /// Ends [`lift`](Channels::lift).
    pub fn put_back(&mut self, at: usize, channel: Channel) {
        self.entries[at] = Some(channel);
    }

    /// Ends [`lift`](Channels::lift): takes the descriptor out of the set, because it gets another place.
    pub fn forget(&mut self, channel: &Channel) {
        if let Some(fd) = channel.fd() {
            let _ = self.poller.remove(fd); // as in `take`
        }
    }

    /// The channel at this place.
    pub fn get(&mut self, at: usize) -> Option<&mut Channel> {
        self.entries.get_mut(at)?.as_mut()
    }

    /// As [`get`](Channels::get), to look at.
    pub fn at(&self, at: usize) -> Option<&Channel> {
        self.entries.get(at)?.as_ref()
    }

    /// Places that may hold a channel are below this.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All channels.
    pub fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.entries.iter().flatten()
    }

    /// Watches for room in the socket if and only if that is what it waits for.
    pub fn watch(&mut self, at: usize) -> io::Result<()> {
        let Some(channel) = self.entries[at].as_mut() else { return Ok(()) };
        let wanted = channel.wants_write();
        if wanted != channel.watches_write
            && let Some(fd) = channel.fd()
        {
            self.poller.modify_named(fd, true, wanted, name(at, channel.generation))?;
            channel.watches_write = wanted;
        }
        Ok(())
    }

    /// Asks the kernel which channels have something, and marks them.
    pub fn scan(&mut self) -> io::Result<()> {
        self.wait(Some(Duration::ZERO)).map(drop)
    }

    /// As [`scan`](Channels::scan), after waiting until there is something, for `span` at most (`None`: for ever);
    /// whether there was. The kernel reports an event once, so no other waiter may be in this set.
    pub fn wait(&mut self, span: Option<Duration>) -> io::Result<bool> {
        let mut ready = std::mem::take(&mut self.ready);
        self.poller.wait(span, &mut ready)?;
        for event in &ready {
            let (at, generation) = (event.name as u32 as usize, (event.name >> 32) as u32);
            let found = self.entries.get_mut(at).and_then(Option::as_mut);
            let Some(channel) = found.filter(|c| c.generation == generation) else { continue };
            channel.readable |= match &mut channel.kind {
                Kind::Shared(link) => event.closed || link.bell().count(),
                _ => true,
            };
        }
        let any = !ready.is_empty();
        self.ready = ready;
        Ok(any)
    }
}

fn name(at: usize, generation: u32) -> u64 {
    u64::from(generation) << 32 | at as u64
}
