//! Limits of the store, with the arithmetic that chose them.

/// Longest key: a file name (255) or a path (4096) with room for the prefixes of a manager.
pub const KEY_BYTES_MAX: usize = 8192;
/// Longest value: an extended attribute has at most 64 KiB, and its file's attributes beside it.
pub const VALUE_BYTES_MAX: usize = 128 * 1024;
/// Most bytes of one log record: 16 of the largest values, and what a log must hold in memory to be replayed.
pub const RECORD_BYTES_MAX: usize = 2 << 20;
/// What one entry of an overlay costs beside its key and value: two boxes (16 bytes each), their allocations
/// (about 16 bytes of slack each) and the map's own share.
pub const OVERLAY_ENTRY_BYTES: usize = 80;
/// Overlay by default: one second of 42,000 changes a second of 300 bytes is 13 MB; twice that.
pub const OVERLAY_BYTES_DEFAULT: usize = 24 << 20;
/// Cache of the checkpoint by default. With the overlay it stays under the 64 MiB that a server may use beside its
/// configured caches.
pub const CACHE_BYTES_DEFAULT: usize = 16 << 20;
