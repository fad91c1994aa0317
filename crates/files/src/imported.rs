//! Files of imports: their origin is asked before what the manager says of them is believed, and their bytes are
//! brought to the I/O servers before they are read. How they are changed is in [`changing`].

mod changing;

use crate::Files;
use crate::inode::File;
use crate::limits::{IMPORT_ATTEMPTS, RETRY_PAUSE};
use names::{Client, Entry, Listing, WRITE, Who};
use node::rings::{FileOp, FileReply};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use wire::{Errno, FileId, Time};

impl File {
    /// The import that it belongs to, as far as is known here.
    pub(crate) fn import(&self) -> Option<u32> {
        self.state.borrow().entry.attr.import()
    }

    fn is_known(&self) -> bool {
        self.state.borrow().entry.attr.file == self.id
    }
}

/// The file that an operation would change, or the directory of a name, and that of another one.
fn changed(op: &FileOp) -> Option<(FileId, Option<FileId>)> {
    match op {
        FileOp::SetAttr { file, .. }
        | FileOp::SetXattr { file, .. }
        | FileOp::RemoveXattr { file, .. }
        | FileOp::Allocate { file, .. } => Some((*file, None)),
        FileOp::Access { file, mask } if mask & WRITE != 0 => Some((*file, None)),
        FileOp::Create { parent, .. }
        | FileOp::CreateExclusive { parent, .. }
        | FileOp::CreateUnnamed { parent, .. }
        | FileOp::Symlink { parent, .. }
        | FileOp::MakeNode { parent, .. }
        | FileOp::MakeDirectory { parent, .. }
        | FileOp::Unlink { parent, .. }
        | FileOp::RemoveDirectory { parent, .. } => Some((*parent, None)),
        FileOp::Rename { parent, new_parent, .. } => Some((*parent, Some(*new_parent))),
        FileOp::Link { file, new_parent, .. } => Some((*file, Some(*new_parent))),
        FileOp::WithWcc { op, .. } => changed(op),
        _ => None,
    }
}

impl Files {
    /// The import that an operation changes. EXDEV for a change over its border, EROFS for one within an import that is
    /// read only.
    pub(crate) async fn changed_import(&self, op: &FileOp) -> Result<Option<u32>, Errno> {
        let Some((id, other)) = changed(op) else { return Ok(None) };
        let import = self.import_of(id).await?;
        let other = match other {
            Some(other) => self.import_of(other).await?,
            None => import,
        };
        if import != other {
            return Err(Errno::EXDEV);
        }
        if let Some(import) = import {
            self.check_writable(import).await?;
        }
        // what only asks is the manager's
        Ok(import.filter(|_| !matches!(op, FileOp::Access { .. })))
    }

    /// The import of a file. The manager is asked where nothing is known of the file.
    pub(crate) async fn import_of(&self, id: FileId) -> Result<Option<u32>, Errno> {
        if id == FileId::ROOT || self.is_unnamed(id) {
            return Ok(None);
        }
        let file = self.file(id);
        if !file.is_known() {
            let asked = self.cx.now();
            let entry = self.asking.get_attr(id).await?;
            self.absorb(&file, entry, asked);
            if entry.attr.import().is_some() {
                file.state.borrow_mut().fresh = None; // its origin was not asked
            }
        }
        Ok(file.import())
    }

    /// Has a file of an import compared with its origin's; whether it has changed. Of another file nothing is done.
    pub(crate) async fn check(&self, id: FileId) -> Result<bool, Errno> {
        match self.import_of(id).await? {
            Some(import) => self.imports.check(import, id).await,
            None => Ok(false),
        }
    }

    /// The manager's word on a file and when it was asked, once the origin was.
    pub(crate) async fn ask_checked(&self, file: &Rc<File>) -> Result<(Entry, Time), Errno> {
        let import = file.import();
        if let Some(import) = import {
            self.imports.check(import, file.id).await?;
        }
        let asked = self.cx.now();
        let entry = self.asking.get_attr(file.id).await?;
        match import {
            None => self.checked(entry, asked).await,
            Some(_) => Ok((entry, asked)),
        }
    }

    /// The same of what the manager has said already.
    async fn checked(&self, entry: Entry, asked: Time) -> Result<(Entry, Time), Errno> {
        let Some(import) = entry.attr.import() else { return Ok((entry, asked)) };
        if !self.imports.check(import, entry.attr.file).await? {
            return Ok((entry, asked));
        }
        let asked = self.cx.now();
        Ok((self.asking.get_attr(entry.attr.file).await?, asked))
    }

