//! The service and its clients on nodes, over a link in memory.

use members::limits::LEASE_DEFAULT;
use members::{
    Client, Config, Identity, Lends, Member, Roles, STORE_KIND, STORE_VERSION, Service, Standing,
    join, serve,
};
use node::rings::{MetaDone, MetaError, MetaOp, MetaRoom};
use rig::Net;
use std::cell::RefCell;
use std::rc::Rc;
use store::{MemoryBackend, MemoryLogs, Store};
use wire::{Errno, NodeId};

pub const MANAGER: NodeId = NodeId(1);

/// Node 1 is the manager; nodes 2 and 3 are members.
pub struct World {
    pub net: Net,
    pub backend: MemoryBackend,
    pub logs: MemoryLogs,
    pub service: Option<Service>,
    config: Config,
    incarnation: u64,
    checkpoints: usize,
    pub syncs: usize,
    /// The log that cannot be appended to any more.
    pub full_log: Option<u64>,
    /// Syncs fail.
    pub is_broken: bool,
}

impl World {
    fn new() -> World {
        World::with(3, Config::default())
    }

    pub fn with(nodes: u16, config: Config) -> World {
        let mut world = World {
            net: Net::new(nodes),
            backend: MemoryBackend::new(),
            logs: MemoryLogs::new(),
            service: None,
            config,
            incarnation: 1,
            checkpoints: 0,
            syncs: 0,
            full_log: None,
            is_broken: false,
        };
        world.serve();
        world
    }

    fn serve(&mut self) {
        let config = store::Config::new(STORE_KIND, STORE_VERSION);
        let store = Store::open(self.backend.clone(), config, self.logs.contents()).unwrap();
        self.service = Some(serve(self.net.nodes[0].cx(), store, self.config).unwrap());
    }

    pub fn restart_manager(&mut self) {
        self.service = None;
        self.backend = self.backend.kill();
        self.incarnation += 1;
        self.net.restart(1, self.incarnation);
        self.serve();
    }

    pub fn start(&self, id: u16, name: &str, roles: Roles) -> Client {
        let addresses = vec![format!("{name}:7000")];
        let identity = Identity {
            name: name.into(),
            roles,
            disks: 1,
            addresses,
            wish: None,
            lends: Lends::default(),
        };
        Client::start(self.net.nodes[usize::from(id) - 1].cx(), MANAGER, identity)
    }

    fn start_lending(&self, id: u16, name: &str, mib: u32) -> Client {
        let lends = Lends { mib, machine: 0 };
        let (roles, addresses) = (Roles::IO | Roles::MEMORY, Vec::new());
        let identity =
            Identity { name: name.into(), roles, disks: 1, addresses, wish: None, lends };
        Client::start(self.net.nodes[usize::from(id) - 1].cx(), MANAGER, identity)
    }

    pub fn turn(&mut self) {
        self.net.turn();
        while let Some(request) = self.net.nodes[0].take_meta() {
            let result = self.execute(request.op);
            self.net.nodes[0].meta_done(MetaDone {
                ticket: request.ticket,
                result,
                room: MetaRoom::Plenty,
            });
        }
    }

    fn execute(&mut self, op: MetaOp) -> Result<(), MetaError> {
        match op {
            MetaOp::Append { log, .. } if self.full_log == Some(log) => {
                return Err(MetaError { full: true, reason: "the disk is full".into() });
            }
            MetaOp::Append { log, bytes } => self.logs.append(log, &bytes),
            MetaOp::Sync { .. } if self.is_broken => {
                return Err(MetaError { full: false, reason: "the disk is broken".into() });
            }
            MetaOp::Sync { log } => {
                self.syncs += 1;
                self.logs.sync(log);
            }
            MetaOp::DropLog { log } => self.logs.remove(log),
            MetaOp::Room => {}
            MetaOp::Checkpoint(work) => {
                self.checkpoints += 1;
                return work.run().map_err(MetaError::from);
            }
        }
        Ok(())
    }

    pub fn seconds(&mut self, seconds: usize) {
        (0..seconds * 1000).for_each(|_| self.turn());
    }

    pub fn until(&mut self, mut done: impl FnMut(&World) -> bool) {
        for _ in 0..60_000 {
            if done(self) {
                return;
            }
            self.turn();
        }
        panic!("not done after a minute");
    }
}

