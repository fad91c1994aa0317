//! `trapeze bench pulse`: payloads through two adapters on two processors, by size and by policy. No checksums, no
//! calls: what the pulses of the firmware cost and gain on this machine.
//!
//! All policies take turns in one run, size by size; medians over the rounds are shown. Adaptive pulses are held
//! against the best other policy of each size, which is chosen in the first half of the rounds and compared in the
//! second: the luckiest of seven would always look a little better than it is.

use super::adapters::{self, Station, echo, pin_near, send, side_by_side};
use super::pass::{histogram, median};
use crate::arguments;
use live::clock;
use live::link::adapter::{self, AdapterShape};
use nic::{Direction, Record};
use papers::models::adapter::{first_packets, first_packets_of};
use papers::report::{Activity, Drawing, Figure, activity};
use serde::Serialize;
use sim::queue::Picos;
use std::io;
use std::path::Path;
use terminal::table::{Table, print_json};
use trapeze::pulses::PulsePolicy;
use trapeze::size::Size;

/// 1 KiB to 1 MiB.
const SIZES: [usize; 11] = sizes();
/// The shortest payload for which adaptive pulses are held against the best others.
const TARGET_MIN: usize = 4 << 10;
/// Messages under way when bandwidth is measured.
const DEPTH: u64 = 16;
/// Messages before a measurement: adaptive pulses have tried all minima then ([`endpoint::tuning`]), and memory has
/// been touched.
const WARM: u64 = 64;
/// Bytes of one measurement, and its fewest and most messages: some milliseconds.
const BYTES: usize = 16 << 20;
const COUNTS: (usize, usize) = (24, 4000);
/// A policy gains when it takes this much less than the whole payload at once.
const GAIN: f64 = 0.95;
/// The burst that is drawn: payloads of four of the usual pulses.
const BURST: (u64, usize) = (32, 256 << 10);
const BURST_LOG: usize = 10_000;

const fn sizes() -> [usize; 11] {
    let mut sizes = [1 << 10; 11];
    let mut at = 1;
    while at < sizes.len() {
        sizes[at] = 2 * sizes[at - 1];
        at += 1;
    }
    sizes
}

/// Policies that are measured by default.
const USUAL: [&str; 8] =
    ["sf", "fixed:4K", "fixed:8K", "fixed:16K", "fixed:32K", "fixed:64K", "fixed:128K", "adaptive"];

/// One policy at one size: a row of `--json`.
#[derive(Clone, Debug, Serialize)]
struct Measured {
    name: &'static str,
    policy: String,
    bytes: usize,
    rounds: u64,
    latency_us: f64,
    mb_per_s: f64,
    #[serde(skip)]
    all: Rounds,
}

/// What each round measured.
#[derive(Clone, Debug, Default)]
struct Rounds {
    latency_us: Vec<f64>,
    mb_per_s: Vec<f64>,
}

/// What an adapter measured, and the pulses that follow from it: a row of `--json`.
#[derive(Clone, Debug, Serialize)]
struct Tuned {
    name: &'static str,
    direction: &'static str,
    bytes: usize,
    /// Pulses of at least so many bytes were the fastest.
    minimum: usize,
    tried: Vec<Tried>,
}

/// What one payload takes in pulses of at least so many bytes, in microseconds.
#[derive(Clone, Debug, Serialize)]
struct Tried {
    minimum: usize,
    us: f64,
}

/// How adaptive pulses do beside the best of the others at one size: a row of `--json`.
#[derive(Clone, Debug, Serialize)]
struct Target {
    name: &'static str,
    bytes: usize,
    best_latency: String,
    latency_ratio: f64,
    best_bandwidth: String,
    bandwidth_ratio: f64,
}

/// `trapeze bench pulse`.
pub fn measure(arguments: &arguments::Pulse) -> Result<(), Box<dyn std::error::Error>> {
    let far = pin_near(&arguments.cpus)?;
    let policies = match &arguments.policies[..] {
        [] => {
            USUAL.iter().map(|name| name.parse::<PulsePolicy>()).collect::<Result<Vec<_>, _>>()?
        }
        asked => asked.to_vec(),
    };
    let (measured, tuned) = run(&policies, far, arguments.rounds)?;
    let targets = SIZES.iter().filter(|size| **size >= TARGET_MIN);
    let targets: Vec<Target> = targets.filter_map(|size| target(&measured, *size)).collect();
    match arguments.json {
        true => {
            measured.iter().for_each(print_json);
            tuned.iter().for_each(print_json);
            targets.iter().for_each(print_json);
        }
        false => print(&policies, &measured, &tuned, &targets),
    }
    if let Some(dir) = &arguments.out {
        draw(dir, far)?;
    }
    Ok(())
}

