//! Opens and locks: what the manager knows of this client, and how it is told again.

use super::calls::decoded;
use super::{Client, LostLock, Open, SMALL, Style};
use crate::limits::CLAIMS_MAX;
use crate::locks::{LockOwner, LockTarget};
use crate::lookup::Entry;
use crate::permissions::{WRITE, Who};
use crate::protocol::{Alive, Operation};
use crate::sessions::{Claim, Final};
use node::Permit;
use node::rings::{Lock, LockKind};
use wire::{Errno, FileId};

/// Opens, closes and locks under way at once.
pub(super) const HOLDING_MAX: usize = 1024;
/// The client in its own table of locks.
const ME: u64 = 0;

impl Client {
    pub(super) async fn hold(&self) -> Permit<'_> {
        self.0.holding.acquire(1).await
    }

    /// After an error that does not say whether the call was executed, the manager is told again what is held.
    pub(super) fn unsure<T>(&self, result: Result<T, Errno>) -> Result<T, Errno> {
        if let Err(Errno::ETIMEDOUT | Errno::EHOSTDOWN | Errno::EIO | Errno::ENOSPC) = &result {
            self.0.registration.set(None);
        }
        result
    }

    pub(super) fn opened(&self, file: FileId, mask: u32) {
        let mut opens = self.0.opens.borrow_mut();
        let open = opens.entry(file).or_default();
        match mask & WRITE {
            0 => open.readers += 1,
            _ => open.writers += 1,
        }
    }

    fn closed(&self, file: FileId, writer: bool) {
        let mut opens = self.0.opens.borrow_mut();
        let Some(open) = opens.get_mut(&file) else { return };
        let count = if writer { &mut open.writers } else { &mut open.readers };
        *count = count.saturating_sub(1);
        if *open == Open::default() {
            opens.remove(&file);
        }
    }

    /// Opens a file with these permissions ([`crate::READ`], [`crate::WRITE`], [`crate::EXECUTE`]); with
    /// [`crate::WRITE`] a write session begins. Every open is closed once.
    pub async fn open(&self, who: &Who<'_>, file: FileId, mask: u32) -> Result<Entry, Errno> {
        self.open_by(Operation::Open { who: *who, file, mask }, file, mask).await
    }

    /// As [`open`](Client::open) by a name that was looked up before; ESTALE when it is another file's by now, or
    /// nobody's.
    pub async fn open_named(
        &self,
        who: &Who<'_>,
        (parent, name): (FileId, &[u8]),
        file: FileId,
        mask: u32,
    ) -> Result<Entry, Errno> {
        let operation = Operation::OpenNamed { who: *who, parent, name, file, mask };
        self.open_by(operation, file, mask).await
    }

    async fn open_by(
        &self,
        operation: Operation<'_>,
        file: FileId,
        mask: u32,
    ) -> Result<Entry, Errno> {
        let _permit = self.hold().await;
        let answer = self.ask(operation, SMALL).await;
        let entry = decoded(self.unsure(answer)?)?;
        self.opened(file, mask);
        Ok(entry)
    }

    /// Closes a file: `outcome` for an open for writing, none for one without. Returns the file as it is then, when the
    /// manager knows.
    pub async fn close(
        &self,
        file: FileId,
        outcome: Option<Final>,
    ) -> Result<Option<Entry>, Errno> {
        let _permit = self.hold().await;
        let answer = self.ask(Operation::Close { file, outcome }, SMALL).await;
        let entry = decoded(self.unsure(answer)?)?;
        self.closed(file, outcome.is_some());
        Ok(entry)
    }

    /// Takes a lock, or releases one. EAGAIN when it conflicts and `wait` is false. When it waits, it does so for as
    /// long as it takes: [`cancel_lock`](Client::cancel_lock) ends it with EINTR, and must follow when this future is
    /// dropped before it is ready.
    pub async fn lock(
        &self,
        file: FileId,
        owner: u64,
        whole_file: bool,
        lock: Lock,
        wait: bool,
    ) -> Result<(), Errno> {
        // A request that waits holds no permit: it may wait for somebody who needs one.
        let permit = if wait { None } else { Some(self.hold().await) };
        let operation = Operation::SetLock { file, owner, whole_file, lock, wait, reclaim: false };
        let style = if wait { Style { deadline: None, ..SMALL } } else { SMALL };
        let answer = self.ask(operation, style).await;
        self.unsure(answer)?;
        let target = LockTarget { file, whole_file };
        let mut locks = self.0.locks.borrow_mut();
        let _ = locks.set(target, LockOwner { client: ME, owner }, lock, None);
        drop(permit);
        Ok(())
    }

    /// Releases all locks of `owner` on the file.
    pub async fn unlock(&self, file: FileId, owner: u64, whole_file: bool) -> Result<(), Errno> {
        let lock = Lock { start: 0, end: u64::MAX, kind: LockKind::Unlock, pid: 0 };
        self.lock(file, owner, whole_file, lock, false).await
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

    /// Ends the waiting of `owner` for locks on the file.
    pub async fn cancel_lock(
        &self,
        file: FileId,
        owner: u64,
        whole_file: bool,
    ) -> Result<(), Errno> {
        self.ask(Operation::CancelLock { file, owner, whole_file }, SMALL).await.map(drop)
    }

    /// Says that this client is alive, to be called every [`crate::limits::KEEP_ALIVE_INTERVAL`]. A manager that was
    /// restarted, or took the client for dead, is told again what is open and locked; locks that another client took
    /// in the meantime are returned, and are not held any more.
    pub async fn keep_alive(&self) -> Result<Vec<LostLock>, Errno> {
        let Alive { registration } = decoded(self.ask(Operation::KeepAlive {}, SMALL).await?)?;
        if self.0.registration.get() == Some(registration) {
            return Ok(Vec::new());
        }
        let _all = self.0.holding.acquire(HOLDING_MAX).await;
        let lost = self.claim_locks().await?;
        self.claim_opens().await?;
        self.0.registration.set(Some(registration));
        Ok(lost)
    }

    /// Says that this client ends: whatever it still has open is closed, as if its lease had ended now.
    pub async fn leave(&self) -> Result<(), Errno> {
        self.ask(Operation::Leave {}, SMALL).await.map(drop)
    }

    /// Locks come first: once all clients of its last life have said what they have open, the manager gives locks to
    /// others.
    async fn claim_locks(&self) -> Result<Vec<LostLock>, Errno> {
        let held: Vec<_> = self.0.locks.borrow().held().collect();
        let mut lost = Vec::new();
        for (LockTarget { file, whole_file }, LockOwner { owner, .. }, lock) in held {
            let (wait, reclaim) = (false, true);
            let operation = Operation::SetLock { file, owner, whole_file, lock, wait, reclaim };
            match self.ask(operation, SMALL).await {
                Ok(_) => {}
                Err(Errno::EAGAIN) => {
                    let lock = Lock { kind: LockKind::Unlock, ..lock };
                    let target = LockTarget { file, whole_file };
                    let owner = LockOwner { client: ME, owner };
                    let _ = self.0.locks.borrow_mut().set(target, owner, lock, None);
                    lost.push(LostLock { file, owner: owner.owner, whole_file });
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(lost)
    }

    async fn claim_opens(&self) -> Result<(), Errno> {
        let claim = |(file, open): (&FileId, &Open)| Claim {
            file: *file,
            readers: open.readers,
            writers: open.writers,
        };
        let claims: Vec<Claim> = self.0.opens.borrow().iter().map(claim).collect();
        let chunks = claims.len().div_ceil(CLAIMS_MAX).max(1);
        for at in 0..chunks {
            let end = claims.len().min((at + 1) * CLAIMS_MAX);
            let claims = claims[at * CLAIMS_MAX..end].to_vec();
            let operation = Operation::Claim { claims, first: at == 0, last: at + 1 == chunks };
            self.ask(operation, SMALL).await?;
        }
        Ok(())
    }
}
