//! A message that is on its way in: where its next byte goes.
//!
//! The bytes behind a control message are data, then trailer. The data goes into the frames that the endpoint placed,
//! or nowhere; the trailer into the entry's own room.

use arrayvec::ArrayVec;
use endpoint::limits::GATHER_MAX;
use endpoint::{Endpoint, Placement, ReceiveMessage};
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
            Placement::Fill(message) => (message, true),
            Placement::Skip(message) => (message, false),
            Placement::Wait => return None,
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
        let pieces = self.pieces(endpoint).map(IoSliceMut::new);
        into.extend(pieces.take(LANDING_PIECES_MAX - 1)); // what does not fit is asked for again
    }

    /// The first piece of the room for the bytes still to come; `None` when they are not wanted.
    pub fn next_room<'a>(&self, endpoint: &'a mut Endpoint) -> Option<&'a mut [u8]> {
        if self.wanted { self.pieces(endpoint).next() } else { None }
    }

    /// Where the bytes still to come go, in order: frames, then the trailer.
    fn pieces<'a>(
        &self,
        endpoint: &'a mut Endpoint,
    ) -> impl Iterator<Item = &'a mut [u8]> + use<'a> {
        let entry = endpoint.arrived(&self.message);
        let (mut skip, mut left) = (self.got, self.header.payload_bytes as usize);
        let frames = entry.landed.iter_mut().map(move |frame| {
            let bytes = left.min(frame.len());
            left -= bytes;
            &mut frame[..bytes]
        });
        let trailer = &mut entry.trailer[..self.header.trailer_bytes()];
        frames.chain([trailer]).filter_map(move |piece| {
            let skipped = piece.len().min(skip);
            skip -= skipped;
            (skipped < piece.len()).then(|| &mut piece[skipped..])
        })
    }

    /// Notes that `bytes` more have come into the room.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.missing(), "no more than what the header announced");
        self.got += bytes;
    }

    /// Puts the next bytes where they go.
    pub fn put(&mut self, endpoint: &mut Endpoint, bytes: &[u8]) {
        if self.wanted {
            let mut rest = bytes;
            for room in self.pieces(endpoint) {
                let (now, later) = rest.split_at(rest.len().min(room.len()));
                room[..now.len()].copy_from_slice(now);
                rest = later;
            }
        }
        self.advance(bytes.len());
    }

    /// Has `read` fill the room for the trailer; all of the data is there.
    pub fn put_trailer(&mut self, endpoint: &mut Endpoint, read: impl FnOnce(&mut [u8])) {
        let bytes = self.header.trailer_bytes();
        assert_eq!(self.missing(), bytes, "the trailer follows the data");
        self.read_trailer(endpoint, read);
        self.advance(bytes);
    }

    /// Has `read` fill the room for the trailer before all of the data is where it goes.
    pub fn read_trailer(&self, endpoint: &mut Endpoint, read: impl FnOnce(&mut [u8])) {
        let bytes = self.header.trailer_bytes();
        if self.wanted && bytes > 0 {
            read(&mut endpoint.arrived(&self.message).trailer[..bytes]);
        }
    }

    /// The frames for the data, in order: where each lies in the pool and how long it is.
    pub fn frames(&self, endpoint: &mut Endpoint) -> impl Iterator<Item = (usize, usize)> {
        let landed = if self.wanted { &endpoint.arrived(&self.message).landed[..] } else { &[] };
        landed.iter().map(|frame| (frame.offset(), frame.len()))
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
