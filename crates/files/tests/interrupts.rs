//! Operations whose application gives up while servers or the manager are away.

use crate::common::{CLIENT_PAGES, MANAGER, World};
use files::Config;
use files::conformance::client::{Opened, READ_ONLY, READ_WRITE, WRITE_ONLY, pattern};
use files::conformance::{Asks, Client};
use node::rings::LockKind;
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use wire::{Errno, FileId};

/// Turns of the world, a tenth of a millisecond each, after which an application gives up, and by which it is answered.
const TURNS: usize = 5_000;
const TURNS_MAX: usize = 10_000;

/// Polls `operation`, and after a while also `interrupt`; what the operation ends with, soon then.
fn given_up<T>(
    world: &mut World,
    operation: impl Future<Output = T>,
    interrupt: impl Future<Output = ()>,
) -> T {
    let (mut operation, mut interrupt) = (pin!(operation), pin!(interrupt));
    let (mut turns, mut told) = (0, false);
    world.block_on(std::future::poll_fn(|context| {
        turns += 1;
        assert!(turns < TURNS_MAX, "the operation goes on waiting");
        if let Poll::Ready(result) = operation.as_mut().poll(context) {
            assert!(turns >= TURNS, "it did not wait at all");
            return Poll::Ready(result);
        }
        told = told || turns >= TURNS && interrupt.as_mut().poll(context).is_ready();
        Poll::Pending
    }))
}

/// As `given_up`, on the client's last request.
fn interrupted<T>(
    world: &mut World,
    client: &Client<Asks>,
    operation: impl Future<Output = Result<T, Errno>>,
) -> Result<(), Errno> {
    let interrupt = async { client.interrupt(client.ask.last_front()).await.expect("told") };
    given_up(world, operation, interrupt).map(drop)
}

/// A world in which client 0 has stored a file, whose server is up.
fn stored(mut world: World) -> (World, Client<Asks>, FileId, Vec<u8>) {
    let (client, content) = (world.client(0), pattern(1, 0, 100_000));
    let file = world.block_on(client.put(FileId::ROOT, b"f", &content)).expect("put");
    world.run(Duration::from_secs(2));
    (world, client, file, content)
}

#[test]
fn what_waits_for_a_server_ends_with_its_application() {
    let (mut world, client, file, content) = stored(World::new(1, 1));
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.kill(10);
    assert_eq!(interrupted(&mut world, &client, client.read(open, 0, 4096)), Err(Errno::EINTR));
    world.block_on(client.write(open, 0, &[7; 5000])).expect("taken over");
    assert_eq!(interrupted(&mut world, &client, client.fsync(open)), Err(Errno::EINTR));
    assert_eq!(interrupted(&mut world, &client, client.flush(open)), Err(Errno::EINTR));
    world.start(10);
    world.block_on(client.close(open)).expect("close");
    world.run(Duration::from_secs(5));
    let mut expected = content;
    expected[..5000].fill(7);
    assert!(
        world.block_on(client.get(FileId::ROOT, b"f")) == Ok(expected),
        "what was written stays"
    );
}

#[test]
fn a_write_that_finds_no_room_is_not_taken_over() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let config = Config { unsent_bytes_max: 8192, held_bytes_max: 8192, ..limits };
    let mut world = World::with(1, 1, config);
    let client = world.client(0);
    let open = world.block_on(client.create(FileId::ROOT, b"f", WRITE_ONLY)).expect("create");
    world.kill(10);
    world.block_on(client.write(open, 0, &[1; 8192])).expect("there is room");
    let refused = interrupted(&mut world, &client, client.write(open, 8192, &[2; 8192]));
    assert_eq!(refused, Err(Errno::EINTR));
    world.start(10);
    world.block_on(client.close(open)).expect("close");
    assert!(world.block_on(client.get(FileId::ROOT, b"f")) == Ok(vec![1; 8192]));
}

