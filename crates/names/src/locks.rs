//! Locks of the whole cluster: on bytes (fcntl) and on whole files (flock), in memory.
//!
//! They are owned by a client and, within it, by an owner of its choice. There is no waiting here: clients retry. Locks
//! on bytes and on whole files do not see each other, as on Linux.

use crate::limits::LOCKS_MAX;
use node::rings::{Lock, LockKind};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Errno, FileId};

/// The manager gives no locks yet, since clients of its last incarnation may still say what they hold: ask again.
pub(crate) const IN_GRACE: Errno = Errno::EBUSY;

/// Owner of a lock, or of a request for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockOwner {
    /// The client's incarnation.
    pub client: u64,
    /// Within the client.
    pub owner: u64,
}

/// Target of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockTarget {
    /// The file.
    pub file: FileId,
    /// flock's space, not fcntl's.
    pub whole_file: bool,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    /// It is held, or released.
    Done,
    /// It conflicts with this one.
    Conflict(Lock),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OwnedLock {
    owner: LockOwner,
    lock: Lock,
}

/// The locks on one target.
#[derive(Debug, Default)]
struct Holders {
    held: Vec<OwnedLock>,
}

/// All locks of a volume.
#[derive(Debug, Default)]
pub struct Locks {
    targets: BTreeMap<LockTarget, Holders>,
}

fn conflict(a: &OwnedLock, b: &OwnedLock) -> bool {
    let exclusive = a.lock.kind == LockKind::Write || b.lock.kind == LockKind::Write;
    let overlap = a.lock.start <= b.lock.end && b.lock.start <= a.lock.end;
    a.owner != b.owner && exclusive && overlap
}

/// Whether one begins where the other ends.
fn touches(a: &Lock, b: &Lock) -> bool {
    a.end.checked_add(1) == Some(b.start) || b.end.checked_add(1) == Some(a.start)
}

impl Holders {
    fn conflicting(&self, wanted: &OwnedLock) -> Option<Lock> {
        self.held.iter().find(|held| conflict(held, wanted)).map(|held| held.lock)
    }

    /// The owner has this on these bytes from now on, whatever it had there before.
    fn set(&mut self, wanted: OwnedLock) {
        let (start, end) = (wanted.lock.start, wanted.lock.end);
        let mut pieces = Vec::new();
        self.held.retain(|held| {
            let apart = held.lock.start > end || held.lock.end < start;
            if held.owner != wanted.owner || apart {
                return true;
            }
            if held.lock.start < start {
                pieces.push(OwnedLock { lock: Lock { end: start - 1, ..held.lock }, ..*held });
            }
            if held.lock.end > end {
                pieces.push(OwnedLock { lock: Lock { start: end + 1, ..held.lock }, ..*held });
            }
            false
        });
        self.held.append(&mut pieces);
        if wanted.lock.kind != LockKind::Unlock {
            self.insert(wanted);
        }
    }

    /// Joins the lock with adjacent ones of the same kind.
    fn insert(&mut self, mut wanted: OwnedLock) {
        self.held.retain(|held| {
            let (mine, other) = (&mut wanted.lock, held.lock);
            let same = held.owner == wanted.owner && other.kind == mine.kind;
            let joins = same && touches(mine, &other);
            if joins {
                (mine.start, mine.end) = (mine.start.min(other.start), mine.end.max(other.end));
            }
            !joins
        });
        self.held.push(wanted);
    }

    /// Number of locks once the owner has this on these bytes: the rests of its others on both sides count, unless they
    /// join.
    fn held_with(&self, wanted: &OwnedLock) -> usize {
        let OwnedLock { owner, lock } = wanted;
        let (mut gone, mut left) = (0, usize::from(lock.kind != LockKind::Unlock));
        for OwnedLock { lock: other, .. } in self.held.iter().filter(|held| held.owner == *owner) {
            let joins = other.kind == lock.kind;
            let overlaps = other.start <= lock.end && lock.start <= other.end;
            gone += usize::from(overlaps || joins && touches(other, lock));
            if overlaps && !joins {
                left += usize::from(other.start < lock.start) + usize::from(other.end > lock.end);
            }
        }
        self.held.len() + left - gone
    }

    /// Whether there is room for that. A change that needs no more locks than there are always finds it.
    fn has_room(&self, wanted: &OwnedLock) -> bool {
        let held = self.held_with(wanted);
        held <= self.held.len() || held <= LOCKS_MAX
    }
}

impl Locks {
    /// The lock that keeps `owner` from getting `lock`.
    pub fn test(&self, target: LockTarget, owner: LockOwner, lock: Lock) -> Option<Lock> {
        self.targets.get(&target)?.conflicting(&OwnedLock { owner, lock })
    }

