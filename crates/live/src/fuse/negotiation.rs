//! The capabilities agreed on with the kernel at INIT, and why.
//!
//! Close-to-open consistency decides the cache modes. We ask for neither AUTO_INVAL_DATA, which would drop what this
//! machine has just written as soon as the new mtime comes back, nor EXPLICIT_INVAL_DATA, which would keep the zeros
//! behind the old end when another client appends. Without both, the kernel drops a file's pages when its length is
//! seen to change, and at each open whose reply does not say KEEP_CACHE: that is the rule.
//!
//! WRITEBACK_CACHE stays off: write-behind is the client's, where it knows servers, limits and errors. With
//! HANDLE_KILLPRIV_V2 the front clears set-id bits when a user other than root writes, truncates or changes the
//! owner; without it the kernel would ask for `security.capability` before every single write.
//!
//! EXPORT_SUPPORT: a handle of name_to_handle_at(2) names a file by its number, which is never used again; the front
//! finds it by a look-up of `.`.

use super::abi::{MAJOR, MINOR_MAX, MINOR_MIN, Output, capability as can};
use super::limits::{BACKGROUND_MAX, CONGESTION, IO_BYTES_MAX, IO_PAGES_MAX, READ_AHEAD_BYTES};
use super::request::Offer;
use wire::Errno;

/// Capabilities that we want of the kernel, each only if it can.
const WANTED: u64 = can::ASYNC_READ
    | can::POSIX_LOCKS
    | can::ATOMIC_O_TRUNC
    | can::EXPORT_SUPPORT
    | can::BIG_WRITES
    | can::FLOCK_LOCKS
    | can::DO_READDIRPLUS
    | can::READDIRPLUS_AUTO
    | can::ASYNC_DIO
    | can::PARALLEL_DIROPS
    | can::MAX_PAGES
    | can::CACHE_SYMLINKS
    | can::HANDLE_KILLPRIV_V2
    | can::INIT_EXT;

/// The answer to the kernel's offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// We speak an older first number: it asks again with that.
    Older,
    /// Agreed.
    Agreed {
        /// Second number of the version.
        minor: u32,
        /// Longest read-ahead, in bytes.
        read_ahead: u32,
        /// Capabilities in use.
        capabilities: u64,
    },
}

/// Chooses. `EPROTO`: the kernel is older than 7.31 (Linux 5.4).
pub fn answer(offer: &Offer) -> Result<Answer, Errno> {
    if offer.major > MAJOR {
        return Ok(Answer::Older);
    }
    if offer.major < MAJOR || offer.minor < MINOR_MIN {
        return Err(Errno::EPROTO);
    }
    Ok(Answer::Agreed {
        minor: offer.minor.min(MINOR_MAX),
        read_ahead: offer.read_ahead.max(READ_AHEAD_BYTES as u32),
        capabilities: offer.capabilities & WANTED,
    })
}

impl Answer {
    /// Appends `fuse_init_out`.
    pub fn put(&self, out: &mut Output<'_>) {
        let Answer::Agreed { minor, read_ahead, capabilities } = *self else {
            out.u32(MAJOR).u32(MINOR_MAX).zeros(56);
            return;
        };
        out.u32(MAJOR).u32(minor).u32(read_ahead).u32(capabilities as u32);
        out.u16(BACKGROUND_MAX).u16(CONGESTION).u32(IO_BYTES_MAX as u32);
        let time_gran = 1;
        out.u32(time_gran).u16(IO_PAGES_MAX).u16(0).u32((capabilities >> 32) as u32);
        out.zeros(7 * 4);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(major: u32, minor: u32) -> Offer {
        Offer { major, minor, read_ahead: 131_072, capabilities: u64::MAX }
    }

    #[test]
    fn old_kernels_are_refused_and_newer_ones_met_half_way() {
        assert_eq!(answer(&offer(7, 30)), Err(Errno::EPROTO));
        assert_eq!(answer(&offer(6, 99)), Err(Errno::EPROTO));
        assert_eq!(answer(&offer(8, 0)), Ok(Answer::Older));
        let Ok(Answer::Agreed { minor, .. }) = answer(&offer(7, 99)) else { panic!() };
        assert_eq!(minor, MINOR_MAX);
    }

    #[test]
    fn the_cache_modes_are_the_documented_ones() {
        let Ok(Answer::Agreed { capabilities, .. }) = answer(&offer(7, 45)) else { panic!() };
        let never = can::AUTO_INVAL_DATA | can::EXPLICIT_INVAL_DATA | can::WRITEBACK_CACHE;
        assert_eq!(capabilities & never, 0);
        assert_ne!(capabilities & can::HANDLE_KILLPRIV_V2, 0);
        let few = Offer { capabilities: can::BIG_WRITES, ..offer(7, 31) };
        let Ok(Answer::Agreed { capabilities, .. }) = answer(&few) else { panic!() };
        assert_eq!(capabilities, can::BIG_WRITES);
    }

    #[test]
    fn the_structure_has_the_kernels_size() {
        let mut bytes = Vec::new();
        answer(&offer(7, 40)).unwrap().put(&mut Output(&mut bytes));
        assert_eq!(bytes.len(), 64);
        bytes.clear();
        Answer::Older.put(&mut Output(&mut bytes));
        assert_eq!(bytes.len(), 64);
    }
}
