//! Disks that decay.

use super::disk::Disk;
use node::decay::Medium;
use node::rings::DiskFile;

/// Random numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// The disk of a server that stands still.
pub struct Decaying<'a> {
    pub disk: &'a mut Disk,
    pub earlier: &'a Disk,
}

impl Medium for Decaying<'_> {
    type File = DiskFile;

    fn files(&self) -> Vec<DiskFile> {
        self.disk.files().collect()
    }

    fn class(&self, file: &DiskFile) -> usize {
        match file {
            DiskFile::Label => 0,
            DiskFile::Log(_) => 1,
            DiskFile::Object(_) | DiskFile::Quarantined(_) => 2,
            DiskFile::Index(_) => 3,
        }
    }

    fn bytes(&self, file: &DiskFile) -> Vec<u8> {
        self.disk.bytes(*file).expect("a file that is there").to_vec()
    }

    fn earlier(&self, file: &DiskFile) -> Option<Vec<u8>> {
        self.earlier.bytes(*file).map(<[u8]>::to_vec)
    }

    fn put(&mut self, file: &DiskFile, bytes: Vec<u8>) {
        *self.disk.bytes_mut(*file) = bytes;
    }

    fn remove(&mut self, file: &DiskFile) {
        self.disk.lose(*file);
    }

    fn restore(&mut self) {
        *self.disk = self.earlier.clone();
    }
}
