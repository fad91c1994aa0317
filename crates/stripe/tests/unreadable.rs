//! Blocks that the disk cannot read, or has damaged: what they cost, and what goes on all the same.

use crate::common::*;
use node::rings::DiskFile;
use std::time::Duration;
use stripe::log::Start;
use stripe::object::{data_offset, header_offset, sums_offset};
use stripe::{FileRef, Health};
use wire::Errno;

const BYTES: usize = 500_000;
const BLOCK: usize = 4096;

fn object() -> DiskFile {
    World::object(5, 0)
}

fn cut(file: FileRef, truncations: u32) -> FileRef {
    FileRef { truncations, ..file }
}

/// A file whose blocks are in place and not in memory.
fn placed() -> (World, FileRef) {
    let (mut world, file) = committed(1, 1, BYTES);
    world.forget_memory();
    (world, file)
}

type Harm = fn(&mut World, u64);

fn flip(world: &mut World, block: u64) {
    let at = data_offset(block) as usize + 17;
    world.servers[0].disks[0].bytes_mut(object())[at] ^= 1;
}

fn spoil(world: &mut World, block: u64) {
    world.servers[0].disks[0].bad.insert((object(), data_offset(block)));
}

fn mend(world: &mut World, _: u64) {
    world.servers[0].disks[0].bad.clear();
}

fn problems(world: &World, what: &str) -> usize {
    let all = world.servers[0].server.as_ref().unwrap().problems();
    all.iter().filter(|problem| problem.contains(what)).count()
}

fn part(range: std::ops::Range<usize>) -> Vec<u8> {
    pattern(1, BYTES)[range].to_vec()
}

/// In any later state of the disk, nothing of block 50 is read, neither what the cut left nor what it cut off.
fn cuts_through(harm: Harm, undo: Harm) {
    let (mut world, file) = placed();
    harm(&mut world, 50);
    let file = cut(file, 1);
    assert_eq!(world.truncate(&file, 50 * 4096 + 1000), Ok(()));
    assert_eq!(world.truncate(&file, 50 * 4096 + 1000), Ok(()), "asked twice, done once");
    assert_eq!(problems(&world, "what a truncation leaves of it is lost"), 1);
    assert_eq!(world.size(&file), 50 * 4096 + 1000);
    let check = |world: &mut World| {
        assert!(world.read(&file, 0, 50 * BLOCK).unwrap() == part(0..50 * BLOCK));
        assert_eq!(world.read(&file, 50 * 4096, 1000), Err(Errno::EIO));
    };
    check(&mut world);
    // It becomes longer again.
    world.write(&file, 60 * 4096, &[7; 5000]).unwrap();
    assert_eq!(world.write(&file, 50 * 4096 + 500, &[7; 100]).err(), Some(Errno::EIO));
    world.commit(&file).unwrap();
    let check = |world: &mut World| {
        check(world);
        assert!(world.read(&file, 51 * 4096, 9 * BLOCK).unwrap() == [0; 9 * BLOCK]);
        assert!(world.read(&file, 60 * 4096, 5000).unwrap() == [7; 5000]);
    };
    check(&mut world);
    world.servers[0].crash();
    check(&mut world);
    undo(&mut world, 50);
    check(&mut world);
    world.forget_memory();
    check(&mut world);
    // Another cut through it changes nothing of that.
    let file = cut(file, 2);
    assert_eq!(world.truncate(&file, 50 * 4096 + 500), Ok(()));
    world.servers[0].crash();
    assert_eq!(world.read(&file, 50 * 4096, 500), Err(Errno::EIO));
    // The rest of it is written over.
    world.write(&file, 50 * 4096, &[9; 500]).unwrap();
    world.write(&file, 52 * 4096, &[9; 500]).unwrap();
    world.commit(&file).unwrap();
    for _ in 0..2 {
        let found = world.read(&file, 50 * 4096, 2 * BLOCK).unwrap();
        assert!(found[..500] == [9; 500] && found[500..].iter().all(|byte| *byte == 0));
        world.forget_memory();
    }
}

#[test]
fn a_cut_through_a_damaged_block_succeeds() {
    cuts_through(flip, flip);
}

#[test]
fn a_cut_through_a_bad_sector_succeeds() {
    cuts_through(spoil, mend);
}

