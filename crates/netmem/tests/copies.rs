//! Copies and mirrors that must not be read any more: each holder is told, whatever happens meanwhile.

use crate::world::*;
use netmem::protocol::{Get, Message, Stale, op};
use netmem::service::{PutError, Source};
use netmem::*;
use node::Call;
use std::time::Duration;
use wire::{NodeId, Time};

/// Node 1 writes version 2 of a page, and what a node reads long after is that.
fn check_seen(world: &mut World, node: u16, id: PageId) {
    check_seen_after(10, world, node, id);
}

fn check_seen_after(seconds: usize, world: &mut World, node: u16, id: PageId) {
    world.put_shared(1, id, 2, Class::WriteBack).unwrap();
    world.flush(1, id).unwrap();
    world.seconds(seconds);
    assert_eq!(world.read(node, id, 0).0, late(2), "{id} is at {:?}", world.where_is(id));
}

/// Version 1 is on disk, and these nodes have read it.
fn read_by(world: &mut World, disk: &Disk, id: PageId, nodes: &[u16]) {
    disk.pages.borrow_mut().insert(id, late(1));
    for node in nodes {
        assert_eq!(world.read(*node, id, 0).0, late(1));
        world.seconds(1);
    }
}

/// Other pages push a page's entry out of node 3's directory.
fn crowd_out(world: &mut World, disk: &Disk, id: PageId) {
    // in no order that leads to a prefetch
    let others = (1..).map(|at| world.pages_of(3, wire::mix(at) % 100_000).next().unwrap());
    for other in others.take(16).collect::<Vec<_>>() {
        disk.pages.borrow_mut().insert(other, late(1));
        world.read(2, other, 0);
        world.net.run(20);
    }
    assert!(world.service(3).inspect(|_, directory| directory.entry(id).is_none()));
}

/// Nodes 1 to 5, and a page with one of `directories` that node 3, which is down, has no part in.
fn without_node_3(directories: [u16; 2]) -> (World, Disk, PageId) {
    let (mut world, disk) = with_disk(5, 64);
    world.kill(3);
    world.next_view();
    world.settle();
    let id = (0..).map(shared).find(|id| directories.contains(&world.primary(*id))).unwrap();
    disk.pages.borrow_mut().insert(id, late(1));
    (world, disk, id)
}

#[test]
fn a_directory_gives_up_its_own_copy_for_a_writer() {
    let (mut world, disk) = with_disk(4, 64);
    let id = world.page_of(3);
    disk.pages.borrow_mut().insert(id, late(1));
    assert_eq!(world.read(3, id, 0), (late(1), Source::Backing));
    world.seconds(1);
    check_seen_after(1, &mut world, 3, id);
}

/// Its directory was told that it is gone.
#[test]
fn a_copy_that_came_back_while_it_left_is_known() {
    let (mut world, disk) = with_disk(4, 32);
    world.seconds(2);
    // in an order that leads to no prefetch
    let all: Vec<PageId> = (0..48).map(|at| shared(wire::mix(at) % 10_000)).collect();
    let is_here =
        |world: &World, id: PageId| world.service(2).inspect(|memory, _| memory.find(id).is_some());
    let taken_back = |world: &World| world.service(2).counters().taken_back;
    let mut back = Vec::new();
    for (at, id) in all.iter().enumerate() {
        disk.pages.borrow_mut().insert(*id, late(1));
        let here: Vec<_> = all[..at].iter().filter(|id| is_here(&world, **id)).collect();
        world.read(2, *id, 0);
        if let Some(gone) = here.into_iter().find(|id| !is_here(&world, **id)) {
            let before = taken_back(&world);
            world.read(2, *gone, 0);
            back.extend((taken_back(&world) > before).then_some(*gone));
        }
    }
    world.seconds(1);
    back.retain(|id| is_here(&world, *id));
    assert!(back.len() > 4, "{} came back and stayed", back.len());
    for id in back {
        world.put_shared(1, id, 2, Class::WriteBack).unwrap();
        world.flush(1, id).unwrap();
        world.net.run(20);
        assert_eq!(world.read(2, id, 0).0, late(2), "{id}");
    }
}

