//! A call of NFSv3 as what it asks of the front ring, one operation after the other, and the reply that comes of it.
//!
//! ```text
//!   record ── Execution::begin ──► Step::Ask(FileOp) ──► front ring
//!                  ▲                                        │
//!                  └── Execution::answer(FileReply) ◄───────┘      ... ──► Step::Reply(Outgoing)
//! ```
//!
//! It has no tasks, clock or sockets: the holder of an [`Execution`] moves operations to a front ring and answers
//! back, on a live node or in a simulation. A procedure is written as an `async` function, since most are several
//! operations; nothing but [`Execution`] ever polls it.
//!
//! Promises (RFC 1813 section 4.8): a change of names is on stable storage when it is answered; data is when
//! the WRITE asked for it or a COMMIT was answered. `after` of weak cache consistency is always sent, where the object
//! can be asked; `before` only where the manager took both in one step with the change, since a wrong one would hide a
//! change from a client. The bytes of a file change without the manager, so there is none of a WRITE, nor of a SETATTR
//! while a client has the file open for writing.

mod data;
mod execution;
mod kept_listings;
mod listing;
mod locking;
mod monitoring;
mod mounting;
mod namespace;
mod objects;
mod open_files;
mod origin;

pub use execution::{Executed, Execution, Step};
pub use open_files::OpenFiles;
pub use origin::{Origin, Port};

use crate::exports::{Access, Export, Exports, Options};
use crate::handle::{HANDLE_BYTES, Key, Named};
use crate::locks::{Beginning, LockTable};
use crate::portmap::Service;
use crate::v3::{Fattr, Handle, Status, WccData};
use execution::Asker;
use kept_listings::KeptListings;
use mounting::Mounts;
use node::bugs::{Bug, Bugs};
use node::rings::{Caller, FileOp, FileReply};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use wire::{Attr, Errno, FileId, FileKind, Time, VolumeId, Wall, Wcc};

/// State that all calls of one server share.
#[derive(Debug)]
pub struct Server {
    /// The volume.
    pub volume: VolumeId,
    /// The key of its handles.
    pub key: Key,
    /// The exports.
    pub exports: Rc<Exports>,
    /// Of this incarnation: another one after each start, so that clients retransmit what was not committed.
    pub write_verifier: [u8; 8],
    /// Services that the port mapper here names.
    pub services: Vec<Service>,
    /// Planted bugs.
    pub bugs: Bugs,
    mounts: RefCell<Mounts>,
    open_files: RefCell<OpenFiles>,
    locks: RefCell<LockTable>,
    listings: RefCell<KeptListings>,
    now: Cell<(Time, Wall)>,
}

impl Server {
    /// A server of these exports.
    pub fn new(volume: VolumeId, key: Key, exports: Exports, write_verifier: [u8; 8]) -> Server {
        Server {
            volume,
            key,
            exports: Rc::new(exports),
            write_verifier,
            services: Vec::new(),
            bugs: Bugs::everywhere(),
            mounts: RefCell::default(),
            open_files: RefCell::default(),
            locks: RefCell::new(LockTable::new(key, Beginning::default())),
            listings: RefCell::default(),
            now: Cell::default(),
        }
    }

    /// The number of the file system that clients see: the volume's, whichever manager answers.
    pub fn fsid(&self) -> u64 {
        u64::from(self.volume.0)
    }

    /// The verifier that WRITE and COMMIT answer with.
    fn verifier(&self) -> [u8; 8] {
        let is_kept = self.bugs.has(Bug::FrontVerifierKept);
        if is_kept { [7; 8] } else { self.write_verifier }
    }

    /// The files that are open between calls.
    pub fn open_files(&self) -> &RefCell<OpenFiles> {
        &self.open_files
    }

    /// The locks of its clients.
    pub fn locks(&self) -> &RefCell<LockTable> {
        &self.locks
    }

    /// Loads the clients that had locks from the last incarnation.
    pub fn begin_locks(&self, beginning: Beginning) {
        self.locks.replace(LockTable::new(self.key, beginning));
    }

    /// The time that its calls see.
    pub fn set_now(&self, now: Time, wall: Wall) {
        self.now.set((now, wall));
        self.locks.borrow_mut().set_now(now);
    }

    fn now(&self) -> Time {
        self.now.get().0
    }

    fn unix_seconds(&self) -> u32 {
        u32::try_from(self.now.get().1.seconds).unwrap_or_default()
    }
}

