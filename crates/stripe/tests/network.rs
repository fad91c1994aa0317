//! Network memory in the file path: what leaves a server's cache comes back from other nodes' memory, and never what
//! was changed since.

use crate::common::*;
use proptest::prelude::*;
use std::cell::Cell;
use stripe::{FileRef, ServerCounters, Sources, limits};
use wire::Time;

const MIB: usize = 1 << 20;

/// A server with a cache of 4 MiB and 1 MiB of network memory, and two nodes with 7 MiB each.
fn world() -> World {
    World::lending(&[MIB, 7 * MIB, 7 * MIB])
}

fn counters(world: &World) -> ServerCounters {
    world.servers[0].server.as_ref().unwrap().counters()
}

fn disk_bytes(world: &World) -> usize {
    world.servers[0].disks[0].read_bytes
}

fn disk_reads(world: &World) -> usize {
    world.servers[0].disks[0].reads
}

/// A file of the first server that is on stable storage and, but for what memory has, nowhere else.
fn stable(world: &mut World, file: u64, bytes: usize) -> FileRef {
    let file_ref = world.single(file);
    for (at, part) in pattern(file, bytes).chunks(MIB).enumerate() {
        world.write(&file_ref, (at * MIB) as u64, part).unwrap();
    }
    world.commit(&file_ref).unwrap();
    world.flush(0);
    file_ref
}

fn check(world: &mut World, file: &FileRef, wanted: &[u8]) {
    for (at, part) in wanted.chunks(MIB).enumerate() {
        let read = world.read(file, (at * MIB) as u64, part.len()).unwrap();
        assert!(read == part, "MiB {at}: {:?}", read.iter().zip(part).position(|(a, b)| a != b));
    }
}

#[test]
fn what_left_the_cache_is_read_from_memory_and_not_from_the_disk() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    let wanted = pattern(5, 10 * MIB);
    check(&mut world, &file, &wanted);
    let before = (disk_reads(&world), counters(&world));
    for _ in 0..3 {
        // the checksums too are still known
        check(&mut world, &file, &wanted);
    }
    let after = counters(&world);
    assert_eq!(disk_reads(&world), before.0, "{after:?}");
    assert!(after.network_hits - before.1.network_hits > 3 * 100, "{after:?}");
    assert_eq!((after.network_wrong, after.corrupt_blocks), (0, 0));
    world.turns(300);
    let hosted = world.servers[1..].iter().map(|server| server.memory().counts().hosted);
    assert!(hosted.sum::<u32>() > 100, "most of it is in other nodes' memory");
}

fn sources(world: &World) -> Sources {
    world.servers[0].server.as_ref().unwrap().sources()
}

/// READs of two blocks in each of a hundred chunks; how many more there are of each source then.
fn reads_by_source(world: &mut World, file: &FileRef, within: usize) -> [u64; 3] {
    let counts = |world: &World| {
        let Sources { cache, network, disk } = sources(world);
        [cache.reads, network.reads, disk.reads]
    };
    let (before, wanted) = (counts(world), pattern(5, 10 * MIB));
    for number in 0..100 {
        let at = number * 32768 + within;
        assert!(world.read(file, at as u64, 8192).unwrap() == wanted[at..at + 8192], "byte {at}");
    }
    let after = counts(world);
    [0, 1, 2].map(|source| after[source] - before[source])
}

