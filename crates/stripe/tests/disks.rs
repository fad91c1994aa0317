//! Disks that are full, read-only, missing or another server's.

use crate::common::disk::Disk;
use crate::common::*;
use node::rings::{DiskFile, DiskOp};
use stripe::{FileRef, Health, Kept, ServerConfig};
use wire::{Errno, FileId, Home, ObjectId};

#[test]
fn a_full_disk_refuses_and_keeps_what_it_acknowledged() {
    let mut world = World::new(1, 1);
    world.servers[0].disks[0].capacity = Some(3 << 20);
    let mut committed = 0;
    let mut refused = false;
    for file in 1..40 {
        let file = world.file(file);
        let wrote = world.write(&file, 0, &pattern(file.file.0, 200_000));
        let result = wrote.and_then(|_| world.commit(&file));
        match result {
            Ok(_) if !refused => committed = file.file.0,
            Ok(_) => {}
            Err(errno) => {
                assert_eq!(errno, Errno::ENOSPC);
                refused = true;
            }
        }
        if refused {
            break;
        }
    }
    assert!(refused && committed >= 5, "{committed}");
    for file in 1..=committed {
        let file = world.file(file);
        assert_eq!(world.read(&file, 0, 200_000).unwrap(), pattern(file.file.0, 200_000));
    }
    // A restart finds room for everything that was acknowledged.
    world.servers[0].crash();
    for file in 1..=committed {
        let file = world.file(file);
        assert_eq!(world.read(&file, 0, 200_000).unwrap(), pattern(file.file.0, 200_000));
    }
    // Removing makes room again.
    let client = world.client.clone();
    let gone = world.file(1);
    world.run(async move { client.remove(&gone).await }).unwrap();
    world.flush(0);
    let next = world.file(50);
    world.write(&next, 0, &pattern(1, 100_000)).unwrap();
    world.commit(&next).unwrap();
}

#[test]
fn disks_that_are_missing_or_read_only_are_told_and_others_go_on() {
    let mut world = World::new(1, 2);
    let files: Vec<FileRef> = (1..30).map(|file| world.file(file)).collect();
    for file in &files {
        world.write(file, 0, &pattern(file.file.0, 10_000)).unwrap();
        world.commit(file).unwrap();
    }
    world.flush(0);
    world.servers[0].disks[0].missing = true;
    world.servers[0].kill();
    world.turns(50);
    let results: Vec<_> = files.iter().map(|file| world.read(file, 0, 10_000)).collect();
    let failed = results.iter().filter(|result| **result == Err(Errno::ENXIO)).count();
    let right = results.iter().zip(&files).filter(|(result, file)| {
        result.as_ref().is_ok_and(|bytes| *bytes == pattern(file.file.0, 10_000))
    });
    assert_eq!(failed + right.count(), files.len());
    assert!(failed > 3 && failed < 26);
    let text = world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(text.contains("disk 0") && text.contains("missing"), "{text}");
    world.servers[0].disks[0].missing = false;
    world.servers[0].disks[1].read_only = true;
    world.servers[0].kill();
    world.turns(50);
    for file in &files {
        assert_eq!(world.read(file, 0, 10_000).unwrap(), pattern(file.file.0, 10_000));
    }
    let refused = files.iter().map(|file| {
        let wrote = world.write(file, 0, b"x");
        wrote.and_then(|_| world.commit(file))
    });
    assert!(refused.filter(|result| *result == Err(Errno::EROFS)).count() > 3);
}

