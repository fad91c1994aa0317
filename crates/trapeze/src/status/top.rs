//! `trapeze top`: what the servers do now, from the difference of two reports.

use super::ask::{Asker, Told};
use super::memory::{self, Memory, PLACES};
use super::report::Report;
use super::show::{role_names, state};
use crate::cli;
use crate::client::VisitError;
use crate::size::Size;
use crate::table::{Table, print_json};
use serde::Serialize;
use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

/// From the top of the screen, which is cleared behind what is written.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// What a machine does each second: a row of `--json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Rates {
    node: u16,
    name: String,
    roles: String,
    state: String,
    /// Processors that it keeps busy.
    cpus: f64,
    resident_bytes: u64,
    pool_bytes: u64,
    pool_free_bytes: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
    reads_per_s: f64,
    read_bytes_per_s: f64,
    /// Part of the reads that its memory answered; nothing without reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio: Option<f64>,
    writes_per_s: f64,
    written_bytes_per_s: f64,
    commits_per_s: f64,
    calls_per_s: f64,
    served_per_s: f64,
    sent_again_per_s: f64,
    sent_bytes_per_s: f64,
    received_bytes_per_s: f64,
    /// Part of its waits that ended before it slept; nothing without waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    awake_ratio: Option<f64>,
    sleeps_per_s: f64,
    /// Of who lends memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryRates>,
}

/// What network memory does each second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct MemoryRates {
    /// What is where now, with counters since the start.
    #[serde(flatten)]
    now: Memory,
    gets_per_s: f64,
    /// Parts of the pages that were asked for; nothing without.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_ratio: Option<f64>,
    served_per_s: f64,
    given_per_s: f64,
    taken_per_s: f64,
}

/// Two reports of one machine and the time between them, in seconds.
struct Change<'a> {
    before: &'a Report,
    now: &'a Report,
    seconds: f64,
}

impl Change<'_> {
    /// How much a counter grew. A machine that has restarted in between counts from zero.
    fn of(&self, counter: impl Fn(&Report) -> u64) -> u64 {
        let before =
            if self.now.uptime_s < self.before.uptime_s { 0 } else { counter(self.before) };
        counter(self.now).saturating_sub(before)
    }

    fn rate(&self, counter: impl Fn(&Report) -> u64) -> f64 {
        self.of(counter) as f64 / self.seconds
    }

    fn ratio(&self, part: impl Fn(&Report) -> u64, all: impl Fn(&Report) -> u64) -> Option<f64> {
        let all = self.of(all);
        (all > 0).then(|| self.of(part) as f64 / all as f64)
    }

    fn rates(&self, told: &Told) -> Rates {
        let io = self.now.io.unwrap_or_default();
        let of_io = |of: fn(&super::report::Io) -> u64| {
            move |report: &Report| report.io.as_ref().map_or(0, of)
        };
        let links = |of: fn(&super::report::Link) -> u64| {
            move |report: &Report| report.links.iter().map(of).sum()
        };
        Rates {
            cpus: self.rate(|report| report.cpu_ms) / 1e3,
            resident_bytes: self.now.resident_bytes,
            pool_bytes: self.now.pool.bytes,
            pool_free_bytes: self.now.pool.free_bytes,
            cached_bytes: io.cached_bytes,
            dirty_bytes: io.dirty_bytes,
            reads_per_s: self.rate(of_io(|io| io.reads)),
            read_bytes_per_s: self.rate(of_io(|io| io.read_bytes)),
            hit_ratio: self.ratio(of_io(|io| io.hits), of_io(|io| io.hits + io.misses)),
            writes_per_s: self.rate(of_io(|io| io.writes)),
            written_bytes_per_s: self.rate(of_io(|io| io.written_bytes)),
            commits_per_s: self.rate(of_io(|io| io.commits)),
            calls_per_s: self.rate(|report| report.rpc.calls),
            served_per_s: self.rate(|report| report.rpc.executed),
            sent_again_per_s: self.rate(|report| report.rpc.retries),
            sent_bytes_per_s: self.rate(links(|link| link.sent_bytes)),
            received_bytes_per_s: self.rate(links(|link| link.received_bytes)),
            awake_ratio: self.ratio(
                |report| report.wait.spin_hits,
                |report| report.wait.spin_hits + report.wait.sleeps,
            ),
            sleeps_per_s: self.rate(|report| report.wait.sleeps),
            memory: self.now.memory.map(|now| self.memory(now)),
            ..Rates::of(told)
        }
    }

    fn memory(&self, now: Memory) -> MemoryRates {
        let of =
            |of: fn(&Memory) -> u64| move |report: &Report| report.memory.as_ref().map_or(0, of);
        let found = |m: &Memory| m.local.pages + m.peer.pages + m.storage.pages;
        let asked = move |report: &Report| report.memory.map_or(0, |m| found(&m) + m.missed);
        MemoryRates {
            now,
            gets_per_s: self.rate(asked),
            local_ratio: self.ratio(of(|m| m.local.pages), asked),
            peer_ratio: self.ratio(of(|m| m.peer.pages), asked),
            storage_ratio: self.ratio(of(|m| m.storage.pages), asked),
            miss_ratio: self.ratio(of(|m| m.missed), asked),
            served_per_s: self.rate(of(|m| m.served)),
            given_per_s: self.rate(of(|m| m.puts_stored + m.mirrors_made)),
            taken_per_s: self.rate(of(|m| m.accepted)),
        }
    }
}

