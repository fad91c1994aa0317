//! Shared spaces: who may write to a page, and for how long.

use crate::world::*;
use netmem::service::Source;
use netmem::*;
use std::time::Duration;
use wire::NodeId;

/// More than the directories can remember leases of.
#[test]
fn any_number_of_pages_can_be_written_by_two_nodes_in_turn() {
    let (mut world, disk) = with_disk(2, 64);
    disk.delay.set(Duration::ZERO);
    let pages: Vec<PageId> = (0..10_000).map(shared).collect();
    let mut newest = vec![0; pages.len()];
    for round in 0..2 {
        for (at, id) in pages.iter().enumerate() {
            let node = 1 + (at as u16 + round) % 2;
            let version = world.put_newer(node, *id, Class::WriteBack);
            assert!(version > newest[at], "{id}: {version} after {}", newest[at]);
            newest[at] = version;
        }
    }
    for at in (0..pages.len()).step_by(97) {
        let reader = 1 + (at as u16 / 97) % 2;
        assert_eq!(world.read(reader, pages[at], 0).0, newest[at]);
    }
}

#[test]
fn a_write_that_is_given_up_at_its_directory_holds_no_lease() {
    let (mut world, disk) = with_disk(4, 64);
    let id = world.page_of(3);
    disk.pages.borrow_mut().insert(id, late(1));
    assert_eq!(world.read(2, id, 0), (late(1), Source::Backing));
    world.seconds(1);
    world.net.cut = Some(NodeId(2));
    let (service, cx, data) = (world.service(3), world.cx(3), frame(&world.cx(3), id, late(2)));
    let put = world.run(3, async move {
        let put = service.put(id, Version(late(2)), Class::WriteBack, data);
        cx.with_deadline(Duration::from_millis(50), put).await
    });
    assert!(put.is_err(), "node 2 did not give its copy up");
    world.net.cut = None;
    world.put_shared(1, id, 3, Class::WriteBack).unwrap();
    assert_eq!(world.read(2, id, 0).0, late(3));
}
