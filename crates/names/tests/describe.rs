//! Objects are told what is known of their files: name, owner, size, layout; soon after it changed, and again when a
//! server or the manager started anew.

use crate::common::ROOT;
use crate::common::cluster::{Cluster, WHO, create};
use names::{Client, Final, READ, WRITE};
use stripe::Description;
use wire::{FileId, NodeId, SetAttr, Wall};

/// Turns are of a millisecond: some rounds of descriptions.
const SOON: usize = 16_000;

/// A new file of 100 bytes in a directory.
async fn put(client: &Client, parent: FileId, name: &[u8]) -> FileId {
    let made = client.create(&WHO, parent, name, 0o640, names::How::Guarded, Some(READ | WRITE));
    let file = made.await.unwrap().0.attr.file;
    resize(client, file, 100).await;
    close(client, file, 100).await;
    file
}

async fn close(client: &Client, file: FileId, size: u64) {
    let mtime = Wall { seconds: 9, nanos: 0 };
    let outcome = Final { size, mtime, used: Some(size), truncations: 1, present: 1 };
    client.close(file, Some(outcome)).await.unwrap();
}

async fn resize(client: &Client, file: FileId, size: u64) {
    let changes = SetAttr { size: Some(size), ..SetAttr::default() };
    client.set_attr(&WHO, file, changes, true).await.unwrap();
}

fn put_in(cluster: &mut Cluster, parent: FileId, name: &'static [u8]) -> FileId {
    let client = cluster.client(1);
    cluster.run(1, async move { put(&client, parent, name).await })
}

fn directory(cluster: &mut Cluster, parent: FileId, name: &'static [u8]) -> FileId {
    let client = cluster.client(1);
    let made = async move { client.make_directory(&WHO, parent, name, 0o755).await };
    cluster.run(1, made).unwrap().attr.file
}

/// The descriptions that the objects of a file have.
fn told(cluster: &Cluster, file: FileId) -> Option<Description> {
    let described = cluster.objects.0.described.borrow();
    described.iter().find(|((_, object), _)| object.file == file).map(|(_, told)| told.clone())
}

fn path(cluster: &Cluster, file: FileId) -> String {
    let told = told(cluster, file).map(|told| told.path).unwrap_or_default();
    String::from_utf8(told).unwrap()
}

fn forget(cluster: &Cluster) {
    cluster.objects.0.described.borrow_mut().clear();
    cluster.objects.0.descriptions.set(0);
}

#[test]
fn objects_of_a_file_that_stays_open_are_known_without_a_close() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let opened = async move { create(&client, b"log", Some(READ | WRITE)).await.unwrap() };
    let entry = cluster.run(1, opened);
    cluster.turns(8000);
    let present = |cluster: &Cluster| told(cluster, entry.attr.file).unwrap().present;
    assert_eq!(present(&cluster), 0, "a close may tell it");
    cluster.turns(SOON);
    assert_eq!(present(&cluster), (1 << entry.layout.unwrap().width()) - 1);
}

#[test]
fn objects_are_told_of_every_change_of_name_owner_size_and_layout() {
    let mut cluster = Cluster::new(1);
    let folder = directory(&mut cluster, ROOT, b"folder");
    let file = put_in(&mut cluster, folder, b"file");
    cluster.turns(SOON);
    let first = told(&cluster, file).unwrap();
    assert_eq!((first.size, first.mode, first.uid), (100, 0o640, 0));
    assert_eq!(path(&cluster, file), "/folder/file");
    // 100 bytes are in one column.
    assert_eq!(
        cluster.objects.0.described.borrow().len(),
        1,
        "{:?}",
        cluster.objects.0.described.borrow()
    );

    let client = cluster.client(1);
    cluster.run(1, async move {
        let changes = SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() };
        client.set_attr(&WHO, file, changes, false).await.unwrap();
        client.rename(&WHO, folder, b"file", ROOT, b"other", 0).await.unwrap();
    });
    cluster.turns(SOON);
    let now = told(&cluster, file).unwrap();
    assert_eq!((now.uid, now.gid, path(&cluster, file)), (7, 8, "/other".to_string()));
    forget(&cluster);
    cluster.turns(SOON);
    assert_eq!(cluster.objects.0.descriptions.get(), 0, "nothing changed");
}

