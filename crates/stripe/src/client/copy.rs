//! Copying one column's object to another server. For managers.

use super::*;
use crate::protocol::op;
use endpoint::Frame;
use std::ops::Range;
use wire::limits::BLOCK_BYTES;

impl Client {
    /// Makes the object of `column` on `to`'s server equal to the one on `from`'s, on stable storage. Only differing
    /// blocks are written, so a second copy is a comparison; blocks of zeros become holes. Retransmitted writes to
    /// `from` are judged by `to` from then on. At most `rate` bytes a second, 0 is as fast as it goes. The caller sees
    /// to it that `from` stands still meanwhile: `arrives` says that it does, so that the copy has everything then.
    pub async fn copy_column(
        &self,
        from: &FileRef,
        to: &FileRef,
        column: u16,
        rate: u64,
        arrives: bool,
    ) -> Result<(), Errno> {
        let (source, target) = (from.layout.server(column), to.layout.server(column));
        let (whole, heir) = (self.request(from, column), self.request_as(Role::Copy, to, column));
        self.ask(target, op::SET_LAYOUT, &heir).await?;
        // Everything that this tells of is stable before it is read. An object that does not exist is empty.
        let history = self.ask_with(source, op::HISTORY, &whole, &[]).await?;
        let ObjectReply { length, mtime, .. } = decoded(&history)?;
        // Shorter than an earlier copy it can only be when it was truncated since; else this changes nothing.
        let cut = ObjectRequest { offset: length, mtime, ..heir };
        self.ask(target, op::TRUNCATE, &cut).await?;
        let mut copying = Copying { client: self, from, to, column, length, mtime, written: None };
        copying.run(rate).await?;
        let role = if arrives { Role::Arrived } else { Role::Copy };
        let heir = self.request_as(role, to, column);
        let stable = self.ask_with(target, op::INHERIT, &heir, history.trailer()).await?;
        let verifier = decoded(&stable)?.verifier;
        let kept = copying.written.is_none_or(|before| before == verifier);
        if kept { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    /// Empties the object of a column that is kept elsewhere from now on. Its epoch stays, and refuses clients that go
    /// by an older layout. For managers.
    pub async fn vacate_column(&self, file: &FileRef, column: u16) -> Result<(), Errno> {
        let request = self.request_as(Role::Left, file, column);
        self.ask(file.layout.server(column), op::VACATE, &request).await.map(drop)
    }
}

/// A copy of a column under way.
struct Copying<'a> {
    client: &'a Client,
    from: &'a FileRef,
    to: &'a FileRef,
    column: u16,
    length: u64,
    mtime: Wall,
    /// The verifier of the target's server when it was written to first.
    written: Option<u64>,
}

impl Copying<'_> {
    async fn run(&mut self, rate: u64) -> Result<(), Errno> {
        let (mut at, mut in_hole) = (0, true);
        while at < self.length {
            // A seek for less than a read brings is no gain.
            if in_hole && self.length - at > COPY_BYTES as u64 {
                at = self.skip_hole(at).await?;
            }
            let begun = self.client.cx().now();
            let bytes = (self.length - at).min(COPY_BYTES as u64);
            in_hole = self.copy_bytes(at, bytes as usize).await?;
            at += bytes;
            if let Some(nanos) = (bytes * 1_000_000_000).checked_div(rate) {
                self.client.cx().sleep_until(begun + Duration::from_nanos(nanos)).await;
            }
        }
        Ok(())
    }

    /// The end of the source's hole at `at`, which the target has then too.
    async fn skip_hole(&self, at: u64) -> Result<u64, Errno> {
        let data = self.client.seek_column(self.from, self.column, at, Seek::Data).await?;
        let end = data.map_or(self.length, |data| data.min(self.length));
        if at < end {
            let there = self.client.seek_column(self.to, self.column, at, Seek::Data).await?;
            if self.is_last(end) || there.is_some_and(|there| there < end) {
                self.punch(at..end).await?;
            }
        }
        Ok(end)
    }

    /// Makes bytes of the target those of the source; whether they end with a hole.
    async fn copy_bytes(&mut self, at: u64, bytes: usize) -> Result<bool, Errno> {
        if bytes == 0 {
            return Ok(true);
        }
        let (client, column) = (self.client, self.column);
        let mut tries = client.tries(None);
        let wanted = client.fresh(bytes, &mut tries).await?;
        let wanted = client.read_column(self.from, column, at, wanted).await?;
        let there = client.fresh(bytes, &mut tries).await?;
        let there = client.read_column(self.to, column, at, there).await?;
        let (wanted, mut ends_with_zeros) = (wanted.freeze(), false);
        for (run, is_zeros) in runs(&wanted) {
            ends_with_zeros = is_zeros;
            let (start, end) = (at + run.start as u64, at + run.end as u64);
            if wanted[run.clone()] == there[run.clone()] && !self.is_last(end) {
                continue;
            }
            match is_zeros {
                true => self.punch(start..end).await?,
                false => self.write(start, wanted.slice(run)).await?,
            }
        }
        Ok(ends_with_zeros)
    }

    /// Whether a piece with this end brings the time of the last write, also where nothing differs.
    fn is_last(&self, end: u64) -> bool {
        end >= self.length
    }

    async fn write(&mut self, offset: u64, frame: Frame) -> Result<(), Errno> {
        let written = self.client.write_column(self.to, self.column, offset, frame, self.mtime);
        let verifier = written.await?;
        match *self.written.get_or_insert(verifier) == verifier {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// It is durable at once: no restart takes it back.
    async fn punch(&self, range: Range<u64>) -> Result<(), Errno> {
        let blocks = (range.end - range.start).div_ceil(BLOCK_BYTES as u64);
        let request = ObjectRequest {
            offset: range.start,
            bytes: blocks.try_into().unwrap_or(u32::MAX),
            mtime: self.mtime,
            ..self.client.request_as(Role::Copy, self.to, self.column)
        };
        let target = self.to.layout.server(self.column);
        self.client.ask(target, op::PUNCH, &request).await.map(drop)
    }
}

/// Bytes that begin at a block as runs of blocks which are zeros, or of which none is.
fn runs(bytes: &[u8]) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    for (block, start) in bytes.chunks(BLOCK_BYTES).zip((0..).step_by(BLOCK_BYTES)) {
        let (end, is_zeros) = (start + block.len(), block.iter().all(|byte| *byte == 0));
        match runs.last_mut() {
            Some((run, same)) if *same == is_zeros => run.end = end,
            _ => runs.push((start..end, is_zeros)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_zeros_begin_and_end_at_blocks() {
        let mut bytes = vec![0; 5 * BLOCK_BYTES + 10];
        assert_eq!(runs(&bytes), [(0..bytes.len(), true)]);
        bytes[BLOCK_BYTES + 7] = 1;
        bytes[3 * BLOCK_BYTES - 1] = 1;
        bytes[5 * BLOCK_BYTES + 9] = 1;
        let block = |from, to| from * BLOCK_BYTES..to * BLOCK_BYTES;
        let last = 5 * BLOCK_BYTES..bytes.len();
        assert_eq!(
            runs(&bytes),
            [(block(0, 1), true), (block(1, 3), false), (block(3, 5), true), (last, false)]
        );
        assert_eq!(runs(&[]), []);
    }
}
