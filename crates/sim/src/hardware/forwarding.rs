//! Forwarding hosts: the machines of the forwarding paper, and streams through them.

use super::agent::Forwarder;
use super::catalogue;
use super::fabric::Link;
use super::measure::{FILL, MEASURED, Station, sink};
use super::programs::{Arrivals, Role, Sink, Source};
use super::world::World;
use super::world::program::Copies;
use crate::queue::Picos;
use nic::{Balance, Buffers, CacheConfig, CacheCounters, Config, Direction, Engine, Policy};

/// Bytes of a page of the paper's machines.
pub const PAGE: usize = 4_096;
/// Buffers of the send segment (section 3.2: typically four).
pub const SEND_SEGMENT: usize = 4;

/// An end host of the paper: 733 MHz, a LANai-7, 64-bit 66 MHz PCI (section 4).
pub fn end_host(mtu: usize) -> Station {
    station("piii733", "lanai7", POOLS, mtu)
}

/// A host with another board, with a cache of `entries` pages or without one.
pub fn forwarder(machine: &str, board: &str, entries: Option<usize>, mtu: usize) -> Station {
    station(machine, board, entries.map_or(POOLS, cache), mtu)
}

/// Pages of the paper's caches (section 3.2).
pub fn entries(board: &str) -> usize {
    if board == "lanai4" { 128 } else { 384 }
}

const POOLS: Buffers = Buffers::Pools { send: 16, receive: 16 };

/// A cache without a segment for small payloads.
pub fn cache(entries: usize) -> Buffers {
    let shape =
        CacheConfig { entries, send_segment: SEND_SEGMENT, small_segment: 0, small_bytes: 0 };
    Buffers::Cache(shape)
}

/// Rings of 64 entries, as in the paper, but for a cache that could not hold both: half of it then. The firmware moves
/// what is there from 512 bytes on (HotI'99: `minpulse`).
fn station(machine: &str, board: &str, buffers: Buffers, mtu: usize) -> Station {
    let is_small = matches!(buffers, Buffers::Cache(cache) if cache.entries < 256);
    let ring = if is_small { 32 } else { 64 };
    let nic = Config {
        policy: Policy::adaptive(512),
        buffers,
        send_ring: ring,
        receive_ring: ring,
        mtu,
        ..Config::new(PAGE)
    };
    let machine = catalogue::machine(machine).expect("a preset that is built in");
    let firmware = catalogue::firmware("mcp-forward").expect("a preset that is built in");
    let board = catalogue::board(board).expect("a preset that is built in");
    Station::contention(machine, board, firmware, nic)
}

/// The link of the paper's measurements.
pub fn myrinet() -> Link {
    catalogue::link("myrinet").expect("a preset that is built in")
}

/// A forwarding host, for each of its adapters a host that sends and one that receives, all on one crossbar.
#[derive(Clone, Debug)]
pub struct Forwarding<'s> {
    /// The hosts that send and those that receive.
    pub ends: [&'s Station; 2],
    /// The forwarding host.
    pub middle: &'s Station,
    /// Links and crossbar.
    pub link: Link,
    /// Adapters of the forwarding host.
    pub adapters: usize,
    /// How the agent chooses a flow's backend.
    pub balance: Balance,
    /// Its statements about copies.
    pub copies: Copies,
    /// How long it holds each message in host memory before it sends it.
    pub holds: Picos,
    /// Flows from each sender; the agent keeps a flow at its backend.
    pub flows: u64,
    /// Messages from each sender that pass before the measurement, and that are measured.
    pub fill: u64,
    /// Measured.
    pub measured: u64,
}

/// Result of a forwarding host.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// Payload bytes a second that arrived, at all receivers.
    pub rate: f64,
    /// Messages that arrived, by receiver.
    pub arrived: Vec<u64>,
    /// Ages of those that were measured, sorted, in microseconds.
    pub ages: Vec<f64>,
    /// The forwarder's caches.
    pub cache: CacheCounters,
    /// Messages that it dropped.
    pub dropped: u64,
    /// Share of the forwarder's host processor that was at work.
    pub host_busy: f64,
    /// Fetches from the forwarder's memory, by size of the message: the number of transfers that began a message. Only
    /// with a log.
    pub fetched: Vec<(usize, u64)>,
    /// Events and fingerprint of the run.
    pub handled: u64,
    /// The hash of everything that happened.
    pub fingerprint: u64,
}

/// Longer than any of these runs.
const FOREVER: Picos = Picos::seconds(1_000);
/// Flows of different senders are this far apart.
const SENDER: u64 = 1 << 32;

