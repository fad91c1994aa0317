//! The baseline of the benchmarks: the same session over a plain directory, each operation one system call on the
//! thread that read the request.
//!
//! It is not a product: it needs root, stays on one file system, and has no locks (ENOLCK). It takes the process for
//! itself: it clears the umask, which the kernel has applied already, and raises the limit on open files, because
//! every file that the kernel knows is one.

mod inodes;
mod names;
mod open_files;

use super::mount::{Mount, MountError, MountOptions};
use super::reply::Belief;
use super::session::{Front, Session, Stage};
use endpoint::{Frames, HeapRegion};
use inodes::Inodes;
use node::rings::{Caller, FileDone, FileOp, FileReply, FileRequest, VolumeSpace};
use open_files::OpenFiles;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use wire::{Errno, FileId};

/// Pages of payload memory: one request at a time, of a megabyte, and its successor's landing; the rest is margin.
const POOL_PAGES: usize = 2048;

/// A directory as a front.
pub struct Passthrough {
    inodes: Inodes,
    open: OpenFiles,
    frames: Frames,
    keep_cache: bool,
    done: VecDeque<FileDone>,
}

/// Why the pass-through ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It could not be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The source or the device failed.
    #[error("pass-through: {0}")]
    System(#[from] io::Error),
}

impl Passthrough {
    /// Over the directory `source`. With `keep_cache` the kernel keeps what it has cached when a file is opened again.
    pub fn new(source: &Path, frames: Frames, keep_cache: bool) -> io::Result<Passthrough> {
        rustix::process::umask(rustix::fs::Mode::empty());
        raise_open_files();
        let inodes = Inodes::new(source)?;
        let (open, done) = (OpenFiles::default(), VecDeque::new());
        Ok(Passthrough { inodes, open, frames, keep_cache, done })
    }

    fn run(&mut self, caller: &Caller, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Read { handle, offset, bytes, .. } => {
                self.open.read(&self.frames, handle, offset, bytes)
            }
            FileOp::Write { handle, offset, data, .. } => {
                self.open.write(caller, handle, offset, &data)
            }
            FileOp::Open { file, flags } => {
                let descriptor = self.inodes.open(file, open_files::flags(flags))?;
                let handle = self.open.insert(descriptor);
                Ok(FileReply::Opened { handle, keep_cache: self.keep_cache })
            }
            FileOp::OpenDirectory { file } => {
                let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
                let handle = self.open.insert(self.inodes.open(file, flags)?);
                Ok(FileReply::Opened { handle, keep_cache: false })
            }
            FileOp::Release { handle, .. } | FileOp::ReleaseDirectory { handle, .. } => {
                self.open.remove(handle)
            }
            FileOp::Fsync { handle, data_only, .. } => self.open.sync(handle, data_only),
            FileOp::Allocate { handle, offset, bytes, mode, .. } => {
                self.open.allocate(handle, offset, bytes, mode)
            }
            FileOp::Seek { handle, offset, whence, .. } => self.open.seek(handle, offset, whence),
            FileOp::Flush { .. } | FileOp::Interrupt { .. } => Ok(FileReply::Done),
            FileOp::StatFs => self.space(),
            FileOp::GetLock { .. } | FileOp::SetLock { .. } => Err(Errno::ENOLCK),
            other => self.run_by_name(caller, other),
        }
    }

    fn space(&self) -> Result<FileReply, Errno> {
        let space = rustix::fs::fstatvfs(self.inodes.get(FileId::ROOT)?).map_err(to_errno)?;
        Ok(FileReply::Space(VolumeSpace {
            total_bytes: space.f_blocks * space.f_frsize,
            free_bytes: space.f_bavail * space.f_frsize,
            files: space.f_files - space.f_ffree,
            free_files: space.f_ffree,
        }))
    }
}

impl Front for Passthrough {
    fn push(&mut self, request: FileRequest) -> Result<(), FileRequest> {
        let FileRequest { front, caller, op } = request;
        let result = self.run(&caller, op);
        self.done.push_back(FileDone { front, result });
        Ok(())
    }

    fn take_done(&mut self) -> Option<FileDone> {
        self.done.pop_front()
    }

    fn forget(&mut self, file: FileId, lookups: u64) {
        self.inodes.forget(file, lookups);
    }
}

/// Mounts `source` on the path of `options` and serves it until it is unmounted. Calls `ready` once, when the mount can
/// be used.
pub fn serve(
    source: &Path,
    options: &MountOptions,
    keep_cache: bool,
    ready: impl FnOnce(),
) -> Result<(), ServeError> {
    let frames = Frames::new(HeapRegion::new(POOL_PAGES));
    let mut front = Passthrough::new(source, frames.clone(), keep_cache)?;
    let (device, mut mount) = Mount::new(options)?;
    // Nothing else is to be done on this thread: it may wait in the read itself.
    rustix::io::ioctl_fionbio(&device, false).map_err(io::Error::from)?;
    let mut session = Session::new(device, Belief::default());
    let mut ready = Some(ready);
    while session.stage() != Stage::Ended {
        session.poll_once(&mut front, &frames)?;
        if session.stage() == Stage::Serving {
            if let Some(ready) = ready.take() {
                mount.raise_read_ahead();
                ready();
            }
        }
    }
    mount.note_ended();
    Ok(())
}

/// As many open files as the hard limit allows; where that is refused, the limit stays and shows as EMFILE.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
}

/// The system's number as ours.
fn to_errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error() as u16)
}