    /// Takes or releases a lock. ENOLCK when there would be too many locks on the file, as a release in the middle of
    /// one makes two of it, EINVAL for a range that runs backwards.
    pub fn set(
        &mut self,
        target: LockTarget,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<LockOutcome, Errno> {
        if lock.start > lock.end {
            return Err(Errno::EINVAL);
        }
        let wanted = OwnedLock { owner, lock };
        let holders = self.targets.entry(target).or_default();
        if !holders.has_room(&wanted) {
            return Err(Errno::ENOLCK);
        }
        let conflict = holders.conflicting(&wanted).filter(|_| lock.kind != LockKind::Unlock);
        if let Some(held) = conflict {
            return Ok(LockOutcome::Conflict(held));
        }
        holders.set(wanted);
        if holders.held.is_empty() {
            self.targets.remove(&target);
        }
        Ok(LockOutcome::Done)
    }

    /// As [`set`](Locks::set), for the next incarnation of a client whose owners have the same numbers in each: what an
    /// owner had with another client is this one's, in one step, so that no other has it in between.
    pub fn take_over(
        &mut self,
        target: LockTarget,
        owner: LockOwner,
        lock: Lock,
    ) -> Result<LockOutcome, Errno> {
        let holders = self.targets.entry(target).or_default();
        let is_former = |by: &LockOwner| by.owner == owner.owner && by.client != owner.client;
        let wanted = OwnedLock { owner, lock };
        let mut others = holders.held.iter().filter(|held| !is_former(&held.owner));
        if let Some(held) = others.find(|held| conflict(held, &wanted)) {
            return Ok(LockOutcome::Conflict(held.lock));
        }
        let former: BTreeSet<LockOwner> =
            holders.held.iter().map(|held| held.owner).filter(is_former).collect();
        let released = Lock { kind: LockKind::Unlock, ..lock };
        for owner in former {
            holders.set(OwnedLock { owner, lock: released });
        }
        self.set(target, owner, lock)
    }

    /// A client is dead: it holds nothing any more.
    pub fn release_client(&mut self, client: u64) {
        self.targets.retain(|_, holders| {
            holders.held.retain(|held| held.owner.client != client);
            !holders.held.is_empty()
        });
    }

    /// Drops all locks on these files: their manager is another one.
    pub(crate) fn release_files(&mut self, gone: impl Fn(&FileId) -> bool) {
        self.targets.retain(|target, _| !gone(&target.file));
    }

    /// Every lock that is held.
    pub fn held(&self) -> impl Iterator<Item = (LockTarget, LockOwner, Lock)> + '_ {
        self.targets.iter().flat_map(|(target, holders)| {
            holders.held.iter().map(|held| (*target, held.owner, held.lock))
        })
    }

