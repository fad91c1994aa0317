//! How two links introduce themselves: 64 bytes each way, before anything else.
//!
//! ```text
//!  0  "trapeze\n" 8 | link version 2 | message version 1 | flags 1 | refusal 1 | 0 1 | node 2 | assigned 2
//! 18  Ethernet address 6 | incarnation 8 | cluster 8 | session 8 | pool bytes 8
//! 56  ring slots 4 | Ethernet connection 2 | frame bytes 2
//! ```
//!
//! The caller speaks first; the acceptor answers with its own, or with a refusal that says why. Under encryption the
//! same bytes are repeated inside the Noise handshake, so what is used has been authenticated.

use nic::ether::Address;
use std::fmt;
use wire::control::VERSION;
use wire::{Decoder, Encoder, NodeId};

/// Version of everything between links that is not the control message: the handshake, and the layouts of all requests
/// and replies. It rises once a release in which any of them changes.
pub const LINK_VERSION: u16 = 2;
/// Bytes of a hello.
pub const HELLO_BYTES: usize = 64;
const MAGIC: &[u8; 8] = b"trapeze\n";
const SECURE: u8 = 1;
const BULK: u8 = 2;
const ADAPTER: u8 = 4;
const ETHERNET: u8 = 8;

/// Where a side takes Ethernet frames of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Its address.
    pub address: Address,
    /// The number by which frames to it name the connection.
    pub connection: u16,
    /// Bytes of the longest frame that it takes.
    pub bytes: u16,
}

/// The properties that a side announces first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Whether the connection is to be encrypted.
    pub secure: bool,
    /// A second connection, for large payloads.
    pub bulk: bool,
    /// Shared memory only: payloads go through adapters, and the memory passed is theirs.
    pub adapter: bool,
    /// Why the acceptor does not want this connection.
    pub refusal: Option<Refusal>,
    /// The speaker; 0 has no id yet.
    pub node: NodeId,
    /// The acceptor: the id that the caller is given, if it has none. The caller: who it wants, 0 is anybody.
    pub assigned: NodeId,
    /// The speaker's start, different in each incarnation.
    pub incarnation: u64,
    /// The cluster it belongs to.
    pub cluster: u64,
    /// Joins the two connections of one pair; chosen by the acceptor of the first.
    pub session: u64,
    /// Shared memory only: bytes of the speaker's pool, or of its adapter's memory.
    pub pool_bytes: u64,
    /// Shared memory only: slots of its ring.
    pub slots: u32,
    /// TCP only: where it takes Ethernet frames, if it does.
    pub frames: Option<Frames>,
}

/// Why a connection was refused, as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// Of another cluster.
    Cluster = 1,
    /// One side wants encryption, the other not.
    Security = 2,
    /// The cluster key is another one.
    Key = 3,
    /// It has no id left for one more node without an id.
    Busy = 4,
    /// There is a connection between the two already.
    Duplicate = 5,
    /// Both say to be the same node, or one that runs and was started later says so.
    Identity = 6,
    /// Another release.
    Version = 7,
    /// The caller wants another node.
    Address = 8,
}

impl Refusal {
    fn parse(byte: u8) -> Option<Refusal> {
        use Refusal::*;
        [Cluster, Security, Key, Busy, Duplicate, Identity, Version, Address]
            .into_iter()
            .find(|r| *r as u8 == byte)
    }

    /// Whether an acceptor that refuses for this reason can prove to an encrypting caller that it knows the cluster
    /// key: not to one that has another key, another release, or does not encrypt.
    pub fn is_provable(self) -> bool {
        !matches!(self, Refusal::Security | Refusal::Key | Refusal::Version)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Cluster => "it belongs to another cluster: check the address",
            Refusal::Security => {
                "one side encrypts and the other runs with --insecure: configure both the same way"
            }
            Refusal::Key => "the cluster key does not fit: give both machines the same key",
            Refusal::Busy => "it has too many connections of nodes without an id: try again",
            Refusal::Duplicate => "the two are connected already",
            Refusal::Identity => "two nodes have the same id: give each its own",
            Refusal::Address => "another node answers at this address: check the directory",
            Refusal::Version => "the releases do not speak to each other: run the same on both",
        })
    }
}

/// Why 64 bytes are no hello that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHello {
    /// Not Trapeze.
    Foreign,
    /// Another release: its link version and message version.
    Version(u16, u8),
    /// The peer does not want the connection.
    Refused(Refusal),
}

impl fmt::Display for BadHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadHello::Foreign => {
                f.write_str("whoever is there does not speak Trapeze: check the address")
            }
            BadHello::Version(link, message) => {
                let older = match (*link, *message) < (LINK_VERSION, VERSION) {
                    true => "the peer is the older one: upgrade it",
                    false => "this program is the older one: upgrade it",
                };
                write!(
                    f,
                    "the peer speaks link version {link} and message version {message}, this program {LINK_VERSION} and \
                     {VERSION}: {older}, so that both run the same release"
                )
            }
            BadHello::Refused(refusal) => write!(f, "the peer refuses: {refusal}"),
        }
    }
}

