//! What helpers do for stores.

use super::Key;
use super::files::{has_name, remove, removed, sentence, sync_directory};
use super::spare::{self, Spare};
use crate::disk::Transfer;
use crate::helpers::Work;
use node::rings::{MetaWork, StoreId, Ticket};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Work of a helper.
pub(super) enum Job {
    Sync {
        key: Key,
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
    Write {
        slot: usize,
        transfer: Transfer,
    },
    LayOut {
        store: StoreId,
        path: PathBuf,
        bytes: u64,
    },
}

/// What came of it.
pub(super) enum Finished {
    One { ticket: Ticket, store: StoreId, result: Result<(), String> },
    Sync { key: Key, serial: u64, tickets: Vec<Ticket>, result: Result<(), String> },
    Written { slot: usize, result: Result<usize, Errno> },
    LaidOut { store: StoreId, result: io::Result<Spare> },
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
            Job::Write { slot, transfer } => Finished::Written { slot, result: transfer.run() },
            Job::LayOut { store, path, bytes } => {
                Finished::LaidOut { store, result: spare::lay_out(&path, bytes) }
            }
        }
    }
}
