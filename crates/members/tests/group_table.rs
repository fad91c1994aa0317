//! The table of groups in the registry, without a node: compare-and-swap, restarts, power cuts, and pages.

use members::groups::{Change, Group, GroupId, GroupsPage, Proposal, Refusal, Replica, Table};
use members::protocol::Join;
use members::{
    Denied, Forget, Identity, Lends, Registration, Registry, Roles, STORE_KIND, STORE_VERSION,
};
use proptest::prelude::*;
use std::time::Duration;
use store::{Append, Batch, Config, MemoryBackend, MemoryLogs, Store};
use wire::{Errno, NodeId, Time};

struct World {
    backend: MemoryBackend,
    logs: MemoryLogs,
    registry: Registry,
}

fn store(backend: &MemoryBackend, logs: &MemoryLogs) -> Store {
    let config = Config::new(STORE_KIND, STORE_VERSION);
    Store::open(backend.clone(), config, logs.contents()).unwrap()
}

fn open(backend: &MemoryBackend, logs: &MemoryLogs) -> Registry {
    let mut registry = Registry::open(store(backend, logs), Duration::from_secs(10)).unwrap();
    registry.handle_start(Time(1));
    registry
}

fn disk(server: u16) -> Replica {
    Replica { server: NodeId(server), disk: 0, id: 100 + u64::from(server) }
}

fn id(number: u32) -> GroupId {
    GroupId(GroupId::FIRST.0 + number * 0x100)
}

fn proposal(group: GroupId, by: u16, epoch: u32, change: Change) -> Proposal {
    Proposal { group, by: disk(by), epoch, change }
}

impl World {
    fn new() -> World {
        let (backend, logs) = (MemoryBackend::new(), MemoryLogs::new());
        let registry = open(&backend, &logs);
        World { backend, logs, registry }
    }

    fn append(&mut self, append: Append) {
        self.logs.append(append.log, &append.bytes);
    }

    fn make(&mut self, disks: &[u16]) -> GroupId {
        let replicas: Vec<Replica> = disks.iter().map(|server| disk(*server)).collect();
        let id = self.registry.decided_groups().next_id();
        let append = self.registry.handle_make(id, Group::new(2, &replicas).unwrap()).unwrap();
        self.append(append);
        id
    }

    fn make_many(&mut self, count: u16) {
        for number in 0..count {
            self.make(&[1 + number % 7, 20]);
        }
    }

    /// As the server of the proposing disk sends it.
    fn propose(&mut self, proposal: Proposal) -> Result<Group, Denied> {
        let (told, append) = self.registry.handle_group(proposal.by.server, &proposal)?;
        self.append(append);
        Ok(told.group)
    }

    fn sync(&mut self) {
        let point = self.registry.store_mut().sync_point();
        point.logs.iter().for_each(|log| self.logs.sync(*log));
        self.registry.store_mut().synced(&point);
        self.registry.handle_synced();
    }

    /// Nothing in the log is lost.
    fn kill(&mut self) {
        self.backend = self.backend.kill();
        self.registry = open(&self.backend, &self.logs);
    }

    fn cut_power(&mut self) {
        let mut nothing = || 0;
        self.backend = self.backend.crash(&mut nothing);
        self.logs.crash(&mut nothing);
        self.registry = open(&self.backend, &self.logs);
    }

    fn told(&self, id: GroupId) -> Option<(u64, u32)> {
        let groups = self.registry.groups();
        groups.get(id).map(|group| (groups.version_of(id), group.epoch()))
    }
}

#[test]
fn groups_outlive_the_manager_and_their_versions_never_go_back() {
    let mut world = World::new();
    let [one, other] = [[1, 2], [2, 3]].map(|disks| world.make(&disks));
    world.propose(proposal(one, 1, 1, Change::Remove(disk(2)))).unwrap();
    world.sync();
    let before = world.registry.groups().clone();
    assert_eq!((before.version(), before.len()), (3, 2));
    for restart in [World::kill, World::cut_power] {
        restart(&mut world);
        assert_eq!(world.registry.groups(), &before);
        assert_eq!(world.registry.decided_groups(), &before);
    }
    world.propose(proposal(other, 2, 1, Change::Remove(disk(3)))).unwrap();
    assert_ne!(world.make(&[4, 5]), other, "a number is never used again");
    world.sync();
    assert_eq!(world.registry.groups().version(), 5);
    assert_eq!([one, other].map(|id| world.told(id)), [Some((3, 2)), Some((4, 2))]);
}

