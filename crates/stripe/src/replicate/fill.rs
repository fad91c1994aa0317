//! A replica that lacks something is filled by its primary: made equal object by object, while changes go on.
//!
//! All changes are forwarded to it from the beginning. One object after the other the primary has it take the head,
//! then compare the checksums of each MiB with the primary's and read the blocks that differ, then commit. Each of
//! these steps is a change of the object: it holds the object's turn here and has a number, so that it is executed
//! there in the order of all changes. Where all objects are equal, all changes from then on are waited for, and the
//! replica is admitted.
//!
//! An object that the primary cannot read ends a fill, and the next begins. After some such fills the unreadable part
//! is taken for lost, and is an error in the other replica too: one bad sector must not keep a second copy from all
//! else.

use super::forward::Forward;
use crate::description::encode_some;
use crate::groups::{Filling, Local, Order, Target};
use crate::limits::TRANSFER_BYTES_MAX;
use crate::object::{Head, group_of};
use crate::objects::{Object, Phase};
use crate::protocol::{Kept, ObjectReply, ObjectRequest, op, set_sum, trailer_bytes};
use crate::server::Inner;
use members::groups::{Change, Replica};
use node::{Answer, Cx};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use wire::codec::Decoder;
use wire::field::{Field, encoded};
use wire::limits::BLOCK_BYTES;
use wire::{Channel, Errno, ObjectId, Time};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Operations of [`Channel::REPLICAS`]; of [`Channel::FILLS`] SUMS and COPY.
pub(super) mod step {
    /// A fill begins; `offset` is the incarnation that is filled.
    pub const BEGIN: u16 = 101;
    /// The object has this head: epoch, truncations, length in `offset`, mtime and shape.
    pub const HEAD: u16 = 102;
    /// `bytes` bytes from `offset` are to be as the primary's.
    pub const PIECE: u16 = 103;
    /// All of the object is; the trailer is its history.
    pub const END: u16 = 104;
    /// All objects are; `offset` is the latest change.
    pub const WHOLE: u16 = 105;
    /// Objects of the group there behind `object`, as many as a trailer has room for.
    pub const LIST: u16 = 106;
    /// There is no such object; another one may come.
    pub const DROP: u16 = 108;
    /// The checksums of `bytes` bytes from `offset`, in the trailer of the reply.
    pub const SUMS: u16 = 107;
    /// A block that fits the checksum in the trailer, of any replica.
    pub const COPY: u16 = 109;
    /// As PIECE; blocks that the primary cannot read are lost.
    pub const PIECE_AS_FAR: u16 = 110;
    /// The object cannot be read at the primary: it is lost.
    pub const LOST: u16 = 111;
    /// Of no fill, to the next primary: the latest change has the number in `offset`.
    pub const LATEST: u16 = 112;
}

/// Replicas that a server fills at once.
pub(super) const FILLS_MAX: u64 = 2;
/// Objects that are listed at once.
pub(super) const PAGE: usize = 100;
const _: () = assert!(PAGE * Kept::BYTES <= wire::limits::TRAILER_BYTES_MAX);
/// How long a call of a fill is waited for.
pub(super) const FILL_PATIENCE: Duration = Duration::from_secs(2);
/// How long changes that were under way when the last object was filled are waited for.
const JOIN_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// Between two fills that fail; doubled each time, so often at most.
const AGAIN_PAUSE: Duration = Duration::from_millis(50);
const AGAIN_DOUBLED_MAX: u32 = 6;
/// After so many fills that failed, some 50 s, what cannot be read is passed over: until then a disk may fail for a
/// moment, and a person may stop it.
const LOSS_FILLS: u32 = 20;

