//! Limits of the client file system, with the arithmetic that chose them.

use std::time::Duration;

/// Bytes of one send: the largest payload a call may carry. Sends end at multiples of it, so that the next starts
/// aligned.
pub const SEND_BYTES_MAX: u64 = wire::limits::PAYLOAD_BYTES_MAX as u64;
/// Least bytes of a sequential run that are sent before anybody asked: at 8 servers and 32 KiB units one unit each.
pub const SEND_BYTES_MIN: u64 = 256 * 1024;
/// Most frames of one send before they are joined into one: half of a scatter/gather list of 64, the other half is
/// for cuts at stripe units.
pub const SEND_FRAMES_MAX: usize = 24;
/// Sends under way of one file: 8 MiB, 2 ms at 4 GB/s.
pub const SENDS_PER_FILE: usize = 8;
/// Loops that send and commit for the whole mount.
pub const SEND_LOOPS: usize = 16;

/// Bytes of one read-ahead chunk: 8 stripe units of 32 KiB.
pub const CHUNK_BYTES: u64 = 256 * 1024;
/// A run reads at least this far ahead.
pub const AHEAD_BYTES_MIN: u64 = 2 * CHUNK_BYTES;
/// And at most this far: 8 chunks in flight hide 1 ms at 2 GB/s.
pub const AHEAD_BYTES_MAX: u64 = 8 * CHUNK_BYTES;
/// Reads that follow each other before they count as a run.
pub const RUN_READS_MIN: u32 = 3;
/// How far from its place a read of a run may be: a kernel has up to 1 MiB of reads under way, in any order.
pub const RUN_SLACK_BYTES: u64 = 1024 * 1024;
/// A first read at the start of a file this long counts as a run: a kernel's first read-ahead is 128 KiB, random
/// readers ask for less.
pub const START_BYTES_MIN: u64 = 64 * 1024;
/// Loops that read ahead for the whole mount: two sequential readers at full window.
pub const AHEAD_LOOPS: usize = 16;
/// What was read ahead is not handed out when it is older: as the attribute cache.
pub const AHEAD_AGE_MAX: Duration = Duration::from_secs(1);
