//! From the kernel's bytes to file operations.
//!
//! Pure: bytes in, values out, nothing kept. For any bytes the answer is a value or an error number, never a
//! panic; a name that leaves here is 1 to 255 bytes long and has neither slash nor zero in it.

use super::abi::{self, Input, change, opcode};
use super::hint;
use super::limits::{IO_BYTES_MAX, XATTR_BYTES_MAX};
use super::listing::Listing;
use node::rings::{
    Caller, FileOp, Handle, Lock, LockKind, Name, OPEN_CLEARS_SET_ID, Rights, WriteFlags,
};
use wire::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};
use wire::{Errno, FileId, SetAttr, SetTime, Wall};

/// `fuse_in_header`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole request.
    pub bytes: u32,
    /// The operation.
    pub opcode: u32,
    /// Names the request in its reply.
    pub unique: u64,
    /// The file it is about.
    pub file: FileId,
    /// The caller.
    pub caller: Caller,
}

impl Header {
    /// Reads the first [`abi::IN_HEADER_BYTES`] of a request.
    pub fn parse(bytes: &[u8]) -> Result<Header, Errno> {
        let mut input = Input::new(bytes);
        let (bytes, opcode) = (input.u32()?, input.u32()?);
        let (unique, file) = (input.u64()?, FileId(input.u64()?));
        let (uid, gid, pid) = (input.u32()?, input.u32()?, input.u32()?);
        // Mounts ask it to (`default_permissions`).
        let caller = Caller { uid, gid, pid, rights: Rights::Kernel };
        input.u32()?;
        Ok(Header { bytes, opcode, unique, file, caller })
    }
}

/// How the reply of an operation is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Header only.
    Empty,
    /// Nothing is sent at all.
    Silent,
    /// `fuse_attr_out`.
    Attr,
    /// `fuse_entry_out`.
    Entry,
    /// As `Entry`; that there is no such name may be remembered.
    Lookup,
    /// `fuse_open_out`.
    Open,
    /// `fuse_entry_out` and `fuse_open_out`.
    Create,
    /// At most this many bytes of a file.
    Data {
        /// The most the kernel takes.
        bytes: u32,
    },
    /// `fuse_write_out`.
    Written {
        /// The most that can have been written.
        bytes: u32,
    },
    /// The target of a symbolic link.
    Path,
    /// The value of an attribute, or the length when `bytes` is 0.
    Value {
        /// Room that the caller has.
        bytes: u32,
    },
    /// `fuse_statfs_out`.
    Space,
    /// Entries of a directory.
    Entries(Listing),
    /// `fuse_lk_out`.
    Lock,
    /// No reply body; while it waits it counts against [`super::limits::WAITING_LOCKS_MAX`].
    WaitingLock,
    /// As `Empty`, for a lock that does not wait.
    SetLock,
    /// `fuse_lseek_out`.
    Offset,
    /// `fuse_ioctl_out` and the range of [`PREFETCH`](super::hint::PREFETCH).
    Noted {
        /// Where the range begins.
        offset: u64,
    },
}

/// A parsed request.
#[derive(Debug)]
pub enum KernelRequest {
    /// A file operation.
    Operation(FileOp, Shape),
    /// To agree on the protocol.
    Init(Offer),
    /// It forgot this many lookups of each file; no reply.
    Forget(Vec<(FileId, u64)>),
    /// The caller of this request gave up; no reply of its own.
    Interrupt {
        /// The request.
        unique: u64,
    },
    /// The end of the mount.
    Destroy,
    /// Nothing that needs an answer.
    Nothing,
    /// We do not do this; the kernel is told so.
    Refused(Errno),
}

/// `fuse_init_in`: what the kernel can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// First number of its version.
    pub major: u32,
    /// Second number of its version.
    pub minor: u32,
    /// Longest read-ahead, in bytes.
    pub read_ahead: u32,
    /// Its capabilities, see [`abi::capability`].
    pub capabilities: u64,
}

/// `fuse_write_in`, without the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteIn {
    /// Of the open file.
    pub handle: Handle,
    /// First byte.
    pub offset: u64,
    /// Bytes of data that follow.
    pub bytes: u32,
    /// The rest.
    pub flags: WriteFlags,
}

