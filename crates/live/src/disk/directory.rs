//! One disk: a directory that one process uses at a time, and the operations on it that may take long.
//!
//! It is called by helper threads, several at once. It keeps which of its directories hold names that are not yet on
//! stable storage, so that a sync touches no more directories than it must.

use super::layout::{self, DIRECTORIES, DirectoryIndex};
use super::listing::Listing;
use super::task::Brought;
use crate::limits::STAT_TRIES;
use node::rings::{DiskError, DiskFile, DiskListing};
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether no disk was ever in this directory: it has no label and nothing that a disk keeps.
pub fn is_unused(path: &Path) -> bool {
    let has_files = |place: DirectoryIndex| {
        std::fs::read_dir(path.join(place.path())).is_ok_and(|mut entries| entries.next().is_some())
    };
    let label = path.join(layout::path(DiskFile::Label));
    label.symlink_metadata().is_err() && !DirectoryIndex::all().skip(1).any(has_files)
}

/// Why a disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such directory.
    #[error(
        "disk {0}: the directory is missing; mount the disk there or bring the directory back (an empty one in its place is refused); \
         if the disk is gone for good, trapeze forget says so to the cluster"
    )]
    Missing(PathBuf),
    /// The path names something else.
    #[error("disk {0}: not a directory")]
    NotDirectory(PathBuf),
    /// The file system is mounted read-only.
    #[error("disk {0}: the file system is read-only; remount it writable")]
    ReadOnly(PathBuf),
    /// The permissions forbid it.
    #[error("disk {0}: not writable by this user; change its owner or run as another user")]
    NotWritable(PathBuf),
    /// The disk is full, down to the last directory entry.
    #[error("disk {0}: full, the disk's own directories cannot be made; free some space")]
    NoSpace(PathBuf),
    /// Another process has it.
    #[error("disk {path}: in use by {holder}; stop it or choose another directory")]
    InUse {
        /// The directory.
        path: PathBuf,
        /// "process N" when it said so.
        holder: String,
    },
    /// Anything else.
    #[error("disk {path}: cannot {what}: {error}")]
    Failed {
        /// The directory.
        path: PathBuf,
        /// The action that failed.
        what: &'static str,
        /// The system's answer.
        error: io::Error,
    },
}

impl OpenError {
    /// Whether the disk is gone or broken, rather than wrongly configured.
    pub(super) fn is_loss(&self) -> bool {
        matches!(self, OpenError::Missing(_) | OpenError::ReadOnly(_) | OpenError::Failed { .. })
    }

    fn new(path: &Path, what: &'static str, errno: Errno) -> OpenError {
        let path = path.to_owned();
        match errno {
            Errno::NOENT => OpenError::Missing(path),
            Errno::NOTDIR => OpenError::NotDirectory(path),
            Errno::ROFS => OpenError::ReadOnly(path),
            Errno::ACCESS | Errno::PERM => OpenError::NotWritable(path),
            Errno::NOSPC | Errno::DQUOT => OpenError::NoSpace(path),
            errno => OpenError::Failed { path, what, error: errno.into() },
        }
    }
}

/// Length, storage and last change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) bytes: u64,
    pub(super) used: u64,
    pub(super) changed: i64,
}

/// An open disk. The directory's lock is held as long as it lives.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    top: OwnedFd,
    lock: OwnedFd,
    names: [Names; DIRECTORIES],
    listing: Mutex<Listing>,
    direct: AtomicBool,
}

/// Changes of the names in one directory. The figures count changes.
#[derive(Debug, Default)]
struct Names {
    /// Done so far.
    changed: AtomicU64,
    /// `changed` at the last removal or renaming.
    removed: AtomicU64,
    /// On stable storage so far.
    synced: AtomicU64,
    /// One sync at a time: a second caller must not return before the first one's fsync did.
    syncing: Mutex<()>,
}

