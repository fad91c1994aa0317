//! The messages of the membership service, on [`Channel::MEMBERS`](wire::Channel::MEMBERS).
//!
//! | op | body | data | answer's body | answer's data |
//! | --- | --- | --- | --- | --- |
//! | JOIN | incarnation 8, wish 2, roles 1, disks 4, lends MiB 4 | name, count 1, addresses | as of RENEW | |
//! | RENEW | id 2, incarnation 8 | | id 2, lease ms 4, view 8, lenders' view 8, incarnation 8, groups' version 8 | |
//! | LEAVE | id 2, incarnation 8 | | | |
//! | STOPPING | id 2, incarnation 8 | | | |
//! | VIEW | after 2 | | view 8, count 2, last page 1 | members |
//! | FORGET | id 2, disk 1 (255: all of it) | | view 8 | |
//! | RETIRE | id 2, retired 1 | | | |
//! | DRAINED | id 2, incarnation 8 | | | |
//! | LENDERS | after 2 | | lenders' view 8, count 2, last page 1 | lenders: id 2, incarnation 8, MiB 4 |
//! | DISKS | id 2, incarnation 8, replacing 4 | disks: number 2, id 16, age at the start 16, age now 16 | foreign 4, older 4, needed 4 | |
//! | GROUPS | version 8 | | version 8, count 2, last page 1 | groups: version 8, number 4, group |
//! | CHANGE_GROUP | number 4, by 11, epoch 4, change 1 to 12 | | | the group as it is now: version 8, number 4, group |
//! | EMPTY | id 2, disks 4, emptied 1 | | | |
//! | PLAN | | | primaries to hand over 8, count 2, settled 1 | emptied: server 2, disks 4 |
//!
//! JOIN, LEAVE and CHANGE_GROUP are executed once; a repeated FORGET changes nothing. A CHANGE_GROUP that is refused
//! has the status ESTALE (the group has another epoch), EPERM (another one may propose that) or EINVAL (the group is
//! not in the state that the change begins with); it answers with the group all the same. GROUPS tells what has changed
//! after the version that the asker knows, in the order of the changes, so it goes on where it was left. A VIEW or list
//! of LENDERS larger than a page is asked for in steps, each after the last id of the one before; when its number
//! changes in between, the asker starts again.

use crate::limits::{ADDRESS_BYTES_MAX, ADDRESSES_MAX, NAME_BYTES_MAX};
use crate::membership::Up;
use std::ops::BitOr;
use std::time::Duration;
use wire::codec::{Decoder, Encoder, Short};
use wire::field::{Field, Output, encoded, fields};
use wire::limits::BODY_BYTES;
use wire::{Errno, NodeId};

/// Becomes a member, or tells new addresses.
pub const JOIN: u16 = 1;
/// Stays a member.
pub const RENEW: u16 = 2;
/// Stops being one.
pub const LEAVE: u16 = 3;
/// Asks who the members are.
pub const VIEW: u16 = 4;
/// Asks who takes part in network memory.
pub const LENDERS: u16 = 5;
/// Marks a file manager that is to give away what it owns, or is to own a share again.
pub const RETIRE: u16 = 9;
/// A retired file manager owns nothing any more, and never will again while it is retired.
pub const DRAINED: u16 = 10;
/// Declares a server, or one of its disks, gone for good.
pub const FORGET: u16 = 7;

/// The refusal of a server that was declared gone, or that has a disk which was.
pub const DECLARED_GONE: Errno = Errno::ENXIO;

/// Tells that a server stops cleanly: the answer comes when the manager has told it how far its own store is.
pub const STOPPING: u16 = 8;

/// Tells the disks of a member, and asks which of them may be served.
pub const DISKS: u16 = 6;

/// Asks which groups have changed.
pub const GROUPS: u16 = 11;
/// Proposes a change of a group, as one of its replicas.
pub const CHANGE_GROUP: u16 = 12;
/// Marks disks of a server that are to be emptied of replicas, or are to get some again.
pub const EMPTY: u16 = 13;
/// Asks how far the planner of groups is.
pub const PLAN: u16 = 14;

/// Whether the operation may be executed twice, so that no reply is kept for it.
pub fn is_pure(op: u16) -> bool {
    !matches!(op, JOIN | LEAVE | CHANGE_GROUP)
}

