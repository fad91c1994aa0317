//! Services over sockets, as devices on a node's own thread: keys and values for clients of memcached and Redis
//! ([`Sockets`]), files for clients of NFS ([`nfs`]), and calls to foreign NFS servers ([`foreign`]).
//!
//! Of keys and values:
//!
//! A command costs one read and one gathered write, whose pieces are the frames of the value, and a look at the host's
//! poller, which touches no socket as long as nothing has come: a read that finds nothing takes the socket's lock from
//! the sender's packet. Only a connection whose next commands tend to be there before it was answered is read again
//! without asking. The event that ended a sleep of the host is not asked for again.
//! All connections share one input buffer and one output, so an idle one costs its socket and a few hundred bytes.
#![forbid(unsafe_code)]

mod accept;
mod connection;
mod detour;
pub mod foreign;
mod limits;
mod listener;
pub mod nfs;

pub use accept::Address;
use connection::{Connection, Excess, Served, Workplace};
use kv::service::Courier;
use kv::{Items, Moment};
use limits::*;
pub use listener::ListenError;
use listener::Listeners;
use live::clock;
use live::device::{Poller, Ready};
use live::host::Device;
use node::Node;
use rustix::net::sockopt::socket_incoming_cpu;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use wire::{Time, Wall};

/// The device.
#[derive(Debug)]
pub struct Sockets {
    /// The host's own, as soon as the device is in it.
    poller: Poller,
    ready: Vec<Ready>,
    /// The ready descriptors were told when the host woke.
    told: bool,
    listeners: Listeners,
    /// The address of each of them, with its protocol and tenant.
    places: Vec<Address>,
    connections: Vec<Option<Connection>>,
    spare: Vec<u32>,
    most: usize,
    workplace: Workplace,
    /// The connection that was alone ready the last time.
    hot: Option<u32>,
    /// It was served a moment ago.
    fresh: bool,
    /// When it has been answered, its next commands are there.
    streams: bool,
    /// How often it was looked at since others were.
    hot_looks: u32,
    /// Whether its client runs on this processor, and how often that was asked since it was found out.
    shares: Cell<(bool, u32)>,
    /// Connections with commands that wait for their turn, not for their socket.
    again: Vec<u32>,
    /// Connections whose output waits for the client.
    stalled: usize,
    look_at: Time,
    stall_span: Duration,
    sweep_at: Time,
    /// The task that takes values away and brings them.
    courier: Option<Courier>,
    /// Connections whose replies have come.
    awaited: Vec<u32>,
}

impl Sockets {
    /// Listens at the addresses, for at most `most` connections at a time.
    pub fn listen(
        addresses: &[Address],
        mut items: Items,
        most: usize,
    ) -> Result<Sockets, ListenError> {
        let poller = Poller::new().map_err(ListenError::System)?;
        let listeners = Listeners::bind(addresses.iter().map(|address| address.at))?;
        let places = addresses.iter().zip(listeners.addresses());
        let places = places.map(|(address, at)| Address { at, ..*address }).collect();
        let now = clock::now();
        let wall = i128::from(now.0) + clock::WallOffset::read().ns();
        let moment = Moment::new(now, Wall::of_nanos(wall));
        items.begin_cas(moment);
        let facts = items.facts_mut();
        facts.process = std::process::id();
        facts.started_ms = moment.now_ms;
        facts.connections_max = most as u64;
        facts.usage = Some(live::usage::usage);
        let workplace = Workplace::new(items);
        Ok(Sockets {
            poller,
            ready: Vec::new(),
            told: false,
            listeners,
            places,
            connections: Vec::new(),
            spare: Vec::new(),
            most,
            workplace,
            hot: None,
            fresh: false,
            streams: false,
            hot_looks: 0,
            shares: Cell::default(),
            again: Vec::new(),
            stalled: 0,
            look_at: Time::ZERO,
            stall_span: STALL_SPAN,
            sweep_at: Time::ZERO,
            courier: None,
            awaited: Vec::new(),
        })
    }

