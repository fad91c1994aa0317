//! Owners of locks, and what they hold.

use super::hosts::HostId;
use super::ranges::Ranges;
use super::{NoRoom, OwnerId};
use crate::handle::Key;
use crate::limits::{LOCK_OWNER_BYTES_MAX, LOCK_OWNERS_MAX, LOCK_OWNERS_OF_HOST_MAX};
use crate::nlm::NlmLock;
use core::net::IpAddr;
use node::rings::{Lock, LockKind};
use std::collections::BTreeMap;
use wire::FileId;

/// Identity of an owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity {
    host: HostId,
    owner: Box<[u8]>,
    process: i32,
}

impl Identity {
    /// `None`: its name is longer than any client's.
    pub fn new(host: HostId, lock: &NlmLock<'_>) -> Option<Identity> {
        let owner = (lock.owner.0.len() <= LOCK_OWNER_BYTES_MAX).then_some(lock.owner.0)?;
        Some(Identity { host, owner: owner.into(), process: lock.process })
    }
}

/// The number that an owner gets where it is free: the same in each incarnation of a server and in each server of the
/// volume, so that a reclaimed lock takes the place of the one that its owner had.
pub(super) fn seed(key: &Key, client: IpAddr, lock: &NlmLock<'_>) -> OwnerId {
    let mut bytes = client.to_canonical().to_string().into_bytes();
    for part in [lock.host.0, lock.owner.0] {
        bytes.push(0);
        bytes.extend((part.len() as u32).to_be_bytes());
        bytes.extend(part);
    }
    bytes.extend(lock.process.to_be_bytes());
    key.hash(&bytes).max(1)
}

#[derive(Debug, Default)]
struct Holding {
    ranges: Ranges,
    /// The manager may hold something else for the owner.
    in_doubt: bool,
}

#[derive(Debug)]
struct Owner {
    identity: Identity,
    /// In progress.
    calls: u32,
    files: BTreeMap<FileId, Holding>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Owners {
    all: BTreeMap<OwnerId, Owner>,
    numbers: BTreeMap<Identity, OwnerId>,
    /// Locks.
    held: usize,
}

impl Owners {
    pub fn held(&self) -> usize {
        self.held
    }

    pub fn number(&self, identity: &Identity) -> Option<OwnerId> {
        self.numbers.get(identity).copied()
    }

    /// Client and process.
    pub fn of(&self, owner: OwnerId) -> Option<(HostId, i32)> {
        self.all.get(&owner).map(|it| (it.identity.host, it.identity.process))
    }

    pub fn iter(&self) -> impl Iterator<Item = (OwnerId, FileId, Lock)> + '_ {
        let files = self.all.iter().flat_map(|(id, it)| it.files.iter().map(|file| (*id, file)));
        files.flat_map(|(id, (file, held))| held.ranges.iter().map(move |lock| (id, *file, *lock)))
    }

    pub fn of_host(&self, host: HostId) -> Vec<OwnerId> {
        let its = self.all.iter().filter(|(_, it)| it.identity.host == host);
        its.map(|(id, _)| *id).collect()
    }

    /// The owner, and whether it is new; a call of it is in progress.
    pub fn meet(
        &mut self,
        identity: Identity,
        seed: OwnerId,
        of_host: usize,
    ) -> Result<(OwnerId, bool), NoRoom> {
        if let Some(owner) = self.find(&identity) {
            return Ok((owner, false));
        }
        if self.all.len() >= LOCK_OWNERS_MAX || of_host >= LOCK_OWNERS_OF_HOST_MAX {
            return Err(NoRoom);
        }
        let mut owner = seed;
        while self.all.contains_key(&owner) {
            owner = owner.wrapping_add(1).max(1);
        }
        self.numbers.insert(identity.clone(), owner);
        self.all.insert(owner, Owner { identity, calls: 1, files: BTreeMap::new() });
        Ok((owner, true))
    }

    /// The owner, if it is known; a call of it is in progress.
    pub fn find(&mut self, identity: &Identity) -> Option<OwnerId> {
        let owner = self.number(identity)?;
        self.begin(owner);
        Some(owner)
    }

    /// A call of the owner is in progress; whether it is known.
    pub fn begin(&mut self, owner: OwnerId) -> bool {
        let known = self.all.get_mut(&owner);
        let is_known = known.is_some();
        known.into_iter().for_each(|owner| owner.calls += 1);
        is_known
    }

