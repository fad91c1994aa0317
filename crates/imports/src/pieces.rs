//! Which pieces of a foreign file's version are at the I/O servers, and which are being fetched.
//!
//! A version is a truncate generation of the objects. A piece that arrives for an older one is of no use.
//!
//! Invariant: of one piece of one version one fetch is under way at most.

use crate::runs::Runs;
use std::collections::BTreeSet;
use wire::Errno;

/// Whether bytes are lost that such an error is of: damage, a disk that is gone, or one that its server does not serve.
pub(crate) fn is_lost(errno: Errno) -> bool {
    matches!(errno, Errno::EIO | Errno::ENXIO | Errno::ENODEV)
}

/// The next step of a reader of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read it.
    Read,
    /// Fetch it, and report the end with [`Pieces::end`].
    Fetch,
    /// Wait until another reader's fetch has ended, and ask again.
    Wait,
    /// The version is another one: learn it, and ask again.
    Changed,
}

/// The pieces of one file.
#[derive(Debug, Default)]
pub struct Pieces {
    version: u32,
    there: Runs,
    fetched: BTreeSet<u64>,
    /// Of these, what was written over at the origin since they were asked for.
    spoiled: BTreeSet<u64>,
    /// Nothing is fetched now.
    is_closed: bool,
}

impl Pieces {
    /// Of a version of which nothing is there.
    pub fn new(version: u32) -> Pieces {
        Pieces { version, ..Pieces::default() }
    }

    /// Of a version of which these are there.
    pub fn with(version: u32, there: Runs) -> Pieces {
        Pieces { version, there, ..Pieces::default() }
    }

    /// The version.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Pieces that are there.
    pub fn there(&self) -> &Runs {
        &self.there
    }

    /// Whether a reader is reading its way along to `piece`.
    pub fn is_next(&self, piece: u64) -> bool {
        let idle = !self.there.contains(piece) && !self.fetched.contains(&piece);
        idle && piece > 0 && self.there.contains(piece - 1)
    }

    /// Whether nothing is there or on its way.
    pub fn is_empty(&self) -> bool {
        self.there.count() == 0 && self.fetched.is_empty()
    }

    /// A piece is written over at the origin; whether it is there, and is to be written over too. A piece on its way
    /// may be of before.
    pub fn overwrite(&mut self, piece: u64) -> bool {
        if self.fetched.contains(&piece) {
            self.spoiled.insert(piece);
        }
        self.there.contains(piece)
    }

    /// Whether readers wait before anything is fetched.
    pub fn set_closed(&mut self, is_closed: bool) {
        self.is_closed = is_closed;
    }

    /// Another version begins, of which nothing is there.
    pub fn begin_version(&mut self, version: u32) {
        assert!(version >= self.version, "truncate generations grow");
        *self = Pieces::new(version);
    }

    /// A reader wants a piece of a version.
    pub fn want(&mut self, version: u32, piece: u64) -> Next {
        if version != self.version {
            return Next::Changed;
        }
        if self.there.contains(piece) {
            return Next::Read;
        }
        if self.is_closed {
            return Next::Wait;
        }
        if self.fetched.insert(piece) { Next::Fetch } else { Next::Wait }
    }

    /// A fetch has ended: whether its bytes are at the I/O servers, on stable storage.
    pub fn end(&mut self, version: u32, piece: u64, is_there: bool) {
        if version != self.version {
            return;
        }
        assert!(self.fetched.remove(&piece), "a fetch ends that was begun");
        if !self.spoiled.remove(&piece) && is_there {
            self.there.insert(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_fetched_once_and_of_one_version() {
        let mut pieces = Pieces::new(3);
        assert_eq!(pieces.want(2, 0), Next::Changed);
        assert_eq!(pieces.want(3, 0), Next::Fetch);
        assert_eq!(pieces.want(3, 0), Next::Wait);
        pieces.end(3, 0, false);
        assert_eq!(pieces.want(3, 0), Next::Fetch, "the first fetch failed");
        pieces.end(3, 0, true);
        assert_eq!((pieces.want(3, 0), pieces.there().count()), (Next::Read, 1));
        assert!(pieces.is_next(1) && !pieces.is_next(0) && !pieces.is_next(2));
    }

    #[test]
    fn what_an_importer_before_has_fetched_is_there() {
        let mut pieces = Pieces::with(3, Runs::of(&[(1, 3)]));
        assert_eq!([0, 1, 2, 3].map(|piece| pieces.want(3, piece)), {
            [Next::Fetch, Next::Read, Next::Read, Next::Fetch]
        });
        assert_eq!(pieces.there().count(), 2);
    }

    #[test]
    fn what_arrives_for_an_older_version_is_not_there() {
        let mut pieces = Pieces::new(3);
        assert_eq!(pieces.want(3, 5), Next::Fetch);
        pieces.begin_version(4);
        pieces.end(3, 5, true);
        assert_eq!((pieces.want(3, 5), pieces.want(4, 5)), (Next::Changed, Next::Fetch));
    }

    #[test]
    fn what_is_written_over_while_it_is_fetched_is_fetched_again() {
        let mut pieces = Pieces::new(3);
        assert!(pieces.is_empty());
        assert_eq!(pieces.want(3, 0), Next::Fetch);
        assert!(!pieces.overwrite(0) && !pieces.is_empty());
        pieces.end(3, 0, true);
        assert_eq!(pieces.want(3, 0), Next::Fetch);
        pieces.end(3, 0, true);
        assert!(pieces.overwrite(0) && !pieces.overwrite(1));
        pieces.set_closed(true);
        assert_eq!((pieces.want(3, 0), pieces.want(3, 1)), (Next::Read, Next::Wait));
    }
}
