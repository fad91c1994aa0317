//! A thin client of one front: operations on files as async functions.

use endpoint::{Frame, Frames};
use node::rings::{
    Caller, DirectoryEntry, FileDone, FileOp, FileReply, FileRequest, Handle, Lock, LockKind,
    VolumeSpace,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::task::Poll;
use wire::{Attr, Errno, FileId, SetAttr};

/// A server of file operations.
pub trait Ask {
    /// Asks for one operation; the future is its answer.
    fn ask(&self, caller: Caller, op: FileOp) -> impl Future<Output = Result<FileReply, Errno>>;
}

impl<A: Ask> Ask for &A {
    fn ask(&self, caller: Caller, op: FileOp) -> impl Future<Output = Result<FileReply, Errno>> {
        A::ask(self, caller, op)
    }
}

/// Requests that wait for their world to take them, and answers that wait for their askers. Its futures never wake
/// anybody: the world polls the body again whenever it brought an answer.
#[derive(Clone, Default)]
pub struct Asks(Rc<RefCell<Waiting>>);

#[derive(Default)]
struct Waiting {
    last: u64,
    requests: VecDeque<FileRequest>,
    answers: BTreeMap<u64, Result<FileReply, Errno>>,
}

impl Asks {
    /// The next request to push on the node's front ring.
    pub fn take_request(&self) -> Option<FileRequest> {
        self.0.borrow_mut().requests.pop_front()
    }

    /// Gives a request back that the ring had no room for.
    pub fn put_back(&self, request: FileRequest) {
        self.0.borrow_mut().requests.push_front(request);
    }

    /// The node has answered.
    pub fn done(&self, done: FileDone) {
        self.0.borrow_mut().answers.insert(done.front, done.result);
    }

    /// Number of the last request: what an interrupt names.
    pub fn last_front(&self) -> u64 {
        self.0.borrow().last
    }
}

impl Ask for Asks {
    async fn ask(&self, caller: Caller, op: FileOp) -> Result<FileReply, Errno> {
        let front = {
            let mut waiting = self.0.borrow_mut();
            waiting.last += 1;
            let front = waiting.last;
            waiting.requests.push_back(FileRequest { front, caller, op });
            front
        };
        std::future::poll_fn(|_| match self.0.borrow_mut().answers.remove(&front) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        })
        .await
    }
}

/// An application on one client.
#[derive(Clone)]
pub struct Client<A> {
    /// The node that it asks.
    pub ask: A,
    /// The client node's payload pool.
    pub frames: Frames,
    /// As whom it asks.
    pub caller: Caller,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The file.
    pub file: FileId,
    /// Its handle.
    pub handle: Handle,
}

/// O_RDONLY
pub const READ_ONLY: u32 = 0;
/// O_WRONLY
pub const WRITE_ONLY: u32 = 1;
/// O_RDWR
pub const READ_WRITE: u32 = 2;
/// O_APPEND
pub const APPEND: u32 = crate::flags::APPEND;
/// O_TRUNC
pub const TRUNCATE: u32 = crate::flags::TRUNCATE;
/// O_EXCL
pub const EXCLUSIVE: u32 = crate::flags::EXCLUSIVE;
/// O_DSYNC
pub const SYNCHRONOUS: u32 = crate::flags::SYNCHRONOUS;

/// Most bytes that one read or write of this client asks for.
pub const TRANSFER_BYTES_MAX: usize = 1 << 20;

fn unexpected<T>(reply: FileReply) -> T {
    panic!("the front answered with another kind of reply: {reply:?}")
}

impl<A: Ask> Client<A> {
    /// A client of `ask` as the superuser, its data in frames of `frames`.
    pub fn new(ask: A, frames: Frames) -> Client<A> {
        Client { ask, frames, caller: Caller::default() }
    }

    /// Any operation.
    pub async fn ask(&self, op: FileOp) -> Result<FileReply, Errno> {
        self.ask.ask(self.caller.clone(), op).await
    }

    async fn done(&self, op: FileOp) -> Result<(), Errno> {
        match self.ask(op).await? {
            FileReply::Done => Ok(()),
            other => unexpected(other),
        }
    }

    async fn entry(&self, op: FileOp) -> Result<Attr, Errno> {
        match self.ask(op).await? {
            FileReply::Entry(attr) => Ok(attr),
            other => unexpected(other),
        }
    }

    async fn attr(&self, op: FileOp) -> Result<Attr, Errno> {
        match self.ask(op).await? {
            FileReply::Attr(attr) => Ok(attr),
            other => unexpected(other),
        }
    }

