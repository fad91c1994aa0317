//! Messages as runs of bytes, cut into the body and the data of a call, and what is said beside them.

use endpoint::FrameMut;
use wire::field::{Field, fields};
use wire::limits::BODY_BYTES;
use wire::{Decoder, NodeId, Short, VolumeId};

impl CallNumber {
    /// A permanent name of the client: its node, that node's incarnation, and the client within it, mixed so that
    /// different ones differ (splitmix64 is a bijection of its input, so one node's clients never collide). 0 is none.
    pub fn client(&self, source: NodeId, incarnation: u64) -> u64 {
        let within = u64::from(source.0) << 32 | u64::from(self.instance);
        mix(incarnation ^ mix(within)).max(1)
    }
}

fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Bytes that say what a message is about: of a call its [`CallNumber`], of an answer a [`Point`].
type About = [u8; 4 + 4 + 2 + 4];
/// Bytes of a body before the message: its length, and what it is about.
const PREFIX_BYTES: usize = 4 + size_of::<About>();
/// Bytes of a message that a body holds.
const IN_BODY: usize = BODY_BYTES - PREFIX_BYTES;

/// Set beside the slot of a call that is made where a name is.
const BY_NAME: u16 = 1 << 15;
/// The same of a call of an importer.
const IMPORTS: u16 = 1 << 14;

/// The volume, the client within its node, and what names a call of a client for ever: slot and sequence are 0 when it
/// may be executed twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallNumber {
    pub volume: VolumeId,
    pub instance: u32,
    pub slot: u16,
    /// The client knows that the directory is hashed.
    pub by_name: bool,
    /// It may change files of imports.
    pub imports: bool,
    pub sequence: u32,
}

impl CallNumber {
    pub fn about(self) -> About {
        let mut about = About::default();
        about[..4].copy_from_slice(&self.volume.0.to_le_bytes());
        about[4..8].copy_from_slice(&self.instance.to_le_bytes());
        let by_name = if self.by_name { BY_NAME } else { 0 };
        let imports = if self.imports { IMPORTS } else { 0 };
        let slot = self.slot | by_name | imports;
        about[8..10].copy_from_slice(&slot.to_le_bytes());
        about[10..].copy_from_slice(&self.sequence.to_le_bytes());
        about
    }

    pub fn of(about: About) -> Result<CallNumber, Short> {
        let mut input = Decoder::new(&about);
        let (volume, instance) = (VolumeId(input.u32()?), input.u32()?);
        let (slot, sequence) = (input.u16()?, input.u32()?);
        let (by_name, imports) = (slot & BY_NAME != 0, slot & IMPORTS != 0);
        let slot = slot & !(BY_NAME | IMPORTS);
        Ok(CallNumber { volume, instance, slot, by_name, imports, sequence })
    }
}

/// A point in an incarnation of the manager: an answer shows nothing behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Point {
    /// Incarnations are counted from 1; 0 is none.
    pub incarnation: u32,
    /// The last change then.
    pub change: u64,
}
fields!(Point { incarnation, change });

impl Point {
    pub fn about(self) -> About {
        let mut about = About::default();
        about[..4].copy_from_slice(&self.incarnation.to_le_bytes());
        about[4..12].copy_from_slice(&self.change.to_le_bytes());
        about
    }

    pub fn of(about: About) -> Result<Point, Short> {
        Point::take(&mut Decoder::new(&about))
    }
}

/// A message cut into body and data.
#[derive(Debug)]
pub(crate) struct Cut<'a> {
    pub body: [u8; BODY_BYTES],
    pub data: &'a [u8],
}

/// Cuts a message.
pub(crate) fn cut(message: &[u8], about: About) -> Cut<'_> {
    let mut body = [0; BODY_BYTES];
    body[..4].copy_from_slice(&(message.len() as u32).to_le_bytes());
    body[4..PREFIX_BYTES].copy_from_slice(&about);
    let (head, data) = message.split_at(message.len().min(IN_BODY));
    body[PREFIX_BYTES..PREFIX_BYTES + head.len()].copy_from_slice(head);
    Cut { body, data }
}

/// Joins what [`cut`] cut: the first `bytes` bytes of the list are the data.
pub(crate) fn join(
    body: &[u8; BODY_BYTES],
    data: &[FrameMut],
    bytes: usize,
    message: &mut Vec<u8>,
) -> Result<About, Short> {
    let len = Decoder::new(body).u32()? as usize;
    let mut about = About::default();
    about.copy_from_slice(&body[4..PREFIX_BYTES]);
    if len > IN_BODY + bytes {
        return Err(Short);
    }
    message.extend_from_slice(&body[PREFIX_BYTES..]);
    for frame in data {
        message.extend_from_slice(&frame[..frame.len().min(len.saturating_sub(message.len()))]);
    }
    message.truncate(len);
    Ok(about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_of_any_length_survive(message in prop::collection::vec(any::<u8>(), 0..5000)) {
            let (volume, by_name) = (VolumeId(7), message.len() % 2 == 0);
            let imports = message.len() % 3 == 0;
            let number = CallNumber { volume, instance: 5, slot: 3, by_name, imports, sequence: 9 };
            let parts = cut(&message, number.about());
            let frames = endpoint::Frames::new(endpoint::HeapRegion::new(4));
            let pieces = parts.data.chunks(4096).map(|piece| {
                let mut frame = frames.alloc(piece.len()).unwrap();
                frame[..piece.len()].copy_from_slice(piece);
                frame
            });
            let (pieces, bytes): (Vec<_>, _) = (pieces.collect(), parts.data.len());
            let mut joined = Vec::new();
            let about = join(&parts.body, &pieces, bytes, &mut joined);
            prop_assert_eq!(about.and_then(CallNumber::of), Ok(number));
            prop_assert_eq!(&joined, &message);
            if bytes > 0 {
                prop_assert_eq!(join(&parts.body, &pieces, bytes - 1, &mut joined), Err(Short));
            }
        }
    }
}
