//! The engines of an adapter on a real machine: the firmware decides, copies are made here.
//!
//! A transfer to the link names bytes of this side's adapter memory in a slot of the shared ring. The link keeps them
//! until the peer's adapter has copied them out, and while it does and the host still brings more, the transfer is not
//! over: what comes meanwhile goes with the next (HotI'99 section 3).
//!
//! Stream positions count payload bytes of all messages of one direction.

mod progress;

pub use progress::Copied;

use super::shape::AdapterShape;
use crate::clock;
use crate::link::limits::{SHARED_SLOTS, TIMED_EVERY};
use crate::link::shared_words::{OwnWords, PeerWords};
use crate::link::stream::Closed;
use crate::memory::{PeerRegion, SharedMemory};
use arrayvec::ArrayVec;
use endpoint::shared::{Broken, End, PIECES_MAX, Piece};
use nic::{
    Action, Command, Direction, Engine, HostFrame, Kind, Landed, Nic, Packet, Policy, Send,
    Transfer,
};
use progress::{Coming, Leaving, Moved, UnderWay};
use std::collections::VecDeque;
use wire::{Control, ControlView, Header, Token};

/// Bytes of one copy while the link is busy with what came before: how late it is seen that it is not any more.
const SLICE_BYTES: usize = 8 << 10;
/// Bytes that are taken off the link before the firmware may pass them on: half of a first-level cache.
const RECEIVE_SLICE_BYTES: usize = 16 << 10;

/// The host of an adapter: its memory, and what it is told. Messages to the link have numbers, 0, 1, 2 in the order of
/// posting; those from it come and are delivered in one order.
pub trait Host {
    /// Host memory of the payload of the message `number` from `offset` on; as long as it is in one piece.
    fn source(&self, number: u64, offset: usize) -> &[u8];
    /// The control message and the trailer of the message `number`.
    fn head(&self, number: u64) -> (&Control, &[u8]);
    /// The frames of the message `number`, the oldest one, are the host's again.
    fn sent(&mut self, number: u64);
    /// Host memory for the payload of the oldest message that is not delivered, from `offset` on; in one piece.
    fn sink(&mut self, offset: usize) -> &mut [u8];
    /// So many bytes were put there.
    fn deposited(&mut self, bytes: usize);
    /// All of the newest message has come off the link: `read` fills the room for its trailer.
    fn trailer(&mut self, read: &mut dyn FnMut(&mut [u8]));
    /// The oldest message that is not delivered is complete; where its payload is, in host memory and on the adapter.
    fn delivered(&mut self, landed: &[Landed]);
}

/// One end of a link between two adapters: firmware, adapter memory, engines.
#[derive(Debug)]
pub struct Port {
    nic: Nic,
    shape: AdapterShape,
    memory: SharedMemory,
    end: End<OwnWords, PeerWords>,
    peer: PeerRegion,
    moved: Moved,
    leaving: Leaving,
    under_way: VecDeque<UnderWay>,
    /// Stream positions at which buffers end that the link keeps.
    kept: VecDeque<u64>,
    /// How far the peer's adapter is known to be.
    taken: u64,
    coming: Coming,
    /// Messages taken off the ring.
    received: u64,
    posted: bool,
    took: bool,
    copied: Copied,
    /// Whether the payload of the last message each way is timed, and whether nothing had come before that one.
    timed: [bool; 2],
    idle: bool,
}

impl Port {
    /// An adapter over its own memory and what the peer passed. Panics when the shape does not pass its check.
    pub fn new(
        shape: AdapterShape,
        memory: SharedMemory,
        own: OwnWords,
        words: PeerWords,
        peer: PeerRegion,
    ) -> Port {
        Port {
            nic: Nic::new(shape.config()).expect("the shape was checked"),
            shape,
            memory,
            end: End::new(own, words, SHARED_SLOTS),
            peer,
            moved: Moved::default(),
            leaving: Leaving::default(),
            under_way: VecDeque::with_capacity(SHARED_SLOTS),
            kept: VecDeque::with_capacity(SHARED_SLOTS),
            taken: 0,
            coming: Coming::default(),
            received: 0,
            posted: false,
            took: false,
            copied: Copied::default(),
            timed: [false; 2],
            idle: true,
        }
    }

    /// The firmware.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Bytes that its engines have copied.
    pub fn copied(&self) -> Copied {
        self.copied
    }

