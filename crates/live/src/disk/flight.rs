//! An operation under way.

use super::descriptors::Key;
use super::task::{Direction, Transfer};
use crate::limits::TRANSFER_RETRIES_MAX;
use endpoint::limits::PAGE_BYTES;
use node::rings::{DiskError, DiskFile, DiskId, DiskOp, DiskReply, DiskRequest, Ticket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use wire::Time;

/// Owns the operation with its frames, and the descriptor that they are moved through.
pub(super) struct Flight {
    pub(super) ticket: Ticket,
    pub(super) disk: DiskId,
    pub(super) op: DiskOp,
    /// Bytes that were moved.
    pub(super) moved: usize,
    /// Whether the transfer under way goes past the host's cache.
    pub(super) direct: bool,
    /// The descriptor of the transfer under way.
    pub(super) open: Option<Arc<OwnedFd>>,
    /// The disk's count of renamings when a descriptor was asked for.
    pub(super) renamings: u64,
    /// Earliest completion.
    pub(super) not_before: Time,
    /// The outcome, while it is held back.
    pub(super) result: Option<Result<DiskReply, DiskError>>,
    retries: u8,
}

impl Flight {
    pub(super) fn new(request: DiskRequest, not_before: Time) -> Flight {
        Flight {
            ticket: request.ticket,
            disk: request.disk,
            op: request.op,
            moved: 0,
            direct: false,
            open: None,
            renamings: 0,
            not_before,
            result: None,
            retries: 0,
        }
    }

    /// The file that is read or written.
    pub(super) fn file(&self) -> DiskFile {
        match &self.op {
            DiskOp::Read { file, .. } | DiskOp::Write { file, .. } => *file,
            other => unreachable!("{other:?} moves no bytes"),
        }
    }

    /// The descriptor to move them through.
    pub(super) fn key(&self) -> Key {
        Key { disk: self.disk, file: self.file(), direct: self.direct }
    }

    /// Whether a file that is not there is made.
    pub(super) fn creates(&self) -> bool {
        matches!(self.op, DiskOp::Write { .. })
    }

    /// Whether it is done only when its bytes are on stable storage.
    pub(super) fn is_durable(&self) -> bool {
        matches!(self.op, DiskOp::Write { durable: true, .. })
    }

    /// Whether it moves bytes at all.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self.op, DiskOp::Read { .. } | DiskOp::Write { .. })
    }

    /// Whether it removes or replaces names.
    pub(super) fn is_renaming(&self) -> bool {
        matches!(self.op, DiskOp::Remove { .. } | DiskOp::Rename { .. })
    }

    /// Where the bytes are, how many there are, and where they go in the file.
    fn stretch(&mut self) -> (*mut u8, usize, u64) {
        match &mut self.op {
            DiskOp::Read { offset, into, .. } => (into.as_mut_pointer(), into.len(), *offset),
            // Only read from, as `Direction::Write` says.
            DiskOp::Write { offset, data, .. } => (data.as_ptr().cast_mut(), data.len(), *offset),
            other => unreachable!("{other:?} moves no bytes"),
        }
    }

    /// Bytes still to move.
    pub(super) fn left(&mut self) -> usize {
        self.stretch().1 - self.moved
    }

    /// Whether what is left may go past the host's cache: there is some, and memory, length and offset fit blocks.
    pub(super) fn is_aligned(&mut self) -> bool {
        let (memory, bytes, offset) = self.stretch();
        let all = memory.addr() | bytes | offset as usize | self.moved;
        bytes > 0 && all.is_multiple_of(PAGE_BYTES)
    }

    /// The transfer of what is left.
    pub(super) fn rest(&mut self, descriptor: Arc<OwnedFd>) -> Transfer {
        let (memory, bytes, offset) = self.stretch();
        let direction = match self.op {
            DiskOp::Write { durable, .. } => Direction::Write { durable },
            _ => Direction::Read,
        };
        Transfer {
            descriptor,
            direction,
            // SAFETY: at most the frame's length was moved, so this is inside it or one past it.
            memory: unsafe { memory.add(self.moved) },
            bytes: bytes - self.moved,
            offset: offset + self.moved as u64,
        }
    }

    /// Whether a failure that passes is worth another try; counts them.
    pub(super) fn try_again(&mut self) -> bool {
        self.retries += 1;
        self.retries <= TRANSFER_RETRIES_MAX
    }
}

/// Bytes that an operation moves, for a throttle's account.
pub(super) fn bytes_of(op: &DiskOp) -> usize {
    match op {
        DiskOp::Read { into, .. } => into.len(),
        DiskOp::Write { data, .. } => data.len(),
        _ => 0,
    }
}
