//! Messages as Ethernet frames beside TCP connections: the port that frames go through, and the connections over it.
//!
//! Two nodes that each have a port tell each other in the handshake of their TCP connection, which also authenticates
//! both and agrees on keys. The connection over Ethernet exists as long as that one: probes find out whether frames
//! pass, and from then on every message goes as frames. When they pass no more, both connections end, the next one
//! begins over TCP, and probes go on.

use super::hello::Frames;
use endpoint::Endpoint;
use nic::ether::{Address, Config, Connection, Counters, Fault, connection_of};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use wire::{NodeId, Time};

/// Where Ethernet frames come from and go to: an AF_XDP socket, or a test's Ethernet in memory.
pub trait Port: Debug {
    /// For the operator: which interface, and how frames move.
    fn name(&self) -> String;
    /// Its Ethernet address.
    fn address(&self) -> Address;
    /// Bytes of the longest frame.
    fn frame_bytes(&self) -> usize;
    /// Whether a look without a system call shows a frame.
    fn has_arrived(&self) -> bool;
    /// Has `take` see what has come, a bounded number of frames; how many.
    fn receive(&mut self, take: &mut dyn FnMut(&mut [u8])) -> usize;
    /// Sends what `next` writes into its argument until that has no more or there is no room; how many frames.
    fn send(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<usize>) -> usize;
    /// What is readable when a frame has come.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Frames that came and found no room.
    fn drops(&self) -> u64;
}

/// The port with all connections over it.
#[derive(Debug)]
pub struct Ethernet {
    port: Box<dyn Port>,
    connections: BTreeMap<u16, Connection>,
    /// Given to the next connection.
    next: u16,
    /// Whose turn it is to send.
    turn: u16,
    /// Frames for no connection: of earlier ones, mostly.
    strays: u64,
}

/// A connection that must end, and why.
#[derive(Clone, Copy, Debug)]
pub enum Broken {
    /// The peer breaks the protocol.
    Fault(Fault),
    /// Nothing is acknowledged any more.
    Silent,
}

impl Ethernet {
    /// Without connections. `seed` keeps numbers of this process from being those of its predecessor.
    pub fn new(port: Box<dyn Port>, seed: u16) -> Ethernet {
        Ethernet { port, connections: BTreeMap::new(), next: seed, turn: 0, strays: 0 }
    }

    /// The port.
    pub fn port(&self) -> &dyn Port {
        &*self.port
    }

    /// For the hello of a connection that is being made: where this side will take its frames.
    pub fn offer(&mut self) -> Frames {
        loop {
            self.next = self.next.wrapping_add(1);
            if !self.connections.contains_key(&self.next) {
                break;
            }
        }
        let bytes = self.port.frame_bytes().min(u16::MAX.into()) as u16;
        Frames { address: self.port.address(), connection: self.next, bytes }
    }

    /// Opens a connection; it is to be probed.
    pub fn open(&mut self, config: Config, now: Time) {
        self.connections.insert(config.number, Connection::new(config, now));
    }

    /// The connection of this number.
    pub fn get(&mut self, number: u16) -> Option<&mut Connection> {
        self.connections.get_mut(&number)
    }

    /// Gives up what is under way on a connection; what it was.
    pub fn close(&mut self, number: u16, endpoint: &mut Endpoint) -> Option<Connection> {
        let mut connection = self.connections.remove(&number)?;
        connection.close(endpoint);
        Some(connection)
    }

    /// Takes what has come; whether anything has. Calls `broken` for each connection that must end.
    pub fn receive(
        &mut self,
        endpoint: &mut Endpoint,
        now: Time,
        broken: &mut impl FnMut(NodeId, Broken),
    ) -> bool {
        let (connections, strays) = (&mut self.connections, &mut self.strays);
        let count = self.port.receive(&mut |frame| {
            let number = connection_of(frame);
            match number.and_then(|number| connections.get_mut(&number)) {
                Some(connection) => {
                    if let Err(fault) = connection.handle_frame(frame, endpoint, now) {
                        broken(connection.peer(), Broken::Fault(fault));
                    }
                }
                None => *strays += 1,
            }
        });
        let silent = connections.values().filter(|connection| connection.is_silent(now));
        silent.for_each(|connection| broken(connection.peer(), Broken::Silent));
        count > 0
    }

    /// Sends what is due, each connection's frames in turn; whether anything left.
    pub fn send(&mut self, endpoint: &mut Endpoint, now: Time) -> bool {
        let (connections, turn) = (&mut self.connections, &mut self.turn);
        let count = self.port.send(&mut |into| {
            let first = *turn;
            // Those from the turn on, then the others.
            let ranges = [
                (Bound::Included(first), Bound::Unbounded),
                (Bound::Unbounded, Bound::Excluded(first)),
            ];
            for range in ranges {
                for (number, connection) in connections.range_mut(range) {
                    if let Some(bytes) = connection.poll_frame(into, endpoint, now) {
                        *turn = number.wrapping_add(1);
                        return Some(bytes);
                    }
                }
            }
            None
        });
        count > 0
    }

    /// Whether messages wait or are not acknowledged.
    pub fn is_pending(&self) -> bool {
        self.connections.values().any(Connection::is_pending)
    }

    /// When it is to be stepped at the latest.
    pub fn deadline(&self) -> Option<Time> {
        self.connections.values().filter_map(Connection::deadline).min()
    }

    /// Counts of frames of the connections that there are.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.connections.values().for_each(|connection| sum.add(&connection.counters()));
        sum
    }

    /// Frames that came for no connection, and those that the port had no room for.
    pub fn unwanted(&self) -> (u64, u64) {
        (self.strays, self.port.drops())
    }
}
