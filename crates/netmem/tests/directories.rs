//! Mirrors that one directory of a page knows of, or has no place for, and the other one not.

use crate::world::*;
use netmem::protocol::{Message, MirrorAgain, No, PutReply, Record, op};
use netmem::*;
use node::Call;
use wire::NodeId;

/// Both directories name those who have mirrors, and no other node.
fn check_known(world: &World, id: PageId) {
    let mirrors: Vec<u16> = world.mirrors(id).iter().map(|(node, _)| *node).collect();
    for directory in [world.primary(id), world.backup(id)] {
        assert_eq!(world.named(directory, id), mirrors, "{directory} of {:?}", world.where_is(id));
    }
}

/// Tells a directory that nodes have mirrors, or not any more.
fn say_of(world: &mut World, what: u16, directory: u16, id: PageId, nodes: &[u16]) {
    for node in nodes {
        let record = world.record(*node, HolderRole::Mirror, id, late(1));
        let view = world.view;
        assert_eq!(world.say((*node, directory), what, view, Record { copies: 2, ..record }), 0);
    }
}

fn write(world: &mut World, id: PageId) -> Vec<u16> {
    world.put_shared(1, id, 1, Class::Mirrored).unwrap();
    world.flush(1, id).unwrap();
    world.mirrors(id).iter().map(|(node, _)| *node).collect()
}

fn slots(nodes: u16) -> Slots {
    let member = |node| Member { node: NodeId(node), weight: 100 };
    Slots::new(&(1..=nodes).map(member).collect::<Vec<_>>()).unwrap()
}

/// A page whose primary has a mirror of it and whose backup is node 8, with its mirrors. The next backup has none.
fn written_at_its_primary(world: &mut World) -> (PageId, Vec<u16>) {
    let (before, after) = (slots(8), slots(7));
    let moves = |id: &PageId| before.homes(*id).backup == Some(NodeId(8));
    for id in (0..).step_by(16).map(shared).filter(moves) {
        let mirrors = write(world, id);
        let next = after.homes(id).backup.unwrap().0;
        let others = [8, next].iter().all(|node| !mirrors.contains(node));
        if others && next != 1 && mirrors.contains(&before.homes(id).primary.0) {
            return (id, mirrors);
        }
    }
    unreachable!("some are")
}

/// Others tell the new backup before the primary does that it has one itself.
#[test]
fn a_mirror_that_the_backup_cannot_name_yet_stays_one() {
    let mut world = World::new(8, |_| small(64));
    let (id, mirrors) = written_at_its_primary(&mut world);
    let primary = world.primary(id);
    world.kill(8);
    world.view += 1;
    let view = world.up();
    let others = || (1..8).filter(|node| *node != primary);
    others().for_each(|node| world.service(node).follow(view.clone()));
    world.net.run(10);
    let backup = world.backup(id);
    let three: Vec<u16> = others().filter(|node| !mirrors.contains(node)).take(3).collect();
    say_of(&mut world, op::REGISTER, backup, id, &three);
    assert_eq!(world.named(backup, id).len(), 4);
    world.service(primary).follow(view);
    world.settle();
    world.seconds(1);
    assert_eq!(world.named(primary, id), mirrors, "as it was");
    assert_eq!(world.mirrors(id).len(), 2, "{:?}", world.where_is(id));
    say_of(&mut world, op::UNREGISTER, backup, id, &three);
    world.seconds(1);
    check_known(&world, id);
}

/// A directory that is not reached hears of other mirrors first than the other one did.
#[test]
fn of_more_mirrors_than_directories_can_name_both_keep_the_same() {
    for away in [true, false] {
        let mut world = World::new(11, |_| small(64));
        let id = (0..).map(shared).find(|id| world.primary(*id) != 1 && world.backup(*id) != 1);
        let id = id.unwrap();
        write(&mut world, id);
        world.put_shared(1, id, 2, Class::Mirrored).unwrap();
        let cut = if away { world.primary(id) } else { world.backup(id) };
        world.net.cut = Some(NodeId(cut));
        let service = world.service(1);
        let flushed = world.start(1, async move { service.flush(id).await });
        world.seconds(6);
        let newer = |world: &World| world.mirrors(id).iter().filter(|m| m.1 == late(2)).count();
        assert!(newer(&world) > 4, "{:?}", world.where_is(id));
        world.net.cut = None;
        for _ in 0..5_000 {
            world.net.run(1);
            assert!(newer(&world) >= 2, "{:?}", world.where_is(id));
        }
        assert_eq!(flushed.take(), Some(Ok(())));
        check_known(&world, id);
    }
}

/// Else nothing would be made in the place of a mirror that is gone.
#[test]
fn a_node_that_has_no_mirror_says_so_until_both_directories_have_heard() {
    let mut world = World::new(6, |_| small(64));
    let id = (0..).map(shared).find(|id| world.primary(*id) != 1 && world.backup(*id) != 1);
    let id = id.unwrap();
    let (primary, backup) = (world.primary(id), world.backup(id));
    let none = (2..7).find(|node| ![primary, backup].contains(node)).unwrap();
    [primary, backup].into_iter().for_each(|d| say_of(&mut world, op::REGISTER, d, id, &[none]));
    world.net.cut = Some(NodeId(backup));
    let avoid = [NodeId::default(); 4];
    let body = MirrorAgain { id, version: Version(late(1)), copies: 2, avoid }.encode();
    let cx = world.cx(1);
    let (to, channel, once, deadline) = (NodeId(none), wire::Channel::MEMORY, true, None);
    let (op, data, into) = (op::MIRROR_AGAIN, cx.pieces(), cx.pieces());
    let body = &body;
    let asked = cx.call(Call { to, channel, op, once, deadline, body, data, trailer: &[], into });
    let reply = world.run(1, asked).unwrap();
    assert_eq!(PutReply::decode(&reply.body).unwrap().stored, Err(No::NotHere));
    world.seconds(3);
    assert_eq!((world.named(primary, id), world.named(backup, id)), (vec![], vec![none]));
    world.net.cut = None;
    world.seconds(3);
    assert_eq!(world.named(backup, id), []);
}

/// Its holder drops it when it hears of the owner's new incarnation, and says nothing of it: there is no entry to be
/// left.
#[test]
fn mirrors_of_an_owners_earlier_life_are_not_registered() {
    let mut world = World::new(4, |_| small(64));
    let id = private(1, 0);
    world.kill(1);
    world.next_view();
    world.settle();
    world.revive(1);
    world.next_view();
    world.settle();
    let backup = world.backup(id);
    let holder = (2..5).find(|node| *node != backup).unwrap();
    let record = world.record(holder, HolderRole::Mirror, id, 7);
    for (view, named) in [(world.view - 1, vec![]), (world.view, vec![holder])] {
        assert_eq!(world.say((holder, backup), op::REGISTER, view, record), 0);
        assert_eq!(world.named(backup, id), named);
    }
}