    /// The owner's locks on these bytes, piece by piece, gaps among them.
    pub(crate) fn pieces(
        &self,
        target: LockTarget,
        owner: LockOwner,
        start: u64,
        end: u64,
    ) -> Vec<Lock> {
        let held = self.targets.get(&target).into_iter().flat_map(|holders| &holders.held);
        let touched = |held: &&OwnedLock| held.lock.start <= end && start <= held.lock.end;
        let mut own: Vec<Lock> =
            held.filter(|held| held.owner == owner).filter(touched).map(|held| held.lock).collect();
        own.sort_by_key(|lock| lock.start);
        let gap = |start, end| Lock { start, end, kind: LockKind::Unlock, pid: 0 };
        let (mut pieces, mut next) = (Vec::new(), Some(start));
        for lock in own {
            let lock = Lock { start: lock.start.max(start), end: lock.end.min(end), ..lock };
            if let Some(free) = next.filter(|next| *next < lock.start) {
                pieces.push(gap(free, lock.start - 1));
            }
            next = lock.end.checked_add(1);
            pieces.push(lock);
        }
        pieces.extend(next.filter(|next| *next <= end).map(|next| gap(next, end)));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: LockTarget = LockTarget { file: FileId(1), whole_file: false };
    const WHOLE: LockTarget = LockTarget { file: FileId(1), whole_file: true };

    fn owner(owner: u64) -> LockOwner {
        LockOwner { client: owner / 10, owner }
    }

    fn lock(kind: LockKind, start: u64, end: u64) -> Lock {
        Lock { start, end, kind, pid: 0 }
    }

    #[test]
    fn bytes_and_whole_files_do_not_see_each_other_and_death_releases_both() {
        let mut locks = Locks::default();
        let all = |kind| lock(kind, 0, u64::MAX);
        assert_eq!(locks.set(BYTES, owner(10), all(LockKind::Write)), Ok(LockOutcome::Done));
        assert_eq!(locks.set(WHOLE, owner(20), all(LockKind::Read)), Ok(LockOutcome::Done));
        assert_eq!(locks.set(WHOLE, owner(10), all(LockKind::Read)), Ok(LockOutcome::Done));
        let held = LockOutcome::Conflict(all(LockKind::Read));
        assert_eq!(locks.set(WHOLE, owner(10), all(LockKind::Write)), Ok(held));
        locks.release_client(2);
        assert_eq!(locks.set(WHOLE, owner(10), all(LockKind::Write)), Ok(LockOutcome::Done));
        locks.release_client(1);
        assert!(locks.targets.is_empty());
    }

    #[test]
    fn the_next_incarnation_of_an_owner_takes_over_and_nobody_else_does() {
        let (mut locks, part) = (Locks::default(), lock(LockKind::Write, 0, 9));
        let of = |client, owner| LockOwner { client, owner };
        locks.set(BYTES, of(1, 7), lock(LockKind::Write, 0, 19)).unwrap();
        let held = Ok(LockOutcome::Conflict(lock(LockKind::Write, 0, 19)));
        assert_eq!(locks.take_over(BYTES, of(2, 8), part), held, "another owner");
        assert_eq!(locks.set(BYTES, of(2, 7), part), held, "it does not take over");
        assert_eq!(locks.take_over(BYTES, of(2, 7), part), Ok(LockOutcome::Done));
        assert_eq!(locks.test(BYTES, of(1, 7), part), Some(part), "it is the new one's");
        locks.release_client(1);
        assert_eq!(
            locks.set(BYTES, of(3, 1), lock(LockKind::Write, 10, 19)),
            Ok(LockOutcome::Done)
        );
        assert_eq!(locks.set(BYTES, of(3, 1), part), Ok(LockOutcome::Conflict(part)));
    }

    #[test]
    fn a_release_in_the_middle_of_a_lock_needs_room() {
        let mut locks = Locks::default();
        locks.set(BYTES, owner(1), lock(LockKind::Write, 0, 9)).unwrap();
        let other = |at| OwnedLock { owner: owner(2), lock: lock(LockKind::Write, 2 * at, 2 * at) };
        let holders = locks.targets.get_mut(&BYTES).unwrap();
        holders.held.extend((5..LOCKS_MAX as u64 + 4).map(other));
        let mut set = |who, kind, at| locks.set(BYTES, owner(who), lock(kind, at, at));
        assert_eq!(set(1, LockKind::Unlock, 5), Err(Errno::ENOLCK));
        assert_eq!(set(1, LockKind::Read, 5), Err(Errno::ENOLCK));
        assert_eq!(set(3, LockKind::Write, 11), Err(Errno::ENOLCK));
        assert_eq!(set(1, LockKind::Unlock, 9), Ok(LockOutcome::Done), "its end");
        assert_eq!(set(2, LockKind::Read, 10), Ok(LockOutcome::Done), "another kind");
        assert_eq!(set(2, LockKind::Unlock, 10), Ok(LockOutcome::Done));
        assert_eq!(set(1, LockKind::Unlock, 5), Ok(LockOutcome::Done));
        assert_eq!(locks.targets[&BYTES].held.len(), LOCKS_MAX);
    }

    proptest! {
        /// Against a model with one cell for each byte.
        #[test]
        fn ranges_are_bytes(steps in prop::collection::vec((0u64..3, 0u64..12, 0u64..6, 0u8..3), 1..60)) {
            let mut locks = Locks::default();
            let mut cells = [[LockKind::Unlock; 3]; 20];
            for (who, start, more, kind) in steps {
                let kind = [LockKind::Read, LockKind::Write, LockKind::Unlock][kind as usize];
                let (end, me) = (start + more, who as usize);
                let free = kind == LockKind::Unlock || (start..=end).all(|at| {
                    (0..3).filter(|other| *other != me).all(|other| match cells[at as usize][other] {
                        LockKind::Unlock => true,
                        LockKind::Read => kind == LockKind::Read,
                        LockKind::Write => false,
                    })
                });
                let wanted = OwnedLock { owner: owner(who), lock: lock(kind, start, end) };
                let expected = locks.targets.entry(BYTES).or_default().held_with(&wanted);
                let outcome = locks.set(BYTES, wanted.owner, wanted.lock).unwrap();
                prop_assert_eq!(outcome == LockOutcome::Done, free);
                if free {
                    let held = locks.targets.get(&BYTES).map_or(0, |holders| holders.held.len());
                    prop_assert_eq!(held, expected);
                    (start..=end).for_each(|at| cells[at as usize][me] = kind);
                }
            }
            for at in 0..20 {
                let probe = lock(LockKind::Write, at, at);
                let held = locks.test(BYTES, owner(99), probe).is_some();
                prop_assert_eq!(held, cells[at as usize].iter().any(|kind| *kind != LockKind::Unlock));
            }
            for me in 0..3 {
                let pieces = locks.pieces(BYTES, owner(me), 3, 15);
                let bytes = pieces.iter().flat_map(|lock| (lock.start..=lock.end).map(|at| (at, lock.kind)));
                prop_assert!(bytes.eq((3..=15).map(|at| (at, cells[at as usize][me as usize]))));
            }
        }
    }
}
