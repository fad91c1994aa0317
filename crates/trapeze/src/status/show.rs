//! The asker's side: every server's report, as tables or JSON.

use super::report::{Lease, Report};
use super::service::{PART_BYTES, REPORT};
use crate::cli;
use crate::client::{Reach, ReachError};
use crate::machine::Running;
use crate::serve::{self, ServeError};
use crate::size::Size;
use crate::table::{Table, print_json};
use live::signals;
use members::{Member, Roles};
use node::{Call, Cx};
use serde_json::json;
use std::io;
use std::time::Duration;
use wire::codec::{Decoder, Encoder};
use wire::{Channel, Errno, NodeId};

/// How long a machine's answer is waited for.
const ANSWER_SPAN: Duration = Duration::from_secs(2);
/// What every listing says, so that nobody learns it from a lost disk.
const ONE_COPY: &str = "every file has one copy: a lost disk loses its part of every file";

/// Why there is no status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The cluster.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// Saying good-bye.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
}

/// A member and what it told.
struct Told {
    member: Member,
    lease: Option<Lease>,
    /// `None`: it was not asked, because it listens nowhere.
    report: Option<Result<Report, Errno>>,
}

/// `trapeze status`.
pub fn status(arguments: &cli::Status) -> Result<(), StatusError> {
    let mut running = Reach::from(&arguments.target).client("status")?;
    signals::install()?;
    running.host.add(signals::Signals::default())?;
    loop {
        let told = ask(&mut running)?;
        if arguments.target.json {
            print_all_json(&told)
        } else {
            print_tables(&told)
        }
        let Some(seconds) = arguments.watch else { break };
        if crate::output::has_failed() || !wait(&mut running, seconds)? {
            break;
        }
        println!();
    }
    Ok(serve::stop(running)?)
}

/// Waits; false when asked to stop.
fn wait(running: &mut Running, seconds: u64) -> io::Result<bool> {
    let cx = running.host.node().cx().clone();
    let until = cx.now() + Duration::from_secs(seconds);
    cx.spawn("watch", {
        let cx = cx.clone();
        async move { cx.sleep_until(until).await }
    });
    running.host.run(|| signals::asked() || cx.now() >= until)?;
    Ok(!signals::asked())
}

fn ask(running: &mut Running) -> io::Result<Vec<Told>> {
    let client = running.services.member.clone().expect("a client is a member");
    let cx = running.host.node().cx().clone();
    running.host.block_on(async move {
        let _ = client.refresh().await; // the view that it has is good enough
        let directory = client.directory();
        let members: Vec<Member> =
            directory.iter().filter(|member| member.id != cx.id()).cloned().collect();
        let asks = members.iter().map(|member| report_of(&cx, member));
        let reports = node::all(asks).await;
        let leases = reports.iter().flatten().flatten().flat_map(|report| &report.leases);
        let leases: Vec<Lease> = leases.copied().collect();
        let tell = |(member, report): (Member, Option<Result<Report, Errno>>)| {
            let lease = leases.iter().find(|lease| lease.node == member.id.0).copied();
            let alive = lease.map_or(member.alive, |lease| lease.alive);
            Told { member: Member { alive, ..member }, lease, report }
        };
        members.into_iter().zip(reports).map(tell).collect()
    })
}

async fn report_of(cx: &Cx, member: &Member) -> Option<Result<Report, Errno>> {
    if !member.roles.is_server() {
        return None;
    }
    if !member.alive {
        return Some(Err(Errno::EHOSTDOWN));
    }
    let asked = cx.with_deadline(ANSWER_SPAN, fetch(cx, member.id)).await;
    Some(asked.unwrap_or(Err(Errno::ETIMEDOUT)))
}

async fn fetch(cx: &Cx, server: NodeId) -> Result<Report, Errno> {
    let mut text = Vec::new();
    loop {
        let mut body = [0; 4];
        Encoder::new(&mut body).u32(text.len() as u32);
        let frame = cx.frames().alloc(PART_BYTES).ok_or(Errno::ENOMEM)?;
        let call = Call {
            to: server,
            channel: Channel::STATUS,
            op: REPORT,
            once: false,
            deadline: Some(ANSWER_SPAN),
            body: &body,
            data: cx.pieces(),
            trailer: &[],
            into: cx.piece(frame),
        };
        let reply = cx.call(call).await.map_err(Errno::from)?.ok()?;
        let whole = Decoder::new(&reply.body).u32().map_err(|_| Errno::EPROTO)? as usize;
        let part = reply.data.first().map_or(&[][..], |frame| &frame[..reply.bytes]);
        text.extend_from_slice(part);
        if text.len() >= whole {
            return serde_json::from_slice(&text).map_err(|_| Errno::EPROTO);
        }
        if part.is_empty() {
            return Err(Errno::EPROTO);
        }
    }
}

fn role_names(member: &Member) -> Vec<&'static str> {
    let all = [
        (Roles::MANAGER, "manager"),
        (Roles::IO, "io"),
        (Roles::CLIENT, "client"),
        (Roles::MEMORY, "memory"),
    ];
    all.iter().filter(|(role, _)| member.roles.contains(*role)).map(|(_, name)| *name).collect()
}

