//! Arguments of `trapeze run`.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use trapeze::size::Size;

#[derive(Debug, Args)]
pub struct RunProgram {
    /// How much of the program's large memory may be in memory at a time
    #[arg(long, value_name = "SIZE")]
    pub memory: Size,
    /// Most memory it may allocate; default 16 times --memory, with --cluster at most the cluster's room
    #[arg(long, value_name = "SIZE")]
    pub room: Option<Size>,
    /// Directory of the file that has the rest; the file has no name and goes with the program
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub spill: PathBuf,
    /// Keep the rest in the memory of this cluster's nodes, each page with two of them, instead of in a file: a
    /// directory of `up` or `init`, or the manager's address
    #[arg(long, short = 'c', value_name = "DIR|ADDRESS", conflicts_with = "spill")]
    pub cluster: Option<String>,
    /// File with the cluster key, when the address is tcp
    #[arg(long, env = "TRAPEZE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Do not encrypt TCP; every machine of the cluster must agree
    #[arg(long)]
    pub insecure: bool,
    /// Least size of the allocations to take
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    pub from: Size,
    /// Say at the end which pages came and left
    #[arg(long)]
    pub report: bool,
    /// Do not print the limits for programs here
    #[arg(long, short)]
    pub quiet: bool,
    /// The program
    pub program: PathBuf,
    /// Its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// A program that runs, and what of it is in other nodes' memory.
#[derive(Debug, Args)]
pub struct RunEnd {
    /// The space of its pages, in hexadecimal digits
    pub space: String,
}
