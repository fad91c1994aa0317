//! One frame: 62 bytes of headers, a body, 16 bytes that prove both.
//!
//! ```text
//!  0  destination 6 | source 6 | type 0x88b5 2                      Ethernet's own, highest byte first
//! 14  version 1 | kind 1 | connection 2                             from here on lowest byte first
//! 18  number 8                  of this frame: each has another, retransmitted ones too
//! 26  heard 8 | before 8        the frames that have come: highest number plus 1; bit n: the one n + 1 below it
//! 42  limit 8                   messages from this number on have no room yet
//! 50  message 8 | fragment 2 | bytes 2
//! 62  body | proof 16
//! ```
//!
//! Headers are proved with the body and not secret: the numbers in them say how much was sent, as any frame does.

use std::fmt::Debug;
use wire::checksum::Digest;
use wire::{Decoder, Encoder, Short};

/// Bytes of an Ethernet address.
pub const ADDRESS_BYTES: usize = 6;
/// An Ethernet address.
pub type Address = [u8; ADDRESS_BYTES];
/// The type of our frames: IEEE 802's first value for local experiments.
pub const ETHER_TYPE: u16 = 0x88b5;
/// Bytes in front of the body.
pub const HEAD_BYTES: usize = 62;
/// Bytes behind it.
pub const PROOF_BYTES: usize = 16;
/// Version of the headers; frames of others are dropped.
pub const VERSION: u8 = 1;

const ETHERNET_BYTES: usize = 14;

/// What a frame is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// It carries a fragment of a message.
    #[default]
    Data = 1,
    /// It says what has come, and no more.
    Ack = 2,
    /// As long as any: does it arrive?
    Probe = 3,
    /// It did. As long as the probe, for the way back.
    Answer = 4,
    /// The sender has waited for room: is there any?
    Ask = 5,
}

impl Kind {
    fn parse(byte: u8) -> Option<Kind> {
        use Kind::*;
        [Data, Ack, Probe, Answer, Ask].into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Whether the receiver must say that it came.
    pub fn is_acknowledged(self) -> bool {
        matches!(self, Kind::Data | Kind::Ask)
    }
}

/// The headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Where the frame goes.
    pub destination: Address,
    /// Where it comes from.
    pub source: Address,
    /// What it is for.
    pub kind: Kind,
    /// The receiver's number of the connection.
    pub connection: u16,
    /// Of this frame.
    pub number: u64,
    /// Highest number that has come, plus 1; 0: none has.
    pub heard: u64,
    /// Which of the 64 below that have come.
    pub before: u64,
    /// First message that the sender of this has no room for.
    pub limit: u64,
    /// Of a fragment, its message.
    pub message: u64,
    /// Which fragment.
    pub fragment: u16,
    /// Bytes of the body.
    pub bytes: u16,
}

impl Head {
    /// Writes it to the first [`HEAD_BYTES`] bytes.
    pub fn encode(&self, into: &mut [u8]) {
        let mut out = Encoder::new(into);
        out.raw(&self.destination).raw(&self.source).raw(&ETHER_TYPE.to_be_bytes());
        out.u8(VERSION).u8(self.kind as u8).u16(self.connection).u64(self.number);
        out.u64(self.heard).u64(self.before).u64(self.limit);
        out.u64(self.message).u16(self.fragment).u16(self.bytes);
    }

    /// Reads it from a frame that is long enough for its body and proof; what may follow is padding. `None`: not ours,
    /// or of another version.
    pub fn parse(frame: &[u8]) -> Option<Head> {
        let head = Head::decode(frame).ok().flatten()?;
        let long = frame.len() >= HEAD_BYTES + usize::from(head.bytes) + PROOF_BYTES;
        long.then_some(head)
    }

