//! The sites of a manager, and where the others are as far as it knows.

use crate::record::Switching;
use std::collections::BTreeSet;
use wire::{FileId, NodeId, SITES, SiteOwner, Sites};

/// The sites as one manager sees them. That it owns one stands in its store; of the others it knows what it heard.
#[derive(Clone, Debug)]
pub struct Ownership {
    own: NodeId,
    table: Sites,
    /// Sites on their way to another manager: nothing changes in them.
    leaving: BTreeSet<u8>,
    /// All sites are this manager's.
    is_alone: bool,
    /// Number of entries that were learnt since this manager started.
    version: u64,
    /// The volume's setting for new directories.
    pub(crate) switching: Switching,
}

impl Ownership {
    /// Of the manager `own` of a volume that was made at `first`.
    pub fn new(own: NodeId, first: NodeId) -> Ownership {
        let table = Sites::all_at(first);
        let (leaving, switching) = (BTreeSet::new(), Switching::default());
        Ownership { own, table, leaving, is_alone: own == first, version: 0, switching }
    }

    /// This manager.
    pub fn own(&self) -> NodeId {
        self.own
    }

    /// Whether all sites are this manager's, and none is leaving.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether the site is this manager's.
    pub fn owns(&self, site: u8) -> bool {
        self.is_alone || self.table.get(site).manager == self.own
    }

    /// Whether the file is at this manager.
    pub fn has(&self, file: FileId) -> bool {
        self.owns(file.site())
    }

    /// Whether the site is on its way to another manager.
    pub fn is_leaving(&self, site: u8) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(&site)
    }

    /// The table.
    pub fn table(&self) -> &Sites {
        &self.table
    }

    /// Another number whenever the table is another one than before, in one incarnation of the manager. It says nothing
    /// of the tables of others: of two that differ each may have the later entry of some site.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The manager that a site is at.
    pub fn manager(&self, site: u8) -> NodeId {
        self.table.get(site).manager
    }

    /// Number of managers that own a site.
    pub fn managers(&self) -> usize {
        if self.is_alone { 1 } else { self.table.managers().len() }
    }

    /// Learns owners from other managers. If one has got a site of this manager's later than this one's store says, it
    /// is right: the store is a copy from before that. A site becomes this manager's only when its giver says so and it
    /// is loaded, whatever others have heard.
    pub fn hear(&mut self, heard: &Sites) {
        let own = self.own;
        for (site, owner) in heard.iter().filter(|(_, owner)| owner.manager != own) {
            self.learn(site, owner);
        }
        self.note();
    }

    /// The site has this owner from now on, as the store says.
    pub fn set(&mut self, site: u8, owner: SiteOwner) {
        self.learn(site, owner);
        self.note();
    }

    fn learn(&mut self, site: u8, owner: SiteOwner) {
        self.version += u64::from(self.table.learn(site, owner));
    }

    /// The site begins to leave, or stays.
    pub fn set_leaving(&mut self, site: u8, leaves: bool) {
        match leaves {
            true => self.leaving.insert(site),
            false => self.leaving.remove(&site),
        };
        self.note();
    }

    fn note(&mut self) {
        let all_here = self.table.iter().all(|(_, owner)| owner.manager == self.own);
        self.is_alone = all_here && self.leaving.is_empty();
    }
}

/// The next site that `own` hands over so that all of `managers` have as many, and its taker. Site 0, with the root,
/// stays where the volume was made. A manager that is not among them gives away all it has, and gets nothing.
pub fn next_move(sites: &Sites, own: NodeId, managers: &BTreeSet<NodeId>) -> Option<(u8, NodeId)> {
    let count = |manager: NodeId| sites.of(manager).count();
    let share = |at: usize| SITES / managers.len() + usize::from(at < SITES % managers.len());
    let shares = managers.iter().enumerate().map(|(at, manager)| (*manager, share(at)));
    let own_share =
        shares.clone().find(|(manager, _)| *manager == own).map_or(0, |(_, share)| share);
    if count(own) <= own_share {
        return None;
    }
    let lacks = |(manager, share): (NodeId, usize)| (share.saturating_sub(count(manager)), manager);
    let (lack, neediest) = shares.map(lacks).max()?;
    let site = sites.of(own).filter(|site| *site != 0).last()?;
    (lack > 0).then_some((site, neediest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_owner_of_a_site_has_it() {
        let (one, two) = (NodeId(1), NodeId(2));
        let mut sites = Ownership::new(one, one);
        assert!(sites.is_alone() && sites.owns(9));
        sites.hear(&Sites::all_at(two));
        assert!(sites.is_alone(), "no epoch is later");
        sites.set(9, SiteOwner { epoch: 1, manager: two });
        assert!(!sites.owns(9) && sites.owns(8) && sites.managers() == 2);
        sites.set(9, SiteOwner { epoch: 2, manager: one });
        assert!(sites.is_alone());
        sites.set_leaving(9, true);
        assert!(sites.is_leaving(9) && sites.owns(9) && !sites.is_alone());
        sites.set_leaving(9, false);
        let mut heard = Sites::all_at(two);
        assert!(heard.learn(9, SiteOwner { epoch: 5, manager: two }));
        sites.hear(&heard);
        assert!(!sites.owns(9), "this manager's store is an older copy");
        assert!(heard.learn(9, SiteOwner { epoch: 6, manager: one }));
        sites.hear(&heard);
        assert!(!sites.owns(9), "what it owns stands in its own store");
    }

    #[test]
    fn a_table_has_another_version_whenever_it_changes() {
        let (one, two) = (NodeId(1), NodeId(2));
        let mut sites = Ownership::new(one, one);
        let mut heard = Sites::all_at(two);
        let mut versions = BTreeSet::from([sites.version()]);
        for site in 1..100 {
            heard.learn(site, SiteOwner { epoch: 1, manager: two });
            sites.hear(&heard);
            sites.hear(&heard);
            sites.set(site, SiteOwner { epoch: 2, manager: one });
            sites.set_leaving(site, true);
            assert!(versions.insert(sites.version()));
        }
    }

    #[test]
    fn sites_end_spread_evenly_whoever_comes_and_goes() {
        let mut sites = Sites::all_at(NodeId(1));
        let mut epoch = 0;
        for managers in [&[1u16, 2][..], &[1, 2, 3, 4], &[1, 3], &[1], &[1, 2, 3, 4, 5, 6, 7]] {
            let managers: BTreeSet<NodeId> = managers.iter().copied().map(NodeId).collect();
            let mut moves = 0;
            while let Some((site, manager)) =
                (1..8).find_map(|own| next_move(&sites, NodeId(own), &managers))
            {
                epoch += 1;
                assert!(site != 0 && sites.learn(site, SiteOwner { epoch, manager }));
                moves += 1;
                assert!(moves <= SITES, "each site moves once");
            }
            let counts: Vec<usize> = managers.iter().map(|one| sites.of(*one).count()).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
            assert_eq!(counts.iter().sum::<usize>(), SITES);
        }
    }
}
