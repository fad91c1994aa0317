//! Scrub: damage that nothing else reads is found and named, and what is right is left alone.

use crate::common::*;
use node::rings::{DiskFile, DiskOp};
use std::time::Duration;
use stripe::object::data_offset;
use stripe::{FileRef, Scrubbed, ServerConfig};
use wire::{Errno, NodeId};

/// Two windows and a bit.
const BYTES: usize = 600_000;

fn often(server: NodeId) -> ServerConfig {
    ServerConfig { scrub: Some(Duration::from_secs(2)), ..small(server) }
}

fn settled(count: u64) -> (World, Vec<FileRef>) {
    let mut world = World::with(1, 1, 1, often);
    let files: Vec<FileRef> = (1..=count).map(|file| world.single(file)).collect();
    for file in &files {
        world.write(file, 0, &pattern(file.file.0, BYTES)).unwrap();
        world.commit(file).unwrap();
    }
    world.flush(0);
    (world, files)
}

fn scrubbed(world: &World) -> Scrubbed {
    world.servers[0].server.as_ref().unwrap().scrubbed()[0]
}

/// Runs until so many rounds have ended.
fn rounds(world: &mut World, count: u64) {
    until(world, |seen| seen.rounds >= count);
}

fn until(world: &mut World, done: impl Fn(&Scrubbed) -> bool) {
    for _ in 0..5000 {
        if done(&scrubbed(world)) {
            return;
        }
        world.turns(20);
    }
    panic!("{:?}", scrubbed(world));
}

fn damaged(world: &World) -> Vec<DiskFile> {
    let all = world.servers[0].server.as_ref().unwrap().damaged();
    all.into_iter().map(|(_, object)| DiskFile::Object(object)).collect()
}

#[test]
fn a_flipped_bit_that_nothing_reads_is_found_and_named() {
    // In a header, in the checksums, in the last block; the object open or not.
    for (at, open) in
        [(40, false), (8192 + 12, true), (8192 + 4096 + 599_000, true), (540_000, false)]
    {
        let (mut world, files) = settled(3);
        if !open {
            world.servers[0].kill();
            world.turns(50);
        }
        assert!(damaged(&world).is_empty());
        let hit = World::object(files[1].file.0, 0);
        // Of the header both slots: the one before is of no use any more.
        let places = if at < 4096 { vec![at, at + 4096] } else { vec![at] };
        places.iter().for_each(|at| world.servers[0].disks[0].bytes_mut(hit)[*at] ^= 4);
        rounds(&mut world, 1);
        assert_eq!(damaged(&world), [hit], "byte {at}");
        assert_eq!(scrubbed(&world).damaged, 1);
        let told = world.servers[0].server.as_ref().unwrap().problems().join("\n");
        assert!(told.contains("disk 0, object "), "{told}");
    }
}

#[test]
fn a_file_that_is_gone_is_found() {
    let (mut world, files) = settled(3);
    let gone = World::object(files[2].file.0, 0);
    world.servers[0].disks[0].lose(gone);
    rounds(&mut world, 1);
    assert_eq!(damaged(&world), [gone]);
}

/// A file that the index does not know is no object, but a file that came back.
#[test]
fn a_file_that_the_index_does_not_know_is_found() {
    let (mut world, files) = settled(3);
    let object = World::object(files[2].file.0, 0);
    let bytes = world.servers[0].disks[0].bytes(object).unwrap().to_vec();
    let (client, gone) = (world.client.clone(), files[2]);
    world.run(async move { client.remove(&gone).await }).unwrap();
    world.forget_memory();
    rounds(&mut world, 1);
    assert_eq!(damaged(&world), []);
    world.servers[0].disks[0].restore(object, bytes);
    rounds(&mut world, 2);
    assert_eq!(damaged(&world), [object]);
}

/// Something of an object is always in the log where a file is in use: what is in place of it is compared all the same.
#[test]
fn damage_beside_blocks_that_are_in_the_log_is_found_in_the_same_round() {
    let (mut world, files) = settled(3);
    // Each round finds one of these blocks newer in the log.
    world.write(&files[1], 40 * 4096, &pattern(9, 8192)).unwrap();
    world.commit(&files[1]).unwrap();
    let hit = World::object(files[1].file.0, 0);
    // Blocks to be overwritten and blocks that stay: in the same window, in another.
    world.servers[0].disks[0].bytes_mut(hit)[data_offset(41) as usize] ^= 1;
    rounds(&mut world, 1);
    assert_eq!(damaged(&world), [], "what the log has newer is not read in place any more");
    assert_eq!(scrubbed(&world).logged_blocks, 2);
    world.servers[0].disks[0].bytes_mut(hit)[data_offset(42) as usize] ^= 1;
    rounds(&mut world, 2);
    assert_eq!(damaged(&world), [hit]);
    let seen = scrubbed(&world);
    assert_eq!((seen.logged_blocks, seen.damaged, seen.unread), (2, 1, 0), "{seen:?}");
}

