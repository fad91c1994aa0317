//! Attributes of files as users see them, kinds, error numbers. The meanings are NFSv3's (RFC 1813 section 2.5).

use crate::ids::FileId;

/// Kind of a file (RFC 1813 `ftype3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Bytes in objects.
    #[default]
    Regular = 1,
    /// A list of names.
    Directory = 2,
    /// A block device of some client.
    BlockDevice = 3,
    /// A character device of some client.
    CharDevice = 4,
    /// A path.
    Symlink = 5,
    /// A socket of some client.
    Socket = 6,
    /// A named pipe of some client.
    Fifo = 7,
}

impl FileKind {
    /// The kind with this number.
    pub fn parse(number: u8) -> Option<FileKind> {
        use FileKind::*;
        let all = [Regular, Directory, BlockDevice, CharDevice, Symlink, Socket, Fifo];
        all.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The file-type bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => 0o100000,
            FileKind::Directory => 0o040000,
            FileKind::BlockDevice => 0o060000,
            FileKind::CharDevice => 0o020000,
            FileKind::Symlink => 0o120000,
            FileKind::Socket => 0o140000,
            FileKind::Fifo => 0o010000,
        }
    }

    /// The kind in the file-type bits of a mode; `None` when they name none.
    pub fn of_mode(mode: u32) -> Option<FileKind> {
        (1..=7).filter_map(FileKind::parse).find(|kind| kind.mode_bits() == mode & 0o170000)
    }
}

/// A point of wall-clock time: seconds since 1970 and nanoseconds below a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

impl Wall {
    /// So many nanoseconds since 1970, negative before.
    pub fn of_nanos(nanos: i128) -> Wall {
        let second = 1_000_000_000;
        Wall { seconds: nanos.div_euclid(second) as i64, nanos: nanos.rem_euclid(second) as u32 }
    }

    /// Nanoseconds since 1970, negative before.
    pub fn since_epoch(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// The file; also its inode number.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky bits: the low 12 of `st_mode`.
    pub mode: u32,
    /// Names of the file; of a directory, 2 and one for each directory in it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device; of others the import that they belong to, 0 where none: see [`Attr::import`].
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Last read, loosely kept.
    pub atime: Wall,
    /// Last change of the contents.
    pub mtime: Wall,
    /// Last change of the attributes.
    pub ctime: Wall,
    /// Grows with every change of contents or attributes.
    pub change: u64,
}

impl Attr {
    /// Bytes that its encoding takes.
    pub const BYTES: usize = 8 + 1 + 5 * 4 + 2 * 8 + 3 * 12 + 8;

    /// The number of the import that the file belongs to: it is a foreign server's, and what is here is a cache.
    /// Devices of imports do not say so.
    pub const fn import(&self) -> Option<u32> {
        match self.kind {
            FileKind::BlockDevice | FileKind::CharDevice => None,
            _ if self.rdev == 0 => None,
            _ => Some(self.rdev),
        }
    }

    /// The device number that users see: 0 of what is no device.
    pub const fn device(&self) -> u32 {
        match self.kind {
            FileKind::BlockDevice | FileKind::CharDevice => self.rdev,
            _ => 0,
        }
    }
}

/// Attributes around a change (RFC 1813 section 2.6, weak cache consistency); what was only looked at has `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wcc {
    /// `None` where something else may have changed it between the two.
    pub before: Option<Attr>,
    /// Right behind the change.
    pub after: Attr,
}

/// How a time is to be set (RFC 1813 `set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// To the manager's clock.
    Now,
    /// To this time.
    To(Wall),
}

/// Attributes to change; what is `None` stays (RFC 1813 `sattr3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length: truncates or extends with zeros.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Set-user-id and set-group-id go, as with new contents or a new owner.
    pub clear_set_id: bool,
}

/// A POSIX error number, Linux's values, as applications see it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident = $number:literal $text:literal),* $(,)?) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*

            /// Meaning of the number.
            pub fn text(self) -> &'static str {
                match self.0 { $($number => $text,)* _ => "unknown error" }
            }

            /// The symbol of the number.
            pub fn symbol(self) -> &'static str {
                match self.0 { $($number => stringify!($name),)* _ => "E?" }
            }
        }
    };
}

errnos! {
    EPERM = 1 "operation not permitted",
    ENOENT = 2 "no such file or directory",
    EINTR = 4 "interrupted",
    EIO = 5 "input/output error",
    EBADF = 9 "bad file descriptor",
    EAGAIN = 11 "try again",
    ENOMEM = 12 "out of memory",
    EACCES = 13 "permission denied",
    EBUSY = 16 "busy",
    EEXIST = 17 "file exists",
    EXDEV = 18 "crosses volumes",
    ENODEV = 19 "no such device",
    ENOTDIR = 20 "not a directory",
    EISDIR = 21 "is a directory",
    EINVAL = 22 "invalid argument",
    ETXTBSY = 26 "text file busy",
    EFBIG = 27 "file too large",
    ENOSPC = 28 "no space left on device",
    EROFS = 30 "read-only file system",
    EMLINK = 31 "too many links",
    ERANGE = 34 "result too large",
    ENAMETOOLONG = 36 "name too long",
    ENOLCK = 37 "no locks available",
    ENOSYS = 38 "not implemented",
    ENOTEMPTY = 39 "directory not empty",
    ELOOP = 40 "too many symbolic links",
    EBADE = 52 "the guard does not match",
    ENODATA = 61 "no such attribute",
    EREMOTE = 66 "at another server",
    EPROTO = 71 "protocol error",
    ENOTUNIQ = 76 "the names of the directory are at several sites",
    EOVERFLOW = 75 "value too large",
    EREMCHG = 78 "the site moved to another manager",
    EOPNOTSUPP = 95 "operation not supported",
    ETIMEDOUT = 110 "timed out",
    EUCLEAN = 117 "needs repair: `trapeze status` says why",
    EHOSTDOWN = 112 "host is down",
    ESTALE = 116 "stale file handle",
    EDQUOT = 122 "quota exceeded",
    ECANCELED = 125 "cancelled",
    ENOTRECOVERABLE = 131 "a manager has lost its part of this hashed directory: `trapeze layout --hash` makes it anew",
    ENXIO = 6 "no such device or address",
}

impl core::fmt::Debug for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}({})", self.symbol(), self.0)
    }
}

impl core::fmt::Display for Errno {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.symbol() {
            "E?" => write!(f, "error number {} of Linux", self.0),
            symbol => write!(f, "{} ({symbol})", self.text()),
        }
    }
}

impl core::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_without_a_name_are_told_as_numbers() {
        extern crate std;
        assert_eq!(std::format!("{}", Errno::EIO), "input/output error (EIO)");
        assert_eq!(std::format!("{}", Errno(24)), "error number 24 of Linux");
    }

    #[test]
    fn every_kind_is_its_mode_bits() {
        for kind in (1..=7).filter_map(FileKind::parse) {
            assert_eq!(FileKind::of_mode(kind.mode_bits() | 0o755), Some(kind));
        }
        assert_eq!(FileKind::of_mode(0), None);
    }
}
