//! The registry of members: the table behind the service.
//!
//! It answers no message and waits for nothing: `now` is an argument, and every change comes with the log record that
//! must be appended before the answer is sent. Leases are in memory only; after a restart every member that was alive
//! has one full lease to renew, so that a restart of the manager ends no membership; a member that was down stays down.
//!
//! Invariants: a server's name keeps its id until the server is declared gone, and no other machine gets that id ever;
//! the view's number grows with every change that a view shows; what is told of groups of replicas is on stable
//! storage.

mod groups;

pub use groups::Denied;

use crate::disks::{DiskTable, ToldDisk, Verdict, malformed};
use crate::emptied::EmptiedTable;
use crate::groups::StoredTable;
use crate::lenders::LenderTable;
use crate::limits::{
    AHEAD_OF_CLOCK_MAX, AHEAD_OF_LAST_MAX, CLIENT_IDS, ENDED_AT_ONCE, MEMBERS_MAX, PAGE_BYTES,
    SERVER_IDS,
};
use crate::membership::{Up, View};
use crate::protocol::{
    DECLARED_GONE, Forget, Identity, Join, Lease, LendersPage, Lends, Member, Page, Registration,
    Retire, Roles,
};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;
use store::{Append, Batch, Store, StoreError};
use wire::codec::{Decoder, Encoder};
use wire::field::Message;
use wire::{Errno, NodeId, Time};

/// Kind of the store of members.
pub const STORE_KIND: &str = "members";
/// Version of its keys and values.
pub const STORE_VERSION: u32 = 3;

const VIEW_KEY: &[u8] = b"view";
const CLIENT_KEY: &[u8] = b"client";
/// Then the id, highest byte first.
const MEMBER_KEY: u8 = b'm';

/// The members and their leases.
///
/// Getters: [`view`](Registry::view), [`member`](Registry::member), [`members`](Registry::members),
/// [`check_claim`](Registry::check_claim),
/// [`page`](Registry::page), [`lenders`](Registry::lenders), [`groups`](Registry::groups),
/// [`groups_page`](Registry::groups_page), [`poll_timeout`](Registry::poll_timeout).
/// Handlers: [`handle_start`](Registry::handle_start), [`handle_reserve`](Registry::handle_reserve),
/// [`handle_join`](Registry::handle_join), [`handle_renew`](Registry::handle_renew),
/// [`handle_leave`](Registry::handle_leave), [`handle_disks`](Registry::handle_disks),
/// [`handle_forget`](Registry::handle_forget), [`handle_retire`](Registry::handle_retire),
/// [`handle_drained`](Registry::handle_drained), [`handle_empty`](Registry::handle_empty),
/// [`handle_group`](Registry::handle_group),
/// [`handle_planned`](Registry::handle_planned), [`handle_make`](Registry::handle_make),
/// [`handle_timeout`](Registry::handle_timeout), [`handle_synced`](Registry::handle_synced).
#[derive(Debug)]
pub struct Registry {
    store: Store,
    span: Duration,
    members: BTreeMap<NodeId, Entry>,
    view: u64,
    lenders: LenderTable,
    disks: DiskTable,
    groups: StoredTable,
    emptied: EmptiedTable,
    /// Where the search for the next client's id begins.
    next_client: u16,
}

#[derive(Debug)]
struct Entry {
    member: Member,
    /// When the lease ends; only of members that are alive.
    until: Time,
}

impl Registry {
    /// The members that `store` knows; leases begin with [`handle_start`](Registry::handle_start).
    pub fn open(store: Store, span: Duration) -> Result<Registry, StoreError> {
        let mut members = BTreeMap::new();
        for (_, value) in store.range(&[MEMBER_KEY][..]..&[MEMBER_KEY + 1][..], usize::MAX)? {
            let member = Member::decode(&value).map_err(|_| malformed())?;
            members.insert(member.id, Entry { member, until: Time::NEVER });
        }
        let number = |key| store.get(key).map(|value| number_of(value.as_deref()));
        let (view, client) = (number(VIEW_KEY)?, number(CLIENT_KEY)?);
        let next_client = u16::try_from(client).ok().filter(|id| CLIENT_IDS.contains(id));
        let next_client = next_client.unwrap_or(*CLIENT_IDS.start());
        let (lenders, disks) = (LenderTable::open(&store)?, DiskTable::open(&store)?);
        let (groups, emptied) = (StoredTable::open(&store)?, EmptiedTable::open(&store)?);
        let mut registry =
            Registry { store, span, members, view, lenders, disks, groups, emptied, next_client };
        registry.handle_synced();
        Ok(registry)
    }

