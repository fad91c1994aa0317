//! Contexts in which a thread serves a fault, made beforehand: a stack, a page of memory, and a connection to the
//! backing. A thread takes one of a region's contexts by its number, without a lock; one that finds none free lets
//! others run.

use super::backing::{Backing, Source};
use super::limits::STACK_BYTES;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// The guard below a stack.
const GUARD_BYTES: usize = 4096;
/// Threads whose stacks are this far from each other begin their search at different contexts.
const STACKS_SHIFT: u32 = 16;

/// Private memory, with an inaccessible page at its start.
#[derive(Debug)]
struct Block {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, and `Block` only gives out its address.
unsafe impl Send for Block {}

impl Block {
    /// Touched, so that no fault of the kernel's own is left to take.
    fn new(bytes: usize) -> io::Result<Block> {
        let bytes = bytes + GUARD_BYTES;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let flags = flags | MapFlags::POPULATE;
        // SAFETY: the kernel chooses an unused address, so no existing mapping is replaced.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        let base = NonNull::new(base.cast()).expect("a mapping is never at address 0");
        let block = Block { base, bytes };
        // SAFETY: the range is the start of the mapping that was just made.
        unsafe {
            rustix::mm::mprotect(base.as_ptr().cast(), GUARD_BYTES, MprotectFlags::empty())?;
        }
        Ok(block)
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the mapping is longer than its guard.
        unsafe { self.base.as_ptr().add(GUARD_BYTES) }
    }

    fn end(&self) -> *mut u8 {
        // SAFETY: one past the mapping.
        unsafe { self.base.as_ptr().add(self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `mmap` gave, and its only owner goes away.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// State for one fault at a time.
pub struct Context {
    stack: Block,
    page: Block,
    page_bytes: usize,
    source: Box<dyn Source>,
}

impl Context {
    /// With memory of its own.
    pub fn new(backing: &dyn Backing, page_bytes: usize) -> io::Result<Context> {
        let (stack, page) = (Block::new(STACK_BYTES)?, Block::new(page_bytes)?);
        Ok(Context { stack, page, page_bytes, source: backing.source(page_bytes)? })
    }

    /// The way to the backing, and a page of memory beside it.
    pub fn parts(&mut self) -> (&mut dyn Source, &mut [u8]) {
        // SAFETY: the block has so many bytes behind its guard, and the context is borrowed for as long.
        let page = unsafe { std::slice::from_raw_parts_mut(self.page.start(), self.page_bytes) };
        (&mut *self.source, page)
    }

    /// Runs `work` on this context's stack, wherever the thread's own is and however little is left of it. A panic in
    /// it ends the process.
    pub fn on_stack<F: FnOnce(&mut Context)>(&mut self, work: F) {
        let top = self.stack.end();
        let mut call = (Some(work), self);
        // SAFETY: the stack belongs to this context, which no other thread uses meanwhile. The argument lives through
        // the call, and is what `run` takes.
        unsafe { call_on(top, run::<F>, (&raw mut call).cast()) };
    }
}

extern "C" fn run<F: FnOnce(&mut Context)>(call: *mut c_void) {
    // SAFETY: `on_stack` passes just this.
    let (work, context) = unsafe { &mut *call.cast::<(Option<F>, &mut Context)>() };
    if let Some(work) = work.take() {
        work(context);
    }
}

/// Calls `what` with the stack pointer at `top`.
///
/// # Safety
/// Below `top` is memory for a stack that nothing else uses, and `argument` is what `what` takes.
#[cfg(target_arch = "x86_64")]
unsafe fn call_on(top: *mut u8, what: extern "C" fn(*mut c_void), argument: *mut c_void) {
    // SAFETY: r12 survives the call (System V ABI, section 3.2.1) and brings the stack pointer back; `top` is a page's
    // end and so aligned as the ABI wants it; what else the call may change is said.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {what}",
            "mov rsp, r12",
            top = in(reg) top,
            what = in(reg) what,
            in("rdi") argument,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Elsewhere the thread's own stack has to do.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn call_on(_top: *mut u8, what: extern "C" fn(*mut c_void), argument: *mut c_void) {
    what(argument);
}

struct Slot {
    taken: AtomicBool,
    context: UnsafeCell<Context>,
}

/// The contexts of a region.
pub struct Contexts(Box<[Slot]>);

// SAFETY: `taken` lets one thread at a time to a context, whose parts may move between threads.
unsafe impl Sync for Contexts {}

impl Contexts {
    /// `count` of them.
    pub fn new(count: usize, backing: &dyn Backing, page_bytes: usize) -> io::Result<Contexts> {
        let slot = |_| {
            let context = UnsafeCell::new(Context::new(backing, page_bytes)?);
            Ok(Slot { taken: AtomicBool::new(false), context })
        };
        Ok(Contexts((0..count).map(slot).collect::<io::Result<_>>()?))
    }

    /// Uses one of them, the same as last time where that is free.
    pub fn with<T>(&self, work: impl FnOnce(&mut Context) -> T) -> T {
        let near = &raw const work as usize;
        let start = near >> STACKS_SHIFT;
        for at in start.. {
            let slot = &self.0[at % self.0.len()];
            if !slot.taken.swap(true, Ordering::Acquire) {
                let taken = Taken(slot);
                // SAFETY: this thread has just taken it.
                return work(unsafe { &mut *taken.0.context.get() });
            }
            if at % self.0.len() == start.wrapping_sub(1) % self.0.len() {
                std::thread::yield_now(); // sched_yield(2), nothing else
            }
        }
        unreachable!("the search does not end")
    }
}

struct Taken<'a>(&'a Slot);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::super::backing::LocalMemory;
    use super::*;

    fn contexts(count: usize) -> Contexts {
        Contexts::new(count, &LocalMemory::new(1 << 20).unwrap(), 4096).unwrap()
    }

    #[test]
    fn work_runs_on_the_contexts_stack() {
        let contexts = contexts(2);
        let here = 0u8;
        let mut there = 0;
        contexts.with(|context| {
            let (low, high) = (context.stack.start() as usize, context.stack.end() as usize);
            context.on_stack(|context| {
                let local = [1u8; 50_000];
                std::hint::black_box(&local);
                there = &raw const local as usize;
                context.parts().1[0] = 7;
            });
            assert!((low..high).contains(&there));
            assert!(!(low..high).contains(&(&raw const here as usize)));
            assert_eq!(context.parts().1[0], 7);
        });
    }

    #[test]
    fn more_threads_than_contexts_take_turns() {
        let contexts = contexts(2);
        std::thread::scope(|scope| {
            for n in 0..5u8 {
                let contexts = &contexts;
                scope.spawn(move || {
                    for _ in 0..2_000 {
                        contexts.with(|context| {
                            let (_, page) = context.parts();
                            page.fill(n);
                            assert!(page.iter().all(|byte| *byte == n));
                        });
                    }
                });
            }
        });
    }
}