#[test]
fn a_cut_survives_a_crash_at_any_time() {
    for turns in (0..100).step_by(2) {
        let (mut world, file) = placed();
        flip(&mut world, 50);
        world.disk_turns = 3;
        let (client, file) = (world.client.clone(), cut(file, 1));
        let cutting = world.start(async move { client.truncate(&file, 50 * 4096 + 1000).await });
        world.turns(CUT_TURNS + turns);
        world.servers[0].crash();
        world.until(|| cutting.borrow().is_some());
        assert_eq!(cutting.take(), Some(Ok(())));
        flip(&mut world, 50);
        world.write(&file, 60 * 4096, &[7; 5000]).unwrap();
        assert_eq!(world.read(&file, 50 * 4096, BLOCK), Err(Errno::EIO));
        assert!(world.read(&file, 51 * 4096, 9 * BLOCK).unwrap() == [0; 9 * BLOCK]);
        assert!(world.read(&file, 0, 50 * BLOCK).unwrap() == part(0..50 * BLOCK));
    }
}

/// How long the server reads a block again before it gives it up, less some turns.
const CUT_TURNS: usize = 2500 - 15;

#[test]
fn a_disk_that_fails_for_a_moment_loses_nothing_by_a_cut() {
    let (mut world, file) = placed();
    spoil(&mut world, 50);
    let (client, file) = (world.client.clone(), cut(file, 1));
    let cutting = world.start(async move { client.truncate(&file, 50 * 4096 + 1000).await });
    world.turns(1000);
    assert!(cutting.borrow().is_none());
    mend(&mut world, 50);
    world.until(|| cutting.borrow().is_some());
    assert_eq!(cutting.take(), Some(Ok(())));
    let wanted = 50 * BLOCK..50 * BLOCK + 1000;
    assert!(world.read(&file, 50 * 4096, 1000).unwrap() == part(wanted));
}

#[test]
fn a_bad_sector_costs_one_block() {
    let (mut world, file) = placed();
    spoil(&mut world, 0);
    spoil(&mut world, 50);
    world.servers[0].kill();
    assert_eq!(world.read(&file, 0, BLOCK), Err(Errno::EIO));
    assert!(world.read(&file, 4096, 49 * BLOCK).unwrap() == part(BLOCK..50 * BLOCK));
    assert_eq!(world.read(&file, 50 * 4096, BLOCK), Err(Errno::EIO));
    assert!(world.read(&file, 51 * 4096, 20 * BLOCK).unwrap() == part(51 * BLOCK..71 * BLOCK));
    assert_eq!(world.read(&file, 0, BYTES), Err(Errno::EIO));
    // A cut beside it does not take what can be read for what cannot.
    let file = cut(file, 1);
    assert_eq!(world.truncate(&file, 51 * 4096 + 1000), Ok(()));
    assert!(world.read(&file, 51 * 4096, 1000).unwrap() == part(51 * BLOCK..51 * BLOCK + 1000));
    // Written over it is read from the log, while the disk still has the bad sector.
    world.write(&file, 50 * 4096, &[7; BLOCK]).unwrap();
    world.commit(&file).unwrap();
    world.servers[0].kill();
    spoil(&mut world, 50);
    assert!(world.read(&file, 50 * 4096, BLOCK).unwrap() == [7; BLOCK]);
}

#[test]
fn what_cannot_be_read_can_be_emptied_and_removed() {
    for removes in [false, true] {
        let (mut world, file) = placed();
        spoil(&mut world, 0);
        spoil(&mut world, 100);
        world.servers[0].disks[0].bad.insert((object(), sums_offset(0)));
        world.servers[0].kill();
        assert_eq!(world.read(&file, 40_960, BLOCK), Err(Errno::EIO));
        let file = cut(file, 1);
        if removes {
            let client = world.client.clone();
            assert_eq!(world.run(async move { client.remove(&file).await }), Ok(()));
            world.servers[0].crash();
            assert_eq!(world.size(&file), 0);
            continue;
        }
        assert_eq!(world.truncate(&file, 0), Ok(()));
        world.servers[0].crash();
        world.write(&file, 200_000, &[7; 5000]).unwrap();
        world.commit(&file).unwrap();
        world.forget_memory();
        assert!(world.read(&file, 0, 200_000).unwrap().iter().all(|byte| *byte == 0));
        assert!(world.read(&file, 200_000, 5000).unwrap() == [7; 5000]);
    }
}

