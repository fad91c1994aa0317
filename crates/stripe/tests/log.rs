//! Damage to the commit log: whatever is flipped, zeroed, cut short, taken away or put back, the disk has what was
//! acknowledged, or is refused by name. Never are there zeros or older bytes.

use crate::common::*;
use node::rings::DiskFile;
use std::ops::Range;
use stripe::log::Start;
use stripe::{FileRef, Health};
use wire::Errno;

const BLOCK: usize = 4096;
const LABEL: DiskFile = DiskFile::Label;

/// The bytes of a file as they were.
type Copy = (DiskFile, Vec<u8>);

fn copy(world: &World, file: DiskFile) -> Copy {
    (file, world.servers[0].disks[0].bytes(file).unwrap().to_vec())
}

fn put_back(world: &mut World, (file, bytes): Copy) {
    *world.servers[0].disks[0].bytes_mut(file) = bytes;
}

fn remove(world: &mut World, file: DiskFile) {
    let removed = world.servers[0].disks[0].run(node::rings::DiskOp::Remove { file });
    assert!(removed.is_ok());
}

fn write(world: &mut World, file: &FileRef, with: u8) {
    world.write(file, 0, &[with; BLOCK]).unwrap();
    world.commit(file).unwrap();
}

/// Writes and commits each of the files; each is one record of two blocks.
fn write_all(world: &mut World, files: Range<u64>, with: u8) {
    for file in files {
        let file = world.file(file);
        write(world, &file, with);
    }
}

/// The log that the records are in.
fn log_in_use(world: &World) -> DiskFile {
    let whole = |log: &u32| {
        let bytes = world.servers[0].disks[0].bytes(DiskFile::Log(*log));
        let start = bytes.and_then(|bytes| Start::read(bytes).ok());
        start.is_some_and(|start| start.generation.number == *log)
    };
    DiskFile::Log((1..40).filter(whole).max().expect("a log"))
}

/// Twenty files, each overwritten, in one log; killed at once.
fn twenty() -> (World, DiskFile) {
    let mut world = World::new(1, 1);
    write_all(&mut world, 1..21, 1);
    let log = log_in_use(&world);
    (world, log)
}

fn health(world: &mut World) -> Health {
    world.turns(20_000);
    world.servers[0].server.as_ref().unwrap().disks()[0].clone()
}

/// The disk is refused with a text that names it and its log, and reading is an error.
fn assert_refused(world: &mut World, what: &str) {
    let Health::Refused(errno, text) = health(world) else { panic!("{what}: it serves") };
    assert_eq!(errno, Errno::EIO, "{what}");
    assert!(text.starts_with("disk 0: its "), "{what}: {text}");
    assert!(text.contains("log") && text.contains("bring its directory back"), "{what}: {text}");
    let file = world.file(20);
    assert_eq!(world.read(&file, 0, BLOCK), Err(Errno::ENXIO), "{what}");
}

fn assert_serves(world: &mut World, files: Range<u64>, with: u8, what: &str) {
    assert_eq!(health(world), Health::Serving, "{what}");
    for file in files {
        let file = world.file(file);
        assert!(world.read(&file, 0, BLOCK).unwrap() == [with; BLOCK], "{what}, {file:?}");
    }
}

#[test]
fn an_undamaged_log_is_replayed_after_a_kill_and_after_a_power_cut() {
    let (mut world, _) = twenty();
    world.servers[0].kill();
    assert_serves(&mut world, 1..21, 1, "kill");
    write_all(&mut world, 1..21, 2);
    world.servers[0].crash();
    assert_serves(&mut world, 1..21, 2, "power cut");
}

/// In front of later records any damage to any record is told, without the label's help.
#[test]
fn a_flipped_bit_in_front_of_later_records_refuses_the_disk() {
    for record in [0, 1, 2, 10, 18] {
        for at in [
            3,
            5,
            9,
            10,
            13,
            17,
            20,
            25,
            45,
            100,
            217,
            225,
            233,
            300,
            BLOCK - 1,
            BLOCK,
            BLOCK + 4000,
        ] {
            let (mut world, log) = twenty();
            world.servers[0].kill();
            let place = record * 2 * BLOCK + at;
            world.servers[0].disks[0].bytes_mut(log)[place] ^= 1 << (at % 8);
            assert_refused(&mut world, &format!("record {record}, byte {at}"));
        }
    }
}

#[test]
fn a_zeroed_block_in_front_of_later_records_refuses_the_disk() {
    for block in 0..38 {
        let (mut world, log) = twenty();
        world.servers[0].kill();
        world.servers[0].disks[0].bytes_mut(log)[block * BLOCK..][..BLOCK].fill(0);
        assert_refused(&mut world, &format!("block {block}"));
    }
}

#[test]
fn a_refusal_names_the_log_and_the_place_and_changes_nothing() {
    let (mut world, log) = twenty();
    world.servers[0].kill();
    world.servers[0].disks[0].bytes_mut(log)[4 * BLOCK + 77] ^= 4;
    let Health::Refused(_, text) = health(&mut world) else { panic!("it serves") };
    assert!(text.contains("log 1 is damaged, cut short or older at offset 16384"), "{text}");
    world.servers[0].disks[0].bytes_mut(log)[4 * BLOCK + 77] ^= 4;
    world.servers[0].kill();
    assert_serves(&mut world, 1..21, 1, "mended");
}

