//! The conformance bodies over a small cluster in one thread.

use crate::common::World;
use files::conformance::client::{READ_WRITE, pattern};
use files::conformance::{all, all_of_two, random, shared};
use std::cell::Cell;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use wire::FileId;

const MIB: usize = 1 << 20;
/// FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

#[test]
fn one_client() {
    let mut world = World::new(4, 1);
    let client = world.client(0);
    world.block_on(all(&client, FileId::ROOT));
    world.run(Duration::from_secs(2));
    let report = world.files(0).report();
    assert_eq!((report.held_bytes, report.unsent_bytes, report.handles), (0, 0, 0));
    assert_eq!((report.lost_bytes, report.queued, report.ahead_held_bytes), (0, 0, 0));
    drop(client);
    assert_eq!(world.free_pages(0), crate::common::CLIENT_PAGES, "every frame came back");
}

#[test]
fn two_clients() {
    let mut world = World::new(3, 2);
    let (one, two) = (world.client(0), world.client(1));
    world.block_on(all_of_two(&one, &two, FileId::ROOT));
}

#[test]
fn who_looks_while_another_truncates_believes_no_length_of_before() {
    let mut world = World::new(3, 2);
    let (one, two) = (world.client(0), world.client(1));
    let file = world.block_on(async {
        let file = one.put(FileId::ROOT, b"file", &[1; 300_000]).await.unwrap();
        let open = one.open(file, READ_WRITE).await.unwrap();
        let mut look = pin!(async {
            loop {
                two.lookup(FileId::ROOT, b"file").await.unwrap();
            }
        });
        let mut cut = pin!(one.set_size(open, 1000));
        std::future::poll_fn(|cx| {
            let _: std::task::Poll<()> = look.as_mut().poll(cx);
            cut.as_mut().poll(cx)
        })
        .await
        .unwrap();
        file
    });
    assert_eq!(world.block_on(two.stat(file)).unwrap().size, 1000);
}

/// The body of that name, with `restart` whenever it asks for one.
fn acknowledged_bytes_survive(restart: impl Fn(&mut World)) {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let (asked, done) = (Cell::new(0), Cell::new(0));
    let body = shared::acknowledged_bytes_survive(&client, FileId::ROOT, async || {
        asked.set(asked.get() + 1);
        std::future::poll_fn(|_| match asked.get() == done.get() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        })
        .await
    });
    world.block_on_with(body, |world| {
        if asked.get() > done.get() {
            restart(world);
            done.set(asked.get());
        }
    });
}

#[test]
fn acknowledged_bytes_survive_a_server() {
    acknowledged_bytes_survive(|world| (10..13).for_each(|id| world.restart(id)));
}

#[test]
fn acknowledged_bytes_survive_the_manager() {
    acknowledged_bytes_survive(|world| world.restart(crate::common::MANAGER));
}

/// One run of random steps in a world of its own; what went wrong.
fn run_random(steps: &[random::Step], kills: bool) -> Result<(), random::Mismatch> {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let mut turns = 0u64;
    let body = random::run(&client, FileId::ROOT, b"fsx", steps);
    world.block_on_with(body, |world| {
        turns += 1;
        if kills && turns.is_multiple_of(997) {
            world.restart(10 + (turns / 997 % 3) as u16);
        }
    })
}

fn random_runs(seeds: std::ops::Range<u64>, kills: bool) {
    for seed in seeds {
        let steps = random::steps(seed, 150, 1 << 20);
        if let Err(mismatch) = run_random(&steps, kills) {
            let short = random::shrink(&steps[..150.min(mismatch.step + 1)], |steps| {
                run_random(steps, kills).is_err()
            });
            panic!("seed {seed}: {mismatch}\nshort: {short:#?}\n{:?}", run_random(&short, kills));
        }
    }
}

#[test]
fn random_operations_as_the_model() {
    random_runs(0..10, false);
}

