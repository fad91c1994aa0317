//! A small world: a client node, I/O servers with disks that forget, and a link between them.
#![allow(dead_code)] // each test file uses its part

pub mod decaying;
pub mod disk;
pub mod manager;

use disk::Disk;
use endpoint::{Frame, Frames, HeapRegion};
use manager::Manager;
use node::rings::{DiskDone, DiskFile, DiskOp, DiskRequest};
use node::{Cx, Node, NodeConfig, Pieces};
use rig::{Packet, put_packet, take_packet};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use stripe::{Client, FileRef, Server, ServerConfig, Write, serve};
use wire::{Errno, FileId, Home, Layout, NodeId, ObjectId, Time, VolumeId};

pub const VOLUME: VolumeId = VolumeId(7);
const CLIENT: NodeId = NodeId(100);
const TURN: Duration = Duration::from_micros(200);

pub struct Machine {
    pub node: Node,
    pub server: Option<Server>,
    pub disks: Vec<Disk>,
    config: ServerConfig,
    /// Bytes that the node lends to all; 0 for a node without network memory.
    lent: usize,
    incarnation: u64,
    under_way: VecDeque<(u64, DiskRequest)>,
    /// It is a member, so that its disks may be in groups.
    member: Option<members::Client>,
    /// It does nothing.
    pub is_paused: bool,
    /// Position of the arm, when disks are swept.
    arm: (u64, DiskFile),
}

pub struct World {
    pub now: Time,
    pub client: Client,
    client_node: Node,
    pub servers: Vec<Machine>,
    pub manager: Option<Manager>,
    flying: VecDeque<(NodeId, Packet)>,
    /// Turns a disk operation takes at most.
    pub disk_turns: u64,
    /// Reads of objects from this byte of their files on take this long.
    pub stall: Option<(u64, Duration)>,
    /// Writes of objects take this long, so that what is in the log is long on its way into place.
    pub slow_objects: Option<Duration>,
    /// Disks do one operation a turn, in the order of their places in the files, like the arm of a magnetic disk.
    pub sweep: bool,
    /// Changes packets on their way to or from servers.
    pub meddle: Option<Box<dyn FnMut(&mut Vec<u8>)>>,
    /// Nodes that do not hear each other.
    pub cuts: Vec<[NodeId; 2]>,
}

fn node(id: NodeId, incarnation: u64, disks: u16) -> Node {
    let mut config = NodeConfig::new(id, incarnation, incarnation * 1000 + u64::from(id.0));
    config.disks = disks;
    Node::new(config, Frames::new(HeapRegion::new(4096)))
}

/// A node's part in network memory, which begins at once.
fn lending(bytes: usize) -> netmem::service::Config {
    let mut config = netmem::service::Config::new(bytes);
    config.directory_bytes = 4096 * netmem::Directory::ENTRY_BYTES;
    config.local_min_bytes = 0;
    config.epoch.slow_start = Duration::from_millis(1);
    config.epoch.period = Duration::from_millis(50);
    config
}

/// Small limits, so that everything that depends on them happens.
pub fn small(server: NodeId) -> ServerConfig {
    ServerConfig {
        dirty_bytes_max: 2 << 20,
        slots: 8,
        checkpoint_bytes: 512 << 10,
        ..ServerConfig::new(VOLUME, server, 4 << 20)
    }
}

impl Machine {
    fn new(config: ServerConfig, disks: Vec<Disk>, incarnation: u64, lent: usize) -> Machine {
        let node = node(config.server, incarnation, disks.len() as u16);
        let memory = (lent > 0).then(|| netmem::Service::start(node.cx(), lending(lent)));
        let config = ServerConfig { memory, ..config };
        let server = Some(serve(node.cx(), config.clone()));
        Machine::of(node, server, disks, config, lent, incarnation, None)
    }

    fn of(
        node: Node,
        server: Option<Server>,
        disks: Vec<Disk>,
        config: ServerConfig,
        lent: usize,
        incarnation: u64,
        member: Option<members::Client>,
    ) -> Machine {
        let (under_way, arm) = (VecDeque::new(), (0, DiskFile::Label));
        let is_paused = false;
        Machine {
            node,
            server,
            disks,
            config,
            lent,
            incarnation,
            under_way,
            member,
            is_paused,
            arm,
        }
    }

    /// A server that is a member.
    pub fn member(config: ServerConfig, disks: Vec<Disk>, incarnation: u64) -> Machine {
        let node = node(config.server, incarnation, disks.len() as u16);
        let (config, member) = manager::join(node.cx(), config, disks.len());
        let server = serve(node.cx(), config.clone());
        manager::tell(node.cx(), &server, &member);
        Machine::of(node, Some(server), disks, config, 0, incarnation, Some(member))
    }

