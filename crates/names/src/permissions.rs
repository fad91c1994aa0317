//! Permissions: POSIX permission bits, with root above them.
//!
//! The kernel of a mount has decided for its callers already, by groups, capabilities and user namespaces that are
//! known there alone. Here is decided what it could not know: names that it did not look at, because another client has
//! changed them meanwhile.

use crate::limits::GROUPS_MAX;
use node::rings::{Caller, Rights};
use wire::{Attr, Errno, FileId, FileKind};

/// Read permission, as in access(2).
pub const READ: u32 = 4;
/// Write permission.
pub const WRITE: u32 = 2;
/// Permission to execute, or to search a directory.
pub const EXECUTE: u32 = 1;

pub(crate) const SET_UID: u32 = 0o4000;
pub(crate) const SET_GID: u32 = 0o2000;
pub(crate) const STICKY: u32 = 0o1000;
const GROUP_EXECUTE: u32 = 0o010;

/// The caller, and the basis of its permissions.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// User.
    pub uid: u32,
    /// Group of new files.
    pub gid: u32,
    basis: Basis<'a>,
}

/// The basis of a caller's permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis<'a> {
    /// Supplementary groups, each as 4 bytes, lowest first; at most [`GROUPS_MAX`].
    Groups(&'a [u8]),
    /// The decision of a mount's kernel, which took the names that are to go for these files; 0 is none or unknown.
    Kernel([FileId; 2]),
}

/// The file of a name that the kernel did not look at, as far as is known.
const UNSEEN: FileId = FileId(0);

impl<'a> From<&'a Caller> for Who<'a> {
    fn from(caller: &'a Caller) -> Who<'a> {
        match &caller.rights {
            Rights::Groups(groups) => Who::new(caller.uid, caller.gid, groups),
            Rights::Kernel => Who::decided(caller.uid, caller.gid),
        }
    }
}

impl<'a> Who<'a> {
    /// The superuser.
    pub const ROOT: Who<'static> = Who { uid: 0, gid: 0, basis: Basis::Groups(&[]) };

    /// A user with supplementary groups, each as 4 bytes, lowest first; what is beyond [`GROUPS_MAX`] is left out.
    pub fn new(uid: u32, gid: u32, groups: &'a [u8]) -> Who<'a> {
        let groups = &groups[..groups.len().min(GROUPS_MAX * 4) & !3];
        Who { uid, gid, basis: Basis::Groups(groups) }
    }

    /// A process whose kernel has decided that it may.
    pub fn decided(uid: u32, gid: u32) -> Who<'static> {
        Who { uid, gid, basis: Basis::Kernel([UNSEEN; 2]) }
    }