#[test]
fn random_operations_while_servers_are_killed() {
    random_runs(100..106, true);
}

/// Two processes make a file longer at once: it becomes as long as either asked for.
#[test]
fn a_file_that_is_extended_twice_at_once_is_as_long_as_the_longer() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", READ_WRITE)).expect("create");
    let sizes = [10 * MIB as u64, MIB as u64];
    let both = node::all(sizes.map(|size| client.allocate(open, 0, size, 0)));
    assert_eq!(world.block_on(both), [Ok(()), Ok(())]);
    assert_eq!(world.block_on(client.stat(open.file)).expect("stat").size, sizes[0]);
}

#[test]
fn a_file_that_another_client_made_longer_is_not_cut_by_extending_it() {
    let mut world = World::new(3, 2);
    let (client, other) = (world.client(0), world.client(1));
    let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 1000])).expect("put");
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(client.stat(file)).expect("stat").size, 1000);
    let content = pattern(5, 0, 2 * MIB);
    world.block_on(other.put(FileId::ROOT, b"f", &content)).expect("put");
    assert_eq!(world.block_on(client.allocate(open, 0, MIB as u64, 0)), Ok(()));
    assert_eq!(world.block_on(client.stat(file)).expect("stat").size, content.len() as u64);
    assert!(world.block_on(other.get(FileId::ROOT, b"f")) == Ok(content));
}

