//! A machine's keys and values for clients of memcached and Redis, as it tells of them.

use kv::{Items, TenantNo};
use serde::{Deserialize, Serialize};

/// What a front end keeps. Bytes of items are of this machine's memory: keys, values and their table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
pub struct Keys {
    pub memory_bytes: u64,
    /// Clients now, ever, and refused because there were too many.
    pub connections: u64,
    pub accepted: u64,
    pub refused: u64,
    pub tenants: Vec<Tenant>,
}

/// One of its tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct Tenant {
    pub name: String,
    pub items: u64,
    pub bytes: u64,
    /// What it may have at the most.
    pub max_bytes: u64,
    /// Reads that found an item, and that did not.
    pub hits: u64,
    pub misses: u64,
    pub stored: u64,
    /// Items that left to make room, and whose time had passed; values that there was no room for.
    pub evicted: u64,
    pub expired: u64,
    pub no_room: u64,
    /// Of its values in other nodes' memory: bytes there now; that left for there, were asked for, were gone then, came
    /// back to stay, and were dropped there.
    pub away_bytes: u64,
    pub away_sent: u64,
    pub away_asked: u64,
    pub away_lost: u64,
    pub away_returned: u64,
    pub away_dropped: u64,
}

impl Keys {
    /// As they are now.
    pub fn of(items: &Items) -> Keys {
        let facts = items.facts();
        Keys {
            memory_bytes: items.memory_bytes() as u64,
            connections: facts.connections,
            accepted: facts.accepted,
            refused: facts.refused,
            tenants: items.tenants().map(|tenant| Tenant::of(items, tenant)).collect(),
        }
    }

    /// The tenant of that name.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }
}

impl Tenant {
    fn of(items: &Items, tenant: TenantNo) -> Tenant {
        let (config, counters) = (items.tenant(tenant), items.counters(tenant));
        let ((count, bytes), away) = (items.holds(tenant), items.away_counters(tenant));
        Tenant {
            name: config.name.clone(),
            items: count as u64,
            bytes: bytes as u64,
            max_bytes: config.max_bytes.min(items.memory_bytes()) as u64,
            hits: counters.hits,
            misses: counters.misses,
            stored: counters.stored,
            evicted: counters.evicted,
            expired: counters.expired,
            no_room: counters.no_room,
            away_bytes: items.away_bytes(tenant) as u64,
            away_sent: away.sent,
            away_asked: away.asked,
            away_lost: away.lost,
            away_returned: away.returned,
            away_dropped: away.dropped,
        }
    }

    /// Reads.
    pub fn gets(&self) -> u64 {
        self.hits + self.misses
    }
}
