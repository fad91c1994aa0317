//! Payload frames: page-aligned runs from one pool, with one owner each while they are written and many while they
//! are only read (HotI'99 section 2.2, unified buffering).
//!
//! The pool is a binary buddy system: free runs have 1, 2, 4 … 256 pages. A payload of any size up to that is one
//! contiguous run of just the pages it needs; what is left of the free run goes back at once. The pool allocates no
//! memory after it is made and belongs to one thread.
//!
//! Invariant: every byte of the pool is in a free run, or under exactly one [`FrameMut`], or under any number of
//! [`Frame`]s. A run returns to the pool when its last handle is dropped.

use crate::limits::{PAGE_BYTES, RUN_ORDER_MAX, STRETCH_BYTES};
use crate::memory::Region;
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::rc::Rc;

const NONE: u32 = u32::MAX;
const ORDERS: usize = RUN_ORDER_MAX as usize + 1;

/// The pool. Cloning gives another handle to the same pool.
#[derive(Clone)]
pub struct Frames(Rc<Pool>);

struct Pool {
    region: Box<dyn Region>,
    pages: Box<[Page]>,
    free: [Cell<u32>; ORDERS],
    free_pages: Cell<usize>,
    free_largest: Cell<usize>,
    low_water: Cell<usize>,
    /// Free runs of the largest size that have no memory.
    bare: Cell<usize>,
}

/// The pool's record of a page; only the first page of a run counts.
#[derive(Default)]
struct Page {
    handles: Cell<u32>,
    /// Pages of a run that is in use.
    count: Cell<u16>,
    /// Of a free run.
    order: Cell<u8>,
    free: Cell<bool>,
    /// Of a free run of the largest size: the system has its memory.
    bare: Cell<bool>,
    next: Cell<u32>,
    previous: Cell<u32>,
}

impl Page {
    /// Pages of the run that begins here.
    fn len(&self) -> usize {
        if self.free.get() { 1 << self.order.get() } else { self.count.get().into() }
    }
}

impl Frames {
    /// A pool over all of `region`.
    pub fn new(region: impl Region + 'static) -> Frames {
        let count = region.len() / PAGE_BYTES;
        assert!(count < NONE as usize, "a pool has fewer than 2^32 - 1 pages");
        let pool = Pool {
            region: Box::new(region),
            pages: (0..count).map(|_| Page::default()).collect(),
            free: std::array::from_fn(|_| Cell::new(NONE)),
            free_pages: Cell::new(0),
            free_largest: Cell::new(0),
            low_water: Cell::new(count),
            bare: Cell::new(0),
        };
        pool.fill();
        Frames(Rc::new(pool))
    }

    /// A run that holds at least `bytes`, whole pages, contents undefined but initialised (stale or zero). `None` when
    /// no run that long is free.
    pub fn alloc(&self, bytes: usize) -> Option<FrameMut> {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let run = self.0.take(pages)?;
        self.0.pages[run as usize].handles.set(1);
        let (at, len) = (run as usize * PAGE_BYTES, pages * PAGE_BYTES);
        Some(FrameMut(Part { pool: self.clone(), run, at, len }))
    }

    /// As [`alloc`](Frames::alloc), cut to exactly `bytes`.
    pub fn alloc_exact(&self, bytes: usize) -> Option<FrameMut> {
        let mut frame = self.alloc(bytes)?;
        frame.truncate(bytes);
        Some(frame)
    }

