//! The layout of a message: its 128-byte control message, followed by payload and trailer.
//!
//! ```text
//!  0  version 1 | kind 1 | flags 1 | trailer words 1 | source 2 | destination 2
//!  8  channel 2 | credit slots 2 | credit frames 2 | token index 2
//! 16  session epoch 4 | sequence 4
//! 24  payload length 4 | deadline ms 4                    (data, without the trailer)
//! 32  token key 8
//! 40  payload checksum 4 | header checksum 4
//! 48  call 4 | slot 2 | op 2 | origin 2 | status 2 | origin epoch 4       (NetRPC's call header)
//! 64  64 bytes of the operation
//! ```
//!
//! The header checksum is the CRC-32C of all 128 bytes with itself as zero. The payload checksum is that of the
//! trailer when there is one, because a trailer holds the checksums of the data's blocks; else that of the data.

use crate::checksum::crc32c;
use crate::ids::{NodeId, SessionEpoch, Token};
use crate::limits::*;
use core::fmt;

/// The version this code speaks; any other is refused, naming both.
pub const VERSION: u8 = 2;

const CHECKSUM_AT: usize = 44;

/// A control message as it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Control(pub [u8; CONTROL_BYTES]);

impl Default for Control {
    fn default() -> Self {
        Control([0; CONTROL_BYTES])
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ControlView::new(self) {
            Ok(view) => write!(f, "{:?} {:?}", view.header(), view.call()),
            Err(error) => write!(f, "malformed control message: {error}"),
        }
    }
}

/// Kind of a message of NetRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A call; its token names where the reply's payload goes.
    Request = 1,
    /// The answer; its token names where its payload goes.
    Reply = 2,
    /// A forwarded call was answered elsewhere: frees the forwarder's slot.
    Done = 3,
    /// Asks for a session: the sender's incarnation, and one that it is later than though that is the greater number.
    Hello = 4,
    /// Grants a session; with epoch 0 none: the asker's incarnation, and the greater one that is known.
    Welcome = 5,
    /// The named session is not known here: its sender must ask for a new one.
    Reset = 6,
    /// Carries credits only, and shows that the sender is up.
    Credit = 7,
    /// No call: a message for the reader of the endpoint itself, best effort; its token, if any, names where its own
    /// payload goes.
    Message = 8,
}

