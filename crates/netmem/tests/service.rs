//! The service on nodes over a link in memory: pages found, left elsewhere, made durable, lost and freed.

use crate::world::*;
use netmem::limits::LOCAL_SAMPLED;
use netmem::protocol::op;
use netmem::service::{GetError, PutError, Source};
use netmem::*;
use std::cell::Cell;
use std::time::Duration;
use wire::{NodeId, Time};

#[test]
fn a_page_is_found_at_another_node_by_three_messages() {
    let mut world = World::new(4, |_| small(64));
    let homes: Vec<u16> = (0..640).map(|index| world.primary(shared(index))).collect();
    // neither writer nor reader is the directory: the holder answers in its stead
    let index = homes.iter().position(|home| ![1, 2].contains(home)).unwrap() as u64;
    world.put_shared(1, shared(index), 5, Class::Mirrored).unwrap();
    world.flush(1, shared(index)).unwrap();
    let here = (late(5), Source::Peer);
    assert_eq!(world.read(2, shared(index), late(5)), here);
    assert_eq!(world.read(2, shared(index), 0), here, "who writes has it alone");
    let delegated: u64 = (1..=4).map(|node| world.service(node).counters().delegated).sum();
    assert_eq!(delegated, 1, "the second request goes by the guess");
}

#[test]
fn what_nobody_has_is_unknown_or_lost_and_never_zeros() {
    let mut world = World::new(3, |_| small(64));
    assert_eq!(world.get(1, wanted(shared(9), 0)).unwrap_err(), GetError::Unknown);
    assert_eq!(world.get(1, wanted(shared(9), 4)).unwrap_err(), GetError::Lost(Version(4)));
    assert_eq!(world.get(1, wanted(private(1, 9), 4)).unwrap_err(), GetError::Lost(Version(4)));
    assert_eq!(world.service(1).counters().misses.unknown, 3);
}

#[test]
fn faults_at_the_same_time_are_one_fetch() {
    let (mut world, disk) = with_disk(3, 64);
    disk.pages.borrow_mut().insert(shared(1), 3);
    let service = world.service(2);
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let service = service.clone();
            world.start(2, async move { service.get(wanted(shared(1), 3)).await })
        })
        .collect();
    world.net.until(|| tasks.iter().all(|task| task.borrow().is_some()));
    for task in tasks {
        assert_eq!(&task.take().unwrap().unwrap().data[..], &content(shared(1), 3)[..]);
    }
    assert_eq!((disk.reads.get(), service.counters().coalesced), (1, 7));
    assert_eq!(world.read(3, shared(1), 3).1, Source::Peer, "the reader registered its copy");
}

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that shows two microseconds more at each look.
fn clock() -> Time {
    LOOKS.set(LOOKS.get() + 1);
    Time(2000 * LOOKS.get())
}

/// A node's time stands still while its own memory answers.
#[test]
fn what_is_found_here_is_timed_by_the_worlds_clock_now_and_then() {
    let mut world = World::new(2, |_| small(64));
    world.put(1, private(1, 0), 7, Class::Volatile).unwrap();
    let read = |world: &mut World| {
        let before = world.service(1).counters();
        for _ in 0..4 * LOCAL_SAMPLED {
            assert_eq!(world.read(1, private(1, 0), 7), (7, Source::Local));
        }
        let after = world.service(1).counters();
        assert_eq!(after.local_hits - before.local_hits, u64::from(4 * LOCAL_SAMPLED));
        assert_eq!(after.local_latency.samples() - before.local_latency.samples(), 4);
        after.local_latency.quantile(990).unwrap()
    };
    assert!(read(&mut world) < Duration::from_nanos(200), "a world without a clock");
    world.net.nodes[0].set_clock(clock);
    let slowest = read(&mut world);
    assert!((2000..=2500).contains(&slowest.as_nanos()), "{slowest:?}");
    assert_eq!(LOOKS.get(), 8, "two looks for each that is measured");
}

