//! Every server's report: whether all is well, then tables or JSON.

use super::keyboard::Keyboard;
use super::verdict::{NotWell, gone_files, groups, line, troubles};
use super::{ethernet, import, keys, memory, nfs, reads};
use crate::cli;
use members::limits::JOINING_IDS;
use members::{Member, Roles};
use serde_json::json;
use std::time::Duration;
use terminal::table::{Table, print_json};
use trapeze::ask::{Asker, Told};
use trapeze::client::Reach;
use trapeze::size::Size;
use trapeze::status::report::{Link, Report};

/// Part of every listing, so that the user learns it before a disk is lost.
fn copies(told: &[Told]) -> String {
    match groups(told) {
        (0, _) => "every file has one copy: a lost disk loses its part of every file".to_string(),
        (all, 0) => format!("every file has two whole copies, in {all} groups of disks"),
        (all, lacking) => {
            format!("{lacking} of {all} groups of disks lack a copy of what they keep")
        }
    }
}

/// `trapeze status`.
pub fn status(arguments: &cli::Status) -> Result<(), Box<dyn std::error::Error>> {
    let mut asker = Asker::start(&Reach::from(&arguments.target.cluster))?;
    let keyboard = arguments.watch.map(|_| Keyboard::take());
    let well = loop {
        let told = asker.ask()?;
        let troubles = troubles(&told);
        match (arguments.target.json, arguments.all) {
            (true, _) => print_all_json(&told, &troubles),
            (false, true) => print_tables(&told, &troubles),
            (false, false) => print_short(&told, &troubles),
        }
        let well = troubles.is_empty();
        let Some(seconds) = arguments.watch else { break well };
        let quits = || keyboard.as_ref().is_some_and(Keyboard::quits);
        let wait = asker.wait(Duration::from_secs(seconds), quits);
        if trapeze::output::has_failed() || !wait? {
            break well;
        }
        println!();
    };
    asker.stop()?;
    if well { Ok(()) } else { Err(NotWell.into()) }
}

pub(super) fn role_names(member: &Member) -> Vec<&'static str> {
    let all = [
        (Roles::MANAGER, "manager"),
        (Roles::IO, "io"),
        (Roles::CLIENT, "client"),
        (Roles::MEMORY, "memory"),
    ];
    all.iter().filter(|(role, _)| member.roles.contains(*role)).map(|(_, name)| *name).collect()
}

fn print_all_json(told: &[Told], troubles: &[String]) {
    let down = told.iter().filter(|told| !told.member.alive && !told.member.gone).count();
    let gone = told.iter().filter(|told| told.member.lost_disks() != 0).count();
    print_json(&json!({
        "well": troubles.is_empty(), "troubles": troubles, "members": told.len(), "down": down, "gone": gone,
        "gone_files": gone_files(told), "copies": if groups(told).0 == 0 { 1 } else { 2 }, "groups": groups(told).0,
        "groups_lacking": groups(told).1, "note": copies(told),
    }));
    for Told { member, lease, report } in told {
        let (report, error) = match report {
            Some(Ok(report)) => (Some(report), None),
            Some(Err(errno)) => (None, Some(errno.to_string())),
            None => (None, None),
        };
        print_json(&json!({
            "node": member.id.0, "name": member.name, "roles": role_names(member), "alive": member.alive,
            "gone": member.gone, "gone_disks": member.gone_disks,
            "retired": member.retired, "drained": member.drained,
            "lease_ms": lease.filter(|lease| lease.alive).map(|lease| lease.ms),
            "down_ms": lease.filter(|lease| !lease.alive).map(|lease| lease.ms),
            "incarnation": member.incarnation, "addresses": member.addresses, "report": report, "error": error,
        }));
    }
}

/// The short answer: whether all is well, and which members there are.
fn print_short(told: &[Told], troubles: &[String]) {
    println!("{}\n", line(told, troubles));
    let there: Vec<&Told> = told.iter().filter(|one| one.member.roles.is_server()).collect();
    print!("{}", members_table(&there).render());
    println!("\n{}; --all shows disks, memory, links and calls", copies(told));
}

