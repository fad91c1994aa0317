//! Background work of the manager: syncs and checkpoints, leases, and bringing changes to the objects.

use super::Service;
use crate::keys;
use crate::limits::{
    BACKGROUND_BATCH, REMOVALS_AT_ONCE, REMOVALS_GATHERED, RETRY_INTERVAL, SCARCE_PAUSE,
    SYNC_INTERVAL,
};
use crate::objects::{Objects, ObjectsOf};
use crate::record::Removed;
use crate::sessions::Final;
use node::limits::scrub_first;
use node::rings::{MetaOp, MetaRoom, MetaWork, StoreId};
use std::rc::Rc;
use store::Checkpoint;
use wire::{Errno, FileId};

/// A checkpoint as work for the world.
struct Work(Checkpoint);

impl MetaWork for Work {
    fn run(self: Box<Self>) -> Result<(), String> {
        self.0.run()
    }
}

pub(super) fn spawn<O: Objects>(service: &Rc<Service<O>>) {
    let cx = &service.cx;
    let (syncs, checkpoints, works) = (service.clone(), service.clone(), service.clone());
    cx.spawn("names sync", async move {
        loop {
            syncs.cx.sleep(SYNC_INTERVAL).await;
            // A failure is in the store's state, and every caller of a sync is told.
            let _ = syncs.sync().await;
            if syncs.cx.meta_room() > MetaRoom::Plenty {
                // It is made again as soon as there is room for it.
                let _ = syncs.cx.meta(StoreId::Names, MetaOp::Room).await;
            }
        }
    });
    cx.spawn("names checkpoint", async move {
        loop {
            checkpoints.drop_logs().await;
            let full = checkpoints.full.wait();
            node::race(checkpoints.cx.sleep(SYNC_INTERVAL), full).await;
            checkpoints.checkpoint().await;
            checkpoints.let_logs_go().await;
            checkpoints.end_backups();
        }
    });
    let scrubs = service.clone();
    cx.spawn("names scrub", async move {
        let Some(period) = scrubs.scrub else { return };
        scrubs.cx.sleep(scrub_first(period)).await;
        loop {
            // Damage is in the store's state.
            let pause = scrubs.manager.borrow_mut().store().scrub_on(period);
            scrubs.cx.sleep(pause).await;
        }
    });
    cx.spawn("names upkeep", async move {
        loop {
            let work = works.work.wait();
            if works.is_refused() {
                return;
            }
            works.keep_up().await;
            node::race(works.cx.sleep(SYNC_INTERVAL), work).await;
        }
    });
    let removals = service.clone();
    cx.spawn("names removals", async move {
        loop {
            let work = removals.work.wait();
            while !removals.is_refused() && removals.remove_some().await {
                // Removals come in numbers: together they cost the servers little.
                removals.cx.sleep(REMOVALS_GATHERED).await;
            }
            if removals.is_refused() {
                return;
            }
            node::race(removals.cx.sleep(SYNC_INTERVAL), work).await;
        }
    });
}

/// Background work on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Chore {
    Settle,
    Remove,
    Truncate,
}

impl<O: Objects> Service<O> {
    pub(super) async fn checkpoint(&self) {
        let Some(checkpoint) = self.manager.borrow_mut().store().freeze() else { return };
        let done = self.cx.meta(StoreId::Names, MetaOp::Checkpoint(Box::new(Work(checkpoint))));
        let result = done.await;
        self.manager.borrow_mut().store().checkpoint_done(result.map_err(|error| error.reason));
        self.progress.notify_all();
    }

    async fn drop_logs(&self) {
        loop {
            let dropped = self.manager.borrow_mut().store().poll_drop();
            let Some(log) = dropped else { return };
            // A log that cannot be removed is found and covered again at the next start.
            let _ = self.cx.meta(StoreId::Names, MetaOp::DropLog { log }).await;
        }
    }

