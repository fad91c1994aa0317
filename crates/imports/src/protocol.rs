//! Messages on [`wire::Channel::IMPORTS`], and what is kept of imports in extended attributes.
//!
//! | op | body | answer's body |
//! | --- | --- | --- |
//! | CHECK | import 4, file 8 | whether anything of it has changed 1 |
//! | FETCH | import 4, file 8, truncate generation 4, piece 8 | whether all of the file is there 1 |
//! | WRITE | import 4, user 4, group 4, bytes 4, file 8, offset 8 | yes 1 |
//! | CHANGE | import 4, user 4, group 4, bytes 4 | yes 1 |
//! | LOST | as FETCH | whether the file is another version now 1 |
//! | CHECK_LISTED | import 4, directory 8, count 4 | whether any has changed 1, which were compared 32 |
//!
//! With WRITE comes the data, with CHANGE a [`Change`], so many bytes of either; behind them come the user's
//! supplementary groups, each as 4 bytes. Both are executed once, and are on the origin's stable storage when they are
//! answered. With CHECK_LISTED come so many files of the directory, 8 bytes each.
//!
//! EINVAL: this node is not the import's importer. ESTALE: the origin has the file no longer, or, of FETCH, the version
//! is another one. EHOSTDOWN: the origin is away. EROFS: changes do not go through to it. All else is the origin's.

use crate::limits::LISTED_MAX;
use wire::field::{Field, Output, fields};
use wire::{Decoder, FileId, NodeId, SetAttr, Short, Wall};

/// Has a file compared with the origin's.
pub const CHECK: u16 = 1;
/// Has a piece of a file brought to the I/O servers.
pub const FETCH: u16 = 2;
/// Writes bytes at the origin.
pub const WRITE: u16 = 3;
/// Changes names or attributes at the origin.
pub const CHANGE: u16 = 4;

/// Has files of a directory compared with the origin's, which is asked for many of them at once.
pub const CHECK_LISTED: u16 = 5;

/// Says that bytes of a piece that was brought cannot be read; whether they are to be had under another version now.
pub const LOST: u16 = 6;

/// Extended attribute of a foreign file: [`Kept`].
pub const ORIGIN: &[u8] = b"trusted.trapeze.origin";

/// Extended attribute of the volume's root with an import's [`Import`].
pub fn record_name(import: u32) -> Vec<u8> {
    format!("trusted.trapeze.import.{import}").into_bytes()
}

/// Arguments of CHECK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    pub import: u32,
    pub file: FileId,
}
fields!(Check { import, file });

/// Arguments of CHECK_LISTED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckListed {
    pub import: u32,
    pub directory: FileId,
    pub count: u32,
}
fields!(CheckListed { import, directory, count });

/// The answer of CHECK_LISTED.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The manager is to be asked again.
    pub changed: bool,
    /// The files that were compared, a bit for each: of others nothing is known.
    pub files: [u64; LISTED_MAX / u64::BITS as usize],
}
fields!(Compared { changed, files });

/// Arguments of FETCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub import: u32,
    pub file: FileId,
    pub truncations: u32,
    pub piece: u64,
}
fields!(Fetch { import, file, truncations, piece });

/// Arguments of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub change: Changed,
    pub file: FileId,
    pub offset: u64,
}
fields!(Written { change, file, offset });

/// Arguments of CHANGE, and what a WRITE begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    pub import: u32,
    pub uid: u32,
    pub gid: u32,
    /// Length of the data, or of the encoded change.
    pub bytes: u32,
}
fields!(Changed { import, uid, gid, bytes });

