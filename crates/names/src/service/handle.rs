//! A running manager as others on its node see it.

use super::Service;
use super::backup::Members;
use super::begin::Stage;
use super::describe::Stopping;
use super::quarantine::QuarantineCounters;
use crate::lineage::Older;
use crate::objects::Objects;
use crate::restoration::Restoration;
use crate::servers::IoServer;
use node::rings::MetaError;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use store::Health;
use wire::{Errno, FileId, NodeId, Sites};

/// A handle to a running manager, for the node it runs on.
#[derive(Clone)]
pub struct Handle(pub(super) Rc<dyn Control>);

/// Future of a handle.
type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

pub(super) trait Control {
    fn set_servers(&self, servers: &[IoServer]);
    fn set_columns_max(&self, columns: usize);
    fn set_witnesses(&self, servers: &[NodeId]);
    fn servers(&self) -> Vec<IoServer>;
    fn quarantine(&self) -> QuarantineCounters;
    fn trouble(&self) -> Option<MetaError>;
    fn health(&self) -> Health;
    fn older(&self) -> Option<Older>;
    fn refused(&self) -> LocalFuture<Older>;
    fn is_frozen(&self) -> bool;
    fn restoration(&self) -> Restoration;
    fn set_members(&self, members: Members);
    fn settle(&self, stopping: Option<Stopping>) -> LocalFuture<()>;
    fn set_gone(&self, disks: &[(NodeId, u32)]);
    fn gone_files(&self) -> u64;
    fn sites(&self) -> Sites;
    fn owns(&self, site: u8) -> bool;
    fn mkdir_switching(&self) -> u16;
    fn is_hashed(&self, directory: FileId) -> bool;
    fn give(&self, site: u8, to: NodeId) -> LocalFuture<Result<(), Errno>>;
    fn hear_members(&self, view: u64, gone: BTreeSet<NodeId>);
    fn drain(&self, view: u64, others: Vec<NodeId>) -> LocalFuture<Result<(), Errno>>;
}

impl Handle {
    /// From now on these I/O servers get new files, but for those that are retired.
    pub fn set_servers(&self, servers: &[IoServer]) {
        self.0.set_servers(servers);
    }

    /// From now on a new file has no more columns than this.
    pub fn set_columns_max(&self, columns: usize) {
        self.0.set_columns_max(columns);
    }

    /// From now on these servers are told how far the store is, whatever gets new files.
    pub fn set_witnesses(&self, servers: &[NodeId]) {
        self.0.set_witnesses(servers);
    }

    /// Counts of objects that no file claims.
    pub fn quarantine(&self) -> QuarantineCounters {
        self.0.quarantine()
    }

    /// Why changes of names are refused, or were until a moment ago.
    pub fn trouble(&self) -> Option<MetaError> {
        self.0.trouble()
    }

    /// Whether the store holds what was written, as far as it was read.
    pub fn health(&self) -> Health {
        self.0.health()
    }

    /// The handle as long as the service runs, for what the service itself holds: it would keep itself alive, and with
    /// it the lock of its store.
    pub fn weak(&self) -> impl Fn() -> Option<Handle> + use<> {
        let service = Rc::downgrade(&self.0);
        move || service.upgrade().map(Handle)
    }

    /// Why nothing is served, when the store is not the newest.
    pub fn older(&self) -> Option<Older> {
        self.0.older()
    }

    /// Waits until nothing is served any more since the store is not the newest; mostly for ever.
    pub async fn refused(&self) -> Older {
        self.0.refused().await
    }

    /// Sets the part of a backup beside the names: all rows of the members' store.
    pub fn set_members(&self, members: impl Fn() -> Result<Vec<store::Entry>, Errno> + 'static) {
        self.0.set_members(Rc::new(members));
    }

    /// Whether the volume was restored, and no person has said yet that what it does not know may go.
    pub fn is_frozen(&self) -> bool {
        self.0.is_frozen()
    }

    /// Files of a restored volume that are not as any other yet.
    pub fn restoration(&self) -> Restoration {
        self.0.restoration()
    }

    /// Everything so far is on stable storage, and the server that stops, or each that answers soon, knows how far that
    /// is and what its objects are to be told of their files: for a clean stop.
    pub async fn settle(&self, stopping: Option<Stopping>) {
        self.0.settle(stopping).await;
    }

    /// These disks of servers are gone for good, one bit each.
    pub fn set_gone(&self, disks: &[(NodeId, u32)]) {
        self.0.set_gone(disks);
    }

    /// Files with a column on what is gone, as of the last walk over all of them.
    pub fn gone_files(&self) -> u64 {
        self.0.gone_files()
    }

