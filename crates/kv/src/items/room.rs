//! How room is made: the clock, pages of chunks, drafts; what has expired, and what is flushed.

use super::{ItemNo, Items, NoRoom};
use crate::body::pool_bytes;
use crate::entries::Entry;
use crate::ids::{NONE, TenantNo};
use crate::limits::{CHANCES_MAX, EVICTIONS_MAX, SWEEP_ITEMS, SWEEP_MOVED_ITEMS};
use crate::moment::{Expiry, Moment};
use crate::out::Out;
use crate::slab::Chunk;
use crate::tenants::{List, Tenant};
use crate::value::{Draft, Value};

/// Pages of chunks that are emptied for one chunk: some hold items that may not leave.
const PAGES_EMPTIED_MAX: usize = 16;

impl Items {
    /// Makes the tenant's bytes, and all, allow for `cost` more of an item.
    pub(super) fn make_room(&mut self, tenant: TenantNo, cost: usize) -> Result<(), NoRoom> {
        self.check_room(tenant, cost, self.items_max(tenant))?;
        self.evict(tenant, cost)
    }

    /// Whether a tenant can have so many bytes more when all its items have left and it may have `most`.
    fn check_room(&mut self, tenant: TenantNo, bytes: usize, most: usize) -> Result<(), NoRoom> {
        if self.tenants[usize::from(tenant.0)].held_bytes() + bytes <= most {
            return Ok(());
        }
        self.short = self.who_leaves_no_room(tenant, bytes);
        Err(NoRoom)
    }

    /// Evicts until the tenant's bytes, and all, allow for `cost` more.
    fn evict(&mut self, tenant: TenantNo, cost: usize) -> Result<(), NoRoom> {
        let own = usize::from(tenant.0);
        while self.tenants[own].bytes() + cost > self.tenants[own].config.max_bytes {
            self.evict_from(tenant)?;
        }
        while self.tenants.iter().map(Tenant::bytes).sum::<usize>() + cost > self.memory_bytes {
            self.evict_for(tenant)?;
        }
        Ok(())
    }

    fn others(&self, tenant: TenantNo) -> impl Iterator<Item = &Tenant> {
        let all = self.tenants.iter().enumerate();
        all.filter(move |(at, _)| *at != usize::from(tenant.0)).map(|(_, other)| other)
    }

    /// Bytes that a tenant can have of items: what is promised to others counts as far as they have it, since it can be
    /// taken back later.
    fn items_max(&self, tenant: TenantNo) -> usize {
        let others = self.others(tenant).map(|other| other.bytes() - other.surplus()).sum();
        let most = self.tenants[usize::from(tenant.0)].config.max_bytes;
        most.min(self.memory_bytes.saturating_sub(others))
    }

    /// Bytes that a tenant may have of what cannot be taken back: none that are promised to others.
    fn held_max(&self, tenant: TenantNo) -> usize {
        let others = self.others(tenant).map(Tenant::firm_bytes).sum();
        let most = self.tenants[usize::from(tenant.0)].config.max_bytes;
        most.min(self.memory_bytes.saturating_sub(others))
    }

    /// The tenant whose half commands and unread answers leave no room for so many bytes of a tenant: its own where
    /// they and its most do not go together.
    fn who_leaves_no_room(&self, tenant: TenantNo, bytes: usize) -> Option<TenantNo> {
        let own = &self.tenants[usize::from(tenant.0)];
        match own.held_bytes() + bytes > own.config.max_bytes {
            true => Some(tenant),
            false => self.who_holds_most(),
        }
    }

    /// The tenant whose half commands and unread answers have most above its least.
    fn who_holds_most(&self) -> Option<TenantNo> {
        let excess = |tenant: &Tenant| tenant.firm_bytes() - tenant.config.min_bytes;
        let all = self.tenants.iter().enumerate();
        let most = all.max_by_key(|(_, tenant)| excess(tenant));
        most.filter(|(_, tenant)| excess(tenant) > 0).map(|(at, _)| TenantNo(at as u16))
    }

    /// The tenant whose unread answers have come to take what is promised to others, if any has: before anything else
    /// is done, connections of it are to be closed, those first that hold most.
    pub fn crowded(&self) -> Option<TenantNo> {
        let firm: usize = self.tenants.iter().map(Tenant::firm_bytes).sum();
        if firm <= self.memory_bytes { None } else { self.who_holds_most() }
    }

