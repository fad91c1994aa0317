//! The files behind a machine's transactional stores: logs and checkpoints, in modelled time.
//!
//! An append survives a kill of the process once it has completed, and a power cut once a sync has; the operations of
//! one store are done in the order they were posted, but for checkpoints, which run beside them. A crash in the middle
//! does any prefix of what was under way, and breaks a checkpoint off after any of its steps.

use crate::disk::{DiskFaults, DiskModel};
use crate::queue::Picos;
use crate::random::Random;
use crate::storage::Crash;
use node::rings::{MetaDone, MetaError, MetaOp, MetaRequest, MetaRoom, StoreId, Ticket};
use std::collections::BTreeMap;
use store::{MemoryBackend, MemoryLogs};

/// Most changes of its file that a checkpoint which a crash meets still makes.
const STEPS_BEFORE_CRASH_MAX: u64 = 40;
/// Bytes that a checkpoint is taken to write: 64 pages (assumed; its cost in syncs matters more).
const CHECKPOINT_BYTES: usize = 256 * 1024;

#[derive(Debug)]
struct Files {
    logs: MemoryLogs,
    backend: MemoryBackend,
    busy_until: Picos,
}

/// The files of a machine's stores at one time.
#[derive(Clone, Debug, Default)]
pub struct StoresImage(pub BTreeMap<StoreId, (Vec<u8>, MemoryLogs)>);

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    store: StoreId,
    op: MetaOp,
}

/// All stores' files of one machine; outlives its node.
#[derive(Debug)]
pub struct Meta {
    model: DiskModel,
    faults: DiskFaults,
    random: Random,
    stores: BTreeMap<StoreId, Files>,
    pending: BTreeMap<u64, Pending>,
    posted: u64,
}

impl Meta {
    /// No files. `name` names the random stream.
    pub fn new(seed: u64, name: &str, model: DiskModel) -> Meta {
        Meta {
            model,
            faults: DiskFaults::default(),
            random: Random::new(seed, name),
            stores: BTreeMap::new(),
            pending: BTreeMap::new(),
            posted: 0,
        }
    }

    /// Faults of the disk below, to be changed.
    pub fn faults_mut(&mut self) -> &mut DiskFaults {
        &mut self.faults
    }

    fn files(&mut self, store: StoreId) -> &mut Files {
        self.stores.entry(store).or_insert_with(|| Files {
            logs: MemoryLogs::new(),
            backend: MemoryBackend::new(),
            busy_until: Picos::ZERO,
        })
    }

    /// The store's database file and its logs, as `store::Store::open` takes them.
    pub fn open(&mut self, store: StoreId) -> (MemoryBackend, Vec<(u64, Vec<u8>)>) {
        let files = self.files(store);
        (files.backend.clone(), files.logs.contents().collect())
    }

    /// All stores' files as they are now.
    pub fn image(&self) -> StoresImage {
        let image = |files: &Files| (files.backend.contents(), files.logs.clone());
        StoresImage(self.stores.iter().map(|(store, files)| (*store, image(files))).collect())
    }

    /// All stores' files are these from now on. Not while the node runs.
    pub fn restore(&mut self, image: &StoresImage) {
        self.pending.clear();
        self.stores.clear();
        for (store, (database, logs)) in &image.0 {
            let files = self.files(*store);
            files.backend = MemoryBackend::with(database.clone());
            files.logs = logs.clone();
        }
    }

    /// Takes an operation. When it will be complete, and the number to ask for it by.
    pub fn submit(&mut self, now: Picos, request: MetaRequest) -> (Picos, u64) {
        let MetaRequest { ticket, store, op } = request;
        let span = self.time(&op);
        let files = self.files(store);
        let done = if matches!(op, MetaOp::Checkpoint(_)) {
            now + span
        } else {
            files.busy_until = now.max(files.busy_until) + span;
            files.busy_until
        };
        self.posted += 1;
        self.pending.insert(self.posted, Pending { ticket, store, op });
        (done, self.posted)
    }

    fn time(&mut self, op: &MetaOp) -> Picos {
        let (bytes, syncs) = match op {
            MetaOp::Append { bytes, .. } => (bytes.len(), 0),
            MetaOp::Sync { .. } => (0, 1),
            MetaOp::Checkpoint(_) => (CHECKPOINT_BYTES, 2),
            MetaOp::DropLog { .. } | MetaOp::Room => (0, 0),
        };
        let picos = bytes as u128 * 1_000_000_000_000 / u128::from(self.model.bytes_per_second);
        let spread = self.random.below(self.model.latency.0.max(1));
        let sync = self.model.sync_latency.0.saturating_mul(syncs);
        let all = (picos as u64).saturating_add(spread).saturating_add(sync);
        Picos(all.saturating_mul(self.faults.slowness))
    }

    /// The operation of this number is due. `None` when a crash has voided it.
    pub fn complete(&mut self, number: u64) -> Option<MetaDone> {
        let Pending { ticket, store, op } = self.pending.remove(&number)?;
        let result = match self.refuse(&op) {
            Some(reason) => Err(reason),
            None => self.execute(store, op),
        };
        Some(MetaDone { ticket, result, room: MetaRoom::Plenty })
    }

