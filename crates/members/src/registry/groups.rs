//! The groups of replicas in the registry: what replicas propose, what the planner decides, and what others are told.

use super::Registry;
use crate::disks::ToldDisk;
use crate::groups::{
    Change, Group, GroupId, GroupsPage, Proposal, Refusal, Replica, Table, ToldGroup,
};
use crate::limits::{EMPTIED_MAX, GROUPS_MAX, PAGE_BYTES};
use crate::protocol::{Emptied, Empty, Roles};
use store::{Append, Batch};
use wire::field::encoded;
use wire::{Errno, NodeId};

/// Why a change of a group was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The group does not allow it: with the group as it is, so that the proposer learns.
    #[error("{0}")]
    Refused(Refusal, Box<ToldGroup>),
    /// There is no such group (ENOENT), or the store takes no changes now.
    #[error("{0}")]
    Failed(Errno),
}

impl Denied {
    /// The status of the answer, and its data.
    pub fn into_answer(self) -> (Errno, Option<ToldGroup>) {
        match self {
            Denied::Refused(refusal, told) => (refusal.into(), Some(*told)),
            Denied::Failed(errno) => (errno, None),
        }
    }
}

impl Registry {
    /// The groups as others are told them: all of it is on stable storage.
    pub fn groups(&self) -> &Table {
        self.groups.shown()
    }

    /// The groups with all that was decided, also what a power cut may still take back. Not to be told.
    pub fn decided_groups(&self) -> &Table {
        self.groups.decided()
    }

    /// The groups that changed behind this version, as many as fit in a page.
    pub fn groups_page(&self, known: u64) -> GroupsPage {
        let groups = self.groups();
        let mut page = GroupsPage { version: groups.version(), groups: Vec::new(), last: true };
        let mut bytes = 0;
        for (version, id, group) in groups.since(known) {
            let told = ToldGroup { version, id, group: group.clone() };
            bytes += encoded(&told).len();
            if bytes > PAGE_BYTES {
                page.last = false;
                break;
            }
            page.groups.push(told);
        }
        page
    }

    /// A replica on the server `source` proposes a change of its group. The group after it, which may be told once the
    /// record is on stable storage. Nor may what a refusal tells be told before all is that was decided: an earlier
    /// change may be on its way.
    pub fn handle_group(
        &mut self,
        source: NodeId,
        proposal: &Proposal,
    ) -> Result<(ToldGroup, Append), Denied> {
        let Proposal { group, by, epoch, change } = *proposal;
        let is_its_own = by.server == source && !self.is_declared_gone(by);
        if self.decided_groups().get(group).is_some() && !(is_its_own && change.is_of_replicas()) {
            return Err(self.refused(group, Refusal::NotYours("a replica about itself and others")));
        }
        let append = self.change_group(group, Some(by), epoch, change)?;
        Ok((self.decided(group), append))
    }

    /// The planner changes a group, as it decided when the group had this epoch.
    pub fn handle_planned(
        &mut self,
        id: GroupId,
        epoch: u32,
        change: Change,
    ) -> Result<Append, Denied> {
        self.change_group(id, None, epoch, change)
    }

    fn change_group(
        &mut self,
        id: GroupId,
        by: Option<Replica>,
        epoch: u32,
        change: Change,
    ) -> Result<Append, Denied> {
        self.store.admit().map_err(|error| Denied::Failed(error.into()))?;
        if self.decided_groups().get(id).is_none() {
            return Err(Denied::Failed(Errno::ENOENT));
        }
        let changed = self.groups.change(&mut self.store, id, by, epoch, change);
        changed.map_err(|refusal| self.refused(id, refusal))
    }

    fn refused(&self, id: GroupId, refusal: Refusal) -> Denied {
        Denied::Refused(refusal, Box::new(self.decided(id)))
    }

    /// A group that is there.
    fn decided(&self, id: GroupId) -> ToldGroup {
        let groups = self.decided_groups();
        let group = groups.get(id).expect("it was looked up").clone();
        ToldGroup { version: groups.version_of(id), id, group }
    }

    /// What it holds is given up, so it has no say in what others hold.
    fn is_declared_gone(&self, replica: Replica) -> bool {
        let lost = self.member(replica.server).map_or(0, |member| member.lost_disks());
        lost.checked_shr(replica.disk.into()).unwrap_or(0) & 1 == 1
    }

