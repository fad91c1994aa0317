//! Nodes with the service on a link that does what the test says.
#![allow(dead_code, reason = "each test uses some of it")]

use endpoint::Frame;
use netmem::protocol::{Batch, Message, Record};
use netmem::service::{Backing, Config, Later, Up, View};
use netmem::*;
use node::{Call, Cx};
use rig::Net;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::{Channel, Errno, NodeId};

pub const PAGE: usize = 4096;

pub struct World {
    pub net: Net,
    pub services: Vec<Service>,
    pub incarnations: Vec<u64>,
    pub down: Vec<u16>,
    pub view: u64,
    /// Of each node; of those that are not named, none is known.
    pub machines: Vec<u64>,
    config: Box<dyn Fn(&Cx) -> Config>,
}

/// A shared space.
pub fn shared(index: u64) -> PageId {
    PageId { space: SpaceId::shared(7), index }
}

/// A space of a node's own.
pub fn private(node: u16, index: u64) -> PageId {
    PageId { space: SpaceId::private(NodeId(node), 3), index }
}

pub fn wanted(id: PageId, at_least: u64) -> Wanted {
    Wanted { id, at_least: Version(at_least), bytes: PAGE as u32 }
}

/// A page's content in each version: no two alike.
pub fn content(id: PageId, version: u64) -> Vec<u8> {
    let seed = wire::mix(wire::mix(id.space.0 ^ version) ^ id.index);
    (0..PAGE as u64 / 8).flat_map(|at| wire::mix(seed ^ at).to_le_bytes()).collect()
}

pub fn frame(cx: &Cx, id: PageId, version: u64) -> Frame {
    cx.frames().copy_of(&content(id, version)).unwrap()
}

/// So many frames, without a minimum for the node's own.
pub fn small(frames: usize) -> Config {
    let mut config = Config::new(frames * PAGE);
    config.local_min_bytes = 0;
    config.directory_bytes = 1024 * Directory::ENTRY_BYTES;
    config.epoch.slow_start = Duration::from_millis(1);
    config
}

impl World {
    /// Nodes 1 to `count` that know of each other.
    pub fn new(count: u16, config: impl Fn(&Cx) -> Config + 'static) -> World {
        let net = Net::new(count);
        let services = net.nodes.iter().map(|node| Service::start(node.cx(), config(node.cx())));
        let mut world = World {
            services: services.collect(),
            incarnations: vec![1; count.into()],
            down: Vec::new(),
            view: 0,
            machines: Vec::new(),
            config: Box::new(config),
            net,
        };
        world.next_view();
        world.settle();
        world
    }

    pub fn up(&self) -> View {
        let up = |(at, incarnation): (usize, &u64)| Up {
            node: NodeId(at as u16 + 1),
            incarnation: *incarnation,
            weight: 100,
            machine: self.machines.get(at).copied().unwrap_or(0),
        };
        let all = self.incarnations.iter().enumerate().map(up);
        View::new(self.view, all.filter(|up| !self.down.contains(&up.node.0)).collect())
    }

    /// Tells all nodes who is there.
    pub fn next_view(&mut self) {
        self.view += 1;
        let view = self.up();
        self.live().for_each(|service| service.follow(view.clone()));
    }

    fn live(&self) -> impl Iterator<Item = &Service> {
        let up = |at: &usize| !self.down.contains(&(*at as u16 + 1));
        (0..self.services.len()).filter(up).map(|at| &self.services[at])
    }

    /// Until all nodes have told each other.
    pub fn settle(&mut self) {
        let services: Vec<Service> = self.live().cloned().collect();
        self.net.until(|| services.iter().all(Service::is_settled));
    }

    pub fn service(&self, node: u16) -> Service {
        self.services[usize::from(node) - 1].clone()
    }

    pub fn cx(&self, node: u16) -> Cx {
        self.net.nodes[usize::from(node) - 1].cx().clone()
    }

    /// A node is gone with all it knew; the others hear of it with the next view.
    pub fn kill(&mut self, node: u16) {
        let at = usize::from(node) - 1;
        self.down.push(node);
        self.net.nodes[at] = rig::node(1000 + node, 1);
    }

    /// A node runs on and hears nothing; the others go on without it.
    pub fn give_up(&mut self, node: u16) {
        self.down.push(node);
        self.next_view();
        self.settle();
    }

    /// A node that was given up hears of all members again, in the next incarnation that the registry gives it.
    pub fn come_back(&mut self, node: u16) {
        self.incarnations[usize::from(node) - 1] += 1;
        self.down.retain(|other| *other != node);
        self.next_view();
        self.settle();
    }