/// No zeros are read from it, nothing more is acknowledged, and what takes its place meanwhile is not believed.
#[test]
fn a_disk_that_goes_missing_under_its_server_is_not_used_any_more() {
    let mut world = World::new(1, 2);
    let files: Vec<FileRef> = (1..20).map(|file| world.file(file)).collect();
    for file in &files {
        world.write(file, 0, &pattern(file.file.0, 400_000)).unwrap();
        world.commit(file).unwrap();
    }
    world.forget_memory();
    // Opened, and most of their blocks not in memory.
    files.iter().for_each(|file| drop(world.read(file, 0, 4096).unwrap()));
    world.servers[0].disks[0].missing = true;
    let lost = [Errno::ENODEV, Errno::ENXIO];
    let check = |world: &mut World, file: &FileRef| match world.read(file, 0, 400_000) {
        Ok(bytes) => assert!(bytes == pattern(file.file.0, 400_000), "{}", file.file.0),
        Err(errno) => assert!(lost.contains(&errno), "{errno}"),
    };
    files.iter().for_each(|file| check(&mut world, file));
    let refused = |world: &mut World, file: &FileRef| {
        let wrote = world.write(file, 0, b"new");
        wrote.and_then(|_| world.commit(file)).err().inspect(|errno| assert!(lost.contains(errno)))
    };
    let count = files.iter().filter(|file| refused(&mut world, file).is_some()).count();
    assert!(count > 3, "{count}");
    let told = world.servers[0].server.as_ref().unwrap().disks();
    let Health::Refused(_, text) = &told[0] else { panic!("{told:?}") };
    assert!(text.contains("disk 0") && text.contains("start the server again"), "{text}");
    assert_eq!(told[1], Health::Serving);
    // An empty directory comes in its place.
    let kept = std::mem::replace(&mut world.servers[0].disks[0], crate::common::disk::Disk::new(9));
    for file in &files[10..] {
        match world.read(file, 4096, 8192) {
            Ok(bytes) => assert!(bytes == pattern(file.file.0, 400_000)[4096..12_288]),
            Err(errno) => assert_eq!(errno, Errno::ENODEV),
        }
    }
    assert!(world.servers[0].disks[0].objects().is_empty());
    world.flush(0);
    world.servers[0].disks[0] = kept;
    world.servers[0].disks[0].missing = false;
    world.servers[0].kill();
    world.turns(50);
    for file in &files {
        let bytes = world.read(file, 4096, 8192).unwrap();
        assert!(bytes == pattern(file.file.0, 400_000)[4096..12_288], "it is back");
    }
}

#[test]
fn a_file_that_is_gone_under_an_open_object_is_damage_and_no_hole() {
    let (mut world, file) = committed(1, 1, 100_000);
    world.write(&file, 6 << 20, &pattern(6, 4096)).unwrap();
    world.commit(&file).unwrap();
    world.forget_memory();
    assert!(world.read(&file, 0, 4096).unwrap() == pattern(1, 4096));
    let object = world.servers[0].disks[0].objects()[0];
    world.servers[0].disks[0].run(DiskOp::Remove { file: object }).unwrap();
    assert_eq!(world.read(&file, 6 << 20, 4096), Err(Errno::EIO));
    let told = world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(told.contains("its file is gone"), "{told}");
}

/// A disk that takes nothing any more while files are copied to it, and then does again: a write that failed says so,
/// what was acknowledged is there, and the server goes on.
fn goes_on_after(
    spoil: fn(&mut crate::common::disk::Disk),
    mend: fn(&mut crate::common::disk::Disk),
    told: Errno,
) {
    let mut world = World::new(1, 1);
    let mut kept = Vec::new();
    let mut refused = 0;
    for number in 1..60 {
        match number {
            20 => spoil(&mut world.servers[0].disks[0]),
            40 => {
                mend(&mut world.servers[0].disks[0]);
                // The server tries again what it could not write, once in half a second.
                world.turns(20_000);
            }
            _ => {}
        }
        let file = world.file(number);
        let wrote = world.write(&file, 0, &pattern(number, 300_000));
        match wrote.and_then(|_| world.commit(&file)) {
            Ok(_) => kept.push(file),
            Err(errno) => {
                assert_eq!(errno, told);
                refused += 1;
            }
        }
    }
    assert!(refused >= 3 && kept.len() >= 20, "{refused} refused, {} kept", kept.len());
    assert!(kept.last().unwrap().file.0 >= 50, "it goes on");
    let check = |world: &mut World| {
        for file in &kept {
            assert_eq!(world.read(file, 0, 300_000).unwrap(), pattern(file.file.0, 300_000));
        }
    };
    check(&mut world);
    world.servers[0].crash();
    check(&mut world);
}