type Damage = fn(&mut World, DiskFile, Copy);

/// Damage that is detected only when the label knows how much was durable: a second later, or after a stop.
const TO_THE_END: [(&str, Damage); 7] = [
    ("a flipped bit in the last record", |world, log, _| {
        world.servers[0].disks[0].bytes_mut(log)[38 * BLOCK + 5] ^= 1;
    }),
    ("a flipped bit in the last record's data", |world, log, _| {
        world.servers[0].disks[0].bytes_mut(log)[39 * BLOCK + 5] ^= 1;
    }),
    ("the last block zeroed", |world, log, _| {
        world.servers[0].disks[0].bytes_mut(log)[39 * BLOCK..40 * BLOCK].fill(0);
    }),
    ("a log cut short", |world, log, _| {
        world.servers[0].disks[0].bytes_mut(log).truncate(20 * BLOCK);
    }),
    ("an empty log", |world, log, _| world.servers[0].disks[0].bytes_mut(log).clear()),
    ("no log", |world, log, _| remove(world, log)),
    ("an older copy of the log", |world, _, older| put_back(world, older)),
];

#[test]
fn after_a_second_of_idleness_the_end_of_the_log_is_covered_too() {
    for (what, damage) in TO_THE_END {
        let mut world = World::new(1, 1);
        write_all(&mut world, 1..11, 1);
        let log = log_in_use(&world);
        let older = copy(&world, log);
        write_all(&mut world, 11..21, 1);
        world.turns(6000);
        world.servers[0].kill();
        damage(&mut world, log, older);
        assert_refused(&mut world, what);
    }
}

/// A log that is never idle says by itself no more than one that is.
#[test]
fn while_commits_go_on_no_more_than_the_last_second_is_uncovered() {
    for (what, damage) in &TO_THE_END[3..] {
        let mut world = World::new(1, 1);
        write_all(&mut world, 1..11, 1);
        let log = log_in_use(&world);
        let older = copy(&world, log);
        for file in 11..21 {
            write_all(&mut world, file..file + 1, 1);
            world.turns(1500);
        }
        world.servers[0].kill();
        damage(&mut world, log, older);
        assert_refused(&mut world, what);
    }
}

/// Without it they look like what a power cut left of the last write: the excluded second. All before it is there.
#[test]
fn what_the_last_second_before_a_kill_lost_is_a_torn_end_and_not_zeros_in_between() {
    for (what, damage) in &TO_THE_END[..3] {
        let (mut world, log) = twenty();
        let older = copy(&world, log);
        world.servers[0].kill();
        damage(&mut world, log, older);
        assert_serves(&mut world, 1..20, 1, what);
    }
}

/// Commits go on in a new log while a checkpoint brings the old one into place, and fails.
fn two_logs() -> (World, DiskFile, DiskFile) {
    let (mut world, first) = twenty();
    world.servers[0].disks[0].refuses =
        Some(|op| matches!(op, node::rings::DiskOp::Write { file: DiskFile::Object(_), .. }));
    let service = world.servers[0].server.clone().unwrap();
    assert!(world.run_on(0, async move { service.flush().await }).is_err());
    write_all(&mut world, 1..11, 2);
    world.servers[0].disks[0].refuses = None;
    let second = log_in_use(&world);
    assert_ne!(first, second);
    world.servers[0].kill();
    (world, first, second)
}

#[test]
fn a_log_that_a_later_one_follows_is_missed_whatever_happened_to_it() {
    let (mut world, ..) = two_logs();
    assert_serves(&mut world, 1..11, 2, "undamaged");
    for (what, damage) in TO_THE_END {
        let (mut world, first, _) = two_logs();
        let mut older = copy(&world, first);
        older.1.truncate(20 * BLOCK);
        damage(&mut world, first, older);
        assert_refused(&mut world, what);
    }
}

#[test]
fn logs_in_each_others_place_refuse_the_disk() {
    let (mut world, first, second) = two_logs();
    let (one, other) = (copy(&world, first), copy(&world, second));
    put_back(&mut world, (first, other.1));
    put_back(&mut world, (second, one.1));
    assert_refused(&mut world, "swapped");
}

#[test]
fn a_middle_log_that_is_missing_refuses_the_disk() {
    for both in [false, true] {
        let (mut world, first, second) = two_logs();
        remove(&mut world, first);
        if both {
            remove(&mut world, second);
        }
        assert_refused(&mut world, "missing logs");
    }
}

/// Logs of earlier generations: their files are written over, and none of their bytes counts again.
#[test]
fn a_log_of_an_older_generation_in_the_place_of_the_present_one_refuses_the_disk() {
    let mut world = World::new(1, 1);
    write_all(&mut world, 1..21, 1);
    let old = copy(&world, log_in_use(&world));
    world.flush(0);
    write_all(&mut world, 1..21, 2);
    world.turns(6000);
    let log = log_in_use(&world);
    assert_ne!(log, old.0);
    world.servers[0].kill();
    put_back(&mut world, (log, old.1));
    assert_refused(&mut world, "older generation");
}

