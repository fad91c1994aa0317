//! Block storage: the object protocol, the I/O server, the striping client.
//!
//! A file is striped over objects by its [`Layout`](wire::Layout); an object is one column of a file on one I/O
//! server. [`serve`] runs an I/O server on a node; [`Client`] reads and writes files over many of them.
//!
//! It knows no names, no permissions and no caching of files: those are `names`' and `files`'. Where a column's home is
//! a group of disks (`groups`), all of them keep it.
//!
//! Invariants: every 4 KiB block has its CRC-32C from the writing client to the disk and back to the reading client;
//! data of an acknowledged commit survives any crash; of uncommitted data each block is old or new.

mod cache;
mod census;
mod checkpoint;
mod client;
mod commit;
mod cut;
mod damage;
mod describe;
pub mod description;
mod disk;
mod format;
mod groups;
mod hole;
mod label;
pub mod limits;
mod list;
pub mod log;
pub mod mark;
mod moves;
pub mod object;
mod objects;
mod open;
pub mod order;
pub mod protocol;
mod quarantine;
mod read;
mod recent;
mod recovery;
mod replay;
mod replicate;
mod room;
mod scan;
mod scrub;
mod server;
mod sources;
mod storage;
mod sums;
mod witness;
mod write;

pub use cache::Network;
pub use census::DiskUsage;
pub use client::{
    Client, ClientCounters, FileRef, Marks, ObjectTotals, Seek, Verifiers, VolumeRoom, Write,
};
pub use description::{Description, Told};
pub use disk::{DiskAge, Health, Scrubbed};
pub use protocol::Kept;
pub use recovery::Label;
pub use replicate::Digest;
pub use scrub::Pace;
pub use server::{Server, ServerConfig, ServerCounters, serve};
pub use sources::{Source, SourceReads, Sources};
pub use witness::{Witness, Witnesses};
