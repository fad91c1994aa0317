//! `trapeze check`: the names against the objects and the objects against the names, told as paths of files.
//!
//! ```text
//! list    the objects of every I/O server                  candidates for objects without a file
//! walk    every directory; of each file, every column      a server tells whether its object is whole; --deep reads it
//! back    candidates that no file of the walk claimed       asked of the manager once more: files come and go
//! meanwhile
//! ```
//!
//! Where several managers have the names, these are compared with the files' records as well ([`names`]).
//!
//! It changes nothing. `--accept` is the only exception, and only for the paths it names.

mod accept;
mod file;
mod names;
mod ranges;
mod report;
mod walk;

use crate::cli;
use crate::tools::{ToolError, close, volume};
use report::Report;
use walk::Walk;

type Result<T> = std::result::Result<T, ToolError>;

/// `trapeze check`. An error when anything is wrong, or was not looked at.
pub fn check(arguments: &cli::Check) -> Result<()> {
    let mut volume = volume(&arguments.target)?;
    for path in &arguments.accept {
        accept::accept(&mut volume, path, &arguments.target)?;
    }
    let top = volume.stat(&arguments.path)?;
    let servers = volume.server_names();
    let walk = Walk::new(&mut volume, arguments.deep, servers)?;
    let report = walk.run(&mut volume, &arguments.path, top)?;
    report.show(&arguments.target);
    close(volume)?;
    conclude(&report)
}

fn conclude(report: &Report) -> Result<()> {
    match report.problems() {
        0 => Ok(()),
        1 => Err(ToolError::Usage("1 problem was found; it is named above".into())),
        count => Err(ToolError::Usage(format!("{count} problems were found; each is named above"))),
    }
}
