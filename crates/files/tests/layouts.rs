//! Layouts that change under readers and writers: columns that move, columns that are added, managers that die between.

use crate::common::World;
use files::conformance::client::{Opened, READ_ONLY, READ_WRITE, pattern};
use files::conformance::{Asks, Client};
use names::Who;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, Home, NodeId};

const MIB: usize = 1 << 20;

/// Starts changes of layout on client 1's node: every column goes to the next server, again and again. How many did.
fn move_around(world: &World, file: FileId, rounds: u16) -> Rc<Cell<u32>> {
    let (cx, names) = world.names(1);
    let moves = Rc::new(Cell::new(0));
    let counter = moves.clone();
    cx.spawn("mover", async move {
        for round in 0..rounds {
            let layout = names.get_attr(file).await.expect("attributes").layout.expect("a layout");
            let column = round % layout.width();
            let server = NodeId(10 + (layout.server(column).0 - 10 + 1) % 4);
            let moved =
                names.move_column(&Who::ROOT, file, column, server, 0).await.expect("moved");
            assert_eq!(moved.layout.expect("a layout").server(column), server);
            counter.set(counter.get() + 1);
        }
    });
    moves
}

#[test]
fn a_file_moves_while_it_is_read_and_written() {
    let mut world = World::new(4, 2);
    let (writer, reader) = (world.client(0), world.client(1));
    let mut content = pattern(1, 0, 2 * MIB + 777);
    let file = world.block_on(writer.put(FileId::ROOT, b"f", &content)).expect("put");
    world.run(Duration::from_secs(2));
    let moves = move_around(&world, file, 8);
    let mut step = 0u64;
    let open = world.block_on(writer.open(file, READ_WRITE)).expect("open");
    while moves.get() < 8 {
        step += 1;
        assert!(step < 20_000, "the moves end");
        let at = (step * 7_919_333 % (2 * MIB as u64)) as usize;
        let data = pattern(step, at as u64, 5000);
        content.resize(content.len().max(at + data.len()), 0);
        content[at..at + data.len()].copy_from_slice(&data);
        world.block_on(writer.write(open, at as u64, &data)).expect("write");
        if step.is_multiple_of(5) {
            world.block_on(writer.fsync(open)).expect("fsync");
        }
        let from = (step * 104_729 % (2 * MIB as u64)) as usize;
        let bytes = world.block_on(writer.read(open, from as u64, 40_000)).expect("read");
        assert!(bytes == content[from..content.len().min(from + 40_000)], "step {step}");
    }
    world.block_on(writer.close(open)).expect("close");
    assert!(world.block_on(reader.get(FileId::ROOT, b"f")).expect("read") == content);
    // All of it is where the manager says, on stable storage.
    world.run(Duration::from_secs(3));
    (10..14).for_each(|id| world.restart(id));
    assert!(world.block_on(reader.get(FileId::ROOT, b"f")).expect("read") == content);
}

/// lseek(2)
const SEEK_HOLE: u32 = 4;

/// Result of `operation` of client 0 on a file that client 2 has open for writing too, whose layout is changed twice:
/// once before, and once when the world has turned this often, while client 0 gets no processor.
fn by_an_old_layout<T>(
    turns: usize,
    operation: impl AsyncFn(&Client<Asks>, Opened) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut world = World::new(3, 3);
    let (client, other) = (world.client(0), world.client(2));
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 9_000])).expect("put");
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(other.open(file, READ_WRITE)).expect("open");
    let ((cx, names), now) = (world.names(1), Rc::new(Cell::new(false)));
    let (again, go) = (names.clone(), now.clone());
    world.block_on_node(101, async move {
        names.add_columns(&Who::ROOT, file, vec![NodeId(11).into()]).await.expect("columns");
    });
    cx.clone().spawn("grow", async move {
        while !go.get() {
            cx.sleep(Duration::from_micros(100)).await;
        }
        again.add_columns(&Who::ROOT, file, vec![NodeId(12).into()]).await.expect("columns");
    });
    let mut turn = 0;
    world.block_on_with(operation(&client, open), |world| {
        turn += 1;
        if turn == turns {
            now.set(true);
            world.pause(100, Duration::from_millis(20));
        }
    })
}

/// Objects that refuse the layout which the manager has just told do not say that the file is gone.
#[test]
fn a_layout_that_is_old_again_does_not_drop_what_was_written() {
    for turns in 495..515 {
        let found = by_an_old_layout(turns, async |client, open| {
            client.write(open, 0, &[2; 5_000]).await?;
            client.fsync(open).await?;
            client.read(open, 0, 5_000).await
        });
        assert!(found == Ok(vec![2; 5_000]), "after {turns} turns: {:?}", found.map(drop));
    }
}

#[test]
fn a_layout_that_is_old_again_fails_nobody_who_asks_for_the_length() {
    for turns in 1..12 {
        let length = by_an_old_layout(turns, async |client, open| {
            client.stat(open.file).await.map(|attr| attr.size)
        });
        assert_eq!(length, Ok(9_000), "stat, after {turns} turns");
        let looked = by_an_old_layout(turns, async |client, _| {
            client.lookup(FileId::ROOT, b"f").await.map(|attr| attr.size)
        });
        assert_eq!(looked, Ok(9_000), "a look-up, after {turns} turns");
        let opened = by_an_old_layout(turns, async |client, open| {
            client.open(open.file, READ_ONLY).await.map(drop)
        });
        assert_eq!(opened, Ok(()), "open, after {turns} turns");
        let end = by_an_old_layout(turns, async |client, open| client.read(open, 8_990, 20).await);
        assert_eq!(end, Ok(vec![1; 10]), "a read, after {turns} turns");
    }
}

