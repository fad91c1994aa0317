//! The beginning of a name space: only where `init` or `up` has allowed it.
//!
//! Both leave a mark in the directory of the manager's store, before the configuration that names it. A directory
//! without a name space and without the mark is one whose disk is not mounted, or that was emptied: a manager
//! that began anew there would give up every file of its cluster. The mark goes when the name space is found at a
//! later start, and with the directory.

use crate::config::{replace, sync_name};
use node::rings::StoreId;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use store::Store;

/// Why a manager does not start on a directory.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The manager has begun somewhere else than in this directory.
    #[error(
        "{0} holds no name space, and this cluster has one: is the disk mounted, and is `store` in the \
         configuration right? If the names are lost, bring them back from a backup with `trapeze restore`, or where \
         there is none from what the disks know with `trapeze salvage`: what the disks have is kept"
    )]
    NoNames(PathBuf),
    /// The mark stays.
    #[error("the manager's store: {0}")]
    System(io::Error),
}

/// The mark's text.
const TEXT: &str = "The manager may begin an empty name space here.\n";

/// The mark in the directory of a store.
pub fn mark(dir: &Path) -> PathBuf {
    dir.join("begin")
}

/// Before the user and the group that it belongs to.
const OWNER: &str = "Its root directory belongs to ";

/// Makes the directory, where a name space of this process's user may begin from now on; all of it on stable storage.
pub fn allow(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    replace(&mark(dir), &format!("{TEXT}{OWNER}{}:{}\n", uid.as_raw(), gid.as_raw()))?;
    sync_name(dir)
}

/// The user and the group who a name space that begins here belongs to: root where the mark does not say.
pub fn owner(dir: &Path) -> (u32, u32) {
    let text = fs::read_to_string(mark(dir)).unwrap_or_default();
    let owner = text.lines().find_map(|line| line.strip_prefix(OWNER)?.split_once(':'));
    let owner = owner.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    owner.unwrap_or_default()
}

/// Refuses a directory that has no name space and may have none.
pub fn check(dir: &Path) -> Result<(), BeginError> {
    if live::meta::exists(dir, StoreId::Names) || mark(dir).exists() {
        return Ok(());
    }
    Err(BeginError::NoNames(dir.into()))
}

/// As [`check`], of the store that is there.
pub fn check_store(dir: &Path, names: &Store) -> Result<(), BeginError> {
    match (names.sequence() > 0, mark(dir).exists()) {
        (false, false) => Err(BeginError::NoNames(dir.into())),
        (true, true) => fs::remove_file(mark(dir)).map_err(BeginError::System),
        _ => Ok(()),
    }
}