    /// Where it listens, in the order of the addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.addresses()
    }

    /// Bytes of half commands, beside long values, that all clients together may have sent; who has most is closed.
    pub fn set_half_max(&mut self, bytes: usize) {
        self.workplace.kept_bytes_max = bytes;
    }

    /// Text of answers, in bytes, that all clients together may leave unread; who leaves most is closed.
    pub fn set_unread_max(&mut self, bytes: usize) {
        self.workplace.waiting_bytes_max = bytes;
    }

    /// How long a client may read nothing while output waits for it, before it is closed.
    pub fn set_stall_span(&mut self, span: Duration) {
        self.stall_span = span;
    }

    /// The items.
    pub fn items(&self) -> Rc<RefCell<Items>> {
        self.workplace.items.clone()
    }

    /// From now on `courier` does what the [`items`](Sockets::items) ask of the rest of the node.
    pub fn carry(&mut self, courier: Courier) {
        self.courier = Some(courier);
    }

    /// The poller's name of a connection.
    fn name(&self, at: u32) -> u64 {
        self.listeners.len() as u64 + u64::from(at)
    }

    /// Which of the host's descriptors is ready: a listener, a connection, or another device's.
    fn whose(&self, ready: &Ready) -> Option<Whose> {
        let listeners = self.listeners.len() as u64;
        match ready.name {
            name if name < listeners => Some(Whose::Listener(name as usize)),
            name => u32::try_from(name - listeners).ok().map(Whose::Connection),
        }
    }

    /// Serves what the poller says; whether anything moved.
    fn serve_ready(&mut self, moment: Moment) -> io::Result<bool> {
        if !std::mem::take(&mut self.told) {
            self.poller.wait(Some(Duration::ZERO), &mut self.ready)?;
        }
        let ready = std::mem::take(&mut self.ready);
        let (mut moved, mut alone, mut count) = (false, None, 0);
        for ready in &ready {
            let Some(whose) = self.whose(ready) else { continue };
            count += 1;
            (alone, moved) = match whose {
                Whose::Listener(at) => (None, moved | self.accept(at)?),
                Whose::Connection(at) if self.is_dead(at, ready) => {
                    self.abandon(at);
                    (None, true)
                }
                Whose::Connection(at) => (Some(at), moved | self.serve(at, moment)?),
            };
        }
        if count > 0 {
            let is_open = |at: &u32| matches!(self.connections.get(*at as usize), Some(Some(_)));
            self.hot = alone.filter(|at| count == 1 && is_open(at));
        }
        self.hot_looks = 0;
        self.ready = ready;
        Ok(moved)
    }

    /// Whether the client of a connection that waits for an answer, and is watched for nothing, is gone: the poller
    /// would say so again and again.
    fn is_dead(&self, at: u32, ready: &Ready) -> bool {
        let connection = self.connections.get(at as usize).and_then(Option::as_ref);
        let failed = ready.closed && ready.readable && ready.writable;
        failed && connection.is_some_and(Connection::is_blocked)
    }

    /// Closes a connection that is not being served.
    fn abandon(&mut self, at: u32) {
        let stalls = self.connections[at as usize].as_ref().is_some_and(Connection::is_stalled);
        self.stalled -= usize::from(stalls);
        self.close(at);
    }

    /// Serves one connection; whether anything moved.
    fn serve(&mut self, at: u32, moment: Moment) -> io::Result<bool> {
        let name = self.name(at);
        let Some(Some(connection)) = self.connections.get_mut(at as usize) else {
            return Ok(false);
        };
        let (was_stalled, was_blocked) = (connection.is_stalled(), connection.is_blocked());
        let served = connection.serve(&mut self.workplace, moment);
        let (is_stalled, is_blocked) = (connection.is_stalled(), connection.is_blocked());
        match served {
            Served::Nothing if was_blocked == is_blocked => return Ok(false),
            Served::Nothing => {}
            Served::Again => self.again.push(at),
            Served::Done => {}
            Served::Closed => {
                self.stalled -= usize::from(was_stalled);
                self.close(at);
                return Ok(true);
            }
        }
        if (was_stalled, was_blocked) != (is_stalled, is_blocked) {
            let writes = is_stalled && !is_blocked;
            self.poller.modify_named(&*connection, !is_stalled, writes, name)?;
            self.stalled = self.stalled + usize::from(is_stalled) - usize::from(was_stalled);
        }
        self.relieve(moment);
        Ok(true)
    }

    /// Closes the connection that holds most, as long as connections together hold more than they may; and,
    /// of a tenant without room left, one that stands still.
    fn relieve(&mut self, moment: Moment) {
        while let Some(excess) = self.workplace.excess() {
            let Some(at) = self.holder(excess, |_| true) else { break };
            self.abandon(at);
        }
        let short = self.workplace.items.borrow_mut().take_short();
        let still = |one: &Connection| one.stands_still(moment) >= SHORT_STALL_SPAN;
        let holder = short.and_then(|tenant| self.holder(Excess::Values(tenant), still));
        holder.into_iter().for_each(|at| self.abandon(at));
    }

    /// The connection that holds most, of those that may be chosen.
    fn holder(&self, excess: Excess, may: impl Fn(&Connection) -> bool) -> Option<u32> {
        let all = (0..).zip(&self.connections);
        let open = all.filter_map(|(at, one)| Some((at, one.as_ref()?)));
        let held = open.map(|(at, one)| (one.holds(excess), at, one));
        let holders = held.filter(|(bytes, _, one)| *bytes > 0 && may(one));
        holders.max_by_key(|(bytes, ..)| *bytes).map(|(_, at, _)| at)
    }

    fn close(&mut self, at: u32) {
        if let Some(connection) = self.connections[at as usize].take() {
            self.workplace.kept_bytes -= connection.holds(Excess::Kept);
            self.workplace.waiting_bytes -= connection.holds(Excess::Waiting);
            self.spare.push(at);
            self.workplace.items.borrow_mut().facts_mut().connections -= 1;
        }
        self.hot = self.hot.filter(|hot| *hot != at);
    }

    /// Connections whose commands were more than one turn's.
    fn serve_again(&mut self, moment: Moment) -> io::Result<bool> {
        if self.again.is_empty() {
            return Ok(false);
        }
        for at in std::mem::take(&mut self.again) {
            self.serve(at, moment)?;
        }
        Ok(true)
    }

    /// Connections whose replies have come.
    fn serve_awaited(&mut self, moment: Moment) -> io::Result<bool> {
        self.workplace.items.borrow_mut().take_ready(&mut self.awaited);
        let moved = !self.awaited.is_empty();
        for at in std::mem::take(&mut self.awaited) {
            self.serve(at, moment)?;
        }
        Ok(moved)
    }

    /// Periodic work.
    fn look_after(&mut self, now: Time, moment: Moment) -> io::Result<()> {
        if now >= self.sweep_at && self.has_mortals() {
            self.sweep_at = now + SWEEP_SPAN;
            self.workplace.items.borrow_mut().sweep(moment);
        }
        if now >= self.look_at && self.stalled > 0 {
            self.look_at = now + LOOK_SPAN;
            self.close_stalled(moment);
        }
        self.listeners.resume(&self.poller, now)
    }

    fn has_mortals(&self) -> bool {
        self.workplace.items.borrow().has_mortals()
    }

    /// Serves connections that have something to be done.
    fn serve_all(&mut self, moment: Moment) -> io::Result<bool> {
        let again = self.serve_awaited(moment)? | self.serve_again(moment)?;
        let was_fresh = std::mem::take(&mut self.fresh);
        let before = self.hot.filter(|_| was_fresh);
        if let Some(hot) = before.filter(|_| self.streams && self.hot_looks < HOT_LOOKS_MAX) {
            self.hot_looks += 1;
            self.streams = self.serve(hot, moment)?;
            self.fresh = self.streams;
            return Ok(self.fresh || again);
        }
        self.fresh = self.serve_ready(moment)?;
        self.streams |= self.fresh && before.is_some() && before == self.hot;
        Ok(self.fresh || again)
    }

    /// Closes connections whose clients have not read anything for long: what waits for them is others' memory.
    fn close_stalled(&mut self, moment: Moment) {
        let span = self.stall_span;
        let stalls = |one: &Connection| one.is_stalled() && one.stands_still(moment) >= span;
        for at in 0..self.connections.len() {
            if self.connections[at].as_ref().is_some_and(stalls) {
                self.abandon(at as u32);
            }
        }
    }
}

