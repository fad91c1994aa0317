//! Groups over nodes: how they are made and told, proposals on a bad link and over a manager that dies, replacement.

use crate::service::{MANAGER, World, is_member};
use members::groups::{Change, Group, GroupId, Replica};
use members::limits::REPLACE_AFTER;
use members::{Client, Config, Groups, Roles, ToldDisk};
use rig::start;
use std::cell::RefCell;
use std::rc::Rc;
use wire::{Errno, NodeId, Time};

const PER_DISK: u16 = 4;

fn config(copies: u8) -> Config {
    Config { copies, per_disk: PER_DISK, ..Config::default() }
}

fn disk_label(server: u16) -> u128 {
    u128::from(server) << 64 | 0xd15c
}

fn disk(server: u16) -> Replica {
    Replica::of_label(NodeId(server), 0, disk_label(server))
}

/// An I/O server with one disk, which it tells.
fn start_io(world: &World, id: u16) -> Client {
    let client = world.start(id, &format!("server {id}"), Roles::IO);
    let (told, cx) = (client.clone(), world.net.nodes[usize::from(id) - 1].cx().clone());
    cx.clone().spawn("test disks", async move {
        let disks = [ToldDisk { disk: 0, id: disk_label(id), found: [1, 0], now: [1, 0] }];
        loop {
            let changed = told.changed();
            if is_member(&told) && told.tell_disks(&disks, 0).await.is_ok() {
                return;
            }
            changed.await;
        }
    });
    client
}

/// A manager and I/O servers as nodes 2 and up, which know their groups.
fn cluster(servers: u16) -> (World, Vec<Client>) {
    let world = World::with(servers + 2, config(2));
    let mut world = world;
    let clients: Vec<Client> = (2..servers + 2).map(|id| start_io(&world, id)).collect();
    let count = usize::from(servers * PER_DISK / 2);
    world.until(|_| clients.iter().all(|client| client.groups().table().len() == count));
    (world, clients)
}

fn groups_of(world: &World) -> Vec<(GroupId, Group)> {
    let service = world.service.as_ref().unwrap();
    service.groups().iter().map(|(id, group)| (id, group.clone())).collect()
}

fn group_of(world: &World, id: GroupId) -> Group {
    world.service.as_ref().unwrap().groups().get(id).unwrap().clone()
}

#[test]
fn groups_are_made_of_told_disks_and_members_learn_them_with_their_leases() {
    let (mut world, clients) = cluster(3);
    let all = groups_of(&world);
    let is_apart = |group: &Group| {
        group.lacks() == 0 && group.replicas()[0].server != group.replicas()[1].server
    };
    assert!(all.iter().all(|(id, group)| id.is_listed() && is_apart(group)), "{all:?}");
    for client in &clients {
        let groups = client.groups();
        assert!(groups.is_known());
        assert!(groups.table().iter().eq(all.iter().map(|(id, group)| (*id, group))));
        assert_eq!(groups.get(all[0].0), Some(all[0].1.clone()));
    }
    // a tool is no member, and the manager's node asks itself
    for node in [4, 0] {
        let groups = Groups::new(world.net.nodes[node].cx(), MANAGER);
        assert!(!groups.is_known());
        let asks = groups.clone();
        let done = start(world.net.nodes[node].cx(), async move { asks.refresh().await });
        world.until(|_| done.borrow().is_some());
        assert_eq!((*done.borrow(), groups.is_known()), (Some(Ok(())), true));
        assert_eq!(*groups.table(), *clients[0].groups().table());
    }
}

#[test]
fn a_cluster_of_one_copy_has_no_groups_and_knows_it() {
    let mut world = World::with(3, config(1));
    let clients = [start_io(&world, 2), start_io(&world, 3)];
    world.until(|_| clients.iter().all(|client| client.groups().is_known()));
    world.seconds(10);
    assert_eq!((groups_of(&world), clients[0].groups().version()), (vec![], 0));
}

