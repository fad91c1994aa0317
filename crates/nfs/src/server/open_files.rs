//! Files that stay open between calls. NFS has no open files and the front ring has: without this every READ and WRITE
//! would open and close its file at the manager.
//!
//! An open file is one caller's with one access, since opening is where permissions are checked. It is closed when no
//! call used it for [`OPEN_SPAN`]; so long a caller keeps what it may do with the file.
//!
//! Commands: [`take`](OpenFiles::take), [`keep`](OpenFiles::keep), [`give_back`](OpenFiles::give_back). The front
//! closes the files that [`poll_close`](OpenFiles::poll_close) returns.

use crate::limits::{OPEN_FILES_MAX, OPEN_SPAN};
use node::rings::{Caller, Handle, Rights};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::{FileId, Time};

/// Flags of open(2).
pub(super) const READ_ONLY: u32 = 0;

/// One file, access, caller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenKey {
    file: FileId,
    flags: u32,
    user: (u32, u32),
    groups: Arc<[u8]>,
}

impl OpenKey {
    /// Of a file that this caller opens with these flags.
    pub fn new(file: FileId, flags: u32, caller: &Caller) -> OpenKey {
        let groups = match &caller.rights {
            Rights::Groups(groups) => groups.clone(),
            Rights::Kernel => Arc::default(),
        };
        OpenKey { file, flags, user: (caller.uid, caller.gid), groups }
    }

    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }
}

#[derive(Debug)]
struct Kept {
    handle: Handle,
    /// Calls that use it now.
    users: u32,
    used: Time,
    /// It is closed when its last user gives it back.
    is_broken: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct OpenFiles {
    kept: BTreeMap<OpenKey, Kept>,
    closing: VecDeque<(FileId, Handle)>,
}

impl OpenFiles {
    /// Files that are open, those in use too.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether the file is open, or is to be closed.
    pub fn has(&self, file: FileId) -> bool {
        let (flags, user, groups) = (READ_ONLY, (0, 0), Arc::default());
        let next = self.kept.range(OpenKey { file, flags, user, groups }..).next();
        let is_open = next.is_some_and(|(key, _)| key.file == file);
        is_open || self.closing.iter().any(|(closing, _)| *closing == file)
    }

    /// Whether any file is open for writing, or to be closed.
    pub fn has_written(&self) -> bool {
        self.kept.keys().any(|key| key.flags != READ_ONLY) || !self.closing.is_empty()
    }

    /// The open file, if there is one, which is in use from now on.
    pub fn take(&mut self, key: &OpenKey) -> Option<Handle> {
        let kept = self.kept.get_mut(key).filter(|kept| !kept.is_broken)?;
        kept.users += 1;
        Some(kept.handle)
    }

    /// It was opened, and is in use from now on. Another call may have been quicker: then that one's is used.
    pub fn keep(&mut self, key: OpenKey, handle: Handle) -> Handle {
        if let Some(other) = self.take(&key) {
            self.closing.push_back((key.file, handle));
            return other;
        }
        if self.kept.contains_key(&key) {
            // a broken one is in use still: this call's stays its own
            return handle;
        }
        self.make_room();
        self.kept.insert(key, Kept { handle, users: 1, used: Time::ZERO, is_broken: false });
        handle
    }

    /// A call has used it; `is_broken`: it is of no more use.
    pub fn give_back(&mut self, key: &OpenKey, handle: Handle, is_broken: bool, now: Time) {
        let Some(kept) = self.kept.get_mut(key).filter(|kept| kept.handle == handle) else {
            self.closing.push_back((key.file, handle));
            return;
        };
        kept.users -= 1;
        kept.used = now;
        kept.is_broken |= is_broken;
        if kept.is_broken && kept.users == 0 {
            self.close(&key.clone());
        }
    }

    /// Closes what was not used for long.
    pub fn expire(&mut self, now: Time) {
        let is_old = |kept: &Kept| kept.users == 0 && now.since(kept.used) >= OPEN_SPAN;
        let old = self.kept.iter().filter(|(_, kept)| is_old(kept));
        let old: Vec<OpenKey> = old.map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.close(key));
    }

