//! The store itself: overlays over the checkpoint, and who is told what when.

pub(crate) mod scrub;
mod snapshot;

use crate::batch::Batch;
use crate::checkpoint::{Base, Checkpoint, Mark};
use crate::config::Config;
use crate::error::StoreError;
use crate::log::{RecordHeader, chain_of, kind_sum, seal};
use crate::overlay::{Bounds, Merged, Overlay, is_empty_range};
use crate::recovery::{Recovery, Replay};
use redb::StorageBackend;
use scrub::Round;
use snapshot::Moments;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::{ControlFlow, RangeBounds};
use std::sync::Arc;

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A log record that the caller must append.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Append {
    /// Generation of the log.
    pub log: u64,
    /// The record.
    pub bytes: Vec<u8>,
    /// The change's number: 1 is the first of the store, each is one more than the one before.
    pub sequence: u64,
}

/// Logs to sync, and the last change that is on stable storage when they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncPoint {
    /// Generations, to be synced in this order.
    pub logs: Vec<u64>,
    /// The last change that is on stable storage then.
    pub sequence: u64,
    /// The last change that one of these logs says was on stable storage.
    told: u64,
}

/// Counters of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Batches applied.
    pub batches: u64,
    /// Bytes of log records.
    pub log_bytes: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Checkpoints that failed and will be tried again.
    pub checkpoint_failures: u64,
    /// The findings of recovery when it was opened.
    pub recovery: Recovery,
}

/// An ordered map of bytes to bytes that survives crashes.
///
/// Getters: [`get`](Store::get), [`get_with`](Store::get_with), [`scan`](Store::scan), [`range`](Store::range),
/// [`overlay_bytes`](Store::overlay_bytes), [`admit`](Store::admit), [`sync_point`](Store::sync_point),
/// [`counters`](Store::counters). Commands: [`apply`](Store::apply), [`freeze`](Store::freeze). Completions:
/// [`synced`](Store::synced), [`append_failed`](Store::append_failed), [`checkpoint_done`](Store::checkpoint_done).
/// [`poll_drop`](Store::poll_drop).
pub struct Store {
    /// Before the database, as every reader must be.
    pub(crate) moments: RefCell<Moments>,
    pub(crate) base: Base,
    pub(crate) active: Overlay,
    /// Changes on their way into the checkpoint, or waiting for another try.
    pub(crate) frozen: Option<Arc<Overlay>>,
    checkpointing: Option<Mark>,
    config: Config,
    /// The log that the next change goes to.
    generation: u64,
    /// The last change applied.
    sequence: u64,
    /// The last change known to be on stable storage.
    synced: u64,
    /// The last change in a checkpoint that was reported done.
    covered: u64,
    /// Logs that are there, and the last change in each.
    logs: BTreeMap<u64, u64>,
    /// The last log that the checkpoint covers.
    covered_log: u64,
    /// The sum of the last record.
    chain: u32,
    /// The newest log that was synced. It is not dropped, so that no log is a sign that logs were removed.
    witness: u64,
    /// The last change that the newest log says is on stable storage, and the last that synced logs say.
    telling: u64,
    told: u64,
    pub(crate) damaged_reads: Cell<u64>,
    pub(crate) last_damage: RefCell<Option<String>>,
    pub(crate) scrub: Round,
    drops: VecDeque<u64>,
    /// The last change that may be missing in the log.
    failed_sequence: Option<u64>,
    /// The last one that ever was: a sync that was begun before says nothing of the logs.
    hole: u64,
    last_failure: Option<String>,
    counters: Counters,
}

impl Store {
    /// Opens the store in `backend`, making it when the backend is empty. `logs` are all logs there are, as generation
    /// and contents, in ascending order; an iterator that reads one at a time keeps only one in memory. Afterwards all
    /// they held is in the checkpoint, and [`poll_drop`](Store::poll_drop) names them.
    ///
    /// The backend must keep other programs away itself: no lock method is called.
    pub fn open(
        backend: impl StorageBackend,
        config: Config,
        logs: impl IntoIterator<Item = (u64, Vec<u8>)>,
    ) -> Result<Store, StoreError> {
        let base = Base::open(backend, config)?;
        let mut replay = Replay::new(&base, config.overlay_bytes_max);
        for (generation, bytes) in logs {
            replay.log(generation, &bytes)?;
        }
        let replayed = replay.finish()?;
        let mark = base.mark();
        let mut store = Store {
            base,
            active: Overlay::default(),
            frozen: None,
            moments: RefCell::default(),
            checkpointing: None,
            config,
            generation: mark.generation + 1,
            sequence: mark.sequence,
            synced: mark.sequence,
            covered: mark.sequence,
            logs: replayed.kept.into_iter().map(|log| (log, mark.sequence)).collect(),
            covered_log: mark.generation,
            chain: mark.chain,
            witness: mark.witness,
            telling: 0,
            told: 0,
            damaged_reads: Cell::new(0),
            last_damage: RefCell::default(),
            scrub: Round::default(),
            drops: replayed.empty.into(),
            failed_sequence: None,
            hole: 0,
            last_failure: None,
            counters: Counters { recovery: replayed.recovery, ..Counters::default() },
        };
        store.drop_told();
        Ok(store)
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.get_with(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Applies `read` to the value of `key`, without a copy.
    pub fn get_with<R>(
        &self,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, StoreError> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.get(key));
        match self.active.get(key).or_else(frozen) {
            Some(value) => Ok(read(value)),
            None => {
                let value = self.base.get(key).map_err(|error| self.read_failed(error))?;
                Ok(read(value.as_ref().map(|value| value.value())))
            }
        }
    }

    /// Shows `visit` every key in `range` with its value, in ascending order, until it breaks.
    pub fn scan<'k>(
        &self,
        range: impl RangeBounds<&'k [u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let bounds: Bounds<'k> = (range.start_bound().cloned(), range.end_bound().cloned());
        if is_empty_range(bounds) {
            return Ok(());
        }
        let entries = self.base.range(bounds).map_err(|error| self.read_failed(error))?;
        let changed = Merged::new(&self.active, self.frozen.as_deref(), bounds);
        let read = changed.over(entries, &mut visit);
        read.map_err(|error| self.read_failed(self.base.failed("read", error.into())))
    }