#[test]
fn a_copy_that_its_directory_did_not_hear_of_goes() {
    let (mut world, disk) = with_disk(4, 64);
    let id = world.page_of(3);
    disk.pages.borrow_mut().insert(id, late(1));
    assert_eq!(world.read(4, id, 0), (late(1), Source::Backing));
    world.seconds(1);
    assert_eq!(world.read(2, id, 0), (late(1), Source::Peer));
    world.seconds(1);
    world.forget(2, id);
    world.seconds(1);
    world.net.cut = Some(NodeId(3));
    // it guesses who has the page
    assert_eq!(world.read(2, id, 0), (late(1), Source::Peer));
    assert!(world.where_is(id).iter().any(|(node, ..)| *node == 2));
    world.seconds(4);
    world.net.cut = None;
    check_seen_after(1, &mut world, 2, id);
}

/// The holder that is told to drop it has not, and is told again.
#[test]
fn a_page_that_is_just_being_written_is_dropped_afterwards() {
    let (mut world, disk) = with_disk(3, 64);
    let id = private(1, 0);
    world.put(1, id, 1, Class::WriteBack).unwrap();
    disk.delay.set(Duration::from_secs(1));
    let service = world.service(1);
    let flushed = world.start(1, async move { service.flush(id).await });
    world.net.run(5);
    let (record, view) = (world.record(1, HolderRole::Clean, id, 1), world.view);
    let drop = |world: &mut World| world.say((2, 1), op::DROP, view, record) == 0;
    assert!(!drop(&mut world) && world.where_is(id).len() == 1);
    world.net.until(|| flushed.borrow().is_some());
    assert!(drop(&mut world) && world.where_is(id).is_empty());
}

#[test]
fn a_copy_for_which_its_directory_has_no_entry_goes() {
    let (mut world, disk) = with_directories(4, 64, 8);
    let id = world.page_of(3);
    for index in 0..8 {
        world.put(3, private(3, index), 1, Class::Mirrored).unwrap();
        world.flush(3, private(3, index)).unwrap();
    }
    read_by(&mut world, &disk, id, &[2]);
    check_seen(&mut world, 2, id);
}

/// More copies than an entry can name.
mod crowded {
    use super::*;

    #[test]
    fn all_who_have_a_copy_hear_that_its_entry_is_forgotten() {
        let (mut world, disk) = with_directories(7, 64, 8);
        let id = world.page_of(3);
        read_by(&mut world, &disk, id, &[2, 4, 5, 6, 7]);
        crowd_out(&mut world, &disk, id);
        world.seconds(1);
        check_seen(&mut world, 7, id);
    }

    #[test]
    fn a_directory_does_not_forget_the_copy_of_its_own_that_it_cannot_name() {
        let (mut world, disk) = with_disk(6, 64);
        let id = world.page_of(3);
        read_by(&mut world, &disk, id, &[2, 4, 5, 6, 3]);
        [2, 4, 5, 6].into_iter().for_each(|node| world.forget(node, id));
        world.seconds(1);
        check_seen(&mut world, 3, id);
    }

    #[test]
    fn a_copy_is_remembered_when_the_last_node_that_is_named_dies() {
        let (mut world, disk) = with_disk(7, 64);
        let id = world.page_of(3);
        read_by(&mut world, &disk, id, &[2, 4, 5, 6, 7]);
        [2, 4, 5].into_iter().for_each(|node| world.forget(node, id));
        world.seconds(1);
        world.kill(6);
        world.next_view();
        world.settle();
        assert_eq!(world.read(1, id, 0).0, late(1), "and nobody takes it for lost");
        check_seen(&mut world, 7, id);
    }