impl WriteIn {
    /// Reads what stands between the header and the data.
    pub fn parse(body: &[u8]) -> Result<WriteIn, Errno> {
        let mut input = Input::new(body);
        let (handle, offset, bytes) = (Handle(input.u64()?), input.u64()?, input.u32()?);
        offset.checked_add(u64::from(bytes)).ok_or(Errno::EFBIG)?;
        let (write_flags, _owner, open_flags) = (input.u32()?, input.u64()?, input.u32()?);
        let flags = WriteFlags {
            direct: open_flags & abi::O_DIRECT != 0,
            clears_set_id: write_flags & abi::WRITE_KILL_SUIDGID != 0,
        };
        Ok(WriteIn { handle, offset, bytes, flags })
    }
}

/// Parses a request that is not a WRITE. `body` is all behind the header.
pub fn parse(header: &Header, body: &[u8]) -> Result<KernelRequest, Errno> {
    let file = header.file;
    let mut input = Input::new(body);
    let input = &mut input;
    match header.opcode {
        opcode::INIT => offer(input).map(KernelRequest::Init),
        opcode::FORGET => Ok(KernelRequest::Forget(vec![(file, input.u64()?)])),
        opcode::BATCH_FORGET => forgotten(input).map(KernelRequest::Forget),
        opcode::INTERRUPT => Ok(KernelRequest::Interrupt { unique: input.u64()? }),
        opcode::DESTROY => Ok(KernelRequest::Destroy),
        opcode::NOTIFY_REPLY => Ok(KernelRequest::Nothing),
        opcode::IOCTL => Ok(match hint::parse(file, input) {
            Ok((op, offset)) => KernelRequest::Operation(op, Shape::Noted { offset }),
            Err(errno) => KernelRequest::Refused(errno),
        }),
        opcode::WRITE => Err(Errno::EINVAL),
        _ => {
            let operation = match header.opcode {
                opcode::LOOKUP..=opcode::LINK
                | opcode::RENAME2
                | opcode::CREATE
                | opcode::TMPFILE => name_operation(header.opcode, file, input)?,
                opcode::SETXATTR..=opcode::REMOVEXATTR => {
                    attribute_operation(header.opcode, file, input)?
                }
                opcode::GETLK..=opcode::SETLKW => Some(lock_operation(header.opcode, file, input)?),
                _ => handle_operation(header.opcode, file, input)?,
            };
            Ok(match operation {
                Some((op, shape)) => KernelRequest::Operation(op, shape),
                None => KernelRequest::Refused(Errno::ENOSYS),
            })
        }
    }
}

type Operation = (FileOp, Shape);

fn offer(input: &mut Input<'_>) -> Result<Offer, Errno> {
    let (major, minor) = (input.u32()?, input.u32()?);
    let (read_ahead, low) = (input.u32()?, u64::from(input.u32()?));
    // Older kernels end here; newer ones say so with INIT_EXT.
    let high = match low & abi::capability::INIT_EXT {
        0 => 0,
        _ => u64::from(input.u32()?),
    };
    Ok(Offer { major, minor, read_ahead, capabilities: low | high << 32 })
}

fn forgotten(input: &mut Input<'_>) -> Result<Vec<(FileId, u64)>, Errno> {
    let count = input.u32()?;
    input.u32()?;
    (0..count).map(|_| Ok((FileId(input.u64()?), input.u64()?))).collect()
}

fn name(input: &mut Input<'_>) -> Result<Name, Errno> {
    let name = input.string()?;
    match name {
        [] => Err(Errno::EINVAL),
        name if name.len() > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        name if name.contains(&b'/') => Err(Errno::EINVAL),
        name => Ok(name.into()),
    }
}

fn xattr_name(input: &mut Input<'_>) -> Result<Name, Errno> {
    match input.string()? {
        [] => Err(Errno::EINVAL),
        name if name.len() > NAME_BYTES_MAX => Err(Errno::ERANGE),
        name => Ok(name.into()),
    }
}

