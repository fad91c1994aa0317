//! Bytes of foreign files: pieces of them come from the origin and are kept at the I/O servers.

use crate::client::alloc;
use crate::limits::*;
use crate::origin::version;
use crate::pieces::{Next, is_lost};
use crate::service::{Foreign, Service};
use endpoint::Frame;
use node::Bug;
use std::ops::Range;
use std::rc::Rc;
use stripe::{FileRef, Write};
use wire::blockmap::MAP_FRAGMENTS_MAX;
use wire::{Errno, FileKind};

impl Service {
    /// Brings a piece of a file to the I/O servers, if it is not there. Whether all of the file is. ESTALE: the version
    /// is another one.
    pub(crate) async fn fetch(
        &self,
        id: wire::FileId,
        truncations: u32,
        piece: u64,
    ) -> Result<bool, Errno> {
        let file = self.load(id).await?;
        if file.kind != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        loop {
            let changed = file.changed.wait();
            let next = {
                let mut state = file.state.borrow_mut();
                match state.kept.whole && state.pieces.version() == truncations {
                    true => Next::Read,
                    false => state.pieces.want(truncations, piece),
                }
            };
            match next {
                Next::Read => break,
                Next::Changed => {
                    self.learn_generation(&file, truncations).await?;
                    return Err(Errno::ESTALE);
                }
                Next::Wait => changed.await,
                Next::Fetch => self.fetch_now(&file, truncations, piece).await?,
            }
        }
        self.room.borrow_mut().touch(id);
        self.go_ahead(&file, truncations, piece + 1);
        Ok(file.state.borrow().kept.whole)
    }

    /// A reader that comes along finds the next piece there.
    fn go_ahead(&self, file: &Rc<Foreign>, truncations: u32, piece: u64) {
        let (count, mut state) = (file.piece_count(), file.state.borrow_mut());
        let is_wanted = piece < count && !state.kept.whole && state.pieces.is_next(piece);
        // others may need the permits now
        if is_wanted
            && self.fetches.available() > 1
            && state.pieces.want(truncations, piece) == Next::Fetch
        {
            let (service, file) = (self.clone(), file.clone());
            self.cx.spawn("imports: ahead", async move {
                // the reader finds the error itself
                let _ = service.fetch_now(&file, truncations, piece).await;
            });
        }
    }

    /// Fetches a piece that no other task fetches.
    async fn fetch_now(
        &self,
        file: &Rc<Foreign>,
        truncations: u32,
        piece: u64,
    ) -> Result<(), Errno> {
        let result = {
            let _permit = self.fetches.acquire(1).await;
            self.bring(file, truncations, piece).await
        };
        {
            let mut state = file.state.borrow_mut();
            state.pieces.end(truncations, piece, result.is_ok());
            state.note_there();
        }
        file.changed.notify_all();
        if result.is_ok() {
            self.keep_there(file).await;
        }
        result
    }

    /// Keeps beside the inode what is there, once for all fetches that have ended meanwhile. It only spares a later
    /// importer the fetches; what the manager was not told of yet is kept when it is.
    async fn keep_there(&self, file: &Foreign) {
        while file.keeping.get() {
            file.changed.wait().await;
        }
        let kept = {
            let state = file.state.borrow();
            let is_kept = state.stored.as_ref() == Some(&state.kept);
            if is_kept || state.unflushed.is_some() {
                return;
            }
            state.kept.clone()
        };
        file.keeping.set(true);
        let _ = self.keep(file, &kept).await;
        file.keeping.set(false);
        file.changed.notify_all();
    }

    async fn bring(&self, file: &Rc<Foreign>, truncations: u32, piece: u64) -> Result<(), Errno> {
        self.sync(file).await?;
        let (size, start) = (file.state.borrow().size, piece * PIECE_BYTES);
        let range = start..size.min(start + PIECE_BYTES);
        if range.is_empty() {
            return Err(Errno::EINVAL);
        }
        let data = self.read(file, range).await?;
        // before they are there, so that there is never too much
        self.room.borrow_mut().take(file.id, data.len() as u64, size);
        self.make_room().await;
        match self.store(file, truncations, start, &data).await {
            // where it belongs is lost
            Err(errno) if is_lost(errno) => {
                let anew = async {
                    let version = file.state.borrow().pieces.version();
                    if version == truncations { self.begin_anew(file).await } else { Ok(()) }
                };
                file.in_turn(anew).await?;
                Err(Errno::ESTALE)
            }
            stored => stored,
        }
    }

