//! Locks: kept by the manager for the whole cluster, both kinds, or refused with ENOLCK; never silently local.
//!
//! A lock that must be waited for leaves its front loop at once and joins a line; one loop asks for the waiting locks
//! again and again, in the order of their coming, and answers the front itself.

use crate::Files;
use crate::inode::File;
use crate::limits::{LOCK_PAUSE, LOCK_WAITERS_MAX};
use node::Either;
use node::rings::{FileReply, Lock, LockKind};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use wire::{Errno, FileId};

/// A lock that an application wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub file: FileId,
    pub owner: u64,
    pub lock: Lock,
    pub whole_file: bool,
}

struct Waiter {
    front: u64,
    wanted: Wanted,
}

/// The line of waiting locks.
#[derive(Default)]
pub(crate) struct Line {
    waiting: RefCell<VecDeque<Waiter>>,
    /// The one being asked for; `None` again when it was interrupted meanwhile.
    asking: Cell<Option<u64>>,
}

impl Files {
    pub(crate) async fn get_lock(
        &self,
        id: FileId,
        owner: u64,
        lock: Lock,
    ) -> Result<FileReply, Errno> {
        let held = self.names.get_lock(id, owner, false, lock).await.map_err(refusal)?;
        let free = Lock { kind: LockKind::Unlock, ..lock };
        Ok(FileReply::Lock(held.unwrap_or(free)))
    }

    /// Sets a lock; with `wait` it may join the line, and then the front is answered later: `None`.
    pub(crate) async fn set_lock(
        &self,
        front: u64,
        wanted: Wanted,
        wait: bool,
    ) -> Option<Result<FileReply, Errno>> {
        match self.ask_lock(&wanted).await {
            Err(Errno::EAGAIN) if wait && self.line.waiting.borrow().len() >= LOCK_WAITERS_MAX => {
                Some(Err(Errno::ENOLCK))
            }
            Err(Errno::EAGAIN) if wait => {
                if wanted.whole_file {
                    // flock(2): the existing lock is removed first, so that two who convert theirs do not wait for each
                    // other.
                    let file = self.file(wanted.file);
                    self.unlock_owner(&file, wanted.owner, true).await;
                }
                self.line.waiting.borrow_mut().push_back(Waiter { front, wanted });
                self.line_joined.notify_all();
                None
            }
            result => Some(result.map(|()| FileReply::Done)),
        }
    }

    pub(crate) async fn ask_lock(&self, wanted: &Wanted) -> Result<(), Errno> {
        let Wanted { file, owner, lock, whole_file } = *wanted;
        self.names.lock(file, owner, whole_file, lock).await.map_err(refusal)?;
        if lock.kind != LockKind::Unlock {
            self.file(file).state.borrow_mut().lockers.insert((owner, whole_file));
        }
        Ok(())
    }

    /// Gives back everything that the owner holds of a file.
    pub(crate) async fn unlock_owner(&self, file: &File, owner: u64, whole_file: bool) {
        if file.state.borrow_mut().lockers.remove(&(owner, whole_file)) {
            // When the manager is away, the release takes place when it is back.
            let _ = self.names.unlock(file.id, owner, whole_file).await;
        }
    }

    /// A lock was given up while it was being asked for: its owner has what it had before.
    pub(crate) async fn settle_lock(&self, wanted: &Wanted) {
        self.names.settle_lock(wanted.file, wanted.owner, wanted.whole_file).await;
    }

    /// The application has given up on a lock that may be in line.
    pub(crate) fn interrupt_lock(&self, front: u64) {
        let mut waiting = self.line.waiting.borrow_mut();
        if let Some(at) = waiting.iter().position(|waiter| waiter.front == front) {
            waiting.remove(at);
            self.cx.front_done(front, Err(Errno::EINTR));
        } else if self.line.asking.get() == Some(front) {
            self.line.asking.set(None);
            self.line_joined.notify_all();
        }
    }

    /// The loop that asks for the locks in line.
    pub(crate) async fn line_loop(self) {
        loop {
            let joined = self.line_joined.wait();
            if self.line.waiting.borrow().is_empty() {
                joined.await;
            }
            self.cx.sleep(LOCK_PAUSE).await;
            let count = self.line.waiting.borrow().len();
            for _ in 0..count {
                let waiter = self.line.waiting.borrow_mut().pop_front();
                let Some(waiter) = waiter else { break };
                self.ask_again(waiter).await;
            }
        }
    }

    async fn ask_again(&self, waiter: Waiter) {
        self.line.asking.set(Some(waiter.front));
        let asked = node::race(self.ask_lock(&waiter.wanted), self.interrupted()).await;
        let interrupted = self.line.asking.take().is_none();
        match asked {
            Either::Left(Err(Errno::EAGAIN)) if !interrupted => {
                self.line.waiting.borrow_mut().push_back(waiter);
            }
            Either::Left(Ok(())) => self.cx.front_done(waiter.front, Ok(FileReply::Done)),
            Either::Left(Err(errno)) if !interrupted => {
                self.cx.front_done(waiter.front, Err(errno));
            }
            _ => {
                self.cx.front_done(waiter.front, Err(Errno::EINTR));
                self.settle_lock(&waiter.wanted).await;
            }
        }
    }

    /// Waits until the one being asked for is interrupted.
    async fn interrupted(&self) {
        loop {
            let told = self.line_joined.wait();
            if self.line.asking.get().is_none() {
                return;
            }
            told.await;
        }
    }
}

impl Files {
    /// The loop that tells the manager that this client is alive, and again what it holds.
    pub(crate) async fn alive_loop(self) {
        loop {
            let lost = self.names.keep_alive().await.unwrap_or_default();
            for lock in &lost {
                let file = self.file(lock.file);
                file.state.borrow_mut().lockers.remove(&(lock.owner, lock.whole_file));
            }
            self.counters.lost_locks.add(lost.len() as u64);
            self.cx.sleep(names::limits::KEEP_ALIVE_INTERVAL).await;
        }
    }
}

/// ENOLCK when the manager cannot say.
fn refusal(errno: Errno) -> Errno {
    match errno {
        Errno::EHOSTDOWN | Errno::ETIMEDOUT | Errno::ENODEV | Errno::ECANCELED => Errno::ENOLCK,
        errno => errno,
    }
}