impl Inner {
    pub(super) fn spawn_fill(self: &Rc<Self>, local: &Rc<Local>, target: Replica, of: u64) {
        self.groups.fills.set(self.groups.fills.get() + 1);
        let (_, failed) = local.fill_again.get();
        let filling = Filling::new(target, local.next_fill(), failed >= LOSS_FILLS);
        let filling = Rc::new(filling);
        local.filling.replace(Some(filling.clone()));
        let (service, local) = (self.clone(), local.clone());
        self.cx.spawn("stripe fill", async move {
            if let Err(errno) = service.fill(&local, &filling, of).await {
                service.report(format!(
                    "{}: {} is not brought up to date: {errno}",
                    local.id, filling.target.server
                ));
                local.note_fill_failed(&service.cx);
            } else {
                local.fill_again.set((Time::ZERO, 0));
            }
            filling.end();
            local.filling.replace(None);
            local.moved.notify_all();
            service.groups.fills.set(service.groups.fills.get() - 1);
        });
    }

    async fn fill(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
        of: u64,
    ) -> Result<(), Errno> {
        let begin = ObjectRequest { offset: of, ..self.fill_ask(local, ObjectId::default()) };
        self.tell(local, filling, step::BEGIN, begin).await?;
        // What is in memory only is in no list.
        self.flush_disk(&self.disks[usize::from(local.own.disk)]).await?;
        self.fill_objects(local, filling).await?;
        self.admit_filled(local, filling).await
    }

    pub(super) fn fill_ask(&self, local: &Local, object: ObjectId) -> ObjectRequest {
        ObjectRequest { object, group: local.id, disk: local.own.disk, ..ObjectRequest::default() }
    }

    /// Tells the replica something that is of no object, until it answers.
    async fn tell(
        &self,
        local: &Local,
        filling: &Filling,
        op: u16,
        ask: ObjectRequest,
    ) -> Result<node::Reply, Errno> {
        let until = self.cx.now() + FILL_PATIENCE;
        loop {
            let order =
                Order { verifier: local.verifier.get(), fill: filling.number, ..Order::default() };
            let change = Forward { op, ask, data: None, trailer: &[], order };
            match self.tell_replica(local, filling.target, &change, order).await {
                Ok(reply) => return Ok(reply),
                Err(Some(Errno::EREMOTE)) => self.refresh_groups(),
                Err(Some(Errno::EAGAIN) | None) => {}
                Err(Some(errno)) => return Err(errno),
            }
            if !filling.is_on() || self.cx.now() >= until {
                return Err(Errno::ETIMEDOUT);
            }
            self.cx.sleep(PAUSE).await;
        }
    }

    async fn fill_objects(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
    ) -> Result<(), Errno> {
        let mut after = None;
        loop {
            let here = self.list_of(local.own.disk.into(), local.id, after, PAGE).await?;
            let there = self.list_there(local, filling, after).await?;
            let full = |page: &[ObjectId]| page.last().copied().filter(|_| page.len() == PAGE);
            let bound = full(&here).into_iter().chain(full(&there)).min();
            let all: BTreeSet<ObjectId> = here.into_iter().chain(there).collect();
            for object in all.into_iter().filter(|id| bound.is_none_or(|bound| *id <= bound)) {
                filling.advance(object);
                self.fill_object(local, filling, object).await?;
            }
            after = bound;
            if after.is_none() {
                break;
            }
        }
        filling.advance_to_end();
        loop {
            let Some(object) = filling.next_missed() else { return Ok(()) };
            self.fill_object(local, filling, object).await?;
        }
    }

    async fn list_there(
        &self,
        local: &Local,
        filling: &Filling,
        after: Option<ObjectId>,
    ) -> Result<Vec<ObjectId>, Errno> {
        let ask = self.fill_ask(local, after.unwrap_or_default());
        let reply = self.tell(local, filling, step::LIST, ask).await?;
        let count = ObjectReply::decode(&reply.body).map_err(|_| Errno::EPROTO)?.length as usize;
        let rows = reply.trailer().chunks_exact(Kept::BYTES).take(count);
        let decoded = rows.map(|row| Kept::take(&mut Decoder::new(row)).map(|kept| kept.object));
        decoded.collect::<Result<_, _>>().map_err(|_| Errno::EPROTO)
    }

