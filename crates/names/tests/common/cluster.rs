//! A manager and clients over a bad link, and objects of which only lengths and generations are kept.

use super::{Output, ROOT, config, finish};
use names::{
    Client, Config, Entry, Final, Handle, How, IoServer, Objects, ObjectsOf, VolumeSettings, Who,
    accept, serve,
};
use node::Cx;
use node::rings::{MetaDone, MetaError, MetaOp, MetaRoom, VolumeSpace};
use rig::{Net, node};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use store::{MemoryBackend, MemoryLogs, StorageBackend, Store};
use stripe::protocol::{ObjectReply, Role, Shape};
use stripe::{Description, Kept, Told, Witness};
use wire::{Errno, FileId, Fragment, Home, NodeId, ObjectId, VolumeId, Wall};

pub const WHO: Who<'static> = Who::ROOT;
pub const MANAGER: NodeId = NodeId(1);

/// Objects of which only lengths and generations are kept.
#[derive(Clone, Default)]
pub struct Fake(pub Rc<State>);

#[derive(Default)]
pub struct State {
    pub sizes: RefCell<BTreeMap<FileId, (u64, u32)>>,
    pub removed: RefCell<Vec<FileId>>,
    pub down: Cell<bool>,
    /// They can be emptied, and not cut anywhere else.
    pub uncuttable: Cell<bool>,
    /// Set: objects that were removed not long ago are refused.
    pub buried: Cell<bool>,
    /// Set: nothing is truncated until it is not.
    pub stuck: RefCell<Option<Cx>>,
    /// Set: lengths are told a second after they were found out.
    pub late: RefCell<Option<Cx>>,
    /// How often they were asked for their lengths.
    pub asked: Cell<u64>,
    /// One that cannot be read.
    pub unreadable: Cell<Option<ObjectId>>,
    /// One that is set aside with an error.
    pub unstable: Cell<Option<ObjectId>>,
    /// Requests to remove objects, each of many files.
    pub removals: Cell<usize>,
    /// The server whose objects were asked for last.
    pub listed: Cell<NodeId>,
    /// The manager's state as each server was told, and servers that do not answer about that.
    pub witnesses: RefCell<BTreeMap<NodeId, Witness>>,
    pub others: RefCell<BTreeMap<(NodeId, NodeId), Witness>>,
    pub silent: RefCell<BTreeSet<NodeId>>,
    /// Set: no object is answered for.
    pub absent: Cell<bool>,
    /// Objects' replies.
    pub columns: RefCell<BTreeMap<(NodeId, ObjectId), ObjectReply>>,
    /// Objects' roles, where they are no columns.
    pub roles: RefCell<BTreeMap<(NodeId, ObjectId), Role>>,
    /// Descriptions that objects have, how often they were told, and which incarnation each server is.
    pub described: RefCell<BTreeMap<(Home, ObjectId), Description>>,
    pub descriptions: Cell<usize>,
    pub verifier: Cell<u64>,
    /// Objects on the servers, and those set aside.
    pub stored: RefCell<BTreeSet<(NodeId, ObjectId)>>,
    pub aside: RefCell<BTreeSet<(NodeId, ObjectId)>>,
}

impl Fake {
    fn check(&self) -> Result<(), Errno> {
        if self.0.down.get() { Err(Errno::EHOSTDOWN) } else { Ok(()) }
    }
}

