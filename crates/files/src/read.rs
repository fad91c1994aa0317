//! Reading: what was written here and is not yet stable lies over what the servers have; holes are zeros.

use crate::Files;
use crate::chunks::Prefetched;
use crate::gather::Gather;
use crate::inode::File;
use crate::limits::{READ_BYTES_MAX, READ_FRAMES_MAX};
use endpoint::Frame;
use node::Bug;
use node::rings::{FileReply, Handle};
use std::ops::Range;
use std::rc::Rc;
use wire::Errno;
use wire::limits::BLOCK_BYTES;

impl Files {
    /// The bytes of an open file from `offset`: all that are asked for unless the file ends before.
    pub(crate) async fn read(
        &self,
        handle: Handle,
        offset: u64,
        bytes: u32,
    ) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        if let Some(import) = open.file.import() {
            return self.read_imported(import, &open.file, (offset, bytes)).await;
        }
        let range = self.readable(&open.file, offset, bytes).await?;
        let bytes = (range.end - range.start) as usize;
        if bytes == 0 {
            return Ok(FileReply::Data { frames: Vec::new(), bytes });
        }
        self.plan_ahead(&open, &range);
        self.follow_hints(&open, range.start);
        let frames = self.read_range(&open.file, range).await?;
        self.counters.read_bytes.add(bytes as u64);
        Ok(FileReply::Data { frames, bytes })
    }

    /// The part of the range that the file has. At its end an old length is not believed.
    pub(crate) async fn readable(
        &self,
        file: &Rc<File>,
        offset: u64,
        bytes: u32,
    ) -> Result<Range<u64>, Errno> {
        let end = offset.saturating_add(bytes.into());
        if end > file.state.borrow().size() && !self.is_fresh(file) {
            self.refresh(file).await?;
        }
        let size = file.state.borrow().size();
        Ok(offset.min(size)..end.min(size))
    }

    async fn read_range(&self, file: &Rc<File>, range: Range<u64>) -> Result<Vec<Frame>, Errno> {
        loop {
            let found = file.state.borrow_mut().chunks.find(&range, self.cx.now());
            let changed = file.changed.wait();
            match found {
                Prefetched::Here(frames) => return Ok(frames),
                Prefetched::Coming => changed.await,
                Prefetched::Missing => return self.fetch(file, range).await,
            }
        }
    }

    /// The bytes of `range`, in as many pieces as the payload's limit and the first block make.
    pub(crate) async fn fetch(
        &self,
        file: &Rc<File>,
        range: Range<u64>,
    ) -> Result<Vec<Frame>, Errno> {
        let overlay = self.overlay(file, &range);
        if covers(&overlay, &range) {
            let frames = overlay.into_iter().flat_map(|(_, data)| data.into_frames());
            return self.few_frames(frames.collect()).await;
        }
        let (mut frames, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let from = at - at % BLOCK_BYTES as u64;
            let to = range.end.min(from + READ_BYTES_MAX);
            let frame = self.fetch_frame(file, from..to).await?;
            frames.push(frame.slice((at - from) as usize..frame.len()));
            at = to;
        }
        Ok(frames)
    }

    /// The same bytes, copied where they are many crumbs: a front cannot take any number of pieces.
    async fn few_frames(&self, frames: Vec<Frame>) -> Result<Vec<Frame>, Errno> {
        if frames.len() <= READ_FRAMES_MAX {
            return Ok(frames);
        }
        let (crumbs, mut frames, mut at) = (Gather::new(frames), Vec::new(), 0);
        while at < crumbs.len() {
            let part = crumbs.slice(at..crumbs.len().min(at + READ_BYTES_MAX));
            let mut frame = self.frame(part.len() as usize).await?;
            part.copy_to(&mut frame);
            frames.push(frame.freeze());
            at += part.len();
        }
        Ok(frames)
    }

    /// Writes to `range` that may not be at its servers yet.
    fn overlay(&self, file: &File, range: &Range<u64>) -> Vec<(u64, Gather)> {
        match self.cx.has_bug(Bug::OverlayIgnored) {
            false => file.state.borrow().written.overlay(range.clone()),
            true => Vec::new(),
        }
    }

    /// The bytes of `range`, which starts at a block and is not longer than a payload. ESTALE of a file of an import of
    /// which an I/O server has another version by now.
    pub(crate) async fn fetch_frame(
        &self,
        file: &Rc<File>,
        range: Range<u64>,
    ) -> Result<Frame, Errno> {
        // Taken before the servers are asked: what is stable by the time they answer may not have been when they read.
        let overlay = self.overlay(file, &range);
        let bytes = (range.end - range.start) as usize;
        let (mut frame, marks) = self
            .persist(file, async |reference| {
                let into = self.frame(bytes).await?;
                let read = self.stripe.read_marking(&reference, range.start, into).await;
                read.map_err(at_once)
            })
            .await?;
        if marks.is_other && file.import().is_some() {
            return Err(Errno::ESTALE);
        }
        if marks.is_absent {
            self.confirm(file).await?;
        }
        for (at, data) in overlay {
            data.copy_to(&mut frame[(at - range.start) as usize..]);
        }
        Ok(frame.freeze())
    }
}

/// Reads do not wait, as writes do, for a disk that went missing under its server.
pub(crate) fn at_once(errno: Errno) -> Errno {
    if errno == Errno::ENODEV { Errno::ENXIO } else { errno }
}

impl Files {
    /// ESTALE when the file is gone. A column without an object reads as zeros, and so would a file whose objects were
    /// removed because the manager took this client, paused for longer than its lease, for dead.
    async fn confirm(&self, file: &Rc<File>) -> Result<(), Errno> {
        if self.is_fresh(file) { Ok(()) } else { self.refresh(file).await }
    }
}

/// Whether the pieces, which are disjoint and in order, leave nothing of `range` out.
fn covers(overlay: &[(u64, Gather)], range: &Range<u64>) -> bool {
    let end = overlay
        .iter()
        .try_fold(range.start, |at, (start, data)| (*start == at).then_some(at + data.len()));
    end == Some(range.end)
}