    /// The tenant whose half commands and unread answers have left no room for something since this was last asked:
    /// a connection of it that holds much and stands still may be closed.
    pub fn take_short(&mut self) -> Option<TenantNo> {
        self.short.take()
    }

    /// Evicts one item so that `tenant` gets room: of the tenant that has most above its least, else its own.
    fn evict_for(&mut self, tenant: TenantNo) -> Result<(), NoRoom> {
        let most = self.tenants.iter().enumerate().max_by_key(|(_, tenant)| tenant.surplus());
        let victim = most.filter(|(_, tenant)| tenant.surplus() > 0).map(|(at, _)| at as u16);
        self.evict_from(victim.map_or(tenant, TenantNo))
    }

    /// Evicts the tenant's oldest item that has no chance left: its value goes away if it can, else the item is
    /// dropped.
    fn evict_from(&mut self, tenant: TenantNo) -> Result<(), NoRoom> {
        let own = usize::from(tenant.0);
        for _ in 0..CHANCES_MAX {
            let oldest = self.tenants[own].near.oldest;
            if oldest == NONE {
                break;
            }
            let Entry { item, value, .. } = self.entries.get_mut(oldest);
            // what is being sent frees nothing
            if item.uses == 0 && !value.is_in_use() {
                break;
            }
            item.uses = item.uses.saturating_sub(1);
            self.unlink(oldest);
            self.put_young(oldest);
        }
        let tenant = &self.tenants[own];
        let oldest = [tenant.near.oldest, tenant.far.oldest].into_iter().find(|at| *at != NONE);
        let oldest = oldest.ok_or(NoRoom)?;
        if !self.send_away(oldest) {
            self.tenants[own].counters.evicted += 1;
            self.remove(ItemNo(oldest));
        }
        Ok(())
    }

    /// A chunk for a key, or a key and its value.
    pub(super) fn take_chunk(&mut self, tenant: TenantNo, bytes: usize) -> Result<Chunk, NoRoom> {
        for _ in 0..EVICTIONS_MAX {
            if let Some(chunk) = self.slab.alloc(bytes, &self.frames) {
                return Ok(chunk);
            }
            self.evict_for(tenant)?;
        }
        for _ in 0..PAGES_EMPTIED_MAX {
            self.empty_page(tenant);
            if let Some(chunk) = self.slab.alloc(bytes, &self.frames) {
                return Ok(chunk);
            }
        }
        Err(NoRoom)
    }

    /// Evicts the items of one page of chunks, but for those of other tenants that have no more than their least.
    fn empty_page(&mut self, tenant: TenantNo) {
        for number in self.slab.page_owners() {
            let owner = self.entries.get(number).tenant;
            let its = &mut self.tenants[usize::from(owner.0)];
            if owner == tenant || its.surplus() > 0 {
                its.counters.evicted += 1;
                self.remove(ItemNo(number));
            }
        }
    }

    /// Gives a draft its next extent, if it wants one.
    pub fn extend(&mut self, draft: &mut Draft, tenant: TenantNo) -> Result<(), NoRoom> {
        if !draft.wants_extent() {
            return Ok(());
        }
        let own = usize::from(tenant.0);
        if draft.len() > self.tenants[own].config.max_bytes {
            return Err(NoRoom);
        }
        let most = if draft.passes() { self.items_max(tenant) } else { self.held_max(tenant) };
        // all that is missing: nothing is evicted for what cannot be completed
        self.check_room(tenant, pool_bytes(draft.left()), most)?;
        self.evict(tenant, pool_bytes(draft.next_extent_bytes()))?;
        let account = self.tenants[own].account.clone();
        for _ in 0..EVICTIONS_MAX {
            if draft.take_extent(&self.frames, &account) {
                return Ok(());
            }
            self.evict_for(tenant)?;
        }
        self.empty_page(tenant);
        draft.take_extent(&self.frames, &account).then_some(()).ok_or(NoRoom)
    }

    /// Copies bytes behind what has arrived of a draft.
    pub fn append(
        &mut self,
        draft: &mut Draft,
        mut bytes: &[u8],
        tenant: TenantNo,
    ) -> Result<(), NoRoom> {
        while !bytes.is_empty() {
            self.extend(draft, tenant)?;
            bytes = &bytes[draft.copy(bytes)..];
        }
        Ok(())
    }

    /// A draft, all of which has arrived, to be sent or carried.
    pub(crate) fn draft_of(&mut self, tenant: TenantNo, bytes: &[u8]) -> Result<Draft, NoRoom> {
        let mut draft = Draft::new(bytes.len());
        self.append(&mut draft, bytes, tenant)?;
        Ok(draft)
    }

