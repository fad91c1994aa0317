//! `trapeze metrics`: the servers' counters for Prometheus, asked for at each scrape (text format 0.0.4), and those of
//! a `trapeze memory` that is in no cluster. Members of a cluster never talk HTTP.

use super::exporter::{Bell, Exporter, Scrape};
use crate::cli;
use members::{Member, Roles};
use node::Cx;
use std::fmt::Write as _;
use std::io;
use std::time::Duration;
use trapeze::ask::{Asker, Told};
use trapeze::children::READY;
use trapeze::client::{Reach, VisitError};
use trapeze::status::keys::{Keys, Tenant};
use trapeze::status::memory::{Memory, Source};
use trapeze::status::nfs::{Nfs, Procedure};
use trapeze::status::reads::{self, SourceReads};
use trapeze::status::report::{Disk, Io, Link, Report, StoreHealth};
use trapeze::status::service;

/// How late a scrape is seen.
const TICK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// A number of each server.
struct Metric<T> {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: fn(&T) -> f64,
}

const fn counter<T>(name: &'static str, help: &'static str, of: fn(&T) -> f64) -> Metric<T> {
    Metric { name, kind: Kind::Counter, help, of }
}

const fn gauge<T>(name: &'static str, help: &'static str, of: fn(&T) -> f64) -> Metric<T> {
    Metric { name, kind: Kind::Gauge, help, of }
}

const OF_SERVERS: &[Metric<Report>] = &[
    gauge("uptime_seconds", "Since the machine's start.", |r| r.uptime_s as f64),
    gauge("resident_bytes", "Memory of the process.", |r| r.resident_bytes as f64),
    counter("cpu_seconds_total", "Processor time of the process.", |r| r.cpu_ms as f64 / 1e3),
    gauge("pool_bytes", "Payload frames.", |r| r.pool.bytes as f64),
    gauge("pool_free_bytes", "Payload frames that nobody has.", |r| r.pool.free_bytes as f64),
    gauge("pool_free_bytes_min", "Fewest ever free.", |r| r.pool.free_bytes_min as f64),
    counter("wait_spins_total", "Turns that looked again at once.", |r| r.wait.spins as f64),
    counter("wait_spin_hits_total", "Waits that ended awake.", |r| r.wait.spin_hits as f64),
    counter("wait_yields_total", "Times it let others run.", |r| r.wait.yields as f64),
    counter("wait_sleeps_total", "Times it slept.", |r| r.wait.sleeps as f64),
    counter("rpc_calls_total", "Calls made.", |r| r.rpc.calls as f64),
    counter("rpc_executed_total", "Calls served.", |r| r.rpc.executed as f64),
    counter("rpc_retries_total", "Calls sent again.", |r| r.rpc.retries as f64),
    counter("rpc_duplicates_total", "Calls that came again.", |r| r.rpc.duplicates as f64),
    counter("rpc_overloads_total", "Calls refused for lack of room.", |r| r.rpc.overloads as f64),
    counter("rpc_credit_stalls_total", "Calls that waited for credits.", |r| {
        r.rpc.credit_stalls as f64
    }),
    counter("rpc_sessions_lost_total", "Peers that came back in another incarnation.", |r| {
        r.rpc.sessions_lost as f64
    }),
    counter("rpc_answers_lost_total", "Answers that could not be sent.", |r| {
        r.rpc.answers_lost as f64
    }),
    counter(
        "store_scrubbed_keys_total",
        "Keys of the manager's stores that the scrub read.",
        |r| of_stores(r, |store| store.scrubbed_keys),
    ),
    counter(
        "store_scrubs_clean_total",
        "Scrubs of a store that found all as it was written.",
        |r| of_stores(r, |store| store.scrubs_clean),
    ),
    gauge("store_scrub_done", "Part of the scrub of the manager's stores.", store_scrub_done),
    counter("store_scrubs_damaged_total", "Scrubs of a store that found damage.", |r| {
        of_stores(r, |store| store.scrubs_damaged)
    }),
    counter("store_damaged_reads_total", "Reads of damaged pages of the manager's stores.", |r| {
        of_stores(r, |store| store.damaged_reads)
    }),
    gauge("restored_files_due", "Files of restored names that are left to compare.", |r| {
        r.restored_due as f64
    }),
    gauge("restored_files_lost", "Files of restored names whose objects are not there.", |r| {
        r.restored_lost as f64
    }),
    gauge("problems", "Things that are wrong now.", |r| r.problems.len() as f64),
];

