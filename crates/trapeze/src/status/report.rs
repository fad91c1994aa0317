//! What a machine tells about itself. Counters are since its start, sizes in bytes.
#![allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`

use super::keys::Keys;
use super::memory::Memory;
use super::nfs::Nfs;
use super::reads::Reads;
use netmem::service::Latency;
use serde::{Deserialize, Serialize};

/// Everything. Unknown fields are passed over and missing ones are empty: machines of two releases understand each
/// other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub version: String,
    /// Which machine it is, the same for all its processes until it is booted anew.
    pub machine: u64,
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
    /// Of a front end for clients of memcached and Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Keys>,
    /// Of a server of NFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nfs: Option<Nfs>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<Disk>,
    pub links: Vec<Link>,
    pub wait: Wait,
    pub rpc: Rpc,
    /// Of the manager.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<StoreHealth>,
    /// Of the manager: files with a column on what was declared gone, as of its last walk over all of them.
    #[serde(default)]
    pub gone_files: u64,
    /// Of the manager of a restored volume: files that were not compared yet with what the disks have, and files
    /// whose objects are not there.
    #[serde(default)]
    pub restored_due: u64,
    #[serde(default)]
    pub restored_lost: u64,
    /// The latest things that went wrong, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Of the manager: how long the members still are members, or are none any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<Lease>,
}

/// What reading a manager's store has come to since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreHealth {
    pub name: String,
    /// Keys read in all rounds of the scrub.
    pub scrubbed_keys: u64,
    /// Keys read in the present round or the last one, of how many, and whether it is under way.
    pub scrub_keys: u64,
    pub scrub_total_keys: u64,
    pub scrub_running: bool,
    pub scrubs_clean: u64,
    pub scrubs_damaged: u64,
    pub damaged_reads: u64,
}

impl StoreHealth {
    /// Of this store.
    pub fn of(name: &str, health: &store::Health) -> StoreHealth {
        StoreHealth {
            name: name.to_string(),
            scrubbed_keys: health.scrub.keys,
            scrub_keys: health.scrub.round_keys,
            scrub_total_keys: health.scrub.total_keys,
            scrub_running: health.scrub.running,
            scrubs_clean: health.scrub.clean,
            scrubs_damaged: health.scrub.damaged,
            damaged_reads: health.damaged_reads,
        }
    }

    /// The part of the present round that is done, or of the last one; nothing before the first.
    pub fn scrubbed(&self) -> Option<f64> {
        let began = self.scrub_running || self.scrubs_clean + self.scrubs_damaged > 0;
        began.then(|| match self.scrub_running {
            true => (self.scrub_keys as f64 / self.scrub_total_keys.max(1) as f64).min(0.99),
            false => 1.0,
        })
    }

    /// For people: how much of the round, and what was found.
    pub fn shown(&self) -> String {
        let damaged = if self.scrubs_damaged > 0 { ", damaged" } else { "" };
        self.scrubbed().map_or("-".into(), |part| format!("{:.0}%{damaged}", part * 100.0))
    }
}

/// How long things from one source took lately: median and 99th percentile, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Took {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
}

impl Took {
    /// Of what was measured.
    pub fn of(latency: &Latency) -> Took {
        let quantile = |per_mille| latency.quantile(per_mille).map(|took| took.as_nanos() as u64);
        Took { p50_ns: quantile(500), p99_ns: quantile(990) }
    }

    /// Both in microseconds, as people read them; `-` when nothing was measured.
    pub fn shown(&self) -> String {
        let us = |ns: u64| match ns {
            ..10_000 => format!("{:.1}", ns as f64 / 1e3),
            ns => format!("{:.0}", ns as f64 / 1e3),
        };
        match (self.p50_ns, self.p99_ns) {
            (Some(p50), Some(p99)) => format!("{}/{}", us(p50), us(p99)),
            _ => "-".to_string(),
        }
    }
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
    /// READs that were answered, by where the slowest of their blocks was.
    pub found: Reads,
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
    /// Objects found damaged since the start; `problems` names them.
    pub damaged_objects: u64,
    pub damaged_writes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    pub path: String,
    /// The file system's device number on its machine.
    pub device: u64,
    /// `serving`, `starting`, or why it is not used.
    pub state: String,
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Objects in place, and the storage that they take.
    pub objects: u64,
    pub held_bytes: u64,
    /// Whether all objects were counted; else there are more.
    pub counted: bool,
    /// How far the scrub has come.
    pub scrub: Scrub,
}

/// The scrub of a disk: everything on it is read once in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scrub {
    /// Rounds over the whole disk since the start.
    pub rounds: u64,
    pub running: bool,
    /// Seconds since the present round began, or the last one; nothing before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began_s: Option<u64>,
    /// Bytes read in it, and what it is about to read in all.
    pub bytes: u64,
    pub total_bytes: u64,
    /// Blocks that it left out, as they were newer in the log.
    pub logged_blocks: u64,
    /// Objects that it could not read; the round does not count when it ends with some.
    pub unread: u64,
    /// Objects in which rounds found damage since the start.
    pub damaged: u64,
    /// Bytes read in all rounds.
    pub all_bytes: u64,
}

impl Scrub {
    /// At this time.
    pub fn of(scrubbed: &stripe::Scrubbed, now: wire::Time) -> Scrub {
        Scrub {
            rounds: scrubbed.rounds,
            running: scrubbed.running,
            began_s: scrubbed.began.map(|began| now.since(began).as_secs()),
            bytes: scrubbed.bytes,
            total_bytes: scrubbed.total,
            logged_blocks: scrubbed.logged_blocks,
            unread: scrubbed.unread,
            damaged: scrubbed.damaged,
            all_bytes: scrubbed.all_bytes,
        }
    }

    /// The part of the present round that is done; of the last one when none is under way, nothing before the first.
    pub fn part(&self) -> Option<f64> {
        self.began_s?;
        let part = self.bytes as f64 / self.total_bytes.max(1) as f64;
        // The disk tells about how much there is: what is not at its end is not all.
        Some(if self.running { part.min(0.99) } else { 1.0 })
    }

    /// For people: how much of it, since when, and what was found since the start.
    pub fn shown(&self) -> String {
        let (Some(part), Some(began)) = (self.part(), self.began_s) else { return "-".to_string() };
        let since = match began {
            ..120 => format!("{began}s"),
            120..7200 => format!("{}min", began / 60),
            7200..172_800 => format!("{}h", began / 3600),
            _ => format!("{}d", began / 86_400),
        };
        let found = match self.damaged {
            0 => String::new(),
            damaged => format!(", {damaged} damaged"),
        };
        format!("{:.0}% in {since}{found}", part * 100.0)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_shown_where_they_are_known() {
        let took = Took { p50_ns: Some(7_440), p99_ns: Some(30_600) };
        assert_eq!(took.shown(), "7.4/31");
        assert_eq!(Took { p50_ns: Some(160), p99_ns: Some(280) }.shown(), "0.2/0.3");
        assert_eq!(Took::default().shown(), "-");
    }
}
