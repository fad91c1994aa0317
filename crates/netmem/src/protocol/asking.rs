//! Asking for pages: whole ones, parts, several neighbours, and who has them.

use super::{
    Message, read_flag, read_node, read_page, read_some_node, write_page, write_some_node,
};
use crate::limits::EXTENT_PAGES;
use crate::page::{PageId, PageStamp, Version, Wanted};
use std::ops::Range;
use wire::{Decoder, Encoder, NodeId, Short};

/// A copy that was not where the directory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Who does not have it.
    pub node: NodeId,
    /// In which incarnation.
    pub incarnation: u64,
    /// Of which version.
    pub version: Version,
}

impl Message for Stale {
    fn write(&self, out: &mut Encoder<'_>) {
        out.u16(self.node.0).u64(self.incarnation).u64(self.version.0);
    }

    fn read(input: &mut Decoder<'_>) -> Result<Stale, Short> {
        let (node, incarnation) = (read_node(input)?, input.u64()?);
        Ok(Stale { node, incarnation, version: Version(input.u64()?) })
    }
}

/// Asks for the bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get {
    /// The page.
    pub id: PageId,
    /// The oldest content that will do.
    pub at_least: Version,
    /// Bytes of a page of that space: the answer's data has as many, or there is none.
    pub bytes: u32,
    /// Who waits for the answer, also when the request is forwarded.
    pub requester: NodeId,
    /// Times the request was forwarded or sent on.
    pub hops: u8,
    /// Who forwarded it here, taking this node for a holder.
    pub forwarded: bool,
    /// What the last one who was asked did not have.
    pub stale: Option<Stale>,
}

impl Get {
    /// Of a requester that asks for the first time.
    pub fn new(id: PageId, at_least: Version, bytes: u32, requester: NodeId) -> Get {
        Get { id, at_least, bytes, requester, hops: 0, forwarded: false, stale: None }
    }
}

impl Message for Get {
    fn write(&self, out: &mut Encoder<'_>) {
        write_page(out, self.id);
        out.u64(self.at_least.0).u32(self.bytes).u16(self.requester.0).u8(self.hops);
        out.u8(u8::from(self.forwarded) | u8::from(self.stale.is_some()) << 1);
        if let Some(stale) = &self.stale {
            stale.write(out);
        }
    }

    fn read(input: &mut Decoder<'_>) -> Result<Get, Short> {
        let (id, at_least) = (read_page(input)?, Version(input.u64()?));
        let (bytes, requester, hops) = (input.u32()?, read_node(input)?, input.u8()?);
        let flags = input.u8()?;
        if flags > 3 {
            return Err(Short);
        }
        let stale = if flags & 2 == 2 { Some(Stale::read(input)?) } else { None };
        Ok(Get { id, at_least, bytes, requester, hops, forwarded: flags & 1 == 1, stale })
    }
}

/// Bytes of a page, on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// What they are.
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
    /// Who was asked does not have it.
    NotHere {
        /// Who was asked, and for which version.
        stale: Stale,
        /// Who may have it.
        hint: Option<NodeId>,
    },
    /// Who was asked has an older content.
    Older {
        /// Who was asked, and what it has.
        stale: Stale,
        /// Who may have a newer one.
        hint: Option<NodeId>,
    },
    /// The version existed in network memory only and is gone.
    Lost(Version),
    /// The directory knows of nobody who has it.
    Unknown {
        /// It has heard of everybody since the view changed: nobody has it.
        settled: bool,
    },
    /// The space was freed.
    Freed,
    /// The node keeps no directory entry for the page in its view, which has this number.
    NotHome(u64),
}

impl Message for GetReply {
    fn write(&self, out: &mut Encoder<'_>) {
        match *self {
            GetReply::Data(ref data) => data.write(out.u8(1)),
            GetReply::NotHere { ref stale, hint } => {
                stale.write(out.u8(2));
                write_some_node(out, hint);
            }
            GetReply::Older { ref stale, hint } => {
                stale.write(out.u8(3));
                write_some_node(out, hint);
            }
            GetReply::Lost(version) => {
                out.u8(4).u64(version.0);
            }
            GetReply::Unknown { settled } => {
                out.u8(5).u8(settled.into());
            }
            GetReply::Freed => {
                out.u8(6);
            }
            GetReply::NotHome(view) => {
                out.u8(7).u64(view);
            }
        }
    }

