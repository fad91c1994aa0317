//! Damage to a store's files while it is closed: what is read afterwards is right, or an error says what is damaged.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use store::{Batch, Config, MemoryBackend, MemoryLogs, Scrub, StorageBackend, Store, StoreError};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Logs = Vec<(u64, Vec<u8>)>;
const BLOCK: usize = 4096;

fn config() -> Config {
    Config { cache_bytes: 64 << 10, ..Config::new("test", 1) }
}

/// A store in memory as its files are, and what is in it.
struct World {
    backend: MemoryBackend,
    logs: MemoryLogs,
    store: Store,
    map: Map,
}

/// The files of a store that is closed.
#[derive(Clone)]
struct Files {
    checkpoint: Vec<u8>,
    logs: Logs,
}

impl World {
    fn new(config: Config) -> World {
        let backend = MemoryBackend::new();
        let store = Store::open(backend.clone(), config, []).unwrap();
        World { backend, logs: MemoryLogs::new(), store, map: Map::new() }
    }

    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let mut batch = Batch::new();
        match &value {
            Some(value) => batch.put(&key, value),
            None => batch.delete(&key),
        };
        let append = self.store.apply(batch);
        self.logs.append(append.log, &append.bytes);
        match value {
            Some(value) => self.map.insert(key, value),
            None => self.map.remove(&key),
        };
    }

    fn sync(&mut self) {
        let point = self.store.sync_point();
        point.logs.iter().for_each(|log| self.logs.sync(*log));
        self.store.synced(&point);
        self.drop_logs();
    }

    fn checkpoint(&mut self) {
        if let Some(checkpoint) = self.store.freeze() {
            let result = checkpoint.run();
            self.store.checkpoint_done(result);
        }
        self.drop_logs();
    }

    fn drop_logs(&mut self) {
        while let Some(log) = self.store.poll_drop() {
            self.logs.remove(log);
        }
    }

    /// Some changes, with a checkpoint after each third; the last is in the checkpoint when `at_rest`.
    fn work(&mut self, rounds: u32, at_rest: bool) {
        for round in 0..rounds {
            for number in 0..40 {
                let key = format!("key {:04}", (round * 17 + number * 7) % 400).into_bytes();
                let value = format!("{round}.{number} ").repeat(1 + number as usize % 60);
                self.put(key, (number % 9 > 0).then(|| value.into_bytes()));
            }
            self.sync();
            if round % 3 == 2 {
                self.checkpoint();
            }
        }
        if at_rest {
            self.checkpoint();
        }
    }

    /// The files as they are now, as a copy of the directory has them.
    fn files(&self) -> Files {
        let mut checkpoint = vec![0; self.backend.len().unwrap() as usize];
        self.backend.read(0, &mut checkpoint).unwrap();
        Files { checkpoint, logs: self.logs.contents().collect() }
    }
}

impl Files {
    fn open(&self, config: Config) -> Result<Store, StoreError> {
        let backend = MemoryBackend::new();
        backend.write(0, &self.checkpoint).unwrap();
        Store::open(backend, config, self.logs.clone())
    }
}

/// Result of reading a whole store.
#[derive(Debug, PartialEq)]
enum Seen {
    Right,
    Error(String),
}

/// Opens the files, reads every key there is or was by itself, scans, scrubs: all must be right, or an error. A second
/// read gives the same.
fn look(files: &Files, map: &Map) -> Seen {
    let mut store = match files.open(config()) {
        Ok(store) => store,
        Err(error) => return Seen::Error(error.to_string()),
    };
    let mut error = None;
    for number in 0..400 {
        let key = format!("key {number:04}").into_bytes();
        match store.get(&key) {
            Ok(value) => assert_eq!(value.as_ref(), map.get(&key), "key {number}"),
            Err(why) => error = Some(why.to_string()),
        }
    }
    let mut found = Map::new();
    let scanned = store.scan(.., |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(()) => assert_eq!(&found, map),
        Err(why) => {
            assert!(found.iter().all(|(key, value)| map.get(key) == Some(value)));
            error = Some(why.to_string());
        }
    }
    assert!(store.scrub_begin());
    let scrubbed = loop {
        match store.scrub_step(50) {
            Scrub::Going => continue,
            end => break end,
        }
    };
    assert_eq!(scrubbed == Scrub::Damaged, error.is_some(), "{error:?}");
    if error.is_some() {
        let health = store.health();
        assert_eq!(health.scrub.damaged, 1);
        assert!(health.damage.is_some() && health.damaged_reads > 0);
    }
    error.map_or(Seen::Right, Seen::Error)
}

