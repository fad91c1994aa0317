//! Measurements, each beside its baseline in the same run: `trapeze bench` and `trapeze forward`.
#![forbid(unsafe_code)]

#[macro_use]
extern crate trapeze;

pub mod adapters;
pub mod arguments;
pub mod blocks;
pub mod compare;
mod direct;
pub mod fetch;
pub mod files;
pub mod forward;
pub mod nfs;
pub mod pass;
pub mod peer;
pub mod place;
pub mod protocols;
pub mod pulse;
pub mod regions;
pub mod row;
pub mod scale;
pub mod simulator;
pub mod stream;
pub mod trees;
mod veth;

use arguments::Bench;
use fetch::Goal;
use pass::Pass;
use place::Target;
use serde_json::json;
use std::io;
use std::path::Path;
use terminal::table::{Table, print_json};
use trapeze::scratch::Processes;
use trapeze::size::Size;

/// Memory touched before a pass.
const TOUCH_BYTES: usize = 1 << 30;

/// `trapeze bench`.
pub fn run(what: &Bench) -> Result<(), Box<dyn std::error::Error>> {
    match what {
        Bench::Fetch(arguments) => fetch::measure(Goal::Latency, arguments)?,
        Bench::Rate(arguments) => fetch::measure(Goal::Rate, arguments)?,
        Bench::Stream(arguments) => stream::measure(arguments)?,
        Bench::Files(arguments) => files::measure(arguments)?,
        Bench::Pulse(arguments) => pulse::measure(arguments)?,
        Bench::Scale(arguments) => scale::measure(arguments)?,
        Bench::Memory(arguments) => regions::measure(arguments)?,
        Bench::Blocks(arguments) => blocks::measure(arguments)?,
        Bench::Protocols(arguments) => protocols::measure(arguments)?,
        Bench::Nfs(arguments) => nfs::measure(arguments)?,
        Bench::Simulator(arguments) => simulator::measure(arguments)?,
    }
    Ok(())
}

/// The speeds of a demonstration: a file written and read through the mount, a plain directory and a pass-through
/// mount. A table for people, or rows of JSON.
pub fn speeds(cluster: &mut Processes, plain: &Path, size: Size, json: bool) -> io::Result<String> {
    let mut places =
        [Target::plain(plain)?, Target::pass_through(plain)?, Target::cluster(cluster)];
    let mut rows = Vec::new();
    for place in &mut places {
        trapeze::machine_stat::touch_memory(TOUCH_BYTES);
        let file = place.path().join("speed");
        let written = stream::write(&file, size.0)?;
        place.forget_client()?;
        let read = stream::read(&file)?;
        std::fs::remove_file(&file)?;
        rows.push((place.kind().name(), written, read));
    }
    let mut table =
        Table::new(&["64 KiB calls", "write + fsync MB/s", "read MB/s", "CPU s/GiB write", "read"]);
    for (name, written, read) in rows {
        if json {
            print_json(&speed_row(name, &written, &read));
        }
        let rates = [written.mb_per_s(), read.mb_per_s()].map(|rate| format!("{rate:.0}"));
        let costs =
            [written.cpu_s_per_gib(), read.cpu_s_per_gib()].map(|cost| format!("{cost:.2}"));
        let cells: Vec<String> = [name.to_string()].into_iter().chain(rates).chain(costs).collect();
        table.row(&cells);
    }
    Ok(table.render())
}

fn speed_row(name: &str, written: &Pass, read: &Pass) -> serde_json::Value {
    json!({ "name": name, "write_mb_per_s": written.mb_per_s(), "read_mb_per_s": read.mb_per_s(),
        "write_cpu_s_per_gib": written.cpu_s_per_gib(), "read_cpu_s_per_gib": read.cpu_s_per_gib() })
}
