//! How many messages operations take, how much memory, and what a clean stop leaves.

mod common;

use common::{CLIENT_PAGES, MANAGER, World};
use files::Config;
use files::conformance::client::Ask;
use files::conformance::client::{READ_ONLY, READ_WRITE, WRITE_ONLY, pattern};
use names::{Policy, Who};
use node::rings::{FileOp, FileReply};
use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;
use wire::{Errno, FileId, NodeId, SetAttr};

const MIB: usize = 1 << 20;

/// Messages that `body` takes, requests and replies.
fn messages<T>(world: &mut World, body: impl Future<Output = T>) -> (u64, T) {
    let before = world.packets;
    let value = world.block_on(body);
    (world.packets - before, value)
}

#[test]
fn a_small_file_takes_three_calls() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    world.block_on(async {
        for number in 0..6 {
            let name = format!("warm {number}");
            client.put(FileId::ROOT, name.as_bytes(), &[1; 100_000]).await.expect("put");
        }
    });
    world.run(Duration::from_secs(2));
    let put = client.put(FileId::ROOT, b"small", &[7; 4096]);
    let (count, result) = messages(&mut world, put);
    result.expect("put");
    assert_eq!(count, 6, "create, one write, close");
    let get = client.get(FileId::ROOT, b"small");
    let (count, result) = messages(&mut world, get);
    assert_eq!(result, Ok(vec![7; 4096]));
    assert_eq!(count, 2 * 3, "lookup, open, close: the bytes are still here");
    let commits = world.files(0).report().commits;
    world.run(Duration::from_secs(1));
    assert_eq!(world.files(0).report().commits, commits + 1);
    assert_eq!(world.files(0).report().held_bytes, 0, "stable within a second");
    let get = client.get(FileId::ROOT, b"small");
    assert_eq!(messages(&mut world, get).0, 2 * 4);
}

#[test]
fn an_fsync_of_one_write_takes_one_call_to_each_server() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 200_000])).expect("put");
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(client.fsync(open)).expect("fsync");
    let commits = world.files(0).report().commits;
    for (offset, bytes, calls) in [(8192, 8192, 1), (30_000, 8192, 2), (0, 200_000, 3)] {
        let (taken, synced) = messages(&mut world, async {
            client.write(open, offset, &vec![2; bytes]).await.expect("write");
            client.fsync(open).await
        });
        assert_eq!((taken, synced), (2 * calls, Ok(())), "{bytes} bytes at {offset}");
    }
    assert_eq!(world.files(0).report().commits, commits);
    assert_eq!(world.files(0).report().held_bytes, 0);
    world.block_on(client.write(open, 0, b"two")).expect("write");
    world.block_on(client.write(open, 100_000, b"pieces")).expect("write");
    world.block_on(client.fsync(open)).expect("fsync");
    assert_eq!(world.files(0).report().commits, commits + 1, "a commit for both");
}

#[test]
fn random_reads_take_one_call_and_sequential_ones_find_their_bytes() {
    let mut world = World::new(4, 1);
    let client = world.client(0);
    let content = pattern(1, 0, 8 * MIB);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
    world.run(Duration::from_secs(2));
    let open = world.block_on(client.open(file, READ_ONLY)).expect("open");
    for block in [900u64, 17, 333, 18, 600, 4, 1001, 5] {
        let (count, bytes) = messages(&mut world, client.read(open, block * 8192, 8192));
        assert!(bytes.expect("read") == content[block as usize * 8192..][..8192]);
        assert_eq!(count, 2, "block {block}");
    }
    assert_eq!(world.files(0).report().ahead_bytes, 0);
    world.block_on(async {
        for at in (0..8 * MIB).step_by(128 << 10) {
            let bytes = client.read(open, at as u64, 128 << 10).await.expect("read");
            assert!(bytes == content[at..at + (128 << 10)]);
        }
    });
    let report = world.files(0).report();
    assert!(report.ahead_bytes as usize > 7 * MIB, "{} bytes read ahead", report.ahead_bytes);
    assert!(report.ahead_bytes as usize <= 8 * MIB, "nothing is read ahead twice");
    world.block_on(client.close(open)).expect("close");
    assert_eq!(world.files(0).report().ahead_held_bytes, 0);
}