/// A power cut in the middle of a write in place leaves what cannot be read.
#[test]
fn a_torn_block_that_cannot_be_read_does_not_cost_the_disk() {
    let (mut world, file) = committed(1, 1, 1 << 20);
    world.crash_in_commit(&file, &pattern(2, 1 << 20));
    spoil(&mut world, 100);
    let server = world.servers[0].server.clone().unwrap();
    world.until(|| server.is_ready());
    assert_eq!(server.disks(), [Health::Serving]);
    assert_eq!(world.read(&file, 100 * 4096, BLOCK), Err(Errno::EIO));
    assert_eq!(world.read(&file, 0, 100 * BLOCK).map(drop), Ok(()));
    world.write(&file, 100 * 4096, &[7; BLOCK]).unwrap();
    world.commit(&file).unwrap();
    world.forget_memory();
    assert!(world.read(&file, 100 * 4096, BLOCK).unwrap() == [7; BLOCK]);
}

fn spoil_at(world: &mut World, file: DiskFile, offset: u64) {
    world.servers[0].disks[0].bad.insert((file, offset));
}

/// Whether the disk serves after a start.
fn health(world: &mut World) -> Health {
    let server = world.servers[0].server.clone().unwrap();
    world.until(|| server.is_ready());
    server.disks()[0].clone()
}

/// A power cut in the middle of a checkpoint leaves a header that cannot be read, while the log still has what it says.
#[test]
fn a_header_that_cannot_be_read_is_made_anew_from_the_log() {
    for slots in [&[0][..], &[1], &[0, 1]] {
        let (mut world, file) = committed(1, 1, BYTES);
        world.flush(0);
        world.write(&file, 8192, &[7; BLOCK]).unwrap();
        world.commit(&file).unwrap();
        world.servers[0].crash();
        slots.iter().for_each(|slot| spoil_at(&mut world, object(), header_offset(*slot)));
        assert_eq!(health(&mut world), Health::Serving);
        // Neither now nor when the log is gone.
        for _ in 0..2 {
            assert!(world.read(&file, 0, 8192).unwrap() == part(0..8192));
            assert!(world.read(&file, 8192, BLOCK).unwrap() == [7; BLOCK]);
            assert_eq!(world.size(&file), BYTES as u64);
            world.forget_memory();
        }
    }
}

/// A crash in the middle of a write in place over all of a file of which nothing else is in the log.
fn torn() -> (World, FileRef) {
    let (mut world, file) = committed(1, 1, 1 << 20);
    let other = world.file(6);
    world.write(&other, 0, &part(0..5000)).unwrap();
    world.crash_in_commit(&file, &pattern(2, 1 << 20));
    (world, file)
}

#[test]
fn a_header_that_nobody_knows_costs_its_column_and_not_the_disk() {
    for slot in 0..2 {
        let (mut world, file) = torn();
        spoil_at(&mut world, object(), header_offset(slot));
        assert_eq!(health(&mut world), Health::Serving);
        assert_eq!(problems(&world, "its header cannot be read"), 1);
        assert_eq!(world.read(&file, 0, BLOCK), Err(Errno::EIO));
        let other = world.file(6);
        assert!(world.read(&other, 0, 5000).unwrap() == part(0..5000));
        let client = world.client.clone();
        assert_eq!(world.run(async move { client.remove(&file).await }), Ok(()));
    }
}

/// A full disk keeps its log; what only the log knows of a header is there all the same.
#[test]
fn a_header_that_cannot_be_read_is_made_anew_on_a_full_disk() {
    let (mut world, file) = committed(1, 1, BYTES);
    world.flush(0);
    world.write(&file, 0, &part(0..BLOCK)).unwrap();
    world.flush(0);
    world.write(&file, 600_000, &[7; BLOCK]).unwrap();
    world.commit(&file).unwrap();
    world.servers[0].crash();
    (0..2).for_each(|slot| spoil_at(&mut world, object(), header_offset(slot)));
    world.servers[0].disks[0].fill();
    assert_eq!(health(&mut world), Health::Serving);
    assert_eq!(problems(&world, "it is full"), 1);
    assert!(world.read(&file, 600_000, BLOCK).unwrap() == [7; BLOCK]);
    world.servers[0].disks[0].capacity = None;
    world.turns(10_000);
    for _ in 0..2 {
        world.forget_memory();
        assert!(world.read(&file, 0, BYTES).unwrap() == part(0..BYTES));
        assert!(world.read(&file, 600_000, BLOCK).unwrap() == [7; BLOCK]);
    }
}

