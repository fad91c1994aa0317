//! Locks when answers do not come: what the manager believes is what the client holds.

use crate::common::cluster::{Cluster, create};
use endpoint::FrameMut;
use names::limits::KEEP_ALIVE_INTERVAL;
use names::{Client, Entry, Final, READ, WRITE, Who};
use node::rings::{Lock, LockKind};
use wire::{Errno, FileId};

const LOCK: Lock = Lock { start: 5, end: 9, kind: LockKind::Write, pid: 1 };
const SECOND: usize = 1000;

/// The client says that it is alive.
fn keep(cluster: &mut Cluster, number: usize, client: &Client) {
    let (keeper, cx) = (client.clone(), cluster.net.nodes[number].cx().clone());
    cluster.net.nodes[number].cx().spawn("keeper", async move {
        loop {
            let _ = keeper.keep_alive().await;
            cx.sleep(KEEP_ALIVE_INTERVAL).await;
        }
    });
    cluster.turns(SECOND);
}

/// A living client with a file.
fn living(cluster: &mut Cluster) -> (Client, FileId) {
    let client = cluster.client(1);
    let file = cluster.created(&client, b"f", None);
    keep(cluster, 1, &client);
    (client, file)
}

fn lock(cluster: &mut Cluster, number: usize, client: &Client, file: FileId) -> Result<(), Errno> {
    let client = client.clone();
    cluster.run(number, async move { client.lock(file, 3, false, LOCK).await })
}

fn unlock(cluster: &mut Cluster, client: &Client, file: FileId) -> Result<(), Errno> {
    let client = client.clone();
    cluster.run(1, async move { client.unlock(file, 3, false).await })
}

fn cut_off(cluster: &mut Cluster) {
    cluster.net.fate = Box::new(|_| (0, 0));
}

fn connect(cluster: &mut Cluster) {
    cluster.net.fate = Box::new(|_| (1, 0));
}

/// The first client has had a lock and is cut off: its release has failed.
fn release_that_failed() -> (Cluster, Client, Client, FileId) {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    let two = cluster.client(2);
    assert_eq!(lock(&mut cluster, 1, &one, file), Ok(()));
    cut_off(&mut cluster);
    unlock(&mut cluster, &one, file).unwrap_err();
    (cluster, one, two, file)
}

#[test]
fn a_release_that_failed_takes_place_when_the_manager_is_back() {
    for restart in [false, true] {
        let (mut cluster, _one, two, file) = release_that_failed();
        if restart {
            cluster.restart();
        }
        connect(&mut cluster);
        cluster.turns(40 * SECOND);
        assert_eq!(lock(&mut cluster, 2, &two, file), Ok(()), "restarted: {restart}");
    }
}

#[test]
fn a_release_beside_bytes_in_doubt_takes_place_when_the_manager_is_back() {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    let two = cluster.client(2);
    let set = |cluster: &mut Cluster, number, client: &Client, kind, start, end| {
        let (client, lock) = (client.clone(), Lock { start, end, kind, pid: 1 });
        cluster.run(number, async move { client.lock(file, 3, false, lock).await })
    };
    assert_eq!(set(&mut cluster, 1, &one, LockKind::Write, 0, 9), Ok(()));
    cut_off(&mut cluster);
    set(&mut cluster, 1, &one, LockKind::Write, 20, 29).unwrap_err();
    set(&mut cluster, 1, &one, LockKind::Unlock, 0, 4).unwrap_err();
    connect(&mut cluster);
    cluster.turns(40 * SECOND);
    assert_eq!(set(&mut cluster, 2, &two, LockKind::Write, 0, 4), Ok(()));
    assert_eq!(set(&mut cluster, 2, &two, LockKind::Write, 5, 5), Err(Errno::EAGAIN));
    assert_eq!(set(&mut cluster, 2, &two, LockKind::Write, 20, 29), Ok(()));
}

/// Kernels give the number of an owner who is gone to the next one.
#[test]
fn the_next_owner_of_the_number_keeps_its_lock() {
    let (mut cluster, one, two, file) = release_that_failed();
    lock(&mut cluster, 1, &one, file).unwrap_err();
    connect(&mut cluster);
    assert_eq!(lock(&mut cluster, 1, &one, file), Ok(()));
    cluster.turns(40 * SECOND);
    assert_eq!(lock(&mut cluster, 2, &two, file), Err(Errno::EAGAIN));
    assert_eq!(unlock(&mut cluster, &one, file), Ok(()));
    assert_eq!(lock(&mut cluster, 2, &two, file), Ok(()));
}

/// The manager gives it too late, and who asked was told that it is not held.
#[test]
fn a_lock_that_nobody_waits_for_any_more_is_given_back() {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    let two = cluster.client(2);
    keep(&mut cluster, 2, &two);
    cluster.stalled = true;
    assert_eq!(lock(&mut cluster, 2, &two, file), Err(Errno::ETIMEDOUT));
    cluster.turns(2 * SECOND);
    cluster.stalled = false;
    cluster.turns(10 * SECOND);
    assert_eq!(lock(&mut cluster, 1, &one, file), Ok(()));
    assert_eq!(lock(&mut cluster, 2, &two, file), Err(Errno::EAGAIN));
}

