//! The commit log of a disk: its records, as bytes. Pure; who writes them when is `journal`'s, what
//! they do at a restart is `recovery`'s.
//!
//! A record is a description of whole blocks, then the data blocks it brings, so everything is aligned for direct I/O:
//!
//! ```text
//!   0  magic 4 | crc 4 | version 2 | kind 1 | 0 1 | description blocks 4
//!  16  generation 4 | runs 4 | sequence 8 | data blocks 4 | checksums 4
//!  40  object 14 | head 162
//! 216  salt 8 | previous 8 | synced 8
//! 240  runs: first block 8, count 4; then checksums of 4 bytes; of a Describe the file's description, behind its
//!      length of 2 bytes; 0 to the block's end
//! ```
//!
//! Logs are written over: behind a log's last record lie those of an earlier generation and the data of clients. The
//! salt, drawn for each generation and the same in all its records, tells them apart: no client can know the salt that
//! a later generation will have, so no data passes for a record.
//!
//! The crc covers the description with itself as zero; the data is covered by the checksums in the description.
//! Sequences only grow, also across a write that failed and is written again, so what a failed write left behind a
//! later, shorter one is never taken for a record: a reader stops where a record does not fit or the sequence falls.
//!
//! Records form a chain, over all generations of a disk's log: `previous` is the record before this one, `synced` the
//! last one that was known to be durable when this one was written. So damage in front of what was acknowledged is told
//! from an end that a power cut tore, whose records cannot say that more than the ones in front of them was durable.

use crate::description::Description;
use crate::format::{FORMAT_VERSION, begin, crc_of_rest, open, seal};
use crate::limits::RECORD_META_BLOCKS_MAX;
use crate::object::Head;
use std::rc::Rc;
use wire::ObjectId;
use wire::codec::{Decoder, Encoder, Short};
use wire::field::Field;
use wire::limits::BLOCK_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"TZLG");
const SALT_AT: usize = 216;
const FIXED_BYTES: usize = 240;
const _: () = assert!(40 + 14 + Head::BYTES <= SALT_AT);
const RUN_BYTES: usize = 12;

/// The effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Blocks with their data, and the head.
    Commit = 1,
    /// From here on the blocks named may be torn in place.
    Intent = 2,
    /// The blocks named are in place and have these checksums; and the head. Ends the object's intents.
    Placed = 3,
    /// The object has the head's length from here on, what was behind it reads as zeros; with the cut block's data.
    Cut = 4,
    /// The object is gone.
    Remove = 5,
    /// The blocks named are holes: they read as zeros, and nothing of them is in place. And the head.
    Punch = 6,
    /// The object's description of its file from here on; and the head.
    Describe = 7,
}

impl Kind {
    fn parse(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [Commit, Intent, Placed, Cut, Remove, Punch, Describe];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn has_sums(self) -> bool {
        matches!(self, Kind::Commit | Kind::Placed | Kind::Cut)
    }

    fn has_data(self) -> bool {
        matches!(self, Kind::Commit | Kind::Cut)
    }
}

/// The part that all records of one log have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Grows from log to log of a disk.
    pub number: u32,
    /// Random.
    pub salt: u64,
}

/// Position of a record in the chain of all records of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The record's own sequence.
    pub sequence: u64,
    /// That of the record before it, in this log or in the one before.
    pub previous: u64,
    /// That of the last record that was durable when this one was written.
    pub synced: u64,
}

/// Blocks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first.
    pub first: u64,
    /// Number of blocks.
    pub count: u32,
}

impl Run {
    /// Adds blocks behind those of `runs`: to the last run, where they follow it.
    pub fn add(runs: &mut Vec<Run>, first: u64, count: u32) {
        match runs.last_mut() {
            Some(last) if last.blocks().end == first => last.count += count,
            _ => runs.push(Run { first, count }),
        }
    }

    /// The blocks.
    pub fn blocks(&self) -> std::ops::Range<u64> {
        self.first..self.first + u64::from(self.count)
    }
}

/// A record without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The operation.
    pub kind: Kind,
    /// To which object.
    pub object: ObjectId,
    /// The object's head from here on; of an intent, the head if it must be made.
    pub head: Head,
    /// The blocks, ascending.
    pub runs: Vec<Run>,
    /// Their checksums, in order; none in intents, removals and holes.
    pub sums: Vec<u32>,
    /// Of a Describe alone.
    pub description: Option<Rc<Description>>,
}

impl Record {
    /// A record without blocks.
    pub fn bare(kind: Kind, object: ObjectId, head: Head) -> Record {
        let (runs, sums, description) = (Vec::new(), Vec::new(), None);
        Record { kind, object, head, runs, sums, description }
    }

