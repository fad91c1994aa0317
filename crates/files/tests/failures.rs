//! Losses, whom they are told to, and operations that go on, while disks fail and servers or the manager are away.

use crate::common::{CLIENT_PAGES, MANAGER, World, messages};
use files::Config;
use files::conformance::client::{READ_ONLY, READ_WRITE, WRITE_ONLY, pattern};
use names::{Policy, Who};
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use wire::{Errno, FileId, NodeId, SetAttr};

const MIB: usize = 1 << 20;

#[test]
fn a_full_disk_is_told_once_to_every_handle() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let old = pattern(2, 0, 200_000);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &old)).expect("put");
    world.run(Duration::from_secs(2));
    let one = world.block_on(client.open(file, READ_WRITE)).expect("open");
    let two = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.fill_disks(true);
    world.block_on(client.write(one, 0, &[1; 100_000])).expect("taken over");
    assert_eq!(world.block_on(client.fsync(one)), Err(Errno::ENOSPC));
    assert_eq!(world.block_on(client.fsync(one)), Ok(()), "once");
    assert_eq!(world.block_on(client.flush(two)), Err(Errno::ENOSPC), "to the other too");
    let late = world.block_on(client.open(file, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(client.fsync(late)), Ok(()), "not to who came after");
    world.fill_disks(false);
    world.block_on(client.write(one, 0, &[2; 100_000])).expect("write");
    assert_eq!(world.block_on(client.fsync(one)), Ok(()));
    let mut expected = old;
    expected[..100_000].fill(2);
    assert!(world.block_on(client.read(one, 0, MIB)).expect("read") == expected);
    assert_eq!(world.files(0).report().held_bytes, 0);
}

/// As `dd` and `cp` do: nothing but writes, which are taken over faster than servers refuse them.
#[test]
fn a_program_that_only_writes_is_told_that_the_disk_is_full() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", WRITE_ONLY)).expect("create");
    world.run(Duration::from_secs(1));
    world.fill_disks(true);
    let write = |world: &mut World, at: u64| {
        let written = world.block_on(client.write(open, at * MIB as u64, &vec![1; MIB]));
        world.run(Duration::from_millis(100));
        written
    };
    let refused = (0..200).find_map(|at| write(&mut world, at).err());
    assert_eq!(refused, Some(Errno::ENOSPC));
    assert_eq!(world.block_on(client.fsync(open)), Err(Errno::ENOSPC), "fsync tells it too");
}

/// A file that was written to and closed while the disks were full, and whose bytes are lost since; they still are.
fn lost_after_its_close(world: &mut World) -> FileId {
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &pattern(2, 0, 9_000))).expect("put");
    world.run(Duration::from_secs(2));
    world.fill_disks(true);
    let one = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(client.write(one, 0, &[1; 100_000])).expect("taken over");
    assert_eq!(world.block_on(client.close(one)), Ok(()), "the servers have it in memory");
    world.run(Duration::from_secs(10));
    file
}

#[test]
fn a_file_that_is_opened_when_there_is_room_again_is_written_to() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let file = lost_after_its_close(&mut world);
    world.fill_disks(false);
    let late = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(client.write(late, 0, &[2; 5_000])).expect("there is room");
    assert_eq!(world.block_on(client.fsync(late)), Err(Errno::ENOSPC), "the loss is told still");
}

/// Closed data is lost while no handle has the file open: the next opener that syncs is told, once.
#[test]
fn a_loss_after_the_last_close_is_told_to_who_opens_the_file_next() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let file = lost_after_its_close(&mut world);
    let late = world.block_on(client.open(file, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(client.fsync(late)), Err(Errno::ENOSPC));
    assert_eq!(world.block_on(client.fsync(late)), Ok(()), "once");
    let later = world.block_on(client.open(file, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(client.fsync(later)), Ok(()), "not to who came after");
}

/// One that lies in the directory of a running server and is removed: the fsync waits for it as for a server, and ends.
#[test]
fn a_disk_that_goes_missing_ends_reads_at_once_and_an_fsync_after_the_patience() {
    let patience = Duration::from_secs(8);
    let config = Config { patience, ..Config::for_pool(CLIENT_PAGES * 4096) };
    let mut world = World::with(2, 1, config);
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &pattern(2, 0, MIB))).expect("put");
    world.run(Duration::from_secs(2));
    world.restart(10);
    world.run(Duration::from_secs(1)); // it serves
    let one = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.lose_disk(10);
    world.block_on(client.write(one, 0, &[1; 100_000])).expect("taken over");
    let begun = world.now;
    let (asked, synced) = messages(&mut world, client.fsync(one));
    assert_eq!(synced, Err(Errno::EIO));
    assert!(asked < 100, "{asked} messages");
    let span = world.now.since(begun);
    assert!(span >= patience && span < 3 * patience, "{span:?}");
    let begun = world.now;
    assert_eq!(world.block_on(client.read(one, 0, MIB)).err(), Some(Errno::EIO));
    assert!(world.now.since(begun) < patience);
    assert_eq!(world.files(0).report().held_bytes, 0, "what cannot be kept is given up");
}