    /// Owners of sites, as far as this manager knows; of its own it is sure.
    pub fn sites(&self) -> Sites {
        self.0.sites()
    }

    /// Of 1000 new directories so many go to the site of their hash.
    pub fn mkdir_switching(&self) -> u16 {
        self.0.mkdir_switching()
    }

    /// Whether a site is this manager's.
    pub fn owns(&self, site: u8) -> bool {
        self.0.owns(site)
    }

    /// Whether the names of a directory are at the sites of their hashes, of which this manager owns one at least.
    pub fn is_hashed(&self, directory: FileId) -> bool {
        self.0.is_hashed(directory)
    }

    /// Hands a site of this manager to another one, while clients use it. EAGAIN: something of it is in use by an
    /// operation just now; EREMCHG: it is another manager's; EBUSY: the volume was restored and is being compared;
    /// EPERM: the other one is taken out; else the error of the other manager, and nothing has changed.
    pub async fn give(&self, site: u8, to: NodeId) -> Result<(), Errno> {
        self.0.give(site, to).await
    }

    /// The members are known as of this view, in which these managers are gone for good.
    pub fn hear_members(&self, view: u64, gone: BTreeSet<NodeId>) {
        self.0.hear_members(view, gone);
    }

    /// Whether this manager, which is retired as of this view of the members, with these other managers in it, owns
    /// nothing any more and never will. EBUSY: it owns sites; EAGAIN: operations, handovers or clients have not ended;
    /// else the error of another manager.
    pub async fn drain(&self, view: u64, others: Vec<NodeId>) -> Result<(), Errno> {
        self.0.drain(view, others).await
    }

    /// The active I/O servers.
    pub fn servers(&self) -> Vec<IoServer> {
        self.0.servers()
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Handle(servers {:?})", self.servers())
    }
}

impl<O: Objects> Control for Rc<Service<O>> {
    fn set_servers(&self, servers: &[IoServer]) {
        self.manager.borrow_mut().set_servers(servers);
    }
    fn set_columns_max(&self, columns: usize) {
        self.manager.borrow_mut().set_columns_max(columns);
    }
    fn set_witnesses(&self, servers: &[NodeId]) {
        self.manager.borrow_mut().set_witnesses(servers);
    }
    fn servers(&self) -> Vec<IoServer> {
        self.manager.borrow().servers().to_vec()
    }
    fn quarantine(&self) -> QuarantineCounters {
        self.quarantine.get()
    }
    fn trouble(&self) -> Option<MetaError> {
        self.trouble.borrow().clone().or_else(|| self.full_disk())
    }
    fn health(&self) -> Health {
        self.manager.borrow_mut().store().health()
    }
    fn older(&self) -> Option<Older> {
        match self.stage.get() {
            Stage::Refused(older) => Some(older),
            _ => None,
        }
    }
    fn refused(&self) -> LocalFuture<Older> {
        Box::pin(self.clone().refused())
    }
    fn set_members(&self, members: Members) {
        self.members.replace(Some(members));
    }
    fn is_frozen(&self) -> bool {
        self.manager.borrow().is_frozen()
    }
    fn restoration(&self) -> Restoration {
        self.manager.borrow().restoration()
    }
    fn settle(&self, stopping: Option<Stopping>) -> LocalFuture<()> {
        Box::pin(self.clone().tell_now(stopping))
    }
    fn set_gone(&self, disks: &[(NodeId, u32)]) {
        self.gone.set(disks);
    }
    fn gone_files(&self) -> u64 {
        self.gone.files()
    }
    fn sites(&self) -> Sites {
        self.manager.borrow().sites.table().clone()
    }
    fn owns(&self, site: u8) -> bool {
        self.manager.borrow().sites.owns(site)
    }
    fn mkdir_switching(&self) -> u16 {
        self.manager.borrow().switching_share().per_mille
    }
    fn is_hashed(&self, directory: FileId) -> bool {
        self.manager.borrow().hashed.has(directory)
    }
    fn give(&self, site: u8, to: NodeId) -> LocalFuture<Result<(), Errno>> {
        let service = self.clone();
        Box::pin(async move { service.give_site(site, to).await })
    }
    fn hear_members(&self, view: u64, gone: BTreeSet<NodeId>) {
        self.retiring.borrow_mut().hear(view, gone);
    }
    fn drain(&self, view: u64, others: Vec<NodeId>) -> LocalFuture<Result<(), Errno>> {
        let service = self.clone();
        Box::pin(async move { Service::drain(&service, view, others).await })
    }
}
