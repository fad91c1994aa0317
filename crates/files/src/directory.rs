//! Names: looking up, making, removing, listing, opening. The manager decides and checks permissions; here what it
//! says is remembered.

use crate::Files;
use crate::flags::{TRUNCATE, permissions, writes};
use crate::inode::File;
use crate::limits::NAME_AGE_MAX;
use crate::naming::OpenBy;
use names::{Client, Entry, How, Listing, Plus, READ, Span, Who};
use node::rings::{DirectoryEntry, FileReply, Handle, OPEN_CLEARS_SET_ID};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::{Attr, Errno, FileId, FileKind, ListingVersion, SetAttr, Time};

impl Files {
    pub(crate) async fn lookup(
        &self,
        names: &Client,
        who: &Who<'_>,
        (parent, name): (FileId, &[u8]),
    ) -> Result<FileReply, Errno> {
        let (entry, asked) = self.find_checked(names, who, (parent, name)).await?;
        self.note_name(parent, name, &entry);
        Ok(FileReply::Entry(self.present(entry, asked).await?))
    }

    /// The manager's word on a name.
    pub(crate) async fn find(
        &self,
        names: &Client,
        who: &Who<'_>,
        (parent, name): (FileId, &[u8]),
    ) -> Result<Entry, Errno> {
        match names.lookup(who, parent, name).await {
            // Of a handle of open_by_handle_at(2), whatever the file is.
            Err(Errno::ENOTDIR) if name == b"." => self.asking.get_attr(parent).await,
            entry => entry,
        }
    }

    /// The manager said that the name is this file's. The kernel may believe that for a while, unless the file has
    /// several names.
    pub(crate) fn note_name(&self, parent: FileId, name: &[u8], entry: &Entry) {
        let single = entry.attr.kind == FileKind::Directory || entry.attr.links == 1;
        if single && name != b"." && name != b".." {
            let believed = self.cx.now() + NAME_AGE_MAX;
            self.naming.set(entry.attr.file, parent, name, believed);
        }
    }

    /// The reply to an operation that made a name in `parent`.
    pub(crate) async fn made(
        &self,
        names: &Client,
        (parent, name): (FileId, &[u8]),
        entry: Entry,
        asked: Time,
    ) -> FileReply {
        self.note_name(parent, name, &entry);
        self.note_directory(names, parent);
        let file = self.learn(entry, asked);
        self.note_own(names, &file);
        FileReply::Entry(self.changed_attr(&file).await)
    }

    /// The reply to an operation that took a name out of `directory`: link counts that were known are old.
    pub(crate) fn removed(&self, names: &Client, directory: FileId) -> FileReply {
        self.names_changed();
        self.note_directory(names, directory);
        FileReply::Done
    }

    /// This mount changed a name of the directory: its times are old, and its fsync tells when the change is lost.
    pub(crate) fn note_directory(&self, names: &Client, directory: FileId) {
        let directory = self.file(directory);
        directory.state.borrow_mut().fresh = None;
        self.note_own(names, &directory);
    }

    pub(crate) async fn create(
        &self,
        who: &Who<'_>,
        (parent, name): (FileId, &[u8]),
        mode: u32,
        flags: u32,
        how: How,
    ) -> Result<FileReply, Errno> {
        let open = Some(permissions(flags));
        let incarnation = self.names.incarnation_of_name(parent, name);
        let asked = self.cx.now();
        let (entry, made) = self.names.create(who, parent, name, mode, how, open).await?;
        self.note_name(parent, name, &entry);
        let file = self.learn(entry, asked);
        if made {
            self.note_directory(&self.names, parent);
            self.note_own(&self.names, &file);
            file.state.borrow_mut().plain = true;
        }
        let flags = if made { flags & !TRUNCATE } else { flags };
        let handle = self.opened(who, &file, flags, incarnation).await?;
        Ok(FileReply::Created { attr: self.attr(&file), handle })
    }

    /// open(2) with O_TMPFILE.
    pub(crate) async fn create_unnamed(
        &self,
        who: &Who<'_>,
        parent: FileId,
        mode: u32,
        flags: u32,
    ) -> Result<FileReply, Errno> {
        let (asked, incarnation) = (self.cx.now(), self.names.incarnation(parent));
        let entry = self.names.create_unnamed(who, parent, mode, permissions(flags)).await?;
        let file = self.learn(entry, asked);
        self.note_own(&self.names, &file);
        file.state.borrow_mut().plain = true;
        let handle = self.opened(who, &file, flags & !TRUNCATE, incarnation).await?;
        Ok(FileReply::Created { attr: self.attr(&file), handle })
    }

