//! Planted bugs: switches that tests of the checkers turn on, one at a time, to see that they are found. All are off
//! unless a simulation asks for one by name; nothing else may depend on them.
//!
//! A switch is a test of one bit, `if cx.has_bug(Bug::SkippedFsync) { .. }`, at the place where the mistake is easily
//! made. A planted bug is added as a row of the table below, a switch, and what finds it: a seed (`sim/tests/bugs.rs`)
//! or a test of its own (`xtask/src/planted.rs`).

/// Makes the enum, the list of all and the texts from one table.
macro_rules! bugs {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// A bug that a service has when its switch is on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $(#[doc = $text] $name = $number,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: [Bug; [$($number),*].len()] = [$(Bug::$name),*];

            /// The error that it plants, as one sentence.
            pub fn text(self) -> &'static str {
                match self {
                    $(Bug::$name => $text,)*
                }
            }
        }
    };
}

bugs! {
    SkippedFsync = 0, "stripe server: COMMIT answers without a durable log record.";
    IgnoredVerifier = 1, "files: a changed write verifier in a COMMIT's reply is not noticed.";
    ConstantVerifier = 2, "stripe server: the write verifier is the same in every incarnation.";
    StaleEpochAccepted = 3, "stripe server: a request of an older layout epoch is executed.";
    StaleTruncationAccepted = 4, "stripe server: a write of an older truncate generation is executed.";
    LostSizeUpdate = 5, "names: close does not record the final size.";
    AnswerBeforeAppend = 6, "names: a change is answered before its record is appended.";
    SyncNotWaitedFor = 7, "names: a sync is answered before the log is synced.";
    AnswersForgotten = 8, "names: a repeated call is executed again.";
    RenameKeepsTarget = 9, "names: a rename over a file leaves the file's objects for ever.";
    FullDirectoryRemoved = 10, "names: a directory with entries can be removed.";
    UnstableCookies = 11, "names: a new entry gets a cookie that another entry of the directory has.";
    OrphanRemovedEarly = 12, "names: an unlinked file's objects are removed while it is open.";
    CloseNotWaitedFor = 13, "files: close does not wait for the I/O servers.";
    OneColumnCommitted = 14, "files: fsync commits the first column only.";
    CopyDroppedEarly = 15, "files: the copy is dropped when it is sent, not when it is stable.";
    StaleReadAhead = 16, "files: what was read ahead survives a local write.";
    WriteErrorSwallowed = 17, "files: a failed write-behind is not reported by fsync.";
    HoleNotZeroed = 18, "stripe client: a read beyond a short object keeps the frame's old bytes.";
    ChecksumIgnored = 19, "stripe client: checksums of replies are not verified.";
    PartialBlockReplaced = 20, "stripe server: a partial-block write is not merged with the block.";
    LastRecordSkipped = 21, "stripe server: replay of the log skips the last record.";
    LogDroppedEarly = 22, "stripe server: a log is dropped before what it says is synchronised in place.";
    ExecutedTwice = 23, "netrpc: a request that comes again is executed again.";
    TokenNotCancelled = 24, "netrpc: a call that is given up does not cancel its payload token.";
    LostPeerIgnored = 25, "netrpc: calls under way when a peer restarts never end.";
    PlacedNotSynced = 26, "stripe server: a large COMMIT does not synchronise the data it put in place.";
    IntentSkipped = 27, "stripe server: a large COMMIT writes in place without an intent in the log.";
    StaleLoadKept = 28, "stripe server: a disk read keeps its blocks although they changed meanwhile.";
    DiskNotVerified = 29, "stripe server: what is read from disk is not verified.";
    TombstoneIgnored = 30, "stripe server: a late write brings a removed object back.";
    TornNotSummed = 31, "stripe server: blocks torn by a crash keep their old checksums.";
    CutBlockKept = 32, "stripe server: a truncation leaves the bytes behind it in the last block.";
    SourceNameKept = 33, "names: a rename leaves the old name.";
    SessionNotLogged = 34, "names: write sessions are not in the log.";
    NamesNotSynced = 35, "files: fsync of a new file does not sync the name space.";
    FsyncNotWaitedFor = 36, "files: fsync does not wait for the commit.";
    OverlayIgnored = 37, "files: a read does not see writes that are still on their way.";
    OldSessionAccepted = 38, "netrpc: a request of an earlier session is executed.";
    TokenKeyIgnored = 39, "endpoint: a stale token gives its payload the frames of another call.";
    QuarantineHasty = 40, "names: objects that no file claims are removed although the store is older than they are.";
    StaleMapUsed = 41, "stripe client: a block map of an earlier epoch is used.";
    WriteOrderIgnored = 42, "stripe server: writes retransmitted after a restart replace newer ones.";
    RetransmittedAsNew = 43, "files: writes retransmitted after a restart are sent as new ones.";
    LengthBeforeCutAdopted = 44, "names: a close records a final size that is older than a truncation.";
    LossNotNoticed = 45, "names: a sync does not notice that a power cut took changes.";
    StableNotCommitted = 46, "stripe server: a WRITE that shall be stable is not committed.";
    TruncationNotAwaited = 47, "stripe server: a write that knows of a truncation goes before it.";
    MirrorNotRegistered = 48, "netmem: a page that is taken in is not told to its directory.";
    MirrorsNotMadeAgain = 49, "netmem: no mirror is made anew after a node went down.";
    StampIgnored = 50, "netmem: a page that arrives is not checked against its stamp.";
    FreedNotTold = 51, "netmem: other nodes are not told that a space was freed.";
    OneMirrorForTwo = 52, "netmem: one mirror counts as two.";
    LeaseNotRevoked = 53, "netmem: the right to write to a page is granted although another node has it.";
    AwayPageTaken = 54, "stripe server: pages of network memory are neither forgotten nor checked after a change.";
    AheadUnbounded = 55, "netmem: pages that nobody has asked for may take every frame.";
    FormerIncarnationKept = 56, "netmem: a node that was given up while it ran goes on as if it had not been.";
    FormerKeysServed = 57, "kv: a node that was given up while it ran answers with what it had of its keys before.";
    GuestsForgotten = 58, "netmem: a node that was given up while it ran forgets what processes that are no nodes keep there.";
    GuestsIncarnationIgnored = 59, "netmem: what a holder had of a guest in another incarnation counts as a copy.";
    SilentHolderCounted = 60, "netmem: a holder that does not answer counts as one that has taken a guest's page.";
    LogChainIgnored = 61, "stripe server: damage in a log is taken for the log's end.";
    MarkIgnored = 62, "stripe server: records are not missed that the label knows to be durable.";
    RecordSumIgnored = 63, "stripe server: the checksum of a record's description is not verified.";
    MissingIsHole = 64, "stripe server: an object whose file is missing reads as zeros.";
    IndexNotCompared = 65, "stripe server: the file of an object is not compared with what the index has.";
    HeaderSumIgnored = 66, "stripe server: the checksum of an object's header is not verified.";
    ShortFileIgnored = 67, "stripe server: what a file is too short for reads as zeros.";
    ScrubBlind = 73, "stripe server: the scrub reads blocks and does not compare them.";
    PunchForgotten = 74, "stripe server: replay of the log leaves out that blocks became holes.";
    SoughtInPlace = 75, "stripe server: a seek takes blocks that only the log has for holes.";
    DiskIdIgnored = 68, "files: a disk serves although the cluster knows another one in its place.";
    DiskAgeIgnored = 69, "files: a disk serves although it is an older copy.";
    OlderStoreServed = 71, "names: a store serves although I/O servers know that it is an older copy.";
    RestoredNumbersRepeat = 72, "names: a restored store does not begin behind the numbers that servers know of.";
    SalvagedNotCompared = 76, "names: a salvaged file has the size that its objects were told, not the one they have.";
    PresentForgotten = 77, "names: which columns had objects is forgotten: one that is lost is a hole.";
    DecisionNotSynced = 78, "names: parts of an operation are done before its decision is on stable storage.";
    PartNotSynced = 79, "names: a part of an operation is prepared before it is on stable storage.";
    PartNotFinished = 80, "names: another manager's part of a decided operation is not done.";
    ChangeDuplicated = 81, "nfs: a call that comes again is executed again.";
    CallsMistaken = 82, "nfs: of calls only the number is compared: a reply may be that to another client's.";
    EntrySkipped = 83, "nfs: a listing goes on behind the entry where it should.";
    FrontVerifierKept = 84, "nfs: the write verifier is the same in every incarnation.";
    NfsCommitIgnored = 85, "nfs: COMMIT is answered without a sync.";
    NfsStableIgnored = 86, "nfs: a stable WRITE is answered without a sync.";
    GuardIgnored = 87, "nfs: a guarded SETATTR is made whatever the time is.";
    ExclusiveTwice = 88, "names: an exclusive creation finds a file that was made with another verifier.";
    StaleTableAccepted = 89, "names: a manager executes what an old table sends to it, and owns no part of it.";
    ForwardedTwice = 90, "nfs: a call that comes again from a filter is executed again.";
    ForwardsMistaken = 91, "nfs: a filter gives the reply of a manager to another call than that it belongs to.";
    OwnBytesForgotten = 92, "nfs: a filter forwards calls about files whose bytes only it has.";
    ListingKept = 93, "names: a listing is called unchanged although a file in it has changed.";
    ConflictGranted = 94, "names: a lock that conflicts with another one is given.";
    GraceSkipped = 95, "names: a manager that has started gives locks before clients have reclaimed theirs.";
    PreparedShown = 96, "names: what an operation over several managers will change is shown as it was, until it is done.";
    BackupNotQuiesced = 97, "names: the snapshots of several managers are not taken at one moment.";
    CopyNotForwarded = 98, "stripe server: a write is answered before the other replicas have it.";
    CommitNotForwarded = 99, "stripe server: a commit is answered before the other replicas have made it.";
    RemovalNotForwarded = 100, "stripe server: a removal is made by the primary alone.";
    TruncationNotForwarded = 101, "stripe server: a truncation is made by the primary alone.";
    LeaseNotNeeded = 102, "stripe server: a primary answers without a lease.";
    FillLacksBlocks = 103, "stripe server: a replica that is filled gets no blocks.";
    SilentNotRemoved = 104, "stripe server: a primary goes on without a silent replica, which stays in sync.";
    PrimaryNotAwaited = 105, "stripe server: a replica takes the place of a primary to which it has promised to wait.";
    SettledVerifierKept = 106, "stripe server: the write verifier is the same after all replicas lost their memory.";
    OtherVersionFetched = 107, "imports: bytes of an origin's file may be of another version than the known one.";
    PlacingNotListed = 108, "stripe server: what a checkpoint has taken out of the log is in no list until it is in place.";
    ReplacementNotTold = 109, "files: that an empty disk is in the place of a lost one is not told.";
    PageSumIgnored = 70, "store: pages of the checkpoint are not verified.";
}

