//! The descriptors that are kept open, so that a busy file is opened once.
//!
//! It is a cache with a bound and the clock rule: what was used since the hand last passed stays. Dropping an entry
//! closes nothing that a transfer under way still holds.

use node::rings::{DiskFile, DiskId};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A file and the way it is opened: past the host's cache or through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) disk: DiskId,
    pub(super) file: DiskFile,
    pub(super) direct: bool,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    descriptor: Arc<OwnedFd>,
    used: bool,
}

/// Open descriptors by file.
#[derive(Debug)]
pub(super) struct Descriptors {
    entries: Vec<Entry>,
    positions: HashMap<Key, usize>,
    hand: usize,
    capacity: usize,
}

impl Descriptors {
    /// At most `capacity` of them.
    pub(super) fn new(capacity: usize) -> Descriptors {
        assert!(capacity > 0, "room for one descriptor at least");
        Descriptors {
            entries: Vec::with_capacity(capacity),
            positions: HashMap::with_capacity(capacity),
            hand: 0,
            capacity,
        }
    }

    /// The descriptor of `key`, if it is open.
    pub(super) fn get(&mut self, key: Key) -> Option<Arc<OwnedFd>> {
        let entry = &mut self.entries[*self.positions.get(&key)?];
        entry.used = true;
        Some(entry.descriptor.clone())
    }

    /// Keeps a descriptor, in the place of the key's last one or of one long unused.
    pub(super) fn insert(&mut self, key: Key, descriptor: Arc<OwnedFd>) {
        if let Some(position) = self.positions.get(&key) {
            self.entries[*position].descriptor = descriptor;
            return;
        }
        if self.entries.len() == self.capacity {
            self.evict();
        }
        self.positions.insert(key, self.entries.len());
        self.entries.push(Entry { key, descriptor, used: true });
    }

    /// Forgets a descriptor and gives it to the caller.
    pub(super) fn remove(&mut self, key: Key) -> Option<Arc<OwnedFd>> {
        let position = *self.positions.get(&key)?;
        Some(self.take(position).descriptor)
    }

    /// Forgets half of them: the process has too many files open.
    pub(super) fn shrink(&mut self) {
        (0..self.entries.len().div_ceil(2)).for_each(|_| self.evict());
    }

    fn evict(&mut self) {
        loop {
            self.hand %= self.entries.len();
            let entry = &mut self.entries[self.hand];
            if !std::mem::take(&mut entry.used) {
                self.take(self.hand);
                return;
            }
            self.hand += 1;
        }
    }

    fn take(&mut self, position: usize) -> Entry {
        let entry = self.entries.swap_remove(position);
        self.positions.remove(&entry.key);
        if let Some(moved) = self.entries.get(position) {
            self.positions.insert(moved.key, position);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(log: u32) -> Key {
        Key { disk: DiskId(0), file: DiskFile::Log(log), direct: false }
    }

    fn descriptor() -> Arc<OwnedFd> {
        Arc::new(std::fs::File::open("/dev/null").unwrap().into())
    }

    #[test]
    fn the_unused_go_first_and_the_bound_holds() {
        let mut cache = Descriptors::new(4);
        (0..4).for_each(|log| cache.insert(key(log), descriptor()));
        cache.insert(key(4), descriptor()); // all were used: the hand clears them and takes the first
        assert!(cache.get(key(0)).is_none());
        assert!(cache.get(key(2)).is_some());
        assert!(cache.get(key(3)).is_some());
        cache.insert(key(5), descriptor());
        assert!(cache.get(key(1)).is_none(), "the only one not used since");
        assert_eq!(cache.entries.len(), 4);
    }

    #[test]
    fn positions_stay_right_through_any_order() {
        let mut cache = Descriptors::new(16);
        for round in 0..1000u32 {
            cache.insert(key(round * 7 % 40), descriptor());
            drop(cache.remove(key(round * 5 % 40)));
            if round % 100 == 99 {
                cache.shrink();
            }
            assert!(cache.entries.len() <= 16);
            assert_eq!(cache.entries.len(), cache.positions.len());
            assert!(cache.positions.iter().all(|(key, at)| cache.entries[*at].key == *key));
        }
    }
}
