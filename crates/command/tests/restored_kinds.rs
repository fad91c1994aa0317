//! Every way in which a file's layout and its objects change after a backup: after the restore it is as the disks have
//! it, or opening it is an error.

use crate::common::{Up, pattern, said, text, trapeze};
use files::conformance::client::{READ_ONLY, READ_WRITE};
use files::conformance::{Asks, Client};
use live::wait::WaitPolicy;
use std::fs;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use trapeze::client::Reach;
use trapeze::machine::{Running, client};
use wire::{Errno, FileId};

const ROOT: FileId = FileId::ROOT;
/// Length of each file at the backup, in the columns that it had then, and of what is added.
const BEFORE: usize = 200_000;
const MORE: usize = 300_000;
/// fallocate(2): punch a hole, keep the size.
const PUNCH: u32 = 3;

/// Runs a body with a client of the cluster.
fn with_client<T>(up: &Up, body: impl AsyncFnOnce(Client<Asks>) -> T) -> T {
    let reach = Reach { cluster: up.at("data").display().to_string(), key: None, insecure: false };
    let setup = reach.setup(64 << 20, WaitPolicy::Adaptive).unwrap();
    let mut running: Running = client(&setup, "test").unwrap();
    let asks = Asks::default();
    let frames = running.host.node().cx().frames().clone();
    let mut body = pin!(body(Client::new(asks.clone(), frames)));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = body.as_mut().poll(&mut context) {
            return value;
        }
        while let Some(request) = asks.take_request() {
            if let Err(refused) = running.host.node().front_push(request) {
                asks.put_back(refused);
                break;
            }
        }
        running.host.turn().unwrap();
        while let Some(done) = running.host.node().take_front_done() {
            asks.done(done);
        }
    }
}

/// A file with these bytes, on stable storage: the client ends as one that dies does.
async fn put(client: &Client<Asks>, name: &[u8], bytes: &[u8]) {
    let file = client.put(ROOT, name, bytes).await.unwrap();
    let open = client.open(file, READ_WRITE).await.unwrap();
    client.fsync(open).await.unwrap();
    client.close(open).await.unwrap();
}

/// A change of a file.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Bytes from an offset on.
    Write(usize, usize),
    Size(usize),
    Punch(usize, usize),
    Link,
    Rename,
    Remove,
    /// Another file takes its name.
    Replace,
    Anew,
}
use Step::*;

/// The name of a file, what happens to it after the backup, and whether it is whole then.
const ROWS: [(&str, &[Step], bool); 15] = [
    // Their objects go some time after their names: long before the changes of the others end.
    ("removed", &[Write(BEFORE, MORE), Remove], false),
    ("replaced-by-a-rename", &[Write(BEFORE, 10), Replace], false),
    ("removed-and-made-anew", &[Write(BEFORE, 10), Remove, Anew], false),
    ("grown", &[Write(BEFORE, MORE)], true),
    ("widened", &[], true),
    ("overwritten", &[Write(BEFORE - 70_000, 140_000)], true),
    ("rewritten", &[Size(0), Write(0, BEFORE + MORE)], true),
    ("truncated", &[Write(BEFORE, MORE), Size(BEFORE / 2)], true),
    ("truncated-to-nothing", &[Write(BEFORE, MORE), Size(0)], true),
    ("grown-again", &[Write(BEFORE, MORE), Size(9_000), Write(BEFORE + 50_000, 99_000)], true),
    ("sparse-at-its-end", &[Size(BEFORE + MORE)], true),
    ("punched", &[Write(BEFORE, MORE), Punch(BEFORE + 40_960, 81_920), Punch(8_192, 65_536)], true),
    ("behind-a-hole", &[Write(BEFORE + 150_000, 10)], true),
    ("linked", &[Write(BEFORE, MORE), Link], true),
    ("renamed", &[Write(BEFORE, MORE), Rename], true),
];

