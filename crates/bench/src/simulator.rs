//! How fast the simulator is on one processor: its bare queue, the adapter models, and a thousand servers of today.

use crate::arguments;
use papers::speed::{Hold, adapters, cluster};
use serde::Serialize;
use sim::hardware::fetching::{Fetched, Plan};
use sim::queue::Picos;
use std::time::{Duration, Instant};
use terminal::progress;
use terminal::table::{Table, print_json};
use trapeze::machine_stat::process_memory_peak;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One measurement. The names are kept stable.
#[derive(Debug, Default, Serialize)]
struct Row {
    name: &'static str,
    op: String,
    events: u64,
    seconds: f64,
    events_per_s: f64,
    /// The rate that it must reach, where one is promised.
    needed_events_per_s: Option<f64>,
    fetches: Option<usize>,
    simulated_ms: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    /// The most memory that the program has had so far.
    memory_peak_bytes: Option<u64>,
}

/// `trapeze bench simulator`.
pub fn measure(arguments: &arguments::Simulator) -> Result<()> {
    let large = cluster()?;
    let fetches = arguments.millis * Picos::millis(1).0 / large.between.0;
    let large = Plan { nodes: usize::from(arguments.nodes), fetches, ..large };
    let cluster = format!("{} servers, each {fetches} fetches of 8 KiB", large.nodes);
    let rows = [
        hold(1_024, arguments.events, Some(10e6)),
        hold(65_536, arguments.events, None),
        fetching("adapters: 8 hosts with LANai-7".into(), &adapters(arguments.fetches)?, Some(3e6)),
        fetching(cluster, &large, None),
    ];
    match arguments.json {
        true => rows.iter().for_each(print_json),
        false => print!("{}", table(&rows).render()),
    }
    Ok(())
}

fn hold(pending: u32, events: u64, needed_events_per_s: Option<f64>) -> Row {
    let mut hold = Hold::new(pending);
    let begun = Instant::now();
    std::hint::black_box(hold.turn(events));
    let op = format!("queue: hold model, {pending} pending");
    Row { needed_events_per_s, ..row(op, events, begun.elapsed()) }
}

fn fetching(op: String, plan: &Plan, needed_events_per_s: Option<f64>) -> Row {
    let millis = |time: Picos| time.0 / Picos::millis(1).0;
    let bar = progress::steps(&op, millis(plan.expected()));
    let begun = Instant::now();
    let fetched: Fetched = plan.run_and_tell(|now| bar.set_position(millis(now)));
    let spent = begun.elapsed();
    bar.finish_and_clear();
    Row {
        needed_events_per_s,
        fetches: Some(fetched.times.len()),
        simulated_ms: Some(fetched.ended.0 as f64 / 1e9),
        p50_us: Some(fetched.percentile_us(50)),
        p99_us: Some(fetched.percentile_us(99)),
        ..row(op, fetched.handled, spent)
    }
}

fn row(op: String, events: u64, spent: Duration) -> Row {
    let (seconds, name) = (spent.as_secs_f64(), "simulator");
    let memory_peak_bytes = process_memory_peak(std::process::id());
    let events_per_s = events as f64 / seconds;
    Row { name, op, events, seconds, events_per_s, memory_peak_bytes, ..Row::default() }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "one processor",
        "events",
        "seconds",
        "M events/s",
        "needed",
        "fetches",
        "simulated ms",
        "p50 us",
        "p99 us",
        "peak MiB",
    ]);
    rows.iter().for_each(|row| table.row(&cells(row)));
    table
}

fn cells(row: &Row) -> Vec<String> {
    let one = |value: Option<f64>| value.map_or("-".to_string(), |value| format!("{value:.1}"));
    let mega = |value: f64| value / 1e6;
    vec![
        row.op.clone(),
        row.events.to_string(),
        format!("{:.2}", row.seconds),
        format!("{:.2}", mega(row.events_per_s)),
        one(row.needed_events_per_s.map(mega)),
        row.fetches.map_or("-".to_string(), |count| count.to_string()),
        one(row.simulated_ms),
        one(row.p50_us),
        one(row.p99_us),
        row.memory_peak_bytes.map_or("-".to_string(), |bytes| (bytes >> 20).to_string()),
    ]
}