    /// Blocks that the runs name.
    pub fn blocks(&self) -> usize {
        self.runs.iter().map(|run| run.count as usize).sum()
    }

    /// Blocks of data behind the description.
    pub fn data_blocks(&self) -> usize {
        if self.kind.has_data() { self.blocks() } else { 0 }
    }

    /// Blocks of the description.
    pub fn meta_blocks(&self) -> usize {
        let sums = if self.kind.has_sums() { self.blocks() * 4 } else { 0 };
        let told = self.description.as_ref().map_or(0, |description| 2 + description.bytes());
        (FIXED_BYTES + self.runs.len() * RUN_BYTES + sums + told).div_ceil(BLOCK_BYTES)
    }

    /// Bytes of the whole record in the log.
    pub fn bytes(&self) -> usize {
        (self.meta_blocks() + self.data_blocks()) * BLOCK_BYTES
    }

    /// Writes the description into the first bytes of `out`; the caller puts the data behind it.
    pub fn encode(&self, generation: Generation, chain: Chain, out: &mut [u8]) {
        assert!(self.meta_blocks() <= RECORD_META_BLOCKS_MAX, "a description within its limit");
        let meta = &mut out[..self.meta_blocks() * BLOCK_BYTES];
        let sums = if self.kind.has_sums() { &self.sums[..] } else { &[] };
        assert!(sums.is_empty() || sums.len() == self.blocks(), "a checksum for every block");
        let mut fixed = begin(MAGIC, meta);
        fixed
            .u8(self.kind as u8)
            .u8(0)
            .u32(self.meta_blocks() as u32)
            .u32(generation.number)
            .u32(self.runs.len() as u32);
        fixed.u64(chain.sequence).u32(self.data_blocks() as u32).u32(sums.len() as u32);
        self.object.put(&mut fixed);
        self.head.put(&mut fixed);
        let mut tail = Encoder::new(&mut meta[SALT_AT..FIXED_BYTES]);
        tail.u64(generation.salt).u64(chain.previous).u64(chain.synced);
        let mut rest = Encoder::new(&mut meta[FIXED_BYTES..]);
        for run in &self.runs {
            rest.u64(run.first).u32(run.count);
        }
        sums.iter().for_each(|sum| {
            rest.u32(*sum);
        });
        if let Some(description) = &self.description {
            description.encode(rest.u16(description.bytes() as u16));
        }
        seal(meta);
    }
}

/// The fixed part of a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Blocks of the description.
    pub meta_blocks: usize,
    /// Blocks of data behind it.
    pub data_blocks: usize,
    /// The log's generation.
    pub generation: Generation,
    /// The record's place in the chain.
    pub chain: Chain,
    kind: Kind,
    runs: usize,
    sums: usize,
    sum: u32,
}

/// Why the bytes are not the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// No record, or a torn one: the log ends here.
    #[error("the log ends here")]
    Here,
    /// The disk cannot read the bytes there.
    #[error("the log cannot be read from here on")]
    Unreadable,
    /// A record of another format.
    #[error(
        "the commit log has format version {0}, this program reads {FORMAT_VERSION}: use the release that wrote it"
    )]
    Version(u16),
}

impl From<Short> for End {
    fn from(_: Short) -> End {
        End::Here
    }
}

impl Start {
    /// Reads the fixed part, to learn how long the record is. Nothing in it is verified before
    /// [`record`](Start::record) has seen the whole description.
    pub fn read(block: &[u8]) -> Result<Start, End> {
        let (sum, version, mut input) = open(MAGIC, block).ok_or(End::Here)?;
        let kind = input.u8()?;
        input.u8()?;
        let (meta_blocks, number) = (input.u32()? as usize, input.u32()?);
        if version != FORMAT_VERSION {
            // Of another release, unless it is a bit that flipped.
            let meta = meta_blocks.checked_mul(BLOCK_BYTES).and_then(|bytes| block.get(..bytes));
            let whole = meta.is_some_and(|meta| meta.len() > 8 && crc_of_rest(meta) == sum);
            return Err(if whole { End::Version(version) } else { End::Here });
        }
        let kind = Kind::parse(kind).ok_or(End::Here)?;
        let (runs, sequence) = (input.u32()? as usize, input.u64()?);
        let (data_blocks, sums) = (input.u32()? as usize, input.u32()? as usize);
        let mut tail = Decoder::new(block.get(SALT_AT..).ok_or(End::Here)?);
        let salt = tail.u64()?;
        let chain = Chain { sequence, previous: tail.u64()?, synced: tail.u64()? };
        let generation = Generation { number, salt };
        let fits = (1..=RECORD_META_BLOCKS_MAX).contains(&meta_blocks)
            && data_blocks <= meta_blocks * BLOCK_BYTES / 4;
        let start = Start { meta_blocks, data_blocks, generation, chain, kind, runs, sums, sum };
        if fits { Ok(start) } else { Err(End::Here) }
    }

