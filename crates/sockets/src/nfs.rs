//! NFS over sockets: a device that moves bytes between clients and [`nfs::front::Front`], and file operations between
//! that and the node's front ring.
//!
//! The data of a WRITE goes from the socket into the frames where it stays, that of a READ from its frames into one
//! gathered write. The front decides who may be read from; this watches sockets as it says.

mod rpcbind;

use super::limits::*;
use super::listener::{ListenError, Listeners};
use arrayvec::ArrayVec;
use live::clock;
use live::device::{Poller, Ready};
use live::host::Device;
use nfs::filter::Forwarder;
use nfs::front::{ConnectionId, Counters, Front};
use nfs::limits::CALL_HEAD_BYTES_MAX;
use nfs::portmap::{TCP, UDP};
use nfs::server::{Origin, Port};
use node::Node;
use rustix::io::Errno;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::rc::Rc;
use std::time::Duration;
use wire::Time;

pub use rpcbind::{Registration, register};

/// Where clients ask.
#[derive(Clone, Debug, Default)]
pub struct NfsPlaces {
    /// NFS and MOUNT over TCP; port 0 is any that is free.
    pub nfs: Vec<SocketAddr>,
    /// Locks over UDP; port 0 is the one of NFS, or any where that is taken.
    pub locks: Vec<SocketAddr>,
    /// The same, and MOUNT over UDP.
    pub mount: Vec<SocketAddr>,
    /// A port mapper of our own, over TCP and UDP.
    pub portmap: Vec<SocketAddr>,
}

/// The sockets of a server, before it serves.
#[derive(Debug)]
pub struct NfsSockets {
    listeners: Listeners,
    /// What is served at each of them.
    ports: Vec<Port>,
    datagrams: Vec<(UdpSocket, Port)>,
}

impl NfsSockets {
    /// Binds all of them.
    pub fn bind(places: &NfsPlaces) -> Result<NfsSockets, ListenError> {
        let NfsPlaces { nfs, locks, mount, portmap } = places;
        let listeners = Listeners::bind(nfs.iter().chain(portmap).copied())?;
        let ports = [vec![Port::Nfs; nfs.len()], vec![Port::Portmap; portmap.len()]].concat();
        let beside = listeners.addresses().next().map_or(0, |at| at.port());
        let locks = locks.iter().map(|at| (at, Port::Locks));
        let all = locks.chain(mount.iter().map(|at| (at, Port::Mount)));
        let all = all.chain(portmap.iter().map(|at| (at, Port::Portmap)));
        let bound = all.map(|(at, port)| Ok((bind_datagrams(*at, beside)?, port)));
        let datagrams = bound.collect::<Result<_, ListenError>>()?;
        Ok(NfsSockets { listeners, ports, datagrams })
    }

    /// Where NFS is served.
    pub fn nfs_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all = self.listeners.addresses().zip(&self.ports);
        all.filter(|(_, port)| **port == Port::Nfs).map(|(at, _)| at)
    }

    /// Where a port mapper of our own is served over TCP.
    pub fn portmap_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all = self.listeners.addresses().zip(&self.ports);
        all.filter(|(_, port)| **port == Port::Portmap).map(|(at, _)| at)
    }

    /// Where locks are served over UDP.
    pub fn lock_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all = self.datagrams.iter().filter(|(_, port)| port.has_locks());
        all.filter_map(|(socket, _)| socket.local_addr().ok())
    }

    /// Where MOUNT is served over UDP.
    pub fn mount_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let all = self.datagrams.iter().filter(|(_, port)| *port == Port::Mount);
        all.filter_map(|(socket, _)| socket.local_addr().ok())
    }
}

fn bind_datagrams(at: SocketAddr, beside: u16) -> Result<UdpSocket, ListenError> {
    let refused = |error| ListenError::Address(at, error);
    let first = if at.port() == 0 { SocketAddr::new(at.ip(), beside) } else { at };
    let bound = match UdpSocket::bind(first) {
        Err(_) if first != at => UdpSocket::bind(at),
        bound => bound,
    };
    let socket = bound.map_err(refused)?;
    socket.set_nonblocking(true).map_err(refused)?;
    Ok(socket)
}

/// A client's socket, and what the poller watches it for.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    reads: bool,
    writes: bool,
}

