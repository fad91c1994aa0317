//! Names of pages, and the stamp that travels with a page's bytes.

use std::fmt;
use wire::checksum::Digest;
use wire::field::fields;
use wire::{NodeId, mix};

/// A space: pages that belong together, a file or a region. Its number says whether one node owns it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u64);

impl SpaceId {
    const PRIVATE: u64 = 1 << 63;
    const OWNER_SHIFT: u32 = 47;
    /// Set in the private spaces of caches.
    const CACHE: u64 = 1 << 46;

    /// A space that any node may read. Of `serial` 63 bits count.
    pub const fn shared(serial: u64) -> SpaceId {
        SpaceId(serial & !Self::PRIVATE)
    }

    /// A space of `owner` alone. Of `serial` 46 bits count.
    pub const fn private(owner: NodeId, serial: u64) -> SpaceId {
        let owner = (owner.0 as u64) << Self::OWNER_SHIFT;
        SpaceId(Self::PRIVATE | owner | serial & (Self::CACHE - 1))
    }

    /// A space of a process that is no node and keeps its directory itself, privately. Of `serial` 46 bits count; two
    /// processes must not take the same.
    pub const fn guest(serial: u64) -> SpaceId {
        SpaceId::private(NodeId(0), serial)
    }

    /// The private space of a node's cache, whose disk has all of it, in this incarnation of the node: scans come
    /// through it, so a page in it that was used once is worth less to others than elsewhere. Of `incarnation` 46 bits
    /// count.
    pub const fn cache(owner: NodeId, incarnation: u64) -> SpaceId {
        SpaceId(SpaceId::private(owner, incarnation).0 | Self::CACHE)
    }

    /// Whether it is a [cache](SpaceId::cache)'s.
    pub const fn is_cache(self) -> bool {
        self.0 & Self::PRIVATE != 0 && self.0 & Self::CACHE != 0
    }

    /// Whether no node is the directory of its pages.
    pub const fn is_guest(self) -> bool {
        matches!(self.owner(), Some(NodeId(0)))
    }

    /// The node that owns the space, 0 for a process that is none; `None` of a shared one.
    pub const fn owner(self) -> Option<NodeId> {
        if self.0 & Self::PRIVATE == 0 {
            return None;
        }
        Some(NodeId((self.0 >> Self::OWNER_SHIFT) as u16))
    }
}

/// A page: a space, and the page's number there, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The space.
    pub space: SpaceId,
    /// Pages before this one.
    pub index: u64,
}

impl PageId {
    /// 64 bits that look random, the same everywhere.
    pub(crate) fn bits(self) -> u64 {
        mix(mix(self.space.0) ^ self.index)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}.{:x}", self.space.0, self.index)
    }
}

/// Version of a page's content: its only writer adds one whenever it changes bytes that another node may have seen. 0
/// was never written, and reads as zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// The stamp that travels with the bytes of a page and is stored beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStamp {
    /// The page.
    pub id: PageId,
    /// The content.
    pub version: Version,
    /// Bytes of the page.
    pub bytes: u32,
    /// CRC-32C of the bytes.
    pub checksum: u32,
}

/// The page that a receiver accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The page that was asked for.
    pub id: PageId,
    /// The oldest content that will do.
    pub at_least: Version,
    /// Bytes of a page of that space.
    pub bytes: u32,
}

/// Why bytes are not the page that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Another page.
    Id,
    /// An older content.
    Version,
    /// Not a page's length.
    Length,
    /// Not the bytes that were stamped.
    Checksum,
}

impl PageStamp {
    /// Bytes of one.
    pub const BYTES: usize = 32;

    /// The stamp of a page whose bytes are `pieces`, one after the other. Panics at 4 GiB.
    pub fn of<'a>(
        id: PageId,
        version: Version,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> PageStamp {
        let (bytes, checksum) = sum(pieces);
        let bytes = u32::try_from(bytes).expect("a page is shorter than 4 GiB");
        PageStamp { id, version, bytes, checksum }
    }

    /// Whether `pieces` are the bytes of this stamp, and it is what is wanted. The checksum is computed last, and only
    /// of what passes all else.
    pub fn check<'a>(
        &self,
        wanted: Wanted,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), Mismatch> {
        if self.id != wanted.id {
            return Err(Mismatch::Id);
        }
        if self.version < wanted.at_least {
            return Err(Mismatch::Version);
        }
        if self.bytes != wanted.bytes {
            return Err(Mismatch::Length);
        }
        match sum(pieces) {
            (bytes, _) if bytes != u64::from(self.bytes) => Err(Mismatch::Length),
            (_, checksum) if checksum != self.checksum => Err(Mismatch::Checksum),
            _ => Ok(()),
        }
    }
}

fields!(SpaceId, Version);
fields!(PageId { space, index });
fields!(Wanted { id, at_least, bytes });
fields!(PageStamp { id, version, bytes, checksum });

