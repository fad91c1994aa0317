//! Forwarding hosts of the adapter world: the user-level agent on the paper's boards (forwarding paper, section 4), and
//! what the paper only asks about: latency, bursts, several adapters, packets of different sizes.
//!
//! Everything is simulated at every point.

use super::{CACHE, states, traces};
use crate::model::{AxisKind, Measure, Model, Point, Value};
use nic::{Buffers, CacheConfig, Lag};
use sim::hardware::catalogue;
use sim::hardware::fabric::Link;
use sim::hardware::forwarding::{
    Forwarded, Forwarding, PAGE, SEND_SEGMENT, cache, end_host, entries, forwarder, myrinet,
};
use sim::hardware::measure::{Station, stream};
use sim::hardware::programs::Arrivals;
use sim::hardware::world::program::Copies;
use sim::queue::Picos;
use sim::random::Random;

const BUS: AxisKind = AxisKind::names("bus", "bus", &["32-bit 33 MHz", "64-bit 66 MHz"]);
/// The last is a LANai-9 whose links have their own speed, 250 MB/s.
const BOARD: AxisKind =
    AxisKind::names("board", "adapter", &["LANai-4", "LANai-7", "LANai-9", "LANai-9/250"]);
const BYTES: AxisKind = AxisKind::numbers("bytes", "packet", "B", 64.0, 65_536.0);
const BANDWIDTH: Measure = Measure::new("bandwidth", "bandwidth", "MB/s");
const HITS: Measure = Measure::new("hits", "payloads sent from the cache", "%");
const MEAN: Measure = Measure::new("mean", "mean latency", "us");
const P99: Measure = Measure::new("p99", "99th percentile of the latency", "us");

/// Bandwidth by size of the packets (Figures 6 and 7). The row of [`super::ALL`].
pub const STREAMS: Model = Model {
    name: "forward",
    axes: &[
        BUS,
        AxisKind::names(
            "path",
            "path",
            &[
                "LANai-4, no cache",
                "LANai-4, cache",
                "LANai-7, no cache",
                "LANai-7, cache",
                "LANai-9, no cache",
                "LANai-9, cache",
                "LANai-7 to LANai-7",
                "LANai-4 to LANai-4",
                "LANai-4 to LANai-7 to LANai-4",
            ],
        ),
        BYTES,
    ],
    measures: &[BANDWIDTH, HITS],
    drawings: &[("steps", traces::forward_steps), ("states", states::states)],
    run: |point, _| {
        let bytes = point.number("bytes") as usize;
        let Some((board, cached)) = point.name("path").split_once(", ") else {
            let rate = between_ends(point.name("path"), point.name("bus"), bytes);
            return [Some(rate / 1e6), None].map(simulated).into();
        };
        let run = forwarded(point.name("bus"), board, cached == "cache", bytes);
        let hits = (cached == "cache").then(|| run.hits());
        [Some(run.rate / 1e6), hits].map(simulated).into()
    },
    ..Model::BARE
};

/// Gain of the cache, and a forwarder against others (section 4.1). The row of [`super::ALL`].
pub const GAINS: Model = Model {
    name: "forward-gains",
    axes: &[BUS, BOARD, BYTES],
    measures: &[
        Measure::new("gain", "bandwidth with the cache, without it = 1", ""),
        Measure::new("seven", "bandwidth with the cache, of a LANai-7 = 1", ""),
        Measure::new("without", "bandwidth without the cache, two LANai-7 ends = 1", ""),
        Measure::new("with", "bandwidth with the cache, two LANai-7 ends = 1", ""),
    ],
    run: |point, _| {
        let (bus, board) = (point.name("bus"), point.name("board"));
        let bytes = point.number("bytes") as usize;
        let rate = |board, cached| forwarded(bus, board, cached, bytes).rate;
        let [off, on, seven] = [rate(board, false), rate(board, true), rate("LANai-7", true)];
        let end = end_host(bytes.max(PAGE));
        let ends = stream(&end, &end, myrinet(), bytes);
        [on / off, on / seven, off / ends, on / ends].map(Value::simulated).into()
    },
    ..Model::BARE
};

/// Latency under a load that does not depend on what leaves. The row of [`super::ALL`].
pub const LOAD: Model = Model {
    name: "forward-load",
    axes: &[
        BUS,
        BOARD,
        CACHE,
        AxisKind::names("arrivals", "arrivals", &["paced", "Poisson"]),
        AxisKind::numbers("load", "offered load", "MB/s", 1.0, 500.0),
    ],
    measures: &[BANDWIDTH, MEAN, P99, HITS],
    run: |point, _| {
        let middle = middle(point.name("bus"), point.name("board"), cached(point), PAGE);
        let end = end_host(PAGE);
        let between = spacing(point.number("load"), PAGE);
        let arrivals = match point.name("arrivals") {
            "paced" => Arrivals::Bursts(1, between),
            _ => Arrivals::Poisson(Random::new(point.seed, "arrivals"), between),
        };
        let one = Forwarding::new(&end, &middle, copies(cached(point)));
        let run = Forwarding { measured: 2_000, ..one }.run(point.seed, vec![PAGE], &arrivals);
        let hits = cached(point).then(|| run.hits());
        let times = [Some(run.rate / 1e6), Some(run.age()), Some(run.age_at(99.0)), hits];
        times.map(simulated).into()
    },
    ..Model::BARE
};

