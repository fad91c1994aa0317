//! The directory part of a node, as the home of entries: entries, membership, writers, freed pages, and notices to
//! others.
//!
//! Invariants: an entry is here only while this node is one of its page's homes; a holder in it is up, in the
//! incarnation that the view says; nothing of a freed space is registered.

mod relayed;

use super::freed::{Freed, TooMany};
use super::leases::{Leases, Writer};
use super::notices::Notices;
use super::tell::Telling;
use super::unlisted::Unlisted;
use crate::directory::{Directory, Entry, Holder, Lookup, Refusal, Role};
use crate::limits::{HOLDERS_MAX, REPAIR_PAUSE, REPAIR_TASKS};
use crate::page::{PageId, SpaceId, Version};
use crate::protocol::{Get, GetReply, Record, Stale, Verdict, op};
use crate::slots::{Homes, Member, Slots};
use members::replicas::Repairs;
use members::{Membership, Up, View};
use wire::{NodeId, Time};

/// The directory's decision on a request for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// To a holder, which should have this.
    To(Stale, Role),
    /// Back, with this answer.
    Back(GetReply),
}

/// The effect of another view on others.
#[derive(Debug)]
pub struct Change {
    /// Nodes that are gone and nodes that came.
    pub members: members::Change,
    /// The slots of the view before.
    slots: Option<Slots>,
    /// Hard entries for homes that do not know them.
    pub handover: Vec<(NodeId, Record)>,
    /// Versions that this node's directory saw lost.
    pub lost: u64,
}

impl Change {
    /// Whether a home of `today` was one before, in the same incarnation: it knows of who had a page.
    pub fn knew(&self, today: &View, home: NodeId, id: PageId, role: Role) -> bool {
        let same = today.incarnation(home) == self.members.before.incarnation(home);
        let homes = self.slots.as_ref().map(|slots| slots.homes(id).told_of(role));
        same && homes.is_some_and(|mut homes| homes.any(|node| node == home))
    }
}

/// The directory and all that decides about it.
#[derive(Debug)]
pub struct Home {
    members: Membership,
    slots: Option<Slots>,
    directory: Directory,
    unlisted: Unlisted,
    leases: Leases,
    freed: Freed,
    notices: Notices,
    telling: Telling,
    /// Pages that may lack mirrors.
    repairs: Repairs<PageId>,
    relayed: relayed::Relayed,
}

impl Home {
    /// Without a view: no home of anything, and no page has one.
    pub fn new(members: Membership, entries: usize) -> Home {
        Home {
            members,
            slots: None,
            directory: Directory::new(entries),
            unlisted: Unlisted::default(),
            leases: Leases::default(),
            freed: Freed::default(),
            notices: Notices::default(),
            telling: Telling::default(),
            repairs: Repairs::new(REPAIR_TASKS, REPAIR_PAUSE),
            relayed: relayed::Relayed::default(),
        }
    }

    /// The nodes that are up, and this node's incarnation.
    pub fn members(&self) -> &Membership {
        &self.members
    }

    /// The same, for what is heard of it.
    pub fn members_mut(&mut self) -> &mut Membership {
        &mut self.members
    }

    /// The nodes that are up.
    pub fn view(&self) -> &View {
        self.members.view()
    }

    /// The entries.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The writers' leases.
    pub fn leases(&mut self) -> &mut Leases {
        &mut self.leases
    }

    /// Whether other nodes may take this one for dead and have written to a space meanwhile; `None` when it was freed.
    pub fn doubts(&self, now: Time, space: SpaceId) -> Option<bool> {
        let doubtful = space.owner().is_none() && self.members.is_doubtful(now);
        (!self.is_freed(space)).then_some(doubtful)
    }

    /// Whether a copy of a page may be kept: its space exists, and this node would be told that the copy is outdated,
    /// which in no view it is not.
    pub fn may_keep(&self, id: PageId) -> bool {
        let is_told = id.space.owner().is_some() || self.members.is_member();
        is_told && !self.is_freed(id.space)
    }

    /// Whether a space was freed.
    pub fn is_freed(&self, space: SpaceId) -> bool {
        self.freed.has(space)
    }

