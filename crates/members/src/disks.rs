//! The disks of I/O servers: which disk belongs to which number of a server, and how far each is known to have come.
//!
//! An I/O server tells the id of each of its disks, and how old what is on it was when the server started, before it
//! serves from it. A directory with another id is another disk, or an empty mount point. One that has not come as far
//! as was told before is an older copy. Neither is served: what is missing from it would read as zeros.
//!
//! An empty disk takes the place of another one where a person has said so, and where groups of replicas keep what was
//! there: the number is the same, the id is not, and what had the other id never serves again.

use crate::limits::DISKS_MAX;
use std::collections::BTreeMap;
use store::{Batch, Store, StoreError};
use wire::NodeId;
use wire::codec::Short;
use wire::field::{Field, Message, encoded, fields};

/// The error of a store whose records are of no member and no disk.
pub(crate) fn malformed() -> StoreError {
    StoreError::Storage { action: "read", reason: "it holds a member that is malformed".into() }
}

/// Then the server and the disk, highest bytes first.
const DISK_KEY: u8 = b'd';

/// Age of a disk's content: two numbers that only grow, of its label and of its log.
pub type Age = [u64; 2];

/// A server's report of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToldDisk {
    /// Its number on the server.
    pub disk: u16,
    /// In its label.
    pub id: u128,
    /// Its age when this incarnation of the server began.
    pub found: Age,
    /// Its age now, durably.
    pub now: Age,
}

impl ToldDisk {
    const BYTES: usize = 2 + 16 + 16 + 16;

    /// Several as the data of a message.
    pub fn encode_all(disks: &[ToldDisk]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(disks.len() * ToldDisk::BYTES);
        disks.iter().for_each(|told| told.put(&mut bytes));
        bytes
    }

    /// Reads what [`encode_all`](ToldDisk::encode_all) wrote.
    pub fn decode_all(data: &[u8]) -> Result<Vec<ToldDisk>, Short> {
        if !data.len().is_multiple_of(ToldDisk::BYTES) || data.len() > DISKS_MAX * ToldDisk::BYTES {
            return Err(Short);
        }
        data.chunks_exact(ToldDisk::BYTES).map(ToldDisk::decode).collect()
    }
}

fields!(ToldDisk { disk, id, found, now });

/// The reported disks that are not to be served, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Another disk is known by this number.
    pub foreign: u32,
    /// The registry has seen it at a greater age.
    pub older: u32,
    /// It is to take the place of a disk that has the only whole replica of some group.
    pub needed: u32,
}

impl Verdict {
    /// The reported disks that are served, one bit each.
    pub fn serving(self, disks: &[ToldDisk]) -> u32 {
        let told = disks.iter().filter_map(|told| 1u32.checked_shl(told.disk.into()));
        told.fold(0, |all, bit| all | bit) & !(self.foreign | self.older | self.needed)
    }
}

fields!(Verdict { foreign, older, needed });

/// The record of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    id: u128,
    age: Age,
    /// Of the server that told it last.
    incarnation: u64,
}

fields!(Known { id, age, incarnation });

/// All disks.
#[derive(Debug, Default)]
pub(crate) struct DiskTable(BTreeMap<(NodeId, u16), Known>);

impl DiskTable {
    pub fn open(store: &Store) -> Result<DiskTable, StoreError> {
        let mut table = DiskTable::default();
        for (key, value) in store.range(&[DISK_KEY][..]..&[DISK_KEY + 1][..], usize::MAX)? {
            let number = |at: usize| Some(u16::from_be_bytes([*key.get(at)?, *key.get(at + 1)?]));
            let entry = number(1).zip(number(3)).zip(Known::decode(&value).ok());
            let ((server, disk), known) = entry.ok_or_else(malformed)?;
            table.0.insert((NodeId(server), disk), known);
        }
        Ok(table)
    }

