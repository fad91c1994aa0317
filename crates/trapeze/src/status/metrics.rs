//! `trapeze metrics`: the servers' counters for Prometheus, asked for at each scrape (text format 0.0.4).
//!
//! HTTP is on threads of its own, a few at a time and each for a few seconds; they pass a scrape to the thread that
//! runs the node and wait for its text. Machines that serve data never talk HTTP.

use super::ask::{Asker, Told};
use super::memory::{Memory, Source};
use super::report::{Disk, Io, Link, Report};
use crate::children::READY;
use crate::cli;
use crate::client::VisitError;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

/// How late a scrape is seen.
const TICK: Duration = Duration::from_millis(20);
/// How long a client may take to ask and to read, and how long it waits for the cluster.
const CLIENT_SPAN: Duration = Duration::from_secs(5);
/// Clients at a time; more are refused.
const CLIENTS_MAX: usize = 16;
/// Bytes of a request.
const REQUEST_BYTES_MAX: u64 = 8 << 10;

/// Somebody waits for the text.
type Scrape = SyncSender<String>;

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
    counter("rpc_sessions_lost_total", "Peers that came back in another life.", |r| {
        r.rpc.sessions_lost as f64
    }),
    counter("rpc_answers_lost_total", "Answers that could not be sent.", |r| {
        r.rpc.answers_lost as f64
    }),
    gauge("problems", "Things that are wrong now.", |r| r.problems.len() as f64),
];

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
    gauge("memory_mirrors_missing", "Pages with too few mirrors.", |m| m.mirrors_missing as f64),
    counter("memory_missed_total", "Pages that were not found.", |m| m.missed as f64),
    counter("memory_damaged_total", "Payloads that were not what was asked for.", |m| {
        m.damaged as f64
    }),
    counter("memory_hedges_total", "Pages asked of storage beside a slow peer.", |m| {
        m.hedges as f64
    }),
    counter("memory_served_total", "Pages sent to who asked.", |m| m.served as f64),
    counter("memory_delegated_total", "Requests passed on to who has the page.", |m| {
        m.delegated as f64
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
    counter("memory_lives_lost_total", "Times that it was given up while it ran.", |m| {
        m.lives_lost as f64
    }),
    counter("memory_epochs_planned_total", "Epochs that it planned.", |m| m.epochs_planned as f64),
];

/// Bytes of network memory, by what is in them.
const OF_PLACES: &[Metric<u64>] =
    &[gauge("memory_bytes", "Network memory by what is in it.", |bytes| *bytes as f64)];

const OF_SOURCES: &[Metric<Source>] = &[
    counter("memory_pages_total", "Pages by where they were found.", |s| s.pages as f64),
    gauge("memory_latency_p50_seconds", "Median of the latest.", |s| seconds(s.p50_ns)),
    gauge("memory_latency_p99_seconds", "99th percentile of the latest.", |s| seconds(s.p99_ns)),
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
        let from = [("local", m.local), ("peer", m.peer), ("storage", m.storage)];
        sources.extend(from.map(|(name, one)| (format!("{labels},source=\"{name}\""), one)));
    }
    write(text, OF_PLACES, parts.iter().map(|(labels, bytes)| (labels.clone(), bytes)));
    write(text, OF_SOURCES, sources.iter().map(|(labels, source)| (labels.clone(), source)));
}

const OF_DISKS: &[Metric<Disk>] = &[
    gauge("disk_serving", "Whether the disk serves.", |disk| f64::from(disk.state == "serving")),
    gauge("disk_bytes", "Size of the disk.", |disk| disk.total_bytes as f64),
    gauge("disk_free_bytes", "Room on the disk.", |disk| disk.free_bytes as f64),
    gauge("disk_held_bytes", "Storage that its objects take.", |disk| disk.held_bytes as f64),
    gauge("disk_objects", "Objects on the disk.", |disk| disk.objects as f64),
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
    let up =
        gauge::<Told>("up", "Whether a server answers; of a client, whether it is alive.", |t| {
            f64::from(match t.report {
                Some(_) => t.report().is_some(),
                None => t.member.alive,
            })
        });
    write(&mut text, &[up], told.iter().map(|told| (server(told), told)));
    let reports = told.iter().filter_map(|told| Some((server(told), told.report()?)));
    write(&mut text, OF_SERVERS, reports.clone());
    let ios = reports.clone().filter_map(|(labels, report)| Some((labels, report.io.as_ref()?)));
    write(&mut text, OF_IO, ios);
    let memories =
        reports.clone().filter_map(|(labels, report)| Some((labels, report.memory.as_ref()?)));
    write_memory(&mut text, memories);
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
    let listener = TcpListener::bind(&arguments.listen).map_err(|error| {
        let text = format!("--listen {}: {error}", arguments.listen);
        io::Error::new(error.kind(), text)
    })?;
    let mut asker = Asker::start(&arguments.target)?;
    println!("{READY} http://{}/metrics", listener.local_addr()?);
    let (scrapes, asked) = channel();
    thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &scrapes))?;
    while asker.wait(TICK)? {
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

fn accept(listener: &TcpListener, scrapes: &Sender<Scrape>) {
    let clients = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(TICK); // out of descriptors, say
            continue;
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
            clients.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (scrapes, clients) = (scrapes.clone(), clients.clone());
        let serve = move || {
            let _ = serve(stream, &scrapes);
            clients.fetch_sub(1, Ordering::Relaxed);
        };
        let _ = thread::Builder::new().name("scrape".into()).spawn(serve);
    }
}

