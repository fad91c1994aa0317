//! Requests of a node to its world and their completions, besides messages: disk operations, the manager's log, and the
//! file operations that a front end (FUSE, the library, a simulated workload) asks of the node. A request that crosses
//! from a mount to a disk passes the front ring of one node, a message, and the disk ring of another.
//!
//! Rings are bounded queues of owned entries. A frame in an entry belongs to the world until the entry's completion is
//! read; completions may come in any order. The world never calls into a service, a service never waits in the world.

mod answers;
mod locks;
mod meta;

use endpoint::{Frame, FrameMut};
use std::fmt;
use std::sync::Arc;
use wire::{Attr, CallId, Errno, FileId, ListingVersion, ObjectId, SetAttr, Wall, Wcc};

pub use answers::{DirectoryEntry, VolumeSpace};
pub use locks::{Lock, LockKind};
pub use meta::{MetaDone, MetaError, MetaOp, MetaRequest, MetaRoom, MetaWork, StoreId};

/// Names an operation under way, given by who posts it and returned in its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A disk of this node, in the order of its configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId(pub u16);

/// A file in a disk's dedicated directory. The world maps it to a path (live) or a table (simulated).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DiskFile {
    /// The disk's label: volume, server, format version.
    Label,
    /// A commit log, by generation.
    Log(u32),
    /// The bytes of an object, with its header and checksums.
    Object(ObjectId),
    /// An object that no file claims, set aside.
    Quarantined(ObjectId),
    /// The index of the objects, by generation.
    Index(u32),
}

/// Files that a listing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskListing {
    /// Commit logs.
    Logs,
    /// Objects, at most `count`, in ascending order after `after`. One that was made after the first page was asked for
    /// may be missing from the later ones: what must not be missed is in the I/O server's index and log.
    Objects {
        /// The last one already known.
        after: Option<ObjectId>,
        /// Most names to return.
        count: usize,
    },
    /// All quarantined objects.
    Quarantined,
}

/// An operation on a disk. Offsets and lengths may be any; what is a multiple of 4 KiB may bypass the host's cache.
#[derive(Debug)]
pub enum DiskOp {
    /// Fills `into` from `offset`; short at the end of the file. Gives `into` back, also with an error.
    Read {
        /// The file.
        file: DiskFile,
        /// First byte.
        offset: u64,
        /// Frame for the bytes.
        into: FrameMut,
    },
    /// Writes all of `data` at `offset`, creating and growing the file as needed.
    Write {
        /// The file.
        file: DiskFile,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: Frame,
        /// Whether the completion means that data and length are on stable storage.
        durable: bool,
    },
    /// All completed writes, the length and the name of the file are on stable storage.
    Sync {
        /// The file.
        file: DiskFile,
    },
    /// As [`Sync`](DiskOp::Sync) of every file of the disk that there is.
    SyncAll,
    /// Cuts or extends the file (with zeros).
    Truncate {
        /// The file.
        file: DiskFile,
        /// New length.
        bytes: u64,
    },
    /// The bytes read as zeros, and take no storage where whole blocks of 4 KiB are among them; the length stays.
    Punch {
        /// The file.
        file: DiskFile,
        /// First byte.
        offset: u64,
        /// Length of the range.
        bytes: u64,
    },
    /// The first byte of a range that is not in a hole of the file. A disk that knows no holes says the first.
    FindData {
        /// The file.
        file: DiskFile,
        /// First byte.
        offset: u64,
        /// Length of the range.
        bytes: u64,
    },
    /// Removes the file; no error when there is none. Durable after a `Sync` of any file of the disk.
    Remove {
        /// The file.
        file: DiskFile,
    },
    /// Renames, replacing.
    Rename {
        /// The file.
        from: DiskFile,
        /// Its new name.
        to: DiskFile,
    },
    /// Length and storage of the file.
    Stat {
        /// The file.
        file: DiskFile,
        /// Ranges whose storage is not counted: (offset, bytes), none of which share bytes. On a disk that knows no
        /// holes that is as much as they have of the file.
        without: Vec<(u64, u64)>,
    },
    /// Names of files.
    List(DiskListing),
    /// Room on the disk.
    Space,
}

impl DiskOp {
    /// Length and storage of a file, all of it.
    pub fn stat(file: DiskFile) -> DiskOp {
        DiskOp::Stat { file, without: Vec::new() }
    }
}

/// The result of a disk operation.
#[derive(Debug)]
pub enum DiskReply {
    /// It is done.
    Done,
    /// Bytes read, 0 to the length of `into`.
    Read {
        /// The frame of the request.
        into: FrameMut,
        /// Bytes of it that were filled.
        bytes: usize,
    },
    /// Of `Stat`.
    Stat {
        /// Length in bytes.
        bytes: u64,
        /// Bytes of storage.
        used: u64,
        /// Seconds since 1970 when the file was last changed.
        changed: i64,
    },
    /// Of `FindData`: where it is, or the end of the range where all of it is in holes or behind the file's end.
    Data(u64),
    /// Of `List`.
    Files(Vec<DiskFile>),
    /// Of `Space`, in bytes.
    Space {
        /// All.
        total: u64,
        /// Free.
        free: u64,
        /// The same for all disks, on whichever server, that share this room; 0 is a disk with its own.
        device: u64,
    },
}

