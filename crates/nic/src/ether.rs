//! Messages over Ethernet without the kernel's stack: what an adapter's firmware does on the wire.
//!
//! ```text
//!   endpoint ─ push ─► fragments of messages ─ poll_frame ──► Ethernet ──► handle_frame ─► their places ─► endpoint
//!                      until acknowledged                (may lose,        as the first fragment
//!                                                        repeat, reorder)  of a message says
//! ```
//!
//! A [`Connection`] is one side of it, a plain struct without I/O or clock: live it is driven over AF_XDP sockets, in
//! tests and in the simulator over a modelled Ethernet. Both sides have agreed beforehand, over another connection, on
//! addresses, numbers and keys.
//!
//! - A message's fragments are sent each in a frame of its own, acknowledged and retransmitted one by one, and read
//!   from the message's frames of the pool each time: nothing is copied to be kept.
//! - Messages arrive in any order: a lost fragment holds up its own message only, and of every two frames one belongs
//!   to small messages when both wait.
//! - The receiver says for how many messages it has entries. A lagging host therefore stops its senders; where several
//!   have used the same room, what does not fit is dropped, counted, and comes again.
//! - Every frame is proved with its headers, and taken once: replayed and forged ones are dropped and counted.
//!
//! It is not a call: a message is delivered at most once by a connection, and not at all when that ends.

mod connection;
mod flights;
mod frame;
mod heard;
mod incoming;
pub mod limits;
mod outgoing;

pub use connection::{Config, Connection, Counters, Messages};
pub use frame::{
    ADDRESS_BYTES, Address, Checked, ETHER_TYPE, HEAD_BYTES, PROOF_BYTES, Seal, body_bytes,
    connection_of, frame_bytes,
};
pub use incoming::Fault;