/// Of the store that is behind the other.
fn store_scrub_done(report: &Report) -> f64 {
    report.stores.iter().filter_map(StoreHealth::scrubbed).reduce(f64::min).unwrap_or(f64::NAN)
}

fn of_stores(report: &Report, of: fn(&StoreHealth) -> u64) -> f64 {
    report.stores.iter().map(of).sum::<u64>() as f64
}

const OF_IO: &[Metric<Io>] = &[
    gauge("cache_bytes", "Limit of the block cache.", |io| io.cache_bytes as f64),
    gauge("cached_bytes", "Blocks in memory.", |io| io.cached_bytes as f64),
    gauge("dirty_bytes", "Blocks written and not yet stable.", |io| io.dirty_bytes as f64),
    gauge("logged_bytes", "Blocks whose only stable copy is in a log.", |io| {
        io.logged_bytes as f64
    }),
    counter("reads_total", "Reads served.", |io| io.reads as f64),
    counter("read_bytes_total", "Bytes of them.", |io| io.read_bytes as f64),
    counter("cache_hits_total", "Blocks read that were in memory.", |io| io.hits as f64),
    counter("cache_misses_total", "Blocks read that were not.", |io| io.misses as f64),
    counter("disk_reads_total", "Reads of disks.", |io| io.disk_reads as f64),
    counter("network_memory_sent_total", "Chunks that left the cache for network memory.", |io| {
        io.network_sent as f64
    }),
    counter(
        "network_memory_hits_total",
        "Chunks that came back from there or were read there.",
        |io| io.network_hits as f64,
    ),
    counter("network_memory_in_place_total", "Chunks of which a part was read there.", |io| {
        io.network_in_place as f64
    }),
    counter(
        "network_memory_misses_total",
        "Chunks that were asked for there and came not.",
        |io| io.network_misses as f64,
    ),
    counter("network_memory_wrong_total", "Of these, with a wrong checksum.", |io| {
        io.network_wrong as f64
    }),
    counter("network_memory_late_total", "Times a disk was asked since it was slow.", |io| {
        io.network_late as f64
    }),
    counter("writes_total", "Writes served.", |io| io.writes as f64),
    counter("written_bytes_total", "Bytes of them.", |io| io.written_bytes as f64),
    counter("commits_total", "Commits served.", |io| io.commits as f64),
    counter("torn_blocks_total", "Blocks of interrupted writes.", |io| io.torn_blocks as f64),
    counter("corrupt_blocks_total", "Blocks with a wrong checksum.", |io| io.corrupt_blocks as f64),
    counter("damaged_objects_total", "Objects found damaged since the start.", |io| {
        io.damaged_objects as f64
    }),
    counter("damaged_writes_total", "Writes refused for their checksum.", |io| {
        io.damaged_writes as f64
    }),
];

