//! Least time of a page over two buses and a network, without any overhead (HPDC'97, section 4.4 and Figure 8).

use crate::constants::{Constants, Wanted};
use crate::model::{AxisKind, Measure, Model, Point, Value};

/// Constants of presets of the HPDC paper.
pub const CONSTANTS: [Wanted; 5] = [
    ("dma.overhead", "us"),
    ("dma.read", "MB/s"),
    ("dma.write", "MB/s"),
    ("bound.page", "B"),
    ("bound.network", "MB/s"),
];

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "bound",
    axes: &[
        AxisKind::numbers("ratio", "bus / network bandwidth", "", 0.01, 100.0),
        AxisKind::numbers("write", "write / read bandwidth", "", 0.01, 100.0),
    ],
    measures: &[
        Measure::new("store-and-forward", "store and forward", "us"),
        Measure::new("cut-through", "cut-through delivery", "us"),
        Measure::new("speed-up", "speed-up of cut-through delivery", ""),
        Measure::new("bus", "share of the bus in store and forward", "%"),
    ],
    constants: &CONSTANTS,
    run,
    ..Model::BARE
};

/// Store and forward adds the three ways up, cut-through delivery takes the slowest of them.
fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let (page, network) = (constants.get("bound.page"), constants.get("bound.network"));
    let read = network * point.number("ratio");
    let ways = [read, network, read * point.number("write")].map(|rate| page / rate);
    let sum: f64 = ways.iter().sum();
    let slowest = ways.into_iter().fold(0.0, f64::max);
    let share = (ways[0] + ways[2]) / sum * 100.0;
    [sum, slowest, sum / slowest, share].map(Value::formula).to_vec()
}