/// A log that is in place says nothing, also when it comes back.
#[test]
fn a_log_that_was_dropped_and_comes_back_brings_nothing_back() {
    let mut world = World::new(1, 1);
    write_all(&mut world, 1..21, 1);
    let (old, bytes) = copy(&world, log_in_use(&world));
    world.flush(0);
    write_all(&mut world, 1..21, 2);
    world.flush(0);
    world.servers[0].kill();
    let empty = world.cx().frames().alloc_exact(BLOCK).expect("memory").freeze();
    let made = node::rings::DiskOp::Write { file: old, offset: 0, data: empty, durable: true };
    assert!(world.servers[0].disks[0].run(made).is_ok());
    put_back(&mut world, (old, bytes));
    assert_serves(&mut world, 1..21, 2, "an old log came back");
    write_all(&mut world, 1..21, 3);
    world.servers[0].crash();
    assert_serves(&mut world, 1..21, 3, "written over after that");
}

#[test]
fn one_of_the_labels_two_marks_may_be_damaged() {
    for slot in 1..3 {
        let (mut world, _) = twenty();
        world.turns(6000);
        world.servers[0].kill();
        world.servers[0].disks[0].bytes_mut(LABEL)[slot * BLOCK + 30] ^= 1;
        assert_serves(&mut world, 1..21, 1, "one mark");
        let (mut world, log) = twenty();
        world.turns(6000);
        world.servers[0].kill();
        world.servers[0].disks[0].bytes_mut(LABEL)[slot * BLOCK + 30] ^= 1;
        remove(&mut world, log);
        assert_refused(&mut world, "the other mark knows of the log");
    }
}

/// A bad sector under one of them costs nothing either.
#[test]
fn one_of_the_labels_two_marks_may_be_unreadable() {
    for slot in 1..3 {
        let (mut world, _) = twenty();
        world.servers[0].kill();
        world.servers[0].disks[0].bad.insert((LABEL, slot * BLOCK as u64));
        assert_serves(&mut world, 1..21, 1, "one mark");
    }
}

#[test]
fn both_marks_damaged_refuse_the_disk() {
    let (mut world, _) = twenty();
    world.servers[0].kill();
    for slot in 1..3 {
        world.servers[0].disks[0].bytes_mut(LABEL)[slot * BLOCK + 30] ^= 1;
    }
    let Health::Refused(_, text) = health(&mut world) else { panic!("it serves") };
    assert!(text.contains("disk 0: ") && text.contains("label"), "{text}");
}

#[test]
fn a_label_older_than_its_log_refuses_the_disk_or_harms_nothing() {
    let mut world = World::new(1, 1);
    let first = copy(&world, LABEL);
    write_all(&mut world, 1..21, 1);
    let mut labels = vec![first, copy(&world, LABEL)];
    for with in 2..5 {
        world.flush(0);
        labels.push(copy(&world, LABEL));
        write_all(&mut world, 1..21, with);
        labels.push(copy(&world, LABEL));
    }
    let state = world.servers[0].disks[0].clone();
    let mut refused = 0;
    for label in labels {
        world.servers[0].disks[0] = state.clone();
        world.servers[0].kill();
        world.servers[0].disks[0] = state.clone();
        put_back(&mut world, label);
        match health(&mut world) {
            Health::Refused(Errno::EIO, _) => refused += 1,
            _ => assert_serves(&mut world, 1..21, 4, "older label"),
        }
    }
    assert!(refused >= 4, "{refused}");
}

/// No commit waits for the label: it is written by checkpoints, stops and pauses only.
#[test]
fn commits_do_not_write_the_label() {
    let mut world = World::new(1, 1);
    write_all(&mut world, 1..2, 1);
    let before = copy(&world, LABEL);
    write_all(&mut world, 1..21, 2);
    assert!(copy(&world, LABEL) == before);
    world.turns(6000);
    assert!(copy(&world, LABEL) != before);
}

/// A write to the log that failed leaves records behind that were never acknowledged: no damage.
#[test]
fn what_a_failed_write_left_in_the_log_is_no_damage() {
    let (mut world, _) = twenty();
    world.servers[0].disks[0].refuses = Some(|op| {
        matches!(op, node::rings::DiskOp::Write { file: DiskFile::Log(_), durable: true, .. })
    });
    let file = world.file(30);
    world.write(&file, 0, &[3; 3 * BLOCK]).unwrap();
    let commit = world.start_commit(&file);
    world.turns(100);
    world.servers[0].disks[0].refuses = None;
    world.until(|| commit.borrow().is_some());
    write_all(&mut world, 1..21, 2);
    world.flush(0);
    write_all(&mut world, 1..11, 3);
    world.servers[0].crash();
    assert_serves(&mut world, 1..11, 3, "after a failed write");
    assert_serves(&mut world, 11..21, 2, "after a failed write");
}