/// A world whose client has an open file of 4 MiB and room for one piece of zeros, and whose server is away.
fn without_room() -> (World, Client<Asks>, Opened) {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let most = 1 << 20;
    let config = Config { unsent_bytes_max: most, held_bytes_max: most, ..limits };
    let (mut world, client, ..) = stored(World::with(1, 1, config));
    let open = world.block_on(client.create(FileId::ROOT, b"z", READ_WRITE)).expect("create");
    world.block_on(client.write(open, 0, &pattern(1, 0, 4 << 20))).expect("write");
    world.block_on(client.fsync(open)).expect("fsync");
    world.kill(10);
    (world, client, open)
}

#[test]
fn zeros_are_not_written_for_who_has_given_up() {
    const ZERO_RANGE: u32 = 16;
    let (mut world, client, open) = without_room();
    let zeroed = client.allocate(open, 0, 8 << 20, ZERO_RANGE);
    assert_eq!(interrupted(&mut world, &client, zeroed), Err(Errno::EINTR));
    world.start(10);
    world.block_on(client.set_size(open, 100)).expect("truncate");
    world.run(Duration::from_secs(5));
    assert_eq!(world.block_on(client.stat(open.file)).expect("stat").size, 100);
}

#[test]
fn zeros_within_a_file_do_not_make_it_longer_than_it_was_cut_to() {
    const PUNCH_HOLE: u32 = 3;
    let (mut world, client, open) = without_room();
    let mut punch = pin!(client.allocate(open, 0, 4 << 20, PUNCH_HOLE));
    let mut cut = pin!(client.set_size(open, 100));
    let mut turns = 0;
    world.block_on(std::future::poll_fn(|context| {
        turns += 1;
        assert!(
            punch.as_mut().poll(context).is_pending() && cut.as_mut().poll(context).is_pending()
        );
        if turns < 100 { Poll::Pending } else { Poll::Ready(()) }
    }));
    world.start(10);
    assert_eq!(world.block_on(cut).expect("truncate").size, 100);
    assert_eq!(world.block_on(punch), Ok(()));
    assert_eq!(world.block_on(client.stat(open.file)).expect("stat").size, 100);
}

#[test]
fn names_are_changed_once_and_what_is_opened_for_nobody_is_closed() {
    let mut world = World::new(1, 1);
    let client = world.client(0);
    let file = world.block_on(client.put(FileId::ROOT, b"old", b"x")).expect("put");
    world.run(Duration::from_secs(2));
    world.kill(MANAGER);
    let made = interrupted(&mut world, &client, client.create(FileId::ROOT, b"new", READ_WRITE));
    assert_eq!(made, Err(Errno::EINTR));
    let opened = interrupted(&mut world, &client, client.open(file, READ_ONLY));
    assert_eq!(opened, Err(Errno::EINTR));
    let renamed = client.rename((FileId::ROOT, b"old"), (FileId::ROOT, b"moved"), 0);
    assert_eq!(interrupted(&mut world, &client, renamed), Err(Errno::EINTR));
    world.start(MANAGER);
    world.run(Duration::from_secs(10));
    assert_eq!(world.files(0).report().handles, 0, "nobody has them open");
    assert!(world.block_on(client.lookup(FileId::ROOT, b"new")).is_ok(), "made once");
    let moved = world.block_on(client.lookup(FileId::ROOT, b"moved")).expect("renamed");
    assert_eq!(moved.file, file);
    let old = world.block_on(client.lookup(FileId::ROOT, b"old"));
    assert_eq!(old.map(drop), Err(Errno::ENOENT));
}

