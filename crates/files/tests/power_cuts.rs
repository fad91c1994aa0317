//! Lengths at a mount after a power cut took them from the manager.

use crate::common::{CLIENT_PAGES, World};
use files::Config;
use files::conformance::client::{Opened, READ_ONLY, READ_WRITE};
use files::conformance::{Asks, Client};
use node::all;
use node::rings::FileOp;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use wire::{Errno, FileId, SetAttr};

type Later<'a> = Pin<Box<dyn Future<Output = Result<(), Errno>> + 'a>>;

const NAME: &[u8] = b"file";
const MORE: usize = 3000;
const LESS: usize = 1000;

/// A file of which the manager has only the first bytes on stable storage, while client 0 has written more and closed
/// it. The other client wrote at the same time, so that no close was answered with the length.
fn closed_and_lost() -> (World, Client<Asks>, FileId) {
    let mut world = World::new(3, 2);
    let (one, two) = (world.client(0), world.client(1));
    let file = world.block_on(one.put(FileId::ROOT, NAME, &[1; LESS])).unwrap();
    world.run(Duration::from_secs(3));
    world.block_on(async {
        let mine = one.open(file, READ_WRITE).await.unwrap();
        let other = two.open(file, READ_WRITE).await.unwrap();
        one.write(mine, 0, &[2; MORE]).await.unwrap();
        one.close(mine).await.unwrap();
        two.close(other).await.unwrap();
    });
    world.cut_power_of_manager();
    assert_eq!(said(&mut world, file), (LESS as u64, false), "the cut took it all");
    (world, one, file)
}

/// The length that the manager tells of the file, and whether that is a hint.
fn said(world: &mut World, file: FileId) -> (u64, bool) {
    let entry = known(world, file);
    (entry.attr.size, entry.is_hint())
}

/// The file as the manager knows it.
fn known(world: &mut World, file: FileId) -> names::Entry {
    let names = world.names(0).1;
    let said = Rc::new(Cell::default());
    let answer = said.clone();
    world.block_on_node(100, async move {
        answer.set(Some(names.get_attr(file).await.unwrap()));
    });
    said.take().unwrap()
}

async fn open(client: &Client<Asks>, file: FileId, flags: u32) -> Opened {
    let open = client.open(file, flags).await.unwrap();
    assert_eq!(client.stat(file).await.unwrap().size, MORE as u64);
    open
}

#[test]
fn the_next_open_knows_it() {
    let (mut world, client, file) = closed_and_lost();
    world.block_on(async {
        let open = open(&client, file, READ_WRITE).await;
        assert_eq!(client.read(open, 0, MORE).await.unwrap(), [2; MORE]);
        client.close(open).await.unwrap();
    });
    let other = world.client(1);
    assert_eq!(world.block_on(other.stat(file)).unwrap().size, MORE as u64, "a close tells it");
}

/// After an fsync, through an open with these flags, the length outlives the mount and the manager's memory.
fn kept_by_an_fsync(flags: u32) {
    let (mut world, client, file) = closed_and_lost();
    world.block_on(async {
        let open = open(&client, file, flags).await;
        client.fsync(open).await.unwrap();
    });
    world.kill(100);
    world.cut_power_of_manager();
    world.run(Duration::from_secs(120));
    let other = world.client(1);
    assert_eq!(world.block_on(other.stat(file)).unwrap().size, MORE as u64);
}

#[test]
fn an_fsync_of_a_writer_keeps_it() {
    kept_by_an_fsync(READ_WRITE);
}

#[test]
fn an_fsync_of_a_reader_keeps_it() {
    kept_by_an_fsync(READ_ONLY);
}

#[test]
fn a_length_that_was_not_lost_is_no_hint_for_long() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, NAME, &[1; LESS])).unwrap();
    world.run(Duration::from_secs(3));
    world.cut_power_of_manager();
    let listed = |world: &mut World, client: &Client<Asks>| {
        world.run(Duration::from_secs(3));
        let entries = world.block_on(client.list(FileId::ROOT, 4096)).unwrap();
        entries.iter().any(|entry| *entry.name == *NAME && entry.attr.is_some())
    };
    assert!(!listed(&mut world, &client), "a listing asks no objects");
    assert_eq!(world.block_on(client.stat(file)).unwrap().size, LESS as u64);
    assert!(listed(&mut world, &client), "they were asked once");
}

#[test]
fn an_fsync_of_a_new_file_keeps_its_name() {
    let mut world = World::new(3, 2);
    let one = world.client(0);
    world.block_on(one.put(FileId::ROOT, b"earlier", &[1; LESS])).unwrap();
    // The manager's first change is synced at once, and all are every second.
    world.run(Duration::from_millis(3500));
    world.block_on(async {
        let file = one.put(FileId::ROOT, NAME, &[1; LESS]).await.unwrap();
        let open = one.open(file, READ_WRITE).await.unwrap();
        one.fsync(open).await.unwrap();
    });
    world.cut_power_of_manager();
    let other = world.client(1);
    assert_eq!(world.block_on(other.get(FileId::ROOT, NAME)).unwrap(), [1; LESS]);
}

