//! The locks that clients of NFS have, as they were told: two that exclude each other are a violation.
//!
//! A lock is had from the reply, or call, that told its client until that client asks for its release, or crashes. The
//! server may lose locks unnoticed when it does not reach the manager for longer than a lease: locks of a front that
//! answered no call of NLM for so long are doubtful, and give way.

use crate::queue::Picos;
use std::collections::BTreeMap;

/// Without an answer for so long a front may have lost its locks: a little less than the leases of its node.
const SILENCE_MAX: Picos = Picos::seconds(25);

/// A range of bytes, and whether others may not share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Whether it excludes other shared ones.
    pub exclusive: bool,
}

impl Wanted {
    fn excludes(self, other: Wanted) -> bool {
        let overlap =
            self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes;
        overlap && (self.exclusive || other.exclusive)
    }
}

#[derive(Clone, Copy, Debug)]
struct HeldLock {
    wanted: Wanted,
    front: usize,
    is_doubtful: bool,
}

/// The locks of all clients, of which each has one at a time.
#[derive(Debug, Default)]
pub struct Ledger {
    held: BTreeMap<usize, HeldLock>,
    answered: BTreeMap<usize, Picos>,
    /// Locks that were granted.
    pub granted: u64,
}

impl Ledger {
    /// A front answered a call that it had to ask the manager for.
    pub fn answers(&mut self, front: usize, now: Picos) {
        let before = self.answered.insert(front, now).unwrap_or(now);
        if before + SILENCE_MAX < now {
            let its = self.held.values_mut().filter(|held| held.front == front);
            its.for_each(|held| held.is_doubtful = true);
        }
    }

    /// A client was told by its front that it has a lock. The error names the violation.
    pub fn granted(
        &mut self,
        client: usize,
        front: usize,
        wanted: Wanted,
        now: Picos,
    ) -> Result<(), String> {
        self.answers(front, now);
        let silent = |of: usize| self.answered.get(&of).is_none_or(|at| *at + SILENCE_MAX < now);
        let is_sure = |held: &HeldLock| !held.is_doubtful && !silent(held.front);
        let others = self.held.iter().filter(|(other, held)| {
            **other != client && held.wanted.excludes(wanted) && is_sure(held)
        });
        if let Some((other, held)) = others.into_iter().next() {
            let held = held.wanted;
            return Err(format!(
                "client {client} is granted {wanted:?}: client {other} has {held:?}"
            ));
        }
        self.held.retain(|other, held| *other == client || !held.wanted.excludes(wanted));
        self.held.insert(client, HeldLock { wanted, front, is_doubtful: false });
        self.granted += 1;
        Ok(())
    }

    /// A client asks for the release of its lock, or has crashed, or was told that it has it no more.
    pub fn ends(&mut self, client: usize) {
        self.held.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Wanted = Wanted { offset: 0, bytes: 4, exclusive: true };

    #[test]
    fn locks_exclude_each_other_by_bytes_and_kind() {
        let part = |offset| Wanted { offset, bytes: 1, exclusive: false };
        let mut ledger = Ledger::default();
        ledger.granted(1, 0, part(1), Picos::ZERO).unwrap();
        ledger.granted(2, 1, part(1), Picos::ZERO).unwrap();
        assert!(ledger.granted(3, 0, ALL, Picos::ZERO).is_err());
        ledger.granted(3, 0, Wanted { offset: 2, ..ALL }, Picos::ZERO).unwrap();
        ledger.ends(3);
        ledger.ends(2);
        assert!(ledger.granted(3, 0, ALL, Picos::ZERO).is_err());
        ledger.ends(1);
        ledger.granted(3, 0, ALL, Picos::ZERO).unwrap();
        ledger.granted(3, 0, ALL, Picos::ZERO).unwrap();
    }

    #[test]
    fn locks_of_a_front_that_was_silent_give_way() {
        let mut ledger = Ledger::default();
        ledger.granted(1, 0, ALL, Picos::ZERO).unwrap();
        ledger.answers(0, Picos::seconds(20));
        assert!(ledger.granted(2, 1, ALL, Picos::seconds(40)).is_err());
        ledger.granted(2, 1, ALL, Picos::seconds(50)).unwrap();
        assert!(ledger.granted(1, 0, ALL, Picos::seconds(51)).is_err());
    }
}
