//! The stores of a node: executes the entries of its meta ring on files.
//!
//! An append is a plain write by the node's own thread: it lands in the host's memory, which survives a kill of this
//! process and costs less than a helper's wake. Work that waits for the disk (syncs, checkpoints, removals) is done by
//! helpers. Syncs of one log that come while one is under way share the next.
//!
//! A log that is synced often is laid out before its first record (`spare`), and then an append with the sync behind it
//! is one write past the host's cache (`log`, `direct`): an append is held until the requests behind it were seen.
//!
//! No change of names is acknowledged in a log that was removed, nor is a log made in another directory than the one
//! that the node began with: each append and each sync ends with a look at whether the log still has a name (fstat),
//! each checkpoint at whether the database has, since its logs go when it succeeds. Reads of a database that was
//! removed go on, and the open log of members still takes appends: a node that cannot become a member can neither ask
//! what is wrong nor copy the files elsewhere.
//!
//! It does not know what logs and checkpoints hold.

mod blocks;
mod direct;
mod files;
mod job;
mod log;
mod reserve;
mod spare;

pub use files::{FileBackend, LoadError, Loaded, exists, load};

use crate::device::Poller;
use crate::helpers::Helpers;
use crate::host::Device;
use crate::limits::{
    META_HELPERS, META_LAY_OUT_SYNCS, META_OPS_PER_POLL, META_RESERVE_LOOK_APPENDS,
    META_RESERVE_LOOK_BYTES,
};
use direct::{Direct, Flight};
use files::{Home, database_path, gone_path, log_lengths, log_path, sentence};
use job::{Finished, Job};
use log::{Appended, Busy, Log, Opening};
use node::Node;
use node::rings::{MetaDone, MetaError, MetaOp, MetaRequest, MetaRoom, StoreId, Ticket};
use reserve::Reserve;
use rustix::io::Errno;
use spare::{Next, Spare};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use wire::Time;

/// A log: its store and its generation.
type Key = (StoreId, u64);

/// How logs were brought to stable storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncCounters {
    /// By fdatasync(2).
    pub syncs: u64,
    /// By writes past the host's cache.
    pub writes: u64,
}

/// The files of a node's stores. Belongs to the node's thread.
pub struct Stores {
    homes: BTreeMap<StoreId, Home>,
    /// How much room each had, as far as was seen.
    rooms: BTreeMap<StoreId, MetaRoom>,
    // Before the memory that their work is done on.
    helpers: Helpers<Job>,
    direct: Direct,
    logs: BTreeMap<Key, Log>,
    /// Whether a log that was laid out may have records that are held, or be waited for.
    unwritten: bool,
    /// Bytes of logs that were there at the start.
    earlier: BTreeMap<Key, u64>,
    counters: SyncCounters,
    finished: Vec<Finished>,
    done: VecDeque<MetaDone>,
    under_way: usize,
    serial: u64,
}

impl Stores {
    /// The stores in these directories, which must exist. [`load`] comes first: it holds the lock.
    pub fn new(directories: impl IntoIterator<Item = (StoreId, PathBuf)>) -> io::Result<Stores> {
        let mut stores = Stores {
            homes: directories
                .into_iter()
                .map(|(store, path)| (store, Home::new(path, store)))
                .collect(),
            rooms: BTreeMap::new(),
            helpers: Helpers::start("meta", META_HELPERS)?,
            direct: Direct::default(),
            logs: BTreeMap::new(),
            unwritten: false,
            earlier: BTreeMap::new(),
            counters: SyncCounters::default(),
            finished: Vec::new(),
            done: VecDeque::new(),
            under_way: 0,
            serial: 0,
        };
        let all: Vec<StoreId> = stores.homes.keys().copied().collect();
        for store in all {
            let lengths = log_lengths(&stores.homes[&store].path, store);
            stores.earlier.extend(lengths.map(|(log, bytes)| ((store, log), bytes)));
            stores.look_at_reserve(store);
        }
        Ok(stores)
    }

