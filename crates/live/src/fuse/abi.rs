//! The kernel's FUSE protocol as bytes: numbers, flags and sizes of `linux/fuse.h` (7.31 to 7.45), and two cursors
//! that read and write its structures in the host's byte order.
//!
//! It is not a policy: what we ask of the kernel is [`super::negotiation`]'s, what a request means
//! [`super::request`]'s.

use wire::Errno;

/// Version of the protocol that never changed its first number.
pub const MAJOR: u32 = 7;
/// Oldest kernel we serve: 7.31 (Linux 5.4), the first where all that [`super::negotiation`] relies on exists.
pub const MINOR_MIN: u32 = 31;
/// Newest version whose structures we know.
pub const MINOR_MAX: u32 = 45;

/// Bytes of `fuse_in_header`.
pub const IN_HEADER_BYTES: usize = 40;
/// Bytes of `fuse_write_in`, behind which the data of a WRITE starts.
pub const WRITE_IN_BYTES: usize = 40;
/// Bytes of `fuse_out_header`.
pub const OUT_HEADER_BYTES: usize = 16;
/// Bytes of `fuse_entry_out`.
pub const ENTRY_OUT_BYTES: usize = 40 + ATTR_BYTES;
/// Bytes of `fuse_attr`.
pub const ATTR_BYTES: usize = 88;
/// Bytes of `fuse_dirent` before the name.
pub const DIRENT_BYTES: usize = 24;

/// Operation codes of `enum fuse_opcode`.
#[allow(missing_docs)] // the names are the kernel's
pub mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const NOTIFY_REPLY: u32 = 41;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
}

/// Capabilities that INIT negotiates; from bit 32 on they travel in `flags2`.
#[allow(missing_docs)] // the names are the kernel's
pub mod capability {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const POSIX_LOCKS: u64 = 1 << 1;
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const WRITEBACK_CACHE: u64 = 1 << 16;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const INIT_EXT: u64 = 1 << 30;
}

/// Bits of `fuse_setattr_in.valid`.
#[allow(missing_docs)] // the names are the kernel's
pub mod change {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const LOCK_OWNER: u32 = 1 << 9;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_WRITE_KILL_SUIDGID`: set-id bits go with the write.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_OPEN_KILL_SUIDGID`: they go with the truncation by O_TRUNC.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `FUSE_GETATTR_FH`: the request names a handle.
pub const GETATTR_FH: u32 = 1 << 0;
/// `FUSE_RELEASE_FLOCK_UNLOCK`: the owner's flock ends with the handle.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// `FUSE_IOCTL_DIR`: of a directory.
pub const IOCTL_DIR: u32 = 1 << 4;
/// `FUSE_FSYNC_FDATASYNC`: data only.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `FUSE_LK_FLOCK`: the lock is of the whole file.
pub const LK_FLOCK: u32 = 1 << 0;
/// `O_DIRECT` of open(2), which a WRITE says of its file as it is then.
pub const O_DIRECT: u32 = libc::O_DIRECT as u32;
/// `FOPEN_KEEP_CACHE`: the kernel's cached pages of the file stay.
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// `OFFSET_MAX`: the kernel's "to the end of the file" in locks.
pub const OFFSET_MAX: u64 = i64::MAX as u64;
/// Reads a request's body from front to back. A body that ends too early is `EINVAL`.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Over all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Errno> {
        let (head, tail) = self.0.split_at_checked(count).ok_or(Errno::EINVAL)?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let bytes = self.bytes(N)?;
        Ok(bytes.try_into().expect("as many bytes as asked for"))
    }

    /// A 16-bit number.
    pub fn u16(&mut self) -> Result<u16, Errno> {
        Ok(u16::from_ne_bytes(self.array()?))
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        Ok(u32::from_ne_bytes(self.array()?))
    }

    /// A 64-bit number.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        Ok(u64::from_ne_bytes(self.array()?))
    }

    /// Bytes up to a zero, which is left out.
    pub fn string(&mut self) -> Result<&'a [u8], Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        let string = self.bytes(end)?;
        self.bytes(1)?;
        Ok(string)
    }
}

/// Appends a reply's structures to a buffer that is kept between replies.
pub struct Output<'a>(pub &'a mut Vec<u8>);

impl Output<'_> {
    /// A 16-bit number.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// A 32-bit number.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// A 64-bit number.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_ne_bytes())
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// `count` zeros: padding and fields we leave alone.
    pub fn zeros(&mut self, count: usize) -> &mut Self {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}
