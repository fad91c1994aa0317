//! What a node says to a process that keeps pages in its memory and is no node.

use super::{Message, read_node};
use wire::{Decoder, Encoder, NodeId, Short};

/// The answer to [`op::STAY`](super::op::STAY): the node that was asked. Pages of its other incarnations are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// Who it is.
    pub node: NodeId,
    /// In which incarnation of its process.
    pub incarnation: u64,
    /// The machine that it runs on; 0 when it does not know.
    pub machine: u64,
}

impl Message for Stayed {
    fn write(&self, out: &mut Encoder<'_>) {
        out.u16(self.node.0).u64(self.incarnation).u64(self.machine);
    }

    fn read(input: &mut Decoder<'_>) -> Result<Stayed, Short> {
        let (node, incarnation) = (read_node(input)?, input.u64()?);
        Ok(Stayed { node, incarnation, machine: input.u64()? })
    }
}
