//! Holders of each page, with their incarnations: the directory of a guest's pages.

use crate::limits::GUEST_COPIES_MAX;
use arrayvec::ArrayVec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A holder, by its number among the guest's, in the incarnation in which it took the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its number.
    pub by: usize,
    /// As [`Standing`](super::Standing) counts.
    pub generation: u16,
}

/// Holders of one page.
pub type Replicas = ArrayVec<Replica, GUEST_COPIES_MAX>;

/// Bits of one holder: one more than its number, and its incarnation above.
const BITS: u32 = 24;

/// A page's entry. All bytes zero, as it begins, means that the page has no holder.
#[derive(Debug, Default)]
pub struct Entry {
    /// The holders. 0 is none.
    held: AtomicU64,
    /// When the page was stored, in milliseconds since the guest began.
    stored: AtomicU32,
}

/// All pages of a guest. One thread at a time has a page; who works in the background looks at all of them.
#[derive(Debug)]
pub struct Entries(Box<[Entry]>);

fn pack(held: &[Replica]) -> u64 {
    let one = |held: &Replica| held.by as u64 + 1 | u64::from(held.generation) << 8;
    held.iter().rev().fold(0, |word, held| word << BITS | one(held))
}

fn unpack(mut word: u64) -> Replicas {
    let mut held = Replicas::new();
    while word != 0 {
        held.push(Replica { by: (word as u8 - 1).into(), generation: (word >> 8) as u16 });
        word >>= BITS;
    }
    held
}

impl Entries {
    /// `pages` pages without holders.
    pub fn new(pages: usize) -> Entries {
        Entries::over((0..pages).map(|_| Entry::default()).collect())
    }

    /// Pages without holders, in memory that the caller has made.
    pub fn over(entries: Box<[Entry]>) -> Entries {
        Entries(entries)
    }

    /// Holders of the page.
    pub fn held(&self, page: u64) -> Replicas {
        unpack(self.0[page as usize].held.load(Ordering::Relaxed))
    }

    /// Its holders from now on.
    pub fn set(&self, page: u64, held: &[Replica]) {
        self.0[page as usize].held.store(pack(held), Ordering::Relaxed);
    }

    /// One that does not have it after all.
    pub fn remove(&self, page: u64, gone: Replica) {
        let mut held = self.held(page);
        held.retain(|held| *held != gone);
        self.set(page, &held);
    }

    /// When it was stored.
    pub fn set_stored(&self, page: u64, at_ms: u32) {
        self.0[page as usize].stored.store(at_ms, Ordering::Relaxed);
    }

    /// Pages whose holders are `weak`, of those that were stored.
    pub fn count(&self, weak: impl Fn(&Replicas) -> bool) -> usize {
        let words = self.0.iter().map(|place| place.held.load(Ordering::Relaxed));
        words.filter(|word| *word != 0 && weak(&unpack(*word))).count()
    }

    /// At most `most` pages whose holders are `weak`, those that were stored longest ago, in that order.
    pub fn oldest(&self, most: usize, weak: impl Fn(&Replicas) -> bool) -> Vec<u64> {
        let mut oldest = std::collections::BinaryHeap::with_capacity(most + 1);
        for (page, place) in self.0.iter().enumerate() {
            let word = place.held.load(Ordering::Relaxed);
            if word == 0 || !weak(&unpack(word)) {
                continue;
            }
            oldest.push((place.stored.load(Ordering::Relaxed), page as u64));
            if oldest.len() > most {
                oldest.pop();
            }
        }
        oldest.into_sorted_vec().into_iter().map(|(_, page)| page).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_what_was_put_in() {
        let (one, other) =
            (Replica { by: 0, generation: 1 }, Replica { by: 31, generation: u16::MAX });
        let entries = Entries::new(3);
        assert!(entries.held(2).is_empty());
        entries.set(2, &[one, other]);
        assert_eq!(&entries.held(2)[..], [one, other]);
        entries.remove(2, one);
        assert_eq!(&entries.held(2)[..], [other]);
        entries.remove(2, Replica { generation: 3, ..other });
        assert_eq!(&entries.held(2)[..], [other], "of another incarnation");
        assert!(entries.held(1).is_empty());
    }

    #[test]
    fn those_stored_longest_ago_come_first() {
        let entries = Entries::new(100);
        let held = |by| Replica { by, generation: 1 };
        for page in 0..100 {
            entries.set(page, &[held(page as usize % 3)]);
            entries.set_stored(page, 1000 - page as u32);
        }
        entries.set(99, &[]);
        let weak = |holders: &Replicas| holders[0].by == 0;
        assert_eq!(entries.oldest(3, weak), [96, 93, 90]);
        assert_eq!(entries.oldest(1000, weak).len(), 33);
    }
}