impl Objects for Fake {
    async fn truncate(&self, objects: &ObjectsOf, size: u64) -> Result<(), Errno> {
        self.check()?;
        let stuck = || self.0.stuck.borrow().clone();
        while let Some(cx) = stuck() {
            cx.sleep(Duration::from_millis(100)).await;
        }
        if self.0.buried.get() {
            return Err(Errno::ESTALE);
        }
        if size > 0 && self.0.uncuttable.get() {
            return Err(Errno::EIO);
        }
        self.0.sizes.borrow_mut().insert(objects.file, (size, objects.truncations));
        Ok(())
    }
    async fn remove(&self, files: &[ObjectsOf]) -> Vec<Result<(), Errno>> {
        self.0.removals.set(self.0.removals.get() + 1);
        let removed = |objects: &ObjectsOf| {
            self.check()?;
            self.0.removed.borrow_mut().push(objects.file);
            Ok(())
        };
        files.iter().map(removed).collect()
    }
    async fn totals(&self, objects: &ObjectsOf) -> Result<Final, Errno> {
        self.check()?;
        self.0.asked.set(self.0.asked.get() + 1);
        let size = self.0.sizes.borrow().get(&objects.file).map_or(0, |found| found.0);
        let mtime = Wall { seconds: 1 << 40, nanos: 0 };
        let late = self.0.late.borrow().clone();
        if let Some(cx) = late {
            cx.sleep(Duration::from_secs(1)).await;
        }
        let known = self.0.columns.borrow();
        let there = known.keys().filter(|(_, object)| object.file == objects.file);
        let present = there.fold(0, |mask, (_, object)| mask | 1u32 << object.column);
        let (used, truncations) = (Some(size), objects.truncations);
        Ok(Final { size, mtime, used, truncations, present })
    }
    async fn columns(&self, objects: &ObjectsOf) -> Vec<Result<ObjectReply, Errno>> {
        if self.0.absent.get() {
            return vec![Err(Errno::ETIMEDOUT); objects.layout.width().into()];
        }
        let known = self.0.columns.borrow();
        let column = |(column, home): (u16, Home)| {
            let object = ObjectId { volume: VolumeId(5), file: objects.file, column };
            known.get(&(home.server, object)).copied().ok_or(Errno::ENOENT)
        };
        (0..).zip(objects.layout.homes()).map(column).collect()
    }
    async fn set_layout(&self, _: &ObjectsOf) -> Result<(), Errno> {
        self.check()?;
        if self.0.buried.get() { Err(Errno::ESTALE) } else { Ok(()) }
    }
    async fn leave_column(&self, objects: &ObjectsOf, _: u16) -> Result<(), Errno> {
        self.check()?;
        for (column, home) in (0..).zip(objects.layout.homes()) {
            let object = ObjectId { volume: VolumeId(5), file: objects.file, column };
            if let Some(told) = self.0.columns.borrow_mut().get_mut(&(home.server, object)) {
                told.epoch = objects.layout.epoch;
            }
        }
        Ok(())
    }
    fn learn_map(&self, _: FileId, _: u32, _: &[Fragment]) {}
    async fn copy_column(
        &self,
        _: &ObjectsOf,
        to: &ObjectsOf,
        column: u16,
        _: u64,
        _: bool,
    ) -> Result<(), Errno> {
        self.check()?;
        let object = ObjectId { volume: VolumeId(5), file: to.file, column };
        self.0.stored.borrow_mut().insert((to.layout.server(column), object));
        Ok(())
    }
    async fn vacate_column(&self, objects: &ObjectsOf, column: u16) -> Result<(), Errno> {
        self.check()?;
        let object = ObjectId { volume: VolumeId(5), file: objects.file, column };
        let place = (objects.layout.server(column), object);
        if let Some(told) = self.0.columns.borrow_mut().get_mut(&place) {
            assert_eq!(told.epoch, objects.layout.epoch, "another one is refused");
            told.length = 0;
        }
        Ok(())
    }
    async fn list(
        &self,
        server: NodeId,
        after: Option<ObjectId>,
        count: usize,
    ) -> Result<Vec<Kept>, Errno> {
        self.0.listed.set(server);
        let all = self.0.stored.borrow();
        let of_it = all.iter().filter(|(at, id)| *at == server && Some(*id) > after);
        Ok(of_it.map(|(_, object)| Kept { object: *object, disk: 0 }).take(count).collect())
    }
    async fn quarantine(&self, server: NodeId, kept: Kept) -> Result<u64, Errno> {
        self.check()?;
        if self.0.unreadable.get() == Some(kept.object) {
            return Err(Errno::EIO);
        }
        if !self.0.stored.borrow_mut().remove(&(server, kept.object)) {
            return Err(Errno::ENOENT);
        }
        self.0.aside.borrow_mut().insert((server, kept.object));
        if self.0.unstable.get() == Some(kept.object) {
            return Err(Errno::EIO);
        }
        Ok(77)
    }
    async fn restore(&self, server: NodeId, kept: Kept) -> Result<(), Errno> {
        self.check()?;
        if !self.0.aside.borrow_mut().remove(&(server, kept.object)) {
            return Err(Errno::ENOENT);
        }
        self.0.stored.borrow_mut().insert((server, kept.object));
        Ok(())
    }
    async fn purge(&self, server: NodeId, kept: Kept) -> Result<(), Errno> {
        self.0.aside.borrow_mut().remove(&(server, kept.object));
        Ok(())
    }
    async fn witness(
        &self,
        server: NodeId,
        manager: NodeId,
        told: Witness,
    ) -> Result<Witness, Errno> {
        let silent = self.0.silent.borrow().contains(&server);
        if silent || self.0.down.get() {
            return Err(Errno::EHOSTDOWN);
        }
        let (mut first, mut others) = (self.0.witnesses.borrow_mut(), self.0.others.borrow_mut());
        let known = match manager {
            NodeId(0) => first.entry(server).or_default(),
            manager => others.entry((server, manager)).or_default(),
        };
        if told.is_beyond(known) {
            *known = told;
        }
        Ok(*known)
    }
    async fn describe(
        &self,
        home: Home,
        objects: &[(ObjectId, Description)],
    ) -> (Option<u64>, Vec<Result<(), Errno>>) {
        let silent = self.0.silent.borrow().contains(&home.server);
        if silent || self.0.down.get() {
            return (None, vec![Err(Errno::EHOSTDOWN); objects.len()]);
        }
        self.0.descriptions.set(self.0.descriptions.get() + objects.len());
        let mut described = self.0.described.borrow_mut();
        let told = objects.iter().map(|(object, description)| {
            let known = described.entry((home, *object)).or_default();
            let (path, present) = (std::mem::take(&mut known.path), known.present);
            *known = description.clone();
            known.present |= present;
            if known.path.is_empty() {
                known.path = path;
            }
            if known.path.is_empty() { Err(Errno::ENODATA) } else { Ok(()) }
        });
        (Some(self.0.verifier.get()), told.collect())
    }
    async fn describe_all(
        &self,
        objects: &ObjectsOf,
        description: &Description,
    ) -> Result<(), Errno> {
        self.check()?;
        for (column, home) in (0..).zip(objects.layout.homes()) {
            let object = ObjectId { volume: VolumeId(5), file: objects.file, column };
            let mut described = self.0.described.borrow_mut();
            let known = described.entry((home, object)).or_default();
            let path = std::mem::take(&mut known.path);
            *known = Description { path, ..description.clone() };
        }
        Ok(())
    }
    async fn description(&self, server: NodeId, kept: Kept) -> Result<(ObjectReply, Told), Errno> {
        if self.0.absent.get() {
            return Err(Errno::ETIMEDOUT);
        }
        let known = self.0.columns.borrow();
        let reply = known.get(&(server, kept.object)).copied().ok_or(Errno::ENOENT)?;
        let home = Home { server, disk: kept.disk };
        let description = self.0.described.borrow().get(&(home, kept.object)).cloned();
        let role = self.0.roles.borrow().get(&(server, kept.object)).copied().unwrap_or_default();
        Ok((reply, Told { description, shape: Shape { role, ..Shape::default() } }))
    }
    async fn space(&self, servers: &[NodeId]) -> Result<VolumeSpace, Errno> {
        let bytes = servers.len() as u64 * 100;
        Ok(VolumeSpace { total_bytes: bytes, free_bytes: bytes / 2, ..VolumeSpace::default() })
    }
}

