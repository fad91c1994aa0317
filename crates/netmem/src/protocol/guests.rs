//! What a node says to a process that keeps pages in its memory and is no node.

use super::{Message, read_node};
use wire::{Decoder, Encoder, NodeId, Short};

/// The answer to [`op::STAY`](super::op::STAY): who was asked. What it had in another life is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// Who it is.
    pub node: NodeId,
    /// In which life of its process.
    pub incarnation: u64,
}

impl Message for Stayed {
    fn write(&self, out: &mut Encoder<'_>) {
        out.u16(self.node.0).u64(self.incarnation);
    }

    fn read(input: &mut Decoder<'_>) -> Result<Stayed, Short> {
        Ok(Stayed { node: read_node(input)?, incarnation: input.u64()? })
    }
}
