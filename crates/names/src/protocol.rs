//! Messages between clients and managers on [`wire::Channel::NAMES`]: operations, answers, and their encoding.
//!
//! A message is one run of bytes. The 64-byte body begins with its length, the volume and, of a call that must not be
//! executed twice, the call's name; the rest of the message follows as data.

pub(crate) mod managers;
mod message;
pub(crate) mod moment;

use crate::create::How;
use crate::directory::{Listing, ListingEntry, Plus, Span, site_of_cookie};
use crate::hash::site_of_name;
use crate::lookup::{Entry, LookedUp};
use crate::permissions::{Basis, Who};
use crate::record::{DuplicateKey, Policy};
use crate::restoration::Restoration;
use crate::salvage::Salvaged;
use crate::sessions::{Claim, Final};
use crate::unnamed::Unnamed;
pub(crate) use message::{CallNumber, Point, cut, join};
use moment::Step;
use node::rings::{Lock, VolumeSpace};
use wire::field::{Field, Output, fields};
use wire::{
    Attr, CallId, Decoder, FileId, Fragment, Home, ListingVersion, NodeId, SetAttr, Short, Wall,
    Wcc,
};

/// In place of the bytes of a caller's groups: its kernel has decided.
const KERNEL: u32 = u32::MAX;

impl<'a> Field<'a> for Who<'a> {
    fn put(&self, out: &mut impl Output) {
        self.uid.put(out);
        self.gid.put(out);
        match self.basis() {
            Basis::Groups(groups) => groups.put(out),
            Basis::Kernel(seen) => {
                KERNEL.put(out);
                seen.iter().for_each(|file| file.put(out));
            }
        }
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let (uid, gid, bytes) = (input.u32()?, input.u32()?, input.u32()?);
        if bytes == KERNEL {
            let basis = Basis::Kernel([Field::take(input)?, Field::take(input)?]);
            return Ok(Who::with_basis(uid, gid, basis));
        }
        Ok(Who::new(uid, gid, input.raw(bytes as usize)?))
    }
}

impl<'a> Field<'a> for How {
    fn put(&self, out: &mut impl Output) {
        match self {
            How::Unchecked => 0u8.put(out),
            How::Guarded => 1u8.put(out),
            How::Exclusive(verifier) => {
                2u8.put(out);
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

/// An operation within another.
impl<'a> Field<'a> for Box<Operation<'a>> {
    fn put(&self, out: &mut impl Output) {
        self.code().put(out);
        let mut arguments = Vec::with_capacity(96);
        self.encode(&mut arguments);
        out.append(&arguments);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u16()? {
            // what is within one has none in it: bytes from outside decide how deep this goes
            code if code == Operation::WITH_WCC => Err(Short),
            code => Operation::decode(code, input).map(Box::new),
        }
    }
}

fields!(Entry { attr, layout, truncations, writers, unsure });
fields!(FoundIn { found, directory });
fields!(LookedUp { file, entry });
fields!(Listing { entries, end, until, directory, next, version, is_known });
fields!(Span { cookie, until });
fields!(ListingEntry { file, kind, cookie, name, entry });

/// A client's own state, as the manager reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alive {
    pub registration: u64,
    /// Of the manager's table of sites, in this incarnation of it.
    pub version: u64,
}
fields!(Alive { registration, version });

/// A key of a store with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub key: Box<[u8]>,
    pub value: Box<[u8]>,
}
fields!(Row { key, value });

/// A part of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub snapshot: u64,
    pub sequence: u64,
    pub lineage: u16,
    pub rows: Vec<Row>,
    pub last: bool,
}
fields!(Part { snapshot, sequence, lineage, rows, last });

/// How a manager's names are after a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Comparing {
    pub restoration: Restoration,
    /// No person has said yet that what it does not know may go.
    pub is_frozen: bool,
}
fields!(Comparing { restoration, is_frozen });

/// A part of a block map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub epoch: u32,
    pub fragments: Vec<Fragment>,
}
fields!(Map { epoch, fragments });