#[test]
fn a_dirty_page_survives_any_one_node() {
    for victim in [2, 3, 4] {
        let mut world = World::new(4, |_| small(64));
        world.put(1, private(1, 0), 7, Class::Mirrored).unwrap();
        world.flush(1, private(1, 0)).unwrap();
        assert_eq!(world.mirrors(private(1, 0)).len(), 2);
        world.forget(1, private(1, 0));
        world.kill(victim);
        world.next_view();
        assert_eq!(world.read(1, private(1, 0), 7).0, 7);
        world.seconds(2);
        assert_eq!(world.mirrors(private(1, 0)).len(), 2, "mirrored anew");
        assert_eq!(world.service(1).counters().durable_deficit_pages, 0);
    }
}

#[test]
fn mirrors_are_made_anew_one_after_the_other() {
    let mut world = World::new(6, |_| small(256));
    for index in 0..40 {
        world.put(1, private(1, index), 2, Class::Mirrored).unwrap();
        world.flush(1, private(1, index)).unwrap();
        world.forget(1, private(1, index));
    }
    for victim in [2, 3, 4] {
        world.kill(victim);
        world.next_view();
        world.seconds(3);
        assert!((0..40).all(|index| world.mirrors(private(1, index)).len() == 2), "{victim}");
        assert_eq!(world.service(1).counters().durable_deficit_pages, 0);
    }
    assert!((0..40).all(|index| world.read(1, private(1, index), 2).0 == 2));
    assert!(world.service(1).counters().mirrors_again > 0);
}

/// The remaining directories get the entries of those that go, and have no room for them.
#[test]
fn what_is_in_mirrors_is_known_though_no_directory_has_room_for_it() {
    let mut world = World::new(5, |_| {
        let mut config = small(256);
        config.directory_bytes = 24 * Directory::ENTRY_BYTES;
        config.patience = Duration::from_millis(500);
        config
    });
    let pages = (0..200).map(|at| shared(wire::mix(at) % 100_000));
    let is_durable = |id: &PageId| {
        world.put_shared(1, *id, 1, Class::Mirrored).unwrap();
        world.flush(1, *id).is_ok()
    };
    let durable: Vec<PageId> = pages.take_while(is_durable).collect();
    assert!(durable.len() > 30, "{} of 60 that all of them can name twice", durable.len());
    for victim in [1, 2] {
        world.kill(victim);
        world.next_view();
        world.settle();
        world.seconds(5);
        assert!(durable.iter().all(|id| world.read(3, *id, 0).0 == late(1)));
    }
    assert!(durable.iter().any(|id| world.mirrors(*id).len() < 2), "nobody lacked room");
    // as soon as there is room, they are what they were
    durable[..durable.len() - 8]
        .iter()
        .for_each(|id| world.service(3).written(*id, Version(late(1))));
    world.seconds(20);
    for id in &durable[durable.len() - 8..] {
        assert_eq!(world.mirrors(*id).len(), 2);
    }
}

/// A machine that ends takes all of its nodes along.
#[test]
fn mirrors_are_on_different_machines_as_long_as_there_are_some() {
    let mut world = World::new(6, |_| small(256));
    world.machines = vec![1, 1, 1, 2, 2, 3];
    world.next_view();
    for index in 0..40 {
        world.put(1, private(1, index), 2, Class::Mirrored).unwrap();
        world.flush(1, private(1, index)).unwrap();
    }
    let check = |world: &World, expected: &[u64]| {
        for index in 0..40 {
            let mirrors = world.mirrors(private(1, index));
            let on = mirrors.iter().map(|(node, _)| world.machines[usize::from(*node) - 1]);
            let mut on: Vec<u64> = on.collect();
            on.sort();
            assert_eq!(on, expected, "{mirrors:?}");
        }
    };
    check(&world, &[2, 3]);
    for (ends, left) in [(vec![6], [1, 2]), (vec![4, 5], [1, 1])] {
        ends.iter().for_each(|node| world.kill(*node));
        world.next_view();
        world.seconds(3);
        check(&world, &left);
    }
}