    /// Starts an operation, or does it if it does not wait for the disk.
    pub fn start(&mut self, request: MetaRequest) {
        let MetaRequest { ticket, store, op } = request;
        let Some(directory) = self.homes.get(&store).map(|home| home.path.clone()) else {
            let reason = format!("this node has no directory for its {store:?} store");
            return self.end(ticket, Err(reason));
        };
        match op {
            MetaOp::Append { log, bytes } => {
                let result = self.append(ticket, (store, log), &bytes);
                let (is_held, result) = (result == Ok(Appended::Held), result.map(drop));
                self.note_room(store, bytes.len() as u64, &result);
                self.unwritten |= is_held;
                if !is_held {
                    self.end(ticket, result);
                }
            }
            MetaOp::Sync { log } => {
                if let Err(reason) = self.sync(ticket, (store, log)) {
                    self.end(ticket, Err(reason));
                }
            }
            MetaOp::Checkpoint(work) => {
                let (file, path) =
                    (self.homes[&store].database(), database_path(&directory, store));
                self.help(Job::Checkpoint { ticket, store, work, file, path });
            }
            MetaOp::DropLog { log } => match self.drop_log(&directory, store, log) {
                Ok(path) => self.help(Job::Remove { ticket, store, path }),
                Err(reason) => self.end(ticket, Err(reason)),
            },
            MetaOp::Room => {
                self.look_at_reserve(store);
                self.end(ticket, Ok::<(), MetaError>(()));
            }
        }
    }

    /// After an append of so many bytes: looks at the reserve now and then, and each time while it is in use.
    fn note_room(&mut self, store: StoreId, bytes: u64, appended: &Result<(), MetaError>) {
        let Some(home) = self.homes.get_mut(&store) else { return };
        home.unseen += bytes.max(META_RESERVE_LOOK_BYTES / META_RESERVE_LOOK_APPENDS);
        let is_due = home.unseen >= META_RESERVE_LOOK_BYTES;
        match appended {
            Ok(()) if is_due || self.room(store) > MetaRoom::Plenty => self.look_at_reserve(store),
            Err(error) if error.full => {
                self.rooms.insert(store, self.room(store).max(MetaRoom::Low));
            }
            _ => {}
        }
    }

    fn room(&self, store: StoreId) -> MetaRoom {
        self.rooms.get(&store).copied().unwrap_or_default()
    }

    /// Bytes of all logs of a store.
    fn log_bytes(&self, store: StoreId) -> u64 {
        let earlier = self.earlier.iter().filter(|(log, _)| !self.logs.contains_key(log));
        let earlier = earlier.map(|((of, _), bytes)| (*of, *bytes));
        let logs = self.logs.iter().map(|((of, _), log)| (*of, log.bytes()));
        logs.chain(earlier).filter(|(of, _)| *of == store).map(|(_, bytes)| bytes).sum()
    }

    /// Makes the reserve where it is not whole. Nothing is made in a directory that is there in place of the store's.
    fn look_at_reserve(&mut self, store: StoreId) {
        let Some(home) = self.homes.get_mut(&store) else { return };
        home.unseen = 0;
        if home.check().is_err() {
            return;
        }
        let reserve = Reserve::of(&self.homes[&store].path, store);
        let is_whole = reserve.make();
        let room = match reserve.covers(self.log_bytes(store)) {
            false => MetaRoom::Scarce,
            true if is_whole => MetaRoom::Plenty,
            true => MetaRoom::Low,
        };
        self.rooms.insert(store, room);
        if room > MetaRoom::Plenty
            && let Some(home) = self.homes.get_mut(&store)
        {
            home.next.give_up();
        }
    }

    /// Takes what was finished, and begins what waits for that; whether there was anything.
    pub fn turn(&mut self) -> bool {
        self.take_finished() | self.write_held(true)
    }

