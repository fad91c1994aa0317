//! A machine of a cluster, put together on the real world: its memory, links, disks, stores and services.

mod addresses;
mod frames;
mod gone;
mod looker;
mod nfs_client;
mod stranger;

use crate::beginning::{self, BeginError};
use crate::config::{ClusterKey, ConfigError, Machine, Role};
use crate::incarnation::{self, Start};
use crate::lending::Lending;
use crate::membership::{Membership, Sockets};
use crate::new_disk::{self, NoDisk};
use crate::older;
use crate::status::service::{Beside, SharedItems, Source};
use crate::xdp::{self, XdpQueue};
use addresses::{Addresses, listens};
use endpoint::tuning::Pulses;
use files::cluster::{ClientRole, ManagerRole, NodeRoles, Services, StartError};
use files::cluster::{executor, members_store, names_store, start};
use frames::payload_memory;
use gone::gone_text;
use live::disk::{DiskConfig, Disks, DisksError, Engine};
use live::host::Host;
use live::link::{Address, Directory, Keys, LinkConfig, Links, Security, SharedPool, SocketAccess};
use live::meta::{LoadError, Stores, load};
use live::wait::WaitPolicy;
use members::{Identity, Roles};
use names::VolumeSettings;
use node::rings::StoreId;
use node::{Cx, Node, NodeConfig};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use store::{Store, StoreError};
use stripe::{Network, ServerConfig};
use wire::{NodeId, VolumeId};

pub use looker::Looker;
pub use nfs_client::{importer, nfs_client};
pub use stranger::join;

/// Why a machine does not start. The text says what, where and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file of its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A disk.
    #[error(transparent)]
    Disks(#[from] DisksError),
    /// A limit for a disk that cannot be read.
    #[error("disk {0}: {1}")]
    Limit(PathBuf, String),
    /// A directory of a store.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Its contents.
    #[error("{0}: {1}")]
    Store(PathBuf, StoreError),
    /// The manager's directory.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// A directory in which no disk is, and none may begin.
    #[error(transparent)]
    NoDisk(#[from] NoDisk),
    /// A service.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An address.
    #[error("cannot listen at {0}: {1}{next}", next = after_listening(.1))]
    Listen(String, io::Error),
    /// More memory at the start than there is: the kernel would end processes to make room.
    #[error(
        "the machine has {available} MiB of memory left, and [memory] asks for all of a pool of {wanted} MiB at the \
         start: make `pool` smaller, or leave `prefault` out"
    )]
    Prefault {
        /// MiB that programs can still get.
        available: u64,
        /// MiB of the pool.
        wanted: u64,
    },
    /// The system.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
    /// The manager does not answer.
    #[error("no connection to the manager{places}: {why}{next}")]
    Unreached {
        /// Its addresses, where `why` names none.
        places: String,
        /// The links' error.
        why: String,
        /// The next thing to look at.
        next: &'static str,
    },
    /// No node could reach the memory that it lends.
    #[error("what this one lends, other machines must reach: say where with --listen HOST:PORT")]
    LendsNowhere,
    /// An address of a mount.
    #[error(
        "--listen {0:?}: {1}write the address that the other machines reach this one by, as HOST:PORT"
    )]
    BadListen(String, String),
    /// The memory that it is to lend.
    #[error("--lend: {0}")]
    Lending(String),
    /// Another machine has the name.
    #[error(
        "the cluster has a machine named {0} already: choose another --name; to start that machine again, use its own machine.toml; \
         if it is gone for good, trapeze forget {0}"
    )]
    NameTaken(String),
    /// Another machine runs as this one.
    #[error(
        "the cluster has a machine that runs as node {node}, {name} at {addresses}, and it is not this one: stop that one \
         first, or, if this one has a copy of its configuration, move the copy away and join with a name of its own"
    )]
    TwoOfOne {
        /// The id of both.
        node: u16,
        /// Its name.
        name: String,
        /// Where the other one is.
        addresses: String,
    },
    /// The manager did not let it in.
    #[error("{0}")]
    Refused(String),
}

