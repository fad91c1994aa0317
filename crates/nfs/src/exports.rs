//! Exports: which directories, to which networks, read-only or not, and as whom a caller counts.
//!
//! The text is that of exports(5), which administrators know, one export a line:
//!
//! ```text
//! # directory       clients
//! /                 192.168.1.0/24(rw) 10.0.0.0/8(ro,all_squash,anonuid=1000,anongid=1000)
//! "/with space"     fd00::/8(rw,no_root_squash) *(ro)
//! ```
//!
//! Defaults are exports(5)'s too: `ro`, `root_squash`, `secure`'s opposite (a port says nothing of its owner). Names of
//! hosts are refused: asking a name server for each call is a way to be slow, and to believe it a way to be wrong. Of
//! several networks that an address is in, the longest prefix decides, wherever it stands.

mod network;
mod squash;
mod text;

pub use network::Network;
pub use squash::{Access, NOBODY, Options, Squash};
pub use text::{BadExport, parse};

use core::net::IpAddr;

/// Rights of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The clients.
    pub network: Network,
    /// Their rights.
    pub options: Options,
}

/// One directory and who may mount it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The directory, from the root of the volume: begins with a slash, and ends with none but for the root's.
    pub path: String,
    /// The networks.
    pub rules: Vec<Rule>,
}

impl Export {
    /// The number that handles have of it: of its path only, so that all managers and later configurations agree.
    pub fn number(&self) -> u32 {
        wire::checksum::crc32c(self.path.as_bytes())
    }

    /// Rights of a client; `None`: it is not exported to that client.
    pub fn options(&self, client: IpAddr) -> Option<Options> {
        let fitting = self.rules.iter().filter(|rule| rule.network.contains(client));
        fitting.max_by_key(|rule| rule.network.prefix()).map(|rule| rule.options)
    }

    /// The part of `path` below the export's directory, without a slash before it; `None`: it is not below.
    fn rest<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let own = self.path.strip_suffix('/').unwrap_or(&self.path).as_bytes();
        match path.strip_prefix(own)? {
            [] => Some(&[]),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }
}

/// All exports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exports(Vec<Export>);

impl Exports {
    /// These; the parser has seen to it that no two have the same path.
    pub fn new(exports: Vec<Export>) -> Exports {
        Exports(exports)
    }

    /// In the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Export> {
        self.0.iter()
    }

    /// The export of a handle.
    pub fn numbered(&self, number: u32) -> Option<&Export> {
        self.0.iter().find(|export| export.number() == number)
    }

    /// The export that a path to be mounted lies in, and the path from there: the one with the longest directory that
    /// the client may mount at all. Slashes at the end and doubled ones are as one.
    pub fn find<'a>(
        &self,
        path: &'a [u8],
        client: IpAddr,
    ) -> Result<Mountable<'_, 'a>, NotExported> {
        let mut known = false;
        let mut best: Option<Mountable<'_, 'a>> = None;
        for export in &self.0 {
            let Some(rest) = export.rest(path) else { continue };
            known = true;
            let Some(options) = export.options(client) else { continue };
            if best.as_ref().is_none_or(|best| best.export.path.len() < export.path.len()) {
                best = Some(Mountable { export, options, rest });
            }
        }
        best.ok_or(if known { NotExported::ToClient } else { NotExported::Path })
    }
}

/// An export that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mountable<'e, 'p> {
    /// It.
    pub export: &'e Export,
    /// Rights of the client.
    pub options: Options,
    /// The path from the export's directory; empty for itself.
    pub rest: &'p [u8],
}

/// Why a client cannot mount a path: it is told so at MOUNT, for Windows believes a mount that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExported {
    /// No export has that path.
    #[error("the path is in no export")]
    Path,
    /// An export has it, but not for this client.
    #[error("the export is not for this client")]
    ToClient,
}

impl From<NotExported> for crate::mount::Status {
    fn from(why: NotExported) -> crate::mount::Status {
        match why {
            NotExported::Path => crate::mount::Status::NoEnt,
            NotExported::ToClient => crate::mount::Status::Acces,
        }
    }
}
