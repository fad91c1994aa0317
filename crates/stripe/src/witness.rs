//! An I/O server's knowledge of the manager's store: how far it was, kept in the label of each of its disks.
//!
//! A store of names whose directory comes back as it was some time ago cannot tell so by itself. The manager tells its
//! servers every second how far its store is durable, and asks them when it starts. A server keeps the latest that it
//! was told, on every disk that serves, at most a second after it was told: the label is written beside the object
//! path, and no request waits for it.

use crate::limits::WITNESSES_MAX;
use crate::protocol::{ObjectReply, ObjectRequest};
use std::collections::BTreeMap;
use wire::field::fields;
use wire::{Errno, NodeId, Wall};

/// A server's knowledge of all managers: the state of each one's store. 0 is the manager that the volume was made at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witnesses(BTreeMap<NodeId, Witness>);

impl Witnesses {
    /// Of one manager.
    pub fn get(&self, manager: NodeId) -> Witness {
        self.0.get(&manager).copied().unwrap_or_default()
    }

    /// Takes the later one of what is known and what is told. ENOSPC: there are too many managers.
    pub fn learn(&mut self, manager: NodeId, told: Witness) -> Result<(), Errno> {
        let is_new = !self.0.contains_key(&manager);
        if is_new && self.0.len() >= WITNESSES_MAX {
            return Err(Errno::ENOSPC);
        }
        let known = self.0.entry(manager).or_default();
        *known = (*known).max(told);
        Ok(())
    }

    /// Takes the later one of each manager.
    pub fn learn_all(&mut self, others: &Witnesses) {
        for (manager, told) in &others.0 {
            // A set of all of them was learnt one by one.
            let _ = self.learn(*manager, *told);
        }
    }

    /// Whether any of them is beyond what the others say.
    pub fn is_beyond(&self, others: &Witnesses) -> bool {
        self.0.iter().any(|(manager, witness)| witness.is_beyond(&others.get(*manager)))
    }

    /// Witnesses of all managers but the first, with their nodes.
    pub(crate) fn others(&self) -> impl ExactSizeIterator<Item = (NodeId, Witness)> {
        let others: Vec<_> = self.0.iter().filter(|(manager, _)| manager.0 != 0).collect();
        others.into_iter().map(|(manager, witness)| (*manager, *witness))
    }
}

/// State of a manager's store. The later of two is the larger one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Witness {
    /// Counts the stores that the volume's names were in: a restored one begins another. Sequences of different
    /// lineages have nothing to do with each other.
    pub lineage: u16,
    /// Every change up to this one is on stable storage; 0 is nothing.
    pub sequence: u64,
    /// Number of the store among the volume's, of whatever lineage. An older copy of one has the same.
    pub store: u32,
    /// Incarnation of the manager that reported it.
    pub incarnation: u32,
    /// When the manager told so, in seconds since 1970.
    pub told: u64,
}
fields!(Witness { lineage, sequence, store, incarnation, told });

impl Witness {
    /// Whether it is of a later lineage, or of the same one and further.
    pub fn is_beyond(&self, other: &Witness) -> bool {
        (self.lineage, self.sequence) > (other.lineage, other.sequence)
    }

    /// Whether no manager was ever heard of that had anything on stable storage.
    pub fn is_nothing(&self) -> bool {
        self.sequence == 0
    }

    /// The fields of a request that tell it.
    pub(crate) fn tell(&self, ask: &mut ObjectRequest) {
        (ask.epoch, ask.offset) = (self.lineage.into(), self.sequence);
        (ask.truncations, ask.bytes) = (self.store, self.incarnation);
        ask.mtime = Wall { seconds: self.told as i64, nanos: 0 };
    }

    pub(crate) fn of_request(ask: &ObjectRequest) -> Result<Witness, Errno> {
        let lineage = u16::try_from(ask.epoch).map_err(|_| Errno::EPROTO)?;
        let (store, incarnation, told) = (ask.truncations, ask.bytes, ask.mtime.seconds as u64);
        Ok(Witness { lineage, sequence: ask.offset, store, incarnation, told })
    }

    pub(crate) fn reply(&self) -> ObjectReply {
        let mtime = Wall { seconds: self.told as i64, nanos: 0 };
        ObjectReply {
            epoch: self.lineage.into(),
            length: self.sequence,
            truncations: self.store,
            used: self.incarnation.into(),
            mtime,
            ..ObjectReply::default()
        }
    }

    /// The witness in a reply.
    pub(crate) fn of_reply(reply: &ObjectReply) -> Result<Witness, Errno> {
        let lineage = u16::try_from(reply.epoch).map_err(|_| Errno::EPROTO)?;
        let incarnation = u32::try_from(reply.used).map_err(|_| Errno::EPROTO)?;
        let (store, told) = (reply.truncations, reply.mtime.seconds as u64);
        Ok(Witness { lineage, sequence: reply.length, store, incarnation, told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_lineage_is_beyond_any_sequence_and_the_clock_decides_nothing() {
        let one = Witness { lineage: 1, sequence: 900, store: 8, incarnation: 6, told: 5 };
        let other = Witness { lineage: 2, sequence: 3, store: 7, incarnation: 9, told: 4 };
        assert!(other.is_beyond(&one) && !one.is_beyond(&other));
        assert!(!Witness { told: 9, ..one }.is_beyond(&one));
        let mut ask = ObjectRequest::default();
        other.tell(&mut ask);
        assert_eq!(Witness::of_request(&ask), Ok(other));
        assert_eq!(Witness::of_reply(&other.reply()), Ok(other));
        ask.epoch = 1 << 16;
        assert_eq!(Witness::of_request(&ask), Err(Errno::EPROTO));
    }
}
