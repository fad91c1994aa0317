//! CRC-32C (Castagnoli, RFC 3720 appendix B.4): the checksum of headers, payloads and blocks.

use crate::limits::BLOCK_BYTES;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of bytes that come in pieces.
#[derive(Debug)]
pub struct Digest(crc_fast::Digest);

impl Digest {
    /// Of no bytes yet.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Digest {
        Digest(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Goes on with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum so far.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC-32C of one block: `bytes`, at most [`BLOCK_BYTES`], continued with zeros to a whole block. The tail of an
/// object is summed so, and growing the object with zeros then changes no checksum.
pub fn block_crc(bytes: &[u8]) -> u32 {
    static ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    assert!(bytes.len() <= BLOCK_BYTES);
    if bytes.len() == BLOCK_BYTES {
        return crc32c(bytes);
    }
    let mut digest = Digest::new();
    digest.update(bytes);
    digest.update(&ZEROS[bytes.len()..]);
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3720_vectors() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_short_block_is_summed_as_if_zeros_followed() {
        let mut whole = [0; BLOCK_BYTES];
        whole[..5].copy_from_slice(b"hello");
        assert_eq!(block_crc(b"hello"), crc32c(&whole));
        assert_eq!(block_crc(&whole), crc32c(&whole));
    }
}
