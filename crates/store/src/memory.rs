//! Storage in memory that forgets at a crash what was not synced: the disk under a store in tests and simulations.
//!
//! It is not a model of time: every operation is done at once.

use redb::StorageBackend;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// Source of a crash's decisions: a different number at each call.
pub type Random<'a> = &'a mut dyn FnMut() -> u64;

/// A file in memory. Clones are the same file. A crash or a kill invalidates all handles there are: a store that is
/// about to be dropped cannot change the file any more through one.
#[derive(Clone)]
pub struct MemoryBackend {
    file: Arc<Mutex<File>>,
    generation: u64,
}

#[derive(Default)]
struct File {
    /// The contents that programs see.
    seen: Vec<u8>,
    /// The contents that survive any crash.
    stable: Vec<u8>,
    /// Changes since the last sync.
    pending: Vec<Pending>,
    generation: u64,
    operations_left: Option<u64>,
    syncs: u64,
}

enum Pending {
    Write(usize, Box<[u8]>),
    Resize(usize),
}

impl MemoryBackend {
    /// An empty file.
    #[allow(clippy::new_without_default)]
    pub fn new() -> MemoryBackend {
        MemoryBackend { file: Arc::new(Mutex::new(File::default())), generation: 0 }
    }

    /// A file with these bytes, all of them on stable storage.
    pub fn with(bytes: Vec<u8>) -> MemoryBackend {
        let file = File { seen: bytes.clone(), stable: bytes, ..File::default() };
        MemoryBackend { file: Arc::new(Mutex::new(file)), generation: 0 }
    }

    /// All bytes, as programs see them.
    pub fn contents(&self) -> Vec<u8> {
        self.lock().seen.clone()
    }

    /// The power fails: of what was not synced some is there and some is not, whole sectors in any combination.
    /// Returns the handle of the next generation.
    pub fn crash(&self, random: Random<'_>) -> MemoryBackend {
        let mut file = self.lock();
        file.crash(random);
        self.next_generation(&mut file)
    }

    /// The program is killed: nothing is lost that was written. Returns the handle of the next generation.
    pub fn kill(&self) -> MemoryBackend {
        self.next_generation(&mut self.lock())
    }

    /// After so many more writes, resizes and syncs every operation fails, until [`heal`](MemoryBackend::heal).
    pub fn fail_after(&self, operations: u64) {
        self.lock().operations_left = Some(operations);
    }

    /// Operations work again.
    pub fn heal(&self) {
        self.lock().operations_left = None;
    }

    /// How often it was synced.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    fn next_generation(&self, file: &mut File) -> MemoryBackend {
        file.generation += 1;
        file.operations_left = None;
        MemoryBackend { file: self.file.clone(), generation: file.generation }
    }

    fn lock(&self) -> MutexGuard<'_, File> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, for an operation that counts or not.
    fn operate(&self, counts: bool) -> io::Result<MutexGuard<'_, File>> {
        let mut file = self.lock();
        if file.generation != self.generation {
            return Err(io::Error::other("this handle ended with a crash"));
        }
        if file.operations_left == Some(0) {
            return Err(io::Error::other("the disk fails as it was told to"));
        }
        if counts {
            file.operations_left = file.operations_left.map(|left| left - 1);
        }
        Ok(file)
    }
}

impl File {
    fn change(&mut self, change: Pending) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        pending.iter().for_each(|change| change.apply(&mut self.stable));
        self.syncs += 1;
    }

    fn crash(&mut self, random: Random<'_>) {
        let mut pending = std::mem::take(&mut self.pending);
        match random() % 4 {
            0 => pending.clear(),
            1 => pending.truncate(random() as usize % (pending.len() + 1)),
            2 => pending = sectors(pending).filter(|_| random().is_multiple_of(2)).collect(),
            _ => {}
        }
        pending.iter().for_each(|change| change.apply(&mut self.stable));
        self.seen.clone_from(&self.stable);
    }
}

impl Pending {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Pending::Write(at, data) => {
                bytes.resize(bytes.len().max(at + data.len()), 0);
                bytes[*at..at + data.len()].copy_from_slice(data);
            }
            Pending::Resize(len) => bytes.resize(*len, 0),
        }
    }
}

/// The same changes with each write cut at the borders of sectors.
fn sectors(pending: Vec<Pending>) -> impl Iterator<Item = Pending> {
    pending.into_iter().flat_map(|change| match change {
        Pending::Resize(_) => vec![change],
        Pending::Write(at, data) => cut(at, &data),
    })
}

fn cut(mut at: usize, mut data: &[u8]) -> Vec<Pending> {
    let mut pieces = Vec::new();
    while !data.is_empty() {
        let bytes = data.len().min(SECTOR_BYTES - at % SECTOR_BYTES);
        let (piece, rest) = data.split_at(bytes);
        pieces.push(Pending::Write(at, piece.into()));
        (at, data) = (at + bytes, rest);
    }
    pieces
}

