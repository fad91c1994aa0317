//! `--accept`: a loss is taken as final, so that the rest of the file can be used.
//!
//! Columns that are lost begin anew as empty ones; blocks that cannot be read are written over with zeros. From then on
//! the file reads as zeros there, because a person has said so, and the check finds nothing wrong with it. Of a file
//! that got columns after the backup that the names were restored from, what they hold is given up: it ends before.

use super::file::LostColumn;
use super::ranges::Range;
use super::walk::look;
use crate::cli::Target;
use crate::tools::ToolError;
use serde_json::json;
use std::path::Path;
use terminal::table::print_json;
use trapeze::volume::Volume;
use wire::Errno;

type Result<T> = super::Result<T>;

/// Takes what is lost of the file at `path` as final.
pub fn accept(volume: &mut Volume, path: &Path, target: &Target) -> Result<()> {
    let attr = volume.stat(path)?;
    let (reference, found) = look(volume, path, attr.file)?;
    let refused = |text: String| Err(ToolError::Usage(format!("{}: {text}", path.display())));
    if let Some(server) = found.silent.first() {
        return refused(format!(
            "{server} does not answer, so what is lost is not known: start it"
        ));
    }
    if found.uncompared {
        return refused(
            "the names were restored, and what the disks have of it is not known before all servers are up".into(),
        );
    }
    let is_final = |lost: &&LostColumn| matches!(lost.why, Errno::EIO | Errno::ENOENT);
    if let Some(away) = found.columns.iter().find(|lost| !is_final(lost)) {
        return refused(format!(
            "column {} is on a disk that is not served, and may come back with it: start its server with the disk, \
             or declare the disk gone with `trapeze forget`",
            away.column
        ));
    }
    let bytes = found.lost.bytes();
    for lost in found.columns.iter().filter(|lost| lost.why == Errno::EIO) {
        volume.accept_column(path, reference, lost.column)?;
    }
    volume.accept_lost(path, attr.file)?;
    let (_, left) = look(volume, path, attr.file)?;
    for Range { offset, bytes } in left.lost.kept() {
        volume.write_zeros(path, *offset, *bytes)?;
    }
    let size = volume.stat(path)?.size;
    match target.json {
        true => {
            print_json(&json!({ "accepted": path.to_string_lossy(), "bytes": bytes, "size": size }))
        }
        false if found.grown => println!("{}: ends at {size} bytes from now on", path.display()),
        false => println!("{}: {bytes} bytes read as zeros from now on", path.display()),
    }
    Ok(())
}
