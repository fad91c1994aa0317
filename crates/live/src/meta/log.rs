//! One log of a store: written by the node's thread, synced by helpers or by its writes themselves.
//!
//! A log that was *laid out* before is a file of zeros on stable storage, over which records are written in whole
//! blocks: neither its length nor its place on the disk changes, so that a write past the host's cache with O_DSYNC is
//! all that a sync takes. Records that no sync is awaited for are written through the host's cache, as in a log that
//! was not laid out; the next sync is an fdatasync then. A record that comes while a sync is awaited is *held* until
//! both leave together. Where a log grows beyond what was laid out, it goes on as one that was not.

use super::blocks::Blocks;
use super::files::{failed, has_name, removed, sentence};
use super::reserve::Reserve;
use super::spare::{self, Spare};
use node::rings::{MetaError, Ticket};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::limits::BLOCK_BYTES;

/// A log that was appended to or synced in this incarnation of the process.
///
/// Invariant: the file holds whole appends and zeros only, or `failure` says why not.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    /// Tells this file from an earlier one of the same generation.
    pub(super) serial: u64,
    /// Whether its name is on stable storage.
    pub(super) is_named: bool,
    /// What is under way.
    pub(super) busy: Busy,
    /// Requests that came while a sync was under way, which may miss what they wait for.
    pub(super) waiting: Vec<Ticket>,
    /// Syncs that it was asked for.
    pub(super) syncs: u32,
    /// Why nothing can be promised of it any more.
    pub(super) failure: Option<String>,
    /// Whether nothing is promised of it once it is removed.
    must_have_name: bool,
    /// End of the records that are written.
    bytes: u64,
    laid_out: Option<LaidOut>,
    reserve: Arc<Reserve>,
}

/// What a log does besides taking records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Busy {
    #[default]
    Nothing,
    /// A helper syncs it.
    Syncing,
    /// A write past the host's cache is under way.
    Writing,
}

/// How a log that was laid out before is written.
#[derive(Debug)]
struct LaidOut {
    /// Its length.
    end: u64,
    /// For writes past the host's cache.
    direct: Arc<OwnedFd>,
    /// The block that the next record begins in, up to there.
    tail: Blocks,
    /// Records that are to be written, and their requests.
    held: Vec<u8>,
    appended: Vec<Ticket>,
    /// Whether something was written through the host's cache since a sync began.
    is_cached: bool,
    /// Whether a write past the host's cache has failed here.
    is_refused: bool,
}

/// Whether a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    Written,
    /// It is written with the next sync, or soon.
    Held,
}

/// Blocks to be written past the host's cache.
pub(super) struct Write {
    pub(super) blocks: Blocks,
    pub(super) descriptor: Arc<OwnedFd>,
    pub(super) offset: u64,
    pub(super) appended: Vec<Ticket>,
}

/// How a log is opened.
pub(super) struct Opening<'a> {
    pub(super) path: &'a Path,
    pub(super) serial: u64,
    /// Else only when there is one.
    pub(super) create: bool,
    pub(super) must_have_name: bool,
    pub(super) reserve: Reserve,
    /// A file that was laid out, to become the log if there is none.
    pub(super) spare: Option<Spare>,
}

