//! The table of items: bounded memory, several tenants, eviction by a clock with two-bit counts.
//!
//! A tenant's items are in a list from young to old. A read counts up to three; the oldest item leaves, or with a count
//! is put at the young end with one less (the clock with reference counts of Smith 1978, as in CacheLib and S3-FIFO,
//! SOSP'23). So a read writes two words and moves nothing.
//!
//! Memory is counted as an item's chunk and its entry, and the pages of long values as long as they are referenced: by
//! items, half commands, unread answers. Room is taken from the tenant that needs it when it is at its most, and else
//! from the tenant that has most above its least. Memory of half commands and answers cannot be taken back, so it never
//! comes to more than is left beside what is promised to others.

mod away;
mod cluster;
mod room;

use crate::away::Away;
use crate::body::{Body, Stored};
use crate::carry::Carry;
pub use crate::entries::Item;
use crate::entries::{BLOCK, ENTRY_BYTES, Entries, Entry};
pub use crate::ids::ItemNo;
use crate::ids::{NONE, TenantNo};
use crate::limits::{BESIDE_BYTES_MAX, CHAIN_BYTES, SCAN_PLACES};
use crate::moment::{Expiry, Moment};
use crate::out::{Out, Ready};
use crate::owners::Owners;
use crate::slab::{Slab, chunk_bytes};
use crate::tenants::{self, BadTenants, Counters, Mortals, Tenant, TenantConfig};
use crate::value::{Draft, Value};
use endpoint::Frames;
use node::Usage;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use wire::mix;

/// Settings of the table.
#[derive(Clone, Debug)]
pub struct ItemsConfig {
    /// Bytes of memory of all items.
    pub memory_bytes: usize,
    /// Bytes of the longest value.
    pub value_bytes_max: usize,
    /// Seed of the hash: a client cannot find keys that collide.
    pub seed: u64,
    /// At least one.
    pub tenants: Vec<TenantConfig>,
}

/// Facts about the server, for `stats` and `INFO`.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Password that clients of Redis give before anything else.
    pub password: Option<Rc<str>>,
    /// The process.
    pub process: u32,
    /// When it started.
    pub started_ms: u64,
    /// Port that it listens at.
    pub port: u16,
    /// Connections open.
    pub connections: u64,
    /// Connections ever.
    pub accepted: u64,
    /// Connections refused, because there were too many.
    pub refused: u64,
    /// Most connections at a time.
    pub connections_max: u64,
    /// Commands of clients, by either protocol.
    pub commands: u64,
    /// Bytes read from clients.
    pub received_bytes: u64,
    /// Bytes written to them.
    pub sent_bytes: u64,
    /// How the system says what the process uses.
    pub usage: Option<fn() -> Usage>,
}

impl Facts {
    /// The process's present usage, as far as it is known.
    pub fn used(&self) -> Usage {
        self.usage.map(|usage| usage()).unwrap_or_default()
    }
}

/// A value that is stored.
#[derive(Debug)]
pub enum Content<'a> {
    /// All of it.
    Bytes(&'a [u8]),
    /// A draft, all of which has arrived.
    Draft(Draft),
}

impl Content<'_> {
    /// Bytes of the value.
    pub fn len(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Draft(draft) => draft.len(),
        }
    }

    /// Whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (bytes, draft) = match self {
            Content::Bytes(bytes) => (Some(*bytes), None),
            Content::Draft(draft) => (None, Some(draft)),
        };
        bytes.into_iter().chain(draft.into_iter().flat_map(|draft| draft.pieces()))
    }
}

/// Properties that are stored with a value.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The client's own.
    pub flags: u32,
    /// When it ends.
    pub expiry: Expiry,
    /// Its CAS unique, when the client chose it.
    pub cas: Option<u64>,
}

/// Bits of a CAS unique that count changes within a millisecond; those above them are a date until 2248.
const CAS_COUNT_BITS: u32 = 20;

