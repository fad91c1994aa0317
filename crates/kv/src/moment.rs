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
        // Truncated each by itself, the two would be a millisecond closer or further apart from one moment to the next,
        // and so would a date that is kept by the one and shown by the other.
        let apart_ms = (wall.since_epoch() - i128::from(now.0)).div_euclid(1_000_000);
        let now_ms = now.0 / 1_000_000;
        let wall_ms = u64::try_from(i128::from(now_ms) + apart_ms).unwrap_or_default();
        Moment { now_ms, wall_ms }
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

    /// When, if ever, in milliseconds of the clock that is never set.
    pub fn end_ms(self) -> Option<u64> {
        (self != Expiry::NEVER).then_some(self.0)
    }

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

    /// As Redis counts: so many units of `unit_ms` from now on, or since 1970, in the past if it is negative. `None`
    /// when the date, in milliseconds since 1970, is none of 64 bits.
    pub fn of_redis(count: i64, unit_ms: i64, absolute: bool, moment: Moment) -> Option<Expiry> {
        let base = if absolute { 0 } else { i64::try_from(moment.wall_ms).ok()? };
        let span = count.checked_mul(unit_ms)?;
        let date = span.checked_add(base)?;
        Some(match (u64::try_from(span), u64::try_from(date)) {
            (Ok(span @ 1..), _) if !absolute => Expiry::after_ms(span, moment),
            (_, Ok(date)) if absolute => Expiry::at_wall_ms(date, moment),
            _ => Expiry::PAST,
        })
    }

    /// Equal for equal ends.
    pub(crate) fn bits(self) -> u64 {
        self.0
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
    fn a_date_is_told_as_it_was_given_whatever_part_of_a_millisecond_has_passed() {
        let moment = |at_ns: u64| {
            let nanos = 700_000 + at_ns as u32;
            Moment::new(Time(5_000_000_300 + at_ns), Wall { seconds: 1_700_000_000, nanos })
        };
        let given = Expiry::at_wall_ms(1_700_000_009_123, moment(0));
        for at_ns in (0..3_000_000).step_by(100_000) {
            assert_eq!(given.wall_ms(moment(at_ns)), Some(1_700_000_009_123), "{at_ns}");
        }
    }

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

    #[test]
    fn redis_dates_have_63_bits() {
        let moment = Moment { now_ms: 5_000, wall_ms: 1_700_000_000_000 };
        let date = |count, unit, absolute| {
            Expiry::of_redis(count, unit, absolute, moment).map(|end| end.wall_ms(moment).unwrap())
        };
        let most = i64::MAX - 1_700_000_000_000;
        assert_eq!(date(most, 1, false), Some(i64::MAX as u64));
        assert_eq!(date(most + 1, 1, false), None);
        assert_eq!(date(i64::MAX, 1, true), Some(i64::MAX as u64));
        assert_eq!(date(i64::MAX / 1000, 1000, true), Some(i64::MAX as u64 / 1000 * 1000));
        assert_eq!(date(i64::MAX / 1000, 1000, false), None);
        assert_eq!(date(i64::MAX / 1000 + 1, 1000, true), None);
        assert_eq!(date(i64::MIN, 1000, false), None);
        for (count, absolute) in [(0, false), (-1, false), (i64::MIN, false), (-1, true), (5, true)]
        {
            let end = Expiry::of_redis(count, 1, absolute, moment).unwrap();
            assert!(end.has_passed(moment), "{count}");
        }
    }
}
