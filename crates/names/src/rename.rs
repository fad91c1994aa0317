//! Renaming (RFC 1813 section 3.3.14, rename(2) of Linux): replacing, not replacing, exchanging.

use crate::limits::LINKS_MAX;
use crate::lookup::check_name;
use crate::permissions::{EXECUTE, WRITE, Who};
use crate::record::{Inode, Named};
use crate::transaction::Transaction;
use node::Bug;
use wire::{Errno, FileId};

/// Fails with EEXIST when the new name exists (Linux `RENAME_NOREPLACE`).
pub const NO_REPLACE: u32 = 1;
/// Both names exist and change places (Linux `RENAME_EXCHANGE`).
pub const EXCHANGE: u32 = 2;
/// A character device with number 0 takes the old name, which overlayfs reads as "removed" (Linux `RENAME_WHITEOUT`).
pub const WHITEOUT: u32 = 4;
/// With nothing replaced.
const WHITEOUT_ALONE: u32 = WHITEOUT | NO_REPLACE;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryEntry<'a> {
    /// The directory.
    pub parent: FileId,
    /// The name.
    pub name: &'a [u8],
}

/// One or two directories, or buckets of hashed ones; `to` is the index of the second place's.
struct Directories {
    all: Vec<Inode>,
    to: usize,
}

impl Directories {
    fn from(&mut self) -> &mut Inode {
        &mut self.all[0]
    }

    fn to(&mut self) -> &mut Inode {
        &mut self.all[self.to]
    }

    /// A directory moves from the first to the second.
    fn move_link(&mut self) {
        self.from().attr.links -= 1;
        self.to().attr.links += 1;
    }
}

/// The name that is renamed, and the file that has the new name now.
struct Renamed {
    source: Named,
    moved: Inode,
    target: Option<(Named, Inode)>,
    /// Names in that, if it is a directory that is to go.
    entries: u64,
}

