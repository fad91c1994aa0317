//! The front of a node: what `sockets::nfs` does with sockets, with bytes of simulated streams.

use crate::queue::Picos;
use crate::world::World;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use nfs::exports::parse;
use nfs::front::{ConnectionId, Front};
use nfs::handle::Key;
use nfs::portmap::TCP;
use nfs::server::{Origin, Port, Server};
use node::rings::FileDone;
use std::rc::Rc;
use wire::{NodeId, VolumeId};

/// All of the volume, to all, as who they say they are.
const EXPORTS: &str = "/ *(rw,no_root_squash)";
/// The key of the volume's handles, which all incarnations of all fronts have.
const KEY: Key = Key([0x5a; 16]);

/// A node with a front.
pub struct FrontMachine {
    /// The node.
    pub node: NodeId,
    volume: VolumeId,
    /// The front of the node's present incarnation.
    front: Option<(u32, Front)>,
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
}

/// The address of a client's machine.
pub fn address(machine: usize) -> IpAddr {
    let [.., high, low] = (machine as u32 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 1, high, low))
}

impl FrontMachine {
    /// Of this node.
    pub fn new(node: NodeId, volume: VolumeId) -> FrontMachine {
        FrontMachine { node, volume, front: None }
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
        let machine = world.machine(self.node);
        let running = machine.node.as_ref().filter(|_| machine.boot == boot)?;
        if self.front.as_ref().is_none_or(|(its, _)| *its != boot) {
            let exports = parse(EXPORTS).expect("good exports");
            let verifier = running.cx().incarnation().to_be_bytes();
            let mut server = Server::new(self.volume, KEY, exports, verifier);
            server.bugs = running.cx().bugs();
            let front = Front::new(Rc::new(server), running.cx().frames().clone());
            self.front = Some((boot, front));
        }
        let (_, front) = self.front.as_mut().expect("just made");
        let now = machine.clock.time(world.now());
        front.set_now(now, running.cx().wall_at(now));
        Some(front)
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

    /// The client's end is gone.
    pub fn disconnect(&mut self, world: &World, boot: u32, id: ConnectionId) {
        if let Some(front) = self.front(world, boot) {
            front.disconnect(id);
        }
    }

    /// An operation of the node has ended.
    pub fn done(&mut self, world: &World, done: FileDone) {
        let Some(boot) = self.boot(world) else { return };
        if let Some(front) = self.front(world, boot) {
            front.done(done);
        }
    }

    /// Moves operations to the node, and tells what is to be done about connections.
    pub fn progress(&mut self, world: &mut World) -> Vec<Progress> {
        let node = self.node;
        let Some(boot) = self.boot(world) else { return Vec::new() };
        let Some(front) = self.front(world, boot) else { return Vec::new() };
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
        while let Some(id) = front.poll_closed() {
            all.push(Progress::Closed(id));
        }
        all
    }
}