    /// The spaces that were freed lately.
    pub fn freed(&self) -> &Freed {
        &self.freed
    }

    /// Notices to other nodes, sent at leisure.
    pub fn notices(&mut self) -> &mut Notices {
        &mut self.notices
    }

    /// Reports that the view asks of this node.
    pub fn telling(&self) -> &Telling {
        &self.telling
    }

    /// The same, to change it.
    pub fn telling_mut(&mut self) -> &mut Telling {
        &mut self.telling
    }

    /// The homes of a page's entry; `None` without a view, and of guests' pages.
    pub fn homes(&self, id: PageId) -> Option<Homes> {
        self.slots.as_ref().filter(|_| !id.space.is_guest()).map(|slots| slots.homes(id))
    }

    /// The homes of a page, this node left out.
    pub fn other_homes(&self, id: PageId) -> impl Iterator<Item = NodeId> + use<> {
        let me = self.members.me();
        self.homes(id).into_iter().flat_map(Homes::both).filter(move |node| *node != me)
    }

    /// Whether this node is the home that is asked.
    pub fn is_primary(&self, id: PageId) -> bool {
        self.homes(id).is_some_and(|homes| homes.primary == self.members.me())
    }

    /// Whether this node is one of the homes.
    pub fn is_home(&self, id: PageId) -> bool {
        self.homes(id).is_some_and(|homes| homes.has(self.members.me()))
    }

    /// Whether all nodes have reported their copies since the view changed. A page that is not known then is nowhere.
    pub fn is_settled(&self) -> bool {
        self.members.is_settled()
    }

    /// Whether a node that goes by the view of this number speaks of a page of its owner's earlier incarnation.
    pub fn is_outlived(&self, id: PageId, view: u64) -> bool {
        id.space.owner().is_some_and(|owner| self.members.is_outlived(owner, view))
    }

    /// Routes a request. `random` chooses among several holders.
    pub fn direct(&mut self, get: &Get, random: u64) -> Route {
        if self.freed.has(get.id.space) {
            return Route::Back(GetReply::Freed);
        }
        if !self.is_home(get.id) {
            return Route::Back(GetReply::NotHome(self.view().number));
        }
        get.stale.iter().for_each(|stale| self.handle_stale(get.id, stale));
        let avoid = [Some(get.requester), get.stale.map(|stale| stale.node)];
        if let Some(writer) = self.leases.writer(get.id).filter(|w| !avoid.contains(&Some(w.node)))
        {
            let stale =
                Stale { node: writer.node, incarnation: writer.incarnation, version: get.at_least };
            return Route::To(stale, Role::Clean);
        }
        match self.directory.look_up(get.id, get.at_least) {
            Lookup::Held(entry) => self.holder(entry, &avoid, random),
            // until all have reported, another node may have a newer version
            Lookup::Lost(version) if self.knows_all(get.id) => Route::Back(GetReply::Lost(version)),
            Lookup::Lost(_) | Lookup::Unknown => self.route_unlisted(get, &avoid),
        }
    }

    /// Routes a request for a page without an entry.
    fn route_unlisted(&self, get: &Get, avoid: &[Option<NodeId>]) -> Route {
        let told = self.unlisted.get(get.id).filter(|told| told.version >= get.at_least);
        match told {
            Some(told) if told.lost && self.is_primary(get.id) && self.is_settled() => {
                Route::Back(GetReply::Lost(told.version))
            }
            Some(told) if !told.lost && !avoid.contains(&Some(told.holder.node)) => {
                told.holder.route(told.version)
            }
            _ => Route::Back(self.unknown(get.id)),
        }
    }

    fn holder(&self, entry: &Entry, avoid: &[Option<NodeId>], random: u64) -> Route {
        let fits = |holder: &&Holder| !avoid.contains(&Some(holder.node));
        let count = entry.holders.iter().filter(fits).count();
        if count == 0 {
            // the asker has the only mirror, or was told by one that it has it not: not to be believed
            let own = entry.holders.iter().find(|holder| Some(holder.node) == avoid[0]);
            let unknown = Route::Back(GetReply::Unknown { settled: false });
            return own.map_or(unknown, |own| own.route(entry.version));
        }
        let mut holders = entry.holders.iter().filter(fits);
        let holder = holders.nth((random % count as u64) as usize).expect("counted");
        holder.route(entry.version)
    }

