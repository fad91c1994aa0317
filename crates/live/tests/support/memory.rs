//! A file system in memory as tasks of a node, behind the FUSE device: the whole way of a request but the services.

use endpoint::{Frames, HeapRegion};
use live::fuse::{Belief, Fuse, MountOptions, Stage};
use live::host::Host;
use live::wait::WaitPolicy;
use node::rings::{DirectoryEntry, FileOp, FileReply, FileRequest, Handle, Name, VolumeSpace};
use node::{Cx, Node, NodeConfig};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use wire::{Attr, Errno, FileId, FileKind, NodeId, SetAttr, SetTime, Wall};

/// Serves a new memory file system on `path` until `stop`, or until it is unmounted; how it ended.
pub fn serve(path: &Path, pages: usize, stop: &AtomicBool) -> Stage {
    let frames = Frames::new(HeapRegion::new(pages));
    let node = Node::new(NodeConfig::new(NodeId(1), 1, 1), frames);
    let memory = Rc::new(RefCell::new(Memory::new(node.cx())));
    let (cx, requested) = (node.cx().clone(), memory.clone());
    node.cx().spawn("memory", async move {
        loop {
            let FileRequest { front, op, caller } = cx.front().await;
            if let FileOp::SetLock { .. } = op {
                requested.borrow_mut().waiting.push(front);
                continue;
            }
            // A task each: a READ waits for frames, and a WRITE behind it may be what has them.
            let (cx, memory) = (cx.clone(), requested.clone());
            cx.clone().spawn("memory request", async move {
                let result = answer(&cx, &memory, caller.uid, op).await;
                cx.front_done(front, result);
            });
        }
    });
    let (cx, waiting) = (node.cx().clone(), memory.clone());
    node.cx().spawn("interrupts", async move {
        loop {
            let front = cx.interrupted().await;
            let waits = waiting.borrow_mut().end_wait(front);
            waits.then(|| cx.front_done(front, Err(Errno::EINTR)));
        }
    });
    drive(node, Fuse::new(&MountOptions::new(path), Belief::default()).unwrap(), stop)
}

/// A read that finds the pool empty waits for the replies before it, as a file system does: without any of its frames.
async fn answer(
    cx: &Cx,
    memory: &RefCell<Memory>,
    uid: u32,
    op: FileOp,
) -> Result<FileReply, Errno> {
    let FileOp::Read { file, handle, offset, bytes } = op else {
        return memory.borrow_mut().run(uid, op);
    };
    assert_eq!(file.0, handle.0);
    loop {
        let result = memory.borrow_mut().read(file, offset as usize, bytes as usize);
        if !matches!(result, Err(Errno::ENOMEM)) {
            return result;
        }
        cx.sleep(Duration::from_millis(1)).await;
    }
}

fn drive(node: Node, fuse: Fuse, stop: &AtomicBool) -> Stage {
    let watch = fuse.watch();
    let mut host = Host::new(node, WaitPolicy::Block).unwrap();
    host.add(fuse).unwrap();
    // Wakes the host now and then to look at `stop`.
    host.node().cx().spawn("clock", {
        let cx = host.node().cx().clone();
        async move {
            loop {
                cx.sleep(Duration::from_millis(10)).await;
            }
        }
    });
    host.run(|| stop.load(Ordering::Relaxed) || watch.stage() == Stage::Ended).unwrap();
    assert!(host.quiesce().unwrap());
    assert!(host.stop().unwrap());
    assert_eq!(watch.counters().mistakes, 0);
    watch.stage()
}

struct Memory {
    files: BTreeMap<FileId, File>,
    frames: Frames,
    last: u64,
    waiting: Vec<u64>,
}

#[derive(Default)]
struct File {
    attr: Attr,
    /// Content, or the target of a link.
    bytes: Vec<u8>,
    /// Name to file and cookie.
    entries: BTreeMap<Name, (FileId, u64)>,
    extended: BTreeMap<Name, Box<[u8]>>,
    opens: usize,
}

impl Memory {
    fn new(cx: &Cx) -> Memory {
        let mut memory = Memory {
            files: BTreeMap::new(),
            frames: cx.frames().clone(),
            last: 0,
            waiting: Vec::new(),
        };
        memory.make(0, FileKind::Directory, 0o755);
        memory
    }

    fn make(&mut self, uid: u32, kind: FileKind, mode: u32) -> Attr {
        self.last += 1;
        let links = if kind == FileKind::Directory { 2 } else { 0 };
        let attr = Attr { file: FileId(self.last), kind, mode, links, uid, ..Attr::default() };
        self.files.insert(attr.file, File { attr, ..File::default() });
        attr
    }

