//! A file system in one map, as the far side of the mounts' fronts: right, except for the flaw it is given. It shows
//! what the checkers find.

use node::rings::{DirectoryEntry, FileOp, FileReply, Handle, Name};
use node::{Cx, NodeConfig};
use sim::backup::Backups;
use sim::machine::Role;
use sim::run::Roles;
use sim::taking_out::TakenOut;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::{Attr, Errno, FileId, FileKind};

/// Its flaw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// One write in 50 is acknowledged and forgotten.
    LostWrite,
    /// One read in 50 returns what another place of the file holds.
    WrongPlace,
    /// Getattr never tells a size over 100,000.
    OldSize,
    /// One removal in 20 is acknowledged and forgotten.
    LostUnlink,
    /// A listing has no fourth name.
    ShortListing,
    /// One operation in 200 never ends.
    Hang,
    /// One operation in 200 fails.
    Error,
    /// A truncation leaves the bytes behind the new end to be found by the next extension.
    StaleTail,
    /// A truncation makes no file longer.
    NoExtension,
    /// A rename leaves the old name.
    HalfRename,
    /// One range of 20 that is zeroed stays as it was.
    LostZeros,
    /// One seek of 20 takes all from its place on for a hole.
    WrongHole,
}

#[derive(Default)]
struct Inode {
    bytes: Vec<u8>,
    size: usize,
    names: Option<BTreeMap<Name, FileId>>,
}

impl Inode {
    fn zero(&mut self, start: usize, bytes: usize, extends: bool, lost: bool) {
        if extends {
            self.size = self.size.max(start + bytes);
            self.bytes.resize(self.bytes.len().max(self.size), 0);
        }
        let end = self.size.min(start + bytes);
        if !lost && start < end {
            self.bytes[start..end].fill(0);
        }
    }

    fn seek(&self, offset: usize, wants_hole: bool, wrong: bool) -> Result<FileReply> {
        let bytes = &self.bytes[..self.size];
        let mut blocks = bytes.chunks(4096).zip((0..).step_by(4096)).skip(offset / 4096);
        let is_hole = |block: &[u8]| wrong || block.iter().all(|byte| *byte == 0);
        let found = blocks.find(|(block, _)| is_hole(block) == wants_hole);
        match found {
            _ if offset >= self.size => Err(Errno::ENXIO),
            None if !wants_hole => Err(Errno::ENXIO),
            _ => {
                let at = found.map_or(self.size, |(_, at)| at.max(offset));
                Ok(FileReply::Offset(at as u64))
            }
        }
    }
}

#[derive(Default)]
pub struct Disk {
    inodes: BTreeMap<FileId, Inode>,
    next: u64,
}

type Shared = Rc<RefCell<Disk>>;
type Result<T> = std::result::Result<T, Errno>;

impl Disk {
    fn inode(&mut self, file: FileId) -> Result<&mut Inode> {
        self.inodes.get_mut(&file).ok_or(Errno::ENOENT)
    }

    fn names(&mut self, file: FileId) -> Result<&mut BTreeMap<Name, FileId>> {
        self.inode(file)?.names.as_mut().ok_or(Errno::ENOTDIR)
    }

    fn attr(&mut self, file: FileId, flaw: Flaw) -> Result<Attr> {
        let inode = self.inode(file)?;
        let kind = if inode.names.is_some() { FileKind::Directory } else { FileKind::Regular };
        let size = if flaw == Flaw::OldSize { inode.size.min(100_000) } else { inode.size };
        Ok(Attr { file, kind, size: size as u64, ..Attr::default() })
    }

