//! Open files and directories, and what is done with them.

use super::to_errno;
use endpoint::{Frame, Frames};
use node::rings::{Caller, FileReply, Handle};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::Errno;

/// The table; a handle is a place in it.
#[derive(Default)]
pub struct OpenFiles {
    places: Vec<Option<OwnedFd>>,
    free: Vec<usize>,
}

/// The flags of the caller's open(2) that are the file's. Appending is the kernel's, which sends offsets.
pub fn flags(flags: u32) -> OFlags {
    let not_ours = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::APPEND;
    OFlags::from_bits_retain(flags) - not_ours
}

impl OpenFiles {
    /// Adds an open file.
    pub fn insert(&mut self, descriptor: OwnedFd) -> Handle {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = Some(descriptor);
        Handle(place as u64)
    }

    /// Closes it.
    pub fn remove(&mut self, handle: Handle) -> Result<FileReply, Errno> {
        let place = self.places.get_mut(handle.0 as usize).ok_or(Errno::EBADF)?;
        place.take().ok_or(Errno::EBADF)?;
        self.free.push(handle.0 as usize);
        Ok(FileReply::Done)
    }

    /// Its descriptor.
    pub fn get(&self, handle: Handle) -> Result<BorrowedFd<'_>, Errno> {
        let place = self.places.get(handle.0 as usize).and_then(Option::as_ref);
        Ok(place.ok_or(Errno::EBADF)?.as_fd())
    }

    /// Reads into one frame.
    pub fn read(
        &self,
        frames: &Frames,
        handle: Handle,
        offset: u64,
        bytes: u32,
    ) -> Result<FileReply, Errno> {
        let mut frame = frames.alloc_exact(bytes as usize).ok_or(Errno::ENOMEM)?;
        let bytes =
            rustix::io::pread(self.get(handle)?, &mut frame[..], offset).map_err(to_errno)?;
        Ok(FileReply::Data { frames: vec![frame.freeze()], bytes })
    }

    /// Writes all of `data`. A user other than root clears set-id bits by it.
    pub fn write(
        &self,
        caller: &Caller,
        handle: Handle,
        offset: u64,
        data: &[Frame],
    ) -> Result<FileReply, Errno> {
        let file = self.get(handle)?;
        if caller.uid != 0 {
            clear_set_id(file)?;
        }
        let mut at = offset;
        for frame in data {
            let mut rest = &frame[..];
            while !rest.is_empty() {
                let bytes = rustix::io::pwrite(file, rest, at).map_err(to_errno)?;
                (rest, at) = (&rest[bytes..], at + bytes as u64);
            }
        }
        Ok(FileReply::Written((at - offset) as u32))
    }

    /// Brings it to stable storage.
    pub fn sync(&self, handle: Handle, data_only: bool) -> Result<FileReply, Errno> {
        let file = self.get(handle)?;
        let synced = if data_only { rustix::fs::fdatasync(file) } else { rustix::fs::fsync(file) };
        synced.map(|()| FileReply::Done).map_err(to_errno)
    }

    /// fallocate(2).
    pub fn allocate(
        &self,
        handle: Handle,
        offset: u64,
        bytes: u64,
        mode: u32,
    ) -> Result<FileReply, Errno> {
        let mode = FallocateFlags::from_bits(mode).ok_or(Errno::EOPNOTSUPP)?;
        let done = rustix::fs::fallocate(self.get(handle)?, mode, offset, bytes);
        done.map(|()| FileReply::Done).map_err(to_errno)
    }

    /// lseek(2) to data or to a hole; the kernel does the others itself.
    pub fn seek(&self, handle: Handle, offset: u64, whence: u32) -> Result<FileReply, Errno> {
        let to = match whence as i32 {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        rustix::fs::seek(self.get(handle)?, to).map(FileReply::Offset).map_err(to_errno)
    }
}

fn clear_set_id(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(file).map_err(to_errno)?.st_mode;
    // Set-group-id without group execution marks mandatory locking, not a program.
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    let clear = 0o4000 | group;
    if mode & clear == 0 {
        return Ok(());
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode & 0o7777 & !clear)).map_err(to_errno)
}
