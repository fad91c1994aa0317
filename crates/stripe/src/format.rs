//! The format that all on a disk has in common: magic 4 | checksum 4 | version 2, then what it says.

use wire::checksum::Digest;
use wire::codec::{Decoder, Encoder};

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

/// Begins whole blocks, of which what is not written is zeros; [`seal`] ends them.
pub fn begin(magic: u32, blocks: &mut [u8]) -> Encoder<'_> {
    blocks.fill(0);
    let mut out = Encoder::new(blocks);
    out.u32(magic).u32(0).u16(FORMAT_VERSION);
    out
}

/// Puts the checksum into blocks that are complete.
pub fn seal(blocks: &mut [u8]) -> u32 {
    let sum = crc_of_rest(blocks);
    blocks[4..8].copy_from_slice(&sum.to_le_bytes());
    sum
}

/// The beginning of blocks with this magic: checksum and version, neither verified, and the rest.
pub fn open(magic: u32, blocks: &[u8]) -> Option<(u32, u16, Decoder<'_>)> {
    let mut input = Decoder::new(blocks);
    let found = input.u32().ok()?;
    let (sum, version) = (input.u32().ok()?, input.u16().ok()?);
    (found == magic).then_some((sum, version, input))
}

/// As [`open`], of a block that was sealed in the present format and is whole.
pub fn open_sealed(magic: u32, block: &[u8]) -> Option<Decoder<'_>> {
    let (sum, version, input) = open(magic, block)?;
    (version == FORMAT_VERSION && crc_of_rest(block) == sum).then_some(input)
}
