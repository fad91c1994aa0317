//! A file system in memory behind the front ring's operations: as much of one as NFSv3 asks.

use endpoint::Frames;
use node::rings::{Caller, DirectoryEntry, FileOp, FileReply, Handle, Name, Rights, VolumeSpace};
use std::collections::BTreeMap;
use wire::{Attr, Errno, FileId, FileKind, ListingVersion, NodeId, SetAttr, SetTime, Wall, Wcc};

#[derive(Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    names: BTreeMap<Vec<u8>, (FileId, u64)>,
    position: u64,
    parent: FileId,
    verifier: Option<[u8; 8]>,
}

/// The file system, and what was done to it.
pub struct Memory {
    nodes: BTreeMap<FileId, Node>,
    next: u64,
    clock: i64,
    opened: BTreeMap<Handle, FileId>,
    frames: Frames,
    /// Directories whose names were synced, files that were.
    pub synced: Vec<FileId>,
    /// Answer to the next change of a name, which is not made.
    pub busy: Option<Errno>,
    /// Answer to the next sync.
    pub broken: Option<Errno>,
    /// Changes of names that were executed.
    pub changes: usize,
    /// Listings, and those of them that were as the server had them.
    pub listed: usize,
    pub unchanged: usize,
}

impl Memory {
    pub fn new(frames: Frames) -> Memory {
        let attr = Attr {
            file: FileId::ROOT,
            kind: FileKind::Directory,
            mode: 0o777,
            links: 2,
            ..Attr::default()
        };
        let root = Node { attr, position: 3, parent: FileId::ROOT, ..Node::default() };
        let nodes = BTreeMap::from([(FileId::ROOT, root)]);
        let opened = BTreeMap::new();
        Memory {
            nodes,
            next: 2,
            clock: 1,
            opened,
            frames,
            synced: Vec::new(),
            busy: None,
            broken: None,
            changes: 0,
            listed: 0,
            unchanged: 0,
        }
    }

    pub fn open_handles(&self) -> usize {
        self.opened.len()
    }

