//! A server of NFS, as it tells of itself.

use nfs::front::{Counted, Front, name};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::rc::Rc;

/// The front of a node that serves NFS; `None` on every other node.
pub type SharedFront = Rc<RefCell<Option<Rc<RefCell<Front>>>>>;

/// What it did since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
pub struct Nfs {
    pub connections: u64,
    pub received_bytes: u64,
    pub sent_bytes: u64,
    /// Calls that had come before, records that are no call, connections whose clients stood still.
    pub duplicates: u64,
    pub refused: u64,
    pub stalled: u64,
    pub procedures: Vec<Procedure>,
    pub clients: Vec<Client>,
}

/// Calls of one procedure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Procedure {
    pub name: String,
    pub calls: u64,
    pub errors: u64,
    /// Upper ends of the powers of two within which half of all ended, and 99 of 100.
    pub p50_us: u64,
    pub p99_us: u64,
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

impl Nfs {
    /// As it is now.
    pub fn of(front: &Front) -> Nfs {
        let counters = front.counters();
        let client = |(address, client): (&std::net::IpAddr, &nfs::front::Client)| Client {
            address: address.to_string(),
            connections: client.connections.into(),
            calls: client.calls,
        };
        Nfs {
            connections: front.connections() as u64,
            received_bytes: counters.received_bytes,
            sent_bytes: counters.sent_bytes,
            duplicates: counters.duplicates,
            refused: counters.refused,
            stalled: counters.stalled,
            procedures: counters.procedures().map(|(of, it)| Procedure::of(*of, it)).collect(),
            clients: counters.clients().take(CLIENTS_MAX).map(client).collect(),
        }
    }
}

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
