//! A guest's state of one holder.

use crate::limits::{GUEST_AWAY_MAX, GUEST_FULL_SPAN};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use wire::{NodeId, Time};

/// One holder's. Only background work, and the first use, note which node the holder is.
#[derive(Debug, Default)]
pub struct Standing {
    /// Counts its incarnations as this process sees them; 0 before it was reached.
    generation: AtomicU16,
    node: AtomicU16,
    incarnation: AtomicU64,
    /// Time of the first missed answer, in nanoseconds; 0 when it answers.
    away: AtomicU64,
    /// End of the period in which it is taken to have no room.
    full: AtomicU64,
}

impl Standing {
    /// It has answered. Says whether it is another one, or in another incarnation, than was known: what it had is gone
    /// then.
    pub fn note(&self, node: NodeId, incarnation: u64) -> bool {
        let before = self.incarnation.swap(incarnation, Ordering::Relaxed);
        let same = self.node.swap(node.0, Ordering::Relaxed) == node.0 && before == incarnation;
        let first = self.generation() == 0;
        if !same || first {
            let next = self.generation().checked_add(1).unwrap_or(1);
            self.generation.store(next, Ordering::Release);
        }
        self.away.store(0, Ordering::Release);
        !same && !first
    }

    /// The incarnation that it is in, counted by this process.
    pub fn generation(&self) -> u16 {
        self.generation.load(Ordering::Acquire)
    }

    /// It does not answer.
    pub fn note_away(&self, now: Time) {
        let now = now.0.max(1);
        let _ = self.away.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether it did not answer when it was asked last.
    pub fn is_away(&self) -> bool {
        self.away.load(Ordering::Relaxed) != 0
    }

    /// Whether it has been away for so long that it counts as gone.
    pub fn is_given_up(&self, now: Time) -> bool {
        let since = self.away.load(Ordering::Relaxed);
        since != 0 && now.since(Time(since)) >= GUEST_AWAY_MAX
    }

    /// It had no room.
    pub fn note_full(&self, now: Time) {
        self.full.store((now + GUEST_FULL_SPAN).0, Ordering::Relaxed);
    }

    /// Whether it had none a moment ago.
    pub fn is_full(&self, now: Time) -> bool {
        now.0 < self.full.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_life_is_told_from_the_same_one() {
        let standing = Standing::default();
        assert!(!standing.note(NodeId(2), 7), "nothing was there before");
        assert_eq!(standing.generation(), 1);
        standing.note_away(Time(9));
        assert!(standing.is_away());
        assert!(!standing.note(NodeId(2), 7));
        assert_eq!((standing.generation(), standing.is_away()), (1, false));
        assert!(standing.note(NodeId(2), 8));
        assert!(standing.note(NodeId(3), 8), "another node at that address");
        assert_eq!(standing.generation(), 3);
    }

    #[test]
    fn a_moment_is_no_end() {
        let standing = Standing::default();
        standing.note_away(Time(9));
        assert!(!standing.is_given_up(Time(9)));
        assert!(standing.is_given_up(Time(9) + GUEST_AWAY_MAX));
    }
}
