//! The arguments of `trapeze forget`.
#![allow(missing_docs)] // the documentation of a flag is its help

use super::Target;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "What was on it is lost from then on, at once and for ever: reading it is an error (EIO) instead of waiting, the files can\nbe removed, and the name can be given to another machine by `trapeze join --name`. A machine or a disk that was declared\ngone is refused when it comes back. Only for what is gone for good: a machine that is just away comes back with all it had.\nIn a cluster that keeps copies nothing is lost: others take its place, unless it has the only whole copy of something.\n\n  trapeze forget -c DIR beta             the machine\n  trapeze forget -c DIR beta --disk 1    one of its disks\n  trapeze forget -c DIR beta --files     only list the files that have a part there"
)]
pub struct Forget {
    #[command(flatten)]
    pub target: Target,
    /// The lost machine, as `trapeze status` names it
    pub name: String,
    /// Only this disk of it, by its number from 0
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=31))]
    pub disk: Option<u8>,
    /// Declare nothing; list the files that have a part there, by their paths
    #[arg(long)]
    pub files: bool,
}
