//! Messages between two hosts of the adapter world: the firmware of `nic` on modelled hardware (`presets/`).
//!
//! Everything is simulated at every point; there is no closed form, and nothing to say about how much to simulate.

use super::{PRICING, architecture, traces};
use crate::constants::Constants;
use crate::model::{AxisKind, Measure, Model, Point, Value};
use crate::report::{Activity, Drawing, activity};
use nic::{Config, Direction, Engine, Interrupts, Kind, Policy, Record};
use sim::hardware::catalogue;
use sim::hardware::fabric::Link;
use sim::hardware::measure::{Station, burst, one_way, round_trip, stream};
use sim::queue::Picos;

const PAGE: usize = 8_192;

const fn pulse(name: &'static str, label: &'static str) -> AxisKind {
    AxisKind::numbers(name, label, "B", 1.0, 8_192.0)
}

const MACHINE: AxisKind =
    AxisKind::names("machine", "machine", &["as500", "piii450", "miata500", "pii300"]);
const POLICY: AxisKind = AxisKind::names(
    "policy",
    "policy",
    &["store and forward", "page pulses", "static", "eager", "fixed", "fragments", "functional"],
);
const SEND: AxisKind = pulse("send", "send threshold");
const RECEIVE: AxisKind = pulse("receive", "receive threshold");
const PAYLOAD: AxisKind = AxisKind::numbers("bytes", "payload", "B", 0.0, 8_192.0);
const AXES: &[AxisKind] = &[MACHINE, PRICING, POLICY, SEND, RECEIVE, PAYLOAD];

/// Half the mean of 50 round trips (HPDC'97 section 4). The row of [`super::ALL`].
pub const LATENCY: Model = Model {
    name: "latency",
    axes: AXES,
    measures: &[Measure::new("latency", "one-way latency", "us")],
    drawings: &[
        ("four-dmas", traces::four_dmas),
        ("cut-through", traces::cut_through),
        ("turn", traces::turn),
    ],
    run: latency,
    ..Model::BARE
};

/// A long stream of messages (HotI'99 Table 1). The row of [`super::ALL`].
pub const STREAM: Model = Model {
    name: "stream",
    axes: AXES,
    measures: &[
        Measure::new("latency", "one-way latency", "us"),
        Measure::new("bandwidth", "bandwidth", "MB/s"),
    ],
    drawings: &[("adaptive", traces::adaptive), ("architecture", architecture::architecture)],
    run: |point, constants| {
        let (station, bytes) = (station(point), point.number("bytes") as usize);
        let bandwidth = stream(&station, &station, link(), bytes) / 1e6;
        [latency(point, constants), vec![Value::simulated(bandwidth)]].concat()
    },
    ..Model::BARE
};

const NOTICE: &[&str] = &["polls", "is interrupted"];

/// A control message as request, a page as answer (HPDC'97 section 4.5). The row of [`super::ALL`].
pub const FETCH: Model = Model {
    name: "fetch",
    axes: &[
        AxisKind::names("client", "client", NOTICE),
        AxisKind::names("server", "server", NOTICE),
    ],
    measures: &[Measure::new("fetch", "fetch of a page", "us")],
    run: |point, _| {
        let stations = ["client", "server"].map(|side| {
            let mut station = build("as500", "constants", Policy::adaptive(512));
            if point.name(side) == "is interrupted" {
                station.nic.interrupts = Interrupts::Each;
            }
            station
        });
        let [client, server] = &stations;
        let fetch = round_trip([client, server], link(), 0, PAGE, Picos::ZERO);
        vec![Value::simulated(fetch)]
    },
    ..Model::BARE
};

/// A burst of pages and the adapters' logs of transfers (HotI'99 Figure 3). The row of [`super::ALL`].
pub const BURST: Model = Model {
    name: "burst",
    axes: &[MACHINE, pulse("minimum", "smallest pulse")],
    measures: &[
        Measure::new("sender", "sender moves whole payloads after", "ms"),
        Measure::new("receiver", "receiver moves whole payloads after", "ms"),
    ],
    drawings: &[("burst", |_| Drawing::Stripes(activity::stripes(&first_packets())))],
    run: |point, _| {
        let minimum = point.number("minimum") as usize;
        let [sender, receiver] = logs(point.name("machine"), minimum);
        let begun = sender.iter().map(|record| record.start).min().unwrap_or(0);
        let sends = whole_after(&sender, (Engine::NetSend, Direction::ToNet), begun);
        let receives = whole_after(&receiver, (Engine::HostDma, Direction::ToHost), begun);
        [sends, receives].map(|simulated| Value { formula: None, simulated }).to_vec()
    },
    ..Model::BARE
};

pub(super) fn link() -> Link {
    catalogue::link("myrinet").expect("a preset that is built in")
}

fn latency(point: &Point, _: &Constants) -> Vec<Value> {
    let bytes = point.number("bytes") as usize;
    vec![Value::simulated(one_way(&station(point), link(), bytes))]
}

