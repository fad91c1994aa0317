//! A client and a manager on two nodes: what survives kills, power cuts, and objects that cannot be reached.

use crate::common::ROOT;
use crate::common::cluster::{Cluster, SERVERS, WHO, create};
use names::limits::SCARCE_SPAN;
use names::{Client, Final, Plus, READ, WRITE};
use node::rings::{Lock, LockKind, MetaRoom};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wire::{Errno, FileId, SetAttr};

/// Data that a client commits to the objects by it would be nowhere.
#[test]
fn a_layout_that_was_answered_survives_a_power_cut() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let file = cluster.created(&client, b"f", None);
    let one = client.clone();
    let wider = cluster.run(1, async move {
        one.sync().await.unwrap();
        one.add_columns(&WHO, file, vec![SERVERS[0].into()]).await.unwrap().layout.unwrap()
    });
    cluster.power_cut();
    let one = client.clone();
    let found = cluster.run(1, async move { one.get_attr(file).await.unwrap().layout.unwrap() });
    assert_eq!(found, wider);
    let one = client.clone();
    let moved = cluster.run(1, async move {
        let home = found.home(1);
        one.move_column(&WHO, file, 0, home, 0).await.unwrap().layout.unwrap()
    });
    cluster.power_cut();
    let found = cluster.run(1, async move { client.get_attr(file).await.unwrap().layout.unwrap() });
    assert_eq!(found, moved);
}

#[test]
fn opens_and_locks_are_said_again_after_a_restart() {
    let mut cluster = Cluster::new(2);
    let (client, other) = (cluster.client(1), cluster.client(2));
    let lock = Lock { start: 5, end: 9, kind: LockKind::Write, pid: 1 };
    let one = client.clone();
    let file = cluster.run(1, async move {
        one.keep_alive().await.unwrap();
        let file = create(&one, b"f", None).await.unwrap().attr.file;
        one.open(&WHO, file, READ).await.unwrap();
        one.lock(file, 3, false, lock).await.unwrap();
        file
    });
    cluster.restart();
    // Another client's lock waits until the first has said what it holds, its unlink lets the open file live.
    let two = other.clone();
    let early = cluster.begin(2, async move {
        two.unlink(&WHO, ROOT, b"f").await.unwrap();
        two.lock(file, 4, false, lock).await
    });
    cluster.turns(3000);
    assert!(early.borrow().is_none());
    let one = client.clone();
    assert_eq!(cluster.run(1, async move { one.keep_alive().await }), Ok(vec![]));
    assert_eq!(cluster.finish(early), Err(Errno::EAGAIN));
    cluster.turns(3000);
    let one = client.clone();
    cluster.run(1, async move {
        assert_eq!(one.get_attr(file).await.unwrap().attr.links, 0);
        one.unlock(file, 3, false).await.unwrap();
        one.close(file, None).await.unwrap();
        assert_eq!(one.get_attr(file).await, Err(Errno::ESTALE));
    });
}

#[test]
fn nothing_is_acknowledged_when_the_log_fails_until_a_checkpoint_has_helped() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    cluster.turns(10);
    cluster.append_fails = true;
    let one = client.clone();
    let full = cluster.run(1, async move { create(&one, b"a", None).await });
    assert_eq!(full, Err(Errno::ENOSPC));
    cluster.append_fails = false;
    cluster.turns(3000);
    let one = client.clone();
    cluster.run(1, async move { create(&one, b"b", None).await }).unwrap();
    cluster.restart();
    cluster.run(1, async move { client.lookup(&WHO, ROOT, b"b").await }).unwrap();
}

