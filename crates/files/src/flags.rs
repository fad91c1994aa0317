//! Flags of open(2), fallocate(2), lseek(2), access(2): Linux's values, as the front hands them on.

use names::{EXECUTE, How, READ, WRITE};

/// O_ACCMODE; 0 of it is O_RDONLY.
pub(crate) const ACCESS_MODE: u32 = 0o3;
pub(crate) const WRITE_ONLY: u32 = 0o1;
const FOR_EXECUTION: u32 = 0o40;
/// O_EXCL
pub(crate) const EXCLUSIVE: u32 = 0o200;
/// O_TRUNC
pub(crate) const TRUNCATE: u32 = 0o1000;
/// O_APPEND
pub(crate) const APPEND: u32 = 0o2000;
/// O_DSYNC, which O_SYNC includes.
pub(crate) const SYNCHRONOUS: u32 = 0o10000;

/// RENAME_EXCHANGE
pub(crate) const EXCHANGE: u32 = 2;

/// FALLOC_FL_KEEP_SIZE
pub(crate) const KEEP_SIZE: u32 = 1;
/// FALLOC_FL_PUNCH_HOLE
pub(crate) const PUNCH_HOLE: u32 = 2;
/// FALLOC_FL_ZERO_RANGE
pub(crate) const ZERO_RANGE: u32 = 16;

/// SEEK_DATA
pub(crate) const SEEK_DATA: u32 = 3;
/// SEEK_HOLE
pub(crate) const SEEK_HOLE: u32 = 4;

/// How a create with these flags treats a name that exists.
pub(crate) fn how(flags: u32) -> How {
    if flags & EXCLUSIVE != 0 { How::Guarded } else { How::Unchecked }
}

/// Whether a file opened with these flags may be written.
pub(crate) fn writes(flags: u32) -> bool {
    flags & ACCESS_MODE != 0
}

/// The permissions that opening with these flags needs.
pub(crate) fn permissions(flags: u32) -> u32 {
    let read = if flags & FOR_EXECUTION != 0 { EXECUTE } else { READ };
    match flags & ACCESS_MODE {
        0 => read,
        WRITE_ONLY => WRITE,
        _ => read | WRITE,
    }
}
