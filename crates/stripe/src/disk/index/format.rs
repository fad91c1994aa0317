//! The index as bytes: its batches, and the mark behind the label that says up to where it is durable. Pure.
//!
//! ```text
//! batch   0  "TZIX" 4 | crc 4 | version 2 | 0 2 | entries 4
//!        16  generation 4 | crc of the batch before 4 | sequence 8
//!        32  disk 16
//!        48  entries: object 14, header sequence 4, sum of the head 4, in version 10 group 3; 0 to the block's end
//!
//! mark    0  "TZIM" 4 | crc 4 | version 2 | 0 2 | generation 4
//!        16  mark's sequence 8 | batch sequence 8
//! ```
//!
//! A batch names the disk and the generation, so that a file of another disk or an earlier file is not taken for this
//! one, and the checksum of the batch before it, so that nothing in the middle can be another version.

use super::Entry;
use crate::format::{FORMAT_VERSION, begin, crc_of_rest, open, open_sealed, seal};
use wire::field::Field;
use wire::limits::BLOCK_BYTES;
use wire::{GroupId, ObjectId};

const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"TZIX");
const MARK_MAGIC: u32 = u32::from_le_bytes(*b"TZIM");
const FIXED_BYTES: usize = 48;
/// Bytes of an entry without its group, which a batch has that is of no group.
const ALONE_BYTES: usize = 22;
/// Bytes of an entry.
pub const ENTRY_BYTES: usize = ALONE_BYTES + 3;
/// Version of a batch with groups: a release that knows none of them must not read it.
const GROUPS_VERSION: u16 = 10;
const _: () = assert!(GROUPS_VERSION > FORMAT_VERSION);

/// An entry as the index takes it: an object, and what is recorded of it, if it is there.
pub type Row = (ObjectId, Option<Entry>);

/// Bytes of a batch with these entries, in whole blocks.
pub fn batch_bytes(entries: &[Row]) -> usize {
    bytes_of(entries.len(), has_groups(entries))
}

fn bytes_of(entries: usize, has_groups: bool) -> usize {
    let each = if has_groups { ENTRY_BYTES } else { ALONE_BYTES };
    (FIXED_BYTES + entries * each).next_multiple_of(BLOCK_BYTES)
}

fn has_groups(entries: &[Row]) -> bool {
    entries.iter().filter_map(|(_, entry)| *entry).any(|entry| entry.group.is_listed())
}

/// Entries that fit a batch of so many bytes.
pub const fn entries_in(bytes: usize) -> usize {
    (bytes - FIXED_BYTES) / ENTRY_BYTES
}

/// A batch without its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// The disk that the index is of.
    pub disk: u128,
    /// Of the file.
    pub generation: u32,
    /// Checksum of the batch before it in the file; 0 for the first.
    pub chain: u32,
    /// Grows by one from batch to batch, also across files.
    pub sequence: u64,
}

/// Writes a batch into whole blocks; its checksum.
pub fn encode_batch(head: &BatchHead, entries: &[Row], out: &mut [u8]) -> u32 {
    assert_eq!(out.len(), batch_bytes(entries), "a batch in whole blocks");
    let has_groups = has_groups(entries);
    let mut encoder = begin(BATCH_MAGIC, out);
    encoder.u16(0).u32(entries.len() as u32);
    encoder.u32(head.generation).u32(head.chain).u64(head.sequence);
    encoder.u64(head.disk as u64).u64((head.disk >> 64) as u64);
    for (object, entry) in entries {
        let Entry { sequence, sum, group } = entry.unwrap_or(Entry::ABSENT);
        object.put(&mut encoder);
        encoder.u32(sequence).u32(sum);
        if has_groups {
            encoder.raw(&group.0.to_le_bytes()[..3]);
        }
    }
    if has_groups {
        out[8..10].copy_from_slice(&GROUPS_VERSION.to_le_bytes());
    }
    seal(out)
}

/// Whether a batch begins here, as far as its first bytes say.
pub fn is_batch(bytes: &[u8]) -> bool {
    bytes.starts_with(&BATCH_MAGIC.to_le_bytes())
}

