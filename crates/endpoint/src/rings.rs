//! The two message rings and the interface of HPDC'97 Table 1, under its own names.
//!
//! States of a message entry (HPDC'97 section 2):
//!
//! ```text
//! send:    free -get_sendmsg-> owned -release_sendmsg-> posted -next_send-> with the adapter -transmitted-> free
//! receive: free -place-> being filled -deliver-> arrived -get_rcvmsg-> owned -release_rcvmsg-> free
//! ```
//!
//! [`SendMessage`] and [`ReceiveMessage`] are the ownership: they cannot be copied, and an entry is reached through
//! its handle only. Entries are made once; nothing is allocated while messages flow.
//!
//! A message may be posted while its data is still coming (`filling`): its valid prefix grows, and the adapter may send
//! what is there.

use crate::frames::{Frame, FrameMut, Frames};
use crate::incoming::{Cancelled, IncomingTable};
use crate::limits::{INCOMING_ENTRIES, PAGE_BYTES, RING_ENTRIES};
use std::collections::VecDeque;
use wire::checksum::crc32c;
use wire::limits::TRAILER_BYTES_MAX;
use wire::{Control, Header, Token};

/// One message, with its control part, its payload and its trailer.
#[derive(Debug)]
pub struct Message {
    /// The control message; sealed by the sender, checked by the adapter before it is delivered.
    pub control: Control,
    /// To send: the data, in order, as far as it is there.
    pub payload: Vec<Frame>,
    /// To send: bytes of data that are still to come behind `payload`; 0 unless the message is filling.
    pub missing: usize,
    /// Received: the frames that hold the data, in order; the last may be longer than the data.
    pub landed: Vec<FrameMut>,
    /// Room for the block checksums that follow the data.
    pub trailer: Box<[u8; TRAILER_BYTES_MAX]>,
    /// Received: bytes of data in `landed`; 0 when it was discarded.
    pub payload_bytes: usize,
    /// Received: the payload came but its checksum did not fit. `landed` holds the frames, not data.
    pub damaged: bool,
    claimed: Token,
    completion: Option<u64>,
    failed: bool,
    right: usize,
    /// Messages that the entry has held: tells whether a filling one is still the same.
    pub(crate) generation: u32,
}

impl Message {
    fn new(right: usize) -> Message {
        Message {
            control: Control::default(),
            payload: Vec::new(),
            missing: 0,
            landed: Vec::new(),
            trailer: Box::new([0; TRAILER_BYTES_MAX]),
            payload_bytes: 0,
            damaged: false,
            claimed: Token::NONE,
            completion: None,
            failed: false,
            right,
            generation: 0,
        }
    }

    /// Bytes of data that are there.
    pub fn data_bytes(&self) -> usize {
        self.payload.iter().map(|frame| frame.len()).sum()
    }

    /// Bytes of data in all, those that are still missing included.
    pub fn whole_bytes(&self) -> usize {
        self.data_bytes() + self.missing
    }

    fn incoming_checksum(&self, header: &Header) -> u32 {
        if header.trailer_words > 0 {
            return crc32c(&self.trailer[..header.trailer_bytes()]);
        }
        let mut left = header.payload_bytes as usize;
        let parts = self.landed.iter().map(|frame| {
            let part = &frame[..left.min(frame.len())];
            left -= part.len();
            part
        });
        fold_checksum(parts)
    }

    fn clear(&mut self) {
        self.payload.clear();
        self.missing = 0;
        self.generation = self.generation.wrapping_add(1);
        self.landed.clear();
        self.payload_bytes = 0;
        self.damaged = false;
        self.claimed = Token::NONE;
        self.completion = None;
        self.failed = false;
    }
}

/// The checksum that the header of a message with this payload must carry: that of the trailer, which itself holds the
/// checksums of the data's blocks, or without a trailer that of the data.
pub fn payload_checksum(payload: &[Frame], trailer: &[u8]) -> u32 {
    match payload {
        _ if !trailer.is_empty() => crc32c(trailer),
        [] => 0,
        [only] => crc32c(only),
        parts => fold_checksum(parts.iter().map(|part| &part[..])),
    }
}

