//! A file that this store does not know, made from what its objects know of themselves: the names were lost.
//!
//! It keeps its number, by which its objects are found, and comes under `/lost+found` with the path that it was last
//! known by. Whether the objects are what they should be is then compared as in any restored volume.

use crate::keys;
use crate::permissions::Who;
use crate::record::{Content, Inode, Named, Regular, Site};
use crate::restoration::Restored;
use crate::transaction::Transaction;
use node::Bug;
use wire::field::{encoded, fields};
use wire::limits::NAME_BYTES_MAX;
use wire::{Attr, Errno, FileId, FileKind, Fragment, Layout};

/// The directory of what was salvaged, in the root.
pub const LOST_FOUND: &[u8] = b"lost+found";
/// Its mode: the directories between had modes that nothing knows any more, so only its owner looks in.
const LOST_FOUND_MODE: u32 = 0o700;
const DIRECTORY_MODE: u32 = 0o755;

/// A file as its objects describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// Number, owner, mode, size, times, storage.
    pub attr: Attr,
    /// Where its columns are, with the epoch that the objects know.
    pub layout: Layout,
    /// Its block map.
    pub fragments: Vec<Fragment>,
    /// The truncate generation of the objects.
    pub truncations: u32,
    /// The columns that had objects when they were told of the file, or have some: a bit for each.
    pub present: u32,
    /// Some of its bytes are nowhere.
    pub lost: bool,
    /// The manager told its objects of owner, mode and times.
    pub described: bool,
    /// The path that it was last known by; empty when none is.
    pub path: Box<[u8]>,
}

fields!(Salvaged { attr, layout, fragments, truncations, present, lost, described, path });