    /// Has bytes on stable storage of the I/O servers.
    pub(crate) async fn store(
        &self,
        file: &Foreign,
        truncations: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), Errno> {
        let mut frame = alloc(&self.cx, data.len()).await;
        frame.copy_from_slice(data);
        let frame = frame.freeze();
        for _ in 0..WRITE_ATTEMPTS {
            match self.write(file, truncations, offset, frame.clone()).await {
                Err(Errno::ESTALE | Errno::EAGAIN) => self.learn_layout(file, truncations).await?,
                result => return result,
            }
            self.cx.sleep(RETRY_PAUSE).await;
        }
        Err(Errno::EIO)
    }

    /// The file's truncate generation is on stable storage before any byte is of it: else another version could get
    /// the same generation after a power cut.
    pub(crate) async fn sync(&self, file: &Foreign) -> Result<(), Errno> {
        let version = file.state.borrow().pieces.version();
        if !file.state.borrow().unsynced {
            return Ok(());
        }
        match self.names.sync().await {
            Err(Errno::ESTALE) => {
                self.forget_all();
                file.doubt(self.cx.now());
                return Err(Errno::ESTALE);
            }
            result => result?,
        }
        let mut state = file.state.borrow_mut();
        state.unsynced &= state.pieces.version() != version;
        Ok(())
    }

    /// All bytes of a range of the version that is known; ESTALE when the origin has another one.
    async fn read(&self, file: &Foreign, range: Range<u64>) -> Result<Vec<u8>, Errno> {
        let (handle, known) = {
            let state = file.state.borrow();
            (state.kept.handle.clone(), state.kept.version)
        };
        let mut data = Vec::with_capacity((range.end - range.start) as usize);
        loop {
            let at = range.start + data.len() as u64;
            let count = (range.end - at) as u32;
            let read = self.origin.read(&handle, at, count).await?;
            let attributes = match read.attributes {
                Some(attributes) => attributes,
                None => self.origin.attributes(&handle).await?,
            };
            let is_ignored = self.cx.has_bug(Bug::OtherVersionFetched);
            let is_known = version(&attributes) == known || is_ignored;
            if !is_known || read.data.is_empty() || read.data.len() > count as usize {
                file.doubt(self.cx.now());
                return Err(if is_known { Errno::EIO } else { Errno::ESTALE });
            }
            data.extend_from_slice(&read.data);
            if data.len() as u64 == range.end - range.start {
                return Ok(data);
            }
        }
    }

    /// Writes the bytes and has them on stable storage; EAGAIN when an I/O server restarted meanwhile.
    async fn write(
        &self,
        file: &Foreign,
        truncations: u32,
        offset: u64,
        data: Frame,
    ) -> Result<(), Errno> {
        let layout = file.state.borrow().layout.ok_or(Errno::EINVAL)?;
        let reference = FileRef { file: file.id, layout, truncations };
        self.know_map(&reference).await?;
        let data = self.cx.piece(data);
        let written = self.objects.write(&reference, offset, data, Write::Stable).await?;
        if written.are_stable() {
            return Ok(());
        }
        let committed = self.objects.commit(&reference, &written).await?;
        let is_same = written.columns().all(|column| written.same(column, &committed));
        if is_same { Ok(()) } else { Err(Errno::EAGAIN) }
    }

    pub(crate) async fn know_map(&self, reference: &FileRef) -> Result<(), Errno> {
        if !self.objects.knows_map(reference) {
            let count = MAP_FRAGMENTS_MAX as u32;
            let (epoch, fragments) = self.names.fragments(reference.file, 0, count).await?;
            self.objects.learn_map(reference.file, epoch, &fragments);
        }
        Ok(())
    }

    /// A client knows this truncate generation of the manager. Where the importer does not, an answer of the manager's
    /// was lost: nothing is there of it.
    async fn learn_generation(&self, file: &Foreign, truncations: u32) -> Result<(), Errno> {
        let is_behind = |of: u32| file.state.borrow().pieces.version() < of;
        if !is_behind(truncations) {
            return Ok(());
        }
        file.in_turn(async {
            let entry = self.names.get_attr(file.id).await?;
            if is_behind(entry.truncations) {
                file.state.borrow_mut().begin_generation(&entry);
                file.forget_version();
            }
            Ok(())
        })
        .await
    }

    /// A column may have moved.
    pub(crate) async fn learn_layout(&self, file: &Foreign, truncations: u32) -> Result<(), Errno> {
        let entry = self.names.get_attr(file.id).await?;
        if entry.truncations != truncations {
            return Err(Errno::ESTALE);
        }
        file.state.borrow_mut().layout = entry.layout;
        Ok(())
    }
}
