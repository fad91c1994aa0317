//! The receive ring: packets on their way from the link to the host.

use crate::cache::{Binding, PayloadCache, Reuse};
use crate::command::{Action, HostFrame, Landing, Packet, Piece};
use crate::limits::PIECES_MAX;
use crate::unit::{Stream, Unit, cut, entry};
use endpoint::IncomingTable;
use endpoint::Pulse;
use std::collections::VecDeque;

/// Why a receive entry cannot be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArmError {
    /// The next entry of the ring is in use: armed, being filled, or not the host's yet.
    #[error("the next entry of the receive ring is in use")]
    Full,
    /// More frames than an entry holds.
    #[error("{0} frames; {PIECES_MAX} are the most")]
    TooManyPieces(usize),
}

/// A stretch of host memory that payload landed in, and the adapter's copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Host memory.
    pub frame: HostFrame,
    /// The copy, with a payload cache: what the host says when it sends the frame on.
    pub binding: Option<Binding>,
}

impl Landed {
    /// To be sent as it came: from the adapter's copy if that is still there.
    pub fn unmodified(&self) -> Piece {
        let reuse = self.binding.map_or(Reuse::Fetch, Reuse::Use);
        Piece { frame: self.frame, reuse }
    }

    /// To be sent as it is in host memory now.
    pub fn modified(&self) -> Piece {
        let reuse = self.binding.map_or(Reuse::Fetch, Reuse::Invalidate);
        Piece { frame: self.frame, reuse }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EntryState {
    #[default]
    Host,
    Armed,
    Filling,
    /// Filled; the host has not been told.
    Filled,
}

/// An entry of the receive ring. The lists are used again.
#[derive(Debug, Default)]
struct Entry {
    state: EntryState,
    frames: Vec<HostFrame>,
    /// The incoming table's frames, for a message with a good token.
    claimed: Vec<HostFrame>,
    landed: Vec<Landed>,
    landing: Landing,
    /// The message that fills it: its first packet, and how much of its payload has been announced.
    packet: Packet,
    announced: usize,
}

impl Entry {
    fn is_continued_by(&self, packet: &Packet) -> bool {
        let message = |packet: &Packet| (packet.source, packet.number, packet.total);
        self.state == EntryState::Filling
            && message(&self.packet) == message(packet)
            && self.announced == packet.offset
    }
}

/// A packet that is at least partly on the adapter.
#[derive(Debug, Default)]
pub(crate) struct Arrived {
    pub packet: Packet,
    pub slot: usize,
    landing: Landing,
    pub stream: Stream,
    /// Payload bytes that came off the link and were kept nowhere.
    discarded: usize,
    control_in: bool,
    control_started: bool,
    control_out: bool,
}

impl Arrived {
    fn end(&self) -> usize {
        self.packet.offset + self.packet.payload
    }

    fn is_complete(&self) -> bool {
        let came = match self.landing {
            Landing::Nowhere => self.discarded,
            _ => self.stream.source_ended - self.packet.offset,
        };
        self.control_in && came == self.packet.payload
    }

    fn is_done(&self) -> bool {
        let deposited = self.landing == Landing::Nowhere || self.stream.sink_ended == self.end();
        self.control_out && deposited && self.is_complete()
    }
}

/// A candidate action of a receiving engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receives {
    Control,
    Payload,
    /// So many bytes that go nowhere.
    Discard(usize),
}

#[derive(Debug)]
pub(crate) struct Receiving {
    entries: Box<[Entry]>,
    armed: u64,
    taken: u64,
    pub incoming: IncomingTable<HostFrame>,
    /// Heads that wait on the link.
    pub arrivals: VecDeque<Packet>,
    /// Packets on the adapter: `first..next`, the last of which may still be coming.
    queue: Box<[Arrived]>,
    first: u64,
    next: u64,
    mtu: usize,
    unit: usize,
    control_to_host: bool,
}

impl Receiving {
    pub fn new(config: &crate::Config) -> Receiving {
        let ring = config.receive_ring;
        Receiving {
            entries: (0..ring).map(|_| Entry::default()).collect(),
            armed: 0,
            taken: 0,
            incoming: IncomingTable::new(config.incoming, config.seed),
            arrivals: VecDeque::with_capacity(ring),
            queue: (0..ring).map(|_| Arrived::default()).collect(),
            first: 0,
            next: 0,
            mtu: config.mtu,
            unit: config.buffer_bytes,
            control_to_host: config.control_to_host,
        }
    }

    fn at(&mut self, number: u64) -> &mut Arrived {
        let index = entry(number, self.queue.len());
        &mut self.queue[index]
    }

