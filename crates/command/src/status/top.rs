//! `trapeze top`: what the servers do now, from the difference of two reports.

use super::keyboard::{self, Keyboard};
use super::keys;
use super::memory;
use super::show::{role_names, state};
use crate::cli;
use serde::Serialize;
use std::fmt::Write;
use std::io::{IsTerminal, stdout};
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::ask::{Asker, Told};
use trapeze::client::{Reach, VisitError};
use trapeze::size::Size;
use trapeze::status::keys::{Keys, Tenant};
use trapeze::status::memory::Memory;
use trapeze::status::nfs::Nfs;
use trapeze::status::reads::Reads;
use trapeze::status::report::{Report, Scrub};

/// From the top of the screen, which is cleared behind what is written.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Rates of a machine: a row of `--json`.
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
    spins_per_s: f64,
    yields_per_s: f64,
    sleeps_per_s: f64,
    /// Of an I/O server.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<ReadRates>,
    /// Of who lends memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryRates>,
    /// Of a front end for clients of memcached and Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<KeyRates>,
    /// Of a server of NFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    nfs: Option<NfsRates>,
}

/// Where READs of an I/O server found their blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct ReadRates {
    /// Counters since the start, and how long the latest took.
    #[serde(flatten)]
    now: Reads,
    answered_per_s: f64,
    /// Parts of the READs that were answered; nothing without.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_ratio: Option<f64>,
    /// Part of the scrub's round that is done on the disk that is behind the others; nothing before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    scrub_ratio: Option<f64>,
    /// Objects in which the scrub found damage since the start.
    scrub_damaged: u64,
}

/// Rates of calls by clients of NFS.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct NfsRates {
    connections: u64,
    clients: u64,
    locks: u64,
    calls_per_s: f64,
    errors_per_s: f64,
    duplicates_per_s: f64,
    received_bytes_per_s: f64,
    sent_bytes_per_s: f64,
    /// Calls of each procedure, the busiest first.
    procedures: Vec<(String, f64)>,
}

/// Rates of clients of memcached and Redis.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct KeyRates {
    connections: u64,
    tenants: Vec<TenantRates>,
}

/// Rates of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct TenantRates {
    /// Its present state, with counters since the start.
    #[serde(flatten)]
    now: Tenant,
    gets_per_s: f64,
    /// Part of the reads that found an item; nothing without reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    hit_ratio: Option<f64>,
    stored_per_s: f64,
    evicted_per_s: f64,
    away_sent_per_s: f64,
    away_asked_per_s: f64,
}

