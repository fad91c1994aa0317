//! The list of clients that hold locks, as it is on stable storage, and this server's number of its restarts.
//!
//! It is an extended attribute of the volume's root, named after the address that clients know the server by: whichever
//! machine serves there next finds it, which a file on one machine's disk would not be. It is written before a client's
//! first lock is granted: a server that is killed just after it granted one must tell that client (NOTIFY), or the lock
//! is gone and its client goes on as if it had it.

use crate::limits::{LOCK_HOST_BYTES_MAX, UNIVERSAL_BYTES_MAX};
use crate::xdr::{Garbage, Xdr, decoded, encoded, opaque, record};
use core::net::IpAddr;

/// The layout of the value.
const VERSION: u32 = 1;

opaque! {
    /// An address as text.
    pub struct Text of UNIVERSAL_BYTES_MAX
}

opaque! {
    /// The name of a client.
    pub struct Name of LOCK_HOST_BYTES_MAX
}

record! {
    pub struct Entry<'a> {
        pub client: Text<'a>,
        pub own: Text<'a>,
        pub name: Name<'a>,
    }
}

/// A client that had locks when this server was there last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitored {
    /// Its address.
    pub client: IpAddr,
    /// Ours that it knows.
    pub own: IpAddr,
    /// The client's name for itself.
    pub name: Box<[u8]>,
}

/// The part of the lock table on stable storage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The number of NSM: odd while the server is up, and higher after each start.
    pub state: i32,
    /// Clients.
    pub clients: Vec<Monitored>,
}

impl Kept {
    /// The value of the attribute.
    pub fn encode(&self) -> Vec<u8> {
        let texts: Vec<[String; 2]> =
            self.clients.iter().map(|it| [it.client, it.own].map(|at| at.to_string())).collect();
        let mut out = encoded(&VERSION);
        self.state.put(&mut out);
        let entries = self.clients.iter().zip(&texts).map(|(it, [client, own])| Entry {
            client: Text(client.as_bytes()),
            own: Text(own.as_bytes()),
            name: Name(&it.name),
        });
        entries.collect::<Vec<_>>().put(&mut out);
        out
    }

    /// Decodes the value of [`encode`](Kept::encode).
    pub fn decode(bytes: &[u8]) -> Result<Kept, Garbage> {
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or(Garbage)?;
        let (state, rest) = rest.split_first_chunk::<4>().ok_or(Garbage)?;
        if u32::from_be_bytes(*version) != VERSION {
            return Err(Garbage);
        }
        let entries: Vec<Entry<'_>> = decoded(rest)?;
        let clients = entries.iter().map(Monitored::of).collect::<Result<_, _>>()?;
        Ok(Kept { state: i32::from_be_bytes(*state), clients })
    }

    /// The next value, for this incarnation: a number of its own, and the same clients.
    pub fn restarted(self) -> Kept {
        let state = (self.state.wrapping_add(2) | 1) & i32::MAX;
        Kept { state, ..self }
    }
}

impl Monitored {
    fn of(entry: &Entry<'_>) -> Result<Monitored, Garbage> {
        let address = |text: Text<'_>| {
            core::str::from_utf8(text.0).ok().and_then(|text| text.parse().ok()).ok_or(Garbage)
        };
        let (client, own) = (address(entry.client)?, address(entry.own)?);
        Ok(Monitored { client, own, name: entry.name.0.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back_and_the_state_grows() {
        let own = "10.0.0.1".parse().unwrap();
        let client = |number: u8| Monitored {
            client: [10, 0, 1, number].into(),
            own,
            name: vec![b'n'; usize::from(number)].into(),
        };
        let kept = Kept { state: 7, clients: (0..9).map(client).collect() };
        assert_eq!(Kept::decode(&kept.encode()), Ok(kept.clone()));
        assert_eq!(kept.clone().restarted(), Kept { state: 9, ..kept });
        assert_eq!(Kept::default().restarted().state, 3);
        assert_eq!(Kept { state: i32::MAX, ..Kept::default() }.restarted().state, 1);
    }

    #[test]
    fn garbage_is_refused() {
        let bytes = Kept { state: 1, clients: Vec::new() }.encode();
        assert_eq!(Kept::decode(&bytes[..7]), Err(Garbage));
        assert_eq!(Kept::decode(&[9; 12]), Err(Garbage));
    }
}