/// The file of a name, and the directory of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundIn {
    pub found: LookedUp,
    /// But of a hashed one of which others have a part.
    pub directory: Option<Attr>,
}

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

            /// Whether the operation with this number may be executed twice, so that no reply is kept for it.
            pub fn is_pure(code: u16) -> bool {
                match code {
                    $($code => stringify!($kind) == "pure",)*
                    _ => false,
                }
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
    ReadDirectory = 62 pure {
        who: Who<'a>, file: FileId, span: Span, bytes: u32, plus: Plus, known: Option<ListingVersion>,
    }
    GetXattr = 6 pure { who: Who<'a>, file: FileId, name: &'a [u8] }
    ListXattr = 7 pure { who: Who<'a>, file: FileId }
    Space = 8 pure {}
    TestLock = 9 pure { file: FileId, owner: u64, whole_file: bool, lock: Lock }
    Fragments = 10 pure { file: FileId, unit: u64, count: u32 }
    DirectoryLayout = 11 pure { file: FileId }
    KeepAlive = 12 pure {}
    Sync = 13 pure { changes: Vec<Point> }
    Servers = 14 pure {}
    Quarantined = 15 pure { who: Who<'a>, after: Option<(Home, FileId, u16)>, count: u32 }
    Restoration = 16 pure {}
    Compare = 17 pure { file: FileId }
    Sites = 19 pure {}
    Snapshot = 64 pure { who: Who<'a>, id: u64, step: Step }
    Backup = 18 pure { who: Who<'a>, snapshot: u64, of_members: bool, after: &'a [u8] }
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
    Close = 30 once { file: FileId, outcome: Option<Final>, number: u64 }
    SetXattr = 31 once { who: Who<'a>, file: FileId, name: &'a [u8], value: &'a [u8], flags: u32 }
    RemoveXattr = 32 once { who: Who<'a>, file: FileId, name: &'a [u8] }
    SetDirectoryLayout = 33 once { who: Who<'a>, file: FileId, policy: Policy }
    SetLock = 34 once { file: FileId, owner: u64, whole_file: bool, lock: Lock, reclaim: bool }
    TakeOverLock = 55 once { file: FileId, owner: u64, lock: Lock }
    Claim = 36 once { claims: Vec<Claim>, first: Option<u64>, last: Option<u64> }
    Leave = 38 once {}
    AddColumns = 37 once { who: Who<'a>, file: FileId, homes: Vec<Home> }
    MoveColumn = 39 once { who: Who<'a>, file: FileId, column: u16, home: Home, rate: u64 }
    ReplaceColumns = 63 once { who: Who<'a>, file: FileId, columns: u32 }
    Retire = 40 once { who: Who<'a>, server: NodeId, retired: bool }
    Restore = 41 once { who: Who<'a>, home: Home, file: FileId, column: u16 }
    Purge = 42 once { who: Who<'a>, home: Home, file: FileId, column: u16 }
    Own = 50 once { who: Who<'a> }
    Salvage = 51 once { who: Who<'a>, found: Salvaged }
    CompareAll = 52 once { who: Who<'a> }
    CreateUnnamed = 44 once { who: Who<'a>, parent: FileId, mode: u32, mask: u32 }
    AcceptLost = 46 once { who: Who<'a>, file: FileId }
    LookupIn = 56 pure { who: Who<'a>, parent: FileId, name: &'a [u8] }
    WithWcc = 57 once { operation: Box<Operation<'a>>, guard: Option<Wall>, call: Option<CallId> }
    OpenNamed = 43 once { who: Who<'a>, parent: FileId, name: &'a [u8], file: FileId, mask: u32 }
    Share = 58 pure { file: FileId }
    HashDirectory = 59 once { who: Who<'a>, file: FileId, mends: bool }
    SetSwitching = 60 once { who: Who<'a>, per_mille: Option<u16> }
    Switching = 61 pure {}
}

impl Operation<'_> {
    /// Whether who syncs must be told when a power cut took it. Of an open or a close the objects know all that counts.
    pub fn is_kept_by_sync(&self) -> bool {
        use Operation::*;
        // With wcc_data it is on stable storage when it is answered.
        let is_synced = matches!(self, WithWcc { .. });
        self.is_once()
            && !is_synced
            && !matches!(self, Open { .. } | OpenNamed { .. } | Close { .. })
    }

    /// The files and directories that it changes, in this order; only of an operation that can be asked for
    /// [with attributes](Operation::WithWcc).
    pub fn changed(&self) -> Vec<FileId> {
        use Operation::*;
        match self {
            SetAttr { file, .. } => vec![*file],
            Create { parent, .. }
            | MakeDirectory { parent, .. }
            | Symlink { parent, .. }
            | MakeNode { parent, .. }
            | Link { parent, .. }
            | Unlink { parent, .. }
            | RemoveDirectory { parent, .. } => vec![*parent],
            Rename { parent, new_parent, .. } if parent == new_parent => vec![*parent],
            Rename { parent, new_parent, .. } => vec![*parent, *new_parent],
            _ => Vec::new(),
        }
    }

    /// The operation itself, where it comes with attributes.
    pub fn plain(&self) -> &Self {
        match self {
            Operation::WithWcc { operation, .. } => operation,
            operation => operation,
        }
    }

    /// The call that it is of, with the operation's number: a call may be several operations.
    pub fn duplicates(&self) -> Option<DuplicateKey> {
        match self {
            Operation::WithWcc { operation, call, .. } => {
                Some((call.as_ref().copied()?, operation.code()))
            }
            _ => None,
        }
    }

    /// Whether it takes room for good: it is refused while there is only what is kept for changes that make room.
    pub fn takes_room(&self) -> bool {
        use Operation::*;
        match self {
            Create { .. } | CreateUnnamed { .. } | MakeDirectory { .. } | Symlink { .. } => true,
            MakeNode { .. } | Link { .. } | SetXattr { .. } | AddColumns { .. } => true,
            Salvage { .. } | HashDirectory { .. } => true,
            // A record of a fixed size changes: programs that make room rename and cut.
            Rename { .. } | SetAttr { .. } | SetDirectoryLayout { .. } | Own { .. } => false,
            Share { .. } | SetSwitching { .. } | Switching {} => false,
            Unlink { .. } | RemoveDirectory { .. } | RemoveXattr { .. } => false,
            // Opens and locks go with the client.
            Open { .. } | OpenNamed { .. } | Close { .. } | Claim { .. } | Leave { .. } => false,
            SetLock { .. } | TakeOverLock { .. } | TestLock { .. } => false,
            KeepAlive { .. } | Sync { .. } => false,
            WithWcc { operation, .. } => operation.takes_room(),
            // The way out for bytes on the disks.
            MoveColumn { .. } | ReplaceColumns { .. } | Retire { .. } => false,
            Restore { .. } | Purge { .. } => false,
            CompareAll { .. } => false,
            Lookup { .. } | LookupIn { .. } | GetAttr { .. } | Access { .. } | ReadLink { .. } => {
                false
            }
            ReadDirectory { .. } | GetXattr { .. } | ListXattr { .. } | Space {} => false,
            Fragments { .. } | DirectoryLayout { .. } | Servers {} | Sites {} => false,
            Quarantined { .. } | Backup { .. } | Snapshot { .. } => false,
            Restoration {} | Compare { .. } | AcceptLost { .. } => false,
        }
    }

    /// The site that it is executed at, where it is about a file. `by_name`: as in a hashed directory.
    pub fn site(&self, by_name: bool) -> Option<u8> {
        match (self.plain(), self.entry()) {
            (_, Some((directory, name))) if by_name => Some(site_of_name(directory, name)),
            (Operation::ReadDirectory { span, .. }, _) if by_name && span.cookie != 0 => {
                Some(site_of_cookie(span.cookie))
            }
            _ => self.subject().map(FileId::site),
        }
    }

    /// The directory whose names it is about, if it is asked elsewhere where that is hashed.
    pub fn spread(&self) -> Option<FileId> {
        match self {
            Operation::ReadDirectory { file, .. } | Operation::GetAttr { file } => Some(*file),
            _ => self.entry().map(|(directory, _)| directory),
        }
    }

    /// The name that it is about, but for `.` and `..`, which are where the directory is.
    fn entry(&self) -> Option<(FileId, &[u8])> {
        use Operation::*;
        let (parent, name) = match self.plain() {
            Lookup { parent, name, .. }
            | LookupIn { parent, name, .. }
            | Create { parent, name, .. }
            | MakeDirectory { parent, name, .. }
            | Symlink { parent, name, .. }
            | MakeNode { parent, name, .. }
            | Link { parent, name, .. }
            | Unlink { parent, name, .. }
            | RemoveDirectory { parent, name, .. }
            | Rename { parent, name, .. } => (*parent, *name),
            _ => return None,
        };
        (!matches!(name, b"." | b"..")).then_some((parent, name))
    }

    /// The file it is about, whose manager executes it; without one any manager does, for itself.
    pub fn subject(&self) -> Option<FileId> {
        use Operation::*;
        match self {
            Lookup { parent, .. }
            | LookupIn { parent, .. }
            | Create { parent, .. }
            | CreateUnnamed { parent, .. }
            | MakeDirectory { parent, .. }
            | Symlink { parent, .. }
            | MakeNode { parent, .. }
            | Link { parent, .. }
            | Unlink { parent, .. }
            | RemoveDirectory { parent, .. }
            | Rename { parent, .. } => Some(*parent),
            WithWcc { operation, .. } => operation.subject(),
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
            | OpenNamed { file, .. }
            | Close { file, .. }
            | SetXattr { file, .. }
            | RemoveXattr { file, .. }
            | SetDirectoryLayout { file, .. }
            | HashDirectory { file, .. }
            | SetLock { file, .. }
            | TakeOverLock { file, .. }
            | AddColumns { file, .. }
            | Compare { file }
            | AcceptLost { file, .. }
            | ReplaceColumns { file, .. }
            | MoveColumn { file, .. } => Some(*file),
            Space {} | KeepAlive {} | Sync { .. } | Leave {} | Claim { .. } => None,
            SetSwitching { .. } | Switching {} => None,
            Servers {} | Sites {} | Quarantined { .. } | Retire { .. } | Share { .. } => None,
            // Records of objects in quarantine are at the manager of their file.
            Restore { file, .. } | Purge { file, .. } => Some(*file),
            Own { .. } | Backup { .. } | Snapshot { .. } => None,
            Restoration {} | CompareAll { .. } => None,
            Salvage { found, .. } => Some(found.attr.file),
        }
    }
}

impl Operation<'_> {
    const WITH_WCC: u16 = 57;
}

/// Answer to an operation, which decides the variant.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Entry(Entry),
    Found(LookedUp),
    FoundIn(FoundIn),
    /// Attributes around the change, then the answer of the operation itself.
    WithWcc(Vec<Wcc>, Box<Outcome>),
    Closed(Option<Entry>),
    Created(Created),
    Unnamed(Option<Unnamed>),
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
            Outcome::Found(value) => value.put(&mut out),
            Outcome::FoundIn(value) => value.put(&mut out),
            Outcome::WithWcc(changed, outcome) => {
                changed.put(&mut out);
                out.extend(outcome.encode());
            }
            Outcome::Closed(value) => value.put(&mut out),
            Outcome::Created(value) => value.put(&mut out),
            Outcome::Unnamed(value) => value.put(&mut out),
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
    use crate::limits::GROUPS_MAX;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_make_decoding_panic(code in 0u16..60, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Operation::decode(code, &mut Decoder::new(&bytes));
        }
    }

    #[test]
    fn callers_survive_with_any_number_of_groups_and_with_what_their_kernel_has_seen() {
        let groups: Vec<u8> = (0..GROUPS_MAX as u32).flat_map(u32::to_le_bytes).collect();
        let seen = [Some(FileId(7)), None];
        for who in [
            Who::ROOT,
            Who::new(7, 8, &groups),
            Who::decided(7, 8),
            Who::decided(7, 8).having_seen(seen),
        ] {
            let bytes = wire::field::encoded(&who);
            let got = Who::take(&mut Decoder::new(&bytes)).unwrap();
            assert_eq!((got.uid, got.gid, got.basis()), (who.uid, who.gid, who.basis()));
            assert!(Who::take(&mut Decoder::new(&bytes[..bytes.len() - 1])).is_err());
        }
        assert!(Who::new(7, 8, &groups).in_group(GROUPS_MAX as u32 - 1));
    }

    #[test]
    fn an_operation_with_wcc_has_no_other_such_within() {
        let unlink = Operation::Unlink { who: Who::ROOT, parent: FileId(1), name: b"f" };
        let within = |operation| Operation::WithWcc {
            operation: Box::new(operation),
            guard: None,
            call: None,
        };
        let decodes = |operation: Operation<'_>| {
            let mut bytes = Vec::new();
            operation.encode(&mut bytes);
            Operation::decode(operation.code(), &mut Decoder::new(&bytes)).is_ok()
        };
        assert!(decodes(within(unlink.clone())));
        assert!(!decodes(within(within(unlink))), "bytes from outside decide how deep it goes");
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
        assert!(got.is_once() && got.site(false) == Some(5));
        assert!(!Operation::Sync { changes: Vec::new() }.is_once());
        assert!(Operation::decode(21, &mut Decoder::new(&bytes[1..])).is_err());
    }
}
