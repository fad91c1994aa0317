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
/// What a throttled disk may do ahead of its rate after being idle, in milliseconds of that rate.
pub const THROTTLE_BURST_MS: u64 = 10;
/// Times that an interrupted transfer is started again before its error number is reported.
pub const TRANSFER_RETRIES_MAX: u8 = 16;
/// Threads behind the stores of a node: each of two stores has at most one checkpoint under way, and syncs and
/// removals must pass both.
pub const META_HELPERS: usize = 3;
/// Disk operations started in one poll: what one turn submits in one system call, and no more work than a link has
/// in one turn.
pub const DISK_OPS_PER_POLL: usize = 64;
/// Operations on stores taken in one poll: an append takes about 2 us, so a poll with nothing but appends 128 us.
pub const META_OPS_PER_POLL: usize = 64;
