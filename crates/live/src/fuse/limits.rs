//! Limits of the FUSE front, with the arithmetic that chose them.

use std::time::Duration;

/// Most bytes of one READ or WRITE: one frame of the largest run, and 256 pages, the kernel's default
/// `max_pages_limit`.
pub const IO_BYTES_MAX: usize = wire::limits::PAYLOAD_BYTES_MAX;
/// The same in pages, as INIT states it.
pub const IO_PAGES_MAX: u16 = (IO_BYTES_MAX / wire::limits::BLOCK_BYTES) as u16;
/// Requests read from the kernel and not yet answered, but for locks that wait. The kernel keeps at most
/// [`BACKGROUND_MAX`] of its own under way; the rest is one per thread that waits in a system call, so 1,024 is more
/// threads than a machine of 32 cores usually has waiting. Beyond it requests wait in the kernel.
pub const REQUESTS_MAX: usize = 1024;
/// Locks that wait (SETLKW), beside those: they may wait forever and must leave room for the requests that end them. 64
/// bytes each, taken as they come: 4 MiB.
pub const WAITING_LOCKS_MAX: usize = 65_536;
/// Callers of waiting locks that are looked at in one turn: the kernel tells of the first signal to each anyway.
pub const WAITING_LOOKS_MAX: usize = 64;
/// Requests the kernel sends without anybody waiting for each: read-ahead and asynchronous direct I/O. 64 MiB in
/// flight at the largest size, enough to cover 10 ms at 6 GB/s.
pub const BACKGROUND_MAX: u16 = 64;
/// Where the kernel begins to hold such requests back: three quarters, as its own default has it.
pub const CONGESTION: u16 = BACKGROUND_MAX / 4 * 3;
/// Read-ahead window asked of the kernel: two of the largest reads, so that one is under way while one is consumed.
pub const READ_AHEAD_BYTES: usize = 2 * IO_BYTES_MAX;
/// Requests moved in one turn of the device, so that other devices get theirs.
pub const TURN_REQUESTS_MAX: usize = 32;
/// Writes up to this are copied to a frame of their own size (1.5 us at 10 GB/s), so that they never hold on to a
/// megabyte.
pub const COPY_BYTES_MAX: usize = 16 << 10;
/// Pieces of one reply: the kernel's `UIO_MAXIOV`.
pub const REPLY_PIECES_MAX: usize = 1024;
/// How long the kernel may believe a name or attributes, unless configured otherwise: as long as NFS clients' shortest.
pub const BELIEF: Duration = Duration::from_secs(1);
/// How often the processes are looked at whose requests are older than that: a killed one ends within a second.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Longest extended attribute value, Linux's `XATTR_SIZE_MAX`.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
