//! How many messages operations take, how much memory, and what a clean stop leaves.

use crate::common::{CLIENT_PAGES, MANAGER, World, messages};
use files::Config;
use files::conformance::client::{Ask, READ_ONLY, READ_WRITE, WRITE_ONLY, pattern};
use node::rings::{DirectoryEntry, FileOp, FileReply};
use std::cell::Cell;
use std::task::{Context, Waker};
use std::time::Duration;
use wire::{Errno, FileId, SetAttr};

const MIB: usize = 1 << 20;

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

/// More is read ahead at once than there are loops for it, so it waits; then another client changes the last file.
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

/// A kernel asks for it before it writes; not even a manager that is away may keep a write waiting.
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

/// Another client that still has the file open has written and synced it after it was read ahead here.
#[test]
fn what_one_open_file_read_ahead_does_not_hide_from_the_next_open_what_others_have_synced_since() {
    let mut world = World::new(3, 2);
    let (one, other) = (world.client(0), world.client(1));
    let file = world.block_on(other.put(FileId::ROOT, b"f", &pattern(1, 0, 8 * MIB))).expect("put");
    let first = world.block_on(one.open(file, READ_ONLY)).expect("open");
    for chunk in 0..8 {
        world.block_on(one.read(first, chunk * 131_072, 131_072)).expect("read");
    }
    world.run(Duration::from_millis(20));
    assert!(world.files(0).report().ahead_held_bytes > 0, "something is read ahead");
    let new = pattern(99, 0, 7 * MIB);
    world.block_on(async {
        let shared = other.open(file, READ_WRITE).await.expect("open");
        other.write(shared, MIB as u64, &new).await.expect("write");
        other.fsync(shared).await.expect("sync");
    });
    let next = world.block_on(one.open(file, READ_ONLY)).expect("open");
    let read = world.block_on(one.read(next, MIB as u64, MIB)).expect("read");
    assert!(read == new[..MIB]);
}

/// NFS servers list directories of which they open nothing, and have files open that they write to.
#[test]
fn a_listing_of_a_closed_directory_keeps_nothing_and_shows_what_was_written_here() {
    let mut world = World::new(2, 2);
    let (client, other) = (world.client(0), world.client(1));
    let d = world.block_on(async {
        let d = other.make_directory(FileId::ROOT, b"d").await.unwrap();
        for number in 0..100 {
            other.put(d, format!("f{number}").as_bytes(), &[1; 100]).await.unwrap();
        }
        d
    });
    world.run(Duration::from_secs(3));
    let size = |listed: &[DirectoryEntry], name: &[u8]| {
        let entry = listed.iter().find(|entry| *entry.name == *name).expect("it is listed");
        entry.attr.map(|attr| attr.size)
    };
    world.block_on(client.stat(d)).unwrap();
    let before = world.files(0).report().files;
    let listed = world.block_on(client.list_closed(d)).unwrap();
    assert_eq!((listed.len(), size(&listed, b"f7")), (102, Some(100)));
    assert_eq!(world.files(0).report().files, before, "nothing is kept");
    world.block_on(async {
        let file = client.lookup(d, b"f7").await.unwrap().file;
        let open = client.open(file, READ_WRITE).await.unwrap();
        client.write(open, 0, &[2; 5_000]).await.unwrap();
        let listed = client.list_closed(d).await.unwrap();
        assert_eq!(size(&listed, b"f7"), Some(5_000), "the manager does not know it yet");
        let listed = other.list_closed(d).await.unwrap();
        assert_eq!(size(&listed, b"f7"), None, "a hint is none");
        client.close(open).await.unwrap();
        for client in [&client, &other] {
            let listed = client.list_closed(d).await.unwrap();
            assert_eq!(size(&listed, b"f7"), Some(5_000));
        }
    });
}