    fn node(&mut self, file: FileId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&file).ok_or(Errno::ESTALE)
    }

    fn attr(&mut self, file: FileId) -> Result<Attr, Errno> {
        let node = self.node(file)?;
        if node.attr.kind == FileKind::Regular {
            node.attr.size = node.data.len() as u64;
        }
        Ok(node.attr)
    }

    fn touch(&mut self, file: FileId) {
        self.clock += 1;
        let time = Wall { seconds: self.clock, nanos: 0 };
        if let Some(node) = self.nodes.get_mut(&file) {
            (node.attr.mtime, node.attr.ctime) = (time, time);
            node.attr.change += 1;
        }
    }

    fn find(&mut self, parent: FileId, name: &[u8]) -> Result<FileId, Errno> {
        let node = self.node(parent)?;
        if node.attr.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        match name {
            b"." => Ok(parent),
            b".." => Ok(node.parent),
            _ => node.names.get(name).map(|(file, _)| *file).ok_or(Errno::ENOENT),
        }
    }

    fn add(&mut self, parent: FileId, name: &[u8], file: FileId) -> Result<(), Errno> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let node = self.node(parent)?;
        node.position += 1;
        let position = node.position;
        node.names.insert(name.to_vec(), (file, position));
        self.touch(parent);
        self.changes += 1;
        Ok(())
    }

    fn make(
        &mut self,
        caller: &Caller,
        (parent, name): (FileId, Name),
        kind: FileKind,
        mode: u32,
    ) -> Result<Attr, Errno> {
        if let Some(errno) = self.busy.take() {
            return Err(errno);
        }
        match self.find(parent, &name) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let file = FileId(self.next);
        let (uid, gid) = (caller.uid, caller.gid);
        let attr = Attr { file, kind, mode: mode & 0o7777, links: 1, uid, gid, ..Attr::default() };
        self.add(parent, &name, file)?;
        self.next += 1;
        self.nodes.insert(file, Node { attr, position: 3, parent, ..Node::default() });
        self.touch(file);
        self.node(file)?.attr.change = 0;
        self.attr(file)
    }

    fn remove(&mut self, parent: FileId, name: &[u8], directory: bool) -> Result<(), Errno> {
        let file = self.find(parent, name)?;
        let node = self.node(file)?;
        let is_directory = node.attr.kind == FileKind::Directory;
        match (directory, is_directory) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ if !node.names.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        node.attr.links -= 1;
        if node.attr.links == 0 || is_directory {
            self.nodes.remove(&file);
        }
        self.node(parent)?.names.remove(name);
        self.touch(parent);
        self.changes += 1;
        Ok(())
    }

    fn set(&mut self, file: FileId, changes: SetAttr) -> Result<FileReply, Errno> {
        self.touch(file);
        let now = Wall { seconds: self.clock, nanos: 0 };
        let node = self.node(file)?;
        let time = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        changes.mode.inspect(|mode| node.attr.mode = *mode);
        changes.uid.inspect(|uid| node.attr.uid = *uid);
        changes.gid.inspect(|gid| node.attr.gid = *gid);
        changes.size.inspect(|size| node.data.resize(*size as usize, 0));
        changes.atime.inspect(|atime| node.attr.atime = time(*atime));
        changes.mtime.inspect(|mtime| node.attr.mtime = time(*mtime));
        self.attr(file).map(FileReply::Attr)
    }

    fn permissions(&mut self, caller: &Caller, file: FileId) -> Result<FileReply, Errno> {
        let attr = self.attr(file)?;
        let is_of = |gid: u32| match &caller.rights {
            Rights::Groups(groups) => groups.chunks(4).any(|group| group == gid.to_le_bytes()),
            Rights::Kernel => true,
        };
        let shift = match () {
            () if caller.uid == attr.uid => 6,
            () if caller.gid == attr.gid || is_of(attr.gid) => 3,
            () => 0,
        };
        let granted = if caller.uid == 0 { 7 } else { attr.mode >> shift & 7 };
        Ok(FileReply::Permissions(attr, granted))
    }

    /// Does what is asked on stable storage, and says what it changed.
    fn serve_with_wcc(
        &mut self,
        caller: &Caller,
        op: FileOp,
        guard: Option<Wall>,
    ) -> Result<FileReply, Errno> {
        let (files, is_change) = match &op {
            FileOp::Lookup { parent, .. } => (vec![*parent], false),
            FileOp::ListDirectory { file, .. } => (vec![*file], false),
            FileOp::SetAttr { file, .. } => (vec![*file], true),
            FileOp::Rename { parent, new_parent, .. } if parent != new_parent => {
                (vec![*parent, *new_parent], true)
            }
            FileOp::Symlink { parent, .. }
            | FileOp::MakeNode { parent, .. }
            | FileOp::MakeDirectory { parent, .. }
            | FileOp::CreateExclusive { parent, .. }
            | FileOp::Rename { parent, .. }
            | FileOp::Link { new_parent: parent, .. }
            | FileOp::Unlink { parent, .. }
            | FileOp::RemoveDirectory { parent, .. } => (vec![*parent], true),
            op => panic!("nothing is known of what {op:?} changes"),
        };
        let before = files.iter().map(|file| self.attr(*file)).collect::<Result<Vec<_>, _>>()?;
        if guard.is_some_and(|guard| before[0].ctime != guard) {
            return Err(Errno::EBADE);
        }
        let reply = self.serve(caller, op)?;
        if is_change {
            let synced = files.iter().try_for_each(|file| self.sync(*file).map(drop));
            // it was made: who asks again would find it so
            synced.map_err(|_| Errno::EIO)?;
        }
        let changed = files.iter().zip(before).map(|(file, before)| {
            Ok(Wcc { before: is_change.then_some(before), after: self.attr(*file)? })
        });
        let changed = changed.collect::<Result<Vec<_>, Errno>>()?;
        Ok(FileReply::WithWcc(Box::new(reply), changed))
    }

    fn open(&mut self, file: FileId) -> Result<Handle, Errno> {
        self.node(file)?;
        self.clock += 1;
        let handle = Handle(self.clock as u64);
        self.opened.insert(handle, file);
        Ok(handle)
    }

    fn sync(&mut self, file: FileId) -> Result<FileReply, Errno> {
        self.synced.push(file);
        self.broken.take().map_or(Ok(FileReply::Done), Err)
    }

    fn list(
        &mut self,
        file: FileId,
        cookie: u64,
        bytes: u32,
        plus: bool,
        known: Option<ListingVersion>,
    ) -> Result<FileReply, Errno> {
        let node = self.node(file)?;
        let mut names: Vec<(u64, Vec<u8>, FileId)> =
            vec![(1, b".".to_vec(), file), (2, b"..".to_vec(), file)];
        names.extend(
            node.names.iter().map(|(name, (file, position))| (*position, name.clone(), *file)),
        );
        names.retain(|(position, ..)| *position > cookie);
        names.sort();
        let most = (bytes / 40).max(1) as usize;
        let end = names.len() <= most;
        let mut entries = Vec::new();
        for (cookie, name, file) in names.into_iter().take(most) {
            let attr = self.attr(file)?;
            let (name, kind, attr) = (name.into(), attr.kind, plus.then_some(attr));
            entries.push(DirectoryEntry { file, name, kind, cookie, attr });
        }
        let all = format!("{entries:?} {end} {:?}", self.attr(file)?);
        let number = u64::from(wire::checksum::crc32c(all.as_bytes()));
        let version = Some(ListingVersion { manager: NodeId(1), incarnation: 1, number });
        self.listed += 1;
        if known == version {
            self.unchanged += 1;
            return Ok(FileReply::Unchanged);
        }
        Ok(FileReply::Listed { entries, end, version })
    }

    /// Does what the ring asks.
    pub fn serve(&mut self, caller: &Caller, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Lookup { parent, name } => {
                let file = self.find(parent, &name)?;
                self.attr(file).map(FileReply::Entry)
            }
            FileOp::GetAttr { file, .. } => self.attr(file).map(FileReply::Attr),
            FileOp::SetAttr { file, changes, .. } => self.set(file, changes),
            FileOp::Permissions { file } => self.permissions(caller, file),
            FileOp::WithWcc { op, guard, .. } => self.serve_with_wcc(caller, *op, guard),
            FileOp::ReadLink { file } => Ok(FileReply::Bytes(self.node(file)?.data.clone())),
            FileOp::Symlink { parent, name, target } => {
                let attr = self.make(caller, (parent, name), FileKind::Symlink, 0o777)?;
                self.node(attr.file)?.data = target.into();
                Ok(FileReply::Entry(attr))
            }
            FileOp::MakeNode { parent, name, mode, rdev } => {
                let kind = FileKind::of_mode(mode).ok_or(Errno::EINVAL)?;
                let attr = self.make(caller, (parent, name), kind, mode)?;
                self.node(attr.file)?.attr.rdev = rdev;
                self.attr(attr.file).map(FileReply::Entry)
            }
            FileOp::MakeDirectory { parent, name, mode } => {
                self.make(caller, (parent, name), FileKind::Directory, mode).map(FileReply::Entry)
            }
            FileOp::Unlink { parent, name } => {
                self.remove(parent, &name, false).map(|()| FileReply::Done)
            }
            FileOp::RemoveDirectory { parent, name } => {
                self.remove(parent, &name, true).map(|()| FileReply::Done)
            }
            FileOp::CreateExclusive { parent, name, mode, verifier } => {
                if let Ok(file) = self.find(parent, &name) {
                    let is_known = self.node(file)?.verifier == Some(verifier);
                    let attr = self.attr(file)?;
                    return is_known.then_some(FileReply::Entry(attr)).ok_or(Errno::EEXIST);
                }
                let attr = self.make(caller, (parent, name), FileKind::Regular, mode)?;
                self.node(attr.file)?.verifier = Some(verifier);
                Ok(FileReply::Entry(attr))
            }
            FileOp::Create { parent, name, mode, .. } => {
                let attr = self.make(caller, (parent, name), FileKind::Regular, mode)?;
                Ok(FileReply::Created { attr, handle: self.open(attr.file)? })
            }
            op => self.serve_more(op),
        }
    }

    fn serve_more(&mut self, op: FileOp) -> Result<FileReply, Errno> {
        match op {
            FileOp::Rename { parent, name, new_parent, new_name, .. } => {
                let file = self.find(parent, &name)?;
                self.node(parent)?.names.remove(&name[..]);
                self.touch(parent);
                self.add(new_parent, &new_name, file).map(|()| FileReply::Done)
            }
            FileOp::Link { file, new_parent, new_name } => {
                if self.find(new_parent, &new_name).is_ok() {
                    return Err(Errno::EEXIST);
                }
                self.node(file)?.attr.links += 1;
                self.add(new_parent, &new_name, file)?;
                self.attr(file).map(FileReply::Entry)
            }
            FileOp::Open { file, .. } => {
                Ok(FileReply::Opened { handle: self.open(file)?, keep_cache: false })
            }
            FileOp::Release { handle, .. } => {
                self.opened.remove(&handle).map(|_| FileReply::Done).ok_or(Errno::EBADF)
            }
            FileOp::Read { file, handle, offset, bytes } => {
                assert_eq!(self.opened.get(&handle), Some(&file));
                let data = &self.node(file)?.data;
                let from = data.len().min(offset as usize);
                let part = data[from..data.len().min(from + bytes as usize)].to_vec();
                let bytes = part.len();
                if bytes == 0 {
                    return Ok(FileReply::Data { frames: Vec::new(), bytes });
                }
                let frame = self.frames.copy_of(&part).ok_or(Errno::ENOMEM)?;
                Ok(FileReply::Data { frames: vec![frame], bytes })
            }
            FileOp::Write { file, handle, offset, data, .. } => {
                assert_eq!(self.opened.get(&handle), Some(&file));
                let bytes: Vec<u8> = data.iter().flat_map(|frame| frame.to_vec()).collect();
                let its = &mut self.node(file)?.data;
                let end = offset as usize + bytes.len();
                its.resize(its.len().max(end), 0);
                its[offset as usize..end].copy_from_slice(&bytes);
                self.touch(file);
                Ok(FileReply::Written(bytes.len() as u32))
            }
            FileOp::Fsync { file, .. } | FileOp::FsyncDirectory { file } => self.sync(file),
            FileOp::ListDirectory { file, cookie, bytes, with_attributes, known } => {
                self.list(file, cookie, bytes, with_attributes, known)
            }
            FileOp::StatFs => {
                let files = self.nodes.len() as u64;
                Ok(FileReply::Space(VolumeSpace {
                    total_bytes: 1000,
                    free_bytes: 900,
                    files,
                    free_files: 5,
                }))
            }
            op => panic!("NFS asks no {op:?}"),
        }
    }
}