#[test]
fn a_lock_that_comes_too_late_is_given_back() {
    let mut world = World::new(1, 2);
    let (client, other) = (world.client(0), world.client(1));
    world.block_on(client.put(FileId::ROOT, b"f", b"x")).expect("put");
    let file = world.block_on(client.lookup(FileId::ROOT, b"f")).expect("lookup").file;
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.kill(MANAGER);
    let lock = files::conformance::client::lock(LockKind::Write, 0, 9);
    let late = interrupted(&mut world, &client, client.set_lock(open, 1, lock, false, false));
    assert_eq!(late, Err(Errno::EINTR));
    world.start(MANAGER);
    world.run(Duration::from_secs(60));
    let open = world.block_on(other.open(file, READ_WRITE)).expect("open");
    assert_eq!(world.block_on(other.set_lock(open, 2, lock, false, false)), Ok(()));
}

/// Two clients that have a file open, and a lock.
fn two_with_a_file() -> (World, [Client<Asks>; 2], [Opened; 2]) {
    let mut world = World::new(1, 2);
    let clients = [world.client(0), world.client(1)];
    world.block_on(clients[0].put(FileId::ROOT, b"f", b"x")).expect("put");
    let opens = [0, 1].map(|number| {
        let client = &clients[number];
        let file = world.block_on(client.lookup(FileId::ROOT, b"f")).expect("lookup").file;
        world.block_on(client.open(file, READ_WRITE)).expect("open")
    });
    (world, clients, opens)
}

#[test]
fn a_lock_that_is_interrupted_leaves_its_owner_what_it_had() {
    let (mut world, [client, other], [open, theirs]) = two_with_a_file();
    let read = files::conformance::client::lock(LockKind::Read, 0, 9);
    let write = files::conformance::client::lock(LockKind::Write, 0, 9);
    assert_eq!(world.block_on(client.set_lock(open, 1, read, false, false)), Ok(()));
    world.pause(MANAGER, Duration::from_secs(2));
    let late = interrupted(&mut world, &client, client.set_lock(open, 1, write, false, false));
    assert_eq!(late, Err(Errno::EINTR));
    world.run(Duration::from_secs(5));
    let taken = world.block_on(other.set_lock(theirs, 2, write, false, false));
    assert_eq!(taken, Err(Errno::EAGAIN), "the owner has its lock to read");
    let shared = world.block_on(other.set_lock(theirs, 2, read, false, false));
    assert_eq!(shared, Ok(()), "and not the one to write");
}

/// As kernels do when a signal has a handler that restarts. The manager has forgotten who holds what, and gives no
/// locks for a while.
#[test]
fn who_asks_again_for_an_interrupted_lock_keeps_it() {
    let (mut world, [client, other], [open, theirs]) = two_with_a_file();
    let elsewhere = files::conformance::client::lock(LockKind::Write, 20, 29);
    assert_eq!(world.block_on(other.set_lock(theirs, 2, elsewhere, false, false)), Ok(()));
    let write = files::conformance::client::lock(LockKind::Write, 0, 9);
    world.kill(MANAGER);
    for _ in 0..3 {
        let late = interrupted(&mut world, &client, client.set_lock(open, 1, write, false, false));
        assert_eq!(late, Err(Errno::EINTR));
    }
    world.start(MANAGER);
    assert_eq!(world.block_on(client.set_lock(open, 1, write, true, false)), Ok(()));
    world.run(Duration::from_secs(10));
    let taken = world.block_on(other.set_lock(theirs, 2, write, false, false));
    assert_eq!(taken, Err(Errno::EAGAIN));
}

fn lock_interrupted_after(turns: usize) {
    let (mut world, [client, other], [open, theirs]) = two_with_a_file();
    let write = files::conformance::client::lock(LockKind::Write, 0, 9);
    assert_eq!(world.block_on(other.set_lock(theirs, 2, write, false, false)), Ok(()));
    let mut waits = Box::pin(client.set_lock(open, 1, write, true, false));
    let mut left = turns;
    world.block_on(std::future::poll_fn(|context| {
        assert!(waits.as_mut().poll(context).is_pending());
        left -= 1;
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    }));
    let mut told = pin!(client.interrupt(client.ask.last_front()));
    let (mut polls, mut is_told) = (0, false);
    let ended = world.block_on(std::future::poll_fn(|context| {
        polls += 1;
        assert!(polls < TURNS_MAX, "interrupted after {turns} turns, it waits for ever");
        is_told = is_told || told.as_mut().poll(context).is_ready();
        waits.as_mut().poll(context)
    }));
    assert_eq!(ended, Err(Errno::EINTR));
}

