//! Origin of a call, and the programs that are served at its destination.

use core::net::{IpAddr, SocketAddr};

/// A port of ours, by what is served there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// NFS over TCP, and MOUNT, NLM and NSM beside it.
    Nfs,
    /// NLM and NSM over UDP; where calls to clients leave from, too.
    Locks,
    /// The same, and MOUNT beside them.
    Mount,
    /// The port mapper.
    Portmap,
}

impl Port {
    /// Whether locks are served there.
    pub fn has_locks(self) -> bool {
        self != Port::Portmap
    }
}

/// The two ends of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The client's.
    pub from: SocketAddr,
    /// Our address that it came to.
    pub to: IpAddr,
    /// [`TCP`](crate::portmap::TCP) or [`UDP`](crate::portmap::UDP).
    pub over: u32,
    /// The port's services.
    pub port: Port,
}

impl Origin {
    /// The client's address, by which it is known to exports and duplicates.
    pub fn client(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }
}
