//! Reading: one call per column into the pieces of one frame. Each block's checksum is verified before the data counts.

use super::*;
use crate::protocol::{op, sum_at};
use wire::checksum::block_crc;
use wire::limits::BLOCK_BYTES;

/// The range of one read call.
struct Part {
    column: u16,
    offset: u64,
    bytes: usize,
    into: Pieces<FrameMut>,
}

/// The data that landed in the frames of one call, or of all.
struct Landed<T> {
    into: T,
    marks: Marks,
}

/// Marks of bytes that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// A column had no object. Its bytes are zeros, which is right of a column that was never written, and wrong of a
    /// file that was removed: the file's manager knows which.
    pub is_absent: bool,
    /// A column's object had another truncate generation than the caller knows: of a file whose generations are its
    /// versions these are bytes of another one.
    pub is_other: bool,
}

/// Why a part was not read.
enum Failure {
    Errno(Errno),
    /// Its frames did not come back, or not all of them.
    Lost(Trouble),
}

impl Client {
    /// Fills all of `into` from `offset`, a multiple of 4 KiB; what is in no object is zero. At most 1 MiB. The frame
    /// that comes back is the one that was given, or, when a server was lost meanwhile, another one of that length.
    pub async fn read(
        &self,
        file: &FileRef,
        offset: u64,
        into: FrameMut,
    ) -> Result<FrameMut, Errno> {
        self.read_marking(file, offset, into).await.map(|(into, _)| into)
    }

    /// As [`read`](Client::read), with what is to be known of the bytes.
    pub async fn read_marking(
        &self,
        file: &FileRef,
        offset: u64,
        mut into: FrameMut,
    ) -> Result<(FrameMut, Marks), Errno> {
        let length = into.len();
        if !offset.is_multiple_of(BLOCK_BYTES as u64) || length > TRANSFER_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        if length == 0 {
            return Ok((into, Marks::default()));
        }
        let mut tries = self.tries(None);
        loop {
            let trouble = match self.read_parts(file, offset, into).await {
                Ok(Landed { into, marks }) => return Ok((into, marks)),
                Err(Failure::Errno(errno)) => return Err(errno),
                Err(Failure::Lost(trouble)) => trouble,
            };
            tries.again(trouble).await?;
            into = self.fresh(length, &mut tries).await?;
        }
    }

    /// A frame of `bytes` bytes, waited for while the pool is empty.
    pub(super) async fn fresh(
        &self,
        bytes: usize,
        tries: &mut Tries<'_>,
    ) -> Result<FrameMut, Errno> {
        loop {
            if let Some(frame) = self.cx().frames().alloc_exact(bytes) {
                return Ok(frame);
            }
            tries.again(Trouble::Retry(Errno::ENOMEM)).await?;
        }
    }

    async fn read_parts(
        &self,
        file: &FileRef,
        offset: u64,
        into: FrameMut,
    ) -> Result<Landed<FrameMut>, Failure> {
        let length = into.len();
        let fragments = self.fragments(file).map_err(Failure::Errno)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let extent = map.locate(offset, length as u64);
        if extent.bytes == length as u64 || file.layout.width() == 1 {
            let into = self.cx().piece(into);
            let part =
                Part { column: extent.column, offset: extent.object_offset, bytes: length, into };
            return join(self.read_part(file, part).await?, length);
        }
        let parts = self.split(map, offset, into);
        let reads = parts.into_iter().map(|part| self.read_part(file, part));
        let mut all = Landed { into: self.cx().pieces::<FrameMut>(), marks: Marks::default() };
        let mut failure = None;
        for read in node::all(reads).await {
            match read {
                Ok(mut some) => {
                    all.into.append(&mut some.into);
                    all.marks.is_absent |= some.marks.is_absent;
                    all.marks.is_other |= some.marks.is_other;
                }
                // An error that cannot be repaired is told first.
                Err(Failure::Errno(errno)) => failure = Some(Failure::Errno(errno)),
                Err(lost) => failure = failure.or(Some(lost)),
            }
        }
        failure.map_or(Ok(()), Err)?;
        join(all, length)
    }