fn fold_checksum<'a>(parts: impl Iterator<Item = &'a [u8]>) -> u32 {
    let mut digest = wire::checksum::Digest::new();
    parts.for_each(|part| digest.update(part));
    digest.finish()
}

/// An entry of the send ring that its holder alone may touch.
#[derive(Debug)]
pub struct SendMessage(pub(crate) u16);

/// An entry of the receive ring that its holder alone may touch.
#[derive(Debug)]
pub struct ReceiveMessage(u16);

/// Counts of messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Handed to the adapter.
    pub sent: u64,
    /// Delivered to the host.
    pub received: u64,
    /// Payloads whose token was wrong, stale or too small.
    pub discarded_token: u64,
    /// Payloads without a token that no frames were free for.
    pub discarded_frames: u64,
    /// Payloads whose checksum did not fit.
    pub damaged: u64,
    /// Payloads that came after their call was given up.
    pub late: u64,
}

/// The decision of [`Endpoint::place`].
#[derive(Debug)]
pub enum Placement {
    /// Put the data into the entry's `landed`, in order.
    Fill(ReceiveMessage),
    /// Skip the data: the reader does not want it, or no frames are free. The message itself is still delivered.
    Skip(ReceiveMessage),
    /// No entry is free: leave the message where it is and ask again later.
    Wait,
}

/// A pair of rings, the frames that payloads live in, and the table of frames that wait for one.
#[derive(Debug)]
pub struct Endpoint {
    frames: Frames,
    incoming: IncomingTable,
    pub(crate) send_entries: Box<[Message]>,
    send_free: Vec<u16>,
    pub(crate) send_ring: VecDeque<u16>,
    completions: VecDeque<u64>,
    receive_entries: Box<[Message]>,
    receive_free: Vec<u16>,
    receive_ring: VecDeque<u16>,
    counters: Counters,
    /// A posted message has got more of its data.
    pub(crate) has_filled: bool,
}

impl Endpoint {
    /// An endpoint over `frames`, with rings of the usual size. `seed` keys the payload tokens.
    pub fn new(frames: Frames, seed: u64) -> Endpoint {
        Endpoint::with_entries(frames, seed, RING_ENTRIES)
    }

    /// An endpoint whose rings have `entries` entries each.
    pub fn with_entries(frames: Frames, seed: u64, entries: usize) -> Endpoint {
        let count = u16::try_from(entries).expect("at most 65,535 entries");
        let make = |right| (0..entries).map(|_| Message::new(right)).collect();
        let whole_payload = wire::limits::PAYLOAD_BYTES_MAX / PAGE_BYTES;
        Endpoint {
            frames,
            incoming: IncomingTable::new(INCOMING_ENTRIES, seed),
            send_entries: make(0),
            send_free: (0..count).rev().collect(),
            send_ring: VecDeque::with_capacity(entries),
            completions: VecDeque::with_capacity(entries),
            receive_entries: make(whole_payload),
            receive_free: (0..count).rev().collect(),
            receive_ring: VecDeque::with_capacity(entries),
            counters: Counters::default(),
            has_filled: false,
        }
    }

    /// Takes memory beforehand for messages of one frame, so many with tokens at a time: then none of them allocates.
    /// For hosts that may not, at times.
    pub fn reserve(&mut self, tokens: usize) {
        self.incoming.reserve(tokens);
        self.send_entries.iter_mut().for_each(|entry| entry.payload.reserve(1));
        self.receive_entries.iter_mut().for_each(|entry| entry.landed.reserve(1));
    }

    /// Plants a bug: stale tokens are taken for good ones. For simulations that test whether they find it.
    pub fn set_keys_ignored(&mut self, ignored: bool) {
        self.incoming.keys_ignored = ignored;
    }