fn print_tables(told: &[Told], troubles: &[String]) {
    println!("{}\n", line(told, troubles));
    let copies = copies(told);
    let told: Vec<&Told> = told.iter().collect();
    let told = &told[..];
    print!("{}", members_table(told).render());
    let reports: Vec<(&Member, &Report)> = told
        .iter()
        .filter_map(|told| Some((&told.member, told.report.as_ref()?.as_ref().ok()?)))
        .collect();
    let any = |has: fn(&Report) -> bool| reports.iter().any(|(_, report)| has(report));
    let memory = any(|report| report.memory.is_some()).then(|| memory::table(&reports));
    let keys = any(|report| report.keys.is_some()).then(|| keys::table(&reports));
    let imports = any(|report| report.import.is_some()).then(|| import::table(&reports));
    let has_nfs = any(|report| report.nfs.is_some());
    let nfs = has_nfs.then(|| [nfs::calls(&reports), nfs::clients(&reports)]);
    let has_locks = any(|report| report.nfs.as_ref().is_some_and(|nfs| !nfs.holders.is_empty()));
    let locks = has_locks.then(|| nfs::locks(&reports));
    let blocks = [disks_table(&reports), blocks_table(&reports), reads::table(&reports)];
    let stores = any(|report| !report.stores.is_empty()).then(|| stores_table(&reports));
    let hinted = any(|report| report.io.is_some_and(|io| io.hints > 0) || report.mount.is_some());
    let hints = hinted.then(|| hints_table(&reports));
    let tables = blocks.into_iter().chain(hints).chain(stores).chain(memory).chain(keys);
    let filters = any(|report| report.nfs.as_ref().is_some_and(|nfs| nfs.forwarded > 0));
    let filters = filters.then(|| nfs::forwarded(&reports));
    let tables = tables.chain(nfs.into_iter().flatten()).chain(filters).chain(locks).chain(imports);
    let frames = any(|report| report.ethernet.is_some()).then(|| ethernet::table(&reports));
    for table in tables.chain([links_table(&reports)]).chain(frames) {
        print!("\n{}", table.render());
    }
    print!("\n{}", calls_table(&reports).render());
    for (member, report) in &reports {
        report.problems.iter().for_each(|problem| println!("{}: {problem}", member.name));
    }
    println!("\n{copies}");
}

/// `up`, `DOWN`, or alive and silent; and since or for how long.
pub(super) fn state(told: &Told) -> [String; 2] {
    let seconds = |ms: u64| format!("{:.1} s", ms as f64 / 1000.0);
    let lease = told.lease.map(|lease| seconds(lease.ms)).unwrap_or_default();
    if told.member.gone {
        return ["gone for good".into(), String::new()];
    }
    match (&told.report, told.member.alive) {
        (_, false) => ["DOWN".into(), format!("ended {lease} ago")],
        (Some(Err(errno)), true) => [format!("no answer: {errno}"), lease],
        _ if told.member.drained => ["up, owns no names, may be stopped".into(), lease],
        _ if told.member.retired => ["up, gives its names away".into(), lease],
        _ => ["up".into(), lease],
    }
}

fn members_table(told: &[&Told]) -> Table {
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
    let headings = ["disk of", "state", "size", "free", "holds", "objects", "scrub", "directory"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        for disk in &report.disks {
            let [total, free] =
                [disk.total_bytes, disk.free_bytes].map(|bytes| Size(bytes).to_string());
            // Bytes that could not be counted in time come on top of this.
            let more = if disk.counted { "" } else { "+" };
            table.row(&[
                member.name.clone(),
                disk.state.clone(),
                total,
                free,
                format!("{}{more}", Size(disk.held_bytes)),
                format!("{}{more}", disk.objects),
                disk.scrub.shown(),
                disk.path.clone(),
            ]);
        }
    }
    table
}

fn stores_table(reports: &[(&Member, &Report)]) -> Table {
    let mut table = Table::new(&["stores of", "store", "sites", "keys", "scrub", "damaged reads"]);
    for (member, report) in reports {
        for store in &report.stores {
            table.row(&[
                member.name.clone(),
                store.name.clone(),
                if store.name == "names" { report.sites.to_string() } else { "-".into() },
                store.scrub_total_keys.to_string(),
                store.shown(),
                store.damaged_reads.to_string(),
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
        "by network memory",
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
        row.push(match io.network_hits + io.network_misses {
            0 => "-".to_string(),
            asked => format!("{} of {asked}", io.network_hits),
        });
        row.push(Size(io.written_bytes).to_string());
        table.row(&row);
    }
    table
}

/// Reads that programs announced: as I/O servers did them, and as they served the reads of mounts.
fn hints_table(reports: &[(&Member, &Report)]) -> Table {
    let headings = ["hints of", "waiting", "asked for", "refused", "from disks", "reads served"];
    let mut table = Table::new(&headings);
    let dash = || "-".to_string();
    for (member, report) in reports {
        if let Some(io) = report.io.filter(|io| io.hints > 0) {
            let [asked, refused] = [io.hints, io.hints_refused].map(|count| count.to_string());
            let bytes = Size(io.hinted_bytes).to_string();
            table.row(&[member.name.clone(), dash(), asked, refused, bytes, dash()]);
        }
        if let Some(mount) = report.mount {
            let [waiting, served] =
                [mount.hints, mount.hinted_reads].map(|count| count.to_string());
            table.row(&[member.name.clone(), waiting, dash(), dash(), dash(), served]);
        }
    }
    table
}

fn links_table(reports: &[(&Member, &Report)]) -> Table {
    let headings =
        ["link of", "to node", "by", "sent", "bytes", "received", "bytes", "dropped", "trouble"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        // A node without an id of its own only asks: this command is one.
        let known = |link: &&Link| !JOINING_IDS.contains(&link.peer);
        for link in report.links.iter().filter(known) {
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
        "retransmitted",
        "duplicates",
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
