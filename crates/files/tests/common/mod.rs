//! A small cluster in one thread: I/O servers, a manager and clients over links that keep nothing, disks and logs in
//! memory. A server can be killed and started again with what a kill leaves: everything that its disk was given.
#![allow(dead_code)] // each test file uses its part

use endpoint::{Frames, HeapRegion};
use files::Config;
use files::cluster::{ClientRole, ManagerRole, NodeRoles, Services, names_store, start};
use files::conformance::{Asks, Client};
use node::rings::*;
use node::{Node, NodeConfig};
use rig::{put_packet, take_packet};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use store::{MemoryBackend, MemoryLogs, StorageBackend, Store};
use wire::{NodeId, Time, VolumeId};

const VOLUME: VolumeId = VolumeId(7);
pub const MANAGER: u16 = 1;

/// How the client is configured; the pool has this many pages.
pub const CLIENT_PAGES: usize = 4096;

/// The files of a manager's store.
pub type Copied = (Vec<u8>, MemoryLogs);

type Disk = BTreeMap<DiskFile, Vec<u8>>;

#[derive(Default)]
struct Machine {
    node: Option<Node>,
    services: Services,
    incarnation: u64,
    disk: Disk,
    /// Its disk takes no more, or is not there any more.
    full: bool,
    missing: bool,
    backend: Option<MemoryBackend>,
    logs: MemoryLogs,
    asks: Option<Asks>,
    /// It does not get the processor before.
    waits_until: Time,
}

pub struct World {
    machines: BTreeMap<u16, Machine>,
    io: Vec<u16>,
    pub now: Time,
    pub packets: u64,
    config: Config,
    /// State of the random numbers that say when machines get no processor; 0: they always do.
    load: u64,
}

impl World {
    /// A manager (node 1), `io` I/O servers (from 10 on), `clients` clients (from 100 on).
    pub fn new(io: u16, clients: u16) -> World {
        World::with(io, clients, Config::for_pool(CLIENT_PAGES * 4096))
    }

    pub fn with(io: u16, clients: u16, config: Config) -> World {
        let io: Vec<u16> = (10..10 + io).collect();
        let (machines, now) = (BTreeMap::new(), Time(1_000_000));
        let mut world = World { machines, io: io.clone(), now, packets: 0, config, load: 0 };
        let all = [MANAGER].into_iter().chain(io).chain(100..100 + clients);
        all.for_each(|id| world.start(id));
        world
    }

    pub fn start(&mut self, id: u16) {
        let (servers, config) =
            (self.io.iter().map(|id| names::IoServer::from(NodeId(*id))).collect(), self.config);
        let machine = self.machines.entry(id).or_default();
        machine.incarnation += 1;
        let incarnation = machine.incarnation;
        let disks = u16::from((10..100).contains(&id));
        let node_config = NodeConfig {
            disks,
            ..NodeConfig::new(NodeId(id), incarnation, incarnation * 1000 + u64::from(id))
        };
        let mut node = Node::new(node_config, Frames::new(HeapRegion::new(CLIENT_PAGES)));
        // Services look at the clock when they are made.
        node.step(self.now);
        node.set_wall(1_800_000_000_000_000_000);
        let mut roles = NodeRoles::default();
        if id == MANAGER {
            let backend = machine.backend.get_or_insert_with(MemoryBackend::new).clone();
            let logs: Vec<_> = machine.logs.contents().collect();
            let names = Store::open(backend, names_store(), logs).expect("the store opens");
            let volume = names::VolumeSettings::new(VOLUME);
            roles.manager = Some(ManagerRole { servers, ..ManagerRole::new(names, None, volume) });
        } else if disks > 0 {
            roles.io = Some(stripe::ServerConfig::new(VOLUME, NodeId(id), 4 << 20));
        } else {
            roles.client =
                Some(ClientRole { manager: NodeId(MANAGER), volume: VOLUME, files: config });
            machine.asks.get_or_insert_default();
        }
        machine.services = start(node.cx(), roles).expect("the services start");
        machine.node = Some(node);
    }

    /// Kills a node: what it had in memory is gone.
    pub fn kill(&mut self, id: u16) {
        let machine = self.machines.get_mut(&id).expect("a machine");
        machine.backend = machine.backend.as_ref().map(MemoryBackend::kill);
        machine.services = Services::default();
        machine.node = None;
    }

