//! A connection through shared memory: rings and payloads are in memory that both processes map, a UNIX socket says
//! hello, wakes a sleeper, and tells of a death at once.
//!
//! The receiver copies a payload from the sender's pool straight into the frames of its token; the sender's frames
//! stay busy until then, or until the peer has stood still for too long. No system call is made while both sides are
//! awake. A message that is still filling is posted with the pieces that are there and gets the others as they come,
//! one such message at a time.

use super::bell::Bell;
use super::landing::{LANDING_PIECES_MAX, Landing};
use super::limits::*;
use super::neighbour::{Neighbour, Silence};
use super::shared_words::{OwnWords, PeerWords};
use super::stream::{Closed, Outgoing, Tally};
use crate::memory::PeerRegion;
use arrayvec::ArrayVec;
use endpoint::limits::GATHER_MAX;
use endpoint::pulse::Backlog;
use endpoint::shared::{Broken, End, Entry, Piece};
use endpoint::tuning::Pulses;
use endpoint::{Endpoint, Frame, Frames, SendMessage};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::{ControlView, NodeId, Time};

type Pieces = ArrayVec<Piece, GATHER_MAX>;

/// The posted message whose payload is still coming.
#[derive(Debug)]
struct Part {
    /// Of its slot.
    number: u64,
    /// Frames of it that the slot names.
    frames: usize,
    /// In so many pieces.
    pieces: usize,
}

/// One connection.
#[derive(Debug)]
pub struct SharedLink {
    bell: Bell,
    end: End<OwnWords, PeerWords>,
    pool: PeerRegion,
    waiting: Outgoing,
    under_way: VecDeque<SendMessage>,
    filling: Option<Part>,
    entry: Entry,
    landing: Option<Landing>,
    silence: Silence,
    tally: Tally,
}

impl SharedLink {
    /// After the handshake, over both sides' ring memory and the peer's pool.
    pub fn new(
        socket: OwnedFd,
        (own, peer): (OwnWords, PeerWords),
        pool: PeerRegion,
        pulses: Pulses,
    ) -> SharedLink {
        SharedLink {
            bell: Bell::new(socket),
            end: End::new(own, peer, SHARED_SLOTS),
            pool,
            waiting: Outgoing::new(pulses, PULSE_BYTES_MIN),
            under_way: VecDeque::with_capacity(SHARED_SLOTS),
            filling: None,
            entry: Entry::default(),
            landing: None,
            silence: Silence::default(),
            tally: Tally::default(),
        }
    }

    /// Whether frames wait for what the peer has to release.
    fn keeps_frames(&self, endpoint: &Endpoint) -> bool {
        let keeps = |message: &SendMessage| !endpoint.taken(message).payload.is_empty();
        let mut behind = self.waiting.queue.iter();
        self.under_way.iter().any(keeps) || !self.under_way.is_empty() && behind.any(keeps)
    }

    /// The message that is half copied because the rest of it has not come.
    fn half(&self) -> Option<&Entry> {
        self.landing.is_some().then_some(&self.entry)
    }

    fn post(&mut self, message: SendMessage, endpoint: &mut Endpoint) -> bool {
        let entry = endpoint.taken(&message);
        let mut pieces = Pieces::new();
        if !name(&entry.payload, endpoint.frames(), &mut pieces) {
            self.tally.drops += 1;
            endpoint.transmitted(message);
            return false;
        }
        let trailer = &entry.trailer[..entry.control.trailer_bytes()];
        self.tally.sent += 1;
        self.tally.sent_bytes += (entry.whole_bytes() + trailer.len()) as u64;
        let number = self.end.post(&entry.control, &pieces, trailer);
        if entry.missing > 0 {
            let (frames, pieces) = (entry.payload.len(), pieces.len());
            self.filling = Some(Part { number, frames, pieces });
        }
        self.under_way.push_back(message);
        true
    }

