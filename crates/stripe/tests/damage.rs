//! A disk that brings back less, or older things, than it was given: right bytes or an error, never zeros.

use crate::common::disk::Disk;
use crate::common::*;
use node::rings::{DiskFile, DiskOp};
use stripe::object::sums_offset;
use stripe::{FileRef, Health, Seek};
use wire::Errno;

const BYTES: u32 = 30_000;

/// A server with some committed files, in place, and nothing in memory.
fn settled(files: u64) -> (World, Vec<FileRef>) {
    let mut world = World::new(1, 1);
    let files: Vec<FileRef> = (1..=files).map(|file| world.file(file)).collect();
    for file in &files {
        world.write(file, 0, &pattern(file.file.0, BYTES as usize)).unwrap();
        world.commit(file).unwrap();
    }
    world.forget_memory();
    (world, files)
}

fn restart(world: &mut World) {
    world.servers[0].kill();
    world.turns(50);
}

fn problems(world: &World) -> String {
    world.servers[0].server.as_ref().unwrap().problems().join("\n")
}

fn refused(world: &World) -> Option<String> {
    match &world.servers[0].server.as_ref().unwrap().disks()[0] {
        Health::Refused(_, text) => Some(text.clone()),
        _ => None,
    }
}

fn is_damaged(world: &mut World, file: &FileRef, what: &str) {
    assert_eq!(world.read(file, 0, BYTES as usize).unwrap_err(), Errno::EIO);
    let told = problems(world);
    let object = World::object(file.file.0, 0);
    assert!(told.contains(what), "{told}");
    let damaged = world.servers[0].server.as_ref().unwrap().damaged();
    assert!(damaged.iter().any(|(_, id)| DiskFile::Object(*id) == object), "{damaged:?}");
}

fn is_whole(world: &mut World, file: &FileRef) {
    assert!(world.read(file, 0, BYTES as usize).unwrap() == pattern(file.file.0, BYTES as usize));
}

fn disk(world: &mut World) -> &mut Disk {
    &mut world.servers[0].disks[0]
}

/// A copy that leaves holes out would take lost checksums for one, and zeros for the data.
#[test]
fn checksums_that_are_lost_are_no_hole_to_a_seek() {
    let (mut world, files) = settled(1);
    let object = World::object(files[0].file.0, 0);
    let at = sums_offset(0) as usize;
    disk(&mut world).bytes_mut(object)[at..at + 4096].fill(0);
    let (client, file) = (world.client.clone(), files[0]);
    let found = world.run(async move {
        (client.seek(&file, 0, Seek::Data).await, client.seek(&file, 0, Seek::Hole).await)
    });
    assert_eq!(found, (Ok(Some(0)), Ok(Some(8 * 4096))), "the hole is behind the end");
    assert_eq!(world.read(&file, 0, BYTES as usize).unwrap_err(), Errno::EIO);
}

#[test]
fn an_object_file_that_is_missing_is_an_error_and_no_hole() {
    let (mut world, files) = settled(3);
    disk(&mut world).run(DiskOp::Remove { file: World::object(1, 0) }).unwrap();
    restart(&mut world);
    is_damaged(&mut world, &files[0], "its file is missing");
    files[1..].iter().for_each(|file| is_whole(&mut world, file));
    // It can be removed, and is a hole then, as a file that was never written.
    let (client, gone) = (world.client.clone(), files[0]);
    world.run(async move { client.remove(&gone).await }).unwrap();
    world.forget_memory();
    assert!(world.servers[0].server.as_ref().unwrap().damaged().is_empty());
    assert_eq!(world.read(&files[0], 0, 4096), Ok(vec![0; 4096]));
}

#[test]
fn zeroed_headers_are_an_error_and_opening_leaves_the_file_as_it_is() {
    let (mut world, files) = settled(2);
    disk(&mut world).bytes_mut(World::object(1, 0))[..8192].fill(0);
    let before = disk(&mut world).bytes(World::object(1, 0)).unwrap().to_vec();
    restart(&mut world);
    is_damaged(&mut world, &files[0], "no header");
    is_whole(&mut world, &files[1]);
    world.flush(0);
    assert!(disk(&mut world).bytes(World::object(1, 0)).unwrap() == before);
}

#[test]
fn an_older_version_of_an_object_file_is_an_error() {
    let (mut world, files) = settled(2);
    let older = disk(&mut world).bytes(World::object(1, 0)).unwrap().to_vec();
    world.write(&files[0], 0, &pattern(9, BYTES as usize)).unwrap();
    world.commit(&files[0]).unwrap();
    world.forget_memory();
    *disk(&mut world).bytes_mut(World::object(1, 0)) = older;
    restart(&mut world);
    is_damaged(&mut world, &files[0], "older version");
    is_whole(&mut world, &files[1]);
}