/// Why a disk operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// No such file.
    NotFound,
    /// The disk is full.
    NoSpace,
    /// The disk is read-only.
    ReadOnly,
    /// The disk's directory is not there (any more).
    Missing,
    /// Too much is under way: ask again.
    Busy,
    /// Anything else, by error number.
    Failed(Errno),
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::NotFound => f.write_str("no such file on the disk"),
            DiskError::NoSpace => f.write_str("the disk is full"),
            DiskError::ReadOnly => f.write_str("the disk is read-only"),
            DiskError::Missing => f.write_str("the disk's directory is missing"),
            DiskError::Busy => f.write_str("the disk has too many operations under way"),
            DiskError::Failed(errno) => write!(f, "the disk answers {errno}"),
        }
    }
}

impl std::error::Error for DiskError {}

impl From<DiskError> for Errno {
    fn from(error: DiskError) -> Errno {
        match error {
            DiskError::NotFound => Errno::ENOENT,
            DiskError::NoSpace => Errno::ENOSPC,
            DiskError::ReadOnly => Errno::EROFS,
            DiskError::Missing => Errno::ENODEV,
            DiskError::Busy => Errno::EAGAIN,
            DiskError::Failed(errno) => errno,
        }
    }
}

/// Entry of the disk ring.
#[derive(Debug)]
pub struct DiskRequest {
    /// Comes back in the completion.
    pub ticket: Ticket,
    /// The disk.
    pub disk: DiskId,
    /// The operation.
    pub op: DiskOp,
}

/// Entry of the disk completion ring.
#[derive(Debug)]
pub struct DiskDone {
    /// Of the request.
    pub ticket: Ticket,
    /// The outcome.
    pub result: Result<DiskReply, DiskError>,
}

/// The caller of a file operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process, for locks and messages.
    pub pid: u32,
    /// The basis of its permissions.
    pub rights: Rights,
}

/// The basis of a caller's permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// On user, group and these supplementary groups, each as 4 bytes, lowest first: the manager decides.
    Groups(Arc<[u8]>),
    /// On the kernel that the request comes from: it knows groups, capabilities and user namespaces, and has decided.
    Kernel,
}

impl Rights {
    /// Of a member of these supplementary groups.
    pub fn of_groups(groups: impl IntoIterator<Item = u32>) -> Rights {
        Rights::Groups(groups.into_iter().flat_map(u32::to_le_bytes).collect())
    }
}

impl Default for Rights {
    fn default() -> Rights {
        Rights::Groups(Arc::default())
    }
}

/// A name in a directory or of an attribute: any bytes but zero and, in a directory, slash.
pub type Name = Box<[u8]>;

/// An open file or directory, as the client numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// Attributes of a write beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// The bytes did not pass the front's own cache (O_DIRECT), which may have older ones in their place.
    pub direct: bool,
    /// The front's kernel says that set-id bits go: the writer has no right to keep them.
    pub clears_set_id: bool,
}

/// Beside the flags of open(2), which it is none of: with O_TRUNC set-id bits go, for who opens the file has no right
/// to keep them.
pub const OPEN_CLEARS_SET_ID: u32 = 1 << 31;

