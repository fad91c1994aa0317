//! Locks: kept by the manager for the whole cluster, both kinds, or refused with ENOLCK; never silently local.
//!
//! A lock that must be waited for leaves its front loop at once and joins a line; one loop asks for the waiting locks
//! again and again, in the order of their coming, and answers the front itself.

use crate::Files;
use crate::inode::File;
use crate::limits::{LOCK_PAUSE, LOCK_REFUSALS_MAX, LOCK_WAITERS_MAX};
use node::Either;
use node::rings::{FileReply, Handle, Lock, LockKind};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use wire::{Errno, FileId};

/// A lock that an application wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub file: FileId,
    pub handle: Handle,
    pub owner: u64,
    pub lock: Lock,
    pub whole_file: bool,
}

struct Waiter {
    front: u64,
    wanted: Wanted,
}

/// Locks that were refused in this round, by file and kind of lock.
#[derive(Default)]
struct Refused(BTreeMap<(FileId, bool), Vec<Lock>>);

impl Refused {
    fn note(&mut self, wanted: &Wanted) {
        let locks = self.0.entry((wanted.file, wanted.whole_file)).or_default();
        if locks.len() < LOCK_REFUSALS_MAX {
            locks.push(wanted.lock);
        }
    }

    /// Whether what refused another of these refuses this one too, when its owner has nothing that could have.
    fn covers(&self, wanted: &Wanted) -> bool {
        let mine = wanted.lock;
        let within = |other: &Lock| {
            let weaker = other.kind == LockKind::Read || mine.kind == LockKind::Write;
            weaker && mine.start <= other.start && other.end <= mine.end
        };
        let locks = self.0.get(&(wanted.file, wanted.whole_file));
        locks.is_some_and(|locks| locks.iter().any(within))
    }
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
        let Wanted { file, handle, owner, lock, whole_file } = *wanted;
        self.names.lock(file, owner, whole_file, lock).await.map_err(refusal)?;
        let is_all = (lock.start, lock.end) == (0, u64::MAX);
        if lock.kind == LockKind::Unlock {
            if is_all && let Some(file) = self.table.borrow_mut().get(file) {
                // nothing is left to be given back by a close, of which a server of NFS hears nothing
                file.state.borrow_mut().lockers.remove(&(owner, whole_file));
            }
            self.line_freed.notify_all();
            return Ok(());
        }
        self.note_locker(file, (owner, whole_file), handle);
        Ok(())
    }

    fn note_locker(&self, file: FileId, owner: (u64, bool), handle: Handle) {
        let file = self.file(file);
        file.state.borrow_mut().lockers.entry(owner).or_default().insert(handle);
    }

    /// A lock that the owner had in the last incarnation of a front that gives owners the same numbers in each.
    pub(crate) async fn reclaim_lock(
        &self,
        file: FileId,
        owner: u64,
        lock: Lock,
    ) -> Result<FileReply, Errno> {
        self.names.take_over_lock(file, owner, lock).await.map_err(refusal)?;
        self.note_locker(file, (owner, false), Handle(0));
        Ok(FileReply::Done)
    }

    /// Gives back everything that the owner holds of a file.
    pub(crate) async fn unlock_owner(&self, file: &File, owner: u64, whole_file: bool) {
        let held = file.state.borrow_mut().lockers.remove(&(owner, whole_file));
        if held.is_some() {
            // When the manager is away, the release takes place when it is back.
            let _ = self.names.unlock(file.id, owner, whole_file).await;
            self.line_freed.notify_all();
        }
    }

    /// Gives back what was taken through a handle that is closed for good. The locks of processes went with the flush
    /// that each of them sent as it closed the file; what is left belongs to the open file itself (F_OFD_SETLK, flock),
    /// of whose owner the release says nothing.
    pub(crate) async fn unlock_handle(&self, file: &File, handle: Handle) {
        let owners: Vec<(u64, bool)> = {
            let state = file.state.borrow();
            let through = state.lockers.iter().filter(|(_, handles)| handles.contains(&handle));
            through.map(|(owner, _)| *owner).collect()
        };
        for (owner, whole_file) in owners {
            self.unlock_owner(file, owner, whole_file).await;
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
            node::race(self.cx.sleep(LOCK_PAUSE), self.line_freed.wait()).await;
            let (count, mut refused) = (self.line.waiting.borrow().len(), Refused::default());
            for _ in 0..count {
                let waiter = self.line.waiting.borrow_mut().pop_front();
                let Some(waiter) = waiter else { break };
                if refused.covers(&waiter.wanted) && !self.holds_any(&waiter.wanted) {
                    self.line.waiting.borrow_mut().push_back(waiter);
                } else {
                    self.ask_again(waiter, &mut refused).await;
                }
            }
        }
    }

    /// Whether the owner may hold locks of the same kind on the file.
    fn holds_any(&self, wanted: &Wanted) -> bool {
        let owner = (wanted.owner, wanted.whole_file);
        self.file(wanted.file).state.borrow().lockers.contains_key(&owner)
    }

    async fn ask_again(&self, waiter: Waiter, refused: &mut Refused) {
        self.line.asking.set(Some(waiter.front));
        let asked = node::race(self.ask_lock(&waiter.wanted), self.interrupted()).await;
        let interrupted = self.line.asking.take().is_none();
        match asked {
            Either::Left(Err(Errno::EAGAIN)) if !interrupted => {
                refused.note(&waiter.wanted);
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