    /// The manager's word on a name and when it was asked, once the origin was.
    pub(crate) async fn find_checked(
        &self,
        names: &Client,
        who: &Who<'_>,
        place: (FileId, &[u8]),
    ) -> Result<(Entry, Time), Errno> {
        let mut attempts = 0;
        loop {
            let asked = self.cx.now();
            let found = self.find(names, who, place).await;
            let is_doubtful = match &found {
                Ok(entry) => entry.attr.import().is_some(),
                Err(errno) => *errno == Errno::ENOENT,
            };
            if !is_doubtful {
                return found.map(|entry| (entry, asked));
            }
            attempts += 1;
            // at last it is what it is: the directory changes all the time
            let may_repeat = attempts < IMPORT_ATTEMPTS;
            if self.check(place.0).await? && may_repeat {
                continue;
            }
            match self.checked(found?, asked).await {
                // the name is another file's by now, or its file is being made
                Err(Errno::ESTALE) if may_repeat => self.cx.sleep(RETRY_PAUSE).await,
                result => return result,
            }
        }
    }

    /// A part of a directory of an import, with the files of it whose attributes are the origin's too.
    pub(crate) async fn list_imported(
        &self,
        import: u32,
        directory: FileId,
        list: impl AsyncFn() -> Result<Listing, Errno>,
    ) -> Result<(Listing, BTreeSet<FileId>), Errno> {
        let listing = list().await?;
        let is_imported = |entry: &Entry| entry.attr.import() == Some(import);
        let named = listing.entries.iter().filter(|it| !matches!(&*it.name, b"." | b".."));
        let files = named.filter(|it| it.entry.as_ref().is_some_and(is_imported));
        let files: Vec<FileId> = files.map(|it| it.file).collect();
        match self.imports.check_listed(import, directory, &files).await {
            Ok(checked) if checked.changed => Ok((list().await?, checked.files)),
            Ok(checked) => Ok((listing, checked.files)),
            // its names are known
            Err(_) => Ok((listing, BTreeSet::new())),
        }
    }

    /// Reads a file of an import.
    pub(crate) async fn read_imported(
        &self,
        import: u32,
        file: &Rc<File>,
        (offset, bytes): (u64, u32),
    ) -> Result<FileReply, Errno> {
        let give_up = self.cx.now() + self.patience.get();
        let mut losses = 0;
        loop {
            if !self.is_fresh(file) {
                self.refresh(file).await?;
            }
            let range = self.readable(file, offset, bytes).await?;
            let bytes = (range.end - range.start) as usize;
            if bytes == 0 {
                return Ok(FileReply::Data { frames: Vec::new(), bytes });
            }
            let version = file.state.borrow().entry.truncations;
            match self.imports.fetch(import, (file.id, version), range.clone()).await {
                Err(Errno::ESTALE) if self.cx.now() < give_up => {
                    self.refresh(file).await?;
                    continue;
                }
                result => result?,
            }
            let frames = match self.fetch(file, range.clone()).await {
                Err(Errno::EIO) if losses < IMPORT_ATTEMPTS => {
                    losses += 1;
                    self.fetch_lost(import, (file, version), range).await?;
                    continue;
                }
                // Servers are asked one by one, and a lost request later: some had the next version by then.
                Err(Errno::ESTALE) if self.cx.now() < give_up => {
                    self.refresh(file).await?;
                    continue;
                }
                frames => frames?,
            };
            // else what was read is of a version whose bytes may not be there
            if file.state.borrow().entry.truncations == version {
                self.counters.read_bytes.add(bytes as u64);
                return Ok(FileReply::Data { frames, bytes });
            }
        }
    }

    /// Has a range that cannot be read brought to the I/O servers again; EIO where that does not help.
    async fn fetch_lost(
        &self,
        import: u32,
        (file, version): (&Rc<File>, u32),
        range: Range<u64>,
    ) -> Result<(), Errno> {
        match self.imports.report_lost(import, (file.id, version), range).await {
            Ok(true) => self.refresh(file).await,
            _ => Err(Errno::EIO),
        }
    }

    /// Has a range of a file of an import brought to the I/O servers; EAGAIN when it changes meanwhile.
    pub(crate) async fn fetch_imported(
        &self,
        import: u32,
        file: &Rc<File>,
        range: Range<u64>,
    ) -> Result<(), Errno> {
        let version = file.state.borrow().entry.truncations;
        let fetched = self.imports.fetch(import, (file.id, version), range).await;
        fetched.map_err(|errno| if errno == Errno::ESTALE { Errno::EAGAIN } else { errno })
    }
}
