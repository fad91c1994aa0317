//! Holes of files: punched in all columns at once, sought in all of them.

use super::*;
use crate::protocol::op;
use std::ops::Range;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The target of a seek in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next byte that is.
    Hole,
}

impl Client {
    /// The blocks of `range`, which starts and ends at blocks, become a hole, on stable storage, with everything that
    /// was written to their columns before. The file stays as long as it is.
    pub async fn punch(&self, file: &FileRef, range: Range<u64>) -> Result<(), Errno> {
        debug_assert!(range.start.is_multiple_of(BLOCK) && range.end.is_multiple_of(BLOCK));
        let fragments = self.fragments(file)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let part =
            |column| map.object_bytes(column, range.start)..map.object_bytes(column, range.end);
        let columns = (0..file.layout.width()).filter(|column| !part(*column).is_empty());
        let mtime = self.cx().wall();
        let punched = self.change_columns(file, columns, op::PUNCH, |column, ask| {
            let part = part(column);
            (ask.offset, ask.mtime) = (part.start, mtime);
            ask.bytes = ((part.end - part.start) / BLOCK).try_into().unwrap_or(u32::MAX);
        });
        punched.await
    }

    /// The file is at least `size` > 0 bytes long, on stable storage, and not made shorter where another client has
    /// written behind that. Only the object of the last byte is asked: the others are holes behind their ends.
    pub async fn grow(&self, file: &FileRef, size: u64) -> Result<(), Errno> {
        let fragments = self.fragments(file)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let has_last =
            |column: &u16| map.object_bytes(*column, size) > map.object_bytes(*column, size - 1);
        let column = (0..file.layout.width()).filter(has_last);
        let mtime = self.cx().wall();
        let grown = self.change_columns(file, column, op::GROW, |column, ask| {
            (ask.offset, ask.mtime) = (map.object_bytes(column, size), mtime);
        });
        grown.await
    }

    /// The next place at or behind `offset` of what is sought, to a block, as far as the servers know; behind the last
    /// object everything is a hole. `None` where no data follows.
    pub async fn seek(
        &self,
        file: &FileRef,
        offset: u64,
        what: Seek,
    ) -> Result<Option<u64>, Errno> {
        let fragments = self.fragments(file)?;
        let map = BlockMap::new(&file.layout, &fragments);
        let searches = (0..file.layout.width()).map(|column| {
            let from = map.object_bytes(column, offset);
            self.seek_mapped(file, &map, column, from, what)
        });
        let found: Vec<Option<u64>> =
            node::all(searches).await.into_iter().collect::<Result<_, _>>()?;
        Ok(found.into_iter().flatten().min())
    }

    /// The next match in a column, as an offset in the file. Places that the map gives to no byte of the file, as
    /// behind the last one that a column got before others were added, are passed over: they are no holes of it.
    async fn seek_mapped(
        &self,
        file: &FileRef,
        map: &BlockMap<'_>,
        column: u16,
        mut from: u64,
        what: Seek,
    ) -> Result<Option<u64>, Errno> {
        while let Some((place, _)) = map.byte_from(column, from) {
            let Some(at) = self.seek_column(file, column, place, what).await? else { break };
            match map.byte_from(column, at) {
                Some((place, byte)) if place == at => return Ok(Some(byte)),
                Some((place, _)) => from = place,
                None => break,
            }
        }
        Ok(None)
    }

    pub(super) async fn seek_column(
        &self,
        file: &FileRef,
        column: u16,
        mut at: u64,
        what: Seek,
    ) -> Result<Option<u64>, Errno> {
        loop {
            let mut request = self.request(file, column);
            (request.offset, request.bytes) = (at, u32::from(what == Seek::Hole));
            let reply = self.ask(file.layout.server(column), op::SEEK, &request).await?;
            match reply.length {
                u64::MAX => return Ok(None),
                found if reply.used != 0 => return Ok(Some(found)),
                on if on > at => at = on,
                _ => return Err(Errno::EPROTO),
            }
        }
    }
}