fn path(input: &mut Input<'_>) -> Result<Box<[u8]>, Errno> {
    match input.string()? {
        [] => Err(Errno::ENOENT),
        path if path.len() >= PATH_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        path => Ok(path.into()),
    }
}

/// A number and the padding behind it.
fn padded(input: &mut Input<'_>) -> Result<u32, Errno> {
    let number = input.u32()?;
    input.u32()?;
    Ok(number)
}

/// Permission bits, with the kernel's file type cut off.
fn permissions(mode: u32) -> u32 {
    mode & 0o7777
}

/// Operations on names in the directory `parent`, and those on a file alone that lie between their numbers.
fn name_operation(
    code: u32,
    parent: FileId,
    input: &mut Input<'_>,
) -> Result<Option<Operation>, Errno> {
    let file = parent;
    let operation = match code {
        opcode::LOOKUP => (FileOp::Lookup { parent, name: name(input)? }, Shape::Lookup),
        opcode::GETATTR => get_attr(file, input)?,
        opcode::SETATTR => set_attr(file, input)?,
        opcode::READLINK => (FileOp::ReadLink { file }, Shape::Path),
        opcode::SYMLINK => {
            let name = name(input)?;
            (FileOp::Symlink { parent, name, target: path(input)? }, Shape::Entry)
        }
        opcode::MKNOD => {
            let (mode, rdev) = (input.u32()?, input.u32()?);
            input.u64()?;
            (FileOp::MakeNode { parent, name: name(input)?, mode, rdev }, Shape::Entry)
        }
        opcode::MKDIR => {
            let mode = permissions(input.u32()?);
            input.u32()?;
            (FileOp::MakeDirectory { parent, name: name(input)?, mode }, Shape::Entry)
        }
        opcode::CREATE => {
            let (flags, mode) = (input.u32()?, permissions(input.u32()?));
            let (_umask, more) = (input.u32()?, input.u32()?);
            let flags = open_flags(flags, more);
            (FileOp::Create { parent, name: name(input)?, mode, flags }, Shape::Create)
        }
        opcode::TMPFILE => {
            let (flags, mode) = (input.u32()?, permissions(input.u32()?));
            (FileOp::CreateUnnamed { parent, mode, flags }, Shape::Create)
        }
        opcode::UNLINK => (FileOp::Unlink { parent, name: name(input)? }, Shape::Empty),
        opcode::RMDIR => (FileOp::RemoveDirectory { parent, name: name(input)? }, Shape::Empty),
        opcode::RENAME | opcode::RENAME2 => rename(code, parent, input)?,
        opcode::LINK => {
            let file = FileId(input.u64()?);
            let new_name = name(input)?;
            (FileOp::Link { file, new_parent: parent, new_name }, Shape::Entry)
        }
        _ => return Ok(None),
    };
    Ok(Some(operation))
}

fn rename(code: u32, parent: FileId, input: &mut Input<'_>) -> Result<Operation, Errno> {
    let new_parent = FileId(input.u64()?);
    let flags = if code == opcode::RENAME2 { padded(input)? } else { 0 };
    let (name, new_name) = (name(input)?, name(input)?);
    Ok((FileOp::Rename { parent, name, new_parent, new_name, flags }, Shape::Empty))
}

fn get_attr(file: FileId, input: &mut Input<'_>) -> Result<Operation, Errno> {
    let flags = padded(input)?;
    let handle = Handle(input.u64()?);
    let handle = (flags & abi::GETATTR_FH != 0).then_some(handle);
    Ok((FileOp::GetAttr { file, handle }, Shape::Attr))
}

/// Bits of a change of attributes that change none. Only these are set when a kernel that leaves set-id bits to us
/// (HANDLE_KILLPRIV_V2) has nothing to change but those: chown(-1, -1), fallocate.
const SAYS_NOTHING: u32 = change::FH | change::LOCK_OWNER | change::CTIME;

/// Flags of an open, with what the kernel says beside them.
fn open_flags(flags: u32, more: u32) -> u32 {
    let clears = more & abi::OPEN_KILL_SUIDGID != 0;
    if clears { flags | OPEN_CLEARS_SET_ID } else { flags & !OPEN_CLEARS_SET_ID }
}

