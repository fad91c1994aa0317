//! The two directions of payloads through an adapter.

/// Direction of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host to the link.
    ToNet,
    /// From the link to the host.
    ToHost,
}

impl Direction {
    /// The other one.
    pub const fn other(self) -> Direction {
        match self {
            Direction::ToNet => Direction::ToHost,
            Direction::ToHost => Direction::ToNet,
        }
    }
}
