//! A backup as bytes: a head, blocks of rows, an end mark. Pure but for the reading and writing.
//!
//! ```text
//! head    0  "TZBACKUP" 8 | version 2 | 0 2 | volume 4 | cluster 8 | lineage 2 | sequence 8 | taken 8
//!        42  format of names 4 | format of members 4 | crc 4
//!
//! block   0  kind 1 | bytes of rows 4 | bytes that follow 4 | crc 4, of the crc before, of this and of what follows
//!            rows, compressed with LZ4: key 4, value 4, key, value
//! part    0  kind 3 | the same, not compressed, of: node 2 | lineage 2 | sequence 8 | a bit for each site 32 | name
//! end     0  kind 255 | the same, of: rows of names 8 | rows of members 8
//! ```
//!
//! Numbers are little-endian. Each checksum goes on from the one before, so that the last one is of everything. A
//! backup without its end was cut short. Of several managers (version 2) the rows of each come behind its part, the
//! first manager's with the members first; of one manager (version 1) there is no part.

use std::io::{self, Read, Write};
use store::Entry;
use wire::SITES;
use wire::checksum::crc32c;
use wire::codec::{Decoder, Encoder, Short};

const MAGIC: &[u8; 8] = b"TZBACKUP";
/// The version of a backup of one manager.
pub const VERSION: u16 = 1;
/// The version of one of several: a program that knows only the other would take one manager's names for all.
pub const VERSION_PARTS: u16 = 2;
const HEAD_BYTES: usize = 54;
const BLOCK_HEAD_BYTES: usize = 13;
/// Bytes of rows in a block, at least, but for the last: LZ4 looks back 64 KiB.
const BLOCK_BYTES: usize = 256 << 10;
/// Most bytes of rows in a block that is read: one more row than [`BLOCK_BYTES`], which is 136 KiB at most.
const BLOCK_BYTES_MAX: usize = 1 << 20;
const PART: u8 = 3;
const END: u8 = 255;
/// Bytes of a part before its manager's name.
const PART_BYTES: usize = 2 + 2 + 8 + SITES / 8;

/// Which store a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Of {
    /// The names.
    Names = 1,
    /// The members.
    Members = 2,
}

/// The manager of which the rows are that follow, as of the moment of the backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its node.
    pub node: u16,
    /// The lineage of its store.
    pub lineage: u16,
    /// The last change that is in it.
    pub sequence: u64,
    /// The sites that it owned.
    pub sites: Vec<u8>,
    /// Its name.
    pub name: String,
}

impl Part {
    fn to_bytes(&self) -> Vec<u8> {
        let (mut bytes, mut sites) = (vec![0; PART_BYTES], [0u8; SITES / 8]);
        for site in &self.sites {
            sites[usize::from(site / 8)] |= 1 << (site % 8);
        }
        let mut out = Encoder::new(&mut bytes);
        out.u16(self.node).u16(self.lineage).u64(self.sequence).raw(&sites);
        bytes.extend(self.name.as_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Part, Short> {
        let mut input = Decoder::new(bytes);
        let (node, lineage, sequence) = (input.u16()?, input.u16()?, input.u64()?);
        let bits = input.raw(SITES / 8)?;
        let has = |site: &u8| bits[usize::from(site / 8)] >> (site % 8) & 1 == 1;
        let sites = (0..=u8::MAX).filter(has).collect();
        let name = String::from_utf8_lossy(input.rest()).into_owned();
        Ok(Part { node, lineage, sequence, sites, name })
    }
}

/// What a backup has next.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// Rows of a store.
    Rows(Of, Vec<Entry>),
    /// The manager of the next ones.
    Part(Part),
}

/// The head of a backup, about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// There is a part for each of several managers.
    pub has_parts: bool,
    /// The volume.
    pub volume: u32,
    /// The cluster's id; 0 where who made it did not know.
    pub cluster: u64,
    /// The lineage of the store.
    pub lineage: u16,
    /// The last change that is in it.
    pub sequence: u64,
    /// When it was begun, in seconds since 1970.
    pub taken: u64,
    /// The format of the rows of names.
    pub names_format: u32,
    /// The format of the rows of members.
    pub members_format: u32,
}

