//! Messages on their way in: put together from fragments, each of which goes straight to its place.
//!
//! The first fragment names the place, so that one which overtakes it is dropped and comes again.

use super::limits::*;
use super::outgoing::Fragments;
use endpoint::{Endpoint, Placement, ReceiveMessage};
use wire::limits::CONTROL_BYTES;
use wire::{Control, ControlView, Header, Malformed, NodeId};

/// What no honest peer sends. The connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A fragment is none of its message.
    Fragment,
    /// The first fragment has no message.
    Malformed(Malformed),
    /// The message names another sender.
    Forged(NodeId),
}

/// What became of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is where it belongs, and whether its message was thereby delivered.
    Taken(bool),
    /// It came before.
    Duplicate,
    /// It came before the first of its message: dropped.
    Early,
    /// The endpoint has no entry free: dropped.
    Full,
}

#[derive(Debug)]
struct Message {
    handle: ReceiveMessage,
    header: Header,
    wanted: bool,
    bytes: usize,
    fragments: u16,
    came: u16,
    has_come: Fragments,
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Unknown,
    Filling(Message),
    Done,
}

/// Messages of one direction.
#[derive(Debug)]
pub struct Incoming {
    peer: NodeId,
    fragment_bytes: usize,
    slots: Box<[Slot]>,
    /// The oldest that is not delivered.
    oldest: u64,
    /// Of those behind it, how many are begun or delivered.
    begun: u64,
    limit: u64,
    /// Messages delivered.
    pub received: u64,
    /// Bytes behind their control messages.
    pub received_bytes: u64,
}

fn at(number: u64) -> usize {
    number as usize % MESSAGES_MAX
}

impl Incoming {
    /// None yet, from this peer.
    pub fn new(peer: NodeId, fragment_bytes: usize) -> Incoming {
        Incoming {
            peer,
            fragment_bytes,
            slots: (0..MESSAGES_MAX).map(|_| Slot::Unknown).collect(),
            oldest: 0,
            begun: 0,
            limit: 0,
            received: 0,
            received_bytes: 0,
        }
    }

    /// Messages below this number have room. It never falls: where entries that were promised are used by another
    /// peer's messages, this one's are dropped and come again.
    pub fn limit(&mut self, endpoint: &Endpoint) -> u64 {
        let most = self.oldest + MESSAGES_MAX as u64;
        let room = self.oldest + self.begun + endpoint.receive_room() as u64;
        self.limit = self.limit.max(room.min(most));
        self.limit
    }

    /// Whether the peer has used all the room that `told` promised.
    pub fn has_used(&self, told: u64) -> bool {
        self.oldest + self.begun >= told
    }

    /// Takes a fragment.
    pub fn take(
        &mut self,
        (number, index): (u64, u16),
        body: &[u8],
        endpoint: &mut Endpoint,
    ) -> Result<Outcome, Fault> {
        if number < self.oldest {
            return Ok(Outcome::Duplicate);
        }
        if number >= self.oldest + MESSAGES_MAX as u64 {
            return Err(Fault::Fragment);
        }
        if matches!(self.slots[at(number)], Slot::Unknown) {
            if index > 0 {
                return Ok(Outcome::Early);
            }
            let Some(message) = self.begin(body, endpoint)? else { return Ok(Outcome::Full) };
            self.slots[at(number)] = Slot::Filling(message);
            self.begun += 1;
        }
        let Slot::Filling(message) = &mut self.slots[at(number)] else {
            return Ok(Outcome::Duplicate);
        };
        let offset = usize::from(index) * self.fragment_bytes;
        let bytes = self.fragment_bytes.min(message.bytes.saturating_sub(offset));
        if index >= message.fragments || body.len() != bytes {
            return Err(Fault::Fragment);
        }
        if !message.has_come.add(index) {
            return Ok(Outcome::Duplicate);
        }
        message.put(offset, body, endpoint);
        message.came += 1;
        let whole = message.came == message.fragments;
        if whole {
            self.deliver(number, endpoint);
        }
        Ok(Outcome::Taken(whole))
    }

    fn begin(&self, body: &[u8], endpoint: &mut Endpoint) -> Result<Option<Message>, Fault> {
        let mut control = Control::default();
        control.0.copy_from_slice(body.get(..CONTROL_BYTES).ok_or(Fault::Fragment)?);
        let header = ControlView::new(&control).map_err(Fault::Malformed)?.header();
        if header.source != self.peer {
            return Err(Fault::Forged(header.source));
        }
        let (handle, wanted) = match endpoint.place(&control, &header) {
            Placement::Fill(handle) => (handle, true),
            Placement::Skip(handle) => (handle, false),
            Placement::Wait => return Ok(None),
        };
        let bytes = CONTROL_BYTES + header.following_bytes();
        let fragments = bytes.div_ceil(self.fragment_bytes) as u16;
        let has_come = Fragments::default();
        Ok(Some(Message { handle, header, wanted, bytes, fragments, came: 0, has_come }))
    }

    fn deliver(&mut self, number: u64, endpoint: &mut Endpoint) {
        let slot = std::mem::replace(&mut self.slots[at(number)], Slot::Done);
        let Slot::Filling(message) = slot else { unreachable!("it was filling") };
        self.received += 1;
        self.received_bytes += message.header.following_bytes() as u64;
        endpoint.deliver(message.handle, &message.header);
        while matches!(self.slots[at(self.oldest)], Slot::Done) {
            self.slots[at(self.oldest)] = Slot::Unknown;
            self.oldest += 1;
            self.begun -= 1;
        }
    }

    /// Gives up what is not whole.
    pub fn close(&mut self, endpoint: &mut Endpoint) {
        for slot in &mut self.slots {
            if let Slot::Filling(message) = std::mem::take(slot) {
                endpoint.abandon(message.handle);
            }
        }
        self.begun = 0;
    }
}

impl Message {
    /// Puts the bytes at `offset` of the message where they belong: the control message is there already.
    fn put(&self, offset: usize, body: &[u8], endpoint: &mut Endpoint) {
        if !self.wanted {
            return;
        }
        let control = CONTROL_BYTES.saturating_sub(offset).min(body.len());
        let (mut skip, mut body) = (offset.saturating_sub(CONTROL_BYTES), &body[control..]);
        let entry = endpoint.arrived(&self.handle);
        let mut left = self.header.payload_bytes as usize;
        let frames = entry.landed.iter_mut().map(|frame| {
            let bytes = left.min(frame.len());
            left -= bytes;
            &mut frame[..bytes]
        });
        let trailer = &mut entry.trailer[..self.header.trailer_bytes()];
        for room in frames.chain([trailer]) {
            let skipped = room.len().min(skip);
            skip -= skipped;
            let room = &mut room[skipped..];
            let (now, later) = body.split_at(body.len().min(room.len()));
            room[..now.len()].copy_from_slice(now);
            body = later;
        }
    }
}