    /// The pool that payloads live in.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Counters since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Entries of the send ring that are free.
    pub fn send_room(&self) -> usize {
        self.send_free.len()
    }

    // The host's side: HPDC'97 Table 1.

    /// A free entry of the send ring, or `None` when all are in use (tpz_get_sendmsg). Never blocks.
    pub fn get_sendmsg(&mut self) -> Option<SendMessage> {
        self.send_free.pop().map(SendMessage)
    }

    /// The oldest message that arrived, or `None` (tpz_get_rcvmsg). Never blocks.
    pub fn get_rcvmsg(&mut self) -> Option<ReceiveMessage> {
        self.receive_ring.pop_front().map(ReceiveMessage)
    }

    /// Hands the message to the adapter (tpz_release_sendmsg); one marked by [`senderr`](Endpoint::senderr) is
    /// dropped instead.
    pub fn release_sendmsg(&mut self, message: SendMessage) {
        if self.send_entries[message.0 as usize].failed {
            return self.transmitted(message);
        }
        self.counters.sent += 1;
        self.send_ring.push_back(message.0);
    }

    /// Marks the message so that releasing it sends nothing (senderr).
    pub fn senderr(&mut self, message: &SendMessage) {
        self.send_entries[message.0 as usize].failed = true;
    }

    /// Gives the entry back to the adapter, and its frames, if they were not detached, to the pool
    /// (tpz_release_rcvmsg).
    pub fn release_rcvmsg(&mut self, message: ReceiveMessage) {
        self.receive_entries[message.0 as usize].clear();
        self.receive_free.push(message.0);
    }

    /// Adds `frame` to the message's payload (tpz_attach_sendmsg). `completion`, if any, comes back once from
    /// [`check_xmit_complete`](Endpoint::check_xmit_complete) when the adapter is done with the message.
    pub fn attach_sendmsg(&mut self, message: &SendMessage, frame: Frame, completion: Option<u64>) {
        let entry = &mut self.send_entries[message.0 as usize];
        entry.payload.push(frame);
        entry.completion = completion.or(entry.completion);
    }

    /// As the completion of [`attach_sendmsg`](Endpoint::attach_sendmsg), for a message whatever is attached to it.
    pub fn set_completion(&mut self, message: &SendMessage, completion: u64) {
        self.send_entries[message.0 as usize].completion = Some(completion);
    }

    /// Lets the entry take up to `pages` pages of the pool for a payload that comes without a token
    /// (tpz_attach_rcvmsg); with 0 such a payload is discarded. Holds until changed.
    pub fn attach_rcvmsg(&mut self, message: &ReceiveMessage, pages: usize) {
        self.receive_entries[message.0 as usize].right = pages;
    }