/// The roles of a node in the cluster: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Roles(u8);

impl Roles {
    /// Keeps blocks.
    pub const IO: Roles = Roles(1);
    /// Keeps the name space.
    pub const MANAGER: Roles = Roles(2);
    /// Uses the cluster.
    pub const CLIENT: Roles = Roles(4);
    /// Lends its memory.
    pub const MEMORY: Roles = Roles(8);
    const ALL: u8 = 15;

    /// The set with these bits; `None` when it is empty or has unknown ones.
    pub fn parse(bits: u8) -> Option<Roles> {
        (bits != 0 && bits & !Roles::ALL == 0).then_some(Roles(bits))
    }

    /// Whether all of `roles` are in the set.
    pub fn contains(self, roles: Roles) -> bool {
        self.0 & roles.0 == roles.0
    }

    /// Whether the node has its id for ever: it keeps data, or it is there for others only.
    pub fn is_server(self) -> bool {
        let keeps_data = self.0 & (Roles::IO.0 | Roles::MANAGER.0) != 0;
        keeps_data || !self.contains(Roles::CLIENT)
    }

    /// The set as bits.
    pub fn bits(self) -> u8 {
        self.0
    }
}

impl BitOr for Roles {
    type Output = Roles;
    fn bitor(self, other: Roles) -> Roles {
        Roles(self.0 | other.0)
    }
}

impl<'a> Field<'a> for Roles {
    fn put(&self, out: &mut impl Output) {
        self.0.put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Roles, Short> {
        Roles::parse(input.u8()?).ok_or(Short)
    }
}

/// The state of a member that was declared gone, beside 0 and 1, which are down and alive.
const GONE: u8 = 2;
/// Added to the state of a manager that is retired, and of one that has drained.
const RETIRED: u8 = 4;
const DRAINED_TOO: u8 = 8;

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: NodeId,
    /// Its services.
    pub roles: Roles,
    /// Whether its lease lasts. A server whose lease ended stays a member that is down.
    pub alive: bool,
    /// Whether it was declared gone for good: it is never alive again, and its name is free.
    pub gone: bool,
    /// Whether it is a file manager that gives away what it owns, and gets nothing.
    pub retired: bool,
    /// Whether it is retired and owns nothing any more: it may be stopped, and declared gone.
    pub drained: bool,
    /// Its incarnation: greater than in every earlier one.
    pub incarnation: u64,
    /// Its disks that take objects, one bit each.
    pub disks: u32,
    /// Its disks that were declared gone for good, one bit each.
    pub gone_disks: u32,
    /// Its name, one per kind (server or client) in the cluster.
    pub name: String,
    /// Where it can be reached, best first, as the links understand it.
    pub addresses: Vec<String>,
}

impl Member {
    /// The disks whose columns are lost for good, one bit each: all of them when the server is gone.
    pub fn lost_disks(&self) -> u32 {
        if self.gone { u32::MAX } else { self.gone_disks }
    }

    /// The member as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        encoded(self)
    }
}

impl<'a> Field<'a> for Member {
    fn put(&self, out: &mut impl Output) {
        let state = if self.gone { GONE } else { self.alive.into() };
        let retired = u8::from(self.retired) * RETIRED + u8::from(self.drained) * DRAINED_TOO;
        let state = state | retired;
        (self.id, self.roles, state).put(out);
        (self.incarnation, self.disks, self.gone_disks).put(out);
        put_names(out, &self.name, &self.addresses);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Member, Short> {
        let (id, roles, state) = <(NodeId, Roles, u8)>::take(input)?;
        let (alive, gone) = (state & 3 == 1, state & 3 == GONE);
        let (retired, drained) = (state & RETIRED != 0, state & DRAINED_TOO != 0);
        let (incarnation, disks, gone_disks) = Field::take(input)?;
        let (name, addresses) = take_names(input)?;
        Ok(Member {
            id,
            roles,
            alive,
            gone,
            retired,
            drained,
            incarnation,
            disks,
            gone_disks,
            name,
            addresses,
        })
    }
}

/// The memory that a member lends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lends {
    /// Memory lent, in MiB.
    pub mib: u32,
    /// A number of the machine that it runs on, the same for all members there and for no others; 0 when it is not
    /// known. Copies that must survive a machine are never kept by two members of one.
    pub machine: u64,
}

fields!(Lends { mib, machine });

