//! The object protocol: what a request and a reply on [`Channel::STRIPE`](wire::Channel::STRIPE) say.
//!
//! It is shaped after NASD's: objects, not sectors; every request carries the object's layout epoch and truncate
//! generation. One body serves all requests and one all replies; each operation's text says which fields it uses.
//! The status of a reply is 0 or an [`Errno`](wire::Errno) number; with ESTALE the body says the server's epoch and
//! truncate generation. ENXIO: the server has refused the disk since its start, or has none of that number. ENODEV: the
//! disk went missing while it served. With both, the trailer says why in a sentence for people. EREMOTE: another server
//! is the group's primary, or the group has another epoch here than the request says.

use wire::codec::{Decoder, Short};
use wire::field::{Field, Output, body, fields};
use wire::limits::{BLOCK_BYTES, BODY_BYTES, TRAILER_BYTES_MAX, TRAILER_WORD_BYTES};
use wire::{GroupId, ObjectId, Wall};

/// Operation numbers.
pub mod op {
    /// Pure. `offset` is a multiple of 4 KiB, `bytes` at most 1 MiB. The reply's data is what exists, short at the
    /// object's end; its trailer is one checksum per block.
    pub const READ: u16 = 1;
    /// Any `offset`, `bytes` of data at most 1 MiB; the trailer is one checksum per piece cut at block borders.
    /// Unstable, unless `stable` asks for more. The reply has verifier, length, and the write's order. Where it does
    /// not say `stable`, a [`COMMIT`] makes it so, or says why it cannot: the write itself was executed. EAGAIN when
    /// `truncations` is newer than the object: it has that [`TRUNCATE`] still to come.
    pub const WRITE: u16 = 2;
    /// Everything written to the object before is stable when the reply comes: verifier, length, mtime.
    pub const COMMIT: u16 = 3;
    /// `offset` is the new length, `truncations` the new generation. Stable when the reply comes.
    pub const TRUNCATE: u16 = 4;
    /// The objects that the trailer names, as [`LIST`] replies with them, are gone, and a write that comes late brings
    /// none back: at most [`REMOVALS_MAX`](crate::limits::REMOVALS_MAX), all on the disk `disk`. Stable when the reply
    /// comes, whose trailer says 0 or an error number of each, 2 bytes.
    pub const REMOVE: u16 = 5;
    /// Pure. The reply has length, used, mtime, epoch, generation; ENOENT when there is no object.
    pub const ATTRIBUTES: u16 = 6;
    /// `epoch` is the new layout epoch; the object is made when there is none. Stable when the reply comes.
    pub const SET_LAYOUT: u16 = 7;
    /// Pure, of no object. The reply has `length` = bytes in all and `used` = bytes free on disks with a room of their
    /// own; data is the room that other disks may share, 24 bytes each: device, bytes in all, bytes free.
    pub const SPACE: u16 = 8;
    /// Pure. Names at most `bytes` objects after `object` as data, 16 bytes each, ascending, with their disks; the
    /// reply's `length` is how many.
    pub const LIST: u16 = 9;
    /// The object is set aside: gone for every other operation, its file kept. Stable when the reply comes, which says
    /// its length; ENOENT when there is no object, EAGAIN when it is being written.
    pub const QUARANTINE: u16 = 10;
    /// The file that [`QUARANTINE`] set aside is gone for good. Stable when the reply comes; no error when there is
    /// nothing.
    pub const PURGE: u16 = 11;
    /// The file that [`QUARANTINE`] set aside is an object again. Stable when the reply comes; ENOENT when there is
    /// nothing, EEXIST when there is such an object.
    pub const RESTORE: u16 = 12;
    /// The object is empty under the layout epoch `epoch`: its column is kept elsewhere. Requests by an older layout
    /// are refused, also after a restart. Stable when the reply comes.
    pub const VACATE: u16 = 14;
    /// As [`WRITE`], of data that an earlier incarnation acknowledged and may have lost: behind the checksums the
    /// trailer has the [`Stamp`](crate::order::Stamp) that it got then. Only bytes that are lost and have nothing newer
    /// in their place are written. The reply's order is 0 when the old stamp still counts. EIO when it is not known any
    /// more which bytes are newer.
    pub const REWRITE: u16 = 13;
    /// As [`COMMIT`]; the trailer of the reply says what a copy of the object must know of the order of its writes: its
    /// [`History`](crate::order::History), and what the server remembers. For who moves it.
    pub const HISTORY: u16 = 15;
    /// As [`COMMIT`]; the object, a copy of one on another disk, has the [`Role`](super::Role) of the request's shape,
    /// and goes by that one's order of writes from now on, which is the trailer as [`HISTORY`] replied with it.
    pub const INHERIT: u16 = 16;
    /// The missing or damaged parts of the object are given up: it is empty, under the layout epoch and truncate
    /// generation of the request. Stable when the reply comes; EEXIST when the object is neither missing nor damaged.
    pub const ACCEPT_LOSS: u16 = 17;

