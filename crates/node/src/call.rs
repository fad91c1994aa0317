//! Calls and requests as services see them.

use crate::pieces::Pieces;
use endpoint::{Frame, FrameMut};
use netrpc::RequestKey;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;
use wire::limits::{BODY_BYTES, TRAILER_BYTES_MAX};
use wire::{Channel, Errno, NodeId};

pub(crate) type TrailerBox = Box<[u8; TRAILER_BYTES_MAX]>;
pub(crate) type SpareTrailers = Rc<RefCell<Vec<TrailerBox>>>;

/// A trailer as it arrived; its memory is used again.
pub(crate) struct Trailer {
    bytes: Option<TrailerBox>,
    len: usize,
    home: SpareTrailers,
}

impl Trailer {
    /// Takes the first `len` bytes of `from`, leaving another box in its place.
    pub fn take(from: &mut TrailerBox, len: usize, home: &SpareTrailers) -> Trailer {
        let bytes = (len > 0).then(|| {
            let spare = home.borrow_mut().pop();
            std::mem::replace(from, spare.unwrap_or_else(|| Box::new([0; TRAILER_BYTES_MAX])))
        });
        Trailer { bytes, len, home: home.clone() }
    }

    pub fn get(&self) -> &[u8] {
        self.bytes.as_ref().map_or(&[], |bytes| &bytes[..self.len])
    }
}

impl Drop for Trailer {
    fn drop(&mut self) {
        self.home.borrow_mut().extend(self.bytes.take());
    }
}

/// A call to start.
#[derive(Debug)]
pub struct Call<'a> {
    /// The node that is to serve it.
    pub to: NodeId,
    /// The service.
    pub channel: Channel,
    /// The operation, in the service's numbering.
    pub op: u16,
    /// Not to be executed twice: every operation that changes something.
    pub once: bool,
    /// How long to wait for the reply; `None` is for ever, or until the peer is lost.
    pub deadline: Option<Duration>,
    /// Arguments, at most 64 bytes.
    pub body: &'a [u8],
    /// Data that follows, in order.
    pub data: Pieces<Frame>,
    /// Checksums behind the data, a multiple of 8 bytes, at most 2040.
    pub trailer: &'a [u8],
    /// Frames for the reply's data, in order.
    pub into: Pieces<FrameMut>,
}

/// An answer.
pub struct Reply {
    /// 0, or why not: by convention a [`wire::Errno`] number.
    pub status: u16,
    /// Results.
    pub body: [u8; BODY_BYTES],
    /// The call's `into`, or fewer when a transfer kept them.
    pub data: Pieces<FrameMut>,
    /// Bytes of data that landed in `data`.
    pub bytes: usize,
    pub(crate) trailer: Trailer,
}

impl Reply {
    /// The trailer behind the data.
    pub fn trailer(&self) -> &[u8] {
        self.trailer.get()
    }

    /// The reply of a call that succeeded, else the error number it ended with.
    pub fn ok(self) -> Result<Reply, Errno> {
        if self.status == 0 { Ok(self) } else { Err(Errno(self.status)) }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply(status {}, {} bytes)", self.status, self.bytes)
    }
}

/// A request to execute, answered by [`crate::Cx::reply`]. Dropping it leaves the caller to its deadline.
pub struct Request {
    /// The caller.
    pub source: NodeId,
    /// The operation.
    pub op: u16,
    /// Arguments.
    pub body: [u8; BODY_BYTES],
    /// The data, in frames of this node.
    pub data: Pieces<FrameMut>,
    /// Bytes of data.
    pub bytes: usize,
    /// The incarnation of the caller: with `slot` and `sequence` it names the call for ever.
    pub client: u64,
    /// Slot of the caller's session.
    pub slot: u16,
    /// The slot's call number.
    pub sequence: u32,
    pub(crate) key: RequestKey,
    pub(crate) trailer: Trailer,
}

impl Request {
    /// The trailer behind the data.
    pub fn trailer(&self) -> &[u8] {
        self.trailer.get()
    }

    /// Whether it must not be executed twice.
    pub fn once(&self) -> bool {
        self.key.once
    }

    /// The service it asks.
    pub fn channel(&self) -> Channel {
        self.key.channel
    }

    /// When the caller stops waiting.
    pub fn deadline(&self) -> wire::Time {
        self.key.deadline
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request(op {} from {}, {} bytes)", self.op, self.source, self.bytes)
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer<'a> {
    /// 0, or why not, below [`netrpc::status::RESERVED`].
    pub status: u16,
    /// Results, at most 64 bytes.
    pub body: &'a [u8],
    /// Data that follows, in order.
    pub data: &'a [Frame],
    /// Checksums behind the data, a multiple of 8 bytes.
    pub trailer: &'a [u8],
}

impl Answer<'_> {
    /// Success with nothing to say.
    pub const DONE: Answer<'static> = Answer { status: 0, body: &[], data: &[], trailer: &[] };

    /// Success with results in the body.
    pub fn body(body: &[u8]) -> Answer<'_> {
        Answer { body, ..Answer::DONE }
    }

    /// A failure.
    pub fn error(errno: Errno) -> Answer<'static> {
        Answer { status: errno.0, ..Answer::DONE }
    }
}
