//! A damaged copy is repaired from another one, and nobody types a command.
//!
//! *Blocks* that do not fit their checksums, or cannot be read, are asked for at the group's other replicas: the bytes
//! that fit the checksum committed here are the right ones, whatever state that replica is in. Readers have them at
//! once, and they are written here once more. *Objects* that cannot be opened, or whose checksums cannot be read, are
//! made anew by a fill: a replica that has one leaves those in sync, if another one can take over ([`Seat`]), and takes
//! the head of a damaged object as that of a new one.
//!
//! Invariant: nothing of a damaged object is thrown away before this replica is out of sync.
//!
//! [`Seat`]: members::groups::Seat

use super::fill::{head_ask, step};
use crate::cache::{WindowPart, window_of};
use crate::groups::Local;
use crate::limits::UNREADABLE_SPAN;
use crate::object::group_of;
use crate::objects::{Object, Phase, Spot};
use crate::protocol::{ObjectRequest, set_sum, sum_at};
use crate::server::Inner;
use crate::sources::Slowest;
use endpoint::Frame;
use members::groups::Replica;
use node::{Answer, Call, Request};
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::checksum::block_crc;
use wire::limits::{BLOCK_BYTES, TRAILER_WORD_BYTES};
use wire::{Channel, Errno, ObjectId};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Inner {
    /// A block that does not fit its checksum here, or cannot be read, comes into memory from another replica, if one
    /// has it, and is written once more; whether that is so.
    pub(crate) async fn repair_block(self: &Rc<Self>, object: &Rc<Object>, block: u64) -> bool {
        let group = object.state.borrow().head.group;
        let Some(local) = self.groups.get(group) else { return false };
        let is_there = self.cache.borrow().sum(object.key, block).is_some();
        if !is_there && !self.copy_block(&local, object, block).await {
            return false;
        }
        self.count(|c| c.repaired_blocks += 1);
        let (service, object) = (self.clone(), object.clone());
        self.cx.spawn("stripe repair", async move {
            // A failure leaves the block as it was: damage that is found again.
            let _ = service.write_again(&object, block).await;
        });
        true
    }

    async fn copy_block(&self, local: &Local, object: &Rc<Object>, block: u64) -> bool {
        let group = local.group();
        let (synced, others): (Vec<Replica>, Vec<Replica>) = group
            .replicas()
            .iter()
            .filter(|other| **other != local.own)
            .partition(|other| group.is_in_sync(**other));
        for other in synced.into_iter().chain(others) {
            let Some(sum) = self.cache.borrow().committed_sum(object.key, block) else { break };
            if let Some(frame) = self.ask_for_copy(local, other, object, block, sum).await {
                let (index, at) = window_of(block);
                let part = WindowPart { index, blocks: at..at + 1 };
                let is_open = object.state.borrow().phase == Phase::Open;
                return is_open && self.keep(object, &part, frame).is_ok_and(|bad| bad.is_empty());
            }
        }
        false
    }

    /// The bytes of a block at another replica, if they fit this checksum.
    async fn ask_for_copy(
        &self,
        local: &Local,
        other: Replica,
        object: &Object,
        block: u64,
        sum: u32,
    ) -> Option<Frame> {
        let ask = ObjectRequest {
            object: object.id,
            offset: block * BLOCK,
            bytes: BLOCK_BYTES as u32,
            disk: other.disk,
            group: local.id,
            ..ObjectRequest::default()
        };
        let mut trailer = [0; TRAILER_WORD_BYTES];
        set_sum(&mut trailer, 0, sum);
        let call = Call {
            to: other.server,
            channel: Channel::FILLS,
            op: step::COPY,
            once: false,
            deadline: Some(UNREADABLE_SPAN),
            body: &ask.encode(),
            data: self.cx.pieces(),
            trailer: &trailer,
            into: self.cx.piece(self.disk(object).frame(BLOCK_BYTES).await),
        };
        let mut reply = self.cx.call(call).await.ok()?;
        let frame = reply.data.drain(..).next()?.freeze();
        let fits = reply.status == 0 && reply.bytes == BLOCK_BYTES && block_crc(&frame) == sum;
        fits.then_some(frame)
    }

    /// COPY: a block, if it fits the checksum that is asked for.
    pub(super) async fn tell_copy(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        match self.find_copy(&request, ask).await {
            Ok(frame) => {
                let mut data = self.cx.pieces::<Frame>();
                data.push(frame);
                self.cx.reply(request, Answer { data: &data, ..Answer::DONE });
            }
            Err(errno) => self.cx.reply(request, Answer::error(errno)),
        }
    }

    /// Not by a load: that one would ask for a copy in turn.
    async fn find_copy(
        self: &Rc<Self>,
        request: &Request,
        ask: &ObjectRequest,
    ) -> Result<Frame, Errno> {
        let sum = sum_at(request.trailer(), 0).ok_or(Errno::EPROTO)?;
        let local = self.groups.get(ask.group).ok_or(Errno::EREMOTE)?;
        let object = self.object(&ObjectRequest { disk: local.own.disk, ..*ask }).await?;
        let block = ask.offset / BLOCK;
        if block >= object.state.borrow().blocks() {
            return Err(Errno::ENOENT);
        }
        let known = self.cache.borrow().block(object.key, block);
        if let Some(known) = known.filter(|known| known.sum == sum) {
            return Ok(known.bytes);
        }
        self.need_group(&object, group_of(block)).await?;
        let frame = self.read_blocks(&object, block, 1, &Slowest::default()).await?.freeze();
        if block_crc(&frame) == sum { Ok(frame) } else { Err(Errno::ENOENT) }
    }

    /// Writes a block that is in memory and not to be written anyway: the log has it then, and the file later.
    async fn write_again(self: &Rc<Self>, object: &Rc<Object>, block: u64) -> Result<(), Errno> {
        self.wait_for_room(self.disk(object), BLOCK_BYTES).await?;
        let _changing = object.changes.acquire(1).await;
        let (known, committed) = {
            let cache = self.cache.borrow();
            (cache.block(object.key, block), cache.committed_sum(object.key, block))
        };
        let Some(known) = known.filter(|known| Some(known.sum) == committed) else { return Ok(()) };
        let Some(ask) = block_ask(object, block) else { return Ok(()) };
        let mut trailer = [0; TRAILER_WORD_BYTES];
        let frame = known.bytes.slice(0..ask.bytes as usize);
        set_sum(&mut trailer, 0, block_crc(&frame));
        self.put(object, &ask, &[frame], &trailer).await
    }

    /// A replica with damaged objects leaves those in sync, if another one can take over, and a fill makes them anew:
    /// each object once, since a disk that damages it again would go on to.
    pub(super) fn leave_damaged(&self, local: &Local) {
        let disk = usize::from(local.own.disk);
        if self.disks[disk].damaged.borrow().is_empty() || !local.group().is_in_sync(local.own) {
            return;
        }
        let remade = local.remade.borrow();
        if self.damaged_of(local).iter().any(|object| !remade.contains(object)) {
            local.seat.borrow_mut().handle_damage(self.cx.now());
        }
    }

    /// Damaged objects of a group here.
    fn damaged_of(&self, local: &Local) -> BTreeSet<ObjectId> {
        let disk = usize::from(local.own.disk);
        let all = self.disks[disk].damaged.borrow().clone();
        all.into_iter().filter(|id| self.group_of_object(disk, *id) == local.id).collect()
    }

    /// Whether an object that cannot be read here is about to be served by another replica: it is damaged, and this one
    /// leaves.
    pub(crate) fn is_awaited(&self, ask: &ObjectRequest) -> bool {
        let Some(local) = self.groups.get(ask.group) else { return false };
        let disk = &self.disks[usize::from(local.own.disk)];
        if local.remade.borrow().contains(&ask.object) || disk.check().is_err() {
            return false;
        }
        let is_known = disk.damaged.borrow().contains(&ask.object);
        if !is_known {
            self.damage(disk, ask.object, &"it cannot be read");
        }
        let mut seat = local.seat.borrow_mut();
        seat.handle_damage(self.cx.now());
        seat.is_answered(self.cx.now())
    }

    /// Whether an object is to be made anew by a fill.
    pub(super) fn is_damaged(&self, ask: &ObjectRequest) -> bool {
        let disk = self.disks.get(usize::from(ask.disk));
        disk.is_some_and(|disk| disk.damaged.borrow().contains(&Spot::of(ask).id))
    }
}

/// A request to write a block with what its object has of it.
fn block_ask(object: &Object, block: u64) -> Option<ObjectRequest> {
    let (state, Spot { id, disk }) = (object.state.borrow(), object.spot());
    let offset = block * BLOCK;
    let bytes = state.head.length.saturating_sub(offset).min(BLOCK) as u32;
    let group = state.head.group;
    let ask = ObjectRequest { object: id, disk, group, bytes, ..ObjectRequest::default() };
    let is_there = state.phase == Phase::Open && bytes > 0;
    is_there.then(|| ObjectRequest { offset, ..head_ask(ask, &state.head) })
}
