//! Pieces that are lost, with a disk or by damage: the origin has them, and they are fetched again.
//!
//! All of the file begins anew, under another truncate generation: a piece lies in several columns, and what one of
//! them has lost reads as zeros once it begins anew. Columns on disks that are gone, or that their servers refuse, go
//! to other disks; objects that cannot be opened become empty ones.
//!
//! ```text
//!   generation raised ─► columns replaced ─► losses accepted ─► generation raised ─► holes ─► fetched again
//!   nothing is there ──────────────────────────────────────────────────────────────────────────►
//! ```
//!
//! Invariant: the generation is raised before a column begins anew, and no piece is there until all have.

use crate::client::alloc;
use crate::limits::*;
use crate::pieces::is_lost;
use crate::service::{Foreign, Service};
use names::{Entry, Who};
use std::rc::Rc;
use stripe::FileRef;
use wire::limits::BLOCK_BYTES;
use wire::{Errno, FileId, FileKind, SetAttr, SetTime};

/// The columns that have lost their objects, a bit for each.
#[derive(Clone, Copy, Default)]
struct Losses {
    /// With their disks.
    disks: u32,
    /// By damage.
    damaged: u32,
}

impl Service {
    /// A client cannot read a piece of this generation. Whether the generation is another one now: nothing is done
    /// where the piece can be read.
    pub(crate) async fn note_lost(
        &self,
        id: FileId,
        truncations: u32,
        piece: u64,
    ) -> Result<bool, Errno> {
        let file = self.load(id).await?;
        if file.kind != FileKind::Regular || piece >= file.piece_count() {
            return Err(Errno::EINVAL);
        }
        file.in_turn(async {
            let version = file.state.borrow().pieces.version();
            if version != truncations || self.is_readable(&file, piece).await? {
                return Ok(version != truncations);
            }
            self.begin_anew(&file).await.map(|()| true)
        })
        .await
    }

    async fn is_readable(&self, file: &Foreign, piece: u64) -> Result<bool, Errno> {
        let start = piece * PIECE_BYTES;
        let bytes = file.state.borrow().size.min(start + PIECE_BYTES).saturating_sub(start);
        for _ in 0..WRITE_ATTEMPTS {
            let reference = self.reference(file).await?.ok_or(Errno::EINVAL)?;
            let frame = alloc(&self.cx, bytes as usize).await;
            match self.objects.read(&reference, start, frame).await {
                Ok(_) => return Ok(true),
                Err(Errno::ESTALE | Errno::EAGAIN) => {
                    self.learn_layout(file, reference.truncations).await?;
                }
                Err(errno) if is_lost(errno) => return Ok(false),
                Err(errno) => return Err(errno),
            }
            self.cx.sleep(RETRY_PAUSE).await;
        }
        Err(Errno::EAGAIN)
    }

    /// Nothing of a file is there any more, and all of it can be written. In the file's turn. EIO: it was begun anew
    /// just before.
    pub(crate) async fn begin_anew(&self, file: &Rc<Foreign>) -> Result<(), Errno> {
        let now = self.cx.now();
        let is_soon = |at| now.since(at) < ANEW_PAUSE;
        if file.state.borrow().anew.is_some_and(is_soon) {
            return Err(Errno::EIO);
        }
        file.state.borrow_mut().anew = Some(now);
        self.origin
            .report(&format!("file {:#x} has lost bytes here: it is fetched again", file.id.0));
        self.room.borrow_mut().forget(file.id);
        let begun = self.begin_all(file).await;
        file.state.borrow_mut().pieces.set_closed(false);
        file.changed.notify_all();
        begun
    }

    async fn begin_all(&self, file: &Rc<Foreign>) -> Result<(), Errno> {
        let before = self.reference(file).await?.ok_or(Errno::EINVAL)?;
        let raised = self.raise(file).await;
        match &raised {
            Ok(entry) => self.begin_closed(file, entry),
            Err(errno) if is_lost(*errno) => {}
            Err(errno) => return Err(*errno),
        }
        let lost = self.losses(&before).await?;
        let entry = match lost.disks {
            0 if raised.is_ok() => raised?,
            0 => self.names.get_attr(file.id).await?,
            columns => self.names.replace_columns(&Who::ROOT, file.id, columns).await?,
        };
        if entry.truncations <= before.truncations {
            return Err(Errno::EIO); // the manager did not come so far
        }
        self.begin_closed(file, &entry);
        self.accept(file, lost.damaged).await?;
        if raised.is_err() || lost.disks | lost.damaged != 0 {
            let entry = self.raise(file).await?;
            self.begin_closed(file, &entry);
        }
        let (kept, size) = {
            let state = file.state.borrow();
            (state.kept.clone(), state.told_size)
        };
        self.empty_objects(file, &kept, size).await
    }

    /// Raises the truncate generation, by a truncation to the length that the file has.
    async fn raise(&self, file: &Foreign) -> Result<Entry, Errno> {
        let (mtime, size) = {
            let state = file.state.borrow();
            (state.kept.version.mtime, state.told_size)
        };
        let mtime = Some(SetTime::To(mtime));
        let same = SetAttr { size: Some(size), mtime, ..SetAttr::default() };
        self.names.set_attr(&Who::ROOT, file.id, same, false).await
    }

    /// Begins the generation, of which nothing is fetched yet.
    fn begin_closed(&self, file: &Foreign, entry: &Entry) {
        let mut state = file.state.borrow_mut();
        state.begin_generation(entry);
        state.pieces.set_closed(true);
    }

    async fn losses(&self, reference: &FileRef) -> Result<Losses, Errno> {
        let mut lost = Losses::default();
        let told = self.objects.columns(reference).await;
        for ((column, home), told) in reference.layout.homes().enumerate().zip(told) {
            match told {
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(Errno::EIO) if !self.objects.is_gone(home) => lost.damaged |= 1 << column,
                Err(errno) if is_lost(errno) => lost.disks |= 1 << column,
                Err(errno) => return Err(errno),
            }
        }
        Ok(lost)
    }

    /// Damaged columns begin anew where they are.
    async fn accept(&self, file: &Foreign, damaged: u32) -> Result<(), Errno> {
        let reference = self.reference(file).await?.ok_or(Errno::EINVAL)?;
        for column in (0..reference.layout.width()).filter(|column| damaged >> column & 1 == 1) {
            match self.objects.accept_loss(&reference, column).await {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// How the I/O servers are asked for a file; `None` where it has no bytes.
    pub(crate) async fn reference(&self, file: &Foreign) -> Result<Option<FileRef>, Errno> {
        let (layout, truncations) = {
            let state = file.state.borrow();
            (state.layout, state.pieces.version())
        };
        let Some(layout) = layout else { return Ok(None) };
        let reference = FileRef { file: file.id, layout, truncations };
        self.know_map(&reference).await?;
        Ok(Some(reference))
    }

    /// The generation that a file begins is kept, and its objects become holes.
    pub(crate) async fn empty_objects(
        &self,
        file: &Foreign,
        kept: &crate::protocol::Kept,
        size: u64,
    ) -> Result<(), Errno> {
        self.keep(file, kept).await?;
        self.sync(file).await?;
        match self.reference(file).await? {
            Some(reference) if size > 0 => {
                let end = size.next_multiple_of(BLOCK_BYTES as u64);
                self.objects.punch(&reference, 0..end).await
            }
            _ => Ok(()),
        }
    }
}
