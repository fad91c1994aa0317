//! Mirrors that this node has and of which a directory has not heard: it is told until it has.
//!
//! The sender of the page was told that it does not count. It stays here all the same: another directory may know of it
//! already, and has told the holders of the version before to drop theirs.

use super::Service;
use crate::directory::Role as HolderRole;
use crate::limits::CLEANING_PAUSE;
use crate::protocol::{No, Record};
use crate::slots::Homes;
use node::all;

impl Service {
    /// A mirror is here; of its two directories at least one was not reached.
    pub(super) fn register_late(&self, record: Record) {
        self.0.late.borrow_mut().insert(record.id, record);
        self.0.lags.notify_all();
    }

    /// The task that tells them.
    pub(super) async fn register_all_late(self) {
        loop {
            let lags = self.0.lags.wait();
            let next = self.0.late.borrow_mut().next();
            let Some((id, record)) = next else {
                lags.await;
                continue;
            };
            if self.is_told(&record).await {
                self.0.late.borrow_mut().done(id, |late| late.version == record.version);
            } else {
                self.cx().sleep(CLEANING_PAUSE).await;
            }
        }
    }

    /// Tells the directories of today. Says whether that is over, well or not.
    async fn is_told(&self, record: &Record) -> bool {
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

    /// A mirror, or what was one, is not here, and a directory that believes so could not be told: it is told until it
    /// has heard. Else nothing would be made in its place.
    pub(super) fn deny_late(&self, record: Record) {
        let counted = record.holder.role.is_hard() || record.copies > 0;
        if counted && record.holder.node == self.me() {
            self.0.denied.borrow_mut().insert(record, ());
            self.0.lags.notify_all();
        }
    }

    /// The task that tells them.
    pub(super) async fn deny_all_late(self) {
        loop {
            let lags = self.0.lags.wait();
            let next = self.0.denied.borrow_mut().next();
            let Some((record, ())) = next else {
                lags.await;
                continue;
            };
            if self.is_denied(&record).await {
                self.0.denied.borrow_mut().done(record, |()| true);
            } else {
                self.cx().sleep(CLEANING_PAUSE).await;
            }
        }
    }

    /// Tells the directories of today. Says whether that is over: they know, or it is of a life that they know is over.
    async fn is_denied(&self, record: &Record) -> bool {
        let (view, homes) = (self.view_number(), self.0.home.borrow().homes(record.id));
        if record.holder.incarnation != self.life() || self.has_mirror(record) {
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
        if record.holder.role == HolderRole::Log {
            return self.has_log(record);
        }
        let store = self.0.store.borrow();
        let found = store.find(record.id);
        found.is_some_and(|(frame, page, _)| {
            page.version == record.version && store.memory().role(frame) == crate::Role::Mirror
        })
    }
}