    /// Makes one object equal there.
    async fn fill_object(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
        id: ObjectId,
    ) -> Result<(), Errno> {
        let ask = self.fill_ask(local, id);
        filling.take_in_hand(id);
        let piece = if filling.passes_damage { step::PIECE_AS_FAR } else { step::PIECE };
        let mut at = 0;
        let begun = self.fill_step_of(local, filling, &ask, |head| {
            Some((step::HEAD, head_ask(ask, head), Vec::new()))
        });
        if !begun.await? {
            return Ok(());
        }
        loop {
            let mut is_end = false;
            let is_there = self.fill_step_of(local, filling, &ask, |head| {
                is_end = at >= head.length;
                let bytes = (head.length.saturating_sub(at)).min(TRANSFER_BYTES_MAX as u64) as u32;
                let ask = ObjectRequest { offset: at, bytes, ..head_ask(ask, head) };
                (!is_end).then_some((piece, ask, Vec::new()))
            });
            if !is_there.await? {
                return Ok(());
            }
            if is_end {
                break;
            }
            at += TRANSFER_BYTES_MAX as u64;
        }
        let ended = self.fill_step_of(local, filling, &ask, |head| {
            Some((step::END, head_ask(ask, head), encoded(&head.history)))
        });
        ended.await?;
        self.fill_description(local, filling, &ask).await
    }

    /// One step of an object, decided by its head while it stands still; whether there is such an object. Where there
    /// is none, there is none there either. Where it cannot be read, EIO, or it is lost: older bytes must not pass for
    /// it.
    async fn fill_step_of(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
        ask: &ObjectRequest,
        step: impl FnOnce(&Head) -> Option<(u16, ObjectRequest, Vec<u8>)>,
    ) -> Result<bool, Errno> {
        let track = local.tracks.get(ask.object);
        let _turn = track.turn.acquire(1).await;
        let object = match self.object(ask).await {
            Err(Errno::EIO) => {
                self.report(format!("{}: {} is damaged here", local.id, ask.object));
                filling.passes_damage.then_some(Err(step::LOST)).ok_or(Errno::EIO)?
            }
            Err(Errno::ESTALE) => Err(step::DROP),
            object => Ok(object?),
        };
        let head = object.and_then(|object| self.present_head(&object).ok_or(step::DROP));
        let step = match &head {
            Ok(head) => step(head),
            Err(gone) => Some((*gone, *ask, Vec::new())),
        };
        if let Some((op, ask, trailer)) = step {
            let order = local.order_for(&track, filling.target);
            filling.note_step(order.number);
            let change = Forward { op, ask, data: None, trailer: &trailer, order };
            self.forward_step(local, filling, &change).await?;
        }
        Ok(head.is_ok())
    }

    /// The head of an object with all that was written to it; nothing of one that is not there.
    pub(super) fn present_head(&self, object: &Object) -> Option<Head> {
        let state = object.state.borrow();
        let is_there = state.exists && state.phase == Phase::Open;
        is_there.then(|| Head { history: self.history_now(&state), ..state.head })
    }

    async fn forward_step(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
        change: &Forward<'_>,
    ) -> Result<(), Errno> {
        let current = local.filling.borrow().clone().filter(|it| it.number == filling.number);
        let filling = current.ok_or(Errno::ETIMEDOUT)?;
        let target = Target { replica: filling.target, filling: Some(filling.clone()) };
        self.replicate(local, vec![target], change).await?;
        if filling.is_on() { Ok(()) } else { Err(Errno::ETIMEDOUT) }
    }

    async fn fill_description(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
        ask: &ObjectRequest,
    ) -> Result<(), Errno> {
        let Ok(object) = self.object(ask).await else { return Ok(()) };
        let description = object.state.borrow().description.clone();
        let Some(description) = description else { return Ok(()) };
        let (trailer, _) = encode_some(&[(ask.object, (*description).clone())]);
        let order = Order { verifier: local.verifier.get(), ..Order::default() };
        let ask = ObjectRequest { bytes: 1, ..*ask };
        let change = Forward { op: op::DESCRIBE, ask, data: None, trailer: &trailer, order };
        self.forward_step(local, filling, &change).await
    }