    /// The manager's machine loses power and starts again: what was not synced is gone.
    pub fn cut_power_of_manager(&mut self) {
        self.kill(MANAGER);
        let machine = self.machines.get_mut(&MANAGER).expect("a machine");
        let mut nothing = || 0;
        machine.backend = machine.backend.as_ref().map(|backend| backend.crash(&mut nothing));
        machine.logs.crash(&mut nothing);
        self.start(MANAGER);
    }

    /// From now on the disks of all I/O servers are full, or not.
    pub fn fill_disks(&mut self, full: bool) {
        for id in &self.io {
            self.machines.get_mut(id).expect("a machine").full = full;
        }
    }

    /// A bit of this block of every object that an I/O server has in place is another one.
    pub fn damage(&mut self, id: u16, block: u64) {
        let at = stripe::object::data_offset(block) as usize;
        let disk = &mut self.machines.get_mut(&id).expect("a machine").disk;
        let objects = disk.iter_mut().filter(|(file, _)| matches!(file, DiskFile::Object(_)));
        objects.for_each(|(_, bytes)| bytes[at] ^= 1);
    }

    /// From now on the disk of this I/O server is missing.
    pub fn lose_disk(&mut self, id: u16) {
        self.machines.get_mut(&id).expect("a machine").missing = true;
    }

    /// A new disk is in place of this I/O server's, which does not run.
    pub fn empty_disk(&mut self, id: u16) {
        self.machines.get_mut(&id).expect("a machine").disk.clear();
    }

    /// The manager, which does not run, starts with a new store.
    pub fn lose_names(&mut self) {
        let machine = self.machines.get_mut(&MANAGER).expect("a machine");
        (machine.backend, machine.logs) = (None, MemoryLogs::new());
        self.start(MANAGER);
    }

    /// The files of the manager's store as they are now.
    pub fn copy_names(&self) -> Copied {
        let machine = &self.machines[&MANAGER];
        let backend = machine.backend.as_ref().expect("a manager");
        let mut checkpoint = vec![0; backend.len().expect("a length") as usize];
        backend.read(0, &mut checkpoint).expect("read");
        (checkpoint, machine.logs.clone())
    }

    /// The manager, which does not run, starts from a copy that a person takes as it is.
    pub fn restore_names(&mut self, (checkpoint, logs): &Copied) {
        let (backend, mut logs) = (MemoryBackend::new(), logs.clone());
        backend.write(0, checkpoint).expect("written");
        let contents: Vec<_> = logs.contents().collect();
        let mut store = Store::open(backend.clone(), names_store(), contents).expect("it opens");
        for append in names::accept(&mut store).expect("accepted") {
            logs.append(append.log, &append.bytes);
        }
        drop(store);
        let mut checkpoint = vec![0; backend.len().expect("a length") as usize];
        backend.read(0, &mut checkpoint).expect("read");
        let backend = MemoryBackend::new();
        backend.write(0, &checkpoint).expect("written");
        let machine = self.machines.get_mut(&MANAGER).expect("a machine");
        (machine.backend, machine.logs) = (Some(backend), logs);
        self.start(MANAGER);
    }

    /// A striping client on client `index`'s node.
    pub fn stripe(&self, index: u16) -> stripe::Client {
        let cx = self.machines[&(100 + index)].node.as_ref().expect("it runs").cx();
        stripe::Client::new(cx, VOLUME)
    }

    /// The I/O server's disk is there again, from its next start on.
    pub fn return_disk(&mut self, id: u16) {
        self.machines.get_mut(&id).expect("a machine").missing = false;
    }

    /// From now on every machine is kept waiting now and then, for up to 20 ms.
    pub fn load(&mut self, seed: u64) {
        self.load = seed.max(1);
    }

    /// This machine gets no processor for so long.
    pub fn pause(&mut self, id: u16, span: Duration) {
        self.machines.get_mut(&id).expect("a machine").waits_until = self.now + span;
    }