    /// Only the primary knows of clean copies, and a private space's owner of all that it has put anywhere.
    fn unknown(&self, id: PageId) -> GetReply {
        GetReply::Unknown { settled: self.knows_all(id) }
    }

    /// Whether a page without an entry here is in no node's memory.
    pub fn knows_all(&self, id: PageId) -> bool {
        let own = id.space.owner() == Some(self.members.me());
        own || (self.is_primary(id) && self.is_settled() && !self.unlisted.may_have(id))
    }

    /// A holder did not have what it should. A mirror's denial is not believed: it may be late. A clean copy's is: if
    /// the copy has come again, it is unknown from now on, so it must be dropped.
    fn handle_stale(&mut self, id: PageId, stale: &Stale) {
        let Stale { node, incarnation, version } = *stale;
        let holder = Holder { node, incarnation, role: Role::Clean };
        if self.notices.has_room(1) && self.directory.unregister(id, version, holder) {
            self.notices.tell_to_drop(id, version, holder);
        }
    }

    /// A node reports that it, or another one, holds a page. Holders that must drop a copy for that are notified.
    pub fn register(&mut self, record: &Record) -> Verdict {
        if self.freed.has(record.id.space) {
            return Verdict::Freed;
        }
        if !self.is_home(record.id) {
            return Verdict::NotHome;
        }
        if record.lost {
            return self.enter_lost(record);
        }
        match self.view().incarnation(record.holder.node) {
            Some(incarnation) if incarnation == record.holder.incarnation && record.writer => {
                self.enter_writer(record)
            }
            Some(incarnation) if incarnation == record.holder.incarnation => {
                self.note_written(record);
                self.enter(record)
            }
            Some(incarnation) if incarnation > record.holder.incarnation => Verdict::Outlived,
            _ => Verdict::NotHome,
        }
    }

    /// A holder that calls its former mirror a clean copy knows that its version is on stable storage, which this
    /// directory may have missed. It would count it as a mirror for ever.
    fn note_written(&mut self, record: &Record) {
        if was_mirror(record) {
            self.handle_written(record.id, record.version);
        }
    }

    /// Another directory has granted the lease. Copies that were heard of before that are of before the grant, and
    /// each holder is told.
    fn enter_writer(&mut self, record: &Record) -> Verdict {
        let (id, Holder { node, incarnation, .. }) = (record.id, record.holder);
        self.leases.claim(id, Writer { node, incarnation }, record.version);
        let Some(entry) = self.directory.entry(id) else { return Verdict::Done };
        if !self.has_room_for_page() {
            return Verdict::Later;
        }
        let version = entry.version;
        for holder in self.copies_to_drop(id, node) {
            self.directory.unregister(id, version, holder);
            self.notices.tell_to_drop(id, version, holder);
        }
        self.handle_dispersed(id);
        Verdict::Done
    }

    fn enter_lost(&mut self, record: &Record) -> Verdict {
        match self.directory.handle_lost(record.id, record.version) {
            Ok(()) => Verdict::Done,
            Err(refusal) => self.refuse(record, refusal),
        }
    }

    /// A hard record without room is remembered. A successor of a version that is only remembered is not refused:
    /// another home may have told the holders of that one to drop it.
    fn refuse(&mut self, record: &Record, refusal: Refusal) -> Verdict {
        if refusal != Refusal::Full || !(record.lost || record.holder.role.is_hard()) {
            return refusal.into();
        }
        let succeeds = self.unlisted.may_have_older(record.id, record.version);
        self.unlisted.insert(record);
        if succeeds { Verdict::NotHome } else { Verdict::Full }
    }