/// The identity of a node that joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its name, 1 to 255 bytes.
    pub name: String,
    /// Its services.
    pub roles: Roles,
    /// Its disks that take objects, one bit each.
    pub disks: u32,
    /// Where it can be reached; at most 8, each of at most 255 bytes.
    pub addresses: Vec<String>,
    /// The id it must have; `None` when any will do.
    pub wish: Option<NodeId>,
    /// Of a member with [`Roles::MEMORY`].
    pub lends: Lends,
}

impl Identity {
    /// Whether it keeps the limits.
    pub fn check(&self) -> Result<(), Errno> {
        let name_fits = !self.name.is_empty() && self.name.len() <= NAME_BYTES_MAX;
        let mut lengths = self.addresses.iter().map(String::len);
        let addresses_fit = lengths.all(|len| len <= ADDRESS_BYTES_MAX);
        if !name_fits || !addresses_fit || self.addresses.len() > ADDRESSES_MAX {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

/// Arguments of JOIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The name, roles and addresses to join with.
    pub identity: Identity,
    /// Its incarnation.
    pub incarnation: u64,
}

impl Join {
    /// The body and the data. The identity must keep the limits.
    pub fn encode(&self) -> ([u8; BODY_BYTES], Vec<u8>) {
        let Identity { name, roles, disks, addresses, wish, lends } = &self.identity;
        let (mut body, mut data) = ([0; BODY_BYTES], Vec::new());
        let out = &mut Encoder::new(&mut body);
        (self.incarnation, wish.unwrap_or(NodeId(0))).put(out);
        (*roles, *disks, *lends).put(out);
        put_names(&mut data, name, addresses);
        (body, data)
    }

    /// Reads what [`encode`](Join::encode) wrote.
    pub fn decode(body: &[u8], data: &[u8]) -> Result<Join, Short> {
        let mut input = Decoder::new(body);
        let (incarnation, wish) = Field::take(&mut input)?;
        let wish = Some(wish).filter(|id: &NodeId| id.0 != 0);
        let (roles, disks, lends) = Field::take(&mut input)?;
        let (name, addresses) = take_names(&mut Decoder::new(data))?;
        let identity = Identity { name, roles, disks, addresses, wish, lends };
        Ok(Join { identity, incarnation })
    }
}

/// Names an incarnation of a member: arguments of RENEW and LEAVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The member.
    pub id: NodeId,
    /// Its incarnation.
    pub incarnation: u64,
}

fields!(Registration { id, incarnation });

/// Arguments of DISKS, beside the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The member.
    pub registration: Registration,
    /// Its disks, one bit each, of which a person has said that they are empty and in the place of lost ones.
    pub replacing: u32,
}

fields!(Telling { registration, replacing });

/// Names what is gone for good: arguments of FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The server.
    pub id: NodeId,
    /// A disk of it; `None` is all of the server.
    pub disk: Option<u8>,
}

impl Forget {
    const ALL: u8 = u8::MAX;

    /// Whether a disk is gone by that.
    pub fn is_about(self, server: NodeId, disk: u8) -> bool {
        server == self.id && self.disk.is_none_or(|lost| lost == disk)
    }
}

impl<'a> Field<'a> for Forget {
    fn put(&self, out: &mut impl Output) {
        (self.id, self.disk.unwrap_or(Forget::ALL)).put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Forget, Short> {
        let (id, disk) = Field::take(input)?;
        Ok(Forget { id, disk: Some(disk).filter(|disk| *disk != Forget::ALL) })
    }
}

/// Names a file manager that is to give away what it owns: arguments of RETIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retire {
    /// The manager.
    pub id: NodeId,
    /// False: it is to own a share again.
    pub retired: bool,
}

fields!(Retire { id, retired });

/// Names disks that are to be emptied: arguments of EMPTY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// The server.
    pub id: NodeId,
    /// Its disks, one bit each; all bits are also those that it will have.
    pub disks: u32,
    /// False: they are to get replicas again.
    pub emptied: bool,
}

fields!(Empty { id, disks, emptied });

/// Disks that are being emptied, or are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emptied {
    /// The server.
    pub id: NodeId,
    /// One bit each.
    pub disks: u32,
}

fields!(Emptied { id, disks });

