//! Changes go through to the origin before they are answered, and are taken over from what it says of them.
//!
//! The cache of before a change of ours stays where the origin says that nothing else has changed (RFC 1813 section
//! 2.6, `wcc_data`): its state of before is the version that is known. Then the pieces that are there are written over
//! too. Otherwise it is another version, as a change by others.

use crate::limits::*;
use crate::origin::{Listed, Made, NameIn, New, changes, version, version_before};
use crate::pieces::is_lost;
use crate::protocol::{Change, Changed, Version, Written};
use crate::service::{As, Foreign, Service};
use names::{Final, ListingEntry, WRITE, Who};
use nfs::client::Caller;
use nfs::convert::{file_kind, numbers};
use nfs::rpc::Groups;
use nfs::v3::{CreateHow, Fattr, NodeKind, Sattr, WccData};
use node::Request;
use std::rc::Rc;
use wire::field::{Field, Message};
use wire::{Decoder, Errno, FileId, FileKind, SetAttr, SetTime};

/// The data of a request: its message, and the user's groups behind that.
fn payload(request: &Request, bytes: u32) -> Result<(Vec<u8>, Groups), Errno> {
    let mut all = request.data.copied(request.bytes);
    if bytes as usize > all.len() {
        return Err(Errno::EPROTO);
    }
    let groups = all.split_off(bytes as usize);
    let groups = groups.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    Ok((all, Groups::of(groups)))
}

fn mode(mode: u32) -> Sattr {
    Sattr { mode: Some(mode & 0o7777), ..Sattr::default() }
}

fn node(mode: u32, rdev: u32) -> Result<NodeKind, Errno> {
    let attributes = self::mode(mode);
    let numbers = numbers(rdev);
    match FileKind::of_mode(mode) {
        Some(FileKind::CharDevice) => Ok(NodeKind::Character(attributes, numbers)),
        Some(FileKind::BlockDevice) => Ok(NodeKind::Block(attributes, numbers)),
        Some(FileKind::Socket) => Ok(NodeKind::Socket(attributes)),
        Some(FileKind::Fifo) => Ok(NodeKind::Fifo(attributes)),
        _ => Err(Errno::EINVAL),
    }
}

impl Service {
    /// Executes a WRITE.
    pub(crate) async fn serve_write(&self, request: &Request) -> Result<(), Errno> {
        let written = Written::decode(&request.body).map_err(|_| Errno::EPROTO)?;
        let (data, caller) = self.admit(request, &written.change)?;
        let file = self.file_with_handle(written.file).await?;
        if file.kind != FileKind::Regular {
            return Err(Errno::EINVAL);
        }
        let max = self.origin.write_max().await?;
        file.in_turn(async {
            let (mut offset, mut data) = (written.offset, &*data);
            while !data.is_empty() {
                let count = self.write_some(&file, &caller, offset, &data[..data.len().min(max)]);
                let count = count.await?;
                (offset, data) = (offset + count as u64, &data[count..]);
            }
            Ok(())
        })
        .await
    }

    /// Executes a CHANGE.
    pub(crate) async fn serve_change(&self, request: &Request) -> Result<(), Errno> {
        let changed = Changed::decode(&request.body).map_err(|_| Errno::EPROTO)?;
        let (message, caller) = self.admit(request, &changed)?;
        let change = Change::take(&mut Decoder::new(&message)).map_err(|_| Errno::EPROTO)?;
        self.change(&caller, change).await
    }

    /// The message of a change, and who makes it at the origin.
    fn admit(&self, request: &Request, changed: &Changed) -> Result<(Vec<u8>, Caller), Errno> {
        self.check_own(changed.import)?;
        let (message, groups) = payload(request, changed.bytes)?;
        let user = match self.config.changes {
            None => return Err(Errno::EROFS),
            Some(As::Importer) => None,
            Some(As::Caller) => Some((changed.uid, changed.gid, groups)),
        };
        Ok((message, self.origin.caller(user)))
    }

