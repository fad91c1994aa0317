//! Records of other managers that an operation needs, and its changes of them.
//!
//! An operation runs as if all records were here. Where one is at another manager and was not fetched, it stops and
//! says which it wants; the service fetches it, held there for this operation, and runs the operation again from the
//! beginning. Its writes to such records is the *part* of that manager.

use std::collections::{BTreeMap, BTreeSet};
use wire::field::{Field, Output, fields};
use wire::{Decoder, Errno, FileId, NodeId, Short, Wall};

/// Something of another manager that an operation cannot do without.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    /// The record with this key, which is about a file.
    Record(Box<[u8]>),
    /// A serial number of the site that no file ever had.
    Serial(u8),
}

impl Want {
    /// The site that it is of.
    pub fn site(&self) -> u8 {
        match self {
            Want::Record(key) => key.first().copied().unwrap_or_default(),
            Want::Serial(site) => *site,
        }
    }
}

impl<'a> Field<'a> for Want {
    fn put(&self, out: &mut impl Output) {
        match self {
            Want::Record(key) => {
                0u8.put(out);
                key.put(out);
            }
            Want::Serial(site) => {
                1u8.put(out);
                site.put(out);
            }
        }
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        match input.u8()? {
            0 => Field::take(input).map(Want::Record),
            1 => Field::take(input).map(Want::Serial),
            _ => Err(Short),
        }
    }
}

/// The answer to a [`Want`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    /// The record's value, or the file that has the serial number.
    pub value: Option<Box<[u8]>>,
    /// Whether the client of the operation has the record's file open.
    pub is_open: bool,
}
fields!(Got { value, is_open });

/// Records that were fetched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Foreign {
    got: BTreeMap<Want, Got>,
    files: BTreeMap<FileId, bool>,
}

impl Foreign {
    /// Takes the answer to a want.
    pub fn insert(&mut self, want: Want, got: Got) {
        if let Want::Record(key) = &want
            && let Some(file) = crate::keys::subject(key)
        {
            *self.files.entry(file).or_default() |= got.is_open;
        }
        if let (Want::Serial(_), Some(file)) = (&want, got.file()) {
            self.files.insert(file, false);
        }
        self.got.insert(want, got);
    }

    pub fn get(&self, want: &Want) -> Option<&Got> {
        self.got.get(want)
    }

    /// Whether the file is held for this operation.
    pub fn has(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// Whether the operation's client has the file open.
    pub fn is_open(&self, file: FileId) -> bool {
        self.files.get(&file).copied().unwrap_or_default()
    }
}

impl Got {
    /// The file that has the serial number.
    pub fn file(&self) -> Option<FileId> {
        FileId::take(&mut Decoder::new(self.value.as_deref()?)).ok()
    }
}

/// Records that an operation lacked.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub wants: BTreeSet<Want>,
    /// A file of this manager's that another operation holds.
    pub blocked: Option<FileId>,
    /// It wrote to a site that is not this manager's (any more).
    pub strayed: bool,
}

/// Why an operation did not come to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It fails with this error.
    Failed(Errno),
    /// This file is held by another operation.
    Blocked(FileId),
    /// These are to be fetched.
    Wants(BTreeSet<Want>),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Failed(errno)
    }
}

impl From<Stop> for Errno {
    fn from(stop: Stop) -> Errno {
        match stop {
            Stop::Failed(errno) => errno,
            Stop::Blocked(_) => Errno::EAGAIN,
            Stop::Wants(_) => Errno::EREMOTE,
        }
    }
}

impl Needs {
    /// The outcome of an operation that ended with `result`.
    pub fn judge<T>(self, result: Result<T, Errno>) -> Result<T, Stop> {
        match self {
            Needs { strayed: true, .. } => Err(Stop::Failed(Errno::EREMCHG)),
            Needs { blocked: Some(file), .. } => Err(Stop::Blocked(file)),
            Needs { wants, .. } if !wants.is_empty() => Err(Stop::Wants(wants)),
            _ => Ok(result?),
        }
    }
}

/// A change of a file of this manager, beside writing records, as a part of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The last name of the file is gone.
    DropLink(FileId),
    /// Nothing is left of the file.
    Forget(FileId),
    /// The file is new.
    Count(FileId),
}

impl Act {
    /// The file that it is done to.
    pub fn file(&self) -> FileId {
        match self {
            Act::DropLink(file) | Act::Forget(file) | Act::Count(file) => *file,
        }
    }
}

impl<'a> Field<'a> for Act {
    fn put(&self, out: &mut impl Output) {
        let code: u8 = match self {
            Act::DropLink(_) => 0,
            Act::Forget(_) => 1,
            Act::Count(_) => 2,
        };
        code.put(out);
        self.file().put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let (code, file) = (input.u8()?, Field::take(input)?);
        match code {
            0 => Ok(Act::DropLink(file)),
            1 => Ok(Act::Forget(file)),
            2 => Ok(Act::Count(file)),
            _ => Err(Short),
        }
    }
}

/// A record to be written, or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub key: Box<[u8]>,
    pub value: Option<Box<[u8]>>,
}
fields!(Write { key, value });

/// Changes of an operation at one other manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub now: Wall,
    pub writes: Vec<Write>,
    pub acts: Vec<Act>,
}
fields!(Part { now, writes, acts });

impl Part {
    /// The files that it changes; EPROTO for a record that is about none.
    pub fn files(&self) -> Result<BTreeSet<FileId>, Errno> {
        let written = self.writes.iter().map(|write| crate::keys::subject(&write.key));
        let acted = self.acts.iter().map(|act| Some(act.file()));
        written.chain(acted).collect::<Option<_>>().ok_or(Errno::EPROTO)
    }
}

/// The parts of all other managers.
pub(crate) type Parts = BTreeMap<NodeId, Part>;
