//! Hints to an I/O server: what they name is read from memory afterwards, they take a bounded part of it, and whatever
//! they say, every read returns the same bytes.

use crate::common::*;
use proptest::prelude::*;
use std::ops::Range;
use stripe::limits::{HINTED_SHARE, HINTS_MAX};
use stripe::{FileRef, ServerConfig, ServerCounters};
use wire::NodeId;

const CACHE_BYTES: usize = 4 << 20;

fn config(server: NodeId) -> ServerConfig {
    ServerConfig { cache_bytes: CACHE_BYTES, ..small(server) }
}

impl World {
    fn counters(&self) -> ServerCounters {
        self.servers[0].server.as_ref().expect("it runs").counters()
    }

    fn prefetch(&mut self, file: &FileRef, range: Range<u64>) -> u64 {
        let (client, file) = (self.client.clone(), *file);
        self.run(async move { client.prefetch(&file, range).await })
    }
}

/// Files of so many bytes that only the disk of one server has.
fn cold(files: u64, bytes: usize) -> (World, Vec<FileRef>) {
    let mut world = World::with(1, 1, 1, config);
    let files: Vec<FileRef> = (0..files).map(|number| world.file(number)).collect();
    for file in &files {
        world.write(file, 0, &pattern(file.file.0, bytes)).unwrap();
        world.commit(file).unwrap();
    }
    world.forget_memory();
    (world, files)
}

fn read_all(world: &mut World, files: &[FileRef], bytes: usize) {
    for file in files {
        let read = world.read(file, 0, bytes).unwrap();
        assert!(read == pattern(file.file.0, bytes), "file {}", file.file.0);
    }
}

#[test]
fn what_hints_named_is_read_without_the_disk() {
    let (mut world, files) = cold(10, 60_000);
    for file in &files {
        assert_eq!(world.prefetch(file, 0..60_000), 60_000);
    }
    world.turns(500);
    let before = world.counters();
    assert!(before.hinted_bytes >= 600_000, "{} bytes came", before.hinted_bytes);
    read_all(&mut world, &files, 60_000);
    let after = world.counters();
    assert_eq!(after.disk_reads, before.disk_reads);
    assert_eq!(after.hits - before.hits, 10);
}

#[test]
fn hints_displace_each_other_and_not_what_is_used() {
    let (mut world, files) = cold(60, 200_000);
    let (used, hinted) = files.split_at(12);
    (0..2).for_each(|_| read_all(&mut world, used, 200_000));
    let before = world.counters();
    let room = CACHE_BYTES - before.cached_bytes as usize;
    assert!(room >= CACHE_BYTES / HINTED_SHARE, "{room} bytes are free");
    for file in hinted {
        world.prefetch(file, 0..200_000);
        world.turns(30);
    }
    world.turns(500);
    let after = world.counters();
    assert!(after.hinted_bytes as usize > CACHE_BYTES, "more came than there is memory");
    let more = after.cached_bytes - before.cached_bytes;
    assert!(more as usize <= CACHE_BYTES / HINTED_SHARE + (256 << 10), "hints hold {more} bytes");
    read_all(&mut world, used, 200_000);
    assert_eq!(world.counters().disk_reads, after.disk_reads, "what is used is still here");
}

#[test]
fn what_is_waited_for_goes_before_hints() {
    let (mut world, files) = cold(40, 200_000);
    world.sweep = true;
    let (wanted, hinted) = files.split_first().unwrap();
    for file in hinted {
        let (client, file) = (world.client.clone(), *file);
        world.start(async move { client.prefetch(&file, 0..200_000).await });
    }
    world.turns(5);
    let before = world.counters().disk_reads;
    read_all(&mut world, std::slice::from_ref(wanted), 200_000);
    let reads = world.counters().disk_reads - before;
    assert!(reads <= 20, "{reads} disk reads until it was answered, of 39 files that were named");
}

#[test]
fn hints_that_make_no_sense_are_ignored() {
    let (mut world, files) = cold(2, 60_000);
    let absent = world.file(999);
    let stale = FileRef { truncations: 77, ..files[0] };
    for (file, range) in [
        (&absent, 0..1 << 20),
        (&files[0], 1 << 30..(1 << 30) + 5),
        (&files[0], u64::MAX - 10..u64::MAX),
        (&files[0], 5..5),
        (&stale, 0..60_000),
    ] {
        world.prefetch(file, range);
    }
    for _ in 0..2 * HINTS_MAX {
        let (client, file) = (world.client.clone(), files[1]);
        world.start(async move { client.prefetch(&file, 0..60_000).await });
    }
    world.turns(2_000);
    let counters = world.counters();
    assert_eq!(counters.corrupt_blocks, 0);
    read_all(&mut world, &files, 60_000);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u64, usize),
    Commit(u64),
    Truncate(u64, u64),
    Hint(u64, Range<u64>),
    Read(u64, u64, usize),
    Turns(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (file, at, bytes) = (0u64..3, 0u64..1 << 20, 1usize..200_000);
    prop_oneof![
        (file.clone(), at.clone(), bytes.clone()).prop_map(|(f, at, n)| Step::Write(f, at, n)),
        file.clone().prop_map(Step::Commit),
        (file.clone(), at.clone()).prop_map(|(f, size)| Step::Truncate(f, size)),
        (file.clone(), at.clone(), 0u64..1 << 20).prop_map(|(f, at, n)| Step::Hint(f, at..at + n)),
        (file, at, bytes).prop_map(|(f, at, n)| Step::Read(f, at, n)),
        (1usize..40).prop_map(Step::Turns),
        Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Hints between writes, truncations and restarts, some of which the server follows late: every read returns what
    /// was written.
    #[test]
    fn hints_change_no_byte(steps in prop::collection::vec(step(), 1..40)) {
        let mut world = World::with(1, 1, 1, config);
        world.disk_turns = 4;
        let mut files: Vec<(FileRef, Vec<u8>)> =
            (0..3).map(|number| (world.file(number), Vec::new())).collect();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(file, at, bytes) => {
                    let (file, model) = &mut files[file as usize];
                    let (data, end) = (pattern(number as u64 + 1, bytes), at as usize + bytes);
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&data);
                    world.write(file, at, &data).unwrap();
                }
                Step::Commit(file) => drop(world.commit(&files[file as usize].0).unwrap()),
                Step::Truncate(file, size) => {
                    let (file, model) = &mut files[file as usize];
                    file.truncations += 1;
                    model.resize(size as usize, 0);
                    world.truncate(file, size).unwrap();
                }
                Step::Hint(file, range) => {
                    let (client, file) = (world.client.clone(), files[file as usize].0);
                    world.start(async move { client.prefetch(&file, range).await });
                }
                Step::Read(file, at, bytes) => {
                    let (file, model) = &files[file as usize];
                    let mut wanted = vec![0; bytes];
                    let from = model.len().min(at as usize);
                    let to = model.len().min(at as usize + bytes);
                    wanted[..to - from].copy_from_slice(&model[from..to]);
                    let read = world.read(file, at, bytes).unwrap();
                    prop_assert!(read == wanted, "file {} at {}", file.file.0, at);
                }
                Step::Turns(turns) => world.turns(turns),
                Step::Restart => {
                    for (file, _) in &files {
                        world.commit(file).unwrap();
                    }
                    world.servers[0].kill();
                }
            }
        }
    }
}