    /// The rings.
    pub fn end(&mut self) -> &mut End<OwnWords, PeerWords> {
        &mut self.end
    }

    // The host's side.

    /// How many messages may be posted: each has an entry of the adapter's ring and one of the link's.
    pub fn send_room(&self) -> usize {
        let on_adapter = self.nic.config().send_ring - self.nic.send_room();
        self.nic.send_room().min(self.end.room().saturating_sub(on_adapter))
    }

    /// Posts a message whose payload lies in these frames. Panics without room.
    pub fn post(&mut self, control: &Control, frames: &[HostFrame]) -> u64 {
        let header = ControlView::checked_before(control).header();
        let send =
            Send { source: header.source, destination: header.destination, token: Token::NONE };
        self.post_pieces(send, &self.gathered(frames))
    }

    /// As [`post`](Port::post), with what the host knows about copies on the adapter.
    pub fn post_pieces(&mut self, send: Send, pieces: &[nic::Piece]) -> u64 {
        let alone =
            self.under_way.is_empty() && self.nic.send_room() == self.nic.config().send_ring;
        let number = self.nic.post(send, pieces).expect("there was room, and payloads are limited");
        let total = pieces.iter().map(|piece| piece.frame.bytes).sum();
        self.timed[Direction::ToNet as usize] =
            alone && self.must_time(Direction::ToNet, number, total);
        number
    }

    /// Whether a message that has the adapter to itself is timed. Reading the clock takes a tenth of a short one's
    /// time, so that few are once it is known what they take.
    fn must_time(&self, direction: Direction, number: u64, total: usize) -> bool {
        let wanted =
            || number.is_multiple_of(TIMED_EVERY) || self.nic.tuner(direction).is_learning(total);
        self.shape.policy == Policy::Tuned && total > 0 && wanted()
    }

    /// Frames as the firmware takes them: as they are, or, if there are too many, as if they were one.
    fn gathered(&self, frames: &[HostFrame]) -> ArrayVec<nic::Piece, PIECES_MAX> {
        let units: usize = frames.iter().map(|f| f.bytes.div_ceil(self.shape.buffer_bytes)).sum();
        if units <= PIECES_MAX {
            return frames.iter().map(|frame| (*frame).into()).collect();
        }
        let bytes = frames.iter().map(|frame| frame.bytes).sum();
        [HostFrame { address: frames[0].address, bytes }.into()].into_iter().collect()
    }