    /// The first `limit` keys in `range` with their values.
    pub fn range<'k>(
        &self,
        range: impl RangeBounds<&'k [u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        if limit == 0 {
            return Ok(entries);
        }
        self.scan(range, |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            if entries.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(entries)
    }

    /// Bytes of changes in memory: not in the checkpoint yet.
    pub fn overlay_bytes(&self) -> usize {
        self.active.bytes() + self.frozen.as_ref().map_or(0, |frozen| frozen.bytes())
    }

    /// Whether changes were applied that no checkpoint covers or is about to.
    pub fn is_dirty(&self) -> bool {
        self.checkpointing.map_or(self.covered, |mark| mark.sequence) < self.sequence
    }

    /// Whether a change may be applied now; ask before each.
    pub fn admit(&self) -> Result<(), StoreError> {
        let (bytes, limit) = (self.overlay_bytes(), self.config.overlay_bytes_max);
        if self.failed_sequence.is_some() {
            return Err(StoreError::LogFailed);
        }
        if bytes > limit {
            return Err(StoreError::Full { bytes, limit });
        }
        Ok(())
    }

    /// The last change applied.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The last change known to be on stable storage, in a synced log or in the checkpoint.
    pub fn synced_sequence(&self) -> u64 {
        self.synced
    }

    /// The logs to sync so that every change applied and appended until now is on stable storage. No log: all is.
    pub fn sync_point(&self) -> SyncPoint {
        let unsynced = self.logs.iter().filter(|log| *log.1 > self.synced);
        let logs = unsynced.map(|log| *log.0).collect();
        SyncPoint { logs, sequence: self.sequence, told: self.telling }
    }

    /// Counters since it was opened.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpointing.is_some()
    }

    /// Why the last checkpoint failed, until one succeeds.
    pub fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }

    /// Makes all changes of `batch` at once: reads see them from now on. The record that is returned must be appended
    /// before the next one, and be appended before anybody outside is told of the changes.
    pub fn apply(&mut self, batch: Batch) -> Append {
        batch.changes().for_each(|change| self.active.apply(change));
        self.sequence += 1;
        let header = RecordHeader {
            generation: self.generation,
            sequence: self.sequence,
            synced: self.synced,
            kind: kind_sum(self.config.format.kind),
            chain: self.chain,
        };
        let bytes = seal(batch, header);
        self.chain = chain_of(&bytes);
        self.telling = self.synced;
        let newest = self.logs.last_key_value();
        assert!(
            newest.is_none_or(|(log, _)| *log <= self.generation),
            "changes go to the newest log"
        );
        let last = self.logs.insert(self.generation, self.sequence);
        assert!(last.is_none_or(|last| last < self.sequence), "changes are logged in their order");
        self.counters.batches += 1;
        self.counters.log_bytes += bytes.len() as u64;
        self.check();
        Append { log: self.generation, bytes, sequence: self.sequence }
    }

    /// All logs of `point` were synced, after every record up to its sequence had been appended, or failed to be.
    pub fn synced(&mut self, point: &SyncPoint) {
        assert!(point.sequence <= self.sequence, "what was synced was applied before");
        assert!(point.told <= point.sequence, "a log tells of changes before it");
        if self.failed_sequence.is_none() {
            self.synced = self.synced.max(point.sequence);
            // A record that a checkpoint made up for is in no log, and its log may not exist.
            if point.sequence > self.hole {
                self.told = self.told.max(point.told);
                self.witness = point.logs.iter().copied().fold(self.witness, u64::max);
            }
            self.drop_told();
        }
        self.check();
    }

    /// An append failed, and what was applied since may follow the hole that it left: [`admit`](Store::admit) refuses
    /// until a checkpoint has made up for it, and nothing that [`is_behind_hole`](Store::is_behind_hole) may be
    /// acknowledged.
    pub fn append_failed(&mut self) {
        self.failed_sequence = Some(self.sequence);
        self.hole = self.sequence;
    }

    /// Whether replay may stop before this change, although the append of its own record succeeded.
    pub fn is_behind_hole(&self, sequence: u64) -> bool {
        self.failed_sequence.is_some_and(|failed| sequence <= failed)
    }

    /// Begins a checkpoint of everything applied so far; `None` when there is nothing to do or one is under way.
    /// Changes go to the next log from now on.
    pub fn freeze(&mut self) -> Option<Checkpoint> {
        if self.checkpointing.is_some() || !self.is_dirty() {
            return None;
        }
        if !self.base.is_open() {
            self.reopen();
        }
        let newer = std::mem::take(&mut self.active);
        match &mut self.frozen {
            Some(frozen) => Arc::make_mut(frozen).absorb(newer),
            None => self.frozen = Some(Arc::new(newer)),
        }
        let mark = Mark {
            generation: self.generation,
            sequence: self.sequence,
            chain: self.chain,
            witness: self.witness,
        };
        assert!(mark.generation > self.covered_log, "a checkpoint covers a log more");
        assert!(mark.sequence > self.covered, "a checkpoint covers more changes than the last");
        let checkpoint = self.base.checkpoint(self.frozen.clone()?, mark).ok()?;
        self.generation += 1;
        self.checkpointing = Some(mark);
        self.check();
        Some(checkpoint)
    }

    /// The checkpoint from [`freeze`](Store::freeze) has ended. After an error its changes stay in memory, and the next
    /// `freeze` tries again with what came since.
    pub fn checkpoint_done(&mut self, result: Result<(), String>) {
        let mark = self.checkpointing.take().expect("a checkpoint is under way");
        let done = result.is_ok();
        match result {
            Ok(()) => self.refresh(),
            Err(reason) => {
                self.last_failure = Some(reason);
                self.reopen();
            }
        }
        // After an error the new mark may be there and yet not be on stable storage: then all is written again.
        if done && self.base.is_open() && self.base.mark() == mark {
            self.cover(mark);
        } else {
            self.counters.checkpoint_failures += 1;
        }
    }

    /// A log that is not needed any more and can be removed.
    pub fn poll_drop(&mut self) -> Option<u64> {
        self.drops.pop_front()
    }

    fn cover(&mut self, mark: Mark) {
        assert!(mark.sequence <= self.sequence, "only what was applied is covered");
        assert!(mark.sequence >= self.covered, "what is covered stays so");
        assert!(mark.generation < self.generation, "changes go to a log that is not covered");
        self.frozen = None;
        self.covered = mark.sequence;
        self.synced = self.synced.max(mark.sequence);
        self.covered_log = mark.generation;
        self.drop_told();
        self.failed_sequence = self.failed_sequence.filter(|&failed| failed > mark.sequence);
        self.last_failure = None;
        self.counters.checkpoints += 1;
    }

    /// The numbers agree: nothing is covered that is not synced, nor synced that was not applied.
    fn check(&self) {
        assert!(self.covered <= self.synced, "a checkpoint is on stable storage");
        assert!(self.synced <= self.sequence, "what is synced was applied");
        assert!(self.told <= self.synced, "logs tell of what is synced");
        assert!(self.telling <= self.synced, "a log tells of what was synced before");
        assert!(self.covered_log < self.generation, "changes go to a log that is not covered");
        let has_changes = self.checkpointing.is_none() || self.frozen.is_some();
        assert!(has_changes, "a checkpoint's changes stay in memory until it is done");
    }

    /// Drops the logs that the checkpoint covers, once a later one that is on stable storage says that they were. A
    /// checkpoint that comes back as it was before then lacks changes, and there is a log that knows it.
    fn drop_told(&mut self) {
        let (covered, told) = (self.covered_log.min(self.witness.saturating_sub(1)), self.told);
        let done = |log: &u64, last: &mut u64| *log <= covered && *last <= told;
        self.drops.extend(self.logs.extract_if(.., done).map(|(log, _)| log));
    }

    /// redb refuses everything after an error, so it is opened anew: one page that is damaged must not cost the rest.
    pub(crate) fn read_failed(&self, error: StoreError) -> StoreError {
        if let StoreError::Rotten { .. } = error {
            self.damaged_reads.set(self.damaged_reads.get() + 1);
            self.last_damage.replace(Some(error.to_string()));
        }
        if self.checkpointing.is_none() {
            // The next read reports a failure of this.
            self.moments.borrow_mut().clear();
            let _ = self.base.reopen();
        }
        error
    }

    fn refresh(&mut self) {
        if let Err(error) = self.base.refresh() {
            self.last_failure = Some(error.to_string());
            self.reopen();
        }
    }

    pub(crate) fn reopen(&mut self) {
        self.moments.borrow_mut().clear();
        if let Err(error) = self.base.reopen() {
            self.last_failure = Some(error.to_string());
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("format", &self.config.format)
            .field("sequence", &self.sequence)
            .field("log", &self.generation)
            .field("overlay_bytes", &self.overlay_bytes())
            .finish()
    }
}
