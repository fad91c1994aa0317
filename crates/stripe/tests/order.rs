//! The order of writes: what is retransmitted after a restart of its server, and columns that move from disk to disk.

use crate::common::*;
use stripe::{FileRef, Seek, Write};
use wire::{Errno, Home, NodeId};

#[test]
fn what_is_sent_again_does_not_replace_what_is_newer_and_stable() {
    let mut world = World::new(1, 1);
    let file = world.file(1);
    let older = world.write(&file, 0, &[1; 20_000]).unwrap();
    world.write(&file, 5_000, &[2; 10_000]).unwrap();
    world.commit(&file).unwrap();
    let lost = world.write(&file, 18_000, &[3; 4_000]).unwrap();
    world.servers[0].kill();
    world.rewrite(&file, 0, &[1; 20_000], &older).unwrap();
    world.rewrite(&file, 18_000, &[3; 4_000], &lost).unwrap();
    let wanted = [vec![1; 5_000], vec![2; 10_000], vec![1; 3_000], vec![3; 4_000]].concat();
    assert_eq!(world.read(&file, 0, 22_000).unwrap(), wanted);
}

#[test]
fn what_is_sent_again_in_another_order_ends_as_it_was_written() {
    let mut world = World::new(1, 1);
    let file = world.file(1);
    let first = world.write(&file, 1_000, &[1; 9_000]).unwrap();
    let second = world.write(&file, 3_000, &[2; 4_000]).unwrap();
    world.servers[0].kill();
    world.write(&file, 9_500, &[3; 100]).unwrap();
    world.rewrite(&file, 3_000, &[2; 4_000], &second).unwrap();
    world.rewrite(&file, 1_000, &[1; 9_000], &first).unwrap();
    let parts = [(0, 1_000), (1, 2_000), (2, 4_000), (1, 2_500), (3, 100), (1, 400)];
    let wanted: Vec<u8> = parts.iter().flat_map(|(byte, count)| vec![*byte; *count]).collect();
    assert_eq!(world.read(&file, 0, 10_000).unwrap(), wanted);
    world.commit(&file).unwrap();
    world.servers[0].crash();
    assert_eq!(world.read(&file, 0, 10_000).unwrap(), wanted);
}

#[test]
fn what_is_sent_again_stays_cut_off() {
    let mut world = World::new(1, 1);
    let mut file = world.file(1);
    let written = world.write(&file, 0, &[1; 100_000]).unwrap();
    file.truncations += 1;
    world.truncate(&file, 50_000).unwrap();
    world.servers[0].kill();
    world.rewrite(&file, 0, &[1; 100_000], &written).unwrap();
    assert_eq!(world.size(&file), 50_000);
}

#[test]
fn what_two_lives_ago_lost_is_refused_only_when_somebody_else_wrote_since() {
    let mut world = World::new(1, 1);
    let (mine, shared) = (world.file(1), world.file(2));
    let first = world.write(&mine, 0, &[1; 8_192]).unwrap();
    let second = world.write(&shared, 0, &[1; 8_192]).unwrap();
    world.servers[0].kill();
    world.write(&mine, 4_096, &[2; 4_096]).unwrap();
    world.write_as_another(&shared, 0, &[2; 4_096]);
    world.commit(&mine).unwrap();
    world.commit(&shared).unwrap();
    world.servers[0].kill();
    world.rewrite(&mine, 0, &[1; 4_096], &first).unwrap();
    assert_eq!(world.rewrite(&shared, 0, &[1; 8_192], &second), Err(Errno::EIO));
    assert_eq!(world.read(&shared, 0, 4_096).unwrap(), [2; 4_096]);
}