    /// The members that take part in network memory, as others are shown them.
    pub fn lenders(&self) -> &View {
        self.lenders.shown()
    }

    /// Whether the shown lenders lack a change, because it must be on stable storage first.
    pub fn hides_lenders(&self) -> bool {
        self.lenders.is_ahead()
    }

    /// More of the store is on stable storage, also of the groups. Says whether others are shown other lenders from now
    /// on.
    pub fn handle_synced(&mut self) -> bool {
        let Registry { members, lenders, groups, store, .. } = self;
        groups.handle_synced(store.synced_sequence());
        let is_alive = |id| members.get(&id).is_some_and(|entry| entry.member.alive);
        lenders.handle_synced(store.synced_sequence(), is_alive)
    }

    /// Number of the present view.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The member with this id.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        self.members.get(&id).map(|entry| &entry.member)
    }

    /// All members, in ascending order of their ids.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().map(|entry| &entry.member)
    }

    /// The members after this id, as many as fit in a page.
    pub fn page(&self, after: NodeId) -> Page {
        let mut page = Page { view: self.view, members: Vec::new(), last: true };
        let mut bytes = 0;
        for (_, entry) in self.members.range(NodeId(after.0.saturating_add(1))..) {
            bytes += entry.member.to_bytes().len();
            if bytes > PAGE_BYTES {
                page.last = false;
                break;
            }
            page.members.push(entry.member.clone());
        }
        page
    }

    /// The members after this id that take part in network memory, as many as fit in a page.
    pub fn lenders_page(&self, after: NodeId) -> LendersPage {
        let View { number, members } = self.lenders();
        let mut rest = members.iter().filter(|lender| lender.node > after).copied();
        let lenders = rest.by_ref().take(PAGE_BYTES / Up::BYTES).collect();
        LendersPage { number: *number, lenders, last: rest.next().is_none() }
    }

    /// When this member's lease ends, or ended when it is down. After a restart the time since when a member is down is
    /// not known: it counts from the start.
    pub fn until(&self, id: NodeId) -> Option<Time> {
        self.members.get(&id).map(|entry| entry.until)
    }

    /// When the next lease ends, unless it is renewed.
    pub fn poll_timeout(&self) -> Option<Time> {
        let alive = self.members.values().filter(|entry| entry.member.alive);
        alive.map(|entry| entry.until).min()
    }

    /// The store, for its syncs and checkpoints.
    pub fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// The service begins: every member that was alive has a full lease from now on.
    pub fn handle_start(&mut self, now: Time) {
        for entry in self.members.values_mut().filter(|entry| entry.until == Time::NEVER) {
            entry.until = if entry.member.alive { now + self.span } else { now };
        }
    }

    /// Whether a JOIN may speak for its name; `clock` is this node's wall clock in nanoseconds. EOVERFLOW: its
    /// incarnation is far ahead of the clock and of the last one, and would shut out every later start of that name.
    /// EEXIST: the node has no id, and a living client holds the name.
    pub fn check_claim(&self, clock: u64, has_id: bool, join: &Join) -> Result<(), Errno> {
        let known = self.find(join).map(|id| &self.members[&id].member);
        let last = known.map_or(0, |member| member.incarnation);
        let most = clock.saturating_add(AHEAD_OF_CLOCK_MAX);
        if join.incarnation > most.max(last.saturating_add(AHEAD_OF_LAST_MAX)) {
            return Err(Errno::EOVERFLOW);
        }
        let held = known.is_some_and(|member| member.alive && last != join.incarnation);
        if held && !has_id { Err(Errno::EEXIST) } else { Ok(()) }
    }

    /// Assigns an id to the name of a machine that is not running yet. The member is down until it joins with that id,
    /// so that no other waits for it meanwhile. EEXIST: another machine has the name; a name is assigned once.
    pub fn handle_reserve(
        &mut self,
        now: Time,
        join: &Join,
    ) -> Result<(Lease, Option<Append>), Errno> {
        let Join { identity, incarnation } = join;
        identity.check()?;
        self.store.admit()?;
        let span = Duration::ZERO;
        let lease = |id, view| Lease { id, span, view, lenders: 0, incarnation: 0, groups: 0 };
        if let Some(id) = self.find(join) {
            let again = self.members[&id].member.incarnation == *incarnation;
            return if again { Ok((lease(id, self.view), None)) } else { Err(Errno::EEXIST) };
        }
        let id = self.new_id(join)?;
        let member = Member {
            id,
            roles: identity.roles,
            alive: false,
            gone: false,
            retired: false,
            drained: false,
            incarnation: *incarnation,
            disks: identity.disks,
            gone_disks: 0,
            name: identity.name.clone(),
            addresses: identity.addresses.clone(),
        };
        let append = self.write_member(now, member, identity.lends)?;
        self.members.get_mut(&id).expect("just written").until = now;
        Ok((lease(id, self.view), Some(append)))
    }

    /// A node becomes a member, or a member tells what is new about it. Asking twice gives the same answer.
    pub fn handle_join(
        &mut self,
        now: Time,
        join: &Join,
    ) -> Result<(Lease, Option<Append>), Errno> {
        let Join { identity, incarnation } = join;
        identity.check()?;
        // Also an answer that changes nothing promises what an earlier change did, which the log may not hold.
        self.store.admit()?;
        self.refuse_gone(identity)?;
        let known = self.find(join);
        let id = match known {
            Some(id) if identity.wish.is_none_or(|wish| wish == id) => id,
            Some(_) => return Err(Errno::EEXIST),
            None => self.new_id(join)?,
        };
        let gone_disks = self.member(id).map_or(0, |old| old.gone_disks);
        let retired = self.member(id).is_some_and(|old| old.retired);
        let drained = self.member(id).is_some_and(|old| old.drained);
        // A disk that this incarnation does not serve does not come back by another join of it, and one that has taken
        // the place of another one stays.
        let again = self.member(id).filter(|old| old.incarnation == *incarnation);
        let disks = again.map_or(identity.disks, |old| old.disks);
        let member = Member {
            id,
            roles: identity.roles,
            alive: true,
            gone: false,
            retired,
            drained,
            incarnation: *incarnation,
            disks,
            gone_disks,
            name: identity.name.clone(),
            addresses: identity.addresses.clone(),
        };
        let old = known.map(|id| &self.members[&id].member);
        if old.is_some_and(|old| old.incarnation > *incarnation) {
            return Err(Errno::ESTALE);
        }
        let append = match old {
            Some(old) if *old == member && self.lends_same(id, identity) => None,
            _ => Some(self.write_member(now, member, identity.lends)?),
        };
        Ok((self.renew(now, id), append))
    }

    /// A member stays one. A server whose lease had ended is alive again.
    pub fn handle_renew(
        &mut self,
        now: Time,
        registration: Registration,
    ) -> Result<(Lease, Option<Append>), Errno> {
        if self.member(registration.id).is_some_and(|member| member.gone) {
            return Err(DECLARED_GONE);
        }
        let member = self.living(registration).ok_or(Errno::ESTALE)?.clone();
        let append = match member.alive {
            true => None,
            false => {
                let lends = self.lenders.lends(registration.id);
                Some(self.write_member(now, Member { alive: true, ..member }, lends)?)
            }
        };
        Ok((self.renew(now, registration.id), append))
    }

    /// A member reports the disks that it can serve, and which of them are empty ones in the places of lost disks. The
    /// others, and those that are not its own, take no objects until its next incarnation. The caller knows the changed
    /// disks once the record is appended.
    pub fn handle_disks(
        &mut self,
        now: Time,
        registration: Registration,
        disks: &[ToldDisk],
        replacing: u32,
    ) -> Result<(Verdict, Option<Append>), Errno> {
        let Registration { id, incarnation } = registration;
        let member = self.living(registration).ok_or(Errno::ESTALE)?.clone();
        self.store.admit()?;
        let (replaceable, needed) = self.replaceable(id, disks, replacing);
        let mut batch = Batch::new();
        let (verdict, is_new) = self.disks.note(&mut batch, (id, incarnation), disks, replaceable);
        let verdict = Verdict { needed, foreign: verdict.foreign & !needed, ..verdict };
        let served = verdict.serving(disks);
        // The join left these out: their numbers may be of disks that were declared gone.
        let came = served & replacing;
        let next = Member {
            disks: (member.disks | came) & served,
            gone_disks: member.gone_disks & !came,
            ..member.clone()
        };
        if next == member {
            return Ok((verdict, is_new.then(|| self.store.apply(batch))));
        }
        let lends = self.lenders.lends(id);
        Ok((verdict, Some(self.write_with(batch, now, next, lends))))
    }

    /// A member leaves. Leaving twice is no error.
    pub fn handle_leave(&mut self, registration: Registration) -> Result<Option<Append>, Errno> {
        let alive = self.living(registration).is_some_and(|member| member.alive);
        if alive { self.end(&[registration.id]).map(Some) } else { Ok(None) }
    }

    /// A server, or a disk of one, is gone for good: what it held is lost, its name is free, its id is not. Doing so
    /// twice is no error.
    ///
    /// # Errors
    ///
    /// EBUSY: it is up, or the disk takes objects. EPERM: it is a manager that has not drained. ENOENT: there is no
    /// such server or disk. ENOTEMPTY: the only whole replica of some group is there.
    pub fn handle_forget(&mut self, now: Time, forget: Forget) -> Result<Option<Append>, Errno> {
        self.store.admit()?;
        let known = self.member(forget.id).filter(|member| member.roles.is_server());
        let member = known.ok_or(Errno::ENOENT)?.clone();
        let lost = match forget.disk {
            None if member.roles.contains(Roles::MANAGER) && !member.drained => {
                return Err(Errno::EPERM);
            }
            None => Member { gone: true, ..member.clone() },
            Some(disk) => {
                let bit = 1u32.checked_shl(disk.into()).ok_or(Errno::ENOENT)?;
                if member.alive && member.disks & bit != 0 {
                    return Err(Errno::EBUSY);
                }
                let (gone_disks, disks) = (member.gone_disks | bit, member.disks & !bit);
                Member { gone_disks, disks, ..member.clone() }
            }
        };
        if lost == member {
            return Ok(None);
        }
        if forget.disk.is_none() && member.alive {
            return Err(Errno::EBUSY);
        }
        if self.needs(&|replica| forget.is_about(replica.server, replica.disk)) {
            return Err(Errno::ENOTEMPTY);
        }
        let (lends, until) = (self.lenders.lends(forget.id), self.until(forget.id));
        let mut batch = Batch::new();
        if forget.disk.is_none() {
            self.emptied.set(&mut batch, forget.id, 0);
        }
        let append = self.write_with(batch, now, lost, lends);
        // Neither prolongs a lease.
        let entry = self.members.get_mut(&forget.id).expect("just written");
        entry.until = until.unwrap_or(now);
        Ok(Some(append))
    }

    /// A file manager is to give away what it owns, or is to own a share again. Doing so twice is no error.
    ///
    /// # Errors
    ///
    /// EBUSY: it is down, so it cannot give. ENOENT: there is no such manager.
    pub fn handle_retire(&mut self, asked: Retire) -> Result<Option<Append>, Errno> {
        let known = self.member(asked.id).filter(|member| !member.gone);
        let known = known.filter(|member| member.roles.contains(Roles::MANAGER));
        let member = known.ok_or(Errno::ENOENT)?.clone();
        if asked.retired && !member.alive && !member.drained {
            return Err(Errno::EBUSY);
        }
        let drained = member.drained && asked.retired;
        self.mark(Member { retired: asked.retired, drained, ..member })
    }

    /// A retired manager says that it owns nothing any more. ESTALE: it is another incarnation, or not retired.
    pub fn handle_drained(&mut self, registration: Registration) -> Result<Option<Append>, Errno> {
        let retired = self.living(registration).filter(|member| member.retired);
        let member = retired.ok_or(Errno::ESTALE)?.clone();
        self.mark(Member { drained: true, ..member })
    }

    /// Writes `member` down without prolonging its lease, unless it is known so.
    fn mark(&mut self, member: Member) -> Result<Option<Append>, Errno> {
        assert!(member.retired || !member.drained, "only what is retired drains");
        self.store.admit()?;
        let id = member.id;
        if self.member(id) == Some(&member) {
            return Ok(None);
        }
        let until = self.until(id).expect("a member");
        let append = self.write_member(Time::ZERO, member, self.lenders.lends(id))?;
        self.members.get_mut(&id).expect("just written").until = until;
        Ok(Some(append))
    }

    /// A server that was declared gone, or whose disk was, does not come back: files that it had may have been removed
    /// and made anew since.
    fn refuse_gone(&self, identity: &Identity) -> Result<(), Errno> {
        let known = identity.wish.and_then(|id| self.member(id));
        let refused = known.is_some_and(|member| {
            let same = member.roles.is_server() && member.name == identity.name;
            same && (member.gone || member.gone_disks & identity.disks != 0)
        });
        if refused { Err(DECLARED_GONE) } else { Ok(()) }
    }

    /// Ends leases that were not renewed in time; more of them than [`ENDED_AT_ONCE`] when it is called again.
    pub fn handle_timeout(&mut self, now: Time) -> Result<Option<Append>, Errno> {
        let over = |entry: &&Entry| entry.member.alive && entry.until <= now;
        let over = self.members.values().filter(over).map(|entry| entry.member.id);
        let ids: Vec<_> = over.take(ENDED_AT_ONCE).collect();
        if ids.is_empty() { Ok(None) } else { self.end(&ids).map(Some) }
    }

    /// The member of this name and kind.
    fn find(&self, join: &Join) -> Option<NodeId> {
        let identity = &join.identity;
        let same = |member: &&Member| {
            let same_kind = member.roles.is_server() == identity.roles.is_server();
            member.name == identity.name && same_kind && !member.gone
        };
        self.members().find(same).map(|member| member.id)
    }

    fn lends_same(&self, id: NodeId, identity: &Identity) -> bool {
        let lends = identity.roles.contains(Roles::MEMORY);
        !lends || (self.lenders.incarnation(id) > 0 && self.lenders.lends(id) == identity.lends)
    }

    fn living(&self, registration: Registration) -> Option<&Member> {
        self.member(registration.id).filter(|member| member.incarnation == registration.incarnation)
    }

    fn new_id(&self, join: &Join) -> Result<NodeId, Errno> {
        if self.members.len() >= MEMBERS_MAX {
            return Err(Errno::ENOSPC);
        }
        let server = join.identity.roles.is_server();
        let ids = if server { SERVER_IDS } else { CLIENT_IDS };
        match join.identity.wish {
            Some(wish) if !ids.contains(&wish.0) => Err(Errno::EINVAL),
            Some(wish) if self.members.contains_key(&wish) => Err(Errno::EEXIST),
            Some(wish) => Ok(wish),
            None if server => self.free_id(ids.clone(), *ids.start()).ok_or(Errno::ENOSPC),
            None => self.free_id(ids, self.next_client).ok_or(Errno::ENOSPC),
        }
    }

    /// The first free id from `first` on, in a circle.
    fn free_id(&self, ids: RangeInclusive<u16>, first: u16) -> Option<NodeId> {
        let circle = (first..=*ids.end()).chain(*ids.start()..first).map(NodeId);
        circle.into_iter().find(|id| !self.members.contains_key(id))
    }

    fn renew(&mut self, now: Time, id: NodeId) -> Lease {
        let entry = self.members.get_mut(&id).expect("a member");
        entry.until = now + self.span;
        let (lenders, incarnation) = (self.lenders().number, self.lenders.incarnation(id));
        let groups = self.groups().version();
        Lease { id, span: self.span, view: self.view, lenders, incarnation, groups }
    }

    /// Writes `member` down in place of what was known of it.
    fn write_member(&mut self, now: Time, member: Member, lends: Lends) -> Result<Append, Errno> {
        self.store.admit()?;
        Ok(self.write_with(Batch::new(), now, member, lends))
    }

    /// As [`write_member`](Registry::write_member), with what `batch` has; the store admits it.
    fn write_with(&mut self, mut batch: Batch, now: Time, member: Member, lends: Lends) -> Append {
        let ids = if member.roles.is_server() { SERVER_IDS } else { CLIENT_IDS };
        assert!(ids.contains(&member.id.0), "{} is no id of its kind", member.id.0);
        assert!(!(member.alive && member.gone), "a server that is gone is down");
        batch.put(&member_key(member.id), &member.to_bytes());
        let old = self.members.get(&member.id).map(|entry| &entry.member);
        let lenders = self.lenders.note(&mut batch, old, Some((&member, lends)));
        if !member.roles.is_server() && !self.members.contains_key(&member.id) {
            self.next_client = next_client(self.next_client, member.id);
            put_number(&mut batch, CLIENT_KEY, self.next_client.into());
        }
        let append = self.change(batch, lenders);
        self.members.insert(member.id, Entry { member, until: now + self.span });
        append
    }

    /// Takes the members' leases: clients are forgotten, servers are down.
    fn end(&mut self, ids: &[NodeId]) -> Result<Append, Errno> {
        self.store.admit()?;
        let (mut batch, mut lenders) = (Batch::new(), false);
        for id in ids {
            let member = &self.members[id].member;
            assert!(member.alive, "a lease ends once");
            let down = Member { alive: false, ..member.clone() };
            let server = member.roles.is_server();
            match server {
                true => batch.put(&member_key(*id), &down.to_bytes()),
                false => batch.delete(&member_key(*id)),
            };
            let stays = server.then_some((&down, self.lenders.lends(*id)));
            lenders |= self.lenders.note(&mut batch, Some(member), stays);
        }
        let append = self.change(batch, lenders);
        for id in ids {
            let entry = self.members.get_mut(id).expect("a member");
            entry.member.alive = false;
            if !entry.member.roles.is_server() {
                self.members.remove(id);
            }
        }
        Ok(append)
    }

    /// Applies `batch` as the next view.
    fn change(&mut self, mut batch: Batch, lenders: bool) -> Append {
        self.view += 1;
        put_number(&mut batch, VIEW_KEY, self.view);
        let append = self.store.apply(batch);
        if lenders {
            self.lenders.changed_by(append.sequence);
        }
        append
    }
}

fn member_key(id: NodeId) -> [u8; 3] {
    let [high, low] = id.0.to_be_bytes();
    [MEMBER_KEY, high, low]
}

fn put_number(batch: &mut Batch, key: &[u8], number: u64) {
    let mut bytes = [0; 8];
    Encoder::new(&mut bytes).u64(number);
    batch.put(key, &bytes);
}

fn number_of(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| Decoder::new(value).u64().ok()).unwrap_or(0)
}

/// The id to begin with after a client has taken one. They go round in a circle, which a client does not turn back that
/// takes up the id it had before its lease ended: those behind it may be of clients that are paused.
fn next_client(next: u16, taken: NodeId) -> u16 {
    let (first, count) = (*CLIENT_IDS.start(), CLIENT_IDS.len());
    let place = |id: u16| usize::from(id - first);
    let ahead = (place(taken.0) + count - place(next)) % count;
    let behind_it = first + ((place(taken.0) + 1) % count) as u16;
    if ahead < count / 2 { behind_it } else { next }
}
