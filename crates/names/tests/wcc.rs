//! Changes that come with attributes of before and after: one step, on stable storage when they are answered.

use crate::common::ROOT;
use crate::common::array::Array;
use crate::common::cluster::{Cluster, WHO, create};
use names::{Client, How, Plus, WRITE};
use std::future::Future;
use wire::{Attr, Errno, FileId, SetAttr, Wall, Wcc};

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Attributes of the directories around one change.
async fn around<T, F: Future<Output = Result<T, Errno>>>(
    client: &Client,
    dirs: &[FileId],
    change: impl FnOnce(Client) -> F,
) -> T {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for dir in dirs {
        old.push(client.get_attr(*dir).await.unwrap().attr);
    }
    let (with, changed) = client.with_wcc(None, None);
    let made = change(with).await.unwrap();
    for dir in dirs {
        new.push(client.get_attr(*dir).await.unwrap().attr);
    }
    let told = old.into_iter().zip(new);
    let told = told.map(|(before, after)| Wcc { before: Some(before), after });
    assert_eq!(changed.take(), told.collect::<Vec<_>>());
    made
}

#[test]
fn every_change_of_a_name_tells_of_its_directories() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    cluster.run(1, async move {
        let one = &[ROOT];
        let make = |it: Client| async move { it.make_directory(&WHO, ROOT, b"d", 0o755).await };
        let d = around(&client, one, make).await.attr.file;
        let make = |it: Client| async move {
            it.create(&WHO, ROOT, b"f", 0o644, How::Guarded, None).await
        };
        let f = around(&client, one, make).await.0.attr.file;
        let make = |it: Client| async move { it.make_node(&WHO, ROOT, b"p", 0o010600, 0).await };
        around(&client, one, make).await;
        let make = |it: Client| async move { it.symlink(&WHO, ROOT, b"s", b"target").await };
        around(&client, one, make).await;
        let link = |it: Client| async move { it.link(&WHO, f, d, b"l").await };
        around(&client, &[d], link).await;
        let within = |it: Client| async move { it.rename(&WHO, ROOT, b"s", ROOT, b"t", 0).await };
        around(&client, one, within).await;
        let across = |it: Client| async move { it.rename(&WHO, ROOT, b"t", d, b"t", 0).await };
        around(&client, &[ROOT, d], across).await;
        let unlink = |it: Client| async move { it.unlink(&WHO, d, b"l").await };
        around(&client, &[d], unlink).await;
        let unlink = |it: Client| async move { it.unlink(&WHO, d, b"t").await };
        around(&client, &[d], unlink).await;
        let remove = |it: Client| async move { it.remove_directory(&WHO, ROOT, b"d").await };
        around(&client, one, remove).await;
        let (with, seen) = client.with_wcc(None, None);
        let found = with.lookup(&WHO, ROOT, b"f").await.unwrap();
        let after = client.get_attr(ROOT).await.unwrap().attr;
        assert_eq!((found.attr.file, seen.take()), (f, vec![Wcc { before: None, after }]));
        let (with, seen) = client.with_wcc(None, None);
        with.read_directory(&WHO, ROOT, 0, 4096, Plus::Entries).await.unwrap();
        assert_eq!(seen.take(), vec![Wcc { before: None, after }]);
        let (with, changed) = client.with_wcc(None, None);
        let there = with.make_directory(&WHO, ROOT, b"f", 0o755).await;
        assert_eq!((there.map(drop), changed.take()), (Err(Errno::EEXIST), Vec::new()));
    });
}