    fn refuse(&mut self, op: &MetaOp) -> Option<MetaError> {
        if self.faults.missing {
            return Some("the directory of the store is missing".to_string().into());
        }
        if self.faults.read_only {
            return Some("the disk of the store is read-only".to_string().into());
        }
        // Room is found when bytes are written: a sync needs none.
        if self.faults.full
            && matches!(op, MetaOp::Append { .. } | MetaOp::Checkpoint(_) | MetaOp::Room)
        {
            return Some(MetaError { full: true, reason: "the disk of the store is full".into() });
        }
        let failed = self.random.chance(self.faults.error_chance);
        failed.then(|| "the disk of the store answers input/output error".to_string().into())
    }

    fn execute(&mut self, store: StoreId, op: MetaOp) -> Result<(), MetaError> {
        let files = self.files(store);
        match op {
            MetaOp::Append { log, bytes } => files.logs.append(log, &bytes),
            MetaOp::Sync { log } => files.logs.sync(log),
            MetaOp::DropLog { log } => files.logs.remove(log),
            MetaOp::Room => {}
            MetaOp::Checkpoint(work) => return work.run().map_err(MetaError::from),
        }
        Ok(())
    }

    /// The node of this machine ends. To be called before the node is dropped, so that nothing it still does while
    /// dropping reaches the files.
    pub fn crash(&mut self, crash: Crash) {
        let pending = std::mem::take(&mut self.pending);
        let done = self.random.index(pending.len() + 1);
        for (number, pending) in pending.into_values().enumerate() {
            match pending.op {
                MetaOp::Checkpoint(work) => self.break_off(pending.store, work),
                op if number < done => {
                    // No task is left that could be told of an error.
                    let _ = self.execute(pending.store, op);
                }
                _ => {}
            }
        }
        let random = &mut self.random;
        for files in self.stores.values_mut() {
            files.busy_until = Picos::ZERO;
            files.backend = match crash {
                Crash::Kill => files.backend.kill(),
                Crash::Power => {
                    files.logs.crash(&mut || random.next());
                    files.backend.crash(&mut || random.next())
                }
            };
        }
    }

    fn break_off(&mut self, store: StoreId, work: Box<dyn node::rings::MetaWork>) {
        let steps = self.random.below(STEPS_BEFORE_CRASH_MAX);
        let backend = self.files(store).backend.clone();
        backend.fail_after(steps);
        // It fails, by design, unless it needed fewer steps.
        let _ = work.run();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(seed: u64) -> Meta {
        Meta::new(seed, "meta", DiskModel::default())
    }

    fn request(op: MetaOp) -> MetaRequest {
        MetaRequest { ticket: Ticket(7), store: StoreId::Names, op }
    }

    fn append(bytes: &[u8]) -> MetaRequest {
        request(MetaOp::Append { log: 1, bytes: bytes.to_vec() })
    }

    fn log(meta: &mut Meta) -> Vec<u8> {
        meta.open(StoreId::Names).1.pop().map_or(Vec::new(), |(_, bytes)| bytes)
    }

    #[test]
    fn operations_of_a_store_keep_their_order() {
        let mut meta = meta(1);
        let (first, one) = meta.submit(Picos::ZERO, append(&[1; 100_000]));
        let (second, two) = meta.submit(Picos::ZERO, append(&[2]));
        assert!(first < second);
        assert_eq!(meta.complete(one).unwrap().result, Ok(()));
        assert_eq!(meta.complete(two).unwrap().ticket, Ticket(7));
        assert_eq!(log(&mut meta).len(), 100_001);
        assert!(meta.complete(two).is_none());
    }

    #[test]
    fn an_append_survives_a_kill_and_a_synced_one_a_power_cut() {
        let mut shortest = usize::MAX;
        for seed in 0..50 {
            let mut meta = meta(seed);
            for op in [append(b"synced"), request(MetaOp::Sync { log: 1 }), append(b" or not")] {
                let (_, number) = meta.submit(Picos::ZERO, op);
                meta.complete(number).unwrap().result.unwrap();
            }
            meta.crash(Crash::Kill);
            assert_eq!(log(&mut meta), b"synced or not");
            meta.crash(Crash::Power);
            assert!(log(&mut meta).starts_with(b"synced"));
            shortest = shortest.min(log(&mut meta).len());
        }
        assert_eq!(shortest, 6, "some power cut took what was not synced");
    }

    #[test]
    fn what_is_under_way_at_a_kill_is_done_or_not() {
        let outcomes = (0..50).map(|seed| {
            let mut meta = meta(seed);
            meta.submit(Picos::ZERO, append(b"a"));
            meta.submit(Picos::ZERO, append(b"b"));
            meta.crash(Crash::Kill);
            log(&mut meta)
        });
        let outcomes: std::collections::BTreeSet<_> = outcomes.collect();
        assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [&b""[..], b"a", b"ab"]);
    }

    #[test]
    fn faults_are_sentences() {
        let mut meta = meta(1);
        meta.faults_mut().full = true;
        let (_, number) = meta.submit(Picos::ZERO, append(b"a"));
        let error = meta.complete(number).unwrap().result.unwrap_err();
        assert_eq!((error.full, &error.reason[..]), (true, "the disk of the store is full"));
    }

    #[test]
    fn a_full_disk_keeps_what_was_appended_before() {
        let mut meta = meta(1);
        let done = |meta: &mut Meta, request| {
            let (_, number) = meta.submit(Picos::ZERO, request);
            meta.complete(number).unwrap().result
        };
        done(&mut meta, append(b"a")).unwrap();
        meta.faults_mut().full = true;
        assert!(done(&mut meta, append(b"b")).is_err());
        done(&mut meta, request(MetaOp::Sync { log: 1 })).unwrap();
        meta.crash(Crash::Power);
        assert_eq!(log(&mut meta), b"a");
    }
}
