//! A store against a map, with crashes at any point: every change that was synced is there, none is there by half, and
//! none without all before it.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use store::{Batch, Checkpoint, Config, MemoryBackend, MemoryLogs, Store, StoreError};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    /// Keys with new values or none.
    Apply(Vec<(u8, Option<u16>)>),
    Sync,
    Freeze,
    /// Runs the frozen changes into the checkpoint; the disk fails after so many operations.
    Checkpoint(Option<u64>),
    Look(u8, u8, usize),
    /// Runs the frozen changes until the power fails, then opens; opening may be cut short by a second failure.
    Crash {
        seed: u64,
        during_checkpoint: Option<u64>,
        during_open: Option<u64>,
    },
    Kill,
}

fn steps() -> impl Strategy<Value = Step> {
    let change = (0..24u8, proptest::option::weighted(0.7, 0..3000u16));
    let failure = || proptest::option::weighted(0.3, 0..40u64);
    prop_oneof![
        8 => proptest::collection::vec(change, 1..8).prop_map(Step::Apply),
        3 => Just(Step::Sync),
        2 => Just(Step::Freeze),
        2 => failure().prop_map(Step::Checkpoint),
        2 => (0..26u8, 0..26u8, 0..12usize).prop_map(|(from, to, limit)| Step::Look(from, to, limit)),
        2 => (any::<u64>(), failure(), failure()).prop_map(|(seed, during_checkpoint, during_open)| {
            Step::Crash { seed, during_checkpoint, during_open }
        }),
        1 => Just(Step::Kill),
    ]
}

fn key(number: u8) -> Vec<u8> {
    vec![b'k'; 1 + number as usize % 5].into_iter().chain([number]).collect()
}

fn config() -> Config {
    Config { overlay_bytes_max: 4000, cache_bytes: 1 << 20, ..Config::new("test", 1) }
}

