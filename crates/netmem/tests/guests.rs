//! Pages of processes that are no nodes, in the memory of nodes: these processes ask by messages alone.

use crate::world::*;
use netmem::protocol::{
    Batch, Get, GetReply, Message, No, Put, PutReply, Record, Spaces, Stayed, Verdict, op,
};
use netmem::*;
use node::{Call, Reply};
use std::time::Duration;
use wire::field::Field;
use wire::{Channel, Encoder, NodeId};

/// Asks for node 1's address, which has nothing to do with the space.
const ASKS: u16 = 1;

fn page(index: u64) -> PageId {
    PageId { space: SpaceId::guest(77), index }
}

struct Load<'a> {
    body: &'a [u8],
    data: Option<Vec<u8>>,
    trailer: &'a [u8],
    lands: bool,
}

fn ask(world: &mut World, to: u16, what: u16, load: Load<'_>) -> Reply {
    let cx = world.cx(ASKS);
    let data = load.data.map(|data| cx.frames().copy_of(&data).unwrap());
    let call = cx.call(Call {
        to: NodeId(to),
        channel: Channel::MEMORY,
        op: what,
        once: what != op::GET,
        deadline: Some(Duration::from_secs(1)),
        body: load.body,
        data: data.map_or_else(|| cx.pieces(), |frame| cx.piece(frame)),
        trailer: load.trailer,
        into: match load.lands {
            true => cx.piece(cx.frames().alloc_exact(PAGE).unwrap()),
            false => cx.pieces(),
        },
    });
    world.run(ASKS, call).unwrap()
}

fn bare(body: &[u8]) -> Load<'_> {
    Load { body, data: None, trailer: &[], lands: false }
}

fn put(world: &mut World, to: u16, id: PageId, version: u64) -> Result<NodeId, No> {
    let bytes = content(id, version);
    let stamp = PageStamp::of(id, Version(version), [&bytes[..]]);
    let (incarnation, view, age) = (0, 0, Age::NEWEST);
    let put = Put { stamp, incarnation, age, chances: 0, copies: 2, reused: true, view };
    let (body, mut trailer) = (put.encode(), [0; PageStamp::BYTES]);
    stamp.put(&mut Encoder::new(&mut trailer));
    let load = Load { body: &body, data: Some(bytes), trailer: &trailer, lands: false };
    PutReply::decode(&ask(world, to, op::PUT, load).body).unwrap().stored
}

/// The version that a node has, if it is new enough, with the bytes of just that version.
fn get(world: &mut World, from: u16, id: PageId, at_least: u64) -> Option<u64> {
    let body = Get::new(id, Version(at_least), PAGE as u32, NodeId(ASKS)).encode();
    let reply = ask(world, from, op::GET, Load { lands: true, ..bare(&body) });
    match GetReply::decode(&reply.body).unwrap() {
        GetReply::Data(data) => {
            let version = data.stamp.version.0;
            assert_eq!(&reply.data[0][..reply.bytes], &content(id, version)[..]);
            Some(version)
        }
        GetReply::NotHere { .. } | GetReply::Older { .. } => None,
        other => panic!("{other:?}"),
    }
}

fn stay(world: &mut World, at: u16) -> Stayed {
    let body = Spaces::of(&[page(0).space]).encode();
    Stayed::decode(&ask(world, at, op::STAY, bare(&body)).body).unwrap()
}

#[test]
fn a_guests_pages_are_where_it_put_them_and_in_no_directory() {
    let mut world = World::new(4, |_| small(64));
    assert_eq!(put(&mut world, 2, page(3), 5), Ok(NodeId(2)));
    assert_eq!(put(&mut world, 3, page(3), 5), Ok(NodeId(3)));
    for node in 1..=4 {
        let known = world.service(node).inspect(|_, directory| directory.entry(page(3)).is_some());
        assert!(!known, "node {node}");
        let had = get(&mut world, node, page(3), 5);
        assert_eq!(had, [2, 3].contains(&node).then_some(5), "node {node}");
    }
    assert_eq!(put(&mut world, 2, page(3), 7), Ok(NodeId(2)));
    assert_eq!(put(&mut world, 2, page(3), 6), Err(No::Stale));
    assert_eq!((get(&mut world, 2, page(3), 7), get(&mut world, 3, page(3), 7)), (Some(7), None));
}

