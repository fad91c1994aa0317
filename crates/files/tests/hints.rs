//! Hints: files that are named before they are read come from the servers' memory, and the next ones are here when
//! their reader opens them; nothing else about them changes.

use crate::common::{World, messages};
use files::conformance::client::{READ_ONLY, READ_WRITE, WRITE_ONLY, pattern};
use files::limits::{HINTS_MAX, HINTS_TOLD_MAX};
use std::time::Duration;
use wire::{Errno, FileId};

const FILES: u64 = 40;
const BYTES: usize = 30_000;

fn name(number: u64) -> Vec<u8> {
    format!("f{number}").into_bytes()
}

fn content(number: u64) -> Vec<u8> {
    pattern(number + 1, 0, BYTES)
}

/// A world with files that only the disks have, and their numbers.
fn cold(clients: u16) -> (World, Vec<FileId>) {
    let mut world = World::new(3, clients);
    let client = world.client(0);
    let files = world.block_on(async {
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(
                client.put(FileId::ROOT, &name(number), &content(number)).await.expect("put"),
            );
        }
        files
    });
    world.run(Duration::from_secs(2));
    (10..13).for_each(|server| world.restart(server));
    world.run(Duration::from_secs(5));
    (world, files)
}

fn name_all(world: &mut World, index: u16, files: &[FileId]) {
    let client = world.client(index);
    world.block_on(async {
        for file in files {
            let open = client.open(*file, READ_ONLY).await.expect("open");
            assert_eq!(client.prefetch(open, 0, 0).await, Ok(BYTES as u64));
            client.close(open).await.expect("close");
        }
    });
}

#[test]
fn files_that_were_named_are_here_when_their_reader_opens_them() {
    let (mut world, files) = cold(1);
    name_all(&mut world, 0, &files);
    assert_eq!(world.files(0).report().hints, FILES as usize);
    let client = world.client(0);
    let mut without_servers = 0;
    for (number, file) in files.iter().enumerate() {
        let open = world.block_on(client.open(*file, READ_ONLY)).expect("open");
        world.run(Duration::from_millis(2));
        let (count, bytes) = messages(&mut world, client.read(open, 0, BYTES));
        assert!(bytes.expect("read") == content(number as u64), "file {number}");
        without_servers += u64::from(count == 0);
        world.block_on(client.close(open)).expect("close");
    }
    let report = world.files(0).report();
    assert_eq!(report.hints, 0);
    assert!(report.hinted_reads >= FILES * 3 / 4, "{} were here", report.hinted_reads);
    world.run(Duration::from_secs(2));
    assert_eq!(world.files(0).report().ahead_held_bytes, 0);
    assert!(without_servers > 0);
}

#[test]
fn servers_read_what_was_named_and_any_client_finds_it_in_their_memory() {
    let (mut world, files) = cold(2);
    name_all(&mut world, 1, &files);
    world.run(Duration::from_secs(1));
    let reads = |world: &World| (10..13).map(|id| world.io(id).counters()).collect::<Vec<_>>();
    let before = reads(&world);
    let client = world.client(0);
    world.block_on(async {
        for number in 0..FILES {
            assert!(client.get(FileId::ROOT, &name(number)).await == Ok(content(number)));
        }
    });
    for (before, after) in before.iter().zip(reads(&world)) {
        assert!(before.hinted_bytes > 0);
        assert_eq!(before.disk_reads, after.disk_reads);
    }
}

