//! A client and a manager on two nodes: what I/O servers know of the manager's store, and stores that come back from a
//! copy.

use crate::common::ROOT;
use crate::common::cluster::{Cluster, SERVERS, WHO, create};
use names::{Client, Entry, IoServer, REFUSED};
use store::{MemoryBackend, MemoryLogs};
use stripe::Witness;
use wire::{Errno, FileId, NodeId, ObjectId, VolumeId};

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(1);
    cluster.witnesses = SERVERS.to_vec();
    cluster
}

fn try_create(cluster: &mut Cluster, client: &Client, name: &'static [u8]) -> Result<Entry, Errno> {
    let client = client.clone();
    cluster.run(1, async move { create(&client, name, None).await })
}

fn lookup(cluster: &mut Cluster, client: &Client, name: &'static [u8]) -> Result<FileId, Errno> {
    let client = client.clone();
    let found = cluster.run(1, async move { client.lookup(&WHO, ROOT, name).await });
    found.map(|entry| entry.attr.file)
}

/// A second of idleness, and the sync before.
const IDLE: usize = 2500;

#[test]
fn a_store_older_than_the_servers_know_is_refused_however_often_it_starts_and_the_right_one_is_not()
{
    let mut cluster = cluster();
    let client = cluster.client(1);
    cluster.created(&client, b"before", None);
    cluster.turns(IDLE);
    let older = cluster.copy();
    cluster.created(&client, b"after", None);
    cluster.turns(IDLE);
    let right = cluster.copy();
    cluster.bring_back(older);
    for _ in 0..5 {
        let client = cluster.client(1);
        assert_eq!(lookup(&mut cluster, &client, b"before"), Err(REFUSED));
        assert_eq!(try_create(&mut cluster, &client, b"new").map(drop), Err(REFUSED));
        let told = cluster.handle.as_ref().unwrap().older().expect("why");
        assert!(told.seen.sequence > told.own.sequence, "{told}");
        assert!(SERVERS.contains(&told.server));
        cluster.restart();
    }
    cluster.bring_back(right);
    let client = cluster.client(1);
    assert!(lookup(&mut cluster, &client, b"after").is_ok());
    assert!(try_create(&mut cluster, &client, b"new").is_ok());
    assert!(cluster.handle.as_ref().unwrap().older().is_none());
}

/// A cluster with a file `after`, and the files of its store from before that.
fn cluster_and_older_copy() -> (Cluster, (Vec<u8>, MemoryLogs)) {
    let mut cluster = cluster();
    let client = cluster.client(1);
    cluster.turns(IDLE);
    let older = cluster.copy();
    cluster.created(&client, b"after", None);
    cluster.turns(IDLE);
    (cluster, older)
}

#[test]
fn a_server_that_answers_later_ends_the_service_of_an_older_store() {
    let (mut cluster, older) = cluster_and_older_copy();
    cluster.objects.0.silent.borrow_mut().extend(SERVERS);
    cluster.bring_back(older);
    let client = cluster.client(1);
    let asked = cluster.net.now;
    assert_eq!(lookup(&mut cluster, &client, b"after"), Err(Errno::ENOENT));
    assert!(cluster.net.now >= asked + names::limits::WITNESS_SPAN, "they were waited for");
    cluster.objects.0.silent.borrow_mut().remove(&SERVERS[1]);
    cluster.turns(IDLE);
    assert_eq!(lookup(&mut cluster, &client, b"after"), Err(REFUSED));
    assert_eq!(cluster.handle.as_ref().unwrap().older().unwrap().server, SERVERS[1]);
}

#[test]
fn an_older_store_is_refused_when_it_has_changed_more_than_it_lacks_and_the_right_one_is_not() {
    let (mut cluster, older) = cluster_and_older_copy();
    let right = cluster.copy();
    cluster.objects.0.silent.borrow_mut().extend(SERVERS);
    cluster.bring_back(older);
    let client = cluster.client(1);
    for name in [&b"a"[..], b"b", b"c", b"d", b"e", b"f", b"g", b"h"] {
        try_create(&mut cluster, &client, name).unwrap();
    }
    cluster.turns(IDLE);
    cluster.objects.0.silent.borrow_mut().clear();
    cluster.turns(IDLE);
    assert_eq!(lookup(&mut cluster, &client, b"a"), Err(REFUSED));
    let told = cluster.handle.as_ref().unwrap().older().expect("why");
    assert!(told.seen.sequence < told.own.sequence, "{told}");
    cluster.bring_back(right);
    let client = cluster.client(1);
    assert!(lookup(&mut cluster, &client, b"after").is_ok());
}

