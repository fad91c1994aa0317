//! A manager over a store in memory, whose log records are kept as a world would.
#![allow(dead_code)] // each test file uses its part

pub mod array;
pub mod cluster;

use names::{CallName, Entry, How, Manager, Origin, Plus, STORE, Transaction, VolumeSettings, Who};
use std::cell::RefCell;
use std::rc::Rc;
use store::{Append, MemoryBackend, MemoryLogs, Store};
use wire::{Errno, FileId, NodeId, Time, VolumeId, Wall};

/// Result of a task of a node.
pub type Output<T> = Rc<RefCell<Option<T>>>;

/// Takes turns of a millisecond until a task has ended.
pub fn finish<T>(output: Output<T>, mut turn: impl FnMut()) -> T {
    for _ in 0..120_000 {
        if let Some(value) = output.take() {
            return value;
        }
        turn();
    }
    panic!("not done after two minutes");
}

pub const ROOT: FileId = FileId::ROOT;
pub const CLIENT: u64 = 77;

pub fn config() -> store::Config {
    store::Config::new(STORE.kind, STORE.version)
}

pub struct World {
    pub manager: Manager,
    pub backend: MemoryBackend,
    pub logs: MemoryLogs,
    pub now: Wall,
    pub incarnation: u64,
    /// Some directories that the model makes are hashed.
    pub hashes: bool,
}

impl World {
    pub fn new() -> World {
        World::with(&VolumeSettings::new(VolumeId(1)))
    }

    pub fn with(settings: &VolumeSettings) -> World {
        let (backend, mut logs) = (MemoryBackend::new(), MemoryLogs::new());
        let store = Store::open(backend.clone(), config(), []).unwrap();
        let now = Wall { seconds: 1000, nanos: 0 };
        let (mut manager, first) = Manager::open(store, settings, now, Time(0), 1).unwrap();
        let first = first.unwrap();
        logs.append(first.log, &first.bytes);
        manager.set_servers(&[1, 2, 3].map(|id| names::IoServer::from(NodeId(id))));
        manager.hear(CLIENT, Time(0));
        World { manager, backend, logs, now, incarnation: 1, hashes: false }
    }

    fn tick(&mut self) -> Wall {
        self.now.nanos += 1000;
        self.now
    }

    pub fn keep(&mut self, append: Option<Append>) {
        if let Some(append) = append {
            self.logs.append(append.log, &append.bytes);
        }
    }

    pub fn change_of<T>(
        &mut self,
        client: u64,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let now = self.tick();
        self.manager.hear(client, Time(0));
        let (value, append) = self.manager.change(Origin { client, now }, operation)?;
        self.keep(append);
        Ok(value)
    }

    pub fn change<T>(
        &mut self,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.change_of(CLIENT, operation)
    }

    pub fn once(
        &mut self,
        slot: u16,
        sequence: u32,
        operation: impl FnOnce(&mut Transaction<'_>) -> Result<Vec<u8>, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        let origin = Origin { client: CLIENT, now: self.tick() };
        let call = CallName { site: 0, slot, sequence, duplicates: None, imports: false };
        let once = self.manager.change_once(origin, call, operation, |reply| reply)?;
        self.keep(once.append);
        Ok(once.reply)
    }

    pub fn read<T>(&self, operation: impl FnOnce(&Transaction<'_>) -> T) -> T {
        self.manager.read(CLIENT, operation)
    }

    pub fn get(&self, file: FileId) -> Result<Entry, Errno> {
        self.read(|t| t.get_attr(file))
    }

    pub fn find(&self, path: &str) -> Result<Entry, Errno> {
        let start = self.get(ROOT)?;
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(start, |at, name| {
            self.read(|t| t.lookup(&Who::ROOT, at.attr.file, name.as_bytes()))
        })
    }

    pub fn mkdir(&mut self, who: &Who<'_>, path: &str, mode: u32) -> Result<FileId, Errno> {
        let (parent, name) = self.split(path)?;
        let entry = self.change(|t| t.make_directory(who, parent, name.as_bytes(), mode))?;
        Ok(entry.attr.file)
    }

    pub fn touch(&mut self, who: &Who<'_>, path: &str, mode: u32) -> Result<FileId, Errno> {
        let (parent, name) = self.split(path)?;
        let create = |t: &mut Transaction<'_>| {
            t.create(who, parent, name.as_bytes(), mode, How::Guarded, None)
        };
        Ok(self.change(create)?.0.attr.file)
    }

    pub fn unlink(&mut self, who: &Who<'_>, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.split(path)?;
        self.change(|t| t.unlink(who, parent, name.as_bytes()))
    }

    pub fn rmdir(&mut self, who: &Who<'_>, path: &str) -> Result<(), Errno> {
        let (parent, name) = self.split(path)?;
        self.change(|t| t.remove_directory(who, parent, name.as_bytes()))
    }

    pub fn rename(&mut self, who: &Who<'_>, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
        let ((parent, name), (new_parent, new_name)) = (self.split(from)?, self.split(to)?);
        let from = names::DirectoryEntry { parent, name: name.as_bytes() };
        let to = names::DirectoryEntry { parent: new_parent, name: new_name.as_bytes() };
        self.change(|t| t.rename(who, from, to, flags))
    }

    pub fn split<'p>(&self, path: &'p str) -> Result<(FileId, &'p str), Errno> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(parent)?.attr.file, name))
    }

    /// All entries of a directory, without dots, read in parts of `bytes`.
    pub fn list(&self, directory: FileId, bytes: usize) -> Vec<(Vec<u8>, FileId)> {
        let (mut cookie, mut all) = (0, Vec::new());
        loop {
            let listing = self
                .read(|t| t.read_directory(&Who::ROOT, directory, cookie, bytes, Plus::Nothing))
                .unwrap();
            for entry in &listing.entries {
                cookie = entry.cookie;
                all.push((entry.name.to_vec(), entry.file));
            }
            if listing.end {
                return all.split_off(2);
            }
        }
    }

    /// A checkpoint, as the world runs it.
    pub fn checkpoint(&mut self) {
        let store = self.manager.store();
        if let Some(work) = store.freeze() {
            let result = work.run();
            self.manager.store().checkpoint_done(result);
        }
        while let Some(log) = self.manager.store().poll_drop() {
            self.logs.remove(log);
        }
    }

    /// The one client says that it holds nothing, and grace ends.
    pub fn end_grace(&mut self) {
        self.manager.begin_claims(CLIENT, 0);
        self.end_claims(CLIENT);
        self.change_of(0, |t| t.sweep_orphans()).unwrap();
    }

    /// The client has said all.
    pub fn end_claims(&mut self, client: u64) {
        let registration = self.manager.hear(client, Time(0));
        let origin = Origin { client, now: self.now };
        let (done, append) = self.manager.end_claims(registration, origin).unwrap();
        assert!(done);
        self.keep(append);
    }

    /// kill -9, then start again.
    pub fn restart(mut self) -> World {
        self.incarnation += 1;
        let backend = self.backend.kill();
        let logs: Vec<_> = self.logs.contents().collect();
        drop(self.manager);
        let store = Store::open(backend.clone(), config(), logs).unwrap();
        let settings = VolumeSettings::new(VolumeId(1));
        let (mut manager, first) =
            Manager::open(store, &settings, self.now, Time(0), self.incarnation).unwrap();
        manager.set_servers(&[1, 2, 3].map(|id| names::IoServer::from(NodeId(id))));
        while let Some(log) = manager.store().poll_drop() {
            self.logs.remove(log);
        }
        let mut world = World { manager, backend, ..self };
        world.keep(first);
        world
    }
}
