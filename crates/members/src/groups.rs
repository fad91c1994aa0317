//! Groups: the replicas of some columns of files, and how they change (DESIGN 12; PacificA, MSR-TR-2008-25, section 2).
//!
//! A column is kept by a group, and a group by disks. A change is a compare-and-swap of the group's record in the
//! coordination store: it names the epoch that it was decided by, and makes the next one.
//!
//! ```text
//!             Add                   Admit, by the primary
//!   no disk ───────► replica ──────────────────────► in sync
//!             ◄───────        ◄──────────────────────
//!             Drop                  Remove, by one that stays in sync
//! ```
//!
//! Invariants: a group is never without a replica in sync; its epoch grows with every change; the primary is the first
//! replica in sync; a replica that was removed is in sync again only when the primary has admitted it.

mod known;
mod messages;
mod plan;
mod seat;
mod stored;
mod table;

pub use known::Groups;
pub use messages::{GroupsPage, HAND_OVER, HandOver, Proposal, ToldGroup};
pub use plan::{Disk, Plan, Shape, Step};
pub use seat::{GRACE, LEASE_SPAN, Memory, Refused, Seat, Word};
pub(crate) use stored::StoredTable;
pub use table::Table;

use arrayvec::ArrayVec;
pub use wire::GroupId;
use wire::codec::{Decoder, Short};
use wire::field::{Field, Output, fields};
use wire::{Errno, NodeId};

/// Most replicas of a group, those that are being filled and those that are to go included.
pub const REPLICAS_MAX: usize = 6;

/// A disk of an I/O server, and which one: a number is used again when a disk is replaced, an id is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// The server.
    pub server: NodeId,
    /// The disk's number there.
    pub disk: u8,
    /// The id in the disk's label.
    pub id: u64,
}
fields!(Replica { server, disk, id });

impl Replica {
    /// Bytes on the wire.
    pub const BYTES: usize = 2 + 1 + 8;

    /// The disk of this number on a server, by the id in its label.
    pub fn of_label(server: NodeId, disk: u8, label: u128) -> Replica {
        Replica { server, disk, id: (label >> 64) as u64 ^ label as u64 }
    }
}

/// The replicas of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    epoch: u32,
    copies: u8,
    /// In order: who is the primary, and who would be next.
    replicas: ArrayVec<Replica, REPLICAS_MAX>,
    /// A bit for each of them.
    in_sync: u8,
}

/// A change of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A replica is in sync no more: one that goes on without it proposes that. It is the last in order from now on.
    Remove(Replica),
    /// A replica has all that the primary has, which proposes it.
    Admit(Replica),
    /// A disk becomes a replica, which is to be filled.
    Add(Replica),
    /// A disk is no replica any more.
    Drop(Replica),
    /// A replica in sync becomes the primary; the primary proposes that, and serves no more until it hears the outcome.
    Lead(Replica),
    /// So many copies are to be kept.
    Keep(u8),
    /// Nothing but the epoch: the primary proposes that to know that a proposal of its own, whose outcome it has not
    /// heard, is not made any more.
    Fence,
}

/// Why a change is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It was decided by an earlier epoch.
    #[error("the group has changed meanwhile")]
    Stale,
    /// The proposer may not.
    #[error("only {0} may propose this")]
    NotYours(&'static str),
    /// No replica in sync would be left, or fewer than are to be kept.
    #[error("too few replicas in sync would be left")]
    TooFew,
    /// It is no replica, or is one, or is in sync already.
    #[error("the replica is not in the state that the change begins with")]
    NoChange,
    /// There are [`REPLICAS_MAX`].
    #[error("the group has as many replicas as a group may have")]
    Full,
}

impl Change {
    /// Whether it is for a replica to propose, and not for the planner.
    pub fn is_of_replicas(self) -> bool {
        use Change::{Admit, Fence, Lead, Remove};
        matches!(self, Remove(_) | Admit(_) | Lead(_) | Fence)
    }
}

impl<'a> Field<'a> for Change {
    fn put(&self, out: &mut impl Output) {
        match *self {
            Change::Remove(replica) => (1u8, replica).put(out),
            Change::Admit(replica) => (2u8, replica).put(out),
            Change::Add(replica) => (3u8, replica).put(out),
            Change::Drop(replica) => (4u8, replica).put(out),
            Change::Lead(replica) => (5u8, replica).put(out),
            Change::Keep(copies) => (6u8, copies).put(out),
            Change::Fence => 7u8.put(out),
        }
    }

