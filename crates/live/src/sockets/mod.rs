//! Keys and values over sockets: a device that serves clients of memcached and Redis on the node's own thread.
//!
//! A command costs one read and one gathered write, whose pieces are the frames of the value. The connection that was
//! alone ready the last time is looked at first, without asking the poller: two system calls for each command then.
//! All connections share one input buffer and one output, so an idle one costs its socket and a few hundred bytes.

mod accept;
mod connection;
mod limits;

use crate::device::{Poller, Ready};
use crate::host::Device;
use accept::Listener;
pub use accept::{Address, ListenError};
use connection::{Connection, Served, Workplace};
use kv::service::Courier;
use kv::{Items, Moment};
use limits::*;
use node::Node;
use rustix::net::sockopt::socket_incoming_cpu;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use wire::Time;

/// The device.
#[derive(Debug)]
pub struct Sockets {
    poller: Poller,
    ready: Vec<Ready>,
    listeners: Vec<Listener>,
    connections: Vec<Option<Connection>>,
    spare: Vec<u32>,
    most: usize,
    workplace: Workplace,
    /// The connection that was alone ready the last time.
    hot: Option<u32>,
    /// How often it was looked at since others were.
    hot_looks: u32,
    /// Connections with commands that wait for their turn, not for their socket.
    again: Vec<u32>,
    /// Connections whose output waits for the client.
    stalled: usize,
    look_at: Time,
    sweep_at: Time,
    /// When to accept again after the system had no descriptor left.
    accept_at: Option<Time>,
    /// Who takes values away and brings them.
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
        let listeners: Vec<Listener> =
            addresses.iter().map(Listener::bind).collect::<Result<_, _>>()?;
        for (name, listener) in (0..).zip(&listeners) {
            poller.add_named(listener, true, false, name).map_err(ListenError::System)?;
        }
        let facts = items.facts_mut();
        facts.process = std::process::id();
        facts.started_ms = crate::clock::now().0 / 1_000_000;
        let workplace = Workplace::new(items);
        Ok(Sockets {
            poller,
            ready: Vec::new(),
            listeners,
            connections: Vec::new(),
            spare: Vec::new(),
            most,
            workplace,
            hot: None,
            hot_looks: 0,
            again: Vec::new(),
            stalled: 0,
            look_at: Time::ZERO,
            sweep_at: Time::ZERO,
            accept_at: None,
            courier: None,
            awaited: Vec::new(),
        })
    }

    /// Where it listens, in the order of the addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listeners.iter().map(Listener::address)
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

    /// Serves what the poller says; whether anything moved.
    fn serve_ready(&mut self, moment: Moment) -> io::Result<bool> {
        self.poller.wait(Some(Duration::ZERO), &mut self.ready)?;
        let ready = std::mem::take(&mut self.ready);
        let mut moved = false;
        for ready in &ready {
            moved |= match ready.name.checked_sub(self.listeners.len() as u64) {
                None => self.accept(ready.name as usize)?,
                Some(at) => self.serve(at as u32, moment)?,
            };
        }
        if let [one, others @ ..] = &ready[..] {
            let at = one.name.checked_sub(self.listeners.len() as u64).map(|at| at as u32);
            self.hot =
                at.filter(|at| others.is_empty() && self.connections[*at as usize].is_some());
        }
        self.hot_looks = 0;
        self.ready = ready;
        Ok(moved)
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
        Ok(true)
    }

    fn close(&mut self, at: u32) {
        if let Some(connection) = self.connections[at as usize].take() {
            self.workplace.kept_bytes -= connection.kept_bytes();
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

    /// What is to be done now and then.
    fn look_after(&mut self, now: Time, moment: Moment) -> io::Result<()> {
        if now >= self.sweep_at && self.has_mortals() {
            self.sweep_at = now + SWEEP_SPAN;
            self.workplace.items.borrow_mut().sweep(moment);
        }
        if now >= self.look_at && self.stalled > 0 {
            self.look_at = now + LOOK_SPAN;
            self.close_stalled(moment);
        }
        if self.accept_at.is_some_and(|at| now >= at) {
            self.accept_at = None;
            self.watch_listeners(true)?;
        }
        Ok(())
    }

    fn has_mortals(&self) -> bool {
        self.workplace.items.borrow().has_mortals()
    }

    /// Serves whoever has something to be done.
    fn serve_all(&mut self, moment: Moment) -> io::Result<bool> {
        let again = self.serve_awaited(moment)? | self.serve_again(moment)?;
        if let Some(hot) = self.hot.filter(|_| self.hot_looks < HOT_LOOKS_MAX) {
            self.hot_looks += 1;
            if self.serve(hot, moment)? {
                return Ok(true);
            }
            // Others are looked at too, but not each time.
            if !self.hot_looks.is_multiple_of(HOT_LOOKS_ALONE) {
                return Ok(again);
            }
        }
        Ok(self.serve_ready(moment)? || again)
    }

    /// Closes connections whose clients have not read anything for long: what waits for them is others' memory.
    fn close_stalled(&mut self, moment: Moment) {
        let stalls = |connection: &Connection| connection.stalls_since(moment) >= STALL_SPAN;
        for at in 0..self.connections.len() {
            if self.connections[at].as_ref().is_some_and(stalls) {
                self.stalled -= 1;
                self.close(at as u32);
            }
        }
    }
}

impl Device for Sockets {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.poller, true, false)
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        let moment = Moment::new(now, node.cx().wall());
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
        [sweep, look, self.accept_at].into_iter().flatten().min()
    }

    fn shares_processor(&self) -> bool {
        let Some(hot) = self.hot.and_then(|at| self.connections[at as usize].as_ref()) else {
            return false;
        };
        // Where its last packet was received: over loopback, where the client ran when it sent it.
        socket_incoming_cpu(hot).is_ok_and(|cpu| cpu as usize == rustix::thread::sched_getcpu())
    }
}