impl Hello {
    /// As it travels.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        let flags = (u8::from(self.secure) * SECURE)
            | (u8::from(self.bulk) * BULK)
            | (u8::from(self.adapter) * ADAPTER)
            | (u8::from(self.frames.is_some()) * ETHERNET);
        let none = Frames { address: Address::default(), connection: 0, bytes: 0 };
        let frames = self.frames.unwrap_or(none);
        let mut out = Encoder::new(&mut bytes);
        out.raw(MAGIC).u16(LINK_VERSION).u8(VERSION).u8(flags);
        out.u8(self.refusal.map_or(0, |r| r as u8)).u8(0);
        out.u16(self.node.0).u16(self.assigned.0).raw(&frames.address);
        out.u64(self.incarnation).u64(self.cluster).u64(self.session).u64(self.pool_bytes);
        out.u32(self.slots).u16(frames.connection).u16(frames.bytes);
        bytes
    }

    /// Checks and reads the 64 bytes.
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, BadHello> {
        let fields = |bytes| -> Result<Result<Hello, BadHello>, wire::Short> {
            let mut from = Decoder::new(bytes);
            if from.raw(8)? != MAGIC {
                return Ok(Err(BadHello::Foreign));
            }
            let (link, message, flags) = (from.u16()?, from.u8()?, from.u8()?);
            let refusal = from.u8()?;
            if link != LINK_VERSION || message != VERSION {
                return Ok(Err(BadHello::Version(link, message)));
            }
            if let Some(refusal) = Refusal::parse(refusal) {
                return Ok(Err(BadHello::Refused(refusal)));
            }
            from.u8()?;
            let (node, assigned) = (NodeId(from.u16()?), NodeId(from.u16()?));
            let address = from.raw(6)?.try_into().expect("6 bytes");
            let (incarnation, cluster) = (from.u64()?, from.u64()?);
            let (session, pool_bytes, slots) = (from.u64()?, from.u64()?, from.u32()?);
            let frames = Frames { address, connection: from.u16()?, bytes: from.u16()? };
            let (secure, bulk) = (flags & SECURE != 0, flags & BULK != 0);
            let adapter = flags & ADAPTER != 0;
            Ok(Ok(Hello {
                secure,
                bulk,
                adapter,
                refusal: None,
                node,
                assigned,
                incarnation,
                cluster,
                session,
                pool_bytes,
                slots,
                frames: (flags & ETHERNET != 0).then_some(frames),
            }))
        };
        fields(&bytes[..]).unwrap_or(Err(BadHello::Foreign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_said_is_heard() {
        let hello = Hello {
            secure: true,
            adapter: true,
            node: NodeId(3),
            assigned: NodeId(4),
            incarnation: 5,
            cluster: 6,
            session: 7,
            pool_bytes: 8,
            slots: 9,
            frames: Some(Frames { address: [10; 6], connection: 11, bytes: 12 }),
            ..Hello::default()
        };
        assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
        let refusal = Hello { refusal: Some(Refusal::Key), ..hello };
        assert_eq!(Hello::parse(&refusal.encode()), Err(BadHello::Refused(Refusal::Key)));
    }

    #[test]
    fn other_releases_are_refused_naming_both_versions_and_the_older_side() {
        let said = |link: u16, message: u8| {
            let mut bytes = Hello { refusal: Some(Refusal::Version), ..Hello::default() }.encode();
            bytes[8..10].copy_from_slice(&link.to_le_bytes());
            bytes[10] = message;
            let error = Hello::parse(&bytes).unwrap_err();
            assert_eq!(error, BadHello::Version(link, message));
            let text = error.to_string();
            assert!(text.contains(&format!("link version {link} and message version {message}")));
            assert!(text.contains(&format!("this program {LINK_VERSION} and {VERSION}")), "{text}");
            text
        };
        for (link, message) in [(1, VERSION), (1, VERSION + 1), (LINK_VERSION, VERSION - 1)] {
            assert!(said(link, message).contains("the peer is the older one: upgrade it"));
        }
        for (link, message) in [(9, VERSION), (9, VERSION - 1), (LINK_VERSION, VERSION + 1)] {
            assert!(said(link, message).contains("this program is the older one: upgrade it"));
        }
    }

    proptest! {
        #[test]
        fn noise_is_no_hello(bytes: [u8; 32]) {
            let mut noise = [0; HELLO_BYTES];
            noise[..32].copy_from_slice(&bytes);
            prop_assert_eq!(Hello::parse(&noise), Err(BadHello::Foreign));
        }
    }
}
