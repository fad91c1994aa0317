//! What file operations bring beside attributes and bytes.

use super::Name;
use wire::field::fields;
use wire::{Attr, FileId};

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The file; its inode number.
    pub file: FileId,
    /// Its name.
    pub name: Name,
    /// Its type.
    pub kind: wire::FileKind,
    /// Position for the next read; stable as long as the entry exists.
    pub cookie: u64,
    /// With attributes when they were asked for.
    pub attr: Option<Attr>,
}

/// Room in a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Bytes of storage.
    pub total_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Files that exist.
    pub files: u64,
    /// Files that may still be made.
    pub free_files: u64,
}
fields!(VolumeSpace { total_bytes, free_bytes, files, free_files });
