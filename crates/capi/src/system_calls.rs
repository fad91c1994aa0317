//! System calls on memory that may be a region's. See [`region::calls`].

use crate::error::*;
use crate::limits::PARTS_MAX;
use region::calls;
use rustix::net::{RecvFlags, SendFlags};
use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

/// struct iovec of sys/uio.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct iovec {
    /// The first byte.
    pub iov_base: *mut c_void,
    /// How many.
    pub iov_len: usize,
}

/// Runs a system call; its result, or -1 and the error in tpz_errno().
fn system_call(
    function: &'static str,
    fd: c_int,
    call: impl FnOnce(BorrowedFd<'_>) -> Outcome<io::Result<usize>>,
) -> isize {
    let result = run(function, None, || {
        if fd < 0 {
            return Err(Failure { code: TPZ_EBADF, text: format!("descriptor {fd}").into() });
        }
        // SAFETY: the program keeps it open during the call, or gets the system's error.
        Ok(call(unsafe { BorrowedFd::borrow_raw(fd) })?? as isize)
    });
    result.unwrap_or(-1)
}

fn check(buffer: *const c_void, bytes: usize) -> Outcome<()> {
    let wrong = (buffer.is_null() && bytes > 0) || isize::try_from(bytes).is_err();
    if wrong { Err(invalid("the buffer is NULL, or longer than memory")) } else { Ok(()) }
}

/// A buffer that the call fills.
///
/// # Safety
/// `buffer` is NULL or has `bytes` bytes, which are the call's alone.
unsafe fn filled<'a>(buffer: *mut c_void, bytes: usize) -> Outcome<&'a mut [u8]> {
    check(buffer, bytes)?;
    if bytes == 0 {
        return Ok(&mut []); // the address may be any then
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), bytes) })
}

/// A buffer that the call reads.
///
/// # Safety
/// `buffer` is NULL or has `bytes` bytes, which no thread writes meanwhile.
unsafe fn given<'a>(buffer: *const c_void, bytes: usize) -> Outcome<&'a [u8]> {
    check(buffer, bytes)?;
    if bytes == 0 {
        return Ok(&[]); // the address may be any then
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(buffer.cast(), bytes) })
}

/// The parts of a call with several buffers.
///
/// # Safety
/// `parts` is NULL or has `count` entries.
unsafe fn parts_of<'a>(parts: *const iovec, count: c_int) -> Outcome<&'a [iovec]> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if count <= PARTS_MAX && !parts.is_null() => {
            // SAFETY: the caller's promise.
            Ok(unsafe { std::slice::from_raw_parts(parts, count) })
        }
        _ => Err(invalid(format!("{count} parts: 0 to {PARTS_MAX}, and parts not NULL"))),
    }
}

/// read(2) into memory that may be a region's: its pages are brought first, as the kernel cannot. As read(2) it may
/// read less, and it reads no more than what a quarter of the region's frames holds. -1 for an error, which is in
/// tpz_errno().
///
/// # Safety
/// `into` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_read(fd: c_int, into: *mut c_void, bytes: usize) -> isize {
    // SAFETY: the caller's promise.
    system_call("tpz_read", fd, |fd| Ok(calls::read(fd, unsafe { filled(into, bytes)? })))
}

/// write(2) from memory that may be a region's; see tpz_read().
///
/// # Safety
/// `from` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_write(fd: c_int, from: *const c_void, bytes: usize) -> isize {
    // SAFETY: the caller's promise.
    system_call("tpz_write", fd, |fd| Ok(calls::write(fd, unsafe { given(from, bytes)? })))
}

/// pread(2) into memory that may be a region's; see tpz_read().
///
/// # Safety
/// `into` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_pread(
    fd: c_int,
    into: *mut c_void,
    bytes: usize,
    offset: u64,
) -> isize {
    // SAFETY: the caller's promise.
    system_call("tpz_pread", fd, |fd| Ok(calls::pread(fd, unsafe { filled(into, bytes)? }, offset)))
}

