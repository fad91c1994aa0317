//! Where a call comes from, and which programs are served where it came to.

use core::net::{IpAddr, SocketAddr};

/// A port of ours, by what is served there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// NFS over TCP, and MOUNT beside it.
    Nfs,
    /// MOUNT alone, over UDP.
    Mount,
    /// The port mapper.
    Portmap,
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
    /// What is served there.
    pub port: Port,
}

impl Origin {
    /// The client's address, by which it is known to exports and duplicates.
    pub fn client(&self) -> IpAddr {
        self.from.ip().to_canonical()
    }
}