fn system(what: &'static str) -> impl Fn(io::Error) -> MachineError {
    move |error| MachineError::System(what, error)
}

/// How a node of this process is to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The cluster.
    pub cluster: u64,
    /// The volume.
    pub volume: VolumeId,
    /// Of TCP links.
    pub security: Security,
    /// The manager and where it can be reached.
    pub manager: (NodeId, Vec<Address>),
    /// Bytes of payload frames.
    pub pool_bytes: u64,
    /// Whether they are backed by memory from the start on.
    pub prefault: bool,
    /// The node's part in network memory, whose frames are beside those.
    pub lending: Lending,
    /// How to wait.
    pub wait: WaitPolicy,
    /// How payloads move through its links.
    pub pulses: Pulses,
    /// The interface that frames to machines of its Ethernet go through.
    pub xdp: Option<XdpQueue>,
    /// Whether to keep news of its links to itself; `TRAPEZE_LOG` in the environment overrules it.
    pub quiet: bool,
}

impl Setup {
    /// As a configuration file says.
    pub fn of(machine: &Machine, wait: WaitPolicy) -> Result<Setup, ConfigError> {
        let security = match (&machine.key, machine.insecure) {
            (Some(key), false) => Security::Encrypted(Keys::generate(ClusterKey::load(key)?.0)),
            _ => Security::Insecure,
        };
        let addresses = machine.manager.addresses.iter();
        let addresses = addresses.filter_map(|text| text.parse().ok()).collect();
        Ok(Setup {
            cluster: machine.cluster_id(),
            volume: VolumeId(machine.volume),
            security,
            manager: (NodeId(machine.manager.node), addresses),
            pool_bytes: nfs_client::pool_bytes(machine),
            prefault: machine.memory.prefault,
            lending: machine.memory.lending(),
            wait,
            pulses: machine.pulses.0,
            xdp: machine.xdp.clone(),
            quiet: false,
        })
    }

    /// The usual limits of a client with this pool.
    fn files(&self) -> files::Config {
        files::Config::for_pool(self.pool_bytes as usize)
    }

    /// Bytes of all payload frames.
    fn frame_bytes(&self) -> u64 {
        self.pool_bytes.saturating_add(self.lending.bytes())
    }

    /// Pages of them.
    fn pages(&self) -> usize {
        (self.frame_bytes() as usize / endpoint::limits::PAGE_BYTES).max(64)
    }
}

/// A node with its links, not serving anything yet.
struct Bare {
    host: Host,
    directory: Directory,
}

/// An incarnation of a node: who it is, and a number that is greater in each incarnation.
type NodeIncarnation = (NodeId, u64);

fn bare(
    setup: &Setup,
    (id, incarnation): NodeIncarnation,
    name: &str,
    (listen, access): (&[String], SocketAccess),
    disks: u16,
) -> Result<Bare, MachineError> {
    let region = payload_memory(name, setup)?;
    let fd = region.share().map_err(system("payload memory"))?;
    let pool = SharedPool { fd, bytes: setup.pages() * endpoint::limits::PAGE_BYTES };
    let frames = endpoint::Frames::new(region);
    let seed = u64::from_le_bytes(crate::random::bytes());
    let config = NodeConfig { disks, ..NodeConfig::new(id, incarnation, seed) };
    let (cluster, security) = (setup.cluster, setup.security.clone());
    let config_of_links = LinkConfig { node: id, incarnation, cluster, security };
    // A client's links are not logged unless something goes wrong, which its calls then tell.
    let quiet = (setup.quiet || listen.is_empty()) && std::env::var_os("TRAPEZE_LOG").is_none();
    let log = Box::new(move |line: &str| {
        if !quiet {
            eprintln!("{line}");
        }
    });
    let mut links = Links::new(config_of_links, Some(pool), log).map_err(system("links"))?;
    links.set_pulses(setup.pulses).map_err(|e| system("links")(io::Error::other(e)))?;
    if let Some(queue) = &setup.xdp {
        xdp::open(queue, &mut links).map_err(system("the interface"))?;
    }
    for text in listen {
        let address: Address = text.parse().expect("checked when it was read");
        links
            .listen_for(&address, access)
            .map_err(|error| MachineError::Listen(text.clone(), error))?;
    }
    let directory = links.directory().clone();
    directory.set(setup.manager.0, setup.manager.1.clone());
    let mut host = Host::new(Node::new(config, frames), setup.wait).map_err(system("the loop"))?;
    host.add(links).map_err(system("links"))?;
    Ok(Bare { host, directory })
}

