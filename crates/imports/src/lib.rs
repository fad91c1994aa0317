//! Imports: directories that are caches of exports of other NFS servers, the *origins*.
//!
//! ```text
//!   files of a client ─► Client ─ CHECK, FETCH, ... ─► Service (the importer) ─► nfs::client::session ─► origin
//!          │                                              │ names, attributes: names::Client
//!          └──── blocks: stripe::Client ──► I/O servers ◄── pieces: stripe::Client
//! ```
//!
//! Files of an origin are mirrored as inodes of ours, directory by directory as they are asked for, by one node, the
//! importer; [`wire::Attr::import`] tells them from others. Before a client believes what the manager says of such a
//! file it has the importer check it (CHECK), which asks the origin unless it did a moment ago. Before a client reads a
//! piece of its bytes it has the importer fetch that (FETCH): the bytes are in the file's objects then, and are read
//! like any others.
//!
//! A version of a file is the origin's mtime, ctime and size. When it changes, the importer raises the file's truncate
//! generation, by which the I/O servers tell readers that what they have is of another one.
//!
//! Changes are calls of the importer to the origin (WRITE, CHANGE), which are answered when the origin has them on
//! stable storage. One that found the version that is known makes the next one without another generation: what is
//! there is written over too.
//!
//! The pieces that are there are noted beside the inode after each fetch: an importer that is started anew uses
//! them on.
//!
//! Invariant: under one truncate generation all bytes that are *there* are of one version, and of what was written
//! through since. A reader that had a piece fetched for a generation, and of which every I/O server says that it had
//! that generation when it answered, has read that.
#![forbid(unsafe_code)]

mod changes;
mod client;
mod data;
mod evict;
pub mod limits;
mod lost;
mod mirror;
mod origin;
mod pieces;
mod protocol;
pub mod record;
mod room;
mod runs;
mod service;
mod walk;
mod walks;

pub use client::{Client, Listed, User, write_bytes_max};
pub use mirror::empty;
pub use origin::{Origin, Standing};
pub use protocol::{Change, Import, record_name};
pub use service::{As, Config, Service};
