//! Flush, fsync, release, drain: the promises of the durability contract.
//!
//! - *close* (flush): every byte is at its servers. The copy stays here until a commit, at the latest
//!   [`KEEP_AGE`](crate::limits::KEEP_AGE) later. The write session goes on until the handle's *release*: a flush is
//!   the close of one descriptor, and others, maps and children of a fork may have the file open, without a name too.
//!   Until then the manager knows that its length is a hint, and each opener asks the objects.
//! - *fsync*: every byte is on stable storage, and so is the name if this mount changed it. Changes before that a power
//!   cut took are told once, by an fsync of each file and directory that they may concern.
//!
//! A write that could not be kept is reported by the next of these, once for each open handle.

use crate::Files;
use crate::flags::writes;
use crate::inode::{File, OwnChanges};
use crate::limits::{LEAVE_SPAN, LOSSES_MAX};
use crate::table::Open;
use crate::written::Mark;
use node::Bug;
use node::rings::{FileReply, Handle};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use wire::{Errno, FileId};

impl Files {
    /// close(2), for each descriptor that is closed.
    pub(crate) async fn flush(&self, handle: Handle, owner: u64) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        let result = if writes(open.flags) { self.close_writes(&open).await } else { Ok(()) };
        self.unlock_owner(&open.file, owner, false).await;
        result.map(|()| FileReply::Done)
    }

    async fn close_writes(&self, open: &Open) -> Result<(), Errno> {
        match self.cx.has_bug(Bug::CloseNotWaitedFor) {
            false => self.send_all(&open.file).await,
            true => drop(open.file.state.borrow_mut().written.want_sent()),
        }
        self.tell(open)
    }

    /// Waits until the servers have all that was written before.
    pub(crate) async fn send_all(&self, file: &Rc<File>) {
        let mark = file.state.borrow_mut().written.want_sent();
        self.wait_for(file, |file| file.state.borrow().written.is_sent(mark)).await;
    }

    /// Waits until all that was written before is on stable storage.
    pub(crate) async fn keep_all(&self, file: &Rc<File>) {
        let mark: Mark = file.state.borrow_mut().written.want_kept();
        if self.cx.has_bug(Bug::FsyncNotWaitedFor) {
            return self.enqueue(file);
        }
        self.wait_for(file, |file| file.state.borrow().written.is_kept(mark)).await;
    }

    async fn wait_for(&self, file: &Rc<File>, done: impl Fn(&File) -> bool) {
        if !done(file) {
            self.enqueue(file);
        }
        while !done(file) {
            file.changed.wait().await;
        }
    }

    /// fsync(2).
    pub(crate) async fn fsync(&self, handle: Handle) -> Result<FileReply, Errno> {
        let open = self.table.borrow().handle(handle)?;
        self.keep(&open).await?;
        Ok(FileReply::Done)
    }

    pub(crate) async fn keep(&self, open: &Open) -> Result<(), Errno> {
        self.keep_all(&open.file).await;
        self.tell(open)?;
        self.tell_loss(&open.file).await?;
        let known = {
            let mut state = open.file.state.borrow_mut();
            state.note_incarnation(self.names.incarnation(open.file.id));
            state.names_mark <= self.synced.get() && !state.lost_session
        };
        if known || self.cx.has_bug(Bug::NamesNotSynced) {
            return Ok(());
        }
        self.sync_names().await?;
        self.tell_loss(&open.file).await?;
        // A manager that lost its power before the sync may not know the file any more: ESTALE.
        self.refresh(&open.file).await?;
        if !open.file.state.borrow().lost_session {
            return Ok(());
        }
        self.wait_for_turn(&open.file).await;
        // The manager counts write sessions: who gives up here leaves none half begun.
        let (files, file) = (self.clone(), open.file.clone());
        self.to_the_end(async move { files.tell_again(&file).await }).await
    }

    /// With one more session, once that is synced, the manager asks the objects for the length.
    async fn tell_again(&self, file: &Rc<File>) -> Result<(), Errno> {
        self.tell_lost_session(file).await?;
        let synced = self.sync_names().await;
        self.end_spare_sessions(file).await;
        synced
    }

    /// The failure of the file that this handle has not told of.
    fn tell(&self, open: &Open) -> Result<(), Errno> {
        let failure = open.file.state.borrow().failure;
        let told = failure.since(open.reported.replace(failure.count));
        open.file.state.borrow_mut().failure.told = failure.count;
        if self.cx.has_bug(Bug::WriteErrorSwallowed) { Ok(()) } else { told }
    }

    /// fsync(2) of a directory.
    pub(crate) async fn fsync_directory(&self, id: FileId) -> Result<FileReply, Errno> {
        let directory = self.file(id);
        self.sync_names().await?;
        self.tell_loss(&directory).await?;
        Ok(FileReply::Done)
    }

    /// The name space as this mount changed it is on stable storage, but for what a power cut took before: whose
    /// changes these were is told by [`tell_loss`](Files::tell_loss).
    async fn sync_names(&self) -> Result<(), Errno> {
        let changes = self.changes.get();
        match self.names.sync().await {
            Err(Errno::ESTALE) => self.note_loss(changes),
            result => result?,
        }
        self.note_restart(changes);
        self.synced.set(self.synced.get().max(changes));
        Ok(())
    }

    /// Starts a sync unless one that was started so is under way. A failure is met again by the next one.
    pub(crate) fn sync_names_soon(&self) {
        if !self.syncing.replace(true) {
            let files = self.clone();
            self.cx.spawn("files: sync names", async move {
                let _ = files.sync_names().await;
                files.syncing.set(false);
            });
        }
    }

    /// One of the changes since the last sync is lost; which one is unknown.
    fn note_loss(&self, changes: u64) {
        note_range(&self.losses, self.synced.get() + 1..changes + 1);
    }

    /// Notes changes between two syncs when a manager was started anew between these: write sessions may be lost, which
    /// no sync tells of.
    fn note_restart(&self, changes: u64) {
        let incarnations = self.names.incarnations();
        if self.incarnations.replace(incarnations) != incarnations {
            note_range(&self.restarts, self.synced.get() + 1..changes + 1);
        }
    }

    /// Whether a manager was started anew between this change and the sync that covered it.
    pub(crate) fn spans_restart(&self, change: u64) -> bool {
        self.restarts.borrow().iter().any(|range| range.contains(&change))
    }

    /// An error, once, when a power cut may have taken this mount's change of the file's name or attributes, or of a
    /// name in the directory: ESTALE when the file itself is gone, else EIO.
    async fn tell_loss(&self, file: &Rc<File>) -> Result<(), Errno> {
        let own = file.state.borrow().own;
        if !self.is_lost(own) {
            return Ok(());
        }
        self.refresh(file).await?;
        let mut state = file.state.borrow_mut();
        let (last, synced) = (state.names_mark, self.synced.get());
        // Changes after the loss are told when they are lost too.
        state.own = OwnChanges { first: last.min(synced + 1), last };
        if self.is_lost(state.own) {
            state.own = OwnChanges::default();
        }
        Err(Errno::EIO)
    }

    /// Whether one of these changes may be one of those of which some are lost.
    pub(crate) fn is_lost(&self, own: OwnChanges) -> bool {
        self.losses.borrow().iter().any(|lost| own.meets(lost))
    }

    /// The last descriptor of a handle is closed.
    pub(crate) async fn release(
        &self,
        handle: Handle,
        owner: Option<u64>,
    ) -> Result<FileReply, Errno> {
        let open = self.table.borrow_mut().close(handle)?;
        let file = &open.file;
        if let Some(owner) = owner {
            self.unlock_owner(file, owner, true).await;
        }
        self.unlock_handle(file, handle).await;
        let result = match writes(open.flags) {
            true => self.release_writer(&open).await,
            false => self.release_reader(file).await,
        };
        {
            let mut state = file.state.borrow_mut();
            state.handles -= 1;
            if state.handles == 0 {
                state.chunks.clear();
                state.plain = false;
            }
        }
        self.note_left(file);
        result.map(|()| FileReply::Done)
    }

    async fn release_writer(&self, open: &Open) -> Result<(), Errno> {
        self.send_all(&open.file).await;
        let left = {
            let mut state = open.file.state.borrow_mut();
            state.writers -= 1;
            state.writers
        };
        if left == 0 { self.end_sessions(&open.file).await } else { Ok(()) }
    }

    pub(crate) async fn release_reader(&self, file: &File) -> Result<(), Errno> {
        self.names.close(file.id, None).await?;
        file.state.borrow_mut().readers -= 1;
        Ok(())
    }

    /// A session that was begun only to send again, or that outlived its writers, ends when nothing is to be sent.
    pub(crate) async fn end_spare_sessions(&self, file: &Rc<File>) {
        let spare = {
            let state = file.state.borrow();
            state.writers == 0 && state.sessions > 0 && !state.busy && state.is_sent()
        };
        if spare {
            // The manager takes the length from the objects when it hears nothing: no need to insist.
            let _ = self.end_sessions(file).await;
            self.note_left(file);
        }
    }

    /// Everything written is on stable storage and nothing is open or locked any more. No new operation may come. An
    /// error when something could not be kept that no application has been told of, or will be.
    pub async fn drain(&self) -> Result<(), Errno> {
        let mut result = Ok(());
        for file in self.files_with_written() {
            let before = file.state.borrow().failure.count;
            self.keep_all(&file).await;
            let failure = file.state.borrow().failure;
            result = result.and(failure.since(before));
        }
        let handles = self.table.borrow().handles();
        for handle in handles {
            let Ok(open) = self.table.borrow().handle(handle) else { continue }; // closed meanwhile
            result = result.and(self.tell(&open));
            result = result.and(self.release(handle, None).await.map(drop));
        }
        if self.has_unsynced_names() {
            result = result.and(self.sync_names().await);
        }
        let files = self.table.borrow().files();
        for file in files {
            result = result.and(self.tell_loss(&file).await);
        }
        if result.is_ok() && self.names.holds_something() {
            // A manager that is away gives to others what this client has locked when its lease ends.
            let _ = self.cx.with_deadline(LEAVE_SPAN, self.names.leave()).await;
        }
        result
    }
}

fn note_range(ranges: &RefCell<VecDeque<Range<u64>>>, range: Range<u64>) {
    if range.is_empty() {
        return; // a later sync noted it before
    }
    let mut ranges = ranges.borrow_mut();
    ranges.push_back(range);
    if ranges.len() > LOSSES_MAX {
        ranges.pop_front();
    }
}
