//! A manager that is taken out.
//!
//! It gives its sites to the others, as any does that has too many. It has drained when it owns none, has no part in an
//! operation and no client, and every other manager has promised to give it nothing more: a promise that is kept in
//! memory, since a manager that starts hears who is retired before it gives anything. From then on it may be stopped
//! for good.

use super::Service;
use crate::objects::Objects;
use crate::protocol::managers::{Refuse, op};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::field::encoded;
use wire::{Errno, NodeId, Sites};

/// Other managers that are taken out, as far as this one knows.
#[derive(Debug, Default)]
pub(super) struct Retiring {
    /// Managers that get nothing, until the members are known as of this view or a later one.
    refused: BTreeMap<NodeId, u64>,
    /// Managers that drained and are gone: what they did not decide was given up.
    gone: BTreeSet<NodeId>,
}

impl Retiring {
    pub fn hear(&mut self, view: u64, gone: BTreeSet<NodeId>) {
        self.refused.retain(|_, since| *since > view);
        self.gone = gone;
    }

    pub fn is_refused(&self, manager: NodeId) -> bool {
        self.refused.contains_key(&manager)
    }

    pub fn is_gone(&self, manager: NodeId) -> bool {
        self.gone.contains(&manager)
    }
}

impl<O: Objects> Service<O> {
    /// Whether this manager has drained, by what it and all the others know; `view` is one of the members in which it
    /// is retired, `others` are the managers in it. EBUSY: it owns something yet. EAGAIN: something is on its way here
    /// or from here, or a client is still here. Else the error of a manager that does not answer.
    pub(super) async fn drain(
        self: &Rc<Self>,
        view: u64,
        others: Vec<NodeId>,
    ) -> Result<(), Errno> {
        self.may_serve().await?;
        self.check_drained()?;
        for other in others {
            let sites = self.manager.borrow().sites.table().clone();
            let refuse = encoded(&Refuse { manager: self.cx.id(), view, sites });
            let sites = self.ask_manager::<Sites>(other, op::REFUSE, &refuse).await?;
            if sites.of(self.cx.id()).next().is_some() {
                return Err(Errno::EAGAIN);
            }
            self.hear_sites(&sites);
        }
        // Anything sent before the last promise is here by now, or known to the manager that gave the promise.
        self.check_drained()?;
        self.sync().await
    }

    fn check_drained(&self) -> Result<(), Errno> {
        let manager = self.manager.borrow();
        if manager.sites.table().of(self.cx.id()).next().is_some() {
            return Err(Errno::EBUSY);
        }
        let handovers = manager.open_handovers(self.cx.now()).map_err(|_| Errno::EIO)?;
        let operations = self.undecided.borrow().len() + manager.decided.len();
        let parts = manager.prepared.len();
        let is_empty = handovers.is_empty() && operations + parts + manager.clients.len() == 0;
        if is_empty { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    /// Promises to give that manager nothing. EAGAIN: something is on its way there, or a part of an operation of it is
    /// not decided yet.
    pub(super) fn refuse(self: &Rc<Self>, refuse: Refuse) -> Result<Sites, Errno> {
        let Refuse { manager: retired, view, sites } = refuse;
        self.retiring.borrow_mut().refused.insert(retired, view);
        self.hear_sites(&sites);
        let manager = self.manager.borrow();
        let is_given = self.giving.borrow().values().any(|to| *to == retired);
        if is_given || manager.prepared.keys().any(|tx| tx.manager == retired) {
            return Err(Errno::EAGAIN);
        }
        Ok(manager.sites.table().clone())
    }
}