    /// All disks that were ever told: server, number and id, and the incarnation of the server that told it last.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, u16, u128, u64)> + '_ {
        self.0.iter().map(|((server, disk), known)| (*server, *disk, known.id, known.incarnation))
    }

    /// The id of the disk with this number on a server.
    pub fn id(&self, server: NodeId, disk: u16) -> Option<u128> {
        self.0.get(&(server, disk)).map(|known| known.id)
    }

    /// Judges what a server told, and notes in `batch` what is new of it; whether that is anything. A disk with a bit
    /// in `replaceable` is in another one's place, if it has another id.
    pub fn note(
        &mut self,
        batch: &mut Batch,
        (server, incarnation): (NodeId, u64),
        disks: &[ToldDisk],
        replaceable: u32,
    ) -> (Verdict, bool) {
        let (mut verdict, mut is_new) = (Verdict::default(), false);
        for told in disks.iter().filter(|told| usize::from(told.disk) < DISKS_MAX) {
            let bit = 1 << told.disk;
            let known = self.0.get(&(server, told.disk)).copied();
            let age = match known {
                Some(known) if known.id != told.id && replaceable & bit != 0 => told.now,
                Some(known) if known.id != told.id => {
                    verdict.foreign |= bit;
                    continue;
                }
                Some(known)
                    if known.incarnation != incarnation && is_older(told.found, known.age) =>
                {
                    verdict.older |= bit;
                    continue;
                }
                Some(known) => [0, 1].map(|at| known.age[at].max(told.now[at])),
                None => told.now,
            };
            let next = Known { id: told.id, age, incarnation };
            if known != Some(next) {
                batch.put(&key(server, told.disk), &encoded(&next));
                self.0.insert((server, told.disk), next);
                is_new = true;
            }
        }
        (verdict, is_new)
    }
}

fn is_older(found: Age, known: Age) -> bool {
    found.iter().zip(known).any(|(found, known)| *found < known)
}

fn key(server: NodeId, disk: u16) -> [u8; 5] {
    let ([a, b], [c, d]) = (server.0.to_be_bytes(), disk.to_be_bytes());
    [DISK_KEY, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(disk: u16, id: u128, found: u64, now: u64) -> ToldDisk {
        ToldDisk { disk, id, found: [found, 7], now: [now, 7] }
    }

    fn note(table: &mut DiskTable, incarnation: u64, disk: ToldDisk) -> Verdict {
        table.note(&mut Batch::new(), (NodeId(3), incarnation), &[disk], 0).0
    }

    #[test]
    fn another_disk_and_an_older_copy_are_told_and_change_nothing() {
        let mut table = DiskTable::default();
        let right = Verdict::default();
        assert_eq!(note(&mut table, 1, told(2, 9, 0, 5)), right);
        assert_eq!(note(&mut table, 1, told(2, 9, 0, 8)), right, "the same start goes on");
        assert_eq!(note(&mut table, 2, told(2, 8, 9, 9)), Verdict { foreign: 4, ..right });
        assert_eq!(note(&mut table, 2, told(2, 9, 7, 8)), Verdict { older: 4, ..right });
        assert_eq!(note(&mut table, 2, told(2, 9, 8, 9)), right);
        assert_eq!(note(&mut table, 2, told(1, 8, 0, 1)), right, "a disk that was added");
        let empty = ToldDisk { found: [0, 0], now: [1, 0], ..told(2, 77, 0, 0) };
        let batch = &mut Batch::new();
        assert_eq!(table.note(batch, (NodeId(3), 3), &[empty], 4), (right, true));
        assert_eq!(note(&mut table, 4, ToldDisk { found: [1, 0], ..empty }), right);
        assert_eq!(note(&mut table, 5, told(2, 9, 9, 9)), Verdict { foreign: 4, ..right });
        let all = [told(2, u128::MAX - 3, 5, u64::MAX), told(31, 4, 5, 6)];
        assert_eq!(ToldDisk::decode_all(&ToldDisk::encode_all(&all)).unwrap(), all);
        assert!(ToldDisk::decode_all(&[0; 49]).is_err());
    }
}
