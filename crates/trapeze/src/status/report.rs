//! A machine's report about itself. Counters are since its start, sizes in bytes.
#![allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`

use super::ethernet::Ethernet;
use super::figures::{Figure, Number, figures, seconds};
use super::import::Import;
use super::keys::Keys;
use super::memory::Memory;
use super::nfs::Nfs;
use super::reads::Reads;
use live::link::PeerStatus;
use live::wait::WaitCounters;
use netmem::service::Latency;
use serde::{Deserialize, Serialize};

figures! {
    /// Everything. Unknown fields are passed over and missing ones are empty: machines of two releases understand each
    /// other.
    pub struct Report {
        version: String;
        /// Which machine it is, the same for all its processes until it is booted anew.
        machine;
        uptime_s => gauge "uptime_seconds", "Since the machine's start.";
        resident_bytes => gauge "resident_bytes", "Memory of the process.";
        cpu_ms => counter "cpu_seconds_total", "Processor time of the process.", |r| r.cpu_ms as f64 / 1e3;
        pool: Pool;
        /// Of an I/O server.
        #[serde(skip_serializing_if = "Option::is_none")]
        io: Option<Io>;
        /// Of a machine that lends memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<Memory>;
        /// Of a mount.
        #[serde(skip_serializing_if = "Option::is_none")]
        mount: Option<Mount>;
        /// Of a front end for clients of memcached and Redis.
        #[serde(skip_serializing_if = "Option::is_none")]
        keys: Option<Keys>;
        /// Of a server of NFS.
        #[serde(skip_serializing_if = "Option::is_none")]
        nfs: Option<Nfs>;
        /// Of an importer of another server's export.
        #[serde(skip_serializing_if = "Option::is_none")]
        import: Option<Import>;
        /// Of a machine that sends messages as Ethernet frames.
        #[serde(skip_serializing_if = "Option::is_none")]
        ethernet: Option<Ethernet>;
        #[serde(skip_serializing_if = "Vec::is_empty")]
        disks: Vec<Disk>;
        links: Vec<Link>;
        wait: Wait;
        rpc: Rpc;
        /// Of the manager.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stores: Vec<StoreHealth>;
        /// Of a manager: parts of the name space that it owns, of 256.
        #[serde(default)]
        sites => gauge "sites", "Parts of the name space that the manager owns, of 256.";
        /// Of a manager: of 1000 new directories so many go to the site of their hash.
        #[serde(default)]
        mkdir_switching => gauge "mkdir_switching_per_mille", "New directories of 1000 that go to a manager by the hash of their names.";
        /// Of the manager that keeps the members: groups of disks that keep the same bytes, and those of which a copy
        /// lacks.
        #[serde(default)]
        groups => gauge "groups", "Groups of disks that keep the same bytes.";
        #[serde(default)]
        groups_lacking => gauge "groups_lacking", "Groups of which a copy lacks, or is being filled.";
        /// Of the manager that keeps the members: the groups that count on a copy at each server.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        copies_at: Vec<CopiesAt>;
        /// Of an I/O server: groups of which it has a whole copy. One that has just started has none before it knows.
        #[serde(default)]
        whole_copies => gauge "whole_copies", "Groups of which the I/O server has a whole copy.";
        /// Of the manager: files with a column on what was declared gone, as of its last walk over all of them.
        #[serde(default)]
        gone_files;
        /// Of the manager of a restored volume: files that were not compared yet with what the disks have, and files
        /// whose objects are not there.
        #[serde(default)]
        restored_due => gauge "restored_files_due", "Files of restored names that are left to compare.";
        #[serde(default)]
        restored_lost => gauge "restored_files_lost", "Files of restored names whose objects are not there.";
        /// The latest things that went wrong, as sentences.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        problems: Vec<String> => gauge "problems", "Things that are wrong now.", |r| r.problems.len() as f64;
        /// Of the manager: how long the members still are members, or are none any more.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        leases: Vec<Lease>;
    }
}

figures! {
    /// Health of a manager's store: reads since its start.
    pub struct StoreHealth of (health: &store::Health) {
        name: String;
        /// Keys read in all rounds of the scrub.
        scrubbed_keys = health.scrub.keys
            => counter "store_scrubbed_keys_total", "Keys of the manager's stores that the scrub read.";
        /// Keys read in the present round or the last one, of how many, and whether it is under way.
        scrub_keys = health.scrub.round_keys;
        scrub_total_keys = health.scrub.total_keys;
        scrub_running: bool = health.scrub.running;
        scrubs_clean = health.scrub.clean
            => counter "store_scrubs_clean_total", "Scrubs of a store that found all as it was written.";
        scrubs_damaged = health.scrub.damaged
            => counter "store_scrubs_damaged_total", "Scrubs of a store that found damage.";
        damaged_reads = health.damaged_reads
            => counter "store_damaged_reads_total", "Reads of damaged pages of the manager's stores.";
    }
}