impl Rates {
    fn of(told: &Told) -> Rates {
        let (node, name) = (told.member.id.0, told.member.name.clone());
        let [state, _] = state(told);
        Rates { node, name, roles: role_names(&told.member).join(","), state, ..Rates::default() }
    }

    fn blocks(&self) -> [String; 13] {
        let used = self.pool_bytes - self.pool_free_bytes.min(self.pool_bytes);
        [
            self.name.clone(),
            self.state.clone(),
            format!("{:.2}", self.cpus),
            Size(self.resident_bytes).to_string(),
            Size(used).to_string(),
            Size(self.cached_bytes).to_string(),
            Size(self.dirty_bytes).to_string(),
            count(self.reads_per_s),
            mega(self.read_bytes_per_s),
            percent(self.hit_ratio),
            count(self.writes_per_s),
            mega(self.written_bytes_per_s),
            count(self.commits_per_s),
        ]
    }

    fn messages(&self) -> [String; 8] {
        [
            self.name.clone(),
            count(self.calls_per_s),
            count(self.served_per_s),
            count(self.sent_again_per_s),
            mega(self.sent_bytes_per_s),
            mega(self.received_bytes_per_s),
            percent(self.awake_ratio),
            count(self.sleeps_per_s),
        ]
    }
}

impl MemoryRates {
    fn cells(&self, name: &str) -> Vec<String> {
        let ratios = [self.local_ratio, self.peer_ratio, self.storage_ratio, self.miss_ratio];
        let rates = [self.served_per_s, self.given_per_s, self.taken_per_s];
        let latencies = [memory::latency(&self.now.peer), memory::latency(&self.now.storage)];
        let mut cells = vec![name.to_string()];
        cells.extend(self.now.places());
        cells.push(count(self.gets_per_s));
        cells.extend(ratios.map(percent));
        cells.extend(latencies);
        cells.extend(rates.map(count));
        cells
    }
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_string(), |part| format!("{:.0}%", part * 100.0))
}

fn count(rate: f64) -> String {
    format!("{rate:.0}")
}

fn mega(rate: f64) -> String {
    format!("{:.1}", rate / 1e6)
}

const BLOCKS: [&str; 13] = [
    "server",
    "state",
    "cpus",
    "process",
    "frames",
    "cached",
    "dirty",
    "reads/s",
    "MB/s",
    "hits",
    "writes/s",
    "MB/s",
    "commits/s",
];
const MESSAGES: [&str; 8] =
    ["server", "calls/s", "served/s", "again/s", "MB/s out", "MB/s in", "awake", "sleeps/s"];

const MEMORY: [&str; 10] = [
    "gets/s",
    "local",
    "peer",
    "storage",
    "missed",
    "peer us",
    "storage us",
    "served/s",
    "given/s",
    "taken/s",
];

/// Network memory, if anybody lends any.
fn memory_table(rows: &[Rates]) -> Option<Table> {
    let headings: Vec<&str> = ["lent by"].into_iter().chain(PLACES).chain(MEMORY).collect();
    let mut table = Table::new(&headings);
    let lenders = rows.iter().filter_map(|row| Some((row, row.memory.as_ref()?)));
    let cells: Vec<Vec<String>> = lenders.map(|(row, memory)| memory.cells(&row.name)).collect();
    cells.iter().for_each(|cells| table.row(cells));
    (!cells.is_empty()).then_some(table)
}

/// The rows of the servers, of those that told twice in the same life or in two.
fn rates(before: &[Told], now: &[Told], seconds: f64) -> Vec<Rates> {
    let servers = now.iter().filter(|told| told.report.is_some());
    let row = |told: &Told| {
        let earlier = before.iter().find(|earlier| earlier.member.id == told.member.id);
        match (earlier.and_then(Told::report), told.report()) {
            (Some(before), Some(now)) => Change { before, now, seconds }.rates(told),
            _ => Rates::of(told),
        }
    };
    servers.map(row).collect()
}

fn render(rows: &[Rates], clients: usize) -> String {
    let (mut blocks, mut messages) = (Table::new(&BLOCKS), Table::new(&MESSAGES));
    for row in rows {
        blocks.row(&row.blocks());
        messages.row(&row.messages());
    }
    let total = |of: fn(&Rates) -> f64| rows.iter().map(of).sum::<f64>();
    let memory = memory_table(rows).map(|table| format!("\n{}", table.render()));
    let memory = memory.unwrap_or_default();
    let mut text = format!("{}{memory}\n{}", blocks.render(), messages.render());
    let _ = writeln!(
        text,
        "\nall: {:.0} reads/s, {:.1} MB/s; {:.0} writes/s, {:.1} MB/s; {clients} clients",
        total(|row| row.reads_per_s),
        total(|row| row.read_bytes_per_s) / 1e6,
        total(|row| row.writes_per_s),
        total(|row| row.written_bytes_per_s) / 1e6,
    );
    text
}

