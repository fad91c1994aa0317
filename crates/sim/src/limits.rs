//! Limits of a simulation, with the arithmetic that chose them.

/// Events that fit into the queue before it grows: 64 calls in flight from each of 16 nodes, in two parts, twice.
pub const QUEUE_EVENTS: usize = 4_096;
/// Packets on the way before the list of recycled buffers grows.
pub const PACKETS: usize = 1_024;
/// Bytes of a page of a simulated disk, the least that a power cut keeps or loses whole.
pub const DISK_PAGE_BYTES: usize = 4_096;
/// Bytes of trailer words that a damaged bit may fall into, at most all of them.
pub const TRAILER_BYTES_MAX: usize = wire::limits::TRAILER_BYTES_MAX;
