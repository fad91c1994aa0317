//! The front's requests, one by one.

use crate::Files;
use crate::flags::{EXCHANGE, how};
use crate::locks::Wanted;
use names::{Client, How, Who};
use node::rings::{Caller, FileOp, FileReply, FileRequest, Lock};
use wire::Errno;

impl Files {
    /// `None` when the answer comes later, from the line of waiting locks.
    pub(crate) async fn answer(&self, request: FileRequest) -> Option<Result<FileReply, Errno>> {
        if let FileOp::SetLock { file, handle, owner, lock, wait, whole_file } = request.op {
            let lock = Lock { pid: request.caller.pid, ..lock };
            let wanted = Wanted { file, handle, owner, lock, whole_file };
            return self.set_lock(request.front, wanted, wait).await;
        }
        Some(self.serve_op(request).await)
    }

    /// Executes an operation for a caller on this very node, as the front ring does; it may not be one that waits for a
    /// lock.
    pub async fn ask(&self, caller: Caller, op: FileOp) -> Result<FileReply, Errno> {
        self.serve_op(FileRequest { front: 0, caller, op }).await
    }

    async fn serve_op(&self, request: FileRequest) -> Result<FileReply, Errno> {
        let who = &Who::from(&request.caller);
        if let Some(import) = self.changed_import(&request.op).await? {
            return self.change_imported(import, who, request.op).await;
        }
        match request.op {
            FileOp::Read { handle, offset, bytes, .. } => self.read(handle, offset, bytes).await,
            FileOp::Write { handle, offset, data, flags, .. } => {
                self.write(handle, offset, data, flags).await
            }
            FileOp::Flush { handle, owner, .. } => self.flush(handle, owner).await,
            FileOp::Release { handle, owner, .. } => self.release(handle, owner).await,
            FileOp::Fsync { handle, .. } => self.fsync(handle).await,
            FileOp::Allocate { handle, offset, bytes, mode, .. } => {
                self.allocate(who, handle, offset, bytes, mode).await
            }
            FileOp::Seek { handle, offset, whence, .. } => self.seek(handle, offset, whence).await,
            FileOp::Prefetch { handle, offset, bytes, .. } => {
                self.prefetch(handle, offset, bytes).await
            }
            FileOp::Open { file, flags } => self.open(who, file, flags).await,
            FileOp::Create { parent, name, mode, flags } => {
                let how = how(flags);
                self.create(who, (parent, &name), mode, flags, how).await
            }
            FileOp::CreateUnnamed { parent, mode, flags } => {
                self.create_unnamed(who, parent, mode, flags).await
            }
            FileOp::GetAttr { file, handle } => {
                self.current_attr(file, handle.is_some()).await.map(FileReply::Attr)
            }
            FileOp::Permissions { file } => {
                let attr = self.current_attr(file, false).await?;
                Ok(FileReply::Permissions(attr, who.granted(&attr)))
            }
            FileOp::GetLock { file, owner, lock, .. } => self.get_lock(file, owner, lock).await,
            FileOp::ReclaimLock { file, owner, lock } => {
                let lock = Lock { pid: request.caller.pid, ..lock };
                self.reclaim_lock(file, owner, lock).await
            }
            FileOp::WithWcc { op, guard, call } => {
                let (names, changed) = self.asking.with_wcc(guard, call);
                let reply = self.serve_name(&names, who, *op).await?;
                Ok(FileReply::WithWcc(Box::new(reply), changed.take()))
            }
            op => self.serve_name(&self.asking, who, op).await,
        }
    }

