//! One server is away, another has lost what it held: what does not concern the first goes on without it.

mod common;

use common::World;
use files::conformance::client::pattern;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wire::FileId;

/// The servers of the file's two columns.
fn servers(world: &mut World, file: FileId) -> [u16; 2] {
    let names = world.names(1).1;
    let servers = Rc::new(Cell::default());
    let found = servers.clone();
    world.block_on_node(101, async move {
        let layout = names.get_attr(file).await.expect("attributes").layout.expect("a layout");
        found.set([0, 1].map(|column| layout.server(column).0));
    });
    servers.get()
}

#[test]
fn closed_bytes_are_sent_again_while_another_server_is_away() {
    let mut world = World::new(2, 2);
    let content = pattern(1, 0, 5000);
    let writer = world.client(0);
    let file = world.block_on(writer.put(FileId::ROOT, b"file", &content)).expect("closed");
    let [first, other] = servers(&mut world, file);
    world.kill(other);
    world.restart(first);
    world.run(Duration::from_secs(5));
    // Nobody else has the bytes any more.
    world.kill(100);
    world.restart(first);
    world.start(other);
    let reader = world.client(1);
    let there = world.block_on(reader.get(FileId::ROOT, b"file")).expect("read");
    assert!(there == content, "{} bytes", there.len());
}