const OF_MEMORY: &[Metric<Memory>] = &[
    gauge("memory_lent_bytes", "Network memory on the machine.", |m| m.lent_bytes as f64),
    gauge("memory_kept_bytes", "Of it, what its own pages can always have.", |m| {
        m.kept_bytes as f64
    }),
    gauge("memory_share_bytes", "What it lends now.", |m| m.share_bytes as f64),
    gauge("memory_over_bytes", "What pages take beyond that.", |m| m.over_bytes as f64),
    gauge("memory_returned_bytes", "What the system has back of it.", |m| m.returned_bytes as f64),
    gauge("memory_view", "Number of the view that it goes by.", |m| m.view as f64),
    gauge("memory_members", "Nodes in that view.", |m| m.members as f64),
    gauge("memory_settled", "Whether all have told what they hold in it.", |m| {
        f64::from(m.settled)
    }),
    gauge("memory_epoch", "Number of the epoch.", |m| f64::from(m.epoch)),
    gauge("memory_min_age_seconds", "Age from which pages are dropped.", |m| {
        m.min_age_ms.unwrap_or(0) as f64 / 1e3
    }),
    gauge("memory_oldest_seconds", "Age of the oldest page that it would give up.", |m| {
        m.oldest_ms.map_or(f64::NAN, |ms| ms as f64 / 1e3)
    }),
    gauge(
        "memory_incarnation",
        "The incarnation in which it is a member; 0 when it is none.",
        |m| m.incarnation as f64,
    ),
    gauge("memory_mirrors_missing", "Pages with too few mirrors.", |m| m.mirrors_missing as f64),
    counter("memory_missed_total", "Pages that were not found.", |m| m.missed as f64),
    counter("memory_damaged_total", "Payloads that were not what was asked for.", |m| {
        m.damaged as f64
    }),
    counter("memory_hedges_total", "Pages asked of storage beside a slow peer.", |m| {
        m.hedges as f64
    }),
    counter("memory_hedges_won_total", "Of these, those that storage answered first.", |m| {
        m.hedges_won as f64
    }),
    counter("memory_served_total", "Pages sent to who asked.", |m| m.served as f64),
    counter("memory_delegated_total", "Requests passed on to who has the page.", |m| {
        m.delegated as f64
    }),
    counter("memory_offered_total", "Clean pages that were offered to others.", |m| {
        m.puts_sent as f64
    }),
    counter("memory_given_total", "Clean pages that others took.", |m| m.puts_stored as f64),
    counter("memory_refused_total", "Pages that others refused.", |m| m.refused as f64),
    counter("memory_refusals_total", "Pages of others that it refused.", |m| m.refusals as f64),
    counter("memory_accepted_total", "Pages of others that it took.", |m| m.accepted as f64),
    counter("memory_dropped_total", "Clean pages that left network memory.", |m| m.dropped as f64),
    counter("memory_mirrors_made_total", "Mirrors of its pages.", |m| m.mirrors_made as f64),
    counter("memory_mirrors_again_total", "Mirrors made anew.", |m| m.mirrors_again as f64),
    counter("memory_handed_on_total", "Mirrors given up for others elsewhere.", |m| {
        m.handed_on as f64
    }),
    counter("memory_written_back_total", "Dirty pages written to storage.", |m| {
        m.written_back as f64
    }),
    counter("memory_lost_pages_total", "Pages whose versions were lost.", |m| m.lost_pages as f64),
    counter("memory_incarnations_lost_total", "Times that it was given up while it ran.", |m| {
        m.incarnations_lost as f64
    }),
    counter("memory_notices_lost_total", "Notices dropped because too many waited.", |m| {
        m.notices_lost as f64
    }),
    counter("memory_epochs_planned_total", "Epochs that it planned.", |m| m.epochs_planned as f64),
    counter("memory_hinted_total", "Pages that programs said they would use.", |m| m.hinted as f64),
    counter("memory_prefetched_total", "Pages that came before they were asked for.", |m| {
        m.prefetched as f64
    }),
    counter("memory_prefetched_used_total", "Of these, those used after that.", |m| {
        m.prefetched_used as f64
    }),
    counter("memory_prefetched_wasted_total", "And those that left unused.", |m| {
        m.prefetched_wasted as f64
    }),
    counter("memory_prefetched_late_total", "And those asked for meanwhile.", |m| {
        m.prefetched_late as f64
    }),
    counter("memory_read_early_total", "Pages that idle nodes read from storage for it.", |m| {
        m.read_early as f64
    }),
];

