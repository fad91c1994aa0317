//! Arguments of the procedures (RFC 1813 section 3.3).

use super::Procedure;
use super::types::{FileType, Handle, NfsTime, NodeNumbers, Path, Sattr, StableHow};
use crate::xdr::{Garbage, Input, Xdr, record};

/// Structures of arguments: as the RFC has them.
macro_rules! args {
    ($($name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        record! {
            #[doc = concat!("Arguments: `", stringify!($name), "`, as in the RFC.")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[allow(missing_docs)]
            pub struct $name<'a> { $(pub $field: $kind),* }
        }
    )*};
}

args! {
    DirOpArgs { dir: Handle<'a>, name: Path<'a> }
    SetattrArgs { object: Handle<'a>, attributes: Sattr, guard: Option<NfsTime> }
    AccessArgs { object: Handle<'a>, access: u32 }
    ReadArgs { file: Handle<'a>, offset: u64, count: u32 }
    WriteArgs { file: Handle<'a>, offset: u64, count: u32, stable: StableHow, data_bytes: u32 }
    CreateArgs { place: DirOpArgs<'a>, how: CreateHow }
    MkdirArgs { place: DirOpArgs<'a>, attributes: Sattr }
    SymlinkArgs { place: DirOpArgs<'a>, attributes: Sattr, target: Path<'a> }
    MknodArgs { place: DirOpArgs<'a>, what: NodeKind }
    RenameArgs { from: DirOpArgs<'a>, to: DirOpArgs<'a> }
    LinkArgs { file: Handle<'a>, link: DirOpArgs<'a> }
    ReaddirArgs { dir: Handle<'a>, cookie: u64, verifier: [u8; 8], count: u32 }
    ReaddirplusArgs { dir: Handle<'a>, cookie: u64, verifier: [u8; 8], dircount: u32, maxcount: u32 }
    CommitArgs { file: Handle<'a>, offset: u64, count: u32 }
}

/// How a file is created (section 3.3.8, `createhow3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// One that exists will do.
    Unchecked(Sattr),
    /// One that exists is an error.
    Guarded(Sattr),
    /// As guarded, but one that was created with this verifier is it.
    Exclusive([u8; 8]),
}

impl<'a> Xdr<'a> for CreateHow {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            CreateHow::Unchecked(attributes) => (0u32.put(out), attributes.put(out)),
            CreateHow::Guarded(attributes) => (1u32.put(out), attributes.put(out)),
            CreateHow::Exclusive(verifier) => (2u32.put(out), verifier.put(out)),
        };
    }
    fn take(input: &mut Input<'a>) -> Result<CreateHow, Garbage> {
        match input.u32()? {
            0 => Sattr::take(input).map(CreateHow::Unchecked),
            1 => Sattr::take(input).map(CreateHow::Guarded),
            2 => Xdr::take(input).map(CreateHow::Exclusive),
            _ => Err(Garbage),
        }
    }
}

/// Kind of a node that MKNOD makes (section 3.3.11, `mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A character device.
    Character(Sattr, NodeNumbers),
    /// A block device.
    Block(Sattr, NodeNumbers),
    /// A socket.
    Socket(Sattr),
    /// A named pipe.
    Fifo(Sattr),
    /// Another kind, which is decoded and then refused with BADTYPE.
    Other(FileType),
}

impl<'a> Xdr<'a> for NodeKind {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, attributes, numbers) = match self {
            NodeKind::Character(attributes, numbers) => {
                (FileType::Character, Some(attributes), Some(numbers))
            }
            NodeKind::Block(attributes, numbers) => {
                (FileType::Block, Some(attributes), Some(numbers))
            }
            NodeKind::Socket(attributes) => (FileType::Socket, Some(attributes), None),
            NodeKind::Fifo(attributes) => (FileType::Fifo, Some(attributes), None),
            NodeKind::Other(kind) => (*kind, None, None),
        };
        kind.put(out);
        attributes.inspect(|attributes| attributes.put(out));
        numbers.inspect(|numbers| numbers.put(out));
    }
    fn take(input: &mut Input<'a>) -> Result<NodeKind, Garbage> {
        Ok(match FileType::take(input)? {
            FileType::Character => NodeKind::Character(Sattr::take(input)?, Xdr::take(input)?),
            FileType::Block => NodeKind::Block(Sattr::take(input)?, Xdr::take(input)?),
            FileType::Socket => NodeKind::Socket(Sattr::take(input)?),
            FileType::Fifo => NodeKind::Fifo(Sattr::take(input)?),
            kind => NodeKind::Other(kind),
        })
    }
}

macro_rules! procedures {
    ($($procedure:ident($kind:ty)),* $(,)?) => {
        /// A call's arguments, by procedure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Args<'a> {
            $($procedure($kind)),*
        }

        impl<'a> Args<'a> {
            /// Decodes all of `bytes`; of a WRITE they end before the data.
            pub fn decode(procedure: Procedure, bytes: &'a [u8]) -> Result<Args<'a>, Garbage> {
                match procedure {
                    $(Procedure::$procedure => crate::xdr::decoded(bytes).map(Args::$procedure)),*
                }
            }

            /// Appends the arguments; of a WRITE all but the data.
            pub fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Args::$procedure(args) => args.put(out)),*
                }
            }

            /// The procedure of these arguments.
            pub fn procedure(&self) -> Procedure {
                match self {
                    $(Args::$procedure(_) => Procedure::$procedure),*
                }
            }
        }
    };
}

procedures! {
    Null(()),
    Getattr(Handle<'a>),
    Setattr(SetattrArgs<'a>),
    Lookup(DirOpArgs<'a>),
    Access(AccessArgs<'a>),
    Readlink(Handle<'a>),
    Read(ReadArgs<'a>),
    Write(WriteArgs<'a>),
    Create(CreateArgs<'a>),
    Mkdir(MkdirArgs<'a>),
    Symlink(SymlinkArgs<'a>),
    Mknod(MknodArgs<'a>),
    Remove(DirOpArgs<'a>),
    Rmdir(DirOpArgs<'a>),
    Rename(RenameArgs<'a>),
    Link(LinkArgs<'a>),
    Readdir(ReaddirArgs<'a>),
    Readdirplus(ReaddirplusArgs<'a>),
    Fsstat(Handle<'a>),
    Fsinfo(Handle<'a>),
    Pathconf(Handle<'a>),
    Commit(CommitArgs<'a>),
}