#[test]
fn files_below_a_renamed_directory_have_their_new_path() {
    let mut cluster = Cluster::new(1);
    let folder = directory(&mut cluster, ROOT, b"folder");
    let below = directory(&mut cluster, folder, b"below");
    let files = [put_in(&mut cluster, folder, b"a"), put_in(&mut cluster, below, b"b")];
    cluster.turns(SOON);
    forget(&cluster);
    let client = cluster.client(1);
    let renamed = async move { client.rename(&WHO, ROOT, b"folder", ROOT, b"moved", 0).await };
    cluster.run(1, renamed).unwrap();
    cluster.turns(SOON);
    assert_eq!(files.map(|file| path(&cluster, file)), ["/moved/a", "/moved/below/b"]);
}

#[test]
fn a_file_that_is_removed_at_once_costs_no_description() {
    let mut cluster = Cluster::new(1);
    cluster.turns(SOON);
    let client = cluster.client(1);
    cluster.run(1, async move {
        for number in 0..5 {
            let name = format!("file{number}");
            put(&client, ROOT, name.as_bytes()).await;
            client.unlink(&WHO, ROOT, name.as_bytes()).await.unwrap();
        }
    });
    cluster.turns(SOON);
    assert_eq!(cluster.objects.0.descriptions.get(), 0);
}

#[test]
fn what_a_server_lost_by_a_restart_is_told_again() {
    let mut cluster = Cluster::new(1);
    let file = put_in(&mut cluster, ROOT, b"file");
    cluster.turns(SOON);
    forget(&cluster);
    cluster.objects.0.verifier.set(1);
    cluster.turns(SOON);
    assert_eq!(path(&cluster, file), "/file");
    // Long after it was told the server has it on stable storage.
    cluster.net.now = cluster.net.now + names::limits::DESCRIBED_SPAN;
    cluster.turns(SOON);
    forget(&cluster);
    cluster.objects.0.verifier.set(2);
    cluster.turns(SOON);
    assert_eq!(cluster.objects.0.descriptions.get(), 0);
}

#[test]
fn what_is_told_again_after_a_restart_is_the_name_that_a_file_has_since() {
    let mut cluster = Cluster::new(1);
    let file = put_in(&mut cluster, ROOT, b"old");
    cluster.turns(SOON);
    let client = cluster.client(1);
    let renamed = async move { client.rename(&WHO, ROOT, b"old", ROOT, b"new", 0).await };
    cluster.run(1, renamed).unwrap();
    cluster.objects.0.verifier.set(1);
    cluster.turns(SOON);
    assert_eq!(path(&cluster, file), "/new");
}

#[test]
fn a_server_that_is_away_is_told_when_it_is_back() {
    let mut cluster = Cluster::new(1);
    let servers = [11, 12, 13].map(NodeId);
    cluster.objects.0.silent.borrow_mut().extend(servers);
    let file = put_in(&mut cluster, ROOT, b"file");
    cluster.turns(SOON);
    assert_eq!(told(&cluster, file), None);
    cluster.objects.0.silent.borrow_mut().clear();
    cluster.turns(SOON);
    assert_eq!(path(&cluster, file), "/file");
}

/// A server that keeps columns by its own id.
fn stopping(server: NodeId) -> names::Stopping {
    names::Stopping { server, homes: [server].into() }
}

/// A server that stops, or the manager where none is named, has had its last word.
fn last_word(cluster: &mut Cluster, server: Option<NodeId>) {
    let handle = cluster.handle.clone().unwrap();
    cluster.run(0, async move { handle.settle(server.map(stopping)).await });
}