    fn take(input: &mut Decoder<'a>) -> Result<Change, Short> {
        Ok(match input.u8()? {
            1 => Change::Remove(Field::take(input)?),
            2 => Change::Admit(Field::take(input)?),
            3 => Change::Add(Field::take(input)?),
            4 => Change::Drop(Field::take(input)?),
            5 => Change::Lead(Field::take(input)?),
            6 => Change::Keep(Field::take(input)?),
            7 => Change::Fence,
            _ => return Err(Short),
        })
    }
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Errno {
        match refusal {
            Refusal::Stale => Errno::ESTALE,
            Refusal::NotYours(_) => Errno::EPERM,
            Refusal::TooFew | Refusal::NoChange | Refusal::Full => Errno::EINVAL,
        }
    }
}

impl Group {
    /// The bytes of the largest on the wire.
    pub const BYTES_MAX: usize = 3 + 4 + REPLICAS_MAX * Replica::BYTES;

    /// A new group of these disks, all in sync since they are empty. `None` without a disk, with more than
    /// [`REPLICAS_MAX`], or with one twice.
    pub fn new(copies: u8, replicas: &[Replica]) -> Option<Group> {
        let distinct = (1..replicas.len()).all(|at| !replicas[..at].contains(&replicas[at]));
        let count = replicas.len();
        (distinct && (1..=REPLICAS_MAX).contains(&count)).then(|| Group {
            epoch: 1,
            copies,
            replicas: replicas.iter().copied().collect(),
            in_sync: (1 << count) - 1,
        })
    }

    /// Grows with every change.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How many are to be kept.
    pub fn copies(&self) -> u8 {
        self.copies
    }

