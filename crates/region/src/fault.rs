//! SIGBUS: the fault of a thread in a region, resolved by that very thread.
//!
//! The handler finds the region by the address in a table of atomics and serves the fault on the stack of a context of
//! that region, so that it needs little of whatever stack the thread has. Other faults are handed to the earlier
//! handler of SIGBUS. It is installed once and stays.

use super::counters::What;
use super::limits::REGIONS_MAX;
use super::pager::{Access, FaultError, Pager};
use super::uffd::errno;
use arrayvec::ArrayVec;
use std::fmt::Write;
use std::io;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A region that faults are served for.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    pager: AtomicPtr<Pager>,
    /// Threads that use the pager just now.
    inside: AtomicUsize,
}

static SLOTS: [Slot; REGIONS_MAX] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        pager: AtomicPtr::new(null_mut()),
        inside: AtomicUsize::new(0),
    }
}; REGIONS_MAX];
/// Programs that change the table, or the handler.
static CHANGE: Mutex<()> = Mutex::new(());
/// The handler before this one: made once, never freed.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

impl Slot {
    fn has(&self, address: usize) -> bool {
        (self.start.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)).contains(&address)
    }
}

/// A region's place in the table.
#[derive(Debug)]
pub(super) struct Registered(usize);

impl Registered {
    /// From now on faults in `start..end` are the pager's. It must stay where it is until this is dropped.
    pub fn new(start: usize, end: usize, pager: *const Pager) -> io::Result<Registered> {
        let _change = CHANGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let free = SLOTS.iter().position(|slot| slot.pager.load(Ordering::Relaxed).is_null());
        let index = free.ok_or_else(|| {
            io::Error::other(format!("a process has at most {REGIONS_MAX} regions at a time"))
        })?;
        let slot = &SLOTS[index];
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(end, Ordering::Relaxed);
        slot.pager.store(pager.cast_mut(), Ordering::SeqCst);
        Ok(Registered(index))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let slot = &SLOTS[self.0];
        slot.start.store(0, Ordering::Relaxed);
        slot.end.store(0, Ordering::Relaxed);
        slot.pager.store(null_mut(), Ordering::SeqCst);
        while slot.inside.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
    }
}

/// Uses the pager of the region that `address` is in, if it is in one.
pub(super) fn with_pager<T>(address: usize, work: impl FnOnce(&Pager) -> T) -> Option<T> {
    SLOTS.iter().find(|slot| slot.has(address)).and_then(|slot| {
        slot.inside.fetch_add(1, Ordering::SeqCst);
        let pager = slot.pager.load(Ordering::SeqCst);
        // SAFETY: its owner keeps it until no thread is inside any more, and it was there after this thread was.
        // The range is looked at once more: the slot may have become another region's.
        let result = (!pager.is_null() && slot.has(address)).then(|| work(unsafe { &*pager }));
        slot.inside.fetch_sub(1, Ordering::SeqCst);
        result
    })
}

/// Installs the handler, if it is not there; an error when another has taken its place since.
pub(super) fn install() -> io::Result<()> {
    let _change = CHANGE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (mut present, ours) = (zeroed(), handled_by(on_fault));
    set(None, &mut present)?;
    if present.sa_sigaction == ours.sa_sigaction {
        return Ok(());
    }
    if !BEFORE.load(Ordering::SeqCst).is_null() {
        return Err(io::Error::other(
            "this program has replaced the SIGBUS handler of its regions: install its own before the first region is \
             mapped, or use handler threads",
        ));
    }
    BEFORE.store(Box::into_raw(Box::new(present)), Ordering::SeqCst);
    set(Some(&ours), &mut zeroed())
}

/// Signature of a handler with SA_SIGINFO.
pub(super) type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Faults are this handler's, and no other signal comes meanwhile: a handler of the program that ran then might touch a
/// region again.
pub(super) fn handled_by(handler: Handler) -> libc::sigaction {
    let mut action = zeroed();
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the set is ours.
    unsafe { libc::sigfillset(&mut action.sa_mask) };
    action
}

pub(super) fn zeroed() -> libc::sigaction {
    // SAFETY: all of the structure is integers and an optional function, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

pub(super) fn set(new: Option<&libc::sigaction>, before: &mut libc::sigaction) -> io::Result<()> {
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: both live through the call, and our handler does only what a handler may do.
    match unsafe { libc::sigaction(libc::SIGBUS, new, before) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let saved = errno();
    // SAFETY: the kernel passes both, and they live until the handler returns.
    let (address, access) = unsafe { ((*info).si_addr() as usize, access(context)) };
    let served = with_pager(address, |pager| pager.serve(address, access));
    match served {
        Some(Ok(())) => {}
        Some(Err((page, error))) => give_up(address, page, error),
        None => hand_on(signal, info, context),
    }
    // SAFETY: it is the address of a variable of this thread.
    unsafe { *libc::__errno_location() = saved };
}

/// Whether the thread was writing, from the processor's error code.
#[cfg(target_arch = "x86_64")]
unsafe fn access(context: *mut libc::c_void) -> Access {
    const WRITE: i64 = 1 << 1;
    // SAFETY: the caller passes what the kernel passed to a handler with SA_SIGINFO.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    if registers[libc::REG_ERR as usize] & WRITE != 0 { Access::Write } else { Access::Read }
}

/// Where the processor is not asked, a page that is read first is stored once more than necessary.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn access(_context: *mut libc::c_void) -> Access {
    Access::Write
}

impl Pager {
    /// Brings the page of `address`; the page with the error.
    fn serve(&self, address: usize, access: Access) -> Result<(), (usize, FaultError)> {
        let page = (address - self.base) / self.page_bytes;
        self.tally.count(What::Faults);
        let mut result = Ok(());
        self.contexts.with(|context| {
            context.on_stack(|context| result = self.bring(context, page, access, true));
        });
        result.map_err(|error| (page, error))
    }
}

/// A text in memory of its own.
struct Line(ArrayVec<u8, 256>);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.0.remaining_capacity().min(text.len());
        self.0.try_extend_from_slice(&text.as_bytes()[..room]).map_err(|_| std::fmt::Error)
    }
}

/// Says why and leaves the fault to the kernel, which ends the process: there is nothing that the thread could read.
fn give_up(address: usize, page: usize, error: FaultError) {
    say(address, page, error);
    let action = zeroed(); // SIG_DFL
    let _ = set(Some(&action), &mut zeroed());
}

/// One line to the standard error.
pub(super) fn say(address: usize, page: usize, error: FaultError) {
    let mut line = Line(ArrayVec::new());
    let _ = writeln!(line, "trapeze: page {page} of the region, at {address:#x}: {error}; SIGBUS");
    // SAFETY: the line lives through the call. A failure cannot be told any more.
    unsafe { libc::write(libc::STDERR_FILENO, line.0.as_ptr().cast(), line.0.len()) };
}

/// As if our handler were not there.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: set before the handler was, and never freed.
    let before = unsafe { &*BEFORE.load(Ordering::SeqCst) };
    match before.sa_sigaction {
        libc::SIG_IGN => {}
        libc::SIG_DFL => {
            // Comes again when this handler returns, and ends the process.
            let _ = set(Some(before), &mut zeroed());
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: it was installed as such a function.
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: it was installed as such a function.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