#[test]
fn no_groups_are_made_of_one_disk() {
    let mut world = World::with(4, config(2));
    let alpha = start_io(&world, 2);
    world.until(|_| is_member(&alpha));
    world.seconds(10);
    assert_eq!(groups_of(&world), []);
    let _beta = start_io(&world, 3);
    world.until(|world| groups_of(world).len() == usize::from(PER_DISK));
}

/// A server tells its disks once in an incarnation: what is answered outlives a power cut of the manager.
#[test]
fn disks_that_were_told_are_known_after_a_power_cut() {
    let mut world = World::with(4, config(2));
    let clients = [2, 3].map(|id| world.start(id, &format!("server {id}"), Roles::IO));
    world.until(|_| clients.iter().all(is_member));
    world.seconds(3);
    for (client, id) in clients.iter().zip([2, 3]) {
        let (told, cx) = (client.clone(), world.net.nodes[id - 1].cx());
        let disk = ToldDisk { disk: 0, id: disk_label(id as u16), found: [1, 0], now: [1, 0] };
        let answered = start(cx, async move { told.tell_disks(&[disk], 0).await });
        world.until(|_| answered.borrow().is_some());
        assert!(answered.take().unwrap().is_ok());
        world.backend = world.backend.crash(&mut || 0);
        world.logs.crash(&mut || 0);
        world.restart_manager();
    }
    world.until(|world| groups_of(world).len() == usize::from(PER_DISK));
}

/// The outcome of a proposal by a server's node, once there is one.
fn propose(
    world: &World,
    client: &Client,
    id: GroupId,
    by: Replica,
    epoch: u32,
    change: Change,
) -> Rc<RefCell<Option<Result<Group, Errno>>>> {
    let (groups, node) = (client.groups(), usize::from(by.server.0) - 1);
    let task = async move { groups.propose(id, by, epoch, change).await };
    start(world.net.nodes[node].cx(), task)
}

fn outcome(
    world: &mut World,
    client: &Client,
    id: GroupId,
    by: Replica,
    epoch: u32,
    change: Change,
) -> Result<Group, Errno> {
    let done = propose(world, client, id, by, epoch, change);
    world.until(|_| done.borrow().is_some());
    done.take().unwrap()
}

#[test]
fn proposals_are_made_or_refused_and_either_way_the_proposer_learns() {
    let (mut world, clients) = cluster(2);
    let (id, group) = groups_of(&world)[0].clone();
    let (first, second) = (group.primary(), group.replicas()[1]);
    let of = |replica: Replica| &clients[usize::from(replica.server.0) - 2];
    let made = outcome(&mut world, of(first), id, first, 1, Change::Remove(second)).unwrap();
    assert_eq!((made.epoch(), made.primary(), made.lacks()), (2, first, 1));
    assert_eq!(of(first).groups().get(id), Some(made.clone()), "learnt");
    assert_eq!(group_of(&world, id), made);
    assert_eq!(of(second).groups().get(id), Some(group), "not heard of yet");
    let late = outcome(&mut world, of(second), id, second, 1, Change::Remove(first));
    assert_eq!(late, Err(Errno::ESTALE));
    assert_eq!(of(second).groups().get(id), Some(made.clone()), "learnt by the refusal");
    let not_its = outcome(&mut world, of(second), id, second, 2, Change::Admit(second));
    assert_eq!(not_its, Err(Errno::EPERM));
    let forged = {
        let (groups, cx) =
            (of(second).groups(), world.net.nodes[usize::from(second.server.0) - 1].cx());
        start(cx, async move { groups.propose(id, first, 2, Change::Fence).await })
    };
    world.until(|_| forged.borrow().is_some());
    assert_eq!(forged.take(), Some(Err(Errno::EPERM)), "in another server's name");
    let none = outcome(&mut world, of(first), id, first, 2, Change::Remove(second));
    assert_eq!(none, Err(Errno::EINVAL));
    assert_eq!(group_of(&world, id), made);
    // with the next leases others learn the table as well
    let version = world.service.as_ref().unwrap().groups().version();
    world.until(|_| clients.iter().all(|client| client.groups().version() == version));
}

