//! Sites of which this manager's store believes that they are its own, and that other managers have; and those that the
//! others know as this one's, and of which its store knows nothing.
//!
//! That a site is another manager's stands in the log of the one that gave it. A store that was restored, or accepted
//! by hand, may be a copy from before that: only the others know which sites they have got since, and which ones they
//! gave. A site that no manager owned would be waited for without end.

use super::Service;
use crate::clients::Heard;
use crate::handover::Handover;
use crate::limits::{KEEP_ALIVE_INTERVAL, OWNERS_SPAN, RETRY_INTERVAL, WITNESS_PAUSE};
use crate::objects::Objects;
use crate::permissions::Who;
use crate::protocol::managers::{Owners, Take, op};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use wire::field::encoded;
use wire::{Errno, NodeId, SiteOwner, Sites, Time};

impl<O: Objects> Service<O> {
    /// The other managers, as far as the members and the table of sites tell.
    pub(super) fn other_managers(&self) -> BTreeSet<NodeId> {
        let mut all = self.manager.borrow().sites.table().managers();
        all.extend(&self.managers);
        all.remove(&self.cx.id());
        all
    }

    /// Of a restored store, before it is served: asks all other managers which sites they have, and which ones they
    /// know as this one's. One that does not answer within [`OWNERS_SPAN`] is asked later.
    pub(super) async fn ask_owners(self: &Rc<Self>) {
        if !self.manager.borrow().is_frozen() {
            return;
        }
        let mut heard = BTreeMap::new();
        let is_all = self.hear_owners(&mut heard, self.cx.now() + OWNERS_SPAN, WITNESS_PAUSE).await;
        self.tell_waiting(&[]);
        match is_all {
            true => self.go_by_owners(&heard).await,
            false => self.cx.spawn("names owners", self.clone().ask_owners_late(heard)),
        }
    }

    /// Asks managers until all have answered, or the time is up; whether they have.
    async fn hear_owners(
        self: &Rc<Self>,
        heard: &mut BTreeMap<NodeId, Owners>,
        end: Time,
        pause: Duration,
    ) -> bool {
        loop {
            let all = self.other_managers().into_iter();
            let silent: Vec<NodeId> = all.filter(|manager| !heard.contains_key(manager)).collect();
            if silent.is_empty() || self.cx.now() >= end {
                return silent.is_empty();
            }
            if end < Time::NEVER {
                self.tell_waiting(&silent);
            }
            let calls = silent.iter().map(async |manager| {
                let owners = self.ask_manager::<Owners>(*manager, op::SITES, &[]).await.ok()?;
                self.hear_sites(&owners.sites);
                Some((*manager, owners))
            });
            heard.extend(node::all(calls).await.into_iter().flatten());
            self.cx.sleep(pause).await;
        }
    }

    /// The same while it is served.
    pub(super) async fn ask_owners_late(self: Rc<Self>, mut heard: BTreeMap<NodeId, Owners>) {
        self.hear_owners(&mut heard, Time::NEVER, RETRY_INTERVAL).await;
        self.go_by_owners(&heard).await;
        if self.manager.borrow().restoration().due > 0 {
            let _anew = self.compare_now(&Who::ROOT);
        }
    }

    /// Takes over the sites that came to this manager after what its store is from. Their records are those of before,
    /// as far as the store has some. Then what it has of others' sites goes.
    async fn go_by_owners(self: &Rc<Self>, heard: &BTreeMap<NodeId, Owners>) {
        let lineage = heard.values().map(|owners| owners.lineage + 1).max().unwrap_or_default();
        self.hear_givers(heard);
        for (site, owner) in self.claims(heard.values()) {
            while self.adopt_site(site, owner, lineage).await.is_err() {
                self.cx.sleep(RETRY_INTERVAL).await;
            }
        }
        self.cx.spawn("names clear", self.clone().clear_others());
        let untold = self.untold(heard);
        if !untold.is_empty() {
            self.cx.spawn("names untold", self.clone().tell_untold(untold));
        }
    }

    /// Sites on their way here are their givers' until they say else, whoever had them when the store was as it is.
    fn hear_givers(self: &Rc<Self>, heard: &BTreeMap<NodeId, Owners>) {
        for (giver, owners) in heard {
            let mut given = Sites::all_at(self.cx.id());
            for site in &owners.open {
                let owner = owners.sites.get(*site);
                if owner.manager == self.cx.id() {
                    given.learn(*site, SiteOwner { epoch: owner.epoch - 1, manager: *giver });
                }
            }
            self.hear_sites(&given);
        }
    }