impl Kind {
    fn parse(byte: u8) -> Option<Kind> {
        use Kind::*;
        let all = [Request, Reply, Done, Hello, Welcome, Reset, Credit, Message];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Bits of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Not to be executed twice: the server keeps the reply until the slot's next call.
    pub const ONCE: Flags = Flags(1);
    /// Forwarded: the reply goes to the origin in the call header.
    pub const DELEGATED: Flags = Flags(2);
    /// Sent before.
    pub const AGAIN: Flags = Flags(4);

    /// Both sets of bits.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// Whether every bit of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The service that a message is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(pub u16);

impl Channel {
    /// NetRPC's own lane.
    pub const CONTROL: Channel = Channel(0);
    /// Block storage (`stripe`).
    pub const STRIPE: Channel = Channel(1);
    /// The name space (`names`).
    pub const NAMES: Channel = Channel(2);
    /// Cluster coordination (`members`).
    pub const MEMBERS: Channel = Channel(3);
    /// Network memory (`netmem`).
    pub const MEMORY: Channel = Channel(4);
    /// A node's report of its own state, for operators.
    pub const STATUS: Channel = Channel(5);
    /// Keys and values (`kv`).
    pub const KEYS: Channel = Channel(6);
    /// File managers among themselves (`names`).
    pub const MANAGERS: Channel = Channel(7);
    /// Calls of clients of NFS that a packet filter forwards (`nfs`).
    pub const NFS: Channel = Channel(8);
    /// Importers of foreign servers' files (`imports`).
    pub const IMPORTS: Channel = Channel(9);
    /// Changes that a group's primary forwards to its other replicas (`stripe`).
    pub const REPLICAS: Channel = Channel(10);
    /// Leases between the replicas of groups (`stripe`).
    pub const LEASES: Channel = Channel(11);
    /// Reads of a replica that is brought up to date (`stripe`).
    pub const FILLS: Channel = Channel(12);
    /// The first channel that applications may use for services of their own.
    pub const USER: Channel = Channel(16);
    /// Channels are numbered below this.
    pub const COUNT: usize = 32;
}

/// Every field of the header but version and header checksum, which [`Control::seal`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message's kind.
    pub kind: Kind,
    /// Its bits.
    pub flags: Flags,
    /// Words of 8 bytes that follow the data: block checksums.
    pub trailer_words: u8,
    /// The sender.
    pub source: NodeId,
    /// The receiver.
    pub destination: NodeId,
    /// The service it is for.
    pub channel: Channel,
    /// Calls the sender of this message lets its peer have open (server to client), or has taken note of.
    pub credit_slots: u16,
    /// Pages of request payload that the peer may have on the way, likewise.
    pub credit_frames: u16,
    /// Token of a payload: of a request, the reply's; of a reply, this one's.
    pub token: Token,
    /// The session it belongs to.
    pub epoch: SessionEpoch,
    /// The slot's call number.
    pub sequence: u32,
    /// Bytes of data that follow.
    pub payload_bytes: u32,
    /// Milliseconds the caller will still wait; 0 is for ever.
    pub deadline_ms: u32,
    /// See the module's text.
    pub payload_checksum: u32,
}

impl Header {
    /// A header with everything zero but the kind and the two ends.
    pub fn new(kind: Kind, source: NodeId, destination: NodeId) -> Header {
        Header {
            kind,
            flags: Flags::default(),
            trailer_words: 0,
            source,
            destination,
            channel: Channel::CONTROL,
            credit_slots: 0,
            credit_frames: 0,
            token: Token::NONE,
            epoch: SessionEpoch(0),
            sequence: 0,
            payload_bytes: 0,
            deadline_ms: 0,
            payload_checksum: 0,
        }
    }

    /// Bytes of trailer behind the data.
    pub fn trailer_bytes(&self) -> usize {
        usize::from(self.trailer_words) * TRAILER_WORD_BYTES
    }

    /// Bytes that follow the control message on a link: data and trailer.
    pub fn following_bytes(&self) -> usize {
        self.payload_bytes as usize + self.trailer_bytes()
    }
}

/// NetRPC's part of the caller's area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallHeader {
    /// The origin's call record: index in the low half, generation in the high half.
    pub call: u32,
    /// Slot of the session that the call occupies.
    pub slot: u16,
    /// Operation, in the channel's numbering.
    pub op: u16,
    /// Of a delegated request, who waits for the reply.
    pub origin: NodeId,
    /// Of a reply, 0 or why there is none.
    pub status: u16,
    /// Of a delegated request, the origin's session.
    pub origin_epoch: SessionEpoch,
}

/// Why 128 bytes are not a message of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Another version.
    Version(u8),
    /// The header checksum does not fit.
    Checksum,
    /// No kind has this number.
    Kind(u8),
    /// No channel has this number.
    Channel(u16),
    /// More payload than a message may have.
    Payload(u32),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Version(theirs) => write!(
                f,
                "the peer speaks message version {theirs}, this program speaks {VERSION}: run the same release on both"
            ),
            Malformed::Checksum => {
                f.write_str("the header checksum does not fit: damaged, or not Trapeze")
            }
            Malformed::Kind(kind) => write!(f, "no message kind has the number {kind}"),
            Malformed::Channel(channel) => write!(f, "no channel has the number {channel}"),
            Malformed::Payload(bytes) => {
                write!(f, "a payload of {bytes} bytes; {PAYLOAD_BYTES_MAX} is the most")
            }
        }
    }
}

impl core::error::Error for Malformed {}

impl Control {
    /// A message with this header and call header, its body zero, not yet sealed.
    pub fn new(header: &Header, call: &CallHeader) -> Control {
        let mut control = Control::default();
        control.set_header(header);
        control.set_call(call);
        control
    }

