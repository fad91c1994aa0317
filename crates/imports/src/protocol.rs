//! Messages on [`wire::Channel::IMPORTS`], and what is kept of imports in extended attributes.
//!
//! | op | body | answer's body |
//! | --- | --- | --- |
//! | CHECK | import 4, file 8 | whether anything of it has changed 1 |
//! | FETCH | import 4, file 8, truncate generation 4, piece 8 | whether all of the file is there 1 |
//!
//! EINVAL: this node is not the import's importer. ESTALE: the origin has the file no longer, or, of FETCH, the version
//! is another one. EHOSTDOWN: the origin is away.

use wire::field::fields;
use wire::{FileId, NodeId, Wall};

/// Has a file compared with the origin's.
pub const CHECK: u16 = 1;
/// Has a piece of a file brought to the I/O servers.
pub const FETCH: u16 = 2;

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

/// Arguments of FETCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    pub import: u32,
    pub file: FileId,
    pub truncations: u32,
    pub piece: u64,
}
fields!(Fetch { import, file, truncations, piece });

/// Either's answer.
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
    /// The directory.
    pub directory: FileId,
    /// The origin, for people: `nfs://HOST/EXPORT`.
    pub origin: Box<[u8]>,
}
fields!(Import { importer, directory, origin });

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
}
fields!(Kept { handle, version, truncations, whole });

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Decoder;
    use wire::field::{Field, encoded};

    #[test]
    fn what_is_kept_comes_back() {
        let version =
            Version { mtime: Wall { seconds: 5, nanos: 7 }, size: 9, ..Version::default() };
        let kept = Kept { handle: [1, 2, 3].into(), version, truncations: 4, whole: true };
        assert_eq!(Kept::take(&mut Decoder::new(&encoded(&kept))), Ok(kept));
        let import =
            Import { importer: NodeId(7), directory: FileId(8), origin: (*b"nfs://h/e").into() };
        assert_eq!(Import::take(&mut Decoder::new(&encoded(&import))), Ok(import));
    }
}
