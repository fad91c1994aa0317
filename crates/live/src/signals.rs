//! Asking a process to stop: SIGINT and SIGTERM as a descriptor, so that they end a sleep like any other event.

use crate::device::Poller;
use rustix::io::Errno;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The two signals, blocked in the thread that made this and in all that it starts later.
#[derive(Debug)]
pub struct StopSignals(OwnedFd);

impl StopSignals {
    /// To be made before any other thread is started: a thread that does not block the signals would die of them.
    pub fn new() -> io::Result<StopSignals> {
        // SAFETY: `set` is initialised by `sigemptyset` before it is read, and all calls get valid pointers to it.
        let fd = unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::other("signals cannot be blocked"));
            }
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh and nobody else owns it.
        Ok(StopSignals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Lets a signal end the sleep of the host with this poller.
    pub fn attach(&self, poller: &Poller) -> io::Result<()> {
        poller.add(&self.0, true, false)
    }

    /// Whether a signal has come since the last call. One system call: ask now and then, not in every turn.
    pub fn came(&self) -> bool {
        let mut info = [0; std::mem::size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Ok(count) => count > 0,
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(error) => panic!("a signal descriptor can be read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_signal_ends_a_sleep_and_is_seen_once() {
        let signals = StopSignals::new().unwrap();
        let poller = Poller::new().unwrap();
        signals.attach(&poller).unwrap();
        assert!(!signals.came());
        // SAFETY: plain system calls; the signal goes to this thread, which blocks it.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_secs(10)), &mut ready).unwrap();
        assert_eq!(ready.len(), 1);
        assert!(signals.came());
        assert!(!signals.came());
    }
}