/// One that its server refuses when it starts, as one that is damaged or an older copy: no waiting brings it back.
#[test]
fn what_is_on_a_refused_disk_cannot_be_changed_and_no_change_waits_for_it() {
    let mut world = World::new(1, 1);
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &pattern(2, 0, MIB))).expect("put");
    world.run(Duration::from_secs(2));
    world.kill(10);
    world.lose_disk(10);
    world.start(10);
    let begun = world.now;
    world.block_on(async {
        let one = client.open(file, READ_WRITE).await.expect("open");
        assert_eq!(client.read(one, 0, MIB).await.err(), Some(Errno::EIO));
        client.write(one, 0, &[1; 100_000]).await.expect("taken over");
        assert_eq!(client.fsync(one).await, Err(Errno::EIO));
        client.write(one, 0, &[1; 100_000]).await.expect("taken over");
        assert_eq!(client.flush(one).await, Err(Errno::EIO));
        assert_eq!(client.allocate(one, 0, 3 * MIB as u64, 0).await, Err(Errno::EIO));
        // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        let punched = client.allocate(one, 0, MIB as u64, 3).await;
        assert_eq!(punched, Err(Errno::EIO));
        assert_eq!(client.set_size(one, 5).await.err(), Some(Errno::EIO));
        client.close(one).await.expect("all that failed was told");
    });
    let span = world.now.since(begun);
    assert!(span < Duration::from_secs(10), "{span:?}");
    let report = world.files(0).report();
    assert_eq!(report.held_bytes, 0, "what cannot be kept is given up");
    let cx = world.names(0).0;
    let refused = cx.refusals();
    let (home, why) = refused.first_key_value().expect("what to tell people");
    assert_eq!((refused.len(), home.server), (1, NodeId(10)));
    assert!(why.starts_with("disk 0: ") && why.contains("missing"), "{why}");
    assert_eq!(cx.waits(), []);
}

/// Its machine started before the disk was mounted.
#[test]
fn what_a_server_may_have_lost_is_kept_until_it_serves_with_its_disk_again() {
    let mut world = World::new(1, 1);
    let client = world.client(0);
    let data = pattern(3, 0, 100_000);
    world.block_on(client.put(FileId::ROOT, b"f", &data)).expect("put");
    world.kill(10);
    world.lose_disk(10);
    world.start(10);
    world.run(Duration::from_secs(60));
    assert!(world.files(0).report().held_bytes > 0, "it is given up");
    world.kill(10);
    world.return_disk(10);
    world.start(10);
    world.run(Duration::from_secs(5));
    assert_eq!(world.files(0).report().held_bytes, 0);
    assert_eq!(world.block_on(client.get(FileId::ROOT, b"f")).expect("its bytes"), data);
}

#[test]
fn a_disk_that_went_missing_is_told_while_a_write_waits_for_it() {
    let mut world = World::new(1, 1);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", READ_WRITE)).expect("create");
    world.block_on(client.write(open, 0, &[1; 5_000])).expect("write");
    world.block_on(client.fsync(open)).expect("fsync");
    world.lose_disk(10);
    world.block_on(client.write(open, 0, &[2; 5_000])).expect("taken over");
    let mut synced = Box::pin(client.fsync(open));
    let mut poll = || synced.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    world.run(Duration::from_secs(2));
    assert!(poll().is_pending());
    let cx = world.names(0).0;
    let refused: Vec<String> = cx.refusals().into_values().collect();
    assert!(refused.len() == 1 && refused[0].contains("went missing"), "{refused:?}");
}

#[test]
fn a_stop_says_that_something_was_refused_of_which_nobody_was_told() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", WRITE_ONLY)).expect("create");
    world.run(Duration::from_secs(1));
    world.fill_disks(true);
    world.block_on(client.write(open, 0, &[1; 100_000])).expect("taken over");
    let (files, result) = (world.files(0), Rc::new(Cell::new(Ok(()))));
    let told = result.clone();
    world.block_on_node(100, async move { told.set(files.drain().await) });
    assert_eq!(result.get(), Err(Errno::ENOSPC));
}