    /// open(2)
    pub(crate) async fn open(
        &self,
        who: &Who<'_>,
        id: FileId,
        flags: u32,
    ) -> Result<FileReply, Errno> {
        match self.import_of(id).await? {
            None => self.open_file(who, id, flags).await,
            Some(import) => {
                self.check(id).await?;
                self.open_imported(import, who, id, flags).await
            }
        }
    }

    pub(crate) async fn open_file(
        &self,
        who: &Who<'_>,
        id: FileId,
        flags: u32,
    ) -> Result<FileReply, Errno> {
        let linked = self.file(id).state.borrow().entry.attr.links > 0;
        let (asked, incarnation) = (self.cx.now(), self.names.incarnation(id));
        let entry = self.open_believed(who, id, permissions(flags)).await?;
        let file = self.learn(entry, asked);
        if linked && entry.attr.links == 0 {
            return self.replaced(who, &file, flags & !TRUNCATE, incarnation).await;
        }
        let version = (!entry.is_hint()).then_some(entry.attr.change);
        let known = std::mem::replace(&mut file.state.borrow_mut().cached, version);
        let handle = self.opened(who, &file, flags, incarnation).await?;
        Ok(FileReply::Opened { handle, keep_cache: version.is_some() && known == version })
    }

    /// Opens the file by the name that its opener may have believed in. When that has become another file's, the opener
    /// gets ESTALE once, as in [`replaced`](Files::replaced).
    async fn open_believed(&self, who: &Who<'_>, id: FileId, mask: u32) -> Result<Entry, Errno> {
        let way = match self.config.opens_by_name {
            true => self.naming.way(id, self.cx.now()),
            false => OpenBy::Number,
        };
        let (parent, name) = match way {
            OpenBy::Number => return self.names.open(who, id, mask).await,
            OpenBy::Again => return Err(Errno::ESTALE),
            OpenBy::Name(parent, name) => (parent, name),
        };
        let entry = self.names.open_named(who, (parent, &name), id, mask).await;
        if entry == Err(Errno::ESTALE) {
            self.naming.forget(id);
        }
        entry
    }

    /// Another client took away a file's last name, which is still believed in here: an opener by that name gets
    /// ESTALE once. A kernel looks the name up again then; one that has the file open finds it at the second try.
    async fn replaced(
        &self,
        who: &Who<'_>,
        file: &Rc<File>,
        flags: u32,
        incarnation: u32,
    ) -> Result<FileReply, Errno> {
        let handle = self.opened(who, file, flags, incarnation).await?;
        self.release(handle, None).await?;
        Err(Errno::ESTALE)
    }

    /// The manager counts one more open of ours; its incarnation was this one or a later one.
    async fn opened(
        &self,
        who: &Who<'_>,
        file: &Rc<File>,
        flags: u32,
        incarnation: u32,
    ) -> Result<Handle, Errno> {
        {
            let mut state = file.state.borrow_mut();
            state.handles += 1;
            if writes(flags) {
                state.writers += 1;
                state.sessions += 1;
                state.tell_session(incarnation);
            } else {
                state.readers += 1;
            }
        }
        if writes(flags) {
            self.note_change(file);
        }
        let handle = self.table.borrow_mut().open(file.clone(), flags);
        let result = self.prepare_open(who, file, flags).await;
        if result.is_err() {
            // Why it was not opened says more than why it was not closed.
            let _ = self.release(handle, None).await;
        }
        result.map(|()| handle)
    }

    async fn prepare_open(&self, who: &Who<'_>, file: &Rc<File>, flags: u32) -> Result<(), Errno> {
        if flags & TRUNCATE != 0 && writes(flags) {
            let clear_set_id = flags & OPEN_CLEARS_SET_ID != 0;
            let changes = SetAttr { size: Some(0), clear_set_id, ..SetAttr::default() };
            return self.truncate(&self.names, who, file, changes, true).await;
        }
        self.ask_objects(file).await
    }

    /// A handle is a permission that was checked, and the end of the listing that goes on through it.
    pub(crate) async fn open_directory(
        &self,
        who: &Who<'_>,
        id: FileId,
    ) -> Result<FileReply, Errno> {
        if !self.is_unnamed(id) {
            self.asking.access(who, id, READ).await?;
        }
        Ok(FileReply::Opened {
            handle: self.table.borrow_mut().open_directory(id),
            keep_cache: false,
        })
    }