#[test]
fn a_proposal_is_made_once_on_a_link_that_loses_and_duplicates() {
    for pattern in 0..6 {
        let (mut world, clients) = cluster(2);
        let (id, group) = groups_of(&world)[0].clone();
        let (first, second) = (group.primary(), group.replicas()[1]);
        let client = &clients[usize::from(first.server.0) - 2];
        world.net.fate = Box::new(move |number| match (number + pattern) % 6 {
            0..4 => (0, 0),
            4 => (2, 3),
            _ => (1, 7),
        });
        let outcome = outcome(&mut world, client, id, first, 1, Change::Remove(second));
        let made = group.after(Some(first), 1, Change::Remove(second)).unwrap();
        let is_late = outcome == Err(Errno::ETIMEDOUT);
        assert!(is_late || outcome == Ok(made.clone()), "{outcome:?}: it has made it itself");
        world.net.fate = Box::new(|_| (1, 0));
        world.seconds(5);
        assert!([&group, &made].contains(&&group_of(&world, id)));
        assert!(is_late || group_of(&world, id) == made);
    }
}

/// At every moment of a proposal, and by a power cut or a kill.
#[test]
fn a_proposal_over_a_manager_that_dies_is_made_once_or_not_at_all() {
    let (mut lost, mut unheard) = (0, 0);
    for (turns, is_power_cut) in (0..14).flat_map(|turns| [(turns, false), (turns, true)]) {
        let (mut world, clients) = cluster(2);
        let (id, group) = groups_of(&world)[0].clone();
        let (first, second) = (group.primary(), group.replicas()[1]);
        let client = &clients[usize::from(first.server.0) - 2];
        let change = Change::Remove(second);
        let made = group.after(Some(first), 1, change).unwrap();
        let proposed = propose(&world, client, id, first, 1, change);
        (0..turns).for_each(|_| world.turn());
        let heard = proposed.borrow().clone();
        if is_power_cut {
            world.backend = world.backend.crash(&mut || 0);
            world.logs.crash(&mut || 0);
        }
        world.restart_manager();
        if heard == Some(Ok(made.clone())) {
            assert_eq!(group_of(&world, id), made, "what was told is durable");
            continue;
        }
        world.until(|_| proposed.borrow().is_some());
        let mut retried = Err(Errno::EHOSTDOWN);
        while retried == Err(Errno::EHOSTDOWN) {
            retried = outcome(&mut world, client, id, first, 1, change);
        }
        match proposed.take().unwrap() {
            // the first went on to the manager's next incarnation
            Ok(after) => assert_eq!((after, retried), (made.clone(), Err(Errno::ESTALE))),
            Err(_) => match retried {
                Ok(after) => {
                    lost += 1;
                    assert_eq!(after, made);
                }
                Err(errno) => {
                    unheard += 1;
                    assert_eq!(errno, Errno::ESTALE);
                    assert_eq!(client.groups().get(id), Some(made.clone()), "it is its own");
                }
            },
        }
        assert_eq!(group_of(&world, id), made, "once");
    }
    assert!(lost > 0 && unheard > 0, "{lost} {unheard}");
}

/// Hundreds of groups have a replica less when a server dies, and none of them serves before that is durable.
#[test]
fn proposals_that_wait_share_a_sync() {
    let world = World::with(4, Config { per_disk: 64, ..config(2) });
    let mut world = world;
    let clients = [start_io(&world, 2), start_io(&world, 3)];
    world.until(|_| clients.iter().all(|client| client.groups().table().len() == 64));
    let before = world.syncs;
    let proposed: Vec<_> = groups_of(&world)
        .into_iter()
        .map(|(id, group)| {
            let (by, gone) = (group.primary(), group.replicas()[1]);
            let client = &clients[usize::from(by.server.0) - 2];
            propose(&world, client, id, by, 1, Change::Remove(gone))
        })
        .collect();
    world.until(|_| proposed.iter().all(|done| done.borrow().is_some()));
    let is_made = |done: &Rc<RefCell<Option<Result<Group, Errno>>>>| {
        done.borrow().as_ref().is_some_and(|result| result.is_ok())
    };
    let made = proposed.iter().filter(|done| is_made(done)).count();
    let syncs = world.syncs - before;
    assert!(made > 32 && syncs * 4 < made, "{made} with {syncs} syncs");
}

