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

pub use executor::{FileSystem, Route, serve};
pub use forwarder::{Forwarded, Forwarder, SiteOfName};
pub use message::MessageError;

use crate::cookies;
use crate::exports::Options;
use crate::handle::Named;
use crate::rpc::{Call, Reply};
use crate::server::Server;
use crate::v3::{self, Args, CreateHow, Handle, Procedure, Results};
use core::net::{IpAddr, SocketAddr};
use node::Bug;
use wire::FileId;

/// The part of a directory that a call is about. In a hashed directory it decides which manager executes the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it, or a file.
    Whole,
    /// A name.
    Name(Vec<u8>),
    /// The entries behind a cookie, as clients have it.
    Behind(u64),
}

impl Part {
    /// The site that the part of a hashed directory is at.
    pub fn site(&self, directory: FileId, site_of_name: SiteOfName) -> u8 {
        match self {
            Part::Whole => directory.site(),
            Part::Name(name) => site_of_name(directory, name),
            Part::Behind(cookie) => cookies::site(directory, *cookie),
        }
    }
}

/// The subject of a call that can be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file or directory whose manager executes the call.
    pub file: FileId,
    /// The part of that directory that it is about; managers take it from the record.
    pub part: Part,
    /// The export's directory.
    pub path: String,
    /// Rights of the client there.
    pub options: Options,
    /// The reply is a listing.
    pub is_listing: bool,
    /// The reply may have attributes of files that the call has no handle of. Such a call can be executed twice.
    pub names_files: bool,
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
}

/// The subject of a call that a manager is to execute; `None`: the filter itself does. Those are READ, WRITE and
/// COMMIT, all that is to be refused, and calls whose outcome depends on bytes that the filter has, or changes them:
/// attributes of a file that it has open, and CREATE that may truncate a file, while it has any open.
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
    let (handle, part) = target(&args)?;
    let (file, mut subject) = allowed(handle, server, client)?;
    let is_here = match args {
        Args::Getattr(_) | Args::Setattr(_) | Args::Access(_) => open.is_open(file),
        Args::Link(link) => open.is_open(allowed(link.file, server, client)?.0),
        Args::Create(args) => truncates(args.how) && open.is_any_open(),
        _ => false,
    };
    subject.part = part;
    subject.names_files = match args {
        Args::Lookup(_) | Args::Readdirplus(_) => true,
        Args::Create(args) => matches!(args.how, CreateHow::Unchecked(_)),
        _ => false,
    };
    subject.is_listing = matches!(args, Args::Readdir(_) | Args::Readdirplus(_));
    let is_forgotten = server.bugs.has(Bug::OwnBytesForgotten);
    (!is_here || is_forgotten).then_some(subject)
}

/// The file or directory that a call is about, and the part of it; `None`: managers execute no such calls.
fn target<'a>(args: &Args<'a>) -> Option<(Handle<'a>, Part)> {
    let place = match args {
        Args::Lookup(place) | Args::Remove(place) | Args::Rmdir(place) => place,
        Args::Create(args) => &args.place,
        Args::Mkdir(args) => &args.place,
        Args::Symlink(args) => &args.place,
        Args::Mknod(args) => &args.place,
        Args::Rename(args) => &args.from,
        Args::Link(args) => &args.link,
        Args::Setattr(args) => return Some((args.object, Part::Whole)),
        Args::Access(args) => return Some((args.object, Part::Whole)),
        Args::Readdir(args) => return Some((args.dir, Part::Behind(args.cookie))),
        Args::Readdirplus(args) => return Some((args.dir, Part::Behind(args.cookie))),
        Args::Getattr(file) | Args::Readlink(file) => return Some((*file, Part::Whole)),
        Args::Fsstat(file) | Args::Fsinfo(file) | Args::Pathconf(file) => {
            return Some((*file, Part::Whole));
        }
        Args::Null(()) | Args::Read(_) | Args::Write(_) | Args::Commit(_) => return None,
    };
    Some((place.dir, Part::Name(place.name.0.to_vec())))
}

/// Whether CREATE sets the length of a file that is there.
fn truncates(how: CreateHow) -> bool {
    matches!(how, CreateHow::Unchecked(attributes) if attributes.size.is_some())
}

/// Files of which a reply has attributes without the call having a handle of them.
pub fn files_named(procedure: Procedure, reply: &[u8], server: &Server) -> Vec<FileId> {
    let results = Reply::parse(reply).map(|(.., results)| Results::decode(procedure, results));
    let handles = match results {
        Ok(Ok(Results::Lookup(v3::Outcome::Ok(found)))) => vec![found.object],
        Ok(Ok(Results::Create(v3::Outcome::Ok(made)))) => made.object.into_iter().collect(),
        Ok(Ok(Results::Readdirplus(v3::Outcome::Ok(listed)))) => {
            listed.entries.iter().filter_map(|entry| entry.handle).collect()
        }
        _ => Vec::new(),
    };
    let named = |handle| Named::decode(handle, server.volume, &server.key).ok();
    handles.into_iter().filter_map(named).map(|named| named.file).collect()
}

/// The file of a handle, if the client may use it.
fn allowed(handle: Handle<'_>, server: &Server, client: IpAddr) -> Option<(FileId, Subject)> {
    let named = Named::decode(handle, server.volume, &server.key).ok()?;
    let export = server.exports.numbered(named.export)?;
    let options = export.options(client)?;
    let path = export.path.clone();
    let file = named.file;
    let part = Part::Whole;
    Some((file, Subject { file, part, path, options, is_listing: false, names_files: false }))
}
