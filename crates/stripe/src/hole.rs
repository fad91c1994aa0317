//! Holes: PUNCH makes them, GROW makes one at the end, SEEK finds them.
//!
//! A block whose recorded checksum is that of zeros is a hole; nothing is inferred from what the disk has or lacks. A
//! PUNCH is durable in the log first, then the checksums in memory say so, then the file gives the room back. Where a
//! group of blocks goes as a whole, so does the block of its checksums: no checksums are those of zeros.

use crate::disk::errno;
use crate::limits::{OBJECT_BYTES_MAX, SEEK_GROUPS_MAX};
use crate::log::{Kind, Record, Run};
use crate::object::{GROUP_BLOCKS, Head, data_offset, group_of, sums_offset, zero_sum};
use crate::objects::{Object, Phase};
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::Inner;
use crate::write::is_uncut;
use node::rings::{DiskError, DiskOp, DiskReply};
use node::{Bug, Request};
use std::ops::Range;
use std::rc::Rc;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Groups that a run covers as a whole.
pub(crate) fn whole_groups(run: &Run) -> Range<u64> {
    run.first.div_ceil(GROUP_BLOCKS)..run.blocks().end / GROUP_BLOCKS
}

/// Blocks of a run that are in none of its whole groups.
pub(crate) fn edge_blocks(run: &Run) -> impl Iterator<Item = u64> + use<> {
    let (blocks, groups) = (run.blocks(), whole_groups(run));
    let whole = match groups.is_empty() {
        true => blocks.end..blocks.end,
        false => groups.start * GROUP_BLOCKS..groups.end * GROUP_BLOCKS,
    };
    (blocks.start..whole.start).chain(whole.end..blocks.end)
}

/// The ranges of the file that go with a run: (offset, bytes), in order.
pub(crate) fn hole_ranges(run: &Run) -> Vec<(u64, u64)> {
    let (blocks, groups) = (run.blocks(), whole_groups(run));
    let mut out: Vec<(u64, u64)> = Vec::new();
    let mut add = |from: u64, to: u64| out.extend((from < to).then(|| (from, to - from)));
    let data = |from: u64, to: u64| match from < to {
        true => (data_offset(from), data_offset(to - 1) + BLOCK),
        false => (0, 0),
    };
    if groups.is_empty() {
        // Two groups at most, each in part: the checksums between them stay.
        let middle = (group_of(blocks.start) + 1) * GROUP_BLOCKS;
        let first = data(blocks.start, blocks.end.min(middle));
        let second = data(middle.max(blocks.start), blocks.end);
        add(first.0, first.1);
        add(second.0, second.1);
        return out;
    }
    let (before, behind) = (
        data(blocks.start, groups.start * GROUP_BLOCKS),
        data(groups.end * GROUP_BLOCKS, blocks.end),
    );
    add(before.0, before.1);
    add(sums_offset(groups.start), sums_offset(groups.end));
    add(behind.0, behind.1);
    out
}

/// Zeroes what of the bytes of `blocks` is in holes.
pub(crate) fn zero_holes(holes: &[Run], blocks: &Range<u64>, bytes: &mut [u8]) {
    for hole in holes {
        let (from, to) = (hole.first.max(blocks.start), hole.blocks().end.min(blocks.end));
        if from < to {
            let at = |block: u64| (block - blocks.start) as usize * BLOCK_BYTES;
            bytes[at(from)..at(to)].fill(0);
        }
    }
}

/// Blocks in a row whose checksums are those of zeros.
struct Hole {
    blocks: Range<u64>,
    /// The zeros themselves are in memory, and were verified.
    in_memory: bool,
}

impl Inner {
    /// PUNCH. It has its place in the order of writes, as a write of zeros would.
    pub async fn punch(
        self: &Rc<Self>,
        request: &Request,
        ask: &ObjectRequest,
    ) -> Result<ObjectReply, Errno> {
        let (first, count) = (ask.offset / BLOCK, u64::from(ask.bytes));
        if !ask.offset.is_multiple_of(BLOCK) || ask.offset > OBJECT_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let object = self.object(ask).await?;
        let _gates = self.hold(&object).await?;
        self.settle(&object, ask).await?;
        let end = (first + count).min(object.state.borrow().blocks());
        let run = Run { first, count: end.saturating_sub(first) as u32 };
        object.state.borrow_mut().note_writer(request.client);
        let order = self.next_order(&object, ask.group);
        let head = self.punched_head(&object, ask);
        self.punch_blocks(&object, head, run).await?;
        self.note_change(&object, head);
        self.recent.borrow_mut().note(object.spot(), ask.offset..(first + count) * BLOCK);
        self.punch_file(&object).await?;
        if first == 0 && end == object.state.borrow().blocks() {
            // No block of it is left that could be damaged.
            self.disk(&object).damaged.borrow_mut().remove(&object.id);
        }
        Ok(ObjectReply { order, stable: true, ..self.describe(&object) })
    }

