//! Clusters whose machines lend memory, as `trapeze top` shows them.

use super::{Cluster, trapeze};
use serde_json::Value;
use std::process::Output;
use std::time::Duration;
use trapeze::config::Memory;
use trapeze::local::Shape;

/// A cluster of so many I/O servers that lend 32 MiB each.
pub fn lending(servers: u16) -> Cluster {
    Cluster::shaped(&shape_of(servers, Memory::default()))
}

/// Servers with this memory that lend 32 MiB each.
pub fn shape_of(servers: u16, memory: Memory) -> Shape {
    let lend = Some("32M".parse().unwrap());
    Shape { memory: Memory { lend, ..memory }, ..Shape::of(servers) }
}

/// The lines of a command with `--json`.
pub fn json_lines(told: &Output) -> Vec<Value> {
    let lines = told.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// Asks until `done` of the picture of `top`, for a minute or so.
pub fn until_top(target: &str, done: impl Fn(&[Value]) -> bool) {
    let mut last = None;
    for _ in 0..60 {
        let told = trapeze(&["top", "-c", target, "--count", "1", "--json"]);
        let rows = json_lines(&told);
        if done(&rows) {
            return;
        }
        last = Some(told);
        std::thread::sleep(Duration::from_millis(500));
    }
    panic!("not seen in time: {last:?}");
}

/// How many lenders a lender sees, once all of them agree.
pub fn members(row: &Value) -> Option<u64> {
    row["memory"]["members"].as_u64().filter(|_| row["memory"]["settled"] == true)
}

/// The same of each that says so.
pub fn seen(rows: &[Value]) -> Vec<u64> {
    rows.iter().filter_map(members).collect()
}
