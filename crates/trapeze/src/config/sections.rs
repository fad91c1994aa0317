//! Parts of a machine's configuration.

use crate::lending::Lending;
use crate::size::Size;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Services of a machine for its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Keeps the name space and the list of members.
    Manager,
    /// Keeps objects on disks.
    Io,
}

/// The manager, as another machine knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManagerAddress {
    /// Its node id.
    pub node: u16,
    /// Where it listens, best first.
    pub addresses: Vec<String>,
}

/// A disk of an I/O server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// A directory of its own.
    pub path: PathBuf,
    /// Slows it down: `rate=30M,delay=1ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// Memory that a process may use for blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// All payload frames.
    pub pool: Size,
    /// Of the pool, what an I/O server may cache.
    pub cache: Size,
    /// Whether the system is to back all of the pool at the start: no request waits for a page to be made, and memory
    /// that is not there is missed at the start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefault: bool,
    /// Beside the pool, what network memory has on this machine; nothing when it takes no part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<Size>,
    /// Of `lend`, what this machine's own pages can always have; else a quarter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Size>,
    /// Of the machine's memory, what is left to other programs: with less, it lends less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Size>,
}

impl Memory {
    /// The machine's part in network memory.
    pub fn lending(&self) -> Lending {
        Lending { lend: self.lend, keep: self.keep, reserve: self.reserve }
    }

    /// This with another part in it.
    pub fn lend(self, Lending { lend, keep, reserve }: Lending) -> Memory {
        Memory { lend, keep, reserve, ..self }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            pool: Size(512 << 20),
            cache: Size(384 << 20),
            prefault: false,
            lend: None,
            keep: None,
            reserve: None,
        }
    }
}

/// `[nfs]` of a machine's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsConfig {
    /// HOST, or HOST:PORT.
    pub listen: String,
    /// As `--portmap`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub portmap: bool,
    /// As `--mount-udp`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mount_udp: bool,
}

/// `[[export]]` of a machine's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// A directory of the volume.
    pub path: String,
    /// To whom, as `192.168.1.0/24(rw)`.
    pub clients: Vec<String>,
}
