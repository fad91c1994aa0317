//! Pages that may lack mirrors: the one that has lacked one longest is repaired first.

use crate::page::PageId;
use std::collections::{BTreeSet, VecDeque};

/// The queue, in which each page is once.
#[derive(Debug, Default)]
pub struct Repairs {
    queue: VecDeque<PageId>,
    /// The same pages, to be found.
    lacking: BTreeSet<PageId>,
}

impl Repairs {
    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &PageId> {
        self.queue.iter()
    }

    /// A page lacks a mirror. It keeps its turn if it has one.
    pub fn insert(&mut self, id: PageId) {
        if self.lacking.insert(id) {
            self.queue.push_back(id);
        }
    }

    /// Takes out the page whose turn it is.
    pub fn pop(&mut self) -> Option<PageId> {
        let id = self.queue.pop_front()?;
        let was = self.lacking.remove(&id);
        assert!(was, "the queue and what is found in it are the same");
        Some(id)
    }

    /// Forgets the pages that are not to be kept.
    pub fn retain(&mut self, keeps: impl Fn(PageId) -> bool) {
        self.queue.retain(|id| keeps(*id));
        self.lacking.retain(|id| keeps(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;

    #[test]
    fn a_page_has_one_turn_and_keeps_it() {
        let page = |index| PageId { space: SpaceId(3), index };
        let mut repairs = Repairs::default();
        [4, 2, 9, 2, 4].into_iter().for_each(|index| repairs.insert(page(index)));
        assert_eq!(repairs.iter().count(), 3);
        assert_eq!(repairs.pop(), Some(page(4)));
        repairs.insert(page(4));
        repairs.retain(|id| id.index != 9);
        assert_eq!(
            [repairs.pop(), repairs.pop(), repairs.pop()],
            [Some(page(2)), Some(page(4)), None]
        );
    }
}
