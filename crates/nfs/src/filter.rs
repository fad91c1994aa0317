//! The packet filter: one address for many managers. It passes a call of NFS to the manager that owns what the call is
//! about, and executes only what concerns bytes.
//!
//! ```text
//!   client ─ record ─► Front ─ Forward ─► Forwarder ─ NetRPC {client, rights, record} ─► manager: serve
//!          ◄ reply ──        ◄ Outcome ─            ◄ {reply's record} ────────────────┘
//!                        └─ READ, WRITE, COMMIT, MOUNT, locks ─► its own front ring
//! ```
//!
//! The filter has the table of exports: it refuses what a client may not, and sends the client's rights with the call,
//! so that managers need no table of their own. The manager executes the call as if it came from that client, under the
//! client's number of it: its duplicate-request cache answers a call that a restarted filter forwards again.
//!
//! [`subject`] decides, without sockets, clock or tasks. [`Forwarder`] and [`serve`] are the two halves on nodes.

mod executor;
mod forwarder;
mod message;

pub use executor::{Executor, FileSystem, serve};
pub use forwarder::{Forwarded, Forwarder};
pub use message::MessageError;

use crate::exports::Options;
use crate::handle::Named;
use crate::rpc::Call;
use crate::server::Server;
use crate::v3::{self, Args, CreateHow, Handle, Procedure};
use core::net::{IpAddr, SocketAddr};
use wire::FileId;

/// What a call that can be forwarded is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file or directory whose manager executes the call.
    pub file: FileId,
    /// The export's directory.
    pub path: String,
    /// Rights of the client there.
    pub options: Options,
    /// The reply is a listing.
    pub is_listing: bool,
}

/// A call to be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The front's number of it.
    pub number: u64,
    /// The client.
    pub client: SocketAddr,
    /// Its subject.
    pub subject: Subject,
    /// The record as it came.
    pub record: Vec<u8>,
}

/// The reply to a call that was forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The record.
    pub reply: Vec<u8>,
    /// A duplicate may be answered with the same.
    pub is_final: bool,
    /// The reply tells of an error.
    pub failed: bool,
}

/// Files that a filter has open for READ and WRITE: it knows of their bytes what no other node does.
pub trait OpenHere {
    /// Whether it has this file open.
    fn is_open(&self, file: FileId) -> bool;
    /// Whether it has any file open.
    fn is_any_open(&self) -> bool;
    /// Whether it may have written bytes of any file that no other node has.
    fn is_any_written(&self) -> bool;
}

/// What a call is about, when a manager is to execute it; `None`: the filter itself does. Those are READ, WRITE and
/// COMMIT, all that is to be refused, and calls whose outcome depends on bytes that the filter has, or changes them:
/// attributes of a file that it has open, and, of calls that name files by name, all while it is writing any.
pub fn subject(
    call: &Call<'_>,
    server: &Server,
    client: IpAddr,
    open: &impl OpenHere,
) -> Option<Subject> {
    if (call.program, call.version) != (v3::PROGRAM, v3::VERSION) {
        return None;
    }
    let args = Args::decode(Procedure::of(call.procedure)?, call.arguments).ok()?;
    let (handle, depends) = match args {
        Args::Null(()) | Args::Read(_) | Args::Write(_) | Args::Commit(_) => return None,
        Args::Getattr(file) => (file, Depends::File),
        Args::Setattr(args) => (args.object, Depends::File),
        Args::Access(args) => (args.object, Depends::File),
        Args::Link(args) => return link(args, server, client, open),
        Args::Lookup(args) => (args.dir, Depends::AnyWritten),
        Args::Create(args) => match args.how {
            // a file that is there is truncated
            CreateHow::Unchecked(_) => (args.place.dir, Depends::AnyOpen),
            _ => (args.place.dir, Depends::Nothing),
        },
        Args::Readdirplus(args) => (args.dir, Depends::AnyWritten),
        Args::Readdir(args) => (args.dir, Depends::Nothing),
        Args::Mkdir(args) => (args.place.dir, Depends::Nothing),
        Args::Symlink(args) => (args.place.dir, Depends::Nothing),
        Args::Mknod(args) => (args.place.dir, Depends::Nothing),
        Args::Remove(args) | Args::Rmdir(args) => (args.dir, Depends::Nothing),
        Args::Rename(args) => (args.from.dir, Depends::Nothing),
        Args::Readlink(file) | Args::Fsstat(file) | Args::Fsinfo(file) | Args::Pathconf(file) => {
            (file, Depends::Nothing)
        }
    };
    let (file, mut subject) = allowed(handle, server, client)?;
    let is_here = match depends {
        Depends::Nothing => false,
        Depends::File => open.is_open(file),
        Depends::AnyOpen => open.is_any_open(),
        Depends::AnyWritten => open.is_any_written(),
    };
    subject.is_listing = matches!(args, Args::Readdir(_) | Args::Readdirplus(_));
    (!is_here).then_some(subject)
}

/// Bytes that the outcome of a call depends on.
enum Depends {
    Nothing,
    /// Those of its file.
    File,
    /// Those of a file that it names, for reading too.
    AnyOpen,
    /// Those of files that it names.
    AnyWritten,
}

fn link(
    args: v3::LinkArgs<'_>,
    server: &Server,
    client: IpAddr,
    open: &impl OpenHere,
) -> Option<Subject> {
    let (file, _) = allowed(args.file, server, client)?;
    let (_, subject) = allowed(args.link.dir, server, client)?;
    (!open.is_open(file)).then_some(subject)
}

/// The file of a handle, if the client may use it.
fn allowed(handle: Handle<'_>, server: &Server, client: IpAddr) -> Option<(FileId, Subject)> {
    let named = Named::decode(handle, server.volume, &server.key).ok()?;
    let export = server.exports.numbered(named.export)?;
    let options = export.options(client)?;
    let path = export.path.clone();
    Some((named.file, Subject { file: named.file, path, options, is_listing: false }))
}