    /// How logs were brought to stable storage since the start.
    pub fn counters(&self) -> SyncCounters {
        self.counters
    }

    fn take_finished(&mut self) -> bool {
        let mut finished = std::mem::take(&mut self.finished);
        self.helpers.take(|outcome| finished.push(outcome));
        let any = !finished.is_empty();
        for outcome in finished.drain(..) {
            self.under_way -= 1;
            match outcome {
                Finished::One { ticket, store, result } => {
                    self.look_at_reserve(store);
                    self.end(ticket, result);
                }
                Finished::Sync { key, serial, tickets, result } => {
                    let result = self.handle_synced(key, serial, result);
                    self.end_all(tickets, &result);
                }
                Finished::Written { slot, result } => {
                    let flight = self.direct.end(slot);
                    self.handle_written(flight, result);
                }
                Finished::LaidOut { store, result } => self.handle_laid_out(store, result),
            }
        }
        self.finished = finished;
        any
    }

    /// The next finished operation.
    pub fn next_done(&mut self) -> Option<MetaDone> {
        self.done.pop_front()
    }

    /// Whether nothing is under way and nothing waits to be given back.
    pub fn is_idle(&self) -> bool {
        self.under_way == 0 && self.done.is_empty() && !self.unwritten
    }

    fn end(&mut self, ticket: Ticket, result: Result<(), impl Into<MetaError>>) {
        let room = self.room(StoreId::Names);
        self.done.push_back(MetaDone { ticket, result: result.map_err(Into::into), room });
    }

    fn end_all(&mut self, tickets: Vec<Ticket>, result: &Result<(), MetaError>) {
        tickets.into_iter().for_each(|ticket| self.end(ticket, result.clone()));
    }

    fn help(&mut self, job: Job) {
        self.under_way += 1;
        self.helpers.submit(job);
    }

    /// The log, opened; without `create` only when there is one.
    fn log(&mut self, key: Key, create: bool) -> Result<Option<&mut Log>, MetaError> {
        let (store, log) = key;
        if !self.logs.contains_key(&key) {
            self.serial += 1;
            let of_store = self.logs.iter().filter(|(key, _)| key.0 == store);
            let longest = of_store.map(|(_, log)| log.bytes()).max();
            let home = self.homes.get_mut(&store).expect("an operation is of a store that is here");
            home.check()?;
            home.last_bytes = longest.unwrap_or(home.last_bytes);
            let opening = Opening {
                path: &log_path(&home.path, store, log),
                serial: self.serial,
                create,
                must_have_name: store == StoreId::Names,
                reserve: Reserve::of(&home.path, store),
                spare: if create { home.next.take() } else { None },
            };
            let Some(opened) = Log::open(opening)? else { return Ok(None) };
            self.logs.insert(key, opened);
        }
        Ok(self.logs.get_mut(&key))
    }

    fn append(&mut self, ticket: Ticket, key: Key, bytes: &[u8]) -> Result<Appended, MetaError> {
        let all = self.log_bytes(key.0);
        let log = self.log(key, true)?.expect("created when there was none");
        log.append(ticket, bytes, all)
    }

    fn sync(&mut self, ticket: Ticket, key: Key) -> Result<(), MetaError> {
        let Some(entry) = self.log(key, false)? else {
            self.end(ticket, Ok::<(), MetaError>(())); // nothing was ever appended to it
            return Ok(());
        };
        if let Some(failure) = &entry.failure {
            return Err(failure.clone().into());
        }
        entry.waiting.push(ticket);
        entry.syncs += 1;
        let (is_often, is_laid_out) = (entry.syncs == META_LAY_OUT_SYNCS, entry.is_laid_out());
        if is_laid_out {
            self.unwritten = true;
        } else {
            self.sync_waiting(key);
        }
        if is_often {
            self.lay_out_next(key.0);
        }
        Ok(())
    }