/// The batch at the start of `bytes`: what it says, its entries, its bytes and its checksum. `None` when there is none,
/// or only a part of one.
pub fn decode_batch(bytes: &[u8]) -> Option<(BatchHead, Vec<Row>, usize, u32)> {
    let (sum, version, mut input) = open(BATCH_MAGIC, bytes)?;
    let (_, count) = (input.u16().ok()?, input.u32().ok()? as usize);
    let has_groups = version == GROUPS_VERSION;
    if !(has_groups || version == FORMAT_VERSION) || count > bytes.len() / ALONE_BYTES {
        return None;
    }
    let batch = bytes.get(..bytes_of(count, has_groups))?;
    if crc_of_rest(batch) != sum {
        return None;
    }
    let (generation, chain) = (input.u32().ok()?, input.u32().ok()?);
    let sequence = input.u64().ok()?;
    let disk = u128::from(input.u64().ok()?) | u128::from(input.u64().ok()?) << 64;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let object = ObjectId::take(&mut input).ok()?;
        let (sequence, sum) = (input.u32().ok()?, input.u32().ok()?);
        let [low, middle, high] = if has_groups { Field::take(&mut input).ok()? } else { [0; 3] };
        let group = GroupId(u32::from_le_bytes([low, middle, high, 0]));
        let entry = Entry { sequence, sum, group };
        entries.push((object, Some(entry).filter(|entry| *entry != Entry::ABSENT)));
    }
    Some((BatchHead { disk, generation, chain, sequence }, entries, batch.len(), sum))
}

/// Up to where the index is durable. Kept behind the label, in two slots in turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Grows with every mark: which slot is the later one, and where the next goes.
    pub number: u64,
    /// The file that counts.
    pub generation: u32,
    /// The last batch that is durable in it, at least.
    pub sequence: u64,
}

impl Mark {
    /// Of a new disk: its index is one batch that says nothing.
    pub const FIRST: Mark = Mark { number: 0, generation: 1, sequence: 1 };

    /// Writes one slot: a block.
    pub fn encode(&self, block: &mut [u8]) {
        let mut out = begin(MARK_MAGIC, block);
        out.u16(0).u32(self.generation).u64(self.number).u64(self.sequence);
        seal(block);
    }

    /// Reads a slot; `None` when it was never written or does not fit its checksum.
    pub fn decode(block: &[u8]) -> Option<Mark> {
        let mut input = open_sealed(MARK_MAGIC, block)?;
        let (_, generation) = (input.u16().ok()?, input.u32().ok()?);
        Some(Mark { number: input.u64().ok()?, generation, sequence: input.u64().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{FileId, VolumeId};

    fn object(file: u64) -> ObjectId {
        ObjectId { volume: VolumeId(3), file: FileId(file), column: 1 }
    }

    fn entries(count: u64, group: GroupId) -> Vec<Row> {
        let entry = |file: u64| Entry { sequence: file as u32 + 1, sum: 7, group };
        (0..count).map(|file| (object(file), (file % 3 != 2).then(|| entry(file)))).collect()
    }

    const HEAD: BatchHead = BatchHead { disk: 1 << 100 | 5, generation: 4, chain: 9, sequence: 77 };

    #[test]
    fn batches_and_marks_come_back_and_a_flipped_bit_does_not() {
        let groups = [GroupId(0), GroupId::FIRST.next()];
        for (count, group) in
            [1, 100, 2000].into_iter().flat_map(|count| groups.map(|it| (count, it)))
        {
            let entries = entries(count, group);
            let mut bytes = vec![0; batch_bytes(&entries)];
            let sum = encode_batch(&HEAD, &entries, &mut bytes);
            let expected = Some((HEAD, entries, bytes.len(), sum));
            assert_eq!(decode_batch(&bytes), expected);
            assert_eq!(decode_batch(&bytes[..bytes.len() - 1]), None);
            for at in (0..bytes.len() * 8).step_by(997) {
                bytes[at / 8] ^= 1 << (at % 8);
                assert_eq!(decode_batch(&bytes), None, "bit {at}");
                bytes[at / 8] ^= 1 << (at % 8);
            }
        }
        let mut block = [0; BLOCK_BYTES];
        let mark = Mark { number: 3, generation: 2, sequence: 88 };
        mark.encode(&mut block);
        assert_eq!(Mark::decode(&block), Some(mark));
        block[20] ^= 4;
        assert_eq!(Mark::decode(&block), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
            let _ = (decode_batch(&bytes), Mark::decode(&bytes));
            let entries = entries(3, GroupId(0));
            let mut batch = vec![0; batch_bytes(&entries)];
            encode_batch(&HEAD, &entries, &mut batch);
            let count = bytes.len().min(40);
            batch[8..8 + count].copy_from_slice(&bytes[..count]);
            let _ = decode_batch(&batch);
        }
    }
}