/// The same object is on two disks of one server while its column moves between them.
#[test]
fn a_column_moves_between_disks_of_one_server() {
    let mut world = World::new(1, 2);
    let file = world.file(4);
    let content = pattern(1, 700_000);
    world.write(&file, 0, &content).unwrap();
    let home = Home { server: NodeId(1), disk: 1 };
    let moved = FileRef { layout: file.layout.with_home(2, 0, home).unwrap(), ..file };
    let fenced = FileRef { layout: file.layout.with_epoch(2), ..file };
    let client = world.client.clone();
    world.run(async move {
        client.copy_column(&file, &moved, 0, 0, false).await.unwrap();
        client.set_layout(&fenced).await.unwrap();
        client.vacate_column(&fenced, 0).await.unwrap();
    });
    assert_eq!(world.read(&moved, 0, content.len()).unwrap(), content);
    world.servers[0].crash();
    world.turns(100);
    assert_eq!(world.read(&moved, 0, content.len()).unwrap(), content);
    assert_eq!(world.write(&moved, 0, b"new").map(drop), Ok(()));
    // The old object's epoch says that the column moved.
    assert_eq!(world.read(&file, 0, 4096), Err(Errno::ESTALE));
    assert_eq!(world.write(&file, 0, b"late"), Err(Errno::ESTALE));
}

/// Holes of a column are not written to its new disk, and a range punched while it moved is a hole there.
#[test]
fn a_column_that_moves_keeps_its_holes_and_takes_no_more_room() {
    const FAR: u64 = 20 << 20;
    let mut world = World::new(1, 2);
    let mut file = world.file(4);
    file.truncations += 1;
    world.truncate(&file, FAR + (10 << 20)).unwrap();
    for (at, bytes) in [(0, 10_000), (100 * 4096, 12_288), (FAR, 70_000)] {
        world.write(&file, at, &pattern(at + 1, bytes)).unwrap();
    }
    world.commit(&file).unwrap();
    let home = Home { server: NodeId(1), disk: 1 };
    let moved = FileRef { layout: file.layout.with_home(2, 0, home).unwrap(), ..file };
    let before = world.servers[0].disks[1].written_bytes;
    let client = world.client.clone();
    world.run(async move {
        client.copy_column(&file, &moved, 0, 0, false).await.unwrap();
        client.punch(&file, 101 * 4096..102 * 4096).await.unwrap();
        client.punch(&file, FAR..FAR + (1 << 20)).await.unwrap();
        client.copy_column(&file, &moved, 0, 0, false).await.unwrap();
    });
    let written = world.servers[0].disks[1].written_bytes - before;
    assert!(written < 1 << 20, "{written} bytes written for 92 KB");
    let seek = |world: &mut World, at, what| {
        let client = world.client.clone();
        world.run(async move { client.seek(&moved, at, what).await }).unwrap()
    };
    for crash in [false, true] {
        if crash {
            world.servers[0].crash();
            world.turns(100);
        }
        assert_eq!(world.size(&moved), FAR + (10 << 20));
        assert_eq!(world.read(&moved, 0, 10_000).unwrap(), pattern(1, 10_000));
        let mut middle = pattern(100 * 4096 + 1, 12_288);
        middle[4096..8192].fill(0);
        assert_eq!(world.read(&moved, 100 * 4096, 12_288).unwrap(), middle);
        assert_eq!(world.read(&moved, FAR, 70_000).unwrap(), [0; 70_000]);
        assert_eq!(seek(&mut world, 0, Seek::Hole), Some(3 * 4096));
        assert_eq!(seek(&mut world, 3 * 4096, Seek::Data), Some(100 * 4096));
        assert_eq!(seek(&mut world, 100 * 4096, Seek::Hole), Some(101 * 4096));
        assert_eq!(seek(&mut world, 103 * 4096, Seek::Data), None);
    }
}

/// Moves column 0 of a file of two columns from server 1 to server 2, as a manager does.
fn move_to_second(world: &mut World, file: &FileRef) -> FileRef {
    let home = Home { server: NodeId(2), disk: 1 };
    let moved = FileRef { layout: file.layout.with_home(2, 0, home).unwrap(), ..*file };
    let fenced = FileRef { layout: file.layout.with_epoch(2), ..*file };
    let client = world.client.clone();
    world.run(async move {
        client.set_layout(&fenced).await.unwrap();
        client.copy_column(&fenced, &moved, 0, 0, true).await.unwrap();
        client.vacate_column(&fenced, 0).await.unwrap();
    });
    moved
}

