//! New disks: an empty directory is taken for one only where a command has left a mark in it.
//!
//! `init`, `join` and `up` leave the mark in the directories that they make, `trapeze disk add` in one that is added to
//! a machine. A directory without objects and without the mark is a mount point without its disk, or was emptied:
//! served as a new disk, it would make zeros or errors of what was on it. The mark goes once the disk has its label.
//!
//! `trapeze disk replace` leaves a mark with more in it: the new disk has the number of a lost one. That is for
//! clusters that keep copies, whose manager must agree; the mark goes when it has.

use crate::config::{ConfigError, DISKS_MAX, Machine, replace, sync_name};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The mark in a disk's directory.
const MARK: &str = "fresh";
/// The mark's text.
const TEXT: &str = "A new disk may begin in this directory.\n";
/// Its text where the disk that begins has the number of a lost one.
const REPLACING: &str =
    "A new disk may begin in this directory, in place of the one that was here.\n";
/// The directory that a file system has in its root from the start.
const LOST_AND_FOUND: &str = "lost+found";

/// A directory in which no disk is, and none may begin.
#[derive(Debug, thiserror::Error)]
#[error(
    "disk {number}: {dir} is empty, and no command has said that a new disk begins there: if a disk belongs there, mount it; \
     if that one is lost, remove the empty directory, and the server's other disks serve without it; if this is a new \
     one, run `trapeze disk add`; in a cluster that keeps copies, `trapeze disk replace` has an empty one take its place"
)]
pub struct NoDisk {
    /// Its number on the machine.
    number: usize,
    /// The directory.
    dir: PathBuf,
}

/// Why a disk was not added.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The machine's configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The machine keeps no objects.
    #[error("{0} is of a machine without disks, a manager: a disk is added to an I/O server")]
    NoServer(PathBuf),
    /// It has as many as there may be.
    #[error("{0} names {DISKS_MAX} disks already, the most of one machine: add a machine")]
    TooMany(PathBuf),
    /// There is something in it.
    #[error(
        "{0} is not empty: a new disk begins in an empty directory, best in one below its mount point, as {0}/trapeze; a \
         directory that was a disk is not made one anew"
    )]
    NotEmpty(PathBuf),
    /// It is none of the machine's.
    #[error("{dir} is no disk of {config}: `trapeze disk add` gives the machine one more")]
    NoneOf {
        /// The directory.
        dir: PathBuf,
        /// The configuration.
        config: PathBuf,
    },
    /// There is a disk in all of them.
    #[error(
        "every disk of {0} has something in its directory, and an empty one only takes the place of a lost one: move the \
         directory of that away first"
    )]
    NoneLost(PathBuf),
    /// The section to be written is no disk.
    #[error(
        "{path}: a [[disk]] cannot be appended: {error}; write the disks there as [[disk]] sections"
    )]
    Append {
        /// The configuration.
        path: PathBuf,
        /// The error in it.
        error: String,
    },
    /// The system.
    #[error("{0}: {1}")]
    System(PathBuf, io::Error),
}

/// The mark in a disk's directory.
pub fn mark(dir: &Path) -> PathBuf {
    dir.join(MARK)
}

/// Makes the directory, where a new disk may begin from now on; all of it on stable storage.
pub fn allow(dir: &Path) -> io::Result<()> {
    allow_with(dir, TEXT)
}

fn allow_with(dir: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    replace(&mark(dir), text)?;
    sync_name(dir)
}

/// Whether the disk in this directory is one in the place of a lost one, and the manager may not know it yet.
pub fn is_replacing(dir: &Path) -> bool {
    fs::read_to_string(mark(dir)).is_ok_and(|text| text == REPLACING)
}

/// A machine's disks that are in the places of lost ones, one bit each.
pub fn replacing(machine: &Machine) -> u32 {
    let disks = (0..).zip(&machine.disks);
    let marked = disks.filter(|(_, disk)| is_replacing(&disk.path));
    marked.fold(0, |bits, (number, _)| bits | 1u32 << number)
}

/// Refuses a directory in which no disk is and none may begin. One that is not there is a lost disk.
pub fn check(number: usize, dir: &Path) -> Result<(), NoDisk> {
    match dir.is_dir() && live::disk::is_unused(dir) && !mark(dir).exists() {
        false => Ok(()),
        true => Err(NoDisk { number, dir: dir.into() }),
    }
}

