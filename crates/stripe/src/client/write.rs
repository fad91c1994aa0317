//! Writing: one call per column, with the caller's frames and the checksums of their pieces.

use super::*;
use crate::order::Stamp;
use crate::protocol::{op, set_sum, trailer_bytes};
use crate::sums::sum_pieces;
use endpoint::Frame;
use wire::Extent;
use wire::codec::Encoder;
use wire::field::Field;

/// Largest step in which a write is cut up.
const STEP_BYTES: u64 = 64 * 1024;

/// The range of one write call.
struct Part {
    column: u16,
    offset: u64,
    bytes: usize,
    data: Pieces<Frame>,
    sums: Vec<u32>,
    /// The stamp that it got when it was written first, if this is not the first time.
    again: Option<Stamp>,
    stable: bool,
}

impl Part {
    fn new(column: u16, offset: u64, bytes: usize, data: Pieces<Frame>, sums: Vec<u32>) -> Part {
        Part { column, offset, bytes, data, sums, again: None, stable: false }
    }

    /// Checksums, and the stamp of what is written again.
    fn trailer(&self) -> Vec<u8> {
        let sums = trailer_bytes(self.sums.len());
        let stamp = if self.again.is_some() { Stamp::BYTES } else { 0 };
        let mut trailer = vec![0; sums + stamp];
        self.sums.iter().enumerate().for_each(|(index, sum)| set_sum(&mut trailer, index, *sum));
        if let Some(again) = self.again {
            again.put(&mut Encoder::new(&mut trailer[sums..]));
        }
        trailer
    }
}

/// A place in a list of frames.
struct Cursor<'a> {
    data: &'a [Frame],
    frame: usize,
    at: usize,
}

impl Cursor<'_> {
    /// Appends the next `bytes` bytes to `out`, as slices.
    fn take(&mut self, mut bytes: usize, out: &mut Vec<Frame>) {
        while bytes > 0 {
            let frame = &self.data[self.frame];
            let count = bytes.min(frame.len() - self.at);
            let slice = (count > 0).then(|| frame.slice(self.at..self.at + count));
            out.extend(slice);
            bytes -= count;
            self.at += count;
            if self.at == frame.len() {
                (self.frame, self.at) = (self.frame + 1, 0);
            }
        }
    }
}

/// The extents of a range, cut at 64 KiB too, so that each adds few pieces to its call.
fn steps(map: BlockMap<'_>, offset: u64, bytes: u64) -> impl Iterator<Item = Extent> {
    map.extents(offset, bytes).flat_map(|extent| {
        let end = extent.file_offset + extent.bytes;
        let mut at = extent.file_offset;
        std::iter::from_fn(move || {
            let bytes = (STEP_BYTES - at % STEP_BYTES).min(end - at);
            let object_offset = extent.object_offset + (at - extent.file_offset);
            let step = Extent { object_offset, file_offset: at, bytes, ..extent };
            at += bytes;
            (bytes > 0).then_some(step)
        })
    })
}

/// Joins the slices from `before` on with those before them where they lie in a row.
fn join_last(data: &mut Vec<Frame>, before: usize) {
    let added: Vec<Frame> = data.drain(before..).collect();
    for slice in added {
        let rest = match data.last_mut() {
            Some(last) => last.join(slice).err(),
            None => Some(slice),
        };
        data.extend(rest);
    }
}

/// Whether no column has two parts.
fn has_one_part_each(parts: &[Part]) -> bool {
    let mut seen = [false; WIDTH_MAX];
    parts.iter().all(|part| !std::mem::replace(&mut seen[usize::from(part.column)], true))
}

impl Client {
    /// Writes `data`, at most 1 MiB, at any `offset`. Unstable parts become stable by a commit, if it answers with the
    /// same verifiers. If not, they must be written again, with the result of this call.
    pub async fn write(
        &self,
        file: &FileRef,
        offset: u64,
        data: Pieces<Frame>,
        how: Write<'_>,
    ) -> Result<Verifiers, Errno> {
        let bytes: usize = data.iter().map(|frame| frame.len()).sum();
        if bytes > TRANSFER_BYTES_MAX {
            return Err(Errno::EINVAL);
        }
        let mtime = self.cx().wall();
        let fragments = self.fragments(file)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let mut parts = self.cut(map, offset, bytes, &data);
        drop(data);
        // With more to come for a column, one commit for all of it is cheaper.
        let stable = matches!(how, Write::Stable) && has_one_part_each(&parts);
        for part in &mut parts {
            part.stable = stable;
            if let Write::Again(earlier) = how {
                part.again = earlier.stamp(part.column);
            }
        }
        let mut verifiers = Verifiers::default();
        if parts.len() == 1 {
            let part = parts.remove(0);
            verifiers.0[usize::from(part.column)] =
                Some(self.write_part(file, &part, mtime).await?);
            return Ok(verifiers);
        }
        let writes = parts
            .iter()
            .map(|part| async move { (part.column, self.write_part(file, part, mtime).await) });
        for (column, written) in node::all(writes).await {
            let mut one = Verifiers::default();
            one.0[usize::from(column)] = Some(written?);
            if verifiers.get(column).is_some() && !verifiers.same(column, &one) {
                // The server restarted between two parts: the first is lost.
                return Err(Errno::EAGAIN);
            }
            verifiers.merge(&one);
        }
        Ok(verifiers)
    }

