//! Files that changed since their objects were described.

use crate::keys::{self, Table};
use crate::limits::{DESCRIBED_DIRECTORIES_MAX, DESCRIBED_FILES_MAX};
use crate::record::Named;
use crate::transaction::Transaction;
use std::collections::{BTreeMap, BTreeSet};
use wire::{FileId, FileKind};

/// A directory, and a name in it.
pub(crate) type Spot = (FileId, Box<[u8]>);

/// A file that changed, with a name of it where one is known.
pub(crate) type Known = (FileId, Option<Spot>);

/// Files that changed and are still to be described.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    files: BTreeMap<FileId, Option<Spot>>,
    /// Directories that have another path, and with them what is in them.
    trees: BTreeSet<FileId>,
    /// Names of directories, as far as they were seen.
    directories: BTreeMap<FileId, Spot>,
    /// More changed than is kept.
    overflowed: bool,
    /// The last that was handed out: all of them have their turn.
    last: FileId,
}

impl Changed {
    /// Takes the changes of a batch.
    pub fn note_all(&mut self, writes: &BTreeMap<Vec<u8>, Option<Vec<u8>>>) {
        for (key, value) in writes {
            let table = key.get(1).copied().unwrap_or_default();
            if table == Table::Inode as u8 {
                let Some(file) = keys::file_of(key) else { continue };
                match value {
                    Some(_) => self.note(file, None),
                    None => drop(self.files.remove(&file)),
                }
            } else if table == Table::Name as u8 {
                let named = value.as_deref().map(Transaction::decoded::<Named>);
                if let (Some(Ok(named)), Some(spot)) = (named, spot_of(key)) {
                    self.note_named(&named, spot);
                }
            }
        }
    }

    fn note_named(&mut self, named: &Named, spot: Spot) {
        match named.kind {
            FileKind::Regular => self.note(named.file, Some(spot)),
            FileKind::Directory => {
                self.learn(named.file, spot);
                self.trees.insert(named.file);
                if self.trees.len() > DESCRIBED_DIRECTORIES_MAX {
                    self.trees.clear();
                    self.overflowed = true;
                }
            }
            _ => {}
        }
    }

    /// The file is to be described.
    pub fn note(&mut self, file: FileId, spot: Option<Spot>) {
        let full = self.files.len() >= DESCRIBED_FILES_MAX;
        match self.files.get_mut(&file) {
            Some(known) => *known = spot.or(known.take()),
            None if full => self.overflowed = true,
            None => drop(self.files.insert(file, spot)),
        }
    }

    /// The file is to be described once more, by this name where no change has told one meanwhile, which is later.
    pub fn note_again(&mut self, file: FileId, spot: Option<Spot>) {
        let later = self.files.get(&file).cloned().flatten();
        self.note(file, later.or(spot));
    }

    /// These files are described by another manager from now on.
    pub fn forget(&mut self, gone: impl Fn(&FileId) -> bool) {
        self.files.retain(|file, _| !gone(file));
        self.trees.retain(|directory| !gone(directory));
    }

    /// The directory has this name.
    pub fn learn(&mut self, directory: FileId, spot: Spot) {
        if self.directories.len() >= DESCRIBED_DIRECTORIES_MAX {
            self.directories.clear();
        }
        self.directories.insert(directory, spot);
    }

    /// The name of a directory, if one was seen.
    pub fn directory(&self, directory: FileId) -> Option<&Spot> {
        self.directories.get(&directory)
    }

    /// Whether there is room for what a walk finds.
    pub fn has_room(&self) -> bool {
        self.files.len() < DESCRIBED_FILES_MAX / 2
    }

    /// The next files to be described, at most `count`.
    pub fn next(&mut self, count: usize) -> Vec<Known> {
        let count = count.min(self.files.len());
        let mut found = Vec::with_capacity(count);
        while found.len() < count {
            let behind = FileId(self.last.0.saturating_add(1));
            let next = self.files.range(behind..).next().or_else(|| self.files.iter().next());
            let Some((file, _)) = next else { break };
            self.last = *file;
            found.extend(self.files.remove_entry(&self.last));
        }
        found
    }

    /// All files that are to be described.
    pub fn all(&self) -> Vec<Known> {
        self.files.iter().map(|(file, spot)| (*file, spot.clone())).collect()
    }

    /// Directories whose files have another path since they were taken.
    pub fn trees(&self) -> &BTreeSet<FileId> {
        &self.trees
    }

    /// Directories whose files have another path since this was asked last.
    pub fn take_trees(&mut self) -> BTreeSet<FileId> {
        std::mem::take(&mut self.trees)
    }

    /// Whether some changes were not kept since this was asked last.
    pub fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }
}

/// The place of the entry with this key.
pub(crate) fn spot_of(key: &[u8]) -> Option<Spot> {
    Some((keys::file_of(key)?, key.get(keys::ABOUT_BYTES..)?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(name: &str) -> Option<Spot> {
        Some((FileId::ROOT, name.as_bytes().into()))
    }

    #[test]
    fn every_file_has_its_turn_and_a_name_stays_known() {
        let mut changed = Changed::default();
        changed.note(FileId(5), spot("five"));
        changed.note(FileId(5), None);
        (6..9).for_each(|file| changed.note(FileId(file), None));
        assert_eq!(changed.next(2), [(FileId(5), spot("five")), (FileId(6), None)]);
        changed.note(FileId(5), spot("other"));
        let files: Vec<u64> = changed.next(9).into_iter().map(|(file, _)| file.0).collect();
        assert_eq!(files, [7, 8, 5]);
        assert!(changed.next(1).is_empty() && !changed.take_overflow());
    }

    #[test]
    fn a_file_that_is_described_once_more_has_the_name_of_its_last_change() {
        let mut changed = Changed::default();
        changed.note_again(FileId(5), spot("old"));
        changed.note(FileId(5), spot("new"));
        changed.note_again(FileId(5), spot("old"));
        assert_eq!(changed.next(1), [(FileId(5), spot("new"))]);
    }

    #[test]
    fn what_is_too_much_is_an_overflow_and_not_kept() {
        let mut changed = Changed::default();
        (0..DESCRIBED_FILES_MAX as u64 + 9).for_each(|file| changed.note(FileId(file), None));
        assert_eq!(changed.files.len(), DESCRIBED_FILES_MAX);
        assert!(changed.take_overflow() && !changed.take_overflow());
    }
}
