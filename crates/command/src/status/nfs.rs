//! Servers of NFS, as they are shown.

use members::Member;
use terminal::table::Table;
use trapeze::size::Size;
use trapeze::status::report::Report;

/// Calls of each server, by procedure.
pub(super) fn calls(reports: &[(&Member, &Report)]) -> Table {
    let mut table = Table::new(&["NFS of", "procedure", "calls", "errors", "p50 us", "p99 us"]);
    for (member, report) in reports {
        for procedure in report.nfs.iter().flat_map(|nfs| &nfs.procedures) {
            let numbers = [procedure.calls, procedure.errors, procedure.p50_us, procedure.p99_us];
            let mut row = vec![member.name.clone(), procedure.name.clone()];
            row.extend(numbers.map(|number| number.to_string()));
            table.row(&row);
        }
    }
    table
}

/// Calls that filters had managers execute.
pub(super) fn forwarded(reports: &[(&Member, &Report)]) -> Table {
    let headings =
        ["NFS filter", "forwarded", "executed here", "moved", "retransmitted", "dropped"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let Some(nfs) = report.nfs.as_ref().filter(|nfs| nfs.forwarded > 0) else { continue };
        let numbers = [nfs.forwarded, nfs.executed_here, nfs.moved, nfs.retransmitted, nfs.dropped];
        let numbers = numbers.map(|number| number.to_string());
        table.row(&[&[member.name.clone()][..], &numbers].concat());
    }
    table
}

/// Holders of locks of each server, and waiters.
pub(super) fn locks(reports: &[(&Member, &Report)]) -> Table {
    let headings = ["NFS locks of", "client", "name", "process", "inode", "bytes", "lock"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        for holder in report.nfs.iter().flat_map(|nfs| &nfs.holders) {
            let last = holder.last.map_or("end".to_string(), |last| last.to_string());
            let kind = if holder.exclusive { "exclusive" } else { "shared" };
            let waits = if holder.waits { ", waits" } else { "" };
            table.row(&[
                member.name.clone(),
                holder.client.clone(),
                holder.name.clone(),
                holder.process.to_string(),
                holder.file.to_string(),
                format!("{}-{last}", holder.first),
                format!("{kind}{waits}"),
            ]);
        }
    }
    table
}

/// Clients of each server.
pub(super) fn clients(reports: &[(&Member, &Report)]) -> Table {
    let headings = ["NFS clients of", "client", "connections", "calls", "in all: read", "sent"];
    let mut table = Table::new(&headings);
    for (member, report) in reports {
        let Some(nfs) = &report.nfs else { continue };
        let [received, sent] = [nfs.received_bytes, nfs.sent_bytes].map(|it| Size(it).to_string());
        for client in &nfs.clients {
            let (connections, calls) = (client.connections.to_string(), client.calls.to_string());
            let who = [member.name.clone(), client.address.clone()];
            let row = who.into_iter().chain([connections, calls, received.clone(), sent.clone()]);
            table.row(&row.collect::<Vec<_>>());
        }
    }
    table
}
