//! The primary's half of a change: it is ordered and executed here, forwarded to the other replicas, and answered when
//! all of them have executed it.
//!
//! The order is given while the object's turn is held, which is as long as the change is executed in memory; the others
//! are waited for outside, so that many changes of an object are on their way at once. A COMMIT runs here and there at
//! the same time.

use crate::description::decode_some;
use crate::groups::{Local, Order, Target, Targets};
use crate::objects::{Object, Spot};
use crate::order::Stamp;
use crate::protocol::{ObjectReply, ObjectRequest, op, piece_count, trailer_bytes};
use crate::server::Inner;
use crate::write::{decode_all, stamp_behind};
use endpoint::Frame;
use members::groups::{Change, Replica};
use node::{Answer, Bug, Call, Pieces, Request};
use std::rc::Rc;
use std::time::Duration;
use wire::field::Field;
use wire::{Channel, Errno};

/// How long the answer of another replica is waited for before it is sent the change again.
const FORWARD_PATIENCE: Duration = Duration::from_secs(1);
/// Pause before that.
const FORWARD_PAUSE: Duration = Duration::from_millis(5);

/// A change on its way to the other replicas.
pub(super) struct Forward<'a> {
    pub op: u16,
    pub ask: ObjectRequest,
    pub data: Option<&'a Pieces<Frame>>,
    pub trailer: &'a [u8],
    pub order: Order,
}

impl Inner {
    /// A request that changes an object of a group, or the state of one.
    pub(crate) async fn change(
        self: &Rc<Self>,
        local: &Rc<Local>,
        mut request: Request,
        ask: &ObjectRequest,
    ) {
        let result = match request.op {
            op::REMOVE => return self.remove_everywhere(local, request, ask).await,
            op::DESCRIBE => return self.describe_everywhere(local, request, ask).await,
            op::HISTORY => {
                if let Err(errno) = self.commit_everywhere(local, &request, ask).await {
                    return self.refuse(request, ask, errno);
                }
                return self.tell_history(request, ask).await;
            }
            op::WRITE => self.write_everywhere(local, &mut request, ask).await,
            op::REWRITE => self.rewrite_everywhere(local, &mut request, ask).await,
            op::COMMIT => self.commit_everywhere(local, &request, ask).await,
            _ => self.change_everywhere(local, &mut request, ask).await,
        };
        match result {
            Ok(reply) => self.cx.reply(request, Answer::body(&reply.encode())),
            Err(errno) => self.refuse(request, ask, errno),
        }
    }