    /// Which machines get no processor in this turn.
    fn keep_waiting(&mut self) {
        let (load, now) = (&mut self.load, self.now);
        if *load == 0 {
            return;
        }
        for machine in self.machines.values_mut().filter(|machine| machine.waits_until <= now) {
            *load = load.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let drawn = *load >> 40;
            let turns = if drawn % 16 == 0 { drawn / 16 % 200 } else { drawn / 16 % 3 };
            machine.waits_until = now + Duration::from_micros(100 * turns);
        }
    }

    pub fn restart(&mut self, id: u16) {
        self.kill(id);
        self.start(id);
    }

    pub fn client(&self, index: u16) -> Client<Asks> {
        let machine = &self.machines[&(100 + index)];
        let node = machine.node.as_ref().expect("it runs");
        let asks = machine.asks.clone().expect("a client");
        Client::new(asks, node.cx().frames().clone())
    }

    pub fn files(&self, index: u16) -> files::Files {
        self.machines[&(100 + index)].services.files.clone().expect("a client")
    }

    pub fn io(&self, id: u16) -> stripe::Server {
        self.machines[&id].services.io.clone().expect("an I/O server")
    }

    /// The handle of client `index`'s node, and a client of the manager on it, as an administrator's tool has one.
    pub fn names(&self, index: u16) -> (node::Cx, names::Client) {
        let cx = self.machines[&(100 + index)].node.as_ref().expect("it runs").cx().clone();
        let client = names::Client::new(&cx, NodeId(MANAGER), VOLUME);
        (cx, client)
    }

    pub fn free_pages(&self, index: u16) -> usize {
        self.machines[&(100 + index)].node.as_ref().expect("it runs").cx().frames().free_pages()
    }

    /// One turn: every node steps, every packet moves, a tenth of a millisecond passes.
    pub fn turn(&mut self) {
        let mut flying = Vec::new();
        self.keep_waiting();
        let now = self.now;
        for machine in self.machines.values_mut().filter(|machine| machine.waits_until <= now) {
            let Some(node) = &mut machine.node else { continue };
            if let Some(asks) = &machine.asks {
                serve_front(node, asks);
            }
            node.step(self.now);
            serve_disk(node, &mut machine.disk, machine.full, machine.missing);
            serve_meta(node, &mut machine.logs);
            flying.extend(std::iter::from_fn(|| take_packet(node)));
            if let Some(asks) = &machine.asks {
                while let Some(done) = node.take_front_done() {
                    asks.done(done);
                }
            }
        }
        self.packets += flying.len() as u64;
        for packet in flying {
            let to = packet.header().destination;
            let machine = self.machines.get(&to.0).and_then(|machine| machine.node.as_ref());
            machine.into_iter().for_each(|node| put_packet(node, &packet));
        }
        self.now = self.now + Duration::from_micros(100);
    }

    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.turn();
        }
    }

    /// Runs `task` on a node, to its end.
    pub fn block_on_node(&mut self, id: u16, task: impl Future<Output = ()> + 'static) {
        let done = Rc::new(Cell::new(false));
        let end = done.clone();
        let node = self.machines[&id].node.as_ref().expect("it runs");
        node.cx().spawn("test", async move {
            task.await;
            end.set(true);
        });
        self.block_on(std::future::poll_fn(|_| match done.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }));
    }

    /// Runs `body` to its end, for at most ten simulated minutes.
    pub fn block_on<T>(&mut self, body: impl Future<Output = T>) -> T {
        self.block_on_with(body, |_| ())
    }

    /// As `block_on`; after every turn `between` may change the world.
    pub fn block_on_with<T>(
        &mut self,
        body: impl Future<Output = T>,
        mut between: impl FnMut(&mut World),
    ) -> T {
        let mut body = Box::pin(body);
        let give_up = self.now + Duration::from_secs(600);
        while self.now < give_up {
            if let Poll::Ready(value) = poll(&mut body) {
                return value;
            }
            self.turn();
            between(self);
        }
        panic!("not done after ten minutes");
    }
}

/// Messages that `body` takes, requests and replies.
pub fn messages<T>(world: &mut World, body: impl Future<Output = T>) -> (u64, T) {
    let before = world.packets;
    let value = world.block_on(body);
    (world.packets - before, value)
}

