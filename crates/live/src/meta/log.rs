//! One log of a store: appended to by the node's thread, synced by helpers.

use super::files::{failed, has_name, removed, sentence};
use super::reserve::Reserve;
use node::rings::{MetaError, Ticket};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log that was appended to or synced in this incarnation of the process.
///
/// Invariant: the file holds whole appends only, or `failure` says why not.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    /// Tells this file from an earlier one of the same generation.
    pub(super) serial: u64,
    /// Whether its name is on stable storage.
    pub(super) is_named: bool,
    /// Whether a helper syncs it.
    pub(super) is_syncing: bool,
    /// Requests that came while a sync was under way, which may miss what they wait for.
    pub(super) waiting: Vec<Ticket>,
    /// Why nothing can be promised of it any more.
    pub(super) failure: Option<String>,
    /// Whether nothing is promised of it once it is removed.
    must_have_name: bool,
    bytes: u64,
    reserve: Arc<Reserve>,
}

impl Log {
    /// Opens the log in `path`; without `create` only when there is one.
    pub(super) fn open(
        path: &Path,
        serial: u64,
        create: bool,
        must_have_name: bool,
        reserve: Reserve,
    ) -> Result<Option<Log>, MetaError> {
        let mut options = OpenOptions::new();
        let options = options.append(true).create(create).mode(0o600);
        let fail = |error| failed("open", path, &error);
        let file = match reserve.for_log(0, || options.open(path)) {
            Err(error) if !create && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(fail)?,
        };
        let bytes = file.metadata().map_err(fail)?.len();
        Ok(Some(Log {
            file: Arc::new(file),
            path: path.to_owned(),
            serial,
            is_named: false,
            is_syncing: false,
            waiting: Vec::new(),
            failure: None,
            must_have_name,
            bytes,
            reserve: Arc::new(reserve),
        }))
    }

    /// An error when it was removed: the next incarnation would not find it.
    pub(super) fn check_name(&mut self) -> Result<(), MetaError> {
        if !self.must_have_name || has_name(&self.file) {
            return Ok(());
        }
        Err(self.failure.insert(removed(&self.path)).clone().into())
    }

    /// Appends all of `record` or nothing. It is in the host's memory then, where a kill of the process leaves it.
    /// All logs of the store together have `all` bytes.
    pub(super) fn append(&mut self, record: &[u8], all: u64) -> Result<(), MetaError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        let reserve = self.reserve.clone();
        match reserve.for_log(all, || self.write(record)) {
            Ok(()) => {
                self.bytes += record.len() as u64;
                self.check_name()
            }
            Err(error) => Err(failed("append to", &self.path, &error)),
        }
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn write(&mut self, record: &[u8]) -> io::Result<()> {
        let written = (&*self.file).write_all(record);
        if written.is_err() {
            // Later appends must not follow half a record.
            if let Err(error) = self.file.set_len(self.bytes) {
                let failure = sentence("cut half a record off", &self.path, &error);
                return Err(io::Error::other(self.failure.insert(failure).clone()));
            }
        }
        written
    }
}
