//! Why a store cannot do what it was asked.

use wire::Errno;

/// An error of the store. Its text is for people: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The storage under the store failed or holds what cannot be read.
    #[error(
        "the store's checkpoint cannot be {action}: {reason}; check the disk, then start again, or bring the whole \
         directory of the store back as it was, or a backup with `trapeze restore`"
    )]
    Storage {
        /// The action that failed.
        action: &'static str,
        /// The storage's own error.
        reason: String,
    },
    /// A page of the checkpoint is not what was written.
    #[error(
        "the store's checkpoint is damaged at byte {offset}: the page there is not what was written; \
         bring the whole directory of the store back as it was, or a backup with `trapeze restore`"
    )]
    Rotten {
        /// Offset of the page.
        offset: u64,
    },
    /// The checkpoint ends before the first change that there is, which went into it once.
    #[error(
        "the store's checkpoint ends at change {sequence}, and the first log that there is, {log}, begins at change \
         {begins}: the checkpoint is an older copy of itself, or logs were removed; bring back both, or bring \
         the whole directory of the store back as it was, or a backup with `trapeze restore`"
    )]
    Behind {
        /// The last change in the checkpoint.
        sequence: u64,
        /// The first log behind it.
        log: u64,
        /// The first change in it.
        begins: u64,
    },
    /// The logs are not there.
    #[error(
        "the store has no log of generation {log} or later, of which there was one; bring its logs back, or bring \
         the whole directory of the store back as it was, or a backup with `trapeze restore`"
    )]
    NoLog {
        /// The first that may be there.
        log: u64,
    },
    /// A log belongs to another store, or to another history of this one.
    #[error(
        "log {log} of the store is not one of its own: {why}; give back the store's own log, or bring the whole \
         directory of the store back as it was, or a backup with `trapeze restore`"
    )]
    Foreign {
        /// Generation by its name.
        log: u64,
        /// The reason.
        why: &'static str,
    },
    /// The checkpoint belongs to something else.
    #[error("the store holds {found}, not {wanted}; give the directory of the right store")]
    Kind {
        /// The checkpoint's format.
        found: String,
        /// The caller's format.
        wanted: String,
    },
    /// The checkpoint was written by another version.
    #[error(
        "the store of {kind} has format version {found}, this program writes version {wanted}; \
         use a program of that version"
    )]
    Version {
        /// The store's purpose.
        kind: String,
        /// Version of the checkpoint.
        found: u32,
        /// Version of the program.
        wanted: u32,
    },
    /// A log lost a change that was on stable storage once.
    #[error(
        "log {log} of the store is damaged at byte {offset}: change {sequence} is missing although \
         it was on stable storage; bring the whole directory of the store back as it was, or a backup with `trapeze restore`"
    )]
    Damaged {
        /// Generation of the log.
        log: u64,
        /// First byte that is not what was written.
        offset: u64,
        /// The change that should be there.
        sequence: u64,
    },
    /// Logs were not given in ascending order of their generations.
    #[error("log {log} of the store comes after log {after}; give logs in ascending order")]
    Order {
        /// The log out of order.
        log: u64,
        /// The one before it.
        after: u64,
    },
    /// Too much waits for a checkpoint: ask again when one is done.
    #[error("{bytes} bytes of changes wait for a checkpoint, {limit} may; try again later")]
    Full {
        /// Bytes that wait.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An append to the log failed: nothing can be acknowledged until a checkpoint is done.
    #[error("the store's log cannot be written; changes are refused until a checkpoint is done")]
    LogFailed,
}

impl StoreError {
    pub(crate) fn storage(action: &'static str) -> impl Fn(redb::Error) -> StoreError {
        move |error| StoreError::Storage { action, reason: error.to_string() }
    }
}

impl From<&StoreError> for Errno {
    /// The error number that a service answers its clients with.
    fn from(error: &StoreError) -> Errno {
        match error {
            StoreError::Full { .. } => Errno::EAGAIN,
            _ => Errno::EIO,
        }
    }
}

impl From<StoreError> for Errno {
    fn from(error: StoreError) -> Errno {
        Errno::from(&error)
    }
}