pub fn is_member(client: &Client) -> bool {
    matches!(client.standing(), Standing::Member(_)) && client.directory().view > 0
}

fn names(client: &Client) -> Vec<String> {
    let directory = client.directory();
    directory.iter().filter(|member| member.alive).map(|member| member.name.clone()).collect()
}

/// Results so far of a task that waits, again after each error, until its node is a member.
fn joins(net: &Net, client: &Client) -> Rc<RefCell<Vec<Result<(), Errno>>>> {
    let told = Rc::new(RefCell::new(Vec::new()));
    let (list, client) = (told.clone(), client.clone());
    net.nodes[1].cx().spawn("test", async move {
        while list.borrow().last() != Some(&Ok(())) {
            let result = client.joined().await;
            list.borrow_mut().push(result);
            client.changed().await;
        }
    });
    told
}

/// The manager's record of a member.
fn registered(world: &World, id: u16) -> Member {
    let service = world.service.as_ref().expect("the manager runs");
    service.registry().member(NodeId(id)).expect("a server keeps its id").clone()
}

#[test]
fn members_join_see_each_other_and_are_missed() {
    let mut world = World::new();
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    assert_eq!(names(&alpha), ["alpha"]);
    let beta = world.start(3, "beta", Roles::IO);
    world.until(|_| is_member(&beta));
    assert_eq!(names(&beta), ["alpha", "beta"]);
    world.until(|_| names(&alpha).len() == 2);
    assert_eq!(alpha.directory().get(NodeId(3)).unwrap().addresses, ["beta:7000"]);

    world.net.restart(3, 2);
    drop(beta);
    world.until(|world| !registered(world, 3).alive);
    assert_eq!(registered(&world, 3).incarnation, 1);
    world.until(|_| names(&alpha) == ["alpha"]);
    assert!(is_member(&alpha), "it went on renewing");
}

#[test]
fn a_restart_of_the_manager_is_not_noticed_by_members() {
    let mut world = World::new();
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    let view = alpha.directory().view;
    world.restart_manager();
    world.seconds(25);
    assert!(is_member(&alpha));
    assert_eq!(alpha.directory().view, view);
    assert_eq!(names(&alpha), ["alpha"]);
}

#[test]
fn a_silent_manager_costs_the_membership_until_it_speaks_again() {
    let mut world = World::new();
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    world.net.fate = Box::new(|_| (0, 0));
    world.seconds(9);
    world.until(|_| alpha.standing() == Standing::Lost);
    let registry = world.service.as_ref().unwrap().registry();
    let known = registry.member(NodeId(2)).unwrap().incarnation;
    drop(registry);
    assert_eq!(known, 1);
    world.net.fate = Box::new(|_| (1, 0));
    world.until(|_| is_member(&alpha));
}

#[test]
fn leaving_is_told_at_once() {
    let mut world = World::new();
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    let leaving = alpha.clone();
    world.net.nodes[1].cx().spawn("test", async move { leaving.leave().await.unwrap() });
    world.seconds(1);
    assert!(!registered(&world, 2).alive);
    assert_eq!(alpha.standing(), Standing::Left);
    world.seconds(20);
    assert_eq!(alpha.standing(), Standing::Left);
    assert!(!registered(&world, 2).alive);
}

#[test]
fn a_name_that_another_node_has_is_refused_by_number() {
    let mut world = World::new();
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    let other = world.start(3, "alpha", Roles::IO);
    world.until(|_| other.refused() == Some(Errno::EEXIST));
    assert_eq!(other.standing(), Standing::Joining);
    assert!(is_member(&alpha));
}

#[test]
fn a_server_whose_clock_was_set_back_is_told_which_life_is_preferred() {
    let mut world = World::new();
    world.net.restart(2, 9);
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    assert_eq!(alpha.later_incarnation(), None);
    world.net.restart(2, 5);
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| alpha.later_incarnation() == Some(9));
    assert_eq!(alpha.refused(), Some(Errno::ESTALE));
    world.net.restart(2, 10);
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    assert_eq!(alpha.later_incarnation(), None);
}

