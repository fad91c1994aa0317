//! Another view: what others must know of this node's pages is told anew, and what is late is told at leisure.

use super::events::Event;
use super::home::Change;
use super::notices::is_owed;
use super::{Load, Service};
use crate::directory::Role as HolderRole;
use crate::limits::*;
use crate::memory::{Durability, Role};
use crate::page::{PageId, SpaceId, Version};
use crate::protocol::{Batch, Message, RECORDS_MAX, Record, Verdict, op};
use members::View;
use node::{Reply, all};
use std::collections::BTreeMap;
use wire::field::Field;
use wire::{Decoder, NodeId};

/// The reports that the present view asks of this node.
#[derive(Debug, Default)]
pub struct Telling {
    /// By receiver.
    records: Vec<(NodeId, Record)>,
    /// Nodes that must hear which spaces were freed.
    newcomers: Vec<NodeId>,
    /// All of it has been told.
    done: bool,
}

impl Telling {
    /// Takes what the view before asked to tell, and says whether all of it was told.
    fn take(&mut self) -> (Vec<(NodeId, Record)>, bool) {
        (std::mem::take(&mut self.records), self.done)
    }

    /// Another view asks to tell this.
    fn begin(&mut self, records: Vec<(NodeId, Record)>, newcomers: Vec<NodeId>) {
        *self = Telling { records, newcomers, done: false };
    }

    /// All of it has been told, and is not told again.
    fn finish(&mut self) {
        self.records.clear();
        self.done = true;
    }

    /// Reports that were due were of an incarnation that is over.
    pub fn forget(&mut self) {
        self.records.clear();
    }
}

impl Service {
    /// The nodes that are up now. Views come in ascending order; others are ignored. Pages and directory entries of
    /// nodes that are gone are forgotten or mirrored anew, and all that concerns other homes now is told there.
    pub fn set_view(&self, view: View) {
        let (now, number) = (self.cx().now(), view.number);
        let Some(mut change) = self.0.home.borrow_mut().handle_view(now, view) else { return };
        let members = &change.members;
        self.lose_mirrors(&members.gone);
        self.0.peers.borrow_mut().forget_nodes(&members.gone);
        self.0.pages.borrow_mut().handle_view();
        // a node that comes begins anew: what is here of its private spaces is of an earlier incarnation
        members.came.iter().for_each(|node| self.free_owner(*node));
        let (untold, told) = self.0.home.borrow_mut().telling_mut().take();
        // who missed a view may have been taken for dead, and what the last one asked to tell may not have been told
        let was_in = self.0.home.borrow().members().is_in(&members.before);
        let all_again = number != members.before.number + 1 || !was_in || !told;
        let mut records = std::mem::take(&mut change.handover);
        records.extend(self.losses_of(untold));
        records.extend(self.collect(&change, all_again));
        self.0.home.borrow_mut().telling_mut().begin(records, change.members.came);
        self.count(|counters| counters.lost_pages += change.lost);
        self.raise(Event::ViewChanged);
        self.raise(Event::RepairDue);
    }

    /// Whether all that the present view asks this node to tell has been told, and all others have told it theirs.
    pub fn is_settled(&self) -> bool {
        let home = self.0.home.borrow();
        home.telling().done && home.is_settled()
    }

    /// Losses of versions that were to be handed over to earlier homes and that no other node knows.
    fn losses_of(&self, records: Vec<(NodeId, Record)>) -> Vec<(NodeId, Record)> {
        let home = self.0.home.borrow();
        let lost = records.into_iter().filter(|(_, record)| record.lost);
        let lost: BTreeMap<PageId, Record> = lost.map(|(_, record)| (record.id, record)).collect();
        let told = lost.into_values();
        told.flat_map(|record| home.other_homes(record.id).map(move |to| (to, record))).collect()
    }

    /// Forgets the private spaces of an incarnation that is over.
    pub(super) fn free_owner(&self, owner: NodeId) {
        if owner != self.me() {
            self.0.pages.borrow_mut().free_owner(owner);
            self.0.home.borrow_mut().free_owner(owner);
        }
    }

    /// The records of what this node has for every home that does not know them, or for all; this node itself is told
    /// at once.
    fn collect(&self, change: &Change, all_again: bool) -> Vec<(NodeId, Record)> {
        let (view, mut records) = (self.view(), Vec::new());
        for record in self.all_records() {
            let (id, role) = (record.id, record.holder.role);
            let late = record.writer || self.0.replicas.borrow().is_unregistered(&record);
            let homes = self.0.home.borrow().homes(id);
            for home in homes.into_iter().flat_map(|homes| homes.told_of(role)) {
                if home == self.me() {
                    self.heed(home, &record, self.register_here(&record));
                } else if all_again || late || !change.knew(&view, home, id, role) {
                    records.push((home, record));
                }
            }
        }
        records
    }