    pub(crate) async fn read_directory(
        &self,
        who: &Who<'_>,
        (id, handle): (FileId, Handle),
        (cookie, bytes, with_attributes): (u64, u32, bool),
    ) -> Result<FileReply, Errno> {
        // A listing that begins anew has an end of its own.
        let until = if cookie == 0 { 0 } else { self.table.borrow().listing_end(handle) };
        let span = Span { cookie, until };
        if self.is_unnamed(id) {
            return Ok(FileReply::Entries { entries: Vec::new(), end: true });
        }
        let plus = if with_attributes { Plus::Entries } else { Plus::Nothing };
        let import = self.import_of(id).await?;
        let list = async || self.asking.read_directory(who, id, span, bytes as usize, plus).await;
        let Checked { listing, asked, compared } =
            self.list_checked((id, import), (cookie, plus), list).await?;
        let (end, until) = (listing.end, listing.until);
        let entries = listing.entries.into_iter().map(|mut listed| {
            let entry = listed.entry.take().filter(|entry| is_compared(entry, &compared));
            let attr = entry.and_then(|entry| self.listed_attr((id, &listed.name), entry, asked));
            DirectoryEntry { attr, ..DirectoryEntry::from(listed) }
        });
        let entries = entries.collect();
        self.table.borrow_mut().end_listing(handle, until);
        Ok(FileReply::Entries { entries, end })
    }

    /// A part of a directory that is not open: it ends where the directory ends now. Of its files nothing is kept here.
    pub(crate) async fn list_directory(
        &self,
        names: &Client,
        who: &Who<'_>,
        id: FileId,
        (cookie, bytes, with_attributes): (u64, u32, bool),
        known: Option<ListingVersion>,
    ) -> Result<FileReply, Errno> {
        if self.is_unnamed(id) {
            return Ok(FileReply::Listed { entries: Vec::new(), end: true, version: None });
        }
        let plus = if with_attributes { Plus::Attributes } else { Plus::Nothing };
        let import = self.import_of(id).await?;
        // The manager's version says nothing of an import's origin.
        let known = known.filter(|_| import.is_none());
        let bytes = bytes as usize;
        let list = async || names.read_directory_again(who, id, cookie, bytes, plus, known).await;
        let Checked { listing, asked, compared } =
            self.list_checked((id, import), (cookie, plus), list).await?;
        let Listing { entries, end, version, is_known, .. } = listing;
        if is_known {
            return Ok(FileReply::Unchanged);
        }
        let mut version = version.filter(|_| import.is_none());
        let entries = entries.into_iter().map(|mut listed| {
            let entry = listed.entry.take().filter(|entry| is_compared(entry, &compared));
            let attr = entry.and_then(|entry| self.seen_attr(&entry, asked));
            // What is known here better than at the manager is no version of the manager's.
            if attr != entry.map(|entry| entry.attr) {
                version = None;
            }
            DirectoryEntry { attr, ..DirectoryEntry::from(listed) }
        });
        let entries = entries.collect();
        Ok(FileReply::Listed { entries, end, version })
    }

    /// A part of a directory. A listing of one of an import begins with a look at its origin's, and so does each part
    /// with attributes at its files.
    async fn list_checked(
        &self,
        (id, import): (FileId, Option<u32>),
        (cookie, plus): (u64, Plus),
        list: impl AsyncFn() -> Result<Listing, Errno>,
    ) -> Result<Checked, Errno> {
        if let (Some(import), 0) = (import, cookie) {
            self.imports.check(import, id).await?;
        }
        let asked = Cell::new(self.cx.now());
        let list = async || {
            asked.set(self.cx.now());
            list().await
        };
        let (listing, compared) = match import {
            Some(import) if plus != Plus::Nothing => self.list_imported(import, id, list).await?,
            _ => (list().await?, BTreeSet::new()),
        };
        Ok(Checked { listing, asked: asked.get(), compared })
    }

    /// The same of an entry without layout, of which nothing is kept.
    fn seen_attr(&self, entry: &Entry, asked: Time) -> Option<Attr> {
        if entry.is_hint() {
            return None;
        }
        let Some(file) = self.table.borrow().peek(entry.attr.file) else { return Some(entry.attr) };
        let state = file.state.borrow();
        (!state.unsure)
            .then(|| if state.knows_more(entry, asked) { state.attr() } else { entry.attr })
    }

    /// Attributes for a listing; none for a file whose length is a hint, as while others write: a listing does not ask
    /// the objects for it.
    fn listed_attr(
        &self,
        (parent, name): (FileId, &[u8]),
        entry: Entry,
        asked: Time,
    ) -> Option<Attr> {
        self.note_name(parent, name, &entry);
        let file = self.learn(entry, asked);
        let hint = entry.is_hint() || file.state.borrow().unsure;
        (!hint).then(|| self.attr(&file))
    }
}

/// A part of a directory, when the manager was asked for it, and the files of imports in it whose attributes hold.
struct Checked {
    listing: Listing,
    asked: Time,
    compared: BTreeSet<FileId>,
}

/// Whether what the manager says of a file holds: of other files of imports the origin was not asked.
fn is_compared(entry: &Entry, compared: &BTreeSet<FileId>) -> bool {
    entry.attr.import().is_none() || compared.contains(&entry.attr.file)
}