    fn end_wait(&mut self, front: u64) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|other| *other != front);
        self.waiting.len() < before
    }

    fn file(&mut self, file: FileId) -> Result<&mut File, Errno> {
        self.files.get_mut(&file).ok_or(Errno::ESTALE)
    }

    fn find(&mut self, parent: FileId, name: &Name) -> Result<FileId, Errno> {
        Ok(self.file(parent)?.entries.get(name).ok_or(Errno::ENOENT)?.0)
    }

    fn attr(&mut self, file: FileId) -> Result<Attr, Errno> {
        let file = self.file(file)?;
        file.attr.size = file.bytes.len() as u64;
        Ok(file.attr)
    }

    fn enter(&mut self, parent: FileId, name: Name, file: FileId) -> Result<Attr, Errno> {
        self.last += 1;
        let cookie = self.last;
        self.file(parent)?.entries.insert(name, (file, cookie));
        if self.attr(file)?.kind != FileKind::Directory {
            self.file(file)?.attr.links += 1;
        }
        self.attr(file)
    }

    fn leave(&mut self, parent: FileId, name: &Name) -> Result<(), Errno> {
        let (file, _) = self.file(parent)?.entries.remove(name).ok_or(Errno::ENOENT)?;
        let gone = self.file(file)?;
        gone.attr.links = gone.attr.links.saturating_sub(1);
        if gone.attr.kind != FileKind::Directory && gone.attr.links == 0 && gone.opens == 0 {
            self.files.remove(&file);
        }
        Ok(())
    }

    fn new_entry(
        &mut self,
        uid: u32,
        parent: FileId,
        name: Name,
        kind: FileKind,
        mode: u32,
    ) -> Result<Attr, Errno> {
        if self.find(parent, &name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let attr = self.make(uid, kind, mode & 0o7777);
        self.enter(parent, name, attr.file)
    }

    fn open(&mut self, file: FileId, flags: u32) -> Result<FileReply, Errno> {
        let found = self.file(file)?;
        found.opens += 1;
        if flags as i32 & libc::O_TRUNC != 0 {
            found.bytes.clear();
        }
        Ok(FileReply::Opened { handle: Handle(file.0), keep_cache: false })
    }

    fn run(&mut self, uid: u32, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Lookup { parent, name } => {
                let file = self.find(parent, &name)?;
                self.attr(file).map(FileReply::Entry)
            }
            FileOp::GetAttr { file, .. } => self.attr(file).map(FileReply::Attr),
            FileOp::SetAttr { file, changes, .. } => {
                self.change(file, &changes)?;
                self.attr(file).map(FileReply::Attr)
            }
            FileOp::Create { parent, name, mode, flags } => {
                let attr = match self.find(parent, &name) {
                    Ok(_) if flags as i32 & libc::O_EXCL != 0 => return Err(Errno::EEXIST),
                    Ok(file) => self.attr(file)?,
                    Err(_) => self.new_entry(uid, parent, name, FileKind::Regular, mode)?,
                };
                self.open(attr.file, flags)?;
                Ok(FileReply::Created { attr, handle: Handle(attr.file.0) })
            }
            FileOp::MakeDirectory { parent, name, mode } => {
                self.new_entry(uid, parent, name, FileKind::Directory, mode).map(FileReply::Entry)
            }
            FileOp::Symlink { parent, name, target } => {
                let attr = self.new_entry(uid, parent, name, FileKind::Symlink, 0o777)?;
                self.file(attr.file)?.bytes = target.into();
                self.attr(attr.file).map(FileReply::Entry)
            }
            FileOp::ReadLink { file } => Ok(FileReply::Bytes(self.file(file)?.bytes.clone())),
            FileOp::Link { file, new_parent, new_name } => {
                self.enter(new_parent, new_name, file).map(FileReply::Entry)
            }
            FileOp::Unlink { parent, name } => self.leave(parent, &name).map(|()| FileReply::Done),
            FileOp::RemoveDirectory { parent, name } => {
                let directory = self.find(parent, &name)?;
                if !self.file(directory)?.entries.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.leave(parent, &name).map(|()| FileReply::Done)
            }
            FileOp::Rename { parent, name, new_parent, new_name, flags } => {
                let file = self.find(parent, &name)?;
                if self.find(new_parent, &new_name).is_ok() {
                    if flags & libc::RENAME_NOREPLACE != 0 {
                        return Err(Errno::EEXIST);
                    }
                    self.leave(new_parent, &new_name)?;
                }
                self.enter(new_parent, new_name, file)?;
                self.leave(parent, &name).map(|()| FileReply::Done)
            }
            other => self.run_by_handle(other),
        }
    }

    fn run_by_handle(&mut self, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Open { file, flags } => self.open(file, flags),
            FileOp::OpenDirectory { file } => {
                Ok(FileReply::Opened { handle: Handle(file.0), keep_cache: false })
            }
            FileOp::Write { file, offset, data, .. } => {
                let found = self.file(file)?;
                let mut at = offset as usize;
                for part in &data {
                    let end = at + part.len();
                    found.bytes.resize(found.bytes.len().max(end), 0);
                    found.bytes[at..end].copy_from_slice(part);
                    at = end;
                }
                Ok(FileReply::Written((at - offset as usize) as u32))
            }
            FileOp::Release { file, .. } => {
                let found = self.file(file)?;
                found.opens -= 1;
                if found.opens == 0 && found.attr.links == 0 {
                    self.files.remove(&file);
                }
                Ok(FileReply::Done)
            }
            FileOp::ReadDirectory { file, cookie, bytes, with_attributes, .. } => {
                self.list(file, cookie, bytes as usize, with_attributes)
            }
            FileOp::StatFs => Ok(FileReply::Space(VolumeSpace {
                total_bytes: 1 << 30,
                free_bytes: 1 << 29,
                files: self.files.len() as u64,
                free_files: 1 << 20,
            })),
            FileOp::SetXattr { file, name, value, flags } => {
                let extended = &mut self.file(file)?.extended;
                if flags as i32 & libc::XATTR_CREATE != 0 && extended.contains_key(&name) {
                    return Err(Errno::EEXIST);
                }
                extended.insert(name, value);
                Ok(FileReply::Done)
            }
            FileOp::GetXattr { file, name } => {
                let value = self.file(file)?.extended.get(&name).ok_or(Errno::ENODATA)?;
                Ok(FileReply::Bytes(value.to_vec()))
            }
            FileOp::ListXattr { file } => {
                let names = self.file(file)?.extended.keys();
                let names = names.flat_map(|name| name.iter().copied().chain([0]));
                Ok(FileReply::Bytes(names.collect()))
            }
            FileOp::RemoveXattr { file, name } => {
                self.file(file)?.extended.remove(&name).ok_or(Errno::ENODATA)?;
                Ok(FileReply::Done)
            }
            FileOp::Flush { .. }
            | FileOp::Fsync { .. }
            | FileOp::FsyncDirectory { .. }
            | FileOp::ReleaseDirectory { .. }
            | FileOp::Interrupt { .. } => Ok(FileReply::Done),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// In frames of odd lengths, as stripe units and blocks give them.
    fn read(&mut self, file: FileId, offset: usize, bytes: usize) -> Result<FileReply, Errno> {
        let frames = self.frames.clone();
        let content = &self.file(file)?.bytes;
        let start = offset.min(content.len());
        let end = content.len().min(offset + bytes);
        let copy = |part: &[u8]| frames.copy_of(part).ok_or(Errno::ENOMEM);
        let frames = content[start..end].chunks(33_333).map(copy).collect::<Result<_, _>>()?;
        Ok(FileReply::Data { frames, bytes: end - start })
    }

    fn list(
        &mut self,
        directory: FileId,
        cookie: u64,
        bytes: usize,
        with_attributes: bool,
    ) -> Result<FileReply, Errno> {
        let entries = &self.file(directory)?.entries;
        let mut after: Vec<_> = entries
            .iter()
            .filter(|(_, (_, position))| *position > cookie)
            .map(|(name, (file, position))| (*position, *file, name.clone()))
            .collect();
        after.sort();
        let most = bytes / 32 + 1;
        let end = after.len() <= most;
        let mut entries = Vec::new();
        for (cookie, file, name) in after.into_iter().take(most) {
            let attr = self.attr(file)?;
            let (kind, attr) = (attr.kind, with_attributes.then_some(attr));
            entries.push(DirectoryEntry { file, name, kind, cookie, attr });
        }
        Ok(FileReply::Entries { entries, end })
    }

    fn change(&mut self, file: FileId, changes: &SetAttr) -> Result<(), Errno> {
        let file = self.file(file)?;
        let attr = &mut file.attr;
        let time = |time: SetTime| match time {
            SetTime::To(wall) => wall,
            SetTime::Now => Wall { seconds: 1, nanos: 0 },
        };
        changes.mode.into_iter().for_each(|mode| attr.mode = mode);
        changes.uid.into_iter().for_each(|uid| attr.uid = uid);
        changes.gid.into_iter().for_each(|gid| attr.gid = gid);
        changes.atime.into_iter().for_each(|atime| attr.atime = time(atime));
        changes.mtime.into_iter().for_each(|mtime| attr.mtime = time(mtime));
        changes.size.into_iter().for_each(|size| file.bytes.resize(size as usize, 0));
        Ok(())
    }
}
