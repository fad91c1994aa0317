//! How calls and replies travel between a filter and a manager, on [`wire::Channel::NFS`].
//!
//! ```text
//!   request   body  client's address, its port, rights, length of the path, length of the record
//!             data  path of the export, record
//!   reply     body  how it ended, length of the record
//!             data  record, or the manager's table of sites
//! ```

use super::{Forward, Outcome, Part, Subject};
use crate::exports::{Access, Options, Squash};
use core::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use wire::field::{Field, encoded, fields};
use wire::{Decoder, FileId, Short};

/// Executes a call.
pub(super) const EXECUTE: u16 = 1;
/// Asks a manager for its table of sites.
pub(super) const SITES: u16 = 2;

/// Bytes that are no message of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no message between a filter and a manager")]
pub struct MessageError;

impl From<Short> for MessageError {
    fn from(_: Short) -> MessageError {
        MessageError
    }
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    file: FileId,
    high: u64,
    low: u64,
    port: u16,
    writes: u8,
    squash: u8,
    anonymous_uid: u32,
    anonymous_gid: u32,
    path_bytes: u16,
    record_bytes: u32,
}
fields!(Head {
    file,
    high,
    low,
    port,
    writes,
    squash,
    anonymous_uid,
    anonymous_gid,
    path_bytes,
    record_bytes
});

/// The body and the data of a call.
pub(super) fn encode(forward: &Forward) -> (Vec<u8>, Vec<u8>) {
    let Forward { client, subject, record, .. } = forward;
    let address = match client.ip().to_canonical() {
        core::net::IpAddr::V4(address) => address.to_ipv6_mapped(),
        core::net::IpAddr::V6(address) => address,
    };
    let bits = address.to_bits();
    let options = subject.options;
    let head = Head {
        file: subject.file,
        high: (bits >> 64) as u64,
        low: bits as u64,
        port: client.port(),
        writes: u8::from(options.access == Access::ReadWrite),
        squash: match options.squash {
            Squash::Nobody => 0,
            Squash::Root => 1,
            Squash::All => 2,
        },
        anonymous_uid: options.anonymous_uid,
        anonymous_gid: options.anonymous_gid,
        path_bytes: u16::try_from(subject.path.len()).expect("a path that can be mounted"),
        record_bytes: u32::try_from(record.len()).expect("a record below 4 GiB"),
    };
    (encoded(&head), [subject.path.as_bytes(), record].concat())
}

/// A call as the manager gets it.
pub(super) fn decode(body: &[u8], data: &[u8]) -> Result<Forward, MessageError> {
    let head = Head::take(&mut Decoder::new(body))?;
    let (path_bytes, record_bytes) = (usize::from(head.path_bytes), head.record_bytes as usize);
    if data.len() != path_bytes + record_bytes {
        return Err(MessageError);
    }
    let (path, record) = data.split_at(path_bytes);
    let path = str::from_utf8(path).map_err(|_| MessageError)?.to_string();
    let squash = match head.squash {
        0 => Squash::Nobody,
        1 => Squash::Root,
        2 => Squash::All,
        _ => return Err(MessageError),
    };
    let access = if head.writes == 1 { Access::ReadWrite } else { Access::ReadOnly };
    let (anonymous_uid, anonymous_gid) = (head.anonymous_uid, head.anonymous_gid);
    let options = Options { access, squash, anonymous_uid, anonymous_gid };
    let address = Ipv6Addr::from_bits(u128::from(head.high) << 64 | u128::from(head.low));
    let client = SocketAddr::V6(SocketAddrV6::new(address, head.port, 0, 0));
    let client = SocketAddr::new(client.ip().to_canonical(), head.port);
    let subject = Subject {
        file: head.file,
        part: Part::Whole,
        path,
        options,
        is_listing: false,
        names_files: false,
    };
    Ok(Forward { number: 0, client, subject, record: record.to_vec() })
}

/// How a call ended at a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// It was not executed: the data is the manager's table of sites.
    pub moved: bool,
    /// Another manager is to be asked since the directory is hashed.
    pub is_hashed: bool,
    /// See [`Outcome::is_final`].
    pub is_final: bool,
    /// See [`Outcome::failed`].
    pub failed: bool,
    /// Bytes of data.
    pub bytes: u32,
}
fields!(Ended { moved, is_hashed, is_final, failed, bytes });

impl Ended {
    /// It was executed.
    pub fn of(outcome: &Outcome) -> Ended {
        let Outcome { reply, is_final, failed } = outcome;
        let bytes = reply.len() as u32;
        Ended { moved: false, is_hashed: false, is_final: *is_final, failed: *failed, bytes }
    }

    /// Another manager is to be asked.
    pub fn elsewhere(is_hashed: bool, bytes: usize) -> Ended {
        Ended { moved: true, is_hashed, is_final: false, failed: false, bytes: bytes as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn forward(client: &str, path: &str, record: &[u8]) -> Forward {
        let options = Options { squash: Squash::All, anonymous_uid: 7, ..Options::default() };
        let file = FileId::new(3, 9);
        let path = path.to_string();
        let subject = Subject {
            file,
            part: Part::Whole,
            path,
            options,
            is_listing: false,
            names_files: false,
        };
        let client = client.parse().unwrap();
        Forward { number: 0, client, subject, record: record.to_vec() }
    }

    #[test]
    fn a_call_arrives_with_its_client_and_rights() {
        for client in ["10.1.2.3:700", "[fd00::1]:65535"] {
            let sent = forward(client, "/home/ä", b"record");
            let (body, data) = encode(&sent);
            assert!(body.len() <= wire::limits::BODY_BYTES);
            assert_eq!(decode(&body, &data), Ok(sent));
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused(body in prop::collection::vec(any::<u8>(), 0..=64), data: Vec<u8>) {
            if let Ok(forward) = decode(&body, &data) {
                let whole = forward.subject.path.len() + forward.record.len();
                prop_assert_eq!(whole, data.len());
            }
        }
    }
}