#[test]
fn changes_are_in_the_checkpoint_soon_and_an_idle_service_does_nothing() {
    let mut world = World::new();
    let alpha = world.start(2, "alpha", Roles::IO);
    world.until(|_| is_member(&alpha));
    world.seconds(3);
    assert_eq!(world.logs.contents().count(), 1, "checkpointed, and the last log is its witness");
    let (checkpoints, syncs) = (world.checkpoints, world.backend.syncs());
    assert_eq!(checkpoints, 1);
    world.seconds(30);
    assert_eq!((world.checkpoints, world.backend.syncs()), (checkpoints, syncs));
}

#[test]
fn a_log_that_cannot_be_written_refuses_changes_until_a_checkpoint() {
    let mut world = World::new();
    world.full_log = Some(1);
    let alpha = world.start(2, "alpha", Roles::IO);
    let told = joins(&world.net, &alpha);
    world.until(|_| alpha.refused() == Some(Errno::EIO));
    assert_eq!(alpha.standing(), Standing::Joining);
    world.until(|_| is_member(&alpha));
    assert_eq!(*told.borrow(), [Err(Errno::EIO), Ok(())]);
    assert_eq!(world.checkpoints, 1);
    world.restart_manager();
    world.seconds(5);
    assert_eq!(names(&alpha), ["alpha"]);
    assert!(is_member(&alpha));
}

#[test]
fn a_node_without_an_id_is_given_one() {
    let mut world = World::new();
    world.net.nodes[2] = rig::node(0xe001, 1);
    let answers = Rc::new(RefCell::new(Vec::new()));
    for (name, roles) in [("alpha", Roles::IO), ("mount", Roles::CLIENT)] {
        let identity = Identity {
            name: name.into(),
            roles,
            disks: 1,
            addresses: Vec::new(),
            wish: None,
            lends: Lends::default(),
        };
        let (cx, list) = (world.net.nodes[2].cx().clone(), answers.clone());
        world.net.nodes[2].cx().spawn("test", async move {
            let lease = join(&cx, MANAGER, &identity).await.unwrap();
            list.borrow_mut().push((identity.name, lease.id));
        });
    }
    world.until(|_| answers.borrow().len() == 2);
    answers.borrow_mut().sort();
    let wanted = [("alpha".to_string(), NodeId(1)), ("mount".to_string(), NodeId(0x4000))];
    assert_eq!(*answers.borrow(), wanted);
}

fn lenders(client: &Client) -> Vec<(NodeId, u64, u32)> {
    client.lenders().members.iter().map(|up| (up.node, up.incarnation, up.weight)).collect()
}

#[test]
fn lenders_see_each_other_and_one_that_was_silent_has_a_later_incarnation() {
    let mut world = World::new();
    let alpha = world.start_lending(2, "alpha", 100);
    let beta = world.start_lending(3, "beta", 200);
    let both = [(NodeId(2), 1, 100), (NodeId(3), 2, 200)];
    world.until(|_| lenders(&alpha) == both && lenders(&beta) == both);
    assert_eq!(alpha.lends().map(|(incarnation, _)| incarnation), Some(1));
    // a slow clock must not believe in its lease for longer than a fast one keeps it
    let believed = alpha.lends().unwrap().1.since(world.net.now);
    assert!(
        believed * 10 / 9 < LEASE_DEFAULT * 10 / 11 && believed > LEASE_DEFAULT / 2,
        "{believed:?}"
    );
    world.restart_manager();
    world.seconds(25);
    assert_eq!((lenders(&alpha), lenders(&beta)), (both.to_vec(), both.to_vec()));

    world.net.fate = Box::new(|_| (0, 0));
    world.seconds(12);
    assert_eq!(beta.lends(), None, "it knows that it may be taken for dead");
    world.net.fate = Box::new(|_| (1, 0));
    let incarnations = |client: &Client| {
        let known = lenders(client);
        known.iter().map(|(_, incarnation, _)| *incarnation).collect::<Vec<_>>()
    };
    let later = |client: &Client| {
        incarnations(client).len() == 2 && incarnations(client).iter().all(|l| *l > 2)
    };
    world.until(|_| later(&alpha) && lenders(&alpha) == lenders(&beta));
    assert_eq!(beta.lends().map(|(incarnation, _)| incarnation), Some(incarnations(&alpha)[1]));
}
