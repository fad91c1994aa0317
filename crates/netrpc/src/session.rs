//! The client's half of a session: its slots, its window, and the calls that wait for them.

use crate::limits::{RETRY, RETRY_MAX, SLOTS_CONTROL, SLOTS_MAX};
use std::collections::VecDeque;
use std::time::Duration;
use wire::{SessionEpoch, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// No session, and none was requested.
    Closed,
    /// Greeted; the welcome is on its way.
    Greeting,
    /// Calls may be sent.
    Open,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub state: State,
    pub epoch: SessionEpoch,
    sequences: Vec<u32>,
    free: Vec<u16>,
    granted: u16,
    pub window: u16,
    charged: u32,
    /// Indices of waiting call records, oldest first: control calls, then the others.
    waiting: [VecDeque<u16>; 2],
    pub greet_at: Time,
    greet_span: Duration,
    pub down_since: Option<Time>,
    /// An incarnation that the server took for a later one of ours; 0 when it knows none.
    pub over: u64,
}

impl Session {
    pub fn new() -> Session {
        Session {
            state: State::Closed,
            epoch: SessionEpoch(0),
            sequences: Vec::new(),
            free: Vec::new(),
            granted: 0,
            window: 0,
            charged: 0,
            waiting: Default::default(),
            greet_at: Time::NEVER,
            greet_span: RETRY,
            down_since: None,
            over: 0,
        }
    }

    /// The waiting calls of one lane: bulk that waits must not stand before control calls.
    pub fn lane(&mut self, control: bool) -> &mut VecDeque<u16> {
        &mut self.waiting[usize::from(!control)]
    }

    /// Whether no call waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Notes that a HELLO leaves now, and when the next one is due.
    pub fn greeted(&mut self, now: Time) {
        let first = self.state != State::Greeting;
        self.greet_span = if first { RETRY / 10 } else { (self.greet_span * 2).min(RETRY_MAX) };
        self.state = State::Greeting;
        self.greet_at = now + self.greet_span;
    }

    /// The server granted `slots` slots and `window` pages.
    pub fn open(&mut self, epoch: SessionEpoch, slots: u16, window: u16) {
        assert!(self.state == State::Greeting, "a session opens once for each greeting");
        assert!(epoch != SessionEpoch(0), "a session that is open has a name");
        assert!((1..=SLOTS_MAX).contains(&slots), "slots within what a client takes");
        (self.state, self.epoch, self.granted, self.window) = (State::Open, epoch, slots, window);
        self.sequences = vec![0; slots.into()];
        self.free = (0..slots).rev().collect();
        (self.charged, self.greet_at) = (0, Time::NEVER);
    }

    /// The server does not know the session any more.
    pub fn close(&mut self) {
        self.state = State::Closed;
        self.greet_at = Time::NEVER;
        self.sequences.clear();
        self.free.clear();
        self.charged = 0;
    }

    /// Whether a call with a payload of `pages` may start. A payload larger than the window may go alone.
    pub fn has_room(&self, pages: u32, control: bool) -> bool {
        let reserve = if control { 0 } else { SLOTS_CONTROL.min(self.granted / 2) };
        let fits = self.charged == 0 || self.charged + pages <= self.window.into();
        self.free.len() > reserve.into() && (pages == 0 || fits)
    }

    /// A slot and its next sequence number.
    pub fn take(&mut self, pages: u32) -> (u16, u32) {
        assert!(self.state == State::Open, "calls are sent in an open session");
        let slot = self.free.pop().expect("has_room was asked");
        let sequence = &mut self.sequences[slot as usize];
        *sequence = sequence.wrapping_add(1);
        self.charged += pages;
        (slot, *sequence)
    }

    /// A call has ended.
    pub fn give_back(&mut self, slot: u16, pages: u32) {
        assert!(usize::from(slot) < self.sequences.len(), "a slot of this session");
        assert!(self.free.len() < self.sequences.len(), "a slot comes back once");
        assert!(pages <= self.charged, "no more pages come back than were charged");
        self.free.push(slot);
        self.charged -= pages;
    }

    /// Calls in slots.
    pub fn under_way(&self) -> usize {
        self.sequences.len() - self.free.len()
    }
}
