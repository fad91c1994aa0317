//! Names of a disk's files, in order.
//!
//! Objects are spread over directories by hash, so a page of them in order takes a look at every name. The smallest
//! names found in one pass are kept for the pages that follow: a disk of a million objects is passed 16 times, not
//! once per page, and the memory stays bounded.
//!
//! A listing is no snapshot: an object made after the pass that covers it may be missing, a removed one may be named.

use super::layout::{self, DirectoryIndex};
use crate::limits::LISTING_WINDOW;
use node::rings::{DiskFile, DiskListing};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use wire::ObjectId;

/// Names found by the last pass and not yet listed.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// In ascending order; the first `listed` of them were listed.
    window: Vec<ObjectId>,
    listed: usize,
    /// Whether objects behind the window were left out.
    more: bool,
}

impl Listing {
    /// The files that `which` asks for.
    pub(super) fn list(
        &mut self,
        top: BorrowedFd<'_>,
        which: DiskListing,
    ) -> Result<Vec<DiskFile>, Errno> {
        match which {
            DiskListing::Logs => {
                let mut logs = Vec::new();
                each_name(top, DirectoryIndex::LOGS, |name| logs.extend(layout::parse_log(name)))?;
                logs.sort_unstable();
                Ok(logs.into_iter().map(DiskFile::Log).collect())
            }
            DiskListing::Quarantined => {
                let mut objects = Vec::new();
                let place = DirectoryIndex::QUARANTINE;
                each_name(top, place, |name| objects.extend(layout::parse_object(name)))?;
                objects.sort_unstable();
                Ok(objects.into_iter().map(DiskFile::Quarantined).collect())
            }
            DiskListing::Objects { after, count } => {
                let objects = self.objects(top, after, count, LISTING_WINDOW)?;
                Ok(objects.into_iter().map(DiskFile::Object).collect())
            }
        }
    }

    fn objects(
        &mut self,
        top: BorrowedFd<'_>,
        after: Option<ObjectId>,
        count: usize,
        window: usize,
    ) -> Result<Vec<ObjectId>, Errno> {
        let mut objects = Vec::new();
        let mut after = after;
        while objects.len() < count {
            if !self.goes_on(after) {
                self.pass(top, after, window)?;
            }
            let page = self.page(count - objects.len());
            if page.is_empty() {
                break;
            }
            objects.extend_from_slice(page);
            after = objects.last().copied();
        }
        if objects.len() < count {
            *self = Listing::default(); // the end: give the memory back
        }
        Ok(objects)
    }

    /// Whether what is kept continues right after `after`.
    fn goes_on(&self, after: Option<ObjectId>) -> bool {
        let last = self.listed.checked_sub(1).map(|index| self.window[index]);
        let left = self.listed < self.window.len() || !self.more;
        last.is_some() && last == after && left
    }

    fn page(&mut self, count: usize) -> &[ObjectId] {
        let start = self.listed;
        self.listed = self.window.len().min(start + count);
        &self.window[start..self.listed]
    }

    /// Finds the first `window` objects after `after`.
    fn pass(
        &mut self,
        top: BorrowedFd<'_>,
        after: Option<ObjectId>,
        window: usize,
    ) -> Result<(), Errno> {
        let mut found = BTreeSet::new();
        let mut more = false;
        for branch in 0..=u8::MAX {
            each_name(top, DirectoryIndex::of_objects(branch), |name| {
                let object = layout::parse_object(name).filter(|object| Some(*object) > after);
                found.extend(object);
                if found.len() > window {
                    found.pop_last();
                    more = true;
                }
            })?;
        }
        *self = Listing { window: found.into_iter().collect(), listed: 0, more };
        Ok(())
    }
}

fn each_name(
    top: BorrowedFd<'_>,
    place: DirectoryIndex,
    mut each: impl FnMut(&str),
) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(top, place.path(), flags, Mode::empty())?;
    for entry in Dir::new(directory)? {
        // A name that is not UTF-8 is not one of ours.
        if let Ok(name) = entry?.file_name().to_str() {
            each(name);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use wire::{FileId, VolumeId};

    #[test]
    fn pages_of_any_size_name_every_object_once_in_order() {
        let temporary = tempfile::tempdir().unwrap();
        for place in DirectoryIndex::all() {
            std::fs::create_dir_all(temporary.path().join(place.path())).unwrap();
        }
        let mut wanted = Vec::new();
        for file in 0..50 {
            for column in 0..3 {
                let object = ObjectId { volume: VolumeId(1), file: FileId(file * 7), column };
                let path = layout::path(DiskFile::Object(object));
                std::fs::write(temporary.path().join(path), b"").unwrap();
                wanted.push(object);
            }
        }
        std::fs::write(temporary.path().join("objects/00/stranger"), b"").unwrap();
        let top = std::fs::File::open(temporary.path()).unwrap();
        for (count, window) in [(1, 10), (7, 10), (10, 10), (64, 20), (150, 150), (200, 1000)] {
            let mut listing = Listing::default();
            let mut seen: Vec<ObjectId> = Vec::new();
            loop {
                let after = seen.last().copied();
                let page = listing.objects(top.as_fd(), after, count, window).unwrap();
                let end = page.len() < count;
                seen.extend(page);
                if end {
                    break;
                }
            }
            assert_eq!(seen, wanted, "pages of {count} from windows of {window}");
        }
    }
}
