//! Results by procedure, as a client decodes them.

use super::results::{
    AccessOk, AttrFailure, CommitOk, CreateOk, FsinfoOk, FsstatOk, LinkResult, LookupOk, Outcome,
    PathconfOk, ReadOk, ReaddirOk, ReaddirplusOk, ReadlinkOk, RenameWcc, WriteOk,
};
use super::types::{Fattr, Status, WccData};
use super::{DirWcc, Procedure};
use crate::limits::IO_BYTES_MAX;
use crate::xdr::{Garbage, Input, Xdr, decoded, padding};

/// READ's results and the data that follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadData<'a> {
    /// The results.
    pub ok: ReadOk,
    /// As many bytes as the results say.
    pub data: &'a [u8],
}

impl<'a> Xdr<'a> for ReadData<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        assert_eq!(self.ok.data_bytes as usize, self.data.len(), "the length of the data");
        self.ok.put(out);
        out.extend_from_slice(self.data);
        out.resize(out.len() + padding(self.data.len()), 0);
    }
    fn take(input: &mut Input<'a>) -> Result<ReadData<'a>, Garbage> {
        let ok = ReadOk::take(input)?;
        let bytes = ok.data_bytes as usize;
        if bytes > IO_BYTES_MAX || ok.count != ok.data_bytes {
            return Err(Garbage);
        }
        Ok(ReadData { ok, data: input.fixed(bytes)? })
    }
}

macro_rules! procedures {
    ($($procedure:ident($ok:ty, $failure:ty)),* $(,)?) => {
        /// A procedure's results.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // they are named as in the RFC
        pub enum Results<'a> {
            Null,
            $($procedure(Outcome<$ok, $failure>)),*
        }

        impl<'a> Results<'a> {
            /// Decodes all of `bytes`.
            pub fn decode(procedure: Procedure, bytes: &'a [u8]) -> Result<Results<'a>, Garbage> {
                match procedure {
                    Procedure::Null => decoded::<()>(bytes).map(|()| Results::Null),
                    $(Procedure::$procedure => decoded(bytes).map(Results::$procedure)),*
                }
            }

            /// Appends the results.
            pub fn put(&self, out: &mut Vec<u8>) {
                match self {
                    Results::Null => {}
                    $(Results::$procedure(outcome) => outcome.put(out)),*
                }
            }

            /// The outcome; of NULL always success.
            pub fn status(&self) -> Status {
                match self {
                    Results::Null => Status::Ok,
                    $(Results::$procedure(Outcome::Ok(_)) => Status::Ok,)*
                    $(Results::$procedure(Outcome::Err(status, _)) => *status),*
                }
            }
        }
    };
}

procedures! {
    Getattr(Fattr, ()),
    Setattr(WccData, WccData),
    Lookup(LookupOk<'a>, AttrFailure),
    Access(AccessOk, AttrFailure),
    Readlink(ReadlinkOk<'a>, AttrFailure),
    Read(ReadData<'a>, AttrFailure),
    Write(WriteOk, WccData),
    Create(CreateOk<'a>, DirWcc),
    Mkdir(CreateOk<'a>, DirWcc),
    Symlink(CreateOk<'a>, DirWcc),
    Mknod(CreateOk<'a>, DirWcc),
    Remove(DirWcc, DirWcc),
    Rmdir(DirWcc, DirWcc),
    Rename(RenameWcc, RenameWcc),
    Link(LinkResult, LinkResult),
    Readdir(ReaddirOk<'a>, AttrFailure),
    Readdirplus(ReaddirplusOk<'a>, AttrFailure),
    Fsstat(FsstatOk, AttrFailure),
    Fsinfo(FsinfoOk, AttrFailure),
    Pathconf(PathconfOk, AttrFailure),
    Commit(CommitOk, WccData),
}