    /// A frame with a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> Option<Frame> {
        let mut frame = self.alloc_exact(bytes.len())?;
        frame.copy_from_slice(bytes);
        Some(frame.freeze())
    }

    /// Pages in the pool.
    pub fn pages(&self) -> usize {
        self.0.pages.len()
    }

    /// Pages that no handle holds.
    pub fn free_pages(&self) -> usize {
        self.0.free_pages.get()
    }

    /// Bytes in free runs of the largest size, the only ones that surely take a payload of any length.
    pub fn free_largest_bytes(&self) -> usize {
        self.0.free_largest.get() * STRETCH_BYTES
    }

    /// Gives memory of the largest free runs back to the system, of `most` at a time, until `wanted` are without.
    /// One that is taken again gets memory as it is touched. Answers with how many are without now.
    pub fn discard_free(&self, wanted: usize, most: usize) -> usize {
        let (pool, mut left) = (&self.0, most);
        let mut run = pool.free[ORDERS - 1].get();
        while run != NONE && left > 0 && pool.bare.get() < wanted {
            let page = &pool.pages[run as usize];
            if !page.bare.get() {
                if !pool.region.discard(run as usize * PAGE_BYTES, STRETCH_BYTES) {
                    break;
                }
                page.bare.set(true);
                pool.bare.set(pool.bare.get() + 1);
                left -= 1;
            }
            run = page.next.get();
        }
        pool.bare.get()
    }

    /// Bytes in free runs whose memory the system has.
    pub fn discarded_bytes(&self) -> usize {
        self.0.bare.get() * STRETCH_BYTES
    }

    /// Stretches of the pool, each as long as the largest run; the last may be shorter.
    pub fn stretches(&self) -> usize {
        self.bytes().div_ceil(STRETCH_BYTES)
    }

    /// Pages of a stretch that no handle holds.
    pub fn free_pages_in(&self, stretch: usize) -> usize {
        let (mut at, end) = (stretch << RUN_ORDER_MAX, (stretch + 1) << RUN_ORDER_MAX);
        let mut free = 0;
        while at < end.min(self.pages()) {
            let pages = self.0.pages[at].len();
            free += if self.0.pages[at].free.get() { pages } else { 0 };
            at += pages;
        }
        free
    }

    /// Fewest pages that were ever free.
    pub fn low_water_pages(&self) -> usize {
        self.0.low_water.get()
    }

    /// Bytes in the pool.
    pub fn bytes(&self) -> usize {
        self.pages() * PAGE_BYTES
    }

    /// Whether both are handles to one pool.
    pub fn same_pool(&self, other: &Frames) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({} of {} pages free)", self.free_pages(), self.pages())
    }
}

/// The smallest order whose run has `pages` pages; `None` when none does.
fn order_for(pages: usize) -> Option<u8> {
    let order = pages.next_power_of_two().trailing_zeros() as u8;
    (order <= RUN_ORDER_MAX).then_some(order)
}

/// The fewest runs that can be free and have just these pages, with their orders: a free run starts at a multiple of
/// its size.
fn free_runs(pages: Range<usize>) -> impl Iterator<Item = (u32, u8)> {
    let mut at = pages.start;
    std::iter::from_fn(move || {
        let left = pages.end.checked_sub(at).filter(|left| *left > 0)?;
        let order = at.trailing_zeros().min(left.ilog2()).min(RUN_ORDER_MAX.into()) as u8;
        let run = at as u32;
        at += 1 << order;
        Some((run, order))
    })
}

impl Pool {
    /// Puts every page into free runs, the lowest addresses first in line.
    fn fill(&self) {
        let runs: Vec<_> = free_runs(0..self.pages.len()).collect();
        for (run, order) in runs.into_iter().rev() {
            self.push(run, order);
        }
    }

    fn push(&self, run: u32, order: u8) {
        let page = &self.pages[run as usize];
        let head = self.free[order as usize].replace(run);
        page.order.set(order);
        page.free.set(true);
        page.next.set(head);
        page.previous.set(NONE);
        if head != NONE {
            self.pages[head as usize].previous.set(run);
        }
        self.free_pages.set(self.free_pages.get() + (1 << order));
        self.free_largest.set(self.free_largest.get() + usize::from(order == RUN_ORDER_MAX));
    }

    fn unlink(&self, run: u32) {
        let page = &self.pages[run as usize];
        let (previous, next, order) = (page.previous.get(), page.next.get(), page.order.get());
        match previous {
            NONE => self.free[order as usize].set(next),
            previous => self.pages[previous as usize].next.set(next),
        }
        if next != NONE {
            self.pages[next as usize].previous.set(previous);
        }
        page.free.set(false);
        self.bare.set(self.bare.get() - usize::from(page.bare.take()));
        self.free_pages.set(self.free_pages.get() - (1 << order));
        self.free_largest.set(self.free_largest.get() - usize::from(order == RUN_ORDER_MAX));
    }

    /// Takes a run of exactly so many pages, from the smallest free run that has them.
    fn take(&self, pages: usize) -> Option<u32> {
        let order = order_for(pages)?;
        let found = (order..=RUN_ORDER_MAX).find(|o| self.free[*o as usize].get() != NONE)?;
        let run = self.free[found as usize].get();
        self.unlink(run);
        let start = run as usize;
        free_runs(start + pages..start + (1 << found))
            .for_each(|(run, order)| self.push(run, order));
        self.pages[start].count.set(pages as u16);
        self.low_water.set(self.low_water.get().min(self.free_pages.get()));
        Some(run)
    }

