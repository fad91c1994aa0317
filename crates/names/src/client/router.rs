//! Choice of the manager: the one that owns the site of the file.

use super::calls::decoded;
use super::{Client, Inner, Managed, SMALL, Settings, Style};
use crate::buckets::{HASHED, LOST, Share};
use crate::hash::site_of_name;
use crate::limits::{DEADLINE, HASHED_MAX, KEEP_ALIVE_INTERVAL, LACKING_ROUNDS, RETRY_PAUSE};
use crate::lookup::Entry;
use crate::protocol::Operation;
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use wire::{Errno, FileId, NodeId, Sites};

/// For a table of sites.
const TABLE: Style = Style { room: Sites::BYTES, ..SMALL };
/// For a manager's share of a directory: two sets of sites and two times attributes.
const SHARE: Style = Style { room: 512, ..SMALL };

impl Client {
    /// The manager that the file is at, as far as it is known.
    pub(super) fn manager_of(&self, file: FileId) -> NodeId {
        self.0.sites.borrow().manager_of(file)
    }

    /// The manager that a name is at, as far as it is known.
    pub(super) fn manager_of_name(&self, parent: FileId, name: &[u8]) -> NodeId {
        let site = if self.is_hashed(parent) { site_of_name(parent, name) } else { parent.site() };
        self.0.sites.borrow().get(site).manager
    }

    /// Whether the names of a directory are known to be at the sites of their hashes.
    pub(super) fn is_hashed(&self, directory: FileId) -> bool {
        self.0.hashed.borrow().contains(&directory)
    }

    /// They are.
    fn note_hashed(&self, directory: FileId) {
        let mut hashed = self.0.hashed.borrow_mut();
        if hashed.len() >= HASHED_MAX {
            hashed.clear(); // each says so again
        }
        hashed.insert(directory);
    }

    fn forget_hashed(&self, directory: FileId) {
        self.0.hashed.borrow_mut().remove(&directory);
    }

    /// Every manager that is known.
    pub(super) fn managers(&self) -> Vec<NodeId> {
        self.0.managers.borrow().keys().copied().collect()
    }

    /// Every manager, as far as the first one knows.
    pub(super) async fn all_managers(&self) -> Vec<NodeId> {
        self.learn_sites(self.0.first).await;
        self.managers()
    }