fn refused(op: &DiskOp) -> bool {
    let DiskOp::Read { file: DiskFile::Object(id), .. } = op else { return false };
    id.file.0 == 2
}

/// A round that could not read something does not pass for one over the whole disk.
#[test]
fn a_round_counts_once_all_of_it_was_read() {
    let (mut world, _) = settled(3);
    let object = World::object(2, 0);
    let disk = &mut world.servers[0].disks[0];
    disk.refuses = Some(refused);
    disk.refusal = Some(Errno::ENOMEM);
    world.servers[0].kill();
    until(&mut world, |seen| seen.unread == 1 && seen.began.is_some() && !seen.running);
    assert_eq!((scrubbed(&world).rounds, damaged(&world)), (0, vec![]));
    let told = world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(told.contains("the scrub cannot read it"), "{told}");
    world.servers[0].disks[0].refuses = None;
    rounds(&mut world, 1);
    assert_eq!((scrubbed(&world).unread, damaged(&world)), (0, vec![]));

    // Sectors that cannot be read are damage when they still cannot after a while.
    world.servers[0].disks[0].bad.insert((object, data_offset(100)));
    until(&mut world, |seen| seen.unread == 1);
    world.servers[0].disks[0].bad.clear();
    rounds(&mut world, 2);
    assert_eq!(damaged(&world), [], "the disk failed for a moment");
    world.servers[0].disks[0].bad.insert((object, data_offset(100)));
    rounds(&mut world, 3);
    assert_eq!(damaged(&world), [object]);
    assert_eq!((scrubbed(&world).unread, scrubbed(&world).damaged), (0, 1));
}

/// Writes, truncations and removals meanwhile are never taken for damage.
#[test]
fn what_changes_while_it_is_read_is_no_damage() {
    let (mut world, files) = settled(4);
    for round in 0..200u64 {
        let file = files[(round % 4) as usize];
        let at = round * 37_123 % 500_000 / 4096 * 4096;
        world.write(&file, at, &pattern(round, 9000)).unwrap();
        if round % 3 == 0 {
            world.commit(&file).unwrap();
        }
        if round % 7 == 0 {
            world.flush(0);
        }
        world.turns(13);
    }
    assert!(scrubbed(&world).all_bytes > 0, "{:?}", scrubbed(&world));
    // The blocks in place are read as a whole, by a round that begins behind it.
    world.flush(0);
    let before = scrubbed(&world).rounds;
    rounds(&mut world, before + 2);
    assert_eq!(damaged(&world), []);
    let seen = scrubbed(&world);
    assert_eq!(seen.damaged, 0);
    assert!(seen.bytes >= 4 * BYTES as u64, "{seen:?}");
}

/// A hole costs no reads and counts as no bytes: the pace is by what is there. Damage in it is found.
#[test]
fn what_a_sparse_file_has_no_bytes_of_is_passed_over() {
    const FAR: u64 = 40 << 20;
    let mut world = World::with(1, 1, 1, often);
    let mut file = world.single(1);
    file.truncations += 1;
    world.truncate(&file, FAR + (20 << 20)).unwrap();
    world.write(&file, 0, &pattern(1, 9000)).unwrap();
    world.write(&file, FAR, &pattern(2, 9000)).unwrap();
    world.commit(&file).unwrap();
    world.forget_memory();
    until(&mut world, |seen| seen.running);
    let before = world.servers[0].disks[0].reads;
    rounds(&mut world, 1);
    let reads = world.servers[0].disks[0].reads - before;
    let seen = scrubbed(&world);
    assert_eq!((damaged(&world), seen.damaged, seen.unread), (vec![], 0, 0));
    assert!(reads < 80, "{reads} reads of two groups");
    assert!((8 * 4096..100_000).contains(&seen.bytes), "{seen:?}");
    let object = World::object(1, 0);
    let whole = world.servers[0].disks[0].bytes(object).unwrap().to_vec();
    for (at, cut) in [(FAR / 2, false), (FAR + (10 << 20), true)] {
        let mut bytes = whole.clone();
        match cut {
            true => bytes.truncate(at as usize),
            false => bytes[at as usize] = 1,
        }
        world.servers[0].disks[0].restore(object, bytes);
        world.servers[0].kill();
        rounds(&mut world, 1);
        assert_eq!(damaged(&world), [object], "byte {at}");
    }
}

#[test]
fn without_a_period_nothing_is_read() {
    let never = |server| ServerConfig { scrub: None, ..small(server) };
    let mut world = World::with(1, 1, 1, never);
    world.turns(5000);
    assert_eq!(scrubbed(&world), Scrubbed::default());
}