/// RFC 1813 section 3.3.2.
#[test]
fn of_two_that_guard_an_attribute_with_the_same_time_one_changes_it() {
    let mut cluster = Cluster::new(2);
    let (one, two) = (cluster.client(1), cluster.client(1));
    cluster.run(1, async move {
        let file = create(&one, b"f", None).await.unwrap().attr;
        let stale = Wall { seconds: file.ctime.seconds + 1, nanos: 0 };
        let guarded = one.with_wcc(Some(stale), None).0;
        let refused = guarded.set_attr(&WHO, file.file, mode(0o600), false).await;
        assert_eq!(refused.map(drop), Err(Errno::EBADE));
        let calls = [&one, &two].map(async |client| {
            let guarded = client.with_wcc(Some(file.ctime), None).0;
            guarded.set_attr(&WHO, file.file, mode(0o700), false).await.map(drop)
        });
        let mut results = node::all(calls).await;
        results.sort_by_key(|result| result.is_err());
        assert_eq!(results, [Ok(()), Err(Errno::EBADE)]);
    });
}

/// The objects know then: attributes of before would hide from a client what another has written.
#[test]
fn nothing_of_before_is_told_of_a_file_that_is_written() {
    let mut cluster = Cluster::new(2);
    let (one, two) = (cluster.client(1), cluster.client(1));
    cluster.run(1, async move {
        let file = create(&one, b"f", None).await.unwrap().attr.file;
        let set = async |client: &Client, bits| {
            let (with, changed) = client.with_wcc(None, None);
            with.set_attr(&WHO, file, mode(bits), false).await.unwrap();
            changed.take()[0].before.is_some()
        };
        assert!(set(&one, 0o600).await);
        two.open(&WHO, file, WRITE).await.unwrap();
        assert!(!set(&one, 0o640).await, "another's");
        assert!(!set(&two, 0o644).await, "its own");
        two.close(file, Some(names::Final::default())).await.unwrap();
        assert!(set(&one, 0o600).await);
    });
}

#[test]
fn what_was_answered_survives_a_power_cut() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let maker = client.clone();
    let old: Attr = cluster.run(1, async move {
        let with = || maker.with_wcc(None, None).0;
        create(&with(), b"gone", None).await.unwrap();
        let file = create(&with(), b"f", None).await.unwrap().attr.file;
        with().rename(&WHO, ROOT, b"f", ROOT, b"g", 0).await.unwrap();
        with().unlink(&WHO, ROOT, b"gone").await.unwrap();
        with().set_attr(&WHO, file, mode(0o600), false).await.unwrap().attr
    });
    cluster.power_cut();
    cluster.run(1, async move {
        assert_eq!(client.lookup(&WHO, ROOT, b"g").await.unwrap().attr, old);
        assert_eq!(client.lookup(&WHO, ROOT, b"f").await.map(drop), Err(Errno::ENOENT));
        assert_eq!(client.lookup(&WHO, ROOT, b"gone").await.map(drop), Err(Errno::ENOENT));
        assert_eq!(client.sync().await, Ok(()), "nothing is lost");
    });
}

#[test]
fn a_change_over_two_managers_tells_of_both_directories() {
    let mut array = Array::spread(3, 1);
    let client = array.client(0);
    array.run_client(0, async move {
        let mut dirs = Vec::new();
        for i in 0..12 {
            let name = format!("d{i}");
            let d = client.make_directory(&WHO, ROOT, name.as_bytes(), 0o755).await.unwrap();
            dirs.push(d.attr.file);
        }
        let (from, to) = (dirs[0], *dirs.iter().find(|d| d.site() != dirs[0].site()).unwrap());
        client.create(&WHO, from, b"f", 0o644, How::Guarded, None).await.unwrap();
        let rename = |it: Client| async move { it.rename(&WHO, from, b"f", to, b"g", 0).await };
        around(&client, &[from, to], rename).await;
        let file = client.lookup(&WHO, to, b"g").await.unwrap().attr.file;
        let link = |it: Client| async move { it.link(&WHO, file, to, b"h").await };
        around(&client, &[to], link).await;
        let remove = |it: Client| async move { it.unlink(&WHO, to, b"g").await };
        around(&client, &[to], remove).await;
    });
}
