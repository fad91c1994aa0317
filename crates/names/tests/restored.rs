//! A restored store and objects that went on without it, on a client's and a manager's node.

use crate::common::ROOT;
use crate::common::cluster::{Cluster, SERVERS, WHO, create};
use names::{Entry, READ, WRITE};
use store::MemoryLogs;
use stripe::protocol::{ObjectReply, Role};
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

/// Sets the objects' replies: an epoch and a length for each column.
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

/// Files to be compared, and those that lost objects.
fn restoration(cluster: &Cluster) -> (u64, u64) {
    let names::Restoration { due, lost } = cluster.handle.as_ref().unwrap().restoration();
    (due, lost)
}

/// The copy is accepted, and the manager ends so many turns later, by a kill or a power cut.
fn bring_back_and_kill(cluster: &mut Cluster, copy: (Vec<u8>, MemoryLogs), turns: usize) {
    cluster.bring_back_accepted(copy);
    cluster.turns(turns);
    if turns.is_multiple_of(2) { cluster.restart() } else { cluster.power_cut() }
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
        bring_back_and_kill(&mut cluster, copy, kill);
        let found = open(&mut cluster, file).unwrap();
        let now: Vec<Home> = found.layout.unwrap().homes().collect();
        assert_eq!((now[0], now[1].server, now[2]), (homes[0], at(2), homes[2]), "{kill} turns");
        assert_eq!((found.attr.size, found.layout.unwrap().epoch), (555, 8), "{kill} turns");
        cluster.restart();
        assert_eq!(open(&mut cluster, file).unwrap().layout, found.layout);
    }
}

/// It may have what the others seem to lack.
#[test]
fn a_server_that_was_silent_at_the_start_is_surveyed_for_moved_columns() {
    let (mut cluster, entry) = cluster(b"file");
    let (file, layout) = (entry.attr.file, entry.layout.unwrap());
    let (copy, away) = (cluster.copy(), SERVERS[2]);
    let moved = layout.homes().position(|home| home.server != away).unwrap() as u16;
    for (column, home) in (0..).zip(layout.homes()) {
        let length = if column == moved { 0 } else { 50 };
        tell(&cluster, &entry, &[(home.server, column, 7, length)]);
    }
    tell(&cluster, &entry, &[(away, moved, 7, 40)]);
    cluster.objects.0.sizes.borrow_mut().insert(file, (555, entry.truncations));
    cluster.objects.0.silent.borrow_mut().insert(away);
    cluster.servers.retain(|server| *server != away);
    cluster.bring_back_accepted(copy);
    let found = open(&mut cluster, file).unwrap().layout.unwrap();
    assert_eq!(found.homes().nth(usize::from(moved)).unwrap().server, away);
}

/// Its server refuses it for two minutes. ESTALE would say that the file is gone.
#[test]
fn a_file_one_of_whose_objects_was_removed_not_long_ago_is_to_be_waited_for_and_is_not_gone() {
    let (mut cluster, entry) = cluster(b"file");
    let (file, copy) = (entry.attr.file, cluster.copy());
    for (column, home) in (0..).zip(entry.layout.unwrap().homes()) {
        tell(&cluster, &entry, &[(home.server, column, 7, 50)]);
    }
    cluster.objects.0.buried.set(true);
    cluster.bring_back_accepted(copy);
    for _ in 0..2 {
        assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EAGAIN));
        let client = cluster.client(1);
        let attributes = cluster.run(1, async move { client.get_attr(file).await });
        assert_eq!(attributes.map(drop), Err(Errno::EAGAIN), "after the fence");
        assert_eq!(restoration(&cluster), (1, 0));
    }
    cluster.objects.0.buried.set(false);
    assert!(open(&mut cluster, file).is_ok());
    // A truncation is waited for in the same way.
    cluster.objects.0.buried.set(true);
    let client = cluster.client(1);
    let changes = SetAttr { size: Some(70), ..SetAttr::default() };
    let cut = cluster.run(1, async move { client.set_attr(&WHO, file, changes, false).await });
    assert_eq!(cut.map(drop), Err(Errno::EAGAIN));
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
fn a_file_that_lacks_objects_is_used_again_when_its_loss_was_accepted() {
    for kill in [0, 3, 40, 400] {
        let (mut cluster, entry) = cluster(b"file");
        let file = entry.attr.file;
        let copy = cluster.copy();
        cluster.objects.0.sizes.borrow_mut().remove(&file);
        cluster.bring_back_accepted(copy);
        assert_eq!(restoration(&cluster), (1, 0));
        assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EIO));
        assert_eq!(restoration(&cluster), (0, 1));
        let client = cluster.client(1);
        let stranger = names::Who::new(7, 7, &[]);
        let one = client.clone();
        let refused = cluster.run(1, async move { one.accept_lost(&stranger, file).await });
        assert_eq!(refused, Err(Errno::EPERM));
        let accepted = cluster.begin(1, async move { client.accept_lost(&WHO, file).await });
        cluster.turns(kill);
        if kill > 0 {
            cluster.restart();
        }
        assert_eq!(cluster.finish(accepted), Ok(()), "{kill} turns");
        assert_eq!(restoration(&cluster), (0, 0));
        let found = open(&mut cluster, file).unwrap();
        assert_eq!(found.attr.size, 100);
        assert!(found.truncations > entry.truncations);
        let told = cluster.objects.0.sizes.borrow()[&file];
        assert_eq!(told, (100, found.truncations), "each object has the length that follows");
        cluster.restart();
        assert_eq!(restoration(&cluster), (0, 0));
    }
}

