//! Assembly of a node of a cluster: the same in the simulated and in the real world.
//!
//! A node may be an I/O server, the manager of the volume (which also keeps the members), a client, or all of them. The
//! world opens the stores, because their files are its own, and moves the node's rings.

pub mod executor;
mod grouped;

use crate::{Config, Files, serve};
use grouped::{Grouped, grouped_servers};
use members::{Directory, Identity, Member, Roles, Standing, ToldDisk, Verdict};
use names::{IoServer, Stopping, VolumeSettings};
use node::{Bug, Cx};
use std::collections::BTreeSet;
use std::time::Duration;
use store::{Store, StoreError};
use stripe::{Server, ServerConfig};
use wire::layout::WIDTH_MAX;
use wire::{Errno, NodeId, VolumeId};

/// The roles of one node.
#[derive(Default)]
pub struct NodeRoles {
    /// Lends memory to the cluster and keeps pages in that of others; comes with [`member`](NodeRoles::member), whose
    /// views it goes by.
    pub memory: Option<netmem::service::Config>,
    /// Keeps objects on the node's disks.
    pub io: Option<ServerConfig>,
    /// Keeps the name space.
    pub manager: Option<ManagerRole>,
    /// Is a member of the cluster that this manager keeps.
    pub member: Option<(NodeId, Identity)>,
    /// Answers the node's front ring.
    pub client: Option<ClientRole>,
}

/// A file manager.
pub struct ManagerRole {
    /// The name space's store, opened with [`names::STORE`].
    pub names: Store,
    /// The members' store, opened with [`members_store`]; without it the I/O servers are `servers` for ever.
    pub members: Option<Store>,
    /// The volume.
    pub volume: VolumeSettings,
    /// I/O servers of new files, until members with that role have joined.
    pub servers: Vec<IoServer>,
    /// In which time all of the stores is read once; never when there is none.
    pub scrub: Option<Duration>,
    /// The manager that the volume was made at; `None` is this one.
    pub first: Option<NodeId>,
    /// Copies of each byte of files, on disks of distinct servers: 1 of none but the byte.
    pub copies: u8,
}

impl ManagerRole {
    /// With the usual period of the scrub, and without servers of its own.
    pub fn new(names: Store, members: Option<Store>, volume: VolumeSettings) -> ManagerRole {
        let scrub = Some(node::limits::SCRUB_PERIOD);
        let (servers, first, copies) = (Vec::new(), None, 1);
        ManagerRole { names, members, volume, servers, scrub, first, copies }
    }
}

/// A client.
#[derive(Clone, Copy, Debug)]
pub struct ClientRole {
    /// The volume's manager.
    pub manager: NodeId,
    /// The volume.
    pub volume: VolumeId,
    /// Limits.
    pub files: Config,
}

