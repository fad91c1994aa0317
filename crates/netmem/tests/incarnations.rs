//! Nodes that were given up by the others while they ran: what they still have, and what they must not believe.

use crate::world::*;
use netmem::protocol::{Record, op};
use netmem::service::{Config, GetError, PutError, Source, Weak};
use netmem::*;
use std::time::Duration;
use wire::Time;

/// A shared page of which none of these nodes is the directory.
fn far_from(world: &World, nodes: &[u16]) -> PageId {
    let mut pages = (0..).map(shared);
    pages.find(|id| !nodes.contains(&world.primary(*id))).unwrap()
}

fn write(world: &mut World, node: u16, id: PageId, version: u64, class: Class) {
    world.put(node, id, version, class).unwrap();
    world.flush(node, id).unwrap();
}

#[test]
fn what_only_the_node_can_have_written_and_has_still_outlives_its_life() {
    let mut world = World::new(4, |_| small(64));
    let (here, away) = (private(1, 0), private(1, 1));
    write(&mut world, 1, here, 5, Class::Mirrored);
    write(&mut world, 1, away, 6, Class::Mirrored);
    world.put(1, private(1, 2), 7, Class::Mirrored).unwrap();
    world.forget(1, away);
    world.give_up(1);
    assert_eq!(world.read(1, away, 6).0, 6, "others keep its pages for a while");
    world.come_back(1);
    assert_eq!(world.read(1, here, 5).0, 5);
    assert_eq!(world.read(1, private(1, 2), 7).0, 7);
    world.seconds(2);
    assert_eq!(
        world.mirrors(here).len(),
        2,
        "those of the incarnation before are nobody's, and there are others"
    );
    world.flush(1, here).unwrap();
    world.flush(1, private(1, 2)).unwrap();
    assert_eq!((world.mirrors(here).len(), world.mirrors(private(1, 2)).len()), (2, 2));
    world.kill(2);
    world.next_view();
    world.flush(1, here).unwrap();
    world.forget(1, here);
    assert_eq!(world.read(1, here, 5).0, 5);
    let counters = world.service(1).counters();
    assert_eq!((counters.incarnations_lost, world.service(1).incarnation()), (1, 2));
}

#[test]
fn what_only_others_had_for_it_is_lost_and_said_to_be() {
    let mut world = World::new(4, |_| small(64));
    let away = private(1, 1);
    write(&mut world, 1, away, 6, Class::Mirrored);
    world.forget(1, away);
    world.give_up(1);
    world.come_back(1);
    assert_eq!(world.get(1, wanted(away, 0)).unwrap_err(), GetError::Lost(Version(6)));
    assert_eq!(world.service(1).counters().lost_pages, 1);
    write(&mut world, 1, away, 7, Class::Mirrored);
    assert_eq!(world.read(1, away, 0).0, 7);
}

/// A page that was durable left, as a clean copy of what its mirrors have, and came back. They go with the incarnation
/// of its node, and it stays: it is made durable again before it leaves again.
#[test]
fn a_page_that_came_back_is_as_dirty_as_it_was() {
    let mut world = World::new(5, |_| small(32));
    let disk = Disk::default();
    let share = disk.clone();
    // a full node gives clean copies away, whichever nodes have mirrors
    world.restart_all(move |cx| Config {
        backing: Some(share.at(cx)),
        policy: Policy::Random,
        ..small(32)
    });
    world.seconds(2);
    let pages: Vec<PageId> = (0..4).map(|index| private(1, index)).collect();
    for id in &pages {
        write(&mut world, 1, *id, 3, Class::Mirrored);
    }
    // others push them out
    for at in 0..64 {
        let other = shared(wire::mix(at) % 10_000);
        disk.pages.borrow_mut().insert(other, late(1));
        world.read(1, other, 0);
        world.net.run(20);
    }
    let away = |world: &World, id: &PageId| {
        let held = world.where_is(*id);
        held.iter().all(|(node, ..)| *node != 1)
            && held.iter().any(|(_, role, _)| *role == Role::Hosted)
    };
    let away: Vec<PageId> = pages.into_iter().filter(|id| away(&world, id)).collect();
    assert!(!away.is_empty());
    away.iter().for_each(|id| assert_eq!(world.read(1, *id, 3), (3, Source::Peer)));
    world.give_up(1);
    world.seconds(1);
    world.come_back(1);
    for id in away {
        world.flush(1, id).unwrap();
        assert_eq!(world.mirrors(id).len(), 2, "{:?}", world.where_is(id));
    }
}