/// The device.
pub struct Nfs {
    front: Rc<RefCell<Front>>,
    poller: Poller,
    ready: Vec<Ready>,
    /// What is ready was told when the host woke.
    told: bool,
    /// The connection that alone asked last, and how often it may be read before the poller is asked again.
    hot: Option<(ConnectionId, u32)>,
    sockets: NfsSockets,
    connections: BTreeMap<ConnectionId, Socket>,
    /// Room for one datagram.
    datagram: Box<[u8]>,
    is_stopping: bool,
    /// Of a packet filter.
    forwarder: Option<Forwarder>,
}

/// Whose a descriptor is.
enum Whose {
    Listener(usize),
    Datagrams(usize),
    Connection(ConnectionId),
}

impl Nfs {
    /// Of bound sockets.
    pub fn new(sockets: NfsSockets, front: Front) -> io::Result<Nfs> {
        Ok(Nfs {
            front: Rc::new(RefCell::new(front)),
            poller: Poller::new()?,
            ready: Vec::new(),
            told: false,
            hot: None,
            sockets,
            connections: BTreeMap::new(),
            datagram: vec![0; CALL_HEAD_BYTES_MAX].into(),
            is_stopping: false,
            forwarder: None,
        })
    }

    /// Of a packet filter, whose front forwards calls through this.
    pub fn forwarding(self, forwarder: Forwarder) -> Nfs {
        Nfs { forwarder: Some(forwarder), ..self }
    }

    /// The front, for whoever reports of it.
    pub fn front(&self) -> Rc<RefCell<Front>> {
        self.front.clone()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.front.borrow().counters().clone()
    }

    fn fixed(&self) -> u64 {
        (self.sockets.listeners.len() + self.sockets.datagrams.len()) as u64
    }

    /// The poller's name of a connection: behind those of listeners and of datagrams.
    fn name(&self, id: ConnectionId) -> u64 {
        self.fixed() + id.0
    }

    fn whose(&self, name: u64) -> Option<Whose> {
        let listeners = self.sockets.listeners.len() as u64;
        match name {
            _ if name < listeners => Some(Whose::Listener(name as usize)),
            _ if name < self.fixed() => Some(Whose::Datagrams((name - listeners) as usize)),
            _ => {
                let id = ConnectionId(name - self.fixed());
                self.connections.contains_key(&id).then_some(Whose::Connection(id))
            }
        }
    }

    fn serve_ready(&mut self) -> io::Result<bool> {
        let hot = self.hot.take();
        if !std::mem::take(&mut self.told) {
            if let Some(moved) = hot.and_then(|hot| self.serve_hot(hot)) {
                return Ok(moved);
            }
            self.poller.wait(Some(Duration::ZERO), &mut self.ready)?;
        }
        let ready = std::mem::take(&mut self.ready);
        let mut moved = false;
        for one in &ready {
            moved |= match self.whose(one.name) {
                None => continue,
                Some(Whose::Listener(at)) => self.accept(at)?,
                Some(Whose::Datagrams(at)) => self.receive(at),
                Some(Whose::Connection(id)) => self.serve(id, one),
            };
        }
        if let [one] = &ready[..]
            && let Some(Whose::Connection(id)) = self.whose(one.name).filter(|_| moved)
        {
            self.hot = Some((id, HOT_READS));
        }
        self.ready = ready;
        Ok(moved)
    }

    /// Reads a connection without asking the poller first: where client and server share a processor the next call
    /// comes while the reply to the last one is written. `None`: the poller is to be asked.
    fn serve_hot(&mut self, (id, left): (ConnectionId, u32)) -> Option<bool> {
        let left = left.checked_sub(1)?;
        if !self.connections.contains_key(&id) || !self.front.borrow().may_read(id) {
            return None;
        }
        match self.read(id) {
            Some(true) => self.hot = Some((id, left)),
            // The poller is asked in the next turn.
            Some(false) => return Some(false),
            None => self.close(id),
        }
        Some(true)
    }

    fn accept(&mut self, at: usize) -> io::Result<bool> {
        for accepted in 0..ACCEPTS_PER_TURN {
            match self.sockets.listeners.accept(at, &self.poller)? {
                Some(stream) => self.admit(stream, self.sockets.ports[at])?,
                None => return Ok(accepted > 0),
            }
        }
        Ok(true)
    }