    /// Takes the frames off an outgoing message before it is released (tpz_detach_sendmsg).
    pub fn detach_sendmsg(&mut self, message: &SendMessage) -> std::vec::Drain<'_, Frame> {
        self.send_entries[message.0 as usize].payload.drain(..)
    }

    /// Takes the frames off an arrived message (tpz_detach_rcvmsg).
    pub fn detach_rcvmsg(&mut self, message: &ReceiveMessage) -> std::vec::Drain<'_, FrameMut> {
        self.receive_entries[message.0 as usize].landed.drain(..)
    }

    /// The oldest completion of a transmitted message that has not been read (tpz_check_xmit_complete).
    pub fn check_xmit_complete(&mut self) -> Option<u64> {
        self.completions.pop_front()
    }

    /// Cuts an outgoing payload to `bytes` (tpz_set_payload_len). Panics when less is attached.
    pub fn set_payload_len(&mut self, message: &SendMessage, bytes: usize) {
        let payload = &mut self.send_entries[message.0 as usize].payload;
        let mut left = bytes;
        payload.retain_mut(|frame| {
            let keep = left.min(frame.len());
            left -= keep;
            if keep < frame.len() {
                *frame = frame.slice(0..keep);
            }
            keep > 0
        });
        assert_eq!(left, 0, "no more than what is attached");
    }

    /// Bytes of payload that landed (tpz_get_payload_len): 0 for a message without one and for a discarded one.
    pub fn get_payload_len(&self, message: &ReceiveMessage) -> usize {
        self.receive_entries[message.0 as usize].payload_bytes
    }

    /// Arms a token for one payload into `frames` (get_replytoken), leaving the list empty. `None`, and the frames as
    /// they were, when all are in use.
    pub fn get_replytoken(&mut self, frames: &mut Vec<FrameMut>) -> Option<Token> {
        self.incoming.arm(frames)
    }

    /// Cancels a token (release_replytoken); frames that come back are put into the empty list `into`.
    pub fn release_replytoken(&mut self, token: Token, into: &mut Vec<FrameMut>) -> Cancelled {
        self.incoming.cancel(token, into)
    }

    /// Whether a payload may still come by the token: its frames wait, or are just being filled.
    pub fn has_replytoken(&self, token: Token) -> bool {
        self.incoming.holds(token)
    }

    /// Tokens whose frames wait or are being filled.
    pub fn replytokens(&self) -> usize {
        self.incoming.in_use()
    }

    /// The entry behind the handle.
    pub fn outgoing(&mut self, message: &SendMessage) -> &mut Message {
        &mut self.send_entries[message.0 as usize]
    }

    /// The entry behind the handle.
    pub fn arrived(&mut self, message: &ReceiveMessage) -> &mut Message {
        &mut self.receive_entries[message.0 as usize]
    }

    // The adapter's side.

    /// Takes the oldest posted message off the send ring.
    pub fn next_send(&mut self) -> Option<SendMessage> {
        self.send_ring.pop_front().map(SendMessage)
    }

    /// The entry of a message that the adapter holds, for reading while others are read too.
    pub fn taken(&self, message: &SendMessage) -> &Message {
        &self.send_entries[message.0 as usize]
    }

    /// Messages posted and not yet taken.
    pub fn posted(&self) -> usize {
        self.send_ring.len()
    }

    /// Entries of the receive ring that are free.
    pub fn receive_room(&self) -> usize {
        self.receive_free.len()
    }

    /// Messages arrived and not yet taken.
    pub fn waiting(&self) -> usize {
        self.receive_ring.len()
    }

    /// The adapter needs the message no more: its frames are released, its completion is readable, its entry free.
    pub fn transmitted(&mut self, message: SendMessage) {
        let entry = &mut self.send_entries[message.0 as usize];
        self.completions.extend(entry.completion);
        entry.clear();
        self.send_free.push(message.0);
    }

    /// Takes an entry for an arriving message whose control part has passed [`wire::ControlView::new`], and finds
    /// frames for its payload: the token's, or fresh ones as far as the entry's right goes.
    pub fn place(&mut self, control: &Control, header: &Header) -> Placement {
        let Some(index) = self.receive_free.pop() else { return Placement::Wait };
        self.receive_entries[index as usize].control = *control;
        let wanted = header.following_bytes() == 0 || self.find_frames(index, header);
        if wanted {
            Placement::Fill(ReceiveMessage(index))
        } else {
            Placement::Skip(ReceiveMessage(index))
        }
    }

    fn find_frames(&mut self, index: u16, header: &Header) -> bool {
        let entry = &mut self.receive_entries[index as usize];
        let bytes = header.payload_bytes as usize;
        if is_trailer_alone(header) {
            return true;
        }
        if goes_by_token(header) {
            let good = self.incoming.claim(header.token, bytes, &mut entry.landed);
            entry.claimed = if good { header.token } else { Token::NONE };
            self.counters.discarded_token += u64::from(!good);
            return good;
        }
        let frame = Some(bytes).filter(|b| b.div_ceil(PAGE_BYTES) <= entry.right);
        let frame = frame.and_then(|b| self.frames.alloc_exact(b));
        self.counters.discarded_frames += u64::from(frame.is_none());
        frame.map(|f| entry.landed.push(f)).is_some()
    }

    /// The payload is complete (or skipped): checks it and gives the message to the host.
    pub fn deliver(&mut self, message: ReceiveMessage, header: &Header) {
        let wanted = self.finish_claim(&message);
        let entry = &mut self.receive_entries[message.0 as usize];
        if !wanted {
            entry.landed.clear();
        }
        if !entry.landed.is_empty() || is_trailer_alone(header) {
            entry.damaged = entry.incoming_checksum(header) != header.payload_checksum;
            entry.payload_bytes = if entry.damaged { 0 } else { header.payload_bytes as usize };
        }
        self.counters.damaged += u64::from(entry.damaged);
        self.counters.late += u64::from(!wanted);
        self.counters.received += 1;
        self.receive_ring.push_back(message.0);
    }

    /// The link broke in the middle of the payload: nothing arrives, the token is good again.
    pub fn abandon(&mut self, message: ReceiveMessage) {
        let entry = &mut self.receive_entries[message.0 as usize];
        let claimed = std::mem::take(&mut entry.claimed);
        if claimed.is_some() {
            self.incoming.unclaim(claimed, &mut entry.landed);
        }
        self.release_rcvmsg(message);
    }

    /// Plays the adapter for a message to this very endpoint. It is lost, as a link may lose it, when no entry is free.
    pub fn loop_back(&mut self, message: SendMessage) {
        let sent = &self.send_entries[message.0 as usize];
        let (control, header) =
            (sent.control, wire::ControlView::checked_before(&sent.control).header());
        let arrived = match self.place(&control, &header) {
            Placement::Wait => return self.transmitted(message),
            Placement::Skip(arrived) => arrived,
            Placement::Fill(arrived) => {
                self.copy_across(&message, &arrived, header.trailer_bytes());
                arrived
            }
        };
        self.deliver(arrived, &header);
        self.transmitted(message);
    }

    fn copy_across(&mut self, from: &SendMessage, to: &ReceiveMessage, trailer_bytes: usize) {
        let sent = &self.send_entries[from.0 as usize];
        let arrived = &mut self.receive_entries[to.0 as usize];
        arrived.trailer[..trailer_bytes].copy_from_slice(&sent.trailer[..trailer_bytes]);
        let mut targets = arrived.landed.iter_mut().map(|frame| &mut frame[..]);
        let mut room: &mut [u8] = &mut [];
        for mut data in sent.payload.iter().map(|frame| &frame[..]) {
            while !data.is_empty() {
                while room.is_empty() {
                    room = targets.next().expect("the frames hold the payload");
                }
                let n = data.len().min(room.len());
                room[..n].copy_from_slice(&data[..n]);
                (data, room) = (&data[n..], &mut std::mem::take(&mut room)[n..]);
            }
        }
    }

    fn finish_claim(&mut self, message: &ReceiveMessage) -> bool {
        let claimed = std::mem::take(&mut self.receive_entries[message.0 as usize].claimed);
        !claimed.is_some() || self.incoming.finish(claimed)
    }
}