#[test]
fn a_waiting_lock_ends_whenever_it_is_interrupted() {
    // While it is asked for the first time, and the second, 20 ms later.
    (1..12).chain(195..215).for_each(lock_interrupted_after);
}

/// Gives an fsync up after so many turns, whose manager lost a write session; whether it was not done by then. Later
/// operations go on as if there had been none.
fn fsync_given_up_after(turns: usize) -> bool {
    let (mut world, client, file, _) = stored(World::new(1, 1));
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.block_on(client.fsync(open)).expect("what was changed before is stable");
    world.block_on(client.close(open)).expect("close");
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.cut_power_of_manager();
    let (mut fsync, mut left) = (Box::pin(client.fsync(open)), turns);
    let ended = world.block_on(std::future::poll_fn(|context| {
        left = left.saturating_sub(1);
        match fsync.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }));
    if ended.is_none() {
        world.block_on(client.interrupt(client.ask.last_front())).expect("told");
        world.block_on(fsync).ok();
    }
    let mut polls = 0;
    let mut after = pin!(async {
        client.write(open, 0, &[7; 5000]).await?;
        client.fsync(open).await?;
        client.close(open).await
    });
    let after = world.block_on(std::future::poll_fn(|context| {
        polls += 1;
        assert!(polls < 100_000, "after {turns} turns: the next fsync waits for ever");
        after.as_mut().poll(context)
    }));
    assert_eq!(after, Ok(()), "after {turns} turns");
    world.run(Duration::from_secs(2));
    let (names, hint) = (world.names(0).1, Rc::new(Cell::new(true)));
    let told = hint.clone();
    world.block_on_node(100, async move {
        told.set(names.get_attr(file).await.expect("attributes").is_hint());
    });
    assert!(!hint.get(), "after {turns} turns: a write session is left");
    ended.is_none()
}

#[test]
fn an_fsync_that_is_given_up_leaves_no_write_session_half_begun() {
    let turns = (1..).find(|turns| !fsync_given_up_after(*turns)).expect("it ends");
    assert!(turns > 10, "it is more than one call: {turns}");
}

#[test]
fn more_waiting_operations_than_loops_can_all_be_given_up() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let world = World::with(1, 1, Config { front_loops: 2, ..limits });
    let (mut world, client, file, _) = stored(world);
    let open = world.block_on(client.open(file, READ_ONLY)).expect("open");
    world.kill(10);
    let first = client.ask.last_front() + 1;
    let reads = node::all((0..5).map(|number| client.read(open, number * 8192, 4096)));
    let interrupts = async {
        for front in first..first + 5 {
            client.interrupt(front).await.expect("told");
        }
    };
    let results = given_up(&mut world, reads, interrupts);
    assert_eq!(results, vec![Err(Errno::EINTR); 5]);
}