    /// One has ended. After the last one: what the manager is to be told.
    pub fn rest(&mut self, owner: OwnerId) -> Vec<(FileId, Lock)> {
        let it = self.all.get_mut(&owner).expect("an owner with a call");
        it.calls -= 1;
        if it.calls > 0 {
            return Vec::new();
        }
        let mut told = Vec::new();
        for (file, holding) in &mut it.files {
            if std::mem::take(&mut holding.in_doubt) || holding.ranges.is_empty() {
                told.extend(holding.ranges.pieces().into_iter().map(|lock| (*file, lock)));
            }
        }
        it.files.retain(|_, holding| !holding.ranges.is_empty());
        told
    }

    /// Forgets an owner that has nothing; whose it was.
    pub fn forget(&mut self, owner: OwnerId) -> Option<HostId> {
        let it = self.all.get(&owner)?;
        if it.calls > 0 || !it.files.is_empty() {
            return None;
        }
        let gone = self.all.remove(&owner).expect("it was found");
        self.numbers.remove(&gone.identity);
        Some(gone.identity.host)
    }

    /// Whether the owner has nothing on the file but what this releases, and no other call of it is in progress.
    pub fn is_last(&self, owner: OwnerId, file: FileId, lock: &Lock) -> bool {
        let Some(it) = self.all.get(&owner).filter(|it| it.calls <= 1) else { return false };
        it.files.get(&file).is_none_or(|holding| {
            !holding.in_doubt
                && holding
                    .ranges
                    .iter()
                    .all(|held| lock.start <= held.start && held.end <= lock.end)
        })
    }

    pub fn note(&mut self, owner: OwnerId, file: FileId, lock: Lock) {
        let Some(it) = self.all.get_mut(&owner) else { return };
        if lock.kind == LockKind::Unlock && !it.files.contains_key(&file) {
            return;
        }
        let holding = it.files.entry(file).or_default();
        let before = holding.ranges.len();
        holding.ranges.set(lock);
        self.held = self.held + holding.ranges.len() - before;
        // all of it was released at the manager too
        if holding.ranges.is_empty() && (lock.start, lock.end) == (0, u64::MAX) {
            it.files.remove(&file);
        }
    }

    /// The manager may hold something else for the owner than is noted.
    pub fn doubt(&mut self, owner: OwnerId, file: FileId) {
        if let Some(it) = self.all.get_mut(&owner) {
            it.files.entry(file).or_default().in_doubt = true;
        }
    }

    /// The owner holds nothing any more. How many locks it had.
    pub fn release(&mut self, owner: OwnerId) -> usize {
        let Some(it) = self.all.get_mut(&owner) else { return 0 };
        let released = it.files.values().map(|holding| holding.ranges.len()).sum();
        it.files.values_mut().for_each(|holding| *holding = Holding::default());
        self.held -= released;
        released
    }

    /// Whether all of this is held already.
    pub fn has(&self, owner: OwnerId, file: FileId, lock: &Lock) -> bool {
        let holding = self.all.get(&owner).and_then(|it| it.files.get(&file));
        holding.is_some_and(|holding| !holding.in_doubt && holding.ranges.cover(lock))
    }

    /// The owner's locks on a file.
    pub fn ranges(&self, owner: OwnerId, file: FileId) -> Ranges {
        let holding = self.all.get(&owner).and_then(|it| it.files.get(&file));
        holding.map(|holding| holding.ranges.clone()).unwrap_or_default()
    }

    /// The owner holds this of a file, whatever the manager was told.
    pub fn restore(&mut self, owner: OwnerId, file: FileId, ranges: Ranges) {
        let Some(it) = self.all.get_mut(&owner) else { return };
        let holding = it.files.entry(file).or_default();
        self.held = self.held + ranges.len() - holding.ranges.len();
        *holding = Holding { ranges, in_doubt: true };
    }

    /// Process and name of an owner whose lock is this one.
    pub fn holder(&self, file: FileId, lock: &Lock) -> Option<(i32, Box<[u8]>)> {
        let is_it =
            |held: &Lock| (held.start, held.end, held.kind) == (lock.start, lock.end, lock.kind);
        let mut of_file = self.all.values().filter_map(|it| Some((it, it.files.get(&file)?)));
        let (owner, _) = of_file.find(|(owner, holding)| {
            owner.identity.process as u32 == lock.pid && holding.ranges.iter().any(is_it)
        })?;
        Some((owner.identity.process, owner.identity.owner.clone()))
    }
}