/// Bursts against the size of the cache, by what the agent and its adapter do with them. The row of [`super::ALL`].
pub const BURSTS: Model = Model {
    name: "forward-bursts",
    axes: &[
        AxisKind::names("full", "in a burst", &["sender stopped", "agent holds", "adapter drops"]),
        AxisKind::numbers("burst", "burst", "", 1.0, 1_000.0),
        AxisKind::numbers("entries", "cache", "pages", 36.0, 384.0),
    ],
    measures: &[HITS, Measure::new("lost", "packets lost", "%"), MEAN, P99],
    run: |point, _| {
        let full = point.name("full");
        let mut middle = middle("32-bit 33 MHz", "LANai-7", true, PAGE);
        let entries = point.number("entries") as usize;
        middle.nic.buffers = cache(entries);
        set_rings(&mut middle, RING);
        if full == "adapter drops" {
            middle.nic.lag = Lag::Drop;
            set_rings(&mut middle, (entries - SEND_SEGMENT) / 2);
        }
        let holds = if full == "agent holds" { HOLDS } else { Picos::ZERO };
        let run = bursts(&middle, holds, point.number("burst") as u64, vec![PAGE]);
        let lost = run.dropped as f64 / BURST_PACKETS as f64 * 100.0;
        [run.hits(), lost, run.age(), run.age_at(99.0)].map(Value::simulated).into()
    },
    ..Model::BARE
};

/// Several adapters in one host (section 4.2). The row of [`super::ALL`].
pub const ADAPTERS: Model = Model {
    name: "forward-adapters",
    axes: &[
        BOARD,
        CACHE,
        AxisKind::names("host", "host", &["4 us", "20 us"]),
        BYTES,
        AxisKind::numbers("adapters", "adapters", "", 1.0, 8.0),
    ],
    measures: &[
        BANDWIDTH,
        Measure::new("packets", "packets", "1000/s"),
        Measure::new("host", "host processor at work", "%"),
        HITS,
    ],
    run: |point, _| {
        let bytes = point.number("bytes") as usize;
        let mut middle = middle("64-bit 66 MHz", point.name("board"), cached(point), bytes);
        if point.name("host") == "20 us" {
            slow(&mut middle);
        }
        let (end, link) = ends(point.name("board"), bytes);
        let one = Forwarding::new(&end, &middle, copies(cached(point)));
        let adapters = point.number("adapters") as usize;
        let run = Forwarding { adapters, link, fill: 100, measured: 500, ..one }.stream(bytes);
        let hits = cached(point).then(|| run.hits());
        let rates = [run.rate / 1e6, run.rate / bytes as f64 / 1e3, run.host_busy * 100.0];
        [Some(rates[0]), Some(rates[1]), Some(rates[2]), hits].map(simulated).into()
    },
    ..Model::BARE
};

const SMALL: usize = 64;

/// Small packets beside large ones, with buffers of their own or in the same circle (section 3.2). The row of
/// [`super::ALL`].
pub const MIX: Model = Model {
    name: "forward-mix",
    axes: &[
        AxisKind::names(
            "small",
            "small packets",
            &["in the same circle", "in buffers of their own"],
        ),
        AxisKind::numbers("share", "small packets for each large one", "", 0.0, 15.0),
    ],
    measures: &[
        Measure::new("large", "large payloads sent from the cache", "%"),
        Measure::new("small", "small payloads sent from the cache", "%"),
        Measure::new("saved", "payload that did not cross the bus again", "%"),
    ],
    run: |point, _| {
        let share = point.number("share") as usize;
        let mut middle = middle("32-bit 33 MHz", "LANai-7", true, PAGE);
        let apart = point.name("small") == "in buffers of their own";
        middle.nic.buffers = Buffers::Cache(mixed(apart));
        set_rings(&mut middle, RING);
        middle.nic.log = 100_000;
        let sizes: Vec<usize> = [vec![PAGE], vec![SMALL; share]].concat();
        let run = bursts(&middle, HOLDS, MIX_BURST, sizes);
        mix_values(&run, share as u64)
    },
    ..Model::BARE
};

/// Bytes a second between two ends of a kind, or through a LANai-7 with a cache between two of them.
fn between_ends(path: &str, bus: &str, bytes: usize) -> f64 {
    let ends = if path.starts_with("LANai-7") { "lanai7" } else { "lanai4" };
    let end = forwarder("piii733", ends, None, bytes.max(PAGE));
    if path.matches(" to ").count() == 1 {
        return stream(&end, &end, myrinet(), bytes);
    }
    through(&end, &middle(bus, "LANai-7", true, bytes), true, bytes).rate
}