/// Directories make mirrors from mirrors, and a node that was told that a page is durable does not flush it again.
#[test]
fn a_page_whose_mirrors_all_went_at_once_has_two_again() {
    for id in [private(1, 0), shared(7)] {
        let mut world = World::new(5, |_| small(64));
        world.put(1, id, late(5), Class::Mirrored).unwrap();
        world.flush(1, id).unwrap();
        world.mirrors(id).into_iter().for_each(|(node, _)| world.kill(node));
        world.next_view();
        world.settle();
        world.seconds(2);
        assert_eq!(world.mirrors(id).len(), 2, "of {id:?}");
        world.forget(1, id);
        assert_eq!(world.read(1, id, late(5)).0, late(5));
    }
}

/// A node has a mirror of a page that it may write to, and has not written.
#[test]
fn mirrors_are_dropped_as_such_also_by_who_is_to_write() {
    let mut world = World::new(4, |_| small(64));
    let id = shared(0);
    world.put_shared(1, id, 1, Class::Mirrored).unwrap();
    world.flush(1, id).unwrap();
    let mirror = world.mirrors(id)[0].0;
    let stale = Err(PutError::Stale(Version(late(1))));
    assert_eq!(world.put_shared(mirror, id, 1, Class::Mirrored), stale);
    let (mut drop, view) = (world.record(mirror, HolderRole::Clean, id, late(1)), world.view);
    let count = world.mirrors(id).len();
    let another = if mirror == 2 { 3 } else { 2 };
    world.say((another, mirror), op::DROP, view, drop);
    assert_eq!(world.mirrors(id).len(), count, "the clean copy before it was meant");
    drop.holder.role = HolderRole::Mirror;
    world.say((another, mirror), op::DROP, view, drop);
    assert_eq!(world.mirrors(id).len(), count - 1);
}

/// The directory takes node 2 for a holder, and node 2 remembers that node 1 had the page.
#[test]
fn an_old_guess_that_who_asks_has_the_page_leads_nobody_round_in_a_circle() {
    let (mut world, disk) = with_disk(3, 64);
    let id = world.page_of(3);
    disk.pages.borrow_mut().insert(id, 1);
    assert_eq!(world.read(1, id, 1).1, Source::Backing);
    assert_eq!(world.read(2, id, 1).1, Source::Peer);
    (1..=2).for_each(|node| world.forget(node, id));
    world.seconds(1);
    let (record, view) = (world.record(2, HolderRole::Clean, id, 1), world.view);
    assert_eq!(world.say((2, 3), op::REGISTER, view, record), 0);
    disk.fails.set(true);
    assert_eq!(world.get(1, wanted(id, 1)).unwrap_err(), GetError::Backing(wire::Errno::EIO));
    assert_eq!(world.service(1).counters().misses.not_here, 1, "node 2 is not asked again");
}

/// Page 0 of node 1 is in two mirrors only, and both of them die.
fn lose_version_7(world: &mut World) {
    world.put(1, private(1, 0), 7, Class::Mirrored).unwrap();
    world.flush(1, private(1, 0)).unwrap();
    world.forget(1, private(1, 0));
    for (node, _) in world.mirrors(private(1, 0)) {
        world.kill(node);
    }
    world.next_view();
}

#[test]
fn the_loss_of_both_mirrors_is_an_error_that_says_so() {
    let mut world = World::new(4, |_| small(64));
    lose_version_7(&mut world);
    assert_eq!(world.get(1, wanted(private(1, 0), 7)).unwrap_err(), GetError::Lost(Version(7)));
    assert_eq!(world.get(1, wanted(private(1, 0), 0)).unwrap_err(), GetError::Lost(Version(7)));
    assert_eq!(world.service(1).counters().lost_pages, 1);
    // a newer version is another page
    world.put(1, private(1, 0), 8, Class::Volatile).unwrap();
    assert_eq!(world.read(1, private(1, 0), 8).0, 8);
}

