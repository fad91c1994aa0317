//! Locks of files, as a front asks for them.

use wire::field::{Field, Output, fields};
use wire::{Decoder, Short};

/// Kind of a byte-range or whole-file lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: releases.
    Unlock,
}

/// A lock on bytes of a file (fcntl) or on all of it (flock).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `u64::MAX` is to the end.
    pub end: u64,
    /// Read or write.
    pub kind: LockKind,
    /// Process that holds it.
    pub pid: u32,
}
fields!(Lock { start, end, kind, pid });

impl<'a> Field<'a> for LockKind {
    fn put(&self, out: &mut impl Output) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Decoder<'a>) -> Result<Self, Short> {
        let all = [LockKind::Read, LockKind::Write, LockKind::Unlock];
        all.get(usize::from(input.u8()?)).copied().ok_or(Short)
    }
}
