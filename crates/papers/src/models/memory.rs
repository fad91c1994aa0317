//! Value of placement policies of network memory ([`crate::cooperative`]): cooperative caching in the shape of OSDI'94
//! and SOSP'95, by the tables that nodes use.

use crate::constants::{Constants, Wanted};
use crate::cooperative::{Counters, ROUNDS, Setting, Workload, sum};
use crate::model::{Allowed, AxisKind, Measure, Model, Point, Value};

const WORKLOADS: [&str; 6] =
    ["2 busy of 8", "half busy", "all over-committed", "one hog", "read-shared", "2 move on"];
const POLICIES: [&str; 5] = ["none", "random", "N-chance", "GMS", "best of two"];

/// Constants of its presets: the times of an access that finds its page in the node's own memory, in another's, on
/// disk.
const CONSTANTS: [Wanted; 3] =
    [("access.own", "us"), ("access.other", "us"), ("access.disk", "us")];

const fn names(name: &'static str, label: &'static str, of: &'static [&'static str]) -> AxisKind {
    AxisKind { name, label, unit: "", allowed: Allowed::Names(of) }
}

/// The row of [`super::ALL`].
pub const MODEL: Model = Model {
    name: "memory",
    axes: &[
        names("workload", "workload", &WORKLOADS),
        names("uses", "counted uses", &["off", "on"]),
        names("policy", "policy", &POLICIES),
    ],
    measures: &[
        Measure::new("time", "access", "us"),
        Measure {
            name: "best",
            label: "access, best placement that never changes",
            unit: "us",
            ignores: &["uses", "policy"],
        },
        Measure::new("own", "found in own memory", "%"),
        Measure::new("other", "found in another's memory", "%"),
        Measure::new("disk", "read from disk", "%"),
        Measure::new("sent", "evicted pages that another node took", "%"),
        Measure::new("refused", "offers that were refused", "%"),
        Measure::new("first", "access of the first node", "us"),
        Measure::new("rest", "access of the other busy nodes", "us"),
    ],
    constants: &CONSTANTS,
    run,
    ..Model::BARE
};

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

fn run(point: &Point, constants: &Constants) -> Vec<Value> {
    let times = CONSTANTS.map(|(key, _)| constants.get(key));
    let workload = Workload::named(point.name("workload")).expect("a name of the axis");
    let policy =
        crate::cooperative::POLICIES.iter().find(|(name, _)| *name == point.name("policy"));
    let (_, policy) = *policy.expect("a name of the axis");
    let setting = Setting { policy, counts_uses: point.name("uses") == "on" };
    let nodes = workload.run(setting, point.seed, point.simulate.unwrap_or(ROUNDS));
    let Counters { evicted, sent, refused, .. } = sum(&nodes);
    let shares = [percent(sent, evicted), percent(refused, sent + refused)];
    let mean = |nodes: &[Counters]| sum(nodes).mean(times);
    let best = Value { formula: workload.best_fixed(times), simulated: None };
    let parts = [mean(&nodes[..1]), mean(&nodes[1..])];
    let rest = sum(&nodes).percent().into_iter().chain(shares).chain(parts);
    [Value::simulated(mean(&nodes)), best].into_iter().chain(rest.map(Value::simulated)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axes_name_what_there_is() {
        let names = crate::cooperative::WORKLOADS.map(|workload| workload.name);
        assert_eq!(names, WORKLOADS);
        assert_eq!(crate::cooperative::POLICIES.map(|(name, _)| name), POLICIES);
    }
}
