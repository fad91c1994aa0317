//! READ: from the cache at once, else from the disk in large aligned pieces, checksums verified once.

use crate::cache::{Block, WindowPart, block_at, window_of, window_parts};
use crate::disk::errno;
use crate::hole::zero_holes;
use crate::limits::*;
use crate::object::{
    GROUP_BLOCKS, data_offset, decode_sums, file_bytes, group_of, sums_offset, zero_sum,
};
use crate::objects::{Object, Phase, Spot, State};
use crate::protocol::{ObjectReply, ObjectRequest, op, set_sum, trailer_bytes};
use crate::server::Inner;
use crate::sources::{Slowest, Source};
use endpoint::{Frame, FrameMut};
use node::{Answer, Bug, Pieces, Request};
use std::ops::Range;
use std::rc::Rc;
use wire::Errno;
use wire::checksum::block_crc;
use wire::limits::{BLOCK_BYTES, TRAILER_BYTES_MAX};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Checksums of 16 blocks, 64 KiB.
const TRAILER_BYTES_FEW: usize = 64;

impl Inner {
    /// Answers a READ that memory can answer; gives every other request back.
    pub fn read_at_once(self: &Rc<Self>, request: Request) -> Option<Request> {
        if request.op != op::READ {
            return Some(request);
        }
        let began = self.begin_hit();
        let Ok(ask) = ObjectRequest::decode(&request.body) else { return Some(request) };
        let objects = self.objects.borrow();
        let Some(object) = objects.get(Spot::of(&ask)) else { return Some(request) };
        if object.state.borrow().phase != Phase::Open || self.check_read(object, &ask).is_err() {
            return Some(request);
        }
        let result = self.reply_from_cache(request, object, &ask);
        if result.is_none() {
            self.count(|c| {
                c.reads += 1;
                c.hits += 1;
            });
            self.note_hit(began);
        }
        result
    }

    /// Answers when all blocks are here; else gives the request back.
    fn reply_from_cache(
        self: &Rc<Self>,
        request: Request,
        object: &Rc<Object>,
        ask: &ObjectRequest,
    ) -> Option<Request> {
        let bytes = available(object, ask);
        let (first, blocks) = (ask.offset / BLOCK, bytes.div_ceil(BLOCK_BYTES));
        let (mut few, mut many);
        let trailer = match trailer_bytes(blocks) {
            // Clearing the longest trailer costs more than looking up a few blocks.
            bytes @ ..=TRAILER_BYTES_FEW => {
                few = [0; TRAILER_BYTES_FEW];
                &mut few[..bytes]
            }
            bytes => {
                many = [0; TRAILER_BYTES_MAX];
                &mut many[..bytes]
            }
        };
        let mut data = self.cx.pieces::<Frame>();
        let hit = self.cache.borrow_mut().hit(object.key, first, bytes, &mut data, trailer);
        if !hit {
            return Some(request);
        }
        self.reply_data(request, &self.found(object.clone(), ask, bytes, data), trailer);
        None
    }

    /// Answers with what was found, and the checksums of its blocks.
    pub fn reply_data(self: &Rc<Self>, request: Request, found: &Found, trailer: &mut [u8]) {
        let Found { object, range, reply, data } = found;
        let (first, end) = (range.start / BLOCK, range.end.div_ceil(BLOCK));
        let within = (range.end % BLOCK) as usize;
        if let Some(last) = data.last().filter(|_| within > 0 && range.end < reply.length) {
            // The caller sees a part of the block, and can verify no more.
            let tail = last.len() - within;
            set_sum(trailer, (end - first) as usize - 1, block_crc(&last[tail..]));
        }
        self.note_reader(object, first, end);
        self.count(|c| c.read_bytes += range.end - range.start);
        self.cx.reply(request, Answer { body: &reply.encode(), data, trailer, status: 0 });
    }

    /// READ with waiting.
    pub async fn read(self: &Rc<Self>, request: Request, ask: &ObjectRequest) {
        self.count(|c| {
            c.reads += 1;
            c.misses += 1;
        });
        let (began, slowest) = (self.cx.instant(), Slowest::default());
        self.missing.set(self.missing.get() + 1);
        let answered = self.answer_read(request, ask, &slowest).await;
        self.missing.set(self.missing.get() - 1);
        if answered {
            self.note_read(slowest.get(), began);
        }
    }

