//! The stores of a node: executes the entries of its meta ring on files.
//!
//! An append is a plain write by the node's own thread: it lands in the host's memory, which survives a kill of this
//! process and costs less than a helper's wake. Work that waits for the disk (syncs, checkpoints, removals) is done by
//! helpers. Syncs of one log that come while one is under way share the next.
//!
//! No change of names is acknowledged in a log that was removed, nor is a log made in another directory than the one
//! that the node began with: each append and each sync ends with a look at whether the log still has a name (fstat),
//! each checkpoint at whether the database has, since its logs go when it succeeds. Reads of a database that was
//! removed go on, and the open log of members still takes appends: a node that cannot become a member can neither ask
//! what is wrong nor copy the files elsewhere.
//!
//! It does not know what logs and checkpoints hold.

mod files;
mod log;
mod reserve;

pub use files::{FileBackend, LoadError, Loaded, exists, load};

use crate::device::Poller;
use crate::helpers::{Helpers, Work};
use crate::host::Device;
use crate::limits::{
    META_HELPERS, META_OPS_PER_POLL, META_RESERVE_LOOK_APPENDS, META_RESERVE_LOOK_BYTES,
};
use files::{
    Home, database_path, gone_path, has_name, log_lengths, log_path, remove, removed, sentence,
    sync_directory,
};
use log::Log;
use node::Node;
use node::rings::{MetaDone, MetaError, MetaOp, MetaRequest, MetaRoom, MetaWork, StoreId, Ticket};
use reserve::Reserve;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Time;

/// The files of a node's stores. Belongs to the node's thread.
pub struct Stores {
    homes: BTreeMap<StoreId, Home>,
    /// How much room each had, as far as was seen.
    rooms: BTreeMap<StoreId, MetaRoom>,
    logs: BTreeMap<(StoreId, u64), Log>,
    /// Bytes of logs that were there at the start.
    earlier: BTreeMap<(StoreId, u64), u64>,
    helpers: Helpers<Job>,
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
            logs: BTreeMap::new(),
            earlier: BTreeMap::new(),
            helpers: Helpers::start("meta", META_HELPERS)?,
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
                let result = self.append(store, log, &bytes);
                self.note_room(store, bytes.len() as u64, &result);
                self.end(ticket, result);
            }
            MetaOp::Sync { log } => {
                if let Err(reason) = self.sync(ticket, store, log) {
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
    }

    /// Takes what the helpers finished; whether there was anything.
    pub fn turn(&mut self) -> bool {
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
                    tickets.into_iter().for_each(|ticket| self.end(ticket, result.clone()));
                }
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
        self.under_way == 0 && self.done.is_empty()
    }

    fn end(&mut self, ticket: Ticket, result: Result<(), impl Into<MetaError>>) {
        let room = self.room(StoreId::Names);
        self.done.push_back(MetaDone { ticket, result: result.map_err(Into::into), room });
    }

    fn help(&mut self, job: Job) {
        self.under_way += 1;
        self.helpers.submit(job);
    }

    /// The log, opened; without `create` only when there is one.
    fn log(
        &mut self,
        store: StoreId,
        log: u64,
        create: bool,
    ) -> Result<Option<&mut Log>, MetaError> {
        if !self.logs.contains_key(&(store, log)) {
            self.serial += 1;
            let home = &self.homes[&store];
            home.check()?;
            let path = log_path(&home.path, store, log);
            let strict = store == StoreId::Names;
            let reserve = Reserve::of(&home.path, store);
            let opened = Log::open(&path, self.serial, create, strict, reserve)?;
            let Some(opened) = opened else { return Ok(None) };
            self.logs.insert((store, log), opened);
        }
        Ok(self.logs.get_mut(&(store, log)))
    }

    fn append(&mut self, store: StoreId, log: u64, bytes: &[u8]) -> Result<(), MetaError> {
        let all = self.log_bytes(store);
        let log = self.log(store, log, true)?.expect("created when there was none");
        log.append(bytes, all)
    }

    fn sync(&mut self, ticket: Ticket, store: StoreId, log: u64) -> Result<(), MetaError> {
        let Some(entry) = self.log(store, log, false)? else {
            self.end(ticket, Ok::<(), MetaError>(())); // nothing was ever appended to it
            return Ok(());
        };
        if let Some(failure) = &entry.failure {
            return Err(failure.clone().into());
        }
        entry.waiting.push(ticket);
        if !entry.is_syncing {
            self.sync_waiting((store, log));
        }
        Ok(())
    }

    /// One sync for all who wait for this log.
    fn sync_waiting(&mut self, key: (StoreId, u64)) {
        let directory = &self.homes[&key.0].path;
        let Some(log) = self.logs.get_mut(&key).filter(|log| !log.waiting.is_empty()) else {
            return;
        };
        log.is_syncing = true;
        let job = Job::Sync {
            key,
            serial: log.serial,
            tickets: std::mem::take(&mut log.waiting),
            file: log.file.clone(),
            path: log.path.clone(),
            directory: (!log.is_named).then(|| directory.clone()),
        };
        self.help(job);
    }

    /// Records the result of a log's sync.
    fn handle_synced(
        &mut self,
        key: (StoreId, u64),
        serial: u64,
        result: Result<(), String>,
    ) -> Result<(), MetaError> {
        let Some(log) = self.logs.get_mut(&key).filter(|log| log.serial == serial) else {
            return Ok(result?); // dropped meanwhile, so that its name may be gone
        };
        log.is_syncing = false;
        match &result {
            Ok(()) => log.is_named = true,
            // The kernel reports a lost page once and then forgets it: no later sync of this log may succeed.
            Err(reason) => log.failure = Some(reason.clone()),
        }
        let result = result.map_err(MetaError::from).and_then(|()| log.check_name());
        if let Some(failure) = log.failure.clone() {
            let waiting = std::mem::take(&mut log.waiting);
            waiting.into_iter().for_each(|ticket| self.end(ticket, Err(failure.clone())));
        }
        self.sync_waiting(key);
        result
    }

    /// Takes the log out of sight at once, so that a later append of its generation starts anew; its bytes are freed
    /// by a helper. Returns what is left to remove.
    fn drop_log(&mut self, directory: &Path, store: StoreId, log: u64) -> Result<PathBuf, String> {
        self.sync_waiting((store, log));
        let (path, gone) = (log_path(directory, store, log), gone_path(directory, store, log));
        match std::fs::rename(&path, &gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(sentence("remove", &path, &error));
            }
            _ => {}
        }
        self.logs.remove(&(store, log));
        self.earlier.remove(&(store, log));
        Ok(gone)
    }
}

