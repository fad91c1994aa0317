//! The functions that ours stand before.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    pub fn __libc_memalign(alignment: usize, bytes: usize) -> *mut c_void;
    pub fn __libc_malloc(bytes: usize) -> *mut c_void;
    pub fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    pub fn __libc_free(pointer: *mut c_void);
}

/// A function of the next library that has it, looked up when it is first used.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address.
    pub fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name is a C string. That malloc(3) is called meanwhile is provided for, see `memory`.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        assert!(!found.is_null(), "the C library has this function");
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// The kernel's mmap(2).
pub unsafe fn mmap(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: as the caller says; errno is set as by the library's.
    unsafe {
        libc::syscall(libc::SYS_mmap, address, bytes, access, flags, fd, offset) as *mut c_void
    }
}

/// The kernel's munmap(2).
pub unsafe fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) as c_int }
}

/// The kernel's mremap(2).
pub unsafe fn mremap(
    address: *mut c_void,
    bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new_address: *mut c_void,
) -> *mut c_void {
    // SAFETY: as the caller says.
    unsafe {
        libc::syscall(libc::SYS_mremap, address, bytes, new_bytes, flags, new_address)
            as *mut c_void
    }
}

/// The kernel's madvise(2).
pub unsafe fn madvise(address: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe { libc::syscall(libc::SYS_madvise, address, bytes, advice) as c_int }
}
