//! The table of groups in the members' store: what has changed, and what others are told of it.
//!
//! A replica acts on what it is told of its group at once: a primary serves alone after a Remove. So a change is told
//! only when it is on stable storage, and a power cut takes back only what nobody knows. Records are never deleted and
//! each has the version it came with, so the greatest of them is the table's: it never goes back.

use super::{Change, Group, GroupId, Refusal, Replica, Table};
use crate::disks::malformed;
use std::collections::VecDeque;
use store::{Append, Batch, Store, StoreError};
use wire::field::{Message, encoded};

/// Then the number, highest byte first.
const GROUP_KEY: u8 = b'g';

/// A change that is not on stable storage yet, as far as is known.
#[derive(Debug)]
struct Pending {
    sequence: u64,
    version: u64,
    id: GroupId,
    group: Group,
}

/// The groups, with their changes on the way to stable storage.
#[derive(Debug, Default)]
pub(crate) struct StoredTable {
    table: Table,
    shown: Table,
    pending: VecDeque<Pending>,
}

impl StoredTable {
    /// Loads the table that `store` holds, all of it on stable storage.
    pub fn open(store: &Store) -> Result<StoredTable, StoreError> {
        let mut table = Table::default();
        for (key, value) in store.range(&[GROUP_KEY][..]..&[GROUP_KEY + 1][..], usize::MAX)? {
            let id = id_of(&key).filter(|id| id.is_listed());
            let record = <(u64, Group)>::decode(&value).ok();
            let (id, (version, group)) = id.zip(record).ok_or_else(malformed)?;
            table.learn(version, id, group);
        }
        Ok(StoredTable { shown: table.clone(), table, pending: VecDeque::new() })
    }

    /// The table with all that was decided.
    pub fn decided(&self) -> &Table {
        &self.table
    }

    /// The table that others are told.
    pub fn shown(&self) -> &Table {
        &self.shown
    }

    /// A new group, which [`Table::next_id`] names.
    pub fn make(&mut self, store: &mut Store, id: GroupId, group: Group) -> Append {
        self.table.insert(id, group);
        self.write(store, id)
    }

    /// As [`Table::change`].
    pub fn change(
        &mut self,
        store: &mut Store,
        id: GroupId,
        by: Option<Replica>,
        epoch: u32,
        change: Change,
    ) -> Result<Append, Refusal> {
        self.table.change(id, by, epoch, change)?;
        Ok(self.write(store, id))
    }

    fn write(&mut self, store: &mut Store, id: GroupId) -> Append {
        let (version, group) = (self.table.version(), self.table.get(id).expect("just changed"));
        assert_eq!(version, self.table.version_of(id), "the last change is this one");
        let mut batch = Batch::new();
        batch.put(&key(id), &encoded(&(version, group.clone())));
        let append = store.apply(batch);
        let (sequence, group) = (append.sequence, group.clone());
        self.pending.push_back(Pending { sequence, version, id, group });
        append
    }

    /// Changes up to `synced` are on stable storage, and told from now on. Says whether there were any.
    pub fn handle_synced(&mut self, synced: u64) -> bool {
        let before = self.shown.version();
        while let Some(next) = self.pending.pop_front_if(|next| next.sequence <= synced) {
            self.shown.learn(next.version, next.id, next.group);
        }
        self.shown.version() > before
    }
}

fn key(id: GroupId) -> [u8; 4] {
    let [_, high, middle, low] = id.0.to_be_bytes();
    [GROUP_KEY, high, middle, low]
}

fn id_of(key: &[u8]) -> Option<GroupId> {
    let [_, high, middle, low] = *key else { return None };
    Some(GroupId(u32::from_be_bytes([0, high, middle, low])))
}
