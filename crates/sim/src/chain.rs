//! A client of several managers of which each change waits until the one before is on stable storage: names that it
//! makes in the next of some directories, and one file that it moves there. So the names of any moment are the first
//! ones, and the file has one name, whatever was killed: a backup of which that is not true is of no one moment.

use names::{Client, How, Plus, Who};
use node::Cx;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;
use wire::{Errno, FileId};

/// Directories: enough for each of some managers to have one.
const DIRECTORIES: usize = 6;
/// Sites have been spread over the managers by then, and directories are made at all of them.
const SPREAD: Duration = Duration::from_secs(2);
/// The file that is moved.
const MOVED: &[u8] = b"moved";
/// Bytes of a listing that are asked for at a time.
const LISTING_BYTES: usize = 16 << 10;
/// Pause after a step that could not be made, and before it is looked again whether one is to be.
const PAUSE: Duration = Duration::from_millis(20);

/// The names that a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    numbers: BTreeSet<u32>,
    /// Names of the file that is moved.
    moved: usize,
}

impl Seen {
    /// Checks the names of a backup of all managers, which was taken when so many changes had begun at least, and at
    /// most. The error names the violation.
    pub fn check(&self, taken: &Range<u32>) -> Result<(), String> {
        let count = self.numbers.len() as u32;
        if !self.numbers.iter().copied().eq(0..count) {
            return Err(format!("a backup is not of one moment: it has the names {self:?}"));
        }
        if !(taken.start..=taken.end).contains(&count) {
            return Err(format!("{count} names are in a backup that was taken at {taken:?}"));
        }
        // It is made before the first of them.
        if self.moved > 1 || self.moved == 0 && count > 0 {
            let moved = self.moved;
            return Err(format!("a file that is renamed has {moved} names in a backup"));
        }
        Ok(())
    }

    /// The same where one manager was restored, and the others have their names of the end, when so many changes had
    /// begun: each name is of one of the two moments.
    pub fn check_mixed(&self, taken: &Range<u32>, begun: u32) -> Result<(), String> {
        if let Some(lost) = (0..taken.start).find(|number| !self.numbers.contains(number)) {
            return Err(format!(
                "name {lost} is neither in the backup nor at its manager: {self:?}"
            ));
        }
        match self.numbers.last().filter(|last| **last >= begun) {
            Some(last) => Err(format!("name {last} is there, and was never made")),
            None => Ok(()),
        }
    }
}

/// All of it outlives the node that the client is on.
#[derive(Debug, Default)]
pub struct Chain {
    works: Cell<bool>,
    begun: Cell<u32>,
    done: Cell<u32>,
    /// Numbers of the files that it made.
    files: RefCell<BTreeSet<FileId>>,
}

impl Chain {
    /// It works from now on, or no more.
    pub fn work(&self, works: bool) {
        self.works.set(works);
    }

    /// Changes that are done, and that have begun.
    pub fn counts(&self) -> Range<u32> {
        self.done.get()..self.begun.get()
    }

    /// Numbers of the files that it made.
    pub fn files(&self) -> BTreeSet<FileId> {
        self.files.borrow().clone()
    }

    /// Works on a node until that ends.
    pub async fn serve(&self, cx: &Cx, names: &Client) {
        cx.sleep(SPREAD).await;
        loop {
            let is_done = self.works.get() && self.work_on(names).await.is_ok();
            if !is_done {
                cx.sleep(PAUSE).await;
            }
        }
    }

    /// The directories, found or made.
    async fn directories(&self, names: &Client) -> Result<Vec<FileId>, Errno> {
        let mut all = Vec::new();
        for number in 0..DIRECTORIES {
            let name = format!("chain{number}");
            let made = names.make_directory(&Who::ROOT, FileId::ROOT, name.as_bytes(), 0o755).await;
            let entry = match made {
                Err(Errno::EEXIST) => {
                    names.lookup(&Who::ROOT, FileId::ROOT, name.as_bytes()).await?
                }
                made => made?,
            };
            if number % 2 == 1 {
                self.hash(names, entry.attr.file).await?;
            }
            all.push(entry.attr.file);
        }
        Ok(all)
    }

    /// Names are spread over all managers in one that is empty yet, or they are already.
    async fn hash(&self, names: &Client, directory: FileId) -> Result<(), Errno> {
        match names.hash_directory(&Who::ROOT, directory).await {
            Err(Errno::ENOTEMPTY) => Ok(()),
            hashed => hashed,
        }
    }

