//! Who may do what: POSIX permission bits, with root above them.

use crate::limits::GROUPS_MAX;
use node::rings::Caller;
use wire::{Attr, Errno, FileKind};

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

/// Who asks, with supplementary groups when they are known.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// User.
    pub uid: u32,
    /// Group of new files.
    pub gid: u32,
    /// Supplementary groups, each as 4 bytes, lowest first; at most [`GROUPS_MAX`].
    groups: &'a [u8],
}

impl From<&Caller> for Who<'static> {
    fn from(caller: &Caller) -> Who<'static> {
        Who { uid: caller.uid, gid: caller.gid, groups: &[] }
    }
}

impl<'a> Who<'a> {
    /// The superuser.
    pub const ROOT: Who<'static> = Who { uid: 0, gid: 0, groups: &[] };

    /// A user with supplementary groups, each as 4 bytes, lowest first; what is beyond [`GROUPS_MAX`] is left out.
    pub fn new(uid: u32, gid: u32, groups: &'a [u8]) -> Who<'a> {
        Who { uid, gid, groups: &groups[..groups.len().min(GROUPS_MAX * 4) & !3] }
    }

    pub(crate) fn groups(&self) -> &'a [u8] {
        self.groups
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.chunks_exact(4).any(|group| group == gid.to_le_bytes())
    }

    pub(crate) fn owns(&self, attr: &Attr) -> bool {
        self.is_root() || self.uid == attr.uid
    }

    /// Whether all of `mask` is permitted.
    pub(crate) fn may(&self, attr: &Attr, mask: u32) -> bool {
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

    /// EACCES unless all of `mask` is permitted.
    pub(crate) fn check(&self, attr: &Attr, mask: u32) -> Result<(), Errno> {
        if self.may(attr, mask) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// EPERM unless the caller owns the file.
    pub(crate) fn check_owner(&self, attr: &Attr) -> Result<(), Errno> {
        if self.owns(attr) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether a name of `file` may be taken out of `directory`: write and search permission, and in a sticky
    /// directory owning either.
    pub(crate) fn check_removal(&self, directory: &Attr, file: &Attr) -> Result<(), Errno> {
        self.check(directory, WRITE | EXECUTE)?;
        let sticky = directory.mode & STICKY != 0;
        if sticky && !self.owns(file) && !self.owns(directory) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// The mode that a chmod to `mode` gives: only a member of its group makes a file set-group-id.
    pub(crate) fn permitted_mode(&self, mode: u32, gid: u32) -> u32 {
        if self.is_root() || self.in_group(gid) { mode } else { mode & !SET_GID }
    }
}

/// `mode` after a change of owner or of contents: a program does not keep rights that its new owner or contents
/// were not given. Set-group-id without group execution means mandatory locking and stays.
pub(crate) fn without_set_id(mode: u32) -> u32 {
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
        let check = |uid| Who::new(uid, 0, &[]).check_removal(&directory, &file);
        assert_eq!(check(10), Ok(()));
        assert_eq!(check(1), Ok(()));
        assert_eq!(check(0), Ok(()));
        assert_eq!(check(11), Err(Errno::EPERM));
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