    /// GROW. Another client may write behind the end that the caller knows, so a TRUNCATE would not do.
    /// It writes nothing: no write is before or after it.
    pub async fn grow(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        if ask.offset > OBJECT_BYTES_MAX {
            return Err(Errno::EFBIG);
        }
        let object = self.object(ask).await?;
        let _gates = self.hold(&object).await?;
        self.settle(&object, ask).await?;
        let before = self.punched_head(&object, ask);
        self.extend(&object, before, ask.offset).await?;
        Ok(self.describe(&object))
    }

    /// Commits earlier writes: they come before a change in the order of writes, and are stable with it. The caller
    /// holds both gates.
    async fn settle(
        self: &Rc<Self>,
        object: &Rc<Object>,
        ask: &ObjectRequest,
    ) -> Result<(), Errno> {
        self.check_write(object, ask)?;
        if is_uncut(object, ask) {
            return Err(Errno::EAGAIN);
        }
        self.commit_all(object).await
    }

    fn punched_head(&self, object: &Object, ask: &ObjectRequest) -> Head {
        let state = object.state.borrow();
        let before = match state.exists {
            true => state.head,
            false => Head {
                epoch: ask.epoch,
                truncations: ask.truncations,
                group: ask.group,
                ..Head::default()
            },
        };
        let mtime = before.mtime.max(ask.mtime);
        Head { mtime, shape: ask.shape, history: self.history_now(&state), ..before }
    }

    /// Makes the blocks a hole in the log, then in memory. The caller holds both gates, and nothing is dirty.
    async fn punch_blocks(
        self: &Rc<Self>,
        object: &Rc<Object>,
        head: Head,
        run: Run,
    ) -> Result<(), Errno> {
        let edges = self.edge_sums(object, &run).await?;
        let mut record = Record::bare(Kind::Punch, object.id, head);
        record.runs.extend((run.count > 0).then_some(run));
        self.put_record(object, record).await?;
        if run.count == 0 {
            return Ok(());
        }
        let mut state = object.state.borrow_mut();
        let mut cache = self.cache.borrow_mut();
        // They may have left memory; nothing can have changed them.
        edges.into_iter().for_each(|(group, sums)| cache.set_group(object.key, group, sums));
        for block in edge_blocks(&run) {
            if cache.committed_sum(object.key, block) != Some(zero_sum()) {
                cache.set_committed_sum(object.key, block, zero_sum());
            }
        }
        cache.punch(object.key, run.blocks());
        state.pending.retain(|block, _| !run.blocks().contains(block));
        if state.in_place {
            state.unpunched.push(run);
        }
        state.note_changed();
        Ok(())
    }

    /// The checksums of the groups that a run covers in part.
    async fn edge_sums(&self, object: &Object, run: &Run) -> Result<Vec<(u64, Vec<u32>)>, Errno> {
        let mut groups: Vec<u64> = edge_blocks(run).map(group_of).collect();
        groups.dedup();
        let mut out = Vec::new();
        for group in groups {
            self.need_group(object, group).await?;
            out.push((group, self.cache.borrow().group_sums(object.key, group).to_vec()));
        }
        Ok(out)
    }

    /// Gives back the room of what became a hole, if that is still to be done. The caller holds a gate.
    pub async fn punch_file(&self, object: &Object) -> Result<(), Errno> {
        let runs = object.state.borrow().unpunched.clone();
        for (offset, bytes) in runs.iter().flat_map(hole_ranges) {
            let file = object.file();
            match self.disk(object).simple(|| DiskOp::Punch { file, offset, bytes }).await {
                // The disk was too full for it to be made.
                Err(DiskError::NotFound) if object.state.borrow().header_sequence == 0 => {}
                result => result.map_err(errno)?,
            }
        }
        if !runs.is_empty() {
            let mut state = object.state.borrow_mut();
            state.unpunched.clear();
            state.note_changed();
        }
        Ok(())
    }

    /// SEEK.
    pub async fn seek(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        if ask.offset > OBJECT_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let object = self.object(ask).await?;
        self.check_read(&object, &ObjectRequest { offset: 0, bytes: 0, ..*ask })?;
        let wants_hole = ask.bytes != 0;
        let mut block = ask.offset / BLOCK;
        for _ in 0..SEEK_GROUPS_MAX {
            let (end, open) = {
                let state = object.state.borrow();
                (state.blocks(), state.phase == Phase::Open)
            };
            if !open {
                return Err(Errno::ESTALE);
            }
            if block >= end {
                let place = if wants_hole { (block * BLOCK).max(ask.offset) } else { u64::MAX };
                return Ok(self.sought(&object, place, true));
            }
            let group_end = ((group_of(block) + 1) * GROUP_BLOCKS).min(end);
            if let Some(found) = self.seek_in(&object, block..group_end, wants_hole).await? {
                return Ok(self.sought(&object, (found * BLOCK).max(ask.offset), true));
            }
            block = group_end;
        }
        Ok(self.sought(&object, block * BLOCK, false))
    }