    async fn change(&self, caller: &Caller, change: Change<'_>) -> Result<(), Errno> {
        match change {
            Change::Set { file, changes } => self.set_attributes(caller, file, &changes).await,
            Change::Create { parent, name, mode: bits } => {
                let how = CreateHow::Unchecked(mode(bits));
                self.make_at(caller, (parent, name), Made::File(how), None).await
            }
            Change::CreateOnce { parent, name, verifier } => {
                let how = CreateHow::Exclusive(verifier);
                self.make_at(caller, (parent, name), Made::File(how), None).await
            }
            Change::CreateNew { parent, name, verifier, mode: bits } => {
                let (at, how) = ((parent, name), CreateHow::Exclusive(verifier));
                match self.make_at(caller, at, Made::File(how), Some(bits)).await {
                    // not every server has a place for the verifier
                    Err(Errno::EOPNOTSUPP) => {
                        let how = CreateHow::Guarded(mode(bits));
                        self.make_at(caller, at, Made::File(how), None).await
                    }
                    made => made,
                }
            }
            Change::MakeDirectory { parent, name, mode: bits } => {
                self.make_at(caller, (parent, name), Made::Directory(mode(bits)), None).await
            }
            Change::Symlink { parent, name, target } => {
                let made = Made::Symlink(Sattr::default(), target);
                self.make_at(caller, (parent, name), made, None).await
            }
            Change::MakeNode { parent, name, mode: bits, rdev } => {
                self.make_at(caller, (parent, name), Made::Node(node(bits, rdev)?), None).await
            }
            Change::Remove { parent, name } => self.remove(caller, (parent, name), false).await,
            Change::RemoveDirectory { parent, name } => {
                self.remove(caller, (parent, name), true).await
            }
            Change::Rename { parent, name, new_parent, new_name } => {
                self.rename(caller, (parent, name), (new_parent, new_name)).await
            }
            Change::Link { file, parent, name } => self.link(caller, file, (parent, name)).await,
        }
    }

    /// Writes as much as the origin takes at once; how many bytes.
    async fn write_some(
        &self,
        file: &Rc<Foreign>,
        caller: &Caller,
        offset: u64,
        data: &[u8],
    ) -> Result<usize, Errno> {
        let asked = self.cx.now();
        let handle = file.handle();
        let written = self.origin.write(caller, (&handle, offset), data).await;
        file.note_changed(self.cx.now());
        // it may have been executed
        let (count, wcc) = written.inspect_err(|_| file.doubt(self.cx.now()))?;
        let stored = match file.is_alone(&wcc) {
            true => self.overwrite(file, offset, &data[..count]).await,
            false => Ok(()),
        };
        // where it is cached is lost: the origin has it
        let stored = match stored {
            Err(errno) if is_lost(errno) => self.begin_anew(file).await,
            stored => stored,
        };
        match stored {
            Ok(()) => self.take_over(file, &wcc, asked).await?,
            Err(errno) => {
                file.forget_version();
                return Err(errno);
            }
        }
        Ok(count)
    }

    /// Writes bytes over those that are cached. All bytes of a file that is there whole are, however long it becomes.
    async fn overwrite(&self, file: &Foreign, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let end = offset + data.len() as u64;
        for piece in offset / PIECE_BYTES..=(end - 1) / PIECE_BYTES {
            let (is_there, version, size) = {
                let mut state = file.state.borrow_mut();
                let is_there = state.pieces.overwrite(piece);
                (is_there || state.kept.whole, state.pieces.version(), state.size)
            };
            if is_there {
                let from = offset.max(piece * PIECE_BYTES);
                let to = end.min((piece + 1) * PIECE_BYTES);
                let part = &data[(from - offset) as usize..(to - offset) as usize];
                self.store(file, version, from, part).await?;
                self.room.borrow_mut().take(file.id, part.len() as u64, end.max(size));
            }
        }
        Ok(())
    }

    /// Takes over what the origin says of a file after a change of ours to it.
    async fn take_over(
        &self,
        file: &Rc<Foreign>,
        wcc: &WccData,
        asked: wire::Time,
    ) -> Result<(), Errno> {
        let Some(after) = wcc.after.filter(|after| file_kind(after.kind) == file.kind) else {
            file.forget_version();
            return Ok(());
        };
        match file.is_alone(wcc) {
            true => file.note_own(&after),
            false if file.kind == FileKind::Directory => {
                file.doubt(self.cx.now());
                return Ok(());
            }
            false => self.renew(file, &after, version(&after)).await?,
        }
        file.note_asked(asked);
        Ok(())
    }

    /// Tells the manager of changes of ours, where that was not done yet: whether there were any. Bytes of the version
    /// before stay cached.
    pub(crate) async fn flush(&self, file: &Rc<Foreign>) -> Result<bool, Errno> {
        let Some(fattr) = file.state.borrow().unflushed else { return Ok(false) };
        let (is_cached, told, truncations) = {
            let state = file.state.borrow();
            (state.is_cached(), state.told_size, state.pieces.version())
        };
        let is_regular = file.kind == FileKind::Regular;
        if is_regular && (!is_cached || fattr.size < told) {
            return self.renew(file, &fattr, version(&fattr)).await.map(|()| true);
        }
        if is_regular && fattr.size > told {
            self.lengthen(file.id, &fattr, truncations).await?;
        }
        let attributes = SetAttr { size: None, ..changes(&fattr) };
        self.names.set_attr(&Who::ROOT, file.id, attributes, false).await?;
        let kept = {
            let mut state = file.state.borrow_mut();
            (state.unflushed, state.told_size) = (None, fattr.size);
            state.kept.clone()
        };
        self.keep(file, &kept).await.map(|()| true)
    }