impl Directory {
    /// Opens the disk in `path`, which must exist, and makes its directories where they are missing. `direct`: use
    /// the disk past the host's cache where the file system can.
    pub(super) fn open(path: &Path, direct: bool) -> Result<Directory, OpenError> {
        let fail = |what| move |errno| OpenError::new(path, what, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(path, flags, Mode::empty()).map_err(fail("open it"))?;
        let lock = lock(path, &top)?;
        make_directory(&top, "objects").map_err(fail("make objects"))?;
        for place in DirectoryIndex::all().skip(1) {
            make_directory(&top, &place.path()).map_err(fail("make its directories"))?;
        }
        let disk = Directory {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            top,
            lock,
            names: std::array::from_fn(|_| Names::default()),
            listing: Mutex::new(Listing::default()),
            direct: AtomicBool::new(direct),
        };
        disk.begin().map_err(fail("sync its directories"))?;
        Ok(disk)
    }

    /// Whether transfers past the host's cache are tried.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    /// The file system refused one: never again on this disk.
    pub(super) fn give_up_direct(&self) {
        self.direct.store(false, Ordering::Relaxed);
    }

    /// Opens a file for reading and writing. `create`: make it when there is none.
    pub(super) fn open_file(
        &self,
        file: DiskFile,
        direct: bool,
        create: bool,
    ) -> Result<OwnedFd, DiskError> {
        match self.open_with(file, direct, OFlags::empty()) {
            Err(Errno::NOENT) if create => {
                // A file made in a directory that was removed is lost.
                self.check()?;
                let made = self.open_with(file, direct, OFlags::CREATE);
                self.changed(file);
                made.map_err(|errno| self.error_of(file, errno))
            }
            result => result.map_err(|errno| self.error_of(file, errno)),
        }
    }

    fn open_with(&self, file: DiskFile, direct: bool, more: OFlags) -> Result<OwnedFd, Errno> {
        let path = layout::path(file);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
        let mode = Mode::RUSR | Mode::WUSR;
        let special = if direct { OFlags::DIRECT } else { OFlags::empty() };
        match rustix::fs::openat(&self.top, &path, flags | special, mode) {
            Err(Errno::INVAL) if direct => {
                self.give_up_direct();
                rustix::fs::openat(&self.top, &path, flags, mode)
            }
            result => result,
        }
    }

    /// Data and length of the file to stable storage, and the names that a sync of it promises.
    pub(super) fn sync(
        &self,
        file: DiskFile,
        open: Option<BorrowedFd<'_>>,
    ) -> Result<(), DiskError> {
        match open {
            Some(open) => rustix::fs::fdatasync(open).map_err(|errno| self.error(errno))?,
            None => {
                let open = self.open_file(file, false, false)?;
                rustix::fs::fdatasync(&open).map_err(|errno| self.error(errno))?;
            }
        }
        self.check_held()?;
        self.sync_names(file)
    }

    /// Every file and every name to stable storage, in one go of the file system: some milliseconds, however many files
    /// were made. Writes of others to the same file system go along.
    pub(super) fn sync_all(&self) -> Result<(), DiskError> {
        let changed = DirectoryIndex::all()
            .map(|place| self.names[place.index()].changed.load(Ordering::SeqCst));
        let changed: Vec<u64> = changed.collect();
        rustix::fs::syncfs(&self.top).map_err(|errno| self.error(errno))?;
        self.check_held()?;
        for (place, changed) in DirectoryIndex::all().zip(changed) {
            self.names[place.index()].synced.fetch_max(changed, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The file's name, and all removals and renamings done so far, to stable storage.
    pub(super) fn sync_names(&self, file: DiskFile) -> Result<(), DiskError> {
        let own = DirectoryIndex::of(file);
        let due = DirectoryIndex::all().filter(|place| {
            let names = &self.names[place.index()];
            names.removal_is_due() || (*place == own && names.change_is_due())
        });
        for place in due {
            self.sync_directory(place).map_err(|errno| self.error(errno))?;
        }
        Ok(())
    }

    /// Whether the file's own name is known to be on stable storage.
    pub(super) fn is_name_synced(&self, file: DiskFile) -> bool {
        !self.names[DirectoryIndex::of(file).index()].change_is_due()
    }

    /// The directories themselves to stable storage. A process killed before may have left names that only the host's
    /// memory knows, so each is synced again when a first promise is made in it; all at once would take seconds.
    fn begin(&self) -> Result<(), Errno> {
        DirectoryIndex::all().for_each(|place| self.names[place.index()].change());
        self.fsync("objects")?; // holds no files, only the directories that do
        self.sync_directory(DirectoryIndex::TOP)
    }

    fn fsync(&self, directory: &str) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::openat(&self.top, directory, flags, Mode::empty())?)
    }

    fn sync_directory(&self, place: DirectoryIndex) -> Result<(), Errno> {
        let names = &self.names[place.index()];
        let _one = names.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = names.changed.load(Ordering::SeqCst);
        if names.synced.load(Ordering::SeqCst) >= changed {
            return Ok(());
        }
        self.fsync(&place.path())?;
        names.synced.store(changed, Ordering::SeqCst);
        Ok(())
    }

    /// Cuts or extends a file that exists.
    pub(super) fn truncate(&self, file: DiskFile, bytes: u64) -> Result<(), DiskError> {
        let open = self.open_file(file, false, false)?;
        rustix::fs::ftruncate(&open, bytes).map_err(|errno| self.error(errno))
    }

    /// Where the first byte of the range is that is not in a hole; its end when there is none.
    pub(super) fn find_data(
        &self,
        file: DiskFile,
        offset: u64,
        bytes: u64,
    ) -> Result<u64, DiskError> {
        let (open, end) = (self.open_file(file, false, false)?, offset.saturating_add(bytes));
        match rustix::fs::seek(&open, SeekFrom::Data(offset)) {
            Ok(at) => Ok(at.min(end)),
            Err(Errno::NXIO) => Ok(end),
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(offset),
            Err(errno) => Err(self.error(errno)),
        }
    }

    /// Zeroes bytes of a file that exists, and gives their storage back. A file system that knows no holes gets zeros.
    pub(super) fn punch(&self, file: DiskFile, offset: u64, bytes: u64) -> Result<(), DiskError> {
        let open = self.open_file(file, false, false)?;
        let length = rustix::fs::fstat(&open).map_err(|errno| self.error(errno))?.st_size as u64;
        let end = offset.saturating_add(bytes).min(length);
        if offset >= end {
            return Ok(());
        }
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&open, hole, offset, end - offset) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(&open, offset..end),
            punched => punched,
        }
        .map_err(|errno| self.error(errno))
    }