/// A packet of pages or less through a forwarder, again and again.
fn forwarded(bus: &str, board: &str, cached: bool, bytes: usize) -> Forwarded {
    through(&end_host(bytes.max(PAGE)), &middle(bus, board, cached, bytes), cached, bytes)
}

fn through(end: &Station, middle: &Station, cached: bool, bytes: usize) -> Forwarded {
    let one = Forwarding::new(end, middle, copies(cached));
    let pages = bytes.div_ceil(PAGE) as u64;
    let (fill, measured) = (one.fill / pages, one.measured / pages);
    Forwarding { fill, measured, ..one }.stream(bytes)
}

fn cached(point: &Point) -> bool {
    point.name("cache") == "on"
}

fn copies(cached: bool) -> Copies {
    if cached { Copies::Use } else { Copies::Ignore }
}

fn middle(bus: &str, board: &str, cached: bool, bytes: usize) -> Station {
    let machine = if bus == "32-bit 33 MHz" { "piii433" } else { "piii733" };
    let board = preset(board);
    forwarder(machine, board, cached.then(|| entries(board)), bytes.max(PAGE))
}

fn preset(board: &str) -> &'static str {
    match board {
        "LANai-4" => "lanai4",
        "LANai-7" => "lanai7",
        "LANai-9" => "lanai9",
        _ => "lanai9-250",
    }
}

/// End hosts and the link that a board is measured with: links at 250 MB/s need ends that have them.
fn ends(board: &str, bytes: usize) -> (Station, Link) {
    if board != "LANai-9/250" {
        return (end_host(bytes.max(PAGE)), myrinet());
    }
    let end = forwarder("piii733", "lanai9-250", None, bytes.max(PAGE));
    (end, catalogue::link("myrinet-2000").expect("a preset that is built in"))
}

/// The time between packets of `bytes` at a load in MB/s.
fn spacing(load: f64, bytes: usize) -> Picos {
    Picos((bytes as f64 / load * 1e6) as u64)
}

/// The host of the paper's model: 50,000 packets a second (section 2.2).
fn slow(middle: &mut Station) {
    let host = &mut middle.machine.host;
    let stores = host.pio_write.time(host.control_touched);
    let else_ = [host.send, host.receive, host.attach, host.attach, stores];
    let known = else_.into_iter().fold(Picos::ZERO, |sum, time| sum + time);
    host.service = Picos::micros(20) - known;
}

/// Entries of the forwarder's rings in bursts, so that the cache is what differs.
const RING: usize = 16;
/// A backend that takes so long for a packet: what the forwarder waits for.
const BACKEND: Picos = Picos::micros(100);
/// Packets that the backend's ring holds: it soon stops the forwarder.
const BACKEND_RING: usize = 8;
/// Part of the time that the backend works: percent.
const BACKEND_BUSY: u64 = 73;
/// An agent that waits for a decision from elsewhere holds each packet for so long: longer than a burst takes to come.
const HOLDS: Picos = Picos::millis(12);
const BURST_PACKETS: u64 = 1_200;
const MIX_BURST: u64 = 240;

fn set_rings(station: &mut Station, entries: usize) {
    (station.nic.send_ring, station.nic.receive_ring) = (entries, entries);
}

/// Bursts of packets to a backend that is slower than they come, and does all of them before the next burst.
fn bursts(middle: &Station, holds: Picos, burst: u64, sizes: Vec<usize>) -> Forwarded {
    let (front, mut back) = (end_host(PAGE), end_host(PAGE));
    (back.machine.host.receive, back.nic.receive_ring) = (BACKEND, BACKEND_RING);
    let one = Forwarding::new(&front, middle, Copies::Use);
    let ends = [&front, &back];
    let all = Forwarding { ends, holds, fill: 0, measured: BURST_PACKETS, ..one };
    let period = Picos(BACKEND.0 * burst * 100 / BACKEND_BUSY);
    all.run(1, sizes, &Arrivals::Bursts(burst, period))
}

/// A cache for the mix: the smallest in which both rings find room, with or without a segment for small payloads.
fn mixed(apart: bool) -> CacheConfig {
    let small_segment = if apart { MIX_SMALL } else { 0 };
    CacheConfig {
        entries: MIX_ENTRIES,
        send_segment: SEND_SEGMENT,
        small_segment,
        small_bytes: SMALL,
    }
}

const MIX_ENTRIES: usize = 128;
const MIX_SMALL: usize = 16;

fn mix_values(run: &Forwarded, share: u64) -> Vec<Value> {
    let all = BURST_PACKETS;
    let large = all.div_ceil(share + 1);
    let small = all - large;
    let hits = run.hits_of(PAGE, large);
    let hits_small = (small > 0).then(|| run.hits_of(SMALL, small));
    let bytes = [(PAGE as u64 * large) as f64, (SMALL as u64 * small) as f64];
    let saved = bytes[0] * hits + bytes[1] * hits_small.unwrap_or_default();
    [Some(hits), hits_small, Some(saved / (bytes[0] + bytes[1]))].map(simulated).into()
}

fn simulated(value: Option<f64>) -> Value {
    Value { formula: None, simulated: value }
}
