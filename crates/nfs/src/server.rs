//! A call of NFSv3 as what it asks of the front ring, one operation after the other, and the reply that comes of it.
//!
//! ```text
//!   record ── Execution::begin ──► Step::Ask(FileOp) ──► front ring
//!                  ▲                                        │
//!                  └── Execution::answer(FileReply) ◄───────┘      ... ──► Step::Reply(Outgoing)
//! ```
//!
//! It has no tasks, clock or sockets: whoever holds an [`Execution`] moves operations to a front ring and answers
//! back, on a live node or in a simulation. A procedure is written as an `async` function, since most are several
//! operations; nothing but [`Execution`] ever polls it.
//!
//! What it promises (RFC 1813 section 4.8): a change of names is on stable storage when it is answered; data is when
//! the WRITE asked for it or a COMMIT was answered. `before` of weak cache consistency is never sent: the ring does not
//! tell it in one step with the change, and a wrong one would hide a change from a client. `after` always is, where the
//! object can be asked.

mod data;
mod execution;
mod listing;
mod namespace;
mod objects;

pub use execution::{Executed, Execution, Step};

use crate::exports::{Access, Exports, Options};
use crate::handle::{HANDLE_BYTES, Key, Named};
use crate::v3::{Fattr, Handle, Status, WccData};
use execution::Asker;
use node::rings::{FileOp, FileReply};
use wire::{Attr, Errno, FileId, VolumeId};

/// What all calls of one server share.
#[derive(Clone, Debug)]
pub struct Server {
    /// The volume.
    pub volume: VolumeId,
    /// The key of its handles.
    pub key: Key,
    /// What is exported.
    pub exports: Exports,
    /// Of this incarnation: another one after each start, so that clients send again what was not committed.
    pub write_verifier: [u8; 8],
}

impl Server {
    /// The number of the file system that clients see: the volume's, whichever manager answers.
    pub fn fsid(&self) -> u64 {
        u64::from(self.volume.0)
    }
}

/// One call: who it counts as, what it may, and whom it asks.
struct Context<'s> {
    server: &'s Server,
    asker: Asker,
    options: Options,
    export: u32,
}

type Failed<F> = (Status, F);

impl Context<'_> {
    fn file(&self, handle: Handle<'_>) -> Result<FileId, Status> {
        let named = Named::decode(handle, self.server.volume, &self.server.key)?;
        // a handle of another export has that one's options, so it is not good for this call's
        if named.export == self.export { Ok(named.file) } else { Err(Status::Stale) }
    }

    fn handle(&self, file: FileId) -> [u8; HANDLE_BYTES] {
        let (volume, export) = (self.server.volume, self.export);
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

    async fn raw(&self, op: FileOp) -> Result<FileReply, Errno> {
        self.asker.ask(op).await
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

    async fn wcc(&self, file: FileId) -> WccData {
        WccData { before: None, after: self.post(file).await }
    }

    /// Puts a change that was made on stable storage. It is not to be asked for again, so an error that passes is told
    /// as one that does not.
    async fn sync_names(&self, directory: FileId) -> Result<(), Status> {
        match self.ask(FileOp::FsyncDirectory { file: directory }).await {
            Ok(_) => Ok(()),
            Err(Status::Jukebox) => Err(Status::Io),
            Err(status) => Err(status),
        }
    }
}

/// The attributes that an operation on a name brought.
fn entry(reply: FileReply) -> Result<Attr, Status> {
    match reply {
        FileReply::Entry(attr) | FileReply::Created { attr, .. } => Ok(attr),
        _ => Err(Status::ServerFault),
    }
}