#[test]
fn a_fast_writer_is_held_within_its_memory() {
    let (unsent, held) = (MIB as u64, 2 * MIB as u64);
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let config = Config { unsent_bytes_max: unsent, held_bytes_max: held, ..limits };
    let mut world = World::with(3, 1, config);
    let client = world.client(0);
    let content = pattern(3, 0, 12 * MIB);
    let most = Cell::new(0);
    let write = async {
        let open = client.create(FileId::ROOT, b"f", WRITE_ONLY).await.expect("create");
        for (index, part) in content.chunks(64 << 10).enumerate() {
            client.write(open, (index as u64) << 16, part).await.expect("write");
        }
        client.close(open).await.expect("close");
    };
    world.block_on_with(write, |world| {
        let report = world.files(0).report();
        assert!(report.unsent_bytes <= unsent);
        most.set(most.get().max(report.held_bytes));
    });
    assert!(most.get() <= held, "{} bytes held", most.get());
    assert!(most.get() > held / 4, "the memory is used");
    assert!(world.block_on(client.get(FileId::ROOT, b"f")) == Ok(content));
}

/// Blocks written here and there, several times what the client may hold: each is one send of its own.
#[test]
fn a_writer_of_scattered_blocks_goes_on() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let mut world = World::with(1, 1, limits);
    let client = world.client(0);
    let (blocks, mut at) = (3 * CLIENT_PAGES as u64, 1u64);
    let block = pattern(3, 0, 4096);
    world.block_on(async {
        let open = client.create(FileId::ROOT, b"f", WRITE_ONLY).await.expect("create");
        for _ in 0..blocks {
            at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(11);
            let number = (at >> 33) % (2 * blocks);
            client.write(open, number * 4096, &block).await.expect("write");
        }
        client.close(open).await.expect("close");
    });
}

#[test]
fn a_clean_stop_leaves_everything_stable_and_closed() {
    let mut world = World::new(3, 2);
    let (one, two) = (world.client(0), world.client(1));
    let content = pattern(9, 0, 500_000);
    world.block_on(async {
        let open = one.create(FileId::ROOT, b"f", READ_WRITE).await.expect("create");
        one.write(open, 0, &content).await.expect("write");
    });
    let files = world.files(0);
    world.block_on_node(100, async move { files.drain().await.expect("drain") });
    let report = world.files(0).report();
    assert_eq!((report.held_bytes, report.handles), (0, 0));
    world.kill(100);
    (10..13).for_each(|id| world.restart(id));
    let attr = world.block_on(two.lookup(FileId::ROOT, b"f")).expect("lookup");
    assert_eq!(attr.size, content.len() as u64);
    assert!(world.block_on(two.get(FileId::ROOT, b"f")) == Ok(content));
}

#[test]
fn a_hole_in_the_pool_is_waited_out() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let content = pattern(2, 0, 200_000);
    world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
    world.run(Duration::from_secs(2));
    let mut hogs: Vec<_> = std::iter::from_fn(|| client.frames.alloc(4096)).collect();
    // Some room is left for the manager's answers.
    hogs.truncate(hogs.len() - 8);
    let turns = Cell::new(0);
    let hogs = Cell::new(Some(hogs));
    let read = world.block_on_with(client.get(FileId::ROOT, b"f"), |_| {
        turns.set(turns.get() + 1);
        if turns.get() == 500 {
            hogs.take();
        }
    });
    assert!(read == Ok(content));
    assert!(world.files(0).report().waits_for_frames > 0);
}

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

/// What was closed is lost while nobody has the file open: who opens it next and syncs it is told, once.
#[test]
fn a_loss_after_the_last_close_is_told_to_who_opens_the_file_next() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &pattern(2, 0, 9_000))).expect("put");
    world.run(Duration::from_secs(2));
    world.fill_disks(true);
    let one = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(client.write(one, 0, &[1; 100_000])).expect("taken over");
    assert_eq!(world.block_on(client.close(one)), Ok(()), "the servers have it in memory");
    world.run(Duration::from_secs(10));
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

