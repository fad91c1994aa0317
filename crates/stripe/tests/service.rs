//! The I/O server and the striping client over a small world.

use crate::common::*;
use node::rings::DiskFile;
use std::time::Duration;
use stripe::{Client, FileRef, Kept};
use wire::{Errno, FileId, Home, Layout, NodeId, ObjectId, Placement};

#[test]
fn what_was_written_is_read() {
    let mut world = World::new(3, 1);
    let file = world.file(5);
    let bytes = pattern(1, 700_001);
    world.write(&file, 0, &bytes).unwrap();
    assert_eq!(world.read(&file, 0, bytes.len()).unwrap(), bytes);
    assert_eq!(world.size(&file), bytes.len() as u64);
    let more = pattern(2, 5000);
    world.write(&file, 123_457, &more).unwrap();
    let mut wanted = bytes.clone();
    wanted[123_457..128_457].copy_from_slice(&more);
    assert_eq!(world.read(&file, 0, wanted.len()).unwrap(), wanted);
    assert!(world.read(&file, 900_000 / 4096 * 4096, 8192).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn a_block_map_of_another_epoch_is_not_used() {
    let world = World::new(3, 1);
    let formula = world.file(5);
    let of_epoch = |epoch| {
        let mut layout = formula.layout.with_epoch(epoch);
        layout.placement = Placement::Map;
        FileRef { layout, ..formula }
    };
    world.client.learn_map(formula.file, 2, &[]);
    let known = [1, 2, 3].map(|epoch| world.client.knows_map(&of_epoch(epoch)));
    assert_eq!(known, [false, true, false]);
}

#[test]
fn committed_bytes_survive_power_loss_and_the_cache_is_not_needed() {
    for (seed, bytes) in [(1, 3000), (2, 200_000), (3, 3_000_000)] {
        let mut world = World::with(2, 2, seed, small);
        let file = world.file(seed);
        let wanted = pattern(seed, bytes);
        for (index, chunk) in wanted.chunks(1 << 20).enumerate() {
            world.write(&file, (index << 20) as u64, chunk).unwrap();
        }
        let before = world.commit(&file).unwrap();
        world.servers.iter_mut().for_each(|server| server.crash());
        assert_eq!(world.read(&file, 0, bytes).unwrap(), wanted, "{bytes} bytes");
        assert_eq!(world.size(&file), bytes as u64);
        let after = world.commit(&file).unwrap();
        assert!(
            (0..2).all(|column| !before.same(column, &after)),
            "a new incarnation, a new verifier"
        );
        world.servers.iter_mut().for_each(|server| server.crash());
        assert_eq!(world.read(&file, 0, bytes).unwrap(), wanted, "{bytes} bytes, again");
    }
}

#[test]
fn a_stable_write_survives_power_loss_without_a_commit() {
    for (seed, bytes) in [(1, 3000), (2, 200_000), (3, 1_000_000)] {
        let mut world = World::with(2, 2, seed, small);
        let file = world.file(seed);
        let mut wanted = pattern(seed, bytes);
        assert!(!world.write(&file, 0, &wanted).unwrap().are_stable());
        let written = world.write_stably(&file, 0, &pattern(seed + 10, bytes / 2)).unwrap();
        wanted[..bytes / 2].copy_from_slice(&pattern(seed + 10, bytes / 2));
        assert!(written.are_stable());
        let columns: Vec<u16> = written.columns().collect();
        let on_these = |at: usize| columns.contains(&((at / 32768 % 2) as u16));
        world.servers.iter_mut().for_each(|server| server.crash());
        let found = world.read(&file, 0, bytes).unwrap();
        let same = (0..bytes).filter(|at| on_these(*at)).all(|at| found[at] == wanted[at]);
        assert!(same, "{bytes} bytes, and what was written to the same objects before");
    }
}

#[test]
fn many_pieces_for_one_server_are_not_stable_one_by_one() {
    let mut world = World::new(2, 1);
    let file = world.striped(5, 4096);
    let bytes = pattern(1, 1_000_000);
    assert!(!world.write_stably(&file, 0, &bytes).unwrap().are_stable());
    assert!(world.servers.iter().all(|s| s.server.as_ref().unwrap().counters().commits == 0));
    world.commit(&file).unwrap();
    world.servers.iter_mut().for_each(|server| server.crash());
    assert_eq!(world.read(&file, 0, bytes.len()).unwrap(), bytes);
}

/// A stable write that could not be committed is an unstable one, and the commit says why.
fn unstable_while(
    spoil: fn(&mut crate::common::disk::Disk),
    mend: fn(&mut crate::common::disk::Disk),
    told: Errno,
) {
    let (mut world, file) = committed(1, 1, 100_000);
    spoil(&mut world.servers[0].disks[0]);
    let written = world.write_stably(&file, 50_000, &pattern(2, 30_000)).unwrap();
    assert!(!written.are_stable());
    assert_eq!(world.commit(&file), Err(told));
    let mut wanted = pattern(1, 100_000);
    wanted[50_000..80_000].copy_from_slice(&pattern(2, 30_000));
    assert_eq!(world.read(&file, 0, 100_000).unwrap(), wanted);
    mend(&mut world.servers[0].disks[0]);
    let stable = world.commit(&file).unwrap();
    assert!(stable.same(0, &written), "the same incarnation: nothing is to be retransmitted");
    world.servers[0].crash();
    assert_eq!(world.read(&file, 0, 100_000).unwrap(), wanted);
    // A newer write, then the old one retransmitted: it must have kept its place in the order.
    spoil(&mut world.servers[0].disks[0]);
    let older = world.write_stably(&file, 0, &[3; 9000]).unwrap();
    assert!(!older.are_stable());
    mend(&mut world.servers[0].disks[0]);
    world.servers[0].crash();
    world.write(&file, 4096, &[4; 4096]).unwrap();
    world.rewrite(&file, 0, &[3; 9000], &older).unwrap();
    wanted[..9000].fill(3);
    wanted[4096..8192].fill(4);
    assert_eq!(world.read(&file, 0, 100_000).unwrap(), wanted);
}

#[test]
fn a_stable_write_to_a_full_disk_is_an_unstable_one() {
    unstable_while(|disk| disk.capacity = Some(0), |disk| disk.capacity = None, Errno::ENOSPC);
}

#[test]
fn a_stable_write_to_a_disk_that_takes_nothing_is_an_unstable_one() {
    unstable_while(|disk| disk.read_only = true, |disk| disk.read_only = false, Errno::EROFS);
}

#[test]
fn a_restart_is_waited_for() {
    let (mut world, file) = committed(2, 1, 100_000);
    let (client, into) = (world.client.clone(), world.cx().frames().alloc_exact(100_000).unwrap());
    let reading = world.start(async move { client.read(&file, 0, into).await.map(|f| f.to_vec()) });
    world.servers[0].kill();
    world.turns(20_000);
    assert_eq!(reading.borrow_mut().take().unwrap().unwrap(), pattern(1, 100_000));
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let (mut world, file) = committed(1, 1, 100_000);
    world.servers.clear();
    let patience = Duration::from_secs(10);
    let client = Client::with_patience(&world.cx(), VOLUME, patience);
    let (into, begun) = (world.cx().frames().alloc_exact(4096).unwrap(), world.now);
    let read = world.run(async move { client.read(&file, 0, into).await.map(drop) });
    let waited = world.now.since(begun);
    assert_eq!(read, Err(Errno::ETIMEDOUT));
    assert!(waited >= patience && waited < 3 * patience, "{waited:?}");
}

#[test]
fn a_flipped_byte_is_an_error_and_not_data() {
    let (mut world, file) = committed(1, 1, 500_000);
    world.flush(0);
    world.servers[0].kill();
    let at = stripe::object::data_offset(50) as usize + 17;
    world.servers[0].disks[0].bytes_mut(World::object(5, 0))[at] ^= 1;
    assert_eq!(world.read(&file, 50 * 4096, 4096), Err(Errno::EIO));
    assert_eq!(world.read(&file, 0, 50 * 4096).unwrap(), &pattern(1, 500_000)[..50 * 4096]);
    assert_eq!(
        world.read(&file, 51 * 4096, 4096).unwrap(),
        &pattern(1, 500_000)[51 * 4096..52 * 4096]
    );
    let server = world.servers[0].server.clone().unwrap();
    assert_eq!((server.counters().corrupt_blocks, server.counters().torn_blocks), (1, 0));
    assert!(server.problems()[0].contains("block 50"));
    // A whole new block heals it.
    world.write(&file, 50 * 4096, &[9; 4096]).unwrap();
    world.commit(&file).unwrap();
    world.servers[0].crash();
    assert_eq!(world.read(&file, 50 * 4096, 4096).unwrap(), [9; 4096]);
}

#[test]
fn a_damaged_transfer_is_repeated_and_counted() {
    let mut world = World::new(1, 1);
    let file = world.file(5);
    let mut left = 2;
    world.meddle = Some(Box::new(move |data| {
        if left > 0 {
            left -= 1;
            data[100] ^= 4;
        }
    }));
    world.write(&file, 0, &pattern(1, 9000)).unwrap();
    assert_eq!(world.client.counters().damaged_writes, 2);
    let mut left = 3;
    world.meddle = Some(Box::new(move |data| {
        if left > 0 {
            left -= 1;
            data[5000] ^= 4;
        }
    }));
    assert_eq!(world.read(&file, 0, 9000).unwrap(), pattern(1, 9000));
    assert_eq!(world.client.counters().damaged_reads, 3);
    world.meddle = Some(Box::new(|data| data[0] ^= 1));
    assert_eq!(world.read(&file, 0, 9000), Err(Errno::EIO));
    assert_eq!(world.client.counters().corrupt_reads, 1);
}

#[test]
fn a_stale_layout_or_generation_is_refused() {
    let mut world = World::new(2, 1);
    let file = world.file(5);
    world.write(&file, 0, &pattern(1, 100_000)).unwrap();
    let newer = FileRef { layout: file.layout.with_epoch(2), ..file };
    let client = world.client.clone();
    world.run(async move { client.set_layout(&newer).await }).unwrap();
    assert_eq!(world.write(&file, 0, b"late"), Err(Errno::ESTALE));
    assert_eq!(world.read(&file, 0, 4096), Err(Errno::ESTALE));
    world.write(&newer, 0, b"right").unwrap();
    let cut = FileRef { truncations: 1, ..newer };
    world.truncate(&cut, 50_000).unwrap();
    assert_eq!(world.write(&newer, 60_000, b"late"), Err(Errno::ESTALE));
    assert_eq!(world.size(&cut), 50_000);
    world.servers.iter_mut().for_each(|server| server.crash());
    assert_eq!(world.write(&newer, 60_000, b"late"), Err(Errno::ESTALE));
    assert_eq!(world.write(&file, 60_000, b"late"), Err(Errno::ESTALE));
    assert_eq!(world.size(&cut), 50_000);
}

#[test]
fn what_was_cut_off_reads_as_zeros_for_ever() {
    let (mut world, file) = committed(1, 1, 600_000);
    let bytes = pattern(1, 600_000);
    world.flush(0);
    let cut = FileRef { truncations: 1, ..file };
    world.truncate(&cut, 10_000).unwrap();
    world.write(&cut, 500_000, b"far").unwrap();
    let check = |world: &mut World, length: usize| {
        let found = world.read(&cut, 0, 500_000).unwrap();
        assert_eq!(found[..10_000], bytes[..10_000]);
        assert!(found[10_000..length].iter().all(|byte| *byte == 0));
    };
    check(&mut world, 500_000);
    world.commit(&cut).unwrap();
    world.servers[0].crash();
    check(&mut world, 500_000);
    let longer = FileRef { truncations: 2, ..file };
    world.truncate(&longer, 5_000_000).unwrap();
    world.servers[0].crash();
    assert_eq!(world.size(&longer), 5_000_000);
    check(&mut world, 500_000);
}

#[test]
fn removed_objects_stay_removed() {
    let (mut world, file) = committed(2, 2, 300_000);
    let client = world.client.clone();
    world.run(async move { client.remove(&file).await }).unwrap();
    assert_eq!(world.write(&file, 0, b"late"), Err(Errno::ESTALE));
    world.servers.iter_mut().for_each(|server| server.crash());
    world.turns(100);
    assert_eq!(world.size(&file), 0);
    let left: usize = world.servers.iter().flat_map(|s| &s.disks).map(|d| d.objects().len()).sum();
    assert_eq!(left, 0);
    assert!(world.read(&file, 0, 4096).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn removing_what_was_never_written_needs_no_log_and_refuses_what_comes_late() {
    let mut world = World::new(4, 1);
    let file = world.file(1);
    world.write(&file, 0, b"one column of four").unwrap();
    let records = |world: &World| -> u64 {
        world.servers.iter().flat_map(|s| &s.server).map(|s| s.counters().log_records).sum()
    };
    let before = records(&world);
    let client = world.client.clone();
    world.run(async move { client.remove(&file).await }).unwrap();
    assert_eq!(records(&world) - before, 1, "of the column that was written");
    for unit in 0..4 {
        let late = world.write(&file, unit * u64::from(file.layout.unit_bytes), b"late");
        assert_eq!(late, Err(Errno::ESTALE), "column of unit {unit}");
    }
}

#[test]
fn quarantined_objects_are_whole_and_out_of_the_way_until_purged() {
    let mut world = World::new(1, 2);
    let file = world.file(5);
    let content = pattern(1, 300_000);
    world.write(&file, 0, &content).unwrap();
    let server = file.layout.server(0);
    let object = ObjectId { volume: VOLUME, file: file.file, column: 0 };
    let kept = Kept { object, disk: file.layout.home(0).disk };
    let aside = DiskFile::Quarantined(object);
    let there =
        |world: &World| world.servers[0].disks.iter().any(|disk| disk.bytes(aside).is_some());
    let client = world.client.clone();
    world.run(async move { client.quarantine(server, kept).await }).unwrap();
    assert!(there(&world));
    assert!(world.read(&file, 0, 4096).unwrap().iter().all(|byte| *byte == 0));
    assert_eq!(world.write(&file, 0, b"late"), Err(Errno::ESTALE));
    let client = world.client.clone();
    let again = world.run(async move { client.quarantine(server, kept).await });
    assert!(again.is_err());
    // No replay makes it again, and its file has all that was written, though it was not committed.
    world.servers[0].crash();
    world.turns(100);
    assert_eq!(world.size(&file), 0);
    let disk = world.servers[0].disks.iter().find(|disk| disk.bytes(aside).is_some()).unwrap();
    let bytes = disk.bytes(aside).unwrap();
    assert!(bytes[12_288..][..content.len()] == content);
    // Put back it is what it was, at once and after another crash, and can be set aside again.
    let restore = |world: &mut World| {
        let client = world.client.clone();
        world.run(async move { client.restore(server, kept).await })
    };
    restore(&mut world).unwrap();
    assert!(!there(&world));
    assert_eq!(world.read(&file, 0, 300_000).unwrap(), content);
    assert_eq!(restore(&mut world), Err(Errno::EEXIST));
    world.write(&file, 0, b"more").unwrap();
    world.commit(&file).unwrap();
    world.servers[0].crash();
    world.turns(100);
    assert_eq!(world.read(&file, 0, 4).unwrap(), b"more");
    let client = world.client.clone();
    let bytes = world.run(async move { client.quarantine(server, kept).await }).unwrap();
    assert_eq!(bytes, 300_000);
    let client = world.client.clone();
    world.run(async move { client.purge(server, kept).await }).unwrap();
    assert!(!there(&world));
    let client = world.client.clone();
    world.run(async move { client.purge(server, kept).await }).unwrap();
    assert_eq!(restore(&mut world), Err(Errno::ENOENT));
}

/// Its removal came after it was set aside, found nothing, and is in the log.
#[test]
fn what_was_put_back_is_not_removed_by_an_earlier_removal() {
    let (mut world, file) = committed(1, 1, 100_000);
    let object = ObjectId { volume: VOLUME, file: file.file, column: 0 };
    let (server, kept) = (file.layout.server(0), Kept { object, disk: 0 });
    let client = world.client.clone();
    world.run(async move { client.quarantine(server, kept).await }).unwrap();
    world.servers[0].kill();
    world.turns(100);
    let client = world.client.clone();
    world.run(async move { client.remove(&file).await }).unwrap();
    let client = world.client.clone();
    world.run(async move { client.restore(server, kept).await }).unwrap();
    world.servers[0].crash();
    assert!(world.read(&file, 0, 100_000).unwrap() == pattern(1, 100_000));
}

#[test]
fn objects_are_listed_in_order() {
    let mut world = World::new(1, 3);
    for file in 1..=20 {
        let file = world.file(file);
        world.write(&file, 0, b"x").unwrap();
    }
    world.flush(0);
    let client = world.client.clone();
    let server = world.file(1).layout.server(0);
    let names = world.run(async move {
        let first = client.list(server, None, 7).await.unwrap();
        let rest = client.list(server, first.last().map(|kept| kept.object), 100).await.unwrap();
        [first, rest].concat()
    });
    let files: Vec<_> = names.iter().map(|kept| kept.object.file.0).collect();
    assert_eq!(files, (1..=20).collect::<Vec<_>>());
    assert!(names.iter().all(|kept| u64::from(kept.disk) == kept.object.file.0 % 3));
}

/// A file with a column on every disk, 32 of them; then a disk more; then one that is lost.
#[test]
fn columns_are_on_the_disks_that_the_layout_names() {
    let mut world = World::new(4, 8);
    let homes: Vec<Home> = (0..32u8)
        .map(|column| Home { server: NodeId(u16::from(column % 4) + 1), disk: column / 4 })
        .collect();
    let layout = Layout::new(1, 4096, &homes).unwrap();
    let file = FileRef { file: FileId(5), layout, truncations: 0 };
    let content = pattern(3, 3 * 32 * 4096 + 1000);
    world.write(&file, 0, &content).unwrap();
    world.commit(&file).unwrap();
    (0..4).for_each(|server| world.flush(server));
    for column in 0..32u16 {
        let (server, disk) = (usize::from(column % 4), usize::from(column / 4));
        let has = |disk: &crate::common::disk::Disk| disk.bytes(World::object(5, column)).is_some();
        let found: Vec<bool> = world.servers[server].disks.iter().map(has).collect();
        assert_eq!(found.iter().position(|has| *has), Some(disk));
        assert_eq!(found.iter().filter(|has| **has).count(), 1);
    }
    for server in &mut world.servers {
        server.disks.push(crate::common::disk::Disk::new(99));
        server.crash();
    }
    world.turns(100);
    assert_eq!(world.read(&file, 0, content.len()).unwrap(), content);
    assert_eq!(world.size(&file), content.len() as u64);
    let nowhere = layout.with_home(1, 0, Home { server: NodeId(1), disk: 9 }).unwrap();
    assert_eq!(world.read(&FileRef { layout: nowhere, ..file }, 0, 4096), Err(Errno::ENXIO));
    let text = world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(text.contains("disk 9 was asked for"), "{text}");
    world.servers[1].disks[2].missing = true;
    world.servers[1].kill();
    world.turns(100);
    let lost = 9u64; // server 2, disk 2
    for unit in 0..64u64 {
        let read = world.read(&file, unit * 4096, 4096);
        match unit % 32 == lost {
            true => assert_eq!(read, Err(Errno::ENXIO)),
            false => assert_eq!(read.unwrap(), content[unit as usize * 4096..][..4096]),
        }
    }
    let client = world.client.clone();
    let listed = world.run(async move { client.list(NodeId(2), None, 100).await }).unwrap();
    assert_eq!(listed.len(), 7);
    // A directory that is empty where the disk was is not a new disk, although it came after the others' labels.
    let refused = |world: &World| match &world.servers[0].server.as_ref().unwrap().disks()[8] {
        stripe::Health::Refused(_, text) => text.clone(),
        other => panic!("{other:?}"),
    };
    world.servers[0].disks[8] = crate::common::disk::Disk::new(99);
    world.servers[0].kill();
    world.turns(100);
    assert!(refused(&world).contains("disk 8") && refused(&world).contains("9 disks"));
    // Nor can the configuration leave it out.
    world.servers[0].disks.pop();
    world.servers[0].kill();
    world.turns(100);
    let said = world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(said.contains("the configuration names 8"), "{said}");
}

#[test]
fn room_that_disks_of_several_servers_share_is_counted_once() {
    let mut world = World::new(3, 2);
    let servers = [NodeId(1), NodeId(2), NodeId(3)];
    let of = |world: &mut World, servers: &[NodeId]| {
        let (client, servers) = (world.client.clone(), servers.to_vec());
        world.run(async move { client.space(&servers).await }).unwrap().total_bytes
    };
    assert_eq!(of(&mut world, &servers), 6 << 30, "each its own");
    // Both disks of the first and one of the second are on one file system.
    for (server, disk) in [(0, 0), (0, 1), (1, 0)] {
        world.servers[server].disks[disk].device = 7;
    }
    assert_eq!(of(&mut world, &servers), 4 << 30);
    assert_eq!(of(&mut world, &servers[..1]), 1 << 30);
    let client = world.client.clone();
    let rooms = world.run(async move { client.rooms(&servers).await });
    let totals: Vec<u64> = rooms.into_iter().map(|room| room.unwrap().total_bytes).collect();
    assert_eq!(totals, [1 << 30, 2 << 30, 2 << 30]);
}

#[test]
fn a_cold_sequential_read_is_few_large_disk_reads() {
    let mut world = World::new(1, 1);
    let file = world.file(5);
    let bytes = pattern(1, 3 << 20);
    for (index, chunk) in bytes.chunks(1 << 20).enumerate() {
        world.write(&file, (index << 20) as u64, chunk).unwrap();
    }
    world.commit(&file).unwrap();
    world.forget_memory();
    world.servers[0].disks[0].reads = 0;
    for offset in (0..3 << 20).step_by(64 << 10) {
        let found = world.read(&file, offset as u64, 64 << 10).unwrap();
        assert_eq!(found, bytes[offset..offset + (64 << 10)]);
    }
    let reads = world.servers[0].disks[0].reads;
    assert!(reads <= 12 + 4, "{reads} reads for 12 windows");
    let counters = world.servers[0].server.as_ref().unwrap().counters();
    assert!(counters.hits >= 40, "{counters:?}");
}

#[test]
fn commits_that_wait_together_share_one_log_write() {
    let mut world = World::new(1, 1);
    let first = world.file(20);
    world.write(&first, 0, b"so that room on the disk is known").unwrap();
    world.commit(&first).unwrap();
    world.disk_turns = 20;
    let files: Vec<FileRef> = (1..9).map(|file| world.file(file)).collect();
    files.iter().for_each(|file| {
        world.write(file, 0, &pattern(1, 5000)).unwrap();
    });
    let client = world.client.clone();
    let before = world.servers[0].server.as_ref().unwrap().counters();
    world.run(async move {
        let all = files.iter().map(|file| {
            let (client, columns) = (client.clone(), all_columns(file));
            async move { client.commit(file, &columns).await.map(drop) }
        });
        assert!(node::all(all).await.iter().all(|result| result.is_ok()));
    });
    let after = world.servers[0].server.as_ref().unwrap().counters();
    assert_eq!(after.commits - before.commits, 8);
    assert!(after.log_writes - before.log_writes <= 3);
}

#[test]
fn torn_blocks_are_told_from_corruption() {
    let mut torn = 0;
    for seed in 1..12 {
        let mut world = World::with(1, 1, seed, small);
        let file = world.file(5);
        let (old, new) = (pattern(seed, 1 << 20), pattern(seed + 100, 1 << 20));
        world.write(&file, 0, &old).unwrap();
        world.commit(&file).unwrap();
        world.crash_in_commit(&file, &new);
        let found = world.read(&file, 0, 1 << 20).unwrap();
        let bytes = found.iter().zip(old.iter().zip(&new));
        assert!(bytes.into_iter().all(|(found, (old, new))| found == old || found == new));
        let counters = world.servers[0].server.as_ref().unwrap().counters();
        assert_eq!(counters.corrupt_blocks, 0);
        torn += counters.torn_blocks;
    }
    assert!(torn > 0);
}

#[test]
fn memory_stays_within_the_cache() {
    let mut world = World::new(1, 1);
    for file in 1..=12 {
        let file = world.file(file);
        world.write(&file, 0, &pattern(file.file.0, 1 << 20)).unwrap();
        world.commit(&file).unwrap();
    }
    for file in 1..=12 {
        let file = world.file(file);
        assert_eq!(world.read(&file, 0, 1 << 20).unwrap(), pattern(file.file.0, 1 << 20));
        let counters = world.servers[0].server.as_ref().unwrap().counters();
        assert!(counters.cached_bytes <= (4 << 20) + (300 << 10), "{counters:?}");
    }
}

/// The last block's checksum is that of the bytes and length that the answer has.
#[test]
fn what_is_read_while_it_grows_is_no_damage() {
    for turn in 0..40 {
        let mut world = World::with(1, 1, 1, small);
        let (file, bytes) = (world.file(5), pattern(1, 300_000));
        world.write(&file, 0, &bytes).unwrap();
        world.commit(&file).unwrap();
        world.forget_memory();
        world.disk_turns = 6;
        let (client, more) = (world.client.clone(), data(&world.cx(), &[9; 200]));
        let write = stripe::Write::Unstable;
        let writing = world.start(async move { client.write(&file, 300_000, more, write).await });
        world.turns(turn);
        let (client, into) = (world.client.clone(), world.cx().frames().alloc_exact(40_000));
        let reading =
            world.start(async move { client.read(&file, 65536 * 4, into.unwrap()).await });
        world.until(|| writing.borrow().is_some() && reading.borrow().is_some());
        let found = reading.take().unwrap().unwrap();
        assert!(found[..300_000 - 65536 * 4] == bytes[65536 * 4..], "turn {turn}");
        assert_eq!(world.client.counters().damaged_reads, 0, "turn {turn}");
    }
}

#[test]
fn what_is_read_while_it_is_cut_off_is_no_damage() {
    for seed in 1..=40 {
        let mut world = World::with(1, 1, seed, small);
        let file = world.file(5);
        let bytes = pattern(1, 1 << 20);
        world.write(&file, 0, &bytes).unwrap();
        world.commit(&file).unwrap();
        world.forget_memory();
        world.disk_turns = 6;
        let (client, cut) = (world.client.clone(), FileRef { truncations: 1, ..file });
        let cutting = world.start(async move { client.truncate(&cut, 100_000).await });
        let read = |world: &mut World, block: usize| {
            let (client, into) = (world.client.clone(), world.cx().frames().alloc_exact(4096));
            let offset = block as u64 * 4096;
            world.start(async move { client.read(&file, offset, into.unwrap()).await })
        };
        let readings: Vec<_> = (0..30)
            .map(|turn| {
                world.turn();
                (100 + 5 * turn, read(&mut world, 100 + 5 * turn))
            })
            .collect();
        world.until(|| cutting.borrow().is_some());
        for (block, reading) in readings {
            world.until(|| reading.borrow().is_some());
            let found = reading.take().unwrap().expect("old bytes, or zeros");
            let old = &bytes[block * 4096..(block + 1) * 4096];
            assert!(found[..] == *old || found.iter().all(|byte| *byte == 0), "seed {seed}");
        }
        let server = world.servers[0].server.clone().unwrap();
        assert_eq!(server.counters().corrupt_blocks, 0, "seed {seed}");
    }
}
