//! The library that `trapeze run` puts before a program (LD_PRELOAD of ld.so(8)): large anonymous memory that the
//! program asks for, by mmap(2) or malloc(3), is in one region with one budget of frames, served by handler threads, so
//! that its system calls work as before.
//!
//! | part | what it does |
//! | --- | --- |
//! | `setup` | the region, made before the program begins, from environment variables |
//! | `arena` | which part of the region is in use |
//! | `memory` | malloc(3) and what belongs to it |
//! | `maps` | mmap(2) and what belongs to it |
//! | `real` | the functions behind: those of the next library, and the kernel's |
//!
//! Invariants: this library's own memory is never in the region, because its threads would wait for themselves; what it
//! does not understand it hands on; in a child after fork(2), which does not have the region, it hands on everything.
#![cfg(target_os = "linux")]

mod arena;
mod maps;
mod memory;
mod real;
mod setup;

/// Memory for this library itself, past everything that is put before.
struct Own;

// SAFETY: these are malloc(3) and its relatives as glibc exports them for who replaces them.
unsafe impl std::alloc::GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        // SAFETY: any size and any power of two will do.
        unsafe { real::__libc_memalign(layout.align().max(16), layout.size()).cast() }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, _layout: std::alloc::Layout) {
        // SAFETY: it comes from `alloc`.
        unsafe { real::__libc_free(pointer.cast()) }
    }
}

#[global_allocator]
static OWN: Own = Own;
