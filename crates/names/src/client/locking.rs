//! Locks of this client, and what the manager may believe of them.
//!
//! The client's own table has its locks. A call whose answer does not come leaves the manager with something else on
//! its bytes: they are *in doubt* until the manager was told the table's state of them. That is done before the same
//! owner gets another lock on the file, since kernels give the number of an owner that is gone to the next one, whose
//! lock a late release must not take; and with each keepalive. Bytes in doubt are not reclaimed from a manager that
//! restarted: the table does not have them.

use super::calls::decoded;
use super::{Client, LostLock, SMALL};
use crate::limits::{DEADLINE, DOUBTS_MAX, RETRY_PAUSE};
use crate::locks::{IN_GRACE, LockOwner, LockTarget};
use crate::protocol::Operation;
use node::rings::{Lock, LockKind};
use wire::{Errno, FileId, NodeId};

/// The client in its own table of locks.
const ME: u64 = 0;

/// An owner's locks on a file.
pub(super) type Key = (LockTarget, u64);

/// First and last byte in doubt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    start: u64,
    end: u64,
}

/// Of all calls about one owner's locks on one file, one at a time is under way.
struct Turn<'a> {
    client: &'a Client,
    key: Key,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.client.0.turns.borrow_mut().remove(&self.key);
        self.client.0.turn_ended.notify_all();
    }
}

/// Whether the manager may have done what it was asked for, although this is its answer.
fn is_unsure(answer: &Result<Vec<u8>, Errno>) -> bool {
    use Errno as E;
    let sure = [E::EAGAIN, IN_GRACE, E::EINVAL, E::ENOLCK, E::ENXIO];
    answer.as_ref().is_err_and(|errno| !sure.contains(errno))
}

/// `again`: the owner has it already, as far as this client knows.
fn set_lock<'a>(key: Key, lock: Lock, again: bool) -> Operation<'a> {
    let (LockTarget { file, whole_file }, owner) = key;
    Operation::SetLock { file, owner, whole_file, lock, reclaim: again }
}

impl Client {
    /// Takes a lock, or releases one. EAGAIN when it conflicts.
    ///
    /// After any other error a lock is not held, and a release takes place when the manager can be reached; but for
    /// ENOLCK, which says that there is no room for the two locks that a release in the middle of one leaves.
    pub async fn lock(
        &self,
        file: FileId,
        owner: u64,
        whole_file: bool,
        lock: Lock,
    ) -> Result<(), Errno> {
        let key = (LockTarget { file, whole_file }, owner);
        let cx = &self.0.cx;
        let end = cx.now() + DEADLINE;
        loop {
            match self.lock_now(key, lock).await {
                Err(IN_GRACE) if cx.now() + RETRY_PAUSE < end => cx.sleep(RETRY_PAUSE).await,
                Err(IN_GRACE) => return Err(Errno::ETIMEDOUT),
                result => return result,
            }
        }
    }

    /// As [`lock`](Client::lock) on bytes, for an owner whose number is the same in each incarnation of this client:
    /// what the last one holds of them, for as long as the manager takes it for alive, is this one's.
    pub async fn take_over_lock(&self, file: FileId, owner: u64, lock: Lock) -> Result<(), Errno> {
        let key = (LockTarget { file, whole_file: false }, owner);
        let _turn = self.turn(key).await;
        let _permit = self.hold().await;
        self.take(key, lock, Operation::TakeOverLock { file, owner, lock }).await
    }

    /// To be called when a future of [`lock`](Client::lock) was dropped: `owner` has what it had before, also at the
    /// manager. A change that cannot be sent now is sent later.
    pub async fn settle_lock(&self, file: FileId, owner: u64, whole_file: bool) {
        let key = (LockTarget { file, whole_file }, owner);
        // The caller that has the turn settles what is in doubt before anything else, or what it asks for covers that;
        // when it fails, it is settled as the client says that it is alive. To wait here would be to do so without an
        // end.
        let Some(_turn) = self.try_turn(key) else { return };
        let _permit = self.hold().await;
        let _ = self.settle_doubt(key).await;
    }

