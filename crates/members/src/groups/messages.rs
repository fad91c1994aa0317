//! The messages about groups: pages of the table, and proposals of replicas.

use super::{Change, Group, GroupId, Replica};
use crate::limits::PAGE_BYTES;
use crate::protocol::{decode_page, encode_page};
use wire::codec::Short;
use wire::field::fields;
use wire::limits::BODY_BYTES;

/// A change that a replica proposes: arguments of CHANGE_GROUP.
///
/// A proposal that is retransmitted after it was made is refused as stale, since it has made the next epoch itself. The
/// answer carries the group as it is now, so the proposer that does not know the outcome of its first attempt compares:
/// a group of the next epoch in which the change stands *was* changed as proposed, by this replica or by another with
/// the same intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The group.
    pub group: GroupId,
    /// The replica that proposes.
    pub by: Replica,
    /// The group's epoch by which it was decided.
    pub epoch: u32,
    /// The change.
    pub change: Change,
}

fields!(Proposal { group, by, epoch, change });

/// Operation of [`Channel::LEASES`](wire::Channel::LEASES): the planner asks a group's primary to hand over. It may be
/// repeated.
pub const HAND_OVER: u16 = 110;

/// Arguments of HAND_OVER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOver {
    /// The group.
    pub group: GroupId,
    /// Its epoch by which that was decided.
    pub epoch: u32,
    /// The replica that is to be the primary.
    pub to: Replica,
}

fields!(HandOver { group, epoch, to });

/// A group as the store's table has it: an entry of a page, and the data of each answer to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldGroup {
    /// The table's version that the group came with.
    pub version: u64,
    /// Its number.
    pub id: GroupId,
    /// The group.
    pub group: Group,
}

fields!(ToldGroup { version, id, group });

impl ToldGroup {
    /// Bytes of the largest on the wire.
    pub const BYTES_MAX: usize = 8 + 4 + Group::BYTES_MAX;
}

const _: () = assert!(ToldGroup::BYTES_MAX <= PAGE_BYTES, "a page has room for any group");

/// One page of the groups that have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupsPage {
    /// The table's version. With the last page it is known whole.
    pub version: u64,
    /// In ascending order of their versions, all of them above the version that was asked for.
    pub groups: Vec<ToldGroup>,
    /// Whether no other group has changed since.
    pub last: bool,
}

impl GroupsPage {
    /// The body and the data.
    pub fn encode(&self) -> ([u8; BODY_BYTES], Vec<u8>) {
        encode_page(self.version, &self.groups, self.last)
    }

    /// Reads what [`encode`](GroupsPage::encode) wrote.
    pub fn decode(body: &[u8], data: &[u8]) -> Result<GroupsPage, Short> {
        let (version, groups, last) = decode_page(body, data)?;
        Ok(GroupsPage { version, groups, last })
    }

    /// Whether it can be the answer to one who knows the table up to a version: it goes on from there, and ends.
    pub fn follows(&self, known: u64) -> bool {
        let mut versions = self.groups.iter().map(|told| told.version);
        let ascends = versions.clone().is_sorted_by(|one, next| one < next);
        let begins_above = versions.next().is_none_or(|first| first > known);
        let ends_within = self.groups.last().is_none_or(|last| last.version <= self.version);
        ascends && begins_above && ends_within && (self.last || !self.groups.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::NodeId;
    use wire::field::{Message, encoded};

    fn disk(number: u16) -> Replica {
        Replica { server: NodeId(number), disk: 3, id: u64::MAX - u64::from(number) }
    }

    fn told(version: u64) -> ToldGroup {
        let all: Vec<Replica> = (0..super::super::REPLICAS_MAX as u16).map(disk).collect();
        ToldGroup { version, id: GroupId::FIRST, group: Group::new(2, &all).unwrap() }
    }

    #[test]
    fn proposals_and_pages_survive_the_wire() {
        let change = Change::Remove(disk(2));
        let proposal = Proposal { group: GroupId::FIRST, by: disk(1), epoch: u32::MAX, change };
        assert_eq!(Proposal::decode(&proposal.encode()), Ok(proposal));
        assert_eq!(encoded(&told(1)).len(), ToldGroup::BYTES_MAX);
        let page = GroupsPage { version: 9, groups: vec![told(1), told(u64::MAX)], last: false };
        let (body, data) = page.encode();
        assert_eq!(GroupsPage::decode(&body, &data), Ok(page));
        assert!(GroupsPage::decode(&body, &data[1..]).is_err());
    }

    #[test]
    fn a_page_that_goes_back_or_says_nothing_follows_nothing() {
        let page = |versions: &[u64], last| {
            let groups = versions.iter().map(|version| told(*version)).collect();
            GroupsPage { version: 7, groups, last }
        };
        assert!(page(&[3, 5, 7], true).follows(2));
        assert!(page(&[], true).follows(9), "nothing new");
        assert!(!page(&[], false).follows(2));
        assert!(!page(&[3, 5], true).follows(3));
        assert!(!page(&[5, 5], true).follows(3));
        assert!(!page(&[5, 8], true).follows(3), "above the table's own version");
    }
}
