//! Pages to which something is still owed, taken in turn, so that one that fails keeps no other waiting.

use crate::page::PageId;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Something for each of some pages.
#[derive(Debug)]
pub struct Circle<T> {
    pages: BTreeMap<PageId, T>,
    last: PageId,
}

impl<T> Default for Circle<T> {
    fn default() -> Circle<T> {
        Circle { pages: BTreeMap::new(), last: PageId::default() }
    }
}

impl<T: Copy> Circle<T> {
    /// What was there for this page is replaced.
    pub fn insert(&mut self, id: PageId, value: T) {
        self.pages.insert(id, value);
    }

    /// Whether something is owed to a page.
    pub fn has(&self, id: PageId) -> bool {
        self.pages.contains_key(&id)
    }

    /// The next one, which stays.
    pub fn next(&mut self) -> Option<(PageId, T)> {
        let after = (Bound::Excluded(self.last), Bound::Unbounded);
        let next = self.pages.range(after).next().or_else(|| self.pages.iter().next());
        let next = next.map(|(id, value)| (*id, *value));
        self.last = next.map_or(self.last, |(id, _)| id);
        next
    }

    /// Nothing is owed to a page any more, if it is still `this`.
    pub fn done(&mut self, id: PageId, this: impl Fn(&T) -> bool) {
        if self.pages.get(&id).is_some_and(this) {
            self.pages.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;

    #[test]
    fn each_page_has_its_turn() {
        let page = |index| PageId { space: SpaceId(3), index };
        let mut circle = Circle::default();
        (1..=3).for_each(|index| circle.insert(page(index), index));
        let turns = |circle: &mut Circle<u64>, count| -> Vec<u64> {
            (0..count).map_while(|_| circle.next()).map(|(_, value)| value).collect()
        };
        assert_eq!(turns(&mut circle, 4), [1, 2, 3, 1]);
        circle.insert(page(2), 9);
        circle.done(page(2), |value| *value == 2);
        circle.done(page(3), |value| *value == 3);
        assert_eq!(turns(&mut circle, 3), [9, 1, 9]);
    }
}
