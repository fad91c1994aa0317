//! The wish to stop: SIGINT, SIGTERM and SIGHUP, told to the thread that runs a host. The second signal ends the
//! process at once, unless it comes from the process that this one ends with: when that is killed, the kernel sends its
//! signal again as each of its threads ends (PR_SET_PDEATHSIG).

use crate::device::Poller;
use crate::host::Device;
use node::Node;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use wire::Time;

static ASKED: AtomicBool = AtomicBool::new(false);
static WAKE: AtomicI32 = AtomicI32::new(-1);
static EVENT: OnceLock<OwnedFd> = OnceLock::new();
/// The process that this one ends with; 0 if none.
static PARENT: AtomicI32 = AtomicI32::new(0);

/// The exit code of a process that ends because it was asked to: a shell's for SIGINT.
pub const EXIT_CODE: i32 = 128 + libc::SIGINT;

type Handler = extern "C" fn(libc::c_int, *const libc::siginfo_t, *const libc::c_void);

extern "C" fn ask(_: libc::c_int, info: *const libc::siginfo_t, _: *const libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel gives a valid siginfo; `si_pid` is 0 where nobody sent the signal.
    let sender = unsafe { (*info).si_pid() };
    let repeated = ASKED.swap(true, Ordering::SeqCst);
    if repeated && (sender == 0 || sender != PARENT.load(Ordering::SeqCst)) {
        // SAFETY: _exit(2) is async-signal-safe. It does not return.
        unsafe { libc::_exit(EXIT_CODE) }
    }
    let one = 1u64.to_ne_bytes();
    // SAFETY: write(2) is async-signal-safe; the descriptor lives as long as the process.
    unsafe { libc::write(WAKE.load(Ordering::SeqCst), one.as_ptr().cast(), one.len()) };
}

/// Signals of this process, however many, ask once.
pub fn note_parent(parent: Pid) {
    PARENT.store(parent.as_raw_nonzero().get(), Ordering::SeqCst);
}

/// From now on the first SIGINT, SIGTERM or SIGHUP (the terminal is closed) asks to stop instead of ending the process.
/// A SIGHUP that is ignored (`nohup`) stays so.
pub fn install() -> io::Result<()> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let event = EVENT.get_or_init(|| event);
    WAKE.store(event.as_raw_fd(), Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if signal != libc::SIGHUP || set(signal, None, 0)? != libc::SIG_IGN {
            set(signal, Some(ask as Handler as usize), libc::SA_SIGINFO)?;
        }
    }
    Ok(())
}

/// Has the signal handled so, unless `handler` is `None`; how it was before.
fn set(signal: libc::c_int, handler: Option<usize>, flags: libc::c_int) -> io::Result<usize> {
    // SAFETY: a zeroed sigaction is valid, both live for the call, and our handler does only what a handler may do.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = handler.unwrap_or_default();
        action.sa_flags = libc::SA_RESTART | flags;
        let new = if handler.is_some() { &raw const action } else { std::ptr::null() };
        match libc::sigaction(signal, new, &raw mut before) {
            0 => Ok(before.sa_sigaction),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A write to a pipe without a reader ends this process silently, as it does other programs in a pipeline. Rust starts
/// programs with that signal ignored.
pub fn end_with_pipes() -> io::Result<()> {
    set(libc::SIGPIPE, Some(libc::SIG_DFL), 0).map(drop)
}

/// Waits until a signal has asked to stop. To be called after [`install`].
pub fn wait() {
    let Some(event) = EVENT.get() else { return };
    while !asked() {
        // The flag decides, whatever poll returns.
        let _ = rustix::event::poll(&mut [PollFd::new(event, PollFlags::IN)], None);
    }
}

/// Whether a signal has asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Wakes a host when a signal comes.
#[derive(Debug, Default)]
pub struct Signals {
    /// Kept until a signal came: its event stays readable, and would keep the host awake.
    poller: Option<Poller>,
}

impl Device for Signals {
    fn attach(&mut self, poller: &Poller) -> io::Result<()> {
        self.poller = Some(poller.clone());
        EVENT.get().map_or(Ok(()), |event| poller.add(event, true, false))
    }

    fn poll(&mut self, _node: &mut Node, _now: Time) -> io::Result<bool> {
        if let Some((event, poller)) = EVENT.get().zip(self.poller.take_if(|_| asked())) {
            poller.remove(event)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn is_quiet(&self) -> bool {
        self.poller.is_none() || !asked()
    }
}