/// A machine that runs.
pub struct Running {
    /// To be driven by its thread.
    pub host: Host,
    /// Its services.
    pub services: Services,
    /// Its links.
    pub directory: Directory,
    /// Disks of its configuration that it serves without, by number, and why.
    pub lost: Vec<(u16, String)>,
    /// Clients of NFS that it serves, and what it imports.
    pub beside: Beside,
    /// Whether the manager has refused its links since another node that was started later has its id.
    replaced: Rc<Cell<bool>>,
    _sockets: Sockets,
}

impl Running {
    /// The host, the links and the rest.
    pub fn into_parts(self) -> (Host, Directory, Membership) {
        let Running { host, services, directory, _sockets, .. } = self;
        (host, directory, Membership::new(services, _sockets))
    }

    /// A test of whether the manager takes another node for the one that this one says it is, from now on for ever.
    pub fn is_replaced(&self) -> impl Fn() -> bool + use<> {
        let (member, replaced) = (self.services.member.clone(), self.replaced.clone());
        let is_refused =
            |m: &members::Client| m.later_incarnation().is_some() || m.is_declared_gone();
        move || replaced.get() || member.as_ref().is_some_and(is_refused)
    }

    /// Why the manager does not take this machine for the one that it says it is, if that is so.
    pub fn refusal(&self) -> Option<String> {
        self.declared_gone()
            .or_else(|| self.later_start())
            .or_else(|| self.replaced.get().then(|| stranger::REPLACED.to_string()))
    }

    fn declared_gone(&self) -> Option<String> {
        let member = self.services.member.as_ref().filter(|member| member.is_declared_gone())?;
        let directory = member.directory();
        let known = directory.get(self.host.node().cx().id());
        let disks = known.filter(|known| !known.gone).map(|known| known.gone_disks);
        Some(gone_text(known.map_or("this machine", |known| &known.name), disks))
    }

    fn later_start(&self) -> Option<String> {
        let later = self.services.member.as_ref()?.later_incarnation()?;
        let behind = incarnation::apart(later, self.host.node().cx().incarnation());
        Some(format!(
            "the cluster knows a later start of this machine, {later}, {behind} ahead of this one: if its clock is \
             behind, set it and start it again; if another machine runs with a copy of its configuration, stop that \
             one; if neither, write {later} into `{file}` in one of its directories and start it again",
            file = incarnation::FILE
        ))
    }

    /// The parts of its reports.
    fn source(&self, disks: Vec<PathBuf>, cache_bytes: u64, keys: Option<SharedItems>) -> Source {
        Source {
            cx: self.host.node().cx().clone(),
            io: self.services.io.clone(),
            names: self.services.manager.clone(),
            members: self.services.members.clone(),
            memory: self.services.memory.clone(),
            files: self.services.files.clone(),
            keys,
            beside: self.beside.clone(),
            directory: self.directory.clone(),
            waits: self.host.waits(),
            disks,
            cache_bytes,
        }
    }
}

/// The remedy when an address cannot be listened at.
pub fn after_listening(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: does this one run already? stop that one first, or choose another address"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine has no such address: correct the address, on the command line or in `listen` of its configuration"
        }
        io::ErrorKind::PermissionDenied => {
            "; may this user make files there, and give them the group of `listen_group`?"
        }
        _ => "",
    }
}