impl StorageBackend for MemoryBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.operate(false)?.seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let file = self.operate(false)?;
        let bytes = file.seen.get(offset as usize..).and_then(|rest| rest.get(..out.len()));
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.operate(true)?.change(Pending::Resize(len as usize));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(true)?.sync();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.operate(true)?.change(Pending::Write(offset as usize, data.into()));
        Ok(())
    }
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.lock();
        write!(f, "MemoryBackend({} bytes, {} not synced)", file.seen.len(), file.pending.len())
    }
}

/// The logs of one store in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryLogs {
    logs: BTreeMap<u64, Log>,
    /// Removed since the last sync: a crash may bring them back.
    removed: BTreeMap<u64, Log>,
}

#[derive(Clone, Debug, Default)]
struct Log {
    bytes: Vec<u8>,
    synced: usize,
}

impl MemoryLogs {
    /// No log.
    pub fn new() -> MemoryLogs {
        MemoryLogs::default()
    }

    /// Appends to the log of this generation, creating it.
    pub fn append(&mut self, log: u64, bytes: &[u8]) {
        self.logs.entry(log).or_default().bytes.extend_from_slice(bytes);
    }

    /// Everything in this log, and what was removed before, is on stable storage.
    pub fn sync(&mut self, log: u64) {
        if let Some(log) = self.logs.get_mut(&log) {
            log.synced = log.bytes.len();
        }
        self.removed.clear();
    }

    /// Removes the log of this generation.
    pub fn remove(&mut self, log: u64) {
        self.removed.extend(self.logs.remove(&log).map(|bytes| (log, bytes)));
    }

    /// The power fails: each log keeps what was synced and any part of the rest, and removed logs may be back. One that
    /// was laid out has zeros behind.
    pub fn crash(&mut self, random: Random<'_>) {
        for (generation, log) in std::mem::take(&mut self.removed) {
            if random().is_multiple_of(2) {
                self.logs.insert(generation, log);
            }
        }
        self.logs.values_mut().for_each(|log| log.crash(random));
    }

    /// All logs, as [`Store::open`](crate::Store::open) takes them.
    pub fn contents(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.logs.iter().map(|(generation, log)| (*generation, log.bytes.clone()))
    }

    /// A log has these bytes from now on, all of them on stable storage.
    pub fn put(&mut self, log: u64, bytes: Vec<u8>) {
        self.removed.remove(&log);
        let synced = bytes.len();
        self.logs.insert(log, Log { bytes, synced });
    }

    /// The log is gone, and no crash brings it back.
    pub fn lose(&mut self, log: u64) {
        self.logs.remove(&log);
    }

    /// The bytes of one log, to damage them.
    pub fn bytes_mut(&mut self, log: u64) -> Option<&mut Vec<u8>> {
        self.logs.get_mut(&log).map(|log| &mut log.bytes)
    }
}

impl Log {
    fn crash(&mut self, random: Random<'_>) {
        let kept = random() as usize % (self.bytes.len() - self.synced + 1);
        self.bytes.truncate(self.synced + kept);
        if kept > 0 && random().is_multiple_of(2) {
            let from = self.synced + random() as usize % kept;
            let to = (from + SECTOR_BYTES).min(self.bytes.len());
            self.bytes[from..to].fill(0);
        }
        let laid_out = self.bytes.len() / 8 % 3 * SECTOR_BYTES;
        self.bytes.resize(self.bytes.len() + laid_out, 0);
        self.synced = self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &MemoryBackend) -> Vec<u8> {
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn synced_bytes_survive_every_crash_and_the_rest_may_not() {
        let mut left = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let file = MemoryBackend::new();
            file.write(0, b"stable").unwrap();
            file.sync_data().unwrap();
            file.write(6, b" or not").unwrap();
            let mut state = seed;
            let mut random = || {
                state += 1;
                state / 3
            };
            let after = file.crash(&mut random);
            assert!(file.write(0, b"x").is_err(), "the old generation is over");
            left.insert(read(&after));
        }
        assert_eq!(
            left.into_iter().collect::<Vec<_>>(),
            [b"stable".to_vec(), b"stable or not".to_vec()]
        );
    }

    #[test]
    fn a_kill_loses_nothing() {
        let file = MemoryBackend::new();
        file.write(3, b"abc").unwrap();
        assert_eq!(read(&file.kill()), b"\0\0\0abc");
    }

    #[test]
    fn a_disk_fails_when_told_and_heals() {
        let file = MemoryBackend::new();
        file.fail_after(1);
        file.write(0, b"a").unwrap();
        assert!(file.sync_data().is_err());
        assert!(file.len().is_err());
        file.heal();
        file.sync_data().unwrap();
        assert_eq!(read(&file), b"a");
    }
}
