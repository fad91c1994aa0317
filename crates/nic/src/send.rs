//! The send ring: messages on their way from the host to the link.

use crate::cache::{Busy, PayloadCache};
use crate::command::{Packet, Piece};
use crate::limits::PIECES_MAX;
use crate::unit::{Stream, cut, entry};
use wire::{NodeId, Token};

/// A message to be sent without its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Send {
    /// The sender.
    pub source: NodeId,
    /// The receiver.
    pub destination: NodeId,
    /// The right to land in frames of the receiver's choice, or none.
    pub token: Token,
}

/// Why a message cannot be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The ring is full; try again when a message has left.
    #[error("the send ring is full")]
    Full,
    /// Longer than the MTU.
    #[error("a payload of {bytes} bytes; the MTU is {mtu}")]
    TooLong {
        /// Bytes of the payload.
        bytes: usize,
        /// Most there may be.
        mtu: usize,
    },
    /// More pieces than an entry holds.
    #[error("{0} pieces; {PIECES_MAX} are the most")]
    TooManyPieces(usize),
}

/// An entry of the send ring.
#[derive(Debug, Default)]
pub(crate) struct SendSlot {
    message: Packet,
    pub stream: Stream,
    /// The packet that is leaving: its payload's first byte and the byte behind its last.
    packet: (usize, usize),
    /// Whether that packet's control message has left.
    control_sent: bool,
}

impl SendSlot {
    /// The head of the packet that is leaving.
    pub fn packet(&self) -> Packet {
        let (offset, end) = self.packet;
        Packet { offset, payload: end - offset, ..self.message }
    }
}

#[derive(Debug)]
pub(crate) struct Sending {
    slots: Box<[SendSlot]>,
    pub posted: u64,
    /// The message whose payload is being fetched, and the one that is leaving; each is at most `posted`.
    pub fetching: u64,
    pub leaving: u64,
    packet_bytes_max: usize,
}

/// A candidate action of the link's engine for the message that is leaving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Control,
    Payload { bytes: usize },
}

impl Sending {
    pub fn new(ring: usize, packet_bytes_max: usize) -> Sending {
        let slots = (0..ring).map(|_| SendSlot::default()).collect();
        Sending { slots, posted: 0, fetching: 0, leaving: 0, packet_bytes_max }
    }

    pub fn index(&self, number: u64) -> usize {
        entry(number, self.slots.len())
    }

    pub fn slot(&mut self, number: u64) -> &mut SendSlot {
        let index = self.index(number);
        &mut self.slots[index]
    }

    pub fn slot_at(&self, index: usize) -> &SendSlot {
        &self.slots[index]
    }

    pub fn room(&self) -> usize {
        self.slots.len() - (self.posted - self.leaving) as usize
    }

    pub fn is_empty(&self) -> bool {
        self.leaving == self.posted
    }

    /// Whether messages wait behind the one that is leaving.
    pub fn has_more(&self) -> bool {
        self.posted > self.leaving + 1
    }

    /// Payload bytes of the message `number`.
    pub fn total(&self, number: u64) -> usize {
        self.slots[self.index(number)].message.total
    }

    /// Adds a message; units of its payload are at most `unit` bytes.
    pub fn post(&mut self, send: Send, pieces: &[Piece], unit: usize) -> Result<u64, PostError> {
        if self.room() == 0 {
            return Err(PostError::Full);
        }
        if pieces.len() > PIECES_MAX {
            return Err(PostError::TooManyPieces(pieces.len()));
        }
        let number = self.posted;
        let total = pieces.iter().map(|piece| piece.frame.bytes).sum();
        let Send { source, destination, token } = send;
        let message =
            Packet { source, destination, number, offset: 0, payload: total, total, token };
        let unit = unit.min(self.packet_bytes_max);
        let fragments = self.packet_bytes_max < total;
        let slot = self.slot(number);
        slot.stream.reset(0);
        cut(&mut slot.stream.units, pieces.iter().copied(), (0, total), unit);
        (slot.message, slot.control_sent) = (message, false);
        slot.packet = (0, if fragments { slot.stream.units[0].end } else { total });
        self.posted += 1;
        Ok(number)
    }

    /// Gives the payloads that are next their buffers, in the order of the ring, as far as it goes without the bus:
    /// what is cached needs none. Returns how many buffers were found.
    pub fn attach(&mut self, cache: &mut PayloadCache) -> u32 {
        let mut found = 0;
        while self.fetching < self.posted {
            let number = self.fetching;
            let stream = &mut self.slot(number).stream;
            let on_the_bus = stream.source_started > stream.source_ended;
            let Some(unit) = stream.source() else {
                self.fetching += 1;
                continue;
            };
            if unit.buffer.is_some() || on_the_bus {
                break;
            }
            let Ok(hit) = attach_unit(stream, cache) else { break };
            found += 1;
            if !hit {
                break;
            }
        }
        found
    }

    /// The message whose next unit is ready for the bus.
    pub fn next_fetch(&mut self) -> Option<u64> {
        let number = self.fetching;
        let waits = number < self.posted;
        let ready = waits && self.slot(number).stream.source().is_some_and(|u| u.buffer.is_some());
        ready.then_some(number)
    }

    /// The next transfer of the idle link's engine when `moved` bytes of the payload's active fetch have come.
    pub fn next_leaving(&mut self, pulse: endpoint::Pulse, moved: usize) -> Option<Leaving> {
        if self.leaving == self.posted {
            return None;
        }
        let slot = self.slot(self.leaving);
        let (offset, end) = slot.packet;
        let bytes = slot.stream.pulse(pulse, end, moved);
        if slot.control_sent {
            return (bytes > 0).then_some(Leaving::Payload { bytes });
        }
        // A payload that is stored here must not hold the link while it comes.
        let streams = pulse.least().is_some() && slot.stream.source_started > offset;
        (bytes > 0 || offset == end || streams).then_some(Leaving::Control)
    }

    /// The control message has left. Whether the message has, too.
    pub fn control_left(&mut self) -> bool {
        let slot = self.slot(self.leaving);
        slot.control_sent = true;
        self.next_packet()
    }

    /// Payload has left. Whether all of the message has, and the buffer that is done with.
    pub fn payload_left(&mut self, bytes: usize) -> (bool, Option<u16>) {
        let done = self.slot(self.leaving).stream.end_sink(bytes);
        (self.next_packet(), done)
    }

    fn next_packet(&mut self) -> bool {
        let slot = self.slot(self.leaving);
        let (_, end) = slot.packet;
        if slot.stream.sink_ended < end {
            return false;
        }
        if end == slot.message.total {
            self.leaving += 1;
            return true;
        }
        let next = slot.stream.units[slot.stream.sink_unit];
        (slot.packet, slot.control_sent) = ((end, next.end), false);
        false
    }
}

/// Tries to get a buffer for the source's unit. Whether the bytes are in it already.
fn attach_unit(stream: &mut Stream, cache: &mut PayloadCache) -> Result<bool, Busy> {
    let unit = stream.units[stream.source_unit];
    let found = cache.attach_send(unit.frame.address, unit.reuse);
    stream.attached(found.map(|attached| attached.buffer), cache);
    let hit = found?.hit;
    if hit {
        (stream.source_started, stream.source_ended) = (unit.end, unit.end);
        stream.source_unit += 1;
    }
    Ok(hit)
}