/// How far the planner of groups is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// Whether it has nothing to do but to wait for replicas that are being filled, and for primaries.
    pub is_settled: bool,
    /// Groups whose primaries are to hand over.
    pub hand_overs: u64,
    /// In ascending order of the servers.
    pub emptied: Vec<Emptied>,
}

impl Planned {
    /// The body and the data.
    pub fn encode(&self) -> ([u8; BODY_BYTES], Vec<u8>) {
        encode_page(self.hand_overs, &self.emptied, self.is_settled)
    }

    /// Reads what [`encode`](Planned::encode) wrote.
    pub fn decode(body: &[u8], data: &[u8]) -> Result<Planned, Short> {
        let (hand_overs, emptied, is_settled) = decode_page(body, data)?;
        Ok(Planned { is_settled, hand_overs, emptied })
    }
}

/// The answer to JOIN and RENEW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The member's id.
    pub id: NodeId,
    /// Length of the membership, counted from when the client asked.
    pub span: Duration,
    /// Number of the present view: grows with every change of it.
    pub view: u64,
    /// Number of the view of those who lend memory.
    pub lenders: u64,
    /// Of a member with [`Roles::MEMORY`], the incarnation in which it takes part for as long as the lease lasts; else
    /// 0.
    pub incarnation: u64,
    /// Version of the table of groups; 0 where there is none, as at a manager of an earlier release.
    pub groups: u64,
}

impl<'a> Field<'a> for Lease {
    fn put(&self, out: &mut impl Output) {
        let millis = u32::try_from(self.span.as_millis()).unwrap_or(u32::MAX);
        (self.id, millis).put(out);
        (self.view, self.lenders, self.incarnation).put(out);
        self.groups.put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Lease, Short> {
        let (id, millis) = <(NodeId, u32)>::take(input)?;
        let span = Duration::from_millis(millis.into());
        let (view, lenders, incarnation) = Field::take(input)?;
        let groups = Field::take(input)?;
        Ok(Lease { id, span, view, lenders, incarnation, groups })
    }
}

/// One page of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of the view.
    pub view: u64,
    /// Members in ascending order of their ids.
    pub members: Vec<Member>,
    /// Whether no member follows.
    pub last: bool,
}

impl Page {
    /// The body and the data.
    pub fn encode(&self) -> ([u8; BODY_BYTES], Vec<u8>) {
        encode_page(self.view, &self.members, self.last)
    }

    /// Reads what [`encode`](Page::encode) wrote.
    pub fn decode(body: &[u8], data: &[u8]) -> Result<Page, Short> {
        let (view, members, last) = decode_page(body, data)?;
        Ok(Page { view, members, last })
    }
}

/// One page of the lenders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LendersPage {
    /// Number of their view.
    pub number: u64,
    /// In ascending order of their ids.
    pub lenders: Vec<Up>,
    /// Whether none follows.
    pub last: bool,
}

impl LendersPage {
    /// The body and the data.
    pub fn encode(&self) -> ([u8; BODY_BYTES], Vec<u8>) {
        encode_page(self.number, &self.lenders, self.last)
    }

    /// Reads what [`encode`](LendersPage::encode) wrote.
    pub fn decode(body: &[u8], data: &[u8]) -> Result<LendersPage, Short> {
        let (number, lenders, last) = decode_page(body, data)?;
        Ok(LendersPage { number, lenders, last })
    }
}

impl Up {
    /// Bytes on the wire.
    pub const BYTES: usize = 22;
}

fields!(Up { node, incarnation, weight, machine });

pub(crate) fn encode_page<'a, T: Field<'a>>(
    view: u64,
    all: &[T],
    last: bool,
) -> ([u8; BODY_BYTES], Vec<u8>) {
    let (mut body, mut data) = ([0; BODY_BYTES], Vec::new());
    (view, all.len() as u16, last).put(&mut Encoder::new(&mut body));
    all.iter().for_each(|each| each.put(&mut data));
    (body, data)
}

pub(crate) fn decode_page<'a, T: Field<'a>>(
    body: &[u8],
    data: &'a [u8],
) -> Result<(u64, Vec<T>, bool), Short> {
    let (view, count, last) = <(u64, u16, u8)>::take(&mut Decoder::new(body))?;
    let mut data = Decoder::new(data);
    let all = (0..count).map(|_| T::take(&mut data)).collect::<Result<_, _>>()?;
    Ok((view, all, last == 1))
}

