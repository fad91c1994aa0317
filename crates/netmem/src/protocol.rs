//! Messages of network memory on [`Channel::MEMORY`](wire::Channel::MEMORY): operations, and what their bodies hold.
//!
//! ```text
//!   requester ──GET──► directory ──GET (forwarded)──► holder          three messages
//!       ▲                                               │
//!       └───────────────────── DATA ────────────────────┘
//! ```
//!
//! | operation | request: body, data | answer: body, data | once |
//! | --- | --- | --- | --- |
//! | [`op::GET`] | [`Get`] | [`GetReply`], the page | no |
//! | [`op::GET_PART`] | [`GetPart`] | [`GetReply`], the part | no |
//! | [`op::TAKE`] | [`Get`], a page that is swapped in | [`GetReply`], the page | yes |
//! | [`op::PUT`] | [`Put`], the page | [`PutReply`] | yes |
//! | [`op::REGISTER`], [`op::UNREGISTER`], [`op::DROP`], [`op::WRITTEN`] | [`Batch`], [`Record`]s | [`Verdict`]s | yes |
//! | [`op::FREE_SPACE`] | [`Spaces`] | nothing | yes |
//! | [`op::DIGEST`] | [`Tick`] | nothing, [`Digest`](crate::Digest) | no |
//! | [`op::EPOCH`] | nothing, [`Epoch`](crate::Epoch) | nothing | no |
//! | [`op::HASTEN`] | [`Tick`] | nothing | no |
//! | [`op::LOOK_UP`] | [`LookUp`] | [`Holding`]s in the trailer | no |
//! | [`op::GET_MULTI`] | [`GetMulti`] | [`MultiReply`], the pages | no |
//! | [`op::MIRROR_AGAIN`], [`op::HAND_ON`] | [`MirrorAgain`] | [`PutReply`] | yes |
//! | [`op::LEASE`], [`op::REVOKE`] | [`Lease`] | [`LeaseReply`] | yes |
//! | [`op::FETCH_AHEAD`] | [`Early`] | [`MultiReply`] | no |
//! | [`op::STAY`] | [`Spaces`] | [`Stayed`] | no |
//!
//! The status of an answer is 0 or an error number of who could not read the request; everything else, refusals and
//! losses too, is in the body. A message with pages has their [`PageStamp`]s in its trailer, in order: the link then
//! sums the trailer and leaves the pages to who checks the stamps.

mod asking;
mod batch;
mod epochs;
mod guests;

pub use asking::{Data, Get, GetMulti, GetPart, GetReply, LookUp, MultiReply, Stale};
pub use batch::{
    Batch, Early, HOLDING_BYTES, Holding, RECORD_BYTES, RECORDS_MAX, Record, Spaces, Verdict,
};
pub use epochs::{DIGEST_BYTES, Tick, decode_digest, decode_epoch, encode_digest, encode_epoch};
pub use guests::Stayed;

use crate::ages::Age;
use crate::page::{PageId, PageStamp, Version};
pub use wire::field::Message;
use wire::field::{Field, Output, fields};
use wire::limits::BODY_BYTES;
use wire::{Decoder, NodeId, Short};

/// The operation that a message asks for.
pub mod op {
    /// The bytes of a page, of whom the request is sent to or of whom that one forwards it to.
    pub const GET: u16 = 1;
    /// As [`GET`], of the holder itself, which gives up its copy if that is clean; a page may come in its place.
    pub const TAKE: u16 = 2;
    /// Take this page in, clean or as a mirror.
    pub const PUT: u16 = 3;
    /// These nodes hold these pages.
    pub const REGISTER: u16 = 4;
    /// They do not any more.
    pub const UNREGISTER: u16 = 5;
    /// Drop these pages, if they are of this version or an older one.
    pub const DROP: u16 = 6;
    /// Nothing of these spaces exists any more, whatever comes late.
    pub const FREE_SPACE: u16 = 7;
    /// Tell how old your frames are.
    pub const DIGEST: u16 = 8;
    /// The epoch that holds from now on.
    pub const EPOCH: u16 = 9;
    /// The epoch's ages are wrong: plan the next one.
    pub const HASTEN: u16 = 10;
    /// Holders of the pages of an extent.
    pub const LOOK_UP: u16 = 11;
    /// The bytes of several pages of an extent.
    pub const GET_MULTI: u16 = 12;
    /// Make one more mirror of a page that you have a mirror of.
    pub const MIRROR_AGAIN: u16 = 13;
    /// Let me be the only one who writes to this page.
    pub const LEASE: u16 = 14;
    /// Another node wants to write to this page: make it durable and forget it.
    pub const REVOKE: u16 = 15;
    /// Read these pages from stable storage and keep them for me.
    pub const FETCH_AHEAD: u16 = 16;
    /// These versions are on stable storage: their mirrors are clean copies.
    pub const WRITTEN: u16 = 17;
    /// The process that these spaces belong to, which is no node, is still there.
    pub const STAY: u16 = 18;
    /// See to it that this page has mirrors enough without mine, which I cannot keep, and forget mine.
    pub const HAND_ON: u16 = 19;
    /// As [`GET`], of the holder itself and of a part of the page, whose stamp is of the part.
    pub const GET_PART: u16 = 20;