    /// Returns a run that was in use.
    fn give_back(&self, run: u32) {
        let start = run as usize;
        let end = start + usize::from(self.pages[start].count.get());
        free_runs(start..end).for_each(|(run, order)| self.put_free(run, order));
    }

    /// Makes a run free, joined with its buddy for as long as that is free too.
    fn put_free(&self, mut run: u32, mut order: u8) {
        while order < RUN_ORDER_MAX {
            let buddy = run ^ (1 << order);
            match self.pages.get(buddy as usize) {
                Some(page) if page.free.get() && page.order.get() == order => self.unlink(buddy),
                _ => break,
            }
            run = run.min(buddy);
            order += 1;
        }
        self.push(run, order);
    }

    fn base(&self) -> *mut u8 {
        self.region.base().as_ptr()
    }
}

/// A handle to some bytes of one run.
struct Part {
    pool: Frames,
    run: u32,
    at: usize,
    len: usize,
}

impl Part {
    fn handles(&self) -> &Cell<u32> {
        &self.pool.0.pages[self.run as usize].handles
    }

    fn another(&self, range: Range<usize>) -> Part {
        assert!(range.start <= range.end, "a range that does not run backwards");
        assert!(range.end <= self.len, "a range inside the frame");
        let handles = self.handles();
        handles.set(handles.get() + 1);
        Part { pool: self.pool.clone(), run: self.run, at: self.at + range.start, len: range.len() }
    }

    fn join(&mut self, next: Part) -> Result<(), Part> {
        let behind = self.run == next.run && self.at + self.len == next.at;
        if !behind || !self.pool.same_pool(&next.pool) {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }

    fn pointer(&self) -> *mut u8 {
        // SAFETY: `at + len` lies inside the region: runs are made from its pages and parts only shrink.
        unsafe { self.pool.0.base().add(self.at) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let handles = self.handles();
        handles.set(handles.get() - 1);
        if handles.get() == 0 {
            self.pool.0.give_back(self.run);
        }
    }
}

/// Bytes of the pool that only this handle can reach: to be filled by their holder, or by the far end of a ring while
/// the entry that names them is under way.
pub struct FrameMut(Part);

impl FrameMut {
    /// Cuts off what is behind `at` and returns it: two owners of disjoint bytes.
    pub fn split_off(&mut self, at: usize) -> FrameMut {
        let tail = self.0.another(at..self.0.len);
        self.0.len = at;
        FrameMut(tail)
    }

    /// Takes back what was split off just behind: one owner of both. Gives `tail` back when it lies elsewhere.
    pub fn join(&mut self, tail: FrameMut) -> Result<(), FrameMut> {
        self.0.join(tail.0).map_err(FrameMut)
    }

    /// Forgets what is behind `len`; the bytes return to the pool with the run.
    pub fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len);
    }

    /// Whether the bytes lie in this pool.
    pub fn is_of(&self, pool: &Frames) -> bool {
        self.0.pool.same_pool(pool)
    }

    /// From now on shared and read-only.
    pub fn freeze(self) -> Frame {
        Frame(self.0)
    }

    /// Offset of the bytes from the pool's first byte: a shared-memory peer addresses them by it.
    pub fn offset(&self) -> usize {
        self.0.at
    }

    /// The first byte, for a system call or a device that fills the frame while its ring entry is under way.
    pub fn as_mut_pointer(&mut self) -> *mut u8 {
        self.0.pointer()
    }
}

impl Deref for FrameMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised (regions start zeroed) and this handle alone reaches them.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.len) }
    }
}

impl DerefMut for FrameMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes this access the only one.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer(), self.0.len) }
    }
}

impl fmt::Debug for FrameMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrameMut({}+{})", self.0.at, self.0.len)
    }
}

/// Bytes of the pool that any number of handles share, read-only.
pub struct Frame(Part);

impl Frame {
    /// Another handle to a part of the bytes. Panics when `range` is outside.
    pub fn slice(&self, range: Range<usize>) -> Frame {
        Frame(self.0.another(range))
    }