/// pwrite(2) from memory that may be a region's; see tpz_read().
///
/// # Safety
/// `from` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_pwrite(
    fd: c_int,
    from: *const c_void,
    bytes: usize,
    offset: u64,
) -> isize {
    system_call("tpz_pwrite", fd, |fd| {
        // SAFETY: the caller's promise.
        Ok(calls::pwrite(fd, unsafe { given(from, bytes)? }, offset))
    })
}

/// readv(2) into memory that may be a region's; see tpz_read(). 1024 parts at most.
///
/// # Safety
/// `parts` has `count` entries, and each has its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_readv(fd: c_int, parts: *const iovec, count: c_int) -> isize {
    system_call("tpz_readv", fd, |fd| {
        // SAFETY: the caller's promise.
        let parts = unsafe { parts_of(parts, count)? }.iter();
        // SAFETY: as above.
        let filled = parts.map(|part| unsafe { filled(part.iov_base, part.iov_len) });
        let mut parts =
            filled.map(|part| part.map(IoSliceMut::new)).collect::<Outcome<Vec<_>>>()?;
        Ok(calls::readv(fd, &mut parts))
    })
}

/// writev(2) from memory that may be a region's; see tpz_read(). 1024 parts at most.
///
/// # Safety
/// `parts` has `count` entries, and each has its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_writev(fd: c_int, parts: *const iovec, count: c_int) -> isize {
    system_call("tpz_writev", fd, |fd| {
        // SAFETY: the caller's promise.
        let parts = unsafe { parts_of(parts, count)? }.iter();
        // SAFETY: as above.
        let given = parts.map(|part| unsafe { given(part.iov_base, part.iov_len) });
        let parts = given.map(|part| part.map(IoSlice::new)).collect::<Outcome<Vec<_>>>()?;
        Ok(calls::writev(fd, &parts))
    })
}

/// recv(2) into memory that may be a region's; see tpz_read(). A message of a datagram socket that is longer than what
/// is read at most is cut, as by a buffer that is too short.
///
/// # Safety
/// `into` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_recv(
    fd: c_int,
    into: *mut c_void,
    bytes: usize,
    flags: c_int,
) -> isize {
    let flags = RecvFlags::from_bits_retain(flags as u32);
    // SAFETY: the caller's promise.
    system_call("tpz_recv", fd, |fd| Ok(calls::recv(fd, unsafe { filled(into, bytes)? }, flags)))
}

/// send(2) from memory that may be a region's; see tpz_read().
///
/// # Safety
/// `from` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tpz_send(
    fd: c_int,
    from: *const c_void,
    bytes: usize,
    flags: c_int,
) -> isize {
    let flags = SendFlags::from_bits_retain(flags as u32);
    // SAFETY: the caller's promise.
    system_call("tpz_send", fd, |fd| Ok(calls::send(fd, unsafe { given(from, bytes)? }, flags)))
}

/// Says that `bytes` bytes from `offset` of an open file in a mount of a cluster will be read soon, after all that was
/// named before; all that follow when `bytes` is 0. The I/O servers read them ahead from their disks, and the mount the
/// next files ahead of their reader. How many bytes were noted; -1 when it failed: tpz_errno() is ENOTTY where the file
/// is in no mount, EAGAIN where the mount keeps no more hints. It changes no byte that is read.
#[unsafe(no_mangle)]
pub extern "C" fn tpz_prefetch(fd: c_int, offset: u64, bytes: u64) -> isize {
    let end = if bytes == 0 { u64::MAX } else { offset.saturating_add(bytes) };
    let noted = |fd: BorrowedFd<'_>| live::fuse::hint::prefetch(fd, offset..end);
    system_call("tpz_prefetch", fd, |fd| Ok(noted(fd).map(|bytes| bytes as usize)))
}
