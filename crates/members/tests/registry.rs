//! The table of members, without a node: ids, incarnations, leases, views, restarts.

use members::limits::{AHEAD_OF_CLOCK_MAX, AHEAD_OF_LAST_MAX};
use members::protocol::{Join, LendersPage, Page};
use members::{
    DECLARED_GONE, Forget, Identity, Lends, Member, Registration, Registry, Retire, Roles,
    STORE_KIND, STORE_VERSION, ToldDisk, View,
};
use std::collections::BTreeSet;
use std::time::Duration;
use store::{Append, Config, MemoryBackend, MemoryLogs, Store};
use wire::{Errno, NodeId, Time};

const LEASE: Duration = Duration::from_secs(10);

struct World {
    backend: MemoryBackend,
    logs: MemoryLogs,
    registry: Registry,
    now: Time,
    /// Incarnations that are members.
    up: BTreeSet<(u16, u64)>,
    /// Incarnations that have ended and were not asked for yet.
    ended: Vec<(u16, u64)>,
}

fn open(backend: &MemoryBackend, logs: &MemoryLogs, now: Time) -> Registry {
    let config = Config::new(STORE_KIND, STORE_VERSION);
    let store = Store::open(backend.clone(), config, logs.contents()).unwrap();
    let mut registry = Registry::open(store, LEASE).unwrap();
    registry.handle_start(now);
    registry
}

impl World {
    fn new() -> World {
        let (backend, logs, now) = (MemoryBackend::new(), MemoryLogs::new(), Time(1));
        let registry = open(&backend, &logs, now);
        World { backend, logs, registry, now, up: BTreeSet::new(), ended: Vec::new() }
    }

    fn append(&mut self, append: Option<Append>) {
        let Some(append) = append else { return };
        self.logs.append(append.log, &append.bytes);
        let alive = self.registry.members().filter(|member| member.alive);
        let up: BTreeSet<_> = alive.map(|member| (member.id.0, member.incarnation)).collect();
        self.ended.extend(self.up.difference(&up));
        self.up = up;
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
        let append = self.registry.handle_timeout(self.now).unwrap();
        self.append(append);
    }

    /// Kills the manager and starts it again; nothing in the log is lost.
    fn restart(&mut self) {
        self.backend = self.backend.kill();
        self.registry = open(&self.backend, &self.logs, self.now);
    }

    fn join_as(&mut self, join: &Join) -> Result<u16, Errno> {
        let (lease, append) = self.registry.handle_join(self.now, join)?;
        self.append(append);
        assert_eq!(lease.span, LEASE);
        assert_eq!(lease.view, self.registry.view());
        Ok(lease.id.0)
    }

    fn join(&mut self, name: &str, roles: Roles, incarnation: u64) -> Result<u16, Errno> {
        self.join_as(&request(name, roles, incarnation, None))
    }

    fn renew(&mut self, id: u16, incarnation: u64) -> Result<u64, Errno> {
        let registration = Registration { id: NodeId(id), incarnation };
        let (lease, append) = self.registry.handle_renew(self.now, registration)?;
        self.append(append);
        Ok(lease.view)
    }

    /// Reports disks; says which of them take objects then.
    fn tell_disks(&mut self, id: u16, incarnation: u64, disks: &[ToldDisk]) -> u32 {
        let registration = Registration { id: NodeId(id), incarnation };
        let (_, append) = self.registry.handle_disks(self.now, registration, disks, 0).unwrap();
        self.append(append);
        self.registry.member(NodeId(id)).unwrap().disks
    }

    fn ended(&mut self) -> Vec<(u16, u64)> {
        std::mem::take(&mut self.ended)
    }

    fn alive(&self) -> Vec<u16> {
        self.registry.members().filter(|member| member.alive).map(|member| member.id.0).collect()
    }
}

fn request(name: &str, roles: Roles, incarnation: u64, wish: Option<u16>) -> Join {
    let identity = Identity {
        name: name.into(),
        roles,
        disks: 1,
        addresses: vec![format!("{name}:7000")],
        wish: wish.map(NodeId),
        lends: Lends::default(),
    };
    Join { identity, incarnation }
}

