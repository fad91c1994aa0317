//! Limits of a simulation, with the arithmetic that chose them.

use wire::limits::PAYLOAD_BYTES_MAX;

/// Events that fit into the queue before it grows: 64 calls in flight from each of 16 nodes, in two parts, twice.
pub const QUEUE_EVENTS: usize = 4_096;
/// Packets on the way before the list of recycled buffers grows.
pub const PACKETS: usize = 1_024;
/// Bytes of a page of a simulated disk, the least that a power cut keeps or loses whole.
pub const DISK_PAGE_BYTES: usize = 4_096;
/// Bytes of trailer words that a damaged bit may fall into, at most all of them.
pub const TRAILER_BYTES_MAX: usize = wire::limits::TRAILER_BYTES_MAX;
/// Simulated seconds of an experiment: a day.
pub const SECONDS_MAX: u64 = 86_400;
/// Servers, mounts, and disks of a server: what a stripe is wide, so that each can matter.
pub const MACHINES_MAX: u16 = wire::layout::WIDTH_MAX as u16 / 2;
/// Applications on a mount, and files that they share: as many as a last phase reads in its time.
pub const WORKERS_MAX: u16 = 64;
/// Keys of clients: their checker remembers all that was written.
pub const KEYS_MAX: u32 = 100_000;
/// Longest pause of a machine, in milliseconds.
pub const PAUSE_MS_MAX: u64 = 3_000;
/// Nodes with network memory: their programs and their tables take 1 MiB each.
pub const MEMORY_NODES_MAX: u16 = 1_000;
/// Pages of 4 KiB of each, 64 MiB: what a run of several nodes has room for.
pub const MEMORY_FRAMES_MAX: u32 = 16_384;
/// Most that a machine of a cluster lends to network memory: 64 MiB, as much as [`MEMORY_FRAMES_MAX`].
pub const LEND_MIB_MAX: u32 = 64;
/// Longest files: the longest write is 3/16 of it, 960 KiB, and must fit one frame of 1 MiB.
pub const FILE_KIB_MAX: u32 = 5 * 1024;
const _: () = assert!((FILE_KIB_MAX as usize * 3 / 16) << 10 < PAYLOAD_BYTES_MAX);
/// Most that clocks differ by: an hour.
pub const SKEW_MS_MAX: u64 = 3_600_000;
/// Percent that clocks run too fast or too slow: a thousand times what a crystal does; leases stand it.
pub const CLOCK_RATE_PERCENT_MAX: u32 = 10;
/// Faults and moves in a minute: ten a second, more would leave no time between them.
pub const PER_MINUTE_MAX: u32 = 600;
/// Decays of one run: each takes a start of the whole cluster, and finds less than a run of its own would.
pub const DECAYS_MAX: u32 = 1_000;
/// Points of a sweep, seeds included: at a microsecond for a formula they are done at once, and a figure shows no more.
pub const POINTS_MAX: usize = 20_000;
/// Seeds of an experiment of the papers.
pub const SEEDS_MAX: usize = 64;
/// Largest number of a figure, either way: an axis' labels have up to nine decimals, and one more than it is another.
pub const FIGURE_MOST: f64 = 1e12;
/// Packets of a simulated point: at least one for each batch of a confidence interval; at most a minute's worth.
pub const AMOUNT: (u64, u64) = (20, 100_000_000);
/// Copies of each byte of files.
pub const COPIES_MAX: u8 = 2;