#[test]
fn a_file_that_comes_back_after_its_object_was_removed_is_an_error() {
    let (mut world, files) = settled(1);
    let bytes = disk(&mut world).bytes(World::object(1, 0)).unwrap().to_vec();
    let (client, gone) = (world.client.clone(), files[0]);
    world.run(async move { client.remove(&gone).await }).unwrap();
    world.forget_memory();
    let data = world.cx().frames().alloc(bytes.len()).map(|mut frame| {
        frame.truncate(bytes.len());
        frame.copy_from_slice(&bytes);
        frame.freeze()
    });
    let (file, data) = (World::object(1, 0), data.unwrap());
    disk(&mut world).run(DiskOp::Write { file, offset: 0, data, durable: true }).unwrap();
    restart(&mut world);
    is_damaged(&mut world, &files[0], "the index knows no such object");
}

#[test]
fn two_object_files_that_were_swapped_are_errors() {
    let (mut world, files) = settled(3);
    let first = disk(&mut world).bytes(World::object(1, 0)).unwrap().to_vec();
    let second = std::mem::replace(disk(&mut world).bytes_mut(World::object(2, 0)), first);
    *disk(&mut world).bytes_mut(World::object(1, 0)) = second;
    restart(&mut world);
    is_damaged(&mut world, &files[0], "moved or renamed by hand");
    is_damaged(&mut world, &files[1], "moved or renamed by hand");
    is_whole(&mut world, &files[2]);
}

/// At every length, also where the checksums went along with the data.
#[test]
fn an_object_file_that_was_cut_short_never_reads_as_zeros() {
    let (mut world, files) = settled(1);
    let whole = disk(&mut world).bytes(World::object(1, 0)).unwrap().to_vec();
    for bytes in (0..whole.len()).step_by(2048) {
        disk(&mut world).bytes_mut(World::object(1, 0)).truncate(bytes);
        restart(&mut world);
        assert_eq!(world.read(&files[0], 0, BYTES as usize).err(), Some(Errno::EIO), "at {bytes}");
        *disk(&mut world).bytes_mut(World::object(1, 0)) = whole.clone();
    }
    restart(&mut world);
    is_whole(&mut world, &files[0]);
}

/// A hole has nothing on the disk, and that is right.
#[test]
fn a_file_with_holes_in_front_and_at_its_end_reads_as_zeros_there() {
    let mut world = World::new(1, 1);
    let file = world.file(1);
    world.write(&file, 6 << 20, b"in the middle").unwrap();
    world.commit(&file).unwrap();
    let longer = FileRef { truncations: 1, ..file };
    let client = world.client.clone();
    let cut = longer;
    world.run(async move { client.truncate(&cut, 40 << 20).await }).unwrap();
    for _ in 0..2 {
        world.forget_memory();
        assert_eq!(world.read(&longer, 30 << 20, 8192).unwrap(), vec![0; 8192]);
        assert_eq!(world.read(&longer, 0, 8192).unwrap(), vec![0; 8192]);
        assert_eq!(&world.read(&longer, 6 << 20, 13).unwrap(), b"in the middle");
    }
    let file = World::object(1, 0);
    disk(&mut world).bytes_mut(file).truncate(20 << 20);
    restart(&mut world);
    assert_eq!(world.read(&longer, 30 << 20, 8192).unwrap_err(), Errno::EIO);
}

#[test]
fn what_the_log_has_of_a_damaged_object_does_not_make_it_pass_for_whole() {
    let (mut world, files) = settled(2);
    let older = disk(&mut world).bytes(World::object(1, 0)).unwrap().to_vec();
    // Only in the log when the server dies.
    world.write(&files[0], 8192, &pattern(7, 4096)).unwrap();
    world.commit(&files[0]).unwrap();
    disk(&mut world).run(DiskOp::Remove { file: World::object(1, 0) }).unwrap();
    restart(&mut world);
    is_damaged(&mut world, &files[0], "missing");
    // The file is found and put back: it lacks what the log had.
    let data = world.cx().frames().alloc(older.len()).map(|mut frame| {
        frame.truncate(older.len());
        frame.copy_from_slice(&older);
        frame.freeze()
    });
    let (file, data) = (World::object(1, 0), data.unwrap());
    disk(&mut world).run(DiskOp::Write { file, offset: 0, data, durable: true }).unwrap();
    restart(&mut world);
    is_damaged(&mut world, &files[0], "lost since an earlier start");
    is_whole(&mut world, &files[1]);
}