#[test]
fn servers_and_clients_get_ids_of_their_own_ranges() {
    let mut world = World::new();
    assert_eq!(world.join("alpha", Roles::IO | Roles::MANAGER, 1), Ok(1));
    assert_eq!(world.join("beta", Roles::IO, 1), Ok(2));
    assert_eq!(world.join("alpha", Roles::CLIENT, 1), Ok(0x4000));
    assert_eq!(world.join("gamma", Roles::CLIENT | Roles::MEMORY, 1), Ok(0x4001));
    assert_eq!(world.join("delta", Roles::MEMORY, 1), Ok(3));
    assert_eq!(world.alive(), [1, 2, 3, 0x4000, 0x4001]);
}

#[test]
fn joining_again_is_the_same_member() {
    let mut world = World::new();
    let id = world.join("alpha", Roles::IO, 5).unwrap();
    let view = world.registry.view();
    assert_eq!(world.join("alpha", Roles::IO, 5), Ok(id));
    assert_eq!(world.registry.view(), view, "nothing changed");
    let mut moved = request("alpha", Roles::IO, 5, None);
    moved.identity.addresses = vec!["elsewhere:1".into()];
    assert_eq!(world.join_as(&moved), Ok(id));
    assert_eq!(world.registry.view(), view + 1);
    assert_eq!(world.registry.member(NodeId(id)).unwrap().addresses, ["elsewhere:1"]);
    assert_eq!(world.ended(), []);
}

#[test]
fn a_later_incarnation_replaces_an_earlier_one_and_never_the_reverse() {
    let mut world = World::new();
    let id = world.join("mount", Roles::CLIENT, 5).unwrap();
    assert_eq!(world.join("mount", Roles::CLIENT, 6), Ok(id));
    assert_eq!(world.ended(), [(id, 5)]);
    assert_eq!(world.join("mount", Roles::CLIENT, 5), Err(Errno::ESTALE));
    assert_eq!(world.renew(id, 5), Err(Errno::ESTALE));
    assert!(world.renew(id, 6).is_ok());
}

const CLOCK: u64 = 1_800_000_000 * 1_000_000_000;

#[test]
fn no_join_brings_a_number_that_shuts_later_starts_of_a_name_out() {
    let mut world = World::new();
    let claim = |world: &World, incarnation| {
        let join = request("beta", Roles::IO, incarnation, None);
        world.registry.check_claim(CLOCK, true, &join)
    };
    let day = AHEAD_OF_CLOCK_MAX;
    for far in [u64::MAX, u64::MAX / 2, CLOCK + day + 1] {
        assert_eq!(claim(&world, far), Err(Errno::EOVERFLOW));
    }
    for near in [0, 1, CLOCK, CLOCK + day] {
        assert_eq!(claim(&world, near), Ok(()));
    }
    // A machine that was known by a number ahead of the clock counts on from there.
    world.join("beta", Roles::IO, CLOCK + 3 * day).unwrap();
    assert_eq!(claim(&world, CLOCK + 3 * day + AHEAD_OF_LAST_MAX), Ok(()));
    assert_eq!(claim(&world, CLOCK + 3 * day + AHEAD_OF_LAST_MAX + 1), Err(Errno::EOVERFLOW));
    world.join("beta", Roles::IO, u64::MAX).unwrap(); // written by an earlier release
    assert_eq!(claim(&world, u64::MAX), Ok(()));
}

#[test]
fn a_name_belongs_to_the_client_that_holds_it() {
    let mut world = World::new();
    let id = world.join("mount", Roles::CLIENT, 5).unwrap();
    let claim = |world: &World, has_id, incarnation| {
        let join = request("mount", Roles::CLIENT, incarnation, None);
        world.registry.check_claim(CLOCK, has_id, &join)
    };
    assert_eq!(claim(&world, false, 6), Err(Errno::EEXIST));
    assert_eq!(claim(&world, false, 5), Ok(()), "it asks again");
    assert_eq!(claim(&world, true, 6), Ok(()), "its own next incarnation");
    world.pass(10);
    assert_eq!(world.ended(), [(id, 5)]);
    assert_eq!(claim(&world, false, 6), Ok(()), "its lease has ended");
}