fn set_attr(file: FileId, input: &mut Input<'_>) -> Result<Operation, Errno> {
    let valid = padded(input)?;
    let asked = |bit: u32| valid & bit != 0;
    let (handle, size) = (Handle(input.u64()?), input.u64()?);
    input.u64()?; // the lock owner
    let (atime, mtime) = (input.u64()? as i64, input.u64()? as i64);
    input.u64()?; // ctime: the manager's clock rules
    let (atime_nanos, mtime_nanos) = (input.u32()?, input.u32()?);
    input.u32()?;
    let mode = permissions(input.u32()?);
    input.u32()?;
    let (uid, gid) = (input.u32()?, input.u32()?);
    let time = |bit, now, seconds, nanos| match (asked(bit), asked(now)) {
        (false, _) => None,
        (true, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::To(Wall { seconds, nanos })),
    };
    let changes = SetAttr {
        mode: asked(change::MODE).then_some(mode),
        uid: asked(change::UID).then_some(uid),
        gid: asked(change::GID).then_some(gid),
        size: asked(change::SIZE).then_some(size),
        atime: time(change::ATIME, change::ATIME_NOW, atime, atime_nanos),
        mtime: time(change::MTIME, change::MTIME_NOW, mtime, mtime_nanos),
        clear_set_id: asked(change::KILL_SUIDGID) || valid & !SAYS_NOTHING == 0,
    };
    let handle = asked(change::FH).then_some(handle);
    Ok((FileOp::SetAttr { file, handle, changes }, Shape::Attr))
}

/// Operations on extended attributes.
fn attribute_operation(
    code: u32,
    file: FileId,
    input: &mut Input<'_>,
) -> Result<Option<Operation>, Errno> {
    let operation = match code {
        opcode::SETXATTR => {
            let (bytes, flags) = (input.u32()? as usize, input.u32()?);
            let name = xattr_name(input)?;
            if bytes > XATTR_BYTES_MAX {
                return Err(Errno(libc::E2BIG as u16));
            }
            let value = input.bytes(bytes)?.into();
            (FileOp::SetXattr { file, name, value, flags }, Shape::Empty)
        }
        opcode::GETXATTR => {
            let bytes = padded(input)?;
            (FileOp::GetXattr { file, name: xattr_name(input)? }, Shape::Value { bytes })
        }
        opcode::LISTXATTR => (FileOp::ListXattr { file }, Shape::Value { bytes: padded(input)? }),
        opcode::REMOVEXATTR => {
            (FileOp::RemoveXattr { file, name: xattr_name(input)? }, Shape::Empty)
        }
        _ => return Ok(None),
    };
    Ok(Some(operation))
}

fn lock_operation(code: u32, file: FileId, input: &mut Input<'_>) -> Result<Operation, Errno> {
    let (handle, owner) = (Handle(input.u64()?), input.u64()?);
    let (start, end) = (input.u64()?, input.u64()?);
    let kind = match input.u32()? as i32 {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return Err(Errno::EINVAL),
    };
    let (pid, flags) = (input.u32()?, input.u32()?);
    let end = if end >= abi::OFFSET_MAX { u64::MAX } else { end };
    let lock = Lock { start, end, kind, pid };
    if code == opcode::GETLK {
        return Ok((FileOp::GetLock { file, handle, owner, lock }, Shape::Lock));
    }
    let (wait, whole_file) = (code == opcode::SETLKW, flags & abi::LK_FLOCK != 0);
    let waits = wait && kind != LockKind::Unlock;
    let shape = if waits { Shape::WaitingLock } else { Shape::SetLock };
    Ok((FileOp::SetLock { file, handle, owner, lock, wait, whole_file }, shape))
}

