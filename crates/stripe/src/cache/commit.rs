//! How dirty blocks leave the cache's care: commits and cuts.

use super::*;

/// Blocks of an object in a row, with their bytes and checksums as they were when taken.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The first block.
    pub first: u64,
    /// The bytes of all blocks.
    pub frame: Frame,
    /// A checksum for each block.
    pub sums: Vec<u32>,
}

impl Cache {
    /// Takes up to `count_max` dirty blocks of an object to be committed, in ascending order. They stay readable; a
    /// block that is written meanwhile is dirty again.
    pub fn begin_commit(&mut self, key: Key, count_max: usize) -> Vec<Stretch> {
        let dirty: Vec<u64> = self.entry(key).dirty.iter().copied().collect();
        let (mut out, mut left) = (Vec::new(), count_max);
        for index in dirty {
            let slot = self.slot(key, index).expect("a dirty window is here");
            let window = &mut self.windows[slot as usize];
            for run in bit_runs(window.dirty) {
                let run = run.start..run.end.min(run.start + left);
                left -= run.len();
                window.take_for_commit(run, &mut out);
            }
            if left == 0 {
                break;
            }
        }
        out
    }

    /// Ends a commit: the blocks taken are clean, or dirty again when it failed. Blocks that were cut off or whose
    /// object was cleared meanwhile are not looked for.
    pub fn end_commit(&mut self, key: Key, committed: bool) {
        let dirty: Vec<u64> = self.entry(key).dirty.iter().copied().collect();
        for index in dirty {
            let slot = self.slot(key, index).expect("a dirty window is here");
            let window = &mut self.windows[slot as usize];
            let before = (window.dirty | window.committing).count_ones();
            let taken = std::mem::take(&mut window.committing);
            window.dirty |= if committed { 0 } else { taken };
            window.check();
            let (dirty, removed) = (window.dirty, before - window.dirty.count_ones());
            let entry = self.entry(key);
            if dirty == 0 {
                entry.dirty.remove(&index);
            }
            let disk = entry.disk;
            self.uncount_dirty(disk, removed as usize);
        }
        self.shrink_anew();
    }

    /// Dirty blocks of an object that are in no commit.
    pub fn dirty_count(&self, key: Key) -> usize {
        let entry = &self.entries[key.0 as usize];
        let windows = entry.dirty.iter().filter_map(|index| entry.windows.get(index));
        windows.map(|slot| self.windows[*slot as usize].dirty.count_ones() as usize).sum()
    }

    /// Blocks of an object that are not committed, in order: dirty, or being committed.
    pub fn unstable_blocks(&self, key: Key) -> impl Iterator<Item = u64> + '_ {
        let entry = &self.entries[key.0 as usize];
        let windows = entry.dirty.iter().filter_map(|index| entry.windows.get(index));
        windows.flat_map(|slot| {
            let window = &self.windows[*slot as usize];
            let (index, runs) = (window.index, bit_runs(window.dirty | window.committing));
            runs.flatten().map(move |at| block_at(index, at))
        })
    }

    /// Forgets every block from number `kept` on, and their committed checksums: they are zeros from now on. No commit
    /// of the object is under way.
    pub fn cut(&mut self, key: Key, kept: u64) {
        self.cut_groups(key, kept);
        self.drop_blocks(key, kept..u64::MAX);
    }

    /// Forgets every block of the range, and the checksums of its whole groups: they are zeros from now on, on the disk
    /// too. No commit of the object is under way.
    pub fn punch(&mut self, key: Key, blocks: Range<u64>) {
        self.forget_groups(key, blocks.start.div_ceil(GROUP_BLOCKS)..blocks.end / GROUP_BLOCKS);
        self.drop_blocks(key, blocks);
    }

    fn drop_blocks(&mut self, key: Key, blocks: Range<u64>) {
        let chunk = CHUNK_BLOCKS as u64;
        self.forget_away(key, blocks.start / chunk..blocks.end.div_ceil(chunk));
        let windows = window_of(blocks.start).0..=window_of(blocks.end.max(1) - 1).0;
        let there: Vec<u64> = self.entry(key).windows.range(windows).map(|(i, _)| *i).collect();
        for index in there {
            let first = block_at(index, 0);
            let within =
                |block: u64| block.saturating_sub(first).min(WINDOW_BLOCKS as u64) as usize;
            self.keep_in_window(key, index, !mask(within(blocks.start)..within(blocks.end)));
        }
    }

    fn forget_groups(&mut self, key: Key, groups: Range<u64>) {
        if groups.is_empty() {
            return;
        }
        let known: Vec<u64> =
            self.entry(key).groups.range(groups).map(|(group, _)| *group).collect();
        for group in known {
            let sums = self.entry(key).groups.remove(&group).expect("just found").sums;
            self.uncount(sums.len() * 4);
        }
    }

    fn keep_in_window(&mut self, key: Key, index: u64, kept: u64) {
        let slot = self.slot(key, index).expect("listed");
        let window = &mut self.windows[slot as usize];
        let removed = ((window.dirty | window.committing) & !kept).count_ones();
        window.valid &= kept;
        window.dirty &= kept;
        window.committing &= kept;
        window.check();
        let (idle, clean) = (!window.busy(), window.dirty | window.committing == 0);
        let empty = window.valid == 0;
        let entry = self.entry(key);
        if clean {
            entry.dirty.remove(&index);
        }
        let disk = entry.disk;
        self.uncount_dirty(disk, removed as usize);
        if empty && idle {
            self.drop_window(key, index);
        }
    }

    /// The group that the cut goes through stays known and is written in place again: there it still has checksums
    /// of what was cut off.
    fn cut_groups(&mut self, key: Key, kept: u64) {
        let entry = &mut self.entries[key.0 as usize];
        for (index, group) in entry.groups.range_mut(group_of(kept)..) {
            let keep = kept.saturating_sub(index * GROUP_BLOCKS) as usize;
            let removed = group.sums.len().saturating_sub(keep);
            group.sums.truncate(keep);
            group.dirty |= removed > 0 || *index == group_of(kept);
            self.used_bytes -= removed * 4;
        }
    }
}

impl Window {
    fn take_for_commit(&mut self, run: Range<usize>, out: &mut Vec<Stretch>) {
        let blocks = mask(run.clone());
        assert!(self.valid & blocks == blocks, "what is committed is here");
        assert!(self.committing & blocks == 0, "one commit of an object at a time");
        self.dirty &= !blocks;
        self.committing |= blocks;
        let mut frames = Vec::new();
        self.slices(run.clone(), run.len() * BLOCK_BYTES, &mut frames, 0);
        let mut at = run.start;
        for frame in frames {
            let until = at + frame.len() / BLOCK_BYTES;
            out.push(Stretch {
                first: block_at(self.index, at),
                frame,
                sums: self.sums[at..until].to_vec(),
            });
            at = until;
        }
    }
}