/// Another name is made there after the cut, while a sync that is to be told of the loss is under way.
#[test]
fn a_name_that_a_cut_took_is_told_of_whatever_comes_after_it() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let (lost, other) = world.block_on(async {
        let lost = client.make_directory(FileId::ROOT, b"lost").await.unwrap();
        let other = client.make_directory(FileId::ROOT, b"other").await.unwrap();
        client.fsync_directory(FileId::ROOT).await.unwrap();
        client.make_directory(lost, b"first").await.unwrap();
        (lost, other)
    });
    world.cut_power_of_manager();
    world.block_on(async {
        let synced = Box::pin(client.fsync_directory(other));
        let made = Box::pin(async { client.make_directory(lost, b"second").await.map(drop) });
        assert_eq!(all([synced as Later<'_>, made]).await, [Ok(()), Ok(())], "not its names");
        assert_eq!(client.lookup(lost, b"first").await.err(), Some(Errno::ENOENT));
        assert_eq!(client.fsync_directory(lost).await, Err(Errno::EIO), "it is told once");
        assert_eq!(client.fsync_directory(lost).await, Ok(()));
    });
}

/// A client that knows few files: looked at, these 20 take the place of all that it knew before.
fn with_few_files() -> (World, Client<Asks>, Vec<FileId>) {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let mut world = World::with(1, 1, Config { files_max: 8, ..limits });
    let client = world.client(0);
    let others = world.block_on(async {
        let mut others = Vec::new();
        for number in 0..20 {
            let name = format!("other{number}");
            others.push(client.make_directory(FileId::ROOT, name.as_bytes()).await.unwrap());
        }
        client.fsync_directory(FileId::ROOT).await.unwrap();
        others
    });
    (world, client, others)
}

#[test]
fn a_loss_is_told_though_many_files_were_used_since() {
    let (mut world, client, others) = with_few_files();
    let directory = world.block_on(async {
        client.make_directory(others[0], b"lost").await.unwrap();
        for other in &others[1..] {
            client.stat(*other).await.unwrap();
        }
        others[0]
    });
    assert!(world.files(0).report().files <= 8, "some were forgotten");
    world.cut_power_of_manager();
    world.block_on(async {
        assert_eq!(client.lookup(directory, b"lost").await.err(), Some(Errno::ENOENT));
        client.fsync_directory(others[1]).await.expect("not its names");
        for other in &others[1..] {
            client.stat(*other).await.unwrap();
        }
        assert_eq!(client.fsync_directory(directory).await, Err(Errno::EIO), "it is told once");
        assert_eq!(client.fsync_directory(directory).await, Ok(()));
    });
}

#[test]
fn an_fsync_keeps_a_change_though_many_files_were_used_since() {
    let (mut world, client, others) = with_few_files();
    let file = world.block_on(client.put(FileId::ROOT, b"f", b"x")).unwrap();
    world.run(Duration::from_secs(3));
    world.block_on(async {
        let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        client.set_attr(file, None, changes).await.unwrap();
        for other in &others {
            client.stat(*other).await.unwrap();
        }
        let open = client.open(file, READ_ONLY).await.unwrap();
        client.fsync(open).await.unwrap();
    });
    world.cut_power_of_manager();
    assert_eq!(known(&mut world, file).attr.mode & 0o7777, 0o600);
}

#[test]
fn an_fsync_keeps_a_length_that_the_manager_lost_though_many_files_were_used_since() {
    let (mut world, client, others) = with_few_files();
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; LESS])).unwrap();
    world.run(Duration::from_secs(3));
    world.block_on(async {
        let open = client.open(file, READ_WRITE).await.unwrap();
        client.write(open, 0, &[2; MORE]).await.unwrap();
        client.close(open).await.unwrap();
    });
    world.cut_power_of_manager();
    assert_eq!(said(&mut world, file).0, LESS as u64, "the cut took it");
    world.run(Duration::from_secs(3));
    world.block_on(async {
        client.fsync_directory(others[1]).await.expect("not its names");
        for other in &others {
            client.stat(*other).await.unwrap();
        }
        let open = client.open(file, READ_ONLY).await.unwrap();
        client.fsync(open).await.unwrap();
        client.close(open).await.unwrap();
    });
    world.cut_power_of_manager();
    world.run(Duration::from_secs(20));
    assert_eq!(said(&mut world, file).0, MORE as u64);
}

/// Files that no application syncs are forgotten too, once a sync has covered them.
#[test]
fn changes_that_are_never_synced_leave_the_table_short() {
    let (mut world, client, others) = with_few_files();
    for number in 0..40 {
        let name = format!("f{number}").into_bytes();
        world.block_on(client.put(others[number % 20], &name, b"x")).unwrap();
        world.run(Duration::from_secs(1));
    }
    let files = world.files(0).report().files;
    assert!(files <= 12, "{files}");
}

/// Changes by a server of NFS are on stable storage when they are answered: a loss beside them is none of theirs.
#[test]
fn a_change_that_was_synced_when_it_was_answered_is_not_told_for_lost() {
    let (mut world, client, others) = with_few_files();
    let make =
        |name: &[u8]| FileOp::MakeDirectory { parent: others[0], name: name.into(), mode: 0o755 };
    world.block_on(async {
        let op = Box::new(make(b"kept"));
        client.ask(FileOp::WithWcc { op, guard: None, call: None }).await.unwrap();
        client.make_directory(others[1], b"lost").await.unwrap();
    });
    world.cut_power_of_manager();
    world.block_on(async {
        client.lookup(others[0], b"kept").await.expect("it was synced");
        assert_eq!(client.lookup(others[1], b"lost").await.err(), Some(Errno::ENOENT));
        assert_eq!(client.fsync_directory(others[1]).await, Err(Errno::EIO));
        assert_eq!(client.fsync_directory(others[0]).await, Ok(()));
    });
}
