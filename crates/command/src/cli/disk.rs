//! The arguments of `trapeze disk`.
#![allow(missing_docs)] // the documentation of a flag is its help

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Disk {
    /// Add new, empty disk directories to an I/O server of this machine
    Add(AddDisk),
    /// Have empty disks take the places of lost ones, in a cluster that keeps copies
    Replace(ReplaceDisk),
}

#[derive(Debug, Args)]
#[command(
    after_help = "An empty directory is taken for a new disk only where this command, `init`, `join` or `up` has said so: otherwise it may be a\nmount point without its disk. Give each disk a directory of its own below its mount point.\n\n  trapeze disk add /srv/disk1/trapeze                          of a machine of `init` or `join`\n  trapeze disk add --config trapeze-data/io2.toml /srv/disk1/t    of a server of `up`"
)]
pub struct AddDisk {
    /// The machine's configuration file
    #[arg(long, value_name = "FILE", default_value = "trapeze-machine/machine.toml")]
    pub config: PathBuf,
    /// Empty directories, made where they are not there; the server uses them from its next start
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Stop the server first, where it still runs, and start it afterwards: what its disks had is copied there from the others by\nitself. The lost disk never serves again, also if it comes back.\n\n  trapeze disk replace                                   all disks of this machine that are missing or empty\n  trapeze disk replace --config trapeze-data/io2.toml     of a server of `up`\n  trapeze disk replace /srv/disk1/trapeze                one of them"
)]
pub struct ReplaceDisk {
    /// The machine's configuration file
    #[arg(long, value_name = "FILE", default_value = "trapeze-machine/machine.toml")]
    pub config: PathBuf,
    /// Directories as the configuration names them, missing or empty. Default: all that are missing or empty
    #[arg(value_name = "DIR")]
    pub directories: Vec<PathBuf>,
}
