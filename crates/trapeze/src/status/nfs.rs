//! A server of NFS, as it tells of itself.

use super::figures::{Figure, Number, figures};
use nfs::front::{Counted, Front, name};
use nfs::locks::Holding;
use node::rings::LockKind;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// The front of a node that serves NFS; `None` on every other node.
pub type SharedFront = Rc<RefCell<Option<Rc<RefCell<Front>>>>>;

figures! {
    /// Counters since its start.
    #[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
    pub struct Nfs {
        connections => gauge "nfs_connections", "Connections of clients of NFS.";
        received_bytes => counter "nfs_received_bytes_total", "Bytes that they sent.";
        sent_bytes => counter "nfs_sent_bytes_total", "Bytes that they were sent.";
        /// Duplicate calls, records that are no call, connections whose clients stood still.
        duplicates => counter "nfs_duplicates_total", "Calls that were received more than once.";
        refused;
        stalled => counter "nfs_stalled_total", "Connections whose clients stood still.";
        /// Calls of a filter: those that managers executed, and those that it executed itself.
        forwarded => counter "nfs_forwarded_total", "Calls that a filter had managers execute.";
        executed_here => counter "nfs_executed_here_total", "Calls of NFS that a filter executed itself.";
        moved => counter "nfs_forwarded_moved_total", "Forwarded calls that found another owner of their site.";
        retransmitted => counter "nfs_forwarded_retransmitted_total", "Forwarded calls that were retransmitted to a manager that was away.";
        dropped => counter "nfs_forwarded_dropped_total", "Forwarded calls without a reply: clients retransmit them.";
        locks => gauge "nfs_locks", "Locks that clients of NFS hold.";
        waiting_locks => gauge "nfs_waiting_locks", "Locks that clients of NFS wait for.";
        granted_locks => counter "nfs_granted_locks_total", "Locks that clients waited for and were called for.";
        reclaimed_locks => counter "nfs_reclaimed_locks_total", "Locks that clients had before the server restarted.";
        restarted_clients => counter "nfs_restarted_clients_total", "Clients with locks that said they had restarted.";
        /// The server has just started: only clients that had locks get some.
        in_grace: bool => gauge "nfs_in_grace", "Whether only locks from before a restart are given.";
        holders: Vec<Holder>;
        procedures: Vec<Procedure>;
        clients: Vec<Client>
            => gauge "nfs_clients", "Clients of NFS that it heard of.", |nfs| nfs.clients.len() as f64;
    }
}

figures! {
    /// Calls of one procedure.
    #[allow(missing_docs)]
    pub struct Procedure {
        name: String;
        calls => counter "nfs_calls_total", "Calls of NFS, by procedure.";
        errors => counter "nfs_errors_total", "Of these, those that were answered with an error.";
        /// Upper ends of the powers of two within which half of all ended, and 99 of 100.
        p50_us => gauge "nfs_latency_p50_seconds", "Median since its start.", |p| p.p50_us as f64 / 1e6;
        p99_us => gauge "nfs_latency_p99_seconds", "99th percentile since its start.", |p| p.p99_us as f64 / 1e6;
    }
}

/// A client, by its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Client {
    pub address: String,
    pub connections: u64,
    pub calls: u64,
}

/// A holder of a lock, or a waiter for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Holder {
    pub client: String,
    /// The name that the client gives itself.
    pub name: String,
    pub process: i64,
    /// Its number: what `stat` shows as inode.
    pub file: u64,
    pub first: u64,
    /// The last byte; none is the end of the file, wherever that is.
    pub last: Option<u64>,
    pub exclusive: bool,
    pub waits: bool,
}

impl Holder {
    fn of(holding: Holding) -> Holder {
        let lock = holding.lock;
        Holder {
            client: holding.client.to_string(),
            name: String::from_utf8_lossy(&holding.name).into_owned(),
            process: holding.process.into(),
            file: holding.file.0,
            first: lock.start,
            last: Some(lock.end).filter(|end| *end != u64::MAX),
            exclusive: lock.kind == LockKind::Write,
            waits: holding.waits,
        }
    }
}

impl Nfs {
    /// As it is now.
    pub fn of(front: &Front) -> Nfs {
        let counters = front.counters();
        let client = |(address, client): (&std::net::IpAddr, &nfs::front::Client)| Client {
            address: address.to_string(),
            connections: client.connections.into(),
            calls: client.calls,
        };
        let locks = front.server().locks().borrow();
        let counted = locks.counters();
        Nfs {
            connections: front.connections() as u64,
            received_bytes: counters.received_bytes,
            sent_bytes: counters.sent_bytes,
            duplicates: counters.duplicates,
            refused: counters.refused,
            stalled: counters.stalled,
            forwarded: counters.forwarded.calls,
            executed_here: counters.executed_here,
            moved: counters.forwarded.moved,
            retransmitted: counters.forwarded.retransmitted,
            dropped: counters.forwarded.dropped,
            locks: locks.held() as u64,
            waiting_locks: locks.waiting() as u64,
            granted_locks: counted.granted,
            reclaimed_locks: counted.reclaimed,
            restarted_clients: counted.restarts,
            in_grace: locks.in_grace(),
            holders: locks.holdings().take(HOLDERS_MAX).map(Holder::of).collect(),
            procedures: counters.procedures().map(|(of, it)| Procedure::of(*of, it)).collect(),
            clients: counters.clients().take(CLIENTS_MAX).map(client).collect(),
        }
    }
}

/// Locks in a report: 256 of some 150 bytes are 38 KiB.
const HOLDERS_MAX: usize = 256;
/// Clients in a report: 256 of some 70 bytes are 18 KiB.
const CLIENTS_MAX: usize = 256;

impl Procedure {
    fn of(of: (u32, u32), counted: &Counted) -> Procedure {
        let quantile = |of| counted.quantile(of).map_or(0, |took| took.as_micros() as u64);
        Procedure {
            name: name(of),
            calls: counted.calls,
            errors: counted.errors,
            p50_us: quantile(500),
            p99_us: quantile(990),
        }
    }
}
