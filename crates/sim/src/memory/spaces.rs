//! Spaces of simulated programs, and their guarantees: the number says it.

use netmem::{Class, SpaceId};
use wire::NodeId;

/// Kind of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two mirrors, no stable storage.
    Mirrored,
    /// One copy elsewhere.
    Volatile,
    /// Stable storage, as files.
    Stored,
}

impl Kind {
    /// When what is written there may leave.
    pub fn class(self) -> Class {
        match self {
            Kind::Mirrored => Class::Mirrored,
            Kind::Volatile => Class::Volatile,
            Kind::Stored => Class::WriteBack,
        }
    }
}

/// The kind of a space, by its number.
pub fn kind(space: SpaceId) -> Kind {
    match (space.owner(), space.0 % 4) {
        (None, 0 | 2) => Kind::Stored,
        (None, _) => Kind::Mirrored,
        (Some(_), 1) => Kind::Stored,
        (Some(_), 3) => Kind::Volatile,
        (Some(_), _) => Kind::Mirrored,
    }
}

/// The shared space of this number.
pub fn shared(number: u64) -> SpaceId {
    SpaceId::shared(number + 1)
}

/// A space of a node, of a number that is used once in a run.
pub fn private(owner: NodeId, serial: u64) -> SpaceId {
    SpaceId::private(owner, serial)
}
