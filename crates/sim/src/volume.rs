//! A disk's files by name, with the same two states: names now, and names that a power cut leaves.
//!
//! Changes of names are journalled in order: a power cut keeps a prefix of those not yet stable, and any sync of a
//! file of the disk makes all earlier ones stable. A durable write promises data and length, not the name of a file
//! that it created.

use crate::random::Random;
use crate::storage::{Crash, LossyFile, PowerCut};
use node::rings::DiskFile;
use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Clone, Copy, Debug)]
enum NameChange {
    Create(DiskFile, u64),
    Remove(DiskFile),
    Rename(DiskFile, DiskFile),
}

/// One file: its bytes and when they were last changed, in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct Inode {
    /// The bytes.
    pub bytes: LossyFile,
    /// When they changed.
    pub changed: i64,
}

/// All files of a disk.
#[derive(Clone, Debug, Default)]
pub struct Volume {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<DiskFile, u64>,
    stable_names: BTreeMap<DiskFile, u64>,
    journal: Vec<NameChange>,
    next_inode: u64,
    changes: u64,
}

fn apply(names: &mut BTreeMap<DiskFile, u64>, change: NameChange) {
    match change {
        NameChange::Create(file, inode) => {
            names.insert(file, inode);
        }
        NameChange::Remove(file) => {
            names.remove(&file);
        }
        NameChange::Rename(from, to) => {
            if let Some(inode) = names.remove(&from) {
                names.insert(to, inode);
            }
        }
    }
}

impl Volume {
    /// The file of this name.
    pub fn get(&self, file: DiskFile) -> Option<&Inode> {
        self.inodes.get(self.names.get(&file)?)
    }

