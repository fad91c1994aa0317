//! Which machines a cluster has.

use endpoint::limits::PAGE_BYTES;
use names::IoServer;
use nic::{Config, Policy};
use sim::cluster;
use sim::hardware::catalogue;
use sim::hardware::disk::Disk;
use sim::hardware::fabric::Link;
use sim::hardware::measure::Station;
use sim::machine::{MachineConfig, Role};
use sim::queue::Picos;
use sim::trace::Trace;
use sim::underlay::{DiskSetup, NodeSetup, Underlay};
use sim::world::World;
use wire::NodeId;

/// A page of the adapters, and what an Alpha's is.
const PAGE: usize = 8_192;
/// Most payload of a packet: the stripe grain, four pages (assumed: the paper says only that the MTU is configurable
/// and that a payload may be several frames).
const MTU: usize = 32 << 10;
/// Smallest pulse of the adaptive policy.
const MINIMUM: usize = 512;
/// The client's memory for payloads: half of it may hold what was written and is not yet stable.
const CLIENT_BYTES: usize = 64 << 20;
/// A server's memory for payloads, of its 256 MB (HotI'99 section 2.1), and what of it is cache.
const SERVER_BYTES: usize = 160 << 20;
const CACHE_BYTES: usize = 128 << 20;
const MANAGER: NodeId = NodeId(1);

/// Hardware of a cluster's machines.
#[derive(Clone, Debug)]
pub struct Machines {
    /// The client.
    pub client: Station,
    /// Servers and the file manager.
    pub server: Station,
    /// The network.
    pub link: Link,
    /// A server's disks.
    pub disk: Disk,
    /// Channels of a server that they are spread over.
    pub channels: u16,
}

impl Machines {
    /// HotI'99 section 4: a Miata, Pentium-III servers with two SCSI channels, LANai-4.
    pub fn scsi() -> Result<Machines, String> {
        Machines::of_1999("medalist", 2)
    }

    /// The same with an IDE channel for each disk.
    pub fn ide() -> Result<Machines, String> {
        Machines::of_1999("deskstar-22gxp", 4)
    }

    fn of_1999(disk: &str, channels: u16) -> Result<Machines, String> {
        let nic = Config { policy: Policy::adaptive(MINIMUM), mtu: MTU, ..Config::new(PAGE) };
        let station = |machine: &str| -> Result<Station, String> {
            let board = catalogue::board("lanai4")?;
            Station::constants(catalogue::machine(machine)?, board, nic.clone())
        };
        let [client, server] = [station("miata500")?, station("piii450")?];
        let (link, disk) = (catalogue::link("myrinet")?, catalogue::disk(disk)?);
        Ok(Machines { client, server, link, disk, channels })
    }

    /// What-if: servers with PCI Express 4.0, flash and an adapter with memory of its own, on Ethernet of 100 Gb/s.
    pub fn today() -> Result<Machines, String> {
        let nic = Config { policy: Policy::adaptive(MINIMUM), mtu: MTU, ..Config::new(PAGE) };
        let (machine, board) = (catalogue::machine("server-gen4")?, catalogue::board("dpu")?);
        let client = Station::contention(machine, board, catalogue::firmware("mcp-hoti")?, nic);
        let (link, disk) = (catalogue::link("ethernet-100g")?, catalogue::disk("nvme")?);
        Ok(Machines { server: client.clone(), client, link, disk, channels: u16::MAX })
    }

    /// The same, where the client's file calls cost nothing: for what is no call, as a page fault.
    pub fn without_calls(mut self) -> Machines {
        self.client.machine.files = None;
        self
    }
}

/// A cluster: a client, a manager, servers.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its machines.
    pub machines: Machines,
    /// I/O servers.
    pub servers: u16,
    /// Disks of each.
    pub disks: u16,
    /// Of the run.
    pub seed: u64,
}

impl Setup {
    /// The client's node.
    pub fn client(&self) -> NodeId {
        NodeId(2 + self.servers)
    }

    /// The servers' nodes.
    pub fn servers(&self) -> impl Iterator<Item = NodeId> + use<> {
        (2..2 + self.servers).map(NodeId)
    }

    /// The cluster, started.
    pub fn world(&self, trace: Trace) -> Result<World, String> {
        let underlay = Underlay::new(self.seed, self.machines.link, &self.hardware())?;
        let mut world = World::on_hardware(self.seed, underlay, trace);
        let disks = cluster::all_disks(self.disks);
        let homes: Vec<_> =
            self.servers().map(|id| IoServer { disks, ..IoServer::from(id) }).collect();
        add(&mut world, MANAGER, (1, CLIENT_BYTES), cluster::manager(homes, 0, None));
        for server in self.servers() {
            let role = cluster::server(MANAGER, CACHE_BYTES, 0, None, None);
            add(&mut world, server, (self.disks, SERVER_BYTES), role);
        }
        add(
            &mut world,
            self.client(),
            (0, CLIENT_BYTES),
            cluster::mount(MANAGER, (0, 0, false), 0, None),
        );
        world.nodes().into_iter().for_each(|node| world.start(node));
        Ok(world)
    }

    fn hardware(&self) -> Vec<NodeSetup> {
        let Machines { client, server, disk, channels, .. } = &self.machines;
        let disks = |count| {
            let channels = (*channels).min(count);
            (count > 0).then_some(DiskSetup { disk: *disk, count, channels })
        };
        let node = |id, station: &Station, count| NodeSetup {
            id,
            station: station.clone(),
            disks: disks(count),
            service: Picos::ZERO,
        };
        let servers = self.servers().map(|id| node(id, server, self.disks));
        let ends = [node(MANAGER, server, 1), node(self.client(), client, 0)];
        ends.into_iter().chain(servers).collect()
    }
}

fn add(world: &mut World, id: NodeId, (disks, bytes): (u16, usize), role: Role) {
    let mut config = MachineConfig { disks, ..MachineConfig::new(id) };
    config.frame_pages = bytes / PAGE_BYTES;
    config.disk_model.capacity_bytes = 9 << 30;
    world.add(config, role);
}
