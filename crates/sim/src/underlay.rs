//! Hardware under a cluster: what the messages, processors and disks of its nodes cost on the models of
//! [`hardware`](crate::hardware).
//!
//! ```text
//!   World ── send, call, disk ──► Underlay ──► hardware::world: hosts, buses, adapters with their firmware, links
//!     ▲                               └──────► drives, whose data crosses the host's bus
//!     └────────── Done ◄──────────────┘
//! ```
//!
//! Bytes stay with the cluster's world; here they are lengths. A message is as many packets as its payload needs, and
//! arrives when its last one was taken by the host. All that happens here happens before anything later in the cluster,
//! so that both are one run.
//!
//! Invariant: each thing asked for is done once.

mod drives;
mod port;

use crate::hardware::bus::Direction;
use crate::hardware::disk::{Disk, Request};
use crate::hardware::fabric::Link;
use crate::hardware::flow::Rate;
use crate::hardware::host::FileCalls;
use crate::hardware::measure::Station;
use crate::hardware::world::World as Hardware;
use crate::network::PacketId;
use crate::queue::Picos;
use drives::{Access, Drives};
use node::rings::{DiskOp, FileOp, FileReply};
use port::{Desk, Part, Port, Task};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::NodeId;

/// Cost of an operation that touches no platter: names and lengths are in the server's memory (assumed).
const IN_MEMORY: Picos = Picos::micros(10);

/// One node's hardware.
#[derive(Clone, Debug)]
pub struct NodeSetup {
    /// The node.
    pub id: NodeId,
    /// Its machine, adapter and firmware.
    pub station: Station,
    /// Its disks.
    pub disks: Option<DiskSetup>,
    /// Processor time of its services for each message that it takes, after its reception.
    pub service: Picos,
}

/// Disks of a node.
#[derive(Clone, Copy, Debug)]
pub struct DiskSetup {
    /// All are alike.
    pub disk: Disk,
    /// Number of disks.
    pub count: u16,
    /// Channels that they are spread over in turn.
    pub channels: u16,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A message was taken by its receiver.
    Arrived(PacketId),
    /// A file call has come through the system call layer, to the services.
    Asked(NodeId, u64),
    /// Its answer has, to the caller.
    Answered(NodeId, u64),
    /// A disk operation.
    Disk {
        /// Of this node.
        node: NodeId,
        /// The disk.
        disk: u16,
        /// The operation's number there.
        number: u64,
    },
    /// Data has come to a disk, which has still to write it.
    Fetched {
        /// Of this node.
        node: NodeId,
        /// The disk.
        disk: u16,
        /// The operation's number there.
        number: u64,
    },
}

/// How long things were in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// The processor.
    pub processor: Picos,
    /// The I/O bus.
    pub bus: Picos,
    /// Media of all disks together.
    pub disks: Picos,
}

#[derive(Debug)]
struct Host {
    index: usize,
    calls: Option<FileCalls>,
    copy: Rate,
    /// Whether disks are on the adapter's bus; PCI Express gives each device lanes of its own.
    shares_bus: bool,
    drives: Option<Drives>,
}

/// All of it.
#[derive(Debug)]
pub struct Underlay {
    world: Hardware<Port>,
    desk: Rc<RefCell<Desk>>,
    hosts: BTreeMap<NodeId, Host>,
    /// Most payload of a packet.
    mtu: usize,
}

impl Underlay {
    /// Machines with one adapter each, on crossbars of `link`.
    ///
    /// The error says what cannot be built.
    pub fn new(seed: u64, link: Link, nodes: &[NodeSetup]) -> Result<Underlay, String> {
        let desk: Rc<RefCell<Desk>> = Rc::default();
        let ports = nodes.iter().map(|node| Port::new(desk.clone(), node.service)).collect();
        let setups: Vec<_> = nodes.iter().map(|node| node.station.host()).collect();
        let world = Hardware::new(seed, link, &setups, ports)?;
        let hosts = nodes.iter().enumerate().map(|(index, node)| (node.id, Host::new(index, node)));
        let mtu = nodes.iter().map(|node| node.station.nic.mtu).min();
        let mtu = mtu.ok_or("a cluster without machines")?;
        Ok(Underlay { world, desk, hosts: hosts.collect(), mtu })
    }

    /// When something happens here next.
    pub fn next_time(&self) -> Option<Picos> {
        self.world.next_time()
    }

    /// The next event.
    pub fn step(&mut self) {
        self.world.step();
    }

    /// The next completion by now.
    pub fn take_done(&mut self) -> Option<Done> {
        loop {
            let done = self.desk.borrow_mut().done.pop_front()?;
            match done {
                Done::Fetched { node, disk, number } => self.write_out(node, disk, number),
                done => return Some(done),
            }
        }
    }

    /// Simulated time here: of the last event.
    pub fn now(&self) -> Picos {
        self.world.now()
    }

