//! A client and a manager on two nodes: what is promised over bad links, restarts of the manager, failing objects.

use crate::common::cluster::{Cluster, MANAGER, WHO, create};
use crate::common::{ROOT, config};
use names::limits::TASKS;
use names::{Client, Entry, Final, IoServer, ListingEntry, Plus, READ, WRITE, Who};
use node::Cx;
use node::rings::{Lock, LockKind};
use std::time::Duration;
use store::{MemoryBackend, MemoryLogs, Store};
use wire::{Errno, FileId, NodeId, SetAttr, VolumeId};

#[test]
fn every_operation_crosses_the_wire() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    cluster.run(1, async move {
        let long = [0xfe; 255];
        let d = client.make_directory(&WHO, ROOT, &long, 0o755).await.unwrap().attr.file;
        assert_eq!(client.lookup(&WHO, ROOT, &long).await.unwrap().attr.file, d);
        assert_eq!(client.lookup(&WHO, ROOT, &[1; 256]).await, Err(Errno::ENAMETOOLONG));
        let target = vec![b'/'; 4095];
        let link = client.symlink(&WHO, d, b"l", &target).await.unwrap().attr.file;
        assert_eq!(*client.read_link(link).await.unwrap(), *target);
        let node = client.make_node(&WHO, d, b"p", 0o010600, 0).await.unwrap();
        client.link(&WHO, node.attr.file, d, b"q").await.unwrap();
        client.rename(&WHO, d, b"q", ROOT, b"r", 0).await.unwrap();
        client.access(&Who::new(3, 3, &[]), d, READ).await.unwrap();
        let value = vec![9; 65_536];
        client.set_xattr(&WHO, d, b"user.big", &value, 0).await.unwrap();
        assert_eq!(*client.get_xattr(&WHO, d, b"user.big").await.unwrap(), *value);
        assert_eq!(*client.list_xattr(&WHO, d).await.unwrap(), *b"user.big\0");
        client.remove_xattr(&WHO, d, b"user.big").await.unwrap();
        let policy = client.directory_layout(d).await.unwrap();
        client.set_directory_layout(&WHO, d, policy).await.unwrap();
        let space = client.space().await.unwrap();
        assert_eq!((space.total_bytes, space.files), (300, 4));
        client.sync().await.unwrap();
        let (epoch, none) = client.fragments(ROOT, 0, 1).await.unwrap_or((0, vec![]));
        assert_eq!((epoch, none.len()), (0, 0));
        client.unlink(&WHO, ROOT, b"r").await.unwrap();
        client.unlink(&WHO, d, b"p").await.unwrap();
        client.unlink(&WHO, d, b"l").await.unwrap();
        client.remove_directory(&WHO, ROOT, &long).await.unwrap();
        assert_eq!(client.get_attr(d).await, Err(Errno::ESTALE));
    });
    let stranger = Client::new(cluster.net.nodes[1].cx(), MANAGER, VolumeId(6));
    let refused = cluster.run(1, async move { stranger.get_attr(ROOT).await });
    assert_eq!(refused, Err(Errno::ENXIO));
}

#[test]
fn large_directories_are_listed_in_parts() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let names = cluster.run(1, async move {
        for i in 0..700 {
            let name = format!("{i:0>200}");
            create(&client, name.as_bytes(), None).await.unwrap();
        }
        let (mut cookie, mut names) = (0, 0);
        loop {
            let plus = [Plus::Nothing, Plus::Attributes, Plus::Entries][names % 3];
            let listing = client.read_directory(&WHO, ROOT, cookie, 65_536, plus).await.unwrap();
            names += listing.entries.len();
            cookie = listing.entries.last().map_or(cookie, |entry| entry.cookie);
            assert!(
                listing
                    .entries
                    .iter()
                    .all(|entry| entry.entry.is_some() == (plus != Plus::Nothing))
            );
            let has_layout =
                |entry: &ListingEntry| entry.entry.is_some_and(|entry| entry.layout.is_some());
            assert!(
                listing.entries[2..]
                    .iter()
                    .all(|entry| has_layout(entry) == (plus == Plus::Entries))
            );
            if listing.end {
                return names;
            }
        }
    });
    assert_eq!(names, 702);
}