/// Data that a close sent and no fsync covered is dropped with the file when another mount removes it: that is no loss.
#[test]
fn a_file_that_others_remove_takes_what_is_held_of_it_along() {
    for micros in (0..4000).step_by(50) {
        let mut world = World::new(3, 2);
        let (one, two) = (world.client(0), world.client(1));
        world.block_on(one.put(FileId::ROOT, b"f", &[1; 100_000])).expect("put");
        assert!(world.files(0).report().held_bytes > 0, "until it is committed");
        world.block_on(two.unlink(FileId::ROOT, b"f")).expect("unlink");
        world.run(Duration::from_micros(micros));
        let (files, result) = (world.files(0), Rc::new(Cell::new(Ok(()))));
        let told = result.clone();
        world.block_on_node(100, async move { told.set(files.drain().await) });
        assert_eq!(result.get(), Ok(()), "{micros} us after it was removed");
        let report = world.files(0).report();
        assert_eq!((report.held_bytes, report.lost_bytes), (0, 0));
    }
}

/// Whether the manager takes the file for one that is being written; `None`: it has removed it.
fn is_written(world: &mut World, file: FileId) -> Option<bool> {
    let (names, found) = (world.names(0).1, Rc::new(Cell::default()));
    let told = found.clone();
    world.block_on_node(100, async move {
        let entry = names.get_attr(file).await;
        told.set(entry.ok().map(|entry| entry.is_hint()));
    });
    found.get()
}

#[test]
fn what_a_close_could_not_end_is_ended_when_the_manager_is_back() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let patience = Duration::from_secs(10);
    let mut world = World::with(1, 2, Config { patience, files_max: 4, ..limits });
    let (client, other) = (world.client(0), world.client(1));
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 5_000])).expect("put");
    let gone = world.block_on(client.put(FileId::ROOT, b"gone", &[2; 5_000])).expect("put");
    let writer = world.block_on(client.open(file, READ_WRITE)).expect("open");
    let reader = world.block_on(client.open(gone, READ_ONLY)).expect("open");
    world.block_on(client.write(writer, 0, &[3; 6_000])).expect("write");
    world.block_on(client.fsync(writer)).expect("fsync");
    world.block_on(other.unlink(FileId::ROOT, b"gone")).expect("unlink");
    assert_eq!(is_written(&mut world, gone), Some(false), "it is open");
    world.kill(MANAGER);
    assert_eq!(world.block_on(client.close(writer)), Err(Errno::EIO));
    assert!(world.block_on(client.close(reader)).is_err());
    world.start(MANAGER);
    world.run(Duration::from_secs(60));
    assert_eq!(is_written(&mut world, file), Some(false), "its write session is left");
    assert_eq!(is_written(&mut world, gone), None, "an open of it is left");
    assert_eq!(world.block_on(other.stat(file)).map(|attr| attr.size), Ok(6_000));
    for number in 0..30 {
        let name = format!("n{number}").into_bytes();
        world.block_on(client.put(FileId::ROOT, &name, b"x")).expect("put");
        world.run(Duration::from_secs(1));
    }
    assert!(world.files(0).report().files <= 5, "files are never forgotten");
}

/// More files than there are loops have lost their copy at a server, and wait for the manager to begin a session again.
#[test]
fn what_waits_for_the_manager_keeps_nothing_else_from_the_servers() {
    let mut world = World::new(2, 1);
    let client = world.client(0);
    let name = |number: u64| format!("f{number}").into_bytes();
    let well = world.block_on(client.create(FileId::ROOT, b"well", READ_WRITE)).expect("create");
    world.block_on(client.fsync(well)).expect("the name is stable");
    for number in 0..40 {
        let content = pattern(number, 0, 5_000);
        world.block_on(client.put(FileId::ROOT, &name(number), &content)).expect("put");
    }
    world.kill(MANAGER);
    (10..12).for_each(|id| world.restart(id));
    world.run(Duration::from_secs(2));
    assert!(world.files(0).report().unsent_bytes > 0, "the servers forgot them");
    let start = world.now;
    world.block_on(client.write(well, 0, &[7; 5_000])).expect("taken over");
    assert_eq!(world.block_on(client.fsync(well)), Ok(()));
    assert!(world.now.since(start) < Duration::from_secs(2), "{:?}", world.now.since(start));
    world.start(MANAGER);
    world.run(Duration::from_secs(20));
    let report = world.files(0).report();
    assert_eq!((report.held_bytes, report.lost_bytes), (0, 0));
    for number in 0..40 {
        let found = world.block_on(client.get(FileId::ROOT, &name(number)));
        assert!(found == Ok(pattern(number, 0, 5_000)), "file {number}");
    }
}

