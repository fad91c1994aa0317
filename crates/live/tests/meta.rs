//! The files behind a store: logs, syncs, checkpoints and the database.

use live::clock;
use live::device::Poller;
use live::host::Device;
use live::meta::{LoadError, Stores, load};
use node::rings::{MetaOp, MetaRequest, MetaWork, StoreId, Ticket};
use redb::{Database, ReadableDatabase, TableDefinition};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

struct Rig {
    stores: Stores,
    poller: Poller,
    next: u64,
}

impl Rig {
    fn new(directory: &Path) -> Rig {
        let mut stores = Stores::new([(StoreId::Names, directory.to_owned())]).unwrap();
        let poller = Poller::new().unwrap();
        stores.attach(&poller).unwrap();
        Rig { stores, poller, next: 0 }
    }

    /// Waits for what nothing asked for: the next log is laid out.
    fn settle(&mut self) {
        while !self.stores.is_idle() {
            if !self.stores.turn() {
                self.sleep();
            }
        }
    }

    fn start(&mut self, op: MetaOp) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.stores.start(MetaRequest { ticket, store: StoreId::Names, op });
        ticket
    }

    fn wait(&mut self) -> (Ticket, Result<(), String>) {
        loop {
            if let Some(done) = self.stores.next_done() {
                return (done.ticket, done.result.map_err(|error| error.reason));
            }
            if !self.stores.turn() {
                self.sleep();
            }
        }
    }

    fn sleep(&mut self) {
        if !self.stores.before_sleep() {
            let (start, most) = (clock::now(), Duration::from_secs(20));
            self.poller.wait(Some(most), &mut Vec::new()).unwrap();
            assert!(clock::now().since(start) < most, "nothing woke the sleeper");
        }
        self.stores.after_sleep();
    }

    fn run(&mut self, op: MetaOp) {
        let ticket = self.start(op);
        assert_eq!(self.wait(), (ticket, Ok(())));
    }

    fn append(&mut self, log: u64, bytes: &[u8]) {
        self.run(MetaOp::Append { log, bytes: bytes.to_vec() });
    }
}

fn logs(directory: &Path) -> Vec<(u64, Vec<u8>)> {
    load(directory, StoreId::Names).unwrap().logs
}

#[test]
fn logs_come_back_whole_and_in_order() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    for log in [9, 10, 2] {
        rig.append(log, b"one ");
        rig.append(log, b"two");
    }
    rig.run(MetaOp::Sync { log: 10 });
    rig.run(MetaOp::Sync { log: 77 });
    rig.run(MetaOp::DropLog { log: 2 });
    rig.run(MetaOp::DropLog { log: 3 });
    std::fs::write(temporary.path().join("names.log.1.gone"), b"left by a crash").unwrap();
    std::fs::write(temporary.path().join("members.log.1"), b"another store's").unwrap();
    let wanted = vec![(9, b"one two".to_vec()), (10, b"one two".to_vec())];
    assert_eq!(logs(temporary.path()), wanted);
    assert!(!temporary.path().join("names.log.1.gone").exists());
}

#[test]
fn a_generation_used_again_after_its_removal_starts_empty() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    for round in 0..50u8 {
        rig.start(MetaOp::Append { log: 1, bytes: vec![round; 10_000] });
        rig.start(MetaOp::Sync { log: 1 });
        rig.start(MetaOp::Sync { log: 1 });
        rig.start(MetaOp::DropLog { log: 1 });
        rig.start(MetaOp::Append { log: 1, bytes: vec![round; 3] });
        (0..5).for_each(|_| assert_eq!(rig.wait().1, Ok(())));
        assert_eq!(logs(temporary.path()), [(1, vec![round; 3])]);
        rig.run(MetaOp::DropLog { log: 1 });
    }
    assert!(rig.stores.is_idle());
}