impl<'s> Forwarding<'s> {
    /// One adapter, one sender and one receiver, the paper's measurement (section 4).
    pub fn new(end: &'s Station, middle: &'s Station, copies: Copies) -> Forwarding<'s> {
        Forwarding {
            ends: [end, end],
            middle,
            link: myrinet(),
            adapters: 1,
            balance: Balance::RoundRobin,
            copies,
            holds: Picos::ZERO,
            flows: SENDER,
            fill: FILL,
            measured: MEASURED,
        }
    }

    /// A stream of messages of `bytes`, as fast as it goes.
    pub fn stream(&self, bytes: usize) -> Forwarded {
        self.run(1, vec![bytes], &Arrivals::Stream)
    }

    /// Messages of these sizes, one after the other, due like this at each sender.
    pub fn run(&self, seed: u64, sizes: Vec<usize>, arrivals: &Arrivals) -> Forwarded {
        let mut world = self.world(seed, sizes, arrivals);
        world.run(FOREVER);
        let run = self.forwarded(&world);
        let sent = self.adapters as u64 * (self.fill + self.measured);
        let came = run.arrived.iter().sum::<u64>() + run.dropped;
        assert_eq!(came, sent, "seed {seed}, {} s: the world stands still", world.now());
        run
    }

    /// The same before it begins: the forwarding host is host 0.
    pub fn world(&self, seed: u64, sizes: Vec<usize>, arrivals: &Arrivals) -> World<Role> {
        // one crossbar for all: on smaller ones the streams would share a link between two
        let link = Link { ports: self.link.ports.max(3 * self.adapters as u64), ..self.link };
        let mut hosts = vec![self.middle.host_with(self.adapters)];
        let mut roles = vec![Role::Forwarder(self.agent())];
        for adapter in 0..self.adapters {
            hosts.push(self.ends[0].host());
            roles.push(Role::Source(self.source(adapter, sizes.clone(), arrivals)));
        }
        for _ in 0..self.adapters {
            hosts.push(self.ends[1].host());
            roles.push(Sink::timing(self.fill));
        }
        World::new(seed, link, &hosts, roles).expect("hosts that can be built")
    }

    fn source(&self, adapter: usize, sizes: Vec<usize>, arrivals: &Arrivals) -> Source {
        let count = self.fill + self.measured;
        let mut source = Source::new(adapter, sizes, count, arrivals.clone());
        (source.flows, source.first_flow) = (self.flows, SENDER * adapter as u64);
        source
    }

    fn agent(&self) -> Forwarder {
        let back: Vec<usize> = (2 * self.adapters..3 * self.adapters).collect();
        let service = self.middle.machine.host.service;
        let mut agent = Forwarder::new(self.balance, &back, self.copies, service);
        agent.holds = self.holds;
        agent
    }

    fn forwarded(&self, world: &World<Role>) -> Forwarded {
        let sinks = || (self.adapters + 1..=2 * self.adapters).map(|host| sink(world, host));
        let ages = sinks().flat_map(|sink| sink.ages.iter().flatten());
        let mut ages: Vec<f64> = ages.map(|age| age.0 as f64 / 1e6).collect();
        ages.sort_by(f64::total_cmp);
        let nics = || (0..self.adapters).map(|adapter| world.nic(adapter));
        Forwarded {
            rate: sinks().map(Sink::rate).sum(),
            arrived: sinks().map(|sink| sink.messages + self.fill - sink.skip).collect(),
            ages,
            cache: nics()
                .map(|nic| nic.cache().counters())
                .fold(CacheCounters::default(), |sum, more| sum + more),
            dropped: nics().map(|nic| nic.counters().dropped).sum(),
            host_busy: world.host_busy(0).0 as f64 / world.now().0 as f64,
            fetched: nics().map(fetched).fold(Vec::new(), merged),
            handled: world.handled(),
            fingerprint: world.fingerprint(),
        }
    }
}

/// Transfers from host memory that began a message's payload, by size of the message; of what the log kept.
fn fetched(nic: &nic::Nic) -> Vec<(usize, u64)> {
    let begins = |record: &&nic::Record| {
        let transfer = record.transfer;
        (transfer.engine, transfer.direction) == (Engine::HostDma, Direction::ToNet)
            && transfer.offset == 0
    };
    assert_eq!(
        nic.log().lost() * nic.log().records().len() as u64,
        0,
        "a log keeps all or nothing"
    );
    let records = nic.log().records().iter().filter(begins);
    records.map(|record| vec![(record.transfer.packet.total, 1)]).fold(Vec::new(), merged)
}

fn merged(mut counts: Vec<(usize, u64)>, more: Vec<(usize, u64)>) -> Vec<(usize, u64)> {
    for (size, count) in more {
        match counts.iter_mut().find(|(known, _)| *known == size) {
            Some((_, known)) => *known += count,
            None => counts.push((size, count)),
        }
    }
    counts
}

impl Forwarded {
    /// Mean age of the messages on arrival, in microseconds.
    pub fn age(&self) -> f64 {
        self.ages.iter().sum::<f64>() / self.ages.len().max(1) as f64
    }

    /// The age that so many percent of the messages have at most, in microseconds.
    pub fn age_at(&self, percent: f64) -> f64 {
        let last = self.ages.len().saturating_sub(1);
        let place = (self.ages.len() as f64 * percent / 100.0).ceil() as usize;
        self.ages.get(place.saturating_sub(1).min(last)).copied().unwrap_or_default()
    }

    /// Percent of the payloads' pages that left from the adapter's copy.
    pub fn hits(&self) -> f64 {
        let CacheCounters { hits, misses, fetches, .. } = self.cache;
        hits as f64 / (hits + misses + fetches).max(1) as f64 * 100.0
    }

    /// The same of messages of `bytes` only, of which `sent` were sent on; of a run with a log.
    pub fn hits_of(&self, bytes: usize, sent: u64) -> f64 {
        let fetched = self.fetched.iter().find(|(size, _)| *size == bytes);
        (1.0 - fetched.map_or(0, |(_, count)| *count) as f64 / sent as f64) * 100.0
    }
}
