//! Limits of the wire format, with the arithmetic that chose them.

/// Bytes of a control message (HPDC'97 section 2.1): two cache lines, one page of 32.
pub const CONTROL_BYTES: usize = 128;
/// Bytes of the header that every layer shares.
pub const HEADER_BYTES: usize = 48;
/// Bytes of the call header that NetRPC keeps at the start of the caller's area.
pub const CALL_HEADER_BYTES: usize = 16;
/// Bytes an operation has for itself: 128 - 48 - 16.
pub const BODY_BYTES: usize = CONTROL_BYTES - HEADER_BYTES - CALL_HEADER_BYTES;
/// Bytes of content of a message that is no call: 128 - 48.
pub const MESSAGE_BYTES: usize = CONTROL_BYTES - HEADER_BYTES;
/// Bytes of a checksummed block, and of a page of payload memory.
pub const BLOCK_BYTES: usize = 4096;
/// Most bytes of data in one message.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The trailer is counted in words of 8 bytes, in one byte of the header.
pub const TRAILER_WORD_BYTES: usize = 8;
/// Most bytes of trailer: 255 words hold 510 block checksums; 1 MiB that straddles blocks needs 257.
pub const TRAILER_BYTES_MAX: usize = 255 * TRAILER_WORD_BYTES;
/// Longest object, 16 TiB less 16 GiB: with 4 bytes of checksum for each of its blocks, and 16 MiB to spare for
/// headers, it is no longer than the longest file of ext4 with blocks of 4 KiB. An I/O server would else acknowledge
/// bytes that it can never write in place.
pub const OBJECT_BYTES_MAX: u64 = (16 << 40) - (16 << 30);
/// Longest file name, in bytes (POSIX `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes, including its terminating zero (POSIX `PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;

const _: () = assert!(BODY_BYTES == 64);
const _: () = assert!(HEADER_BYTES + MESSAGE_BYTES == CONTROL_BYTES);
const _: () = assert!(BLOCK_BYTES.is_power_of_two());
const _: () = assert!(PAYLOAD_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () =
    assert!(TRAILER_BYTES_MAX / 4 > PAYLOAD_BYTES_MAX / BLOCK_BYTES, "a sum for each block");
const _: () = assert!(TRAILER_BYTES_MAX / TRAILER_WORD_BYTES <= u8::MAX as usize);
const _: () = assert!(OBJECT_BYTES_MAX.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(NAME_BYTES_MAX < PATH_BYTES_MAX);
