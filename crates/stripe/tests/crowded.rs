//! More is asked for at once than the cache holds: all requests are served all the same.

use crate::common::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use stripe::{FileRef, ServerConfig};
use wire::{Errno, NodeId};

const FILES: u64 = 20;
/// Two windows.
const BYTES: usize = 512 << 10;
/// Three times what a disk that does one operation a turn needs when nothing is read twice: what all ask for at once
/// is read window by window, and something to find each object.
const TURNS_MAX: usize = 3 * FILES as usize * 4;

/// Two windows fit, or a chunk of sixteen; requests of all files are executed at once.
fn tiny(server: NodeId) -> ServerConfig {
    ServerConfig { slots: 32, cache_bytes: 560 << 10, ..small(server) }
}

/// Files that only the disk has, swept from now on.
fn cold() -> (World, Vec<FileRef>) {
    let mut world = World::with(1, 1, 1, tiny);
    let files: Vec<FileRef> = (0..FILES).map(|number| world.file(number)).collect();
    for file in &files {
        world.write(file, 0, &pattern(file.file.0, BYTES)).unwrap();
        world.commit(file).unwrap();
    }
    world.forget_memory();
    world.sweep = true;
    (world, files)
}

type Slot<T> = Rc<RefCell<Option<Result<T, Errno>>>>;

/// All operations have ended well, before too many turns.
fn all_end<T>(world: &mut World, started: &[Slot<T>]) {
    for _ in 0..TURNS_MAX {
        world.turn();
    }
    let ended = started.iter().filter(|slot| matches!(*slot.borrow(), Some(Ok(_)))).count();
    assert_eq!(ended, started.len(), "so many have ended, of so many");
}

/// Reads that end within a block are answered in one piece.
#[test]
fn long_reads_end_although_the_cache_holds_none_of_them_for_long() {
    let (mut world, files) = cold();
    let bytes = BYTES - 100;
    let read = |file: &FileRef| {
        let (client, file) = (world.client.clone(), *file);
        let into = world.cx().frames().alloc_exact(bytes).unwrap();
        (file, async move { client.read(&file, 0, into).await.map(|data| data.to_vec()) })
    };
    let reads: Vec<_> = files.iter().map(read).collect();
    let started: Vec<_> = reads.into_iter().map(|(file, read)| (file, world.start(read))).collect();
    let slots: Vec<_> = started.iter().map(|(_, slot)| slot.clone()).collect();
    all_end(&mut world, &slots);
    for (file, slot) in started {
        let found = slot.take().unwrap().unwrap();
        assert!(found == pattern(file.file.0, BYTES)[..bytes], "file {}", file.file.0);
    }
}

#[test]
fn writes_between_block_borders_end_although_the_cache_holds_no_edge_for_long() {
    let (mut world, files) = cold();
    let (new, at) = (pattern(99, 5000), (256 << 10) - 2500);
    let write = |file: &FileRef| {
        let (client, file) = (world.client.clone(), *file);
        let data = data(&world.cx(), &new);
        async move { client.write(&file, at as u64, data, stripe::Write::Unstable).await }
    };
    let writes: Vec<_> = files.iter().map(write).collect();
    let started: Vec<_> = writes.into_iter().map(|write| world.start(write)).collect();
    all_end(&mut world, &started);
    world.sweep = false;
    for file in &files {
        let mut wanted = pattern(file.file.0, BYTES);
        wanted[at..at + new.len()].copy_from_slice(&new);
        assert!(world.read(file, 0, BYTES).unwrap() == wanted, "file {}", file.file.0);
    }
}

/// A client commits another block of the object again and again, faster than the disk answers; once in the same group
/// of checksums, once in another.
#[test]
fn a_read_ends_although_others_go_on_committing() {
    for (read, other) in [(100 * 4096, 200 * 4096), (5 << 20, 200 * 4096)] {
        let mut world = World::with(1, 1, 1, small);
        let (file, bytes) = (world.file(5), pattern(5, 6 << 20));
        for at in (0..bytes.len()).step_by(1 << 20) {
            world.write(&file, at as u64, &bytes[at..at + (1 << 20)]).unwrap();
        }
        world.commit(&file).unwrap();
        world.forget_memory();
        world.write(&file, other, &[1; 4096]).unwrap();
        world.commit(&file).unwrap();
        world.stall = Some((0, Duration::from_millis(30)));
        let (client, into) = (world.client.clone(), world.cx().frames().alloc_exact(4096));
        let reading =
            world.start(async move { client.read(&file, read as u64, into.unwrap()).await });
        for round in 0..50 {
            world.write(&file, other, &[round; 4096]).unwrap();
            world.commit(&file).unwrap();
            world.turns(20);
        }
        let found = reading.take().expect("it has ended").unwrap();
        assert!(found[..] == bytes[read..read + 4096], "block at {read}");
    }
}

/// A COMMIT that comes while another is under way waits for that one, and not for what is written after it.
#[test]
fn a_commit_waits_for_nothing_that_was_written_after_it() {
    let mut world = World::with(1, 1, 1, small);
    let (file, mib) = (world.file(5), pattern(5, 1 << 20));
    world.write(&file, 0, &mib).unwrap();
    world.disk_turns = 100;
    let first = world.start_commit(&file);
    world.turns(3);
    let second = world.start_commit(&file);
    world.turns(1);
    world.write(&file, 1 << 20, &mib[..200_000]).unwrap();
    assert!(first.borrow().is_none(), "it is still under way");
    world.until(|| second.borrow().is_some());
    assert!(first.take().unwrap().is_ok() && second.take().unwrap().is_ok());
    assert!(world.servers[0].server.as_ref().unwrap().counters().dirty_bytes > 0);
    world.servers[0].crash();
    world.turns(50);
    assert!(world.read(&file, 0, 1 << 20).unwrap() == mib);
}

/// Of 16 MiB of memory 4 are not for the cache.
fn roomy(server: NodeId) -> ServerConfig {
    ServerConfig { cache_bytes: 12 << 20, ..small(server) }
}

/// Writes as long as a column's part of 1 MiB over three, and longest ones of which a block is read again and again:
/// neither what a length has to a power of two nor one block may keep the memory of a whole write.
#[test]
fn long_writes_find_memory_beside_a_full_cache() {
    for bytes in [352 << 10, 1 << 20] {
        let mut world = World::with(1, 1, 1, roomy);
        let (file, data) = (world.file(5), pattern(5, bytes));
        for write in 0..48 {
            world.write(&file, (write * bytes) as u64, &data).unwrap();
            world.commit(&file).unwrap();
            for earlier in 0..=write {
                let block = world.read(&file, (earlier * bytes) as u64, 4096).unwrap();
                assert!(block == data[..4096], "write {earlier} of {bytes} bytes");
            }
        }
    }
}
