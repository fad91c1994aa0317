//! Media that decay: disks and stores of machines that are off.

use crate::machine::Machine;
use crate::meta::StoresImage;
use crate::volume::Volume;
use node::decay::Medium;
use node::rings::{DiskFile, StoreId};

/// A disk of a machine that stands still.
pub(crate) struct Standing<'a> {
    pub machine: &'a mut Machine,
    pub disk: usize,
    pub earlier: &'a Volume,
}

impl Standing<'_> {
    fn volume(&mut self) -> &mut Volume {
        self.machine.disks[self.disk].volume_mut()
    }
}

fn bytes_of(volume: &Volume, file: DiskFile) -> Option<Vec<u8>> {
    volume.get(file).map(|inode| inode.bytes.bytes())
}

impl Medium for Standing<'_> {
    type File = DiskFile;

    fn files(&self) -> Vec<DiskFile> {
        self.machine.disks[self.disk].volume().names_from(DiskFile::Label).collect()
    }

    fn class(&self, file: &DiskFile) -> usize {
        match file {
            DiskFile::Label => 0,
            DiskFile::Log(_) => 1,
            DiskFile::Object(_) => 2,
            DiskFile::Quarantined(_) => 3,
            DiskFile::Index(_) => 4,
        }
    }

    fn bytes(&self, file: &DiskFile) -> Vec<u8> {
        bytes_of(self.machine.disks[self.disk].volume(), *file).unwrap_or_default()
    }

    fn earlier(&self, file: &DiskFile) -> Option<Vec<u8>> {
        bytes_of(self.earlier, *file)
    }

    fn put(&mut self, file: &DiskFile, bytes: Vec<u8>) {
        self.volume().put(*file, &bytes, 0);
    }

    fn remove(&mut self, file: &DiskFile) {
        let volume = self.volume();
        volume.remove(*file);
        volume.sync_all(volume.changes());
    }

    fn restore(&mut self) {
        *self.volume() = self.earlier.clone();
    }
}

/// The stores of a machine that stands still.
pub(crate) struct Stores {
    pub now: StoresImage,
    pub earlier: StoresImage,
}

/// A database, or one of its logs.
type StoreFile = (StoreId, Option<u64>);

fn files_of(image: &StoresImage) -> impl Iterator<Item = (StoreFile, Vec<u8>)> + '_ {
    image.0.iter().flat_map(|(store, (database, logs))| {
        let logs = logs.contents().map(|(log, bytes)| ((*store, Some(log)), bytes));
        std::iter::once(((*store, None), database.clone())).chain(logs)
    })
}

impl Medium for Stores {
    type File = StoreFile;

    fn files(&self) -> Vec<StoreFile> {
        files_of(&self.now).map(|(file, _)| file).collect()
    }

    fn class(&self, (store, log): &StoreFile) -> usize {
        // Names are what everything hangs on.
        let class = usize::from(log.is_some());
        if *store == StoreId::Names { class } else { 2 }
    }

    fn bytes(&self, file: &StoreFile) -> Vec<u8> {
        files_of(&self.now).find(|(name, _)| name == file).map_or(Vec::new(), |(_, bytes)| bytes)
    }

    fn earlier(&self, file: &StoreFile) -> Option<Vec<u8>> {
        files_of(&self.earlier).find(|(name, _)| name == file).map(|(_, bytes)| bytes)
    }

    fn put(&mut self, (store, log): &StoreFile, bytes: Vec<u8>) {
        let (database, logs) = self.now.0.get_mut(store).expect("a store that is there");
        match log {
            Some(log) => logs.put(*log, bytes),
            None => *database = bytes,
        }
    }

    fn remove(&mut self, (store, log): &StoreFile) {
        let (database, logs) = self.now.0.get_mut(store).expect("a store that is there");
        match log {
            Some(log) => logs.lose(*log),
            None => database.clear(),
        }
    }

    fn restore(&mut self) {
        self.now = self.earlier.clone();
    }
}