#[test]
fn mirrors_that_it_had_for_others_are_made_elsewhere_and_not_twice() {
    let mut world = World::new(5, |_| small(64));
    for index in 0..8 {
        write(&mut world, 1, private(1, index), 3, Class::Mirrored);
    }
    world.give_up(2);
    world.seconds(3);
    world.come_back(2);
    world.seconds(1);
    for index in 0..8 {
        let mirrors = world.mirrors(private(1, index));
        assert_eq!(mirrors.len(), 2, "{mirrors:?}");
    }
    assert!(world.services.iter().all(Service::is_consistent));
}

/// The lease of the node's membership is over, and it does not know the next view.
#[test]
fn a_node_that_may_have_been_given_up_believes_no_copy_of_a_shared_page() {
    let mut world = World::new(4, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    write(&mut world, 1, id, late(1), Class::Mirrored);
    world.flush(1, id).unwrap();
    let disowned = world.put(2, id, late(2), Class::Mirrored);
    disowned.unwrap();
    world.flush(2, id).unwrap();
    assert_eq!(world.read(3, id, 0).0, late(2));
    let (service, now) = (world.service(3), world.net.now);
    service.set_lease(99, now);
    assert_eq!(
        world.read(3, id, 0).0,
        late(2),
        "another incarnation's lease says nothing of this one's"
    );
    service.set_lease(1, now);
    world.give_up(3);
    write(&mut world, 1, id, late(3), Class::Mirrored);
    match world.get(3, wanted(id, 0)) {
        Ok(got) => assert_eq!(got.version, Version(late(3))),
        Err(error) => assert_eq!(error, GetError::Unavailable),
    }
    world.come_back(3);
    assert_eq!(world.read(3, id, 0).0, late(3));
    assert!(world.where_is(id).iter().all(|(.., version)| *version == late(3)));
}

#[test]
fn a_writer_that_was_given_up_may_not_go_on_writing() {
    let mut world = World::new(4, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    write(&mut world, 3, id, late(1), Class::Mirrored);
    world.put(3, id, late(2), Class::Mirrored).unwrap();
    world.service(3).set_lease(1, world.net.now);
    world.give_up(3);
    assert_eq!(world.put(3, id, late(3), Class::Mirrored), Err(PutError::NoLease));
    assert_eq!(world.read(1, id, 0).0, late(1), "what was durable is there without it");
    write(&mut world, 1, id, late(2), Class::Mirrored);
    world.come_back(3);
    assert_eq!(world.flush(3, id), Err(Weak { have: 0, needed: 1 }), "its version 2 is gone");
    assert_eq!(world.read(3, id, 0).0, late(2), "and this is the other one");
    world.service(3).set_lease(2, Time::NEVER);
    world.put(3, id, late(3), Class::Mirrored).unwrap();
    world.flush(3, id).unwrap();
    assert_eq!(world.read(1, id, late(3)).0, late(3));
}

/// A loss of an earlier incarnation is reported to its programs, and keeps no other node from writing.
#[test]
fn what_was_lost_with_a_life_does_not_hold_a_lease() {
    let mut world = World::new(4, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    world.put(3, id, late(1), Class::Mirrored).unwrap();
    world.give_up(3);
    world.come_back(3);
    let known = world.put(3, id, 1, Class::Mirrored);
    assert!(matches!(known, Err(PutError::Stale(_))), "it has the lease, and wrote nothing");
    assert_eq!(world.flush(3, id), Err(Weak { have: 0, needed: 1 }));
    write(&mut world, 1, id, late(2), Class::Mirrored);
    assert_eq!(world.read(3, id, late(2)).0, late(2));
}

#[test]
fn what_was_in_mirrors_is_not_lost_with_a_life() {
    let mut world = World::new(4, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    write(&mut world, 3, id, late(1), Class::Mirrored);
    world.give_up(3);
    world.come_back(3);
    world.flush(3, id).unwrap();
    assert_eq!(world.read(3, id, late(1)).0, late(1));
}

/// Both mirrors went down while the node was away, so no node has what it had made durable.
#[test]
fn what_was_in_mirrors_that_went_meanwhile_is_said_to_be_lost() {
    let mut world = World::new(6, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    write(&mut world, 3, id, late(1), Class::Mirrored);
    world.give_up(3);
    world.mirrors(id).into_iter().for_each(|(node, _)| world.kill(node));
    world.next_view();
    world.settle();
    world.come_back(3);
    assert_eq!(world.flush(3, id), Err(Weak { have: 0, needed: 1 }));
    assert_eq!(world.get(3, wanted(id, 0)).unwrap_err(), GetError::Lost(Version(late(1))));
    write(&mut world, 3, id, late(2), Class::Mirrored);
}

#[test]
fn one_mirror_that_is_left_is_enough_for_what_was_durable() {
    let mut world = World::new(6, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    write(&mut world, 3, id, late(1), Class::Mirrored);
    world.give_up(3);
    let (first, _) = world.mirrors(id)[0];
    world.kill(first);
    world.next_view();
    world.settle();
    world.come_back(3);
    world.flush(3, id).unwrap();
    assert_eq!(world.read(3, id, late(1)).0, late(1));
}

#[test]
fn who_flushes_a_space_hears_what_of_it_was_lost_with_a_life() {
    let mut world = World::new(4, |_| small(64));
    let id = far_from(&world, &[1, 3]);
    world.put(3, id, late(1), Class::Mirrored).unwrap();
    world.give_up(3);
    world.come_back(3);
    let flush = |world: &mut World, space| {
        let service = world.service(3);
        world.run(3, async move { service.flush_space(space).await })
    };
    assert_eq!(flush(&mut world, id.space), Err(Weak { have: 0, needed: 1 }));
    assert_eq!(flush(&mut world, private(3, 0).space), Ok(()));
    world.put(3, id, late(2), Class::Mirrored).unwrap();
    assert_eq!(flush(&mut world, id.space), Ok(()));
}

/// The node still takes itself for a directory, and may have taken in a version that no other node has.
#[test]
fn who_was_given_up_has_nobody_drop_a_mirror() {
    let mut world = World::new(4, |_| small(64));
    let id = private(1, 0);
    write(&mut world, 1, id, 3, Class::Mirrored);
    let holders: Vec<u16> = world.mirrors(id).into_iter().map(|(node, _)| node).collect();
    let other = (2..=4).find(|node| !holders.contains(node)).unwrap();
    let before = world.up().number;
    let record = world.record(holders[0], HolderRole::Mirror, id, 3);
    world.give_up(other);
    let drop = |world: &mut World, view| {
        let heard = world.say((other, holders[0]), op::DROP, view, record) == 0;
        (heard, world.mirrors(id).len())
    };
    assert_eq!(drop(&mut world, before), (false, 2), "it is in no view");
    world.come_back(other);
    assert_eq!(drop(&mut world, before), (false, 2), "it said so in the incarnation before");
    let now = world.up().number;
    assert_eq!(drop(&mut world, now), (true, 1));
}

/// A page that an incarnation that is over was just writing to stable storage is gone when that has ended, before it
/// is made durable for the incarnation of today.
#[test]
fn a_page_of_a_life_that_is_over_is_here_only_while_it_is_being_written() {
    let (mut world, disk) = with_disk(4, 64);
    let id = far_from(&world, &[1, 3]);
    world.put_shared(3, id, 1, Class::WriteBack).unwrap();
    disk.delay.set(Duration::from_secs(2));
    let service = world.service(3);
    let flushed = world.start(3, async move { service.flush(id).await });
    world.net.run(5);
    world.give_up(3);
    world.come_back(3);
    let look = |world: &World| {
        world.service(3).inspect(|memory, _| Some(memory.page(memory.find(id)?)?.busy))
    };
    assert_eq!(look(&world), Some(true));
    while flushed.borrow().is_none() {
        world.net.run(1);
        assert_ne!(look(&world), Some(false));
    }
    assert_eq!(look(&world), None);
}

/// A holder's report on an incarnation that is over may arrive when the node knows that it is, and not yet that it
/// begins the next: by then the holder has forgotten the page.
#[test]
fn a_node_in_no_view_learns_nothing_of_its_pages() {
    let mut world = World::new(3, |_| small(64));
    let id = private(1, 0);
    world.give_up(1);
    let without = world.up();
    world.service(1).follow(without.clone());
    let record = Record { copies: 1, ..world.record(2, HolderRole::Mirror, id, 3) };
    let status = world.say((2, 1), op::REGISTER, without.number, record);
    assert_eq!(status, wire::Errno::EAGAIN.0);
    world.come_back(1);
    assert!(world.service(1).inspect(|_, directory| directory.entry(id).is_none()));
}

#[test]
fn pages_written_before_the_first_view_are_kept() {
    let mut world = World::new(3, |_| small(64));
    world.revive(1);
    world.put(1, private(1, 0), 4, Class::Mirrored).unwrap();
    world.incarnations[0] = 77;
    world.next_view();
    world.settle();
    assert_eq!((world.read(1, private(1, 0), 4).0, world.service(1).incarnation()), (4, 77));
    world.flush(1, private(1, 0)).unwrap();
    assert_eq!(world.mirrors(private(1, 0)).len(), 2);
}
