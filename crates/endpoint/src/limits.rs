//! Limits of an endpoint, with the arithmetic that chose them.

/// Bytes of a page of the pool: the block of the file system and the page of the processor.
pub const PAGE_BYTES: usize = wire::limits::BLOCK_BYTES;
/// Largest run is 2^8 pages, 1 MiB: the largest payload fits in one run.
pub const RUN_ORDER_MAX: u8 = 8;
/// The pool is made of stretches that are as long as the largest run; no run lies in two.
pub const STRETCH_BYTES: usize = PAGE_BYTES << RUN_ORDER_MAX;
/// Entries of the send ring, and of the receive ring, unless asked otherwise: 64 block reads in flight to each of 8
/// servers. One entry takes about 2.3 KiB, so both rings together 2.3 MiB.
pub const RING_ENTRIES: usize = 512;
/// Entries of the incoming payload table: every call in flight may hold one.
pub const INCOMING_ENTRIES: usize = 1024;
/// Pieces of a scatter/gather list: 1 MiB in 32 KiB stripe units, once more for unaligned ends, and a margin.
pub const GATHER_MAX: usize = 64;
/// Lengths of payloads with pulses of their own: powers of two, 1 byte to the longest payload.
pub const PAYLOAD_CLASSES: usize = wire::limits::PAYLOAD_BYTES_MAX.trailing_zeros() as usize + 1;

const _: () = assert!(INCOMING_ENTRIES <= u16::MAX as usize);
const _: () = assert!(RING_ENTRIES <= u16::MAX as usize);
const _: () =
    assert!(STRETCH_BYTES >= wire::limits::PAYLOAD_BYTES_MAX, "a longest payload in a run");
const _: () = assert!(PAGE_BYTES.is_power_of_two());
const _: () = assert!(GATHER_MAX > 0);
const _: () = assert!(1 << (PAYLOAD_CLASSES - 1) >= wire::limits::PAYLOAD_BYTES_MAX);
const _: () = assert!(GATHER_MAX <= STRETCH_BYTES / PAGE_BYTES);