    /// Drops the logs that a checkpoint covers when the disk has no room for longer ones. A record behind the
    /// checkpoint on stable storage allows it, which else comes with the next changes and the next sync.
    async fn let_logs_go(self: &Rc<Self>) {
        if self.cx.meta_room() < MetaRoom::Scarce {
            return;
        }
        let changed = {
            let mut manager = self.manager.borrow_mut();
            let admitted = manager.store().admit().map_err(|_| Errno::EIO);
            admitted.and_then(|()| manager.change(self.origin(0), |t| t.repeat(keys::uptime())))
        };
        if let Ok(((), append)) = changed {
            self.note(self.post(append).await);
        }
        // A failure is in the store's state.
        let _ = self.sync().await;
        self.drop_logs().await;
        if self.cx.meta_room() == MetaRoom::Scarce {
            self.cx.sleep(SCARCE_PAUSE).await;
        }
        self.progress.notify_all();
    }

    async fn keep_up(self: &Rc<Self>) {
        self.expire_clients().await;
        self.end_grace().await;
        let now = self.cx.now();
        self.retry_at.borrow_mut().retain(|_, at| *at > now);
        while self.settle_some().await || self.truncate_some().await {}
        self.work_seen.set(self.upkeep_left());
    }

    async fn expire_clients(self: &Rc<Self>) {
        let expired = self.manager.borrow().expired(self.cx.now());
        for client in expired {
            // A failure is retried in the next round: the client stays expired.
            let _ = self.expire(client).await;
        }
    }

    /// The client holds nothing any more.
    pub(super) async fn expire(self: &Rc<Self>, client: u64) -> Result<(), Errno> {
        let mut done = false;
        while !done {
            self.admit().await?;
            let (all, append) = self.manager.borrow_mut().expire(client, self.origin(0))?;
            done = all;
            self.post(append).await?;
        }
        Ok(())
    }

    /// When all clients of the last incarnation have reclaimed or are dead: locks are given, unopened orphans go.
    async fn end_grace(self: &Rc<Self>) {
        // A file without a name in a backup may have been given one since.
        let is_frozen = self.manager.borrow().is_frozen();
        if self.manager.borrow().in_grace() || self.swept.get() || is_frozen {
            return;
        }
        self.swept.set(self.sweep_orphans().await.is_ok());
    }

    async fn sweep_orphans(self: &Rc<Self>) -> Result<(), Errno> {
        while !self.commit(|t| t.sweep_orphans()).await? {}
        Ok(())
    }

    /// Files of `all` that are not waiting for a retry, at most `count`.
    fn due<T>(
        &self,
        chore: Chore,
        all: impl Iterator<Item = (FileId, T)>,
        count: usize,
    ) -> Vec<(FileId, T)> {
        let retry_at = self.retry_at.borrow();
        all.filter(|(file, _)| !retry_at.contains_key(&(chore, *file))).take(count).collect()
    }

    /// Notes failed files, to be retried later.
    fn note_failures(
        &self,
        chore: Chore,
        results: impl Iterator<Item = (FileId, Result<(), Errno>)>,
    ) {
        let again = self.cx.now() + RETRY_INTERVAL;
        let failed = results.filter(|(_, result)| result.is_err());
        self.retry_at.borrow_mut().extend(failed.map(|(file, _)| ((chore, file), again)));
    }

    /// Does the work that is due, and notes failures, to be tried again later; whether anything succeeded.
    async fn do_due<T>(
        &self,
        chore: Chore,
        due: Vec<(FileId, T)>,
        work: impl AsyncFn(FileId, T) -> Result<(), Errno>,
    ) -> bool {
        let each = due.into_iter().map(async |(file, more)| (file, work(file, more).await));
        let results = node::all(each).await;
        self.note_failures(chore, results.iter().copied());
        results.iter().any(|(_, result)| result.is_ok())
    }

    async fn settle_some(self: &Rc<Self>) -> bool {
        let due = {
            let manager = self.manager.borrow();
            self.due(Chore::Settle, manager.opens().settling().iter().copied(), BACKGROUND_BATCH)
        };
        self.do_due(Chore::Settle, due, |file, client| self.settle(file, client)).await
    }