/// Rates of network memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct MemoryRates {
    /// Where its pages are now, with counters since the start.
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
        let of_io = |of: fn(&trapeze::status::report::Io) -> u64| {
            move |report: &Report| report.io.as_ref().map_or(0, of)
        };
        let links = |of: fn(&trapeze::status::report::Link) -> u64| {
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
            spins_per_s: self.rate(|report| report.wait.spins),
            yields_per_s: self.rate(|report| report.wait.yields),
            sleeps_per_s: self.rate(|report| report.wait.sleeps),
            found: self.now.io.map(|io| self.found(io.found)),
            memory: self.now.memory.map(|now| self.memory(now)),
            keys: self.now.keys.as_ref().map(|keys| self.keys(keys)),
            nfs: self.now.nfs.as_ref().map(|nfs| self.nfs(nfs)),
            ..Rates::of(told)
        }
    }

    fn found(&self, now: Reads) -> ReadRates {
        let of =
            |of: fn(&Reads) -> u64| move |report: &Report| report.io.map_or(0, |io| of(&io.found));
        let scrubs = || self.now.disks.iter().map(|disk| &disk.scrub);
        ReadRates {
            now,
            answered_per_s: self.rate(of(Reads::answered)),
            cache_ratio: self.ratio(of(|found| found.cache.reads), of(Reads::answered)),
            network_ratio: self.ratio(of(|found| found.network.reads), of(Reads::answered)),
            disk_ratio: self.ratio(of(|found| found.disk.reads), of(Reads::answered)),
            scrub_ratio: scrubs().filter_map(Scrub::part).reduce(f64::min),
            scrub_damaged: scrubs().map(|scrub| scrub.damaged).sum(),
        }
    }

    fn nfs(&self, now: &Nfs) -> NfsRates {
        let of = |of: fn(&Nfs) -> u64| move |report: &Report| report.nfs.as_ref().map_or(0, of);
        let calls = |name: &str| {
            self.rate(|report| {
                let mut all = report.nfs.iter().flat_map(|nfs| &nfs.procedures);
                all.find(|procedure| procedure.name == name).map_or(0, |found| found.calls)
            })
        };
        let named = now.procedures.iter().map(|it| (it.name.clone(), calls(&it.name)));
        let mut procedures: Vec<(String, f64)> = named.filter(|(_, rate)| *rate > 0.0).collect();
        procedures.sort_by(|one, other| other.1.total_cmp(&one.1));
        NfsRates {
            connections: now.connections,
            clients: now.clients.len() as u64,
            locks: now.locks,
            calls_per_s: procedures.iter().map(|(_, rate)| rate).sum(),
            errors_per_s: self.rate(of(|nfs| nfs.procedures.iter().map(|it| it.errors).sum())),
            duplicates_per_s: self.rate(of(|nfs| nfs.duplicates)),
            received_bytes_per_s: self.rate(of(|nfs| nfs.received_bytes)),
            sent_bytes_per_s: self.rate(of(|nfs| nfs.sent_bytes)),
            procedures,
        }
    }

    fn keys(&self, now: &Keys) -> KeyRates {
        let tenants = now.tenants.iter().map(|tenant| self.tenant(tenant)).collect();
        KeyRates { connections: now.connections, tenants }
    }

    fn tenant(&self, now: &Tenant) -> TenantRates {
        let of = |of: fn(&Tenant) -> u64| {
            move |report: &Report| {
                let keys = report.keys.as_ref();
                keys.and_then(|keys| keys.tenant(&now.name)).map_or(0, of)
            }
        };
        TenantRates {
            now: now.clone(),
            gets_per_s: self.rate(of(Tenant::gets)),
            hit_ratio: self.ratio(of(|tenant| tenant.hits), of(Tenant::gets)),
            stored_per_s: self.rate(of(|tenant| tenant.stored)),
            evicted_per_s: self.rate(of(|tenant| tenant.evicted)),
            away_sent_per_s: self.rate(of(|tenant| tenant.away_sent)),
            away_asked_per_s: self.rate(of(|tenant| tenant.away_asked)),
        }
    }

    fn memory(&self, now: Memory) -> MemoryRates {
        let of =
            |of: fn(&Memory) -> u64| move |report: &Report| report.memory.as_ref().map_or(0, of);
        let stored = |m: &Memory| m.storage.map_or(0, |storage| storage.pages);
        let found = move |m: &Memory| m.local.pages + m.peer.pages + stored(m);
        let asked = move |report: &Report| report.memory.map_or(0, |m| found(&m) + m.missed);
        MemoryRates {
            now,
            gets_per_s: self.rate(asked),
            local_ratio: self.ratio(of(|m| m.local.pages), asked),
            peer_ratio: self.ratio(of(|m| m.peer.pages), asked),
            storage_ratio: now.storage.and_then(|_| self.ratio(of(stored), asked)),
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

    fn messages(&self) -> [String; 10] {
        [
            self.name.clone(),
            count(self.calls_per_s),
            count(self.served_per_s),
            count(self.sent_again_per_s),
            mega(self.sent_bytes_per_s),
            mega(self.received_bytes_per_s),
            percent(self.awake_ratio),
            count(self.spins_per_s),
            count(self.yields_per_s),
            count(self.sleeps_per_s),
        ]
    }
}

impl ReadRates {
    fn cells(&self, name: &str) -> Vec<String> {
        let ratios = [self.cache_ratio, self.network_ratio, self.disk_ratio].map(percent);
        let times = self.now.all().map(|found| found.took.shown());
        let first = [name.to_string(), count(self.answered_per_s)];
        let scrub = [percent(self.scrub_ratio), self.scrub_damaged.to_string()];
        first.into_iter().chain(ratios).chain(times).chain(scrub).collect()
    }
}

impl NfsRates {
    fn cells(&self, name: &str) -> Vec<String> {
        let busiest = self.procedures.iter().take(BUSIEST);
        let busiest: Vec<String> =
            busiest.map(|(name, rate)| format!("{name} {rate:.0}")).collect();
        vec![
            name.to_string(),
            self.clients.to_string(),
            self.locks.to_string(),
            count(self.calls_per_s),
            count(self.errors_per_s),
            count(self.duplicates_per_s),
            mega(self.received_bytes_per_s),
            mega(self.sent_bytes_per_s),
            busiest.join(", "),
        ]
    }
}

impl TenantRates {
    fn cells(&self, name: &str, connections: u64) -> Vec<String> {
        let first = [name.to_string(), connections.to_string(), self.now.name.clone()];
        let rates = [
            count(self.gets_per_s),
            percent(self.hit_ratio),
            count(self.stored_per_s),
            count(self.evicted_per_s),
            count(self.away_sent_per_s),
            count(self.away_asked_per_s),
        ];
        first.into_iter().chain(keys::places(&self.now)).chain(rates).collect()
    }
}

impl MemoryRates {
    /// Its cells below the [`headings`](memory_headings); `storage` says whether anybody has any.
    fn cells(&self, name: &str, storage: bool) -> Vec<String> {
        let rates = [self.served_per_s, self.given_per_s, self.taken_per_s];
        let mut cells = vec![name.to_string()];
        cells.extend(memory::places(&self.now));
        cells.push(count(self.gets_per_s));
        cells.extend([self.local_ratio, self.peer_ratio].map(percent));
        cells.extend(storage.then(|| percent(self.storage_ratio)));
        cells.push(percent(self.miss_ratio));
        cells.extend([self.now.local, self.now.peer].map(|source| source.took.shown()));
        cells.extend(storage.then(|| self.now.storage.unwrap_or_default().took.shown()));
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
const MESSAGES: [&str; 10] = [
    "server", "calls/s", "served/s", "again/s", "MB/s out", "MB/s in", "awake", "spins/s",
    "yields/s", "sleeps/s",
];
const READS: [&str; 10] = [
    "reads of",
    "reads/s",
    "cache",
    "network",
    "disk",
    "cache us",
    "network us",
    "disk us",
    "scrub",
    "found",
];
/// Procedures that a row of NFS names.
const BUSIEST: usize = 3;
const NFS: [&str; 9] =
    ["NFS of", "clients", "locks", "calls/s", "errors/s", "again/s", "MB/s in", "MB/s out", "most"];
const KEYS: [&str; 3] = ["keys of", "clients", "tenant"];
const KEY_RATES: [&str; 6] = ["gets/s", "hits", "sets/s", "evicted/s", "to away/s", "from away/s"];

fn memory_headings(storage: bool) -> Vec<&'static str> {
    let places = ["lent by"].into_iter().chain(memory::PLACES);
    let parts = ["gets/s", "local", "peer"].into_iter().chain(storage.then_some("storage"));
    let times =
        ["missed", "local us", "peer us"].into_iter().chain(storage.then_some("storage us"));
    let rates = ["served/s", "given/s", "taken/s"];
    places.chain(parts).chain(times).chain(rates).collect()
}

/// A table of these rows, if there are any.
fn table_of(headings: &[&str], rows: Vec<Vec<String>>) -> Option<Table> {
    let mut table = Table::new(headings);
    rows.iter().for_each(|row| table.row(row));
    (!rows.is_empty()).then_some(table)
}

/// Network memory, if anybody lends any.
fn memory_table(rows: &[Rates]) -> Option<Table> {
    let lenders = || rows.iter().filter_map(|row| Some((row, row.memory.as_ref()?)));
    let storage = lenders().any(|(_, memory)| memory.now.storage.is_some());
    let cells = lenders().map(|(row, memory)| memory.cells(&row.name, storage));
    table_of(&memory_headings(storage), cells.collect())
}

/// Where I/O servers find what is read of them.
fn reads_table(rows: &[Rates]) -> Option<Table> {
    let cells = rows.iter().filter_map(|row| Some(row.found.as_ref()?.cells(&row.name)));
    table_of(&READS, cells.collect())
}

/// Calls of clients of NFS, if anybody serves them.
fn nfs_table(rows: &[Rates]) -> Option<Table> {
    let cells = rows.iter().filter_map(|row| Some(row.nfs.as_ref()?.cells(&row.name)));
    table_of(&NFS, cells.collect())
}

/// Keys and values, if anybody has any.
fn keys_table(rows: &[Rates]) -> Option<Table> {
    let fronts = rows.iter().filter_map(|row| Some((row, row.keys.as_ref()?)));
    let cells = fronts.flat_map(|(row, keys)| {
        keys.tenants.iter().map(|tenant| tenant.cells(&row.name, keys.connections))
    });
    let headings: Vec<&str> = KEYS.into_iter().chain(keys::PLACES).chain(KEY_RATES).collect();
    table_of(&headings, cells.collect())
}

/// The rows of the servers, of those that told twice in the same incarnation or in two.
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

/// The tables, none wider than `columns`.
fn render(rows: &[Rates], clients: usize, columns: usize) -> String {
    let (mut blocks, mut messages) = (Table::new(&BLOCKS), Table::new(&MESSAGES));
    for row in rows {
        blocks.row(&row.blocks());
        messages.row(&row.messages());
    }
    let total = |of: fn(&Rates) -> f64| rows.iter().map(of).sum::<f64>();
    let more = [reads_table(rows), memory_table(rows), keys_table(rows), nfs_table(rows)];
    let more = more.into_iter().flatten();
    let tables: Vec<Table> = [blocks].into_iter().chain(more).chain([messages]).collect();
    let parts = tables.iter().map(|table| table.render_within(columns));
    let mut text = parts.collect::<Vec<String>>().join("\n");
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
    let mut asker = Asker::start(&Reach::from(&arguments.target.cluster))?;
    let over = stdout().is_terminal() && !arguments.target.json;
    let (mut before, mut since) = (asker.ask()?, asker.now());
    let keyboard = over.then(Keyboard::take);
    let quits = || keyboard.as_ref().is_some_and(Keyboard::quits);
    for _ in 0..arguments.count.unwrap_or(u64::MAX) {
        if !asker.wait(Duration::from_secs(arguments.every), quits)?
            || trapeze::output::has_failed()
        {
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
    let columns = if over { keyboard::columns() } else { usize::MAX };
    draw(&render(&rows, clients, columns), over);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests;
    use trapeze::status::memory::Source;
    use trapeze::status::nfs::Procedure;
    use trapeze::status::reads::SourceReads;
    use trapeze::status::report::{Io, Link, Rpc, Took, Wait};
    use wire::Errno;

    fn told(report: Option<Result<Report, Errno>>) -> Told {
        tests::told(3, "io2", report)
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
            let source = |pages| Source { pages, ..Source::default() };
            let memory = Memory {
                local: source(6 * scale),
                peer: source(2 * scale),
                storage: Some(source(scale)),
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
    fn reads_by_source_are_parts_of_those_that_were_answered() {
        let with = |scale: u64| {
            let took = Took { p50_ns: Some(70_000), p99_ns: Some(90_000) };
            let found = |reads| SourceReads { reads: reads * scale, took };
            let found = Reads { cache: found(6), network: found(3), disk: found(1) };
            Report { io: Some(Io { found, ..Io::default() }), ..report(scale) }
        };
        let (before, now) = (vec![told(Some(Ok(with(2))))], vec![told(Some(Ok(with(4))))]);
        let row = &rates(&before, &now, 2.0)[0];
        let found = row.found.unwrap();
        assert_eq!((found.answered_per_s, found.cache_ratio), (10.0, Some(0.6)));
        assert_eq!((found.network_ratio, found.disk_ratio), (Some(0.3), Some(0.1)));
        let text = render(std::slice::from_ref(row), 0, 80);
        assert!(text.contains("reads of") && text.contains("70/90"), "{text}");
    }

    #[test]
    fn a_tenants_rates_are_its_own() {
        let with = |scale: u64| {
            let tenant = |name: &str, hits, misses| Tenant {
                name: name.into(),
                hits: hits * scale,
                misses: misses * scale,
                stored: 2 * scale,
                ..Tenant::default()
            };
            let tenants = vec![tenant("web", 9, 1), tenant("jobs", 0, 4)];
            Report {
                keys: Some(Keys { connections: 3, tenants, ..Keys::default() }),
                ..report(scale)
            }
        };
        let (before, now) = (vec![told(Some(Ok(with(2))))], vec![told(Some(Ok(with(4))))]);
        let row = &rates(&before, &now, 2.0)[0];
        let tenants = &row.keys.as_ref().unwrap().tenants;
        assert_eq!((tenants[0].gets_per_s, tenants[0].hit_ratio), (10.0, Some(0.9)));
        assert_eq!((tenants[1].gets_per_s, tenants[1].hit_ratio), (4.0, Some(0.0)));
        assert_eq!(tenants[1].stored_per_s, 2.0);
        let text = render(std::slice::from_ref(row), 0, 80);
        assert!(text.contains("keys of") && text.contains("jobs"), "{text}");
    }

    #[test]
    fn calls_of_nfs_are_rates_with_the_busiest_procedures_first() {
        let with = |scale: u64| {
            let procedure = |name: &str, calls| Procedure {
                name: name.into(),
                calls: calls * scale,
                errors: scale,
                ..Procedure::default()
            };
            let procedures =
                vec![procedure("GETATTR", 3), procedure("READ", 20), procedure("NULL", 0)];
            let nfs = Nfs { procedures, sent_bytes: scale << 20, locks: 2, ..Nfs::default() };
            Report { nfs: Some(nfs), ..report(scale) }
        };
        let (before, now) = (vec![told(Some(Ok(with(2))))], vec![told(Some(Ok(with(4))))]);
        let row = &rates(&before, &now, 2.0)[0];
        let nfs = row.nfs.as_ref().unwrap();
        assert_eq!((nfs.calls_per_s, nfs.errors_per_s, nfs.locks), (23.0, 3.0, 2));
        assert_eq!(nfs.procedures, [("READ".to_string(), 20.0), ("GETATTR".to_string(), 3.0)]);
        let text = render(std::slice::from_ref(row), 0, 80);
        assert!(text.contains("NFS of") && text.contains("READ 20, GETATTR 3"), "{text}");
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
    fn all_of_it_fits_a_terminal_of_80_columns() {
        let name = "a-machine".to_string();
        let found = Some(ReadRates::default());
        let (memory, nfs) = (Some(MemoryRates::default()), Some(NfsRates::default()));
        let row = Rates { name, found, memory, nfs, ..Rates::default() };
        let wide = render(std::slice::from_ref(&row), 2, usize::MAX);
        let narrow = render(&[row], 2, 80);
        assert!(wide.lines().any(|line| line.len() > 80));
        assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
        for heading in BLOCKS.iter().chain(&MESSAGES).chain(&READS).chain(&NFS) {
            assert!(narrow.contains(heading), "{heading} in\n{narrow}");
        }
    }

    #[test]
    fn every_heading_has_a_cell() {
        let mut row = Rates::default();
        let text = render(&[row.clone()], 2, usize::MAX);
        assert!(text.contains("reads/s") && text.contains("2 clients"), "{text}");
        assert!(
            !["lent by", "reads of", "keys of"].iter().any(|head| text.contains(head)),
            "{text}"
        );
        row.memory = Some(MemoryRates::default());
        row.found = Some(ReadRates::default());
        let tenants = vec![TenantRates::default()];
        row.keys = Some(KeyRates { tenants, ..KeyRates::default() });
        let text = render(&[row.clone()], 2, usize::MAX);
        assert!(
            ["lent by", "reads of", "keys of"].iter().all(|head| text.contains(head)),
            "{text}"
        );
        assert!(!text.contains("storage"), "{text}");
        let now = Memory { storage: Some(Source::default()), ..Memory::default() };
        row.memory = Some(MemoryRates { now, ..MemoryRates::default() });
        assert!(render(&[row], 2, usize::MAX).contains("storage us"));
    }
}
