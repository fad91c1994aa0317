//! Connections to foreign NFS servers: a device that moves bytes for [`Session`]s.
//!
//! Sockets are watched by a poller of the device's own, in the host's: sessions come and go while others serve.
//! The results of READs are copied once, from the session's buffer; the sockets of clients ([`crate::nfs`]) need no
//! copy, but cost a cluster more than one foreign server can.

use crate::limits::READS_PER_TURN;
use live::device::{Poller, Ready};
use live::host::Device;
use nfs::client::session::{Action, Session};
use node::Node;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;
use wire::Time;

/// Ports that many servers want calls to come from (`secure` of exports(5)); those below are left to services.
const RESERVED_PORTS: RangeInclusive<u16> = 665..=1023;
/// Reserved ports that are tried for one connection.
const RESERVED_PORTS_TRIED: u32 = 16;

/// Where services put sessions that the device is to serve. A session ends when its service drops it.
#[derive(Clone, Default)]
pub struct Sessions(Rc<RefCell<Vec<Rc<RefCell<Session>>>>>);

impl Sessions {
    /// Has the device serve it.
    pub fn add(&self, session: Session) -> Rc<RefCell<Session>> {
        let session = Rc::new(RefCell::new(session));
        self.0.borrow_mut().push(session.clone());
        session
    }
}

/// The device.
pub struct Foreign {
    poller: Poller,
    ready: Vec<Ready>,
    /// The host woke by one of its descriptors, perhaps one of these.
    told: bool,
    added: Sessions,
    slots: Vec<Slot>,
    next_name: u64,
    ports: Ports,
    /// Called when calls have finished, or a root is known.
    finished: Box<dyn Fn()>,
}

struct Slot {
    session: Rc<RefCell<Session>>,
    /// The poller's name of its socket.
    name: u64,
    socket: Option<Socket>,
}

struct Socket {
    stream: TcpStream,
    is_connecting: bool,
    writes: bool,
}

/// Reserved ports in turn: one that was just used is refused for a minute by the same server.
struct Ports {
    last: u16,
    may_reserve: bool,
}

impl Foreign {
    /// Of the sessions that are added; `finished` is called when calls of any have finished.
    pub fn new(added: Sessions, finished: impl Fn() + 'static) -> io::Result<Foreign> {
        let ports = RESERVED_PORTS.len() as u32;
        let last = RESERVED_PORTS.start() + (std::process::id() % ports) as u16;
        Ok(Foreign {
            poller: Poller::new()?,
            ready: Vec::new(),
            told: false,
            added,
            slots: Vec::new(),
            next_name: 0,
            ports: Ports { last, may_reserve: true },
            finished: Box::new(finished),
        })
    }

    fn adopt(&mut self) {
        for session in self.added.0.borrow_mut().drain(..) {
            self.slots.push(Slot { session, name: self.next_name, socket: None });
            self.next_name += 1;
        }
        // one that no service has any more
        self.slots.retain(|slot| Rc::strong_count(&slot.session) > 1);
    }

    /// Serves the sockets that are ready: whether anything moved, and whether any call finished.
    fn serve_ready(&mut self, now: Time) -> io::Result<(bool, bool)> {
        if !std::mem::take(&mut self.told) && !self.slots.iter().any(Slot::waits) {
            return Ok((false, false));
        }
        self.poller.wait(Some(Duration::ZERO), &mut self.ready)?;
        let (mut moved, mut finished) = (false, false);
        for ready in &self.ready {
            let slot = self.slots.iter_mut().find(|slot| slot.name == ready.name);
            if let Some(slot) = slot {
                finished |= slot.serve(*ready, &self.poller, now)?;
                moved = true;
            }
        }
        Ok((moved, finished))
    }

    /// Opens, closes and writes what the sessions want; whether anything moved.
    fn follow(&mut self, now: Time) -> io::Result<bool> {
        let mut moved = false;
        for slot in &mut self.slots {
            moved |= slot.act(&self.poller, &mut self.ports, now)?;
            moved |= slot.write(&self.poller, now)?;
        }
        Ok(moved)
    }
}

impl Slot {
    /// Whether something is to come from its socket.
    fn waits(&self) -> bool {
        let connects = self.socket.as_ref().is_some_and(|socket| socket.is_connecting);
        connects || self.session.borrow().awaits_reply()
    }

    fn act(&mut self, poller: &Poller, ports: &mut Ports, now: Time) -> io::Result<bool> {
        let mut moved = false;
        loop {
            let Some(action) = self.session.borrow_mut().poll_action(now) else { return Ok(moved) };
            moved = true;
            self.socket = None;
            let Action::Connect(at) = action else { continue };
            match connect(at, ports) {
                Ok(stream) => {
                    poller.add_named(&stream, true, true, self.name)?;
                    self.socket = Some(Socket { stream, is_connecting: true, writes: true });
                }
                Err(error) => self.session.borrow_mut().handle_lost(error, now),
            }
        }
    }