/// Its list of members is as old as its names.
#[test]
fn a_store_from_before_any_server_joined_waits_for_one_and_is_refused() {
    let (mut cluster, older) = cluster_and_older_copy();
    (cluster.servers, cluster.witnesses) = Default::default();
    cluster.bring_back(older);
    let client = cluster.client(1);
    let asked = {
        let client = client.clone();
        cluster.begin(1, async move { client.lookup(&WHO, ROOT, b"after").await })
    };
    cluster.turns(1000);
    assert!(asked.take().is_none(), "the first server is waited for");
    let joined: Vec<IoServer> = SERVERS.map(IoServer::from).to_vec();
    cluster.handle.as_ref().unwrap().set_servers(&joined);
    cluster.turns(1000);
    assert_eq!(asked.take().expect("an answer").map(drop), Err(REFUSED));
}

/// Groups get new files, each as a server of its own.
#[test]
fn the_servers_of_groups_are_told_how_far_the_store_is_and_not_each_group() {
    let mut cluster = cluster();
    let client = cluster.client(1);
    let groups: Vec<IoServer> = (0xc000..0xc020).map(|id| IoServer::from(NodeId(id))).collect();
    let handle = cluster.handle.as_ref().unwrap();
    handle.set_servers(&groups);
    handle.set_witnesses(&SERVERS);
    cluster.created(&client, b"file", None);
    cluster.turns(IDLE);
    let told: Vec<NodeId> = cluster.objects.0.witnesses.borrow().keys().copied().collect();
    assert_eq!(told, SERVERS);
}

#[test]
fn a_copy_that_a_person_accepts_goes_on_as_another_lineage_and_purges_nothing_until_told() {
    let mut cluster = cluster();
    let client = cluster.client(1);
    let gone = cluster.created(&client, b"gone", None);
    let one = client.clone();
    cluster.run(1, async move { one.unlink(&WHO, ROOT, b"gone").await }).unwrap();
    cluster.turns(IDLE);
    let older = cluster.copy();
    let after = cluster.created(&client, b"after", None);
    cluster.turns(IDLE);
    let newer = cluster.copy();
    let object = |file| ObjectId { volume: VolumeId(5), file, column: 0 };
    let objects = [gone, after].map(|file| (SERVERS[0], object(file)));
    cluster.objects.0.stored.borrow_mut().extend(objects);
    cluster.bring_back_accepted(older);
    let client = cluster.client(1);
    let made = try_create(&mut cluster, &client, b"made").unwrap().attr.file;
    assert_eq!((made.serial() >> 44, after.serial() >> 44), (1, 0), "numbers begin with it");
    assert!(cluster.handle.as_ref().unwrap().is_frozen());
    cluster.a_day();
    cluster.restart();
    cluster.a_day();
    assert_eq!(cluster.objects.0.stored.borrow().len(), 2, "nothing was set aside");
    // The store that was the newest before is of an older lineage now.
    let accepted = cluster.copy();
    cluster.bring_back(newer);
    let client = cluster.client(1);
    assert_eq!(lookup(&mut cluster, &client, b"after"), Err(REFUSED));
    assert_eq!(cluster.handle.as_ref().unwrap().older().unwrap().seen.lineage, 1);
    cluster.bring_back(accepted);
    let client = cluster.client(1);
    let one = client.clone();
    cluster.run(1, async move { one.own_all(&WHO).await }).unwrap();
    assert!(!cluster.handle.as_ref().unwrap().is_frozen());
    assert!(lookup(&mut cluster, &client, b"made").is_ok());
    cluster.turns(8 * 60_000);
    assert_eq!(cluster.objects.0.aside.borrow().len(), 2, "a person said that no newer one comes");
}

#[test]
fn a_server_with_a_later_lineage_that_comes_late_is_outbid_by_what_was_accepted() {
    let mut cluster = cluster();
    cluster.turns(IDLE);
    let older = cluster.copy();
    let client = cluster.client(1);
    cluster.created(&client, b"after", None);
    cluster.turns(IDLE);
    for _ in 0..3 {
        cluster.bring_back_accepted(older.clone());
        cluster.turns(IDLE);
    }
    let lineage = |cluster: &Cluster, server| cluster.objects.0.witnesses.borrow()[&server].lineage;
    assert_eq!(lineage(&cluster, SERVERS[0]), 3);
    cluster.objects.0.silent.borrow_mut().insert(SERVERS[2]);
    cluster.objects.0.witnesses.borrow_mut().entry(SERVERS[2]).or_default().lineage = 9;
    cluster.bring_back_accepted(older);
    cluster.turns(9000);
    assert_eq!(lineage(&cluster, SERVERS[0]), 4);
    cluster.objects.0.silent.borrow_mut().clear();
    cluster.turns(2 * IDLE);
    assert_eq!(SERVERS.map(|server| lineage(&cluster, server)), [10; 3]);
    let client = cluster.client(1);
    assert!(try_create(&mut cluster, &client, b"on").is_ok());
    // From the next start on it is as any other.
    cluster.restart();
    cluster.turns(IDLE);
    let other = Witness { lineage: 20, sequence: 1, store: 1, ..Witness::default() };
    cluster.objects.0.witnesses.borrow_mut().insert(SERVERS[2], other);
    cluster.restart();
    let client = cluster.client(1);
    assert_eq!(lookup(&mut cluster, &client, b"on"), Err(REFUSED));
}

