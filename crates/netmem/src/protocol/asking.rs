//! Requests for pages: whole ones, parts, several adjacent ones, and their holders.

use super::{put_some_node, take_some_node};
use crate::limits::EXTENT_PAGES;
use crate::page::{PageId, PageStamp, Version, Wanted};
use std::ops::Range;
use wire::field::{Field, Output, fields};
use wire::{Decoder, NodeId, Short};

/// A copy that was not where the directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The node that does not have it.
    pub node: NodeId,
    /// In which incarnation.
    pub incarnation: u64,
    /// Of which version.
    pub version: Version,
}

fields!(Stale { node, incarnation, version });

/// Asks for the bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// The page.
    pub id: PageId,
    /// The oldest content that will do.
    pub at_least: Version,
    /// Bytes of a page of that space: the answer's data has as many, or there is none.
    pub bytes: u32,
    /// The node that waits for the answer, also when the request is forwarded.
    pub requester: NodeId,
    /// Times the request was forwarded or sent on.
    pub hops: u8,
    /// The directory that forwarded it here, taking this node for a holder.
    pub forwarded: bool,
    /// The refusal of the node that was asked last.
    pub stale: Option<Stale>,
}

impl Get {
    /// Of a requester that asks for the first time.
    pub fn new(id: PageId, at_least: Version, bytes: u32, requester: NodeId) -> Get {
        Get { id, at_least, bytes, requester, hops: 0, forwarded: false, stale: None }
    }
}

impl<'a> Field<'a> for Get {
    fn put(&self, out: &mut impl Output) {
        (self.id, self.at_least, self.bytes).put(out);
        let flags = u8::from(self.forwarded) | u8::from(self.stale.is_some()) << 1;
        (self.requester, self.hops, flags).put(out);
        if let Some(stale) = &self.stale {
            stale.put(out);
        }
    }

    fn take(input: &mut Decoder<'a>) -> Result<Get, Short> {
        let (id, at_least, bytes) = Field::take(input)?;
        let (requester, hops, flags) = <(NodeId, u8, u8)>::take(input)?;
        if flags > 3 {
            return Err(Short);
        }
        let stale = (flags & 2 == 2).then(|| Stale::take(input)).transpose()?;
        Ok(Get { id, at_least, bytes, requester, hops, forwarded: flags & 1 == 1, stale })
    }
}

/// Bytes of a page, on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// The page, its version and its checksum.
    pub stamp: PageStamp,
    /// The sender, in its incarnation.
    pub node: NodeId,
    /// The sender keeps a copy.
    pub kept: bool,
    /// One node writes to this page: the receiver keeps no copy.
    pub leased: bool,
    /// The version is on stable storage.
    pub clean: bool,
    /// The page that came with the request was taken in.
    pub swapped: bool,
}

/// The answer to [`op::GET`](super::op::GET) and [`op::TAKE`](super::op::TAKE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetReply {
    /// The page follows as data.
    Data(Data),
    /// The node that was asked does not have it.
    NotHere {
        /// The node that was asked, and for which version.
        stale: Stale,
        /// A node that may have it.
        hint: Option<NodeId>,
    },
    /// The node that was asked has an older content.
    Older {
        /// The node that was asked, and what it has.
        stale: Stale,
        /// A node that may have a newer one.
        hint: Option<NodeId>,
    },
    /// The version existed in network memory only and is gone.
    Lost(Version),
    /// The directory knows no holder.
    Unknown {
        /// It has heard of all nodes since the view changed: there is no holder.
        settled: bool,
    },
    /// The space was freed.
    Freed,
    /// The node keeps no directory entry for the page in its view, which has this number.
    NotHome(u64),
}

impl<'a> Field<'a> for GetReply {
    fn put(&self, out: &mut impl Output) {
        match self {
            GetReply::Data(data) => (1u8, *data).put(out),
            GetReply::NotHere { stale, hint } => {
                (2u8, *stale).put(out);
                put_some_node(*hint, out);
            }
            GetReply::Older { stale, hint } => {
                (3u8, *stale).put(out);
                put_some_node(*hint, out);
            }
            GetReply::Lost(version) => (4u8, *version).put(out),
            GetReply::Unknown { settled } => (5u8, *settled).put(out),
            GetReply::Freed => 6u8.put(out),
            GetReply::NotHome(view) => (7u8, *view).put(out),
        }
    }

    fn take(input: &mut Decoder<'a>) -> Result<GetReply, Short> {
        Ok(match input.u8()? {
            1 => GetReply::Data(Field::take(input)?),
            2 => GetReply::NotHere { stale: Field::take(input)?, hint: take_some_node(input)? },
            3 => GetReply::Older { stale: Field::take(input)?, hint: take_some_node(input)? },
            4 => GetReply::Lost(Field::take(input)?),
            5 => GetReply::Unknown { settled: Field::take(input)? },
            6 => GetReply::Freed,
            7 => GetReply::NotHome(Field::take(input)?),
            _ => return Err(Short),
        })
    }
}

impl<'a> Field<'a> for Data {
    fn put(&self, out: &mut impl Output) {
        let flags = [self.kept, self.leased, self.clean, self.swapped];
        let bits = flags.iter().rev().fold(0u8, |bits, flag| bits << 1 | u8::from(*flag));
        (bits, self.node, self.stamp).put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Data, Short> {
        let (bits, node, stamp) = <(u8, NodeId, PageStamp)>::take(input)?;
        if bits > 15 {
            return Err(Short);
        }
        let [kept, leased, clean, swapped] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        Ok(Data { stamp, node, kept, leased, clean, swapped })
    }
}

/// Asks who holds neighbouring pages of one extent. The answer's trailer has a [`Holding`](super::Holding) for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The first page.
    pub first: PageId,
    /// Number of pages: at least 1, and none of the next extent.
    pub pages: u8,
}

impl LookUp {
    fn is_in_extent(&self) -> bool {
        let last = self.first.index % EXTENT_PAGES + u64::from(self.pages);
        self.pages > 0 && last <= EXTENT_PAGES
    }
}

fields!(LookUp { first, pages } if is_in_extent);

/// Asks for a part of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetPart {
    /// The page.
    pub wanted: Wanted,
    /// Bytes of it before the part.
    pub start: u32,
    /// Bytes of the part, at least one.
    pub length: u32,
}

impl GetPart {
    /// `None` when that is no part of the page.
    pub fn new(wanted: Wanted, part: &Range<usize>) -> Option<GetPart> {
        let (start, length) = (u32::try_from(part.start).ok()?, u32::try_from(part.len()).ok()?);
        let ask = GetPart { wanted, start, length };
        ask.is_whole().then_some(ask)
    }

    /// The part.
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.length as usize
    }

    fn is_whole(&self) -> bool {
        self.length > 0 && self.range().end <= self.wanted.bytes as usize
    }
}

fields!(GetPart { wanted, start, length } if is_whole);

/// Asks for some of the sixteen pages from the first one on. The answer leaves out pages that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetMulti {
    /// The first page.
    pub first: PageId,
    /// Bit n is the n-th page from the first on.
    pub wanted: u16,
    /// The oldest content of each that will do.
    pub at_least: Version,
    /// Bytes of a page of that space.
    pub bytes: u32,
    /// No request waits for them yet.
    pub ahead: bool,
}

fields!(GetMulti { first, wanted, at_least, bytes, ahead });

/// The answer to [`op::GET_MULTI`](super::op::GET_MULTI): which pages follow as data, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiReply {
    /// As [`GetMulti::wanted`].
    pub here: u16,
}

fields!(MultiReply { here });