    /// The node's network memory.
    pub fn memory(&self) -> netmem::Service {
        self.config.memory.clone().expect("it lends memory")
    }

    fn serve_disks(
        &mut self,
        now: Time,
        turns: u64,
        late_of: impl Fn(&DiskOp) -> Option<Duration>,
    ) {
        while let Some(request) = self.node.take_disk() {
            let disk = &mut self.disks[usize::from(request.disk.0)];
            let late = if turns > 1 { disk.random(turns) } else { 0 };
            let late = late_of(&request.op).unwrap_or(TURN * late as u32);
            self.under_way.push_back((now.0 + late.as_nanos() as u64, request));
        }
        for _ in 0..self.under_way.len() {
            let (due, request) = self.under_way.pop_front().unwrap();
            if due > now.0 {
                self.under_way.push_back((due, request));
                continue;
            }
            let result = self.disks[usize::from(request.disk.0)].run(request.op);
            self.node.disk_done(DiskDone { ticket: request.ticket, result });
        }
    }

    fn sweep_disks(&mut self) {
        let requests = std::iter::from_fn(|| self.node.take_disk());
        self.under_way.extend(requests.map(|request| (0, request)));
        let places = self.under_way.iter().map(|(_, request)| place(&request.op)).enumerate();
        let next = places.min_by_key(|(_, place)| (*place < self.arm, *place));
        let Some((at, place)) = next else { return };
        self.arm = place;
        let (_, request) = self.under_way.remove(at).expect("just found");
        let result = self.disks[usize::from(request.disk.0)].run(request.op);
        self.node.disk_done(DiskDone { ticket: request.ticket, result });
    }

    /// Power goes and comes back.
    pub fn crash(&mut self) {
        self.restart(true);
    }

    /// The process is killed and started again: what it wrote is there.
    pub fn kill(&mut self) {
        self.restart(false);
    }

    fn restart(&mut self, power: bool) {
        for (_, request) in std::mem::take(&mut self.under_way) {
            self.disks[usize::from(request.disk.0)].cut_short(request.op);
        }
        let mut disks = std::mem::take(&mut self.disks);
        disks.iter_mut().for_each(|disk| if power { disk.crash() } else { disk.sync_all() });
        let (config, incarnation) = (self.config.clone(), self.incarnation + 1);
        *self = match self.member {
            Some(_) => Machine::member(config, disks, incarnation),
            None => Machine::new(config, disks, incarnation, self.lent),
        };
    }
}

/// Position on the disk of an operation: first windows of all files, then their second ones.
fn place(op: &DiskOp) -> (u64, DiskFile) {
    match op {
        DiskOp::Read { file, offset, .. } | DiskOp::Write { file, offset, .. } => (*offset, *file),
        _ => (0, DiskFile::Label),
    }
}

fn stalled(op: &DiskOp, stall: Option<(u64, Duration)>) -> Option<Duration> {
    let DiskOp::Read { file: DiskFile::Object(_), offset, .. } = op else { return None };
    stall.filter(|(from, _)| offset >= from).map(|(_, span)| span)
}

fn slowed(op: &DiskOp, slow: Option<Duration>) -> Option<Duration> {
    slow.filter(|_| matches!(op, DiskOp::Write { file: DiskFile::Object(_), .. }))
}

impl World {
    pub fn new(servers: u16, disks: u16) -> World {
        World::with(servers, disks, 1, small)
    }

    pub fn with(servers: u16, disks: u16, seed: u64, config: fn(NodeId) -> ServerConfig) -> World {
        let client_node = node(CLIENT, 1, 0);
        let machine = |id: u16| {
            let disks = (0..disks).map(|disk| Disk::new(seed * 977 + u64::from(id * 31 + disk)));
            Machine::new(config(NodeId(id)), disks.collect(), 1, 0)
        };
        let mut world = World {
            now: Time(1),
            client: Client::new(client_node.cx(), VOLUME),
            client_node,
            servers: (1..=servers).map(machine).collect(),
            manager: None,
            flying: VecDeque::new(),
            disk_turns: 1,
            stall: None,
            slow_objects: None,
            sweep: false,
            meddle: None,
            cuts: Vec::new(),
        };
        world.turns(20);
        world
    }

    /// One server with a disk, and others that only lend memory: so many bytes each. Epochs have begun.
    pub fn lending(lent: &[usize]) -> World {
        let mut world = World::with(lent.len() as u16, 1, 1, small);
        for (server, lent) in world.servers.iter_mut().zip(lent) {
            server.lent = *lent;
            server.kill();
        }
        world.tell_view(1);
        world.turns(1_500);
        world
    }

    /// All nodes with network memory hear of each other in their present incarnations.
    pub fn tell_view(&self, number: u64) {
        let up = |server: &Machine| netmem::service::Up {
            node: server.config.server,
            incarnation: server.incarnation,
            weight: 100,
            machine: 0,
        };
        let view = netmem::service::View::new(number, self.servers.iter().map(up).collect());
        self.servers.iter().for_each(|server| server.memory().set_view(view.clone()));
    }