    async fn bytes(&self, op: FileOp) -> Result<Vec<u8>, Errno> {
        match self.ask(op).await? {
            FileReply::Bytes(bytes) => Ok(bytes),
            other => unexpected(other),
        }
    }

    /// Finds a name.
    pub async fn lookup(&self, parent: FileId, name: &[u8]) -> Result<Attr, Errno> {
        self.entry(FileOp::Lookup { parent, name: name.into() }).await
    }

    /// stat(2)
    pub async fn stat(&self, file: FileId) -> Result<Attr, Errno> {
        self.attr(FileOp::GetAttr { file, handle: None }).await
    }

    /// Changes attributes, through an open file if there is one.
    pub async fn set_attr(
        &self,
        file: FileId,
        handle: Option<Handle>,
        changes: SetAttr,
    ) -> Result<Attr, Errno> {
        self.attr(FileOp::SetAttr { file, handle, changes }).await
    }

    /// ftruncate(2)
    pub async fn set_size(&self, open: Opened, size: u64) -> Result<Attr, Errno> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.set_attr(open.file, Some(open.handle), changes).await
    }

    /// mkdir(2)
    pub async fn make_directory(&self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let op = FileOp::MakeDirectory { parent, name: name.into(), mode: 0o755 };
        Ok(self.entry(op).await?.file)
    }

    /// A new directory for a test, which is sure to succeed.
    pub async fn scratch(&self, parent: FileId, name: &str) -> FileId {
        self.make_directory(parent, name.as_bytes()).await.expect("a directory for the test")
    }

    /// mknod(2)
    pub async fn make_node(
        &self,
        parent: FileId,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr, Errno> {
        self.entry(FileOp::MakeNode { parent, name: name.into(), mode, rdev }).await
    }

    /// symlink(2)
    pub async fn symlink(&self, parent: FileId, name: &[u8], target: &[u8]) -> Result<Attr, Errno> {
        let (name, target) = (name.into(), target.into());
        self.entry(FileOp::Symlink { parent, name, target }).await
    }

    /// readlink(2)
    pub async fn read_link(&self, file: FileId) -> Result<Vec<u8>, Errno> {
        self.bytes(FileOp::ReadLink { file }).await
    }

    /// link(2)
    pub async fn link(&self, file: FileId, parent: FileId, name: &[u8]) -> Result<Attr, Errno> {
        self.entry(FileOp::Link { file, new_parent: parent, new_name: name.into() }).await
    }

    /// unlink(2)
    pub async fn unlink(&self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        self.done(FileOp::Unlink { parent, name: name.into() }).await
    }

    /// rmdir(2)
    pub async fn remove_directory(&self, parent: FileId, name: &[u8]) -> Result<(), Errno> {
        self.done(FileOp::RemoveDirectory { parent, name: name.into() }).await
    }

    /// rename(2)
    pub async fn rename(
        &self,
        from: (FileId, &[u8]),
        to: (FileId, &[u8]),
        flags: u32,
    ) -> Result<(), Errno> {
        let (name, new_name) = (from.1.into(), to.1.into());
        let (parent, new_parent) = (from.0, to.0);
        self.done(FileOp::Rename { parent, name, new_parent, new_name, flags }).await
    }

    /// open(2) with O_CREAT
    pub async fn create(&self, parent: FileId, name: &[u8], flags: u32) -> Result<Opened, Errno> {
        let op = FileOp::Create { parent, name: name.into(), mode: 0o644, flags };
        match self.ask(op).await? {
            FileReply::Created { attr, handle } => Ok(Opened { file: attr.file, handle }),
            other => unexpected(other),
        }
    }

    /// open(2) with O_TMPFILE
    pub async fn create_unnamed(&self, parent: FileId, flags: u32) -> Result<Opened, Errno> {
        match self.ask(FileOp::CreateUnnamed { parent, mode: 0o644, flags }).await? {
            FileReply::Created { attr, handle } => Ok(Opened { file: attr.file, handle }),
            other => unexpected(other),
        }
    }

    /// open(2)
    pub async fn open(&self, file: FileId, flags: u32) -> Result<Opened, Errno> {
        match self.ask(FileOp::Open { file, flags }).await? {
            FileReply::Opened { handle, .. } => Ok(Opened { file, handle }),
            other => unexpected(other),
        }
    }

    /// pread(2), in as many operations as it takes; short at the end of the file.
    pub async fn read(&self, open: Opened, offset: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
        let mut all = Vec::new();
        while all.len() < bytes {
            let part = (bytes - all.len()).min(TRANSFER_BYTES_MAX);
            let (file, handle) = (open.file, open.handle);
            let offset = offset + all.len() as u64;
            let op = FileOp::Read { file, handle, offset, bytes: part as u32 };
            match self.ask(op).await? {
                FileReply::Data { frames, bytes } => {
                    let before = all.len();
                    frames.iter().for_each(|frame| all.extend_from_slice(frame));
                    assert!(bytes <= all.len() - before && bytes <= part);
                    all.truncate(before + bytes);
                    if bytes < part {
                        break;
                    }
                }
                other => unexpected(other),
            }
        }
        Ok(all)
    }

    /// pwrite(2), in as many operations as it takes.
    pub async fn write(&self, open: Opened, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        for (index, part) in bytes.chunks(TRANSFER_BYTES_MAX).enumerate() {
            let offset = offset + (index * TRANSFER_BYTES_MAX) as u64;
            let data = vec![self.frame_of(part)?];
            let op = FileOp::Write {
                file: open.file,
                handle: open.handle,
                offset,
                data,
                flags: Default::default(),
            };
            match self.ask(op).await? {
                FileReply::Written(written) => assert_eq!(written as usize, part.len()),
                other => unexpected(other),
            }
        }
        Ok(())
    }

    fn frame_of(&self, bytes: &[u8]) -> Result<Frame, Errno> {
        self.frames.copy_of(bytes).ok_or(Errno::ENOMEM)
    }

    /// close(2) of one of several descriptors.
    pub async fn flush(&self, open: Opened) -> Result<(), Errno> {
        self.flush_as(open, 0).await
    }

    /// As [`flush`](Client::flush), by an owner of locks.
    pub async fn flush_as(&self, open: Opened, owner: u64) -> Result<(), Errno> {
        self.done(FileOp::Flush { file: open.file, handle: open.handle, owner }).await
    }

    /// close(2) of the only descriptor.
    pub async fn close(&self, open: Opened) -> Result<(), Errno> {
        let flushed = self.flush(open).await;
        let (file, handle) = (open.file, open.handle);
        let released = self.done(FileOp::Release { file, handle, owner: None }).await;
        flushed.and(released)
    }

    /// fsync(2)
    pub async fn fsync(&self, open: Opened) -> Result<(), Errno> {
        let (file, handle) = (open.file, open.handle);
        self.done(FileOp::Fsync { file, handle, data_only: false }).await
    }

    /// fsync(2) of a directory
    pub async fn fsync_directory(&self, file: FileId) -> Result<(), Errno> {
        self.done(FileOp::FsyncDirectory { file }).await
    }

    /// fallocate(2)
    pub async fn allocate(
        &self,
        open: Opened,
        offset: u64,
        bytes: u64,
        mode: u32,
    ) -> Result<(), Errno> {
        let (file, handle) = (open.file, open.handle);
        self.done(FileOp::Allocate { file, handle, offset, bytes, mode }).await
    }

    /// lseek(2) with SEEK_DATA or SEEK_HOLE
    pub async fn seek(&self, open: Opened, offset: u64, whence: u32) -> Result<u64, Errno> {
        let (file, handle) = (open.file, open.handle);
        match self.ask(FileOp::Seek { file, handle, offset, whence }).await? {
            FileReply::Offset(offset) => Ok(offset),
            other => unexpected(other),
        }
    }

    /// Says that `bytes` bytes from `offset` will be read soon, all that follow if it says 0; how many are noted.
    pub async fn prefetch(&self, open: Opened, offset: u64, bytes: u64) -> Result<u64, Errno> {
        let (file, handle) = (open.file, open.handle);
        match self.ask(FileOp::Prefetch { file, handle, offset, bytes }).await? {
            FileReply::Offset(bytes) => Ok(bytes),
            other => unexpected(other),
        }
    }

    /// A new file with these bytes, closed.
    pub async fn put(&self, parent: FileId, name: &[u8], bytes: &[u8]) -> Result<FileId, Errno> {
        let open = self.create(parent, name, WRITE_ONLY | TRUNCATE).await?;
        self.write(open, 0, bytes).await?;
        self.close(open).await?;
        Ok(open.file)
    }

    /// All bytes of a file.
    pub async fn get(&self, parent: FileId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let attr = self.lookup(parent, name).await?;
        let open = self.open(attr.file, READ_ONLY).await?;
        let bytes = self.read(open, 0, attr.size as usize + 1).await?;
        self.close(open).await?;
        Ok(bytes)
    }

    /// A part of a directory after `cookie`, and whether it ends there.
    pub async fn list_part(
        &self,
        directory: FileId,
        cookie: u64,
        bytes: u32,
    ) -> Result<(Vec<DirectoryEntry>, bool), Errno> {
        self.list_through((directory, Handle::default()), cookie, bytes).await
    }

    /// opendir(3)
    pub async fn open_directory(&self, file: FileId) -> Result<Handle, Errno> {
        match self.ask(FileOp::OpenDirectory { file }).await? {
            FileReply::Opened { handle, .. } => Ok(handle),
            other => unexpected(other),
        }
    }

    /// closedir(3)
    pub async fn close_directory(&self, file: FileId, handle: Handle) -> Result<(), Errno> {
        self.done(FileOp::ReleaseDirectory { file, handle }).await
    }

    /// As [`list_part`](Client::list_part), of a listing that goes on through an open directory.
    pub async fn list_through(
        &self,
        (file, handle): (FileId, Handle),
        cookie: u64,
        bytes: u32,
    ) -> Result<(Vec<DirectoryEntry>, bool), Errno> {
        let op = FileOp::ReadDirectory { file, handle, cookie, bytes, with_attributes: true };
        match self.ask(op).await? {
            FileReply::Entries { entries, end } => Ok((entries, end)),
            other => unexpected(other),
        }
    }

    /// The entries of a directory that is not open, as many as fit in 64 KiB.
    pub async fn list_closed(&self, file: FileId) -> Result<Vec<DirectoryEntry>, Errno> {
        let (cookie, bytes, with_attributes, known) = (0, 65_536, true, None);
        let op = FileOp::ListDirectory { file, cookie, bytes, with_attributes, known };
        match self.ask(op).await? {
            FileReply::Listed { entries, .. } => Ok(entries),
            other => unexpected(other),
        }
    }

    /// All entries of a directory but `.` and `..`, read in parts of about `bytes` bytes.
    pub async fn list(&self, directory: FileId, bytes: u32) -> Result<Vec<DirectoryEntry>, Errno> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, end) = self.list_part(directory, cookie, bytes).await?;
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            all.extend(entries.into_iter().filter(|e| !matches!(&e.name[..], b"." | b"..")));
            if end {
                return Ok(all);
            }
        }
    }

    /// statfs(2)
    pub async fn space(&self) -> Result<VolumeSpace, Errno> {
        match self.ask(FileOp::StatFs).await? {
            FileReply::Space(space) => Ok(space),
            other => unexpected(other),
        }
    }

    /// setxattr(2)
    pub async fn set_xattr(
        &self,
        file: FileId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let (name, value) = (name.into(), value.into());
        self.done(FileOp::SetXattr { file, name, value, flags }).await
    }

    /// getxattr(2)
    pub async fn get_xattr(&self, file: FileId, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.bytes(FileOp::GetXattr { file, name: name.into() }).await
    }

    /// listxattr(2): names, each ended by a zero
    pub async fn list_xattr(&self, file: FileId) -> Result<Vec<u8>, Errno> {
        self.bytes(FileOp::ListXattr { file }).await
    }

    /// removexattr(2)
    pub async fn remove_xattr(&self, file: FileId, name: &[u8]) -> Result<(), Errno> {
        self.done(FileOp::RemoveXattr { file, name: name.into() }).await
    }

    /// fcntl(2) with F_SETLK or F_SETLKW, or flock(2) when it is of the whole file
    pub async fn set_lock(
        &self,
        open: Opened,
        owner: u64,
        lock: Lock,
        wait: bool,
        whole_file: bool,
    ) -> Result<(), Errno> {
        let (file, handle) = (open.file, open.handle);
        self.done(FileOp::SetLock { file, handle, owner, lock, wait, whole_file }).await
    }

    /// fcntl(2) with F_GETLK
    pub async fn get_lock(&self, open: Opened, owner: u64, lock: Lock) -> Result<Lock, Errno> {
        let (file, handle) = (open.file, open.handle);
        match self.ask(FileOp::GetLock { file, handle, owner, lock }).await? {
            FileReply::Lock(lock) => Ok(lock),
            other => unexpected(other),
        }
    }

    /// Ends the waiting of an earlier request.
    pub async fn interrupt(&self, front: u64) -> Result<(), Errno> {
        self.done(FileOp::Interrupt { front }).await
    }
}

/// A lock of bytes `start..=end`.
pub fn lock(kind: LockKind, start: u64, end: u64) -> Lock {
    Lock { start, end, kind, pid: 0 }
}

/// `bytes` bytes that tell their place: different at every offset and for every `seed`.
pub fn pattern(seed: u64, offset: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| {
        let word = (at / 8).wrapping_add(seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word ^ (word >> 29)).to_le_bytes()[(at % 8) as usize]
    };
    (offset..offset + bytes as u64).map(byte).collect()
}
