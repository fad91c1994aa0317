//! Values leave for other memory instead of being dropped, and come back.

use super::{ItemNo, Items};
use crate::away::{Away, AwayConfig, Fetch, PageRef, Store, Trip, Wish};
use crate::body::Stored;
use crate::ids::{NONE, TenantNo};
use crate::limits::{AWAY_INDEX_SHARE, USES_TO_RETURN};
use crate::out::{Later, Out, Seat};
use crate::tenants::AwayCounters;
use crate::value::{Draft, Value};
use endpoint::Frame;
use std::rc::Rc;

impl Items {
    /// From now on values that have to leave go there.
    pub fn lend(&mut self, config: AwayConfig) {
        self.away = Some(Away::new(config));
    }

    /// A tenant's counters of values that are away.
    pub fn away_counters(&self, tenant: TenantNo) -> AwayCounters {
        self.tenants[usize::from(tenant.0)].away
    }

    /// Bytes of pages of a tenant that are away.
    pub fn away_bytes(&self, tenant: TenantNo) -> usize {
        self.tenants[usize::from(tenant.0)].away_bytes
    }

    /// Whether values can be away at all.
    pub fn can_be_away(&self) -> bool {
        self.away.is_some()
    }

    /// The next value to be taken away; then [`stored`](Items::stored).
    pub fn poll_store(&mut self) -> Option<Store> {
        self.away.as_mut()?.stores.pop_front()
    }

    /// The next value to be brought; then [`fetched`](Items::fetched).
    pub fn poll_fetch(&mut self) -> Option<Fetch> {
        self.away.as_mut()?.fetches.pop_front()
    }

    /// The next page to be forgotten: its version is not needed any more.
    pub fn poll_ended(&mut self) -> Option<PageRef> {
        self.away.as_mut()?.poll_ended()
    }

    /// Numbers of values to be taken away, and to be brought.
    pub fn errands(&self) -> (usize, usize) {
        self.away.as_ref().map_or((0, 0), |away| (away.stores.len(), away.fetches.len()))
    }

    /// Connections whose replies have come.
    pub fn take_ready(&mut self, ready: &mut Vec<u32>) {
        ready.append(&mut self.ready.borrow_mut());
    }

    /// Whether replies have come that [`take_ready`](Items::take_ready) would tell of.
    pub fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// A reply that comes later, to the connection at that seat.
    pub(crate) fn later(&self, seat: Seat) -> Later {
        match seat {
            Seat::Connection(seat) => Later::new(seat, self.ready.clone()),
            Seat::Carried(seat) => Later::new(seat, self.carried_ready.clone()),
        }
    }

    /// Whether a value's pages have to be fetched.
    pub fn is_away(&self, at: ItemNo) -> bool {
        matches!(&self.entries.get(at.0).value, Value::Away(trip) if !trip.is_here())
    }

    /// Takes an item's pages away, as far as that is possible; else it is to be dropped.
    pub(super) fn send_away(&mut self, number: u32) -> bool {
        let entry = self.entries.get(number);
        let Some(away) = &self.away else { return false };
        if entry.value.extents().is_empty() {
            return false;
        }
        let Some(trip) = away.pack(entry.value.extents()).map(Rc::new) else { return false };
        let cost = self.bare_cost(number) + trip_bytes(&trip);
        if !self.make_room_away(entry.tenant, trip.away_bytes(), cost) {
            return false;
        }
        self.unlink(number);
        self.put_value(number, Value::Away(trip.clone()), cost);
        self.put_young(number);
        let tenant = self.entries.get(number).tenant;
        self.tenants[usize::from(tenant.0)].away.sent += 1;
        let store = Store { at: ItemNo(number), trip };
        self.elsewhere().stores.push_back(store);
        true
    }

    /// Bytes of memory that an item is counted for without a long value.
    fn bare_cost(&self, number: u32) -> usize {
        let entry = self.entries.get(number);
        let value_bytes = match &entry.value {
            Value::Beside => 0,
            Value::Here(stored) => stored.body().pool_bytes() + stored.body().head_bytes(),
            Value::Away(trip) => trip_bytes(trip),
        };
        entry.cost as usize - value_bytes
    }

    fn elsewhere(&mut self) -> &mut Away {
        self.away.as_mut().expect("something is away")
    }

    /// Drops what is longest away until so much more may be; whether it may.
    fn make_room_away(&mut self, tenant: TenantNo, bytes: usize, cost: usize) -> bool {
        let own = usize::from(tenant.0);
        let config = &self.tenants[own].config;
        let index_max = config.max_bytes.min(self.memory_bytes) / AWAY_INDEX_SHARE;
        let most = config.away_max_bytes;
        if bytes > most || cost > index_max {
            return false;
        }
        while self.tenants[own].away_bytes + bytes > most
            || self.tenants[own].away_cost + cost > index_max
        {
            self.drop_away(tenant);
        }
        while self.away.as_ref().is_some_and(|away| away.bytes + bytes > away.bytes_max) {
            let all = self.tenants.iter().enumerate();
            let Some((victim, _)) =
                all.filter(|(_, t)| t.away_bytes > 0).max_by_key(|(_, t)| t.away_bytes)
            else {
                return false;
            };
            self.drop_away(TenantNo(victim as u16));
        }
        true
    }

    /// Drops what a tenant has longest away. Panics when there is nothing.
    fn drop_away(&mut self, tenant: TenantNo) {
        let tenant = &mut self.tenants[usize::from(tenant.0)];
        let oldest = tenant.far.oldest;
        assert_ne!(oldest, NONE, "something is away");
        tenant.counters.evicted += 1;
        tenant.away.dropped += 1;
        self.remove(ItemNo(oldest));
    }

