//! The object file: how one object lies on a disk. Pure arithmetic and bytes, no input or output.
//!
//! ```text
//!      0  header, slot 0     4096      the valid one with the higher sequence counts; written in turns, so that a
//!   4096  header, slot 1     4096      torn header leaves the one before
//!   8192  group 0: checksums 4096      1024 x u32, of the blocks that follow
//!  12288           data      1024 x 4096
//!         group 1: checksums, data; and so on
//! ```
//!
//! A header slot has the object's head from its first byte on, and at 512, behind its length in 2 bytes, what the
//! manager told of the file; both are under the slot's checksum.
//!
//! A checksum is stored xor that of a block of zeros: a hole in the file, which reads as zeros, is then a block of
//! zeros with the right checksum, and an object of any length starts as an empty file.

use crate::description::Description;
use crate::format::{self, FORMAT_VERSION};
use crate::order::History;
use crate::protocol::Shape;
use std::sync::LazyLock;
use wire::checksum::block_crc;
use wire::codec::{Decoder, Encoder, Short};
use wire::field::{Field, Output};
use wire::limits::BLOCK_BYTES;
use wire::{GroupId, ObjectId, Wall};

/// First bytes of a header: "TZOB".
const MAGIC: u32 = u32::from_le_bytes(*b"TZOB");
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Offset of the description in a header slot.
const DESCRIPTION_AT: usize = 512;
const _: () = assert!(18 + 14 + Head::BYTES <= DESCRIPTION_AT);
const _: () = assert!(DESCRIPTION_AT + 2 + Description::BYTES_MAX <= BLOCK_BYTES);

/// Bytes before group 0.
pub const HEADER_BYTES: u64 = 2 * BLOCK;
/// Data blocks of a group: as many as checksums fit in a block.
pub const GROUP_BLOCKS: u64 = BLOCK / 4;
/// Bytes of a group with its checksums.
pub const GROUP_BYTES: u64 = (GROUP_BLOCKS + 1) * BLOCK;

/// Offset in the file of data block `block`.
pub fn data_offset(block: u64) -> u64 {
    HEADER_BYTES + block / GROUP_BLOCKS * GROUP_BYTES + BLOCK + block % GROUP_BLOCKS * BLOCK
}

/// Offset in the file of the checksums of `group`.
pub fn sums_offset(group: u64) -> u64 {
    HEADER_BYTES + group * GROUP_BYTES
}

/// Offset in the file of the header slot for the header with this sequence.
pub fn header_offset(sequence: u64) -> u64 {
    sequence % 2 * BLOCK
}

/// Bytes of the file of an object of `length` bytes, when it ends with its last data block.
pub fn file_bytes(length: u64) -> u64 {
    match length.div_ceil(BLOCK) {
        0 => HEADER_BYTES,
        blocks => data_offset(blocks - 1) + BLOCK,
    }
}

/// The group of a data block.
pub fn group_of(block: u64) -> u64 {
    block / GROUP_BLOCKS
}

/// CRC-32C of a block of zeros.
pub fn zero_sum() -> u32 {
    static SUM: LazyLock<u32> = LazyLock::new(|| block_crc(&[]));
    *SUM
}

/// The checksum of a block that is lost, until it is written over: not that of zeros, and that of anything else only by
/// the chance that every checksum leaves.
pub fn lost_sum() -> u32 {
    !zero_sum()
}

/// Reads the checksums of a group; what `bytes` is too short for are those of zeros.
pub fn decode_sums(bytes: &[u8]) -> Vec<u32> {
    let zero = zero_sum();
    let words = bytes.chunks_exact(4).take(GROUP_BLOCKS as usize);
    let mut sums: Vec<u32> =
        words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")) ^ zero).collect();
    while sums.last() == Some(&zero) {
        sums.pop();
    }
    sums
}