    fn make(&mut self, parent: FileId, name: Name, directory: bool) -> Result<FileId> {
        self.next += 1;
        let file = FileId(100 + self.next);
        let names = self.names(parent)?;
        if names.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name, file);
        let names = directory.then(BTreeMap::new);
        self.inodes.insert(file, Inode { names, ..Inode::default() });
        Ok(file)
    }

    fn answer(&mut self, cx: &Cx, op: FileOp, flaw: Flaw) -> Result<FileReply> {
        let one_in = |n: u64, wanted: Flaw| flaw == wanted && cx.random().is_multiple_of(n);
        match op {
            FileOp::Lookup { parent, name } => {
                let file = *self.names(parent)?.get(&name).ok_or(Errno::ENOENT)?;
                Ok(FileReply::Entry(self.attr(file, flaw)?))
            }
            FileOp::GetAttr { file, .. } => Ok(FileReply::Attr(self.attr(file, flaw)?)),
            FileOp::SetAttr { file, changes, .. } => {
                let inode = self.inode(file)?;
                let same = |size: u64| flaw == Flaw::NoExtension && size as usize > inode.size;
                if let Some(size) = changes.size.filter(|size| !same(*size)) {
                    inode.size = size as usize;
                    if flaw != Flaw::StaleTail {
                        inode.bytes.truncate(inode.size);
                    }
                    let longer = inode.bytes.len().max(inode.size);
                    inode.bytes.resize(longer, 0);
                }
                Ok(FileReply::Attr(self.attr(file, flaw)?))
            }
            FileOp::MakeDirectory { parent, name, .. } => {
                let file = self.make(parent, name, true)?;
                Ok(FileReply::Entry(self.attr(file, flaw)?))
            }
            FileOp::Create { parent, name, .. } => {
                let file = self.make(parent, name, false)?;
                Ok(FileReply::Created { attr: self.attr(file, flaw)?, handle: Handle(file.0) })
            }
            FileOp::Unlink { parent, name } | FileOp::RemoveDirectory { parent, name } => {
                let names = self.names(parent)?;
                if !names.contains_key(&name) {
                    return Err(Errno::ENOENT);
                }
                if !one_in(20, Flaw::LostUnlink) {
                    names.remove(&name);
                }
                Ok(FileReply::Done)
            }
            FileOp::Rename { parent, name, new_parent, new_name, .. } => {
                let names = self.names(parent)?;
                let file = *names.get(&name).ok_or(Errno::ENOENT)?;
                if flaw != Flaw::HalfRename {
                    names.remove(&name);
                }
                self.names(new_parent)?.insert(new_name, file);
                Ok(FileReply::Done)
            }
            FileOp::Open { file, .. } | FileOp::OpenDirectory { file } => {
                self.inode(file)?;
                Ok(FileReply::Opened { handle: Handle(file.0), keep_cache: false })
            }
            FileOp::Read { file, offset, bytes, .. } => {
                let shift = if one_in(50, Flaw::WrongPlace) { 8192 } else { 0 };
                let inode = self.inode(file)?;
                let start = (offset as usize + shift).min(inode.size);
                let data = &inode.bytes[start..inode.size.min(start + bytes as usize)];
                let frame = cx.frames().copy_of(data).ok_or(Errno::ENOMEM)?;
                Ok(FileReply::Data { bytes: frame.len(), frames: vec![frame] })
            }
            FileOp::Write { file, offset, data, .. } => {
                let all: Vec<u8> = data.iter().flat_map(|frame| frame.iter().copied()).collect();
                let lost = one_in(50, Flaw::LostWrite);
                let inode = self.inode(file)?;
                let (start, end) = (offset as usize, offset as usize + all.len());
                if !lost {
                    let longer = inode.bytes.len().max(end);
                    inode.bytes.resize(longer, 0);
                    inode.bytes[start..end].copy_from_slice(&all);
                    inode.size = inode.size.max(end);
                }
                Ok(FileReply::Written(all.len() as u32))
            }
            FileOp::Allocate { file, offset, bytes, mode, .. } => {
                let lost = one_in(20, Flaw::LostZeros);
                self.inode(file)?.zero(offset as usize, bytes as usize, mode & 1 == 0, lost);
                Ok(FileReply::Done)
            }
            FileOp::Seek { file, offset, whence, .. } => {
                let wrong = one_in(20, Flaw::WrongHole);
                self.inode(file)?.seek(offset as usize, whence == 4, wrong)
            }
            FileOp::ReadDirectory { file, cookie, .. } => {
                let all = self.names(file)?.clone();
                let left = all.len().saturating_sub(cookie as usize);
                let page = all.into_iter().enumerate().skip(cookie as usize).take(3);
                let page = page.filter(|(at, _)| flaw != Flaw::ShortListing || *at != 3);
                let entries = page.map(|(at, (name, file))| {
                    let (kind, cookie) = (FileKind::Regular, at as u64 + 1);
                    DirectoryEntry { file, name, kind, cookie, attr: None }
                });
                Ok(FileReply::Entries { entries: entries.collect(), end: left <= 3 })
            }
            FileOp::Flush { .. }
            | FileOp::Release { .. }
            | FileOp::Fsync { .. }
            | FileOp::FsyncDirectory { .. }
            | FileOp::ReleaseDirectory { .. } => Ok(FileReply::Done),
            other => panic!("workers never ask for {other:?}"),
        }
    }
}

async fn serve(cx: Cx, disk: Shared, flaw: Flaw) {
    loop {
        let request = cx.front().await;
        cx.sleep(Duration::from_micros(100 + cx.random() % 400)).await;
        let unlucky = cx.random().is_multiple_of(200);
        if flaw == Flaw::Hang && unlucky {
            continue;
        }
        let result = if flaw == Flaw::Error && unlucky {
            Err(Errno::EIO)
        } else {
            disk.borrow_mut().answer(&cx, request.op, flaw)
        };
        cx.front_done(request.front, result);
    }
}

/// Mounts of such a file system; servers and manager do nothing.
pub fn roles(flaw: Flaw) -> Roles {
    let disk = Shared::default();
    let root = Inode { names: Some(BTreeMap::new()), ..Inode::default() };
    disk.borrow_mut().inodes.insert(FileId::ROOT, root);
    let idle: Role = Rc::new(|_| Ok(Box::new(())));
    let mount: Role = Rc::new(move |boot| {
        for _ in 0..8 {
            boot.cx.spawn("front", serve(boot.cx.clone(), disk.clone(), flaw));
        }
        Ok(Box::new(()))
    });
    let bugs = NodeConfig::new(wire::NodeId(1), 0, 0).bugs;
    let (manager, more_manager, server) = (idle.clone(), idle.clone(), idle.clone());
    let (front, backups, taken_out) = (idle, Backups::default(), TakenOut::default());
    let (copies, importer) = (None, None);
    Roles {
        manager,
        more_manager,
        server,
        mount,
        front,
        importer,
        bugs,
        backups,
        taken_out,
        copies,
    }
}