    #[test]
    fn after_a_write_nobody_is_asked_who_need_not_be() {
        let (mut world, disk) = with_disk(7, 64);
        let id = world.page_of(3);
        read_by(&mut world, &disk, id, &[2, 4, 5, 6, 7]);
        let is_crowded = |world: &World| {
            let look = |_: &Memory, directory: &Directory| directory.entry(id).map(|e| e.crowded);
            world.service(3).inspect(look)
        };
        assert_eq!(is_crowded(&world), Some(true));
        world.put_shared(1, id, 2, Class::Mirrored).unwrap();
        assert_eq!(is_crowded(&world), None);
    }
}

/// Node 4 was told by node 2 that it does not have the page, and node 2 has it again when the directory hears of that.
#[test]
fn a_copy_that_came_again_before_it_was_missed_goes() {
    let (mut world, disk) = with_disk(4, 64);
    let id = world.page_of(3);
    read_by(&mut world, &disk, id, &[2]);
    let (node, incarnation) = (NodeId(2), world.incarnations[1]);
    let stale = Stale { node, incarnation, version: Version(late(1)) };
    let get = Get { stale: Some(stale), ..Get::new(id, Version(late(1)), 4096, NodeId(4)) };
    let (cx, body) = (world.cx(4), get.encode());
    let mut into = cx.pieces();
    into.extend(cx.frames().alloc_exact(PAGE));
    let (to, channel, data) = (NodeId(3), wire::Channel::MEMORY, cx.pieces());
    let (op, once, deadline, body) = (op::GET, false, None, &body);
    let asked = cx.call(Call { to, channel, op, once, deadline, body, data, trailer: &[], into });
    world.run(4, asked).unwrap();
    world.seconds(1);
    check_seen(&mut world, 2, id);
}

/// A new directory hears who has copies before it hears who writes.
#[test]
fn copies_that_were_heard_of_before_a_lease_is_claimed_go() {
    let (mut world, disk) = with_disk(5, 64);
    let left: Vec<Member> = (1..5).map(|node| Member { node: NodeId(node), weight: 100 }).collect();
    let after = Slots::new(&left).unwrap();
    let moves = |id: &PageId| [3, 4].contains(&after.homes(*id).primary.0);
    let id = (0..).map(shared).find(|id| world.primary(*id) == 5 && moves(id)).unwrap();
    disk.pages.borrow_mut().insert(id, late(1));
    world.put_shared(1, id, 2, Class::WriteBack).unwrap();
    world.kill(5);
    world.net.cut = Some(NodeId(1));
    world.next_view();
    world.net.run(10);
    let (service, cx) = (world.service(2), world.cx(2));
    assert!(service.insert(id, Version(late(1)), frame(&cx, id, late(1))));
    world.net.run(20);
    world.net.cut = None;
    world.settle();
    world.flush(1, id).unwrap();
    world.seconds(10);
    assert_eq!(world.read(2, id, 0).0, late(2), "{:?}", world.where_is(id));
}

#[test]
fn what_was_read_before_the_first_view_is_not_kept() {
    let (mut world, _, id) = without_node_3([2, 4]);
    world.revive(3);
    assert_eq!(world.read(3, id, 0), (late(1), Source::Backing));
    check_seen(&mut world, 3, id);
    world.kill(1);
    world.next_view();
    world.settle();
    assert_eq!((world.read(5, id, 0).0, world.read(3, id, 0).0), (late(2), late(2)));
}

#[test]
fn what_was_read_between_two_lives_is_not_kept() {
    let (mut world, disk) = with_disk(5, 64);
    let id = (0..).map(shared).find(|id| [2, 4].contains(&world.primary(*id))).unwrap();
    disk.pages.borrow_mut().insert(id, late(1));
    world.service(3).set_lease(world.incarnations[2], world.net.now);
    world.give_up(3);
    world.service(3).follow(world.up());
    assert_eq!(world.read(3, id, 0), (late(1), Source::Backing));
    world.put_shared(1, id, 2, Class::WriteBack).unwrap();
    world.flush(1, id).unwrap();
    world.kill(1);
    world.next_view();
    world.settle();
    world.come_back(3);
    world.service(3).set_lease(world.incarnations[2], Time::NEVER);
    assert_eq!((world.read(5, id, 0).0, world.read(3, id, 0).0), (late(2), late(2)));
}