#[test]
fn a_lost_version_is_not_replaced_by_the_one_on_disk() {
    let (mut world, disk) = with_disk(4, 64);
    disk.pages.borrow_mut().insert(private(1, 0), 6);
    lose_version_7(&mut world);
    assert_eq!(world.get(1, wanted(private(1, 0), 0)).unwrap_err(), GetError::Lost(Version(7)));
}

#[test]
fn without_nodes_for_its_mirrors_a_page_is_refused_in_the_end() {
    let mut world = World::new(2, |_| {
        let mut config = small(8);
        config.patience = Duration::from_millis(500);
        config
    });
    for index in 0..8 {
        world.put(1, private(1, index), 1, Class::Mirrored).unwrap();
    }
    let weak = service::Weak { have: 1, needed: 2 };
    assert_eq!(world.put(1, private(1, 8), 1, Class::Mirrored), Err(PutError::NoRoom(weak)));
    assert_eq!(world.flush(1, private(1, 0)), Err(weak));
    // nothing was given up for it
    assert!((0..8).all(|index| world.read(1, private(1, index), 1).0 == 1));
}

#[test]
fn dirty_pages_leave_by_their_class() {
    let (mut world, disk) = with_disk(5, 16);
    let classes = [Class::WriteBack, Class::Mirrored, Class::Volatile];
    for index in 0..64 {
        world.put(1, private(1, index), 1, classes[index as usize % 3]).unwrap();
    }
    for index in 0..64 {
        assert_eq!(world.read(1, private(1, index), 1).0, 1);
    }
    let counters = world.service(1).counters();
    assert!(counters.written_back >= 10 && counters.mirrors_made >= 50, "{counters:?}");
    assert!(disk.pages.borrow().keys().all(|id| id.index % 3 == 0));
}

#[test]
fn a_write_that_disk_refuses_keeps_its_page() {
    let (mut world, disk) = with_disk(2, 4);
    disk.fails.set(true);
    world.put(1, private(1, 0), 1, Class::WriteBack).unwrap();
    assert!(world.flush(1, private(1, 0)).is_err());
    assert_eq!(world.read(1, private(1, 0), 1).1, Source::Local);
    disk.fails.set(false);
    world.flush(1, private(1, 0)).unwrap();
    assert_eq!(disk.pages.borrow().get(&private(1, 0)), Some(&1));
}

#[test]
fn evicted_clean_pages_are_found_in_idle_memory() {
    let (mut world, disk) = with_disk(4, 64);
    world.seconds(2);
    for index in 0..150 {
        disk.pages.borrow_mut().insert(private(1, index), 1);
        assert_eq!(world.read(1, private(1, index), 1).1, Source::Backing);
    }
    world.seconds(1);
    let reads = disk.reads.get();
    // in an order that leads to no prefetch
    let order = (0..150).map(|at| wire::mix(at) % 150);
    let sources: Vec<Source> = order.map(|index| world.read(1, private(1, index), 1).1).collect();
    let peers = sources.iter().filter(|source| **source == Source::Peer).count();
    assert!(peers > 75, "{peers} of 150, {:?}", world.service(1).counters());
    assert!(disk.reads.get() - reads < 60);
    let counters = world.service(1).counters();
    assert!(counters.puts_stored > 80 && counters.swapped > 0, "{counters:?}");
}

