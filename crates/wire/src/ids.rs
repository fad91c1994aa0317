//! Identifiers that cross machines.

use core::fmt;

/// A node: one endpoint of the cluster. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// A volume: one name space with its objects. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// A file, never reused: the site that keeps its attributes in the top 8 bits, a serial number below.
/// It is also the inode number that applications see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

impl FileId {
    /// The root directory of every volume: site 0, serial 1.
    pub const ROOT: FileId = FileId(1);

    /// The file with this serial number at `site`.
    pub const fn new(site: u8, serial: u64) -> FileId {
        FileId((site as u64) << 56 | (serial & ((1 << 56) - 1)))
    }

    /// The logical site that keeps this file's attributes and, of a directory, its entries.
    pub const fn site(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// The serial number within the site.
    pub const fn serial(self) -> u64 {
        self.0 & ((1 << 56) - 1)
    }
}

/// The identity of a call of a protocol with retransmission, whichever of our nodes it comes to: its duplicates have
/// the same (RFC 1813 section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    /// The client's address, as of IPv6.
    pub client: u128,
    /// The client's number of the call; numbers are used again some day.
    pub xid: u32,
    /// The procedure.
    pub procedure: u32,
    /// CRC-32C of the call's head, credential and arguments but the data of a WRITE, and its bytes.
    pub head: (u32, u32),
}

/// One column of one file: what an I/O server keeps as one object. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The volume the file belongs to.
    pub volume: VolumeId,
    /// The file.
    pub file: FileId,
    /// Its column, counted from 0 in the order of the layout.
    pub column: u16,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{:016x}.{:04x}", self.volume.0, self.file.0, self.column)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// Names one session between a client and a server incarnation, chosen by the server. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionEpoch(pub u32);

/// The right to put one payload into frames that the receiver chose: an index into its incoming payload table
/// and the key that the entry had when the token was made (USENIX'98: payload token). One-shot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Token {
    /// Entry of the incoming payload table.
    pub index: u16,
    /// The entry's generation key; 0 is no token.
    pub key: u64,
}

impl Token {
    /// No token: the message's payload, if any, goes where the receiver's endpoint decides.
    pub const NONE: Token = Token { index: 0, key: 0 };

    /// Whether this names an entry at all.
    pub const fn is_some(self) -> bool {
        self.key != 0
    }
}
