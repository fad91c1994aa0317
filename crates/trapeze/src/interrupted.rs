//! The end of a demonstration or a measurement that is interrupted: nothing is left behind.
//!
//! A thread waits for a signal. When one comes it takes away what is mounted in the scratch directories, removes them
//! and ends the process, whatever the other threads are doing: they may be waiting for a mount. The processes that were
//! started end with this one (`children::follow_parent`).

use live::fuse::detach_below;
use live::signals;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once};
use std::time::Duration;

/// How often the removal of a directory is tried, and the pause after each: servers may still be making files in it.
const TRIES: u32 = 20;
const TRY_PAUSE: Duration = Duration::from_millis(50);

static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static WATCH: Once = Once::new();

/// From now on an interrupt removes this directory.
pub(crate) fn remove_at_interrupt(directory: &Path) -> io::Result<()> {
    directories().push(directory.to_path_buf());
    signals::install()?;
    WATCH.call_once(|| _ = std::thread::spawn(end_when_asked));
    Ok(())
}

/// The directory was removed by its maker.
pub(crate) fn forget(directory: &Path) {
    directories().retain(|other| other != directory);
}

/// Does not return when this process is being ended by a signal: what fails meanwhile fails because of that.
pub fn wait_if_ending() {
    if WATCH.is_completed() && signals::asked() {
        std::thread::sleep(2 * TRIES * TRY_PAUSE);
    }
}

fn directories() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    DIRECTORIES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn end_when_asked() {
    signals::wait();
    for directory in directories().iter() {
        eprintln!("\ntrapeze: interrupted; removing {}", directory.display());
        if let Err(error) = remove(directory) {
            eprintln!("trapeze: {}: {error}; it is left behind", directory.display());
        }
    }
    std::process::exit(signals::EXIT_CODE);
}

fn remove(directory: &Path) -> io::Result<()> {
    detach_below(directory)?;
    for _ in 1..TRIES {
        if try_remove(directory).is_ok() {
            return Ok(());
        }
        std::thread::sleep(TRY_PAUSE);
    }
    try_remove(directory)
}

/// The work that made it may be removing it, too: its work failed because of the same signal.
fn try_remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_thread_has_removed_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("scratch");
        fs::create_dir(&directory).unwrap();
        (0..2).for_each(|_| remove(&directory).unwrap());
    }
}
