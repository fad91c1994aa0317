//! NetRPC: calls over an endpoint (HotI'99 section 2.1, USENIX'98 section 3), as a plain state machine.
//!
//! It is not async and knows no clock: `now` is an argument, and the driver decides when. [`Rpc`]'s methods are of four
//! kinds, to be used in this order:
//!
//! - *input*: [`Rpc::handle_message`] for every message the endpoint received, [`Rpc::handle_timeout`] when
//!   [`Rpc::poll_timeout`] has come, [`Rpc::link_up`] and [`Rpc::link_down`] when the link says so;
//! - *commands*: [`Rpc::call`], [`Rpc::cancel`], [`Rpc::reply`], [`Rpc::forward`];
//! - *output*: [`Rpc::poll_event`], until it says `None`; messages go to the endpoint's send ring;
//! - getters.
//!
//! # Sessions and slots
//!
//! A handshake opens a session: the client's HELLO carries its incarnation, and the server answers with an epoch, a
//! number of slots, a window in pages. A HELLO with a lower incarnation than the server knows under that id may be a
//! late one, or come from a node whose clock is behind: the server answers with the incarnation it knows, and a client
//! that never had a session there declares that one over. Each call takes a slot and the slot's next sequence number.
//! The server remembers, per slot, the last sequence and, of calls that must not be executed twice, the reply; so a
//! duplicate request is answered again, not executed again, in bounded memory and over links that lose, duplicate and
//! reorder. A reply that is one control message is remembered of every call: one that takes long is retransmitted
//! often, and the last copy may arrive behind the reply. A message in an epoch that the server does not know (it has
//! restarted) is answered by a reset, and every
//! call that was under way in it ends as [`CallError::PeerLost`]: whether it was executed is then unknown, and only the
//! caller can decide.
//!
//! A request that finds no memory for its data is answered as overloaded, and the slot keeps that answer: the caller
//! tries again in another slot, and no late copy of the first request is executed beside it.
//!
//! Invariants: a slot has one call at a time; a reply completes the call record whose index, generation, slot,
//! sequence and token it names, or nothing (that of a third node, for a call that may be executed twice, has a slot of
//! its own); a record's payload token is cancelled before its frames are given back.
//!
//! The service declares which operations may be executed twice ([`Rpc::set_pure`]), whatever a caller asks for. The
//! data of kept replies is bounded for each session and in all, and goes when the client's link stays away for
//! [`limits::PEER_LOST`]: a copy of such a request is then answered by "forgotten", and the call ends as
//! [`CallError::PeerLost`].
//!
//! A hostile peer can answer its own calls wrongly or never, and with a call's token spend the frames of that call,
//! which then ends as [`CallError::Fatal`]. It cannot make a call hang beyond its deadline, nor anything panic.

mod answering;
mod calls;
mod client;
mod kept;
pub mod limits;
mod outbox;
mod rpc;
mod server;
mod session;

pub use calls::{CallId, Start};
pub use rpc::{Config, Counters, Event, Flaws, Rpc};
pub use server::RequestKey;

use wire::Errno;

/// Why a call ended without an answer from the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The peer restarted or stayed unreachable: whether the call was executed is not known. Retry what may be
    /// executed twice.
    #[error("the peer was lost during the call; it may have been executed")]
    PeerLost,
    /// The deadline passed: as [`CallError::PeerLost`], but the peer may still be at it.
    #[error("the call's deadline passed; it may have been executed")]
    Deadline,
    /// The peer runs no such service, or is not ready to: the call was not executed. Retry later or elsewhere.
    #[error("the peer does not serve this call")]
    Refused,
    /// Too many calls are under way here or there: not executed. Retry later.
    #[error("too many calls are under way")]
    Overloaded,
    /// The peer broke the protocol, as by more data than was asked for: it may have been executed, and retrying will
    /// not help.
    #[error("the peer broke the protocol")]
    Fatal,
}

impl CallError {
    /// Whether the call was certainly not executed.
    pub fn not_executed(self) -> bool {
        matches!(self, CallError::Refused | CallError::Overloaded)
    }
}

impl From<CallError> for Errno {
    fn from(error: CallError) -> Errno {
        match error {
            CallError::PeerLost => Errno::EHOSTDOWN,
            CallError::Deadline => Errno::ETIMEDOUT,
            CallError::Refused => Errno::ENODEV,
            CallError::Overloaded => Errno::EAGAIN,
            CallError::Fatal => Errno::EPROTO,
        }
    }
}

/// Statuses of replies that NetRPC itself gives; services use those below.
pub mod status {
    /// The first status that a service may not use.
    pub const RESERVED: u16 = 0xff00;
    /// The channel is not served there.
    pub const REFUSED: u16 = 0xff01;
    /// No room for the request or its payload; it was not executed.
    pub const OVERLOADED: u16 = 0xff02;
    /// The request was executed, and its reply is not kept any more.
    pub const FORGOTTEN: u16 = 0xff03;
}
