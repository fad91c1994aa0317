//! Counts of calls by procedure and client, and their latencies.

use crate::filter::Forwarded;
use crate::limits::CLIENTS_MAX;
use crate::{mount, nlm, nsm, portmap, v3};
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::Time;

/// Calls by how long they took: the first are those below 1 us, each next twice as long.
pub const LATENCY_BUCKETS: usize = 32;
/// Procedures that have no place of their own are counted at this one.
const OTHER: u32 = u32::MAX;

/// Calls of one procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// All.
    pub calls: u64,
    /// Calls that were answered with an error.
    pub errors: u64,
    /// How long all took together.
    pub took: Duration,
    /// By how long they took.
    pub latencies: [u64; LATENCY_BUCKETS],
}

impl Counted {
    fn add(&mut self, failed: bool, took: Duration) {
        self.calls += 1;
        self.errors += u64::from(failed);
        self.took += took;
        let micros = took.as_micros() as u64;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.latencies[bucket.min(LATENCY_BUCKETS - 1)] += 1;
    }

    /// The time within which so many of a thousand calls ended: the upper end of a bucket. `None`: there were none.
    pub fn quantile(&self, per_mille: u64) -> Option<Duration> {
        let wanted = (self.calls * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let reached = |(bucket, count): (usize, &u64)| {
            seen += count;
            (seen >= wanted).then(|| Duration::from_micros(1 << bucket))
        };
        self.latencies.iter().enumerate().find_map(reached)
    }
}

/// A client, by its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Connections now.
    pub connections: u32,
    /// Calls so far.
    pub calls: u64,
    /// When it was last heard of.
    pub seen: Time,
}

/// Name of a procedure for people, by program and number.
pub fn name(of: (u32, u32)) -> String {
    let of_nfs = |number| v3::Procedure::of(number).map(|it| format!("{it:?}").to_uppercase());
    let of_mount = |number| mount::Procedure::of(number).map(|it| format!("MOUNT {it:?}"));
    let of_nlm = |number| nlm::Procedure::of(number).map(|it| format!("NLM {it:?}"));
    let of_nsm = |number| nsm::Procedure::of(number).map(|it| format!("NSM {it:?}"));
    let found = match of {
        (v3::PROGRAM, number) => of_nfs(number),
        (mount::PROGRAM, number) => of_mount(number).map(|name| name.to_uppercase()),
        (nlm::PROGRAM, number) => of_nlm(number).map(|name| name.to_uppercase()),
        (nsm::PROGRAM, number) => of_nsm(number).map(|name| name.to_uppercase()),
        (portmap::PROGRAM, number) => Some(format!("PORTMAP {number}")),
        _ => None,
    };
    found.unwrap_or_else(|| "OTHER".to_string())
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    procedures: BTreeMap<(u32, u32), Counted>,
    clients: BTreeMap<IpAddr, Client>,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Bytes that went.
    pub sent_bytes: u64,
    /// Calls that had come before.
    pub duplicates: u64,
    /// Records that are no call that could be executed.
    pub refused: u64,
    /// Connections that were closed because their clients stood still.
    pub stalled: u64,
    /// Of a filter: calls of NFS that it executed itself.
    pub executed_here: u64,
    /// Of a filter: calls that managers executed.
    pub forwarded: Forwarded,
}

impl Counters {
    /// Procedures that were called, by program and number.
    pub fn procedures(&self) -> impl Iterator<Item = (&(u32, u32), &Counted)> {
        self.procedures.iter()
    }

    /// Clients, by address.
    pub fn clients(&self) -> impl Iterator<Item = (&IpAddr, &Client)> {
        self.clients.iter()
    }

    pub(super) fn connected(&mut self, client: IpAddr, now: Time) {
        let client = self.client(client);
        client.connections += 1;
        client.seen = now;
    }

    pub(super) fn disconnected(&mut self, client: IpAddr) {
        let client = self.client(client);
        client.connections = client.connections.saturating_sub(1);
    }

    pub(super) fn called(&mut self, client: IpAddr, now: Time) {
        let client = self.client(client);
        client.calls += 1;
        client.seen = now;
    }

    pub(super) fn ended(&mut self, of: (u32, u32), failed: bool, took: Duration) {
        let known = match of {
            (v3::PROGRAM, procedure) => v3::Procedure::of(procedure).is_some(),
            (mount::PROGRAM, procedure) => mount::Procedure::of(procedure).is_some(),
            (nlm::PROGRAM, procedure) => nlm::Procedure::of(procedure).is_some(),
            (nsm::PROGRAM, procedure) => nsm::Procedure::of(procedure).is_some(),
            (portmap::PROGRAM, procedure) => procedure <= portmap::rpcbind::GETSTAT,
            _ => false,
        };
        let of = if known { of } else { (OTHER, OTHER) };
        self.procedures.entry(of).or_default().add(failed, took);
    }

    fn client(&mut self, client: IpAddr) -> &mut Client {
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            let gone = self.clients.iter().filter(|(_, its)| its.connections == 0);
            let oldest = gone.min_by_key(|(_, its)| its.seen).map(|(address, _)| *address);
            // connections are bounded too, so that with none gone the map stays within both limits together
            if let Some(oldest) = oldest {
                self.clients.remove(&oldest);
            }
        }
        self.clients.entry(client).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    #[test]
    fn quantiles_are_the_upper_ends_of_their_buckets() {
        let mut counted = Counted::default();
        assert_eq!(counted.quantile(500), None);
        (0..99).for_each(|_| counted.add(false, Duration::from_micros(100)));
        counted.add(true, Duration::from_millis(50));
        let quantiles = [500, 990, 1000].map(|of| counted.quantile(of).unwrap().as_micros());
        assert_eq!(quantiles, [128, 128, 65_536]);
        assert_eq!((counted.calls, counted.errors), (100, 1));
    }

    #[test]
    fn procedures_have_the_names_of_the_specification() {
        let names = [(v3::PROGRAM, 17), (mount::PROGRAM, 4), (OTHER, OTHER)].map(name);
        assert_eq!(names, ["READDIRPLUS", "MOUNT UMNTALL", "OTHER"]);
    }

    #[test]
    fn clients_without_connections_make_room() {
        let mut counters = Counters::default();
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(number));
        counters.connected(address(0), Time::ZERO);
        for number in 1..CLIENTS_MAX as u32 + 10 {
            counters.called(address(number), Time(number.into()));
        }
        assert_eq!(counters.clients().count(), CLIENTS_MAX);
        assert_eq!(counters.clients().next().unwrap().0, &address(0), "it is connected");
    }

    #[test]
    fn what_has_no_place_is_counted_together() {
        let mut counters = Counters::default();
        for program in 0..50 {
            counters.ended((program, 1), true, Duration::ZERO);
        }
        assert_eq!(counters.procedures().count(), 1);
    }
}
