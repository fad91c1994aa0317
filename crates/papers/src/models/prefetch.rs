//! The worth of hints and trends ([`sim::memory::ahead`]): PGMS (SIGMETRICS'98) and Leap (USENIX ATC'20) in
//! shape, by the service that nodes run.

use crate::constants::{Constants, Wanted};
use crate::model::{AxisKind, Measure, Model, Point, Value};
use sim::memory::ahead::{Known, Order, measure};
use std::time::Duration;

const ORDERS: [(&str, Order); 3] =
    [("sequential", Order::Sequential), ("every fifth", Order::Strided), ("random", Order::Random)];
const KNOWN: [(&str, Known); 4] = [
    ("nothing", Known::Nothing),
    ("trend", Known::Trend),
    ("hints", Known::Hints),
    ("wrong hints", Known::WrongHints),
];

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "prefetch",
    axes: &[
        AxisKind::names("order", "order", &["sequential", "every fifth", "random"]),
        AxisKind::names("known", "known", &["nothing", "trend", "hints", "wrong hints"]),
    ],
    measures: &[
        Measure::new("time", "wait for a page", "us"),
        Measure::new("own", "found in own memory", "%"),
        Measure::new("prefetched", "prefetched, of the accesses", "%"),
        Measure::new("wasted", "prefetched and not used, of the accesses", "%"),
        Measure::new("early", "read early by the idle node, of the accesses", "%"),
    ],
    constants: &CONSTANTS,
    run,
    ..Model::BARE
};

/// Constants of its presets: how long the program computes for each page.
const CONSTANTS: [Wanted; 1] = [("program.compute", "us")];

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> T {
    all.iter().find(|(known, _)| *known == name).expect("a name of the axis").1
}

fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let compute = Duration::from_nanos((constants.get("program.compute") * 1000.0) as u64);
    let (order, known) = (named(&ORDERS, point.name("order")), named(&KNOWN, point.name("known")));
    let measured = measure(order, known, compute, point.seed);
    let percent = |part: u64| part as f64 * 100.0 / measured.accesses as f64;
    let counters = measured.counters;
    let wasted = counters.prefetched - counters.prefetched_used;
    let parts = [counters.local_hits, counters.prefetched, wasted, counters.read_early];
    let time = measured.access.as_nanos() as f64 / 1000.0;
    [time].into_iter().chain(parts.map(percent)).map(Value::simulated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(order: Order, known: Known) -> f64 {
        measure(order, known, Duration::from_micros(50), 1).access.as_nanos() as f64
    }

    /// The promise of prefetch: a program that reads in an order waits for a third as long at most, and any other for
    /// at most 2 % longer, whatever it says.
    #[test]
    fn who_reads_in_an_order_gains_and_nobody_else_loses() {
        for order in [Order::Sequential, Order::Strided] {
            let nothing = wait(order, Known::Nothing);
            let gains = [Known::Trend, Known::Hints].map(|known| wait(order, known) / nothing);
            assert!(gains.iter().all(|gain| *gain <= 0.33), "{order:?}: {gains:?}");
        }
        let nothing = wait(Order::Random, Known::Nothing);
        let costs = [Known::Trend, Known::WrongHints].map(|k| wait(Order::Random, k) / nothing);
        assert!(costs.iter().all(|cost| *cost <= 1.02), "{costs:?}");
        assert!(wait(Order::Random, Known::Hints) / nothing <= 0.33);
    }
}
