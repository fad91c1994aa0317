//! The node that keeps the members and their groups, and what makes servers members.

use super::{Machine, World, node, small};
use members::groups::{Group, GroupId};
use members::{Config, Identity, Lends, Roles, STORE_KIND, STORE_VERSION, Service, ToldDisk};
use node::rings::{MetaDone, MetaOp, MetaRoom};
use node::{Cx, Node};
use store::{MemoryBackend, MemoryLogs, Store};
use stripe::{FileRef, Server, ServerConfig};
use wire::{FileId, Home, Layout, NodeId};

pub const MANAGER: NodeId = NodeId(90);

/// The first manager, as far as I/O servers need it.
pub struct Manager {
    pub node: Node,
    pub service: Service,
    logs: MemoryLogs,
    /// It answers nobody.
    pub is_away: bool,
}

impl Manager {
    fn new(copies: u8, per_disk: u16) -> Manager {
        let (node, logs) = (node(MANAGER, 1, 0), MemoryLogs::new());
        let config = store::Config::new(STORE_KIND, STORE_VERSION);
        let store = Store::open(MemoryBackend::new(), config, logs.contents()).unwrap();
        let config = Config { copies, per_disk, ..Config::default() };
        let service = members::serve(node.cx(), store, config).unwrap();
        Manager { node, service, logs, is_away: false }
    }

    pub fn serve_meta(&mut self) {
        while let Some(request) = self.node.take_meta() {
            let mut result = Ok(());
            match request.op {
                MetaOp::Append { log, bytes } => self.logs.append(log, &bytes),
                MetaOp::Sync { log } => self.logs.sync(log),
                MetaOp::DropLog { log } => self.logs.remove(log),
                MetaOp::Checkpoint(work) => result = work.run().map_err(Into::into),
                _ => {}
            }
            let (ticket, room) = (request.ticket, MetaRoom::Plenty);
            self.node.meta_done(MetaDone { ticket, result, room });
        }
    }
}

/// Makes a server's node a member before the server starts.
pub fn join(cx: &Cx, config: ServerConfig, disks: usize) -> (ServerConfig, members::Client) {
    let identity = Identity {
        name: format!("server {}", cx.id()),
        roles: Roles::IO,
        disks: (1 << disks) - 1,
        addresses: Vec::new(),
        wish: None,
        lends: Lends::default(),
    };
    let member = members::Client::start(cx, MANAGER, identity);
    (ServerConfig { groups: Some(member.groups()), ..config }, member)
}

/// Tells the disks of a server, as soon as it is ready and a member.
pub fn tell(cx: &Cx, server: &Server, member: &members::Client) {
    let (server, member, cx) = (server.clone(), member.clone(), cx.clone());
    cx.clone().spawn("test disks", async move {
        let _ = server.ready().await;
        let told = |(disk, age): (u16, stripe::DiskAge)| ToldDisk {
            disk,
            id: age.id,
            found: age.found,
            now: age.now,
        };
        loop {
            let disks: Vec<ToldDisk> = server.ages().into_iter().map(told).collect();
            if member.tell_disks(&disks, 0).await.is_ok() {
                return;
            }
            cx.sleep(std::time::Duration::from_millis(20)).await;
        }
    });
}

impl World {
    /// Servers of one disk, which are members, in groups of two copies.
    pub fn grouped(servers: u16, seed: u64) -> World {
        World::grouped_as(servers, seed, small)
    }

    pub fn grouped_as(servers: u16, seed: u64, config: fn(NodeId) -> ServerConfig) -> World {
        let mut world = World::with(0, 1, seed, small);
        world.manager = Some(Manager::new(2, 2));
        for id in 1..=servers {
            let disk = super::disk::Disk::new(seed * 977 + u64::from(id));
            let machine = Machine::member(config(NodeId(id)), vec![disk], 1);
            world.servers.push(machine);
        }
        let groups = members::Groups::new(&world.cx(), MANAGER);
        world.client.set_groups(groups);
        for _ in 0..60_000 {
            world.turn();
            if world.groups().len() == usize::from(servers) {
                world.turns(2_000);
                return world;
            }
        }
        panic!("no groups after 12 seconds");
    }

    /// All groups, as the manager has them.
    pub fn groups(&self) -> Vec<(GroupId, Group)> {
        let manager = self.manager.as_ref().expect("a manager");
        manager.service.groups().iter().map(|(id, group)| (id, group.clone())).collect()
    }

    /// Turns until every group has two replicas in sync.
    pub fn until_whole(&mut self) {
        for _ in 0..300_000 {
            if self.groups().iter().all(|(_, group)| group.lacks() == 0) {
                return;
            }
            self.turn();
        }
        let problems: Vec<String> =
            self.servers.iter().flat_map(|it| it.server.as_ref().unwrap().problems()).collect();
        panic!("not whole after a minute: {:?} {problems:?}", self.groups());
    }

    /// A file whose columns are in all groups.
    pub fn replicated(&self, file: u64) -> FileRef {
        let homes: Vec<Home> = self.groups().iter().map(|(id, _)| Home::from(*id)).collect();
        let layout = Layout::new(1, 32 * 1024, &homes).unwrap();
        FileRef { file: FileId(file), layout, truncations: 0 }
    }
}
