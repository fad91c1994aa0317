//! A machine's keys and values for clients of memcached and Redis, as it tells of them.

use super::figures::{Figure, Number, figures};
use kv::{Items, TenantNo};
use serde::{Deserialize, Serialize};

figures! {
    /// Items that a front end keeps. Bytes of items are of this machine's memory: keys, values and their table.
    #[allow(missing_docs)] // the fields are named for people: they are the JSON of `trapeze status`
    pub struct Keys {
        memory_bytes => gauge "keys_memory_bytes", "Memory for all items.";
        /// Clients now, ever, and refused because there were too many.
        connections => gauge "keys_connections", "Clients that are connected.";
        accepted => counter "keys_accepted_total", "Clients that ever were.";
        refused => counter "keys_refused_total", "Clients that were too many.";
        tenants: Vec<Tenant>;
    }
}

figures! {
    /// One of its tenants.
    #[allow(missing_docs)]
    pub struct Tenant {
        name: String;
        items => gauge "keys_items", "Items of the tenant.";
        bytes => gauge "keys_bytes", "Memory that they take here.";
        max_bytes => gauge "keys_bytes_max", "What they may take at the most.";
        hits => counter "keys_hits_total", "Reads that found an item.";
        misses => counter "keys_misses_total", "Reads that did not.";
        stored => counter "keys_stored_total", "Values stored.";
        /// Items that left to make room, and whose time had passed; values that there was no room for.
        evicted => counter "keys_evicted_total", "Items that left to make room.";
        expired => counter "keys_expired_total", "Items whose time had passed.";
        no_room => counter "keys_no_room_total", "Values that there was no room for.";
        /// Of its values in other nodes' memory: bytes there now; that left for there, were asked for, were gone then,
        /// came back to stay, and were dropped there.
        away_bytes => gauge "keys_away_bytes", "Values in other nodes' memory.";
        away_sent => counter "keys_away_sent_total", "Values that left for there.";
        away_asked => counter "keys_away_asked_total", "Values asked for there.";
        away_lost => counter "keys_away_lost_total", "Of these, those that were gone.";
        away_returned => counter "keys_away_returned_total", "Values that came back to stay.";
        away_dropped => counter "keys_away_dropped_total", "Values dropped there.";
    }
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