#[test]
fn a_disk_that_turns_read_only_for_a_while_loses_nothing() {
    goes_on_after(|disk| disk.read_only = true, |disk| disk.read_only = false, Errno::EROFS);
}

#[test]
fn a_disk_that_is_full_for_a_while_loses_nothing() {
    goes_on_after(|disk| disk.capacity = Some(9 << 20), |disk| disk.capacity = None, Errno::ENOSPC);
}

/// Another process fills the disk while there is data in its log, and the server starts again.
#[test]
fn a_restart_on_a_full_disk_serves_what_the_log_holds() {
    let mut world = World::new(1, 1);
    let (large, small) = (world.file(1), world.file(2));
    let (bytes, few) = (pattern(1, 400_000), pattern(2, 50_000));
    world.write(&large, 0, &bytes).unwrap();
    world.commit(&large).unwrap();
    world.write(&small, 0, &few).unwrap();
    world.commit(&small).unwrap();
    world.write(&large, 10_000, &few).unwrap();
    world.commit(&large).unwrap();
    let cut = FileRef { truncations: 1, ..small };
    world.truncate(&cut, 30_000).unwrap();
    let wanted = [&bytes[..10_000], &few, &bytes[60_000..]].concat();
    let check = |world: &mut World| {
        assert!(world.read(&large, 0, 400_000).unwrap() == wanted);
        assert!(world.read(&cut, 0, 30_000).unwrap() == few[..30_000]);
        assert_eq!(world.size(&cut), 30_000);
    };
    for _ in 0..2 {
        world.servers[0].crash();
        world.servers[0].disks[0].fill();
        check(&mut world);
        assert_eq!(world.servers[0].server.as_ref().unwrap().disks(), [Health::Serving]);
    }
    let told = world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(told.contains("disk 0: it is full"), "{told}");
    // New data does not fit, until something is removed.
    let new = world.file(3);
    world.write(&new, 0, &few).unwrap();
    assert_eq!(world.commit(&new).map(drop), Err(Errno::ENOSPC));
    check(&mut world);
    let client = world.client.clone();
    world.run(async move { client.remove(&large).await }).unwrap();
    let logged = |world: &World| world.servers[0].server.as_ref().unwrap().counters().logged_bytes;
    world.turns(20_000);
    assert_eq!(logged(&world), 0, "all is in place");
    world.servers[0].crash();
    assert!(world.read(&cut, 0, 30_000).unwrap() == few[..30_000]);
    assert_eq!(world.size(&large), 0);
}

#[test]
fn what_a_full_disk_had_no_room_for_can_be_cut_off() {
    let (mut world, file) = committed(1, 1, 20_000);
    world.servers[0].disks[0].capacity = Some(0);
    let service = world.servers[0].server.clone().unwrap();
    assert_eq!(world.run_on(0, async move { service.flush().await }), Err(Errno::ENOSPC));
    world.servers[0].disks[0].capacity = None;
    let cut = FileRef { truncations: 1, ..file };
    assert_eq!(world.truncate(&cut, 5_000), Ok(()));
    assert!(world.read(&cut, 0, 20_000).unwrap()[..5_000] == pattern(1, 5_000));
    assert_eq!(world.size(&cut), 5_000);
}

#[test]
fn what_a_disk_did_not_cut_off_at_once_does_not_come_back() {
    let mut world = World::new(1, 1);
    let file = world.file(5);
    for at in 0..6 {
        world.write(&file, at << 20, &pattern(at, 1 << 20)).unwrap();
    }
    world.commit(&file).unwrap();
    world.forget_memory();
    world.servers[0].disks[0].keeps_lengths = true;
    let cut = FileRef { truncations: 1, ..file };
    assert_eq!(world.truncate(&cut, 5_000), Err(Errno::EIO));
    let service = world.servers[0].server.clone().unwrap();
    assert_eq!(world.run_on(0, async move { service.flush().await }), Err(Errno::EIO));
    assert_eq!(world.write(&cut, 3 << 20, b"x").map(drop), Err(Errno::EIO));
    world.servers[0].disks[0].keeps_lengths = false;
    world.truncate(&cut, 5_000).unwrap();
    world.truncate(&FileRef { truncations: 2, ..file }, 6 << 20).unwrap();
    for _ in 0..2 {
        assert!(world.read(&file, 0, 5_000).unwrap() == pattern(0, 1 << 20)[..5_000]);
        assert!(world.read(&file, 5 << 20, 8_192).unwrap() == [0; 8_192]);
        world.forget_memory();
    }
}

