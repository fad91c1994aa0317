//! Where a pool's bytes live.

use crate::limits::PAGE_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// A stretch of memory that a pool hands out in pages.
///
/// # Safety
/// `base` must stay valid for reads and writes of `len` bytes, page-aligned, for as long as the value lives, and
/// nothing but the pool made from the value may write there.
pub unsafe trait Region {
    /// The first byte, aligned to a page.
    fn base(&self) -> NonNull<u8>;
    /// How many bytes, a multiple of the page.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pages of this process's heap: for simulations and tests.
#[derive(Debug)]
pub struct HeapRegion {
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapRegion {
    /// `pages` zeroed pages. Fails only when memory is exhausted, as any allocation.
    pub fn new(pages: usize) -> HeapRegion {
        assert!(pages > 0, "a region has at least one page");
        let layout = Layout::from_size_align(pages * PAGE_BYTES, PAGE_BYTES).expect("a sane size");
        // SAFETY: the layout has a size above zero, asserted above.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        HeapRegion { base, layout }
    }
}

impl Drop for HeapRegion {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: the allocation lives until drop, is page-aligned by its layout, and nobody else knows its address.
unsafe impl Region for HeapRegion {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}