fn run(
    policies: &[PulsePolicy],
    cpu: usize,
    rounds: u64,
) -> io::Result<(Vec<Measured>, Vec<Tuned>)> {
    let bar = terminal::progress::steps("pulsing", SIZES.len() as u64);
    let (mut measured, mut tuned) = (Vec::new(), Vec::new());
    for bytes in SIZES {
        let mut results = vec![Rounds::default(); policies.len()];
        let mut last = Vec::new();
        for _ in 0..rounds {
            for (policy, all) in policies.iter().zip(&mut results) {
                let (latency_us, link) = one_way_us(&shape(*policy, 0), bytes, cpu)?;
                all.latency_us.push(latency_us);
                all.mb_per_s.push(stream_mb_per_s(&shape(*policy, 0), bytes, cpu)?);
                last = if link.is_empty() { last } else { link };
            }
        }
        let row = |(policy, all): (&PulsePolicy, Rounds)| Measured {
            name: "pulse",
            policy: policy.to_string(),
            bytes,
            rounds,
            latency_us: median(all.latency_us.clone()),
            mb_per_s: median(all.mb_per_s.clone()),
            all,
        };
        measured.extend(policies.iter().zip(results).map(row));
        tuned.extend(last);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok((measured, tuned))
}

fn shape(PulsePolicy(pulses): PulsePolicy, log: usize) -> AdapterShape {
    AdapterShape { policy: adapter::policy(pulses), log, ..AdapterShape::default() }
}

/// What a station's adapter has measured in both directions; nothing when its pulses are given.
fn tuned(station: &Station, bytes: usize) -> Vec<Tuned> {
    let both = [(Direction::ToNet, "to the link"), (Direction::ToHost, "to the host")];
    let row = |(direction, name)| {
        let tuner = station.port.nic().tuner(direction);
        let tried = tuner.measured(bytes).map(|(minimum, ns)| Tried { minimum, us: ns / 1e3 });
        let (tried, minimum) = (tried.collect(), tuner.best(bytes));
        Tuned { name: "pulse-tuned", direction: name, bytes, minimum, tried }
    };
    both.into_iter().map(row).filter(|row| !row.tried.is_empty()).collect()
}

fn count(bytes: usize) -> u64 {
    (BYTES / bytes).clamp(COUNTS.0, COUNTS.1) as u64
}

/// Half of the median time there and back, in microseconds, and what the link measured.
fn one_way_us(shape: &AdapterShape, bytes: usize, cpu: usize) -> io::Result<(f64, Vec<Tuned>)> {
    let [mut near, far] = adapters::stations(shape, bytes, bytes)?;
    let ping = |alive: &dyn Fn() -> io::Result<()>| {
        let (mut times, count) = (histogram(), count(bytes));
        for number in 0..WARM + count {
            let start = clock::now();
            near.post();
            while near.host.delivered <= number {
                near.turn()?;
                alive()?;
            }
            if number >= WARM {
                times.saturating_record(clock::now().since(start).as_nanos() as u64);
            }
        }
        Ok((times.value_at_quantile(0.5) as f64 / 2e3, tuned(&near, bytes)))
    };
    Ok(side_by_side(cpu, |stop| echo(far, stop).map(drop), ping)?.0)
}

/// Bandwidth with [`DEPTH`] payloads under way, in 10^6 bytes per second.
fn stream_mb_per_s(shape: &AdapterShape, bytes: usize, cpu: usize) -> io::Result<f64> {
    let [mut near, far] = adapters::stations(shape, bytes, 0)?;
    let stream = |alive: &dyn Fn() -> io::Result<()>| {
        let mut send = |count| send(&mut near, count, DEPTH, alive, |station, _| station.post());
        send(WARM)?;
        let (start, count) = (clock::now(), count(bytes));
        send(count)?;
        let span = clock::now().since(start).as_secs_f64();
        Ok(count as f64 * bytes as f64 / 1e6 / span)
    };
    Ok(side_by_side(cpu, |stop| echo(far, stop).map(drop), stream)?.0)
}

/// Adaptive pulses beside the best of the others; `None` when only one of the two was measured.
fn target(measured: &[Measured], bytes: usize) -> Option<Target> {
    let at = |adaptive: bool| {
        let is = move |row: &&Measured| row.policy.starts_with("adaptive") == adaptive;
        measured.iter().filter(move |row| row.bytes == bytes).filter(is)
    };
    let latency = |row: &Measured, half: Half| median(half.of(&row.all.latency_us));
    let bandwidth = |row: &Measured, half: Half| median(half.of(&row.all.mb_per_s));
    let first = |of: &dyn Fn(&Measured, Half) -> f64, a: &Measured, b: &Measured| {
        of(a, Half::First).total_cmp(&of(b, Half::First))
    };
    let soonest = at(false).min_by(|a, b| first(&latency, a, b))?;
    let fastest = at(false).max_by(|a, b| first(&bandwidth, a, b))?;
    let ours = at(true).next()?;
    Some(Target {
        name: "pulse-target",
        bytes,
        latency_ratio: latency(ours, Half::Second) / latency(soonest, Half::Second),
        bandwidth_ratio: bandwidth(ours, Half::Second) / bandwidth(fastest, Half::Second),
        best_latency: soonest.policy.clone(),
        best_bandwidth: fastest.policy.clone(),
    })
}

/// Rounds in which the best is chosen, and those in which it is compared. A single round is both.
#[derive(Clone, Copy)]
enum Half {
    First,
    Second,
}

impl Half {
    fn of(self, rounds: &[f64]) -> Vec<f64> {
        let middle = rounds.len() / 2;
        match self {
            Half::First => rounds[..middle.max(1)].to_vec(),
            Half::Second => rounds[middle..].to_vec(),
        }
    }
}

/// The shortest payload from which on some policy gains over the whole payload at once.
fn gains_from(measured: &[Measured]) -> Option<usize> {
    let stored = |bytes| measured.iter().find(|row| row.policy == "sf" && row.bytes == bytes);
    let gains = |bytes: &usize| {
        let stored = stored(*bytes).map_or(0.0, |row| row.latency_us);
        let others = measured.iter().filter(|row| row.bytes == *bytes && row.policy != "sf");
        others.map(|row| row.latency_us).fold(f64::MAX, f64::min) < GAIN * stored
    };
    SIZES.into_iter().find(gains)
}

fn print(policies: &[PulsePolicy], measured: &[Measured], tuned: &[Tuned], targets: &[Target]) {
    let tables: [(&str, fn(&Measured) -> f64); 2] =
        [("one way, us", |row| row.latency_us), ("16 under way, MB/s", |row| row.mb_per_s)];
    for (title, figure) in tables {
        let names: Vec<String> = policies.iter().map(|policy| policy.to_string()).collect();
        let names = names.iter().map(String::as_str);
        let headings: Vec<&str> = std::iter::once(title).chain(names).collect();
        let mut table = Table::new(&headings);
        for bytes in SIZES {
            let figures = measured.iter().filter(|row| row.bytes == bytes).map(figure);
            let digits = if title.ends_with("us") { 2 } else { 0 };
            let cells = figures.map(|value| format!("{value:.digits$}"));
            let row: Vec<String> =
                std::iter::once(Size(bytes as u64).to_string()).chain(cells).collect();
            table.row(&row);
        }
        println!("{}", table.render());
    }
    print_tuned(tuned);
    if let Some(bytes) = gains_from(measured) {
        println!("the shortest payload that gains from pulses: {}", Size(bytes as u64));
    } else if policies.iter().any(|policy| policy.to_string() == "sf") {
        println!("no payload gains from pulses");
    }
    for target in targets {
        println!(
            "{}: adaptive takes {:.2} x the time of {}, and has {:.2} x the bandwidth of {}",
            Size(target.bytes as u64),
            target.latency_ratio,
            target.best_latency,
            target.bandwidth_ratio,
            target.best_bandwidth
        );
    }
}

fn print_tuned(tuned: &[Tuned]) {
    if tuned.is_empty() {
        return;
    }
    let mut table =
        Table::new(&["measured", "", "pulses from", "us in pulses of at least so much"]);
    let size = |bytes: usize| Size(bytes as u64).to_string();
    for row in tuned {
        let tried = row.tried.iter();
        let tried = tried.map(|one| format!("{}: {:.2}", size(one.minimum), one.us));
        let tried: Vec<String> = tried.collect();
        let direction = row.direction.to_string();
        table.row(&[size(row.bytes), direction, size(row.minimum), tried.join("  ")]);
    }
    println!("{}", table.render());
}

/// HotI'99 Figure 3 from this machine and from the model, a file each.
fn draw(dir: &Path, cpu: usize) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let (live, whole) = (burst(cpu)?, Size(BURST.1 as u64));
    let figures = [
        ("pulse-burst-live", format!("A burst of {whole} payloads on this machine"), live),
        ("pulse-burst-simulated", "A burst of 8 KiB on modelled hardware".into(), first_packets()),
    ];
    for (name, title, log) in figures {
        let sentence = "What each engine of both adapters did; pulses grow while packets wait \
                        (HotI'99 Figure 3)."
            .to_string();
        let drawing = Drawing::Stripes(activity::stripes(&log));
        let figure = Figure { name: name.to_string(), title, sentence, drawing };
        let path = dir.join(format!("{name}.svg"));
        std::fs::write(&path, figure.svg())?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The logs of both adapters of a burst, in nanoseconds of one clock.
fn burst(cpu: usize) -> io::Result<Vec<Activity>> {
    let (packets, bytes) = BURST;
    let shape = shape(PulsePolicy::default(), BURST_LOG);
    let [mut near, far] = adapters::stations(&shape, bytes, 0)?;
    // Once before: both sides run then, and their memory has been used.
    let all = |alive: &dyn Fn() -> io::Result<()>| {
        let mut send = || send(&mut near, packets, DEPTH, alive, |station, _| station.post());
        send()?;
        send()?;
        Ok(near)
    };
    let (near, far) = side_by_side(cpu, |stop| echo(far, stop), all)?;
    // Answers, which go the other way, have no payload.
    let payloads = |station: &Station| -> Vec<Record> {
        let records = station.port.nic().log().records().iter().copied();
        let records = records.filter(|record| record.transfer.packet.total > 0);
        records.filter_map(|record| later(record, packets)).collect()
    };
    let nanosecond = Picos(1000);
    Ok(first_packets_of([payloads(&near), payloads(&far)], nanosecond))
}

/// A transfer of the messages behind the first `before`, numbered from there.
fn later(mut record: Record, before: u64) -> Option<Record> {
    record.transfer.packet.number = record.transfer.packet.number.checked_sub(before)?;
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_policies_are_policies() {
        assert!(USUAL.iter().all(|name| name.parse::<PulsePolicy>().is_ok()));
    }

    fn row(policy: &str, latency_us: &[f64], mb_per_s: &[f64]) -> Measured {
        let all = Rounds { latency_us: latency_us.to_vec(), mb_per_s: mb_per_s.to_vec() };
        Measured {
            name: "pulse",
            policy: policy.to_string(),
            bytes: 8 << 10,
            rounds: latency_us.len() as u64,
            latency_us: median(all.latency_us.clone()),
            mb_per_s: median(all.mb_per_s.clone()),
            all,
        }
    }

    #[test]
    fn a_policy_is_held_against_the_best_of_the_others() {
        let rows = [
            row("sf", &[4.0], &[900.0]),
            row("fixed:4K", &[3.0], &[800.0]),
            row("adaptive", &[3.3], &[810.0]),
        ];
        let found = target(&rows, 8 << 10).unwrap();
        assert_eq!(
            (found.best_latency.as_str(), found.best_bandwidth.as_str()),
            ("fixed:4K", "sf")
        );
        assert!((found.latency_ratio - 1.1).abs() < 1e-9);
        assert!((found.bandwidth_ratio - 0.9).abs() < 1e-9);
        assert_eq!(gains_from(&rows), Some(8 << 10));
        assert!(target(&rows[..2], 8 << 10).is_none());
    }

    /// A policy that was lucky in the rounds that choose gains nothing by it.
    #[test]
    fn the_best_is_chosen_in_other_rounds_than_it_is_compared_in() {
        let rows = [
            row("sf", &[2.0, 2.0, 4.0, 4.0], &[500.0; 4]),
            row("fixed:4K", &[3.0; 4], &[500.0; 4]),
            row("adaptive", &[3.0; 4], &[500.0; 4]),
        ];
        let found = target(&rows, 8 << 10).unwrap();
        assert_eq!((found.best_latency.as_str(), found.latency_ratio), ("sf", 0.75));
    }

    #[test]
    fn every_payload_of_a_burst_is_in_both_logs() {
        let log = burst(0).unwrap();
        for (machine, engine) in [("sender", "hostTx"), ("receiver", "hostRcv")] {
            let of =
                |entry: &&Activity| (&entry.machine[..], &entry.engine[..]) == (machine, engine);
            let bytes = log.iter().filter(of).flat_map(|entry| &entry.details);
            let moved: usize = bytes.map(|(_, bytes)| bytes.parse::<usize>().unwrap()).sum();
            assert_eq!(moved, 14 * BURST.1, "{machine}");
        }
    }
}