#[test]
fn a_change_is_told_only_when_a_power_cut_cannot_take_it_back() {
    let mut world = World::new();
    let one = world.make(&[1, 2]);
    assert_eq!((world.registry.groups().len(), world.told(one)), (0, None));
    assert_eq!(world.registry.groups_page(0).groups, []);
    world.sync();
    assert_eq!(world.told(one), Some((1, 1)));
    let alone = |by: u16, gone: u16| proposal(one, by, 1, Change::Remove(disk(gone)));
    world.propose(alone(1, 2)).unwrap();
    assert_eq!(world.told(one), Some((1, 1)), "the log is not synced");
    assert!(world.propose(alone(2, 1)).is_err(), "and yet it is decided");
    world.cut_power();
    assert_eq!(world.told(one), Some((1, 1)));
    world.propose(alone(2, 1)).unwrap();
    world.kill();
    assert_eq!(world.told(one), Some((2, 2)), "what was only killed has lost nothing");
    assert_eq!(world.registry.groups().get(one).unwrap().primary(), disk(2));
}

fn refusal(result: Result<Group, Denied>) -> (Errno, Option<u32>) {
    let (errno, told) = result.unwrap_err().into_answer();
    (errno, told.map(|told| told.group.epoch()))
}

#[test]
fn a_proposal_that_is_refused_says_why_and_what_the_group_is() {
    let mut world = World::new();
    let one = world.make(&[1, 2]);
    let remove = proposal(one, 1, 1, Change::Remove(disk(2)));
    world.propose(remove).unwrap();
    assert_eq!(refusal(world.propose(remove)), (Errno::ESTALE, Some(2)), "it was made before");
    let asks = |by, change| proposal(one, by, 2, change);
    for (by, change, errno) in [
        (1, Change::Remove(disk(2)), Errno::EINVAL),
        (1, Change::Remove(disk(1)), Errno::EINVAL),
        (2, Change::Admit(disk(2)), Errno::EPERM),
        (1, Change::Add(disk(3)), Errno::EPERM),
        (1, Change::Drop(disk(2)), Errno::EPERM),
        (1, Change::Keep(1), Errno::EPERM),
        (2, Change::Fence, Errno::EPERM),
    ] {
        assert_eq!(refusal(world.propose(asks(by, change))), (errno, Some(2)), "{change:?}");
    }
    let forged = world.registry.handle_group(NodeId(2), &asks(1, Change::Fence)).unwrap_err();
    assert_eq!(forged.into_answer().0, Errno::EPERM, "another server's disk");
    let nowhere = proposal(id(7), 1, 1, Change::Fence);
    assert_eq!(refusal(world.propose(nowhere)), (Errno::ENOENT, None));
    let version = world.registry.decided_groups().version();
    assert_eq!(version, 2, "nothing of this has changed anything");
    assert_eq!(world.propose(asks(1, Change::Admit(disk(2)))).unwrap().epoch(), 3);
}

impl World {
    fn join(&mut self, name: &str) -> NodeId {
        let identity = Identity {
            name: name.into(),
            roles: Roles::IO,
            disks: 0,
            addresses: Vec::new(),
            wish: None,
            lends: Lends::default(),
        };
        let join = Join { identity, incarnation: 1 };
        let (lease, append) = self.registry.handle_join(Time(1), &join).unwrap();
        self.append(append.unwrap());
        lease.id
    }
}