#[test]
fn files_are_opened_and_closed_for_reading_while_the_log_is_full() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let file = cluster.created(&client, b"f", None);
    cluster.turns(3000);
    cluster.room = 0;
    let one = client.clone();
    cluster.run(1, async move {
        assert_eq!(create(&one, b"a", None).await.map(drop), Err(Errno::ENOSPC));
        one.open(&WHO, file, READ).await.unwrap();
        one.close(file, None).await.unwrap();
        assert_eq!(one.open(&WHO, file, WRITE).await.map(drop), Err(Errno::ENOSPC));
    });
    cluster.room = usize::MAX;
    cluster.turns(3000);
    let one = client.clone();
    cluster.run(1, async move {
        one.keep_alive().await.unwrap();
        one.unlink(&WHO, ROOT, b"f").await.unwrap();
        assert_eq!(one.get_attr(file).await, Err(Errno::ESTALE), "nobody has it open");
    });
}

/// There is no room for the close, whether that shows before or after it is applied, nor for what the client says again
/// that it has open. Found on a machine whose disk was full: a file that was there with all its bytes was empty for a
/// while.
#[test]
fn a_close_that_was_refused_takes_place_when_what_is_held_was_refused_too() {
    for shows_before in [true, false] {
        let mut cluster = Cluster::new(1);
        let client = cluster.client(1);
        let file = cluster.created(&client, b"f", Some(WRITE));
        cluster.objects.0.sizes.borrow_mut().insert(file, (4096, 0));
        cluster.turns(3000);
        cluster.room = 0;
        let outcome = Some(Final { size: 4096, ..Final::default() });
        let one = client.clone();
        cluster.run(1, async move {
            if shows_before {
                assert_eq!(create(&one, b"a", None).await.map(drop), Err(Errno::ENOSPC));
            }
            assert_eq!(one.close(file, outcome).await, Err(Errno::ENOSPC));
            assert_eq!(one.keep_alive().await.map(drop), Err(Errno::ENOSPC));
        });
        cluster.room = usize::MAX;
        cluster.turns(3000);
        let entry = cluster.run(1, async move {
            client.close(file, outcome).await.unwrap();
            client.get_attr(file).await.unwrap()
        });
        assert!(entry.attr.size == 4096 || entry.is_hint(), "shows before: {shows_before}");
    }
}

/// A short record fits where a long one before it did not: replay never gets to it.
#[test]
fn nothing_is_acknowledged_behind_a_hole_in_the_log() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    cluster.turns(3000);
    cluster.room = 600;
    let tasks = [250, 1].map(|bytes| {
        let client = client.clone();
        let name = vec![b's'; bytes];
        cluster.begin(1, async move { create(&client, &name, None).await })
    });
    let results = tasks.map(|task| cluster.finish(task).map(drop));
    assert_eq!(results, [Err(Errno::ENOSPC); 2]);
    cluster.restart();
    let found = cluster.run(1, async move { client.lookup(&WHO, ROOT, b"s").await });
    assert_eq!(found.map(drop), Err(Errno::ENOENT), "nobody can promise it");
    cluster.room = usize::MAX;
    cluster.turns(3000);
    let client = cluster.client(1);
    cluster.run(1, async move { create(&client, b"s", None).await }).unwrap();
}

fn size(bytes: u64) -> SetAttr {
    SetAttr { size: Some(bytes), ..SetAttr::default() }
}

/// A file that is open for writing and was truncated once, to 70 bytes.
fn truncated() -> (Cluster, Client, FileId) {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let file = cluster.created(&client, b"f", Some(WRITE));
    let one = client.clone();
    let set = cluster.run(1, async move { one.set_attr(&WHO, file, size(70), true).await });
    assert_eq!(set.map(|entry| (entry.attr.size, entry.truncations)), Ok((70, 1)));
    assert_eq!(cluster.objects.0.sizes.borrow()[&file], (70, 1));
    (cluster, client, file)
}

/// Found by seed 1301: the generation was given out again, and writes were refused without end.
#[test]
fn a_truncate_generation_that_objects_know_survives_a_power_cut() {
    let (mut cluster, client, file) = truncated();
    cluster.power_cut();
    let entry = cluster.run(1, async move { client.get_attr(file).await }).unwrap();
    assert_eq!((entry.attr.size, entry.truncations), (70, 1));
}

