//! A snapshot of this manager's store that is of the same moment as those of all others.
//!
//! ```text
//! Prepare   a checkpoint
//! Quiesce   operations over several managers, and handovers: those under way end, and none begins
//! Pause     no change at all; everything so far is on stable storage
//! Take      the snapshot begins
//! Resume
//! ```
//!
//! Who takes the backup leads all managers from step to step, the next one when all have done the last one. When every
//! manager says that it is quiet after every one has begun to quiesce, no manager waits for another one's decision, and
//! every site is whole at one manager: of a prepared part that is left the operation was given up. A manager that is
//! not told to go on does so by itself: it says in the last step whether its pause has lasted until then.

use super::Service;
use super::backup::Backup;
use super::dispatch::Encoded;
use crate::limits::{PAUSE_SPAN, QUIESCE_SPAN, QUIET_SPAN, RETRY_PAUSE};
use crate::objects::Objects;
use crate::permissions::Who;
use crate::protocol::moment::{Step, Stepped};
use node::{Bug, race};
use std::rc::Rc;
use wire::field::encoded;
use wire::{Errno, Time};

/// What is held back for a snapshot of all managers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiesced {
    /// Drawn for each attempt.
    id: u64,
    /// It ends by itself then.
    until: Time,
    /// Nothing is changed.
    is_paused: bool,
}

impl<O: Objects> Service<O> {
    fn quiesced(&self) -> Option<Quiesced> {
        self.quiesced.get().filter(|held| self.cx.now() < held.until)
    }

    /// Whether no operation over several managers, and no handover, may begin.
    pub(super) fn is_quiesced(&self) -> bool {
        self.quiesced().is_some() && !self.cx.has_bug(Bug::BackupNotQuiesced)
    }

    /// When changes go on at the latest, while none is made.
    pub(super) fn paused_until(&self) -> Option<Time> {
        let held = self.quiesced().filter(|held| held.is_paused && self.is_quiesced());
        held.map(|held| held.until)
    }

    /// Waits until operations over several managers may begin.
    pub(super) async fn until_resumed(&self) {
        while let Some(held) = self.quiesced().filter(|_| self.is_quiesced()) {
            let released = self.released.wait();
            race(released, self.cx.sleep_until(held.until)).await;
        }
    }

    /// Takes a step of the snapshot `id`; root's. ECANCELED: the last step is too long ago; EBUSY: there is another
    /// snapshot.
    pub(super) async fn step(self: &Rc<Self>, who: &Who<'_>, id: u64, step: Step) -> Encoded {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        let (mut is_quiet, mut snapshot) = (false, 0);
        match step {
            Step::Prepare => {
                self.sync().await?;
                self.checkpoint().await;
            }
            Step::Quiesce => is_quiet = self.quiesce(id).await?,
            Step::Pause => self.pause(id).await?,
            Step::Take => snapshot = self.take_snapshot(id)?,
            Step::Resume => self.resume(id)?,
        }
        let mut manager = self.manager.borrow_mut();
        let (lineage, sites) = (manager.volume.lineage, manager.sites.table().clone());
        let sequence = manager.store().sequence();
        Ok(encoded(&Stepped { is_quiet, snapshot, sequence, lineage, sites }))
    }

    /// Holds back what others have a part in; whether nothing of that is under way, for which it waits a moment.
    async fn quiesce(&self, id: u64) -> Result<bool, Errno> {
        if self.quiesced().is_some_and(|held| held.id != id) {
            return Err(Errno::EBUSY);
        }
        let (now, is_paused) = (self.cx.now(), false);
        self.quiesced.set(Some(Quiesced { id, until: now + QUIESCE_SPAN, is_paused }));
        loop {
            let is_quiet = self.is_quiet()? || self.cx.has_bug(Bug::BackupNotQuiesced);
            if is_quiet || self.cx.now() >= now + QUIET_SPAN {
                return Ok(is_quiet);
            }
            self.unsettled.hurry();
            self.cx.sleep(RETRY_PAUSE).await;
        }
    }

    fn is_quiet(&self) -> Result<bool, Errno> {
        let manager = self.manager.borrow();
        let handovers = manager.open_handovers(self.cx.now()).map_err(|_| Errno::EIO)?;
        let operations = self.undecided.borrow().len() + manager.decided.len();
        Ok(operations + manager.prepared.len() + self.giving.borrow().len() + handovers.len() == 0)
    }

    /// The step before was taken for this snapshot, and not too long ago.
    fn held_for(&self, id: u64) -> Result<Quiesced, Errno> {
        self.quiesced().filter(|held| held.id == id).ok_or(Errno::ECANCELED)
    }

    async fn pause(&self, id: u64) -> Result<(), Errno> {
        let held = self.held_for(id)?;
        let until = self.cx.now() + PAUSE_SPAN;
        self.quiesced.set(Some(Quiesced { until, is_paused: true, ..held }));
        self.settled().await?;
        // Changes that a power cut can take are in no backup.
        self.sync().await?;
        self.held_for(id).map(drop)
    }

    fn take_snapshot(&self, id: u64) -> Result<u64, Errno> {
        let held = self.held_for(id)?;
        if !held.is_paused {
            return Err(Errno::ECANCELED);
        }
        let members = self.members.borrow().clone();
        let members = members.map_or(Ok(Vec::new()), |members| members())?;
        let mut manager = self.manager.borrow_mut();
        let lineage = manager.volume.lineage;
        let snapshot = manager.store().snapshot_begin().map_err(|_| Errno::EIO)?;
        let sequence = manager.store().sequence();
        let backup = Backup { sequence, lineage, members, used: self.cx.now() };
        self.backups.borrow_mut().insert(snapshot, backup);
        Ok(snapshot)
    }

    fn resume(&self, id: u64) -> Result<(), Errno> {
        let held = self.held_for(id)?;
        self.quiesced.set(None);
        self.progress.notify_all();
        self.released.notify_all();
        if held.is_paused { Ok(()) } else { Err(Errno::ECANCELED) }
    }
}
