//! Threads that serve the faults of others: slower by two switches, and by two wakes where they run on another
//! processor, but system calls that touch missing pages work.

use super::Quiet;
use super::counters::What;
use super::fault::say;
use super::pager::{Access, FaultError, Pager};
use super::uffd::Fault;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// The threads of one region.
pub(super) struct Handlers {
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    /// `count` threads. They serve when this returns: what a thread allocates when it begins must not be in a region
    /// that only it would serve.
    pub fn start(pager: &Arc<Pager>, count: usize) -> io::Result<Handlers> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut handlers = Handlers { stop, threads: Vec::new() };
        let serving = Arc::new(AtomicUsize::new(0));
        for _ in 0..count {
            let (pager, stop, begun) = (pager.clone(), handlers.stop.clone(), serving.clone());
            let builder = std::thread::Builder::new().name("trapeze-region".into());
            handlers.threads.push(builder.spawn(move || {
                // A handler of the program that ran here and touched the region would wait for this very thread.
                let _quiet = Quiet::new();
                begun.fetch_add(1, Ordering::Release);
                pager.serve_messages(&stop);
            })?);
        }
        while serving.load(Ordering::Acquire) < count {
            std::thread::yield_now();
        }
        Ok(handlers)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Pager {
    fn serve_messages(&self, stop: &OwnedFd) {
        loop {
            match self.uffd.next_fault() {
                Ok(Some(fault)) => self.serve_message(fault),
                Ok(None) => {
                    let uffd = PollFd::new(&self.uffd, PollFlags::IN);
                    let mut watched = [uffd, PollFd::new(stop, PollFlags::IN)];
                    // Interrupted is as good as woken.
                    let _ = rustix::event::poll(&mut watched, None);
                    if !watched[1].revents().is_empty() {
                        return;
                    }
                }
                Err(error) => {
                    // No thread is left to be told where this fails.
                    let text = "trapeze: the faults of a region cannot be read";
                    let _ = writeln!(io::stderr(), "{text}: {error}");
                    return;
                }
            }
        }
    }

    fn serve_message(&self, fault: Fault) {
        let page = (fault.address - self.base) / self.page_bytes;
        let access = if fault.write { Access::Write } else { Access::Read };
        self.tally.count(What::Faults);
        let brought = self.contexts.with(|context| self.bring(context, page, access, true));
        if let Err(error) = brought {
            self.refuse(page, fault.address, error);
        }
        // A thread that asked while another brought the page has not been woken by that. An error means that the region
        // goes.
        let _ = self.uffd.wake(&self.range(page));
    }

    /// A thread that waits for the page gets a SIGBUS: it must not wait for ever.
    fn refuse(&self, page: usize, address: usize, error: FaultError) {
        say(address, page, error);
        let _ = self.uffd.poison(&self.range(page));
    }
}