    pub fn cx(&self) -> Cx {
        self.client_node.cx().clone()
    }

    pub fn file(&self, file: u64) -> FileRef {
        self.striped(file, 32 * 1024)
    }

    /// A file on the first server alone.
    pub fn single(&self, file: u64) -> FileRef {
        let home = Home { server: self.servers[0].config.server, disk: 0 };
        FileRef {
            layout: Layout::new(1, 32 * 1024, &[home]).unwrap(),
            ..self.striped(file, 32 * 1024)
        }
    }

    pub fn striped(&self, file: u64, unit: u32) -> FileRef {
        let home = |machine: &Machine| Home {
            server: machine.config.server,
            disk: (file % machine.disks.len().max(1) as u64) as u8,
        };
        let homes: Vec<Home> = self.servers.iter().map(home).collect();
        let layout = Layout::new(1, unit, &homes).unwrap();
        FileRef { file: FileId(file), layout, truncations: 0 }
    }

    /// The one object of a file on server 1.
    pub fn object(file: u64, column: u16) -> DiskFile {
        DiskFile::Object(ObjectId { volume: VOLUME, file: FileId(file), column })
    }

    fn collect(&mut self) {
        let nodes = self.servers.iter().map(|s| &s.node).chain([&self.client_node]);
        for node in nodes.chain(self.manager.as_ref().map(|manager| &manager.node)) {
            while let Some(mut packet) = take_packet(node) {
                if let Some(meddle) = self.meddle.as_mut().filter(|_| !packet.data.is_empty()) {
                    meddle(&mut packet.data);
                }
                self.flying.push_back((packet.header().destination, packet));
            }
        }
    }

    pub fn turn(&mut self) {
        for (to, packet) in std::mem::take(&mut self.flying) {
            let from = packet.header().source;
            if self.cuts.iter().any(|cut| cut.contains(&from) && cut.contains(&to)) {
                continue;
            }
            let nodes = self.servers.iter().map(|s| &s.node);
            let managers = self.manager.iter().filter(|it| !it.is_away).map(|it| &it.node);
            let mut nodes = nodes.chain([&self.client_node]).chain(managers);
            if let Some(node) = nodes.find(|node| node.cx().id() == to) {
                put_packet(node, &packet);
            }
        }
        self.client_node.step(self.now);
        if let Some(manager) = &mut self.manager {
            manager.node.step(self.now);
            manager.serve_meta();
        }
        for server in self.servers.iter_mut().filter(|server| !server.is_paused) {
            server.node.step(self.now);
            if self.sweep {
                server.sweep_disks();
            } else {
                let (stall, slow) = (self.stall, self.slow_objects);
                let late_of = |op: &DiskOp| stalled(op, stall).or_else(|| slowed(op, slow));
                server.serve_disks(self.now, self.disk_turns, late_of);
            }
        }
        self.collect();
        self.now = self.now + TURN;
    }

    pub fn turns(&mut self, turns: usize) {
        (0..turns).for_each(|_| self.turn());
    }

