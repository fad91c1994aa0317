//! The log of pages of a node that takes part in network memory, in a directory of its machine: what
//! `netmem::Class::MirroredAndLogged` asks for beside a mirror.
//!
//! The directory is a disk's, as an I/O server has them, with one file in it; one process uses it at a time. The log
//! is of the process that began it: the next one removes what is there.

use live::disk::{DiskConfig, Disks, DisksError, Engine};
use live::host::Host;
use netmem::limits::PAGE_BYTES_MAX;
use netmem::{PageLog, Service};
use node::rings::DiskId;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Least that a log has room for: the longest page, while its next version is written.
pub const BYTES_MIN: u64 = 2 * PAGE_BYTES_MAX as u64;

/// Why a node has no log.
#[derive(Debug, thiserror::Error)]
pub enum PageLogError {
    /// It would be full with one page.
    #[error("a log of {0} bytes: give it {BYTES_MIN} or more")]
    Small(u64),
    /// It has one already, or disks that are for files.
    #[error("the node has a log or disks already")]
    Taken,
    /// What is there is not to be removed.
    #[error("{0} has the data of an I/O server: choose another directory")]
    Foreign(PathBuf),
    /// There is no such directory, and it cannot be made.
    #[error("directory {0}: {1}")]
    NoDirectory(PathBuf, io::Error),
    /// The directory cannot be used.
    #[error(transparent)]
    Disk(#[from] DisksError),
    /// Descriptors or threads are exhausted.
    #[error("the loop cannot wait for the log: {0}")]
    Loop(io::Error),
}

/// Has a node keep a log of at most `bytes` bytes in `directory`, which is made where it is missing. `service` is the
/// one that runs on the node of `host`.
pub fn keep(
    host: &mut Host,
    service: &Service,
    directory: &Path,
    bytes: u64,
) -> Result<(), PageLogError> {
    let cx = host.node().cx().clone();
    if bytes < BYTES_MIN {
        return Err(PageLogError::Small(bytes));
    }
    if service.keeps_log() || cx.disks() > 0 {
        return Err(PageLogError::Taken);
    }
    if directory.join("label").exists() {
        return Err(PageLogError::Foreign(directory.to_owned()));
    }
    let made = std::fs::create_dir_all(directory);
    made.map_err(|error| PageLogError::NoDirectory(directory.to_owned(), error))?;
    let disks = Disks::open(&[DiskConfig::new(directory)], Engine::Auto)?;
    host.add(disks).map_err(PageLogError::Loop)?;
    service.keep_log(Rc::new(PageLog::start(&cx, DiskId(0), bytes)));
    Ok(())
}
