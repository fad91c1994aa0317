//! Limits of the real world, with the arithmetic that chose them.

/// Disk operations under way at once, over all disks of a node: 64 for each of 4 disks keeps any of them busy, and
/// the frames of the rest stay with their owners' back-pressure.
pub const DISK_OPS_MAX: usize = 256;
/// Descriptors that the disk device keeps open: two for each of 512 busy files, half of the usual limit of 1,024 for
/// a process leaves room for sockets; the device takes less where the process may open less.
pub const DISK_DESCRIPTORS_MAX: usize = 1024;
/// Threads that wait for disks in a node's place: enough that two slow syncs do not hold up an open.
pub const DISK_HELPERS: usize = 4;
/// Object names that a listing keeps sorted between its pages: 65,536 of 16 to 24 bytes are 1.5 MiB.
pub const LISTING_WINDOW: usize = 1 << 16;
/// Work of a throttled disk ahead of its rate after being idle, in milliseconds of that rate.
pub const THROTTLE_BURST_MS: u64 = 10;
/// Times that a file's storage is counted until it does not change meanwhile.
pub const STAT_TRIES: u32 = 4;
/// Times that an interrupted transfer is started again before its error number is reported.
pub const TRANSFER_RETRIES_MAX: u8 = 16;
/// Threads behind the stores of a node: each of two stores has at most one checkpoint under way, and syncs and
/// removals must pass both, and a log that is being laid out.
pub const META_HELPERS: usize = 4;
/// Disk operations started in one poll: what one turn submits in one system call, and no more work than a link has
/// in one turn.
pub const DISK_OPS_PER_POLL: usize = 64;
/// Operations on stores taken in one poll: an append takes about 2 us, so a poll with nothing but appends 128 us.
pub const META_OPS_PER_POLL: usize = 64;
/// Writes of logs past the host's cache at once: two stores, each of which may go from one log to the next.
pub const META_WRITES_MAX: usize = 4;
/// Syncs of a log after which the next one is laid out before: it takes a few ms of the disk's time, which a log with
/// fewer would not give back.
pub const META_LAY_OUT_SYNCS: u32 = 8;
/// A log is laid out for twice the bytes of the last one, within these: a log of one second with 10,000 changes of 700
/// bytes is 7 MB, and there are up to four logs on the disk.
pub const META_LAID_OUT_BYTES: (u64, u64) = (1 << 20, 8 << 20);
/// Zeros that are written at once for that.
pub const META_LAY_OUT_STEP_BYTES: usize = 256 << 10;
/// Most that a store keeps in reserve on its disk for changes that make room: the log records of some
/// ten thousand removals, and a checkpoint of them.
pub const META_RESERVE_BYTES: u64 = 16 << 20;
/// The same for the table of members, which is small.
pub const MEMBERS_RESERVE_BYTES: u64 = 1 << 20;
/// By how much it is shortened at a time: a checkpoint of some thousand changes.
pub const META_RESERVE_STEP_BYTES: u64 = 512 << 10;
/// Where the reserve is small, the part of it that a step is, one in so many.
pub const META_RESERVE_STEP_SHARE: u64 = 16;
/// Steps that one change may take of it: another program that takes all that comes free gets no more through it.
pub const META_RESERVE_STEPS: u32 = 4;
/// Bytes of appends after which the reserve is looked at, which takes a few system calls: a small part of it.
pub const META_RESERVE_LOOK_BYTES: u64 = 16 << 10;
/// Appends after which it is looked at, however small they are.
pub const META_RESERVE_LOOK_APPENDS: u64 = 16;
/// The part of it that is for logs alone, one in so many: 2 MiB, some thousand removals.
pub const META_RESERVE_LOG_SHARE: u64 = 8;
/// On a disk that is nearly full the reserve is so many times as long as the logs: a checkpoint takes three times their
/// bytes, and the logs grow while it is made.
pub const META_RESERVE_PER_LOG: u64 = 6;
/// With so much free beside it, a disk is not nearly full: others do not fill it within the second between checkpoints.
pub const META_ROOM_BYTES: u64 = 64 << 20;
/// Where the disk is small, the part of it that is kept, one in so many: 12 MiB of 400.
pub const META_RESERVE_SHARE: u64 = 32;