    /// All, in order.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Those in sync, in order; the first is the primary.
    pub fn in_sync(&self) -> impl Iterator<Item = Replica> + Clone + '_ {
        let all = self.replicas.iter().enumerate();
        all.filter(|(at, _)| self.in_sync >> at & 1 == 1).map(|(_, replica)| *replica)
    }

    /// Whether a replica is in sync.
    pub fn is_in_sync(&self, replica: Replica) -> bool {
        self.in_sync().any(|other| other == replica)
    }

    /// The replica that orders writes.
    pub fn primary(&self) -> Replica {
        self.in_sync().next().expect("one is in sync")
    }

    /// Replicas in sync that it has too few of.
    pub fn lacks(&self) -> u8 {
        self.copies.saturating_sub(self.in_sync.count_ones() as u8)
    }

    fn place(&self, replica: Replica) -> Result<usize, Refusal> {
        self.replicas.iter().position(|other| *other == replica).ok_or(Refusal::NoChange)
    }

    /// The group after a change that `by` decided when it knew `epoch`; `None` is the planner.
    pub fn after(&self, by: Option<Replica>, epoch: u32, change: Change) -> Result<Group, Refusal> {
        if epoch != self.epoch {
            return Err(Refusal::Stale);
        }
        let mut next = Group { epoch: epoch + 1, ..self.clone() };
        match change {
            Change::Remove(replica) => next.remove(by, replica)?,
            Change::Admit(replica) => next.admit(by, replica)?,
            Change::Add(replica) => next.add(by, replica)?,
            Change::Drop(replica) => next.drop_replica(by, replica)?,
            Change::Lead(replica) => next.lead(by, replica)?,
            Change::Keep(copies) if copies == self.copies => return Err(Refusal::NoChange),
            Change::Keep(copies) => next.copies = copies,
            Change::Fence => next.by_primary(by)?,
        }
        next.check();
        Ok(next)
    }

    fn remove(&mut self, by: Option<Replica>, replica: Replica) -> Result<(), Refusal> {
        let at = self.place(replica)?;
        if !self.is_in_sync(replica) {
            return Err(Refusal::NoChange);
        }
        if self.in_sync.count_ones() == 1 {
            return Err(Refusal::TooFew);
        }
        if by.is_none_or(|by| by == replica || !self.is_in_sync(by)) {
            return Err(Refusal::NotYours("another replica in sync"));
        }
        self.move_to(at, self.replicas.len() - 1);
        self.in_sync &= !(1 << (self.replicas.len() - 1));
        Ok(())
    }

    fn admit(&mut self, by: Option<Replica>, replica: Replica) -> Result<(), Refusal> {
        self.by_primary(by)?;
        let at = self.place(replica)?;
        if self.is_in_sync(replica) {
            return Err(Refusal::NoChange);
        }
        self.in_sync |= 1 << at;
        // not before the primary that has admitted it
        let last = self.replicas.len() - 1;
        self.move_to(at, last);
        Ok(())
    }

    fn add(&mut self, by: Option<Replica>, replica: Replica) -> Result<(), Refusal> {
        by_planner(by)?;
        let disk = (replica.server, replica.disk);
        if self.replicas.iter().any(|other| (other.server, other.disk) == disk) {
            return Err(Refusal::NoChange);
        }
        self.replicas.try_push(replica).map_err(|_| Refusal::Full)
    }

    fn drop_replica(&mut self, by: Option<Replica>, replica: Replica) -> Result<(), Refusal> {
        by_planner(by)?;
        let at = self.place(replica)?;
        if self.is_in_sync(replica) {
            if self.primary() == replica {
                return Err(Refusal::NotYours("none: the primary hands over first"));
            }
            if self.in_sync.count_ones() <= u32::from(self.copies) {
                return Err(Refusal::TooFew);
            }
        }
        self.move_to(at, self.replicas.len() - 1);
        self.replicas.pop();
        self.in_sync &= (1 << self.replicas.len()) - 1;
        Ok(())
    }

    fn lead(&mut self, by: Option<Replica>, replica: Replica) -> Result<(), Refusal> {
        self.by_primary(by)?;
        let at = self.place(replica)?;
        if !self.is_in_sync(replica) || self.primary() == replica {
            return Err(Refusal::NoChange);
        }
        self.move_to(at, 0);
        Ok(())
    }

    fn by_primary(&self, by: Option<Replica>) -> Result<(), Refusal> {
        let is_primary = by == Some(self.primary());
        if is_primary { Ok(()) } else { Err(Refusal::NotYours("the primary")) }
    }

    /// Changes the order of one, which keeps whether it is in sync.
    fn move_to(&mut self, from: usize, to: usize) {
        let synced: ArrayVec<bool, REPLICAS_MAX> =
            (0..self.replicas.len()).map(|at| self.in_sync >> at & 1 == 1).collect();
        let mut both: ArrayVec<(Replica, bool), REPLICAS_MAX> =
            self.replicas.iter().copied().zip(synced).collect();
        let moved = both.remove(from);
        both.insert(to, moved);
        self.in_sync = (0..).zip(&both).map(|(at, (_, synced))| u8::from(*synced) << at).sum();
        self.replicas = both.into_iter().map(|(replica, _)| replica).collect();
    }

    fn check(&self) {
        assert!(self.is_whole(), "a change leaves a group that can be: {self:?}");
    }

    fn is_whole(&self) -> bool {
        let known = (1u16 << self.replicas.len()) - 1;
        let distinct = |at| !self.replicas[..at].contains(&self.replicas[at]);
        self.epoch > 0
            && self.in_sync != 0
            && u16::from(self.in_sync) & !known == 0
            && (1..self.replicas.len()).all(distinct)
    }
}

fn by_planner(by: Option<Replica>) -> Result<(), Refusal> {
    if by.is_none() { Ok(()) } else { Err(Refusal::NotYours("the planner")) }
}

impl<'a> Field<'a> for Group {
    fn put(&self, out: &mut impl Output) {
        [self.copies, self.in_sync, self.replicas.len() as u8].put(out);
        self.epoch.put(out);
        self.replicas.iter().for_each(|replica| replica.put(out));
    }

