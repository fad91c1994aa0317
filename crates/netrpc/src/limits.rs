//! Limits of NetRPC, with the arithmetic that chose them.

use std::time::Duration;

/// Calls one node may have open: 64 block reads to each of 16 servers.
pub const CALLS: usize = 1024;
/// Most slots a client takes of what a server grants: half of its own calls.
pub const SLOTS_MAX: u16 = 512;
/// Slots a server grants to one session unless asked otherwise: 64 block reads in flight and a reserve for control.
pub const SLOTS: u16 = 128;
/// Slots of a session that data calls leave free: lease renewals and closes are never behind bulk.
pub const SLOTS_CONTROL: u16 = 4;
/// Pages of request payload one session may have on the way, at most: 8 MiB keeps a 10 Gb/s link with 5 ms busy.
pub const WINDOW_PAGES_MAX: u16 = 2048;
/// Pages of request payload one session may always have on the way: one largest payload.
pub const WINDOW_PAGES_MIN: u16 = 256;
/// Pages of request payload that all sessions of a server share: 64 MiB.
pub const BUDGET_PAGES: usize = 16 * 1024;
/// How long a request may stay unanswered before it is retransmitted; doubles up to [`RETRY_MAX`].
pub const RETRY: Duration = Duration::from_millis(250);
/// Longest time between two sendings of a request.
pub const RETRY_MAX: Duration = Duration::from_secs(2);
/// First pause after a server refused a request for lack of memory.
pub const OVERLOAD_PAUSE: Duration = Duration::from_millis(1);
/// How long a peer may be unreachable before its pending calls are given up.
pub const PEER_LOST: Duration = Duration::from_secs(10);
/// Messages that may wait for the send ring, as long as it is full: one reply for each slot of 32 sessions. More are
/// lost, as a link may lose them, and asked for again.
pub const OUTBOX: usize = 4096;
/// Sessions a server keeps; the one that was silent longest makes room.
pub const SESSIONS: usize = 1024;
/// Pages of kept replies of one session: two largest payloads. Over it replies forget their data, oldest first.
pub const KEPT_SESSION_PAGES: usize = 512;
/// Pages of kept replies of all sessions: 16 MiB, and never more than a part of the pool
/// ([`KEPT_POOL_PART`]). The session that keeps most forgets first.
pub const KEPT_PAGES: usize = 4096;
/// The part of the pool that kept replies may hold: a quarter.
pub const KEPT_POOL_PART: usize = 4;
/// Copies of a request that are ignored when the data of its kept reply was forgotten: the reply itself may still be
/// on its way, and with [`RETRY`] doubling the fourth copy comes 3.75 s after the request.
pub const FORGOTTEN_COPIES: u8 = 3;

const _: () = assert!(SLOTS <= SLOTS_MAX);
const _: () = assert!(SLOTS_CONTROL < SLOTS);
const _: () = assert!(SLOTS_MAX as usize <= CALLS);
const _: () = assert!(CALLS <= u16::MAX as usize);
const _: () = assert!(WINDOW_PAGES_MIN <= WINDOW_PAGES_MAX);
const _: () = assert!(WINDOW_PAGES_MAX as usize <= BUDGET_PAGES);
const LONGEST_PAGES: usize = wire::limits::PAYLOAD_BYTES_MAX / wire::limits::BLOCK_BYTES;
const _: () = assert!(WINDOW_PAGES_MIN as usize >= LONGEST_PAGES);
const _: () = assert!(KEPT_SESSION_PAGES >= LONGEST_PAGES);
const _: () = assert!(KEPT_SESSION_PAGES <= KEPT_PAGES);
const _: () = assert!(RETRY.as_millis() < RETRY_MAX.as_millis());
const _: () = assert!(RETRY_MAX.as_millis() < PEER_LOST.as_millis());
const _: () = assert!(OVERLOAD_PAUSE.as_millis() < RETRY.as_millis());
const _: () = assert!(KEPT_POOL_PART > 1);
