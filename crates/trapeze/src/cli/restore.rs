//! The arguments of `trapeze restore`.
#![allow(missing_docs)] // the documentation of a flag is its help

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "For a manager that is stopped. When its directory comes back from an older copy, the I/O servers know that it is older,\nand it serves nothing. If no newer copy exists, --accept goes on with this one: files made since have no names, files\nremoved since are back, and what the disks have is kept until `trapeze quarantine resume`.\n\n  trapeze restore --accept --dir DIR"
)]
pub struct Restore {
    /// The directory of `up` or `init` that has the manager's configuration
    #[arg(long, value_name = "DIR")]
    pub dir: PathBuf,
    /// Go on with the store that is there, though the I/O servers know of a newer one
    #[arg(long, required = true)]
    pub accept: bool,
}
