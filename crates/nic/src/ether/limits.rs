//! Limits of a connection over Ethernet, with the arithmetic that chose them.

use std::time::Duration;
use wire::limits::{CONTROL_BYTES, PAYLOAD_BYTES_MAX, TRAILER_BYTES_MAX};

/// Shortest frame that a connection is made for: Ethernet's usual MTU of 1,500 and its 14 bytes.
pub const FRAME_BYTES_MIN: usize = 1514;
/// Longest frame that is used. With the 256 bytes that the kernel keeps in front and the 320 behind it is one page:
/// drivers, veth and AF_XDP's own chunks of 4 KiB move it in one piece. A message of an 8 KiB block is three of them.
/// One longer frame would be three pieces of a chunk each, and to be opened it must lie in one.
pub const FRAME_BYTES_MAX: usize = 3520;
/// Most fragments of a message: one of 1 MiB in the shortest frames has 732.
pub const FRAGMENTS_MAX: usize = 1024;
/// Messages of one direction that are not yet acknowledged: as many as a ring of shared memory has slots.
pub const MESSAGES_MAX: usize = 128;
/// Messages that wait behind those; what is over is dropped and counted.
pub const WAITING_MAX: usize = 128;
/// Messages with more data than this let smaller ones pass: of every two frames at least one is theirs.
pub const BULK_BYTES_MIN: usize = 64 << 10;
/// Most frames that are under way: 900 KiB, an eighth of the receiver's chunks.
pub const WINDOW_MAX: u32 = 256;
/// Frames under way at the start, and fewest after losses: what 50 us of 10 Gb/s hold.
pub const WINDOW_MIN: u32 = 16;
/// Frames that are kept in mind until they are acknowledged or surely lost. Those that are not acknowledged count too.
pub const FLIGHTS_MAX: usize = 4 * WINDOW_MAX as usize;
/// A frame is lost when one sent so many later has come (RFC 9002, section 6.1.1).
pub const REORDER_MAX: u64 = 3;
/// Frames that a header can acknowledge below the highest one.
pub const HEARD_BITS: u64 = 64;
/// Frames received that are acknowledged at once.
pub const ACK_EVERY: u32 = 16;
/// Longest that an acknowledgement waits for a frame that goes the same way.
pub const ACK_SPAN: Duration = Duration::from_micros(200);
/// Shortest time after which what is not acknowledged is sent again: several acknowledgements, or a sleeper that wakes.
pub const RESEND_SPAN_MIN: Duration = Duration::from_millis(1);
/// Longest, after several times in vain.
pub const RESEND_SPAN_MAX: Duration = Duration::from_millis(200);
/// The guess before anything was measured.
pub const RESEND_SPAN_FIRST: Duration = Duration::from_millis(5);
/// First and longest pause between two probes.
pub const PROBE_SPAN_MIN: Duration = Duration::from_millis(2);
/// See [`PROBE_SPAN_MIN`].
pub const PROBE_SPAN_MAX: Duration = Duration::from_secs(1);
/// Frames that are not acknowledged for so long go nowhere.
pub const SILENCE_SPAN: Duration = Duration::from_secs(2);
/// Longest time between two looks that counts as the peer's silence.
pub const LOOK_SPAN_MAX: Duration = Duration::from_millis(500);

const LONGEST: usize = CONTROL_BYTES + PAYLOAD_BYTES_MAX + TRAILER_BYTES_MAX;
const _: () = assert!(LONGEST.div_ceil(super::body_bytes(FRAME_BYTES_MIN)) <= FRAGMENTS_MAX);
const _: () = assert!(MESSAGES_MAX.is_power_of_two());