fn serve(stream: TcpStream, scrapes: &Sender<Scrape>) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_SPAN))?;
    stream.set_write_timeout(Some(CLIENT_SPAN))?;
    let asked = request(&stream)?;
    let (status, kind, text) = match asked.as_deref() {
        Some("/metrics") => scrape(scrapes),
        Some("/") => ("200 OK", "text/plain", "counters are at /metrics\n".to_string()),
        Some(_) => ("404 Not Found", "text/plain", "counters are at /metrics\n".to_string()),
        None => {
            ("400 Bad Request", "text/plain", "GET /metrics HTTP/1.1 is understood\n".to_string())
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    (&stream).write_all(head.as_bytes())?;
    (&stream).write_all(text.as_bytes())
}

fn scrape(scrapes: &Sender<Scrape>) -> (&'static str, &'static str, String) {
    let (sender, receiver) = sync_channel(1);
    let text = scrapes.send(sender).ok().and_then(|()| receiver.recv_timeout(CLIENT_SPAN).ok());
    match text {
        Some(text) => ("200 OK", "text/plain; version=0.0.4", text),
        None => {
            ("503 Service Unavailable", "text/plain", "the cluster does not answer\n".to_string())
        }
    }
}

/// Reads a request to its end; the path of a GET.
fn request(stream: &TcpStream) -> io::Result<Option<String>> {
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let words: Vec<&str> = first.split(' ').collect();
    let path = match words[..] {
        ["GET", path, "HTTP/1.0" | "HTTP/1.1"] => Some(path),
        _ => None,
    };
    Ok(path.map(|path| path.split('?').next().unwrap_or(path).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ask;
    use std::collections::BTreeSet;
    use wire::Errno;

    fn told(id: u16, report: Option<Result<Report, Errno>>) -> Told {
        ask::tests::told(id, &format!("a\"{id}"), report)
    }

    fn some() -> Vec<Told> {
        let disk = Disk { path: "/d\\1".into(), state: "serving".into(), ..Disk::default() };
        let io = Some(Io { reads: 7, ..Io::default() });
        let peer = Source { pages: 5, p50_ns: Some(7500), p99_ns: None };
        let memory = Some(Memory { hosted_bytes: 8192, peer, ..Memory::default() });
        let report = Report {
            io,
            disks: vec![disk],
            links: vec![Link::default()],
            memory,
            ..Report::default()
        };
        vec![told(2, Some(Ok(report))), told(3, Some(Err(Errno::ETIMEDOUT))), told(4, None)]
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
        ] {
            assert!(text.contains(&line), "{line}{text}");
        }
        assert!(text.contains("disk=\"/d\\\\1\"} 1\n"), "{text}");
        for (node, up) in [(2, 1), (3, 0), (4, 1)] {
            assert!(
                text.contains(&format!(
                    "trapeze_up{{node=\"{node}\",name=\"a\\\"{node}\"}} {up}\n"
                ))
            );
        }
    }

    /// What a client gets that sends this.
    fn asked(sent: &[u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        client.write_all(sent).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let (sender, receiver) = channel::<Scrape>();
        let cluster = thread::spawn(move || {
            receiver.iter().for_each(|scrape| scrape.send("numbers 1\n".into()).unwrap());
        });
        let _ = serve(stream, &sender);
        drop(sender);
        cluster.join().unwrap();
        let mut text = String::new();
        let _ = client.read_to_string(&mut text);
        text
    }

    #[test]
    fn http_is_answered() {
        let good = asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            good.starts_with("HTTP/1.1 200") && good.ends_with("\r\n\r\nnumbers 1\n"),
            "{good}"
        );
        assert!(asked(b"GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        for bad in [&b"POST /metrics HTTP/1.1\r\n\r\n"[..], b"", b"GET", b"GET /metrics\r\n\r\n"] {
            assert!(asked(bad).starts_with("HTTP/1.1 400"), "{bad:?}");
        }
        assert!(!asked(&[0xff; 9000]).contains("200 OK"));
    }
}
