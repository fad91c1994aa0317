//! A connection over two adapters: the firmware of [`nic`] moves payloads through adapter memory.
//!
//! ```text
//!   frames ──► adapter memory ──► the peer's adapter memory ──► the peer's frames
//!      HostDma            NetSend, NetReceive            HostDma
//! ```
//!
//! Adapter memory is a memfd of its own on each side, the link is shared memory with the rings of
//! [`shm`](super::shm): a slot's pieces name bytes of the sender's adapter memory, and the receiving adapter fetches
//! them from there. The firmware says what each engine does and when; an engine is a copy, in slices as long as the
//! other side could go on with a part of it, so that a payload is in both adapters at the same time.
//!
//! Host frames are free when their bytes are on the adapter, before the peer has taken them. A message that is still
//! filling waits until it is whole.

mod host;
mod pair;
mod port;
mod shape;

pub use pair::pair;
pub use port::{Copied, Host, Port};
pub use shape::{AdapterShape, ShapeError, policy};

use super::bell::Bell;
use super::landing::Landing;
use super::limits::*;
use super::neighbour::{Neighbour, Silence};
use super::stream::{Closed, Outgoing, Tally};
use endpoint::tuning::Pulses;
use endpoint::{Endpoint, SendMessage};
use host::LinkHost;
use nic::HostFrame;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use wire::{NodeId, Time};

/// One connection.
#[derive(Debug)]
pub struct AdapterLink {
    bell: Bell,
    port: Port,
    waiting: Outgoing,
    /// Posted to the adapter, and their payload is not all there.
    sending: VecDeque<SendMessage>,
    /// The number of the first of these.
    first: u64,
    /// On the adapter, or coming in.
    landings: VecDeque<Landing>,
    frames: Vec<HostFrame>,
    silence: Silence,
    tally: Tally,
}

impl AdapterLink {
    /// After the handshake.
    pub fn new(socket: OwnedFd, port: Port) -> AdapterLink {
        AdapterLink {
            bell: Bell::new(socket),
            port,
            waiting: Outgoing::new(Pulses::Tuned, PULSE_BYTES_MIN),
            sending: VecDeque::with_capacity(SHARED_SLOTS),
            first: 0,
            landings: VecDeque::with_capacity(SHARED_SLOTS),
            frames: Vec::new(),
            silence: Silence::default(),
            tally: Tally::default(),
        }
    }

    fn post_waiting(&mut self, endpoint: &mut Endpoint) {
        while self.port.send_room() > 0 && self.waiting.choose(endpoint, false) {
            let message = self.waiting.queue.pop_front().expect("one was chosen");
            let entry = endpoint.taken(&message);
            self.tally.sent += 1;
            let bytes = entry.whole_bytes() + entry.control.trailer_bytes();
            self.tally.sent_bytes += bytes as u64;
            let frames = entry.payload.iter().map(|frame| (frame.offset(), frame.len()));
            host::join(frames, &mut self.frames);
            self.port.post(&entry.control, &self.frames);
            self.sending.push_back(message);
        }
    }

    /// Lets the firmware do what it can.
    fn run(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        let Self { port, sending, first, landings, tally, .. } = self;
        let moved = port.run(&mut LinkHost { endpoint, sending, first, landings, tally })?;
        if port.take_posted() && port.end().must_wake() {
            self.bell.ring(&mut self.tally)?;
        }
        Ok(moved)
    }

    /// Finds a place for the message that has come; whether there was one and a place.
    fn begin(&mut self, endpoint: &mut Endpoint, peer: NodeId) -> Result<bool, Closed> {
        let Some((control, header)) = self.port.next_head()? else { return Ok(false) };
        if header.source != peer {
            return Err(Closed::Forged(header.source));
        }
        let Some(landing) = Landing::new(endpoint, control, &header) else { return Ok(false) };
        host::join(landing.frames(endpoint), &mut self.frames);
        self.landings.push_back(landing);
        self.port.take_head(&header, &self.frames);
        Ok(true)
    }
}

impl Neighbour for AdapterLink {
    fn transport(&self) -> &'static str {
        "adapter"
    }

    fn push(&mut self, message: SendMessage, endpoint: &mut Endpoint) {
        self.waiting.push(message, endpoint, &mut self.tally);
    }

    fn is_under_way(&self) -> bool {
        self.port.is_under_way() || !self.sending.is_empty() || !self.waiting.queue.is_empty()
    }

    fn is_silent(&mut self, endpoint: &Endpoint, now: Time) -> bool {
        let keeps = |message: &SendMessage| !endpoint.taken(message).payload.is_empty();
        let mut behind = self.sending.iter().chain(&self.waiting.queue);
        let waits =
            self.port.payloads_under_way() > 0 || self.port.is_under_way() && behind.any(keeps);
        self.silence.look(self.port.end().oldest(), !waits, now)
    }

    fn is_quiet(&self) -> bool {
        self.port.is_quiet() && self.sending.is_empty() && self.waiting.queue.is_empty()
    }

    fn peer_processor(&self) -> Option<u32> {
        self.port.peer_processor()
    }

    fn set_processor(&mut self, processor: u32) {
        self.port.end().set_processor(processor);
    }

    fn send(&mut self, endpoint: &mut Endpoint) -> Result<bool, Closed> {
        let freed = self.port.reclaim()?;
        self.post_waiting(endpoint);
        let ran = !self.sending.is_empty() && self.run(endpoint)?;
        Ok(ran || freed)
    }

    fn receive(&mut self, endpoint: &mut Endpoint, peer: NodeId) -> Result<bool, Closed> {
        let mut moved = false;
        for _ in 0..SHARED_TURN_MESSAGES {
            if !self.port.is_coming() && !self.begin(endpoint, peer)? {
                break;
            }
            moved |= self.run(endpoint)?;
            if self.port.is_coming() {
                break; // the rest has not come
            }
        }
        let wakes = match moved {
            true => self.port.end().must_wake_for_room(),
            false => self.port.must_wake_for_taken(),
        };
        if wakes {
            self.bell.ring(&mut self.tally)?;
        }
        Ok(moved)
    }

    fn before_sleep(&mut self) -> bool {
        self.port.before_sleep(!self.sending.is_empty() || !self.waiting.queue.is_empty())
    }

    fn after_sleep(&mut self) {
        self.port.end().awake();
    }

    fn bell(&mut self) -> &mut Bell {
        &mut self.bell
    }

    fn tally(&self) -> Tally {
        self.tally
    }

    fn close(&mut self, endpoint: &mut Endpoint) {
        self.waiting.close(endpoint, &mut self.tally);
        self.tally.drops += self.sending.len() as u64;
        self.sending.drain(..).for_each(|message| endpoint.transmitted(message));
        self.landings.drain(..).for_each(|landing| landing.abandon(endpoint));
    }
}

impl AsFd for AdapterLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
