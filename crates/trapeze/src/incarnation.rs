//! Which start of a machine this is: a number that grows from start to start, also when its clock was set back.
//!
//! It is nanoseconds since 1970, or a little more than at the last start where the clock says less. Every directory of
//! the machine (the manager's store, the disks) has the number in a file, on stable storage before the machine speaks
//! to anybody. The directories' locks are held by then, so two starts at once cannot take the same number.
//!
//! Clients have no directory: each is given an id of its own by the manager, so its number is never compared with
//! another start's. A disk that is full or fails does not keep a machine from starting, as long as its clock is right.

use crate::config::replace;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file in each directory: the number in decimal.
pub const FILE: &str = "incarnation";
/// Most that a number is ahead of the last start's where the clock does not decide, in nanoseconds: a clock that is
/// right again is past it within a millisecond.
const GAP_MAX: u64 = 1 << 20;

/// The time by the clock, in nanoseconds since 1970.
pub fn clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |span| span.as_nanos() as u64)
}

/// How far `later` is ahead of `earlier`, for people.
pub fn apart(later: u64, earlier: u64) -> String {
    match Duration::from_nanos(later.saturating_sub(earlier)).as_secs() {
        0 => "less than a second".to_string(),
        seconds => format!("{seconds} s"),
    }
}

/// The number of a start.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    /// Greater than at every earlier start.
    pub incarnation: u64,
    /// Why it could not be noted anywhere.
    pub unnoted: Option<String>,
}

/// Begins a start of the machine that holds these directories; `now` is what the clock says. The error says what to do:
/// the clock is behind and the number that is needed instead cannot be noted.
pub fn begin(directories: &[PathBuf], now: u64, random: u64) -> Result<Start, String> {
    let last = last(directories);
    // Of disks that fail in turns each start may see another one, with the same last number on both: what is counted
    // on from it must not be the same twice.
    let next = last.saturating_add(1 + random % GAP_MAX);
    let incarnation = if now > last { now } else { next };
    let mut unnoted = None;
    let mut noted = directories.is_empty();
    for path in directories.iter().map(|directory| directory.join(FILE)) {
        match replace(&path, &format!("{incarnation}\n")) {
            Ok(()) => noted = true,
            Err(error) => unnoted = Some(format!("{}: {error}", path.display())),
        }
    }
    match unnoted.filter(|_| !noted) {
        // The same number at two starts would have peers take them for one.
        Some(why) if now <= last => Err(format!(
            "this machine's clock is behind its last start by {}, and this start cannot be noted ({why}): \
             set the clock, or see to that disk",
            apart(last, now)
        )),
        unnoted => Ok(Start { incarnation, unnoted }),
    }
}

/// The number of the last start that was noted in one of these; 0 is none.
pub fn last(directories: &[PathBuf]) -> u64 {
    directories.iter().filter_map(|directory| last_in(directory)).max().unwrap_or(0)
}

/// The number of the last start that was noted here. A file that says no number says nothing.
fn last_in(directory: &Path) -> Option<u64> {
    fs::read_to_string(directory.join(FILE)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories of a machine, in one that goes away.
    fn directories(count: usize) -> (tempfile::TempDir, Vec<PathBuf>) {
        let top = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..count).map(|n| top.path().join(n.to_string())).collect();
        paths.iter().for_each(|path| fs::create_dir(path).unwrap());
        (top, paths)
    }

    fn number(directories: &[PathBuf], now: u64) -> u64 {
        begin(directories, now, 0).unwrap().incarnation
    }

    #[test]
    fn numbers_grow_whatever_the_clock_does() {
        let (_top, directories) = directories(1);
        assert_eq!(number(&directories, 100), 100);
        assert_eq!(number(&directories, 200), 200);
        assert_eq!(number(&directories, 200), 201, "two starts in one tick");
        assert_eq!(number(&directories, 5), 202, "set back");
        assert_eq!(number(&directories, 6), 203);
        assert_eq!(number(&directories, 300), 300, "it has caught up");
        let names: Vec<_> = fs::read_dir(&directories[0]).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
    }

    #[test]
    fn one_directory_that_remembers_is_enough() {
        let (_top, directories) = directories(3);
        assert_eq!(number(&directories, 100), 100);
        fs::remove_dir_all(&directories[0]).unwrap();
        fs::write(directories[1].join(FILE), "damaged").unwrap();
        let start = begin(&directories, 7, 0).unwrap();
        assert_eq!(start, Start { incarnation: 101, unnoted: None });
        assert!(!directories[0].exists(), "a missing directory is not made");
        assert_eq!(number(&directories[1..2], 8), 102, "what was damaged is written anew");
    }

    #[test]
    fn two_starts_that_see_different_disks_get_different_numbers_while_the_clock_is_behind() {
        let (_top, directories) = directories(2);
        assert_eq!(number(&directories, 100), 100);
        let start = |seen: usize, random| begin(&directories[seen..=seen], 5, random).unwrap();
        let (one, other) = (start(0, u64::MAX), start(1, 1 << 40 | 7));
        assert_eq!((one.incarnation, other.incarnation), (100 + GAP_MAX, 108));
        assert_eq!(begin(&directories, 200 + GAP_MAX, 9).unwrap().incarnation, 200 + GAP_MAX);
    }

    #[test]
    fn what_cannot_be_noted_is_told_and_refused_when_the_clock_is_behind() {
        let (_top, directories) = directories(1);
        assert_eq!(number(&directories, 100_000_000_000), 100_000_000_000);
        fs::create_dir(directories[0].join("incarnation.new")).unwrap(); // in the way
        let start = begin(&directories, 200_000_000_000, 0).unwrap();
        assert_eq!(start.incarnation, 200_000_000_000);
        assert!(start.unnoted.unwrap().contains("incarnation"));
        let error = begin(&directories, 40_000_000_000, 0).unwrap_err();
        assert!(error.contains("clock is behind its last start by 60 s"), "{error}");
        assert!(error.contains("cannot be noted"), "{error}");
    }

    #[test]
    fn a_machine_without_a_directory_goes_by_its_clock() {
        assert_eq!(begin(&[], 9, 5), Ok(Start { incarnation: 9, unnoted: None }));
    }
}