    /// Begins to make the file that the store's next log is to be.
    fn lay_out_next(&mut self, store: StoreId) {
        let is_plenty = self.room(store) == MetaRoom::Plenty;
        let Some(home) = self.homes.get_mut(&store).filter(|_| is_plenty) else { return };
        if matches!(home.next, Next::None) {
            home.next = Next::Making;
            let path = spare::path(&home.path, store);
            let bytes = spare::bytes_after(home.last_bytes);
            self.help(Job::LayOut { store, path, bytes });
        }
    }

    fn handle_laid_out(&mut self, store: StoreId, result: io::Result<Spare>) {
        let Some(home) = self.homes.get_mut(&store) else { return };
        home.next = match result {
            Ok(spare) => Next::Ready(spare),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Next::Never,
            Err(_) => Next::None,
        };
        self.look_at_reserve(store);
    }

    /// Writes what is held of logs that were laid out, past the host's cache where a sync is awaited. What no sync is
    /// awaited for is left alone unless it `may_cache`: the sync may be on its way.
    fn write_held(&mut self, may_cache: bool) -> bool {
        if !std::mem::take(&mut self.unwritten) {
            return false;
        }
        let laid_out = self.logs.iter().filter(|(_, log)| log.is_laid_out());
        let keys: Vec<Key> = laid_out.map(|(key, _)| *key).collect();
        let mut any = false;
        for key in keys {
            any |= self.write_log(key, may_cache);
            let log = self.logs.get(&key);
            self.unwritten |= log.is_some_and(Log::is_unwritten);
        }
        any
    }

    fn write_log(&mut self, key: Key, may_cache: bool) -> bool {
        let has_room = self.direct.has_room();
        let Some(log) = self.logs.get_mut(&key) else { return false };
        let is_awaited = !log.waiting.is_empty();
        match log.busy {
            Busy::Writing => return false,
            Busy::Syncing if is_awaited || !may_cache => return false,
            Busy::Nothing if is_awaited => {
                let write = if has_room { log.begin_write() } else { None };
                if let Some(write) = write {
                    self.start_write(key, write);
                    return true;
                }
            }
            _ if !may_cache || !log.has_held() => return false,
            _ => {}
        }
        self.write_through_cache(key);
        self.sync_waiting(key);
        true
    }

    fn start_write(&mut self, key: Key, write: log::Write) {
        let log = self.logs.get_mut(&key).expect("the log that began it");
        let log::Write { blocks, descriptor, offset, appended } = write;
        let synced = std::mem::take(&mut log.waiting);
        let serial = log.serial;
        let flight = Flight { key, serial, blocks, descriptor, offset, appended, synced };
        self.counters.writes += 1;
        let job = self.direct.start(flight);
        self.help(job);
    }

    fn handle_written(&mut self, flight: Flight, result: Result<usize, Errno>) {
        let Flight { key, serial, blocks, appended, synced, .. } = flight;
        self.unwritten = true;
        let is_whole = result == Ok(blocks.whole());
        let all = self.log_bytes(key.0);
        let Some(log) = self.logs.get_mut(&key).filter(|log| log.serial == serial) else {
            // Dropped meanwhile: nobody asks for what was in it.
            self.end_all(appended, &Ok(()));
            return self.end_all(synced, &Ok(()));
        };
        match log.end_write(blocks, is_whole, all) {
            Ok(true) => {
                log.waiting.splice(..0, synced);
                self.end_all(appended, &Ok(()));
                self.sync_waiting(key);
            }
            result => {
                let result = result.map(drop);
                self.end_all(appended, &result);
                self.end_all(synced, &result);
            }
        }
    }

    fn write_through_cache(&mut self, key: Key) {
        let all = self.log_bytes(key.0);
        let Some(log) = self.logs.get_mut(&key) else { return };
        let (appended, written) = log.write_held(all);
        self.end_all(appended, &written);
    }