#[test]
fn an_id_that_a_power_cut_took_back_is_not_given_out_again() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let mut seen = Vec::new();
    for name in [b"a", b"b", b"c"] {
        let one = client.clone();
        let first = cluster.run(1, async move { create(&one, name, None).await }).unwrap();
        let one = client.clone();
        let lost = cluster.run(1, async move { create(&one, b"lost", None).await }).unwrap();
        seen.extend([first.attr.file, lost.attr.file]);
        cluster.power_cut();
    }
    let one = client.clone();
    let gone = cluster.run(1, async move { one.lookup(&WHO, ROOT, b"lost").await });
    assert_eq!(gone.map(drop), Err(Errno::ENOENT));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

#[test]
fn a_truncation_that_fails_is_done_later_and_blocks_writers_until_then() {
    let (mut cluster, client, file) = truncated();
    cluster.objects.0.down.set(true);
    let one = client.clone();
    cluster.run(1, async move {
        assert_eq!(one.set_attr(&WHO, file, size(7), true).await, Err(Errno::EHOSTDOWN));
        assert_eq!(one.open(&WHO, file, WRITE).await.map(drop), Err(Errno::EHOSTDOWN));
        one.open(&WHO, file, READ).await.unwrap();
    });
    cluster.restart();
    assert_eq!(cluster.objects.0.sizes.borrow()[&file], (70, 1));
    cluster.objects.0.down.set(false);
    cluster.turns(5000);
    assert_eq!(cluster.objects.0.sizes.borrow()[&file], (7, 2));
    let entry = cluster.run(1, async move { client.open(&WHO, file, WRITE).await }).unwrap();
    assert_eq!((entry.attr.size, entry.truncations), (7, 2));
}

/// Found by seed 3040413933 of full disks: the one waited for the other, whose time to try again never came.
#[test]
fn a_truncation_is_brought_to_its_end_though_a_dead_writer_is_to_be_settled() {
    let (mut cluster, client, file) = truncated();
    cluster.objects.0.down.set(true);
    let failed = cluster.run(1, async move { client.set_attr(&WHO, file, size(7), true).await });
    assert_eq!(failed, Err(Errno::EHOSTDOWN));
    // The client says nothing any more.
    cluster.turns(60_000);
    cluster.objects.0.down.set(false);
    cluster.turns(10_000);
    assert_eq!(cluster.objects.0.sizes.borrow()[&file], (7, 2));
}

#[test]
fn a_truncation_that_cannot_be_done_gives_way_to_a_shorter_one() {
    let (mut cluster, client, file) = truncated();
    cluster.objects.0.uncuttable.set(true);
    let one = client.clone();
    let failed = cluster.run(1, async move { one.set_attr(&WHO, file, size(7), true).await });
    assert_eq!(failed, Err(Errno::EIO));
    cluster.restart();
    cluster.turns(5000);
    assert_eq!(cluster.objects.0.sizes.borrow()[&file], (70, 1));
    let one = client.clone();
    cluster.run(1, async move {
        // A longer file would have what the shorter one was to lose.
        assert_eq!(one.set_attr(&WHO, file, size(8), true).await, Err(Errno::EIO));
        assert_eq!(one.open(&WHO, file, WRITE).await.map(drop), Err(Errno::EIO));
        let entry = one.set_attr(&WHO, file, size(0), true).await.unwrap();
        assert_eq!((entry.attr.size, entry.truncations), (0, 3));
        one.open(&WHO, file, WRITE).await.unwrap();
    });
    assert_eq!(cluster.objects.0.sizes.borrow()[&file], (0, 3));
    cluster.restart();
    cluster.turns(5000);
    let entry = cluster.run(1, async move { client.get_attr(file).await }).unwrap();
    assert_eq!((entry.attr.size, entry.truncations), (0, 3));
}

