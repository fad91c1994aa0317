//! Remains of clients that are gone.

use crate::common::{CLIENT, ROOT, World};
use names::{Claim, Origin, READ, WRITE, Who};
use wire::{Errno, FileId, Time};

const READER: u64 = 88;

/// Files without a name that the client has open, with as many attributes as a file may have: to remove all of them is
/// more than a record of the log holds.
fn heavy_orphans(world: &mut World, client: u64) -> Vec<FileId> {
    let mut files = Vec::new();
    for number in 0..40u8 {
        let name = format!("f{number}");
        let file = world.touch(&Who::ROOT, &name, 0o644).unwrap();
        for attribute in 0..=255u8 {
            let name = format!("user.{attribute:0>250}");
            let set = world.change(|t| t.set_xattr(&Who::ROOT, file, name.as_bytes(), b"", 0));
            set.unwrap();
        }
        world.change_of(client, |t| t.open(&Who::ROOT, file, READ)).unwrap();
        world.unlink(&Who::ROOT, &name).unwrap();
        files.push(file);
    }
    files
}

/// The manager has restarted; a file without a name is open for reading.
fn restarted_with_a_reader() -> (World, FileId) {
    let mut world = World::new();
    let file = world.touch(&Who::ROOT, "f", 0o644).unwrap();
    world.change_of(READER, |t| t.open(&Who::ROOT, file, READ)).unwrap();
    world.unlink(&Who::ROOT, "f").unwrap();
    (world.restart(), file)
}

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

#[test]
fn a_client_may_leave_more_than_a_record_holds() {
    let mut world = World::new();
    let files = heavy_orphans(&mut world, CLIENT);
    expire(&mut world, CLIENT);
    assert_gone(&world, &files);
}

#[test]
fn more_may_be_swept_after_a_restart_than_a_record_holds() {
    let mut world = World::new();
    let files = heavy_orphans(&mut world, CLIENT);
    let mut world = world.restart();
    world.manager.begin_claims(CLIENT, 0);
    world.end_claims(CLIENT);
    sweep(&mut world);
    assert_gone(&world, &files);
}

/// As when a site comes while a client says what it holds: it says all once more.
#[test]
fn claims_of_an_earlier_registration_end_no_grace() {
    let mut world = World::new();
    let file = world.touch(&Who::ROOT, "f", 0o644).unwrap();
    let mut world = world.restart();
    let claim = Claim { file, readers: 1, writers: 0 };
    world.change_of(CLIENT, |t| t.claim_all(&[claim])).unwrap();
    let registration = world.manager.hear(CLIENT, Time(0));
    let origin = Origin { client: CLIENT, now: world.now };
    world.manager.begin_claims(CLIENT, 0);
    assert!(world.manager.end_claims(registration - 1, origin).unwrap().0);
    assert!(world.manager.in_grace() && world.manager.is_site_in_grace(file.site()));
    assert_eq!(world.manager.opens().files_of(CLIENT).len(), 1, "nothing is closed");
    world.manager.begin_claims(CLIENT, 0);
    world.end_claims(CLIENT);
    assert!(!world.manager.in_grace() && !world.manager.is_site_in_grace(file.site()));
    assert!(world.manager.opens().files_of(CLIENT).is_empty());
}

/// It changed nothing ever, so that only the file's own record knows of it.
#[test]
fn a_reader_that_dies_with_the_manager_does_not_keep_its_file_for_ever() {
    let (mut world, file) = restarted_with_a_reader();
    world.manager.begin_claims(CLIENT, 0);
    world.end_claims(CLIENT);
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
    let (mut world, file) = restarted_with_a_reader();
    let claim = Claim { file, readers: 1, writers: 0 };
    world.manager.begin_claims(READER, 0);
    world.change_of(READER, |t| t.claim_all(&[claim])).unwrap();
    for client in [READER, CLIENT] {
        world.manager.begin_claims(client, 0);
        world.change_of(client, |t| t.claim_all(&[claim])).unwrap();
        world.end_claims(client);
    }
    assert!(!world.manager.in_grace());
    sweep(&mut world);
    assert!(world.get(file).is_ok());
    assert_eq!(world.get(ROOT).unwrap().attr.links, 2);
    assert!(world.change(|t| t.open(&Who::ROOT, file, WRITE)).is_ok());
}

#[test]
fn who_only_reads_is_waited_for_after_a_restart() {
    let mut world = World::new();
    let file = world.touch(&Who::ROOT, "f", 0o644).unwrap();
    world.change_of(READER, |t| t.open(&Who::ROOT, file, READ)).unwrap();
    let mut world = world.restart();
    world.manager.begin_claims(CLIENT, 0);
    world.end_claims(CLIENT);
    world.unlink(&Who::ROOT, "f").unwrap();
    assert!(world.get(file).is_ok(), "the reader has not said yet what it has open");
}