    fn cut(&self, map: BlockMap<'_>, offset: u64, bytes: usize, data: &[Frame]) -> Vec<Part> {
        let mut cursor = Cursor { data, frame: 0, at: 0 };
        let mut parts: Vec<Part> = Vec::with_capacity(WIDTH_MAX);
        let mut open: [Option<usize>; WIDTH_MAX] = [None; WIDTH_MAX];
        for extent in steps(map, offset, bytes as u64) {
            let slot = &mut open[usize::from(extent.column)];
            let index = slot.filter(|index| parts[*index].data.len() < PIECES_MAX);
            let index = index.unwrap_or_else(|| {
                let (column, offset) = (extent.column, extent.object_offset);
                let data = self.cx().pieces();
                parts.push(Part::new(column, offset, 0, data, Vec::new()));
                parts.len() - 1
            });
            *slot = Some(index);
            let part = &mut parts[index];
            let before = part.data.len();
            cursor.take(extent.bytes as usize, &mut part.data);
            sum_pieces(extent.file_offset, &part.data[before..], &mut part.sums);
            join_last(&mut part.data, before);
            part.bytes += extent.bytes as usize;
        }
        parts
    }

    /// Writes a part of a copy of one column's object; the verifier of its server.
    pub(super) async fn write_column(
        &self,
        file: &FileRef,
        column: u16,
        offset: u64,
        frame: Frame,
        mtime: Wall,
    ) -> Result<u64, Errno> {
        let (bytes, mut sums) = (frame.len(), Vec::new());
        sum_pieces(offset, std::slice::from_ref(&frame), &mut sums);
        let data = self.cx().piece(frame);
        let part = Part::new(column, offset, bytes, data, sums);
        let written = self.write_part_as(Role::Copy, file, &part, mtime);
        written.await.map(|held| held.verifier)
    }

    /// Writes one part; who holds it then.
    async fn write_part(
        &self,
        file: &FileRef,
        part: &Part,
        mtime: Wall,
    ) -> Result<WriteReceipt, Errno> {
        self.write_part_as(Role::Column, file, part, mtime).await
    }

    /// The same, of what the object is then.
    async fn write_part_as(
        &self,
        role: Role,
        file: &FileRef,
        part: &Part,
        mtime: Wall,
    ) -> Result<WriteReceipt, Errno> {
        let request = ObjectRequest {
            offset: part.offset,
            bytes: part.bytes as u32,
            mtime,
            stable: part.stable,
            ..self.request_as(role, file, part.column)
        };
        let trailer = part.trailer();
        let op = if part.again.is_some() { op::REWRITE } else { op::WRITE };
        let home = file.layout.home(part.column);
        let mut tries = self.tries_of(home);
        loop {
            self.there(home)?;
            let mut data = self.cx().pieces();
            data.extend(part.data.iter().cloned());
            let sent = Sent { data: Some(data), trailer: &trailer };
            let trouble = match self.send(home, op, request, sent, self.cx().pieces(), &tries).await
            {
                Ok(reply) if reply.status == 0 => {
                    let reply = decoded(&reply)?;
                    let verifier = reply.verifier;
                    let now = Stamp { incarnation: verifier, order: reply.order };
                    let stamp = part.again.filter(|_| reply.order == 0).unwrap_or(now);
                    return Ok(WriteReceipt { verifier, stamp, stable: reply.stable });
                }
                Ok(reply) if reply.status == Errno::EPROTO.0 => {
                    self.count(|c| c.damaged_writes += 1);
                    tries.damaged()?;
                    continue;
                }
                Ok(reply) => Trouble::of_reply(home, reply.status),
                Err(trouble) => trouble,
            };
            tries.again(trouble).await?;
        }
    }
}
