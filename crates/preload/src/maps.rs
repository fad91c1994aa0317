//! mmap(2), munmap(2), mremap(2) and madvise(2).

use crate::memory::{give_back, take};
use crate::real;
use crate::setup::{has, is_large, parts};
use region::Advice;
use std::ffi::{c_int, c_void};

/// Flags that ask for more than private memory of zeros.
const SPECIAL: c_int = libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_SHARED
    | libc::MAP_STACK
    | libc::MAP_GROWSDOWN
    | libc::MAP_HUGETLB
    | libc::MAP_LOCKED
    | libc::MAP_32BIT;

/// # Safety
/// As of mmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    let plain = flags & libc::MAP_ANONYMOUS != 0 && flags & SPECIAL == 0;
    if plain && access == libc::PROT_READ | libc::PROT_WRITE && is_large(bytes) {
        return take(bytes, 1, false).map_or(libc::MAP_FAILED, |at| at as *mut c_void);
    }
    // SAFETY: as the caller says.
    unsafe { real::mmap(address, bytes, access, flags, fd, offset) }
}

/// # Safety
/// As of mmap64(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe { mmap(address, bytes, access, flags, fd, offset) }
}

/// # Safety
/// As of munmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    if !has(address as usize) {
        // SAFETY: as the caller says.
        return unsafe { real::munmap(address, bytes) };
    }
    if parts().is_some() {
        give_back(address as usize, bytes);
    }
    0
}

/// # Safety
/// As of mremap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mremap(
    address: *mut c_void,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    if !has(address as usize) {
        // SAFETY: as the caller says.
        return unsafe { real::mremap(address, bytes, new_bytes, flags, new_address) };
    }
    let end = address as usize + new_bytes;
    if new_bytes <= bytes {
        if new_bytes < bytes {
            give_back(end, bytes - new_bytes);
        }
        return address;
    }
    let may_move = parts().is_some() && flags == libc::MREMAP_MAYMOVE;
    let Some(at) = may_move.then(|| take(new_bytes, 1, false)).flatten() else {
        // SAFETY: it is the address of a variable of this thread.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return libc::MAP_FAILED;
    };
    // SAFETY: both have so many bytes, and the new part belongs to this call alone.
    unsafe {
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), at as *mut u8, bytes);
    }
    give_back(address as usize, bytes);
    at as *mut c_void
}

/// # Safety
/// As of madvise(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if !has(address as usize) {
        // SAFETY: as the caller says.
        return unsafe { real::madvise(address, bytes, advice) };
    }
    if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE)
        && let Some((region, _)) = parts()
    {
        let offset = address as usize - region.as_ptr() as usize;
        // As for memory that is unmapped; everything else is a hint.
        let _ = region.advise(offset, bytes.min(region.len() - offset), Advice::Free);
    }
    0
}
