//! Limits of the links, with the arithmetic that chose them.

use std::time::Duration;
use wire::limits::CONTROL_BYTES;

/// Slots of a shared-memory ring: 16 block reads from each of 8 callers in a node; 348 KiB with trailers.
pub const SHARED_SLOTS: usize = 128;
/// Messages that wait for one connection, or for it to be made. A quarter of the node's send ring, so that one peer
/// that stands still leaves the others room; what is over is dropped and counted.
pub const QUEUE_MESSAGES_MAX: usize = 128;
/// Messages moved in one direction of one connection before the others get their turn.
pub const TURN_MESSAGES_MAX: usize = 32;
/// Messages received over shared memory in one turn. Their replies leave at the turn's end, so that the peer works
/// on a few while a few more are copied here: with 16 block reads under way turns of 4 to 8 move 830,000 a second,
/// turns of 32 move 620,000, because then one side always waits for the other.
pub const SHARED_TURN_MESSAGES: usize = 4;
/// Wake-up bytes left in the socket of a shared-memory link, so that not every wake-up costs a system call to read it.
/// Each takes about 1 KiB of the kernel's memory, and a UNIX socket holds over 200 KiB.
pub const SHARED_BELLS_MAX: usize = 32;
/// System calls of one direction of one connection in one turn.
pub const TURN_CALLS_MAX: usize = 4;
/// Bytes received ahead of their place: 128 control messages, or one with a payload of up to 15 KiB. Copying 8 KiB that
/// have just come costs 0.2 us, a second system call 0.5; of larger payloads the rest goes straight to its frames.
pub const AHEAD_BYTES: usize = 16 << 10;
/// Pieces of one vectored send; the kernel takes 1024.
pub const SEND_PIECES_MAX: usize = 128;
/// Bytes that end one vectored send: the kernel's default largest send buffer is 4 MiB.
pub const SEND_BYTES_MAX: usize = 2 << 20;
/// Payloads above this go through the second connection: it takes 55 us at 10 Gb/s, a small message 1.
pub const BULK_BYTES_MIN: usize = 64 << 10;
/// Fewest bytes of a transfer while a payload is still filling, whatever transfers cost: one page, which nothing that
/// fills a payload brings less of.
pub const PULSE_BYTES_MIN: usize = 4 << 10;
/// Most that a pulse that tunes itself waits for: what a disk brings at a time.
pub const PULSE_BYTES_MAX: usize = 256 << 10;
/// Transfers of a connection that are timed, for pulses that tune themselves: the first ones, then one in so many.
pub const TIMED_FIRST: u64 = 64;
/// See [`TIMED_FIRST`]. The readings of the clock for a payload over adapters take 0.2 us, a tenth of the shortest
/// one's time.
pub const TIMED_EVERY: u64 = 8;
/// Largest Noise message (Noise specification, section 3).
pub const SEALED_BYTES_MAX: usize = 65_535;
/// Bytes that authenticate a Noise message.
pub const SEAL_BYTES: usize = 16;
/// Plain bytes of one sealed record of payload: 15 pages, the most whole pages below [`SEALED_BYTES_MAX`].
pub const RECORD_BYTES: usize = 15 * 4096;
const _: () = assert!(RECORD_BYTES + SEAL_BYTES <= SEALED_BYTES_MAX);
/// A sealed control message.
pub const SEALED_CONTROL_BYTES: usize = CONTROL_BYTES + SEAL_BYTES;
/// Sealed bytes received and not opened: two records.
pub const SEALED_AHEAD_BYTES: usize = 2 * (RECORD_BYTES + SEAL_BYTES);
/// Sealed bytes not sent; sealing stops above it and the buffer has room for one record more.
pub const SEALED_BEHIND_BYTES: usize = 2 * (RECORD_BYTES + SEAL_BYTES);
/// Sealed messages in one direction under one key. AES-GCM with counted nonces is good for 2^32 of 64 KiB.
pub const MESSAGES_PER_KEY: u64 = 1 << 24;
/// Time for a connection to be made and both sides to introduce themselves.
pub const HANDSHAKE_SPAN: Duration = Duration::from_secs(5);
/// First and longest pause between attempts to connect.
pub const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// See [`BACKOFF_MIN`].
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Connections accepted and not yet introduced. One more takes the place of the oldest: peers that open connections and
/// stay silent must not keep others out, and an honest handshake takes some round trips, below 1 ms, not seconds.
pub const STRANGERS_MAX: usize = 64;
/// Connections accepted in one turn: a quarter of [`STRANGERS_MAX`], so that those who came before have been heard
/// several times before newer ones take their places. The others stay in the kernel's line until the next turn.
pub const ACCEPTS_MAX: usize = 16;
/// Connections to a UNIX socket that wait in the kernel to be accepted: as many as the standard library has for TCP.
pub const BACKLOG: i32 = 128;
/// Lines about refused connections of one kind from one address, before they are only counted.
pub const REFUSAL_LINES: u32 = 3;
/// Addresses and kinds that are told apart. With [`REFUSAL_LINES`] and the line that has the count at most 49 lines a
/// minute, 10 MiB a day; from one address that goes on one a minute.
pub const REFUSAL_SOURCES_MAX: usize = 16;
/// How often the count is told.
pub const REFUSAL_SPAN: Duration = Duration::from_secs(60);
/// A peer is given up when what was sent to it stays unacknowledged this long; a silent TCP peer is asked for life.
pub const SILENCE_SPAN: Duration = Duration::from_secs(10);
/// Longest time between two looks at a shared-memory peer that counts as its silence: ten times [`RECLAIM_SPAN`].
pub const LOOK_SPAN_MAX: Duration = Duration::from_secs(1);
/// A connection that moved something this recently is read without asking the kernel whether there is anything.
pub const HOT_SPAN: Duration = Duration::from_micros(200);
/// How often a busy node asks the kernel about all the others.
pub const SCAN_SPAN: Duration = Duration::from_micros(20);
/// The same of a busy node that has no connection, nor one that is being made: how much later it accepts one.
pub const SCAN_SPAN_ALONE: Duration = Duration::from_millis(1);
/// How old the counters that others see may be.
pub const PUBLISH_SPAN: Duration = Duration::from_millis(100);
/// A sleeping node looks this often for entries that its peers have released: seldom, because each look is a wake-up,
/// and who needs the frames is awake.
pub const RECLAIM_SPAN: Duration = Duration::from_millis(100);
/// Node ids from here on are given by the node that accepts a connection of one that has none yet.
pub const PROVISIONAL_FIRST: u16 = 0xF000;
