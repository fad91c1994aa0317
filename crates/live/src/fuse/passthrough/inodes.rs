//! The files of the source directory that the kernel knows, each with an `O_PATH` descriptor that keeps its number
//! from being used again.
//!
//! A file's number is its inode number in the source, except that the source directory itself is
//! [`FileId::ROOT`]; the two numbers change places.

use super::to_errno;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::{fs, io};
use wire::{Attr, Errno, FileId, FileKind, Wall};

const AT_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The table.
pub struct Inodes {
    known: HashMap<FileId, Inode>,
    root_number: u64,
    device: u64,
}

struct Inode {
    descriptor: OwnedFd,
    /// How often the kernel was given this file and has not forgotten it.
    lookups: u64,
}

impl Inodes {
    /// With the directory `source` as the root.
    pub fn new(source: &Path) -> io::Result<Inodes> {
        let descriptor = OwnedFd::from(fs::File::open(source)?);
        let stat = rustix::fs::fstat(&descriptor)?;
        let known = HashMap::from([(FileId::ROOT, Inode { descriptor, lookups: 1 })]);
        Ok(Inodes { known, root_number: stat.st_ino, device: stat.st_dev })
    }

    /// The number that the kernel sees for inode `number`.
    pub fn id(&self, number: u64) -> FileId {
        match FileId(number) {
            FileId::ROOT => FileId(self.root_number),
            FileId(number) if number == self.root_number => FileId::ROOT,
            other => other,
        }
    }

    /// The file's descriptor, good for its attributes and as a directory to look in.
    pub fn get(&self, file: FileId) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.known.get(&file).ok_or(Errno::ESTALE)?.descriptor.as_fd())
    }

    /// A path that leads to the file itself.
    pub fn path(&self, file: FileId) -> Result<String, Errno> {
        use std::os::fd::AsRawFd;
        Ok(format!("/proc/self/fd/{}", self.get(file)?.as_raw_fd()))
    }

    /// Opens the file itself.
    pub fn open(&self, file: FileId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = self.path(file)?;
        rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(to_errno)
    }

    /// The attributes of the file.
    pub fn attr(&self, file: FileId) -> Result<Attr, Errno> {
        self.stat(self.get(file)?)
    }

    /// The attributes of an open file.
    pub fn stat(&self, descriptor: impl AsFd) -> Result<Attr, Errno> {
        let stat = rustix::fs::statat(descriptor, "", AtFlags::EMPTY_PATH).map_err(to_errno)?;
        Ok(self.to_attr(&stat))
    }

    /// Finds a name and counts that the kernel knows the file now.
    pub fn look_up(&mut self, parent: FileId, name: &[u8]) -> Result<Attr, Errno> {
        let descriptor = rustix::fs::openat(self.get(parent)?, name, AT_PATH, Mode::empty())
            .map_err(to_errno)?;
        let stat = rustix::fs::fstat(&descriptor).map_err(to_errno)?;
        if stat.st_dev != self.device {
            return Err(Errno::EXDEV);
        }
        let attr = self.to_attr(&stat);
        let inode = self.known.entry(attr.file).or_insert(Inode { descriptor, lookups: 0 });
        inode.lookups += 1;
        Ok(attr)
    }

    /// The kernel forgot the file this many times.
    pub fn forget(&mut self, file: FileId, lookups: u64) {
        if file == FileId::ROOT {
            return;
        }
        if let Some(inode) = self.known.get_mut(&file) {
            inode.lookups = inode.lookups.saturating_sub(lookups);
            if inode.lookups == 0 {
                self.known.remove(&file);
            }
        }
    }

    fn to_attr(&self, stat: &Stat) -> Attr {
        let wall = |seconds: i64, nanos: u64| Wall { seconds, nanos: nanos as u32 };
        Attr {
            file: self.id(stat.st_ino),
            kind: FileKind::of_mode(stat.st_mode).unwrap_or_default(),
            mode: stat.st_mode & 0o7777,
            links: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: stat.st_rdev as u32,
            size: stat.st_size as u64,
            used: stat.st_blocks as u64 * 512,
            atime: wall(stat.st_atime, stat.st_atime_nsec),
            mtime: wall(stat.st_mtime, stat.st_mtime_nsec),
            ctime: wall(stat.st_ctime, stat.st_ctime_nsec),
            change: 0,
        }
    }
}
