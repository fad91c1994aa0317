//! Which blocks of the log's file are free.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Free extents, by their first block. No two touch.
#[derive(Debug)]
pub struct Room(BTreeMap<u32, u32>);

impl Room {
    /// So many blocks, all free.
    pub fn new(blocks: u32) -> Room {
        Room(BTreeMap::from([(0, blocks)]))
    }

    /// Free blocks.
    pub fn free(&self) -> u32 {
        self.0.values().sum()
    }

    /// The first extent that has room: so the file is no longer than it was when most of it was in use.
    fn take(&mut self, count: u32) -> Option<u32> {
        let (first, free) = self.0.iter().find(|(_, free)| **free >= count)?;
        let (first, free) = (*first, *free);
        self.0.remove(&first);
        if free > count {
            self.0.insert(first + count, free - count);
        }
        Some(first)
    }

    fn give_back(&mut self, mut first: u32, mut count: u32) {
        if let Some(behind) = self.0.remove(&(first + count)) {
            count += behind;
        }
        let before = self.0.range(..first).next_back().map(|(at, free)| (*at, *free));
        if let Some((at, free)) = before.filter(|(at, free)| at + free == first) {
            (first, count) = (at, count + free);
        }
        self.0.insert(first, count);
    }
}

/// Blocks that something is in. They are free again when nobody has this any more: the index, a write or a read.
#[derive(Debug)]
pub struct Run {
    room: Rc<RefCell<Room>>,
    /// The first one.
    pub first: u32,
    count: u32,
}

impl Run {
    /// So many, if there are that many in a row.
    pub fn take(room: &Rc<RefCell<Room>>, count: u32) -> Option<Rc<Run>> {
        let first = room.borrow_mut().take(count)?;
        Some(Rc::new(Run { room: room.clone(), first, count }))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.room.borrow_mut().give_back(self.first, self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: u32 = 40;

    proptest! {
        /// Against a list of what is taken: no block twice, none refused that is there, one extent when all is free.
        #[test]
        fn runs_share_no_block(ops in prop::collection::vec((1u32..17, any::<prop::sample::Index>()), 1..100)) {
            let room = Rc::new(RefCell::new(Room::new(BLOCKS)));
            let mut runs: Vec<Rc<Run>> = Vec::new();
            for (count, gone) in ops {
                let taken = |block: u32| runs.iter().any(|r| (r.first..r.first + r.count).contains(&block));
                let fits = (0..=BLOCKS - count).find(|at| (*at..at + count).all(|block| !taken(block)));
                let run = Run::take(&room, count);
                prop_assert_eq!(run.as_ref().map(|run| run.first), fits);
                runs.extend(run);
                if count % 3 == 0 && !runs.is_empty() {
                    runs.swap_remove(gone.index(runs.len()));
                }
                let used: u32 = runs.iter().map(|run| run.count).sum();
                prop_assert_eq!(room.borrow().free(), BLOCKS - used);
            }
            runs.clear();
            prop_assert_eq!(&room.borrow().0, &BTreeMap::from([(0, BLOCKS)]));
        }
    }
}
