//! Tasks of the helper threads for the disk device: everything that is not a transfer, and transfers too where there is
//! no io_uring.

use super::directory::{Directory, FileStat};
use crate::helpers::Work;
use node::rings::{DiskError, DiskFile, DiskListing};
use rustix::io::{Errno, IoSlice, ReadWriteFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the disk.
    Read,
    /// To the disk; `durable`: its stable storage.
    Write { durable: bool },
}

/// Bytes to move between a file and memory.
///
/// Invariant: `memory` points to `bytes` bytes of a frame, or of blocks, that its flight owns, and the flight keeps
/// these and the descriptor until the transfer's result is taken.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) descriptor: Arc<OwnedFd>,
    pub(crate) direction: Direction,
    pub(crate) memory: *mut u8,
    pub(crate) bytes: usize,
    pub(crate) offset: u64,
}

// SAFETY: by the invariant the memory stays valid and, for a read, no other thread reaches it until the result is
// taken; under a write it is a shared frame, which never changes.
unsafe impl Send for Transfer {}

impl Transfer {
    pub(crate) fn run(&self) -> Result<usize, Errno> {
        match self.direction {
            Direction::Read => {
                // SAFETY: the invariant gives exclusive access to initialised bytes.
                let into = unsafe { std::slice::from_raw_parts_mut(self.memory, self.bytes) };
                rustix::io::pread(&self.descriptor, into, self.offset)
            }
            Direction::Write { durable } => {
                // SAFETY: the invariant gives shared access to initialised bytes.
                let data = unsafe { std::slice::from_raw_parts(self.memory, self.bytes) };
                let flags = if durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let data = [IoSlice::new(data)];
                rustix::io::pwritev2(&self.descriptor, &data, self.offset, flags)
            }
        }
    }
}

/// Which of a disk's operations to do.
#[derive(Debug)]
pub(super) enum Task {
    Open {
        file: DiskFile,
        direct: bool,
        create: bool,
    },
    Transfer(Transfer),
    Sync {
        file: DiskFile,
        open: Option<Arc<OwnedFd>>,
    },
    SyncNames {
        file: DiskFile,
    },
    SyncAll,
    Truncate {
        file: DiskFile,
        bytes: u64,
    },
    Punch {
        file: DiskFile,
        offset: u64,
        bytes: u64,
    },
    FindData {
        file: DiskFile,
        offset: u64,
        bytes: u64,
    },
    /// The open descriptors are closed here, because the last one frees the file's storage.
    Remove {
        file: DiskFile,
        open: [Option<Arc<OwnedFd>>; 2],
    },
    Rename {
        from: DiskFile,
        to: DiskFile,
        replaced: [Option<Arc<OwnedFd>>; 2],
    },
    Stat {
        file: DiskFile,
        without: Vec<(u64, u64)>,
    },
    List(DiskListing),
    Space,
}

/// The result of a task.
#[derive(Debug)]
pub(super) enum Brought {
    Done,
    Opened(OwnedFd),
    Moved(Result<usize, Errno>),
    Stat(FileStat),
    Data(u64),
    Files(Vec<DiskFile>),
    Space { total: u64, free: u64, device: u64 },
}

/// A task for a helper, with the flight that waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) slot: u32,
    pub(super) disk: Arc<Directory>,
    pub(super) task: Task,
}

impl Work for Job {
    type Done = (u32, Result<Brought, DiskError>);

    fn run(self) -> Self::Done {
        (self.slot, run(&self.disk, self.task))
    }
}

fn run(disk: &Directory, task: Task) -> Result<Brought, DiskError> {
    match task {
        Task::Open { file, direct, create } => {
            disk.open_file(file, direct, create).map(Brought::Opened)
        }
        Task::Transfer(transfer) => Ok(Brought::Moved(transfer.run())),
        Task::Sync { file, open } => {
            disk.sync(file, open.as_ref().map(|open| open.as_fd())).map(|()| Brought::Done)
        }
        Task::SyncNames { file } => disk.sync_names(file).map(|()| Brought::Done),
        Task::SyncAll => disk.sync_all().map(|()| Brought::Done),
        Task::Truncate { file, bytes } => disk.truncate(file, bytes).map(|()| Brought::Done),
        Task::Punch { file, offset, bytes } => {
            disk.punch(file, offset, bytes).map(|()| Brought::Done)
        }
        Task::FindData { file, offset, bytes } => {
            disk.find_data(file, offset, bytes).map(Brought::Data)
        }
        Task::Remove { file, open } => {
            let result = disk.remove(file).map(|()| Brought::Done);
            drop(open);
            result
        }
        Task::Rename { from, to, replaced } => {
            let result = disk.rename(from, to).map(|()| Brought::Done);
            drop(replaced);
            result
        }
        Task::Stat { file, without } => disk.stat(file, &without).map(Brought::Stat),
        Task::List(which) => disk.list(which).map(Brought::Files),
        Task::Space => disk.space(),
    }
}
