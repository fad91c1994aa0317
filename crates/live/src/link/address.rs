//! Where a node can be reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An address: `unix:PATH` for shared memory on this machine, `adapter:PATH` for adapters over it, `tcp:HOST:PORT` for
/// everything else. A listener at a path takes either; the caller says which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A UNIX socket, over which shared memory is handed out.
    Unix(PathBuf),
    /// A UNIX socket, over which the adapter memory of both sides is handed out.
    Adapter(PathBuf),
    /// A host name or IP address, and a port.
    Tcp(String, u16),
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address: write unix:PATH, adapter:PATH or tcp:HOST:PORT")]
pub struct BadAddress(String);

impl Address {
    /// Whether it is on this machine: both sides map each other's memory.
    pub fn is_local(&self) -> bool {
        !matches!(self, Address::Tcp(..))
    }
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Address, BadAddress> {
        let bad = || BadAddress(text.to_string());
        let local: [(_, fn(PathBuf) -> Address); 2] =
            [("unix:", Address::Unix), ("adapter:", Address::Adapter)];
        for (scheme, made) in local {
            if let Some(path) = text.strip_prefix(scheme) {
                return if path.is_empty() { Err(bad()) } else { Ok(made(path.into())) };
            }
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
            Address::Adapter(path) => write!(f, "adapter:{}", path.display()),
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
        for text in [
            "unix:/run/1.sock",
            "adapter:/run/1.sock",
            "tcp:node7:7100",
            "tcp:[::1]:7100",
            "tcp:10.0.0.1:1",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in
            ["", "unix:", "adapter:", "tcp:host", "tcp::7", "tcp:host:70000", "udp:a:1", "/run/x"]
        {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("tcp:HOST:PORT"), "{error}");
        }
    }
}
