//! Finds the entries of a slab by page: open addressing in one array, linear probing, no tombstones, the same order in
//! every run. The keys are in the slab; the index holds entry numbers only.

use crate::page::PageId;

const EMPTY: u32 = u32::MAX;

/// The most bytes of an [`Index`] for each entry.
pub const BYTES_PER_ENTRY: usize = 16;

/// Entry numbers by page; at most as many as it was made for.
#[derive(Debug)]
pub struct Index {
    cells: Box<[u32]>,
}

impl Index {
    /// For `entries` of them: between two and four cells each, so that a look-up takes 1.5 steps at the most on
    /// average.
    pub fn new(entries: usize) -> Index {
        Index { cells: vec![EMPTY; (entries * 2).next_power_of_two()].into() }
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }

    fn mask(&self) -> usize {
        self.cells.len() - 1
    }

    fn home(&self, id: PageId) -> usize {
        id.bits() as usize & self.mask()
    }

    /// The cell of the page, or the empty one where it would be.
    fn cell(&self, id: PageId, key: impl Fn(u32) -> PageId) -> usize {
        let mut at = self.home(id);
        while self.cells[at] != EMPTY && key(self.cells[at]) != id {
            at = (at + 1) & self.mask();
        }
        at
    }

    /// The entry of the page. `key` tells the page of an entry.
    pub fn find(&self, id: PageId, key: impl Fn(u32) -> PageId) -> Option<u32> {
        let entry = self.cells[self.cell(id, key)];
        (entry != EMPTY).then_some(entry)
    }

    /// Adds an entry of a page that has none.
    pub fn insert(&mut self, id: PageId, entry: u32, key: impl Fn(u32) -> PageId) {
        let cell = self.cell(id, key);
        assert_eq!(self.cells[cell], EMPTY, "a page has one entry");
        assert_ne!(entry, EMPTY, "the number of no entry");
        self.cells[cell] = entry;
    }

    /// Removes the entry of the page, and closes the gap, so that nothing that lies behind it is lost.
    pub fn remove(&mut self, id: PageId, key: impl Fn(u32) -> PageId) {
        let mut gap = self.cell(id, &key);
        assert_ne!(self.cells[gap], EMPTY, "what is removed is here");
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask();
            let entry = self.cells[at];
            if entry == EMPTY {
                break;
            }
            let from_home = at.wrapping_sub(self.home(key(entry))) & self.mask();
            if from_home >= (at.wrapping_sub(gap) & self.mask()) {
                self.cells[gap] = entry;
                gap = at;
            }
        }
        self.cells[gap] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn page(index: u64) -> PageId {
        PageId { space: SpaceId(5), index }
    }

    proptest! {
        #[test]
        fn an_index_is_a_map(ops in prop::collection::vec((0u64..24, any::<bool>()), 1..400)) {
            let slab: Vec<PageId> = (0..24).map(page).collect();
            let key = |entry: u32| slab[entry as usize];
            let (mut index, mut model) = (Index::new(24), BTreeMap::new());
            for (number, add) in ops {
                let id = page(number);
                if add && model.insert(id, number as u32).is_none() {
                    index.insert(id, number as u32, key);
                } else if !add && model.remove(&id).is_some() {
                    index.remove(id, key);
                }
                for id in &slab {
                    prop_assert_eq!(index.find(*id, key), model.get(id).copied());
                }
            }
        }
    }
}