/// Bytes of network memory, by what is in them.
const OF_PLACES: &[Metric<u64>] =
    &[gauge("memory_bytes", "Network memory by what is in it.", |bytes| *bytes as f64)];

const OF_SOURCES: &[Metric<Source>] = &[
    counter("memory_pages_total", "Pages by where they were found.", |s| s.pages as f64),
    gauge("memory_latency_p50_seconds", "Median of the latest.", |s| seconds(s.took.p50_ns)),
    gauge("memory_latency_p99_seconds", "99th percentile of the latest.", |s| {
        seconds(s.took.p99_ns)
    }),
];

/// READs of an I/O server by where their blocks were.
const OF_READS: &[Metric<SourceReads>] = &[
    counter("reads_found_total", "Reads answered, by where the slowest block was.", |found| {
        found.reads as f64
    }),
    gauge("read_latency_p50_seconds", "Median of the latest.", |found| seconds(found.took.p50_ns)),
    gauge("read_latency_p99_seconds", "99th percentile of the latest.", |found| {
        seconds(found.took.p99_ns)
    }),
];

const OF_KEYS: &[Metric<Keys>] = &[
    gauge("keys_memory_bytes", "Memory for all items.", |k| k.memory_bytes as f64),
    gauge("keys_connections", "Clients that are connected.", |k| k.connections as f64),
    counter("keys_accepted_total", "Clients that ever were.", |k| k.accepted as f64),
    counter("keys_refused_total", "Clients that were too many.", |k| k.refused as f64),
];

const OF_TENANTS: &[Metric<Tenant>] = &[
    gauge("keys_items", "Items of the tenant.", |t| t.items as f64),
    gauge("keys_bytes", "Memory that they take here.", |t| t.bytes as f64),
    gauge("keys_bytes_max", "What they may take at the most.", |t| t.max_bytes as f64),
    counter("keys_hits_total", "Reads that found an item.", |t| t.hits as f64),
    counter("keys_misses_total", "Reads that did not.", |t| t.misses as f64),
    counter("keys_stored_total", "Values stored.", |t| t.stored as f64),
    counter("keys_evicted_total", "Items that left to make room.", |t| t.evicted as f64),
    counter("keys_expired_total", "Items whose time had passed.", |t| t.expired as f64),
    counter("keys_no_room_total", "Values that there was no room for.", |t| t.no_room as f64),
    gauge("keys_away_bytes", "Values in other nodes' memory.", |t| t.away_bytes as f64),
    counter("keys_away_sent_total", "Values that left for there.", |t| t.away_sent as f64),
    counter("keys_away_asked_total", "Values asked for there.", |t| t.away_asked as f64),
    counter("keys_away_lost_total", "Of these, those that were gone.", |t| t.away_lost as f64),
    counter("keys_away_returned_total", "Values that came back to stay.", |t| {
        t.away_returned as f64
    }),
    counter("keys_away_dropped_total", "Values dropped there.", |t| t.away_dropped as f64),
];

const OF_NFS: &[Metric<Nfs>] = &[
    gauge("nfs_connections", "Connections of clients of NFS.", |n| n.connections as f64),
    gauge("nfs_clients", "Clients of NFS that it heard of.", |n| n.clients.len() as f64),
    counter("nfs_received_bytes_total", "Bytes that they sent.", |n| n.received_bytes as f64),
    counter("nfs_sent_bytes_total", "Bytes that they were sent.", |n| n.sent_bytes as f64),
    counter("nfs_duplicates_total", "Calls that had come before.", |n| n.duplicates as f64),
    counter("nfs_stalled_total", "Connections whose clients stood still.", |n| n.stalled as f64),
];

const OF_PROCEDURES: &[Metric<Procedure>] = &[
    counter("nfs_calls_total", "Calls of NFS, by procedure.", |p| p.calls as f64),
    counter("nfs_errors_total", "Of these, those that were answered with an error.", |p| {
        p.errors as f64
    }),
    gauge("nfs_latency_p50_seconds", "Median since its start.", |p| p.p50_us as f64 / 1e6),
    gauge("nfs_latency_p99_seconds", "99th percentile since its start.", |p| p.p99_us as f64 / 1e6),
];

