//! The ring of a manager's store: its log and its checkpoints.

use super::Ticket;
use std::fmt;

/// One of the transactional stores of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreId {
    /// The name space of a file manager.
    Names,
    /// The cluster's members.
    Members,
}

/// Work that takes long and waits for the disk: run on a helper thread (live) or in modelled time (simulated).
pub trait MetaWork: Send {
    /// Does it. An error is a sentence for people.
    fn run(self: Box<Self>) -> Result<(), String>;
}

/// An operation on the files behind a store. Operations on one log are done in the order they were posted.
pub enum MetaOp {
    /// Appends to the log of this generation, creating it; done when a kill of this process cannot lose it.
    Append {
        /// Generation of the log.
        log: u64,
        /// The record.
        bytes: Vec<u8>,
    },
    /// Everything appended to this log before is on stable storage.
    Sync {
        /// Generation of the log.
        log: u64,
    },
    /// Runs a durable checkpoint.
    Checkpoint(Box<dyn MetaWork>),
    /// Removes the log of this generation.
    DropLog {
        /// Generation of the log.
        log: u64,
    },
    /// Makes anew what is kept in reserve for changes that make room, if there is room for it; its completion says
    /// whether it is there.
    Room,
}

impl fmt::Debug for MetaOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MetaOp::Append { log, bytes } => write!(f, "Append({log}, {} bytes)", bytes.len()),
            MetaOp::Sync { log } => write!(f, "Sync({log})"),
            MetaOp::Checkpoint(_) => f.write_str("Checkpoint"),
            MetaOp::DropLog { log } => write!(f, "DropLog({log})"),
            MetaOp::Room => f.write_str("Room"),
        }
    }
}

/// Entry of the meta ring.
#[derive(Debug)]
pub struct MetaRequest {
    /// Comes back in the completion.
    pub ticket: Ticket,
    /// The store.
    pub store: StoreId,
    /// The operation.
    pub op: MetaOp,
}

/// Entry of the meta completion ring.
#[derive(Debug)]
pub struct MetaDone {
    /// Of the request.
    pub ticket: Ticket,
    /// Done, or why not.
    pub result: Result<(), MetaError>,
    /// Room on the disk.
    pub room: MetaRoom,
}

/// Room on the disk of a store for its changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaRoom {
    /// For any.
    #[default]
    Plenty,
    /// The disk is full and what is kept in reserve is in use: for changes that make room.
    Low,
    /// The logs are as long as the checkpoint of them finds room for: for none, before there was one.
    Scarce,
}

/// Why an operation on a store's files failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaError {
    /// There was no room for it.
    pub full: bool,
    /// A sentence that says what failed.
    pub reason: String,
}

impl From<String> for MetaError {
    fn from(reason: String) -> MetaError {
        MetaError { full: false, reason }
    }
}
