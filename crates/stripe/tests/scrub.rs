//! Scrub: damage that nothing else reads is found and named, and what is right is left alone.

mod common;

use common::*;
use node::rings::DiskFile;
use std::time::Duration;
use stripe::{FileRef, Scrubbed, ServerConfig};
use wire::NodeId;

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
    for _ in 0..1000 {
        if scrubbed(world).rounds >= count {
            return;
        }
        world.turns(100);
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

/// What is written, cut and removed meanwhile is never taken for damage.
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
    // What is in place is read as a whole, by a round that begins behind it.
    world.flush(0);
    let before = scrubbed(&world).rounds;
    rounds(&mut world, before + 2);
    assert_eq!(damaged(&world), []);
    let seen = scrubbed(&world);
    assert_eq!(seen.damaged, 0);
    assert!(seen.bytes >= 4 * BYTES as u64, "{seen:?}");
}

#[test]
fn without_a_period_nothing_is_read() {
    let never = |server| ServerConfig { scrub: None, ..small(server) };
    let mut world = World::with(1, 1, 1, never);
    world.turns(5000);
    assert_eq!(scrubbed(&world), Scrubbed::default());
}