/// There is no room, also after everything that may leave has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// The items of a server.
#[derive(Debug)]
pub struct Items {
    frames: Frames,
    slab: Slab,
    entries: Entries,
    chains: Box<[u32]>,
    tenants: Vec<Tenant>,
    /// Tenants whose half commands and unread answers have lately left no room.
    short: Option<TenantNo>,
    memory_bytes: usize,
    value_bytes_max: usize,
    seed: u64,
    cas: u64,
    /// Items that will expire.
    mortal: usize,
    swept: u32,
    /// Places that were not looked at since keys have moved to other nodes.
    unswept: u32,
    /// Tenants to be emptied, and when.
    flushes: Vec<(Expiry, TenantNo)>,
    /// Memory elsewhere, if there is any.
    away: Option<Away>,
    /// Connections whose replies have come.
    ready: Ready,
    /// Commands of other nodes whose replies have come.
    carried_ready: Ready,
    /// Owners of keys, where several nodes are one key space.
    owners: Option<Owners>,
    /// Commands for other nodes.
    carries: VecDeque<Carry>,
    facts: Facts,
}

impl Items {
    /// No items. Values are kept in frames of `frames`, which should have all of the memory.
    pub fn new(config: ItemsConfig, frames: Frames) -> Result<Items, BadTenants> {
        tenants::check(&config.tenants, config.memory_bytes)?;
        let chains = (config.memory_bytes / CHAIN_BYTES).next_power_of_two();
        Ok(Items {
            frames,
            slab: Slab::new(),
            entries: Entries::new(),
            chains: vec![NONE; chains].into(),
            tenants: config.tenants.into_iter().map(Tenant::new).collect(),
            short: None,
            memory_bytes: config.memory_bytes,
            value_bytes_max: config.value_bytes_max,
            seed: config.seed,
            cas: 0,
            mortal: 0,
            swept: 0,
            unswept: 0,
            flushes: Vec::new(),
            away: None,
            ready: Ready::default(),
            carried_ready: Ready::default(),
            owners: None,
            carries: VecDeque::new(),
            facts: Facts::default(),
        })
    }