    async fn settle(self: &Rc<Self>, file: FileId, client: u64) -> Result<(), Errno> {
        // Replies during a truncation may be from neither before nor after it.
        let truncating = || self.manager.borrow().truncating().contains_key(&file);
        if truncating() {
            return Err(Errno::EAGAIN);
        }
        // Nor may what was asked before a writer ended: it has since told its client that what it wrote is there.
        let last_end = || self.manager.borrow().opens().last_end(file);
        let (before, end) = (self.objects_of(file)?, last_end());
        let totals = match before {
            Some(objects) => self.objects.totals(&objects).await?,
            None => Final::default(),
        };
        self.admit().await?;
        if truncating() || self.objects_of(file)? != before || last_end() != end {
            return Err(Errno::EAGAIN);
        }
        let (_, append) = self
            .manager
            .borrow_mut()
            .change(self.origin(0), |transaction| transaction.settle(file, client, totals))?;
        self.post(append).await.map(drop)
    }

    /// Removes the objects of files that are gone, of many at once; whether anything was done.
    async fn remove_some(self: &Rc<Self>) -> bool {
        let due = {
            let manager = self.manager.borrow();
            let removing = manager.removing().iter().map(|file| (*file, ()));
            self.due(Chore::Remove, removing, REMOVALS_AT_ONCE)
        };
        let due: Vec<FileId> = due.into_iter().map(|(file, ())| file).collect();
        if due.is_empty() {
            return false;
        }
        let removed = self.remove_objects(&due).await;
        self.note_failures(Chore::Remove, due.iter().copied().zip(removed.iter().copied()));
        let gone = due.into_iter().zip(removed).filter(|(_, removed)| removed.is_ok());
        let gone: Vec<FileId> = gone.map(|(file, _)| file).collect();
        // A removal that is not noted is repeated.
        !gone.is_empty() && self.note_removed(gone).await.is_ok()
    }

    async fn remove_objects(&self, files: &[FileId]) -> Vec<Result<(), Errno>> {
        let (mut results, mut all) = (Vec::new(), Vec::new());
        for file in files {
            let removed = self.manager.borrow().read(0, |t| t.removed(*file));
            results.push(removed.as_ref().map(|_| ()).map_err(|errno| *errno));
            if let Ok(Some(Removed { layout, truncations })) = removed {
                all.push((results.len() - 1, ObjectsOf { file: *file, layout, truncations }));
            }
        }
        if all.is_empty() {
            return results;
        }
        // A power cut that takes the removal of a name back must find the bytes too.
        if let Err(errno) = self.sync().await {
            return vec![Err(errno); files.len()];
        }
        let objects: Vec<ObjectsOf> = all.iter().map(|(_, objects)| *objects).collect();
        for ((at, _), removed) in all.iter().zip(self.objects.remove(&objects).await) {
            results[*at] = removed;
        }
        results
    }

    /// Nothing is left to be removed of these files, but the rest of block maps that one batch did not take.
    async fn note_removed(self: &Rc<Self>, mut files: Vec<FileId>) -> Result<(), Errno> {
        while !files.is_empty() {
            let done = self.commit(|t| t.all_removed(&files, crate::limits::FRAGMENTS_MAX)).await?;
            files.drain(..done);
        }
        Ok(())
    }

    async fn truncate_some(self: &Rc<Self>) -> bool {
        let idle = |(file, _): &(&FileId, &u64)| !self.busy.borrow().contains(file);
        let due = {
            let manager = self.manager.borrow();
            let truncating = manager.truncating().iter().filter(idle);
            let truncating = truncating.map(|(file, size)| (*file, *size));
            self.due(Chore::Truncate, truncating, BACKGROUND_BATCH)
        };
        let finish = |file, _| self.alone(file, self.finish_truncation(file));
        self.do_due(Chore::Truncate, due, finish).await
    }
}