/// Work of a helper.
enum Job {
    Sync {
        key: (StoreId, u64),
        serial: u64,
        tickets: Vec<Ticket>,
        file: Arc<File>,
        path: PathBuf,
        /// To be synced too, for the log's name.
        directory: Option<PathBuf>,
    },
    Checkpoint {
        ticket: Ticket,
        store: StoreId,
        work: Box<dyn MetaWork>,
        /// The database that it goes into.
        file: Option<Arc<File>>,
        path: PathBuf,
    },
    Remove {
        ticket: Ticket,
        store: StoreId,
        path: PathBuf,
    },
}

enum Finished {
    One { ticket: Ticket, store: StoreId, result: Result<(), String> },
    Sync { key: (StoreId, u64), serial: u64, tickets: Vec<Ticket>, result: Result<(), String> },
}

impl Work for Job {
    type Done = Finished;

    fn run(self) -> Finished {
        match self {
            Job::Sync { key, serial, tickets, file, path, directory } => {
                let result = file.sync_data().map_err(|error| sentence("sync", &path, &error));
                let result = result.and_then(|()| match directory {
                    Some(directory) => sync_directory(&directory),
                    None => Ok(()),
                });
                Finished::Sync { key, serial, tickets, result }
            }
            Job::Checkpoint { ticket, store, work, file, path } => {
                let kept = |()| {
                    if file.is_none_or(|file| has_name(&file)) {
                        Ok(())
                    } else {
                        Err(removed(&path))
                    }
                };
                Finished::One { ticket, store, result: work.run().and_then(kept) }
            }
            Job::Remove { ticket, store, path } => {
                Finished::One { ticket, store, result: remove(&path) }
            }
        }
    }
}

impl Device for Stores {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.helpers.watch(poller)
    }

    fn poll(&mut self, node: &mut Node, _now: Time) -> io::Result<bool> {
        let mut moved = self.turn();
        for _ in 0..META_OPS_PER_POLL {
            let Some(request) = node.take_meta() else { break };
            self.start(request);
            moved = true;
        }
        while let Some(done) = self.next_done() {
            node.meta_done(done);
            moved = true;
        }
        Ok(moved)
    }

    fn is_quiet(&self) -> bool {
        self.is_idle()
    }

    fn before_sleep(&mut self) -> bool {
        self.helpers.before_sleep()
    }

    fn after_sleep(&mut self) {
        self.helpers.after_sleep();
    }

    fn stop(&mut self, node: &mut Node) -> io::Result<bool> {
        let moved = self.poll(node, Time::ZERO)?;
        Ok(!moved && self.is_idle())
    }
}
