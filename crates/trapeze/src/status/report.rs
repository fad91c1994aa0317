//! What a machine tells about itself. Counters are since its start, sizes in bytes.
#![allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`

use super::memory::Memory;
use serde::{Deserialize, Serialize};

/// Everything. Unknown fields are passed over and missing ones are empty: machines of two releases understand each
/// other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub version: String,
    pub uptime_s: u64,
    pub resident_bytes: u64,
    pub cpu_ms: u64,
    pub pool: Pool,
    /// Of an I/O server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Of who lends memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    pub links: Vec<Link>,
    pub wait: Wait,
    pub rpc: Rpc,
    /// The latest things that went wrong, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Of the manager: how long the members still are members, or are none any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<Lease>,
}

/// Payload frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pool {
    pub bytes: u64,
    pub free_bytes: u64,
    pub free_bytes_min: u64,
}

/// Objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Io {
    pub cache_bytes: u64,
    pub cached_bytes: u64,
    /// Written and not yet stable.
    pub dirty_bytes: u64,
    pub logged_bytes: u64,
    pub reads: u64,
    pub hits: u64,
    pub misses: u64,
    pub read_bytes: u64,
    /// Chunks of 32 KiB or less that left the cache for network memory, came back or were read there, the latter alone,
    /// and did not come; of these, wrong ones.
    pub network_sent: u64,
    pub network_hits: u64,
    pub network_in_place: u64,
    pub network_misses: u64,
    pub network_wrong: u64,
    /// Times that it was too slow, and a disk asked.
    pub network_late: u64,
    pub disk_reads: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub commits: u64,
    pub torn_blocks: u64,
    pub corrupt_blocks: u64,
    pub damaged_writes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub path: String,
    /// `serving`, `starting`, or why it is not used.
    pub state: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Objects in place, and the storage that they take.
    pub objects: u64,
    pub held_bytes: u64,
    /// Whether all objects were counted; else there are more.
    pub counted: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Link {
    pub peer: u16,
    /// `shm`, `tcp`, `tcp+noise`; empty while there is no connection.
    pub transport: String,
    pub connections: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    pub received: u64,
    pub received_bytes: u64,
    pub drops: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_error: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    pub spins: u64,
    pub spin_hits: u64,
    pub yields: u64,
    pub sleeps: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rpc {
    pub calls: u64,
    pub retries: u64,
    pub executed: u64,
    pub duplicates: u64,
    pub stale_replies: u64,
    pub resets_sent: u64,
    pub sessions_lost: u64,
    pub overloads: u64,
    pub credit_stalls: u64,
    pub answers_lost: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub node: u16,
    pub alive: bool,
    /// How long the lease still lasts, or how long ago it ended.
    pub ms: u64,
}

impl From<netrpc::Counters> for Rpc {
    fn from(counters: netrpc::Counters) -> Rpc {
        Rpc {
            calls: counters.calls,
            retries: counters.retries,
            executed: counters.executed,
            duplicates: counters.duplicates,
            stale_replies: counters.stale_replies,
            resets_sent: counters.resets_sent,
            sessions_lost: counters.sessions_lost,
            overloads: counters.overloads,
            credit_stalls: counters.credit_stalls,
            answers_lost: counters.answers_lost,
        }
    }
}