/// More operations wait for the manager than there are loops: who needs the servers alone does not wait along.
#[test]
fn what_waits_for_the_manager_keeps_no_place_from_reads_and_writes() {
    const WAITING: usize = 20;
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let world = World::with(1, 1, Config { front_loops: 4, ..limits });
    let (mut world, client, file, content) = stored(world);
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    world.kill(MANAGER);
    let names: Vec<Vec<u8>> = (0..WAITING).map(|n| format!("n{n}").into_bytes()).collect();
    let makes = names.iter().map(|name| client.create(FileId::ROOT, name, READ_WRITE));
    let mut makes: Vec<_> = makes.map(Box::pin).collect();
    for make in &mut makes {
        assert!(make.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    world.run(Duration::from_millis(1));
    let start = world.now;
    for number in 0..20 {
        let read = world.block_on(client.read(open, number * 4096, 4096)).expect("read");
        assert!(read == content[number as usize * 4096..][..4096]);
    }
    world.block_on(client.write(open, 0, &[7; 4096])).expect("write");
    assert!(world.now.since(start) < Duration::from_secs(2), "{:?}", world.now.since(start));
    world.start(MANAGER);
    let made = world.block_on(node::all(makes));
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    world.block_on(client.fsync(open)).expect("fsync");
}

/// As a program with an interval timer does, whose kernel restarts what was interrupted.
#[test]
fn a_lock_that_is_interrupted_again_and_again_keeps_no_place_from_reads() {
    let (mut world, client, file, content) = stored(World::new(1, 1));
    let open = world.block_on(client.open(file, READ_WRITE)).expect("open");
    let write = files::conformance::client::lock(LockKind::Write, 0, 9);
    world.kill(MANAGER);
    for number in 0..1_400 {
        let mut asked = Box::pin(client.set_lock(open, 1, write, true, false));
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        world.turn();
        let front = client.ask.last_front();
        world.block_on(client.interrupt(front)).expect("told");
        let mut turns = 0;
        let ended = world.block_on(std::future::poll_fn(|context| {
            turns += 1;
            assert!(turns < TURNS_MAX, "nobody serves interrupt {number}");
            asked.as_mut().poll(context)
        }));
        assert_eq!(ended, Err(Errno::EINTR));
    }
    let start = world.now;
    let read = world.block_on(client.read(open, 0, 4096)).expect("read");
    assert!(read == content[..4096]);
    assert!(world.now.since(start) < Duration::from_secs(2), "{:?}", world.now.since(start));
    world.start(MANAGER);
    assert_eq!(world.block_on(client.set_lock(open, 1, write, true, false)), Ok(()));
}

/// An operation that only asks waits as long as the mount is told to; a change, which must not be made twice, as long
/// as the manager would keep its answer.
#[test]
fn a_manager_that_is_away_is_waited_for() {
    let limits = Config::for_pool(CLIENT_PAGES * 4096);
    let patient = Config { manager_patience: limits.patience, ..limits };
    for (config, is_patient) in [(limits, false), (patient, true)] {
        let (mut world, client, file, _) = stored(World::with(1, 1, config));
        world.kill(MANAGER);
        let mut asks = pin!(client.lookup(FileId::ROOT, b"f"));
        let mut changes = pin!(client.make_directory(FileId::ROOT, b"new"));
        let mut context = Context::from_waker(Waker::noop());
        assert!(asks.as_mut().poll(&mut context).is_pending());
        assert!(changes.as_mut().poll(&mut context).is_pending());
        world.run(Duration::from_secs(29));
        assert!(asks.as_mut().poll(&mut context).is_pending());
        assert!(changes.as_mut().poll(&mut context).is_pending());
        world.run(Duration::from_secs(2));
        let late = Poll::Ready(Some(Errno::ETIMEDOUT));
        assert_eq!(changes.as_mut().poll(&mut context).map(Result::err), late);
        if !is_patient {
            assert_eq!(asks.as_mut().poll(&mut context).map(Result::err), late);
            continue;
        }
        world.run(Duration::from_secs(240));
        assert!(asks.as_mut().poll(&mut context).is_pending());
        world.start(MANAGER);
        assert_eq!(world.block_on(asks).expect("it is back").file, file);
    }
}

#[test]
fn room_on_the_volume_is_told_while_a_server_is_away() {
    let mut world = World::new(3, 1);
    let client = world.client(0);
    let before = world.block_on(client.space()).expect("space");
    world.kill(11);
    let start = world.now;
    let after = world.block_on(client.space()).expect("space");
    assert_eq!(after.total_bytes, before.total_bytes);
    assert!(world.now.since(start) < Duration::from_millis(500), "{:?}", world.now.since(start));
}
