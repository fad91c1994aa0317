//! The arguments of `trapeze backup`, `trapeze restore` and `trapeze salvage`.
#![allow(missing_docs)] // the documentation of a flag is its help

use super::Target;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Names, attributes, and where the bytes are, of the whole volume at one moment, while it is in use; not the bytes themselves.\nOf several managers all must run, and one file has the names of all.\nFor when a manager's disk is lost: the I/O servers still have the bytes, and `trapeze restore` says which are whose.\nAlso keep DIR/key and the *.toml files of every machine. A backup is whole or not there; an older one of the same name is\nreplaced at the end.\n\n  trapeze backup -c DIR names.backup\n  trapeze backup -c DIR - | ssh other 'cat > names.backup'"
)]
pub struct Backup {
    #[command(flatten)]
    pub target: Target,
    /// Where to write it; - is standard output
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
#[command(
    after_help = "For a manager that is stopped; the I/O servers may run. Contents are then what the disks have now: files go on from what was\nwritten last, also after the backup; columns that moved are found by their headers; files removed since are back without\nbytes, so that opening them is an error; files made since have no names, and what the disks have of them is kept until\n`trapeze quarantine resume`.\n\n  trapeze restore names.backup --dir DIR             into a manager's directory without names\n  trapeze restore names.backup --dir DIR --replace   in place of those that are there, which are kept beside it\n  trapeze restore --accept --dir DIR                 no backup: go on with an older copy that is there\n\nOf several managers each lost one is restored from the same backup, the others may go on; where one directory has several,\n--dir DIR/manager2.toml names one of them."
)]
pub struct Restore {
    /// A file that `trapeze backup` wrote; - is standard input
    #[arg(value_name = "FILE|-", required_unless_present = "accept")]
    pub file: Option<PathBuf>,
    /// The directory of `up`, `init` or `join` that has the manager's configuration, or that itself
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Restore though there are names; they are kept beside
    #[arg(long, conflicts_with = "accept")]
    pub replace: bool,
    /// Go on with the names that are there, though the I/O servers know of newer ones
    #[arg(long, conflicts_with = "file")]
    pub accept: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "For a manager that has started without the names it had, or with those of a backup: files that it does not know come under\n/lost+found, by the path that they were last known by, with owner, mode, times and contents; a name that is taken gets the\nfile's number behind it, and a file that no name is known of is #NUMBER. Not brought back: empty files that were never\nwritten, symbolic links, devices, owners and modes of directories, extended attributes, second names of a file. All I/O\nservers must run. Refused where no names were lost. It can be run again.\n\n  trapeze salvage --dir DIR   first, with the manager stopped: it may begin anew in its directory, which must have no names\n  trapeze salvage -c DIR      then, with everything started\n\nOf several managers each that lost its names begins anew, the others go on: only files of the lost ones come back."
)]
pub struct Salvage {
    #[command(flatten)]
    pub target: Target,
    /// Let the manager of this directory of `up`, `init` or `join`, or of this configuration, which has lost its names,
    /// begin anew; nothing else
    #[arg(long, value_name = "DIR", conflicts_with = "cluster")]
    pub dir: Option<PathBuf>,
}