/// Three records of two blocks each in the log, each of another file, and where it ends.
fn logged() -> (World, DiskFile, u64) {
    let mut world = World::new(1, 1);
    for file in 1..=3 {
        let file = world.file(file);
        world.write(&file, 0, &[file.file.0 as u8; BLOCK]).unwrap();
        world.commit(&file).unwrap();
    }
    let log = DiskFile::Log(1);
    let bytes = world.servers[0].disks[0].bytes(log).unwrap();
    let is_record = |at: usize| Start::read(&bytes[at * 2 * BLOCK..]).is_ok();
    assert!((0..3).all(is_record) && !is_record(3));
    (world, log, 6 * BLOCK as u64)
}

fn has_record(world: &mut World, record: u64) -> bool {
    let file = world.file(record);
    let bytes = world.read(&file, 0, BLOCK).unwrap();
    assert!(bytes == [record as u8; BLOCK] || bytes == [0; BLOCK]);
    bytes[0] != 0
}

/// A power cut in the middle of a write to the log leaves what cannot be read behind what was acknowledged.
#[test]
fn a_torn_end_of_the_log_that_cannot_be_read_does_not_cost_the_disk() {
    for bad in [&[0][..], &[1], &[0, 1, 2], &[30]] {
        let (mut world, log, end) = logged();
        world.servers[0].crash();
        bad.iter().for_each(|block| spoil_at(&mut world, log, end + block * BLOCK as u64));
        assert_eq!(health(&mut world), Health::Serving);
        assert!((1..=3).all(|record| has_record(&mut world, record)));
        let file = world.file(4);
        world.write(&file, 0, &[4; BLOCK]).unwrap();
        world.commit(&file).unwrap();
        world.servers[0].crash();
        assert!((1..=4).all(|record| has_record(&mut world, record)));
    }
}

/// The last record is what a power cut may have torn, its description or its data.
#[test]
fn a_last_record_that_cannot_be_read_is_torn_and_told() {
    for block in 0..2 {
        let (mut world, log, end) = logged();
        if block == 1 {
            // Zeros read as zeros where nothing can be read.
            let file = world.file(3);
            world.write(&file, 0, &[0; BLOCK]).unwrap();
            world.commit(&file).unwrap();
        }
        let last = if block == 1 { end } else { end - 2 * BLOCK as u64 };
        world.servers[0].crash();
        spoil_at(&mut world, log, last + block * BLOCK as u64);
        assert_eq!(health(&mut world), Health::Serving);
        assert_eq!(problems(&world, "behind its last whole record"), 1);
        assert!(has_record(&mut world, 1) && has_record(&mut world, 2));
        assert_eq!(has_record(&mut world, 3), block == 1);
    }
}

#[test]
fn a_record_that_cannot_be_read_before_others_costs_the_disk() {
    for (record, block) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (mut world, log, _) = logged();
        world.servers[0].kill();
        spoil_at(&mut world, log, (record * 2 + block) * BLOCK as u64);
        assert!(matches!(health(&mut world), Health::Refused(Errno::EIO, _)));
        // Nothing of it was changed: read again, it is there.
        mend(&mut world, 0);
        world.servers[0].kill();
        assert_eq!(health(&mut world), Health::Serving);
        assert!((1..=3).all(|record| has_record(&mut world, record)));
    }
}

#[test]
fn a_log_that_cannot_be_read_at_all_costs_the_disk() {
    let (mut world, log, _) = logged();
    world.servers[0].kill();
    (0..200).for_each(|block| spoil_at(&mut world, log, block * BLOCK as u64));
    assert!(matches!(health(&mut world), Health::Refused(Errno::EIO, _)));
    mend(&mut world, 0);
    world.servers[0].kill();
    assert!((1..=3).all(|record| has_record(&mut world, record)));
}

