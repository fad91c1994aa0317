//! Extended attributes, with the name spaces and errors of Linux (xattr(7)).

use crate::keys::{self, Table};
use crate::limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_MAX};
use crate::permissions::{READ, STICKY, WRITE, Who};
use crate::record::Inode;
use crate::transaction::Transaction;
use wire::{Errno, FileId, FileKind};

/// Fails with EEXIST when the attribute exists (Linux `XATTR_CREATE`).
pub const CREATE: u32 = 1;
/// Fails with ENODATA when it does not (Linux `XATTR_REPLACE`).
pub const REPLACE: u32 = 2;

/// Users of an attribute, by its name space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
}

impl Space {
    fn of(name: &[u8]) -> Result<Space, Errno> {
        let spaces: [(&[u8], Space); 3] = [
            (b"user.", Space::User),
            (b"trusted.", Space::Trusted),
            (b"security.", Space::Security),
        ];
        let space = spaces.iter().find(|(prefix, _)| name.starts_with(prefix));
        let (prefix, space) = space.ok_or(Errno::EOPNOTSUPP)?;
        match name.len() {
            len if len == prefix.len() || name.contains(&0) => Err(Errno::EINVAL),
            len if len > XATTR_NAME_BYTES_MAX => Err(Errno::ERANGE),
            _ => Ok(*space),
        }
    }

    fn check_read(self, who: &Who<'_>, inode: &Inode) -> Result<(), Errno> {
        match self {
            Space::User if !carries_user(inode) => Err(Errno::ENODATA),
            Space::User => who.check(&inode.attr, READ),
            Space::Trusted if !who.may_all() => Err(Errno::ENODATA),
            _ => Ok(()),
        }
    }

    fn check_write(self, who: &Who<'_>, inode: &Inode) -> Result<(), Errno> {
        let sticky = inode.is_directory() && inode.attr.mode & STICKY != 0;
        match self {
            Space::User if !carries_user(inode) => Err(Errno::EPERM),
            Space::User if sticky && !who.owns(&inode.attr) => Err(Errno::EPERM),
            Space::User => who.check(&inode.attr, WRITE),
            _ if who.may_all() => Ok(()),
            _ => Err(Errno::EPERM),
        }
    }
}

/// Only regular files and directories carry attributes of users: of the others, all users may write.
fn carries_user(inode: &Inode) -> bool {
    matches!(inode.attr.kind, FileKind::Regular | FileKind::Directory)
}

impl Transaction<'_> {
    /// The value of an attribute; ENODATA when there is none.
    pub fn get_xattr(&self, who: &Who<'_>, file: FileId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let space = Space::of(name)?;
        space.check_read(who, &self.inode(file)?)?;
        self.get(&keys::xattr(file, name))?.ok_or(Errno::ENODATA)
    }

    /// Gives an attribute a value; `flags` is 0, [`CREATE`] or [`REPLACE`].
    pub fn set_xattr(
        &mut self,
        who: &Who<'_>,
        file: FileId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let space = Space::of(name)?;
        let mut inode = self.inode(file)?;
        space.check_write(who, &inode)?;
        let exists = self.get(&keys::xattr(file, name))?.is_some();
        match flags {
            0 => {}
            CREATE if exists => return Err(Errno::EEXIST),
            REPLACE if !exists => return Err(Errno::ENODATA),
            CREATE | REPLACE => {}
            _ => return Err(Errno::EINVAL),
        }
        if value.len() > XATTR_VALUE_BYTES_MAX || (!exists && self.xattrs_full(file)?) {
            return Err(Errno::ENOSPC);
        }
        self.put(keys::xattr(file, name), value.to_vec());
        inode.touch(self.now);
        self.put_inode(&inode);
        Ok(())
    }

    fn xattrs_full(&self, file: FileId) -> Result<bool, Errno> {
        let found = self.scan(&keys::about(file, Table::Xattr), None, XATTRS_MAX)?;
        Ok(found.len() == XATTRS_MAX)
    }

    /// The names of all attributes the caller may know of, each followed by a zero.
    pub fn list_xattr(&self, who: &Who<'_>, file: FileId) -> Result<Vec<u8>, Errno> {
        self.inode(file)?;
        let mut names = Vec::new();
        for (key, _) in self.scan(&keys::about(file, Table::Xattr), None, XATTRS_MAX)? {
            let name = &key[keys::ABOUT_BYTES..];
            if who.is_root() || !name.starts_with(b"trusted.") {
                names.extend_from_slice(name);
                names.push(0);
            }
        }
        Ok(names)
    }

    /// Takes an attribute away; ENODATA when there is none.
    pub fn remove_xattr(&mut self, who: &Who<'_>, file: FileId, name: &[u8]) -> Result<(), Errno> {
        let space = Space::of(name)?;
        let mut inode = self.inode(file)?;
        space.check_write(who, &inode)?;
        self.get(&keys::xattr(file, name))?.ok_or(Errno::ENODATA)?;
        self.delete(keys::xattr(file, name));
        inode.touch(self.now);
        self.put_inode(&inode);
        Ok(())
    }
}
