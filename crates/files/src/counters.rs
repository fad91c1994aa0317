//! The client's counters, for reports.

use node::rings::FileOp;
use std::cell::Cell;

/// A number that grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.set(self.0.get() + count);
    }

    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Kinds of operations that are counted apart.
pub const KINDS: [&str; 10] =
    ["lookup", "attributes", "names", "open", "read", "write", "close", "sync", "list", "other"];

/// The kind of an operation, as an index into [`KINDS`].
pub(crate) fn kind(op: &FileOp) -> usize {
    match op {
        FileOp::Lookup { .. } | FileOp::Access { .. } | FileOp::ReadLink { .. } => 0,
        FileOp::WithWcc { op, .. } => kind(op),
        FileOp::GetAttr { .. } | FileOp::SetAttr { .. } | FileOp::Permissions { .. } => 1,
        FileOp::Symlink { .. } | FileOp::MakeNode { .. } | FileOp::MakeDirectory { .. } => 2,
        FileOp::Unlink { .. } | FileOp::RemoveDirectory { .. } => 2,
        FileOp::Rename { .. } | FileOp::Link { .. } => 2,
        FileOp::Create { .. } | FileOp::CreateExclusive { .. } => 3,
        FileOp::CreateUnnamed { .. } | FileOp::Open { .. } => 3,
        FileOp::Read { .. } => 4,
        FileOp::Write { .. } | FileOp::Allocate { .. } => 5,
        FileOp::Flush { .. } | FileOp::Release { .. } => 6,
        FileOp::Fsync { .. } | FileOp::FsyncDirectory { .. } => 7,
        FileOp::OpenDirectory { .. } | FileOp::ReadDirectory { .. } => 8,
        FileOp::ListDirectory { .. } => 8,
        _ => 9,
    }
}

/// Numbers that only the client's own code adds to.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub ops: [Counter; KINDS.len()],
    pub failures: Counter,
    pub read_bytes: Counter,
    pub ahead_bytes: Counter,
    pub hinted_reads: Counter,
    pub written_bytes: Counter,
    pub commits: Counter,
    pub retries: Counter,
    pub waits_for_room: Counter,
    pub waits_for_frames: Counter,
    pub lost_bytes: Counter,
    pub lost_locks: Counter,
}

/// The numbers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations that ended, by [`KINDS`].
    pub ops: [u64; KINDS.len()],
    /// Operations that ended with an error.
    pub failures: u64,
    /// Bytes that applications read.
    pub read_bytes: u64,
    /// Bytes read ahead of them.
    pub ahead_bytes: u64,
    /// Bytes that applications wrote.
    pub written_bytes: u64,
    /// Commits of a file.
    pub commits: u64,
    /// Operations on objects that were tried again.
    pub retries: u64,
    /// Writes that had to wait for memory, counted once for each wake-up.
    pub waits_for_room: u64,
    /// Times the pool had no frame to read into.
    pub waits_for_frames: u64,
    /// Written bytes that were given up, each reported as an error.
    pub lost_bytes: u64,
    /// Locks that other clients took while the manager did not hear of this one.
    pub lost_locks: u64,
    /// Memory of written data that the servers lack, in bytes.
    pub unsent_bytes: u64,
    /// Memory of written data that is not stable, the unsent included, in bytes.
    pub held_bytes: u64,
    /// Memory of read-ahead, in bytes.
    pub ahead_held_bytes: u64,
    /// Files whose attributes are known.
    pub files: usize,
    /// Open handles.
    pub handles: usize,
    /// Files that wait for a loop to send or commit.
    pub queued: usize,
    /// Ranges that applications said they will read and did not yet.
    pub hints: usize,
    /// Those that were here when they were read.
    pub hinted_reads: u64,
}
