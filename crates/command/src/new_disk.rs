//! `trapeze disk add`.

use crate::cli;
use trapeze::new_disk::{self, DiskError};

/// Adds disks one by one: those before one that is refused stay.
pub fn add(arguments: &cli::AddDisk) -> Result<(), DiskError> {
    let mut machine = String::new();
    for dir in &arguments.directories {
        let added = new_disk::add(&arguments.config, dir)?;
        println!("disk {} of {}: {}", added.number, added.machine, added.dir.display());
        machine = added.machine;
    }
    println!("{machine} uses it from its next start: stop it and start it again");
    Ok(())
}