/// The services that a node runs.
#[derive(Default)]
pub struct Services {
    /// Network memory.
    pub memory: Option<netmem::Service>,
    /// The I/O server.
    pub io: Option<Server>,
    /// The file manager.
    pub manager: Option<names::Handle>,
    /// The members' service.
    pub members: Option<members::Service>,
    /// The node's own membership.
    pub member: Option<members::Client>,
    /// The client.
    pub files: Option<Files>,
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The name space.
    #[error("the file manager does not start: {0}")]
    Names(#[from] names::OpenError),
    /// The members.
    #[error("the membership service does not start: {0}")]
    Members(#[from] StoreError),
}

/// How the members' store is opened.
pub fn members_store() -> store::Config {
    store::Config::new(members::STORE_KIND, members::STORE_VERSION)
}

/// How the name space's store is opened.
pub fn names_store() -> store::Config {
    store::Config::new(names::STORE.kind, names::STORE.version)
}

/// Starts the services of a node.
pub fn start(cx: &Cx, roles: NodeRoles) -> Result<Services, StartError> {
    let memory = roles.memory.map(|config| netmem::Service::start(cx, config));
    let member = roles.member.map(|(at, identity)| members::Client::new(cx, at, identity));
    let groups = member.as_ref().map(members::Client::groups);
    let io = roles.io.map(|config| {
        let (confirms, groups) = (groups.is_some() || config.confirms, groups.clone());
        start_io(cx, ServerConfig { confirms, groups, ..config }, &memory)
    });
    let volume = roles.manager.as_ref().map(|role| role.volume.volume);
    let (manager, members) = match roles.manager {
        Some(role) => start_manager(cx, role, groups.clone())?,
        None => (None, None),
    };
    member.iter().for_each(members::Client::begin);
    if let (Some(manager), Some(member)) = (&manager, &member) {
        cx.spawn("cluster: sites", spread_sites(cx.clone(), manager.weak(), member.clone()));
        if members.is_none() {
            let objects = objects_of(cx, volume.unwrap_or_default(), groups.clone());
            cx.spawn("cluster: servers", follow_from_afar(member.clone(), manager.weak(), objects));
        }
    }
    if let (Some(memory), Some(member)) = (&memory, &member) {
        cx.spawn("cluster: memory", follow_lenders(memory.clone(), member.clone()));
    }
    if let (Some(io), Some(member)) = (&io, &member) {
        cx.spawn("cluster: disks", confirm_disks(cx.clone(), io.clone(), member.clone()));
    }
    let files = roles.client.map(|client| start_client(cx, client, member.as_ref()));
    Ok(Services { memory, io, manager, members, member, files })
}

/// Starts the client of a node with this membership, beside its other services.
pub fn start_client(cx: &Cx, client: ClientRole, member: Option<&members::Client>) -> Files {
    let objects = objects_of(cx, client.volume, member.map(members::Client::groups));
    if let Some(member) = member {
        cx.spawn("cluster: gone", follow_gone(objects.clone(), member.clone()));
    }
    let names = names::Client::new(cx, client.manager, client.volume);
    if let Some(member) = member {
        cx.spawn("cluster: managers", follow_managers(names.clone(), member.clone()));
    }
    serve(cx, client.files, names, objects)
}

/// A client of a volume's I/O servers, which knows its groups where the node is a member.
fn objects_of(cx: &Cx, volume: VolumeId, groups: Option<members::Groups>) -> stripe::Client {
    let objects = stripe::Client::new(cx, volume);
    groups.into_iter().for_each(|groups| objects.set_groups(groups));
    objects
}

fn start_io(cx: &Cx, config: ServerConfig, memory: &Option<netmem::Service>) -> Server {
    let memory = memory.clone().or(config.memory);
    stripe::serve(cx, ServerConfig { memory, ..config })
}

type Managing = (Option<names::Handle>, Option<members::Service>);

fn start_manager(
    cx: &Cx,
    role: ManagerRole,
    groups: Option<members::Groups>,
) -> Result<Managing, StartError> {
    let ManagerRole { names, members, volume, servers, scrub, first, copies } = role;
    let objects = objects_of(cx, volume.volume, groups);
    let members = match members {
        Some(store) => Some(members::serve(
            cx,
            store,
            members::Config { scrub, copies, ..members::Config::default() },
        )?),
        None => None,
    };
    let witnesses = match &members {
        Some(members) => witnesses(members.registry().members()),
        None => servers.iter().map(|server| server.id).collect(),
    };
    let managers = match &members {
        Some(members) => other_managers(members.registry().members(), cx.id()),
        None => first.into_iter().collect(),
    };
    let config = names::Config { volume, servers, witnesses, scrub, first, managers };
    let manager = names::serve(cx, config, names, objects.clone())?;
    if let Some(members) = &members {
        let rows = members.clone();
        manager.set_members(move || rows.rows().map_err(Errno::from));
        let told = manager.weak();
        members.before_stopping(move |server, groups| {
            let (told, homes) = (told(), grouped::homes_at(groups, server));
            Box::pin(async move {
                if let Some(told) = told {
                    told.settle(Some(Stopping { server, homes })).await;
                }
            })
        });
        cx.spawn("cluster: servers", follow(members.clone(), manager.clone(), objects, copies));
    }
    Ok((Some(manager), members))
}

/// The servers that a manager asks when it starts how far its store was: those that were up, and all where none was, as
/// after a clean stop of everything.
fn witnesses<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<NodeId> {
    let there = |member: &&Member| member.roles.contains(Roles::IO) && !member.gone;
    let all: Vec<&Member> = members.filter(there).collect();
    let up = all.iter().any(|member| member.alive);
    all.into_iter().filter(|member| member.alive || !up).map(|member| member.id).collect()
}

/// The managers that one whose store is a copy asks which sites they have.
fn other_managers<'a>(members: impl Iterator<Item = &'a Member>, own: NodeId) -> Vec<NodeId> {
    let is_one = |m: &&Member| m.roles.contains(Roles::MANAGER) && !m.gone && m.id != own;
    members.filter(is_one).map(|member| member.id).collect()
}

/// The disks of these members that were declared gone, as a client of I/O servers takes them.
pub fn gone_disks<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<(NodeId, u32)> {
    members.map(|member| (member.id, member.lost_disks())).filter(|(_, lost)| *lost != 0).collect()
}

/// Reads and writes of what was declared gone fail at once.
async fn follow_gone(objects: stripe::Client, member: members::Client) {
    loop {
        let changed = member.changed();
        objects.set_gone(gone_disks(member.directory().iter()));
        changed.await;
    }
}

/// Managers that are gone are asked for nothing any more.
async fn follow_managers(names: names::Client, member: members::Client) {
    loop {
        let changed = member.changed();
        names.forget_managers(&managers(&member.directory(), |m| m.gone));
        changed.await;
    }
}

/// How long the last checkpoint of a server that stops is waited for: that of a full log takes a second or two.
const PLACING_SPAN: Duration = Duration::from_secs(5);
/// How long the manager may take to hear how far the disks are.
const TELLING_SPAN: Duration = Duration::from_secs(1);

/// For a clean stop: objects have what the manager knows of their files, how far the disks and the manager are stands
/// in the disks' labels, and the manager knows the disks'. Ends within seconds, also where others are away.
pub async fn settle(
    cx: Cx,
    io: Option<Server>,
    manager: Option<names::Handle>,
    member: members::Client,
) {
    if let Some(manager) = manager {
        manager.settle(None).await;
    }
    if let Some(io) = io
        && matches!(member.standing(), Standing::Member(_))
    {
        // Without an answer, or without a disk that can be written to, it is as if the machine had died.
        let _ = member.stopping().await;
        let _ = cx.with_deadline(PLACING_SPAN, io.place_descriptions()).await;
        // The positions after the checkpoint are noted, too.
        let _ = io.note().await;
        if io.is_ready() {
            let told = told_disks(&io);
            let _ = cx.with_deadline(TELLING_SPAN, member.tell_disks(&told, io.replacing())).await;
        }
    }
}

/// How long to wait before disks that were not confirmed are told again.
const CONFIRM_PAUSE: Duration = Duration::from_millis(200);

/// An I/O server serves the disks that the manager knows as its own, and tells with its lease how far they are.
async fn confirm_disks(cx: Cx, io: Server, member: members::Client) {
    let _ = io.ready().await;
    let untold = cx.has_bug(Bug::ReplacementNotTold);
    let replacing = if untold { 0 } else { io.replacing() };
    let mut last = None;
    loop {
        let changed = member.changed();
        let told = told_disks(&io);
        let is_member = matches!(member.standing(), Standing::Member(_));
        if is_member && last.as_ref() != Some(&told) {
            match member.tell_disks(&told, replacing).await {
                Ok(verdict) => {
                    let verdict = planted(&cx, verdict);
                    let judge = |told: &ToldDisk| judged(verdict, told, replacing);
                    told.iter().for_each(|told| io.confirm(told.disk, judge(told)));
                    last = Some(told);
                }
                Err(_) => {
                    cx.sleep(CONFIRM_PAUSE).await;
                    continue;
                }
            }
        }
        changed.await;
    }
}

fn told_disks(io: &Server) -> Vec<ToldDisk> {
    let told = |(disk, age): (u16, stripe::DiskAge)| ToldDisk {
        disk,
        id: age.id,
        found: age.found,
        now: age.now,
    };
    io.ages().into_iter().map(told).collect()
}

/// The verdict without what a planted bug ignores of it.
fn planted(cx: &Cx, verdict: Verdict) -> Verdict {
    let kept = |bits: u32, bug: Bug| if cx.has_bug(bug) { 0 } else { bits };
    Verdict {
        foreign: kept(verdict.foreign, Bug::DiskIdIgnored),
        older: kept(verdict.older, Bug::DiskAgeIgnored),
        ..verdict
    }
}

fn judged(verdict: Verdict, told: &ToldDisk, replacing: u32) -> Result<(), String> {
    let has = |bits: u32| bits >> told.disk & 1 == 1;
    let next = "bring the disk back as it was last, and start the server again; if it is lost, move the directory away, keep \
                it, and the server's other disks serve without it; a new disk gets a directory of its own: \
                `trapeze disk add`";
    match () {
        () if has(verdict.needed) => Err(
            "the only whole copy of some files is on the disk that was here, so no empty one takes its place: start \
             the servers that `trapeze status` names as down, and wait until it counts no group that lacks a copy; or \
             bring that disk back"
                .into(),
        ),
        () if has(verdict.foreign & replacing) => Err(
            "it is empty, or has served before, and files of this cluster have their only copy on the disk that was here: \
             a new disk gets a directory of its own: `trapeze disk add`"
                .into(),
        ),
        () if has(verdict.foreign) => Err(format!(
            "the cluster knows another disk here: its directory is empty, a mount point without its disk, or another \
             disk's; {next}"
        )),
        () if has(verdict.older) => Err(format!(
            "this is an older copy of the disk: what was written since is not on it; {next}"
        )),
        () => Ok(()),
    }
}

/// Network memory goes by the members' view of who lends, and trusts it for as long as the membership lasts.
async fn follow_lenders(memory: netmem::Service, member: members::Client) {
    loop {
        let changed = member.changed();
        memory.follow((*member.lenders()).clone());
        if let Some((incarnation, until)) = member.lends() {
            memory.set_lease(incarnation, until);
        }
        changed.await;
    }
}

/// The manager goes by the members that it keeps itself.
async fn follow(
    members: members::Service,
    manager: names::Handle,
    objects: stripe::Client,
    copies: u8,
) {
    loop {
        let (changed, regrouped) = (members.changed(), members.groups_changed());
        let all: Vec<Member> = members.registry().members().cloned().collect();
        let groups = (copies > 1).then(|| grouped_servers(&members.groups()));
        set_servers(&manager, &objects, &all, groups);
        node::race(changed, regrouped).await;
    }
}

/// The same for a manager that another one tells who the members are.
async fn follow_from_afar(
    member: members::Client,
    manager: impl Fn() -> Option<names::Handle>,
    objects: stripe::Client,
) {
    while let Some(manager) = manager() {
        let (groups, changed) = (member.groups(), member.changed());
        let regrouped = groups.changed();
        let all: Vec<Member> = member.directory().iter().cloned().collect();
        let grouped = (groups.version() > 0).then(|| grouped_servers(&groups.table()));
        set_servers(&manager, &objects, &all, grouped);
        drop(manager);
        node::race(changed, regrouped).await;
    }
}

/// New files go to the I/O servers that are members and alive; with none alive, to those that were. Where files are to
/// have copies they go to groups that are whole, each of which counts as a server with one disk; without a whole one to
/// all groups, and without groups to none. A file has no more columns than there are disks that the groups are on.
fn set_servers(
    manager: &names::Handle,
    objects: &stripe::Client,
    members: &[Member],
    groups: Option<Grouped>,
) {
    let gone = gone_disks(members.iter());
    manager.set_gone(&gone);
    objects.set_gone(gone);
    let takes = |m: &&Member| m.alive && m.roles.contains(Roles::IO) && m.disks != 0;
    let all = members.iter().filter(takes);
    let alone: Vec<IoServer> =
        all.map(|m| IoServer { id: m.id, disks: m.disks, retired: false }).collect();
    let witnesses: Vec<NodeId> = alone.iter().map(|server| server.id).collect();
    let alone = || Grouped { servers: alone, disks: WIDTH_MAX };
    let Grouped { servers, disks } = groups.unwrap_or_else(alone);
    if !servers.is_empty() {
        manager.set_servers(&servers);
        manager.set_columns_max(disks);
    }
    if !witnesses.is_empty() {
        manager.set_witnesses(&witnesses);
    }
}

/// Pause before a site that could not be handed over, or the next one, is tried.
const SPREAD_PAUSE: Duration = Duration::from_secs(1);

/// The file managers among the members of which that holds.
fn managers(directory: &Directory, which: impl Fn(&Member) -> bool) -> BTreeSet<NodeId> {
    let is_one = |m: &&Member| m.roles.contains(Roles::MANAGER) && which(m);
    directory.iter().filter(is_one).map(|m| m.id).collect()
}

/// A retired manager without sites says so to the members when all others know it.
async fn drain(
    cx: &Cx,
    manager: &names::Handle,
    member: &members::Client,
    directory: &Directory,
) -> Result<(), Errno> {
    let others = managers(directory, |m| !m.gone && m.id != cx.id());
    manager.drain(directory.view, others.into_iter().collect()).await?;
    member.drained().await?;
    member.refresh().await
}

/// Hands sites over until all managers have as many, when one has joined, and those that are retired have none.
async fn spread_sites(
    cx: Cx,
    manager: impl Fn() -> Option<names::Handle>,
    member: members::Client,
) {
    while let Some(manager) = manager() {
        let changed = member.changed();
        let directory = member.directory();
        let all = managers(&directory, |m| !m.gone && !m.retired);
        manager.hear_members(directory.view, managers(&directory, |m| m.gone));
        let own = directory.get(cx.id());
        let next = match own.is_some() {
            true => names::next_move(&manager.sites(), cx.id(), &all),
            false => None, // who is there is not known yet
        };
        let given = match next {
            Some((site, to)) => Some(manager.give(site, to).await),
            None if own.is_some_and(|own| own.retired && !own.drained) => {
                Some(drain(&cx, &manager, &member, &directory).await)
            }
            None => None,
        };
        drop(manager);
        match given {
            // Sites come and go only where there is another manager.
            None if all.len() < 2 => changed.await,
            None => drop(node::race(changed, cx.sleep(SPREAD_PAUSE)).await),
            Some(Ok(())) => {}
            // In use just now, or its next manager is away.
            Some(Err(_)) => cx.sleep(SPREAD_PAUSE).await,
        }
    }
}
