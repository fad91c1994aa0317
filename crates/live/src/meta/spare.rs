//! The file that the next log of a store is made of: zeros on stable storage, laid out by a helper while the log before
//! is written.

use super::blocks::Blocks;
use super::files::stem;
use crate::limits::{META_LAID_OUT_BYTES, META_LAY_OUT_STEP_BYTES, META_ROOM_BYTES};
use node::rings::StoreId;
use rustix::fs::{FallocateFlags, Mode, OFlags, RenameFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file that is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spare {
    path: PathBuf,
    bytes: u64,
}

/// Where a store has its spare log.
#[derive(Debug, Default)]
pub(super) enum Next {
    #[default]
    None,
    /// A helper makes it.
    Making,
    Ready(Spare),
    /// This file system cannot have one.
    Never,
}

/// Its name; no log's.
pub(super) fn path(directory: &Path, store: StoreId) -> PathBuf {
    directory.join(format!("{}.log.spare", stem(store)))
}

/// How long the next log is laid out when the last one had so many bytes.
pub(super) fn bytes_after(last: u64) -> u64 {
    let (least, most) = META_LAID_OUT_BYTES;
    (2 * last).next_multiple_of(least).clamp(least, most)
}

/// Makes it. An error of kind `Unsupported`: it cannot be made here.
pub(super) fn lay_out(path: &Path, bytes: u64) -> io::Result<Spare> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let room = rustix::fs::statvfs(directory)?;
    if room.f_bavail * room.f_frsize < bytes + META_ROOM_BYTES {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    let made = fill(path, bytes);
    if made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made.map(|()| Spare { path: path.to_owned(), bytes })
}

fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    let unsupported = |errno| match errno {
        rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP => {
            io::Error::from(io::ErrorKind::Unsupported)
        }
        errno => errno.into(),
    };
    let file = open(path, OFlags::CREATE | OFlags::TRUNC).map_err(unsupported)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(unsupported)?;
    // Room that is only promised would be given at the first write of each block, which then waits for the journal.
    let zeros = Blocks::zeros(META_LAY_OUT_STEP_BYTES);
    let mut at = 0;
    while at < bytes {
        let some = &zeros.as_slice()[..zeros.whole().min((bytes - at) as usize)];
        match rustix::io::pwrite(&file, some, at).map_err(unsupported)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => at += written as u64,
        }
    }
    Ok(rustix::fs::fdatasync(&file)?)
}

/// Past the host's cache.
fn open(path: &Path, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::DIRECT | more;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
}

/// The spare becomes the log in `path`, unless there is one: how it is written past the host's cache, and its length.
pub(super) fn put_to_use(spare: Spare, path: &Path) -> Option<(Arc<OwnedFd>, u64)> {
    let direct = open(&spare.path, OFlags::empty()).ok()?;
    let here = rustix::fs::CWD;
    match rustix::fs::renameat_with(here, &spare.path, here, path, RenameFlags::NOREPLACE) {
        Ok(()) => Some((Arc::new(direct), spare.bytes)),
        Err(_) => {
            let _ = std::fs::remove_file(&spare.path);
            None
        }
    }
}

impl Next {
    /// The spare log, if it is there.
    pub fn take(&mut self) -> Option<Spare> {
        match std::mem::take(self) {
            Next::Ready(spare) => Some(spare),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The disk is nearly full: gives its room back.
    pub fn give_up(&mut self) {
        if let Some(spare) = self.take() {
            let _ = std::fs::remove_file(&spare.path);
        }
    }
}