    /// Writable again, when this is the run's only handle.
    pub fn try_mut(self) -> Result<FrameMut, Frame> {
        if self.0.handles().get() == 1 { Ok(FrameMut(self.0)) } else { Err(self) }
    }

    /// Offset of the bytes from the pool's first byte.
    pub fn offset(&self) -> usize {
        self.0.at
    }

    /// Takes in `next`, which must be the bytes of the same run just behind. Gives it back when it lies elsewhere.
    pub fn join(&mut self, next: Frame) -> Result<(), Frame> {
        self.0.join(next.0).map_err(Frame)
    }

    /// Whether the bytes lie in this pool.
    pub fn is_of(&self, pool: &Frames) -> bool {
        self.0.pool.same_pool(pool)
    }
}

impl Clone for Frame {
    fn clone(&self) -> Frame {
        Frame(self.0.another(0..self.0.len))
    }
}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and, under a shared handle, never written.
        unsafe { std::slice::from_raw_parts(self.0.pointer(), self.0.len) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({}+{})", self.0.at, self.0.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HeapRegion;
    use proptest::prelude::*;

    fn pool(pages: usize) -> Frames {
        Frames::new(HeapRegion::new(pages))
    }

    #[test]
    fn split_frames_are_disjoint_and_the_run_returns_whole() {
        let frames = pool(256);
        let mut head = frames.alloc(64 * 1024).unwrap();
        let mut tail = head.split_off(32 * 1024);
        head.fill(1);
        tail.fill(2);
        assert!(head.iter().all(|b| *b == 1));
        let (head, tail) = (head.freeze(), tail.freeze());
        assert_eq!(head.offset() + head.len(), tail.offset());
        assert!(head.clone().try_mut().is_err());
        drop((head, tail));
        assert_eq!(frames.free_pages(), 256);
        assert!(frames.alloc(1 << 20).is_some());
    }

    #[test]
    fn what_was_split_can_be_joined_and_nothing_else() {
        let frames = pool(256);
        let mut head = frames.alloc(32 * 1024).unwrap();
        let mut middle = head.split_off(8 * 1024);
        let tail = middle.split_off(8 * 1024);
        let tail = head.join(tail).unwrap_err();
        head.join(middle).unwrap();
        head.join(tail).unwrap();
        assert_eq!(head.len(), 32 * 1024);
        let other = frames.alloc(32 * 1024).unwrap();
        assert!(head.join(other).is_err());
        assert!(head.freeze().try_mut().is_ok());
        assert_eq!(frames.free_pages(), 256);
    }

    #[test]
    fn a_full_pool_says_no() {
        let frames = pool(3);
        let held: Vec<_> = (0..3).map(|_| frames.alloc(1).unwrap()).collect();
        assert!(frames.alloc(1).is_none());
        assert_eq!(frames.low_water_pages(), 0);
        drop(held);
        assert!(frames.alloc(2 * PAGE_BYTES).is_some());
        assert!(frames.alloc((1 << 20) + 1).is_none());
    }

    proptest! {
        /// Any order of allocations and frees: no two frames overlap, each takes just the pages that it needs, all come
        /// back.
        #[test]
        fn no_overlap_and_no_leak(
            steps in prop::collection::vec((1usize..300_000, any::<prop::sample::Index>(), any::<bool>()), 1..200),
        ) {
            let frames = pool(700);
            let mut held: Vec<FrameMut> = Vec::new();
            for (bytes, which, free) in steps {
                if free && !held.is_empty() {
                    held.swap_remove(which.index(held.len()));
                } else if let Some(frame) = frames.alloc_exact(bytes) {
                    prop_assert_eq!(frame.len(), bytes);
                    held.push(frame);
                }
                let mut spans: Vec<_> = held.iter().map(|f| (f.offset(), f.offset() + f.len())).collect();
                spans.sort_unstable();
                prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0));
                let used: usize = held.iter().map(|f| f.len().div_ceil(PAGE_BYTES)).sum();
                prop_assert_eq!(frames.free_pages(), 700 - used);
                let by_stretch: usize = (0..frames.stretches()).map(|s| frames.free_pages_in(s)).sum();
                prop_assert_eq!(by_stretch, 700 - used);
            }
            drop(held);
            prop_assert_eq!(frames.free_pages(), 700);
            prop_assert_eq!(frames.free_largest_bytes(), 2 << 20);
        }
    }
}