    /// Answers from wherever the blocks are; false when the READ is refused.
    async fn answer_read(
        self: &Rc<Self>,
        request: Request,
        ask: &ObjectRequest,
        slowest: &Slowest,
    ) -> bool {
        let Some(request) = self.read_in_place(request, ask, slowest).await else { return true };
        let mut waiting = self.read_through(request, ask, slowest).await;
        while let Some(request) = waiting.take() {
            match self.bring_in(ask, slowest).await {
                Ok(Some((found, mut trailer))) => self.reply_data(request, &found, &mut trailer),
                Ok(None) => waiting = Some(request),
                Err(errno) => {
                    self.refuse(request, ask, errno);
                    return false;
                }
            }
        }
        true
    }

    /// What a READ asked for, of the object as it is now.
    pub fn found(
        &self,
        object: Rc<Object>,
        ask: &ObjectRequest,
        bytes: usize,
        data: Pieces<Frame>,
    ) -> Found {
        let (range, reply) = (ask.offset..ask.offset + bytes as u64, self.describe(&object));
        Found { object, range, reply, data }
    }

    /// What is asked for, and its checksums; `None` when there is less or more of it meanwhile. Several windows at
    /// once, each taken when it is there: with many readers the cache may not hold all of them until the last one
    /// comes. Together they take half of it at most, so that there is memory for what they still wait for.
    async fn bring_in(
        self: &Rc<Self>,
        ask: &ObjectRequest,
        slowest: &Slowest,
    ) -> Result<Option<(Found, Vec<u8>)>, Errno> {
        let object = self.object(ask).await?;
        self.check_read(&object, ask)?;
        let (first, bytes) = (ask.offset / BLOCK, available(&object, ask));
        let blocks = bytes.div_ceil(BLOCK_BYTES);
        let (truncations, sequential) = {
            let state = object.state.borrow();
            let sequential = state.next_block == first || blocks >= WINDOW_BLOCKS;
            (state.head.truncations, sequential)
        };
        let parts: Vec<_> = window_parts(first..first + blocks as u64).collect();
        let several = parts.len() > 1;
        let _held = if several { Some(self.long_reads.acquire(parts.len()).await) } else { None };
        let parts = parts.iter().map(|part| {
            let bytes = part.bytes_of(first, bytes);
            self.bring_in_part(&object, part, (bytes, sequential), slowest)
        });
        let parts = node::all(parts).await;
        let (mut data, mut trailer) = (self.cx.pieces::<Frame>(), Vec::new());
        for part in parts {
            let Some((frames, sums)) = part? else { return Ok(None) };
            data.extend(frames);
            trailer.extend(sums);
        }
        trailer.resize(trailer_bytes(blocks), 0);
        let same = available(&object, ask) == bytes;
        let found = self.found(object, ask, bytes, data);
        Ok((same && found.reply.truncations == truncations).then_some((found, trailer)))
    }

    /// The first `bytes` bytes of a part, and the checksums of its blocks.
    async fn bring_in_part(
        self: &Rc<Self>,
        object: &Rc<Object>,
        part: &WindowPart,
        (bytes, sequential): (usize, bool),
        slowest: &Slowest,
    ) -> Result<Option<(Vec<Frame>, Vec<u8>)>, Errno> {
        slowest.note(self.fill_window(object, part, sequential).await?);
        let first = part.first();
        let (mut data, mut sums) = (Vec::new(), vec![0; part.blocks.len() * size_of::<u32>()]);
        let hit = self.cache.borrow_mut().hit(object.key, first, bytes, &mut data, &mut sums);
        Ok(hit.then_some((data, sums)))
    }

    /// A block that exists, as it is now.
    pub async fn bring_in_block(
        self: &Rc<Self>,
        object: &Rc<Object>,
        block: u64,
    ) -> Result<Block, Errno> {
        let (index, at) = window_of(block);
        self.fill_window(object, &WindowPart { index, blocks: at..at + 1 }, false).await?;
        self.cache.borrow().block(object.key, block).ok_or(Errno::EAGAIN)
    }

    /// Whether the caller may read: shape of the request, epoch.
    pub fn check_read(&self, object: &Object, ask: &ObjectRequest) -> Result<(), Errno> {
        let whole = ask.offset.is_multiple_of(BLOCK) && ask.bytes as usize <= TRANSFER_BYTES_MAX;
        if !whole || ask.offset > OBJECT_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let state = object.state.borrow();
        if self.is_old_layout(&state, ask) {
            return Err(Errno::ESTALE);
        }
        // What was not found on a disk that turned out to be missing is not known to be absent.
        if state.exists { Ok(()) } else { self.disk(object).check() }
    }

