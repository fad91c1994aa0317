//! Limits of the C library, with the arithmetic that chose them.

/// Requests of one served channel that may be with the program unanswered, as many as one client may have under way;
/// more wait in the node, and what does not fit there is refused as overload.
pub(crate) const REQUESTS_OPEN: usize = 128;
/// Entries of the send ring that the program leaves to calls: an eighth of the ring.
pub(crate) const SEND_RESERVE: usize = endpoint::limits::RING_ENTRIES / 8;
/// Buffers of one system call: what the kernel takes at most, UIO_MAXIOV.
pub(crate) const PARTS_MAX: usize = 1024;
/// Most payload memory of one endpoint: 1 TiB, far below where the arithmetic of sizes ends.
pub(crate) const MEMORY_BYTES_MAX: u64 = 1 << 40;
