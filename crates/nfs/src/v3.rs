//! NFS version 3 (RFC 1813): all 22 procedures, their arguments and results, for a server and for a client.
//!
//! Fields keep the names and the order of the RFC. Borrowed fields lie in the record. The data of a WRITE and of a
//! READ's reply is not in these types: it lies in frames, and its length stands in [`WriteArgs`] and [`ReadOk`].
//!
//! The crate `nfs3_types` says the same for programs that trust their peer: it allocates what a length says before the
//! bytes are there (a credential of 40 bytes takes 16 GiB), copies every handle and name, refuses a call with an
//! unknown kind of credential as garbage, and keeps data in vectors. Tests compare every encoding with it.

mod answers;
mod args;
mod plan;
mod results;
mod types;

pub use answers::{ReadData, Results};
pub use args::{
    AccessArgs, Args, CommitArgs, CreateArgs, CreateHow, DirOpArgs, LinkArgs, MkdirArgs, MknodArgs,
    NodeKind, ReadArgs, ReaddirArgs, ReaddirplusArgs, RenameArgs, SetattrArgs, SymlinkArgs,
    WriteArgs,
};
pub use plan::{call_plan, read_reply_plan, write_data_bytes};
pub use results::{
    AccessOk, AttrFailure, CommitOk, CreateOk, DirWcc, Entry, EntryPlus, FsinfoOk, FsstatOk,
    LinkResult, LookupOk, Outcome, PathconfOk, ReadOk, ReaddirOk, ReaddirplusOk, ReadlinkOk,
    RenameWcc, WriteOk,
};
pub use types::{
    Fattr, FileType, Handle, NfsTime, NodeNumbers, Path, Sattr, SetTime, StableHow, Status,
    WccAttr, WccData, access, property,
};

use crate::xdr::enumeration;

/// Program (section 3).
pub const PROGRAM: u32 = 100_003;
/// Version.
pub const VERSION: u32 = 3;
/// Registered port (section 2.1).
pub const PORT: u16 = 2049;

enumeration! {
    /// The procedures (section 3.3).
    #[allow(missing_docs)] // they are named as in the RFC
    pub enum Procedure {
        Null = 0,
        Getattr = 1,
        Setattr = 2,
        Lookup = 3,
        Access = 4,
        Readlink = 5,
        Read = 6,
        Write = 7,
        Create = 8,
        Mkdir = 9,
        Symlink = 10,
        Mknod = 11,
        Remove = 12,
        Rmdir = 13,
        Rename = 14,
        Link = 15,
        Readdir = 16,
        Readdirplus = 17,
        Fsstat = 18,
        Fsinfo = 19,
        Pathconf = 20,
        Commit = 21,
    }
}

impl Procedure {
    /// Whether a second execution of the same call may do something else than the first, so that its reply is kept for
    /// duplicates (section 4.5). WRITE is one of them: a late duplicate would undo a newer write.
    pub const fn keeps_reply(self) -> bool {
        use Procedure::*;
        let changes_names =
            matches!(self, Create | Mkdir | Symlink | Mknod | Remove | Rmdir | Rename | Link);
        changes_names || matches!(self, Setattr | Write)
    }
}