impl StoreHealth {
    /// Of this store.
    pub fn of(name: &str, health: &store::Health) -> StoreHealth {
        StoreHealth { name: name.to_string(), ..StoreHealth::counted(health) }
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

figures! {
    /// Payload frames.
    #[derive(Copy)]
    pub struct Pool {
        bytes => gauge "pool_bytes", "Payload frames.";
        free_bytes => gauge "pool_free_bytes", "Payload frames that nobody has.";
        free_bytes_min => gauge "pool_free_bytes_min", "Fewest ever free.";
    }
}

figures! {
    /// Objects.
    #[derive(Copy)]
    pub struct Io of (counters: &stripe::ServerCounters) {
        cache_bytes => gauge "cache_bytes", "Limit of the block cache.";
        cached_bytes = counters.cached_bytes => gauge "cached_bytes", "Blocks in memory.";
        /// Written and not yet stable.
        dirty_bytes = counters.dirty_bytes => gauge "dirty_bytes", "Blocks written and not yet stable.";
        logged_bytes = counters.logged_bytes => gauge "logged_bytes", "Blocks whose only stable copy is in a log.";
        reads = counters.reads => counter "reads_total", "Reads served.";
        hits = counters.hits => counter "cache_hits_total", "Blocks read that were in memory.";
        misses = counters.misses => counter "cache_misses_total", "Blocks read that were not.";
        read_bytes = counters.read_bytes => counter "read_bytes_total", "Bytes of them.";
        /// READs that were answered, by where the slowest of their blocks was.
        found: Reads;
        /// Chunks of 32 KiB or less that left the cache for network memory, came back or were read there, the latter
        /// alone, and did not come; of these, wrong ones.
        network_sent = counters.network_sent
            => counter "network_memory_sent_total", "Chunks that left the cache for network memory.";
        network_hits = counters.network_hits
            => counter "network_memory_hits_total", "Chunks that came back from there or were read there.";
        network_in_place = counters.network_in_place
            => counter "network_memory_in_place_total", "Chunks of which a part was read there.";
        network_misses = counters.network_misses
            => counter "network_memory_misses_total", "Chunks that were asked for there and came not.";
        network_wrong = counters.network_wrong
            => counter "network_memory_wrong_total", "Of these, with a wrong checksum.";
        /// Times that it was too slow, and a disk asked.
        network_late = counters.network_late
            => counter "network_memory_late_total", "Times a disk was asked since it was slow.";
        disk_reads = counters.disk_reads => counter "disk_reads_total", "Reads of disks.";
        /// Ranges that clients said they would read, of these the ones refused since too many waited, and bytes that
        /// the others brought into memory.
        hints = counters.hints => counter "hints_total", "Ranges that clients said they would read.";
        hints_refused = counters.hints_refused
            => counter "hints_refused_total", "Of these, refused since too many waited.";
        hinted_bytes = counters.hinted_bytes => counter "hinted_bytes_total", "Bytes read from disks for hints.";
        writes = counters.writes => counter "writes_total", "Writes served.";
        written_bytes = counters.written_bytes => counter "written_bytes_total", "Bytes of them.";
        commits = counters.commits => counter "commits_total", "Commits served.";
        torn_blocks = counters.torn_blocks => counter "torn_blocks_total", "Blocks of interrupted writes.";
        corrupt_blocks = counters.corrupt_blocks
            => counter "corrupt_blocks_total", "Blocks with a wrong checksum.";
        repaired_blocks = counters.repaired_blocks
            => counter "repaired_blocks_total", "Damaged blocks that came from another copy.";
        /// Objects found damaged since the start; `problems` names them.
        damaged_objects => counter "damaged_objects_total", "Objects found damaged since the start.";
        damaged_writes = counters.damaged_writes
            => counter "damaged_writes_total", "Writes refused for their checksum.";
    }
}

figures! {
    /// The files of a mount.
    #[derive(Copy)]
    pub struct Mount of (counters: &files::counters::Report) {
        failures = counters.failures => counter "mount_failures_total", "Operations that ended with an error.";
        read_bytes = counters.read_bytes => counter "mount_read_bytes_total", "Bytes that applications read.";
        ahead_bytes = counters.ahead_bytes => counter "mount_ahead_bytes_total", "Bytes read ahead of them.";
        written_bytes = counters.written_bytes
            => counter "mount_written_bytes_total", "Bytes that applications wrote.";
        /// Memory of written data that is not stable.
        held_bytes = counters.held_bytes => gauge "mount_held_bytes", "Written data that is not stable.";
        lost_bytes = counters.lost_bytes
            => counter "mount_lost_bytes_total", "Written bytes that were given up, each as an error.";
        /// Ranges that applications said they will read and did not yet, and those that were here when they were read.
        hints = counters.hints as u64 => gauge "mount_hints", "Ranges that applications said they will read.";
        hinted_reads = counters.hinted_reads
            => counter "mount_hinted_reads_total", "Those that were here when they were read.";
    }
}

figures! {
    pub struct Disk {
        path: String;
        /// The file system's device number on its machine.
        device;
        /// `serving`, `starting`, or why it is not used.
        state: String => gauge "disk_serving", "Whether the disk serves.", |d| (d.state == "serving").number();
        total_bytes => gauge "disk_bytes", "Size of the disk.";
        free_bytes => gauge "disk_free_bytes", "Room on the disk.";
        /// Objects in place, and the storage that they take.
        objects => gauge "disk_objects", "Objects on the disk.";
        held_bytes => gauge "disk_held_bytes", "Storage that its objects take.";
        /// Whether all objects were counted; else there are more.
        counted: bool;
        /// How far the scrub has come.
        scrub: Scrub;
    }
}

figures! {
    /// The scrub of a disk: everything on it is read once in a period.
    #[derive(Copy)]
    pub struct Scrub of (scrubbed: &stripe::Scrubbed) {
        /// Rounds over the whole disk since the start.
        rounds = scrubbed.rounds => counter "disk_scrubs_total", "Rounds of the scrub over the whole disk.";
        running: bool = scrubbed.running
            => gauge "disk_scrub_done", "Part of the scrub's round that is done.", |s| s.part().unwrap_or(f64::NAN);
        /// Seconds since the present round began, or the last one; nothing before the first.
        #[serde(skip_serializing_if = "Option::is_none")]
        began_s: Option<u64>
            => gauge "disk_scrub_began_seconds", "Time since that round began.", |s| seconds(s.began_s, 1.0);
        /// Bytes read in it, and what it is about to read in all.
        bytes = scrubbed.bytes;
        total_bytes = scrubbed.total;
        /// Blocks that it left out, as they were newer in the log.
        logged_blocks = scrubbed.logged_blocks;
        /// Objects that it could not read; the round does not count when it ends with some.
        unread = scrubbed.unread;
        /// Objects in which rounds found damage since the start.
        damaged = scrubbed.damaged
            => counter "disk_scrub_damaged_total", "Objects in which a round found damage.";
        /// Bytes read in all rounds.
        all_bytes = scrubbed.all_bytes => counter "disk_scrub_read_bytes_total", "Bytes that the scrub read.";
    }
}

impl Scrub {
    /// At this time.
    pub fn of(scrubbed: &stripe::Scrubbed, now: wire::Time) -> Scrub {
        let began_s = scrubbed.began.map(|began| now.since(began).as_secs());
        Scrub { began_s, ..Scrub::counted(scrubbed) }
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

figures! {
    pub struct Link of (status: &PeerStatus) {
        peer: u16;
        /// `shm`, `tcp`, `tcp+noise`; empty while there is no connection.
        transport: String = status.transport.to_string()
            => gauge "link_up", "Whether there is a connection.", |link| (!link.transport.is_empty()).number();
        connections = status.connections => counter "link_connections_total", "Connections made.";
        sent = status.tally.sent => counter "link_sent_total", "Messages sent.";
        sent_bytes = status.tally.sent_bytes => counter "link_sent_bytes_total", "Bytes of them.";
        received = status.tally.received => counter "link_received_total", "Messages received.";
        received_bytes = status.tally.received_bytes => counter "link_received_bytes_total", "Bytes of them.";
        drops = status.tally.drops => counter "link_drops_total", "Messages dropped.";
        #[serde(skip_serializing_if = "String::is_empty")]
        last_error: String = status.last_error.clone();
    }
}

figures! {
    #[derive(Copy)]
    pub struct Wait of (counters: &WaitCounters) {
        spins = counters.spins => counter "wait_spins_total", "Turns that looked again at once.";
        spin_hits = counters.spin_hits => counter "wait_spin_hits_total", "Waits that ended awake.";
        yields = counters.yields => counter "wait_yields_total", "Times it let others run.";
        sleeps = counters.sleeps => counter "wait_sleeps_total", "Times it slept.";
    }
}

figures! {
    #[derive(Copy)]
    pub struct Rpc of (counters: &netrpc::Counters) {
        calls = counters.calls => counter "rpc_calls_total", "Calls made.";
        retries = counters.retries => counter "rpc_retries_total", "Requests retransmitted.";
        executed = counters.executed => counter "rpc_executed_total", "Calls served.";
        duplicates = counters.duplicates => counter "rpc_duplicates_total", "Requests received more than once.";
        stale_replies = counters.stale_replies;
        resets_sent = counters.resets_sent;
        sessions_lost = counters.sessions_lost
            => counter "rpc_sessions_lost_total", "Peers that came back in another incarnation.";
        overloads = counters.overloads => counter "rpc_overloads_total", "Calls refused for lack of room.";
        credit_stalls = counters.credit_stalls
            => counter "rpc_credit_stalls_total", "Calls that waited for credits.";
        answers_lost = counters.answers_lost
            => counter "rpc_answers_lost_total", "Answers that could not be sent.";
    }
}

/// How many groups count on a copy at a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopiesAt {
    pub node: u16,
    pub groups: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    pub node: u16,
    pub alive: bool,
    /// How long the lease still lasts, or how long ago it ended.
    pub ms: u64,
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
