//! Names that are lost: files are made again from what their objects know.

use crate::common::ROOT;
use crate::common::cluster::{Cluster, WHO, create};
use names::{LOST_FOUND, READ, Salvaged, WRITE};
use store::{MemoryBackend, MemoryLogs};
use stripe::Description;
use stripe::protocol::ObjectReply;
use wire::{Attr, Errno, FileId, Home, NodeId, ObjectId, SetAttr, VolumeId, Wall};

const SERVERS: [NodeId; 3] = [NodeId(11), NodeId(12), NodeId(13)];

/// A file of 100 bytes as its objects know it, and the objects.
fn made(cluster: &mut Cluster) -> Salvaged {
    let client = cluster.client(1);
    let entry = cluster.run(1, async move {
        let entry = create(&client, b"file", Some(READ | WRITE)).await.unwrap();
        let changes = SetAttr { size: Some(100), ..SetAttr::default() };
        client.set_attr(&WHO, entry.attr.file, changes, true).await.unwrap()
    });
    cluster.turns(2500);
    let (file, layout) = (entry.attr.file, entry.layout.unwrap());
    let object = ObjectId { volume: VolumeId(5), file, column: 0 };
    let told = ObjectReply {
        epoch: layout.epoch,
        truncations: entry.truncations,
        length: 100,
        used: 4096,
        ..ObjectReply::default()
    };
    let home: Home = layout.home(0);
    cluster.objects.0.columns.borrow_mut().insert((home.server, object), told);
    cluster.objects.0.stored.borrow_mut().insert((home.server, object));
    let time = Wall { seconds: 1 << 41, nanos: 3 };
    let attr = Attr { mode: 0o640, uid: 7, gid: 8, mtime: time, ctime: time, ..entry.attr };
    let path = b"/a/b/file".as_slice().into();
    let truncations = entry.truncations;
    Salvaged {
        attr,
        layout,
        fragments: Vec::new(),
        truncations,
        present: 1,
        lost: false,
        described: true,
        path,
    }
}

/// The manager starts with a new store.
fn lose_names(cluster: &mut Cluster) {
    cluster.witnesses = SERVERS.to_vec();
    (cluster.backend, cluster.logs) = (MemoryBackend::new(), MemoryLogs::new());
    cluster.incarnation += 60_000_000_000;
    cluster.net.nodes[0] = rig::node(1, cluster.incarnation);
    cluster.start();
}

fn salvage(cluster: &mut Cluster, found: &Salvaged) -> Result<String, Errno> {
    let (client, found) = (cluster.client(1), found.clone());
    let path = cluster.run(1, async move { client.salvage(&WHO, found).await });
    path.map(|path| String::from_utf8(path.into()).unwrap())
}

fn path(path: &[u8], found: &Salvaged, number: u64) -> Salvaged {
    let attr = Attr { file: FileId(number), ..found.attr };
    Salvaged { path: path.into(), attr, ..found.clone() }
}

#[test]
fn a_file_is_back_under_its_last_path_with_owner_mode_and_time() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    let file = found.attr.file;
    cluster.objects.0.sizes.borrow_mut().insert(file, (100, found.truncations));
    lose_names(&mut cluster);
    assert_eq!(salvage(&mut cluster, &found), Ok("/lost+found/a/b/file".into()));
    assert_eq!(salvage(&mut cluster, &found), Ok(String::new()), "it is known now");
    for _ in 0..2 {
        let client = cluster.client(1);
        let attr = cluster
            .run(1, async move {
                let top = client.lookup(&WHO, ROOT, LOST_FOUND).await?.attr;
                assert_eq!((top.mode, top.uid), (0o700, 0));
                let a = client.lookup(&WHO, top.file, b"a").await?.attr.file;
                let b = client.lookup(&WHO, a, b"b").await?.attr.file;
                let file = client.lookup(&WHO, b, b"file").await?.attr.file;
                client.compare(file).await?;
                client.get_attr(file).await
            })
            .unwrap()
            .attr;
        assert_eq!((attr.file, attr.size, attr.mode), (file, 100, 0o640));
        assert_eq!((attr.uid, attr.gid, attr.mtime), (7, 8, found.attr.mtime));
        cluster.restart();
    }
    // Numbers are not given again.
    let client = cluster.client(1);
    let made = async move { create(&client, b"new", None).await.unwrap().attr.file };
    let new = cluster.run(1, made);
    assert!(new.serial() > file.serial() && new.serial() >> 44 == 1, "{new:?}");
}

#[test]
fn names_that_are_taken_get_the_number_of_the_file() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    lose_names(&mut cluster);
    for (asked, number, given) in [
        (&b"/x"[..], 20, "/lost+found/x"),
        (b"/x", 21, "/lost+found/x.#15"),
        (b"", 22, "/lost+found/#16"),
        (b"/x/y", 23, "/lost+found/y"),
        (b"deep/../z", 24, "/lost+found/deep/z"),
        (b"/lost+found/deep/z", 25, "/lost+found/deep/z.#19"),
        (&[b'n'; 255], 26, &format!("/lost+found/{}", "n".repeat(255))),
        (&[b'n'; 255], 27, &format!("/lost+found/{}.#1b", "n".repeat(251))),
    ] {
        let one = path(asked, &found, number);
        assert_eq!(salvage(&mut cluster, &one).as_deref(), Ok(given));
    }
}

#[test]
fn nothing_is_salvaged_where_no_names_were_lost() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    let other = path(b"/x", &found, 1 << 40);
    assert_eq!(salvage(&mut cluster, &other), Err(Errno::EEXIST));
    lose_names(&mut cluster);
    // A number of a later lineage than that of this store.
    let later = path(b"/x", &found, 9 << 44);
    assert_eq!(salvage(&mut cluster, &later), Err(Errno::EAGAIN));
    let (client, mine) = (cluster.client(1), names::Who::decided(7, 7));
    let asked = async move { client.salvage(&mine, found).await };
    assert_eq!(cluster.run(1, asked), Err(Errno::EPERM));
}