#[test]
fn a_page_that_its_owner_takes_is_nowhere_else() {
    let (mut world, disk) = with_disk(3, 32);
    world.seconds(2);
    for index in 0..48 {
        disk.pages.borrow_mut().insert(private(1, index), 1);
        world.read(1, private(1, index), 1);
    }
    world.seconds(1);
    let away = (0..48)
        .find(|index| world.where_is(private(1, *index)).iter().any(|(node, ..)| *node != 1));
    let id = private(1, away.unwrap());
    assert_eq!(world.read(1, id, 1).1, Source::Peer);
    world.net.run(50);
    let places = world.where_is(id);
    assert_eq!(places.iter().map(|(node, ..)| *node).collect::<Vec<_>>(), [1], "{places:?}");
}

#[test]
fn freed_spaces_stay_freed() {
    let mut world = World::new(4, |_| small(64));
    let id = shared(0);
    world.put_shared(1, id, 1, Class::Mirrored).unwrap();
    world.flush(1, id).unwrap();
    let (service, other) = (world.service(1), world.service(2));
    world.run(2, async move { other.free(id.space).await }).unwrap();
    assert!(world.where_is(id).is_empty());
    for node in 1..=4 {
        assert_eq!(world.get(node, wanted(id, 0)).unwrap_err(), GetError::Freed);
    }
    let (version, data) = (Version(late(2)), frame(&world.cx(1), id, 2));
    let put = world.run(1, async move { service.put(id, version, Class::Volatile, data).await });
    assert_eq!(put, Err(PutError::Freed));
    // a node that comes later hears of it as well
    world.kill(3);
    world.next_view();
    world.revive(3);
    world.next_view();
    world.settle();
    assert_eq!(world.get(3, wanted(id, 0)).unwrap_err(), GetError::Freed);
}

#[test]
fn a_put_that_comes_after_the_free_brings_nothing_back() {
    let mut world = World::new(4, |_| small(64));
    // one packet in five is late by up to 40 turns
    let mut random = 1u64;
    world.net.fate = Box::new(move |_| {
        random = wire::mix(random);
        (1, if random.is_multiple_of(5) { (random >> 8) as usize % 40 } else { 0 })
    });
    for round in 0..30 {
        let id = PageId { space: SpaceId::private(NodeId(1), 100 + round), index: 0 };
        world.put(1, id, 1, Class::Mirrored).unwrap();
        let (flusher, service) = (world.service(1), world.service(1));
        let flushed = world.start(1, async move { flusher.flush(id).await });
        world.net.run(round as usize % 7);
        world.run(1, async move { service.free(id.space).await }).unwrap();
        world.net.until(|| flushed.borrow().is_some());
        world.net.run(200);
        assert!(world.where_is(id).is_empty(), "{:?}", world.where_is(id));
        let entries: usize =
            world.services.iter().map(|s| s.inspect(|_, directory| directory.len())).sum();
        assert_eq!(entries, 0, "round {round}");
    }
}

#[test]
fn one_node_writes_at_a_time() {
    let mut world = World::new(4, |_| small(64));
    let id = shared(3);
    for version in 1..=12 {
        let node = 1 + version as u16 % 4;
        world.put_shared(node, id, version, Class::Mirrored).unwrap();
        let reader = 1 + (version as u16 + 1) % 4;
        assert_eq!(world.read(reader, id, 0).0, late(version), "what is written last is read");
        assert_eq!(
            world.put_shared(node, id, version, Class::Mirrored),
            Err(PutError::Stale(Version(late(version))))
        );
    }
    let older = world.put_shared(2, id, 4, Class::Mirrored);
    assert!(matches!(older, Err(PutError::Stale(_))), "{older:?}");
}

#[test]
fn a_lease_survives_another_directory() {
    let mut world = World::new(5, |_| small(64));
    let homes: Vec<u16> = (0..640).map(|index| world.primary(shared(index))).collect();
    let index = homes.iter().position(|home| *home == 5).unwrap() as u64;
    world.put_shared(1, shared(index), 1, Class::Mirrored).unwrap();
    world.kill(5);
    world.next_view();
    // the new directory knows who writes: what is not durable yet is not overwritten unseen
    assert_eq!(world.read(2, shared(index), 0).0, late(1));
    world.put_shared(2, shared(index), 2, Class::Mirrored).unwrap();
    assert_eq!(world.read(1, shared(index), 0).0, late(2));
}

