//! Transfers through io_uring: submitted in one batch per turn, their results read from shared memory.
//!
//! Results are delivered by the kernel in the owner's own context when the owner asks (`DEFER_TASKRUN` where the
//! kernel has it), so an idle look costs two loads and a busy thread is never interrupted. Such a ring does not wake
//! those who poll its own descriptor when results wait for that asking, so an eventfd is its bell. The kernel
//! rings it when the result is there to be seen, however much later.

use super::task::{Direction, Transfer};
use crate::device::Poller;
use crate::wakeup::Edge;
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// One ring, made and used by one thread.
pub(super) struct Uring {
    ring: IoUring,
    bell: Edge,
    /// Submitted or about to be, result not taken.
    under_way: usize,
}

impl Uring {
    /// A ring for `entries` transfers at once. Fails where the kernel or a sandbox forbids it; that is tried.
    pub(super) fn new(entries: usize) -> io::Result<Uring> {
        let mut ring = build(entries as u32)?;
        let entry = opcode::Nop::new().build();
        // SAFETY: a no-op names no memory.
        unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
        ring.submit_and_wait(1)?;
        ring.completion().for_each(drop);
        let bell = Edge::new()?;
        ring.submitter().register_eventfd(bell.as_fd().as_raw_fd())?;
        Ok(Uring { ring, bell, under_way: 0 })
    }

    /// Queues a transfer. The caller keeps it, and so its frame and descriptor, until `take` names `slot`.
    pub(super) fn push(&mut self, slot: u32, transfer: &Transfer) {
        let file = types::Fd(transfer.descriptor.as_raw_fd());
        let bytes = transfer.bytes as u32;
        let entry = match transfer.direction {
            Direction::Read => {
                opcode::Read::new(file, transfer.memory, bytes).offset(transfer.offset).build()
            }
            Direction::Write { durable } => opcode::Write::new(file, transfer.memory, bytes)
                .offset(transfer.offset)
                .rw_flags(if durable { libc::RWF_DSYNC } else { 0 })
                .build(),
        };
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: frame and descriptor stay valid until the result is taken: the caller's duty, and `Transfer`'s
        // invariant. Dropping the device waits for all of them.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("there are as many entries as slots");
        self.under_way += 1;
    }

    /// Hands what is queued to the kernel and lets it deliver results.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        let submission = self.ring.submission();
        if submission.is_empty() && !submission.taskrun() && !submission.cq_overflow() {
            return Ok(());
        }
        drop(submission);
        self.enter(0)
    }

    /// Waits for a result; for stopping only. Something must be under way.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        while self.ring.completion().is_empty() {
            self.enter(1)?;
        }
        Ok(())
    }

    fn enter(&mut self, results: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(results) {
            // Submissions not taken stay queued, keep the host awake and are tried again by the next turn.
            Err(error) if is_passing(&error) => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Gives every result that is there: the slot, and bytes or a negative error number.
    pub(super) fn take(&mut self, results: &mut Vec<(u32, i32)>) {
        for entry in self.ring.completion() {
            self.under_way -= 1;
            results.push((entry.user_data() as u32, entry.result()));
        }
    }

    /// About to sleep: whether something is there already, or still to be handed on. Later results ring.
    pub(super) fn before_sleep(&mut self) -> bool {
        let submission = self.ring.submission();
        let due = !submission.is_empty() || submission.taskrun();
        drop(submission);
        due || !self.ring.completion().is_empty()
    }

    /// Transfers whose results were not taken.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// From now on a result ends a wait of this poller.
    pub(super) fn watch(&self, poller: &Poller) -> io::Result<()> {
        self.bell.watch(poller)
    }
}

/// Out of some resource for now, or interrupted.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
}

/// With everything that saves interruptions, or without on kernels before 6.1.
fn build(entries: u32) -> io::Result<IoUring> {
    let results = entries * 2;
    let best = IoUring::builder()
        .dontfork()
        .setup_cqsize(results)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(entries);
    match best {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().dontfork().setup_cqsize(results).build(entries)
        }
        result => result,
    }
}
