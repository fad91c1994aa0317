//! Pages reported to a directory that has no entry for them, since all of its entries are hard: mirrors, and versions
//! that are lost.
//!
//! A directory does not grow when a node goes down, and the remaining ones get its part. A holder of such a mirror
//! reports it again and again, and once more in each view; meanwhile the page is not unknown.

use crate::limits::UNLISTED_MAX;
use crate::page::{PageId, Version};
use crate::protocol::Record;
use std::collections::BTreeMap;

/// The newest that was told of each such page.
#[derive(Debug, Default)]
pub struct Unlisted {
    records: BTreeMap<PageId, Record>,
    /// There were more of them in this view.
    more: bool,
}

impl Unlisted {
    /// There was no entry for this.
    pub fn insert(&mut self, record: &Record) {
        let known = self.records.get(&record.id);
        if known.is_some_and(|known| known.version > record.version) {
            return;
        }
        match known.is_some() || self.records.len() < UNLISTED_MAX {
            true => drop(self.records.insert(record.id, *record)),
            false => self.more = true,
        }
    }

    /// The record that was told of a page.
    pub fn get(&self, id: PageId) -> Option<&Record> {
        self.records.get(&id)
    }

    /// Pages of which it was told that there are mirrors.
    pub fn mirrors(&self) -> usize {
        self.records.values().filter(|record| !record.lost).count()
    }

    /// Whether a page that is not known otherwise may be somewhere all the same.
    pub fn may_have(&self, id: PageId) -> bool {
        self.more || self.records.contains_key(&id)
    }

    /// Whether an older version of a page may be known to a holder.
    pub fn may_have_older(&self, id: PageId, version: Version) -> bool {
        self.get(id).map_or(self.more, |known| known.version < version)
    }

    /// The newest version that was told of.
    pub fn version(&self, id: PageId) -> Version {
        self.get(id).map_or(Version::default(), |record| record.version)
    }

    /// The directory knows as much as this version itself, or needs not know it.
    pub fn remove(&mut self, id: PageId, version: Version) {
        if self.version(id) <= version {
            self.records.remove(&id);
        }
    }

    /// A holder has no mirror, or not any more.
    pub fn handle_gone(&mut self, gone: &Record) {
        let is_it = |known: &Record| (known.version, known.holder) == (gone.version, gone.holder);
        if self.get(gone.id).is_some_and(is_it) {
            self.records.remove(&gone.id);
        }
    }

    /// Another view: all mirrors are told anew.
    pub fn begin_view(&mut self) {
        self.more = false;
        self.records.retain(|_, record| record.lost);
    }

    /// Forgets the pages that are not to be kept.
    pub fn retain(&mut self, keeps: impl Fn(PageId) -> bool) {
        self.records.retain(|id, _| keeps(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Holder, Role};
    use crate::page::SpaceId;
    use wire::NodeId;

    fn mirror(index: u64, version: u64, node: u16) -> Record {
        let holder = Holder { node: NodeId(node), incarnation: 1, role: Role::Mirror };
        let (id, version) = (PageId { space: SpaceId::shared(7), index }, Version(version));
        Record { copies: 2, ..Record::new(id, version, holder) }
    }

    #[test]
    fn the_newest_that_was_told_is_known_until_it_is_listed_or_gone() {
        let mut unlisted = Unlisted::default();
        unlisted.insert(&mirror(1, 5, 2));
        unlisted.insert(&mirror(1, 4, 3));
        let id = mirror(1, 5, 2).id;
        assert_eq!((unlisted.get(id), unlisted.mirrors()), (Some(&mirror(1, 5, 2)), 1));
        unlisted.handle_gone(&mirror(1, 5, 3));
        unlisted.remove(id, Version(4));
        assert!(unlisted.may_have(id) && unlisted.version(id) == Version(5));
        unlisted.handle_gone(&mirror(1, 5, 2));
        assert!(!unlisted.may_have(id));
        unlisted.insert(&mirror(1, 6, 2));
        unlisted.remove(id, Version(6));
        assert!(!unlisted.may_have(id));
    }

    #[test]
    fn more_than_can_be_remembered_may_be_any_page() {
        let mut unlisted = Unlisted::default();
        (0..UNLISTED_MAX as u64).for_each(|index| unlisted.insert(&mirror(index, 5, 2)));
        let another = mirror(1 << 40, 5, 2);
        assert!(!unlisted.may_have(another.id));
        unlisted.insert(&Record { lost: true, ..mirror(0, 5, 2) });
        unlisted.insert(&another);
        assert!(unlisted.may_have(another.id) && unlisted.get(another.id).is_none());
        unlisted.begin_view();
        assert!(unlisted.may_have(mirror(0, 5, 2).id), "who would tell it again?");
        assert_eq!(unlisted.mirrors(), 0);
        assert!(!unlisted.may_have(another.id) && !unlisted.may_have(mirror(1, 5, 2).id));
    }
}
