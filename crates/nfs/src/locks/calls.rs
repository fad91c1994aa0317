//! Calls to clients: a lock that was waited for is had, this server has restarted. Over UDP, where the client's port
//! mapper says, again and again until they are answered.

use crate::limits::{CALL_PAUSE, CALL_PAUSE_MAX, CALLS_BEFORE_ASKING};
use crate::portmap::{self, Binding, Mapping, Text, UDP, network, of_universal, rpcbind, version2};
use crate::rpc::{Acceptance, Call, Credential, Reply};
use crate::xdr::{decoded, encoded};
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::Time;

/// Two ends of a network: the client's address as it came, and ours that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub client: IpAddr,
    pub own: IpAddr,
}

/// The procedure that is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
}

/// A datagram to a client, from our port of locks.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The client's port.
    pub to: SocketAddr,
    /// The address of ours that the client knows.
    pub own: IpAddr,
    /// The call.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
struct Outgoing<P> {
    ends: Ends,
    what: What,
    arguments: Vec<u8>,
    purpose: P,
    /// The program's port; asked for first.
    port: Option<u16>,
    xid: u32,
    again: Time,
    pause: Duration,
    /// Since the port was asked for.
    tries: u32,
    end: Time,
    awaits_reply: bool,
}

/// All calls that are not answered.
#[derive(Debug)]
pub(super) struct Calls<P> {
    all: BTreeMap<u64, Outgoing<P>>,
    next: u64,
}

impl<P> Default for Calls<P> {
    fn default() -> Calls<P> {
        Calls { all: BTreeMap::new(), next: 1 }
    }
}

impl<P: Copy> Calls<P> {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Begins a call that is repeated until it is answered or `end` has come. `seed` makes its numbers ones that cannot
    /// be guessed: an answer is believed by its number and the address that it comes from.
    pub fn begin(
        &mut self,
        ends: Ends,
        (what, arguments): (What, Vec<u8>),
        purpose: P,
        (seed, now, end): (u32, Time, Time),
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let again = now;
        let outgoing = Outgoing {
            ends,
            what,
            arguments,
            purpose,
            port: None,
            xid: seed,
            again,
            pause: CALL_PAUSE,
            tries: 0,
            end,
            awaits_reply: true,
        };
        self.all.insert(number, outgoing);
        number
    }

    /// The same, once, and no answer is waited for.
    pub fn tell(
        &mut self,
        ends: Ends,
        call: (What, Vec<u8>),
        purpose: P,
        times: (u32, Time, Time),
    ) {
        let number = self.begin(ends, call, purpose, times);
        self.all.get_mut(&number).expect("it was begun").awaits_reply = false;
    }

    /// Ends a call whose answer matters no more.
    pub fn forget(&mut self, number: u64) {
        self.all.remove(&number);
    }

    /// When the next is due.
    pub fn deadline(&self) -> Option<Time> {
        self.all.values().map(|call| call.again.min(call.end)).min()
    }

    /// The next call whose time is over.
    pub fn poll_late(&mut self, now: Time) -> Option<P> {
        let (number, _) = self.all.iter().find(|(_, call)| call.end <= now)?;
        let number = *number;
        self.all.remove(&number).map(|call| call.purpose)
    }

    /// The next datagram that is due.
    pub fn poll(&mut self, now: Time) -> Option<Message> {
        let (number, call) = self.all.iter_mut().find(|(_, call)| call.again <= now)?;
        let message = call.message();
        let (number, is_told) = (*number, !call.awaits_reply && call.port.is_some());
        call.rest(now);
        if is_told {
            self.all.remove(&number);
        }
        Some(message)
    }

    /// A reply came. The call that it ends, and its results.
    pub fn replied(&mut self, from: SocketAddr, record: &[u8], now: Time) -> Option<(P, Vec<u8>)> {
        let (xid, reply, results) = Reply::parse(record).ok()?;
        let is_it = |call: &Outgoing<P>| {
            call.xid == xid && call.ends.client.to_canonical() == from.ip().to_canonical()
        };
        let (number, call) = self.all.iter_mut().find(|(_, call)| is_it(call))?;
        if reply != Reply::Accepted(Acceptance::Success) {
            // another program has the port now, or none
            call.port = None;
            return None;
        }
        if call.port.is_some() {
            let number = *number;
            let ended = self.all.remove(&number).expect("it was found");
            return Some((ended.purpose, results.to_vec()));
        }
        call.found(results, now);
        None
    }
}

impl<P> Outgoing<P> {
    fn is_of_version_4(&self) -> bool {
        self.ends.client.to_canonical().is_ipv4()
    }

    /// The call, or the question where it goes.
    fn message(&self) -> Message {
        let (port, bytes) = match self.port {
            Some(port) => {
                let What { program, version, procedure } = self.what;
                (port, self.record((program, version, procedure), &self.arguments))
            }
            None => (portmap::PORT, self.question()),
        };
        Message { to: SocketAddr::new(self.ends.client, port), own: self.ends.own, bytes }
    }

    fn record(&self, (program, version, procedure): (u32, u32, u32), arguments: &[u8]) -> Vec<u8> {
        let (xid, credential) = (self.xid, Credential::None);
        let mut bytes = Vec::with_capacity(64 + arguments.len());
        Call { xid, program, version, procedure, credential, arguments }.put(&mut bytes);
        bytes
    }

    fn question(&self) -> Vec<u8> {
        let What { program, version, .. } = self.what;
        if self.is_of_version_4() {
            let asked = Mapping { program, version, protocol: UDP, port: 0 };
            let of = (portmap::PROGRAM, portmap::PORTMAP, version2::GETPORT);
            return self.record(of, &encoded(&asked));
        }
        let network = Text(network(self.ends.client, UDP).as_bytes());
        let (address, owner) = (Text(b""), Text(b""));
        let asked = Binding { program, version, network, address, owner };
        let of = (portmap::PROGRAM, portmap::RPCBIND[1], rpcbind::GETADDR);
        self.record(of, &encoded(&asked))
    }

    fn found(&mut self, results: &[u8], now: Time) {
        let port = match self.is_of_version_4() {
            true => decoded::<u32>(results).ok().and_then(|port| u16::try_from(port).ok()),
            false => {
                let address = decoded::<Text<'_>>(results).ok();
                address.and_then(|text| of_universal(text.0)).map(|(_, port)| port)
            }
        };
        self.port = port.filter(|port| *port != 0);
        if self.port.is_some() {
            // a late copy of the answer is none to the call itself
            self.xid = self.xid.wrapping_add(1);
            (self.again, self.pause, self.tries) = (now, CALL_PAUSE, 0);
        }
    }

    /// It was sent: the next time is later, and after some the program may be at another port.
    fn rest(&mut self, now: Time) {
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(CALL_PAUSE_MAX);
        self.tries += 1;
        if self.tries >= CALLS_BEFORE_ASKING && self.awaits_reply {
            (self.port, self.tries) = (None, 0);
        }
    }
}