    /// Adds what has come of the message that is filling; whether there was something.
    fn publish(&mut self, endpoint: &Endpoint) -> bool {
        let part = self.filling.as_mut().expect("a message is filling");
        let Some(at) = part.number.checked_sub(self.end.oldest()) else {
            self.filling = None; // the peer has released it without waiting for the rest
            return false;
        };
        let entry = endpoint.taken(&self.under_way[at as usize]);
        let more = &entry.payload[part.frames..];
        let buffered = more.iter().map(|frame| frame.len()).sum();
        let (complete, queued) = (entry.missing == 0, self.waiting.queue.len());
        let backlog = Backlog { buffered, complete, idle: true, queued };
        if self.waiting.pulse().decide(backlog) == 0 {
            return false;
        }
        let mut pieces = Pieces::new();
        let named = name(more, endpoint.frames(), &mut pieces);
        assert!(named, "a filling message has no more frames than pieces, all of the node's pool");
        self.end.publish(part.number, part.pieces, &pieces);
        (part.frames, part.pieces) = (entry.payload.len(), part.pieces + pieces.len());
        if entry.missing == 0 {
            self.filling = None;
        }
        true
    }

    /// Reads the next slot and finds a place for its message.
    fn begin(&mut self, endpoint: &mut Endpoint, peer: NodeId) -> Result<bool, Closed> {
        if !self.end.read(self.pool.bytes(), &mut self.entry)? {
            return Ok(false);
        }
        let control = &self.entry.control;
        let header = ControlView::new(control).map_err(Closed::Malformed)?.header();
        if header.source != peer {
            return Err(Closed::Forged(header.source));
        }
        self.entry.pieces().for_each(|piece| self.pool.prefetch_starts(piece.offset, piece.bytes));
        self.landing = Landing::new(endpoint, control, &header);
        // The next message's slot comes to this processor while this one's payload is copied.
        self.end.prefetch_behind();
        Ok(self.landing.is_some())
    }

    /// Copies what is there of the message that is coming in; delivers and releases it when that is all.
    fn copy(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        // A transfer costs the peer, which copies what is sent from here, what it costs this side.
        let since = self.waiting.start_timing(self.tally.received);
        let landing = self.landing.as_mut().expect("a message is coming in");
        let total = landing.header().payload_bytes as usize;
        if self.entry.payload_bytes() < total {
            self.end.read_more(self.pool.bytes(), &mut self.entry)?;
        }
        let bytes = self.entry.payload_bytes();
        if bytes > total {
            return Err(Closed::Broken(Broken::Bounds));
        }
        let more = bytes.saturating_sub(landing.got());
        while landing.got() < bytes {
            let left = bytes - landing.got();
            let count = if landing.is_wanted() {
                copy_pieces(&self.pool, &self.entry, landing, endpoint, left)
            } else {
                left
            };
            landing.advance(count);
        }
        if more > 0 && landing.is_wanted() {
            self.waiting.end_timing(since, more);
        }
        if landing.got() < total {
            return Ok(more > 0);
        }
        if landing.header().trailer_words > 0 {
            landing.put_trailer(endpoint, |room| self.end.read_trailer(room));
        }
        self.tally.count_received(landing.header());
        self.end.release();
        self.landing.take().expect("it was there").deliver(endpoint);
        Ok(true)
    }
}