/// SplitMix64.
fn generator(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

struct World {
    backend: MemoryBackend,
    logs: MemoryLogs,
    store: Option<Store>,
    checkpoint: Option<Checkpoint>,
    /// The map after each change, from none on.
    history: Vec<Map>,
    synced: usize,
}

impl World {
    fn new() -> World {
        let (backend, logs) = (MemoryBackend::new(), MemoryLogs::new());
        let store = Store::open(backend.clone(), config(), []).unwrap();
        let history = vec![Map::new()];
        World { backend, logs, store: Some(store), checkpoint: None, history, synced: 0 }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Apply(changes) => self.apply(changes),
            Step::Sync => self.sync(),
            Step::Freeze => {
                if self.checkpoint.is_none() {
                    self.checkpoint = self.store().freeze();
                }
            }
            Step::Checkpoint(failure) => self.checkpoint(*failure),
            Step::Look(from, to, limit) => self.look(*from, *to, *limit),
            Step::Crash { seed, during_checkpoint, during_open } => {
                self.crash(*seed, *during_checkpoint, *during_open);
            }
            Step::Kill => self.kill(),
        }
    }

    fn apply(&mut self, changes: &[(u8, Option<u16>)]) {
        if let Err(error) = self.store().admit() {
            assert!(matches!(error, StoreError::Full { .. }));
            return;
        }
        let (mut batch, mut map) = (Batch::new(), self.history.last().unwrap().clone());
        for (number, value) in changes {
            let key = key(*number);
            match value {
                Some(value) => {
                    let value = vec![*number; *value as usize];
                    batch.put(&key, &value);
                    map.insert(key, value);
                }
                None => {
                    batch.delete(&key);
                    map.remove(&key);
                }
            }
        }
        let append = self.store().apply(batch);
        assert_eq!(append.sequence as usize, self.history.len());
        self.logs.append(append.log, &append.bytes);
        self.history.push(map);
    }

    fn sync(&mut self) {
        let point = self.store().sync_point();
        point.logs.iter().for_each(|log| self.logs.sync(*log));
        self.store().synced(&point);
        assert!(self.store().sync_point().logs.is_empty());
        self.synced = self.history.len() - 1;
    }

    fn checkpoint(&mut self, failure: Option<u64>) {
        let Some(checkpoint) = self.checkpoint.take() else { return };
        if let Some(operations) = failure {
            self.backend.fail_after(operations);
        }
        let result = checkpoint.run();
        self.backend.heal();
        self.store().checkpoint_done(result);
        self.drop_logs();
        self.synced = self.synced.max(self.store().synced_sequence() as usize);
    }

    fn drop_logs(&mut self) {
        while let Some(log) = self.store.as_mut().unwrap().poll_drop() {
            self.logs.remove(log);
        }
    }

    fn look(&mut self, from: u8, to: u8, limit: usize) {
        let map = self.history.last().unwrap().clone();
        let (from, to) = (key(from), key(to));
        let found = self.store().range(from.as_slice()..to.as_slice(), limit).unwrap();
        let wanted: Vec<_> = match from <= to {
            true => map.range(from.clone()..to).take(limit).collect(),
            false => Vec::new(),
        };
        assert!(found.iter().map(|(key, value)| (key, value)).eq(wanted));
        assert_eq!(self.store().get(&from).unwrap().as_ref(), map.get(&from));
        let after = (Bound::Excluded(from.as_slice()), Bound::Unbounded);
        let found = self.store().range(after, 1).unwrap();
        let wanted = map.range((Bound::Excluded(from.clone()), Bound::Unbounded)).next();
        assert_eq!(found.first().map(|(key, value)| (key, value)), wanted);
    }

    fn crash(&mut self, seed: u64, during_checkpoint: Option<u64>, during_open: Option<u64>) {
        let mut random = generator(seed);
        if let (Some(operations), Some(checkpoint)) = (during_checkpoint, self.checkpoint.take()) {
            self.backend.fail_after(operations);
            let _ = checkpoint.run();
        }
        self.backend = self.backend.crash(&mut random);
        self.logs.crash(&mut random);
        self.end();
        if let Some(operations) = during_open {
            self.backend.fail_after(operations);
            drop(Store::open(self.backend.clone(), config(), self.logs.contents()));
            self.backend = self.backend.crash(&mut random);
        }
        self.open();
    }

    fn kill(&mut self) {
        self.backend = self.backend.kill();
        self.end();
        self.synced = self.history.len() - 1;
        self.open();
    }

    fn end(&mut self) {
        self.store = None;
        self.checkpoint = None;
    }

    fn open(&mut self) {
        let store = Store::open(self.backend.clone(), config(), self.logs.contents()).unwrap();
        let sequence = store.sequence() as usize;
        assert!(sequence >= self.synced, "change {} is lost, {sequence} is left", self.synced);
        self.history.truncate(sequence + 1);
        self.synced = sequence;
        let found: Map = store.range(.., usize::MAX).unwrap().into_iter().collect();
        assert_eq!(&found, self.history.last().unwrap());
        self.store = Some(store);
        self.drop_logs();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn what_was_synced_survives_whole_and_in_order(
        steps in proptest::collection::vec(steps(), 1..60)
    ) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.kill();
    }
}

#[test]
fn a_crash_at_every_operation_of_the_first_opening_leaves_an_empty_store() {
    for operations in 0..60 {
        for seed in 0..8 {
            let backend = MemoryBackend::new();
            backend.fail_after(operations);
            drop(Store::open(backend.clone(), config(), []));
            let backend = backend.crash(&mut generator(seed * 100 + operations));
            let store = Store::open(backend, config(), []).unwrap();
            assert_eq!(store.sequence(), 0);
            assert_eq!(store.get(b"any").unwrap(), None);
        }
    }
}

#[test]
fn a_failed_checkpoint_is_tried_again_with_what_came_since() {
    for operations in 0..40 {
        let mut world = World::new();
        world.step(&Step::Apply(vec![(1, Some(10)), (2, Some(10))]));
        world.step(&Step::Freeze);
        world.step(&Step::Apply(vec![(2, None), (3, Some(30))]));
        world.step(&Step::Checkpoint(Some(operations)));
        let failed = world.store().counters().checkpoint_failures;
        assert_eq!(world.store().last_failure().is_some(), failed == 1);
        world.step(&Step::Look(0, 25, 10));
        world.step(&Step::Freeze);
        world.step(&Step::Checkpoint(None));
        assert_eq!(world.store().overlay_bytes(), 0);
        assert_eq!(world.store().last_failure(), None);
        // The last one tells that there were changes.
        assert!(world.logs.contents().count() <= 2);
        world.step(&Step::Look(0, 25, 10));
    }
}