    fn read(input: &mut Decoder<'_>) -> Result<GetReply, Short> {
        Ok(match input.u8()? {
            1 => GetReply::Data(Data::read(input)?),
            2 => GetReply::NotHere { stale: Stale::read(input)?, hint: read_some_node(input)? },
            3 => GetReply::Older { stale: Stale::read(input)?, hint: read_some_node(input)? },
            4 => GetReply::Lost(Version(input.u64()?)),
            5 => GetReply::Unknown { settled: read_flag(input)? },
            6 => GetReply::Freed,
            7 => GetReply::NotHome(input.u64()?),
            _ => return Err(Short),
        })
    }
}

impl Message for Data {
    fn write(&self, out: &mut Encoder<'_>) {
        let flags = [self.kept, self.leased, self.clean, self.swapped];
        let bits = flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag));
        out.u8(bits).u16(self.node.0);
        self.stamp.encode(out);
    }

    fn read(input: &mut Decoder<'_>) -> Result<Data, Short> {
        let bits = input.u8()?;
        if bits > 15 {
            return Err(Short);
        }
        let [kept, leased, clean, swapped] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let (node, stamp) = (read_node(input)?, PageStamp::decode(input)?);
        Ok(Data { stamp, node, kept, leased, clean, swapped })
    }
}

/// Asks who holds neighbouring pages of one extent. The answer's trailer has a [`Holding`](super::Holding) for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The first page.
    pub first: PageId,
    /// How many pages: at least 1, and none of the next extent.
    pub pages: u8,
}

impl Message for LookUp {
    fn write(&self, out: &mut Encoder<'_>) {
        write_page(out, self.first);
        out.u8(self.pages);
    }

    fn read(input: &mut Decoder<'_>) -> Result<LookUp, Short> {
        let (first, pages) = (read_page(input)?, input.u8()?);
        let last = first.index % EXTENT_PAGES + u64::from(pages);
        if pages == 0 || last > EXTENT_PAGES { Err(Short) } else { Ok(LookUp { first, pages }) }
    }
}

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

impl Message for GetPart {
    fn write(&self, out: &mut Encoder<'_>) {
        let Wanted { id, at_least, bytes } = self.wanted;
        write_page(out, id);
        out.u64(at_least.0).u32(bytes).u32(self.start).u32(self.length);
    }

    fn read(input: &mut Decoder<'_>) -> Result<GetPart, Short> {
        let (id, at_least, bytes) = (read_page(input)?, Version(input.u64()?), input.u32()?);
        let wanted = Wanted { id, at_least, bytes };
        let ask = GetPart { wanted, start: input.u32()?, length: input.u32()? };
        if ask.is_whole() { Ok(ask) } else { Err(Short) }
    }
}

/// Asks for some of the sixteen pages from the first one on. What is not there is left out.
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
    /// Nobody waits for them yet.
    pub ahead: bool,
}

impl Message for GetMulti {
    fn write(&self, out: &mut Encoder<'_>) {
        write_page(out, self.first);
        out.u16(self.wanted).u64(self.at_least.0).u32(self.bytes).u8(self.ahead.into());
    }

    fn read(input: &mut Decoder<'_>) -> Result<GetMulti, Short> {
        let (first, wanted) = (read_page(input)?, input.u16()?);
        let (at_least, bytes) = (Version(input.u64()?), input.u32()?);
        Ok(GetMulti { first, wanted, at_least, bytes, ahead: read_flag(input)? })
    }
}

/// The answer to [`op::GET_MULTI`](super::op::GET_MULTI): which pages follow as data, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiReply {
    /// As [`GetMulti::wanted`].
    pub here: u16,
}

impl Message for MultiReply {
    fn write(&self, out: &mut Encoder<'_>) {
        out.u16(self.here);
    }

    fn read(input: &mut Decoder<'_>) -> Result<MultiReply, Short> {
        Ok(MultiReply { here: input.u16()? })
    }
}
