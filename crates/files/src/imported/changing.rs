//! Changes of files of imports: the importer makes them at the origin, which decides, before they are answered.
//!
//! An open for writing is a reader's at the manager: there is no write session, and nothing is written behind. Errors
//! of the origin are those of the call.

use crate::Files;
use crate::flags::{ACCESS_MODE, APPEND, EXCLUSIVE, TRUNCATE, permissions, writes};
use crate::gather::Gather;
use crate::inode::File;
use crate::table::Open;
use endpoint::Frame;
use imports::{Change, User, write_bytes_max};
use names::Who;
use node::rings::{FileOp, FileReply};
use std::rc::Rc;
use wire::{Errno, FileId, FileKind, SetAttr, Wall};

fn user(who: &Who<'_>) -> User {
    User { uid: who.uid, gid: who.gid, groups: who.groups().into() }
}

impl Files {
    /// EROFS where changes do not go through.
    pub(crate) async fn check_writable(&self, import: u32) -> Result<(), Errno> {
        if self.imports.is_writable(import).await? { Ok(()) } else { Err(Errno::EROFS) }
    }

    /// Makes a change within an import.
    pub(crate) async fn change_imported(
        &self,
        import: u32,
        who: &Who<'_>,
        op: FileOp,
    ) -> Result<FileReply, Errno> {
        match op {
            FileOp::WithWcc { op, guard, .. } => {
                self.check_guard(&op, guard).await?;
                let reply = Box::pin(self.change_imported(import, who, *op)).await?;
                // of before nothing is known in one step with the change
                Ok(FileReply::WithWcc(Box::new(reply), Vec::new()))
            }
            FileOp::Create { parent, name, mode, flags } => {
                self.create_imported(import, who, (parent, &name), (mode, flags)).await
            }
            FileOp::SetAttr { file, changes, .. } => {
                let change = Change::Set { file, changes };
                self.imports.change(import, &user(who), &change).await?;
                self.file(file).state.borrow_mut().fresh = None;
                self.current_attr(file, false).await.map(FileReply::Attr)
            }
            op => self.change_names(import, who, op).await,
        }
    }

    /// EBADE unless this is the file's ctime, as told here.
    async fn check_guard(&self, op: &FileOp, guard: Option<Wall>) -> Result<(), Errno> {
        let (FileOp::SetAttr { file, .. }, Some(guard)) = (op, guard) else { return Ok(()) };
        let attr = self.current_attr(*file, false).await?;
        if attr.ctime == guard { Ok(()) } else { Err(Errno::EBADE) }
    }

    async fn change_names(
        &self,
        import: u32,
        who: &Who<'_>,
        op: FileOp,
    ) -> Result<FileReply, Errno> {
        match op {
            FileOp::Unlink { parent, name } => {
                let change = Change::Remove { parent, name: &name };
                self.imports.change(import, &user(who), &change).await?;
                Ok(self.name_gone(parent, &name))
            }
            FileOp::RemoveDirectory { parent, name } => {
                let change = Change::RemoveDirectory { parent, name: &name };
                self.imports.change(import, &user(who), &change).await?;
                Ok(self.name_gone(parent, &name))
            }
            // NFS has no other renames
            FileOp::Rename { flags, .. } if flags != 0 => Err(Errno::EINVAL),
            FileOp::Rename { parent, name, new_parent, new_name, .. } => {
                let (from, to) = (&*name, &*new_name);
                let change = Change::Rename { parent, name: from, new_parent, new_name: to };
                self.imports.change(import, &user(who), &change).await?;
                self.naming.rename((parent, from), (new_parent, to), false);
                self.file(new_parent).state.borrow_mut().fresh = None;
                Ok(self.name_gone(parent, from))
            }
            op => self.make_imported(import, who, op).await,
        }
    }

    fn name_gone(&self, parent: FileId, name: &[u8]) -> FileReply {
        self.naming.remove(parent, name);
        self.names_changed();
        self.file(parent).state.borrow_mut().fresh = None;
        FileReply::Done
    }

