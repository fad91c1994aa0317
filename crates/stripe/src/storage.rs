//! Storage that an object takes: what its file has, and what memory and the log are about to put there. A block that is
//! dirty, in the log and in the file counts once; one that was punched or cut off does not count, also where the file
//! still has it.
//!
//! The file's own storage is one number that the disk tells. So the ranges in which blocks are to come, or to go, are
//! left out of it, and the blocks that come are added. Nothing is counted when blocks are written or committed.

use crate::cache::Cache;
use crate::disk::errno;
use crate::log::Run;
use crate::object::{GROUP_BLOCKS, data_offset, file_bytes, group_of};
use crate::objects::{Object, State};
use crate::server::Inner;
use node::rings::{DiskError, DiskOp, DiskReply};
use wire::Errno;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Inner {
    /// Storage of the object, each block once.
    pub async fn used_bytes(&self, object: &Object) -> Result<u64, Errno> {
        let (coming, ranges) = {
            let (state, cache) = (object.state.borrow(), self.cache.borrow());
            let coming = coming(object, &state, &cache);
            let ranges = joined(coming.iter().flat_map(data_ranges).chain(going(&state)));
            (coming.iter().map(|run| u64::from(run.count)).sum::<u64>() * BLOCK, ranges)
        };
        let file = object.file();
        let stat = || DiskOp::Stat { file, without: ranges.clone() };
        match self.disk(object).ask(stat).await {
            Ok(DiskReply::Stat { used, .. }) => Ok(used + coming),
            Ok(_) => Err(Errno::EPROTO),
            Err(DiskError::NotFound) => Ok(coming),
            Err(error) => Err(errno(error)),
        }
    }
}

/// The blocks that are not in place, or will be written there again.
fn coming(object: &Object, state: &State, cache: &Cache) -> Vec<Run> {
    let mut blocks: Vec<u64> = state.pending.keys().copied().collect();
    blocks.extend(cache.unstable_blocks(object.key));
    blocks.sort_unstable();
    blocks.dedup();
    let mut runs: Vec<Run> = Vec::new();
    blocks.into_iter().for_each(|block| Run::add(&mut runs, block, 1));
    runs
}

/// Place of a run of blocks in the file: (offset, bytes).
fn data_ranges(run: &Run) -> impl Iterator<Item = (u64, u64)> + use<> {
    let blocks = run.blocks();
    let mut at = blocks.start;
    std::iter::from_fn(move || {
        let end = blocks.end.min((group_of(at) + 1) * GROUP_BLOCKS);
        let range = (at < end).then(|| (data_offset(at), (end - at) * BLOCK));
        at = end.max(at);
        range
    })
}

/// Ranges of the file that are cut off or punched, and may be there still.
fn going(state: &State) -> impl Iterator<Item = (u64, u64)> + '_ {
    let cut = state.uncut.map(|kept| file_bytes(kept * BLOCK));
    let cut = cut.map(|from| (from, u64::MAX - from));
    state.unpunched.iter().flat_map(crate::hole::hole_ranges).chain(cut)
}

/// These ranges in order, those that touch or share bytes as one.
fn joined(ranges: impl Iterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = ranges.collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.0 <= last.0 + last.1;
        if joins {
            last.1 = last.1.max(next.0 + next.1 - last.0);
        }
        joins
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_that_are_joined_hold_the_same_bytes(
            ranges in prop::collection::vec((0u64..60, 1u64..9), 0..12), at in 0u64..70,
        ) {
            let holds = |ranges: &[(u64, u64)]| {
                ranges.iter().filter(|(from, bytes)| (*from..from + bytes).contains(&at)).count()
            };
            let joined = joined(ranges.iter().copied());
            prop_assert_eq!(holds(&joined), holds(&ranges).min(1));
            prop_assert!(joined.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
        }

        #[test]
        fn the_ranges_of_blocks_hold_them_and_no_checksums(
            first in 0u64..5000, count in 0u32..3000, other in 0u64..9000,
        ) {
            let run = Run { first, count };
            let offset = data_offset(other);
            let holds = |at: u64| data_ranges(&run).any(|(from, bytes)| (from..from + bytes).contains(&at));
            prop_assert_eq!(holds(offset), run.blocks().contains(&other));
            prop_assert!(!holds(crate::object::sums_offset(group_of(other))));
        }
    }
}
