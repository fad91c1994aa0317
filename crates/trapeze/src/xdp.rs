//! The interface whose Ethernet carries a node's messages, as configurations and flags name it.

use crate::output;
use clap::Args;
use live::link::Links;
use live::xdp::{BadQueue, Queue, XdpSocket};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::io;
use std::str::FromStr;

/// `IFACE` or `IFACE:QUEUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpQueue(pub Queue);

/// The interface of a command's node.
#[derive(Clone, Debug, Default, Args)]
pub struct XdpFlag {
    /// Messages to machines of the same Ethernet that have this too go as frames through this interface, past the
    /// kernel's stack (AF_XDP); needs root. All others go by TCP
    #[arg(long, value_name = "IFACE[:QUEUE]")]
    pub xdp: Option<XdpQueue>,
}

/// Has the links use the interface. Where that cannot be, TCP does it, and it is said why.
pub fn open(queue: &XdpQueue, links: &mut Links) -> io::Result<()> {
    match XdpSocket::open(&queue.0) {
        Ok(socket) => links.set_ethernet(Box::new(socket)),
        Err(error) => {
            output::tell_above(&format!("trapeze: --xdp {queue}: {error}. TCP is used instead"));
            Ok(())
        }
    }
}

impl FromStr for XdpQueue {
    type Err = BadQueue;

    fn from_str(text: &str) -> Result<XdpQueue, BadQueue> {
        text.parse().map(XdpQueue)
    }
}

impl fmt::Display for XdpQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for XdpQueue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<XdpQueue, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for XdpQueue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
