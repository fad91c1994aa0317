//! Making files: create, directories, symbolic links, nodes, hard links.

use crate::keys;
use crate::limits::{LINKS_MAX, SYMLINK_BYTES_MAX};
use crate::lookup::{Entry, check_name};
use crate::permissions::{EXECUTE, READ, WRITE, Who, inherited};
use crate::record::{Content, Directory, Inode, Policy, Regular};
use crate::transaction::Transaction;
use node::Bug;
use wire::{Attr, Errno, FileId, FileKind, Wall};

/// Behaviour of `create` when the name exists (RFC 1813 section 3.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Takes the existing file.
    Unchecked,
    /// Fails with EEXIST.
    Guarded,
    /// As guarded, but a file made with this verifier, which is not 0, is success: a retry finds its own work.
    Exclusive(u64),
}

/// A file to be made.
struct New {
    kind: FileKind,
    mode: u32,
    rdev: u32,
    verifier: u64,
    target: Option<Box<[u8]>>,
}

impl New {
    fn of(kind: FileKind, mode: u32) -> New {
        New { kind, mode, rdev: 0, verifier: 0, target: None }
    }
}

impl Transaction<'_> {
    /// The directory in which `name` may be made; EEXIST when it is there.
    fn directory_for(&self, who: &Who<'_>, parent: FileId, name: &[u8]) -> Result<Inode, Errno> {
        let directory = self.directory_of(parent, name)?;
        if !directory.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        who.check(&directory.attr, EXECUTE)?;
        check_name(name)?;
        if matches!(name, b"." | b"..") || self.named(directory.place(), name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        who.check(&directory.attr, WRITE | EXECUTE)?;
        Ok(directory)
    }

    /// Makes a regular file and, when `open` says with which permissions, opens it. Whether it was made comes with it.
    pub fn create(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        mode: u32,
        how: How,
        open: Option<u32>,
    ) -> Result<(Entry, bool), Errno> {
        let directory = match self.directory_for(who, parent, name) {
            Err(Errno::EEXIST) if how != How::Guarded => {
                let entry = self.take_existing(who, parent, name, how, open)?;
                return Ok((entry, false));
            }
            directory => directory?,
        };
        let verifier = if let How::Exclusive(verifier) = how { verifier } else { 0 };
        let new = New { verifier, ..New::of(FileKind::Regular, mode) };
        let mut inode = self.make(who, directory, name, new)?;
        if let Some(mask) = open {
            self.hold(&mut inode, who, mask & WRITE != 0);
            self.put_inode(&inode);
        }
        Ok((self.entry_of(&inode), true))
    }

    fn take_existing(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        how: How,
        open: Option<u32>,
    ) -> Result<Entry, Errno> {
        let place = self.directory_of(parent, name)?.place();
        let named = self.named(place, name)?.ok_or(Errno::EISDIR)?;
        if who.is_decided() && how == How::Unchecked {
            // Its kernel took the name for a free one and has not checked what may be done with this file, or where
            // this link leads: it is to look again.
            return Err(Errno::ESTALE);
        }
        let mut inode = self.inode(named.file)?;
        if inode.is_directory() && how == How::Unchecked {
            return Err(Errno::EISDIR);
        }
        let regular = inode.regular().ok_or(Errno::EEXIST)?;
        let is_any = self.bugs.has(Bug::ExclusiveTwice);
        let is_own = |verifier: u64| regular.verifier == verifier || is_any;
        match how {
            How::Exclusive(verifier) if is_own(verifier) && verifier != 0 => {
                if let Some(mask) = open {
                    self.hold(&mut inode, who, mask & WRITE != 0);
                    self.put_inode(&inode);
                }
                Ok(self.entry_of(&inode))
            }
            How::Unchecked => match open {
                Some(mask) => self.open(who, named.file, mask),
                None => Ok(self.entry_of(&inode)),
            },
            _ => Err(Errno::EEXIST),
        }
    }

    /// Makes a directory (RFC 1813 section 3.3.9).
    pub fn make_directory(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        mode: u32,
    ) -> Result<Entry, Errno> {
        let directory = self.directory_for(who, parent, name)?;
        if directory.attr.links >= LINKS_MAX {
            return Err(Errno::EMLINK);
        }
        let inode = self.make(who, directory, name, New::of(FileKind::Directory, mode))?;
        Ok(self.entry_of(&inode))
    }

    /// Makes a symbolic link (RFC 1813 section 3.3.10).
    pub fn symlink(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Entry, Errno> {
        match target.len() {
            0 => return Err(Errno::ENOENT),
            1..=SYMLINK_BYTES_MAX => {}
            _ => return Err(Errno::ENAMETOOLONG),
        }
        let directory = self.directory_for(who, parent, name)?;
        let new = New { target: Some(target.into()), ..New::of(FileKind::Symlink, 0o777) };
        let inode = self.make(who, directory, name, new)?;
        Ok(self.entry_of(&inode))
    }

    /// Makes a node of the kind in `mode`; no kind is a regular file (RFC 1813 section 3.3.11). A directory is an
    /// import's own: `rdev` is the import's number then, and all that is made below it belongs to that.
    pub fn make_node(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry, Errno> {
        let kind = match mode & 0o170000 {
            0 => FileKind::Regular,
            bits => FileKind::of_mode(bits).ok_or(Errno::EINVAL)?,
        };
        let directory = self.directory_for(who, parent, name)?;
        let device = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
        match kind {
            FileKind::Directory if rdev == 0 || !who.may_all() => return Err(Errno::EPERM),
            FileKind::Directory if directory.attr.import().is_some() => return Err(Errno::EXDEV),
            FileKind::Directory => {}
            FileKind::Symlink => return Err(Errno::EINVAL),
            _ if device && !who.may_all() => return Err(Errno::EPERM),
            _ => {}
        }
        let is_kept = device || kind == FileKind::Directory;
        let new = New { rdev: if is_kept { rdev } else { 0 }, ..New::of(kind, mode) };
        let inode = self.make(who, directory, name, new)?;
        Ok(self.entry_of(&inode))
    }

    /// Another name of a file (RFC 1813 section 3.3.15).
    pub fn link(
        &mut self,
        who: &Who<'_>,
        file: FileId,
        parent: FileId,
        name: &[u8],
    ) -> Result<Entry, Errno> {
        let mut inode = self.inode(file)?;
        let mut directory = self.directory_for(who, parent, name)?;
        match inode.attr {
            Attr { kind: FileKind::Directory, .. } => return Err(Errno::EPERM),
            Attr { links: 0, .. } if !self.may_name(who, file) => return Err(Errno::ENOENT),
            Attr { links, .. } if links >= LINKS_MAX => return Err(Errno::EMLINK),
            _ => {}
        }
        if inode.attr.import() != directory.attr.import() {
            return Err(Errno::EXDEV);
        }
        if inode.attr.links == 0 {
            self.delete(keys::orphan(file));
        }
        inode.attr.links += 1;
        inode.touch(self.now);
        self.put_inode(&inode);
        self.insert_name(&mut directory, name, file, inode.attr.kind);
        self.put_inode(&directory);
        Ok(self.entry_of(&inode))
    }

    /// Whether a file without a name may be given one: by who has it open, when its kernel has decided that it may.
    /// Only that knows a file which was made without a name from one that has lost it.
    fn may_name(&self, who: &Who<'_>, file: FileId) -> bool {
        let is_open = match self.sites.has(file) {
            true => !self.opens.get(file, self.client).is_empty(),
            false => self.foreign.is_open(file),
        };
        who.is_decided() && is_open
    }

    /// Makes a regular file without a name and opens it, as open(2) with O_TMPFILE: it goes with its last close unless
    /// it is linked before.
    pub fn create_unnamed(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        mode: u32,
        mask: u32,
    ) -> Result<Entry, Errno> {
        let directory = self.inode(parent)?;
        if !directory.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        who.check(&directory.attr, WRITE | EXECUTE)?;
        let mut inode = self.new_inode(who, &directory, b"", New::of(FileKind::Regular, mode))?;
        inode.attr.links = 0;
        self.hold(&mut inode, who, mask & WRITE != 0);
        self.put_inode(&inode);
        if mask & WRITE != 0 {
            self.put_orphan(inode.attr.file); // an open for reading has put it
        }
        Ok(self.entry_of(&inode))
    }

    /// Makes the file and its name; every check but that for servers is done.
    fn make(
        &mut self,
        who: &Who<'_>,
        mut directory: Inode,
        name: &[u8],
        new: New,
    ) -> Result<Inode, Errno> {
        let inode = self.make_in(who, &mut directory, name, new)?;
        self.put_inode(&directory);
        Ok(inode)
    }

    /// The mark that overlayfs reads as "removed"; a user who may take the old name may leave it. The caller puts the
    /// directory.
    pub(crate) fn put_whiteout(
        &mut self,
        who: &Who<'_>,
        directory: &mut Inode,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.make_in(who, directory, name, New::of(FileKind::CharDevice, 0)).map(drop)
    }

    fn make_in(
        &mut self,
        who: &Who<'_>,
        directory: &mut Inode,
        name: &[u8],
        new: New,
    ) -> Result<Inode, Errno> {
        let inode = self.new_inode(who, directory, name, new)?;
        self.put_inode(&inode);
        self.insert_name(directory, name, inode.attr.file, inode.attr.kind);
        if inode.is_directory() {
            directory.attr.links += 1;
        }
        Ok(inode)
    }

    /// A new file as one called `name` in `directory` is.
    fn new_inode(
        &mut self,
        who: &Who<'_>,
        directory: &Inode,
        name: &[u8],
        new: New,
    ) -> Result<Inode, Errno> {
        let parent = directory.attr.file;
        let policy = directory.directory().ok_or(Errno::ENOTDIR)?.policy.clone();
        let site = match new.kind {
            FileKind::Directory => self.site_for(&policy, directory.place(), name),
            _ => directory.place().site,
        };
        let file = self.new_file(site)?;
        let content = self.content_of(&new, file, parent, policy)?;
        let (mode, gid) = inherited(who, &directory.attr, new.kind, new.mode);
        let mut attr = Attr { file, kind: new.kind, mode, uid: who.uid, gid, ..Attr::default() };
        // what is no device belongs to the directory's import
        let is_device = matches!(new.kind, FileKind::BlockDevice | FileKind::CharDevice);
        attr.rdev = if is_device || new.rdev != 0 { new.rdev } else { directory.attr.rdev };
        attr.links = if new.kind == FileKind::Directory { 2 } else { 1 };
        attr.size = new.target.map_or(0, |target| target.len() as u64);
        (attr.atime, attr.mtime, attr.ctime) = (self.now, self.now, self.now);
        Ok(Inode { attr, content })
    }

    fn content_of(
        &self,
        new: &New,
        file: FileId,
        parent: FileId,
        policy: Policy,
    ) -> Result<Content, Errno> {
        Ok(match (new.kind, &new.target) {
            (FileKind::Regular, _) => {
                let layout = policy.layout(self.servers, self.columns_max, file.serial());
                let layout = layout.ok_or(Errno::EHOSTDOWN)?;
                Content::Regular(Regular {
                    layout,
                    truncations: 0,
                    verifier: new.verifier,
                    has_objects: false,
                    mtime_set: Wall::default(),
                    fence: 0,
                    present: 0,
                })
            }
            (FileKind::Directory, _) => Content::Directory(Directory::new(parent, policy)),
            (FileKind::Symlink, Some(target)) => Content::Symlink(target.clone()),
            _ => Content::Special,
        })
    }

    /// As [`open`](Transaction::open) by a name; ESTALE when that is not the file's (any more).
    pub fn open_named(
        &mut self,
        who: &Who<'_>,
        parent: FileId,
        name: &[u8],
        file: FileId,
        mask: u32,
    ) -> Result<Entry, Errno> {
        match self.named(self.place_of(parent, name), name)? {
            Some(named) if named.file == file => self.open(who, file, mask),
            _ => Err(Errno::ESTALE),
        }
    }

    /// Opens a file: checks `mask` ([`READ`], [`WRITE`], [`EXECUTE`]) and remembers the client; with [`WRITE`] as a
    /// write session.
    pub fn open(&mut self, who: &Who<'_>, file: FileId, mask: u32) -> Result<Entry, Errno> {
        let mut inode = self.inode(file)?;
        if inode.is_directory() && mask & WRITE != 0 {
            return Err(Errno::EISDIR);
        }
        who.check(&inode.attr, mask & (READ | WRITE | EXECUTE))?;
        if !inode.is_directory() && self.hold(&mut inode, who, mask & WRITE != 0) {
            self.put_inode(&inode);
        }
        Ok(self.entry_of(&inode))
    }
}
