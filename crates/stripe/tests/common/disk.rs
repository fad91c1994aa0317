//! A disk that forgets, when it crashes, some of what was not synchronised.

use endpoint::FrameMut;
use node::rings::*;
use std::collections::{BTreeMap, BTreeSet};
use wire::Errno;

const SECTOR: usize = 512;

#[derive(Clone, Default)]
struct File {
    now: Option<Vec<u8>>,
    stable: Option<Vec<u8>>,
}

#[derive(Clone, Default)]
pub struct Disk {
    files: BTreeMap<DiskFile, File>,
    pub capacity: Option<usize>,
    /// The file system that it shares with the others that have this number; 0 is one of its own.
    pub device: u64,
    /// Bytes that other programs take.
    pub others: usize,
    pub read_only: bool,
    pub missing: bool,
    /// It refuses to make files shorter or longer.
    pub keeps_lengths: bool,
    /// Blocks of files, by their offsets, that cannot be read until they are written.
    pub bad: BTreeSet<(DiskFile, u64)>,
    /// Operations that it answers with EIO, or with another error.
    pub refusal: Option<Errno>,
    pub refuses: Option<fn(&DiskOp) -> bool>,
    /// Reads that bad blocks made fail.
    pub bad_reads: usize,
    pub reads: usize,
    pub read_bytes: usize,
    pub written_bytes: usize,
    pub syncs: usize,
    random: u64,
}

fn put(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    if bytes.len() < offset + data.len() {
        bytes.resize(offset + data.len(), 0);
    }
    bytes[offset..offset + data.len()].copy_from_slice(data);
}

