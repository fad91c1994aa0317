//! The log record: header of 48 bytes, encoded changes, zeros to a multiple of 8 bytes. Little-endian. A log is records
//! one after the other, and may end in zeros: the world may have laid it out before.
//!
//! ```text
//! 0 magic | 4 CRC-32C of all from 8 on | 8 body bytes | 12 changes | 16 generation | 24 sequence | 32 synced |
//! 40 kind | 44 chain
//! ```
//!
//! `synced` is the last change that the writer knew to be on stable storage when it wrote this record. It tells the
//! two kinds of a hole apart: what a power cut took from the end that was never synced (in any order, and also in the
//! middle of that end), and damage to what was synced, which is an error and never skipped.
//!
//! `kind` is a sum of what the store is for, and `chain` the CRC of the record before: a log of another store, or of
//! another copy of this one that went on by itself, does not pass for its own.

use crate::batch::{Batch, Change, Changes, HEADER_BYTES};
use crate::limits::RECORD_BYTES_MAX;
use wire::checksum::crc32c;
use wire::codec::{Decoder, Encoder};

const MAGIC: u32 = u32::from_le_bytes(*b"TzL1");
const ALIGN_BYTES: usize = 8;
/// From here on a record is summed.
const SUMMED_FROM: usize = 8;

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub generation: u64,
    pub sequence: u64,
    pub synced: u64,
    /// Of the store, see [`kind_sum`].
    pub kind: u32,
    /// The sum of the record before.
    pub chain: u32,
}

/// Distinguishes the logs of stores of different kinds.
pub(crate) fn kind_sum(kind: &str) -> u32 {
    crc32c(kind.as_bytes())
}

/// The sum by which the next record names this one.
pub(crate) fn chain_of(record: &[u8]) -> u32 {
    u32::from_le_bytes(record[4..SUMMED_FROM].try_into().expect("4 bytes"))
}

/// A record that is whole.
#[derive(Clone, Debug)]
pub(crate) struct Record<'a> {
    pub header: RecordHeader,
    body: &'a [u8],
    /// Bytes of the log that it takes.
    pub bytes: usize,
    /// The sum by which the next record names this one.
    pub sum: u32,
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`; `None` unless it is whole.
    pub fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let mut input = Decoder::new(bytes);
        if input.u32() != Ok(MAGIC) {
            return None;
        }
        let crc = input.u32().ok()?;
        let body_bytes = input.u32().ok()? as usize;
        let changes = input.u32().ok()? as usize;
        let header = RecordHeader {
            generation: input.u64().ok()?,
            sequence: input.u64().ok()?,
            synced: input.u64().ok()?,
            kind: input.u32().ok()?,
            chain: input.u32().ok()?,
        };
        if body_bytes > RECORD_BYTES_MAX {
            return None;
        }
        let record_bytes = (HEADER_BYTES + body_bytes).next_multiple_of(ALIGN_BYTES);
        let record = bytes.get(..record_bytes)?;
        if crc32c(&record[SUMMED_FROM..]) != crc {
            return None;
        }
        let body = &record[HEADER_BYTES..][..body_bytes];
        let record = Record { header, body, bytes: record_bytes, sum: crc };
        record.has(changes).then_some(record)
    }

    /// Its changes, in order.
    pub fn changes(&self) -> impl Iterator<Item = Change<'a>> {
        Changes::new(self.body).map(|change| change.expect("checked by parse"))
    }

    fn has(&self, changes: usize) -> bool {
        let (mut count, mut legal) = (0, true);
        Changes::new(self.body).for_each(|change| {
            count += 1;
            legal &= change.is_ok();
        });
        legal && count == changes
    }
}

/// The bytes to append for `batch`.
pub(crate) fn seal(batch: Batch, header: RecordHeader) -> Vec<u8> {
    let (mut record, changes) = batch.into_record();
    assert!(header.synced < header.sequence, "a record is written before it is synced");
    let body_bytes = record.len() - HEADER_BYTES;
    assert!(body_bytes <= RECORD_BYTES_MAX, "a record within its limit");
    record.resize(record.len().next_multiple_of(ALIGN_BYTES), 0);
    let mut out = Encoder::new(&mut record[SUMMED_FROM..HEADER_BYTES]);
    out.u32(body_bytes as u32).u32(changes);
    out.u64(header.generation).u64(header.sequence).u64(header.synced);
    out.u32(header.kind).u32(header.chain);
    let crc = crc32c(&record[SUMMED_FROM..]);
    Encoder::new(&mut record[..SUMMED_FROM]).u32(MAGIC).u32(crc);
    record
}

/// All whole records from `offset` on, with what is not a record passed over.
pub(crate) fn scattered(bytes: &[u8], offset: usize) -> impl Iterator<Item = Record<'_>> {
    let mut at = offset.next_multiple_of(ALIGN_BYTES);
    std::iter::from_fn(move || {
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let record = Record::parse(rest);
            at += record.as_ref().map_or(ALIGN_BYTES, |record| record.bytes);
            if record.is_some() {
                return record;
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: RecordHeader =
        RecordHeader { generation: 3, sequence: 7, synced: 5, kind: 9, chain: 8 };

    fn sealed() -> Vec<u8> {
        let mut batch = Batch::new();
        batch.put(b"key", b"value").delete(b"other");
        seal(batch, HEADER)
    }

    #[test]
    fn a_record_comes_back() {
        let bytes = sealed();
        let record = Record::parse(&bytes).unwrap();
        assert_eq!((record.header, record.sum), (HEADER, chain_of(&bytes)));
        assert_eq!(record.bytes, bytes.len());
        assert_eq!(bytes.len() % ALIGN_BYTES, 0);
        let changes: Vec<_> = record.changes().collect();
        assert_eq!(changes, [Change::Put(b"key", b"value"), Change::Delete(b"other")]);
    }

    #[test]
    fn any_cut_and_any_flipped_bit_is_seen() {
        let bytes = sealed();
        assert!((0..bytes.len()).all(|cut| Record::parse(&bytes[..cut]).is_none()));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::parse(&damaged).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn scattered_records_are_found_behind_garbage() {
        let mut bytes = vec![0x5a; 44];
        bytes.resize(48, 0);
        bytes.extend(sealed());
        bytes.extend([1; 16]);
        bytes.extend(sealed());
        assert_eq!(scattered(&bytes, 3).count(), 2);
        assert_eq!(scattered(&bytes, 56).count(), 1);
    }
}