    /// Reads a part of one column's object; what is behind its end is zero.
    pub(super) async fn read_column(
        &self,
        file: &FileRef,
        column: u16,
        offset: u64,
        into: FrameMut,
    ) -> Result<FrameMut, Errno> {
        let bytes = into.len();
        let part = Part { column, offset, bytes, into: self.cx().piece(into) };
        let read = self.read_part(file, part).await.and_then(|pieces| join(pieces, bytes));
        read.map(|landed| landed.into).map_err(|failure| match failure {
            Failure::Errno(errno) => errno,
            Failure::Lost(Trouble::Retry(errno) | Trouble::Fail(errno)) => errno,
        })
    }

    /// The calls to make: for each column the pieces of `into` that its bytes belong in.
    fn split(&self, map: BlockMap<'_>, offset: u64, mut into: FrameMut) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::with_capacity(WIDTH_MAX);
        let mut open: [Option<usize>; WIDTH_MAX] = [None; WIDTH_MAX];
        for extent in map.extents(offset, into.len() as u64) {
            let bytes = extent.bytes as usize;
            let rest = into.split_off(bytes);
            let piece = std::mem::replace(&mut into, rest);
            let slot = &mut open[usize::from(extent.column)];
            let index = slot.filter(|index| parts[*index].into.len() < PIECES_MAX);
            let index = index.unwrap_or_else(|| {
                let (column, offset) = (extent.column, extent.object_offset);
                parts.push(Part { column, offset, bytes: 0, into: self.cx().pieces() });
                parts.len() - 1
            });
            *slot = Some(index);
            parts[index].bytes += bytes;
            parts[index].into.push(piece);
        }
        parts
    }

    /// Reads one part, as often as needed while its frames come back.
    async fn read_part(
        &self,
        file: &FileRef,
        part: Part,
    ) -> Result<Landed<Pieces<FrameMut>>, Failure> {
        let home = file.layout.home(part.column);
        let mut tries = self.tries_of(home);
        let request = ObjectRequest {
            offset: part.offset,
            bytes: part.bytes as u32,
            ..self.request(file, part.column)
        };
        let mut into = part.into;
        let pieces = into.len();
        loop {
            self.there(home).map_err(Failure::Errno)?;
            let read = self.send(home, op::READ, request, Sent::default(), into, &tries).await;
            let mut reply = read.map_err(Failure::Lost)?;
            if reply.data.len() != pieces {
                return Err(Failure::Lost(Trouble::Retry(Errno::EIO)));
            }
            let intact = reply.status == 0 && self.verify(&mut reply, part.bytes);
            let tried = match reply.status {
                0 if intact => {
                    let told = decoded(&reply).map_err(Failure::Errno)?;
                    let is_absent = told.epoch == 0;
                    let is_other = !is_absent && told.truncations != file.truncations;
                    let marks = Marks { is_absent, is_other };
                    return Ok(Landed { into: reply.data, marks });
                }
                0 => {
                    self.count(|c| c.damaged_reads += 1);
                    tries.damaged().inspect_err(|_| self.count(|c| c.corrupt_reads += 1))
                }
                status => tries.again(Trouble::of_reply(home, status)).await,
            };
            tried.map_err(Failure::Errno)?;
            into = reply.data;
        }
    }

    /// Whether what landed fits its checksums; what did not land becomes zero.
    fn verify(&self, reply: &mut Reply, wanted: usize) -> bool {
        let trusting = self.cx().has_bug(Bug::ChecksumIgnored);
        let (mut left, mut block) = (reply.bytes.min(wanted), 0);
        for piece in 0..reply.data.len() {
            let landed = left.min(reply.data[piece].len());
            left -= landed;
            for bytes in reply.data[piece][..landed].chunks(BLOCK_BYTES) {
                if sum_at(reply.trailer(), block) != Some(block_crc(bytes)) && !trusting {
                    return false;
                }
                block += 1;
            }
            if !self.cx().has_bug(Bug::HoleNotZeroed) {
                reply.data[piece][landed..].fill(0);
            }
        }
        true
    }
}

/// The pieces as the one frame that they were cut from.
fn join(landed: Landed<Pieces<FrameMut>>, length: usize) -> Result<Landed<FrameMut>, Failure> {
    let lost = || Failure::Lost(Trouble::Retry(Errno::EIO));
    let Landed { into: mut pieces, marks } = landed;
    pieces.sort_unstable_by_key(|piece| piece.offset());
    let mut pieces = pieces.drain(..);
    let mut whole = pieces.next().ok_or_else(lost)?;
    for piece in pieces {
        whole.join(piece).map_err(|_| lost())?;
    }
    if whole.len() == length { Ok(Landed { into: whole, marks }) } else { Err(lost()) }
}