#[test]
fn a_guests_page_makes_way_for_nothing_and_goes_when_it_is_told_to() {
    let mut world = World::new(2, |_| small(8));
    let taken = (0..20).filter(|index| put(&mut world, 2, page(*index), 1).is_ok()).count();
    assert_eq!(taken, 8);
    assert_eq!(put(&mut world, 2, page(30), 1), Err(No::Room));
    let record = Record {
        id: page(0),
        version: Version(1),
        holder: Holder { node: NodeId(2), incarnation: 1, role: netmem::HolderRole::Mirror },
        copies: 0,
        lost: false,
        writer: false,
    };
    let body = Batch::of(0, &[record], false).encode();
    let reply = ask(&mut world, 2, op::DROP, bare(&body));
    assert_eq!(Verdict::decode(&reply.body).unwrap(), Verdict::Done);
    assert_eq!(get(&mut world, 2, page(0), 0), None);
    assert_eq!(put(&mut world, 2, page(30), 1), Ok(NodeId(2)));
    let body = Spaces::of(&[page(0).space]).encode();
    ask(&mut world, 2, op::FREE_SPACE, bare(&body));
    assert_eq!(world.service(2).counts().mirror, 0);
    assert_eq!(put(&mut world, 2, page(31), 1), Err(No::Freed), "what comes late");
}

#[test]
fn a_guests_pages_outlive_what_the_nodes_think_of_each_other() {
    let mut world = World::new(3, |_| small(64));
    put(&mut world, 2, page(1), 4).unwrap();
    world.give_up(2);
    assert_eq!(get(&mut world, 2, page(1), 4), Some(4));
    world.come_back(2);
    assert_eq!(get(&mut world, 2, page(1), 4), Some(4));
    assert_eq!(put(&mut world, 2, page(1), 5), Ok(NodeId(2)));
}

#[test]
fn a_guest_that_is_silent_for_too_long_is_gone() {
    let mut world = World::new(2, |_| small(64));
    put(&mut world, 2, page(1), 4).unwrap();
    let minute = limits::GUEST_SPAN.as_secs() as usize / 5;
    for _ in 0..6 {
        world.seconds(minute);
        let there = stay(&mut world, 2);
        assert_eq!(there, Stayed { node: NodeId(2), incarnation: 1, machine: 0 });
    }
    assert_eq!(get(&mut world, 2, page(1), 4), Some(4), "it has said that it is there");
    world.seconds(6 * minute);
    assert_eq!(get(&mut world, 2, page(1), 4), None);
    assert_eq!(put(&mut world, 2, page(1), 5), Ok(NodeId(2)), "it is there again");
}

/// The process alone knows who else has its pages, so that they stay where a node is to lend less.
#[test]
fn a_guests_pages_stay_where_less_is_lent() {
    let mut world = World::new(4, |_| small(64));
    (0..12).for_each(|index| assert!(put(&mut world, 2, page(index), 1).is_ok()));
    world.put(1, private(1, 0), 1, Class::Mirrored).unwrap();
    world.flush(1, private(1, 0)).unwrap();
    world.service(2).set_share(4 * PAGE);
    world.seconds(2);
    assert_eq!((world.service(2).counts().mirror, world.service(2).share().over), (12, 8 * PAGE));
    assert_eq!(put(&mut world, 2, page(20), 1), Err(No::Room));
    assert!((0..12).all(|index| get(&mut world, 2, page(index), 1) == Some(1)));
    let body = Spaces::of(&[page(0).space]).encode();
    ask(&mut world, 2, op::FREE_SPACE, bare(&body));
    assert_eq!(world.service(2).share().over, 0, "they go when the process says so");
}