    /// Whether the peer has not released every slot.
    pub fn is_under_way(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// Messages with a payload that the peer has not released.
    pub fn payloads_under_way(&self) -> usize {
        self.under_way.iter().filter(|slot| slot.payload).count()
    }

    /// Whether something was posted to the link since this was asked last.
    pub fn take_posted(&mut self) -> bool {
        std::mem::take(&mut self.posted)
    }

    /// To be asked when nothing has come, because it costs a fence, which waits for what was just written: whether the
    /// peer sleeps and waits for buffers that have been taken since this was asked last.
    pub fn must_wake_for_taken(&mut self) -> bool {
        std::mem::take(&mut self.took) && self.end.must_wake_for_taken()
    }

    /// The processor that the peer runs on, if it is awake.
    pub fn peer_processor(&self) -> Option<u32> {
        if self.end.peer_sleeps() { None } else { self.end.peer_processor() }
    }

    /// Takes back what the peer has taken; whether something.
    pub fn reclaim(&mut self) -> Result<bool, Closed> {
        if self.under_way.is_empty() {
            return Ok(false);
        }
        let (released, before) = (self.end.reclaim()?, self.kept.len());
        for slot in self.under_way.drain(..released) {
            self.taken = self.taken.max(slot.end);
        }
        self.let_go();
        if !self.kept.is_empty() {
            self.taken = self.taken.max(self.end.taken());
            self.let_go();
        }
        Ok(released > 0 || self.kept.len() < before)
    }

    /// Gives back the buffers that the peer has taken, as far as that is known. A peer that says too much only gets
    /// other bytes than those that were sent.
    fn let_go(&mut self) {
        while self.kept.front().is_some_and(|end| *end <= self.taken) {
            self.kept.pop_front();
            let now = self.now();
            self.nic.released(now);
        }
    }

    // The link's side.

    /// Whether a message is coming in.
    pub fn is_coming(&self) -> bool {
        self.coming.active
    }

    /// The head of the message that is next, if one has come and there is room for it.
    pub fn next_head(&mut self) -> Result<Option<(&Control, Header)>, Closed> {
        let entry = &mut self.coming.entry;
        if !self.end.read(self.peer.bytes(), entry)? {
            self.idle = true;
            return Ok(None);
        }
        let header = ControlView::new(&entry.control).map_err(Closed::Malformed)?.header();
        entry.pieces().for_each(|piece| self.peer.prefetch_starts(piece.offset, piece.bytes));
        Ok(Some((&entry.control, header)))
    }

    /// Takes the message of [`next_head`](Port::next_head) off the link into these frames; without frames its payload
    /// is kept nowhere.
    pub fn take_head(&mut self, header: &Header, frames: &[HostFrame]) {
        let frames = self.gathered(frames);
        let frames: ArrayVec<HostFrame, PIECES_MAX> =
            frames.iter().map(|piece| piece.frame).collect();
        self.nic.arm(&frames).expect("every message was delivered before the next one is taken");
        let total = header.payload_bytes as usize;
        let (source, destination, number) = (header.source, header.destination, self.received);
        let alone = std::mem::take(&mut self.idle);
        self.timed[Direction::ToHost as usize] =
            alone && self.must_time(Direction::ToHost, number, total);
        let token = Token::NONE;
        self.nic.arriving(Packet {
            source,
            destination,
            number,
            offset: 0,
            payload: total,
            total,
            token,
        });
        (self.coming.active, self.coming.total) = (true, total);
        self.received += 1;
        self.end.prefetch_behind();
    }

    /// Whether nothing new shows, and the peer need not be told of what was taken.
    pub fn is_quiet(&self) -> bool {
        self.end.prefetch();
        let news = match self.coming.active {
            true => self.end.has_more(&self.coming.entry),
            false => self.end.arrived() != Ok(0),
        };
        !news && !self.took
    }

    /// Announces sleep, also waiting for room; true: something is there, do not sleep.
    pub fn before_sleep(&mut self, for_room: bool) -> bool {
        if self.kept.is_empty() {
            self.end.taken(); // nothing waits for it
        }
        self.nic.discard_samples();
        let half = self.coming.active.then_some(&self.coming.entry);
        self.end.before_sleep(for_room, half)
    }

    // The engines.

    /// Lets the firmware do what it can; whether something moved.
    pub fn run(&mut self, host: &mut impl Host) -> Result<bool, Closed> {
        let mut moved = false;
        loop {
            while let Some(command) = self.step() {
                self.carry_out(&command.action, host);
                moved = true;
            }
            if !self.advance(host)? {
                return Ok(moved);
            }
            moved = true;
        }
    }

    fn step(&mut self) -> Option<Command> {
        let (now, Moved { host_dma, net_receive, .. }) = (self.now(), self.moved);
        let moved = |engine: Engine| match engine {
            Engine::HostDma => host_dma,
            Engine::NetReceive => net_receive,
            Engine::NetSend => 0,
        };
        self.nic.step(now, &moved)
    }

    /// The transfer that an engine makes.
    fn transfer(&self, engine: Engine) -> &Transfer {
        self.nic.active(engine).expect("a transfer is under way")
    }

    /// Nanoseconds, for the log and for payloads that are timed; else nothing.
    fn now(&self) -> u64 {
        let unread = self.shape.log == 0 && self.timed == [false; 2];
        if unread { 0 } else { clock::now().0 }
    }

    fn finished(&mut self, engine: Engine) {
        let now = self.now();
        self.nic.finished(now, engine);
    }

    fn carry_out(&mut self, action: &Action, host: &mut impl Host) {
        match *action {
            Action::Start(engine) => self.start(engine, host),
            Action::Complete { number, .. } => host.sent(number),
            Action::Deliver { slot, .. } => host.delivered(self.nic.landed(slot)),
            Action::Interrupt => {}
        }
    }

    fn start(&mut self, engine: Engine, host: &mut impl Host) {
        let &Transfer { kind, last, .. } = self.transfer(engine);
        match (engine, kind) {
            (Engine::HostDma, _) => self.moved.host_dma = 0,
            (Engine::NetSend, Kind::Control) => self.begin_leaving(host),
            (Engine::NetSend, _) => self.leave(host),
            (Engine::NetReceive, Kind::Payload) => self.moved.net_receive = 0,
            (Engine::NetReceive, _) => {
                self.finished(Engine::NetReceive);
                if last {
                    self.end_coming(host);
                }
            }
        }
    }

    /// The control message leaves with the first bytes of its payload.
    fn begin_leaving(&mut self, host: &mut impl Host) {
        let &Transfer { slot, packet: Packet { number, total, .. }, .. } =
            self.transfer(Engine::NetSend);
        let units = self.nic.sent(slot).count();
        let spare = PIECES_MAX.saturating_sub(units);
        self.leaving = Leaving { start: self.leaving.start, spare, ..Leaving::default() };
        if total == 0 {
            self.announce(number, 0, &[], host);
        }
        self.finished(Engine::NetSend);
    }

    fn leave(&mut self, host: &mut impl Host) {
        let &Transfer { buffer, bytes, offset, slot, last, packet, .. } =
            self.transfer(Engine::NetSend);
        let (number, total, behind) = (packet.number, packet.total, offset + bytes);
        let (buffer, at) = buffer.expect("payload leaves from a buffer");
        let place = self.shape.place(buffer, at);
        let held_back = self.leaving.held_back.take();
        let before = held_back.map_or(0, |piece| piece.bytes);
        let piece = Piece { offset: place - before, bytes: before + bytes };
        self.moved.leaves = self.leaving.start + behind as u64;
        let ends_unit = self.ends_unit(slot, behind);
        if ends_unit || self.leaving.spare > 0 {
            self.leaving.spare -= usize::from(!ends_unit);
            self.announce(number, total, &[piece], host);
        } else {
            self.leaving.held_back = Some(piece);
        }
        if last {
            self.leaving.start += total as u64;
        }
        if !self.is_fetching(number) {
            self.end_net_send();
        }
    }

    fn ends_unit(&self, slot: usize, behind: usize) -> bool {
        let mut end = 0;
        self.nic.sent(slot).any(|unit| {
            end += unit.frame.bytes;
            end == behind
        })
    }

    /// Posts the message's slot, or adds to it.
    fn announce(&mut self, number: u64, total: usize, pieces: &[Piece], host: &impl Host) {
        self.posted = true;
        match self.leaving.slot {
            // A peer that does not want the payload releases the slot before all of it is there.
            Some(slot) if slot >= self.end.oldest() => {
                self.end.publish(slot, self.leaving.pieces, pieces)
            }
            Some(_) => {}
            None => {
                let (control, trailer) = host.head(number);
                self.leaving.slot = Some(self.end.post(control, pieces, trailer));
                let end = self.leaving.start + total as u64;
                self.under_way.push_back(UnderWay { end, payload: total > 0 });
            }
        }
        self.leaving.pieces += pieces.len();
    }

    /// Whether the host still brings bytes of the message.
    fn is_fetching(&self, number: u64) -> bool {
        self.nic.active(Engine::HostDma).is_some_and(|transfer| {
            transfer.direction == Direction::ToNet && transfer.packet.number == number
        })
    }

    fn end_net_send(&mut self) {
        self.finished(Engine::NetSend);
        while self.kept.len() < self.nic.with_link() {
            self.kept.push_back(self.moved.leaves);
        }
        self.let_go();
    }

    /// The message that is leaving, while a transfer of it is on the link.
    fn on_link(&self) -> Option<u64> {
        self.nic.active(Engine::NetSend).map(|transfer| transfer.packet.number)
    }

    /// Moves the transfers on that can move; false when none can.
    fn advance(&mut self, host: &mut impl Host) -> Result<bool, Closed> {
        if let Some(number) = self.on_link()
            && (!self.is_fetching(number) || self.has_taken(self.moved.leaves))
        {
            self.end_net_send();
            return Ok(true);
        }
        if self.nic.active(Engine::HostDma).is_some() {
            self.dma(host);
            return Ok(true);
        }
        match self.nic.active(Engine::NetReceive).is_some() {
            true => self.fetch_from_peer(host),
            false => Ok(false),
        }
    }

    fn has_taken(&mut self, position: u64) -> bool {
        if self.taken < position {
            self.taken = self.taken.max(self.end.taken());
        }
        // The peer need not say how much it took of what it has all of.
        self.taken >= position
    }

    /// One slice of a copy between host and adapter memory.
    fn dma(&mut self, host: &mut impl Host) {
        let moved = self.moved.host_dma;
        let waits = self.on_link().is_some_and(|number| self.is_fetching(number));
        let most = match self.nic.watch(Engine::HostDma) {
            Some(look) if look > moved => look - moved,
            _ if waits => SLICE_BYTES,
            _ => usize::MAX,
        };
        let &Transfer { direction, bytes: total, .. } = self.transfer(Engine::HostDma);
        let bytes = most.min(total - moved);
        match direction {
            Direction::ToNet => self.copied.to_net += bytes as u64,
            Direction::ToHost => self.copied.to_host += bytes as u64,
        }
        self.copy_slice(bytes, host);
        self.moved.host_dma = moved + bytes;
        if moved + bytes == total {
            self.finished(Engine::HostDma);
        }
    }

    fn copy_slice(&mut self, bytes: usize, host: &mut impl Host) {
        let moved = self.moved.host_dma;
        let &Transfer { direction, buffer, offset, packet: Packet { number, .. }, .. } =
            self.transfer(Engine::HostDma);
        let (buffer, at) = buffer.expect("payload has a buffer");
        let (place, mut done) = (self.shape.place(buffer, at + moved), 0);
        while done < bytes {
            let offset = offset + moved + done;
            done += match direction {
                Direction::ToNet => {
                    let source = host.source(number, offset);
                    let part = &source[..source.len().min(bytes - done)];
                    self.memory.copy_in(place + done, part);
                    part.len()
                }
                Direction::ToHost => {
                    let sink = host.sink(offset);
                    let count = sink.len().min(bytes - done);
                    self.memory.copy_out(place + done, &mut sink[..count]);
                    host.deposited(count);
                    count
                }
            };
        }
    }

    /// One slice from the peer's adapter memory; false when it has not come.
    fn fetch_from_peer(&mut self, host: &mut impl Host) -> Result<bool, Closed> {
        let moved = self.moved.net_receive;
        let &Transfer { offset, buffer, bytes: all, last, .. } = self.transfer(Engine::NetReceive);
        let offset = offset + moved;
        if self.come()? <= offset {
            return Ok(false);
        }
        let (buffer, at) = buffer.expect("payload has a buffer");
        let most = (all - moved).min(RECEIVE_SLICE_BYTES);
        let place = self.shape.place(buffer, at + moved);
        let bytes = self.copy_pieces(offset, most, place);
        self.moved.net_receive = moved + bytes;
        let ended = moved + bytes == all;
        if ended {
            self.finished(Engine::NetReceive);
        }
        match ended && last {
            true => self.end_coming(host),
            false => self.end.set_taken(self.coming.start + (offset + bytes) as u64),
        }
        self.copied.from_link += bytes as u64;
        self.took = true;
        Ok(true)
    }

    /// Bytes of the message's payload that have come to the link.
    fn come(&mut self) -> Result<usize, Closed> {
        let Coming { entry, total, .. } = &mut self.coming;
        if entry.payload_bytes() < *total {
            self.end.read_more(self.peer.bytes(), entry)?;
        }
        match entry.payload_bytes() {
            bytes if bytes > *total => Err(Closed::Broken(Broken::Bounds)),
            bytes => Ok(bytes),
        }
    }

    /// Copies at most `most` bytes from `offset` of the payload to `place`; how many.
    fn copy_pieces(&mut self, offset: usize, most: usize, place: usize) -> usize {
        let (mut begin, mut done) = (0, 0);
        for piece in self.coming.entry.pieces() {
            let skip = (offset + done).saturating_sub(begin).min(piece.bytes);
            let bytes = (piece.bytes - skip).min(most - done);
            let copied =
                self.memory.copy_across(place + done, &self.peer, piece.offset + skip, bytes);
            copied.expect("the pieces were checked against the peer's memory");
            begin += piece.bytes;
            done += bytes;
        }
        done
    }

    /// All of the message is on this adapter, or will not be: the peer has its slot and its buffers back.
    fn end_coming(&mut self, host: &mut impl Host) {
        host.trailer(&mut |room| self.end.read_trailer(room));
        self.coming.active = false;
        self.coming.start += self.coming.total as u64;
        self.end.release();
    }
}
