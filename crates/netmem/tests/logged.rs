//! One mirror and a log on the node that wrote the page: either may go, and the other makes up for it.

use crate::world::*;
use netmem::service::{GetError, Source};
use netmem::*;

const LOGGED: Class = Class::MirroredAndLogged;

/// Node 1 has written a page, made it durable, and has it in memory no more. Its only mirror.
fn write_and_leave(world: &mut World, id: PageId) -> u16 {
    world.put(1, id, late(1), LOGGED).unwrap();
    world.flush(1, id).unwrap();
    world.forget(1, id);
    let [(mirror, _)] = world.mirrors(id)[..] else { panic!("{:?}", world.mirrors(id)) };
    mirror
}

fn lose(world: &mut World, node: u16) {
    world.kill(node);
    world.next_view();
    world.settle();
}

fn deficit(world: &World) -> u64 {
    let services = (1..=world.services.len() as u16).filter(|node| !world.down.contains(node));
    services.map(|node| world.service(node).counters().durable_deficit_pages).sum()
}

/// First the mirror goes, with the page in no frame of its writer's, and then the log.
#[test]
fn a_page_survives_its_mirror_and_then_the_node_of_its_log() {
    let (mut world, disk) = with_disk(6, 64);
    let id = (0..).map(shared).find(|id| ![1, 2].contains(&world.primary(*id))).unwrap();
    let mirror = write_and_leave(&mut world, id);
    let reader = if mirror == 2 { 3 } else { 2 };
    lose(&mut world, mirror);
    assert_eq!(world.read(reader, id, late(1)).0, late(1), "from memory or from the log");
    world.seconds(2);
    let mirrors = world.mirrors(id);
    assert!(mirrors.len() == 1 && mirrors[0].0 != mirror, "{mirrors:?}");
    assert_eq!((deficit(&world), disk.logged(1, id)), (0, Some(late(1))));
    lose(&mut world, 1);
    let reader = (2..7).find(|node| ![mirror, mirrors[0].0].contains(node)).unwrap();
    assert_eq!(world.read(reader, id, late(1)), (late(1), Source::Peer));
    world.seconds(2);
    assert_eq!((world.mirrors(id).len(), deficit(&world)), (2, 0), "a mirror in the log's place");
    let lost: u64 =
        (2..7).filter(|n| *n != mirror).map(|n| world.service(n).counters().lost_pages).sum();
    assert_eq!(lost, 0);
}

/// It would be a clean page without a copy anywhere.
#[test]
fn a_page_that_is_read_back_from_the_log_is_as_durable_as_before() {
    let (mut world, disk) = with_disk(4, 64);
    let id = private(1, 0);
    let mirror = write_and_leave(&mut world, id);
    lose(&mut world, mirror);
    assert_eq!(world.read(1, id, late(1)), (late(1), Source::Backing));
    world.seconds(2);
    let (class, durability, durable) = world.service(1).inspect(|memory, _| {
        let page = memory.page(memory.find(id).unwrap()).unwrap();
        (page.class, page.durability, page.is_durable())
    });
    assert_eq!((class, durability, durable), (LOGGED, Durability::Dirty { copies: 2 }, true));
    assert_eq!((world.mirrors(id).len(), deficit(&world)), (1, 0));
    // and so once more
    world.forget(1, id);
    let mirror = world.mirrors(id)[0].0;
    lose(&mut world, mirror);
    assert_eq!(world.read(1, id, late(1)).0, late(1));
    assert_eq!(disk.logged(1, id), Some(late(1)));
}

#[test]
fn without_its_mirror_and_with_a_log_that_rots_a_page_is_lost_and_said_to_be() {
    let (mut world, disk) = with_disk(4, 64);
    let id = private(1, 0);
    let mirror = write_and_leave(&mut world, id);
    disk.rots.set(true);
    lose(&mut world, mirror);
    world.seconds(2);
    let lost = GetError::Lost(Version(late(1)));
    assert_eq!(world.get(1, wanted(id, 0)).unwrap_err(), lost);
    assert_eq!(world.get(3, wanted(id, 0)).unwrap_err(), lost);
    assert_eq!(world.service(1).logged_pages(), 0);
    assert!(world.mirrors(id).is_empty(), "what is damaged goes nowhere");
}

/// A disk that does not answer is not one that has lost what it had.
#[test]
fn a_log_that_cannot_be_read_for_a_while_is_read_later() {
    let (mut world, disk) = with_disk(4, 64);
    let id = private(1, 0);
    let mirror = write_and_leave(&mut world, id);
    disk.fails.set(true);
    lose(&mut world, mirror);
    assert_eq!(world.get(3, wanted(id, 0)).unwrap_err(), GetError::Backing(wire::Errno::EIO));
    disk.fails.set(false);
    world.seconds(2);
    assert_eq!((world.mirrors(id).len(), deficit(&world)), (1, 0));
    assert_eq!(world.read(3, id, 0).0, late(1));
}

/// The mirror's node is up, as far as anybody knows, and does not answer.
#[test]
fn the_log_answers_for_a_mirror_that_is_silent() {
    let (mut world, _) = with_disk(4, 64);
    for id in [private(1, 0), shared(5)] {
        let mirror = write_and_leave(&mut world, id);
        world.net.cut = Some(wire::NodeId(mirror));
        assert_eq!(world.read(1, id, late(1)).0, late(1));
        world.net.cut = None;
    }
}

#[test]
fn a_log_has_nothing_of_what_was_written_elsewhere_or_freed() {
    let (mut world, disk) = with_disk(5, 64);
    write_and_leave(&mut world, shared(3));
    write_and_leave(&mut world, private(1, 3));
    assert_eq!(world.service(1).logged_pages(), 2);
    world.put_shared(2, shared(3), 2, LOGGED).unwrap();
    world.flush(2, shared(3)).unwrap();
    world.seconds(1);
    assert_eq!((disk.logged(1, shared(3)), disk.logged(2, shared(3))), (None, Some(late(2))));
    world
        .run(1, {
            let service = world.service(1);
            async move { service.free(private(1, 3).space).await }
        })
        .unwrap();
    assert_eq!((world.service(1).logged_pages(), disk.logged.borrow().len()), (0, 1));
    assert_eq!(world.read(4, shared(3), 0).0, late(2));
}

/// As what others had for it: a page of its own that it has in memory still is made durable again.
#[test]
fn a_node_that_was_given_up_has_nothing_in_its_log() {
    let (mut world, disk) = with_disk(4, 64);
    let (here, away) = (private(1, 0), private(1, 1));
    write_and_leave(&mut world, away);
    world.put(1, here, late(1), LOGGED).unwrap();
    world.flush(1, here).unwrap();
    world.give_up(1);
    world.come_back(1);
    assert_eq!(world.get(1, wanted(away, 0)).unwrap_err(), GetError::Lost(Version(late(1))));
    world.seconds(3);
    assert_eq!((disk.logged(1, here), disk.logged(1, away)), (Some(late(1)), None));
    assert_eq!(world.mirrors(here).len(), 1);
    assert_eq!(world.read(1, here, late(1)), (late(1), Source::Local));
}