fn poll<T>(body: &mut Pin<Box<impl Future<Output = T>>>) -> Poll<T> {
    body.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn serve_front(node: &Node, asks: &Asks) {
    while let Some(request) = asks.take_request() {
        if let Err(request) = node.front_push(request) {
            return asks.put_back(request);
        }
    }
}

fn serve_disk(node: &Node, disk: &mut Disk, full: bool, missing: bool) {
    let requests: VecDeque<_> = std::iter::from_fn(|| node.take_disk()).collect();
    for DiskRequest { ticket, op, .. } in requests {
        let result = match &op {
            _ if missing => Err(DiskError::Missing),
            DiskOp::Write { .. } if full => Err(DiskError::NoSpace),
            _ => do_disk(disk, op),
        };
        node.disk_done(DiskDone { ticket, result });
    }
}

fn do_disk(disk: &mut Disk, op: DiskOp) -> Result<DiskReply, DiskError> {
    match op {
        DiskOp::Read { file, offset, mut into } => {
            let bytes = disk.get(&file).ok_or(DiskError::NotFound)?;
            let from = bytes.len().min(offset as usize);
            let count = into.len().min(bytes.len() - from);
            into[..count].copy_from_slice(&bytes[from..from + count]);
            return Ok(DiskReply::Read { into, bytes: count });
        }
        DiskOp::Write { file, offset, data, .. } => {
            let bytes = disk.entry(file).or_default();
            let end = offset as usize + data.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset as usize..end].copy_from_slice(&data);
        }
        DiskOp::Sync { .. } | DiskOp::SyncAll => {}
        DiskOp::Truncate { file, bytes } => disk.entry(file).or_default().resize(bytes as usize, 0),
        DiskOp::FindData { file, offset, bytes } => {
            let there = disk.get(&file).ok_or(DiskError::NotFound)?;
            return Ok(DiskReply::Data(rig::holes::find_data(there, offset, bytes)));
        }
        DiskOp::Punch { file, offset, bytes } => {
            let there = disk.get_mut(&file).ok_or(DiskError::NotFound)?;
            rig::holes::punch(there, offset, bytes);
        }
        DiskOp::Remove { file } => drop(disk.remove(&file)),
        DiskOp::Rename { from, to } => {
            let bytes = disk.remove(&from).ok_or(DiskError::NotFound)?;
            disk.insert(to, bytes);
        }
        DiskOp::Stat { file, without } => {
            let there = disk.get(&file).ok_or(DiskError::NotFound)?;
            let within = |(at, bytes): &(u64, u64)| rig::holes::stored(there, *at, *bytes);
            let (bytes, without) = (there.len() as u64, without.iter().map(within).sum::<u64>());
            let used = rig::holes::stored(there, 0, bytes) - without;
            return Ok(DiskReply::Stat { bytes, used, changed: 0 });
        }
        DiskOp::List(listing) => return Ok(DiskReply::Files(list(disk, listing))),
        DiskOp::Space => return Ok(DiskReply::Space { total: 1 << 40, free: 1 << 39, device: 0 }),
    }
    Ok(DiskReply::Done)
}

fn list(disk: &Disk, listing: DiskListing) -> Vec<DiskFile> {
    let files = disk.keys().copied();
    match listing {
        DiskListing::Logs => files.filter(|file| matches!(file, DiskFile::Log(_))).collect(),
        DiskListing::Quarantined => {
            files.filter(|file| matches!(file, DiskFile::Quarantined(_))).collect()
        }
        DiskListing::Objects { after, count } => files
            .filter(|file| match file {
                DiskFile::Object(object) => after.is_none_or(|after| *object > after),
                _ => false,
            })
            .take(count)
            .collect(),
    }
}

fn serve_meta(node: &Node, logs: &mut MemoryLogs) {
    let requests: Vec<_> = std::iter::from_fn(|| node.take_meta()).collect();
    for MetaRequest { ticket, op, .. } in requests {
        let result = match op {
            MetaOp::Append { log, bytes } => {
                logs.append(log, &bytes);
                Ok(())
            }
            MetaOp::Sync { log } => {
                logs.sync(log);
                Ok(())
            }
            MetaOp::Checkpoint(work) => work.run().map_err(MetaError::from),
            MetaOp::DropLog { log } => {
                logs.remove(log);
                Ok(())
            }
            MetaOp::Room => Ok(()),
        };
        node.meta_done(MetaDone { ticket, result, room: MetaRoom::Plenty });
    }
}