#[test]
fn a_log_that_fails_leaves_the_outcome_open_until_a_checkpoint() {
    let (mut world, clients) = cluster(2);
    let (id, group) = groups_of(&world)[0].clone();
    let (first, second) = (group.primary(), group.replicas()[1]);
    let client = &clients[usize::from(first.server.0) - 2];
    let change = Change::Remove(second);
    world.seconds(5);
    world.full_log = world.logs.contents().last().map(|(log, _)| log + 1);
    let failed = outcome(&mut world, client, id, first, 1, change);
    assert_eq!(failed, Err(Errno::EIO));
    assert_eq!(group_of(&world, id), group, "told nobody");
    let made = group.after(Some(first), 1, change).unwrap();
    world.until(|world| group_of(world, id) == made);
    assert_eq!(outcome(&mut world, client, id, first, 1, change), Err(Errno::ESTALE));
    assert_eq!(client.groups().get(id), Some(made));
}

/// What the others would go on without may be all there is after a power cut.
#[test]
fn a_sync_that_fails_is_no_success() {
    let (mut world, clients) = cluster(2);
    let (id, group) = groups_of(&world)[0].clone();
    let (first, second) = (group.primary(), group.replicas()[1]);
    let client = &clients[usize::from(first.server.0) - 2];
    world.seconds(5);
    world.is_broken = true;
    let change = Change::Remove(second);
    let failed = outcome(&mut world, client, id, first, 1, change);
    assert_eq!((failed, group_of(&world, id)), (Err(Errno::EIO), group.clone()));
    world.is_broken = false;
    world.until(|world| group_of(world, id).epoch() == 2);
    assert_eq!(outcome(&mut world, client, id, first, 1, change), Err(Errno::ESTALE));
}

#[test]
fn those_who_ask_at_the_same_time_share_the_pages() {
    let (mut world, _clients) = cluster(2);
    let cx = world.net.nodes[3].cx().clone();
    let groups = Groups::new(&cx, MANAGER);
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let groups = groups.clone();
            start(&cx, async move { groups.refresh().await })
        })
        .collect();
    let before = cx.rpc_counters().calls;
    world.until(|_| asked.iter().all(|done| done.borrow().is_some()));
    assert!(asked.iter().all(|done| *done.borrow() == Some(Ok(()))));
    assert!(cx.rpc_counters().calls - before <= 2, "{}", cx.rpc_counters().calls - before);
    // and the error of a manager that is away
    world.net.cut = Some(NodeId(4));
    let since = world.net.now;
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let groups = groups.clone();
            start(&cx, async move { groups.refresh().await })
        })
        .collect();
    world.until(|_| asked.iter().all(|done| done.borrow().is_some()));
    assert!(asked.iter().all(|done| matches!(*done.borrow(), Some(Err(_)))));
    assert!(
        world.net.now.since(since) < 3 * members::limits::CALL_DEADLINE,
        "not one after the other"
    );
}

/// A page that is on its way was written before.
#[test]
fn who_asks_later_knows_what_was_told_before_that() {
    let (mut world, clients) = cluster(2);
    let (id, group) = groups_of(&world)[0].clone();
    let (first, second) = (group.primary(), group.replicas()[1]);
    let client = &clients[usize::from(first.server.0) - 2];
    let cx = world.net.nodes[3].cx().clone();
    let groups = Groups::new(&cx, MANAGER);
    let refresh = || {
        let groups = groups.clone();
        start(&cx, async move { groups.refresh().await })
    };
    let connects = refresh();
    world.until(|_| connects.borrow().is_some());
    world.net.fate = Box::new(|_| (1, 50));
    let proposed = propose(&world, client, id, first, 1, Change::Remove(second));
    let early = refresh();
    world.until(|world| group_of(world, id).epoch() == 2);
    assert!(early.borrow().is_none() && proposed.borrow().is_none());
    let late = refresh();
    world.until(|_| early.borrow().is_some());
    assert_eq!(groups.get(id), Some(group), "its page was written before the change");
    world.until(|_| late.borrow().is_some());
    assert_eq!(groups.get(id), Some(group_of(&world, id)));
}