fn at_rest() -> (World, Files) {
    let mut world = World::new(config());
    world.work(12, true);
    let files = world.files();
    assert_eq!(look(&files, &world.map), Seen::Right);
    (world, files)
}
/// A log that was laid out ends in zeros.
#[test]
fn zeros_behind_a_log_are_neither_records_nor_damage() {
    let mut world = World::new(config());
    world.work(4, false);
    let mut files = world.files();
    files.logs.iter_mut().for_each(|(_, log)| log.extend([0; 5000]));
    let torn = files.open(config()).unwrap().counters().recovery.torn_bytes;
    assert_eq!((torn, look(&files, &world.map)), (0, Seen::Right));
    // In place of records they say that these are missing.
    files.logs.iter_mut().for_each(|(_, log)| log.fill(0));
    assert!(matches!(files.open(config()), Err(StoreError::NoLog { .. })));
}

#[test]
fn a_flipped_bit_anywhere_in_the_checkpoint_is_right_or_an_error() {
    let (world, files) = at_rest();
    let mut errors = 0;
    // An odd step, so that every kind of byte has its turn.
    for byte in (0..files.checkpoint.len()).step_by(1013) {
        let mut damaged = files.clone();
        damaged.checkpoint[byte] ^= 1 << (byte % 8);
        errors += u32::from(look(&damaged, &world.map) != Seen::Right);
    }
    assert!(errors > 10, "{errors} of the flipped bits were in pages that are in use");
}

#[test]
fn a_block_of_zeros_anywhere_in_the_checkpoint_is_right_or_an_error() {
    let (world, files) = at_rest();
    for at in (0..files.checkpoint.len()).step_by(BLOCK) {
        let mut damaged = files.clone();
        damaged.checkpoint[at..][..BLOCK].fill(0);
        look(&damaged, &world.map);
    }
}

#[test]
fn two_blocks_of_the_checkpoint_that_changed_places_are_right_or_an_error() {
    let (world, files) = at_rest();
    let blocks = files.checkpoint.len() / BLOCK;
    for at in 0..blocks {
        let mut damaged = files.clone();
        let (a, b) = (at * BLOCK, (at * 31 + 7) % blocks * BLOCK);
        let (first, second) = (a.min(b), a.max(b));
        if first < second {
            let (left, right) = damaged.checkpoint.split_at_mut(second);
            left[first..][..BLOCK].swap_with_slice(&mut right[..BLOCK]);
            look(&damaged, &world.map);
        }
    }
}

#[test]
fn a_truncated_checkpoint_is_an_error() {
    let (world, files) = at_rest();
    for bytes in (1..files.checkpoint.len()).step_by(files.checkpoint.len() / 40) {
        let mut damaged = files.clone();
        damaged.checkpoint.truncate(bytes);
        let Seen::Error(_) = look(&damaged, &world.map) else { panic!("{bytes} bytes are left") };
    }
}

#[test]
fn an_older_checkpoint_is_refused_or_made_up_for_by_the_logs() {
    let mut world = World::new(config());
    let mut older = vec![world.files()];
    let mut errors = 0;
    for _ in 0..6 {
        world.work(4, true);
        older.push(world.files());
        // Changes that are not in the checkpoint, and are on stable storage.
        world.put(b"key 0001".to_vec(), Some(b"newest".to_vec()));
        world.sync();
        for old in &older {
            let files = Files { checkpoint: old.checkpoint.clone(), ..world.files() };
            errors += u32::from(look(&files, &world.map) != Seen::Right);
        }
    }
    assert!(errors > 10);
}

#[test]
fn an_older_checkpoint_is_refused_also_when_nothing_came_since_the_newest() {
    let mut world = World::new(config());
    world.work(3, true);
    let old = world.files();
    for _ in 0..3 {
        world.work(3, true);
        let files = Files { checkpoint: old.checkpoint.clone(), ..world.files() };
        let _ = look(&files, &world.map);
    }
    let files = Files { checkpoint: old.checkpoint, ..world.files() };
    let Seen::Error(error) = look(&files, &world.map) else { panic!("it is older") };
    assert!(error.contains("older copy of itself"), "{error}");
}

#[test]
fn logs_or_a_checkpoint_that_were_removed_are_missed() {
    let (world, files) = at_rest();
    let none = Files { logs: Logs::new(), ..files.clone() };
    let Seen::Error(error) = look(&none, &world.map) else { panic!("the logs are gone") };
    assert!(error.contains("has no log of generation"), "{error}");
    let emptied = files.logs.iter().map(|(log, _)| (*log, Vec::new())).collect();
    assert_ne!(look(&Files { logs: emptied, ..files.clone() }, &world.map), Seen::Right);
    let none = Files { checkpoint: Vec::new(), ..files };
    let Seen::Error(error) = look(&none, &world.map) else { panic!("the checkpoint is gone") };
    assert!(error.contains("older copy of itself, or logs were removed"), "{error}");
}