    async fn make_imported(
        &self,
        import: u32,
        who: &Who<'_>,
        op: FileOp,
    ) -> Result<FileReply, Errno> {
        let (parent, name, change) = match &op {
            FileOp::CreateExclusive { parent, name, verifier, .. } => {
                let change = Change::CreateOnce { parent: *parent, name, verifier: *verifier };
                (*parent, name, change)
            }
            FileOp::Symlink { parent, name, target } => {
                (*parent, name, Change::Symlink { parent: *parent, name, target })
            }
            FileOp::MakeDirectory { parent, name, mode } => {
                (*parent, name, Change::MakeDirectory { parent: *parent, name, mode: *mode })
            }
            FileOp::MakeNode { parent, name, mode, rdev } => {
                let (at, mode, rdev) = (*parent, *mode, *rdev);
                let is_file = FileKind::of_mode(mode) == Some(FileKind::Regular);
                let change = match is_file {
                    true => self.create_new(at, name, mode),
                    false => Change::MakeNode { parent: at, name, mode, rdev },
                };
                (at, name, change)
            }
            FileOp::Link { file, new_parent, new_name } => {
                let change = Change::Link { file: *file, parent: *new_parent, name: new_name };
                (*new_parent, new_name, change)
            }
            // extended attributes, room, files without names: the protocol has none
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.imports.change(import, &user(who), &change).await?;
        let file = self.name_made(parent, name).await?;
        Ok(FileReply::Entry(self.attr(&file)))
    }

    /// The file of a name that was made, or found, at the origin.
    async fn name_made(&self, parent: FileId, name: &[u8]) -> Result<Rc<File>, Errno> {
        self.names_changed();
        self.file(parent).state.borrow_mut().fresh = None;
        // the origin has decided
        let found = self.find_checked(&self.asking, &Who::ROOT, (parent, name)).await?;
        self.note_name(parent, name, &found.0);
        Ok(self.learn(found.0, found.1))
    }

    /// open(2) with O_CREAT of a name that was not there.
    async fn create_imported(
        &self,
        import: u32,
        who: &Who<'_>,
        (parent, name): (FileId, &[u8]),
        (mode, flags): (u32, u32),
    ) -> Result<FileReply, Errno> {
        let is_new = flags & EXCLUSIVE != 0;
        if !is_new {
            match self.find_checked(&self.asking, who, (parent, name)).await {
                Ok((entry, asked)) => {
                    let file = self.learn(entry, asked);
                    self.note_name(parent, name, &entry);
                    let opened = self.open_imported(import, who, file.id, flags).await?;
                    return Ok(self.created(&file, opened));
                }
                Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        let change = match is_new {
            true => self.create_new(parent, name, mode),
            false => Change::Create { parent, name, mode },
        };
        self.imports.change(import, &user(who), &change).await?;
        let file = self.name_made(parent, name).await?;
        let opened = self.open_through(who, file.id, flags & !TRUNCATE).await?;
        Ok(self.created(&file, opened))
    }

    fn create_new<'a>(&self, parent: FileId, name: &'a [u8], mode: u32) -> Change<'a> {
        let verifier = self.cx.random().to_le_bytes();
        Change::CreateNew { parent, name, verifier, mode }
    }

    fn created(&self, file: &File, opened: FileReply) -> FileReply {
        match opened {
            FileReply::Opened { handle, .. } => {
                FileReply::Created { attr: self.attr(file), handle }
            }
            other => other,
        }
    }

    /// Opens a file of an import, which was compared with the origin's.
    pub(crate) async fn open_imported(
        &self,
        import: u32,
        who: &Who<'_>,
        id: FileId,
        flags: u32,
    ) -> Result<FileReply, Errno> {
        if !writes(flags) {
            return self.open_file(who, id, flags).await;
        }
        self.check_writable(import).await?;
        self.asking.access(who, id, permissions(flags)).await?;
        if flags & TRUNCATE != 0 {
            let changes = SetAttr { size: Some(0), ..SetAttr::default() };
            let change = Change::Set { file: id, changes };
            self.imports.change(import, &user(who), &change).await?;
            // the manager is told before it is asked
            self.check(id).await?;
        }
        self.open_through(who, id, flags).await
    }

    /// Opens a file that its opener may open, for writing at the origin where the flags say so.
    async fn open_through(
        &self,
        who: &Who<'_>,
        id: FileId,
        flags: u32,
    ) -> Result<FileReply, Errno> {
        let opened = self.open_file(&Who::ROOT, id, flags & !(ACCESS_MODE | TRUNCATE)).await?;
        if let FileReply::Opened { handle, .. } = &opened
            && writes(flags)
        {
            let open = self.table.borrow().handle(*handle)?;
            open.through.set(user(who)).expect("a new open");
        }
        Ok(opened)
    }

    /// Writes through: the bytes are on the origin's stable storage then.
    pub(crate) async fn write_imported(
        &self,
        open: &Open,
        user: &User,
        offset: u64,
        data: Vec<Frame>,
    ) -> Result<FileReply, Errno> {
        let (file, data) = (&open.file, Gather::new(data));
        let written = if open.flags & APPEND == 0 {
            self.write_at(file, user, offset, &data).await
        } else {
            // one after the other among the processes of this client; as ever with NFS not among clients
            self.take_turn(file).await;
            let written = match self.refresh(file).await {
                Ok(()) => {
                    let end = file.state.borrow().size();
                    self.write_at(file, user, end, &data).await
                }
                Err(errno) => Err(errno),
            };
            self.end_turn(file);
            written
        };
        {
            let mut state = file.state.borrow_mut();
            (state.fresh, state.cached) = (None, None);
        }
        let bytes = written?;
        self.counters.written_bytes.add(bytes);
        Ok(FileReply::Written(bytes as u32))
    }

    /// How many bytes are written: the first of all when a later part fails.
    async fn write_at(
        &self,
        file: &File,
        user: &User,
        offset: u64,
        data: &Gather,
    ) -> Result<u64, Errno> {
        let import = file.import().ok_or(Errno::ESTALE)?;
        file.state.borrow().end_of(offset, data.len())?;
        let (mut done, most) = (0, write_bytes_max(user) as u64);
        while done < data.len() {
            let (at, bytes) = (offset + done, most.min(data.len() - done));
            let part = data.slice(done..done + bytes);
            let fill = |into: &mut [u8]| part.copy_to(into);
            let written = self.imports.write(import, (file.id, at), user, (bytes as usize, fill));
            match written.await {
                Ok(()) => done += bytes,
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    }
}