/// How many rows there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Of names.
    pub names: u64,
    /// Of members.
    pub members: u64,
}

impl Counts {
    fn add(&mut self, of: Of, rows: u64) {
        match of {
            Of::Names => self.names += rows,
            Of::Members => self.members += rows,
        }
    }
}

/// Why a file is no backup that can be restored.
#[derive(Debug, thiserror::Error)]
pub enum BadBackup {
    /// It is something else.
    #[error("it is no backup: `trapeze backup` writes them")]
    Foreign,
    /// Another release made it.
    #[error(
        "its version is {0}, this program reads versions {VERSION} and {VERSION_PARTS}: use the release that made it"
    )]
    Version(u16),
    /// It has no end.
    #[error(
        "it is cut short at byte {0}: making or copying it was broken off; use another one, or make a new one"
    )]
    Short(u64),
    /// It is not as it was written.
    #[error("it is damaged at byte {0}: use another copy of it, or another backup")]
    Damaged(u64),
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Unread(#[from] io::Error),
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        let mut out = Encoder::new(&mut bytes[8..]);
        let version = if self.has_parts { VERSION_PARTS } else { VERSION };
        out.u16(version).u16(0).u32(self.volume).u64(self.cluster);
        out.u16(self.lineage).u64(self.sequence).u64(self.taken);
        out.u32(self.names_format).u32(self.members_format);
        let sum = crc32c(&bytes[..HEAD_BYTES - 4]);
        bytes[HEAD_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<(Head, u32), Short> {
        let mut input = Decoder::new(&bytes[8..]);
        let has_parts = input.u16()? == VERSION_PARTS;
        input.u16()?;
        let head = Head {
            has_parts,
            volume: input.u32()?,
            cluster: input.u64()?,
            lineage: input.u16()?,
            sequence: input.u64()?,
            taken: input.u64()?,
            names_format: input.u32()?,
            members_format: input.u32()?,
        };
        Ok((head, input.u32()?))
    }
}

/// A block's head without its checksum.
fn block_head(kind: u8, raw: usize, stored: usize) -> [u8; 9] {
    let mut head = [0; 9];
    Encoder::new(&mut head).u8(kind).u32(raw as u32).u32(stored as u32);
    head
}

fn block_sum(before: u32, head: &[u8], stored: &[u8]) -> u32 {
    crc32c(&[&before.to_le_bytes(), head, stored].concat())
}

/// Writes a backup.
pub struct Writer<W> {
    out: W,
    sum: u32,
    of: Of,
    rows: Vec<u8>,
    counts: Counts,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Begins it.
    pub fn new(mut out: W, head: &Head) -> io::Result<Writer<W>> {
        let bytes = head.to_bytes();
        out.write_all(&bytes)?;
        let sum = crc32c(&bytes);
        let (rows, counts) = (Vec::new(), Counts::default());
        Ok(Writer { out, sum, of: Of::Members, rows, counts, bytes: bytes.len() as u64 })
    }

    /// Adds a row.
    pub fn row(&mut self, of: Of, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.of != of || self.rows.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        self.of = of;
        for length in [key.len() as u32, value.len() as u32] {
            self.rows.extend(length.to_le_bytes());
        }
        self.rows.extend(key);
        self.rows.extend(value);
        self.counts.add(of, 1);
        Ok(())
    }

    /// Begins the part of a manager.
    pub fn part(&mut self, part: &Part) -> io::Result<()> {
        self.flush()?;
        let bytes = part.to_bytes();
        self.block(PART, bytes.len(), &bytes)
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends it; what it was written to, and how many rows there are.
    pub fn end(mut self) -> io::Result<(W, Counts)> {
        self.flush()?;
        let mut counts = [0; 16];
        Encoder::new(&mut counts).u64(self.counts.names).u64(self.counts.members);
        self.block(END, counts.len(), &counts)?;
        self.out.flush()?;
        Ok((self.out, self.counts))
    }

    fn flush(&mut self) -> io::Result<()> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        self.block(self.of as u8, rows.len(), &lz4_flex::block::compress(&rows))
    }

    fn block(&mut self, kind: u8, raw: usize, stored: &[u8]) -> io::Result<()> {
        let head = block_head(kind, raw, stored.len());
        self.sum = block_sum(self.sum, &head, stored);
        self.out.write_all(&head)?;
        self.out.write_all(&self.sum.to_le_bytes())?;
        self.bytes += (BLOCK_HEAD_BYTES + stored.len()) as u64;
        self.out.write_all(stored)
    }
}

/// Reads a backup, and believes nothing of it that its checksums do not say.
pub struct Reader<R> {
    input: R,
    sum: u32,
    at: u64,
    counts: Counts,
}

impl<R: Read> Reader<R> {
    /// Reads the head.
    pub fn new(mut input: R) -> Result<(Reader<R>, Head), BadBackup> {
        let mut bytes = [0; HEAD_BYTES];
        let found = read_some(&mut input, &mut bytes)?;
        if found < MAGIC.len() + 2 || &bytes[..8] != MAGIC {
            return Err(BadBackup::Foreign);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if ![VERSION, VERSION_PARTS].contains(&version) {
            return Err(BadBackup::Version(version));
        }
        if found < HEAD_BYTES {
            return Err(BadBackup::Short(found as u64));
        }
        let (head, sum) = Head::decode(&bytes).map_err(|Short| BadBackup::Damaged(0))?;
        if crc32c(&bytes[..HEAD_BYTES - 4]) != sum {
            return Err(BadBackup::Damaged(0));
        }
        let (sum, counts) = (crc32c(&bytes), Counts::default());
        Ok((Reader { input, sum, at: HEAD_BYTES as u64, counts }, head))
    }

    /// The next block; `None` at the end, when all is as it was written.
    pub fn block(&mut self) -> Result<Option<Block>, BadBackup> {
        let start = self.at;
        let damaged = |_| BadBackup::Damaged(start);
        let head: [u8; BLOCK_HEAD_BYTES] = self.read(BLOCK_HEAD_BYTES)?.try_into().expect("13");
        let mut input = Decoder::new(&head);
        let kind = input.u8().map_err(damaged)?;
        let (raw, stored) = (input.u32().map_err(damaged)?, input.u32().map_err(damaged)?);
        let sum = input.u32().map_err(damaged)?;
        let (raw, stored) = (raw as usize, stored as usize);
        if raw > BLOCK_BYTES_MAX || stored > 2 * BLOCK_BYTES_MAX {
            return Err(BadBackup::Damaged(start));
        }
        let stored = self.read(stored)?;
        self.sum = block_sum(self.sum, &head[..9], &stored);
        if self.sum != sum {
            return Err(BadBackup::Damaged(start));
        }
        let of = match kind {
            1 => Of::Names,
            2 => Of::Members,
            PART => {
                let part = Part::decode(&stored).map_err(|Short| BadBackup::Damaged(start))?;
                return Ok(Some(Block::Part(part)));
            }
            END => return self.end(&stored, start).map(|()| None),
            _ => return Err(BadBackup::Damaged(start)),
        };
        let rows = lz4_flex::block::decompress(&stored, raw);
        let rows = rows_of(&rows.map_err(|_| BadBackup::Damaged(start))?).map_err(damaged)?;
        self.counts.add(of, rows.len() as u64);
        Ok(Some(Block::Rows(of, rows)))
    }

    fn end(&mut self, counts: &[u8], start: u64) -> Result<(), BadBackup> {
        let mut input = Decoder::new(counts);
        let told = input.u64().and_then(|names| Ok(Counts { names, members: input.u64()? }));
        let more = read_some(&mut self.input, &mut [0])?;
        if told == Ok(self.counts) && more == 0 { Ok(()) } else { Err(BadBackup::Damaged(start)) }
    }

    /// Exactly so many bytes.
    fn read(&mut self, count: usize) -> Result<Vec<u8>, BadBackup> {
        let mut bytes = vec![0; count];
        let found = read_some(&mut self.input, &mut bytes)?;
        self.at += found as u64;
        if found < count { Err(BadBackup::Short(self.at)) } else { Ok(bytes) }
    }
}

fn rows_of(bytes: &[u8]) -> Result<Vec<Entry>, Short> {
    let (mut input, mut rows) = (Decoder::new(bytes), Vec::new());
    while !input.rest().is_empty() {
        let (key, value) = (input.u32()? as usize, input.u32()? as usize);
        rows.push((input.raw(key)?.to_vec(), input.raw(value)?.to_vec()));
    }
    Ok(rows)
}

/// As many bytes as there are.
fn read_some(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < bytes.len() {
        match input.read(&mut bytes[found..]) {
            Ok(0) => break,
            Ok(more) => found += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Head = Head {
        has_parts: true,
        volume: 1,
        cluster: 7,
        lineage: 2,
        sequence: 99,
        taken: 5,
        names_format: 5,
        members_format: 3,
    };

    fn part() -> Part {
        let (sites, name) = (vec![0, 7, 8, 255], "manager2".into());
        Part { node: 4, lineage: 3, sequence: 1 << 40, sites, name }
    }

    fn rows() -> Vec<(Of, Entry)> {
        let members = (0..3u8).map(|n| (Of::Members, (vec![b'm', n], vec![n; 40])));
        let names = (0..3000u32).map(|n| (Of::Names, (n.to_be_bytes().into(), vec![7; 300])));
        members.chain(names).collect()
    }

    fn written() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &HEAD).unwrap();
        writer.part(&part()).unwrap();
        for (of, (key, value)) in rows() {
            writer.row(of, &key, &value).unwrap();
        }
        let (bytes, counts) = writer.end().unwrap();
        assert_eq!(counts, Counts { names: 3000, members: 3 });
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<(Of, Entry)>, BadBackup> {
        let (mut reader, head) = Reader::new(bytes)?;
        assert_eq!(head, HEAD);
        let (mut all, mut parts) = (Vec::new(), Vec::new());
        while let Some(block) = reader.block()? {
            match block {
                Block::Rows(of, rows) => all.extend(rows.into_iter().map(|row| (of, row))),
                Block::Part(part) => parts.push(part),
            }
        }
        assert_eq!(parts, [part()]);
        Ok(all)
    }

    #[test]
    fn rows_come_back_and_are_shorter() {
        let bytes = written();
        assert!(bytes.len() < 300_000, "{}", bytes.len());
        assert_eq!(read(&bytes).unwrap(), rows());
    }

    #[test]
    fn any_cut_and_any_flipped_bit_is_told() {
        let bytes = written();
        for cut in (0..bytes.len()).step_by(101).chain([bytes.len() - 1]) {
            let error = read(&bytes[..cut]).unwrap_err();
            let short = matches!(error, BadBackup::Short(at) if at == cut as u64);
            assert!(short || cut < 10, "{cut}: {error}");
        }
        for byte in (0..bytes.len()).step_by(37) {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 1 << (byte % 8);
            assert!(read(&damaged).is_err(), "byte {byte}");
        }
        assert!(read(&[&bytes[..], b"more"].concat()).is_err());
    }

    #[test]
    fn what_is_foreign_or_of_another_version_is_refused_by_name() {
        assert!(matches!(Reader::new(&b"not a backup at all"[..]), Err(BadBackup::Foreign)));
        let mut later = written();
        later[8] = 9;
        let error = Reader::new(&later[..]).err().unwrap().to_string();
        assert!(error.contains("version is 9") && error.contains("use the release"), "{error}");
    }
}
