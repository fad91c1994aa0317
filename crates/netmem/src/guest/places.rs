//! Which holders have a page, in which of their lives: the directory of a guest's pages.

use crate::limits::GUEST_COPIES_MAX;
use arrayvec::ArrayVec;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A holder, by its number among the guest's, in the life in which it took the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub by: usize,
    /// As [`Standing`](super::Standing) counts.
    pub life: u16,
}

/// Those of one page.
pub type HeldBy = ArrayVec<Held, GUEST_COPIES_MAX>;

/// Bits of one holder: one more than its number, and its life above.
const BITS: u32 = 24;

/// A page's. As it begins, with all bytes zero, nobody has the page.
#[derive(Debug, Default)]
pub struct Place {
    /// The holders. 0 is nobody.
    held: AtomicU64,
    /// When the page was stored, in milliseconds since the guest began.
    stored: AtomicU32,
}

/// All pages of a guest. One thread at a time has a page; who works in the background looks at all of them.
#[derive(Debug)]
pub struct Places(Box<[Place]>);

fn pack(held: &[Held]) -> u64 {
    let one = |held: &Held| held.by as u64 + 1 | u64::from(held.life) << 8;
    held.iter().rev().fold(0, |word, held| word << BITS | one(held))
}

fn unpack(mut word: u64) -> HeldBy {
    let mut held = HeldBy::new();
    while word != 0 {
        held.push(Held { by: (word as u8 - 1).into(), life: (word >> 8) as u16 });
        word >>= BITS;
    }
    held
}

impl Places {
    /// `pages` pages that nobody has.
    pub fn new(pages: usize) -> Places {
        Places::over((0..pages).map(|_| Place::default()).collect())
    }

    /// Pages that nobody has, in memory that the caller has made.
    pub fn over(places: Box<[Place]>) -> Places {
        Places(places)
    }

    /// Who has the page.
    pub fn held(&self, page: u64) -> HeldBy {
        unpack(self.0[page as usize].held.load(Ordering::Relaxed))
    }

    /// Who has it from now on.
    pub fn set(&self, page: u64, held: &[Held]) {
        self.0[page as usize].held.store(pack(held), Ordering::Relaxed);
    }

    /// One that does not have it after all.
    pub fn remove(&self, page: u64, gone: Held) {
        let mut held = self.held(page);
        held.retain(|held| *held != gone);
        self.set(page, &held);
    }

    /// When it was stored.
    pub fn set_stored(&self, page: u64, at_ms: u32) {
        self.0[page as usize].stored.store(at_ms, Ordering::Relaxed);
    }

    /// Pages whose holders are `weak`, of those that were stored.
    pub fn count(&self, weak: impl Fn(&HeldBy) -> bool) -> usize {
        let words = self.0.iter().map(|place| place.held.load(Ordering::Relaxed));
        words.filter(|word| *word != 0 && weak(&unpack(*word))).count()
    }

    /// At most `most` pages whose holders are `weak`, those that were stored longest ago, in that order.
    pub fn oldest(&self, most: usize, weak: impl Fn(&HeldBy) -> bool) -> Vec<u64> {
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
        let (one, other) = (Held { by: 0, life: 1 }, Held { by: 31, life: u16::MAX });
        let places = Places::new(3);
        assert!(places.held(2).is_empty());
        places.set(2, &[one, other]);
        assert_eq!(&places.held(2)[..], [one, other]);
        places.remove(2, one);
        assert_eq!(&places.held(2)[..], [other]);
        places.remove(2, Held { life: 3, ..other });
        assert_eq!(&places.held(2)[..], [other], "of another life");
        assert!(places.held(1).is_empty());
    }

    #[test]
    fn those_stored_longest_ago_come_first() {
        let places = Places::new(100);
        let held = |by| Held { by, life: 1 };
        for page in 0..100 {
            places.set(page, &[held(page as usize % 3)]);
            places.set_stored(page, 1000 - page as u32);
        }
        places.set(99, &[]);
        let weak = |holders: &HeldBy| holders[0].by == 0;
        assert_eq!(places.oldest(3, weak), [96, 93, 90]);
        assert_eq!(places.oldest(1000, weak).len(), 33);
    }
}