/// NaN, which the format knows, for what was not measured.
fn seconds(ns: Option<u64>) -> f64 {
    ns.map_or(f64::NAN, |ns| ns as f64 / 1e9)
}

fn write_memory<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Memory)> + Clone) {
    write(text, OF_MEMORY, rows.clone());
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut sources: Vec<(String, Source)> = Vec::new();
    for (labels, m) in rows {
        let places = [
            ("local", m.local_bytes),
            ("hosted", m.hosted_bytes),
            ("mirror", m.mirror_bytes),
            ("free", m.free_bytes),
        ];
        parts.extend(places.map(|(role, bytes)| (format!("{labels},role=\"{role}\""), bytes)));
        let from = [("local", m.local), ("peer", m.peer)].into_iter();
        let from = from.chain(m.storage.map(|storage| ("storage", storage)));
        sources.extend(from.map(|(name, one)| (format!("{labels},source=\"{name}\""), one)));
    }
    write(text, OF_PLACES, parts.iter().map(|(labels, bytes)| (labels.clone(), bytes)));
    write(text, OF_SOURCES, sources.iter().map(|(labels, source)| (labels.clone(), source)));
}

fn write_reads<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Io)>) {
    let found = |(labels, io): (String, &Io)| {
        let of = move |(name, found)| (format!("{labels},source=\"{name}\""), found);
        reads::NAMES.into_iter().zip(io.found.all()).map(of)
    };
    let all: Vec<(String, SourceReads)> = rows.flat_map(found).collect();
    write(text, OF_READS, all.iter().map(|(labels, found)| (labels.clone(), found)));
}

fn write_keys<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Keys)> + Clone) {
    write(text, OF_KEYS, rows.clone());
    let tenants = rows.flat_map(|(labels, keys)| {
        let label = move |t: &Tenant| format!("{labels},tenant=\"{}\"", escaped(&t.name));
        keys.tenants.iter().map(move |tenant| (label(tenant), tenant))
    });
    write(text, OF_TENANTS, tenants);
}

fn write_nfs<'a>(text: &mut String, rows: impl Iterator<Item = (String, &'a Nfs)> + Clone) {
    write(text, OF_NFS, rows.clone());
    let procedures = rows.flat_map(|(labels, nfs)| {
        let label = move |p: &Procedure| format!("{labels},procedure=\"{}\"", escaped(&p.name));
        nfs.procedures.iter().map(move |procedure| (label(procedure), procedure))
    });
    write(text, OF_PROCEDURES, procedures);
}

const OF_DISKS: &[Metric<Disk>] = &[
    gauge("disk_serving", "Whether the disk serves.", |disk| f64::from(disk.state == "serving")),
    gauge("disk_bytes", "Size of the disk.", |disk| disk.total_bytes as f64),
    gauge("disk_free_bytes", "Room on the disk.", |disk| disk.free_bytes as f64),
    gauge("disk_held_bytes", "Storage that its objects take.", |disk| disk.held_bytes as f64),
    gauge("disk_objects", "Objects on the disk.", |disk| disk.objects as f64),
    gauge("disk_scrub_done", "Part of the scrub's round that is done.", |disk| {
        disk.scrub.part().unwrap_or(f64::NAN)
    }),
    gauge("disk_scrub_began_seconds", "Time since that round began.", |disk| {
        disk.scrub.began_s.map_or(f64::NAN, |seconds| seconds as f64)
    }),
    counter("disk_scrubs_total", "Rounds of the scrub over the whole disk.", |disk| {
        disk.scrub.rounds as f64
    }),
    counter("disk_scrub_read_bytes_total", "Bytes that the scrub read.", |disk| {
        disk.scrub.all_bytes as f64
    }),
    counter("disk_scrub_damaged_total", "Objects in which a round found damage.", |disk| {
        disk.scrub.damaged as f64
    }),
];