    /// How long a node's parts were in use.
    pub fn busy(&self, node: NodeId) -> Busy {
        let host = self.host(node);
        Busy {
            processor: self.world.host_busy(host.index),
            bus: self.world.bus_busy(host.index),
            disks: host.drives.as_ref().map_or(Picos::ZERO, Drives::busy),
        }
    }

    fn host(&self, node: NodeId) -> &Host {
        self.hosts.get(&node).expect("a node with hardware")
    }

    fn host_mut(&mut self, node: NodeId) -> &mut Host {
        self.hosts.get_mut(&node).expect("a node with hardware")
    }

    /// At `at` the host of `node` begins with `task`.
    fn later(&mut self, node: NodeId, at: Picos, task: Task) {
        let (index, token) = (self.host(node).index, self.desk.borrow_mut().put(task));
        self.world.wake_host(index, at, token);
    }

    /// A message with `bytes` of payload leaves a node.
    pub fn send(&mut self, now: Picos, from: NodeId, to: NodeId, bytes: usize, packet: PacketId) {
        if from == to {
            return self.later(from, now, Task::Tell(Done::Arrived(packet)));
        }
        let (to, mut left) = (self.host(to).index, bytes);
        loop {
            let part = left.min(self.mtu);
            left -= part;
            let task = Task::Send(Part { to, bytes: part, packet, is_last: left == 0 });
            self.later(from, now, task);
            if left == 0 {
                return;
            }
        }
    }

    /// A file call begins; [`Done::Asked`] comes when its request is with the services. `false` when this node's
    /// machine says nothing about file calls: they cost nothing.
    pub fn ask(&mut self, now: Picos, node: NodeId, front: u64, op: &FileOp) -> bool {
        let host = self.host(node);
        let Some(calls) = host.calls else { return false };
        let copied = match op {
            FileOp::Write { data, .. } => data.iter().map(|frame| frame.len() as u64).sum(),
            _ => 0,
        };
        let span = calls.call + host.copy.time(copied);
        self.later(node, now, Task::Compute(span, Done::Asked(node, front)));
        true
    }

    /// Its answer leaves the services; [`Done::Answered`] comes when the caller has it. `false` as for
    /// [`ask`](Underlay::ask).
    pub fn answer(
        &mut self,
        now: Picos,
        node: NodeId,
        front: u64,
        reply: Option<&FileReply>,
    ) -> bool {
        let Some(calls) = self.host(node).calls else { return false };
        let remapped = match reply {
            Some(FileReply::Data { bytes, .. }) => *bytes as u64,
            _ => 0,
        };
        let span = calls.remap_time(remapped);
        self.later(node, now, Task::Compute(span, Done::Answered(node, front)));
        true
    }

    /// A disk operation is asked for; [`Done::Disk`] with its number comes when it is done.
    pub fn disk(&mut self, now: Picos, node: NodeId, disk: u16, number: u64, op: &DiskOp) {
        let drives = self.drives_mut(node);
        let done = Done::Disk { node, disk, number };
        match drives.access(disk, op) {
            Access::None => self.later(node, now + IN_MEMORY, Task::Tell(done)),
            Access::Settle => {
                let at = drives.settled(disk).max(now);
                self.later(node, at, Task::Tell(done));
            }
            Access::Read(pieces) => {
                let at = drives.serve(now, disk, &pieces);
                let crossing = self.crossing(node, &pieces, Direction::ToHost, done);
                self.later(node, at, crossing);
            }
            Access::Write(pieces) => {
                let done = Done::Fetched { node, disk, number };
                let crossing = self.crossing(node, &pieces, Direction::ToAdapter, done);
                self.drives_mut(node).hold(disk, number, pieces);
                self.later(node, now, crossing);
            }
        }
    }

    /// Data of a disk crosses the host's bus, if disks are on that.
    fn crossing(&self, node: NodeId, data: &[Request], towards: Direction, done: Done) -> Task {
        let host = self.host(node);
        let drives = host.drives.as_ref().filter(|_| host.shares_bus);
        let bytes: u64 = data.iter().map(|piece| piece.bytes).sum();
        drives.map_or(Task::Tell(done), |drives| {
            let alone = drives.bus();
            Task::Move { bytes, towards, alone, done }
        })
    }

    fn drives_mut(&mut self, node: NodeId) -> &mut Drives {
        self.host_mut(node).drives.as_mut().expect("a node with disks")
    }

    /// A write's data is in the drive's buffer.
    fn write_out(&mut self, node: NodeId, disk: u16, number: u64) {
        let now = self.now();
        let at = self.drives_mut(node).write_out(now, disk, number);
        self.later(node, at, Task::Tell(Done::Disk { node, disk, number }));
    }
}

impl Host {
    fn new(index: usize, setup: &NodeSetup) -> Host {
        let machine = &setup.station.machine;
        Host {
            index,
            calls: machine.files,
            copy: machine.host.copy,
            shares_bus: machine.bus.is_half_duplex(),
            drives: setup.disks.map(Drives::new),
        }
    }
}