    /// Of no object but `object`'s volume: the manager's store is durable up to change `offset` of lineage `epoch`,
    /// by its clock at `mtime`; zeros only ask. The reply has the latest that the server was ever told, as lineage
    /// `epoch`, change `length` and time `mtime`. EAGAIN when no disk serves yet. May be executed twice.
    pub const WITNESS: u16 = 20;
    /// `bytes` **blocks** from `offset`, which is at a block, become a hole, as far as the object goes: they read as
    /// zeros and take no room. The length stays. Stable when the reply comes, with everything written before.
    pub const PUNCH: u16 = 21;
    /// Pure. Where the next data is at or behind `offset` (with `bytes` 0), or the next hole (with 1), to a block. The
    /// reply's `length` is the place, `u64::MAX` where no data follows; with `used` 0 the search is to go on there.
    pub const SEEK: u16 = 22;

    /// Describes the files of `bytes` objects, all on the disk `disk`; the trailer has them as
    /// [`encode_some`](crate::description::encode_some) writes it. Stable with the next checkpoint and not before,
    /// unless `stable` asks for more: then it is when the reply comes. The reply's trailer says 0 or an error number
    /// of each, 2 bytes; ENODATA when it was told and has no path, as neither this one nor the one before had one. A
    /// layout of an earlier epoch than the object knows leaves that one. May be executed twice.
    pub const DESCRIBE: u16 = 23;
    /// Pure. As [`ATTRIBUTES`]; the reply's trailer is a [`Told`](crate::Told).
    pub const DESCRIPTION: u16 = 24;

    /// The object is at least `offset` long, with zeros behind its present end; never shorter than it is. EAGAIN as of
    /// [`WRITE`]. Stable when the reply comes, with everything written before.
    pub const GROW: u16 = 25;
    /// Pure. As [`READ`], of what will be read soon: the blocks are brought into memory while no reader waits for a
    /// disk. The reply has no data and comes at once. EAGAIN when the server has as many of these to do as it notes.
    pub const PREFETCH: u16 = 26;

    /// Whether all replicas of an object execute it: it changes the object, or makes changes of it durable.
    pub fn changes(op: u16) -> bool {
        let reads = matches!(op, READ | ATTRIBUTES | SPACE | LIST | WITNESS | SEEK);
        !reads && !matches!(op, DESCRIPTION | PREFETCH)
    }

    /// Whether the operation may be executed twice, so that no reply is kept for it.
    pub fn is_pure(op: u16) -> bool {
        matches!(op, READ | ATTRIBUTES | SPACE | LIST | WITNESS | SEEK | DESCRIBE)
            || matches!(op, DESCRIPTION | PREFETCH)
    }
}

/// The role of an object in its column. While a column moves there are two of them, and one of them may be lost, with
/// the names: each says by itself which of the two it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// It is the column, or was under its layout epoch.
    #[default]
    Column = 0,
    /// A copy of the column that does not have everything.
    Copy = 1,
    /// A copy that has everything. It is the column from the first change on that comes by its layout.
    Arrived = 2,
    /// The column is copied under its layout epoch, by which nothing changes this one: the column for as long as that
    /// copy has not arrived, and empty some time after.
    Left = 3,
}

impl Role {
    fn parse(bits: u8) -> Role {
        [Role::Column, Role::Copy, Role::Arrived, Role::Left][usize::from(bits & 3)]
    }
}