    /// Makes a file longer without a truncation, which would raise the generation.
    async fn lengthen(&self, id: FileId, fattr: &Fattr, truncations: u32) -> Result<(), Errno> {
        self.names.open(&Who::ROOT, id, WRITE).await?;
        let mtime = nfs::convert::wall(fattr.mtime).unwrap_or_default();
        // its objects are all there since the truncation that its generation began with
        let last = Final { size: fattr.size, mtime, used: None, truncations, present: 0 };
        self.names.close(id, Some(last)).await.map(drop)
    }

    async fn set_attributes(
        &self,
        caller: &Caller,
        id: FileId,
        changes: &SetAttr,
    ) -> Result<(), Errno> {
        let file = self.file_with_handle(id).await?;
        file.in_turn(async {
            let asked = self.cx.now();
            let set = self.origin.set_attributes(caller, &file.handle(), changes).await;
            file.note_changed(self.cx.now());
            let wcc = set.inspect_err(|_| file.doubt(self.cx.now()))?;
            match wcc.after {
                Some(after) if changes.size.is_some() && file_kind(after.kind) == file.kind => {
                    self.renew(&file, &after, version(&after)).await?;
                    file.note_asked(asked);
                    Ok(())
                }
                _ => self.take_over(&file, &wcc, asked).await,
            }
        })
        .await
    }

    /// Makes something; with `permissions` these are set once it is there.
    async fn make_at(
        &self,
        caller: &Caller,
        (parent, name): (FileId, &[u8]),
        made: Made<'_>,
        permissions: Option<u32>,
    ) -> Result<(), Errno> {
        let directory = self.file_with_handle(parent).await?;
        directory
            .in_turn(async {
                let (asked, handle) = (self.cx.now(), directory.handle());
                let new = self.origin.make(caller, (&handle, name), &made).await;
                let new = new.inspect_err(|_| directory.doubt(self.cx.now()))?;
                let wcc = new.wcc;
                let mut listed = self.listed((&handle, name), new).await?;
                if let Some(permissions) = permissions {
                    self.settle(caller, &mut listed, permissions).await?;
                }
                let shown = self.show(parent, &listed, asked).await;
                self.names_changed(&directory, shown, &wcc, asked).await;
                Ok(())
            })
            .await
    }

    /// The new file with what the origin did not say of it at once.
    async fn listed(&self, (dir, name): NameIn<'_>, new: New) -> Result<Listed, Errno> {
        let Some(handle) = new.handle else {
            return self.origin.look_up(dir, name).await?.ok_or(Errno::ENOENT);
        };
        let attributes = match new.attributes {
            Some(attributes) => attributes,
            None => self.origin.attributes(&handle).await?,
        };
        Ok(Listed { name: name.to_vec(), handle, attributes })
    }

    /// Sets what an exclusive create does not: permissions, and times, which may be the verifier until then.
    async fn settle(
        &self,
        caller: &Caller,
        listed: &mut Listed,
        permissions: u32,
    ) -> Result<(), Errno> {
        let (mode, now) = (Some(permissions & 0o7777), Some(SetTime::Now));
        let changes = SetAttr { mode, atime: now, mtime: now, ..SetAttr::default() };
        let wcc = self.origin.set_attributes(caller, &listed.handle, &changes).await?;
        listed.attributes = match wcc.after {
            Some(after) => after,
            None => self.origin.attributes(&listed.handle).await?,
        };
        Ok(())
    }

    /// Shows a name that the origin has now.
    async fn show(&self, parent: FileId, listed: &Listed, asked: wire::Time) -> Result<(), Errno> {
        let our = self.our_name(parent, &listed.name).await?;
        self.adopt(parent, listed, our.as_ref(), asked).await
    }

