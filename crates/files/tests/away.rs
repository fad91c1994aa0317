//! One server is away, another has lost what it held: what does not concern the first goes on without it.

mod common;

use common::World;
use files::conformance::client::pattern;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wire::FileId;

/// The stripe unit: so much of a file is in its first column before the second begins.
const UNIT: usize = 32 << 10;

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

/// A file of so many bytes is closed, its second server is away, the first one loses what is not stable, then the mount
/// and the first server die: its column is there when all come back.
fn sent_again(bytes: usize) {
    let mut world = World::new(2, 2);
    let content = pattern(1, 0, bytes);
    let writer = world.client(0);
    let file = world.block_on(writer.put(FileId::ROOT, b"file", &content)).expect("closed");
    let [first, other] = servers(&mut world, file);
    world.kill(other);
    world.restart(first);
    world.run(Duration::from_secs(5));
    world.kill(100);
    world.restart(first);
    world.start(other);
    let reader = world.client(1);
    let there = world.block_on(reader.get(FileId::ROOT, b"file")).expect("read");
    let column = bytes.min(UNIT);
    assert!(there.get(..column) == Some(&content[..column]), "{} bytes", there.len());
}

#[test]
fn closed_bytes_are_sent_again_while_another_server_is_away() {
    sent_again(5000);
}

#[test]
fn also_when_that_one_has_bytes_of_the_file() {
    sent_again(2 * UNIT);
}
