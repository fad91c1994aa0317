//! The calls of a client, by program.

use crate::portmap::{self, Mapping};
use crate::xdr::Xdr;
use crate::{mount, nlm, v3};

/// A procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Of NFSv3.
    Nfs(v3::Procedure),
    /// Of MOUNT.
    Mount(mount::Procedure),
    /// Of NLM.
    Lock(nlm::Procedure),
    /// GETPORT of the port mapper.
    Port,
}

impl Called {
    /// Program, version and procedure.
    pub fn numbers(self) -> (u32, u32, u32) {
        match self {
            Called::Nfs(procedure) => (v3::PROGRAM, v3::VERSION, procedure as u32),
            Called::Mount(procedure) => (mount::PROGRAM, mount::VERSION, procedure as u32),
            Called::Lock(procedure) => (nlm::PROGRAM, nlm::VERSION, procedure as u32),
            Called::Port => (portmap::PROGRAM, portmap::PORTMAP, portmap::version2::GETPORT),
        }
    }
}

/// A procedure and its arguments.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Of NFSv3, but WRITE.
    Nfs(v3::Args<'a>),
    /// WRITE, and its data. Its arguments say how many bytes these are.
    Write(v3::WriteArgs<'a>, &'a [u8]),
    /// Of MOUNT.
    Mount(mount::Args<'a>),
    /// Of NLM: TEST, LOCK, CANCEL and UNLOCK have the same arguments with and without an answer.
    Lock(nlm::Procedure, nlm::Args<'a>),
    /// GETPORT of the port mapper; the port in it says nothing.
    Port(Mapping),
}

impl<'a> From<v3::Args<'a>> for Request<'a> {
    fn from(args: v3::Args<'a>) -> Request<'a> {
        Request::Nfs(args)
    }
}

impl<'a> From<mount::Args<'a>> for Request<'a> {
    fn from(args: mount::Args<'a>) -> Request<'a> {
        Request::Mount(args)
    }
}

impl<'a> Request<'a> {
    /// A WRITE of all the data.
    pub fn write(
        file: v3::Handle<'a>,
        offset: u64,
        stable: v3::StableHow,
        data: &'a [u8],
    ) -> Request<'a> {
        let count = u32::try_from(data.len()).expect("a WRITE of less than 4 GiB");
        let args = v3::WriteArgs { file, offset, count, stable, data_bytes: count };
        Request::Write(args, data)
    }

    /// The procedure.
    pub fn called(&self) -> Called {
        match self {
            Request::Nfs(args) => Called::Nfs(args.procedure()),
            Request::Write(..) => Called::Nfs(v3::Procedure::Write),
            Request::Mount(args) => Called::Mount(args.procedure()),
            Request::Lock(procedure, _) => Called::Lock(*procedure),
            Request::Port(_) => Called::Port,
        }
    }

    /// The arguments, of a WRITE without its data.
    pub(super) fn arguments(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            Request::Nfs(args) => args.put(&mut out),
            Request::Write(args, _) => v3::Args::Write(*args).put(&mut out),
            Request::Mount(args) => args.put(&mut out),
            Request::Lock(_, args) => args.put(&mut out),
            Request::Port(mapping) => mapping.put(&mut out),
        }
        out
    }

    pub(super) fn data(&self) -> &'a [u8] {
        match self {
            Request::Write(args, data) => {
                assert_eq!(args.data_bytes as usize, data.len(), "the length of the data");
                data
            }
            Request::Nfs(_) | Request::Mount(_) | Request::Lock(..) | Request::Port(_) => &[],
        }
    }
}
