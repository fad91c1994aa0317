//! Where a node can be reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An address: `unix:PATH` for shared memory on this machine, `tcp:HOST:PORT` for everything else.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A UNIX socket, over which shared memory is handed out.
    Unix(PathBuf),
    /// A host name or IP address, and a port.
    Tcp(String, u16),
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address: write unix:PATH or tcp:HOST:PORT")]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let bad = || BadAddress(text.to_string());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(bad()) } else { Ok(Address::Unix(path.into())) };
        }
        let rest = text.strip_prefix("tcp:").ok_or_else(bad)?;
        let (host, port) = rest.rsplit_once(':').ok_or_else(bad)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| bad())?;
        if host.is_empty() { Err(bad()) } else { Ok(Address::Tcp(host.to_string(), port)) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host, port) if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_alike() {
        for text in
            ["unix:/run/trapeze/1.sock", "tcp:node7:7100", "tcp:[::1]:7100", "tcp:10.0.0.1:1"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "tcp:host", "tcp::7", "tcp:host:70000", "udp:a:1", "/run/x"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("tcp:HOST:PORT"), "{error}");
        }
    }
}
