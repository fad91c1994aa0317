//! Files of a cluster without a mount: a client node that the calling thread drives while it waits.
//!
//! A [`Volume`] belongs to one thread. Its calls block until the cluster has answered; several operations are under way
//! only where a call says so. Data that a call has written is at the I/O servers when the call returns and on stable
//! storage when [`Volume::sync`] has returned.

#[path = "volume_admin.rs"]
mod admin;

pub use admin::Placed;

use crate::config::MANAGER_NODE;
use crate::machine::Running;
use crate::waiting::{self, Waiting};
use files::cluster::gone_disks;
use members::Roles;
use node::rings::{
    Caller, DirectoryEntry, FileOp, FileReply, FileRequest, Handle, Name, VolumeSpace, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use stripe::protocol::ObjectReply;
use stripe::{FileRef, VolumeRoom};
use wire::limits::PAYLOAD_BYTES_MAX;
use wire::{Attr, Errno, FileId, FileKind, Home, Layout, NodeId, SetAttr, VolumeId};

/// Bytes of one read or write.
const CHUNK_BYTES: usize = PAYLOAD_BYTES_MAX;
/// Writes under way at a time: enough for every server to have work, little enough for any pool.
const CHUNKS_UNDER_WAY: usize = 4;
const O_RDWR: u32 = 2;

/// How long a server is waited for that is only asked what it has.
const ASK_SPAN: Duration = Duration::from_secs(2);
/// Between two questions for the groups of a new cluster.
const GROUPS_PAUSE: Duration = Duration::from_millis(50);

/// A column of a file.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The disk that keeps it.
    pub home: Home,
    /// The disk's report of it; ENOENT when nothing was written there.
    pub told: std::result::Result<ObjectReply, Errno>,
}

/// Why an operation on a volume failed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The cluster says no.
    #[error("{path}: {errno}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Reading or writing on this machine failed.
    #[error("{0}")]
    Local(std::io::Error),
    /// The loop of this client failed.
    #[error("this client's own loop: {0}")]
    Host(#[from] std::io::Error),
}

/// Result of an operation on a volume.
pub type Result<T> = std::result::Result<T, VolumeError>;

trait At<T> {
    fn at(self, path: &Path) -> Result<T>;
}

impl<T> At<T> for std::result::Result<T, Errno> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|errno| VolumeError::File { path: path.to_path_buf(), errno })
    }
}

/// A client of a cluster's volume.
pub struct Volume {
    running: Running,
    waiting: Waiting,
    caller: Caller,
    next: u64,
    ended: BTreeMap<u64, std::result::Result<FileReply, Errno>>,
}

impl Volume {
    /// The volume of a client node, for this caller.
    pub fn new(running: Running, caller: Caller) -> Volume {
        let waiting = waiting::watch(&running);
        Volume { running, waiting, caller, next: 1, ended: BTreeMap::new() }
    }

    fn submit(&mut self, op: FileOp) -> Result<u64> {
        let front = self.next;
        self.next += 1;
        let mut request = FileRequest { front, caller: self.caller.clone(), op };
        while let Err(refused) = self.running.host.node().front_push(request) {
            request = refused;
            self.running.host.turn()?;
        }
        Ok(front)
    }

    fn wait(&mut self, front: u64) -> Result<std::result::Result<FileReply, Errno>> {
        self.waiting.begin(self.running.host.node().cx().now());
        let result = self.wait_quietly(front);
        self.waiting.end();
        result
    }

    /// As [`Host::block_on`](live::host::Host::block_on), and says what is waited for.
    fn block_on<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> Result<T> {
        self.waiting.begin(self.running.host.node().cx().now());
        let result = self.running.host.block_on(future);
        self.waiting.end();
        Ok(result?)
    }

    fn wait_quietly(&mut self, front: u64) -> Result<std::result::Result<FileReply, Errno>> {
        loop {
            while let Some(done) = self.running.host.node().take_front_done() {
                self.ended.insert(done.front, done.result);
            }
            if let Some(result) = self.ended.remove(&front) {
                return Ok(result);
            }
            self.running.host.turn()?;
        }
    }

    /// From now on an I/O server that is away is waited for no longer than this.
    pub fn set_patience(&self, patience: Duration) {
        let files = self.running.services.files.as_ref();
        files.expect("a client has files").set_patience(patience);
    }

    /// Does one operation, as a FUSE or NFS front would ask for it.
    pub fn ask(&mut self, path: &Path, op: FileOp) -> Result<FileReply> {
        let front = self.submit(op)?;
        self.wait(front)?.at(path)
    }

