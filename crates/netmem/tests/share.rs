//! A node that lends less while it runs: what leaves, in which order, and that nothing promised is lost by it.

use crate::world::*;
use netmem::service::{PutError, Share};
use netmem::*;
use std::time::Duration;

/// `count` pages of node 1, which it has and two mirrors.
fn written(world: &mut World, count: u64) {
    for index in 0..count {
        world.put(1, private(1, index), 3, Class::Mirrored).unwrap();
        world.flush(1, private(1, index)).unwrap();
    }
}

/// As [`written`], and only the mirrors have them.
fn mirrored(world: &mut World, count: u64) {
    written(world, count);
    (0..count).for_each(|index| world.forget(1, private(1, index)));
}

/// Runs for so many milliseconds, and looks at every page in each of them.
fn watch(world: &mut World, turns: usize, pages: &[PageId]) {
    for _ in 0..turns {
        world.net.run(1);
        for id in pages {
            assert!(world.mirrors(*id).len() >= 2, "{id} has its mirrors at every moment");
        }
    }
}

fn over(world: &World, node: u16) -> usize {
    world.service(node).share().over
}

#[test]
fn mirrors_have_another_copy_elsewhere_before_their_frames_go() {
    let mut world = World::new(5, |_| small(64));
    mirrored(&mut world, 24);
    let pages: Vec<PageId> = (0..24).map(|index| private(1, index)).collect();
    let before = world.service(2).counts().mirror;
    assert!(before > 4, "{before}");
    world.service(2).set_share(2 * PAGE);
    assert_eq!(over(&world, 2), (before as usize - 2) * PAGE);
    watch(&mut world, 2000, &pages);
    assert_eq!((over(&world, 2), world.service(2).counts().mirror), (0, 2));
    assert_eq!(world.service(2).counters().handed_on, u64::from(before) - 2);
    // the directory, the other directory and the writer know: any one node may go now
    world.kill(3);
    world.next_view();
    world.seconds(2);
    assert!(pages.iter().all(|id| world.mirrors(*id).len() == 2));
    assert!((0..24).all(|index| world.read(1, private(1, index), 3).0 == 3));
}

#[test]
fn mirrors_of_shared_pages_go_elsewhere_and_their_writer_may_die() {
    let mut world = World::new(5, |_| small(64));
    let pages: Vec<PageId> = (0..24).map(shared).collect();
    for id in &pages {
        world.put_shared(1, *id, 1, Class::Mirrored).unwrap();
        world.flush(1, *id).unwrap();
    }
    world.service(3).set_share(PAGE);
    watch(&mut world, 2000, &pages);
    assert_eq!(over(&world, 3), 0);
    world.kill(1);
    world.next_view();
    assert!(pages.iter().all(|id| world.read(2, *id, 1).0 == late(1)));
}

#[test]
fn what_finds_no_room_elsewhere_stays_and_is_told() {
    let mut world = World::new(4, |_| small(64));
    world.give_up(4);
    written(&mut world, 8);
    world.service(2).set_share(PAGE);
    world.seconds(3);
    let share = Share { most: 64 * PAGE, bytes: PAGE, over: 7 * PAGE, returned: 0 };
    assert_eq!(world.service(2).share(), share, "the only other node has the other mirrors");
    assert!((0..8).all(|index| world.mirrors(private(1, index)).len() == 2));
    world.come_back(4);
    world.seconds(4);
    assert_eq!(over(&world, 2), 0);
    // its writer counts those mirrors that there are now
    (0..8).for_each(|index| world.forget(1, private(1, index)));
    world.kill(3);
    world.next_view();
    assert!((0..8).all(|index| world.read(1, private(1, index), 3).0 == 3));
}

#[test]
fn clean_pages_go_first_and_nothing_new_comes_in_before() {
    let (mut world, disk) = with_disk(3, 64);
    for index in 0..40 {
        disk.pages.borrow_mut().insert(private(2, index), 1);
        world.read(2, private(2, index), 1);
    }
    world.service(2).set_share(16 * PAGE);
    assert_eq!(world.service(2).digest().free, 0);
    let share = world.service(2).share();
    assert_eq!((share.bytes, share.over), (16 * PAGE, 24 * PAGE));
    world.seconds(1);
    let counts = world.service(2).counts();
    assert!(counts.own() <= 16 && over(&world, 2) == 0, "{counts:?}");
    assert_eq!((counts.withheld, counts.total()), (48, 64));
    for index in 0..40 {
        world.read(2, private(2, index), 1);
        assert!(world.service(2).used_bytes() <= 16 * PAGE);
    }
    world.service(2).set_share(usize::MAX);
    assert_eq!(world.service(2).share(), Share { bytes: 64 * PAGE, over: 0, ..share });
    assert!((0..40).all(|index| world.read(2, private(2, index), 1).0 == 1));
    assert!(world.service(2).counts().own() > 16, "it lends all of it again");
}

#[test]
fn a_nodes_own_dirty_pages_are_durable_before_they_go() {
    let mut world = World::new(4, |_| small(64));
    for index in 0..30 {
        world.put(1, private(1, index), 9, Class::Mirrored).unwrap();
    }
    world.service(1).set_share(4 * PAGE);
    world.seconds(2);
    assert!(over(&world, 1) == 0 && world.service(1).counts().own() <= 4);
    assert!((0..30).all(|index| world.read(1, private(1, index), 9).0 == 9));
}