#[test]
fn a_file_that_was_open_in_the_backup_and_has_no_objects_is_no_empty_file() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let file = cluster.created(&client, b"file", Some(READ | WRITE));
    cluster.turns(2500);
    let copy = cluster.copy();
    let size = SetAttr { size: Some(0), ..SetAttr::default() };
    let entry =
        cluster.run(1, async move { client.set_attr(&WHO, file, size, true).await.unwrap() });
    cluster.bring_back_accepted(copy);
    assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EIO));
    assert_eq!(restoration(&cluster), (0, 1));
    // The client that has it open goes on writing: it is whole then.
    let homes: Vec<Home> = entry.layout.unwrap().homes().collect();
    let columns = [0, 1, 2].map(|column| (homes[column].server, column as u16, 1, 30));
    tell(&cluster, &entry, &columns);
    cluster.objects.0.sizes.borrow_mut().insert(file, (90, entry.truncations));
    assert_eq!(open(&mut cluster, file).unwrap().attr.size, 90);
    assert_eq!(restoration(&cluster), (0, 0));
}

#[test]
fn a_file_that_was_empty_in_the_backup_and_lacks_the_objects_it_had_is_no_empty_file() {
    let (mut cluster, entry) = cluster(b"file");
    let (client, file) = (cluster.client(1), entry.attr.file);
    let emptied = cluster.run(1, async move {
        let changes = SetAttr { size: Some(0), ..SetAttr::default() };
        client.set_attr(&WHO, file, changes, true).await.unwrap();
        client.close(file, None).await.unwrap();
        client.get_attr(file).await.unwrap()
    });
    assert_eq!(emptied.attr.size, 0);
    cluster.turns(2500);
    let copy = cluster.copy();
    cluster.bring_back_accepted(copy);
    assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EIO));
}

#[test]
fn files_left_to_compare_are_counted_down_and_one_that_is_removed_is_none() {
    let (mut cluster, entry) = cluster(b"file");
    let client = cluster.client(1);
    let one = client.clone();
    let other = cluster.run(1, async move {
        let other = create(&one, b"other", None).await.unwrap().attr.file;
        let changes = SetAttr { size: Some(100), ..SetAttr::default() };
        one.set_attr(&WHO, other, changes, false).await.unwrap();
        other
    });
    cluster.turns(2500);
    let copy = cluster.copy();
    let homes: Vec<Home> = entry.layout.unwrap().homes().collect();
    let columns = [0, 1, 2].map(|column| (homes[column].server, column as u16, 1, 10));
    tell(&cluster, &entry, &columns);
    cluster.objects.0.absent.set(true);
    cluster.bring_back_accepted(copy);
    // Clients of before may say that they have files open, for as long as a lease is.
    cluster.turns(40_000);
    assert_eq!(restoration(&cluster).0, 2, "a server is waited for");
    let one = client.clone();
    cluster.run(1, async move { one.unlink(&WHO, ROOT, b"other").await }).unwrap();
    let asked = cluster.run(1, async move { client.restoration().await.unwrap() });
    assert_eq!((asked.due, asked.lost), (1, 0), "{other:?} is gone");
    cluster.objects.0.absent.set(false);
    cluster.turns(9000);
    assert_eq!(restoration(&cluster), (0, 0));
}

