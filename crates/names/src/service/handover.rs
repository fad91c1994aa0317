//! Sites that go to another manager, while clients use the volume.
//!
//! The giver stops changing the site, sends its records, and writes down the new owner, on stable storage: that is the
//! moment of the handover. The taker serves when it is told so, which the giver repeats over its restarts until it is
//! answered. In between no manager serves the site. State in memory is made again from the records, as after a restart:
//! clients reclaim their opens and locks.

use super::Service;
use crate::handover::Handover;
use crate::limits::{IMPORT_BYTES, RETRY_INTERVAL};
use crate::objects::Objects;
use crate::protocol::managers::{Import, Take, op};
use std::rc::Rc;
use wire::field::encoded;
use wire::{Errno, NodeId, SiteOwner};

impl<O: Objects> Service<O> {
    /// Hands a site of this manager to another one. EAGAIN: something of it is in use by an operation; EREMCHG: it is
    /// not this manager's.
    pub(super) async fn give_site(self: &Rc<Self>, site: u8, to: NodeId) -> Result<(), Errno> {
        if to == self.cx.id() || site == 0 {
            return Err(Errno::EINVAL);
        }
        self.may_serve().await?;
        if self.is_quiesced() {
            return Err(Errno::EAGAIN);
        }
        {
            let mut manager = self.manager.borrow_mut();
            // Lost objects are looked for by who restored the volume.
            if manager.is_frozen() || manager.restoration().files() > 0 {
                return Err(Errno::EBUSY);
            }
            if !manager.sites.owns(site) || manager.sites.is_leaving(site) {
                return Err(Errno::EREMCHG);
            }
            if self.retiring.borrow().is_refused(to) {
                return Err(Errno::EPERM);
            }
            manager.sites.set_leaving(site, true);
        }
        self.giving.borrow_mut().insert(site, to);
        let given = self.give_leaving(site, to).await;
        self.giving.borrow_mut().remove(&site);
        self.manager.borrow_mut().sites.set_leaving(site, false);
        self.released.notify_all();
        given
    }

    async fn give_leaving(self: &Rc<Self>, site: u8, to: NodeId) -> Result<(), Errno> {
        let epoch = self.manager.borrow().sites.table().get(site).epoch + 1;
        self.settle_site(site)?;
        // Nothing of it changes any more, and what is sent is never taken back here alone.
        self.settled().await?;
        self.send_site(site, epoch, to).await?;
        let owner = SiteOwner { epoch, manager: to };
        self.settle_site(site)?;
        let (append, clients) = self.manager.borrow_mut().give(site, owner, self.cx.wall())?;
        let posted = self.post(append).await;
        self.note(posted);
        // A power cut could take the record back, so before the sync no node is told, and none serves the site.
        while self.sync().await.is_err() {
            self.cx.sleep(RETRY_INTERVAL).await;
        }
        self.manager.borrow_mut().gave(site, owner);
        self.cx.spawn("names handover", self.clone().tell_taker((site, owner, clients)));
        Ok(())
    }

