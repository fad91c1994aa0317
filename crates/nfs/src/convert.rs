//! Between our types and NFSv3's: attributes, times, kinds, permissions, errors.

use crate::v3::{Fattr, FileType, NfsTime, NodeNumbers, Sattr, SetTime, Status, WccAttr, access};
use wire::{Attr, Errno, FileId, FileKind, SetAttr, Wall};

/// Each error number and its status (RFC 1813 section 2.6). Numbers that are not listed are IO.
///
/// JUKEBOX is for errors that pass: the client waits and retries, and its application sees nothing.
const STATUSES: &[(Errno, Status)] = &[
    (Errno::EPERM, Status::Perm),
    (Errno::ENOENT, Status::NoEnt),
    (Errno::EIO, Status::Io),
    (Errno::ENXIO, Status::Nxio),
    (Errno::EACCES, Status::Acces),
    (Errno::EEXIST, Status::Exist),
    (Errno::EXDEV, Status::Xdev),
    (Errno::ENODEV, Status::NoDev),
    (Errno::ENOTDIR, Status::NotDir),
    (Errno::EISDIR, Status::IsDir),
    (Errno::EINVAL, Status::Inval),
    (Errno::EFBIG, Status::Fbig),
    (Errno::ENOSPC, Status::NoSpc),
    (Errno::EROFS, Status::Rofs),
    (Errno::EMLINK, Status::Mlink),
    (Errno::ENAMETOOLONG, Status::NameTooLong),
    (Errno::ENOTEMPTY, Status::NotEmpty),
    (Errno::EDQUOT, Status::Dquot),
    (Errno::ESTALE, Status::Stale),
    (Errno::EOPNOTSUPP, Status::NotSupp),
    (Errno::ENOSYS, Status::NotSupp),
    (Errno::ENOMEM, Status::ServerFault),
    (Errno::EAGAIN, Status::Jukebox),
    (Errno::EBUSY, Status::Jukebox),
    (Errno::EINTR, Status::Jukebox),
    (Errno::ETIMEDOUT, Status::Jukebox),
    (Errno::EHOSTDOWN, Status::Jukebox),
    // a handle that was closed under an operation: the client finds the file again
    (Errno::EBADF, Status::Stale),
    (Errno::EOVERFLOW, Status::Inval),
    (Errno::ERANGE, Status::Inval),
    (Errno::ELOOP, Status::Inval),
    // the kernel of a client knows itself what it runs
    (Errno::ETXTBSY, Status::Acces),
    (Errno::ENOLCK, Status::Io),
    (Errno::ENODATA, Status::NoEnt),
    (Errno::EPROTO, Status::ServerFault),
    (Errno::EUCLEAN, Status::Io),
    (Errno::ECANCELED, Status::Jukebox),
    (Errno::EBADE, Status::NotSync),
];

/// The status that answers an error.
pub fn status(errno: Errno) -> Status {
    STATUSES.iter().find(|(its, _)| *its == errno).map_or(Status::Io, |(_, status)| *status)
}

/// The error that a foreign server's status is to our users.
pub fn errno(status: Status) -> Errno {
    match status {
        Status::Ok => panic!("a success is no error"),
        Status::Remote => Errno::EXDEV,
        Status::BadHandle => Errno::ESTALE,
        Status::BadCookie | Status::BadType | Status::TooSmall => Errno::EINVAL,
        Status::ServerFault => Errno::EIO,
        Status::Jukebox => Errno::EAGAIN,
        _ => {
            STATUSES.iter().find(|(_, its)| *its == status).map_or(Errno::EIO, |(errno, _)| *errno)
        }
    }
}

/// A kind as NFS names it.
pub fn file_type(kind: FileKind) -> FileType {
    FileType::of(kind as u32).expect("the numbers are the same")
}

/// A kind as we name it.
pub fn file_kind(kind: FileType) -> FileKind {
    FileKind::parse(kind as u8).expect("the numbers are the same")
}

