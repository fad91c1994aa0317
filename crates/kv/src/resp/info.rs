//! The sections of `INFO`, with the fields that clients and exporters read.

use super::commands::REDIS_VERSION;
use crate::items::Facts;
use crate::turn::Turn;
use node::Usage;
use std::fmt::Display;

/// Lines of one section.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn with(mut self, name: &str, value: impl Display) -> Lines {
        self.0 += &format!("{name}:{value}\r\n");
        self
    }

    /// Fields of what is not here: persistence, replicas, scripts.
    fn none(self, names: &[&str]) -> Lines {
        names.iter().fold(self, |lines, name| lines.with(name, 0))
    }
}

/// Names of the sections, each with its lines.
pub fn sections(turn: &Turn<'_>) -> [(&'static str, String); 9] {
    let facts = turn.items.facts();
    let used = facts.used();
    [
        ("Server", server(facts, turn).0),
        ("Clients", clients(facts).0),
        ("Memory", memory(used, turn).0),
        ("Persistence", persistence(facts, turn).0),
        ("Stats", stats(facts, turn).0),
        ("Replication", replication().0),
        ("CPU", cpu(used).0),
        ("Cluster", Lines::default().with("cluster_enabled", 0).0),
        ("Keyspace", keyspace(turn).0),
    ]
}

fn server(facts: &Facts, turn: &Turn<'_>) -> Lines {
    let uptime = turn.moment.now_ms.saturating_sub(facts.started_ms) / 1000;
    Lines::default()
        .with("redis_version", REDIS_VERSION)
        .with("trapeze_version", env!("CARGO_PKG_VERSION"))
        .with("redis_mode", "standalone")
        .with("os", std::env::consts::OS)
        .with("arch_bits", usize::BITS)
        .with("process_id", facts.process)
        .with("tcp_port", facts.port)
        .with("server_time_usec", turn.moment.wall_ms * 1000)
        .with("uptime_in_seconds", uptime)
        .with("uptime_in_days", uptime / 86_400)
}

fn clients(facts: &Facts) -> Lines {
    let lines = Lines::default().with("connected_clients", facts.connections);
    lines.with("maxclients", facts.connections_max).none(&[
        "cluster_connections",
        "blocked_clients",
        "tracking_clients",
    ])
}

fn memory(used: Usage, turn: &Turn<'_>) -> Lines {
    let (_, bytes) = turn.items.holds(turn.tenant);
    let tenant = turn.items.tenant(turn.tenant);
    let most = tenant.max_bytes.min(turn.items.memory_bytes());
    let resident = used.resident_bytes;
    // Redis's is the process over the items: of an empty store it says nothing.
    let ratio = if bytes == 0 { 1.0 } else { resident as f64 / bytes as f64 };
    Lines::default()
        .with("used_memory", bytes)
        .with("used_memory_human", human(bytes as u64))
        .with("used_memory_rss", resident)
        .with("used_memory_peak", used.peak_bytes)
        .with("used_memory_dataset", bytes)
        .with("held_bytes", turn.items.held_bytes(turn.tenant))
        .with("maxmemory", most)
        .with("maxmemory_human", human(most as u64))
        .with("maxmemory_policy", "allkeys-lfu")
        .with("mem_fragmentation_ratio", format!("{ratio:.2}"))
        .none(&["used_memory_overhead", "used_memory_startup", "used_memory_lua"])
        .with("tenant", &tenant.name)
}

/// As Redis shortens a size: `1.50M`.
fn human(bytes: u64) -> String {
    let units = [(1u64 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    let unit = units.iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or(format!("{bytes}B"), |(unit, name)| {
        format!("{:.2}{name}", bytes as f64 / *unit as f64)
    })
}

/// Nothing is kept on a disk: what exporters ask of it is 0, and the last save is the start.
fn persistence(facts: &Facts, turn: &Turn<'_>) -> Lines {
    let up_ms = turn.moment.now_ms.saturating_sub(facts.started_ms);
    Lines::default()
        .none(&[
            "loading",
            "async_loading",
            "rdb_changes_since_last_save",
            "rdb_bgsave_in_progress",
        ])
        .with("rdb_last_save_time", turn.moment.wall_ms.saturating_sub(up_ms) / 1000)
        .with("rdb_last_bgsave_status", "ok")
        .none(&["aof_enabled", "aof_rewrite_in_progress"])
        .with("aof_last_write_status", "ok")
}

fn stats(facts: &Facts, turn: &Turn<'_>) -> Lines {
    let counters = turn.items.counters(turn.tenant);
    let lines = Lines::default()
        .with("total_connections_received", facts.accepted)
        .with("total_commands_processed", facts.commands)
        .with("total_net_input_bytes", facts.received_bytes)
        .with("total_net_output_bytes", facts.sent_bytes)
        .with("rejected_connections", facts.refused)
        .with("keyspace_hits", counters.hits)
        .with("keyspace_misses", counters.misses)
        .with("evicted_keys", counters.evicted)
        .with("expired_keys", counters.expired)
        .none(&["pubsub_channels", "pubsub_patterns", "latest_fork_usec", "sync_full"]);
    if !turn.items.can_be_away() {
        return lines;
    }
    let away = turn.items.away_counters(turn.tenant);
    lines
        .with("away_bytes", turn.items.away_bytes(turn.tenant))
        .with("away_sent", away.sent)
        .with("away_asked", away.asked)
        .with("away_lost", away.lost)
        .with("away_returned", away.returned)
        .with("away_dropped", away.dropped)
}

fn replication() -> Lines {
    let lines = Lines::default().with("role", "master").none(&["connected_slaves"]);
    lines.with("master_failover_state", "no-failover").none(&["master_repl_offset"])
}

fn cpu(used: Usage) -> Lines {
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    let lines = Lines::default().with("used_cpu_sys", seconds(used.system_us));
    lines
        .with("used_cpu_user", seconds(used.user_us))
        .with("used_cpu_sys_children", seconds(0))
        .with("used_cpu_user_children", seconds(0))
}

/// Redis names only what has keys.
fn keyspace(turn: &Turn<'_>) -> Lines {
    let (items, _) = turn.items.holds(turn.tenant);
    let (expiring, mean_ms) = turn.items.expiring(turn.tenant, turn.moment);
    let text = format!("keys={items},expires={expiring},avg_ttl={mean_ms}");
    if items == 0 { Lines::default() } else { Lines::default().with("db0", text) }
}