#[test]
fn a_client_without_renewal_is_forgotten_and_its_id_rests() {
    let mut world = World::new();
    let id = world.join("mount", Roles::CLIENT, 1).unwrap();
    world.pass(9);
    let view = world.renew(id, 1).unwrap();
    world.pass(9);
    assert_eq!(world.ended(), []);
    world.pass(1);
    assert_eq!(world.ended(), [(id, 1)]);
    assert_eq!(world.registry.view(), view + 1);
    assert_eq!(world.registry.member(NodeId(id)), None);
    assert_eq!(world.renew(id, 1), Err(Errno::ESTALE));
    world.restart();
    assert_eq!(world.registry.member(NodeId(id)), None);
    assert_eq!(world.join("other", Roles::CLIENT, 1), Ok(id + 1));
}

/// Two clients are paused, and one is back: the other one may still come back with its id.
#[test]
fn who_takes_up_his_id_again_gives_nobody_that_of_another_one() {
    let mut world = World::new();
    let [one, other] = ["one", "other"].map(|name| world.join(name, Roles::CLIENT, 1).unwrap());
    world.pass(10);
    assert_eq!(world.ended(), [(one, 1), (other, 1)]);
    assert_eq!(world.join_as(&request("one", Roles::CLIENT, 1, Some(one))), Ok(one));
    assert_eq!(world.join("new", Roles::CLIENT, 1), Ok(other + 1));
    world.restart();
    assert_eq!(world.join_as(&request("other", Roles::CLIENT, 1, Some(other))), Ok(other));
    assert_eq!(world.join("newer", Roles::CLIENT, 1), Ok(other + 2));
}

#[test]
fn a_server_without_renewal_is_down_and_keeps_its_id() {
    let mut world = World::new();
    let id = world.join("alpha", Roles::IO, 1).unwrap();
    world.pass(10);
    assert_eq!(world.ended(), [(id, 1)]);
    assert_eq!(world.alive(), []);
    assert_eq!(world.registry.poll_timeout(), None);
    assert_eq!(world.join("beta", Roles::IO, 1), Ok(id + 1));
    let view = world.registry.view();
    assert_eq!(world.renew(id, 1), Ok(view + 1), "it was only slow");
    world.pass(10);
    assert_eq!(world.join("alpha", Roles::IO, 2), Ok(id));
    assert_eq!(world.alive(), [id]);
}

#[test]
fn a_restart_of_the_manager_ends_no_membership() {
    let mut world = World::new();
    let server = world.join("alpha", Roles::IO, 3).unwrap();
    let client = world.join("mount", Roles::CLIENT, 4).unwrap();
    let view = world.registry.view();
    world.now = world.now + Duration::from_secs(3600);
    world.restart();
    assert_eq!(world.registry.view(), view);
    world.pass(9);
    assert_eq!(world.alive(), [server, client]);
    assert_eq!(world.renew(client, 4), Ok(view));
    world.pass(1);
    assert_eq!(world.ended(), [(server, 3)]);
    assert_eq!(world.alive(), [client]);
}

#[test]
fn a_wish_is_granted_or_refused_but_never_changed() {
    let mut world = World::new();
    let ask = |name: &str, roles, wish| request(name, roles, 1, Some(wish));
    assert_eq!(world.join_as(&ask("alpha", Roles::IO, 7)), Ok(7));
    assert_eq!(world.join_as(&ask("beta", Roles::IO, 7)), Err(Errno::EEXIST));
    assert_eq!(world.join_as(&ask("alpha", Roles::IO, 8)), Err(Errno::EEXIST));
    assert_eq!(world.join_as(&ask("mount", Roles::CLIENT, 9)), Err(Errno::EINVAL));
    assert_eq!(world.join_as(&ask("beta", Roles::IO, 0x4000)), Err(Errno::EINVAL));
    assert_eq!(world.join_as(&ask("mount", Roles::CLIENT, 0xdfff)), Ok(0xdfff));
    assert_eq!(world.join("next", Roles::CLIENT, 1), Ok(0x4000), "the circle closes");
    assert_eq!(world.join("beta", Roles::IO, 1), Ok(1));
}

