//! Commands and events between an adapter and the driver of its engines.

use crate::cache::Reuse;
use crate::direction::Direction;
use wire::{NodeId, Token};

/// A time in the driver's own unit (picoseconds in the simulator, nanoseconds live); 0 is not known. The firmware
/// copies it and takes differences of it.
pub type Ticks = u64;

/// An engine that moves bytes. The host's bus is half duplex, so both directions share one engine (HPDC'97 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// Between host memory and adapter memory.
    HostDma,
    /// From adapter memory to the link.
    NetSend,
    /// From the link to adapter memory.
    NetReceive,
}

impl Engine {
    /// All of them, in the order in which the firmware asks.
    pub const ALL: [Engine; 3] = [Engine::HostDma, Engine::NetSend, Engine::NetReceive];
}

/// The content of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The control message.
    Control,
    /// Payload.
    Payload,
    /// Payload, or a whole packet, that is taken off the link and kept nowhere.
    Discard,
}

/// A stretch of host memory: an address that the bus understands, and its length in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostFrame {
    /// Bus address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: usize,
}

impl endpoint::incoming::Room for HostFrame {
    fn room(&self) -> usize {
        self.bytes
    }
}

/// A stretch of host memory to be sent, and what the host knows about a copy on the adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The bytes in host memory.
    pub frame: HostFrame,
    /// Whether the adapter's copy may serve instead. Only for pieces that lie in one buffer; others are fetched.
    pub reuse: Reuse,
}

impl From<HostFrame> for Piece {
    fn from(frame: HostFrame) -> Piece {
        Piece { frame, reuse: Reuse::Fetch }
    }
}

/// A packet's head: what the link carries with every packet. All but fragments carry a whole message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    /// The sender.
    pub source: NodeId,
    /// The receiver.
    pub destination: NodeId,
    /// The message's number at its source; 0, 1, 2 in the order of posting.
    pub number: u64,
    /// Offset of this packet's part in the message's payload.
    pub offset: usize,
    /// Payload bytes of this packet.
    pub payload: usize,
    /// Payload bytes of the whole message.
    pub total: usize,
    /// The right to land in frames of the receiver's choice.
    pub token: Token,
}

impl Packet {
    /// Whether it ends its message.
    pub const fn is_last(&self) -> bool {
        self.offset + self.payload == self.total
    }
}

/// A transfer that an engine is to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The engine that makes it.
    pub engine: Engine,
    /// Its direction.
    pub direction: Direction,
    /// Control message or payload.
    pub kind: Kind,
    /// The packet it belongs to.
    pub packet: Packet,
    /// The entry of the send ring, or of the receive ring; of a packet that is dropped, 0.
    pub slot: usize,
    /// The adapter's buffer that payload leaves or enters, and where in it.
    pub buffer: Option<(u16, usize)>,
    /// Host memory, of payload on the bus; else 0.
    pub address: u64,
    /// Its offset in the message's payload.
    pub offset: usize,
    /// Bytes; at least 1.
    pub bytes: usize,
    /// Whether the packet ends with it on this engine.
    pub last: bool,
}

/// Destination of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Landing {
    /// Nowhere: no payload, no frame for it, a token that is not good (any more), or too long.
    #[default]
    Nowhere,
    /// In the frames of the receive entry.
    Entry,
    /// In the frames of the incoming payload table's entry.
    Incoming,
}

/// The driver's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The engine starts its transfer ([`crate::Nic::active`]); [`crate::Nic::finished`] tells when it has ended.
    Start(Engine),
    /// A message is the host's: its control message is in this entry of the receive ring, `landed` bytes of payload
    /// in host memory ([`crate::Nic::landed`]). The entry is the host's until it is armed again.
    Deliver {
        /// Entry of the receive ring.
        slot: usize,
        /// Its last packet.
        packet: Packet,
        /// The payload's destination.
        landing: Landing,
        /// Bytes that arrived there; all or nothing.
        landed: usize,
    },
    /// The host is interrupted.
    Interrupt,
    /// A message has left: its entry of the send ring and its frames are the host's again.
    Complete {
        /// Entry of the send ring.
        slot: usize,
        /// The message's number.
        number: u64,
    },
}

/// An action, and what it costs the adapter's processor before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The action.
    pub action: Action,
    /// Instructions.
    pub instructions: u32,
}

/// The counter registers of the engines (HPDC'97 section 3.1): how far an active transfer is.
pub trait Progress {
    /// Bytes of the engine's active transfer that have crossed.
    fn moved(&self, engine: Engine) -> usize;
}

impl<F: Fn(Engine) -> usize> Progress for F {
    fn moved(&self, engine: Engine) -> usize {
        self(engine)
    }
}
