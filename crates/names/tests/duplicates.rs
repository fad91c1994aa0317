//! Changes of which duplicates come over other clients: of a front that was started again, or of another machine.

use crate::common::ROOT;
use crate::common::array::{Array, directory_elsewhere};
use crate::common::cluster::{Cluster, WHO, create};
use names::{Client, How};
use std::future::Future;
use std::pin::Pin;
use wire::{CallId, Errno, FileId, NodeId, SetAttr, Wall, Wcc};

/// Results of a change: the file, if it tells, and attributes of its directories.
type Told = (Result<Option<FileId>, Errno>, Vec<Wcc>);
type Change = fn(Client, FileId) -> Pin<Box<dyn Future<Output = Result<Option<FileId>, Errno>>>>;

fn call(xid: u32) -> CallId {
    CallId { client: 0xa00_0001, xid, procedure: 12, head: (5, 60) }
}

async fn told(client: &Client, xid: u32, directory: FileId, change: Change) -> Told {
    let (with, changed) = client.with_wcc(None, Some(call(xid)));
    let result = change(with, directory).await;
    (result, changed.take())
}

/// Each change, in an order in which every one is possible, and the error of one that is made twice.
const CHANGES: [(&str, Change, Errno); 9] = [
    (
        "create",
        |it, d| {
            Box::pin(async move {
                let made = it.create(&WHO, d, b"f", 0o644, How::Guarded, None).await?;
                Ok(Some(made.0.attr.file))
            })
        },
        Errno::EEXIST,
    ),
    (
        "make_directory",
        |it, d| {
            Box::pin(
                async move { Ok(Some(it.make_directory(&WHO, d, b"d", 0o755).await?.attr.file)) },
            )
        },
        Errno::EEXIST,
    ),
    (
        "symlink",
        |it, d| {
            Box::pin(async move { Ok(Some(it.symlink(&WHO, d, b"s", b"to").await?.attr.file)) })
        },
        Errno::EEXIST,
    ),
    (
        "make_node",
        |it, d| {
            Box::pin(
                async move { Ok(Some(it.make_node(&WHO, d, b"p", 0o010600, 0).await?.attr.file)) },
            )
        },
        Errno::EEXIST,
    ),
    (
        "link",
        |it, d| {
            Box::pin(async move {
                let file = it.lookup(&WHO, d, b"p").await?.attr.file;
                Ok(Some(it.link(&WHO, file, d, b"l").await?.attr.file))
            })
        },
        Errno::EEXIST,
    ),
    (
        "rename",
        |it, d| Box::pin(async move { it.rename(&WHO, d, b"s", d, b"t", 0).await.map(|_| None) }),
        Errno::ENOENT,
    ),
    (
        "rename over another",
        |it, d| Box::pin(async move { it.rename(&WHO, d, b"l", d, b"t", 0).await.map(|_| None) }),
        Errno::ENOENT,
    ),
    (
        "unlink",
        |it, d| Box::pin(async move { it.unlink(&WHO, d, b"t").await.map(|_| None) }),
        Errno::ENOENT,
    ),
    (
        "remove_directory",
        |it, d| Box::pin(async move { it.remove_directory(&WHO, d, b"d").await.map(|_| None) }),
        Errno::ENOENT,
    ),
];

#[test]
fn a_duplicate_over_another_client_has_the_outcome_of_the_first() {
    let mut cluster = Cluster::new(2);
    let (one, two) = (cluster.client(1), cluster.client(1));
    cluster.run(1, async move {
        for (xid, (what, change, twice)) in (1..).zip(CHANGES) {
            let first = told(&one, xid, ROOT, change).await;
            assert!(first.0.is_ok() && !first.1.is_empty(), "{what}: {first:?}");
            // A later change of the directory is not in it.
            create(&two, what.as_bytes(), None).await.unwrap();
            assert_eq!(told(&two, xid, ROOT, change).await, first, "{what}");
            assert_eq!(told(&one, xid, ROOT, change).await, first, "{what}");
            let another = told(&two, 1000 + xid, ROOT, change).await;
            assert_eq!(another.0, Err(twice), "{what}: another call is executed");
        }
    });
}

/// RFC 1813 section 3.3.2: the first has changed what the guard compares.
#[test]
fn a_guarded_change_of_attributes_is_no_conflict_with_itself() {
    let mut cluster = Cluster::new(2);
    let (one, two) = (cluster.client(1), cluster.client(1));
    cluster.run(1, async move {
        let file = create(&one, b"f", None).await.unwrap().attr;
        let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        let set = async |client: &Client, xid, guard: Wall, bits| {
            let (with, _) = client.with_wcc(Some(guard), Some(call(xid)));
            with.set_attr(&WHO, file.file, mode(bits), false).await.map(|entry| entry.attr)
        };
        let first = set(&one, 1, file.ctime, 0o600).await.unwrap();
        set(&one, 2, first.ctime, 0o640).await.unwrap();
        assert_eq!(set(&two, 1, file.ctime, 0o600).await, Ok(first));
        assert_eq!(set(&two, 3, file.ctime, 0o600).await, Err(Errno::EBADE));
        assert_eq!(one.get_attr(file.file).await.unwrap().attr.mode, 0o640, "it is done once");
    });
}

#[test]
fn a_duplicate_is_known_after_a_power_cut_and_with_the_next_client() {
    let mut cluster = Cluster::new(2);
    for (xid, (what, change, _)) in (1..).zip(CHANGES) {
        let one = cluster.client(1);
        let first = cluster.run(1, async move { told(&one, xid, ROOT, change).await });
        assert!(first.0.is_ok(), "{what}: {first:?}");
        match xid % 2 {
            0 => cluster.power_cut(),
            _ => cluster.restart(),
        }
        let two = cluster.client(2);
        let second = cluster.run(2, async move { told(&two, xid, ROOT, change).await });
        assert_eq!(second, first, "{what}");
    }
}

/// The coordinator keeps the answer with its decision; with the site it goes to another manager.
#[test]
fn a_duplicate_of_a_change_over_two_managers_is_known_and_goes_with_the_site() {
    let mut array = Array::new(3, 2);
    let (one, two) = (array.client(0), array.client(1));
    const RENAME: Change = |it, d| {
        Box::pin(async move { it.rename(&WHO, d, b"f", ROOT, b"g", 0).await.map(|_| None) })
    };
    let maker = one.clone();
    let d = array.run_client(0, async move { directory_elsewhere(&maker).await });
    array.give(0, d.site(), NodeId(2)).unwrap();
    let maker = one.clone();
    let first = array.run_client(0, async move {
        maker.create(&WHO, d, b"f", 0o644, How::Guarded, None).await.unwrap();
        told(&maker, 1, d, RENAME).await
    });
    assert_eq!((&first.0, first.1.len()), (&Ok(None), 2));
    array.cut(1);
    array.start_again(1);
    let again = two.clone();
    let second = array.run_client(1, async move { told(&again, 1, d, RENAME).await });
    assert_eq!(second, first);
    array.give(1, d.site(), NodeId(3)).unwrap();
    let (again, other) = (one.clone(), two.clone());
    let third = array.run_client(0, async move { told(&again, 1, d, RENAME).await });
    assert_eq!(third, first);
    let fourth = array.run_client(1, async move { told(&other, 2, d, RENAME).await });
    assert_eq!(fourth.0, Err(Errno::ENOENT), "another call is executed");
}