#[test]
fn a_node_that_is_to_lend_less_takes_no_mirrors_meanwhile() {
    let mut world = World::new(3, |_| small(64));
    written(&mut world, 6);
    world.service(2).set_share(2 * PAGE);
    world.net.run(20);
    world.put(1, private(1, 90), 1, Class::Volatile).unwrap();
    world.flush(1, private(1, 90)).unwrap();
    assert_eq!(world.mirrors(private(1, 90)), [(3, 1)]);
    // a newer version of what is there takes the place of the older one
    world.put(1, private(1, 0), 4, Class::Mirrored).unwrap();
    world.flush(1, private(1, 0)).unwrap();
    assert_eq!(world.mirrors(private(1, 0)), [(2, 4), (3, 4)]);
}

/// A mirror of another node's page stays until the write in its place has succeeded.
#[test]
fn a_write_that_finds_no_room_leaves_the_mirror_that_it_would_replace() {
    let mut world = World::new(3, |_| {
        let mut config = small(64);
        config.patience = Duration::from_millis(500);
        config
    });
    for id in (0..8).map(shared) {
        world.put_shared(1, id, 1, Class::Mirrored).unwrap();
        world.flush(1, id).unwrap();
    }
    world.service(2).set_share(PAGE);
    let (service, id) = (world.service(2), shared(0));
    let data = frame(&world.cx(2), id, late(2));
    let put = async move { service.put(id, Version(late(2)), Class::Mirrored, data).await };
    let put = world.start(2, put);
    while put.borrow().is_none() {
        watch(&mut world, 1, &[id]);
    }
    assert!(matches!(put.take(), Some(Err(PutError::NoRoom(_)))));
}

/// Its directory does not answer for a while: the mirror stays, and goes later.
#[test]
fn without_a_word_of_the_directory_a_mirror_stays() {
    let mut world = World::new(5, |_| small(64));
    mirrored(&mut world, 10);
    let before = world.service(2).counts().mirror;
    world.net.fate = Box::new(|_| (0, 0));
    world.service(2).set_share(PAGE);
    world.net.run(400);
    assert_eq!(world.service(2).counts().mirror, before);
    world.net.fate = Box::new(|_| (1, 0));
    world.seconds(20);
    assert_eq!(over(&world, 2), 0);
    assert!((0..10).all(|index| world.mirrors(private(1, index)).len() == 2));
}

/// Answers are lost, and what was agreed is asked again or taken back: every mirror that is left is known.
#[test]
fn lost_answers_leave_no_mirror_that_nobody_knows() {
    for seed in 0..8 {
        let mut world = World::new(5, |_| small(64));
        mirrored(&mut world, 16);
        let mut random = seed;
        world.net.fate = Box::new(move |_| {
            random = wire::mix(random);
            (usize::from(!random.is_multiple_of(4)), 0)
        });
        world.service(2).set_share(PAGE);
        world.seconds(2);
        world.service(2).set_share(64 * PAGE);
        world.net.fate = Box::new(|_| (1, 0));
        world.seconds(20);
        for id in (0..16).map(|index| private(1, index)) {
            let mirrors = world.mirrors(id);
            let knows = |node: u16| {
                world.service(1).inspect(|_, directory| {
                    let holders = &directory.entry(id).unwrap().holders;
                    holders.iter().any(|holder| holder.node.0 == node)
                })
            };
            assert!(
                mirrors.len() >= 2 && mirrors.iter().all(|(node, _)| knows(*node)),
                "{seed} {id}"
            );
        }
    }
}

/// A view changes in the middle, again and again: whichever node is asked when, the pages have mirrors enough.
#[test]
fn views_that_change_meanwhile_cost_nothing() {
    for delay in 0..20 {
        let mut world = World::new(5, |_| small(64));
        mirrored(&mut world, 12);
        world.service(2).set_share(PAGE);
        world.net.run(delay);
        world.kill(4);
        world.next_view();
        world.seconds(3);
        assert!((0..12).all(|index| world.mirrors(private(1, index)).len() >= 2), "delay {delay}");
        world.kill(3);
        world.next_view();
        assert!((0..12).all(|index| world.read(1, private(1, index), 3).0 == 3), "delay {delay}");
    }
}

#[test]
fn the_minimum_of_the_nodes_own_shrinks_with_the_rest() {
    let mut memory = Memory::new(MemoryConfig { frames: 40, local_min: 20, counts_uses: false });
    let now = wire::Time::ZERO + Duration::from_secs(1);
    for index in 0..40 {
        let arrival = Arrival { id: private(1, index), version: Version(1), ..Arrival::default() };
        memory.install(now, arrival).unwrap();
    }
    memory.resize(10);
    assert_eq!((memory.size(), memory.counts().withheld), (10, 0));
    let mut gone = 0;
    while let Some(frame) = memory.poll_spare(now) {
        memory.release(frame).unwrap();
        gone += 1;
    }
    assert_eq!((gone, memory.counts().own(), memory.counts().withheld), (35, 5, 30));
    memory.resize(40);
    assert_eq!((memory.counts().free, memory.counts().withheld), (35, 0));
}