fn writes_to(op: &DiskOp, file: fn(&DiskFile) -> bool) -> bool {
    matches!(op, DiskOp::Write { file: to, .. } if file(to))
}

/// Retries for as long as the disk fails take no more memory and no more of the log each time.
#[test]
fn a_commit_that_fails_for_ever_stays_within_bounds() {
    let config = |server| stripe::ServerConfig { checkpoint_bytes: 16 << 10, ..small(server) };
    let mut world = World::with(1, 1, 1, config);
    let file = world.file(1);
    world.write(&file, 0, &pattern(1, 4096)).unwrap();
    world.commit(&file).unwrap();
    world.servers[0].disks[0].refuses =
        Some(|op| writes_to(op, |file| matches!(file, DiskFile::Object(_))));
    // Too many to be logged, each alone.
    for block in (2..=200).step_by(2) {
        world.write(&file, block * 4096, &pattern(block, 4096)).unwrap();
    }
    for _ in 0..80 {
        assert_eq!(world.commit(&file).map(drop), Err(Errno::EIO));
        world.turns(5_000);
    }
    let counters = world.servers[0].server.as_ref().unwrap().counters();
    assert!(counters.logged_bytes < 80 << 10, "{counters:?}");
    world.servers[0].disks[0].refuses = None;
    world.turns(5_000);
    world.commit(&file).unwrap();
    world.servers[0].crash();
    for block in (2..=200).step_by(2) {
        assert!(world.read(&file, block * 4096, 4096).unwrap() == pattern(block, 4096));
    }
}

/// At a clean stop one object that cannot be committed keeps no other from it.
#[test]
fn a_stop_commits_what_it_can() {
    let mut world = World::new(1, 1);
    let (bad, good) = (world.file(1), world.file(2));
    world.write(&bad, 0, &pattern(1, 400_000)).unwrap();
    world.write(&good, 0, &pattern(2, 100_000)).unwrap();
    world.servers[0].disks[0].refuses =
        Some(|op| writes_to(op, |file| *file == World::object(1, 0)));
    let service = world.servers[0].server.clone().unwrap();
    assert_eq!(world.run_on(0, async move { service.flush().await }), Err(Errno::EIO));
    world.servers[0].crash();
    assert!(world.read(&good, 0, 100_000).unwrap() == pattern(2, 100_000));
}

/// A client that is told of a failed removal still finds all of the file.
#[test]
fn a_removal_that_was_refused_harms_nothing() {
    let (mut world, file) = committed(1, 1, 400_000);
    world.forget_memory();
    world.servers[0].disks[0].refuses =
        Some(|op| writes_to(op, |file| matches!(file, DiskFile::Log(_))));
    let client = world.client.clone();
    assert_eq!(world.run(async move { client.remove(&file).await }), Err(Errno::EIO));
    world.servers[0].disks[0].refuses = None;
    assert!(world.read(&file, 0, 400_000).unwrap() == pattern(1, 400_000));
    world.servers[0].crash();
    assert!(world.read(&file, 0, 400_000).unwrap() == pattern(1, 400_000));
    let client = world.client.clone();
    world.run(async move { client.remove(&file).await }).unwrap();
    assert_eq!(world.size(&file), 0);
}

