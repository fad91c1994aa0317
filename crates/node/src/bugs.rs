//! Planted bugs: switches that tests of the checkers turn on, one at a time, to see that they are found. All are off
//! unless a simulation asks for one by name; nothing else may depend on them.

/// A bug that a service has when its switch is on: `if cx.has_bug(Bug::SkippedFsync as u8) { .. }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// `stripe` server: COMMIT answers without a durable log record.
    SkippedFsync = 0,
    /// `files`: a changed write verifier in a COMMIT's reply is not noticed.
    IgnoredVerifier = 1,
    /// `stripe` server: the write verifier is the same in every life.
    ConstantVerifier = 2,
    /// `stripe` server: a request of an older layout epoch is executed.
    StaleEpochAccepted = 3,
    /// `stripe` server: a write of an older truncate generation is executed.
    StaleTruncationAccepted = 4,
    /// `names`: close does not record the final size.
    LostSizeUpdate = 5,
    /// `names`: a change is answered before its record is appended.
    AnswerBeforeAppend = 6,
    /// `names`: a sync is answered before the log is synced.
    SyncNotWaitedFor = 7,
    /// `names`: a repeated call is executed again.
    AnswersForgotten = 8,
    /// `names`: rename over a file leaves its objects and its entry's old id.
    RenameKeepsTarget = 9,
    /// `names`: a directory with entries can be removed.
    FullDirectoryRemoved = 10,
    /// `names`: cookies of a listing start again after a removal.
    UnstableCookies = 11,
    /// `names`: an unlinked file's objects are removed while it is open.
    OrphanRemovedEarly = 12,
    /// `files`: close does not wait for the I/O servers.
    CloseNotWaitedFor = 13,
    /// `files`: fsync commits the first column only.
    OneColumnCommitted = 14,
    /// `files`: the copy is dropped when it is sent, not when it is stable.
    CopyDroppedEarly = 15,
    /// `files`: what was read ahead survives a local write.
    StaleReadAhead = 16,
    /// `files`: a failed write-behind is not reported by fsync.
    WriteErrorSwallowed = 17,
    /// `stripe` client: a read beyond a short object keeps the frame's old bytes.
    HoleNotZeroed = 18,
    /// `stripe` client: checksums of replies are not verified.
    ChecksumIgnored = 19,
    /// `stripe` server: a partial-block write is not merged with the block.
    PartialBlockReplaced = 20,
    /// `stripe` server: replay of the log skips the last record.
    LastRecordSkipped = 21,
    /// `stripe` server: a log record is applied in place and forgotten before the place is synced.
    LogDroppedEarly = 22,
    /// `netrpc`: a request that comes again is executed again.
    ExecutedTwice = 23,
    /// `netrpc`: a call that is given up does not cancel its payload token.
    TokenNotCancelled = 24,
    /// `netrpc`: calls under way when a peer restarts never end.
    LostPeerIgnored = 25,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 26] = {
        use Bug::*;
        [
            SkippedFsync,
            IgnoredVerifier,
            ConstantVerifier,
            StaleEpochAccepted,
            StaleTruncationAccepted,
            LostSizeUpdate,
            AnswerBeforeAppend,
            SyncNotWaitedFor,
            AnswersForgotten,
            RenameKeepsTarget,
            FullDirectoryRemoved,
            UnstableCookies,
            OrphanRemovedEarly,
            CloseNotWaitedFor,
            OneColumnCommitted,
            CopyDroppedEarly,
            StaleReadAhead,
            WriteErrorSwallowed,
            HoleNotZeroed,
            ChecksumIgnored,
            PartialBlockReplaced,
            LastRecordSkipped,
            LogDroppedEarly,
            ExecutedTwice,
            TokenNotCancelled,
            LostPeerIgnored,
        ]
    };

    /// The bug of this name, as the variant is written.
    pub fn parse(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }

    /// Its bit in [`crate::NodeConfig::bugs`].
    pub fn bit(self) -> u64 {
        1 << self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits_are_unique() {
        assert_eq!(Bug::ALL.iter().fold(0, |bits, bug| bits | bug.bit()), (1 << 26) - 1);
        assert_eq!(Bug::parse("StaleReadAhead"), Some(Bug::StaleReadAhead));
        assert_eq!(Bug::parse("None"), None);
    }
}
