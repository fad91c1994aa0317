//! Disks that are to be emptied of the replicas of groups, as a person has said: a record for each of their servers.

use crate::disks::malformed;
use crate::protocol::Emptied;
use std::collections::BTreeMap;
use store::{Batch, Store, StoreError};
use wire::NodeId;
use wire::field::{Message, encoded};

/// Then the server, highest byte first.
const EMPTIED_KEY: u8 = b'e';

/// One bit for each disk of a server.
#[derive(Debug, Default)]
pub(crate) struct EmptiedTable(BTreeMap<NodeId, u32>);

impl EmptiedTable {
    pub fn open(store: &Store) -> Result<EmptiedTable, StoreError> {
        let mut table = EmptiedTable::default();
        for (_, value) in store.range(&[EMPTIED_KEY][..]..&[EMPTIED_KEY + 1][..], usize::MAX)? {
            let Emptied { id, disks } = Emptied::decode(&value).map_err(|_| malformed())?;
            table.0.insert(id, disks);
        }
        Ok(table)
    }

    /// The disks of a server.
    pub fn of(&self, id: NodeId) -> u32 {
        self.0.get(&id).copied().unwrap_or(0)
    }

    /// All servers with some.
    pub fn iter(&self) -> impl Iterator<Item = Emptied> + '_ {
        self.0.iter().map(|(id, disks)| Emptied { id: *id, disks: *disks })
    }

    /// From now on these of its disks are; whether that is anything new.
    pub fn set(&mut self, batch: &mut Batch, id: NodeId, disks: u32) -> bool {
        if self.of(id) == disks {
            return false;
        }
        let [high, low] = id.0.to_be_bytes();
        let key = [EMPTIED_KEY, high, low];
        match disks {
            0 => {
                batch.delete(&key);
                self.0.remove(&id);
            }
            _ => {
                batch.put(&key, &encoded(&Emptied { id, disks }));
                self.0.insert(id, disks);
            }
        }
        true
    }
}
