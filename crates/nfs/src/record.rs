//! Records on a stream of bytes (RFC 5531 section 11): a mark of four bytes before each fragment, its length and
//! whether it is the last.
//!
//! [`Reader`] is told how many bytes came and says where the next ones go; it never asks for them itself. The data of a
//! WRITE (or, at a client, of a READ's reply) goes into page-aligned frames, and how it finds them is the point:
//!
//! ```text
//!   a stream at rest     [ staging: the head's bytes, as in the last WRITE ][ frames: its data ][ staging ]
//!   in the middle        [ frames: what is missing of the data ][ staging: what follows ]
//! ```
//!
//! A client's heads are as long as its last one's, so the first guess is right for every WRITE but the first, and one
//! `readv` puts head and data where they stay. A wrong guess costs a copy, never an error. Small calls, as many as
//! there are, come with one read into the staging area.
//!
//! Bounds: the staging area has [`STAGING_BYTES`], and takes a wrong guess's data once; a head has as many bytes as its
//! user says, and data has [`IO_BYTES_MAX`]. More ends the connection, since nothing behind it could be found.

mod reader;
mod writer;

pub use reader::{Plan, Progress, Reader, Record, RecordError};
pub use writer::{LAST_FRAGMENT, MARK_BYTES, Outgoing, Writer, begin};

#[cfg(doc)]
use crate::limits::{IO_BYTES_MAX, STAGING_BYTES};
