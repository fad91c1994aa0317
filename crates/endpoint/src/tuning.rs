//! Pulses that tune themselves to the machine.
//!
//! A pulse costs a transfer and lets the next stage begin earlier. Which of the two counts more depends on the machine,
//! on what else runs there, and on the payload's length, so it is measured. [`Tuner`] is for payloads that are all
//! there, on their way through stages that work at the same time: it tries minima, payload by payload, and stays with
//! the one that was fastest. [`Estimate`] is for payloads that a slower source is still bringing: a pulse delays nobody
//! there, so it must only be worth what a transfer costs.
//!
//! It is not a clock and takes none: whoever moves the bytes brings samples, and decides which transfers it times.

use crate::limits::PAYLOAD_CLASSES;
use crate::pulse::Pulse;
use wire::limits::PAYLOAD_BYTES_MAX;

/// How pulses are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pulses {
    /// By what is measured here.
    #[default]
    Tuned,
    /// As a configuration says.
    Given(Pulse),
}

/// Minima that are tried for a payload: itself, a half of it, a quarter and so on.
pub const MINIMA: usize = 7;
/// Fewest bytes of a pulse that is tried, of the longest payload of a class: the papers' minimum, and on machines of
/// today less is copied in the time that its slot takes.
const MINIMUM_BYTES: usize = 512;
/// Samples of each minimum before the fastest is chosen. The least of them counts: the first ones touch cold memory,
/// and some are interrupted.
const FIRST_SAMPLES: u32 = 8;
/// Once chosen, one payload in so many tries another minimum.
const TRIES_EVERY: u32 = 32;
/// Share of a new sample in what a minimum takes.
const SHARE: f64 = 0.125;
/// A sample that is longer than usual counts as this multiple of the usual at most: a thread lost its processor.
const LONGER_MAX: f64 = 1.5;
/// What a shorter pulse must gain: transfers that gain nothing are only work.
const GAIN: f64 = 0.02;

/// The order of the first tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One try of each minimum in turns.
    #[default]
    Turns,
    /// All tries of one, then all of the next. The far end of a link that tries in turns: neither takes what the other
    /// tries for its own.
    Blocks,
}

/// What payloads of one class took with each minimum, in nanoseconds a byte.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    taken: [f64; MINIMA],
    samples: [u32; MINIMA],
    count: u32,
    /// Halvings of the next payload, which is asked for with each step of an adapter, and whether it is a first try.
    chosen: usize,
    learnt: bool,
}

impl Class {
    /// The minimum that is to be tried now, if too few payloads have tried one.
    fn untried(&self, minima: usize, order: Order) -> Option<usize> {
        let mut too_few = (0..minima).filter(|at| self.samples[*at] < FIRST_SAMPLES);
        match order {
            Order::Turns => too_few.min_by_key(|at| self.samples[*at]),
            Order::Blocks => too_few.next(),
        }
    }

    fn best(&self, minima: usize) -> usize {
        let better = |best: usize, at| match self.taken[at] < self.taken[best] * (1.0 - GAIN) {
            true => at,
            false => best,
        };
        (1..minima).fold(0, better)
    }

    fn choose(&self, minima: usize, order: Order) -> usize {
        if let Some(at) = self.untried(minima, order) {
            return at;
        }
        let best = self.best(minima);
        if !self.count.is_multiple_of(TRIES_EVERY) {
            return best;
        }
        // The neighbours in turns, and sometimes any.
        let turn = (self.count / TRIES_EVERY) as usize;
        match turn % 4 {
            0 => turn / 4 % minima,
            1 => best.saturating_sub(1),
            2 => (best + 1).min(minima - 1),
            _ => best,
        }
    }

    fn learn(&mut self, at: usize, taken: f64) {
        let usual = self.taken[at];
        self.taken[at] = match self.samples[at] {
            0 => taken,
            few if few < FIRST_SAMPLES => usual.min(taken),
            // Nothing makes a payload faster than it can be: the machine has changed.
            _ if taken < usual / LONGER_MAX => taken,
            _ => usual + SHARE * (taken.min(LONGER_MAX * usual) - usual),
        };
        self.samples[at] = self.samples[at].saturating_add(1);
        self.count = self.count.wrapping_add(1);
    }

    fn look(&mut self, minima: usize, order: Order) {
        self.chosen = self.choose(minima, order);
        self.learnt = self.untried(minima, order).is_none();
    }
}

/// Tries minima for payloads of each length and keeps the fastest.
#[derive(Clone, Debug)]
pub struct Tuner {
    /// For payloads of up to 2 to the power of the index.
    classes: [Class; PAYLOAD_CLASSES],
    order: Order,
}

impl Tuner {
    /// Nothing is measured.
    pub fn new(order: Order) -> Tuner {
        Tuner { classes: [Class::default(); PAYLOAD_CLASSES], order }
    }

    /// Fewest bytes of a payload of `total` that an idle sink takes, for the next one.
    pub fn minimum(&self, total: usize) -> usize {
        total >> self.classes[class(total)].chosen
    }