#[test]
fn leaving_ends_a_membership_at_once() {
    let mut world = World::new();
    let id = world.join("mount", Roles::CLIENT, 1).unwrap();
    for _ in 0..2 {
        let registration = Registration { id: NodeId(id), incarnation: 1 };
        let append = world.registry.handle_leave(registration).unwrap();
        world.append(append);
    }
    assert_eq!(world.ended(), [(id, 1)]);
    assert_eq!(world.alive(), []);
}

#[test]
fn views_come_in_pages_that_hold_every_member_once() {
    let mut world = World::new();
    for number in 0..40 {
        let mut join = request(&format!("server {number}"), Roles::IO, 1, None);
        join.identity.addresses = vec!["a".repeat(255); 8];
        world.join_as(&join).unwrap();
        world.join(&format!("small {number}"), Roles::IO, 1).unwrap();
    }
    let (mut after, mut members, mut pages) = (NodeId(0), Vec::<Member>::new(), 0);
    loop {
        let (body, data) = world.registry.page(after).encode();
        assert!(data.len() <= 4096);
        let page = Page::decode(&body, &data).unwrap();
        members.extend(page.members);
        after = members.last().unwrap().id;
        pages += 1;
        if page.last {
            break;
        }
    }
    assert!(members.iter().eq(world.registry.members()));
    assert!(pages > 20, "{pages} pages");
}

#[test]
fn an_identity_over_the_limits_is_refused() {
    let mut world = World::new();
    assert_eq!(world.join("", Roles::IO, 1), Err(Errno::EINVAL));
    assert_eq!(world.join(&"n".repeat(256), Roles::IO, 1), Err(Errno::EINVAL));
    let mut join = request("alpha", Roles::IO, 1, None);
    join.identity.addresses = vec!["a".into(); 9];
    assert_eq!(world.join_as(&join), Err(Errno::EINVAL));
    assert_eq!(world.alive(), []);
}

/// As when the manager's machine slept longer than a lease.
#[test]
fn all_leases_may_end_together() {
    let mut world = World::new();
    for number in 0..1000 {
        let mut join = request(&format!("{number:0>255}"), Roles::IO, 1, None);
        join.identity.addresses = vec!["a".repeat(255); 8];
        world.join_as(&join).unwrap();
    }
    world.now = world.now + 2 * LEASE;
    while let Some(append) = world.registry.handle_timeout(world.now).unwrap() {
        world.append(Some(append));
    }
    assert_eq!(world.alive(), [0u16; 0]);
}

impl World {
    fn join_lending(&mut self, name: &str, roles: Roles, incarnation: u64, mib: u32) -> u16 {
        let mut join = request(name, roles | Roles::MEMORY, incarnation, None);
        join.identity.lends.mib = mib;
        self.join_as(&join).unwrap()
    }

    fn sync(&mut self) {
        let point = self.registry.store_mut().sync_point();
        point.logs.iter().for_each(|log| self.logs.sync(*log));
        self.registry.store_mut().synced(&point);
        self.registry.handle_synced();
    }

    /// The number, and of each lender its id, its incarnation and what it lends.
    fn lenders(&mut self) -> (u64, Vec<(u16, u64, u32)>) {
        self.sync();
        let View { number, members } = self.registry.lenders();
        (*number, members.iter().map(|up| (up.node.0, up.incarnation, up.weight)).collect())
    }