fn print_all_json(told: &[Told]) {
    let down = told.iter().filter(|told| !told.member.alive).count();
    print_json(&json!({ "members": told.len(), "down": down, "copies": 1, "note": ONE_COPY }));
    for Told { member, lease, report } in told {
        let (report, error) = match report {
            Some(Ok(report)) => (Some(report), None),
            Some(Err(errno)) => (None, Some(errno.to_string())),
            None => (None, None),
        };
        print_json(&json!({
            "node": member.id.0, "name": member.name, "roles": role_names(member), "alive": member.alive,
            "lease_ms": lease.filter(|lease| lease.alive).map(|lease| lease.ms),
            "down_ms": lease.filter(|lease| !lease.alive).map(|lease| lease.ms),
            "incarnation": member.incarnation, "addresses": member.addresses, "report": report, "error": error,
        }));
    }
}

fn print_tables(told: &[Told]) {
    print!("{}", members_table(told).render());
    let reports: Vec<(&Member, &Report)> = told
        .iter()
        .filter_map(|told| Some((&told.member, told.report.as_ref()?.as_ref().ok()?)))
        .collect();
    for table in [disks_table(&reports), blocks_table(&reports), links_table(&reports)] {
        print!("\n{}", table.render());
    }
    print!("\n{}", calls_table(&reports).render());
    for (member, report) in &reports {
        report.problems.iter().for_each(|problem| println!("{}: {problem}", member.name));
    }
    println!("\n{ONE_COPY}");
}

/// `up`, `DOWN`, or alive and silent; and since or for how long.
fn state(told: &Told) -> [String; 2] {
    let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
    let lease = told.lease.map(|lease| seconds(lease.ms)).unwrap_or_default();
    match (&told.report, told.member.alive) {
        (_, false) => ["DOWN".into(), format!("ended {lease} ago")],
        (Some(Err(errno)), true) => [format!("no answer: {errno}"), lease],
        _ => ["up".into(), lease],
    }
}

fn members_table(told: &[Told]) -> Table {
    let mut table = Table::new(&["node", "name", "roles", "state", "lease", "addresses"]);
    for one in told {
        let member = &one.member;
        let [state, lease] = state(one);
        let roles = role_names(member).join(",");
        let addresses = member.addresses.join(" ");
        table.row(&[member.id.0.to_string(), member.name.clone(), roles, state, lease, addresses]);
    }
    table
}

fn disks_table(reports: &[(&Member, &Report)]) -> Table {
    let headings = ["disk of", "state", "size", "free", "holds", "objects", "directory"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        for disk in &report.disks {
            let [total, free] =
                [disk.total_bytes, disk.free_bytes].map(|bytes| Size(bytes).to_string());
            // What could not be counted in time is more than this.
            let more = if disk.counted { "" } else { "+" };
            table.row(&[
                member.name.clone(),
                disk.state.clone(),
                total,
                free,
                format!("{}{more}", Size(disk.held_bytes)),
                format!("{}{more}", disk.objects),
                disk.path.clone(),
            ]);
        }
    }
    table
}

fn blocks_table(reports: &[(&Member, &Report)]) -> Table {
    let headings = [
        "memory of",
        "process",
        "pool",
        "free",
        "cache",
        "cached",
        "dirty",
        "read",
        "hits",
        "written",
    ];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let io = report.io.unwrap_or_default();
        let bytes = [
            report.resident_bytes,
            report.pool.bytes,
            report.pool.free_bytes,
            io.cache_bytes,
            io.cached_bytes,
            io.dirty_bytes,
            io.read_bytes,
        ];
        let mut row = vec![member.name.clone()];
        row.extend(bytes.map(|bytes| Size(bytes).to_string()));
        row.push(match io.hits + io.misses {
            0 => "-".to_string(),
            all => format!("{}%", io.hits * 100 / all),
        });
        row.push(Size(io.written_bytes).to_string());
        table.row(&row);
    }
    table
}

fn links_table(reports: &[(&Member, &Report)]) -> Table {
    let headings =
        ["link of", "to node", "by", "sent", "bytes", "received", "bytes", "dropped", "trouble"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        for link in &report.links {
            let by = if link.transport.is_empty() { "-" } else { &link.transport };
            table.row(&[
                member.name.clone(),
                link.peer.to_string(),
                by.to_string(),
                link.sent.to_string(),
                Size(link.sent_bytes).to_string(),
                link.received.to_string(),
                Size(link.received_bytes).to_string(),
                link.drops.to_string(),
                link.last_error.clone(),
            ]);
        }
    }
    table
}

fn calls_table(reports: &[(&Member, &Report)]) -> Table {
    let headings = [
        "calls of",
        "made",
        "served",
        "sent again",
        "came again",
        "stalled",
        "refused",
        "lost",
        "spins",
        "hits",
        "yields",
        "sleeps",
        "cpu s",
    ];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let (rpc, wait) = (&report.rpc, &report.wait);
        let numbers = [
            rpc.calls,
            rpc.executed,
            rpc.retries,
            rpc.duplicates,
            rpc.credit_stalls,
            rpc.overloads,
            rpc.answers_lost,
            wait.spins,
            wait.spin_hits,
            wait.yields,
            wait.sleeps,
        ];
        let mut row = vec![member.name.clone()];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(format!("{:.1}", report.cpu_ms as f64 / 1000.0));
        table.row(&row);
    }
    table
}
