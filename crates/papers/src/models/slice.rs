//! Files striped over servers, by the services of this project on modelled machines (HotI'99 section 4).
//!
//! Everything is simulated at every point. Streams run until their rate stays, at least 96 MiB; `slice-whole` moves as
//! many megabytes as [simulate] says, from the beginning of a file to its end.

use crate::constants::Constants;
use crate::model::{AxisKind, Measure, Model, Point, Value};
use crate::slice::{Bench, Direction, Machines, Measured, Setup, Until};

/// Machines and servers as the figure's legend names them, and the what-if.
const CLUSTERS: [&str; 9] = [
    "two servers",
    "three servers",
    "four servers",
    "five servers",
    "six servers",
    "two IDE servers",
    "one server of today",
    "two servers of today",
    "four servers of today",
];

const SERVERS: AxisKind = AxisKind::names("servers", "servers", &CLUSTERS);
const DISKS: AxisKind = AxisKind::numbers("disks", "disks for each server", "", 1.0, 8.0);

const MEASURES: &[Measure] = &[
    Measure::new("total", "total disks", ""),
    Measure::new("bandwidth", "bandwidth", "MB/s"),
    Measure::new("processor", "client's processor", "%"),
    Measure::new("client-bus", "client's I/O bus in use", "%"),
    Measure::new("server-bus", "busiest server's I/O bus in use", "%"),
    Measure::new("media", "disks at work", "%"),
];

/// A large file read in sequence. The row of [`super::ALL`].
pub const READ: Model = Model {
    name: "slice-read",
    axes: &[SERVERS, DISKS],
    measures: MEASURES,
    run: |point, _| stream(point, Direction::Read),
    ..Model::BARE
};

/// A large file written in sequence. The row of [`super::ALL`].
pub const WRITE: Model = Model {
    name: "slice-write",
    axes: &[SERVERS, DISKS],
    measures: MEASURES,
    run: |point, _| stream(point, Direction::Write),
    ..Model::BARE
};

/// A file written and read from beginning to end. The row of [`super::ALL`].
pub const WHOLE_FILE: Model = Model {
    name: "slice-whole",
    axes: &[SERVERS, DISKS],
    measures: &[
        Measure::new("write", "writing", "MB/s"),
        Measure::new("write-processor", "client's processor, writing", "%"),
        Measure::new("read", "reading", "MB/s"),
        Measure::new("read-processor", "client's processor, reading", "%"),
    ],
    run: whole,
    ..Model::BARE
};

/// A page that the client needs and that a server has in memory. The row of [`super::ALL`].
pub const FAULT: Model = Model {
    name: "fault",
    axes: &[SERVERS],
    measures: &[Measure::new("fault", "8 KB from a server's memory", "us")],
    run: fault,
    ..Model::BARE
};

fn setup(point: &Point, disks: u16) -> Setup {
    let name = point.name("servers");
    let count = ["one", "two", "three", "four", "five", "six"];
    let first = name.split(' ').next().unwrap_or_default();
    let servers = 1 + count.iter().position(|word| *word == first).expect("a name of CLUSTERS");
    let machines = match name {
        name if name.ends_with("today") => Machines::today(),
        name if name.contains("IDE") => Machines::ide(),
        _ => Machines::scsi(),
    };
    let machines = machines.expect("presets that are built in and fit");
    Setup { machines, servers: servers as u16, disks, seed: point.seed }
}

fn stream(point: &Point, way: Direction) -> Vec<Value> {
    let setup = setup(point, point.number("disks") as u16);
    let total = f64::from(setup.servers * setup.disks);
    let mut bench = Bench::new(setup).expect("machines that fit one another");
    if way == Direction::Read {
        bench.prepare(Until::Steady.bytes_needed());
        bench.flush_caches();
    }
    let Measured { rate, processor, client_bus, server_bus, disks, .. } =
        bench.stream(way, Until::Steady);
    let shares = [processor, client_bus, server_bus, disks].map(|share| share * 100.0);
    let all = [rate / 1e6].into_iter().chain(shares).map(Value::simulated);
    [Value::formula(total)].into_iter().chain(all).collect()
}

/// Megabytes of a file by default.
const WHOLE: u64 = 64;

fn whole(point: &Point, _: &Constants) -> Vec<Value> {
    let setup = setup(point, point.number("disks") as u16);
    let until = Until::Bytes(point.simulate.unwrap_or(WHOLE) * 1_000_000);
    let mut bench = Bench::new(setup).expect("machines that fit one another");
    let written = bench.stream(Direction::Write, until);
    bench.prepare(until.bytes_needed());
    bench.flush_caches();
    let read = bench.stream(Direction::Read, until);
    let both = [written, read].map(|way| [way.rate / 1e6, way.processor * 100.0]);
    both.concat().into_iter().map(Value::simulated).collect()
}

/// Faults whose median is taken.
const FAULTS: usize = 51;
/// Bytes of the file: they fit the servers' memory.
const FILE_BYTES: u64 = 16 << 20;

fn fault(point: &Point, _: &Constants) -> Vec<Value> {
    let mut setup = setup(point, 2);
    setup.machines = setup.machines.without_calls();
    let mut bench = Bench::new(setup).expect("machines that fit one another");
    bench.prepare(FILE_BYTES);
    vec![Value::simulated(bench.fault(FAULTS).0 as f64 / 1e6)]
}
