//! WRITE, TRUNCATE, REMOVE, SET_LAYOUT: what changes an object.

use crate::cache::Block;
use crate::disk::{Disk, errno};
use crate::limits::*;
use crate::log::{Kind, Record};
use crate::object::Head;
use crate::objects::{Object, Phase, Spot, State};
use crate::order::{Stamp, Verdict, Verifiers, joined, judge};
use crate::protocol::{Kept, ObjectReply, ObjectRequest, piece_count, set_sum, trailer_bytes};
use crate::server::Inner;
use crate::sums::{is_intact, sum_pieces};
use endpoint::Frame;
use node::rings::{DiskError, DiskOp};
use node::{Answer, Bug, Pieces, Request};
use std::ops::Range;
use std::rc::Rc;
use wire::codec::{Decoder, Short};
use wire::field::Field;
use wire::limits::{BLOCK_BYTES, TRAILER_WORD_BYTES};
use wire::{Errno, ObjectId};

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Inner {
    /// WRITE. A stable one is executed, then committed; a failure to commit is no failure of the write. The client
    /// keeps it as an unstable one and learns the reason from the COMMIT that is needed then.
    pub async fn write(
        self: &Rc<Self>,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let data = self.take_data(request, ask)?;
        let object = self.object(ask).await?;
        self.wait_for_room(self.disk(&object), ask.bytes as usize).await?;
        let order = self.write_data(&object, ask, &data, request.trailer(), request.client).await?;
        let stable = ask.stable && self.is_committed(&object, ask).await;
        Ok(ObjectReply { order, stable, ..self.describe(&object) })
    }

    pub async fn is_committed(self: &Rc<Self>, object: &Rc<Object>, ask: &ObjectRequest) -> bool {
        self.cx.has_bug(Bug::StableNotCommitted) || self.commit_as(object, ask).await.is_ok()
    }

    /// REWRITE: where the order of writes says so.
    pub async fn rewrite(
        self: &Rc<Self>,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let data = self.take_data(request, ask)?;
        let stamp = stamp_behind(request, ask)?;
        let object = self.object(ask).await?;
        self.wait_for_room(self.disk(&object), ask.bytes as usize).await?;
        let _changing = object.changes.acquire(1).await;
        self.check_write(&object, ask)?;
        let Some(parts) = self.lost_parts(&object, ask, stamp, request.client)? else {
            return Ok(self.describe(&object));
        };
        let all = parts == [ask.range()];
        for part in parts {
            let (ask, data, sums) = self.part(ask, &data, &part);
            self.put_again(&object, &ask, &data, &sums, stamp, request.client).await?;
        }
        // A write that was done in part keeps its stamp: as a new write it would be newer than what it gave way to.
        let order = if all { self.next_order(&object, ask.group) } else { 0 };
        Ok(ObjectReply { order, ..self.describe(&object) })
    }

    /// The parts of a retransmitted write that were lost and have nothing newer in their place; nothing where the write
    /// is here. EIO where that is not known any more.
    pub fn lost_parts(
        &self,
        object: &Object,
        ask: &ObjectRequest,
        stamp: Stamp,
        client: u64,
    ) -> Result<Option<Vec<Range<u64>>>, Errno> {
        let below = match self.judge(object, stamp, client) {
            Verdict::Kept => return Ok(None),
            Verdict::Unknown => return Err(Errno::EIO),
            Verdict::Lost { below } => below,
        };
        let asked = ask.range();
        let lost = asked.start..asked.end.min(below).max(asked.start);
        let incarnations = self.disk(object).incarnations.borrow();
        Ok(Some(self.recent.borrow().older(&incarnations, object.spot(), lost, stamp)))
    }

    /// Puts a part of a retransmitted write into the cache. The caller holds the gate of changes.
    async fn put_again(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
        data: &[Frame],
        trailer: &[u8],
        stamp: Stamp,
        client: u64,
    ) -> Result<(), Errno> {
        self.put(object, ask, data, trailer).await?;
        let incarnations = self.disk(object).incarnations.borrow();
        self.recent.borrow_mut().note_again(&incarnations, object.spot(), ask.range(), stamp);
        object.state.borrow_mut().note_writer(client);
        Ok(())
    }

    /// The same, of a replica of a group.
    pub async fn rewrite_part(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
        data: &[Frame],
        trailer: &[u8],
        stamp: Stamp,
        client: u64,
    ) -> Result<(), Errno> {
        let _changing = object.changes.acquire(1).await;
        self.check_write(object, ask)?;
        self.put_again(object, ask, data, trailer, stamp, client).await
    }

    /// The data of a request, verified.
    pub fn take_data(
        &self,
        request: &mut Request,
        ask: &ObjectRequest,
    ) -> Result<Pieces<Frame>, Errno> {
        let bytes = ask.bytes as usize;
        if bytes != request.bytes || bytes > TRANSFER_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        if ask.offset.saturating_add(bytes as u64) > OBJECT_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let mut data = self.cx.pieces::<Frame>();
        data.extend(request.data.drain(..).map(|frame| frame.freeze()));
        let sums = piece_count(ask.offset, bytes) * 4;
        if request.trailer().len() < sums || !is_intact(&data, ask.offset, bytes, request.trailer())
        {
            self.count(|c| c.damaged_writes += 1);
            return Err(Errno::EPROTO);
        }
        Ok(data)
    }

    fn judge(&self, object: &Object, stamp: Stamp, client: u64) -> Verdict {
        if self.cx.has_bug(Bug::WriteOrderIgnored) {
            return Verdict::Lost { below: u64::MAX };
        }
        let (state, disk) = (object.state.borrow(), self.disk(object).incarnations.borrow());
        let (recent, spot) = (self.recent.borrow(), object.spot());
        let history = state.stable.map_or_else(Default::default, |head| head.history);
        let writer = joined(state.writer, history.writer_in(self.verifier_of(&state)));
        if state.head.group.is_listed() {
            let (now, remembers) = self.memory_of(state.head.group);
            let since = remembers.then_some(now as usize);
            return judge(&Verifiers(now), &history, stamp, client, writer, since);
        }
        let history = if recent.has_moved(spot) { history.ranked() } else { history };
        let (incarnations, since) = (recent.incarnations(&disk, spot), recent.since(&disk, spot));
        judge(incarnations, &history, stamp, client, writer, since)
    }

    /// The request, data and checksums of a part of a write.
    pub fn part(
        &self,
        ask: &ObjectRequest,
        data: &[Frame],
        part: &Range<u64>,
    ) -> (ObjectRequest, Pieces<Frame>, Vec<u8>) {
        let (mut skip, mut left) = ((part.start - ask.offset) as usize, part.end - part.start);
        let mut slices = self.cx.pieces::<Frame>();
        for frame in data {
            let start = skip.min(frame.len());
            let count = left.min((frame.len() - start) as u64) as usize;
            slices.extend((count > 0).then(|| frame.slice(start..start + count)));
            (skip, left) = (skip - start, left - count as u64);
        }
        let mut sums = Vec::new();
        sum_pieces(part.start, &slices, &mut sums);
        let mut trailer = vec![0; trailer_bytes(sums.len())];
        sums.iter().enumerate().for_each(|(index, sum)| set_sum(&mut trailer, index, *sum));
        let bytes = (part.end - part.start) as u32;
        (ObjectRequest { offset: part.start, bytes, ..*ask }, slices, trailer)
    }

    /// Puts verified data into the cache. The caller holds the gate of changes.
    pub async fn put(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
        data: &[Frame],
        trailer: &[u8],
    ) -> Result<(), Errno> {
        self.cut_file(object).await?;
        let edges = self.bring_in_edges(object, ask).await?;
        self.check_write(object, ask)?;
        if is_uncut(object, ask) && !self.cx.has_bug(Bug::TruncationNotAwaited) {
            return Err(Errno::EAGAIN);
        }
        let bytes = ask.bytes as usize;
        let mut cache = self.cache.borrow_mut();
        let written = cache.write(object.key, ask.offset, bytes, data, trailer, edges);
        drop(cache);
        written.map_err(|_| Errno::EAGAIN)?;
        self.note_write(object, ask);
        self.count(|c| {
            c.writes += 1;
            c.written_bytes += bytes as u64;
        });
        Ok(())
    }

    /// Waits while too much is dirty on the disk.
    pub async fn wait_for_room(&self, disk: &Disk, bytes: usize) -> Result<(), Errno> {
        self.wait_for_carriers(bytes).await;
        loop {
            let room = disk.room.wait();
            disk.check()?;
            let dirty = self.cache.borrow().dirty_bytes(disk.id.0 as usize);
            if dirty == 0 || dirty + bytes <= self.config.dirty_bytes_max {
                return Ok(());
            }
            if let Some(errno) = disk.flush_error.get() {
                return Err(errno);
            }
            disk.work.notify_all();
            room.await;
        }
    }

    pub fn check_write(&self, object: &Object, ask: &ObjectRequest) -> Result<(), Errno> {
        let state = object.state.borrow();
        let stale = self.is_old_layout(&state, ask) || self.is_old_truncation(&state, ask);
        if state.phase != Phase::Open || self.is_buried(object.spot()) || stale {
            return Err(Errno::ESTALE);
        }
        Ok(())
    }

    /// Whether the caller goes by another layout than the object has.
    pub fn is_old_layout(&self, state: &State, ask: &ObjectRequest) -> bool {
        let other = state.exists && state.head.epoch != ask.epoch;
        other && !self.cx.has_bug(Bug::StaleEpochAccepted)
    }

    /// Whether the object was truncated since the caller heard of it.
    fn is_old_truncation(&self, state: &State, ask: &ObjectRequest) -> bool {
        let older = state.exists && ask.truncations < state.head.truncations;
        older && !self.cx.has_bug(Bug::StaleTruncationAccepted)
    }

    /// Whether the object was removed not long ago.
    fn is_buried(&self, spot: Spot) -> bool {
        let buried = self.objects.borrow().is_buried(spot, self.cx.now());
        buried && !self.cx.has_bug(Bug::TombstoneIgnored)
    }

    /// The first and last block, where the write leaves some of their bytes as they are. They do not change while the
    /// gate of changes is held, but the cache may have no room for both.
    async fn bring_in_edges(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
    ) -> Result<Vec<Block>, Errno> {
        let (end, mut edges) = (ask.offset + u64::from(ask.bytes), Vec::new());
        if ask.bytes == 0 || self.cx.has_bug(Bug::PartialBlockReplaced) {
            return Ok(edges);
        }
        let (first, last) = (ask.offset / BLOCK, (end - 1) / BLOCK);
        let length = object.state.borrow().head.length;
        for block in [Some(first), Some(last).filter(|last| *last > first)].into_iter().flatten() {
            let (start, stop) = (block * BLOCK, ((block + 1) * BLOCK).min(length));
            if start < length && (ask.offset > start || end < stop) {
                edges.push(self.bring_in_block(object, block).await?);
            }
        }
        Ok(edges)
    }

    fn note_write(&self, object: &Rc<Object>, ask: &ObjectRequest) {
        let mut state = object.state.borrow_mut();
        if !state.exists {
            state.exists = true;
            let (epoch, truncations, group) = (ask.epoch, ask.truncations, ask.group);
            state.head = Head { epoch, truncations, group, ..Head::default() };
        }
        state.head.shape = ask.shape;
        state.head.length = state.head.length.max(ask.offset + u64::from(ask.bytes));
        state.head.mtime = state.head.mtime.max(ask.mtime);
        state.writes += 1;
        self.list_dirty(object, &mut state);
    }

    /// Puts the object on its disk's list for the flusher.
    pub fn list_dirty(&self, object: &Rc<Object>, state: &mut State) {
        if !std::mem::replace(&mut state.listed_dirty, true) {
            let disk = self.disk(object);
            state.dirty_since = self.cx.now();
            disk.dirty.borrow_mut().push_back(object.clone());
            disk.work.notify_all();
        }
    }

    /// TRUNCATE. With a generation that is known already it was executed before, or the object was made since by one
    /// who knew of it: there is nothing to cut off, but it may be too short.
    pub async fn truncate(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        if ask.offset > OBJECT_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let object = self.object(ask).await?;
        let _gates = self.hold(&object).await?;
        self.check_write(&object, ask)?;
        if !is_truncated(&object, ask) {
            // Writes before the cut come before it in the order of writes: they are stable with it.
            self.commit_all(&object).await?;
        }
        match is_truncated(&object, ask) {
            true => {
                let stable = object.state.borrow().stable.expect("an object with a generation");
                let before = Head { shape: ask.shape, ..stable };
                self.extend(&object, before, ask.offset).await?;
            }
            false => self.truncate_alone(&object, ask).await?,
        }
        Ok(self.describe(&object))
    }

    /// Makes an object with this head at least so long. The caller holds both gates.
    pub async fn extend(
        self: &Rc<Self>,
        object: &Rc<Object>,
        before: Head,
        length: u64,
    ) -> Result<(), Errno> {
        if length <= before.length {
            return Ok(());
        }
        self.cut_file(object).await?;
        let head = Head { length, ..before };
        self.put_record(object, Record::bare(Kind::Commit, object.id, head)).await?;
        self.note_change(object, head);
        Ok(())
    }

    async fn truncate_alone(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
    ) -> Result<(), Errno> {
        let (head, shrinks) = {
            let state = object.state.borrow();
            let epoch = if state.exists { state.head.epoch } else { ask.epoch };
            let (truncations, length) = (ask.truncations, ask.offset);
            let mtime = state.head.mtime.max(ask.mtime);
            let history = self.history_now(&state).cut(length);
            let (shape, group) = (ask.shape, state.head.group);
            (
                Head { epoch, truncations, length, mtime, shape, history, group },
                length < state.head.length,
            )
        };
        match shrinks {
            true => self.cut(object, head).await?,
            false => {
                self.cut_file(object).await?;
                self.put_record(object, Record::bare(Kind::Cut, object.id, head)).await?;
            }
        }
        self.note_change(object, head);
        self.recent.borrow_mut().note(object.spot(), head.length..u64::MAX);
        Ok(())
    }

    /// SET_LAYOUT.
    pub async fn set_layout(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await?;
        let _gates = self.hold(&object).await?;
        let buried = self.is_buried(object.spot());
        let (stable, epoch) = {
            let state = object.state.borrow();
            if state.phase != Phase::Open || buried {
                return Err(Errno::ESTALE);
            }
            (state.stable, if state.exists { state.head.epoch } else { 0 })
        };
        if ask.epoch < epoch {
            return Err(Errno::ESTALE);
        }
        if stable.is_some_and(|head| head.epoch == ask.epoch) {
            return Ok(self.describe(&object));
        }
        let (truncations, group) = (ask.truncations, ask.group);
        let before = stable.unwrap_or(Head { truncations, group, ..Head::default() });
        let head = Head { epoch: ask.epoch, shape: ask.shape, ..before };
        self.put_record(&object, Record::bare(Kind::Commit, object.id, head)).await?;
        self.note_change(&object, head);
        Ok(self.describe(&object))
    }

    /// Makes a record without blocks durable.
    pub async fn put_record(&self, object: &Rc<Object>, record: Record) -> Result<(), Errno> {
        let disk = self.disk(object);
        disk.unapplied.borrow_mut().insert(object.id, object.clone());
        disk.journal.append(record, Vec::new()).await.map(drop).map_err(errno)
    }

    /// The object is stable with this head, and readers see its epoch, generation and, at least, length.
    pub fn note_change(&self, object: &Object, head: Head) {
        let mut state = object.state.borrow_mut();
        let unstable = if state.exists { state.head.length } else { 0 };
        state.exists = true;
        state.stable = Some(head);
        state.head = Head {
            length: head.length.max(unstable),
            mtime: state.head.mtime.max(head.mtime),
            ..head
        };
    }

    /// Removes one object.
    pub async fn remove(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        if self.is_buried(Spot::of(ask)) {
            return Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() });
        }
        if self.is_nowhere(Spot::of(ask))? {
            // Most columns of a small file: the disk need not be asked for what was never there.
            self.objects.borrow_mut().bury(Spot::of(ask), self.cx.now());
            return Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() });
        }
        let object = match self.object(ask).await {
            // An object that cannot be read can still be removed.
            Err(Errno::EIO) => return self.remove_unreadable(ask).await,
            other => other?,
        };
        let _gates = object.gates().await;
        if object.state.borrow().phase == Phase::Removed {
            return Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() });
        }
        let (exists, in_place) = {
            let state = object.state.borrow();
            (state.exists, state.in_place || state.uncut.is_some())
        };
        let recorded = self.disk(&object).index.get(object.id).is_some();
        if !exists && !in_place && !recorded {
            // Neither the log nor the disk has anything of it: most columns of a small file. That it is refused for a
            // while is all there is to do, and a restart forgets that of any removal.
            self.let_go(&object);
            return Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() });
        }
        // The checkpoint then waits for us before it drops the log with the removal in it.
        self.disk(&object).unapplied.borrow_mut().insert(object.id, object.clone());
        self.remove_durably(self.disk(&object), ask, in_place).await?;
        self.let_go(&object);
        Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() })
    }

    /// REMOVE: what waits for the log at the same time shares its writes.
    pub async fn remove_all(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        let Ok(objects) = decode_all(request.trailer(), ask) else {
            return self.refuse(request, ask, Errno::EPROTO);
        };
        let asks = objects.into_iter().map(|object| ObjectRequest { object, ..*ask });
        let removals = asks.map(async |ask| match self.remove(&ask).await {
            Ok(_) | Err(Errno::ENOENT) => 0,
            Err(errno) => errno.0,
        });
        let statuses = node::all(removals).await;
        self.tell_each(request, &statuses);
    }

    /// Answers a request about several objects: 0 or an error number of each.
    pub fn tell_each(&self, request: Request, statuses: &[u16]) {
        let mut trailer: Vec<u8> =
            statuses.iter().flat_map(|status| status.to_le_bytes()).collect();
        trailer.resize(trailer.len().next_multiple_of(TRAILER_WORD_BYTES), 0);
        let body = ObjectReply { verifier: self.verifier, ..ObjectReply::default() }.encode();
        self.cx.reply(request, Answer { trailer: &trailer, ..Answer::body(&body) });
    }

    async fn remove_unreadable(&self, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let disk = self.disk_at(ask.disk)?;
        self.remove_durably(disk, ask, true).await?;
        disk.sync_names().await.map_err(errno)?;
        Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() })
    }

    /// The removal is in the log before the file goes; on a full disk the file goes first, to make room for it. A
    /// removal that the log does not take for another reason leaves the object whole: a client that was refused may
    /// retry, and until then there is no false damage.
    pub async fn remove_durably(
        &self,
        disk: &Disk,
        ask: &ObjectRequest,
        in_place: bool,
    ) -> Result<(), Errno> {
        let record = || Record::bare(Kind::Remove, ask.object, Head::default());
        let file = node::rings::DiskFile::Object(ask.object);
        let logged = disk.journal.append(record(), Vec::new()).await.map(drop);
        if in_place && matches!(logged, Ok(()) | Err(DiskError::NoSpace)) {
            disk.simple(|| DiskOp::Remove { file }).await.map_err(errno)?;
        }
        match logged {
            Err(DiskError::NoSpace) => {
                disk.journal.append(record(), Vec::new()).await.map(drop).map_err(errno)?
            }
            logged => logged.map_err(errno)?,
        }
        disk.index.note_removed(ask.object);
        disk.damaged.borrow_mut().remove(&ask.object);
        Ok(())
    }
}