#[test]
fn every_sync_is_answered_once() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    let mut open = BTreeSet::new();
    for n in 0..300 {
        open.insert(rig.start(MetaOp::Append { log: n % 3, bytes: vec![n as u8; 100] }));
        open.insert(rig.start(MetaOp::Sync { log: n % 3 }));
        if n % 7 == 0 {
            let (ticket, result) = rig.wait();
            assert_eq!((open.remove(&ticket), result), (true, Ok(())));
        }
    }
    while !open.is_empty() {
        let (ticket, result) = rig.wait();
        assert_eq!((open.remove(&ticket), result), (true, Ok(())));
    }
    rig.settle();
    assert!(rig.stores.next_done().is_none());
}

struct Gate(Receiver<Result<(), String>>);

impl MetaWork for Gate {
    fn run(self: Box<Self>) -> Result<(), String> {
        self.0.recv().expect("the test opens the gate")
    }
}

#[test]
fn a_long_checkpoint_holds_up_neither_appends_nor_syncs() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    let (open, gate) = channel();
    let checkpoint = rig.start(MetaOp::Checkpoint(Box::new(Gate(gate))));
    rig.append(1, b"meanwhile");
    rig.run(MetaOp::Sync { log: 1 });
    rig.run(MetaOp::DropLog { log: 1 });
    open.send(Err("planted".to_owned())).unwrap();
    assert_eq!(rig.wait(), (checkpoint, Err("planted".to_owned())));
}

/// The files of laid-out logs end in zeros.
fn is_log(found: &[u8], records: &[u8]) -> bool {
    found.starts_with(records) && found[records.len()..].iter().all(|byte| *byte == 0)
}

fn generator(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

/// Logs that are synced often are laid out before, and hold what any other would: whichever way records reach the disk,
/// while others wait for syncs, beyond what was laid out, and also where the log is dropped meanwhile.
#[test]
fn logs_that_are_synced_often_hold_their_records_in_order() {
    let temporary = TempDir::new().unwrap();
    let directory = temporary.path();
    let mut rig = Rig::new(directory);
    let (mut random, mut wanted) = (generator(9), Vec::new());
    for log in 1..=20u64 {
        let mut records = Vec::new();
        let mut open = BTreeSet::new();
        for n in 0..60u8 {
            let bytes = if log % 7 == 6 { 30_000 } else { 1 + random(6000) as usize };
            let record = vec![n + 1; bytes];
            records.extend_from_slice(&record);
            open.insert(rig.start(MetaOp::Append { log, bytes: record }));
            if random(3) > 0 {
                open.insert(rig.start(MetaOp::Sync { log }));
            }
            while random(3) == 0 && !open.is_empty() {
                let (ticket, result) = rig.wait();
                assert_eq!((open.remove(&ticket), result), (true, Ok(())));
            }
        }
        if log % 5 == 0 {
            open.insert(rig.start(MetaOp::DropLog { log }));
        } else {
            wanted.push((log, records));
        }
        while !open.is_empty() {
            let (ticket, result) = rig.wait();
            assert_eq!((open.remove(&ticket), result), (true, Ok(())));
        }
        rig.settle();
    }
    let counters = rig.stores.counters();
    drop(rig);
    let found = logs(directory);
    assert_eq!(found.len(), wanted.len());
    for ((log, found), (wanted_log, records)) in found.iter().zip(&wanted) {
        assert!(log == wanted_log && is_log(found, records), "{log}");
    }
    assert!(!directory.join("names.log.spare").exists());
    if counters.writes == 0 {
        return rig::skip("no files past the host's cache here");
    }
    assert!(counters.syncs > 20, "{counters:?}");
}

/// What follows a record in the same moment leaves with it: one write, however many wait.
#[test]
fn an_append_and_its_sync_are_one_write() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    let both = |rig: &mut Rig, log| {
        let tickets = [
            rig.start(MetaOp::Append { log, bytes: vec![1; 100] }),
            rig.start(MetaOp::Append { log, bytes: vec![2; 100] }),
            rig.start(MetaOp::Sync { log }),
        ];
        for ticket in tickets {
            assert_eq!(rig.wait(), (ticket, Ok(())));
        }
    };
    (0..10).for_each(|_| both(&mut rig, 1));
    rig.settle();
    both(&mut rig, 2);
    let first = rig.stores.counters();
    (0..10).for_each(|_| both(&mut rig, 2));
    let last = rig.stores.counters();
    if last.writes == 0 {
        return rig::skip("no files past the host's cache here");
    }
    assert_eq!((last.syncs, last.writes), (first.syncs, first.writes + 10), "but for its name's");
    // Nothing waits for this one: it is in the host's memory, and the next sync is one of that.
    rig.append(2, &[3; 100]);
    rig.run(MetaOp::Sync { log: 2 });
    assert_eq!(rig.stores.counters().writes, last.writes);
    let records = [[1; 100], [2; 100]].concat().repeat(11);
    assert!(is_log(&logs(temporary.path())[1].1, &[records, vec![3; 100]].concat()));
}

