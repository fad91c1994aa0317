//! fallocate(2), and lseek(2) for data and holes.
//!
//! Whole blocks become holes at the servers, in the order of writes: earlier writes are stable first, writes that come
//! meanwhile wait. The rest of the range at its ends is zeros that are written. Room is never reserved.

use crate::Files;
use crate::flags::{KEEP_SIZE, PUNCH_HOLE, SEEK_DATA, SEEK_HOLE, ZERO_RANGE, writes};
use crate::gather::Gather;
use crate::inode::File;
use crate::read::at_once;
use crate::table::Open;
use crate::write::Position;
use names::Who;
use node::rings::{FileReply, Handle};
use std::ops::Range;
use std::rc::Rc;
use stripe::Seek;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Files {
    /// fallocate(2): makes the file longer, and ranges zeros.
    pub(crate) async fn allocate(
        &self,
        who: &Who<'_>,
        handle: Handle,
        offset: u64,
        bytes: u64,
        mode: u32,
    ) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        if !writes(open.flags) {
            return Err(Errno::EBADF);
        }
        let zeroes = match mode & !KEEP_SIZE {
            0 => false,
            ZERO_RANGE => true,
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => true,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        let end = open.file.state.borrow().end_of(offset, bytes)?;
        // Data that another mount has written and synced is zeroed too, though it may be behind the end known here.
        self.refresh(&open.file).await?;
        if who.uid != 0 {
            self.clear_set_id(&open.file).await?;
        }
        if mode & KEEP_SIZE == 0 {
            self.reach(&open.file, end).await?;
        }
        if zeroes {
            self.zero(&open, offset..end).await?;
        }
        if mode & KEEP_SIZE == 0 {
            // The servers may have told only now that another mount had truncated the file.
            self.reach(&open.file, end).await?;
        }
        Ok(FileReply::Done)
    }

    /// Makes the file longer where it ends before `end`.
    async fn reach(&self, file: &Rc<File>, end: u64) -> Result<(), Errno> {
        if end <= file.state.borrow().size() {
            return Ok(());
        }
        let (files, file) = (self.clone(), file.clone());
        self.to_the_end(async move { files.extend(&file, end).await }).await
    }

    /// Makes a range zeros, as far as the file goes. Whole blocks go also behind its end: what a server lost and
    /// another mount is to retransmit was written before, and is before the zeros in the order of writes.
    async fn zero(&self, open: &Open, range: Range<u64>) -> Result<(), Errno> {
        let size = open.file.state.borrow().size();
        let within = |range: Range<u64>| range.start.min(size)..range.end.min(size);
        let whole = range.start.next_multiple_of(BLOCK)..range.end / BLOCK * BLOCK;
        if whole.is_empty() {
            return self.write_zeros(open, within(range)).await;
        }
        self.write_zeros(open, within(range.start..whole.start)).await?;
        self.write_zeros(open, within(whole.end..range.end)).await?;
        // To the end: a request that is given up must not leave writes held back.
        let (files, file) = (self.clone(), open.file.clone());
        self.to_the_end(async move { files.punch(&file, whole).await }).await
    }

    /// Writes zeros to less than two blocks.
    async fn write_zeros(&self, open: &Open, range: Range<u64>) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        let mut frame = self.frame((range.end - range.start) as usize).await?;
        frame.fill(0);
        let zeros = Gather::new(vec![frame.freeze()]);
        self.accept(open, Position::Within(range.start), zeros).await.map(drop)
    }

    /// Makes whole blocks a hole, durably.
    async fn punch(&self, file: &Rc<File>, whole: Range<u64>) -> Result<(), Errno> {
        self.begin_session(file).await?;
        self.hold_kept(file).await;
        // The servers know how far the file goes: it may have changed while writes were retransmitted.
        let result = self.punch_blocks(file, &whole).await;
        self.resume_writes(file);
        result
    }

    async fn punch_blocks(&self, file: &Rc<File>, range: &Range<u64>) -> Result<(), Errno> {
        let punch = async |reference| self.stripe.punch(&reference, range.clone()).await;
        self.persist(file, punch).await?;
        self.with_written(file, |state| {
            state.chunks.forget(range);
            let end = range.end.min(state.size());
            state.note_write(0, end, self.cx.wall());
            state.guess_used();
        });
        self.measure_used(file).await;
        Ok(())
    }

    /// lseek(2) for data and holes, to a block. The kernel does not say which pages are dirty in a shared map: through
    /// a handle for reading, all of a file is data while this mount has it open for writing, since it may be mapped.
    pub(crate) async fn seek(
        &self,
        handle: Handle,
        offset: u64,
        whence: u32,
    ) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::EINVAL),
        };
        let file = &open.file;
        if !self.is_fresh(file) {
            self.refresh(file).await?;
        }
        let size = file.state.borrow().size();
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        let mapped = !writes(open.flags) && file.state.borrow().writers > 0;
        // Holes of a cache say nothing of its origin's file.
        let mapped = mapped || file.import().is_some();
        let found = match what {
            Seek::Data if mapped => offset,
            Seek::Hole if mapped => size,
            Seek::Data => self.next_data(file, offset..size).await?,
            Seek::Hole => self.next_hole(file, offset..size).await?,
        };
        match what {
            Seek::Data if found >= size => Err(Errno::ENXIO),
            _ => Ok(FileReply::Offset(found.min(size))),
        }
    }

    /// Where the first data of the range is, or its end. Writes that are not at the servers yet are data.
    async fn next_data(&self, file: &Rc<File>, range: Range<u64>) -> Result<u64, Errno> {
        // Taken before the servers are asked, as for a read.
        let written = file.state.borrow().written.overlay(range.clone());
        let found = self.sought(file, range.start, Seek::Data).await?.unwrap_or(range.end);
        let written =
            written.first().map_or(range.end, |(at, _)| (at / BLOCK * BLOCK).max(range.start));
        Ok(found.min(written))
    }

    /// Where the first hole of the range is, or its end.
    async fn next_hole(&self, file: &Rc<File>, range: Range<u64>) -> Result<u64, Errno> {
        let written = file.state.borrow().written.overlay(range.clone());
        let mut at = range.start;
        while at < range.end {
            at = self.sought(file, at, Seek::Hole).await?.unwrap_or(range.end);
            let mut over = written.iter().map(|(start, data)| *start..start + data.len());
            let block = at..(at / BLOCK + 1) * BLOCK;
            match over.rfind(|piece| piece.start < block.end && piece.end > at) {
                Some(piece) => at = piece.end.next_multiple_of(BLOCK).max(block.end),
                None => break,
            }
        }
        Ok(at)
    }

    async fn sought(&self, file: &Rc<File>, at: u64, what: Seek) -> Result<Option<u64>, Errno> {
        let seek = async |reference| self.stripe.seek(&reference, at, what).await.map_err(at_once);
        self.persist(file, seek).await
    }
}
