//! The memory under a pool.

use crate::limits::PAGE_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A contiguous piece of memory that a pool allocates in pages.
///
/// # Safety
/// `base` must stay valid for reads and writes of `len` bytes, page-aligned, for as long as the value lives, and
/// nothing but the pool made from the value may write there.
pub unsafe trait Region {
    /// The first byte, aligned to a page.
    fn base(&self) -> NonNull<u8>;
    /// Length in bytes, a multiple of the page.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Gives whole pages' memory back to the system until they are touched again; they are zeros then. False where that
    /// cannot be. The bytes must be in no use.
    fn discard(&self, at: usize, bytes: usize) -> bool {
        let _ = (at, bytes);
        false
    }
}

/// Pages of this process's heap: for simulations and tests.
#[derive(Debug)]
pub struct HeapRegion {
    base: NonNull<u8>,
    len: usize,
    /// The allocation.
    start: NonNull<u8>,
    layout: Layout,
}

impl HeapRegion {
    /// `pages` zeroed pages, which the system gives when they are touched. Fails only when memory is exhausted, as any
    /// allocation.
    pub fn new(pages: usize) -> HeapRegion {
        assert!(pages > 0, "a region has at least one page");
        // With the alignment of a page the allocator would write every zero itself.
        let layout = Layout::from_size_align((pages + 1) * PAGE_BYTES, 1).expect("a sane size");
        // SAFETY: the layout has a size above zero, asserted above.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        let skipped = start.align_offset(PAGE_BYTES);
        // SAFETY: less than a page is skipped, and the allocation is one page longer than the region.
        let base = unsafe { start.add(skipped) };
        HeapRegion { base, len: pages * PAGE_BYTES, start, layout }
    }
}

impl Drop for HeapRegion {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

// SAFETY: the allocation lives until drop, `base` is page-aligned with `len` bytes of it behind, and no other code has
// its address.
unsafe impl Region for HeapRegion {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.len
    }
}
