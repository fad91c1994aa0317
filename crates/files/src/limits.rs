//! Limits of the client file system, with the arithmetic that chose them.

use std::time::Duration;

/// Bytes of one send: the largest payload a call may carry. Sends end at multiples of it, so that the next starts
/// aligned. A sequential run is sent when it reaches one: four servers then get 256 KiB each (a window of their cache,
/// one disk write). Three get as much of 768 KiB: parts of another length than a power of two would lie across the
/// windows of the cache and leave holes in the pool behind them. Smaller first sends cost a stream a quarter more
/// processor time, in messages and wake-ups; who waits for the bytes (close, fsync) has sent what there is.
pub const SEND_BYTES_MAX: u64 = wire::limits::PAYLOAD_BYTES_MAX as u64;
/// Most frames of one send before they are joined into one: half of a scatter/gather list of 64, the other half is
/// for cuts at stripe units.
pub const SEND_FRAMES_MAX: usize = 24;
/// Sends under way of one file: 8 MiB, 2 ms at 4 GB/s.
pub const SENDS_PER_FILE: usize = 8;
/// Loops that send and commit for the whole mount.
pub const SEND_LOOPS: usize = 16;

/// Bytes of one read-ahead chunk at the start of a run: 8 stripe units of 32 KiB.
pub const CHUNK_BYTES: u64 = 256 * 1024;
/// And once the run is twice as long as this: the longest payload, 256 KiB from each of four servers, a quarter of the
/// messages and wake-ups.
pub const LONG_CHUNK_BYTES: u64 = wire::limits::PAYLOAD_BYTES_MAX as u64;
/// A run reads at least this far ahead.
pub const AHEAD_BYTES_MIN: u64 = 2 * CHUNK_BYTES;
/// And at most this far, to the end of the chunk: 2 MiB hide 1 ms at 2 GB/s, and stay in a processor's cache until the
/// kernel asks for them.
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
/// A send, a commit or a read-ahead that takes longer waits for a server or the manager to come back, or for a slow
/// disk: another loop takes the place of its own. One to a server that is well takes 1 ms, a commit up to 200 ms.
pub const WORK_SPAN: Duration = Duration::from_millis(100);
/// Most of them in a pool of loops: 1,024 sends of 64 KiB are 64 MiB, what a client may hold unsent with a pool of
/// 256 MiB. Those beyond it keep their loops.
pub const LATE_MAX: usize = 1024;
/// Ranges that applications said they will read and did not yet: about 150 bytes each, 2.4 MiB.
pub const HINTS_MAX: usize = 16_384;
/// How many of the next ones the servers are told ahead of their reader: 10 ms of a reader of 100,000 files a second.
pub const HINTS_TOLD_MAX: usize = 1024;
/// And of how many bytes: half of what four servers with caches of 512 MiB keep for hints.
pub const HINTED_BYTES_MAX: u64 = 256 << 20;
/// How many of the next ones are read ahead here at the start, and at most when their reader is found waiting: 32 files
/// of 4 KiB from servers' memory, 0.1 ms each, are 10,000 files a second at 3 ms a file.
pub const HINT_DEPTH_MIN: usize = 2;
/// See [`HINT_DEPTH_MIN`].
pub const HINT_DEPTH_MAX: usize = 32;
/// A hint so old makes room when there is no more: who gave it reads something else by now, or is gone.
pub const HINT_AGE_MAX: Duration = Duration::from_secs(60);
/// Loops that tell the servers what comes next.
pub const HINT_LOOPS: usize = 4;
/// Data read ahead is not handed out when it is older: as the attribute cache.
pub const AHEAD_AGE_MAX: Duration = Duration::from_secs(1);

/// Most files whose attributes are kept: about 1 KiB each, 64 MiB in all.
pub const FILES_MAX: usize = 65_536;
/// Old files looked at for each new one beyond the limit: files in use are passed over.
pub const EVICTIONS_PER_FILE: usize = 4;
/// How long attributes of files without a writer here are believed.
pub const ATTRIBUTE_AGE_MAX: Duration = Duration::from_secs(1);
/// How long a front may believe a name: what `live::fuse` tells the kernel.
pub const NAME_AGE_MAX: Duration = Duration::from_secs(1);
/// Written data this old is sent and committed without being asked: the durability contract says within 1 s of the
/// close, a commit takes up to 200 ms.
pub const KEEP_AGE: Duration = Duration::from_millis(600);
/// How often ages are looked at, while there is written data.
pub const TICK: Duration = Duration::from_millis(100);
/// How long a server that does not answer is waited for before written data is given up with EIO: a restart takes
/// seconds, a person who reboots a machine minutes.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// How long a close waits for the objects of a file with holes to say how much room it takes.
pub const USED_SPAN: Duration = Duration::from_secs(1);
/// Pause before an operation is tried again the first time, each later one twice as long.
pub const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// And at most so long: 1,000 sends of a server that stays away ask 1,000 times a second.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a client that ends waits for managers to hear that it holds nothing any more.
pub const LEAVE_SPAN: Duration = Duration::from_secs(1);
/// Pause before what a close left at the manager is ended again: by then that knows again what else is open here.
pub const LEFT_PAUSE: Duration = names::limits::KEEP_ALIVE_INTERVAL;
/// Pause before frames are asked for again when the pool is empty.
pub const FRAMES_PAUSE: Duration = Duration::from_millis(1);
/// How long an operation waits for frames before it ends with ENOMEM.
pub const FRAMES_PATIENCE: Duration = Duration::from_secs(10);
/// Loops that serve the front: FUSE asks up to 64 at once in the background, and as many directly.
pub const FRONT_LOOPS: usize = 128;
/// Operations that take longer than [`WORK_SPAN`] or were interrupted, and go on while another loop serves the front in
/// their place: as many as FUSE has requests under way at most. Those beyond it keep their loops.
pub const BEHIND_MAX: usize = 1024;
/// Longest file: what `off_t` can say.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Longest run of bytes that is read with one call of the striping client.
pub const READ_BYTES_MAX: u64 = wire::limits::PAYLOAD_BYTES_MAX as u64;
/// Most frames of an answer to a read that are handed out as they were written: a page each is the longest payload.
/// FUSE takes 1,023 in one reply.
pub const READ_FRAMES_MAX: usize = 256;
/// Attempts at finding a name of an import whose directory changes meanwhile.
pub const IMPORT_ATTEMPTS: u32 = 5;
/// Waiting lock requests of a mount; more are refused with ENOLCK. As many as locks that a file may have, 80 bytes
/// each: 5 MiB.
pub const LOCK_WAITERS_MAX: usize = 65_536;
/// How often a waiting lock is asked for again that another mount may have made free.
pub const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Refusals of one round with which those that wait behind them are compared, of each file: who waits for the same
/// bytes as another need not be asked for.
pub const LOCK_REFUSALS_MAX: usize = 64;
/// Losses by power cuts that files may not have told yet, each fsync after one tells of its own; and restarts of
/// managers between two syncs.
pub const LOSSES_MAX: usize = 64;
