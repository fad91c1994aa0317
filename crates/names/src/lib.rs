//! File managers: the name space of a volume with NFSv3's semantics, its attributes, layouts, sessions and locks.
//!
//! It is not the data path: clients read and write objects at the I/O servers themselves, and the manager asks those
//! only to truncate, to remove, and to learn how a dead client left a file.
//!
//! ```text
//!  Client ── protocol ──►  service   waits: log, objects
//!                             ▼
//!                          Manager   decides: one Transaction at a time, no wait inside
//!                             ▼
//!                           Store    keeps
//! ```
//!
//! The invariant: every answer that tells of a change is sent after the change's record was appended to the log, so
//! that a kill of the manager loses nothing that anybody was told.
#![forbid(unsafe_code)]

mod across;
mod answers;
mod attributes;
mod blockmap;
mod buckets;
mod changed;
mod client;
mod clients;
mod closes;
mod columns;
mod create;
mod describe;
mod directory;
mod duplicates;
mod foreign;
mod grace;
mod handover;
mod hash;
mod hashing;
mod holds;
mod imports;
mod keys;
pub mod limits;
mod lineage;
mod listings;
mod locks;
mod lookup;
mod manager;
mod objects;
mod open_error;
mod opens;
mod permissions;
mod protocol;
mod quarantine;
mod record;
mod relisting;
mod remove;
pub mod rename;
mod restoration;
mod restored;
mod roles;
mod salvage;
mod servers;
mod service;
mod sessions;
mod sites;
mod stores;
mod switching;
mod transaction;
mod unnamed;
mod wcc;
pub mod xattr;

pub use client::{BackupPart, Client, LostLock, NotTaken, Snapshot};
pub use create::How;
pub use describe::latest_layout;
pub use directory::{Listing, ListingEntry, Plus, Span};
pub use hash::site_of_name;
pub use lineage::{Judgement, Older};
pub use locks::{LockOutcome, LockOwner, LockTarget, Locks};
pub use lookup::Entry;
pub use manager::{Manager, Once, Origin, STORE, VolumeSettings};
pub use objects::{Objects, ObjectsOf};
pub use open_error::OpenError;
pub use opens::{Holder, Opens};
pub use permissions::{EXECUTE, READ, WRITE, Who, without_set_id};
pub use quarantine::{Aside, Standing, Unclaimed};
pub use record::{Policy, Removed, SwitchingShare};
pub use rename::DirectoryEntry;
pub use restoration::{Restoration, Restored};
pub use restored::{PartOf, accept, restored};
pub use roles::{Candidate, Choice, choose};
pub use salvage::{LOST_FOUND, Salvaged};
pub use servers::{IoServer, homes_of};
pub use service::{Config, Handle, QuarantineCounters, REFUSED, Stopping, serve};
pub use sessions::{Claim, Final};
pub use sites::{Ownership, next_move};
pub use transaction::{CallName, Transaction};
pub use unnamed::Unnamed;