    fn cut_power(&mut self) {
        let mut nothing = || 0;
        self.backend = self.backend.crash(&mut nothing);
        self.logs.crash(&mut nothing);
        self.registry = open(&self.backend, &self.logs, self.now);
    }
}

#[test]
fn lenders_have_a_view_of_their_own() {
    let mut world = World::new();
    let server = world.join_lending("alpha", Roles::IO, 5, 100);
    let mount = world.join_lending("mount", Roles::CLIENT, 5, 0);
    assert_eq!(world.lenders(), (2, vec![(server, 1, 100), (mount, 2, 0)]));
    world.join("other", Roles::CLIENT, 1).unwrap();
    let mut moved = request("alpha", Roles::IO | Roles::MEMORY, 5, None);
    moved.identity.lends.mib = 100;
    moved.identity.addresses = vec!["elsewhere:1".into()];
    world.join_as(&moved).unwrap();
    assert_eq!(world.lenders().0, 2, "nothing of this concerns them");
    world.join_lending("alpha", Roles::IO, 5, 300);
    assert_eq!(world.lenders(), (3, vec![(server, 1, 300), (mount, 2, 0)]), "the same incarnation");
    world.join("alpha", Roles::IO, 5).unwrap();
    assert_eq!(world.lenders(), (4, vec![(mount, 2, 0)]));
}

/// Also one whose process only paused, and renews as if nothing had been.
#[test]
fn a_lender_that_was_down_comes_back_in_a_later_incarnation() {
    let mut world = World::new();
    let server = world.join_lending("alpha", Roles::IO, 5, 8);
    let mount = world.join_lending("mount", Roles::CLIENT, 5, 8);
    world.pass(10);
    let (number, up) = world.lenders();
    assert!(up.is_empty());
    assert!(world.renew(server, 5).is_ok());
    let registration = Registration { id: NodeId(server), incarnation: 5 };
    let (lease, _) = world.registry.handle_renew(world.now, registration).unwrap();
    assert_eq!(world.lenders(), (number + 1, vec![(server, number + 1, 8)]));
    assert_eq!(lease.incarnation, number + 1, "the lease says for which incarnation it is");
    assert_eq!(world.renew(mount, 5), Err(Errno::ESTALE));
    world.join_lending("mount", Roles::CLIENT, 5, 8);
    assert_eq!(world.lenders().1[1].1, number + 2);
    world.join_lending("alpha", Roles::IO, 6, 8);
    assert_eq!(world.lenders().1[0], (server, number + 3, 8), "and at once after a restart");
}

#[test]
fn lives_and_numbers_of_lenders_outlive_the_manager() {
    let mut world = World::new();
    let server = world.join_lending("alpha", Roles::IO, 5, 8);
    let before = world.lenders();
    world.restart();
    assert_eq!(world.lenders(), before);
    world.cut_power();
    assert_eq!(world.lenders(), before);
    assert!(world.renew(server, 5).is_ok());
    assert_eq!(world.lenders(), before, "the restart ended no incarnation");
}

#[test]
fn lenders_are_shown_when_a_power_cut_cannot_take_them_back() {
    let mut world = World::new();
    world.join_lending("alpha", Roles::IO, 5, 8);
    assert!(world.registry.hides_lenders());
    assert_eq!(world.registry.lenders().number, 0);
    world.cut_power();
    assert_eq!(world.lenders(), (0, vec![]), "nobody was shown view 1, so it may be another");
    let beta = world.join_lending("beta", Roles::IO, 5, 8);
    assert_eq!(world.lenders(), (1, vec![(beta, 1, 8)]));
    world.join_lending("gamma", Roles::IO, 5, 8);
    world.restart();
    assert_eq!(world.lenders().0, 2, "what was only killed has lost nothing");
}

