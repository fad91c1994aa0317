//! malloc(3), free(3) and their relatives.

use crate::arena::PAGE_BYTES;
use crate::real::{__libc_calloc, __libc_malloc, Next};
use crate::setup::{has, is_large, note_refused, parts};
use region::Advice;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

static MALLOC: Next = Next::new(c"malloc");
static CALLOC: Next = Next::new(c"calloc");
static REALLOC: Next = Next::new(c"realloc");
static FREE: Next = Next::new(c"free");
static MEMALIGN: Next = Next::new(c"memalign");
static USABLE: Next = Next::new(c"malloc_usable_size");

thread_local! {
    /// This thread looks a function up, and dlsym(3) asks for memory.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// The function behind; `None` while it is being looked up by this thread.
fn next(function: &Next) -> Option<*mut c_void> {
    if LOOKING.get() {
        return None;
    }
    LOOKING.set(true);
    let found = function.get();
    LOOKING.set(false);
    Some(found)
}

fn out_of_memory() -> *mut c_void {
    // SAFETY: it is the address of a variable of this thread.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    null_mut()
}

/// A part of the region: zeros. Where the region is full there is none, and the program has no other memory for it
/// either: more than the region is more than it may have.
pub fn take(bytes: usize, alignment: usize, given: bool) -> Option<usize> {
    let taken = parts().and_then(|(_, arena)| arena.take(bytes, alignment, given));
    if taken.is_none() {
        note_refused();
        out_of_memory();
    }
    taken
}

fn large(bytes: usize, alignment: usize) -> *mut c_void {
    take(bytes, alignment, true).map_or(null_mut(), |at| at as *mut c_void)
}

/// Empties a part of the region and puts it back.
pub fn give_back(at: usize, bytes: usize) {
    let Some((region, arena)) = parts() else { return };
    let offset = at - region.as_ptr() as usize;
    // Its errors are those of pages that come, and none comes.
    let _ = region.advise(offset, bytes, Advice::Free);
    arena.put(at, bytes);
}

#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if is_large(bytes) {
        return large(bytes, 1);
    }
    // SAFETY: these are malloc(3) itself.
    unsafe {
        match next(&MALLOC) {
            Some(real) => {
                transmute::<*mut c_void, extern "C" fn(usize) -> *mut c_void>(real)(bytes)
            }
            None => __libc_malloc(bytes),
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return out_of_memory() };
    if is_large(all) {
        return large(all, 1);
    }
    type Calloc = extern "C" fn(usize, usize) -> *mut c_void;
    // SAFETY: these are calloc(3) itself.
    unsafe {
        match next(&CALLOC) {
            Some(real) => transmute::<*mut c_void, Calloc>(real)(count, bytes),
            None => __libc_calloc(count, bytes),
        }
    }
}

/// # Safety
/// As of free(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn free(pointer: *mut c_void) {
    let at = pointer as usize;
    // Memory that malloc gave out of the region begins with a page; other memory is the next allocator's, which has
    // mapped it.
    if has(at) && at.is_multiple_of(PAGE_BYTES) {
        if let Some(bytes) = parts().and_then(|(_, arena)| arena.forget(at)) {
            give_back(at, bytes);
            return;
        }
    }
    if has(at) && parts().is_none() {
        return; // in a child, which does not have it
    }
    if let Some(real) = next(&FREE) {
        // SAFETY: it is free(3), and the pointer is the caller's.
        unsafe { transmute::<*mut c_void, extern "C" fn(*mut c_void)>(real)(pointer) };
    }
}

/// # Safety
/// As of realloc(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    let at = pointer as usize;
    let ours = parts().filter(|_| has(at)).and_then(|(_, arena)| arena.given(at));
    let before = match ours {
        Some(before) => before,
        None if pointer.is_null() => return malloc(bytes),
        None if is_large(bytes) => {
            // SAFETY: as the caller says.
            unsafe { malloc_usable_size(pointer) }
        }
        None => {
            type Realloc = extern "C" fn(*mut c_void, usize) -> *mut c_void;
            // It was found before the program had a pointer to pass.
            let Some(real) = next(&REALLOC) else { return out_of_memory() };
            // SAFETY: it is realloc(3), and the arguments are the caller's.
            return unsafe { transmute::<*mut c_void, Realloc>(real)(pointer, bytes) };
        }
    };
    if ours.is_some() && bytes <= before && is_large(bytes) {
        return pointer;
    }
    let moved = malloc(bytes);
    if !moved.is_null() {
        // SAFETY: both have so many bytes, and the new one belongs to this call alone.
        unsafe {
            std::ptr::copy_nonoverlapping(
                pointer.cast::<u8>(),
                moved.cast::<u8>(),
                before.min(bytes),
            );
            free(pointer);
        }
    }
    moved
}

/// # Safety
/// As of reallocarray(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(pointer: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller says.
        Some(all) => unsafe { realloc(pointer, all) },
        None => out_of_memory(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(alignment: usize, bytes: usize) -> *mut c_void {
    if is_large(bytes) && alignment.is_power_of_two() {
        return large(bytes, alignment);
    }
    let Some(real) = next(&MEMALIGN) else { return out_of_memory() };
    // SAFETY: it is memalign(3).
    unsafe {
        transmute::<*mut c_void, extern "C" fn(usize, usize) -> *mut c_void>(real)(alignment, bytes)
    }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    memalign(alignment, bytes)
}

/// # Safety
/// As of posix_memalign(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(
    into: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    if !alignment.is_power_of_two() || alignment < size_of::<usize>() {
        return libc::EINVAL;
    }
    let got = memalign(alignment, bytes);
    if got.is_null() && bytes > 0 {
        return libc::ENOMEM;
    }
    // SAFETY: the caller passes where it is to go.
    unsafe { into.write(got) };
    0
}

/// # Safety
/// As of malloc_usable_size(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    let at = pointer as usize;
    if let Some(bytes) = parts().filter(|_| has(at)).and_then(|(_, arena)| arena.given(at)) {
        return bytes;
    }
    let Some(real) = next(&USABLE) else { return 0 };
    // SAFETY: it is malloc_usable_size(3), and the pointer is the caller's.
    unsafe { transmute::<*mut c_void, extern "C" fn(*mut c_void) -> usize>(real)(pointer) }
}
