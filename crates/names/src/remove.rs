//! Removing names, and files when their last name and last user are gone.

use crate::attributes;
use crate::foreign::{Act, Part};
use crate::keys::{self, Table};
use crate::limits::CHANGES_MAX;
use crate::lookup::check_name;
use crate::permissions::{EXECUTE, WRITE, Who};
use crate::record::{Content, Directory, Inode, Named, Removed};
use crate::transaction::{Effect, Transaction};
use crate::unnamed::Unnamed;
use node::Bug;
use wire::field::encoded;
use wire::{Errno, FileId, FileKind, SetAttr, Wall};

impl Unnamed {
    fn of(inode: &Inode, now: Wall) -> Option<Unnamed> {
        let mut gone = inode.clone();
        gone.touch(now);
        gone.attr.links = 0;
        let target = match gone.content {
            Content::Regular(_) => return None,
            Content::Symlink(target) => target,
            Content::Directory(_) | Content::Special => Box::default(),
        };
        Some(Unnamed { attr: gone.attr, target })
    }

    /// Changes attributes, as [`Transaction::set_attr`] does while there is a name.
    pub fn set_attr(&mut self, who: &Who<'_>, changes: &SetAttr, now: Wall) -> Result<(), Errno> {
        match (changes.size, self.attr.kind) {
            (None, _) => {}
            (Some(_), FileKind::Directory) => return Err(Errno::EISDIR),
            (Some(_), _) => return Err(Errno::EINVAL),
        }
        let mut inode = Inode { attr: self.attr, content: Content::Special };
        attributes::check_changes(who, &inode, changes)?;
        attributes::apply(who, &mut inode, changes, now);
        inode.touch(now);
        self.attr = inode.attr;
        Ok(())
    }
}