/// Operations on open files and directories, and the few on a file alone.
fn handle_operation(
    code: u32,
    file: FileId,
    input: &mut Input<'_>,
) -> Result<Option<Operation>, Errno> {
    let operation = match code {
        opcode::OPEN => {
            let flags = open_flags(input.u32()?, input.u32()?);
            (FileOp::Open { file, flags }, Shape::Open)
        }
        opcode::OPENDIR => (FileOp::OpenDirectory { file }, Shape::Open),
        opcode::READ => {
            let (handle, offset) = (Handle(input.u64()?), input.u64()?);
            let bytes = io_bytes(input.u32()?)?;
            (FileOp::Read { file, handle, offset, bytes }, Shape::Data { bytes })
        }
        opcode::READDIR | opcode::READDIRPLUS => {
            let (handle, cookie) = (Handle(input.u64()?), input.u64()?);
            let bytes = io_bytes(input.u32()?)?;
            let with_attributes = code == opcode::READDIRPLUS;
            let listing = Listing { bytes, with_attributes };
            let op = FileOp::ReadDirectory { file, handle, cookie, bytes, with_attributes };
            (op, Shape::Entries(listing))
        }
        opcode::STATFS => (FileOp::StatFs, Shape::Space),
        opcode::RELEASE => {
            let (handle, _) = (Handle(input.u64()?), input.u32()?);
            let (flags, owner) = (input.u32()?, input.u64()?);
            let owner = (flags & abi::RELEASE_FLOCK_UNLOCK != 0).then_some(owner);
            (FileOp::Release { file, handle, owner }, Shape::Empty)
        }
        opcode::RELEASEDIR => {
            (FileOp::ReleaseDirectory { file, handle: Handle(input.u64()?) }, Shape::Empty)
        }
        opcode::FSYNC => {
            let (handle, flags) = (Handle(input.u64()?), input.u32()?);
            let data_only = flags & abi::FSYNC_FDATASYNC != 0;
            (FileOp::Fsync { file, handle, data_only }, Shape::Empty)
        }
        opcode::FSYNCDIR => (FileOp::FsyncDirectory { file }, Shape::Empty),
        opcode::FLUSH => {
            let handle = Handle(input.u64()?);
            input.u64()?;
            (FileOp::Flush { file, handle, owner: input.u64()? }, Shape::Empty)
        }
        opcode::ACCESS => (FileOp::Access { file, mask: input.u32()? }, Shape::Empty),
        opcode::FALLOCATE => {
            let (handle, offset) = (Handle(input.u64()?), input.u64()?);
            let (bytes, mode) = (input.u64()?, input.u32()?);
            offset.checked_add(bytes).ok_or(Errno::EFBIG)?;
            (FileOp::Allocate { file, handle, offset, bytes, mode }, Shape::Empty)
        }
        opcode::LSEEK => {
            let (handle, offset) = (Handle(input.u64()?), input.u64()?);
            (FileOp::Seek { file, handle, offset, whence: input.u32()? }, Shape::Offset)
        }
        _ => return Ok(None),
    };
    Ok(Some(operation))
}

