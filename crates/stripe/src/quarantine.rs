//! QUARANTINE, RESTORE, PURGE: objects that no file claims. Which those are is their manager's to say; here they are
//! only set aside, complete and in place, so that they can be given back by renaming a file.

use crate::disk::{Disk, errno};
use crate::object::{HEADER_BYTES, Header};
use crate::objects::{Object, Phase};
use crate::protocol::{ObjectReply, ObjectRequest};
use crate::server::Inner;
use node::rings::{DiskError, DiskFile, DiskOp};
use std::rc::Rc;
use wire::{Errno, ObjectId};

impl Inner {
    /// QUARANTINE.
    pub async fn quarantine(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let object = self.object(ask).await?;
        if !object.state.borrow().exists {
            return Err(Errno::ENOENT);
        }
        let disk = self.disk(&object);
        self.commit(&object).await?;
        // Nothing of it may be in the log when its file goes: a replay would make it again, in part.
        if is_logged(disk, &object) {
            self.checkpoint(disk).await?;
        }
        // One under way may be done with the object and not with the log.
        let _none = disk.checkpointing.acquire(1).await;
        let _gates = object.gates().await;
        let (open, in_place) = {
            let state = object.state.borrow();
            (state.phase == Phase::Open, state.in_place && state.pending.is_empty())
        };
        let dirty = self.cache.borrow().is_dirty(object.key);
        if !open || !in_place || dirty || is_logged(disk, &object) {
            return Err(Errno::EAGAIN);
        }
        let (from, to) = (object.file(), DiskFile::Quarantined(object.id));
        disk.simple(|| DiskOp::Rename { from, to }).await.map_err(errno)?;
        disk.sync_names().await.map_err(errno)?;
        self.let_go(&object);
        // Until then the index has what is not there; who opens it finds where it is.
        disk.index.note_removed(object.id);
        disk.save_index().await.map_err(errno)?;
        let length = object.state.borrow().head.length;
        Ok(ObjectReply { verifier: self.verifier, length, ..ObjectReply::default() })
    }

    /// RESTORE.
    pub async fn restore(self: &Rc<Self>, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let disk = self.disk_at(ask.disk)?;
        disk.check()?;
        let object = self.object(ask).await?;
        // A removal that found nothing may be in the log: a replay would remove what is put back.
        if disk.journal.size().1 > 0 {
            self.checkpoint(disk).await?;
        }
        let _gates = object.gates().await;
        let taken = object.state.borrow().exists;
        if taken {
            return Err(Errno::EEXIST);
        }
        let (from, to) = (DiskFile::Quarantined(ask.object), object.file());
        self.record_quarantined(disk, ask.object).await?;
        disk.simple(|| DiskOp::Rename { from, to }).await.map_err(|error| match error {
            DiskError::NotFound => Errno::ENOENT,
            other => errno(other),
        })?;
        disk.sync_names().await.map_err(errno)?;
        // A request for it from now on opens what is there.
        object.state.borrow_mut().phase = Phase::Removed;
        self.objects.borrow_mut().dig_out(&object);
        object.moved.notify_all();
        Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() })
    }

    /// Has the index know an object that comes back, before it is there.
    async fn record_quarantined(&self, disk: &Disk, object: ObjectId) -> Result<(), Errno> {
        let read = disk.read(DiskFile::Quarantined(object), 0, HEADER_BYTES as usize).await;
        let (bytes, found) = read.map_err(errno)?;
        if !found {
            return Err(Errno::ENOENT);
        }
        let header = Header::read(object, &bytes).map_err(|why| self.damage(disk, object, &why))?;
        let header = header.ok_or_else(|| self.damage(disk, object, &"it has no header"))?;
        disk.index.note(&header);
        disk.save_index().await.map_err(errno)
    }

    /// PURGE.
    pub async fn purge(&self, ask: &ObjectRequest) -> Result<ObjectReply, Errno> {
        let disk = self.disk_at(ask.disk)?;
        disk.check()?;
        let file = DiskFile::Quarantined(ask.object);
        disk.simple(|| DiskOp::Remove { file }).await.map_err(errno)?;
        disk.sync_names().await.map_err(errno)?;
        Ok(ObjectReply { verifier: self.verifier, ..ObjectReply::default() })
    }
}

/// Whether the log may have something of the object: a checkpoint that failed left it, and may have been done with the
/// object.
fn is_logged(disk: &Disk, object: &Object) -> bool {
    disk.is_logged(object.id) || disk.checkpoint_error.get().is_some()
}