impl Transaction<'_> {
    /// Renames `from` to `to`; `flags` is 0, [`NO_REPLACE`] or [`EXCHANGE`].
    pub fn rename(
        &mut self,
        who: &Who<'_>,
        from: DirectoryEntry<'_>,
        to: DirectoryEntry<'_>,
        flags: u32,
    ) -> Result<(), Errno> {
        if !matches!(flags, 0 | NO_REPLACE | EXCHANGE | WHITEOUT | WHITEOUT_ALONE) {
            return Err(Errno::EINVAL);
        }
        self.want_together(from, to);
        let mut directories = self.rename_directories(who, from, to)?;
        let renamed = self.renamed(&directories, from, to, flags)?;
        self.check_loops(from, to, &renamed, flags)?;
        if renamed.target.as_ref().is_some_and(|(_, inode)| inode.attr.file == renamed.source.file)
        {
            return Ok(());
        }
        check_rename(who, &directories, &renamed, flags)?;
        match renamed {
            Renamed { source, moved, target: Some((named, inode)), .. } if flags == EXCHANGE => {
                self.exchange(&mut directories, (from, source, moved), (to, named, inode));
            }
            renamed => self.replace(&mut directories, from, to, renamed)?,
        }
        if flags & WHITEOUT != 0 {
            self.put_whiteout(who, directories.from(), from.name)?;
        }
        directories.all.iter().for_each(|directory| self.put_inode(directory));
        Ok(())
    }

    /// Records at other managers are asked for at once: each by itself would be a round trip more.
    fn want_together(&self, from: DirectoryEntry<'_>, to: DirectoryEntry<'_>) {
        if self.is_alone() {
            return;
        }
        // Errors are found again where they count.
        for DirectoryEntry { parent, name } in [from, to] {
            let _ = self.directory_of(parent, name);
            if let Ok(Some(named)) = self.named(self.place_of(parent, name), name) {
                let _ = self.inode(named.file);
            }
        }
    }

    fn rename_directories(
        &self,
        who: &Who<'_>,
        from: DirectoryEntry<'_>,
        to: DirectoryEntry<'_>,
    ) -> Result<Directories, Errno> {
        let mut all = vec![self.directory_of(from.parent, from.name)?];
        let other = self.directory_of(to.parent, to.name)?;
        if other.place() != all[0].place() {
            all.push(other);
        }
        for directory in &all {
            if !directory.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            who.check(&directory.attr, EXECUTE)?;
        }
        let to = all.len() - 1;
        Ok(Directories { all, to })
    }

    fn renamed(
        &self,
        directories: &Directories,
        from: DirectoryEntry<'_>,
        to: DirectoryEntry<'_>,
        flags: u32,
    ) -> Result<Renamed, Errno> {
        check_name(from.name)?;
        check_name(to.name)?;
        if [from.name, to.name].iter().any(|name| matches!(*name, b"." | b"..")) {
            return Err(Errno::EBUSY);
        }
        let (first, second) = (&directories.all[0], &directories.all[directories.to]);
        let source = self.named(first.place(), from.name)?.ok_or(Errno::ENOENT)?;
        let target = self.named(second.place(), to.name)?;
        match target {
            Some(_) if flags & NO_REPLACE != 0 => return Err(Errno::EEXIST),
            None if flags == EXCHANGE => return Err(Errno::ENOENT),
            _ => {}
        }
        let target = match target {
            Some(named) => Some((named, self.inode(named.file)?)),
            None => None,
        };
        let replaced = target.as_ref().filter(|_| flags != EXCHANGE);
        let replaced = replaced.filter(|(_, inode)| inode.is_directory());
        let entries = replaced.map_or(Ok(0), |(_, inode)| self.entries(inode))?;
        Ok(Renamed { source, moved: self.inode(source.file)?, target, entries })
    }

    /// EINVAL when a directory would come to lie in itself; what would replace its own ancestor finds it not empty.
    fn check_loops(
        &self,
        from: DirectoryEntry<'_>,
        to: DirectoryEntry<'_>,
        renamed: &Renamed,
        flags: u32,
    ) -> Result<(), Errno> {
        if from.parent == to.parent {
            return Ok(());
        }
        if renamed.moved.is_directory() && self.is_within(to.parent, renamed.source.file)? {
            return Err(Errno::EINVAL);
        }
        match &renamed.target {
            Some((named, inode)) if inode.is_directory() => {
                let above = self.is_within(from.parent, named.file)?;
                let error = if flags == EXCHANGE { Errno::EINVAL } else { Errno::ENOTEMPTY };
                if above { Err(error) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    /// Whether `directory` is `ancestor` or lies below it.
    fn is_within(&self, mut directory: FileId, ancestor: FileId) -> Result<bool, Errno> {
        loop {
            if directory == ancestor {
                return Ok(true);
            }
            if directory == FileId::ROOT {
                return Ok(false);
            }
            directory = self.inode(directory)?.directory().ok_or(Errno::EIO)?.parent;
        }
    }

    fn replace(
        &mut self,
        directories: &mut Directories,
        from: DirectoryEntry<'_>,
        to: DirectoryEntry<'_>,
        renamed: Renamed,
    ) -> Result<(), Errno> {
        let Renamed { source, mut moved, target, .. } = renamed;
        let (file, kind) = (moved.attr.file, moved.attr.kind);
        let stays = target.is_none() && directories.to == 0;
        if stays {
            self.change_name(directories.to(), (from.name, to.name), source);
        } else if !self.bugs.has(Bug::SourceNameKept) {
            self.delete_name(directories.from(), from.name, source.position);
        }
        match target {
            None if stays => {}
            None => self.insert_name(directories.to(), to.name, file, kind),
            Some((named, inode)) => {
                let place = directories.to().place();
                self.put_name(place, to.name, Named { file, kind, position: named.position });
                directories.to().touch_contents(self.now);
                if inode.is_directory() {
                    directories.to().attr.links -= 1;
                    self.forget(&inode)?;
                } else if !self.bugs.has(Bug::RenameKeepsTarget) {
                    self.drop_link(inode)?;
                }
            }
        }
        if let Some(directory) = moved.directory_mut() {
            directory.parent = to.parent;
            directories.move_link();
        }
        moved.touch(self.now);
        self.put_inode(&moved);
        Ok(())
    }

    fn exchange(
        &mut self,
        directories: &mut Directories,
        first: (DirectoryEntry<'_>, Named, Inode),
        second: (DirectoryEntry<'_>, Named, Inode),
    ) {
        let ((from, source, mut moved), (to, target, mut other)) = (first, second);
        let (first, second) = (directories.from().place(), directories.to().place());
        self.put_name(first, from.name, Named { position: source.position, ..target });
        self.put_name(second, to.name, Named { position: target.position, ..source });
        if moved.is_directory() && !other.is_directory() {
            directories.move_link();
        }
        if other.is_directory() && !moved.is_directory() {
            directories.to().attr.links -= 1;
            directories.from().attr.links += 1;
        }
        for (inode, parent) in [(&mut moved, to.parent), (&mut other, from.parent)] {
            if let Some(directory) = inode.directory_mut() {
                directory.parent = parent;
            }
            inode.touch(self.now);
            self.put_inode(inode);
        }
        directories.all.iter_mut().for_each(|directory| directory.touch_contents(self.now));
    }
}

fn check_rename(
    who: &Who<'_>,
    directories: &Directories,
    renamed: &Renamed,
    flags: u32,
) -> Result<(), Errno> {
    let (from, to) = (&directories.all[0].attr, &directories.all[directories.to].attr);
    let (moved, moves) = (&renamed.moved, from.file != to.file);
    if from.import() != to.import() {
        return Err(Errno::EXDEV);
    }
    who.check_removal(from, &moved.attr, false)?;
    match &renamed.target {
        None => who.check(to, WRITE | EXECUTE)?,
        Some((_, target)) => who.check_removal(to, &target.attr, true)?,
    }
    if let Some((_, target)) = &renamed.target {
        if flags != EXCHANGE {
            check_replaceable(moved, target, renamed.entries)?;
        } else if target.is_directory() && moves {
            who.check(&target.attr, WRITE)?;
        }
    }
    if !moved.is_directory() || !moves {
        return Ok(());
    }
    who.check(&moved.attr, WRITE)?;
    let replaces = renamed.target.as_ref().is_some_and(|(_, target)| target.is_directory());
    if to.links >= LINKS_MAX && !replaces { Err(Errno::EMLINK) } else { Ok(()) }
}

fn check_replaceable(moved: &Inode, target: &Inode, entries: u64) -> Result<(), Errno> {
    match (moved.is_directory(), target.is_directory()) {
        (true, false) => Err(Errno::ENOTDIR),
        (false, true) => Err(Errno::EISDIR),
        (true, true) if entries > 0 => Err(Errno::ENOTEMPTY),
        _ => Ok(()),
    }
}