/// Starts the machine of a configuration file. It serves as soon as its host is driven.
pub fn run(machine: &Machine, wait: WaitPolicy) -> Result<Running, MachineError> {
    run_as(machine, &Setup::of(machine, wait)?)
}

/// As [`run`], with a setup of the caller's.
pub fn run_as(machine: &Machine, setup: &Setup) -> Result<Running, MachineError> {
    let disks = open_disks(machine)?;
    let losses = disks.iter().flat_map(|disks| disks.lost());
    let lost: Vec<_> = losses.map(|(disk, why)| (disk.0, why.to_string())).collect();
    let store = machine.store.as_ref().filter(|_| machine.is(Role::Manager));
    let first = (machine.node != setup.manager.0.0).then_some(setup.manager.0);
    let manager = store.map(|store| open_manager(store, setup.volume, first)).transpose()?;
    let (count, id) = (machine.disks.len() as u16, NodeId(machine.node));
    let scrub = machine.scrub.unwrap_or_default().span();
    // Before it has any link of its own, and with the locks of its directories held.
    let directories = directories(machine, store, &lost);
    if store.is_none() || first.is_some() {
        stranger::only_one(setup, machine, &directories)?;
    }
    let this = (id, begin(&directories)?);
    let access = machine.listen_access().resolve().map_err(MachineError::Refused)?;
    let mut bare = bare(setup, this, &machine.name, (&machine.listen, access), count)?;
    if let Some(disks) = disks {
        bare.host.add(disks).map_err(system("disks"))?;
    }
    let (memory, client) = (setup.lending.network(), nfs_client::role(machine, setup));
    let mut roles = NodeRoles { memory, client, ..NodeRoles::default() };
    if machine.is(Role::Io) {
        let cache = machine.memory.cache.0 as usize;
        let named = Network::directory_bytes(cache);
        let memory = roles.memory.as_mut();
        memory.into_iter().for_each(|it| it.directory_bytes = it.directory_bytes.max(named));
        let replacing = new_disk::replacing(machine);
        let usual = ServerConfig::new(setup.volume, id, cache);
        roles.io = Some(ServerConfig { scrub, replacing, ..usual });
    }
    if let Some((role, stores)) = manager {
        let role = ManagerRole { scrub, copies: machine.copies.unwrap_or(1), ..role };
        bare.host.add(stores).map_err(system("stores"))?;
        roles.manager = Some(role);
    }
    let replacing = roles.io.as_ref().map_or(0, |io| io.replacing);
    let absent = lost.iter().fold(replacing, |bits, (disk, _)| bits | 1 << disk);
    roles.member = Some((setup.manager.0, identity(machine, &setup.lending, absent)));
    let services = start(bare.host.node().cx(), roles)?;
    follow_members(bare.host.node().cx(), &services, &bare.directory);
    executor::serve(bare.host.node().cx(), &services, nfs_client::forwarded(setup));
    setup.lending.watch(&mut bare.host, &services).map_err(system("memory pressure"))?;
    let (host, directory, _sockets) = (bare.host, bare.directory, Sockets::of(&[]));
    older::watch(host.node().cx(), &services);
    let replaced = stranger::watch_identity(host.node().cx(), &directory, setup.manager.0);
    let beside = Beside::default();
    let running = Running { host, services, directory, lost, beside, replaced, _sockets };
    let paths = machine.disks.iter().map(|disk| disk.path.clone()).collect();
    crate::status::service::serve(running.source(paths, machine.memory.cache.0, None));
    Ok(running)
}

/// The directories of the machine that are there.
fn directories(machine: &Machine, store: Option<&PathBuf>, lost: &[(u16, String)]) -> Vec<PathBuf> {
    let disks = (0..).zip(&machine.disks);
    let there = disks.filter(|(disk, _)| lost.iter().all(|(of, _)| of != disk));
    store.into_iter().chain(there.map(|(_, disk)| &disk.path)).cloned().collect()
}