/// A disk takes up to 100 turns here, another node a few, and the server's own memory the turn in which it is asked.
#[test]
fn reads_are_counted_and_timed_by_where_their_blocks_were() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    world.servers[0].crash();
    world.tell_view(2);
    world.turns(100);
    world.disk_turns = 100;
    let [here, network, disk] = reads_by_source(&mut world, &file, 16384);
    // what the log still had is not asked of the disk
    assert!(disk > 90 && (here + disk, network) == (100, 0), "{here} {network} {disk}");
    assert_eq!(disk, counters(&world).disk_reads);
    world.disk_turns = 0;
    check(&mut world, &file, &pattern(5, 10 * MIB));
    world.turns(300);
    let [here, network, disk] = reads_by_source(&mut world, &file, 8192);
    assert!(disk == 0 && network > 90 && here + network == 100, "{here} {network}");
    reads_by_source(&mut world, &file, 8192); // once more: now the chunks come
    let again = reads_by_source(&mut world, &file, 8192);
    assert_eq!(again, [100, 0, 0]);
    let Sources { cache, network, disk } = sources(&world);
    let [network, disk] = [network, disk].map(|one| one.latency.quantile(500).unwrap());
    assert!(network < disk / 2, "{network:?} {disk:?}");
    assert!(cache.latency.samples() > 0, "one in so many");
    assert!(cache.latency.samples() <= 1 + cache.reads / u64::from(limits::HITS_SAMPLED));
    let answered = [cache.reads, sources(&world).network.reads, sources(&world).disk.reads];
    assert_eq!(answered.iter().sum::<u64>(), counters(&world).reads);
}

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// A clock that shows two microseconds more at each look.
fn clock() -> Time {
    LOOKS.set(LOOKS.get() + 1);
    Time(2000 * LOOKS.get())
}

/// Chunks from the server's own part of network memory come in the step of the request.
#[test]
fn reads_that_no_other_node_answers_are_timed_by_the_worlds_clock() {
    let mut world = World::lending(&[16 * MIB]);
    let file = stable(&mut world, 5, 10 * MIB);
    check(&mut world, &file, &pattern(5, 10 * MIB));
    world.servers[0].node.set_clock(clock);
    let [_, network, disk] = reads_by_source(&mut world, &file, 8192);
    assert!(network > 90 && disk == 0, "{network} {disk}");
    let took = sources(&world).network.latency.quantile(500).unwrap();
    assert!(took.as_nanos() >= 2000, "{took:?}");
}

/// A READ that waits for another one's blocks waits for the same source.
#[test]
fn who_waits_behind_another_is_counted_with_it() {
    let mut world = world();
    let file = stable(&mut world, 5, MIB);
    world.servers[0].crash();
    world.tell_view(2);
    world.turns(100);
    world.disk_turns = 100;
    let client = stripe::Client::new(world.servers[2].node.cx(), VOLUME);
    let reads: Vec<_> = (0..4)
        .map(|_| {
            let into = world.servers[2].node.cx().frames().alloc_exact(8192).unwrap();
            let client = client.clone();
            async move { client.read(&file, 65536, into).await.map(drop) }
        })
        .collect();
    let before = disk_reads(&world);
    let done = world.run_on(2, async move { node::all(reads).await });
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    let Sources { cache, network, disk } = sources(&world);
    assert_eq!((cache.reads, network.reads, disk.reads), (0, 0, 4));
    assert!(disk_reads(&world) - before < 8, "one of data, and some of what it needs");
}

/// Holders of the pages of a server's space are known to its own directory only.
#[test]
fn the_directory_names_sixteen_times_the_cache() {
    let entries = stripe::Network::directory_bytes(64 * MIB) / netmem::Directory::ENTRY_BYTES;
    assert!(entries * (32 << 10) >= 16 * 64 * MIB, "{entries}");
}

/// Chunks that one client's reads brought serve another one.
#[test]
fn another_client_is_served_from_memory_too() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    check(&mut world, &file, &pattern(5, 10 * MIB));
    let before = disk_reads(&world);
    let client = stripe::Client::new(world.servers[2].node.cx(), VOLUME);
    for at in 0..10 {
        let into = world.servers[2].node.cx().frames().alloc_exact(MIB).unwrap();
        let (client, at) = (client.clone(), (at * MIB) as u64);
        world.run_on(2, async move { client.read(&file, at, into).await }).unwrap();
    }
    assert_eq!(disk_reads(&world), before);
}