    fn sought(&self, object: &Rc<Object>, length: u64, done: bool) -> ObjectReply {
        ObjectReply { length, used: done.into(), ..self.describe(object) }
    }

    /// The first of these blocks, all of one group, that is a hole, or none.
    async fn seek_in(
        &self,
        object: &Object,
        blocks: Range<u64>,
        wants_hole: bool,
    ) -> Result<Option<u64>, Errno> {
        let holes = self.recorded_holes(object, blocks.clone()).await?;
        let mut at = blocks.start;
        for Hole { blocks: hole, in_memory } in holes {
            if !wants_hole && at < hole.start {
                return Ok(Some(at));
            }
            let data = match in_memory {
                true => hole.end,
                false => self.data_in(object, hole.clone()).await?,
            };
            if wants_hole && data > hole.start {
                return Ok(Some(hole.start));
            }
            if !wants_hole && data < hole.end {
                return Ok(Some(data));
            }
            at = hole.end;
        }
        Ok((!wants_hole && at < blocks.end).then_some(at))
    }

    /// The blocks among these, all of one group, whose checksums are those of zeros.
    async fn recorded_holes(
        &self,
        object: &Object,
        blocks: Range<u64>,
    ) -> Result<Vec<Hole>, Errno> {
        let group = group_of(blocks.start);
        let read = loop {
            if self.cache.borrow().has_group(object.key, group) {
                break None;
            }
            if let Some(sums) = self.read_sums(object, group).await? {
                break Some(sums);
            }
        };
        let (cache, state) = (self.cache.borrow(), object.state.borrow());
        let sums = read.as_deref().unwrap_or_else(|| cache.group_sums(object.key, group));
        let mut holes: Vec<Hole> = Vec::new();
        for block in blocks {
            let committed = sums.get((block % GROUP_BLOCKS) as usize).copied();
            let cached = cache.sum(object.key, block);
            let logged = state.pending.contains_key(&block);
            let in_memory = cached.is_some() || logged;
            let is_zeros = cached.or(committed).unwrap_or(zero_sum()) == zero_sum()
                || logged && self.cx.has_bug(Bug::SoughtInPlace);
            match (is_zeros, holes.last_mut()) {
                (true, Some(last)) if last.blocks.end == block && last.in_memory == in_memory => {
                    last.blocks.end += 1;
                }
                (true, _) => holes.push(Hole { blocks: block..block + 1, in_memory }),
                (false, _) => {}
            }
        }
        Ok(holes)
    }

    /// The first of these blocks, all of one group and holes by their checksums, of which the file has bytes; their end
    /// when there is none. Checksums that a disk lost look like those of zeros: what the file has is read, and then the
    /// damage is found.
    async fn data_in(&self, object: &Object, blocks: Range<u64>) -> Result<u64, Errno> {
        if !object.state.borrow().in_place {
            return Ok(blocks.end);
        }
        let (file, offset) = (object.file(), data_offset(blocks.start));
        let bytes = (blocks.end - blocks.start) * BLOCK;
        let found = self.disk(object).ask(|| DiskOp::FindData { file, offset, bytes }).await;
        match found {
            Ok(DiskReply::Data(at)) => Ok(blocks.start + at.saturating_sub(offset) / BLOCK),
            // The disk was too full for it to be made.
            Err(DiskError::NotFound) if object.state.borrow().header_sequence == 0 => {
                Ok(blocks.end)
            }
            Err(error) => Err(errno(error)),
            Ok(_) => Err(Errno::EPROTO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_hole_takes_its_blocks_and_no_others(first in 0u64..5000, count in 0u32..5000, other in 0u64..12_000) {
            let run = Run { first, count };
            let ranges = hole_ranges(&run);
            let holds = |at: u64| {
                let within = |(from, bytes): &(u64, u64)| (*from..from + bytes).contains(&at);
                ranges.iter().filter(|range| within(range)).count()
            };
            prop_assert_eq!(holds(data_offset(other)), usize::from(run.blocks().contains(&other)));
            let sums = whole_groups(&run).contains(&group_of(other));
            prop_assert_eq!(holds(sums_offset(group_of(other))), usize::from(sums));
            let edge = edge_blocks(&run).any(|block| block == other);
            prop_assert_eq!(edge, run.blocks().contains(&other) && !sums);
            prop_assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        }
    }
}