const OF_LINKS: &[Metric<Link>] = &[
    gauge("link_up", "Whether there is a connection.", |l| f64::from(!l.transport.is_empty())),
    counter("link_connections_total", "Connections made.", |l| l.connections as f64),
    counter("link_sent_total", "Messages sent.", |l| l.sent as f64),
    counter("link_sent_bytes_total", "Bytes of them.", |l| l.sent_bytes as f64),
    counter("link_received_total", "Messages received.", |l| l.received as f64),
    counter("link_received_bytes_total", "Bytes of them.", |l| l.received_bytes as f64),
    counter("link_drops_total", "Messages dropped.", |l| l.drops as f64),
];

/// A metric's samples: labels and numbers, in one group as the format wants it.
fn write<'a, T: 'a>(
    text: &mut String,
    metrics: &[Metric<T>],
    rows: impl Iterator<Item = (String, &'a T)> + Clone,
) {
    for Metric { name, kind, help, of } in metrics {
        let kind = if *kind == Kind::Counter { "counter" } else { "gauge" };
        let _ = writeln!(text, "# HELP trapeze_{name} {help}\n# TYPE trapeze_{name} {kind}");
        for (labels, row) in rows.clone() {
            let _ = writeln!(text, "trapeze_{name}{{{labels}}} {}", of(row));
        }
    }
}

/// As a label's value: backslash, quote and line feed are written with a backslash.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn server(told: &Told) -> String {
    format!("node=\"{}\",name=\"{}\"", told.member.id.0, escaped(&told.member.name))
}

fn render(told: &[Told]) -> String {
    let mut text = String::new();
    // What was declared gone is no server that is away.
    let told = || told.iter().filter(|told| !told.member.gone);
    let up =
        gauge::<Told>("up", "Whether a server answers; of a client, whether it is alive.", |t| {
            f64::from(match t.report {
                Some(_) => t.report().is_some(),
                None => t.member.alive,
            })
        });
    write(&mut text, &[up], told().map(|told| (server(told), told)));
    let reports = told().filter_map(|told| Some((server(told), told.report()?)));
    write(&mut text, OF_SERVERS, reports.clone());
    let ios = reports.clone().filter_map(|(labels, report)| Some((labels, report.io.as_ref()?)));
    write(&mut text, OF_IO, ios.clone());
    write_reads(&mut text, ios);
    let memories =
        reports.clone().filter_map(|(labels, report)| Some((labels, report.memory.as_ref()?)));
    write_memory(&mut text, memories);
    let keys = reports.clone().filter_map(|(labels, report)| Some((labels, report.keys.as_ref()?)));
    write_keys(&mut text, keys);
    let nfs = reports.clone().filter_map(|(labels, report)| Some((labels, report.nfs.as_ref()?)));
    write_nfs(&mut text, nfs);
    let disks = reports.clone().flat_map(|(labels, report)| {
        let label = move |disk: &Disk| format!("{labels},disk=\"{}\"", escaped(&disk.path));
        report.disks.iter().map(move |disk| (label(disk), disk))
    });
    write(&mut text, OF_DISKS, disks);
    let links = reports.flat_map(|(labels, report)| {
        let label = move |link: &Link| format!("{labels},peer=\"{}\"", link.peer);
        report.links.iter().map(move |link| (label(link), link))
    });
    write(&mut text, OF_LINKS, links);
    text
}

/// `trapeze metrics`.
pub fn metrics(arguments: &cli::Metrics) -> Result<(), VisitError> {
    let exporter = Exporter::bind("--listen", &arguments.listen)?;
    let mut asker = Asker::start(&Reach::from(&arguments.target))?;
    println!("{READY} {}", exporter.address()?);
    let asked = exporter.start(None)?;
    while asker.wait(TICK, || false)? {
        let waiting: Vec<Scrape> = asked.try_iter().collect();
        if !waiting.is_empty() {
            answer(&mut asker, waiting)?;
        }
    }
    asker.stop()
}