#[test]
fn what_is_written_after_columns_were_added_lies_in_them() {
    let mut world = World::new(4, 2);
    let (one, two) = (world.client(0), world.client(1));
    let mut content = pattern(2, 0, MIB + 1234);
    let file = world.block_on(one.put(FileId::ROOT, b"f", &content)).expect("put");
    let (cx, names) = world.names(1);
    for (round, servers) in [vec![13, 10], vec![11], vec![12, 13, 10]].into_iter().enumerate() {
        let servers: Vec<Home> = servers.into_iter().map(|id| NodeId(id).into()).collect();
        let (names, done) = (names.clone(), Rc::new(Cell::new(false)));
        let set = done.clone();
        cx.spawn("grow", async move {
            names.add_columns(&Who::ROOT, file, servers).await.expect("columns");
            set.set(true);
        });
        while !done.get() {
            world.run(Duration::from_millis(10));
        }
        let open = world.block_on(one.open(file, READ_WRITE)).expect("open");
        let data = pattern(round as u64 + 9, content.len() as u64, MIB + 99);
        world.block_on(one.write(open, content.len() as u64 - 50, &data)).expect("write");
        world.block_on(one.close(open)).expect("close");
        content.truncate(content.len() - 50);
        content.extend_from_slice(&data);
        assert!(world.block_on(two.get(FileId::ROOT, b"f")).expect("read") == content);
        // Where columns end that it had before is no hole.
        let open = world.block_on(two.open(file, READ_WRITE)).expect("open");
        for from in [0, 17_335, MIB as u64 + 40_000] {
            let hole = world.block_on(two.seek(open, from, SEEK_HOLE));
            assert_eq!(hole, Ok(content.len() as u64), "round {round}, from {from}");
        }
        world.block_on(two.close(open)).expect("close");
    }
    let attr = world.block_on(two.lookup(FileId::ROOT, b"f")).expect("lookup");
    assert_eq!(attr.size, content.len() as u64);
    let cut = world.block_on(two.open(file, READ_WRITE)).expect("open");
    for size in [content.len() - 70_000, MIB + 500_001, 3000] {
        world.block_on(two.set_size(cut, size as u64)).expect("truncate");
        content.truncate(size);
        assert!(world.block_on(one.get(FileId::ROOT, b"f")).expect("read") == content);
    }
    // Behind a cut everything reads as zeros, in old columns and new ones.
    world.block_on(two.set_size(cut, 2 * MIB as u64)).expect("extend");
    content.resize(2 * MIB, 0);
    assert!(world.block_on(one.get(FileId::ROOT, b"f")).expect("read") == content);
}

#[test]
fn a_manager_that_dies_in_a_move_leaves_a_file_that_can_be_used() {
    for wait in [1, 3, 6, 10, 20, 40, 60, 100] {
        let mut world = World::new(4, 2);
        let client = world.client(0);
        let content = pattern(3, 0, MIB);
        let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
        world.run(Duration::from_secs(2));
        let (cx, names) = world.names(1);
        cx.spawn("mover", async move {
            // Its outcome is not known to anybody.
            let _ = names.move_column(&Who::ROOT, file, 0, NodeId(12), 0).await;
            let _ = names.move_column(&Who::ROOT, file, 0, NodeId(11), 0).await;
        });
        world.run(Duration::from_millis(wait));
        world.restart(1);
        assert!(world.block_on(client.get(FileId::ROOT, b"f")).expect("read") == content);
        let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
        world.block_on(client.write(open, 40_000, &content[..100_000])).expect("write");
        world.block_on(client.fsync(open)).expect("fsync");
        world.block_on(client.close(open)).expect("close");
    }
}

/// A mount that has sent something again asks the objects for the length, by the layout that it knows: a column that
/// has moved meanwhile is empty there.
#[test]
fn a_length_is_not_measured_by_an_old_layout() {
    let mut world = World::new(4, 2);
    let client = world.client(0);
    let content = pattern(1, 0, 4 * 32_768);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
    world.run(Duration::from_secs(2));
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    let second = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(client.write(open, 0, &content[..10])).expect("write");
    world.block_on(client.flush(open)).expect("sent, and the session goes on");
    (10..14).for_each(|id| world.restart(id));
    world.run(Duration::from_secs(5));
    assert_eq!(world.files(0).report().held_bytes, 0, "retransmitted");
    let names = world.names(1).1;
    world.block_on_node(101, async move {
        let layout = names.get_attr(file).await.expect("attributes").layout.expect("a layout");
        let column = layout.width() - 1;
        let moved = names.move_column(&Who::ROOT, file, column, layout.server(0), 0).await;
        moved.expect("moved");
    });
    world.block_on(client.close(open)).expect("close");
    world.block_on(client.close(second)).expect("close");
    world.run(Duration::from_secs(2));
    let other = world.client(1);
    assert_eq!(world.block_on(other.stat(file)).expect("stat").size, content.len() as u64);
    assert!(world.block_on(other.get(FileId::ROOT, b"f")).expect("read") == content);
}