    /// Brings blocks of one window into memory, in as few reads as what is there and under way allows. They are there
    /// when this returns, unless they were cut off, and until the caller waits for something else. Where the slowest of
    /// them came from.
    pub async fn fill_window(
        self: &Rc<Self>,
        object: &Rc<Object>,
        part: &WindowPart,
        sequential: bool,
    ) -> Result<Source, Errno> {
        let (index, wanted) = (part.index, &part.blocks);
        let slowest = Slowest::default();
        loop {
            let moved = object.moved.wait();
            if object.state.borrow().phase != Phase::Open {
                return Err(Errno::ESTALE);
            }
            let (valid, loading) = self.cache.borrow().blocks(object.key, index);
            let is = |bits: u64, block: usize| bits >> block & 1 == 1;
            let Some(missing) = wanted.clone().find(|block| !is(valid, *block)) else {
                return Ok(slowest.get());
            };
            if is(loading, missing) {
                moved.await;
                slowest.note(self.cache.borrow().came(object.key, index));
                continue;
            }
            let limit = self.window_end(object, index);
            if missing >= limit {
                return Ok(slowest.get()); // cut off meanwhile: its bytes may still be on disk, its checksum is gone
            }
            let whole = sequential && valid | loading == 0;
            let last =
                wanted.clone().rev().find(|block| !is(valid, *block)).expect("one is missing");
            let (start, end) = match whole {
                true => (0, WINDOW_BLOCKS),
                false => (
                    missing / CHUNK_BLOCKS * CHUNK_BLOCKS,
                    (last + 1).next_multiple_of(CHUNK_BLOCKS),
                ),
            };
            let start =
                (start..missing).rev().find(|block| is(loading, *block)).map_or(start, |b| b + 1);
            let end = end.min(limit);
            let end = (missing..end).find(|block| is(loading, *block)).unwrap_or(end);
            let part = WindowPart { index, blocks: start..end };
            slowest.note(self.load(object, part, missing).await?);
        }
    }

    /// Blocks of the window that the object has.
    fn window_end(&self, object: &Object, index: u64) -> usize {
        let blocks = object.state.borrow().blocks();
        blocks.saturating_sub(block_at(index, 0)).min(WINDOW_BLOCKS as u64) as usize
    }

    /// One disk read into the cache, or more where the disk cannot read all of it. What changed meanwhile does not fit
    /// its checksum and is not kept; the caller looks again. An error when block `needed` does not fit and nothing
    /// changed. Where it came from.
    async fn load(
        self: &Rc<Self>,
        object: &Rc<Object>,
        part: WindowPart,
        needed: usize,
    ) -> Result<Source, Errno> {
        self.cache.borrow_mut().loading(object.key, part.index, part.blocks.clone());
        let first = part.first();
        let came = Slowest::default();
        let loading = Loading { inner: self.clone(), object: object.clone(), part, came };
        let part = &loading.part;
        self.wait_for_carriers(part.blocks.len() * BLOCK_BYTES).await;
        self.need_group(object, group_of(first)).await?;
        loading.came.note(self.load_from_network(object, part).await);
        if self.cache.borrow().sum(object.key, block_at(part.index, needed)).is_some() {
            return Ok(loading.came.get());
        }
        let version = object.state.borrow().version;
        if needed >= self.window_end(object, part.index) {
            return Ok(loading.came.get()); // cut off while the checksums were read
        }
        let kept = match self.read_blocks(object, first, part.blocks.len(), &loading.came).await {
            Err(Errno::EIO) if part.blocks.len() > 1 => {
                self.load_singly(object, part, needed).await
            }
            read => self.keep_needed(object, part, needed, read?, version),
        };
        kept.map(|()| loading.came.get())
    }

    /// As [`load`](Inner::load) where the disk cannot read all of the part: the blocks from `needed` to the first that
    /// cannot be read, each once. A read that fails may take long, and who reads on finds the others in memory.
    async fn load_singly(
        &self,
        object: &Object,
        part: &WindowPart,
        needed: usize,
    ) -> Result<(), Errno> {
        for block in needed..part.blocks.end {
            let alone = WindowPart { index: part.index, blocks: block..block + 1 };
            let version = object.state.borrow().version;
            let read = self.read_blocks(object, alone.first(), 1, &Slowest::default()).await;
            if block == needed {
                self.keep_needed(object, &alone, block, read?, version)?;
                continue;
            }
            let open = object.state.borrow().phase == Phase::Open;
            let keep = |frame: FrameMut| self.keep(object, &alone, frame.freeze());
            let kept = read.is_ok_and(|frame| open && keep(frame).is_ok_and(|bad| bad.is_empty()));
            if !kept {
                break; // who needs it finds out why
            }
        }
        Ok(())
    }