/// What a close sent and nobody synced is dropped with the file when another mount removes it: that is no loss.
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

/// Two processes make a file longer at once: it becomes as long as either asked for.
#[test]
fn a_file_that_is_extended_twice_at_once_is_as_long_as_the_longer() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", READ_WRITE)).expect("create");
    let sizes = [10 * MIB as u64, MIB as u64];
    let both = node::all(sizes.map(|size| client.allocate(open, 0, size, 0)));
    assert_eq!(world.block_on(both), [Ok(()), Ok(())]);
    assert_eq!(world.block_on(client.stat(open.file)).expect("stat").size, sizes[0]);
}

#[test]
fn two_sequential_readers_of_one_file_take_nothing_from_each_other() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let content = pattern(4, 0, 16 * MIB);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
    world.run(Duration::from_secs(2));
    world.block_on(async {
        let one = client.open(file, READ_ONLY).await.expect("open");
        let two = client.open(file, READ_ONLY).await.expect("open");
        for at in (0..8 * MIB).step_by(128 << 10) {
            for (open, at) in [(one, at), (two, at + 8 * MIB)] {
                let bytes = client.read(open, at as u64, 128 << 10).await.expect("read");
                assert!(bytes == content[at..at + (128 << 10)]);
            }
        }
    });
    let ahead = world.files(0).report().ahead_bytes as usize;
    assert!(ahead > 14 * MIB && ahead <= 17 * MIB, "{ahead} bytes read ahead of 16 MiB");
}

/// Ten readers stop in the middle and keep their files open.
#[test]
fn who_stopped_reading_keeps_no_room_from_who_reads() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let mut files = Vec::new();
    for number in 0..10 {
        let (name, content) = (format!("f{number}"), pattern(number, 0, 4 * MIB));
        let put = client.put(FileId::ROOT, name.as_bytes(), &content);
        files.push(world.block_on(put).expect("put"));
        world.run(Duration::from_secs(1));
    }
    for file in &files {
        world.block_on(async {
            let open = client.open(*file, READ_ONLY).await.expect("open");
            client.read(open, 0, 128 << 10).await.expect("read");
        });
    }
    world.run(Duration::from_secs(2));
    let before = world.files(0).report();
    let most = Config::for_pool(CLIENT_PAGES * 4096).ahead_bytes_max;
    assert!(before.ahead_held_bytes + (256 << 10) > most, "no room is left");
    world.block_on(async {
        let open = client.open(files[9], READ_ONLY).await.expect("open");
        for at in (0..4 * MIB).step_by(128 << 10) {
            client.read(open, at as u64, 128 << 10).await.expect("read");
        }
    });
    let ahead = world.files(0).report().ahead_bytes - before.ahead_bytes;
    assert!(ahead as usize > 3 * MIB, "{ahead} bytes read ahead of 4 MiB");
}

/// More is read ahead at once than there are loops for it, so it waits; then somebody changes the last of the files.
#[test]
fn a_read_does_not_wait_for_what_will_not_be_read_ahead_any_more() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let mut world = World::with(1, 2, Config { ahead_bytes_max: 8 * MIB as u64, ..limits });
    let (client, other, content) = (world.client(0), world.client(1), pattern(5, 0, MIB));
    let mut opens = Vec::new();
    for number in 0..12 {
        let name = format!("f{number}");
        let put = client.put(FileId::ROOT, name.as_bytes(), &content);
        let file = world.block_on(put).expect("put");
        world.run(Duration::from_secs(1));
        opens.push(world.block_on(client.open(file, READ_ONLY)).expect("open"));
    }
    world.kill(10);
    let (last, bytes) = (opens[11], 64 << 10);
    let later = 256 << 10;
    let mut reads: Vec<_> = opens.iter().map(|open| (*open, 0)).collect();
    reads.push((last, later as u64));
    let mut reads: Vec<_> =
        reads.iter().map(|(open, at)| Box::pin(client.read(*open, *at, bytes))).collect();
    for read in &mut reads {
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        world.run(Duration::from_millis(1));
    }
    let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.block_on(other.set_attr(last.file, None, changes)).expect("chmod");
    world.run(Duration::from_secs(2));
    assert_eq!(world.block_on(client.stat(last.file)).expect("stat").mode & 0o777, 0o600);
    world.start(10);
    let start = world.now;
    let found = world.block_on(node::all(reads));
    assert!(found.iter().all(|read| read.as_ref().is_ok_and(|data| data.len() == bytes)));
    assert!(found[12].as_ref().unwrap()[..] == content[later..later + bytes]);
    assert!(world.now.since(start) < Duration::from_secs(60));
}