    /// It is there again, in its next incarnation; the others hear of it with the next view.
    pub fn revive(&mut self, node: u16) {
        let at = usize::from(node) - 1;
        self.incarnations[at] += 1;
        self.down.retain(|other| *other != node);
        self.net.restart(node, self.incarnations[at]);
        self.services[at] =
            Service::start(self.net.nodes[at].cx(), (self.config)(self.net.nodes[at].cx()));
    }

    /// All nodes in their next incarnations, with another configuration.
    pub fn restart_all(&mut self, config: impl Fn(&Cx) -> Config + 'static) {
        self.config = Box::new(config);
        (1..=self.services.len() as u16).for_each(|node| self.revive(node));
        self.next_view();
        self.settle();
    }

    fn slots(&self) -> Slots {
        let members = self.up().members;
        let members = members.iter().map(|up| Member { node: up.node, weight: up.weight });
        Slots::new(&members.collect::<Vec<_>>()).unwrap()
    }

    /// The node that is asked who has a page.
    pub fn primary(&self, id: PageId) -> u16 {
        self.slots().homes(id).primary.0
    }

    /// The node that knows who has its mirrors as well.
    pub fn backup(&self, id: PageId) -> u16 {
        self.slots().homes(id).backup.unwrap().0
    }

    /// The nodes that a directory takes for mirrors of a page.
    pub fn named(&self, directory: u16, id: PageId) -> Vec<u16> {
        let mut named: Vec<u16> = self.service(directory).inspect(|_, directory| {
            let entry = directory.entry(id);
            entry.into_iter().flat_map(|entry| entry.mirror_holders()).map(|h| h.node.0).collect()
        });
        named.sort_unstable();
        named
    }

    /// Shared pages of which this node is the directory: with this index or a later one.
    pub fn pages_of(&self, directory: u16, first: u64) -> impl Iterator<Item = PageId> + use<> {
        let slots = self.slots();
        (first..).map(shared).filter(move |id| slots.homes(*id).primary.0 == directory)
    }

    /// The first of them.
    pub fn page_of(&self, directory: u16) -> PageId {
        self.pages_of(directory, 0).next().unwrap()
    }

    /// Starts a task on a node; its output when it has ended.
    pub fn start<T: 'static>(
        &self,
        node: u16,
        task: impl Future<Output = T> + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        rig::start(&self.cx(node), task)
    }

    /// Runs a task on a node to its end.
    pub fn run<T: 'static>(&mut self, node: u16, task: impl Future<Output = T> + 'static) -> T {
        let output = self.start(node, task);
        self.net.until(|| output.borrow().is_some());
        output.take().unwrap()
    }

    pub fn get(&mut self, node: u16, wanted: Wanted) -> Result<service::Got, service::GetError> {
        let service = self.service(node);
        self.run(node, async move { service.get(wanted).await })
    }

    /// A page with just the bytes that its version has.
    pub fn read(&mut self, node: u16, id: PageId, at_least: u64) -> (u64, service::Source) {
        let got = self.get(node, wanted(id, at_least)).unwrap();
        assert_eq!(&got.data[..], &content(id, got.version.0)[..], "{id} {:?}", got.version);
        assert!(got.version.0 >= at_least);
        (got.version.0, got.source)
    }

    /// As [`put`](World::put) of a version that is newer than any lease begins with.
    pub fn put_shared(
        &mut self,
        node: u16,
        id: PageId,
        number: u64,
        class: Class,
    ) -> Result<(), service::PutError> {
        self.put(node, id, late(number), class)
    }

    pub fn put(
        &mut self,
        node: u16,
        id: PageId,
        version: u64,
        class: Class,
    ) -> Result<(), service::PutError> {
        let (service, data) = (self.service(node), frame(&self.cx(node), id, version));
        self.run(node, async move { service.put(id, Version(version), class, data).await })
    }

    /// As [`put`](World::put), in the first version that is newer than all that the page's directory knows.
    pub fn put_newer(&mut self, node: u16, id: PageId, class: Class) -> u64 {
        let mut version = 1;
        loop {
            match self.put(node, id, version, class) {
                Err(service::PutError::Stale(known)) => version = known.0 + 1,
                put => {
                    put.unwrap();
                    return version;
                }
            }
        }
    }

    pub fn flush(&mut self, node: u16, id: PageId) -> Result<(), service::Weak> {
        let service = self.service(node);
        self.run(node, async move { service.flush(id).await })
    }

    /// Makes a node forget its own copy of a page that is durable elsewhere.
    pub fn forget(&mut self, node: u16, id: PageId) {
        self.service(node).hint(id, service::Hint::DontNeed);
        assert!(self.service(node).inspect(|memory, _| memory.find(id).is_none()), "{id} stays");
    }

    /// That a node has a page.
    pub fn record(&self, node: u16, role: HolderRole, id: PageId, version: u64) -> Record {
        let incarnation = self.incarnations[usize::from(node) - 1];
        let holder = Holder { node: NodeId(node), incarnation, role };
        Record::new(id, Version(version), holder)
    }

    /// One node tells another something of a page, by the view of this number; the answer's status.
    pub fn say(&mut self, (from, to): (u16, u16), what: u16, view: u64, record: Record) -> u16 {
        let body = Batch::of(view, &[record], false).encode();
        let cx = self.cx(from);
        let asked = cx.call(Call {
            to: NodeId(to),
            channel: Channel::MEMORY,
            op: what,
            once: true,
            deadline: None,
            body: &body,
            data: cx.pieces(),
            trailer: &[],
            into: cx.pieces(),
        });
        self.run(from, asked).unwrap().status
    }

    pub fn seconds(&mut self, seconds: usize) {
        self.net.run(seconds * 1000);
    }

    /// The nodes whose memory has a page, in which role.
    pub fn where_is(&self, id: PageId) -> Vec<(u16, Role, u64)> {
        let look = |at: usize| {
            self.services[at].inspect(|memory, _| {
                let frame = memory.find(id)?;
                Some((at as u16 + 1, memory.role(frame), memory.page(frame)?.version.0))
            })
        };
        let up = |at: &usize| !self.down.contains(&(*at as u16 + 1));
        (0..self.services.len()).filter(up).filter_map(look).collect()
    }

    /// The mirrors of a page.
    pub fn mirrors(&self, id: PageId) -> Vec<(u16, u64)> {
        let all = self.where_is(id).into_iter();
        all.filter(|(_, role, _)| *role == Role::Mirror)
            .map(|(node, _, version)| (node, version))
            .collect()
    }
}

