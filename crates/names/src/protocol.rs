//! What clients and managers say to each other on [`wire::Channel::NAMES`]: operations, answers, and how they travel.
//!
//! A message is one run of bytes: its length and, of a call that must not be executed twice, its name in the first
//! words of the 64-byte body; what does not fit there follows as trailer up to 2040 bytes, else as data.

use crate::create::How;
use crate::directory::{Listing, ListingEntry};
use crate::field::{Field, fields};
use crate::lookup::Entry;
use crate::permissions::Who;
use crate::record::{Fragment, Policy};
use crate::sessions::{Claim, Final};
use node::rings::{Lock, VolumeSpace};
use wire::limits::{BODY_BYTES, TRAILER_BYTES_MAX, TRAILER_WORD_BYTES};
use wire::{Decoder, FileId, NodeId, SetAttr, Short, VolumeId};

impl<'a> Field<'a> for Who<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.uid.put(out);
        self.gid.put(out);
        out.push((self.groups().len() / 4) as u8);
        out.extend_from_slice(self.groups());
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let (uid, gid, count) = (input.u32()?, input.u32()?, input.u8()?);
        Ok(Who::new(uid, gid, input.raw(usize::from(count) * 4)?))
    }
}

impl<'a> Field<'a> for How {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            How::Unchecked => out.push(0),
            How::Guarded => out.push(1),
            How::Exclusive(verifier) => {
                out.push(2);
                verifier.put(out);
            }
        }
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Ok(How::Unchecked),
            1 => Ok(How::Guarded),
            2 => input.u64().map(How::Exclusive),
            _ => Err(Short),
        }
    }
}

fields!(Entry { attr, layout, truncations, writers });
fields!(Listing { entries, end });
fields!(ListingEntry { file, kind, cookie, name, entry });

/// What a client is told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alive {
    pub registration: u64,
}
fields!(Alive { registration });

/// A part of a block map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub epoch: u32,
    pub fragments: Vec<Fragment>,
}
fields!(Map { epoch, fragments });

/// Of create: the file, and whether it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    pub entry: Entry,
    pub made: bool,
}
fields!(Created { entry, made });

/// Defines the operations: code, kind, fields; `pure` may be executed twice, `once` not.
macro_rules! operations {
    ($($name:ident = $code:literal $kind:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        /// An operation with its arguments.
        #[derive(Clone, Debug)]
        pub(crate) enum Operation<'a> {
            $($name { $($field: $type),* }),*
        }

        impl<'a> Operation<'a> {
            /// Its number on the wire.
            pub fn code(&self) -> u16 {
                match self { $(Operation::$name { .. } => $code),* }
            }

            /// Whether it must not be executed twice.
            pub fn is_once(&self) -> bool {
                match self { $(Operation::$name { .. } => stringify!($kind) == "once"),* }
            }

            /// Appends the arguments.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self { $(Operation::$name { $($field),* } => { $($field.put(out);)* })* }
            }

            /// Reads the arguments of the operation with this number.
            pub fn decode(code: u16, input: &mut Decoder<'a>) -> Result<Operation<'a>, Short> {
                match code {
                    $($code => Ok(Operation::$name { $($field: Field::take(input)?),* }),)*
                    _ => Err(Short),
                }
            }
        }
    };
}

