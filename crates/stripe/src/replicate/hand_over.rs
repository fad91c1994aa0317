//! A group's primary hands over to another replica, as the planner of groups asks: its disk is to be emptied, or it
//! leads more groups than others.
//!
//! It orders nothing more, waits until what it has ordered was executed by all, tells the other one up to which number
//! it has counted, and proposes it. A client notices a pause.

use super::fill::step;
use super::forward::Forward;
use crate::groups::{Local, Order};
use crate::protocol::ObjectRequest;
use crate::server::Inner;
use members::groups::{Change, HandOver, Replica};
use node::{Answer, Request};
use std::rc::Rc;
use std::time::Duration;
use wire::field::Message;
use wire::{Errno, ObjectId};

/// How long changes that are under way are waited for. Clients wait meanwhile.
const CHANGES_PATIENCE: Duration = Duration::from_millis(500);
/// Pause before it is found out again whether a proposal was made.
const OUTCOME_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// HAND_OVER: answered at once. One that does not is asked again.
    pub(super) fn hear_hand_over(self: &Rc<Self>, request: Request) {
        let Ok(HandOver { group, epoch, to }) = HandOver::decode(&request.body) else {
            return self.cx.reply(request, Answer::error(Errno::EPROTO));
        };
        self.cx.reply(request, Answer::DONE);
        let Some(local) = self.groups.get(group) else { return };
        // A fill begins anew at another primary.
        let is_free = local.filling.borrow().is_none() && !local.proposing.get();
        if is_free && local.seat.borrow_mut().handle_hand_over(self.cx.now(), epoch, to) {
            let service = self.clone();
            self.cx.spawn("stripe hand-over", async move { service.hand_over(&local, to).await });
        }
    }

    async fn hand_over(self: &Rc<Self>, local: &Rc<Local>, to: Replica) {
        let is_at_rest = || local.changing.get() == 0;
        if local.wait_for(&self.cx, CHANGES_PATIENCE, is_at_rest).await
            && self.tell_latest(local, to).await
        {
            self.propose_until_known(local, Change::Lead(to)).await;
        }
        local.seat.borrow_mut().handle_proposed();
        local.moved.notify_all();
    }

    /// The next primary counts on from above all that the others have executed: steps of a fill have numbers that it
    /// has seen none of, and a replica takes what is below one of them for done. Whether it knows.
    async fn tell_latest(&self, local: &Local, to: Replica) -> bool {
        let offset = local.orders.get();
        let ask = ObjectRequest { offset, ..self.fill_ask(local, ObjectId::default()) };
        let order = Order { verifier: local.verifier.get(), ..Order::default() };
        let change = Forward { op: step::LATEST, ask, data: None, trailer: &[], order };
        self.tell_replica(local, to, &change, order).await.is_ok()
    }

    /// Proposes a change until it is known whether it was made: it may be made even later than its error comes.
    async fn propose_until_known(&self, local: &Local, change: Change) {
        let epoch = local.group().epoch();
        let mut proposed = self.propose(local, change).await;
        while local.group().epoch() == epoch && proposed.is_err_and(is_open) {
            self.cx.sleep(OUTCOME_PAUSE).await;
            proposed = self.propose(local, Change::Fence).await;
        }
    }
}

/// Whether the change may have been made, or may yet be.
fn is_open(errno: Errno) -> bool {
    !matches!(errno, Errno::ESTALE | Errno::EPERM | Errno::EINVAL | Errno::ENOENT)
}