    /// One sync for all who wait for this log.
    fn sync_waiting(&mut self, key: Key) {
        let directory = &self.homes[&key.0].path;
        let is_free = |log: &&mut Log| log.busy == Busy::Nothing && !log.waiting.is_empty();
        let Some(log) = self.logs.get_mut(&key).filter(is_free) else { return };
        if let Some(failure) = log.failure.clone() {
            let waiting = std::mem::take(&mut log.waiting);
            return self.end_all(waiting, &Err(failure.into()));
        }
        log.begin_sync();
        let job = Job::Sync {
            key,
            serial: log.serial,
            tickets: std::mem::take(&mut log.waiting),
            file: log.file.clone(),
            path: log.path.clone(),
            directory: (!log.is_named).then(|| directory.clone()),
        };
        self.counters.syncs += 1;
        self.help(job);
    }

    /// Records the result of a log's sync.
    fn handle_synced(
        &mut self,
        key: Key,
        serial: u64,
        result: Result<(), String>,
    ) -> Result<(), MetaError> {
        let Some(log) = self.logs.get_mut(&key).filter(|log| log.serial == serial) else {
            return Ok(result?); // dropped meanwhile, so that its name may be gone
        };
        log.busy = Busy::Nothing;
        match &result {
            Ok(()) => log.is_named = true,
            // The kernel reports a lost page once and then forgets it: no later sync of this log may succeed.
            Err(reason) => log.failure = Some(reason.clone()),
        }
        let result = result.map_err(MetaError::from).and_then(|()| log.check_name());
        self.unwritten = true;
        if log.failure.is_some() || !log.is_laid_out() {
            self.sync_waiting(key);
        }
        result
    }

    /// Takes the log out of sight at once, so that a later append of its generation starts anew; its bytes are freed
    /// by a helper. Returns what is left to remove.
    fn drop_log(&mut self, directory: &Path, store: StoreId, log: u64) -> Result<PathBuf, String> {
        let (path, gone) = (log_path(directory, store, log), gone_path(directory, store, log));
        match std::fs::rename(&path, &gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(sentence("remove", &path, &error));
            }
            _ => {}
        }
        if let Some(mut log) = self.logs.remove(&(store, log)) {
            // Its records are in the checkpoint: where they were held, or waited to be synced, is all the same.
            let (held, waiting) = (log.take_held(), std::mem::take(&mut log.waiting));
            self.end_all(held, &Ok(()));
            self.end_all(waiting, &Ok(()));
        }
        self.earlier.remove(&(store, log));
        Ok(gone)
    }
}

impl Stores {
    fn take_requests(&mut self, node: &mut Node) -> bool {
        let mut any = false;
        for _ in 0..META_OPS_PER_POLL {
            let Some(request) = node.take_meta() else { break };
            self.start(request);
            any = true;
        }
        any
    }

    fn give_done(&mut self, node: &mut Node) -> bool {
        let mut any = false;
        while let Some(done) = self.next_done() {
            node.meta_done(done);
            any = true;
        }
        any
    }
}

impl Device for Stores {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.helpers.watch(poller)
    }

    fn poll(&mut self, node: &mut Node, _now: Time) -> io::Result<bool> {
        let finished = self.take_finished();
        let moved = self.take_requests(node);
        // Where something has just ended the node is about to ask for the next sync.
        let written = self.write_held(!finished);
        Ok(self.give_done(node) | finished | moved | written)
    }

    fn flush(&mut self, node: &mut Node, _now: Time) -> io::Result<()> {
        if self.take_requests(node) | self.unwritten {
            self.write_held(true);
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        self.is_idle()
    }

    fn before_sleep(&mut self) -> bool {
        self.helpers.before_sleep() | !self.done.is_empty()
    }

    fn after_sleep(&mut self) {
        self.helpers.after_sleep();
    }

    fn stop(&mut self, node: &mut Node) -> io::Result<bool> {
        let moved = self.poll(node, Time::ZERO)?;
        Ok(!moved && self.is_idle())
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.homes.values_mut().for_each(|home| home.next.give_up());
    }
}