operations! {
    Lookup = 1 pure { who: Who<'a>, parent: FileId, name: &'a [u8] }
    GetAttr = 2 pure { file: FileId }
    Access = 3 pure { who: Who<'a>, file: FileId, mask: u32 }
    ReadLink = 4 pure { file: FileId }
    ReadDirectory = 5 pure { who: Who<'a>, file: FileId, cookie: u64, bytes: u32, plus: bool }
    GetXattr = 6 pure { who: Who<'a>, file: FileId, name: &'a [u8] }
    ListXattr = 7 pure { who: Who<'a>, file: FileId }
    Space = 8 pure {}
    TestLock = 9 pure { file: FileId, owner: u64, whole_file: bool, lock: Lock }
    Fragments = 10 pure { file: FileId, unit: u64, count: u32 }
    DirectoryLayout = 11 pure { file: FileId }
    KeepAlive = 12 pure {}
    Sync = 13 pure {}
    SetAttr = 20 once { who: Who<'a>, file: FileId, changes: SetAttr, opened: bool }
    Create = 21 once {
        who: Who<'a>, parent: FileId, name: &'a [u8], mode: u32, how: How, open: Option<u32>,
    }
    MakeDirectory = 22 once { who: Who<'a>, parent: FileId, name: &'a [u8], mode: u32 }
    Symlink = 23 once { who: Who<'a>, parent: FileId, name: &'a [u8], target: &'a [u8] }
    MakeNode = 24 once { who: Who<'a>, parent: FileId, name: &'a [u8], mode: u32, rdev: u32 }
    Link = 25 once { who: Who<'a>, parent: FileId, name: &'a [u8], file: FileId }
    Unlink = 26 once { who: Who<'a>, parent: FileId, name: &'a [u8] }
    RemoveDirectory = 27 once { who: Who<'a>, parent: FileId, name: &'a [u8] }
    Rename = 28 once {
        who: Who<'a>, parent: FileId, name: &'a [u8], new_parent: FileId, new_name: &'a [u8], flags: u32,
    }
    Open = 29 once { who: Who<'a>, file: FileId, mask: u32 }
    Close = 30 once { file: FileId, outcome: Option<Final> }
    SetXattr = 31 once { who: Who<'a>, file: FileId, name: &'a [u8], value: &'a [u8], flags: u32 }
    RemoveXattr = 32 once { who: Who<'a>, file: FileId, name: &'a [u8] }
    SetDirectoryLayout = 33 once { who: Who<'a>, file: FileId, policy: Policy }
    SetLock = 34 once {
        file: FileId, owner: u64, whole_file: bool, lock: Lock, wait: bool, reclaim: bool,
    }
    CancelLock = 35 once { file: FileId, owner: u64, whole_file: bool }
    Claim = 36 once { claims: Vec<Claim>, first: bool, last: bool }
    SetPlacement = 37 once {
        who: Who<'a>, file: FileId, columns: Vec<NodeId>, fragments: Vec<Fragment>,
    }
}

impl Operation<'_> {
    /// The site of the file it is about.
    pub fn site(&self) -> u8 {
        use Operation::*;
        match self {
            Lookup { parent, .. }
            | Create { parent, .. }
            | MakeDirectory { parent, .. }
            | Symlink { parent, .. }
            | MakeNode { parent, .. }
            | Link { parent, .. }
            | Unlink { parent, .. }
            | RemoveDirectory { parent, .. }
            | Rename { parent, .. } => parent.site(),
            GetAttr { file }
            | Access { file, .. }
            | ReadLink { file }
            | ReadDirectory { file, .. }
            | GetXattr { file, .. }
            | ListXattr { file, .. }
            | TestLock { file, .. }
            | Fragments { file, .. }
            | DirectoryLayout { file }
            | SetAttr { file, .. }
            | Open { file, .. }
            | Close { file, .. }
            | SetXattr { file, .. }
            | RemoveXattr { file, .. }
            | SetDirectoryLayout { file, .. }
            | SetLock { file, .. }
            | CancelLock { file, .. }
            | SetPlacement { file, .. } => file.site(),
            Space {} | KeepAlive {} | Sync {} | Claim { .. } => 0,
        }
    }
}

/// Bytes of a body before the message: its length, the volume, and the name of the call within its client.
const PREFIX_BYTES: usize = 4 + 4 + 2 + 4;
/// Bytes of a message that a body holds.
const IN_BODY: usize = BODY_BYTES - PREFIX_BYTES;

/// The volume, and what names a call of a client for ever: 0 and 0 when it may be executed twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallNumber {
    pub volume: VolumeId,
    pub slot: u16,
    pub sequence: u32,
}

/// A message cut into the parts of a call.
#[derive(Debug)]
pub(crate) struct Cut<'a> {
    pub body: [u8; BODY_BYTES],
    /// Whole words; what is behind the message is zero.
    pub trailer: Vec<u8>,
    pub data: &'a [u8],
}

/// Cuts a message.
pub(crate) fn cut(message: &[u8], number: CallNumber) -> Cut<'_> {
    let mut body = [0; BODY_BYTES];
    body[..4].copy_from_slice(&(message.len() as u32).to_le_bytes());
    body[4..8].copy_from_slice(&number.volume.0.to_le_bytes());
    body[8..10].copy_from_slice(&number.slot.to_le_bytes());
    body[10..14].copy_from_slice(&number.sequence.to_le_bytes());
    let (head, rest) = message.split_at(message.len().min(IN_BODY));
    body[PREFIX_BYTES..PREFIX_BYTES + head.len()].copy_from_slice(head);
    let (trailer, data): (&[u8], &[u8]) =
        if rest.len() <= TRAILER_BYTES_MAX { (rest, &[]) } else { (&[], rest) };
    let mut trailer = trailer.to_vec();
    trailer.resize(trailer.len().next_multiple_of(TRAILER_WORD_BYTES), 0);
    Cut { body, trailer, data }
}

/// Joins what [`cut`] cut; `data` in the pieces it arrived in.
pub(crate) fn join<'d>(
    body: &[u8; BODY_BYTES],
    trailer: &[u8],
    data: impl Iterator<Item = &'d [u8]>,
    message: &mut Vec<u8>,
) -> Result<CallNumber, Short> {
    let mut input = Decoder::new(body);
    let len = input.u32()? as usize;
    let volume = VolumeId(input.u32()?);
    let number = CallNumber { volume, slot: input.u16()?, sequence: input.u32()? };
    message.extend_from_slice(&body[PREFIX_BYTES..]);
    message.extend_from_slice(trailer);
    data.for_each(|piece| message.extend_from_slice(piece));
    if len > message.len() {
        return Err(Short);
    }
    message.truncate(len);
    Ok(number)
}

/// What answers an operation; which it is follows from the operation.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Entry(Entry),
    Closed(Option<Entry>),
    Created(Created),
    Bytes(Vec<u8>),
    Listing(Listing),
    Space(VolumeSpace),
    Lock(Option<Lock>),
    Map(Map),
    Policy(Policy),
    Alive(Alive),
}

impl Outcome {
    /// The bytes of the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        match self {
            Outcome::Done => {}
            Outcome::Entry(value) => value.put(&mut out),
            Outcome::Closed(value) => value.put(&mut out),
            Outcome::Created(value) => value.put(&mut out),
            Outcome::Bytes(value) => value.as_slice().put(&mut out),
            Outcome::Listing(value) => value.put(&mut out),
            Outcome::Space(value) => value.put(&mut out),
            Outcome::Lock(value) => value.put(&mut out),
            Outcome::Map(value) => value.put(&mut out),
            Outcome::Policy(value) => value.put(&mut out),
            Outcome::Alive(value) => value.put(&mut out),
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_of_any_length_survive(message in prop::collection::vec(any::<u8>(), 0..5000)) {
            let number = CallNumber { volume: VolumeId(7), slot: 3, sequence: 9 };
            let parts = cut(&message, number);
            prop_assert!(parts.trailer.len() <= TRAILER_BYTES_MAX && parts.trailer.len() % 8 == 0);
            let mut joined = Vec::new();
            let found = join(&parts.body, &parts.trailer, parts.data.chunks(1000), &mut joined);
            prop_assert_eq!(found, Ok(number));
            prop_assert_eq!(joined, message);
        }

        #[test]
        fn no_bytes_make_decoding_panic(code in 0u16..40, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Operation::decode(code, &mut Decoder::new(&bytes));
        }
    }

    #[test]
    fn operations_survive_with_groups_and_any_names() {
        let groups = [1u8, 0, 0, 0, 2, 0, 0, 0];
        let name = [0xff; 255];
        let who = Who::new(7, 8, &groups);
        let sent = Operation::Create {
            who,
            parent: FileId::new(5, 6),
            name: &name,
            mode: 0o644,
            how: How::Exclusive(11),
            open: Some(6),
        };
        let mut bytes = Vec::new();
        sent.encode(&mut bytes);
        let got = Operation::decode(sent.code(), &mut Decoder::new(&bytes)).unwrap();
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
        assert!(got.is_once() && got.site() == 5);
        assert!(!Operation::Sync {}.is_once());
        assert!(Operation::decode(21, &mut Decoder::new(&bytes[1..])).is_err());
    }
}
