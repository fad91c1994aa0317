//! Sites of which this manager's store believes that they are its own, and that other managers have.
//!
//! That a site is another manager's stands in the log of the one that gave it. A store that was restored, or accepted
//! by hand, may be a copy from before that: only the others know which sites they have got since.

use super::Service;
use crate::limits::{OWNERS_SPAN, RETRY_INTERVAL, WITNESS_PAUSE};
use crate::objects::Objects;
use crate::protocol::managers::op;
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::{Errno, NodeId, SiteOwner, Sites};

impl<O: Objects> Service<O> {
    /// The other managers, as far as the members and the table of sites tell.
    pub(super) fn other_managers(&self) -> BTreeSet<NodeId> {
        let mut all = self.manager.borrow().sites.table().managers();
        all.extend(&self.managers);
        all.remove(&self.cx.id());
        all
    }

    /// Of a restored store, before it is served: asks all other managers which sites they have. One that does not
    /// answer within [`OWNERS_SPAN`] is asked later.
    pub(super) async fn ask_owners(self: &Rc<Self>) {
        if !self.manager.borrow().is_frozen() {
            return;
        }
        let (end, mut heard) = (self.cx.now() + OWNERS_SPAN, BTreeSet::new());
        loop {
            let silent: Vec<NodeId> = self.other_managers().difference(&heard).copied().collect();
            if silent.is_empty() || self.cx.now() >= end {
                return self.tell_waiting(&[]);
            }
            self.tell_waiting(&silent);
            let calls = silent.iter().map(async |manager| {
                let sites = self.ask_manager::<Sites>(*manager, op::SITES, &[]).await.ok()?;
                self.hear_sites(&sites);
                Some(*manager)
            });
            heard.extend(node::all(calls).await.into_iter().flatten());
            self.cx.sleep(WITNESS_PAUSE).await;
        }
    }

    /// Says in `status` what is waited for.
    fn tell_waiting(&self, silent: &[NodeId]) {
        let names: Vec<String> = silent.iter().map(|manager| manager.0.to_string()).collect();
        let text = || {
            format!(
                "the volume was restored: waiting until the managers on nodes {} say which sites they have",
                names.join(", ")
            )
        };
        self.trouble.replace((!silent.is_empty()).then(|| text().into()));
    }

    /// Learns owners of sites from another manager. What is left here of sites that turn out to be others' goes.
    pub(super) fn hear_sites(self: &Rc<Self>, heard: &Sites) {
        let lost = self.manager.borrow_mut().hear_sites(heard);
        for (site, owner) in lost {
            self.released.notify_all();
            self.cx.spawn("names lost", self.clone().give_up_site(site, owner));
        }
    }

    /// Writes down that a site is another manager's, and removes what is left of it. What a crash takes back of that is
    /// heard again.
    async fn give_up_site(self: Rc<Self>, site: u8, owner: SiteOwner) {
        if self.may_serve().await.is_err() {
            return;
        }
        while let Err(errno) = self.try_give_up_site(site, owner).await {
            if errno == Errno::EEXIST {
                return; // it came back
            }
            self.cx.sleep(RETRY_INTERVAL).await;
        }
    }

    async fn try_give_up_site(self: &Rc<Self>, site: u8, owner: SiteOwner) -> Result<(), Errno> {
        self.admit().await?;
        let append = self.manager.borrow_mut().handed_over(site, owner, self.cx.wall())?;
        self.post(append).await?;
        self.clear_site(site, None).await
    }
}