    async fn work_on(&self, names: &Client) -> Result<(), Errno> {
        let all = self.directories(names).await?;
        if self.begun.get() == 0 {
            // Names that this client found, and another incarnation of its node made, are synced as the first step is.
            self.make(names, all[0], MOVED).await?;
            names.sync().await?;
        }
        while self.works.get() {
            self.step(names, &all).await?;
        }
        Ok(())
    }

    /// One that an earlier incarnation has made, and may not have synced, is made anew, so that the sync is of that.
    async fn step(&self, names: &Client, all: &[FileId]) -> Result<(), Errno> {
        let number = self.done.get();
        let at = |number: u32| all[number as usize % all.len()];
        let (from, to) = (at(number), at(number + 1));
        self.begun.set(number + 1);
        self.make(names, to, format!("n{number}").as_bytes()).await?;
        match names.rename(&Who::ROOT, from, MOVED, to, MOVED, 0).await {
            Err(Errno::ENOENT) => {
                names.rename(&Who::ROOT, to, MOVED, from, MOVED, 0).await?;
                names.rename(&Who::ROOT, from, MOVED, to, MOVED, 0).await?;
            }
            renamed => drop(renamed?),
        }
        names.sync().await?;
        self.done.set(number + 1);
        Ok(())
    }

    async fn make(&self, names: &Client, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        let create = || names.create(&Who::ROOT, parent, name, 0o644, How::Guarded, None);
        let (entry, _) = match create().await {
            Err(Errno::EEXIST) => {
                names.unlink(&Who::ROOT, parent, name).await?;
                create().await?
            }
            created => created?,
        };
        self.files.borrow_mut().insert(entry.attr.file);
        Ok(())
    }

    /// The names that are there. A name in the root may be without its directory where one manager was restored.
    pub async fn look(names: &Client) -> Result<Seen, Errno> {
        let mut seen = Seen::default();
        for number in 0..DIRECTORIES {
            let name = format!("chain{number}");
            let directory = names.lookup(&Who::ROOT, FileId::ROOT, name.as_bytes()).await;
            let listed = match directory {
                Ok(entry) => listed(names, entry.attr.file).await,
                Err(errno) => Err(errno),
            };
            let listed = match listed {
                // Or it was hashed since the backup, and a part of it is lost.
                Err(Errno::ENOENT | Errno::ESTALE | Errno::ENOTRECOVERABLE) => continue,
                listed => listed?,
            };
            for name in listed {
                match name.strip_prefix(b"n").map(std::str::from_utf8) {
                    Some(Ok(number)) => seen.numbers.extend(number.parse::<u32>()),
                    _ => seen.moved += usize::from(name == MOVED),
                }
            }
        }
        Ok(seen)
    }
}

/// All names of a directory.
async fn listed(names: &Client, directory: FileId) -> Result<Vec<Vec<u8>>, Errno> {
    let (mut all, mut cookie) = (Vec::new(), 0);
    loop {
        let part = names
            .read_directory(&Who::ROOT, directory, cookie, LISTING_BYTES, Plus::Nothing)
            .await?;
        cookie = part.entries.last().map_or(cookie, |entry| entry.cookie);
        all.extend(part.entries.into_iter().map(|entry| entry.name.to_vec()));
        if part.end {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(numbers: impl IntoIterator<Item = u32>, moved: usize) -> Seen {
        Seen { numbers: numbers.into_iter().collect(), moved }
    }

    #[test]
    fn a_backup_of_one_moment_has_the_first_names_and_one_of_the_file() {
        assert_eq!(seen(0..7, 1).check(&(6..8)), Ok(()));
        assert!(seen([0, 1, 3], 1).check(&(2..5)).is_err(), "one is missing");
        assert!(seen(0..7, 0).check(&(6..8)).is_err(), "half of a rename");
        assert!(seen(0..7, 2).check(&(6..8)).is_err(), "the other half");
        assert!(seen(0..5, 1).check(&(6..8)).is_err(), "older than it was asked for");
        assert!(seen(0..9, 1).check(&(6..8)).is_err(), "later than it was there");
        assert_eq!(seen(0..0, 0).check(&(0..0)), Ok(()), "of before them all");
    }

    #[test]
    fn with_one_manager_of_a_backup_each_name_is_of_then_or_of_now() {
        assert_eq!(seen((0..6).chain([8, 9]), 2).check_mixed(&(6..7), 10), Ok(()));
        assert!(seen([0, 1, 2, 4, 5], 1).check_mixed(&(6..7), 10).is_err());
        assert!(seen(0..11, 1).check_mixed(&(6..7), 10).is_err());
    }
}