/// The machine of a point with its adapter.
fn station(point: &Point) -> Station {
    let [send, receive] = ["send", "receive"].map(|axis| point.number(axis) as usize);
    let policy = match point.name("policy") {
        "store and forward" => Policy::StoreForward,
        // what HPDC'97 section 4.1 calls store and forward
        "page pulses" => Policy::Static { send: PAGE, receive: PAGE },
        "static" => Policy::Static { send, receive },
        "eager" => Policy::Adaptive { send, receive },
        "fragments" => Policy::Fragment { size: send },
        "functional" => Policy::Functional,
        _ => Policy::FixedAll { size: send },
    };
    build(point.name("machine"), point.name("pricing"), policy)
}

/// The AlphaStation's host reads control messages in the adapter's memory; on the others they are transfers.
pub(super) fn build(machine: &str, pricing: &str, policy: Policy) -> Station {
    let is_alpha = machine == "as500";
    let nic = Config { policy, control_to_host: !is_alpha, ..Config::new(PAGE) };
    let board = if is_alpha { "lanai4-256k" } else { "lanai4" };
    let board = catalogue::board(board).expect("a preset that is built in");
    let machine = catalogue::machine(machine).expect("the loader allows only machines that are");
    match pricing {
        "constants" => {
            Station::constants(machine, board, nic).expect("all of these machines have constants")
        }
        _ => {
            let firmware = catalogue::firmware("mcp-hoti").expect("a preset that is built in");
            Station::contention(machine, board, firmware, nic)
        }
    }
}

/// Packets of a burst; the figure shows the first of them.
const BURST_PACKETS: u64 = 64;
const SHOWN: u64 = 14;

/// Logs of both adapters.
fn logs(machine: &str, minimum: usize) -> [Vec<Record>; 2] {
    let mut station = build(machine, "constants", Policy::adaptive(minimum));
    station.nic.log = 10_000;
    let world = burst(&station, link(), PAGE, BURST_PACKETS);
    [0, 1].map(|adapter| world.nic(adapter).log().records().to_vec())
}

/// When the first of ten payloads in a row began that an engine moved whole; milliseconds after the burst began.
fn whole_after(records: &[Record], engine: (Engine, Direction), begun: u64) -> Option<f64> {
    let payload = |record: &&Record| {
        let transfer = record.transfer;
        (transfer.engine, transfer.direction, transfer.kind) == (engine.0, engine.1, Kind::Payload)
    };
    let pulses: Vec<&Record> = records.iter().filter(payload).collect();
    let whole = |ten: &&[&Record]| ten.iter().all(|record| record.transfer.bytes == PAGE);
    pulses.windows(10).find(whole).map(|ten| (ten[0].start - begun) as f64 / 1e9)
}

/// The first packets of the burst of the paper's figure, engine by engine.
pub fn first_packets() -> Vec<Activity> {
    first_packets_of(logs("pii300", 512), Picos(1))
}

/// The same of a sender's and a receiver's log of a burst, in ticks of this length.
pub fn first_packets_of(logs: [Vec<Record>; 2], tick: Picos) -> Vec<Activity> {
    let shown = |record: &Record| record.transfer.packet.number < SHOWN;
    let both = ["sender", "receiver"].into_iter().zip(logs);
    let log = both.flat_map(|(machine, records)| {
        let records = records.into_iter().filter(shown);
        records.map(move |record| activity_of(machine, &record, tick))
    });
    let mut log: Vec<Activity> = log.collect();
    log.sort_by_key(|entry| (place(&entry.engine), entry.start));
    log
}

/// The engines as HotI'99 calls them, in the order of a packet's way.
const LANES: [&str; 4] = ["hostTx", "netTx", "netRcv", "hostRcv"];

/// Where an engine is on a packet's way.
pub(super) fn place(engine: &str) -> Option<usize> {
    LANES.iter().position(|lane| *lane == engine)
}

/// A transfer of a log in ticks of this length.
pub(super) fn activity_of(machine: &str, record: &Record, tick: Picos) -> Activity {
    let transfer = record.transfer;
    let engine = match (transfer.engine, transfer.direction) {
        (Engine::HostDma, Direction::ToNet) => LANES[0],
        (Engine::NetSend, _) => LANES[1],
        (Engine::NetReceive, _) => LANES[2],
        (Engine::HostDma, Direction::ToHost) => LANES[3],
    };
    let kind = match transfer.kind {
        Kind::Control => "control message",
        Kind::Payload if transfer.bytes == transfer.packet.total => "whole payload",
        Kind::Payload => "part of a payload",
        Kind::Discard => "discarded",
    };
    Activity {
        machine: machine.to_string(),
        engine: engine.to_string(),
        kind: kind.to_string(),
        start: Picos(record.start * tick.0),
        end: Picos(record.end * tick.0),
        label: transfer.packet.number.to_string(),
        details: vec![("bytes", transfer.bytes.to_string())],
    }
}