    /// The planner makes a new group, by the number that [`Table::next_id`] of the decided groups names.
    ///
    /// # Errors
    ///
    /// ENOSPC: there are [`GROUPS_MAX`]. EEXIST: it is not the next number.
    pub fn handle_make(&mut self, id: GroupId, group: Group) -> Result<Append, Errno> {
        self.store.admit()?;
        let groups = self.decided_groups();
        if groups.len() >= GROUPS_MAX {
            return Err(Errno::ENOSPC);
        }
        if id != groups.next_id() {
            return Err(Errno::EEXIST);
        }
        Ok(self.groups.make(&mut self.store, id, group))
    }

    /// The disks that were ever told: server, number and label, and the incarnation of the server that told it last.
    pub(crate) fn told_disks(&self) -> impl Iterator<Item = (NodeId, u8, u128, u64)> + '_ {
        self.disks
            .iter()
            .map(|(server, disk, label, incarnation)| (server, disk as u8, label, incarnation))
    }

    /// Disks are to be emptied of replicas, or are to get some again. Doing so twice is no error.
    ///
    /// # Errors
    ///
    /// ENOENT: there is no such server. EOPNOTSUPP: there are no groups. ENOSPC: disks of [`EMPTIED_MAX`] servers are.
    pub fn handle_empty(&mut self, asked: Empty) -> Result<Option<Append>, Errno> {
        let Empty { id, disks, emptied } = asked;
        self.store.admit()?;
        self.member(id)
            .filter(|it| it.roles.contains(Roles::IO) && !it.gone)
            .ok_or(Errno::ENOENT)?;
        if self.decided_groups().is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        let before = self.emptied.of(id);
        if before == 0 && emptied && self.emptied.iter().count() >= EMPTIED_MAX {
            return Err(Errno::ENOSPC);
        }
        let mut batch = Batch::new();
        let next = if emptied { before | disks } else { before & !disks };
        let is_new = self.emptied.set(&mut batch, id, next);
        Ok(is_new.then(|| self.store.apply(batch)))
    }

    /// Whether a disk is to be emptied.
    pub(crate) fn is_emptied(&self, server: NodeId, disk: u8) -> bool {
        self.emptied.of(server) >> disk & 1 == 1
    }

    /// All disks that are to be emptied, by server.
    pub fn emptied(&self) -> impl Iterator<Item = Emptied> + '_ {
        self.emptied.iter()
    }

    /// Of the disks that a server tells in the places of others: those which may be there, and those which may not as
    /// the only whole replica of some group is on the other one; a bit each. Nothing of one is known by its number
    /// alone where there are groups, and one that has served anything is not empty.
    pub(super) fn replaceable(
        &self,
        server: NodeId,
        disks: &[ToldDisk],
        replacing: u32,
    ) -> (u32, u32) {
        let is_empty = |told: &&ToldDisk| told.found[1] == 0 && told.now[1] == 0;
        let has_bit =
            |told: &&ToldDisk| replacing.checked_shr(told.disk.into()).unwrap_or(0) & 1 == 1;
        let (mut free, mut needed) = (0, 0);
        if self.decided_groups().is_empty() {
            return (free, needed);
        }
        for told in disks.iter().filter(has_bit).filter(is_empty) {
            let (bit, label) = (1 << told.disk, self.disks.id(server, told.disk));
            let before = label.filter(|label| *label != told.id);
            let before = before.map(|label| Replica::of_label(server, told.disk as u8, label));
            match before.is_some_and(|before| self.needs(&|replica| replica == before)) {
                true => needed |= bit,
                false => free |= bit,
            }
        }
        (free, needed)
    }

    /// Whether some group has no replica in sync but those.
    pub(super) fn needs(&self, these: &dyn Fn(Replica) -> bool) -> bool {
        self.decided_groups().iter().any(|(_, group)| group.in_sync().all(these))
    }

    /// The machine of a member, as far as it said; else one of its own.
    pub(crate) fn machine(&self, id: NodeId) -> u64 {
        let machine = self.lenders.lends(id).machine;
        if machine == 0 { id.0.into() } else { machine }
    }
}
