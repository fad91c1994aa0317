//! The half of the other replicas: changes that the primary has ordered are executed in its order.

use super::fill::step;
use super::lease::LEASE;
use crate::description::decode_some;
use crate::groups::{Local, Order, Track};
use crate::limits::*;
use crate::protocol::{ObjectReply, ObjectRequest, op};
use crate::server::Inner;
use crate::write::stamp_behind;
use members::groups::{HAND_OVER, Refused};
use node::{Answer, Request};
use std::rc::Rc;
use std::time::Duration;
use wire::codec::Decoder;
use wire::field::Field;
use wire::{Channel, Errno, NodeId};

/// Changes that are executed at once for primaries elsewhere, or wait for one before them.
const TAKE_TASKS: usize = 64;
/// Reads for replicas that are being filled, at once: two of each, and a few.
const FILL_READ_TASKS: usize = 8;
/// How long a change waits for one before it, until its primary is asked to send it again.
const TURN_PATIENCE: Duration = Duration::from_millis(300);

impl Inner {
    /// Starts the task that keeps this server's replicas, where there may be some.
    pub fn serve_replicas(self: &Rc<Self>) {
        let Some(table) = self.groups.table.clone() else { return };
        self.cx.set_pure(Channel::LEASES, |op| matches!(op, LEASE | HAND_OVER));
        self.cx.set_pure(Channel::FILLS, |_| true);
        self.cx.spawn("stripe groups", self.clone().keep_groups(table));
    }

    /// Starts the tasks that serve other replicas' servers.
    pub(super) fn serve_others(self: &Rc<Self>) {
        let leases = self.clone();
        self.cx.spawn("stripe leases", async move {
            loop {
                let request = leases.cx.accept(Channel::LEASES).await;
                match request.op {
                    HAND_OVER => leases.hear_hand_over(request),
                    _ => leases.tell_leases(request),
                }
            }
        });
        for _ in 0..FILL_READ_TASKS {
            self.cx.spawn("stripe fill reads", self.clone().serve_fill_reads());
        }
        for _ in 0..TAKE_TASKS {
            self.cx.spawn("stripe replica", self.clone().take_changes());
        }
    }

    async fn take_changes(self: Rc<Self>) {
        loop {
            let mut request = self.cx.accept(Channel::REPLICAS).await;
            match self.take(&mut request).await {
                Ok((reply, trailer)) => {
                    let (body, trailer) = (reply.encode(), &trailer[..]);
                    self.cx.reply(request, Answer { trailer, ..Answer::body(&body) });
                }
                Err(errno) => self.cx.reply(request, Answer::error(errno)),
            }
        }
    }

    async fn take(self: &Rc<Self>, request: &mut Request) -> Result<(ObjectReply, Vec<u8>), Errno> {
        let ask = ObjectRequest::decode(&request.body).map_err(|_| Errno::EPROTO)?;
        let order = order_behind(request)?;
        let local = self.groups.get(ask.group).ok_or_else(|| {
            self.refresh_groups();
            Errno::EREMOTE
        })?;
        let ask = ObjectRequest { disk: local.own.disk, ..ask };
        self.check_primary(&local, request.source, &ask, &order)?;
        if request.op == step::LATEST {
            local.note_order(ask.offset);
            return Ok((ObjectReply::default(), Vec::new()));
        }
        if let Some(answer) = self.fill_step(&local, request, &ask, &order).await {
            return answer;
        }
        let reply = self.take_change(&local, request, &ask, &order).await?;
        Ok((reply, Vec::new()))
    }

    async fn take_change(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &mut Request,
        ask: &ObjectRequest,
        order: &Order,
    ) -> Result<ObjectReply, Errno> {
        self.check_fill(local, order)?;
        let track = local.tracks.get(ask.object);
        local.tracks.note_settled(order.settled);
        // As the primary it counts on from above all that others take for settled.
        local.note_order(order.settled);
        self.wait_for_turn(local, &track, order).await?;
        if request.op == op::COMMIT {
            // It ends what came before it, and nothing waits for it.
            return self.commit_request(ask).await;
        }
        let turn = track.turn.acquire(1).await;
        self.check_primary(local, request.source, ask, order)?;
        self.check_fill(local, order)?;
        if !local.tracks.is_done(&track, order) {
            self.execute_ordered(local, request, ask, order).await?;
            // Meanwhile another fill may have begun, whose numbers are not these.
            self.check_fill(local, order)?;
            track.note(order.number);
            local.note_order(order.number);
            local.moved.notify_all();
        }
        drop(turn);
        let stable = ask.stable && request.op == op::WRITE && {
            let object = self.object(ask).await?;
            self.is_committed(&object, ask).await
        };
        Ok(ObjectReply { stable, ..ObjectReply::default() })
    }