/// A length that one frame can hold; INIT and `max_read` bind the kernel to it.
fn io_bytes(bytes: u32) -> Result<u32, Errno> {
    if bytes as usize > IO_BYTES_MAX { Err(Errno::EINVAL) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(opcode: u32) -> Header {
        let caller = Caller { uid: 1000, gid: 100, pid: 7, ..Caller::default() };
        Header { bytes: 0, opcode, unique: 4, file: FileId(9), caller }
    }

    fn operation(opcode: u32, body: &[u8]) -> (String, Shape) {
        match parse(&header(opcode), body) {
            Ok(KernelRequest::Operation(op, shape)) => (format!("{op:?}"), shape),
            other => panic!("{other:?}"),
        }
    }

    /// Numbers one after the other: (bytes, value).
    fn body(fields: &[(usize, u64)], rest: &[u8]) -> Vec<u8> {
        let field = |(bytes, value): &(usize, u64)| value.to_le_bytes()[..*bytes].to_vec();
        let mut body: Vec<u8> = fields.iter().flat_map(field).collect();
        body.extend_from_slice(rest);
        body
    }

    #[test]
    fn the_header() {
        let bytes =
            body(&[(4, 60), (4, 1), (8, 22), (8, 5), (4, 1000), (4, 100), (4, 77), (4, 0)], b"");
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.bytes, header.opcode, header.unique), (60, 1, 22));
        assert_eq!((header.file, header.caller.pid), (FileId(5), 77));
        assert!(Header::parse(&bytes[..39]).is_err());
    }

    #[test]
    fn names_are_checked_where_they_enter() {
        let look_up = |name: &[u8]| parse(&header(opcode::LOOKUP), name).map(|_| ());
        assert_eq!(look_up(b"a\0"), Ok(()));
        assert_eq!(look_up(b"a"), Err(Errno::EINVAL));
        assert_eq!(look_up(b"\0"), Err(Errno::EINVAL));
        assert_eq!(look_up(b"a/b\0"), Err(Errno::EINVAL));
        assert_eq!(look_up(&[&[b'n'; 255][..], b"\0"].concat()), Ok(()));
        assert_eq!(look_up(&[&[b'n'; 256][..], b"\0"].concat()), Err(Errno::ENAMETOOLONG));
    }

    #[test]
    fn set_attr_takes_only_what_is_marked() {
        let valid = change::SIZE | change::FH | change::MTIME | change::ATIME_NOW | change::ATIME;
        let fields = [
            (8, u64::from(valid)),
            (8, 3),
            (8, 4096),
            (8, 0),
            (8, 1),
            (8, u64::MAX),
            (8, 2),
            (4, 1),
            (4, 5),
            (4, 0),
            (4, 0o644),
            (4, 0),
            (4, 10),
            (4, 11),
            (4, 0),
        ];
        let Ok(KernelRequest::Operation(FileOp::SetAttr { handle, changes, .. }, Shape::Attr)) =
            parse(&header(opcode::SETATTR), &body(&fields, b""))
        else {
            panic!()
        };
        assert_eq!(handle, Some(Handle(3)));
        let mtime = SetTime::To(Wall { seconds: -1, nanos: 5 });
        let (atime, mtime) = (Some(SetTime::Now), Some(mtime));
        assert_eq!(changes, SetAttr { size: Some(4096), atime, mtime, ..SetAttr::default() });
    }

    #[test]
    fn set_id_bits_go_when_the_kernel_says_so() {
        let change = |valid: u32| {
            let fields: Vec<(usize, u64)> =
                [(4, valid.into()), (4, 0)].into_iter().chain((0..10).map(|_| (8, 0))).collect();
            match parse(&header(opcode::SETATTR), &body(&fields, b"")) {
                Ok(KernelRequest::Operation(FileOp::SetAttr { changes, .. }, _)) => {
                    changes.clear_set_id
                }
                other => panic!("{other:?}"),
            }
        };
        assert!(
            change(0)
                && change(change::FH | change::CTIME)
                && change(change::SIZE | change::KILL_SUIDGID)
        );
        assert!(!change(change::SIZE) && !change(change::MTIME | change::FH));
        let write = |flags: u64| {
            let body = body(&[(8, 1), (8, 2), (4, 3), (4, flags), (8, 0), (4, 0), (4, 0)], b"");
            WriteIn::parse(&body).unwrap().flags.clears_set_id
        };
        assert!(write(4) && !write(3));
        let (open, _) = operation(opcode::OPEN, &body(&[(4, 0o1001), (4, 1)], b""));
        let flags = 0o1001 | OPEN_CLEARS_SET_ID;
        assert!(open.ends_with(&format!("flags: {flags} }}")), "{open}");
    }

    #[test]
    fn a_file_without_a_name_has_a_mode_and_flags() {
        let fields = [(4, 0o20200002), (4, 0o100640), (4, 0o22), (4, 0)];
        let (op, shape) = operation(opcode::TMPFILE, &body(&fields, b"/\0"));
        assert!(op.starts_with("CreateUnnamed { parent: FileId(9), mode: 416"), "{op}");
        assert_eq!(shape, Shape::Create);
    }

    #[test]
    fn two_names_follow_a_rename() {
        let (plain, _) = operation(opcode::RENAME, &body(&[(8, 12)], b"old\0new\0"));
        let (flagged, shape) = operation(opcode::RENAME2, &body(&[(8, 12), (8, 1)], b"old\0new\0"));
        assert!(plain.contains("new_parent: FileId(12)"), "{plain}");
        assert!(plain.ends_with("flags: 0 }") && flagged.ends_with("flags: 1 }"), "{flagged}");
        assert_eq!(shape, Shape::Empty);
        assert!(parse(&header(opcode::RENAME), &body(&[(8, 12)], b"old\0new")).is_err());
    }

    #[test]
    fn the_kernels_end_of_file_is_ours() {
        let lock = |end: u64, kind: i32| {
            let fields =
                [(8, 1), (8, 2), (8, 0), (8, end), (4, kind as u64), (4, 3), (4, 0), (4, 0)];
            parse(&header(opcode::SETLKW), &body(&fields, b""))
        };
        let Ok(KernelRequest::Operation(FileOp::SetLock { lock: whole, wait, .. }, shape)) =
            lock(abi::OFFSET_MAX, libc::F_WRLCK)
        else {
            panic!()
        };
        assert_eq!((whole.end, whole.kind, wait), (u64::MAX, LockKind::Write, true));
        assert_eq!(shape, Shape::WaitingLock);
        assert!(matches!(
            lock(9, libc::F_UNLCK),
            Ok(KernelRequest::Operation(
                FileOp::SetLock { lock: Lock { end: 9, .. }, .. },
                Shape::SetLock
            ))
        ));
        assert!(matches!(lock(9, 77), Err(Errno::EINVAL)));
    }

    #[test]
    fn an_attribute_value_is_as_long_as_it_says() {
        let (op, _) = operation(opcode::SETXATTR, &body(&[(4, 3), (4, 1)], b"user.a\0xyz"));
        assert!(op.contains("value: [120, 121, 122], flags: 1"), "{op}");
        assert!(
            parse(&header(opcode::SETXATTR), &body(&[(4, 4), (4, 1)], b"user.a\0xyz")).is_err()
        );
        let (_, shape) = operation(opcode::GETXATTR, &body(&[(4, 9), (4, 0)], b"user.a\0"));
        assert_eq!(shape, Shape::Value { bytes: 9 });
    }

    #[test]
    fn what_we_do_not_do_is_refused_so_that_the_kernel_does_not_ask_again() {
        for code in [37, 40, 47, 48, 49, 50, 52, 4096, u32::MAX] {
            let asked = parse(&header(code), &[0; 200]);
            assert!(
                matches!(asked, Ok(KernelRequest::Refused(Errno::ENOSYS))),
                "{code}: {asked:?}"
            );
        }
        let asked = parse(&header(opcode::IOCTL), &[]);
        assert!(matches!(asked, Ok(KernelRequest::Refused(Errno(25)))), "{asked:?}");
    }

    #[test]
    fn the_offer_of_new_and_old_kernels() {
        let new = body(&[(4, 7), (4, 45), (4, 1), (4, 1 << 30), (4, 2)], &[0; 44]);
        let Ok(KernelRequest::Init(offer)) = parse(&header(opcode::INIT), &new) else { panic!() };
        assert_eq!(offer.capabilities, 1 << 30 | 1 << 33);
        let old = body(&[(4, 7), (4, 31), (4, 1), (4, 1)], b"");
        let Ok(KernelRequest::Init(offer)) = parse(&header(opcode::INIT), &old) else { panic!() };
        assert_eq!((offer.minor, offer.capabilities), (31, 1));
    }

    proptest! {
        /// Any code with any bytes behind it: a value or an error, never a panic, never a name that is none.
        #[test]
        fn hostile_bytes_are_an_error_at_worst(
            code in prop_oneof![0u32..60, any::<u32>()],
            bytes in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..300),
        ) {
            let _ = Header::parse(&bytes);
            let _ = WriteIn::parse(&bytes);
            if let Ok(KernelRequest::Operation(FileOp::Lookup { name, .. }, _)) = parse(&header(code), &bytes) {
                prop_assert!((1..=255).contains(&name.len()));
                prop_assert!(!name.contains(&b'/') && !name.contains(&0));
            }
        }

        /// A body cut anywhere before its end is refused.
        #[test]
        fn short_bodies_are_refused(cut in 0usize..84) {
            let fields: Vec<(usize, u64)> = (0..11).map(|_| (8, 0)).collect();
            prop_assert!(parse(&header(opcode::SETATTR), &body(&fields, b"")[..cut]).is_err());
        }
    }
}
