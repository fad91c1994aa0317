//! What other nodes are told without anybody waiting for it: copies that came and went.

use crate::limits::NOTICES_MAX;
use crate::protocol::{RECORDS_MAX, Record};
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
    lost: u64,
}

impl Notices {
    /// Adds one. Says whether it did: when too many wait it is lost, and whoever relies on it finds out.
    pub fn push(&mut self, to: NodeId, op: u16, record: Record) -> bool {
        let room = self.queue.len() < NOTICES_MAX;
        if room {
            self.queue.push_back(Notice { to, op, record });
        }
        self.lost += u64::from(!room);
        room
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
        Some((to, op))
    }

    /// Nothing of what waits is true any more.
    pub fn clear(&mut self) {
        self.queue.clear();
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
    use crate::directory::{Holder, Role};
    use crate::page::{PageId, SpaceId, Version};

    fn record(index: u64) -> Record {
        let holder = Holder { node: NodeId(1), incarnation: 1, role: Role::Clean };
        let id = PageId { space: SpaceId(1), index };
        Record { id, version: Version(1), holder, copies: 0, lost: false, writer: false }
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
}
