//! Parts of directories that clients may have kept with the attributes in them, and whether these still hold.
//!
//! A part holds while nothing in it has changed: neither names nor attributes of the directory, nor any of the files
//! listed, nor who has them open. Each change of the manager is counted under its file, in a table of counters that
//! files share by a hash: a part whose counters have the sum that they had is unchanged; one that shares a counter with
//! a file that changed is listed once more than need be. A change that was not counted (of a site that moves, of the
//! store itself) makes all parts old.
//!
//! It knows neither names nor attributes: the clients have them.

use crate::directory::{Plus, Span};
use crate::limits::{LISTED_FILES_MAX, LISTING_COUNTERS};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use wire::FileId;

/// A part of a directory, as a client asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub file: FileId,
    pub span: Span,
    pub bytes: u32,
    pub plus: Plus,
}

/// What else a part depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Basis {
    /// The last change of the store.
    pub sequence: u64,
    /// Of the table of sites.
    pub sites: u64,
}

/// A part that was listed.
#[derive(Debug)]
struct Listed {
    part: Part,
    /// The directory, and the files in the part.
    files: Box<[FileId]>,
    sum: u64,
}

/// All that were listed lately.
#[derive(Debug)]
pub(crate) struct Listings {
    counters: Box<[u64]>,
    /// The last change that was counted.
    counted: Cell<Option<Basis>>,
    listed: RefCell<BTreeMap<u64, Listed>>,
    /// Files in all of them.
    files: Cell<usize>,
    last: Cell<u64>,
}

impl Default for Listings {
    fn default() -> Listings {
        Listings {
            counters: vec![0; LISTING_COUNTERS].into(),
            counted: Cell::default(),
            listed: RefCell::default(),
            files: Cell::default(),
            last: Cell::default(),
        }
    }
}

impl Listings {
    /// Something of the file changed, or who has it open.
    pub fn note(&mut self, file: FileId) {
        self.counters[counter(file)] += 1;
    }

    /// All changes of the store up to this one were noted, if all before `from` were.
    pub fn counted(&self, from: Basis, to: Basis) {
        self.check(from);
        self.counted.set(Some(to));
    }

    /// A part was listed now, and these files are in it. The number that it has from now on.
    pub fn add(&self, now: Basis, part: Part, files: impl Iterator<Item = FileId>) -> u64 {
        self.check(now);
        let files: Box<[FileId]> = std::iter::once(part.file).chain(files).collect();
        let sum = self.sum(&files);
        self.last.set(self.last.get() + 1);
        self.files.set(self.files.get() + files.len());
        let mut listed = self.listed.borrow_mut();
        listed.insert(self.last.get(), Listed { part, files, sum });
        while self.files.get() > LISTED_FILES_MAX
            && let Some((_, oldest)) = listed.pop_first()
        {
            self.files.set(self.files.get() - oldest.files.len());
        }
        self.last.get()
    }

    /// Whether the part of this number is what it was.
    pub fn holds(&self, now: Basis, number: u64, part: Part) -> bool {
        self.check(now);
        let mut all = self.listed.borrow_mut();
        let Some(listed) = all.get(&number).filter(|listed| listed.part == part) else {
            return false;
        };
        if listed.sum == self.sum(&listed.files) {
            return true;
        }
        self.files.set(self.files.get() - listed.files.len());
        all.remove(&number);
        false
    }

    /// Forgets all where a change was not noted.
    fn check(&self, now: Basis) {
        if self.counted.replace(Some(now)) != Some(now) {
            self.listed.borrow_mut().clear();
            self.files.set(0);
        }
    }

    /// Counters only grow: the sum is what it was when each of them is.
    fn sum(&self, files: &[FileId]) -> u64 {
        files.iter().map(|file| self.counters[counter(*file)]).sum()
    }
}

fn counter(file: FileId) -> usize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (file.0.wrapping_mul(GOLDEN) >> (u64::BITS - LISTING_COUNTERS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basis(sequence: u64) -> Basis {
        Basis { sequence, sites: 1 }
    }

    fn part(file: u64) -> Part {
        Part { file: FileId(file), span: 0.into(), bytes: 1000, plus: Plus::Attributes }
    }

    #[test]
    fn a_part_holds_until_something_in_it_changes() {
        let mut listings = Listings::default();
        let one = listings.add(basis(1), part(1), (10..20).map(FileId));
        let other = listings.add(basis(1), part(2), (30..40).map(FileId));
        listings.note(FileId(15));
        listings.counted(basis(1), basis(2));
        assert!(!listings.holds(basis(2), one, part(1)));
        assert!(listings.holds(basis(2), other, part(2)));
        assert!(!listings.holds(basis(2), other, part(1)), "another part");
        listings.note(FileId(2));
        listings.counted(basis(2), basis(3));
        assert!(!listings.holds(basis(3), other, part(2)), "the directory itself");
    }

    #[test]
    fn a_change_that_was_not_noted_makes_all_old() {
        for now in [basis(3), Basis { sites: 2, ..basis(2) }] {
            let mut listings = Listings::default();
            let one = listings.add(basis(1), part(1), (10..20).map(FileId));
            listings.note(FileId(99));
            listings.counted(basis(1), basis(2));
            assert!(listings.holds(basis(2), one, part(1)));
            assert!(!listings.holds(now, one, part(1)));
            listings.counted(now, now);
            assert!(!listings.holds(now, one, part(1)));
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_oldest_goes_first() {
        let listings = Listings::default();
        let files = || (0..1000).map(FileId);
        let count = LISTED_FILES_MAX as u64 / 1000 + 10;
        let numbers: Vec<u64> =
            (0..count).map(|n| listings.add(basis(1), part(n), files())).collect();
        assert!(listings.files.get() <= LISTED_FILES_MAX);
        assert!(!listings.holds(basis(1), numbers[0], part(0)));
        assert!(listings.holds(basis(1), numbers[count as usize - 1], part(count - 1)));
    }
}
