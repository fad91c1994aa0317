//! The half of a replica that is filled: the steps by which it is made equal to its primary.

use super::fill::{FILL_PATIENCE, PAGE, blocks_of, step};
use crate::disk::errno;
use crate::groups::{Local, Order};
use crate::log::{Kind, Record};
use crate::object::Head;
use crate::objects::{Object, Spot};
use crate::order::History;
use crate::protocol::{Kept, ObjectReply, ObjectRequest, op, sum_at};
use crate::server::Inner;
use crate::sums::is_intact;
use endpoint::Frame;
use node::{Bug, Call, Request};
use std::rc::Rc;
use wire::codec::Decoder;
use wire::field::Field;
use wire::limits::BLOCK_BYTES;
use wire::{Channel, Errno, NodeId, ObjectId};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Inner {
    /// A step of a fill that is of no object; nothing where it is another request.
    pub(super) async fn fill_step(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &Request,
        ask: &ObjectRequest,
        order: &Order,
    ) -> Option<Result<(ObjectReply, Vec<u8>), Errno>> {
        let is_in_sync = local.group().is_in_sync(local.own);
        let done = |is_done| if is_done { Ok(()) } else { Err(Errno::ESTALE) };
        let is_its = order.fill == local.filled_by.get() && !is_in_sync;
        let told = match request.op {
            step::BEGIN => {
                let known = local.filled_by.get();
                let is_of_now = !is_in_sync && ask.offset == self.cx.incarnation();
                // It may come twice, and then changes nothing.
                if is_of_now && order.fill > known {
                    local.filled_by.set(order.fill);
                    local.tracks.begin_anew();
                    local.remembers.set(false);
                    local.verifier.set(order.verifier);
                }
                done(is_of_now && order.fill >= known)
            }
            step::WHOLE => {
                let is_whole = is_its && local.settle(&self.cx, ask.group_epoch, order.verifier);
                if is_whole {
                    local.note_order(ask.offset);
                }
                done(is_whole)
            }
            step::LIST if !is_its => done(false),
            step::LIST => return Some(self.list_for_fill(local, ask).await),
            _ => return None,
        };
        Some(told.map(|()| (ObjectReply::default(), Vec::new())))
    }

    async fn list_for_fill(
        &self,
        local: &Local,
        ask: &ObjectRequest,
    ) -> Result<(ObjectReply, Vec<u8>), Errno> {
        let after = Some(ask.object).filter(|object| *object != ObjectId::default());
        let listed = self.list_of(local.own.disk.into(), local.id, after, PAGE).await?;
        let mut trailer = Vec::new();
        listed.iter().for_each(|object| Kept { object: *object, disk: 0 }.put(&mut trailer));
        Ok((ObjectReply { length: listed.len() as u64, ..ObjectReply::default() }, trailer))
    }

    /// A step of a fill that changes an object; nothing where it is another change.
    pub(super) async fn fill_change(
        self: &Rc<Self>,
        local: &Rc<Local>,
        request: &Request,
        ask: &ObjectRequest,
        order: &Order,
    ) -> Option<Result<(), Errno>> {
        match request.op {
            step::DROP => {
                let removed = self.remove(ask).await.map(drop);
                self.objects.borrow_mut().forget_removal(Spot::of(ask));
                Some(removed)
            }
            step::HEAD => Some(self.take_head(local, ask).await),
            step::PIECE if self.cx.has_bug(Bug::FillLacksBlocks) => Some(Ok(())),
            step::PIECE | step::PIECE_AS_FAR => {
                let as_far = request.op == step::PIECE_AS_FAR;
                Some(self.take_piece(local, request.source, ask, as_far).await)
            }
            step::LOST => Some(self.lose_object(local, ask).await),
            step::END => {
                let history = History::take(&mut Decoder::new(request.trailer()));
                let history = history.map_err(|_| Errno::EPROTO);
                Some(match history {
                    Ok(history) => self.take_end(ask, history, order.number).await,
                    Err(errno) => Err(errno),
                })
            }
            _ => None,
        }
    }

    /// The object, as an empty one where it is damaged.
    async fn object_to_fill(
        self: &Rc<Self>,
        local: &Local,
        ask: &ObjectRequest,
    ) -> Result<Rc<Object>, Errno> {
        let found = self.object(ask).await;
        if self.is_damaged(ask) {
            local.remade.borrow_mut().insert(ask.object);
        }
        match found {
            Err(Errno::EIO | Errno::ESTALE) => {
                self.remove_durably(self.disk_at(ask.disk)?, ask, true).await?;
            }
            Ok(_) if self.is_damaged(ask) => drop(self.remove(ask).await?),
            found => return found,
        }
        self.forget_object(ask);
        self.object(ask).await
    }

    /// The object has the primary's head; what it had behind the primary's end is gone.
    async fn take_head(self: &Rc<Self>, local: &Local, ask: &ObjectRequest) -> Result<(), Errno> {
        let object = self.object_to_fill(local, ask).await?;
        let _gates = self.hold(&object).await?;
        let (exists, present) = {
            let state = object.state.borrow();
            (state.exists, state.head)
        };
        let head = Head {
            epoch: ask.epoch,
            truncations: ask.truncations,
            length: ask.offset,
            mtime: ask.mtime,
            shape: ask.shape,
            history: present.history,
            group: ask.group,
        };
        if exists && present.length > head.length {
            self.commit_all(&object).await?;
            self.cut(&object, head).await?;
        } else {
            self.cut_file(&object).await?;
            self.put_record(&object, Record::bare(Kind::Commit, object.id, head)).await?;
        }
        self.note_change(&object, head);
        object.state.borrow_mut().head.mtime = head.mtime;
        Ok(())
    }

    /// The object's bytes are the primary's: those whose checksums differ are read there. `as_far` as that can be.
    async fn take_piece(
        self: &Rc<Self>,
        local: &Local,
        source: NodeId,
        ask: &ObjectRequest,
        as_far: bool,
    ) -> Result<(), Errno> {
        let theirs = match self.ask_primary(local, source, step::SUMS, ask, 0).await {
            Err(Errno::EIO) if as_far => {
                return self.lose_blocks(local, ask, blocks_of(ask).collect()).await;
            }
            theirs => theirs?,
        };
        let mut lost = Vec::new();
        let ours = self.present_sums(ask).await?;
        let differs = |at: usize| sum_at(theirs.trailer(), at) != sum_at(&ours, at);
        let count = blocks_of(ask).count();
        let mut at = 0;
        while at < count {
            let end = (at..count).find(|at| !differs(*at)).unwrap_or(count);
            if at < end {
                let offset = ask.offset + at as u64 * BLOCK;
                let stop = (ask.offset + end as u64 * BLOCK).min(ask.range().end);
                let part = ObjectRequest { offset, bytes: (stop - offset) as u32, ..*ask };
                match self.take_blocks(local, source, &part).await {
                    Err(Errno::EIO) if as_far => {
                        lost.append(&mut self.take_each(local, source, &part).await?);
                    }
                    taken => taken?,
                }
            }
            at = end + 1;
        }
        if lost.is_empty() { Ok(()) } else { self.lose_blocks(local, ask, lost).await }
    }

    /// Blocks one by one; those that the primary cannot read.
    async fn take_each(
        self: &Rc<Self>,
        local: &Local,
        source: NodeId,
        ask: &ObjectRequest,
    ) -> Result<Vec<u64>, Errno> {
        let mut lost = Vec::new();
        for block in blocks_of(ask) {
            let offset = block * BLOCK;
            let bytes = (ask.range().end - offset).min(BLOCK) as u32;
            let one = ObjectRequest { offset, bytes, ..*ask };
            match self.take_blocks(local, source, &one).await {
                Err(Errno::EIO) => lost.push(block),
                taken => taken?,
            }
        }
        Ok(lost)
    }

    /// Blocks that are lost are an error here from now on, until they are written over.
    async fn lose_blocks(
        self: &Rc<Self>,
        local: &Local,
        ask: &ObjectRequest,
        lost: Vec<u64>,
    ) -> Result<(), Errno> {
        local.remade.borrow_mut().insert(ask.object);
        let object = self.object(ask).await?;
        self.put_in_place(self.disk(&object)).await?;
        let _gates = self.hold(&object).await?;
        self.commit_all(&object).await?;
        for block in &lost {
            self.give_up(&object, *block).await?;
            self.cache.borrow_mut().punch(object.key, *block..block + 1);
            object.state.borrow_mut().pending.remove(block);
        }
        let why = format!("blocks {lost:?} are lost: no copy of them can be read");
        self.damage(self.disk(&object), object.id, &why);
        Ok(())
    }

    /// An object that is lost is an error here from now on, until it is removed. Its file stays as it is.
    async fn lose_object(self: &Rc<Self>, local: &Local, ask: &ObjectRequest) -> Result<(), Errno> {
        local.remade.borrow_mut().insert(ask.object);
        let disk = self.disk_at(ask.disk)?;
        self.put_in_place(disk).await?;
        if let Ok(object) = self.object(ask).await {
            let _gates = object.gates().await;
            self.let_go(&object);
        }
        self.forget_object(ask);
        disk.index.note_lost(ask.object, local.id);
        disk.save_index().await.map_err(errno)?;
        self.damage(disk, ask.object, &"the copy that it was to be made from is damaged");
        Ok(())
    }

    async fn take_blocks(
        self: &Rc<Self>,
        local: &Local,
        source: NodeId,
        part: &ObjectRequest,
    ) -> Result<(), Errno> {
        let bytes = part.bytes as usize;
        let reply = self.ask_primary(local, source, op::READ, part, bytes).await?;
        let trailer = reply.trailer().to_vec();
        let (landed, mut frames) = (reply.bytes, reply.data);
        let mut data = self.cx.pieces::<Frame>();
        data.extend(frames.drain(..).map(|frame| frame.freeze()));
        if landed != bytes || !is_intact(&data, part.offset, bytes, &trailer) {
            return Err(Errno::EAGAIN);
        }
        let object = self.object(part).await?;
        self.wait_for_room(self.disk(&object), bytes).await?;
        let _changing = object.changes.acquire(1).await;
        self.check_write(&object, part)?;
        self.put(&object, part, &data, &trailer).await
    }

    async fn ask_primary(
        &self,
        local: &Local,
        source: NodeId,
        op: u16,
        ask: &ObjectRequest,
        bytes: usize,
    ) -> Result<node::Reply, Errno> {
        let into = match bytes {
            0 => self.cx.pieces(),
            _ => self.cx.piece(self.disks[usize::from(local.own.disk)].frame(bytes).await),
        };
        let call = Call {
            to: source,
            channel: Channel::FILLS,
            op,
            once: false,
            deadline: Some(FILL_PATIENCE),
            body: &ask.encode(),
            data: self.cx.pieces(),
            trailer: &[],
            into,
        };
        let reply = self.cx.call(call).await.map_err(|_| Errno::EAGAIN)?;
        match Errno(reply.status) {
            Errno(0) => Ok(reply),
            Errno::EIO => Err(Errno::EIO), // it is damaged there
            _ => Err(Errno::EAGAIN),
        }
    }

    /// All of the object is here: it is stable, with the primary's history.
    async fn take_end(
        self: &Rc<Self>,
        ask: &ObjectRequest,
        history: History,
        number: u64,
    ) -> Result<(), Errno> {
        let object = self.object(ask).await?;
        let _gates = self.hold(&object).await?;
        self.commit_all(&object).await?;
        let stable = object.state.borrow().stable.ok_or(Errno::ESTALE)?;
        let head = Head { history, mtime: ask.mtime, ..stable };
        self.put_record(&object, Record::bare(Kind::Commit, object.id, head)).await?;
        self.note_change(&object, head);
        object.state.borrow_mut().order = number;
        Ok(())
    }

    /// An object that was removed is opened anew when it is asked for.
    fn forget_object(&self, ask: &ObjectRequest) {
        let open = self.objects.borrow().get(Spot::of(ask)).cloned();
        if let Some(object) = open {
            self.objects.borrow_mut().dig_out(&object);
        }
        self.objects.borrow_mut().forget_removal(Spot::of(ask));
    }
}