impl Transaction<'_> {
    /// Makes the file; the path that it has now, empty when this store knows it. Root's. EEXIST when the volume is not
    /// one whose names were lost or restored; EAGAIN when its number is above those of the present lineage.
    pub(crate) fn salvage(&mut self, who: &Who<'_>, found: &Salvaged) -> Result<Vec<u8>, Errno> {
        if !who.is_root() {
            return Err(Errno::EPERM);
        }
        if !self.volume.frozen {
            return Err(Errno::EEXIST);
        }
        let file = found.attr.file;
        if self.is_known(file)? {
            return Ok(Vec::new());
        }
        if file.serial() > self.volume.base {
            return Err(Errno::EAGAIN);
        }
        let lost_found = self.lost_found()?;
        let names = names_of(&found.path);
        // Of a file that was salvaged before.
        let names = names.strip_prefix(&[LOST_FOUND]).unwrap_or(&names);
        let (directories, leaf) = match names.split_last() {
            Some((leaf, directories)) => (directories, *leaf),
            None => (&[][..], &[][..]),
        };
        let (directory, mut path) = self.make_all(lost_found, directories)?;
        let name = self.free_name(directory, leaf, file)?;
        let owner = self.inode(lost_found)?.attr;
        self.make_salvaged(found, &owner)?;
        let mut inode = self.directory_of(directory, &name)?;
        self.insert_name(&mut inode, &name, file, FileKind::Regular);
        self.put_inode(&inode);
        path.push(b'/');
        path.extend(name);
        Ok(path)
    }

    /// Whether the store has the file, or had it and has removed it.
    fn is_known(&self, file: FileId) -> Result<bool, Errno> {
        match self.inode(file) {
            Err(Errno::ESTALE) => {}
            inode => return inode.map(|_| true),
        }
        if self.removed(file)?.is_some() {
            return Ok(true);
        }
        let site = self.get(&keys::site(file.site()))?;
        let site: Option<Site> = site.map(|site| Self::decoded(&site)).transpose()?;
        let given = site.is_some_and(|site| file.serial() <= site.serial);
        Ok(given && !self.passed_over(file)?)
    }

    fn lost_found(&mut self) -> Result<FileId, Errno> {
        if let Some(named) = self.named(self.place_of(FileId::ROOT, LOST_FOUND), LOST_FOUND)? {
            return match named.kind {
                FileKind::Directory => Ok(named.file),
                _ => Err(Errno::ENOTDIR),
            };
        }
        let owner = self.inode(FileId::ROOT)?.attr;
        let made =
            self.make_directory(&Who::ROOT, FileId::ROOT, LOST_FOUND, LOST_FOUND_MODE)?.attr.file;
        self.give(made, &owner)?;
        Ok(made)
    }

    fn give(&mut self, directory: FileId, owner: &Attr) -> Result<(), Errno> {
        let mut inode = self.inode(directory)?;
        (inode.attr.uid, inode.attr.gid) = (owner.uid, owner.gid);
        self.put_inode(&inode);
        Ok(())
    }

    /// The directory by these names in one, made as far as it is not there, and its path. Where something else has such
    /// a name, or there is no room for another, the one that is as far as it goes.
    fn make_all(&mut self, top: FileId, names: &[&[u8]]) -> Result<(FileId, Vec<u8>), Errno> {
        let owner = self.inode(top)?.attr;
        let (mut directory, mut path) = (top, [b"/", LOST_FOUND].concat());
        for name in names {
            directory = match self.named(self.place_of(directory, name), name)? {
                Some(Named { kind: FileKind::Directory, file, .. }) => file,
                Some(_) => break,
                None => match self.make_directory(&Who::ROOT, directory, name, DIRECTORY_MODE) {
                    Ok(made) => {
                        self.give(made.attr.file, &owner)?;
                        made.attr.file
                    }
                    Err(Errno::EMLINK) => break,
                    Err(errno) => return Err(errno),
                },
            };
            path.push(b'/');
            path.extend(*name);
        }
        Ok((directory, path))
    }

    /// The name, or where that is taken or there is none, one with the file's number.
    fn free_name(&self, directory: FileId, wanted: &[u8], file: FileId) -> Result<Vec<u8>, Errno> {
        if !wanted.is_empty() && self.named(self.place_of(directory, wanted), wanted)?.is_none() {
            return Ok(wanted.to_vec());
        }
        let number = format!("#{:x}", file.0);
        if wanted.is_empty() {
            return Ok(number.into_bytes());
        }
        let kept = &wanted[..wanted.len().min(NAME_BYTES_MAX - number.len() - 1)];
        Ok([kept, b".", number.as_bytes()].concat())
    }

    fn make_salvaged(&mut self, found: &Salvaged, owner: &Attr) -> Result<(), Errno> {
        let Salvaged { layout, truncations, present, .. } = *found;
        let file = found.attr.file;
        let (uid, gid) = match found.described {
            true => (found.attr.uid, found.attr.gid),
            false => (owner.uid, owner.gid),
        };
        let attr = Attr {
            kind: FileKind::Regular,
            uid,
            gid,
            mode: found.attr.mode & 0o7777,
            links: 1,
            rdev: 0,
            atime: found.attr.mtime,
            ctime: self.now,
            change: 1,
            ..found.attr
        };
        let regular = Regular {
            layout,
            truncations,
            verifier: 0,
            has_objects: true,
            // A write from before the description does not move a time that was set by hand.
            mtime_set: found.attr.ctime,
            fence: layout.epoch,
            present,
        };
        self.put_inode(&Inode { attr, content: Content::Regular(regular) });
        for fragment in &found.fragments {
            self.put(keys::fragment(file, fragment.unit), encoded(fragment));
        }
        // Nothing is known of the storage that one had whose bytes are nowhere.
        let row = if found.lost { Restored::OpenLost } else { Restored::Due };
        if !self.bugs.has(Bug::SalvagedNotCompared) {
            self.put_restored(file, Some(row))?;
        }
        self.count_salvaged(file.site())
    }

    /// One more file at a site, which begins behind all numbers of before where it did not exist.
    fn count_salvaged(&mut self, site: u8) -> Result<(), Errno> {
        if self.get(&keys::site(site))?.is_none() {
            if self.volume.base > 0 {
                self.put(keys::passed(site, self.volume.base), encoded(&0u64));
            }
            self.put(keys::site(site), encoded(&Site { serial: self.volume.base, files: 0 }));
        }
        self.count_files(site, 1)
    }
}

/// The names of a path, as far as they can be names.
fn names_of(path: &[u8]) -> Vec<&[u8]> {
    let is_name = |name: &&[u8]| {
        let special = matches!(*name, b"" | b"." | b"..");
        !special && name.len() <= NAME_BYTES_MAX && !name.contains(&0)
    };
    path.split(|byte| *byte == b'/').filter(is_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_names_and_never_leads_up() {
        assert_eq!(names_of(b"/a/../b//./c\0/d"), [&b"a"[..], b"b", b"d"]);
        assert!(names_of(b"").is_empty() && names_of(&[b'x'; 300]).is_empty());
    }
}