    fn enter(&mut self, record: &Record) -> Verdict {
        let Record { id, version, holder, copies, .. } = *record;
        if holder.role == Role::Clean && self.leases.excludes(id, holder.node) {
            // a copy of before the lease was granted, of which is heard only now
            return Verdict::Stale(version);
        }
        if version < self.unlisted.version(id) {
            return Verdict::Stale(self.unlisted.version(id));
        }
        if !self.has_room_for_page() {
            return self.refuse(record, Refusal::Full);
        }
        let older = self.directory.entry(id).filter(|entry| entry.version < version).cloned();
        let outcome = match self.directory.register(id, version, holder) {
            Ok(outcome) => outcome,
            Err(refusal) => return self.refuse(record, refusal),
        };
        if holder.role.is_hard() {
            self.unlisted.remove(id, version);
            self.directory.expect_mirrors(id, version, copies);
            self.note_missing(id);
        }
        let Home { members, notices, .. } = self;
        match &older {
            Some(older) => {
                let others = holders_of(members, older).filter(|old| old.node != holder.node);
                others.for_each(|old| notices.tell_to_drop(id, older.version, old));
            }
            None => outcome.dropped.iter().for_each(|old| notices.tell_to_drop(id, version, *old)),
        }
        if let Some(entry) = &outcome.forgotten {
            let holders = holders_of(members, entry);
            holders.for_each(|holder| notices.tell_to_drop(entry.id, entry.version, holder));
        }
        Verdict::Done
    }

    /// Whether all may be told that have one page, and what one more page pushes out.
    fn has_room_for_page(&self) -> bool {
        self.notices.has_room(self.view().members.len() + HOLDERS_MAX)
    }

    /// While others still tell what they hold, a lack of mirrors may be one or not.
    fn note_missing(&mut self, id: PageId) {
        if !self.is_settled() {
            self.note_lack(id);
        }
    }

    fn note_lack(&mut self, id: PageId) {
        if self.directory.entry(id).is_some_and(|entry| entry.mirrors_missing() > 0) {
            self.repairs.insert(id, ());
        }
    }

    /// A holder has given a page up.
    pub fn unregister(&mut self, record: &Record) -> Verdict {
        self.note_written(record);
        self.unlisted.handle_gone(record);
        self.directory.unregister(record.id, record.version, record.holder);
        Verdict::Done
    }

    /// A version is on stable storage. Older ones are obsolete, and their holders are notified.
    pub fn handle_written(&mut self, id: PageId, version: Version) {
        self.directory.handle_written(id, version);
        self.unlisted.remove(id, version);
        let Some(older) = self.directory.handle_outdated(id, version) else { return };
        for holder in holders_of(&self.members, &older) {
            self.notices.push(holder.node, op::WRITTEN, Record::new(id, version, holder));
        }
    }

    /// All holders that were to drop a copy of a page have.
    pub fn handle_dispersed(&mut self, id: PageId) {
        if self.directory.entry(id).is_some_and(|entry| !entry.is_bare()) {
            self.directory.handle_dispersed(id);
        }
    }

    /// Nothing of a space exists any more.
    pub fn free_space(&mut self, now: Time, space: SpaceId) -> Result<(), TooMany> {
        self.freed.insert(now, space)?;
        self.unlisted.retain(|id| id.space != space);
        self.directory.retain(|entry| entry.id.space != space, |_| ());
        self.leases.free_space(space);
        self.repairs.retain(|id| id.space != space);
        Ok(())
    }

    /// The private spaces of a node that is gone for good.
    pub fn free_owner(&mut self, owner: NodeId) {
        self.unlisted.retain(|id| id.space.owner() != Some(owner));
        self.directory.retain(|entry| entry.id.space.owner() != Some(owner), |_| ());
        self.repairs.retain(|id| id.space.owner() != Some(owner));
    }

    /// The next page that lacks a mirror, with who has it; `None` while others still tell what they hold.
    pub fn poll_repair(&mut self, now: Time) -> Option<Entry> {
        if !self.is_settled() {
            return None;
        }
        while let Some((id, ())) = self.repairs.poll(now) {
            let entry = self.directory.entry(id).filter(|entry| entry.mirrors_missing() > 0);
            if let Some(entry) = entry.cloned().filter(|_| self.is_primary(id)) {
                return Some(entry);
            }
            self.repairs.handle_end(now, id, true);
        }
        None
    }

    /// When another repair may begin, if too many have failed just now.
    pub fn repairs_rest_until(&self) -> Option<Time> {
        self.repairs.rests_until()
    }

