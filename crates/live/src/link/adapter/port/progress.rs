//! How far payloads are on their way through an adapter.

use endpoint::shared::{Entry, Piece};

/// How far the engines' transfers are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub host_dma: usize,
    pub net_receive: usize,
    /// The stream position behind what leaves.
    pub leaves: u64,
}

/// Payload bytes that the engines of an adapter have copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// From host memory to adapter memory.
    pub to_net: u64,
    /// From adapter memory to host memory.
    pub to_host: u64,
    /// From the peer's adapter memory to this one's.
    pub from_link: u64,
}

/// The message whose transfers go to the link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leaving {
    /// Its slot, once it is posted.
    pub slot: Option<u64>,
    /// The stream position where its payload begins.
    pub start: u64,
    /// Pieces that its slot has, and how many more than buffers it may get.
    pub pieces: usize,
    pub spare: usize,
    /// Bytes that have left and are not announced, because too few pieces are left.
    pub held_back: Option<Piece>,
}

/// A slot that the peer has not released.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    /// The stream position behind its payload.
    pub end: u64,
    pub payload: bool,
}

/// The message that comes in.
#[derive(Debug, Default)]
pub(super) struct Coming {
    pub entry: Entry,
    pub active: bool,
    pub total: usize,
    pub start: u64,
}