    /// Releases all locks of `owner` on the file.
    pub async fn unlock(&self, file: FileId, owner: u64, whole_file: bool) -> Result<(), Errno> {
        let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Unlock, pid: 0 };
        self.lock(file, owner, whole_file, lock).await
    }

    /// The lock that keeps `owner` from getting `lock`.
    pub async fn get_lock(
        &self,
        file: FileId,
        owner: u64,
        whole_file: bool,
        lock: Lock,
    ) -> Result<Option<Lock>, Errno> {
        let operation = Operation::TestLock { file, owner, whole_file, lock };
        decoded(self.ask(operation, SMALL).await?)
    }

    async fn lock_now(&self, key: Key, lock: Lock) -> Result<(), Errno> {
        let _turn = self.turn(key).await;
        let _permit = self.hold().await;
        match lock.kind {
            LockKind::Unlock => self.release(key, lock).await,
            _ => self.take(key, lock, set_lock(key, lock, false)).await,
        }
    }

    async fn take(&self, key: Key, lock: Lock, operation: Operation<'_>) -> Result<(), Errno> {
        self.settle_doubt(key).await?;
        if self.0.doubts.borrow().len() >= DOUBTS_MAX {
            return Err(Errno::ENOLCK);
        }
        // Also when this is not polled any more.
        self.doubt(key, lock);
        let answer = self.ask(operation, SMALL).await;
        if !is_unsure(&answer) {
            self.0.doubts.borrow_mut().remove(&key);
        }
        answer?;
        self.note(key, lock)
    }

    /// The table lets go at once, and the manager is told what it says of these bytes and of those that were in doubt
    /// before: now, or when it is back. After ENOLCK the owner has what it had, and all of it stays in doubt: other
    /// pieces of it may have been told.
    async fn release(&self, key: Key, lock: Lock) -> Result<(), Errno> {
        let before = self.pieces(key, lock.start, lock.end);
        self.note(key, lock)?;
        self.doubt(key, lock);
        let told = self.settle_doubt(key).await;
        if told == Err(Errno::ENOLCK) {
            before.into_iter().try_for_each(|lock| self.note(key, lock))?;
        }
        told
    }

    /// Notes in the client's own table what the owner has. The manager has refused what this refuses.
    fn note(&self, (target, owner): Key, lock: Lock) -> Result<(), Errno> {
        let owner = LockOwner { client: ME, owner };
        self.0.locks.borrow_mut().set(target, owner, lock).map(drop)
    }

    /// The client's own table of these bytes.
    fn pieces(&self, (target, owner): Key, start: u64, end: u64) -> Vec<Lock> {
        self.0.locks.borrow().pieces(target, LockOwner { client: ME, owner }, start, end)
    }

    fn doubt(&self, key: Key, lock: Lock) {
        let mut doubts = self.0.doubts.borrow_mut();
        let doubt = doubts.entry(key).or_insert(Doubt { start: lock.start, end: lock.end });
        (doubt.start, doubt.end) = (doubt.start.min(lock.start), doubt.end.max(lock.end));
    }

    fn try_turn(&self, key: Key) -> Option<Turn<'_>> {
        let free = self.0.turns.borrow_mut().insert(key);
        // Not then_some: the turn that it would make and drop is another task's.
        free.then(|| Turn { client: self, key })
    }

    async fn turn(&self, key: Key) -> Turn<'_> {
        loop {
            let ended = self.0.turn_ended.wait();
            if let Some(turn) = self.try_turn(key) {
                return turn;
            }
            ended.await;
        }
    }

    /// Tells the manager the table's state of bytes in doubt. Failures are retried later; a request under way settles
    /// its own bytes.
    pub(super) async fn settle_doubts(&self, manager: NodeId) {
        let here = |(target, _): &Key| self.manager_of(target.file) == manager;
        let keys: Vec<Key> = self.0.doubts.borrow().keys().copied().filter(here).collect();
        for key in keys {
            let Some(_turn) = self.try_turn(key) else { continue };
            let _permit = self.hold().await;
            match self.settle_doubt(key).await {
                // There is no room for what is left of it, which is no other's trouble.
                Ok(()) | Err(Errno::ENOLCK) => {}
                Err(_) => return,
            }
        }
    }

    async fn settle_doubt(&self, key: Key) -> Result<(), Errno> {
        let doubt = self.0.doubts.borrow().get(&key).copied();
        let Some(Doubt { start, end }) = doubt else { return Ok(()) };
        let mut settled = false;
        while !settled {
            settled = true;
            for lock in self.pieces(key, start, end) {
                // A lock that was lost is released, in the next round.
                settled &= self.tell_lock(key, lock).await?;
            }
        }
        self.0.doubts.borrow_mut().remove(&key);
        Ok(())
    }

    /// Tells the manager what the owner has. A lock that another client took meanwhile is lost, and so is one that has
    /// no room any more. Whether it was not.
    pub(super) async fn tell_lock(&self, key: Key, lock: Lock) -> Result<bool, Errno> {
        let releases = lock.kind == LockKind::Unlock;
        match self.ask(set_lock(key, lock, true), SMALL).await {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN | Errno::ENOLCK) if !releases => {
                self.note(key, Lock { kind: LockKind::Unlock, ..lock })?;
                let (LockTarget { file, whole_file }, owner) = key;
                self.0.lost.borrow_mut().push(LostLock { file, owner, whole_file });
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }
}