#[test]
fn objects_are_removed_after_the_last_close_and_after_a_restart() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let file = cluster.created(&client, b"f", Some(WRITE));
    let one = client.clone();
    cluster.run(1, async move {
        one.unlink(&WHO, ROOT, b"f").await.unwrap();
        assert_eq!(one.get_attr(file).await.unwrap().attr.links, 0);
    });
    cluster.turns(3000);
    assert!(cluster.objects.0.removed.borrow().is_empty());
    cluster.objects.0.down.set(true);
    let close = client.clone();
    cluster.run(1, async move { close.close(file, Some(Final::default())).await }).unwrap();
    cluster.turns(3000);
    cluster.restart();
    cluster.objects.0.down.set(false);
    cluster.turns(5000);
    assert_eq!(*cluster.objects.0.removed.borrow(), [file]);
}

#[test]
fn many_files_are_removed_by_few_requests_and_tried_again_when_servers_are_back() {
    const FILES: u8 = 40;
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let mut files = BTreeSet::new();
    for number in 0..FILES {
        let one = client.clone();
        let made = cluster.run(1, async move {
            let file = create(&one, &[b'f', number + 1], Some(WRITE)).await?.attr.file;
            one.close(file, Some(Final::default())).await.map(|_| file)
        });
        files.insert(made.unwrap());
    }
    cluster.objects.0.down.set(true);
    let unlink = client.clone();
    cluster.run(1, async move {
        for number in 0..FILES {
            unlink.unlink(&WHO, ROOT, &[b'f', number + 1]).await.unwrap();
        }
    });
    cluster.turns(3000);
    assert!(cluster.objects.0.removed.borrow().is_empty());
    let before = cluster.objects.0.removals.get();
    cluster.objects.0.down.set(false);
    cluster.turns(5000);
    let removed: BTreeSet<_> = cluster.objects.0.removed.borrow().iter().copied().collect();
    assert_eq!(removed, files);
    let requests = cluster.objects.0.removals.get() - before;
    assert!(requests <= usize::from(FILES) / 4, "{requests} requests for {FILES} files");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// With any losses and duplicates, and kills of the manager at any time: every call is executed once, and
    /// acknowledged changes are there.
    #[test]
    fn calls_are_executed_once(seed: u64, kills in prop::collection::vec(1usize..400, 0..4)) {
        let mut cluster = Cluster::new(1);
        let mut state = seed | 1;
        cluster.net.fate = Box::new(move |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            match state >> 60 {
                0 => (0, 0),
                1 => (2, 3),
                late => (1, late as usize / 4),
            }
        });
        let client = cluster.client(1);
        let done = cluster.begin(1, async move {
            for i in 1..13u8 {
                // A second execution of any of these would fail.
                let file = create(&client, &[b'a', i], None).await?.attr.file;
                client.link(&WHO, file, ROOT, &[b'b', i]).await?;
                client.rename(&WHO, ROOT, &[b'a', i], ROOT, &[b'c', i], 1).await?;
                client.unlink(&WHO, ROOT, &[b'b', i]).await?;
            }
            Ok::<(), Errno>(())
        });
        for turns in kills {
            cluster.turns(turns);
            cluster.restart();
        }
        prop_assert_eq!(cluster.finish(done), Ok(()));
        cluster.restart();
        let client = cluster.client(1);
        let listing = cluster.run(1, async move { client.read_directory(&WHO, ROOT, 0, 9000, Plus::Entries).await });
        let entries = listing.unwrap().entries;
        prop_assert_eq!(entries.len(), 14);
        prop_assert!(entries[2..].iter().all(|entry| entry.entry.unwrap().attr.links == 1));
    }
}

#[test]
fn a_sync_tells_once_that_a_power_cut_took_a_change() {
    let mut cluster = Cluster::new(2);
    let (client, other) = (cluster.client(1), cluster.client(2));
    let sync = |cluster: &mut Cluster, client: &names::Client| {
        let client = client.clone();
        cluster.run(1, async move { client.sync().await })
    };
    let make = |cluster: &mut Cluster, name: &'static [u8]| {
        let client = client.clone();
        cluster.run(1, async move { create(&client, name, None).await }).unwrap()
    };
    make(&mut cluster, b"synced");
    assert_eq!(sync(&mut cluster, &client), Ok(()));
    make(&mut cluster, b"killed");
    cluster.restart();
    assert_eq!(sync(&mut cluster, &client), Ok(()), "a kill takes nothing");
    make(&mut cluster, b"lost");
    cluster.power_cut();
    // A later change does not hide the loss.
    make(&mut cluster, b"later");
    assert_eq!(sync(&mut cluster, &client), Err(Errno::ESTALE));
    assert_eq!(sync(&mut cluster, &client), Ok(()), "told once");
    let other = cluster.run(2, async move { other.sync().await });
    assert_eq!(other, Ok(()), "it changed nothing");
}