/// Does a step, to the file and to the bytes that it must have.
async fn apply(client: &Client<Asks>, name: &str, number: u64, step: Step, bytes: &mut Vec<u8>) {
    let (at, also) = (name.as_bytes(), format!("{name}.other"));
    let also = also.as_bytes();
    if matches!(step, Anew) {
        put(client, at, b"another file").await;
        return;
    }
    let file = client.lookup(ROOT, at).await.unwrap().file;
    let open = client.open(file, READ_WRITE).await.unwrap();
    match step {
        Write(offset, count) => {
            let data = pattern(number + 100, count);
            client.write(open, offset as u64, &data).await.unwrap();
            bytes.resize(bytes.len().max(offset + count), 0);
            bytes[offset..offset + count].copy_from_slice(&data);
        }
        Size(size) => {
            client.set_size(open, size as u64).await.unwrap();
            bytes.resize(size, 0);
        }
        Punch(offset, count) => {
            client.allocate(open, offset as u64, count as u64, PUNCH).await.unwrap();
            bytes[offset..offset + count].fill(0);
        }
        Link => drop(client.link(file, ROOT, also).await.unwrap()),
        Rename => client.rename((ROOT, at), (ROOT, also), 0).await.unwrap(),
        Remove => client.unlink(ROOT, at).await.unwrap(),
        Replace => {
            put(client, also, b"another file").await;
            client.rename((ROOT, also), (ROOT, at), 0).await.unwrap();
        }
        Anew => unreachable!("above"),
    }
    client.fsync(open).await.unwrap();
    client.close(open).await.unwrap();
}

/// All rows, with `between` after the backup and `behind` after the changes.
fn all_rows(between: &[&[&str]], behind: &[&[&str]]) {
    let mut up = Up::new("4");
    // Files have columns on three servers of four, and get one on the fourth.
    up.done(&["rebalance", "--off", "io4"]);
    let before = |number: usize| pattern(number as u64, BEFORE);
    with_client(&up, async |client| {
        for (number, (name, ..)) in ROWS.iter().enumerate() {
            put(&client, name.as_bytes(), &before(number)).await;
        }
        put(&client, b"empty", b"").await;
    });
    up.done(&["rebalance", "--back", "io4"]);
    up.done(&["backup", text(&up.at("names.backup"))]);
    between.iter().for_each(|command| drop(up.done(command)));
    let wanted = with_client(&up, async |client| {
        let mut wanted = Vec::new();
        for (number, (name, steps, _)) in ROWS.iter().enumerate() {
            let mut bytes = before(number);
            for step in *steps {
                apply(&client, name, number as u64, *step, &mut bytes).await;
            }
            wanted.push(bytes);
        }
        put(&client, b"empty", b"no longer").await;
        put(&client, b"made-after-the-backup", b"bytes").await;
        wanted
    });
    behind.iter().for_each(|command| drop(up.done(command)));
    up.stop();
    fs::rename(up.at("data/manager"), up.at("lost")).unwrap();
    let (file, dir) = (up.at("names.backup"), up.at("data"));
    let done = trapeze(&["restore", text(&file), "--dir", text(&dir)]);
    assert!(done.status.success(), "{}", said(&done));
    up.start();
    for _ in 0..2 {
        with_client(&up, async |client| {
            for ((name, _, is_whole), wanted) in ROWS.iter().zip(&wanted) {
                let file = client.lookup(ROOT, name.as_bytes()).await.unwrap().file;
                let open = client.open(file, READ_ONLY).await;
                let open = match (open, is_whole) {
                    (open, true) => open.unwrap_or_else(|errno| panic!("{name}: {errno:?}")),
                    (open, false) => {
                        assert_eq!(open.map(drop), Err(Errno::EIO), "{name}");
                        continue;
                    }
                };
                assert_eq!(client.stat(file).await.unwrap().size, wanted.len() as u64, "{name}");
                let read = client.read(open, 0, wanted.len() + 1).await.unwrap();
                let differs = read.iter().zip(wanted).position(|(one, other)| one != other);
                assert!(read == *wanted, "{name}: {} bytes, {differs:?}", read.len());
                client.close(open).await.unwrap();
            }
            assert_eq!(client.get(ROOT, b"empty").await.unwrap(), b"no longer");
            let after = client.lookup(ROOT, b"made-after-the-backup").await.map(drop);
            assert_eq!(after, Err(Errno::ENOENT));
        });
        // Also in the next incarnation.
        up.stop();
        up.start();
    }
    up.stop();
}

#[test]
fn files_that_changed_after_the_backup_are_as_the_disks_have_them() {
    all_rows(&[], &[]);
}

#[test]
fn files_that_got_columns_and_changed_after_the_backup_are_as_the_disks_have_them() {
    all_rows(&[&["rebalance", "--widen"]], &[]);
}

#[test]
fn files_that_got_columns_and_moved_after_the_backup_are_as_the_disks_have_them() {
    all_rows(
        &[&["rebalance", "--widen"], &["rebalance", "--off", "io1"]],
        &[&["rebalance", "--back", "io1"], &["rebalance", "--off", "io4"]],
    );
}
