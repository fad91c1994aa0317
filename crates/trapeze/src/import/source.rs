//! Where an origin is: `nfs://HOST[:PORT]/EXPORT[?mountport=PORT]`.

use nfs::client::session::Target;
use nfs::portmap;
use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};

/// An export of another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// As it was written.
    text: String,
    /// Its meaning.
    pub target: Target,
}

/// No source.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSource {
    /// The form.
    #[error(
        "write nfs://HOST/EXPORT, nfs://HOST:PORT/EXPORT or nfs://HOST:PORT/EXPORT?mountport=PORT"
    )]
    Form,
    /// The host.
    #[error("no address of {0} is known: {1}")]
    Host(String, String),
}

impl Source {
    /// Reads it. The server's port mapper is asked for ports that are not named; a port that is named is that of MOUNT
    /// too unless `mountport` is another.
    pub fn parse(text: &str) -> Result<Source, BadSource> {
        let rest = text.strip_prefix("nfs://").ok_or(BadSource::Form)?;
        let (rest, mount_port) = match rest.split_once("?mountport=") {
            Some((rest, port)) => (rest, Some(port.parse().map_err(|_| BadSource::Form)?)),
            None => (rest, None),
        };
        let (place, path) = rest.split_once('/').ok_or(BadSource::Form)?;
        let (host, port) = host_and_port(place)?;
        let address = address(host)?;
        let (path, mount_port) = (format!("/{path}").into_bytes(), mount_port.or(port));
        let portmap_port = portmap::PORT;
        let target = Target { address, path, nfs_port: port, mount_port, portmap_port };
        Ok(Source { text: text.to_string(), target })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn host_and_port(place: &str) -> Result<(&str, Option<u16>), BadSource> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(BadSource::Form)?,
        None => place.find(':').map_or((place, ""), |at| place.split_at(at)),
    };
    let port = match port.strip_prefix(':') {
        Some(port) => Some(port.parse().map_err(|_| BadSource::Form)?),
        None if port.is_empty() => None,
        None => return Err(BadSource::Form),
    };
    if host.is_empty() { Err(BadSource::Form) } else { Ok((host, port)) }
}

fn address(host: &str) -> Result<IpAddr, BadSource> {
    let unknown = |why: String| BadSource::Host(host.to_string(), why);
    let mut found = (host, 0).to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    found.next().map(|at| at.ip()).ok_or_else(|| unknown("none".to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> (Option<u16>, Option<u16>, String) {
        let target = Source::parse(text).unwrap().target;
        (target.nfs_port, target.mount_port, String::from_utf8(target.path).unwrap())
    }

    #[test]
    fn ports_are_those_that_are_named() {
        assert_eq!(ports("nfs://127.0.0.1/a/b"), (None, None, "/a/b".into()));
        assert_eq!(ports("nfs://127.0.0.1:77/"), (Some(77), Some(77), "/".into()));
        assert_eq!(ports("nfs://[::1]:77/x?mountport=78"), (Some(77), Some(78), "/x".into()));
    }

    #[test]
    fn what_names_no_export_is_refused() {
        let bad = ["127.0.0.1:/a", "nfs://127.0.0.1", "nfs:///a", "nfs://h:port/a", "nfs://[::1/a"];
        for text in bad {
            assert_eq!(Source::parse(text), Err(BadSource::Form), "{text}");
        }
    }
}