/// Writes the checksums of a group into a block.
pub fn encode_sums(sums: &[u32], block: &mut [u8]) {
    let zero = zero_sum();
    block.fill(0);
    for (word, sum) in block.chunks_exact_mut(4).zip(sums) {
        word.copy_from_slice(&(sum ^ zero).to_le_bytes());
    }
}

/// The durable state of an object besides its blocks and their checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Layout epoch.
    pub epoch: u32,
    /// Truncate generation.
    pub truncations: u32,
    /// Bytes.
    pub length: u64,
    /// Latest write.
    pub mtime: Wall,
    /// The layout in short.
    pub shape: Shape,
    /// The writes that are stable.
    pub history: History,
    /// The group that keeps it; 0 is its disk alone.
    pub group: GroupId,
}

impl Head {
    /// Bytes that its encoding takes without the group.
    pub const ALONE_BYTES: usize = 4 + 4 + 8 + 12 + 3 + History::BYTES;
    /// Bytes that its encoding takes.
    pub const BYTES: usize = Head::ALONE_BYTES + 3;
}

/// The group's 24 bits are last: releases that know no groups left zeros there.
impl<'a> Field<'a> for Head {
    fn put(&self, out: &mut impl Output) {
        (self.epoch, self.truncations, self.length).put(out);
        (self.mtime, self.shape, self.history).put(out);
        out.append(&self.group.0.to_le_bytes()[..3]);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Head, Short> {
        let (epoch, truncations, length) = Field::take(input)?;
        let (mtime, shape, history) = Field::take(input)?;
        let [low, middle, high] = Field::take(input)?;
        let group = GroupId(u32::from_le_bytes([low, middle, high, 0]));
        Ok(Head { epoch, truncations, length, mtime, shape, history, group })
    }
}

/// A header slot that could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The object.
    pub object: ObjectId,
    /// Grows by one with every header written.
    pub sequence: u64,
    /// Its content.
    pub head: Head,
}

/// Why a file is not the object that it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Neither slot holds a header.
    #[error("the object file has no readable header: it is damaged")]
    Damaged,
    /// Another format.
    #[error(
        "the object file has format version {0}, this program reads {FORMAT_VERSION}: use the release that wrote it"
    )]
    Version(u16),
    /// Another object's file.
    #[error(
        "the file is named {expected} but its header says {found}: it was moved or renamed by hand"
    )]
    Identity {
        /// By the file's name.
        expected: ObjectId,
        /// By the header.
        found: ObjectId,
    },
}

impl Header {
    /// Writes the header into a block, with what is known of the file.
    pub fn encode(&self, description: Option<&Description>, block: &mut [u8]) {
        let mut out = format::begin(MAGIC, block);
        out.u64(self.sequence);
        self.object.put(&mut out);
        self.head.put(&mut out);
        if let Some(description) = description {
            let mut rest = Encoder::new(&mut block[DESCRIPTION_AT..]);
            description.encode(rest.u16(description.bytes() as u16));
        }
        format::seal(block);
    }

    /// Reads one slot: `None` when it was never written or is torn, `Some(Err)` for another version.
    fn decode(block: &[u8]) -> Option<Result<Header, u16>> {
        let (_, version, _) = format::open(MAGIC, block)?;
        if version != FORMAT_VERSION {
            return Some(Err(version));
        }
        let mut input = format::open_sealed(MAGIC, block)?;
        let sequence = input.u64().ok()?;
        let (object, head) = (ObjectId::take(&mut input).ok()?, Head::take(&mut input).ok()?);
        Some(Ok(Header { object, sequence, head }))
    }

    /// The description of the file in this header, which was read from these first bytes of an object's file.
    pub fn description(&self, bytes: &[u8]) -> Option<Description> {
        let slot = bytes.get(header_offset(self.sequence) as usize..)?;
        let mut input = Decoder::new(slot.get(DESCRIPTION_AT..BLOCK_BYTES)?);
        match input.u16() {
            Ok(0) | Err(_) => None,
            Ok(_) => Description::decode(&mut input).ok(),
        }
    }