/// The manager starts with a new store.
fn lose_names(cluster: &mut Cluster) {
    (cluster.backend, cluster.logs) = (MemoryBackend::new(), MemoryLogs::new());
    cluster.incarnation += 60_000_000_000;
    cluster.net.nodes[0] = rig::node(1, cluster.incarnation);
    cluster.start();
}

/// About a second after its start it hears of the first server.
const FIRST_HEARD: [usize; 9] = [0, 500, 1000, 1001, 1002, 1003, 1005, 1010, IDLE];

#[test]
fn a_new_store_that_ends_as_the_first_servers_come_goes_on_above_what_they_know() {
    for turns in FIRST_HEARD {
        let (mut cluster, _) = cluster_and_older_copy();
        cluster.witnesses.clear();
        lose_names(&mut cluster);
        cluster.turns(turns);
        if turns % 2 == 0 {
            cluster.restart();
        } else {
            cluster.power_cut();
        }
        for _ in 0..2 {
            let client = cluster.client(1);
            let made = try_create(&mut cluster, &client, b"new").or_else(|errno| match errno {
                Errno::EEXIST => lookup(&mut cluster, &client, b"new").map(|_| Entry::default()),
                errno => Err(errno),
            });
            assert!(made.is_ok(), "{turns} turns: {made:?}");
            cluster.turns(IDLE);
            assert!(cluster.handle.as_ref().unwrap().is_frozen(), "{turns} turns");
            cluster.restart();
        }
        let known = cluster.objects.0.witnesses.borrow();
        assert!(known.values().all(|known| (1..4).contains(&known.lineage)), "{known:?}");
    }
}

#[test]
fn a_new_volume_is_as_any_other_whenever_it_ends_as_its_first_servers_come() {
    for turns in FIRST_HEARD {
        let mut cluster = Cluster::new(1);
        cluster.turns(turns);
        cluster.restart();
        cluster.turns(IDLE);
        let older = cluster.copy();
        let client = cluster.client(1);
        cluster.created(&client, b"after", None);
        cluster.turns(IDLE);
        assert!(!cluster.handle.as_ref().unwrap().is_frozen(), "{turns} turns");
        cluster.bring_back(older);
        let client = cluster.client(1);
        assert_eq!(lookup(&mut cluster, &client, b"after"), Err(REFUSED), "{turns} turns");
    }
}

/// While it still goes on above what other stores told.
#[test]
fn a_copy_from_the_first_second_of_a_store_is_refused_as_any_other_older_one() {
    for turns in FIRST_HEARD {
        for accepted in [false, true] {
            let mut cluster = Cluster::new(1);
            if accepted {
                cluster.turns(IDLE);
                let taken = cluster.copy();
                cluster.bring_back_accepted(taken);
            }
            let client = cluster.client(1);
            cluster.created(&client, b"early", None);
            cluster.turns(turns);
            let older = cluster.copy();
            cluster.created(&client, b"after", None);
            cluster.turns(IDLE);
            cluster.bring_back(older);
            let client = cluster.client(1);
            let found = lookup(&mut cluster, &client, b"after");
            cluster.turns(IDLE);
            let later = lookup(&mut cluster, &client, b"early");
            assert_eq!(later, Err(REFUSED), "{turns} turns, accepted {accepted}: {found:?}");
        }
    }
}

#[test]
fn a_manager_that_lost_power_is_never_behind_what_it_told() {
    let mut cluster = cluster();
    for round in 0..20usize {
        let client = cluster.client(1);
        for name in [b"a", b"b", b"c"] {
            let _ = try_create(&mut cluster, &client, name);
            let one = client.clone();
            let _ = cluster.run(1, async move { one.unlink(&WHO, ROOT, name).await });
            cluster.turns(round * 97);
        }
        cluster.power_cut();
        let client = cluster.client(1);
        assert_eq!(lookup(&mut cluster, &client, b"x"), Err(Errno::ENOENT), "round {round}");
    }
}
