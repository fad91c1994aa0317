//! The names of one listing, while its parts come.
//!
//! Invariant: as many names as a directory may have are kept, and one part and [`NAMES_AGAIN_MAX`] more.

use crate::limits::NAMES_AGAIN_MAX;
use nfs::v3::Fattr;
use std::collections::BTreeSet;

/// One name of a part.
pub(crate) struct Entry {
    pub name: Vec<u8>,
    /// Its handle and attributes, where the origin told both.
    pub known: Option<(Vec<u8>, Fattr)>,
    /// The position behind it.
    pub cookie: u64,
}

/// Why there is no listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unlistable {
    #[error("a directory has more than {0} names and cannot be shown")]
    TooMany(usize),
    #[error("a listing of a directory goes round in circles")]
    Circle,
}

/// Entries of the parts so far, some of which may be there twice.
pub(super) struct Gathering {
    all: Vec<Entry>,
    /// How many different ones there were when that was looked at last.
    different: usize,
    names_max: usize,
}

impl Gathering {
    /// Of a directory with so many names at most.
    pub fn new(names_max: usize) -> Gathering {
        Gathering { all: Vec::new(), different: 0, names_max }
    }

    /// Adds those of the next part.
    pub fn add(&mut self, part: Vec<Entry>) -> Result<(), Unlistable> {
        self.all.extend(part);
        if self.all.len() <= (2 * self.different).min(self.names_max) + NAMES_AGAIN_MAX {
            return Ok(());
        }
        self.compare()?;
        if self.all.len() <= self.different {
            return Err(Unlistable::Circle);
        }
        self.different = self.all.len();
        Ok(())
    }

    /// All of them, each name once.
    pub fn end(mut self) -> Result<Vec<Entry>, Unlistable> {
        self.compare()?;
        Ok(self.all)
    }

    fn compare(&mut self) -> Result<(), Unlistable> {
        keep_last(&mut self.all);
        let is_fit = self.all.len() <= self.names_max;
        is_fit.then_some(()).ok_or(Unlistable::TooMany(self.names_max))
    }
}

/// Of a name that is listed twice, as one that was removed and made meanwhile, the later one holds.
fn keep_last(entries: &mut Vec<Entry>) {
    let mut seen = BTreeSet::new();
    let is_last: Vec<bool> = entries.iter().rev().map(|entry| seen.insert(&*entry.name)).collect();
    let mut is_last = is_last.into_iter().rev();
    entries.retain(|_| is_last.next().expect("one for each"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 300;

    fn entry(name: &str, cookie: u64) -> Entry {
        Entry { name: name.into(), known: None, cookie }
    }

    fn part(names: impl Iterator<Item = usize>) -> Vec<Entry> {
        names.map(|number| entry(&number.to_string(), number as u64)).collect()
    }

    #[test]
    fn of_names_that_are_listed_twice_the_later_ones_are_kept_in_their_order() {
        let listed = [("b", 1), ("a", 2), ("c", 3), ("a", 4), ("b", 5)];
        let mut entries = listed.map(|(name, cookie)| entry(name, cookie)).into();
        keep_last(&mut entries);
        let cookies: Vec<u64> = entries.iter().map(|entry| entry.cookie).collect();
        assert_eq!(cookies, [3, 4, 5]);
    }

    /// Parts of different names without end.
    #[test]
    fn with_too_many_names_no_more_are_kept_than_are_allowed() {
        const NAMES_MAX: usize = 10 * PART;
        let (mut all, mut most) = (Gathering::new(NAMES_MAX), 0);
        let end = (0..).step_by(PART).find_map(|first| {
            let added = all.add(part(first..first + PART));
            most = most.max(all.all.len());
            added.err()
        });
        assert_eq!(end, Some(Unlistable::TooMany(NAMES_MAX)));
        assert!((NAMES_MAX..=NAMES_MAX + NAMES_AGAIN_MAX + PART).contains(&most), "{most} names");
        assert_eq!(Gathering::new(2).end().map(|all| all.len()), Ok(0));
        let mut three = Gathering::new(2);
        three.add(part(0..3)).expect("the end decides");
        assert_eq!(three.end().map(drop), Err(Unlistable::TooMany(2)));
    }

    /// Names that come again because the directory changes are counted once.
    #[test]
    fn as_many_names_as_are_allowed_may_come_twice() {
        const NAMES: usize = 10 * PART;
        let mut all = Gathering::new(NAMES);
        for first in (0..NAMES).step_by(PART) {
            all.add(part(first..first + PART)).expect("new names");
            all.add(part(first..first + PART / 2)).expect("names that came again");
        }
        assert_eq!(all.end().map(|all| all.len()), Ok(NAMES));
    }

    #[test]
    fn names_that_come_again_and_again_are_a_circle() {
        let mut all = Gathering::new(1 << 20);
        let end = (0..100).find_map(|_| all.add(part(0..PART)).err());
        assert_eq!(end, Some(Unlistable::Circle));
    }
}