    /// Gives both slots the checksums that their bytes have: for a planted bug.
    pub(crate) fn sum_anew(bytes: &mut [u8]) {
        for slot in bytes.chunks_exact_mut(BLOCK_BYTES).take(2) {
            if slot.starts_with(&MAGIC.to_le_bytes()) {
                format::seal(slot);
            }
        }
    }

    /// The header of `object` from the first bytes of its file. `None` when the file is empty or its slots were never
    /// written.
    pub fn read(object: ObjectId, bytes: &[u8]) -> Result<Option<Header>, Unreadable> {
        let slots = bytes.chunks_exact(BLOCK_BYTES).take(2);
        let mut best: Option<Header> = None;
        for slot in slots.clone().filter_map(Header::decode) {
            let header = slot.map_err(Unreadable::Version)?;
            if header.object != object {
                return Err(Unreadable::Identity { expected: object, found: header.object });
            }
            if best.is_none_or(|best| best.sequence < header.sequence) {
                best = Some(header);
            }
        }
        let written = slots.flatten().any(|byte| *byte != 0);
        if best.is_none() && written { Err(Unreadable::Damaged) } else { Ok(best) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{FileId, VolumeId};

    fn object(file: u64) -> ObjectId {
        ObjectId { volume: VolumeId(1), file: FileId(file), column: 2 }
    }

    fn header(sequence: u64, length: u64) -> Header {
        let head = Head { epoch: 3, truncations: 4, length, ..Head::default() };
        Header { object: object(9), sequence, head }
    }

    fn file(headers: &[Header]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES as usize];
        for header in headers {
            let at = header_offset(header.sequence) as usize;
            header.encode(None, &mut bytes[at..at + BLOCK_BYTES]);
        }
        bytes
    }

    #[test]
    fn the_later_header_counts_and_a_torn_one_does_not() {
        let mut bytes = file(&[header(4, 10), header(5, 20)]);
        assert_eq!(Header::read(object(9), &bytes), Ok(Some(header(5, 20))));
        bytes[4096 + 20] ^= 1;
        assert_eq!(Header::read(object(9), &bytes), Ok(Some(header(4, 10))));
        bytes[20] ^= 1;
        assert_eq!(Header::read(object(9), &bytes), Err(Unreadable::Damaged));
        assert_eq!(Header::read(object(9), &[0; 8192]), Ok(None));
        assert_eq!(Header::read(object(9), &[]), Ok(None));
    }

    #[test]
    fn other_versions_and_objects_are_refused_by_name() {
        let mut bytes = file(&[header(4, 10)]);
        let error = Header::read(object(8), &bytes).unwrap_err().to_string();
        assert!(error.contains(&object(8).to_string()) && error.contains(&object(9).to_string()));
        bytes[8] = 77;
        let error = Header::read(object(9), &bytes).unwrap_err().to_string();
        assert!(error.contains("77") && error.contains(&FORMAT_VERSION.to_string()));
    }

    #[test]
    fn no_checksums_are_those_of_zeros() {
        assert!(decode_sums(&[0; 4096]).is_empty());
        let mut block = [0; 4096];
        encode_sums(&[1, zero_sum(), 3], &mut block);
        assert_eq!(decode_sums(&block), [1, zero_sum(), 3]);
    }

    proptest! {
        #[test]
        fn blocks_and_checksums_never_share_bytes(a in 0u64..1 << 40, b in 0u64..1 << 40) {
            let (x, y) = (data_offset(a), data_offset(b));
            prop_assert!(a == b || x.abs_diff(y) >= BLOCK);
            prop_assert_eq!(a < b, x < y);
            let sums = sums_offset(group_of(a));
            prop_assert!(sums < x && x - sums <= GROUP_BYTES - BLOCK && sums >= HEADER_BYTES);
            prop_assert!(sums_offset(group_of(a) + 1) > x);
            prop_assert_eq!(file_bytes(a * BLOCK + 1), x + BLOCK);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            let _ = Header::read(object(1), &bytes);
        }
    }
}
