//! The arguments of `trapeze disk`.
#![allow(missing_docs)] // the documentation of a flag is its help

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Disk {
    /// Add new, empty disk directories to an I/O server of this machine
    Add(AddDisk),
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
