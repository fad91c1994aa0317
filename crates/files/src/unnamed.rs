//! Directories, symbolic links, FIFOs and devices that have lost their last name and are still open.
//!
//! The manager forgets them: they have no bytes, and of opens of all but directories this client hears nothing. It
//! keeps what was known of each instead, for as long as it remembers the file (see [`Table`](crate::table::Table)); a
//! directory for as long as it is open. On a local file system too they are gone with the machine.

use crate::Files;
use crate::inode::File;
use names::{Unnamed, Who};
use std::rc::Rc;
use wire::{Attr, Errno, FileId, FileKind, SetAttr};

impl Files {
    /// This client took the last name of something away.
    pub(crate) fn keep_unnamed(&self, unnamed: Option<Unnamed>) {
        if let Some(unnamed) = unnamed {
            let file = self.file(unnamed.attr.file);
            file.state.borrow_mut().unnamed = Some(unnamed);
        }
    }

    /// The manager has forgotten the file: another client took its last name away. Only of directories is it known here
    /// that they are open; everything else is ESTALE, so that the caller looks the old name up again.
    pub(crate) fn removed_elsewhere(&self, file: &Rc<File>) -> Result<Attr, Errno> {
        let known = file.state.borrow().entry.attr;
        let directory = known.file == file.id && known.kind == FileKind::Directory;
        if !directory || !self.table.borrow().is_open_directory(file.id) {
            return Err(Errno::ESTALE);
        }
        let attr = Attr { links: 0, ..known };
        file.state.borrow_mut().unnamed = Some(Unnamed { attr, target: Box::default() });
        Ok(attr)
    }

    pub(crate) fn is_unnamed(&self, id: FileId) -> bool {
        self.unnamed_attr(id).is_some()
    }

    pub(crate) fn unnamed_attr(&self, id: FileId) -> Option<Attr> {
        let file = self.table.borrow_mut().get(id)?;
        let state = file.state.borrow();
        state.unnamed.as_ref().map(|unnamed| unnamed.attr)
    }

    pub(crate) fn change_unnamed(
        &self,
        who: &Who<'_>,
        id: FileId,
        changes: &SetAttr,
    ) -> Result<Attr, Errno> {
        let file = self.file(id);
        let mut state = file.state.borrow_mut();
        let unnamed = state.unnamed.as_mut().ok_or(Errno::ESTALE)?;
        unnamed.set_attr(who, changes, self.cx.wall())?;
        Ok(unnamed.attr)
    }

    /// readlink(2)
    pub(crate) async fn read_link(&self, id: FileId) -> Result<Box<[u8]>, Errno> {
        let file = self.table.borrow_mut().get(id);
        let target = file.and_then(|file| {
            file.state.borrow().unnamed.as_ref().map(|unnamed| unnamed.target.clone())
        });
        match target {
            Some(target) => Ok(target),
            None => self.asking.read_link(id).await,
        }
    }
}
