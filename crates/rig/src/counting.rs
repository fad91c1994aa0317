//! An allocator that counts. A test makes it its `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

static IN_PROCESS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    // Made without an allocation and dropped without code, so that counting never allocates.
    static IN_THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with every allocation counted.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

impl Counting {
    /// Allocations by all threads so far.
    pub fn in_process() -> u64 {
        IN_PROCESS.load(Ordering::Relaxed)
    }

    /// Allocations by the calling thread so far.
    pub fn in_thread() -> u64 {
        IN_THREAD.get()
    }
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_PROCESS.fetch_add(1, Ordering::Relaxed);
        IN_THREAD.set(IN_THREAD.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