    /// Reads the record whose description is `meta`.
    pub fn record(&self, meta: &[u8]) -> Result<Record, End> {
        let description = meta.get(..self.meta_blocks * BLOCK_BYTES).ok_or(End::Here)?;
        match crc_of_rest(description) == self.sum {
            true => self.unverified(meta),
            false => Err(End::Here),
        }
    }

    /// As [`record`](Start::record), whatever the checksum of the description says.
    pub fn unverified(&self, meta: &[u8]) -> Result<Record, End> {
        let meta = meta.get(..self.meta_blocks * BLOCK_BYTES).ok_or(End::Here)?;
        let mut fixed = Decoder::new(&meta[40..]);
        let (object, head) = (ObjectId::take(&mut fixed)?, Head::take(&mut fixed)?);
        let mut rest = Decoder::new(&meta[FIXED_BYTES..]);
        let runs = (0..self.runs)
            .map(|_| Ok(Run { first: rest.u64()?, count: rest.u32()? }))
            .collect::<Result<Vec<_>, Short>>()?;
        let sums = (0..self.sums).map(|_| rest.u32()).collect::<Result<Vec<_>, Short>>()?;
        let description = match self.kind {
            Kind::Describe => {
                rest.u16()?;
                Some(Rc::new(Description::decode(&mut rest)?))
            }
            _ => None,
        };
        let record = Record { kind: self.kind, object, head, runs, sums, description };
        let wanted_sums = if self.kind.has_sums() { record.blocks() } else { 0 };
        let fits = record.data_blocks() == self.data_blocks && record.sums.len() == wanted_sums;
        if fits { Ok(record) } else { Err(End::Here) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{FileId, VolumeId};

    fn record() -> impl Strategy<Value = Record> {
        use Kind::*;
        let kinds = [Commit, Intent, Placed, Cut, Remove, Punch, Describe];
        let runs = prop::collection::vec((0u64..1 << 40, 1u32..50), 0..40);
        (prop::sample::select(kinds.to_vec()), runs, any::<u64>()).prop_map(
            |(kind, runs, length)| {
                let object = ObjectId { volume: VolumeId(1), file: FileId(length), column: 3 };
                let runs: Vec<Run> =
                    runs.into_iter().map(|(first, count)| Run { first, count }).collect();
                let head = Head { epoch: 1, length, ..Head::default() };
                let mut record = Record { runs, ..Record::bare(kind, object, head) };
                if kind.has_sums() {
                    record.sums = (0..record.blocks() as u32).map(|i| i * 7).collect();
                }
                if kind == Describe {
                    let path = vec![7; length as usize % 900];
                    record.description =
                        Some(Rc::new(Description { path, size: length, ..Description::default() }));
                }
                record
            },
        )
    }

    proptest! {
        #[test]
        fn records_survive_the_disk(record in record(), number: u32, salt: u64, sequence: u64) {
            let chain = Chain { sequence, previous: sequence / 2, synced: sequence / 3 };
            let generation = Generation { number, salt };
            let mut bytes = vec![0xaa; record.bytes()];
            record.encode(generation, chain, &mut bytes);
            let start = Start::read(&bytes).unwrap();
            prop_assert_eq!((start.generation, start.chain), (generation, chain));
            prop_assert_eq!(start.data_blocks, record.data_blocks());
            prop_assert_eq!(start.record(&bytes), Ok(record));
        }

        #[test]
        fn a_flipped_bit_ends_the_log(record in record(), bit: prop::sample::Index) {
            let mut bytes = vec![0; record.meta_blocks() * BLOCK_BYTES + record.data_blocks() * BLOCK_BYTES];
            record.encode(Generation::default(), Chain::default(), &mut bytes);
            let bit = bit.index(record.meta_blocks() * BLOCK_BYTES * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = Start::read(&bytes).and_then(|start| start.record(&bytes));
            prop_assert!(read.is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 4096), kind in 1u8..7) {
            let mut out = Encoder::new(&mut bytes);
            out.u32(MAGIC).u32(0).u16(FORMAT_VERSION).u8(kind).u8(0).u32(1);
            if let Ok(start) = Start::read(&bytes) {
                let _ = start.record(&bytes);
            }
        }
    }
}