/// Begins an incarnation of the machine that has these directories, which no other process uses now.
pub fn begin(directories: &[PathBuf]) -> Result<u64, MachineError> {
    let random = u64::from_le_bytes(crate::random::bytes());
    let start = incarnation::begin(directories, incarnation::clock(), random);
    let Start { incarnation, unnoted } = start.map_err(MachineError::Refused)?;
    if let Some(why) = unnoted {
        eprintln!("this start could not be noted, so the clock must not be set back: {why}");
    }
    Ok(incarnation)
}

/// Disks that are absent are lost, or in the places of lost ones: those may be declared gone, and are told when they
/// are ready.
fn identity(machine: &Machine, lending: &Lending, absent: u32) -> Identity {
    let disks = (0..machine.disks.len()).fold(0, |bits, disk| bits | 1 << disk);
    let roles = machine.roles.iter().map(|role| match role {
        Role::Manager => Roles::MANAGER,
        Role::Io => Roles::IO,
    });
    let roles = roles.chain(lending.lend.map(|_| Roles::MEMORY));
    Identity {
        name: machine.name.clone(),
        roles: roles.reduce(|a, b| a | b).expect("a machine has a role"),
        disks: disks & !absent,
        addresses: machine.listen.clone(),
        wish: Some(NodeId(machine.node)),
        lends: lending.lends(),
    }
}

fn open_disks(machine: &Machine) -> Result<Option<Disks>, MachineError> {
    if machine.disks.is_empty() {
        return Ok(None);
    }
    let config = |disk: &crate::config::Disk| {
        let throttle = disk.limit.as_ref().map(|text| text.parse()).transpose();
        let wrong = |error: live::disk::BadThrottle| {
            MachineError::Limit(disk.path.clone(), error.to_string())
        };
        Ok(DiskConfig { throttle: throttle.map_err(wrong)?, ..DiskConfig::new(&disk.path) })
    };
    (0..).zip(&machine.disks).try_for_each(|(number, disk)| new_disk::check(number, &disk.path))?;
    let configs = machine.disks.iter().map(config).collect::<Result<Vec<_>, MachineError>>()?;
    Ok(Some(Disks::open(&configs, Engine::Auto)?))
}

/// The stores of a manager; only the first one, at which the volume was made, keeps the members.
fn open_manager(
    dir: &Path,
    volume: VolumeId,
    first: Option<NodeId>,
) -> Result<(ManagerRole, Stores), MachineError> {
    beginning::check(dir)?;
    let owner = beginning::owner(dir);
    let names = open_store(dir, StoreId::Names, names_store())?;
    beginning::check_store(dir, &names)?;
    let opens = first.is_none().then_some(StoreId::Members);
    let members = opens.map(|id| open_store(dir, id, members_store())).transpose()?;
    let kept = [StoreId::Names].into_iter().chain(opens).map(|id| (id, dir.to_path_buf()));
    let stores = Stores::new(kept).map_err(system("the manager's store"))?;
    let volume = VolumeSettings { owner, ..VolumeSettings::new(volume) };
    Ok((ManagerRole { first, ..ManagerRole::new(names, members, volume) }, stores))
}

fn open_store(dir: &Path, id: StoreId, config: store::Config) -> Result<Store, MachineError> {
    let loaded = load(dir, id)?;
    let opened = Store::open(loaded.backend, config, loaded.logs);
    opened.map_err(|error| MachineError::Store(dir.to_path_buf(), error))
}

/// Keeps the links' addresses as the members' view says.
fn follow_members(cx: &Cx, services: &Services, directory: &Directory) {
    let (service, client) = (services.members.clone(), services.member.clone());
    let mut addresses = Addresses::new(cx.id(), directory);
    cx.spawn("addresses", async move {
        loop {
            match (&service, &client) {
                (Some(service), _) => {
                    let changed = service.changed();
                    addresses.follow(service.registry().members());
                    changed.await;
                }
                (None, Some(client)) => {
                    let changed = client.changed();
                    addresses.follow(client.directory().iter());
                    changed.await;
                }
                (None, None) => return,
            }
        }
    });
}

