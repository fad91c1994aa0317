//! Requests to holders, and the meaning of their answers.

use super::Obsolete;
use crate::ages::Age;
use crate::directory::{Holder, Role};
use crate::page::{PageId, PageStamp, SpaceId, Version, Wanted};
use crate::protocol::{GetReply, Message, No, Put, PutReply, Record, Stayed};
use wire::{Errno, NodeId, Time};

/// A holder's answer about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// It has landed, with this checksum.
    Here(u32),
    /// It does not have this version.
    Not,
    /// It does not say.
    Silent(Errno),
}

/// Why a page was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room.
    Room,
    /// The holder did not say so in time, or the link broke.
    Silent(Errno),
    /// For another reason.
    Other(Errno),
}

/// Why a page did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// No copy of this version is left anywhere. Final.
    Lost,
    /// Not now: who may have it does not say.
    Unavailable(Errno),
}

/// The connections of one thread or task to all holders, by their numbers.
pub trait Transport {
    /// The time.
    fn now(&self) -> Time;
    /// Bytes of each page.
    fn page_bytes(&self) -> usize;
    /// Whether a holder can be asked now.
    fn reach(&mut self, at: usize) -> bool;
    /// Whether the connection to it broke: then it is not known whether it is away.
    fn is_broken(&self, at: usize) -> bool;
    /// The node at the other end when the connection was made.
    fn there(&self, at: usize) -> Option<Stayed>;
    /// The incarnation of the holder at its other end, as [`Standing`](super::Standing) counts.
    fn generation(&self, at: usize) -> u16;
    /// Asks for a page.
    fn get(&mut self, at: usize, wanted: Wanted) -> impl Future<Output = Response>;
    /// Requests pages ahead of need, [`GUEST_AHEAD_MAX`](crate::limits::GUEST_AHEAD_MAX) at most. Says whether the
    /// requests were sent; then [`answers`](Transport::answers) must follow before another request there.
    fn ask_ahead(&mut self, at: usize, wanted: &[Wanted]) -> bool;
    /// The answers to those requests, in their order. Waits less long than for a page that is needed.
    fn answers(
        &mut self,
        at: usize,
        wanted: &[Wanted],
        found: &mut [Response],
    ) -> impl Future<Output = ()>;
    /// The bytes that the last [`get`](Transport::get) there has found, or the nth of the last
    /// [`answers`](Transport::answers).
    fn landed(&self, at: usize, nth: usize) -> &[u8];
    /// Has a page kept.
    fn put(
        &mut self,
        at: usize,
        put: &Put,
        data: &[u8],
    ) -> impl Future<Output = Result<(), Refused>>;
    /// There is something to be done in the background.
    fn ring(&self);
}

/// The meaning of an answer to a [`GET`](crate::protocol::op::GET) means, with which these bytes have landed.
pub fn found(wanted: Wanted, body: &[u8], landed: &[u8]) -> Response {
    match GetReply::decode(body) {
        Ok(GetReply::Data(data)) if data.stamp.check(wanted, [landed]).is_ok() => {
            Response::Here(data.stamp.checksum)
        }
        Ok(GetReply::Data(_)) | Err(_) => Response::Silent(Errno::EPROTO),
        Ok(GetReply::Unknown { settled: false } | GetReply::NotHome(_)) => {
            Response::Silent(Errno::EAGAIN)
        }
        Ok(_) => Response::Not,
    }
}

/// A page that a holder is to keep. A guest has no incarnation and no view.
pub fn offer(stamp: PageStamp, copies: u8) -> Put {
    Put { stamp, incarnation: 0, age: Age::NEWEST, chances: 0, copies, reused: true, view: 0 }
}

/// The meaning of an answer to a [`PUT`](crate::protocol::op::PUT) means.
pub fn taken(body: &[u8]) -> Result<(), Refused> {
    match PutReply::decode(body) {
        Ok(PutReply { stored: Ok(_), .. }) => Ok(()),
        Ok(PutReply { stored: Err(No::Room), .. }) => Err(Refused::Room),
        Ok(_) => Err(Refused::Other(Errno::EAGAIN)),
        Err(_) => Err(Refused::Other(Errno::EPROTO)),
    }
}

/// The request to a holder to forget a page.
pub fn reminder(space: SpaceId, obsolete: &Obsolete) -> Record {
    let id = PageId { space, index: obsolete.page };
    let holder = Holder { node: NodeId(0), incarnation: 0, role: Role::Mirror };
    Record::new(id, Version(obsolete.version), holder)
}
