//! Members that lend or use network memory, in which incarnations: the view that network memory goes by.
//!
//! Invariants: the view's number grows by one with each change of what it shows; a member that was down, or began
//! another incarnation, comes back in a later one here, even when its process went on running and knows of nothing;
//! what is shown to others is on stable storage, so that after a power cut no number is given to another view.

use crate::membership::{Up, View};
use crate::protocol::{Lends, Member, Roles};
use std::collections::BTreeMap;
use store::{Batch, Store, StoreError};
use wire::NodeId;
use wire::codec::Decoder;
use wire::field::{Message, encoded};

const NUMBER_KEY: &[u8] = b"lenders";
/// Then the id, highest byte first.
const LENDER_KEY: u8 = b'n';

/// The registry's record of a lender.
#[derive(Debug, Default)]
pub struct LenderTable {
    /// Also of members that are down. An incarnation here is the number of the view that it began with: the process's
    /// own stays the same when it was only silent for too long.
    known: BTreeMap<NodeId, Up>,
    number: u64,
    /// The change of the store that made the present view.
    changed: u64,
    shown: View,
}

impl LenderTable {
    /// Loads the table that `store` holds, all of it on stable storage.
    pub fn open(store: &Store) -> Result<LenderTable, StoreError> {
        let mut table = LenderTable::default();
        let number = store.get(NUMBER_KEY)?.unwrap_or_default();
        table.number = Decoder::new(&number).u64().unwrap_or(0);
        for (_, value) in store.range(&[LENDER_KEY][..]..&[LENDER_KEY + 1][..], usize::MAX)? {
            // A record that cannot be read is of no incarnation that any node is in.
            if let Ok(lender) = Up::decode(&value) {
                table.known.insert(lender.node, lender);
            }
        }
        Ok(table)
    }

    /// The view that others are shown.
    pub fn shown(&self) -> &View {
        &self.shown
    }

    /// Whether the table has changes that the shown view lacks.
    pub fn is_ahead(&self) -> bool {
        self.number != self.shown.number
    }

    /// The memory that this member lends, as far as it said.
    pub fn lends(&self, id: NodeId) -> Lends {
        let lends = |lender: &Up| Lends { mib: lender.weight, machine: lender.machine };
        self.known.get(&id).map_or(Lends::default(), lends)
    }

    /// The incarnation of a member that lends; 0 of one that does not.
    pub fn incarnation(&self, id: NodeId) -> u64 {
        self.known.get(&id).map_or(0, |lender| lender.incarnation)
    }

    /// A member is about to be `member` in place of `old`; `None` for the end of what is known of it. Says whether the
    /// view is another now, for [`changed_by`](LenderTable::changed_by).
    pub fn note(
        &mut self,
        batch: &mut Batch,
        old: Option<&Member>,
        member: Option<(&Member, Lends)>,
    ) -> bool {
        let lends = |member: &Member| member.roles.contains(Roles::MEMORY);
        let new = member.filter(|(member, _)| lends(member));
        let Some(id) = new.map(|(member, _)| member.id).or(old.map(|old| old.id)) else {
            return false;
        };
        let known = self.known.get(&id).copied();
        let lived = |member: &Member| {
            old.is_some_and(|old| old.alive && old.incarnation == member.incarnation)
        };
        let next = new.map(|(member, lends)| {
            let same = known.filter(|_| lived(member) || !member.alive);
            let incarnation = same.map_or(self.number + 1, |known| known.incarnation);
            Up { node: id, incarnation, weight: lends.mib, machine: lends.machine }
        });
        let was_up = known.is_some() && old.is_some_and(|old| old.alive);
        let is_up = new.is_some_and(|(member, _)| member.alive);
        if next == known && was_up == is_up {
            return false;
        }
        self.write(batch, id, next);
        true
    }

    fn write(&mut self, batch: &mut Batch, id: NodeId, lender: Option<Up>) {
        let [high, low] = id.0.to_be_bytes();
        let key = [LENDER_KEY, high, low];
        match lender {
            Some(lender) => {
                batch.put(&key, &encoded(&lender));
                self.known.insert(id, lender);
            }
            None => {
                batch.delete(&key);
                self.known.remove(&id);
            }
        }
        self.number += 1;
        batch.put(NUMBER_KEY, &encoded(&self.number));
    }

    /// The change of the store with which the view became another.
    pub fn changed_by(&mut self, sequence: u64) {
        self.changed = sequence;
    }

    /// Changes up to `synced` are on stable storage: from now on others are shown the present view, unless it is newer
    /// than that. Says whether it is another than before.
    pub fn handle_synced(&mut self, synced: u64, is_alive: impl Fn(NodeId) -> bool) -> bool {
        if !self.is_ahead() || self.changed > synced {
            return false;
        }
        let members = self.known.values().filter(|lender| is_alive(lender.node)).copied().collect();
        self.shown = View { number: self.number, members };
        true
    }
}
