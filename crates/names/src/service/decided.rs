//! Decided operations over several managers, until every part is done on stable storage.
//!
//! A part is done at once, so that what it holds is free, but syncs for that would be one more for each operation. The
//! decision stays until the next round here: one message to each manager for all operations since the last one, with
//! one sync there, which may have had one since. A manager that is told late, or again, does what is left.

use super::Service;
use crate::holds::Tx;
use crate::limits::{RETRY_INTERVAL, SETTLED_AT_ONCE, SYNC_INTERVAL};
use crate::objects::Objects;
use crate::protocol::managers::op;
use node::{Cx, Notify, race};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::NodeId;
use wire::field::encoded;

/// Operations with the managers that have not said that their parts are on stable storage.
pub(super) struct Unsettled {
    operations: RefCell<BTreeMap<Tx, Vec<NodeId>>>,
    /// There are as many as one message has room for.
    full: Notify,
}

impl Unsettled {
    pub fn new(cx: &Cx) -> Unsettled {
        Unsettled { operations: RefCell::default(), full: Notify::new(cx) }
    }

    fn insert(&self, tx: Tx, participants: Vec<NodeId>) {
        let mut operations = self.operations.borrow_mut();
        operations.insert(tx, participants);
        if operations.len() == SETTLED_AT_ONCE {
            self.full.notify_all();
        }
    }

    /// They are not to wait for the next round.
    pub fn hurry(&self) {
        self.full.notify_all();
    }

    /// The operations of each manager.
    fn by_manager(&self) -> BTreeMap<NodeId, Vec<Tx>> {
        let mut managers: BTreeMap<NodeId, Vec<Tx>> = BTreeMap::new();
        for (tx, participants) in self.operations.borrow().iter() {
            for manager in participants {
                managers.entry(*manager).or_default().push(*tx);
            }
        }
        managers
    }

    /// A manager has settled these.
    fn settle(&self, manager: NodeId, settled: &[Tx]) {
        let mut operations = self.operations.borrow_mut();
        for tx in settled {
            if let Some(participants) = operations.get_mut(tx) {
                participants.retain(|participant| *participant != manager);
            }
        }
    }

    /// Takes out the operations that all their managers have settled.
    fn take_settled(&self) -> Vec<Tx> {
        let mut operations = self.operations.borrow_mut();
        operations
            .extract_if(.., |_, participants| participants.is_empty())
            .map(|(tx, _)| tx)
            .collect()
    }
}

impl<O: Objects> Service<O> {
    /// Ends an operation as soon as the decision is on stable storage; it is not announced before.
    pub(super) async fn finish_late(self: Rc<Self>, tx: Tx) {
        while self.sync().await.is_err() {
            self.cx.sleep(RETRY_INTERVAL).await;
        }
        self.undecided.borrow_mut().remove(&tx);
        let participants = self.manager.borrow().decided.get(&tx).cloned();
        self.finish(tx, participants.unwrap_or_default()).await;
    }

    /// Has all parts of a decided operation done. One that is not told now is told when they are settled.
    pub(super) async fn finish(self: Rc<Self>, tx: Tx, participants: Vec<NodeId>) {
        let calls = participants.iter().map(async |manager| {
            let _ = self.ask_manager::<()>(*manager, op::FINISH, &encoded(&tx)).await;
        });
        node::all(calls).await;
        self.unsettled.insert(tx, participants);
    }

    /// Forgets decisions whose parts are done on stable storage: who else would ask for one is told that it was given
    /// up.
    pub(super) async fn settle_operations(self: Rc<Self>) {
        if self.may_serve().await.is_err() {
            return;
        }
        while !self.is_refused() {
            let full = self.unsettled.full.wait();
            race(full, self.cx.sleep(SYNC_INTERVAL)).await;
            let managers = self.unsettled.by_manager();
            let calls = managers.iter().flat_map(|(manager, all)| {
                all.chunks(SETTLED_AT_ONCE).map(|some| self.settle_at(*manager, some))
            });
            node::all(calls).await;
            self.forget_decisions(self.unsettled.take_settled()).await;
        }
    }

    async fn settle_at(&self, manager: NodeId, operations: &[Tx]) {
        // One that was taken out had done all its parts, on stable storage.
        let is_done = self.retiring.borrow().is_gone(manager)
            || self
                .ask_manager::<()>(manager, op::SETTLE, &encoded(&operations.to_vec()))
                .await
                .is_ok();
        if is_done {
            self.unsettled.settle(manager, operations);
        }
    }

    async fn forget_decisions(self: &Rc<Self>, operations: Vec<Tx>) {
        while self.admit().await.is_err() {
            self.cx.sleep(RETRY_INTERVAL).await;
        }
        let forget = |tx| self.manager.borrow_mut().forget_decision(tx, self.cx.wall());
        // A failure is repaired by the next incarnation.
        let appends = operations.into_iter().filter_map(|tx| forget(tx).ok());
        let posted: Vec<_> = appends.map(|append| self.post(append)).collect();
        for posted in node::all(posted).await {
            self.note(posted);
        }
    }
}
