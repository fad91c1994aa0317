//! Tasks for duties towards copies of this node's pages: mirrors are registered and unregistered until their
//! directories have acknowledged it, and pages whose mirrors all went down are made durable again.
//!
//! A mirror's sender was told that it does not count while a directory has not heard of it. It stays here all the same:
//! the other directory may know of it already, and has told the holders of the version before to drop theirs.

use super::Service;
use super::dirty::Dirt;
use super::events::Event;
use super::replicas::Kind;
use crate::directory::Role as HolderRole;
use crate::memory::FrameNo;
use crate::protocol::{No, Record};
use crate::slots::Homes;
use node::{Bug, all};
use wire::NodeId;

impl Service {
    /// The task for duties of one kind.
    pub(super) async fn do_owed(self, kind: Kind) {
        loop {
            let more = self.0.events.wait(kind.event());
            let Some(owed) = self.next_owed(kind) else {
                let rests = self.0.replicas.borrow().rests_until(kind);
                match rests.map(|until| until.since(self.cx().now())) {
                    Some(span) => _ = self.cx().with_deadline(span, more).await,
                    None => more.await,
                }
                continue;
            };
            let done = match kind {
                Kind::Register => self.is_registered(&owed).await,
                Kind::Unregister => self.is_unregistered(&owed).await,
                Kind::Secure => match self.dirt(owed.id) {
                    Dirt::None => true,
                    Dirt::Busy => false,
                    Dirt::Dirty(frame) => self.secure(frame).await.is_ok(),
                },
            };
            self.0.replicas.borrow_mut().handle_end(self.cx().now(), kind, &owed, done);
        }
    }

    fn next_owed(&self, kind: Kind) -> Option<Record> {
        let none = kind == Kind::Secure && self.cx().has_bug(Bug::MirrorsNotMadeAgain);
        let mut replicas = self.0.replicas.borrow_mut();
        if none { None } else { replicas.poll_owed(self.cx().now(), kind) }
    }

    /// A mirror is here; of its two directories at least one was not reached.
    pub(super) fn register_late(&self, record: Record) {
        self.0.replicas.borrow_mut().handle_owed(Kind::Register, record);
        self.raise(Event::RegistrationDue);
    }

    /// Tells the directories of today of a mirror. Says whether that is over, well or not.
    async fn is_registered(&self, record: &Record) -> bool {
        if !self.has_mirror(record) {
            return true;
        }
        match self.register(record, None).await {
            // a mirror that was registered once is counted on, whether its homes of today have room or not
            Err(No::Unregistered | No::Room) => return false,
            Ok(()) => (),
            Err(_) => _ = self.drop_page(record),
        }
        self.deny_all(record);
        true
    }

    /// A mirror, or what was one, is not here, and a directory that believes so could not be told.
    pub(super) fn deny_late(&self, record: Record) {
        let counted = record.holder.role.is_hard() || record.copies > 0;
        if counted && record.holder.node == self.me() {
            self.0.replicas.borrow_mut().handle_owed(Kind::Unregister, record);
            self.raise(Event::RegistrationDue);
        }
    }

    /// Tells the directories of today that a mirror is not here. Says whether that is over: they know, or the record is
    /// of an incarnation that they know is over.
    async fn is_unregistered(&self, record: &Record) -> bool {
        let (view, homes) = (self.view_number(), self.0.home.borrow().homes(record.id));
        if record.holder.incarnation != self.incarnation() || self.has_mirror(record) {
            return true;
        }
        let homes = homes.into_iter().flat_map(Homes::both);
        let told = all(homes.map(|home| self.unregister_at(home, record))).await;
        self.announce_again(std::slice::from_ref(record));
        view == self.view_number() && told.into_iter().all(|told| told.is_ok())
    }

    /// A mirror that both directories were told of, and that was dropped meanwhile, is none.
    pub(super) fn deny_all(&self, record: &Record) {
        let homes = self.0.home.borrow().homes(record.id);
        homes.into_iter().flat_map(Homes::both).for_each(|home| self.deny(home, record));
    }

    /// Whether this node has the mirror that a record speaks of.
    pub(super) fn has_mirror(&self, record: &Record) -> bool {
        let store = self.store();
        let found = store.find(record.id);
        found.is_some_and(|(frame, page, _)| {
            page.version == record.version && store.memory().role(frame) == crate::Role::Mirror
        })
    }

    /// Mirrors of this node's pages that went down with their nodes. A page that has none left is made durable again
    /// before anybody asks for it: what its writer was told once that is durable it does not flush again.
    pub(super) fn lose_mirrors(&self, gone: &[(NodeId, u64)]) {
        let mut store = self.store_mut();
        let lost = |(node, incarnation): &(NodeId, u64)| {
            gone.iter().any(|(other, last)| other == node && incarnation <= last)
        };
        let named = |frame: &FrameNo| !store.stored(*frame).mirrors.is_empty();
        let frames: Vec<FrameNo> =
            store.memory().pages().map(|(frame, ..)| frame).filter(named).collect();
        for frame in frames {
            store.retain_mirrors(frame, |mirror| !lost(mirror));
            if store.stored(frame).mirrors.is_empty() {
                let page = store.memory().page(frame).expect("a page");
                let record = self.record(page.id, page.version, HolderRole::Mirror, 0);
                self.0.replicas.borrow_mut().handle_owed(Kind::Secure, record);
            }
        }
        self.raise(Event::MirrorsLost);
    }
}
