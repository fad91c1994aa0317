//! A disk made slower on purpose: operations complete no earlier than a given rate and delay allow.
//!
//! The operation itself runs at once; only its completion is held back. So a throttled disk costs what the real one
//! does, and n of them on one machine behave as n disks of the given speed as long as the machine is faster.

use crate::limits::THROTTLE_BURST_MS;
use std::str::FromStr;
use std::time::Duration;
use wire::Time;

/// How slow, as in `rate=30M,delay=1ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttle {
    /// Bytes per second of reads and writes together; 0 is unlimited.
    pub bytes_per_second: u64,
    /// How much longer every operation takes; operations overlap in it.
    pub delay: Duration,
}

/// Why a throttle's text is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a throttle: write rate=BYTES[k|M|G] per second, delay=TIME[us|ms|s], or both with a comma"
)]
pub struct BadThrottle(String);

impl FromStr for Throttle {
    type Err = BadThrottle;

    fn from_str(text: &str) -> Result<Throttle, BadThrottle> {
        let bad = || BadThrottle(text.to_owned());
        let mut throttle = Throttle::default();
        for part in text.split(',') {
            match part.trim().split_once('=').ok_or_else(bad)? {
                ("rate", rate) => throttle.bytes_per_second = parse_rate(rate).ok_or_else(bad)?,
                ("delay", delay) => throttle.delay = parse_delay(delay).ok_or_else(bad)?,
                _ => return Err(bad()),
            }
        }
        Ok(throttle)
    }
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

/// Decimal units, as disks and the papers count them.
fn parse_rate(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let factor = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(factor).filter(|rate| *rate > 0)
}

fn parse_delay(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// Keeps account of what a throttled disk has promised.
#[derive(Debug)]
pub(super) struct Meter {
    throttle: Throttle,
    free_at: Time,
}

impl Meter {
    pub(super) fn new(throttle: Throttle) -> Meter {
        Meter { throttle, free_at: Time::ZERO }
    }

    /// When an operation of `bytes` that starts `now` may complete.
    pub(super) fn admit(&mut self, now: Time, bytes: usize) -> Time {
        let rate = self.throttle.bytes_per_second;
        if rate == 0 {
            return now + self.throttle.delay;
        }
        let burst = Duration::from_millis(THROTTLE_BURST_MS);
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(rate);
        let busy = Duration::from_nanos(nanos as u64);
        self.free_at = self.free_at.max(now - burst) + busy;
        self.free_at.max(now) + self.throttle.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttles_are_written_as_the_bench_takes_them() {
        let both = Throttle { bytes_per_second: 30_000_000, delay: Duration::from_millis(1) };
        assert_eq!("rate=30M,delay=1ms".parse(), Ok(both));
        assert_eq!(
            "delay=250us".parse(),
            Ok(Throttle { bytes_per_second: 0, delay: Duration::from_micros(250) })
        );
        for bad in
            ["", "rate", "rate=", "rate=0", "rate=3X", "speed=3", "delay=3", "rate=99999999999G"]
        {
            assert_eq!(bad.parse::<Throttle>(), Err(BadThrottle(bad.to_owned())));
        }
    }

    #[test]
    fn the_rate_holds_over_time_and_idleness_saves_little() {
        let mut meter = Meter::new("rate=1M".parse().unwrap());
        let start = Time(5_000_000_000);
        let last = (0..100).map(|_| meter.admit(start, 10_000)).last().unwrap();
        let burst = Duration::from_millis(THROTTLE_BURST_MS);
        assert_eq!(last, start + Duration::from_secs(1) - burst);
        let later = Time(60_000_000_000);
        let last = (0..100).map(|_| meter.admit(later, 10_000)).last().unwrap();
        assert_eq!(last, later + Duration::from_secs(1) - burst);
    }

    #[test]
    fn delays_overlap() {
        let mut meter = Meter::new("delay=1ms".parse().unwrap());
        let now = Time(7);
        assert_eq!(meter.admit(now, 1 << 20), Time(1_000_007));
        assert_eq!(meter.admit(now, 1 << 20), Time(1_000_007));
    }
}