    /// Closes what is not in use.
    pub fn close_all(&mut self) {
        let idle = self.kept.iter().filter(|(_, kept)| kept.users == 0);
        let idle: Vec<OpenKey> = idle.map(|(key, _)| key.clone()).collect();
        idle.iter().for_each(|key| self.close(key));
    }

    /// The next one that is to be closed.
    pub fn poll_close(&mut self) -> Option<(FileId, Handle)> {
        self.closing.pop_front()
    }

    /// The one that was not used for longest makes room, if any is not in use: calls are bounded, so the table is.
    fn make_room(&mut self) {
        if self.kept.len() < OPEN_FILES_MAX {
            return;
        }
        let idle = self.kept.iter().filter(|(_, kept)| kept.users == 0);
        let oldest = idle.min_by_key(|(_, kept)| kept.used).map(|(key, _)| key.clone());
        oldest.iter().for_each(|key| self.close(key));
    }

    fn close(&mut self, key: &OpenKey) {
        let kept = self.kept.remove(key).expect("an open file");
        assert_eq!(kept.users, 0, "closed while in use");
        self.closing.push_back((key.file, kept.handle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn key(file: u64, uid: u32) -> OpenKey {
        OpenKey::new(FileId(file), 0, &Caller { uid, ..Caller::default() })
    }

    #[test]
    fn an_open_file_is_one_callers_and_closed_when_it_was_not_used_for_long() {
        let (mut files, start) = (OpenFiles::default(), Time(5));
        assert_eq!(files.keep(key(1, 1), Handle(7)), Handle(7));
        assert_eq!(files.take(&key(1, 2)), None, "another caller");
        assert_eq!(files.take(&key(1, 1)), Some(Handle(7)));
        files.give_back(&key(1, 1), Handle(7), false, start);
        files.expire(start + OPEN_SPAN);
        assert_eq!((files.len(), files.poll_close()), (1, None), "it is in use");
        files.give_back(&key(1, 1), Handle(7), false, start);
        files.expire(start + OPEN_SPAN - Duration::from_nanos(1));
        assert_eq!(files.poll_close(), None);
        files.expire(start + OPEN_SPAN);
        assert_eq!((files.len(), files.poll_close()), (0, Some((FileId(1), Handle(7)))));
    }

    #[test]
    fn of_two_that_were_opened_at_once_one_is_closed() {
        let mut files = OpenFiles::default();
        assert_eq!(files.keep(key(1, 1), Handle(7)), Handle(7));
        assert_eq!(files.keep(key(1, 1), Handle(8)), Handle(7));
        assert_eq!(files.poll_close(), Some((FileId(1), Handle(8))));
    }

    #[test]
    fn a_broken_one_goes_with_its_last_user() {
        let mut files = OpenFiles::default();
        files.keep(key(1, 1), Handle(7));
        files.take(&key(1, 1));
        files.give_back(&key(1, 1), Handle(7), true, Time(1));
        assert_eq!((files.take(&key(1, 1)), files.poll_close()), (None, None));
        assert_eq!(files.keep(key(1, 1), Handle(8)), Handle(8), "beside it");
        files.give_back(&key(1, 1), Handle(8), false, Time(1));
        assert_eq!(files.poll_close(), Some((FileId(1), Handle(8))), "nothing keeps that one");
        files.give_back(&key(1, 1), Handle(7), false, Time(1));
        assert_eq!((files.poll_close(), files.len()), (Some((FileId(1), Handle(7))), 0));
    }

    #[test]
    fn the_table_has_a_limit() {
        let mut files = OpenFiles::default();
        for file in 0..OPEN_FILES_MAX as u64 + 10 {
            files.keep(key(file, 1), Handle(file));
            files.give_back(&key(file, 1), Handle(file), false, Time(file));
        }
        assert_eq!(files.len(), OPEN_FILES_MAX);
        assert_eq!(files.poll_close(), Some((FileId(0), Handle(0))), "the oldest one");
        files.close_all();
        assert!(files.is_empty());
    }
}