macro_rules! changes {
    ($($(#[$doc:meta])* $name:ident = $tag:literal { $($field:ident: $kind:ty),* $(,)? })*) => {
        /// A change at the origin.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // the fields are those of the procedures
        pub enum Change<'a> {
            $($(#[$doc])* $name { $($field: $kind),* }),*
        }

        impl<'a> Field<'a> for Change<'a> {
            fn put(&self, out: &mut impl Output) {
                match self {
                    $(Change::$name { $($field),* } => {
                        Field::put(&($tag as u8), out);
                        $(Field::put($field, out);)*
                    })*
                }
            }
            fn take(input: &mut Decoder<'a>) -> Result<Change<'a>, Short> {
                match u8::take(input)? {
                    $($tag => Ok(Change::$name { $($field: Field::take(input)?),* }),)*
                    _ => Err(Short),
                }
            }
        }
    };
}

changes! {
    /// SETATTR.
    Set = 1 { file: FileId, changes: SetAttr }
    /// CREATE of a file that may be there already.
    Create = 2 { parent: FileId, name: &'a [u8], mode: u32 }
    /// CREATE by a verifier, which stays until attributes are set.
    CreateOnce = 3 { parent: FileId, name: &'a [u8], verifier: [u8; 8] }
    /// The same, with permissions: EEXIST where it is there, also by the same verifier once these were set.
    CreateNew = 4 { parent: FileId, name: &'a [u8], verifier: [u8; 8], mode: u32 }
    /// MKDIR.
    MakeDirectory = 5 { parent: FileId, name: &'a [u8], mode: u32 }
    /// SYMLINK.
    Symlink = 6 { parent: FileId, name: &'a [u8], target: &'a [u8] }
    /// MKNOD.
    MakeNode = 7 { parent: FileId, name: &'a [u8], mode: u32, rdev: u32 }
    /// REMOVE.
    Remove = 8 { parent: FileId, name: &'a [u8] }
    /// RMDIR.
    RemoveDirectory = 9 { parent: FileId, name: &'a [u8] }
    /// RENAME.
    Rename = 10 { parent: FileId, name: &'a [u8], new_parent: FileId, new_name: &'a [u8] }
    /// LINK.
    Link = 11 { file: FileId, parent: FileId, name: &'a [u8] }
}

/// The answer of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub yes: bool,
}
fields!(Said { yes });

/// An import, as the volume knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The node that imports.
    pub importer: NodeId,
    /// The directory; none while that is being made.
    pub directory: Option<FileId>,
    /// Changes go through to the origin.
    pub writable: bool,
    /// The origin, for people: `nfs://HOST/EXPORT`.
    pub origin: Box<[u8]>,
}

/// A directory that is not there yet, as it is kept.
const NONE_YET: FileId = FileId(0);

impl<'a> Field<'a> for Import {
    fn put(&self, out: &mut impl Output) {
        (self.importer, self.directory.unwrap_or(NONE_YET), self.writable).put(out);
        self.origin.put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Import, Short> {
        let (importer, directory, writable) = Field::take(input)?;
        let directory = Some(directory).filter(|directory| *directory != NONE_YET);
        Ok(Import { importer, directory, writable, origin: Field::take(input)? })
    }
}

/// Tells two states of an origin's file apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    pub mtime: Wall,
    pub ctime: Wall,
    pub size: u64,
}
fields!(Version { mtime, ctime, size });

/// State of a foreign file that is kept beside its inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The origin's handle.
    pub handle: Box<[u8]>,
    /// The version that the inode shows; of a directory the one that was listed, of a new one none.
    pub version: Version,
    /// The truncate generation that the version has.
    pub truncations: u32,
    /// All of the version's bytes are at the I/O servers.
    pub whole: bool,
    /// Else runs of pieces that are, each with the piece behind its last.
    pub there: Vec<(u64, u64)>,
}

impl<'a> Field<'a> for Kept {
    fn put(&self, out: &mut impl Output) {
        self.handle.put(out);
        (self.version, self.truncations, self.whole).put(out);
        self.there.put(out);
    }

    fn take(input: &mut Decoder<'a>) -> Result<Kept, Short> {
        let handle = Field::take(input)?;
        let (version, truncations, whole) = Field::take(input)?;
        // records of before there were runs have none
        let there = if input.rest().is_empty() { Vec::new() } else { Field::take(input)? };
        Ok(Kept { handle, version, truncations, whole, there })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Decoder;
    use wire::field::{Field, encoded};

    #[test]
    fn what_is_kept_comes_back() {
        let version =
            Version { mtime: Wall { seconds: 5, nanos: 7 }, size: 9, ..Version::default() };
        let there = vec![(0, 3), (7, 9)];
        let kept = Kept { handle: [1, 2, 3].into(), version, truncations: 4, whole: true, there };
        let mut bytes = encoded(&kept);
        assert_eq!(Kept::take(&mut Decoder::new(&bytes)), Ok(kept.clone()));
        bytes.truncate(bytes.len() - 4 - 2 * 16);
        let before = Kept { there: Vec::new(), ..kept };
        assert_eq!(Kept::take(&mut Decoder::new(&bytes)), Ok(before), "as it was kept before");
        for directory in [Some(FileId(8)), None] {
            let (importer, origin) = (NodeId(7), (*b"nfs://h/e").into());
            let import = Import { importer, directory, writable: true, origin };
            assert_eq!(Import::take(&mut Decoder::new(&encoded(&import))), Ok(import));
        }
    }

    #[test]
    fn changes_come_back() {
        let (parent, name) = (FileId(7), &b"name"[..]);
        let all = [
            Change::Set {
                file: FileId(8),
                changes: SetAttr { size: Some(9), ..SetAttr::default() },
            },
            Change::CreateNew { parent, name, verifier: [3; 8], mode: 0o640 },
            Change::Rename { parent, name, new_parent: FileId(9), new_name: b"other" },
            Change::Link { file: FileId(8), parent, name },
        ];
        for change in all {
            assert_eq!(Change::take(&mut Decoder::new(&encoded(&change))), Ok(change));
        }
        assert!(Change::take(&mut Decoder::new(&[99])).is_err());
    }
}