    /// EAGAIN while an operation on a file of the site is under way.
    fn settle_site(&self, site: u8) -> Result<(), Errno> {
        let manager = self.manager.borrow();
        let busy = self.busy.borrow().iter().any(|file| file.site() == site)
            || self.moving.borrow().iter().any(|file| file.site() == site)
            || manager.holds.has_site(site);
        if busy { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    async fn send_site(self: &Rc<Self>, site: u8, epoch: u32, to: NodeId) -> Result<(), Errno> {
        let (mut after, mut first, attempt) = (None, true, self.cx.random());
        loop {
            let rows = self.manager.borrow().rows_of(site, after.as_deref(), IMPORT_BYTES)?;
            let last = rows.last().map(|row| row.key.to_vec());
            let import = Import { site, epoch, attempt, first, rows };
            self.ask_manager::<()>(to, op::IMPORT, &encoded(&import)).await?;
            match last {
                Some(last) => (after, first) = (Some(last), false),
                None => return Ok(()),
            }
        }
    }

    /// Records of a site that is on its way to this manager.
    pub(super) async fn import(self: &Rc<Self>, import: Import) -> Result<(), Errno> {
        let Import { site, epoch, attempt, first, rows } = import;
        if self.manager.borrow().sites.owns(site) {
            return Err(Errno::EEXIST);
        }
        let known = self.manager.borrow().sites.table().get(site).epoch;
        if epoch <= known {
            return Err(Errno::EREMCHG);
        }
        if first {
            self.imports.borrow_mut().insert(site, attempt);
            self.clear_site(site, Some(attempt)).await?;
        }
        // An incarnation that ended may have lost what came before.
        self.check_import(site, Some(attempt))?;
        self.admit().await?;
        let append = self.manager.borrow_mut().import(site, epoch, &rows)?;
        self.post(Some(append)).await?;
        // The giver gives it away next.
        if rows.is_empty() { self.sync().await } else { Ok(()) }
    }

    /// ECANCELED unless this is the attempt by which the site is on its way here; `None`: it is not.
    fn check_import(&self, site: u8, attempt: Option<u64>) -> Result<(), Errno> {
        match self.imports.borrow().get(&site).copied() == attempt {
            true => Ok(()),
            false => Err(Errno::ECANCELED),
        }
    }

    /// Removes what is left of a site that is another manager's, as many records at once as a batch takes. It ends with
    /// the attempt that it belongs to: what another one brings is not removed.
    pub(super) async fn clear_site(
        self: &Rc<Self>,
        site: u8,
        attempt: Option<u64>,
    ) -> Result<(), Errno> {
        loop {
            self.admit().await?;
            self.check_import(site, attempt)?;
            let (append, more) = self.manager.borrow_mut().clear_site(site)?;
            self.post(append).await?;
            if !more {
                return Ok(());
            }
        }
    }

    /// The site is this manager's from now on.
    pub(super) async fn take_site(self: &Rc<Self>, take: Take) -> Result<(), Errno> {
        let Take { site, epoch, clients } = take;
        self.admit().await?;
        let now = self.cx.now();
        let owner = SiteOwner { epoch, manager: self.cx.id() };
        let taken = self.manager.borrow_mut().take_site(site, owner, &clients, self.cx.wall(), now);
        self.imports.borrow_mut().remove(&site);
        self.post(taken?).await?;
        self.sync().await?;
        self.swept.set(false);
        self.released.notify_all();
        self.work.notify_all();
        Ok(())
    }

    /// Tells the next owner of a site that it is, which is on stable storage, until that one has said so; then what is
    /// left of it here goes.
    pub(super) async fn tell_taker(self: Rc<Self>, (site, owner, clients): Handover) {
        let take = || {
            let clients = self.manager.borrow().silences(&clients, self.cx.now());
            encoded(&Take { site, epoch: owner.epoch, clients })
        };
        while let Err(errno) = self.ask_manager::<()>(owner.manager, op::TAKE, &take()).await {
            // Its store was lost, and restored without the records: here they are yet.
            let resent = errno == Errno::ENODATA
                && self.send_site(site, owner.epoch, owner.manager).await.is_ok();
            if !resent {
                self.cx.sleep(RETRY_INTERVAL).await;
            }
        }
        // That is written down first: no part of the records is to be retransmitted to one that was restored since. A
        // failure is repaired by the next incarnation.
        if self.admit().await.is_ok() {
            let done = self.manager.borrow_mut().handed_over(site, owner, self.cx.wall());
            if let Ok(append) = done {
                self.note(self.post(append).await);
                let _ = self.clear_site(site, None).await;
            }
        }
    }

    /// Handovers that the last incarnation did not end.
    pub(super) async fn end_handovers(self: Rc<Self>) {
        if self.may_serve().await.is_err() {
            return;
        }
        let Ok(open) = self.manager.borrow().open_handovers(self.cx.now()) else { return };
        for handover in open {
            self.cx.spawn("names handover", self.clone().tell_taker(handover));
        }
        // One of a restored store waits until it is known which sites are this manager's.
        if !self.manager.borrow().is_frozen() {
            self.cx.spawn("names clear", self.clone().clear_others());
        }
    }
}
