//! Which shared pages this node may write to.
//!
//! Invariant: a page is here from the grant until the node has given its lease back; so whoever asks at any moment what
//! this node writes to hears of it.

use crate::page::{PageId, Version};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Pages of shared spaces that this node may write to, and those that it asks for.
#[derive(Debug, Default)]
pub struct Writing {
    granted: BTreeMap<PageId, Granted>,
    /// Pages that are being asked for.
    asked: BTreeMap<PageId, Asked>,
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
struct Asked {
    under_way: usize,
    /// Times that the lease was taken back meanwhile.
    revoked: u64,
}

/// What this node may do to a page.
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
    /// What the node may do to a page.
    pub fn right(&self, id: PageId) -> Right {
        match self.granted.get(&id) {
            None => Right::None,
            Some(granted) if granted.gives_back => Right::GivesBack,
            Some(granted) => Right::Writes(granted.version),
        }
    }

    /// Whether the node is a page's writer, as far as the directory knows.
    pub fn has(&self, id: PageId) -> bool {
        self.granted.contains_key(&id)
    }

    /// The newest version of a page that the node writes to.
    pub fn newest(&self, id: PageId) -> Option<Version> {
        self.granted.get(&id).map(|granted| granted.version)
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

    /// What is not to be kept is not granted any more.
    pub fn retain(&mut self, keeps: impl Fn(PageId) -> bool) {
        self.granted.retain(|id, _| keeps(*id));
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

/// A request for a lease. What was granted before the lease was taken back may arrive after that, and is worth nothing.
pub struct Ask<'a> {
    writing: &'a RefCell<Writing>,
    id: PageId,
    revoked: u64,
}

impl<'a> Ask<'a> {
    /// A request begins.
    pub fn new(writing: &'a RefCell<Writing>, id: PageId) -> Ask<'a> {
        let mut table = writing.borrow_mut();
        let asked = table.asked.entry(id).or_default();
        asked.under_way += 1;
        Ask { writing, id, revoked: asked.revoked }
    }

    /// Whether the lease was not taken back since.
    pub fn is_current(&self) -> bool {
        let table = self.writing.borrow();
        table.asked.get(&self.id).is_some_and(|asked| asked.revoked == self.revoked)
    }

    /// It was granted, `version` being the newest that the directory knows.
    pub fn grant(&self, version: Version) {
        let mut table = self.writing.borrow_mut();
        let granted = Granted { version, gives_back: false };
        let known = table.granted.entry(self.id).or_insert(granted);
        known.version = known.version.max(version);
    }
}

impl Drop for Ask<'_> {
    fn drop(&mut self) {
        let mut table = self.writing.borrow_mut();
        let asked = table.asked.get_mut(&self.id).expect("it began");
        asked.under_way -= 1;
        if asked.under_way == 0 {
            table.asked.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::SpaceId;

    const ID: PageId = PageId { space: SpaceId(4), index: 9 };

    #[test]
    fn what_was_granted_before_the_lease_was_taken_back_is_noticed() {
        let writing = RefCell::new(Writing::default());
        let (early, late) = (Ask::new(&writing, ID), Ask::new(&writing, ID));
        assert!(early.is_current() && late.is_current());
        assert_eq!(writing.borrow_mut().begin_giving_back(ID), Ok(None));
        assert!(!early.is_current() && !late.is_current());
        let after = Ask::new(&writing, ID);
        assert!(after.is_current());
        drop((early, late, after));
        assert!(writing.borrow().asked.is_empty());
    }

    #[test]
    fn a_page_is_written_until_it_is_taken_back_and_named_until_it_is_given() {
        let writing = RefCell::new(Writing::default());
        Ask::new(&writing, ID).grant(Version(7));
        let mut table = writing.borrow_mut();
        assert_eq!(table.right(ID), Right::Writes(Version(7)));
        table.wrote(ID, Version(9));
        assert_eq!(table.begin_giving_back(ID), Ok(Some(Version(9))));
        assert_eq!(table.begin_giving_back(ID), Err(UnderWay));
        assert_eq!(table.right(ID), Right::GivesBack);
        assert_eq!(table.iter().collect::<Vec<_>>(), [(ID, Version(9))]);
        table.end_giving_back(ID, false);
        assert_eq!(table.right(ID), Right::Writes(Version(9)));
        table.begin_giving_back(ID).unwrap();
        table.end_giving_back(ID, true);
        assert_eq!((table.right(ID), table.iter().count()), (Right::None, 0));
    }
}
