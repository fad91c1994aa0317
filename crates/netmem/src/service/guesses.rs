//! Guessed holders of pages of shared spaces: a right one saves the hop over the directory.

use crate::index::{BYTES_PER_ENTRY, Index};
use crate::page::PageId;
use wire::NodeId;

#[derive(Clone, Copy, Debug, Default)]
struct Guess {
    id: PageId,
    /// 0 is none: the entry is free.
    node: NodeId,
}

/// A bounded number of guesses; a new one takes the place of the one that was made first.
#[derive(Debug)]
pub struct Guesses {
    slab: Box<[Guess]>,
    index: Index,
    hand: usize,
}

impl Guesses {
    /// Most bytes of memory for each guess.
    pub const ENTRY_BYTES: usize = std::mem::size_of::<Guess>() + BYTES_PER_ENTRY;

    /// With room for `entries`, at least one; it takes its memory now.
    pub fn new(entries: usize) -> Guesses {
        let entries = entries.max(1);
        Guesses {
            slab: vec![Guess::default(); entries].into(),
            index: Index::new(entries),
            hand: 0,
        }
    }

    /// The memory that it takes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slab) + self.index.bytes()
    }

    /// A node that may have a page.
    pub fn get(&self, id: PageId) -> Option<NodeId> {
        self.find(id).map(|at| self.slab[at].node)
    }

    /// A node has a page.
    pub fn put(&mut self, id: PageId, node: NodeId) {
        if let Some(at) = self.find(id) {
            self.slab[at].node = node;
            return;
        }
        let at = self.hand;
        self.hand = (at + 1) % self.slab.len();
        self.clear(at);
        self.slab[at] = Guess { id, node };
        self.index.insert(id, at as u32, |other| self.slab[other as usize].id);
    }

    /// The guess was wrong.
    pub fn forget(&mut self, id: PageId) {
        let at = self.find(id);
        at.into_iter().for_each(|at| self.clear(at));
    }

    /// Forgets all that `goes`: of a node that is down, of a space that is gone.
    pub fn forget_if(&mut self, goes: impl Fn(PageId, NodeId) -> bool) {
        for at in 0..self.slab.len() {
            let Guess { id, node } = self.slab[at];
            if node.0 != 0 && goes(id, node) {
                self.clear(at);
            }
        }
    }

    fn find(&self, id: PageId) -> Option<usize> {
        self.index.find(id, |at| self.slab[at as usize].id).map(|at| at as usize)
    }

    fn clear(&mut self, at: usize) {
        let Guess { id, node } = self.slab[at];
        if node.0 != 0 {
            self.index.remove(id, |other| self.slab[other as usize].id);
            self.slab[at] = Guess::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn the_latest_guesses_are_kept(ops in prop::collection::vec((0u64..12, 0u16..5), 1..200)) {
            let page = |index| PageId { space: SpaceId(2), index };
            let (mut guesses, mut model) = (Guesses::new(5), VecDeque::new());
            for (index, node) in ops {
                let known = model.iter_mut().find(|(other, _)| *other == Some(index));
                match (node, known) {
                    (0, known) => {
                        guesses.forget(page(index));
                        // its place stays empty until the circle comes round
                        known.into_iter().for_each(|entry| entry.0 = None);
                    }
                    (node, Some(entry)) => {
                        guesses.put(page(index), NodeId(node));
                        entry.1 = node;
                    }
                    (node, None) => {
                        guesses.put(page(index), NodeId(node));
                        model.push_back((Some(index), node));
                        if model.len() > 5 {
                            model.pop_front();
                        }
                    }
                }
                for index in 0..12 {
                    let known = model.iter().find(|(other, _)| *other == Some(index));
                    prop_assert_eq!(guesses.get(page(index)), known.map(|(_, node)| NodeId(*node)));
                }
            }
        }
    }

    #[test]
    fn a_node_is_forgotten() {
        let mut guesses = Guesses::new(8);
        let page = |index| PageId { space: SpaceId(0), index };
        (0..6).for_each(|index| guesses.put(page(index), NodeId(1 + index as u16 % 2)));
        guesses.forget_if(|_, node| node == NodeId(2));
        let left: Vec<u64> = (0..6).filter(|index| guesses.get(page(*index)).is_some()).collect();
        assert_eq!(left, [0, 2, 4]);
    }
}
