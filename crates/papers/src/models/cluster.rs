//! A cluster of one's own: hosts of any preset that fetch blocks from each other ([`sim::hardware::fetching`]).

use crate::constants::Constants;
use crate::model::{AxisKind, Measure, Model, Point, Value};
use nic::{Buffers, Config, Policy};
use sim::hardware::fetching::Plan;
use sim::hardware::measure::Station;
use sim::queue::Picos;

/// Bytes of a page of host memory, and of a buffer on the adapter.
const PAGE: usize = 8_192;
/// Page buffers of an adapter each way, if its memory has room for them.
const BUFFERS: usize = 8;
/// Fetches of all hosts together, where the experiment does not say how many.
const FETCHES: u64 = 10_000;

const fn number(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    most: f64,
) -> AxisKind {
    AxisKind::numbers(name, label, unit, 1.0, most)
}

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "cluster",
    axes: &[
        AxisKind::presets("machine", "machine"),
        AxisKind::presets("board", "adapter"),
        AxisKind::presets("firmware", "firmware"),
        AxisKind::presets("link", "link"),
        number("pulse", "smallest pulse", "B", 8_192.0),
        AxisKind::numbers("nodes", "nodes", "", 2.0, 4_096.0),
        number("rate", "fetches/s of each node", "", 10_000_000.0),
        number("bytes", "block", "B", 8_192.0),
    ],
    measures: &[
        Measure::new("p50", "fetch, p50", "us"),
        Measure::new("p99", "fetch, p99", "us"),
        Measure::new("fetches", "fetches/s of each node, done", ""),
        Measure::new("bandwidth", "data of all nodes", "MB/s"),
        Measure::new("host", "hosts' processors at work", "%"),
        Measure::new("events", "events", ""),
    ],
    refuse,
    run,
    ..Model::BARE
};

/// More nodes than the crossbars have ports for.
fn refuse(point: &Point, constants: &Constants) -> Option<(&'static str, String)> {
    let name = point.name("link");
    let (nodes, most) = (point.number("nodes"), constants.link(name).adapters_max());
    let what = format!("{nodes} nodes on link `{name}`, whose crossbars join {most} at most");
    (nodes > most as f64).then_some(("nodes", what))
}

fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let plan = plan(point, constants);
    let fetched = plan.run();
    let all = fetched.per_second();
    [
        fetched.percentile_us(50),
        fetched.percentile_us(99),
        all / plan.nodes as f64,
        all * plan.bytes as f64 / 1e6,
        fetched.host_busy * 100.0,
        fetched.handled as f64,
    ]
    .map(Value::simulated)
    .to_vec()
}

/// The run of a point.
pub fn plan(point: &Point, constants: &Constants) -> Plan {
    let nodes = point.number("nodes") as usize;
    let fetches = point.simulate.unwrap_or(FETCHES).div_ceil(nodes as u64);
    Plan {
        station: station(point, constants),
        link: constants.link(point.name("link")),
        nodes,
        bytes: point.number("bytes") as usize,
        between: Picos((1e12 / point.number("rate")).round() as u64),
        fetches,
        seed: point.seed,
    }
}

/// The machine of a point that has these axes.
pub(super) fn station(point: &Point, constants: &Constants) -> Station {
    let machine = constants.machine(point.name("machine"));
    let board = constants.board(point.name("board"));
    let firmware = constants.firmware(point.name("firmware"));
    let room = (board.memory / (2 * PAGE as u64)).min(BUFFERS as u64) as usize;
    let nic = Config {
        policy: Policy::adaptive(point.number("pulse") as usize),
        buffers: Buffers::Pools { send: room, receive: room },
        ..Config::new(PAGE)
    };
    Station::contention(machine, board, firmware, nic)
}
