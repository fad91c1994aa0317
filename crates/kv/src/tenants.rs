//! Tenants: key spaces that share a server, each with its part of the memory.

use crate::body::Account;
use crate::ids::NONE;
use crate::limits::{MEMORY_BYTES_MIN, TENANTS_MAX};
use std::rc::Rc;

/// Settings of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Bytes that are not taken from it for others.
    pub min_bytes: usize,
    /// Bytes that it has at the most.
    pub max_bytes: usize,
    /// Bytes of its values that may be away in other nodes' memory.
    pub away_max_bytes: usize,
}

/// Counters of a tenant's items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads that found an item.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Values stored.
    pub stored: u64,
    /// Items that left to make room.
    pub evicted: u64,
    /// Expired items that were found and removed.
    pub expired: u64,
    /// Values that there was no room for.
    pub no_room: u64,
}

/// Look-ups of items that were away, and their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AwayCounters {
    /// Values that left the server's own memory for other nodes' instead of being dropped.
    pub sent: u64,
    /// Values that were asked for there.
    pub asked: u64,
    /// Of these, the ones that were no longer there: misses.
    pub lost: u64,
    /// Values that came back to stay.
    pub returned: u64,
    /// Values dropped there to make room.
    pub dropped: u64,
}

/// Tenants that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTenants {
    /// Of a server without.
    #[error("a server has 1 to {TENANTS_MAX} tenants, not {0}")]
    Count(usize),
    /// A bound.
    #[error("tenant {name}: its least, {min} bytes, is more than its most, {max} bytes")]
    Bounds {
        /// The tenant.
        name: String,
        /// Its least.
        min: usize,
        /// Its most.
        max: usize,
    },
    /// All bounds.
    #[error(
        "the tenants are promised {promised} bytes, but there are {memory}: give them less, or more memory"
    )]
    Promised {
        /// The sum of what they get at least.
        promised: usize,
        /// All memory.
        memory: usize,
    },
    /// Hardly any.
    #[error("{0} bytes of memory are too few for items: give at least {MEMORY_BYTES_MIN}")]
    Memory(usize),
}

/// Items from old to young.
#[derive(Clone, Copy, Debug)]
pub struct List {
    pub oldest: u32,
    pub newest: u32,
}

impl List {
    const EMPTY: List = List { oldest: NONE, newest: NONE };
}

/// Items that end at some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mortals {
    pub items: usize,
    /// The sum of when they end, on the clock that is never set.
    pub ends_ms: i128,
}

#[derive(Debug)]
pub struct Tenant {
    pub config: TenantConfig,
    /// Of memory here, of its items but for long values: keys, entries, places of values that are away.
    pub index_bytes: usize,
    /// Of memory here, of its long values, from the first byte that arrives to the last one that is sent.
    pub account: Rc<Account>,
    pub items: usize,
    pub mortals: Mortals,
    /// Items whose values are here.
    pub near: List,
    /// Items whose values are away.
    pub far: List,
    /// Bytes of pages that are away.
    pub away_bytes: usize,
    /// Of the bytes of the index, those of items whose values are away.
    pub away_cost: usize,
    pub counters: Counters,
    pub away: AwayCounters,
}

impl Tenant {
    pub fn new(config: TenantConfig) -> Tenant {
        Tenant {
            config,
            index_bytes: 0,
            account: Rc::default(),
            items: 0,
            mortals: Mortals::default(),
            near: List::EMPTY,
            far: List::EMPTY,
            away_bytes: 0,
            away_cost: 0,
            counters: Counters::default(),
            away: AwayCounters::default(),
        }
    }

    /// All memory that it has here.
    pub fn bytes(&self) -> usize {
        self.index_bytes + self.account.bytes()
    }

    /// Of it, what no eviction frees.
    pub fn held_bytes(&self) -> usize {
        self.account.held_bytes()
    }

    /// Bytes that it keeps when others need all that they may have.
    pub fn firm_bytes(&self) -> usize {
        self.held_bytes().max(self.config.min_bytes)
    }

    /// Bytes that can be taken from it for others.
    pub fn surplus(&self) -> usize {
        self.bytes().saturating_sub(self.firm_bytes())
    }
}

/// Checks that tenants fit together.
pub fn check(tenants: &[TenantConfig], memory: usize) -> Result<(), BadTenants> {
    if memory < MEMORY_BYTES_MIN {
        return Err(BadTenants::Memory(memory));
    }
    if !(1..=TENANTS_MAX).contains(&tenants.len()) {
        return Err(BadTenants::Count(tenants.len()));
    }
    for TenantConfig { name, min_bytes, max_bytes, .. } in tenants {
        if min_bytes > max_bytes {
            let (name, min, max) = (name.clone(), *min_bytes, *max_bytes);
            return Err(BadTenants::Bounds { name, min, max });
        }
    }
    let promised = tenants.iter().map(|tenant| tenant.min_bytes).sum();
    match promised > memory {
        true => Err(BadTenants::Promised { promised, memory }),
        false => Ok(()),
    }
}