/// The place of an object in its file; kept in its header for a reader of the disk alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Binary logarithm of the stripe unit in bytes.
    pub unit_shift: u8,
    /// Columns of the file.
    pub width: u8,
    /// Copies of every unit, at most [`COPIES_MAX`](Shape::COPIES_MAX).
    pub copies: u8,
    /// The object's role in its column.
    pub role: Role,
}

impl Shape {
    /// Most copies.
    pub const COPIES_MAX: u8 = 63;
}

/// In 3 bytes.
impl<'a> Field<'a> for Shape {
    fn put(&self, out: &mut impl Output) {
        let last = self.copies.min(Shape::COPIES_MAX) | (self.role as u8) << 6;
        [self.unit_shift, self.width, last].put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Shape, Short> {
        let [unit_shift, width, last] = Field::take(input)?;
        let (copies, role) = (last & Shape::COPIES_MAX, Role::parse(last >> 6));
        Ok(Shape { unit_shift, width, copies, role })
    }
}

/// Body of every request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectRequest {
    /// The object.
    pub object: ObjectId,
    /// Layout epoch that the caller goes by.
    pub epoch: u32,
    /// Truncate generation that the caller knows.
    pub truncations: u32,
    /// First byte within the object.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u32,
    /// When the data was written, by the caller's clock.
    pub mtime: Wall,
    /// The layout in short, and what the object is once the request changed it.
    pub shape: Shape,
    /// The server's disk that keeps it; of a listed group it is the one that the server has in it.
    pub disk: u8,
    /// Of a WRITE: it shall be stable when the reply comes, with everything written to the object before.
    pub stable: bool,
    /// The group of disks that keeps it; 0 is the disk alone.
    pub group: GroupId,
    /// The group's epoch that the caller knows.
    pub group_epoch: u32,
}

/// Body of every reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectReply {
    /// Drawn anew in every incarnation of the server: a client that sees another one sends unstable data again.
    pub verifier: u64,
    /// Bytes of the object.
    pub length: u64,
    /// Bytes of storage.
    pub used: u64,
    /// Latest write.
    pub mtime: Wall,
    /// Layout epoch of the object.
    pub epoch: u32,
    /// Truncate generation of the object.
    pub truncations: u32,
    /// With the verifier, the stamp of the write that is answered.
    pub order: u64,
    /// Of a WRITE: it is stable.
    pub stable: bool,
}

/// An object where it is kept on a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kept {
    /// Its name.
    pub object: ObjectId,
    /// The server's disk.
    pub disk: u8,
}

impl Kept {
    /// Bytes in a LIST reply.
    pub const BYTES: usize = 16;
}

/// As LIST replies with it.
impl<'a> Field<'a> for Kept {
    fn put(&self, out: &mut impl Output) {
        self.object.put(out);
        [self.disk, 0].put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Kept, Short> {
        let (object, [disk, _]) = (ObjectId::take(input)?, <[u8; 2]>::take(input)?);
        Ok(Kept { object, disk })
    }
}

/// Room on what one or more disks are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceRoom {
    /// The same for all disks that share this room; 0 is in no SPACE reply's data.
    pub device: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
}

impl DeviceRoom {
    /// Bytes in a SPACE reply.
    pub const BYTES: usize = 24;
}
fields!(DeviceRoom { device, total_bytes, free_bytes });

impl ObjectRequest {
    /// The bytes that it is about.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.bytes)
    }

    /// The body as it travels.
    pub fn encode(&self) -> [u8; BODY_BYTES] {
        body(self)
    }

    /// Reads what [`encode`](ObjectRequest::encode) wrote.
    pub fn decode(body: &[u8]) -> Result<ObjectRequest, Short> {
        Field::take(&mut Decoder::new(body))
    }
}
fields!(ObjectRequest {
    object,
    epoch,
    truncations,
    offset,
    bytes,
    mtime,
    shape,
    disk,
    stable,
    group,
    group_epoch
});

impl ObjectReply {
    /// The body as it travels.
    pub fn encode(&self) -> [u8; BODY_BYTES] {
        body(self)
    }

