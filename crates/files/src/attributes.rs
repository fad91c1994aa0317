//! Attributes: who is asked for them, how they are changed, and truncation.

use crate::Files;
use crate::flags::writes;
use crate::inode::{File, Local, State};
use crate::limits::AHEAD_AGE_MAX;
use names::{Client, Entry, Who, without_set_id};
use node::rings::{FileReply, Handle};
use std::rc::Rc;
use wire::{Attr, Errno, FileId, SetAttr, Time};

/// Extended attribute with the privileges of a program, which a write takes away.
const CAPABILITY: &[u8] = b"security.capability";

impl Files {
    /// The attributes of a file, from memory when they are young enough: of an open one as young as its bytes need be.
    pub(crate) async fn current_attr(&self, id: FileId, opened: bool) -> Result<Attr, Errno> {
        let file = self.file(id);
        if let Some(attr) = self.unnamed_attr(id) {
            return Ok(attr);
        }
        let age_max = self.config.attribute_age_max;
        let age_max = if opened { age_max.max(AHEAD_AGE_MAX) } else { age_max };
        if !self.is_younger(&file, age_max) {
            match self.refresh(&file).await {
                Err(Errno::ESTALE) => return self.removed_elsewhere(&file),
                result => result?,
            }
        }
        Ok(self.attr(&file))
    }

    pub(crate) fn attr(&self, file: &File) -> Attr {
        file.state.borrow().attr()
    }

    /// Attributes of what the manager just answered with.
    pub(crate) async fn present(&self, entry: Entry, asked: Time) -> Result<Attr, Errno> {
        let file = self.learn(entry, asked);
        self.ask_objects(&file).await?;
        Ok(self.attr(&file))
    }

    /// Changes attributes. `handle` is what the application changes them through, if anything.
    pub(crate) async fn set_attr(
        &self,
        names: &Client,
        who: &Who<'_>,
        (id, handle): (FileId, Option<Handle>),
        changes: SetAttr,
    ) -> Result<FileReply, Errno> {
        if self.is_unnamed(id) {
            return self.change_unnamed(who, id, &changes).map(FileReply::Attr);
        }
        let file = self.file(id);
        let open = handle.and_then(|handle| self.table.borrow().handle(handle).ok());
        let opened = open.is_some_and(|open| writes(open.flags));
        if changes.size.is_some() {
            self.truncate(names, who, &file, changes, opened).await?;
        } else {
            if changes.mtime.is_some() {
                // Bytes that reach the servers later would move the time again.
                self.send_all(&file).await;
            }
            self.change(names, who, &file, changes, opened).await?;
        }
        Ok(FileReply::Attr(self.changed_attr(&file).await))
    }

    /// Attributes after a change that the manager has made. It is no failure that the objects do not say how long the
    /// file is while others write: what is known is told, and who asks next asks them again.
    pub(crate) async fn changed_attr(&self, file: &Rc<File>) -> Attr {
        let _ = self.ask_objects(file).await;
        self.attr(file)
    }

    /// Changes attributes with the length among them: what is written beyond it and not yet sent is forgotten.
    pub(crate) async fn truncate(
        &self,
        names: &Client,
        who: &Who<'_>,
        file: &Rc<File>,
        changes: SetAttr,
        opened: bool,
    ) -> Result<(), Errno> {
        if opened {
            self.begin_session(file).await?;
        }
        self.hold_writes(file).await;
        let result = self.change(names, who, file, changes, opened).await;
        self.resume_writes(file);
        result
    }

    /// Makes the file at least `size` bytes long. The objects do that: what is known here of its length may be older
    /// than what another mount has written, and a truncation would cut that off.
    pub(crate) async fn extend(&self, file: &Rc<File>, size: u64) -> Result<(), Errno> {
        self.begin_session(file).await?;
        self.hold_writes(file).await;
        let result = self.persist(file, async |it| self.stripe.grow(&it, size).await).await;
        if result.is_ok() {
            self.with_written(file, |state| state.note_write(0, size, self.cx.wall()));
        }
        self.resume_writes(file);
        result
    }

    /// Takes set-id bits away from a file that is known to have some, before what is written counts.
    pub(crate) async fn clear_set_id(&self, file: &Rc<File>) -> Result<(), Errno> {
        let mode = self.attr(file).mode;
        if without_set_id(mode) == mode {
            return Ok(());
        }
        let changes = SetAttr { clear_set_id: true, ..SetAttr::default() };
        self.change(&self.names, &Who::ROOT, file, changes, true).await
    }

    /// The caller holds writes back where the length changes.
    async fn change(
        &self,
        names: &Client,
        who: &Who<'_>,
        file: &Rc<File>,
        changes: SetAttr,
        opened: bool,
    ) -> Result<(), Errno> {
        let asked = self.cx.now();
        let entry = names.set_attr(who, file.id, changes, opened).await?;
        self.with_written(file, |state| {
            if let Some(size) = changes.size {
                state.cut(size);
            }
            state.note_incarnation(self.names.incarnation(file.id));
            state.absorb_own(entry, asked, self.cx.now());
            state.generation = self.generation.get();
            if changes.size.is_some() || changes.mtime.is_some() {
                let mtime = entry.attr.mtime;
                state.local = state.local.map(|local| Local { mtime, ..local });
            }
        });
        self.note_own(names, file);
        Ok(())
    }

    /// From now on no write is taken over and nothing is sent; waits until no send is under way.
    async fn hold_writes(&self, file: &Rc<File>) {
        while file.state.borrow().truncating {
            file.changed.wait().await;
        }
        file.state.borrow_mut().truncating = true;
        file.state.borrow_mut().written.set_paused(true);
        while !file.state.borrow().written.is_quiet() {
            file.changed.wait().await;
        }
    }

    /// The same, once everything that was written before is stable.
    pub(crate) async fn hold_kept(&self, file: &Rc<File>) {
        while file.state.borrow().truncating {
            file.changed.wait().await;
        }
        file.state.borrow_mut().truncating = true;
        self.keep_all(file).await;
        file.state.borrow_mut().written.set_paused(true);
        while !file.state.borrow().written.is_quiet() {
            file.changed.wait().await;
        }
    }

    pub(crate) fn resume_writes(&self, file: &Rc<File>) {
        {
            let mut state = file.state.borrow_mut();
            state.truncating = false;
            state.written.set_paused(false);
        }
        file.changed.notify_all();
        self.enqueue(file);
    }

    /// getxattr(2). A kernel asks for [`CAPABILITY`] before it writes to a file that it has just heard of: an open file
    /// that has none is known to have none, until others change the file.
    pub(crate) async fn get_xattr(
        &self,
        who: &Who<'_>,
        id: FileId,
        name: &[u8],
    ) -> Result<Box<[u8]>, Errno> {
        let file = self.file(id);
        if name != CAPABILITY {
            return self.asking.get_xattr(who, id, name).await;
        }
        if file.state.borrow().plain {
            return Err(Errno::ENODATA);
        }
        // As of which change by others, and which by this mount.
        let version = |state: &State| (state.entry.attr.change, state.names_mark);
        let before = version(&file.state.borrow());
        let value = self.names.get_xattr(who, id, name).await;
        let mut state = file.state.borrow_mut();
        let unchanged = version(&state) == before;
        state.plain = value == Err(Errno::ENODATA) && state.handles > 0 && unchanged;
        value
    }
}