/// A front can take so many pieces of one answer only (`live::fuse`: 1,023).
#[test]
fn many_small_writes_are_read_in_few_pieces() {
    let mut world = World::new(1, 1);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", READ_WRITE)).expect("create");
    let content = pattern(1, 0, 70_000);
    let crumbs = content.chunks(100).enumerate();
    let writes = crumbs.map(|(number, crumb)| client.write(open, number as u64 * 100, crumb));
    assert!(world.block_on(node::all(writes)).iter().all(Result::is_ok));
    let (file, handle, bytes) = (open.file, open.handle, content.len() as u32);
    let read = FileOp::Read { file, handle, offset: 0, bytes };
    let reply = world.block_on(client.ask.ask(client.caller, read)).expect("read");
    let FileReply::Data { frames, .. } = reply else { panic!("{reply:?}") };
    assert!(frames.len() <= 256, "{} pieces", frames.len());
    assert!(frames.iter().flat_map(|frame| frame.iter()).eq(content.iter()));
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

#[test]
fn a_file_that_another_client_made_longer_is_not_cut_by_extending_it() {
    let mut world = World::new(3, 2);
    let (client, other) = (world.client(0), world.client(1));
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 1000])).expect("put");
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(client.stat(file)).expect("stat").size, 1000);
    let content = pattern(5, 0, 2 * MIB);
    world.block_on(other.put(FileId::ROOT, b"f", &content)).expect("put");
    assert_eq!(world.block_on(client.allocate(open, 0, MIB as u64, 0)), Ok(()));
    assert_eq!(world.block_on(client.stat(file)).expect("stat").size, content.len() as u64);
    assert!(world.block_on(other.get(FileId::ROOT, b"f")) == Ok(content));
}

/// What a kernel asks before it writes; not even a manager that is away may keep a write waiting.
#[test]
fn an_open_file_is_known_to_have_no_capability_until_it_is_given_one() {
    const NAME: &[u8] = b"security.capability";
    let mut world = World::new(1, 2);
    let (client, other) = (world.client(0), world.client(1));
    let new = world.block_on(client.create(FileId::ROOT, b"new", READ_WRITE)).expect("create");
    let old = world.block_on(other.put(FileId::ROOT, b"old", b"x")).expect("put");
    let old = world.block_on(client.open(old, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(client.get_xattr(old.file, NAME)), Err(Errno::ENODATA));
    world.kill(MANAGER);
    for file in [new.file, old.file] {
        let (asked, found) = messages(&mut world, client.get_xattr(file, NAME));
        assert_eq!((asked, found), (0, Err(Errno::ENODATA)));
    }
    world.start(MANAGER);
    world.block_on(client.set_xattr(new.file, NAME, b"mine", 0)).expect("set");
    assert_eq!(world.block_on(client.get_xattr(new.file, NAME)), Ok(b"mine".to_vec()));
    world.block_on(other.set_xattr(old.file, NAME, b"theirs", 0)).expect("set");
    world.run(Duration::from_secs(2));
    world.block_on(client.stat(old.file)).expect("stat");
    assert_eq!(world.block_on(client.get_xattr(old.file, NAME)), Ok(b"theirs".to_vec()));
    world.block_on(other.remove_xattr(old.file, NAME)).expect("remove");
    world.block_on(client.close(old)).expect("close");
    assert_eq!(world.block_on(client.get_xattr(old.file, NAME)), Err(Errno::ENODATA));
    let (asked, _) = messages(&mut world, client.get_xattr(old.file, NAME));
    assert_eq!(asked, 2, "nobody has it open");
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

/// A truncation through it took for ever, and whoever wrote the file waited for that.
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
