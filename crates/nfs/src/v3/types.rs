//! The basic types (RFC 1813 section 2.5).

use crate::limits::HANDLE_BYTES_MAX;
use crate::xdr::{Garbage, Input, Xdr, enumeration, opaque, record};

opaque! {
    /// A file handle as it comes (`nfs_fh3`).
    pub struct Handle of HANDLE_BYTES_MAX
}

opaque! {
    /// A path or a name (`nfspath3`, `filename3`): any bytes; the record's length bounds it.
    pub struct Path of usize::MAX
}

enumeration! {
    /// Outcome of a procedure (section 2.6, `nfsstat3`).
    #[allow(missing_docs)] // they are named as in the RFC
    pub enum Status {
        Ok = 0,
        Perm = 1,
        NoEnt = 2,
        Io = 5,
        Nxio = 6,
        Acces = 13,
        Exist = 17,
        Xdev = 18,
        NoDev = 19,
        NotDir = 20,
        IsDir = 21,
        Inval = 22,
        Fbig = 27,
        NoSpc = 28,
        Rofs = 30,
        Mlink = 31,
        NameTooLong = 63,
        NotEmpty = 66,
        Dquot = 69,
        Stale = 70,
        Remote = 71,
        BadHandle = 10001,
        NotSync = 10002,
        BadCookie = 10003,
        NotSupp = 10004,
        TooSmall = 10005,
        ServerFault = 10006,
        BadType = 10007,
        Jukebox = 10008,
    }
}

enumeration! {
    /// Kind of a file (`ftype3`).
    #[allow(missing_docs)]
    pub enum FileType {
        Regular = 1,
        Directory = 2,
        Block = 3,
        Character = 4,
        Symlink = 5,
        Socket = 6,
        Fifo = 7,
    }
}

enumeration! {
    /// Extent to which a WRITE is on stable storage when it is answered (section 3.3.7, `stable_how`).
    pub enum StableHow {
        /// Nothing need be.
        Unstable = 0,
        /// The data, and what is needed to read it.
        DataSync = 1,
        /// The data and all attributes.
        FileSync = 2,
    }
}

record! {
    /// A time (`nfstime3`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct NfsTime {
        pub seconds: u32,
        pub nseconds: u32,
    }
}

record! {
    /// Major and minor number of a device (`specdata3`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct NodeNumbers {
        pub major: u32,
        pub minor: u32,
    }
}

record! {
    /// Attributes (`fattr3`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Fattr {
        pub kind: FileType,
        pub mode: u32,
        pub nlink: u32,
        pub uid: u32,
        pub gid: u32,
        pub size: u64,
        pub used: u64,
        pub rdev: NodeNumbers,
        pub fsid: u64,
        pub fileid: u64,
        pub atime: NfsTime,
        pub mtime: NfsTime,
        pub ctime: NfsTime,
    }
}

record! {
    /// Attributes by which a client tells whether its cache missed a change (`wcc_attr`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct WccAttr {
        pub size: u64,
        pub mtime: NfsTime,
        pub ctime: NfsTime,
    }
}

record! {
    /// Weak cache consistency (`wcc_data`): `before` only where it was captured in one step with the change.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct WccData {
        pub before: Option<WccAttr>,
        pub after: Option<Fattr>,
    }
}

/// How a time is set (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// It stays.
    #[default]
    DontChange,
    /// To the server's clock.
    ToServerTime,
    /// To this.
    ToClientTime(NfsTime),
}

impl<'a> Xdr<'a> for SetTime {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::DontChange => 0u32.put(out),
            SetTime::ToServerTime => 1u32.put(out),
            SetTime::ToClientTime(time) => {
                2u32.put(out);
                time.put(out);
            }
        }
    }
    fn take(input: &mut Input<'a>) -> Result<SetTime, Garbage> {
        match input.u32()? {
            0 => Ok(SetTime::DontChange),
            1 => Ok(SetTime::ToServerTime),
            2 => NfsTime::take(input).map(SetTime::ToClientTime),
            _ => Err(Garbage),
        }
    }
}

record! {
    /// Attributes to set (`sattr3`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Sattr {
        pub mode: Option<u32>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        pub size: Option<u64>,
        pub atime: SetTime,
        pub mtime: SetTime,
    }
}

/// Bits of ACCESS (section 3.3.4).
#[allow(missing_docs)]
pub mod access {
    pub const READ: u32 = 1;
    pub const LOOKUP: u32 = 2;
    pub const MODIFY: u32 = 4;
    pub const EXTEND: u32 = 8;
    pub const DELETE: u32 = 16;
    pub const EXECUTE: u32 = 32;
}

/// Properties that FSINFO tells (section 3.3.19).
#[allow(missing_docs)]
pub mod property {
    pub const LINK: u32 = 1;
    pub const SYMLINK: u32 = 2;
    pub const HOMOGENEOUS: u32 = 8;
    pub const CAN_SET_TIME: u32 = 16;
}