#[test]
fn a_writer_that_dies_frees_its_lease() {
    let mut world = World::new(4, |_| small(64));
    let homes: Vec<u16> = (0..640).map(|index| world.primary(shared(index))).collect();
    let id = shared(homes.iter().position(|home| ![1, 2].contains(home)).unwrap() as u64);
    world.put_shared(1, id, 3, Class::Mirrored).unwrap();
    world.flush(1, id).unwrap();
    world.kill(1);
    world.next_view();
    assert_eq!(world.read(2, id, late(3)).0, late(3));
    world.put_shared(2, id, 4, Class::Mirrored).unwrap();
    assert_eq!(world.read(3, id, late(4)).0, late(4));
}

#[test]
fn a_slow_peer_is_not_waited_for_where_disk_has_the_page() {
    let (mut world, disk) = with_disk(3, 64);
    let homes: Vec<u16> = (0..640).map(|index| world.primary(shared(index))).collect();
    let id = shared(homes.iter().position(|home| *home == 3).unwrap() as u64);
    disk.pages.borrow_mut().insert(id, 1);
    world.read(3, id, 1);
    world.net.run(50);
    // every packet takes 200 turns from now on
    world.net.fate = Box::new(|_| (1, 200));
    let start = world.net.now;
    assert_eq!(world.read(1, id, 1).1, Source::Backing);
    assert!(world.net.now.since(start) < Duration::from_millis(40));
    let counters = world.service(1).counters();
    assert_eq!((counters.hedges, counters.hedges_won), (1, 1));
    // both answers arrive, and the late one changes nothing
    world.net.fate = Box::new(|_| (1, 0));
    world.net.run(600);
    assert_eq!(world.read(1, id, 1).1, Source::Local);
    assert!(world.services.iter().all(Service::is_consistent));
}

#[test]
fn a_refused_page_is_offered_once_more_and_then_dropped() {
    // nodes 2 and 3 have nothing to lend: all they have is guaranteed to themselves, and full
    let (mut world, disk) = with_disk(3, 16);
    world.seconds(2);
    for index in 0..200 {
        disk.pages.borrow_mut().insert(private(1, index), 1);
        disk.pages.borrow_mut().insert(private(2, index), 1);
        disk.pages.borrow_mut().insert(private(3, index), 1);
        world.read(1, private(1, index), 1);
        world.read(2, private(2, index), 1);
        world.read(3, private(3, index), 1);
    }
    world.seconds(1);
    let counters = world.service(1).counters();
    assert!(counters.dropped > 0, "{counters:?}");
    assert_eq!(counters.puts_sent, counters.puts_stored + counters.refused.total());
    assert!(world.services.iter().all(Service::is_consistent));
}

#[test]
fn epochs_are_planned_by_one_and_known_to_all() {
    let mut world = World::new(5, |_| small(64));
    world.seconds(5);
    let numbers: Vec<u32> = (1..=5).map(|node| world.service(node).epoch().number).collect();
    assert!(
        numbers.iter().all(|number| *number >= 3 && number.abs_diff(numbers[0]) <= 1),
        "{numbers:?}"
    );
    let planned: u64 = (1..=5).map(|node| world.service(node).counters().epochs_planned).sum();
    assert!(planned <= u64::from(numbers[0]) + 2, "{planned}");
    let initiator = world.service(1).epoch().next.0;
    world.kill(initiator);
    world.next_view();
    let other = if initiator == 1 { 2 } else { 1 };
    let before = world.service(other).epoch().number;
    world.seconds(5);
    assert!(world.service(other).epoch().number >= before + 3, "another one plans");
}
