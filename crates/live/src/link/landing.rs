//! A message that is on its way in: where its next byte goes.
//!
//! The bytes behind a control message are data, then trailer. The data goes into the frames that the endpoint placed,
//! or nowhere; the trailer into the entry's own room.

use arrayvec::ArrayVec;
use endpoint::limits::GATHER_MAX;
use endpoint::{Endpoint, Place, ReceiveMessage};
use std::io::IoSliceMut;
use wire::{Control, Header};

/// Data pieces, the trailer, and one more for what the link reads ahead.
pub const LANDING_PIECES_MAX: usize = GATHER_MAX + 2;

/// The state of an incoming message.
#[derive(Debug)]
pub struct Landing {
    message: ReceiveMessage,
    header: Header,
    wanted: bool,
    got: usize,
}

impl Landing {
    /// Asks the endpoint for a place. `None`: not now.
    pub fn new(endpoint: &mut Endpoint, control: &Control, header: &Header) -> Option<Landing> {
        let (message, wanted) = match endpoint.place(control, header) {
            Place::Fill(message) => (message, true),
            Place::Skip(message) => (message, false),
            Place::Wait => return None,
        };
        Some(Landing { message, header: *header, wanted, got: 0 })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes that are still to come.
    pub fn missing(&self) -> usize {
        self.header.following_bytes() - self.got
    }

    /// Bytes that have come.
    pub fn got(&self) -> usize {
        self.got
    }

    /// Whether the bytes are kept at all.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The room for the bytes still to come, in order. Only for what [`is_wanted`](Landing::is_wanted).
    pub fn room<'a>(
        &self,
        endpoint: &'a mut Endpoint,
        into: &mut ArrayVec<IoSliceMut<'a>, LANDING_PIECES_MAX>,
    ) {
        let entry = endpoint.arrived(&self.message);
        let (mut skip, mut left) = (self.got, self.header.payload_bytes as usize);
        for frame in &mut entry.landed {
            let bytes = left.min(frame.len());
            left -= bytes;
            push(into, &mut frame[..bytes], &mut skip);
        }
        push(into, &mut entry.trailer[..self.header.trailer_bytes()], &mut skip);
    }

    /// The first piece of the room for the bytes still to come; `None` when they are not wanted.
    pub fn next_room<'a>(&self, endpoint: &'a mut Endpoint) -> Option<&'a mut [u8]> {
        if !self.wanted {
            return None;
        }
        let mut skip = self.got;
        let mut left = self.header.payload_bytes as usize;
        for frame in &mut endpoint.arrived(&self.message).landed {
            let bytes = left.min(frame.len());
            left -= bytes;
            if skip < bytes {
                return Some(&mut frame[skip..bytes]);
            }
            skip -= bytes;
        }
        None
    }

    /// Notes that `bytes` more have come into the room.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.missing(), "no more than what the header announced");
        self.got += bytes;
    }

    /// Puts the next bytes where they go.
    pub fn put(&mut self, endpoint: &mut Endpoint, bytes: &[u8]) {
        if self.wanted {
            let entry = endpoint.arrived(&self.message);
            let (mut skip, mut left) = (self.got, self.header.payload_bytes as usize);
            let mut rest = bytes;
            for frame in &mut entry.landed {
                let room = left.min(frame.len());
                left -= room;
                fill(&mut frame[..room], &mut skip, &mut rest);
            }
            fill(&mut entry.trailer[..self.header.trailer_bytes()], &mut skip, &mut rest);
        }
        self.advance(bytes.len());
    }

    /// Has `read` fill the room for the trailer; all of the data is there.
    pub fn put_trailer(&mut self, endpoint: &mut Endpoint, read: impl FnOnce(&mut [u8])) {
        let bytes = self.header.trailer_bytes();
        assert_eq!(self.missing(), bytes, "the trailer follows the data");
        if self.wanted {
            read(&mut endpoint.arrived(&self.message).trailer[..bytes]);
        }
        self.advance(bytes);
    }

    /// All has come: the host gets the message.
    pub fn deliver(self, endpoint: &mut Endpoint) {
        assert_eq!(self.missing(), 0, "only what is complete is delivered");
        endpoint.deliver(self.message, &self.header);
    }

    /// The link broke: the host gets nothing.
    pub fn abandon(self, endpoint: &mut Endpoint) {
        endpoint.abandon(self.message);
    }
}

fn fill(room: &mut [u8], skip: &mut usize, rest: &mut &[u8]) {
    let skipped = room.len().min(*skip);
    *skip -= skipped;
    let count = rest.len().min(room.len() - skipped);
    room[skipped..skipped + count].copy_from_slice(&rest[..count]);
    *rest = &rest[count..];
}

fn push<'a>(
    into: &mut ArrayVec<IoSliceMut<'a>, LANDING_PIECES_MAX>,
    bytes: &'a mut [u8],
    skip: &mut usize,
) {
    let skipped = bytes.len().min(*skip);
    *skip -= skipped;
    if skipped < bytes.len() && into.len() < LANDING_PIECES_MAX - 1 {
        into.push(IoSliceMut::new(&mut bytes[skipped..])); // what does not fit is asked for again
    }
}
