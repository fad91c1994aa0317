//! Finding files and looking at them: what changes nothing.

use crate::permissions::{EXECUTE, Who};
use crate::record::{Content, Inode};
use crate::transaction::Transaction;
use wire::limits::NAME_BYTES_MAX;
use wire::{Attr, Errno, FileId, Layout};

/// A file as its users see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Attributes.
    pub attr: Attr,
    /// Of a regular file, where its bytes are.
    pub layout: Option<Layout>,
    /// Of a regular file, the truncate generation that writes must carry.
    pub truncations: u32,
    /// Another client may be writing: length and modification time are hints, the objects know.
    pub writers: bool,
    /// No other client writes, but the manager was started anew while the asker had the file open: the same.
    pub unsure: bool,
}

/// A file that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LookedUp {
    pub file: FileId,
    /// Its entry; without it, it is at another manager.
    pub entry: Option<Entry>,
}

impl Entry {
    /// Whether length and modification time are hints.
    pub fn is_hint(&self) -> bool {
        self.writers || self.unsure
    }
}

/// ENAMETOOLONG, ENOENT or EINVAL for what no directory can hold.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        0 => Err(Errno::ENOENT),
        1..=NAME_BYTES_MAX if name.contains(&0) || name.contains(&b'/') => Err(Errno::EINVAL),
        1..=NAME_BYTES_MAX => Ok(()),
        _ => Err(Errno::ENAMETOOLONG),
    }
}

impl Transaction<'_> {
    /// The entry of a file (RFC 1813 section 3.3.1); of a hashed directory as far as it is at this manager.
    pub fn get_attr(&self, file: FileId) -> Result<Entry, Errno> {
        if self.hashed.has(file) {
            let share = self.share(file)?;
            return share.entry().or(share.own).ok_or(Errno::EREMOTE);
        }
        Ok(self.entry_of(&self.inode(file)?))
    }

    /// The entry of `inode` as users see it.
    pub(crate) fn entry_of(&self, inode: &Inode) -> Entry {
        let regular = inode.regular();
        Entry {
            attr: inode.attr,
            layout: regular.map(|regular| regular.layout),
            truncations: regular.map_or(0, |regular| regular.truncations),
            writers: regular.is_some() && self.opens.written_beside(inode.attr.file, self.client),
            unsure: self.opens.get(inode.attr.file, self.client).restored,
        }
    }

    /// The file called `name` in `parent` (RFC 1813 section 3.3.3); `.` and `..` are found too. EREMOTE for one that is
    /// at another manager.
    pub fn lookup(&self, who: &Who<'_>, parent: FileId, name: &[u8]) -> Result<Entry, Errno> {
        self.find(who, parent, name)?.entry.ok_or(Errno::EREMOTE)
    }

    /// The same, without attributes where another manager has them.
    pub(crate) fn find(
        &self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
    ) -> Result<LookedUp, Errno> {
        let is_dots = matches!(name, b"." | b"..");
        let inode = if is_dots { self.inode(parent) } else { self.directory_of(parent, name) }?;
        let directory = inode.directory().ok_or(Errno::ENOTDIR)?;
        who.check(&inode.attr, EXECUTE)?;
        check_name(name)?;
        let file = match name {
            b"." => parent,
            b".." => directory.parent,
            _ => self.named(inode.place(), name)?.ok_or(Errno::ENOENT)?.file,
        };
        Ok(LookedUp { file, entry: self.entry_here(file)? })
    }

    /// The entry of a file, unless other managers are to be asked for it.
    pub(crate) fn entry_here(&self, file: FileId) -> Result<Option<Entry>, Errno> {
        let is_here = self.sites.is_alone() || self.sites.has(file) && !self.hashed.has(file);
        if is_here { self.get_attr(file).map(Some) } else { Ok(None) }
    }

    /// EACCES unless all of `mask` is permitted (RFC 1813 section 3.3.4).
    pub fn access(&self, who: &Who<'_>, file: FileId, mask: u32) -> Result<(), Errno> {
        who.check(&self.inode(file)?.attr, mask)
    }

    /// The path in a symbolic link (RFC 1813 section 3.3.5).
    pub fn read_link(&self, file: FileId) -> Result<Box<[u8]>, Errno> {
        match self.inode(file)?.content {
            Content::Symlink(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }
}