#[test]
fn a_file_that_got_columns_since_is_striped_as_its_objects_were_told() {
    for kill in [0, 3, 40, 400, 2000] {
        let (mut cluster, entry) = cluster(b"file");
        let file = entry.attr.file;
        let copy = cluster.copy();
        cluster.objects.0.sizes.borrow_mut().insert(file, (70_000, entry.truncations));
        let client = cluster.client(1);
        let one = client.clone();
        let grown = cluster.run(1, async move {
            let homes = vec![SERVERS[0].into()];
            one.add_columns(&WHO, file, homes).await.unwrap().layout.unwrap()
        });
        let map = cluster.run(1, async move { client.fragments(file, 0, 99).await.unwrap().1 });
        let all = (0..).zip(grown.homes()).map(|(column, home): (u16, Home)| {
            (home.server, column, grown.epoch, 30_000 - u64::from(column) * 100)
        });
        tell(&cluster, &entry, &all.collect::<Vec<_>>());
        cluster.objects.0.sizes.borrow_mut().insert(file, (99_000, entry.truncations));
        bring_back_and_kill(&mut cluster, copy, kill);
        let found = open(&mut cluster, file).unwrap();
        let layout = found.layout.unwrap();
        assert!(layout.homes().eq(grown.homes()), "{kill} turns: {layout:?}");
        assert_eq!((found.attr.size, layout.epoch > grown.epoch), (99_000, true), "{kill} turns");
        let client = cluster.client(1);
        let now = cluster.run(1, async move { client.fragments(file, 0, 99).await.unwrap() });
        assert_eq!(now, (layout.epoch, map), "{kill} turns");
        assert_eq!(restoration(&cluster), (0, 0));
    }
}

/// All objects of a file that got columns were made then, also those of holes.
#[test]
fn a_column_of_such_a_file_that_is_nowhere_is_a_loss_also_where_all_others_are_there() {
    for lost in 0..4 {
        let (mut cluster, entry) = cluster(b"file");
        let file = entry.attr.file;
        let copy = cluster.copy();
        let client = cluster.client(1);
        let grown = cluster.run(1, async move {
            let homes = vec![SERVERS[0].into()];
            client.add_columns(&WHO, file, homes).await.unwrap().layout.unwrap()
        });
        let all = (0..).zip(grown.homes()).filter(|(column, _)| *column != lost);
        let all = all.map(|(column, home): (u16, Home)| (home.server, column, grown.epoch, 0));
        tell(&cluster, &entry, &all.collect::<Vec<_>>());
        cluster.bring_back_accepted(copy);
        assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EIO), "column {lost}");
        assert_eq!(restoration(&cluster), (0, 1));
    }
}

#[test]
fn columns_that_were_given_up_hold_no_bytes_of_the_file_once_it_gets_columns_again() {
    let (mut cluster, entry) = cluster(b"file");
    let file = entry.attr.file;
    tell(&cluster, &entry, &[(SERVERS[0], 3, 1, 70)]);
    let client = cluster.client(1);
    let refused = cluster
        .run(1, async move { client.add_columns(&WHO, file, vec![SERVERS[0].into()]).await });
    assert_eq!(refused.map(drop), Err(Errno::EBUSY));
    let client = cluster.client(1);
    let added = cluster
        .run(1, async move { client.add_columns(&WHO, file, vec![SERVERS[1].into()]).await });
    assert_eq!(added.unwrap().layout.unwrap().width(), 4);
}

#[test]
fn bytes_in_columns_that_no_object_was_told_of_are_named_lost_and_given_up_when_accepted() {
    let (mut cluster, entry) = cluster(b"file");
    let file = entry.attr.file;
    let copy = cluster.copy();
    let homes: Vec<Home> = entry.layout.unwrap().homes().collect();
    let mut columns: Vec<_> =
        (0..3).map(|column| (homes[column].server, column as u16, 2, 50)).collect();
    columns.push((SERVERS[0], 3, 2, 70));
    tell(&cluster, &entry, &columns);
    cluster.objects.0.sizes.borrow_mut().insert(file, (120, entry.truncations));
    cluster.bring_back_accepted(copy);
    assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EIO));
    let client = cluster.client(1);
    cluster.run(1, async move { client.accept_lost(&WHO, file).await }).unwrap();
    let found = open(&mut cluster, file).unwrap();
    // The columns that it had, with an epoch that none of them knew.
    assert_eq!((found.attr.size, found.layout.unwrap().epoch), (120, 3));
    assert_eq!(found.layout.unwrap().width(), 3);
}

