//! Long reads that are answered while the disk still reads.

use crate::common::*;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use stripe::{FileRef, ServerCounters};
use wire::Errno;

const BYTES: usize = 1 << 20;

/// A file of [`BYTES`] bytes and some more that only the disk of server 1 has.
fn cold(seed: u64) -> (World, FileRef) {
    let mut world = World::with(1, 1, seed, small);
    let file = world.file(5);
    world.write(&file, 0, &pattern(1, BYTES)).unwrap();
    world.write(&file, BYTES as u64, &pattern(2, 700_000)).unwrap();
    world.commit(&file).unwrap();
    world.forget_memory();
    world.disk_turns = 4;
    (world, file)
}

fn counters(world: &World) -> ServerCounters {
    world.servers[0].server.as_ref().unwrap().counters()
}

type Reading = Rc<RefCell<Option<Result<Vec<u8>, Errno>>>>;

fn start(world: &mut World, file: FileRef, bytes: usize) -> Reading {
    let (client, into) = (world.client.clone(), world.cx().frames().alloc_exact(bytes).unwrap());
    world.start(async move { client.read(&file, 0, into).await.map(|data| data.to_vec()) })
}

#[test]
fn a_long_read_leaves_part_by_part() {
    for bytes in [300 << 10, BYTES - 5000, BYTES] {
        let (mut world, file) = cold(bytes as u64);
        assert_eq!(world.read(&file, 0, bytes).unwrap(), pattern(1, BYTES)[..bytes]);
        let (whole, found) = (bytes.is_multiple_of(4096), counters(&world));
        assert_eq!(found.cut_through, u64::from(whole), "{bytes} bytes");
        assert_eq!(world.client.counters().damaged_reads, 0);
        assert_eq!(world.read(&file, 0, bytes).unwrap(), pattern(1, BYTES)[..bytes]);
        assert_eq!(counters(&world).misses, 1, "all of it is in memory");
    }
}

#[test]
fn the_end_of_an_object_that_is_no_whole_block_is_read_too() {
    let (mut world, file) = cold(1);
    let found = world.read(&file, BYTES as u64, 700_000).unwrap();
    assert_eq!(found, pattern(2, 700_000));
    assert_eq!(counters(&world).cut_through, 1);
}

#[test]
fn a_damaged_block_in_a_later_part_is_an_error_and_not_data() {
    let (mut world, file) = cold(1);
    let at = stripe::object::data_offset(200) as usize + 17;
    world.servers[0].disks[0].bytes_mut(World::object(5, 0))[at] ^= 1;
    world.disk_turns = 1;
    assert_eq!(world.read(&file, 0, BYTES), Err(Errno::EIO));
    assert_eq!((counters(&world).cut_through, world.client.counters().damaged_reads), (1, 1));
    assert!(world.servers[0].server.as_ref().unwrap().problems()[0].contains("block 200"));
    assert_eq!(world.read(&file, 0, 800 << 10).unwrap(), pattern(1, BYTES)[..800 << 10]);
}

#[test]
fn what_is_written_in_between_is_read_old_or_new_block_by_block() {
    let mut begun = 0;
    for seed in 1..=20 {
        let (mut world, file) = cold(seed);
        let reading = start(&mut world, file, BYTES);
        world.turns(seed as usize % 7);
        let new = pattern(3, 64 << 10);
        world.write(&file, 900 << 10, &new).unwrap();
        world.commit(&file).unwrap();
        world.until(|| reading.borrow().is_some());
        let (found, old) = (reading.take().unwrap().unwrap(), pattern(1, BYTES));
        let mut wanted = old.clone();
        wanted[900 << 10..964 << 10].copy_from_slice(&new);
        for (block, bytes) in found.chunks(4096).enumerate() {
            let at = block * 4096..(block + 1) * 4096;
            assert!(bytes == &old[at.clone()] || bytes == &wanted[at], "seed {seed}, {block}");
        }
        assert_eq!(world.read(&file, 0, BYTES).unwrap(), wanted, "seed {seed}");
        begun += counters(&world).cut_through;
    }
    assert!(begun > 0);
}

#[test]
fn a_disk_that_stands_still_spoils_the_answer_and_not_the_data() {
    let (mut begun, mut spoilt) = (0, 0);
    for seed in 1..=30 {
        let (mut world, file) = cold(seed);
        world.disk_turns = 160; // up to 32 ms
        assert_eq!(world.read(&file, 0, BYTES).unwrap(), pattern(1, BYTES), "seed {seed}");
        begun += counters(&world).cut_through;
        spoilt += world.client.counters().damaged_reads;
    }
    assert!(begun < 30, "an answer begins only when the disk is fast");
    assert!((1..=begun).contains(&spoilt), "{spoilt} of {begun} were spoilt");
}

/// The parts before it are in memory by then: an answer that could begin again would be spoilt each time, and what is
/// only late would be an error.
#[test]
fn a_disk_that_is_long_about_a_later_part_is_waited_for() {
    let (mut world, file) = cold(1);
    world.disk_turns = 1;
    world.stall = Some((stripe::object::data_offset(192), Duration::from_millis(500)));
    assert_eq!(world.read(&file, 0, BYTES).unwrap(), pattern(1, BYTES));
    assert_eq!((counters(&world).cut_through, world.client.counters().damaged_reads), (1, 1));
}

#[test]
fn a_server_that_dies_in_between_is_asked_again() {
    for turns in 0..8 {
        let (mut world, file) = cold(1);
        let reading = start(&mut world, file, BYTES);
        world.turns(turns);
        world.servers[0].kill();
        world.until(|| reading.borrow().is_some());
        assert_eq!(reading.take().unwrap().unwrap(), pattern(1, BYTES), "{turns} turns");
    }
}
