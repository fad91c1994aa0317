//! The format that all on a disk has in common.

use wire::checksum::Digest;

/// Version of the object file, the log, the index and the label.
pub const FORMAT_VERSION: u16 = 9;

/// The checksum of a block that keeps it in its bytes 4 to 8, as if zeros were there.
pub fn crc_of_rest(block: &[u8]) -> u32 {
    let mut digest = Digest::new();
    digest.update(&block[..4]);
    digest.update(&[0; 4]);
    digest.update(&block[8..]);
    digest.finish()
}
