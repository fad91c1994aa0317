//! Which manager owns which site of the name space.
//!
//! A site is what moves between managers as a whole: the files whose id begins with its number. Each has an epoch that
//! grows when it gets another owner, so that of two tables the later entry of each site is known, from any source. A
//! table says only where to ask: whether a manager owns a site stands in its own store.

use crate::field::{Field, Output};
use crate::{Decoder, FileId, NodeId, Short};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;

/// Sites of a volume.
pub const SITES: usize = 256;

/// The owner of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteOwner {
    /// Grows with each new owner.
    pub epoch: u32,
    /// The manager.
    pub manager: NodeId,
}
crate::fields!(SiteOwner { epoch, manager });

/// All sites with their owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites(Box<[SiteOwner; SITES]>);

impl Sites {
    /// Bytes of a table.
    pub const BYTES: usize = SITES * 6;

    /// All of them at one manager, as in a new volume.
    pub fn all_at(manager: NodeId) -> Sites {
        Sites(Box::new([SiteOwner { epoch: 0, manager }; SITES]))
    }

    /// The owner of a site.
    pub fn get(&self, site: u8) -> SiteOwner {
        self.0[usize::from(site)]
    }

    /// The manager that a file is at.
    pub fn manager_of(&self, file: FileId) -> NodeId {
        self.get(file.site()).manager
    }

    /// The site has this owner from now on, if that is later than what is known; whether it is.
    pub fn learn(&mut self, site: u8, owner: SiteOwner) -> bool {
        let known = &mut self.0[usize::from(site)];
        let is_later = owner.epoch > known.epoch;
        if is_later {
            *known = owner;
        }
        is_later
    }

    /// Takes the later entry of each site; whether any was later.
    pub fn learn_all(&mut self, other: &Sites) -> bool {
        other.iter().fold(false, |later, (site, owner)| self.learn(site, owner) || later)
    }

    /// All sites, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u8, SiteOwner)> + '_ {
        (0..=u8::MAX).zip(self.0.iter().copied())
    }

    /// The sites of one manager.
    pub fn of(&self, manager: NodeId) -> impl Iterator<Item = u8> + '_ {
        self.iter().filter(move |(_, owner)| owner.manager == manager).map(|(site, _)| site)
    }

    /// All managers that own a site.
    pub fn managers(&self) -> BTreeSet<NodeId> {
        self.0.iter().map(|owner| owner.manager).collect()
    }
}

impl<'a> Field<'a> for Sites {
    fn put(&self, out: &mut impl Output) {
        self.0.iter().for_each(|owner| owner.put(out));
    }

    fn take(input: &mut Decoder<'a>) -> Result<Sites, Short> {
        let mut sites = Sites::all_at(NodeId(0));
        for owner in sites.0.iter_mut() {
            *owner = SiteOwner::take(input)?;
        }
        Ok(sites)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::encoded;

    #[test]
    fn tables_survive_and_the_later_entry_of_each_site_wins() {
        let mut one = Sites::all_at(NodeId(1));
        let mut two = one.clone();
        assert!(one.learn(7, SiteOwner { epoch: 1, manager: NodeId(2) }));
        assert!(!one.learn(7, SiteOwner { epoch: 1, manager: NodeId(3) }), "of the same epoch");
        assert!(two.learn(9, SiteOwner { epoch: 2, manager: NodeId(4) }));
        assert!(one.learn_all(&two) && two.learn_all(&one) && !two.learn_all(&one));
        assert_eq!(one, two);
        assert_eq!(one.manager_of(FileId::new(7, 5)), NodeId(2));
        assert_eq!(one.of(NodeId(4)).collect::<alloc::vec::Vec<_>>(), [9]);
        assert_eq!(one.managers().len(), 3);
        let bytes = encoded(&one);
        assert_eq!(bytes.len(), Sites::BYTES);
        assert_eq!(Sites::take(&mut Decoder::new(&bytes)), Ok(one));
        assert!(Sites::take(&mut Decoder::new(&bytes[1..])).is_err());
    }
}
