//! Where a disk's files are: paths below the disk's directory, and back.
//!
//! ```text
//! lock                              held while a process uses the directory
//! label
//! log/7
//! objects/3f/00000001.0000000000000123.0002      VOLUME.FILE.COLUMN, spread over 256 directories by hash
//! index/4
//! quarantine/00000001.0000000000000123.0002
//! ```
//!
//! The spread is part of the disk format: it never changes.

use node::rings::DiskFile;
use wire::{FileId, ObjectId, VolumeId};

/// Directories that objects are spread over.
pub(super) const FANOUT: usize = 256;
/// All directories of a disk, the top one included.
pub(super) const DIRECTORIES: usize = FANOUT + 4;

/// A directory of the disk, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirectoryIndex(u16);

impl DirectoryIndex {
    /// The disk's own directory.
    pub(super) const TOP: DirectoryIndex = DirectoryIndex(0);
    /// Logs.
    pub(super) const LOGS: DirectoryIndex = DirectoryIndex(1);
    /// Objects set aside.
    pub(super) const QUARANTINE: DirectoryIndex = DirectoryIndex(2);
    /// The index of the objects.
    pub(super) const INDEX: DirectoryIndex = DirectoryIndex(3);

    /// The directory that `file` is in.
    pub(super) fn of(file: DiskFile) -> DirectoryIndex {
        match file {
            DiskFile::Label => DirectoryIndex::TOP,
            DiskFile::Log(_) => DirectoryIndex::LOGS,
            DiskFile::Quarantined(_) => DirectoryIndex::QUARANTINE,
            DiskFile::Index(_) => DirectoryIndex::INDEX,
            DiskFile::Object(object) => DirectoryIndex::of_objects(spread(object.file)),
        }
    }

    /// One of the directories that objects are spread over.
    pub(super) fn of_objects(branch: u8) -> DirectoryIndex {
        DirectoryIndex(4 + u16::from(branch))
    }

    /// All of them, every one after its parent, except `objects`, which holds no files.
    pub(super) fn all() -> impl Iterator<Item = DirectoryIndex> {
        (0..DIRECTORIES as u16).map(DirectoryIndex)
    }

    /// Position in a table of all directories.
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Path below the disk's directory.
    pub(super) fn path(self) -> String {
        match self {
            DirectoryIndex::TOP => ".".to_owned(),
            DirectoryIndex::LOGS => "log".to_owned(),
            DirectoryIndex::QUARANTINE => "quarantine".to_owned(),
            DirectoryIndex::INDEX => "index".to_owned(),
            DirectoryIndex(number) => format!("objects/{:02x}", number - 4),
        }
    }
}

/// The objects of one file are together, those of different files are spread evenly also when serials run up:
/// Fibonacci hashing, the top byte of a product with 2^64 divided by the golden ratio.
fn spread(file: FileId) -> u8 {
    (file.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Path of `file` below the disk's directory.
pub(super) fn path(file: DiskFile) -> String {
    let directory = DirectoryIndex::of(file).path();
    match file {
        DiskFile::Label => "label".to_owned(),
        DiskFile::Log(generation) | DiskFile::Index(generation) => {
            format!("{directory}/{generation}")
        }
        DiskFile::Object(object) | DiskFile::Quarantined(object) => {
            format!("{directory}/{object}")
        }
    }
}

/// The object that a file name stands for; `None` for names that are not ours.
pub(super) fn parse_object(name: &str) -> Option<ObjectId> {
    let mut parts = name.split('.');
    let volume = parse_hex(parts.next()?, 8)? as u32;
    let file = parse_hex(parts.next()?, 16)?;
    let column = parse_hex(parts.next()?, 4)? as u16;
    let object = ObjectId { volume: VolumeId(volume), file: FileId(file), column };
    parts.next().is_none().then_some(object)
}

fn parse_hex(digits: &str, length: usize) -> Option<u64> {
    let plain = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let number = u64::from_str_radix(digits, 16).ok()?;
    (plain && digits.len() == length).then_some(number)
}

/// The log generation that a file name stands for; `None` for names that are not ours.
pub(super) fn parse_log(name: &str) -> Option<u32> {
    let generation: u32 = name.parse().ok()?;
    (generation.to_string() == name).then_some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(volume: u32, file: u64, column: u16) -> ObjectId {
        ObjectId { volume: VolumeId(volume), file: FileId(file), column }
    }

    #[test]
    fn paths_are_the_disk_format() {
        let id = object(1, 0x123, 2);
        assert_eq!(path(DiskFile::Label), "label");
        assert_eq!(path(DiskFile::Log(7)), "log/7");
        assert_eq!(path(DiskFile::Index(4)), "index/4");
        assert_eq!(path(DiskFile::Object(id)), "objects/d9/00000001.0000000000000123.0002");
        assert_eq!(path(DiskFile::Quarantined(id)), "quarantine/00000001.0000000000000123.0002");
    }

    #[test]
    fn serials_in_a_row_are_spread_evenly() {
        let mut counts = [0; FANOUT];
        (0..25_600).for_each(|n| counts[usize::from(spread(FileId::new(3, n)))] += 1);
        assert!(counts.iter().all(|count| (80..=120).contains(count)), "{counts:?}");
    }

    #[test]
    fn strange_names_are_nobodys() {
        for name in
            ["", "a", "1.2.3", "+0000001.0000000000000123.0002", "0000000A.0000000000000123.0002"]
        {
            assert_eq!(parse_object(name), None, "{name}");
        }
        assert_eq!(parse_object("00000001.0000000000000123.0002.x"), None);
        assert_eq!(
            [parse_log("07"), parse_log("+7"), parse_log("x"), parse_log("7")],
            [None, None, None, Some(7)]
        );
    }

    proptest! {
        #[test]
        fn names_come_back(volume: u32, file: u64, column: u16, generation: u32) {
            let id = object(volume, file, column);
            prop_assert_eq!(parse_object(&id.to_string()), Some(id));
            prop_assert_eq!(parse_log(&generation.to_string()), Some(generation));
        }
    }
}