/// The file at a path, which is walked as root: an administrator named it.
async fn walk(asker: &Asker, names: impl Iterator<Item = &[u8]>) -> Result<Attr, Errno> {
    let root = Caller::default();
    let op = FileOp::GetAttr { file: FileId::ROOT, handle: None };
    let FileReply::Attr(mut attr) = asker.ask_as(&root, op).await? else {
        return Err(Errno::EPROTO);
    };
    for name in names.filter(|name| !name.is_empty()) {
        if attr.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let op = FileOp::Lookup { parent: attr.file, name: name.into() };
        let FileReply::Entry(found) = asker.ask_as(&root, op).await? else {
            return Err(Errno::EPROTO);
        };
        attr = found;
    }
    Ok(attr)
}

/// The export of a handle, among these.
fn export<'e>(
    server: &Server,
    exports: &'e Exports,
    handle: Handle<'_>,
) -> Result<&'e Export, Status> {
    let named = Named::decode(handle, server.volume, &server.key)?;
    exports.numbered(named.export).ok_or(Status::Stale)
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
}

/// One call: who it counts as, what it may, and whom it asks.
struct Context<'s> {
    server: &'s Server,
    asker: Asker,
    options: Options,
    export: &'s Export,
}

type Failed<F> = (Status, F);

impl Context<'_> {
    fn file(&self, handle: Handle<'_>) -> Result<FileId, Status> {
        let named = Named::decode(handle, self.server.volume, &self.server.key)?;
        // a handle of another export has that one's options, so it is not good for this call's
        let is_ours = named.export == self.export.number();
        if is_ours { Ok(named.file) } else { Err(Status::Stale) }
    }

    /// Whether it is the export's own directory: nothing above it is the client's.
    async fn is_top(&self, directory: FileId) -> Result<bool, Status> {
        let path = self.export.path.as_bytes();
        let top = walk(&self.asker, names(path)).await.map_err(crate::convert::status)?;
        Ok(top.file == directory)
    }

    fn handle(&self, file: FileId) -> [u8; HANDLE_BYTES] {
        let (volume, export) = (self.server.volume, self.export.number());
        Named { volume, file, generation: 0, export }.encode(&self.server.key)
    }

    fn writable(&self) -> Result<(), Status> {
        match self.options.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(Status::Rofs),
        }
    }

    async fn ask(&self, op: FileOp) -> Result<FileReply, Status> {
        self.asker.ask(op).await.map_err(crate::convert::status)
    }

    async fn attr(&self, file: FileId) -> Result<Attr, Status> {
        match self.ask(FileOp::GetAttr { file, handle: None }).await? {
            FileReply::Attr(attr) => Ok(attr),
            _ => Err(Status::ServerFault),
        }
    }

    fn fattr(&self, attr: &Attr) -> Fattr {
        crate::convert::fattr(attr, self.server.fsid())
    }

    /// Attributes to send along, where they can be had.
    async fn post(&self, file: FileId) -> Option<Fattr> {
        self.attr(file).await.ok().map(|attr| self.fattr(&attr))
    }

    /// Attributes of a directory or a file after a change that failed.
    async fn wcc(&self, file: FileId) -> WccData {
        WccData { before: None, after: self.post(file).await }
    }

    /// Asks for an operation on names with what it changed: on stable storage, if it is a change.
    async fn ask_with_wcc(&self, op: FileOp) -> Result<(FileReply, Vec<WccData>), Status> {
        self.ask_guarded(op, None).await
    }

    /// The same; NOT_SYNC, and nothing is done, unless `guard` is the file's ctime.
    async fn ask_guarded(
        &self,
        op: FileOp,
        guard: Option<Wall>,
    ) -> Result<(FileReply, Vec<WccData>), Status> {
        let guard = guard.filter(|_| !self.server.bugs.has(Bug::GuardIgnored));
        let op = FileOp::WithWcc { op: Box::new(op), guard, call: self.asker.call };
        let FileReply::WithWcc(reply, changed) = self.ask(op).await? else {
            return Err(Status::ServerFault);
        };
        let data = |changed: &Wcc| WccData {
            before: changed.before.as_ref().map(crate::convert::wcc),
            after: Some(self.fattr(&changed.after)),
        };
        Ok((*reply, changed.iter().map(data).collect()))
    }
}

/// The attributes that an operation on a name brought.
fn entry(reply: FileReply) -> Result<Attr, Status> {
    match reply {
        FileReply::Entry(attr) => Ok(attr),
        _ => Err(Status::ServerFault),
    }
}
