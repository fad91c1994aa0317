//! Limits of the store, with the arithmetic that chose them.

use std::time::Duration;

/// Longest key: a file name (255) or a path (4096) with room for the prefixes of a manager.
pub const KEY_BYTES_MAX: usize = 8192;
/// Longest value: an extended attribute has at most 64 KiB, and its file's attributes beside it.
pub const VALUE_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of one log record: 16 of the largest values, and what a log must hold in memory to be replayed.
pub const RECORD_BYTES_MAX: usize = 2 << 20;
/// The cost of an overlay's entry beside its key and value: two boxes (16 bytes each), their allocations
/// (about 16 bytes of slack each) and the map's own share.
pub const OVERLAY_ENTRY_BYTES: usize = 80;
/// Overlay by default: one second of 42,000 changes a second of 300 bytes is 13 MB; twice that.
pub const OVERLAY_BYTES_DEFAULT: usize = 24 << 20;
/// Cache of the checkpoint by default. With the overlay it stays under the 64 MiB that a server may use beside its
/// configured caches.
pub const CACHE_BYTES_DEFAULT: usize = 16 << 20;
/// Snapshots of a store that are read at once: each holds on to pages that are written over else.
pub const SNAPSHOTS_MAX: usize = 2;
/// Keys of one step, and the pause between two: a step is a tenth of a millisecond where pages are in the host's
/// memory, and a million keys take half an hour, in which the node is busy with them for less than one in 500.
pub const SCRUB_KEYS: usize = 64;
/// See [`SCRUB_KEYS`].
pub const SCRUB_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of rows in a batch of a store that is being filled: half of what the store takes in a record.
pub const FILLING_BATCH_BYTES: usize = 1 << 20;
/// Bytes that are in memory then before they are written.
pub const FILLING_BYTES: usize = 16 << 20;

const _: () = assert!(KEY_BYTES_MAX + VALUE_BYTES_MAX < RECORD_BYTES_MAX);
const _: () = assert!(RECORD_BYTES_MAX < OVERLAY_BYTES_DEFAULT);
const _: () = assert!(FILLING_BATCH_BYTES <= RECORD_BYTES_MAX);
const _: () = assert!(FILLING_BATCH_BYTES <= FILLING_BYTES);
const _: () = assert!(SNAPSHOTS_MAX > 0);
const _: () = assert!(SCRUB_KEYS > 0);