impl Log {
    /// Opens the log; `None` where there is none and none is to be made.
    pub(super) fn open(opening: Opening<'_>) -> Result<Option<Log>, MetaError> {
        let Opening { path, serial, create, must_have_name, reserve, spare } = opening;
        let laid_out = spare.and_then(|spare| spare::put_to_use(spare, path)).map(LaidOut::new);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(create).truncate(false).mode(0o600);
        let fail = |error| failed("open", path, &error);
        let file = match reserve.for_log(0, || options.open(path)) {
            Err(error) if !create && error.kind() == io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(fail)?,
        };
        let bytes = match &laid_out {
            Some(_) => 0,
            None => file.metadata().map_err(fail)?.len(),
        };
        Ok(Some(Log {
            file: Arc::new(file),
            path: path.to_owned(),
            serial,
            is_named: false,
            busy: Busy::Nothing,
            waiting: Vec::new(),
            syncs: 0,
            failure: None,
            must_have_name,
            bytes,
            laid_out,
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

    /// Appends all of `record` or nothing. It is in the host's memory then, where a kill of the process leaves it, or
    /// held. All logs of the store together have `all` bytes.
    pub(super) fn append(
        &mut self,
        ticket: Ticket,
        record: &[u8],
        all: u64,
    ) -> Result<Appended, MetaError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone().into());
        }
        if let Some(laid_out) = &mut self.laid_out {
            laid_out.held.extend_from_slice(record);
            laid_out.appended.push(ticket);
            return Ok(Appended::Held);
        }
        let (file, bytes) = (self.file.clone(), self.bytes);
        let reserve = self.reserve.clone();
        match reserve.for_log(all, || self.keep_whole(file.write_all_at(record, bytes))) {
            Ok(()) => {
                self.bytes += record.len() as u64;
                self.check_name().map(|()| Appended::Written)
            }
            Err(error) => Err(failed("append to", &self.path, &error)),
        }
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.laid_out.as_ref().map_or(0, |laid_out| laid_out.held.len() as u64)
    }

    /// Whether it was laid out, and is not longer than that.
    pub fn is_laid_out(&self) -> bool {
        self.laid_out.is_some()
    }

    /// Whether there are records that are not written, and not under way.
    pub fn has_held(&self) -> bool {
        self.laid_out.as_ref().is_some_and(|laid_out| !laid_out.appended.is_empty())
    }

    /// Whether some of them are to be written although no sync is awaited, or as soon as one is.
    pub fn is_unwritten(&self) -> bool {
        let is_free = match self.busy {
            Busy::Nothing => true,
            Busy::Syncing => self.waiting.is_empty(),
            Busy::Writing => false,
        };
        is_free && self.has_held()
    }

    /// The requests of records that are held, which nothing will be done about.
    pub fn take_held(&mut self) -> Vec<Ticket> {
        self.laid_out.take().map(|laid_out| laid_out.appended).unwrap_or_default()
    }

    /// All that is not on stable storage as one write past the host's cache, if that is possible now.
    pub fn begin_write(&mut self) -> Option<Write> {
        let can = self.is_named && self.failure.is_none() && self.busy == Busy::Nothing;
        let laid_out = self.laid_out.as_mut().filter(|_| can)?;
        let end = self.bytes + laid_out.held.len() as u64;
        if laid_out.is_cached || laid_out.is_refused || end > laid_out.end {
            return None;
        }
        if laid_out.appended.is_empty() {
            return None;
        }
        let offset = self.bytes - laid_out.tail.len() as u64;
        laid_out.tail.extend(&std::mem::take(&mut laid_out.held));
        self.busy = Busy::Writing;
        Some(Write {
            blocks: std::mem::take(&mut laid_out.tail),
            descriptor: laid_out.direct.clone(),
            offset,
            appended: std::mem::take(&mut laid_out.appended),
        })
    }

    /// The write has ended. One that failed or was short is made again through the host's cache; whether it must be
    /// synced then. All logs of the store together have `all` bytes.
    pub fn end_write(
        &mut self,
        blocks: Blocks,
        is_whole: bool,
        all: u64,
    ) -> Result<bool, MetaError> {
        assert!(self.busy == Busy::Writing, "a write ends that was begun");
        self.busy = Busy::Nothing;
        let laid_out = self.laid_out.as_mut().expect("a log that is being written is laid out");
        laid_out.tail = blocks;
        if is_whole {
            self.bytes =
                self.bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64 + laid_out.tail.len() as u64;
            laid_out.tail.drop_full();
            return self.check_name().map(|()| false);
        }
        laid_out.is_refused = true;
        self.write_tail(all).map(|()| true)
    }

    /// Writes what is held through the host's cache. The requests that this ends, and how.
    pub fn write_held(&mut self, all: u64) -> (Vec<Ticket>, Result<(), MetaError>) {
        let Some(laid_out) = &mut self.laid_out else { return (Vec::new(), Ok(())) };
        let appended = std::mem::take(&mut laid_out.appended);
        laid_out.tail.extend(&std::mem::take(&mut laid_out.held));
        let written = match self.failure.clone() {
            Some(failure) => Err(failure.into()),
            None => self.write_tail(all),
        };
        (appended, written)
    }

    /// A sync is about to begin that covers all that is written.
    pub fn begin_sync(&mut self) {
        self.busy = Busy::Syncing;
        if let Some(laid_out) = &mut self.laid_out {
            laid_out.is_cached = false;
        }
    }

    fn write_tail(&mut self, all: u64) -> Result<(), MetaError> {
        let laid_out = self.laid_out.as_mut().expect("only of a log that was laid out");
        let tail = std::mem::take(&mut laid_out.tail);
        let offset = self.bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let end = offset + tail.len() as u64;
        let is_longer = end > laid_out.end;
        let written = if is_longer { &tail.as_slice()[..tail.len()] } else { tail.as_slice() };
        let (file, reserve) = (self.file.clone(), self.reserve.clone());
        let write = || self.keep_whole(file.write_all_at(written, offset));
        if let Err(error) = reserve.for_log(all, write) {
            self.laid_out = None;
            return Err(failed("append to", &self.path, &error));
        }
        self.bytes = end;
        match self.laid_out.as_mut().filter(|_| !is_longer) {
            Some(laid_out) => {
                laid_out.tail = tail;
                laid_out.tail.drop_full();
                laid_out.is_cached = true;
            }
            None => self.laid_out = None,
        }
        self.check_name()
    }

    /// Later appends must not follow half a record.
    fn keep_whole(&mut self, written: io::Result<()>) -> io::Result<()> {
        if written.is_err()
            && let Err(error) = self.file.set_len(self.bytes)
        {
            let failure = sentence("cut half a record off", &self.path, &error);
            return Err(io::Error::other(self.failure.insert(failure).clone()));
        }
        written
    }
}

impl LaidOut {
    fn new((direct, end): (Arc<OwnedFd>, u64)) -> LaidOut {
        LaidOut {
            end,
            direct,
            tail: Blocks::default(),
            held: Vec::new(),
            appended: Vec::new(),
            is_cached: false,
            is_refused: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::rings::StoreId;
    use tempfile::TempDir;

    const LAID_OUT: u64 = 1 << 20;

    fn laid_out(directory: &Path) -> Option<Log> {
        let spare = spare::lay_out(&spare::path(directory, StoreId::Names), LAID_OUT);
        let path = directory.join("names.log.1");
        let opened = Log::open(Opening {
            path: &path,
            serial: 1,
            create: true,
            must_have_name: true,
            reserve: Reserve::of(directory, StoreId::Names),
            spare: Some(spare.ok()?),
        });
        Some(opened.unwrap().unwrap())
    }

    fn held(log: &mut Log, byte: u8, bytes: usize) -> Vec<u8> {
        let record = vec![byte; bytes];
        assert_eq!(log.append(Ticket(1), &record, 0), Ok(Appended::Held));
        record
    }

    /// The disk took the write, or it failed, or some of it was written: the log has its records once and in order.
    #[test]
    fn a_write_that_fails_is_made_again_through_the_cache() {
        for written in [usize::MAX, 0, 100, 4096] {
            let temporary = TempDir::new().unwrap();
            let Some(mut log) = laid_out(temporary.path()) else {
                return rig::skip("no files past the host's cache here");
            };
            log.is_named = true;
            let mut all = held(&mut log, 1, 5000);
            assert!(log.write_held(0).1.is_ok());
            assert!(log.begin_write().is_none(), "what is in the cache is for fdatasync");
            log.begin_sync();
            log.busy = Busy::Nothing;
            for round in 0..3 {
                all.extend(held(&mut log, 2 + round, 3000));
                let Some(write) = log.begin_write() else {
                    assert!(round > 0 && written != usize::MAX);
                    assert!(log.write_held(0).1.is_ok());
                    continue;
                };
                let some = &write.blocks.as_slice()[..written.min(write.blocks.whole())];
                log.file.write_all_at(some, write.offset).unwrap();
                let is_whole = written == usize::MAX;
                assert_eq!(log.end_write(write.blocks, is_whole, 0), Ok(!is_whole));
            }
            let found = std::fs::read(&log.path).unwrap();
            assert_eq!(log.bytes(), all.len() as u64);
            assert_eq!(found.len() as u64, LAID_OUT);
            assert!(found.starts_with(&all) && found[all.len()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_log_grows_beyond_what_was_laid_out() {
        let temporary = TempDir::new().unwrap();
        let Some(mut log) = laid_out(temporary.path()) else {
            return rig::skip("no files past the host's cache here");
        };
        log.is_named = true;
        let mut all = held(&mut log, 1, LAID_OUT as usize - 3);
        all.extend(held(&mut log, 2, 10));
        assert!(log.begin_write().is_none(), "not beyond its end");
        assert!(log.write_held(0).1.is_ok() && !log.is_laid_out());
        all.extend([3; 20]);
        assert_eq!(log.append(Ticket(1), &[3; 20], 0), Ok(Appended::Written));
        assert!(std::fs::read(&log.path).unwrap() == all);
    }
}
