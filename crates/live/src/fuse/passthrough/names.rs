//! Operations on names and attributes.

use super::{Passthrough, open_files, to_errno};
use crate::fuse::listing::record_bytes;
use node::rings::{Caller, DirectoryEntry, FileOp, FileReply, Handle, Name};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use wire::{Errno, FileId, FileKind, SetAttr, SetTime};

/// Bytes of entries asked of the source at once.
const ENTRIES_BYTES: usize = 32 << 10;

impl Passthrough {
    pub(super) fn run_by_name(&mut self, caller: &Caller, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Lookup { parent, name } => {
                self.inodes.look_up(parent, &name).map(FileReply::Entry)
            }
            FileOp::GetAttr { file, handle } => self.get_attr(file, handle),
            FileOp::SetAttr { file, handle, changes } => {
                self.set_attr(file, handle, &changes)?;
                self.get_attr(file, handle)
            }
            FileOp::ReadDirectory { handle, file, cookie, bytes, with_attributes } => {
                self.list(file, handle, cookie, bytes as usize, with_attributes)
            }
            FileOp::Create { parent, name, mode, flags } => {
                self.create(caller, parent, &name, mode, flags)
            }
            FileOp::FsyncDirectory { file } => {
                let directory = self.inodes.open(file, OFlags::RDONLY)?;
                done(rustix::fs::fsync(directory))
            }
            // The kernel checks permissions itself.
            FileOp::Access { file, .. } => self.inodes.get(file).map(|_| FileReply::Done),
            FileOp::ReadLink { file } => {
                let path = rustix::fs::readlinkat(self.inodes.get(file)?, "", Vec::new());
                Ok(FileReply::Bytes(path.map_err(to_errno)?.into_bytes()))
            }
            FileOp::SetXattr { .. }
            | FileOp::GetXattr { .. }
            | FileOp::ListXattr { .. }
            | FileOp::RemoveXattr { .. } => self.extended(op),
            other => self.change_names(caller, other),
        }
    }

    fn change_names(&mut self, caller: &Caller, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Symlink { parent, name, target } => {
                let directory = self.inodes.get(parent)?;
                rustix::fs::symlinkat(&*target, directory, &*name).map_err(to_errno)?;
                self.made(caller, parent, &name)
            }
            FileOp::MakeNode { parent, name, mode, rdev } => {
                let kind = FileType::from_raw_mode(mode);
                let mode = Mode::from_raw_mode(mode & 0o7777);
                let directory = self.inodes.get(parent)?;
                rustix::fs::mknodat(directory, &*name, kind, mode, rdev.into())
                    .map_err(to_errno)?;
                self.made(caller, parent, &name)
            }
            FileOp::MakeDirectory { parent, name, mode } => {
                let directory = self.inodes.get(parent)?;
                rustix::fs::mkdirat(directory, &*name, Mode::from_raw_mode(mode))
                    .map_err(to_errno)?;
                self.made(caller, parent, &name)
            }
            FileOp::Link { file, new_parent, new_name } => {
                let (path, parent) = (self.inodes.path(file)?, self.inodes.get(new_parent)?);
                rustix::fs::linkat(CWD, path, parent, &*new_name, AtFlags::SYMLINK_FOLLOW)
                    .map_err(to_errno)?;
                self.inodes.look_up(new_parent, &new_name).map(FileReply::Entry)
            }
            FileOp::Unlink { parent, name } => {
                done(rustix::fs::unlinkat(self.inodes.get(parent)?, &*name, AtFlags::empty()))
            }
            FileOp::RemoveDirectory { parent, name } => {
                done(rustix::fs::unlinkat(self.inodes.get(parent)?, &*name, AtFlags::REMOVEDIR))
            }
            FileOp::Rename { parent, name, new_parent, new_name, flags } => {
                let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
                let (from, to) = (self.inodes.get(parent)?, self.inodes.get(new_parent)?);
                done(rustix::fs::renameat_with(from, &*name, to, &*new_name, flags))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn create(
        &mut self,
        caller: &Caller,
        parent: FileId,
        name: &Name,
        mode: u32,
        flags: u32,
    ) -> Result<FileReply, Errno> {
        let exclusive = OFlags::from_bits_retain(flags) & OFlags::EXCL;
        let flags = open_files::flags(flags) | exclusive | OFlags::CREATE | OFlags::CLOEXEC;
        let directory = self.inodes.get(parent)?;
        let mode = Mode::from_raw_mode(mode);
        let file = rustix::fs::openat(directory, &**name, flags | OFlags::NOFOLLOW, mode)
            .map_err(to_errno)?;
        self.own(caller, parent, name)?;
        let attr = self.inodes.look_up(parent, name)?;
        Ok(FileReply::Created { attr, handle: self.open.insert(file) })
    }

    fn made(&mut self, caller: &Caller, parent: FileId, name: &Name) -> Result<FileReply, Errno> {
        self.own(caller, parent, name)?;
        self.inodes.look_up(parent, name).map(FileReply::Entry)
    }

    /// Gives what was just made to the caller; to the directory's group where that is inherited.
    fn own(&self, caller: &Caller, parent: FileId, name: &Name) -> Result<(), Errno> {
        let process = (rustix::process::geteuid(), rustix::process::getegid());
        if (caller.uid, caller.gid) == (process.0.as_raw(), process.1.as_raw()) {
            return Ok(());
        }
        let inherits = self.inodes.attr(parent)?.mode & 0o2000 != 0;
        let group = (!inherits).then(|| Gid::from_raw(caller.gid));
        let (directory, user) = (self.inodes.get(parent)?, Some(Uid::from_raw(caller.uid)));
        rustix::fs::chownat(directory, &**name, user, group, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(to_errno)
    }

    fn get_attr(&self, file: FileId, handle: Option<Handle>) -> Result<FileReply, Errno> {
        let attr = match handle {
            Some(handle) => self.inodes.stat(self.open.get(handle)?)?,
            None => self.inodes.attr(file)?,
        };
        Ok(FileReply::Attr(attr))
    }

    fn set_attr(
        &self,
        file: FileId,
        handle: Option<Handle>,
        changes: &SetAttr,
    ) -> Result<(), Errno> {
        let path = self.inodes.path(file)?;
        if let Some(size) = changes.size {
            match handle {
                Some(handle) => rustix::fs::ftruncate(self.open.get(handle)?, size),
                None => rustix::fs::ftruncate(self.inodes.open(file, OFlags::WRONLY)?, size),
            }
            .map_err(to_errno)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let user = changes.uid.map(Uid::from_raw);
            let group = changes.gid.map(Gid::from_raw);
            let file = self.inodes.get(file)?;
            rustix::fs::chownat(file, "", user, group, AtFlags::EMPTY_PATH).map_err(to_errno)?;
        }
        if let Some(mode) = changes.mode {
            rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).map_err(to_errno)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let last_access = timespec(changes.atime);
            let times = Timestamps { last_access, last_modification: timespec(changes.mtime) };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).map_err(to_errno)?;
        }
        Ok(())
    }

    fn extended(&self, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::SetXattr { file, name, value, flags } => {
                let flags = XattrFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
                done(rustix::fs::setxattr(self.inodes.path(file)?, &*name, &value, flags))
            }
            FileOp::GetXattr { file, name } => {
                let path = self.inodes.path(file)?;
                value(|into| rustix::fs::getxattr(&path, &*name, into))
            }
            FileOp::ListXattr { file } => {
                let path = self.inodes.path(file)?;
                value(|into| rustix::fs::listxattr(&path, into))
            }
            FileOp::RemoveXattr { file, name } => {
                done(rustix::fs::removexattr(self.inodes.path(file)?, &*name))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// As many entries as fit exactly: each one with attributes is a file that the kernel will have to forget.
    fn list(
        &mut self,
        directory: FileId,
        handle: Handle,
        cookie: u64,
        mut room: usize,
        with_attributes: bool,
    ) -> Result<FileReply, Errno> {
        let descriptor = self.open.get(handle)?;
        rustix::fs::seek(descriptor, SeekFrom::Start(cookie)).map_err(to_errno)?;
        let mut space = [MaybeUninit::uninit(); ENTRIES_BYTES];
        let mut source = RawDir::new(descriptor.as_fd(), &mut space);
        let mut entries = Vec::new();
        while let Some(entry) = source.next() {
            let entry = entry.map_err(to_errno)?;
            let name = entry.file_name().to_bytes();
            let bytes = record_bytes(name.len(), with_attributes);
            if bytes > room {
                return Ok(FileReply::Entries { entries, end: false });
            }
            room -= bytes;
            let dots = matches!(name, b"." | b"..");
            // An entry that is gone meanwhile is listed without attributes. The kernel forgets no lookups of dots.
            let attr = (with_attributes && !dots)
                .then(|| self.inodes.look_up(directory, name).ok())
                .flatten();
            entries.push(DirectoryEntry {
                file: self.inodes.id(entry.ino()),
                name: name.into(),
                kind: FileKind::of_mode(entry.file_type().as_raw_mode()).unwrap_or_default(),
                cookie: entry.next_entry_cookie(),
                attr,
            });
        }
        Ok(FileReply::Entries { entries, end: true })
    }
}

fn done(result: Result<(), rustix::io::Errno>) -> Result<FileReply, Errno> {
    result.map(|()| FileReply::Done).map_err(to_errno)
}

/// Of any length that there can be.
fn value(
    read: impl FnOnce(&mut [u8]) -> Result<usize, rustix::io::Errno>,
) -> Result<FileReply, Errno> {
    let mut value = vec![0; crate::fuse::limits::XATTR_BYTES_MAX];
    let bytes = read(&mut value).map_err(to_errno)?;
    value.truncate(bytes);
    Ok(FileReply::Bytes(value))
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(wall)) => Timespec { tv_sec: wall.seconds, tv_nsec: wall.nanos.into() },
    }
}