    fn attr_of(&mut self, path: &Path, op: FileOp) -> Result<Attr> {
        match self.ask(path, op)? {
            FileReply::Attr(attr) | FileReply::Entry(attr) => Ok(attr),
            other => unreachable!("attributes were asked for, {other:?} came"),
        }
    }

    /// The attributes of what `path` names, from the volume's root. Symbolic links are not followed.
    pub fn stat(&mut self, path: &Path) -> Result<Attr> {
        let mut attr = self.attr_of(path, FileOp::GetAttr { file: FileId::ROOT, handle: None })?;
        for name in names(path)? {
            attr = self.attr_of(path, FileOp::Lookup { parent: attr.file, name })?;
        }
        Ok(attr)
    }

    /// Directory and name of `path`, whose last part need not exist.
    fn parent(&mut self, path: &Path) -> Result<(FileId, Name)> {
        let mut parts = names(path)?;
        let name = parts.pop().ok_or(Errno::EBUSY).at(path)?;
        let folder: PathBuf = parts.iter().map(|part| OsStr::from_bytes(part)).collect();
        Ok((self.stat(&folder)?.file, name))
    }

    /// The entries of a directory, without `.` and `..`, with the attributes that the listing has: none of files that
    /// others write to.
    pub fn list(&mut self, path: &Path) -> Result<Vec<DirectoryEntry>> {
        let file = self.stat(path)?.file;
        let handle = match self.ask(path, FileOp::OpenDirectory { file })? {
            FileReply::Opened { handle, .. } => handle,
            other => unreachable!("a directory was opened, {other:?} came"),
        };
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let bytes = 64 * 1024;
            let op = FileOp::ReadDirectory { file, handle, cookie, bytes, with_attributes: true };
            let FileReply::Entries { entries, end } = self.ask(path, op)? else {
                unreachable!("entries were asked for")
            };
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            let done = end || entries.is_empty();
            all.extend(entries.into_iter().filter(|e| *e.name != *b"." && *e.name != *b".."));
            if done {
                self.ask(path, FileOp::ReleaseDirectory { file, handle })?;
                return Ok(all);
            }
        }
    }

    /// Names and attributes of all entries of a directory, without `.` and `..`. Those that the listing does not have
    /// are asked for, of I/O servers too; what is gone by then is left out.
    pub fn list_attributes(&mut self, path: &Path) -> Result<Vec<(Name, Attr)>> {
        let mut all = Vec::new();
        for DirectoryEntry { file, name, attr, .. } in self.list(path)? {
            let attr = match attr {
                Some(attr) => Some(attr),
                None => self.attributes_of(&path.join(OsStr::from_bytes(&name)), file)?,
            };
            all.extend(attr.map(|attr| (name, attr)));
        }
        Ok(all)
    }

    fn attributes_of(&mut self, path: &Path, file: FileId) -> Result<Option<Attr>> {
        match self.ask(path, FileOp::GetAttr { file, handle: None }) {
            Ok(FileReply::Attr(attr)) => Ok(Some(attr)),
            Ok(other) => unreachable!("attributes were asked for, {other:?} came"),
            Err(VolumeError::File { errno: Errno::ESTALE, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory; no error when there is one.
    pub fn make_directory(&mut self, path: &Path, mode: u32) -> Result<()> {
        match self.new_directory(path, mode) {
            Err(VolumeError::File { errno: Errno::EEXIST, .. }) => Ok(()),
            other => other,
        }
    }

    /// Makes a directory that is not there yet.
    pub fn new_directory(&mut self, path: &Path, mode: u32) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.ask(path, FileOp::MakeDirectory { parent, name, mode }).map(drop)
    }

    /// Gives what `from` names the name `to`, in place of what that names, if anything.
    pub fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let (parent, name) = self.parent(from)?;
        let (new_parent, new_name) = self.parent(to)?;
        let op = FileOp::Rename { parent, name, new_parent, new_name, flags: 0 };
        self.ask(from, op).map(drop)
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, path: &Path, target: &[u8]) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        self.ask(path, FileOp::Symlink { parent, name, target: target.into() }).map(drop)
    }

    /// Where a symbolic link points.
    pub fn read_link(&mut self, path: &Path) -> Result<Vec<u8>> {
        let file = self.stat(path)?.file;
        match self.ask(path, FileOp::ReadLink { file })? {
            FileReply::Bytes(target) => Ok(target),
            other => unreachable!("a target was asked for, {other:?} came"),
        }
    }

    /// Removes a file, a symbolic link itself, or an empty directory; its attributes as they were just before.
    pub fn remove(&mut self, path: &Path) -> Result<Attr> {
        let attr = self.stat(path)?;
        let (parent, name) = self.parent(path)?;
        let op = match attr.kind {
            FileKind::Directory => FileOp::RemoveDirectory { parent, name },
            _ => FileOp::Unlink { parent, name },
        };
        self.ask(path, op).map(|_| attr)
    }

    fn open(&mut self, path: &Path, file: FileId, flags: u32) -> Result<Handle> {
        match self.ask(path, FileOp::Open { file, flags })? {
            FileReply::Opened { handle, .. } => Ok(handle),
            other => unreachable!("a file was opened, {other:?} came"),
        }
    }

    fn release(&mut self, path: &Path, file: FileId, handle: Handle) -> Result<()> {
        let flushed = self.ask(path, FileOp::Flush { file, handle, owner: 0 });
        self.ask(path, FileOp::Release { file, handle, owner: None })?;
        flushed.map(drop)
    }

    /// Says that this range of a file will be read soon, after all that was named before: the I/O servers bring it from
    /// their disks into memory, and files that are read through this volume are read ahead in the order in which they
    /// were named. How many of its bytes are noted, the first ones; EAGAIN when there are too many hints already. A
    /// hint changes no byte that is read.
    pub fn prefetch(&mut self, path: &Path, range: Range<u64>) -> Result<u64> {
        let file = self.stat(path)?.file;
        let handle = self.open(path, file, 0)?;
        let (offset, bytes) = (range.start, range.end.saturating_sub(range.start));
        let noted = match bytes {
            0 => Ok(FileReply::Offset(0)),
            _ => self.ask(path, FileOp::Prefetch { file, handle, offset, bytes }),
        };
        self.release(path, file, handle)?;
        match noted? {
            FileReply::Offset(bytes) => Ok(bytes),
            other => unreachable!("bytes were noted, {other:?} came"),
        }
    }

    /// Copies a file's bytes out; how many. `progress` hears of each piece.
    pub fn read_file(
        &mut self,
        path: &Path,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let attr = self.stat(path)?;
        if attr.kind == FileKind::Directory {
            return Err(Errno::EISDIR).at(path);
        }
        let handle = self.open(path, attr.file, 0)?;
        let read = self.read_chunks(path, (attr.file, handle), out, progress);
        let released = self.release(path, attr.file, handle);
        read.and_then(|bytes| released.map(|()| bytes))
    }

    fn read_chunks(
        &mut self,
        path: &Path,
        (file, handle): (FileId, Handle),
        out: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let mut offset = 0;
        loop {
            let bytes = CHUNK_BYTES as u32;
            let reply = self.ask(path, FileOp::Read { file, handle, offset, bytes })?;
            let FileReply::Data { frames, bytes } = reply else {
                unreachable!("data was asked for")
            };
            let mut left = bytes;
            for frame in &frames {
                let part = &frame[..left.min(frame.len())];
                out.write_all(part).map_err(VolumeError::Local)?;
                left -= part.len();
            }
            offset += bytes as u64;
            progress(bytes as u64);
            if bytes == 0 {
                return Ok(offset);
            }
        }
    }

    /// Makes or replaces a file with what `from` gives; how many bytes. `progress` hears of each piece.
    pub fn write_file(
        &mut self,
        path: &Path,
        mode: u32,
        from: &mut dyn Read,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let (parent, name) = self.parent(path)?;
        let reply = self.ask(path, FileOp::Create { parent, name, mode, flags: O_RDWR })?;
        let FileReply::Created { attr, handle } = reply else { unreachable!("a file was created") };
        let file = attr.file;
        if attr.change > 0 {
            self.drop_privileges(path, file)?; // it was there before
        }
        if attr.size > 0 {
            let changes = SetAttr { size: Some(0), ..SetAttr::default() };
            self.ask(path, FileOp::SetAttr { file, handle: Some(handle), changes })?;
        }
        let written = self.write_chunks(path, (file, handle, 0), from, progress);
        let released = self.release(path, file, handle);
        written.and_then(|bytes| released.map(|()| bytes))
    }

    /// Writes all of `from` from an offset on; where it ends.
    fn write_chunks(
        &mut self,
        path: &Path,
        (file, handle, mut offset): (FileId, Handle, u64),
        from: &mut dyn Read,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let mut under_way = Vec::new();
        loop {
            let mut frame = self.frame(path)?;
            let bytes = fill(from, &mut frame).map_err(VolumeError::Local)?;
            frame.truncate(bytes);
            if bytes > 0 {
                let (data, flags) = (vec![frame.freeze()], WriteFlags::default());
                under_way.push(self.submit(FileOp::Write { file, handle, offset, data, flags })?);
                offset += bytes as u64;
                progress(bytes as u64);
            }
            let keep = if bytes == 0 { 0 } else { CHUNKS_UNDER_WAY - 1 };
            while under_way.len() > keep {
                self.wait(under_way.remove(0))?.at(path)?;
            }
            if bytes == 0 {
                return Ok(offset);
            }
        }
    }

    /// A frame for a chunk, waiting for one when the pool is empty.
    fn frame(&mut self, path: &Path) -> Result<endpoint::FrameMut> {
        for _ in 0..100_000 {
            if let Some(frame) = self.running.host.node().cx().frames().alloc(CHUNK_BYTES) {
                return Ok(frame);
            }
            self.running.host.turn()?;
        }
        Err(Errno::ENOMEM).at(path)
    }

    /// Puts what was written to a file on stable storage.
    pub fn sync(&mut self, path: &Path) -> Result<()> {
        let file = self.stat(path)?.file;
        let handle = self.open(path, file, 0)?;
        let synced = self.ask(path, FileOp::Fsync { file, handle, data_only: false });
        self.release(path, file, handle)?;
        synced.map(drop)
    }

    /// Where a regular file's blocks are, and what each server says of its column; `None` for other kinds.
    pub fn layout(&mut self, path: &Path) -> Result<Option<(Layout, Vec<Column>)>> {
        let file = self.stat(path)?.file;
        let (names, stripe) = self.clients();
        let asked = self.block_on(async move {
            let entry = names.get_attr(file).await?;
            let Some(layout) = entry.layout else { return Ok(None) };
            let reference = FileRef { file, layout, truncations: entry.truncations };
            let columns = stripe.columns(&reference).await;
            let column = |(home, told)| Column { home, told };
            Ok(Some((layout, layout.homes().zip(columns).map(column).collect())))
        })?;
        asked.at(path)
    }

    /// Whether files are kept by groups of disks, as far as the manager answers.
    pub fn has_groups(&mut self) -> Result<bool> {
        self.wait_for_groups(Duration::ZERO)
    }

    /// Waits until the cluster has groups of disks that files can be put in, for so long at most; whether it has some.
    pub(crate) fn wait_for_groups(&mut self, span: Duration) -> Result<bool> {
        let member = self.running.services.member.as_ref().expect("a client is a member");
        let (cx, groups) = (self.running.host.node().cx().clone(), member.groups());
        self.block_on(async move {
            let until = cx.now() + span;
            loop {
                // Without an answer it is asked again.
                let _ = groups.refresh().await;
                if groups.version() > 0 || cx.now() >= until {
                    return groups.version() > 0;
                }
                cx.sleep(GROUPS_PAUSE).await;
            }
        })
    }

    /// Room on each I/O server of the cluster, by name, or why it does not say.
    pub fn rooms(&mut self) -> Result<Vec<(String, std::result::Result<VolumeRoom, Errno>)>> {
        let member = self.running.services.member.clone().expect("a client is a member");
        let (_, stripe) = self.clients();
        self.block_on(async move {
            let directory = member.directory();
            let servers = directory.iter().filter(|m| m.roles.contains(Roles::IO) && !m.gone);
            let (ids, names): (Vec<_>, Vec<_>) = servers.map(|m| (m.id, m.name.clone())).unzip();
            names.into_iter().zip(stripe.rooms(&ids).await).collect()
        })
    }

    /// Clients of the services below the file system, that give a silent server up soon.
    fn clients(&self) -> (names::Client, stripe::Client) {
        let cx = self.running.host.node().cx();
        let (manager, volume) = (NodeId(MANAGER_NODE), VolumeId(1));
        let stripe = stripe::Client::with_patience(cx, volume, ASK_SPAN);
        let member = self.running.services.member.as_ref().expect("a client is a member");
        stripe.set_gone(gone_disks(member.directory().iter()));
        stripe.set_groups(member.groups());
        (names::Client::new(cx, manager, volume), stripe)
    }

    /// Room on the volume.
    pub fn space(&mut self) -> Result<VolumeSpace> {
        match self.ask(Path::new("/"), FileOp::StatFs)? {
            FileReply::Space(space) => Ok(space),
            other => unreachable!("space was asked for, {other:?} came"),
        }
    }

    /// Ends all that is under way and says good-bye to the cluster.
    pub fn close(self) -> std::io::Result<()> {
        crate::serve::stop(self.running).map_err(std::io::Error::other)
    }
}

/// The parts of a path from the root. `..` is refused: nothing here follows links, so it would mislead.
fn names(path: &Path) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name.as_bytes().into()),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(Errno::EINVAL).at(path),
        }
    }
    Ok(names)
}

/// Reads until the buffer is full or the source has ended.
fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match from.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(bytes) => have += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}
