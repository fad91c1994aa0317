//! Pages that leave for other nodes while messages are late or lost: no node has one that its directory does not know,
//! or an older version than its writer has.

use crate::world::*;
use netmem::service::Source;
use netmem::*;

const FRAMES: u64 = 16;

/// A node whose frames are full of pages of its own that are on stable storage too; others have room.
fn full() -> (World, Disk) {
    let (mut world, disk) = with_disk(4, FRAMES as usize);
    world.seconds(2);
    (0..FRAMES).for_each(|index| read_from_disk(&mut world, &disk, index));
    (world, disk)
}

/// In an order that leads to no prefetch.
fn page(index: u64) -> PageId {
    private(1, wire::mix(index) % 10_000)
}

fn read_from_disk(world: &mut World, disk: &Disk, index: u64) {
    disk.pages.borrow_mut().insert(page(index), 1);
    assert_eq!(world.read(1, page(index), 1).1, Source::Backing);
}

/// The page that is not in node 1's memory.
fn left(world: &World) -> PageId {
    let here = |id: &PageId| world.service(1).inspect(|memory, _| memory.find(*id).is_some());
    (0..=FRAMES).map(page).find(|id| !here(id)).unwrap()
}

/// Copies at other nodes that node 1's directory does not name.
fn unknown(world: &World) -> Vec<(PageId, u16)> {
    let named = |id, node: u16, version| {
        world.service(1).inspect(|_, directory| {
            let entry = directory.entry(id).filter(|entry| entry.version == Version(version));
            entry.is_some_and(|entry| entry.holders.iter().any(|holder| holder.node.0 == node))
        })
    };
    let all = (0..=FRAMES).map(page).flat_map(|id| {
        let others = world.where_is(id).into_iter().filter(|(node, ..)| *node != 1);
        others
            .filter(move |(node, _, version)| !named(id, *node, *version))
            .map(move |at| (id, at.0))
    });
    all.collect()
}

#[test]
fn a_page_that_is_written_while_it_leaves_arrives_for_nothing() {
    let (mut world, disk) = full();
    world.net.fate = Box::new(|_| (1, 50));
    read_from_disk(&mut world, &disk, FRAMES);
    let id = left(&world);
    assert_eq!(world.where_is(id), [], "it is on its way");
    world.put(1, id, 2, Class::WriteBack).unwrap();
    world.flush(1, id).unwrap();
    world.seconds(1);
    assert!(world.service(1).counters().puts_stored > 0, "it has arrived");
    assert_eq!(world.where_is(id), [(1, Role::Local, 2)]);
    world.forget(1, id);
    assert_eq!(world.read(1, id, 0), (2, Source::Backing));
}

/// Of the messages after a page has left, the first few pass, and then none for so long that the page is offered to
/// another node.
#[test]
fn a_page_that_was_taken_and_not_said_to_be_is_dropped_there() {
    let mut twice = 0;
    for passes in 0..12 {
        let (mut world, disk) = full();
        let mut sent = 0;
        world.net.fate = Box::new(move |_| {
            sent += 1;
            (usize::from(sent <= passes), 0)
        });
        read_from_disk(&mut world, &disk, FRAMES);
        world.net.run(1_100);
        world.net.fate = Box::new(|_| (1, 0));
        world.seconds(1);
        let accepted: u64 = (2..=4).map(|node| world.service(node).counters().accepted).sum();
        twice += u64::from(accepted == 2);
        world.seconds(3);
        assert_eq!(unknown(&world), [], "{passes} messages passed");
    }
    assert!(twice > 0, "two nodes had it");
}

/// As above, of the page that travels along with a request for one that is elsewhere. Stable storage has that one, so
/// that the request is given up.
#[test]
fn a_page_that_travelled_along_and_is_not_said_to_have_arrived_is_dropped_there() {
    let mut arrived = 0;
    for passes in 0..12 {
        let (mut world, disk) = full();
        read_from_disk(&mut world, &disk, FRAMES);
        world.seconds(1);
        let id = left(&world);
        let accepted = |world: &World| -> u64 {
            (2..=4).map(|node| world.service(node).counters().accepted).sum()
        };
        let before = accepted(&world);
        let mut sent = 0;
        world.net.fate = Box::new(move |_| {
            sent += 1;
            (usize::from(sent <= passes), 0)
        });
        let from = world.read(1, id, 1).1;
        arrived += u64::from(from == Source::Backing && accepted(&world) > before);
        world.net.fate = Box::new(|_| (1, 0));
        world.seconds(4);
        assert_eq!(unknown(&world), [], "{passes} messages passed");
    }
    assert!(arrived > 0, "it arrived and the request was given up");
}
