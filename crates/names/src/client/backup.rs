//! Backups: snapshots of the stores of all managers as of one moment, read in parts.

use super::calls::decoded;
use super::{Client, Style};
use crate::limits::{BACKUP_REPLY_BYTES_MAX, DEADLINE, QUIESCE_SPAN, RETRY_INTERVAL};
use crate::permissions::Who;
use crate::protocol::moment::{Step, Stepped};
use crate::protocol::{Operation, Part};
use std::collections::BTreeSet;
use wire::{Errno, NodeId, Sites};

const PART: Style = Style { room: BACKUP_REPLY_BYTES_MAX, deadline: Some(DEADLINE) };
/// A step that is too late is of no use; one that makes a checkpoint may take as long.
const STEP: Style = Style { room: 2 * Sites::BYTES, deadline: Some(QUIESCE_SPAN) };
/// Attempts at a moment of all managers, and rounds of each in which operations under way may end.
const ATTEMPTS: u32 = 5;
const ROUNDS: u32 = 8;

/// A snapshot of one manager's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Whose.
    pub manager: NodeId,
    /// To ask for its parts by.
    pub number: u64,
    /// The last change that is in it.
    pub sequence: u64,
    /// The lineage of the store.
    pub lineage: u16,
    /// The sites that the manager owned then.
    pub sites: Vec<u8>,
}

/// Why there is no moment of all managers. EBUSY: another snapshot is being taken; EAGAIN: operations over several
/// managers, or handovers, did not end in time; else the error of the manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// The manager.
    pub manager: NodeId,
    /// Its error.
    pub errno: Errno,
}

/// A part of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPart {
    /// Keys and values, in ascending order.
    pub rows: Vec<store::Entry>,
    /// Nothing is behind it.
    pub last: bool,
}

impl Client {
    /// Snapshots of all managers that own sites, the first manager's first, as of one moment: no change is in one of
    /// them that was made after one that is not in another. Every site is at one of them. For some milliseconds nothing
    /// is changed, and for some more no operation over several managers ends. Root's.
    pub async fn snapshot(&self, who: &Who<'_>) -> Result<Vec<Snapshot>, NotTaken> {
        let mut attempts = 0u32;
        loop {
            let (id, mut managers) = (self.0.cx.random(), BTreeSet::from([self.0.first]));
            managers.extend(self.all_managers().await);
            let taken = self.take_moment(who, id, &mut managers).await;
            // Of one that was not taken each manager ends by itself what it holds back.
            let resumed = self.step(who, id, Step::Resume, &managers).await;
            attempts += 1;
            match taken.and_then(|taken| resumed.map(|_| taken)) {
                Err(NotTaken { errno: Errno::ECANCELED | Errno::EBUSY, .. })
                    if attempts < ATTEMPTS =>
                {
                    self.0.cx.sleep(RETRY_INTERVAL).await;
                }
                taken => return taken,
            }
        }
    }

    async fn take_moment(
        &self,
        who: &Who<'_>,
        id: u64,
        managers: &mut BTreeSet<NodeId>,
    ) -> Result<Vec<Snapshot>, NotTaken> {
        self.step(who, id, Step::Prepare, managers).await?;
        self.quiesce(who, id, managers).await?;
        self.step(who, id, Step::Pause, managers).await?;
        let taken = self.step(who, id, Step::Take, managers).await?;
        let snapshot = |(manager, stepped): (NodeId, Stepped)| Snapshot {
            manager,
            number: stepped.snapshot,
            sequence: stepped.sequence,
            lineage: stepped.lineage,
            sites: stepped.sites.of(manager).collect(),
        };
        let mut all: Vec<Snapshot> = taken.into_iter().map(snapshot).collect();
        let is_other = |one: &Snapshot| one.manager != self.0.first;
        all.retain(|one| !is_other(one) || !one.sites.is_empty());
        all.sort_by_key(|one| (is_other(one), one.manager));
        Ok(all)
    }

    /// Until no manager waits for another one's decision, and none hands a site over. In the round of which that is
    /// said every one had been told before that nothing of the kind is to begin.
    async fn quiesce(
        &self,
        who: &Who<'_>,
        id: u64,
        managers: &mut BTreeSet<NodeId>,
    ) -> Result<(), NotTaken> {
        let mut is_told = false;
        for _ in 0..ROUNDS {
            let told = self.step(who, id, Step::Quiesce, managers).await?;
            let known = managers.len();
            told.iter().for_each(|(_, stepped)| managers.extend(stepped.sites.managers()));
            let is_all = known == managers.len();
            if is_all && is_told && told.iter().all(|(_, stepped)| stepped.is_quiet) {
                return Ok(());
            }
            is_told = is_all;
        }
        Err(NotTaken { manager: self.0.first, errno: Errno::EAGAIN })
    }

    /// Has all these managers take a step; their answers.
    async fn step(
        &self,
        who: &Who<'_>,
        id: u64,
        step: Step,
        managers: &BTreeSet<NodeId>,
    ) -> Result<Vec<(NodeId, Stepped)>, NotTaken> {
        let calls = managers.iter().map(async |manager| {
            let operation = Operation::Snapshot { who: *who, id, step };
            let stepped = self.ask_at(*manager, operation, STEP).await.and_then(decoded);
            let stepped = stepped.map_err(|errno| NotTaken { manager: *manager, errno })?;
            Ok((*manager, stepped))
        });
        node::all(calls).await.into_iter().collect()
    }

    /// A part of a snapshot: what is behind `after`, of the members or of the names. Root's. ECANCELED: it ended before
    /// its time, as one does of which no part is asked for a minute.
    pub async fn back_up(
        &self,
        who: &Who<'_>,
        snapshot: &Snapshot,
        of_members: bool,
        after: &[u8],
    ) -> Result<BackupPart, Errno> {
        let operation =
            Operation::Backup { who: *who, snapshot: snapshot.number, of_members, after };
        let part = self.ask_at(snapshot.manager, operation, PART).await;
        let Part { rows, last, .. } = decoded(part?)?;
        let rows = rows.into_iter().map(|row| (row.key.into(), row.value.into())).collect();
        Ok(BackupPart { rows, last })
    }
}
