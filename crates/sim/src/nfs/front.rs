//! The front of a node, or a packet filter: what `sockets::nfs` does with sockets, with bytes of simulated streams.

use crate::queue::Picos;
use crate::world::World;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use nfs::exports::parse;
use nfs::filter::Forwarder;
use nfs::front::{ConnectionId, Front};
use nfs::handle::Key;
use nfs::portmap::{TCP, UDP};
use nfs::server::{Origin, Port, Server};
use nfs::start::{Start, Started};
use node::rings::{Caller, FileDone, FileReply, FileRequest};
use std::rc::Rc;
use wire::{Errno, NodeId, VolumeId};

/// All of the volume, to all, as who they say they are.
const EXPORTS: &str = "/ *(rw,no_root_squash)";

/// A node with a front.
pub struct FrontMachine {
    /// The node.
    pub node: NodeId,
    /// A look at what it forwarded is planned.
    pub is_looked_after: bool,
    volume: VolumeId,
    /// The first of the managers that it is a filter for.
    filters: Option<NodeId>,
    state: State,
}

/// Number of the operations of a start.
const START: u64 = 1 << 60;

/// The state of an incarnation.
enum State {
    Down,
    Starting(u32, Starting),
    Serving(u32, Serving),
}

struct Serving {
    front: Front,
    forwarder: Option<Forwarder>,
    /// Calls that it has begun, and not ended.
    forwards: usize,
}

struct Starting {
    start: Start,
    /// Its operation is under way.
    is_asked: bool,
}

/// Progress at a front.
#[derive(Debug)]
pub enum Progress {
    /// These bytes are to be sent over this connection.
    Send(ConnectionId, Vec<u8>),
    /// More bytes of this connection may be taken.
    MayTake(ConnectionId),
    /// The front has closed this connection.
    Closed(ConnectionId),
    /// These bytes are to be sent to this port.
    Datagram(SocketAddr, Vec<u8>),
}

/// The address of a client's machine.
pub fn address(machine: usize) -> IpAddr {
    let [.., high, low] = (machine as u32 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 1, high, low))
}

/// The machine with an address.
pub fn machine_at(address: IpAddr) -> usize {
    let IpAddr::V4(address) = address.to_canonical() else { panic!("an address of a client's") };
    let [.., high, low] = address.octets();
    usize::from(u16::from_be_bytes([high, low])) - 1
}

impl Serving {
    /// Moves calls to managers and what became of them back.
    fn exchange(&mut self) {
        let Some(forwarder) = &self.forwarder else { return };
        while let Some((number, outcome)) = forwarder.take_done() {
            self.front.forwarded(number, outcome);
            self.forwards -= 1;
        }
        while let Some(forward) = self.front.poll_forward() {
            forwarder.start(forward);
            self.forwards += 1;
        }
    }
}

impl FrontMachine {
    /// Of this node, which is a filter if the first manager is given.
    pub fn new(node: NodeId, volume: VolumeId, filters: Option<NodeId>) -> FrontMachine {
        FrontMachine { node, is_looked_after: false, volume, filters, state: State::Down }
    }

    /// Calls that managers execute.
    pub fn forwards(&self) -> usize {
        let State::Serving(_, serving) = &self.state else { return 0 };
        serving.forwards
    }

    /// The incarnation that is up.
    pub fn boot(&self, world: &World) -> Option<u32> {
        world.is_up(self.node).then(|| world.machine(self.node).boot)
    }

    /// When the node goes on, if it is paused.
    pub fn paused_until(&self, world: &World) -> Option<Picos> {
        let until = world.machine(self.node).paused_until;
        (until > world.now()).then_some(until)
    }

    /// The front of this incarnation, at the world's time, if that is up.
    fn front(&mut self, world: &World, boot: u32) -> Option<&mut Front> {
        self.serving(world, boot).map(|serving| &mut serving.front)
    }

    fn serving(&mut self, world: &World, boot: u32) -> Option<&mut Serving> {
        let machine = world.machine(self.node);
        let running = machine.node.as_ref().filter(|_| machine.boot == boot)?;
        let State::Serving(its, serving) = &mut self.state else { return None };
        let now = machine.clock.time(world.now());
        serving.front.set_now(now, running.cx().wall_at(now));
        Some(serving).filter(|_| *its == boot)
    }

    /// Begins the start of this incarnation, or goes on with it.
    fn start(&mut self, world: &mut World, boot: u32) {
        match self.state {
            State::Starting(its, _) | State::Serving(its, _) if its == boot => {}
            _ => self.state = State::Starting(boot, self.starting(world)),
        }
        let State::Starting(_, starting) = &mut self.state else { return };
        if !starting.is_asked {
            let op = starting.start.op();
            let request = FileRequest { front: START, caller: Caller::default(), op };
            starting.is_asked = world.ask(self.node, request).is_ok();
        }
    }