impl Neighbour for SharedLink {
    fn transport(&self) -> &'static str {
        "shm"
    }

    fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint) {
        self.waiting.push(message, endpoint, &mut self.tally);
    }

    fn is_under_way(&self) -> bool {
        !self.under_way.is_empty() || !self.waiting.queue.is_empty()
    }

    /// Whether the peer has everything of the oldest message that is under way, and frames of payload have waited for
    /// [`SILENCE_SPAN`] for it to release that: it stands still, and frames must not wait for it for ever. Messages
    /// without payload keep nothing but their slots, and a peer that only computes for long is not to be lost for them.
    /// Time without a look does not count: this node stood still itself then, and perhaps the whole host.
    fn is_silent(&mut self, endpoint: &Endpoint, now: Time) -> bool {
        let oldest = self.end.oldest();
        let ours = self.filling.as_ref().is_some_and(|part| part.number == oldest);
        let excused = ours || !self.keeps_frames(endpoint);
        self.silence.look(oldest, excused, now)
    }

    fn is_quiet(&self) -> bool {
        self.end.prefetch();
        let news = match self.half() {
            Some(entry) => self.end.has_more(entry),
            None => self.end.arrived() != Ok(0),
        };
        !news && self.waiting.queue.is_empty()
    }

    fn peer_processor(&self) -> Option<u32> {
        if self.end.peer_sleeps() { None } else { self.end.peer_processor() }
    }

    fn set_processor(&mut self, processor: u32) {
        self.end.set_processor(processor);
    }

    fn send(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        let mut moved = false;
        if !self.under_way.is_empty() {
            let released = self.end.reclaim()?;
            self.under_way.drain(..released).for_each(|message| endpoint.transmitted(message));
            moved = released > 0;
        }
        let mut posted = self.filling.is_some() && self.publish(endpoint);
        while self.end.room() > 0 && self.waiting.choose(endpoint, self.filling.is_none()) {
            let message = self.waiting.queue.pop_front().expect("one was chosen");
            posted |= self.post(message, endpoint);
        }
        if posted && self.end.must_wake() {
            self.bell.ring(&mut self.tally)?;
        }
        Ok(moved || posted)
    }

    fn receive(&mut self, endpoint: &mut Endpoint, peer: NodeId) -> Result<bool, Closed> {
        let mut moved = false;
        for _ in 0..SHARED_TURN_MESSAGES {
            if self.landing.is_none() && !self.begin(endpoint, peer)? {
                break;
            }
            moved |= self.copy(endpoint)?;
            if self.landing.is_some() {
                break; // still filling
            }
        }
        if moved && self.end.must_wake_for_room() {
            self.bell.ring(&mut self.tally)?;
        }
        Ok(moved)
    }

    fn before_sleep(&mut self) -> bool {
        let half = self.landing.is_some().then_some(&self.entry);
        self.end.before_sleep(!self.waiting.queue.is_empty(), half)
    }

    fn after_sleep(&mut self) {
        self.end.awake();
    }

    fn close(&mut self, endpoint: &mut Endpoint) {
        self.waiting.close(endpoint, &mut self.tally);
        self.tally.drops += self.under_way.len() as u64;
        self.under_way.drain(..).for_each(|message| endpoint.transmitted(message));
        if let Some(landing) = self.landing.take() {
            landing.abandon(endpoint);
        }
    }

    fn bell(&mut self) -> &mut Bell {
        &mut self.bell
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

impl AsFd for SharedLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// Where the frames lie in the pool; adjacent ones are one piece. False when they are of another pool, or too many.
fn name(frames: &[Frame], pool: &Frames, pieces: &mut Pieces) -> bool {
    for frame in frames {
        let (offset, len) = (frame.offset(), frame.len());
        let full = pieces.is_full();
        match pieces.last_mut() {
            _ if !frame.is_of(pool) => return false,
            Some(last) if last.offset + last.bytes == offset => last.bytes += len,
            _ if full => return false,
            _ => pieces.push(Piece { offset, bytes: len }),
        }
    }
    true
}

/// Copies the next bytes, at most `bytes`, from the peer's pieces into the frames of `landing`; how many.
fn copy_pieces(
    pool: &PeerRegion,
    entry: &Entry,
    landing: &Landing,
    endpoint: &mut Endpoint,
    bytes: usize,
) -> usize {
    let mut room: ArrayVec<_, LANDING_PIECES_MAX> = ArrayVec::new();
    landing.room(endpoint, &mut room);
    let mut room = room.iter_mut().map(|piece| &mut piece[..]);
    let mut target: &mut [u8] = &mut [];
    let (mut skip, mut left) = (landing.got(), bytes);
    for piece in entry.pieces() {
        let skipped = piece.bytes.min(skip);
        skip -= skipped;
        let mut at = piece.offset + skipped;
        let end = (at + piece.bytes - skipped).min(at + left);
        while at < end {
            if target.is_empty() {
                let Some(next) = room.next() else { return bytes - left };
                target = next;
            }
            let count = target.len().min(end - at);
            let (now, later) = target.split_at_mut(count);
            pool.copy_out(at, now).expect("the pieces were checked against the pool");
            (target, at, left) = (later, at + count, left - count);
        }
    }
    bytes - left
}