    async fn write_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let data = self.take_data(request, ask)?;
        let object = self.object(ask).await?;
        self.wait_for_room(self.disk(&object), ask.bytes as usize).await?;
        let track = local.tracks.get(ask.object);
        let turn = track.turn.acquire(1).await;
        let number =
            self.write_data(&object, ask, &data, request.trailer(), request.client).await?;
        let (order, targets) = local.order(&track, number, request.client);
        drop(turn);
        let trailer = sums_of(request, ask);
        let forward = Forward { op: op::WRITE, ask: *ask, data: Some(&data), trailer, order };
        let here = async { !ask.stable || self.is_committed(&object, ask).await };
        let (here, there) = node::both(here, self.replicate(local, targets, &forward)).await;
        // Also of a write that need not be stable: one that another primary does not have is not answered.
        let stable = there? && here && ask.stable;
        Ok(ObjectReply { order: number, stable, ..self.describe(&object) })
    }

    async fn rewrite_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let data = self.take_data(request, ask)?;
        let stamp = stamp_behind(request, ask)?;
        let object = self.object(ask).await?;
        self.wait_for_room(self.disk(&object), ask.bytes as usize).await?;
        let track = local.tracks.get(ask.object);
        let mut forwards = Vec::new();
        let turn = track.turn.acquire(1).await;
        let Some(parts) = self.lost_parts(&object, ask, stamp, request.client)? else {
            return Ok(self.describe(&object));
        };
        let all = parts == [ask.range()];
        for part in parts {
            let (ask, data, sums) = self.part(ask, &data, &part);
            self.rewrite_part(&object, &ask, &data, &sums, stamp, request.client).await?;
            let number = self.next_order(&object, ask.group);
            let (order, targets) = local.order(&track, number, request.client);
            forwards.push((ask, data, with_stamp(sums, stamp), order, targets));
        }
        drop(turn);
        let number = forwards.last().map_or(0, |(_, _, _, order, _)| order.number);
        for (ask, data, trailer, order, targets) in forwards {
            let (op, trailer) = (op::REWRITE, &trailer[..]);
            let forward = Forward { op, ask, data: Some(&data), trailer, order };
            self.replicate(local, targets, &forward).await?;
        }
        let order = if all { number } else { 0 };
        Ok(ObjectReply { order, ..self.describe(&object) })
    }

    async fn commit_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await?;
        let track = local.tracks.get(ask.object);
        let (order, targets) = local.order(&track, 0, request.client);
        let forward = Forward { op: op::COMMIT, ask: *ask, data: None, trailer: &[], order };
        let there = self.replicate(local, targets, &forward);
        let (here, there) = node::both(self.commit_as(&object, ask), there).await;
        here.and(there.map(drop))?;
        Ok(self.describe(&object))
    }

    /// What is durable at once, or changes nothing that readers see.
    async fn change_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let track = local.tracks.get(ask.object);
        let turn = track.turn.acquire(1).await;
        // Before it is executed: what others are told meanwhile must not pass for all that there is.
        let number = local.next_order();
        let (order, targets) = local.order(&track, number, request.client);
        let applied = self.apply_as(request, ask, number).await;
        drop(turn);
        if applied.is_err() {
            targets.iter().for_each(|target| local.note_answer(target.replica, number));
        }
        let reply = applied?;
        let (op, trailer) = (request.op, request.trailer());
        let forward = Forward { op, ask: *ask, data: None, trailer, order };
        self.replicate(local, targets, &forward).await?;
        Ok(reply)
    }

    /// Executes a change of an object whose number is given.
    pub(super) async fn apply_as(
        self: &Rc<Self>,
        request: &mut Request,
        ask: &ObjectRequest,
        number: u64,
    ) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await.ok();
        let give = |number| {
            if let Some(object) = &object {
                object.state.borrow_mut().given = number;
            }
        };
        give(Some(number));
        let applied = self.apply(request, ask).await;
        give(None);
        applied
    }

    async fn remove_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: Request,
        ask: &ObjectRequest,
    ) {
        let Ok(objects) = decode_all(request.trailer(), ask) else {
            return self.refuse(request, ask, Errno::EPROTO);
        };
        let client = request.client;
        let removals = objects.into_iter().map(async |object| {
            let ask = ObjectRequest { object, ..*ask };
            match self.remove_one_everywhere(local, &ask, client).await {
                Ok(()) | Err(Errno::ENOENT) => 0,
                Err(errno) => errno.0,
            }
        });
        let statuses = node::all(removals).await;
        self.tell_each(request, &statuses);
    }

    pub(super) async fn remove_one_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        ask: &ObjectRequest,
        client: u64,
    ) -> Result<(), Errno> {
        let track = local.tracks.get(ask.object);
        let turn = track.turn.acquire(1).await;
        if self.group_of_object(ask.disk.into(), ask.object) != ask.group
            && !self.is_nowhere(Spot::of(ask))?
        {
            return Err(Errno::ESTALE);
        }
        self.remove(ask).await?;
        let (order, targets) = local.order(&track, local.next_order(), client);
        drop(turn);
        let forward = Forward { op: op::REMOVE, ask: *ask, data: None, trailer: &[], order };
        self.replicate(local, targets, &forward).await.map(drop)
    }

    async fn describe_everywhere(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: Request,
        ask: &ObjectRequest,
    ) {
        let Ok(objects) = decode_some(request.trailer(), ask.bytes) else {
            return self.refuse(request, ask, Errno::EPROTO);
        };
        let statuses = self.describe_each(objects, ask).await;
        let order = Order { verifier: local.verifier.get(), ..Order::default() };
        let trailer = request.trailer();
        let forward = Forward { op: op::DESCRIBE, ask: *ask, data: None, trailer, order };
        match self.replicate(local, local.targets(), &forward).await {
            Ok(_) => self.tell_each(request, &statuses),
            Err(errno) => self.refuse(request, ask, errno),
        }
    }

    /// Has the other replicas execute a change; whether it is stable there, of one that is to be.
    pub(super) async fn replicate(
        self: &Rc<Self>,
        local: &Rc<Local>,
        targets: Targets,
        change: &Forward<'_>,
    ) -> Result<bool, Errno> {
        if self.is_kept_back(change.op) {
            let number = change.order.number;
            targets.iter().for_each(|target| local.note_answer(target.replica, number));
            return Ok(true);
        }
        let sends = targets.iter().map(|target| self.forward(local, target, change));
        let mut stable = true;
        for sent in node::all(sends).await {
            stable &= sent?;
        }
        Ok(stable)
    }

    /// Whether a planted bug keeps changes of this kind back.
    fn is_kept_back(&self, op: u16) -> bool {
        let bug = match op {
            op::WRITE => Bug::CopyNotForwarded,
            op::COMMIT => Bug::CommitNotForwarded,
            op::REMOVE => Bug::RemovalNotForwarded,
            op::TRUNCATE => Bug::TruncationNotForwarded,
            _ => return false,
        };
        self.cx.has_bug(bug)
    }

    async fn forward(
        self: &Rc<Self>,
        local: &Rc<Local>,
        target: &Target,
        change: &Forward<'_>,
    ) -> Result<bool, Errno> {
        let number = change.order.number;
        loop {
            let waits = local.waits_for(target);
            if waits != Ok(true) {
                local.note_answer(target.replica, number);
                return waits.map(|_| true);
            }
            match self.send_forward(local, target, change).await {
                Ok(reply) => {
                    local.note_answer(target.replica, number);
                    return Ok(reply.stable);
                }
                Err(Some(Errno::EREMOTE)) => self.refresh_groups(),
                Err(Some(_)) if target.is_ahead(change.ask.object, number) => {
                    local.note_answer(target.replica, number);
                    return Ok(true);
                }
                Err(Some(Errno::EAGAIN)) => {}
                Err(Some(Errno::ENOSPC)) if change.op == op::COMMIT => return Err(Errno::ENOSPC),
                Err(Some(errno)) => self.expel(local, target, errno),
                Err(None) if self.cx.has_bug(Bug::SilentNotRemoved) => {
                    local.note_answer(target.replica, number);
                    return Ok(true);
                }
                Err(None) => target.give_up(),
            }
            self.cx.sleep(FORWARD_PAUSE).await;
        }
    }

    /// One try; an error number where there was an answer.
    async fn send_forward(
        &self,
        local: &Local,
        target: &Target,
        change: &Forward<'_>,
    ) -> Result<ObjectReply, Option<Errno>> {
        let fill = target.filling.as_ref().map_or(0, |filling| filling.number);
        let settled = local.settled_at(target.replica);
        let order = Order { settled, fill, ..change.order };
        let reply = self.tell_replica(local, target.replica, change, order).await?;
        ObjectReply::decode(&reply.body).map_err(|_| Some(Errno::EPROTO))
    }

    pub(super) async fn tell_replica(
        &self,
        local: &Local,
        to: Replica,
        change: &Forward<'_>,
        order: Order,
    ) -> Result<node::Reply, Option<Errno>> {
        let epoch = local.seat.borrow().group().epoch();
        let ask = ObjectRequest { disk: to.disk, group_epoch: epoch, ..change.ask };
        let mut trailer = change.trailer.to_vec();
        order.put(&mut trailer);
        let mut data = self.cx.pieces();
        data.extend(change.data.into_iter().flat_map(|frames| frames.iter().cloned()));
        let call = Call {
            to: to.server,
            channel: Channel::REPLICAS,
            op: change.op,
            once: true,
            deadline: Some(FORWARD_PATIENCE),
            body: &ask.encode(),
            data,
            trailer: &trailer,
            into: self.cx.pieces(),
        };
        match self.cx.call(call).await {
            Ok(reply) if reply.status == 0 => Ok(reply),
            Ok(reply) => Err(Some(Errno(reply.status))),
            Err(_) => Err(None),
        }
    }

    /// A replica cannot execute what this one has: it is in sync no more, or not filled any further.
    fn expel(self: &Rc<Self>, local: &Rc<Local>, target: &Target, errno: Errno) {
        self.report(format!("{}: {} does not keep up: {errno}", local.id, target.replica.server));
        target.give_up();
        let is_in_sync = local.group().is_in_sync(target.replica);
        if !is_in_sync || local.proposing.replace(true) {
            return;
        }
        let (service, local, replica) = (self.clone(), local.clone(), target.replica);
        self.cx.spawn("stripe proposal", async move {
            let _ = service.propose(&local, Change::Remove(replica)).await;
            local.proposing.set(false);
        });
    }

    /// A write's data is in memory here: its number.
    pub(crate) async fn write_data(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
        data: &[Frame],
        trailer: &[u8],
        client: u64,
    ) -> Result<u64, Errno> {
        let _changing = object.changes.acquire(1).await;
        self.check_write(object, ask)?;
        self.put(object, ask, data, trailer).await?;
        self.recent.borrow_mut().note(object.spot(), ask.range());
        object.state.borrow_mut().note_writer(client);
        Ok(self.next_order(object, ask.group))
    }
}

/// The checksums of a WRITE's data, in whole words.
fn sums_of<'a>(request: &'a Request, ask: &ObjectRequest) -> &'a [u8] {
    let bytes = trailer_bytes(piece_count(ask.offset, ask.bytes as usize));
    &request.trailer()[..bytes.min(request.trailer().len())]
}

fn with_stamp(mut sums: Vec<u8>, stamp: Stamp) -> Vec<u8> {
    stamp.put(&mut sums);
    sums
}
