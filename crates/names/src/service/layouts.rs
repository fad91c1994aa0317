//! Changes of layout as the service makes them: what waits for objects between the steps of
//! [`blockmap`](crate::blockmap).

use super::Service;
use super::dispatch::{Encoded, of_object};
use crate::blockmap::with_homes;
use crate::objects::{Objects, ObjectsOf};
use crate::permissions::Who;
use crate::protocol::Outcome;
use crate::transaction::{CallName, Transaction};
use std::rc::Rc;
use stripe::protocol::ObjectReply;
use wire::{Errno, FileId, Fragment, Home, Layout, Placement};

/// The caller of a change, and its call.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub client: u64,
    pub call: CallName,
    pub who: &'a Who<'a>,
}

impl<O: Objects> Service<O> {
    /// Tells the striping client the file's block map as it is, under this epoch.
    pub(super) fn teach_map(&self, file: FileId, layout: &Layout) -> Result<(), Errno> {
        if layout.placement == Placement::Formula {
            return Ok(());
        }
        let fragments = self.manager.borrow().read(0, |t| t.map_of(file, layout))?;
        self.objects.learn_map(file, layout.epoch, &fragments);
        Ok(())
    }

    /// The block map, as it is known.
    pub(super) fn fragments_of(&self, objects: &ObjectsOf) -> Result<Vec<Fragment>, Errno> {
        self.manager.borrow().read(0, |t| t.map_of(objects.file, &objects.layout))
    }

    /// Objects that all have the layout's epoch are told it, with the block map, on stable storage: whatever becomes of
    /// this store, they know where the bytes are.
    pub(super) async fn describe_layout(
        &self,
        objects: &ObjectsOf,
        fragments: &[Fragment],
    ) -> Result<(), Errno> {
        let described =
            |t: &Transaction<'_>| t.described_as(objects.file, &objects.layout, fragments);
        let description = self.manager.borrow().read(0, described)?;
        self.objects.describe_all(objects, &description).await
    }

    /// The next epoch of the file's objects, on stable storage.
    async fn fence(self: &Rc<Self>, who: &Who<'_>, file: FileId) -> Result<u32, Errno> {
        let epoch = self.commit(|t| t.fence(who, file)).await?;
        // No object may know an epoch that a power cut takes back.
        self.sync().await?;
        Ok(epoch)
    }

    /// The answer to a change of layout, which `change` commits. It is on stable storage: what clients commit to the
    /// objects by a layout that a power cut takes back is nowhere.
    async fn commit_layout(
        self: &Rc<Self>,
        asker: Asker<'_>,
        file: FileId,
        change: impl FnOnce(&mut Transaction<'_>) -> Result<(), Errno>,
    ) -> Encoded {
        self.admit().await?;
        let once = self.manager.borrow_mut().change_once(
            self.origin(asker.client),
            asker.call,
            |transaction| {
                change(transaction)?;
                transaction.get_attr(file)
            },
            |entry| Outcome::Entry(entry).encode(),
        )?;
        self.told_synced(once).await?
    }

    /// Data behind the present end goes to columns on these disks from now on.
    pub(super) async fn add_columns(
        self: &Rc<Self>,
        asker: Asker<'_>,
        file: FileId,
        homes: &[Home],
    ) -> Encoded {
        self.finish_truncation(file).await?;
        if self.is_restored(file) {
            return Err(Errno::EBUSY);
        }
        let before = self.objects_of(file)?.ok_or(Errno::ESTALE)?;
        let wider = with_homes(&before.layout, before.layout.epoch, homes)?;
        self.check_empty(&ObjectsOf { layout: wider, ..before }, before.layout.width()).await?;
        let epoch = self.fence(asker.who, file).await?;
        let layout = with_homes(&before.layout, epoch, homes)?;
        self.set_layout(&ObjectsOf { layout, ..before }).await?;
        // No client writes any more: this is where the file ends.
        let fenced = ObjectsOf { layout: before.layout.with_epoch(epoch), ..before };
        self.teach_map(file, &fenced.layout)?;
        let size = self.objects.totals(&fenced).await?.size;
        let map = self.manager.borrow().read(0, |t| t.grown_map(file, &layout, size))?;
        self.describe_layout(&ObjectsOf { layout, ..before }, &map).await?;
        self.commit_layout(asker, file, |t| t.set_columns(file, layout, size)).await
    }

    /// EBUSY when bytes are in columns that the file is to get: they were given up with an earlier layout, and until
    /// they are set aside they would be the file's.
    async fn check_empty(&self, wider: &ObjectsOf, from: u16) -> Result<(), Errno> {
        let told = self.objects.columns(wider).await;
        let has_bytes = |told: &Result<_, Errno>| match told {
            Ok(ObjectReply { length, .. }) => *length > 0,
            Err(errno) => *errno != Errno::ENOENT,
        };
        match told[from.into()..].iter().any(has_bytes) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        }
    }

