//! Limits of an adapter, with the arithmetic that chose them.

/// Most payload of one message: the wire's.
pub const PAYLOAD_BYTES_MAX: usize = wire::limits::PAYLOAD_BYTES_MAX;
/// Pieces of host memory in one message: 1 MiB in 4 KiB pages. An endpoint's lists are shorter.
pub const PIECES_MAX: usize = 256;
/// Most flows that a forwarding agent remembers: 24 MiB.
pub const FLOWS_MAX: usize = 1 << 20;

const _: () = assert!(PIECES_MAX * wire::limits::BLOCK_BYTES >= PAYLOAD_BYTES_MAX);