    /// Starts a task of the client; where its result will be.
    pub fn start<T: 'static>(
        &mut self,
        task: impl Future<Output = T> + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let done = Rc::new(RefCell::new(None));
        let result = done.clone();
        self.cx().spawn("test", async move {
            *result.borrow_mut() = Some(task.await);
        });
        done
    }

    /// Runs a task of the client to its end, for at most two simulated minutes.
    pub fn run<T: 'static>(&mut self, task: impl Future<Output = T> + 'static) -> T {
        let done = self.start(task);
        self.until(|| done.borrow().is_some());
        done.take().expect("done")
    }

    /// Turns until something is so, for at most two simulated minutes.
    pub fn until(&mut self, done: impl Fn() -> bool) {
        for _ in 0..600_000 {
            if done() {
                return;
            }
            self.turn();
        }
        panic!("not done after two minutes");
    }

    /// Runs a task of a server's node.
    pub fn run_on<T: 'static>(
        &mut self,
        server: usize,
        task: impl Future<Output = T> + 'static,
    ) -> T {
        let done = Rc::new(RefCell::new(None));
        let result = done.clone();
        self.servers[server].node.cx().spawn("test", async move {
            *result.borrow_mut() = Some(task.await);
        });
        self.until(|| done.borrow().is_some());
        done.take().expect("done")
    }

    /// Server 1 has everything on its disks, and nothing in memory.
    pub fn forget_memory(&mut self) {
        self.flush(0);
        self.servers[0].kill();
        self.turns(50);
    }

    pub fn flush(&mut self, server: usize) {
        let service = self.servers[server].server.clone().unwrap();
        self.run_on(server, async move { service.flush().await }).unwrap();
    }

    pub fn write(
        &mut self,
        file: &FileRef,
        offset: u64,
        bytes: &[u8],
    ) -> Result<stripe::Verifiers, Errno> {
        self.write_as(file, offset, bytes, Write::Unstable)
    }

    fn write_as(
        &mut self,
        file: &FileRef,
        offset: u64,
        bytes: &[u8],
        how: Write<'static>,
    ) -> Result<stripe::Verifiers, Errno> {
        let (client, file) = (self.client.clone(), *file);
        let data = data(&self.cx(), bytes);
        self.run(async move { client.write(&file, offset, data, how).await })
    }

    /// A write by another client: the first server's own node.
    pub fn write_as_another(&mut self, file: &FileRef, offset: u64, bytes: &[u8]) {
        let (cx, file) = (self.servers[0].node.cx().clone(), *file);
        let data = data(&cx, bytes);
        let client = Client::new(&cx, VOLUME);
        self.run_on(0, async move { client.write(&file, offset, data, Write::Unstable).await })
            .unwrap();
    }

    /// Sends again what a server may have forgotten.
    pub fn rewrite(
        &mut self,
        file: &FileRef,
        offset: u64,
        bytes: &[u8],
        earlier: &stripe::Verifiers,
    ) -> Result<stripe::Verifiers, Errno> {
        let earlier = Box::leak(Box::new(*earlier)); // a task lends nothing
        self.write_as(file, offset, bytes, Write::Again(earlier))
    }

    /// A write that is asked to be stable at once.
    pub fn write_stably(
        &mut self,
        file: &FileRef,
        offset: u64,
        bytes: &[u8],
    ) -> Result<stripe::Verifiers, Errno> {
        self.write_as(file, offset, bytes, Write::Stable)
    }

    pub fn commit(&mut self, file: &FileRef) -> Result<stripe::Verifiers, Errno> {
        let done = self.start_commit(file);
        self.until(|| done.borrow().is_some());
        done.take().expect("done")
    }

    /// Starts a commit; where its result will be.
    pub fn start_commit(
        &mut self,
        file: &FileRef,
    ) -> Rc<RefCell<Option<Result<stripe::Verifiers, Errno>>>> {
        let (client, file) = (self.client.clone(), *file);
        self.start(async move { client.commit(&file, &all_columns(&file)).await })
    }

    /// Power goes while the first server writes `bytes` in place over all of a file that is stable.
    pub fn crash_in_commit(&mut self, file: &FileRef, bytes: &[u8]) {
        self.flush(0);
        self.disk_turns = 6;
        self.write(file, 0, bytes).unwrap();
        let commit = self.start_commit(file);
        self.turns(18);
        assert!(commit.borrow().is_none());
        self.servers[0].crash();
    }

    pub fn truncate(&mut self, file: &FileRef, size: u64) -> Result<(), Errno> {
        let (client, file) = (self.client.clone(), *file);
        self.run(async move { client.truncate(&file, size).await })
    }

    pub fn size(&mut self, file: &FileRef) -> u64 {
        let (client, file) = (self.client.clone(), *file);
        self.run(async move { client.attributes(&file).await }).unwrap().size
    }

    /// Any range, read as the client reads it: aligned, in pieces of at most 1 MiB.
    pub fn read(&mut self, file: &FileRef, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        let start = offset / 4096 * 4096;
        let end = offset + bytes as u64;
        let mut out = Vec::new();
        let mut at = start;
        while at < end {
            let count = (end - at).min(1 << 20) as usize;
            let into = self.cx().frames().alloc_exact(count).expect("memory");
            let (client, file) = (self.client.clone(), *file);
            let frame = self.run(async move { client.read(&file, at, into).await })?;
            out.extend_from_slice(&frame);
            at += count as u64;
        }
        Ok(out[(offset - start) as usize..].to_vec())
    }
}

pub fn all_columns(file: &FileRef) -> stripe::Verifiers {
    let mut all = stripe::Verifiers::default();
    (0..file.layout.width()).for_each(|column| all.set(column, 0));
    all
}

/// Bytes as frames of odd lengths, as callers may give them.
pub fn data(cx: &Cx, bytes: &[u8]) -> Pieces<Frame> {
    let mut pieces = cx.pieces();
    for chunk in bytes.chunks(100_000) {
        pieces.push(cx.frames().copy_of(chunk).expect("memory"));
    }
    pieces
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// A world whose file 5 has `bytes` of `pattern(1, ..)` on stable storage.
pub fn committed(servers: u16, disks: u16, bytes: usize) -> (World, FileRef) {
    let mut world = World::new(servers, disks);
    let file = world.file(5);
    world.write(&file, 0, &pattern(1, bytes)).unwrap();
    world.commit(&file).unwrap();
    (world, file)
}