    /// Reads what [`encode`](ObjectReply::encode) wrote.
    pub fn decode(body: &[u8]) -> Result<ObjectReply, Short> {
        Field::take(&mut Decoder::new(body))
    }
}
fields!(ObjectReply { verifier, length, used, mtime, epoch, truncations, order, stable });

/// A sentence as a trailer, as much of it as a trailer holds.
pub fn text_trailer(text: &str) -> Vec<u8> {
    let bytes = &text.as_bytes()[..text.len().min(TRAILER_BYTES_MAX)];
    let mut trailer = bytes.to_vec();
    trailer.resize(trailer.len().next_multiple_of(TRAILER_WORD_BYTES), 0);
    trailer
}

/// The sentence that [`text_trailer`] made a trailer of.
pub fn text_of(trailer: &[u8]) -> String {
    String::from_utf8_lossy(trailer).trim_end_matches('\0').to_string()
}

/// The pieces of `bytes` bytes from `offset`, cut at block borders: (bytes from `offset`, bytes of the piece).
pub fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = (usize, usize)> {
    let block = BLOCK_BYTES as u64;
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = (block - (offset + at as u64) % block) as usize;
        let piece = (at, rest.min(bytes - at));
        at += piece.1;
        (piece.1 > 0).then_some(piece)
    })
}

/// Number of pieces: the checksums in a trailer.
pub fn piece_count(offset: u64, bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let within = (offset % BLOCK_BYTES as u64) as usize;
    (within + bytes).div_ceil(BLOCK_BYTES)
}

/// Bytes of a trailer with so many checksums: whole words of 8.
pub fn trailer_bytes(count: usize) -> usize {
    count.div_ceil(2) * 8
}

/// Writes checksum `index` of a trailer.
pub fn set_sum(trailer: &mut [u8], index: usize, sum: u32) {
    trailer[index * 4..index * 4 + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Checksum `index` of a trailer; `None` when it is not that long.
pub fn sum_at(trailer: &[u8], index: usize) -> Option<u32> {
    let bytes = trailer.get(index * 4..index * 4 + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::{FileId, VolumeId};

    #[test]
    fn a_sentence_survives_as_a_trailer_as_far_as_it_fits() {
        for text in ["", "disk 0: gone", "disk 12: its log is damaged"] {
            assert_eq!(text_of(&text_trailer(text)), text);
        }
        let long = "ä".repeat(2000);
        let trailer = text_trailer(&long);
        assert!(trailer.len() <= TRAILER_BYTES_MAX && long.starts_with(&text_of(&trailer)));
    }

    proptest! {
        #[test]
        fn requests_survive_the_wire(volume: u32, file: u64, column: u16, offset: u64, bytes: u32, seconds: i64) {
            let object = ObjectId { volume: VolumeId(volume), file: FileId(file), column };
            let role = Role::parse(column as u8);
            let shape = Shape { unit_shift: 15, width: 4, copies: 1, role };
            let mtime = Wall { seconds, nanos: 5 };
            let request = ObjectRequest {
                object, epoch: 7, truncations: 8, offset, bytes, mtime, shape, disk: 3, stable: true,
                group: GroupId(0xc0_0000 | u32::from(column) << 8),
                group_epoch: bytes,
            };
            prop_assert_eq!(ObjectRequest::decode(&request.encode()), Ok(request));
            let (verifier, length) = (file, offset);
            let reply =
                ObjectReply { verifier, length, mtime, order: 4, stable: true, ..ObjectReply::default() };
            prop_assert_eq!(ObjectReply::decode(&reply.encode()), Ok(reply));
        }

        #[test]
        fn pieces_cover_the_bytes_and_never_cross_a_border(offset in 0u64..1 << 50, bytes in 0usize..100_000) {
            let (mut at, mut count) = (0, 0);
            for (start, len) in pieces(offset, bytes) {
                prop_assert_eq!(start, at);
                let first = (offset + start as u64) / 4096;
                prop_assert_eq!(first, (offset + (start + len - 1) as u64) / 4096);
                at += len;
                count += 1;
            }
            prop_assert_eq!(at, bytes);
            prop_assert_eq!(count, piece_count(offset, bytes));
        }
    }
}
