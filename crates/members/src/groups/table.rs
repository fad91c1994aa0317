//! All groups of a volume, as the coordination store has them and as others know them.

use super::{Change, Group, GroupId, Refusal, Replica};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The groups, by number, each with the table's version that it came with.
///
/// Getters; then [`insert`](Table::insert) and [`change`](Table::change) in the store, and
/// [`learn`](Table::learn) and [`hear`](Table::hear) elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    groups: BTreeMap<GroupId, (u64, Group)>,
    /// The same groups by the versions that they came with: each page of changes begins in the middle.
    order: BTreeSet<(u64, GroupId)>,
    version: u64,
}

impl Table {
    /// Grows with every change of a group.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The group with this number.
    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(&id).map(|(_, group)| group)
    }

    /// The version that this group came with; 0 of one that is not there.
    pub fn version_of(&self, id: GroupId) -> u64 {
        self.groups.get(&id).map_or(0, |(at, _)| *at)
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// All groups, in ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group)> + Clone {
        self.groups.iter().map(|(id, (_, group))| (*id, group))
    }

    /// The number of the next new group.
    pub fn next_id(&self) -> GroupId {
        self.groups.last_key_value().map_or(GroupId::FIRST, |(id, _)| id.next())
    }

    /// Groups that changed after a version, and when each did, the earliest change first.
    pub fn since(&self, version: u64) -> impl Iterator<Item = (u64, GroupId, &Group)> {
        let after = (Bound::Excluded((version, GroupId(u32::MAX))), Bound::Unbounded);
        self.order.range(after).map(|(at, id)| (*at, *id, &self.groups[id].1))
    }

    /// A new group has this number.
    pub fn insert(&mut self, id: GroupId, group: Group) {
        assert!(self.get(id).is_none(), "a group's number is never used again");
        self.version += 1;
        self.put(self.version, id, group);
    }

    /// A change that `by` decided when it knew `epoch`; `None` is the planner. The group after it.
    pub fn change(
        &mut self,
        id: GroupId,
        by: Option<Replica>,
        epoch: u32,
        change: Change,
    ) -> Result<&Group, Refusal> {
        let group = self.get(id).ok_or(Refusal::NoChange)?.after(by, epoch, change)?;
        self.version += 1;
        self.put(self.version, id, group);
        Ok(&self.groups[&id].1)
    }

    /// A group as it was at a version of the store's table, when all that changed before is known; what is known
    /// already, or better, stays. Says whether it was news.
    pub fn learn(&mut self, version: u64, id: GroupId, group: Group) -> bool {
        let is_new = self.hear(version, id, group);
        self.version = self.version.max(version);
        is_new
    }

    /// A group as [`learn`](Table::learn), out of turn: others may have changed before it, so the table's version
    /// stays.
    pub fn hear(&mut self, version: u64, id: GroupId, group: Group) -> bool {
        let known = self.groups.get(&id).map_or((0, 0), |(at, known)| (known.epoch(), *at));
        let is_newer = (group.epoch(), version) > known;
        let is_new = group.epoch() > known.0;
        if is_newer {
            self.put(version, id, group);
        }
        is_new
    }

    fn put(&mut self, version: u64, id: GroupId, group: Group) {
        if let Some((before, _)) = self.groups.insert(id, (version, group)) {
            self.order.remove(&(before, id));
        }
        self.order.insert((version, id));
        assert_eq!(self.order.len(), self.groups.len(), "each group is once in the order");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::NodeId;

    fn disk(number: u64) -> Replica {
        Replica { server: NodeId(number as u16), disk: 0, id: number }
    }

    proptest! {
        /// In pieces of any size, each of them maybe twice, and others late.
        #[test]
        fn who_asks_for_changes_knows_the_table(
            steps in proptest::collection::vec((0..4u32, 0..6u64, 0..3u8), 1..80),
            every in 1..10usize,
            piece in 1..5usize,
        ) {
            let (mut table, mut learner) = (Table::default(), Table::default());
            let mut late = Vec::new();
            for (turn, (id, number, kind)) in steps.into_iter().enumerate() {
                let id = GroupId(GroupId::FIRST.0 + id * 0x100);
                match table.get(id).cloned() {
                    None => table.insert(id, Group::new(2, &[disk(number), disk(number + 1)]).unwrap()),
                    Some(group) => {
                        let change = match kind {
                            0 => Change::Add(disk(number)),
                            1 => Change::Remove(disk(number)),
                            _ => Change::Drop(disk(number)),
                        };
                        let by = (kind == 1).then(|| group.primary());
                        let _ = table.change(id, by, group.epoch(), change);
                    }
                }
                if turn % every == 0 {
                    let told: Vec<_> = table.since(learner.version()).take(piece)
                        .map(|(at, id, group)| (at, id, group.clone())).collect();
                    for (at, id, group) in told.iter().chain(&late) {
                        learner.learn(*at, *id, group.clone());
                    }
                    late = told;
                }
            }
            while learner.version() < table.version() {
                for (at, id, group) in table.since(learner.version()).take(piece) {
                    learner.learn(at, id, group.clone());
                }
            }
            prop_assert_eq!(learner, table);
        }
    }

    #[test]
    fn a_change_by_an_earlier_epoch_is_refused() {
        let mut table = Table::default();
        let id = GroupId::FIRST.next();
        table.insert(id, Group::new(2, &[disk(1), disk(2)]).unwrap());
        assert_eq!(table.next_id(), id.next());
        let alone = |by, gone| (Some(disk(by)), 1, Change::Remove(disk(gone)));
        let (by, epoch, change) = alone(1, 2);
        assert_eq!(table.change(id, by, epoch, change).map(Group::primary), Ok(disk(1)));
        let (by, epoch, change) = alone(2, 1);
        assert_eq!(table.change(id, by, epoch, change), Err(Refusal::Stale));
    }
}