    /// Whether a message is of the group's primary, and of the fill by which this replica is brought up to date.
    fn check_primary(
        &self,
        local: &Local,
        source: NodeId,
        ask: &ObjectRequest,
        order: &Order,
    ) -> Result<(), Errno> {
        let seat = local.seat.borrow();
        let group = seat.group();
        let primary = group.replicas().iter().find(|replica| replica.server == source);
        let primary = *primary.ok_or(Errno::EREMOTE)?;
        match seat.takes(primary, ask.group_epoch, order.verifier) {
            Ok(()) => {}
            Err(Refused::Epoch(known)) => {
                self.expect_epoch(ask.group_epoch, known);
                return Err(Errno::EREMOTE);
            }
            Err(Refused::Starting | Refused::NoLease) => return Err(Errno::EAGAIN),
            Err(Refused::NotYours) => return Err(Errno::EREMOTE),
        }
        Ok(())
    }

    /// Whether a change is for this replica: one that is not in sync takes those of the fill that it is in.
    fn check_fill(&self, local: &Local, order: &Order) -> Result<(), Errno> {
        let is_its = order.fill != 0 && order.fill == local.filled_by.get();
        if local.group().is_in_sync(local.own) || is_its { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// Waits until the change before one of the same object was executed. EAGAIN where it does not come.
    async fn wait_for_turn(
        &self,
        local: &Local,
        track: &Track,
        order: &Order,
    ) -> Result<(), Errno> {
        let is_due = || local.tracks.is_due(track, order);
        local.wait_for(&self.cx, TURN_PATIENCE, is_due).await.then_some(()).ok_or(Errno::EAGAIN)
    }

    async fn execute_ordered(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &mut Request,
        ask: &ObjectRequest,
        order: &Order,
    ) -> Result<(), Errno> {
        match request.op {
            op::REMOVE => self.remove(ask).await.map(drop),
            op::DESCRIBE => {
                let told = decode_some(request.trailer(), ask.bytes).map_err(|_| Errno::EPROTO)?;
                self.describe_each(told, ask).await;
                Ok(())
            }
            op::WRITE | op::REWRITE => self.write_ordered(request, ask, order).await,
            _ => match self.fill_change(local, request, ask, order).await {
                Some(filled) => filled,
                None => {
                    request.client = order.client;
                    self.apply_as(request, ask, order.number).await.map(drop)
                }
            },
        }
    }

    async fn write_ordered(
        self: &Rc<Self>,
        request: &mut Request,
        ask: &ObjectRequest,
        order: &Order,
    ) -> Result<(), Errno> {
        let data = self.take_data(request, ask)?;
        let object = self.object(ask).await?;
        self.wait_for_room(self.disk(&object), ask.bytes as usize).await?;
        object.state.borrow_mut().given = Some(order.number);
        let trailer = request.trailer();
        match request.op {
            op::WRITE => {
                self.write_data(&object, ask, &data, trailer, order.client).await?;
            }
            _ => {
                let stamp = stamp_behind(request, ask)?;
                self.rewrite_part(&object, ask, &data, trailer, stamp, order.client).await?;
                self.next_order(&object, ask.group);
            }
        }
        Ok(())
    }
}

/// The place of a change, at the end of its trailer.
fn order_behind(request: &Request) -> Result<Order, Errno> {
    let trailer = request.trailer();
    let at = trailer.len().checked_sub(Order::BYTES).ok_or(Errno::EPROTO)?;
    Order::take(&mut Decoder::new(&trailer[at..])).map_err(|_| Errno::EPROTO)
}

const _: () = assert!(GROUP_CALL_SPAN.as_millis() > TURN_PATIENCE.as_millis());
