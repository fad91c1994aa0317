//! Limits of the sockets, with the arithmetic that chose them.

use std::time::Duration;

/// Connections accepted in one turn.
pub const ACCEPTS_PER_TURN: usize = 64;
/// Connections that wait to be accepted (the system may allow fewer).
pub const BACKLOG: i32 = 1024;
/// Reads of one connection in one turn: half a MiB.
pub const READS_PER_TURN: usize = 8;
/// Reads of the one connection that is busy until others are looked at: they wait for so many calls more.
pub const HOT_READS: u32 = 4;
/// Full outputs of one connection in one turn: four MiB.
pub const WRITES_PER_TURN: usize = 8;
/// Pieces of one gathered write: 31 values with what stands between them.
pub const PIECES_MAX: usize = 64;
/// Bytes of pieces of one gathered write that take a detour: as much as an output is filled with at a time, half of a
/// processor's cache.
pub const DETOUR_BYTES: usize = kv::limits::OUTPUT_BYTES_MAX;
/// Bytes of half commands that all connections keep at the most: 24 KiB for each of 2,700 of them, 6 KiB for each of
/// 10,000.
pub const KEPT_BYTES_MAX: usize = 64 << 20;
/// Bytes of text that all clients together may leave unread: 512 KiB for each of 512. Long values are not copied, so
/// they do not count.
pub const WAITING_BYTES_MAX: usize = 256 << 20;
/// Reads of the connection that is alone busy before others are looked at as well.
pub const HOT_LOOKS_MAX: u32 = 64;
/// How often it is asked whether a client runs on this processor before that is found out again: a system call.
pub const SHARES_LOOKS: u32 = 8;
/// Datagrams read from one socket in one turn.
pub const DATAGRAMS_PER_TURN: usize = 64;
/// Pause after the system had no descriptor left.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often items are looked at for having expired.
pub const SWEEP_SPAN: Duration = Duration::from_millis(100);
/// How often connections are looked at for having stalled.
pub const LOOK_SPAN: Duration = Duration::from_secs(1);
/// How long a client may read nothing while output waits for it.
pub const STALL_SPAN: Duration = Duration::from_secs(60);
/// The same, or how long nothing more of half a command may come, where its tenant is short of the memory that this
/// holds: a retransmission or two.
pub const SHORT_STALL_SPAN: Duration = Duration::from_secs(1);