/// As [`client`], for a mount: with the same timeout for the manager as for the I/O servers. Memory that it lends,
/// other machines reach at `listen`, those of this machine's own cluster beside their manager.
pub fn mount_client(setup: &Setup, listen: Option<&str>) -> Result<Running, MachineError> {
    let manager_patience = files::limits::PATIENCE;
    let name = client_name("mount");
    let listen = match setup.lending.lend {
        Some(_) => listens(setup, &name, listen)?,
        None => Vec::new(),
    };
    client_with(setup, name, listen, files::Config { manager_patience, ..setup.files() })
}

/// Joins as a client and starts the client's services. Its host has to be driven until
/// [`members::Client::joined`].
pub fn client(setup: &Setup, name: &str) -> Result<Running, MachineError> {
    client_with(setup, client_name(name), Vec::new(), setup.files())
}

fn client_name(kind: &str) -> String {
    format!("{kind}-{:08x}", u32::from_le_bytes(crate::random::bytes()))
}

fn client_with(
    setup: &Setup,
    name: String,
    listen: Vec<String>,
    files: files::Config,
) -> Result<Running, MachineError> {
    let client = ClientRole { manager: setup.manager.0, volume: setup.volume, files };
    let (memory, client) = (setup.lending.network(), Some(client));
    let roles = NodeRoles { memory, client, ..NodeRoles::default() };
    enter(setup, name, listen, roles, |_, _| None)
}

/// Joins with nothing but a part in network memory, as `memory` says; other members reach it as those of a
/// [mount](mount_client) do. `begin` starts what is served beside it, before anybody knows of the node, and says which
/// keys and values it serves.
pub fn lender(
    setup: &Setup,
    name: &str,
    listen: Option<&str>,
    memory: netmem::service::Config,
    begin: impl FnOnce(&Cx, &Services) -> Option<SharedItems>,
) -> Result<Running, MachineError> {
    let name = client_name(name);
    let listen = listens(setup, &name, listen)?;
    let roles = NodeRoles { memory: Some(memory), ..NodeRoles::default() };
    enter(setup, name, listen, roles, begin)
}

/// Joins as a node that has no id, and starts its services.
fn enter(
    setup: &Setup,
    name: String,
    listen: Vec<String>,
    roles: NodeRoles,
    begin: impl FnOnce(&Cx, &Services) -> Option<SharedItems>,
) -> Result<Running, MachineError> {
    let lends = roles.memory.as_ref().map_or(Roles::CLIENT, |_| Roles::CLIENT | Roles::MEMORY);
    let identity = Identity {
        name: name.clone(),
        roles: lends,
        disks: 0,
        addresses: listen.clone(),
        wish: None,
        lends: setup.lending.lends(),
    };
    let joining = incarnation::clock();
    let id = join(setup, &identity, joining)?;
    // Also when the clock was set back in between.
    let this = (id, incarnation::clock().max(joining + 1));
    // The machines log about these links.
    let setup = &Setup { quiet: true, ..setup.clone() };
    let mut bare = bare(setup, this, &name, (&listen, SocketAccess::default()), 0)?;
    let roles = NodeRoles { member: Some((setup.manager.0, identity)), ..roles };
    let services = start(bare.host.node().cx(), roles)?;
    let keys = begin(bare.host.node().cx(), &services);
    follow_members(bare.host.node().cx(), &services, &bare.directory);
    setup.lending.watch(&mut bare.host, &services).map_err(system("memory pressure"))?;
    let member = services.member.clone().expect("it was asked for");
    let joined = stranger::ask(setup, &mut bare, async move { member.joined().await })?;
    joined.map_err(stranger::refused)?;
    let (host, directory, _sockets) = (bare.host, bare.directory, Sockets::of(&listen));
    let (lost, replaced) = (Vec::new(), Rc::default()); // no other node was given its id
    let beside = Beside::default();
    let running = Running { host, services, directory, lost, beside, replaced, _sockets };
    if !listen.is_empty() {
        crate::status::service::serve(running.source(Vec::new(), 0, keys));
    }
    Ok(running)
}