    fn decode(frame: &[u8]) -> Result<Option<Head>, Short> {
        let mut from = Decoder::new(frame);
        let addresses = from.raw(2 * ADDRESS_BYTES)?;
        let (destination, source) = addresses.split_at(ADDRESS_BYTES);
        let ours = from.raw(2)? == ETHER_TYPE.to_be_bytes() && from.u8()? == VERSION;
        let Some(kind) = Kind::parse(from.u8()?).filter(|_| ours) else { return Ok(None) };
        Ok(Some(Head {
            destination: destination.try_into().expect("6 bytes"),
            source: source.try_into().expect("6 bytes"),
            kind,
            connection: from.u16()?,
            number: from.u64()?,
            heard: from.u64()?,
            before: from.u64()?,
            limit: from.u64()?,
            message: from.u64()?,
            fragment: from.u16()?,
            bytes: from.u16()?,
        }))
    }
}

/// The number of the connection that a frame is for, before anything of it is proved.
pub fn connection_of(frame: &[u8]) -> Option<u16> {
    Head::parse(frame).map(|head| head.connection)
}

/// Body bytes of frames of at most `frame_bytes`.
pub const fn body_bytes(frame_bytes: usize) -> usize {
    frame_bytes.saturating_sub(HEAD_BYTES + PROOF_BYTES)
}

/// Longest frame on an Ethernet of this MTU.
pub fn frame_bytes(mtu: usize) -> usize {
    mtu + ETHERNET_BYTES
}

/// Makes and checks the proof of frames, and may hide their bodies.
pub trait Seal: Debug {
    /// Seals the frame of this number, which no other has.
    fn seal(&mut self, number: u64, head: &[u8], body: &mut [u8], proof: &mut [u8]);
    /// Opens it in place; false: it was not sealed by the peer, or changed on its way.
    fn open(&mut self, number: u64, head: &[u8], body: &mut [u8], proof: &[u8]) -> bool;
}

/// A checksum under a number that both sides agreed on: finds damage, and frames of earlier connections. Against
/// forgers it does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Checked(pub u64);

impl Checked {
    fn sum(&self, number: u64, head: &[u8], body: &[u8]) -> [u8; 4] {
        let mut digest = Digest::new();
        digest.update(&self.0.to_le_bytes());
        digest.update(&number.to_le_bytes());
        digest.update(head);
        digest.update(body);
        digest.finish().to_le_bytes()
    }
}

impl Seal for Checked {
    fn seal(&mut self, number: u64, head: &[u8], body: &mut [u8], proof: &mut [u8]) {
        proof.fill(0);
        proof[..4].copy_from_slice(&self.sum(number, head, body));
    }

    fn open(&mut self, number: u64, head: &[u8], body: &mut [u8], proof: &[u8]) -> bool {
        let (sum, rest) = proof.split_at(4);
        sum == self.sum(number, head, body) && rest.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let head = Head {
            destination: [1, 2, 3, 4, 5, 6],
            source: [7; 6],
            kind: Kind::Ask,
            connection: 8,
            number: 1 << 40,
            heard: 9,
            before: 10,
            limit: 11,
            message: 12,
            fragment: 13,
            bytes: 2,
        };
        let mut frame = [0; HEAD_BYTES + 2 + PROOF_BYTES];
        head.encode(&mut frame);
        assert_eq!(Head::parse(&frame), Some(head));
        assert_eq!(Head::parse(&frame[..frame.len() - 1]), None, "it ends before its proof");
        for at in [12, 14, 15] {
            let mut other = frame;
            other[at] ^= 0x40;
            assert_eq!(Head::parse(&other), None, "byte {at}");
        }
        assert!((0..frame.len()).all(|cut| Head::parse(&frame[..cut]).is_none()));
    }

    #[test]
    fn a_checksum_finds_a_changed_byte_and_a_frame_of_another_connection() {
        let (mut seal, mut other) = (Checked(1), Checked(2));
        let (head, mut body, mut proof) = ([1; HEAD_BYTES], [2; 100], [0; PROOF_BYTES]);
        seal.seal(3, &head, &mut body, &mut proof);
        assert!(seal.open(3, &head, &mut body, &proof));
        assert!(!seal.open(4, &head, &mut body, &proof));
        assert!(!other.open(3, &head, &mut body, &proof));
        body[50] ^= 1;
        assert!(!seal.open(3, &head, &mut body, &proof));
    }
}