/// A file of two units, of which only the second has an object, and these had one when they were told of it.
fn with_a_hole(cluster: &Cluster, found: &Salvaged, number: u64, present: u32) -> Salvaged {
    let unit = u64::from(found.layout.unit_bytes);
    let one = path(b"/x", found, number);
    let attr = Attr { size: 2 * unit, ..one.attr };
    cluster.objects.0.sizes.borrow_mut().insert(attr.file, (attr.size, found.truncations));
    Salvaged { attr, present, ..one }
}

/// The second object.
fn tell_second(cluster: &Cluster, found: &Salvaged) {
    let object = ObjectId { volume: VolumeId(5), file: found.attr.file, column: 1 };
    let told = ObjectReply {
        epoch: found.layout.epoch,
        truncations: found.truncations,
        length: found.layout.unit_bytes.into(),
        used: 4096,
        ..ObjectReply::default()
    };
    let home = found.layout.home(1).server;
    cluster.objects.0.columns.borrow_mut().insert((home, object), told);
    cluster.objects.0.stored.borrow_mut().insert((home, object));
}

fn compare(cluster: &mut Cluster, found: &Salvaged) -> Result<(), Errno> {
    let (client, file) = (cluster.client(1), found.attr.file);
    cluster.run(1, async move { client.compare(file).await })
}

#[test]
fn a_column_without_an_object_is_a_hole_unless_it_had_one() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    lose_names(&mut cluster);
    for (number, present, expected) in [(20, 2, Ok(())), (21, 3, Err(Errno::EIO))] {
        let one = with_a_hole(&cluster, &found, number, present);
        tell_second(&cluster, &one);
        salvage(&mut cluster, &one).unwrap();
        assert_eq!(compare(&mut cluster, &one), expected, "{present:b}");
    }
}

/// It was as short as this when it was noted, and may have been opened and written since: how long it was is with the
/// object that is lost.
#[test]
fn a_file_is_not_as_short_as_what_is_left_of_it_when_an_object_behind_that_is_lost() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    cluster.objects.0.sizes.borrow_mut().insert(found.attr.file, (100, found.truncations));
    lose_names(&mut cluster);
    let short = Salvaged { present: 3, ..found };
    salvage(&mut cluster, &short).unwrap();
    assert_eq!(compare(&mut cluster, &short), Err(Errno::EIO));
    tell_second(&cluster, &short);
    assert_eq!(compare(&mut cluster, &short), Ok(()));
}

/// The names are of before the first bytes were written; the object that is left was told of them since.
#[test]
fn a_column_that_came_after_a_backup_and_is_lost_is_no_hole() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    lose_names(&mut cluster);
    let one = with_a_hole(&cluster, &found, 20, 2);
    tell_second(&cluster, &one);
    let object = ObjectId { volume: VolumeId(5), file: one.attr.file, column: 1 };
    let told = Description { present: 3, ..Description::default() };
    cluster.objects.0.described.borrow_mut().insert((one.layout.home(1), object), told);
    salvage(&mut cluster, &one).unwrap();
    assert_eq!(compare(&mut cluster, &one), Err(Errno::EIO));
}

#[test]
fn a_file_with_a_hole_that_was_lost_is_judged_as_before_when_its_objects_are_back() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    lose_names(&mut cluster);
    let back = with_a_hole(&cluster, &found, 20, 2);
    let lacking = Salvaged { lost: true, ..with_a_hole(&cluster, &found, 21, 2) };
    for one in [&back, &lacking] {
        salvage(&mut cluster, one).unwrap();
    }
    let client = cluster.client(1);
    cluster.run(1, async move { client.compare_all(&WHO).await }).unwrap();
    assert_eq!(compare(&mut cluster, &back), Err(Errno::EIO), "none of its objects is found");
    for one in [&back, &lacking] {
        tell_second(&cluster, one);
    }
    assert_eq!(compare(&mut cluster, &back), Ok(()));
    assert_eq!(compare(&mut cluster, &lacking), Err(Errno::EIO), "its first bytes are nowhere");
}

#[test]
fn a_file_that_lacks_bytes_is_an_error_and_one_that_moved_is_found() {
    let mut cluster = Cluster::new(1);
    let found = made(&mut cluster);
    let file = found.attr.file;
    lose_names(&mut cluster);
    let lost = Salvaged { lost: true, ..path(b"/lost", &found, 20) };
    salvage(&mut cluster, &lost).unwrap();
    // The object is on another server than the layout says, with a later epoch.
    let object = ObjectId { volume: VolumeId(5), file, column: 0 };
    let (home, to) = (found.layout.home(0).server, found.layout.home(1).server);
    let told = cluster.objects.0.columns.borrow_mut().remove(&(home, object)).unwrap();
    cluster.objects.0.columns.borrow_mut().insert((to, object), ObjectReply { epoch: 9, ..told });
    cluster.objects.0.stored.borrow_mut().clear();
    cluster.objects.0.stored.borrow_mut().insert((to, object));
    salvage(&mut cluster, &found).unwrap();
    let client = cluster.client(1);
    let opened = cluster.run(1, async move {
        client.compare_all(&WHO).await.unwrap();
        assert_eq!(client.open(&WHO, FileId(20), READ).await.map(drop), Err(Errno::EIO));
        client.open(&WHO, file, READ).await.unwrap()
    });
    assert_eq!(opened.layout.unwrap().home(0).server, to);
}