#[test]
fn what_another_node_has_told_hides_no_earlier_change() {
    let (mut world, clients) = cluster(2);
    let all = groups_of(&world);
    for (id, group) in &all {
        let (by, gone) = (group.primary(), group.replicas()[1]);
        let client = &clients[usize::from(by.server.0) - 2];
        outcome(&mut world, client, *id, by, 1, Change::Remove(gone)).unwrap();
    }
    let groups = Groups::new(world.net.nodes[3].cx(), MANAGER);
    let (last, version) =
        (all.last().unwrap().0, world.service.as_ref().unwrap().groups().version());
    groups.learn(version, last, group_of(&world, last));
    assert_eq!((groups.version(), groups.table().len()), (0, 1));
    groups.learn(1, last, all.last().unwrap().1.clone());
    assert_eq!(groups.get(last), Some(group_of(&world, last)), "the newer one stays");
    let asks = groups.clone();
    let done = start(world.net.nodes[3].cx(), async move { asks.refresh().await });
    world.until(|_| done.borrow().is_some());
    assert_eq!(*groups.table(), *world.service.as_ref().unwrap().groups());
}

/// The replicas' part: the primary goes on without the one that is silent, and admits those that were added.
fn tend(world: &mut World, clients: &[Client], dead: Replica) {
    for (id, group) in groups_of(world) {
        let by = group.in_sync().find(|replica| *replica != dead).unwrap();
        let unfilled = group.replicas().iter().find(|it| !group.is_in_sync(**it) && **it != dead);
        let change = match unfilled {
            _ if group.is_in_sync(dead) => Change::Remove(dead),
            Some(unfilled) => Change::Admit(*unfilled),
            None => continue,
        };
        let client = &clients[usize::from(by.server.0) - 2];
        let _ = outcome(world, client, id, by, group.epoch(), change);
    }
}

#[test]
fn a_disk_that_stays_away_is_replaced_and_one_that_comes_back_is_not() {
    for is_back in [true, false] {
        let (mut world, mut clients) = cluster(3);
        let all = groups_of(&world);
        let (dead, since) = (disk(4), world.net.now);
        world.net.cut = Some(NodeId(4));
        world.seconds(15);
        tend(&mut world, &clients, dead);
        let has = |world: &World| {
            groups_of(world).iter().filter(|(_, it)| it.replicas().contains(&dead)).count()
        };
        let before = has(&world);
        assert!(before > 0 && groups_of(&world).iter().all(|(_, it)| !it.is_in_sync(dead)));
        let until = |world: &mut World, at: Time| {
            while world.net.now < at {
                world.turn();
            }
        };
        until(&mut world, since + REPLACE_AFTER / 2);
        assert_eq!(has(&world), before, "it may come back");
        if is_back {
            world.net.cut = None;
            world.net.restart(4, 2);
            clients[2] = start_io(&world, 4);
        }
        // its lease ended after it was cut off
        until(&mut world, since + REPLACE_AFTER + 2 * members::limits::LEASE_DEFAULT);
        (0..10).for_each(|_| {
            tend(&mut world, &clients, if is_back { disk(9) } else { dead });
            world.seconds(3);
        });
        let now = groups_of(&world);
        assert!(
            now.iter().all(|(_, group)| group.lacks() == 0 && group.replicas().len() == 2),
            "{now:?}"
        );
        assert_eq!((has(&world) > 0, now.len()), (is_back, all.len()));
    }
}
