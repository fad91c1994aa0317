//! Duplicates of calls that come under other names: the duplicate-request cache of NFS (RFC 1813 section 4.5), over
//! restarts.
//!
//! A front ends, and with it all that it knew of its clients' calls; they retransmit to the next one, or through
//! another machine. The answer of a change that has a [`CallId`](wire::CallId) is a record of its site, in the same
//! batch as the change. The numbers of the records grow with time, also from manager to manager, and the oldest go
//! first.

use crate::record::DuplicateKey;
use std::collections::BTreeMap;
use wire::Wall;

/// Answers that one change makes room with: a manager that took sites over has more than it keeps for a while.
const AT_ONCE: usize = 8;

/// A record of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kept {
    pub number: u64,
    pub site: u8,
}

/// Where the answers of all sites of a manager are.
#[derive(Debug)]
pub(crate) struct Duplicates {
    by_key: BTreeMap<DuplicateKey, Kept>,
    by_age: BTreeMap<Kept, DuplicateKey>,
    max: usize,
}

impl Duplicates {
    /// At most `max` are kept.
    pub fn new(max: usize) -> Duplicates {
        assert!(max > 0);
        Duplicates { by_key: BTreeMap::new(), by_age: BTreeMap::new(), max }
    }

    pub fn get(&self, key: &DuplicateKey) -> Option<Kept> {
        self.by_key.get(key).copied()
    }

    /// The answer is kept there. Of two records of one call the later one counts.
    pub fn insert(&mut self, key: DuplicateKey, kept: Kept) {
        self.by_age.insert(kept, key);
        let latest = self.by_key.entry(key).or_insert(kept);
        *latest = kept.max(*latest);
        assert!(self.by_key.len() <= self.by_age.len(), "each call has a record");
    }

    /// Answers that make room for another.
    pub fn oldest(&self) -> Vec<Kept> {
        let beyond = (self.by_age.len() + 1).saturating_sub(self.max);
        self.by_age.keys().take(beyond.min(AT_ONCE)).copied().collect()
    }

    /// The records of the [oldest](Self::oldest) are gone.
    pub fn remove_oldest(&mut self) {
        for oldest in self.oldest() {
            let key = self.by_age.remove(&oldest).expect("it is among them");
            if self.by_key.get(&key) == Some(&oldest) {
                self.by_key.remove(&key);
            }
        }
    }

    /// The number of a record of now.
    pub fn next(&self, now: Wall) -> u64 {
        let micros = now.seconds.max(0) as u64 * 1_000_000 + u64::from(now.nanos) / 1000;
        let last = self.by_age.last_key_value().map_or(0, |(kept, _)| kept.number);
        micros.max(last + 1)
    }

    /// The site is another manager's.
    pub fn forget(&mut self, site: u8) {
        self.by_key.retain(|_, kept| kept.site != site);
        self.by_age.retain(|kept, _| kept.site != site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::CallId;

    const fn key(xid: u32) -> DuplicateKey {
        (CallId { client: 1, xid, procedure: 12, head: (5, 60) }, 26)
    }

    #[test]
    fn the_oldest_answers_go_first_whichever_site_they_are_of() {
        let mut duplicates = Duplicates::new(2);
        for (xid, site) in [(1, 9), (2, 3), (3, 5)] {
            duplicates.remove_oldest();
            let number = duplicates.next(Wall::default());
            duplicates.insert(key(xid), Kept { number, site });
        }
        assert_eq!(duplicates.get(&key(1)), None);
        assert_eq!(duplicates.get(&key(2)), Some(Kept { number: 2, site: 3 }));
        duplicates.forget(3);
        assert_eq!((duplicates.get(&key(2)), duplicates.oldest()), (None, vec![]));
        assert!(duplicates.get(&key(3)).is_some());
    }

    #[test]
    fn more_than_are_kept_come_with_a_site_and_go_a_few_at_a_time() {
        let mut duplicates = Duplicates::new(4);
        (1..=20).for_each(|n| duplicates.insert(key(n), Kept { number: n.into(), site: 7 }));
        for left in [12, 4, 3, 3] {
            duplicates.remove_oldest();
            assert_eq!(duplicates.by_age.len(), left);
            assert_eq!(duplicates.by_key.len(), left);
        }
    }

    #[test]
    fn of_two_records_of_a_call_the_later_one_counts_and_both_go() {
        let mut duplicates = Duplicates::new(2);
        duplicates.insert(key(1), Kept { number: 8, site: 2 });
        duplicates.insert(key(1), Kept { number: 5, site: 1 });
        assert_eq!(duplicates.get(&key(1)).map(|kept| kept.number), Some(8));
        assert_eq!(duplicates.oldest(), [Kept { number: 5, site: 1 }]);
        duplicates.remove_oldest();
        assert_eq!(duplicates.get(&key(1)).map(|kept| kept.number), Some(8));
    }
}