#[test]
fn the_length_of_before_a_power_cut_is_a_hint_also_to_who_closed_the_file() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let one = client.clone();
    let file = cluster.run(1, async move {
        let file = create(&one, b"f", Some(WRITE)).await.unwrap().attr.file;
        one.sync().await.unwrap();
        let outcome = Final { size: 10, ..Final::default() };
        let entry = one.close(file, Some(outcome)).await.unwrap().unwrap();
        assert_eq!((entry.attr.size, entry.is_hint()), (10, false));
        file
    });
    cluster.objects.0.sizes.borrow_mut().insert(file, (10, 0));
    cluster.power_cut();
    let one = client.clone();
    let entry = cluster.run(1, async move { one.open(&WHO, file, READ).await }).unwrap();
    assert!(entry.is_hint(), "the objects may know more");
    let one = client.clone();
    cluster.run(1, async move { one.keep_alive().await }).unwrap();
    cluster.turns(3000);
    let entry = cluster.run(1, async move { client.get_attr(file).await }).unwrap();
    assert_eq!((entry.attr.size, entry.is_hint()), (10, false));
}

/// The reserve on the manager's disk is in use: the rest of it is for changes that make room.
#[test]
fn on_a_full_disk_names_are_removed_and_none_are_made() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    cluster.created(&client, b"f", None);
    cluster.meta_room = MetaRoom::Low;
    cluster.created(&client, b"the one that finds out", None);
    let one = client.clone();
    cluster.run(1, async move {
        assert_eq!(create(&one, b"a", None).await.map(drop), Err(Errno::ENOSPC));
        assert_eq!(one.make_directory(&WHO, ROOT, b"d", 0o755).await.map(drop), Err(Errno::ENOSPC));
        let unnamed = one.create_unnamed(&WHO, ROOT, 0o600, READ | WRITE).await;
        assert_eq!(unnamed.map(drop), Err(Errno::ENOSPC));
        one.rename(&WHO, ROOT, b"f", ROOT, b"g", 0).await.unwrap();
        one.unlink(&WHO, ROOT, b"g").await.unwrap();
    });
    cluster.meta_room = MetaRoom::Plenty;
    cluster.turns(3000);
    cluster.run(1, async move { create(&client, b"a", None).await }).unwrap();
}

/// Records of removals find no room before a checkpoint has let the logs go that it covers, however many there are.
#[test]
fn where_logs_have_no_room_removals_wait_for_checkpoints() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    static NAMES: [[u8; 1]; 60] = {
        let mut names = [[0]; 60];
        let mut at = 0;
        while at < names.len() {
            names[at] = [b'A' + at as u8];
            at += 1;
        }
        names
    };
    for name in &NAMES {
        cluster.created(&client, name, None);
    }
    cluster.turns(3000);
    let (before, begun) = (cluster.checkpoints, cluster.net.now);
    cluster.log_bytes_max = 2000;
    for (at, name) in NAMES.iter().enumerate() {
        let one = client.clone();
        cluster.run(1, async move { one.unlink(&WHO, ROOT, name).await }).unwrap();
        // The first one finds out.
        assert!(at == 0 || cluster.log_bytes() < 3000, "{} bytes", cluster.log_bytes());
    }
    assert!(cluster.checkpoints > before + 2);
    assert!(cluster.net.now.since(begun) < SCARCE_SPAN, "nobody waits for what does not come");
}
