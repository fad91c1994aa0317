//! The files behind a store: a database and numbered logs beside it, in one directory.
//!
//! ```text
//! names.redb          the checkpoint; locked while a process has the store open
//! names.log.17        changes since, by generation
//! names.log.16.gone   a log on its way out
//! names.log.spare     zeros, laid out to be the next log
//! ```

use super::reserve::{Reserve, is_full};
use super::spare::{self, Next};
use node::rings::{MetaError, StoreId};
use redb::StorageBackend;
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at once in search of the end of a log.
const ZEROS_READ: usize = 64 << 10;

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Another process has it.
    #[error("{0} is in use by another process; stop it or choose another directory")]
    InUse(PathBuf),
    /// A file or the directory cannot be used.
    #[error("{0}")]
    Failed(String),
}

/// The parts that a store is opened from.
#[derive(Debug)]
pub struct Loaded {
    /// The checkpoint.
    pub backend: FileBackend,
    /// Generation and contents of every log, in ascending order.
    pub logs: Vec<(u64, Vec<u8>)>,
}

/// A failed operation on `path` as a sentence that says what to do.
pub(super) fn sentence(what: &str, path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            format!("cannot {what} {path}: the disk is full; free some space on it")
        }
        Some(libc::EROFS) => {
            format!("cannot {what} {path}: the file system is read-only; remount it writable")
        }
        Some(libc::EACCES | libc::EPERM) => {
            format!("cannot {what} {path}: this user may not; change its owner or permissions")
        }
        _ => format!("cannot {what} {path}: {error}"),
    }
}

/// As [`sentence`], and whether it was for want of room.
pub(super) fn failed(what: &str, path: &Path, error: &io::Error) -> MetaError {
    let full = is_full(error);
    MetaError { full, reason: sentence(what, path, error) }
}

/// How a store's files begin.
pub(super) fn stem(store: StoreId) -> &'static str {
    match store {
        StoreId::Names => "names",
        StoreId::Members => "members",
    }
}

/// Where the database is.
pub(super) fn database_path(directory: &Path, store: StoreId) -> PathBuf {
    directory.join(format!("{}.redb", stem(store)))
}

/// Where a log is.
pub(super) fn log_path(directory: &Path, store: StoreId, log: u64) -> PathBuf {
    directory.join(format!("{}.log.{log}", stem(store)))
}

/// Where a log is moved to before it is removed.
pub(super) fn gone_path(directory: &Path, store: StoreId, log: u64) -> PathBuf {
    directory.join(format!("{}.log.{log}.gone", stem(store)))
}

/// Whether a store was ever opened in `directory`.
pub fn exists(directory: &Path, store: StoreId) -> bool {
    database_path(directory, store).exists()
}

/// Opens what is behind `store` in `directory`, which must exist; makes the database's file when there is none. The
/// store is this process's until the backend is closed or dropped.
pub fn load(directory: &Path, store: StoreId) -> Result<Loaded, LoadError> {
    let reserve = Reserve::of(directory, store);
    let backend = FileBackend::open(&database_path(directory, store), reserve)?;
    sync_directory(directory).map_err(LoadError::Failed)?;
    // Half laid out, maybe.
    remove(&spare::path(directory, store)).map_err(LoadError::Failed)?;
    let mut generations = Vec::new();
    for name in names(directory)? {
        match name.ends_with(".gone") && name.starts_with(&log_prefix(store)) {
            true => remove(&directory.join(&name)).map_err(LoadError::Failed)?,
            false => generations.extend(generation(store, &name)),
        }
    }
    generations.sort_unstable();
    let logs = generations.into_iter().map(|log| {
        let path = log_path(directory, store, log);
        let bytes = std::fs::read(&path).map_err(|e| sentence("read", &path, &e));
        Ok((log, bytes.map_err(LoadError::Failed)?))
    });
    Ok(Loaded { backend, logs: logs.collect::<Result<_, LoadError>>()? })
}

fn log_prefix(store: StoreId) -> String {
    format!("{}.log.", stem(store))
}

/// The generation of the log of this name.
fn generation(store: StoreId, name: &str) -> Option<u64> {
    name.strip_prefix(&log_prefix(store))?.parse().ok()
}

/// Generation and length of the logs in a directory, without zeros that were laid out; of those that can be read.
pub(super) fn log_lengths(directory: &Path, store: StoreId) -> impl Iterator<Item = (u64, u64)> {
    let names = names(directory).unwrap_or_default().into_iter();
    names.filter_map(move |name| Some((generation(store, &name)?, name))).filter_map(
        |(log, name)| {
            let file = File::open(directory.join(name)).ok()?;
            Some((log, written_bytes(&file).ok()?))
        },
    )
}