    /// A repair has ended: the page is whole, or a mirror could not be made or another one is missing.
    pub fn handle_repair(&mut self, now: Time, id: PageId, whole: bool) {
        self.repairs.handle_end(now, id, whole);
    }

    /// Pages that lack a mirror, or may: of those without an entry it is not known.
    pub fn deficit(&self) -> usize {
        let lacks = |id: &PageId| {
            self.directory.entry(*id).is_some_and(|entry| entry.mirrors_missing() > 0)
        };
        self.repairs.keys().filter(lacks).count() + self.unlisted.mirrors()
    }

    /// Another view. `None` when it is not newer. Holders that are gone are forgotten, and so are entries that are at
    /// home elsewhere now; what is hard of these is to be handed over.
    pub fn handle_view(&mut self, now: Time, view: View) -> Option<Change> {
        let members = self.members.handle_view(now, view)?;
        let up = self.view().members.iter();
        let weights: Vec<Member> =
            up.map(|up| Member { node: up.node, weight: up.weight }).collect();
        let slots = std::mem::replace(&mut self.slots, Slots::new(&weights));
        let lost = self.drop_gone(&members.gone);
        // what is known of the private spaces of a node that comes is of an earlier incarnation
        members.came.iter().for_each(|node| self.free_owner(*node));
        let mut change = Change { members, slots, handover: Vec::new(), lost };
        change.handover = self.handover(&change);
        let (slots, me) = (&self.slots, self.members.me());
        let homes = |id| slots.as_ref().map(|slots| slots.homes(id));
        let is_home = |homes: Homes| homes.has(me);
        self.directory.retain(|entry| homes(entry.id).is_some_and(is_home), |_| ());
        self.unlisted.begin_view();
        self.unlisted.retain(|id| homes(id).is_some_and(is_home));
        self.leases.begin_view(self.view().number);
        self.collect_repairs();
        Some(change)
    }

    /// This node's incarnation is over: it is no home any more, and the copies of its private spaces at `others` are
    /// gone. Returns the number of pages that are lost by that.
    pub fn handle_end(&mut self, others: &[(NodeId, u64)]) -> u64 {
        let me = self.members.me();
        self.directory.retain(|entry| entry.id.space.owner() == Some(me), |_| ());
        self.unlisted.retain(|_| false);
        self.leases.begin_view(0);
        self.notices.clear();
        self.telling.forget();
        self.relayed.clear();
        self.members.handle_end();
        self.drop_gone(others)
    }

    fn drop_gone(&mut self, gone: &[(NodeId, u64)]) -> u64 {
        let mut lost = 0;
        for (node, last) in gone {
            self.directory.drop_node(*node, *last, |entry| lost += u64::from(entry.lost));
        }
        lost
    }

    /// The hard entries for every home that was none before, or has forgotten all.
    fn handover(&self, change: &Change) -> Vec<(NodeId, Record)> {
        let mut records = Vec::new();
        for entry in self.directory.entries().filter(|entry| entry.is_hard()) {
            let knew = |home: &NodeId| change.knew(self.view(), *home, entry.id, Role::Mirror);
            for home in self.other_homes(entry.id).filter(|home| !knew(home)) {
                records.extend(records_of(entry).map(|record| (home, record)));
            }
        }
        records
    }

    fn collect_repairs(&mut self) {
        let missing = self.directory.entries().filter(|entry| entry.mirrors_missing() > 0);
        let ids: Vec<PageId> = missing.map(|entry| entry.id).collect();
        ids.into_iter().for_each(|id| self.repairs.insert(id, ()));
    }

    /// Nodes that have to drop a copy before a page's lease is granted: all but the writer, of more than can be named
    /// all nodes. None where the copies are all that is left of a version that has no mirror any more.
    pub fn copies_to_drop(&self, id: PageId, writer: NodeId) -> Vec<Holder> {
        let Some(entry) = self.directory.entry(id) else { return Vec::new() };
        if entry.is_bare() {
            return Vec::new();
        }
        let goes = |holder: &Holder| holder.node != writer && holder.role == Role::Clean;
        holders_of(&self.members, entry).filter(goes).collect()
    }

