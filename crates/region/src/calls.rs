//! System calls on memory that may be a region's.
//!
//! Where a region's faults are served by the faulting thread, the kernel cannot have a page brought: a call whose
//! buffer is not all in memory fails with EFAULT, or does only part of its work. These wrappers touch the buffer
//! first, cut it to what the region can have in memory at a time, as any of these calls may do less than it was asked
//! for, and try once more when a page left in between. On other memory they are the plain calls. A buffer must not
//! begin outside of a region that it reaches into.

use super::fault::with_pager;
use super::limits::CALL_SHARE;
use super::pager::{Access, FaultError, Pager};
use super::{Quiet, table::State};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;

impl From<FaultError> for io::Error {
    fn from(error: FaultError) -> io::Error {
        match error {
            FaultError::Unavailable(errno) => io::Error::from_raw_os_error(errno),
            error => io::Error::other(error),
        }
    }
}

impl Pager {
    /// Brings the pages of a buffer in this region; how many of its bytes are there.
    fn touch(&self, start: usize, bytes: usize, access: Access) -> Result<usize, FaultError> {
        let most = (self.frames / CALL_SHARE).max(1) * self.page_bytes;
        let bytes = bytes.min(most - start % self.page_bytes).min(self.area - start);
        let first = (start - self.base) / self.page_bytes;
        let last = (start - self.base + bytes).div_ceil(self.page_bytes);
        let is_there =
            |page| self.table.peek(page).is_some_and(|held| held.state == State::Resident);
        if !(first..last).all(is_there) {
            let _quiet = Quiet::new();
            self.contexts.with(|context| {
                (first..last).try_for_each(|page| self.bring(context, page, access, false))
            })?;
        }
        Ok(bytes)
    }
}

fn touch(buffer: *const u8, bytes: usize, access: Access) -> Result<usize, FaultError> {
    let start = buffer as usize;
    with_pager(start, |pager| pager.touch(start, bytes, access)).unwrap_or(Ok(bytes))
}

/// Calls with as much of the buffer as is touched, twice if a page left meanwhile.
fn touched(
    buffer: *const u8,
    bytes: usize,
    access: Access,
    mut call: impl FnMut(usize) -> Result<usize, Errno>,
) -> io::Result<usize> {
    let there = touch(buffer, bytes, access)?;
    match call(there) {
        Err(Errno::FAULT) => Ok(call(touch(buffer, bytes, access)?)?),
        result => Ok(result?),
    }
}

/// read(2).
pub fn read(fd: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    touched(into.as_ptr(), into.len(), Access::Write, |bytes| {
        rustix::io::read(&fd, &mut into[..bytes])
    })
}

/// pread(2).
pub fn pread(fd: impl AsFd, into: &mut [u8], offset: u64) -> io::Result<usize> {
    touched(into.as_ptr(), into.len(), Access::Write, |bytes| {
        rustix::io::pread(&fd, &mut into[..bytes], offset)
    })
}

/// write(2).
pub fn write(fd: impl AsFd, from: &[u8]) -> io::Result<usize> {
    touched(from.as_ptr(), from.len(), Access::Read, |bytes| rustix::io::write(&fd, &from[..bytes]))
}

/// pwrite(2).
pub fn pwrite(fd: impl AsFd, from: &[u8], offset: u64) -> io::Result<usize> {
    touched(from.as_ptr(), from.len(), Access::Read, |bytes| {
        rustix::io::pwrite(&fd, &from[..bytes], offset)
    })
}

/// send(2).
pub fn send(fd: impl AsFd, from: &[u8], flags: SendFlags) -> io::Result<usize> {
    touched(from.as_ptr(), from.len(), Access::Read, |bytes| {
        rustix::net::send(&fd, &from[..bytes], flags)
    })
}

/// recv(2).
pub fn recv(fd: impl AsFd, into: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
    touched(into.as_ptr(), into.len(), Access::Write, |bytes| {
        rustix::net::recv(&fd, &mut into[..bytes], flags).map(|(count, _)| count)
    })
}

/// readv(2). Buffers that cannot all be in memory at a time are filled one at a time.
pub fn readv(fd: impl AsFd, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    for part in into.iter() {
        touch(part.as_ptr(), part.len(), Access::Write)?;
    }
    match rustix::io::readv(&fd, into) {
        Err(Errno::FAULT) => match into.iter_mut().find(|part| !part.is_empty()) {
            Some(first) => read(fd, first),
            None => Ok(0),
        },
        result => Ok(result?),
    }
}

/// writev(2). As [`readv`].
pub fn writev(fd: impl AsFd, from: &[IoSlice<'_>]) -> io::Result<usize> {
    for part in from {
        touch(part.as_ptr(), part.len(), Access::Read)?;
    }
    match rustix::io::writev(&fd, from) {
        Err(Errno::FAULT) => {
            from.iter().find(|part| !part.is_empty()).map_or(Ok(0), |first| write(fd, first))
        }
        result => Ok(result?),
    }
}