fn put_names(out: &mut impl Output, name: &str, addresses: &[String]) {
    put_text(out, name);
    (addresses.len() as u8).put(out);
    addresses.iter().for_each(|address| put_text(out, address));
}

fn take_names(input: &mut Decoder<'_>) -> Result<(String, Vec<String>), Short> {
    let name = take_text(input)?;
    let addresses = (0..input.u8()?).map(|_| take_text(input)).collect::<Result<_, _>>()?;
    Ok((name, addresses))
}

fn put_text(out: &mut impl Output, text: &str) {
    let len = u16::try_from(text.len()).expect("a name of at most 65,535 bytes");
    len.put(out);
    out.append(text.as_bytes());
}

fn take_text(input: &mut Decoder<'_>) -> Result<String, Short> {
    String::from_utf8(input.bytes()?.to_vec()).map_err(|_| Short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MEMBER_BYTES_MAX;
    use wire::field::Message;

    fn member(id: u16) -> Member {
        Member {
            id: NodeId(id),
            roles: Roles::IO | Roles::MEMORY,
            alive: true,
            gone: false,
            retired: false,
            drained: false,
            incarnation: u64::MAX,
            disks: 5,
            gone_disks: 2,
            name: "s".repeat(NAME_BYTES_MAX),
            addresses: vec!["a".repeat(ADDRESS_BYTES_MAX); ADDRESSES_MAX],
        }
    }

    #[test]
    fn the_largest_member_has_the_size_that_the_limits_say() {
        let bytes = member(1).to_bytes();
        assert_eq!(bytes.len(), MEMBER_BYTES_MAX);
        assert_eq!(Member::decode(&bytes), Ok(member(1)));
        assert!((0..bytes.len()).all(|cut| Member::decode(&bytes[..cut]).is_err()));
    }

    #[test]
    fn messages_survive_the_wire() {
        let Member { name, addresses, roles, disks, .. } = member(2);
        let identity = Identity {
            name,
            roles,
            disks,
            addresses,
            wish: Some(NodeId(7)),
            lends: Lends { mib: 4096, machine: u64::MAX },
        };
        let join = Join { identity, incarnation: 3 };
        let (body, data) = join.encode();
        assert_eq!(Join::decode(&body, &data), Ok(join));
        let lease = Lease {
            id: NodeId(9),
            span: Duration::from_secs(10),
            view: 77,
            lenders: 5,
            incarnation: 3,
            groups: 1 << 40,
        };
        assert_eq!(Lease::decode(&lease.encode()), Ok(lease));
        let mut earlier = lease.encode();
        earlier[30..38].fill(0);
        assert_eq!(Lease::decode(&earlier), Ok(Lease { groups: 0, ..lease }));
        let registration = Registration { id: NodeId(9), incarnation: 5 };
        assert_eq!(Registration::decode(&registration.encode()), Ok(registration));
        for disk in [None, Some(0), Some(31)] {
            let forget = Forget { id: NodeId(9), disk };
            assert_eq!(Forget::decode(&forget.encode()), Ok(forget));
        }
        let gone = Member { gone: true, alive: false, ..member(3) };
        let retired = Member { retired: true, ..member(3) };
        let drained = Member { drained: true, ..retired.clone() };
        let gone_later = Member { retired: true, drained: true, ..gone.clone() };
        for member in [gone, retired, drained, gone_later] {
            assert_eq!(Member::decode(&member.to_bytes()), Ok(member));
        }
        let page = Page { view: 4, members: vec![member(1), member(2)], last: true };
        let (body, data) = page.encode();
        assert_eq!(Page::decode(&body, &data), Ok(page));
        let lenders =
            vec![Up { node: NodeId(3), incarnation: u64::MAX, weight: 7, machine: 3 }; 290];
        let page = LendersPage { number: 1 << 40, lenders, last: false };
        let (body, data) = page.encode();
        assert_eq!(LendersPage::decode(&body, &data), Ok(page));
        assert!(LendersPage::decode(&body, &data[1..]).is_err());
    }

    #[test]
    fn unknown_roles_and_text_that_is_none_are_refused() {
        assert_eq!(Roles::parse(0), None);
        assert_eq!(Roles::parse(16), None);
        assert_eq!(take_text(&mut Decoder::new(&[1, 0, 0xff])), Err(Short));
    }
}
