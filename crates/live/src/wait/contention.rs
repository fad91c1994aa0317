//! Whether others use this processor: not known, but noticed now and then, and then believed for a while.

use std::time::Duration;
use wire::Time;

/// Contention noticed again within this many of its least spans is believed for twice as long.
const AGAIN_SPANS: u32 = 10;

/// Of one way to use it.
#[derive(Debug)]
pub struct Contention {
    until: Time,
    span: Duration,
    least: Duration,
    most: Duration,
}

impl Contention {
    /// Not noticed yet; each time it is believed for a span between these.
    pub fn new((least, most): (Duration, Duration)) -> Contention {
        Contention { until: Time::ZERO, span: least, least, most }
    }

    /// It was noticed.
    pub fn note(&mut self, now: Time) {
        let again = self.until > Time::ZERO && now < self.until + AGAIN_SPANS * self.least;
        let span = if again { 2 * self.span } else { self.least };
        self.span = span.min(self.most);
        self.until = now + self.span;
    }

    /// Whether it is believed.
    pub fn lasts(&self, now: Time) -> bool {
        now < self.until
    }
}