/// The disk in this directory has its label: it is none that may begin. A mark that cannot be removed goes at a later
/// start.
pub fn has_begun(dir: &Path) {
    let _ = fs::remove_file(mark(dir));
}

/// A disk that a machine has been given.
#[derive(Debug)]
pub struct Added {
    /// The name of the machine.
    pub machine: String,
    /// The disk's number on it.
    pub number: usize,
    /// Its directory.
    pub dir: PathBuf,
}

/// Gives the machine of a configuration a disk in a directory, which is made where it is missing.
pub fn add(config: &Path, dir: &Path) -> Result<Added, DiskError> {
    let mut machine = Machine::load(config)?;
    if machine.disks.is_empty() {
        return Err(DiskError::NoServer(config.into()));
    }
    let system = |error| DiskError::System(dir.into(), error);
    fs::create_dir_all(dir).map_err(system)?;
    let dir = dir.canonicalize().map_err(system)?;
    check_empty(&dir)?;
    let known = machine.disks.iter().position(|disk| disk.path == dir);
    // The mark comes first: a configuration that names an unmarked directory stops the machine's next start.
    allow(&dir).map_err(|error| DiskError::System(dir.clone(), error))?;
    if known.is_none() {
        machine = append(config, &machine, &dir)?;
    }
    let number = known.unwrap_or(machine.disks.len() - 1);
    Ok(Added { machine: machine.name, number, dir })
}

/// Has empty disks take the places of lost ones of a machine: in these of its directories, or in all that are missing
/// or empty.
pub fn replace_lost(config: &Path, dirs: &[PathBuf]) -> Result<Vec<Added>, DiskError> {
    let machine = Machine::load(config)?;
    if machine.disks.is_empty() {
        return Err(DiskError::NoServer(config.into()));
    }
    let own: Vec<PathBuf> = machine.disks.iter().map(|disk| disk.path.clone()).collect();
    let lost = match dirs {
        [] => own.iter().filter(|dir| !dir.exists() || check_empty(dir).is_ok()).cloned().collect(),
        dirs => dirs.iter().map(|dir| one_of(&own, config, dir)).collect::<Result<Vec<_>, _>>()?,
    };
    if lost.is_empty() {
        return Err(DiskError::NoneLost(config.into()));
    }
    let replace = |dir: PathBuf| {
        let system = |error| DiskError::System(dir.clone(), error);
        fs::create_dir_all(&dir).map_err(system)?;
        check_empty(&dir)?;
        allow_with(&dir, REPLACING).map_err(system)?;
        let number = own.iter().position(|disk| *disk == dir).expect("one of its own");
        Ok(Added { machine: machine.name.clone(), number, dir })
    };
    lost.into_iter().map(replace).collect()
}

/// The disk's directory as the configuration names it.
fn one_of(own: &[PathBuf], config: &Path, dir: &Path) -> Result<PathBuf, DiskError> {
    let full = std::path::absolute(dir).map_err(|error| DiskError::System(dir.into(), error))?;
    let is_it =
        |disk: &&PathBuf| **disk == full || dir.canonicalize().is_ok_and(|dir| **disk == dir);
    let none = || DiskError::NoneOf { dir: dir.into(), config: config.into() };
    own.iter().find(is_it).cloned().ok_or_else(none)
}

fn check_empty(dir: &Path) -> Result<(), DiskError> {
    let entries = fs::read_dir(dir).map_err(|error| DiskError::System(dir.into(), error))?;
    match entries
        .flatten()
        .all(|entry| [LOST_AND_FOUND, MARK].iter().any(|own| entry.file_name() == *own))
    {
        true => Ok(()),
        false => Err(DiskError::NotEmpty(dir.into())),
    }
}