#[test]
fn a_store_without_a_directory_is_a_sentence() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    let op = MetaOp::Sync { log: 1 };
    rig.stores.start(MetaRequest { ticket: Ticket(1), store: StoreId::Members, op });
    assert!(rig.wait().1.unwrap_err().contains("no directory"));
    let missing = Path::new("/nowhere/at/all");
    let error = load(missing, StoreId::Names).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all"), "{error}");
    let mut rig = Rig::new(missing);
    rig.start(MetaOp::Append { log: 1, bytes: vec![1] });
    assert!(rig.wait().1.unwrap_err().contains("cannot open /nowhere/at/all"));
}

/// Appends to a log without a name would be lost after a restart, in whatever order things go.
#[test]
fn a_log_that_is_removed_takes_nothing_more() {
    let temporary = TempDir::new().unwrap();
    for what in ["the log", "the directory", "the directory, and there is another"] {
        let directory = temporary.path().join("store");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("names.log.7"), b"of the last incarnation").unwrap();
        let mut rig = Rig::new(&directory);
        rig.append(1, b"kept");
        rig.run(MetaOp::Sync { log: 1 });
        match what {
            "the log" => std::fs::remove_file(directory.join("names.log.1")).unwrap(),
            _ => std::fs::remove_dir_all(&directory).unwrap(),
        }
        let another = what.ends_with("another");
        if another {
            std::fs::create_dir(&directory).unwrap();
        }
        let mut refused = |op| {
            rig.start(op);
            let error = rig.wait().1.unwrap_err();
            assert!(error.contains("was removed while it was in use"), "{what}: {error}");
        };
        refused(MetaOp::Append { log: 1, bytes: vec![1] });
        refused(MetaOp::Sync { log: 1 });
        if what != "the log" {
            refused(MetaOp::Append { log: 2, bytes: vec![1] });
            refused(MetaOp::Sync { log: 7 });
        }
        assert!(!another || std::fs::read_dir(&directory).unwrap().next().is_none());
        let _ = std::fs::remove_dir_all(&directory);
    }
}

/// A program that asks what is wrong becomes a member first.
#[test]
fn the_open_log_of_members_goes_on() {
    let temporary = TempDir::new().unwrap();
    let mut stores = Stores::new([(StoreId::Members, temporary.path().to_owned())]).unwrap();
    for _ in 0..2 {
        let op = MetaOp::Append { log: 1, bytes: vec![1] };
        stores.start(MetaRequest { ticket: Ticket(1), store: StoreId::Members, op });
        assert_eq!(stores.next_done().unwrap().result.map_err(|error| error.reason), Ok(()));
        let _ = std::fs::remove_file(temporary.path().join("members.log.1"));
    }
}

#[test]
fn a_sync_that_is_under_way_when_the_log_is_removed_fails() {
    let temporary = TempDir::new().unwrap();
    let mut rig = Rig::new(temporary.path());
    rig.append(1, b"kept");
    rig.start(MetaOp::Sync { log: 1 });
    std::fs::remove_file(temporary.path().join("names.log.1")).unwrap();
    assert!(rig.wait().1.unwrap_err().contains("was removed"));
}

struct Work(store::Checkpoint);

impl MetaWork for Work {
    fn run(self: Box<Self>) -> Result<(), String> {
        self.0.run()
    }
}