#[test]
fn a_lease_tells_the_version_that_pages_end_with() {
    let mut world = World::new();
    let registration = Registration { id: world.join("alpha"), incarnation: 1 };
    let told = |world: &mut World| {
        let (lease, _) = world.registry.handle_renew(Time(2), registration).unwrap();
        (lease.groups, world.registry.groups_page(0).version)
    };
    world.make(&[1, 2]);
    assert_eq!(told(&mut world), (0, 0), "it is not on stable storage");
    world.sync();
    assert_eq!(told(&mut world), (1, 1));
}

/// It may have been cut off, and take its replicas for the newer ones.
#[test]
fn what_was_declared_gone_has_no_say() {
    let mut world = World::new();
    assert_eq!(["alpha", "beta"].map(|name| world.join(name)), [NodeId(1), NodeId(2)]);
    let one = world.make(&[1, 2]);
    let forget = Forget { id: NodeId(2), disk: Some(0) };
    let append = world.registry.handle_forget(Time(1), forget).unwrap().unwrap();
    world.append(append);
    let remove = |by, gone| proposal(one, by, 1, Change::Remove(disk(gone)));
    assert_eq!(refusal(world.propose(remove(2, 1))), (Errno::EPERM, Some(1)));
    assert_eq!(world.propose(remove(1, 2)).unwrap().epoch(), 2);
}

#[test]
fn a_log_that_fails_refuses_changes_until_a_checkpoint_tells_them() {
    let mut world = World::new();
    let one = world.make(&[1, 2]);
    world.sync();
    let remove = proposal(one, 1, 1, Change::Remove(disk(2)));
    let _lost = world.registry.handle_group(NodeId(1), &remove).unwrap();
    world.registry.store_mut().append_failed();
    assert_eq!(refusal(world.propose(remove)), (Errno::EIO, None), "it is not known which it is");
    assert_eq!(
        world.registry.handle_make(id(1), Group::new(2, &[disk(1)]).unwrap()),
        Err(Errno::EIO)
    );
    assert_eq!(world.told(one), Some((1, 1)));
    let checkpoint = world.registry.store_mut().freeze().unwrap();
    world.registry.store_mut().checkpoint_done(checkpoint.run());
    world.registry.handle_synced();
    assert_eq!(world.told(one), Some((2, 2)));
    assert_eq!(refusal(world.propose(remove)), (Errno::ESTALE, Some(2)));
}

#[test]
fn a_new_group_has_the_next_number() {
    let mut world = World::new();
    let group = Group::new(2, &[disk(1), disk(2)]).unwrap();
    for wrong in [GroupId(7), id(1)] {
        assert_eq!(world.registry.handle_make(wrong, group.clone()), Err(Errno::EEXIST));
    }
    assert_eq!(world.make(&[1, 2]), id(0));
    assert_eq!(world.registry.handle_make(id(0), group), Err(Errno::EEXIST));
}

/// And one with a record of none is refused, instead of groups that are forgotten.
#[test]
fn a_store_of_an_earlier_release_has_no_groups() {
    let (backend, mut logs) = (MemoryBackend::new(), MemoryLogs::new());
    let registry = open(&backend, &logs);
    assert_eq!((registry.groups().version(), registry.groups().len()), (0, 0));
    drop(registry);
    let mut store = store(&backend, &logs);
    let mut batch = Batch::new();
    batch.put(b"g\xc0\0\0", b"no group");
    let append = store.apply(batch);
    logs.append(append.log, &append.bytes);
    drop(store);
    let config = Config::new(STORE_KIND, STORE_VERSION);
    let store = Store::open(backend.kill(), config, logs.contents()).unwrap();
    assert!(Registry::open(store, Duration::from_secs(10)).is_err());
}

/// What one who asks for pages knows.
#[derive(Debug, Default)]
struct Asker {
    table: Table,
    pages: usize,
}