    /// Writes the header; the header checksum is left for [`seal`](Control::seal).
    pub fn set_header(&mut self, header: &Header) {
        let mut out = crate::Encoder::new(&mut self.0[..HEADER_BYTES]);
        out.u8(VERSION).u8(header.kind as u8).u8(header.flags.0).u8(header.trailer_words);
        out.u16(header.source.0).u16(header.destination.0).u16(header.channel.0);
        out.u16(header.credit_slots).u16(header.credit_frames).u16(header.token.index);
        out.u32(header.epoch.0).u32(header.sequence);
        out.u32(header.payload_bytes).u32(header.deadline_ms);
        out.u64(header.token.key).u32(header.payload_checksum).u32(0);
    }

    /// Writes the call header.
    pub fn set_call(&mut self, call: &CallHeader) {
        let area = &mut self.0[HEADER_BYTES..HEADER_BYTES + CALL_HEADER_BYTES];
        let mut out = crate::Encoder::new(area);
        out.u32(call.call).u16(call.slot).u16(call.op);
        out.u16(call.origin.0).u16(call.status).u32(call.origin_epoch.0);
    }

    /// The message's destination, for a link that routes what its own node sealed. Not checked.
    pub fn destination(&self) -> NodeId {
        NodeId(u16::from_le_bytes([self.0[6], self.0[7]]))
    }

    /// Bytes of trailer, for a link that sends what its own node sealed. Not checked.
    pub fn trailer_bytes(&self) -> usize {
        usize::from(self.0[3]) * TRAILER_WORD_BYTES
    }

    /// The operation's 64 bytes.
    pub fn body(&self) -> &[u8; BODY_BYTES] {
        self.0[HEADER_BYTES + CALL_HEADER_BYTES..].try_into().expect("64 bytes")
    }

    /// The operation's 64 bytes, to be written before [`seal`](Control::seal).
    pub fn body_mut(&mut self) -> &mut [u8; BODY_BYTES] {
        (&mut self.0[HEADER_BYTES + CALL_HEADER_BYTES..]).try_into().expect("64 bytes")
    }

    /// Content of a message that is no call: all behind the header, 80 bytes.
    pub fn content(&self) -> &[u8; MESSAGE_BYTES] {
        self.0[HEADER_BYTES..].try_into().expect("80 bytes")
    }

    /// The content, to be written before [`seal`](Control::seal).
    pub fn content_mut(&mut self) -> &mut [u8; MESSAGE_BYTES] {
        (&mut self.0[HEADER_BYTES..]).try_into().expect("80 bytes")
    }