/// A file operation, inode-shaped as FUSE and NFS ask it. Flags are Linux's open(2) and rename(2) values.
#[derive(Debug)]
#[allow(missing_docs)] // the fields are those of the system calls that the variants are named after
pub enum FileOp {
    Lookup {
        parent: FileId,
        name: Name,
    },
    GetAttr {
        file: FileId,
        handle: Option<Handle>,
    },
    SetAttr {
        file: FileId,
        handle: Option<Handle>,
        changes: SetAttr,
    },
    Access {
        file: FileId,
        mask: u32,
    },
    /// Attributes, and the bits of access(2) that the caller is granted.
    Permissions {
        file: FileId,
    },
    ReadLink {
        file: FileId,
    },
    Symlink {
        parent: FileId,
        name: Name,
        target: Box<[u8]>,
    },
    MakeNode {
        parent: FileId,
        name: Name,
        mode: u32,
        rdev: u32,
    },
    MakeDirectory {
        parent: FileId,
        name: Name,
        mode: u32,
    },
    Unlink {
        parent: FileId,
        name: Name,
    },
    RemoveDirectory {
        parent: FileId,
        name: Name,
    },
    Rename {
        parent: FileId,
        name: Name,
        new_parent: FileId,
        new_name: Name,
        flags: u32,
    },
    Link {
        file: FileId,
        new_parent: FileId,
        new_name: Name,
    },
    Create {
        parent: FileId,
        name: Name,
        mode: u32,
        flags: u32,
    },
    /// Makes a file that was not there; one that was made with this verifier, by an earlier execution of the same call,
    /// is success too (RFC 1813 section 3.3.8). It is not opened.
    CreateExclusive {
        parent: FileId,
        name: Name,
        mode: u32,
        verifier: [u8; 8],
    },
    /// A file without a name in the site of `parent` (O_TMPFILE).
    CreateUnnamed {
        parent: FileId,
        mode: u32,
        flags: u32,
    },
    Open {
        file: FileId,
        flags: u32,
    },
    Read {
        file: FileId,
        handle: Handle,
        offset: u64,
        bytes: u32,
    },
    /// The data starts at the first byte of the first frame and follows through the list.
    Write {
        file: FileId,
        handle: Handle,
        offset: u64,
        data: Vec<Frame>,
        flags: WriteFlags,
    },
    Flush {
        file: FileId,
        handle: Handle,
        owner: u64,
    },
    Release {
        file: FileId,
        handle: Handle,
        owner: Option<u64>,
    },
    Fsync {
        file: FileId,
        handle: Handle,
        data_only: bool,
    },
    OpenDirectory {
        file: FileId,
    },
    /// Entries after `cookie` (0 is the start), as many as fit in about `bytes` bytes.
    ReadDirectory {
        file: FileId,
        handle: Handle,
        cookie: u64,
        bytes: u32,
        with_attributes: bool,
    },
    ReleaseDirectory {
        file: FileId,
        handle: Handle,
    },
    FsyncDirectory {
        file: FileId,
    },
    StatFs,
    SetXattr {
        file: FileId,
        name: Name,
        value: Box<[u8]>,
        flags: u32,
    },
    GetXattr {
        file: FileId,
        name: Name,
    },
    ListXattr {
        file: FileId,
    },
    RemoveXattr {
        file: FileId,
        name: Name,
    },
    GetLock {
        file: FileId,
        handle: Handle,
        owner: u64,
        lock: Lock,
    },
    SetLock {
        file: FileId,
        handle: Handle,
        owner: u64,
        lock: Lock,
        wait: bool,
        whole_file: bool,
    },
    /// A lock that the owner had before the front was started anew, as far as it says; the owner's number is the same.
    ReclaimLock {
        file: FileId,
        owner: u64,
        lock: Lock,
    },
    Allocate {
        file: FileId,
        handle: Handle,
        offset: u64,
        bytes: u64,
        mode: u32,
    },
    Seek {
        file: FileId,
        handle: Handle,
        offset: u64,
        whence: u32,
    },
    /// The application will read so many bytes soon, after all that it named before; 0 is all that follow. The reply is
    /// how many of them are noted. A hint: nothing else depends on it.
    Prefetch {
        file: FileId,
        handle: Handle,
        offset: u64,
        bytes: u64,
    },
    /// An operation on names, or SetAttr, with attributes of its directories (its file); a change is synced. EBADE, and
    /// nothing is done, where the file's ctime is not `guard`; made once for all duplicates of `call`.
    WithWcc {
        op: Box<FileOp>,
        guard: Option<Wall>,
        call: Option<CallId>,
    },
    /// Entries as of [`ReadDirectory`](FileOp::ReadDirectory), of a directory that is not open; `Unchanged` where these
    /// are as of the version that the asker has of them.
    ListDirectory {
        file: FileId,
        cookie: u64,
        bytes: u32,
        with_attributes: bool,
        known: Option<ListingVersion>,
    },
    /// The application gave up on an earlier operation: it ends with EINTR if it still waits. Answered at once, and
    /// never waits behind other operations.
    Interrupt {
        front: u64,
    },
}

/// The result of a file operation.
#[derive(Debug)]
#[allow(missing_docs)] // as for FileOp
pub enum FileReply {
    Done,
    Attr(Attr),
    /// Of Lookup, Symlink, MakeNode, MakeDirectory, CreateExclusive, Link.
    Entry(Attr),
    Bytes(Vec<u8>),
    /// `keep_cache`: what the kernel has cached of the file is still right.
    Opened {
        handle: Handle,
        keep_cache: bool,
    },
    Created {
        attr: Attr,
        handle: Handle,
    },
    /// The first `bytes` bytes of the list.
    Data {
        frames: Vec<Frame>,
        bytes: usize,
    },
    Written(u32),
    Entries {
        entries: Vec<DirectoryEntry>,
        end: bool,
    },
    /// Of a directory that is not open. Without a version they may change unnoticed.
    Listed {
        entries: Vec<DirectoryEntry>,
        end: bool,
        version: Option<ListingVersion>,
    },
    Unchanged,
    Space(VolumeSpace),
    Lock(Lock),
    Offset(u64),
    Permissions(Attr, u32),
    WithWcc(Box<FileReply>, Vec<Wcc>),
}

/// Entry of the front ring.
#[derive(Debug)]
pub struct FileRequest {
    /// The front's own number; comes back.
    pub front: u64,
    /// The caller.
    pub caller: Caller,
    /// The operation.
    pub op: FileOp,
}

/// Entry of the front completion ring.
#[derive(Debug)]
pub struct FileDone {
    /// Of the request.
    pub front: u64,
    /// The outcome.
    pub result: Result<FileReply, Errno>,
}
