//! `trapeze disk`.

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

/// Empty disks take the places of lost ones.
pub fn replace(arguments: &cli::ReplaceDisk) -> Result<(), DiskError> {
    let replaced = new_disk::replace_lost(&arguments.config, &arguments.directories)?;
    for disk in &replaced {
        println!("disk {} of {}: {}, empty", disk.number, disk.machine, disk.dir.display());
    }
    println!("start it: trapeze serve --config {}", arguments.config.display());
    Ok(())
}
