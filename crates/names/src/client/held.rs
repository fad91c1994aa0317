//! Opens; what the manager knows of this client, and how it is told again.

use super::calls::decoded;
use super::{Client, Inner, LostLock, Open, SMALL};
use crate::limits::{CLAIMS_MAX, HOLDING_MAX, KEEP_ALIVE_INTERVAL};
use crate::locks::LockOwner;
use crate::lookup::Entry;
use crate::permissions::{WRITE, Who};
use crate::protocol::{Alive, Operation};
use crate::sessions::{Claim, Final};
use node::{Either, Permit, race};
use std::pin::pin;
use wire::{Errno, FileId, NodeId};

impl Client {
    pub(super) async fn hold(&self) -> Permit<'_> {
        self.0.holding.acquire(1).await
    }

    /// After an error that does not say whether the call was executed, the manager is told again what is held.
    pub(super) fn unsure<T>(&self, manager: NodeId, result: Result<T, Errno>) -> Result<T, Errno> {
        use Errno as E;
        let unsure =
            [E::ETIMEDOUT, E::EHOSTDOWN, E::ENODEV, E::EPROTO, E::ENOMEM, E::EIO, E::ENOSPC];
        if result.as_ref().is_err_and(|errno| unsure.contains(errno)) {
            self.set_registration(manager, None);
        }
        result
    }

    fn registration(&self, manager: NodeId) -> Option<u64> {
        self.0.managers.borrow().get(&manager).and_then(|known| known.registration)
    }

    fn set_registration(&self, manager: NodeId, registration: Option<u64>) {
        if let Some(known) = self.0.managers.borrow_mut().get_mut(&manager) {
            known.registration = registration;
        }
    }

    /// The version of a manager's table of sites that this client has taken over.
    fn table_of(&self, manager: NodeId) -> Option<u64> {
        self.0.managers.borrow().get(&manager).and_then(|known| known.table)
    }

    fn set_table(&self, manager: NodeId, version: u64) {
        if let Some(known) = self.0.managers.borrow_mut().get_mut(&manager) {
            known.table = Some(version);
        }
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

    /// As [`open`](Client::open) by a name that was looked up before; ESTALE when the name is another file's by now, or
    /// gone.
    pub async fn open_named(
        &self,
        who: &Who<'_>,
        (parent, name): (FileId, &[u8]),
        file: FileId,
        mask: u32,
    ) -> Result<Entry, Errno> {
        let operation = Operation::OpenNamed { who: *who, parent, name, file, mask };
        if self.manager_of_name(parent, name) == self.manager_of(file) {
            match self.open_by(operation, file, mask).await {
                Err(Errno::EREMOTE) => {} // it moved away
                opened => return opened,
            }
        }
        match self.find(who, parent, name).await {
            Ok(found) if found.file == file => self.open(who, file, mask).await,
            Ok(_) | Err(Errno::ENOENT) => Err(Errno::ESTALE),
            Err(errno) => Err(errno),
        }
    }

    async fn open_by(
        &self,
        operation: Operation<'_>,
        file: FileId,
        mask: u32,
    ) -> Result<Entry, Errno> {
        let _permit = self.hold().await;
        let answer = self.ask(operation, SMALL).await;
        let entry = decoded(self.unsure(self.manager_of(file), answer)?)?;
        self.opened(file, mask);
        Ok(entry)
    }

    /// Closes a file: `outcome` for an open for writing, none for one without. Returns the file as it is then, when the
    /// manager knows. After an error the next close of the file is this one again, which takes place once. It is a
    /// new one when the client has begun meanwhile to say what it has open (ECANCELED tells so when it did not get to
    /// the end): then the first takes place no more.
    pub async fn close(
        &self,
        file: FileId,
        outcome: Option<Final>,
    ) -> Result<Option<Entry>, Errno> {
        let _permit = self.hold().await;
        let mut answer = self.try_close(file, outcome).await;
        while answer == Err(Errno::ECANCELED) {
            answer = self.try_close(file, outcome).await;
        }
        let entry = decoded(self.unsure(self.manager_of(file), answer)?)?;
        self.closed(file, outcome.is_some());
        Ok(entry)
    }

    /// After any error but ECANCELED the next try is this one again.
    async fn try_close(&self, file: FileId, outcome: Option<Final>) -> Result<Vec<u8>, Errno> {
        let key = (file, outcome.is_some());
        let number = self.close_number(key);
        let answer = self.ask(Operation::Close { file, outcome, number }, SMALL).await;
        if !matches!(answer, Ok(_) | Err(Errno::ECANCELED)) {
            self.0.unsure_closes.borrow_mut().entry(key).or_default().push(number);
        }
        answer
    }

    /// The number of a close that was not answered, or a new one.
    fn close_number(&self, key: (FileId, bool)) -> u64 {
        let mut unsure = self.0.unsure_closes.borrow_mut();
        if let Some(numbers) = unsure.get_mut(&key) {
            let number = numbers.pop();
            if numbers.is_empty() {
                unsure.remove(&key);
            }
            if let Some(number) = number {
                return number;
            }
        }
        self.0.last_close.set(self.0.last_close.get() + 1);
        self.0.last_close.get()
    }

    /// Says that this client is alive, to be called every [`crate::limits::KEEP_ALIVE_INTERVAL`]. A manager that was
    /// restarted, or took the client for dead, is told again what is open and locked; locks that another client took
    /// in the meantime are returned, and are not held any more.
    pub async fn keep_alive(&self) -> Result<Vec<LostLock>, Errno> {
        self.keep_alive_at(self.0.first).await?;
        Ok(self.0.lost.take())
    }

    /// The same for one manager; those that came to the first one are told by tasks of the client's own.
    pub(super) async fn keep_alive_at(&self, manager: NodeId) -> Result<(), Errno> {
        let Alive { registration, version } = self.say_alive(manager).await?;
        // No order of versions would do: of two tables each may have the later entry of some site.
        if self.table_of(manager) != Some(version) && self.ask_sites(manager).await.is_ok() {
            self.set_table(manager, version);
        }
        if self.registration(manager) != Some(registration) {
            let (_all, registration) = self.stop_holding(manager, registration).await?;
            // what it got before that registration is among what is claimed
            self.ask_sites(manager).await?;
            self.set_table(manager, version);
            self.claim_locks(manager).await?;
            self.claim_opens(manager, registration).await?;
            // The manager goes by what it was told now: a later close closes anew.
            let elsewhere = |file: &FileId| self.manager_of(*file) != manager;
            self.0.unsure_closes.borrow_mut().retain(|(file, _), _| elsewhere(file));
            self.set_registration(manager, Some(registration));
        }
        self.settle_doubts(manager).await;
        Ok(())
    }

    async fn say_alive(&self, manager: NodeId) -> Result<Alive, Errno> {
        decoded(self.ask_at(manager, Operation::KeepAlive {}, SMALL).await?)
    }

    /// Waits until no open, close or lock is under way, which may take longer than the lease; the latest registration
    /// comes with it.
    async fn stop_holding(
        &self,
        manager: NodeId,
        mut registration: u64,
    ) -> Result<(Permit<'_>, u64), Errno> {
        let mut all = pin!(self.0.holding.acquire(HOLDING_MAX));
        loop {
            match race(all.as_mut(), self.0.cx.sleep(KEEP_ALIVE_INTERVAL)).await {
                Either::Left(permit) => return Ok((permit, registration)),
                Either::Right(()) => registration = self.say_alive(manager).await?.registration,
            }
        }
    }

    /// Whether a manager may believe that this client has something open or locked.
    pub fn holds_something(&self) -> bool {
        let Inner { opens, locks, doubts, .. } = &*self.0;
        !(opens.borrow().is_empty()
            && locks.borrow().held().next().is_none()
            && doubts.borrow().is_empty())
    }

    /// Says that this client ends: whatever it still has open is closed, as if its lease had ended now.
    pub async fn leave(&self) -> Result<(), Errno> {
        self.0.left.set(true);
        let managers = self.managers();
        let calls =
            managers.iter().map(|manager| self.ask_at(*manager, Operation::Leave {}, SMALL));
        node::all(calls).await.into_iter().try_for_each(|left| left.map(drop))
    }

    /// Locks come first: once all clients of its last incarnation have said what they have open, the manager gives
    /// locks to others.
    async fn claim_locks(&self, manager: NodeId) -> Result<(), Errno> {
        let held: Vec<_> = self.0.locks.borrow().held().collect();
        for (target, LockOwner { owner, .. }, lock) in held {
            if self.manager_of(target.file) == manager {
                self.tell_lock((target, owner), lock).await?;
            }
        }
        Ok(())
    }

    async fn claim_opens(&self, manager: NodeId, registration: u64) -> Result<(), Errno> {
        let claim = |(file, open): (&FileId, &Open)| Claim {
            file: *file,
            readers: open.readers,
            writers: open.writers,
        };
        let here = |(file, _): &(&FileId, &Open)| self.manager_of(**file) == manager;
        let claims: Vec<Claim> = self.0.opens.borrow().iter().filter(here).map(claim).collect();
        let chunks = claims.len().div_ceil(CLAIMS_MAX).max(1);
        for at in 0..chunks {
            let end = claims.len().min((at + 1) * CLAIMS_MAX);
            let claims = claims[at * CLAIMS_MAX..end].to_vec();
            let first = (at == 0).then_some(self.0.last_close.get());
            let last = (at + 1 == chunks).then_some(registration);
            let operation = Operation::Claim { claims, first, last };
            self.ask_at(manager, operation, SMALL).await?;
        }
        Ok(())
    }
}