    /// Changes where an item's value is, and what it costs here. The item is in no list.
    fn put_value(&mut self, number: u32, value: Value, cost: usize) {
        self.uncount(number);
        let entry = self.entries.get_mut(number);
        (entry.value, entry.cost) = (value, cost as u32);
        self.count(number);
    }

    /// Counts an item's memory, here and elsewhere, but for the pages of a long value that is here.
    pub(super) fn count(&mut self, number: u32) {
        let (tenant, cost, away) = self.counted(number);
        let tenant = &mut self.tenants[tenant];
        tenant.index_bytes += cost;
        if let Some(bytes) = away {
            tenant.away_bytes += bytes;
            tenant.away_cost += cost;
            self.elsewhere().bytes += bytes;
        }
    }

    /// Takes back what [`count`](Items::count) did.
    pub(super) fn uncount(&mut self, number: u32) {
        let (tenant, cost, away) = self.counted(number);
        let tenant = &mut self.tenants[tenant];
        tenant.index_bytes -= cost;
        if let Some(bytes) = away {
            tenant.away_bytes -= bytes;
            tenant.away_cost -= cost;
            self.elsewhere().bytes -= bytes;
        }
    }

    fn counted(&self, number: u32) -> (usize, usize, Option<usize>) {
        let entry = self.entries.get(number);
        let away = match &entry.value {
            Value::Away(trip) => Some(trip.away_bytes()),
            _ => None,
        };
        let cost = entry.cost as usize - entry.value.pool_bytes();
        (usize::from(entry.tenant.0), cost, away)
    }

    /// Asks for a value that is away; the reply has its place in the output from now on.
    pub(crate) fn fetch(&mut self, at: ItemNo, wish: Wish, home: bool, out: &mut Out) {
        let bytes = wish.head.len() + wish.range.len() + wish.tail.len();
        out.later(&wish.later, if home { 0 } else { bytes });
        let entry = self.entries.get(at.0);
        let Value::Away(trip) = &entry.value else { unreachable!("it is away") };
        let (trip, tenant) = (trip.clone(), entry.tenant);
        self.tenants[usize::from(tenant.0)].away.asked += 1;
        let home = home || entry.item.uses >= USES_TO_RETURN;
        self.elsewhere().fetches.push_back(Fetch { at, trip, home, wish });
    }

    /// Asks for a value that is away, so that a command can work on it. The output is blocked until it is here or gone.
    pub(crate) fn bring(&mut self, at: ItemNo, seat: Seat, out: &mut Out) {
        let later = self.later(seat);
        let wish = Wish { later, head: Vec::new(), tail: b"", miss: Vec::new(), range: 0..0 };
        self.fetch(at, wish, true, out);
    }

    fn is_on(&self, at: ItemNo, trip: &Rc<Trip>) -> bool {
        self.entries.is_used(at.0)
            && matches!(&self.entries.get(at.0).value, Value::Away(other) if Rc::ptr_eq(other, trip))
    }

    /// Pages have been taken away, or could not be: then the item is dropped.
    pub fn stored(&mut self, store: Store, done: bool) {
        let Store { at, trip } = store;
        if !done && self.is_on(at, &trip) {
            let tenant = self.entries.get(at.0).tenant;
            self.tenants[usize::from(tenant.0)].away.dropped += 1;
            self.remove(at);
        }
        trip.leave();
    }

    /// A value's pages, all of them, or nothing when one is lost: then the item is dropped, and its readers miss it.
    pub fn fetched(&mut self, fetch: Fetch, pages: Option<&[Frame]>) {
        let Fetch { at, trip, home, wish } = fetch;
        match pages {
            Some(pages) => {
                if home && self.is_on(at, &trip) {
                    self.settle(at, pages);
                }
                wish.grant(pages);
            }
            None => {
                if self.is_on(at, &trip) {
                    let tenant = self.entries.get(at.0).tenant;
                    self.tenants[usize::from(tenant.0)].away.lost += 1;
                    self.remove(at);
                }
                wish.refuse();
            }
        }
    }

    /// Puts a value that was away into the server's own memory; without room the item is dropped.
    fn settle(&mut self, at: ItemNo, pages: &[Frame]) {
        let entry = self.entries.get(at.0);
        let Value::Away(trip) = &entry.value else { unreachable!("it is away") };
        let (tenant, trip) = (entry.tenant, trip.clone());
        let mut draft = Draft::passing(entry.len as usize);
        let key_bytes = self.bare_cost(at.0);
        let copied = pages.iter().all(|page| self.append(&mut draft, page, tenant).is_ok());
        if !self.is_on(at, &trip) {
            return; // it went while room was made
        }
        if !copied || draft.left() > 0 {
            return self.remove(at);
        }
        let body = draft.finish();
        let cost = key_bytes + body.head_bytes() + body.pool_bytes();
        let room = self.make_room(tenant, body.head_bytes()).is_ok();
        if !self.is_on(at, &trip) {
            return;
        }
        if !room {
            return self.remove(at);
        }
        self.unlink(at.0);
        self.put_value(at.0, Value::Here(Stored::new(body)), cost);
        self.put_young(at.0);
        self.tenants[usize::from(tenant.0)].away.returned += 1;
    }
}

/// Bytes of memory here that an item costs because it is away.
fn trip_bytes(trip: &Trip) -> usize {
    Trip::BYTES + size_of_val(trip.places())
}