#[test]
fn a_column_on_a_disk_that_is_gone_for_good_is_not_waited_for() {
    let (mut cluster, entry) = cluster(b"file");
    let file = entry.attr.file;
    let copy = cluster.copy();
    let homes: Vec<Home> = entry.layout.unwrap().homes().collect();
    let columns = [0, 1].map(|column| (homes[column].server, column as u16, 1, 10));
    tell(&cluster, &entry, &columns);
    cluster.bring_back_accepted(copy);
    cluster.handle.as_ref().unwrap().set_gone(&[(homes[2].server, 1)]);
    // Its part is an error when it is read; the rest is there.
    assert!(open(&mut cluster, file).is_ok());
    assert_eq!(restoration(&cluster), (0, 0));
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
        assert_eq!(one.snapshot(&stranger).await.unwrap_err().errno, Errno::EPERM);
        let first = one.snapshot(&WHO).await.unwrap().remove(0);
        assert_eq!(one.back_up(&stranger, &first, false, &[]).await, Err(Errno::EPERM));
        let mut part = one.back_up(&WHO, &first, false, &[]).await.unwrap();
        let mut rows = part.rows.clone();
        let mut number = 0;
        while !part.last {
            for _ in 0..20 {
                one.unlink(&WHO, ROOT, format!("{number:0>200}").as_bytes()).await.unwrap();
                create(&one, format!("new{number}").as_bytes(), None).await.unwrap();
                number += 1;
            }
            let after = rows.last().unwrap().0.clone();
            part = one.back_up(&WHO, &first, false, &after).await.unwrap();
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
    let one = client.clone();
    let ended = cluster.run(1, async move { one.back_up(&WHO, &first, false, &[]).await });
    assert_eq!(ended, Err(Errno::ECANCELED));
}

/// Column 1 moved to a disk that is lost, and what it left has its bytes, since it could not be emptied.
#[test]
fn what_a_move_left_is_not_read_and_is_emptied_when_the_loss_is_accepted() {
    let (mut cluster, entry) = cluster(b"file");
    let (file, layout) = (entry.attr.file, entry.layout.unwrap());
    let copy = cluster.copy();
    let at: Vec<NodeId> = layout.homes().map(|home| home.server).collect();
    tell(&cluster, &entry, &[(at[0], 0, 7, 50), (at[1], 1, 7, 40), (at[2], 2, 7, 30)]);
    let left = (at[1], object(file, 1));
    cluster.objects.0.roles.borrow_mut().insert(left, Role::Left);
    cluster.objects.0.sizes.borrow_mut().insert(file, (120, entry.truncations));
    cluster.bring_back_accepted(copy);
    assert_eq!(open(&mut cluster, file).map(drop), Err(Errno::EIO));
    assert_eq!(restoration(&cluster), (0, 1));
    let client = cluster.client(1);
    cluster.run(1, async move { client.accept_lost(&WHO, file).await }).unwrap();
    assert_eq!(cluster.objects.0.columns.borrow()[&left].length, 0);
    let found = open(&mut cluster, file).unwrap();
    assert_eq!((found.attr.size, found.layout.unwrap().epoch), (120, 8));
    assert!(found.layout.unwrap().homes().eq(layout.homes()));
}

/// The copy has a later epoch, and is on another disk.
#[test]
fn a_copy_that_was_under_way_is_not_taken_for_the_column() {
    for (role, epoch) in [(Role::Column, 6), (Role::Left, 7)] {
        let (mut cluster, entry) = cluster(b"file");
        let (file, layout) = (entry.attr.file, entry.layout.unwrap());
        let copy = cluster.copy();
        let at: Vec<NodeId> = layout.homes().map(|home| home.server).collect();
        let all = [
            (at[0], 0, epoch, 50),
            (at[1], 1, epoch, 40),
            (at[2], 1, 7, 99),
            (at[2], 2, epoch, 30),
        ];
        tell(&cluster, &entry, &all);
        let roles = [((at[1], object(file, 1)), role), ((at[2], object(file, 1)), Role::Copy)];
        cluster.objects.0.roles.borrow_mut().extend(roles);
        cluster.objects.0.sizes.borrow_mut().insert(file, (120, entry.truncations));
        cluster.bring_back_accepted(copy);
        let found = open(&mut cluster, file).unwrap().layout.unwrap();
        assert!(found.homes().eq(layout.homes()), "{role:?}");
        assert_eq!(found.epoch, 8, "above all that objects have");
    }
}

#[test]
fn a_move_after_a_restore_has_an_epoch_that_no_object_can_have() {
    let (mut cluster, entry) = cluster(b"file");
    let (file, layout) = (entry.attr.file, entry.layout.unwrap());
    let copy = cluster.copy();
    let at: Vec<NodeId> = layout.homes().map(|home| home.server).collect();
    tell(&cluster, &entry, &[(at[0], 0, 1, 50), (at[1], 1, 1, 40), (at[2], 2, 1, 30)]);
    cluster.objects.0.sizes.borrow_mut().insert(file, (120, entry.truncations));
    cluster.bring_back_accepted(copy);
    assert_eq!(open(&mut cluster, file).unwrap().layout.unwrap().epoch, 1);
    let (client, to) = (cluster.client(1), at[0]);
    let moved =
        cluster.run(1, async move { client.move_column(&WHO, file, 1, to, 0).await.unwrap() });
    assert!(moved.layout.unwrap().epoch > 1 << 16, "{:?}", moved.layout);
}