/// An entry with its layout takes more room then than an entry of few columns.
#[test]
fn large_directories_of_wide_files_are_listed_in_parts() {
    let mut cluster = Cluster::new(1);
    let servers: Vec<_> = (1..=32).map(|id| IoServer::from(NodeId(id))).collect();
    cluster.handle.as_ref().unwrap().set_servers(&servers);
    let client = cluster.client(1);
    cluster.run(1, async move {
        for i in 0..400 {
            create(&client, format!("{i}").as_bytes(), None).await.unwrap();
        }
        let listing = client.read_directory(&WHO, ROOT, 0, 65_536, Plus::Entries).await.unwrap();
        assert!((250..400).contains(&listing.entries.len()));
    });
}

#[test]
fn a_dead_writer_is_settled_and_its_locks_are_given_on() {
    let mut cluster = Cluster::new(2);
    let (dead, alive) = (cluster.client(1), cluster.client(2));
    let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Write, pid: 1 };
    let file = cluster.run(1, async move {
        let file = create(&dead, b"f", Some(WRITE)).await.unwrap().attr.file;
        dead.lock(file, 1, false, lock).await.unwrap();
        file
    });
    cluster.objects.0.sizes.borrow_mut().insert(file, (1234, 0));
    let other = alive.clone();
    cluster.run(2, async move {
        assert_eq!(other.lock(file, 1, false, lock).await, Err(Errno::EAGAIN));
        assert_eq!(other.get_lock(file, 1, false, lock).await, Ok(Some(lock)));
        assert!(other.get_attr(file).await.unwrap().writers);
    });
    let keeper = alive.clone();
    let cx = cluster.net.nodes[2].cx().clone();
    cluster.net.nodes[2].cx().spawn("keeper", async move {
        loop {
            keeper.keep_alive().await.unwrap();
            cx.sleep(names::limits::KEEP_ALIVE_INTERVAL).await;
        }
    });
    let (waits, cx) = (alive.clone(), cluster.net.nodes[2].cx().clone());
    cluster.run(2, async move {
        while waits.lock(file, 1, false, lock).await == Err(Errno::EAGAIN) {
            cx.sleep(Duration::from_millis(20)).await;
        }
    });
    cluster.turns(3000);
    let entry = cluster.run(2, async move { alive.get_attr(file).await }).unwrap();
    assert_eq!((entry.attr.size, entry.writers), (1234, false));
}

/// The file as it is when the manager knows how long it is.
async fn settled(client: &Client, file: FileId, cx: &Cx) -> Entry {
    loop {
        let entry = client.get_attr(file).await.unwrap();
        if !entry.is_hint() {
            return entry;
        }
        cx.sleep(Duration::from_millis(100)).await;
    }
}

/// The file is opened and written again while the objects are asked how long it is.
#[test]
fn what_the_objects_said_before_the_last_close_settles_nothing() {
    let mut cluster = Cluster::new(2);
    let (writer, other) = (cluster.client(1), cluster.client(2));
    let outcome = |size| Some(Final { size, ..Final::default() });
    let (first, sizes) = (writer.clone(), cluster.objects.clone());
    let file = cluster.run(1, async move {
        let file = create(&first, b"f", Some(WRITE)).await.unwrap().attr.file;
        sizes.0.sizes.borrow_mut().insert(file, (5, 0));
        file
    });
    let beside = other.clone();
    cluster.run(2, async move {
        beside.open(&WHO, file, WRITE).await.unwrap();
        beside.close(file, outcome(5)).await.unwrap();
    });
    cluster.turns(1000);
    cluster.objects.0.late.replace(Some(cluster.net.nodes[0].cx().clone()));
    let (sizes, cx) = (cluster.objects.clone(), cluster.net.nodes[1].cx().clone());
    cluster.run(1, async move {
        assert_eq!(writer.close(file, outcome(5)).await, Ok(None));
        cx.sleep(Duration::from_millis(500)).await;
        sizes.0.sizes.borrow_mut().insert(file, (9, 0));
        writer.open(&WHO, file, WRITE).await.unwrap();
        writer.close(file, outcome(9)).await.unwrap();
    });
    let cx = cluster.net.nodes[2].cx().clone();
    let entry = cluster.run(2, async move { settled(&other, file, &cx).await });
    assert_eq!(entry.attr.size, 9);
}