    /// Before replies wait for their client: values that came from other nodes' memory are copied into the tenant's, so
    /// that a client that reads slowly has none of the frames that messages need. Without room the replies are good for
    /// nothing any more.
    pub fn adopt(&mut self, out: &mut Out, tenant: TenantNo) -> Result<(), NoRoom> {
        out.copy_foreign(|bytes| self.draft_of(tenant, bytes).map(Draft::finish))
    }

    /// An item's value with more in front or behind. The item may be evicted meanwhile.
    pub fn joined(
        &mut self,
        at: ItemNo,
        more: &super::Content<'_>,
        in_front: bool,
        tenant: TenantNo,
    ) -> Result<Draft, NoRoom> {
        let before = self.bytes_of(at);
        let mut draft = Draft::passing(before.len() + more.len());
        if !in_front {
            self.append(&mut draft, &before, tenant)?;
        }
        for piece in more.pieces() {
            self.append(&mut draft, piece, tenant)?;
        }
        if in_front {
            self.append(&mut draft, &before, tenant)?;
        }
        Ok(draft)
    }

    /// Puts an item at the young end of its tenant's list, in which it is not.
    pub(super) fn put_young(&mut self, number: u32) {
        let list = self.list(number);
        let before = std::mem::replace(&mut list.newest, number);
        if before == NONE {
            list.oldest = number;
        } else {
            self.entries.get_mut(before).newer = number;
        }
        let entry = self.entries.get_mut(number);
        (entry.older, entry.newer) = (before, NONE);
    }

    /// Takes an item out of its tenant's list.
    pub(super) fn unlink(&mut self, number: u32) {
        let entry = self.entries.get(number);
        let (older, newer) = (entry.older, entry.newer);
        match older {
            NONE => self.list(number).oldest = newer,
            older => self.entries.get_mut(older).newer = newer,
        }
        match newer {
            NONE => self.list(number).newest = older,
            newer => self.entries.get_mut(newer).older = older,
        }
    }

    /// The list that an item belongs to.
    fn list(&mut self, number: u32) -> &mut List {
        let Entry { tenant, value, .. } = self.entries.get(number);
        let tenant = &mut self.tenants[usize::from(tenant.0)];
        if matches!(value, Value::Away(_)) { &mut tenant.far } else { &mut tenant.near }
    }

    /// Whether some items will expire, or are another node's now, so that [`sweep`](Items::sweep) has something to do.
    pub fn has_mortals(&self) -> bool {
        self.mortal > 0 || self.unswept > 0
    }

    /// Looks at some items and removes the expired ones, which may never be requested again.
    pub fn sweep(&mut self, moment: Moment) {
        let len = self.entries.len();
        let count = if self.unswept > 0 { SWEEP_MOVED_ITEMS } else { SWEEP_ITEMS };
        for _ in 0..count.min(len as usize) {
            self.swept = if self.swept + 1 < len { self.swept + 1 } else { 0 };
            self.unswept = self.unswept.saturating_sub(1);
            let number = self.swept;
            if self.entries.is_used(number) && self.has_ended(ItemNo(number), moment) {
                let entry = self.entries.get(number);
                let (tenant, expired) = (entry.tenant, entry.expiry.has_passed(moment));
                self.tenants[usize::from(tenant.0)].counters.expired += u64::from(expired);
                self.remove(ItemNo(number));
            }
        }
    }

    /// Removes all items of a tenant. Takes about 100 ns for each.
    pub fn flush(&mut self, tenant: TenantNo) {
        let own = usize::from(tenant.0);
        loop {
            let (near, far) = (self.tenants[own].near.oldest, self.tenants[own].far.oldest);
            let Some(oldest) = [near, far].into_iter().find(|at| *at != NONE) else { return };
            self.remove(ItemNo(oldest));
        }
    }

    /// Removes all that a tenant has at that time. An earlier wish of the same tenant is forgotten.
    pub fn flush_at(&mut self, tenant: TenantNo, at: Expiry) {
        self.flushes.retain(|(_, other)| *other != tenant);
        self.flushes.push((at, tenant));
    }

    /// Does what was to be done by now.
    pub fn tick(&mut self, moment: Moment) {
        while let Some(due) = self.flushes.iter().position(|(at, _)| at.has_passed(moment)) {
            let (_, tenant) = self.flushes.remove(due);
            self.flush(tenant);
        }
    }
}