#[test]
fn damage_to_what_was_synced_is_an_error_that_says_where() {
    let mut world = World::new();
    world.step(&Step::Apply(vec![(1, Some(100))]));
    world.step(&Step::Apply(vec![(2, Some(100))]));
    world.step(&Step::Sync);
    world.step(&Step::Apply(vec![(3, Some(100))]));
    let (log, bytes) = world.logs.contents().next().unwrap();
    let second = bytes.len() / 3;
    world.logs.bytes_mut(log).unwrap()[second + 60] ^= 1;
    let backend = world.backend.kill();
    let error = Store::open(backend, config(), world.logs.contents()).unwrap_err();
    let wanted = StoreError::Damaged { log, offset: second as u64, sequence: 2 };
    assert_eq!(error.to_string(), wanted.to_string());
}

#[test]
fn a_hole_in_what_was_never_synced_is_cut_and_counted() {
    let mut world = World::new();
    (1..4).for_each(|number| world.step(&Step::Apply(vec![(number, Some(100))])));
    let (log, bytes) = world.logs.contents().next().unwrap();
    world.logs.bytes_mut(log).unwrap()[bytes.len() / 3 + 60] ^= 1;
    let store = Store::open(world.backend.kill(), config(), world.logs.contents()).unwrap();
    assert_eq!(store.sequence(), 1);
    let recovery = store.counters().recovery;
    assert_eq!((recovery.records, recovery.torn_bytes), (1, bytes.len() as u64 / 3 * 2));
}

#[test]
fn another_kind_or_version_is_refused_by_name() {
    let backend = MemoryBackend::new();
    drop(Store::open(backend.clone(), Config::new("names", 3), []).unwrap());
    let kind = Store::open(backend.clone(), Config::new("members", 3), []).unwrap_err();
    assert!(kind.to_string().starts_with("the store holds names, not members;"), "{kind}");
    let version = Store::open(backend, Config::new("names", 4), []).unwrap_err();
    let text = version.to_string();
    assert!(text.contains("names has format version 3, this program writes version 4"), "{text}");
}

#[test]
fn a_file_of_something_else_is_refused() {
    use store::StorageBackend;
    let backend = MemoryBackend::new();
    backend.write(0, &[b'x'; 10_000]).unwrap();
    let error = Store::open(backend, config(), []).unwrap_err();
    assert!(matches!(error, StoreError::Storage { action: "opened", .. }), "{error}");
}

#[test]
fn a_failed_append_stops_changes_until_a_checkpoint() {
    let mut world = World::new();
    world.step(&Step::Apply(vec![(1, Some(10))]));
    world.step(&Step::Freeze);
    let _ = world.store().apply(Batch::new());
    world.store().append_failed();
    assert!(matches!(world.store().admit(), Err(StoreError::LogFailed)));
    world.checkpoint(None);
    assert!(matches!(world.store().admit(), Err(StoreError::LogFailed)), "it began before");
    let point = world.store().sync_point();
    world.store().synced(&point);
    assert!(world.store().is_behind_hole(2) && world.store().synced_sequence() < 2);
    world.step(&Step::Freeze);
    world.checkpoint(None);
    world.store().admit().unwrap();
    assert!(!world.store().is_behind_hole(2));
    assert_eq!(world.store().synced_sequence(), 2);
}

/// Its log may not even have been made.
#[test]
fn a_sync_that_a_checkpoint_overtook_says_nothing_of_a_log_without_its_record() {
    let mut world = World::new();
    world.step(&Step::Apply(vec![(1, Some(10))]));
    world.step(&Step::Freeze);
    world.checkpoint(None);
    let _ = world.store().apply(Batch::new());
    world.store().append_failed();
    let point = world.store().sync_point();
    world.step(&Step::Freeze);
    world.checkpoint(None);
    world.store().synced(&point);
    let append = world.store().apply(Batch::new());
    world.logs.append(append.log, &append.bytes);
    world.step(&Step::Freeze);
    world.checkpoint(None);
    world.store = None;
    world.logs.crash(&mut || 0);
    Store::open(world.backend.clone(), config(), world.logs.contents()).unwrap();
}

#[test]
fn logs_out_of_order_are_refused() {
    let logs = [(2, Vec::new()), (1, Vec::new())];
    let error = Store::open(MemoryBackend::new(), config(), logs).unwrap_err();
    assert!(matches!(error, StoreError::Order { log: 1, after: 2 }));
}