/// Draws over what was there before; a pipe gets one picture below the other.
fn draw(text: &str, over: bool) {
    if !over {
        return println!("{text}");
    }
    let lines = text.replace('\n', &format!("{CLEAR_LINE}\n"));
    print!("{HOME}{lines}{CLEAR_BELOW}");
}

/// `trapeze top`.
pub fn top(arguments: &cli::Top) -> Result<(), VisitError> {
    let mut asker = Asker::start(&arguments.target)?;
    let over = stdout().is_terminal() && !arguments.target.json;
    let (mut before, mut since) = (asker.ask()?, asker.now());
    for _ in 0..arguments.count.unwrap_or(u64::MAX) {
        if !asker.wait(Duration::from_secs(arguments.every))? || crate::output::has_failed() {
            break;
        }
        let (told, at) = (asker.ask()?, asker.now());
        show(&before, &told, at.since(since), arguments.target.json, over);
        (before, since) = (told, at);
    }
    asker.stop()
}

fn show(before: &[Told], now: &[Told], span: Duration, json: bool, over: bool) {
    let rows = rates(before, now, span.as_secs_f64());
    if json {
        return rows.iter().for_each(print_json);
    }
    let clients = now.iter().filter(|told| !told.member.roles.is_server() && told.member.alive);
    let clients = clients.count();
    draw(&render(&rows, clients), over);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ask;
    use crate::status::report::{Io, Link, Rpc, Wait};
    use wire::Errno;

    fn told(report: Option<Result<Report, Errno>>) -> Told {
        ask::tests::told(3, "io2", report)
    }

    fn report(scale: u64) -> Report {
        let io = Io {
            reads: 10 * scale,
            hits: 3 * scale,
            misses: scale,
            read_bytes: scale << 20,
            ..Io::default()
        };
        let link = Link { sent_bytes: 1000 * scale, ..Link::default() };
        Report {
            uptime_s: scale,
            cpu_ms: 500 * scale,
            io: Some(io),
            links: vec![link.clone(), link],
            rpc: Rpc { executed: 7 * scale, ..Rpc::default() },
            wait: Wait { spin_hits: scale, sleeps: 3 * scale, ..Wait::default() },
            ..Report::default()
        }
    }

    #[test]
    fn rates_are_what_came_since_the_last_report() {
        let (before, now) = (vec![told(Some(Ok(report(2))))], vec![told(Some(Ok(report(6))))]);
        let row = &rates(&before, &now, 2.0)[0];
        assert_eq!((row.reads_per_s, row.cpus, row.served_per_s), (20.0, 1.0, 14.0));
        assert_eq!((row.hit_ratio, row.awake_ratio), (Some(0.75), Some(0.25)));
        assert_eq!(row.sent_bytes_per_s, 4000.0);
        assert_eq!(row.read_bytes_per_s, 2.0 * 1048576.0);
    }

    #[test]
    fn pages_by_source_are_parts_of_those_that_were_asked_for() {
        let with = |scale: u64| {
            let source = |pages| memory::Source { pages, ..memory::Source::default() };
            let memory = Memory {
                local: source(6 * scale),
                peer: source(2 * scale),
                storage: source(scale),
                missed: scale,
                ..Memory::default()
            };
            Report { memory: Some(memory), ..report(scale) }
        };
        let (before, now) = (vec![told(Some(Ok(with(2))))], vec![told(Some(Ok(with(4))))]);
        let memory = rates(&before, &now, 2.0)[0].memory.unwrap();
        assert_eq!((memory.gets_per_s, memory.local_ratio), (10.0, Some(0.6)));
        assert_eq!((memory.peer_ratio, memory.storage_ratio), (Some(0.2), Some(0.1)));
        assert_eq!(memory.miss_ratio, Some(0.1));
    }

    #[test]
    fn who_restarted_counts_from_zero_and_who_is_silent_has_no_rates() {
        let (before, now) = (vec![told(Some(Ok(report(9))))], vec![told(Some(Ok(report(1))))]);
        assert_eq!(rates(&before, &now, 1.0)[0].reads_per_s, 10.0);
        let silent = vec![told(Some(Err(Errno::ETIMEDOUT)))];
        let row = &rates(&now, &silent, 1.0)[0];
        assert_eq!((row.reads_per_s, row.hit_ratio), (0.0, None));
        assert!(row.state.starts_with("no answer"), "{}", row.state);
        assert!(rates(&now, &[told(None)], 1.0).is_empty(), "clients tell nothing");
    }

    #[test]
    fn every_heading_has_a_cell() {
        let mut row = Rates::default();
        let text = render(&[row.clone()], 2);
        assert!(text.contains("reads/s") && text.contains("2 clients"), "{text}");
        assert!(!text.contains("lent by"), "{text}");
        row.memory = Some(MemoryRates::default());
        assert!(render(&[row], 2).contains("lent by"));
    }
}