    /// Removes a file, if there is one.
    pub(super) fn remove(&self, file: DiskFile) -> Result<(), DiskError> {
        let result = rustix::fs::unlinkat(&self.top, layout::path(file), AtFlags::empty());
        match result.map_err(|errno| self.error_of(file, errno)) {
            Ok(()) => {
                self.removed(file);
                Ok(())
            }
            Err(DiskError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Renames a file, replacing.
    pub(super) fn rename(&self, from: DiskFile, to: DiskFile) -> Result<(), DiskError> {
        let (source, target) = (layout::path(from), layout::path(to));
        let renamed = rustix::fs::renameat(&self.top, source, &self.top, target);
        renamed.map_err(|errno| self.error_of(from, errno))?;
        self.removed(from);
        self.removed(to);
        Ok(())
    }

    fn stat_all(&self, file: DiskFile) -> Result<FileStat, DiskError> {
        let path = layout::path(file);
        let stat = rustix::fs::statat(&self.top, path, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| self.error_of(file, errno))?;
        Ok(FileStat {
            bytes: stat.st_size.max(0) as u64,
            used: stat.st_blocks.max(0) as u64 * 512,
            changed: stat.st_mtime,
        })
    }

    /// Length and storage of a file, without the storage of what is in these ranges. It is as of one moment, unless the
    /// file changes all the time.
    pub(super) fn stat(
        &self,
        file: DiskFile,
        without: &[(u64, u64)],
    ) -> Result<FileStat, DiskError> {
        if without.is_empty() {
            return self.stat_all(file);
        }
        let open = self.open_file(file, false, false)?;
        let mut before = self.stat_all(file)?;
        for tries in 1.. {
            let stored = |(offset, bytes): &(u64, u64)| {
                stored(&open, *offset..offset.saturating_add(*bytes).min(before.bytes))
            };
            let within: Result<u64, Errno> = without.iter().map(stored).sum();
            let within = within.map_err(|errno| self.error(errno))?;
            let now = self.stat_all(file)?;
            if now.used == before.used || tries == STAT_TRIES {
                return Ok(FileStat { used: now.used.saturating_sub(within), ..now });
            }
            before = now;
        }
        unreachable!("the last try returns")
    }

    /// Names of files.
    pub(super) fn list(&self, which: DiskListing) -> Result<Vec<DiskFile>, DiskError> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        listing.list(self.top.as_fd(), which).map_err(|errno| self.error(errno))
    }

    /// All bytes of the file system, and those that this user may still take. The file system of a directory that was
    /// removed tells them as well, so that is asked first.
    pub(super) fn space(&self) -> Result<Brought, DiskError> {
        self.check()?;
        let space = rustix::fs::fstatvfs(&self.top).map_err(|errno| self.error(errno))?;
        let (total, free) = (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize);
        Ok(Brought::Space { total, free, device: self.device() })
    }

    /// The file system that it is on: the same for all disks there, in processes of this machine, and for no other.
    fn device(&self) -> u64 {
        let number = rustix::fs::fstat(&self.top).map_or(0, |stat| stat.st_dev);
        match (crate::boot::number(), number) {
            (0, _) | (_, 0) => 0,
            (machine, number) => wire::mix(machine ^ wire::mix(number)).max(1),
        }
    }

    /// As [`error`](Directory::error), of an operation on this file: without the directory that all files of its place
    /// are in, that it is not there says nothing.
    fn error_of(&self, file: DiskFile, errno: Errno) -> DiskError {
        let place =
            || rustix::fs::statat(&self.top, DirectoryIndex::of(file).path(), AtFlags::empty());
        match errno {
            Errno::NOENT if place().is_err() => DiskError::Missing,
            errno => self.error(errno),
        }
    }

    /// The meaning of an error number of an operation on this disk.
    pub(super) fn error(&self, errno: Errno) -> DiskError {
        match errno {
            Errno::NOENT if self.is_gone() => DiskError::Missing,
            Errno::NOENT => DiskError::NotFound,
            Errno::NOSPC | Errno::DQUOT => DiskError::NoSpace,
            Errno::ROFS => DiskError::ReadOnly,
            Errno::NODEV | Errno::NXIO => DiskError::Missing,
            other => failed(other),
        }
    }

    /// An error when the disk is not the one that was opened any more.
    fn check(&self) -> Result<(), DiskError> {
        if self.is_gone() { Err(DiskError::Missing) } else { Ok(()) }
    }

    /// As [`check`](Directory::check), of its files only, after a sync through an open descriptor: one system call
    /// without a path, so that a caller that waits for stable storage does not notice it.
    pub(super) fn check_held(&self) -> Result<(), DiskError> {
        if self.is_emptied() { Err(DiskError::Missing) } else { Ok(()) }
    }

    /// Whether the path no longer names the directory that was opened: removed, or its disk unmounted.
    fn is_gone(&self) -> bool {
        let (Ok(ours), Ok(there)) = (rustix::fs::fstat(&self.top), rustix::fs::stat(&self.path))
        else {
            return true;
        };
        ours.st_dev != there.st_dev || ours.st_ino != there.st_ino || self.is_emptied()
    }

    /// Whether the lock that is held has no name any more: the directory's content is being removed.
    fn is_emptied(&self) -> bool {
        !rustix::fs::fstat(&self.lock).is_ok_and(|lock| lock.st_nlink > 0)
    }

    fn changed(&self, file: DiskFile) {
        self.names[DirectoryIndex::of(file).index()].change();
    }

    fn removed(&self, file: DiskFile) {
        self.names[DirectoryIndex::of(file).index()].remove();
    }
}

impl Names {
    /// After the change itself, so that a sync which counts it also saw it.
    fn change(&self) {
        self.changed.fetch_add(1, Ordering::SeqCst);
    }

    fn remove(&self) {
        let now = self.changed.fetch_add(1, Ordering::SeqCst) + 1;
        self.removed.fetch_max(now, Ordering::SeqCst);
    }

    fn change_is_due(&self) -> bool {
        self.synced.load(Ordering::SeqCst) < self.changed.load(Ordering::SeqCst)
    }

    fn removal_is_due(&self) -> bool {
        self.synced.load(Ordering::SeqCst) < self.removed.load(Ordering::SeqCst)
    }
}

/// An error number that has no name of its own among disk errors.
pub(super) fn failed(errno: Errno) -> DiskError {
    DiskError::Failed(wire::attr::Errno(errno.raw_os_error() as u16))
}

fn make_directory(top: &OwnedFd, path: &str) -> Result<(), Errno> {
    match rustix::fs::mkdirat(top, path, Mode::RWXU) {
        Err(Errno::EXIST) => Ok(()),
        result => result,
    }
}

/// Takes the directory's lock and writes down who has it. The lock is held through a descriptor for reading, which
/// does not keep the file system from being made read-only.
fn lock(path: &Path, top: &OwnedFd) -> Result<OwnedFd, OpenError> {
    let fail = |what| move |errno| OpenError::new(path, what, errno);
    let open = |flags| {
        rustix::fs::openat(top, "lock", flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map_err(fail("open its lock file"))
    };
    let lock = open(OFlags::RDONLY | OFlags::CREATE)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => {
            Err(OpenError::InUse { path: path.to_owned(), holder: holder(&lock) })
        }
        Err(errno) => Err(fail("lock it")(errno)),
        Ok(()) => {
            let text = format!("{}\n", std::process::id());
            // On a full disk the lock holds all the same; only its holder has no name.
            let _ = rustix::io::pwrite(open(OFlags::WRONLY | OFlags::TRUNC)?, text.as_bytes(), 0);
            Ok(lock)
        }
    }
}

/// The lock's holder, by its own account.
fn holder(lock: &OwnedFd) -> String {
    let mut text = [0; 20];
    let count = rustix::io::pread(lock, &mut text, 0).unwrap_or(0);
    let number = std::str::from_utf8(&text[..count]).unwrap_or("").trim();
    match number.parse::<u32>() {
        Ok(number) => format!("process {number}"),
        Err(_) => "another process".to_owned(),
    }
}

/// Bytes of a range that are not in holes.
fn stored(file: &OwnedFd, range: Range<u64>) -> Result<u64, Errno> {
    let (mut at, mut stored) = (range.start, 0);
    while at < range.end {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < range.end => data,
            Ok(_) | Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(range.end - range.start),
            Err(errno) => return Err(errno),
        };
        let hole = match rustix::fs::seek(file, SeekFrom::Hole(data)) {
            Ok(hole) => hole.min(range.end),
            // It was cut meanwhile.
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(errno),
        };
        stored += hole - data;
        at = hole;
    }
    Ok(stored)
}

/// Writes zeros where there is no other way to be rid of bytes.
fn write_zeros(file: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
    static ZEROS: [u8; 65536] = [0; 65536];
    let mut at = range.start;
    while at < range.end {
        let bytes = (range.end - at).min(ZEROS.len() as u64) as usize;
        match rustix::io::pwrite(file, &ZEROS[..bytes], at) {
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn what_is_in_a_range_is_counted_without_its_holes() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        for at in [3u64, 4, 9, 200] {
            rustix::io::pwrite(&file, &[1; 4096], at * 4096).unwrap();
        }
        let file = OwnedFd::from(file);
        let blocks = |range: Range<u64>| stored(&file, range.start * 4096..range.end * 4096);
        assert_eq!(blocks(0..256).map(|bytes| bytes / 4096), Ok(4));
        assert_eq!(blocks(4..9).map(|bytes| bytes / 4096), Ok(1));
        assert_eq!(blocks(10..200), Ok(0));
        assert_eq!(blocks(201..400), Ok(0));
    }

    #[test]
    fn where_nothing_can_be_punched_zeros_are_written_and_no_byte_beside_them() {
        for range in [0..1, 4095..4097, 3..65_539, 70_000..300_000, 5..5] {
            let mut file = tempfile::tempfile().unwrap();
            let mut expected = vec![0xa5; 300_000];
            std::io::Write::write_all(&mut file, &expected).unwrap();
            let open = OwnedFd::from(file.try_clone().unwrap());
            write_zeros(&open, range.start as u64..range.end as u64).unwrap();
            expected[range].fill(0);
            let mut read = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut read).unwrap();
            assert!(read == expected);
        }
    }
}