/// Nodes with stable storage that all of them share.
pub fn with_disk(count: u16, frames: usize) -> (World, Disk) {
    with_directories(count, frames, small(frames).directory_bytes / Directory::ENTRY_BYTES)
}

/// The same with directories of so many entries.
pub fn with_directories(count: u16, frames: usize, entries: usize) -> (World, Disk) {
    let mut world = World::new(count, move |_| small(frames));
    let disk = Disk::default();
    let share = disk.clone();
    world.restart_all(move |cx| {
        let mut config = small(frames);
        config.directory_bytes = entries * Directory::ENTRY_BYTES;
        config.backing = Some(share.at(cx));
        config
    });
    (world, disk)
}

/// A version of a shared page, of a number that tests count with.
pub fn late(number: u64) -> u64 {
    (1 << 62) + number
}

type Pages = Rc<RefCell<BTreeMap<PageId, u64>>>;

/// Stable storage that all nodes share, in memory, with a delay.
#[derive(Clone)]
pub struct Disk {
    pub pages: Pages,
    pub delay: Rc<Cell<Duration>>,
    pub reads: Rc<Cell<u64>>,
    pub fails: Rc<Cell<bool>>,
}

impl Default for Disk {
    fn default() -> Disk {
        let delay = Rc::new(Cell::new(Duration::from_millis(5)));
        Disk { pages: Rc::default(), delay, reads: Rc::default(), fails: Rc::default() }
    }
}

impl Disk {
    /// As one node uses it.
    pub fn at(&self, cx: &Cx) -> Rc<dyn Backing> {
        Rc::new(At { disk: self.clone(), cx: cx.clone() })
    }
}

struct At {
    disk: Disk,
    cx: Cx,
}

impl At {
    /// Takes its time, and then does it or fails.
    fn store(&self, stores: impl FnOnce(&Disk) + 'static) -> Later<Result<(), Errno>> {
        let (disk, cx) = (self.disk.clone(), self.cx.clone());
        Box::pin(async move {
            cx.sleep(disk.delay.get()).await;
            if disk.fails.get() {
                return Err(Errno::EIO);
            }
            stores(&disk);
            Ok(())
        })
    }
}

impl Backing for At {
    fn has(&self, _: SpaceId) -> bool {
        true
    }

    fn read(
        &self,
        id: PageId,
        at_least: Version,
        _: u32,
    ) -> Later<Result<Option<(Version, Frame)>, Errno>> {
        let (disk, cx) = (self.disk.clone(), self.cx.clone());
        Box::pin(async move {
            disk.reads.set(disk.reads.get() + 1);
            let version = disk.pages.borrow().get(&id).copied();
            cx.sleep(disk.delay.get()).await;
            if disk.fails.get() {
                return Err(Errno::EIO);
            }
            let fits = version.filter(|version| *version >= at_least.0);
            Ok(fits.map(|version| (Version(version), frame(&cx, id, version))))
        })
    }

    fn write(&self, id: PageId, version: Version, data: Frame) -> Later<Result<(), Errno>> {
        assert_eq!(&data[..], &content(id, version.0)[..]);
        self.store(move |disk| {
            disk.pages.borrow_mut().insert(id, version.0);
        })
    }
}
