//! Makes room: the bytes of the files that were read least recently are taken from the I/O servers.

use crate::mirror::names_of;
use crate::pieces::is_lost;
use crate::service::{Foreign, Service};
use names::Who;
use std::rc::Rc;
use wire::{Errno, FileId, FileKind, SetAttr, SetTime};

impl Service {
    /// Counts what is there of an earlier importer's, and makes room where that is too much.
    pub(crate) async fn count_all(self) {
        if let Err(errno) = self.count(self.config.root).await {
            self.origin.report(&format!("what is cached cannot be counted: {errno}"));
        }
        self.make_room().await;
    }

    /// Takes away what is beyond the limit.
    pub(crate) async fn make_room(&self) {
        loop {
            let next = self.room.borrow().to_go();
            let Some(id) = next else { return };
            let bytes = self.room.borrow_mut().forget(id);
            if self.evict(id).await.is_err() {
                // a server is away: it stays, behind all others
                self.room.borrow_mut().take(id, bytes, u64::MAX);
                return;
            }
        }
    }

    /// Counts the bytes of all files below a directory that were listed once.
    async fn count(&self, directory: FileId) -> Result<(), Errno> {
        let mut directories = vec![directory];
        while let Some(directory) = directories.pop() {
            for entry in names_of(&self.names, directory).await?.values() {
                match entry.kind {
                    FileKind::Directory => directories.push(entry.file),
                    FileKind::Regular => self.count_file(entry.file).await?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn count_file(&self, id: FileId) -> Result<(), Errno> {
        let file = match self.load(id).await {
            Err(Errno::ESTALE) => return Ok(()), // half made
            file => file?,
        };
        let Some(reference) = self.reference(&file).await? else { return Ok(()) };
        let used = match self.objects.attributes(&reference).await {
            // never less than there is
            Err(errno) if is_lost(errno) => file.state.borrow().size,
            attributes => attributes?.used,
        };
        self.room.borrow_mut().take(id, used, used);
        Ok(())
    }

    /// Takes the bytes of a file away. Its generation is raised before, on stable storage: whoever was told of these
    /// bytes is refused, also after a power cut of the manager's.
    async fn evict(&self, id: FileId) -> Result<(), Errno> {
        let file = match self.load(id).await {
            Err(Errno::ESTALE | Errno::EINVAL) => return Ok(()), // it is gone
            file => file?,
        };
        file.in_turn(self.evict_now(&file)).await
    }

    async fn evict_now(&self, file: &Rc<Foreign>) -> Result<(), Errno> {
        self.flush(file).await?;
        let (version, size) = {
            let state = file.state.borrow();
            (state.kept.version, state.told_size)
        };
        // to the length that it has
        let mtime = Some(SetTime::To(version.mtime));
        let same = SetAttr { size: Some(size), mtime, ..SetAttr::default() };
        let entry = self.names.set_attr(&Who::ROOT, file.id, same, false).await?;
        let kept = {
            let mut state = file.state.borrow_mut();
            state.begin_generation(&entry);
            state.pieces.set_closed(true);
            state.kept.clone()
        };
        let emptied = self.empty_objects(file, &kept, size).await;
        file.state.borrow_mut().pieces.set_closed(false);
        file.changed.notify_all();
        emptied
    }
}
