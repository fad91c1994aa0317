//! A TCP stream over the adapter (HotI'99 section 4): netperf with pages remapped or copied.

use super::PRICING;
use crate::constants::Constants;
use crate::model::{AxisKind, Measure, Model, Point, Value};
use nic::{Buffers, Config, Policy};
use sim::hardware::catalogue::{self, Constants as Priced, Machine};
use sim::hardware::fabric::Link;
use sim::hardware::host::Handling;
use sim::hardware::measure::Station;
use sim::hardware::tcp::stream;
use sim::queue::Picos;

const WHO: &[&str] = &["adapter", "host"];
const BOARDS: &[&str] = &["lanai5", "lanai7"];
const DATA: &[&str] = &["remapped", "copied"];

/// Between two XP1000 workstations. The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "tcp",
    axes: &[
        AxisKind::names("board", "board", BOARDS),
        PRICING,
        AxisKind::names("data", "data", DATA),
        AxisKind::names("checksum", "checksum by", WHO),
        AxisKind::numbers("segment", "segment", "B", 1_024.0, 131_072.0),
    ],
    measures: &[
        Measure::new("bandwidth", "bandwidth", "Mb/s"),
        Measure::new("sender", "the sender's processor is busy", "%"),
        Measure::new("receiver", "the receiver's processor is busy", "%"),
    ],
    run,
    ..Model::BARE
};

fn run(point: &Point, _: &Constants) -> Vec<Value> {
    let machine = catalogue::machine("xp1000").expect("a preset that is built in");
    let station = station(machine, point.name("board"), point.name("pricing"));
    let handling = Handling {
        remaps: point.name("data") == "remapped",
        sums: point.name("checksum") == "host",
    };
    let link = catalogue::link("myrinet").expect("a preset that is built in");
    let bytes = point.number("segment") as usize;
    let streamed = stream(&station, link, bytes, handling).expect("a machine with TCP");
    let formula = formula(&station, link, bytes as u64, handling);
    let simulated = Some(streamed.rate * 8.0 / 1e6);
    let [sender, receiver] = streamed.busy.map(|share| Value::simulated(share * 100.0));
    vec![Value { formula, simulated }, sender, receiver]
}

/// Pages of 8 KB and segments of several of them, 16 buffers each way.
fn station(machine: Machine, board: &str, pricing: &str) -> Station {
    let buffers = Buffers::Pools { send: 16, receive: 16 };
    let nic = Config { policy: Policy::adaptive(512), buffers, ..Config::new(8_192) };
    let board = catalogue::board(board).expect("a preset that is built in");
    let firmware = catalogue::firmware("mcp-hoti").expect("a preset that is built in");
    match pricing {
        "constants" => Station::constants(machine, board, nic).expect("the machine has constants"),
        _ => Station::contention(machine, board, firmware, nic),
    }
}

/// Mb/s by the slower of the sending net engine, which moves a control message and pages, and the receiving processor.
/// None where the adapter's processor is priced by its instructions.
fn formula(station: &Station, link: Link, bytes: u64, handling: Handling) -> Option<f64> {
    let host = &station.machine.host;
    let (tcp, priced) = (host.tcp.as_ref()?, constants(station)?);
    let wire = link.rate.min(priced.wire).min(station.board.link);
    let transfers = 1 + bytes.div_ceil(station.nic.buffer_bytes as u64);
    let path = wire.time(nic::CONTROL as u64 + bytes) + Picos(priced.busy.0 * transfers);
    let time = host.tcp_time(tcp, bytes, handling, path);
    Some((bytes * 8) as f64 / (time.0 as f64 / 1e6))
}

fn constants(station: &Station) -> Option<Priced> {
    match station.pricing {
        sim::hardware::world::Pricing::Constants(constants) => Some(constants),
        sim::hardware::world::Pricing::Contention => None,
    }
}
