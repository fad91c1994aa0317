//! A store's reserve on its disk: a file that is never read. When the disk is full it is shortened step by step, so
//! that changes that make room find some, and so does the checkpoint; it is made again when there is room for more.

use node::rings::StoreId;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wire::limits::BLOCK_BYTES;

use crate::limits::{
    MEMBERS_RESERVE_BYTES, META_RESERVE_BYTES, META_RESERVE_LOG_SHARE, META_RESERVE_PER_LOG,
    META_RESERVE_SHARE, META_RESERVE_STEP_BYTES, META_RESERVE_STEP_SHARE, META_RESERVE_STEPS,
    META_ROOM_BYTES,
};

/// The file of a store, by path: the database and the logs come from different threads.
#[derive(Clone, Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    most: u64,
}

impl Reserve {
    pub fn of(directory: &Path, store: StoreId) -> Reserve {
        let path = directory.join(format!("{}.reserve", super::files::stem(store)));
        let most = match store {
            StoreId::Names => META_RESERVE_BYTES,
            StoreId::Members => MEMBERS_RESERVE_BYTES,
        };
        Reserve { path, most }
    }

    /// How much it is to be on this disk, and the bytes that are free there.
    fn room(&self) -> io::Result<(u64, u64)> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let room = rustix::fs::statvfs(directory)?;
        let wanted = (room.f_blocks * room.f_frsize / META_RESERVE_SHARE).min(self.most);
        Ok((wanted, room.f_bavail * room.f_frsize))
    }

    /// Whether a checkpoint of so many bytes of logs finds room, also when another program takes all that is free now.
    /// Of a directory that is gone others tell.
    pub fn covers(&self, logs: u64) -> bool {
        let Ok((wanted, free)) = self.room() else { return true };
        let is_near = free < wanted + META_ROOM_BYTES;
        let bytes = self.bytes();
        // While it is not whole, what is free is all there is: some for logs, some for their checkpoint.
        let there = if bytes >= wanted { bytes } else { bytes + free / 2 };
        !is_near || logs * META_RESERVE_PER_LOG <= there
    }

    /// Makes it, if there is room for it and as much again; whether it is there now.
    pub fn make(&self) -> bool {
        let Ok((wanted, free)) = self.room() else { return true };
        self.bytes() >= wanted || self.try_make(wanted, free).unwrap_or(false)
    }

    fn try_make(&self, wanted: u64, free: u64) -> io::Result<bool> {
        let missing = wanted.saturating_sub(self.bytes());
        if free < missing + wanted {
            return Ok(false);
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        lengthen(&file, wanted)?;
        Ok(true)
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// A change of a log, tried again with a step less of the reserve while there is no room. All logs together have so
    /// many bytes: where their checkpoint may need the rest of what it may take, they get no more of it.
    pub fn for_log<T>(&self, logs: u64, change: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let kept = || {
            let bytes = self.bytes();
            let is_long = logs * META_RESERVE_PER_LOG / 2 > bytes;
            if is_long && bytes > self.for_logs_alone() { u64::MAX } else { 0 }
        };
        self.spend(kept, change)
    }

    /// The part of it that the database leaves to logs.
    fn for_logs_alone(&self) -> u64 {
        self.wanted() / META_RESERVE_LOG_SHARE
    }

    fn wanted(&self) -> u64 {
        self.room().map_or(self.most, |(wanted, _)| wanted)
    }

    /// The same for the database. A part is left to logs: a checkpoint that finds no room is tried again, a removal
    /// that cannot be logged never makes any.
    pub fn for_database<T>(&self, change: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        self.spend(|| self.for_logs_alone(), change)
    }

    /// How much of it is `kept` is asked only where there is no room.
    fn spend<T>(
        &self,
        kept: impl Fn() -> u64,
        mut change: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        for _ in 0..META_RESERVE_STEPS {
            match change() {
                Err(error) if is_full(&error) && self.release_down_to(kept()) => {}
                result => return result,
            }
        }
        change()
    }

    /// Gives up a step of it; whether there was any. Not all at once: others may take what is free at once.
    fn release_down_to(&self, kept: u64) -> bool {
        let bytes = self.bytes();
        let share = self.wanted() / META_RESERVE_STEP_SHARE;
        let step = share.clamp(BLOCK_BYTES as u64, META_RESERVE_STEP_BYTES);
        let left = bytes.saturating_sub(step).max(kept);
        let shorten = |file: File| file.set_len(left);
        bytes > left && OpenOptions::new().write(true).open(&self.path).and_then(shorten).is_ok()
    }
}

/// Gives the file this length with its bytes of the disk; it is what it was where that fails.
fn lengthen(file: &File, wanted: u64) -> io::Result<()> {
    let had = file.metadata()?.len();
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, wanted) {
        Ok(()) => Ok(()),
        // This file system promises no room: what is free is all there is.
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => file.set_len(wanted),
        Err(error) => {
            let _ = file.set_len(had);
            Err(error.into())
        }
    }
}

/// Whether it failed for want of room.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Another program takes at once what each step frees.
    #[test]
    fn one_change_that_finds_no_room_takes_a_few_steps_of_the_reserve_at_most() {
        let temporary = TempDir::new().unwrap();
        let reserve = Reserve::of(temporary.path(), StoreId::Names);
        assert!(reserve.make());
        let had = reserve.bytes();
        let full = || Err::<(), _>(io::Error::from_raw_os_error(libc::ENOSPC));
        assert!(is_full(&reserve.for_log(had, full).unwrap_err()));
        assert_eq!(reserve.bytes(), had, "longer logs leave it to the checkpoint");
        assert!(is_full(&reserve.for_log(had / 4, full).unwrap_err()));
        let step = META_RESERVE_STEP_BYTES * u64::from(META_RESERVE_STEPS);
        assert_eq!(reserve.bytes(), had - step);
        for _ in 0..META_RESERVE_BYTES / META_RESERVE_STEP_BYTES {
            assert!(is_full(&reserve.for_database(full).unwrap_err()));
        }
        assert_eq!(reserve.bytes(), had / META_RESERVE_LOG_SHARE, "a part is left to logs");
        assert!(reserve.make() && reserve.bytes() == had);
    }

    #[test]
    fn a_partly_used_reserve_is_no_shorter_after_a_make_that_fails() {
        let temporary = TempDir::new().unwrap();
        let path = temporary.path().join("reserve");
        std::fs::write(&path, vec![0; 100_000]).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        lengthen(&file, 1 << 60).unwrap_err();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
    }
}