    /// The names that are not smaller than `from`, in order.
    pub fn names_from(&self, from: DiskFile) -> impl Iterator<Item = DiskFile> + '_ {
        self.names.range(from..).map(|(name, _)| *name)
    }

    /// Pages of storage of all files.
    pub fn pages(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[inode].bytes.pages()).sum()
    }

    /// The number of the newest change.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Writes, creating the file as needed; a durable one is stable at once.
    pub fn write(&mut self, file: DiskFile, offset: u64, data: &[u8], durable: bool, wall: i64) {
        self.changes += 1;
        let number = self.changes;
        let inode = self.ensure(file);
        inode.bytes.write(number, offset, data);
        inode.changed = wall;
        if durable {
            inode.bytes.sync_range(offset, data.len());
        }
    }

    fn ensure(&mut self, file: DiskFile) -> &mut Inode {
        let number = match self.names.get(&file) {
            Some(number) => *number,
            None => {
                self.next_inode += 1;
                self.change_names(NameChange::Create(file, self.next_inode));
                self.next_inode
            }
        };
        self.inodes.entry(number).or_default()
    }

    fn change_names(&mut self, change: NameChange) {
        apply(&mut self.names, change);
        self.journal.push(change);
    }

    /// The file has these bytes, all of them stable.
    pub fn put(&mut self, file: DiskFile, bytes: &[u8], wall: i64) {
        self.remove(file);
        self.write(file, 0, bytes, false, wall);
        self.sync_all(self.changes);
    }

    /// Cuts or extends; whether there is such a file.
    pub fn truncate(&mut self, file: DiskFile, bytes: u64, wall: i64) -> bool {
        self.change(file, wall, |storage, number| storage.truncate(number, bytes))
    }

    /// Zeroes bytes and gives their storage back; whether there is such a file.
    pub fn punch(&mut self, file: DiskFile, range: Range<u64>, wall: i64) -> bool {
        self.change(file, wall, |storage, number| storage.punch(number, range))
    }

    /// Makes the next change, to a file's bytes; whether there is such a file.
    fn change(
        &mut self,
        file: DiskFile,
        wall: i64,
        make: impl FnOnce(&mut LossyFile, u64),
    ) -> bool {
        self.changes += 1;
        let number = self.changes;
        let Some(inode) = self.names.get(&file).and_then(|inode| self.inodes.get_mut(inode)) else {
            return false;
        };
        make(&mut inode.bytes, number);
        inode.changed = wall;
        true
    }

    /// Removes the name.
    pub fn remove(&mut self, file: DiskFile) {
        if self.names.contains_key(&file) {
            self.change_names(NameChange::Remove(file));
        }
    }

    /// Renames, replacing; whether there was such a file.
    pub fn rename(&mut self, from: DiskFile, to: DiskFile) -> bool {
        let found = self.names.contains_key(&from);
        if found {
            self.change_names(NameChange::Rename(from, to));
        }
        found
    }

    /// All changes of the file up to this number, and all names, are stable; whether there is such a file.
    pub fn sync(&mut self, file: DiskFile, up_to: u64) -> bool {
        let Some(inode) = self.names.get(&file).and_then(|inode| self.inodes.get_mut(inode)) else {
            return false;
        };
        inode.bytes.sync(up_to);
        self.sync_names();
        true
    }

    /// As [`sync`](Volume::sync) of all files.
    pub fn sync_all(&mut self, up_to: u64) {
        self.inodes.values_mut().for_each(|inode| inode.bytes.sync(up_to));
        self.sync_names();
    }

    fn sync_names(&mut self) {
        for change in self.journal.drain(..) {
            apply(&mut self.stable_names, change);
        }
        self.drop_nameless();
    }

    fn drop_nameless(&mut self) {
        let mut named: Vec<u64> =
            self.names.values().chain(self.stable_names.values()).copied().collect();
        named.sort_unstable();
        self.inodes.retain(|inode, _| named.binary_search(inode).is_ok());
    }

    /// The node ends; after a power cut only what was stable, and what luck adds, is left.
    pub fn crash(&mut self, crash: Crash, random: &mut Random) {
        if crash == Crash::Kill {
            return;
        }
        let oldest = self.inodes.values().filter_map(|inode| inode.bytes.oldest_change()).min();
        let mut cut = PowerCut::draw(random, oldest.unwrap_or(self.changes), self.changes);
        self.inodes.values_mut().for_each(|inode| inode.bytes.power_cut(&mut cut));
        let kept = random.index(self.journal.len() + 1);
        for change in self.journal.drain(..).take(kept) {
            apply(&mut self.stable_names, change);
        }
        self.names = self.stable_names.clone();
        self.drop_nameless();
    }

    /// Flips one bit of one object. The file that decayed, if there was one.
    pub fn rot(&mut self, random: &mut Random) -> Option<DiskFile> {
        let objects = self.names.iter().filter(|(name, _)| matches!(name, DiskFile::Object(_)));
        let objects: Vec<_> = objects.map(|(name, inode)| (*name, *inode)).collect();
        if objects.is_empty() {
            return None;
        }
        let (name, inode) = *random.pick(&objects);
        self.inodes.get_mut(&inode)?.bytes.rot(random).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DiskFile = DiskFile::Log(1);
    const B: DiskFile = DiskFile::Log(2);

    /// Names that were left after so many power cuts, each from the same state.
    fn survivors(volume: &Volume) -> Vec<Vec<DiskFile>> {
        let mut seen: Vec<Vec<DiskFile>> = (0..200)
            .map(|seed| {
                let mut volume = volume.clone();
                volume.crash(Crash::Power, &mut Random::new(seed, "cut"));
                volume.names_from(DiskFile::Label).collect()
            })
            .collect();
        seen.sort();
        seen.dedup();
        seen
    }

    #[test]
    fn names_survive_in_the_order_they_were_made() {
        let mut volume = Volume::default();
        volume.write(A, 0, b"a", false, 0);
        volume.write(B, 0, b"b", false, 0);
        assert_eq!(survivors(&volume), [vec![], vec![A], vec![A, B]]);
        assert!(volume.sync(B, volume.changes()));
        assert_eq!(survivors(&volume), [vec![A, B]]);
        volume.remove(A);
        assert_eq!(survivors(&volume), [vec![A, B], vec![B]]);
    }

    #[test]
    fn a_rename_is_atomic() {
        let mut volume = Volume::default();
        volume.write(A, 0, b"new", true, 0);
        volume.write(B, 0, b"old", true, 0);
        volume.sync(A, volume.changes());
        assert!(volume.rename(A, B));
        assert!(!volume.rename(A, B));
        assert_eq!(survivors(&volume), [vec![A, B], vec![B]]);
        assert_eq!(volume.get(B).unwrap().bytes.bytes(), b"new");
    }

    #[test]
    fn a_durable_write_keeps_its_data_but_not_a_new_name() {
        let mut volume = Volume::default();
        volume.write(A, 0, b"data", true, 0);
        assert_eq!(survivors(&volume), [vec![], vec![A]]);
        volume.sync(A, 0);
        volume.write(A, 4096, b"more", true, 0);
        for seed in 0..20 {
            let mut volume = volume.clone();
            volume.crash(Crash::Power, &mut Random::new(seed, "cut"));
            assert_eq!(&volume.get(A).unwrap().bytes.bytes()[4096..], b"more");
        }
    }

    #[test]
    fn a_kill_loses_nothing() {
        let mut volume = Volume::default();
        volume.write(A, 0, b"data", false, 7);
        volume.crash(Crash::Kill, &mut Random::new(1, "cut"));
        assert_eq!((volume.get(A).unwrap().changed, volume.pages()), (7, 1));
    }
}