fn is_hole(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// Bytes that a file takes: blocks of zeros take none.
fn taken(bytes: &[u8]) -> u64 {
    4096 * bytes.chunks(4096).filter(|block| !is_hole(block)).count() as u64
}

impl Disk {
    pub fn new(seed: u64) -> Disk {
        Disk { random: seed | 1, ..Disk::default() }
    }

    pub fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    pub fn bytes_mut(&mut self, file: DiskFile) -> &mut Vec<u8> {
        self.files.get_mut(&file).unwrap().now.as_mut().unwrap()
    }

    pub fn objects(&self) -> Vec<DiskFile> {
        let live = self.files.iter().filter(|(_, file)| file.now.is_some());
        live.map(|(name, _)| *name).filter(|name| matches!(name, DiskFile::Object(_))).collect()
    }

    pub fn files(&self) -> impl Iterator<Item = DiskFile> + '_ {
        self.files.iter().filter(|(_, file)| file.now.is_some()).map(|(name, _)| *name)
    }

    pub fn bytes(&self, file: DiskFile) -> Option<&[u8]> {
        self.files.get(&file)?.now.as_deref()
    }

    /// A file is gone, and no crash brings it back.
    pub fn lose(&mut self, file: DiskFile) {
        self.files.remove(&file);
    }

    /// A file is there as it was some time ago, or as nothing.
    pub fn restore(&mut self, file: DiskFile, bytes: Vec<u8>) {
        let entry = self.files.entry(file).or_default();
        (entry.now, entry.stable) = (Some(bytes.clone()), Some(bytes));
    }

    pub fn sync_all(&mut self) {
        self.files.values_mut().for_each(|file| file.stable = file.now.clone());
    }

    /// Another program takes every byte that is free.
    pub fn fill_by_others(&mut self) {
        let capacity = self.capacity.expect("a disk of some size");
        self.others += capacity.saturating_sub(self.used());
    }

    /// Nothing new fits from now on.
    pub fn fill(&mut self) {
        self.capacity = Some(self.used());
    }

    fn used(&self) -> usize {
        let files = self.files.values().filter_map(|file| file.now.as_ref());
        self.others + files.map(|bytes| taken(bytes)).sum::<u64>() as usize
    }

    /// Bytes that a write takes besides those that the file has there.
    fn added(&self, file: DiskFile, offset: usize, bytes: usize) -> usize {
        let now = self.files.get(&file).and_then(|file| file.now.as_deref()).unwrap_or(&[]);
        let blocks = offset / 4096..(offset + bytes).div_ceil(4096);
        let holes = blocks.filter(|block| {
            let there = now.get(block * 4096..).unwrap_or(&[]);
            is_hole(&there[..there.len().min(4096)])
        });
        holes.count() * 4096
    }

    /// Loses power: of every sector that was not synchronised, the old or the new contents are left.
    pub fn crash(&mut self) {
        let names: Vec<DiskFile> = self.files.keys().copied().collect();
        for name in names {
            let file = self.files[&name].clone();
            let left = if file.now == file.stable { file.now } else { self.mix(file) };
            self.files.insert(name, File { now: left.clone(), stable: left });
        }
    }

    fn mix(&mut self, file: File) -> Option<Vec<u8>> {
        if file.now.is_none() || file.stable.is_none() {
            let gone = self.random(3) == 0;
            if gone || file.now.is_none() {
                return if self.random(2) == 0 { file.stable } else { file.now };
            }
        }
        let (new, old) = (file.now.unwrap(), file.stable.unwrap_or_default());
        let length = if self.random(2) == 0 { new.len() } else { old.len() };
        let (all, none) = (self.random(4) == 0, self.random(4) == 0);
        let mut out = vec![0; length];
        for (index, sector) in out.chunks_mut(SECTOR).enumerate() {
            let takes_new = all || (!none && self.random(2) == 0);
            let from = if takes_new { &new } else { &old };
            let bytes = from.get(index * SECTOR..).unwrap_or(&[]);
            let count = bytes.len().min(sector.len());
            sector[..count].copy_from_slice(&bytes[..count]);
        }
        Some(out)
    }

    /// An operation that was under way at the crash: done in part, or not at all.
    pub fn cut_short(&mut self, op: DiskOp) {
        if let DiskOp::Write { file, offset, data, .. } = op {
            if self.random(2) == 0 {
                let _ = self.run(DiskOp::Write { file, offset, data, durable: false });
            }
        }
    }

    pub fn run(&mut self, op: DiskOp) -> Result<DiskReply, DiskError> {
        if self.missing {
            return Err(DiskError::Missing);
        }
        let changes = !matches!(
            op,
            DiskOp::Read { .. } | DiskOp::Stat { .. } | DiskOp::List(_) | DiskOp::Space
        );
        if changes && self.read_only {
            return Err(DiskError::ReadOnly);
        }
        if self.refuses.is_some_and(|refuses| refuses(&op)) {
            return Err(DiskError::Failed(self.refusal.unwrap_or(Errno::EIO)));
        }
        match op {
            DiskOp::Read { file, offset, into } => self.read(file, offset as usize, into),
            DiskOp::Write { file, offset, data, durable } => {
                self.write(file, offset as usize, &data, durable)
            }
            DiskOp::Sync { file } => self.sync(file),
            DiskOp::Truncate { .. } if self.keeps_lengths => Err(DiskError::Failed(Errno::EIO)),
            DiskOp::Truncate { file, bytes } => {
                self.bad.retain(|(bad, at)| *bad != file || *at < bytes);
                let now = self.files.entry(file).or_default().now.as_mut();
                now.ok_or(DiskError::NotFound)?.resize(bytes as usize, 0);
                Ok(DiskReply::Done)
            }
            DiskOp::FindData { file, offset, bytes } => {
                let now = self.files.entry(file).or_default().now.as_ref();
                let now = now.ok_or(DiskError::NotFound)?;
                Ok(DiskReply::Data(rig::holes::find_data(now, offset, bytes)))
            }
            DiskOp::Punch { file, offset, bytes } => {
                let now = self.files.entry(file).or_default().now.as_mut();
                let now = now.ok_or(DiskError::NotFound)?;
                rig::holes::punch(now, offset, bytes);
                Ok(DiskReply::Done)
            }
            DiskOp::Remove { file } => {
                self.bad.retain(|(bad, _)| *bad != file);
                self.files.entry(file).or_default().now = None;
                Ok(DiskReply::Done)
            }
            DiskOp::Stat { file, without } => {
                let now = self.files.get(&file).and_then(|file| file.now.as_ref());
                let now = now.ok_or(DiskError::NotFound)?;
                let within =
                    without.into_iter().map(|(at, bytes)| rig::holes::stored(now, at, bytes));
                let used = taken(now) - within.sum::<u64>();
                Ok(DiskReply::Stat { bytes: now.len() as u64, used, changed: 0 })
            }
            DiskOp::List(listing) => Ok(DiskReply::Files(self.list(listing))),
            DiskOp::Space => {
                let total = self.capacity.unwrap_or(1 << 30) as u64;
                let free = total.saturating_sub(self.used() as u64);
                Ok(DiskReply::Space { total, free, device: self.device })
            }
            DiskOp::Rename { from, to } => self.rename(from, to),
            DiskOp::SyncAll => {
                self.syncs += 1;
                self.sync_all();
                Ok(DiskReply::Done)
            }
        }
    }

    fn read(
        &mut self,
        file: DiskFile,
        offset: usize,
        mut into: FrameMut,
    ) -> Result<DiskReply, DiskError> {
        let now = self.files.get(&file).and_then(|file| file.now.as_ref());
        let bytes = now.ok_or(DiskError::NotFound)?.get(offset..).unwrap_or(&[]);
        let count = bytes.len().min(into.len());
        let end = (offset + into.len()) as u64;
        if self.bad.range((file, offset as u64)..(file, end)).next().is_some() {
            self.bad_reads += 1;
            return Err(DiskError::Failed(Errno::EIO));
        }
        into.fill(0xee);
        into[..count].copy_from_slice(&bytes[..count]);
        self.reads += 1;
        self.read_bytes += count;
        Ok(DiskReply::Read { into, bytes: count })
    }

    fn write(
        &mut self,
        file: DiskFile,
        offset: usize,
        data: &[u8],
        durable: bool,
    ) -> Result<DiskReply, DiskError> {
        let added = self.added(file, offset, data.len());
        if added > 0 && self.capacity.is_some_and(|capacity| self.used() + added > capacity) {
            // There was room for the name.
            self.files.entry(file).or_default().now.get_or_insert_default();
            return Err(DiskError::NoSpace);
        }
        self.written_bytes += data.len();
        let end = (offset + data.len()) as u64;
        self.bad.retain(|(bad, at)| *bad != file || *at < offset as u64 || *at >= end);
        let file = self.files.entry(file).or_default();
        put(file.now.get_or_insert_default(), offset, data);
        if durable {
            put(file.stable.get_or_insert_default(), offset, data);
        }
        Ok(DiskReply::Done)
    }

    fn sync(&mut self, file: DiskFile) -> Result<DiskReply, DiskError> {
        self.syncs += 1;
        let file = self.files.get_mut(&file).filter(|file| file.now.is_some());
        let file = file.ok_or(DiskError::NotFound)?;
        file.stable = file.now.clone();
        self.files
            .values_mut()
            .filter(|file| file.now.is_none())
            .for_each(|file| file.stable = None);
        Ok(DiskReply::Done)
    }

    /// A renaming is at once stable here, and what was stable under the old name moves with it: a real disk may do so,
    /// and the crashes between are those of removals.
    fn rename(&mut self, from: DiskFile, to: DiskFile) -> Result<DiskReply, DiskError> {
        if self.files.get(&from).is_none_or(|file| file.now.is_none()) {
            return Err(DiskError::NotFound);
        }
        let file = self.files.remove(&from).expect("just found");
        self.files.insert(to, file);
        Ok(DiskReply::Done)
    }

    fn list(&self, listing: DiskListing) -> Vec<DiskFile> {
        let live = self.files.iter().filter(|(_, file)| file.now.is_some()).map(|(name, _)| *name);
        match listing {
            DiskListing::Logs => live.filter(|name| matches!(name, DiskFile::Log(_))).collect(),
            DiskListing::Objects { after, count } => live
                .filter(|name| matches!(name, DiskFile::Object(id) if Some(*id) > after))
                .take(count)
                .collect(),
            DiskListing::Quarantined => Vec::new(),
        }
    }
}
