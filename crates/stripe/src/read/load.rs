//! Loads blocks into the cache: what network memory has of them, then what the log has, then what the disk has, each
//! verified by its committed checksum.

use super::plan::{Next, ReadPlan, WindowState};
use crate::cache::{Block, WindowPart, block_at, window_of};
use crate::disk::errno;
use crate::hole::zero_holes;
use crate::limits::*;
use crate::object::{
    GROUP_BLOCKS, data_offset, decode_sums, file_bytes, group_of, sums_offset, zero_sum,
};
use crate::objects::{Object, Phase, State};
use crate::protocol::trailer_bytes;
use crate::server::Inner;
use crate::sources::{Slowest, Source};
use endpoint::{Frame, FrameMut};
use node::{Bug, Request};
use std::rc::Rc;
use wire::Errno;
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Inner {
    /// Answers when all blocks of the plan are loaded; leaves the request pending when there is less or more of it
    /// meanwhile. Several windows at once, each taken when it is there: with many readers the cache may not hold all of
    /// them until the last one comes. Together they take half of it at most, so that there is memory for what they
    /// still wait for.
    pub async fn read_whole(
        self: &Rc<Self>,
        pending: &mut Option<Request>,
        plan: &ReadPlan<'_>,
        slowest: &Slowest,
    ) -> Result<(), Errno> {
        let sequential = plan.is_sequential();
        let parts: Vec<_> = plan.parts().collect();
        let several = parts.len() > 1;
        let _held = if several { Some(self.long_reads.acquire(parts.len()).await) } else { None };
        let parts = parts.iter().map(|part| self.take_part(plan, part, sequential, slowest));
        let parts = node::all(parts).await;
        let (mut data, mut trailer) = (self.cx.pieces::<Frame>(), Vec::new());
        for part in parts {
            let Some((frames, sums)) = part? else { return Ok(()) };
            data.extend(frames);
            trailer.extend(sums);
        }
        trailer.resize(trailer_bytes(plan.block_count()), 0);
        if plan.has_same_bytes() && plan.is_untruncated() {
            let request = pending.take().expect("a pending READ");
            self.reply_data(request, plan, &data, &mut trailer);
        }
        Ok(())
    }

    /// The bytes of a part, once they are loaded, and the checksums of its blocks.
    async fn take_part(
        self: &Rc<Self>,
        plan: &ReadPlan<'_>,
        part: &WindowPart,
        sequential: bool,
        slowest: &Slowest,
    ) -> Result<Option<(Vec<Frame>, Vec<u8>)>, Errno> {
        let object = &plan.object;
        slowest.note(self.fill_window(object, part, sequential).await?);
        let (first, bytes) = (part.first(), plan.bytes_in(part));
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

    /// State of a window's blocks.
    pub fn window(&self, object: &Object, index: u64) -> WindowState {
        let (valid, loading) = self.cache.borrow().blocks(object.key, index);
        let left = object.state.borrow().blocks().saturating_sub(block_at(index, 0));
        WindowState { valid, loading, end: left.min(WINDOW_BLOCKS as u64) as usize }
    }

    /// Brings blocks of one window into memory. They are there when this returns, unless they were truncated, and until
    /// the caller waits for something else. Where the slowest of them came from.
    pub async fn fill_window(
        self: &Rc<Self>,
        object: &Rc<Object>,
        part: &WindowPart,
        sequential: bool,
    ) -> Result<Source, Errno> {
        let (index, slowest) = (part.index, Slowest::default());
        loop {
            let moved = object.moved.wait();
            if object.state.borrow().phase != Phase::Open {
                return Err(Errno::ESTALE);
            }
            match self.window(object, index).next(&part.blocks, sequential) {
                Next::Nothing => return Ok(slowest.get()),
                Next::Wait => {
                    moved.await;
                    slowest.note(self.cache.borrow().came(object.key, index));
                }
                Next::Load { blocks, needed } => {
                    let load = self.load(object, WindowPart { index, blocks }, needed);
                    slowest.note(load.await?);
                }
            }
        }
    }

    /// One disk read into the cache, or more where the disk cannot read all of it. Blocks that changed meanwhile do not
    /// fit their checksums and are not kept; the caller looks again. An error when block `needed` does not fit and
    /// nothing changed. Returns the origin.
    pub async fn load(
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
        if block_at(part.index, needed) >= object.state.borrow().blocks() {
            return Ok(loading.came.get()); // truncated while the checksums were read
        }
        let kept = match self.read_blocks(object, first, part.blocks.len(), &loading.came).await {
            Err(Errno::EIO) if part.blocks.len() > 1 => {
                self.load_singly(object, part, needed).await
            }
            read => read.and_then(|frame| self.keep_needed(object, part, needed, frame, version)),
        };
        let block = block_at(part.index, needed);
        match kept {
            Ok(Fit::Wrong) | Err(Errno::EIO) if self.repair_block(object, block).await => {}
            Ok(Fit::Wrong) => return Err(self.report_damage(object, block)),
            kept => _ = kept?,
        }
        Ok(loading.came.get())
    }

    /// As [`load`](Inner::load) where the disk cannot read all of the part: the blocks from `needed` to the first that
    /// cannot be read, each once. A read that fails may take long, and who reads on finds the others in memory.
    async fn load_singly(
        &self,
        object: &Object,
        part: &WindowPart,
        needed: usize,
    ) -> Result<Fit, Errno> {
        for block in needed..part.blocks.end {
            let alone = WindowPart { index: part.index, blocks: block..block + 1 };
            let version = object.state.borrow().version;
            let read = self.read_blocks(object, alone.first(), 1, &Slowest::default()).await;
            if block == needed {
                match self.keep_needed(object, &alone, block, read?, version)? {
                    Fit::Right => continue,
                    Fit::Wrong => return Ok(Fit::Wrong),
                }
            }
            let open = object.state.borrow().phase == Phase::Open;
            let keep = |frame: FrameMut| self.keep(object, &alone, frame.freeze());
            let kept = read.is_ok_and(|frame| open && keep(frame).is_ok_and(|bad| bad.is_empty()));
            if !kept {
                break; // who needs it finds out why
            }
        }
        Ok(Fit::Right)
    }

    /// Keeps what was read when the object had this version. Whether block `needed` fits its checksum, or changed.
    fn keep_needed(
        &self,
        object: &Object,
        part: &WindowPart,
        needed: usize,
        frame: FrameMut,
        version: u64,
    ) -> Result<Fit, Errno> {
        let state = object.state.borrow();
        let changed = state.version != version && !self.cx.has_bug(Bug::StaleLoadKept);
        if state.phase != Phase::Open {
            return Ok(Fit::Right);
        }
        drop(state);
        let bad = self.keep(object, part, frame.freeze())?;
        Ok(if bad.contains(&needed) && !changed { Fit::Wrong } else { Fit::Right })
    }

    /// Blocks as they are committed: in place, or newer in the log.
    pub async fn read_blocks(
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
}

/// Whether the bytes of a block are those that were committed.
enum Fit {
    Right,
    Wrong,
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

const _: () =
    assert!(GROUP_BLOCKS.is_multiple_of(WINDOW_BLOCKS as u64), "a window lies in one group");