/// A few blocks of a chunk are read where it is; when more of it is wanted soon, all of it comes.
#[test]
fn blocks_here_and_there_are_read_where_they_are() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    let wanted = pattern(5, 10 * MIB);
    check(&mut world, &file, &wanted);
    world.turns(300);
    let before = (disk_reads(&world), counters(&world));
    let two_blocks = |world: &mut World, at: usize| {
        let read = world.read(&file, at as u64, 8192).unwrap();
        assert!(read == wanted[at..at + 8192], "byte {at}");
    };
    // what has left: the cache has 4 MiB
    (0..100).for_each(|number| two_blocks(&mut world, number * 32768 + 8192));
    let after = counters(&world);
    let in_place = after.network_in_place - before.1.network_in_place;
    assert_eq!(disk_reads(&world), before.0, "{after:?}");
    assert!(in_place > 90, "{after:?}");
    assert_eq!(after.network_sent, before.1.network_sent, "nothing has to leave for them");
    (50..100).for_each(|number| two_blocks(&mut world, number * 32768 + 16384));
    (50..100).for_each(|number| two_blocks(&mut world, number * 32768));
    let more = counters(&world);
    assert_eq!((disk_reads(&world), more.network_in_place), (before.0, after.network_in_place));
    assert!(more.hits - after.hits > 45, "they came with the others: {more:?}");
    assert_eq!((more.network_wrong, more.corrupt_blocks), (0, 0));
}

/// The node that has it is asked for a chunk that was written to since: it is not asked.
#[test]
fn what_was_written_is_not_read_where_it_was() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    let mut wanted = pattern(5, 10 * MIB);
    check(&mut world, &file, &wanted);
    world.turns(300);
    for number in 0..60 {
        let at = number * 32768 + 4096;
        wanted[at..at + 4096].copy_from_slice(&pattern(90 + number as u64, 4096));
        world.write(&file, at as u64, &wanted[at..at + 4096]).unwrap();
        let read = world.read(&file, at as u64 - 4096, 16384).unwrap();
        assert!(read == wanted[at - 4096..at + 12288], "chunk {number}");
    }
    assert_eq!(counters(&world).network_wrong, 0);
    check(&mut world, &file, &wanted);
}

/// Its holder is dead: the disk is asked, and that node once for each chunk.
#[test]
fn blocks_of_a_node_that_is_dead_come_from_the_disk() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    let wanted = pattern(5, 10 * MIB);
    check(&mut world, &file, &wanted);
    world.turns(300);
    world.servers[1].crash();
    for _ in 0..2 {
        for number in 0..100 {
            let at = number * 32768 + 8192;
            assert!(world.read(&file, at as u64, 8192).unwrap() == wanted[at..at + 8192]);
        }
    }
    let after = counters(&world);
    assert!((10..=100).contains(&after.network_misses), "{after:?}");
    assert_eq!((after.network_wrong, after.corrupt_blocks), (0, 0));
}

/// The cut makes zeros of blocks that were never in the cache since: only what is remembered can be asked for.
#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    check(&mut world, &file, &pattern(5, 10 * MIB));
    let file = FileRef { truncations: 1, ..file };
    world.truncate(&file, 5000).unwrap();
    let end = (10 * MIB) as u64;
    world.write(&file, end, &[1]).unwrap();
    let mut wanted = pattern(5, 10 * MIB);
    wanted[5000..].fill(0);
    check(&mut world, &file, &wanted);
}

/// One client goes through a large file once, while another one goes on to use what it uses: nearly all of that stays,
/// although it comes again only after more than the cache and all network memory hold, when plain LRU has none of it.
#[test]
fn a_scan_leaves_the_working_sets_of_others_in_network_memory() {
    let mut world = World::lending(&[MIB, 3 * MIB, 3 * MIB]);
    let (large, used) = (stable(&mut world, 6, 40 * MIB), stable(&mut world, 5, 4 * MIB));
    let wanted = pattern(5, 4 * MIB);
    (0..3).for_each(|_| check(&mut world, &used, &wanted));
    let (mut of_scan, mut of_use) = (0, 0);
    // 16 MiB pass between two uses, and there are 11 MiB of memory
    for at in 0..13 {
        let before = disk_bytes(&world);
        for next in 3 * at..3 * at + 3 {
            world.read(&large, (next * MIB) as u64, MIB).unwrap();
        }
        let (after, part) = (disk_bytes(&world), at % 4 * MIB);
        let read = world.read(&used, part as u64, MIB).unwrap();
        assert!(read == wanted[part..part + MIB], "MiB {at}");
        world.turns(300);
        (of_scan, of_use) = (of_scan + after - before, of_use + disk_bytes(&world) - after);
    }
    // but for what was still in memory of when it was written
    assert!(of_scan > 32 * MIB, "the scan is from the disk: {of_scan}");
    assert!(of_use < 2 * MIB, "of 13 MiB used the disk gave {of_use}");
}

