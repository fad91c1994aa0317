//! Choice of the manager: the one that owns the site of the file.

use super::calls::decoded;
use super::{Client, Inner, Managed, SMALL, Style};
use crate::limits::{DEADLINE, KEEP_ALIVE_INTERVAL, RETRY_PAUSE};
use crate::protocol::{CallNumber, Operation};
use std::rc::{Rc, Weak};
use wire::{Errno, FileId, NodeId, Sites};

/// For a table of sites.
const TABLE: Style = Style { room: Sites::BYTES, ..SMALL };

impl Client {
    /// The manager that the file is at, as far as it is known.
    pub(super) fn manager_of(&self, file: FileId) -> NodeId {
        self.0.sites.borrow().manager_of(file)
    }

    /// Every manager that is known.
    pub(super) fn managers(&self) -> Vec<NodeId> {
        self.0.managers.borrow().keys().copied().collect()
    }

    /// Sends a call to the manager that it is about, and after it where that is no more.
    pub(super) async fn route(
        &self,
        operation: &Operation<'_>,
        number: CallNumber,
        message: &[u8],
        style: Style,
    ) -> Result<Vec<u8>, Errno> {
        let end = self.0.cx.now() + style.deadline.unwrap_or(DEADLINE);
        loop {
            let manager = operation.subject().map_or(self.0.first, |file| self.manager_of(file));
            match self.send(manager, operation, number, message, style).await {
                Err(Errno::EREMCHG) if self.0.cx.now() + RETRY_PAUSE < end => {}
                Err(Errno::EREMCHG) => return Err(Errno::ETIMEDOUT),
                result => return result,
            }
            if !self.learn_sites(manager).await {
                // It is on its way.
                self.0.cx.sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// Asks a manager where sites are; whether something is new.
    pub(super) async fn learn_sites(&self, manager: NodeId) -> bool {
        let number = self.number(0, 0);
        let asked = self.send(manager, &Operation::Sites {}, number, &[], TABLE).await;
        let Ok(table) = asked.and_then(decoded::<Sites>) else { return false };
        let is_new = self.0.sites.borrow_mut().learn_all(&table);
        for manager in table.managers() {
            self.know(manager);
        }
        is_new
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

/// Sends keepalives to one manager until the client ends. One that is away delays no other.
async fn stay_alive(client: Weak<Inner>, manager: NodeId) {
    while let Some(inner) = client.upgrade() {
        let cx = inner.cx.clone();
        let client = Client(inner, DEADLINE, None);
        if client.0.left.get() {
            return;
        }
        // A failure is retried; within the lease there are several more.
        let _ = client.keep_alive_at(manager).await;
        drop(client);
        cx.sleep(KEEP_ALIVE_INTERVAL).await;
    }
}