    /// Keeps what was read when the object had this version.
    fn keep_needed(
        &self,
        object: &Object,
        part: &WindowPart,
        needed: usize,
        frame: FrameMut,
        version: u64,
    ) -> Result<(), Errno> {
        let state = object.state.borrow();
        let changed = state.version != version && !self.cx.has_bug(Bug::StaleLoadKept);
        if state.phase != Phase::Open {
            return Ok(());
        }
        drop(state);
        let bad = self.keep(object, part, frame.freeze())?;
        match bad.contains(&needed) && !changed {
            true => Err(self.report_damage(object, block_at(part.index, needed))),
            false => Ok(()),
        }
    }

    /// Blocks as they are committed: in place, or newer in the log.
    async fn read_blocks(
        &self,
        object: &Object,
        first: u64,
        count: usize,
        came: &Slowest,
    ) -> Result<FrameMut, Errno> {
        let mut frame = self.disk(object).frame(count * BLOCK_BYTES).await;
        let blocks = first..first + count as u64;
        let is_placed = |state: &State| {
            let logged = state.pending.range(blocks.clone()).count();
            state.in_place && logged < count
        };
        if is_placed(&object.state.borrow()) {
            came.note(Source::Disk);
            frame = self.read_file(object, data_offset(first), frame).await?;
            self.count(|c| {
                c.disk_reads += 1;
                c.disk_read_bytes += (count * BLOCK_BYTES) as u64;
            });
        } else {
            frame.fill(0);
        }
        zero_holes(&object.state.borrow().unpunched, &blocks, &mut frame);
        for (block, (bytes, _)) in object.state.borrow().pending.range(blocks) {
            let at = (block - first) as usize * BLOCK_BYTES;
            frame[at..at + BLOCK_BYTES].copy_from_slice(bytes);
        }
        Ok(frame)
    }

    /// Fills `into` from the object's file. Once its header is there, a file that is not, or is shorter than it was
    /// made, is damage and no hole.
    pub async fn read_file(
        &self,
        object: &Object,
        offset: u64,
        into: FrameMut,
    ) -> Result<FrameMut, Errno> {
        let disk = self.disk(object);
        let (version, blocks) = {
            let state = object.state.borrow();
            (state.version, state.file_blocks)
        };
        let (bytes, count) = disk.read_some(object.file(), offset, into).await.map_err(errno)?;
        let state = object.state.borrow();
        let end = offset + count.unwrap_or(0) as u64;
        let wanted = offset + bytes.len() as u64;
        let is_short = end < wanted.min(file_bytes(blocks.min(state.file_blocks) * BLOCK));
        let is_known = state.version == version && state.uncut.is_none();
        let is_known = is_known && !self.cx.has_bug(Bug::ShortFileIgnored);
        let why = match count {
            _ if state.header_sequence == 0 || state.phase != Phase::Open => return Ok(bytes),
            None => "its file is gone",
            Some(_) if is_short && is_known => "its file is cut short",
            Some(_) => return Ok(bytes),
        };
        Err(self.damage(disk, object.id, &why))
    }

    /// Verifies what was read and keeps what is right. Answers with the blocks of the window that are not.
    pub fn keep(
        &self,
        object: &Object,
        part: &WindowPart,
        frame: Frame,
    ) -> Result<Vec<usize>, Errno> {
        let mut cache = self.cache.borrow_mut();
        let (index, fetch) = (part.index, &part.blocks);
        let (valid, _) = cache.blocks(object.key, index);
        let sums: Vec<u32> = frame.chunks_exact(BLOCK_BYTES).map(block_crc).collect();
        let trusting = self.cx.has_bug(Bug::DiskNotVerified) || self.cx.has_bug(Bug::AwayPageTaken);
        let right = |block: usize| {
            let committed = cache.committed_sum(object.key, block_at(index, block));
            committed == Some(sums[block - fetch.start]) || trusting
        };
        let bad: Vec<usize> = fetch.clone().filter(|b| valid >> b & 1 == 0 && !right(*b)).collect();
        let mut at = fetch.start;
        for end in bad.iter().copied().chain([fetch.end]) {
            if at < end {
                let (from, to) = (at - fetch.start, end - fetch.start);
                let part = frame.slice(from * BLOCK_BYTES..to * BLOCK_BYTES);
                let kept = cache.insert(object.key, index, at, &part, &sums[from..to]);
                kept.map_err(|_| Errno::EAGAIN)?;
            }
            at = end + 1;
        }
        Ok(bad)
    }

    pub fn report_damage(&self, object: &Object, block: u64) -> Errno {
        self.count(|c| c.corrupt_blocks += 1);
        let why = format!(
            "block {block} does not fit its checksum: the disk returned other bytes than were written"
        );
        self.damage(self.disk(object), object.id, &why)
    }

