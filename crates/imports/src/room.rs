//! Room that an import takes at the I/O servers: what was read least recently goes first.
//!
//! Invariant: a file that holds bytes has one place in the order of use, and the sum is that of all.

use std::collections::BTreeMap;
use wire::FileId;

/// The cached bytes of all files, as far as they were counted: never less than there are.
#[derive(Debug, Default)]
pub struct Room {
    limit: Option<u64>,
    held: u64,
    uses: u64,
    files: BTreeMap<FileId, (u64, u64)>,
    order: BTreeMap<u64, FileId>,
}

impl Room {
    /// For so many bytes; `None`: there is no limit.
    pub fn new(limit: Option<u64>) -> Room {
        Room { limit, ..Room::default() }
    }

    /// A file is read, which has so many bytes more now, and `most` at most.
    pub fn take(&mut self, file: FileId, more: u64, most: u64) {
        let bytes = self.forget(file);
        let bytes = (bytes + more).min(most);
        if bytes > 0 && self.limit.is_some() {
            self.uses += 1;
            self.held += bytes;
            self.files.insert(file, (self.uses, bytes));
            self.order.insert(self.uses, file);
        }
        assert_eq!(self.files.len(), self.order.len(), "one place in the order of use");
    }

    /// A file is read.
    pub fn touch(&mut self, file: FileId) {
        self.take(file, 0, u64::MAX);
    }

    /// Nothing of a file is there; how many bytes there were.
    pub fn forget(&mut self, file: FileId) -> u64 {
        let Some((used, bytes)) = self.files.remove(&file) else { return 0 };
        self.order.remove(&used);
        self.held -= bytes;
        bytes
    }

    /// The file that is to go, while there is more than the limit. The one that was read last stays: it is in use.
    pub fn to_go(&self) -> Option<FileId> {
        let is_over = self.limit.is_some_and(|limit| self.held > limit);
        let (_, first) = self.order.first_key_value()?;
        (is_over && self.order.len() > 1).then_some(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_least_recently_goes_first() {
        let (a, b, c) = (FileId(1), FileId(2), FileId(3));
        let mut room = Room::new(Some(100));
        room.take(a, 40, 80);
        room.take(b, 60, 60);
        assert_eq!(room.to_go(), None);
        room.take(a, 70, 80);
        assert_eq!((room.to_go(), room.held), (Some(b), 140), "no more than a file has");
        room.touch(b);
        assert_eq!(room.to_go(), Some(a));
        assert_eq!((room.forget(a), room.to_go()), (80, None));
        room.take(c, 500, 500);
        assert_eq!((room.forget(b), room.to_go()), (60, None), "the last one stays");
        room.touch(a);
        assert_eq!((room.held, room.files.len()), (500, 1));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut room = Room::new(None);
        room.take(FileId(1), 1 << 60, u64::MAX);
        assert_eq!((room.to_go(), room.held), (None, 0));
    }
}