/// One asking of the cluster serves all who wait.
fn answer(asker: &mut Asker, waiting: Vec<Scrape>) -> Result<(), VisitError> {
    let text = render(&asker.ask()?);
    for scrape in waiting {
        let _ = scrape.try_send(text.clone()); // who has gone needs none
    }
    Ok(())
}

/// Has a node that is in no cluster answer for itself. The device belongs into its host.
pub fn serve_own(exporter: Exporter, name: &str, source: service::Source) -> io::Result<Bell> {
    let (cx, bell) = (source.cx.clone(), Bell::new(&source.cx)?);
    let asked = exporter.start(Some(bell.ringer()))?;
    let (rung, started) = (bell.rung(), cx.now());
    let member = itself(&cx, name);
    cx.spawn("metrics", async move {
        loop {
            let next = rung.wait();
            for scrape in asked.try_iter() {
                let report = Some(Ok(source.report(started).await));
                let told = Told { member: member.clone(), lease: None, report };
                let _ = scrape.try_send(render(&[told])); // who has gone needs none
            }
            next.await;
        }
    });
    Ok(bell)
}

/// A node as the only member there is.
fn itself(cx: &Cx, name: &str) -> Member {
    Member {
        id: cx.id(),
        name: name.to_string(),
        roles: Roles::MEMORY,
        alive: true,
        gone: false,
        incarnation: cx.incarnation(),
        addresses: Vec::new(),
        disks: 0,
        gone_disks: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests;
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use std::collections::BTreeSet;
    use trapeze::status::reads::Reads;
    use trapeze::status::report::Took;
    use wire::Errno;

    fn told(id: u16, report: Option<Result<Report, Errno>>) -> Told {
        tests::told(id, &format!("a\"{id}"), report)
    }

    fn some() -> Vec<Told> {
        let disk = Disk { path: "/d\\1".into(), state: "serving".into(), ..Disk::default() };
        let took = Took { p50_ns: Some(60_000), p99_ns: None };
        let found = Reads { disk: SourceReads { reads: 3, took }, ..Reads::default() };
        let io = Some(Io { reads: 7, found, ..Io::default() });
        let peer = Source { pages: 5, took: Took { p50_ns: Some(7500), p99_ns: None } };
        let oldest_ms = Some(2500);
        let memory = Some(Memory { hosted_bytes: 8192, oldest_ms, peer, ..Memory::default() });
        let tenant = Tenant { name: "web".into(), ..Tenant::default() };
        let report = Report {
            io,
            disks: vec![disk],
            links: vec![Link::default()],
            memory,
            keys: Some(Keys { tenants: vec![Tenant { hits: 9, ..tenant }], ..Keys::default() }),
            ..Report::default()
        };
        vec![told(2, Some(Ok(report))), told(3, Some(Err(Errno::ETIMEDOUT))), told(4, None)]
    }

    /// Every name that there is, as Prometheus sees it.
    fn all_names() -> std::collections::BTreeSet<String> {
        fn names<T>(metrics: &[Metric<T>]) -> impl Iterator<Item = String> + '_ {
            metrics.iter().map(|metric| format!("trapeze_{}", metric.name))
        }
        let all = names(OF_SERVERS).chain(names(OF_IO)).chain(names(OF_MEMORY));
        let all = all.chain(names(OF_PLACES)).chain(names(OF_SOURCES)).chain(names(OF_READS));
        let all = all.chain(names(OF_KEYS)).chain(names(OF_TENANTS));
        let all = all.chain(names(OF_NFS)).chain(names(OF_PROCEDURES));
        let all = all.chain(names(OF_DISKS)).chain(names(OF_LINKS));
        all.chain(["trapeze_up".to_string()]).collect()
    }

    #[test]
    fn every_number_that_the_dashboard_and_the_alerts_name_is_there() {
        let known = all_names();
        for text in [
            include_str!("../../../../extras/grafana/trapeze.json"),
            include_str!("../../../../extras/prometheus/trapeze-alerts.yml"),
        ] {
            let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = text.split(|c: char| !is_of_name(c));
            let named: Vec<&str> = words.filter(|word| word.starts_with("trapeze_")).collect();
            assert!(named.len() > 5);
            named.iter().for_each(|name| assert!(known.contains(*name), "{name}"));
        }
    }

    #[test]
    fn every_metric_is_named_once_and_typed() {
        let text = render(&some());
        let typed: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let names: BTreeSet<&str> =
            typed.iter().map(|line| line.split(' ').nth(2).unwrap()).collect();
        assert_eq!(names.len(), typed.len());
        for line in typed {
            let counter = line.ends_with(" counter");
            assert_eq!(counter, line.split(' ').nth(2).unwrap().ends_with("_total"), "{line}");
        }
    }

    /// Every number of a section by its name, each with another value from `first` on.
    fn numbered<T: Serialize + DeserializeOwned>(
        section: &T,
        first: u64,
    ) -> (T, Vec<(String, u64)>) {
        let mut value = serde_json::to_value(section).unwrap();
        let mut numbers = Vec::new();
        for (name, value) in value.as_object_mut().unwrap() {
            if value.is_u64() {
                let number = first + numbers.len() as u64;
                *value = number.into();
                numbers.push((name.clone(), number));
            }
        }
        (serde_json::from_value(value).unwrap(), numbers)
    }

    #[test]
    fn every_number_of_memory_and_keys_is_there() {
        let (memory, mut numbers) = numbered(&Memory::default(), 1_000_000);
        let web = Tenant { name: "web".into(), ..Tenant::default() };
        let (tenant, more) = numbered(&web, 2_000_000);
        numbers.extend(more);
        let (keys, more) = numbered(&Keys::default(), 3_000_000);
        numbers.extend(more);
        assert!(numbers.len() > 50, "{numbers:?}");
        let keys = Keys { tenants: vec![tenant], ..keys };
        let report = Report { memory: Some(memory), keys: Some(keys), ..Report::default() };
        let text = render(&[told(2, Some(Ok(report)))]);
        for (name, number) in numbers {
            assert!(text.lines().any(|line| line.ends_with(&format!(" {number}"))), "{name}");
        }
    }

    #[test]
    fn labels_are_escaped_and_who_is_silent_is_down() {
        let text = render(&some());
        assert!(text.contains("trapeze_reads_total{node=\"2\",name=\"a\\\"2\"} 7\n"), "{text}");
        let of = "{node=\"2\",name=\"a\\\"2\",";
        for line in [
            format!("trapeze_memory_bytes{of}role=\"hosted\"}} 8192\n"),
            format!("trapeze_memory_pages_total{of}source=\"peer\"}} 5\n"),
            format!("trapeze_memory_latency_p50_seconds{of}source=\"peer\"}} 0.0000075\n"),
            format!("trapeze_memory_latency_p99_seconds{of}source=\"peer\"}} NaN\n"),
            format!("trapeze_memory_oldest_seconds{}}} 2.5\n", of.trim_end_matches(',')),
            format!("trapeze_reads_found_total{of}source=\"disk\"}} 3\n"),
            format!("trapeze_read_latency_p50_seconds{of}source=\"disk\"}} 0.00006\n"),
            format!("trapeze_keys_hits_total{of}tenant=\"web\"}} 9\n"),
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("disk=\"/d\\\\1\"} 1\n"), "{text}");
        assert!(!text.contains("source=\"storage\""), "no node has any");
        for (node, up) in [(2, 1), (3, 0), (4, 1)] {
            assert!(
                text.contains(&format!(
                    "trapeze_up{{node=\"{node}\",name=\"a\\\"{node}\"}} {up}\n"
                ))
            );
        }
    }
}
