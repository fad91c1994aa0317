//! Lines about connections that came to nothing: few enough for any disk that a log is on.
//!
//! A port scanner makes a thousand such connections a second, and a server that is away fails by each of its
//! addresses in another way, each second. So of each kind from each address, or to each node, the first few are told,
//! of so many at a time; the others are counted, and told in one line a minute. A source that was quiet for a minute
//! begins anew.

use super::limits::{REFUSAL_LINES, REFUSAL_SOURCES_MAX, REFUSAL_SPAN};
use std::collections::BTreeMap;
use std::net::IpAddr;
use wire::{NodeId, Time};

/// The other end, and what kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A connection from this address, of a socket that has one.
    From(Option<IpAddr>, u8),
    /// A call of this node; the checksum of the reason.
    To(NodeId, u32),
}

/// Counts of one cause.
#[derive(Debug, Default)]
struct Source {
    lines: u32,
    /// Whether something of it was only counted since the last summary.
    counted: bool,
}

/// Connections that failed: lines told, and others only counted.
#[derive(Debug, Default)]
pub struct Refusals {
    sources: BTreeMap<Cause, Source>,
    count: u64,
    latest: String,
    /// When the count is told; `None` while there is nothing to count.
    due: Option<Time>,
}

impl Refusals {
    /// A connection was not made. Returns the line to tell, if any.
    pub fn note(&mut self, key: Cause, line: String, now: Time) -> Option<String> {
        self.due.get_or_insert(now + REFUSAL_SPAN);
        if self.sources.len() < REFUSAL_SOURCES_MAX || self.sources.contains_key(&key) {
            let source = self.sources.entry(key).or_default();
            source.lines += 1;
            if source.lines <= REFUSAL_LINES {
                return Some(line);
            }
            source.lines = REFUSAL_LINES;
            source.counted = true;
        }
        self.count += 1;
        self.latest = line;
        None
    }

    /// The summary of those that were only counted, when it is time.
    pub fn summary(&mut self, now: Time) -> Option<String> {
        self.due.filter(|due| *due <= now)?;
        self.sources.retain(|_, source| std::mem::take(&mut source.counted));
        self.due = (!self.sources.is_empty()).then(|| now + REFUSAL_SPAN);
        let (count, latest) = (std::mem::take(&mut self.count), &self.latest);
        (count > 0)
            .then(|| format!("{count} more like it in the last minute; the latest: {latest}"))
    }

    /// When the summary is due, if there is something to tell.
    pub fn deadline(&self) -> Option<Time> {
        self.due.filter(|_| self.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const KEY: u8 = 1;

    fn note(refusals: &mut Refusals, n: u32, kind: u8, now: Time) -> Option<String> {
        let address = IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + n));
        refusals.note(Cause::From(Some(address), kind), format!("refused {address}"), now)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_are_told_and_the_rest_counted_once_a_minute() {
        let mut refusals = Refusals::default();
        let mut told = Vec::new();
        for n in 0..1000 {
            assert_eq!(refusals.summary(at(n / 20)), None);
            told.extend(note(&mut refusals, 1, KEY, at(n / 20)));
        }
        assert_eq!(told.len(), REFUSAL_LINES as usize);
        assert_eq!(told[0], "refused 10.0.0.1");
        assert_eq!(refusals.deadline(), Some(at(60)));
        let summary = refusals.summary(at(60)).unwrap();
        assert!(summary.starts_with("997 more") && summary.contains("10.0.0.1"), "{summary}");
        assert_eq!((refusals.summary(at(61)), refusals.deadline()), (None, None));
        assert_eq!(note(&mut refusals, 1, KEY, at(70)), None, "it goes on");
        assert!(refusals.summary(at(120)).unwrap().starts_with("1 more"));
        assert_eq!(refusals.summary(at(180)), None, "a quiet minute");
        assert!(note(&mut refusals, 1, KEY, at(200)).is_some());
    }

    #[test]
    fn who_is_refused_for_another_reason_or_comes_from_elsewhere_is_told_too() {
        let mut refusals = Refusals::default();
        for _ in 0..100 {
            note(&mut refusals, 1, KEY, at(0));
        }
        assert!(note(&mut refusals, 1, KEY + 1, at(1)).is_some());
        assert!(note(&mut refusals, 2, KEY, at(1)).is_some());
        assert!(refusals.note(Cause::To(NodeId(1), 0), String::new(), at(1)).is_some());
    }

    #[test]
    fn no_stranger_makes_more_than_a_few_lines_a_minute() {
        let mut refusals = Refusals::default();
        let mut lines = 0;
        for n in 0..100_000 {
            lines += usize::from(note(&mut refusals, n % 500, n as u8, at(0)).is_some());
        }
        assert_eq!(lines, REFUSAL_SOURCES_MAX * REFUSAL_LINES as usize);
        assert_eq!(refusals.sources.len(), REFUSAL_SOURCES_MAX);
    }
}