    fn take(input: &mut Decoder<'a>) -> Result<Group, Short> {
        let [copies, in_sync, count] = Field::take(input)?;
        let epoch = Field::take(input)?;
        let mut replicas = ArrayVec::new();
        for _ in 0..count {
            replicas.try_push(Replica::take(input)?).map_err(|_| Short)?;
        }
        let group = Group { epoch, copies, replicas, in_sync };
        if group.is_whole() { Ok(group) } else { Err(Short) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::field::encoded;

    fn disk(number: u8) -> Replica {
        Replica { server: NodeId(number.into()), disk: 0, id: u64::from(number) + 100 }
    }

    fn change() -> impl Strategy<Value = Change> {
        let of =
            |change: fn(Replica) -> Change| (0..8u8).prop_map(move |number| change(disk(number)));
        prop_oneof![
            of(Change::Remove),
            of(Change::Admit),
            of(Change::Add),
            of(Change::Drop),
            of(Change::Lead),
            (1..4u8).prop_map(Change::Keep),
        ]
    }

    proptest! {
        /// Whatever is proposed, by whom and in which epoch.
        #[test]
        fn a_group_is_never_without_a_replica_in_sync_and_only_the_primary_admits(
            steps in proptest::collection::vec((change(), proptest::option::of(0..8u8), 0..2u32), 0..60)
        ) {
            let mut group = Group::new(2, &[disk(0), disk(1)]).unwrap();
            for (change, by, behind) in steps {
                let (by, epoch) = (by.map(disk), group.epoch().saturating_sub(behind));
                let Ok(next) = group.after(by, epoch, change) else { continue };
                prop_assert_eq!(next.epoch(), group.epoch() + 1);
                prop_assert_eq!(epoch, group.epoch());
                prop_assert!(next.in_sync().count() > 0);
                for replica in next.in_sync().filter(|replica| !group.is_in_sync(*replica)) {
                    prop_assert_eq!(change, Change::Admit(replica));
                    prop_assert_eq!(by, Some(group.primary()));
                    prop_assert_ne!(next.primary(), replica, "it is not the primary at once");
                }
                if next.primary() != group.primary() {
                    let ended = change == Change::Remove(group.primary());
                    let handed = change == Change::Lead(next.primary()) && by == Some(group.primary());
                    prop_assert!(ended || handed, "{:?}", change);
                    prop_assert!(group.is_in_sync(next.primary()));
                }
                if next.in_sync().count() < group.in_sync().count() && by.is_none() {
                    prop_assert!(next.in_sync().count() >= usize::from(group.copies()));
                }
                prop_assert_eq!(Group::take(&mut Decoder::new(&encoded(&next))), Ok(next.clone()));
                group = next;
            }
        }
    }

    #[test]
    fn a_replica_that_was_removed_is_last_when_it_is_back() {
        let group = Group::new(2, &[disk(0), disk(1)]).unwrap();
        let alone = group.after(Some(disk(1)), 1, Change::Remove(disk(0))).unwrap();
        assert_eq!((alone.primary(), alone.lacks()), (disk(1), 1));
        assert_eq!(alone.after(Some(disk(0)), 2, Change::Remove(disk(1))), Err(Refusal::TooFew));
        let back = alone.after(Some(disk(1)), 2, Change::Admit(disk(0))).unwrap();
        assert_eq!((back.primary(), back.lacks()), (disk(1), 0));
    }

    #[test]
    fn the_largest_group_and_every_change_survive_the_wire() {
        let all: Vec<Replica> = (0..REPLICAS_MAX as u8).map(disk).collect();
        let group = Group::new(3, &all).unwrap();
        assert_eq!(encoded(&group).len(), Group::BYTES_MAX);
        assert_eq!(encoded(&disk(1)).len(), Replica::BYTES);
        let of_disks = [Change::Remove, Change::Admit, Change::Add, Change::Drop, Change::Lead];
        let others = [Change::Keep(3), Change::Fence];
        for change in of_disks.map(|change| change(disk(9))).into_iter().chain(others) {
            assert_eq!(Change::take(&mut Decoder::new(&encoded(&change))), Ok(change));
        }
        assert!(Change::take(&mut Decoder::new(&[0; 12])).is_err());
        assert!(Change::take(&mut Decoder::new(&[8; 12])).is_err());
    }

    #[test]
    fn records_that_cannot_be_are_refused() {
        let group = Group::new(2, &[disk(0), disk(1)]).unwrap();
        let bytes = encoded(&group);
        let decoded = |bytes: &[u8]| Group::take(&mut Decoder::new(bytes));
        assert_eq!(decoded(&bytes), Ok(group));
        for (at, wrong) in [(1, 0), (1, 4), (2, 7), (2, 0), (3, 0)] {
            let mut bytes = bytes.clone();
            bytes[at] = wrong;
            assert!(decoded(&bytes).is_err(), "byte {at} = {wrong}");
        }
    }
}