    /// All objects are equal: all changes from now on are waited for, and the replica is proposed to be in sync.
    async fn admit_filled(
        self: &Rc<Self>,
        local: &Rc<Local>,
        filling: &Filling,
    ) -> Result<(), Errno> {
        let whole = ObjectRequest {
            offset: local.orders.get(),
            ..self.fill_ask(local, ObjectId::default())
        };
        self.tell(local, filling, step::WHOLE, whole).await?;
        if !filling.join() {
            return Err(Errno::ETIMEDOUT);
        }
        if let Err(errno) = self.wait_for_taken(local, filling).await {
            filling.end(); // nothing was proposed
            return Err(errno);
        }
        loop {
            match self.propose(local, Change::Admit(filling.target)).await {
                Ok(()) => return Ok(()),
                _ if local.group().is_in_sync(filling.target) => return Ok(()),
                // Refused: with the epoch that was meant it is not admitted any more.
                Err(Errno::ESTALE | Errno::EPERM | Errno::EINVAL) => return Err(Errno::ESTALE),
                Err(_) => self.cx.sleep(PAUSE).await,
            }
        }
    }

    async fn wait_for_taken(&self, local: &Local, filling: &Filling) -> Result<(), Errno> {
        let number = local.orders.get();
        let is_taken = || local.settled_at(filling.target) >= number;
        local
            .wait_for(&self.cx, JOIN_PATIENCE, is_taken)
            .await
            .then_some(())
            .ok_or(Errno::ETIMEDOUT)
    }

    pub(super) async fn serve_fill_reads(self: Rc<Self>) {
        loop {
            let request = self.cx.accept(Channel::FILLS).await;
            let asked = ObjectRequest::decode(&request.body).map_err(|_| Errno::EPROTO);
            if let (step::COPY, Ok(ask)) = (request.op, asked) {
                self.tell_copy(request, &ask).await;
                continue;
            }
            match asked.and_then(|ask| self.admit(ask)) {
                Ok((_, ask)) if request.op == op::READ => {
                    if let Some(pending) = self.read_at_once(request, &ask) {
                        self.read(pending, &ask).await;
                    }
                }
                Ok((_, ask)) => match self.present_sums(&ask).await {
                    Ok(sums) => self.cx.reply(request, Answer { trailer: &sums, ..Answer::DONE }),
                    Err(errno) => self.cx.reply(request, Answer::error(errno)),
                },
                Err(errno) => self.cx.reply(request, Answer::error(errno)),
            }
        }
    }

    /// The checksums of an object's blocks as they are now, in memory or on the disk, as a trailer.
    pub(super) async fn present_sums(
        self: &Rc<Self>,
        ask: &ObjectRequest,
    ) -> Result<Vec<u8>, Errno> {
        let object = self.object(ask).await?;
        let blocks = blocks_of(ask);
        let mut trailer = vec![0; trailer_bytes((blocks.end - blocks.start) as usize)];
        for (at, block) in blocks.enumerate() {
            self.need_group(&object, group_of(block)).await?;
            set_sum(&mut trailer, at, self.present_sum(&object, block));
        }
        Ok(trailer)
    }

    fn present_sum(&self, object: &Object, block: u64) -> u32 {
        let cache = self.cache.borrow();
        let sum = cache.sum(object.key, block);
        sum.or_else(|| cache.committed_sum(object.key, block))
            .unwrap_or_else(crate::object::zero_sum)
    }
}

impl Local {
    /// A fill has failed: the next one waits, the longer the more have.
    fn note_fill_failed(&self, cx: &Cx) {
        let (_, failed) = self.fill_again.get();
        let pause = AGAIN_PAUSE * (1 << failed.min(AGAIN_DOUBLED_MAX));
        self.fill_again.set((cx.now() + pause, failed + 1));
    }
}

/// A request with what a head has.
pub(super) fn head_ask(ask: ObjectRequest, head: &Head) -> ObjectRequest {
    ObjectRequest {
        epoch: head.epoch,
        truncations: head.truncations,
        offset: head.length,
        mtime: head.mtime,
        shape: head.shape,
        ..ask
    }
}

pub(super) fn blocks_of(ask: &ObjectRequest) -> Range<u64> {
    ask.offset / BLOCK..ask.range().end.div_ceil(BLOCK)
}