/// A client sent its copy again to the new home of a column, over what another one had written there or before.
#[test]
fn what_is_held_of_a_column_that_moved_replaces_nothing_newer() {
    let mut world = World::new(2, 2);
    let file = world.file(4);
    let held = world.write(&file, 0, &[1; 12_288]).unwrap();
    world.write_as_another(&file, 0, &[2; 4_096]);
    let moved = move_to_second(&mut world, &file);
    world.write_as_another(&moved, 8_192, &[3; 4_096]);
    // The old home is not asked: it may be gone.
    world.servers[0].crash();
    world.rewrite(&moved, 0, &[1; 12_288], &held).unwrap();
    let expected = [[2; 4_096], [1; 4_096], [3; 4_096]].concat();
    assert_eq!(world.read(&moved, 0, 12_288).unwrap(), expected);
    world.servers[1].kill();
    world.turns(100);
    world.rewrite(&moved, 0, &[1; 12_288], &held).unwrap();
    assert_eq!(world.read(&moved, 0, 4_096).unwrap(), [2; 4_096]);
}

/// The old home lost the bytes, and the column moved before they were retransmitted.
#[test]
fn what_the_old_home_of_a_column_lost_is_judged_at_the_new_one() {
    let mut world = World::new(2, 2);
    let file = world.file(4);
    let first = world.write(&file, 0, &[1; 8_192]).unwrap();
    world.commit(&file).unwrap();
    let held = world.write(&file, 0, &[2; 16_384]).unwrap();
    world.servers[0].crash();
    world.turns(100);
    world.write_as_another(&file, 4_096, &[3; 4_096]);
    let moved = move_to_second(&mut world, &file);
    world.write_as_another(&moved, 12_288, &[4; 4_096]);
    world.rewrite(&moved, 0, &[2; 16_384], &held).unwrap();
    world.rewrite(&moved, 0, &[1; 8_192], &first).unwrap();
    let expected = [[2; 4_096], [3; 4_096], [2; 4_096], [4; 4_096]].concat();
    assert_eq!(world.read(&moved, 0, 16_384).unwrap(), expected);
}

/// The writer hears of a truncation before the object does: the truncation is not taken for one that was executed.
#[test]
fn a_write_that_knows_of_a_truncation_waits_for_it() {
    let (mut world, file) = committed(1, 1, 600_000);
    let cut = FileRef { truncations: 1, ..file };
    let (client, late) = (world.client.clone(), data(&world.cx(), b"late"));
    let written = world.start(async move { client.write(&cut, 50_000, late, Write::Stable).await });
    world.turns(200);
    assert!(written.borrow().is_none(), "there is a truncation to wait for");
    world.truncate(&cut, 10_000).unwrap();
    world.until(|| written.borrow().is_some());
    written.take().expect("done").unwrap();
    assert_eq!(world.size(&cut), 50_004);
    let found = world.read(&cut, 10_000, 40_004).unwrap();
    assert!(found[..40_000].iter().all(|byte| *byte == 0) && &found[40_000..] == b"late");
}

/// The object was made by who heard of the truncation first: what it wrote stays, and the length is as asked.
#[test]
fn an_object_made_since_a_truncation_is_not_cut_and_not_too_short() {
    for (stable, size) in [(false, 10_000), (true, 10_000), (false, 600_000), (true, 600_000)] {
        let mut world = World::new(1, 1);
        let file = FileRef { truncations: 1, ..world.file(1) };
        world.write(&file, 50_000, b"late").unwrap();
        if stable {
            world.commit(&file).unwrap();
        }
        world.truncate(&file, size).unwrap();
        world.servers[0].crash();
        assert_eq!(world.size(&file), size.max(50_004), "{stable}");
        assert_eq!(world.read(&file, 50_000, 4).unwrap(), b"late");
        // Asked again, it changes nothing.
        world.write(&file, 700_000, b"x").unwrap();
        world.truncate(&file, size).unwrap();
        assert_eq!(world.size(&file), 700_001);
    }
}