#[test]
fn lenders_come_in_pages() {
    let mut world = World::new();
    for number in 0..700 {
        world.join_lending(&format!("server {number}"), Roles::IO, 1, number);
    }
    world.sync();
    let (mut after, mut all, mut pages) = (NodeId(0), Vec::new(), 0);
    loop {
        let (body, data) = world.registry.lenders_page(after).encode();
        assert!(data.len() <= 4096);
        let page = LendersPage::decode(&body, &data).unwrap();
        after = page.lenders.last().unwrap().node;
        all.extend(page.lenders);
        pages += 1;
        if page.last {
            break;
        }
    }
    assert_eq!((&all, pages), (&world.registry.lenders().members, 4));
}

impl World {
    fn forget(&mut self, id: u16, disk: Option<u8>) -> Result<(), Errno> {
        let forget = Forget { id: NodeId(id), disk };
        let append = self.registry.handle_forget(self.now, forget)?;
        self.append(append);
        Ok(())
    }
}

#[test]
fn a_server_that_is_gone_for_good_gives_its_name_back_and_never_its_id() {
    let mut world = World::new();
    let manager = world.join("alpha", Roles::IO | Roles::MANAGER, 1).unwrap();
    let beta = world.join("beta", Roles::IO, 1).unwrap();
    assert_eq!(world.forget(beta, None), Err(Errno::EBUSY), "it is up");
    world.pass(11);
    assert_eq!(world.forget(manager, None), Err(Errno::EPERM), "the last manager");
    assert_eq!(world.forget(77, None), Err(Errno::ENOENT));
    let view = world.registry.view();
    world.forget(beta, None).unwrap();
    world.forget(beta, None).unwrap();
    assert_eq!(world.registry.view(), view + 1, "told to everybody, once");
    for _ in 0..2 {
        let known = world.registry.member(NodeId(beta)).unwrap();
        assert_eq!((known.gone, known.alive, known.lost_disks()), (true, false, u32::MAX));
        let back = request("beta", Roles::IO, 2, Some(beta));
        assert_eq!(world.join_as(&back), Err(DECLARED_GONE));
        assert_eq!(world.renew(beta, 1), Err(DECLARED_GONE));
        world.restart();
    }
    let (lease, append) =
        world.registry.handle_reserve(world.now, &request("beta", Roles::IO, 3, None)).unwrap();
    world.append(append);
    assert_ne!(lease.id.0, beta, "its id is nobody else's");
    assert_eq!(world.join("beta", Roles::IO, 4), Ok(lease.id.0));
    let back = request("beta", Roles::IO, 5, Some(beta));
    assert_eq!(world.join_as(&back), Err(DECLARED_GONE), "also now that another one has the name");
    world.sync();
    world.cut_power();
    assert!(world.registry.member(NodeId(beta)).unwrap().gone, "on stable storage");
}

#[test]
fn a_manager_that_has_drained_can_be_declared_gone_and_no_other() {
    let mut world = World::new();
    let first = world.join("alpha", Roles::MANAGER, 1).unwrap();
    let beta = world.join("beta", Roles::MANAGER, 1).unwrap();
    let io = world.join("io", Roles::IO, 1).unwrap();
    let retire = |world: &mut World, id: u16, retired: bool| {
        let append = world.registry.handle_retire(Retire { id: NodeId(id), retired })?;
        world.append(append);
        Ok(())
    };
    let drain = |world: &mut World, incarnation: u64| {
        let registration = Registration { id: NodeId(beta), incarnation };
        let append = world.registry.handle_drained(registration)?;
        world.append(append);
        Ok(())
    };
    let marks = |world: &World| {
        let member = world.registry.member(NodeId(beta)).unwrap();
        (member.retired, member.drained)
    };
    assert_eq!(retire(&mut world, io, true), Err(Errno::ENOENT), "it owns no names");
    assert_eq!(drain(&mut world, 1), Err(Errno::ESTALE), "it was not asked to");
    retire(&mut world, beta, true).unwrap();
    let view = world.registry.view();
    retire(&mut world, beta, true).unwrap();
    assert_eq!(world.registry.view(), view, "once");
    world.sync();
    world.cut_power();
    assert_eq!(marks(&world), (true, false));
    assert_eq!(world.join("beta", Roles::MANAGER, 2), Ok(beta));
    assert_eq!(marks(&world), (true, false), "a restart changes nothing");
    world.pass(11);
    assert_eq!(world.forget(beta, None), Err(Errno::EPERM), "it owns something");
    assert_eq!(retire(&mut world, first, true), Err(Errno::EBUSY), "it is down");
    assert_eq!(world.join("beta", Roles::MANAGER, 3), Ok(beta));
    assert_eq!(drain(&mut world, 2), Err(Errno::ESTALE), "an earlier incarnation's word");
    drain(&mut world, 3).unwrap();
    assert_eq!(marks(&world), (true, true));
    retire(&mut world, beta, false).unwrap();
    assert_eq!(marks(&world), (false, false), "it gets its share again");
    retire(&mut world, beta, true).unwrap();
    drain(&mut world, 3).unwrap();
    assert_eq!(world.forget(beta, None), Err(Errno::EBUSY), "it is up");
    world.pass(11);
    world.forget(beta, None).unwrap();
    assert_eq!(retire(&mut world, beta, true), Err(Errno::ENOENT));
    let back = request("beta", Roles::MANAGER, 4, Some(beta));
    assert_eq!(world.join_as(&back), Err(DECLARED_GONE));
    let anew = world.join("beta", Roles::MANAGER, 5).unwrap();
    assert_ne!(anew, beta, "the machine joins again as another member");
}