/// Another incarnation of the server asks for nothing of the one before.
#[test]
fn a_restart_forgets_what_was_in_network_memory() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    check(&mut world, &file, &pattern(5, 10 * MIB));
    let parts: Vec<usize> = (0..10).collect();
    for at in &parts {
        world.write(&file, (at * MIB) as u64, &pattern(90, 100_000)).unwrap();
    }
    world.commit(&file).unwrap();
    world.servers[0].crash();
    world.tell_view(2);
    world.turns(100);
    let mut wanted = pattern(5, 10 * MIB);
    parts
        .iter()
        .for_each(|at| wanted[at * MIB..][..100_000].copy_from_slice(&pattern(90, 100_000)));
    check(&mut world, &file, &wanted);
    assert_eq!(counters(&world).network_wrong, 0);
}

/// Without a peer that answers, the disk serves as ever.
#[test]
fn nodes_that_are_gone_are_no_error_of_a_read() {
    let mut world = world();
    let file = stable(&mut world, 5, 10 * MIB);
    let wanted = pattern(5, 10 * MIB);
    check(&mut world, &file, &wanted);
    world.servers[1].kill();
    world.servers[2].kill();
    let before = disk_reads(&world);
    check(&mut world, &file, &wanted);
    assert!(disk_reads(&world) > before);
}

#[derive(Clone, Debug)]
enum Step {
    Read { block: usize, count: usize },
    Write { at: usize, bytes: usize },
    Cut { at: usize },
    Commit,
    Scan,
    Crash,
}

const SIZE: usize = 2 * MIB;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SIZE / 4096, 1usize..40).prop_map(|(block, count)| Step::Read { block, count }),
        4 => (0..SIZE, 1usize..60_000).prop_map(|(at, bytes)| Step::Write { at, bytes }),
        1 => (0..SIZE).prop_map(|at| Step::Cut { at }),
        3 => Just(Step::Commit),
        4 => Just(Step::Scan),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    /// After any writes, cuts and commits, while another file pushes everything out of the cache, reads see them.
    #[test]
    fn a_stale_block_is_never_read(steps in prop::collection::vec(step(), 1..40), seed: u64) {
        let mut world = world();
        let (mut file, other) = (stable(&mut world, 5, SIZE), stable(&mut world, 6, 5 * MIB));
        let mut model = pattern(5, SIZE);
        let mut view = 1;
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Read { block, count } => {
                    let end = (block * 4096 + count * 4096).min(model.len());
                    if block * 4096 < end {
                        let read = world.read(&file, block as u64 * 4096, end - block * 4096).unwrap();
                        prop_assert!(read == model[block * 4096..end], "step {}", at);
                    }
                }
                Step::Write { at: offset, bytes } => {
                    let bytes = pattern(seed ^ at as u64, bytes);
                    world.write(&file, offset as u64, &bytes).unwrap();
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                }
                Step::Cut { at } => {
                    file.truncations += 1;
                    world.truncate(&file, at as u64).unwrap();
                    model.resize(at, 0);
                }
                Step::Commit => drop(world.commit(&file).unwrap()),
                Step::Scan => check(&mut world, &other, &pattern(6, 5 * MIB)),
                Step::Crash => {
                    world.commit(&file).unwrap();
                    world.servers[0].crash();
                    view += 1;
                    world.tell_view(view);
                    world.turns(20);
                }
            }
        }
        check(&mut world, &file, &model);
        prop_assert_eq!(counters(&world).network_wrong, 0);
    }
}