fn sum<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (u64, u32) {
    let (mut digest, mut bytes) = (Digest::new(), 0);
    for piece in pieces {
        digest.update(piece);
        bytes += piece.len() as u64;
    }
    (bytes, digest.finish())
}

/// Counts of payloads that were not what was asked for: each a miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    /// Another page.
    pub id: u64,
    /// An older content.
    pub version: u64,
    /// Not a page's length.
    pub length: u64,
    /// Not the bytes that were stamped.
    pub checksum: u64,
}

impl Mismatches {
    /// The payload, if it is what is wanted; else nothing, and the miss is counted.
    pub fn verify<'a, P>(&mut self, wanted: Wanted, stamp: &PageStamp, payload: P) -> Option<P>
    where
        P: IntoIterator<Item = &'a [u8]> + Clone,
    {
        let checked = stamp.check(wanted, payload.clone());
        checked.map_err(|mismatch| self.count(mismatch)).ok()?;
        Some(payload)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.id + self.version + self.length + self.checksum
    }

    fn count(&mut self, mismatch: Mismatch) {
        let counter = match mismatch {
            Mismatch::Id => &mut self.id,
            Mismatch::Version => &mut self.version,
            Mismatch::Length => &mut self.length,
            Mismatch::Checksum => &mut self.checksum,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::field::Field;
    use wire::{Decoder, Encoder};

    fn page(space: u64, index: u64) -> PageId {
        PageId { space: SpaceId(space), index }
    }

    proptest! {
        /// Any change of the stamp or of the bytes is a miss, and counted once.
        #[test]
        fn only_the_very_bytes_are_data(
            payload in prop::collection::vec(any::<u8>(), 1..300),
            cut in 0usize..300,
            flip in 0usize..2400,
        ) {
            let stamp = PageStamp::of(page(1, 2), Version(7), [payload.as_slice()]);
            let wanted = Wanted { id: page(1, 2), at_least: Version(7), bytes: payload.len() as u32 };
            let (head, tail) = payload.split_at(cut % payload.len());
            let mut misses = Mismatches::default();
            prop_assert!(misses.verify(wanted, &stamp, [head, tail]).is_some());
            prop_assert_eq!(misses.total(), 0);

            prop_assert!(misses.verify(wanted, &stamp, [head]).is_none());
            let other = Wanted { id: page(1, 3), ..wanted };
            prop_assert!(misses.verify(other, &stamp, [head, tail]).is_none());
            let newer = Wanted { at_least: Version(8), ..wanted };
            prop_assert!(misses.verify(newer, &stamp, [head, tail]).is_none());
            let mut broken = payload.clone();
            broken[flip / 8 % payload.len()] ^= 1 << (flip % 8);
            prop_assert!(misses.verify(wanted, &stamp, [broken.as_slice()]).is_none());
            prop_assert_eq!(misses, Mismatches { id: 1, version: 1, length: 1, checksum: 1 });
        }

        #[test]
        fn stamps_survive_the_wire(space: u64, index: u64, version: u64, size: u32, checksum: u32) {
            let stamp = PageStamp { id: page(space, index), version: Version(version), bytes: size, checksum };
            let mut bytes = [0; PageStamp::BYTES];
            stamp.put(&mut Encoder::new(&mut bytes));
            prop_assert_eq!(PageStamp::take(&mut Decoder::new(&bytes)), Ok(stamp));
        }
    }

    #[test]
    fn a_space_says_who_owns_it() {
        assert_eq!(SpaceId::private(NodeId(65535), u64::MAX).owner(), Some(NodeId(65535)));
        assert_eq!(SpaceId::private(NodeId(3), 9).owner(), Some(NodeId(3)));
        assert_eq!(SpaceId::shared(u64::MAX).owner(), None);
        let spaces = [SpaceId::guest(9), SpaceId::private(NodeId(3), 9), SpaceId::shared(9)];
        assert_eq!(spaces.map(SpaceId::is_guest), [true, false, false]);
        let cache = SpaceId::cache(NodeId(3), u64::MAX);
        assert_eq!((cache.owner(), cache.is_cache()), (Some(NodeId(3)), true));
        let others =
            [SpaceId::guest(u64::MAX), SpaceId::private(NodeId(3), 9), SpaceId::shared(u64::MAX)];
        assert_eq!(others.map(SpaceId::is_cache), [false; 3]);
    }

    /// A page of one block has the checksum that block storage keeps for it.
    #[test]
    fn the_checksum_of_a_block_is_the_projects() {
        let block = [7; wire::limits::BLOCK_BYTES];
        let stamp = PageStamp::of(page(1, 1), Version(1), [&block[..]]);
        assert_eq!(stamp.checksum, wire::checksum::block_crc(&block));
    }
}