    fn hash(&self, tenant: TenantNo, key: &[u8]) -> u64 {
        let words = key.chunks(8).map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            u64::from_le_bytes(word)
        });
        let start = mix(self.seed ^ u64::from(tenant.0) << 32 ^ key.len() as u64);
        words.fold(start, |hash, word| mix(hash ^ word))
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    fn lookup(&self, tenant: TenantNo, key: &[u8], hash: u64) -> Option<ItemNo> {
        let mut at = self.chains[self.chain(hash)];
        while at != NONE {
            let entry = self.entries.get(at);
            if entry.hash == hash && entry.tenant == tenant && self.key(ItemNo(at)) == key {
                return Some(ItemNo(at));
            }
            at = entry.next;
        }
        None
    }

    /// The item of a key; one whose time has passed is removed and not found.
    pub fn find(&mut self, tenant: TenantNo, key: &[u8], moment: Moment) -> Option<ItemNo> {
        let found = self.lookup(tenant, key, self.hash(tenant, key))?;
        if self.is_stale(found) {
            self.remove(found);
            return None;
        }
        let entry = self.entries.get(found.0);
        if entry.expiry.has_passed(moment) {
            self.tenants[usize::from(tenant.0)].counters.expired += 1;
            self.remove(found);
            return None;
        }
        Some(found)
    }

    /// Whether an item is there no more: its time has passed, or it is from before this node kept its key.
    pub fn has_ended(&self, at: ItemNo, moment: Moment) -> bool {
        self.expiry(at).has_passed(moment) || self.is_stale(at)
    }

    fn is_stale(&self, at: ItemNo) -> bool {
        let generation = self.entries.get(at.0).generation;
        self.owners.as_ref().is_some_and(|owners| owners.is_stale(self.key(at), generation))
    }

    /// As [`find`](Items::find), for a read: it is counted, and the item is used.
    pub fn read(&mut self, tenant: TenantNo, key: &[u8], moment: Moment) -> Option<ItemNo> {
        let found = self.find(tenant, key, moment);
        let counters = &mut self.tenants[usize::from(tenant.0)].counters;
        match found {
            Some(_) => counters.hits += 1,
            None => counters.misses += 1,
        }
        found.inspect(|found| self.use_item(*found, moment))
    }

    /// Notes a use of the item.
    pub fn use_item(&mut self, at: ItemNo, moment: Moment) {
        let item = &mut self.entries.get_mut(at.0).item;
        item.uses = (item.uses + 1).min(3);
        item.used_s = (moment.now_ms / 1000) as u32;
        item.fetched = true;
    }

    /// Properties of the item.
    pub fn item(&self, at: ItemNo) -> &Item {
        &self.entries.get(at.0).item
    }

    /// The same, to be changed.
    pub fn item_mut(&mut self, at: ItemNo) -> &mut Item {
        &mut self.entries.get_mut(at.0).item
    }

    /// When it ends.
    pub fn expiry(&self, at: ItemNo) -> Expiry {
        self.entries.get(at.0).expiry
    }

    /// Changes when it ends.
    pub fn set_expiry(&mut self, at: ItemNo, expiry: Expiry) {
        let entry = self.entries.get_mut(at.0);
        let before = std::mem::replace(&mut entry.expiry, expiry);
        let tenant = entry.tenant;
        self.count_expiry(tenant, before, false);
        self.count_expiry(tenant, expiry, true);
    }

    fn count_expiry(&mut self, tenant: TenantNo, expiry: Expiry, comes: bool) {
        let Some(end_ms) = expiry.end_ms() else { return };
        let mortals = &mut self.tenants[usize::from(tenant.0)].mortals;
        match comes {
            true => (self.mortal, mortals.items) = (self.mortal + 1, mortals.items + 1),
            false => (self.mortal, mortals.items) = (self.mortal - 1, mortals.items - 1),
        }
        let change = i128::from(end_ms);
        mortals.ends_ms += if comes { change } else { -change };
    }

    /// Number of a tenant's items that expire, and their average time left, in milliseconds.
    pub fn expiring(&self, tenant: TenantNo, moment: Moment) -> (usize, u64) {
        let Mortals { items, ends_ms } = self.tenants[usize::from(tenant.0)].mortals;
        let mean = ends_ms.checked_div(items as i128).unwrap_or(0);
        let left = (mean - i128::from(moment.now_ms)).max(0);
        (items, u64::try_from(left).unwrap_or(u64::MAX))
    }

    /// Its key.
    pub fn key(&self, at: ItemNo) -> &[u8] {
        let entry = self.entries.get(at.0);
        let chunk = entry.chunk.expect("an item has a chunk");
        &self.slab.get(chunk)[..usize::from(entry.key_len)]
    }

    /// Bytes of its value.
    pub fn value_len(&self, at: ItemNo) -> usize {
        self.entries.get(at.0).len as usize
    }

    /// Bytes of memory that it is counted for.
    pub fn cost(&self, at: ItemNo) -> usize {
        self.entries.get(at.0).cost as usize
    }

    fn beside(&self, entry: &Entry) -> &[u8] {
        let chunk = entry.chunk.expect("an item has a chunk");
        &self.slab.get(chunk)[usize::from(entry.key_len)..][..entry.len as usize]
    }

    /// Its value, piece by piece. Of one that [is away](Items::is_away), or on its way, nothing.
    pub fn value(&self, at: ItemNo) -> impl Iterator<Item = &[u8]> {
        let entry = self.entries.get(at.0);
        let beside = matches!(entry.value, Value::Beside).then(|| self.beside(entry));
        beside.into_iter().chain(entry.value.extents().iter().map(|extent| &extent[..]))
    }

    /// Adds its value to what is to be written; long ones are not copied.
    pub fn send_value(&self, at: ItemNo, out: &mut Out) {
        let entry = self.entries.get(at.0);
        match &entry.value {
            Value::Beside => out.text(self.beside(entry)),
            value => value.send(out),
        }
    }

    /// All bytes of its value that are here.
    pub(crate) fn bytes_of(&self, at: ItemNo) -> Vec<u8> {
        match &self.entries.get(at.0).value {
            Value::Away(trip) => trip.pages().iter().flat_map(|page| page.to_vec()).collect(),
            _ => self.value(at).flatten().copied().collect(),
        }
    }

    /// Adds a part of its value to what is to be written.
    pub(crate) fn send_part(&self, at: ItemNo, range: Range<usize>, out: &mut Out) {
        out.text(&self.bytes_of(at)[range]);
    }

    /// From now on CAS uniques are greater than those of earlier incarnations, and of other nodes that kept a key
    /// before: by the wall clock, whose milliseconds have room for a million changes each.
    pub fn begin_cas(&mut self, moment: Moment) {
        self.cas = self.cas.max(moment.wall_ms << CAS_COUNT_BITS);
    }

    /// The next CAS unique.
    pub fn next_cas(&mut self) -> u64 {
        self.cas += 1;
        self.cas
    }

    /// Whether a value of `len` bytes can be stored at all.
    pub fn takes(&self, len: usize) -> bool {
        len <= self.value_bytes_max
    }

    /// The longest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// Stores a value in place of what the key had; when there is no room the key has nothing.
    pub fn store(
        &mut self,
        tenant: TenantNo,
        key: &[u8],
        content: Content<'_>,
        placed: Placed,
        moment: Moment,
    ) -> Result<ItemNo, NoRoom> {
        let hash = self.hash(tenant, key);
        let before = self.lookup(tenant, key, hash);
        let uses = before.map_or(0, |at| self.item(at).uses);
        before.into_iter().for_each(|at| self.remove(at));
        let stored = self.place(tenant, key, content);
        let counters = &mut self.tenants[usize::from(tenant.0)].counters;
        counters.stored += u64::from(stored.is_ok());
        counters.no_room += u64::from(stored.is_err());
        let mut entry = stored?;
        let cas = placed.cas.unwrap_or_else(|| self.next_cas());
        (entry.hash, entry.expiry) = (hash, placed.expiry);
        let used_s = (moment.now_ms / 1000) as u32;
        entry.item = Item { flags: placed.flags, cas, uses, used_s, ..entry.item };
        Ok(self.add(entry))
    }

    /// Puts key and value where they stay.
    fn place(
        &mut self,
        tenant: TenantNo,
        key: &[u8],
        content: Content<'_>,
    ) -> Result<Entry, NoRoom> {
        let beside = key.len() + content.len() <= BESIDE_BYTES_MAX;
        match content {
            Content::Bytes(bytes) if beside => self.place_beside(tenant, key, bytes),
            Content::Bytes(bytes) => {
                let mut draft = Draft::passing(bytes.len());
                self.append(&mut draft, bytes, tenant)?;
                self.entry(tenant, key, 0, (draft.len(), Some(draft.finish())))
            }
            Content::Draft(draft) if beside => {
                let bytes: Vec<u8> = draft.pieces().flatten().copied().collect();
                self.place_beside(tenant, key, &bytes)
            }
            Content::Draft(draft) => {
                self.entry(tenant, key, 0, (draft.len(), Some(draft.finish())))
            }
        }
    }

    fn place_beside(
        &mut self,
        tenant: TenantNo,
        key: &[u8],
        value: &[u8],
    ) -> Result<Entry, NoRoom> {
        let entry = self.entry(tenant, key, value.len(), (value.len(), None))?;
        let chunk = entry.chunk.expect("just made");
        self.slab.get_mut(chunk)[key.len()..][..value.len()].copy_from_slice(value);
        Ok(entry)
    }

    /// An entry with its chunk, in which there are `beside` bytes behind the key.
    fn entry(
        &mut self,
        tenant: TenantNo,
        key: &[u8],
        beside: usize,
        (len, body): (usize, Option<Rc<Body>>),
    ) -> Result<Entry, NoRoom> {
        let chunk_bytes = chunk_bytes(key.len() + beside).expect("keys are bounded");
        let head_bytes = body.as_ref().map_or(0, |body| body.head_bytes());
        let index_bytes = chunk_bytes + ENTRY_BYTES + head_bytes;
        self.make_room(tenant, index_bytes)?;
        let chunk = self.take_chunk(tenant, key.len() + beside)?;
        self.slab.get_mut(chunk)[..key.len()].copy_from_slice(key);
        let value = body.map_or(Value::Beside, |body| Value::Here(Stored::new(body)));
        Ok(Entry {
            item: Item::default(),
            hash: 0,
            expiry: Expiry::NEVER,
            next: NONE,
            older: NONE,
            newer: NONE,
            chunk: Some(chunk),
            key_len: key.len() as u16,
            tenant,
            generation: self.owners.as_ref().map_or(0, Owners::generation),
            len: len as u32,
            cost: (index_bytes + value.pool_bytes()) as u32,
            value,
        })
    }

    /// Puts an entry into its chain and its tenant's list.
    fn add(&mut self, mut entry: Entry) -> ItemNo {
        let (chain, chunk) = (self.chain(entry.hash), entry.chunk.expect("it has one"));
        entry.next = self.chains[chain];
        self.tenants[usize::from(entry.tenant.0)].items += 1;
        self.count_expiry(entry.tenant, entry.expiry, true);
        let number = self.entries.add(entry);
        self.count(number);
        self.slab.set_owner(chunk, number);
        self.chains[chain] = number;
        self.put_young(number);
        ItemNo(number)
    }

    /// Removes an item.
    pub fn remove(&mut self, at: ItemNo) {
        self.unlink(at.0);
        self.leave_chain(at.0);
        self.uncount(at.0);
        let entry = self.entries.get(at.0);
        self.tenants[usize::from(entry.tenant.0)].items -= 1;
        let (tenant, expiry) = (entry.tenant, entry.expiry);
        self.count_expiry(tenant, expiry, false);
        let (chunk, _value) = self.entries.take(at.0);
        self.slab.free(chunk.expect("an item has a chunk"));
    }

    fn leave_chain(&mut self, number: u32) {
        let entry = self.entries.get(number);
        let (chain, after) = (self.chain(entry.hash), entry.next);
        if self.chains[chain] == number {
            self.chains[chain] = after;
            return;
        }
        let mut at = self.chains[chain];
        while self.entries.get(at).next != number {
            at = self.entries.get(at).next;
        }
        self.entries.get_mut(at).next = after;
    }

    /// Facts about the server.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same, for the world.
    pub fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Counters of a tenant's items.
    pub fn counters(&self, tenant: TenantNo) -> Counters {
        self.tenants[usize::from(tenant.0)].counters
    }

    /// They begin at 0 again, and so do those of all tenants: connections, commands, bytes.
    pub(crate) fn reset_counters(&mut self, tenant: TenantNo) {
        let tenant = &mut self.tenants[usize::from(tenant.0)];
        (tenant.counters, tenant.away) = Default::default();
        (self.facts.accepted, self.facts.refused) = (0, 0);
        (self.facts.commands, self.facts.received_bytes, self.facts.sent_bytes) = (0, 0, 0);
    }

    /// All tenants, in the order in which they were configured.
    pub fn tenants(&self) -> impl Iterator<Item = TenantNo> + use<> {
        (0..self.tenants.len() as u16).map(TenantNo)
    }

    /// Settings of a tenant.
    pub fn tenant(&self, tenant: TenantNo) -> &TenantConfig {
        &self.tenants[usize::from(tenant.0)].config
    }

    /// Number of a tenant's items, expired ones among them, and all bytes of its memory.
    pub fn holds(&self, tenant: TenantNo) -> (usize, usize) {
        let tenant = &self.tenants[usize::from(tenant.0)];
        (tenant.items, tenant.bytes())
    }

    /// Of these bytes, those of values that are arriving, being sent or carried: no eviction frees them.
    pub fn held_bytes(&self, tenant: TenantNo) -> usize {
        self.tenants[usize::from(tenant.0)].held_bytes()
    }

    /// Bytes of memory of all items at the most.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// At most `count` items of a tenant, from place `from` of the table on; where to go on, or 0. Places without items
    /// cost nothing by the thousand, those of other tenants little: [`SCAN_PLACES`] of them end a step.
    pub fn scan(&self, tenant: TenantNo, from: u32, count: u32) -> (Vec<ItemNo>, u32) {
        let (mut found, mut looks) = (Vec::new(), SCAN_PLACES.max(count));
        let mut at = self.entries.skip_empty(from.min(self.entries.len()));
        while at < self.entries.len() && looks > 0 && found.len() < count as usize {
            if self.entries.is_used(at) && self.entries.get(at).tenant == tenant {
                found.push(ItemNo(at));
            }
            (at, looks) = (at + 1, looks - 1);
            if at.is_multiple_of(BLOCK as u32) {
                at = self.entries.skip_empty(at);
            }
        }
        let next = self.entries.skip_empty(at);
        (found, if next < self.entries.len() { next } else { 0 })
    }
}
