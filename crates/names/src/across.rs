//! Operations over several managers, as the manager of each part keeps them.
//!
//! Two-phase commit with presumed abort (Mohan, Lindsay, Obermarck, TODS 11(4), 1986): each other manager has its part
//! on stable storage before the coordinator decides, the decision is a record in the coordinator's own change, and who
//! asks for one that is not there is told that it was given up. A part is done at most once: the record of it goes with
//! its changes.

use crate::foreign::Part;
use crate::holds::Tx;
use crate::keys::{self, Table};
use crate::manager::{Manager, Origin};
use crate::open_error::{OpenError, damaged};
use crate::record::{Participants, PreparedPart};
use crate::transaction::{Changes, Transaction};
use store::Append;
use wire::field::encoded;
use wire::{Errno, Wall};

impl Manager {
    /// Loads the operations over several managers from the store.
    pub(crate) fn load_operations(&mut self) -> Result<(), OpenError> {
        for (key, value) in self.table(0, Table::Prepared)? {
            let part: PreparedPart = damaged(&key, &value)?;
            let tx = keys::tx_of(&key).ok_or(OpenError::Damaged { key })?;
            self.holds.restore(&part.held, tx);
            self.prepared.insert(tx, part);
        }
        for (key, value) in self.table(0, Table::Decided)? {
            let participants: Participants = damaged(&key, &value)?;
            let tx = keys::tx_of(&key).ok_or(OpenError::Damaged { key })?;
            self.decided.insert(tx, participants);
        }
        Ok(())
    }

    /// Keeps a part. EAGAIN unless everything that it changes is held for it.
    pub(crate) fn prepare_part(
        &mut self,
        tx: Tx,
        part: Part,
        now: Wall,
    ) -> Result<Option<Append>, Errno> {
        if self.prepared.contains_key(&tx) {
            return Ok(None);
        }
        let held = self.holds.files(tx);
        if !part.files()?.iter().all(|file| held.contains(file)) {
            return Err(Errno::EAGAIN);
        }
        let kept = PreparedPart { part, held: held.into_iter().collect() };
        let append = self.write(keys::prepared(&tx), Some(encoded(&kept)), now)?;
        self.holds.prepare(tx);
        self.prepared.insert(tx, kept);
        Ok(append)
    }

    /// Makes the changes of a part; nothing when that was done before.
    pub(crate) fn finish_part(&mut self, tx: Tx) -> Result<Option<Append>, Errno> {
        let Some(kept) = self.prepared.get(&tx).cloned() else { return Ok(None) };
        self.holds.release(tx);
        let origin = Origin { client: 0, now: kept.part.now };
        let done = self.change(origin, |t| {
            t.apply_part(&kept.part)?;
            t.delete(keys::prepared(&tx));
            Ok(())
        });
        match &done {
            Ok(_) => drop(self.prepared.remove(&tx)),
            Err(_) => self.holds.restore(&kept.held, tx),
        }
        Ok(done?.1)
    }

    /// The operation was given up.
    pub(crate) fn abort_part(&mut self, tx: Tx, now: Wall) -> Result<Option<Append>, Errno> {
        self.holds.release(tx);
        if self.prepared.remove(&tx).is_none() {
            return Ok(None);
        }
        self.write(keys::prepared(&tx), None, now)
    }

    /// Commits what an operation changes here, with the decision that others do their parts. Nothing may have changed
    /// since it was proposed.
    pub(crate) fn decide(
        &mut self,
        client: u64,
        tx: Tx,
        mut changes: Changes,
        participants: Participants,
    ) -> Option<Append> {
        if !participants.is_empty() {
            changes.writes.insert(keys::decided(&tx), Some(encoded(&participants)));
            self.decided.insert(tx, participants);
        }
        self.commit(client, changes)
    }

    /// All parts of a decided operation are done, on stable storage.
    pub(crate) fn forget_decision(&mut self, tx: Tx, now: Wall) -> Result<Option<Append>, Errno> {
        if self.decided.remove(&tx).is_none() {
            return Ok(None);
        }
        self.write(keys::decided(&tx), None, now)
    }

    /// Writes one record of the manager's own, or removes it.
    fn write(
        &mut self,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
        now: Wall,
    ) -> Result<Option<Append>, Errno> {
        let write = |t: &mut Transaction<'_>| {
            match value {
                Some(value) => t.put(key, value),
                None => t.delete(key),
            }
            Ok(())
        };
        Ok(self.change(Origin { client: 0, now }, write)?.1)
    }
}
