//! The services of a cluster on simulated machines: the same assembly as in the real world, over files that a crash
//! can harm.

use crate::backup::Backups;
use crate::borrower::Borrower;
use crate::copies::CopyCheck;
use crate::experiment::Experiment;
use crate::importing::{SharedOrigin, import, origin_of};
use crate::machine::{Boot, Role};
use crate::run::{Members, Roles, VOLUME};
use crate::taking_out::TakenOut;
use endpoint::limits::PAGE_BYTES;
use files::cluster::{
    ClientRole, ManagerRole, NodeRoles, Services, executor, members_store, names_store, start,
    start_client,
};
use members::Identity;
use names::limits::KEEP_ALIVE_INTERVAL;
use names::{Entry, IoServer, Plus, Who, homes_of};
use node::rings::StoreId;
use node::{Bug, Cx};
use std::any::Any;
use std::rc::Rc;
use std::time::Duration;
use store::{Store, StoreError};
use wire::{Errno, FileId, FileKind, Home, Layout, NodeId};

/// Bytes of an I/O server's cache: small, so that blocks are evicted and read again.
const CACHE_BYTES: usize = 4 << 20;
/// The same where memory is lent: so little that most blocks are in network memory or nowhere.
const CACHE_BESIDE_MEMORY_BYTES: usize = 512 << 10;
/// Bytes of a log that start a checkpoint where names are salvaged: so few that descriptions are soon in place.
const CHECKPOINT_BYTES: u64 = 128 << 10;
/// Columns of a file that gets no more of them.
const WIDENED_MAX: u16 = 6;
/// Directory entries for each frame that is lent.
const ENTRIES_PER_FRAME: usize = 6;

fn open(boot: &mut Boot<'_>, id: StoreId, config: store::Config) -> Result<Store, StoreError> {
    let flaws = store::Flaws { pages_unverified: boot.cx.has_bug(Bug::PageSumIgnored) };
    let (backend, logs) = boot.open(id);
    Store::open(backend, store::Config { flaws, ..config }, logs)
}