/// The log could not be dropped because of another object: it still makes this one, in part.
#[test]
fn what_the_log_still_has_is_not_set_aside() {
    let mut world = World::new(1, 1);
    let last = world.file(50);
    world.write(&last, 0, &pattern(50, 20_000)).unwrap();
    world.commit(&last).unwrap();
    world.flush(0);
    // More than a checkpoint brings up to date at once.
    for file in 1..=40 {
        let file = world.file(file);
        world.write(&file, 0, &pattern(1, 5_000)).unwrap();
        world.commit(&file).unwrap();
    }
    world.servers[0].disks[0].keeps_lengths = true;
    let cut = FileRef { truncations: 1, ..last };
    assert_eq!(world.truncate(&cut, 0), Err(Errno::EIO));
    let object = ObjectId { volume: VOLUME, file: FileId(1), column: 0 };
    let (server, kept) = (last.layout.server(0), Kept { object, disk: 0 });
    let set_aside = |world: &mut World| {
        let client = world.client.clone();
        world.run(async move { client.quarantine(server, kept).await })
    };
    for _ in 0..2 {
        assert_eq!(set_aside(&mut world), Err(Errno::EIO));
    }
    world.servers[0].disks[0].keeps_lengths = false;
    assert_eq!(set_aside(&mut world), Ok(5_000));
    world.servers[0].crash();
    world.turns(100);
    let file = world.file(1);
    assert_eq!(world.size(&file), 0);
}

#[test]
fn a_foreign_directory_is_refused_by_name() {
    let mut world = World::new(1, 1);
    world.write(&world.file(1), 0, b"x").unwrap();
    let mut other = World::with(1, 1, 3, |server| stripe::ServerConfig {
        volume: wire::VolumeId(8),
        ..small(server)
    });
    other.servers[0].disks = std::mem::take(&mut world.servers[0].disks);
    other.servers[0].kill();
    other.turns(50);
    let text = other.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(text.contains("volume 7") && text.contains("says 8"), "{text}");
    assert_eq!(other.read(&other.file(1), 0, 4096), Err(Errno::ENXIO));
}

/// A new disk was full when its label was to be written: the next start writes it. One that holds something, or has
/// been in use, gets no new one.
#[test]
fn a_first_start_that_failed_is_made_up_for() {
    let mut world = World::new(1, 1);
    world.servers[0].disks[0] = Disk::new(9);
    world.servers[0].disks[0].capacity = Some(0);
    world.servers[0].kill();
    world.turns(50);
    let said = |world: &World| world.servers[0].server.as_ref().unwrap().problems().join("\n");
    assert!(said(&world).contains("its label cannot be written"), "{}", said(&world));
    assert_eq!(world.servers[0].disks[0].bytes(DiskFile::Label), Some(&[][..]));
    world.servers[0].disks[0].capacity = None;
    world.servers[0].kill();
    world.turns(50);
    assert_eq!(said(&world), "");
    world.write(&world.file(1), 0, b"x").unwrap();
    world.commit(&world.file(1)).unwrap();
    let label = world.servers[0].disks[0].bytes_mut(DiskFile::Label).clone();
    for (zeros, why) in [(4096, "not one of ours"), (label.len(), "holds data but no label")] {
        world.servers[0].disks[0].bytes_mut(DiskFile::Label)[..zeros].fill(0);
        world.servers[0].kill();
        world.turns(50);
        assert!(said(&world).contains(why), "{}", said(&world));
    }
    *world.servers[0].disks[0].bytes_mut(DiskFile::Label) = label;
    world.servers[0].kill();
    assert_eq!(world.read(&world.file(1), 0, 1).unwrap(), b"x");
}