    fn admit(&mut self, stream: TcpStream, port: Port) -> io::Result<()> {
        let (Ok(from), Ok(to)) = (stream.peer_addr(), stream.local_addr()) else {
            return Ok(()); // it is gone again
        };
        let origin = Origin { from, to: to.ip().to_canonical(), over: TCP, port };
        let Some(id) = self.front.borrow_mut().connect(origin) else { return Ok(()) };
        // Without it a reply of several writes would wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        // A client that was cut off is noticed some day.
        let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
        self.poller.add_named(&stream, true, false, self.name(id))?;
        self.connections.insert(id, Socket { stream, reads: true, writes: false });
        Ok(())
    }

    /// Reads and writes one connection; whether anything moved.
    fn serve(&mut self, id: ConnectionId, ready: &Ready) -> bool {
        let may_read = self.front.borrow().may_read(id);
        let done = match (ready.readable && may_read, ready.closed) {
            (true, _) => self.read(id),
            // The poller would report it again and again.
            (false, true) => None,
            (false, false) => Some(false),
        };
        let written = match done {
            Some(read) if ready.writable => self.write(id).map(|wrote| wrote | read),
            done => done,
        };
        written.unwrap_or_else(|| {
            self.close(id);
            true
        })
    }

    /// Whether anything was read; `None`: the connection is at its end.
    fn read(&mut self, id: ConnectionId) -> Option<bool> {
        let socket = &self.connections.get(&id)?.stream;
        let mut front = self.front.borrow_mut();
        for reads in 0..READS_PER_TURN {
            let mut slices: ArrayVec<IoSliceMut<'_>, PIECES_MAX> =
                front.slices(id).take(PIECES_MAX).collect();
            if slices.is_empty() {
                return Some(reads > 0);
            }
            let room: usize = slices.iter().map(|slice| slice.len()).sum();
            let count = match rustix::io::readv(socket, &mut slices) {
                Ok(0) => return None,
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => return Some(reads > 0),
                Err(_) => return None,
            };
            drop(slices);
            front.filled(id, count).ok()?;
            if count < room {
                return Some(true);
            }
        }
        Some(true)
    }

    /// Whether anything was written; `None`: the connection is at its end.
    fn write(&mut self, id: ConnectionId) -> Option<bool> {
        let socket = &self.connections.get(&id)?.stream;
        let mut front = self.front.borrow_mut();
        for writes in 0..WRITES_PER_TURN {
            let slices: ArrayVec<IoSlice<'_>, PIECES_MAX> =
                front.writer(id)?.slices().take(PIECES_MAX).collect();
            if slices.is_empty() {
                return Some(writes > 0);
            }
            let count = match rustix::io::writev(socket, &slices) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => return Some(writes > 0),
                Err(_) => return None,
            };
            drop(slices);
            front.wrote(id, count).ok()?;
        }
        Some(true)
    }

    fn close(&mut self, id: ConnectionId) {
        self.front.borrow_mut().disconnect(id);
        self.connections.remove(&id);
    }

    fn receive(&mut self, at: usize) -> bool {
        let (socket, port) = &self.sockets.datagrams[at];
        for received in 0..DATAGRAMS_PER_TURN {
            let Ok((bytes, from)) = socket.recv_from(&mut self.datagram) else {
                return received > 0;
            };
            let to = address_towards(socket, from);
            let origin = Origin { from, to, over: UDP, port: *port };
            self.front.borrow_mut().datagram(origin, &self.datagram[..bytes]);
        }
        true
    }

    fn send_datagrams(&mut self) -> bool {
        let mut moved = false;
        while let Some(reply) = self.front.borrow_mut().poll_datagram() {
            let mut all = self.sockets.datagrams.iter();
            // clients are called from where their calls are answered
            let both = |port: Port| port.has_locks() && reply.origin.port.has_locks();
            let socket = all.find(|(_, port)| *port == reply.origin.port || both(*port));
            // one that does not leave is as one that was lost
            let _ = socket.map(|(socket, _)| socket.send_to(&reply.bytes, reply.origin.from));
            moved = true;
        }
        moved
    }

    /// Moves operations to the node and what became of them back.
    fn exchange(&mut self, node: &Node) -> bool {
        let mut front = self.front.borrow_mut();
        let mut moved = false;
        while let Some(done) = node.take_front_done() {
            front.done(done);
            moved = true;
        }
        while let Some(request) = front.poll_request() {
            if let Err(request) = node.front_push(request) {
                front.put_back(request);
                break;
            }
            moved = true;
        }
        let Some(forwarder) = &self.forwarder else { return moved };
        while let Some((number, outcome)) = forwarder.take_done() {
            front.forwarded(number, outcome);
            moved = true;
        }
        while let Some(forward) = front.poll_forward() {
            forwarder.start(forward);
            moved = true;
        }
        front.note_forwarded(forwarder.counters());
        moved
    }

    /// Writes what there is to write, and watches sockets for what the front wants of them.
    fn follow(&mut self) -> io::Result<bool> {
        let mut moved = false;
        loop {
            let Some(id) = self.front.borrow_mut().poll_changed() else { break };
            if self.front.borrow().has_output(id) {
                match self.write(id) {
                    Some(wrote) => moved |= wrote,
                    None => self.close(id),
                }
            }
            self.watch(id)?;
        }
        loop {
            let Some(id) = self.front.borrow_mut().poll_closed() else { break };
            self.connections.remove(&id);
        }
        Ok(moved)
    }

    fn watch(&mut self, id: ConnectionId) -> io::Result<()> {
        let name = self.name(id);
        let Some(socket) = self.connections.get_mut(&id) else { return Ok(()) };
        let front = self.front.borrow();
        let (reads, writes) = (front.may_read(id), front.has_output(id));
        if (reads, writes) != (socket.reads, socket.writes) {
            (socket.reads, socket.writes) = (reads, writes);
            self.poller.modify_named(&socket.stream, reads, writes, name)?;
        }
        Ok(())
    }
}

