//! Where a node's links look for the members.

use live::link::Directory;
use members::Member;
use std::collections::BTreeSet;
use wire::NodeId;

/// Keeps the links' addresses as the views of the members say.
pub(super) struct Addresses {
    own: NodeId,
    known: BTreeSet<NodeId>,
    directory: Directory,
}

impl Addresses {
    /// For the links of the node `own`.
    pub(super) fn new(own: NodeId, directory: &Directory) -> Addresses {
        Addresses { own, known: BTreeSet::new(), directory: directory.clone() }
    }

    /// These are the members now.
    pub(super) fn follow<'a>(&mut self, members: impl Iterator<Item = &'a Member>) {
        let there: BTreeSet<NodeId> =
            members.filter(|member| !member.gone).map(|member| self.reach(member)).collect();
        // A client that lends memory and has left does not come back under its number.
        self.known.difference(&there).for_each(|gone| self.directory.remove(*gone));
        self.known = there;
    }

    fn reach(&self, member: &Member) -> NodeId {
        if member.id != self.own && !member.addresses.is_empty() {
            let addresses = member.addresses.iter().filter_map(|text| text.parse().ok());
            self.directory.set(member.id, addresses.collect());
        }
        member.id
    }
}