impl Asker {
    /// Asks for one page; whether it was the last.
    fn ask(&mut self, registry: &Registry) -> bool {
        let (body, data) = registry.groups_page(self.table.version()).encode();
        assert!(data.len() <= members::limits::PAGE_BYTES);
        let page = GroupsPage::decode(&body, &data).unwrap();
        assert!(page.follows(self.table.version()), "{page:?}");
        page.groups.into_iter().for_each(|told| {
            self.table.learn(told.version, told.id, told.group);
        });
        self.pages += 1;
        if page.last {
            assert_eq!(self.table.version(), page.version, "the last page is all");
        }
        page.last
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Make(u16),
    Change(u32, u16, u8),
    Sync,
    Kill,
    CutPower,
    Ask(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..9u16).prop_map(Event::Make),
        8 => (0..40u32, 1..9u16, 0..4u8).prop_map(|(id, by, kind)| Event::Change(id, by, kind)),
        4 => Just(Event::Sync),
        1 => Just(Event::Kill),
        1 => Just(Event::CutPower),
        6 => (0..2usize).prop_map(Event::Ask),
    ]
}

impl World {
    fn change(&mut self, id: GroupId, by: u16, kind: u8) {
        let Some(group) = self.registry.decided_groups().get(id).cloned() else { return };
        let last = *group.replicas().last().unwrap();
        let change = match kind {
            0 => Change::Remove(last),
            1 => Change::Admit(last),
            2 => Change::Fence,
            _ => {
                let added = self.registry.handle_planned(id, group.epoch(), Change::Add(disk(by)));
                return added.into_iter().for_each(|append| self.append(append));
            }
        };
        let by = group.primary();
        let _ = self.propose(Proposal { group: id, by, epoch: group.epoch(), change });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Pages are asked for while groups change, the log is synced or not, and the manager restarts.
    #[test]
    fn who_asks_for_pages_knows_the_table_and_is_never_ahead_of_it(
        first in 0..150u16,
        events in proptest::collection::vec(event(), 0..120),
    ) {
        let mut world = World::new();
        world.make_many(first);
        let mut askers: [Asker; 2] = Default::default();
        for event in events {
            match event {
                Event::Make(server) => {
                    world.make(&[server, 20]);
                }
                Event::Change(number, by, kind) => world.change(id(number), by, kind),
                Event::Sync => world.sync(),
                Event::Kill => world.kill(),
                Event::CutPower => world.cut_power(),
                Event::Ask(which) => drop(askers[which].ask(&world.registry)),
            }
            let groups = world.registry.groups();
            prop_assert!(groups.version() <= world.registry.decided_groups().version());
            for Asker { table, .. } in &askers {
                prop_assert!(table.version() <= groups.version(), "a version went back");
                for (id, known) in table.iter() {
                    let now = groups.get(id).expect("a group stays");
                    prop_assert!(now.epoch() >= known.epoch());
                    prop_assert!(now.epoch() > known.epoch() || now == known, "told two groups of one epoch");
                }
            }
        }
        world.sync();
        for asker in &mut askers {
            while !asker.ask(&world.registry) {}
            prop_assert_eq!(&asker.table, world.registry.groups());
        }
    }
}

#[test]
fn all_groups_of_a_large_cluster_come_in_few_pages() {
    let mut world = World::new();
    world.make_many(1_000);
    world.sync();
    let mut asker = Asker::default();
    while !asker.ask(&world.registry) {}
    assert_eq!(&asker.table, world.registry.groups());
    assert!((10..=12).contains(&asker.pages), "{} pages", asker.pages);
    assert!(asker.ask(&world.registry), "nothing new is one page");
    world.change(id(500), 0, 0);
    world.sync();
    let page = world.registry.groups_page(asker.table.version());
    assert_eq!((page.groups.len(), page.groups[0].id, page.last), (1, id(500), true));
}

#[test]
fn refusals_have_the_numbers_that_proposers_go_by() {
    let numbers =
        [Refusal::Stale, Refusal::NotYours(""), Refusal::TooFew, Refusal::NoChange, Refusal::Full];
    let wanted = [Errno::ESTALE, Errno::EPERM, Errno::EINVAL, Errno::EINVAL, Errno::EINVAL];
    assert_eq!(numbers.map(Errno::from), wanted);
}