/// Takes every frame that the manager could answer with.
fn hog(cluster: &Cluster) -> Vec<FrameMut> {
    let frames = cluster.net.nodes[0].cx().frames().clone();
    std::iter::from_fn(|| frames.alloc(4096)).collect()
}

fn is_written(cluster: &mut Cluster, file: FileId) -> bool {
    let other = cluster.client(2);
    cluster.run(2, async move { other.get_attr(file).await }).unwrap().writers
}

#[test]
fn an_answer_that_the_manager_has_no_room_for_is_asked_for_again() {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    let hogged = hog(&cluster);
    let client = one.clone();
    let opened = cluster.begin(1, async move { client.open(&Who::ROOT, file, WRITE).await });
    cluster.turns(SECOND);
    assert!(opened.borrow().is_none());
    drop(hogged);
    cluster.finish(opened).unwrap();
    let outcome = Some(Final::default());
    cluster.run(1, async move { one.close(file, outcome).await }).unwrap();
    assert!(!is_written(&mut cluster, file), "it was opened once");
}

#[test]
fn an_open_whose_answer_was_lost_does_not_stay_open() {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    let hogged = hog(&cluster);
    let opened = cluster.run(1, async move { one.open(&Who::ROOT, file, WRITE).await });
    assert_eq!(opened, Err(Errno::ETIMEDOUT));
    drop(hogged);
    cluster.turns(10 * SECOND);
    assert!(!is_written(&mut cluster, file));
}

/// Opens the living client's file twice and removes its name: the file is gone with the last close.
fn open_twice(cluster: &mut Cluster, client: &Client, file: FileId) {
    let client = client.clone();
    let removed = cluster.run(1, async move {
        client.open(&Who::ROOT, file, READ).await?;
        client.open(&Who::ROOT, file, READ).await?;
        client.unlink(&Who::ROOT, FileId::ROOT, b"f").await
    });
    assert_eq!(removed, Ok(None));
}

fn close(cluster: &mut Cluster, client: &Client, file: FileId) -> Result<Option<Entry>, Errno> {
    let client = client.clone();
    cluster.run(1, async move { client.close(file, None).await })
}

/// Of the two opens one is left, and none after another close.
fn closes_once_more(cluster: &mut Cluster, client: &Client, file: FileId) {
    let is_there = |cluster: &mut Cluster| {
        let client = client.clone();
        cluster.run(1, async move { client.get_attr(file).await.map(drop) })
    };
    assert_eq!(is_there(cluster), Ok(()), "it is open once more");
    close(cluster, client, file).unwrap();
    assert_eq!(is_there(cluster), Err(Errno::ESTALE));
}

/// By another call, while the first is still on its way.
#[test]
fn a_close_that_is_sent_again_closes_once() {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    open_twice(&mut cluster, &one, file);
    cluster.stalled = true;
    assert_eq!(close(&mut cluster, &one, file), Err(Errno::ETIMEDOUT));
    let client = one.clone();
    let again = cluster.begin(1, async move { client.close(file, None).await });
    cluster.turns(SECOND);
    cluster.stalled = false;
    assert_eq!(cluster.finish(again), Ok(None));
    closes_once_more(&mut cluster, &one, file);
}

/// The client has said again what it has open while a close of before still waited for room in the log.
#[test]
fn a_close_that_takes_place_while_opens_are_said_again_closes_once() {
    let mut cluster = Cluster::new(2);
    cluster.overlay_bytes_max = 16 * 1024;
    cluster.restart();
    let (one, file) = living(&mut cluster);
    let two = cluster.client(2);
    open_twice(&mut cluster, &one, file);
    cluster.stalled = true;
    let value = vec![1; 32 * 1024];
    let set = cluster.begin(2, async move {
        two.set_xattr(&Who::ROOT, FileId::ROOT, b"user.long", &value, 0).await
    });
    cluster.turns(SECOND);
    assert_eq!(close(&mut cluster, &one, file), Err(Errno::ETIMEDOUT));
    cluster.turns(10 * SECOND);
    cluster.stalled = false;
    cluster.turns(SECOND);
    assert!(set.take().is_some(), "there is room");
    cluster.turns(10 * SECOND);
    close(&mut cluster, &one, file).unwrap();
    closes_once_more(&mut cluster, &one, file);
}

/// Else the client's lease ends while it waits for itself.
#[test]
fn who_asks_for_a_lock_after_a_restart_is_not_kept_from_saying_what_it_holds() {
    let mut cluster = Cluster::new(2);
    let (one, file) = living(&mut cluster);
    assert_eq!(lock(&mut cluster, 1, &one, file), Ok(()));
    cluster.restart();
    let (client, started) = (one.clone(), cluster.net.now);
    let other = Lock { start: 20, end: 29, ..LOCK };
    let asked = cluster.begin(1, async move { client.lock(file, 4, false, other).await });
    assert_eq!(cluster.finish(asked), Ok(()));
    assert!(cluster.net.now.since(started) < 2 * KEEP_ALIVE_INTERVAL);
    let two = cluster.client(2);
    assert_eq!(lock(&mut cluster, 2, &two, file), Err(Errno::EAGAIN), "it said it in time");
    let two = two.clone();
    let made = cluster.run(2, async move { create(&two, b"g", None).await });
    made.unwrap();
}
