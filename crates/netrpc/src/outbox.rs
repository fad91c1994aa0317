//! The way to the send ring, and what waits when it is full.

use crate::limits::OUTBOX;
use endpoint::{Endpoint, Filling, Frame, SendMessage, is_fillable, payload_checksum};
use std::collections::VecDeque;
use wire::limits::{PAYLOAD_BYTES_MAX, TRAILER_BYTES_MAX, TRAILER_WORD_BYTES};
use wire::{CallHeader, Control, Header, NodeId};

/// A message that found the send ring full.
#[derive(Debug)]
struct QueuedMessage {
    control: Control,
    to: NodeId,
    data: Vec<Frame>,
    trailer: Vec<u8>,
}

/// Replies and answers to HELLOs that wait for the send ring, at most [`OUTBOX`]. Requests wait in their call records
/// instead.
#[derive(Debug)]
pub(crate) struct Outbox {
    id: NodeId,
    held: VecDeque<QueuedMessage>,
    lost: u64,
}

/// The parts of one message.
pub(crate) struct Letter<'a> {
    pub header: Header,
    pub call: CallHeader,
    pub body: &'a [u8],
    pub data: &'a [Frame],
    /// Bytes of data that come later; only with a trailer, whose checksum then is the message's.
    pub missing: usize,
    pub trailer: &'a [u8],
}

impl Letter<'_> {
    /// A message of NetRPC's own, without payload.
    pub fn bare(header: Header) -> Letter<'static> {
        let call = CallHeader::default();
        Letter { header, call, body: &[], data: &[], missing: 0, trailer: &[] }
    }

    /// The sealed control message. Panics when the payload or the trailer is longer than a message may have.
    pub fn control(&self) -> Control {
        let mut header = self.header;
        let there: usize = self.data.iter().map(|frame| frame.len()).sum();
        let bytes = there + self.missing;
        assert!(self.missing == 0 || !self.trailer.is_empty(), "a checksum of what is to come");
        assert!(bytes <= PAYLOAD_BYTES_MAX, "a payload of at most 1 MiB");
        assert!(self.trailer.len() <= TRAILER_BYTES_MAX, "a trailer of at most 2040 bytes");
        assert!(self.trailer.len().is_multiple_of(TRAILER_WORD_BYTES), "a trailer of whole words");
        header.trailer_words = (self.trailer.len() / TRAILER_WORD_BYTES) as u8;
        header.payload_bytes = bytes as u32;
        header.payload_checksum = payload_checksum(self.data, self.trailer);
        let mut control = Control::new(&header, &self.call);
        control.body_mut()[..self.body.len()].copy_from_slice(self.body);
        control.seal();
        control
    }
}

impl Outbox {
    pub fn new(id: NodeId) -> Outbox {
        Outbox { id, held: VecDeque::new(), lost: 0 }
    }

    /// Posts the message, or keeps it until the ring has room. Returns its control part.
    pub fn post(&mut self, endpoint: &mut Endpoint, letter: &Letter<'_>) -> Control {
        let control = letter.control();
        self.post_sealed(
            endpoint,
            &control,
            letter.header.destination,
            letter.data,
            letter.trailer,
        );
        control
    }

    /// Posts a message to another node whose data is not all there; `None` when too little is, or the ring is full.
    pub fn post_filling(
        &mut self,
        endpoint: &mut Endpoint,
        letter: &Letter<'_>,
    ) -> Option<Filling> {
        if !is_fillable(letter.data, letter.missing) {
            return None;
        }
        let message = endpoint.get_sendmsg()?;
        fill(endpoint, &message, &letter.control(), letter.data, letter.trailer);
        Some(endpoint.release_filling(message, letter.missing))
    }

    /// As [`post`](Outbox::post), for a message that is sealed already.
    pub fn post_sealed(
        &mut self,
        endpoint: &mut Endpoint,
        control: &Control,
        to: NodeId,
        data: &[Frame],
        trailer: &[u8],
    ) {
        match endpoint.get_sendmsg() {
            Some(message) => send(self.id, endpoint, message, control, to, data, trailer),
            None if self.held.len() >= OUTBOX => self.lost += 1,
            None => self.held.push_back(QueuedMessage {
                control: *control,
                to,
                data: data.to_vec(),
                trailer: trailer.to_vec(),
            }),
        }
    }

    /// Posts what waits, as far as the ring has room.
    pub fn flush(&mut self, endpoint: &mut Endpoint) {
        while !self.held.is_empty() {
            let Some(message) = endpoint.get_sendmsg() else { return };
            let held = self.held.pop_front().expect("not empty");
            send(self.id, endpoint, message, &held.control, held.to, &held.data, &held.trailer);
        }
    }

    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Messages lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

fn send(
    id: NodeId,
    endpoint: &mut Endpoint,
    message: SendMessage,
    control: &Control,
    to: NodeId,
    data: &[Frame],
    trailer: &[u8],
) {
    fill(endpoint, &message, control, data, trailer);
    if to == id {
        endpoint.loop_back(message);
    } else {
        endpoint.release_sendmsg(message);
    }
}

fn fill(
    endpoint: &mut Endpoint,
    message: &SendMessage,
    control: &Control,
    data: &[Frame],
    trailer: &[u8],
) {
    let entry = endpoint.outgoing(message);
    entry.control = *control;
    entry.payload.extend_from_slice(data);
    entry.trailer[..trailer.len()].copy_from_slice(trailer);
}
