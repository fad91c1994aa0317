//! Notices to other nodes for which nothing waits: copies that came and went.
//!
//! A holder cannot detect that its copy is stale, or its mirror none any more. So such notices are retried until
//! acknowledged: they have room of their own, and nothing is begun for which that room may be too little.

use crate::directory::Holder;
use crate::limits::{NOTICES_MAX, OWED_MAX};
use crate::page::{PageId, Version};
use crate::protocol::{RECORDS_MAX, Record, op};
use std::collections::VecDeque;
use wire::NodeId;

#[derive(Clone, Copy, Debug)]
struct Notice {
    to: NodeId,
    op: u16,
    record: Record,
}

/// The notices that wait. Those of one kind to one node go in one message.
#[derive(Debug, Default)]
pub struct Notices {
    queue: VecDeque<Notice>,
    /// Notices to be retried until acknowledged, under way or not.
    owed: usize,
    /// The others that wait.
    others: usize,
    lost: u64,
}

/// Whether a notice of this kind is told until it has arrived.
pub fn is_owed(what: u16) -> bool {
    matches!(what, op::DROP | op::WRITTEN)
}

impl Notices {
    /// Adds one. Says whether it did: when too many wait it is lost, and the node that relies on it finds out.
    pub fn push(&mut self, to: NodeId, op: u16, record: Record) -> bool {
        let (count, most) = match is_owed(op) {
            true => (&mut self.owed, OWED_MAX),
            false => (&mut self.others, NOTICES_MAX),
        };
        let room = *count < most;
        if room {
            *count += 1;
            self.queue.push_back(Notice { to, op, record });
        }
        self.lost += u64::from(!room);
        room
    }

    /// A holder is to drop its copy.
    pub fn tell_to_drop(&mut self, id: PageId, version: Version, holder: Holder) {
        let record = Record::new(id, version, holder);
        self.push(holder.node, op::DROP, record);
    }

    /// Whether so many more may be owed.
    pub fn has_room(&self, count: usize) -> bool {
        self.owed + count <= OWED_MAX
    }

    /// Some that are owed have arrived, or are true no more, but for those that are `left` to be told again.
    pub fn handle_told(&mut self, to: NodeId, op: u16, told: usize, left: &[Record]) {
        self.owed = self.owed.saturating_sub(told - left.len());
        self.queue.extend(left.iter().map(|record| Notice { to, op, record: *record }));
    }

    /// The next message: to whom, of which kind, with these records in their order.
    pub fn pop(&mut self, records: &mut Vec<Record>) -> Option<(NodeId, u16)> {
        let Notice { to, op, .. } = *self.queue.front()?;
        records.clear();
        self.queue.retain(|notice| {
            let goes = notice.to == to && notice.op == op && records.len() < RECORDS_MAX;
            if goes {
                records.push(notice.record);
            }
            !goes
        });
        if !is_owed(op) {
            self.others -= records.len();
        }
        Some((to, op))
    }

    /// Nothing of what waits is true any more.
    pub fn clear(&mut self) {
        self.queue.clear();
        (self.owed, self.others) = (0, 0);
    }

    /// Notices that wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Notices that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Role;
    use crate::page::SpaceId;

    fn record(index: u64) -> Record {
        let holder = Holder { node: NodeId(1), incarnation: 1, role: Role::Clean };
        let id = PageId { space: SpaceId(1), index };
        Record::new(id, Version(1), holder)
    }

    #[test]
    fn notices_of_one_kind_to_one_node_go_together() {
        let (mut notices, mut records) = (Notices::default(), Vec::new());
        for (to, op, index) in [(1, 4, 0), (2, 4, 1), (1, 5, 2), (1, 4, 3)] {
            notices.push(NodeId(to), op, record(index));
        }
        let mut sent = Vec::new();
        while let Some((to, op)) = notices.pop(&mut records) {
            sent.push((to.0, op, records.iter().map(|record| record.id.index).collect::<Vec<_>>()));
        }
        assert_eq!(sent, [(1, 4, vec![0, 3]), (2, 4, vec![1]), (1, 5, vec![2])]);
    }

    #[test]
    fn there_is_a_limit() {
        let (mut notices, mut records) = (Notices::default(), Vec::new());
        let mut push = |index| notices.push(NodeId(1), 4, record(index));
        assert_eq!((0..NOTICES_MAX as u64 + 3).filter(|index| push(*index)).count(), NOTICES_MAX);
        assert_eq!((notices.len(), notices.lost()), (NOTICES_MAX, 3));
        notices.pop(&mut records);
        assert_eq!(records.len(), RECORDS_MAX.min(NOTICES_MAX));
    }

    #[test]
    fn what_is_owed_has_its_room_until_it_has_arrived() {
        let (mut notices, mut records) = (Notices::default(), Vec::new());
        for index in 0..NOTICES_MAX as u64 {
            notices.push(NodeId(1), 4, record(index));
        }
        let owe = |notices: &mut Notices| notices.push(NodeId(2), op::DROP, record(0));
        assert!((0..OWED_MAX).all(|_| owe(&mut notices)) && !owe(&mut notices));
        while notices.pop(&mut records) != Some((NodeId(2), op::DROP)) {}
        assert!(!owe(&mut notices) && !notices.has_room(1), "they are under way");
        notices.handle_told(NodeId(2), op::DROP, records.len(), &records[..3]);
        assert!(notices.has_room(records.len() - 3) && !notices.has_room(records.len() - 2));
        let waiting = notices.len();
        notices.pop(&mut records);
        assert!(notices.len() < waiting);
    }
}