impl Device for Sockets {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        // a set in a set would be asked twice, and wake twice
        self.poller = poller.clone();
        self.listeners.attach(poller)
    }

    fn woken(&mut self, ready: &[Ready]) {
        self.ready.clear();
        self.ready.extend_from_slice(ready);
        self.told = !ready.is_empty();
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        let moment = Moment::new(now, node.cx().wall_at(now));
        self.look_after(now, moment)?;
        let moved = self.serve_all(moment)?;
        self.courier.iter().for_each(Courier::ring);
        Ok(moved)
    }

    fn before_sleep(&mut self) -> bool {
        !self.again.is_empty() || self.workplace.items.borrow().has_ready()
    }

    fn deadline(&self) -> Option<Time> {
        let sweep = self.has_mortals().then_some(self.sweep_at);
        let look = (self.stalled > 0).then_some(self.look_at);
        [sweep, look, self.listeners.deadline()].into_iter().flatten().min()
    }

    fn shares_processor(&self) -> bool {
        let Some(hot) = self.hot.and_then(|at| self.connections[at as usize].as_ref()) else {
            return false;
        };
        let (mut shares, asked) = self.shares.get();
        if asked.is_multiple_of(SHARES_LOOKS) {
            // Where its last packet was received: over loopback, where the client ran when it sent it.
            shares = socket_incoming_cpu(hot)
                .is_ok_and(|cpu| cpu as usize == rustix::thread::sched_getcpu());
        }
        self.shares.set((shares, asked.wrapping_add(1)));
        shares
    }
}

/// The owner of a descriptor.
enum Whose {
    Listener(usize),
    Connection(u32),
}