#[test]
fn a_disk_that_fails_for_a_moment_at_its_start_loses_nothing() {
    let (mut world, file) = committed(1, 1, BYTES);
    world.flush(0);
    world.write(&file, 8192, &[7; BLOCK]).unwrap();
    world.commit(&file).unwrap();
    let logs =
        (1..5).map(DiskFile::Log).filter(|log| world.servers[0].disks[0].bytes(*log).is_some());
    let logs: Vec<DiskFile> = logs.collect();
    world.servers[0].crash();
    logs.into_iter().for_each(|log| spoil_at(&mut world, log, 0));
    spoil_at(&mut world, object(), sums_offset(0));
    world.turns(1000);
    mend(&mut world, 0);
    assert_eq!(health(&mut world), Health::Serving);
    assert!(world.read(&file, 8192, BLOCK).unwrap() == [7; BLOCK]);
    assert!(world.read(&file, 12_288, BLOCK).unwrap() == part(12_288..12_288 + BLOCK));
}

/// A power cut in the middle of a checkpoint leaves checksums that cannot be read.
#[test]
fn checksums_that_cannot_be_read_cost_their_group_and_not_the_disk() {
    const LONG: usize = (1024 + 100) * BLOCK;
    let mut world = World::new(1, 1);
    let file = world.file(5);
    let bytes = pattern(1, LONG);
    for (index, some) in bytes.chunks(1 << 20).enumerate() {
        world.write(&file, (index << 20) as u64, some).unwrap();
        world.commit(&file).unwrap();
    }
    world.flush(0);
    world.write(&file, 1030 * 4096, &[7; BLOCK]).unwrap();
    world.commit(&file).unwrap();
    world.servers[0].crash();
    spoil_at(&mut world, object(), sums_offset(1));
    assert_eq!(health(&mut world), Health::Serving);
    assert_eq!(problems(&world, "checksums"), 1);
    for _ in 0..2 {
        assert!(world.read(&file, 0, 1 << 20).unwrap() == bytes[..1 << 20]);
        assert!(world.read(&file, 1030 * 4096, BLOCK).unwrap() == [7; BLOCK]);
        assert_eq!(world.read(&file, 1024 * 4096, BLOCK), Err(Errno::EIO));
        assert_eq!(world.read(&file, 1031 * 4096, BLOCK), Err(Errno::EIO));
        world.forget_memory();
    }
    // Blocks that were written over are there again, blocks behind the end are as ever.
    world.write(&file, 1031 * 4096, &[8; BLOCK]).unwrap();
    world.write(&file, 1200 * 4096, &[9; BLOCK]).unwrap();
    world.commit(&file).unwrap();
    world.forget_memory();
    assert!(world.read(&file, 1031 * 4096, BLOCK).unwrap() == [8; BLOCK]);
    assert!(world.read(&file, 1124 * 4096, 76 * BLOCK).unwrap() == [0; 76 * BLOCK]);
    assert!(world.read(&file, 1200 * 4096, BLOCK).unwrap() == [9; BLOCK]);
    let file = cut(file, 1);
    assert_eq!(world.truncate(&file, 1040 * 4096 + 5), Ok(()));
    assert!(world.read(&file, 1030 * 4096, BLOCK).unwrap() == [7; BLOCK]);
}

/// Repeated reads of damaged blocks do not fill the list.
#[test]
fn a_damaged_block_is_named_once() {
    let (mut world, file) = placed();
    flip(&mut world, 50);
    flip(&mut world, 80);
    for _ in 0..2 {
        for block in [50, 80] {
            assert_eq!(world.read(&file, block * 4096, BLOCK), Err(Errno::EIO));
        }
    }
    assert_eq!(problems(&world, "block 50 "), 1);
    assert_eq!(problems(&world, "block 80 "), 1);
}

/// A failing read may take a disk half a minute.
#[test]
fn a_bad_sector_costs_few_reads() {
    let (mut world, file) = placed();
    spoil(&mut world, 50);
    assert_eq!(world.read(&file, 0, 64 * BLOCK), Err(Errno::EIO));
    assert!(world.servers[0].disks[0].bad_reads <= 4, "{}", world.servers[0].disks[0].bad_reads);
    let before = world.servers[0].disks[0].bad_reads;
    assert!(world.read(&file, 0, 50 * BLOCK).unwrap() == part(0..50 * BLOCK));
    assert_eq!(world.servers[0].disks[0].bad_reads, before, "they are in memory");
}