/// The index is what the objects are judged by: a damaged one refuses the disk, and nothing on it is changed.
#[test]
fn an_index_that_is_damaged_missing_short_or_older_refuses_the_disk() {
    let (mut world, files) = settled(2);
    let index = disk(&mut world).files().find(|file| matches!(file, DiskFile::Index(_))).unwrap();
    let older = disk(&mut world).bytes(index).unwrap().to_vec();
    world.write(&files[0], 0, &pattern(1, BYTES as usize)).unwrap();
    world.commit(&files[0]).unwrap();
    world.forget_memory();
    let now = disk(&mut world).bytes(index).unwrap().to_vec();
    assert!(now != older);
    let flipped = |at: usize| {
        let mut bytes = now.clone();
        bytes[at] ^= 4;
        bytes
    };
    let zeroed = |at: usize| {
        let mut bytes = now.clone();
        bytes[at..at + 4096].fill(0);
        bytes
    };
    let damages = [older, flipped(30), flipped(60), flipped(4096 + 60), zeroed(0), zeroed(4096)];
    let short = [Vec::new(), now[..4096].to_vec(), now[..4130].to_vec()];
    for (number, bytes) in damages.into_iter().chain(short).enumerate() {
        *disk(&mut world).bytes_mut(index) = bytes.clone();
        restart(&mut world);
        let text = refused(&world).unwrap_or_else(|| panic!("damage {number} is refused"));
        assert!(text.contains("disk 0") && text.contains("index/"), "{text}");
        assert!(disk(&mut world).bytes(index).unwrap() == bytes, "it is as it was");
    }
    disk(&mut world).run(DiskOp::Remove { file: index }).unwrap();
    restart(&mut world);
    assert!(refused(&world).expect("it is refused").contains("index/"));
}

/// The label's slots are written in turns; one that is damaged leaves the other.
#[test]
fn a_damaged_mark_leaves_the_one_before() {
    let (mut world, files) = settled(3);
    for slot in [3, 4] {
        let before = disk(&mut world).bytes(DiskFile::Label).unwrap().to_vec();
        disk(&mut world).bytes_mut(DiskFile::Label)[slot * 4096..(slot + 1) * 4096].fill(0);
        restart(&mut world);
        files.iter().for_each(|file| is_whole(&mut world, file));
        *disk(&mut world).bytes_mut(DiskFile::Label) = before;
    }
    disk(&mut world).bytes_mut(DiskFile::Label).truncate(3 * 4096);
    restart(&mut world);
    assert!(refused(&world).expect("it is refused").contains("label"));
}

#[test]
fn an_index_that_grew_is_written_anew_and_knows_the_same() {
    let (mut world, files) = settled(4);
    let index = |world: &mut World| {
        let files: Vec<DiskFile> =
            disk(world).files().filter(|file| matches!(file, DiskFile::Index(_))).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0]
    };
    let first = index(&mut world);
    for round in 0..100 {
        world.write(&files[0], 0, &pattern(round, 4096)).unwrap();
        world.commit(&files[0]).unwrap();
        world.flush(0);
    }
    world.servers[0].crash();
    world.turns(50);
    assert!(index(&mut world) > first);
    files[1..].iter().for_each(|file| is_whole(&mut world, file));
    assert_eq!(world.read(&files[0], 0, 4096).unwrap(), pattern(99, 4096));
    disk(&mut world).run(DiskOp::Remove { file: World::object(4, 0) }).unwrap();
    restart(&mut world);
    is_damaged(&mut world, &files[3], "missing");
}

#[test]
fn an_object_whose_loss_is_accepted_begins_anew_and_only_a_damaged_one_can() {
    let (mut world, files) = settled(2);
    let accept = |world: &mut World, file: &FileRef| {
        let (client, file) = (world.client.clone(), *file);
        world.run(async move { client.accept_loss(&file, 0).await })
    };
    assert_eq!(accept(&mut world, &files[0]), Err(Errno::EEXIST));
    disk(&mut world).run(DiskOp::Remove { file: World::object(1, 0) }).unwrap();
    restart(&mut world);
    is_damaged(&mut world, &files[0], "missing");
    assert_eq!(accept(&mut world, &files[0]), Ok(()));
    world.write(&files[0], 4096, b"anew").unwrap();
    world.commit(&files[0]).unwrap();
    for _ in 0..2 {
        assert!(world.read(&files[0], 0, 4096).unwrap() == vec![0; 4096]);
        assert!(world.read(&files[0], 4096, 4).unwrap() == b"anew");
        is_whole(&mut world, &files[1]);
        assert!(world.servers[0].server.as_ref().unwrap().damaged().is_empty());
        world.forget_memory();
    }
}