    /// Makes the committed checksums of a group known.
    pub async fn need_group(&self, object: &Object, group: u64) -> Result<(), Errno> {
        while !self.cache.borrow().has_group(object.key, group) {
            if let Some(sums) = self.read_sums(object, group).await? {
                self.cache.borrow_mut().set_group(object.key, group, sums);
            }
        }
        Ok(())
    }

    /// The checksums of a group that is not known, as the disk has them; `None` when they changed meanwhile.
    pub async fn read_sums(&self, object: &Object, group: u64) -> Result<Option<Vec<u32>>, Errno> {
        let (version, in_place) = {
            let state = object.state.borrow();
            (state.sums_version, state.in_place)
        };
        let mut sums = Vec::new();
        if in_place {
            let into = self.disk(object).frame(BLOCK_BYTES).await;
            sums = decode_sums(&self.read_file(object, sums_offset(group), into).await?);
        }
        let state = object.state.borrow();
        if let Some(kept) = state.uncut {
            // Its file has yet to see the cut: what is behind it there is gone.
            let kept = kept.saturating_sub(group * GROUP_BLOCKS).min(GROUP_BLOCKS);
            sums.truncate(kept as usize);
        }
        for run in &state.unpunched {
            let within = |block: u64| block.saturating_sub(group * GROUP_BLOCKS) as usize;
            let end = within(run.blocks().end).min(sums.len());
            sums[within(run.first).min(end)..end].fill(zero_sum());
        }
        Ok((state.sums_version == version).then_some(sums))
    }

    /// Learns from a read whether the reader is sequential, and reads ahead of it.
    pub fn note_reader(self: &Rc<Self>, object: &Rc<Object>, first: u64, end: u64) {
        let mut state = object.state.borrow_mut();
        let sequential = state.next_block == first && first != end;
        state.next_block = end;
        if !sequential {
            state.ahead = 0;
            return;
        }
        let windows = state.blocks().div_ceil(WINDOW_BLOCKS as u64);
        let here = end.div_ceil(WINDOW_BLOCKS as u64);
        let from = state.ahead.max(here);
        let until = (end / WINDOW_BLOCKS as u64 + 1 + READ_AHEAD_WINDOWS).min(windows);
        if from >= until || !state.in_place {
            return;
        }
        state.ahead = until;
        let mut queue = self.ahead.borrow_mut();
        let room = READ_AHEAD_QUEUE - queue.len().min(READ_AHEAD_QUEUE);
        queue.extend((from..until).take(room).map(|index| (object.clone(), index)));
        self.ahead_queued.notify_all();
    }

    /// A read-ahead task.
    pub async fn read_ahead(self: Rc<Self>) {
        loop {
            let queued = self.ahead_queued.wait();
            let next = self.ahead.borrow_mut().pop_front();
            let Some((object, index)) = next else {
                queued.await;
                continue;
            };
            let (valid, loading) = self.cache.borrow().blocks(object.key, index);
            let end = self.window_end(&object, index);
            let open = object.state.borrow().phase == Phase::Open;
            if open && end > 0 && valid | loading == 0 {
                // An error here is found again, and told, by the reader who gets there.
                let _ = self.load(&object, WindowPart { index, blocks: 0..end }, 0).await;
                self.note_room();
            }
        }
    }
}

/// What a READ asked for.
pub struct Found {
    object: Rc<Object>,
    /// What of it exists.
    range: Range<u64>,
    /// The object as it is now: what was written behind the bytes meanwhile is in the last block's checksum.
    reply: ObjectReply,
    data: Pieces<Frame>,
}

/// Blocks being loaded; marks them as no longer so, however the load ends.
struct Loading {
    inner: Rc<Inner>,
    object: Rc<Object>,
    part: WindowPart,
    came: Slowest,
}

impl Drop for Loading {
    fn drop(&mut self) {
        let mut cache = self.inner.cache.borrow_mut();
        let WindowPart { index, blocks } = self.part.clone();
        cache.loaded(self.object.key, index, blocks, self.came.get());
        self.object.moved.notify_all();
    }
}

/// Bytes of what is asked for that exist.
pub fn available(object: &Object, ask: &ObjectRequest) -> usize {
    let length = object.state.borrow().head.length;
    length.saturating_sub(ask.offset).min(ask.bytes.into()) as usize
}

const _: () =
    assert!(GROUP_BLOCKS.is_multiple_of(WINDOW_BLOCKS as u64), "a window lies in one group");
