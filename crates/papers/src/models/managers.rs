//! Throughput of a name space on several file managers ([`crate::managers`]).
//!
//! Everything is simulated at every point; one manager is simulated beside each, which the others are compared with.

use super::cluster::station;
use crate::constants::{Constants, Wanted};
use crate::managers::{Bench, Kind, Measured, Setup};
use crate::model::{AxisKind, Measure, Model, Point, Value};
use sim::hardware::catalogue;
use sim::queue::Picos;
use sim::underlay::DiskSetup;

const KINDS: [(&str, Kind); 3] =
    [("creates", Kind::Creates), ("look-ups", Kind::Lookups), ("mixed", Kind::Mixed)];
/// Operations for each manager, where the experiment does not say how many.
const OPERATIONS: u64 = 4_000;

/// Constants of its presets: processor time of a manager for each message.
const CONSTANTS: [Wanted; 1] = [("manager.message", "us")];

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "managers",
    axes: &[
        AxisKind::presets("machine", "machine"),
        AxisKind::presets("board", "adapter"),
        AxisKind::presets("firmware", "firmware"),
        AxisKind::presets("link", "link"),
        AxisKind::numbers("pulse", "smallest pulse", "B", 1.0, 8_192.0),
        AxisKind::names("directories", "directories", &["many", "one hashed"]),
        AxisKind::names("operations", "operations", &["creates", "look-ups", "mixed"]),
        AxisKind::numbers("managers", "managers", "", 1.0, 16.0),
    ],
    measures: &[
        Measure::new("rate", "operations a second", ""),
        Measure::new("scaling", "of as many times one manager", "%"),
        Measure::new("processors", "managers' processors at work", "%"),
        Measure::new("busiest", "the busiest one", "%"),
    ],
    constants: &CONSTANTS,
    run,
    ..Model::BARE
};

fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let managers = point.number("managers") as u16;
    let all = measure(point, constants, managers);
    let one = if managers == 1 { all } else { measure(point, constants, 1) };
    let scaling = all.rate / (one.rate * f64::from(managers));
    let shares = [scaling, all.processors, all.busiest].map(|share| share * 100.0);
    [all.rate].into_iter().chain(shares).map(Value::simulated).collect()
}

fn measure(point: &Point, constants: &Constants, managers: u16) -> Measured {
    let disk = catalogue::disk("nvme").expect("a preset that is built in");
    let setup = Setup {
        station: station(point, constants),
        link: constants.link(point.name("link")),
        disk: DiskSetup { disk, count: 1, channels: 1 },
        managers,
        is_hashed: point.name("directories") == "one hashed",
        service: Picos((constants.get("manager.message") * 1e6).round() as u64),
        seed: point.seed,
    };
    let kind = KINDS.iter().find(|(name, _)| *name == point.name("operations"));
    let (_, kind) = *kind.expect("a name of the axis");
    let count = point.simulate.unwrap_or(OPERATIONS) * u64::from(managers);
    let mut bench = Bench::new(setup).expect("machines that fit one another");
    bench.run(kind, count)
}