    /// Whether a notice that did not arrive is to be told again.
    pub fn still_owes(&self, to: NodeId, what: u16, record: &Record) -> bool {
        let there = self.view().incarnation(to).is_some() && !self.freed.has(record.id.space);
        there && (what == op::WRITTEN || self.is_worthless(record))
    }

    /// Whether the copy that a holder was told to drop is still obsolete: it may have been given it again, and be known
    /// as a holder.
    fn is_worthless(&self, record: &Record) -> bool {
        let Record { id, version, holder, .. } = *record;
        let known = |entry: &Entry| entry.holders.iter().any(|other| other.node == holder.node);
        match self.directory.entry(id) {
            Some(entry) if entry.version == version => holder.role == Role::Clean && !known(entry),
            Some(entry) => entry.version > version,
            None => holder.role == Role::Clean && self.is_home(id),
        }
    }

    /// The newest version that was registered.
    pub fn version(&self, id: PageId) -> Version {
        let listed = self.directory.entry(id).map_or(Version::default(), |entry| entry.version);
        listed.max(self.unlisted.version(id))
    }
}

impl Holder {
    fn route(&self, version: Version) -> Route {
        let Holder { node, incarnation, role } = *self;
        Route::To(Stale { node, incarnation, version }, role)
    }
}

/// The nodes that may have a copy: all that are named, and where more had them than can be, every one that is up.
fn holders_of(members: &Membership, entry: &Entry) -> impl Iterator<Item = Holder> {
    let unnamed = |up: &&Up| entry.holders.iter().all(|known| known.node != up.node);
    let rest = members.view().members.iter().filter(|_| entry.crowded).filter(unnamed);
    let clean = |up: &Up| Holder { node: up.node, incarnation: up.incarnation, role: Role::Clean };
    entry.holders.iter().copied().chain(rest.map(clean))
}

/// The records that make an entry what it is.
fn records_of(entry: &Entry) -> impl Iterator<Item = Record> + '_ {
    let nobody = Holder { node: NodeId(0), incarnation: 0, role: Role::Mirror };
    let holders = entry.holders.iter().copied().chain(entry.lost.then_some(nobody));
    let Entry { id, version, copies, lost, .. } = *entry;
    let copies_of = move |holder: Holder| if holder.role.is_hard() { copies } else { 0 };
    holders.map(move |holder| Record {
        copies: copies_of(holder),
        lost,
        ..Record::new(id, version, holder)
    })
}