    pub fn arm(&mut self, frames: &[HostFrame]) -> Result<usize, ArmError> {
        let slot = entry(self.armed, self.entries.len());
        let entry = &mut self.entries[slot];
        if entry.state != EntryState::Host {
            return Err(ArmError::Full);
        }
        if frames.len() > PIECES_MAX {
            return Err(ArmError::TooManyPieces(frames.len()));
        }
        entry.frames.clear();
        entry.frames.extend_from_slice(frames);
        entry.state = EntryState::Armed;
        self.armed += 1;
        Ok(slot)
    }

    /// The host has been told of the entry's message.
    pub fn told(&mut self, slot: usize) {
        self.entries[slot].state = EntryState::Host;
    }

    pub fn armed(&self) -> usize {
        (self.armed - self.taken) as usize
    }

    pub fn landed(&self, slot: usize) -> &[Landed] {
        &self.entries[slot].landed
    }

    pub fn is_empty(&self) -> bool {
        self.first == self.next && self.arrivals.is_empty()
    }

    /// The packet that is coming off the link.
    pub fn coming(&mut self) -> Option<&mut Arrived> {
        let last = self.next.checked_sub(1).filter(|last| *last >= self.first)?;
        Some(self.at(last)).filter(|arrived| !arrived.is_complete())
    }

    /// The packet whose turn it is to go to the host.
    pub fn going(&mut self) -> Option<&mut Arrived> {
        if self.first < self.next { Some(self.at(self.first)) } else { None }
    }

    /// The way of the packet that is on the adapter, if it is the only one: then its sink may follow its source.
    pub fn only_stream(&self) -> Option<&Stream> {
        let index = entry(self.first, self.queue.len());
        (self.next == self.first + 1).then(|| &self.queue[index].stream)
    }

    /// Packets that came so far, and packets that went to the host so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.next, self.first)
    }

    /// Whether the head that waits on the link can be taken: a message's first packet needs a receive entry. The
    /// entry, or why not.
    pub fn admit(&mut self, packet: &Packet) -> Admit {
        if self.next - self.first == self.queue.len() as u64 {
            return Admit::Wait;
        }
        if packet.offset + packet.payload > packet.total {
            return Admit::Unknown;
        }
        if packet.offset > 0 {
            return self.continued(packet);
        }
        if self.armed == self.taken {
            return Admit::NoEntry;
        }
        let slot = entry(self.taken, self.entries.len());
        self.taken += 1;
        let entry = &mut self.entries[slot];
        (entry.state, entry.packet, entry.landing) =
            (EntryState::Filling, *packet, Landing::Nowhere);
        entry.announced = packet.payload;
        entry.landed.clear();
        Admit::Slot(slot)
    }

    /// A later fragment goes where its message's first one went.
    fn continued(&mut self, packet: &Packet) -> Admit {
        let Some(slot) = self.entries.iter().position(|entry| entry.is_continued_by(packet)) else {
            return Admit::Unknown;
        };
        self.entries[slot].announced += packet.payload;
        Admit::Slot(slot)
    }

    /// Takes the packet on the adapter.
    pub fn take(&mut self, packet: Packet, slot: usize) {
        let number = self.next;
        self.next += 1;
        let arrived = self.at(number);
        arrived.stream.reset(packet.offset);
        (arrived.packet, arrived.slot) = (packet, slot);
        (arrived.landing, arrived.discarded) = (Landing::Nowhere, 0);
        (arrived.control_in, arrived.control_started, arrived.control_out) = (false, false, false);
    }

    /// The control message has come: where the payload lands is known now.
    pub fn control_came(&mut self) {
        let read_in_place = !self.control_to_host;
        let number = self.next - 1;
        let (packet, slot) = (self.at(number).packet, self.at(number).slot);
        if packet.offset == 0 {
            self.entries[slot].landing = self.land(packet, slot);
        }
        let landing =
            if packet.payload == 0 { Landing::Nowhere } else { self.entries[slot].landing };
        let (queue, entries) = (&mut self.queue, &self.entries);
        let arrived = &mut queue[entry(number, queue.len())];
        (arrived.control_in, arrived.control_out) = (true, read_in_place);
        (arrived.control_started, arrived.landing) = (read_in_place, landing);
        let frames = match landing {
            Landing::Nowhere => return,
            Landing::Entry => &entries[slot].frames,
            Landing::Incoming => &entries[slot].claimed,
        };
        let pieces = frames.iter().map(|frame| Piece::from(*frame));
        cut(&mut arrived.stream.units, pieces, (packet.offset, packet.payload), self.unit);
    }

