//! Bandwidth of single transfers over the host's bus (HPDC'97, Figure 5): each costs a constant beside its bytes.

use crate::papers::constants::Constants;
use crate::papers::model::{Allowed, AxisKind, Measure, Model, Point, Value, refuse_nothing};

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "dma",
    axes: &[
        AxisKind {
            name: "direction",
            label: "direction",
            unit: "",
            allowed: Allowed::Names(&["read", "write"]),
        },
        AxisKind {
            name: "bytes",
            label: "size of a transfer",
            unit: "B",
            allowed: Allowed::Numbers(1.0, 1_048_576.0),
        },
    ],
    measures: &[Measure::new("bandwidth", "bandwidth", "MB/s")],
    constants: &super::bound::CONSTANTS,
    drawings: &[],
    refuse: refuse_nothing,
    run,
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