    /// Whether the operation may be executed twice, so that no reply is kept for it.
    pub fn is_pure(op: u16) -> bool {
        let reads = matches!(op, GET | GET_PART | LOOK_UP | GET_MULTI | FETCH_AHEAD | STAY);
        reads || matches!(op, DIGEST | EPOCH | HASTEN)
    }
}

/// A body: 64 bytes of a message.
pub type Body = [u8; BODY_BYTES];

/// Node 0 encodes `None`.
fn put_some_node(node: Option<NodeId>, out: &mut impl Output) {
    node.unwrap_or(NodeId(0)).put(out);
}

fn take_some_node(input: &mut Decoder<'_>) -> Result<Option<NodeId>, Short> {
    Ok(Some(NodeId::take(input)?).filter(|node| node.0 != 0))
}

/// Offers a page, whose bytes follow as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// The page, its version and its checksum.
    pub stamp: PageStamp,
    /// The incarnation of the node that sends it.
    pub incarnation: u64,
    /// How old the page is, effectively.
    pub age: Age,
    /// Times that it may still be passed on without a use.
    pub chances: u8,
    /// Of a dirty page, the number of mirrors that there are to be; 0 of a clean one.
    pub copies: u8,
    /// It was used again since it was read from disk.
    pub reused: bool,
    /// Number of the sender's view. A mirror is taken in by who has the same: both must mean the same incarnations of
    /// nodes.
    pub view: u64,
}

impl Put {
    /// Whether the page is dirty, and this is to be a mirror of it.
    pub fn is_mirror(&self) -> bool {
        self.copies > 0
    }
}

fields!(Put { stamp, incarnation, age, chances, copies, reused, view });

/// Why a page was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum No {
    /// No frame is free, none is old enough, or the rest is guaranteed to the node's own pages.
    Room = 1,
    /// The node has the page in its own use, or its bytes are just leaving; or others have copies enough.
    InUse = 2,
    /// A newer version is known.
    Stale = 3,
    /// The bytes are not those of the stamp.
    Damaged = 4,
    /// The space was freed.
    Freed = 5,
    /// The directory could not be told, or has too many holders.
    Unregistered = 6,
    /// The node is no member in its own view, and takes nothing that it must not lose.
    Outside = 7,
    /// The node does not have what it is to make a mirror of.
    NotHere = 8,
}

impl No {
    /// All of them.
    pub const ALL: [No; 8] = [
        No::Room,
        No::InUse,
        No::Stale,
        No::Damaged,
        No::Freed,
        No::Unregistered,
        No::Outside,
        No::NotHere,
    ];
}

/// The answer to [`op::PUT`], [`op::MIRROR_AGAIN`] and [`op::HAND_ON`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutReply {
    /// The node that has the page now, or why there is none.
    pub stored: Result<NodeId, No>,
    /// The oldest page that who was asked would take in now.
    pub oldest: Age,
}

impl<'a> Field<'a> for PutReply {
    fn put(&self, out: &mut impl Output) {
        let (reason, node) = self.stored.map_or_else(|no| (no as u8, NodeId(0)), |node| (0, node));
        (reason, node, self.oldest).put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<PutReply, Short> {
        let (reason, node, oldest) = Field::take(input)?;
        let stored = match reason {
            0u8 => Ok(node),
            reason => Err(No::ALL.into_iter().find(|no| *no as u8 == reason).ok_or(Short)?),
        };
        Ok(PutReply { stored, oldest })
    }
}

/// Most nodes that a new mirror may be told to avoid.
pub const AVOID_MAX: usize = 4;

/// Asks a mirror for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorAgain {
    /// The page.
    pub id: PageId,
    /// Of which there is a mirror.
    pub version: Version,
    /// Mirrors that there are to be.
    pub copies: u8,
    /// Nodes that have one already, or have just refused; 0 is none.
    pub avoid: [NodeId; AVOID_MAX],
}

fields!(MirrorAgain { id, version, copies, avoid });

/// Asks the directory for the right to write to a page, or its holder to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The page.
    pub id: PageId,
    /// Number of the sender's view.
    pub view: u64,
    /// The incarnation of the sender's node.
    pub incarnation: u64,
}

fields!(Lease { id, view, incarnation });

/// The answer to [`op::LEASE`] and [`op::REVOKE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// The lease, or what was given back: the page's newest version.
    Granted(Version),
    /// Another node holds it and cannot give it back now, or the view has just changed: ask again.
    Busy,
    /// The node keeps no directory entry for the page in its view, which has this number.
    NotHome(u64),
    /// The space was freed.
    Freed,
    /// Too many leases are held.
    Full,
}

impl<'a> Field<'a> for LeaseReply {
    fn put(&self, out: &mut impl Output) {
        let (tag, value) = match *self {
            LeaseReply::Granted(version) => (1u8, version.0),
            LeaseReply::Busy => (2, 0),
            LeaseReply::NotHome(view) => (3, view),
            LeaseReply::Freed => (4, 0),
            LeaseReply::Full => (5, 0),
        };
        (tag, value).put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<LeaseReply, Short> {
        let (tag, value) = (input.u8()?, input.u64()?);
        Ok(match tag {
            1 => LeaseReply::Granted(Version(value)),
            2 => LeaseReply::Busy,
            3 => LeaseReply::NotHome(value),
            4 => LeaseReply::Freed,
            5 => LeaseReply::Full,
            _ => return Err(Short),
        })
    }
}

#[cfg(test)]
mod tests;