/// The page's last writer is down, and its directory knows nothing of it any more.
#[test]
fn what_a_read_brings_that_began_in_another_view_is_not_kept() {
    let (mut world, disk) = with_disk(5, 64);
    let id = (0..).map(shared).find(|id| ![1, 2].contains(&world.primary(*id))).unwrap();
    disk.pages.borrow_mut().insert(id, late(1));
    disk.delay.set(Duration::from_secs(3));
    let reader = world.service(2);
    let got = world.start(2, async move { reader.get(wanted(id, 0)).await });
    world.net.run(100);
    disk.delay.set(Duration::from_millis(5));
    world.put_shared(1, id, 2, Class::WriteBack).unwrap();
    world.flush(1, id).unwrap();
    world.kill(1);
    world.next_view();
    world.settle();
    world.seconds(4);
    let got = got.take().unwrap().unwrap();
    assert_eq!(got.version, Version(late(1)), "as it was when it was asked for");
    assert_eq!(world.read(2, id, 0).0, late(2));
}

/// Reports and invalidations that are lost for want of a frame.
mod without_frames {
    use super::*;

    /// Node 2 has copies of two pages of node 3's directory of which that has not heard, and so many frames are left.
    fn copies_without_frames(world: &mut World, pages: &[PageId], left: usize) {
        let cx = world.cx(2);
        for id in pages {
            assert!(world.service(2).insert(*id, Version(late(1)), frame(&cx, *id, late(1))));
        }
        let mut frames = Vec::new();
        while let Some(frame) = cx.frames().alloc_exact(PAGE) {
            frames.push(frame);
        }
        frames.truncate(frames.len() - left);
        world.net.run(10);
    }

    fn two_pages(world: &World, disk: &Disk) -> Vec<PageId> {
        let pages: Vec<PageId> = world.pages_of(3, 0).take(2).collect();
        disk.pages.borrow_mut().extend(pages.iter().map(|id| (*id, late(1))));
        pages
    }

    #[test]
    fn copies_that_could_not_be_told_of_go() {
        let (mut world, disk) = with_disk(4, 64);
        let pages = two_pages(&world, &disk);
        copies_without_frames(&mut world, &pages, 0);
        world.seconds(1);
        check_seen(&mut world, 2, pages[0]);
    }

    #[test]
    fn copies_of_which_no_answer_could_be_heard_go() {
        let (mut world, disk) = with_disk(4, 64);
        let pages = two_pages(&world, &disk);
        world.put_shared(1, pages[0], 2, Class::WriteBack).unwrap();
        world.flush(1, pages[0]).unwrap();
        copies_without_frames(&mut world, &pages, 1);
        world.seconds(10);
        assert_eq!(world.read(2, pages[0], 0).0, late(2));
    }
}

/// Node 4 does not answer, and node 3 has more to tell it than can wait.
#[test]
fn what_one_node_is_not_told_keeps_nobody_else_from_hearing_that_his_copy_goes() {
    let (mut world, disk) = with_directories(4, 64, 8);
    let id = world.page_of(3);
    read_by(&mut world, &disk, id, &[2]);
    let mut theirs = world.pages_of(4, 1_000_000);
    world.net.cut = Some(NodeId(4));
    let (service, cx) = (world.service(3), world.cx(3));
    let mut insert = |count: usize| {
        for id in theirs.by_ref().take(count) {
            service.insert(id, Version(late(1)), frame(&cx, id, late(1)));
        }
    };
    for _ in 0..4 {
        insert(70);
        world.net.run(2);
    }
    insert(5000);
    assert!(service.counters().notices_lost > 0);
    crowd_out(&mut world, &disk, id);
    world.net.cut = None;
    world.seconds(10);
    check_seen(&mut world, 2, id);
}