/// Appends the disk to the configuration as it stands, comments and all.
fn append(path: &Path, machine: &Machine, dir: &Path) -> Result<Machine, DiskError> {
    if machine.disks.len() >= DISKS_MAX {
        return Err(DiskError::TooMany(path.into()));
    }
    let system = |error| DiskError::System(path.into(), error);
    let before = fs::read_to_string(path).map_err(system)?;
    let wrong = |error: String| DiskError::Append { path: path.into(), error };
    let name = dir.to_str().ok_or_else(|| wrong("its path is not UTF-8".into()))?;
    let name = toml::Value::String(name.to_string());
    let text = format!("{}\n\n[[disk]]\npath = {name}\n", before.trim_end());
    // Before it takes the old one's place.
    let parsed = toml::from_str::<Machine>(&text).map_err(|error| wrong(error.to_string()))?;
    match parsed.disks.len() == machine.disks.len() + 1 {
        true => replace(path, &text).map_err(system)?,
        false => return Err(wrong("it is not one disk more".into())),
    }
    Ok(Machine::load(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# by hand\ncluster = \"00000000000000ab\"\nvolume = 1\nname = \"io1\"\nnode = 2\n\
        roles = [\"io\"]\nlisten = [\"unix:io1.sock\"]\nmanager = { node = 1, addresses = [\"tcp:m:7400\"] }\n\
        [[disk]]\npath = \"disk0\"\n[memory]\npool = \"64M\"\ncache = \"8M\" # little\n";

    fn added(config: &Path, dir: &Path) -> Result<Machine, String> {
        add(config, dir).map_err(|error| error.to_string())?;
        Ok(Machine::load(config).unwrap())
    }

    #[test]
    fn a_disk_is_appended_to_a_configuration_that_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let (config, new) = (home.join("machine.toml"), home.join("a \"new\" one"));
        fs::write(&config, CONFIG).unwrap();
        let machine = added(&config, &new).unwrap();
        let paths: Vec<_> = machine.disks.iter().map(|disk| disk.path.clone()).collect();
        assert_eq!(paths, [home.join("disk0"), new.clone()]);
        assert!(mark(&new).exists() && check(1, &new).is_ok());
        assert!(fs::read_to_string(&config).unwrap().starts_with(CONFIG.trim_end()));
        // Again, or after it was written by hand: the mark only.
        fs::remove_file(mark(&new)).unwrap();
        assert_eq!(added(&config, &new).unwrap(), machine);
        assert!(mark(&new).exists());
    }

    #[test]
    fn what_has_files_in_it_is_no_new_disk() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let (config, disk) = (home.join("machine.toml"), home.join("disk"));
        fs::write(&config, CONFIG).unwrap();
        fs::create_dir_all(disk.join(LOST_AND_FOUND)).unwrap();
        added(&config, &disk).unwrap();
        fs::write(disk.join("label"), "of a disk").unwrap();
        assert!(added(&config, &disk).unwrap_err().contains("is not empty"));
        let inline = CONFIG.replace("[[disk]]\npath = \"disk0\"", "");
        fs::write(&config, format!("disk = [{{ path = \"disk0\" }}]\n{inline}")).unwrap();
        let error = added(&config, &home.join("other")).unwrap_err();
        assert!(error.contains("as [[disk]] sections"), "{error}");
        assert_eq!(Machine::load(&config).unwrap().disks.len(), 1);
    }

    #[test]
    fn an_empty_disk_takes_the_place_of_one_that_is_lost_and_of_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let (config, disk) = (home.join("machine.toml"), home.join("disk0"));
        fs::write(&config, CONFIG).unwrap();
        let other = replace_lost(&config, &[home.join("other")]).unwrap_err().to_string();
        assert!(other.contains("is no disk of"), "{other}");
        for named in [vec![], vec![disk.clone()]] {
            let replaced = replace_lost(&config, &named).unwrap();
            assert_eq!((replaced[0].number, &replaced[0].dir), (0, &disk));
            assert!(is_replacing(&disk) && check(0, &disk).is_ok());
            fs::remove_dir_all(&disk).unwrap();
        }
        allow(&disk).unwrap();
        assert!(!is_replacing(&disk), "a disk more");
        fs::write(disk.join("label"), "of a disk").unwrap();
        let full = replace_lost(&config, &[]).unwrap_err().to_string();
        assert!(full.contains("has something in its directory"), "{full}");
        assert!(replace_lost(&config, &[disk]).unwrap_err().to_string().contains("is not empty"));
    }

    #[test]
    fn an_empty_directory_is_no_disk_unless_it_is_marked() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        let error = check(3, dir).unwrap_err().to_string();
        for part in ["disk 3", "is empty", "trapeze disk add"] {
            assert!(error.contains(part), "{error}");
        }
        check(3, &dir.join("missing")).unwrap();
        allow(dir).unwrap();
        check(3, dir).unwrap();
        has_begun(dir);
        assert!(check(3, dir).is_err());
        fs::create_dir_all(dir.join("objects/7f")).unwrap();
        assert!(check(3, dir).is_err(), "what an opened disk has before anything is in it");
        fs::write(dir.join("objects/7f/object"), "").unwrap();
        check(3, dir).unwrap();
    }
}