    /// Writes the header checksum over everything else; the last thing done before sending.
    pub fn seal(&mut self) {
        self.0[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        let sum = crc32c(&self.0);
        self.0[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A control message that passed every check: its accessors cannot fail.
#[derive(Clone, Copy, Debug)]
pub struct ControlView<'a> {
    control: &'a Control,
    kind: Kind,
}

impl<'a> ControlView<'a> {
    /// Checks version, header checksum, kind, channel and payload length, in this order, so that the message of a
    /// newer release is refused as such and not as damaged.
    pub fn new(control: &'a Control) -> Result<Self, Malformed> {
        let bytes = &control.0;
        if bytes[0] != VERSION {
            return Err(Malformed::Version(bytes[0]));
        }
        let mut unsealed = *control;
        unsealed.0[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        if crc32c(&unsealed.0).to_le_bytes() != bytes[CHECKSUM_AT..CHECKSUM_AT + 4] {
            return Err(Malformed::Checksum);
        }
        let kind = Kind::parse(bytes[1]).ok_or(Malformed::Kind(bytes[1]))?;
        let view = ControlView { control, kind };
        if usize::from(view.u16(8)) >= Channel::COUNT {
            return Err(Malformed::Channel(view.u16(8)));
        }
        if view.u32(24) as usize > PAYLOAD_BYTES_MAX {
            return Err(Malformed::Payload(view.u32(24)));
        }
        Ok(view)
    }

    /// A view of a message that was checked where it arrived. Panics when its kind is none of ours.
    pub fn checked_before(control: &'a Control) -> Self {
        ControlView { control, kind: Kind::parse(control.0[1]).expect("the adapter checked it") }
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.control.0[at], self.control.0[at + 1]])
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.control.0[at..at + 4].try_into().expect("4 bytes"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.control.0[at..at + 8].try_into().expect("8 bytes"))
    }

    /// The header.
    pub fn header(&self) -> Header {
        Header {
            kind: self.kind,
            flags: Flags(self.control.0[2]),
            trailer_words: self.control.0[3],
            source: NodeId(self.u16(4)),
            destination: NodeId(self.u16(6)),
            channel: Channel(self.u16(8)),
            credit_slots: self.u16(10),
            credit_frames: self.u16(12),
            token: Token { index: self.u16(14), key: self.u64(32) },
            epoch: SessionEpoch(self.u32(16)),
            sequence: self.u32(20),
            payload_bytes: self.u32(24),
            deadline_ms: self.u32(28),
            payload_checksum: self.u32(40),
        }
    }

    /// NetRPC's call header.
    pub fn call(&self) -> CallHeader {
        CallHeader {
            call: self.u32(48),
            slot: self.u16(52),
            op: self.u16(54),
            origin: NodeId(self.u16(56)),
            status: self.u16(58),
            origin_epoch: SessionEpoch(self.u32(60)),
        }
    }

    /// The operation's bytes.
    pub fn body(&self) -> &'a [u8; BODY_BYTES] {
        self.control.body()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        let kinds =
            prop::sample::select(&[Kind::Request, Kind::Reply, Kind::Done, Kind::Message][..]);
        let first = (kinds, any::<(u8, u8, u16, u16)>(), 0..Channel::COUNT as u16);
        let second =
            (any::<(u16, u16, u16, u64)>(), any::<(u32, u32)>(), 0..=PAYLOAD_BYTES_MAX as u32);
        (first, second, any::<(u32, u32)>()).prop_map(
            |((kind, a, channel), (b, c, payload_bytes), d)| Header {
                kind,
                flags: Flags(a.0),
                trailer_words: a.1,
                source: NodeId(a.2),
                destination: NodeId(a.3),
                channel: Channel(channel),
                credit_slots: b.0,
                credit_frames: b.1,
                token: Token { index: b.2, key: b.3 },
                epoch: SessionEpoch(c.0),
                sequence: c.1,
                payload_bytes,
                deadline_ms: d.0,
                payload_checksum: d.1,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(header in header(), call: u32, slot: u16, op: u16, body: [u8; 32]) {
            let call = CallHeader { call, slot, op, ..CallHeader::default() };
            let mut control = Control::new(&header, &call);
            control.body_mut()[..32].copy_from_slice(&body);
            control.seal();
            let view = ControlView::new(&control).unwrap();
            prop_assert_eq!(view.header(), header);
            prop_assert_eq!(view.call(), call);
            prop_assert_eq!(&view.body()[..32], &body);
        }

        #[test]
        fn one_flipped_bit_is_refused(header in header(), bit in 0..CONTROL_BYTES * 8) {
            let mut control = Control::new(&header, &CallHeader::default());
            control.seal();
            control.0[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(ControlView::new(&control).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), CONTROL_BYTES), seal: bool) {
            let mut control = Control(bytes.try_into().unwrap());
            control.0[0] = VERSION;
            if seal { control.seal(); }
            if let Ok(view) = ControlView::new(&control) {
                prop_assert!(view.header().payload_bytes as usize <= PAYLOAD_BYTES_MAX);
            }
        }
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let mut control =
            Control::new(&Header::new(Kind::Hello, NodeId(1), NodeId(2)), &CallHeader::default());
        control.0[0] = 9;
        control.seal();
        let error = ControlView::new(&control).unwrap_err();
        assert_eq!(error, Malformed::Version(9));
    }
}
