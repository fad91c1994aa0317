//! Now, by both clocks, and when an item ends.

use wire::{Time, Wall};

/// Seconds up to which memcached takes an expiry for a span, and beyond which for a date (protocol.txt, "Expiration
/// times").
const SPAN_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// Now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// By the clock that is never set, in milliseconds.
    pub now_ms: u64,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

impl Moment {
    /// By the world's two clocks.
    pub fn new(now: Time, wall: Wall) -> Moment {
        let seconds = u64::try_from(wall.seconds).unwrap_or_default();
        let wall_ms = seconds * 1000 + u64::from(wall.nanos / 1_000_000);
        Moment { now_ms: now.0 / 1_000_000, wall_ms }
    }
}

/// When an item ends, by the clock that is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(u64);

impl Expiry {
    /// It does not.
    pub const NEVER: Expiry = Expiry(u64::MAX);
    /// It has.
    pub const PAST: Expiry = Expiry(0);

    /// After so many milliseconds.
    pub fn after_ms(span_ms: u64, moment: Moment) -> Expiry {
        Expiry(moment.now_ms.saturating_add(span_ms).min(u64::MAX - 1))
    }

    /// At this many milliseconds since 1970.
    pub fn at_wall_ms(wall_ms: u64, moment: Moment) -> Expiry {
        match wall_ms.checked_sub(moment.wall_ms) {
            Some(span) if span > 0 => Expiry::after_ms(span, moment),
            _ => Expiry::PAST,
        }
    }

    /// As memcached counts: 0 never, negative at once, up to 30 days a span of seconds, else seconds since 1970.
    pub fn of_memcached(seconds: i64, moment: Moment) -> Expiry {
        match seconds {
            0 => Expiry::NEVER,
            ..0 => Expiry::PAST,
            1..=SPAN_SECONDS_MAX => Expiry::after_ms(seconds as u64 * 1000, moment),
            _ => Expiry::at_wall_ms((seconds as u64).saturating_mul(1000), moment),
        }
    }

    /// Whether it has passed.
    pub fn has_passed(self, moment: Moment) -> bool {
        self.0 <= moment.now_ms
    }

    /// Milliseconds that are left; `None` when it never ends.
    pub fn left_ms(self, moment: Moment) -> Option<u64> {
        (self != Expiry::NEVER).then(|| self.0.saturating_sub(moment.now_ms))
    }

    /// The date, in milliseconds since 1970; `None` when it never ends.
    pub fn wall_ms(self, moment: Moment) -> Option<u64> {
        self.left_ms(moment).map(|left| moment.wall_ms.saturating_add(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_counts_spans_and_dates() {
        let moment = Moment { now_ms: 5_000, wall_ms: 1_700_000_000_000 };
        let left = |seconds| Expiry::of_memcached(seconds, moment).left_ms(moment);
        assert_eq!(left(0), None);
        assert_eq!(left(-1), Some(0));
        assert_eq!(left(10), Some(10_000));
        assert_eq!(left(SPAN_SECONDS_MAX), Some(2_592_000_000));
        assert_eq!(left(1_700_000_007), Some(7_000));
        assert!(Expiry::of_memcached(SPAN_SECONDS_MAX + 1, moment).has_passed(moment));
        assert!(left(i64::MAX).is_some());
        assert!(!Expiry::of_memcached(i64::MAX, moment).has_passed(moment));
    }
}
