//! Two adapters that are linked without a handshake: both sides are this process, each for a thread of its own.

use super::port::Port;
use super::shape::AdapterShape;
use crate::link::limits::SHARED_SLOTS;
use crate::link::shared_words::{OwnWords, PeerWords, ring_bytes};
use crate::memory::{PeerRegion, SharedMemory};
use std::io;

struct Side {
    ring: SharedMemory,
    memory: SharedMemory,
}

impl Side {
    fn new(shape: &AdapterShape) -> io::Result<Side> {
        let ring = SharedMemory::create("trapeze-ring", ring_bytes(SHARED_SLOTS))?;
        Ok(Side { ring, memory: shape.memory()? })
    }

    /// The memory that the other side maps.
    fn passed(&self) -> io::Result<(PeerWords, PeerRegion)> {
        let open = |memory: &SharedMemory| {
            let fd = memory.fd().try_clone_to_owned()?;
            SharedMemory::open_read_only(fd, memory.bytes()).map_err(io::Error::other)
        };
        Ok((PeerWords::new(open(&self.ring)?), open(&self.memory)?))
    }

    fn port(self, shape: &AdapterShape, peer: (PeerWords, PeerRegion)) -> Port {
        Port::new(shape.clone(), self.memory, OwnWords::new(self.ring), peer.0, peer.1)
    }
}

/// Two linked ports of these shapes.
pub fn pair(shapes: [&AdapterShape; 2]) -> io::Result<[Port; 2]> {
    shapes.into_iter().try_for_each(|shape| shape.check().map_err(io::Error::other))?;
    let (first, second) = (Side::new(shapes[0])?, Side::new(shapes[1])?);
    let (from_first, from_second) = (first.passed()?, second.passed()?);
    Ok([first.port(shapes[0], from_second), second.port(shapes[1], from_first)])
}