/// Neither asks the other: what the one writes and syncs while the other makes the file longer is not cut off.
#[test]
fn what_another_client_writes_while_a_file_is_extended_is_not_cut() {
    for turns in 0..20 {
        let mut world = World::new(3, 2);
        let (client, other) = (world.client(0), world.client(1));
        let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 1000])).expect("put");
        let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
        let others = world.block_on(other.open(file, READ_WRITE)).expect("open");
        let content = pattern(5, 0, 4096);
        world.block_on(other.write(others, 2 * MIB as u64, &content)).expect("write");
        let both = node::all([true, false].map(|extends| {
            let (client, other) = (&client, &other);
            async move {
                if extends {
                    return client.allocate(open, 0, MIB as u64, 0).await;
                }
                let mut left = turns;
                std::future::poll_fn(|_| {
                    left -= 1;
                    if left >= 0 { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
                other.fsync(others).await
            }
        }));
        assert_eq!(world.block_on(both), [Ok(()), Ok(())], "{turns}");
        world.block_on(other.close(others)).expect("close");
        let bytes = world.block_on(client.get(FileId::ROOT, b"f")).expect("get");
        assert!(bytes.ends_with(&content), "{turns}: {} bytes", bytes.len());
    }
}

/// Though the file ended before it, by all that this client knew: from a short time ago, or from before a truncation.
#[test]
fn what_another_client_has_synced_is_zeroed_with_the_range_that_it_is_in() {
    let cases = [false, true].map(|cuts| [0, KEEP_SIZE].map(|keeps| (cuts, keeps)));
    for (cuts, keeps) in cases.into_iter().flatten() {
        let mut world = World::new(3, 2);
        let (client, other) = (world.client(0), world.client(1));
        let file = world.block_on(client.put(FileId::ROOT, b"f", &[1; 100_000])).expect("put");
        let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
        let others = world.block_on(other.open(file, READ_WRITE)).expect("open");
        world.block_on(client.write(open, 50_000, &[2; 100_000])).expect("write");
        if cuts {
            world.block_on(other.set_size(others, 30_000)).expect("truncate");
        }
        world.block_on(other.write(others, 209_897, &[3; 19_495])).expect("write");
        world.block_on(other.fsync(others)).expect("fsync");
        assert_eq!(world.block_on(client.stat(file)).expect("stat").size, 150_000, "as it knows");
        let zeroed = client.allocate(open, 208_896, 24_576, ZERO_RANGE | keeps);
        assert_eq!(world.block_on(zeroed), Ok(()), "{cuts} {keeps}");
        let size = if keeps == 0 { 233_472 } else { 229_392 };
        for client in [&client, &other] {
            let bytes = world.block_on(client.get(FileId::ROOT, b"f")).expect("get");
            assert_eq!(bytes.len(), size, "{cuts} {keeps}");
            assert_eq!(bytes[208_896..].iter().position(|byte| *byte != 0), None, "{cuts} {keeps}");
        }
    }
}

/// The servers lost it, and then say that the file ends before it.
#[test]
fn what_another_client_sends_again_does_not_come_back_in_a_range_that_was_punched_since() {
    let mut world = World::new(1, 2);
    let (client, other) = (world.client(0), world.client(1));
    let open = world.block_on(other.create(FileId::ROOT, b"f", READ_WRITE)).expect("create");
    world.block_on(other.write(open, 0, &[1; 100_000])).expect("write");
    world.block_on(other.flush(open)).expect("flush");
    world.kill(10);
    world.start(10);
    let file = world.block_on(client.lookup(FileId::ROOT, b"f")).expect("lookup").file;
    let punched = world.block_on(client.open(file, READ_WRITE)).expect("open");
    let punch = client.allocate(punched, 0, 81_920, PUNCH_HOLE | KEEP_SIZE);
    assert_eq!(world.block_on(punch), Ok(()));
    world.run(Duration::from_secs(5));
    world.block_on(other.close(open)).expect("close");
    let bytes = world.block_on(client.get(FileId::ROOT, b"f")).expect("get");
    assert_eq!(bytes.iter().position(|byte| *byte != 0), Some(81_920));
    assert_eq!(bytes.len(), 100_000);
}

/// The last block of the range was not whole any more when its turn came, and stayed as it was.
#[test]
fn a_range_that_is_zeroed_while_the_file_is_truncated_is_zeros_to_its_end() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let content = pattern(1, 0, 300_000);
    let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    let both = node::all([true, false].map(|cuts| {
        let client = &client;
        async move {
            match cuts {
                true => client.set_size(open, 231_053).await.map(drop),
                false => client.allocate(open, 221_184, 36_864, ZERO_RANGE).await,
            }
        }
    }));
    assert_eq!(world.block_on(both), [Ok(()), Ok(())]);
    let bytes = world.block_on(client.get(FileId::ROOT, b"f")).expect("get");
    assert!(bytes[..221_184] == content[..221_184]);
    assert_eq!(bytes[221_184..].iter().position(|byte| *byte != 0), None);
    assert_eq!(bytes.len(), 258_048);
}

/// A client that did not know yet that the file is shorter found nothing to zero, and made it no longer.
#[test]
fn a_range_that_is_zeroed_where_another_client_truncated_the_file_is_there_when_it_is_asked_for() {
    for (keeps, size) in [(KEEP_SIZE, 100_000), (0, 245_760)] {
        let mut world = World::new(3, 2);
        let (client, other) = (world.client(0), world.client(1));
        let content = pattern(1, 0, 300_000);
        let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
        let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
        let others = world.block_on(other.open(file, READ_WRITE)).expect("open");
        assert_eq!(world.block_on(client.stat(file)).expect("stat").size, 300_000);
        world.block_on(other.set_size(others, 100_000)).expect("truncate");
        let zeroed = client.allocate(open, 204_800, 40_960, ZERO_RANGE | keeps);
        assert_eq!(world.block_on(zeroed), Ok(()));
        let bytes = world.block_on(client.read(open, 0, 300_000)).expect("read");
        assert_eq!(bytes.len(), size);
        assert!(bytes[..100_000] == content[..100_000]);
        assert_eq!(bytes[100_000..].iter().position(|byte| *byte != 0), None);
        world.block_on(client.close(open)).expect("close");
        assert!(world.block_on(other.get(FileId::ROOT, b"f")) == Ok(bytes));
    }
}
