//! Results of the procedures (RFC 1813 section 3.3): of a success, and what comes with an error.

use super::types::{Fattr, Handle, NfsTime, Path, StableHow, Status, WccData};
use crate::xdr::{Garbage, Input, Xdr, record};

/// A status and what follows it: the result of a success, or of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T, F> {
    /// `NFS3_OK`.
    Ok(T),
    /// Any other status.
    Err(Status, F),
}

impl<'a, T: Xdr<'a>, F: Xdr<'a>> Xdr<'a> for Outcome<T, F> {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Outcome::Ok(value) => (Status::Ok.put(out), value.put(out)),
            Outcome::Err(status, failure) => (status.put(out), failure.put(out)),
        };
    }
    fn take(input: &mut Input<'a>) -> Result<Outcome<T, F>, Garbage> {
        match Status::take(input)? {
            Status::Ok => T::take(input).map(Outcome::Ok),
            status => F::take(input).map(|failure| Outcome::Err(status, failure)),
        }
    }
}

/// Failure of most procedures: attributes of the object, where they are known (`post_op_attr`).
pub type AttrFailure = Option<Fattr>;
/// Failure in a directory, or of a procedure that changes a file, and success of REMOVE and others.
pub type DirWcc = WccData;

/// Structures of results: as the RFC has them.
macro_rules! results {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        record! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(missing_docs)]
            pub struct $name { $(pub $field: $kind),* }
        }
    )*};
}

macro_rules! borrowing_results {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        record! {
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            #[allow(missing_docs)]
            pub struct $name<'a> { $(pub $field: $kind),* }
        }
    )*};
}

results! {
    /// ACCESS: what the server grants.
    AccessOk { attributes: Option<Fattr>, access: u32 }
    /// READ: the data follows, `data_bytes` of it, in frames.
    ReadOk { attributes: Option<Fattr>, count: u32, eof: bool, data_bytes: u32 }
    /// WRITE.
    WriteOk { wcc: WccData, count: u32, committed: StableHow, verifier: [u8; 8] }
    /// RENAME, also with an error.
    RenameWcc { from: WccData, to: WccData }
    /// LINK, also with an error.
    LinkResult { attributes: Option<Fattr>, wcc: WccData }
    /// FSSTAT.
    FsstatOk {
        attributes: Option<Fattr>,
        total_bytes: u64,
        free_bytes: u64,
        available_bytes: u64,
        total_files: u64,
        free_files: u64,
        available_files: u64,
        invariant_seconds: u32,
    }
    /// FSINFO.
    FsinfoOk {
        attributes: Option<Fattr>,
        read_max: u32,
        read_preferred: u32,
        read_multiple: u32,
        write_max: u32,
        write_preferred: u32,
        write_multiple: u32,
        readdir_preferred: u32,
        file_bytes_max: u64,
        time_delta: NfsTime,
        properties: u32,
    }
    /// PATHCONF.
    PathconfOk {
        attributes: Option<Fattr>,
        links_max: u32,
        name_bytes_max: u32,
        no_truncation: bool,
        chown_restricted: bool,
        case_insensitive: bool,
        case_preserving: bool,
    }
    /// COMMIT.
    CommitOk { wcc: WccData, verifier: [u8; 8] }
}

borrowing_results! {
    /// LOOKUP.
    LookupOk { object: Handle<'a>, attributes: Option<Fattr>, directory: Option<Fattr> }
    /// READLINK.
    ReadlinkOk { attributes: Option<Fattr>, target: Path<'a> }
    /// CREATE, MKDIR, SYMLINK and MKNOD.
    CreateOk { object: Option<Handle<'a>>, attributes: Option<Fattr>, wcc: WccData }
    /// One name that READDIR lists.
    Entry { fileid: u64, name: Path<'a>, cookie: u64 }
    /// READDIR.
    ReaddirOk { attributes: Option<Fattr>, verifier: [u8; 8], entries: Vec<Entry<'a>>, eof: bool }
    /// One name that READDIRPLUS lists.
    EntryPlus {
        fileid: u64,
        name: Path<'a>,
        cookie: u64,
        attributes: Option<Fattr>,
        handle: Option<Handle<'a>>,
    }
    /// READDIRPLUS.
    ReaddirplusOk {
        attributes: Option<Fattr>,
        verifier: [u8; 8],
        entries: Vec<EntryPlus<'a>>,
        eof: bool,
    }
}
