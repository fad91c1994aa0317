//! The Trapeze endpoint: what a host and its adapter must agree on (HPDC'97 section 2, HotI'99 section 2.2).
//!
//! A host posts control messages on a send ring and takes arrived ones from a receive ring; payloads are frames of one
//! pool, named by position, never copied between the rings and the caller. The adapter's end of the rings belongs to
//! the world: a TCP connection, shared memory, a simulated network.
//!
//! It is not a protocol: delivery is best effort, order is arrival order, and calls, credits and retransmission are
//! `netrpc`'s. Everything but [`shared`] belongs to one thread.
//!
//! Ownership is the invariant that types state: a [`FrameMut`] is the only access to its bytes, a [`Frame`] is shared
//! and read-only, and a frame that is on a ring belongs to the far end until its completion is read.

pub mod filling;
pub mod frames;
pub mod incoming;
pub mod limits;
pub mod memory;
pub mod pulse;
pub mod rings;
pub mod shared;
pub mod tuning;

pub use filling::{Filling, is_fillable};
pub use frames::{Frame, FrameMut, Frames};
pub use incoming::{Cancelled, IncomingTable};
pub use memory::{HeapRegion, Region};
pub use pulse::Pulse;
pub use rings::{
    Counters, Endpoint, Message, Placement, ReceiveMessage, SendMessage, payload_checksum,
};