    async fn our_name(&self, parent: FileId, name: &[u8]) -> Result<Option<ListingEntry>, Errno> {
        match self.names.lookup(&Who::ROOT, parent, name).await {
            Ok(found) => {
                let (file, kind, name) = (found.attr.file, found.attr.kind, name.into());
                Ok(Some(ListingEntry { file, kind, cookie: 0, name, entry: None }))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// After a change of ours to a directory's names, which `shown` has shown: it has its new version, or is listed
    /// anew when it is asked for next. The change is the origin's whatever became of showing it.
    async fn names_changed(
        &self,
        directory: &Rc<Foreign>,
        shown: Result<(), Errno>,
        wcc: &WccData,
        asked: wire::Time,
    ) {
        directory.note_changed(self.cx.now());
        let after = wcc.after.filter(|after| file_kind(after.kind) == directory.kind);
        let known = match (shown, after) {
            (Ok(()), Some(after)) if directory.is_alone(wcc) => {
                self.renew(directory, &after, version(&after)).await
            }
            _ => Err(Errno::ESTALE),
        };
        match known {
            Ok(()) => directory.note_asked(asked),
            Err(_) => directory.forget_version(),
        }
    }

    async fn remove(
        &self,
        caller: &Caller,
        (parent, name): (FileId, &[u8]),
        is_directory: bool,
    ) -> Result<(), Errno> {
        let directory = self.file_with_handle(parent).await?;
        directory
            .in_turn(async {
                let (asked, handle) = (self.cx.now(), directory.handle());
                let removed = self.origin.remove(caller, (&handle, name), is_directory).await;
                let wcc = removed.inspect_err(|_| directory.doubt(self.cx.now()))?;
                let shown = self.hide(parent, name).await;
                self.names_changed(&directory, shown, &wcc, asked).await;
                Ok(())
            })
            .await
    }

    /// Takes away a name that the origin has no longer.
    async fn hide(&self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        match self.our_name(parent, name).await? {
            Some(entry) => self.drop_name(parent, &entry).await,
            None => Ok(()),
        }
    }

    async fn rename(
        &self,
        caller: &Caller,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
    ) -> Result<(), Errno> {
        let source = self.file_with_handle(from.0).await?;
        let target = self.file_with_handle(to.0).await?;
        let both = [&source, &target];
        let work = self.rename_between(caller, both, from.1, to.1);
        match source.id.cmp(&target.id) {
            // in one order, so that two renames never wait for each other
            std::cmp::Ordering::Less => source.in_turn(target.in_turn(work)).await,
            std::cmp::Ordering::Greater => target.in_turn(source.in_turn(work)).await,
            std::cmp::Ordering::Equal => source.in_turn(work).await,
        }
    }

    async fn rename_between(
        &self,
        caller: &Caller,
        [source, target]: [&Rc<Foreign>; 2],
        name: &[u8],
        new_name: &[u8],
    ) -> Result<(), Errno> {
        let asked = self.cx.now();
        let (from, to) = (source.handle(), target.handle());
        let renamed = self.origin.rename(caller, (&from, name), (&to, new_name)).await;
        let [from, to] = renamed
            .inspect_err(|_| [source, target].iter().for_each(|it| it.doubt(self.cx.now())))?;
        // two names of one file stay as they are (RFC 1813 section 3.3.14)
        let is_shown = match is_unchanged(&from) && is_unchanged(&to) {
            true => Err(Errno::ESTALE),
            false => self.move_name((source.id, name), (target.id, new_name)).await,
        };
        self.names_changed(source, is_shown, &from, asked).await;
        if source.id != target.id {
            self.names_changed(target, is_shown, &to, asked).await;
        }
        Ok(())
    }

    async fn move_name(
        &self,
        (parent, name): (FileId, &[u8]),
        (new_parent, new_name): (FileId, &[u8]),
    ) -> Result<(), Errno> {
        let moved = self.our_name(parent, name).await?.ok_or(Errno::ENOENT)?;
        if let Some(replaced) = self.our_name(new_parent, new_name).await?
            && replaced.file != moved.file
        {
            self.drop_name(new_parent, &replaced).await?;
        }
        self.names.rename(&Who::ROOT, parent, name, new_parent, new_name, 0).await.map(drop)
    }

    async fn link(
        &self,
        caller: &Caller,
        id: FileId,
        (parent, name): (FileId, &[u8]),
    ) -> Result<(), Errno> {
        let file = self.file_with_handle(id).await?;
        let directory = self.file_with_handle(parent).await?;
        directory
            .in_turn(async {
                let (asked, handle) = (self.cx.now(), file.handle());
                let linked = self.origin.link(caller, &handle, (&directory.handle(), name)).await;
                let linked = linked.inspect_err(|_| directory.doubt(self.cx.now()))?;
                let attributes = match linked.attributes {
                    Some(attributes) => attributes,
                    None => self.origin.attributes(&handle).await?,
                };
                let listed = Listed { name: name.to_vec(), handle: handle.into(), attributes };
                let shown = self.show(parent, &listed, asked).await;
                self.names_changed(&directory, shown, &linked.wcc, asked).await;
                file.doubt(self.cx.now());
                Ok(())
            })
            .await
    }

    /// A file that the origin can be asked about.
    async fn file_with_handle(&self, id: FileId) -> Result<Rc<Foreign>, Errno> {
        let file = self.load(id).await?;
        if file.handle().is_empty() {
            self.check(id).await?;
        }
        Ok(file)
    }
}

/// Whether the origin says that nothing has changed.
fn is_unchanged(wcc: &WccData) -> bool {
    let after: Option<Version> = wcc.after.as_ref().map(version);
    after.is_some() && after == version_before(wcc)
}