    /// Sends a call to the manager that it is about, and after it where that is no more.
    pub(super) async fn route(
        &self,
        operation: &Operation<'_>,
        message: &[u8],
        style: Style,
    ) -> Result<Vec<u8>, Errno> {
        let end = self.0.cx.now() + style.deadline.unwrap_or(DEADLINE);
        let spread = operation.spread();
        // Routes learnt beside it are for other calls: this one may have been executed where it was sent first.
        let by_name = spread.is_some_and(|directory| self.is_hashed(directory));
        let mut numbered = self.take_number(operation, by_name).await;
        loop {
            let number = numbered.number;
            let owner = || {
                let site = operation.site(number.by_name);
                site.map_or(self.0.first, |site| self.0.sites.borrow().get(site).manager)
            };
            let manager = owner();
            let is_elsewhere = || owner() != manager;
            match self.send(manager, operation, number, message, style, &is_elsewhere).await {
                Err(HASHED) if !number.by_name && spread.is_some() => {
                    spread.into_iter().for_each(|directory| self.note_hashed(directory));
                    if matches!(operation, Operation::GetAttr { .. }) {
                        return Err(HASHED);
                    }
                    // It was not executed; the site of its name has slots of its own.
                    drop(numbered);
                    numbered = self.take_number(operation, true).await;
                    continue;
                }
                Err(Errno::ESTALE) if number.by_name => {
                    // It is gone, or from a store that was restored; the next call learns it anew.
                    let Some(directory) = spread else { return Err(Errno::ESTALE) };
                    self.forget_hashed(directory);
                    return Err(self.why_gone(directory).await);
                }
                Err(Errno::EREMCHG) if self.0.cx.now() + RETRY_PAUSE < end => {}
                Err(Errno::EREMCHG) => return Err(Errno::ETIMEDOUT),
                result => return result,
            }
            // It was learnt meanwhile, or the one that was asked is no more.
            if !is_elsewhere() && !self.learn_sites(manager).await {
                // It is on its way.
                self.0.cx.sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// A manager's share of a hashed directory.
    pub(super) async fn share_at(&self, manager: NodeId, file: FileId) -> Result<Share, Errno> {
        decoded(self.ask_at(manager, Operation::Share { file }, SHARE).await?)
    }

    /// A hashed directory as all its managers have it. The attributes of its own record where that is not hashed, as
    /// when its manager goes on from before; [`LOST`] where another one does, and has no part of it.
    pub(super) async fn merged(&self, file: FileId) -> Result<Entry, Errno> {
        let (end, mut lacks) = (self.0.cx.now() + DEADLINE, 0);
        loop {
            let managers = self.0.sites.borrow().managers();
            let shares = managers.iter().map(|manager| self.share_at(*manager, file));
            let mut sum = Share::default();
            let mut is_whole = true;
            for share in node::all(shares).await {
                if share == Err(Errno::ESTALE) {
                    self.forget_hashed(file);
                }
                is_whole &= sum.merge(&share?);
            }
            if let Some(entry) = sum.entry().filter(|_| is_whole) {
                return Ok(entry);
            }
            if is_whole && sum.tells_all() {
                if let Some(own) = sum.own.filter(|_| !sum.is_hashed) {
                    self.forget_hashed(file);
                    return Ok(own);
                }
                lacks += 1;
                if lacks == LACKING_ROUNDS {
                    return Err(LOST);
                }
                continue;
            }
            lacks = 0;
            if self.0.cx.now() + RETRY_PAUSE >= end {
                return Err(Errno::ETIMEDOUT);
            }
            // A site is on its way.
            let news = managers.iter().map(|manager| self.learn_sites(*manager));
            if !node::all(news).await.contains(&true) {
                self.0.cx.sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Why a manager has nothing of a hashed directory: it is gone, or that manager has lost its part.
    async fn why_gone(&self, directory: FileId) -> Errno {
        match Box::pin(self.get_attr(directory)).await {
            Err(LOST) => LOST,
            _ => Errno::ESTALE,
        }
    }

    /// Asks a manager where sites are; whether something is new.
    pub(super) async fn learn_sites(&self, manager: NodeId) -> bool {
        self.ask_sites(manager).await.unwrap_or(false)
    }

    /// The same, and whether it was answered.
    pub(super) async fn ask_sites(&self, manager: NodeId) -> Result<bool, Errno> {
        let number = self.number(0, 0);
        let asked = self.send(manager, &Operation::Sites {}, number, &[], TABLE, &|| false).await;
        let table = decoded::<Sites>(asked?)?;
        let is_new = self.0.sites.borrow_mut().learn_all(&table);
        let managers = self.0.sites.borrow().managers();
        managers.into_iter().for_each(|manager| self.know(manager));
        Ok(is_new)
    }

    /// Where sites are, as far as the first manager knows. Any other would take this client for one that uses it.
    pub async fn table_of_sites(&self) -> Result<Sites, Errno> {
        decoded(self.ask_at(self.0.first, Operation::Sites {}, TABLE).await?)
    }

    /// Starts keepalives to a manager: any of them may get a site with files that the client has open.
    fn know(&self, manager: NodeId) {
        if self.0.managers.borrow().contains_key(&manager) {
            return;
        }
        self.0.managers.borrow_mut().insert(manager, Managed::default());
        self.0.cx.spawn("names alive", stay_alive(Rc::downgrade(&self.0), manager));
    }
}

impl Client {
    /// Ends the session with a manager that owns nothing and has on stable storage what this client changed there;
    /// whether there is none any more.
    async fn part_from(&self, manager: NodeId) -> bool {
        if !self.0.managers.borrow().contains_key(&manager) {
            return true;
        }
        if self.owns(manager) {
            return false;
        }
        if self.sync_at(manager).await.is_err() {
            return false;
        }
        if self.ask_at(manager, Operation::Leave {}, SMALL).await.is_err() {
            return false;
        }
        let mut managers = self.0.managers.borrow_mut();
        // The answer to the last call is all that came since the sync, unless another one was late.
        let is_clean = managers.get(&manager).is_none_or(|known| {
            known.unsynced.keys().all(|incarnation| *incarnation == known.incarnation)
        });
        let ends = is_clean && !self.owns(manager);
        if ends {
            managers.remove(&manager);
        }
        ends
    }

    /// These managers are gone for good, with nothing that was not on stable storage elsewhere.
    pub fn forget_managers(&self, gone: &BTreeSet<NodeId>) {
        let mut managers = self.0.managers.borrow_mut();
        managers.retain(|manager, _| !gone.contains(manager) || self.owns(*manager));
    }

    /// Whether the manager owns anything, as far as is known here.
    fn owns(&self, manager: NodeId) -> bool {
        self.0.sites.borrow().of(manager).next().is_some()
    }
}

/// Sends keepalives to one manager until the client ends. One that is away delays no other.
async fn stay_alive(client: Weak<Inner>, manager: NodeId) {
    while let Some(inner) = client.upgrade() {
        let cx = inner.cx.clone();
        let client = Client(inner, Settings::default());
        if client.0.left.get() || !client.managers().contains(&manager) {
            return;
        }
        // A failure is retried; within the lease there are several more.
        let _ = client.keep_alive_at(manager).await;
        if client.part_from(manager).await {
            return;
        }
        drop(client);
        cx.sleep(KEEP_ALIVE_INTERVAL).await;
    }
}