/// A client that was taken for dead writes and closes before it hears of that, while the objects are asked for the
/// length.
#[test]
fn what_the_objects_said_before_a_close_by_the_dead_settles_nothing() {
    let mut cluster = Cluster::new(1);
    let writer = cluster.client(1);
    let file = cluster.created(&writer, b"f", Some(WRITE));
    cluster.turns(1000);
    cluster.objects.0.late.replace(Some(cluster.net.nodes[0].cx().clone()));
    let (sizes, cx) = (cluster.objects.clone(), cluster.net.nodes[1].cx().clone());
    let entry = cluster.run(1, async move {
        writer.leave().await.unwrap();
        while sizes.0.asked.get() == 0 {
            cx.sleep(Duration::from_millis(10)).await;
        }
        sizes.0.sizes.borrow_mut().insert(file, (9, 0));
        let outcome = Final { size: 9, ..Final::default() };
        assert_eq!(writer.close(file, Some(outcome)).await, Ok(None));
        settled(&writer, file, &cx).await
    });
    assert_eq!(entry.attr.size, 9);
}

/// A server is away, and as many requests wait for a truncation as are served at once. The close among them, which the
/// client gives up first, takes place when it comes again.
#[test]
fn who_waits_for_a_truncation_keeps_nobody_from_saying_that_it_lives() {
    let mut cluster = Cluster::new(2);
    let (one, other, two) = (cluster.client(1), cluster.client(1), cluster.client(2));
    let file = cluster.created(&one, b"f", Some(WRITE));
    let keeper = two.clone();
    cluster.run(2, async move { keeper.keep_alive().await }).unwrap();
    cluster.objects.0.stuck.replace(Some(cluster.net.nodes[0].cx().clone()));
    let cutter = other.clone();
    cluster.begin(1, async move {
        let shorter = SetAttr { size: Some(0), ..SetAttr::default() };
        cutter.set_attr(&WHO, file, shorter, false).await
    });
    cluster.turns(100);
    let closer = one.clone();
    let closed = cluster.begin(1, async move { closer.close(file, Some(Final::default())).await });
    for _ in 0..TASKS - 2 {
        let opener = other.clone();
        cluster.begin(1, async move { opener.open(&WHO, file, READ).await });
    }
    cluster.turns(1000);
    let alive = cluster.begin(2, async move { two.keep_alive().await });
    cluster.turns(2000);
    assert_eq!(alive.take(), Some(Ok(Vec::new())));
    cluster.turns(30_000);
    assert_eq!(closed.take(), Some(Err(Errno::ETIMEDOUT)));
    let two = cluster.client(2);
    let made = cluster.begin(2, async move { create(&two, b"g", None).await });
    cluster.turns(2000);
    assert!(made.take().is_some_and(|made| made.is_ok()), "nobody waits for an open any more");
    cluster.objects.0.stuck.take();
    cluster.turns(1000);
    let client = one.clone();
    cluster.run(1, async move {
        client.close(file, Some(Final::default())).await.unwrap();
        other.keep_alive().await.unwrap();
        other.unlink(&WHO, ROOT, b"f").await.unwrap();
    });
    cluster.turns(5000);
    let gone = cluster.run(1, async move { one.get_attr(file).await });
    assert_eq!(gone, Err(Errno::ESTALE), "nobody has it open");
}

#[test]
fn one_sync_serves_many() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let all: Vec<_> = (0..40u8)
        .map(|i| {
            let client = client.clone();
            cluster.begin(1, async move {
                create(&client, &[b'a' + i], None).await.unwrap();
                client.sync().await
            })
        })
        .collect();
    let before = cluster.syncs;
    all.into_iter().for_each(|one| cluster.finish(one).unwrap());
    assert!(cluster.syncs - before < 8, "{} syncs", cluster.syncs - before);
}

/// Records of before say of a column on which server it is, not on which disk.
#[test]
fn a_store_of_another_format_is_refused_and_both_are_named() {
    let (backend, mut logs) = (MemoryBackend::new(), MemoryLogs::new());
    let older = store::Config::new(names::STORE.kind, names::STORE.version - 1);
    let mut store = Store::open(backend.clone(), older, Vec::new()).unwrap();
    let mut batch = store::Batch::new();
    batch.put(b"a", b"record");
    let append = store.apply(batch);
    logs.append(append.log, &append.bytes);
    store.freeze().unwrap().run().unwrap();
    drop(store);
    let found: Vec<_> = logs.contents().collect();
    let error = Store::open(backend, config(), found).err().unwrap().to_string();
    let versions = [names::STORE.version - 1, names::STORE.version];
    assert!(versions.iter().all(|version| error.contains(&version.to_string())), "{error}");
}