    /// Each would give the volume another key, so that only one that all read serves all.
    fn starting(&self, world: &World) -> Starting {
        let cx = world.machine(self.node).node.as_ref().expect("it is up").cx();
        let mut fresh = [0; 16];
        fresh[..8].copy_from_slice(&cx.random().to_le_bytes());
        fresh[8..].copy_from_slice(&cx.random().to_le_bytes());
        let attribute = format!("trusted.nfs3.clients.{}", self.node.0).into_bytes();
        let start = Start::new(Key(fresh), Some(attribute.into()));
        Starting { start, is_asked: false }
    }

    /// An operation of the start has ended; one that failed is asked for again.
    fn started(&mut self, world: &World, boot: u32, result: Result<FileReply, Errno>) {
        let State::Starting(_, starting) = &mut self.state else { return };
        starting.is_asked = false;
        if let Ok(Some(started)) = starting.start.done(result) {
            self.serve(world, boot, started);
        }
    }

    fn serve(&mut self, world: &World, boot: u32, started: Started) {
        let cx = world.machine(self.node).node.as_ref().expect("its operation has ended").cx();
        let exports = parse(EXPORTS).expect("good exports");
        let verifier = cx.incarnation().to_be_bytes();
        let mut server = Server::new(self.volume, started.key, exports, verifier);
        server.bugs = cx.bugs();
        server.begin_locks(started.locks);
        let (server, frames) = (Rc::new(server), cx.frames().clone());
        let (front, forwarder) = match self.filters {
            None => (Front::new(server, frames), None),
            Some(first) => {
                let forwarder = Forwarder::new(cx, first, names::site_of_name);
                (Front::filter(server, frames), Some(forwarder))
            }
        };
        self.state = State::Serving(boot, Serving { front, forwarder, forwards: 0 });
    }

    /// A client connects; `None`: this incarnation is gone.
    pub fn connect(&mut self, world: &World, boot: u32, machine: usize) -> Option<ConnectionId> {
        let from = SocketAddr::new(address(machine), 1000);
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let origin = Origin { from, to, over: TCP, port: Port::Nfs };
        self.front(world, boot)?.connect(origin)
    }

    /// Takes as many of the bytes as there is room for. `None`: the connection is at its end.
    pub fn take(
        &mut self,
        world: &World,
        boot: u32,
        id: ConnectionId,
        bytes: &[u8],
    ) -> Option<usize> {
        let front = self.front(world, boot)?;
        let mut taken = 0;
        while taken < bytes.len() && front.may_read(id) {
            let mut filled = 0;
            for mut slice in front.slices(id) {
                let rest = &bytes[taken + filled..];
                let count = slice.len().min(rest.len());
                slice[..count].copy_from_slice(&rest[..count]);
                filled += count;
            }
            if filled == 0 {
                break;
            }
            front.filled(id, filled).ok()?;
            taken += filled;
        }
        Some(taken)
    }

    /// A datagram to the port of locks comes.
    pub fn datagram(&mut self, world: &World, from: SocketAddr, bytes: &[u8]) {
        let to = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let origin = Origin { from, to, over: UDP, port: Port::Locks };
        if let Some(boot) = self.boot(world)
            && let Some(front) = self.front(world, boot)
        {
            front.datagram(origin, bytes);
        }
    }

    /// The client's end is gone.
    pub fn disconnect(&mut self, world: &World, boot: u32, id: ConnectionId) {
        if let Some(front) = self.front(world, boot) {
            front.disconnect(id);
        }
    }

    /// An operation of the node has ended.
    pub fn done(&mut self, world: &World, done: FileDone) {
        let Some(boot) = self.boot(world) else { return };
        if done.front == START {
            self.started(world, boot, done.result);
        } else if let Some(front) = self.front(world, boot) {
            front.done(done);
        }
    }

    /// Moves operations to the node, and tells what is to be done about connections.
    pub fn progress(&mut self, world: &mut World) -> Vec<Progress> {
        let node = self.node;
        let Some(boot) = self.boot(world) else { return Vec::new() };
        self.start(world, boot);
        let Some(serving) = self.serving(world, boot) else { return Vec::new() };
        serving.exchange();
        let front = &mut serving.front;
        front.look_after();
        while let Some(request) = front.poll_request() {
            if let Err(request) = world.ask(node, request) {
                front.put_back(request);
                break;
            }
        }
        let mut all = Vec::new();
        while let Some(id) = front.poll_changed() {
            let slices = front.writer(id).into_iter().flat_map(|writer| writer.slices());
            let bytes: Vec<u8> = slices.flat_map(|slice| slice.to_vec()).collect();
            if !bytes.is_empty() {
                let is_over = front.wrote(id, bytes.len()).is_err();
                all.push(Progress::Send(id, bytes));
                all.extend(is_over.then_some(Progress::Closed(id)));
                continue;
            }
            all.push(Progress::MayTake(id));
        }
        while let Some(datagram) = front.poll_datagram() {
            all.push(Progress::Datagram(datagram.origin.from, datagram.bytes));
        }
        while let Some(id) = front.poll_closed() {
            all.push(Progress::Closed(id));
        }
        all
    }
}
