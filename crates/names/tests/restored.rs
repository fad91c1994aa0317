//! A restored store and objects that went on without it, on a client's and a manager's node.

mod common;

use common::ROOT;
use common::cluster::{Cluster, SERVERS, WHO, create};
use names::{Entry, READ, WRITE};
use stripe::protocol::ObjectReply;
use wire::{Errno, FileId, Home, NodeId, ObjectId, SetAttr, VolumeId};

fn object(file: FileId, column: u16) -> ObjectId {
    ObjectId { volume: VolumeId(5), file, column }
}

/// A file of 100 bytes that was open for writing.
fn cluster(name: &'static [u8]) -> (Cluster, Entry) {
    let mut cluster = Cluster::new(1);
    cluster.witnesses = SERVERS.to_vec();
    let client = cluster.client(1);
    let entry = cluster.run(1, async move {
        let entry = create(&client, name, Some(READ | WRITE)).await.unwrap();
        let changes = SetAttr { size: Some(100), ..SetAttr::default() };
        client.set_attr(&WHO, entry.attr.file, changes, true).await.unwrap()
    });
    cluster.turns(2500);
    (cluster, entry)
}

/// What the objects say: an epoch and a length for each column.
fn tell(cluster: &Cluster, entry: &Entry, columns: &[(NodeId, u16, u32, u64)]) {
    let file = entry.attr.file;
    for (server, column, epoch, length) in columns {
        let told = ObjectReply {
            epoch: *epoch,
            length: *length,
            truncations: entry.truncations,
            used: *length,
            ..ObjectReply::default()
        };
        cluster.objects.0.columns.borrow_mut().insert((*server, object(file, *column)), told);
        cluster.objects.0.stored.borrow_mut().insert((*server, object(file, *column)));
    }
}

fn open(cluster: &mut Cluster, file: FileId) -> Result<Entry, Errno> {
    let client = cluster.client(1);
    cluster.run(1, async move { client.open(&WHO, file, READ).await })
}

#[test]
fn a_column_that_moved_since_is_found_and_the_length_is_what_the_objects_say() {
    for kill in [0, 3, 40, 400, 2000] {
        let (mut cluster, entry) = cluster(b"file");
        let (file, layout) = (entry.attr.file, entry.layout.unwrap());
        let copy = cluster.copy();
        // Column 1 went where column 2 is; what it left behind is empty.
        let homes: Vec<Home> = layout.homes().collect();
        let at = |column: usize| homes[column].server;
        let all = [(at(0), 0, 7, 50), (at(1), 1, 7, 0), (at(2), 1, 7, 40), (at(2), 2, 7, 30)];
        tell(&cluster, &entry, &all);
        cluster.objects.0.sizes.borrow_mut().insert(file, (555, entry.truncations));
        cluster.bring_back_accepted(copy);
        cluster.turns(kill);
        if kill % 2 == 0 {
            cluster.restart()
        } else {
            cluster.power_cut()
        }
        let found = open(&mut cluster, file).unwrap();
        let now: Vec<Home> = found.layout.unwrap().homes().collect();
        assert_eq!((now[0], now[1].server, now[2]), (homes[0], at(2), homes[2]), "{kill} turns");
        assert_eq!((found.attr.size, found.layout.unwrap().epoch), (555, 8), "{kill} turns");
        cluster.restart();
        assert_eq!(open(&mut cluster, file).unwrap().layout, found.layout);
    }
}

#[test]
fn a_file_whose_objects_are_nowhere_is_an_error_and_can_be_removed() {
    let (mut cluster, entry) = cluster(b"file");
    let copy = cluster.copy();
    cluster.bring_back_accepted(copy);
    for _ in 0..2 {
        assert_eq!(open(&mut cluster, entry.attr.file).map(drop), Err(Errno::EIO));
        cluster.restart();
    }
    let client = cluster.client(1);
    cluster.run(1, async move { client.unlink(&WHO, ROOT, b"file").await }).unwrap();
    cluster.turns(9000);
    let client = cluster.client(1);
    cluster.run(1, async move { client.own_all(&WHO).await }).unwrap();
}

#[test]
fn a_server_that_is_away_keeps_a_file_waiting_and_the_volume_frozen() {
    let (mut cluster, entry) = cluster(b"file");
    let (file, layout) = (entry.attr.file, entry.layout.unwrap());
    let copy = cluster.copy();
    let homes: Vec<Home> = layout.homes().collect();
    let columns = [0, 1, 2].map(|column| (homes[column].server, column as u16, 1, 10));
    tell(&cluster, &entry, &columns);
    cluster.objects.0.absent.set(true);
    cluster.bring_back_accepted(copy);
    let one = cluster.client(1);
    let resumed = cluster.run(1, async move { one.own_all(&WHO).await });
    assert_eq!(resumed, Err(Errno::EBUSY));
    assert!(cluster.handle.as_ref().unwrap().is_frozen());
    cluster.objects.0.absent.set(false);
    assert!(open(&mut cluster, file).is_ok());
    let one = cluster.client(1);
    assert_eq!(cluster.run(1, async move { one.own_all(&WHO).await }), Ok(()));
}

#[test]
fn a_backup_is_of_one_moment_whatever_is_changed_meanwhile() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let one = client.clone();
    cluster.run(1, async move {
        for name in 0..600u32 {
            create(&one, format!("{name:0>200}").as_bytes(), None).await.unwrap();
        }
    });
    let one = client.clone();
    let (rows, first) = cluster.run(1, async move {
        let stranger = names::Who::new(7, 7, &[]);
        assert_eq!(one.back_up(&stranger, 0, false, &[]).await, Err(Errno::EPERM));
        let mut part = one.back_up(&WHO, 0, false, &[]).await.unwrap();
        let (mut rows, first) = (part.rows.clone(), part.clone());
        let mut number = 0;
        while !part.last {
            for _ in 0..20 {
                one.unlink(&WHO, ROOT, format!("{number:0>200}").as_bytes()).await.unwrap();
                create(&one, format!("new{number}").as_bytes(), None).await.unwrap();
                number += 1;
            }
            let after = rows.last().unwrap().0.clone();
            part = one.back_up(&WHO, part.snapshot, false, &after).await.unwrap();
            rows.extend(part.rows.clone());
        }
        assert!(number >= 40, "{number}");
        (rows, first)
    });
    assert!(rows.is_sorted_by(|one, other| one.0 < other.0));
    let names = rows.iter().filter(|(key, _)| key[1] == 4).count();
    let inodes = rows.iter().filter(|(key, _)| key[1] == 3).count();
    assert_eq!((names, inodes), (600, 601));
    // It ends by itself when nothing is asked of it, and with the manager.
    cluster.turns(70_000);
    let (one, snapshot) = (client.clone(), first.snapshot);
    let ended = cluster.run(1, async move { one.back_up(&WHO, snapshot, false, &[]).await });
    assert_eq!(ended, Err(Errno::ECANCELED));
}