/// Another client writes, and the servers that know how long the file is are away: what the manager did is done.
#[test]
fn a_change_that_was_made_is_told_although_the_length_is_not_known() {
    let mut world = World::new(1, 2);
    let (client, writer) = (world.client(0), world.client(1));
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 9_000])).expect("put");
    world.block_on(writer.open(file, READ_WRITE)).expect("open");
    world.kill(10);
    let linked = world.block_on(client.link(file, FileId::ROOT, b"g"));
    assert_eq!(linked.map(|attr| attr.links), Ok(2));
    assert_eq!(world.block_on(client.link(file, FileId::ROOT, b"g")), Err(Errno::EEXIST));
    let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let changed = world.block_on(client.set_attr(file, None, changes));
    assert_eq!(changed.map(|attr| attr.mode & 0o777), Ok(0o600));
    assert!(world.block_on(client.stat(file)).is_err(), "who asks for the length hears of it");
    world.start(10);
    assert_eq!(world.block_on(client.stat(file)).map(|attr| attr.size), Ok(9_000));
}

/// More is read ahead of a server that is away than there are loops for it: readers of another are served all the same.
#[test]
fn who_reads_ahead_of_a_server_that_is_away_keeps_nobody_else_waiting() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let mut world = World::with(2, 1, Config { ahead_bytes_max: 8 * MIB as u64, ..limits });
    let (client, names, content) = (world.client(0), world.names(0).1, pattern(5, 0, MIB));
    let mut opens = Vec::new();
    for number in 0..11u16 {
        let name = format!("d{number}");
        let directory = world.block_on(client.make_directory(FileId::ROOT, name.as_bytes()));
        let directory = directory.expect("mkdir");
        let servers = vec![NodeId(if number < 10 { 10 } else { 11 })];
        let (names, policy) = (names.clone(), Policy { servers, ..Policy::default() });
        world.block_on_node(100, async move {
            names.set_directory_layout(&Who::ROOT, directory, policy).await.expect("a layout");
        });
        let file = world.block_on(client.put(directory, b"f", &content)).expect("put");
        world.run(Duration::from_secs(1));
        opens.push(world.block_on(client.open(file, READ_ONLY)).expect("open"));
    }
    world.kill(10);
    let (well, bytes) = (opens.pop().expect("the last"), 64 << 10);
    let mut reads: Vec<_> =
        opens.iter().map(|open| Box::pin(client.read(*open, 0, bytes))).collect();
    for read in &mut reads {
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    world.run(Duration::from_millis(10));
    let start = world.now;
    for at in (0..MIB).step_by(bytes) {
        let found = world.block_on(client.read(well, at as u64, bytes));
        assert!(found.expect("read") == content[at..at + bytes]);
    }
    assert!(world.now.since(start) < Duration::from_secs(2), "{:?}", world.now.since(start));
    assert!(world.files(0).report().ahead_bytes > 0, "the well one is read ahead");
}

/// A truncation through it took for ever, and the writer of the file waited for that.
#[test]
fn a_file_with_a_block_that_cannot_be_read_is_cut_written_and_removed() {
    let mut world = World::new(1, 2);
    let one = world.client(0);
    let file = world.block_on(one.put(FileId::ROOT, b"f", &pattern(1, 0, 300_000))).expect("put");
    world.run(Duration::from_secs(2));
    world.restart(10); // what the log has is in place now
    world.run(Duration::from_secs(1));
    world.damage(10, 5);
    world.restart(10);
    let (client, begun) = (world.client(1), world.now);
    world.block_on(async {
        let open = client.open(file, READ_WRITE).await.expect("open");
        assert_eq!(client.read(open, 20_480, 4096).await, Err(Errno::EIO));
        client.set_size(open, 21_480).await.expect("a cut through it");
        client.write(open, 40_960, &[7; 5000]).await.expect("write");
        client.fsync(open).await.expect("fsync");
        assert_eq!(client.read(open, 0, 20_480).await, Ok(pattern(1, 0, 20_480)));
        assert_eq!(client.read(open, 20_480, 4096).await, Err(Errno::EIO));
        assert_eq!(client.read(open, 24_576, 16_384).await, Ok(vec![0; 16_384]));
        client.write(open, 20_480, &[8; 4096]).await.expect("written over");
        client.fsync(open).await.expect("fsync");
        assert_eq!(client.read(open, 20_480, 4096).await, Ok(vec![8; 4096]));
        client.set_size(open, 0).await.expect("emptied");
        client.close(open).await.expect("close");
        client.unlink(FileId::ROOT, b"f").await.expect("unlink");
    });
    let took = world.now.since(begun);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