#[test]
fn many_files_are_removed_by_shared_log_writes_and_each_has_its_own_outcome() {
    let mut world = World::new(2, 1);
    // More than one request names.
    let files: Vec<FileRef> = (1..=150).map(|number| world.file(number)).collect();
    for file in &files {
        world.write(file, 0, b"written").unwrap();
        world.commit(file).unwrap();
    }
    let writes = |world: &World| -> u64 {
        world.servers.iter().flat_map(|s| &s.server).map(|s| s.counters().log_writes).sum()
    };
    let before = writes(&world);
    let missing = Home { disk: 7, ..files[0].layout.home(0) };
    let layout = files[0].layout.with_home(1, 0, missing).unwrap();
    let nowhere = FileRef { layout, ..world.file(999) };
    let (client, all) = (world.client.clone(), [&files[..], &[nowhere]].concat());
    let removed = world.run(async move { client.remove_all(&all).await });
    assert!(removed[..150].iter().all(|removed| *removed == Ok(())), "{removed:?}");
    assert_eq!(removed[150], Err(Errno::ENXIO));
    assert!(writes(&world) - before <= 8, "{} writes", writes(&world) - before);
    for file in &files {
        assert_eq!(world.write(file, 0, b"late"), Err(Errno::ESTALE));
    }
    world.servers.iter_mut().for_each(|server| server.crash());
    world.turns(100);
    assert!(files.iter().all(|file| world.size(file) == 0), "also after a restart");
}

/// Each needs a record in the log; a removal that finds no room is tried again by the manager.
#[test]
fn on_a_full_disk_removals_find_room_again_and_again() {
    let mut world = World::new(1, 1);
    for file in 1..=80 {
        let file = world.file(file);
        world.write(&file, 0, &[7; 4096]).unwrap();
        world.commit(&file).unwrap();
    }
    world.flush(0);
    world.servers[0].disks[0].capacity = Some(135 << 20);
    for restart in [false, true] {
        for number in (1..=40).map(|number| if restart { 40 + number } else { number }) {
            world.servers[0].disks[0].fill_by_others();
            let file = world.file(number);
            let removed = (0..3).any(|_| {
                let (client, file) = (world.client.clone(), file);
                let removed = world.run(async move { client.remove(&file).await });
                world.turns(50);
                removed.is_ok()
            });
            assert!(removed, "file {number}");
        }
        world.servers[0].crash();
        world.turns(2000);
    }
    for number in 1..=80 {
        let file = world.file(number);
        assert_eq!(world.size(&file), 0, "file {number} is back");
    }
}

#[test]
fn a_disk_that_serves_in_a_moment_is_waited_for_by_a_list_and_not_left_out() {
    let mut world = World::with(1, 2, 1, |id| ServerConfig { confirms: true, ..small(id) });
    let server = |world: &World| world.servers[0].server.clone().unwrap();
    world.turns(200);
    (0..2).for_each(|disk| server(&world).confirm(disk, Ok(())));
    for file in 1..=4 {
        let file = world.file(file);
        world.write(&file, 0, b"x").unwrap();
    }
    world.flush(0);
    world.servers[0].kill();
    world.turns(200);
    assert!(server(&world).is_ready());
    server(&world).confirm(0, Ok(()));
    let (client, id) = (world.client.clone(), world.file(1).layout.server(0));
    let listed = world.start(async move { client.list(id, None, 9).await });
    world.turns(500);
    assert!(listed.borrow().is_none(), "{listed:?}");
    server(&world).confirm(1, Ok(()));
    world.until(|| listed.borrow().is_some());
    assert_eq!(listed.take().unwrap().map(|objects| objects.len()), Ok(4));
}

#[test]
fn what_a_client_waits_for_and_what_is_refused_is_known_with_disk_and_reason() {
    let mut world = World::with(1, 1, 1, |id| ServerConfig { confirms: true, ..small(id) });
    world.turns(200);
    let (client, file) = (world.client.clone(), world.single(1));
    let home = file.layout.home(0);
    let size = world.start(async move { client.attributes(&file).await });
    world.turns(500);
    let waits = world.cx().waits();
    let told: Vec<_> = waits.iter().map(|wait| (wait.node, wait.disk, wait.why)).collect();
    assert_eq!(told, [(home.server, Some(0), Errno::EAGAIN)]);
    let server = world.servers[0].server.clone().unwrap();
    server.confirm(0, Err("this is an older copy of the disk".to_string()));
    world.until(|| size.borrow().is_some());
    assert_eq!(size.take(), Some(Err(Errno::ENXIO)));
    assert_eq!(world.cx().waits(), []);
    let refused: Vec<_> = world.cx().refusals().into_iter().collect();
    assert_eq!(refused, [(home, "disk 0: this is an older copy of the disk".to_string())]);
}
