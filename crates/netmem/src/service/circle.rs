//! Pages, or copies of them, to which something is still owed, taken in turn, so that one that fails keeps no other
//! waiting.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Something for each of some pages.
#[derive(Debug)]
pub struct Circle<K, T> {
    owed: BTreeMap<K, T>,
    last: Option<K>,
}

impl<K, T> Default for Circle<K, T> {
    fn default() -> Circle<K, T> {
        Circle { owed: BTreeMap::new(), last: None }
    }
}

impl<K: Ord + Copy, T: Copy> Circle<K, T> {
    /// Replaces the value of this key.
    pub fn insert(&mut self, key: K, value: T) {
        self.owed.insert(key, value);
    }

    /// Whether something is owed to this one.
    pub fn has(&self, key: K) -> bool {
        self.owed.contains_key(&key)
    }

    /// The next one, which stays.
    pub fn next(&mut self) -> Option<(K, T)> {
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.owed.range((after, Bound::Unbounded));
        let next = rest.next().or_else(|| self.owed.iter().next());
        let next = next.map(|(key, value)| (*key, *value));
        self.last = next.map(|(key, _)| key).or(self.last);
        next
    }

    /// Nothing is owed to it any more, if it is still `this`.
    pub fn done(&mut self, key: K, this: impl Fn(&T) -> bool) {
        if self.owed.get(&key).is_some_and(this) {
            self.owed.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{PageId, SpaceId};

    #[test]
    fn each_page_has_its_turn() {
        let page = |index| PageId { space: SpaceId(3), index };
        let mut circle = Circle::default();
        (1..=3).for_each(|index| circle.insert(page(index), index));
        let turns = |circle: &mut Circle<PageId, u64>, count| -> Vec<u64> {
            (0..count).map_while(|_| circle.next()).map(|(_, value)| value).collect()
        };
        assert_eq!(turns(&mut circle, 4), [1, 2, 3, 1]);
        circle.insert(page(2), 9);
        circle.done(page(2), |value| *value == 2);
        circle.done(page(3), |value| *value == 3);
        assert_eq!(turns(&mut circle, 3), [9, 1, 9]);
    }
}