#[test]
fn a_disk_that_takes_long_to_fail_is_not_asked_often_by_a_cut() {
    let (mut world, file) = placed();
    spoil(&mut world, 50);
    world.stall = Some((data_offset(48), Duration::from_secs(5)));
    let file = cut(file, 1);
    assert_eq!(world.truncate(&file, 50 * 4096 + 1000), Ok(()));
    assert!(world.servers[0].disks[0].bad_reads <= 3, "{}", world.servers[0].disks[0].bad_reads);
}

/// Bytes that a cut gave up do not come back as data when a commit over them is broken off.
#[test]
fn what_a_cut_gave_up_is_not_summed_anew() {
    let mut left = 0;
    for turns in 4..24 {
        let (mut world, file) = placed();
        flip(&mut world, 50);
        let file = cut(file, 1);
        assert_eq!(world.truncate(&file, 50 * 4096 + 1000), Ok(()));
        world.flush(0);
        world.disk_turns = 6;
        let new = pattern(2, 100 * BLOCK);
        world.write(&file, 50 * 4096, &new).unwrap();
        let commit = world.start_commit(&file);
        world.turns(turns);
        if commit.borrow().is_some() {
            continue;
        }
        world.servers[0].crash();
        world.turns(50);
        let bytes = (world.size(&file) - 50 * 4096).min(4096) as usize;
        let found = world.read(&file, 50 * 4096, bytes);
        left += usize::from(found.is_err());
        assert!(found != Ok(vec![0; bytes]), "after {turns} turns");
        // If the new bytes came in part only, the rest is zeros: no sector is one of those given up.
        let found = found.unwrap_or_default();
        let sectors = found.chunks_exact(512).zip(new.chunks_exact(512));
        sectors.for_each(|(found, new)| {
            assert!(found == new || found == [0; 512], "after {turns} turns");
        });
    }
    assert!(left > 0, "some were broken off before the block was placed");
}

/// A truncation that finds no room leaves the block as it is.
#[test]
fn a_cut_that_finds_no_room_gives_nothing_up() {
    let (mut world, file) = committed(1, 1, BYTES);
    // So little room that no log is left.
    world.servers[0].disks[0].capacity = Some(64 << 20);
    world.forget_memory();
    spoil(&mut world, 50);
    world.servers[0].disks[0].fill();
    let file = cut(file, 1);
    assert_eq!(world.truncate(&file, 50 * 4096 + 1000), Err(Errno::ENOSPC));
    mend(&mut world, 50);
    world.servers[0].disks[0].capacity = None;
    assert!(world.read(&file, 50 * 4096, BLOCK).unwrap() == part(50 * BLOCK..51 * BLOCK));
    assert_eq!(world.truncate(&file, 50 * 4096 + 1000), Ok(()));
    assert!(world.read(&file, 50 * 4096, 1000).unwrap() == part(50 * BLOCK..50 * BLOCK + 1000));
}

/// A reader who asks for checksums while their file is being cut does not bring them back.
#[test]
fn checksums_behind_a_cut_do_not_come_back_with_a_reader() {
    for turns in 0..60 {
        let mut world = World::with(1, 1, turns as u64 + 1, small);
        let file = world.file(5);
        world.write(&file, 0, &[1; 2 * BLOCK]).unwrap();
        world.write(&file, 1100 * 4096, &[1; BLOCK]).unwrap();
        world.commit(&file).unwrap();
        world.forget_memory();
        assert!(world.read(&file, 0, BLOCK).is_ok());
        world.disk_turns = 8;
        let (client, short) = (world.client.clone(), cut(file, 1));
        let cutting = world.start(async move { client.truncate(&short, 4096).await });
        world.turns(turns);
        let into = world.cx().frames().alloc_exact(BLOCK).expect("memory");
        let client = world.client.clone();
        let reading = world.start(async move { client.read(&file, 1100 * 4096, into).await });
        world.until(|| cutting.borrow().is_some() && reading.borrow().is_some());
        assert_eq!(cutting.take(), Some(Ok(())));
        world.write(&short, 1200 * 4096, &[2; BLOCK]).unwrap();
        world.commit(&short).unwrap();
        let found = world.read(&short, 1100 * 4096, BLOCK);
        assert!(found == Ok(vec![0; BLOCK]), "after {turns} turns");
    }
}
