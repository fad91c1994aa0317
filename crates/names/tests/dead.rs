//! What clients leave that are gone.

mod common;

use common::{CLIENT, ROOT, World};
use names::{Claim, Origin, READ, WRITE, Who};
use wire::{Errno, FileId, Time};

const READER: u64 = 88;

fn assert_gone(world: &World, files: &[FileId]) {
    let gone = files.iter().filter(|file| world.get(**file) == Err(Errno::ESTALE));
    assert_eq!(gone.count(), files.len());
}

fn expire(world: &mut World, client: u64) {
    let mut done = false;
    while !done {
        let (all, append) = world.manager.expire(client, Origin::default()).unwrap();
        world.keep(append);
        done = all;
    }
}

fn sweep(world: &mut World) {
    while !world.change_of(0, |t| t.sweep_orphans()).unwrap() {}
}

/// It changed nothing ever, so that only the file's own record knows of it.
#[test]
fn a_reader_that_dies_with_the_manager_does_not_keep_its_file_for_ever() {
    let mut world = World::new();
    let file = world.touch(&Who::ROOT, "f", 0o644).unwrap();
    world.change_of(READER, |t| t.open(&Who::ROOT, file, READ)).unwrap();
    world.unlink(&Who::ROOT, "f").unwrap();
    let mut world = world.restart();
    world.manager.begin_claims(CLIENT);
    let (_, append) = world.manager.end_claims(Origin { client: CLIENT, now: world.now }).unwrap();
    world.keep(append);
    assert!(world.manager.in_grace(), "it may still say that it has it open");
    assert!(world.get(file).is_ok());
    assert_eq!(world.manager.expired(Time(40_000_000_000_000)), [CLIENT, READER]);
    expire(&mut world, READER);
    assert!(!world.manager.in_grace());
    sweep(&mut world);
    assert_gone(&world, &[file]);
}

#[test]
fn a_reader_that_outlives_the_manager_keeps_its_file() {
    let mut world = World::new();
    let file = world.touch(&Who::ROOT, "f", 0o644).unwrap();
    world.change_of(READER, |t| t.open(&Who::ROOT, file, READ)).unwrap();
    world.unlink(&Who::ROOT, "f").unwrap();
    let mut world = world.restart();
    let claim = Claim { file, readers: 1, writers: 0 };
    world.manager.begin_claims(READER);
    world.change_of(READER, |t| t.claim_all(&[claim])).unwrap();
    for client in [READER, CLIENT] {
        world.manager.begin_claims(client);
        world.change_of(client, |t| t.claim_all(&[claim])).unwrap();
        let origin = Origin { client, now: world.now };
        let (_, append) = world.manager.end_claims(origin).unwrap();
        world.keep(append);
    }
    assert!(!world.manager.in_grace());
    sweep(&mut world);
    assert!(world.get(file).is_ok());
    assert_eq!(world.get(ROOT).unwrap().attr.links, 2);
    assert!(world.change(|t| t.open(&Who::ROOT, file, WRITE)).is_ok());
}