/// The address of ours that a datagram came to.
fn address_towards(socket: &UdpSocket, client: SocketAddr) -> IpAddr {
    let own = socket.local_addr().map_or(client.ip(), |own| own.ip());
    if !own.is_unspecified() {
        return own.to_canonical();
    }
    let any = if client.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let towards = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(client)?;
        socket.local_addr()
    });
    towards.map_or(own, |own| own.ip()).to_canonical()
}

impl Device for Nfs {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.poller = poller.clone();
        self.sockets.listeners.attach(poller)?;
        let first = self.sockets.listeners.len() as u64;
        for (name, (socket, _)) in (first..).zip(&self.sockets.datagrams) {
            poller.add_named(socket, true, false, name)?;
        }
        Ok(())
    }

    fn woken(&mut self, ready: &[Ready]) {
        self.ready.clear();
        self.ready.extend_from_slice(ready);
        self.told = !ready.is_empty();
    }

    fn poll(&mut self, node: &mut Node, now: Time) -> io::Result<bool> {
        self.front.borrow_mut().set_now(now, node.cx().wall_at(now));
        if !self.is_stopping {
            self.sockets.listeners.resume(&self.poller, now)?;
        }
        self.front.borrow_mut().look_after();
        let done = self.exchange(node);
        let served = self.serve_ready()?;
        let asked = self.exchange(node);
        let sent = self.send_datagrams() | self.follow()?;
        Ok(done | served | asked | sent)
    }

    /// The answers to what the node's step did leave at once.
    fn flush(&mut self, node: &mut Node, now: Time) -> io::Result<()> {
        self.front.borrow_mut().set_now(now, node.cx().wall_at(now));
        self.exchange(node);
        self.send_datagrams();
        self.follow().map(drop)
    }

    fn deadline(&self) -> Option<Time> {
        let front = self.front.borrow().deadline();
        front.into_iter().chain(self.sockets.listeners.deadline()).min()
    }

    fn quiesce(&mut self, node: &mut Node) -> io::Result<bool> {
        if !std::mem::replace(&mut self.is_stopping, true) {
            self.sockets.listeners.watch(&self.poller, false)?;
            self.front.borrow_mut().stop();
        }
        self.front.borrow_mut().close_files();
        self.poll(node, clock::now())?;
        Ok(self.front.borrow().is_quiet())
    }
}