fn started(boot: &Boot<'_>, roles: NodeRoles) -> Result<Box<dyn Any>, String> {
    match start(&boot.cx, roles) {
        Ok(services) => {
            if let Some(memory) = &services.memory {
                boot.cx.spawn("borrower", Borrower::new(&boot.cx, memory).run());
            }
            Ok(Box::new(services))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// A node's part in network memory; `None` at 0 MiB.
fn lends(mib: u32) -> Option<netmem::service::Config> {
    let bytes = (mib as usize) << 20;
    // Small memories, of which most pages are kept for others: the usual share would have no room for their entries.
    let entries = bytes / PAGE_BYTES * ENTRIES_PER_FRAME;
    let directory_bytes = entries * netmem::Directory::ENTRY_BYTES;
    let config =
        || netmem::service::Config { directory_bytes, ..netmem::service::Config::new(bytes) };
    (mib > 0).then(config)
}

fn member(
    boot: &Boot<'_>,
    manager: NodeId,
    roles: Option<members::Roles>,
    lends_mib: u32,
) -> Option<(NodeId, Identity)> {
    let id = boot.cx.id();
    let lender = (lends_mib > 0).then_some(members::Roles::MEMORY);
    let machine = lender.map_or(0, |_| id.0.into());
    let lends = members::Lends { mib: lends_mib, machine };
    let roles = roles.into_iter().chain(lender).reduce(|a, b| a | b)?;
    let disks = all_disks(boot.cx.disks()) & !boot.replacing;
    let name = format!("machine {}", id.0);
    Some((manager, Identity { name, roles, disks, addresses: Vec::new(), wish: Some(id), lends }))
}

/// One bit for each disk.
pub fn all_disks(count: u16) -> u32 {
    (1 << count) - 1
}

/// A manager for these I/O servers. It lends so many MiB, and scrubs its stores that often.
pub fn manager(servers: Vec<IoServer>, lends_mib: u32, scrub: Option<Duration>) -> Role {
    copying_manager(servers, lends_mib, scrub, 1)
}

/// The same of a volume with so many copies.
fn copying_manager(
    servers: Vec<IoServer>,
    lends_mib: u32,
    scrub: Option<Duration>,
    copies: u8,
) -> Role {
    Rc::new(move |boot| {
        let names = open(boot, StoreId::Names, names_store()).map_err(|error| error.to_string())?;
        let members = open(boot, StoreId::Members, members_store());
        let members = Some(members.map_err(|error| error.to_string())?);
        let volume = names::VolumeSettings::new(VOLUME);
        let servers = servers.clone();
        let usual = ManagerRole::new(names, members, volume);
        // Before there are groups there is no place for files that have copies.
        let servers = if copies > 1 { Vec::new() } else { servers };
        let role = ManagerRole { servers, scrub: scrub.or(usual.scrub), copies, ..usual };
        let own = (lends_mib > 0 || copies > 1).then_some(members::Roles::MANAGER);
        let member = member(boot, boot.cx.id(), own, lends_mib);
        let memory = lends(lends_mib);
        started(boot, NodeRoles { manager: Some(role), memory, member, ..NodeRoles::default() })
    })
}

/// The same, and its groups are shown to the checks.
fn shown_groups(role: Role, check: CopyCheck) -> Role {
    Rc::new(move |boot| {
        let started = role(boot)?;
        let services: &Services = started.downcast_ref().expect("the services");
        let members = services.members.clone().expect("the members' service");
        let check = check.clone();
        boot.cx.spawn("shown groups", async move {
            loop {
                let changed = members.groups_changed();
                check.note_groups(&members.groups());
                changed.await;
            }
        });
        Ok(started)
    })
}

/// A manager beside the one at `first`, for these I/O servers.
fn more_manager(
    first: NodeId,
    servers: Vec<IoServer>,
    scrub: Option<Duration>,
    copies: u8,
) -> Role {
    Rc::new(move |boot| {
        let names = open(boot, StoreId::Names, names_store()).map_err(|error| error.to_string())?;
        let usual = ManagerRole::new(names, None, names::VolumeSettings::new(VOLUME));
        let servers = if copies > 1 { Vec::new() } else { servers.clone() };
        let member = member(boot, first, (copies > 1).then_some(members::Roles::MANAGER), 0);
        let (first, scrub) = (Some(first), scrub.or(usual.scrub));
        let role = ManagerRole { servers, first, scrub, ..usual };
        started(boot, NodeRoles { manager: Some(role), member, ..NodeRoles::default() })
    })
}

/// All managers of a volume, which spread its sites and then leave them where they are. The first is the one that
/// clients know.
pub fn managers(servers: &[IoServer], managers: &[NodeId]) -> Vec<Role> {
    let role = |(at, _)| match at {
        0 => manager(servers.to_vec(), 0, None),
        _ => more_manager(managers[0], servers.to_vec(), None, 1),
    };
    let spreading = |role| moving_sites(role, managers.to_vec(), TakenOut::default(), false);
    managers.iter().enumerate().map(role).map(spreading).collect()
}

/// A manager that also spreads its sites over all managers, and goes on to move them then.
fn moving_sites(role: Role, managers: Vec<NodeId>, out: TakenOut, goes_on: bool) -> Role {
    Rc::new(move |boot| {
        let started = role(boot)?;
        let services: &Services = started.downcast_ref().expect("the services");
        let manager = services.manager.as_ref().expect("a manager").weak();
        let all = (managers.clone(), out.clone());
        let mover = site_mover(boot.cx.clone(), manager, all, goes_on);
        boot.cx.spawn("site mover", mover);
        Ok(started)
    })
}

/// Pause between two moves of sites of a manager while they are being spread, and from then on.
const SPREAD_PAUSE: Duration = Duration::from_millis(5);
const MOVE_PAUSE: Duration = Duration::from_secs(2);

/// Spreads the sites over all managers, then has one move now and then if that `goes_on`.
async fn site_mover(
    cx: Cx,
    manager: impl Fn() -> Option<names::Handle>,
    (managers, out): (Vec<NodeId>, TakenOut),
    goes_on: bool,
) {
    while let Some(manager) = manager() {
        let (sites, all) = (manager.sites(), out.all_in(&managers));
        let next = names::next_move(&sites, cx.id(), &all);
        cx.sleep(if next.is_some() { SPREAD_PAUSE } else { MOVE_PAUSE }).await;
        if next.is_none() && !goes_on {
            continue;
        }
        let (site, to) = next.unwrap_or_else(|| {
            let any = |count: usize| (cx.random() % count as u64) as usize;
            let own: Vec<u8> = sites.of(cx.id()).collect();
            let site = own.get(any(own.len().max(1))).copied().unwrap_or_default();
            let to = all.iter().nth(any(all.len())).copied().unwrap_or(cx.id());
            (site, to)
        });
        // One that is in use, or whose next manager is away, moves another time.
        let _ = manager.give(site, to).await;
    }
}

/// A manager that is taken out now and then; the first one is where the administrator is.
fn taken_out(role: Role, managers: Vec<NodeId>, out: TakenOut) -> Role {
    Rc::new(move |boot| {
        let started = role(boot)?;
        let services: &Services = started.downcast_ref().expect("the services");
        let manager = services.manager.as_ref().expect("a manager").weak();
        let (cx, out) = (boot.cx.clone(), out.clone());
        if cx.id() == managers[0] {
            let others = managers[1..].to_vec();
            cx.spawn("administrator", out.clone().administer(cx.clone(), others));
        }
        cx.spawn("taken out", out.follow(cx.clone(), manager, managers.clone()));
        Ok(started)
    })
}

/// Between two looks for empty directories.
const HASH_PAUSE: Duration = Duration::from_secs(1);

/// An I/O server with a disk or more.
pub fn server(
    manager: NodeId,
    cache_bytes: usize,
    lends_mib: u32,
    scrub: Option<Duration>,
    checkpoint_bytes: Option<u64>,
) -> Role {
    Rc::new(move |boot| {
        let usual = stripe::ServerConfig::new(VOLUME, boot.cx.id(), cache_bytes);
        let checkpoint_bytes = checkpoint_bytes.unwrap_or(usual.checkpoint_bytes);
        let scrub = scrub.or(usual.scrub);
        let replacing = boot.replacing;
        let io = Some(stripe::ServerConfig { scrub, checkpoint_bytes, replacing, ..usual });
        let member = member(boot, manager, Some(members::Roles::IO), lends_mib);
        started(boot, NodeRoles { io, member, memory: lends(lends_mib), ..NodeRoles::default() })
    })
}

/// A mount, which may also move columns now and then, or keep backups of the names.
pub fn mount(
    manager: NodeId,
    (moves_per_minute, widens_per_minute, hashes): (u32, u32, bool),
    lends_mib: u32,
    backups: Option<Backups>,
) -> Role {
    copying_mount(manager, (moves_per_minute, widens_per_minute, hashes), lends_mib, 1, backups)
}

/// The same of a volume with so many copies.
fn copying_mount(
    manager: NodeId,
    (moves_per_minute, widens_per_minute, hashes): (u32, u32, bool),
    lends_mib: u32,
    copies: u8,
    backups: Option<Backups>,
) -> Role {
    Rc::new(move |boot| {
        if let Some(pause) = Duration::from_secs(60).checked_div(moves_per_minute) {
            let (cx, names) = (&boot.cx, helper(&boot.cx, manager));
            cx.spawn("mover", mover(cx.clone(), names, pause));
        }
        if let Some(pause) = Duration::from_secs(60).checked_div(widens_per_minute) {
            let (cx, names) = (&boot.cx, helper(&boot.cx, manager));
            cx.spawn("widener", widener(cx.clone(), names, pause));
        }
        if hashes {
            let names = helper(&boot.cx, manager);
            boot.cx.spawn("hasher", hasher(boot.cx.clone(), names));
        }
        if let Some(backups) = backups.clone() {
            let (cx, names) = (&boot.cx, helper(&boot.cx, manager));
            if backups.chain().is_some() {
                let names = helper(cx, manager);
                cx.spawn("chain", backups.clone().serve_chain(cx.clone(), names));
            }
            let objects = stripe::Client::new(cx, VOLUME);
            cx.spawn("administrator", backups.serve(cx.clone(), names, objects));
        }
        let lent = (lends_mib as usize) << 20;
        let files = files::Config::for_pool(boot.cx.frames().pages() * PAGE_BYTES - lent);
        // Only members know the groups. It lends no memory, and has an id that it chose.
        let own = (copies > 1).then_some(members::Roles::MEMORY);
        let member = member(boot, manager, own, lends_mib);
        let memory = lends(lends_mib);
        let client = Some(ClientRole { manager, volume: VOLUME, files });
        started(boot, NodeRoles { client, member, memory, ..NodeRoles::default() })
    })
}

/// A client beside the mount. It renews its session, and claims its locks after a restart of the manager, as each
/// does: the manager gives no locks before.
fn helper(cx: &Cx, manager: NodeId) -> names::Client {
    let names = names::Client::new(cx, manager, VOLUME);
    let (kept, cx_of_it) = (names.clone(), cx.clone());
    cx.spawn("helper", async move {
        loop {
            // one that fails is followed by others
            let _ = kept.keep_alive().await;
            cx_of_it.sleep(KEEP_ALIVE_INTERVAL).await;
        }
    });
    names
}

/// A node that serves NFS.
pub fn front(manager: NodeId) -> Role {
    Rc::new(move |boot| {
        let client = Some(front_client(boot, manager));
        started(boot, NodeRoles { client, ..NodeRoles::default() })
    })
}

/// A node that keeps a directory as a cache of an origin.
fn importer(manager: NodeId, origin: SharedOrigin) -> Role {
    Rc::new(move |boot| {
        let client = Some(front_client(boot, manager));
        let started = started(boot, NodeRoles { client, ..NodeRoles::default() })?;
        let services: &Services = started.downcast_ref().expect("the services");
        let clients = services.files.as_ref().expect("a client").clients();
        boot.cx.spawn("import", import(boot.cx.clone(), clients, origin.clone()));
        Ok(started)
    })
}

fn front_client(boot: &Boot<'_>, manager: NodeId) -> ClientRole {
    let files = files::Config::for_pool(boot.cx.frames().pages() * PAGE_BYTES).for_nfs();
    ClientRole { manager, volume: VOLUME, files }
}

/// A manager that serves NFS on its own node.
fn with_front(role: Role, first: NodeId) -> Role {
    Rc::new(move |boot| {
        let mut started = role(boot)?;
        let services: &mut Services = started.downcast_mut().expect("the services");
        services.files = Some(start_client(&boot.cx, front_client(boot, first), None));
        Ok(started)
    })
}

/// A manager that also executes what filters forward to it.
fn executing(role: Role, first: NodeId) -> Role {
    Rc::new(move |boot| {
        let started = role(boot)?;
        let services: &Services = started.downcast_ref().expect("the services");
        executor::serve(&boot.cx, services, front_client(boot, first));
        Ok(started)
    })
}

/// A node that makes the root a hashed directory while it is empty.
pub fn root_hasher(manager: NodeId) -> Role {
    Rc::new(move |boot| {
        let (cx, names) = (boot.cx.clone(), helper(&boot.cx, manager));
        let hash = async move {
            while names.hash_directory(&Who::ROOT, FileId::ROOT).await.is_err() {
                cx.sleep(HASH_PAUSE).await;
            }
        };
        boot.cx.spawn("hasher", hash);
        Ok(Box::new(()))
    })
}

/// An administrator who never rests.
async fn mover(cx: Cx, names: names::Client, pause: Duration) {
    loop {
        cx.sleep(pause).await;
        // A file in use, or whose server is away, is moved another time.
        let _ = move_one(&cx, &names).await;
    }
}

/// One who gives files columns.
async fn widener(cx: Cx, names: names::Client, pause: Duration) {
    loop {
        cx.sleep(pause).await;
        let _ = widen_one(&cx, &names).await;
    }
}

/// One who has directories hashed while they are empty.
async fn hasher(cx: Cx, names: names::Client) {
    loop {
        // A move that fails for want of a manager is tried another time.
        let _ = hash_all(&names).await;
        cx.sleep(HASH_PAUSE).await;
    }
}

async fn hash_all(names: &names::Client) -> Result<(), Errno> {
    let mut directories = vec![FileId::ROOT];
    while let Some(directory) = directories.pop() {
        let list = || names.read_directory(&Who::ROOT, directory, 0, 16 << 10, Plus::Nothing);
        let listing = match list().await {
            // A part of it was lost with a manager's store.
            Err(Errno::ENOTRECOVERABLE) => {
                names.hash_directory(&Who::ROOT, directory).await?;
                list().await?
            }
            listed => listed?,
        };
        let is_below = |entry: &names::ListingEntry| {
            entry.kind == FileKind::Directory && !matches!(&entry.name[..], b"." | b"..")
        };
        directories.extend(listing.entries.iter().filter(|entry| is_below(entry)).map(|e| e.file));
        match names.hash_directory(&Who::ROOT, directory).await {
            // It has names, or has gone meanwhile.
            Ok(()) | Err(Errno::ENOTEMPTY | Errno::ESTALE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

async fn widen_one(cx: &Cx, names: &names::Client) -> Result<(), Errno> {
    let homes = homes_of(&names.servers().await?);
    let any = |count: usize| (cx.random() % count.max(1) as u64) as usize;
    let root = listed(names, FileId::ROOT).await?;
    let mut files = layouts_of(&root);
    // Of the directories of workers one at a time.
    let directories: Vec<FileId> = root
        .iter()
        .map(|entry| entry.attr)
        .filter(|attr| attr.kind == FileKind::Directory)
        .map(|attr| attr.file)
        .collect();
    if let Some(directory) = directories.get(any(directories.len())) {
        files.extend(layouts_of(&listed(names, *directory).await?));
    }
    files.retain(|(_, layout)| layout.width() < WIDENED_MAX);
    let (Some((file, _)), false) = (files.get(any(files.len())), homes.is_empty()) else {
        return Ok(());
    };
    let more: Vec<Home> = (0..=any(2)).map(|_| homes[any(homes.len())]).collect();
    names.add_columns(&Who::ROOT, *file, more).await.map(drop)
}

async fn listed(names: &names::Client, directory: FileId) -> Result<Vec<Entry>, Errno> {
    let listing = names.read_directory(&Who::ROOT, directory, 0, 16 << 10, Plus::Entries).await?;
    Ok(listing.entries.iter().filter_map(|listed| listed.entry).collect())
}

fn layouts_of(entries: &[Entry]) -> Vec<(FileId, Layout)> {
    entries.iter().filter_map(|entry| Some((entry.attr.file, entry.layout?))).collect()
}

async fn move_one(cx: &Cx, names: &names::Client) -> Result<(), Errno> {
    let homes = homes_of(&names.servers().await?);
    let files = layouts_of(&listed(names, FileId::ROOT).await?);
    if files.is_empty() || homes.is_empty() {
        return Ok(());
    }
    let any = |count: usize| (cx.random() % count as u64) as usize;
    let ((file, layout), home) = (files[any(files.len())], homes[any(homes.len())]);
    let column = any(layout.width().into()) as u16;
    names.move_column(&Who::ROOT, file, column, home, 0).await.map(drop)
}

/// The role, with services that stop cleanly when that is wanted.
fn stopping(role: Role, backups: Backups) -> Role {
    Rc::new(move |boot| {
        let services = role(boot)?;
        let started = services.downcast_ref().expect("the services of a node");
        backups.stop_when_wanted(&boot.cx, started);
        Ok(services)
    })
}

/// The roles of a cluster for [`crate::run::run`], with these planted bugs.
pub fn roles(experiment: &Experiment, bugs: u128) -> Roles {
    let members = Members::of(experiment);
    let (at, servers, managers) = (members.manager, members.servers.clone(), members.managers());
    let lends_mib = experiment.shape.lend_mib;
    let cache_bytes = if lends_mib > 0 { CACHE_BESIDE_MEMORY_BYTES } else { CACHE_BYTES };
    let disks = all_disks(experiment.shape.disks);
    let scrub = experiment.shape.scrub();
    let servers = servers.into_iter().map(|id| IoServer { disks, ..IoServer::from(id) });
    let servers: Vec<IoServer> = servers.collect();
    let shape = &experiment.shape;
    let changes = (shape.moves_per_minute, shape.widens_per_minute, shape.hashes);
    let backups = match managers.len() {
        1 => Backups::default(),
        _ => Backups::of_several(),
    };
    let taken = experiment.restores().then(|| backups.clone());
    let salvages = experiment.salvages();
    let checkpoint_bytes = salvages.then_some(CHECKPOINT_BYTES).or(shape.checkpoint_bytes());
    let copies = shape.copies;
    let check = (copies > 1).then(CopyCheck::default);
    let more_manager = more_manager(at, servers.clone(), scrub, copies);
    let out = TakenOut::default();
    let several = |role| {
        let role = moving_sites(role, managers.clone(), out.clone(), true);
        if shape.takes_out { taken_out(role, managers.clone(), out.clone()) } else { role }
    };
    let manager = copying_manager(servers, lends_mib, scrub, copies);
    let manager = check.iter().fold(manager, |role, check| shown_groups(role, check.clone()));
    let manager = if managers.len() > 1 { several(manager) } else { manager };
    let more_manager = several(more_manager);
    let has_fronts = experiment.nfs.is_some_and(|nfs| nfs.on_managers);
    let with_front = |role| if has_fronts { with_front(role, at) } else { role };
    let (manager, more_manager) = (with_front(manager), with_front(more_manager));
    let forwarded = experiment.nfs.is_some_and(|nfs| nfs.filters);
    let executing = |role| if forwarded { executing(role, at) } else { role };
    let server = server(at, cache_bytes, lends_mib, scrub, checkpoint_bytes);
    let with_stop = |role: Role| if salvages { stopping(role, backups.clone()) } else { role };
    Roles {
        manager: executing(with_stop(manager)),
        more_manager: executing(more_manager),
        server: with_stop(server),
        mount: copying_mount(at, changes, lends_mib, copies, taken),
        front: front(at),
        importer: experiment.imports.map(|shape| {
            let origin = origin_of(&shape);
            (importer(at, origin.clone()), origin)
        }),
        bugs,
        backups,
        taken_out: out,
        copies: check,
    }
}
