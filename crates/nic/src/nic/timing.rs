//! Payloads that are timed, for [`Policy::Tuned`]: those that have the adapter to themselves from their first byte to
//! their last. One to the link ends when the link has all of it, one to the host when the host has.

use super::Nic;
use crate::command::Ticks;
use crate::config::Policy;
use crate::direction::Direction;
use endpoint::Pulse;
use endpoint::tuning::{Order, Tuner};

/// A payload on its way.
#[derive(Clone, Copy, Debug)]
struct Timed {
    number: u64,
    total: usize,
    minimum: usize,
    since: Ticks,
}

/// What is measured of one direction.
#[derive(Debug)]
pub(super) struct Timing {
    pub tuner: Tuner,
    timed: Option<Timed>,
}

/// Of payloads to the link, and of those to the host.
pub(super) fn both() -> [Timing; 2] {
    [Order::Turns, Order::Blocks].map(|order| Timing { tuner: Tuner::new(order), timed: None })
}

impl Timing {
    fn begin(&mut self, number: u64, total: usize, now: Ticks) {
        let timed = Timed { number, total, minimum: self.tuner.minimum(total), since: now };
        self.timed = (now > 0 && total > 0).then_some(timed);
    }

    fn end(&mut self, now: Ticks) {
        if let Some(Timed { total, minimum, since, .. }) = self.timed.take()
            && now > 0
        {
            self.tuner.learn(total, minimum, now - since);
        }
    }

    fn number(&self) -> Option<u64> {
        self.timed.map(|timed| timed.number)
    }

    pub fn discard(&mut self) {
        self.timed = None;
    }
}

impl Nic {
    /// What [`Policy::Tuned`] has measured of the payloads of one direction.
    pub fn tuner(&self, direction: Direction) -> &Tuner {
        &self.timing[direction as usize].tuner
    }

    /// Nothing is learnt from payloads that are on their way: their ends will be seen late.
    pub fn discard_samples(&mut self) {
        self.timing.iter_mut().for_each(Timing::discard);
    }

    /// The pulses of a payload of `total` bytes.
    pub(super) fn pulse(&self, direction: Direction, total: usize) -> Pulse {
        let given = self.config.policy.pulse(direction);
        let (came, went) = self.receiving.counts();
        let busy = match direction {
            Direction::ToNet => self.sending.has_more(),
            Direction::ToHost => came > went + 1,
        };
        given.unwrap_or_else(|| match busy {
            true => Pulse::Adaptive { minimum: self.config.buffer_bytes },
            false => self.tuner(direction).pulse(total),
        })
    }

    fn timing(&mut self, direction: Direction) -> &mut Timing {
        &mut self.timing[direction as usize]
    }

    /// The first bytes of a message's payload are about to be fetched.
    pub(super) fn begin_timing_to_net(&mut self, number: u64) {
        let alone = self.sending.leaving == number && !self.sending.has_more();
        if self.config.policy == Policy::Tuned && alone && self.with_link.is_empty() {
            let (total, now) = (self.sending.total(number), self.now);
            self.timing(Direction::ToNet).begin(number, total, now);
        }
    }

    /// Payload has left, or the link is done with a buffer.
    pub(super) fn end_timing_to_net(&mut self, now: Ticks) {
        let timing = &self.timing[Direction::ToNet as usize];
        let Some(number) = timing.number() else { return };
        let gone = self.sending.leaving > number;
        if self.sending.posted > number + 1 {
            self.timing(Direction::ToNet).discard();
        } else if gone && self.with_link.is_empty() {
            self.timing(Direction::ToNet).end(now);
        }
    }

    /// A packet has been taken on the adapter.
    pub(super) fn begin_timing_to_host(&mut self, total: usize) {
        let (came, went) = self.receiving.counts();
        if self.config.policy == Policy::Tuned && came == went + 1 {
            let now = self.now;
            self.timing(Direction::ToHost).begin(came, total, now);
        }
    }

    /// A message goes to the host.
    pub(super) fn end_timing_to_host(&mut self, now: Ticks) {
        let (came, went) = self.receiving.counts();
        let timing = self.timing(Direction::ToHost);
        match timing.number() {
            Some(number) if number == came && came == went => timing.end(now),
            _ => timing.discard(),
        }
    }
}