    /// The same. Where its kernel has decided, it took the names that are to go or to be replaced for these files.
    pub fn having_seen(self, files: [Option<FileId>; 2]) -> Who<'a> {
        let basis = match self.basis {
            Basis::Kernel(_) => Basis::Kernel(files.map(|file| file.unwrap_or(UNSEEN))),
            groups => groups,
        };
        Who { basis, ..self }
    }

    /// Supplementary groups, each as 4 bytes; none where a kernel has decided, which does not tell them.
    pub fn groups(&self) -> &'a [u8] {
        match self.basis {
            Basis::Groups(groups) => groups,
            Basis::Kernel(_) => &[],
        }
    }

    pub(crate) fn with_basis(uid: u32, gid: u32, basis: Basis<'a>) -> Who<'a> {
        Who { uid, gid, basis }
    }

    pub(crate) fn basis(&self) -> Basis<'a> {
        self.basis
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether its kernel has decided that it may.
    pub(crate) fn is_decided(&self) -> bool {
        matches!(self.basis, Basis::Kernel(_))
    }

    /// Whether nothing is left to be decided here by its permissions.
    pub(crate) fn may_all(&self) -> bool {
        self.is_root() || self.is_decided()
    }

    pub(crate) fn in_group(&self, gid: u32) -> bool {
        let Basis::Groups(groups) = self.basis else { return self.gid == gid };
        self.gid == gid || groups.chunks_exact(4).any(|group| group == gid.to_le_bytes())
    }

    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        self.may_all() || self.uid == attr.uid
    }

    /// Whether all of `mask` is permitted.
    pub(crate) fn may(&self, attr: &Attr, mask: u32) -> bool {
        if self.is_decided() {
            return true;
        }
        if self.is_root() {
            let runs = attr.kind == FileKind::Directory || attr.mode & 0o111 != 0;
            return mask & EXECUTE == 0 || runs;
        }
        let class = match () {
            _ if self.uid == attr.uid => 6,
            _ if self.in_group(attr.gid) => 3,
            _ => 0,
        };
        mask & !(attr.mode >> class) & 7 == 0
    }

    /// All that is permitted, of [`READ`], [`WRITE`] and [`EXECUTE`].
    pub fn granted(&self, attr: &Attr) -> u32 {
        [READ, WRITE, EXECUTE].into_iter().filter(|mask| self.may(attr, *mask)).sum()
    }

    /// EACCES unless all of `mask` is permitted.
    pub(crate) fn check(&self, attr: &Attr, mask: u32) -> Result<(), Errno> {
        if self.may(attr, mask) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// EPERM unless the caller owns the file.
    pub(crate) fn check_owner(&self, attr: &Attr) -> Result<(), Errno> {
        if self.owns(attr) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether a name of `file` may be taken out of `directory`: write and search permission, and in a sticky
    /// directory owning either. It is the first or the second name that is to go.
    ///
    /// A kernel may have decided about another file, which had the name before: ESTALE, and it looks again.
    pub(crate) fn check_removal(
        &self,
        directory: &Attr,
        file: &Attr,
        second: bool,
    ) -> Result<(), Errno> {
        self.check(directory, WRITE | EXECUTE)?;
        let owner = self.is_root() || self.uid == file.uid || self.uid == directory.uid;
        if directory.mode & STICKY == 0 || owner {
            return Ok(());
        }
        let Basis::Kernel(seen) = self.basis else { return Err(Errno::EPERM) };
        // A file with several names is looked up before each use of one, so what is unknown of it was just seen.
        let several = file.kind != FileKind::Directory && file.links > 1;
        match seen[usize::from(second)] {
            seen if seen == file.file => Ok(()),
            UNSEEN if several => Ok(()),
            _ => Err(Errno::ESTALE),
        }
    }

    /// The mode that a chmod to `mode` gives: only a member of its group makes a file set-group-id.
    pub(crate) fn permitted_mode(&self, mode: u32, gid: u32) -> u32 {
        if self.may_all() || self.in_group(gid) { mode } else { mode & !SET_GID }
    }
}

/// `mode` after a change of owner or of contents: a program does not keep rights that its new owner or contents
/// were not given. Set-group-id without group execution means mandatory locking and stays.
pub fn without_set_id(mode: u32) -> u32 {
    let mode = mode & !SET_UID;
    if mode & GROUP_EXECUTE != 0 { mode & !SET_GID } else { mode }
}

/// Mode and group of a new file of `kind` in `directory`: a set-group-id directory gives its group, and to
/// directories the bit too.
pub(crate) fn inherited(who: &Who<'_>, directory: &Attr, kind: FileKind, mode: u32) -> (u32, u32) {
    let mode = mode & 0o7777;
    if directory.mode & SET_GID == 0 {
        return (mode, who.gid);
    }
    if kind == FileKind::Directory {
        return (mode | SET_GID, directory.gid);
    }
    let program = mode & (SET_GID | GROUP_EXECUTE) == SET_GID | GROUP_EXECUTE;
    let mode = if program { who.permitted_mode(mode, directory.gid) } else { mode };
    (mode, directory.gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(mode: u32, kind: FileKind) -> Attr {
        Attr { kind, mode, uid: 10, gid: 20, ..Attr::default() }
    }

    #[test]
    fn one_class_decides() {
        let groups = 20u32.to_le_bytes();
        let (owner, member) = (Who::new(10, 1, &[]), Who::new(11, 1, &groups));
        let (other, root) = (Who::new(12, 2, &[]), Who::ROOT);
        let table = [
            (0o077, READ, [false, true, true, true]),
            (0o705, READ | EXECUTE, [true, false, true, true]),
            (0o750, READ | EXECUTE, [true, true, false, true]),
            (0o000, WRITE, [false, false, false, true]),
            (0o666, EXECUTE, [false, false, false, false]),
            (0o001, EXECUTE, [false, false, true, true]),
        ];
        for (mode, mask, expected) in table {
            let attr = attr(mode, FileKind::Regular);
            let may = [owner, member, other, root].map(|who| who.may(&attr, mask));
            assert_eq!(may, expected, "{mode:o} {mask}");
        }
        assert!(root.may(&attr(0, FileKind::Directory), EXECUTE));
    }

    #[test]
    fn sticky_directories_protect_names() {
        let directory = Attr { uid: 1, ..attr(0o1777, FileKind::Directory) };
        let file = attr(0o666, FileKind::Regular);
        let check = |uid| Who::new(uid, 0, &[]).check_removal(&directory, &file, false);
        assert_eq!(check(10), Ok(()));
        assert_eq!(check(1), Ok(()));
        assert_eq!(check(0), Ok(()));
        assert_eq!(check(11), Err(Errno::EPERM));
    }

    #[test]
    fn a_kernel_decides_but_about_the_file_that_it_has_seen() {
        let directory = Attr { uid: 1, ..attr(0o1777, FileKind::Directory) };
        let file = Attr { file: FileId(7), links: 1, ..attr(0, FileKind::Regular) };
        let user = Who::decided(11, 11);
        assert!(user.may(&file, READ | WRITE) && user.owns(&file));
        let check = |seen, file: &Attr| {
            user.having_seen([Some(FileId(9)), seen]).check_removal(&directory, file, true)
        };
        assert_eq!(check(Some(FileId(7)), &file), Ok(()));
        assert_eq!(check(Some(FileId(8)), &file), Err(Errno::ESTALE));
        assert_eq!(check(None, &file), Err(Errno::ESTALE));
        assert_eq!(check(None, &Attr { links: 2, ..file }), Ok(()));
        assert_eq!(check(Some(FileId(8)), &Attr { links: 2, ..file }), Err(Errno::ESTALE));
        let owner = Who::decided(10, 11);
        assert_eq!(owner.check_removal(&directory, &file, false), Ok(()));
        let own = Attr { mode: 0o755, ..directory };
        assert_eq!(user.check_removal(&own, &file, false), Ok(()));
        let listed = Who::new(11, 11, &[]).having_seen([Some(FileId(7)); 2]);
        assert_eq!(listed.check_removal(&directory, &file, false), Err(Errno::EPERM));
    }

    #[test]
    fn set_id_bits() {
        assert_eq!(without_set_id(0o6755), 0o755);
        assert_eq!(without_set_id(0o6745), 0o2745);
        let directory = Attr { gid: 5, ..attr(0o2777, FileKind::Directory) };
        let stranger = Who::new(9, 9, &[]);
        assert_eq!(inherited(&stranger, &directory, FileKind::Directory, 0o755), (0o2755, 5));
        assert_eq!(inherited(&stranger, &directory, FileKind::Regular, 0o2755), (0o755, 5));
        assert_eq!(inherited(&stranger, &directory, FileKind::Regular, 0o2745), (0o2745, 5));
    }
}