impl Transaction<'_> {
    /// The directory, the entry and the file of a name that is to go. A name may be without its file where one of
    /// several managers goes on from a backup: it is root's to remove.
    fn doomed(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
    ) -> Result<(Inode, Named, Option<Inode>), Errno> {
        let directory = self.directory_of(parent, name)?;
        if !directory.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        who.check(&directory.attr, EXECUTE)?;
        check_name(name)?;
        let Some(named) = self.named(directory.place(), name)? else {
            return Err(if matches!(name, b"." | b"..") { Errno::EINVAL } else { Errno::ENOENT });
        };
        who.check(&directory.attr, WRITE | EXECUTE)?;
        match self.inode(named.file) {
            Err(Errno::ESTALE) if who.is_root() => Ok((directory, named, None)),
            inode => {
                let inode = inode?;
                who.check_removal(&directory.attr, &inode.attr, false)?;
                Ok((directory, named, Some(inode)))
            }
        }
    }

    /// The file whose last name the operation took, if it has no bytes.
    pub(crate) fn take_unnamed(&mut self) -> Option<Unnamed> {
        self.changes.unnamed.take()
    }

    /// Removes a name of anything but a directory (RFC 1813 section 3.3.12).
    pub fn unlink(&mut self, who: &Who<'_>, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        let (mut directory, named, inode) = self.doomed(who, parent, name)?;
        if named.kind == FileKind::Directory {
            return Err(Errno::EISDIR);
        }
        self.delete_name(&mut directory, name, named.position);
        self.put_inode(&directory);
        inode.map_or(Ok(()), |inode| self.drop_link(inode))
    }

    /// Removes an empty directory (RFC 1813 section 3.3.13).
    pub fn remove_directory(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
    ) -> Result<(), Errno> {
        if name == b".." {
            return Err(Errno::ENOTEMPTY);
        }
        let (mut directory, named, inode) = self.doomed(who, parent, name)?;
        if named.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        // As after such a restore, too: root takes the name away of a directory that is in another one.
        let is_here = |inode: &Inode| {
            let is_in = |content: &Directory| content.parent == parent;
            !who.is_root() || inode.directory().is_some_and(is_in)
        };
        let inode = inode.filter(is_here);
        let entries = inode.as_ref().map_or(Ok(0), |inode| self.entries(inode))?;
        if entries > 0 && !self.bugs.has(Bug::FullDirectoryRemoved) {
            return Err(Errno::ENOTEMPTY);
        }
        self.delete_name(&mut directory, name, named.position);
        directory.attr.links -= 1;
        self.put_inode(&directory);
        inode.map_or(Ok(()), |inode| self.forget(&inode))
    }

    /// One name less; the file goes with the last one, or becomes an orphan while it is open.
    pub(crate) fn drop_link(&mut self, mut inode: Inode) -> Result<(), Errno> {
        inode.attr.links -= 1;
        inode.touch(self.now);
        if inode.attr.links > 0 {
            self.put_inode(&inode);
            return Ok(());
        }
        if !self.sites.has(inode.attr.file) {
            // Whether it is open is known there.
            self.act(Act::DropLink(inode.attr.file));
            self.changes.unnamed = Unnamed::of(&inode, self.now);
            return Ok(());
        }
        let open = self.opens.holders(inode.attr.file).next().is_some() || self.keep_orphans;
        if !open || self.bugs.has(Bug::OrphanRemovedEarly) {
            return self.forget(&inode);
        }
        self.put_inode(&inode);
        self.put_orphan(inode.attr.file);
        Ok(())
    }

    /// Makes the changes of a part of an operation that another manager has decided.
    pub(crate) fn apply_part(&mut self, part: &Part) -> Result<(), Errno> {
        for write in &part.writes {
            match &write.value {
                Some(value) => self.put(write.key.to_vec(), value.to_vec()),
                None => self.delete(write.key.to_vec()),
            }
        }
        for act in &part.acts {
            match act {
                Act::DropLink(file) => self.drop_link(self.inode(*file)?)?,
                Act::Forget(file) => self.forget_record(&self.inode(*file)?)?,
                Act::Count(file) => self.count_files(file.site(), 1)?,
            }
        }
        Ok(())
    }

    /// Removes files without a name that no client has open, no more at once than a batch takes; whether that was all.
    pub fn sweep_orphans(&mut self) -> Result<bool, Errno> {
        let mut gone = 0;
        for site in 0..=u8::MAX {
            for (key, _) in self.scan(&keys::table(site, Table::Orphan), None, usize::MAX)? {
                let file = keys::file_of(&key).ok_or(Errno::EIO)?;
                if self.opens.holders(file).next().is_some() {
                    continue;
                }
                self.forget(&self.inode(file)?)?;
                gone += 1;
                if gone == CHANGES_MAX || self.is_full() {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Nothing is left of a file but, while they may exist, the task to remove its objects.
    pub(crate) fn forget(&mut self, inode: &Inode) -> Result<(), Errno> {
        self.forget_buckets(inode);
        self.forget_record(inode)
    }

    fn forget_record(&mut self, inode: &Inode) -> Result<(), Errno> {
        let file = inode.attr.file;
        if !self.sites.has(file) {
            self.act(Act::Forget(file));
            self.changes.unnamed = Unnamed::of(inode, self.now);
            return Ok(());
        }
        self.delete(keys::inode(file));
        self.delete(keys::orphan(file));
        self.delete(keys::truncation(file));
        self.forget_restored(file)?;
        for (key, _) in self.scan(&keys::about(file, Table::Xattr), None, usize::MAX)? {
            self.delete(key);
        }
        if let Some(regular) = inode.regular().filter(|regular| regular.has_objects) {
            let (layout, truncations) = (regular.layout, regular.truncations);
            self.put(keys::removed(file), encoded(&Removed { layout, truncations }));
            self.effect(Effect::Removed(file));
        }
        self.changes.unnamed = Unnamed::of(inode, self.now);
        self.effect(Effect::Truncated(file));
        self.count_files(file.site(), -1)
    }

    /// Where the objects are that are to be removed; `None` when there is nothing to do any more.
    pub fn removed(&self, file: FileId) -> Result<Option<Removed>, Errno> {
        let value = self.get(&keys::removed(file))?;
        value.map(|value| Self::decoded(&value)).transpose()
    }

    /// As [`objects_removed`](Transaction::objects_removed), of as many of these files as a batch takes; how many of
    /// them, from the first on, are done.
    pub fn all_removed(&mut self, files: &[FileId], count: usize) -> Result<usize, Errno> {
        let mut done = 0;
        while done < files.len() && !self.is_full() && self.objects_removed(files[done], count)? {
            done += 1;
        }
        Ok(done)
    }

    /// The objects of a file are gone; its block map follows, at most `count` fragments at once. Whether all is done.
    pub fn objects_removed(&mut self, file: FileId, count: usize) -> Result<bool, Errno> {
        let fragments = self.scan(&keys::about(file, Table::Fragment), None, count)?;
        let done = fragments.len() < count;
        fragments.into_iter().for_each(|(key, _)| self.delete(key));
        if done {
            self.delete(keys::removed(file));
            self.effect(Effect::ObjectsRemoved(file));
        }
        Ok(done)
    }
}
