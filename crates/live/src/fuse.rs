//! The FUSE front: a mount whose file operations a node does, on the node's own thread.
//!
//! ```text
//!  application ── kernel ── /dev/fuse ── session ── request ─► FileRequest ─► front (the node, a pass-through)
//!                                          │  ◄──── reply ◄──── FileDone ◄──┘
//!                           mount          └ landing: frames that writes land in
//! ```
//!
//! [`request`] and [`reply`] translate and are pure; [`session`] moves bytes between /dev/fuse and the front that does
//! the operations; [`mount`] is about the place in the file tree; [`passthrough`] is the baseline of the benchmarks:
//! the same session over a plain directory.
//!
//! It is not a file system: it keeps no names, no attributes and no data, and checks no permissions. The kernel does
//! that from the attributes it was told (`default_permissions`, which saves a round trip for each path component),
//! and the manager does it again, whose word counts.
//!
//! Invariant: the thread that serves a mount never touches a path inside it; it would wait for itself.

pub mod abi;
mod callers;
mod front;
mod helper;
pub mod hint;
mod landing;
pub mod limits;
pub mod listing;
pub mod mount;
mod mount_table;
pub mod negotiation;
pub mod passthrough;
pub mod reply;
pub mod request;
mod requests;
pub mod session;

pub use front::{Fuse, MountWatch};
pub use mount::{Mount, MountError, MountOptions, check_mount_point, detach_below};
pub use reply::Belief;
pub use session::{Front, Session, SessionCounters, Stage};
