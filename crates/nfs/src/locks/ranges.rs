//! Locks of one owner on one file.

use node::rings::{Lock, LockKind};

/// Locks that do not overlap, in order; adjacent ones of the same kind are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Lock>);

/// All bytes of a file.
pub(super) fn whole(kind: LockKind, pid: u32) -> Lock {
    Lock { start: 0, end: u64::MAX, kind, pid }
}

fn touches(a: &Lock, b: &Lock) -> bool {
    a.kind == b.kind && a.end.checked_add(1) == Some(b.start)
}

impl Ranges {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Lock> {
        self.0.iter()
    }

    /// These bytes are held as `lock` says from now on, or are not.
    pub fn set(&mut self, lock: Lock) {
        let mut all = Vec::with_capacity(self.0.len() + 2);
        for held in &self.0 {
            if held.start < lock.start {
                all.push(Lock { end: held.end.min(lock.start - 1), ..*held });
            }
            if held.end > lock.end {
                all.push(Lock { start: held.start.max(lock.end + 1), ..*held });
            }
        }
        if lock.kind != LockKind::Unlock {
            all.push(lock);
        }
        all.sort_by_key(|lock| lock.start);
        all.dedup_by(|next, before| {
            let joins = touches(before, next);
            before.end = if joins { next.end } else { before.end };
            joins
        });
        self.0 = all;
    }

    /// Without what `lock` was given: of its bytes what was held `before` is left, and never more than is held now.
    pub fn without(&self, lock: &Lock, before: &Ranges) -> Ranges {
        let mut left = self.clone();
        left.set(Lock { kind: LockKind::Unlock, ..*lock });
        for (now, then) in
            self.0.iter().flat_map(|now| before.0.iter().map(move |then| (now, then)))
        {
            let start = now.start.max(then.start).max(lock.start);
            let end = now.end.min(then.end).min(lock.end);
            let both = now.kind == LockKind::Write && then.kind == LockKind::Write;
            let kind = if both { LockKind::Write } else { LockKind::Read };
            if start <= end {
                left.set(Lock { start, end, kind, pid: now.pid });
            }
        }
        left
    }

    /// Whether all of these bytes are held, at least as `lock` says.
    pub fn cover(&self, lock: &Lock) -> bool {
        let is_enough = |held: &Lock| held.kind == LockKind::Write || lock.kind == LockKind::Read;
        let mut next = Some(lock.start);
        for held in self.0.iter().filter(|held| is_enough(held)) {
            if next.is_some_and(|next| held.start <= next && next <= held.end) {
                next = held.end.checked_add(1);
            }
        }
        next.is_none_or(|next| next > lock.end)
    }

    /// All bytes of a file, piece by piece: what is held of them, and the gaps as releases.
    pub fn pieces(&self) -> Vec<Lock> {
        let (mut pieces, mut next) = (Vec::with_capacity(2 * self.0.len() + 1), Some(0));
        let gap = |start, end| Lock { start, end, kind: LockKind::Unlock, pid: 0 };
        for held in &self.0 {
            pieces.extend(next.filter(|next| *next < held.start).map(|at| gap(at, held.start - 1)));
            pieces.push(*held);
            next = held.end.checked_add(1);
        }
        pieces.extend(next.map(|at| gap(at, u64::MAX)));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lock(kind: u8, start: u64, end: u64) -> Lock {
        let kind = [LockKind::Read, LockKind::Write, LockKind::Unlock][usize::from(kind % 3)];
        Lock { start, end, kind, pid: 0 }
    }

    #[test]
    fn the_last_byte_of_all_is_one_too() {
        let mut ranges = Ranges::default();
        ranges.set(whole(LockKind::Write, 7));
        assert!(ranges.cover(&lock(1, u64::MAX, u64::MAX)));
        ranges.set(lock(2, 5, u64::MAX));
        assert_eq!(ranges.pieces().len(), 2);
        assert!(!ranges.cover(&lock(0, 4, 5)) && ranges.cover(&lock(0, 0, 4)));
        ranges.set(whole(LockKind::Unlock, 0));
        assert!(ranges.is_empty());
        assert_eq!(ranges.pieces(), [whole(LockKind::Unlock, 0)]);
    }

    proptest! {
        /// Beside one kind for each of 24 bytes.
        #[test]
        fn ranges_agree_with_single_bytes(steps in prop::collection::vec((0u8..3, 0u64..20, 0u64..5), 0..40)) {
            let (mut ranges, mut bytes) = (Ranges::default(), [LockKind::Unlock; 24]);
            for (kind, start, more) in steps {
                let lock = lock(kind, start, start + more);
                ranges.set(lock);
                bytes[start as usize..=(start + more) as usize].fill(lock.kind);
                let mut told = [LockKind::Unlock; 24];
                for held in ranges.iter() {
                    told[held.start as usize..=held.end as usize].fill(held.kind);
                }
                prop_assert_eq!(told, bytes);
                let runs = bytes.chunk_by(|a, b| a == b).filter(|run| run[0] != LockKind::Unlock);
                prop_assert_eq!(ranges.len(), runs.count());
                for held in ranges.iter() {
                    prop_assert!(ranges.cover(held));
                }
                let pieces = ranges.pieces();
                prop_assert!(pieces.windows(2).all(|two| two[0].end + 1 == two[1].start));
                prop_assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (0, u64::MAX));
            }
        }
    }
}