/// A time in 32 unsigned bits of seconds: 1970 to 2106, the nearest end for what is outside.
pub fn nfs_time(time: Wall) -> NfsTime {
    match u32::try_from(time.seconds) {
        Ok(seconds) => NfsTime { seconds, nseconds: time.nanos },
        Err(_) if time.seconds < 0 => NfsTime { seconds: 0, nseconds: 0 },
        Err(_) => NfsTime { seconds: u32::MAX, nseconds: 999_999_999 },
    }
}

/// A time that a client sent; `None` when it has more than a second of nanoseconds.
pub fn wall(time: NfsTime) -> Option<Wall> {
    (time.nseconds < 1_000_000_000)
        .then_some(Wall { seconds: time.seconds.into(), nanos: time.nseconds })
}

/// Major and minor number of a Linux device number of 32 bits (`new_encode_dev`).
pub fn numbers(rdev: u32) -> NodeNumbers {
    NodeNumbers { major: rdev >> 8 & 0xfff, minor: rdev & 0xff | rdev >> 12 & 0xfff00 }
}

/// The device number; `None` when it has more bits than Linux has: 12 and 20.
pub fn rdev(numbers: NodeNumbers) -> Option<u32> {
    let NodeNumbers { major, minor } = numbers;
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some(minor & 0xff | major << 8 | (minor & 0xfff00) << 12)
}

/// Attributes as NFS has them. `fsid` is of the volume, the same from every manager.
pub fn fattr(attr: &Attr, fsid: u64) -> Fattr {
    Fattr {
        kind: file_type(attr.kind),
        mode: attr.mode & 0o7777,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: numbers(attr.device()),
        fsid,
        fileid: attr.file.0,
        atime: nfs_time(attr.atime),
        mtime: nfs_time(attr.mtime),
        ctime: nfs_time(attr.ctime),
    }
}

/// Attributes of a foreign server's file as we have them. The change version is made of ctime, all that NFSv3 has.
pub fn attr(fattr: &Fattr) -> Option<Attr> {
    let ctime = wall(fattr.ctime)?;
    Some(Attr {
        file: FileId(fattr.fileid),
        kind: file_kind(fattr.kind),
        mode: fattr.mode & 0o7777,
        links: fattr.nlink,
        uid: fattr.uid,
        gid: fattr.gid,
        rdev: rdev(fattr.rdev)?,
        size: fattr.size,
        used: fattr.used,
        atime: wall(fattr.atime)?,
        mtime: wall(fattr.mtime)?,
        ctime,
        change: ctime.since_epoch() as u64,
    })
}

/// Attributes by which a client tells that it missed nothing.
pub fn wcc(attr: &Attr) -> WccAttr {
    WccAttr { size: attr.size, mtime: nfs_time(attr.mtime), ctime: nfs_time(attr.ctime) }
}

/// Changes as we have them; INVAL for a time that is none.
pub fn set_attr(sattr: &Sattr) -> Result<SetAttr, Status> {
    Ok(SetAttr {
        mode: sattr.mode.map(|mode| mode & 0o7777),
        uid: sattr.uid,
        gid: sattr.gid,
        size: sattr.size,
        atime: set_time(sattr.atime)?,
        mtime: set_time(sattr.mtime)?,
        clear_set_id: false,
    })
}

fn set_time(time: SetTime) -> Result<Option<wire::SetTime>, Status> {
    Ok(match time {
        SetTime::DontChange => None,
        SetTime::ToServerTime => Some(wire::SetTime::Now),
        SetTime::ToClientTime(time) => Some(wire::SetTime::To(wall(time).ok_or(Status::Inval)?)),
    })
}

/// Changes as a foreign server takes them.
pub fn sattr(changes: &SetAttr) -> Sattr {
    let time = |time: Option<wire::SetTime>| match time {
        None => SetTime::DontChange,
        Some(wire::SetTime::Now) => SetTime::ToServerTime,
        Some(wire::SetTime::To(time)) => SetTime::ToClientTime(nfs_time(time)),
    };
    let SetAttr { mode, uid, gid, size, .. } = *changes;
    Sattr { mode, uid, gid, size, atime: time(changes.atime), mtime: time(changes.mtime) }
}