impl Bug {
    /// The bug of this name, as the variant is written.
    pub fn parse(name: &str) -> Option<Bug> {
        Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }

    /// Its bit in [`crate::NodeConfig::bugs`].
    pub const fn bit(self) -> u128 {
        1 << self as u8
    }
}

/// The bugs that are on, for what has no [`Cx`](crate::Cx).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bugs(pub u128);

impl Bugs {
    /// The bugs that are on in every node. `cargo xtask planted` builds tests with `--cfg planted` and names one in the
    /// environment, to see that they notice; in every other build there is none.
    pub fn everywhere() -> Bugs {
        #[cfg(planted)]
        return Bugs(std::env::var("TRAPEZE_PLANTED").map_or(0, |name| {
            Bug::parse(&name).expect("TRAPEZE_PLANTED names a planted bug").bit()
        }));
        #[cfg(not(planted))]
        Bugs(0)
    }

    /// Whether this one is.
    pub fn has(self, bug: Bug) -> bool {
        self.0 & bug.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bits_are_unique() {
        let bits = Bug::ALL.iter().fold(0, |bits, bug| bits | bug.bit());
        assert_eq!(bits, (1 << Bug::ALL.len()) - 1);
        assert_eq!(Bug::parse("StaleReadAhead"), Some(Bug::StaleReadAhead));
        assert_eq!(Bug::parse("None"), None);
        assert!(Bugs(Bug::StaleReadAhead.bit()).has(Bug::StaleReadAhead));
        assert!(!Bugs(Bug::StaleReadAhead.bit()).has(Bug::SkippedFsync));
    }
}