fn no_room() -> MetaError {
    MetaError { full: true, reason: "no room".into() }
}

/// The I/O servers.
pub const SERVERS: [NodeId; 3] = [NodeId(11), NodeId(12), NodeId(13)];

/// A manager on node 1, clients on the others.
pub struct Cluster {
    pub net: Net,
    pub objects: Fake,
    pub backend: MemoryBackend,
    pub logs: MemoryLogs,
    pub incarnation: u64,
    pub syncs: u64,
    pub checkpoints: u64,
    pub handle: Option<Handle>,
    /// Servers that the manager knows of when it starts.
    pub servers: Vec<NodeId>,
    /// Servers that the next start asks.
    pub witnesses: Vec<NodeId>,
    pub append_fails: bool,
    /// The disk's reserve is in use.
    pub meta_room: MetaRoom,
    /// Bytes of all logs beyond which there is no room for more of them.
    pub log_bytes_max: usize,
    /// The log and the checkpoint do not answer.
    pub stalled: bool,
    /// Room for a record; a checkpoint needs more.
    pub room: usize,
    /// Overlay of the next incarnation's store.
    pub overlay_bytes_max: usize,
}

impl Cluster {
    pub fn new(clients: u16) -> Cluster {
        let mut cluster = Cluster {
            net: Net::new(1 + clients),
            objects: Fake::default(),
            backend: MemoryBackend::new(),
            logs: MemoryLogs::new(),
            incarnation: 1,
            syncs: 0,
            checkpoints: 0,
            handle: None,
            servers: SERVERS.to_vec(),
            witnesses: Vec::new(),
            append_fails: false,
            meta_room: MetaRoom::Plenty,
            log_bytes_max: usize::MAX,
            stalled: false,
            room: usize::MAX,
            overlay_bytes_max: config().overlay_bytes_max,
        };
        cluster.start();
        cluster
    }

    pub fn start(&mut self) {
        let logs: Vec<_> = self.logs.contents().collect();
        let limits = store::Config { overlay_bytes_max: self.overlay_bytes_max, ..config() };
        let store = Store::open(self.backend.clone(), limits, logs).unwrap();
        let servers = self.servers.iter().map(|id| IoServer::from(*id)).collect();
        let witnesses = self.witnesses.clone();
        let volume = VolumeSettings::new(VolumeId(5));
        let config =
            Config { volume, servers, witnesses, scrub: None, first: None, managers: Vec::new() };
        let cx = self.net.nodes[0].cx();
        self.handle = Some(serve(cx, config, store, self.objects.clone()).unwrap());
    }

