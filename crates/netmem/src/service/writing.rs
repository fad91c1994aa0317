//! The shared pages that this node may write to.
//!
//! Invariant: a page is here from the grant until the node has given its lease back, so this names at any moment all
//! pages that the node writes to.

use crate::page::{PageId, Version};
use std::collections::BTreeMap;

/// Pages of shared spaces that this node may write to, and those that it asks for.
#[derive(Debug, Default)]
pub struct Writing {
    granted: BTreeMap<PageId, Granted>,
    /// Pages that are being asked for.
    asked: BTreeMap<PageId, Requests>,
}

#[derive(Debug)]
struct Granted {
    /// The newest: when it was granted, or written since.
    version: Version,
    /// The directory takes it back just now: nothing is written any more.
    gives_back: bool,
}

/// Requests for one lease.
#[derive(Debug, Default)]
struct Requests {
    under_way: usize,
    /// Times that the lease was taken back meanwhile.
    revoked: u64,
}

/// The accesses that this node has to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Nothing until it is granted a lease.
    None,
    /// Write a version newer than this one.
    Writes(Version),
    /// Nothing: it is giving its lease back.
    GivesBack,
}

/// The lease is being given back already.
#[derive(Debug, PartialEq, Eq)]
pub struct UnderWay;

impl Writing {
    /// The accesses that the node has to a page.
    pub fn right(&self, id: PageId) -> Right {
        match self.granted.get(&id) {
            None => Right::None,
            Some(granted) if granted.gives_back => Right::GivesBack,
            Some(granted) => Right::Writes(granted.version),
        }
    }

    /// Whether the node may write to a page now.
    pub fn may_write(&self, id: PageId) -> bool {
        matches!(self.right(id), Right::Writes(_))
    }

    /// Whether the node is a page's writer, as far as the directory knows.
    pub fn has(&self, id: PageId) -> bool {
        self.granted.contains_key(&id)
    }

    /// The node has written to a page, of a shared space or not.
    pub fn wrote(&mut self, id: PageId, version: Version) {
        let granted = self.granted.get_mut(&id);
        granted.into_iter().for_each(|granted| granted.version = version);
    }

    /// All of them, with the newest version of each.
    pub fn iter(&self) -> impl Iterator<Item = (PageId, Version)> + '_ {
        self.granted.iter().map(|(id, granted)| (*id, granted.version))
    }

    /// Forgets the grants of pages that are not kept.
    pub fn retain(&mut self, keeps: impl Fn(PageId) -> bool) {
        self.granted.retain(|id, _| keeps(*id));
    }

    /// A request for a lease begins. Answers with what [`handle_granted`](Writing::handle_granted) is told.
    pub fn begin_ask(&mut self, id: PageId) -> u64 {
        let asked = self.asked.entry(id).or_default();
        asked.under_way += 1;
        asked.revoked
    }

    /// A lease was granted to a request that had `begun` so, `version` being the newest that the directory knows. A
    /// grant may arrive after its lease was revoked, and is void then: says whether it is valid.
    pub fn handle_granted(&mut self, id: PageId, begun: u64, version: Version) -> bool {
        let current = self.asked.get(&id).is_some_and(|asked| asked.revoked == begun);
        if current {
            let granted = Granted { version, gives_back: false };
            let known = self.granted.entry(id).or_insert(granted);
            known.version = known.version.max(version);
        }
        current
    }

    /// A request has ended, granted or not.
    pub fn end_ask(&mut self, id: PageId) {
        let asked = self.asked.get_mut(&id).expect("it began");
        asked.under_way -= 1;
        if asked.under_way == 0 {
            self.asked.remove(&id);
        }
    }

    /// The directory takes a lease back, of a page that this node may not have: nothing is written from now on, and
    /// no grant counts that is still on its way. Answers with the newest version.
    pub fn begin_giving_back(&mut self, id: PageId) -> Result<Option<Version>, UnderWay> {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.revoked += 1;
        }
        let Some(granted) = self.granted.get_mut(&id) else { return Ok(None) };
        let before = std::mem::replace(&mut granted.gives_back, true);
        if before { Err(UnderWay) } else { Ok(Some(granted.version)) }
    }

    /// It is `given` back, or the node stays the writer.
    pub fn end_giving_back(&mut self, id: PageId, given: bool) {
        if given {
            self.granted.remove(&id);
        } else if let Some(granted) = self.granted.get_mut(&id) {
            granted.gives_back = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;

    const ID: PageId = PageId { space: SpaceId(4), index: 9 };

    #[test]
    fn what_was_granted_before_the_lease_was_taken_back_counts_for_nothing() {
        let mut writing = Writing::default();
        let (early, late) = (writing.begin_ask(ID), writing.begin_ask(ID));
        assert_eq!(writing.begin_giving_back(ID), Ok(None));
        assert!(!writing.handle_granted(ID, early, Version(7)));
        assert!(!writing.handle_granted(ID, late, Version(7)));
        assert_eq!(writing.right(ID), Right::None);
        let after = writing.begin_ask(ID);
        assert!(writing.handle_granted(ID, after, Version(7)));
        assert_eq!(writing.right(ID), Right::Writes(Version(7)));
        (0..3).for_each(|_| writing.end_ask(ID));
        assert!(writing.asked.is_empty());
    }

    #[test]
    fn a_page_is_written_until_it_is_taken_back_and_named_until_it_is_given() {
        let mut table = Writing::default();
        let begun = table.begin_ask(ID);
        table.handle_granted(ID, begun, Version(7));
        table.end_ask(ID);
        assert_eq!(table.right(ID), Right::Writes(Version(7)));
        table.wrote(ID, Version(9));
        assert_eq!(table.begin_giving_back(ID), Ok(Some(Version(9))));
        assert_eq!(table.begin_giving_back(ID), Err(UnderWay));
        assert!(table.right(ID) == Right::GivesBack && !table.may_write(ID));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(ID, Version(9))]);
        table.end_giving_back(ID, false);
        assert_eq!(table.right(ID), Right::Writes(Version(9)));
        table.begin_giving_back(ID).unwrap();
        table.end_giving_back(ID, true);
        assert_eq!((table.right(ID), table.iter().count()), (Right::None, 0));
    }
}