#[test]
fn another_stores_files_are_refused() {
    let (world, files) = at_rest();
    let other_config = Config::new("other", 1);
    let mut other = World::new(other_config);
    other.work(12, false);
    let swapped = Files { checkpoint: other.files().checkpoint, ..files.clone() };
    assert_ne!(look(&swapped, &world.map), Seen::Right);
    let swapped = Files { logs: other.files().logs, ..files };
    let Seen::Error(error) = look(&swapped, &world.map) else { panic!("another's logs") };
    assert!(error.contains("of a store of another kind"), "{error}");
}

#[test]
fn a_log_of_another_copy_of_the_store_is_refused() {
    let mut world = World::new(config());
    world.work(3, true);
    let files = world.files();
    // Both copies go on by themselves.
    let mut copies = ["one", "two"].map(|text| {
        let backend = MemoryBackend::new();
        backend.write(0, &files.checkpoint).unwrap();
        let store = Store::open(backend.clone(), config(), files.logs.clone()).unwrap();
        let mut logs = MemoryLogs::new();
        files.logs.iter().for_each(|(log, bytes)| logs.append(*log, bytes));
        let mut copy = World { backend, logs, store, map: world.map.clone() };
        copy.put(b"key 0001".to_vec(), Some(text.into()));
        copy.sync();
        copy
    });
    copies[0].checkpoint();
    copies[0].put(b"key 0002".to_vec(), None);
    copies[1].checkpoint();
    copies[1].put(b"key 0002".to_vec(), Some(b"x".to_vec()));
    let mixed = Files { logs: copies[1].files().logs, ..copies[0].files() };
    let Seen::Error(error) = look(&mixed, &world.map) else { panic!("it is the other's log") };
    assert!(error.contains("do not follow on those of the store"), "{error}");
}

#[test]
fn a_log_under_another_ones_name_is_refused() {
    let mut world = World::new(config());
    world.work(3, true);
    world.put(b"key 0001".to_vec(), None);
    let mut files = world.files();
    let (first, last) = (files.logs[0].1.clone(), files.logs.len() - 1);
    assert!(last > 0);
    files.logs[last].1 = first;
    let Seen::Error(error) = look(&files, &world.map) else { panic!("it is another one") };
    assert!(error.contains("of another generation"), "{error}");
}

#[test]
fn one_damaged_page_does_not_cost_the_others() {
    let (world, files) = at_rest();
    let mut some = 0;
    for at in (5 * BLOCK..files.checkpoint.len()).step_by(BLOCK) {
        let mut damaged = files.clone();
        damaged.checkpoint[at + 2000] ^= 4;
        let Ok(store) = damaged.open(config()) else { continue };
        let all = world.map.keys();
        let (read, failed): (Vec<_>, Vec<_>) = all.partition(|key| store.get(key).is_ok());
        some += u32::from(!read.is_empty() && !failed.is_empty());
    }
    assert!(some > 0, "no damage was to a part");
}

#[derive(Clone, Debug)]
enum Harm {
    Flip(usize),
    Zero(usize),
    Truncate(usize),
}

fn harms() -> impl Strategy<Value = Harm> {
    prop_oneof![
        any::<usize>().prop_map(Harm::Flip),
        any::<usize>().prop_map(Harm::Zero),
        any::<usize>().prop_map(Harm::Truncate),
    ]
}

fn harm(bytes: &mut Vec<u8>, harm: &Harm) {
    if bytes.is_empty() {
        return;
    }
    match harm {
        Harm::Flip(bit) => {
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Harm::Zero(at) => {
            let at = at % bytes.len() / BLOCK * BLOCK;
            let end = (at + BLOCK).min(bytes.len());
            bytes[at..end].fill(0);
        }
        Harm::Truncate(len) => bytes.truncate(len % bytes.len()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// At rest nothing is only in a log, so damage to any file at all is seen or does no harm.
    #[test]
    fn any_damage_to_any_file_at_rest_is_right_or_an_error(
        rounds in 1..14u32, file in any::<usize>(), how in harms()
    ) {
        let mut world = World::new(config());
        world.work(rounds, true);
        let mut files = world.files();
        match file % (files.logs.len() + 2) {
            0 | 1 => harm(&mut files.checkpoint, &how),
            log => harm(&mut files.logs[log - 2].1, &how),
        }
        look(&files, &world.map);
    }
}