fn was_mirror(record: &Record) -> bool {
    record.holder.role == Role::Clean && record.copies > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn home() -> Home {
        Home::new(Membership::new(NodeId(1), 1), 64)
    }

    pub(super) fn view(number: u64, nodes: &[u16]) -> View {
        let up = |node: &u16| Up { node: NodeId(*node), incarnation: 1, weight: 100, machine: 0 };
        View::new(number, nodes.iter().map(up).collect())
    }

    /// A version whose only mirror is gone may have a successor, of which a node has not told yet.
    #[test]
    fn a_version_is_lost_when_all_have_told_and_not_before() {
        let mut home = home();
        home.handle_view(Time(0), view(1, &[1, 2, 3])).unwrap();
        let pages = (0..).map(|index| PageId { space: SpaceId::shared(7), index });
        let id = { pages }.find(|id| home.is_primary(*id)).unwrap();
        let holder = Holder { node: NodeId(2), incarnation: 1, role: Role::Mirror };
        let version = Version(5);
        let record = Record { copies: 1, ..Record::new(id, version, holder) };
        assert_eq!(home.register(&record), Verdict::Done);
        assert_eq!(home.handle_view(Time(0), view(2, &[1, 3])).unwrap().lost, 1);
        let get = Get::new(id, Version(0), 4096, NodeId(3));
        let unknown = GetReply::Unknown { settled: false };
        assert_eq!(home.direct(&get, 0), Route::Back(unknown));
        home.members.handle_report(NodeId(3), 2);
        assert_eq!(home.direct(&get, 0), Route::Back(GetReply::Lost(version)));
    }

    pub(super) fn mirror(id: PageId, node: u16) -> Record {
        let holder = Holder { node: NodeId(node), incarnation: 1, role: Role::Mirror };
        Record { copies: 2, ..Record::new(id, Version(5), holder) }
    }

    /// Pages that this node is asked for first, in any view that it is in.
    pub(super) fn pages(home: &Home) -> impl Iterator<Item = PageId> {
        (0..)
            .map(|index| PageId { space: SpaceId::shared(7), index })
            .filter(|id| home.is_primary(*id))
    }

    #[test]
    fn the_page_that_has_lacked_a_mirror_longest_has_it_made_first() {
        let mut home = home();
        home.handle_view(Time(0), view(1, &[1, 2, 3, 4, 5])).unwrap();
        (2..=5).for_each(|node| home.members.handle_report(NodeId(node), 1));
        let ids: Vec<PageId> = pages(&home).take(6).collect();
        for (at, id) in ids.iter().enumerate() {
            let (one, other) = if at % 2 == 0 { (2, 3) } else { (4, 5) };
            for node in [one, other] {
                home.register(&mirror(*id, node));
            }
        }
        for (number, left) in [(2, &[1, 2, 3, 5][..]), (3, &[1, 3, 5][..])] {
            home.handle_view(Time(0), view(number, left)).unwrap();
        }
        assert!(home.poll_repair(Time(0)).is_none(), "others still tell what they have");
        [3, 5].into_iter().for_each(|node| home.members.handle_report(NodeId(node), 3));
        assert_eq!(home.deficit(), 6);
        let next = || home.poll_repair(Time(0)).map(|entry| entry.id);
        let order: Vec<PageId> = std::iter::from_fn(next).collect();
        assert_eq!(order, [ids[1], ids[3], ids[5], ids[0], ids[2], ids[4]]);
    }

    /// A holder of an earlier copy would never hear of it.
    #[test]
    fn a_writer_is_heard_again_when_those_who_have_copies_can_be_told() {
        let mut home = home();
        home.handle_view(Time(0), view(1, &[1, 2, 3])).unwrap();
        let id = pages(&home).next().unwrap();
        let clean = Holder { node: NodeId(2), incarnation: 1, role: Role::Clean };
        let copy = Record::new(id, Version(5), clean);
        assert_eq!(home.register(&copy), Verdict::Done);
        while home.notices.push(NodeId(3), op::DROP, copy) {}
        let writer = Record::new(id, Version(6), Holder { node: NodeId(3), ..clean });
        let writer = Record { writer: true, ..writer };
        assert_eq!(home.register(&writer), Verdict::Later);
        assert!(home.leases().excludes(id, NodeId(2)) && home.directory().entry(id).is_some());
        home.notices.clear();
        assert_eq!(home.register(&writer), Verdict::Done);
        assert_eq!(home.notices.pop(&mut Vec::new()), Some((NodeId(2), op::DROP)));
    }

    /// That the version is on stable storage was said while this directory could not be reached.
    #[test]
    fn who_says_that_his_mirror_is_a_clean_copy_is_believed() {
        for gives_up in [true, false] {
            let mut home = home();
            home.handle_view(Time(0), view(1, &[1, 2, 3])).unwrap();
            let id = PageId { space: SpaceId::shared(7), index: 0 };
            let mirror = Holder { node: NodeId(2), incarnation: 1, role: Role::Mirror };
            let clean = Holder { role: Role::Clean, ..mirror };
            let record = |holder, copies| Record { copies, ..Record::new(id, Version(5), holder) };
            home.register(&record(mirror, 2));
            home.unregister(&record(clean, 0));
            assert!(home.directory().entry(id).is_some(), "a copy that was there before it");
            match gives_up {
                true => home.unregister(&record(clean, 2)),
                false => home.register(&record(clean, 2)),
            };
            let entry = home.directory().entry(id);
            let left: Vec<Holder> = entry.into_iter().flat_map(|e| e.holders.clone()).collect();
            assert_eq!(left, if gives_up { vec![] } else { vec![clean] });
            assert!(entry.is_none_or(|entry| !entry.is_hard() && entry.copies == 0));
        }
    }
}