/// Holders cannot detect outdated mirrors themselves.
#[test]
fn who_could_not_be_told_that_his_mirror_is_outdated_is_told_later() {
    let mut world = World::new(5, |_| small(64));
    let id = private(1, 0);
    world.put(1, id, 1, Class::Mirrored).unwrap();
    world.flush(1, id).unwrap();
    let away = world.mirrors(id)[0].0;
    world.net.cut = Some(NodeId(away));
    world.put(1, id, 2, Class::Mirrored).unwrap();
    world.flush(1, id).unwrap();
    world.seconds(4);
    assert!(world.mirrors(id).contains(&(away, 1)), "{:?}", world.mirrors(id));
    world.net.cut = None;
    world.seconds(4);
    let mirrors = world.mirrors(id);
    assert!(mirrors.len() == 2 && mirrors.iter().all(|(_, version)| *version == 2), "{mirrors:?}");
}

/// The same of a version that is on stable storage.
#[test]
fn who_could_not_be_told_that_his_mirror_is_none_is_told_later() {
    for views in 0..2 {
        let mut world = World::new(5, |_| small(64));
        let id = private(1, 0);
        world.put(1, id, 1, Class::Mirrored).unwrap();
        world.flush(1, id).unwrap();
        let away = world.mirrors(id)[0].0;
        world.net.cut = Some(NodeId(away));
        world.service(1).written(id, Version(1));
        world.seconds(3);
        assert_eq!(world.mirrors(id), [(away, 1)]);
        world.net.cut = None;
        for _ in 0..views {
            world.kill(if away == 5 { 4 } else { 5 });
            world.next_view();
            world.settle();
        }
        world.seconds(5);
        assert_eq!(world.mirrors(id), []);
    }
}

/// The mirrors of the version before are obsolete.
#[test]
fn mirrors_are_dropped_when_a_newer_version_is_on_stable_storage() {
    let (mut world, disk) = with_disk(5, 64);
    let (common, own) = (world.page_of(5), private(1, 0));
    world.put_shared(1, common, 1, Class::Mirrored).unwrap();
    world.flush(1, common).unwrap();
    world.put_shared(2, common, 2, Class::WriteBack).unwrap();
    world.flush(2, common).unwrap();
    world.put(1, own, 1, Class::Mirrored).unwrap();
    world.flush(1, own).unwrap();
    world.put(1, own, 2, Class::WriteBack).unwrap();
    world.flush(1, own).unwrap();
    world.seconds(2);
    assert_eq!((world.mirrors(common), world.mirrors(own)), (vec![], vec![]));
    assert_eq!(disk.pages.borrow().get(&common), Some(&late(2)));
    // the next writer writes nothing, and both of them go
    let refused = world.put_shared(3, common, 1, Class::WriteBack);
    assert_eq!(refused, Err(PutError::Stale(Version(late(2)))));
    assert_eq!(world.read(4, common, 0).0, late(2));
    [2, 3].into_iter().for_each(|node| world.kill(node));
    world.next_view();
    world.settle();
    assert_eq!(world.read(4, common, 0).0, late(2));
    world.forget(1, own);
    assert_eq!(world.read(1, own, 0).0, 2);
}

/// No other node may have what a node writes.
#[test]
fn what_a_writer_evicts_goes_nowhere() {
    let (mut world, disk) = with_disk(4, 32);
    world.seconds(2);
    let mine: Vec<PageId> = world.pages_of(1, 0).take(100).collect();
    for id in &mine {
        world.put_shared(1, *id, 1, Class::WriteBack).unwrap();
        world.flush(1, *id).unwrap();
    }
    world.seconds(1);
    assert!(world.service(1).counters().dropped > 32);
    assert_eq!(world.service(1).counters().puts_sent, 0);
    for id in &mine {
        assert!(world.where_is(*id).iter().all(|(node, ..)| *node == 1));
        assert_eq!(world.read(2, *id, 0).0, late(1));
    }
    assert!(disk.reads.get() > 32);
}