    /// Records of this node that directories are to know: mirrors and copies of others' pages, and which pages it
    /// writes to: no lease is granted before all writers were heard.
    fn all_records(&self) -> Vec<Record> {
        let (store, writing) = (self.store(), self.writing());
        let copies = store.memory().pages().filter_map(|(frame, role, page)| {
            let own = page.id.space.owner() == Some(self.me());
            let role = match (role, page.durability) {
                (Role::Mirror, _) => HolderRole::Mirror,
                (_, Durability::Clean) if !own => HolderRole::Clean,
                _ => return None,
            };
            Some(self.record(page.id, page.version, role, store.stored(frame).copies))
        });
        let leases = writing.iter().map(|(id, version)| Record {
            writer: true,
            ..self.record(id, version, HolderRole::Clean, 0)
        });
        copies.chain(leases).collect()
    }

    /// A directory's answer about this node's copy.
    pub(super) fn heed(&self, home: NodeId, record: &Record, verdict: Verdict) {
        let mine = record.holder.node == self.me();
        let store = self.store();
        let own = |frame| store.memory().role(frame).is_own();
        let in_use = store.memory().find(record.id).is_some_and(own);
        drop(store);
        let clean = !record.holder.role.is_hard();
        let useless = match verdict {
            Verdict::Stale(_) | Verdict::Freed => true,
            // a copy for own use is known as one of many
            Verdict::Enough => clean && !in_use,
            // the node would not hear that it is outdated
            Verdict::Full => clean,
            _ => false,
        };
        match () {
            () if !mine || record.writer => (),
            () if useless => _ = self.drop_page(record),
            () if clean => (),
            () if !self.has_mirror(record) => self.deny(home, record),
            () if verdict == Verdict::Enough => self.heed_enough(home, record),
            // the page is not known there, and must be
            () if matches!(verdict, Verdict::Full | Verdict::NotHome) => {
                self.register_late(*record);
            }
            () => (),
        }
    }

    /// A directory can name no more mirrors. The primary decides which are surplus, and a surplus one goes at both
    /// directories: each of the two may know of mirrors that the other one does not.
    fn heed_enough(&self, home: NodeId, record: &Record) {
        let primary = self.0.home.borrow().homes(record.id).map(|homes| homes.primary);
        match record.holder.role {
            HolderRole::Mirror if primary == Some(home) => {
                self.drop_page(record);
                self.deny_all(record);
            }
            HolderRole::Mirror => self.register_late(*record),
            // the directory has mirrors enough, and who reads asks these first
            _ => (),
        }
    }

    /// A mirror that was registered while it was dropped is none.
    pub(super) fn deny(&self, home: NodeId, record: &Record) {
        if !self.has_mirror(record) && !self.notice(home, op::UNREGISTER, *record) {
            self.deny_late(*record);
        }
    }

    /// The task that tells all members, once for each view.
    pub(super) async fn tell_all(self) {
        loop {
            let changed = self.0.events.wait(Event::ViewChanged);
            let view = self.view();
            let due = {
                let home = self.0.home.borrow();
                home.members().is_member() && !home.telling().done
            };
            if due {
                let told = all(view.others(self.me()).map(|up| self.tell(up.node, &view))).await;
                if self.view_number() != view.number {
                    continue;
                }
                if told.into_iter().all(|told| told) {
                    self.0.home.borrow_mut().telling_mut().finish();
                    self.raise(Event::RepairDue);
                } else {
                    self.cx().sleep(PAUSE_MAX).await;
                    continue;
                }
            }
            changed.await;
        }
    }

    /// Tells one node all that concerns it, and that this was all.
    async fn tell(&self, to: NodeId, view: &View) -> bool {
        let (records, newcomer) = {
            let home = self.0.home.borrow();
            let telling = home.telling();
            let mine = telling.records.iter().filter(|(node, _)| *node == to);
            let records: Vec<Record> = mine.map(|(_, record)| *record).collect();
            (records, telling.newcomers.contains(&to))
        };
        if newcomer && !self.tell_all_freed(to).await {
            return false;
        }
        let mut parts = records.chunks(RECORDS_MAX).peekable();
        let mut last = parts.peek().is_none();
        while !last {
            let part = parts.next().unwrap_or(&[]);
            last = parts.peek().is_none();
            if !self.tell_part(to, view, part, last).await {
                return false;
            }
        }
        !records.is_empty() || self.tell_part(to, view, &[], true).await
    }

    async fn tell_all_freed(&self, to: NodeId) -> bool {
        let spaces: Vec<SpaceId> = self.0.home.borrow().freed().iter().collect();
        spaces.is_empty() || self.tell_freed(to, &spaces).await
    }

    /// One message of records, until it is heard or the view is over.
    async fn tell_part(&self, to: NodeId, view: &View, records: &[Record], last: bool) -> bool {
        let batch = Batch::of(view.number, records, last);
        while self.view_number() == view.number {
            if let Some(reply) = self.send_records(to, op::REGISTER, &batch, records).await {
                self.heed_all(to, records, &reply);
                return true;
            }
        }
        false
    }