/// The bytes of a file up to the last that is not zero.
fn written_bytes(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut some = vec![0; ZEROS_READ];
    while end > 0 {
        let start = end.saturating_sub(ZEROS_READ as u64);
        let read = &mut some[..(end - start) as usize];
        file.read_exact_at(read, start)?;
        if let Some(last) = read.iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn names(directory: &Path) -> Result<Vec<String>, LoadError> {
    let fail = |error: io::Error| LoadError::Failed(sentence("list", directory, &error));
    let entries = std::fs::read_dir(directory).map_err(fail)?;
    let names = entries.map(|entry| Ok(entry.map_err(fail)?.file_name().into_string().ok()));
    Ok(names.collect::<Result<Vec<_>, LoadError>>()?.into_iter().flatten().collect())
}

/// Removes a file, if there is one.
pub(super) fn remove(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| sentence("remove", path, &error)),
    }
}

/// The names in a directory to stable storage.
pub(super) fn sync_directory(directory: &Path) -> Result<(), String> {
    let result = File::open(directory).and_then(|directory| directory.sync_all());
    result.map_err(|error| sentence("sync", directory, &error))
}

/// A store's directory. It is held open, so that no other directory can be taken for it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) path: PathBuf,
    top: io::Result<File>,
    database: Option<Arc<File>>,
    /// Bytes of appends since the reserve was looked at.
    pub(super) unseen: u64,
    /// The file that the next log is made of.
    pub(super) next: Next,
    /// Bytes of the longest log when the last one began.
    pub(super) last_bytes: u64,
}

impl Home {
    pub(super) fn new(path: PathBuf, store: StoreId) -> Home {
        let top = File::open(&path);
        let database = File::open(database_path(&path, store)).ok().map(Arc::new);
        Home { path, top, database, unseen: 0, next: Next::None, last_bytes: 0 }
    }

    /// The database as it was at the start.
    pub(super) fn database(&self) -> Option<Arc<File>> {
        self.database.clone()
    }

    /// An error when the path does not name this directory any more: what is made there would not be found again.
    pub(super) fn check(&self) -> Result<(), MetaError> {
        let held = self.top.as_ref().map_err(|error| failed("open", &self.path, error))?;
        let held = held.metadata().map_err(|error| failed("look at", &self.path, &error))?;
        match std::fs::metadata(&self.path) {
            Ok(there) if (there.dev(), there.ino()) == (held.dev(), held.ino()) => Ok(()),
            _ => Err(removed(&self.path).into()),
        }
    }
}

/// Whether the open file has a name. One system call without a path.
pub(super) fn has_name(file: &File) -> bool {
    rustix::fs::fstat(file).is_ok_and(|status| status.st_nlink > 0)
}

/// The message about a file or directory that was removed.
pub(super) fn removed(path: &Path) -> String {
    let path = path.display();
    format!(
        "{path} was removed while it was in use: bring all of that directory back as it was, or the names from a backup \
         with `trapeze restore`, and start this node again"
    )
}

/// A database in a file. It belongs to one process at a time.
#[derive(Debug)]
pub struct FileBackend {
    file: File,
    path: PathBuf,
    reserve: Reserve,
}

impl FileBackend {
    fn open(path: &Path, reserve: Reserve) -> Result<FileBackend, LoadError> {
        let fail = |what| move |e: io::Error| LoadError::Failed(sentence(what, path, &e));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = file.open(path).map_err(fail("open"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LoadError::InUse(path.to_owned())),
            Err(errno) => Err(fail("lock")(errno.into())),
            Ok(()) => {
                reserve.make();
                Ok(FileBackend { file, path: path.to_owned(), reserve })
            }
        }
    }

    fn told(&self, what: &str) -> impl Fn(io::Error) -> io::Error {
        move |error| io::Error::new(error.kind(), sentence(what, &self.path, &error))
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata().map_err(self.told("measure"))?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset).map_err(self.told("read"))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.reserve.for_database(|| self.file.set_len(len)).map_err(self.told("resize"))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data().map_err(self.told("sync"))
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let write = || self.file.write_all_at(data, offset);
        self.reserve.for_database(write).map_err(self.told("write to"))
    }

    fn close(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.file, FlockOperation::Unlock)?)
    }
}