    /// kill -9 of the manager, then its next incarnation.
    pub fn restart(&mut self) {
        self.incarnation += 1;
        self.backend = self.backend.kill();
        self.net.nodes[0] = node(1, self.incarnation);
        self.start();
    }

    /// The manager's machine loses power: what was not synced is gone.
    pub fn power_cut(&mut self) {
        let mut nothing = || 0;
        self.backend = self.backend.crash(&mut nothing);
        self.logs.crash(&mut nothing);
        self.incarnation += 1;
        self.net.nodes[0] = node(1, self.incarnation);
        self.start();
    }

    /// A day passes, and some minutes.
    pub fn a_day(&mut self) {
        self.net.now = self.net.now + Duration::from_secs(24 * 3600);
        self.turns(8 * 60_000);
    }

    /// The files of the manager's store as they are now.
    pub fn copy(&self) -> (Vec<u8>, MemoryLogs) {
        let mut checkpoint = vec![0; self.backend.len().unwrap() as usize];
        self.backend.read(0, &mut checkpoint).unwrap();
        (checkpoint, self.logs.clone())
    }

    /// The manager starts a minute later from a copy of its store.
    pub fn bring_back(&mut self, (checkpoint, logs): (Vec<u8>, MemoryLogs)) {
        self.incarnation += 60_000_000_000;
        (self.backend, self.logs) = (MemoryBackend::new(), logs);
        self.backend.write(0, &checkpoint).unwrap();
        self.net.nodes[0] = node(1, self.incarnation);
        self.start();
    }

    /// As [`bring_back`](Self::bring_back), by a person who takes the copy as it is.
    pub fn bring_back_accepted(&mut self, (checkpoint, mut logs): (Vec<u8>, MemoryLogs)) {
        let backend = MemoryBackend::new();
        backend.write(0, &checkpoint).unwrap();
        let mut store = Store::open(backend.clone(), config(), logs.contents()).unwrap();
        for append in accept(&mut store).unwrap() {
            logs.append(append.log, &append.bytes);
        }
        drop(store);
        let mut checkpoint = vec![0; backend.len().unwrap() as usize];
        backend.read(0, &mut checkpoint).unwrap();
        self.bring_back((checkpoint, logs));
    }

    pub fn turn(&mut self) {
        self.net.turn();
        if self.stalled {
            return;
        }
        while let Some(request) = self.net.nodes[0].take_meta() {
            let mut result = Ok(());
            match request.op {
                MetaOp::Append { .. } if self.append_fails => result = Err(no_room()),
                MetaOp::Append { ref bytes, .. } if bytes.len() > self.room => {
                    result = Err(no_room());
                }
                MetaOp::Checkpoint(_) if self.room < usize::MAX => {
                    result = Err(no_room());
                }
                MetaOp::Append { log, bytes } => self.logs.append(log, &bytes),
                MetaOp::Sync { log } => {
                    self.syncs += 1;
                    self.logs.sync(log);
                }
                MetaOp::Checkpoint(work) => {
                    self.checkpoints += 1;
                    result = work.run().map_err(MetaError::from);
                }
                MetaOp::DropLog { log } => self.logs.remove(log),
                MetaOp::Room => {}
            }
            let room = match self.log_bytes() > self.log_bytes_max {
                true => MetaRoom::Scarce,
                false => self.meta_room,
            };
            self.net.nodes[0].meta_done(MetaDone { ticket: request.ticket, result, room });
        }
    }

    /// Bytes of all logs.
    pub fn log_bytes(&self) -> usize {
        self.logs.contents().map(|(_, bytes)| bytes.len()).sum()
    }

    pub fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    pub fn client(&self, number: usize) -> Client {
        Client::new(self.net.nodes[number].cx(), MANAGER, VolumeId(5))
    }

    /// A new file, made on client 1's node.
    pub fn created(&mut self, client: &Client, name: &'static [u8], open: Option<u32>) -> FileId {
        let client = client.clone();
        self.run(1, async move { create(&client, name, open).await.unwrap().attr.file })
    }

    /// Starts a task on a client's node; what it will bring.
    pub fn begin<T: 'static>(
        &self,
        number: usize,
        task: impl Future<Output = T> + 'static,
    ) -> Output<T> {
        rig::start(self.net.nodes[number].cx(), task)
    }

    pub fn finish<T>(&mut self, output: Output<T>) -> T {
        finish(output, || self.turn())
    }

    pub fn run<T: 'static>(&mut self, number: usize, task: impl Future<Output = T> + 'static) -> T {
        let output = self.begin(number, task);
        self.finish(output)
    }
}

pub async fn create(client: &Client, name: &[u8], open: Option<u32>) -> Result<Entry, Errno> {
    let made = client.create(&WHO, ROOT, name, 0o644, How::Guarded, open).await;
    made.map(|(entry, _)| entry)
}