/// Nothing new goes there: each write would wait for a disk that does not come back before the server's next start.
#[test]
fn a_disk_that_does_not_serve_takes_no_objects_until_the_servers_next_incarnation() {
    let mut world = World::new();
    let with = |incarnation| {
        let mut join = request("beta", Roles::IO, incarnation, Some(2));
        join.identity.disks = 0b111;
        join
    };
    let disk = |disk: u16, found| ToldDisk { disk, id: 9, found: [found, 0], now: [5, 0] };
    world.join_as(&with(1)).unwrap();
    assert_eq!(world.tell_disks(2, 1, &[disk(0, 0), disk(1, 0), disk(2, 0)]), 0b111);
    world.join_as(&with(2)).unwrap();
    assert_eq!(world.tell_disks(2, 2, &[disk(0, 5), disk(1, 3)]), 0b001, "older, and untold");
    world.restart();
    assert_eq!(world.registry.member(NodeId(2)).unwrap().disks, 0b001);
    world.join_as(&with(2)).unwrap();
    assert_eq!(world.registry.member(NodeId(2)).unwrap().disks, 0b001, "the same incarnation");
    assert_eq!(world.tell_disks(2, 2, &[]), 0);
    world.join_as(&with(3)).unwrap();
    assert_eq!(world.tell_disks(2, 3, &[disk(0, 5), disk(1, 5), disk(2, 5)]), 0b111);
}

#[test]
fn a_disk_that_is_gone_for_good_is_refused_when_its_server_brings_it_back() {
    let mut world = World::new();
    let with = |disks, incarnation| {
        let mut join = request("beta", Roles::IO, incarnation, Some(2));
        join.identity.disks = disks;
        join
    };
    world.join_as(&with(0b11, 1)).unwrap();
    assert_eq!(world.forget(2, Some(1)), Err(Errno::EBUSY), "it takes objects");
    assert_eq!(world.forget(2, Some(32)), Err(Errno::ENOENT));
    world.join_as(&with(0b01, 2)).unwrap();
    world.forget(2, Some(1)).unwrap();
    world.restart();
    assert_eq!(world.registry.member(NodeId(2)).unwrap().lost_disks(), 0b10);
    assert!(world.renew(2, 2).is_ok(), "the server goes on");
    assert_eq!(world.join_as(&with(0b11, 3)), Err(DECLARED_GONE));
    assert_eq!(world.join_as(&with(0b101, 3)), Ok(2), "a disk that was added");
    assert_eq!(world.registry.member(NodeId(2)).unwrap().lost_disks(), 0b10);
}