#[test]
fn what_another_client_writes_after_it_was_read_ahead_is_seen_by_the_next_open() {
    let (mut world, files) = cold(2);
    name_all(&mut world, 0, &files);
    let (reader, writer) = (world.client(0), world.client(1));
    for number in 0..FILES {
        let open = world.block_on(reader.open(files[number as usize], READ_ONLY)).expect("open");
        let bytes = world.block_on(reader.read(open, 0, BYTES)).expect("read");
        let wanted = if number % 2 == 1 { vec![9; BYTES] } else { content(number) };
        assert!(bytes == wanted, "file {number}");
        world.block_on(reader.close(open)).expect("close");
        world.run(Duration::from_millis(3));
        let Some(next) = files.get(number as usize + 1).filter(|_| number % 2 == 0) else {
            continue;
        };
        let open = world.block_on(writer.open(*next, READ_WRITE)).expect("open");
        world.block_on(writer.write(open, 0, &[9; BYTES])).expect("write");
        world.block_on(writer.close(open)).expect("close");
    }
}

#[test]
fn hints_for_what_cannot_be_read_are_refused_and_too_many_are_not_kept() {
    let (mut world, files) = cold(1);
    let client = world.client(0);
    let open = world.block_on(client.open(files[0], WRITE_ONLY)).expect("open");
    assert_eq!(world.block_on(client.prefetch(open, 0, 0)), Err(Errno::EBADF));
    world.block_on(client.close(open)).expect("close");
    assert_eq!(world.block_on(client.prefetch(open, 0, 0)), Err(Errno::EBADF));
    let open = world.block_on(client.open(files[0], READ_WRITE)).expect("open");
    for (offset, bytes) in [(BYTES as u64, 0), (BYTES as u64, 1), (u64::MAX, u64::MAX)] {
        assert_eq!(world.block_on(client.prefetch(open, offset, bytes)), Ok(0));
    }
    assert_eq!(world.block_on(client.prefetch(open, 5, u64::MAX)), Ok(BYTES as u64 - 5));
    let size = (HINTS_MAX as u64 + 10) * stripe::limits::HINT_BYTES_MAX;
    world.block_on(client.set_size(open, size)).expect("truncate");
    let noted = world.block_on(client.prefetch(open, 0, 0)).expect("noted");
    assert!(noted < size && noted > size / 2, "{noted} of {size}");
    assert_eq!(world.files(0).report().hints, HINTS_MAX);
    let told: u64 = (10..13).map(|id| world.io(id).counters().hints).sum();
    assert!(told <= 3 * 4 * HINTS_TOLD_MAX as u64, "{told} requests for what is told ahead");
    world.block_on(client.close(open)).expect("close");
    assert!(world.block_on(client.get(FileId::ROOT, &name(3))) == Ok(content(3)));
}

#[test]
fn a_server_that_is_away_does_not_hold_up_a_hint() {
    let (mut world, files) = cold(1);
    (10..13).for_each(|server| world.kill(server));
    let client = world.client(0);
    let open = world.block_on(client.open(files[0], READ_ONLY)).expect("open");
    let begun = world.now;
    assert_eq!(world.block_on(client.prefetch(open, 0, 0)), Ok(BYTES as u64));
    assert!(world.now.since(begun) <= Duration::from_secs(2));
    (10..13).for_each(|server| world.start(server));
    assert!(world.block_on(client.read(open, 0, BYTES)) == Ok(content(0)));
}

/// Another client that still has a file open has written and synced it after it was read ahead here.
#[test]
fn what_was_read_ahead_does_not_hide_what_others_have_synced_since() {
    let (mut world, files) = cold(2);
    name_all(&mut world, 0, &files);
    let (one, other) = (world.client(0), world.client(1));
    let first = world.block_on(one.open(files[0], READ_ONLY)).expect("open");
    world.block_on(one.read(first, 0, BYTES)).expect("read");
    world.run(Duration::from_millis(20));
    let new = pattern(99, 0, BYTES);
    world.block_on(async {
        let open = other.open(files[1], READ_WRITE).await.expect("open");
        other.write(open, 0, &new).await.expect("write");
        other.fsync(open).await.expect("sync");
    });
    let open = world.block_on(one.open(files[1], READ_ONLY)).expect("open");
    assert!(world.block_on(one.read(open, 0, BYTES)).expect("read") == new);
}