/// Whether the payload may land in the frames of the message's token only: that of every reply, and that of a message
/// which is no call and has a token.
fn goes_by_token(header: &Header) -> bool {
    match header.kind {
        wire::Kind::Reply => true,
        wire::Kind::Message => header.token.is_some(),
        _ => false,
    }
}

/// A message that brings a trailer, no data, and goes by no token: the receive entry has room for that.
fn is_trailer_alone(header: &Header) -> bool {
    let by_token = goes_by_token(header) && header.token.is_some();
    !by_token && header.payload_bytes == 0 && header.trailer_words > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HeapRegion;
    use wire::{CallHeader, Kind, NodeId};

    fn endpoint(pages: usize, entries: usize) -> Endpoint {
        Endpoint::with_entries(Frames::new(HeapRegion::new(pages)), 1, entries)
    }

    fn sealed(kind: Kind, data: &[u8], token: Token) -> (Control, Header) {
        let mut header = Header::new(kind, NodeId(1), NodeId(2));
        header.payload_bytes = data.len() as u32;
        header.payload_checksum = if data.is_empty() { 0 } else { crc32c(data) };
        header.token = token;
        let mut control = Control::new(&header, &CallHeader::default());
        control.seal();
        (control, header)
    }

    /// Plays the adapter for one arriving message.
    fn arrive(endpoint: &mut Endpoint, kind: Kind, data: &[u8], token: Token) -> bool {
        let (control, header) = sealed(kind, data, token);
        let message = match endpoint.place(&control, &header) {
            Placement::Wait => return false,
            Placement::Skip(message) => message,
            Placement::Fill(message) => {
                let mut rest = data;
                for frame in &mut endpoint.arrived(&message).landed {
                    let n = rest.len().min(frame.len());
                    frame[..n].copy_from_slice(&rest[..n]);
                    rest = &rest[n..];
                }
                message
            }
        };
        endpoint.deliver(message, &header);
        true
    }

    #[test]
    fn i1_the_completion_comes_exactly_once_after_transmission() {
        let mut endpoint = endpoint(4, 2);
        let message = endpoint.get_sendmsg().unwrap();
        let frame = endpoint.frames().copy_of(b"data").unwrap();
        endpoint.attach_sendmsg(&message, frame, Some(42));
        endpoint.release_sendmsg(message);
        assert_eq!(endpoint.check_xmit_complete(), None);
        let at_adapter = endpoint.next_send().unwrap();
        assert_eq!(&endpoint.outgoing(&at_adapter).payload[0][..], b"data");
        assert_eq!(endpoint.frames().free_pages(), 3);
        endpoint.transmitted(at_adapter);
        assert_eq!(endpoint.check_xmit_complete(), Some(42));
        assert_eq!(endpoint.check_xmit_complete(), None);
        assert_eq!((endpoint.frames().free_pages(), endpoint.send_room()), (4, 2));
    }

    #[test]
    fn i2_rings_never_block_and_keep_the_order() {
        let mut endpoint = endpoint(4, 2);
        let held = [endpoint.get_sendmsg().unwrap(), endpoint.get_sendmsg().unwrap()];
        assert!(endpoint.get_sendmsg().is_none());
        assert!(endpoint.get_rcvmsg().is_none());
        held.into_iter().for_each(|m| endpoint.release_sendmsg(m));
        assert!(arrive(&mut endpoint, Kind::Request, b"first", Token::NONE));
        assert!(arrive(&mut endpoint, Kind::Request, b"second!", Token::NONE));
        assert!(
            !arrive(&mut endpoint, Kind::Request, b"", Token::NONE),
            "a full receive ring pushes back"
        );
        let lengths: Vec<_> = std::iter::from_fn(|| {
            let message = endpoint.get_rcvmsg()?;
            let len = endpoint.get_payload_len(&message);
            endpoint.release_rcvmsg(message);
            Some(len)
        })
        .collect();
        assert_eq!(lengths, [5, 7]);
    }

    #[test]
    fn i3_a_payload_is_a_list_of_frames() {
        let mut endpoint = endpoint(8, 2);
        let message = endpoint.get_sendmsg().unwrap();
        for part in [b"one".as_slice(), b"two", b"three"] {
            let frame = endpoint.frames().copy_of(part).unwrap();
            endpoint.attach_sendmsg(&message, frame, None);
        }
        let payload = &endpoint.outgoing(&message).payload;
        assert_eq!(payload_checksum(payload, &[]), crc32c(b"onetwothree"));
        endpoint.set_payload_len(&message, 5);
        let parts: Vec<_> = endpoint.detach_sendmsg(&message).map(|f| f.to_vec()).collect();
        assert_eq!(parts, [b"one".to_vec(), b"tw".to_vec()]);
    }

    #[test]
    fn i4_the_payload_lands_in_the_tokens_frames_or_nowhere() {
        let mut endpoint = endpoint(8, 4);
        let frame = endpoint.frames().alloc(4096).unwrap();
        let at = frame.offset();
        let token = endpoint.get_replytoken(&mut vec![frame]).unwrap();
        assert!(arrive(&mut endpoint, Kind::Reply, b"right", token));
        assert!(arrive(&mut endpoint, Kind::Reply, b"again", token));
        let first = endpoint.get_rcvmsg().unwrap();
        assert_eq!(endpoint.get_payload_len(&first), 5);
        let landed = endpoint.detach_rcvmsg(&first).next().unwrap();
        assert_eq!((landed.offset(), &landed[..5]), (at, &b"right"[..]));
        let second = endpoint.get_rcvmsg().unwrap();
        assert_eq!(endpoint.get_payload_len(&second), 0, "control delivered, payload discarded");
        assert_eq!(endpoint.counters().discarded_token, 1);
    }

    #[test]
    fn no_right_no_frames_and_no_room_discard_the_payload_but_deliver_the_message() {
        let mut endpoint = endpoint(2, 1);
        let all = endpoint.frames().alloc(8192).unwrap();
        assert!(arrive(&mut endpoint, Kind::Request, b"no room", Token::NONE));
        let message = endpoint.get_rcvmsg().unwrap();
        assert_eq!(endpoint.get_payload_len(&message), 0);
        drop(all);
        endpoint.attach_rcvmsg(&message, 0);
        endpoint.release_rcvmsg(message);
        assert!(arrive(&mut endpoint, Kind::Request, b"no right", Token::NONE));
        assert_eq!(endpoint.counters().discarded_frames, 2);
        assert_eq!(endpoint.frames().free_pages(), 2);
    }

    #[test]
    fn a_damaged_payload_is_delivered_as_damaged_with_its_frames() {
        let mut endpoint = endpoint(2, 2);
        let frame = endpoint.frames().alloc(1).unwrap();
        let token = endpoint.get_replytoken(&mut vec![frame]).unwrap();
        let (control, header) = sealed(Kind::Reply, b"sent", token);
        let Placement::Fill(message) = endpoint.place(&control, &header) else { panic!() };
        endpoint.arrived(&message).landed[0][..4].copy_from_slice(b"bent");
        endpoint.deliver(message, &header);
        let message = endpoint.get_rcvmsg().unwrap();
        let entry = endpoint.arrived(&message);
        assert!(entry.damaged);
        assert_eq!((entry.payload_bytes, entry.landed.len()), (0, 1));
    }

    #[test]
    fn a_message_to_oneself_arrives_with_its_payload_across_frame_borders() {
        let mut endpoint = endpoint(8, 2);
        let mut whole = endpoint.frames().alloc_exact(9).unwrap();
        let tail = whole.split_off(4);
        let token = endpoint.get_replytoken(&mut vec![whole, tail]).unwrap();
        let message = endpoint.get_sendmsg().unwrap();
        for part in [b"abcdef".as_slice(), b"ghi"] {
            let frame = endpoint.frames().copy_of(part).unwrap();
            endpoint.attach_sendmsg(&message, frame, None);
        }
        endpoint.outgoing(&message).control = sealed(Kind::Reply, b"abcdefghi", token).0;
        endpoint.loop_back(message);
        let arrived = endpoint.get_rcvmsg().unwrap();
        let parts: Vec<_> = endpoint.arrived(&arrived).landed.iter().map(|f| f.to_vec()).collect();
        assert_eq!(parts, [b"abcd".to_vec(), b"efghi".to_vec()]);
        assert_eq!(endpoint.get_payload_len(&arrived), 9);
    }

    #[test]
    fn senderr_sends_nothing() {
        let mut endpoint = endpoint(2, 1);
        let message = endpoint.get_sendmsg().unwrap();
        endpoint.senderr(&message);
        endpoint.release_sendmsg(message);
        assert!(endpoint.next_send().is_none());
        assert!(endpoint.get_sendmsg().is_some());
    }
}