#[test]
fn a_server_that_stops_is_told_at_once_what_changed_and_the_others_are_told_as_ever() {
    let mut cluster = Cluster::new(1);
    let folder = directory(&mut cluster, ROOT, b"folder");
    let file = put_in(&mut cluster, folder, b"file");
    assert_eq!(told(&cluster, file), None);
    let servers = [11, 12, 13].map(NodeId);
    servers.iter().for_each(|server| last_word(&mut cluster, Some(*server)));
    assert_eq!(path(&cluster, file), "/folder/file");
    assert_eq!(cluster.objects.0.descriptions.get(), 1, "it has one column, on one server");
    forget(&cluster);
    cluster.turns(SOON);
    assert_eq!(path(&cluster, file), "/folder/file");
}

#[test]
fn a_manager_that_stops_tells_what_changed_and_does_not_wait_for_servers_that_stopped_before() {
    let mut cluster = Cluster::new(1);
    let folder = directory(&mut cluster, ROOT, b"folder");
    let file = put_in(&mut cluster, folder, b"file");
    cluster.turns(SOON);
    let client = cluster.client(1);
    let renamed = async move { client.rename(&WHO, ROOT, b"folder", ROOT, b"moved", 0).await };
    cluster.run(1, renamed).unwrap();
    last_word(&mut cluster, None);
    assert_eq!(path(&cluster, file), "/moved/file", "the name of its directory changed");
    let servers = [11, 12, 13].map(NodeId);
    servers.iter().for_each(|server| last_word(&mut cluster, Some(*server)));
    let before = cluster.objects.0.descriptions.get();
    last_word(&mut cluster, None);
    assert_eq!(cluster.objects.0.descriptions.get(), before);
}

#[test]
fn a_file_that_got_objects_long_after_its_name_is_told_its_name_before_a_stop() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let made = async move { create(&client, b"empty", None).await };
    let file = cluster.run(1, made).unwrap().attr.file;
    cluster.turns(SOON);
    let client = cluster.client(1);
    cluster.run(1, async move {
        client.open(&WHO, file, READ | WRITE).await.unwrap();
        close(&client, file, 0).await;
    });
    last_word(&mut cluster, None);
    assert_eq!(path(&cluster, file), "/empty");
}

#[test]
fn what_was_not_told_when_the_manager_died_is_told_by_the_next_incarnation() {
    let mut cluster = Cluster::new(1);
    let folder = directory(&mut cluster, ROOT, b"folder");
    let file = put_in(&mut cluster, folder, b"file");
    cluster.turns(1500);
    assert_eq!(told(&cluster, file), None);
    cluster.restart();
    cluster.turns(2 * SOON);
    assert_eq!(path(&cluster, file), "/folder/file");
}

#[test]
fn what_was_not_told_when_the_manager_died_is_told_before_a_stop_that_soon_follows() {
    let mut cluster = Cluster::new(1);
    let folder = directory(&mut cluster, ROOT, b"folder");
    let file = put_in(&mut cluster, folder, b"file");
    cluster.turns(1500);
    cluster.restart();
    cluster.turns(1500);
    assert_eq!(told(&cluster, file), None);
    last_word(&mut cluster, None);
    assert_eq!(path(&cluster, file), "/folder/file");
}

#[test]
fn a_file_that_gets_objects_long_after_its_name_is_told_its_name_all_the_same() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let made = async move { create(&client, b"empty", None).await };
    let file = cluster.run(1, made).unwrap().attr.file;
    cluster.turns(SOON);
    assert_eq!(told(&cluster, file), None);
    let client = cluster.client(1);
    cluster.run(1, async move {
        client.open(&WHO, file, READ | WRITE).await.unwrap();
        close(&client, file, 0).await;
    });
    cluster.turns(2 * SOON);
    assert_eq!(path(&cluster, file), "/empty");
}
