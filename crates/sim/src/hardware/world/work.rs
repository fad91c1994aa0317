//! Other work of a host: it computes for programs, and moves data of other devices over its bus.
//!
//! Computing gives way to messages after each slice, as to interrupts. Other devices, disk controllers, are on the bus
//! as one more user beside the adapters and programmed I/O, one transfer after the other.

use super::{Event, World};
use crate::hardware::bus::Direction;
use crate::hardware::flow::{Flow, Rate};
use crate::hardware::world::program::Program;
use crate::queue::Picos;
use std::collections::VecDeque;

/// Longest time that a host computes before it looks for messages: an interrupt comes in between.
const SLICE: Picos = Picos::micros(50);

/// A transfer of another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub bytes: u64,
    pub towards: Direction,
    /// Its rate on a free bus.
    pub alone: Rate,
    pub token: u32,
}

/// State of both for one host.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Time left and token of each computation; the first is under way.
    computing: VecDeque<(Picos, u32)>,
    /// Transfers; the first is under way.
    moves: VecDeque<Move>,
    flow: Flow,
    stamp: u32,
}

impl Work {
    pub fn push(&mut self, span: Picos, token: u32) {
        self.computing.push_back((span, token));
    }

    /// The next slice of what there is to compute.
    pub fn slice(&self) -> Option<Picos> {
        self.computing.front().map(|(left, _)| (*left).min(SLICE))
    }

    /// A slice is over: the token of what it ended.
    pub fn sliced(&mut self) -> Option<u32> {
        let (left, token) = self.computing.front_mut().expect("a computation is under way");
        *left = left.since(SLICE);
        let (left, token) = (*left, *token);
        (left == Picos::ZERO).then(|| {
            self.computing.pop_front();
            token
        })
    }
}

impl<P: Program> World<P> {
    /// A transfer of another device waits for its turn on the host's bus.
    pub(crate) fn queue_move(&mut self, host: u16, what: Move) {
        let moves = &mut self.hosts[usize::from(host)].work.moves;
        moves.push_back(what);
        if moves.len() == 1 {
            self.begin_move(host);
        }
    }

    fn begin_move(&mut self, host: u16) {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        let Some(next) = state.work.moves.front().copied() else { return };
        state.work.flow = Flow::new(now, next.bytes);
        state.users.join(next.towards);
        self.refresh_host(host);
    }

    /// Updates the rate of another device's transfer, when a user came to the bus or left it.
    pub(crate) fn set_move(&mut self, host: u16) {
        let now = self.now();
        let state = &mut self.hosts[usize::from(host)];
        let Some(Move { towards, alone, .. }) = state.work.moves.front().copied() else { return };
        let rate = state.users.share(&state.bus, towards, alone);
        if state.work.flow.set_rate(now, rate) {
            state.work.stamp += 1;
            let event = Event::Moved { host, stamp: state.work.stamp };
            let end = state.work.flow.end();
            self.at(end, event);
        }
    }

    pub(crate) fn moved(&mut self, host: u16, stamp: u32) -> Option<u64> {
        let state = &mut self.hosts[usize::from(host)];
        if state.work.stamp != stamp {
            return None;
        }
        state.work.stamp += 1;
        let Move { towards, token, .. } = state.work.moves.pop_front()?;
        state.users.leave(towards);
        if state.work.moves.is_empty() {
            self.refresh_host(host);
        } else {
            self.begin_move(host);
        }
        self.call(host, |program, cx| program.done(token, cx));
        Some(11)
    }

    /// Calls [`Program::timer`] of a host at `at`, which must not lie before what has happened.
    pub fn wake_host(&mut self, host: usize, at: Picos, token: u32) {
        self.at(at, Event::Timer { host: host as u16, token });
    }

    /// Slices are over: what they were for is done, or goes on.
    pub(crate) fn computed(&mut self, host: u16) {
        if let Some(token) = self.hosts[usize::from(host)].work.sliced() {
            self.call(host, |program, cx| program.done(token, cx));
        }
    }
}