    /// The pulses of the next payload of `total` bytes.
    pub fn pulse(&self, total: usize) -> Pulse {
        Pulse::Adaptive { minimum: self.minimum(total) }
    }

    /// Whether payloads of this length are to be timed whenever they can be.
    pub fn is_learning(&self, total: usize) -> bool {
        !self.classes[class(total)].learnt
    }

    /// A payload of `total` bytes, with nothing else on its way, took `span` nanoseconds with this minimum.
    pub fn learn(&mut self, total: usize, minimum: usize, span: u64) {
        if total == 0 || span == 0 {
            return;
        }
        let (class, minima) = (class(total), minima(total));
        if let Some(at) = (0..minima).find(|at| total >> at == minimum) {
            self.classes[class].learn(at, span as f64 / total as f64);
            self.classes[class].look(minima, self.order);
        }
    }

    /// What was measured: each minimum that was tried for payloads of `total` bytes, and the nanoseconds one takes.
    pub fn measured(&self, total: usize) -> impl Iterator<Item = (usize, f64)> {
        let Class { taken, samples, .. } = self.classes[class(total)];
        let tried = (0..minima(total)).filter(move |at| samples[*at] > 0);
        tried.map(move |at| (total >> at, taken[at] * total as f64))
    }

    /// The minimum that is best by what was measured, when others are not being tried.
    pub fn best(&self, total: usize) -> usize {
        total >> self.classes[class(total)].best(minima(total))
    }
}

/// The class of a payload: the exponent of the power of two that it is not longer than.
fn class(total: usize) -> usize {
    let exponent = total.max(1).next_power_of_two().trailing_zeros() as usize;
    exponent.min(PAYLOAD_CLASSES - 1)
}

/// How many minima there are for payloads of the class of one of `total` bytes.
fn minima(total: usize) -> usize {
    let halvings = (1 + class(total)).saturating_sub(MINIMUM_BYTES.ilog2() as usize);
    halvings.clamp(1, MINIMA)
}

/// Cost of transfers over one stage, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of a transfer, however short.
    pub transfer: f64,
    /// Of each byte.
    pub byte: f64,
}

/// A transfer may cost this share of what its bytes cost.
const TRANSFER_SHARE: f64 = 0.125;

impl Cost {
    /// Of `bytes` in one transfer.
    pub fn of(self, bytes: usize) -> f64 {
        self.transfer + self.byte * bytes as f64
    }

    /// Fewest bytes that are worth a transfer: of so many it costs an eighth.
    pub fn worthwhile(self) -> usize {
        let bytes = self.transfer / (self.byte * TRANSFER_SHARE);
        if bytes < PAYLOAD_BYTES_MAX as f64 { bytes as usize } else { PAYLOAD_BYTES_MAX }
    }
}

/// Share of the weight of earlier samples that stays with each new one: some 60 samples count.
const STAYS: f64 = 1.0 - 1.0 / 64.0;
/// Below this share of the greatest spread that sizes can have, they say nothing about what part is a transfer's.
const SPREAD_MIN: f64 = 1e-3;

/// The cost of one stage from samples: a line by least squares of relative errors, so that a long transfer does not
/// drown what the short ones tell, and one that was interrupted hardly counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Estimate {
    weight: f64,
    bytes: f64,
    span: f64,
    bytes_bytes: f64,
    bytes_span: f64,
}

impl Estimate {
    /// A transfer of `bytes` took `span` nanoseconds. Nothing is learnt from one of no bytes or no time.
    pub fn add(&mut self, bytes: usize, span: u64) {
        if bytes == 0 || span == 0 {
            return;
        }
        let (bytes, span) = (bytes as f64, span as f64);
        let weight = 1.0 / (span * span);
        for (sum, new) in [
            (&mut self.weight, weight),
            (&mut self.bytes, weight * bytes),
            (&mut self.span, weight * span),
            (&mut self.bytes_bytes, weight * bytes * bytes),
            (&mut self.bytes_span, weight * bytes * span),
        ] {
            *sum = *sum * STAYS + new;
        }
    }

    /// The cost; `None` while transfers of one size alone were seen, which do not tell the two parts apart.
    pub fn cost(&self) -> Option<Cost> {
        let spread = self.weight * self.bytes_bytes - self.bytes * self.bytes;
        if spread <= SPREAD_MIN * self.weight * self.bytes_bytes {
            return None;
        }
        let byte = (self.weight * self.bytes_span - self.bytes * self.span) / spread;
        let transfer = (self.span - byte * self.bytes) / self.weight;
        Some(match (transfer > 0.0, byte > 0.0) {
            (_, false) => Cost { transfer: self.span / self.weight, byte: 0.0 },
            (false, true) => Cost { transfer: 0.0, byte: self.bytes_span / self.bytes_bytes },
            (true, true) => Cost { transfer, byte },
        })
    }
}

#[cfg(test)]
mod tests;