/// Permissions of access(2) that bits of ACCESS need (section 3.3.4): each bit, and the mask, in directories and in
/// Permissions as in access(2).
const READ: u32 = 4;
/// The same.
pub const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

/// others. DELETE is of the names in a directory, and says nothing of a file.
pub fn access_masks(kind: FileKind) -> &'static [(u32, u32)] {
    match kind {
        FileKind::Directory => &[
            (access::READ, READ),
            (access::LOOKUP, EXECUTE),
            (access::MODIFY, WRITE | EXECUTE),
            (access::EXTEND, WRITE | EXECUTE),
            (access::DELETE, WRITE | EXECUTE),
        ],
        _ => &[
            (access::READ, READ),
            (access::MODIFY, WRITE),
            (access::EXTEND, WRITE),
            (access::EXECUTE, EXECUTE),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_error_number_has_a_status_and_every_status_an_error_number() {
        for (errno, status) in STATUSES {
            assert_eq!(super::status(*errno), *status);
            assert_ne!(*status, Status::Ok);
        }
        assert_eq!(status(Errno(24)), Status::Io);
        for status in Status::ALL.iter().filter(|status| **status != Status::Ok) {
            let errno = errno(*status);
            let lossy = [
                Status::Remote,
                Status::BadHandle,
                Status::NotSync,
                Status::BadCookie,
                Status::TooSmall,
                Status::BadType,
                Status::ServerFault,
            ];
            assert!(super::status(errno) == *status || lossy.contains(status), "{status:?}");
        }
    }

    #[test]
    fn kinds_and_modes_are_the_same() {
        for kind in FileType::ALL {
            assert_eq!(file_type(file_kind(*kind)), *kind);
        }
    }

    #[test]
    fn times_end_where_32_bits_do() {
        let at = |seconds, nanos| nfs_time(Wall { seconds, nanos });
        assert_eq!(at(-1, 5), NfsTime { seconds: 0, nseconds: 0 });
        assert_eq!(at(u32::MAX.into(), 5), NfsTime { seconds: u32::MAX, nseconds: 5 });
        assert_eq!(at(1 << 40, 5), NfsTime { seconds: u32::MAX, nseconds: 999_999_999 });
        assert_eq!(wall(NfsTime { seconds: 1, nseconds: 1_000_000_000 }), None);
    }

    fn walls() -> impl Strategy<Value = Wall> {
        (0i64..=u32::MAX.into(), 0u32..1_000_000_000)
            .prop_map(|(seconds, nanos)| Wall { seconds, nanos })
    }

    proptest! {
        #[test]
        fn attributes_come_back(
            (file, size, used) in any::<(u64, u64, u64)>(), kind in 1u8..=7, mode in 0u32..0o10000,
            (uid, gid, links, rdev) in any::<(u32, u32, u32, u32)>(), times in [walls(), walls(), walls()],
        ) {
            let [atime, mtime, ctime] = times;
            let kind = FileKind::parse(kind).unwrap();
            let change = ctime.since_epoch() as u64;
            let ours = Attr {
                file: FileId(file), kind, mode, links, uid, gid, rdev, size, used, atime, mtime, ctime, change,
            };
            prop_assert_eq!(attr(&fattr(&ours, 7)), Some(Attr { rdev: ours.device(), ..ours }));
        }

        #[test]
        fn changes_come_back(
            numbers: [Option<u32>; 2], size: Option<u64>, mode in prop::option::of(0u32..0o10000),
            times in [prop::option::of(prop::option::of(walls())), prop::option::of(prop::option::of(walls()))],
        ) {
            let time = |time: Option<Option<Wall>>| time.map(|at| at.map_or(wire::SetTime::Now, wire::SetTime::To));
            let changes = SetAttr {
                mode, uid: numbers[0], gid: numbers[1], size,
                atime: time(times[0]), mtime: time(times[1]), clear_set_id: false,
            };
            prop_assert_eq!(set_attr(&sattr(&changes)), Ok(changes));
        }

        #[test]
        fn device_numbers_come_back(number: u32) {
            prop_assert_eq!(rdev(numbers(number)), Some(number));
        }
    }
}