    /// Moves the blocks of one column to another disk, of another server or the same one. Most of them are copied while
    /// the file is read and written; blocks written meanwhile are copied again when no client can write.
    pub(super) async fn move_column(
        self: &Rc<Self>,
        asker: Asker<'_>,
        file: FileId,
        column: u16,
        home: Home,
        rate: u64,
    ) -> Encoded {
        self.compare(file).await?;
        // A truncation under way has its generation already, but not on every object: a copy would have it too early.
        self.alone(file, self.finish_truncation(file)).await?;
        let before = self.objects_of(file)?.ok_or(Errno::ESTALE)?;
        before.layout.with_home(0, column, home).ok_or(Errno::EINVAL)?;
        if before.layout.home(column) == home {
            return self.commit_layout(asker, file, |_| Ok(())).await;
        }
        let _moving = self.hold_layout(file).ok_or(Errno::EBUSY)?;
        let epoch = self.fence(asker.who, file).await?;
        let layout = before.layout.with_home(epoch, column, home).ok_or(Errno::EINVAL)?;
        let there = ObjectsOf { layout, ..before };
        self.objects.copy_column(&before, &there, column, rate, false).await?;
        self.alone(file, self.end_move(asker, before, layout, column)).await
    }

    /// Begins columns, a bit for each, anew on other disks, without what they had: of a file of an import, whose
    /// importer has raised the truncate generation before, and brings the bytes again. Their old disks are not asked.
    pub(super) async fn replace_columns(
        self: &Rc<Self>,
        asker: Asker<'_>,
        file: FileId,
        columns: u32,
    ) -> Encoded {
        let entry = self.manager.borrow().read(0, |t| t.get_attr(file))?;
        if !asker.call.imports || entry.attr.import().is_none() {
            return Err(Errno::EROFS);
        }
        let before = self.objects_of(file)?.ok_or(Errno::ESTALE)?;
        let _moving = self.hold_layout(file).ok_or(Errno::EBUSY)?;
        let epoch = self.fence(asker.who, file).await?;
        let replaced = |t: &Transaction<'_>| t.replaced(file, &before.layout, epoch, columns);
        let layout = self.manager.borrow().read(0, replaced)?;
        let there = ObjectsOf { layout, ..before };
        self.set_layout(&there).await?;
        if layout.placement == Placement::Map {
            self.describe_layout(&there, &self.fragments_of(&before)?).await?;
        }
        self.commit_layout(asker, file, |t| t.set_layout(file, layout)).await
    }

    /// Every object knows the layout's epoch.
    pub(super) async fn set_layout(&self, objects: &ObjectsOf) -> Result<(), Errno> {
        self.objects.set_layout(objects).await.map_err(of_object)
    }

    /// No column of the file begins to move until this is dropped; `None` when one is on its way.
    pub(super) fn hold_layout(self: &Rc<Self>, file: FileId) -> Option<Moving<O>> {
        let free = self.moving.borrow_mut().insert(file);
        free.then(|| Moving { service: self.clone(), file })
    }

    async fn end_move(
        self: &Rc<Self>,
        asker: Asker<'_>,
        before: ObjectsOf,
        layout: Layout,
        column: u16,
    ) -> Encoded {
        let file = before.file;
        self.finish_truncation(file).await?;
        let now = self.objects_of(file)?.ok_or(Errno::ESTALE)?;
        if now.layout != before.layout {
            return Err(Errno::EAGAIN);
        }
        let fenced = ObjectsOf { layout: now.layout.with_epoch(layout.epoch), ..now };
        self.objects.leave_column(&fenced, column).await?;
        let there = ObjectsOf { layout, ..now };
        self.objects.copy_column(&fenced, &there, column, 0, true).await?;
        if layout.placement == Placement::Map {
            let fragments = self.fragments_of(&now)?;
            self.describe_layout(&there, &fragments).await?;
        }
        let reply = self.commit_layout(asker, file, |t| t.set_layout(file, layout)).await?;
        // The object left there is unclaimed, and goes into quarantine; until then it refuses clients that come by the
        // old layout.
        let _ = self.objects.vacate_column(&fenced, column).await;
        Ok(reply)
    }

    /// Makes a file whole whose change of layout was given up in the middle: the old placement, an epoch that no object
    /// has seen.
    pub(super) async fn heal(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        if !self.is_given_up(file) {
            return Ok(());
        }
        self.alone(file, self.heal_alone(file)).await
    }

    /// As [`heal`](Service::heal), for who is alone with the file: one who waited for that may come after a move that
    /// failed.
    pub(super) async fn heal_alone(self: &Rc<Self>, file: FileId) -> Result<(), Errno> {
        if !self.is_given_up(file) {
            return Ok(());
        }
        let before = self.objects_of(file)?.ok_or(Errno::ESTALE)?;
        let epoch = self.fence(&Who::ROOT, file).await?;
        let layout = before.layout.with_epoch(epoch);
        let healed = ObjectsOf { layout, ..before };
        self.set_layout(&healed).await?;
        // They may have been told the one that was given up.
        self.describe_layout(&healed, &self.fragments_of(&healed)?).await?;
        self.commit(|t| t.set_layout(file, layout)).await
    }

    /// Whether a change of the file's layout was given up in the middle.
    fn is_given_up(&self, file: FileId) -> bool {
        let fenced = self.manager.borrow().read(0, |t| t.is_fenced(file));
        fenced.unwrap_or(false) && !self.moving.borrow().contains(&file)
    }
}

/// A file with a column on its way to another disk, or none of whose columns may begin to move.
pub(super) struct Moving<O> {
    service: Rc<Service<O>>,
    file: FileId,
}

impl<O> Drop for Moving<O> {
    fn drop(&mut self) {
        self.service.moving.borrow_mut().remove(&self.file);
    }
}
