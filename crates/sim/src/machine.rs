//! One simulated machine: what outlives its node (disks, stores' files, seed) and the node, when there is one.

use crate::clock::Clock;
use crate::disk::{Disk, DiskFaults, DiskModel};
use crate::meta::{Meta, StoresImage};
use crate::queue::Picos;
use crate::random::Random;
use crate::storage::Crash;
use crate::volume::Volume;
use endpoint::{Frames, HeapRegion};
use node::rings::StoreId;
use node::{Cx, Node, NodeConfig};
use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;
use store::MemoryBackend;
use wire::NodeId;

/// Equipment of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineConfig {
    /// Its node.
    pub id: NodeId,
    /// Disks on its disk ring.
    pub disks: u16,
    /// Each of them, and the one that stores' files are on.
    pub disk_model: DiskModel,
    /// Pages of its payload pool.
    pub frame_pages: usize,
    /// Its wall clock is this much ahead of the world's, in nanoseconds.
    pub wall_skew_ns: i64,
    /// In each incarnation its clock runs up to so many percent too fast or too slow.
    pub clock_rate_percent: u32,
    /// Planted bugs of its node, one bit each.
    pub bugs: u128,
}

impl MachineConfig {
    /// A machine without disks, with 32 MiB of payload memory and a right clock.
    pub fn new(id: NodeId) -> MachineConfig {
        MachineConfig { id, frame_pages: 8 * 1024, ..MachineConfig::default() }
    }
}

/// Contents of a machine's storage at one time.
#[derive(Clone, Debug)]
pub struct Image {
    /// Of each disk.
    pub disks: Vec<Volume>,
    /// Of the stores.
    pub stores: StoresImage,
}

/// Contents of all machines' storage at one time.
pub(crate) type Images = BTreeMap<NodeId, Image>;

/// A node that is about to live: what its services start from.
pub struct Boot<'a> {
    /// The new node's handle.
    pub cx: Cx,
    /// The machine's clock in this incarnation.
    pub clock: Clock,
    /// Disks, one bit each, that are empty ones in the places of others, as a person has said.
    pub replacing: u32,
    meta: &'a mut Meta,
}

impl Boot<'_> {
    /// The store's database file and its logs as the last incarnation left them, as `store::Store::open` takes them.
    pub fn open(&mut self, store: StoreId) -> (MemoryBackend, Vec<(u64, Vec<u8>)>) {
        self.meta.open(store)
    }
}

/// Starts a machine's services; called at every start of its node. The returned value is kept as long as the node. The
/// error is a sentence for people.
pub type Role = Rc<dyn Fn(&mut Boot<'_>) -> Result<Box<dyn Any>, String>>;

/// The machine.
pub struct Machine {
    pub(crate) config: MachineConfig,
    role: Role,
    pub(crate) node: Option<Node>,
    services: Option<Box<dyn Any>>,
    /// Starts so far; events of an older one are void.
    pub(crate) boot: u32,
    pub(crate) disks: Vec<Disk>,
    pub(crate) meta: Meta,
    pub(crate) random: Random,
    /// The clock of the present incarnation.
    pub(crate) clock: Clock,
    /// Disks that are empty ones in the places of others, as far as that was not told yet; a bit each.
    pub(crate) replacing: u32,
    rates: Random,
    /// When its node is to be stepped next.
    pub(crate) step_at: Picos,
    /// When it was paused last; it does not run before `paused_until`.
    pub(crate) paused_at: Picos,
    pub(crate) paused_until: Picos,
}

impl Machine {
    pub(crate) fn new(seed: u64, config: MachineConfig, role: Role) -> Machine {
        let id = config.id.0;
        let mut rates = Random::new(seed, &format!("clock {id}"));
        let disk = |disk| Disk::new(seed, &format!("disk {id}.{disk}"), config.disk_model);
        Machine {
            config,
            role,
            node: None,
            services: None,
            boot: 0,
            disks: (0..config.disks).map(disk).collect(),
            meta: Meta::new(seed, &format!("meta {id}"), config.disk_model),
            random: Random::new(seed, &format!("machine {id}")),
            clock: Clock::drawn(Picos::ZERO, 0, &mut rates),
            replacing: 0,
            rates,
            step_at: Picos::NEVER,
            paused_at: Picos::ZERO,
            paused_until: Picos::ZERO,
        }
    }

    /// The services that its role has started, while it runs and if they are of this type.
    pub fn services<T: Any>(&self) -> Option<&T> {
        self.services.as_ref()?.downcast_ref()
    }

    /// Faults of its disks, to be changed: each disk's, then those of the stores' disk.
    pub fn faults(&mut self) -> impl Iterator<Item = &mut DiskFaults> {
        self.disks.iter_mut().map(Disk::faults_mut).chain(std::iter::once(self.meta.faults_mut()))
    }

    /// The present content of its storage.
    pub fn image(&self) -> Image {
        let disks = self.disks.iter().map(|disk| disk.volume().clone()).collect();
        Image { disks, stores: self.meta.image() }
    }

    /// Replaces the content of its storage. Not while its node runs.
    pub fn restore(&mut self, image: &Image) {
        assert!(self.node.is_none(), "nothing has the files open");
        for (disk, volume) in self.disks.iter_mut().zip(&image.disks) {
            *disk.volume_mut() = volume.clone();
        }
        self.meta.restore(&image.stores);
    }

    /// Empty disks take the places of all that it has. Not while its node runs.
    pub(crate) fn replace_disks(&mut self) {
        assert!(self.node.is_none(), "nothing has the files open");
        self.disks.iter_mut().for_each(|disk| *disk.volume_mut() = Volume::default());
        self.replacing = (1 << self.disks.len()) - 1;
    }

    /// Gives the machine a node with its services. Its incarnation is the machine and the number of the start.
    pub(crate) fn start(
        &mut self,
        now: Picos,
        wall_minus_monotonic_ns: i128,
    ) -> Result<(), String> {
        assert!(self.node.is_none(), "a machine has one node");
        self.boot += 1;
        let MachineConfig { id, disks, frame_pages, bugs, .. } = self.config;
        let seed = self.random.next();
        self.clock = Clock::drawn(now, self.config.clock_rate_percent, &mut self.rates);
        // Unique in the cluster, and greater than in every earlier incarnation.
        let incarnation = u64::from(id.0) << 32 | u64::from(self.boot);
        let config = NodeConfig { disks, bugs, ..NodeConfig::new(id, incarnation, seed) };
        let mut node = Node::new(config, Frames::new(HeapRegion::new(frame_pages)));
        // Services look at the clock when they are made.
        node.step(self.clock.time(now));
        node.set_wall(wall_minus_monotonic_ns + i128::from(self.config.wall_skew_ns));
        let (cx, clock, replacing) = (node.cx().clone(), self.clock, self.replacing);
        let mut boot = Boot { cx, clock, replacing, meta: &mut self.meta };
        self.services = Some((self.role.clone())(&mut boot)?);
        self.node = Some(node);
        (self.step_at, self.paused_until) = (Picos::NEVER, Picos::ZERO);
        Ok(())
    }

    /// Ends the node; its files keep what this kind of end leaves.
    pub(crate) fn crash(&mut self, crash: Crash) {
        // Files first: what a store does while it is dropped must not reach them.
        self.meta.crash(crash);
        self.disks.iter_mut().for_each(|disk| disk.crash(crash));
        self.services = None;
        self.node = None;
        self.boot += 1;
    }
}