    /// Sites that others know as those of a manager which does not, and that no manager is giving to it: this manager
    /// gave them, and has lost the record of that.
    fn untold(&self, heard: &BTreeMap<NodeId, Owners>) -> Vec<(u8, SiteOwner)> {
        let open: BTreeSet<u8> = heard.values().flat_map(|owners| owners.open.clone()).collect();
        let is_untold = |(site, owner): &(u8, SiteOwner)| {
            let own = heard.get(&owner.manager).map(|owners| owners.sites.get(*site));
            !open.contains(site) && own.is_some_and(|own| own.epoch < owner.epoch)
        };
        self.manager.borrow().sites.table().iter().filter(is_untold).collect()
    }

    /// Tells the next owners of such sites that they are: they have all records. It asks once more before, as a
    /// handover may have begun while it asked; meanwhile clients have said that they are there, which may hold
    /// something.
    async fn tell_untold(self: Rc<Self>, before: Vec<(u8, SiteOwner)>) {
        self.cx.sleep(KEEP_ALIVE_INTERVAL).await;
        let mut heard = BTreeMap::new();
        self.hear_owners(&mut heard, Time::NEVER, RETRY_INTERVAL).await;
        let untold = self.untold(&heard);
        for (site, owner) in untold.into_iter().filter(|given| before.contains(given)) {
            let take = || {
                let manager = self.manager.borrow();
                let clients = manager.heard(site).into_iter();
                let all: Vec<Heard> = clients.map(|it| Heard { holds: true, ..it }).collect();
                let clients = manager.silences(&all, self.cx.now());
                encoded(&Take { site, epoch: owner.epoch, clients })
            };
            // ENODATA: it was restored too, and goes by what it is told itself.
            while let Err(errno) = self.ask_manager::<()>(owner.manager, op::TAKE, &take()).await
                && errno != Errno::ENODATA
            {
                self.cx.sleep(RETRY_INTERVAL).await;
            }
        }
    }

    /// Sites that are this manager's as far as any other knows. One whose giver has not been told yet that it is known
    /// comes with its records.
    fn claims<'a>(&self, heard: impl Iterator<Item = &'a Owners> + Clone) -> Vec<(u8, SiteOwner)> {
        let manager = self.manager.borrow();
        let mut latest = manager.sites.table().clone();
        let open: BTreeSet<u8> = heard.clone().flat_map(|owners| owners.open.clone()).collect();
        for owners in heard {
            latest.learn_all(&owners.sites);
        }
        // Also one that it has, by an epoch of before it went and came back.
        let is_news = |site: u8, owner: SiteOwner| manager.sites.table().get(site) != owner;
        let is_claim = |(site, owner): &(u8, SiteOwner)| {
            owner.manager == self.cx.id() && !open.contains(site) && is_news(*site, *owner)
        };
        latest.iter().filter(is_claim).collect()
    }

    async fn adopt_site(
        self: &Rc<Self>,
        site: u8,
        owner: SiteOwner,
        lineage: u16,
    ) -> Result<(), Errno> {
        self.admit().await?;
        let (wall, now) = (self.cx.wall(), self.cx.now());
        let floor = (lineage, self.cx.incarnation());
        let adopted = self.manager.borrow_mut().adopt_site(site, owner, floor, (wall, now));
        self.post(adopted?).await?;
        self.sync().await?;
        self.released.notify_all();
        self.work.notify_all();
        Ok(())
    }

    /// Removes what the store has of sites that are others': a backup has those of all managers, any of which may have
    /// come to this one since; and a handover ends when the next owner has said that it is.
    pub(super) async fn clear_others(self: Rc<Self>) {
        if self.may_serve().await.is_err() {
            return;
        }
        for site in 1..=u8::MAX {
            if self.is_left_over(site) {
                // What is left is no more than bytes, which the next handover removes.
                let _ = self.clear_site(site, None).await;
            }
        }
    }

    /// Whether what there is of a site is of no use. All of one that is to come is here while it is being given.
    fn is_left_over(&self, site: u8) -> bool {
        let manager = self.manager.borrow();
        let is_open = |open: Vec<Handover>| open.iter().any(|(other, ..)| *other == site);
        !manager.sites.owns(site)
            && !self.imports.borrow().contains_key(&site)
            && manager.arrived(site) == Ok(None)
            && !manager.open_handovers(self.cx.now()).map_or(true, is_open)
    }

    pub(super) fn owners_here(&self) -> Result<Owners, Errno> {
        let manager = self.manager.borrow();
        let handovers = manager.open_handovers(self.cx.now()).map_err(|_| Errno::EIO)?;
        let open = handovers.iter().map(|(site, ..)| *site).collect();
        let (sites, lineage) = (manager.sites.table().clone(), manager.volume.lineage);
        Ok(Owners { sites, open, lineage })
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
