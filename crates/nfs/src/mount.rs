//! MOUNT version 3 (RFC 1813 section 5.0): handles of paths, and the list of mounts that clients have reported.
//!
//! Every procedure answers: `showmount -e` and macOS ask more than MNT and hang without. The list that DUMP returns
//! rests on the clients' word; nothing depends on it.

use crate::limits::{HANDLE_BYTES_MAX, MOUNT_NAME_BYTES_MAX, MOUNT_PATH_BYTES_MAX};
use crate::v3::Handle;
use crate::xdr::{Garbage, Input, Xdr, enumeration, opaque, record};
use wire::Errno;

/// Program (section 5.1).
pub const PROGRAM: u32 = 100_005;
/// Version.
pub const VERSION: u32 = 3;
/// Older versions, of NFSv2: clients ask them with `UMNT` and `DUMP`, which are the same in all.
pub const VERSION_LOWEST: u32 = 1;

enumeration! {
    /// The procedures (section 5.2).
    #[allow(missing_docs)] // they are named as in the RFC
    pub enum Procedure {
        Null = 0,
        Mnt = 1,
        Dump = 2,
        Umnt = 3,
        UmntAll = 4,
        Export = 5,
    }
}

enumeration! {
    /// Outcome of MNT (section 5.1.5, `mountstat3`).
    #[allow(missing_docs)]
    pub enum Status {
        Ok = 0,
        Perm = 1,
        NoEnt = 2,
        Io = 5,
        Acces = 13,
        NotDir = 20,
        Inval = 22,
        NameTooLong = 63,
        NotSupp = 10004,
        ServerFault = 10006,
    }
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Status {
        match errno {
            Errno::EPERM => Status::Perm,
            Errno::ENOENT => Status::NoEnt,
            Errno::EACCES => Status::Acces,
            Errno::ENOTDIR => Status::NotDir,
            Errno::EINVAL => Status::Inval,
            Errno::ENAMETOOLONG => Status::NameTooLong,
            Errno::EOPNOTSUPP => Status::NotSupp,
            Errno::ENOMEM => Status::ServerFault,
            _ => Status::Io,
        }
    }
}

opaque! {
    /// A path (`dirpath`).
    pub struct DirPath of MOUNT_PATH_BYTES_MAX
}

opaque! {
    /// A client or a group of clients (`name`).
    pub struct Name of MOUNT_NAME_BYTES_MAX
}

opaque! {
    /// A handle (`fhandle3`).
    pub struct MountHandle of HANDLE_BYTES_MAX
}

impl<'a> From<Handle<'a>> for MountHandle<'a> {
    fn from(handle: Handle<'a>) -> MountHandle<'a> {
        MountHandle(handle.0)
    }
}

/// Result of MNT (section 5.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MntResult<'a> {
    /// The handle, and the kinds of credential that the export takes, best first.
    Ok(MountHandle<'a>, Vec<u32>),
    /// Refused.
    Err(Status),
}

/// AUTH_SYS, the kind of credential that exports take.
pub const AUTH_SYS: u32 = 1;
/// Kinds of credential that a reply may list: there are some twenty.
const FLAVORS_MAX: usize = 64;

impl<'a> Xdr<'a> for MntResult<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            MntResult::Ok(handle, flavors) => {
                Status::Ok.put(out);
                handle.put(out);
                (flavors.len() as u32).put(out);
                flavors.iter().for_each(|flavor| flavor.put(out));
            }
            MntResult::Err(status) => status.put(out),
        }
    }
    fn take(input: &mut Input<'a>) -> Result<MntResult<'a>, Garbage> {
        let status = Status::take(input)?;
        if status != Status::Ok {
            return Ok(MntResult::Err(status));
        }
        let handle = MountHandle::take(input)?;
        let count = input.u32()? as usize;
        if count > FLAVORS_MAX {
            return Err(Garbage);
        }
        let flavors = (0..count).map(|_| input.u32()).collect::<Result<_, _>>()?;
        Ok(MntResult::Ok(handle, flavors))
    }
}

record! {
    /// One client that said it mounted something (section 5.2.2, `mountbody`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Mounted<'a> {
        pub client: Name<'a>,
        pub directory: DirPath<'a>,
    }
}

record! {
    /// One export and who may mount it (section 5.2.5, `exportnode`).
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[allow(missing_docs)]
    pub struct Exported<'a> {
        pub directory: DirPath<'a>,
        pub groups: Vec<Name<'a>>,
    }
}

/// A call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // they are named as in the RFC
pub enum Args<'a> {
    Null,
    Mnt(DirPath<'a>),
    Dump,
    Umnt(DirPath<'a>),
    UmntAll,
    Export,
}

impl<'a> Args<'a> {
    /// Decodes all of `bytes`.
    pub fn decode(procedure: Procedure, bytes: &'a [u8]) -> Result<Args<'a>, Garbage> {
        let args = match procedure {
            Procedure::Mnt => return crate::xdr::decoded(bytes).map(Args::Mnt),
            Procedure::Umnt => return crate::xdr::decoded(bytes).map(Args::Umnt),
            Procedure::Null => Args::Null,
            Procedure::Dump => Args::Dump,
            Procedure::UmntAll => Args::UmntAll,
            Procedure::Export => Args::Export,
        };
        crate::xdr::decoded::<()>(bytes).map(|()| args)
    }

    /// Appends the arguments.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Args::Mnt(path) | Args::Umnt(path) => path.put(out),
            Args::Null | Args::Dump | Args::UmntAll | Args::Export => {}
        }
    }

    /// The procedure of these arguments.
    pub fn procedure(&self) -> Procedure {
        match self {
            Args::Null => Procedure::Null,
            Args::Mnt(_) => Procedure::Mnt,
            Args::Dump => Procedure::Dump,
            Args::Umnt(_) => Procedure::Umnt,
            Args::UmntAll => Procedure::UmntAll,
            Args::Export => Procedure::Export,
        }
    }
}
