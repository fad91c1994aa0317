//! Captures that open in Wireshark: pcapng (draft-ietf-opsawg-pcapng), little-endian, nanoseconds.
//!
//! A packet is a control message of 128 bytes and what of its payload was kept. There is no link type for Trapeze, so
//! that captures use the first one for private use, `LINKTYPE_USER0`; docs/src/papers.md shows how to tell Wireshark.

use sim::queue::Picos;

/// `LINKTYPE_USER0`, which tools also call DLT_USER0.
pub const LINK_TYPE: u16 = 147;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_FLAGS: u16 = 2;
/// Times are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

/// Which way a packet goes at the interface that saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It arrives.
    Inbound,
    /// It leaves.
    Outbound,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'p> {
    /// Which interface saw it, from [`Capture::interface`].
    pub interface: u32,
    /// When.
    pub at: Picos,
    /// Which way.
    pub direction: Direction,
    /// Its bytes that are kept; the control message first.
    pub bytes: &'p [u8],
    /// How long it was; at least as long as what is kept.
    pub length: u32,
    /// A remark, shown beside the packet; may be empty.
    pub comment: &'p str,
}

/// A capture under way.
#[derive(Clone, Debug)]
pub struct Capture {
    bytes: Vec<u8>,
    interfaces: u32,
}

impl Default for Capture {
    fn default() -> Capture {
        let mut capture = Capture { bytes: Vec::new(), interfaces: 0 };
        let mut body = BYTE_ORDER.to_le_bytes().to_vec();
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend(u64::MAX.to_le_bytes()); // the section's length is not told
        option(&mut body, OPTION_APPLICATION, b"trapeze");
        end_of_options(&mut body);
        capture.block(SECTION_HEADER, &body);
        capture
    }
}

impl Capture {
    /// Adds an interface, an adapter for example, and returns its number.
    pub fn interface(&mut self, name: &str) -> u32 {
        let mut body = LINK_TYPE.to_le_bytes().to_vec();
        body.extend([0; 6]); // reserved; no limit of what is kept
        option(&mut body, OPTION_NAME, name.as_bytes());
        option(&mut body, OPTION_RESOLUTION, &[NANOSECONDS]);
        end_of_options(&mut body);
        self.block(INTERFACE, &body);
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Adds a packet.
    pub fn packet(&mut self, packet: Packet<'_>) {
        assert!(packet.interface < self.interfaces, "an interface of this capture");
        assert!(packet.bytes.len() <= packet.length as usize, "no more is kept than there was");
        let nanos = packet.at.0 / 1_000;
        let kept = u32::try_from(packet.bytes.len()).expect("less than 4 GiB");
        let head = [packet.interface, (nanos >> 32) as u32, nanos as u32, kept, packet.length];
        let mut body: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(packet.bytes);
        pad(&mut body);
        let direction = if packet.direction == Direction::Inbound { 1u32 } else { 2 };
        option(&mut body, OPTION_FLAGS, &direction.to_le_bytes());
        if !packet.comment.is_empty() {
            option(&mut body, OPTION_COMMENT, packet.comment.as_bytes());
        }
        end_of_options(&mut body);
        self.block(ENHANCED_PACKET, &body);
    }

    /// The file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A block: its kind, its length, its body, and its length again.
    fn block(&mut self, kind: u32, body: &[u8]) {
        let length = u32::try_from(body.len() + 12).expect("less than 4 GiB").to_le_bytes();
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(length);
        self.bytes.extend(body);
        self.bytes.extend(length);
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).expect("an option is short");
    body.extend(code.to_le_bytes());
    body.extend(length.to_le_bytes());
    body.extend(value);
    pad(body);
}

fn end_of_options(body: &mut Vec<u8>) {
    body.extend([0; 4]);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}