    /// The frames for a message: the token's if it is good, else none; without a token the entry's if they suffice.
    fn land(&mut self, packet: Packet, slot: usize) -> Landing {
        let entry = &mut self.entries[slot];
        if packet.total == 0 || packet.total > self.mtu {
            return Landing::Nowhere;
        }
        if packet.token.is_some() {
            entry.claimed.clear();
            let good = self.incoming.claim(packet.token, packet.total, &mut entry.claimed);
            return if good { Landing::Incoming } else { Landing::Nowhere };
        }
        let room: usize = entry.frames.iter().map(|frame| frame.bytes).sum();
        if room >= packet.total { Landing::Entry } else { Landing::Nowhere }
    }

    /// Gives the payload that is coming the buffer of its next unit. How many buffers were found.
    pub fn attach(&mut self, cache: &mut PayloadCache) -> u32 {
        let Some(arrived) = self.coming() else { return 0 };
        let (total, stream) = (arrived.packet.total, &mut arrived.stream);
        let on_the_way = stream.source_started > stream.source_ended;
        let Some(unit) = stream.source().filter(|unit| unit.buffer.is_none() && !on_the_way) else {
            return 0;
        };
        let found = cache.attach_receive(unit.frame.address, total);
        stream.attached(found, cache);
        u32::from(found.is_ok())
    }

    /// The idle link engine's action for the packet that is coming; `None` is that no buffer is free.
    pub fn next_coming(&mut self) -> Option<Receives> {
        let arrived = self.coming()?;
        if !arrived.control_in {
            return Some(Receives::Control);
        }
        if arrived.landing == Landing::Nowhere {
            return Some(Receives::Discard(arrived.packet.payload));
        }
        arrived.stream.source()?.buffer.map(|_| Receives::Payload)
    }

    /// The next transfer of the idle host's engine for the packet whose turn it is, when `moved` bytes of the payload's
    /// active transfer from the link have come: its control message, or so many bytes of payload.
    pub fn next_going(&mut self, pulse: Pulse, moved: usize) -> Option<(Receives, usize)> {
        let arrived = self.going()?;
        if !arrived.control_in {
            return None;
        }
        if !arrived.control_started {
            return Some((Receives::Control, 0));
        }
        if arrived.landing == Landing::Nowhere {
            return None;
        }
        let end = arrived.end();
        let bytes = arrived.stream.pulse(pulse, end, moved);
        (bytes > 0).then_some((Receives::Payload, bytes))
    }

    /// The control message starts for the host. Whether it is all that goes there.
    pub fn control_going(&mut self) -> bool {
        let arrived = self.going().expect("a packet goes");
        arrived.control_started = true;
        arrived.landing == Landing::Nowhere
    }

    pub fn control_gone(&mut self) {
        self.going().expect("a packet goes").control_out = true;
    }

    pub fn discarded(&mut self, bytes: usize) {
        self.coming().expect("a packet comes").discarded += bytes;
    }

    /// Takes the packet that is done off the adapter, if one is; the message that it ends, if it does.
    pub fn settle(&mut self, cache: &PayloadCache) -> Option<Option<Action>> {
        let number = self.first;
        let arrived = self.going().filter(|arrived| arrived.is_done())?;
        let (packet, slot) = (arrived.packet, arrived.slot);
        self.first += 1;
        let (queue, entries) = (&self.queue, &mut self.entries);
        let units = &queue[entry(number, queue.len())].stream.units;
        entries[slot].landed.extend(units.iter().map(|unit| landed(unit, cache)));
        Some(packet.is_last().then(|| self.deliver(packet, slot)))
    }

    fn deliver(&mut self, packet: Packet, slot: usize) -> Action {
        let entry = &mut self.entries[slot];
        entry.state = EntryState::Filled;
        let landing = entry.landing;
        let landed = match landing {
            Landing::Nowhere => 0,
            Landing::Entry => packet.total,
            Landing::Incoming => self.incoming.finish(packet.token) as usize * packet.total,
        };
        Action::Deliver { slot, packet, landing, landed }
    }
}

fn landed(unit: &Unit, cache: &PayloadCache) -> Landed {
    Landed { frame: unit.frame, binding: unit.buffer.and_then(|buffer| cache.binding(buffer)) }
}

/// Whether a packet's head can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admit {
    /// Into this entry of the receive ring.
    Slot(usize),
    /// The host has armed no entry.
    NoEntry,
    /// A fragment of a message whose beginning was dropped, or one that cannot be.
    Unknown,
    /// The adapter is full.
    Wait,
}