    /// A message of records. `None` after a pause where it could not be sent, or was not heard.
    async fn send_records(
        &self,
        to: NodeId,
        what: u16,
        batch: &Batch,
        records: &[Record],
    ) -> Option<Reply> {
        let load = self.batch_load(batch, records);
        let load =
            load.and_then(|load| Some(Load { into: self.verdict_room(what, records)?, ..load }));
        let reply = match load {
            Some(load) => self.send(to, what, &batch.encode(), load).await.ok(),
            None => None,
        };
        let reply = reply.filter(|reply| reply.status == 0);
        if reply.is_none() {
            self.cx().sleep(CLEANING_PAUSE).await;
        }
        reply
    }

    /// Room for what is said of each of several records.
    fn verdict_room(
        &self,
        what: u16,
        records: &[Record],
    ) -> Option<node::Pieces<endpoint::FrameMut>> {
        let mut into = self.cx().pieces();
        if records.len() > 1 && what == op::REGISTER {
            into.push(self.cx().frames().alloc_exact(records.len() * Verdict::BYTES)?);
        }
        Some(into)
    }

    fn heed_all(&self, home: NodeId, records: &[Record], reply: &Reply) {
        if let [record] = records {
            let verdict = Verdict::decode(&reply.body);
            return verdict.into_iter().for_each(|verdict| self.heed(home, record, verdict));
        }
        let Some(data) = reply.data.first().filter(|_| reply.bytes > 0) else {
            return records.iter().for_each(|record| self.heed(home, record, Verdict::Done));
        };
        let mut input = Decoder::new(&data[..reply.bytes]);
        for record in records {
            let Ok(verdict) = Verdict::take(&mut input) else { return };
            self.heed(home, record, verdict);
        }
    }

    /// Tells a shared page's directory that this node has a copy.
    pub(super) fn announce(&self, id: PageId, version: Version) {
        if id.space.owner().is_some() {
            return;
        }
        let record = self.record(id, version, HolderRole::Clean, 0);
        let homes = self.0.home.borrow().homes(id);
        if homes.is_some_and(|homes| !self.notice(homes.primary, op::REGISTER, record)) {
            self.drop_page(&record);
        }
    }

    /// A directory was told that copies are gone, before or after it was told that this node has them again.
    pub(super) fn announce_again(&self, records: &[Record]) {
        let kept = |record: &&Record| record.holder.role.is_hard() && self.has_mirror(record);
        records.iter().filter(kept).for_each(|record| self.register_late(*record));
        let here = |record: &&Record| {
            let store = self.store();
            let found = store.find(record.id).filter(|(_, page, _)| page.version == record.version);
            found.is_some_and(|(frame, page, _)| {
                page.is_durable() && store.memory().role(frame) != Role::Mirror
            })
        };
        records.iter().filter(here).for_each(|record| self.announce(record.id, record.version));
    }

    /// One of the tasks that send notices.
    pub(super) async fn give_notice(self) {
        let mut records = Vec::new();
        loop {
            let noticed = self.0.events.wait(Event::NoticeWaits);
            let next = self.0.home.borrow_mut().notices().pop(&mut records);
            let Some((to, what)) = next else {
                noticed.await;
                continue;
            };
            match to == self.me() {
                true => self.note_here(what, &records).await,
                false => self.send_notice(to, what, &records).await,
            }
        }
    }

    async fn note_here(&self, what: u16, records: &[Record]) {
        let mut heard = true;
        for record in records {
            let verdict = self.handle_record(what, record);
            heard &= verdict != Verdict::Later;
            if what == op::REGISTER {
                self.heed(self.me(), record, verdict);
            }
        }
        let incarnation = self.incarnation();
        if !heard {
            self.cx().sleep(CLEANING_PAUSE).await;
        }
        if is_owed(what) {
            self.note_told(self.me(), what, records, !heard && incarnation == self.incarnation());
        }
        if what == op::UNREGISTER {
            self.announce_again(records);
        }
    }

    async fn send_notice(&self, to: NodeId, what: u16, records: &[Record]) {
        let view = self.view_number();
        let batch = Batch::of(view, records, false);
        let incarnation = self.incarnation();
        let reply = self.send_records(to, what, &batch, records).await;
        match reply {
            Some(reply) if what == op::REGISTER => self.heed_all(to, records, &reply),
            // copies that their directory does not know would not be dropped at the next write
            None if what == op::REGISTER => records.iter().for_each(|r| _ = self.drop_page(r)),
            reply if is_owed(what) => {
                let failed = reply.is_none() && incarnation == self.incarnation();
                self.note_told(to, what, records, failed);
            }
            None if what == op::UNREGISTER => records.iter().for_each(|r| self.deny_late(*r)),
            _ => (),
        }
        if what == op::UNREGISTER {
            self.announce_again(records);
        }
    }

    /// An owed report has arrived, or has `failed` and is retried while it is true.
    fn note_told(&self, to: NodeId, what: u16, records: &[Record], failed: bool) {
        self.at_home(|home| {
            let left = records.iter().filter(|record| failed && home.still_owes(to, what, record));
            let left: Vec<Record> = left.copied().collect();
            home.notices().handle_told(to, what, records.len(), &left);
        });
    }
}