    /// Whether any call finished.
    fn serve(&mut self, ready: Ready, poller: &Poller, now: Time) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else { return Ok(false) };
        if !socket.is_connecting {
            let finished = if ready.readable || ready.closed { self.read(now) } else { false };
            self.write(poller, now)?;
            return Ok(finished);
        }
        if !ready.writable && !ready.closed {
            return Ok(false);
        }
        match socket.stream.take_error()? {
            Some(error) => self.lose(error, now),
            None => {
                socket.is_connecting = false;
                self.session.borrow_mut().handle_connected(now);
                self.write(poller, now)?;
            }
        }
        Ok(false)
    }

    /// Reads what is there, as long as the session wants this connection; whether any call finished.
    fn read(&mut self, now: Time) -> bool {
        let mut finished = false;
        for _ in 0..READS_PER_TURN {
            let Some(socket) = &self.socket else { break };
            let mut session = self.session.borrow_mut();
            if !session.is_open() {
                break; // what still comes is of a stream that is given up
            }
            match rustix::io::read(&socket.stream, session.space()) {
                Ok(0) => {
                    drop(session);
                    self.lose("it has closed the connection", now);
                }
                Ok(count) => finished |= session.handle_filled(count, now),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => {
                    drop(session);
                    self.lose(error, now);
                }
            }
        }
        finished
    }

    /// Writes what the socket takes, and has the poller tell when it takes more.
    fn write(&mut self, poller: &Poller, now: Time) -> io::Result<bool> {
        let mut moved = false;
        let Some(socket) = &mut self.socket else { return Ok(false) };
        if socket.is_connecting {
            return Ok(false);
        }
        let mut session = self.session.borrow_mut();
        let failed = loop {
            let output = session.output();
            if output.is_empty() {
                break None;
            }
            match rustix::net::send(&socket.stream, output, SendFlags::NOSIGNAL) {
                Ok(count) => session.handle_wrote(count),
                Err(Errno::AGAIN | Errno::INTR) => break None,
                Err(error) => break Some(error),
            }
            moved = true;
        };
        let writes = !session.output().is_empty();
        drop(session);
        if let Some(error) = failed {
            self.lose(error, now);
            return Ok(true);
        }
        if writes != socket.writes {
            socket.writes = writes;
            poller.modify_named(&socket.stream, true, writes, self.name)?;
        }
        Ok(moved)
    }

    fn lose(&mut self, why: impl std::fmt::Display, now: Time) {
        self.socket = None;
        self.session.borrow_mut().handle_lost(why, now);
    }
}

impl Ports {
    /// Binds the socket to a reserved port, where this process may.
    fn reserve(&mut self, socket: impl AsFd, towards: IpAddr) {
        let any: IpAddr = match towards {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for _ in 0..RESERVED_PORTS_TRIED {
            if !self.may_reserve {
                return;
            }
            let next = self.last + 1;
            self.last = if RESERVED_PORTS.contains(&next) { next } else { *RESERVED_PORTS.start() };
            match rustix::net::bind(&socket, &SocketAddr::new(any, self.last)) {
                Ok(()) => return,
                Err(Errno::ACCESS | Errno::PERM) => self.may_reserve = false,
                Err(_) => {} // another has it
            }
        }
    }
}

/// A connection that is being made.
fn connect(at: SocketAddr, ports: &mut Ports) -> io::Result<TcpStream> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // Without it a call of several writes would wait for the server's acknowledgement.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    // A server that is cut off is noticed some day, also when nothing is asked of it.
    let _ = sockopt::set_socket_keepalive(&socket, true);
    ports.reserve(&socket, at.ip());
    match rustix::net::connect(&socket, &at) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

impl Device for Foreign {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.poller, true, false)
    }

    fn woken(&mut self, ready: &[Ready]) {
        self.told |= !ready.is_empty();
    }

    fn poll(&mut self, _: &mut Node, now: Time) -> io::Result<bool> {
        self.adopt();
        let late = self
            .slots
            .iter()
            .fold(false, |any, slot| slot.session.borrow_mut().handle_time(now) | any);
        let (served, finished) = self.serve_ready(now)?;
        let followed = self.follow(now)?;
        if late || finished {
            (self.finished)();
        }
        Ok(late | served | followed)
    }

    /// The calls that the node's step made leave at once.
    fn flush(&mut self, _: &mut Node, now: Time) -> io::Result<()> {
        self.adopt();
        self.follow(now).map(drop)
    }

    fn deadline(&self) -> Option<Time> {
        self.slots.iter().filter_map(|slot| slot.session.borrow().deadline()).min()
    }
}