/// The objects that a trailer names, all on one disk or in one group.
pub fn decode_all(trailer: &[u8], ask: &ObjectRequest) -> Result<Vec<ObjectId>, Short> {
    let each = trailer.chunks_exact(Kept::BYTES);
    let decoded = each.map(|name| Kept::take(&mut Decoder::new(name)));
    let kept: Vec<Kept> = decoded.collect::<Result<_, _>>()?;
    let on_it = ask.group.is_listed() || kept.iter().all(|kept| kept.disk == ask.disk);
    if on_it { Ok(kept.into_iter().map(|kept| kept.object).collect()) } else { Err(Short) }
}

/// Whether the object has the generation of this truncation, durably.
fn is_truncated(object: &Object, ask: &ObjectRequest) -> bool {
    object.state.borrow().stable.is_some_and(|stable| stable.truncations == ask.truncations)
}

/// Whether the caller knows of a truncation that this object has yet to see. Its writes wait for that: the object would
/// have the new generation, and the truncation be taken for one that was executed.
pub fn is_uncut(object: &Object, ask: &ObjectRequest) -> bool {
    let state = object.state.borrow();
    state.exists && ask.truncations > state.head.truncations
}

/// The stamp that a retransmitted write has behind its checksums.
pub fn stamp_behind(request: &Request, ask: &ObjectRequest) -> Result<Stamp, Errno> {
    let sums = trailer_bytes(piece_count(ask.offset, ask.bytes as usize));
    let stamp = request.trailer().get(sums..).ok_or(Errno::EPROTO)?;
    Stamp::take(&mut Decoder::new(stamp)).map_err(|_| Errno::EPROTO)
}