/// Its logs would be dropped. The stored data can still be read, and so be copied elsewhere.
#[test]
fn no_checkpoint_succeeds_in_a_database_that_was_removed() {
    let temporary = TempDir::new().unwrap();
    let directory = temporary.path().join("store");
    std::fs::create_dir(&directory).unwrap();
    let loaded = load(&directory, StoreId::Names).unwrap();
    let mut rig = Rig::new(&directory);
    let config = store::Config::new("test", 1);
    let mut store = store::Store::open(loaded.backend, config, loaded.logs).unwrap();
    for round in 0..4u8 {
        if round == 1 {
            std::fs::remove_dir_all(&directory).unwrap();
        }
        let mut batch = store::Batch::new();
        batch.put(&[round], &[round; 100]);
        drop(store.apply(batch));
        let checkpoint = store.freeze().expect("changes to put into a checkpoint");
        rig.start(MetaOp::Checkpoint(Box::new(Work(checkpoint))));
        let result = rig.wait().1;
        match round {
            0 => assert_eq!(result, Ok(())),
            _ => assert!(result.as_ref().unwrap_err().contains("was removed while it was in use")),
        }
        store.checkpoint_done(result);
        assert_eq!(store.counters().checkpoints, 1, "{round}");
        for earlier in 0..=round {
            assert_eq!(store.get(&[earlier]).unwrap(), Some(vec![earlier; 100]));
        }
    }
}

/// One incarnation of a store that ends without a word: after `changes` changes, with or without a checkpoint on the
/// way.
fn live_once(directory: &Path, incarnation: u64, changes: u64) {
    let loaded = load(directory, StoreId::Names).unwrap();
    let mut rig = Rig::new(directory);
    let config = store::Config::new("test", 1);
    let mut store = store::Store::open(loaded.backend, config, loaded.logs).unwrap();
    while let Some(log) = store.poll_drop() {
        rig.run(MetaOp::DropLog { log });
    }
    for earlier in 0..incarnation {
        assert_eq!(store.get(&earlier.to_be_bytes()).unwrap(), Some(vec![earlier as u8; 100]));
    }
    for n in 0..changes {
        let mut batch = store::Batch::new();
        batch.put(&incarnation.to_be_bytes(), &[(incarnation + changes - 1 - n) as u8; 100]);
        let append = store.apply(batch);
        rig.append(append.log, &append.bytes);
        if n == changes / 2 && incarnation.is_multiple_of(2) {
            let checkpoint = store.freeze().expect("changes to put into a checkpoint");
            rig.run(MetaOp::Checkpoint(Box::new(Work(checkpoint))));
            store.checkpoint_done(Ok(()));
        }
    }
    let point = store.sync_point();
    point.logs.iter().for_each(|log| rig.run(MetaOp::Sync { log: *log }));
}

#[test]
fn a_store_goes_on_where_its_last_life_ended() {
    let temporary = TempDir::new().unwrap();
    (0..6).for_each(|incarnation| live_once(temporary.path(), incarnation, 1 + incarnation * 3));
}

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("test");

fn database(directory: &Path) -> Database {
    let backend = load(directory, StoreId::Members).unwrap().backend;
    redb::Builder::new().create_with_backend(backend).unwrap()
}

#[test]
fn a_database_lives_in_the_file_and_belongs_to_one() {
    let temporary = TempDir::new().unwrap();
    let first = database(temporary.path());
    for n in 0..20u64 {
        let transaction = first.begin_write().unwrap();
        transaction.open_table(TABLE).unwrap().insert(n, &[n as u8; 5000][..]).unwrap();
        transaction.commit().unwrap();
    }
    let taken = load(temporary.path(), StoreId::Members).unwrap_err();
    assert!(matches!(taken, LoadError::InUse(_)), "{taken}");
    load(temporary.path(), StoreId::Names).expect("another store in the same directory");
    drop(first);
    let second = database(temporary.path());
    let table = second.begin_read().unwrap().open_table(TABLE).unwrap();
    for n in 0..20u64 {
        assert_eq!(table.get(n).unwrap().unwrap().value(), [n as u8; 5000]);
    }
}
