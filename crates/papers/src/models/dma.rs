//! Bandwidth of single transfers over the host's bus (HPDC'97, Figure 5): each costs a constant beside its bytes.

use crate::constants::Constants;
use crate::model::{AxisKind, Measure, Model, Point, Value};

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "dma",
    axes: &[
        AxisKind::names("direction", "direction", &["read", "write"]),
        AxisKind::numbers("bytes", "size of a transfer", "B", 1.0, 1_048_576.0),
    ],
    measures: &[Measure::new("bandwidth", "bandwidth", "MB/s")],
    constants: &super::bound::CONSTANTS,
    run,
    ..Model::BARE
};

/// `n` bytes take `o + n / B`.
fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let rate = match point.name("direction") {
        "read" => constants.get("dma.read"),
        _ => constants.get("dma.write"),
    };
    let bytes = point.number("bytes");
    vec![Value::formula(bytes / (constants.get("dma.overhead") + bytes / rate))]
}