    /// Operations on names, attributes and directories, asked by `names`.
    async fn serve_name(
        &self,
        names: &Client,
        who: &Who<'_>,
        op: FileOp,
    ) -> Result<FileReply, Errno> {
        match op {
            FileOp::SetAttr { file, handle, changes } => {
                self.set_attr(names, who, (file, handle), changes).await
            }
            FileOp::Lookup { parent, name } => self.lookup(names, who, (parent, &name)).await,
            FileOp::Unlink { parent, name } => {
                let who = who.having_seen([self.naming.file(parent, &name), None]);
                let unnamed = names.unlink(&who, parent, &name).await?;
                self.keep_unnamed(unnamed);
                self.naming.remove(parent, &name);
                Ok(self.removed(names, parent))
            }
            FileOp::RemoveDirectory { parent, name } => {
                let who = who.having_seen([self.naming.file(parent, &name), None]);
                let unnamed = names.remove_directory(&who, parent, &name).await?;
                self.keep_unnamed(unnamed);
                self.naming.remove(parent, &name);
                Ok(self.removed(names, parent))
            }
            FileOp::Rename { parent, name, new_parent, new_name, flags } => {
                let seen = [(parent, &name), (new_parent, &new_name)];
                let who =
                    who.having_seen(seen.map(|(parent, name)| self.naming.file(parent, name)));
                let unnamed =
                    names.rename(&who, parent, &name, new_parent, &new_name, flags).await?;
                self.keep_unnamed(unnamed);
                let exchange = flags & EXCHANGE != 0;
                self.naming.rename((parent, &name), (new_parent, &new_name), exchange);
                self.note_directory(names, new_parent);
                Ok(self.removed(names, parent))
            }
            FileOp::OpenDirectory { file } => self.open_directory(who, file).await,
            FileOp::ReadDirectory { file, handle, cookie, bytes, with_attributes } => {
                self.read_directory(who, (file, handle), (cookie, bytes, with_attributes)).await
            }
            FileOp::ListDirectory { file, cookie, bytes, with_attributes, known } => {
                let part = (cookie, bytes, with_attributes);
                self.list_directory(names, who, file, part, known).await
            }
            FileOp::ReleaseDirectory { handle, .. } => {
                self.table.borrow_mut().close_directory(handle);
                Ok(FileReply::Done)
            }
            op => self.serve_new(names, who, op).await,
        }
    }

    /// Operations that make a name.
    async fn serve_new(
        &self,
        names: &Client,
        who: &Who<'_>,
        op: FileOp,
    ) -> Result<FileReply, Errno> {
        let asked = self.cx.now();
        match op {
            FileOp::CreateExclusive { parent, name, mode, verifier } => {
                // 0 is no verifier
                let how = How::Exclusive(u64::from_be_bytes(verifier).max(1));
                let (entry, _) = names.create(who, parent, &name, mode, how, None).await?;
                Ok(self.made(names, (parent, &name), entry, asked).await)
            }
            FileOp::Symlink { parent, name, target } => {
                let entry = names.symlink(who, parent, &name, &target).await?;
                Ok(self.made(names, (parent, &name), entry, asked).await)
            }
            FileOp::MakeNode { parent, name, mode, rdev } => {
                let entry = names.make_node(who, parent, &name, mode, rdev).await?;
                Ok(self.made(names, (parent, &name), entry, asked).await)
            }
            FileOp::MakeDirectory { parent, name, mode } => {
                let entry = names.make_directory(who, parent, &name, mode).await?;
                Ok(self.made(names, (parent, &name), entry, asked).await)
            }
            FileOp::Link { file, new_parent, new_name } => {
                let entry = names.link(who, file, new_parent, &new_name).await?;
                Ok(self.made(names, (new_parent, &new_name), entry, asked).await)
            }
            op => self.serve_other(who, op).await,
        }
    }

    /// Operations that the manager answers alone.
    async fn serve_other(&self, who: &Who<'_>, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::FsyncDirectory { file, .. } => self.fsync_directory(file).await,
            FileOp::StatFs => self.names.space().await.map(FileReply::Space),
            FileOp::Access { file, mask } => {
                self.asking.access(who, file, mask).await.map(|()| FileReply::Done)
            }
            FileOp::ReadLink { file } => self.read_link(file).await.map(bytes),
            FileOp::GetXattr { file, name } => self.get_xattr(who, file, &name).await.map(bytes),
            FileOp::ListXattr { file } => self.asking.list_xattr(who, file).await.map(bytes),
            FileOp::SetXattr { file, name, value, flags } => {
                self.names.set_xattr(who, file, &name, &value, flags).await?;
                Ok(self.attributes_changed(file))
            }
            FileOp::RemoveXattr { file, name } => {
                self.names.remove_xattr(who, file, &name).await?;
                Ok(self.attributes_changed(file))
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

fn bytes(bytes: impl Into<Vec<u8>>) -> FileReply {
    FileReply::Bytes(bytes.into())
}
